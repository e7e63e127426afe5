
/*
 * The table of contents of the module: directives, contexts, and what it
 * registers with nginx.  There is no logic here.  Each stage of a request is
 * in the file of src/http/ with the name of the stage, see ngx_http_modelgw.h.
 *
 * Phase handlers and filters are registered only if the configuration uses
 * them: an nginx that merely loads the module is not affected by it.
 */


#include "ngx_modelgw_sse.h"
#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"
#include "ngx_http_modelgw_metrics.h"
#include "ngx_http_modelgw_zone.h"


static ngx_int_t ngx_http_modelgw_preconfiguration(ngx_conf_t *cf);
static char *ngx_http_modelgw_check_main(ngx_conf_t *cf, void *conf);
static char *ngx_http_modelgw_check_location(ngx_conf_t *cf, void *parent,
    void *child);
static ngx_int_t ngx_http_modelgw_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_modelgw_add_handler(ngx_conf_t *cf,
    ngx_http_phases phase, ngx_http_handler_pt handler);
static ngx_int_t ngx_http_modelgw_init_module(ngx_cycle_t *cycle);
static void ngx_http_modelgw_exit_process(ngx_cycle_t *cycle);


static ngx_conf_num_bounds_t  ngx_http_modelgw_max_event_size = {
    ngx_conf_check_num_bounds, NGX_MODELGW_SSE_MIN_EVENT, -1
};


