
/*
 * Options of a line: words "NAME=VALUE" or "NAME", in any order.
 *
 * The options of a line are a table.  A chain of "else if", as nginx has for
 * "server" in "upstream", was rejected: a model has twenty options of a few
 * kinds.  An option that is unknown, duplicate or has an invalid value is
 * refused: after a typo, a price or a limit must not keep its default.
 */


#include "ngx_http_modelgw_conf.h"


static ngx_http_modelgw_option_t *ngx_http_modelgw_option_find(
    ngx_http_modelgw_option_t *option, ngx_str_t *word, ngx_str_t *value);
static void ngx_http_modelgw_option_unknown(ngx_conf_t *cf, ngx_uint_t i,
    ngx_http_modelgw_options_t *o);
static void ngx_http_modelgw_option_invalid(ngx_conf_t *cf, ngx_str_t *word,
    ngx_http_modelgw_options_t *o, ngx_http_modelgw_option_t *option);


ngx_int_t
ngx_http_modelgw_option_parse(ngx_conf_t *cf, ngx_uint_t first,
    ngx_http_modelgw_options_t *o)
{
    uint32_t                    bit, given;
    ngx_int_t                   rc;
    ngx_str_t                  *word, value;
    ngx_uint_t                  i;
    ngx_http_modelgw_option_t  *option;

    given = 0;
    word = cf->args->elts;

    for (i = first; i < cf->args->nelts; i++) {

        option = ngx_http_modelgw_option_find(o->table, &word[i], &value);

        if (option == NULL) {
            ngx_http_modelgw_option_unknown(cf, i, o);
            return NGX_ERROR;
        }

        bit = 1 << (option - o->table);

        rc = (given & bit) ? NGX_BUSY
             : option->set(option, &value,
                           (u_char *) o->object + option->offset);

        if (rc == NGX_BUSY) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate option \"%V\" of %s \"%V\"",
                               &word[i], o->what, o->name);
            return NGX_ERROR;
        }

        if (rc != NGX_OK) {
            ngx_http_modelgw_option_invalid(cf, &word[i], o, option);
            return NGX_ERROR;
        }

        given |= bit;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_option_directive(ngx_conf_t *cf, ngx_uint_t first,
    ngx_http_modelgw_option_t *table, void *object)
{
    ngx_http_modelgw_options_t  options;

    ngx_memzero(&options, sizeof(ngx_http_modelgw_options_t));

    options.table = table;
    options.object = object;
    options.what = "directive";
    options.name = cf->args->elts;

    return ngx_http_modelgw_option_parse(cf, first, &options);
}


/* Returns the option that the word sets, and its value; NULL: unknown. */

static ngx_http_modelgw_option_t *
ngx_http_modelgw_option_find(ngx_http_modelgw_option_t *option,
    ngx_str_t *word, ngx_str_t *value)
{
    ngx_str_t  *name;

    for ( /* void */ ; option->name.len; option++) {

        name = &option->name;

        if (word->len < name->len
            || ngx_memcmp(word->data, name->data, name->len) != 0)
        {
            continue;
        }

        value->data = word->data + name->len;
        value->len = word->len - name->len;

        if (value->len == 0 || name->data[name->len - 1] == '=') {
            return option;
        }
    }

    return NULL;
}


/* If a ";" is missing, the line continues with the words of the next. */

static void
ngx_http_modelgw_option_unknown(ngx_conf_t *cf, ngx_uint_t i,
    ngx_http_modelgw_options_t *o)
{
    u_char                     *p, *last, known[512];
    ngx_str_t                  *word;
    ngx_http_modelgw_option_t  *option;

    word = cf->args->elts;
    word += i;

    if (o->after && i + 1 < cf->args->nelts
        && ngx_strncmp(word[1].data, o->after, ngx_strlen(o->after)) == 0)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "unknown option \"%V\" of %s \"%V\": a \";\" is "
                           "missing before it", word, o->what, o->name);
        return;
    }

    p = known;
    last = known + sizeof(known);

    for (option = o->table; option->name.len; option++) {
        p = ngx_slprintf(p, last, " %V", &option->name);
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "unknown option \"%V\" of %s \"%V\", it takes:%*s",
                       word, o->what, o->name, (size_t) (p - known), known);
}


static void
ngx_http_modelgw_option_invalid(ngx_conf_t *cf, ngx_str_t *word,
    ngx_http_modelgw_options_t *o, ngx_http_modelgw_option_t *option)
{
    u_char           *p, *last, valid[256];
    const char       *before;
    ngx_conf_enum_t  *w;

    p = valid;
    last = valid + sizeof(valid);

    p = ngx_slprintf(p, last, "%s", option->takes);

    if (option->words) {
        before = ": ";

        for (w = option->words; w->name.len; w++) {
            p = ngx_slprintf(p, last, "%s%V", before, &w->name);
            before = " ";
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid option \"%V\" of %s \"%V\", it takes %*s",
                       word, o->what, o->name, (size_t) (p - valid), valid);
}


ngx_int_t
ngx_http_modelgw_option_count(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_int_t    n;
    ngx_uint_t  *count = field;

    n = ngx_atoi(value->data, value->len);

    if (n <= 0 || n > NGX_HTTP_MODELGW_COUNT_MAX) {
        return NGX_DECLINED;
    }

    *count = n;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_option_limit(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    uint32_t    *limit = field;
    ngx_uint_t   n;

    if (*limit) {
        return NGX_BUSY;
    }

    if (ngx_http_modelgw_option_count(option, value, &n) != NGX_OK) {
        return NGX_DECLINED;
    }

    *limit = (uint32_t) n;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_option_budget(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_modelgw_budget_t *budget = field;

    return budget->limit ? NGX_BUSY : ngx_modelgw_budget_parse(value, budget);
}


ngx_int_t
ngx_http_modelgw_option_id(ngx_http_modelgw_option_t *option, ngx_str_t *value,
    void *field)
{
    ngx_str_t *id = field;

    if (!ngx_http_modelgw_conf_id(value)) {
        return NGX_DECLINED;
    }

    *id = *value;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_option_word(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    return ngx_http_modelgw_option_word_find(option->words, value, field);
}


ngx_int_t
ngx_http_modelgw_option_word_find(ngx_conf_enum_t *words, ngx_str_t *text,
    ngx_uint_t *n)
{
    for ( /* void */ ; words->name.len; words++) {

        if (words->name.len == text->len
            && ngx_memcmp(words->name.data, text->data, text->len) == 0)
        {
            *n = words->value;
            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


ngx_int_t
ngx_http_modelgw_option_words(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    u_char      *p, *last;
    ngx_str_t    word;
    ngx_uint_t  *set = field;
    ngx_uint_t   bit;

    last = value->data + value->len;

    for (p = value->data; p <= last; p++) {
        word.data = p;

        while (p < last && *p != ',') {
            p++;
        }

        word.len = p - word.data;

        if (ngx_http_modelgw_option_word_find(option->words, &word, &bit)
            != NGX_OK)
        {
            return NGX_DECLINED;
        }

        *set |= bit;
    }

    return NGX_OK;
}
