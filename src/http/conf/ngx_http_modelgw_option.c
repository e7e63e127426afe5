
/*
 * The options of a model line: prices, sizes, capabilities.
 *
 * They are a table.  A chain of "else if", as nginx has it for "server" in an
 * "upstream", was rejected: there are twenty, and most are of four kinds.  An
 * option that is not known is refused, so that a typo cannot make a price or a
 * capability the default.
 *
 * The capabilities are stored for the translation of chat (translate.md, 1.4).
 * What a vendor's model can do is told here and nowhere in code.
 */


#include "ngx_http_modelgw.h"


#define NGX_HTTP_MODELGW_OPTION_MAX  1000000000


typedef struct ngx_http_modelgw_option_s  ngx_http_modelgw_option_t;

/* Sets the field from the value: NGX_OK, NGX_DECLINED. */
typedef ngx_int_t (*ngx_http_modelgw_option_pt)(ngx_str_t *value,
    ngx_http_modelgw_option_t *option, void *field);

struct ngx_http_modelgw_option_s {
    ngx_str_t                    name;       /* with "=", if it has a value */
    ngx_http_modelgw_option_pt   set;
    size_t                       offset;     /* of the field in the model */
    ngx_conf_enum_t             *words;
};


static ngx_http_modelgw_option_t *ngx_http_modelgw_option_find(
    ngx_str_t *text);
static void ngx_http_modelgw_option_invalid(ngx_conf_t *cf,
    ngx_http_modelgw_model_t *model, ngx_str_t *text,
    ngx_http_modelgw_option_t *option);
static ngx_int_t ngx_http_modelgw_option_prices(ngx_conf_t *cf,
    ngx_http_modelgw_model_t *model, uint32_t given);
static ngx_int_t ngx_http_modelgw_option_flag(ngx_str_t *value,
    ngx_http_modelgw_option_t *option, void *field);
static ngx_int_t ngx_http_modelgw_option_price(ngx_str_t *value,
    ngx_http_modelgw_option_t *option, void *field);
static ngx_int_t ngx_http_modelgw_option_count(ngx_str_t *value,
    ngx_http_modelgw_option_t *option, void *field);
static ngx_int_t ngx_http_modelgw_option_word(ngx_str_t *value,
    ngx_http_modelgw_option_t *option, void *field);
static ngx_int_t ngx_http_modelgw_option_set(ngx_str_t *value,
    ngx_http_modelgw_option_t *option, void *field);


