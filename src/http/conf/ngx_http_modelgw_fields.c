
/*
 * Which fields of a body a group refuses: a default, deny_field, allow_field.
 *
 * The default names what makes an upstream, or a gateway behind us, run another
 * model, call another endpoint, or bill another account (threats.md, P13): such
 * a field would undo what was checked of "model" and of the key.  It is not a
 * list of what we do not know: unknown fields pass, so that a client can use
 * tomorrow's features.  Fields that only change the price of the call belong to
 * the meter, not here.
 */


#include "ngx_http_modelgw.h"


static char *ngx_http_modelgw_fields_check(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_str_t *name);
static ngx_uint_t ngx_http_modelgw_fields_default(ngx_str_t *name);


static ngx_str_t  ngx_http_modelgw_fields_denied[] = {

    /* another model */
    ngx_string("models"),
    ngx_string("fallbacks"),
    ngx_string("fallback_models"),
    ngx_string("context_window_fallbacks"),
    ngx_string("content_policy_fallbacks"),
    ngx_string("model_list"),
    ngx_string("preset"),
    ngx_string("plugins"),

    /* another endpoint */
    ngx_string("route"),
    ngx_string("router"),
    ngx_string("router_settings_override"),
    ngx_string("provider"),
    ngx_string("custom_llm_provider"),
    ngx_string("api_base"),
    ngx_string("base_url"),
    ngx_string("api_type"),
    ngx_string("api_version"),
    ngx_string("extra_headers"),
    ngx_string("extra_body"),
    ngx_string("extra_query"),

    /* another payer */
    ngx_string("api_key"),
    ngx_string("organization"),
    ngx_string("user_config"),

    ngx_null_string
};


char *
ngx_http_modelgw_fields(ngx_conf_t *cf, ngx_http_modelgw_group_t *group)
{
    ngx_str_t    *value, *name;
    ngx_uint_t    i;
    ngx_array_t  *names;

    value = cf->args->elts;

    names = value[0].data[0] == 'd' ? &group->denied : &group->allowed;

    for (i = 1; i < cf->args->nelts; i++) {

        if (ngx_http_modelgw_fields_check(cf, group, &value[i])
            != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }

        name = ngx_array_push(names);
        if (name == NULL) {
            return NGX_CONF_ERROR;
        }

        *name = value[i];
    }

    return NGX_CONF_OK;
}


/* What no call can do without cannot be denied. */

static char *
ngx_http_modelgw_fields_check(ngx_conf_t *cf, ngx_http_modelgw_group_t *group,
    ngx_str_t *name)
{
    ngx_str_t   *value;
    const char  *fault;

    value = cf->args->elts;

    fault = !ngx_http_modelgw_conf_word(name, "_-.", 64) ? "is invalid"
            : (ngx_strcmp(name->data, "model") == 0
               || ngx_strcmp(name->data, "messages") == 0)
              ? "is needed by every call"
            : (value[0].data[0] == 'a'
               && !ngx_http_modelgw_fields_default(name))
              ? "is not denied by default"
            : NULL;

    if (fault) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "field \"%V\" in \"%V\" of group \"%V\" %s",
                           name, &value[0], &group->name, fault);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static ngx_uint_t
ngx_http_modelgw_fields_default(ngx_str_t *name)
{
    ngx_str_t  *field;

    for (field = ngx_http_modelgw_fields_denied; field->len; field++) {
        if (ngx_strcmp(field->data, name->data) == 0) {
            return 1;
        }
    }

    return 0;
}


/* A field in both deny_field and allow_field stays denied. */

char *
ngx_http_modelgw_fields_done(ngx_conf_t *cf, ngx_http_modelgw_group_t *group)
{
    ngx_str_t  *name, *field;

    for (name = ngx_http_modelgw_fields_denied; name->len; name++) {

        if (ngx_http_modelgw_conf_listed(&group->denied, name)
            || ngx_http_modelgw_conf_listed(&group->allowed, name))
        {
            continue;
        }

        field = ngx_array_push(&group->denied);
        if (field == NULL) {
            return NGX_CONF_ERROR;
        }

        *field = *name;
    }

    return NGX_CONF_OK;
}
