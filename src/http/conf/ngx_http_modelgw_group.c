
/*
 * modelgw_group: a provider group.
 *
 * The block is read as nginx reads "map" or "geo": one handler is called for
 * each line and finds it in a table.  Directives with a context of their own,
 * as those of "upstream", were rejected: nginx has no free bit for a context.
 *
 * A group exists as soon as its name is read, in its own block or in an
 * earlier key, so keys always point to groups.  A group that is named but not
 * declared is refused at the end of the http block.
 *
 * A family is a prefix of the model ids that belong to the group.  No id may
 * belong to two groups, whether such a model exists or not: the family decides
 * how a model is refused that the key cannot use.  A family that is a prefix
 * of another group's family is refused as well: if the longest prefix won, a
 * new line in one group would silently take models from another.
 *
 * The fields of a body that a group refuses are a default list and those of
 * deny_field, except those of allow_field.  The default list has what makes an
 * upstream, or a gateway after this one, run another model, call another
 * endpoint, or bill another account: such a field would bypass the checks of
 * "model" and of the key.  Unknown fields pass, so that clients can use new
 * features.  Fields that only change the price of a call are handled by the
 * meter.
 */


#include "ngx_http_modelgw_conf.h"


typedef struct {
    ngx_str_t     name;
    ngx_uint_t    min;                       /* words, including the name */
    ngx_uint_t    max;
    char       *(*handler)(ngx_conf_t *cf, ngx_http_modelgw_group_t *group);
} ngx_http_modelgw_group_line_t;


static ngx_http_modelgw_group_t *ngx_http_modelgw_group_add(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_str_t *name,
    ngx_http_modelgw_place_t *place);
