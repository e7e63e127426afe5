
/*
 * Responses of the gateway itself: errors and small JSON documents.
 *
 * Rejected: ngx_http_special_response_handler().  It closes the connection
 * after a 400, but clients of these APIs keep one for a session.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_headers.h"


#define NGX_HTTP_MODELGW_MAX_MESSAGE  512    /* bytes */

#define NGX_HTTP_UPGRADE_REQUIRED     426


typedef struct {
    ngx_uint_t    status;
    ngx_str_t     word;
} ngx_http_modelgw_reason_t;


static ngx_int_t ngx_http_modelgw_reply(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *body);
static ngx_int_t ngx_http_modelgw_reply_retry(ngx_http_request_t *r,
    ngx_uint_t status);


/* by ngx_http_modelgw_reason_e */

static ngx_http_modelgw_reason_t  ngx_http_modelgw_reasons[] = {
    [NGX_HTTP_MODELGW_REASON_NONE] =
        { 0, ngx_null_string },

    [NGX_HTTP_MODELGW_REASON_MISSING] =
        { NGX_HTTP_UNAUTHORIZED, ngx_string("missing") },
    [NGX_HTTP_MODELGW_REASON_UNKNOWN] =
        { NGX_HTTP_UNAUTHORIZED, ngx_string("unknown") },
    [NGX_HTTP_MODELGW_REASON_MALFORMED] =
        { NGX_HTTP_UNAUTHORIZED, ngx_string("malformed") },
    [NGX_HTTP_MODELGW_REASON_EXPIRED] =
        { NGX_HTTP_UNAUTHORIZED, ngx_string("expired") },
    [NGX_HTTP_MODELGW_REASON_REVOKED] =
        { NGX_HTTP_UNAUTHORIZED, ngx_string("revoked") },
    [NGX_HTTP_MODELGW_REASON_DIFFER] =
        { NGX_HTTP_UNAUTHORIZED, ngx_string("differ") },
    [NGX_HTTP_MODELGW_REASON_CLOSED] =
        { NGX_HTTP_UNAUTHORIZED, ngx_string("closed") },
    [NGX_HTTP_MODELGW_REASON_UNKNOWN_GROUP] =
        { NGX_HTTP_UNAUTHORIZED, ngx_string("unknown_group") },

    [NGX_HTTP_MODELGW_REASON_CREDIT] =
        { NGX_HTTP_PAYMENT_REQUIRED, ngx_string("credit") },
    [NGX_HTTP_MODELGW_REASON_BUDGET] =
        { NGX_HTTP_PAYMENT_REQUIRED, ngx_string("budget") },

    [NGX_HTTP_MODELGW_REASON_RPM] =
        { NGX_HTTP_TOO_MANY_REQUESTS, ngx_string("rpm") },
    [NGX_HTTP_MODELGW_REASON_TPM] =
        { NGX_HTTP_TOO_MANY_REQUESTS, ngx_string("tpm") },
    [NGX_HTTP_MODELGW_REASON_CONCURRENCY] =
        { NGX_HTTP_TOO_MANY_REQUESTS, ngx_string("concurrency") },
    [NGX_HTTP_MODELGW_REASON_UPSTREAM] =
        { NGX_HTTP_TOO_MANY_REQUESTS, ngx_string("upstream") }
};


ngx_int_t
ngx_http_modelgw_error(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_uint_t status, const char *code, const char *fmt, ...)
{
    u_char               *p;
    va_list               args;
    ngx_modelgw_error_t  *e;

    e = &ctx->error;

    p = ngx_pnalloc(r->pool, NGX_HTTP_MODELGW_MAX_MESSAGE);
    if (p == NULL) {
        return NGX_ERROR;
    }

    va_start(args, fmt);
    e->message.len = ngx_vslprintf(p, p + NGX_HTTP_MODELGW_MAX_MESSAGE, fmt,
                                   args)
                     - p;
    va_end(args);

    e->message.data = p;
    e->status = status;
    e->code.len = ngx_strlen(code);
    e->code.data = (u_char *) code;

    ngx_modelgw_error_type(status, &e->type);

    return NGX_DECLINED;
}


