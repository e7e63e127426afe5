
/*
 * Cross-origin calls of pages in browsers (WHATWG Fetch, 3.3): modelgw_cors.
 *
 * A preflight is answered before a key is looked for: it never has one.  All
 * other responses in a gateway location have the headers, whoever made them,
 * since without them a page cannot read an error.  So have errors of requests
 * that have reached no location, if the server has modelgw_cors.
 *
 * Access-Control-Allow-Credentials is never sent: keys are in headers that the
 * page sets itself, and no cookie is read.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_headers.h"


/* bytes of a list of names that is repeated, at most */

#define NGX_HTTP_MODELGW_CORS_NAMES  2048


/* what the request has */

typedef struct {
    ngx_str_t    origin;                 /* len 0: none, or more than one */
    ngx_str_t    method;                 /* Access-Control-Request-Method */
    ngx_str_t    names;                  /* Access-Control-Request-Headers; len
                                            0: none, or no list of names */
    ngx_uint_t   origins;                /* how many there are */
    ngx_uint_t   lists;
    ngx_uint_t   local;                  /* 1: a private network is asked for */
} ngx_http_modelgw_cors_t;


static ngx_array_t *ngx_http_modelgw_cors_conf(ngx_http_request_t *r);
static void ngx_http_modelgw_cors_read(ngx_http_request_t *r,
    ngx_http_modelgw_cors_t *cors);
static ngx_uint_t ngx_http_modelgw_cors_names(ngx_str_t *value);
static ngx_str_t *ngx_http_modelgw_cors_allowed(ngx_array_t *conf,
    ngx_str_t *origin);


/* those that this module sends, and those of upstreams that it passes on */

static ngx_str_t  ngx_http_modelgw_cors_exposed = ngx_string(
    "request-id, x-request-id, retry-after, retry-after-ms, x-should-retry, "
    "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
    "x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
    "x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, "
    "anthropic-ratelimit-requests-limit, "
    "anthropic-ratelimit-requests-remaining, "
    "anthropic-ratelimit-requests-reset, anthropic-ratelimit-tokens-limit, "
    "anthropic-ratelimit-tokens-remaining, anthropic-ratelimit-tokens-reset, "
    "x-modelgw-budget-remaining, x-modelgw-ignored, openai-processing-ms, "
    "openai-version, anthropic-version, allow");


ngx_uint_t
ngx_http_modelgw_cors_preflight(ngx_http_request_t *r)
{
    ngx_http_modelgw_cors_t  cors;

    if (r->method != NGX_HTTP_OPTIONS || ngx_http_modelgw_cors_conf(r) == NULL)
    {
        return 0;
    }

    ngx_http_modelgw_cors_read(r, &cors);

    return cors.origins && cors.method.len;
}


