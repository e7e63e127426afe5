
/*
 * A module for tests.  A filter after the gateway's replaces an answer by 403,
 * as nginx's image filter does:
 *
 *     test_finalize header|body;          location
 *
 * header   at the header
 * body     the header is held, and the answer replaced as its body comes
 *
 * The content handler of the directive before this one is used at run time,
 * while nginx -t checks the last one of the location:
 *
 *     test_handler;                       location
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


#define FINALIZE_HEADER  1
#define FINALIZE_BODY    2


typedef struct {
    ngx_uint_t           when;
    ngx_http_handler_pt  handler;
} finalize_conf_t;


static char *finalize_handler(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static void *finalize_create(ngx_conf_t *cf);
static ngx_int_t finalize_init(ngx_conf_t *cf);
static ngx_int_t finalize_access(ngx_http_request_t *r);
static ngx_int_t finalize_header_filter(ngx_http_request_t *r);
static ngx_int_t finalize_body_filter(ngx_http_request_t *r, ngx_chain_t *in);
static ngx_uint_t finalize_when(ngx_http_request_t *r);


static ngx_http_output_header_filter_pt  next_header_filter;
static ngx_http_output_body_filter_pt    next_body_filter;


static ngx_conf_enum_t  finalize_whens[] = {
    { ngx_string("header"), FINALIZE_HEADER },
    { ngx_string("body"), FINALIZE_BODY },
    { ngx_null_string, 0 }
};


static ngx_command_t  finalize_commands[] = {

    { ngx_string("test_finalize"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_enum_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(finalize_conf_t, when),
      finalize_whens },

    { ngx_string("test_handler"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      finalize_handler,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  finalize_ctx = {
    NULL,                          /* preconfiguration */
    finalize_init,                 /* postconfiguration */
    NULL,                          /* create main configuration */
    NULL,                          /* init main configuration */
    NULL,                          /* create server configuration */
    NULL,                          /* merge server configuration */
    finalize_create,               /* create location configuration */
    NULL                           /* merge location configuration */
};


static ngx_module_t  finalize_module = {
    NGX_MODULE_V1,
    &finalize_ctx,
    finalize_commands,
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


/* auto/module makes these for other modules; filters run in reverse order */

ngx_module_t  *ngx_modules[] = { &finalize_module, NULL };
char          *ngx_module_names[] = { "ngx_http_test_finalize_module", NULL };
char          *ngx_module_order[] = {
    "ngx_http_test_finalize_module",
    "ngx_http_modelgw_module",
    NULL
};


static char *
finalize_handler(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    finalize_conf_t           *fcf = conf;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    fcf->handler = clcf->handler;

    return NGX_CONF_OK;
}


static void *
finalize_create(ngx_conf_t *cf)
{
    finalize_conf_t  *conf;

    conf = ngx_palloc(cf->pool, sizeof(finalize_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    conf->when = NGX_CONF_UNSET_UINT;
    conf->handler = NULL;

    return conf;
}


static ngx_int_t
finalize_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_ACCESS_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = finalize_access;

    next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = finalize_header_filter;

    next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = finalize_body_filter;

    return NGX_OK;
}


static ngx_int_t
finalize_access(ngx_http_request_t *r)
{
    finalize_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, finalize_module);

    if (conf->handler) {
        r->content_handler = conf->handler;
    }

    return NGX_DECLINED;
}


static ngx_int_t
finalize_header_filter(ngx_http_request_t *r)
{
    switch (finalize_when(r)) {

    case FINALIZE_HEADER:
        return ngx_http_filter_finalize_request(r, &finalize_module,
                                                NGX_HTTP_FORBIDDEN);

    case FINALIZE_BODY:
        return NGX_OK;

    default: /* NGX_CONF_UNSET_UINT */
        return next_header_filter(r);
    }
}


static ngx_int_t
finalize_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    if (finalize_when(r) == FINALIZE_BODY) {
        return ngx_http_filter_finalize_request(r, &finalize_module,
                                                NGX_HTTP_FORBIDDEN);
    }

    return next_body_filter(r, in);
}


/* once for each request: the new answer passes here, too */

static ngx_uint_t
finalize_when(ngx_http_request_t *r)
{
    finalize_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, finalize_module);

    return r->filter_finalize ? NGX_CONF_UNSET_UINT : conf->when;
}
