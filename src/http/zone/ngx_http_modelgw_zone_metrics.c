
/*
 * The zone of the metrics: made if a location has "modelgw_metrics", kept over
 * reloads if its size is the same; rows for what is configured; and the counts
 * of calls that end without a request, and of the writer.
 *
 * It is not a part of the ledger's zone: that cannot be changed by a reload,
 * and this is neither needed for calls nor worth a refusal.  What has no room
 * is counted as "other", with a warning.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_metrics.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_METRICS_DEFAULT  (4 * 1024 * 1024)


typedef struct {
    ngx_http_modelgw_main_conf_t  *mmcf;
    ngx_uint_t                     refused[NGX_MODELGW_METRICS_TABLES];
    ngx_uint_t                     n;            /* refused in total */
} ngx_http_modelgw_zone_rows_t;


static ngx_int_t ngx_http_modelgw_zone_metrics_init(ngx_shm_zone_t *zone,
    void *data);
static ngx_uint_t ngx_http_modelgw_zone_metrics_lanes(ngx_cycle_t *cycle);
static size_t ngx_http_modelgw_zone_metrics_need(ngx_cycle_t *cycle,
    ngx_uint_t n[NGX_MODELGW_METRICS_TABLES]);
static void ngx_http_modelgw_zone_metrics_group(
    ngx_http_modelgw_zone_rows_t *rows, ngx_http_modelgw_group_t *group);
static void ngx_http_modelgw_zone_metrics_models(
    ngx_http_modelgw_zone_rows_t *rows, ngx_http_modelgw_group_t *group,
    ngx_array_t *models);
static void ngx_http_modelgw_zone_metrics_keys(
    ngx_http_modelgw_zone_rows_t *rows, ngx_http_modelgw_main_conf_t *mmcf);
static uint32_t ngx_http_modelgw_zone_metrics_row(
    ngx_http_modelgw_zone_rows_t *rows, ngx_modelgw_metrics_table_e table,
    ngx_str_t *name);
static uint32_t ngx_http_modelgw_zone_metrics_add(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_modelgw_metrics_table_e table,
    ngx_str_t *name);


