
/*
 * An upstream's event stream: each event is passed on as it came, with the
 * model id mapped back, as soon as it is whole.
 *
 *     OPEN      events come and go
 *     COMPLETE  the protocol's last event has passed ("[DONE]", message_stop)
 *     FAILED    an error event of the upstream has passed
 *     BROKEN    the upstream broke off, or sent what is no event of the
 *               protocol; an error frame of ours has passed
 *
 * What comes after OPEN is dropped.  A stream that is COMPLETE or FAILED ends
 * with last_buf; one that is BROKEN ends without, and so never looks whole: no
 * last chunk, or RST_STREAM, or a closed connection behind the error frame.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_emit.h"


typedef enum {
    NGX_HTTP_MODELGW_STREAM_OPEN = 0,
    NGX_HTTP_MODELGW_STREAM_COMPLETE,
    NGX_HTTP_MODELGW_STREAM_FAILED,
    NGX_HTTP_MODELGW_STREAM_BROKEN
} ngx_http_modelgw_stream_state_e;


struct ngx_http_modelgw_stream_s {
    ngx_http_modelgw_stream_state_e   state;

    ngx_modelgw_sse_t                 sse;
    ngx_modelgw_scan_conf_t           scan_conf;
    ngx_modelgw_scan_t               *scan;

    ngx_http_modelgw_emit_t           emit;
};


static ngx_int_t ngx_http_modelgw_stream_feed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_buf_t *b);
static ngx_int_t ngx_http_modelgw_stream_event(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev);
static ngx_int_t ngx_http_modelgw_stream_scan(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, off_t *from, off_t *to);
static ngx_int_t ngx_http_modelgw_stream_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev);
static ngx_int_t ngx_http_modelgw_stream_break(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, const char *reason);
static ngx_int_t ngx_http_modelgw_stream_frame(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_stream_end(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_stream_output(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in);


ngx_int_t
ngx_http_modelgw_stream_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_stream_t     *st;
    ngx_http_modelgw_main_conf_t  *mmcf;

    st = ngx_pcalloc(r->pool, sizeof(ngx_http_modelgw_stream_t));
    if (st == NULL) {
        return NGX_ERROR;
    }

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    ngx_modelgw_usage_conf(&st->scan_conf, ctx->endpoint->protocol,
                           mmcf->skip);

    st->scan = ngx_modelgw_scan_create(r->pool, &st->scan_conf);
    if (st->scan == NULL) {
        return NGX_ERROR;
    }

    ngx_modelgw_sse_init(&st->sse, r->pool, NGX_MODELGW_SSE_MAX_EVENT);

    st->emit.pool = r->pool;

    ctx->stream = st;

    ngx_http_clear_content_length(r);

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_stream_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_uint_t                  last;
    ngx_chain_t                *cl;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;

    ngx_http_modelgw_emit_begin(&st->emit);

    last = (in && ctx->upstream_rc != NGX_AGAIN);

    for (cl = in; cl; cl = cl->next) {

        if (ngx_http_modelgw_stream_feed(r, ctx, cl->buf) != NGX_OK) {
            return NGX_ERROR;
        }

        if (cl->buf->last_buf) {
            last = 1;
        }
    }

    if (last && ngx_http_modelgw_stream_end(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_stream_output(r, ctx, in);
}


static ngx_int_t
ngx_http_modelgw_stream_feed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_buf_t *b)
{
    u_char                     *p;
    ngx_int_t                   rc;
    ngx_modelgw_sse_event_t     ev;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;
    p = b->pos;

    while (st->state == NGX_HTTP_MODELGW_STREAM_OPEN) {

        rc = ngx_modelgw_sse_next(&st->sse, &p, b->last, &ev);

        if (rc == NGX_AGAIN) {
            break;
        }

        st->emit.hint = b->last - p;

        if (rc == NGX_OK) {
            rc = ngx_http_modelgw_stream_event(r, ctx, &ev);
        }

        if (rc == NGX_DECLINED) {
            rc = ngx_http_modelgw_stream_break(r, ctx, NGX_HTTP_BAD_GATEWAY,
                                               "it has an event that is "
                                               "too long, or not JSON");
        }

        if (rc != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ngx_http_modelgw_emit_read(&st->emit, b);

    return NGX_OK;
}


/*
 *     NGX_OK        passed on, or dropped on purpose
 *     NGX_DECLINED  no event of the protocol
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_http_modelgw_stream_event(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev)
{
    off_t                       from, to;
    ngx_int_t                   rc;
    ngx_uint_t                  kind;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;

    rc = ngx_http_modelgw_stream_scan(ctx, ev, &from, &to);

    switch (rc) {

    case NGX_OK:
        kind = ngx_modelgw_usage_merge(&ctx->usage, ctx->endpoint->protocol,
                                       st->scan);
        break;

    case NGX_DONE:
        kind = NGX_MODELGW_DOC_STOP;
        break;

    case NGX_AGAIN:
        kind = NGX_MODELGW_DOC_OTHER;
        break;

    default: /* NGX_DECLINED */
        return rc;
    }

    if (kind == NGX_MODELGW_DOC_ERROR) {
        return ngx_http_modelgw_stream_error(r, ctx, ev);
    }

    if (kind == NGX_MODELGW_DOC_USAGE && !ctx->usage_asked) {
        return NGX_OK;
    }

    if (kind == NGX_MODELGW_DOC_STOP) {
        st->state = NGX_HTTP_MODELGW_STREAM_COMPLETE;
    }

    if (to == 0) {
        return ngx_http_modelgw_emit(&st->emit, ev->raw.data, ev->raw.len,
                                     ev->borrowed);
    }

    st->emit.hint += ev->raw.len + ctx->service_json.len;

    if (ngx_http_modelgw_emit(&st->emit, ev->raw.data, from, ev->borrowed)
        != NGX_OK
        || ngx_http_modelgw_emit(&st->emit, ctx->service_json.data,
                                 ctx->service_json.len, 0)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_emit(&st->emit, ev->raw.data + to,
                                 ev->raw.len - to, ev->borrowed);
}