/* another module may have replaced the error since */

ngx_str_t *
ngx_http_modelgw_reason(ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_reason_t  *reason;

    reason = &ngx_http_modelgw_reasons[ctx->request.reason];

    return (reason->word.len && reason->status == ctx->error.status)
           ? &reason->word : NULL;
}


/* RFC 9110, 15.5.22 and 7.8 */

ngx_int_t
ngx_http_modelgw_reply_upgrade(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_str_t  protocol, option;

    ngx_str_set(&protocol, "HTTP/1.1");
    ngx_str_set(&option, "upgrade");

    if (ngx_http_modelgw_headers_add(r, "Upgrade", &protocol) != NGX_OK
        || ngx_http_modelgw_headers_add(r, "Connection", &option) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_UPGRADE_REQUIRED,
                                  "UPGRADE_REQUIRED",
                                  "WebSocket is not supported; use HTTP");
}


ngx_int_t
ngx_http_modelgw_reply_error(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t  rc;
    ngx_str_t  body;

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                  "refused %ui %V: %V",
                  ctx->error.status, &ctx->error.code, &ctx->error.message);

    /* gives back what the call has taken */
    ngx_http_modelgw_settle(r, ctx);

    /* a client that waits for "100 Continue" may send the body or not, so it
       cannot be told from the next request: RFC 9110, 10.1.1 */

    if (r->headers_in.expect && r->request_body == NULL) {
        r->keepalive = 0;
    }

    r->expect_tested = 1;

    if (ngx_http_discard_request_body(r) != NGX_OK) {
        r->keepalive = 0;
    }

    rc = NGX_HTTP_INTERNAL_SERVER_ERROR;

    if (ngx_http_modelgw_reply_error_header(r, ctx, &body) == NGX_OK) {
        rc = ngx_http_modelgw_reply(r, ctx, &body);
    }

    ngx_http_finalize_request(r, rc);
    return NGX_DONE;
}


ngx_int_t
ngx_http_modelgw_reply_json(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_uint_t status, ngx_str_t *body)
{
    ngx_str_t  type = ngx_string("application/json");

    return ngx_http_modelgw_reply_text(r, ctx, status, &type, body);
}


ngx_int_t
ngx_http_modelgw_reply_text(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_uint_t status, ngx_str_t *type, ngx_str_t *body)
{
    u_char     *p;
    ngx_int_t   rc;

    rc = ngx_http_discard_request_body(r);

    if (rc == NGX_OK) {
        r->headers_out.status = status;
        r->headers_out.content_length_n = body->len;
        r->headers_out.content_type = *type;

        /* without parameters, as "gzip_types" needs it */

        p = ngx_strlchr(type->data, type->data + type->len, ';');

        r->headers_out.content_type_len = p ? (size_t) (p - type->data)
                                            : type->len;

        rc = ngx_http_modelgw_reply(r, ctx, body);
    }

    ngx_http_finalize_request(r, rc);
    return NGX_DONE;
}


