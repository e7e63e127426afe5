
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

#include "ngx_http_modelgw_ledger.h"
#include "ngx_http_modelgw_stream.h"


/* room for joined data up to this is kept for the next event */

#define NGX_HTTP_MODELGW_EVENT_KEEP  65536


static ngx_int_t ngx_http_modelgw_event_pass(ngx_http_modelgw_ctx_t *ctx,
    ngx_str_t *raw, off_t from, off_t to, ngx_uint_t borrowed);
static ngx_int_t ngx_http_modelgw_event_scan(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, off_t *from, off_t *to);


ngx_int_t
ngx_http_modelgw_event(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev)
{
    off_t                       from, to;
    ngx_int_t                   rc;
    ngx_uint_t                  kind;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;

    ngx_modelgw_repeat_forget(&st->repeat);
    st->text.last.data = NULL;

    if (st->translate) {
        return ngx_http_modelgw_translate_event(r, ctx, ev);
    }

    rc = ngx_http_modelgw_event_read(ctx, ev, &from, &to, &kind);
    if (rc != NGX_OK) {
        return rc;
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

    if (kind == NGX_MODELGW_DOC_OTHER
        && ngx_modelgw_repeat_keep(&st->repeat, ev, &st->text, from, to)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_event_pass(ctx, &ev->raw, from, to, ev->borrowed);
}


ngx_int_t
ngx_http_modelgw_event_repeats(ngx_http_modelgw_ctx_t *ctx, u_char **pos,
    u_char *last)
{
    size_t                       n;
    u_char                      *max;
    ngx_int_t                    rc;
    ngx_http_modelgw_stream_t   *st;
    ngx_modelgw_repeat_event_t   ev;

    st = ctx->stream;

    if (!ngx_modelgw_sse_between(&st->sse)) {
        return NGX_OK;
    }

    n = 0;
    rc = NGX_OK;

    while (rc == NGX_OK) {
        max = *pos + ngx_min((size_t) (last - *pos), st->sse.max_event);

        if (ngx_modelgw_repeat_next(&st->repeat, pos, max, &ev) != NGX_OK) {
            break;
        }

        st->emit.hint = last - *pos;

        if (ctx->call) {
            n += st->repeat.beside + ngx_modelgw_text_len(&ev.text);
        }

        rc = st->translate
             ? ngx_http_modelgw_translate_repeat(ctx, &ev.text)
             : ngx_http_modelgw_event_pass(ctx, &ev.raw, ev.from, ev.to, 1);
    }

    if (n) {
        ngx_http_modelgw_settle_seen(ctx, n);
    }

    return rc;
}


/* as it came, with the model id mapped back */

static ngx_int_t
ngx_http_modelgw_event_pass(ngx_http_modelgw_ctx_t *ctx, ngx_str_t *raw,
    off_t from, off_t to, ngx_uint_t borrowed)
{
    ngx_http_modelgw_emit_t  *em;

    em = &ctx->stream->emit;

    return to ? ngx_http_modelgw_emit_replaced(em, raw, from, to,
                                               &ctx->service_json, borrowed)
              : ngx_http_modelgw_emit(em, raw->data, raw->len, borrowed);
}


ngx_int_t
ngx_http_modelgw_event_read(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, off_t *from, off_t *to, ngx_uint_t *kind)
{
    ngx_str_t  data;

    switch (ngx_http_modelgw_event_scan(ctx, ev, from, to)) {

    case NGX_OK:
        *kind = ngx_modelgw_usage_merge(&ctx->usage, ctx->protocol,
                                        ctx->stream->scan);

        if (ngx_http_modelgw_event_data(ctx->stream, ev, &data) != NGX_OK) {
            return NGX_ERROR;
        }

        ngx_http_modelgw_event_seen(ctx, &data);

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
ngx_http_modelgw_event_data(ngx_http_modelgw_stream_t *st,
    ngx_modelgw_sse_event_t *ev, ngx_str_t *data)
{
    u_char      *state;
    ngx_str_t    line, *joined;
    ngx_pool_t  *pool;

    state = NULL;
    ngx_str_null(data);

    if (ngx_modelgw_sse_data(ev, &state, data) != NGX_OK
        || ngx_modelgw_sse_data(ev, &state, &line) != NGX_OK)
    {
        return NGX_OK;
    }

    pool = st->emit.pool;
    joined = &st->joined;

    if (st->room < ev->raw.len || st->room > NGX_HTTP_MODELGW_EVENT_KEEP) {

        if (joined->data) {
            (void) ngx_pfree(pool, joined->data);
        }

        st->room = 0;
        joined->data = ngx_palloc(pool, 2 * ev->raw.len);
        if (joined->data == NULL) {
            return NGX_ERROR;
        }

        st->room = 2 * ev->raw.len;
    }

    ngx_memcpy(joined->data, data->data, data->len);
    joined->len = data->len;

    do {
        joined->data[joined->len++] = LF;
        ngx_memcpy(joined->data + joined->len, line.data, line.len);
        joined->len += line.len;

    } while (ngx_modelgw_sse_data(ev, &state, &line) == NGX_OK);

    *data = *joined;

    return NGX_OK;
}


void
ngx_http_modelgw_event_seen(ngx_http_modelgw_ctx_t *ctx, ngx_str_t *data)
{
    ngx_modelgw_text_t  *text;

    text = &ctx->stream->text;

    ngx_modelgw_text(text, data->data, data->len);

    if (ctx->protocol == NGX_MODELGW_CHAT) {
        ctx->finished += text->finished;
        ctx->finishing = (ctx->finished >= ctx->choices);
    }

    ngx_http_modelgw_settle_seen(ctx, text->n);
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
        ngx_http_modelgw_settle_status(ctx, ctx->error.status);
        ctx->stream->state = NGX_HTTP_MODELGW_STREAM_REFUSED;
        return NGX_OK;
    }

    ctx->stream->state = NGX_HTTP_MODELGW_STREAM_FAILED;

    return ngx_http_modelgw_event_frame(r, ctx);
}
