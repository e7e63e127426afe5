
/*
 * modelgw_operators: who may use the admin interface over TCP, one line each.
 *
 * An operator has a token, which is as random as a service key is, and the line
 * its hash: there is nothing to guess, so none of the slow hashes of passwords
 * is needed, which would keep the event loop waiting.  There are few of them,
 * an array is enough.
 *
 * The block may be empty: then holders of service keys sign in only.
 */


#include "ngx_http_modelgw_conf.h"


static char *ngx_http_modelgw_operators_line(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static ngx_int_t ngx_http_modelgw_operators_new(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_http_modelgw_operator_t *operator);


ngx_conf_enum_t  ngx_http_modelgw_roles[] = {
    { ngx_string("admin"), NGX_HTTP_MODELGW_ROLE_ADMIN },
    { ngx_string("billing"), NGX_HTTP_MODELGW_ROLE_BILLING },
    { ngx_string("viewer"), NGX_HTTP_MODELGW_ROLE_VIEWER },
    { ngx_null_string, 0 }
};


static ngx_http_modelgw_option_t  ngx_http_modelgw_operators_table[] = {
    { ngx_string("expires="), ngx_http_modelgw_keys_day,
      offsetof(ngx_http_modelgw_operator_t, expires),
      NGX_HTTP_MODELGW_DAY_TAKES, NULL },
    { ngx_null_string, NULL, 0, NULL, NULL }
};


char *
ngx_http_modelgw_operators(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_main_conf_t *mmcf = conf;

    char        *rv;
    ngx_conf_t   save;

    if (mmcf->operators) {
        return "is duplicate";
    }

    mmcf->operators = ngx_array_create(cf->pool, 4,
                                       sizeof(ngx_http_modelgw_operator_t));
    if (mmcf->operators == NULL) {
        return NGX_CONF_ERROR;
    }

    save = *cf;
    cf->handler = ngx_http_modelgw_operators_line;
    cf->handler_conf = (char *) mmcf;

    rv = ngx_conf_parse(cf, NULL);

    *cf = save;

    return rv;
}


static char *
ngx_http_modelgw_operators_line(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_main_conf_t *mmcf = conf;

    ngx_str_t                    *value;
    ngx_http_modelgw_options_t    options;
    ngx_http_modelgw_operator_t  *operator;

    value = cf->args->elts;

    if (ngx_http_modelgw_keys_file(cf, "operators",
                                   cf->conf_file->file.name.data)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (cf->args->nelts == 2 && ngx_strcmp(value[0].data, "include") == 0) {
        return ngx_conf_include(cf, cmd, conf);
    }

    if (cf->args->nelts < 3) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "operator \"%V\" needs a name, a hash and a role",
                           &value[0]);
        return NGX_CONF_ERROR;
    }

    operator = ngx_array_push(mmcf->operators);
    if (operator == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(operator, sizeof(ngx_http_modelgw_operator_t));

    if (ngx_http_modelgw_operators_new(cf, mmcf, operator) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&options, sizeof(ngx_http_modelgw_options_t));

    options.table = ngx_http_modelgw_operators_table;
    options.object = operator;
    options.what = "operator";
    options.name = &operator->name;
    options.after = "sha256:";

    if (ngx_http_modelgw_option_parse(cf, 3, &options) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (operator->expires && operator->expires <= ngx_time()) {
        ngx_http_modelgw_keys_expired(cf, "operator", &operator->name,
                                      operator->expires);
    }

    return NGX_CONF_OK;
}


/* Sets the name, the digest and the role; the operator is the array's last. */

static ngx_int_t
ngx_http_modelgw_operators_new(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_http_modelgw_operator_t *operator)
{
    ngx_str_t                    *value;
    ngx_http_modelgw_operator_t  *other;

    value = cf->args->elts;

    if (!ngx_http_modelgw_conf_id(&value[0])) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid operator name \"%V\": it is "
                           NGX_HTTP_MODELGW_ID_TAKES, &value[0]);
        return NGX_ERROR;
    }

    operator->name = value[0];

    if (ngx_http_modelgw_keys_digest(cf, "operator", operator->digest)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_http_modelgw_option_word_find(ngx_http_modelgw_roles, &value[2],
                                          &operator->role)
        != NGX_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid role \"%V\" of operator \"%V\": it is "
                           "admin, billing or viewer", &value[2], &value[0]);
        return NGX_ERROR;
    }

    for (other = mmcf->operators->elts; other < operator; other++) {

        if (other->name.len == operator->name.len
            && ngx_memcmp(other->name.data, operator->name.data,
                          other->name.len)
               == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate operator \"%V\"", &operator->name);
            return NGX_ERROR;
        }

        if (ngx_modelgw_key_equal(other->digest, operator->digest)) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "operators \"%V\" and \"%V\" have the same "
                               "hash", &other->name, &operator->name);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_operators_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_uint_t                    i;
    ngx_modelgw_key_t            *key;
    ngx_http_modelgw_operator_t  *operator;

    if (mmcf->operators == NULL || mmcf->keys == NULL) {
        return NGX_OK;
    }

    operator = mmcf->operators->elts;

    for (i = 0; i < mmcf->operators->nelts; i++) {

        key = ngx_modelgw_keys_find(mmcf->keys, operator[i].digest);

        if (key) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "operator \"%V\" and key \"%V\" have the same hash",
                          &operator[i].name, &key->id);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


ngx_http_modelgw_operator_t *
ngx_http_modelgw_operators_find(ngx_http_modelgw_main_conf_t *mmcf,
    u_char *digest)
{
    ngx_uint_t                    i;
    ngx_http_modelgw_operator_t  *operator;

    operator = mmcf->operators->elts;

    for (i = 0; i < mmcf->operators->nelts; i++) {

        if (ngx_modelgw_key_equal(operator[i].digest, digest)) {
            return &operator[i];
        }
    }

    return NULL;
}
