
/*
 * The request as the upstream gets it, and the headers of its answer.
 *
 * $modelgw_upstream has a value once in a request's life: after the verdict,
 * and before any internal redirect.  Giving it out is what arms the request:
 * only then the group's credential is put in.  A location that by mistake
 * proxies to anything else never holds it, nor the client's.
 *
 * Headers are passed on by a new list, since the proxy module writes all that
 * is in headers_in.headers, whatever its hash.  Elements of the old list stay
 * where they are: headers_in points to them.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_headers.h"


static ngx_int_t ngx_http_modelgw_upstream_push(ngx_list_t *headers,
    ngx_table_elt_t *h);
static ngx_uint_t ngx_http_modelgw_upstream_dropped(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_table_elt_t *h);
static ngx_uint_t ngx_http_modelgw_upstream_listed(ngx_str_t *list,
    ngx_str_t *name);
static ngx_uint_t ngx_http_modelgw_upstream_connection(ngx_http_request_t *r,
    ngx_str_t *name);
static ngx_uint_t ngx_http_modelgw_upstream_token(ngx_str_t *value,
    ngx_str_t *token);
static ngx_uint_t ngx_http_modelgw_upstream_holds(ngx_str_t *value,
    ngx_str_t *secret);
static ngx_int_t ngx_http_modelgw_upstream_retry_after(ngx_table_elt_t *h);
static time_t ngx_http_modelgw_upstream_seconds(ngx_str_t *value);


/*
 * Headers of the client that stay here; "-" at the end makes a prefix.  Hop by
 * hop: RFC 9110, 7.6.1.  Ranges and conditions are for documents: nginx would
 * apply them to the answer.
 */

static ngx_str_t  ngx_http_modelgw_dropped_in[] = {

    /* credentials */
    ngx_string("authorization"),
    ngx_string("x-api-key"),
    ngx_string("api-key"),
    ngx_string("x-goog-api-key"),
    ngx_string("cookie"),
    ngx_string("cookie2"),

    /* hop by hop */
    ngx_string("connection"),
    ngx_string("keep-alive"),
    ngx_string("proxy-"),
    ngx_string("te"),
    ngx_string("trailer"),
    ngx_string("transfer-encoding"),
    ngx_string("upgrade"),
    ngx_string("http2-settings"),
    ngx_string("expect"),

    /* framing and target: the proxy module's */
    ngx_string("host"),
    ngx_string("content-length"),

    /* forwarding */
    ngx_string("forwarded"),
    ngx_string("x-forwarded-"),
    ngx_string("x-real-ip"),
    ngx_string("x-client-ip"),
    ngx_string("true-client-ip"),
    ngx_string("x-cluster-client-ip"),
    ngx_string("via"),
    ngx_string("x-accel-"),
    ngx_string("early-data"),

    /* encoding */
    ngx_string("accept-encoding"),
    ngx_string("content-encoding"),

    /* ranges and conditions */
    ngx_string("range"),
    ngx_string("if-range"),
    ngx_string("if-match"),
    ngx_string("if-none-match"),
    ngx_string("if-modified-since"),
    ngx_string("if-unmodified-since"),

    ngx_null_string
};


/*
 * Headers of an upstream's answer that clients get; what nginx makes itself
 * (type, length, date, server) is not in the list of headers.  Rate limits that
 * the upstream tells are the operator's, not the key's.
 */

static ngx_str_t  ngx_http_modelgw_passed_out[] = {
    ngx_string("request-id"),
    ngx_string("x-request-id"),
    ngx_string("retry-after"),
    ngx_string("retry-after-ms"),
    ngx_string("x-should-retry"),
    ngx_string("cache-control"),
    ngx_string("openai-processing-ms"),
    ngx_string("openai-version"),
    ngx_string("anthropic-version"),
    ngx_null_string
};


