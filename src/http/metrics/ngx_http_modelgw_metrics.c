
/*
 * The location of the metrics: the directive, its checks, and the request.
 *
 * The text is made by a job, as the answers of the administration are: it walks
 * over all accounts and calls in flight.  It has places of its own, so that
 * queries of the administration cannot delay a scrape.
 *
 * nginx's own access rules are applied before the content handler.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"
#include "ngx_http_modelgw_headers.h"
#include "ngx_http_modelgw_metrics.h"


#define NGX_HTTP_MODELGW_METRICS_SERIES  1000    /* of each, by default */
#define NGX_HTTP_MODELGW_METRICS_MAX     1000000


static ngx_int_t ngx_http_modelgw_metrics_limit(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_uint_t ngx_http_modelgw_metrics_guarded(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf);
static ngx_int_t ngx_http_modelgw_metrics_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_modelgw_metrics_host(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_metrics_job(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


static ngx_http_modelgw_option_t  ngx_http_modelgw_metrics_options[] = {

    { ngx_string("keys="), ngx_http_modelgw_metrics_limit,
      offsetof(ngx_http_modelgw_loc_conf_t, metrics_keys),
      "a number from 0 to 1000000", NULL },

    { ngx_string("accounts="), ngx_http_modelgw_metrics_limit,
      offsetof(ngx_http_modelgw_loc_conf_t, metrics_accounts),
      "a number from 0 to 1000000", NULL },

    { ngx_null_string, NULL, 0, NULL, NULL }
};


char *
ngx_http_modelgw_set_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_loc_conf_t *mlcf = conf;

    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_modelgw_main_conf_t  *mmcf;

    if (mlcf->metrics.line) {
        return "is duplicate";
    }

    mlcf->metrics.file = cf->conf_file->file.name.data;
    mlcf->metrics.line = cf->conf_file->line;
    mlcf->metrics_keys = NGX_HTTP_MODELGW_METRICS_SERIES;
    mlcf->metrics_accounts = NGX_HTTP_MODELGW_METRICS_SERIES;

    if (ngx_http_modelgw_option_directive(cf, 1,
                                          ngx_http_modelgw_metrics_options,
                                          mlcf)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_modelgw_module);

    mmcf->used = 1;
    mmcf->metered = 1;
    mmcf->metrics_keys = ngx_max(mmcf->metrics_keys, mlcf->metrics_keys);

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_modelgw_metrics_handler;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_modelgw_metrics_limit(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_int_t    n;
    ngx_uint_t  *limit = field;

    n = ngx_atoi(value->data, value->len);

    if (n < 0 || n > NGX_HTTP_MODELGW_METRICS_MAX) {
        return NGX_DECLINED;
    }

    *limit = n;

    return NGX_OK;
}


/*
 * "if" and limit_except are nested locations and have the settings of the one
 * around them.
 */

char *
ngx_http_modelgw_metrics_location(ngx_conf_t *cf,
    ngx_http_modelgw_loc_conf_t *parent, ngx_http_modelgw_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->noname && conf->metrics.line == 0) {
        conf->metrics = parent->metrics;
        conf->metrics_keys = parent->metrics_keys;
        conf->metrics_accounts = parent->metrics_accounts;
    }

    if (conf->metrics.line == 0) {
        return NGX_CONF_OK;
    }

    if (ngx_http_modelgw_admin_server_names(cf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (conf->enable) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"modelgw_metrics\" and \"modelgw on\" in one location "
                      "\"%V\": \"modelgw on\" of the server can be disabled "
                      "by \"modelgw off\", in %s:%ui",
                      &clcf->name, conf->metrics.file, conf->metrics.line);
        return NGX_CONF_ERROR;
    }

    if (clcf->noname) {

        if (clcf->lmt_excpt && clcf->handler == NULL) {
            clcf->handler = ngx_http_modelgw_metrics_handler;
        }

        return NGX_CONF_OK;
    }

    if (clcf->handler != ngx_http_modelgw_metrics_handler) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "location \"%V\" with \"modelgw_metrics\" has the "
                      "content handler of another directive, in %s:%ui",
                      &clcf->name, conf->metrics.file, conf->metrics.line);
        return NGX_CONF_ERROR;
    }

    if (!ngx_http_modelgw_metrics_guarded(cf, clcf)) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "metrics location \"%V\" is open to all who can connect, "
                      "and tells names of keys and accounts, balances and "
                      "spend: add \"allow\" and \"deny\", in %s:%ui",
                      &clcf->name, conf->metrics.file, conf->metrics.line);
    }

    return NGX_CONF_OK;
}


