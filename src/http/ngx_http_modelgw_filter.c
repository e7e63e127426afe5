
/*
 * The output filters: the header filter decides what a response is, the body
 * filter calls the file for it.
 *
 *     PASS     another module's response: not an error, or flat errors are off
 *     OWN      made by reply.c
 *     ANSWER   an upstream's JSON; the header is held until all of it is here:
 *              the model id changes its length, and an answer that breaks off
 *              becomes a real 502
 *     STREAM   an upstream's events; the header is held until the first event
 *              or keep-alive
 *     LARGE    an ANSWER that is passed on as it comes, since it is large
 *     ERROR    any other response of an upstream; read, then answered flat
 *     ENDED    our response is sent, what still comes is dropped
 *
 * An error page of nginx or of another module, and an upstream's answer to a
 * call that we have not forwarded, is replaced as its header passes: our body
 * is sent then, and the mode is ENDED.
 *
 * Filters see the end of an upstream's answer as a bare flush or as last_buf,
 * whatever the reason.  The reason is known by wrapping u->finalize_request.
 *
 * After the client has left (ctx->abort) all this goes on, but nothing is sent:
 * output is marked as sent here.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_headers.h"


typedef ngx_int_t (*ngx_http_modelgw_body_pt)(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in);


static ngx_int_t ngx_http_modelgw_header_filter(ngx_http_request_t *r);
static ngx_uint_t ngx_http_modelgw_filter_answered(ngx_http_request_t *r);
static ngx_uint_t ngx_http_modelgw_filter_flat(ngx_http_request_t *r);
static ngx_int_t ngx_http_modelgw_filter_foreign(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_filter_bypass(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_filter_upstream(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_http_modelgw_mode_e ngx_http_modelgw_filter_mode(
    ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx);
static ngx_uint_t ngx_http_modelgw_filter_type(ngx_http_request_t *r,
    const char *type);
static void ngx_http_modelgw_filter_finalize(ngx_http_request_t *r,
    ngx_int_t rc);
static void ngx_http_modelgw_filter_consume(ngx_chain_t *cl);
static ngx_int_t ngx_http_modelgw_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_int_t ngx_http_modelgw_filter_pass(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in);
static ngx_int_t ngx_http_modelgw_filter_drop(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in);


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_next_body_filter;


/* by ngx_http_modelgw_mode_e */

static ngx_http_modelgw_body_pt  ngx_http_modelgw_bodies[] = {
    ngx_http_modelgw_filter_pass,        /* PASS */
    ngx_http_modelgw_filter_pass,        /* OWN */
    ngx_http_modelgw_answer_body,        /* ANSWER */
    ngx_http_modelgw_stream_body,        /* STREAM */
    ngx_http_modelgw_large_body,         /* LARGE */
    ngx_http_modelgw_answer_body,        /* ERROR */
    ngx_http_modelgw_filter_drop         /* ENDED */
};


void
ngx_http_modelgw_filter_init(void)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_modelgw_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_modelgw_body_filter;
}


