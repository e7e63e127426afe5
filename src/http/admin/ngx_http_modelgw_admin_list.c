
/*
 * Lists: the audit log, keys, and what the configuration has.
 *
 * Keys are shown with what an operator needs to help a customer, and nothing
 * that grants access.  Not even the hash is shown.  Those of the configuration
 * come first, in its order; a page is continued at a number of theirs, or after
 * an id of the ledger's.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_budget.h"
#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_managed.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_store.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_LIST_ROWS  100         /* by default */
#define NGX_HTTP_MODELGW_LIST_MAX   1000
#define NGX_HTTP_MODELGW_LIST_ALL   1000000000  /* rows, without a limit */

#define NGX_HTTP_MODELGW_LIST_SIZE  4096        /* bytes allocated at first */

#define NGX_HTTP_MODELGW_LIST_BUDGET  (NGX_MODELGW_AMOUNT_LEN + 16)

/* a model's price is in pico-euro per token */

#define NGX_HTTP_MODELGW_LIST_MEGA  1000        /* nano-euro for a million */


typedef struct {
    ngx_http_modelgw_job_t    *job;
    ngx_modelgw_out_t         *out;
    ngx_uint_t                 n;               /* rows that are written */
    ngx_modelgw_ledger_name_t  last;            /* id of the last one */
} ngx_http_modelgw_list_ctx_t;


