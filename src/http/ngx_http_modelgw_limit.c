
/*
 * The limits of a key: requests and tokens a minute, calls in flight.
 *
 * A limit of the key is used, else that of its group.  A request and a call in
 * flight are taken when the headers are here, before the body is read, so that
 * a refusal is cheap.  Tokens are taken at the verdict, estimated from the
 * body, and corrected when the call ends.  Counting tokens and listing models
 * use none and are not limited: assistants count a dozen times in a row.
 *
 * The state of a limit is copied when the call takes its part, so the headers
 * of the answer need no lock.  Their names and forms are those of each API; the
 * official SDKs go by Retry-After alone.
 *
 * In a cluster the parts are taken from what this node has borrowed.  If that
 * is not enough, the request waits for one answer of the database: before its
 * body is read, or for tokens, at the verdict.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_limit.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_share.h"
#include "ngx_modelgw_usage.h"
#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_headers.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_LIMIT_WAIT   60     /* seconds, at most */
#define NGX_HTTP_MODELGW_LIMIT_TICK   10     /* ms that a coarse clock lags */
#define NGX_HTTP_MODELGW_LIMIT_DAY    86400  /* seconds */


/*
 * A limit per minute as it was when the call took its part.  The values of its
 * headers are written from the end of their buffers.
 */

typedef struct {
    uint32_t                          limit;  /* 0: none */
    ngx_modelgw_limit_state_t         state;
    ngx_msec_t                        time;   /* of the state */

    u_char                            limit_text[NGX_INT32_LEN];
    u_char                            remaining_text[NGX_INT32_LEN];
    u_char                            reset_text[
                                            sizeof("1970-01-01T00:00:00Z")];
} ngx_http_modelgw_limit_status_t;


struct ngx_http_modelgw_limits_s {
    ngx_http_modelgw_limit_status_t   requests;
    ngx_http_modelgw_limit_status_t   tokens;
    ngx_uint_t                        taken;  /* 1: the state of tokens is set,
                                                 they were taken or refused */

    /* in a cluster */

    uint32_t                          calls;  /* in flight; 0: no limit */
    ngx_uint_t                        counted; /* 1: the request was taken */
    ngx_modelgw_share_ticket_t        tickets[NGX_MODELGW_SHARE_KINDS];
};


/* the headers of a limit in one API */

typedef struct {
    const char                       *limit;
    const char                       *remaining;
    const char                       *reset;
    u_char                         *(*time)(u_char *last, uint64_t left);
                                              /* left: ms */
} ngx_http_modelgw_limit_header_t;


static ngx_http_modelgw_limits_t *ngx_http_modelgw_limit_create(
    ngx_http_request_t *r, uint32_t rpm, uint32_t tpm);
static ngx_int_t ngx_http_modelgw_limit_take(ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_main_conf_t *mmcf, uint32_t rpm, uint32_t concurrency);
static ngx_int_t ngx_http_modelgw_limit_open_locked(
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_main_conf_t *mmcf,
    uint32_t concurrency);
static ngx_int_t ngx_http_modelgw_limit_reached(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, uint32_t concurrency, ngx_int_t rc);
static ngx_int_t ngx_http_modelgw_limit_cluster(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_main_conf_t *mmcf,
    uint32_t rpm, uint32_t tpm, uint32_t concurrency);
static ngx_int_t ngx_http_modelgw_limit_try(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_main_conf_t *mmcf);
static ngx_int_t ngx_http_modelgw_limit_shared_locked(
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_ledger_t *ledger);
static ngx_int_t ngx_http_modelgw_limit_shared_tokens_locked(
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_ledger_t *ledger, int64_t tokens);
static ngx_int_t ngx_http_modelgw_limit_calls(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, uint32_t concurrency);
static ngx_int_t ngx_http_modelgw_limit_refuse(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_limit_status_t *status,
    const char *unit);
