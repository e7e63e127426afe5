
/*
 * The headers that the upstream gets of a request, all but the credential.
 *
 * They are passed on by a new list, since the proxy module writes all that is
 * in headers_in.headers, whatever its hash.  Elements of the old list stay
 * where they are: headers_in points to them.  So the parts of the new one are
 * runs of those, between what is dropped, and one part for what is added.
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

static ngx_http_modelgw_name_t  ngx_http_modelgw_dropped_in_list[] = {

    /* credentials */
    { ngx_string("authorization"), NULL },
    { ngx_string("x-api-key"), NULL },
    { ngx_string("api-key"), NULL },
    { ngx_string("x-goog-api-key"), NULL },
    { ngx_string("cookie"), NULL },
    { ngx_string("cookie2"), NULL },

    /* hop by hop */
    { ngx_string("connection"), NULL },
    { ngx_string("keep-alive"), NULL },
    { ngx_string("proxy-"), NULL },
    { ngx_string("te"), NULL },
    { ngx_string("trailer"), NULL },
    { ngx_string("transfer-encoding"), NULL },
    { ngx_string("upgrade"), NULL },
    { ngx_string("http2-settings"), NULL },
    { ngx_string("expect"), NULL },

    /* framing and target: the proxy module's */
    { ngx_string("host"), NULL },
    { ngx_string("content-length"), NULL },
    { ngx_string("content-type"), NULL },

    /* forwarding */
    { ngx_string("forwarded"), NULL },
    { ngx_string("x-forwarded-"), NULL },
    { ngx_string("x-real-ip"), NULL },
    { ngx_string("x-client-ip"), NULL },
    { ngx_string("true-client-ip"), NULL },
    { ngx_string("x-cluster-client-ip"), NULL },
    { ngx_string("via"), NULL },
    { ngx_string("x-accel-"), NULL },
    { ngx_string("early-data"), NULL },

    /* encoding */
    { ngx_string("accept-encoding"), NULL },
    { ngx_string("content-encoding"), NULL },

    /* ranges and conditions */
    { ngx_string("range"), NULL },
    { ngx_string("if-range"), NULL },
    { ngx_string("if-match"), NULL },
    { ngx_string("if-none-match"), NULL },
    { ngx_string("if-modified-since"), NULL },
    { ngx_string("if-unmodified-since"), NULL },

    { ngx_null_string, NULL }
};

static ngx_http_modelgw_names_t  ngx_http_modelgw_dropped_in;


/*
 * A translated call: what is about the API that the client believes to speak
 * stays here, too, and what a client of the messages API says is said.
 */

static ngx_http_modelgw_name_t  ngx_http_modelgw_translated_dropped_list[] = {
    { ngx_string("openai-"), NULL },
    { ngx_string("x-stainless-"), NULL },
    { ngx_string("anthropic-"), NULL },
    { ngx_string("accept"), NULL },
    { ngx_null_string, NULL }
};

static ngx_http_modelgw_names_t  ngx_http_modelgw_translated_dropped;


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

    ngx_http_modelgw_headers_index(&ngx_http_modelgw_dropped_in,
                                   ngx_http_modelgw_dropped_in_list);
    ngx_http_modelgw_headers_index(&ngx_http_modelgw_translated_dropped,
                                   ngx_http_modelgw_translated_dropped_list);

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
    ngx_list_t                        headers;
    ngx_table_elt_t                  *h;
    ngx_list_part_t                  *run;
    ngx_http_modelgw_headers_t        hs;
    ngx_http_modelgw_forward_hops_t   hops;

    rc = ngx_http_modelgw_forward_options(r, ctx, &hops);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_memzero(&headers, sizeof(ngx_list_t));

    headers.size = sizeof(ngx_table_elt_t);
    headers.pool = r->pool;

    run = NULL;

    ngx_http_modelgw_headers_init(&hs, &r->headers_in.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (ngx_http_modelgw_forward_dropped(ctx, &hops, h)) {
            continue;
        }

        if (run && (ngx_table_elt_t *) run->elts + run->nelts == h) {
            run->nelts++;
            continue;
        }

        run = ngx_http_modelgw_forward_part(&headers, h);
        if (run == NULL) {
            return NGX_ERROR;
        }

        run->nelts = 1;
    }

    h = ngx_http_modelgw_forward_add(&headers, ctx->translate);
    if (h == NULL) {
        return NGX_ERROR;
    }

    /* $content_type, which a proxy_set_header may name, is what is sent */

    r->headers_in.content_type = h;

    r->headers_in.headers = headers;

    /* "last" of the copy must not point into this function's frame */

    if (headers.last == &headers.part) {
        r->headers_in.headers.last = &r->headers_in.headers.part;
    }

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
 * Names compare with "_" as "-": to CGI and its kin they are the same.  And a
 * service key is no upstream's business, whatever header a client put it in.
 */

static ngx_uint_t
ngx_http_modelgw_forward_dropped(ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_forward_hops_t *hops, ngx_table_elt_t *h)
{
    ngx_uint_t  i;

    if (ctx->translate
        && ngx_http_modelgw_headers_listed(&ngx_http_modelgw_translated_dropped,
                                           &h->key))
    {
        return 1;
    }

    if (ngx_http_modelgw_headers_listed(&ngx_http_modelgw_dropped_in, &h->key)
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
