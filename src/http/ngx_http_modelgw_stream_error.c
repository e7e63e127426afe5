
/*
 * Errors in event streams: an upstream's error event, and ours when a stream
 * breaks off, in the form that clients of the protocol raise on.
 *
 * In responses these are two events, since no client reads both: some take the
 * message from response.failed, some raise on "error" only, which has its
 * members at the root for some and in "error" for others.  The code of
 * response.failed is one that Codex knows: it decides whether to ask again.
 *
 * The upstream's own response.failed is passed on if it shows what a client may
 * see.  If its message had to be changed, or is about the operator's account,
 * ours takes its place.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_error.h"
#include "ngx_modelgw_usage.h"
#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_emit.h"
#include "ngx_http_modelgw_stream.h"


static ngx_int_t ngx_http_modelgw_stream_take(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *body);
static ngx_uint_t ngx_http_modelgw_stream_shows(ngx_str_t *data,
    ngx_str_t *text);


ngx_int_t
ngx_http_modelgw_stream_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *data)
{
    ngx_int_t  rc;

    rc = ngx_http_modelgw_stream_take(r, ctx, data);

    return (rc == NGX_DECLINED) ? ngx_http_modelgw_stream_emit_error(r, ctx)
                                : rc;
}


ngx_int_t
ngx_http_modelgw_stream_failed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *data)
{
    ngx_int_t                  rc;
    ngx_str_t                  error;
    ngx_modelgw_scan_value_t  *v;

    v = ngx_modelgw_usage_part(&ctx->answer.usage, ctx->answer.stream->scan,
                               NGX_MODELGW_PART_ERROR);

    ngx_str_null(&error);

    if (v->type != NGX_MODELGW_SCAN_ABSENT) {
        error.data = data->data + v->from;
        error.len = v->to - v->from;
    }

    rc = ngx_http_modelgw_stream_take(r, ctx, &error);

    if (rc == NGX_DECLINED
        && !ngx_http_modelgw_stream_shows(&error, &ctx->error.message))
    {
        rc = ngx_http_modelgw_stream_emit_error(r, ctx);
    }

    return rc;
}


/*
 *     NGX_OK        it becomes the status
 *     NGX_DECLINED  ctx->error is set, an event is to be emitted
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_http_modelgw_stream_take(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *body)
{
    ngx_uint_t                  first, early;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->answer.stream;

    first = (!st->begun && st->emit.out == NULL);
    early = (first && ctx->answer.header_held);

    if (ngx_http_modelgw_upstream_error(r, ctx, NGX_HTTP_OK, !early, body)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* "response.created" comes before the vendor knows that it can answer */

    if (first
        || (ctx->call.protocol == NGX_MODELGW_RESPONSES
            && !st->responses.begun))
    {
        ngx_http_modelgw_settle_status(ctx, ctx->error.status);
    }

    st->state = early ? NGX_HTTP_MODELGW_STREAM_REFUSED
                      : NGX_HTTP_MODELGW_STREAM_FAILED;

    return early ? NGX_OK : NGX_DECLINED;
}


/* whether the text, as a client may see it, is in the data as it came */

static ngx_uint_t
ngx_http_modelgw_stream_shows(ngx_str_t *data, ngx_str_t *text)
{
    return text->len && data->len
           && memmem(data->data, data->len, text->data, text->len) != NULL;
}


ngx_int_t
ngx_http_modelgw_stream_emit_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_str_t   event;
    ngx_uint_t  chat;

    if (ctx->request.endpoint->protocol == NGX_MODELGW_RESPONSES) {
        return ngx_http_modelgw_translate_error(ctx);
    }

    chat = (ctx->request.endpoint->protocol == NGX_MODELGW_CHAT);

    if (ngx_modelgw_error_render(r->pool, &ctx->error,
                                 chat ? NGX_MODELGW_ERROR_CHAT
                                      : NGX_MODELGW_ERROR_MESSAGES,
                                 &event)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_emit(&ctx->answer.stream->emit, event.data,
                                 event.len, 0);
}
