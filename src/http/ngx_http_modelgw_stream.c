
/*
 * An upstream's event stream: each event is passed on as it came, with the
 * model id mapped back, as soon as it is whole.
 *
 *     OPEN      events come and go
 *     COMPLETE  the protocol's last event has passed ("[DONE]", message_stop)
 *     REFUSED   the first event was an error: it becomes the answer's status
 *     FAILED    an error event of the upstream has passed
 *     BROKEN    the upstream broke off, or sent what is no event of the
 *               protocol; an error frame of ours has passed
 *
 * What comes after OPEN is dropped.  A stream that is COMPLETE or FAILED ends
 * with last_buf at once.  One that is BROKEN ends without, and so never looks
 * whole: no last chunk, or RST_STREAM, or a closed connection.
 *
 * That end follows the error frame after a moment: clients that find both at
 * once, as node's fetch does, drop the frame.  The call is settled and the
 * upstream's connection closed by then; what waits is the request, in the hands
 * of ngx_http_writer():
 *
 *     flush     a bit of r->buffered is ours, by which nginx does not end the
 *               request; what it has still to send is bounded by send_timeout
 *     grace     all is sent; the timer is that of the write event, "delayed",
 *               as for limit_rate
 *     end       our bit is gone: ngx_http_writer() finalizes the request
 *
 * A client that leaves in that time, or a worker that has to stop, ends it as
 * any response that is still being sent.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_ledger.h"
#include "ngx_http_modelgw_headers.h"
#include "ngx_http_modelgw_stream.h"


/* for the upstream to end its answer, behind the last event */

#define NGX_HTTP_MODELGW_STREAM_LINGER    1000

/* from the error frame to the unclean end */

#define NGX_HTTP_MODELGW_STREAM_GRACE     200

/* in r->buffered: no filter of nginx's has this bit there */

#define NGX_HTTP_MODELGW_STREAM_BUFFERED  0x08


