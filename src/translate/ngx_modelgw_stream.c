
/*
 * A messages stream as a chat stream, event by event.
 *
 *     NEW        nothing has come; pings are dropped, so that the caller can
 *                hold the client's headers until the upstream has answered
 *     STARTED    message_start was seen, the chunk with the role is written
 *     ENDING     STARTED, and the stop reason is known
 *     DONE       finish chunk, usage and "[DONE]" are written; no event may
 *                follow
 *
 *     NEW -- message_start --> STARTED
 *     NEW -- any other event of a message --> refused
 *     STARTED -- message_delta with a stop reason --> ENDING
 *     STARTED, ENDING -- message_stop --> DONE
 *     ENDING -- end of the upstream's stream --> DONE; some upstreams never
 *               send message_stop
 *     STARTED -- end of the upstream's stream --> refused, the answer is not
 *                complete
 *     any -- error --> refused
 *
 * The upstream numbers blocks of all kinds together and may interleave their
 * deltas; the client wants one content, one reasoning and tool calls numbered
 * from 0.  So each block has a state, found by the upstream's index:
 *
 *     (none)     only text deltas are taken: some upstreams announce no blocks
 *     TEXT       text; stays so after its stop
 *     THINKING   reasoning; with NGX_MODELGW_REASONING_FULL it is also kept and
 *                sent as one entry of "thinking_blocks" at its stop
 *     REDACTED   such an entry at its start, or nothing
 *     TOOL       a call; if it has no arguments at its stop it gets those of
 *                its start, or "{}"
 *     SKIP       not shown: the upstream's own tools, unknown types, and blocks
 *                that have stopped
 *
 *     (none) -- start --> TEXT | THINKING | REDACTED | TOOL | SKIP
 *     THINKING, TOOL -- stop, message_stop --> SKIP
 *     any -- start of the same index --> stop, then as from (none)
 *
 * Pieces of a tool's input are never parsed: they end anywhere, and the client
 * puts them together.
 *
 * Unknown types of events, blocks and deltas are ignored, as the upstream may
 * add some.  Known ones that make no sense are refused: half an answer that
 * ends cleanly is worse than an error, which a "[DONE]" in any case would hide.
 *
 * Some data is needed after its event is gone: a thinking block goes into one
 * chunk with its signature, a tool's input may be in the event that starts its
 * block.  Streams are long, so memory is not allocated for each block: a
 * block's buffer is reused by the next, larger ones are freed.  The bytes kept
 * are counted over all blocks, so an upstream that opens a thousand blocks at
 * a time gets little more memory than one that opens one.  The allocations are
 * larger than what a pool cuts from its own blocks, so that ngx_pfree() can
 * free them.
 *
 * Each event is read into the same tape, so memory does not grow with the
 * length of the stream.
 *
 * Rejected: translating while the event is being scanned.  Members come in any
 * order, so text would have to be held back until the type is known.
 *
 * Rejected: keeping the events' own buffers, which would hold a whole stream
 * that interleaves its blocks.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_caps.h"
#include "ngx_modelgw_stream.h"
#include "ngx_modelgw_stream_private.h"


#define NGX_MODELGW_STREAM_BLOCKS     8      /* enough for most streams */
#define NGX_MODELGW_STREAM_KEEP_SIZE  8192   /* bytes of a buffer, at least;
                                                larger ones are freed */


/* bytes that are kept, in memory that is reused */

typedef struct {
    ngx_str_t                        text;     /* data NULL: none */
    u_char                          *start;
    size_t                           size;
} ngx_modelgw_stream_bytes_t;


/* what one block keeps: a tool's input, or thinking */

typedef struct ngx_modelgw_stream_kept_s  ngx_modelgw_stream_kept_t;

struct ngx_modelgw_stream_kept_s {
    ngx_modelgw_stream_bytes_t       text;
    ngx_modelgw_stream_bytes_t       signature;
    ngx_modelgw_stream_kept_t       *next;     /* in the free list */
};


