
/*
 * The response object and the events about it: all of a response but its items,
 * which are in response_item.c.
 *
 * The members are those that clients' SDKs require.  "tools" and "instructions"
 * of the call are not repeated, though the vendor does: with some clients they
 * are 35 KB, three times a stream.
 *
 * An error in a stream is two events: clients look for it in different places.
 * Codex reads "response.failed" and its own codes, which decide whether it asks
 * again; the SDKs read "error", some its members, some a member "error" in it.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_response_private.h"
#include "ngx_modelgw_stream.h"


#define NGX_MODELGW_RESPONSE_OUTPUT  8192    /* bytes allocated first */


#define ngx_modelgw_response_reported(n)  ((n) < 0 ? 0 : (n))


/* our code of an error, and the one that clients act on */

typedef struct {
    ngx_str_t                    ours;
    ngx_str_t                    code;
} ngx_modelgw_response_code_t;


static size_t ngx_modelgw_response_plain(u_char *dst, ngx_str_t *src);
static void ngx_modelgw_response_object(ngx_modelgw_response_write_t *w,
    ngx_str_t *status, ngx_modelgw_response_end_t *end,
    ngx_modelgw_response_code_t *code, ngx_str_t *message);
static void ngx_modelgw_response_echo(ngx_modelgw_response_write_t *w,
    ngx_str_t *raw, char *absent);
static void ngx_modelgw_response_usage(ngx_modelgw_response_write_t *w);
static ngx_modelgw_response_code_t *ngx_modelgw_response_code(
    ngx_str_t *ours);


static ngx_modelgw_scan_watch_t  ngx_modelgw_response_watches[] = {
    { ngx_string("input"), NGX_MODELGW_SCAN_STRING|NGX_MODELGW_SCAN_BRIEF }
};


/* the last one is for all others */

static ngx_modelgw_response_code_t  ngx_modelgw_response_codes[] = {
    { ngx_string("RATE_LIMITED"), ngx_string("rate_limit_exceeded") },
    { ngx_string("CONTEXT_LENGTH_EXCEEDED"),
      ngx_string("context_length_exceeded") },
    { ngx_string("INVALID_REQUEST"), ngx_string("invalid_prompt") },
    { ngx_string("INSUFFICIENT_CREDIT"), ngx_string("insufficient_quota") },
    { ngx_null_string, ngx_string("server_error") }
};


static ngx_str_t  ngx_modelgw_response_created =
    ngx_string("response.created");
static ngx_str_t  ngx_modelgw_response_in_progress =
    ngx_string("response.in_progress");
static ngx_str_t  ngx_modelgw_response_completed =
    ngx_string("response.completed");
static ngx_str_t  ngx_modelgw_response_incomplete =
    ngx_string("response.incomplete");
static ngx_str_t  ngx_modelgw_response_failed =
    ngx_string("response.failed");
static ngx_str_t  ngx_modelgw_response_error_event = ngx_string("error");
static ngx_str_t  ngx_modelgw_response_keepalive = ngx_string("keepalive");


/* prefixes of the upstream's ids: ours have their own */

static ngx_str_t  ngx_modelgw_response_prefixes[] = {
    ngx_string("msg_"),
    ngx_string("chatcmpl-"),
    ngx_string("resp_"),
    ngx_null_string
};


ngx_int_t
ngx_modelgw_response_write_init(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_t *rs, ngx_pool_t *pool, ngx_modelgw_skip_pt skip,
    size_t max, ngx_uint_t events, ngx_modelgw_out_t *out)
{
    ngx_memzero(w, sizeof(ngx_modelgw_response_write_t));

    w->rs = rs;
    w->pool = pool;
    w->out = out;
    w->max = max;
    w->events = events;

    w->scan_conf.watches = ngx_modelgw_response_watches;
    w->scan_conf.nwatches = 1;
    w->scan_conf.skip = skip;

    ngx_queue_init(&w->blocks);

    ngx_modelgw_out_piece(&w->output.out, &w->output.piece, pool,
                          NGX_MODELGW_RESPONSE_OUTPUT);

    return w->output.out.failed ? NGX_ERROR : NGX_OK;
}


