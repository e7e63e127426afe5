
/*
 * libFuzzer: a whole answer for a client of the responses API.  The first byte
 * of the input seeds the cuts, the second one has the protocol and the client's
 * options, the rest is the upstream's answer.  The stream that an upstream
 * would send for the same answer is made of it: blocks one after the other or
 * interleaved, texts cut anywhere.  Both must have the same output.
 */


#define _GNU_SOURCE

#include "unit.h"
#include "answer.h"
#include "response_events.h"

#include "ngx_modelgw_completion_private.h"

#define MUTATE_OPTIONS  2

#include "mutate.h"


#define MAX_BLOCKS  64                   /* of an answer */
#define MAX_EVENTS  1024


typedef struct {
    response_text_t      text;
    ngx_uint_t           block;
} event_t;


typedef struct {
    ngx_modelgw_tape_t  *tape;
    uint32_t             seed;
    ngx_uint_t           interleave;

    event_t              events[MAX_EVENTS];
    ngx_uint_t           nevents;
    ngx_uint_t           nblocks;
    ngx_uint_t           full;
    response_text_t      stream;
} parity_t;


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static void
text(response_text_t *t, const char *s)
{
    response_add(t, s, ngx_strlen(s));
}


static void
number(response_text_t *t, ngx_uint_t n)
{
    char  buf[NGX_INT64_LEN + 1];

    snprintf(buf, sizeof(buf), "%lu", (unsigned long) n);
    text(t, buf);
}


/* a member, with a comma after it, if the object has such a string */

static void
copy(parity_t *x, response_text_t *t, ngx_modelgw_node_t *obj,
    const char *name)
{
    ngx_str_t  s;

    if (ngx_modelgw_completion_string(x->tape, obj, name, &s)) {
        text(t, "\"");
        text(t, name);
        text(t, "\":\"");
        response_add(t, s.data, s.len);
        text(t, "\",");
    }
}


static response_text_t *
begin(parity_t *x, ngx_uint_t block)
{
    event_t  *e;

    if (x->nevents == MAX_EVENTS) {
        x->full = 1;
        x->nevents--;
        x->events[x->nevents].text.len = 0;
    }

    e = &x->events[x->nevents++];
    e->block = block;

    text(&e->text, "data: ");

    return &e->text;
}


/* up to where a JSON string may be cut, at least one character */

static size_t
cut(parity_t *x, ngx_str_t *s)
{
    size_t  n, len;

    n = 1 + mutate_any(&x->seed, 16);

    for (len = 0; len < s->len && len < n; /* void */ ) {
        if (s->data[len] == '\\') {
            len += (s->data[len + 1] == 'u') ? 6 : 2;

        } else if (s->data[len] < 0x80) {
            len++;

        } else {
            do {
                len++;
            } while (len < s->len && (s->data[len] & 0xc0) == 0x80);
        }
    }

    return len;
}


/* events with the pieces of a text between before and after */

static void
pieces(parity_t *x, ngx_uint_t block, const char *before, const char *index,
    const char *after, ngx_str_t *s)
{
    size_t            n;
    ngx_str_t         rest;
    response_text_t  *t;

    for (rest = *s; rest.len; rest.data += n, rest.len -= n) {
        n = cut(x, &rest);

        t = begin(x, block);
        text(t, before);

        if (index) {
            number(t, block);
            text(t, index);
        }

        response_add(t, rest.data, n);
        text(t, after);
    }
}


static void
json_pieces(parity_t *x, ngx_uint_t block, const char *before,
    const char *index, const char *after, ngx_str_t *json)
{
    ngx_str_t                 s;
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_piece_t   piece;

    ngx_modelgw_out_piece(&out, &piece, x->tape->pool, 64);
    ngx_modelgw_out_escaped(&out, json->data, json->len);
    response_check(ngx_modelgw_out_piece_done(&out, &s) == NGX_OK);

    pieces(x, block, before, index, after, &s);
}


#define DELTA(type, member)                                                   \
    "{\"type\":\"content_block_delta\",\"index\":",                           \
    ",\"delta\":{\"type\":\"" type "\",\"" member "\":\"", "\"}}\n\n"


