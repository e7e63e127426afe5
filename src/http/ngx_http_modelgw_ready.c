
/*
 * modelgw_ready: a location that says whether this worker admits calls, for
 * load balancers.  It needs no credentials and tells nothing else.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_headers.h"
#include "ngx_http_modelgw_zone.h"


static ngx_int_t ngx_http_modelgw_ready_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_modelgw_ready_check(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


char *
ngx_http_modelgw_set_ready(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_loc_conf_t *mlcf = conf;

    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_modelgw_main_conf_t  *mmcf;

    if (mlcf->ready.line) {
        return "is duplicate";
    }

    mlcf->ready.file = cf->conf_file->file.name.data;
    mlcf->ready.line = cf->conf_file->line;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_modelgw_ready_handler;

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_modelgw_module);
    mmcf->used = 1;

    return NGX_CONF_OK;
}


/*
 * "if" and limit_except are nested locations, which have no handler of their
 * own: requests in "if" keep that of the location around it, those in
 * limit_except do not.
 */

char *
ngx_http_modelgw_ready_location(ngx_conf_t *cf,
    ngx_http_modelgw_loc_conf_t *parent, ngx_http_modelgw_loc_conf_t *conf)
{
    const char                *other;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->noname) {
        conf->ready = parent->ready;
    }

    if (conf->ready.line == 0) {
        return NGX_CONF_OK;
    }

    if (clcf->noname && clcf->handler == NULL) {
        clcf->handler = ngx_http_modelgw_ready_handler;
    }

    if (conf->enable) {
        other = "\"modelgw on\", which can be disabled by \"modelgw off\" if "
                "it is the server's";

    } else if (conf->admin.line) {
        other = "\"modelgw_admin\"";

    } else if (clcf->handler != ngx_http_modelgw_ready_handler) {
        other = "the content handler of another directive";

    } else {
        return NGX_CONF_OK;
    }

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "location \"%V\" with \"modelgw_ready\" has %s, in %s:%ui",
                  &clcf->name, other, conf->ready.file, conf->ready.line);

    return NGX_CONF_ERROR;
}


static ngx_int_t
ngx_http_modelgw_ready_handler(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    ngx_str_t                body;
    ngx_http_modelgw_ctx_t  *ctx;

    if (r != r->main || ngx_http_modelgw_get_ctx(r) != NULL) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "a subrequest, or a request redirected from a gateway "
                      "location, cannot use a location with "
                      "\"modelgw_ready\"");
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* "error_page" does not apply */
    r->error_page = 1;

    ctx = ngx_http_modelgw_create_ctx(r);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_http_modelgw_headers_no_store(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_modelgw_ready_check(r, ctx);

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* it is finalized there */
    r->main->count++;

    if (rc == NGX_DECLINED) {
        return ngx_http_modelgw_reply_error(r, ctx);
    }

    ngx_str_set(&body, "{\"status\":\"ok\"}");

    return ngx_http_modelgw_reply_json(r, ctx, NGX_HTTP_OK, &body);
}


static ngx_int_t
ngx_http_modelgw_ready_check(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    const char  *text;
    ngx_str_t    allow;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        ngx_str_set(&allow, "GET, HEAD");

        if (ngx_http_modelgw_headers_add(r, "Allow", &allow) != NGX_OK) {
            return NGX_ERROR;
        }

        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_ALLOWED,
                                      "METHOD_NOT_ALLOWED",
                                      "Only GET, HEAD is allowed here");
    }

    text = ngx_http_modelgw_health_refuses(
                ngx_http_get_module_main_conf(r, ngx_http_modelgw_module));

    if (text) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                      "SERVICE_UNAVAILABLE",
                                      "%s, try again later", text);
    }

    return NGX_OK;
}