void
ngx_modelgw_response_write_start(ngx_modelgw_response_write_t *w,
    ngx_str_t *id)
{
    u_char      *p;
    ngx_str_t    own, *prefix;

    if (w->started) {
        return;
    }

    w->started = 1;

    own = *id;

    for (prefix = ngx_modelgw_response_prefixes; prefix->len; prefix++) {

        if (own.len > prefix->len
            && ngx_memcmp(own.data, prefix->data, prefix->len) == 0)
        {
            own.data += prefix->len;
            own.len -= prefix->len;
            break;
        }
    }

    /* the end of a long one differs more */

    if (own.len > NGX_MODELGW_RESPONSE_BASE) {
        own.data += own.len - NGX_MODELGW_RESPONSE_BASE;
        own.len = NGX_MODELGW_RESPONSE_BASE;
    }

    w->base.data = w->base_buf;
    w->base.len = ngx_modelgw_response_plain(w->base_buf, &own);

    if (w->base.len == 0) {
        p = ngx_sprintf(w->base_buf, "%T", w->rs->created);
        w->base.len = p - w->base_buf;
    }

    if (!w->events) {
        return;
    }

    ngx_modelgw_response_event(w, &ngx_modelgw_response_created);
    ngx_modelgw_response_object(w, &ngx_modelgw_response_in_progress, NULL,
                                NULL, NULL);

    ngx_modelgw_response_event(w, &ngx_modelgw_response_in_progress);
    ngx_modelgw_response_object(w, &ngx_modelgw_response_in_progress, NULL,
                                NULL, NULL);
}


ngx_int_t
ngx_modelgw_response_write_room(ngx_modelgw_response_write_t *w, size_t len)
{
    size_t  used;

    /* each has memory of its own, however short it is */

    if (w->nblocks > NGX_MODELGW_STREAM_MAX_BLOCKS) {
        return NGX_DECLINED;
    }

    used = w->kept + ngx_modelgw_response_bytes_len(&w->output);

    return (used <= w->max && len <= w->max - used) ? NGX_OK : NGX_DECLINED;
}


ngx_int_t
ngx_modelgw_response_write_end(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_end_t *end)
{
    ngx_str_t  *status;

    /* texts are no longer those of an event */

    w->borrowed = 0;

    if (ngx_modelgw_response_block_end(w, end->cut) != NGX_OK) {
        return NGX_ERROR;
    }

    if (w->kind == NGX_MODELGW_RESPONSE_TOOL && end->cut) {
        ngx_modelgw_response_item_drop(w);
    }

    if (end->refusal.len
        && ngx_modelgw_response_item_text(w, NGX_MODELGW_RESPONSE_REFUSAL,
                                          &end->refusal)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_modelgw_response_item_close(w, end->reason.len != 0) != NGX_OK) {
        return NGX_ERROR;
    }

    status = end->reason.len ? &ngx_modelgw_response_incomplete
                             : &ngx_modelgw_response_completed;

    if (w->events) {
        ngx_modelgw_response_event(w, status);
    }

    ngx_modelgw_response_object(w, status, end, NULL, NULL);

    return NGX_OK;
}


void
ngx_modelgw_response_write_ping(ngx_modelgw_response_write_t *w)
{
    ngx_str_t  none;

    ngx_str_null(&none);

    ngx_modelgw_response_write_start(w, &none);

    ngx_modelgw_response_event(w, &ngx_modelgw_response_keepalive);
    ngx_modelgw_out_text(w->out, "}\n\n");
}


void
ngx_modelgw_response_write_error(ngx_modelgw_response_write_t *w,
    ngx_str_t *code, ngx_str_t *message)
{
    ngx_str_t                     none;
    ngx_modelgw_response_code_t  *known;

    ngx_str_null(&none);

    ngx_modelgw_response_write_start(w, &none);

    /* what is open was not received whole */

    ngx_modelgw_response_item_drop(w);

    known = ngx_modelgw_response_code(code);

    ngx_modelgw_response_event(w, &ngx_modelgw_response_failed);
    ngx_modelgw_response_object(w, &ngx_modelgw_response_failed, NULL, known,
                                message);

    ngx_modelgw_response_event(w, &ngx_modelgw_response_error_event);

    ngx_modelgw_out_text(w->out, ",\"code\":");
    ngx_modelgw_out_string(w->out, code);
    ngx_modelgw_out_text(w->out, ",\"message\":");
    ngx_modelgw_out_string(w->out, message);
    ngx_modelgw_out_text(w->out,
                   ",\"param\":null,\"error\":{\"type\":\"error\",\"code\":");
    ngx_modelgw_out_string(w->out, code);
    ngx_modelgw_out_text(w->out, ",\"message\":");
    ngx_modelgw_out_string(w->out, message);
    ngx_modelgw_out_text(w->out, ",\"param\":null}}\n\n");
}


