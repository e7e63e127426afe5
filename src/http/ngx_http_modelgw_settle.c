
/*
 * What becomes of a call's hold: charged by what was seen of the answer, once,
 * however the call ends.
 *
 * What is known of the answer is kept in shared memory while it comes, by plain
 * stores, so that the call of a worker that was killed is settled by the same
 * rule (ngx_modelgw_charge()).  A call ends with the upstream's answer, not
 * with the client's connection: it is settled as soon as nothing more can be
 * learnt, and before the client has the last byte.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_ledger.h"


/* a kept connection that was closed as we wrote to it tells so at once */

#define NGX_HTTP_MODELGW_SETTLE_UNREAD  1000   /* ms */


static uint32_t ngx_http_modelgw_settle_unread(ngx_http_request_t *r);
static ngx_modelgw_end_e ngx_http_modelgw_settle_end(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_uint_t ngx_http_modelgw_settle_upstream_status(
    ngx_http_request_t *r);


void
ngx_http_modelgw_settle_status(ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status)
{
    if (ctx->call) {
        ctx->call->seen.status = (uint32_t) status;
    }
}


void
ngx_http_modelgw_settle_seen(ngx_http_modelgw_ctx_t *ctx, size_t text)
{
    if (ctx->call) {
        ngx_modelgw_seen_usage(&ctx->call->seen, &ctx->usage);
        ctx->call->seen.text += text;
    }
}


void
ngx_http_modelgw_settle(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_time_t                    *tp;
    ngx_uint_t                     done;
    ngx_modelgw_end_e              end;
    ngx_modelgw_call_t            *call;
    ngx_http_modelgw_main_conf_t  *mmcf;

    call = ctx->call;

    if (call == NULL) {
        return;
    }

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);
    tp = ngx_timeofday();

    if (call->state == NGX_MODELGW_CALL_SENT) {

        ctx->settled = 1;

        /* some vendors of chat report with the last choice, or with each */

        if (ctx->complete) {
            ngx_modelgw_usage_end(&ctx->usage, ctx->protocol);
            ngx_http_modelgw_settle_seen(ctx, 0);

        } else {
            ngx_http_modelgw_answer_cut(r, ctx);
        }

        if (call->seen.status == 0) {
            call->seen.flags |= ngx_http_modelgw_settle_unread(r);
        }
    }

    ctx->call = NULL;

    end = ngx_http_modelgw_settle_end(r, ctx);

    ngx_modelgw_ledger_lock(mmcf->ledger);

    done = ngx_modelgw_ledger_settle_locked(mmcf->ledger, call, end,
                                         (uint64_t) tp->sec * 1000 + tp->msec,
                                         ngx_current_msec);

    /* behind the lock the slot may be another call's */

    ctx->charge = call->charge;

    ngx_modelgw_ledger_unlock(mmcf->ledger);

    if (done) {
        ngx_modelgw_ledger_wake(mmcf->ledger);
    }
}


/*
 * No answer: whether the upstream can have read the request.  nginx sends a
 * POST to one peer at most, so what the last try tells holds for all; and half
 * a body is no request.
 */

static uint32_t
ngx_http_modelgw_settle_unread(ngx_http_request_t *r)
{
    ngx_msec_t            waited;
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL || !u->request_body_sent) {
        return NGX_MODELGW_SEEN_UNSENT;
    }

    waited = ngx_current_msec - u->start_time;

    if (u->peer.cached && u->state && u->state->bytes_received == 0
        && waited < NGX_HTTP_MODELGW_SETTLE_UNREAD
        && ngx_http_modelgw_settle_upstream_status(r) == NGX_HTTP_BAD_GATEWAY)
    {
        return NGX_MODELGW_SEEN_UNREAD;
    }

    return 0;
}


static ngx_modelgw_end_e
ngx_http_modelgw_settle_end(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    if (ctx->complete
        || (ctx->mode == NGX_HTTP_MODELGW_ENDED && ctx->upstream_rc == NGX_OK))
    {
        return NGX_MODELGW_END_COMPLETE;
    }

    if (ctx->upstream_rc == NGX_HTTP_GATEWAY_TIME_OUT
        || ngx_http_modelgw_settle_upstream_status(r)
           == NGX_HTTP_GATEWAY_TIME_OUT)
    {
        return NGX_MODELGW_END_TIMEOUT;
    }

    if (ctx->abort || r->connection->error || r->connection->timedout) {
        return NGX_MODELGW_END_CLIENT;
    }

    return NGX_MODELGW_END_UPSTREAM;
}


/* what nginx made of the last try: 502 or 504 if it failed */

static ngx_uint_t
ngx_http_modelgw_settle_upstream_status(ngx_http_request_t *r)
{
    ngx_http_upstream_state_t  *us;

    if (r->upstream_states == NULL || r->upstream_states->nelts == 0) {
        return 0;
    }

    us = r->upstream_states->elts;

    return us[r->upstream_states->nelts - 1].status;
}