static ngx_conf_enum_t  ngx_http_modelgw_switch[] = {
    { ngx_string("off"), 0 },
    { ngx_string("on"), 1 },
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


/* an option's place in the table is its bit in "given" */

#define NGX_HTTP_MODELGW_GIVEN_INPUT           0x0001
#define NGX_HTTP_MODELGW_GIVEN_OUTPUT          0x0002
#define NGX_HTTP_MODELGW_GIVEN_CACHE_READ      0x0004
#define NGX_HTTP_MODELGW_GIVEN_CACHE_WRITE     0x0008
#define NGX_HTTP_MODELGW_GIVEN_CACHE_WRITE_1H  0x0010
#define NGX_HTTP_MODELGW_GIVEN_PRICES          0x001f
#define NGX_HTTP_MODELGW_GIVEN_FREE            0x0020

#define ngx_http_modelgw_field(name)                                          \
    offsetof(ngx_http_modelgw_model_t, name)

static ngx_http_modelgw_option_t  ngx_http_modelgw_options[] = {

    { ngx_string("input="), ngx_http_modelgw_option_price,
      ngx_http_modelgw_field(price.input), NULL },
    { ngx_string("output="), ngx_http_modelgw_option_price,
      ngx_http_modelgw_field(price.output), NULL },
    { ngx_string("cache_read="), ngx_http_modelgw_option_price,
      ngx_http_modelgw_field(price.cache_read), NULL },
    { ngx_string("cache_write="), ngx_http_modelgw_option_price,
      ngx_http_modelgw_field(price.cache_write), NULL },
    { ngx_string("cache_write_1h="), ngx_http_modelgw_option_price,
      ngx_http_modelgw_field(price.cache_write_1h), NULL },
    { ngx_string("free"), ngx_http_modelgw_option_flag, 0, NULL },

    { ngx_string("extras="), ngx_http_modelgw_option_word,
      ngx_http_modelgw_field(extras), ngx_http_modelgw_extras },

    { ngx_string("context="), ngx_http_modelgw_option_count,
      ngx_http_modelgw_field(context), NULL },
    { ngx_string("max_output="), ngx_http_modelgw_option_count,
      ngx_http_modelgw_field(max_output), NULL },
    { ngx_string("default_max_tokens="), ngx_http_modelgw_option_count,
      ngx_http_modelgw_field(caps.default_max_tokens), NULL },

    { ngx_string("sampling="), ngx_http_modelgw_option_word,
      ngx_http_modelgw_field(caps.sampling), ngx_http_modelgw_sampling },
    { ngx_string("thinking="), ngx_http_modelgw_option_word,
      ngx_http_modelgw_field(caps.thinking), ngx_http_modelgw_thinking },
    { ngx_string("effort="), ngx_http_modelgw_option_set,
      ngx_http_modelgw_field(caps.effort), ngx_http_modelgw_effort },
    { ngx_string("structured="), ngx_http_modelgw_option_word,
      ngx_http_modelgw_field(caps.structured), ngx_http_modelgw_structured },
    { ngx_string("strict="), ngx_http_modelgw_option_word,
      ngx_http_modelgw_field(caps.strict), ngx_http_modelgw_switch },
    { ngx_string("prefill="), ngx_http_modelgw_option_word,
      ngx_http_modelgw_field(caps.prefill), ngx_http_modelgw_switch },
    { ngx_string("forced_tool_choice="), ngx_http_modelgw_option_word,
      ngx_http_modelgw_field(caps.forced_tool_choice),
      ngx_http_modelgw_switch },
    { ngx_string("reasoning_output="), ngx_http_modelgw_option_word,
      ngx_http_modelgw_field(caps.reasoning_output),
      ngx_http_modelgw_reasoning },
    { ngx_string("usage_input_includes_cache="), ngx_http_modelgw_option_word,
      ngx_http_modelgw_field(caps.usage_input_includes_cache),
      ngx_http_modelgw_switch },

    { ngx_null_string, NULL, 0, NULL }
};


ngx_int_t
ngx_http_modelgw_option_parse(ngx_conf_t *cf, ngx_http_modelgw_model_t *model)
{
    uint32_t                    bit, given;
    ngx_str_t                  *value, text;
    ngx_uint_t                  i;
    ngx_http_modelgw_option_t  *option;

    given = 0;
    value = cf->args->elts;

    for (i = 3; i < cf->args->nelts; i++) {

        option = ngx_http_modelgw_option_find(&value[i]);

        if (option == NULL) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "unknown option \"%V\" of model \"%V\"",
                               &value[i], &model->id);
            return NGX_ERROR;
        }

        bit = 1 << (option - ngx_http_modelgw_options);

        text.data = value[i].data + option->name.len;
        text.len = value[i].len - option->name.len;

        if (given & bit) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate option \"%V\" of model \"%V\"",
                               &value[i], &model->id);
            return NGX_ERROR;
        }

        if (option->set(&text, option, (u_char *) model + option->offset)
            != NGX_OK)
        {
            ngx_http_modelgw_option_invalid(cf, model, &value[i], option);
            return NGX_ERROR;
        }

        given |= bit;
    }

    return ngx_http_modelgw_option_prices(cf, model, given);
}


static ngx_http_modelgw_option_t *
ngx_http_modelgw_option_find(ngx_str_t *text)
{
    ngx_str_t                  *name;
    ngx_http_modelgw_option_t  *option;

    for (option = ngx_http_modelgw_options; option->name.len; option++) {

        name = &option->name;

        if (ngx_strncmp(name->data, text->data, name->len) == 0
            && (name->data[name->len - 1] == '=' || text->len == name->len))
        {
            return option;
        }
    }

    return NULL;
}