typedef struct {
    ngx_uint_t                       index;    /* the upstream's */
    ngx_modelgw_completion_kind_e    kind;
    ngx_uint_t                       tool;     /* the client's index */
    ngx_uint_t                       args;     /* the client got some */
    ngx_modelgw_stream_kept_t       *kept;     /* may be NULL */
} ngx_modelgw_stream_block_t;


/* takes the text of a delta; block may be NULL */

typedef ngx_int_t (*ngx_modelgw_stream_text_pt)(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_str_t *text);


struct ngx_modelgw_stream_s {
    ngx_pool_t                      *pool;
    ngx_modelgw_tape_t              *tape;     /* of the current event */
    ngx_modelgw_stream_write_t       write;

    /* the current delta: its text, NULL if there is none, and its handler */

    u_char                          *text;
    ngx_modelgw_stream_text_pt       handler;
    ngx_modelgw_stream_block_t      *block;

    ngx_uint_t                       started;
    ngx_modelgw_completion_stop_t   *stop;     /* NULL: not known yet */
    ngx_modelgw_stream_bytes_t       refusal;

    ngx_array_t                      blocks;
    ngx_uint_t                       nstarts;  /* of blocks, with replaced
                                                  ones */
    ngx_uint_t                       ntools;

    size_t                           max;      /* of kept */
    size_t                           kept;     /* bytes */
    ngx_modelgw_stream_kept_t       *free;
};


typedef ngx_int_t (*ngx_modelgw_stream_event_pt)(ngx_modelgw_stream_t *st,
    ngx_modelgw_node_t *event);


/* a type of delta: the member with its text, the kind of block it is for */

typedef struct {
    const char                      *type;
    const char                      *member;
    ngx_modelgw_completion_kind_e    kind;
    ngx_modelgw_stream_text_pt       handler;
} ngx_modelgw_stream_block_delta_t;


