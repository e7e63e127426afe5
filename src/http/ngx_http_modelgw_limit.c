
/*
 * The limits of a key: requests and tokens a minute, calls in flight.
 *
 * A key's own limits count, else its group's.  Requests and calls are taken at
 * the headers, before a body is read: who is refused costs nothing.  Tokens are
 * taken at the verdict, by what the body says, and corrected as the call ends.
 * What counts tokens or lists models uses none, and is not limited: assistants
 * ask for the former a dozen at a time (clients.md, 3.5).
 *
 * What a client is told of its limits is noted as they are taken, so that the
 * headers of the answer (limit_headers.c) need no lock.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_headers.h"
#include "ngx_http_modelgw_ledger.h"


#define NGX_HTTP_MODELGW_LIMIT_WAIT   60     /* seconds, at most */
#define NGX_HTTP_MODELGW_LIMIT_TICK   10     /* ms that a coarse clock lags */


static uint32_t ngx_http_modelgw_limit_rpm(ngx_http_modelgw_ctx_t *ctx);
static uint32_t ngx_http_modelgw_limit_tpm(ngx_http_modelgw_ctx_t *ctx);
static uint32_t ngx_http_modelgw_limit_concurrency(
    ngx_http_modelgw_ctx_t *ctx);
static ngx_http_modelgw_limits_t *ngx_http_modelgw_limit_create(
    ngx_http_request_t *r, uint32_t rpm, uint32_t tpm);
static ngx_int_t ngx_http_modelgw_limit_take(ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_main_conf_t *mmcf, uint32_t concurrency);
static ngx_int_t ngx_http_modelgw_limit_calls(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, uint32_t concurrency);
static ngx_int_t ngx_http_modelgw_limit_refuse(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_limit_told_t *told,
    const char *what);
