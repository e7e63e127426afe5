
/*
 * Silent streams: a model that thinks may send nothing for minutes, while
 * clients and proxies close a connection without a byte, many after 30 to 120
 * seconds, node's fetch after 300.
 *
 *     held     the upstream has sent its header, but no event: ours is held, so
 *              that an error can be the status.  Two intervals after the call
 *              was sent upstream it leaves with a keep-alive; from then on an
 *              error is an event
 *     begun    a keep-alive is sent when nothing was sent for an interval
 *
 * It is a comment in a chat stream (WHATWG HTML, 9.2.6), the "ping" event of
 * the messages API in a messages stream, and an event "keepalive" in responses,
 * where Codex counts events only.  The SDKs of responses raise on any event
 * before response.created, so it is a comment there until an event was sent.
 * Events are passed on complete, so that between two calls of the body filter
 * the output is between two events.
 * Nothing is added while output waits for the client: send_timeout works as
 * before.
 *
 * The timer is not set again for each event.  It fires once an interval, and is
 * then set to what is left of one since the last output.
 *
 * A keep-alive is no part of the answer: it is not its first byte, and not
 * charged.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_stream.h"


static void ngx_http_modelgw_keepalive_handler(ngx_event_t *ev);
static ngx_msec_int_t ngx_http_modelgw_keepalive_left(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_msec_t interval);
static ngx_int_t ngx_http_modelgw_keepalive_send(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_str_t *ngx_http_modelgw_keepalive_text(ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_keepalive_cleanup(void *data);


static ngx_str_t  ngx_http_modelgw_keepalive_chat =
    ngx_string(": keep-alive\n\n");

static ngx_str_t  ngx_http_modelgw_keepalive_messages =
    ngx_string("event: ping\ndata: {\"type\":\"ping\"}\n\n");

static ngx_str_t  ngx_http_modelgw_keepalive_responses =
    ngx_string("event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n");


ngx_int_t
ngx_http_modelgw_keepalive_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_event_t                  *ev;
    ngx_msec_int_t                left;
    ngx_http_cleanup_t           *cln;
    ngx_http_modelgw_loc_conf_t  *mlcf;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    if (mlcf->keepalive == 0) {
        return NGX_OK;
    }

    cln = ngx_http_cleanup_add(r, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    ev = &ctx->answer.stream->keepalive;

    cln->handler = ngx_http_modelgw_keepalive_cleanup;
    cln->data = ev;

    ev->handler = ngx_http_modelgw_keepalive_handler;
    ev->data = r;
    ev->log = r->connection->log;
    ev->cancelable = 1;

    left = ngx_http_modelgw_keepalive_left(r, ctx, mlcf->keepalive);

    ngx_add_timer(ev, (ngx_msec_t) ngx_max(left, 0));

    return NGX_OK;
}


static void
ngx_http_modelgw_keepalive_handler(ngx_event_t *ev)
{
    ngx_msec_int_t                left;
    ngx_connection_t             *c;
    ngx_http_request_t           *r;
    ngx_http_modelgw_ctx_t       *ctx;
    ngx_http_modelgw_loc_conf_t  *mlcf;

    r = ev->data;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ctx = ngx_http_modelgw_get_ctx(r);

    /* the stream has ended, or the client has left */

    if (ctx->answer.stream->state != NGX_HTTP_MODELGW_STREAM_OPEN
        || ctx->upstream.rc != NGX_AGAIN
        || ctx->abort)
    {
        return;
    }

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    left = ngx_http_modelgw_keepalive_left(r, ctx, mlcf->keepalive);

    if (left <= 0) {

        if (ngx_http_modelgw_keepalive_send(r, ctx) != NGX_OK) {
            ngx_http_modelgw_abort_cut(r);
            ngx_http_run_posted_requests(c);
            return;
        }

        left = mlcf->keepalive;
    }

    ngx_add_timer(ev, (ngx_msec_t) left);
}


/*
 * Milliseconds until a keep-alive is due; 0 or less if it is.  At most an
 * interval, since the first event may make "held" "begun" in that time.
 */

static ngx_msec_int_t
ngx_http_modelgw_keepalive_left(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_msec_t interval)
{
    ngx_msec_t      due;
    ngx_msec_int_t  left;

    due = ctx->answer.header_held ? r->upstream->start_time + 2 * interval
                                  : ctx->answer.stream->passed + interval;

    left = (ngx_msec_int_t) (due - ngx_current_msec);

    return ngx_min(left, (ngx_msec_int_t) interval);
}


/* NGX_OK; NGX_ERROR: the caller ends the request */

static ngx_int_t
ngx_http_modelgw_keepalive_send(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_str_t                  *text;
    ngx_connection_t           *c;
    ngx_http_modelgw_stream_t  *st;

    c = r->connection;
    st = ctx->answer.stream;

    if (st->emit.busy || c->buffered) {
        return NGX_OK;
    }

    text = ngx_http_modelgw_keepalive_text(ctx);

    ngx_http_modelgw_emit_begin(&st->emit, NULL);

    rc = ngx_http_modelgw_translate_ping(ctx);

    if (rc == NGX_DECLINED) {
        rc = ngx_http_modelgw_emit(&st->emit, text->data, text->len, 1);
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_modelgw_stream_output(r, ctx, NULL);

    if (rc == NGX_ERROR || rc > NGX_OK) {
        return NGX_ERROR;
    }

    /* nginx waits for the upstream only: have it wait for the client, too */

    if (c->buffered) {
        ngx_post_event(c->write, &ngx_posted_events);
    }

    return NGX_OK;
}


static ngx_str_t *
ngx_http_modelgw_keepalive_text(ngx_http_modelgw_ctx_t *ctx)
{
    switch (ctx->request.endpoint->protocol) {

    case NGX_MODELGW_MESSAGES:
        return &ngx_http_modelgw_keepalive_messages;

    case NGX_MODELGW_RESPONSES:
        return ctx->answer.stream->begun ? &ngx_http_modelgw_keepalive_responses
                                         : &ngx_http_modelgw_keepalive_chat;

    default: /* NGX_MODELGW_CHAT */
        return &ngx_http_modelgw_keepalive_chat;
    }
}


static void
ngx_http_modelgw_keepalive_cleanup(void *data)
{
    ngx_event_t *ev = data;

    if (ev->timer_set) {
        ngx_del_timer(ev);
    }
}
