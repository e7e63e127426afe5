
/*
 * GET /v1/models and GET /v1/models/{id}: the models that the key may use.
 *
 * Patterns are not listed, but an id that one matches has a model object.  The
 * answer for a model that does not exist is the same as for one that is not
 * enabled.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_out.h"

#include "ngx_http_modelgw.h"


#define NGX_HTTP_MODELGW_MODELS_SIZE  1024   /* bytes allocated at first */


static ngx_int_t ngx_http_modelgw_models_list(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_models_one(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id);
static void ngx_http_modelgw_models_write(ngx_modelgw_out_t *out,
    ngx_str_t *id, ngx_str_t *owner, ngx_http_modelgw_model_t *model);


ngx_int_t
ngx_http_modelgw_models(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    return ctx->request.id.len
           ? ngx_http_modelgw_models_one(r, ctx, &ctx->request.id)
           : ngx_http_modelgw_models_list(r, ctx);
}


static ngx_int_t
ngx_http_modelgw_models_list(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_str_t                  body;
    ngx_uint_t                 i, n;
    ngx_modelgw_out_t          out;
    ngx_modelgw_out_piece_t    piece;
    ngx_http_modelgw_group_t  *group;
    ngx_http_modelgw_model_t  *models;

    group = ngx_http_modelgw_ctx_group(ctx);
    models = group->models.elts;

    ngx_modelgw_out_piece(&out, &piece, r->pool, NGX_HTTP_MODELGW_MODELS_SIZE);
    ngx_modelgw_out_text(&out, "{\"object\":\"list\",\"data\":[");

    for (i = 0, n = 0; i < group->models.nelts; i++) {

        if (!ngx_http_modelgw_model_enabled(ctx->request.key, &models[i].id)) {
            continue;
        }

        if (n++) {
            ngx_modelgw_out_text(&out, ",");
        }

        ngx_http_modelgw_models_write(&out, &models[i].id, &group->owned_by,
                                      &models[i]);
    }

    ngx_modelgw_out_text(&out, "]}");

    if (ngx_modelgw_out_piece_done(&out, &body) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_modelgw_reply_json(r, ctx, NGX_HTTP_OK, &body);
}


static ngx_int_t
ngx_http_modelgw_models_one(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_str_t *id)
{
    ngx_int_t                  rc;
    ngx_str_t                  body, upstream_id;
    ngx_modelgw_out_t          out;
    ngx_modelgw_out_piece_t    piece;
    ngx_http_modelgw_group_t  *group;
    ngx_http_modelgw_model_t  *model;

    group = ngx_http_modelgw_ctx_group(ctx);

    rc = ngx_http_modelgw_model_find(r->pool, group, id, &model, &upstream_id);

    if (rc == NGX_OK && ngx_http_modelgw_model_enabled(ctx->request.key, id)) {

        ngx_modelgw_out_piece(&out, &piece, r->pool,
                              NGX_HTTP_MODELGW_MODELS_SIZE);
        ngx_http_modelgw_models_write(&out, id, &group->owned_by, model);

        if (ngx_modelgw_out_piece_done(&out, &body) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return ngx_http_modelgw_reply_json(r, ctx, NGX_HTTP_OK, &body);
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


/* the object has three members: id, object, owned_by; and kind, if not chat */

static void
ngx_http_modelgw_models_write(ngx_modelgw_out_t *out, ngx_str_t *id,
    ngx_str_t *owner, ngx_http_modelgw_model_t *model)
{
    ngx_modelgw_out_text(out, "{\"id\":");
    ngx_modelgw_out_string(out, id);
    ngx_modelgw_out_text(out, ",\"object\":\"model\",\"owned_by\":");
    ngx_modelgw_out_string(out, owner);

    if (model->embedding) {
        ngx_modelgw_out_text(out, ",\"kind\":\"embedding\"");
    }

    ngx_modelgw_out_text(out, "}");
}
