
/*
 * Token usage: what to watch in an answer or in one event of a stream, and what
 * the numbers mean.
 *
 * The two protocols count differently.  Messages report input without what was
 * read from or written to the cache; chat reports all of it as prompt_tokens,
 * so the cached part is taken off.  Both report output with reasoning in it.
 * Messages streams report twice: message_start has input and cache, and some
 * output; message_delta has totals again, not increments.  So a field that is
 * present replaces, one that is absent keeps, and nothing is ever added: adding
 * has charged twice in several gateways.  Look-alikes report the input in
 * message_start, and 0 in message_delta: a 0 of input never replaces a count.
 *
 * One table for each protocol serves answers and events alike.  Rejected: to
 * read usage with the whole-document reader; the scanner is on every byte of an
 * answer anyway, to find the model id.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_usage.h"


/* a count that is watched, and where it goes */

typedef struct {
    ngx_uint_t            watch;
    size_t                offset;        /* of an int64_t */
    ngx_uint_t            beside;        /* the watch without which a 0 does
                                            not replace; itself: never does */
} ngx_modelgw_usage_field_t;


#define NGX_MODELGW_USAGE_ANY  NGX_MODELGW_SCAN_MAX_WATCHES


static void ngx_modelgw_usage_take(ngx_modelgw_usage_t *usage,
    ngx_modelgw_usage_field_t *fields, ngx_uint_t has_cache,
    ngx_modelgw_scan_t *s);
static ngx_uint_t ngx_modelgw_usage_messages_kind(ngx_modelgw_scan_t *s);
static ngx_uint_t ngx_modelgw_usage_chat_kind(ngx_modelgw_scan_t *s);
static void ngx_modelgw_usage_fields(ngx_modelgw_usage_field_t *field,
    void *dst, ngx_modelgw_scan_t *s);
static int64_t ngx_modelgw_usage_count(ngx_modelgw_scan_t *s,
    ngx_uint_t watch);
static ngx_uint_t ngx_modelgw_usage_final(ngx_modelgw_scan_t *s,
    ngx_uint_t protocol);
static ngx_uint_t ngx_modelgw_usage_is(ngx_modelgw_scan_t *s, ngx_uint_t watch,
    ngx_uint_t types);
static ngx_uint_t ngx_modelgw_usage_text_is(ngx_modelgw_scan_t *s,
    ngx_uint_t watch, ngx_str_t *text);


/* The enums name the rows of the tables below them. */

enum {
    MESSAGES_TYPE = 0,
    MESSAGES_MODEL,
    MESSAGES_ERROR,
    MESSAGES_USAGE,
    MESSAGES_INPUT,
    MESSAGES_CACHE_READ,
    MESSAGES_CACHE_WRITE,
    MESSAGES_CACHE_CREATION,
    MESSAGES_CACHE_WRITE_1H,
    MESSAGES_OUTPUT,
    MESSAGES_OUTPUT_DETAILS,
    MESSAGES_THINKING,
    MESSAGES_MESSAGE,
    MESSAGES_START_MODEL,
    MESSAGES_START_USAGE,
    MESSAGES_START_INPUT,
    MESSAGES_START_CACHE_READ,
    MESSAGES_START_CACHE_WRITE,
    MESSAGES_START_CACHE_CREATION,
    MESSAGES_START_CACHE_WRITE_1H,
    MESSAGES_START_OUTPUT,
    MESSAGES_START_OUTPUT_DETAILS,
    MESSAGES_START_THINKING
};


