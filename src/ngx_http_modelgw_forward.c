
/*
 * The request as the upstream gets it: where it goes, and with which headers.
 *
 * $modelgw_upstream has a value once in a request's life: after the verdict,
 * and before any internal redirect.  Giving it out is what arms the request:
 * only then the group's credential is put in.  A location that by mistake
 * proxies to anything else never holds it, nor the client's.  It is taken off
 * as soon as the upstream has answered or failed: what is in headers_in is in
 * variables, and so in logs and other headers.
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


#define NGX_HTTP_MODELGW_HOPS      8
#define NGX_HTTP_MODELGW_HOPS_LEN  512


typedef struct {
    ngx_str_t                *options[NGX_HTTP_MODELGW_HOPS];
    ngx_uint_t                n;
} ngx_http_modelgw_forward_hops_t;


typedef struct {
    ngx_str_t                 key;
    u_char                   *lowcase;
    ngx_str_t                 value;
} ngx_http_modelgw_forward_header_t;


static ngx_int_t ngx_http_modelgw_forward_arm(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_forward_cleanup(void *data);
static ngx_int_t ngx_http_modelgw_forward_push(ngx_list_t *headers,
    ngx_table_elt_t *h);
static ngx_int_t ngx_http_modelgw_forward_add(ngx_list_t *headers,
    ngx_http_modelgw_forward_header_t *add);
static ngx_uint_t ngx_http_modelgw_forward_dropped(ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_forward_hops_t *hops, ngx_table_elt_t *h);
static ngx_int_t ngx_http_modelgw_forward_options(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_forward_hops_t *hops);
static ngx_uint_t ngx_http_modelgw_forward_token(ngx_str_t *value,
    ngx_str_t *token);


/*
 * Headers of the client that stay here.  Hop by hop: RFC 9110, 7.6.1.  Ranges
 * and conditions are for documents: nginx would apply them to the answer.
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
 * A translated call: what is about the API that the client believes to speak
 * stays here, too, and what a client of the messages API says is said.
 */

static ngx_str_t  ngx_http_modelgw_translated_uri = ngx_string("/v1/messages");

static ngx_str_t  ngx_http_modelgw_translated_dropped[] = {
    ngx_string("openai-"),
    ngx_string("x-stainless-"),
    ngx_string("anthropic-"),
    ngx_string("accept"),
    ngx_string("content-type"),
    ngx_null_string
};


static ngx_http_modelgw_forward_header_t  ngx_http_modelgw_forwarded[] = {
    { ngx_string("Accept-Encoding"), (u_char *) "accept-encoding",
      ngx_string("identity") },
    { ngx_null_string, NULL, ngx_null_string }
};


static ngx_http_modelgw_forward_header_t  ngx_http_modelgw_translated[] = {
    { ngx_string("Accept-Encoding"), (u_char *) "accept-encoding",
      ngx_string("identity") },
    { ngx_string("Accept"), (u_char *) "accept",
      ngx_string("application/json, text/event-stream") },
    { ngx_string("Content-Type"), (u_char *) "content-type",
      ngx_string("application/json") },
    { ngx_string("Anthropic-Version"), (u_char *) "anthropic-version",
      ngx_string("2023-06-01") },
    { ngx_null_string, NULL, ngx_null_string }
};


