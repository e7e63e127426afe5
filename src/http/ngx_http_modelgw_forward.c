
/*
 * What the upstream gets: the address, the client's headers that pass, and the
 * group's credential.
 *
 * $modelgw_upstream has a value once in the life of a request: after the
 * verdict, before any internal redirect, and as the proxy module asks for it:
 * "try_files" would take the request to other locations.  Its getter arms the
 * request: only then the credential is put in, so a location that proxies to
 * anything else by mistake never has it, nor the client's.  The credential is
 * taken out again as soon as the upstream has answered or failed: what is in
 * headers_in is in variables, and so in logs and in other headers.
 *
 * The proxy module sends all of headers_in.headers, whatever the hash, so the
 * verdict makes a new list.  The elements of the old one stay where they are,
 * headers_in points to them: the parts of the new list are runs of them,
 * between those that are dropped, and one part with those that are added.
 * Headers that are not listed are put back when the credential is taken out, so
 * that the access log has them.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_headers.h"


#define NGX_HTTP_MODELGW_HOPS      8
#define NGX_HTTP_MODELGW_HOPS_LEN  512      /* bytes of all values */


/* the values of Connection headers */

typedef struct {
    ngx_str_t                *options[NGX_HTTP_MODELGW_HOPS];
    ngx_uint_t                n;
} ngx_http_modelgw_forward_hops_t;


typedef struct {
    ngx_str_t                 key;
    u_char                   *lowcase;
    ngx_str_t                 value;
    ngx_uint_t                translated;  /* only in calls translated to one
                                              of these protocols; 0: all */
    ngx_uint_t                hash;        /* set by _init() */
} ngx_http_modelgw_forward_header_t;


static ngx_int_t ngx_http_modelgw_forward_options(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_forward_hops_t *hops);
static ngx_int_t ngx_http_modelgw_forward_header(ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_forward_hops_t *hops, ngx_table_elt_t *h);
static ngx_uint_t ngx_http_modelgw_forward_token(ngx_str_t *value,
    ngx_str_t *token);
static ngx_int_t ngx_http_modelgw_forward_append(ngx_list_t *headers,
    ngx_table_elt_t *h);
static ngx_list_part_t *ngx_http_modelgw_forward_part(ngx_list_t *headers,
    ngx_table_elt_t *elts);
static ngx_table_elt_t *ngx_http_modelgw_forward_add(ngx_list_t *headers,
    ngx_uint_t translated);
static ngx_int_t ngx_http_modelgw_forward_arm(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


/*
 * Headers that do not pass in a translated call: they are about the client's
 * API, which is not the upstream's.
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
 * Headers that are added to each call, or to translated calls only.  The first
 * is Content-Type, see ngx_http_modelgw_forward_add().  The body was checked as
 * JSON: the upstream must not read it as anything else.
 */

static ngx_http_modelgw_forward_header_t  ngx_http_modelgw_forward_added[] = {
    { ngx_string("Content-Type"), (u_char *) "content-type",
      ngx_string("application/json"), 0, 0 },
    { ngx_string("Accept-Encoding"), (u_char *) "accept-encoding",
      ngx_string("identity"), 0, 0 },
    { ngx_string("Accept"), (u_char *) "accept",
      ngx_string("application/json, text/event-stream"),
      NGX_MODELGW_CHAT|NGX_MODELGW_MESSAGES, 0 },
    { ngx_string("Anthropic-Version"), (u_char *) "anthropic-version",
      ngx_string("2023-06-01"), NGX_MODELGW_MESSAGES, 0 },

    { ngx_null_string, NULL, ngx_null_string, 0, 0 }
};


/* the path of a translated call, by the upstream's protocol */

static ngx_str_t  ngx_http_modelgw_forward_uris[] = {
    ngx_string("/v1/chat/completions"),
    ngx_string("/v1/messages")
};


void
ngx_http_modelgw_forward_init(void)
{
    ngx_http_modelgw_forward_header_t  *add;

    ngx_http_modelgw_names_index(&ngx_http_modelgw_forward_native,
                                 ngx_http_modelgw_forward_native_list);

    for (add = ngx_http_modelgw_forward_added; add->key.len; add++) {
        add->hash = ngx_hash_key(add->lowcase, add->key.len);
    }
}


ngx_int_t
ngx_http_modelgw_forward_headers(ngx_http_request_t *r,
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
        ctx->upstream.unlisted = ngx_palloc(r->pool, sizeof(ngx_list_part_t));
        if (ctx->upstream.unlisted == NULL) {
            return NGX_ERROR;
        }

        *ctx->upstream.unlisted = unlisted.part;
    }

    h = ngx_http_modelgw_forward_add(&headers, ctx->call.translate
                                               ? ctx->call.protocol : 0);
    if (h == NULL) {
        return NGX_ERROR;
    }

    /* $content_type, which proxy_set_header may use, is that of the new body */

    r->headers_in.content_type = h;

    r->headers_in.headers = headers;

    /* "last" of the copy must not point into this function's frame */

    if (headers.last == &headers.part) {
        r->headers_in.headers.last = &r->headers_in.headers.part;
    }

    return NGX_OK;
}


/*
 * The values of Connection headers name more headers that are hop-by-hop (RFC
 * 9110, 7.6.1).  All names are compared with all options, so their number and
 * length are limited.
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
                                          "Too many Connection headers, or too "
                                          "long ones");
        }

        /* the usual value; the header of that name never passes */

        if (!ngx_http_modelgw_headers_is(&h->value, "keep-alive")) {
            hops->options[hops->n++] = &h->value;
        }
    }

    return NGX_OK;
}


