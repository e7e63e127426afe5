
/*
 * Calls of a cluster that wait for credit to be lent, for a budget, or for a
 * limit.
 *
 * A call that no lease covers makes a claim in shared memory, which the
 * exchanger resolves, maybe in another process.  Until then the request is
 * parked in the precontent phase, as limit_req parks one: the handler has
 * returned NGX_AGAIN, and what was scanned of the body is kept.
 *
 *     parked    the state of the request is WAITING, its claim is polled by a
 *               timer, which runs only while this worker has such requests.
 *               It keeps a worker that leaves from exiting
 *     resumed   the phases run again, from the handler that has parked it
 *     left      the client has: abort.c, whose handler watches the connection,
 *               ends the request.  The cleanup frees the claim before that of
 *               ctx.c gives back the call's slot, tokens and hold
 *
 * An exchanger that does not resolve a claim in time hangs or has died: the
 * call is refused.  If all claims are in use, calls wait for one, in the order
 * in which they have come to this worker, for as long as one of them may wait.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_lease.h"
#include "ngx_http_modelgw.h"


#define NGX_HTTP_MODELGW_WAIT_POLL   5           /* ms */
#define NGX_HTTP_MODELGW_WAIT_GRACE  500         /* ms after the deadline, for
                                                    the exchanger to say so */


struct ngx_http_modelgw_wait_s {
    ngx_queue_t                queue;    /* of the worker */
    ngx_http_request_t        *request;
    ngx_http_modelgw_ctx_t    *ctx;
    ngx_modelgw_ledger_t      *ledger;
    ngx_modelgw_claim_t       *claim;    /* NULL: freed, or of another kind */
    ngx_http_modelgw_wait_e    kind;
    ngx_msec_t                 began;
    ngx_msec_t                 until;    /* then it is not waited for; not of a
                                            limit */
    ngx_uint_t                 parked;
};


static ngx_http_modelgw_wait_t *ngx_http_modelgw_wait_park(
    ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_wait_e kind);
static void ngx_http_modelgw_wait_timer(void);
static ngx_uint_t ngx_http_modelgw_wait_resolved(ngx_http_modelgw_wait_t *w);
static void ngx_http_modelgw_wait_poll(ngx_event_t *ev);
static void ngx_http_modelgw_wait_resume(ngx_http_modelgw_wait_t *w);
static void ngx_http_modelgw_wait_end(ngx_http_modelgw_wait_t *w);
static void ngx_http_modelgw_wait_cleanup(void *data);


static ngx_queue_t       ngx_http_modelgw_waiting;
static ngx_uint_t        ngx_http_modelgw_wait_places;  /* of kind PLACE */
static ngx_event_t       ngx_http_modelgw_wait_event;
static ngx_connection_t  ngx_http_modelgw_wait_connection;


ngx_int_t
ngx_http_modelgw_wait(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_claim_t *claim)
{
    ngx_http_modelgw_wait_t       *w;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    w = ngx_http_modelgw_wait_park(r, ctx, NGX_HTTP_MODELGW_WAIT_CLAIM);
    if (w == NULL) {
        ngx_modelgw_claim_free(mmcf->ledger, claim);
        return NGX_ERROR;
    }

    w->claim = claim;
    w->until = w->began + mmcf->cluster->wait + NGX_HTTP_MODELGW_WAIT_GRACE;

    ctx->state = NGX_HTTP_MODELGW_WAITING;

    return NGX_AGAIN;
}


ngx_int_t
ngx_http_modelgw_wait_place(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_msec_t                     until;
    ngx_http_modelgw_wait_t       *w;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    w = ctx->money.wait;

    if (w && w->kind == NGX_HTTP_MODELGW_WAIT_PLACE) {
        until = w->until;

        if ((ngx_msec_int_t) (ngx_current_msec - until) > 0) {
            return NGX_DECLINED;
        }

    } else {
        until = ngx_current_msec + mmcf->cluster->wait;
    }

    w = ngx_http_modelgw_wait_park(r, ctx, NGX_HTTP_MODELGW_WAIT_PLACE);
    if (w == NULL) {
        return NGX_ERROR;
    }

    w->until = until;

    ctx->state = NGX_HTTP_MODELGW_WAITING;

    return NGX_AGAIN;
}


ngx_uint_t
ngx_http_modelgw_wait_behind(ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_wait_t  *w;

    w = ctx->money.wait;

    return ngx_http_modelgw_wait_places
           && (w == NULL || w->kind != NGX_HTTP_MODELGW_WAIT_PLACE);
}


ngx_int_t
ngx_http_modelgw_wait_limit(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    if (ngx_http_modelgw_wait_park(r, ctx, NGX_HTTP_MODELGW_WAIT_LIMIT)
        == NULL)
    {
        return NGX_ERROR;
    }

    if (ctx->state == NGX_HTTP_MODELGW_READ) {
        ctx->state = NGX_HTTP_MODELGW_WAITING;
    }

    return NGX_AGAIN;
}


ngx_http_modelgw_wait_e
ngx_http_modelgw_wait_kind(ngx_http_modelgw_ctx_t *ctx)
{
    return ctx->money.wait->kind;
}


/* NULL: no memory */