static ngx_int_t ngx_http_modelgw_limit_full(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_limit_retry_after(ngx_http_request_t *r,
    ngx_uint_t seconds);


ngx_int_t
ngx_http_modelgw_limit_request(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    uint32_t                       rpm, tpm, concurrency;
    ngx_int_t                      rc;
    ngx_http_modelgw_main_conf_t  *mmcf;

    if (ctx->endpoint->protocol == 0
        || (ctx->endpoint->flags & NGX_HTTP_MODELGW_COUNT))
    {
        return NGX_OK;
    }

    rpm = ngx_http_modelgw_limit_rpm(ctx);
    tpm = ngx_http_modelgw_limit_tpm(ctx);
    concurrency = ngx_http_modelgw_limit_concurrency(ctx);

    if (rpm == 0 && tpm == 0 && concurrency == 0) {
        return NGX_OK;
    }

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    if (ctx->key->slot == NGX_MODELGW_LEDGER_NONE) {
        return ngx_http_modelgw_limit_full(r, ctx);
    }

    if (rpm || tpm) {
        ctx->limits = ngx_http_modelgw_limit_create(r, rpm, tpm);
        if (ctx->limits == NULL) {
            return NGX_ERROR;
        }
    }

    if (rpm == 0 && concurrency == 0) {
        return NGX_OK;
    }

    rc = ngx_http_modelgw_limit_take(ctx, mmcf, concurrency);

    if (rc == NGX_OK) {
        return NGX_OK;
    }

    if (rpm && ctx->limits->requests.state.wait) {
        return ngx_http_modelgw_limit_refuse(r, ctx, &ctx->limits->requests,
                                             "requests");
    }

    return (rc == NGX_DECLINED)
           ? ngx_http_modelgw_limit_calls(r, ctx, concurrency)
           : ngx_http_modelgw_limit_full(r, ctx);
}


static uint32_t
ngx_http_modelgw_limit_rpm(ngx_http_modelgw_ctx_t *ctx)
{
    return ctx->key->rpm ? ctx->key->rpm : ctx->group->rpm;
}


static uint32_t
ngx_http_modelgw_limit_tpm(ngx_http_modelgw_ctx_t *ctx)
{
    return ctx->key->tpm ? ctx->key->tpm : ctx->group->tpm;
}


static uint32_t
ngx_http_modelgw_limit_concurrency(ngx_http_modelgw_ctx_t *ctx)
{
    return ctx->key->concurrency ? ctx->key->concurrency
                                 : ctx->group->concurrency;
}


static ngx_http_modelgw_limits_t *
ngx_http_modelgw_limit_create(ngx_http_request_t *r, uint32_t rpm,
    uint32_t tpm)
{
    ngx_http_modelgw_limits_t  *limits;

    limits = ngx_palloc(r->pool, sizeof(ngx_http_modelgw_limits_t));
    if (limits == NULL) {
        return NULL;
    }

    limits->requests.limit = rpm;
    limits->requests.state.wait = 0;

    limits->tokens.limit = tpm;
    limits->taken = 0;

    return limits;
}


/*
 * A request and a call in flight, under one lock.
 *     NGX_OK
 *     NGX_DECLINED  one of them there is none of; a request that was taken
 *                   stays so
 *     NGX_ERROR     there is no room for the call
 */

static ngx_int_t
ngx_http_modelgw_limit_take(ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_main_conf_t *mmcf, uint32_t concurrency)
{
    ngx_int_t                       rc;
    ngx_modelgw_ledger_t           *ledger;
    ngx_modelgw_ledger_key_t       *key;
    ngx_http_modelgw_limit_told_t  *told;

    rc = NGX_OK;
    ledger = mmcf->ledger;
    key = ngx_modelgw_ledger_key_at(ledger, ctx->key->slot);

    ngx_modelgw_ledger_lock(ledger);

    if (ctx->limits && ctx->limits->requests.limit) {
        told = &ctx->limits->requests;
        told->time = ngx_current_msec;

        rc = ngx_modelgw_limit_take(&key->rpm, told->limit, 1, told->time,
                                    &told->state);
    }

    if (rc == NGX_OK && concurrency) {
        rc = (mmcf->worker == NGX_MODELGW_LEDGER_NONE)
             ? NGX_ERROR
             : ngx_modelgw_ledger_open_locked(ledger, mmcf->worker,
                                              ctx->key->slot, concurrency,
                                              &ctx->call);
    }

    ngx_modelgw_ledger_unlock(ledger);

    return rc;
}


static ngx_int_t
ngx_http_modelgw_limit_calls(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, uint32_t concurrency)
{
    if (ngx_http_modelgw_limit_retry_after(r, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_TOO_MANY_REQUESTS,
                                  "RATE_LIMITED",
                                  "Rate limit reached: %uD calls at a time; "
                                  "try again in 1 s", concurrency);
}


ngx_int_t
ngx_http_modelgw_limit_tokens_locked(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_ledger_t *ledger, int64_t tokens)
{
    ngx_modelgw_ledger_key_t       *key;
    ngx_http_modelgw_limit_told_t  *told;

    ctx->call->taken = 0;

    /* the limits are noted at the headers, if there are any */

    if (ctx->limits == NULL || ctx->limits->tokens.limit == 0) {
        return NGX_OK;
    }

    ctx->limits->taken = 1;

    told = &ctx->limits->tokens;
    told->time = ngx_current_msec;

    /* clients that name no limit of output may have a model's largest: all of
       a minute taken for one call would be none for the next */

    tokens = ngx_min(tokens, ((int64_t) told->limit + 3) / 4);

    key = ngx_modelgw_ledger_key_at(ledger, ctx->key->slot);

    if (ngx_modelgw_limit_take(&key->tpm, told->limit, tokens, told->time,
                               &told->state)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    ctx->call->taken = tokens;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_limit_refuse_tokens(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    return ngx_http_modelgw_limit_refuse(r, ctx, &ctx->limits->tokens,
                                         "tokens");
}


static ngx_int_t
ngx_http_modelgw_limit_refuse(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_limit_told_t *told,
    const char *what)
{
    ngx_uint_t  seconds;

    seconds = (told->state.wait + NGX_HTTP_MODELGW_LIMIT_TICK + 999) / 1000;
    seconds = ngx_min(seconds, NGX_HTTP_MODELGW_LIMIT_WAIT);

    if (ngx_http_modelgw_limit_retry_after(r, seconds) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_TOO_MANY_REQUESTS,
                                  "RATE_LIMITED",
                                  "Rate limit reached: %uD %s a minute; "
                                  "try again in %ui s", told->limit, what,
                                  seconds);
}


/* the operator's fault, not the client's */

static ngx_int_t
ngx_http_modelgw_limit_full(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  (mmcf->worker == NGX_MODELGW_LEDGER_NONE)
                  ? "too many nginx workers use \"modelgw_zone\", key \"%V\""
                  : "\"modelgw_zone\" has no room for the limits of key "
                    "\"%V\", or for one more call", &ctx->key->id);

    if (ngx_http_modelgw_limit_retry_after(r, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                  "SERVICE_UNAVAILABLE",
                                  "The gateway is full, try again later");
}


/* reply.c keeps it, in whole seconds, 1 to 60 */

static ngx_int_t
ngx_http_modelgw_limit_retry_after(ngx_http_request_t *r, ngx_uint_t seconds)
{
    ngx_str_t  value;

    value.data = ngx_pnalloc(r->pool, NGX_INT_T_LEN);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    value.len = ngx_sprintf(value.data, "%ui", seconds) - value.data;

    return ngx_http_modelgw_headers_add(r, "Retry-After", &value);
}
