
/*
 * A JSON answer that is too large to be collected: embeddings, a text file of
 * tens of megabytes.  It is passed on as it comes, without a Content-Length,
 * with the model id mapped back, and metered at its end.
 *
 * The id may be anywhere, also across the upstream's bufs, and is known only
 * when all of it was scanned.  So the last bytes that have come are held back:
 * enough for any id.
 *
 *     document     ....................................
 *                  sent or emitted   | tail  | new buf
 *                                    at      at + len
 *
 * An answer that breaks off after its header was sent ends without last_buf, as
 * a stream does: no last chunk, or RST_STREAM, or a closed connection.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_error.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_usage.h"
#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_emit.h"


/* bytes; an id has 256 characters at most */

#define NGX_HTTP_MODELGW_LARGE_TAIL  1024


struct ngx_http_modelgw_large_s {
    ngx_modelgw_scan_t       *scan;
    ngx_http_modelgw_emit_t   emit;
    off_t                     at;        /* offset of the tail */
    size_t                    len;       /* bytes of it */
    u_char                    tail[NGX_HTTP_MODELGW_LARGE_TAIL];
    unsigned                  broken:1;  /* the rest is dropped */
};


static ngx_int_t ngx_http_modelgw_large_pass(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *part);
static ngx_int_t ngx_http_modelgw_large_move(ngx_http_modelgw_large_t *l,
    ngx_str_t *part, off_t to, ngx_uint_t emit);
