
/*
 * The model line of a group, and which model an id means.
 *
 * A line names one model, or, beginning with "~", a pattern for many: the ids
 * that it matches can be called, but are not listed.  Listed models go first,
 * then patterns in the order of the file.  What a pattern makes of the client's
 * text is checked against the same characters as what an operator writes, so
 * nothing else can come into an upstream body.
 *
 * Listed models are compared one by one: a group has dozens, and the length
 * differs for most.
 */


#include "ngx_http_modelgw.h"


static ngx_int_t ngx_http_modelgw_model_init(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_http_modelgw_model_t *model);
static ngx_http_modelgw_model_t *ngx_http_modelgw_model_listed(
    ngx_http_modelgw_group_t *group, ngx_str_t *id);
#if (NGX_PCRE)
static ngx_int_t ngx_http_modelgw_model_compile(ngx_conf_t *cf,
    ngx_http_modelgw_model_t *model);
static ngx_int_t ngx_http_modelgw_model_expand(ngx_pool_t *pool,
    ngx_str_t *template, ngx_str_t *id, int *captures, ngx_str_t *text);
#endif


char *
ngx_http_modelgw_model(ngx_conf_t *cf, ngx_http_modelgw_group_t *group)
{
    ngx_str_t                 *value;
    ngx_array_t               *models;
    ngx_http_modelgw_model_t  *model;

    value = cf->args->elts;

    models = value[1].data[0] == '~' ? &group->patterns : &group->models;

    if (models == &group->models
        && ngx_http_modelgw_model_listed(group, &value[1]))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate model \"%V\" in group \"%V\"",
                           &value[1], &group->name);
        return NGX_CONF_ERROR;
    }

    model = ngx_array_push(models);
    if (model == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(model, sizeof(ngx_http_modelgw_model_t));

    model->id = value[1];
    model->upstream_id = value[2];

    if (ngx_http_modelgw_model_init(cf, group, model) != NGX_OK
        || ngx_http_modelgw_option_parse(cf, model) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_modelgw_model_init(ngx_conf_t *cf, ngx_http_modelgw_group_t *group,
    ngx_http_modelgw_model_t *model)
{
    ngx_str_t  *wrong;

    model->place.file = cf->conf_file->file.name.data;
    model->place.line = cf->conf_file->line;

    /* defaults that are not 0: those of translate.md, 1.4 */

    model->caps.thinking = NGX_MODELGW_THINKING_BUDGET;
    model->caps.structured = 1;
    model->caps.strict = 1;
    model->caps.prefill = 1;
    model->caps.forced_tool_choice = 1;
    model->caps.default_max_tokens = 4096;
    model->caps.reasoning_output = NGX_MODELGW_REASONING_CONTENT;

    if (model->id.data[0] == '~') {
#if (NGX_PCRE)
        return ngx_http_modelgw_model_compile(cf, model);
#else
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "model \"%V\": patterns need nginx with PCRE",
                           &model->id);
        return NGX_ERROR;
#endif
    }

    wrong = !ngx_http_modelgw_model_id(&model->id) ? &model->id
            : !ngx_http_modelgw_model_id(&model->upstream_id)
              ? &model->upstream_id
            : NULL;

    if (wrong) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid model id \"%V\" in group \"%V\"",
                           wrong, &group->name);
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_uint_t
ngx_http_modelgw_model_id(ngx_str_t *text)
{
    return ngx_http_modelgw_conf_word(text, "._:/@+-", 256);
}


ngx_int_t
ngx_http_modelgw_model_find(ngx_pool_t *pool, ngx_http_modelgw_group_t *group,
    ngx_str_t *id, ngx_http_modelgw_model_t **model, ngx_str_t *upstream_id)
{
#if (NGX_PCRE)
    int                        captures[3 * 10];
    ngx_int_t                  rc;
    ngx_uint_t                 i;
    ngx_http_modelgw_model_t  *pattern;
#endif

    *model = ngx_http_modelgw_model_listed(group, id);

    if (*model) {
        *upstream_id = (*model)->upstream_id;
        return NGX_OK;
    }

#if (NGX_PCRE)

    if (group->patterns.nelts == 0
        || !ngx_http_modelgw_model_id(id)
        || !ngx_http_modelgw_family_owns(group, id))
    {
        return NGX_DECLINED;
    }

    pattern = group->patterns.elts;

    for (i = 0; i < group->patterns.nelts; i++) {

        /* -1: no such group, or it took no part in the match */

        ngx_memset(captures, 0xff, sizeof(captures));

        if (ngx_regex_exec(pattern[i].regex, id, captures, 3 * 10) < 0) {
            continue;
        }

        rc = ngx_http_modelgw_model_expand(pool, &pattern[i].upstream_id, id,
                                           captures, upstream_id);
        if (rc != NGX_DECLINED) {
            *model = &pattern[i];
            return rc;
        }
    }

#endif

    return NGX_DECLINED;
}


static ngx_http_modelgw_model_t *
ngx_http_modelgw_model_listed(ngx_http_modelgw_group_t *group, ngx_str_t *id)
{
    ngx_uint_t                 i;
    ngx_http_modelgw_model_t  *model;

    model = group->models.elts;

    for (i = 0; i < group->models.nelts; i++) {

        if (model[i].id.len == id->len
            && ngx_memcmp(model[i].id.data, id->data, id->len) == 0)
        {
            return &model[i];
        }
    }

    return NULL;
}


ngx_uint_t
ngx_http_modelgw_model_enabled(ngx_modelgw_key_t *key, ngx_str_t *id)
{
    return key->models == NULL
           || ngx_http_modelgw_conf_listed(key->models, id);
}


#if (NGX_PCRE)

static ngx_int_t
ngx_http_modelgw_model_compile(ngx_conf_t *cf, ngx_http_modelgw_model_t *model)
{
    u_char               *p, *last, errstr[NGX_MAX_CONF_ERRSTR];
    ngx_str_t             one;
    ngx_uint_t            capture;
    ngx_regex_compile_t   rc;

    ngx_memzero(&rc, sizeof(ngx_regex_compile_t));

    rc.pattern.data = model->id.data + 1;
    rc.pattern.len = model->id.len - 1;
    rc.pool = cf->pool;
    rc.err.len = NGX_MAX_CONF_ERRSTR;
    rc.err.data = errstr;

    if (ngx_regex_compile(&rc) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "model \"%V\": %V",
                           &model->id, &rc.err);
        return NGX_ERROR;
    }

    model->regex = rc.regex;

    p = model->upstream_id.data;
    last = p + model->upstream_id.len;

    for ( /* void */ ; p < last; p++) {
        one.data = p;
        one.len = 1;

        if (*p == '$' && p + 1 < last && p[1] >= '0' && p[1] <= '9') {
            capture = *++p - '0';

            if (capture <= (ngx_uint_t) rc.captures) {
                continue;
            }

        } else if (ngx_http_modelgw_model_id(&one)) {
            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid upstream id \"%V\" of model \"%V\"",
                           &model->upstream_id, &model->id);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * The upstream id that a template makes of a matched id.
 *     NGX_OK, NGX_ERROR
 *     NGX_DECLINED  it would be no valid id
 */

static ngx_int_t
ngx_http_modelgw_model_expand(ngx_pool_t *pool, ngx_str_t *template,
    ngx_str_t *id, int *captures, ngx_str_t *text)
{
    int      *capture;
    u_char   *p, *last;
    size_t    size;

    size = template->len / 2 * id->len + template->len;

    text->data = ngx_pnalloc(pool, size);
    if (text->data == NULL) {
        return NGX_ERROR;
    }

    text->len = 0;
    last = template->data + template->len;

    for (p = template->data; p < last; p++) {

        if (*p != '$') {
            text->data[text->len++] = *p;
            continue;
        }

        capture = &captures[(*++p - '0') * 2];

        if (capture[0] >= 0) {
            ngx_memcpy(&text->data[text->len], &id->data[capture[0]],
                       capture[1] - capture[0]);
            text->len += capture[1] - capture[0];
        }
    }

    return ngx_http_modelgw_model_id(text) ? NGX_OK : NGX_DECLINED;
}

#endif