ngx_int_t
ngx_http_modelgw_upstream_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                  *p;
    ngx_str_t               *uri, *upstream;
    ngx_table_elt_t          h;
    ngx_http_modelgw_ctx_t  *ctx;

    /* not ngx_http_modelgw_get_ctx(): a redirect has to lose it */

    ctx = ngx_http_get_module_ctx(r, ngx_http_modelgw_module);

    if (r != r->main || ctx == NULL || !ctx->verdict || ctx->forwarded) {
        *v = ngx_http_variable_null_value;
        v->no_cacheable = 1;
        return NGX_OK;
    }

    upstream = &ctx->group->upstream;
    uri = ctx->beta ? &ctx->endpoint->upstream_uri_beta
                    : &ctx->endpoint->upstream_uri;

    p = ngx_pnalloc(r->pool, upstream->len + uri->len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(&h, sizeof(ngx_table_elt_t));

    h.key = ctx->group->header;
    h.value = ctx->group->header_value;
    h.lowcase_key = ctx->group->header_lowcase.data;
    h.hash = ctx->group->header_hash;

    if (ngx_http_modelgw_upstream_push(&r->headers_in.headers, &h) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->forwarded = 1;

    v->data = p;
    v->len = upstream->len + uri->len;
    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;

    p = ngx_cpymem(p, upstream->data, upstream->len);
    ngx_memcpy(p, uri->data, uri->len);

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_upstream_headers_in(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_list_t                   headers;
    ngx_table_elt_t             *h, add;
    ngx_http_modelgw_headers_t   hs;

    if (ngx_list_init(&headers, r->pool, 20, sizeof(ngx_table_elt_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_modelgw_headers_init(&hs, &r->headers_in.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (!ngx_http_modelgw_upstream_dropped(r, ctx, h)
            && ngx_http_modelgw_upstream_push(&headers, h) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    ngx_memzero(&add, sizeof(ngx_table_elt_t));

    ngx_str_set(&add.key, "Accept-Encoding");
    ngx_str_set(&add.value, "identity");
    add.lowcase_key = (u_char *) "accept-encoding";
    add.hash = ngx_hash_key(add.lowcase_key, add.key.len);

    if (ngx_http_modelgw_upstream_push(&headers, &add) != NGX_OK) {
        return NGX_ERROR;
    }

    r->headers_in.headers = headers;

    /* "last" of the copy must not point into this function's frame */

    if (headers.last == &headers.part) {
        r->headers_in.headers.last = &r->headers_in.headers.part;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_upstream_push(ngx_list_t *headers, ngx_table_elt_t *h)
{
    ngx_table_elt_t  *new;

    new = ngx_list_push(headers);
    if (new == NULL) {
        return NGX_ERROR;
    }

    *new = *h;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_modelgw_upstream_dropped(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_table_elt_t *h)
{
    ngx_str_t  name;

    name.len = h->key.len;
    name.data = h->lowcase_key;

    return ngx_http_modelgw_upstream_listed(ngx_http_modelgw_dropped_in, &name)
           || (name.len == ctx->group->header_lowcase.len
               && ngx_memcmp(name.data, ctx->group->header_lowcase.data,
                             name.len)
                  == 0)
           || ngx_http_modelgw_upstream_connection(r, &name);
}


static ngx_uint_t
ngx_http_modelgw_upstream_listed(ngx_str_t *list, ngx_str_t *name)
{
    for ( /* void */ ; list->len; list++) {

        if (name->len < list->len
            || (name->len > list->len && list->data[list->len - 1] != '-'))
        {
            continue;
        }

        if (ngx_strncasecmp(name->data, list->data, list->len) == 0) {
            return 1;
        }
    }

    return 0;
}


/* whether a Connection header names it: RFC 9110, 7.6.1 */

static ngx_uint_t
ngx_http_modelgw_upstream_connection(ngx_http_request_t *r, ngx_str_t *name)
{
    ngx_table_elt_t             *h;
    ngx_http_modelgw_headers_t   hs;

    ngx_http_modelgw_headers_init(&hs, &r->headers_in.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (ngx_http_modelgw_headers_is(h, "connection")
            && ngx_http_modelgw_upstream_token(&h->value, name))
        {
            return 1;
        }
    }

    return 0;
}


/* whether a list that is separated by commas has the token */

static ngx_uint_t
ngx_http_modelgw_upstream_token(ngx_str_t *value, ngx_str_t *token)
{
    u_char  *p, *last, *end;

    last = value->data + value->len;

    for (p = value->data; p < last; p = end + 1) {

        end = ngx_strlchr(p, last, ',');
        if (end == NULL) {
            end = last;
        }

        while (p < end && (*p == ' ' || *p == '\t')) {
            p++;
        }

        if ((size_t) (end - p) >= token->len
            && ngx_strncasecmp(p, token->data, token->len) == 0
            && (p + token->len == end || p[token->len] == ' '
                || p[token->len] == '\t'))
        {
            return 1;
        }
    }

    return 0;
}


void
ngx_http_modelgw_upstream_stop(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    /* ngx_http_upstream_process_non_buffered_request() finalizes at length 0
       as soon as we return; what is unread must not meet the next request */

    u->length = 0;
    u->keepalive = 0;
}


void
ngx_http_modelgw_upstream_headers_out(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_table_elt_t             *h;
    ngx_http_modelgw_headers_t   hs;

    /* the header filter writes this one, whatever its hash */
    ngx_http_clear_location(r);

    ngx_http_modelgw_headers_init(&hs, &r->headers_out.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (!ngx_http_modelgw_upstream_listed(ngx_http_modelgw_passed_out,
                                              &h->key)
            || ngx_http_modelgw_upstream_holds(&h->value, &ctx->group->secret)
            || ngx_http_modelgw_upstream_retry_after(h) != NGX_OK)
        {
            h->hash = 0;
        }
    }
}


/* an upstream may echo what it was sent */

static ngx_uint_t
ngx_http_modelgw_upstream_holds(ngx_str_t *value, ngx_str_t *secret)
{
    size_t  i;

    for (i = 0; i + secret->len <= value->len; i++) {
        if (ngx_memcmp(value->data + i, secret->data, secret->len) == 0) {
            return 1;
        }
    }

    return 0;
}


/*
 * Clients get whole seconds, 1 to 60: some really wait for hours, and some take
 * a date for none at all (clients.md, 3.3).
 *     NGX_OK        another header, or one that is fit now
 *     NGX_DECLINED  it says nothing
 */

static ngx_int_t
ngx_http_modelgw_upstream_retry_after(ngx_table_elt_t *h)
{
    time_t  n;

    if (ngx_http_modelgw_headers_is(h, "retry-after-ms")) {
        n = ngx_atotm(h->value.data, h->value.len);

        return (n >= 0 && n <= 60000) ? NGX_OK : NGX_DECLINED;
    }

    if (!ngx_http_modelgw_headers_is(h, "retry-after")) {
        return NGX_OK;
    }

    n = ngx_http_modelgw_upstream_seconds(&h->value);

    if (n == NGX_ERROR) {
        return NGX_DECLINED;
    }

    /* not longer than it was: one digit, several, or a date */

    h->value.len = ngx_sprintf(h->value.data, "%T", n) - h->value.data;

    return NGX_OK;
}


/*
 * Seconds, however many digits they have, or a date (RFC 9110, 10.2.3), as 1 to
 * 60; NGX_ERROR: neither.
 */

static time_t
ngx_http_modelgw_upstream_seconds(ngx_str_t *value)
{
    u_char      c;
    time_t      n;
    ngx_uint_t  i;

    n = 0;

    for (i = 0; i < value->len; i++) {
        c = value->data[i];

        if (c < '0' || c > '9') {
            break;
        }

        n = ngx_min(n * 10 + c - '0', 60);
    }

    if (i == 0 || i < value->len) {
        n = ngx_parse_http_time(value->data, value->len);

        if (n == NGX_ERROR) {
            return NGX_ERROR;
        }

        n = ngx_min(n - ngx_time(), 60);
    }

    return ngx_max(n, 1);
}


ngx_int_t
ngx_http_modelgw_upstream_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, ngx_str_t *body)
{
    ngx_uint_t                level;
    ngx_modelgw_error_mask_t  mask;

    mask.upstream_model = ctx->upstream_id;
    mask.service_model = ctx->service_id;
    mask.upstream_host = ctx->group->host;
    mask.credential = ctx->group->secret;

    if (ngx_modelgw_error_upstream(r->pool, status, body,
                                   ctx->endpoint->protocol, &mask, &ctx->error)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    level = NGX_LOG_INFO;

    if (ctx->error.loud) {
        level = NGX_LOG_ERR;
    }

    ngx_log_error(level, r->connection->log, 0,
                  "upstream of group \"%V\" answered %ui for model \"%V\", "
                  "client gets %ui %V",
                  &ctx->group->name, status, &ctx->upstream_id,
                  ctx->error.status, &ctx->error.code);

    return NGX_OK;
}
