
/*
 * One event of an upstream's stream: what it is, and what the client gets of
 * it.
 *
 * An event is scanned where it lies, line by line of its data, so that the
 * place of the model id is known in its raw bytes; what is passed on are these.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_stream.h"


static ngx_int_t ngx_http_modelgw_event_scan(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, off_t *from, off_t *to);


ngx_int_t
ngx_http_modelgw_event(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev)
{
    off_t                       from, to;
    ngx_uint_t                  kind;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;

    if (st->translate) {
        return ngx_http_modelgw_translate_event(r, ctx, ev);
    }

    if (ngx_http_modelgw_event_read(ctx, ev, &from, &to, &kind) != NGX_OK) {
        return NGX_DECLINED;
    }

    if (kind == NGX_MODELGW_DOC_ERROR) {
        return ngx_http_modelgw_event_error(r, ctx, ev);
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


ngx_int_t
ngx_http_modelgw_event_read(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, off_t *from, off_t *to, ngx_uint_t *kind)
{
    switch (ngx_http_modelgw_event_scan(ctx, ev, from, to)) {

    case NGX_OK:
        *kind = ngx_modelgw_usage_merge(&ctx->usage, ctx->protocol,
                                        ctx->stream->scan);
        return NGX_OK;

    case NGX_DONE:
        *kind = NGX_MODELGW_DOC_STOP;
        return NGX_OK;

    case NGX_AGAIN:
        *kind = NGX_MODELGW_DOC_OTHER;
        return NGX_OK;

    default: /* NGX_DECLINED */
        return NGX_DECLINED;
    }
}


ngx_int_t
ngx_http_modelgw_event_frame(ngx_http_request_t *r,
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


/*
 * Scans an event's data; *from and *to are the model id's span in its raw
 * bytes, 0 if it has none.
 *     NGX_OK        it is JSON
 *     NGX_DONE      it is "[DONE]", the last event of a chat stream
 *     NGX_AGAIN     there is none: a comment, or an event of its name only
 *     NGX_DECLINED  it is something else
 */

static ngx_int_t
ngx_http_modelgw_event_scan(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, off_t *from, off_t *to)
{
    off_t                fed, f, t;
    size_t               len;
    u_char              *state;
    ngx_str_t            line;
    ngx_uint_t           protocol;
    ngx_modelgw_scan_t  *scan;

    scan = ctx->stream->scan;
    protocol = ctx->protocol;

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


/* its text is scrubbed, its shape is the protocol's own */

ngx_int_t
ngx_http_modelgw_event_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev)
{
    u_char      *state;
    ngx_str_t    data, line;
    ngx_uint_t   early;

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

    /* with nothing sent yet it can be a real status */

    early = (ctx->header_held && ctx->stream->emit.out == NULL);

    if (ngx_http_modelgw_upstream_error(r, ctx, NGX_HTTP_OK,
                                        !early && !ctx->translate, &data)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (early) {
        ctx->stream->state = NGX_HTTP_MODELGW_STREAM_REFUSED;
        return NGX_OK;
    }

    ctx->stream->state = NGX_HTTP_MODELGW_STREAM_FAILED;

    return ngx_http_modelgw_event_frame(r, ctx);
}
