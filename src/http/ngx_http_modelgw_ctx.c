
/*
 * The context of a request, from its first phase to its access log.
 *
 * It is also found by a cleanup handler of the request's pool: an internal
 * redirect zeroes r->ctx, and without the context the filter would pass an
 * upstream's error page unchanged.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"


static void ngx_http_modelgw_ctx_mark(void *data);
static void ngx_http_modelgw_ctx_end(void *data);


ngx_http_modelgw_ctx_t *
ngx_http_modelgw_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t      *cln;
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_modelgw_module);

    if (ctx != NULL || (!r->internal && !r->filter_finalize)) {
        return ctx;
    }

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_modelgw_ctx_mark) {
            return cln->data;
        }
    }

    return NULL;
}


ngx_http_modelgw_ctx_t *
ngx_http_modelgw_create_ctx(ngx_http_request_t *r)
{
    ngx_http_cleanup_t           *end;
    ngx_pool_cleanup_t           *cln;
    ngx_http_modelgw_ctx_t       *ctx;
    ngx_http_modelgw_loc_conf_t  *mlcf;

    end = ngx_http_cleanup_add(r, 0);
    if (end == NULL) {
        return NULL;
    }

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_modelgw_ctx_t));
    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;
    ngx_memzero(ctx, sizeof(ngx_http_modelgw_ctx_t));

    ngx_modelgw_usage_init(&ctx->answer.usage);
    ctx->upstream.rc = NGX_AGAIN;
    ctx->answer.first_byte = (ngx_msec_t) -1;
    ctx->request.http_version = r->http_version;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    ctx->main = r;
    ctx->gateway = (mlcf->enable == 1);

    cln->handler = ngx_http_modelgw_ctx_mark;

    end->handler = ngx_http_modelgw_ctx_end;
    end->data = ctx;

    ngx_http_set_ctx(r, ctx, ngx_http_modelgw_module);

    ngx_http_modelgw_log_begin(r, ctx);

    return ctx;
}


/* only marks the context among the cleanups of the pool */

static void
ngx_http_modelgw_ctx_mark(void *data)
{
}


/* called before the access log is written */

static void
ngx_http_modelgw_ctx_end(void *data)
{
    ngx_http_modelgw_ctx_t *ctx = data;

    ngx_http_modelgw_forward_disarm(ctx);
    ngx_http_modelgw_settle(ctx->main, ctx);
    ngx_http_modelgw_upstream_end(ctx->main, ctx);
    ngx_http_modelgw_count_request(ctx->main, ctx);
}
