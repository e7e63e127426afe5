
/*
 * Lists of keys.
 *
 * Keys are shown with what an operator needs to help a customer, and nothing
 * that grants access.  Not even the hash is shown.  Those of the configuration
 * come first, in its order; a page is continued at a number of theirs, or after
 * an id of the ledger's.
 *
 * How limits stand is read from shared memory, and nothing is changed there: a
 * key that was not used yet has no record, and gets none here.  The time of the
 * last call is that of the hour, as the store has sums by hour, which are read
 * for all keys at once: no index of calls has keys.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_budget.h"
#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_limit.h"
#include "ngx_modelgw_managed.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_store_cluster.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_KEYS_ALL   1000000000  /* rows, without a limit */
#define NGX_HTTP_MODELGW_KEYS_SIZE  4096        /* bytes allocated at first */

#define NGX_HTTP_MODELGW_KEYS_BUDGET  (NGX_MODELGW_AMOUNT_LEN + 16)


typedef struct {
    ngx_str_node_t             sn;              /* id of the key */
    uint64_t                   last;            /* milliseconds since the
                                                   Epoch */
} ngx_http_modelgw_keys_used_t;


/* of a cluster */

typedef struct {
    ngx_str_node_t             sn;              /* id of the key, and the end of
                                                   the window */
    int64_t                    used;
} ngx_http_modelgw_keys_budget_t;


typedef struct {
    ngx_http_modelgw_job_t    *job;
    ngx_modelgw_out_t          out;
    ngx_modelgw_out_piece_t    piece;
    ngx_uint_t                 n;               /* rows that are written */
    ngx_modelgw_ledger_name_t  last;            /* id of the last one */
    ngx_rbtree_t               used;            /* when keys were */
    ngx_rbtree_node_t          sentinel;
    ngx_rbtree_t               budgets;
    ngx_http_modelgw_admin_budgets_t  spent;    /* these */
} ngx_http_modelgw_keys_list_t;