static ngx_int_t ngx_http_modelgw_limit_full(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_limit_look(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_limit_header(ngx_http_request_t *r,
    ngx_http_modelgw_limit_header_t *h,
    ngx_http_modelgw_limit_status_t *status);
static ngx_int_t ngx_http_modelgw_limit_add(ngx_http_request_t *r,
    const char *name, u_char *value, u_char *last);
static u_char *ngx_http_modelgw_limit_duration(u_char *last, uint64_t left);
static u_char *ngx_http_modelgw_limit_date(u_char *last, uint64_t left);


static ngx_http_modelgw_limit_header_t  ngx_http_modelgw_limit_chat[] = {

    { "x-ratelimit-limit-requests",
      "x-ratelimit-remaining-requests",
      "x-ratelimit-reset-requests",
      ngx_http_modelgw_limit_duration },

    { "x-ratelimit-limit-tokens",
      "x-ratelimit-remaining-tokens",
      "x-ratelimit-reset-tokens",
      ngx_http_modelgw_limit_duration }
};


static ngx_http_modelgw_limit_header_t  ngx_http_modelgw_limit_messages[] = {

    { "anthropic-ratelimit-requests-limit",
      "anthropic-ratelimit-requests-remaining",
      "anthropic-ratelimit-requests-reset",
      ngx_http_modelgw_limit_date },

    { "anthropic-ratelimit-tokens-limit",
      "anthropic-ratelimit-tokens-remaining",
      "anthropic-ratelimit-tokens-reset",
      ngx_http_modelgw_limit_date }
};


ngx_int_t
ngx_http_modelgw_limit_request(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    uint32_t                       rpm, tpm, concurrency;
    ngx_int_t                      rc;
    ngx_modelgw_key_t             *key;
    ngx_http_modelgw_group_t      *group;
    ngx_http_modelgw_main_conf_t  *mmcf;

    if (ctx->request.endpoint->protocol == 0
        || (ctx->request.endpoint->flags & NGX_HTTP_MODELGW_COUNT))
    {
        return NGX_OK;
    }

    key = ctx->request.key;
    group = ngx_http_modelgw_ctx_group(ctx);

    rpm = key->rpm ? key->rpm : group->rpm;
    tpm = key->tpm ? key->tpm : group->tpm;
    concurrency = key->concurrency ? key->concurrency : group->concurrency;

    ngx_http_modelgw_keys_budget(key, &ctx->money.budget);

    if (rpm == 0 && tpm == 0 && concurrency == 0
        && ctx->money.budget.limit == 0)
    {
        return NGX_OK;
    }

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    if (key->slot == NGX_MODELGW_LEDGER_NONE) {
        return ngx_http_modelgw_limit_full(r, ctx);
    }

    if (mmcf->cluster) {
        return ngx_http_modelgw_limit_cluster(r, ctx, mmcf, rpm, tpm,
                                              concurrency);
    }

    if (rpm || tpm) {
        ctx->money.limits = ngx_http_modelgw_limit_create(r, rpm, tpm);
        if (ctx->money.limits == NULL) {
            return NGX_ERROR;
        }
    }

    if (rpm == 0 && concurrency == 0) {
        return NGX_OK;
    }

    rc = ngx_http_modelgw_limit_take(ctx, mmcf, rpm, concurrency);

    return (rc == NGX_OK)
           ? NGX_OK : ngx_http_modelgw_limit_reached(r, ctx, concurrency, rc);
}


static ngx_int_t
ngx_http_modelgw_limit_reached(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, uint32_t concurrency, ngx_int_t rc)
{
    if (ctx->money.limits && ctx->money.limits->requests.limit
        && ctx->money.limits->requests.state.wait)
    {
        ctx->request.reason = NGX_HTTP_MODELGW_REASON_RPM;

        return ngx_http_modelgw_limit_refuse(r, ctx,
                                             &ctx->money.limits->requests,
                                             "request");
    }

    return (rc == NGX_DECLINED)
           ? ngx_http_modelgw_limit_calls(r, ctx, concurrency)
           : ngx_http_modelgw_limit_full(r, ctx);
}


/* The same, of limits that are those of all nodes. */

static ngx_int_t
ngx_http_modelgw_limit_cluster(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_main_conf_t *mmcf,
    uint32_t rpm, uint32_t tpm, uint32_t concurrency)
{
    ngx_int_t                   rc;
    const char                 *reason;
    ngx_http_modelgw_limits_t  *limits;

    /* no more of a limit would be lent to this node, or taken back */

    reason = ngx_http_modelgw_node_refuses(mmcf);
    if (reason) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                      "SERVICE_UNAVAILABLE",
                                      "%s, try again later", reason);
    }

    if (rpm == 0 && tpm == 0 && concurrency == 0) {
        return NGX_OK;
    }

    limits = ngx_http_modelgw_limit_create(r, rpm, tpm);
    if (limits == NULL) {
        return NGX_ERROR;
    }

    limits->calls = concurrency;
    limits->counted = 0;
    ngx_memzero(limits->tickets, sizeof(limits->tickets));

    ctx->money.limits = limits;

    if (rpm == 0 && concurrency == 0) {
        return NGX_OK;
    }

    rc = ngx_http_modelgw_limit_try(r, ctx, mmcf);

    if (rc != NGX_AGAIN) {
        return rc;
    }

    /* other handlers of this phase may refuse it meanwhile */

    ctx->money.limited = 1;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_limit_again(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                      rc;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    rc = NGX_AGAIN;

    if (ngx_http_modelgw_limit_answered(ctx, mmcf->ledger)) {
        rc = ngx_http_modelgw_limit_try(r, ctx, mmcf);
    }

    if (rc == NGX_AGAIN) {
        return ngx_http_modelgw_wait_limit(r, ctx);
    }

    ctx->money.limited = 0;

    return rc;
}


ngx_uint_t
ngx_http_modelgw_limit_answered(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_ledger_t *ledger)
{
    ngx_modelgw_share_e          kind;
    ngx_modelgw_share_ticket_t  *tickets;

    tickets = ctx->money.limits->tickets;

    for (kind = 0; kind < NGX_MODELGW_SHARE_KINDS; kind++) {

        if (tickets[kind].since
            && !ngx_modelgw_share_answered(ledger, ctx->request.key->slot,
                                           kind, &tickets[kind],
                                           ngx_current_msec))
        {
            return 0;
        }
    }

    return 1;
}


/* NGX_OK; NGX_AGAIN; NGX_DECLINED: refused; NGX_ERROR: no memory. */

static ngx_int_t
ngx_http_modelgw_limit_try(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    uint32_t   concurrency;
    ngx_int_t  rc;

    concurrency = ctx->money.limits->calls;

    ngx_modelgw_ledger_lock(mmcf->ledger);

    rc = ngx_http_modelgw_limit_shared_locked(ctx, mmcf->ledger);

    if (rc == NGX_OK && concurrency) {
        rc = ngx_http_modelgw_limit_open_locked(ctx, mmcf, concurrency);
    }

    ngx_modelgw_ledger_unlock(mmcf->ledger);

    ngx_http_modelgw_limit_wake(mmcf->ledger);

    return (rc == NGX_OK || rc == NGX_AGAIN)
           ? rc : ngx_http_modelgw_limit_reached(r, ctx, concurrency, rc);
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
 * Takes a request and a call in flight under one lock.
 *     NGX_OK
 *     NGX_DECLINED  a limit is reached; the request is not given back if it is
 *                   the one of calls in flight
 *     NGX_ERROR     no room for the call
 */

static ngx_int_t
ngx_http_modelgw_limit_take(ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_main_conf_t *mmcf, uint32_t rpm, uint32_t concurrency)
{
    ngx_int_t                         rc;
    ngx_modelgw_ledger_t             *ledger;
    ngx_modelgw_ledger_key_t         *key;
    ngx_http_modelgw_limit_status_t  *status;

    rc = NGX_OK;
    ledger = mmcf->ledger;
    key = ngx_modelgw_ledger_key_at(ledger, ctx->request.key->slot);

    ngx_modelgw_ledger_lock(ledger);

    if (rpm) {
        status = &ctx->money.limits->requests;
        status->time = ngx_current_msec;

        rc = ngx_modelgw_limit_take(&key->rpm, rpm, 1, status->time,
                                    &status->state);
    }

    if (rc == NGX_OK && concurrency) {
        rc = ngx_http_modelgw_limit_open_locked(ctx, mmcf, concurrency);
    }

    ngx_modelgw_ledger_unlock(ledger);

    return rc;
}


static ngx_int_t
ngx_http_modelgw_limit_open_locked(ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_main_conf_t *mmcf, uint32_t concurrency)
{
    ngx_int_t  rc;

    if (mmcf->worker == NGX_MODELGW_LEDGER_NONE) {
        return NGX_ERROR;
    }

    rc = ngx_modelgw_ledger_open_locked(mmcf->ledger, mmcf->worker,
                                        ctx->request.key->slot, concurrency,
                                        &ctx->money.slot);

    if (rc == NGX_OK) {
        ctx->money.slot->cell = NGX_MODELGW_CALL_GROUP
                                | ngx_http_modelgw_ctx_group(ctx)->cell;
    }

    return rc;
}


/* The codes of ngx_modelgw_share_take_locked(). */

static ngx_int_t
ngx_http_modelgw_limit_shared_locked(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_ledger_t *ledger)
{
    uint32_t                          slot;
    ngx_int_t                         rc;
    ngx_http_modelgw_limits_t        *limits;
    ngx_http_modelgw_limit_status_t  *status;

    limits = ctx->money.limits;
    slot = ctx->request.key->slot;

    if (limits->requests.limit && !limits->counted) {
        status = &limits->requests;
        status->time = ngx_current_msec;

        rc = ngx_modelgw_share_take_locked(ledger, slot,
                                 NGX_MODELGW_SHARE_REQUESTS, status->limit, 1,
                                 status->time, NULL,
                                 &limits->tickets[NGX_MODELGW_SHARE_REQUESTS],
                                 &status->state);
        if (rc != NGX_OK) {
            return rc;
        }

        limits->counted = 1;
    }

    if (limits->calls == 0) {
        return NGX_OK;
    }

    return ngx_modelgw_share_open_locked(ledger, slot, limits->calls,
                                   ngx_current_msec,
                                   &limits->tickets[NGX_MODELGW_SHARE_CALLS]);
}


static ngx_int_t
ngx_http_modelgw_limit_shared_tokens_locked(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_ledger_t *ledger, int64_t tokens)
{
    ngx_http_modelgw_limits_t        *limits;
    ngx_http_modelgw_limit_status_t  *status;

    limits = ctx->money.limits;
    status = &limits->tokens;

    return ngx_modelgw_share_take_locked(ledger, ctx->request.key->slot,
                                   NGX_MODELGW_SHARE_TOKENS, status->limit,
                                   tokens, status->time, ctx->money.slot,
                                   &limits->tickets[NGX_MODELGW_SHARE_TOKENS],
                                   &status->state);
}


void
ngx_http_modelgw_limit_wake(ngx_modelgw_ledger_t *ledger)
{
    if (ngx_modelgw_shares_urgent(ledger)) {
        ngx_modelgw_exchange_wake(ledger);
    }
}


static ngx_int_t
ngx_http_modelgw_limit_calls(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, uint32_t concurrency)
{
    ctx->request.reason = NGX_HTTP_MODELGW_REASON_CONCURRENCY;

    if (ngx_http_modelgw_limit_retry_after(r, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_TOO_MANY_REQUESTS,
                                  "RATE_LIMITED",
                                  "Rate limit reached: %uD call%s at a time; "
                                  "try again in 1 s",
                                  concurrency, concurrency == 1 ? "" : "s");
}


ngx_int_t
ngx_http_modelgw_limit_tokens_locked(ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_main_conf_t *mmcf, int64_t tokens)
{
    ngx_modelgw_ledger_key_t         *key;
    ngx_http_modelgw_limit_status_t  *status;

    ctx->money.slot->taken = 0;

    if (ctx->money.limits == NULL || ctx->money.limits->tokens.limit == 0) {
        return NGX_OK;
    }

    ctx->money.limits->taken = 1;

    status = &ctx->money.limits->tokens;
    status->time = ngx_current_msec;

    /* without max_tokens the largest output of the model is assumed, which
       must not use up the whole minute */

    tokens = ngx_min(tokens, ((int64_t) status->limit + 3) / 4);

    if (mmcf->cluster) {
        return ngx_http_modelgw_limit_shared_tokens_locked(ctx, mmcf->ledger,
                                                           tokens);
    }

    key = ngx_modelgw_ledger_key_at(mmcf->ledger, ctx->request.key->slot);

    if (ngx_modelgw_limit_take(&key->tpm, status->limit, tokens, status->time,
                               &status->state)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    ctx->money.slot->taken = tokens;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_limit_refuse_tokens(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ctx->request.reason = NGX_HTTP_MODELGW_REASON_TPM;

    return ngx_http_modelgw_limit_refuse(r, ctx, &ctx->money.limits->tokens,
                                         "token");
}


static ngx_int_t
ngx_http_modelgw_limit_refuse(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_limit_status_t *status,
    const char *unit)
{
    ngx_uint_t  seconds;

    seconds = (status->state.wait + NGX_HTTP_MODELGW_LIMIT_TICK + 999) / 1000;
    seconds = ngx_min(seconds, NGX_HTTP_MODELGW_LIMIT_WAIT);

    if (ngx_http_modelgw_limit_retry_after(r, seconds) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_TOO_MANY_REQUESTS,
                                  "RATE_LIMITED",
                                  "Rate limit reached: %uD %s%s a minute; "
                                  "try again in %ui s",
                                  status->limit, unit,
                                  status->limit == 1 ? "" : "s", seconds);
}


/* a mistake of the operator, hence logged */

static ngx_int_t
ngx_http_modelgw_limit_full(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  (mmcf->worker == NGX_MODELGW_LEDGER_NONE)
                  ? "too many nginx workers use \"modelgw_zone\", key \"%V\""
                  : "\"modelgw_zone\" has no room for the limits of key "
                    "\"%V\", or for one more call", &ctx->request.key->id);

    if (ngx_http_modelgw_limit_retry_after(r, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                  "SERVICE_UNAVAILABLE",
                                  "The gateway is full, try again later");
}


/* reply.c passes it on; 1 to 60 s */

ngx_int_t
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


ngx_int_t
ngx_http_modelgw_limit_headers(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_limit_header_t  *h;

    if (ctx->money.limits == NULL) {
        return NGX_OK;
    }

    if (ctx->money.limits->tokens.limit && !ctx->money.limits->taken) {
        ngx_http_modelgw_limit_look(r, ctx);
    }

    h = (ctx->request.endpoint->protocol == NGX_MODELGW_MESSAGES)
        ? ngx_http_modelgw_limit_messages : ngx_http_modelgw_limit_chat;

    if (ngx_http_modelgw_limit_header(r, &h[0], &ctx->money.limits->requests)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_limit_header(r, &h[1], &ctx->money.limits->tokens);
}


/* the state of tokens for a call that was refused before it took any */

static void
ngx_http_modelgw_limit_look(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_modelgw_ledger_key_t         *key;
    ngx_http_modelgw_main_conf_t     *mmcf;
    ngx_http_modelgw_limit_status_t  *status;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);
    key = ngx_modelgw_ledger_key_at(mmcf->ledger, ctx->request.key->slot);

    status = &ctx->money.limits->tokens;
    status->time = ngx_current_msec;

    ngx_modelgw_ledger_lock(mmcf->ledger);

    if (mmcf->cluster) {
        ngx_modelgw_share_state_locked(mmcf->ledger, ctx->request.key->slot,
                                       NGX_MODELGW_SHARE_TOKENS, status->limit,
                                       status->time, &status->state);

    } else {
        ngx_modelgw_limit_state(&key->tpm, status->limit, status->time,
                                &status->state);
    }

    ngx_modelgw_ledger_unlock(mmcf->ledger);
}


static ngx_int_t
ngx_http_modelgw_limit_header(ngx_http_request_t *r,
    ngx_http_modelgw_limit_header_t *h, ngx_http_modelgw_limit_status_t *status)
{
    u_char    *limit, *remaining, *reset;
    uint32_t   rest;
    uint64_t   left, passed;

    if (status->limit == 0) {
        return NGX_OK;
    }

    /* the call may have outlasted the reset, by then nothing is used */

    passed = ngx_current_msec - status->time;

    if (status->state.reset > passed) {
        left = status->state.reset - passed;
        rest = status->state.remaining;

    } else {
        left = 0;
        rest = status->limit;
    }

    limit = status->limit_text + sizeof(status->limit_text);
    remaining = status->remaining_text + sizeof(status->remaining_text);
    reset = status->reset_text + sizeof(status->reset_text);

    if (ngx_http_modelgw_limit_add(r, h->limit,
                   ngx_modelgw_out_digits(limit, status->limit), limit)
        != NGX_OK
        || ngx_http_modelgw_limit_add(r, h->remaining,
                   ngx_modelgw_out_digits(remaining, rest), remaining)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_limit_add(r, h->reset, h->time(reset, left),
                                      reset);
}


static ngx_int_t
ngx_http_modelgw_limit_add(ngx_http_request_t *r, const char *name,
    u_char *value, u_char *last)
{
    ngx_str_t  text;

    text.data = value;
    text.len = last - value;

    return ngx_http_modelgw_headers_add(r, name, &text);
}


/*
 * These two write a text that ends at last, and return its beginning, as
 * ngx_modelgw_out_digits().  ngx_sprintf() would take 1100 instructions more
 * for the six headers of an answer.
 */

/* "20ms", "12s", "1m30s"; not all clients can parse fractions of a second */

static u_char *
ngx_http_modelgw_limit_duration(u_char *last, uint64_t left)
{
    uint32_t  seconds;

    *--last = 's';

    if (left > 0 && left < 1000) {
        *--last = 'm';
        return ngx_modelgw_out_digits(last, left);
    }

    seconds = (left + 999) / 1000;

    last = ngx_modelgw_out_digits(last, seconds % 60);

    if (seconds >= 60) {
        *--last = 'm';
        last = ngx_modelgw_out_digits(last, seconds / 60);
    }

    return last;
}


/* RFC 3339, UTC; the date is cached */

static u_char *
ngx_http_modelgw_limit_date(u_char *last, uint64_t left)
{
    u_char      *p;
    time_t       t;
    ngx_tm_t     tm;
    ngx_uint_t   i, n[3];
    ngx_time_t  *tp;

    static time_t   day = -1;
    static u_char   text[] = "1970-01-01T00:00:00Z";

    tp = ngx_timeofday();
    t = tp->sec + (tp->msec + left + 999) / 1000;

    if (t / NGX_HTTP_MODELGW_LIMIT_DAY != day) {
        day = t / NGX_HTTP_MODELGW_LIMIT_DAY;

        ngx_gmtime(t, &tm);
        (void) ngx_sprintf(text, "%4d-%02d-%02d", tm.ngx_tm_year,
                           tm.ngx_tm_mon, tm.ngx_tm_mday);
    }

    last -= sizeof(text) - 1;
    ngx_memcpy(last, text, sizeof(text) - 1);

    n[0] = t % NGX_HTTP_MODELGW_LIMIT_DAY / 3600;
    n[1] = t % 3600 / 60;
    n[2] = t % 60;

    p = last + sizeof("1970-01-01T") - 1;

    for (i = 0; i < 3; i++) {
        p[0] = (u_char) ('0' + n[i] / 10);
        p[1] = (u_char) ('0' + n[i] % 10);
        p += sizeof("00:") - 1;
    }

    return last;
}
