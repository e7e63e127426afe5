
/*
 * The precontent phase: reads the body, scans it as it arrives, and calls
 * verdict.c.
 *
 * The scanner is in the chain of request body filters, before the one that
 * saves to memory or to a file: it gets each byte once, while it is in the
 * cache, with HTTP/1.1 and HTTP/2, whatever the sizes of body and buffer.  Of a
 * large body, what may be known waits in nginx's buffer: see memo.h.
 *
 * The owner of the request:
 *
 *     handler, 1st call   this file, then ngx_http_read_client_request_body(),
 *                         which counts a reference and may call back at once
 *     body filter         nginx's reading; a fault does not end it, but the
 *                         rest is read and dropped, so that the client reads
 *                         the refusal instead of a reset, and may use its
 *                         connection again
 *     read callback       this file; it runs the phases again
 *     handler, 2nd call   this file, then the proxy module; or in a cluster
 *                         wait.c, until credit is lent, and a 3rd call
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"


#define NGX_HTTP_MODELGW_BODY_PIECE  (256 * 1024)
#define NGX_HTTP_MODELGW_BODY_LARGE  (64 * 1024)


/* the buffer of the connection's next call */

typedef struct {
    ngx_http_request_t  *request;
    size_t               size;
} ngx_http_modelgw_body_next_t;


