
/*
 * A messages stream that becomes a chat stream, event by event.
 *
 * An event is scanned as it is for a stream that is passed on: strict JSON, and
 * its usage is merged.  Then the codec writes what the client gets, into the
 * same output (emit.c): texts stay in the upstream's buffer where they can.
 *
 * The memory of a stream is one event, at most modelgw_max_event_size, and the
 * codec's state.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_stream.h"
#include "ngx_modelgw_stream.h"
#include "ngx_modelgw_out.h"


#define NGX_HTTP_MODELGW_TRANSLATE_HINT  65536


struct ngx_http_modelgw_translate_s {
    ngx_modelgw_completion_t   completion;
    ngx_modelgw_out_t          out;
    ngx_modelgw_chunk_t       *chunk;
};


static void ngx_http_modelgw_translate_hint(ngx_http_modelgw_stream_t *st,
    size_t len);
static ngx_int_t ngx_http_modelgw_translate_write(void *data, u_char *p,
    size_t len, ngx_uint_t borrowed);
static ngx_int_t ngx_http_modelgw_translate_scan(ngx_http_modelgw_ctx_t *ctx,
    ngx_str_t *data);
static ngx_int_t ngx_http_modelgw_translate_done(ngx_http_modelgw_ctx_t *ctx,
    ngx_int_t rc);


ngx_int_t
ngx_http_modelgw_translate_stream_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_modelgw_tape_t            *tape;
    ngx_http_modelgw_loc_conf_t   *mlcf;
    ngx_http_modelgw_translate_t  *t;

    tape = ngx_http_modelgw_tape(r);
    if (tape == NULL) {
        return NGX_ERROR;
    }

    t = ngx_pcalloc(r->pool, sizeof(ngx_http_modelgw_translate_t));
    if (t == NULL) {
        return NGX_ERROR;
    }

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    ngx_http_modelgw_translate_completion(ctx, &t->completion);

    t->out.write = ngx_http_modelgw_translate_write;
    t->out.data = &ctx->stream->emit;

    t->chunk = ngx_modelgw_chunk_create(r->pool, &t->completion, tape,
                                        mlcf->max_event_size, &t->out);
    if (t->chunk == NULL) {
        return NGX_ERROR;
    }

    ctx->stream->translate = t;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_translate_event(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev)
{
    ngx_int_t                      rc;
    ngx_str_t                      data;
    ngx_uint_t                     borrowed;
    ngx_http_modelgw_stream_t     *st;
    ngx_http_modelgw_translate_t  *t;

    st = ctx->stream;
    t = st->translate;

    if (ngx_http_modelgw_event_data(st, ev, &data) != NGX_OK) {
        return NGX_ERROR;
    }

    /* a comment, or an event of its name only: WHATWG HTML, 9.2.6 */

    if (data.len == 0) {
        return NGX_OK;
    }

    /* of look-alikes, which take it from chat */

    if (data.len == 6 && ngx_memcmp(data.data, "[DONE]", 6) == 0) {
        return ngx_http_modelgw_translate_done(ctx,
                                               ngx_modelgw_chunk_end(t->chunk));
    }

    if (ngx_http_modelgw_translate_scan(ctx, &data) != NGX_OK) {
        return NGX_DECLINED;
    }

    ngx_http_modelgw_translate_hint(st, ev->raw.len);

    borrowed = (ev->borrowed && data.data != st->joined.data);

    rc = ngx_modelgw_chunk_event(t->chunk, &data, &ev->name, borrowed);

    if (rc == NGX_ABORT) {
        return ngx_http_modelgw_event_error(r, ctx, ev);
    }

    if (rc == NGX_OK
        && ngx_modelgw_chunk_text(t->chunk) == st->text.last.data
        && ngx_modelgw_repeat_keep(&st->repeat, ev, &st->text, 0, 0) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_translate_done(ctx, rc);
}


ngx_int_t
ngx_http_modelgw_translate_repeat(ngx_http_modelgw_ctx_t *ctx, ngx_str_t *text)
{
    ngx_int_t                   rc;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;

    ngx_http_modelgw_translate_hint(st, text->len);

    rc = ngx_modelgw_chunk_repeat(st->translate->chunk, text, 1);

    return ngx_http_modelgw_translate_done(ctx, rc);
}


/* chunks are about twice as long as their events */

static void
ngx_http_modelgw_translate_hint(ngx_http_modelgw_stream_t *st, size_t len)
{
    st->emit.hint = ngx_min(2 * (st->emit.hint + len),
                            NGX_HTTP_MODELGW_TRANSLATE_HINT);
}


ngx_int_t
ngx_http_modelgw_translate_rest(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_modelgw_sse_event_t     ev;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->stream;

    /* it may lack its blank line, or be cut: then it is none */

    if (ngx_modelgw_sse_rest(&st->sse, &ev) == NGX_OK) {
        rc = ngx_http_modelgw_translate_event(r, ctx, &ev);

        if (rc == NGX_ERROR || st->state != NGX_HTTP_MODELGW_STREAM_OPEN) {
            return rc;
        }
    }

    rc = ngx_modelgw_chunk_end(st->translate->chunk);

    if (rc == NGX_DONE) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "upstream's stream has no \"message_stop\"");
    }

    return ngx_http_modelgw_translate_done(ctx, rc);
}


static ngx_int_t
ngx_http_modelgw_translate_write(void *data, u_char *p, size_t len,
    ngx_uint_t borrowed)
{
    ngx_http_modelgw_emit_t *em = data;

    return ngx_http_modelgw_emit(em, p, len, borrowed);
}


static ngx_int_t
ngx_http_modelgw_translate_scan(ngx_http_modelgw_ctx_t *ctx, ngx_str_t *data)
{
    ngx_modelgw_scan_t  *scan;

    scan = ctx->stream->scan;

    ngx_modelgw_scan_reset(scan);

    if (ngx_modelgw_scan_feed(scan, data->data, data->len) != NGX_OK
        || ngx_modelgw_scan_done(scan) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    (void) ngx_modelgw_usage_merge(&ctx->usage, NGX_MODELGW_MESSAGES, scan);
    ngx_http_modelgw_event_seen(ctx, data);

    return NGX_OK;
}


/* what the codec said: NGX_OK, NGX_DECLINED, NGX_ERROR */

static ngx_int_t
ngx_http_modelgw_translate_done(ngx_http_modelgw_ctx_t *ctx, ngx_int_t rc)
{
    if (ctx->stream->translate->out.failed) {
        return NGX_ERROR;
    }

    if (rc == NGX_DONE) {
        ctx->stream->state = NGX_HTTP_MODELGW_STREAM_COMPLETE;
        return NGX_OK;
    }

    return rc;
}