static void
message_block(parity_t *x, ngx_modelgw_node_t *node, ngx_uint_t stop)
{
    ngx_str_t                       s;
    ngx_uint_t                      i;
    response_text_t                *t;
    ngx_modelgw_completion_kind_e   kind;

    kind = ngx_modelgw_completion_kind(x->tape, node);

    i = x->nblocks++;
    t = begin(x, i);

    text(t, "{\"type\":\"content_block_start\",\"index\":");
    number(t, i);
    text(t, ",\"content_block\":{");

    switch (kind) {

    case NGX_MODELGW_COMPLETION_SKIP:
        text(t, "\"type\":\"x\"}}\n\n");
        break;

    case NGX_MODELGW_COMPLETION_TEXT:
        text(t, "\"type\":\"text\",\"text\":\"\"}}\n\n");
        (void) ngx_modelgw_completion_string(x->tape, node, "text", &s);
        pieces(x, i, DELTA("text_delta", "text"), &s);
        break;

    case NGX_MODELGW_COMPLETION_THINKING:
        text(t, "\"type\":\"thinking\",\"thinking\":\"\"}}\n\n");
        (void) ngx_modelgw_completion_string(x->tape, node, "thinking", &s);
        pieces(x, i, DELTA("thinking_delta", "thinking"), &s);
        (void) ngx_modelgw_completion_string(x->tape, node, "signature", &s);
        pieces(x, i, DELTA("signature_delta", "signature"), &s);
        break;

    case NGX_MODELGW_COMPLETION_REDACTED:
        copy(x, t, node, "data");
        text(t, "\"type\":\"redacted_thinking\"}}\n\n");
        break;

    default: /* TOOL */
        copy(x, t, node, "id");
        copy(x, t, node, "name");
        text(t, "\"type\":\"tool_use\"}}\n\n");

        if (ngx_modelgw_completion_input(x->tape, node, &s)) {
            json_pieces(x, i, DELTA("input_json_delta", "partial_json"), &s);

        /* a block without input may stop, even if it was cut */

        } else if (mutate_any(&x->seed, 2)) {
            break;
        }

        if (!stop) {
            return;
        }
    }

    t = begin(x, i);
    text(t, "{\"type\":\"content_block_stop\",\"index\":");
    number(t, i);
    text(t, "}\n\n");
}


static void
message(parity_t *x, ngx_modelgw_node_t *root)
{
    ngx_str_t                       s;
    response_text_t                *t;
    ngx_modelgw_node_t             *content, *node, *next, *reason;
    ngx_modelgw_completion_stop_t  *stop;

    text(&x->stream, "data: {\"type\":\"message_start\",\"message\":{");
    copy(x, &x->stream, root, "id");
    text(&x->stream, "\"role\":\"assistant\"}}\n\n");

    content = ngx_modelgw_tape_member(x->tape, root, "content");
    reason = ngx_modelgw_tape_member(x->tape, root, "stop_reason");
    stop = ngx_modelgw_completion_stop(x->tape, reason);

    for (node = ngx_modelgw_tape_first(x->tape, content); node; node = next) {
        next = ngx_modelgw_tape_next(x->tape, content, node);
        message_block(x, node, next || !stop->limit);
    }

    x->interleave = (x->nblocks <= MAX_BLOCKS);

    t = begin(x, x->nblocks);
    text(t, "{\"type\":\"message_delta\",\"delta\":{");
    copy(x, t, root, "stop_reason");
    text(t, "\"stop_details\":{");

    node = ngx_modelgw_tape_member(x->tape, root, "stop_details");

    if (ngx_modelgw_completion_string(x->tape, node, "explanation", &s)) {
        copy(x, t, node, "explanation");
    }

    text(t, "\"type\":\"x\"}}}\n\n");

    t = begin(x, x->nblocks);
    text(t, "{\"type\":\"message_stop\"}\n\n");
}