static ngx_http_modelgw_wait_t *
ngx_http_modelgw_wait_park(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_wait_e kind)
{
    ngx_http_cleanup_t            *cln;
    ngx_http_modelgw_wait_t       *w;
    ngx_http_modelgw_main_conf_t  *mmcf;

    w = ctx->money.wait;

    if (w == NULL) {
        cln = ngx_http_cleanup_add(r, sizeof(ngx_http_modelgw_wait_t));
        if (cln == NULL) {
            return NULL;
        }

        mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

        w = cln->data;
        ngx_memzero(w, sizeof(ngx_http_modelgw_wait_t));

        w->request = r;
        w->ctx = ctx;
        w->ledger = mmcf->ledger;

        cln->handler = ngx_http_modelgw_wait_cleanup;

        ctx->money.wait = w;
    }

    w->kind = kind;
    w->began = ngx_current_msec;
    w->parked = 1;

    if (kind == NGX_HTTP_MODELGW_WAIT_PLACE) {
        ngx_http_modelgw_wait_places++;
    }

    ngx_http_modelgw_wait_timer();

    ngx_queue_insert_tail(&ngx_http_modelgw_waiting, &w->queue);

    r->write_event_handler = ngx_http_request_empty_handler;
    ngx_http_modelgw_abort_watch(r, ctx);

    return w;
}


static void
ngx_http_modelgw_wait_timer(void)
{
    ngx_event_t  *ev;

    ev = &ngx_http_modelgw_wait_event;

    if (ev->handler == NULL) {
        ngx_queue_init(&ngx_http_modelgw_waiting);

        /* debug messages of timers use a connection */

        ngx_http_modelgw_wait_connection.fd = (ngx_socket_t) -1;

        ev->handler = ngx_http_modelgw_wait_poll;
        ev->data = &ngx_http_modelgw_wait_connection;
    }

    if (!ev->timer_set) {
        ev->log = ngx_cycle->log;
        ngx_add_timer(ev, NGX_HTTP_MODELGW_WAIT_POLL);
    }
}


ngx_int_t
ngx_http_modelgw_wait_result(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_claim_t *result)
{
    ngx_http_modelgw_wait_t  *w;

    w = ctx->money.wait;

    if (!ngx_http_modelgw_wait_resolved(w)) {
        return NGX_AGAIN;
    }

    if (w->claim->state == NGX_MODELGW_CLAIM_ASKED) {
        ngx_modelgw_ledger_lock(w->ledger);
        ngx_modelgw_claim_end_locked(w->ledger, w->claim,
                                     NGX_MODELGW_CLAIM_SILENT);
        ngx_modelgw_ledger_unlock(w->ledger);
    }

    *result = *w->claim;

    ngx_http_modelgw_wait_end(w);

    ngx_modelgw_claim_free(w->ledger, w->claim);
    w->claim = NULL;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_modelgw_wait_resolved(ngx_http_modelgw_wait_t *w)
{
    switch (w->kind) {

    case NGX_HTTP_MODELGW_WAIT_LIMIT:
        return ngx_http_modelgw_limit_answered(w->ctx, w->ledger);

    case NGX_HTTP_MODELGW_WAIT_PLACE:

        if (ngx_modelgw_node(w->ledger)->waiting < NGX_MODELGW_CLAIMS) {
            return 1;
        }

        break;

    case NGX_HTTP_MODELGW_WAIT_CLAIM:

        if (__atomic_load_n(&w->claim->state, __ATOMIC_ACQUIRE)
            != NGX_MODELGW_CLAIM_ASKED)
        {
            return 1;
        }

        break;
    }

    return (ngx_msec_int_t) (ngx_current_msec - w->until) > 0;
}


/*
 * A request that is resumed may end others, such as streams of its connection:
 * those that are resolved are in a queue, from which their cleanups take them.
 */

static void
ngx_http_modelgw_wait_poll(ngx_event_t *ev)
{
    ngx_queue_t              *q, *next, resolved;
    ngx_http_modelgw_wait_t  *w;

    ngx_queue_init(&resolved);

    for (q = ngx_queue_head(&ngx_http_modelgw_waiting);
         q != ngx_queue_sentinel(&ngx_http_modelgw_waiting);
         q = next)
    {
        next = ngx_queue_next(q);
        w = ngx_queue_data(q, ngx_http_modelgw_wait_t, queue);

        if (ngx_http_modelgw_wait_resolved(w)) {
            ngx_queue_remove(q);
            ngx_queue_insert_tail(&resolved, q);
        }
    }

    while (!ngx_queue_empty(&resolved)) {
        q = ngx_queue_head(&resolved);

        ngx_http_modelgw_wait_resume(ngx_queue_data(q, ngx_http_modelgw_wait_t,
                                                    queue));
    }

    if (!ngx_queue_empty(&ngx_http_modelgw_waiting)) {
        ngx_http_modelgw_wait_timer();
    }
}


static void
ngx_http_modelgw_wait_resume(ngx_http_modelgw_wait_t *w)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = w->request;
    c = r->connection;

    ngx_http_modelgw_wait_end(w);

    ngx_http_set_log_request(c->log, r);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "modelgw wait: resumed, kind %d", w->kind);

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);

    ngx_http_run_posted_requests(c);
}


static void
ngx_http_modelgw_wait_end(ngx_http_modelgw_wait_t *w)
{
    if (!w->parked) {
        return;
    }

    w->parked = 0;

    ngx_queue_remove(&w->queue);

    if (w->kind == NGX_HTTP_MODELGW_WAIT_PLACE) {
        ngx_http_modelgw_wait_places--;
    }

    w->ctx->money.waited += ngx_current_msec - w->began;
}


static void
ngx_http_modelgw_wait_cleanup(void *data)
{
    ngx_http_modelgw_wait_t *w = data;

    ngx_http_modelgw_wait_end(w);

    if (w->claim) {
        ngx_modelgw_claim_free(w->ledger, w->claim);
        w->claim = NULL;
    }
}