static ngx_int_t ngx_http_modelgw_admin_keys_state(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_admin_keys_after(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *job);
static ngx_int_t ngx_http_modelgw_admin_keys_begin(
    ngx_http_modelgw_keys_list_t *list, ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);
static ngx_int_t ngx_http_modelgw_admin_keys_last(void *data, ngx_str_t *name,
    int64_t cost, uint64_t last);
static ngx_int_t ngx_http_modelgw_admin_keys_spent(void *data, ngx_str_t *name,
    int64_t used, uint64_t ends);
static ngx_int_t ngx_http_modelgw_admin_keys_store(
    ngx_http_modelgw_keys_list_t *list, ngx_modelgw_store_t *store);
static ngx_uint_t ngx_http_modelgw_admin_keys_configured(
    ngx_http_modelgw_keys_list_t *list);
static ngx_uint_t ngx_http_modelgw_admin_keys_matches(
    ngx_modelgw_store_keys_t *filter, ngx_modelgw_key_t *key);
static ngx_int_t ngx_http_modelgw_admin_keys_managed(void *data,
    ngx_modelgw_managed_key_t *key, uint64_t created, ngx_str_t *note);
static void ngx_http_modelgw_admin_keys_comma(
    ngx_http_modelgw_keys_list_t *list);
static void ngx_http_modelgw_admin_keys_write(
    ngx_http_modelgw_keys_list_t *list, ngx_modelgw_key_t *key);
static void ngx_http_modelgw_admin_keys_last_used(
    ngx_http_modelgw_keys_list_t *list, ngx_str_t *id);
static void ngx_http_modelgw_admin_keys_names(ngx_modelgw_out_t *out,
    ngx_str_t *id, ngx_str_t *group, ngx_str_t *account);
static void ngx_http_modelgw_admin_keys_limits(ngx_modelgw_out_t *out,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_modelgw_key_t *key,
    ngx_http_modelgw_admin_budgets_t *spent);
static void ngx_http_modelgw_admin_keys_budget(ngx_modelgw_out_t *out,
    ngx_modelgw_key_t *key, ngx_modelgw_ledger_key_t *k,
    ngx_http_modelgw_admin_budgets_t *spent);
static int64_t ngx_http_modelgw_admin_keys_budget_used(
    ngx_http_modelgw_admin_budgets_t *spent, ngx_str_t *id, uint64_t ends);
static size_t ngx_http_modelgw_admin_keys_budget_name(u_char *p,
    ngx_str_t *id, uint64_t ends);
static void ngx_http_modelgw_admin_keys_expires(ngx_modelgw_out_t *out,
    uint64_t expires);
static ngx_str_t *ngx_http_modelgw_admin_keys_state_of(uint64_t expires,
    ngx_uint_t revoked);


static ngx_str_t  ngx_http_modelgw_admin_keys_states[] = {
    ngx_string("active"),
    ngx_string("expired"),
    ngx_string("revoked"),
    ngx_null_string
};


ngx_http_modelgw_option_t  ngx_http_modelgw_admin_key_params[] = {

    { ngx_string("q"), ngx_http_modelgw_admin_list_text,
      ngx_http_modelgw_job_offset(keys.q), "1 to 256 bytes", NULL },

    { ngx_string("account"), ngx_http_modelgw_option_id,
      ngx_http_modelgw_job_offset(keys.account),
      "an id of " NGX_HTTP_MODELGW_ID_TAKES, NULL },

    { ngx_string("state"), ngx_http_modelgw_admin_keys_state,
      ngx_http_modelgw_job_offset(keys.state),
      "active, expired or revoked", NULL },

    { ngx_string("limit"), ngx_http_modelgw_admin_list_limit,
      ngx_http_modelgw_job_offset(keys.limit),
      "a number from 1 to 1000", NULL },

    { ngx_string("after"), ngx_http_modelgw_admin_keys_after, 0,
      "the \"next\" of an answer", NULL },

    { ngx_null_string, NULL, 0, NULL, NULL }
};


static ngx_int_t
ngx_http_modelgw_admin_keys_state(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_str_t *state = field;

    ngx_str_t  *one;

    for (one = ngx_http_modelgw_admin_keys_states; one->len; one++) {

        if (one->len == value->len
            && ngx_memcmp(one->data, value->data, value->len) == 0)
        {
            *state = *one;
            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


/* "config:17" or "ledger:ID" */

static ngx_int_t
ngx_http_modelgw_admin_keys_after(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *data)
{
    ngx_http_modelgw_job_t *job = data;

    ngx_int_t  n;

    if (value->len < 8) {
        return NGX_DECLINED;
    }

    if (ngx_strncmp(value->data, "config:", 7) == 0) {
        n = ngx_atoi(value->data + 7, value->len - 7);

        if (n == NGX_ERROR) {
            return NGX_DECLINED;
        }

        job->place = n;

        return NGX_OK;
    }

    job->keys.after.data = value->data + 7;
    job->keys.after.len = value->len - 7;

    return (ngx_strncmp(value->data, "ledger:", 7) == 0
            && ngx_http_modelgw_conf_id(&job->keys.after))
           ? NGX_OK : NGX_DECLINED;
}


ngx_int_t
ngx_http_modelgw_admin_keys_find(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, ngx_http_modelgw_job_t *job)
{
    job->keys.now = ngx_time();
    job->keys.id.data = ngx_pstrdup(job->pool, id);
    if (job->keys.id.data == NULL) {
        return NGX_ERROR;
    }

    job->keys.id.len = id->len;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_admin_keys_list(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    ngx_uint_t                     limit, more;
    ngx_http_modelgw_keys_list_t   list;

    if (job->keys.limit == 0) {
        job->keys.limit = NGX_HTTP_MODELGW_KEYS_ALL;
    }

    limit = job->keys.limit;

    job->keys.id.len = 0;

    if (ngx_http_modelgw_admin_keys_begin(&list, job, store) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_modelgw_out_text(&list.out, "{\"keys\":[");

    more = (job->keys.after.len == 0)
           ? ngx_http_modelgw_admin_keys_configured(&list) : 0;

    if (!more) {
        job->keys.limit = limit - list.n + 1;
        job->place = job->mmcf->keys
                     ? ngx_modelgw_keys_count(job->mmcf->keys) : 0;

        if (ngx_http_modelgw_admin_keys_store(&list, store) != NGX_OK) {
            return NGX_ERROR;
        }

        more = (list.n > limit);
    }

    job->version = 0;

    if (!more) {
        ngx_modelgw_out_text(&list.out, "]}");

    } else if (list.last.len) {
        ngx_modelgw_out_text(&list.out, "],\"more\":true,\"next\":\"ledger:");
        ngx_modelgw_out_escaped(&list.out, list.last.data, list.last.len);
        ngx_modelgw_out_text(&list.out, "\"}");

    } else {
        ngx_modelgw_out_text(&list.out, "],\"more\":true,\"next\":\"config:");
        ngx_modelgw_out_number(&list.out, job->place);
        ngx_modelgw_out_text(&list.out, "\"}");
    }

    return ngx_modelgw_out_piece_done(&list.out, &job->body);
}


ngx_int_t
ngx_http_modelgw_admin_keys_get(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    ngx_modelgw_key_t             *key;
    ngx_modelgw_keys_pos_t         pos;
    ngx_http_modelgw_keys_list_t   list;

    if (ngx_http_modelgw_admin_keys_begin(&list, job, store) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    while (job->mmcf->keys
           && (key = ngx_modelgw_keys_next(job->mmcf->keys, &pos)) != NULL)
    {
        if (key->id.len == job->keys.id.len
            && ngx_memcmp(key->id.data, job->keys.id.data, key->id.len) == 0)
        {
            if (!ngx_http_modelgw_admin_keys_matches(&job->keys, key)) {
                return NGX_DECLINED;
            }

            ngx_http_modelgw_admin_keys_write(&list, key);

            return ngx_modelgw_out_piece_done(&list.out, &job->body);
        }
    }

    job->keys.limit = 2;

    if (ngx_http_modelgw_admin_keys_store(&list, store) != NGX_OK) {
        return NGX_ERROR;
    }

    return list.n ? ngx_modelgw_out_piece_done(&list.out, &job->body)
                  : NGX_DECLINED;
}


/* reads when keys were used: all, or that with the id */

static ngx_int_t
ngx_http_modelgw_admin_keys_begin(ngx_http_modelgw_keys_list_t *list,
    ngx_http_modelgw_job_t *job, ngx_modelgw_store_t *store)
{
    ngx_memzero(list, sizeof(ngx_http_modelgw_keys_list_t));

    list->job = job;

    ngx_modelgw_out_piece(&list->out, &list->piece, job->pool,
                          NGX_HTTP_MODELGW_KEYS_SIZE);

    ngx_rbtree_init(&list->used, &list->sentinel, ngx_str_rbtree_insert_value);
    ngx_rbtree_init(&list->budgets, &list->sentinel,
                    ngx_str_rbtree_insert_value);

    if (store == NULL) {
        return NGX_OK;
    }

    if (job->mmcf->cluster && !job->local) {
        list->spent.known = 1;
        list->spent.tree = &list->budgets;

        if (ngx_modelgw_store_budgets(store, (uint64_t) time(NULL) * 1000,
                                      ngx_http_modelgw_admin_keys_spent, list)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return ngx_modelgw_store_spent(store, NGX_MODELGW_BY_KEY, &job->keys.id, 0,
                                   ngx_http_modelgw_admin_keys_last, list);
}


static ngx_int_t
ngx_http_modelgw_admin_keys_last(void *data, ngx_str_t *name, int64_t cost,
    uint64_t last)
{
    ngx_http_modelgw_keys_list_t *list = data;

    ngx_http_modelgw_keys_used_t  *used;

    used = ngx_palloc(list->job->pool, sizeof(ngx_http_modelgw_keys_used_t));
    if (used == NULL) {
        return NGX_ERROR;
    }

    used->sn.str.data = ngx_pstrdup(list->job->pool, name);
    if (used->sn.str.data == NULL) {
        return NGX_ERROR;
    }

    used->sn.str.len = name->len;
    used->sn.node.key = ngx_murmur_hash2(name->data, name->len);
    used->last = last;

    ngx_rbtree_insert(&list->used, &used->sn.node);

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_admin_keys_spent(void *data, ngx_str_t *name, int64_t used,
    uint64_t ends)
{
    ngx_http_modelgw_keys_list_t *list = data;

    u_char                          *p;
    ngx_http_modelgw_keys_budget_t  *budget;

    budget = ngx_palloc(list->job->pool,
                        sizeof(ngx_http_modelgw_keys_budget_t));
    if (budget == NULL) {
        return NGX_ERROR;
    }

    p = ngx_pnalloc(list->job->pool, name->len + sizeof(uint64_t));
    if (p == NULL) {
        return NGX_ERROR;
    }

    budget->used = used;
    budget->sn.str.data = p;
    budget->sn.str.len = ngx_http_modelgw_admin_keys_budget_name(p, name, ends);
    budget->sn.node.key = ngx_murmur_hash2(p, budget->sn.str.len);

    ngx_rbtree_insert(&list->budgets, &budget->sn.node);

    return NGX_OK;
}


/* the keys in it are none of ours if they are not configured */

static ngx_int_t
ngx_http_modelgw_admin_keys_store(ngx_http_modelgw_keys_list_t *list,
    ngx_modelgw_store_t *store)
{
    if (store == NULL || list->job->mmcf->managed == NULL) {
        return NGX_OK;
    }

    return ngx_modelgw_store_keys_list(store, &list->job->keys,
                                       ngx_http_modelgw_admin_keys_managed,
                                       list);
}


/* Whether there are more than the limit, from job->place on. */

static ngx_uint_t
ngx_http_modelgw_admin_keys_configured(ngx_http_modelgw_keys_list_t *list)
{
    ngx_uint_t               i;
    ngx_modelgw_key_t       *key;
    ngx_modelgw_keys_t      *keys;
    ngx_modelgw_keys_pos_t   pos;

    keys = list->job->mmcf->keys;

    if (keys == NULL) {
        return 0;
    }

    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    for (i = 0; (key = ngx_modelgw_keys_next(keys, &pos)) != NULL; i++) {

        if (i < list->job->place
            || !ngx_http_modelgw_admin_keys_matches(&list->job->keys, key))
        {
            continue;
        }

        if (list->n == list->job->keys.limit) {
            list->job->place = i;
            return 1;
        }

        ngx_http_modelgw_admin_keys_comma(list);
        ngx_http_modelgw_admin_keys_write(list, key);
    }

    return 0;
}


static ngx_uint_t
ngx_http_modelgw_admin_keys_matches(ngx_modelgw_store_keys_t *filter,
    ngx_modelgw_key_t *key)
{
    ngx_str_t  *q, *state;

    q = &filter->q;
    state = ngx_http_modelgw_admin_keys_state_of(key->expires, 0);

    return (q->len == 0
            || memmem(key->id.data, key->id.len, q->data, q->len)
            || memmem(key->account.data, key->account.len, q->data, q->len))
           && (filter->account.len == 0
               || (filter->account.len == key->account.len
                   && ngx_memcmp(filter->account.data, key->account.data,
                                 key->account.len)
                      == 0))
           && (filter->state.len == 0 || filter->state.data == state->data);
}


/* the row after the limit is read only to know that there is one */

static ngx_int_t
ngx_http_modelgw_admin_keys_managed(void *data,
    ngx_modelgw_managed_key_t *key, uint64_t created, ngx_str_t *note)
{
    ngx_http_modelgw_keys_list_t *list = data;

    ngx_str_t  id;

    if (list->job->keys.limit-- == 1) {
        list->n++;
        return NGX_OK;
    }

    list->last = key->id;
    list->job->version = key->version;

    id.len = key->id.len;
    id.data = key->id.data;

    if (list->job->holder) {
        note->len = 0;
    }

    ngx_http_modelgw_admin_keys_comma(list);
    ngx_http_modelgw_admin_key_write(&list->out, list->job->mmcf, key, note,
                                     &list->spent);
    ngx_modelgw_out_text(&list->out, ",\"created\":");
    ngx_modelgw_out_time(&list->out, created);
    ngx_http_modelgw_admin_keys_last_used(list, &id);

    return NGX_OK;
}


static void
ngx_http_modelgw_admin_keys_comma(ngx_http_modelgw_keys_list_t *list)
{
    if (list->n++) {
        ngx_modelgw_out_text(&list->out, ",");
    }
}


/* a key of the configuration */

static void
ngx_http_modelgw_admin_keys_write(ngx_http_modelgw_keys_list_t *list,
    ngx_modelgw_key_t *key)
{
    ngx_str_t                 *state;
    ngx_modelgw_out_t         *out;
    ngx_http_modelgw_group_t  *group;

    out = &list->out;
    group = key->group;
    state = ngx_http_modelgw_admin_keys_state_of(key->expires, 0);

    ngx_http_modelgw_admin_keys_names(out, &key->id, &group->name,
                                      &key->account);
    ngx_modelgw_out_text(out, ",\"models\":");
    ngx_http_modelgw_admin_list_names(out, key->models);
    ngx_http_modelgw_admin_keys_limits(out, list->job->mmcf, key,
                                       &list->spent);
    ngx_http_modelgw_admin_keys_expires(out, key->expires);
    ngx_modelgw_out_text(out, ",\"source\":\"config\",\"state\":");
    ngx_modelgw_out_string(out, state);
    ngx_http_modelgw_admin_keys_last_used(list, &key->id);
}


/* the last member */

static void
ngx_http_modelgw_admin_keys_last_used(ngx_http_modelgw_keys_list_t *list,
    ngx_str_t *id)
{
    ngx_http_modelgw_keys_used_t  *used;

    used = (ngx_http_modelgw_keys_used_t *)
               ngx_str_rbtree_lookup(&list->used, id,
                                     ngx_murmur_hash2(id->data, id->len));

    ngx_modelgw_out_text(&list->out, ",\"last_used\":");

    if (used) {
        ngx_modelgw_out_time(&list->out, used->last);

    } else {
        ngx_modelgw_out_text(&list->out, "null");
    }

    ngx_modelgw_out_text(&list->out, "}");
}


void
ngx_http_modelgw_admin_key_write(ngx_modelgw_out_t *out,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_modelgw_managed_key_t *key,
    ngx_str_t *note, ngx_http_modelgw_admin_budgets_t *spent)
{
    u_char                    *p, *last;
    ngx_str_t                  group_name;
    ngx_modelgw_key_t          own;
    ngx_http_modelgw_group_t  *group, none;

    ngx_memzero(&none, sizeof(ngx_http_modelgw_group_t));
    ngx_memzero(&own, sizeof(ngx_modelgw_key_t));

    group = ngx_http_modelgw_group_find(mmcf, key->group.data, key->group.len);

    own.id.len = key->id.len;
    own.id.data = key->id.data;
    own.account.len = key->account.len;
    own.account.data = key->account.data;
    own.group = group ? group : &none;
    own.rpm = key->rpm;
    own.tpm = key->tpm;
    own.concurrency = key->concurrency;
    own.budget = key->budget;
    own.window = key->window;

    group_name.len = key->group.len;
    group_name.data = key->group.data;

    ngx_http_modelgw_admin_keys_names(out, &own.id, &group_name,
                                      &own.account);

    if (key->models_len) {
        ngx_modelgw_out_text(out, ",\"models\":[\"");
        last = key->models + key->models_len;

        for (p = key->models; p < last; p++) {

            if (*p == ',') {
                ngx_modelgw_out_text(out, "\",\"");

            } else {
                ngx_modelgw_out_escaped(out, p, 1);
            }
        }

        ngx_modelgw_out_text(out, "\"]");

    } else {
        ngx_modelgw_out_text(out, ",\"models\":null");
    }

    ngx_http_modelgw_admin_keys_limits(out, mmcf, &own, spent);
    ngx_http_modelgw_admin_keys_expires(out, key->expires);
    ngx_modelgw_out_text(out, ",\"source\":\"ledger\",\"state\":");
    ngx_modelgw_out_string(out,
                ngx_http_modelgw_admin_keys_state_of(key->expires, key->state
                                                 == NGX_MODELGW_KEY_REVOKED));
    ngx_modelgw_out_text(out, ",\"version\":");
    ngx_modelgw_out_number(out, key->version);
    ngx_modelgw_out_text(out, ",\"old_secret_until\":");

    if (key->old_until > (uint64_t) time(NULL)) {
        ngx_modelgw_out_time(out, key->old_until * 1000);

    } else {
        ngx_modelgw_out_text(out, "null");
    }

    ngx_modelgw_out_text(out, ",\"note\":");
    ngx_modelgw_out_string(out, note);
}


static void
ngx_http_modelgw_admin_keys_names(ngx_modelgw_out_t *out, ngx_str_t *id,
    ngx_str_t *group, ngx_str_t *account)
{
    ngx_modelgw_out_text(out, "{\"id\":");
    ngx_modelgw_out_string(out, id);
    ngx_modelgw_out_text(out, ",\"group\":");
    ngx_modelgw_out_string(out, group);
    ngx_modelgw_out_text(out, ",\"account\":");
    ngx_modelgw_out_string(out, account);
}


/* the limits in effect, and how they stand: as the metrics have it */

static void
ngx_http_modelgw_admin_keys_limits(ngx_modelgw_out_t *out,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_modelgw_key_t *key,
    ngx_http_modelgw_admin_budgets_t *spent)
{
    uint32_t                    rpm, tpm, concurrency;
    uint64_t                    now;
    ngx_modelgw_ledger_key_t    k;
    ngx_http_modelgw_group_t   *group;
    ngx_modelgw_limit_state_t   requests, tokens;

    group = key->group;

    rpm = key->rpm ? key->rpm : group->rpm;
    tpm = key->tpm ? key->tpm : group->tpm;
    concurrency = key->concurrency ? key->concurrency : group->concurrency;

    /* without a record nothing is used */

    if (mmcf->ledger == NULL
        || ngx_modelgw_ledger_key_find(mmcf->ledger, &key->id, &k) != NGX_OK)
    {
        ngx_memzero(&k, sizeof(ngx_modelgw_ledger_key_t));
    }

    now = ngx_modelgw_ledger_clock();

    ngx_modelgw_limit_state(&k.rpm, rpm, now, &requests);
    ngx_modelgw_limit_state(&k.tpm, tpm, now, &tokens);

    ngx_http_modelgw_admin_list_number(out, ",\"rpm\":", rpm, rpm);
    ngx_http_modelgw_admin_list_number(out, ",\"tpm\":", tpm, tpm);
    ngx_http_modelgw_admin_list_number(out, ",\"concurrency\":", concurrency,
                                       concurrency);

    ngx_http_modelgw_admin_list_number(out, ",\"used\":{\"rpm\":", rpm,
                                       rpm - requests.remaining);
    ngx_http_modelgw_admin_list_number(out, ",\"tpm\":", tpm,
                                       tpm - tokens.remaining);
    ngx_http_modelgw_admin_list_number(out, ",\"concurrency\":", concurrency,
                                       k.calls);

    /* seconds, rounded up: 0 is "now" */

    ngx_http_modelgw_admin_list_number(out, "},\"resets_in\":{\"rpm\":", rpm,
                                       (requests.reset + 999) / 1000);
    ngx_http_modelgw_admin_list_number(out, ",\"tpm\":", tpm,
                                       (tokens.reset + 999) / 1000);
    ngx_modelgw_out_text(out, "}");

    ngx_http_modelgw_admin_keys_budget(out, key, &k, spent);
}


/* null: there is none; "resets_in" is null for one in total */

static void
ngx_http_modelgw_admin_keys_budget(ngx_modelgw_out_t *out,
    ngx_modelgw_key_t *key, ngx_modelgw_ledger_key_t *k,
    ngx_http_modelgw_admin_budgets_t *spent)
{
    u_char                *p, text[NGX_HTTP_MODELGW_KEYS_BUDGET];
    int64_t                used;
    uint64_t               now, ends;
    ngx_modelgw_budget_t   budget;

    ngx_http_modelgw_keys_budget(key, &budget);

    if (budget.limit == 0) {
        ngx_modelgw_out_text(out, ",\"budget\":null,\"budget_used\":null,"
                                  "\"budget_resets_in\":null");
        return;
    }

    /* the record of another key of its id, or one that has none */

    if ((k->window & ~NGX_MODELGW_LEDGER_PENDING) != budget.window) {
        k->window = budget.window;
        k->ends = 0;
    }

    now = (uint64_t) time(NULL) * 1000;
    used = ngx_modelgw_ledger_budget_used_locked(k, now, &ends);

    if (spent->known) {
        used = ngx_http_modelgw_admin_keys_budget_used(spent, &key->id, ends);
    }

    p = ngx_modelgw_amount(text, budget.limit);
    p = ngx_sprintf(p, "/%V", &ngx_modelgw_windows[budget.window]);

    ngx_modelgw_out_text(out, ",\"budget\":\"");
    ngx_modelgw_out(out, text, p - text);
    ngx_modelgw_out_text(out, "\",\"budget_used\":");
    ngx_modelgw_amount_out(out, used);
    ngx_modelgw_out_text(out, ",\"budget_resets_in\":");

    if (ends == (uint64_t) -1) {
        ngx_modelgw_out_text(out, "null");

    } else {
        ngx_modelgw_out_number(out, (ends - now) / 1000);
    }
}


/* by all nodes; without a row none has used it */

static int64_t
ngx_http_modelgw_admin_keys_budget_used(
    ngx_http_modelgw_admin_budgets_t *spent, ngx_str_t *id, uint64_t ends)
{
    u_char                          name[NGX_MODELGW_LEDGER_NAME
                                         + sizeof(uint64_t)];
    ngx_str_t                       s;
    ngx_http_modelgw_keys_budget_t  *budget;

    if (spent->tree == NULL) {
        return spent->used;
    }

    s.data = name;
    s.len = ngx_http_modelgw_admin_keys_budget_name(name, id, ends);

    budget = (ngx_http_modelgw_keys_budget_t *)
                 ngx_str_rbtree_lookup(spent->tree, &s,
                                       ngx_murmur_hash2(s.data, s.len));

    return budget ? budget->used : 0;
}


/* the database has signed numbers */

static size_t
ngx_http_modelgw_admin_keys_budget_name(u_char *p, ngx_str_t *id,
    uint64_t ends)
{
    u_char  *last;

    ends = ngx_min(ends, (uint64_t) INT64_MAX);

    last = ngx_cpymem(p, id->data, ngx_min(id->len, NGX_MODELGW_LEDGER_NAME));
    last = ngx_cpymem(last, &ends, sizeof(uint64_t));

    return last - p;
}


/* a day, or a time if it is within one */

static void
ngx_http_modelgw_admin_keys_expires(ngx_modelgw_out_t *out, uint64_t expires)
{
    ngx_modelgw_out_text(out, ",\"expires\":");

    if (expires == 0) {
        ngx_modelgw_out_text(out, "null");

    } else if (expires % 86400) {
        ngx_modelgw_out_time(out, expires * 1000);

    } else {
        ngx_modelgw_out_day(out, expires);
    }
}


static ngx_str_t *
ngx_http_modelgw_admin_keys_state_of(uint64_t expires, ngx_uint_t revoked)
{
    if (revoked) {
        return &ngx_http_modelgw_admin_keys_states[2];
    }

    return &ngx_http_modelgw_admin_keys_states[expires
                                         && expires <= (uint64_t) time(NULL)];
}
