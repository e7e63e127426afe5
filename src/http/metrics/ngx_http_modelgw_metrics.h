
/*
 * Metrics for Prometheus: the location, and what its files share.
 */


#ifndef _NGX_HTTP_MODELGW_METRICS_H_INCLUDED_
#define _NGX_HTTP_MODELGW_METRICS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_admin.h"


/* metrics.c */

/*
 * modelgw_metrics [keys=N] [accounts=N]: NGX_CONF_OK, NGX_CONF_ERROR (logged)
 * or a text that nginx logs.
 */
char *ngx_http_modelgw_set_metrics(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * Checks the location in cf->ctx after it has been merged.
 *     NGX_CONF_OK, NGX_CONF_ERROR (logged)
 */
char *ngx_http_modelgw_metrics_location(ngx_conf_t *cf,
    ngx_http_modelgw_loc_conf_t *parent, ngx_http_modelgw_loc_conf_t *conf);


/* scrape.c: how many keys and accounts have series at most: job->data */

typedef struct {
    ngx_uint_t           keys;
    ngx_uint_t           accounts;
} ngx_http_modelgw_scrape_limits_t;

/* The handler of the job, of the type ngx_http_modelgw_job_pt. */
ngx_int_t ngx_http_modelgw_scrape(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);


#endif /* _NGX_HTTP_MODELGW_METRICS_H_INCLUDED_ */
