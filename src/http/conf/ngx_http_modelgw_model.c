
/*
 * The model line of a group, and the search for the model of an id.
 *
 * A line names one model or, if it begins with "~", is a pattern for many: the
 * ids that it matches can be used, but are not listed.  Listed models are
 * tried first, then patterns in the order of the file.  The result of a
 * pattern is checked for the same characters as an id in the configuration, so
 * nothing else can get into an upstream body.
 *
 * Listed models are compared one by one: a group has dozens of them, and most
 * differ in length.
 *
 * Capabilities are used by the translation of requests.  What a vendor's
 * model can do is configured here, and nowhere in code.
 */


#include "ngx_modelgw_key.h"
#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_PRICE_UNSET  ((uint64_t) -1)   /* no price is higher */


static ngx_int_t ngx_http_modelgw_model_init(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_http_modelgw_model_t *model);
#if (NGX_PCRE)
static ngx_int_t ngx_http_modelgw_model_compile(ngx_conf_t *cf,
    ngx_http_modelgw_model_t *model);
#endif
static ngx_int_t ngx_http_modelgw_model_prices(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_http_modelgw_model_t *model);
static ngx_int_t ngx_http_modelgw_model_price_id(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_http_modelgw_model_t *model);
static ngx_int_t ngx_http_modelgw_model_free(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_model_price(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_http_modelgw_model_t *ngx_http_modelgw_model_listed(
    ngx_http_modelgw_group_t *group, ngx_str_t *id);
#if (NGX_PCRE)
static ngx_int_t ngx_http_modelgw_model_expand(ngx_pool_t *pool,
    ngx_str_t *template, ngx_str_t *id, int *captures, ngx_str_t *text);
#endif


static ngx_conf_enum_t  ngx_http_modelgw_switch[] = {
    { ngx_string("off"), 0 },
    { ngx_string("on"), 1 },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_modelgw_kinds[] = {
    { ngx_string("chat"), 0 },
    { ngx_string("embedding"), 1 },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_modelgw_sampling[] = {
    { ngx_string("both"), NGX_MODELGW_SAMPLING_BOTH },
    { ngx_string("one_of"), NGX_MODELGW_SAMPLING_ONE_OF },
    { ngx_string("none"), NGX_MODELGW_SAMPLING_NONE },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_modelgw_thinking[] = {
    { ngx_string("none"), NGX_MODELGW_THINKING_NONE },
    { ngx_string("budget"), NGX_MODELGW_THINKING_BUDGET },
    { ngx_string("adaptive"), NGX_MODELGW_THINKING_ADAPTIVE },
    { ngx_string("adaptive_only"), NGX_MODELGW_THINKING_ADAPTIVE_ONLY },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_modelgw_effort[] = {
    { ngx_string("minimal"), NGX_MODELGW_EFFORT_MINIMAL },
    { ngx_string("low"), NGX_MODELGW_EFFORT_LOW },
    { ngx_string("medium"), NGX_MODELGW_EFFORT_MEDIUM },
    { ngx_string("high"), NGX_MODELGW_EFFORT_HIGH },
    { ngx_string("xhigh"), NGX_MODELGW_EFFORT_XHIGH },
    { ngx_string("max"), NGX_MODELGW_EFFORT_MAX },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_modelgw_structured[] = {
    { ngx_string("none"), 0 },
    { ngx_string("native"), 1 },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_modelgw_extras[] = {
    { ngx_string("refused"), 0 },
    { ngx_string("included"), 1 },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_modelgw_reasoning[] = {
    { ngx_string("off"), NGX_MODELGW_REASONING_OFF },
    { ngx_string("content"), NGX_MODELGW_REASONING_CONTENT },
    { ngx_string("full"), NGX_MODELGW_REASONING_FULL },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_modelgw_auto_cache[] = {
    { ngx_string("off"), NGX_MODELGW_AUTO_CACHE_OFF },
    { ngx_string("on"), NGX_MODELGW_AUTO_CACHE_ON },
    { ngx_string("auto"), NGX_MODELGW_AUTO_CACHE_AUTO },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_modelgw_chat_limit[] = {
    { ngx_string("max_completion_tokens"), NGX_MODELGW_CHAT_LIMIT_COMPLETION },
    { ngx_string("max_tokens"), NGX_MODELGW_CHAT_LIMIT_TOKENS },
    { ngx_null_string, 0 }
};


#define ngx_http_modelgw_price(name)                                          \
    ngx_http_modelgw_model_price,                                             \
    offsetof(ngx_http_modelgw_model_t, price.name),                           \
    "euro per million tokens, such as 0.25, less than 1000000 and with 6 "    \
    "decimals at most", NULL

#define ngx_http_modelgw_count(name)                                          \
    ngx_http_modelgw_option_count,                                            \
    offsetof(ngx_http_modelgw_model_t, name),                                 \
    NGX_HTTP_MODELGW_COUNT_TAKES, NULL

#define ngx_http_modelgw_word(name, words)                                    \
    ngx_http_modelgw_option_word,                                             \
    offsetof(ngx_http_modelgw_model_t, name),                                 \
    NGX_HTTP_MODELGW_WORD_TAKES, words

ngx_http_modelgw_option_t  ngx_http_modelgw_model_options[] = {

    { ngx_string("input="), ngx_http_modelgw_price(input) },
    { ngx_string("output="), ngx_http_modelgw_price(output) },
    { ngx_string("cache_read="), ngx_http_modelgw_price(cache_read) },
    { ngx_string("cache_write="), ngx_http_modelgw_price(cache_write) },
    { ngx_string("cache_write_1h="), ngx_http_modelgw_price(cache_write_1h) },
    { ngx_string("free"), ngx_http_modelgw_model_free, 0, NULL, NULL },
    { ngx_string("kind="),
      ngx_http_modelgw_word(embedding, ngx_http_modelgw_kinds) },
    { ngx_string("extras="),
      ngx_http_modelgw_word(extras, ngx_http_modelgw_extras) },
    { ngx_string("context="), ngx_http_modelgw_count(context) },
    { ngx_string("max_output="), ngx_http_modelgw_count(max_output) },
    { ngx_string("default_max_tokens="),
      ngx_http_modelgw_count(caps.default_max_tokens) },
    { ngx_string("sampling="),
      ngx_http_modelgw_word(caps.sampling, ngx_http_modelgw_sampling) },
    { ngx_string("thinking="),
      ngx_http_modelgw_word(caps.thinking, ngx_http_modelgw_thinking) },
    { ngx_string("effort="), ngx_http_modelgw_option_words,
      offsetof(ngx_http_modelgw_model_t, caps.effort),
      NGX_HTTP_MODELGW_WORDS_TAKES, ngx_http_modelgw_effort },
    { ngx_string("structured="),
      ngx_http_modelgw_word(caps.structured, ngx_http_modelgw_structured) },
    { ngx_string("strict="),
      ngx_http_modelgw_word(caps.strict, ngx_http_modelgw_switch) },
    { ngx_string("prefill="),
      ngx_http_modelgw_word(caps.prefill, ngx_http_modelgw_switch) },
    { ngx_string("forced_tool_choice="),
      ngx_http_modelgw_word(caps.forced_tool_choice, ngx_http_modelgw_switch) },
    { ngx_string("reasoning_output="),
      ngx_http_modelgw_word(caps.reasoning_output,
                            ngx_http_modelgw_reasoning) },
    { ngx_string("usage_input_includes_cache="),
      ngx_http_modelgw_word(caps.usage_input_includes_cache,
                            ngx_http_modelgw_switch) },
    { ngx_string("auto_cache="),
      ngx_http_modelgw_word(caps.auto_cache, ngx_http_modelgw_auto_cache) },
    { ngx_string("chat_limit="),
      ngx_http_modelgw_word(caps.chat_limit, ngx_http_modelgw_chat_limit) },

    { ngx_null_string, NULL, 0, NULL, NULL }
};


char *
ngx_http_modelgw_model(ngx_conf_t *cf, ngx_http_modelgw_group_t *group)
{
    ngx_str_t                   *value;
    ngx_array_t                 *models;
    ngx_http_modelgw_model_t    *model;
    ngx_http_modelgw_options_t   options;

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

    if (ngx_http_modelgw_model_init(cf, group, model) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&options, sizeof(ngx_http_modelgw_options_t));

    options.table = ngx_http_modelgw_model_options;
    options.object = model;
    options.what = "model";
    options.name = &model->id;

    if (ngx_http_modelgw_option_parse(cf, 3, &options) != NGX_OK
        || ngx_http_modelgw_model_prices(cf, group, model) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_modelgw_model_init(ngx_conf_t *cf, ngx_http_modelgw_group_t *group,
    ngx_http_modelgw_model_t *model)
{
    ngx_str_t  *invalid;

    model->place.file = cf->conf_file->file.name.data;
    model->place.line = cf->conf_file->line;

    /*
     * defaults that are not 0, see the options of "model" in
     * docs/directives.md
     */

    model->caps.thinking = NGX_MODELGW_THINKING_BUDGET;
    model->caps.structured = 1;
    model->caps.strict = 1;
    model->caps.prefill = 1;
    model->caps.forced_tool_choice = 1;
    model->caps.default_max_tokens = 4096;
    model->caps.reasoning_output = NGX_MODELGW_REASONING_CONTENT;
    model->caps.auto_cache = NGX_MODELGW_AUTO_CACHE_AUTO;

    model->price.input = NGX_HTTP_MODELGW_PRICE_UNSET;
    model->price.output = NGX_HTTP_MODELGW_PRICE_UNSET;
    model->price.cache_read = NGX_HTTP_MODELGW_PRICE_UNSET;
    model->price.cache_write = NGX_HTTP_MODELGW_PRICE_UNSET;
    model->price.cache_write_1h = NGX_HTTP_MODELGW_PRICE_UNSET;

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

    invalid = NULL;

    if (!ngx_http_modelgw_model_id(&model->id)) {
        invalid = &model->id;

    } else if (!ngx_http_modelgw_model_id(&model->upstream_id)) {
        invalid = &model->upstream_id;
    }

    if (invalid) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid model id \"%V\" in group \"%V\"",
                           invalid, &group->name);
        return NGX_ERROR;
    }

    return NGX_OK;
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

#endif


/*
 * A price that is not given must not become 0: input and output are required
 * together, except for embeddings, which have no output; cached tokens default
 * to the price of input, and the longer cache to that of the shorter.
 */

static ngx_int_t
ngx_http_modelgw_model_prices(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_http_modelgw_model_t *model)
{
    ngx_modelgw_price_t  *price;

    price = &model->price;

    if (price->input == NGX_HTTP_MODELGW_PRICE_UNSET
        && price->output == NGX_HTTP_MODELGW_PRICE_UNSET
        && price->cache_read == NGX_HTTP_MODELGW_PRICE_UNSET
        && price->cache_write == NGX_HTTP_MODELGW_PRICE_UNSET
        && price->cache_write_1h == NGX_HTTP_MODELGW_PRICE_UNSET)
    {
        ngx_memzero(price, sizeof(ngx_modelgw_price_t));
        return NGX_OK;
    }

    if (model->free) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "model \"%V\" has both \"free\" and a price",
                           &model->id);
        return NGX_ERROR;
    }

    if (model->embedding && price->output == NGX_HTTP_MODELGW_PRICE_UNSET) {
        price->output = 0;
    }

    if (price->input == NGX_HTTP_MODELGW_PRICE_UNSET
        || price->output == NGX_HTTP_MODELGW_PRICE_UNSET)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "model \"%V\" has a price but no \"%s\"", &model->id,
                           (price->input == NGX_HTTP_MODELGW_PRICE_UNSET)
                           ? "input=" : "output=");
        return NGX_ERROR;
    }

    if (price->cache_read == NGX_HTTP_MODELGW_PRICE_UNSET) {
        price->cache_read = price->input;
    }

    if (price->cache_write == NGX_HTTP_MODELGW_PRICE_UNSET) {
        price->cache_write = price->input;
    }

    if (price->cache_write_1h == NGX_HTTP_MODELGW_PRICE_UNSET) {
        price->cache_write_1h = price->cache_write;
    }

    model->priced = 1;

    return ngx_http_modelgw_model_price_id(cf, group, model);
}


/* 63 bits of a digest, so that it is the same in any process and machine */

static ngx_int_t
ngx_http_modelgw_model_price_id(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_http_modelgw_model_t *model)
{
    size_t                size;
    u_char                digest[NGX_MODELGW_KEY_DIGEST];
    ngx_str_t             text;
    ngx_modelgw_price_t  *price;

    price = &model->price;
    size = group->name.len + model->id.len + 7 + 5 * NGX_INT64_LEN;

    text.data = ngx_pnalloc(cf->temp_pool, size);
    if (text.data == NULL) {
        return NGX_ERROR;
    }

    text.len = ngx_snprintf(text.data, size, "%V %V %uL %uL %uL %uL %uL",
                            &group->name, &model->id, price->input,
                            price->output, price->cache_read,
                            price->cache_write, price->cache_write_1h)
               - text.data;

    if (ngx_modelgw_key_digest(&text, digest) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "model \"%V\": SHA-256 failed", &model->id);
        return NGX_ERROR;
    }

    ngx_memcpy(&model->price_id, digest, sizeof(uint64_t));
    model->price_id = (model->price_id >> 1) | 1;

    return NGX_OK;
}


/* "free" is a bit field and has no offset: field is the model */

static ngx_int_t
ngx_http_modelgw_model_free(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_http_modelgw_model_t *model = field;

    model->free = 1;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_model_price(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    return ngx_modelgw_price_parse(value, field);
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
        || !ngx_http_modelgw_group_owns(group, id))
    {
        return NGX_DECLINED;
    }

    pattern = group->patterns.elts;

    for (i = 0; i < group->patterns.nelts; i++) {

        /* -1: there is no such capture, or it did not take part in the match */

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


#if (NGX_PCRE)

/*
 * Expands the captures in a template of an upstream id.
 *     NGX_OK
 *     NGX_DECLINED  the result is not a valid id
 *     NGX_ERROR     no memory
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


ngx_uint_t
ngx_http_modelgw_model_id(ngx_str_t *text)
{
    return ngx_http_modelgw_conf_word(text, "._:/@+-", 256);
}


ngx_uint_t
ngx_http_modelgw_model_enabled(ngx_modelgw_key_t *key, ngx_str_t *id)
{
    return key->models == NULL
           || ngx_http_modelgw_conf_listed(key->models, id);
}
