
/*
 * A scrape, in a thread: rows of the metrics' zone, added up over its lanes,
 * and what the ledger is right now.  All is collected first, then written, as
 * the format wants all samples of a metric together.
 *
 * A model may have several rows, as its owner changes, and models of two groups
 * may have the same owner and id: rows whose labels are the same are added up.
 *
 * Words of the ledger are read without its lock, but for limits, whose three
 * words belong together: a balance and a hold may be of two instants.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>

#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_managed.h"
#include "ngx_modelgw_metrics.h"
#include "ngx_modelgw_out.h"
#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_metrics.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_SCRAPE_TEXT  65536      /* bytes allocated at first */


static ngx_int_t ngx_http_modelgw_scrape_collect(ngx_http_modelgw_scrape_t *s);
static ngx_int_t ngx_http_modelgw_scrape_groups(ngx_http_modelgw_scrape_t *s);
static ngx_int_t ngx_http_modelgw_scrape_models(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_model(ngx_http_modelgw_scrape_t *s,
    ngx_http_modelgw_scrape_model_t *model, ngx_uint_t index);
static void ngx_http_modelgw_scrape_merge(
    ngx_http_modelgw_scrape_models_t *models,
    ngx_http_modelgw_scrape_model_t *model, size_t offset);
static ngx_int_t ngx_http_modelgw_scrape_keys(ngx_http_modelgw_scrape_t *s);
static ngx_int_t ngx_http_modelgw_scrape_managed(ngx_http_modelgw_scrape_t *s,
    ngx_uint_t n);
static void ngx_http_modelgw_scrape_key(ngx_http_modelgw_scrape_t *s,
    ngx_modelgw_key_t *key);
static void ngx_http_modelgw_scrape_ledger(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_accounts(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_calls(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_cluster(ngx_http_modelgw_scrape_t *s);
static void ngx_http_modelgw_scrape_nginx(ngx_http_modelgw_scrape_t *s);


ngx_int_t
ngx_http_modelgw_scrape(ngx_http_modelgw_job_t *job, ngx_modelgw_store_t *store)
{
    ngx_modelgw_out_t           out;
    ngx_modelgw_out_piece_t     piece;
    ngx_http_modelgw_scrape_t  *s;

    s = ngx_pcalloc(job->pool, sizeof(ngx_http_modelgw_scrape_t));
    if (s == NULL) {
        return NGX_ERROR;
    }

    s->pool = job->pool;
    s->mmcf = job->mmcf;
    s->ledger = job->mmcf->ledger;
    s->metrics = job->mmcf->metrics;
    s->limits = job->data;
    s->text.out = &out;

    if (ngx_http_modelgw_scrape_collect(s) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_modelgw_out_piece(&out, &piece, job->pool,
                          NGX_HTTP_MODELGW_SCRAPE_TEXT);

    ngx_http_modelgw_scrape_write(s);

    return ngx_modelgw_out_piece_done(&out, &job->body);
}


static ngx_int_t
ngx_http_modelgw_scrape_collect(ngx_http_modelgw_scrape_t *s)
{
    if (ngx_http_modelgw_scrape_groups(s) != NGX_OK
        || ngx_http_modelgw_scrape_models(s) != NGX_OK
        || ngx_http_modelgw_scrape_keys(s) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (s->ledger) {
        ngx_http_modelgw_scrape_ledger(s);
        ngx_http_modelgw_scrape_calls(s);
    }

    if (s->mmcf->cluster) {
        ngx_http_modelgw_scrape_cluster(s);
    }

    /* after the ledger: what has stopped calls is counted already */

    ngx_modelgw_metrics_sum(s->metrics, NGX_MODELGW_METRICS_LEDGER, 0, &s->row);

    s->failures = s->row.failures;
    s->dead = s->row.dead;
    s->started = ngx_modelgw_metrics_started(s->metrics);
    s->config_time = s->mmcf->config_time;

    ngx_http_modelgw_scrape_nginx(s);

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_scrape_groups(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t                         i;
    ngx_http_modelgw_group_t         **group;
    ngx_http_modelgw_scrape_group_t   *g;

    s->ngroups = ngx_modelgw_metrics_rows(s->metrics,
                                          NGX_MODELGW_METRICS_GROUPS);

    s->groups = ngx_pcalloc(s->pool, s->ngroups
                                     * sizeof(ngx_http_modelgw_scrape_group_t));
    if (s->groups == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < s->ngroups; i++) {
        g = &s->groups[i];

        ngx_modelgw_metrics_name(s->metrics, NGX_MODELGW_METRICS_GROUPS, i,
                                 &g->name);
        ngx_modelgw_metrics_sum(s->metrics, NGX_MODELGW_METRICS_GROUPS, i,
                                &g->row);
    }

    ngx_str_set(&s->groups[NGX_MODELGW_METRICS_OTHER].name, "other");

    group = s->mmcf->groups.elts;

    for (i = 0; i < s->mmcf->groups.nelts; i++) {
        if (group[i]->cell < s->ngroups) {
            s->groups[group[i]->cell].configured = 1;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_scrape_models(ngx_http_modelgw_scrape_t *s)
{
    size_t                            size;
    ngx_uint_t                        i;
    ngx_http_modelgw_scrape_model_t  *model;

    s->nrows = ngx_modelgw_metrics_rows(s->metrics, NGX_MODELGW_METRICS_MODELS);

    size = s->nrows * sizeof(ngx_http_modelgw_scrape_model_t);

    model = ngx_pcalloc(s->pool, 3 * size);
    if (model == NULL) {
        return NGX_ERROR;
    }

    s->rows = model;
    s->models.elts = model + s->nrows;
    s->owned.elts = model + 2 * s->nrows;

    for (i = 0; i < s->nrows; i++) {
        model = &s->rows[i];

        ngx_http_modelgw_scrape_model(s, model, i);

        ngx_http_modelgw_scrape_merge(&s->models, model,
                           offsetof(ngx_http_modelgw_scrape_model_t, group));
        ngx_http_modelgw_scrape_merge(&s->owned, model,
                           offsetof(ngx_http_modelgw_scrape_model_t, owner));
    }

    return NGX_OK;
}


/* The row's name is "GROUP\0OWNER\0ID". */

static void
ngx_http_modelgw_scrape_model(ngx_http_modelgw_scrape_t *s,
    ngx_http_modelgw_scrape_model_t *model, ngx_uint_t index)
{
    u_char     *p, *last;
    ngx_str_t   name;

    ngx_modelgw_metrics_sum(s->metrics, NGX_MODELGW_METRICS_MODELS, index,
                            &model->row);

    if (index == NGX_MODELGW_METRICS_OTHER) {
        ngx_str_set(&model->group, "other");
        model->id = model->group;
        model->owner = model->group;
        return;
    }

    ngx_modelgw_metrics_name(s->metrics, NGX_MODELGW_METRICS_MODELS, index,
                             &name);

    last = name.data + name.len;
    p = ngx_strlchr(name.data, last, '\0');

    model->group.data = name.data;
    model->group.len = p - name.data;

    model->owner.data = p + 1;
    p = ngx_strlchr(p + 1, last, '\0');
    model->owner.len = p - model->owner.data;

    model->id.data = p + 1;
    model->id.len = last - model->id.data;
}


/*
 * Adds the model's cells to those of one with the same id, and group or owner:
 * the label at the offset.
 */

static void
ngx_http_modelgw_scrape_merge(ngx_http_modelgw_scrape_models_t *models,
    ngx_http_modelgw_scrape_model_t *model, size_t offset)
{
    uint64_t                         *from, *to;
    ngx_str_t                        *label, *other;
    ngx_uint_t                        i, k;
    ngx_http_modelgw_scrape_model_t  *m;

    label = (ngx_str_t *) ((u_char *) model + offset);

    for (i = 0; i < models->n; i++) {
        m = &models->elts[i];
        other = (ngx_str_t *) ((u_char *) m + offset);

        if (m->id.len != model->id.len
            || other->len != label->len
            || ngx_memcmp(m->id.data, model->id.data, m->id.len) != 0
            || ngx_memcmp(other->data, label->data, label->len) != 0)
        {
            continue;
        }

        from = (uint64_t *) &model->row;
        to = (uint64_t *) &m->row;

        for (k = 0;
             k < sizeof(ngx_modelgw_metrics_model_t) / sizeof(uint64_t);
             k++)
        {
            to[k] += from[k];
        }

        return;
    }

    models->elts[models->n++] = *model;
}


/*
 * If there are more than may have series, none has.  A key that operators have
 * made has a row since its first request.
 */

static ngx_int_t
ngx_http_modelgw_scrape_keys(ngx_http_modelgw_scrape_t *s)
{
    ngx_uint_t               n;
    ngx_modelgw_key_t       *key;
    ngx_modelgw_keys_pos_t   pos;

    if (s->mmcf->keys == NULL) {
        return NGX_OK;
    }

    s->config_keys = ngx_modelgw_keys_count(s->mmcf->keys);
    n = s->config_keys;

    if (s->mmcf->managed) {
        s->managed_max = ngx_modelgw_managed_max(s->mmcf->managed);
        s->managed = s->managed_max
                     - ngx_modelgw_managed_free(s->mmcf->managed);
        n += s->managed;
    }

    if (n > s->limits->keys) {
        s->omitted[0] = 1;
        return NGX_OK;
    }

    s->keys = ngx_pcalloc(s->pool, n * sizeof(ngx_http_modelgw_scrape_key_t));
    if (s->keys == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    while ((key = ngx_modelgw_keys_next(s->mmcf->keys, &pos)) != NULL) {

        if (key->cell == NGX_MODELGW_METRICS_OTHER) {
            s->omitted[0] = 1;

        } else {
            ngx_http_modelgw_scrape_key(s, key);
        }
    }

    return ngx_http_modelgw_scrape_managed(s, n);
}


/* Adds those that operators have made, as long as there are less than n. */

static ngx_int_t
ngx_http_modelgw_scrape_managed(ngx_http_modelgw_scrape_t *s, ngx_uint_t n)
{
    uint32_t                    rows;
    ngx_uint_t                  i;
    ngx_modelgw_key_t          *key;
    ngx_modelgw_managed_key_t  *managed;

    managed = NULL;
    rows = ngx_modelgw_metrics_rows(s->metrics, NGX_MODELGW_METRICS_KEYS);

    for (i = 0; i < s->managed_max && s->nkeys < n; i++) {

        if (managed == NULL) {
            managed = ngx_palloc(s->pool, sizeof(ngx_modelgw_managed_key_t));
            if (managed == NULL) {
                return NGX_ERROR;
            }
        }

        if (ngx_modelgw_managed_at(s->mmcf->managed, i, managed) != NGX_OK
            || managed->state != NGX_MODELGW_KEY_ACTIVE)
        {
            continue;
        }

        key = ngx_http_modelgw_managed_key(s->pool, s->mmcf, managed);
        if (key == NULL) {
            return NGX_ERROR;
        }

        if (ngx_modelgw_keys_named(s->mmcf->keys, &key->id)) {
            continue;
        }

        managed = NULL;

        key->cell = ngx_modelgw_metrics_find(s->metrics,
                                             NGX_MODELGW_METRICS_KEYS,
                                             &key->id);

        if (key->cell == NGX_MODELGW_METRICS_OTHER
            && rows == ngx_modelgw_metrics_max(s->metrics,
                                               NGX_MODELGW_METRICS_KEYS))
        {
            s->omitted[0] = 1;
            continue;
        }

        ngx_http_modelgw_scrape_key(s, key);
    }

    return NGX_OK;
}


static void
ngx_http_modelgw_scrape_key(ngx_http_modelgw_scrape_t *s,
    ngx_modelgw_key_t *key)
{
    ngx_http_modelgw_scrape_key_t  *k;

    k = &s->keys[s->nkeys++];
    k->key = key;

    k->limited = (s->ledger && key->group
                  && ngx_modelgw_ledger_key_find(s->ledger, &key->id,
                                                 &k->limits)
                     == NGX_OK);

    if (key->cell != NGX_MODELGW_METRICS_OTHER) {
        ngx_modelgw_metrics_sum(s->metrics, NGX_MODELGW_METRICS_KEYS, key->cell,
                                &k->row);
    }
}


static void
ngx_http_modelgw_scrape_ledger(ngx_http_modelgw_scrape_t *s)
{
    uint32_t  running, leaving;

    ngx_modelgw_ledger_used(s->ledger, &s->used, &s->max);
    ngx_modelgw_ledger_workers(s->ledger, &running, &leaving);

    s->workers[0] = running;
    s->workers[1] = leaving;

    if (ngx_modelgw_ledger_credit(s->ledger)) {
        s->writable = ngx_modelgw_ledger_writable(s->ledger);
        s->queue = ngx_modelgw_ledger_done_count(s->ledger);

        ngx_http_modelgw_scrape_accounts(s);
    }
}


static void
ngx_http_modelgw_scrape_accounts(ngx_http_modelgw_scrape_t *s)
{
    int64_t                        balance;
    ngx_uint_t                     i, n;
    ngx_modelgw_ledger_account_t  *a;

    n = ngx_modelgw_ledger_accounts(s->ledger);

    for (i = 0; i < n; i++) {
        a = ngx_modelgw_ledger_account_at(s->ledger, i);

        balance = __atomic_load_n(&a->balance, __ATOMIC_RELAXED);

        s->accounts[balance <= 0]++;
        s->balance += balance;
        s->held += __atomic_load_n(&a->held, __ATOMIC_RELAXED);
    }

    if (n <= s->limits->accounts) {
        s->naccounts = n;

    } else {
        s->omitted[1] = 1;
    }
}


static void
ngx_http_modelgw_scrape_cluster(ngx_http_modelgw_scrape_t *s)
{
    uint64_t                   pos, end;
    ngx_modelgw_lease_node_t  *node;

    node = ngx_modelgw_node(s->ledger);
    pos = node->pos;
    end = node->end;

    s->node = node;
    s->up = (node->state == NGX_MODELGW_NODE_MEMBER);
    s->passed = ngx_http_modelgw_node_passed(node);
    s->behind = (end > pos) ? end - pos : 0;
    s->lent = ngx_http_modelgw_node_lent(s->ledger);
    s->waiting_claims = node->waiting;
    s->recalls = node->recalls;
    s->fenced = node->fenced;
    s->exchange_failures = node->failures;

    s->waits[0] = node->lent;
    s->waits[1] = node->refused;
    s->waits[2] = node->silent;
}


static void
ngx_http_modelgw_scrape_calls(ngx_http_modelgw_scrape_t *s)
{
    uint32_t                          group;
    uint64_t                          state;
    ngx_uint_t                        i;
    ngx_modelgw_call_t               *call;
    ngx_http_modelgw_scrape_model_t  *model;

    for (i = 0;
         (call = ngx_modelgw_ledger_call_at(s->ledger, i)) != NULL;
         i++)
    {
        state = __atomic_load_n(&call->state, __ATOMIC_ACQUIRE);

        if (state == NGX_MODELGW_CALL_FREE || state == NGX_MODELGW_CALL_DONE) {
            continue;
        }

        group = __atomic_load_n(&call->cell, __ATOMIC_RELAXED);

        if (group & NGX_MODELGW_CALL_GROUP) {
            group &= ~NGX_MODELGW_CALL_GROUP;

        } else if (group < s->nrows) {
            model = &s->rows[group];

            group = ngx_modelgw_metrics_find(s->metrics,
                                             NGX_MODELGW_METRICS_GROUPS,
                                             &model->group);
        }

        if (group >= s->ngroups) {
            group = NGX_MODELGW_METRICS_OTHER;
        }

        s->groups[group].calls++;
    }
}


static void
ngx_http_modelgw_scrape_nginx(ngx_http_modelgw_scrape_t *s)
{
#if (NGX_STAT_STUB)

    s->active = *ngx_stat_active;
    s->reading = *ngx_stat_reading;
    s->writing = *ngx_stat_writing;
    s->waiting = *ngx_stat_waiting;
    s->accepted = *ngx_stat_accepted;
    s->handled = *ngx_stat_handled;
    s->requests = *ngx_stat_requests;

#endif
}
