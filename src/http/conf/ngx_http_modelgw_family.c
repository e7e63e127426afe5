
/*
 * Families: the prefixes of model ids that belong to a group.
 *
 * No id may have two owners, whether it exists or not: the family decides what
 * a client is told of a model that its key cannot reach.  A family that is a
 * prefix of another group's family is refused as well: with "the longest prefix
 * wins" a new line in one group would silently take models from another.
 */


#include "ngx_http_modelgw.h"


static ngx_int_t ngx_http_modelgw_family_check(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_str_t *family);
static ngx_str_t *ngx_http_modelgw_family_common(
    ngx_http_modelgw_group_t *group, ngx_str_t *family);


char *
ngx_http_modelgw_family(ngx_conf_t *cf, ngx_http_modelgw_group_t *group)
{
    ngx_str_t   *value, *family;
    ngx_uint_t   i;

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        if (!ngx_http_modelgw_model_id(&value[i])) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid family \"%V\" of group \"%V\"",
                               &value[i], &group->name);
            return NGX_CONF_ERROR;
        }

        if (ngx_http_modelgw_family_check(cf, group, &value[i]) != NGX_OK) {
            return NGX_CONF_ERROR;
        }

        family = ngx_array_push(&group->families);
        if (family == NULL) {
            return NGX_CONF_ERROR;
        }

        *family = value[i];
    }

    return NGX_CONF_OK;
}


/* Compares a new family with those of all groups that stand before it. */

static ngx_int_t
ngx_http_modelgw_family_check(ngx_conf_t *cf, ngx_http_modelgw_group_t *group,
    ngx_str_t *family)
{
    ngx_str_t                      *other;
    ngx_uint_t                      i;
    ngx_http_modelgw_group_t      **groups;
    ngx_http_modelgw_main_conf_t   *mmcf;

    if (ngx_http_modelgw_conf_listed(&group->families, family)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate family \"%V\" of group \"%V\"",
                           family, &group->name);
        return NGX_ERROR;
    }

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_modelgw_module);

    groups = mmcf->groups.elts;

    for (i = 0; i < mmcf->groups.nelts; i++) {

        if (groups[i] == group) {
            continue;
        }

        other = ngx_http_modelgw_family_common(groups[i], family);

        if (other) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "family \"%V\" of group \"%V\" has two owners: "
                               "group \"%V\" has \"%V\"", family,
                               &group->name, &groups[i]->name, other);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* The family of the group that is a prefix of the other, or the reverse. */

static ngx_str_t *
ngx_http_modelgw_family_common(ngx_http_modelgw_group_t *group,
    ngx_str_t *family)
{
    ngx_str_t   *own;
    ngx_uint_t   i;

    own = group->families.elts;

    for (i = 0; i < group->families.nelts; i++) {

        if (ngx_memcmp(own[i].data, family->data,
                       ngx_min(own[i].len, family->len))
            == 0)
        {
            return &own[i];
        }
    }

    return NULL;
}


ngx_uint_t
ngx_http_modelgw_family_owns(ngx_http_modelgw_group_t *group, ngx_str_t *id)
{
    ngx_str_t   *family;
    ngx_uint_t   i;

    family = group->families.elts;

    for (i = 0; i < group->families.nelts; i++) {

        if (family[i].len <= id->len
            && ngx_memcmp(family[i].data, id->data, family[i].len) == 0)
        {
            return 1;
        }
    }

    return 0;
}
