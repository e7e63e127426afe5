
/*
 * What is set aside for a call before it is sent: an upper bound of what it may
 * cost, in tokens and in money.
 *
 * The bound of the input is the body's size: a token is at least a byte.  What
 * costs more than its bytes is counted by the scanner (extras.c).
 *
 * A request goes through here once, after the checks of the body and before it
 * is rewritten; what was taken is given back by ngx_http_modelgw_settle(),
 * whatever happens behind this.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_ledger.h"
#include "ngx_http_modelgw_verdict.h"


#define NGX_HTTP_PAYMENT_REQUIRED  402         /* RFC 9110, 15.5.3 */

/* tokens */

#define NGX_HTTP_MODELGW_HOLD_MEDIA     16384      /* at most, and about: */
#define NGX_HTTP_MODELGW_HOLD_MEDIUM    1600
#define NGX_HTTP_MODELGW_HOLD_DOCUMENT  1000000    /* likewise */
#define NGX_HTTP_MODELGW_HOLD_PAPER     50000
#define NGX_HTTP_MODELGW_HOLD_TOOLS     1000
#define NGX_HTTP_MODELGW_HOLD_MAX       999999999


/* tokens, at most; but for the estimate */

typedef struct {
    int64_t                   input;
    int64_t                   output;    /* of all choices */
    int64_t                   estimate;  /* of the input */
    int64_t                   cost;      /* nano-euro, at most */
    ngx_uint_t                long_cache;
} ngx_http_modelgw_bound_t;


static ngx_uint_t ngx_http_modelgw_hold_needed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_main_conf_t *mmcf);
static ngx_int_t ngx_http_modelgw_hold_check(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_main_conf_t *mmcf);
static void ngx_http_modelgw_hold_bound(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, int64_t *n, ngx_http_modelgw_bound_t *b);
static int64_t ngx_http_modelgw_hold_output(ngx_http_modelgw_ctx_t *ctx);
static int64_t ngx_http_modelgw_hold_limit(ngx_http_modelgw_ctx_t *ctx,
    ngx_uint_t watch);
static ngx_int_t ngx_http_modelgw_hold_take(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_bound_t *b,
    ngx_http_modelgw_main_conf_t *mmcf);
static ngx_int_t ngx_http_modelgw_hold_full(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_main_conf_t *mmcf);
static ngx_int_t ngx_http_modelgw_hold_insufficient(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_bound_t *b,
    int64_t available);
static void ngx_http_modelgw_hold_describe(ngx_http_modelgw_ctx_t *ctx);


ngx_int_t
ngx_http_modelgw_hold(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    int64_t                        n[NGX_HTTP_MODELGW_MARK_KINDS];
    ngx_int_t                      rc;
    ngx_http_modelgw_bound_t       bound;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    if (!ngx_http_modelgw_hold_needed(r, ctx, mmcf)) {
        return NGX_OK;
    }

    ngx_http_modelgw_extras_count(ctx, n);

    if (ngx_modelgw_ledger_credit(mmcf->ledger)) {

        if (!ctx->model->extras && !ctx->model->free) {
            rc = ngx_http_modelgw_extras(r, ctx, n);
            if (rc != NGX_OK) {
                return rc;
            }
        }

        rc = ngx_http_modelgw_hold_check(r, ctx, mmcf);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    ngx_http_modelgw_hold_bound(r, ctx, n, &bound);

    return ngx_http_modelgw_hold_take(r, ctx, &bound, mmcf);
}


/* what counts tokens uses none */

static ngx_uint_t
ngx_http_modelgw_hold_needed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_main_conf_t *mmcf)
{
    if (mmcf->ledger == NULL
        || (ctx->endpoint->flags & NGX_HTTP_MODELGW_COUNT))
    {
        return 0;
    }

    return ctx->call || ctx->key->tpm || ctx->group->tpm
           || ngx_modelgw_ledger_credit(mmcf->ledger);
}