static ngx_int_t ngx_http_modelgw_body_outside(ngx_http_request_t *r);
static ngx_int_t ngx_http_modelgw_body_limited(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_body_start(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_body_next(ngx_http_request_t *r);
static void ngx_http_modelgw_body_resize(void *data);
static ngx_int_t ngx_http_modelgw_body_large(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_body_memo(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ssize_t ngx_http_modelgw_body_recv(ngx_connection_t *c, u_char *buf,
    size_t size);
static void ngx_http_modelgw_body_restore(void *data);
static void ngx_http_modelgw_body_done(ngx_http_request_t *r);
static ngx_int_t ngx_http_modelgw_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_int_t ngx_http_modelgw_body_scan(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_buf_t *b);
static ngx_uint_t ngx_http_modelgw_body_indexed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_buf_t *b);
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
        return ngx_http_modelgw_body_outside(r);
    }

    ctx = ngx_http_get_module_ctx(r, ngx_http_modelgw_module);

    if (ctx == NULL && r == r->main && !r->internal) {

        /* admitted by "satisfy any" */

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

    if (r != r->main || ctx == NULL || ctx->state == NGX_HTTP_MODELGW_NEW) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "a subrequest or an internal redirect cannot use "
                      "a gateway location");
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ctx->request.endpoint->protocol == 0) {
        return ngx_http_modelgw_models(r, ctx);
    }

    if (ctx->state < NGX_HTTP_MODELGW_READ) {

        if (ctx->money.limited) {
            rc = ngx_http_modelgw_body_limited(r, ctx);

            if (rc != NGX_OK) {
                return rc;
            }
        }

        return ngx_http_modelgw_body_start(r, ctx);
    }

    if (ctx->state >= NGX_HTTP_MODELGW_READY) {
        return NGX_DECLINED;
    }

    rc = ngx_http_modelgw_verdict(r, ctx);

    if (rc == NGX_OK) {
        return NGX_DECLINED;
    }

    if (rc == NGX_DECLINED) {
        return ngx_http_modelgw_reply_error(r, ctx);
    }

    return (rc == NGX_AGAIN) ? NGX_AGAIN : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


/*
 * A location without a gateway.  "try_files" or another module may redirect a
 * call to it from a gateway location: the call would be sent from here, to
 * whatever this location proxies to, without being charged.  A "post_action"
 * runs when the call is over.
 */

static ngx_int_t
ngx_http_modelgw_body_outside(ngx_http_request_t *r)
{
    ngx_http_modelgw_ctx_t    *ctx;
    ngx_http_core_loc_conf_t  *clcf;

    ctx = ngx_http_modelgw_get_ctx(r);

    if (ctx == NULL || r != r->main || r->post_action
        || ctx->state == NGX_HTTP_MODELGW_NEW)
    {
        return NGX_DECLINED;
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "internal redirect from a gateway location to location "
                  "\"%V\", which has no \"modelgw on\"", &clcf->name);

    return NGX_HTTP_INTERNAL_SERVER_ERROR;
}


/* A limit of the key was not decided in the access phase.  NGX_OK: it is. */

static ngx_int_t
ngx_http_modelgw_body_limited(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_modelgw_limit_again(r, ctx);

    switch (rc) {

    case NGX_OK:
    case NGX_AGAIN:
        return rc;

    case NGX_DECLINED:
        return ngx_http_modelgw_reply_error(r, ctx);

    default: /* NGX_ERROR */
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
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

    if (r->http_version < NGX_HTTP_VERSION_20) {

        if (ngx_http_modelgw_body_next(r) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        if (r->headers_in.content_length_n >= NGX_HTTP_MODELGW_BODY_LARGE
            && ngx_http_modelgw_body_large(r, ctx) != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    ctx->state = NGX_HTTP_MODELGW_READING;

    rc = ngx_http_read_client_request_body(r, ngx_http_modelgw_body_done);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);
    return NGX_DONE;
}


/*
 * A call that comes in one recv() costs two system calls less, and a buffer
 * less.  So a kept connection gets a buffer that all of this call fits into,
 * and a quarter more: the next one has this one's conversation, and is longer.
 * If the call is large, it gets nginx's own again.
 */

static ngx_int_t
ngx_http_modelgw_body_next(ngx_http_request_t *r)
{
    off_t                          size, used;
    ngx_buf_t                     *b;
    ngx_pool_cleanup_t            *cln;
    ngx_http_core_srv_conf_t      *cscf;
    ngx_http_modelgw_body_next_t  *next;

    if (!r->keepalive) {
        return NGX_OK;
    }

    cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);

    b = r->connection->buffer;
    used = b->end - b->start;

    /* of a chunked body nothing is known */

    size = ngx_max(r->headers_in.content_length_n, 0);
    size = r->request_length + ngx_min(size, NGX_HTTP_MODELGW_BODY_LARGE);

    if (size >= NGX_HTTP_MODELGW_BODY_LARGE) {
        size = 0;

    } else if (size + size / 8 <= used && size > used / 4) {
        return NGX_OK;
    }

    /* nginx cannot free what it allocates in a block of the pool */

    size = ngx_max(size + size / 4, (off_t) cscf->client_header_buffer_size);
    size = ngx_max(size, (off_t) r->connection->pool->max + 1);

    if (size == used) {
        return NGX_OK;
    }

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_modelgw_body_next_t));
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_modelgw_body_resize;

    next = cln->data;
    next->request = r;
    next->size = size;

    return NGX_OK;
}


/*
 * The request is over.  nginx frees the buffer of a connection that waits, and
 * allocates one of the same size when the next bytes come.
 */

static void
ngx_http_modelgw_body_resize(void *data)
{
    ngx_http_modelgw_body_next_t *next = data;

    u_char            *p;
    ngx_buf_t         *b;
    ngx_connection_t  *c;

    b = next->request->header_in;

    /* a pipelined request has come */

    if (b->pos != b->last) {
        return;
    }

    c = next->request->connection;
    b = c->buffer;

    p = ngx_palloc(c->pool, next->size);
    if (p == NULL) {
        return;
    }

    (void) ngx_pfree(c->pool, b->start);

    b->start = p;
    b->pos = p;
    b->last = p;
    b->end = p + next->size;
}


/*
 * nginx reads as much as there is at a time: of several megabytes the first
 * bytes have left the cache when they are scanned.  So it is given less.
 * HTTP/3 reads by c->recv, too, but frames.
 */

static ngx_int_t
ngx_http_modelgw_body_large(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_pool_cleanup_t       *cln;
    ngx_http_modelgw_body_t  *body;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_modelgw_body_t));
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_modelgw_body_restore;

    body = cln->data;
    body->connection = r->connection;
    body->recv = r->connection->recv;
    r->connection->recv = ngx_http_modelgw_body_recv;

    ctx->request.body = body;

    ngx_http_modelgw_body_memo(r, ctx);

    return NGX_OK;
}