void
ngx_modelgw_response_event(ngx_modelgw_response_write_t *w, ngx_str_t *type)
{
    ngx_modelgw_out_text(w->out, "event: ");
    ngx_modelgw_out(w->out, type->data, type->len);
    ngx_modelgw_out_text(w->out, "\ndata: {\"type\":\"");
    ngx_modelgw_out(w->out, type->data, type->len);
    ngx_modelgw_out_text(w->out, "\",\"sequence_number\":");
    ngx_modelgw_out_number(w->out, w->seq++);
}


/* copies an id, with '_' for what clients may not expect in one */

static size_t
ngx_modelgw_response_plain(u_char *dst, ngx_str_t *src)
{
    size_t  i;
    u_char  ch;

    for (i = 0; i < src->len; i++) {
        ch = src->data[i];

        if ((ch >= 'a' && ch <= 'z')
            || (ch >= 'A' && ch <= 'Z')
            || (ch >= '0' && ch <= '9')
            || ch == '-')
        {
            dst[i] = ch;

        } else {
            dst[i] = '_';
        }
    }

    return src->len;
}


/*
 * The response, as a member of an event or as a whole answer.  status is the
 * type of the event, end and code are NULL if they do not apply.
 */

static void
ngx_modelgw_response_object(ngx_modelgw_response_write_t *w,
    ngx_str_t *status, ngx_modelgw_response_end_t *end,
    ngx_modelgw_response_code_t *code, ngx_str_t *message)
{
    ngx_modelgw_out_t             *out;
    ngx_modelgw_responses_call_t  *call;

    out = w->out;
    call = w->rs->call;

    if (w->events) {
        ngx_modelgw_out_text(out, ",\"response\":");
    }

    ngx_modelgw_out_text(out, "{\"id\":\"resp_");
    ngx_modelgw_out(out, w->base.data, w->base.len);
    ngx_modelgw_out_text(out, "\",\"object\":\"response\",\"created_at\":");
    ngx_modelgw_out_number(out, w->rs->created);
    ngx_modelgw_out_text(out, ",\"status\":\"");
    ngx_modelgw_out(out, status->data + sizeof("response.") - 1,
                    status->len - (sizeof("response.") - 1));
    ngx_modelgw_out_text(out, "\",\"completed_at\":");

    if (end && end->reason.len == 0) {
        ngx_modelgw_out_number(out, w->rs->now);

    } else {
        ngx_modelgw_out_text(out, "null");
    }

    ngx_modelgw_out_text(out, ",\"error\":");

    if (code) {
        ngx_modelgw_out_text(out, "{\"code\":\"");
        ngx_modelgw_out(out, code->code.data, code->code.len);
        ngx_modelgw_out_text(out, "\",\"message\":");
        ngx_modelgw_out_string(out, message);
        ngx_modelgw_out_text(out, "}");

    } else {
        ngx_modelgw_out_text(out, "null");
    }

    ngx_modelgw_out_text(out, ",\"incomplete_details\":");

    if (end && end->reason.len) {
        ngx_modelgw_out_text(out, "{\"reason\":\"");
        ngx_modelgw_out(out, end->reason.data, end->reason.len);
        ngx_modelgw_out_text(out, "\"}");

    } else {
        ngx_modelgw_out_text(out, "null");
    }

    ngx_modelgw_out_text(out, ",\"instructions\":null,\"max_output_tokens\":");
    ngx_modelgw_response_echo(w, &call->max_output_tokens, "null");
    ngx_modelgw_out_text(out, ",\"metadata\":");
    ngx_modelgw_response_echo(w, &call->metadata, "{}");
    ngx_modelgw_out_text(out, ",\"model\":");
    ngx_modelgw_out(out, w->rs->model.data, w->rs->model.len);
    ngx_modelgw_out_text(out, ",\"output\":[");

    /* nothing is written to it after the end, so it stays where it is */

    if (end || code) {
        ngx_modelgw_out_borrowed(out, w->output.piece.start,
                                 ngx_modelgw_response_bytes_len(&w->output));
    }

    ngx_modelgw_out_text(out, "],\"parallel_tool_calls\":");
    ngx_modelgw_response_echo(w, &call->parallel_tool_calls, "true");
    ngx_modelgw_out_text(out, ",\"previous_response_id\":null"
                              ",\"reasoning\":{\"effort\":");
    ngx_modelgw_response_echo(w, &call->effort, "null");
    ngx_modelgw_out_text(out, ",\"summary\":");
    ngx_modelgw_response_echo(w, &call->summary, "null");
    ngx_modelgw_out_text(out, "},\"store\":false,\"temperature\":");
    ngx_modelgw_response_echo(w, &call->temperature, "1.0");
    ngx_modelgw_out_text(out, ",\"text\":{\"format\":");
    ngx_modelgw_response_echo(w, &call->format, "{\"type\":\"text\"}");
    ngx_modelgw_out_text(out, "},\"tool_choice\":");
    ngx_modelgw_response_echo(w, &call->tool_choice, "\"auto\"");
    ngx_modelgw_out_text(out, ",\"tools\":[],\"top_p\":");
    ngx_modelgw_response_echo(w, &call->top_p, "1.0");
    ngx_modelgw_out_text(out, ",\"truncation\":\"disabled\",\"usage\":");

    if (end) {
        ngx_modelgw_response_usage(w);

    } else {
        ngx_modelgw_out_text(out, "null");
    }

    ngx_modelgw_out_text(out, "}");

    if (w->events) {
        ngx_modelgw_out_text(out, "}\n\n");
    }
}