static ngx_modelgw_scan_watch_t  ngx_modelgw_usage_messages_watches[] = {

    { ngx_string("type"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("error"), NGX_MODELGW_SCAN_OBJECT },

    /* a JSON answer, message_delta */

    { ngx_string("usage"), NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("usage.input_tokens"), NGX_MODELGW_SCAN_COUNT },
    { ngx_string("usage.cache_read_input_tokens"), NGX_MODELGW_SCAN_COUNT },
    { ngx_string("usage.cache_creation_input_tokens"), NGX_MODELGW_SCAN_COUNT },
    { ngx_string("usage.cache_creation"), NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("usage.cache_creation.ephemeral_1h_input_tokens"),
      NGX_MODELGW_SCAN_COUNT },
    { ngx_string("usage.output_tokens"), NGX_MODELGW_SCAN_COUNT },
    { ngx_string("usage.output_tokens_details"), NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("usage.output_tokens_details.thinking_tokens"),
      NGX_MODELGW_SCAN_COUNT },

    /* message_start */

    { ngx_string("message"), NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("message.model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("message.usage"), NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("message.usage.input_tokens"), NGX_MODELGW_SCAN_COUNT },
    { ngx_string("message.usage.cache_read_input_tokens"),
      NGX_MODELGW_SCAN_COUNT },
    { ngx_string("message.usage.cache_creation_input_tokens"),
      NGX_MODELGW_SCAN_COUNT },
    { ngx_string("message.usage.cache_creation"), NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("message.usage.cache_creation.ephemeral_1h_input_tokens"),
      NGX_MODELGW_SCAN_COUNT },
    { ngx_string("message.usage.output_tokens"), NGX_MODELGW_SCAN_COUNT },
    { ngx_string("message.usage.output_tokens_details"),
      NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("message.usage.output_tokens_details.thinking_tokens"),
      NGX_MODELGW_SCAN_COUNT },
};


static ngx_modelgw_usage_field_t  ngx_modelgw_usage_messages_fields[] = {

    { MESSAGES_START_INPUT, offsetof(ngx_modelgw_usage_t, input),
      MESSAGES_START_INPUT },
    { MESSAGES_START_CACHE_READ, offsetof(ngx_modelgw_usage_t, cache_read),
      MESSAGES_START_INPUT },
    { MESSAGES_START_CACHE_WRITE, offsetof(ngx_modelgw_usage_t, cache_write),
      MESSAGES_START_INPUT },
    { MESSAGES_START_CACHE_WRITE_1H,
      offsetof(ngx_modelgw_usage_t, cache_write_1h), MESSAGES_START_INPUT },
    { MESSAGES_START_OUTPUT, offsetof(ngx_modelgw_usage_t, output),
      NGX_MODELGW_USAGE_ANY },
    { MESSAGES_START_THINKING, offsetof(ngx_modelgw_usage_t, reasoning),
      NGX_MODELGW_USAGE_ANY },

    { MESSAGES_INPUT, offsetof(ngx_modelgw_usage_t, input), MESSAGES_INPUT },
    { MESSAGES_CACHE_READ, offsetof(ngx_modelgw_usage_t, cache_read),
      MESSAGES_INPUT },
    { MESSAGES_CACHE_WRITE, offsetof(ngx_modelgw_usage_t, cache_write),
      MESSAGES_INPUT },
    { MESSAGES_CACHE_WRITE_1H, offsetof(ngx_modelgw_usage_t, cache_write_1h),
      MESSAGES_INPUT },
    { MESSAGES_OUTPUT, offsetof(ngx_modelgw_usage_t, output),
      NGX_MODELGW_USAGE_ANY },
    { MESSAGES_THINKING, offsetof(ngx_modelgw_usage_t, reasoning),
      NGX_MODELGW_USAGE_ANY },

    { NGX_MODELGW_SCAN_MAX_WATCHES, 0, 0 }
};


enum {
    CHAT_MODEL = 0,
    CHAT_ERROR,
    CHAT_CHOICES,
    CHAT_USAGE,
    CHAT_PROMPT,
    CHAT_PROMPT_DETAILS,
    CHAT_CACHED,
    CHAT_CACHE_WRITE,
    CHAT_COMPLETION,
    CHAT_COMPLETION_DETAILS,
    CHAT_REASONING
};


static ngx_modelgw_scan_watch_t  ngx_modelgw_usage_chat_watches[] = {

    { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("error"), NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_STRING },
    { ngx_string("choices"), NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("usage"), NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("usage.prompt_tokens"), NGX_MODELGW_SCAN_COUNT },
    { ngx_string("usage.prompt_tokens_details"), NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("usage.prompt_tokens_details.cached_tokens"),
      NGX_MODELGW_SCAN_COUNT },
    { ngx_string("usage.prompt_tokens_details.cache_write_tokens"),
      NGX_MODELGW_SCAN_COUNT },
    { ngx_string("usage.completion_tokens"), NGX_MODELGW_SCAN_COUNT },
    { ngx_string("usage.completion_tokens_details"), NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("usage.completion_tokens_details.reasoning_tokens"),
      NGX_MODELGW_SCAN_COUNT },
};


/* input holds the whole prompt until the cached part is taken off */

static ngx_modelgw_usage_field_t  ngx_modelgw_usage_chat_fields[] = {

    { CHAT_PROMPT, offsetof(ngx_modelgw_usage_t, input),
      NGX_MODELGW_USAGE_ANY },
    { CHAT_CACHED, offsetof(ngx_modelgw_usage_t, cache_read),
      NGX_MODELGW_USAGE_ANY },
    { CHAT_CACHE_WRITE, offsetof(ngx_modelgw_usage_t, cache_write),
      NGX_MODELGW_USAGE_ANY },
    { CHAT_COMPLETION, offsetof(ngx_modelgw_usage_t, output),
      NGX_MODELGW_USAGE_ANY },
    { CHAT_REASONING, offsetof(ngx_modelgw_usage_t, reasoning),
      NGX_MODELGW_USAGE_ANY },

    { NGX_MODELGW_SCAN_MAX_WATCHES, 0, 0 }
};


static ngx_str_t  ngx_modelgw_usage_stop = ngx_string("message_stop");
static ngx_str_t  ngx_modelgw_usage_error = ngx_string("error");


void
ngx_modelgw_usage_conf(ngx_modelgw_scan_conf_t *conf, ngx_uint_t protocol,
    ngx_modelgw_skip_pt skip)
{
    ngx_memzero(conf, sizeof(ngx_modelgw_scan_conf_t));

    conf->skip = skip;

    if (protocol == NGX_MODELGW_MESSAGES) {
        conf->watches = ngx_modelgw_usage_messages_watches;
        conf->nwatches = sizeof(ngx_modelgw_usage_messages_watches)
                         / sizeof(ngx_modelgw_scan_watch_t);
        return;
    }

    conf->watches = ngx_modelgw_usage_chat_watches;
    conf->nwatches = sizeof(ngx_modelgw_usage_chat_watches)
                     / sizeof(ngx_modelgw_scan_watch_t);
}


void
ngx_modelgw_usage_init(ngx_modelgw_usage_t *usage)
{
    usage->input = -1;
    usage->cache_read = -1;
    usage->cache_write = -1;
    usage->cache_write_1h = -1;
    usage->output = -1;
    usage->reasoning = -1;
    usage->prompt = -1;
    usage->input_has_cache = 0;
    usage->final = 0;
}


ngx_uint_t
ngx_modelgw_usage_merge(ngx_modelgw_usage_t *usage, ngx_uint_t protocol,
    ngx_modelgw_scan_t *s)
{
    if (ngx_modelgw_usage_final(s, protocol)) {
        usage->final = 1;
    }

    if (protocol == NGX_MODELGW_MESSAGES) {
        ngx_modelgw_usage_take(usage, ngx_modelgw_usage_messages_fields,
                               usage->input_has_cache, s);

        return ngx_modelgw_usage_messages_kind(s);
    }

    ngx_modelgw_usage_take(usage, ngx_modelgw_usage_chat_fields, 1, s);

    return ngx_modelgw_usage_chat_kind(s);
}


ngx_int_t
ngx_modelgw_usage_model(ngx_modelgw_scan_t *s, ngx_uint_t protocol,
    off_t *from, off_t *to)
{
    ngx_uint_t                 watch;
    ngx_modelgw_scan_value_t  *value;

    watch = CHAT_MODEL;

    if (protocol == NGX_MODELGW_MESSAGES) {
        watch = ngx_modelgw_usage_is(s, MESSAGES_MODEL, NGX_MODELGW_SCAN_STRING)
                ? MESSAGES_MODEL : MESSAGES_START_MODEL;
    }

    if (!ngx_modelgw_usage_is(s, watch, NGX_MODELGW_SCAN_STRING)) {
        return NGX_DECLINED;
    }

    value = ngx_modelgw_scan_value(s, watch);

    *from = value->from;
    *to = value->to;

    return NGX_OK;
}


/* has_cache: the upstream's input has cache reads and writes in it */

static void
ngx_modelgw_usage_take(ngx_modelgw_usage_t *usage,
    ngx_modelgw_usage_field_t *fields, ngx_uint_t has_cache,
    ngx_modelgw_scan_t *s)
{
    int64_t  cached;

    /* what was derived must not stand in for what is reported */

    if (has_cache) {
        usage->input = usage->prompt;
    }

    ngx_modelgw_usage_fields(fields, usage, s);

    /* the total has all lifetimes in it, whatever the upstream says */

    if (usage->cache_write < usage->cache_write_1h) {
        usage->cache_write = usage->cache_write_1h;
    }

    if (has_cache) {
        usage->prompt = usage->input;
        cached = ngx_max(usage->cache_read, 0) + ngx_max(usage->cache_write, 0);

        if (usage->prompt >= 0) {
            usage->input = ngx_max(usage->prompt - cached, 0);
        }
    }
}


static ngx_uint_t
ngx_modelgw_usage_messages_kind(ngx_modelgw_scan_t *s)
{
    if (ngx_modelgw_usage_text_is(s, MESSAGES_TYPE, &ngx_modelgw_usage_stop)) {
        return NGX_MODELGW_DOC_STOP;
    }

    if (ngx_modelgw_usage_text_is(s, MESSAGES_TYPE, &ngx_modelgw_usage_error)
        || ngx_modelgw_usage_is(s, MESSAGES_ERROR, NGX_MODELGW_SCAN_OBJECT))
    {
        return NGX_MODELGW_DOC_ERROR;
    }

    return NGX_MODELGW_DOC_OTHER;
}


static ngx_uint_t
ngx_modelgw_usage_chat_kind(ngx_modelgw_scan_t *s)
{
    if (ngx_modelgw_usage_is(s, CHAT_ERROR,
                             NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_STRING))
    {
        return NGX_MODELGW_DOC_ERROR;
    }

    if (ngx_modelgw_usage_is(s, CHAT_USAGE, NGX_MODELGW_SCAN_OBJECT)
        && ngx_modelgw_usage_is(s, CHAT_CHOICES, NGX_MODELGW_SCAN_ARRAY)
        && ngx_modelgw_scan_value(s, CHAT_CHOICES)->elements == 0)
    {
        return NGX_MODELGW_DOC_USAGE;
    }

    return NGX_MODELGW_DOC_OTHER;
}


/* Sets those fields that the document has as a count. */

static void
ngx_modelgw_usage_fields(ngx_modelgw_usage_field_t *field, void *dst,
    ngx_modelgw_scan_t *s)
{
    int64_t  n, *count;

    for ( /* void */ ; field->watch < NGX_MODELGW_SCAN_MAX_WATCHES; field++) {

        n = ngx_modelgw_usage_count(s, field->watch);
        count = (int64_t *) ((u_char *) dst + field->offset);

        if (n > 0
            || (n == 0
                && (*count <= 0
                    || field->beside == NGX_MODELGW_USAGE_ANY
                    || ngx_modelgw_usage_count(s, field->beside) > 0)))
        {
            *count = n;
        }
    }
}


/* -1: it is no count */

static int64_t
ngx_modelgw_usage_count(ngx_modelgw_scan_t *s, ngx_uint_t watch)
{
    ngx_modelgw_scan_value_t  *value;

    if (!ngx_modelgw_usage_is(s, watch, NGX_MODELGW_SCAN_COUNT)) {
        return -1;
    }

    value = ngx_modelgw_scan_value(s, watch);

    return ngx_atoi(value->text, value->len);
}


/* is the output here the last word? */

static ngx_uint_t
ngx_modelgw_usage_final(ngx_modelgw_scan_t *s, ngx_uint_t protocol)
{
    ngx_modelgw_scan_value_t  *choices;

    if (protocol == NGX_MODELGW_MESSAGES) {
        return ngx_modelgw_usage_is(s, MESSAGES_OUTPUT, NGX_MODELGW_SCAN_COUNT);
    }

    choices = ngx_modelgw_scan_value(s, CHAT_CHOICES);

    return ngx_modelgw_usage_is(s, CHAT_COMPLETION, NGX_MODELGW_SCAN_COUNT)
           && (choices->type == NGX_MODELGW_SCAN_ABSENT
               || choices->elements == 0);
}


static ngx_uint_t
ngx_modelgw_usage_is(ngx_modelgw_scan_t *s, ngx_uint_t watch, ngx_uint_t types)
{
    return (ngx_modelgw_scan_value(s, watch)->type & types) != 0;
}


static ngx_uint_t
ngx_modelgw_usage_text_is(ngx_modelgw_scan_t *s, ngx_uint_t watch,
    ngx_str_t *text)
{
    ngx_modelgw_scan_value_t  *value;

    value = ngx_modelgw_scan_value(s, watch);

    return value->type == NGX_MODELGW_SCAN_STRING
           && value->len == text->len
           && ngx_memcmp(value->text, text->data, text->len) == 0;
}
