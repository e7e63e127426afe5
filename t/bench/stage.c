
/*
 * A module of the benchmark: stops the gateway after a stage, so that the cost
 * of each stage can be measured.
 *
 *     bench_stage key|request;            server
 *
 * key      the key is checked; then @plain takes the request, whose body is
 *          neither scanned nor rewritten.  The redirect is some hundred
 *          instructions that the gateway has not
 * request  the request is fully processed; the answer passes unchanged
 *
 * It must be loaded after the gateway's module: handlers and filters that were
 * added last run first.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"


#define STAGE_KEY      1
#define STAGE_REQUEST  2


typedef struct {
    ngx_uint_t  stage;
} stage_conf_t;


static void *stage_create(ngx_conf_t *cf);
static ngx_int_t stage_init(ngx_conf_t *cf);
static ngx_int_t stage_handler(ngx_http_request_t *r);
static ngx_int_t stage_header_filter(ngx_http_request_t *r);


static ngx_http_output_header_filter_pt  next_header_filter;


static ngx_conf_enum_t  stages[] = {
    { ngx_string("key"), STAGE_KEY },
    { ngx_string("request"), STAGE_REQUEST },
    { ngx_null_string, 0 }
};


static ngx_command_t  stage_commands[] = {

    { ngx_string("bench_stage"),
      NGX_HTTP_SRV_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_enum_slot,
      NGX_HTTP_SRV_CONF_OFFSET,
      offsetof(stage_conf_t, stage),
      stages },

      ngx_null_command
};


static ngx_http_module_t  stage_ctx = {
    NULL,                          /* preconfiguration */
    stage_init,                    /* postconfiguration */
    NULL,                          /* create main configuration */
    NULL,                          /* init main configuration */
    stage_create,                  /* create server configuration */
    NULL,                          /* merge server configuration */
    NULL,                          /* create location configuration */
    NULL                           /* merge location configuration */
};


static ngx_module_t  stage_module = {
    NGX_MODULE_V1,
    &stage_ctx,
    stage_commands,
    NGX_HTTP_MODULE,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NGX_MODULE_V1_PADDING
};


/* symbols of a dynamic module, which auto/module makes for others */

ngx_module_t  *ngx_modules[] = { &stage_module, NULL };
char          *ngx_module_names[] = { "ngx_http_bench_stage_module", NULL };
char          *ngx_module_order[] = { NULL };


static void *
stage_create(ngx_conf_t *cf)
{
    stage_conf_t  *conf;

    conf = ngx_palloc(cf->pool, sizeof(stage_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    conf->stage = NGX_CONF_UNSET_UINT;

    return conf;
}


static ngx_int_t
stage_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = stage_handler;

    next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = stage_header_filter;

    return NGX_OK;
}


/*
 * "nginx -t" refuses a gateway location whose "proxy_pass" is not to
 * $modelgw_upstream, hence another location.  The gateway lets no call that it
 * knows go there: to its next handlers and filters the call is a new one.
 */

static ngx_int_t
stage_handler(ngx_http_request_t *r)
{
    stage_conf_t            *conf;
    ngx_http_modelgw_ctx_t  *ctx;

    static ngx_str_t  plain = ngx_string("@plain");

    conf = ngx_http_get_module_srv_conf(r, stage_module);

    if (conf->stage != STAGE_KEY || r->internal) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_modelgw_get_ctx(r);

    if (ctx != NULL) {
        ctx->state = NGX_HTTP_MODELGW_NEW;
    }

    (void) ngx_http_named_location(r, &plain);
    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_DONE;
}


static ngx_int_t
stage_header_filter(ngx_http_request_t *r)
{
    stage_conf_t            *conf;
    ngx_http_modelgw_ctx_t  *ctx;

    conf = ngx_http_get_module_srv_conf(r, stage_module);
    ctx = ngx_http_modelgw_get_ctx(r);

    if (conf->stage == STAGE_REQUEST && ctx != NULL) {
        ctx->state = NGX_HTTP_MODELGW_NEW;
    }

    return next_header_filter(r);
}