/* what there must be of a ledger with credit */

static ngx_int_t
ngx_http_modelgw_hold_check(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    if (!ngx_modelgw_ledger_writable(mmcf->ledger)) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                      "SERVICE_UNAVAILABLE",
                                      "The ledger cannot be written, try "
                                      "again later");
    }

    if (ctx->key->account_index == NGX_MODELGW_LEDGER_NONE) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "\"modelgw_zone\" has no room for account \"%V\"",
                      &ctx->key->account);

        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                      "SERVICE_UNAVAILABLE",
                                      "The gateway is full, try again later");
    }

    return NGX_OK;
}


static void
ngx_http_modelgw_hold_bound(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, int64_t *n, ngx_http_modelgw_bound_t *b)
{
    int64_t  bytes;

    bytes = r->headers_in.content_length_n;

    b->input = bytes
               + n[NGX_HTTP_MODELGW_MARK_MEDIA] * NGX_HTTP_MODELGW_HOLD_MEDIA
               + n[NGX_HTTP_MODELGW_MARK_DOCUMENT]
                 * NGX_HTTP_MODELGW_HOLD_DOCUMENT
               + n[NGX_HTTP_MODELGW_MARK_TOOLS] * NGX_HTTP_MODELGW_HOLD_TOOLS;

    b->input = ngx_min(b->input, NGX_HTTP_MODELGW_HOLD_MAX);

    if (ctx->model->context) {
        b->input = ngx_min(b->input, (int64_t) ctx->model->context);
    }

    b->estimate = (bytes + 3) / 4
                  + n[NGX_HTTP_MODELGW_MARK_MEDIA]
                    * NGX_HTTP_MODELGW_HOLD_MEDIUM
                  + n[NGX_HTTP_MODELGW_MARK_DOCUMENT]
                    * NGX_HTTP_MODELGW_HOLD_PAPER;

    b->estimate = ngx_max(ngx_min(b->estimate, b->input), 1);

    b->long_cache = (n[NGX_HTTP_MODELGW_MARK_LONG_CACHE] != 0);
    b->output = ngx_http_modelgw_hold_output(ctx);

    b->cost = ngx_modelgw_cost_bound(&ctx->model->price, b->input, b->output,
                                     b->long_cache);
}


/*
 * What the client allows, for each of n choices.  Of two limits the larger
 * counts: which of them an upstream knows is not known here.
 */

static int64_t
ngx_http_modelgw_hold_output(ngx_http_modelgw_ctx_t *ctx)
{
    int64_t  output;

    output = ngx_http_modelgw_hold_limit(ctx, NGX_HTTP_MODELGW_LIMIT);

    if (ctx->endpoint->protocol == NGX_MODELGW_CHAT) {
        output = ngx_max(output,
                         ngx_http_modelgw_hold_limit(ctx,
                                          NGX_HTTP_MODELGW_COMPLETION_LIMIT));
    }

    if (output == 0) {
        output = ctx->model->max_output ? ctx->model->max_output
                                        : ctx->model->context;
    }

    return ngx_min(output * (int64_t) ctx->choices, NGX_HTTP_MODELGW_HOLD_MAX);
}


/* 0: none; some upstreams take a limit of 0 for none, too */

static int64_t
ngx_http_modelgw_hold_limit(ngx_http_modelgw_ctx_t *ctx, ngx_uint_t watch)
{
    ngx_modelgw_scan_value_t  *v;

    v = ngx_modelgw_scan_value(ctx->scan, watch);

    return (v->type & NGX_MODELGW_SCAN_COUNT) ? ngx_atoi(v->text, v->len) : 0;
}


/*
 * A slot, if the call has none yet (it has one if its key has a limit of calls
 * in flight), its tokens and its money, under one lock.
 */

