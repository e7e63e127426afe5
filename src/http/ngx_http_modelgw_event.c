
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
    ngx_str_t *raw, ngx_modelgw_cut_t *cut, ngx_uint_t borrowed);
static ngx_int_t ngx_http_modelgw_event_ended(ngx_http_modelgw_ctx_t *ctx,
    ngx_str_t *data);
static ngx_int_t ngx_http_modelgw_event_scan(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, ngx_modelgw_cut_t *model);


ngx_int_t
ngx_http_modelgw_event(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev)
{
    ngx_int_t                   rc;
    ngx_uint_t                  kind;
    ngx_modelgw_cut_t           model;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;

    ngx_modelgw_repeat_forget(&st->repeat);
    st->text.last.data = NULL;

    if (st->translate) {
        return ngx_http_modelgw_translate_event(r, ctx, ev);
    }

    rc = ngx_http_modelgw_event_read(ctx, ev, &model, &kind);
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
        && ngx_modelgw_repeat_keep(&st->repeat, ev, &st->text, model.from,
                                   model.to)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    model.text = ctx->service_json;

    return ngx_http_modelgw_event_pass(ctx, &ev->raw, &model, ev->borrowed);
}


ngx_int_t
ngx_http_modelgw_event_repeats(ngx_http_modelgw_ctx_t *ctx, u_char **pos,
    u_char *last)
{
    size_t                       n;
    ngx_int_t                    rc;
    ngx_modelgw_cut_t            model;
    ngx_http_modelgw_stream_t   *st;
    ngx_modelgw_repeat_event_t   ev;

    st = ctx->stream;

    if (!ngx_modelgw_sse_between(&st->sse)) {
        return NGX_OK;
    }

    n = 0;
    rc = NGX_OK;
    model.text = ctx->service_json;

    while (rc == NGX_OK
           && ngx_modelgw_repeat_next(&st->repeat, pos, last, &ev) == NGX_OK)
    {
        st->emit.hint = last - *pos + st->emit.ahead;

        if (ctx->call) {
            n += ngx_modelgw_repeat_len(&st->repeat, &ev);
        }

        if (st->translate) {
            rc = ngx_http_modelgw_translate_repeat(ctx, &ev.text);
            continue;
        }

        model.from = ev.from;
        model.to = ev.to;

        rc = ngx_http_modelgw_event_pass(ctx, &ev.raw, &model, 1);
    }

    if (n) {
        ngx_http_modelgw_settle_seen(ctx, n);
    }

    return rc;
}


/* as it came, with the model id mapped back, if there is one */

static ngx_int_t
ngx_http_modelgw_event_pass(ngx_http_modelgw_ctx_t *ctx, ngx_str_t *raw,
    ngx_modelgw_cut_t *model, ngx_uint_t borrowed)
{
    ngx_http_modelgw_emit_t  *em;

    em = &ctx->stream->emit;

    return model->to
           ? ngx_http_modelgw_emit_replaced(em, raw, model, borrowed)
           : ngx_http_modelgw_emit(em, raw->data, raw->len, borrowed);
}


ngx_int_t
ngx_http_modelgw_event_read(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, ngx_modelgw_cut_t *model, ngx_uint_t *kind)
{
    ngx_str_t  data;

    switch (ngx_http_modelgw_event_scan(ctx, ev, model)) {

    case NGX_OK:
        *kind = ngx_modelgw_usage_merge(&ctx->usage, ctx->protocol,
                                        ctx->stream->scan);

        if (ngx_http_modelgw_event_data(ctx->stream, ev, &data) != NGX_OK) {
            return NGX_ERROR;
        }

        ngx_http_modelgw_event_seen(ctx, &data);

        return ngx_http_modelgw_event_ended(ctx, &data);

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

    ngx_http_modelgw_settle_seen(ctx, text->n);
}


/*
 * Whether the last choice of a chat call has ended, with this event.  Of calls
 * for several it is asked which ones it names.
 */

static ngx_int_t
ngx_http_modelgw_event_ended(ngx_http_modelgw_ctx_t *ctx, ngx_str_t *data)
{
    ngx_int_t               rc;
    ngx_modelgw_tape_t     *tape;
    ngx_modelgw_choices_t  *choices;

    if (ctx->protocol != NGX_MODELGW_CHAT || !ctx->stream->text.finished) {
        return NGX_OK;
    }

    if (ctx->choices == 1) {
        ctx->finishing = 1;
        return NGX_OK;
    }

    rc = ngx_http_modelgw_tape_index(ctx->request, data, &tape);

    if (rc == NGX_OK) {
        choices = &ctx->stream->choices;

        ngx_modelgw_choices_end(choices, tape);

        ctx->finishing = (choices->n >= ctx->choices);
    }

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
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
 * Scans an event's data; sets model as ngx_http_modelgw_event_read() does.
 *     NGX_OK        it is JSON
 *     NGX_DONE      it is "[DONE]", the last event of a chat stream
 *     NGX_AGAIN     there is none: a comment, or an event of its name only
 *     NGX_DECLINED  it is something else
 */

static ngx_int_t
ngx_http_modelgw_event_scan(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, ngx_modelgw_cut_t *model)
{
    off_t                fed, from, to;
    size_t               len;
    u_char              *state;
    ngx_str_t            line;
    ngx_uint_t           protocol;
    ngx_modelgw_scan_t  *scan;

    scan = ctx->stream->scan;
    protocol = ctx->protocol;

    ngx_modelgw_scan_reset(scan);

    model->from = 0;
    model->to = 0;
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

        if (model->to == 0
            && ngx_modelgw_usage_model(scan, protocol, &from, &to) == NGX_OK)
        {
            model->from = from - fed + (line.data - ev->raw.data);
            model->to = to - fed + (line.data - ev->raw.data);
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
    ngx_uint_t   first, early;

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

    first = (!ctx->stream->begun && ctx->stream->emit.out == NULL);

    /* with nothing sent yet it can be a real status */

    early = (first && ctx->header_held);

    if (ngx_http_modelgw_upstream_error(r, ctx, NGX_HTTP_OK,
                                        !early && !ctx->translate, &data)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (first) {
        ngx_http_modelgw_settle_status(ctx, ctx->error.status);
    }

    if (early) {
        ctx->stream->state = NGX_HTTP_MODELGW_STREAM_REFUSED;
        return NGX_OK;
    }

    ctx->stream->state = NGX_HTTP_MODELGW_STREAM_FAILED;

    return ngx_http_modelgw_event_frame(r, ctx);
}
