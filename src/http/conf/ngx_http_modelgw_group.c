
/*
 * modelgw_group: a provider group.
 *
 * The block is read as nginx reads "map" or "geo": one handler is called for
 * each line and finds it in a table.  Directives of a context of their own, as
 * "upstream" has them, were rejected: nginx has no free bit for a context.
 *
 * A group is known from the moment it is first named, by its own block or by a
 * key that stands before it, so keys point to groups from the start.  One that
 * is named but never declared is refused when all is read.
 */


#include "ngx_http_modelgw.h"


typedef struct {
    ngx_str_t     name;
    ngx_uint_t    min;                       /* words, with the name */
    ngx_uint_t    max;
    char       *(*handler)(ngx_conf_t *cf, ngx_http_modelgw_group_t *group);
} ngx_http_modelgw_group_line_t;


static ngx_http_modelgw_group_t *ngx_http_modelgw_group_add(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_str_t *name,
    ngx_http_modelgw_place_t *place);
static char *ngx_http_modelgw_group_line(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_modelgw_group_protocol(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);
static char *ngx_http_modelgw_group_owned_by(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);
static char *ngx_http_modelgw_group_upstream(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);
static char *ngx_http_modelgw_group_done(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);
static ngx_int_t ngx_http_modelgw_group_check_upstream(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);


static ngx_http_modelgw_group_line_t  ngx_http_modelgw_group_lines[] = {
    { ngx_string("protocol"), 2, 3, ngx_http_modelgw_group_protocol },
    { ngx_string("family"), 2, 64, ngx_http_modelgw_family },
    { ngx_string("owned_by"), 2, 2, ngx_http_modelgw_group_owned_by },
    { ngx_string("upstream"), 2, 2, ngx_http_modelgw_group_upstream },
    { ngx_string("credential"), 3, 4, ngx_http_modelgw_credential },
    { ngx_string("model"), 3, 64, ngx_http_modelgw_model },
    { ngx_string("deny_field"), 2, 64, ngx_http_modelgw_fields },
    { ngx_string("allow_field"), 2, 64, ngx_http_modelgw_fields },
    { ngx_string("pass_header"), 2, 64, ngx_http_modelgw_pass_header },
    { ngx_string("limits"), 2, 4, ngx_http_modelgw_group_limits },
    { ngx_null_string, 0, 0, NULL }
};


char *
ngx_http_modelgw_group(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_main_conf_t *mmcf = conf;

    char                      *rv;
    ngx_str_t                 *value;
    ngx_conf_t                 save;
    ngx_http_modelgw_group_t  *group;
    ngx_http_modelgw_place_t   place;

    value = cf->args->elts;

    if (!ngx_http_modelgw_conf_word(&value[1], "_-.", 64)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid group name \"%V\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    place.file = cf->conf_file->file.name.data;
    place.line = cf->conf_file->line;

    group = ngx_http_modelgw_group_named(mmcf, &value[1], &place);
    if (group == NULL) {
        return NGX_CONF_ERROR;
    }

    if (group->declared) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate group \"%V\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    group->declared = 1;
    group->place = place;

    save = *cf;
    cf->handler = ngx_http_modelgw_group_line;
    cf->handler_conf = (char *) group;

    rv = ngx_conf_parse(cf, NULL);

    *cf = save;

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    return ngx_http_modelgw_group_done(cf, group);
}


ngx_http_modelgw_group_t *
ngx_http_modelgw_group_named(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_str_t *name, ngx_http_modelgw_place_t *place)
{
    ngx_uint_t                  i;
    ngx_http_modelgw_group_t  **groups;

    groups = mmcf->groups.elts;

    for (i = 0; i < mmcf->groups.nelts; i++) {

        if (groups[i]->name.len == name->len
            && ngx_memcmp(groups[i]->name.data, name->data, name->len) == 0)
        {
            return groups[i];
        }
    }

    return ngx_http_modelgw_group_add(mmcf, name, place);
}


/* In the pool of the array: cf->pool may be that of a block of keys. */

static ngx_http_modelgw_group_t *
ngx_http_modelgw_group_add(ngx_http_modelgw_main_conf_t *mmcf, ngx_str_t *name,
    ngx_http_modelgw_place_t *place)
{
    ngx_pool_t                 *pool;
    ngx_http_modelgw_group_t   *group, **groups;

    pool = mmcf->groups.pool;

    group = ngx_pcalloc(pool, sizeof(ngx_http_modelgw_group_t));
    if (group == NULL) {
        return NULL;
    }

    group->place = *place;

    group->name.len = name->len;
    group->name.data = ngx_pstrdup(pool, name);
    if (group->name.data == NULL) {
        return NULL;
    }

    if (ngx_array_init(&group->families, pool, 2, sizeof(ngx_str_t)) != NGX_OK
        || ngx_array_init(&group->models, pool, 8,
                          sizeof(ngx_http_modelgw_model_t))
           != NGX_OK
        || ngx_array_init(&group->patterns, pool, 1,
                          sizeof(ngx_http_modelgw_model_t))
           != NGX_OK
        || ngx_array_init(&group->denied, pool, 32, sizeof(ngx_str_t))
           != NGX_OK
        || ngx_array_init(&group->allowed, pool, 1, sizeof(ngx_str_t))
           != NGX_OK)
    {
        return NULL;
    }

    groups = ngx_array_push(&mmcf->groups);
    if (groups == NULL) {
        return NULL;
    }

    *groups = group;

    return group;
}


static char *
ngx_http_modelgw_group_line(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_group_t *group = conf;

    ngx_str_t                      *value;
    ngx_http_modelgw_group_line_t  *line;

    value = cf->args->elts;

    if (ngx_strcmp(value[0].data, "include") == 0 && cf->args->nelts == 2) {
        return ngx_conf_include(cf, cmd, conf);
    }

    for (line = ngx_http_modelgw_group_lines; line->name.len; line++) {

        if (line->name.len != value[0].len
            || ngx_strcmp(line->name.data, value[0].data) != 0)
        {
            continue;
        }

        if (cf->args->nelts < line->min || cf->args->nelts > line->max) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid number of arguments in \"%V\" of group "
                               "\"%V\"", &value[0], &group->name);
            return NGX_CONF_ERROR;
        }

        return line->handler(cf, group);
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "unknown line \"%V\" in group \"%V\"",
                       &value[0], &group->name);
    return NGX_CONF_ERROR;
}


