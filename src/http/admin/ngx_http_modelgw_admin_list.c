
/*
 * Lists: the audit log.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_store.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_LIST_ROWS  100         /* by default */
#define NGX_HTTP_MODELGW_LIST_MAX   1000


static ngx_int_t ngx_http_modelgw_list_name(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_list_limit(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_list_place(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);


#define ngx_http_modelgw_list_offset(field)                                   \
    offsetof(ngx_http_modelgw_job_t, field)

ngx_http_modelgw_option_t  ngx_http_modelgw_admin_action_params[] = {

    { ngx_string("actor"), ngx_http_modelgw_list_name,
      ngx_http_modelgw_list_offset(actions.actor),
      "1 to 64 bytes", NULL },

    { ngx_string("target"), ngx_http_modelgw_list_name,
      ngx_http_modelgw_list_offset(actions.target),
      "1 to 64 bytes", NULL },

    { ngx_string("limit"), ngx_http_modelgw_list_limit,
      ngx_http_modelgw_list_offset(actions.limit),
      "a number from 1 to 1000", NULL },

    { ngx_string("after"), ngx_http_modelgw_list_place,
      ngx_http_modelgw_list_offset(actions.after),
      "the \"next\" of an answer", NULL },

    { ngx_null_string, NULL, 0, NULL, NULL }
};


ngx_int_t
ngx_http_modelgw_admin_list_actions(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    if (job->actions.limit == 0) {
        job->actions.limit = NGX_HTTP_MODELGW_LIST_ROWS;
    }

    return ngx_modelgw_store_actions(store, &job->actions, &job->body,
                                     job->pool);
}


static ngx_int_t
ngx_http_modelgw_list_name(ngx_http_modelgw_option_t *option, ngx_str_t *value,
    void *field)
{
    ngx_str_t *name = field;

    if (value->len == 0 || value->len > NGX_MODELGW_LEDGER_NAME) {
        return NGX_DECLINED;
    }

    *name = *value;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_list_limit(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_int_t    n;
    ngx_uint_t  *limit = field;

    n = ngx_atoi(value->data, value->len);

    if (n < 1 || n > NGX_HTTP_MODELGW_LIST_MAX) {
        return NGX_DECLINED;
    }

    *limit = n;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_list_place(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    off_t      n;
    uint64_t  *place = field;

    n = ngx_atoof(value->data, value->len);

    if (n < 1) {
        return NGX_DECLINED;
    }

    *place = n;

    return NGX_OK;
}