static ngx_int_t ngx_http_modelgw_list_name(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_list_limit(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_list_place(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_list_text(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_list_state(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_list_after(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *job);
static ngx_uint_t ngx_http_modelgw_list_configured(
    ngx_http_modelgw_list_ctx_t *ctx);
static ngx_uint_t ngx_http_modelgw_list_matches(
    ngx_modelgw_store_keys_t *filter, ngx_modelgw_key_t *key);
static ngx_int_t ngx_http_modelgw_list_managed(void *data,
    ngx_modelgw_managed_key_t *key, uint64_t created, ngx_str_t *note);
static void ngx_http_modelgw_list_comma(ngx_http_modelgw_list_ctx_t *ctx);
static void ngx_http_modelgw_list_key(ngx_modelgw_out_t *out,
    ngx_modelgw_ledger_t *ledger, ngx_modelgw_key_t *key);
static void ngx_http_modelgw_list_names(ngx_modelgw_out_t *out,
    ngx_array_t *names);
static void ngx_http_modelgw_list_number(ngx_modelgw_out_t *out,
    const char *name, uint32_t own, uint32_t group);
static void ngx_http_modelgw_list_budget(ngx_modelgw_out_t *out,
    ngx_modelgw_ledger_t *ledger, ngx_modelgw_key_t *key);
static void ngx_http_modelgw_list_expires(ngx_modelgw_out_t *out,
    uint64_t expires);
static ngx_str_t *ngx_http_modelgw_list_state_of(uint64_t expires,
    ngx_uint_t revoked);
static void ngx_http_modelgw_list_group(ngx_modelgw_out_t *out,
    ngx_http_modelgw_group_t *group);
static void ngx_http_modelgw_list_models(ngx_modelgw_out_t *out,
    ngx_http_modelgw_group_t *group, ngx_array_t *models, ngx_uint_t *n);
static void ngx_http_modelgw_list_model(ngx_modelgw_out_t *out,
    ngx_http_modelgw_group_t *group, ngx_http_modelgw_model_t *model);
static void ngx_http_modelgw_list_option(ngx_modelgw_out_t *out,
    ngx_http_modelgw_option_t *option, ngx_uint_t value);


#define ngx_http_modelgw_list_offset(field)                                   \
    offsetof(ngx_http_modelgw_job_t, field)

ngx_http_modelgw_option_t  ngx_http_modelgw_admin_action_params[] = {

    { ngx_string("actor"), ngx_http_modelgw_list_name,
      ngx_http_modelgw_list_offset(actions.actor),
      "1 to 64 bytes", NULL },

    { ngx_string("target"), ngx_http_modelgw_list_name,
      ngx_http_modelgw_list_offset(actions.target),
      "1 to 64 bytes", NULL },

    { ngx_string("limit"), ngx_http_modelgw_list_limit,
      ngx_http_modelgw_list_offset(actions.limit),
      "a number from 1 to 1000", NULL },

    { ngx_string("after"), ngx_http_modelgw_list_place,
      ngx_http_modelgw_list_offset(actions.after),
      "the \"next\" of an answer", NULL },

    { ngx_null_string, NULL, 0, NULL, NULL }
};


static ngx_str_t  ngx_http_modelgw_list_states[] = {
    ngx_string("active"),
    ngx_string("expired"),
    ngx_string("revoked"),
    ngx_null_string
};


ngx_http_modelgw_option_t  ngx_http_modelgw_admin_key_params[] = {

    { ngx_string("q"), ngx_http_modelgw_list_text,
      ngx_http_modelgw_list_offset(keys.q), "1 to 256 bytes", NULL },

    { ngx_string("account"), ngx_http_modelgw_option_id,
      ngx_http_modelgw_list_offset(keys.account),
      "an id of " NGX_HTTP_MODELGW_ID_TAKES, NULL },

    { ngx_string("state"), ngx_http_modelgw_list_state,
      ngx_http_modelgw_list_offset(keys.state),
      "active, expired or revoked", NULL },

    { ngx_string("limit"), ngx_http_modelgw_list_limit,
      ngx_http_modelgw_list_offset(keys.limit),
      "a number from 1 to 1000", NULL },

    { ngx_string("after"), ngx_http_modelgw_list_after, 0,
      "the \"next\" of an answer", NULL },

    { ngx_null_string, NULL, 0, NULL, NULL }
};


ngx_int_t
ngx_http_modelgw_admin_list_actions(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    if (job->actions.limit == 0) {
        job->actions.limit = NGX_HTTP_MODELGW_LIST_ROWS;
    }

    return ngx_modelgw_store_actions(store, &job->actions, &job->body,
                                     job->pool);
}


static ngx_int_t
ngx_http_modelgw_list_name(ngx_http_modelgw_option_t *option, ngx_str_t *value,
    void *field)
{
    ngx_str_t *name = field;

    if (value->len == 0 || value->len > NGX_MODELGW_LEDGER_NAME) {
        return NGX_DECLINED;
    }

    *name = *value;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_list_limit(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_int_t    n;
    ngx_uint_t  *limit = field;

    n = ngx_atoi(value->data, value->len);

    if (n < 1 || n > NGX_HTTP_MODELGW_LIST_MAX) {
        return NGX_DECLINED;
    }

    *limit = n;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_list_place(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    off_t      n;
    uint64_t  *place = field;

    n = ngx_atoof(value->data, value->len);

    if (n < 1) {
        return NGX_DECLINED;
    }

    *place = n;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_list_text(ngx_http_modelgw_option_t *option, ngx_str_t *value,
    void *field)
{
    ngx_str_t *text = field;

    if (value->len == 0 || value->len > NGX_MODELGW_LEDGER_NOTE) {
        return NGX_DECLINED;
    }

    *text = *value;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_list_state(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_str_t *state = field;

    ngx_str_t  *one;

    for (one = ngx_http_modelgw_list_states; one->len; one++) {

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
ngx_http_modelgw_list_after(ngx_http_modelgw_option_t *option,
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
ngx_http_modelgw_admin_list_find(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, ngx_http_modelgw_job_t *job)
{
    if (job->mmcf->managed) {
        job->flags |= NGX_HTTP_MODELGW_ADMIN_STORE;
    }

    job->keys.now = ngx_time();
    job->keys.id.data = ngx_pstrdup(job->pool, id);
    if (job->keys.id.data == NULL) {
        return NGX_ERROR;
    }

    job->keys.id.len = id->len;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_admin_list_keys(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    ngx_str_t                     id;
    ngx_uint_t                    limit, more;
    ngx_modelgw_out_t             out;
    ngx_modelgw_out_piece_t       piece;
    ngx_http_modelgw_list_ctx_t   ctx;

    if (job->keys.limit == 0) {
        job->keys.limit = NGX_HTTP_MODELGW_LIST_ALL;
    }

    limit = job->keys.limit;

    ngx_memzero(&ctx, sizeof(ngx_http_modelgw_list_ctx_t));

    ctx.job = job;
    ctx.out = &out;

    ngx_modelgw_out_piece(&out, &piece, job->pool, NGX_HTTP_MODELGW_LIST_SIZE);
    ngx_modelgw_out_text(&out, "{\"keys\":[");

    job->keys.id.len = 0;

    more = (job->keys.after.len == 0)
           ? ngx_http_modelgw_list_configured(&ctx) : 0;

    if (more) {
        ngx_modelgw_out_text(&out, "],\"more\":true,\"next\":\"config:");
        ngx_modelgw_out_number(&out, job->place);
        ngx_modelgw_out_text(&out, "\"}");

        return ngx_modelgw_out_piece_done(&out, &job->body);
    }

    job->keys.limit = limit - ctx.n + 1;

    if (store
        && ngx_modelgw_store_keys_list(store, &job->keys,
                                       ngx_http_modelgw_list_managed, &ctx)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    job->version = 0;

    if (ctx.n > limit && ctx.last.len == 0) {
        ngx_modelgw_out_text(&out, "],\"more\":true,\"next\":\"config:");
        ngx_modelgw_out_number(&out, ngx_modelgw_keys_count(job->mmcf->keys));
        ngx_modelgw_out_text(&out, "\"}");

    } else if (ctx.n > limit) {
        id.len = ctx.last.len;
        id.data = ctx.last.data;

        ngx_modelgw_out_text(&out, "],\"more\":true,\"next\":\"ledger:");
        ngx_modelgw_out_escaped(&out, id.data, id.len);
        ngx_modelgw_out_text(&out, "\"}");

    } else {
        ngx_modelgw_out_text(&out, "]}");
    }

    return ngx_modelgw_out_piece_done(&out, &job->body);
}


/* Whether there are more than the limit, from job->place on. */

static ngx_uint_t
ngx_http_modelgw_list_configured(ngx_http_modelgw_list_ctx_t *ctx)
{
    ngx_uint_t               i;
    ngx_modelgw_key_t       *key;
    ngx_modelgw_keys_t      *keys;
    ngx_modelgw_keys_pos_t   pos;

    keys = ctx->job->mmcf->keys;

    if (keys == NULL) {
        return 0;
    }

    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    for (i = 0; (key = ngx_modelgw_keys_next(keys, &pos)) != NULL; i++) {

        if (i < ctx->job->place
            || !ngx_http_modelgw_list_matches(&ctx->job->keys, key))
        {
            continue;
        }

        if (ctx->n == ctx->job->keys.limit) {
            ctx->job->place = i;
            return 1;
        }

        ngx_http_modelgw_list_comma(ctx);
        ngx_http_modelgw_list_key(ctx->out, ctx->job->mmcf->ledger, key);
        ngx_modelgw_out_text(ctx->out, "}");
    }

    return 0;
}


static ngx_uint_t
ngx_http_modelgw_list_matches(ngx_modelgw_store_keys_t *filter,
    ngx_modelgw_key_t *key)
{
    ngx_str_t  *q, *state;

    q = &filter->q;
    state = ngx_http_modelgw_list_state_of(key->expires, 0);

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
ngx_http_modelgw_list_managed(void *data, ngx_modelgw_managed_key_t *key,
    uint64_t created, ngx_str_t *note)
{
    ngx_http_modelgw_list_ctx_t *ctx = data;

    if (ctx->job->keys.limit-- == 1) {
        ctx->n++;
        return NGX_OK;
    }

    ctx->last = key->id;
    ctx->job->version = key->version;

    ngx_http_modelgw_list_comma(ctx);
    ngx_http_modelgw_admin_key_write(ctx->out, ctx->job->mmcf, key, note);
    ngx_modelgw_out_text(ctx->out, ",\"created\":");
    ngx_modelgw_out_time(ctx->out, created);
    ngx_modelgw_out_text(ctx->out, "}");

    return NGX_OK;
}


static void
ngx_http_modelgw_list_comma(ngx_http_modelgw_list_ctx_t *ctx)
{
    if (ctx->n++) {
        ngx_modelgw_out_text(ctx->out, ",");
    }
}


ngx_int_t
ngx_http_modelgw_admin_list_key(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    ngx_modelgw_key_t            *key;
    ngx_modelgw_out_t             out;
    ngx_modelgw_keys_pos_t        pos;
    ngx_modelgw_out_piece_t       piece;
    ngx_http_modelgw_list_ctx_t   ctx;

    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));
    ngx_memzero(&ctx, sizeof(ngx_http_modelgw_list_ctx_t));

    ctx.job = job;
    ctx.out = &out;

    ngx_modelgw_out_piece(&out, &piece, job->pool, NGX_HTTP_MODELGW_LIST_SIZE);

    while (job->mmcf->keys
           && (key = ngx_modelgw_keys_next(job->mmcf->keys, &pos)) != NULL)
    {
        if (key->id.len == job->keys.id.len
            && ngx_memcmp(key->id.data, job->keys.id.data, key->id.len) == 0)
        {
            ngx_http_modelgw_list_key(&out, job->mmcf->ledger, key);
            ngx_modelgw_out_text(&out, "}");

            return ngx_modelgw_out_piece_done(&out, &job->body);
        }
    }

    job->keys.limit = 2;

    if (store
        && ngx_modelgw_store_keys_list(store, &job->keys,
                                       ngx_http_modelgw_list_managed, &ctx)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ctx.n ? ngx_modelgw_out_piece_done(&out, &job->body) : NGX_DECLINED;
}


/* a key of the configuration, without the closing bracket */

static void
ngx_http_modelgw_list_key(ngx_modelgw_out_t *out, ngx_modelgw_ledger_t *ledger,
    ngx_modelgw_key_t *key)
{
    ngx_http_modelgw_group_t  *group;

    group = key->group;

    ngx_modelgw_out_text(out, "{\"id\":");
    ngx_modelgw_out_string(out, &key->id);
    ngx_modelgw_out_text(out, ",\"group\":");
    ngx_modelgw_out_string(out, &group->name);
    ngx_modelgw_out_text(out, ",\"account\":");
    ngx_modelgw_out_string(out, &key->account);
    ngx_modelgw_out_text(out, ",\"models\":");
    ngx_http_modelgw_list_names(out, key->models);
    ngx_http_modelgw_list_number(out, ",\"rpm\":", key->rpm, group->rpm);
    ngx_http_modelgw_list_number(out, ",\"tpm\":", key->tpm, group->tpm);
    ngx_http_modelgw_list_number(out, ",\"concurrency\":", key->concurrency,
                                 group->concurrency);
    ngx_http_modelgw_list_budget(out, ledger, key);
    ngx_http_modelgw_list_expires(out, key->expires);
    ngx_modelgw_out_text(out, ",\"source\":\"config\",\"state\":");
    ngx_modelgw_out_string(out, ngx_http_modelgw_list_state_of(key->expires,
                                                               0));
}


void
ngx_http_modelgw_admin_key_write(ngx_modelgw_out_t *out,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_modelgw_managed_key_t *key,
    ngx_str_t *note)
{
    u_char                    *p, *last;
    ngx_str_t                  id, group_name, account;
    ngx_modelgw_key_t          own;
    ngx_http_modelgw_group_t  *group, none;

    ngx_memzero(&none, sizeof(ngx_http_modelgw_group_t));

    id.len = key->id.len;
    id.data = key->id.data;
    account.len = key->account.len;
    account.data = key->account.data;
    group_name.len = key->group.len;
    group_name.data = key->group.data;

    group = ngx_http_modelgw_group_find(mmcf, key->group.data, key->group.len);
    group = group ? group : &none;

    ngx_modelgw_out_text(out, "{\"id\":");
    ngx_modelgw_out_string(out, &id);
    ngx_modelgw_out_text(out, ",\"group\":");
    ngx_modelgw_out_string(out, &group_name);
    ngx_modelgw_out_text(out, ",\"account\":");
    ngx_modelgw_out_string(out, &account);

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

    ngx_http_modelgw_list_number(out, ",\"rpm\":", key->rpm, group->rpm);
    ngx_http_modelgw_list_number(out, ",\"tpm\":", key->tpm, group->tpm);
    ngx_http_modelgw_list_number(out, ",\"concurrency\":", key->concurrency,
                                 group->concurrency);

    ngx_memzero(&own, sizeof(ngx_modelgw_key_t));

    own.group = group;
    own.budget = key->budget;
    own.window = key->window;

    (void) ngx_modelgw_ledger_key_find(mmcf->ledger, &id, &own.slot);

    ngx_http_modelgw_list_budget(out, mmcf->ledger, &own);
    ngx_http_modelgw_list_expires(out, key->expires);
    ngx_modelgw_out_text(out, ",\"source\":\"ledger\",\"state\":");
    ngx_modelgw_out_string(out,
                      ngx_http_modelgw_list_state_of(key->expires, key->state
                                                 == NGX_MODELGW_KEY_REVOKED));
    ngx_modelgw_out_text(out, ",\"version\":");
    ngx_modelgw_out_number(out, key->version);

    ngx_modelgw_out_text(out, ",\"note\":");
    ngx_modelgw_out_string(out, note);
}


/* null: all models of the group */

static void
ngx_http_modelgw_list_names(ngx_modelgw_out_t *out, ngx_array_t *names)
{
    ngx_str_t   *name;
    ngx_uint_t   i;

    if (names == NULL) {
        ngx_modelgw_out_text(out, "null");
        return;
    }

    name = names->elts;

    ngx_modelgw_out_text(out, "[");

    for (i = 0; i < names->nelts; i++) {

        if (i) {
            ngx_modelgw_out_text(out, ",");
        }

        ngx_modelgw_out_string(out, &name[i]);
    }

    ngx_modelgw_out_text(out, "]");
}


/* the limit in effect: the key's own or its group's; null: no limit */

static void
ngx_http_modelgw_list_number(ngx_modelgw_out_t *out, const char *name,
    uint32_t own, uint32_t group)
{
    ngx_modelgw_out(out, (u_char *) name, ngx_strlen(name));

    if (own || group) {
        ngx_modelgw_out_number(out, own ? own : group);

    } else {
        ngx_modelgw_out_text(out, "null");
    }
}


/* null: there is none; "resets_in" is null for one in total */

static void
ngx_http_modelgw_list_budget(ngx_modelgw_out_t *out,
    ngx_modelgw_ledger_t *ledger, ngx_modelgw_key_t *key)
{
    u_char                    *p, text[NGX_HTTP_MODELGW_LIST_BUDGET];
    int64_t                    used;
    uint64_t                   now, ends;
    ngx_modelgw_budget_t       budget;
    ngx_modelgw_ledger_key_t  *k;

    ngx_http_modelgw_keys_budget(key, &budget);

    if (budget.limit == 0 || key->slot == NGX_MODELGW_LEDGER_NONE) {
        ngx_modelgw_out_text(out, ",\"budget\":null,\"budget_used\":null,"
                                  "\"budget_resets_in\":null");
        return;
    }

    now = (uint64_t) time(NULL) * 1000;
    k = ngx_modelgw_ledger_key_at(ledger, key->slot);

    ngx_modelgw_ledger_lock(ledger);

    used = ngx_modelgw_ledger_budget_used_locked(k, now, &ends);

    ngx_modelgw_ledger_unlock(ledger);

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


/* a day, or a time if it is within one */

static void
ngx_http_modelgw_list_expires(ngx_modelgw_out_t *out, uint64_t expires)
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
ngx_http_modelgw_list_state_of(uint64_t expires, ngx_uint_t revoked)
{
    if (revoked) {
        return &ngx_http_modelgw_list_states[2];
    }

    return &ngx_http_modelgw_list_states[expires
                                         && expires <= (uint64_t) time(NULL)];
}


ngx_int_t
ngx_http_modelgw_admin_list_groups(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    ngx_uint_t                  i;
    ngx_modelgw_out_t           out;
    ngx_modelgw_out_piece_t     piece;
    ngx_http_modelgw_group_t  **group;

    group = job->mmcf->groups.elts;

    ngx_modelgw_out_piece(&out, &piece, job->pool, NGX_HTTP_MODELGW_LIST_SIZE);
    ngx_modelgw_out_text(&out, "{\"groups\":[");

    for (i = 0; i < job->mmcf->groups.nelts; i++) {

        if (i) {
            ngx_modelgw_out_text(&out, ",");
        }

        ngx_http_modelgw_list_group(&out, group[i]);
    }

    ngx_modelgw_out_text(&out, "]}");

    return ngx_modelgw_out_piece_done(&out, &job->body);
}


static void
ngx_http_modelgw_list_group(ngx_modelgw_out_t *out,
    ngx_http_modelgw_group_t *group)
{
    ngx_uint_t                 i;
    ngx_http_modelgw_model_t  *model;

    ngx_modelgw_out_text(out, "{\"name\":");
    ngx_modelgw_out_string(out, &group->name);
    ngx_modelgw_out_text(out, ",\"upstream\":");
    ngx_modelgw_out_string(out, &group->upstream);
    ngx_modelgw_out_text(out, ",\"families\":");
    ngx_http_modelgw_list_names(out, &group->families);
    ngx_http_modelgw_list_number(out, ",\"rpm\":", group->rpm, 0);
    ngx_http_modelgw_list_number(out, ",\"tpm\":", group->tpm, 0);
    ngx_http_modelgw_list_number(out, ",\"concurrency\":",
                                 group->concurrency, 0);
    ngx_modelgw_out_text(out, ",\"models\":[");

    model = group->models.elts;

    for (i = 0; i < group->models.nelts; i++) {

        if (i) {
            ngx_modelgw_out_text(out, ",");
        }

        ngx_modelgw_out_string(out, &model[i].id);
    }

    ngx_modelgw_out_text(out, "]}");
}


ngx_int_t
ngx_http_modelgw_admin_list_models(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    ngx_uint_t                  i, n;
    ngx_modelgw_out_t           out;
    ngx_modelgw_out_piece_t     piece;
    ngx_http_modelgw_group_t  **group;

    n = 0;
    group = job->mmcf->groups.elts;

    ngx_modelgw_out_piece(&out, &piece, job->pool, NGX_HTTP_MODELGW_LIST_SIZE);
    ngx_modelgw_out_text(&out, "{\"models\":[");

    for (i = 0; i < job->mmcf->groups.nelts; i++) {
        ngx_http_modelgw_list_models(&out, group[i], &group[i]->models, &n);
        ngx_http_modelgw_list_models(&out, group[i], &group[i]->patterns, &n);
    }

    ngx_modelgw_out_text(&out, "]}");

    return ngx_modelgw_out_piece_done(&out, &job->body);
}


static void
ngx_http_modelgw_list_models(ngx_modelgw_out_t *out,
    ngx_http_modelgw_group_t *group, ngx_array_t *models, ngx_uint_t *n)
{
    ngx_uint_t                 i;
    ngx_http_modelgw_model_t  *model;

    model = models->elts;

    for (i = 0; i < models->nelts; i++) {

        if ((*n)++) {
            ngx_modelgw_out_text(out, ",");
        }

        ngx_http_modelgw_list_model(out, group, &model[i]);
    }
}


/* what it can do, and its bounds, are those options that are words or counts */

static void
ngx_http_modelgw_list_model(ngx_modelgw_out_t *out,
    ngx_http_modelgw_group_t *group, ngx_http_modelgw_model_t *model)
{
    u_char                     *p;
    uint64_t                   *price;
    ngx_uint_t                 *value;
    ngx_http_modelgw_option_t  *option;

    ngx_modelgw_out_text(out, "{\"id\":");
    ngx_modelgw_out_string(out, &model->id);
    ngx_modelgw_out_text(out, ",\"group\":");
    ngx_modelgw_out_string(out, &group->name);
    ngx_modelgw_out_text(out, ",\"upstream_id\":");
    ngx_modelgw_out_string(out, &model->upstream_id);

    for (option = ngx_http_modelgw_model_options; option->name.len; option++) {
        p = (u_char *) model + option->offset;

        if (option->name.data[option->name.len - 1] != '=') {
            continue;
        }

        ngx_modelgw_out_text(out, ",\"");
        ngx_modelgw_out(out, option->name.data, option->name.len - 1);
        ngx_modelgw_out_text(out, "\":");

        if (option->words || option->set == ngx_http_modelgw_option_count) {
            value = (ngx_uint_t *) p;
            ngx_http_modelgw_list_option(out, option, *value);

        } else if (model->priced) {
            price = (uint64_t *) p;
            ngx_modelgw_amount_out(out, *price * NGX_HTTP_MODELGW_LIST_MEGA);

        } else {
            ngx_modelgw_out_text(out, "null");
        }
    }

    ngx_modelgw_out_text(out, "}");
}


static void
ngx_http_modelgw_list_option(ngx_modelgw_out_t *out,
    ngx_http_modelgw_option_t *option, ngx_uint_t value)
{
    ngx_uint_t        n;
    ngx_conf_enum_t  *word;

    if (option->words == NULL) {
        ngx_http_modelgw_list_number(out, "", value, 0);
        return;
    }

    if (option->set == ngx_http_modelgw_option_word) {

        for (word = option->words; word->name.len; word++) {
            if (word->value == value) {
                ngx_modelgw_out_string(out, &word->name);
                return;
            }
        }
    }

    n = 0;
    ngx_modelgw_out_text(out, "[");

    for (word = option->words; word->name.len; word++) {

        if (word->value & value) {

            if (n++) {
                ngx_modelgw_out_text(out, ",");
            }

            ngx_modelgw_out_string(out, &word->name);
        }
    }

    ngx_modelgw_out_text(out, "]");
}