static ngx_int_t
ngx_http_modelgw_hold_take(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_bound_t *b, ngx_http_modelgw_main_conf_t *mmcf)
{
    int64_t                available;
    ngx_int_t              tokens, credit;
    ngx_modelgw_ledger_t  *ledger;

    ledger = mmcf->ledger;
    tokens = NGX_OK;
    credit = NGX_OK;
    available = 0;

    ngx_modelgw_ledger_lock(ledger);

    if (ctx->call == NULL && mmcf->worker != NGX_MODELGW_LEDGER_NONE) {
        (void) ngx_modelgw_ledger_open_locked(ledger, mmcf->worker,
                                              ctx->key->slot, 0, &ctx->call);
    }

    if (ctx->call) {
        ctx->call->hold = b->cost;
        ctx->call->estimate = b->estimate;

        tokens = ngx_http_modelgw_limit_tokens_locked(ctx, ledger,
                                                      b->estimate + b->output);

        if (tokens == NGX_OK) {
            credit = ngx_modelgw_ledger_hold_locked(ledger, ctx->call,
                                                    ctx->key->account_index,
                                                    &available);
        }
    }

    ngx_modelgw_ledger_unlock(ledger);

    if (ctx->call == NULL) {
        return ngx_http_modelgw_hold_full(r, ctx, mmcf);
    }

    if (tokens != NGX_OK) {
        return ngx_http_modelgw_limit_refuse_tokens(r, ctx);
    }

    if (credit != NGX_OK) {
        return ngx_http_modelgw_hold_insufficient(r, ctx, b, available);
    }

    ngx_http_modelgw_hold_describe(ctx);

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_hold_full(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  (mmcf->worker == NGX_MODELGW_LEDGER_NONE)
                  ? "too many nginx workers use \"modelgw_zone\""
                  : "\"modelgw_zone\" has no room for one more call");

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                  "SERVICE_UNAVAILABLE",
                                  "The gateway is full, try again later");
}


static ngx_int_t
ngx_http_modelgw_hold_insufficient(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_bound_t *b,
    int64_t available)
{
    u_char   need[NGX_MODELGW_AMOUNT_LEN + 1];
    u_char   left[NGX_MODELGW_AMOUNT_LEN + 1];
    int64_t  fits;

    *ngx_modelgw_amount(need, b->cost) = '\0';
    *ngx_modelgw_amount(left, available) = '\0';

    fits = ngx_modelgw_cost_fits(&ctx->model->price, b->input,
                                 b->long_cache, available)
           / (int64_t) ctx->choices;

    if (fits == 0) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_PAYMENT_REQUIRED,
                                      "INSUFFICIENT_CREDIT",
                                      "Insufficient credit: the call may cost "
                                      "up to %s euro, %s are left; add credit",
                                      need, left);
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_PAYMENT_REQUIRED,
                                  "INSUFFICIENT_CREDIT",
                                  "Insufficient credit: the call may cost up "
                                  "to %s euro, %s are left; add credit, or "
                                  "ask for less: max_tokens of %L would fit",
                                  need, left, fits);
}


/* what the call's slot must know, from when it is sent, for who settles it */

static void
ngx_http_modelgw_hold_describe(ngx_http_modelgw_ctx_t *ctx)
{
    ngx_time_t          *tp;
    ngx_modelgw_call_t  *call;

    call = ctx->call;
    tp = ngx_timeofday();

    call->price = ctx->model->price;
    call->started = (uint64_t) tp->sec * 1000 + tp->msec;

    call->key_name.len = ngx_min(ctx->key->id.len, NGX_MODELGW_LEDGER_NAME);
    ngx_memcpy(call->key_name.data, ctx->key->id.data, call->key_name.len);

    call->model_len = ngx_min(ctx->service_id.len, NGX_MODELGW_LEDGER_MODEL);
    ngx_memcpy(call->model, ctx->service_id.data, call->model_len);
}


void
ngx_http_modelgw_hold_sent(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    if (ctx->call) {
        ctx->call_id = ctx->call->id;

        mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);
        ngx_modelgw_ledger_sent(mmcf->ledger, ctx->call);
    }
}