static ngx_int_t
ngx_http_modelgw_header_filter(ngx_http_request_t *r)
{
    ngx_http_modelgw_ctx_t  *ctx;

    if (r != r->main) {
        return ngx_http_next_header_filter(r);
    }

    ctx = ngx_http_modelgw_get_ctx(r);

    /* for an answer without a status line the proxy module sets HTTP/0.9 in
       the client's request, which would get no header then */

    if (ctx && ctx->request.http_version) {
        r->http_version = ctx->request.http_version;
        ngx_http_modelgw_forward_disarm(ctx);
    }

    if (ctx && ctx->answer.mode == NGX_HTTP_MODELGW_OWN
        && !r->filter_finalize)
    {
        return ngx_http_modelgw_filter_header(r, ctx);
    }

    /*
     * u->cleanup is NULL once nginx has finalized an upstream that failed: then
     * this is nginx's own error page.  An answer that was taken already has
     * been replaced by ngx_http_filter_finalize_request() of a later filter.
     */

    if (ctx && ctx->state != NGX_HTTP_MODELGW_NEW
        && ngx_http_modelgw_filter_answered(r)
        && ctx->answer.mode == NGX_HTTP_MODELGW_PASS)
    {
        return (ctx->state == NGX_HTTP_MODELGW_FORWARDED)
               ? ngx_http_modelgw_filter_upstream(r, ctx)
               : ngx_http_modelgw_filter_bypass(r, ctx);
    }

    if (r->headers_out.status >= NGX_HTTP_BAD_REQUEST
        && ngx_http_modelgw_filter_flat(r))
    {
        return ngx_http_modelgw_filter_foreign(r, ctx);
    }

    if (ngx_http_modelgw_cors_headers(r) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_next_header_filter(r);
}


/* Whether the response is an upstream's, or one from nginx's cache of them. */

static ngx_uint_t
ngx_http_modelgw_filter_answered(ngx_http_request_t *r)
{
#if (NGX_HTTP_CACHE)

    if (r->cached) {
        return 1;
    }

#endif

    return r->upstream && r->upstream->cleanup;
}


static ngx_uint_t
ngx_http_modelgw_filter_flat(ngx_http_request_t *r)
{
    ngx_http_modelgw_srv_conf_t  *mscf;
    ngx_http_modelgw_loc_conf_t  *mlcf;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    if (mlcf->enable == 1) {
        return 1;
    }

    if (mlcf->flat_errors != NGX_CONF_UNSET) {
        return mlcf->flat_errors;
    }

    mscf = ngx_http_get_module_srv_conf(r, ngx_http_modelgw_module);

    return mscf->flat;
}


/* an error page of nginx or of another module */

static ngx_int_t
ngx_http_modelgw_filter_foreign(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_uint_t                  status, connected;
    ngx_http_upstream_state_t  *us;

    if (ctx == NULL) {
        ctx = ngx_http_modelgw_create_ctx(r);
        if (ctx == NULL) {
            return NGX_ERROR;
        }
    }

    /* a redirect may have zeroed it, the body filter needs it */
    ngx_http_set_ctx(r, ctx, ngx_http_modelgw_module);

    connected = 1;

    if (r->upstream_states && r->upstream_states->nelts) {
        us = r->upstream_states->elts;
        us += r->upstream_states->nelts - 1;

        connected = (us->connect_time != (ngx_msec_t) -1);
    }

    status = r->headers_out.status;

    /* an endpoint answers a preflight, or knows no OPTIONS */

    if (r->method == NGX_HTTP_OPTIONS && status == NGX_HTTP_NOT_ALLOWED) {
        status = NGX_HTTP_NOT_FOUND;
    }

#if (NGX_HTTP_SSL)

    /* nginx has set 400 for its own 497 */

    if (status == NGX_HTTP_BAD_REQUEST
        && r->http_connection->ssl && r->connection->ssl == NULL)
    {
        status = NGX_HTTP_TO_HTTPS;
    }

#endif

    ngx_modelgw_error_nginx(status, connected, &ctx->error);

    return ngx_http_modelgw_filter_error(r, ctx);
}


/*
 * An upstream has answered that the call was not forwarded to: another module
 * has sent it.  "nginx -t" does not know handlers that are set at run time.
 */

static ngx_int_t
ngx_http_modelgw_filter_bypass(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "gateway location \"%V\": a call was not sent by "
                  "\"proxy_pass $modelgw_upstream\", its answer is dropped",
                  &clcf->name);

    /* no tunnel after a 101 */
    r->upstream->upgrade = 0;

    ngx_http_modelgw_upstream_headers_out(r, ctx);

    r->headers_out.status = NGX_HTTP_INTERNAL_SERVER_ERROR;

    return ngx_http_modelgw_filter_foreign(r, ctx);
}