static char *ngx_http_modelgw_group_line(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_int_t ngx_http_modelgw_group_kinds(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_array_t *models);
static char *ngx_http_modelgw_group_protocol(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);
static char *ngx_http_modelgw_group_family(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);
static ngx_int_t ngx_http_modelgw_group_family_check(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_str_t *family);
static ngx_str_t *ngx_http_modelgw_group_family_common(
    ngx_http_modelgw_group_t *group, ngx_str_t *family);
static char *ngx_http_modelgw_group_owned_by(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);
static char *ngx_http_modelgw_group_upstream(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);
static char *ngx_http_modelgw_group_fields(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);
static char *ngx_http_modelgw_group_field_check(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_str_t *name);
static char *ngx_http_modelgw_group_limits(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);
static char *ngx_http_modelgw_group_retry(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);
static char *ngx_http_modelgw_group_done(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);
static char *ngx_http_modelgw_group_fields_done(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);
static ngx_uint_t ngx_http_modelgw_group_field_default(ngx_str_t *name);
static ngx_int_t ngx_http_modelgw_group_check_upstream(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group);


static ngx_http_modelgw_group_line_t  ngx_http_modelgw_group_lines[] = {
    { ngx_string("protocol"), 2, 5, ngx_http_modelgw_group_protocol },
    { ngx_string("family"), 2, 64, ngx_http_modelgw_group_family },
    { ngx_string("owned_by"), 2, 2, ngx_http_modelgw_group_owned_by },
    { ngx_string("upstream"), 2, 2, ngx_http_modelgw_group_upstream },
    { ngx_string("credential"), 3, 4, ngx_http_modelgw_credential },
    { ngx_string("model"), 3, 64, ngx_http_modelgw_model },
    { ngx_string("deny_field"), 2, 64, ngx_http_modelgw_group_fields },
    { ngx_string("allow_field"), 2, 64, ngx_http_modelgw_group_fields },
    { ngx_string("pass_header"), 2, 64, ngx_http_modelgw_pass_header },
    { ngx_string("limits"), 2, 5, ngx_http_modelgw_group_limits },
    { ngx_string("retry"), 2, 7, ngx_http_modelgw_group_retry },
    { ngx_null_string, 0, 0, NULL }
};


#define ngx_http_modelgw_group_limit(name)                                    \
    ngx_http_modelgw_option_limit, offsetof(ngx_http_modelgw_group_t, name),  \
    NGX_HTTP_MODELGW_COUNT_TAKES, NULL

static ngx_http_modelgw_option_t  ngx_http_modelgw_group_limit_options[] = {
    { ngx_string("rpm="), ngx_http_modelgw_group_limit(rpm) },
    { ngx_string("tpm="), ngx_http_modelgw_group_limit(tpm) },
    { ngx_string("concurrency="), ngx_http_modelgw_group_limit(concurrency) },
    { ngx_string("budget="), ngx_http_modelgw_option_budget,
      offsetof(ngx_http_modelgw_group_t, budget),
      NGX_HTTP_MODELGW_BUDGET_TAKES, NULL },
    { ngx_null_string, NULL, 0, NULL, NULL }
};


/*
 * What "retry" takes; a group has a mask of the rows.  nginx takes a server of
 * 401 and 403 for a sound one, and the others for failures, see retry.c.
 */

#define NGX_HTTP_MODELGW_GROUP_RETRY  0x07    /* the first three, by default */

static ngx_http_modelgw_refusal_t  ngx_http_modelgw_group_refusals[] = {
    { ngx_string("429"), NGX_HTTP_TOO_MANY_REQUESTS,
      NGX_HTTP_TOO_MANY_REQUESTS, NGX_HTTP_UPSTREAM_FT_HTTP_429 },
    { ngx_string("503"), NGX_HTTP_SERVICE_UNAVAILABLE,
      NGX_HTTP_SERVICE_UNAVAILABLE, NGX_HTTP_UPSTREAM_FT_HTTP_503 },
    { ngx_string("529"), 529,
      NGX_HTTP_SERVICE_UNAVAILABLE, NGX_HTTP_UPSTREAM_FT_HTTP_503 },

    { ngx_string("500"), NGX_HTTP_INTERNAL_SERVER_ERROR,
      NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_UPSTREAM_FT_HTTP_500 },
    { ngx_string("401"), NGX_HTTP_UNAUTHORIZED,
      NGX_HTTP_FORBIDDEN, NGX_HTTP_UPSTREAM_FT_HTTP_403 },
    { ngx_string("403"), NGX_HTTP_FORBIDDEN,
      NGX_HTTP_FORBIDDEN, NGX_HTTP_UPSTREAM_FT_HTTP_403 },

    { ngx_null_string, 0, 0, 0 }
};


static ngx_str_t  ngx_http_modelgw_group_denied[] = {

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
    ngx_http_modelgw_group_t  *group;

    group = ngx_http_modelgw_group_find(mmcf, name->data, name->len);

    return group ? group : ngx_http_modelgw_group_add(mmcf, name, place);
}


ngx_http_modelgw_group_t *
ngx_http_modelgw_group_find(ngx_http_modelgw_main_conf_t *mmcf, u_char *name,
    size_t len)
{
    ngx_uint_t                  i;
    ngx_http_modelgw_group_t  **groups;

    groups = mmcf->groups.elts;

    for (i = 0; i < mmcf->groups.nelts; i++) {

        if (groups[i]->name.len == len
            && ngx_memcmp(groups[i]->name.data, name, len) == 0)
        {
            return groups[i];
        }
    }

    return NULL;
}


/*
 * Allocates from the pool of the array: cf->pool may be that of a keys block.
 */

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
    group->retry = NGX_CONF_UNSET_UINT;

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
        { ngx_string("responses"), NGX_MODELGW_RESPONSES },
        { ngx_string("embeddings"), NGX_MODELGW_EMBEDDINGS },
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
                               "one or more of \"messages\", \"chat\", "
                               "\"responses\" and \"embeddings\", once each",
                               &value[i], &group->name);
            return NGX_CONF_ERROR;
        }

        group->protocol |= protocols[j].value;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_modelgw_group_family(ngx_conf_t *cf, ngx_http_modelgw_group_t *group)
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

        if (ngx_http_modelgw_group_family_check(cf, group, &value[i])
            != NGX_OK)
        {
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


/* Compares a new family with those of all groups declared so far. */

static ngx_int_t
ngx_http_modelgw_group_family_check(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_str_t *family)
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

        other = ngx_http_modelgw_group_family_common(groups[i], family);

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


/* A family of the group that is a prefix of the given one, or vice versa. */

static ngx_str_t *
ngx_http_modelgw_group_family_common(ngx_http_modelgw_group_t *group,
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


static char *
ngx_http_modelgw_group_fields(ngx_conf_t *cf, ngx_http_modelgw_group_t *group)
{
    ngx_str_t    *value, *name;
    ngx_uint_t    i;
    ngx_array_t  *names;

    value = cf->args->elts;

    names = value[0].data[0] == 'd' ? &group->denied : &group->allowed;

    for (i = 1; i < cf->args->nelts; i++) {

        if (ngx_http_modelgw_group_field_check(cf, group, &value[i])
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


/* The fields that every call needs cannot be denied. */

static char *
ngx_http_modelgw_group_field_check(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_str_t *name)
{
    ngx_str_t   *value;
    const char  *fault;

    value = cf->args->elts;

    fault = !ngx_http_modelgw_conf_word(name, "_-.", 64) ? "is invalid"
            : (ngx_strcmp(name->data, "model") == 0
               || ngx_strcmp(name->data, "messages") == 0)
              ? "is needed by every call"
            : (value[0].data[0] == 'a'
               && !ngx_http_modelgw_group_field_default(name))
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


static char *
ngx_http_modelgw_group_limits(ngx_conf_t *cf, ngx_http_modelgw_group_t *group)
{
    ngx_http_modelgw_options_t     options;
    ngx_http_modelgw_main_conf_t  *mmcf;

    ngx_memzero(&options, sizeof(ngx_http_modelgw_options_t));

    options.table = ngx_http_modelgw_group_limit_options;
    options.object = group;
    options.what = "group";
    options.name = &group->name;

    if (ngx_http_modelgw_option_parse(cf, 1, &options) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_modelgw_module);

    if (group->budget.limit && mmcf->budget_place.file == NULL) {
        mmcf->budget_place.file = cf->conf_file->file.name.data;
        mmcf->budget_place.line = cf->conf_file->line;
        mmcf->budget_name = group->name;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_modelgw_group_retry(ngx_conf_t *cf, ngx_http_modelgw_group_t *group)
{
    ngx_str_t   *value;
    ngx_uint_t   i, n;

    if (group->retry != NGX_CONF_UNSET_UINT) {
        return "\"retry\" is duplicate";
    }

    group->retry = 0;

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "off") == 0) {
        return NGX_CONF_OK;
    }

    for (i = 1; i < cf->args->nelts; i++) {

        for (n = 0; ngx_http_modelgw_group_refusals[n].name.len; n++) {
            if (ngx_strcmp(ngx_http_modelgw_group_refusals[n].name.data,
                           value[i].data)
                == 0)
            {
                break;
            }
        }

        if (ngx_http_modelgw_group_refusals[n].name.len == 0
            || (group->retry & ((ngx_uint_t) 1 << n)))
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid status \"%V\" in \"retry\" of group "
                               "\"%V\": it is 429, 503, 529, 500, 401 or 403, "
                               "each once, or \"off\" alone",
                               &value[i], &group->name);
            return NGX_CONF_ERROR;
        }

        group->retry |= (ngx_uint_t) 1 << n;
    }

    return NGX_CONF_OK;
}


/* The end of the block: checks that it is complete. */

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

        if (!ngx_http_modelgw_group_owns(group, &model[i].id)) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "model \"%V\" is outside the families of group "
                          "\"%V\" in %s:%ui", &model[i].id, &group->name,
                          model[i].place.file, model[i].place.line);
            return NGX_CONF_ERROR;
        }
    }

    if (ngx_http_modelgw_group_kinds(cf, group, &group->models) != NGX_OK
        || ngx_http_modelgw_group_kinds(cf, group, &group->patterns) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (group->models.nelts + group->patterns.nelts == 0) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "no \"model\" in group \"%V\"", &group->name);
    }

    if (group->owned_by.data == NULL) {
        group->owned_by = group->name;
    }

    ngx_conf_init_uint_value(group->retry, NGX_HTTP_MODELGW_GROUP_RETRY);

    return ngx_http_modelgw_group_fields_done(cf, group);
}