static void
ngx_http_modelgw_body_memo(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_modelgw_memo_read_t       *memo;
    ngx_http_modelgw_loc_conf_t   *mlcf;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);
    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    memo = &ctx->request.body->memo;

    if (!mlcf->memo || mmcf->memo == NULL) {
        memo->memo = NULL;
        return;
    }

    ngx_modelgw_memo_begin(mmcf->memo, memo, ctx->request.scan,
                           &ctx->request.key->account,
                           r->headers_in.content_length_n);
}


/* after an error nginx reads with it, too, to discard what comes */

static ssize_t
ngx_http_modelgw_body_recv(ngx_connection_t *c, u_char *buf, size_t size)
{
    ngx_http_request_t      *r;
    ngx_http_modelgw_ctx_t  *ctx;

    r = c->data;
    ctx = ngx_http_modelgw_get_ctx(r->main);

    return ctx->request.body->recv(c, buf,
                                    ngx_min(size, NGX_HTTP_MODELGW_BODY_PIECE));
}


static void
ngx_http_modelgw_body_restore(void *data)
{
    ngx_http_modelgw_body_t *body = data;

    if (body->recv) {
        body->connection->recv = body->recv;
        body->recv = NULL;
    }
}


static void
ngx_http_modelgw_body_done(ngx_http_request_t *r)
{
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_modelgw_module);

    if (ctx->request.body) {
        ngx_http_modelgw_body_restore(ctx->request.body);
    }

    ctx->state = NGX_HTTP_MODELGW_READ;

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
    ngx_chain_t             *cl;
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_modelgw_module);

    if (ctx == NULL || ctx->request.scan == NULL) {
        return ngx_http_next_request_body_filter(r, in);
    }

    for (cl = in; cl && ctx->state == NGX_HTTP_MODELGW_READING; cl = cl->next) {

        if (ngx_http_modelgw_body_scan(r, ctx, cl->buf) != NGX_OK) {
            ctx->state = NGX_HTTP_MODELGW_DROPPING;
        }
    }

    if (ctx->state == NGX_HTTP_MODELGW_DROPPING) {
        return ngx_http_modelgw_body_drop(r, in);
    }

    return ngx_http_next_request_body_filter(r, in);
}


/*
 * Whether the body will be read from the tape, and all of it is in the buf.
 * Most calls of responses have tools, which responses.c looks for.  Of a
 * chunked body, content_length_n is what has come so far.
 */

static ngx_uint_t
ngx_http_modelgw_body_indexed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_buf_t *b)
{
    if (!ctx->call.translate
        && ctx->request.endpoint->protocol != NGX_MODELGW_RESPONSES)
    {
        return 0;
    }

    return !r->headers_in.chunked
           && b->pos != b->last
           && b->last - b->pos == r->headers_in.content_length_n
           && b->last - b->pos < NGX_HTTP_MODELGW_BODY_LARGE;
}


/* while nginx reads on into the same buffer, what it has read stays there */

static ngx_int_t
ngx_http_modelgw_body_scan(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_buf_t *b)
{
    ngx_buf_t                *buf;
    ngx_uint_t                more;
    ngx_http_modelgw_body_t  *body;

    body = ctx->request.body;

    if (ngx_http_modelgw_body_indexed(r, ctx, b)) {
        return ngx_http_modelgw_translate_scan(r, ctx, b);
    }

    if (body == NULL || body->memo.memo == NULL) {
        return ngx_modelgw_scan_feed(ctx->request.scan, b->pos,
                                     b->last - b->pos);
    }

    buf = r->request_body->buf;

    more = (!b->last_buf && buf && b->last == buf->last
            && buf->last < buf->end);

    return ngx_modelgw_memo_feed(&body->memo, b->pos, b->last - b->pos, more);
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

    /* the last buf is passed on, it ends the reading */

    for (cl = in; cl; cl = cl->next) {
        cl->buf->pos = cl->buf->last;

        if (cl->buf->last_buf) {
            return ngx_http_next_request_body_filter(r, cl);
        }
    }

    return ngx_http_next_request_body_filter(r, NULL);
}