static ngx_int_t ngx_modelgw_stream_message_start(ngx_modelgw_stream_t *st,
    ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_stream_message_delta(ngx_modelgw_stream_t *st,
    ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_stream_message_stop(ngx_modelgw_stream_t *st,
    ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_stream_ping(ngx_modelgw_stream_t *st,
    ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_stream_error(ngx_modelgw_stream_t *st,
    ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_stream_block_start(ngx_modelgw_stream_t *st,
    ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_stream_block_delta(ngx_modelgw_stream_t *st,
    ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_stream_block_stop(ngx_modelgw_stream_t *st,
    ngx_modelgw_node_t *event);
static void ngx_modelgw_stream_block_end(ngx_modelgw_stream_t *st,
    ngx_uint_t complete);
static ngx_int_t ngx_modelgw_stream_block_keep(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_modelgw_node_t *content);
static ngx_int_t ngx_modelgw_stream_block_keep_text(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_str_t *text);
static void ngx_modelgw_stream_block_open(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_modelgw_node_t *content);
static void ngx_modelgw_stream_block_close(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_uint_t complete);
static ngx_int_t ngx_modelgw_stream_block_text(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_str_t *text);
static ngx_int_t ngx_modelgw_stream_block_thinking(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_str_t *text);
static ngx_int_t ngx_modelgw_stream_block_signature(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_str_t *text);
static ngx_int_t ngx_modelgw_stream_block_args(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_str_t *text);
static ngx_modelgw_stream_block_t *ngx_modelgw_stream_block_find(
    ngx_modelgw_stream_t *st, ngx_uint_t index);
static ngx_int_t ngx_modelgw_stream_keep(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_bytes_t *bytes, ngx_str_t *text);
static ngx_int_t ngx_modelgw_stream_keep_room(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_bytes_t *bytes, size_t len);
static void ngx_modelgw_stream_keep_drop(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_bytes_t *bytes);
static ngx_modelgw_stream_kept_t *ngx_modelgw_stream_keep_get(
    ngx_modelgw_stream_t *st);
static void ngx_modelgw_stream_keep_put(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_kept_t *kept);


/* by ngx_modelgw_completion_event_e */

static ngx_modelgw_stream_event_pt  ngx_modelgw_stream_events[] = {
    ngx_modelgw_stream_block_delta,
    ngx_modelgw_stream_block_start,
    ngx_modelgw_stream_block_stop,
    ngx_modelgw_stream_ping,
    ngx_modelgw_stream_message_start,
    ngx_modelgw_stream_message_delta,
    ngx_modelgw_stream_message_stop,
    ngx_modelgw_stream_error
};


static ngx_modelgw_stream_block_delta_t  ngx_modelgw_stream_block_deltas[] = {

    { "text_delta", "text", NGX_MODELGW_COMPLETION_TEXT,
      ngx_modelgw_stream_block_text },

    { "input_json_delta", "partial_json", NGX_MODELGW_COMPLETION_TOOL,
      ngx_modelgw_stream_block_args },

    { "thinking_delta", "thinking", NGX_MODELGW_COMPLETION_THINKING,
      ngx_modelgw_stream_block_thinking },

    { "signature_delta", "signature", NGX_MODELGW_COMPLETION_THINKING,
      ngx_modelgw_stream_block_signature },

    { NULL, NULL, NGX_MODELGW_COMPLETION_SKIP, NULL }
};


static ngx_str_t  ngx_modelgw_stream_role =
    ngx_string("{\"role\":\"assistant\",\"content\":\"\"}");
static ngx_str_t  ngx_modelgw_stream_refusal =
    ngx_string("{\"refusal\":\"");
static ngx_str_t  ngx_modelgw_stream_block_content =
    ngx_string("{\"content\":\"");
static ngx_str_t  ngx_modelgw_stream_block_reasoning =
    ngx_string("{\"reasoning_content\":\"");
static ngx_str_t  ngx_modelgw_stream_block_nothing = ngx_string("{}");


ngx_modelgw_stream_t *
ngx_modelgw_stream_create(ngx_pool_t *pool, ngx_modelgw_completion_t *c,
    ngx_modelgw_tape_t *tape, size_t max, ngx_modelgw_out_t *out)
{
    ngx_modelgw_stream_t  *st;

    st = ngx_pcalloc(pool, sizeof(ngx_modelgw_stream_t));
    if (st == NULL) {
        return NULL;
    }

    if (ngx_array_init(&st->blocks, pool, NGX_MODELGW_STREAM_BLOCKS,
                       sizeof(ngx_modelgw_stream_block_t))
        != NGX_OK)
    {
        return NULL;
    }

    st->pool = pool;
    st->write.c = c;
    st->write.out = out;
    st->tape = tape;
    st->max = max;

    return st;
}


ngx_int_t
ngx_modelgw_stream_event(ngx_modelgw_stream_t *st, ngx_str_t *data,
    ngx_str_t *name, ngx_uint_t borrowed)
{
    ngx_int_t                        rc;
    ngx_modelgw_node_t              *event;
    ngx_modelgw_completion_event_e   kind;

    st->text = NULL;

    ngx_modelgw_tape_reset(st->tape);

    rc = ngx_modelgw_tape_feed(st->tape, data->data, data->len);
    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_modelgw_tape_done(st->tape, data->data) != NGX_OK) {
        return NGX_DECLINED;
    }

    event = ngx_modelgw_tape_root(st->tape);
    kind = ngx_modelgw_completion_event(st->tape, event, name);

    if (kind == NGX_MODELGW_COMPLETION_UNKNOWN) {
        return NGX_OK;
    }

    if (!st->started
        && kind != NGX_MODELGW_COMPLETION_MESSAGE_START
        && kind != NGX_MODELGW_COMPLETION_PING
        && kind != NGX_MODELGW_COMPLETION_ERROR)
    {
        return NGX_DECLINED;
    }

    st->write.borrowed = borrowed;

    return ngx_modelgw_stream_events[kind](st, event);
}


u_char *
ngx_modelgw_stream_text(ngx_modelgw_stream_t *st)
{
    return st->text;
}


ngx_int_t
ngx_modelgw_stream_repeat(ngx_modelgw_stream_t *st, ngx_str_t *text,
    ngx_uint_t borrowed)
{
    st->write.borrowed = borrowed;

    return text->len ? st->handler(st, st->block, text) : NGX_OK;
}


ngx_int_t
ngx_modelgw_stream_end(ngx_modelgw_stream_t *st)
{
    if (st->stop == NULL) {
        return NGX_DECLINED;
    }

    return ngx_modelgw_stream_message_stop(st, NULL);
}


/* "role" is in this chunk only: clients' accumulators concatenate it */

static ngx_int_t
ngx_modelgw_stream_message_start(ngx_modelgw_stream_t *st,
    ngx_modelgw_node_t *event)
{
    ngx_modelgw_node_t  *message;

    if (st->started) {
        return NGX_OK;
    }

    message = ngx_modelgw_tape_member(st->tape, event, "message");

    if (ngx_modelgw_stream_write_init(&st->write, st->pool, st->tape, message)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    st->started = 1;

    ngx_modelgw_stream_write_delta(&st->write, &ngx_modelgw_stream_role);

    return NGX_OK;
}


/*
 * May come more than once; a reason once given stays.  Some compatible
 * upstreams send an empty one until they know it.
 */

static ngx_int_t
ngx_modelgw_stream_message_delta(ngx_modelgw_stream_t *st,
    ngx_modelgw_node_t *event)
{
    ngx_str_t            text;
    ngx_modelgw_node_t  *delta, *details;

    delta = ngx_modelgw_tape_member(st->tape, event, "delta");

    (void) ngx_modelgw_completion_string(st->tape, delta, "stop_reason",
                                         &text);
    if (text.len) {
        st->stop = ngx_modelgw_completion_stop(st->tape,
                        ngx_modelgw_tape_member(st->tape, delta,
                                                "stop_reason"));
    }

    details = ngx_modelgw_tape_member(st->tape, delta, "stop_details");

    (void) ngx_modelgw_completion_string(st->tape, details, "explanation",
                                         &text);
    if (text.len == 0) {
        return NGX_OK;
    }

    ngx_modelgw_stream_keep_drop(st, &st->refusal);

    return ngx_modelgw_stream_keep(st, &st->refusal, &text);
}


static ngx_int_t
ngx_modelgw_stream_message_stop(ngx_modelgw_stream_t *st,
    ngx_modelgw_node_t *event)
{
    ngx_str_t                      *finish, refusal;
    ngx_modelgw_completion_stop_t  *stop;

    /* texts are no longer those of an event */

    st->write.borrowed = 0;

    stop = st->stop ? st->stop : ngx_modelgw_completion_stop(st->tape, NULL);
    finish = ngx_modelgw_completion_finish(stop, st->ntools);

    ngx_modelgw_stream_block_end(st, stop->calls);

    if (stop->refused) {
        refusal = st->refusal.text;

        if (refusal.len == 0) {
            ngx_modelgw_completion_refusal(st->tape, NULL, &refusal);
        }

        ngx_modelgw_stream_write_string(&st->write, &ngx_modelgw_stream_refusal,
                                        &refusal);
    }

    ngx_modelgw_stream_write_finish(&st->write, finish);

    if (st->write.c->include_usage) {
        ngx_modelgw_stream_write_usage(&st->write);
    }

    ngx_modelgw_out_text(st->write.out, "data: [DONE]\n\n");

    return NGX_DONE;
}


static ngx_int_t
ngx_modelgw_stream_ping(ngx_modelgw_stream_t *st, ngx_modelgw_node_t *event)
{
    if (st->started) {
        ngx_modelgw_out_text(st->write.out, ": ping\n\n");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_stream_error(ngx_modelgw_stream_t *st, ngx_modelgw_node_t *event)
{
    return NGX_ABORT;
}


/* all that can fail comes first: nothing is written of a refused block */

static ngx_int_t
ngx_modelgw_stream_block_start(ngx_modelgw_stream_t *st,
    ngx_modelgw_node_t *event)
{
    ngx_int_t                    rc;
    ngx_str_t                    text;
    ngx_modelgw_node_t          *content;
    ngx_modelgw_stream_block_t  *old, block;

    ngx_memzero(&block, sizeof(ngx_modelgw_stream_block_t));

    if (!ngx_modelgw_completion_index(st->tape, event, &block.index)
        || st->nstarts++ == NGX_MODELGW_STREAM_MAX_BLOCKS)
    {
        return NGX_DECLINED;
    }

    content = ngx_modelgw_tape_member(st->tape, event, "content_block");
    block.kind = ngx_modelgw_completion_kind(st->tape, content);

    if (block.kind == NGX_MODELGW_COMPLETION_TOOL
        && (!ngx_modelgw_completion_string(st->tape, content, "id", &text)
            || !ngx_modelgw_completion_string(st->tape, content, "name",
                                              &text)))
    {
        return NGX_DECLINED;
    }

    rc = ngx_modelgw_stream_block_keep(st, &block, content);
    if (rc != NGX_OK) {
        return rc;
    }

    old = ngx_modelgw_stream_block_find(st, block.index);

    if (old) {
        ngx_modelgw_stream_block_close(st, old, 1);

    } else {
        old = ngx_array_push(&st->blocks);
        if (old == NULL) {
            return NGX_ERROR;
        }
    }

    *old = block;

    ngx_modelgw_stream_block_open(st, old, content);

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_stream_block_delta(ngx_modelgw_stream_t *st,
    ngx_modelgw_node_t *event)
{
    ngx_str_t                          text;
    ngx_uint_t                         index;
    ngx_modelgw_node_t                *delta, *type;
    ngx_modelgw_stream_block_t        *block;
    ngx_modelgw_stream_block_delta_t  *d;

    if (!ngx_modelgw_completion_index(st->tape, event, &index)) {
        return NGX_DECLINED;
    }

    delta = ngx_modelgw_tape_member(st->tape, event, "delta");
    type = ngx_modelgw_tape_member(st->tape, delta, "type");

    for (d = ngx_modelgw_stream_block_deltas; d->type; d++) {
        if (ngx_modelgw_tape_is(st->tape, type, d->type)) {
            break;
        }
    }

    block = ngx_modelgw_stream_block_find(st, index);

    if (d->kind != (block ? block->kind : NGX_MODELGW_COMPLETION_TEXT)
        || d->handler == NULL)
    {
        return NGX_OK;
    }

    (void) ngx_modelgw_completion_string(st->tape, delta, d->member, &text);

    st->handler = d->handler;
    st->block = block;
    st->text = text.data;

    return text.len ? d->handler(st, block, &text) : NGX_OK;
}


static ngx_int_t
ngx_modelgw_stream_block_stop(ngx_modelgw_stream_t *st,
    ngx_modelgw_node_t *event)
{
    ngx_uint_t                   index;
    ngx_modelgw_stream_block_t  *block;

    if (!ngx_modelgw_completion_index(st->tape, event, &index)) {
        return NGX_DECLINED;
    }

    block = ngx_modelgw_stream_block_find(st, index);

    if (block) {
        ngx_modelgw_stream_block_close(st, block, 1);
    }

    return NGX_OK;
}


static void
ngx_modelgw_stream_block_end(ngx_modelgw_stream_t *st, ngx_uint_t complete)
{
    ngx_uint_t                   i;
    ngx_modelgw_stream_block_t  *block;

    block = st->blocks.elts;

    for (i = 0; i < st->blocks.nelts; i++) {
        ngx_modelgw_stream_block_close(st, &block[i], complete);
    }
}


/* keeps data of the start of a block that its stop needs */

static ngx_int_t
ngx_modelgw_stream_block_keep(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_modelgw_node_t *content)
{
    ngx_int_t   rc;
    ngx_str_t   text;

    switch (block->kind) {

    case NGX_MODELGW_COMPLETION_TOOL:
        if (!ngx_modelgw_completion_input(st->tape, content, &text)) {
            return NGX_OK;
        }

        return ngx_modelgw_stream_block_keep_text(st, block, &text);

    case NGX_MODELGW_COMPLETION_THINKING:
        if (st->write.c->reasoning != NGX_MODELGW_REASONING_FULL) {
            return NGX_OK;
        }

        (void) ngx_modelgw_completion_string(st->tape, content, "thinking",
                                             &text);

        rc = ngx_modelgw_stream_block_keep_text(st, block, &text);

        if (rc != NGX_OK
            || !ngx_modelgw_completion_string(st->tape, content, "signature",
                                              &text))
        {
            return rc;
        }

        return ngx_modelgw_stream_keep(st, &block->kept->signature, &text);

    default: /* TEXT, REDACTED, SKIP */
        return NGX_OK;
    }
}


static ngx_int_t
ngx_modelgw_stream_block_keep_text(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_str_t *text)
{
    block->kept = ngx_modelgw_stream_keep_get(st);
    if (block->kept == NULL) {
        return NGX_ERROR;
    }

    return ngx_modelgw_stream_keep(st, &block->kept->text, text);
}


static void
ngx_modelgw_stream_block_open(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_modelgw_node_t *content)
{
    ngx_str_t  id, text, none;

    switch (block->kind) {

    case NGX_MODELGW_COMPLETION_TEXT:
        if (ngx_modelgw_completion_string(st->tape, content, "text", &text)
            && text.len)
        {
            ngx_modelgw_stream_write_string(&st->write,
                                     &ngx_modelgw_stream_block_content, &text);
        }

        break;

    case NGX_MODELGW_COMPLETION_THINKING:
        if (st->write.c->reasoning != NGX_MODELGW_REASONING_OFF
            && ngx_modelgw_completion_string(st->tape, content, "thinking",
                                             &text)
            && text.len)
        {
            ngx_modelgw_stream_write_string(&st->write,
                                   &ngx_modelgw_stream_block_reasoning, &text);
        }

        break;

    case NGX_MODELGW_COMPLETION_TOOL:
        (void) ngx_modelgw_completion_string(st->tape, content, "id", &id);
        (void) ngx_modelgw_completion_string(st->tape, content, "name",
                                             &text);

        block->tool = st->ntools++;
        ngx_modelgw_stream_write_tool(&st->write, block->tool, &id, &text);
        break;

    case NGX_MODELGW_COMPLETION_REDACTED:
        if (st->write.c->reasoning == NGX_MODELGW_REASONING_FULL) {
            (void) ngx_modelgw_completion_string(st->tape, content, "data",
                                                 &text);
            ngx_str_null(&none);
            ngx_modelgw_stream_write_thinking(&st->write, block->index,
                                              block->kind, &text, &none);
        }

        break;

    default: /* SKIP */
        break;
    }
}


static void
ngx_modelgw_stream_block_close(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_uint_t complete)
{
    ngx_modelgw_stream_kept_t  *kept;

    kept = block->kept;

    if (block->kind == NGX_MODELGW_COMPLETION_TEXT) {
        return;
    }

    if (block->kind == NGX_MODELGW_COMPLETION_TOOL
        && !block->args
        && (kept || complete))
    {
        ngx_modelgw_stream_write_args(&st->write, block->tool,
                                      kept ? &kept->text.text
                                           : &ngx_modelgw_stream_block_nothing,
                                      1);
    }

    if (block->kind == NGX_MODELGW_COMPLETION_THINKING && kept) {
        ngx_modelgw_stream_write_thinking(&st->write, block->index,
                                          block->kind, &kept->text.text,
                                          &kept->signature.text);
    }

    if (kept) {
        ngx_modelgw_stream_keep_put(st, kept);
        block->kept = NULL;
    }

    block->kind = NGX_MODELGW_COMPLETION_SKIP;
}


static ngx_int_t
ngx_modelgw_stream_block_text(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_str_t *text)
{
    ngx_modelgw_stream_write_string(&st->write,
                                    &ngx_modelgw_stream_block_content, text);

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_stream_block_thinking(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_str_t *text)
{
    ngx_int_t  rc;

    if (block->kept) {
        rc = ngx_modelgw_stream_keep(st, &block->kept->text, text);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (st->write.c->reasoning != NGX_MODELGW_REASONING_OFF) {
        ngx_modelgw_stream_write_string(&st->write,
                                        &ngx_modelgw_stream_block_reasoning,
                                        text);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_stream_block_signature(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_str_t *text)
{
    if (block->kept == NULL) {
        return NGX_OK;
    }

    return ngx_modelgw_stream_keep(st, &block->kept->signature, text);
}


static ngx_int_t
ngx_modelgw_stream_block_args(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_block_t *block, ngx_str_t *text)
{
    block->args = 1;

    ngx_modelgw_stream_write_args(&st->write, block->tool, text, 0);

    return NGX_OK;
}


/* from the last one backwards: it is nearly always the one */

static ngx_modelgw_stream_block_t *
ngx_modelgw_stream_block_find(ngx_modelgw_stream_t *st, ngx_uint_t index)
{
    ngx_uint_t                   i;
    ngx_modelgw_stream_block_t  *block;

    block = st->blocks.elts;

    for (i = st->blocks.nelts; i > 0; i--) {
        if (block[i - 1].index == index) {
            return &block[i - 1];
        }
    }

    return NULL;
}


static ngx_int_t
ngx_modelgw_stream_keep(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_bytes_t *bytes, ngx_str_t *text)
{
    if (text->len > st->max - st->kept) {
        return NGX_DECLINED;
    }

    if (ngx_modelgw_stream_keep_room(st, bytes, bytes->text.len + text->len)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    bytes->text.data = bytes->start;

    if (text->len) {
        ngx_memcpy(bytes->text.data + bytes->text.len, text->data, text->len);
        bytes->text.len += text->len;
        st->kept += text->len;
    }

    return NGX_OK;
}


/* makes room for len bytes, the present ones included */

static ngx_int_t
ngx_modelgw_stream_keep_room(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_bytes_t *bytes, size_t len)
{
    size_t   size;
    u_char  *p;

    if (bytes->start && len <= bytes->size) {
        return NGX_OK;
    }

    size = ngx_max(2 * len, NGX_MODELGW_STREAM_KEEP_SIZE);

    p = ngx_palloc(st->pool, size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    if (bytes->start) {
        ngx_memcpy(p, bytes->start, bytes->text.len);
        (void) ngx_pfree(st->pool, bytes->start);
    }

    bytes->start = p;
    bytes->size = size;

    return NGX_OK;
}


static void
ngx_modelgw_stream_keep_drop(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_bytes_t *bytes)
{
    st->kept -= bytes->text.len;

    ngx_str_null(&bytes->text);

    if (bytes->size > NGX_MODELGW_STREAM_KEEP_SIZE) {
        (void) ngx_pfree(st->pool, bytes->start);

        bytes->start = NULL;
        bytes->size = 0;
    }
}


static ngx_modelgw_stream_kept_t *
ngx_modelgw_stream_keep_get(ngx_modelgw_stream_t *st)
{
    ngx_modelgw_stream_kept_t  *kept;

    kept = st->free;

    if (kept == NULL) {
        return ngx_pcalloc(st->pool, sizeof(ngx_modelgw_stream_kept_t));
    }

    st->free = kept->next;

    return kept;
}


static void
ngx_modelgw_stream_keep_put(ngx_modelgw_stream_t *st,
    ngx_modelgw_stream_kept_t *kept)
{
    ngx_modelgw_stream_keep_drop(st, &kept->text);
    ngx_modelgw_stream_keep_drop(st, &kept->signature);

    kept->next = st->free;
    st->free = kept;
}
