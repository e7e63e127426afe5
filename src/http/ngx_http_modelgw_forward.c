
/*
 * Where the upstream gets the request, and the group's credential.
 *
 * $modelgw_upstream has a value once in a request's life: after the verdict,
 * and before any internal redirect.  Giving it out is what arms the request:
 * only then the group's credential is put in.  A location that by mistake
 * proxies to anything else never holds it, nor the client's.  It is taken off
 * as soon as the upstream has answered or failed: what is in headers_in is in
 * variables, and so in logs and other headers.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_ledger.h"


static ngx_int_t ngx_http_modelgw_forward_arm(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


/* of a translated call */

static ngx_str_t  ngx_http_modelgw_translated_uri = ngx_string("/v1/messages");


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


/* in the first part, the only one that a subrequest does not share */

static ngx_int_t
ngx_http_modelgw_forward_arm(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_list_t       *headers;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

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
    h->key = ctx->group->header;
    h->value = ctx->group->header_value;
    h->lowcase_key = ctx->group->header_lowcase.data;
    h->hash = ctx->group->header_hash;

    ctx->credential = h;

    return NGX_OK;
}


void
ngx_http_modelgw_forward_disarm(ngx_http_modelgw_ctx_t *ctx)
{
    if (ctx->unlisted) {
        ctx->request->headers_in.headers.last->next = ctx->unlisted;
        ctx->unlisted = NULL;
    }

    if (ctx->credential) {
        ctx->credential->hash = 0;
        ngx_str_null(&ctx->credential->value);
        ctx->credential = NULL;
    }
}
