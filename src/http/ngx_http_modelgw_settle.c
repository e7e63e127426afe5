
/*
 * The end of a call's hold: charged by what was seen of the answer, once,
 * however the call ends.
 *
 * Usage and status of the answer are kept in shared memory while it comes, by
 * plain stores, so that the call of a worker that was killed is settled by the
 * same rule, ngx_modelgw_charge().  A call ends with the upstream's answer, not
 * with the client's connection: it is settled as soon as nothing more can be
 * known, and before the client has the last byte.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_usage.h"
#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_zone.h"


/* a cached connection that the upstream closed fails within this time, ms */

#define NGX_HTTP_MODELGW_SETTLE_UNREAD  1000


static uint32_t ngx_http_modelgw_settle_unread(ngx_http_request_t *r);
static ngx_modelgw_end_e ngx_http_modelgw_settle_end(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_uint_t ngx_http_modelgw_settle_upstream_status(
    ngx_http_request_t *r);


void
ngx_http_modelgw_settle_status(ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status)
{
    if (ctx->money.slot) {
        ctx->money.slot->seen.status = (uint32_t) status;
    }
}


void
ngx_http_modelgw_settle_id(ngx_http_modelgw_ctx_t *ctx)
{
    size_t               len;
    ngx_str_t           *id;
    ngx_modelgw_call_t  *call;

    id = &ctx->answer.request_id;
    call = ctx->money.slot;

    if (call) {
        len = ngx_min(id->len, NGX_MODELGW_LEDGER_REQUEST);
        ngx_memcpy(call->request_id, id->data, len);

        /* the writer may be storing the hold: it looks at the length first */

        ngx_memory_barrier();

        call->request_id_len = len;
    }
}


void
ngx_http_modelgw_settle_first_byte(ngx_http_modelgw_ctx_t *ctx)
{
    uint64_t             now;
    ngx_time_t          *tp;
    ngx_modelgw_call_t  *call;

    call = ctx->money.slot;

    if (call) {
        tp = ngx_timeofday();
        now = (uint64_t) tp->sec * 1000 + tp->msec;

        /* the clock may have been set back */

        call->first_byte = (now > call->started) ? now - call->started : 0;
    }
}


void
ngx_http_modelgw_settle_seen(ngx_http_modelgw_ctx_t *ctx, size_t text)
{
    if (ctx->money.slot) {
        ngx_modelgw_seen_usage(&ctx->money.slot->seen, &ctx->answer.usage);
        ctx->money.slot->seen.text += text;
    }
}


void
ngx_http_modelgw_settle(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_time_t                    *tp;
    ngx_uint_t                     done, count;
    ngx_modelgw_end_e              end;
    ngx_modelgw_call_t            *call;
    ngx_modelgw_metrics_call_t     counted;
    ngx_http_modelgw_main_conf_t  *mmcf;

    call = ctx->money.slot;

    if (call == NULL) {
        return;
    }

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);
    tp = ngx_timeofday();
    count = 0;

    if (call->state == NGX_MODELGW_CALL_SENT) {

        count = (mmcf->metrics != NULL);

        ctx->money.settled = 1;

        /* some chat vendors report usage with the last choice, or with each */

        if (ctx->answer.complete) {
            ngx_modelgw_usage_end(&ctx->answer.usage, ctx->call.protocol);
            ngx_http_modelgw_settle_seen(ctx, 0);

        } else {
            ngx_http_modelgw_answer_cut(r, ctx);
        }

        if (call->seen.status == 0) {
            call->seen.flags |= ngx_http_modelgw_settle_unread(r);
        }
    }

    ctx->money.slot = NULL;

    end = ngx_http_modelgw_settle_end(r, ctx);
    ctx->money.end = end;

    ngx_modelgw_ledger_lock(mmcf->ledger);

    done = ngx_modelgw_ledger_settle_locked(mmcf->ledger, call, end,
                                         (uint64_t) tp->sec * 1000 + tp->msec,
                                         ngx_current_msec);

    /* once unlocked, the slot may become another call's */

    ctx->money.charge = call->charge;

    if (count) {
        ngx_http_modelgw_zone_metrics_call(call, &counted);
    }

    ngx_modelgw_ledger_unlock(mmcf->ledger);

    if (done) {
        ngx_modelgw_ledger_wake(mmcf->ledger);
    }

    if (count) {
        ngx_http_modelgw_count_call(r, ctx, &counted);
    }
}


/*
 * There was no answer: NGX_MODELGW_SEEN_* if the upstream cannot have read the
 * request, else 0.  The last try counts for all: those before have reached no
 * server, or one that refused the call, see retry.c.  And half a body is no
 * request.
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
    if (ctx->answer.complete
        || (ctx->answer.mode == NGX_HTTP_MODELGW_ENDED
            && ctx->upstream.rc == NGX_OK))
    {
        return NGX_MODELGW_END_COMPLETE;
    }

    if (ctx->upstream.rc == NGX_HTTP_GATEWAY_TIME_OUT
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


/* the status of the last try: 502 or 504 if it failed, 0 if there was none */

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