/*
 * Scans an event's data; *from and *to are the model id's span in its raw
 * bytes, 0 if it has none.
 *     NGX_OK        it is JSON
 *     NGX_DONE      it is "[DONE]", the last event of a chat stream
 *     NGX_AGAIN     there is none: a comment, or an event of its name only
 *     NGX_DECLINED  it is something else
 */

static ngx_int_t
ngx_http_modelgw_stream_scan(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, off_t *from, off_t *to)
{
    off_t                fed, f, t;
    size_t               len;
    u_char              *state;
    ngx_str_t            line;
    ngx_uint_t           protocol;
    ngx_modelgw_scan_t  *scan;

    scan = ctx->stream->scan;
    protocol = ctx->endpoint->protocol;

    ngx_modelgw_scan_reset(scan);

    *from = 0;
    *to = 0;
    len = 0;
    state = NULL;

    for (fed = 0;
         ngx_modelgw_sse_data(ev, &state, &line) == NGX_OK;
         fed += line.len + 1)
    {
        if (fed == 0 && protocol == NGX_MODELGW_CHAT
            && line.len == 6 && ngx_memcmp(line.data, "[DONE]", 6) == 0)
        {
            return NGX_DONE;
        }

        len += line.len;

        /* lines are joined by LF */

        if ((fed && ngx_modelgw_scan_feed(scan, (u_char *) "\n", 1) != NGX_OK)
            || ngx_modelgw_scan_feed(scan, line.data, line.len) != NGX_OK)
        {
            return NGX_DECLINED;
        }

        /* a token has no line end inside: its place in this line is certain */

        if (*to == 0 && ngx_modelgw_usage_model(scan, protocol, &f, &t)
                        == NGX_OK)
        {
            *from = f - fed + (line.data - ev->raw.data);
            *to = t - fed + (line.data - ev->raw.data);
        }
    }

    return len ? ngx_modelgw_scan_done(scan) : NGX_AGAIN;
}