/* a value of the call; line ends between its tokens would end the event */

static void
ngx_modelgw_response_echo(ngx_modelgw_response_write_t *w, ngx_str_t *raw,
    char *absent)
{
    u_char  *p, *from, *last;

    if (raw->len == 0) {
        ngx_modelgw_out(w->out, (u_char *) absent, ngx_strlen(absent));
        return;
    }

    from = raw->data;
    last = from + raw->len;

    for (p = from; p < last; p++) {

        if (*p == LF || *p == CR) {
            ngx_modelgw_out(w->out, from, p - from);
            ngx_modelgw_out_text(w->out, " ");

            from = p + 1;
        }
    }

    ngx_modelgw_out(w->out, from, p - from);
}


/* counts not reported are 0: clients check that these are numbers */

static void
ngx_modelgw_response_usage(ngx_modelgw_response_write_t *w)
{
    int64_t               input, output, read, write;
    ngx_modelgw_usage_t  *usage;

    usage = w->rs->usage;

    read = ngx_modelgw_response_reported(usage->cache_read);
    write = ngx_modelgw_response_reported(usage->cache_write);
    input = ngx_modelgw_response_reported(usage->input) + read + write;
    output = ngx_modelgw_response_reported(usage->output);

    ngx_modelgw_out_text(w->out, "{\"input_tokens\":");
    ngx_modelgw_out_number(w->out, input);
    ngx_modelgw_out_text(w->out,
                         ",\"input_tokens_details\":{\"cached_tokens\":");
    ngx_modelgw_out_number(w->out, read);
    ngx_modelgw_out_text(w->out, ",\"cache_write_tokens\":");
    ngx_modelgw_out_number(w->out, write);
    ngx_modelgw_out_text(w->out, "},\"output_tokens\":");
    ngx_modelgw_out_number(w->out, output);
    ngx_modelgw_out_text(w->out,
                         ",\"output_tokens_details\":{\"reasoning_tokens\":");
    ngx_modelgw_out_number(w->out,
                           ngx_modelgw_response_reported(usage->reasoning));
    ngx_modelgw_out_text(w->out, "},\"total_tokens\":");
    ngx_modelgw_out_number(w->out, input + output);
    ngx_modelgw_out_text(w->out, "}");
}


static ngx_modelgw_response_code_t *
ngx_modelgw_response_code(ngx_str_t *ours)
{
    ngx_modelgw_response_code_t  *code;

    for (code = ngx_modelgw_response_codes; code->ours.len; code++) {

        if (code->ours.len == ours->len
            && ngx_memcmp(code->ours.data, ours->data, ours->len) == 0)
        {
            break;
        }
    }

    return code;
}