static ngx_int_t ngx_http_modelgw_large_end(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_large_broken(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, const char *reason);


ngx_int_t
ngx_http_modelgw_large_begin(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_scan_t *scan, ngx_str_t *part)
{
    ngx_int_t                  rc;
    ngx_http_modelgw_large_t  *l;

    l = ngx_pcalloc(r->pool, sizeof(ngx_http_modelgw_large_t));
    if (l == NULL) {
        return NGX_ERROR;
    }

    l->scan = scan;
    l->emit.pool = r->pool;

    ctx->answer.large = l;
    ctx->answer.mode = NGX_HTTP_MODELGW_LARGE;

    ngx_http_modelgw_settle_first_byte(ctx);

    ngx_http_clear_content_length(r);

    rc = ngx_http_modelgw_filter_header(r, ctx);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    ngx_http_modelgw_emit_begin(&l->emit, NULL);

    if (ngx_http_modelgw_large_pass(r, ctx, part) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_emit_send(r, &l->emit);
}


ngx_int_t
ngx_http_modelgw_large_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_str_t                  part;
    ngx_uint_t                 last;
    ngx_chain_t               *cl;
    ngx_http_modelgw_large_t  *l;

    l = ctx->answer.large;

    ngx_http_modelgw_emit_begin(&l->emit, in);

    last = (in && ctx->upstream.rc != NGX_AGAIN);

    for (cl = in; cl; cl = cl->next) {

        part.data = cl->buf->pos;
        part.len = cl->buf->last - cl->buf->pos;

        if (!l->broken) {

            if (ngx_modelgw_scan_feed(l->scan, part.data, part.len) != NGX_OK) {
                ngx_http_modelgw_large_broken(r, ctx, "it is not JSON");

            } else if (ngx_http_modelgw_large_pass(r, ctx, &part) != NGX_OK) {
                return NGX_ERROR;
            }
        }

        ngx_http_modelgw_emit_read(&l->emit, cl->buf);

        if (cl->buf->last_buf) {
            last = 1;
        }
    }

    if (last && ngx_http_modelgw_large_end(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    /* nginx passes NULL to send the rest of the output */

    if (l->emit.out == NULL && l->emit.busy == NULL && in != NULL) {
        return NGX_OK;
    }

    return ngx_http_modelgw_emit_send(r, &l->emit);
}


/* part was scanned; NGX_OK, NGX_ERROR (no memory) */

static ngx_int_t
ngx_http_modelgw_large_pass(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *part)
{
    off_t                      from, to, last;
    ngx_http_modelgw_large_t  *l;

    l = ctx->answer.large;
    last = l->at + l->len + part->len;

    /* an id that was replaced ends before the tail */

    if (ngx_modelgw_usage_model(&ctx->answer.usage, ctx->call.protocol, l->scan,
                                &from, &to)
        == NGX_OK
        && to > l->at)
    {
        if (from < l->at) {
            ngx_http_modelgw_large_broken(r, ctx, "its model id is too long");
            return NGX_OK;
        }

        if (ngx_http_modelgw_large_move(l, part, from, 1) != NGX_OK
            || ngx_http_modelgw_emit(&l->emit, ctx->call.service_json.data,
                                     ctx->call.service_json.len, 0)
               != NGX_OK
            || ngx_http_modelgw_large_move(l, part, to, 0) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (ngx_http_modelgw_large_move(l, part, last - NGX_HTTP_MODELGW_LARGE_TAIL,
                                    1)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_memcpy(l->tail + l->len, part->data, part->len);
    l->len += part->len;

    return NGX_OK;
}


/*
 * Emits or drops the document up to an offset, which may be before the tail:
 * the tail, then the part, which keeps what is left of it.
 *     NGX_OK, NGX_ERROR (no memory)
 */

static ngx_int_t
ngx_http_modelgw_large_move(ngx_http_modelgw_large_t *l, ngx_str_t *part,
    off_t to, ngx_uint_t emit)
{
    size_t  n;

    if (to <= l->at) {
        return NGX_OK;
    }

    n = ngx_min(to - l->at, (off_t) l->len);

    if (emit && ngx_http_modelgw_emit(&l->emit, l->tail, n, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    l->at += n;
    l->len -= n;

    ngx_memmove(l->tail, l->tail + n, l->len);

    n = to - l->at;

    if (emit && ngx_http_modelgw_emit(&l->emit, part->data, n, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    l->at += n;

    part->data += n;
    part->len -= n;

    return NGX_OK;
}


/* the upstream has ended, or was ended; NGX_OK, NGX_ERROR (no memory) */

static ngx_int_t
ngx_http_modelgw_large_end(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_large_t  *l;

    l = ctx->answer.large;

    if (l->broken) {
        /* void */

    } else if (ctx->upstream.rc != NGX_AGAIN && ctx->upstream.rc != NGX_OK) {
        ngx_http_modelgw_large_broken(r, ctx, "it broke off");

    } else if (ngx_modelgw_scan_done(l->scan) != NGX_OK) {
        ngx_http_modelgw_large_broken(r, ctx, "it is not whole JSON");
    }

    if (!l->broken) {
        ctx->answer.complete = 1;

        ngx_http_modelgw_large_cut(ctx);
        ngx_http_modelgw_settle(r, ctx);

        if (ngx_http_modelgw_emit(&l->emit, l->tail, l->len, 0) != NGX_OK
            || ngx_http_modelgw_emit_last(&l->emit) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    ctx->answer.mode = NGX_HTTP_MODELGW_ENDED;

    return NGX_OK;
}


/* the client has a status of success, and finds that the body has no end */

static void
ngx_http_modelgw_large_broken(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, const char *reason)
{
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "upstream of group \"%V\", model \"%V\": the rest of an "
                  "answer cannot be passed on: %s",
                  &ngx_http_modelgw_ctx_group(ctx)->name,
                  &ctx->call.upstream_id, reason);

    ngx_modelgw_error_nginx((ctx->upstream.rc == NGX_HTTP_GATEWAY_TIME_OUT)
                            ? NGX_HTTP_GATEWAY_TIME_OUT : NGX_HTTP_BAD_GATEWAY,
                            1, &ctx->error);

    ctx->answer.large->broken = 1;
    r->keepalive = 0;

    ngx_http_modelgw_settle(r, ctx);

    if (ctx->upstream.rc == NGX_AGAIN) {
        ngx_http_modelgw_upstream_stop(r);
    }
}


void
ngx_http_modelgw_large_cut(ngx_http_modelgw_ctx_t *ctx)
{
    (void) ngx_modelgw_usage_merge(&ctx->answer.usage, ctx->call.protocol,
                                   ctx->answer.large->scan);

    ngx_http_modelgw_settle_seen(ctx, 0);
}


void
ngx_http_modelgw_large_drop(ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_emit_drop(&ctx->answer.large->emit);
}