ngx_int_t
ngx_http_modelgw_zone_metrics_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_str_t        name = ngx_string("modelgw_metrics");
    ngx_shm_zone_t  *zone;

    ngx_conf_init_size_value(mmcf->metrics_size,
                             NGX_HTTP_MODELGW_METRICS_DEFAULT);

    if (!mmcf->metered) {
        return NGX_OK;
    }

    zone = ngx_shared_memory_add(cf, &name, mmcf->metrics_size,
                                 &ngx_http_modelgw_module);
    if (zone == NULL) {
        return NGX_ERROR;
    }

    zone->init = ngx_http_modelgw_zone_metrics_init;
    zone->data = mmcf;

    mmcf->cycle = cf->cycle;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_zone_metrics_init(ngx_shm_zone_t *zone, void *data)
{
    ngx_http_modelgw_main_conf_t *old = data;

    size_t                         size;
    u_char                        *p;
    ngx_uint_t                     none[NGX_MODELGW_METRICS_TABLES] = { 0 };
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = zone->data;

    if (old) {
        mmcf->metrics = old->metrics;
        return NGX_OK;
    }

    p = ngx_http_modelgw_zone_memory(zone, &size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    mmcf->metrics = ngx_modelgw_metrics_create(p, size,
                             ngx_http_modelgw_zone_metrics_lanes(mmcf->cycle),
                             (uint64_t) ngx_time());

    if (mmcf->metrics == NULL) {
        ngx_log_error(NGX_LOG_EMERG, zone->shm.log, 0,
                      "zone too small: \"modelgw_metrics_zone\" of %uzk, it "
                      "needs at least %uzk for so many workers",
                      zone->shm.size / 1024,
                      ngx_http_modelgw_zone_metrics_need(mmcf->cycle, none));
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* a lane for each worker, and for each old one that leaves after a reload */

static ngx_uint_t
ngx_http_modelgw_zone_metrics_lanes(ngx_cycle_t *cycle)
{
    ngx_core_conf_t  *ccf;

    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);

    return 2 * ngx_max(ccf->worker_processes, 1);
}


/* KB, for so many rows; the pool has a record for each page, and own pages */

static size_t
ngx_http_modelgw_zone_metrics_need(ngx_cycle_t *cycle,
    ngx_uint_t n[NGX_MODELGW_METRICS_TABLES])
{
    size_t  size;

    size = ngx_modelgw_metrics_size(ngx_http_modelgw_zone_metrics_lanes(cycle),
                                    n);

    size = (size / ngx_pagesize + 3)
           * (ngx_pagesize + sizeof(ngx_slab_page_t));

    return size / 1024 + 1;
}


void
ngx_http_modelgw_zone_metrics_in_force(ngx_cycle_t *cycle)
{
    ngx_uint_t                     i;
    ngx_http_modelgw_group_t     **group;
    ngx_http_modelgw_zone_rows_t   rows;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_modelgw_module);

    if (mmcf == NULL || mmcf->metrics == NULL) {
        return;
    }

    ngx_memzero(&rows, sizeof(ngx_http_modelgw_zone_rows_t));
    rows.mmcf = mmcf;

    group = mmcf->groups.elts;

    for (i = 0; i < mmcf->groups.nelts; i++) {
        ngx_http_modelgw_zone_metrics_group(&rows, group[i]);
    }

    ngx_http_modelgw_zone_metrics_keys(&rows, mmcf);

    if (rows.n == 0) {
        return;
    }

    /* those of former configurations keep their room */

    for (i = 0; i < NGX_MODELGW_METRICS_TABLES; i++) {
        rows.refused[i] += ngx_modelgw_metrics_rows(mmcf->metrics, i);
    }

    ngx_log_error(NGX_LOG_WARN, cycle->log, 0,
                  "\"modelgw_metrics_zone\" of %uzk has no room for %ui of the "
                  "groups, models and keys, which have no counters of their "
                  "own: it needs %uzk",
                  mmcf->metrics_size / 1024, rows.n,
                  ngx_http_modelgw_zone_metrics_need(cycle, rows.refused));
}


static void
ngx_http_modelgw_zone_metrics_group(ngx_http_modelgw_zone_rows_t *rows,
    ngx_http_modelgw_group_t *group)
{
    group->cell = ngx_http_modelgw_zone_metrics_row(rows,
                                  NGX_MODELGW_METRICS_GROUPS, &group->name);

    ngx_http_modelgw_zone_metrics_models(rows, group, &group->models);
    ngx_http_modelgw_zone_metrics_models(rows, group, &group->patterns);
}


/*
 * The row's name is "GROUP\0OWNER\0ID": all labels of its series, so that what
 * was counted stays where it is if another configuration has another owner.
 * LF is the only control byte of a label.
 */

static void
ngx_http_modelgw_zone_metrics_models(ngx_http_modelgw_zone_rows_t *rows,
    ngx_http_modelgw_group_t *group, ngx_array_t *models)
{
    u_char                    *p, *last, text[NGX_MODELGW_METRICS_MODEL];
    ngx_str_t                  name;
    ngx_uint_t                 i;
    ngx_http_modelgw_model_t  *model;

    model = models->elts;

    for (i = 0; i < models->nelts; i++) {
        p = ngx_cpymem(text, group->name.data, group->name.len);
        *p++ = '\0';
        p = ngx_cpymem(p, group->owned_by.data,
                       ngx_min(group->owned_by.len,
                               NGX_MODELGW_METRICS_NAME));
        *p++ = '\0';

        last = ngx_cpymem(p, model[i].id.data,
                          ngx_min(model[i].id.len,
                                  (size_t) (text + sizeof(text) - p)));

        name.data = text;
        name.len = last - text;

        for ( /* void */ ; p < last; p++) {
            if (*p < ' ' || *p == 0x7f) {
                *p = ' ';
            }
        }

        model[i].cell = ngx_http_modelgw_zone_metrics_row(rows,
                                         NGX_MODELGW_METRICS_MODELS, &name);
    }
}


/* With more keys than have series none is counted by itself. */

static void
ngx_http_modelgw_zone_metrics_keys(ngx_http_modelgw_zone_rows_t *rows,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_modelgw_key_t       *key;
    ngx_modelgw_keys_pos_t   pos;

    if (mmcf->keys == NULL
        || ngx_modelgw_keys_count(mmcf->keys) > mmcf->metrics_keys)
    {
        return;
    }

    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    for ( ;; ) {
        key = ngx_modelgw_keys_next(mmcf->keys, &pos);
        if (key == NULL) {
            return;
        }

        key->cell = ngx_http_modelgw_zone_metrics_row(rows,
                                         NGX_MODELGW_METRICS_KEYS, &key->id);
    }
}


static uint32_t
ngx_http_modelgw_zone_metrics_row(ngx_http_modelgw_zone_rows_t *rows,
    ngx_modelgw_metrics_table_e table, ngx_str_t *name)
{
    uint32_t  row;

    row = ngx_http_modelgw_zone_metrics_add(rows->mmcf, table, name);

    if (row == NGX_MODELGW_METRICS_OTHER) {
        rows->refused[table]++;
        rows->n++;
    }

    return row;
}


/* a reload adds rows while workers do */

static uint32_t
ngx_http_modelgw_zone_metrics_add(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_modelgw_metrics_table_e table, ngx_str_t *name)
{
    uint32_t  row;

    if (mmcf->ledger == NULL) {
        return ngx_modelgw_metrics_add(mmcf->metrics, table, name);
    }

    ngx_modelgw_ledger_lock(mmcf->ledger);

    row = ngx_modelgw_metrics_add(mmcf->metrics, table, name);

    ngx_modelgw_ledger_unlock(mmcf->ledger);

    return row;
}


uint32_t
ngx_http_modelgw_zone_metrics_key(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_str_t *id)
{
    uint32_t                row;
    ngx_modelgw_metrics_t  *m;

    m = mmcf->metrics;

    if (m == NULL) {
        return NGX_MODELGW_METRICS_OTHER;
    }

    row = ngx_modelgw_metrics_find(m, NGX_MODELGW_METRICS_KEYS, id);

    if (row != NGX_MODELGW_METRICS_OTHER
        || ngx_modelgw_metrics_rows(m, NGX_MODELGW_METRICS_KEYS)
           == ngx_modelgw_metrics_max(m, NGX_MODELGW_METRICS_KEYS))
    {
        return row;
    }

    return ngx_http_modelgw_zone_metrics_add(mmcf, NGX_MODELGW_METRICS_KEYS,
                                             id);
}


void
ngx_http_modelgw_zone_metrics_call(ngx_modelgw_call_t *call,
    ngx_modelgw_metrics_call_t *counted)
{
    counted->model = call->cell;
    counted->key = NGX_MODELGW_METRICS_OTHER;
    counted->outcome = call->charge.outcome;
    counted->end = call->end;

    /* a client that leaves is no failure of ours */

    counted->failed = (call->end != NGX_MODELGW_END_CLIENT
                       && (call->end != NGX_MODELGW_END_COMPLETE
                           || call->charge.outcome >= NGX_MODELGW_REFUSED));

    counted->duration = (call->ended > call->started)
                        ? call->ended - call->started : 0;

    counted->first = ((call->flags & NGX_MODELGW_CALL_STREAM)
                      && call->first_byte != NGX_MODELGW_LEDGER_NONE
                      && call->seen.status == NGX_HTTP_OK)
                     ? call->first_byte : (uint64_t) -1;

    /* the same six numbers, in the same order */

    ngx_memcpy(counted->tokens, &call->charge.tokens, sizeof(counted->tokens));

    counted->cost = call->charge.cost;
}


void
ngx_http_modelgw_zone_metrics_ended(ngx_modelgw_call_t *call, void *data)
{
    ngx_http_modelgw_main_conf_t *mmcf = data;

    ngx_str_t                      key;
    ngx_modelgw_metrics_call_t     counted;
    ngx_modelgw_metrics_ledger_t  *row;

    if (mmcf->metrics == NULL) {
        return;
    }

    ngx_http_modelgw_zone_metrics_call(call, &counted);

    key.data = call->key_name.data;
    key.len = call->key_name.len;

    counted.key = ngx_modelgw_metrics_find(mmcf->metrics,
                                           NGX_MODELGW_METRICS_KEYS, &key);

    ngx_modelgw_metrics_call(mmcf->metrics, mmcf->worker, &counted);

    if (call->end == NGX_MODELGW_END_KILLED) {
        row = ngx_modelgw_metrics_row(mmcf->metrics, mmcf->worker,
                                      NGX_MODELGW_METRICS_LEDGER, 0);

        ngx_modelgw_metrics_count(mmcf->metrics, mmcf->worker, &row->dead, 1);
    }
}


void
ngx_http_modelgw_zone_metrics_flush(ngx_modelgw_metrics_t *m, uint64_t usec)
{
    ngx_modelgw_metrics_ledger_t  *row;

    if (m) {
        row = ngx_modelgw_metrics_row(m, NGX_MODELGW_METRICS_SHARED,
                                      NGX_MODELGW_METRICS_LEDGER, 0);

        ngx_modelgw_metrics_observe(m, NGX_MODELGW_METRICS_SHARED, row->flush,
                                    NGX_MODELGW_METRICS_HIST_FLUSH, usec);
    }
}


void
ngx_http_modelgw_zone_metrics_failure(ngx_modelgw_metrics_t *m)
{
    ngx_modelgw_metrics_ledger_t  *row;

    if (m) {
        row = ngx_modelgw_metrics_row(m, NGX_MODELGW_METRICS_SHARED,
                                      NGX_MODELGW_METRICS_LEDGER, 0);

        ngx_modelgw_metrics_count(m, NGX_MODELGW_METRICS_SHARED,
                                  &row->failures, 1);
    }
}
