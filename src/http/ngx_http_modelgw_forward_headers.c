
/*
 * The headers that the upstream gets of a request, all but the credential.
 *
 * They are passed on by a new list, since the proxy module writes all that is
 * in headers_in.headers, whatever its hash.  Elements of the old list stay
 * where they are: headers_in points to them.  So the parts of the new one are
 * runs of those, between what is dropped, and one part for what is added.
 *
 * Headers that are not listed are in variables, and so in the access log, again
 * as soon as the upstream has answered or failed.
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
    ngx_uint_t                hash;      /* set by _init() */
} ngx_http_modelgw_forward_header_t;


static ngx_list_part_t *ngx_http_modelgw_forward_part(ngx_list_t *headers,
    ngx_table_elt_t *elts);
static ngx_table_elt_t *ngx_http_modelgw_forward_add(ngx_list_t *headers,
    ngx_uint_t translate);
static ngx_int_t ngx_http_modelgw_forward_append(ngx_list_t *headers,
    ngx_table_elt_t *h);
static ngx_int_t ngx_http_modelgw_forward_header(ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_forward_hops_t *hops, ngx_table_elt_t *h);
static ngx_int_t ngx_http_modelgw_forward_options(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_forward_hops_t *hops);
static ngx_uint_t ngx_http_modelgw_forward_token(ngx_str_t *value,
    ngx_str_t *token);


/*
 * These do not pass in a translated call: they are about the API that the
 * client speaks, which is not the upstream's.
 */

static ngx_http_modelgw_name_t  ngx_http_modelgw_forward_native_list[] = {
    { ngx_string("accept"), 0, NULL },
    { ngx_string("openai-"), 1, NULL },
    { ngx_string("anthropic-"), 1, NULL },
    { ngx_string("x-stainless-"), 1, NULL },
    { ngx_null_string, 0, NULL }
};

static ngx_http_modelgw_names_t  ngx_http_modelgw_forward_native;


/*
 * Headers that are added to each call: the body was checked as JSON, so the
 * upstream must not read it as anything else.  Those after the first two are
 * added to translated calls only.
 */

#define NGX_HTTP_MODELGW_FORWARD_ADDED       2
#define NGX_HTTP_MODELGW_FORWARD_TRANSLATED  4

static ngx_http_modelgw_forward_header_t
    ngx_http_modelgw_forward_added[NGX_HTTP_MODELGW_FORWARD_TRANSLATED] =
{
    { ngx_string("Content-Type"), (u_char *) "content-type",
      ngx_string("application/json"), 0 },
    { ngx_string("Accept-Encoding"), (u_char *) "accept-encoding",
      ngx_string("identity"), 0 },
    { ngx_string("Accept"), (u_char *) "accept",
      ngx_string("application/json, text/event-stream"), 0 },
    { ngx_string("Anthropic-Version"), (u_char *) "anthropic-version",
      ngx_string("2023-06-01"), 0 }
};


void
ngx_http_modelgw_forward_headers_init(void)
{
    ngx_uint_t                          i;
    ngx_http_modelgw_forward_header_t  *add;

    ngx_http_modelgw_headers_index(&ngx_http_modelgw_forward_native,
                                   ngx_http_modelgw_forward_native_list);

    for (i = 0; i < NGX_HTTP_MODELGW_FORWARD_TRANSLATED; i++) {
        add = &ngx_http_modelgw_forward_added[i];
        add->hash = ngx_hash_key(add->lowcase, add->key.len);
    }
}


