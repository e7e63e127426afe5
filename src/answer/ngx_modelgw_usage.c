
/*
 * Token usage: the members to watch in an answer or in an event of a stream,
 * and the meaning of the numbers.
 *
 * The protocols count differently.  Messages report input without cache reads
 * and writes; chat reports all of it as prompt_tokens, so the cached part is
 * subtracted, and so do responses.  In all, output includes reasoning.
 * Messages streams report twice: message_start has input, cache and some
 * output; message_delta has totals again, not increments.  So a field that is
 * present replaces the previous value, even a higher one, and nothing is added
 * up.  Imitations of the API report the input in message_start, and 0 in
 * message_delta: a 0 never replaces input.
 *
 * One table for each protocol is used for answers and events.  Rejected: the
 * reader of whole documents; the scanner visits each byte of an answer anyway,
 * to find the model id.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_usage.h"


/* a count that is watched, and its field */

typedef struct {
    ngx_uint_t            watch;
    ngx_uint_t            container;     /* watch of the object around it */
    ngx_uint_t            class;         /* index in ngx_modelgw_usage_t */
} ngx_modelgw_usage_field_t;


/* all types but null, which is the same as no value */

#define NGX_MODELGW_USAGE_VALUE  ((NGX_MODELGW_SCAN_ANY                        \
                                   & ~NGX_MODELGW_SCAN_NULL)                  \
                                  |NGX_MODELGW_SCAN_BRIEF)

#define ngx_modelgw_usage_class(field)                                        \
    (offsetof(ngx_modelgw_usage_t, field) / sizeof(int64_t))

#define ngx_modelgw_usage_field(watch, container, field)                      \
    { watch, container, ngx_modelgw_usage_class(field) }

#define ngx_modelgw_usage_bit(field)                                          \
    ((ngx_uint_t) 1 << ngx_modelgw_usage_class(field))


static void ngx_modelgw_usage_take(ngx_modelgw_usage_t *usage,
    ngx_modelgw_usage_field_t *fields, ngx_uint_t shift, ngx_uint_t has_cache,
    ngx_modelgw_scan_t *s);
static void ngx_modelgw_usage_writes(ngx_modelgw_usage_t *usage,
    ngx_uint_t set);
static void ngx_modelgw_usage_embeddings(ngx_modelgw_usage_t *usage,
    ngx_modelgw_scan_t *s);
static ngx_uint_t ngx_modelgw_usage_messages_kind(ngx_modelgw_scan_t *s);
static ngx_uint_t ngx_modelgw_usage_chat_kind(ngx_modelgw_scan_t *s);
static ngx_uint_t ngx_modelgw_usage_choices(ngx_modelgw_scan_t *s);
static ngx_uint_t ngx_modelgw_usage_responses_kind(ngx_modelgw_scan_t *s,
    ngx_uint_t events);
static ngx_inline ngx_uint_t ngx_modelgw_usage_ends(
    ngx_modelgw_scan_value_t *value, ngx_str_t *word);
static ngx_uint_t ngx_modelgw_usage_fields(ngx_modelgw_usage_t *usage,
    ngx_modelgw_usage_field_t *field, ngx_uint_t shift, ngx_modelgw_scan_t *s);
static ngx_uint_t ngx_modelgw_usage_odd(ngx_modelgw_usage_field_t *field,
    ngx_uint_t shift, ngx_modelgw_scan_t *s);
static int64_t ngx_modelgw_usage_count(ngx_modelgw_scan_t *s,
    ngx_uint_t watch);
static ngx_uint_t ngx_modelgw_usage_is(ngx_modelgw_scan_t *s, ngx_uint_t watch,
    ngx_uint_t types);
static ngx_uint_t ngx_modelgw_usage_text_is(ngx_modelgw_scan_t *s,
    ngx_uint_t watch, ngx_str_t *text);


/* the enums are the rows of the tables of watches */

enum {
    MESSAGES_TYPE = 0,
    MESSAGES_MODEL,
    MESSAGES_ERROR,
    MESSAGES_USAGE,
    MESSAGES_INPUT,
    MESSAGES_CACHE_READ,
    MESSAGES_CACHE_WRITE,
    MESSAGES_CACHE_CREATION,
    MESSAGES_CACHE_WRITE_5M,
    MESSAGES_CACHE_WRITE_1H,
    MESSAGES_OUTPUT,
    MESSAGES_OUTPUT_DETAILS,
    MESSAGES_THINKING,
    MESSAGES_MESSAGE,
    MESSAGES_START_MODEL,
    MESSAGES_START_USAGE
};