/* an error event: its text is scrubbed, its shape is the protocol's own */

static ngx_int_t
ngx_http_modelgw_stream_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev)
{
    u_char     *state;
    ngx_str_t   data, line;

    data.len = 0;
    data.data = ngx_pnalloc(r->pool, ev->raw.len);
    if (data.data == NULL) {
        return NGX_ERROR;
    }

    state = NULL;

    while (ngx_modelgw_sse_data(ev, &state, &line) == NGX_OK) {
        ngx_memcpy(data.data + data.len, line.data, line.len);
        data.len += line.len;
    }

    if (ngx_http_modelgw_upstream_error(r, ctx, NGX_HTTP_OK, &data)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ctx->stream->state = NGX_HTTP_MODELGW_STREAM_FAILED;

    return ngx_http_modelgw_stream_frame(r, ctx);
}


static ngx_int_t
ngx_http_modelgw_stream_break(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, const char *reason)
{
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "upstream's stream cannot be passed on: %s", reason);

    ngx_modelgw_error_nginx(status, 1, &ctx->error);

    ctx->stream->state = NGX_HTTP_MODELGW_STREAM_BROKEN;

    if (ctx->upstream_rc == NGX_AGAIN) {
        ngx_http_modelgw_upstream_stop(r);
    }

    /* with nothing sent yet it can be a real status */

    if (ctx->header_held && ctx->stream->emit.out == NULL) {
        return NGX_OK;
    }

    r->keepalive = 0;

    return ngx_http_modelgw_stream_frame(r, ctx);
}


static ngx_int_t
ngx_http_modelgw_stream_frame(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_str_t  frame;

    if (ngx_modelgw_error_render(r->pool, &ctx->error,
                                 (ctx->endpoint->protocol == NGX_MODELGW_CHAT)
                                     ? NGX_MODELGW_ERROR_CHAT
                                     : NGX_MODELGW_ERROR_MESSAGES,
                                 &frame)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_emit(&ctx->stream->emit, frame.data, frame.len, 0);
}


static ngx_int_t
ngx_http_modelgw_stream_end(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_modelgw_sse_event_t     ev;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;
    rc = NGX_OK;

    if (st->state == NGX_HTTP_MODELGW_STREAM_OPEN
        && ngx_modelgw_sse_rest(&st->sse, &ev) == NGX_OK && ev.has_data)
    {
        rc = ngx_http_modelgw_stream_event(r, ctx, &ev);

        /* the blank line that never came */

        if (rc == NGX_OK && st->state == NGX_HTTP_MODELGW_STREAM_COMPLETE) {
            rc = ngx_http_modelgw_emit(&st->emit, (u_char *) "\n\n", 2, 0);
        }
    }

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (st->state == NGX_HTTP_MODELGW_STREAM_OPEN) {
        return ngx_http_modelgw_stream_break(r, ctx,
                   (ctx->upstream_rc == NGX_HTTP_GATEWAY_TIME_OUT)
                       ? NGX_HTTP_GATEWAY_TIME_OUT : NGX_HTTP_BAD_GATEWAY,
                   "it ended before its last event");
    }

    if (st->state == NGX_HTTP_MODELGW_STREAM_BROKEN) {
        return NGX_OK;
    }

    return ngx_http_modelgw_emit_last(&st->emit);
}


static ngx_int_t
ngx_http_modelgw_stream_output(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_int_t                   rc;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;

    if (ctx->header_held) {

        if (st->emit.out == NULL) {
            return (st->state == NGX_HTTP_MODELGW_STREAM_BROKEN)
                   ? ngx_http_modelgw_filter_error(r, ctx) : NGX_OK;
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

    return ngx_http_modelgw_emit_send(r, &st->emit);
}