ngx_int_t
ngx_http_modelgw_forward_headers_in(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                         rc;
    ngx_list_t                        headers, unlisted;
    ngx_table_elt_t                  *h;
    ngx_http_modelgw_headers_t        hs;
    ngx_http_modelgw_forward_hops_t   hops;

    rc = ngx_http_modelgw_forward_options(r, ctx, &hops);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_memzero(&headers, sizeof(ngx_list_t));

    headers.size = sizeof(ngx_table_elt_t);
    headers.pool = r->pool;

    unlisted = headers;

    ngx_http_modelgw_headers_init(&hs, &r->headers_in.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        rc = ngx_http_modelgw_forward_header(ctx, &hops, h);

        if (rc == NGX_ABORT) {
            continue;
        }

        if (ngx_http_modelgw_forward_append(rc == NGX_OK ? &headers : &unlisted,
                                            h)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (unlisted.last) {
        ctx->unlisted = ngx_palloc(r->pool, sizeof(ngx_list_part_t));
        if (ctx->unlisted == NULL) {
            return NGX_ERROR;
        }

        *ctx->unlisted = unlisted.part;
    }

    h = ngx_http_modelgw_forward_add(&headers, ctx->translate);
    if (h == NULL) {
        return NGX_ERROR;
    }

    /* $content_type, which a proxy_set_header may have, is what is sent */

    r->headers_in.content_type = h;

    r->headers_in.headers = headers;

    /* "last" of the copy must not point into this function's frame */

    if (headers.last == &headers.part) {
        r->headers_in.headers.last = &r->headers_in.headers.part;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_forward_append(ngx_list_t *headers, ngx_table_elt_t *h)
{
    ngx_list_part_t  *part;

    part = headers->last;

    if (part == NULL || (ngx_table_elt_t *) part->elts + part->nelts != h) {

        part = ngx_http_modelgw_forward_part(headers, h);
        if (part == NULL) {
            return NGX_ERROR;
        }
    }

    part->nelts++;

    return NGX_OK;
}


/* a part of the list, that has no elements yet */

static ngx_list_part_t *
ngx_http_modelgw_forward_part(ngx_list_t *headers, ngx_table_elt_t *elts)
{
    ngx_list_part_t  *part;

    if (headers->last == NULL) {
        part = &headers->part;

    } else {
        part = ngx_palloc(headers->pool, sizeof(ngx_list_part_t));
        if (part == NULL) {
            return NULL;
        }

        headers->last->next = part;
    }

    part->elts = elts;
    part->nelts = 0;
    part->next = NULL;

    headers->last = part;

    return part;
}


/* Returns the first of the headers that were added; NULL: no memory. */

static ngx_table_elt_t *
ngx_http_modelgw_forward_add(ngx_list_t *headers, ngx_uint_t translate)
{
    ngx_uint_t                          i, n;
    ngx_table_elt_t                    *h;
    ngx_list_part_t                    *part;
    ngx_http_modelgw_forward_header_t  *add;

    add = ngx_http_modelgw_forward_added;

    n = translate ? NGX_HTTP_MODELGW_FORWARD_TRANSLATED
                  : NGX_HTTP_MODELGW_FORWARD_ADDED;

    h = ngx_pcalloc(headers->pool, n * sizeof(ngx_table_elt_t));
    if (h == NULL) {
        return NULL;
    }

    part = ngx_http_modelgw_forward_part(headers, h);
    if (part == NULL) {
        return NULL;
    }

    part->nelts = n;
    headers->nalloc = n;

    for (i = 0; i < n; i++) {
        h[i].key = add[i].key;
        h[i].value = add[i].value;
        h[i].lowcase_key = add[i].lowcase;
        h[i].hash = add[i].hash;
    }

    return h;
}


/*
 * A service key never passes, whatever header a client put it in.
 *     NGX_OK        the header passes
 *     NGX_DECLINED  it is not listed
 *     NGX_ABORT     it is dropped
 */

static ngx_int_t
ngx_http_modelgw_forward_header(ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_forward_hops_t *hops, ngx_table_elt_t *h)
{
    ngx_uint_t  i;

    if (ngx_http_modelgw_pass_header_own(ctx->group, &h->key)
        || ngx_http_modelgw_headers_holds(&h->key, &ctx->secret)
        || ngx_http_modelgw_headers_holds(&h->value, &ctx->secret))
    {
        return NGX_ABORT;
    }

    if (!ngx_http_modelgw_pass_header_listed(ctx->group, &h->key)) {
        ngx_http_modelgw_unlisted_count(&h->key);
        return NGX_DECLINED;
    }

    if (ctx->translate
        && ngx_http_modelgw_headers_listed(&ngx_http_modelgw_forward_native,
                                           &h->key))
    {
        return NGX_ABORT;
    }

    for (i = 0; i < hops->n; i++) {
        if (ngx_http_modelgw_forward_token(hops->options[i], &h->key)) {
            return NGX_ABORT;
        }
    }

    return NGX_OK;
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
    ngx_uint_t                   n;
    ngx_table_elt_t             *h;
    ngx_http_modelgw_headers_t   hs;

    n = 0;
    len = 0;
    hops->n = 0;

    ngx_http_modelgw_headers_init(&hs, &r->headers_in.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (!ngx_http_modelgw_headers_is(&h->key, "connection")) {
            continue;
        }

        len += h->value.len;

        if (n++ == NGX_HTTP_MODELGW_HOPS
            || len > NGX_HTTP_MODELGW_HOPS_LEN)
        {
            return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                          "INVALID_REQUEST",
                                          "The Connection header is too long");
        }

        /* what most clients say names a header that is dropped anyway */

        if (!ngx_http_modelgw_headers_is(&h->value, "keep-alive")) {
            hops->options[hops->n++] = &h->value;
        }
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