static void
chat_call(parity_t *x, ngx_modelgw_node_t *node, ngx_uint_t i)
{
    ngx_str_t            s;
    ngx_uint_t           index;
    response_text_t     *t;
    ngx_modelgw_node_t  *function, *args;

    x->interleave = 0;
    index = i;

    (void) ngx_modelgw_tape_count(x->tape,
                              ngx_modelgw_tape_member(x->tape, node, "index"),
                              &index);

    function = ngx_modelgw_tape_member(x->tape, node, "function");
    args = ngx_modelgw_tape_member(x->tape, function, "arguments");

    (void) ngx_modelgw_completion_string(x->tape, function, "arguments", &s);

    /* in one piece: where a call ends depends on its arguments */

    t = begin(x, 0);
    text(t, "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":");
    number(t, index);
    text(t, ",");
    copy(x, t, node, "id");
    text(t, "\"function\":{");
    copy(x, t, function, "name");
    copy(x, t, function, "arguments");

    if (args && args->type == NGX_MODELGW_TAPE_OBJECT) {
        ngx_modelgw_tape_raw(x->tape, args, &s);

        text(t, "\"arguments\":");

        for (i = 0; i < s.len; i++) {
            response_add(t, (s.data[i] == LF || s.data[i] == CR) ? (u_char *) " "
                                                                 : &s.data[i],
                         1);
        }

        text(t, ",");
    }

    text(t, "\"x\":0}}]}}]}\n\n");
}


#define CHAT(member)                                                          \
    "{\"choices\":[{\"delta\":{\"" member "\":\"", NULL, "\"}}]}\n\n"


static void
chat(parity_t *x, ngx_modelgw_node_t *root)
{
    ngx_str_t            s;
    ngx_uint_t           i;
    response_text_t     *t;
    ngx_modelgw_node_t  *choice, *message, *calls, *node;

    choice = ngx_modelgw_tape_first(x->tape,
                           ngx_modelgw_tape_member(x->tape, root, "choices"));
    message = ngx_modelgw_tape_member(x->tape, choice, "message");

    text(&x->stream, "data: {");
    copy(x, &x->stream, root, "id");
    text(&x->stream, "\"choices\":[]}\n\n");

    (void) ngx_modelgw_completion_string(x->tape, message, "reasoning_content",
                                         &s);
    if (s.len) {
        pieces(x, 0, CHAT("reasoning_content"), &s);

    } else {
        (void) ngx_modelgw_completion_string(x->tape, message, "reasoning", &s);
        pieces(x, 0, CHAT("reasoning"), &s);
    }

    (void) ngx_modelgw_completion_string(x->tape, message, "content", &s);
    pieces(x, 0, CHAT("content"), &s);

    (void) ngx_modelgw_completion_string(x->tape, message, "refusal", &s);
    pieces(x, 0, CHAT("refusal"), &s);

    calls = ngx_modelgw_tape_member(x->tape, message, "tool_calls");
    i = 0;

    for (node = ngx_modelgw_tape_first(x->tape, calls);
         node;
         node = ngx_modelgw_tape_next(x->tape, calls, node))
    {
        chat_call(x, node, i++);
    }

    (void) ngx_modelgw_completion_string(x->tape, choice, "finish_reason", &s);

    t = begin(x, 0);
    text(t, "{\"choices\":[{\"finish_reason\":\"");

    if (s.len) {
        response_add(t, s.data, s.len);

    } else {
        text(t, "stop");
    }

    text(t, "\"}]}\n\n");

    t = begin(x, 0);
    text(t, "[DONE]\n\n");
}


/* events of a block stay in order, and so do the first ones of all blocks */

static void
merge(parity_t *x)
{
    ngx_uint_t  i, block, nopen, last;
    ngx_uint_t  next[MAX_BLOCKS + 1];
    event_t    *e;

    for (i = 0; i < x->nevents && !(x->interleave && x->seed % 2); i++) {
        e = &x->events[i];
        response_add(&x->stream, e->text.data, e->text.len);
    }

    if (i == x->nevents) {
        return;
    }

    for (i = x->nevents; i > 0; i--) {
        next[x->events[i - 1].block] = i - 1;
    }

    nopen = 0;
    last = x->nevents;

    while (last) {

        /* one of the blocks that have begun, or the next one */

        block = mutate_any(&x->seed, nopen + 1);

        for (i = 0; i <= nopen && next[block] == x->nevents; i++) {
            block = (block + 1) % (nopen + 1);
        }

        /* the last events belong to no block */

        if (block == x->nblocks && last > x->nevents - next[block]) {
            for (block = 0; next[block] == x->nevents; block++) { /* void */ }
        }

        if (block == nopen && nopen < x->nblocks) {
            nopen++;
        }

        e = &x->events[next[block]];
        response_add(&x->stream, e->text.data, e->text.len);
        last--;

        i = next[block] + 1;
        next[block] = (i < x->nevents && x->events[i].block == block)
                      ? i : x->nevents;
    }
}


static void
init(answer_t *a, ngx_pool_t *pool, ngx_uint_t options)
{
    answer_init(a, pool, 0, 0, 65536);
    answer_responses(a, (options & 1) ? NGX_MODELGW_CHAT
                                      : NGX_MODELGW_MESSAGES, 16 * 1024 * 1024);

    a->call.encrypted = options >> 1 & 1;
    a->call.show = options >> 2 & 1;
    a->call.json = options >> 3 & 1;

    answer_tool(a, NGX_MODELGW_RESPONSES_FUNCTION, "mcp__demo__add",
                "mcp__demo", "add");
    answer_tool(a, NGX_MODELGW_RESPONSES_CUSTOM, "apply_patch", "",
                "apply_patch");
    answer_tool(a, NGX_MODELGW_RESPONSES_SEARCH, "tool_search", "",
                "tool_search");
}


static void
check_output(answer_t *a, answer_t *b)
{
    response_text_t     output;
    response_events_t   v;

    response_events(&v, b->pool, b->skip, b->text, b->len);

    ngx_memzero(&output, sizeof(response_text_t));

    text(&output, "\"output\":[");
    response_add(&output, v.output.data, v.output.len);
    text(&output, "],\"parallel_tool_calls\":");

    response_check(memmem(a->text, a->len, output.data, output.len) != NULL);

    free(output.data);
    response_events_free(&v);
}


static void
check_stream(answer_t *a, ngx_pool_t *pool, u_char *doc, size_t len,
    const uint8_t *options)
{
    answer_t             b;
    parity_t            *x;
    ngx_int_t            rc;
    ngx_uint_t           i;
    ngx_modelgw_tape_t   tape;

    ngx_modelgw_tape_init(&tape, pool, a->skip);
    response_check(ngx_modelgw_tape_feed(&tape, doc, len) == NGX_OK);
    response_check(ngx_modelgw_tape_done(&tape, doc) == NGX_OK);

    x = calloc(1, sizeof(parity_t));
    response_check(x != NULL);

    x->tape = &tape;
    x->seed = options[0];

    if (options[1] & 1) {
        chat(x, ngx_modelgw_tape_root(&tape));

    } else {
        message(x, ngx_modelgw_tape_root(&tape));
    }

    if (!x->full) {
        merge(x);

        init(&b, pool, options[1]);
        rc = answer_stream(&b, x->stream.data, x->stream.len, 1000);
        response_check(rc == NGX_DONE);

        check_output(a, &b);
        answer_free(&b);
    }

    for (i = 0; i < MAX_EVENTS; i++) {
        free(x->events[i].text.data);
    }

    free(x->stream.data);
    free(x);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t       len;
    u_char      *doc;
    answer_t     a;
    ngx_int_t    rc;
    ngx_pool_t  *pool;

    if (size < MUTATE_OPTIONS) {
        return 0;
    }

    pool = unit_pool_create();
    len = size - MUTATE_OPTIONS;
    doc = unit_dup(data + MUTATE_OPTIONS, len);

    init(&a, pool, data[1]);

    rc = answer_message(&a, doc, len);

    response_check(rc == NGX_OK || rc == NGX_DECLINED);
    response_check(a.out.failed == 0);

    if (rc == NGX_OK) {
        response_check(answer_scan(&a, a.text, a.len) == NGX_OK);
        check_stream(&a, pool, doc, len, data);

    } else {
        response_check(a.len == 0);
    }

    answer_free(&a);
    unit_free(doc);
    ngx_destroy_pool(pool);

    return 0;
}
