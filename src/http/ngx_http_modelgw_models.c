
/*
 * GET /v1/models and GET /v1/models/{id}: the models that the key may use.
 *
 * Patterns are not listed, they are no models; an id that one matches has a
 * model object all the same.  What does not exist and what is not enabled get
 * the same bytes.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_document.h"

#include "ngx_http_modelgw.h"


#define NGX_HTTP_MODELGW_LIST_HEAD    "{\"object\":\"list\",\"data\":["
#define NGX_HTTP_MODELGW_LIST_TAIL    "]}"
#define NGX_HTTP_MODELGW_OBJECT_ID    "{\"id\":"
#define NGX_HTTP_MODELGW_OBJECT_KIND  ",\"object\":\"model\",\"owned_by\":"
#define NGX_HTTP_MODELGW_OBJECT_TAIL  "}"


static ngx_int_t ngx_http_modelgw_models_list(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_models_one(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id);
static size_t ngx_http_modelgw_models_len(ngx_str_t *id, ngx_str_t *owner);
static u_char *ngx_http_modelgw_models_write(u_char *p, ngx_str_t *id,
    ngx_str_t *owner);


ngx_int_t
ngx_http_modelgw_models(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_str_t  id;

    id.len = r->uri.len - ctx->endpoint->uri.len;
    id.data = r->uri.data + ctx->endpoint->uri.len;

    return id.len ? ngx_http_modelgw_models_one(r, ctx, &id)
                  : ngx_http_modelgw_models_list(r, ctx);
}


static ngx_int_t
ngx_http_modelgw_models_list(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    size_t                     len;
    u_char                    *p;
    ngx_str_t                  body, *owner;
    ngx_uint_t                 i, n;
    ngx_http_modelgw_model_t  *models;

    models = ctx->group->models.elts;
    n = ctx->group->models.nelts;
    owner = &ctx->group->owned_by;

    len = sizeof(NGX_HTTP_MODELGW_LIST_HEAD NGX_HTTP_MODELGW_LIST_TAIL) - 1;

    for (i = 0; i < n; i++) {
        len += ngx_http_modelgw_models_len(&models[i].id, owner) + 1;
    }

    body.data = ngx_pnalloc(r->pool, len);
    if (body.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    p = ngx_cpymem(body.data, NGX_HTTP_MODELGW_LIST_HEAD,
                   sizeof(NGX_HTTP_MODELGW_LIST_HEAD) - 1);

    for (i = 0; i < n; i++) {

        if (!ngx_http_modelgw_model_enabled(ctx->key, &models[i].id)) {
            continue;
        }

        if (p[-1] != '[') {
            *p++ = ',';
        }

        p = ngx_http_modelgw_models_write(p, &models[i].id, owner);
    }

    p = ngx_cpymem(p, NGX_HTTP_MODELGW_LIST_TAIL,
                   sizeof(NGX_HTTP_MODELGW_LIST_TAIL) - 1);

    body.len = p - body.data;

    return ngx_http_modelgw_reply_json(r, ctx, &body);
}


static ngx_int_t
ngx_http_modelgw_models_one(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_str_t *id)
{
    ngx_int_t                  rc;
    ngx_str_t                  body, upstream_id;
    ngx_http_modelgw_model_t  *model;

    rc = ngx_http_modelgw_model_find(r->pool, ctx->group, id, &model,
                                     &upstream_id);

    if (rc == NGX_OK && ngx_http_modelgw_model_enabled(ctx->key, id)) {

        body.len = ngx_http_modelgw_models_len(id, &ctx->group->owned_by);
        body.data = ngx_pnalloc(r->pool, body.len);
        if (body.data == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        (void) ngx_http_modelgw_models_write(body.data, id,
                                             &ctx->group->owned_by);

        return ngx_http_modelgw_reply_json(r, ctx, &body);
    }

    if (rc == NGX_ERROR
        || ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                  "The model does not exist or is not enabled "
                                  "for this key")
           == NGX_ERROR)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_modelgw_reply_error(r, ctx);
}


/* the object has these three members and no others (clients.md) */

static size_t
ngx_http_modelgw_models_len(ngx_str_t *id, ngx_str_t *owner)
{
    return sizeof(NGX_HTTP_MODELGW_OBJECT_ID NGX_HTTP_MODELGW_OBJECT_KIND
                  NGX_HTTP_MODELGW_OBJECT_TAIL) - 1
           + ngx_modelgw_json_str_len(id) + ngx_modelgw_json_str_len(owner);
}


static u_char *
ngx_http_modelgw_models_write(u_char *p, ngx_str_t *id, ngx_str_t *owner)
{
    p = ngx_cpymem(p, NGX_HTTP_MODELGW_OBJECT_ID,
                   sizeof(NGX_HTTP_MODELGW_OBJECT_ID) - 1);
    p = ngx_modelgw_json_str(p, id);
    p = ngx_cpymem(p, NGX_HTTP_MODELGW_OBJECT_KIND,
                   sizeof(NGX_HTTP_MODELGW_OBJECT_KIND) - 1);
    p = ngx_modelgw_json_str(p, owner);

    return ngx_cpymem(p, NGX_HTTP_MODELGW_OBJECT_TAIL,
                      sizeof(NGX_HTTP_MODELGW_OBJECT_TAIL) - 1);
}