/* the distance from the rows of "usage" to those of "message.usage" */

#define NGX_MODELGW_USAGE_START  (MESSAGES_START_USAGE - MESSAGES_USAGE)


#define ngx_modelgw_usage_watch(row, path)                                    \
    [row] = { ngx_string(path), NGX_MODELGW_USAGE_VALUE }

/* at the root in JSON answers and message_delta, in "message" else */

#define ngx_modelgw_usage_messages_usage(n, path)                             \
    ngx_modelgw_usage_watch(MESSAGES_USAGE + n, path),                        \
    ngx_modelgw_usage_watch(MESSAGES_INPUT + n, path ".input_tokens"),        \
    ngx_modelgw_usage_watch(MESSAGES_CACHE_READ + n,                          \
                            path ".cache_read_input_tokens"),                 \
    ngx_modelgw_usage_watch(MESSAGES_CACHE_WRITE + n,                         \
                            path ".cache_creation_input_tokens"),             \
    ngx_modelgw_usage_watch(MESSAGES_CACHE_CREATION + n,                      \
                            path ".cache_creation"),                          \
    ngx_modelgw_usage_watch(MESSAGES_CACHE_WRITE_5M + n,                      \
                            path                                              \
                            ".cache_creation.ephemeral_5m_input_tokens"),     \
    ngx_modelgw_usage_watch(MESSAGES_CACHE_WRITE_1H + n,                      \
                            path                                              \
                            ".cache_creation.ephemeral_1h_input_tokens"),     \
    ngx_modelgw_usage_watch(MESSAGES_OUTPUT + n, path ".output_tokens"),      \
    ngx_modelgw_usage_watch(MESSAGES_OUTPUT_DETAILS + n,                      \
                            path ".output_tokens_details"),                   \
    ngx_modelgw_usage_watch(MESSAGES_THINKING + n,                            \
                            path ".output_tokens_details.thinking_tokens")