static ngx_int_t
ngx_http_modelgw_reply(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_str_t *body)
{
    ngx_int_t     rc;
    ngx_chain_t   out;

    ctx->answer.mode = NGX_HTTP_MODELGW_OWN;

    /* not a document, so conditional requests do not apply */
    r->disable_not_modified = 1;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    if (ngx_http_modelgw_reply_body(r, body, &out) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_output_filter(r, &out);
}


ngx_int_t
ngx_http_modelgw_reply_body(ngx_http_request_t *r, ngx_str_t *body,
    ngx_chain_t *out)
{
    ngx_buf_t  *b;

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->memory = 1;
    b->last_buf = 1;
    b->last_in_chain = 1;
    b->pos = body->data;
    b->last = body->data + body->len;

    out->buf = b;
    out->next = NULL;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_reply_error_header(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *body)
{
    ngx_http_modelgw_loc_conf_t  *mlcf;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    if (ngx_modelgw_error_render(r->pool, &ctx->error,
                                 (mlcf->error_compat == 1)
                                     ? NGX_MODELGW_ERROR_COMPAT
                                     : NGX_MODELGW_ERROR_FLAT,
                                 body)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    r->headers_out.status = ctx->error.status;
    r->headers_out.status_line.len = 0;
    r->err_status = 0;

    ngx_http_clear_content_length(r);
    ngx_http_clear_accept_ranges(r);
    ngx_http_clear_last_modified(r);
    ngx_http_clear_etag(r);
    ngx_http_clear_location(r);

    if (r->headers_out.content_encoding) {
        r->headers_out.content_encoding->hash = 0;
        r->headers_out.content_encoding = NULL;
    }

    r->headers_out.content_length_n = body->len;
    ngx_str_set(&r->headers_out.content_type, "application/json");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;
    r->headers_out.charset.len = 0;

    return ngx_http_modelgw_reply_retry(r, ctx->error.status);
}


/*
 * Without "x-should-retry: false" SDKs and assistants repeat even a 401 for
 * minutes; without Retry-After some do not repeat a 429 at all.
 */

static ngx_int_t
ngx_http_modelgw_reply_retry(ngx_http_request_t *r, ngx_uint_t status)
{
    ngx_str_t  value;

    if (status == NGX_HTTP_TOO_MANY_REQUESTS
        || status == NGX_HTTP_SERVICE_UNAVAILABLE)
    {
        ngx_http_modelgw_headers_take(r, "retry-after", &value);

        if (value.len == 0) {
            ngx_str_set(&value, "1");
        }

        return ngx_http_modelgw_headers_add(r, "Retry-After", &value);
    }

    if (status >= NGX_HTTP_INTERNAL_SERVER_ERROR
        || status == NGX_HTTP_REQUEST_TIME_OUT
        || status == NGX_HTTP_CONFLICT)
    {
        return NGX_OK;
    }

    ngx_http_modelgw_headers_take(r, "x-should-retry", &value);
    ngx_str_set(&value, "false");

    return ngx_http_modelgw_headers_add(r, "x-should-retry", &value);
}


ngx_int_t
ngx_http_modelgw_reply_id(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_str_t  id, other;

    if (ctx->answer.request_id.len) {
        return NGX_OK;
    }

    ngx_http_modelgw_headers_take(r, "x-request-id", &other);
    ngx_http_modelgw_headers_take(r, "request-id", &id);

    if (id.len == 0) {
        id = other;
    }

    if (id.len == 0 && ngx_http_modelgw_reply_own_id(r, &id) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->answer.request_id = id;

    ngx_http_modelgw_settle_id(ctx);

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_reply_own_id(ngx_http_request_t *r, ngx_str_t *id)
{
    ngx_str_t                   name;
    ngx_http_variable_value_t  *v;

    ngx_str_set(&name, "request_id");

    v = ngx_http_get_variable(r, &name, ngx_hash_key(name.data, name.len));

    if (v == NULL || v->not_found) {
        return NGX_ERROR;
    }

    id->len = v->len;
    id->data = v->data;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_reply_ids(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_str_t  *id;

    if (ngx_http_modelgw_reply_id(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    id = &ctx->answer.request_id;

    if (ngx_http_modelgw_headers_add(r, "request-id", id) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_headers_add(r, "x-request-id", id);
}


ngx_int_t
ngx_http_modelgw_reply_ignored(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    /* a refused call was not sent without them */

    if (ctx->call.ignored.len == 0 || ctx->state < NGX_HTTP_MODELGW_READY) {
        return NGX_OK;
    }

    return ngx_http_modelgw_headers_add(r, "x-modelgw-ignored",
                                        &ctx->call.ignored);
}