static char *
ngx_http_modelgw_group_protocol(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group)
{
    ngx_str_t        *value;
    ngx_uint_t        i, j;

    static ngx_conf_enum_t  protocols[] = {
        { ngx_string("chat"), NGX_MODELGW_CHAT },
        { ngx_string("messages"), NGX_MODELGW_MESSAGES },
        { ngx_null_string, 0 }
    };

    if (group->protocol) {
        return "\"protocol\" is duplicate";
    }

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        for (j = 0; protocols[j].name.len; j++) {
            if (ngx_strcmp(protocols[j].name.data, value[i].data) == 0) {
                break;
            }
        }

        if (protocols[j].name.len == 0
            || (group->protocol & protocols[j].value))
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid protocol \"%V\" of group \"%V\": it is "
                               "\"messages\", \"chat\" or both words",
                               &value[i], &group->name);
            return NGX_CONF_ERROR;
        }

        group->protocol |= protocols[j].value;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_modelgw_group_owned_by(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group)
{
    ngx_str_t  *value;

    if (group->owned_by.data) {
        return "\"owned_by\" is duplicate";
    }

    value = cf->args->elts;

    if (!ngx_http_modelgw_conf_word(&value[1], "_-.", 64)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid owner \"%V\" of group \"%V\"",
                           &value[1], &group->name);
        return NGX_CONF_ERROR;
    }

    group->owned_by = value[1];

    return NGX_CONF_OK;
}