/*
 * A model that no endpoint would take is a mistake.
 *     NGX_OK, NGX_ERROR (logged)
 */

static ngx_int_t
ngx_http_modelgw_group_kinds(ngx_conf_t *cf, ngx_http_modelgw_group_t *group,
    ngx_array_t *models)
{
    ngx_uint_t                 i, protocol;
    ngx_http_modelgw_model_t  *model;

    model = models->elts;

    for (i = 0; i < models->nelts; i++) {

        protocol = group->protocol & NGX_MODELGW_EMBEDDINGS;

        if (!model[i].embedding) {
            protocol ^= group->protocol;
        }

        if (protocol == 0) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "model \"%V\" cannot be used: it has "
                          "%s\"kind=embedding\", and \"protocol\" of group "
                          "\"%V\" has %s in %s:%ui", &model[i].id,
                          model[i].embedding ? "" : "no ", &group->name,
                          model[i].embedding ? "no \"embeddings\""
                                             : "\"embeddings\" only",
                          model[i].place.file, model[i].place.line);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* A field in both deny_field and allow_field stays denied. */

static char *
ngx_http_modelgw_group_fields_done(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group)
{
    ngx_str_t  *name, *field;

    for (name = ngx_http_modelgw_group_denied; name->len; name++) {

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


static ngx_uint_t
ngx_http_modelgw_group_field_default(ngx_str_t *name)
{
    ngx_str_t  *field;

    for (field = ngx_http_modelgw_group_denied; field->len; field++) {
        if (ngx_strcmp(field->data, name->data) == 0) {
            return 1;
        }
    }

    return 0;
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
 * Without an upstream block of that name the proxy module would need a
 * resolver at run time, and a typo would pass for a host name.
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
            group->servers = uscfp[i];
            return NGX_OK;
        }
    }

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "no \"upstream %V {}\" for \"upstream %V\" of group \"%V\" "
                  "in %s:%ui", &group->host, &group->upstream, &group->name,
                  group->upstream_place.file, group->upstream_place.line);

    return NGX_ERROR;
}


ngx_http_modelgw_refusal_t *
ngx_http_modelgw_group_refusal(ngx_http_modelgw_group_t *group,
    ngx_uint_t status)
{
    ngx_uint_t  n;

    for (n = 0; ngx_http_modelgw_group_refusals[n].name.len; n++) {

        if (ngx_http_modelgw_group_refusals[n].status == status
            && (group->retry & ((ngx_uint_t) 1 << n)))
        {
            return &ngx_http_modelgw_group_refusals[n];
        }
    }

    return NULL;
}


ngx_http_modelgw_group_t *
ngx_http_modelgw_group_of_family(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_str_t *id)
{
    ngx_uint_t                  i;
    ngx_http_modelgw_group_t  **group;

    group = mmcf->groups.elts;

    for (i = 0; i < mmcf->groups.nelts; i++) {
        if (ngx_http_modelgw_group_owns(group[i], id)) {
            return group[i];
        }
    }

    return NULL;
}


ngx_uint_t
ngx_http_modelgw_group_owns(ngx_http_modelgw_group_t *group, ngx_str_t *id)
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