static ngx_int_t
ngx_http_modelgw_filter_upstream(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                 rc;
    ngx_http_upstream_t      *u;
    ngx_http_modelgw_mode_e   mode;

    u = r->upstream;

    /* drop the upstream's reason phrase */
    r->headers_out.status_line.len = 0;

    /* answers are passed on as they come, never through a file */
    u->buffering = 0;

    /* no tunnel after a 101 */
    u->upgrade = 0;

    r->allow_ranges = 0;

    ngx_http_modelgw_upstream_headers_out(r, ctx);

    if (ngx_http_modelgw_reply_id(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    mode = ngx_http_modelgw_filter_mode(r, ctx);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "modelgw answer: status %ui, mode %ui",
                   r->headers_out.status, (ngx_uint_t) mode);

    ctx->answer.header_held = 1;

    rc = (mode == NGX_HTTP_MODELGW_STREAM)
         ? ngx_http_modelgw_stream_init(r, ctx)
         : ngx_http_modelgw_answer_init(r, ctx, mode);

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->answer.mode = mode;

    ngx_http_modelgw_settle_status(ctx, r->headers_out.status);

    ctx->upstream.finalize = u->finalize_request;
    u->finalize_request = ngx_http_modelgw_filter_finalize;

    ngx_http_modelgw_upstream_watch(r, ctx);

    return NGX_OK;
}


/*
 * A 200 that cannot be read is an error, too: it cannot be metered, nor can the
 * upstream's model id be replaced in it.
 */

static ngx_http_modelgw_mode_e
ngx_http_modelgw_filter_mode(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    if (r->headers_out.status != NGX_HTTP_OK
        || ngx_http_modelgw_filter_encoding(r) != NULL)
    {
        return NGX_HTTP_MODELGW_ERROR;
    }

    if (ctx->call.streaming) {
        return ngx_http_modelgw_filter_type(r, "text/event-stream")
               ? NGX_HTTP_MODELGW_STREAM : NGX_HTTP_MODELGW_ERROR;
    }

    return ngx_http_modelgw_filter_type(r, "application/json")
           ? NGX_HTTP_MODELGW_ANSWER : NGX_HTTP_MODELGW_ERROR;
}


ngx_table_elt_t *
ngx_http_modelgw_filter_encoding(ngx_http_request_t *r)
{
    ngx_table_elt_t  *h;

    h = r->headers_out.content_encoding;

    if (h == NULL
        || (h->value.len == 8
            && ngx_strncasecmp(h->value.data, (u_char *) "identity", 8) == 0))
    {
        return NULL;
    }

    return h;
}


static ngx_uint_t
ngx_http_modelgw_filter_type(ngx_http_request_t *r, const char *type)
{
    size_t      len;
    ngx_str_t  *value;

    len = ngx_strlen(type);
    value = &r->headers_out.content_type;

    return value->len >= len
           && ngx_http_modelgw_headers_equal(value->data, (u_char *) type, len)
           && (value->len == len || value->data[len] == ';'
               || value->data[len] == ' ');
}


/*
 * nginx calls the filters with a flush after 502 and 504, with last_buf after
 * 0, and not at all after NGX_ERROR.
 */

static void
ngx_http_modelgw_filter_finalize(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_modelgw_get_ctx(r);

    ctx->upstream.rc = rc;

    /* an upstream whose answer was bad may send more of it: close the
       connection (RFC 9112, 9.3) */

    if (ctx->answer.mode == NGX_HTTP_MODELGW_ERROR
        && r->headers_out.status < NGX_HTTP_BAD_REQUEST)
    {
        r->upstream->keepalive = 0;
    }

    ctx->upstream.finalize(r, rc);
}


ngx_int_t
ngx_http_modelgw_filter_header(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t  rc;

    if (ngx_http_modelgw_reply_ids(r, ctx) != NGX_OK
        || ngx_http_modelgw_reply_ignored(r, ctx) != NGX_OK
        || ngx_http_modelgw_limit_headers(r, ctx) != NGX_OK
        || ngx_http_modelgw_cors_headers(r) != NGX_OK
        || ngx_http_modelgw_hold_budget_header(r, ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ctx->abort) {
        ctx->answer.header_held = 0;
        r->headers_out.status = NGX_HTTP_CLIENT_CLOSED_REQUEST;
        return NGX_OK;
    }

    if (ctx->answer.header_held) {
        ctx->answer.header_held = 0;

        /* a stream's header may leave before its first event */

        if (ctx->answer.mode != NGX_HTTP_MODELGW_STREAM) {
            ngx_http_modelgw_answered(r, ctx);
        }
    }

    rc = ngx_http_next_header_filter(r);

    if (rc != NGX_ERROR || !r->connection->error) {
        return rc;
    }

    r->headers_out.status = NGX_HTTP_CLIENT_CLOSED_REQUEST;

    return (ngx_http_modelgw_abort_drain(r, ctx) == NGX_OK) ? NGX_OK
                                                            : NGX_ERROR;
}


ngx_int_t
ngx_http_modelgw_filter_body(ngx_http_request_t *r, ngx_chain_t *out)
{
    ngx_int_t                rc;
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_modelgw_get_ctx(r);

    if (ctx->abort == NULL) {
        rc = ngx_http_next_body_filter(r, out);

        if (rc != NGX_ERROR
            || ngx_http_modelgw_abort_drain(r, ctx) != NGX_OK)
        {
            return rc;
        }
    }

    ngx_http_modelgw_filter_consume(out);

    return NGX_OK;
}


static void
ngx_http_modelgw_filter_consume(ngx_chain_t *cl)
{
    for ( /* void */ ; cl; cl = cl->next) {
        cl->buf->pos = cl->buf->last;
        cl->buf->file_pos = cl->buf->file_last;
    }
}


ngx_int_t
ngx_http_modelgw_filter_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t     rc;
    ngx_str_t     body;
    ngx_chain_t   out;

    ctx->answer.mode = NGX_HTTP_MODELGW_ENDED;

    if (ngx_http_modelgw_reply_id(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    /* before the end of the request: a client that lingers must not keep the
       hold, and the client's next call must not meet it */
    ngx_http_modelgw_settle(r, ctx);

    if (ngx_http_modelgw_reply_error_header(r, ctx, &body) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_modelgw_filter_header(r, ctx);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    if (ngx_http_modelgw_reply_body(r, &body, &out) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_filter_body(r, &out);
}


static ngx_int_t
ngx_http_modelgw_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_modelgw_get_ctx(r);

    if (ctx == NULL || r != r->main) {
        return ngx_http_next_body_filter(r, in);
    }

    if (ctx->abort
        && ngx_http_modelgw_abort_count(r, ctx, in) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_bodies[ctx->answer.mode](r, ctx, in);
}


static ngx_int_t
ngx_http_modelgw_filter_pass(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in)
{
    return ngx_http_next_body_filter(r, in);
}


static ngx_int_t
ngx_http_modelgw_filter_drop(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in)
{
    if (in == NULL) {
        return ngx_http_modelgw_filter_body(r, NULL);
    }

    ngx_http_modelgw_filter_consume(in);

    return NGX_OK;
}