static ngx_modelgw_scan_t *ngx_http_modelgw_stream_scan(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_uint_t protocol);
static ngx_int_t ngx_http_modelgw_stream_feed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_buf_t *b);
static ngx_int_t ngx_http_modelgw_stream_break(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, const char *reason);
static ngx_int_t ngx_http_modelgw_stream_end(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_stream_rest(ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_stream_last(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_stream_grace(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


ngx_int_t
ngx_http_modelgw_stream_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_stream_t     *st;
    ngx_http_modelgw_loc_conf_t   *mlcf;
    ngx_http_modelgw_main_conf_t  *mmcf;

    st = ngx_pcalloc(r->pool, sizeof(ngx_http_modelgw_stream_t));
    if (st == NULL) {
        return NGX_ERROR;
    }

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);
    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    st->scan = ngx_http_modelgw_stream_scan(mmcf, ctx->protocol);
    if (st->scan == NULL) {
        return NGX_ERROR;
    }

    ngx_modelgw_sse_init(&st->sse, r->pool, mlcf->max_event_size);
    ngx_modelgw_repeat_init(&st->repeat, r->pool, mmcf->skip,
                            mlcf->max_event_size);

    st->emit.pool = r->pool;

    ctx->stream = st;

    ngx_http_clear_content_length(r);

    if (ctx->translate
        && ngx_http_modelgw_translate_stream_init(r, ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_keepalive_init(r, ctx);
}


/* events are scanned when they are whole: one scanner serves all streams */

static ngx_modelgw_scan_t *
ngx_http_modelgw_stream_scan(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_uint_t protocol)
{
    ngx_modelgw_scan_t  **scan;

    scan = &ngx_http_modelgw_plan(mmcf->scans, protocol);

    if (*scan == NULL) {
        *scan = ngx_modelgw_scan_make(ngx_cycle->pool,
                                      ngx_http_modelgw_plan(mmcf->plans,
                                                            protocol));
    }

    return *scan;
}


ngx_int_t
ngx_http_modelgw_stream_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_int_t                   rc;
    ngx_uint_t                  last;
    ngx_chain_t                *cl;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;

    if (st->grace) {
        r->buffered &= ~NGX_HTTP_MODELGW_STREAM_BUFFERED;
        return NGX_OK;
    }

    ngx_http_modelgw_emit_begin(&st->emit, in);

    last = (in && ctx->upstream_rc != NGX_AGAIN);

    for (cl = in; cl; cl = cl->next) {

        if (ngx_http_modelgw_stream_feed(r, ctx, cl->buf) != NGX_OK) {
            return NGX_ERROR;
        }

        if (cl->buf->last_buf) {
            last = 1;
        }
    }

    if (last) {
        if (ngx_http_modelgw_stream_end(r, ctx) != NGX_OK) {
            return NGX_ERROR;
        }

        if (st->state == NGX_HTTP_MODELGW_STREAM_BROKEN) {
            ngx_http_modelgw_settle(r, ctx);
        }
    }

    if ((st->state == NGX_HTTP_MODELGW_STREAM_COMPLETE
         || st->state == NGX_HTTP_MODELGW_STREAM_FAILED)
        && ngx_http_modelgw_stream_last(r, ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (st->emit.out && !st->begun) {
        st->begun = 1;

        if (ctx->abort == NULL) {
            ngx_http_modelgw_answered(r, ctx);
        }
    }

    rc = ngx_http_modelgw_stream_output(r, ctx, in);

    if (st->state == NGX_HTTP_MODELGW_STREAM_BROKEN && rc != NGX_ERROR) {
        ngx_http_modelgw_stream_grace(r, ctx);
    }

    return rc;
}


static ngx_int_t
ngx_http_modelgw_stream_feed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_buf_t *b)
{
    u_char                     *p;
    ngx_int_t                   rc;
    const char                 *reason;
    ngx_modelgw_sse_event_t     ev;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;
    p = b->pos;

    ngx_http_modelgw_emit_at(&st->emit, b);

    if (st->ended && p != b->last) {

        /* it was to end by now: it may go on like this for ever */

        ngx_http_modelgw_upstream_stop(r);
    }

    while (st->state == NGX_HTTP_MODELGW_STREAM_OPEN) {

        reason = "an event is none of the protocol";

        rc = ngx_http_modelgw_event_repeats(ctx, &p, b->last);

        if (rc == NGX_OK) {
            rc = ngx_modelgw_sse_next(&st->sse, &p, b->last, &ev);

            if (rc == NGX_AGAIN) {
                break;
            }

            if (rc == NGX_DECLINED) {
                reason = "an event is longer than \"modelgw_max_event_size\"";
            }
        }

        if (rc == NGX_OK) {
            st->emit.hint = b->last - p + st->emit.ahead;

            rc = ngx_http_modelgw_event(r, ctx, &ev);
        }

        if (rc == NGX_DECLINED) {
            ngx_modelgw_error_nginx(NGX_HTTP_BAD_GATEWAY, 1, &ctx->error);

            rc = ngx_http_modelgw_stream_break(r, ctx, reason);
        }

        if (rc != NGX_OK) {
            return NGX_ERROR;
        }
    }

    /* what is still to come is not looked at: it may go on for ever */

    if (st->state == NGX_HTTP_MODELGW_STREAM_REFUSED
        && ctx->upstream_rc == NGX_AGAIN)
    {
        ngx_http_modelgw_upstream_stop(r);
    }

    ngx_http_modelgw_emit_read(&st->emit, b);

    return NGX_OK;
}


/* ctx->error is set */

static ngx_int_t
ngx_http_modelgw_stream_break(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, const char *reason)
{
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "upstream's stream cannot be passed on: %s", reason);

    ctx->stream->state = NGX_HTTP_MODELGW_STREAM_BROKEN;

    if (ctx->upstream_rc == NGX_AGAIN) {
        ngx_http_modelgw_upstream_stop(r);
    }

    /* with nothing sent yet it can be a real status */

    if (ctx->header_held && ctx->stream->emit.out == NULL) {
        return NGX_OK;
    }

    r->keepalive = 0;

    return ngx_http_modelgw_event_frame(r, ctx);
}


/* the upstream has ended, in whatever way */

static ngx_int_t
ngx_http_modelgw_stream_end(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;

    if (st->state != NGX_HTTP_MODELGW_STREAM_OPEN) {
        return NGX_OK;
    }

    rc = st->translate ? ngx_http_modelgw_translate_rest(r, ctx)
                       : ngx_http_modelgw_stream_rest(ctx);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (ctx->upstream_rc == NGX_HTTP_GATEWAY_TIME_OUT) {
        ngx_modelgw_error_nginx(NGX_HTTP_GATEWAY_TIME_OUT, 1, &ctx->error);

    } else if (ctx->translate) {
        ngx_modelgw_error_truncated(&ctx->error);

    } else {
        ngx_modelgw_error_nginx(NGX_HTTP_BAD_GATEWAY, 1, &ctx->error);
    }

    return ngx_http_modelgw_stream_break(r, ctx,
                                         "it ended before its last event");
}


/*
 * An event without its blank line is none (WHATWG HTML, 9.2.6); we have it
 * count if it is the last one, and complete it.
 *     NGX_OK        so it was
 *     NGX_DECLINED  the last event has not come
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_http_modelgw_stream_rest(ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_uint_t                  kind;
    ngx_modelgw_cut_t           model;
    ngx_modelgw_sse_event_t     ev;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;

    if (ngx_modelgw_sse_rest(&st->sse, &ev) != NGX_OK) {
        return NGX_DECLINED;
    }

    rc = ngx_http_modelgw_event_read(ctx, &ev, &model, &kind);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc != NGX_OK || kind != NGX_MODELGW_DOC_STOP) {
        return NGX_DECLINED;
    }

    st->state = NGX_HTTP_MODELGW_STREAM_COMPLETE;

    if (ngx_http_modelgw_emit(&st->emit, ev.raw.data, ev.raw.len, 0)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_emit(&st->emit, (u_char *) "\n\n", 2, 0);
}


/*
 * The client's answer ends with the protocol's last event: clients wait for the
 * end, not for the event.  The upstream is left a moment to end its own, so
 * that its connection can be used again.
 */

static ngx_int_t
ngx_http_modelgw_stream_last(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_upstream_t        *u;
    ngx_http_upstream_conf_t   *conf;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;

    if (st->ended) {
        return NGX_OK;
    }

    st->ended = 1;
    ctx->complete = (st->state == NGX_HTTP_MODELGW_STREAM_COMPLETE);
    ngx_http_modelgw_settle(r, ctx);

    u = r->upstream;

    if (u->length != 0) {
        conf = ngx_palloc(r->pool, sizeof(ngx_http_upstream_conf_t));
        if (conf == NULL) {
            return NGX_ERROR;
        }

        *conf = *u->conf;
        conf->read_timeout = ngx_min(conf->read_timeout,
                                     NGX_HTTP_MODELGW_STREAM_LINGER);
        u->conf = conf;
    }

    return ngx_http_modelgw_emit_last(&st->emit);
}


ngx_int_t
ngx_http_modelgw_stream_output(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_int_t                   rc;
    ngx_str_t                   value;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;

    if (ctx->header_held) {

        if (st->emit.out == NULL) {
            return (st->state == NGX_HTTP_MODELGW_STREAM_OPEN)
                   ? NGX_OK : ngx_http_modelgw_filter_error(r, ctx);
        }

        /* for an nginx in front of this one, which would collect events */

        ngx_str_set(&value, "no");

        if (ngx_http_modelgw_headers_add(r, "X-Accel-Buffering", &value)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        rc = ngx_http_modelgw_filter_header(r, ctx);

        if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
            return rc;
        }
    }

    /* nginx asks with NULL for what is still to be sent */

    if (st->emit.out == NULL && st->emit.busy == NULL && in != NULL) {
        return NGX_OK;
    }

    st->passed = ngx_current_msec;

    return ngx_http_modelgw_emit_send(r, &st->emit);
}


/* the stream is broken, and its error frame passed on: see the states above */

static void
ngx_http_modelgw_stream_grace(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_connection_t  *c;

    c = r->connection;

    /* nginx has not ended the upstream yet; it became a status; the client has
       left */

    if (ctx->upstream_rc == NGX_AGAIN
        || ctx->mode != NGX_HTTP_MODELGW_STREAM
        || ctx->abort)
    {
        return;
    }

    r->buffered |= NGX_HTTP_MODELGW_STREAM_BUFFERED;

    if (c->buffered) {
        return;
    }

    ctx->stream->grace = 1;

    c->write->delayed = 1;
    ngx_add_timer(c->write, NGX_HTTP_MODELGW_STREAM_GRACE);
}