ngx_int_t
ngx_http_modelgw_cors_reply(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_str_t                value, empty;
    ngx_http_modelgw_cors_t  cors;

    ngx_http_modelgw_cors_read(r, &cors);

    if (ngx_http_modelgw_cors_allowed(ngx_http_modelgw_cors_conf(r),
                                      &cors.origin)
        == NULL)
    {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_FORBIDDEN, "FORBIDDEN",
                                      "The origin is not allowed");
    }

    ngx_str_set(&value, "GET, POST, OPTIONS");

    if (ngx_http_modelgw_headers_add(r, "Access-Control-Allow-Methods", &value)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (cors.names.len
        && ngx_http_modelgw_headers_add(r, "Access-Control-Allow-Headers",
                                        &cors.names)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_str_set(&value, "86400");

    if (ngx_http_modelgw_headers_add(r, "Access-Control-Max-Age", &value)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_str_set(&value, "true");

    if (cors.local
        && ngx_http_modelgw_headers_add(r,
                                        "Access-Control-Allow-Private-Network",
                                        &value)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_str_null(&empty);

    return ngx_http_modelgw_reply_json(r, ctx, NGX_HTTP_NO_CONTENT, &empty);
}


ngx_int_t
ngx_http_modelgw_cors_headers(ngx_http_request_t *r)
{
    ngx_str_t                *allowed, vary;
    ngx_array_t              *conf;
    ngx_http_modelgw_cors_t   cors;

    conf = ngx_http_modelgw_cors_conf(r);

    if (conf == NULL) {
        return NGX_OK;
    }

    ngx_str_set(&vary, "Origin");

    if (r->method == NGX_HTTP_OPTIONS) {
        ngx_str_set(&vary, "Origin, Access-Control-Request-Headers");
    }

    if (ngx_http_modelgw_headers_add(r, "Vary", &vary) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_modelgw_cors_read(r, &cors);

    allowed = ngx_http_modelgw_cors_allowed(conf, &cors.origin);

    if (allowed == NULL) {
        return NGX_OK;
    }

    if (ngx_http_modelgw_headers_add(r, "Access-Control-Allow-Origin", allowed)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (r->headers_out.status == NGX_HTTP_NO_CONTENT) {
        return NGX_OK;
    }

    return ngx_http_modelgw_headers_add(r, "Access-Control-Expose-Headers",
                                        &ngx_http_modelgw_cors_exposed);
}


/*
 * The origins that apply, or NULL.  An error from before a location is found
 * has the configuration of the server, which has no name.
 */

static ngx_array_t *
ngx_http_modelgw_cors_conf(ngx_http_request_t *r)
{
    ngx_http_core_loc_conf_t     *clcf;
    ngx_http_modelgw_loc_conf_t  *mlcf;
    ngx_http_modelgw_srv_conf_t  *mscf;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    if (mlcf->enable == 1) {
        return mlcf->cors;
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    mscf = ngx_http_get_module_srv_conf(r, ngx_http_modelgw_module);

    return (clcf->name.len == 0 && mscf->cors
            && r->headers_out.status >= NGX_HTTP_BAD_REQUEST)
           ? mlcf->cors : NULL;
}


static void
ngx_http_modelgw_cors_read(ngx_http_request_t *r,
    ngx_http_modelgw_cors_t *cors)
{
    ngx_table_elt_t             *h;
    ngx_http_modelgw_headers_t   hs;

    ngx_memzero(cors, sizeof(ngx_http_modelgw_cors_t));

    ngx_http_modelgw_headers_init(&hs, &r->headers_in.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (ngx_http_modelgw_headers_is(&h->key, "origin")) {
            cors->origin = h->value;
            cors->origins++;

        } else if (ngx_http_modelgw_headers_is(&h->key,
                                               "access-control-request-method"))
        {
            cors->method = h->value;

        } else if (ngx_http_modelgw_headers_is(&h->key,
                                              "access-control-request-headers"))
        {
            cors->names = h->value;
            cors->lists++;

        } else if (ngx_http_modelgw_headers_is(&h->key,
                                      "access-control-request-private-network"))
        {
            cors->local = ngx_http_modelgw_headers_is(&h->value, "true");
        }
    }

    if (cors->origins > 1) {
        cors->origin.len = 0;
    }

    if (cors->lists > 1 || !ngx_http_modelgw_cors_names(&cors->names)) {
        cors->names.len = 0;
    }
}


/* whether the value is tokens (RFC 9110, 5.6.2), commas and blanks */

static ngx_uint_t
ngx_http_modelgw_cors_names(ngx_str_t *value)
{
    u_char  c, lc, *p;

    if (value->len > NGX_HTTP_MODELGW_CORS_NAMES) {
        return 0;
    }

    for (p = value->data; p < value->data + value->len; p++) {
        c = *p;
        lc = (u_char) (c | 0x20);

        if ((lc >= 'a' && lc <= 'z') || (c >= '0' && c <= '9')) {
            continue;
        }

        if (c == '\0' || ngx_strchr("!#$%&'*+-.^_`|~, \t", c) == NULL) {
            return 0;
        }
    }

    return 1;
}


/* returns the value of Access-Control-Allow-Origin; NULL: none */

static ngx_str_t *
ngx_http_modelgw_cors_allowed(ngx_array_t *conf, ngx_str_t *origin)
{
    ngx_str_t  *name;

    name = conf->elts;

    if (name->len == 1) {
        return name;
    }

    return ngx_http_modelgw_conf_listed(conf, origin) ? origin : NULL;
}
