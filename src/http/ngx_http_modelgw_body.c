
/*
 * The precontent phase: has the body read, scans it as it arrives, and asks
 * verdict.c.
 *
 * The scanner sits in the chain of request body filters, before the one that
 * saves to memory or to a file: it sees each byte once, in the cache still, for
 * HTTP/1.1 and HTTP/2 alike, however large the body and its buffer are.
 *
 * Who owns the request:
 *
 *     handler, 1st call   we; then ngx_http_read_client_request_body(), which
 *                         counts one reference and may call back at once
 *     body filter         the reading code; a fault does not stop it, it stops
 *                         the saving: what still comes is read and dropped, so
 *                         that the client reads our refusal, not a reset, and
 *                         may use its connection again
 *     read callback       we; it runs the phases, and so gets to the
 *     handler, 2nd call   verdict, and on to the proxy or to a refusal
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"


static ngx_int_t ngx_http_modelgw_body_start(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_body_done(ngx_http_request_t *r);
static ngx_int_t ngx_http_modelgw_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_int_t ngx_http_modelgw_body_drop(ngx_http_request_t *r,
    ngx_chain_t *in);


static ngx_http_request_body_filter_pt  ngx_http_next_request_body_filter;


ngx_int_t
ngx_http_modelgw_precontent_handler(ngx_http_request_t *r)
{
    ngx_int_t                     rc;
    ngx_http_modelgw_ctx_t       *ctx;
    ngx_http_modelgw_loc_conf_t  *mlcf;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    if (!mlcf->enable) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_get_module_ctx(r, ngx_http_modelgw_module);

    if (ctx == NULL && r == r->main && !r->internal) {

        /* "satisfy any" let it in without a key */

        ctx = ngx_http_modelgw_create_ctx(r);

        if (ctx == NULL
            || ngx_http_modelgw_error(r, ctx, NGX_HTTP_UNAUTHORIZED,
                                      "API_KEY_REQUIRED", "API key required")
               == NGX_ERROR)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return ngx_http_modelgw_reply_error(r, ctx);
    }

    if (r != r->main || ctx == NULL || ctx->key == NULL) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "a subrequest or an internal redirect cannot use "
                      "a gateway location");
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ctx->endpoint->protocol == 0) {
        return ngx_http_modelgw_models(r, ctx);
    }

    if (!ctx->body_read) {
        return ngx_http_modelgw_body_start(r, ctx);
    }

    if (ctx->verdict) {
        return NGX_DECLINED;
    }

    rc = ngx_http_modelgw_verdict(r, ctx);

    if (rc == NGX_DECLINED) {
        return ngx_http_modelgw_reply_error(r, ctx);
    }

    return (rc == NGX_OK) ? NGX_DECLINED : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


static ngx_int_t
ngx_http_modelgw_body_start(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_modelgw_verdict_scan(r, ctx);

    if (rc == NGX_DECLINED) {
        return ngx_http_modelgw_reply_error(r, ctx);
    }

    if (rc != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_read_client_request_body(r, ngx_http_modelgw_body_done);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);
    return NGX_DONE;
}


static void
ngx_http_modelgw_body_done(ngx_http_request_t *r)
{
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_modelgw_module);

    ctx->body_read = 1;

    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}


void
ngx_http_modelgw_body_filter_init(void)
{
    ngx_http_next_request_body_filter = ngx_http_top_request_body_filter;
    ngx_http_top_request_body_filter = ngx_http_modelgw_body_filter;
}


static ngx_int_t
ngx_http_modelgw_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_buf_t               *b;
    ngx_chain_t             *cl;
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_modelgw_module);

    if (ctx == NULL || ctx->scan == NULL) {
        return ngx_http_next_request_body_filter(r, in);
    }

    for (cl = in; cl && !ctx->body_fault; cl = cl->next) {
        b = cl->buf;

        if (ngx_modelgw_scan_feed(ctx->scan, b->pos, b->last - b->pos)
            != NGX_OK)
        {
            ctx->body_fault = 1;
        }
    }

    if (ctx->body_fault) {
        return ngx_http_modelgw_body_drop(r, in);
    }

    return ngx_http_next_request_body_filter(r, in);
}


static ngx_int_t
ngx_http_modelgw_body_drop(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_chain_t              *cl;
    ngx_http_request_body_t  *rb;

    rb = r->request_body;

    for (cl = rb->bufs; cl; cl = cl->next) {
        cl->buf->pos = cl->buf->last;
    }

    rb->bufs = NULL;

    /* the last buf must go on: with it the reading ends */

    for (cl = in; cl; cl = cl->next) {
        cl->buf->pos = cl->buf->last;

        if (cl->buf->last_buf) {
            return ngx_http_next_request_body_filter(r, cl);
        }
    }

    return ngx_http_next_request_body_filter(r, NULL);
}