/*
 * A service key never passes, whatever header it is in.
 *     NGX_OK        the header passes
 *     NGX_DECLINED  it does not, since it is not listed
 *     NGX_ABORT     it is dropped
 */

static ngx_int_t
ngx_http_modelgw_forward_header(ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_forward_hops_t *hops, ngx_table_elt_t *h)
{
    ngx_int_t   rc;
    ngx_uint_t  i;

    /* before the name is looked up, which may remember it */

    if (ngx_http_modelgw_headers_holds(&h->key, &ctx->request.secret)) {
        return NGX_ABORT;
    }

    rc = ngx_http_modelgw_pass_header_action(ngx_http_modelgw_ctx_group(ctx),
                                             h);

    if (rc == NGX_ABORT
        || ngx_http_modelgw_headers_holds(&h->value, &ctx->request.secret))
    {
        return NGX_ABORT;
    }

    if (rc == NGX_DECLINED) {
        ngx_http_modelgw_unlisted_count(&h->key);
        return NGX_DECLINED;
    }

    if (ctx->call.translate
        && ngx_http_modelgw_names_find(&ngx_http_modelgw_forward_native,
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


/* whether a comma-separated list has the token, in any case */

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


/* adds an empty part */

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


/*
 * translated: the protocol of a translated call; 0: it is not.  Returns the
 * first of the added headers; NULL if there is no memory.
 */

static ngx_table_elt_t *
ngx_http_modelgw_forward_add(ngx_list_t *headers, ngx_uint_t translated)
{
    ngx_uint_t                          n;
    ngx_table_elt_t                    *h, *first;
    ngx_list_part_t                    *part;
    ngx_http_modelgw_forward_header_t  *add;

    n = sizeof(ngx_http_modelgw_forward_added)
        / sizeof(ngx_http_modelgw_forward_header_t);

    first = ngx_pcalloc(headers->pool, n * sizeof(ngx_table_elt_t));
    if (first == NULL) {
        return NULL;
    }

    part = ngx_http_modelgw_forward_part(headers, first);
    if (part == NULL) {
        return NULL;
    }

    for (add = ngx_http_modelgw_forward_added; add->key.len; add++) {

        if (add->translated && !(add->translated & translated)) {
            continue;
        }

        h = &first[part->nelts++];

        h->key = add->key;
        h->value = add->value;
        h->lowcase_key = add->lowcase;
        h->hash = add->hash;
    }

    headers->nalloc = part->nelts;

    return first;
}


ngx_int_t
ngx_http_modelgw_forward_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                  *p;
    ngx_str_t               *uri, *upstream;
    ngx_http_modelgw_ctx_t  *ctx;

    /* not ngx_http_modelgw_get_ctx(): after a redirect there must be none */

    ctx = ngx_http_get_module_ctx(r, ngx_http_modelgw_module);

    if (r != r->main || r->upstream == NULL
        || ctx == NULL || ctx->state != NGX_HTTP_MODELGW_READY)
    {
        *v = ngx_http_variable_null_value;
        v->no_cacheable = 1;
        return NGX_OK;
    }

    upstream = &ngx_http_modelgw_ctx_group(ctx)->upstream;
    uri = ctx->request.beta ? &ctx->request.endpoint->upstream_uri_beta
                            : &ctx->request.endpoint->upstream_uri;

    if (ctx->call.translate) {
        uri = &ngx_http_modelgw_plan(ngx_http_modelgw_forward_uris,
                                     ctx->call.protocol);
    }

    p = ngx_pnalloc(r->pool, upstream->len + uri->len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    if (ngx_http_modelgw_forward_arm(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->state = NGX_HTTP_MODELGW_FORWARDED;
    ngx_http_modelgw_hold_sent(r, ctx);

    v->data = p;
    v->len = upstream->len + uri->len;
    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;

    p = ngx_cpymem(p, upstream->data, upstream->len);
    ngx_memcpy(p, uri->data, uri->len);

    return NGX_OK;
}


/*
 * Adds the credential as the first part of the list: subrequests have a copy of
 * that part, and share the others.
 */

static ngx_int_t
ngx_http_modelgw_forward_arm(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_list_t                *headers;
    ngx_list_part_t           *part;
    ngx_table_elt_t           *h;
    ngx_http_modelgw_group_t  *group;

    h = ngx_pcalloc(r->pool, sizeof(ngx_table_elt_t) + sizeof(ngx_list_part_t));
    if (h == NULL) {
        return NGX_ERROR;
    }

    headers = &r->headers_in.headers;
    part = (ngx_list_part_t *) (h + 1);
    *part = headers->part;

    if (headers->last == &headers->part) {
        headers->last = part;
    }

    headers->part.elts = h;
    headers->part.nelts = 1;
    headers->part.next = part;

    group = ngx_http_modelgw_ctx_group(ctx);

    h->key = group->header;
    h->value = group->header_value;
    h->lowcase_key = group->header_lowcase.data;
    h->hash = group->header_hash;

    ctx->upstream.credential = h;

    return NGX_OK;
}


void
ngx_http_modelgw_forward_disarm(ngx_http_modelgw_ctx_t *ctx)
{
    if (ctx->upstream.unlisted) {
        ctx->main->headers_in.headers.last->next = ctx->upstream.unlisted;
        ctx->upstream.unlisted = NULL;
    }

    if (ctx->upstream.credential) {
        ctx->upstream.credential->hash = 0;
        ngx_str_null(&ctx->upstream.credential->value);
        ctx->upstream.credential = NULL;
    }
}