static void
ngx_http_modelgw_option_invalid(ngx_conf_t *cf,
    ngx_http_modelgw_model_t *model, ngx_str_t *text,
    ngx_http_modelgw_option_t *option)
{
    u_char           *p, *last, valid[256];
    const char       *before;
    ngx_conf_enum_t  *word;

    p = valid;
    last = valid + sizeof(valid);

    if (option->set == ngx_http_modelgw_option_price) {
        p = ngx_slprintf(p, last, "euro per million tokens, such as 0.25, "
                         "less than 1000000 and with 6 decimals at most");

    } else if (option->set == ngx_http_modelgw_option_count) {
        p = ngx_slprintf(p, last, "a number from 1 to %d",
                         NGX_HTTP_MODELGW_OPTION_MAX);

    } else {
        before = (option->set == ngx_http_modelgw_option_set)
                 ? "with commas between: " : "one of: ";

        for (word = option->words; word->name.len; word++) {
            p = ngx_slprintf(p, last, "%s%V", before, &word->name);
            before = " ";
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid option \"%V\" of model \"%V\", it takes %*s",
                       text, &model->id, (size_t) (p - valid), valid);
}


/*
 * A price that was left out must not become 0: input and output come together,
 * cached tokens cost what input costs, and a longer cache what the shorter one
 * costs.
 */

static ngx_int_t
ngx_http_modelgw_option_prices(ngx_conf_t *cf, ngx_http_modelgw_model_t *model,
    uint32_t given)
{
    uint32_t              both;
    ngx_modelgw_price_t  *price;

    model->free = (given & NGX_HTTP_MODELGW_GIVEN_FREE) ? 1 : 0;

    if ((given & NGX_HTTP_MODELGW_GIVEN_PRICES) == 0) {
        return NGX_OK;
    }

    if (model->free) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "model \"%V\" has both \"free\" and a price",
                           &model->id);
        return NGX_ERROR;
    }

    both = NGX_HTTP_MODELGW_GIVEN_INPUT|NGX_HTTP_MODELGW_GIVEN_OUTPUT;

    if ((given & both) != both) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "model \"%V\" has a price but no \"%s\"", &model->id,
                           (given & NGX_HTTP_MODELGW_GIVEN_INPUT) ? "output="
                                                                  : "input=");
        return NGX_ERROR;
    }

    price = &model->price;

    if (!(given & NGX_HTTP_MODELGW_GIVEN_CACHE_READ)) {
        price->cache_read = price->input;
    }

    if (!(given & NGX_HTTP_MODELGW_GIVEN_CACHE_WRITE)) {
        price->cache_write = price->input;
    }

    if (!(given & NGX_HTTP_MODELGW_GIVEN_CACHE_WRITE_1H)) {
        price->cache_write_1h = price->cache_write;
    }

    model->priced = 1;

    return NGX_OK;
}


/* "free" is a bit field, set from "given" when all options are known */

static ngx_int_t
ngx_http_modelgw_option_flag(ngx_str_t *value,
    ngx_http_modelgw_option_t *option, void *field)
{
    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_option_price(ngx_str_t *value,
    ngx_http_modelgw_option_t *option, void *field)
{
    return ngx_modelgw_price_parse(value, field);
}


static ngx_int_t
ngx_http_modelgw_option_count(ngx_str_t *value,
    ngx_http_modelgw_option_t *option, void *field)
{
    ngx_int_t    n;
    ngx_uint_t  *count = field;

    n = ngx_atoi(value->data, value->len);

    if (n <= 0 || n > NGX_HTTP_MODELGW_OPTION_MAX) {
        return NGX_DECLINED;
    }

    *count = n;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_option_word(ngx_str_t *value,
    ngx_http_modelgw_option_t *option, void *field)
{
    ngx_uint_t       *n = field;
    ngx_conf_enum_t  *word;

    for (word = option->words; word->name.len; word++) {

        if (word->name.len == value->len
            && ngx_memcmp(word->name.data, value->data, value->len) == 0)
        {
            *n = word->value;
            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


/* words with commas between them: their bits together */

static ngx_int_t
ngx_http_modelgw_option_set(ngx_str_t *value,
    ngx_http_modelgw_option_t *option, void *field)
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

        if (ngx_http_modelgw_option_word(&word, option, &bit) != NGX_OK) {
            return NGX_DECLINED;
        }

        *set |= bit;
    }

    return NGX_OK;
}