/* the access module's configuration begins with its rules */

static ngx_uint_t
ngx_http_modelgw_metrics_guarded(ngx_conf_t *cf, ngx_http_core_loc_conf_t *clcf)
{
    ngx_array_t          **rules;
    ngx_http_conf_ctx_t   *ctx;

    ctx = cf->ctx;

    rules = ngx_http_modelgw_lint_conf(cf, ctx->loc_conf,
                                       "ngx_http_access_module");

    return (rules && *rules) || ngx_http_modelgw_admin_guarded(cf, clcf);
}


static ngx_int_t
ngx_http_modelgw_metrics_handler(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    ngx_str_t                allow = ngx_string("GET, HEAD");
    ngx_http_modelgw_ctx_t  *ctx;

    if (r != r->main || ngx_http_modelgw_get_ctx(r) != NULL) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "a subrequest, or a request redirected from a gateway "
                      "location, cannot use a metrics location");
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* "error_page" does not apply */
    r->error_page = 1;

    ctx = ngx_http_modelgw_create_ctx(r);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->main->count++;

    rc = ngx_http_modelgw_metrics_host(r, ctx);

    if (rc != NGX_OK) {
        /* void */

    } else if (r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD)) {
        rc = ngx_http_modelgw_metrics_job(r, ctx);

    } else if (ngx_http_modelgw_headers_add(r, "Allow", &allow) == NGX_OK) {
        rc = ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_ALLOWED,
                                    "METHOD_NOT_ALLOWED",
                                    "Only %V is allowed here", &allow);

    } else {
        rc = NGX_ERROR;
    }

    if (rc != NGX_OK) {
        ngx_http_modelgw_admin_refuse(r, ctx, rc);
    }

    return NGX_DONE;
}


/*
 * As for the admin interface; and any address, as Prometheus may reach this one
 * by another.
 */

static ngx_int_t
ngx_http_modelgw_metrics_host(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_str_t  *host;

    host = &r->headers_in.server;

    if (host->len
        && (host->data[0] == '['
            || ngx_inet_addr(host->data, host->len) != INADDR_NONE))
    {
        return NGX_OK;
    }

    return ngx_http_modelgw_admin_host(r, ctx);
}


static ngx_int_t
ngx_http_modelgw_metrics_job(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                          rc;
    ngx_http_modelgw_job_t            *job;
    ngx_http_modelgw_loc_conf_t       *mlcf;
    ngx_http_modelgw_scrape_limits_t  *limits;

    rc = ngx_http_modelgw_job_create(r, ctx, NGX_HTTP_MODELGW_ADMIN_SCRAPE,
                                     &job);
    if (rc != NGX_OK) {
        return rc;
    }

    limits = ngx_palloc(job->pool, sizeof(ngx_http_modelgw_scrape_limits_t));
    if (limits == NULL) {
        return NGX_ERROR;
    }

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    limits->keys = mlcf->metrics_keys;
    limits->accounts = mlcf->metrics_accounts;

    job->handler = ngx_http_modelgw_scrape;
    job->data = limits;

    ngx_str_set(&job->type, "text/plain; version=0.0.4; charset=utf-8");

    ngx_http_modelgw_job_start(job);

    return NGX_OK;
}