static ngx_command_t  ngx_http_modelgw_commands[] = {

    { ngx_string("modelgw_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_modelgw_set_zone,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_modelgw_main_conf_t, zone_size),
      NULL },

    { ngx_string("modelgw_ledger"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE123,
      ngx_http_modelgw_set_ledger,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("modelgw_cluster"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_modelgw_set_cluster,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("modelgw_managed_keys"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_modelgw_set_managed,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_modelgw_main_conf_t, managed_max),
      NULL },

    { ngx_string("modelgw_founding_credit"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_modelgw_set_founding,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_modelgw_main_conf_t, founding),
      NULL },

    { ngx_string("modelgw_key_prefix"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_modelgw_set_key_prefix,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_modelgw_main_conf_t, key_prefix),
      NULL },

    { ngx_string("modelgw_group"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_BLOCK|NGX_CONF_TAKE1,
      ngx_http_modelgw_group,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("modelgw_keys"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_BLOCK|NGX_CONF_NOARGS,
      ngx_http_modelgw_keys,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("modelgw_operators"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_BLOCK|NGX_CONF_NOARGS,
      ngx_http_modelgw_operators,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("modelgw"),
      NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_http_modelgw_set_enable,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_modelgw_loc_conf_t, enable),
      NULL },

    { ngx_string("modelgw_flat_errors"),
      NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_modelgw_loc_conf_t, flat_errors),
      NULL },

    { ngx_string("modelgw_error_compat"),
      NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_modelgw_loc_conf_t, error_compat),
      NULL },

    { ngx_string("modelgw_translate_strict"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_modelgw_loc_conf_t, translate_strict),
      NULL },

    { ngx_string("modelgw_aliases"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_modelgw_loc_conf_t, aliases),
      NULL },

    { ngx_string("modelgw_memo"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_modelgw_loc_conf_t, memo),
      NULL },

    { ngx_string("modelgw_cors"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_modelgw_set_cors,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("modelgw_max_event_size"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_size_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_modelgw_loc_conf_t, max_event_size),
      &ngx_http_modelgw_max_event_size },

    { ngx_string("modelgw_abort"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_modelgw_set_abort,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_modelgw_loc_conf_t, abort),
      NULL },

    { ngx_string("modelgw_abort_timeout"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_modelgw_loc_conf_t, abort_timeout),
      NULL },

    { ngx_string("modelgw_keepalive"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_modelgw_set_keepalive,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("modelgw_admin"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS|NGX_CONF_TAKE2,
      ngx_http_modelgw_set_admin,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("modelgw_topup_url"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_modelgw_set_url,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_modelgw_loc_conf_t, topup_url),
      NULL },

    { ngx_string("modelgw_gateway_url"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_modelgw_set_url,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_modelgw_loc_conf_t, gateway_url),
      NULL },

    { ngx_string("modelgw_ready"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_modelgw_set_ready,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("modelgw_metrics_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_modelgw_set_zone,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_modelgw_main_conf_t, metrics_size),
      NULL },

    { ngx_string("modelgw_metrics"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS|NGX_CONF_TAKE12,
      ngx_http_modelgw_set_metrics,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_modelgw_module_ctx = {
    ngx_http_modelgw_preconfiguration,     /* preconfiguration */
    ngx_http_modelgw_init,                 /* postconfiguration */

    ngx_http_modelgw_create_main_conf,     /* create main configuration */
    ngx_http_modelgw_check_main,           /* init main configuration */

    ngx_http_modelgw_create_srv_conf,      /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_modelgw_create_loc_conf,      /* create location configuration */
    ngx_http_modelgw_check_location        /* merge location configuration */
};


ngx_module_t  ngx_http_modelgw_module = {
    NGX_MODULE_V1,
    &ngx_http_modelgw_module_ctx,          /* module context */
    ngx_http_modelgw_commands,             /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_modelgw_init_module,          /* init module */
    ngx_http_modelgw_process_init,         /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_modelgw_exit_process,         /* exit process */
    ngx_http_modelgw_process_exit_master,  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_int_t
ngx_http_modelgw_preconfiguration(ngx_conf_t *cf)
{
    ngx_http_modelgw_pass_header_init();

    if (ngx_http_modelgw_lint_proxy(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_add_variables(cf);
}


/* The end of the http block, before locations are merged. */

static char *
ngx_http_modelgw_check_main(ngx_conf_t *cf, void *conf)
{
    ngx_http_modelgw_main_conf_t *mmcf = conf;

    if (ngx_http_modelgw_init_main_conf(cf, mmcf) != NGX_CONF_OK
        || ngx_http_modelgw_zone_check(cf, mmcf) != NGX_OK
        || ngx_http_modelgw_health_check(cf, mmcf) != NGX_OK
        || ngx_http_modelgw_sessions_check(cf, mmcf) != NGX_OK
        || ngx_http_modelgw_zone_metrics_check(cf, mmcf) != NGX_OK
        || ngx_http_modelgw_verdict_plans(cf, mmcf) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    ngx_http_modelgw_retry_init(mmcf);

    return NGX_CONF_OK;
}


static char *
ngx_http_modelgw_check_location(ngx_conf_t *cf, void *parent, void *child)
{
    if (ngx_http_modelgw_merge_loc_conf(cf, parent, child) != NGX_CONF_OK
        || ngx_http_modelgw_admin_location(cf, parent, child) != NGX_CONF_OK
        || ngx_http_modelgw_ready_location(cf, parent, child) != NGX_CONF_OK
        || ngx_http_modelgw_metrics_location(cf, parent, child) != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    return ngx_http_modelgw_check_loc_conf(cf, child);
}


static ngx_int_t
ngx_http_modelgw_init(ngx_conf_t *cf)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_modelgw_module);

    if (!mmcf->used) {
        return NGX_OK;
    }

    if (ngx_http_modelgw_add_handler(cf, NGX_HTTP_ACCESS_PHASE,
                                     ngx_http_modelgw_access_handler)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_http_modelgw_add_handler(cf, NGX_HTTP_PRECONTENT_PHASE,
                                     ngx_http_modelgw_precontent_handler)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_modelgw_lint_aliases(cf);

    if (ngx_http_modelgw_log_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_modelgw_body_filter_init();
    ngx_http_modelgw_filter_init();
    ngx_http_modelgw_forward_init();
    ngx_http_modelgw_upstream_init();

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_add_handler(ngx_conf_t *cf, ngx_http_phases phase,
    ngx_http_handler_pt handler)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[phase].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = handler;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_init_module(ngx_cycle_t *cycle)
{
    ngx_http_modelgw_zone_metrics_in_force(cycle);

    return ngx_http_modelgw_zone_in_force(cycle);
}


static void
ngx_http_modelgw_exit_process(ngx_cycle_t *cycle)
{
    ngx_http_modelgw_unlisted_log(cycle->log);
    ngx_http_modelgw_process_exit(cycle);
}