static ngx_modelgw_scan_watch_t  ngx_modelgw_usage_messages_watches[] = {

    [MESSAGES_TYPE] = { ngx_string("type"), NGX_MODELGW_SCAN_STRING },
    [MESSAGES_MODEL] = { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    [MESSAGES_ERROR] = { ngx_string("error"), NGX_MODELGW_SCAN_OBJECT },

    ngx_modelgw_usage_messages_usage(0, "usage"),

    [MESSAGES_MESSAGE] = { ngx_string("message"), NGX_MODELGW_SCAN_OBJECT },
    [MESSAGES_START_MODEL] =
        { ngx_string("message.model"), NGX_MODELGW_SCAN_STRING },

    ngx_modelgw_usage_messages_usage(NGX_MODELGW_USAGE_START, "message.usage")
};


static ngx_modelgw_usage_field_t  ngx_modelgw_usage_messages_fields[] = {
    ngx_modelgw_usage_field(MESSAGES_INPUT, MESSAGES_USAGE, input),
    ngx_modelgw_usage_field(MESSAGES_CACHE_READ, MESSAGES_USAGE, cache_read),
    ngx_modelgw_usage_field(MESSAGES_CACHE_WRITE, MESSAGES_USAGE, cache_write),
    ngx_modelgw_usage_field(MESSAGES_CACHE_WRITE_5M, MESSAGES_CACHE_CREATION,
                            cache_write_5m),
    ngx_modelgw_usage_field(MESSAGES_CACHE_WRITE_1H, MESSAGES_CACHE_CREATION,
                            cache_write_1h),
    ngx_modelgw_usage_field(MESSAGES_OUTPUT, MESSAGES_USAGE, output),
    ngx_modelgw_usage_field(MESSAGES_THINKING, MESSAGES_OUTPUT_DETAILS,
                            reasoning),
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

    [CHAT_MODEL] = { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    [CHAT_ERROR] = { ngx_string("error"),
                     NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_STRING },
    [CHAT_CHOICES] = { ngx_string("choices"), NGX_MODELGW_SCAN_ARRAY },

    ngx_modelgw_usage_watch(CHAT_USAGE, "usage"),
    ngx_modelgw_usage_watch(CHAT_PROMPT, "usage.prompt_tokens"),
    ngx_modelgw_usage_watch(CHAT_PROMPT_DETAILS, "usage.prompt_tokens_details"),
    ngx_modelgw_usage_watch(CHAT_CACHED,
                            "usage.prompt_tokens_details.cached_tokens"),
    ngx_modelgw_usage_watch(CHAT_CACHE_WRITE,
                            "usage.prompt_tokens_details.cache_write_tokens"),
    ngx_modelgw_usage_watch(CHAT_COMPLETION, "usage.completion_tokens"),
    ngx_modelgw_usage_watch(CHAT_COMPLETION_DETAILS,
                            "usage.completion_tokens_details"),
    ngx_modelgw_usage_watch(CHAT_REASONING,
                          "usage.completion_tokens_details.reasoning_tokens")
};


/* input is the whole prompt until the cached part is subtracted */

static ngx_modelgw_usage_field_t  ngx_modelgw_usage_chat_fields[] = {
    ngx_modelgw_usage_field(CHAT_PROMPT, CHAT_USAGE, input),
    ngx_modelgw_usage_field(CHAT_CACHED, CHAT_PROMPT_DETAILS, cache_read),
    ngx_modelgw_usage_field(CHAT_CACHE_WRITE, CHAT_PROMPT_DETAILS, cache_write),
    ngx_modelgw_usage_field(CHAT_COMPLETION, CHAT_USAGE, output),
    ngx_modelgw_usage_field(CHAT_REASONING, CHAT_COMPLETION_DETAILS, reasoning),
    { NGX_MODELGW_SCAN_MAX_WATCHES, 0, 0 }
};


enum {
    RESPONSES_TYPE = 0,
    RESPONSES_ERROR,
    RESPONSES_SEQUENCE,
    RESPONSES_ITEM,
    RESPONSES_ID,
    RESPONSES_MODEL,
    RESPONSES_OUTPUT,
    RESPONSES_USAGE,
    RESPONSES_INPUT_TOKENS,
    RESPONSES_INPUT_DETAILS,
    RESPONSES_CACHED,
    RESPONSES_CACHE_WRITE,
    RESPONSES_OUTPUT_TOKENS,
    RESPONSES_OUTPUT_DETAILS,
    RESPONSES_REASONING,
    RESPONSES_RESPONSE,
    RESPONSES_EVENT_ID,
    RESPONSES_EVENT_ERROR = RESPONSES_EVENT_ID
                            + RESPONSES_REASONING - RESPONSES_ID + 1
};


/* the distance from the rows of an answer to those of "response" */

#define NGX_MODELGW_USAGE_EVENT  (RESPONSES_EVENT_ID - RESPONSES_ID)


#define ngx_modelgw_usage_responses_rows(n, path)                             \
    [RESPONSES_ID + n] = { ngx_string(path "id"), NGX_MODELGW_SCAN_STRING },  \
    [RESPONSES_MODEL + n] =                                                   \
        { ngx_string(path "model"), NGX_MODELGW_SCAN_STRING },                \
    [RESPONSES_OUTPUT + n] =                                                  \
        { ngx_string(path "output"), NGX_MODELGW_SCAN_ARRAY },                \
    ngx_modelgw_usage_watch(RESPONSES_USAGE + n, path "usage"),               \
    ngx_modelgw_usage_watch(RESPONSES_INPUT_TOKENS + n,                       \
                            path "usage.input_tokens"),                       \
    ngx_modelgw_usage_watch(RESPONSES_INPUT_DETAILS + n,                      \
                            path "usage.input_tokens_details"),               \
    ngx_modelgw_usage_watch(RESPONSES_CACHED + n,                             \
                            path "usage.input_tokens_details"                 \
                            ".cached_tokens"),                                \
    ngx_modelgw_usage_watch(RESPONSES_CACHE_WRITE + n,                        \
                            path "usage.input_tokens_details"                 \
                            ".cache_write_tokens"),                           \
    ngx_modelgw_usage_watch(RESPONSES_OUTPUT_TOKENS + n,                      \
                            path "usage.output_tokens"),                      \
    ngx_modelgw_usage_watch(RESPONSES_OUTPUT_DETAILS + n,                     \
                            path "usage.output_tokens_details"),              \
    ngx_modelgw_usage_watch(RESPONSES_REASONING + n,                          \
                            path "usage.output_tokens_details"                \
                            ".reasoning_tokens")


static ngx_modelgw_scan_watch_t  ngx_modelgw_usage_responses_watches[] = {

    [RESPONSES_TYPE] = { ngx_string("type"), NGX_MODELGW_SCAN_STRING },
    [RESPONSES_ERROR] = { ngx_string("error"),
                          NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_STRING },
    ngx_modelgw_usage_watch(RESPONSES_SEQUENCE, "sequence_number"),
    [RESPONSES_ITEM] = { ngx_string("item"), NGX_MODELGW_SCAN_OBJECT },

    ngx_modelgw_usage_responses_rows(0, ""),

    [RESPONSES_RESPONSE] = { ngx_string("response"), NGX_MODELGW_SCAN_OBJECT },

    ngx_modelgw_usage_responses_rows(NGX_MODELGW_USAGE_EVENT, "response."),

    [RESPONSES_EVENT_ERROR] =
        { ngx_string("response.error"), NGX_MODELGW_SCAN_OBJECT }
};


static ngx_modelgw_usage_field_t  ngx_modelgw_usage_responses_fields[] = {
    ngx_modelgw_usage_field(RESPONSES_INPUT_TOKENS, RESPONSES_USAGE, input),
    ngx_modelgw_usage_field(RESPONSES_CACHED, RESPONSES_INPUT_DETAILS,
                            cache_read),
    ngx_modelgw_usage_field(RESPONSES_CACHE_WRITE, RESPONSES_INPUT_DETAILS,
                            cache_write),
    ngx_modelgw_usage_field(RESPONSES_OUTPUT_TOKENS, RESPONSES_USAGE, output),
    ngx_modelgw_usage_field(RESPONSES_REASONING, RESPONSES_OUTPUT_DETAILS,
                            reasoning),
    { NGX_MODELGW_SCAN_MAX_WATCHES, 0, 0 }
};


/* events of responses; of others, the last word decides */

static struct {
    ngx_str_t             type;
    ngx_uint_t            kind;
} ngx_modelgw_usage_events[] = {
    { ngx_string("response.completed"), NGX_MODELGW_DOC_STOP },
    { ngx_string("response.incomplete"), NGX_MODELGW_DOC_STOP },
    { ngx_string("response.failed"), NGX_MODELGW_DOC_FAILED },
    { ngx_string("response.output_item.added"), NGX_MODELGW_DOC_BEGIN },
    { ngx_string("response.output_item.done"), NGX_MODELGW_DOC_ITEM },
    { ngx_string("error"), NGX_MODELGW_DOC_ERROR },

    /* what a tool has written is no piece of an item */

    { ngx_string("response.shell_call_output_content.delta"),
      NGX_MODELGW_DOC_OTHER },

    { ngx_null_string, 0 }
};


/* by NGX_MODELGW_PART_* */

static ngx_uint_t  ngx_modelgw_usage_parts[] = {
    RESPONSES_ITEM,
    RESPONSES_EVENT_ERROR,
    RESPONSES_OUTPUT,
    RESPONSES_ID,
    RESPONSES_SEQUENCE
};


static ngx_str_t  ngx_modelgw_usage_delta = ngx_string(".delta");
static ngx_str_t  ngx_modelgw_usage_done = ngx_string(".done");


/* the first two rows are those of chat */

enum {
    EMBEDDINGS_USAGE = CHAT_ERROR + 1,
    EMBEDDINGS_PROMPT,
    EMBEDDINGS_TOTAL
};


static ngx_modelgw_scan_watch_t  ngx_modelgw_usage_embeddings_watches[] = {

    [CHAT_MODEL] = { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    [CHAT_ERROR] = { ngx_string("error"),
                     NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_STRING },

    ngx_modelgw_usage_watch(EMBEDDINGS_USAGE, "usage"),
    ngx_modelgw_usage_watch(EMBEDDINGS_PROMPT, "usage.prompt_tokens"),
    ngx_modelgw_usage_watch(EMBEDDINGS_TOTAL, "usage.total_tokens")
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

    if (protocol == NGX_MODELGW_RESPONSES) {
        conf->watches = ngx_modelgw_usage_responses_watches;
        conf->nwatches = sizeof(ngx_modelgw_usage_responses_watches)
                         / sizeof(ngx_modelgw_scan_watch_t);
        return;
    }

    if (protocol == NGX_MODELGW_EMBEDDINGS) {
        conf->watches = ngx_modelgw_usage_embeddings_watches;
        conf->nwatches = sizeof(ngx_modelgw_usage_embeddings_watches)
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
    usage->cache_write_5m = -1;
    usage->cache_write_1h = -1;
    usage->output = -1;
    usage->reasoning = -1;
    usage->prompt = -1;
    usage->odd = 0;
    usage->input_has_cache = 0;
    usage->events = 0;
    usage->rest = 0;
    usage->final = 0;
}


ngx_uint_t
ngx_modelgw_usage_merge(ngx_modelgw_usage_t *usage, ngx_uint_t protocol,
    ngx_modelgw_scan_t *s)
{
    ngx_uint_t  kind;

    if (protocol == NGX_MODELGW_MESSAGES) {
        ngx_modelgw_usage_take(usage, ngx_modelgw_usage_messages_fields,
                               NGX_MODELGW_USAGE_START, usage->input_has_cache,
                               s);
        ngx_modelgw_usage_take(usage, ngx_modelgw_usage_messages_fields, 0,
                               usage->input_has_cache, s);

        return ngx_modelgw_usage_messages_kind(s);
    }

    if (protocol == NGX_MODELGW_RESPONSES) {
        kind = ngx_modelgw_usage_responses_kind(s, usage->events);

        if (!usage->events) {
            ngx_modelgw_usage_take(usage, ngx_modelgw_usage_responses_fields,
                                   0, 1, s);

        } else if (kind == NGX_MODELGW_DOC_STOP
                   || kind == NGX_MODELGW_DOC_FAILED)
        {
            ngx_modelgw_usage_take(usage, ngx_modelgw_usage_responses_fields,
                                   NGX_MODELGW_USAGE_EVENT, 1, s);
        }

        return kind;
    }

    if (protocol == NGX_MODELGW_EMBEDDINGS) {
        ngx_modelgw_usage_embeddings(usage, s);

        return ngx_modelgw_usage_is(s, CHAT_ERROR, NGX_MODELGW_SCAN_ANY)
               ? NGX_MODELGW_DOC_ERROR : NGX_MODELGW_DOC_OTHER;
    }

    ngx_modelgw_usage_take(usage, ngx_modelgw_usage_chat_fields, 0, 1, s);

    return ngx_modelgw_usage_chat_kind(s);
}


void
ngx_modelgw_usage_end(ngx_modelgw_usage_t *usage, ngx_uint_t protocol)
{
    if (protocol == NGX_MODELGW_CHAT
        && usage->output >= 0
        && !(usage->odd & ngx_modelgw_usage_bit(output)))
    {
        usage->final = 1;
    }
}


ngx_int_t
ngx_modelgw_usage_model(ngx_modelgw_usage_t *usage, ngx_uint_t protocol,
    ngx_modelgw_scan_t *s, off_t *from, off_t *to)
{
    ngx_uint_t                 watch;
    ngx_modelgw_scan_value_t  *value;

    watch = CHAT_MODEL;

    if (protocol == NGX_MODELGW_MESSAGES) {
        watch = ngx_modelgw_usage_is(s, MESSAGES_MODEL, NGX_MODELGW_SCAN_STRING)
                ? MESSAGES_MODEL : MESSAGES_START_MODEL;
    }

    if (protocol == NGX_MODELGW_RESPONSES) {
        watch = RESPONSES_MODEL
                + (usage->events ? NGX_MODELGW_USAGE_EVENT : 0);
    }

    if (!ngx_modelgw_usage_is(s, watch, NGX_MODELGW_SCAN_STRING)) {
        return NGX_DECLINED;
    }

    value = ngx_modelgw_scan_value(s, watch);

    *from = value->from;
    *to = value->to;

    return NGX_OK;
}


ngx_modelgw_scan_value_t *
ngx_modelgw_usage_part(ngx_modelgw_usage_t *usage, ngx_modelgw_scan_t *s,
    ngx_uint_t part)
{
    ngx_uint_t                 watch;
    ngx_modelgw_scan_value_t  *value;

    static ngx_modelgw_scan_value_t  absent;

    watch = ngx_modelgw_usage_parts[part];

    if (usage->events
        && (part == NGX_MODELGW_PART_OUTPUT || part == NGX_MODELGW_PART_ID))
    {
        watch += NGX_MODELGW_USAGE_EVENT;
    }

    value = ngx_modelgw_scan_value(s, watch);

    if (part == NGX_MODELGW_PART_SEQUENCE
        && !(value->type & NGX_MODELGW_SCAN_COUNT))
    {
        return &absent;
    }

    return value;
}


/*
 * shift is the distance of the watches to use from those of the usage at the
 * root; has_cache means that the upstream's input includes cache reads and
 * writes.
 */

static void
ngx_modelgw_usage_take(ngx_modelgw_usage_t *usage,
    ngx_modelgw_usage_field_t *fields, ngx_uint_t shift, ngx_uint_t has_cache,
    ngx_modelgw_scan_t *s)
{
    int64_t     cached;
    ngx_uint_t  set;

    if (!ngx_modelgw_usage_is(s, fields->container + shift,
                              NGX_MODELGW_SCAN_ANY))
    {
        return;
    }

    /* a derived input must not be kept as a reported one */

    if (has_cache) {
        usage->input = usage->prompt;
    }

    set = ngx_modelgw_usage_fields(usage, fields, shift, s);

    ngx_modelgw_usage_writes(usage, set);

    if (has_cache) {
        usage->prompt = usage->input;
        cached = ngx_max(usage->cache_read, 0) + ngx_max(usage->cache_write, 0);

        if (usage->prompt >= 0) {
            usage->input = ngx_max(usage->prompt - cached, 0);
        }
    }

    if (set & ngx_modelgw_usage_bit(output)) {

        if (fields == ngx_modelgw_usage_chat_fields) {
            usage->final |= (ngx_modelgw_usage_choices(s) == 0);

        } else {
            usage->final |= (shift == 0
                             || fields == ngx_modelgw_usage_responses_fields);
        }
    }

    if (usage->odd & ngx_modelgw_usage_bit(output)) {
        usage->final = 0;
    }
}


/*
 * The total and its parts, the lifetimes of five minutes and of one hour, are
 * one report: those in the document are newer than the others, and each part is
 * billed, whatever the total is.  The part of the total that no lifetime is
 * reported for has the shorter one, which is the API's default.
 */

static void
ngx_modelgw_usage_writes(ngx_modelgw_usage_t *usage, ngx_uint_t set)
{
    int64_t     parts;
    ngx_uint_t  total, minutes, hour;

    total = set & ngx_modelgw_usage_bit(cache_write);
    minutes = set & ngx_modelgw_usage_bit(cache_write_5m);
    hour = set & ngx_modelgw_usage_bit(cache_write_1h);

    if (!(total || minutes || hour)) {
        return;
    }

    if (!minutes && !hour) {
        usage->cache_write_1h = ngx_min(usage->cache_write_1h,
                                        usage->cache_write);
    }

    if (total && !minutes) {
        usage->cache_write_5m = 0;

    } else if (hour && !minutes && usage->rest) {
        usage->cache_write_5m = ngx_max(usage->cache_write
                                        - usage->cache_write_1h, 0);
    }

    if (total || minutes) {
        usage->rest = !minutes;
    }

    parts = ngx_max(usage->cache_write_5m, 0)
            + ngx_max(usage->cache_write_1h, 0);

    usage->cache_write = total ? ngx_max(usage->cache_write, parts) : parts;
    usage->cache_write_5m = usage->cache_write
                            - ngx_max(usage->cache_write_1h, 0);
}


/*
 * There is no output.  Both counts are of the input; some vendors report only
 * the total.
 */

static void
ngx_modelgw_usage_embeddings(ngx_modelgw_usage_t *usage, ngx_modelgw_scan_t *s)
{
    int64_t  n;

    n = ngx_max(ngx_modelgw_usage_count(s, EMBEDDINGS_PROMPT),
                ngx_modelgw_usage_count(s, EMBEDDINGS_TOTAL));

    if (n >= 0) {
        usage->input = n;
        usage->output = 0;
        usage->final = 1;
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
        && ngx_modelgw_usage_choices(s) == 0)
    {
        return NGX_MODELGW_DOC_USAGE;
    }

    return NGX_MODELGW_DOC_OTHER;
}


/*
 * The type decides: what is beside "response" in an event is nothing that this
 * is about.
 */

static ngx_uint_t
ngx_modelgw_usage_responses_kind(ngx_modelgw_scan_t *s, ngx_uint_t events)
{
    ngx_uint_t                 i;
    ngx_modelgw_scan_value_t  *type;

    type = ngx_modelgw_scan_value(s, RESPONSES_TYPE);

    if (!events || type->type != NGX_MODELGW_SCAN_STRING) {
        return ngx_modelgw_usage_is(s, RESPONSES_ERROR,
                                    NGX_MODELGW_SCAN_OBJECT
                                    |NGX_MODELGW_SCAN_STRING)
               ? NGX_MODELGW_DOC_ERROR : NGX_MODELGW_DOC_OTHER;
    }

    for (i = 0; ngx_modelgw_usage_events[i].type.len; i++) {

        if (ngx_modelgw_usage_text_is(s, RESPONSES_TYPE,
                                      &ngx_modelgw_usage_events[i].type))
        {
            return ngx_modelgw_usage_events[i].kind;
        }
    }

    if (ngx_modelgw_usage_ends(type, &ngx_modelgw_usage_delta)) {
        return NGX_MODELGW_DOC_DELTA;
    }

    return ngx_modelgw_usage_ends(type, &ngx_modelgw_usage_done)
           ? NGX_MODELGW_DOC_DONE : NGX_MODELGW_DOC_OTHER;
}


static ngx_inline ngx_uint_t
ngx_modelgw_usage_ends(ngx_modelgw_scan_value_t *value, ngx_str_t *word)
{
    return value->len > word->len
           && value->len <= NGX_MODELGW_SCAN_TEXT
           && ngx_memcmp(value->text + value->len - word->len, word->data,
                         word->len) == 0;
}


static ngx_uint_t
ngx_modelgw_usage_choices(ngx_modelgw_scan_t *s)
{
    return ngx_modelgw_usage_is(s, CHAT_CHOICES, NGX_MODELGW_SCAN_ARRAY)
           ? ngx_modelgw_scan_value(s, CHAT_CHOICES)->elements : 0;
}


/*
 * Sets the fields that are counts in the document, and returns their bits; sets
 * the bits in usage->odd of those that are anything else.
 */

static ngx_uint_t
ngx_modelgw_usage_fields(ngx_modelgw_usage_t *usage,
    ngx_modelgw_usage_field_t *field, ngx_uint_t shift, ngx_modelgw_scan_t *s)
{
    int64_t     n, *count;
    ngx_uint_t  set, bit, zero;

    set = 0;

    /* a 0 replaces any field, but of messages without input only some */

    zero = ~(ngx_uint_t) 0;

    if (field == ngx_modelgw_usage_messages_fields
        && ngx_modelgw_usage_count(s, field->watch + shift) <= 0)
    {
        zero = ngx_modelgw_usage_bit(output) | ngx_modelgw_usage_bit(reasoning);
    }

    for ( /* void */ ; field->watch < NGX_MODELGW_SCAN_MAX_WATCHES; field++) {

        n = ngx_modelgw_usage_count(s, field->watch + shift);
        count = (int64_t *) usage + field->class;
        bit = (ngx_uint_t) 1 << field->class;

        if (n > 0
            || (n == 0
                && ((zero & bit) || (*count <= 0 && !(usage->odd & bit)))))
        {
            *count = n;
            set |= bit;
            usage->odd &= ~bit;

        } else if (n < 0 && ngx_modelgw_usage_odd(field, shift, s)) {
            usage->odd |= bit;
        }
    }

    return set;
}


/* whether the field, or the object around it, is of another type */

static ngx_uint_t
ngx_modelgw_usage_odd(ngx_modelgw_usage_field_t *field, ngx_uint_t shift,
    ngx_modelgw_scan_t *s)
{
    ngx_uint_t  in;

    in = ngx_modelgw_scan_value(s, field->container + shift)->type;

    return (in & ~NGX_MODELGW_SCAN_OBJECT) != 0
           || ngx_modelgw_usage_is(s, field->watch + shift,
                                   NGX_MODELGW_SCAN_ANY);
}


/* returns -1 if the value is not a count */

static int64_t
ngx_modelgw_usage_count(ngx_modelgw_scan_t *s, ngx_uint_t watch)
{
    ngx_modelgw_scan_value_t  *value;

    value = ngx_modelgw_scan_value(s, watch);

    return (value->type & NGX_MODELGW_SCAN_COUNT)
           ? ngx_atoi(value->text, value->len) : -1;
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
