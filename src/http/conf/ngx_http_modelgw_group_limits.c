
/*
 * The limits line of a group: what its keys may use, those that say nothing
 * else.
 */


#include "ngx_http_modelgw.h"


typedef struct {
    ngx_str_t             name;
    size_t                offset;        /* of an uint32_t in the group */
} ngx_http_modelgw_group_limit_t;


static ngx_http_modelgw_group_limit_t  ngx_http_modelgw_group_limit_table[] = {
    { ngx_string("rpm="), offsetof(ngx_http_modelgw_group_t, rpm) },
    { ngx_string("tpm="), offsetof(ngx_http_modelgw_group_t, tpm) },
    { ngx_string("concurrency="),
      offsetof(ngx_http_modelgw_group_t, concurrency) },
    { ngx_null_string, 0 }
};


char *
ngx_http_modelgw_group_limits(ngx_conf_t *cf, ngx_http_modelgw_group_t *group)
{
    char                            *rv;
    uint32_t                        *limit;
    ngx_str_t                       *value, text;
    ngx_uint_t                       i;
    ngx_http_modelgw_group_limit_t  *l;

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        l = ngx_http_modelgw_group_limit_table;

        while (l->name.len
               && ngx_strncmp(l->name.data, value[i].data, l->name.len) != 0)
        {
            l++;
        }

        if (l->name.len == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "unknown limit \"%V\" of group \"%V\": it is "
                               "\"rpm=\", \"tpm=\" or \"concurrency=\"",
                               &value[i], &group->name);
            return NGX_CONF_ERROR;
        }

        text.data = value[i].data + l->name.len;
        text.len = value[i].len - l->name.len;

        limit = (uint32_t *) ((u_char *) group + l->offset);

        rv = *limit ? "is duplicate" : ngx_http_modelgw_keys_limit(&text,
                                                                   limit);

        if (rv != NGX_CONF_OK) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "limit \"%V\" of group \"%V\" %s",
                               &value[i], &group->name, rv);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}