static char *
ngx_http_modelgw_group_upstream(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group)
{
    size_t      len;
    ngx_str_t  *value, host;

    if (group->upstream.data) {
        return "\"upstream\" is duplicate";
    }

    value = cf->args->elts;
    len = 0;

    if (ngx_strncmp(value[1].data, "http://", 7) == 0) {
        len = 7;

    } else if (ngx_strncmp(value[1].data, "https://", 8) == 0) {
        len = 8;
        group->ssl = 1;
    }

    host.data = value[1].data + len;
    host.len = value[1].len - len;

    if (len == 0 || !ngx_http_modelgw_conf_word(&host, "_-.", 255)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid upstream \"%V\" of group \"%V\": it is "
                           "http:// or https:// and the name of an upstream "
                           "block, nothing else",
                           &value[1], &group->name);
        return NGX_CONF_ERROR;
    }

    group->upstream_place.file = cf->conf_file->file.name.data;
    group->upstream_place.line = cf->conf_file->line;

    group->upstream = value[1];
    group->host = host;

    return NGX_CONF_OK;
}


/* The end of the block: what was left out, and the lists of fields. */

static char *
ngx_http_modelgw_group_done(ngx_conf_t *cf, ngx_http_modelgw_group_t *group)
{
    ngx_uint_t                 i;
    const char                *missing;
    ngx_http_modelgw_model_t  *model;

    missing = group->protocol == 0 ? "protocol"
              : group->families.nelts == 0 ? "family"
              : group->upstream.len == 0 ? "upstream"
              : group->header.len == 0 ? "credential"
              : NULL;

    if (missing) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "no \"%s\" in group \"%V\"", missing, &group->name);
        return NGX_CONF_ERROR;
    }

    model = group->models.elts;

    for (i = 0; i < group->models.nelts; i++) {

        if (!ngx_http_modelgw_family_owns(group, &model[i].id)) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "model \"%V\" is outside the families of group "
                          "\"%V\" in %s:%ui", &model[i].id, &group->name,
                          model[i].place.file, model[i].place.line);
            return NGX_CONF_ERROR;
        }
    }

    if (group->models.nelts + group->patterns.nelts == 0) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "no \"model\" in group \"%V\"", &group->name);
    }

    if (group->owned_by.data == NULL) {
        group->owned_by = group->name;
    }

    return ngx_http_modelgw_fields_done(cf, group);
}


ngx_int_t
ngx_http_modelgw_group_check(ngx_conf_t *cf, ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_uint_t                  i;
    ngx_http_modelgw_group_t  **group;

    group = mmcf->groups.elts;

    for (i = 0; i < mmcf->groups.nelts; i++) {

        if (!group[i]->declared) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "unknown group \"%V\" in %s:%ui", &group[i]->name,
                          group[i]->place.file, group[i]->place.line);
            return NGX_ERROR;
        }

        if (ngx_http_modelgw_group_check_upstream(cf, group[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/*
 * Without a block of that name the proxy module would want a resolver when the
 * first request comes, and one could not tell a typo from a host.
 */

static ngx_int_t
ngx_http_modelgw_group_check_upstream(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group)
{
    ngx_uint_t                       i;
    ngx_http_upstream_srv_conf_t   **uscfp;
    ngx_http_upstream_main_conf_t   *umcf;

    umcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_upstream_module);
    uscfp = umcf->upstreams.elts;

    for (i = 0; i < umcf->upstreams.nelts; i++) {

        if ((uscfp[i]->flags & NGX_HTTP_UPSTREAM_CREATE)
            && uscfp[i]->host.len == group->host.len
            && ngx_strncasecmp(uscfp[i]->host.data, group->host.data,
                               group->host.len)
               == 0)
        {
            return NGX_OK;
        }
    }

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "no \"upstream %V {}\" for \"upstream %V\" of group \"%V\" "
                  "in %s:%ui", &group->host, &group->upstream, &group->name,
                  group->upstream_place.file, group->upstream_place.line);

    return NGX_ERROR;
}


ngx_http_modelgw_group_t *
ngx_http_modelgw_group_of_family(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_str_t *id)
{
    ngx_uint_t                  i;
    ngx_http_modelgw_group_t  **group;

    group = mmcf->groups.elts;

    for (i = 0; i < mmcf->groups.nelts; i++) {
        if (ngx_http_modelgw_family_owns(group[i], id)) {
            return group[i];
        }
    }

    return NULL;
}
