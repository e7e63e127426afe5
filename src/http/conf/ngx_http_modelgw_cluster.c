
/*
 * modelgw_cluster: the database that this nginx shares accounts, keys and
 * limits with others by.
 *
 * All is checked that can be without a connection: a reload must not hang on a
 * database.  The password is in a file, which is read at each connection, and
 * is in no message; its file is checked when the zone is created, since only
 * then the workers' user is known.
 */


#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_CLUSTER_LOST  60000     /* ms after offline= */


typedef struct {
    ngx_msec_t                        min;
    ngx_msec_t                        max;
} ngx_http_modelgw_cluster_bounds_t;


static ngx_int_t ngx_http_modelgw_cluster_file(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_cluster_name(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_cluster_time(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_cluster_secret(ngx_conf_t *cf);
static ngx_int_t ngx_http_modelgw_cluster_names(ngx_conf_t *cf,
    ngx_modelgw_cluster_conf_t *cluster);
static ngx_int_t ngx_http_modelgw_cluster_check(ngx_conf_t *cf,
    ngx_modelgw_cluster_conf_t *cluster);


static ngx_http_modelgw_option_t  ngx_http_modelgw_cluster_options[] = {
    { ngx_string("exchange="), ngx_http_modelgw_cluster_time,
      offsetof(ngx_modelgw_cluster_conf_t, exchange),
      "a time from 20ms to 1s", NULL },
    { ngx_string("wait="), ngx_http_modelgw_cluster_time,
      offsetof(ngx_modelgw_cluster_conf_t, wait),
      "a time from 100ms to 30s", NULL },
    { ngx_string("offline="), ngx_http_modelgw_cluster_time,
      offsetof(ngx_modelgw_cluster_conf_t, offline),
      "a time from 1s to 7d", NULL },
    { ngx_string("lost="), ngx_http_modelgw_cluster_time,
      offsetof(ngx_modelgw_cluster_conf_t, lost),
      "a time of at least offline= and 1m, at most 30d, or \"off\"", NULL },
    { ngx_string("name="), ngx_http_modelgw_cluster_name,
      offsetof(ngx_modelgw_cluster_conf_t, name),
      NGX_HTTP_MODELGW_ID_TAKES, NULL },
    { ngx_string("password="), ngx_http_modelgw_cluster_file,
      offsetof(ngx_modelgw_cluster_conf_t, pq.password),
      "file:PATH", NULL },
    { ngx_null_string, NULL, 0, NULL, NULL }
};


/* of the first options */

static ngx_http_modelgw_cluster_bounds_t  ngx_http_modelgw_cluster_bounds[] = {
    { 20, 1000 },
    { 100, 30000 },
    { 1000, 7 * 24 * 60 * 60 * 1000 },
    { 1000 + NGX_HTTP_MODELGW_CLUSTER_LOST, 30UL * 24 * 60 * 60 * 1000 }
};


char *
ngx_http_modelgw_set_cluster(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_main_conf_t *mmcf = conf;

    ngx_str_t                   *value;
    ngx_modelgw_cluster_conf_t  *cluster;

    if (mmcf->cluster) {
        return "is duplicate";
    }

    cluster = ngx_pcalloc(cf->pool, sizeof(ngx_modelgw_cluster_conf_t));
    if (cluster == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    cluster->exchange = 100;
    cluster->wait = 2000;
    cluster->offline = 10 * 60 * 1000;
    cluster->pq.conninfo = (char *) value[1].data;

    if (ngx_http_modelgw_cluster_secret(cf) != NGX_OK
        || ngx_http_modelgw_option_directive(cf, 2,
                                             ngx_http_modelgw_cluster_options,
                                             cluster)
           != NGX_OK
        || ngx_http_modelgw_cluster_names(cf, cluster) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    mmcf->cluster = cluster;
    mmcf->cluster_place.file = cf->conf_file->file.name.data;
    mmcf->cluster_place.line = cf->conf_file->line;

    return ngx_http_modelgw_cluster_check(cf, cluster) == NGX_OK
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static ngx_int_t
ngx_http_modelgw_cluster_time(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_int_t                           time;
    ngx_msec_t                         *ms = field;
    ngx_http_modelgw_cluster_bounds_t  *bounds;

    bounds = &ngx_http_modelgw_cluster_bounds[
                                   option - ngx_http_modelgw_cluster_options];

    if (option->offset == offsetof(ngx_modelgw_cluster_conf_t, lost)
        && ngx_strcmp(value->data, "off") == 0)
    {
        *ms = 0;
        return NGX_OK;
    }

    time = ngx_parse_time(value, 0);

    if (time == NGX_ERROR
        || (ngx_msec_t) time < bounds->min || (ngx_msec_t) time > bounds->max)
    {
        return NGX_DECLINED;
    }

    *ms = (ngx_msec_t) time;

    return NGX_OK;
}


/* The words of a line end with a NUL. */

static ngx_int_t
ngx_http_modelgw_cluster_name(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    char  **name = field;

    if (!ngx_http_modelgw_conf_id(value)) {
        return NGX_DECLINED;
    }

    *name = (char *) value->data;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_cluster_file(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    char  **path = field;

    *path = (char *) value->data + sizeof("file:") - 1;

    return NGX_OK;
}


/* A password that is in the line itself must not be in a message. */

static ngx_int_t
ngx_http_modelgw_cluster_secret(ngx_conf_t *cf)
{
    ngx_str_t   *value;
    ngx_uint_t   i;

    value = cf->args->elts;

    for (i = 2; i < cf->args->nelts; i++) {

        if (ngx_strncmp(value[i].data, "password", sizeof("password") - 1) != 0)
        {
            continue;
        }

        if (ngx_strncmp(value[i].data, "password=file:",
                        sizeof("password=file:") - 1)
            != 0
            || value[i].len == sizeof("password=file:") - 1)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"modelgw_cluster\" needs "
                               "\"password=file:PATH\": the password itself "
                               "does not belong in the configuration");
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_cluster_names(ngx_conf_t *cf,
    ngx_modelgw_cluster_conf_t *cluster)
{
    size_t      len;
    u_char     *p;
    ngx_str_t   path;

    if (cluster->pq.password) {
        path.data = (u_char *) cluster->pq.password;
        path.len = ngx_strlen(path.data);

        if (ngx_conf_full_name(cf->cycle, &path, 1) != NGX_OK) {
            return NGX_ERROR;
        }

        cluster->pq.password = (char *) path.data;
    }

    if (cluster->name == NULL) {
        len = ngx_min(cf->cycle->hostname.len, NGX_MODELGW_LEDGER_NAME);

        p = ngx_pnalloc(cf->pool, len + 1);
        if (p == NULL) {
            return NGX_ERROR;
        }

        *ngx_cpymem(p, cf->cycle->hostname.data, len) = '\0';

        cluster->name = (char *) p;
    }

    p = ngx_pnalloc(cf->pool, sizeof("modelgw/") + ngx_strlen(cluster->name));
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_sprintf(p, "modelgw/%s%Z", cluster->name);

    cluster->pq.application = (char *) p;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_cluster_check(ngx_conf_t *cf,
    ngx_modelgw_cluster_conf_t *cluster)
{
    ngx_modelgw_pq_error_t  error;

    if (cluster->lost
        && cluster->lost < cluster->offline + NGX_HTTP_MODELGW_CLUSTER_LOST)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"lost=\" of \"modelgw_cluster\" must be at least "
                           "\"offline=\" and one minute: what a node may still "
                           "spend is not free");
        return NGX_ERROR;
    }

    if (ngx_modelgw_pq_load(&error) != NGX_OK
        || ngx_modelgw_pq_check(&cluster->pq, &error) != NGX_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"modelgw_cluster\": %*s",
                           error.len, error.data);
        return NGX_ERROR;
    }

    return NGX_OK;
}