ngx_int_t
ngx_http_modelgw_forward_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                  *p;
    ngx_str_t               *uri, *upstream;
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

    if (ctx->translate) {
        uri = &ngx_http_modelgw_translated_uri;
    }

    p = ngx_pnalloc(r->pool, upstream->len + uri->len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    if (ngx_http_modelgw_forward_arm(r, ctx) != NGX_OK) {
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


static ngx_int_t
ngx_http_modelgw_forward_arm(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_table_elt_t     *h;
    ngx_http_cleanup_t  *cln;

    /* runs before the access log is written */

    cln = ngx_http_cleanup_add(r, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_modelgw_forward_cleanup;
    cln->data = ctx;

    h = ngx_list_push(&r->headers_in.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->key = ctx->group->header;
    h->value = ctx->group->header_value;
    h->lowcase_key = ctx->group->header_lowcase.data;
    h->hash = ctx->group->header_hash;

    ctx->credential = h;

    return NGX_OK;
}


static void
ngx_http_modelgw_forward_cleanup(void *data)
{
    ngx_http_modelgw_forward_disarm(data);
}


void
ngx_http_modelgw_forward_disarm(ngx_http_modelgw_ctx_t *ctx)
{
    if (ctx->credential) {
        ctx->credential->hash = 0;
        ngx_str_null(&ctx->credential->value);
        ctx->credential = NULL;
    }
}


ngx_int_t
ngx_http_modelgw_forward_headers_in(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                           rc;
    ngx_list_t                          headers;
    ngx_table_elt_t                    *h;
    ngx_http_modelgw_headers_t          hs;
    ngx_http_modelgw_forward_hops_t     hops;
    ngx_http_modelgw_forward_header_t  *add;

    rc = ngx_http_modelgw_forward_options(r, ctx, &hops);
    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_list_init(&headers, r->pool, 20, sizeof(ngx_table_elt_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_modelgw_headers_init(&hs, &r->headers_in.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (!ngx_http_modelgw_forward_dropped(ctx, &hops, h)
            && ngx_http_modelgw_forward_push(&headers, h) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    add = ctx->translate ? ngx_http_modelgw_translated
                         : ngx_http_modelgw_forwarded;

    for ( /* void */ ; add->key.len; add++) {
        if (ngx_http_modelgw_forward_add(&headers, add) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    r->headers_in.headers = headers;

    /* "last" of the copy must not point into this function's frame */

    if (headers.last == &headers.part) {
        r->headers_in.headers.last = &r->headers_in.headers.part;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_forward_push(ngx_list_t *headers, ngx_table_elt_t *h)
{
    ngx_table_elt_t  *new;

    new = ngx_list_push(headers);
    if (new == NULL) {
        return NGX_ERROR;
    }

    *new = *h;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_forward_add(ngx_list_t *headers,
    ngx_http_modelgw_forward_header_t *add)
{
    ngx_table_elt_t  h;

    ngx_memzero(&h, sizeof(ngx_table_elt_t));

    h.key = add->key;
    h.value = add->value;
    h.lowcase_key = add->lowcase;
    h.hash = ngx_hash_key(add->lowcase, add->key.len);

    return ngx_http_modelgw_forward_push(headers, &h);
}


/*
 * Names compare with "_" as "-": to CGI and its kin they are the same.  And a
 * service key is no upstream's business, whatever header a client put it in.
 */

static ngx_uint_t
ngx_http_modelgw_forward_dropped(ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_forward_hops_t *hops, ngx_table_elt_t *h)
{
    ngx_uint_t  i;

    if (ctx->translate
        && ngx_http_modelgw_headers_listed(ngx_http_modelgw_translated_dropped,
                                           &h->key))
    {
        return 1;
    }

    if (ngx_http_modelgw_headers_listed(ngx_http_modelgw_dropped_in, &h->key)
        || ngx_http_modelgw_headers_same(&ctx->group->header_lowcase, &h->key)
        || ngx_http_modelgw_headers_holds(&h->value, &ctx->secret))
    {
        return 1;
    }

    for (i = 0; i < hops->n; i++) {
        if (ngx_http_modelgw_forward_token(hops->options[i], &h->key)) {
            return 1;
        }
    }

    return 0;
}


/*
 * The Connection headers, whose values name more headers that are hop by hop:
 * RFC 9110, 7.6.1.  Honest ones are few and short; a bound on them is one on
 * the time it takes to compare all names with all options.
 */

static ngx_int_t
ngx_http_modelgw_forward_options(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_forward_hops_t *hops)
{
    size_t                       len;
    ngx_table_elt_t             *h;
    ngx_http_modelgw_headers_t   hs;

    len = 0;
    hops->n = 0;

    ngx_http_modelgw_headers_init(&hs, &r->headers_in.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (!ngx_http_modelgw_headers_is(h, "connection")) {
            continue;
        }

        len += h->value.len;

        if (hops->n == NGX_HTTP_MODELGW_HOPS
            || len > NGX_HTTP_MODELGW_HOPS_LEN)
        {
            return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                          "INVALID_REQUEST",
                                          "The Connection header is too long");
        }

        hops->options[hops->n++] = &h->value;
    }

    return NGX_OK;
}


/* whether a list that is separated by commas has the token */

static ngx_uint_t
ngx_http_modelgw_forward_token(ngx_str_t *value, ngx_str_t *token)
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
