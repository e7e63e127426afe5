
/*
 * Answers of a messages upstream, for the writer of responses.
 *
 *     NEW        nothing has come; pings are dropped, so that the caller can
 *                hold the client's headers until the upstream has answered
 *     STARTED    message_start was seen
 *     ENDING     STARTED, and the stop reason is known
 *     DONE       the response is complete
 *
 * The states and what is refused are those of ngx_modelgw_stream.c: what is a
 * broken stream does not depend on the client's protocol.
 *
 * The upstream's tools, unknown blocks and deltas are left out.  Text may come
 * without a block, as some upstreams announce none.
 *
 * A whole answer that was cut by a limit may end with a call whose input is
 * what the upstream made of the part it had; so a call at its end is left out.
 * In a stream that holds for a call without arguments, even if its block has
 * stopped: it was whole if another block begins, or no limit ends the answer.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_completion_private.h"
#include "ngx_modelgw_response_private.h"
#include "ngx_modelgw_stream.h"


#define NGX_MODELGW_RESPONSE_BLOCKS  8       /* enough for most streams */


typedef struct {
    ngx_uint_t                       index;  /* the upstream's */
    ngx_modelgw_completion_kind_e    kind;
    ngx_modelgw_response_block_t    *block;  /* NULL: it has stopped */
    ngx_modelgw_response_bytes_t     input;  /* of a tool, from its start */
    ngx_uint_t                       start;  /* its number, from 1 */
    ngx_uint_t                       args;   /* some have come */
} ngx_modelgw_response_entry_t;


typedef struct {
    ngx_uint_t                       started;
    ngx_modelgw_completion_stop_t   *stop;   /* NULL: not known yet */
    ngx_modelgw_response_bytes_t     refusal;
    ngx_array_t                      entries;
    ngx_uint_t                       nstarts;
    ngx_modelgw_response_block_t    *open;   /* a text that was not announced,
                                                or goes on after its stop; a
                                                call that has stopped without
                                                arguments; NULL: none */
} ngx_modelgw_response_messages_t;


typedef ngx_int_t (*ngx_modelgw_response_event_pt)(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *event);


/* a type of delta: the member with its text, the kind of block it is for */

typedef struct {
    const char                      *type;
    const char                      *member;
    ngx_modelgw_completion_kind_e    kind;
    ngx_modelgw_response_text_pt     handler;
} ngx_modelgw_response_delta_t;


static ngx_int_t ngx_modelgw_response_messages_whole(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *root);
static ngx_int_t ngx_modelgw_response_messages_check(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *content);
static ngx_int_t ngx_modelgw_response_messages_block(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *node,
    ngx_uint_t open);
static ngx_int_t ngx_modelgw_response_messages_init(
    ngx_modelgw_response_stream_t *st);
static ngx_int_t ngx_modelgw_response_messages_event(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *event,
    ngx_str_t *name);
static ngx_int_t ngx_modelgw_response_messages_end(
    ngx_modelgw_response_stream_t *st);
static ngx_int_t ngx_modelgw_response_message_start(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_response_message_delta(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_response_message_stop(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *event);
static void ngx_modelgw_response_message_finish(ngx_modelgw_response_end_t *end,
    ngx_modelgw_completion_stop_t *stop);
static ngx_int_t ngx_modelgw_response_message_ping(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_response_message_error(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_response_entry_start(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_response_entry_delta(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_response_entry_stop(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_response_entry_close(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_response_entry_t *entry);
static ngx_int_t ngx_modelgw_response_open_stop(
    ngx_modelgw_response_stream_t *st);
static ngx_int_t ngx_modelgw_response_entry_input(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_response_entry_t *entry);
static ngx_modelgw_response_entry_t *ngx_modelgw_response_entry_find(
    ngx_modelgw_response_stream_t *st, ngx_uint_t index);
static ngx_modelgw_response_block_t *ngx_modelgw_response_content_start(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *content,
    ngx_modelgw_completion_kind_e kind);
static ngx_int_t ngx_modelgw_response_content_text(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *content,
    ngx_modelgw_completion_kind_e kind, ngx_modelgw_response_block_t *block);
static ngx_uint_t ngx_modelgw_response_content_call(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *content);


ngx_modelgw_response_reader_t  ngx_modelgw_response_messages = {
    ngx_modelgw_response_messages_init,
    ngx_modelgw_response_messages_whole,
    ngx_modelgw_response_messages_event,
    ngx_modelgw_response_messages_end
};


/* by ngx_modelgw_completion_event_e */

static ngx_modelgw_response_event_pt  ngx_modelgw_response_events[] = {
    ngx_modelgw_response_entry_delta,
    ngx_modelgw_response_entry_start,
    ngx_modelgw_response_entry_stop,
    ngx_modelgw_response_message_ping,
    ngx_modelgw_response_message_start,
    ngx_modelgw_response_message_delta,
    ngx_modelgw_response_message_stop,
    ngx_modelgw_response_message_error
};


static ngx_modelgw_response_delta_t  ngx_modelgw_response_deltas[] = {

    { "text_delta", "text", NGX_MODELGW_COMPLETION_TEXT,
      ngx_modelgw_response_block_text },

    { "input_json_delta", "partial_json", NGX_MODELGW_COMPLETION_TOOL,
      ngx_modelgw_response_block_text },

    { "thinking_delta", "thinking", NGX_MODELGW_COMPLETION_THINKING,
      ngx_modelgw_response_block_text },

    { "signature_delta", "signature", NGX_MODELGW_COMPLETION_THINKING,
      ngx_modelgw_response_block_signature },

    { NULL, NULL, NGX_MODELGW_COMPLETION_SKIP, NULL }
};


/* by ngx_modelgw_completion_kind_e */

static ngx_modelgw_response_kind_e  ngx_modelgw_response_kinds[] = {
    NGX_MODELGW_RESPONSE_NONE,
    NGX_MODELGW_RESPONSE_TEXT,
    NGX_MODELGW_RESPONSE_THINKING,
    NGX_MODELGW_RESPONSE_REDACTED,
    NGX_MODELGW_RESPONSE_TOOL
};


static ngx_int_t
ngx_modelgw_response_messages_whole(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *root)
{
    ngx_str_t                       id;
    ngx_uint_t                      open;
    ngx_modelgw_node_t             *type, *content, *node, *next;
    ngx_modelgw_response_end_t      end;
    ngx_modelgw_completion_stop_t  *stop;

    type = ngx_modelgw_tape_member(st->tape, root, "type");
    content = ngx_modelgw_tape_member(st->tape, root, "content");

    if ((type && !ngx_modelgw_tape_is(st->tape, type, "message"))
        || ngx_modelgw_response_messages_check(st, content) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    ngx_memzero(&end, sizeof(ngx_modelgw_response_end_t));

    stop = ngx_modelgw_completion_stop(st->tape,
                    ngx_modelgw_tape_member(st->tape, root, "stop_reason"));

    ngx_modelgw_response_message_finish(&end, stop);

    if (stop->refused) {
        ngx_modelgw_completion_refusal(st->tape,
                    ngx_modelgw_tape_member(st->tape, root, "stop_details"),
                    &end.refusal);
    }

    (void) ngx_modelgw_completion_string(st->tape, root, "id", &id);

    ngx_modelgw_response_write_start(&st->write, &id);

    for (node = ngx_modelgw_tape_first(st->tape, content); node; node = next) {
        next = ngx_modelgw_tape_next(st->tape, content, node);
        open = (next == NULL && stop->limit);

        if (ngx_modelgw_response_messages_block(st, node, open) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return ngx_modelgw_response_write_end(&st->write, &end);
}


/* the client could not answer a call without an id or a name */

static ngx_int_t
ngx_modelgw_response_messages_check(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *content)
{
    ngx_modelgw_node_t  *node;

    if (content == NULL || content->type != NGX_MODELGW_TAPE_ARRAY) {
        return NGX_DECLINED;
    }

    for (node = ngx_modelgw_tape_first(st->tape, content);
         node;
         node = ngx_modelgw_tape_next(st->tape, content, node))
    {
        if (ngx_modelgw_completion_kind(st->tape, node)
            == NGX_MODELGW_COMPLETION_TOOL
            && !ngx_modelgw_response_content_call(st, node))
        {
            return NGX_DECLINED;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_response_messages_block(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *node, ngx_uint_t open)
{
    ngx_str_t                       input;
    ngx_modelgw_response_block_t   *block;
    ngx_modelgw_completion_kind_e   kind;

    kind = ngx_modelgw_completion_kind(st->tape, node);

    if (kind == NGX_MODELGW_COMPLETION_SKIP) {
        return NGX_OK;
    }

    block = ngx_modelgw_response_content_start(st, node, kind);

    if (block == NULL
        || ngx_modelgw_response_content_text(st, node, kind, block) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (kind == NGX_MODELGW_COMPLETION_TOOL) {

        if (open) {
            return NGX_OK;
        }

        if (ngx_modelgw_completion_input(st->tape, node, &input)
            && ngx_modelgw_response_block_json(&st->write, block, &input)
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return ngx_modelgw_response_block_stop(&st->write, block);
}


static ngx_int_t
ngx_modelgw_response_messages_init(ngx_modelgw_response_stream_t *st)
{
    ngx_modelgw_response_messages_t  *m;

    m = ngx_pcalloc(st->write.pool, sizeof(ngx_modelgw_response_messages_t));
    if (m == NULL) {
        return NGX_ERROR;
    }

    st->state = m;

    return ngx_array_init(&m->entries, st->write.pool,
                          NGX_MODELGW_RESPONSE_BLOCKS,
                          sizeof(ngx_modelgw_response_entry_t));
}


static ngx_int_t
ngx_modelgw_response_messages_event(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *event, ngx_str_t *name)
{
    ngx_modelgw_completion_event_e    kind;
    ngx_modelgw_response_messages_t  *m;

    m = st->state;
    kind = ngx_modelgw_completion_event(st->tape, event, name);

    if (kind == NGX_MODELGW_COMPLETION_UNKNOWN) {
        return NGX_OK;
    }

    if (!m->started
        && kind != NGX_MODELGW_COMPLETION_MESSAGE_START
        && kind != NGX_MODELGW_COMPLETION_PING
        && kind != NGX_MODELGW_COMPLETION_ERROR)
    {
        return NGX_DECLINED;
    }

    return ngx_modelgw_response_events[kind](st, event);
}


static ngx_int_t
ngx_modelgw_response_messages_end(ngx_modelgw_response_stream_t *st)
{
    ngx_modelgw_response_messages_t  *m;

    m = st->state;

    return m->stop ? ngx_modelgw_response_message_stop(st, NULL)
                   : NGX_DECLINED;
}


static ngx_int_t
ngx_modelgw_response_message_start(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *event)
{
    ngx_str_t                         id;
    ngx_modelgw_node_t               *message;
    ngx_modelgw_response_messages_t  *m;

    m = st->state;
    m->started = 1;

    message = ngx_modelgw_tape_member(st->tape, event, "message");

    (void) ngx_modelgw_completion_string(st->tape, message, "id", &id);

    ngx_modelgw_response_write_start(&st->write, &id);

    return NGX_OK;
}


/* as in ngx_modelgw_stream.c: a reason once given stays */

static ngx_int_t
ngx_modelgw_response_message_delta(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *event)
{
    ngx_str_t                         text;
    ngx_modelgw_node_t               *delta, *details;
    ngx_modelgw_response_messages_t  *m;

    m = st->state;
    delta = ngx_modelgw_tape_member(st->tape, event, "delta");

    (void) ngx_modelgw_completion_string(st->tape, delta, "stop_reason",
                                         &text);
    if (text.len) {
        m->stop = ngx_modelgw_completion_stop(st->tape,
                        ngx_modelgw_tape_member(st->tape, delta,
                                                "stop_reason"));
    }

    details = ngx_modelgw_tape_member(st->tape, delta, "stop_details");

    (void) ngx_modelgw_completion_string(st->tape, details, "explanation",
                                         &text);
    if (text.len == 0) {
        return NGX_OK;
    }

    ngx_modelgw_response_bytes_free(&st->write, &m->refusal);

    return ngx_modelgw_response_bytes(&st->write, &m->refusal, &text);
}


static ngx_int_t
ngx_modelgw_response_message_stop(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *event)
{
    ngx_uint_t                        i;
    ngx_modelgw_response_end_t        end;
    ngx_modelgw_response_entry_t     *entry;
    ngx_modelgw_completion_stop_t    *stop;
    ngx_modelgw_response_messages_t  *m;

    m = st->state;
    entry = m->entries.elts;

    ngx_memzero(&end, sizeof(ngx_modelgw_response_end_t));

    stop = m->stop ? m->stop : ngx_modelgw_completion_stop(st->tape, NULL);

    ngx_modelgw_response_message_finish(&end, stop);

    for (i = 0; i < m->entries.nelts && !end.cut; i++) {
        if (ngx_modelgw_response_entry_input(st, &entry[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (!stop->limit && ngx_modelgw_response_open_stop(st) != NGX_OK) {
        return NGX_ERROR;
    }

    if (stop->refused) {
        end.refusal.data = m->refusal.piece.start;
        end.refusal.len = ngx_modelgw_response_bytes_len(&m->refusal);

        if (end.refusal.len == 0) {
            ngx_modelgw_completion_refusal(st->tape, NULL, &end.refusal);
        }
    }

    return (ngx_modelgw_response_write_end(&st->write, &end) == NGX_OK)
           ? NGX_DONE : NGX_ERROR;
}


static void
ngx_modelgw_response_message_finish(ngx_modelgw_response_end_t *end,
    ngx_modelgw_completion_stop_t *stop)
{
    end->cut = (stop->limit || stop->refused);

    if (stop->limit) {
        ngx_str_set(&end->reason, "max_output_tokens");
    }
}


static ngx_int_t
ngx_modelgw_response_message_ping(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *event)
{
    if (st->write.started) {
        ngx_modelgw_response_write_ping(&st->write);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_response_message_error(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *event)
{
    return NGX_ABORT;
}


static ngx_int_t
ngx_modelgw_response_entry_start(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *event)
{
    ngx_str_t                         input;
    ngx_uint_t                        index;
    ngx_modelgw_node_t               *content;
    ngx_modelgw_response_entry_t     *entry;
    ngx_modelgw_completion_kind_e     kind;
    ngx_modelgw_response_messages_t  *m;

    m = st->state;
    content = ngx_modelgw_tape_member(st->tape, event, "content_block");
    kind = ngx_modelgw_completion_kind(st->tape, content);

    if (!ngx_modelgw_completion_index(st->tape, event, &index)
        || m->nstarts++ >= NGX_MODELGW_STREAM_MAX_BLOCKS
        || (kind == NGX_MODELGW_COMPLETION_TOOL
            && !ngx_modelgw_response_content_call(st, content)))
    {
        return NGX_DECLINED;
    }

    if (ngx_modelgw_response_open_stop(st) != NGX_OK) {
        return NGX_ERROR;
    }

    entry = ngx_modelgw_response_entry_find(st, index);

    if (entry) {
        if (ngx_modelgw_response_entry_close(st, entry) != NGX_OK) {
            return NGX_ERROR;
        }

    } else {
        entry = ngx_array_push(&m->entries);
        if (entry == NULL) {
            return NGX_ERROR;
        }
    }

    ngx_memzero(entry, sizeof(ngx_modelgw_response_entry_t));

    entry->index = index;
    entry->kind = kind;
    entry->start = m->nstarts;

    if (kind == NGX_MODELGW_COMPLETION_SKIP) {
        return NGX_OK;
    }

    entry->block = ngx_modelgw_response_content_start(st, content, kind);
    if (entry->block == NULL) {
        return NGX_ERROR;
    }

    if (kind == NGX_MODELGW_COMPLETION_TOOL
        && ngx_modelgw_completion_input(st->tape, content, &input))
    {
        return ngx_modelgw_response_bytes(&st->write, &entry->input, &input);
    }

    return ngx_modelgw_response_content_text(st, content, kind, entry->block);
}


static ngx_int_t
ngx_modelgw_response_entry_delta(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *event)
{
    ngx_str_t                         text;
    ngx_uint_t                        index;
    ngx_modelgw_node_t               *delta, *type;
    ngx_modelgw_response_entry_t     *entry;
    ngx_modelgw_response_delta_t     *d;
    ngx_modelgw_response_messages_t  *m;

    if (!ngx_modelgw_completion_index(st->tape, event, &index)) {
        return NGX_DECLINED;
    }

    delta = ngx_modelgw_tape_member(st->tape, event, "delta");
    type = ngx_modelgw_tape_member(st->tape, delta, "type");

    for (d = ngx_modelgw_response_deltas; d->type; d++) {
        if (ngx_modelgw_tape_is(st->tape, type, d->type)) {
            break;
        }
    }

    entry = ngx_modelgw_response_entry_find(st, index);

    if (d->kind != (entry ? entry->kind : NGX_MODELGW_COMPLETION_TEXT)
        || d->handler == NULL)
    {
        return NGX_OK;
    }

    (void) ngx_modelgw_completion_string(st->tape, delta, d->member, &text);

    if (entry && entry->block) {
        entry->args |= (text.len != 0);

        return ngx_modelgw_response_delta(st, d->handler, entry->block, &text);
    }

    if (d->kind != NGX_MODELGW_COMPLETION_TEXT || text.len == 0) {
        return NGX_OK;
    }

    m = st->state;

    if (m->open == NULL || m->open->kind != NGX_MODELGW_RESPONSE_TEXT) {

        if (ngx_modelgw_response_open_stop(st) != NGX_OK) {
            return NGX_ERROR;
        }

        m->open = ngx_modelgw_response_block_start(&st->write,
                                                   NGX_MODELGW_RESPONSE_TEXT,
                                                   NULL, NULL);
        if (m->open == NULL) {
            return NGX_ERROR;
        }
    }

    return ngx_modelgw_response_delta(st, d->handler, m->open, &text);
}


static ngx_int_t
ngx_modelgw_response_entry_stop(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *event)
{
    ngx_uint_t                        index;
    ngx_modelgw_response_entry_t     *entry;
    ngx_modelgw_response_messages_t  *m;

    if (!ngx_modelgw_completion_index(st->tape, event, &index)) {
        return NGX_DECLINED;
    }

    entry = ngx_modelgw_response_entry_find(st, index);

    if (entry == NULL || entry->block == NULL) {
        return NGX_OK;
    }

    m = st->state;

    /* it may have been cut before its arguments: what follows decides */

    if (entry->kind == NGX_MODELGW_COMPLETION_TOOL
        && !entry->args
        && entry->input.piece.start == NULL
        && entry->start == m->nstarts
        && m->open == NULL)
    {
        m->open = entry->block;
        entry->block = NULL;

        return NGX_OK;
    }

    return ngx_modelgw_response_entry_close(st, entry);
}


static ngx_int_t
ngx_modelgw_response_entry_close(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_response_entry_t *entry)
{
    ngx_modelgw_response_block_t  *block;

    if (entry->block == NULL) {
        return NGX_OK;
    }

    if (ngx_modelgw_response_entry_input(st, entry) != NGX_OK) {
        return NGX_ERROR;
    }

    block = entry->block;
    entry->block = NULL;

    return ngx_modelgw_response_block_stop(&st->write, block);
}


/* what was left open, if anything, ends with what comes now */

static ngx_int_t
ngx_modelgw_response_open_stop(ngx_modelgw_response_stream_t *st)
{
    ngx_modelgw_response_block_t     *block;
    ngx_modelgw_response_messages_t  *m;

    m = st->state;
    block = m->open;

    if (block == NULL) {
        return NGX_OK;
    }

    m->open = NULL;

    return ngx_modelgw_response_block_stop(&st->write, block);
}


/* the input of the start counts if no other has come */

static ngx_int_t
ngx_modelgw_response_entry_input(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_response_entry_t *entry)
{
    ngx_int_t  rc;
    ngx_str_t  input;

    if (entry->input.piece.start == NULL) {
        return NGX_OK;
    }

    rc = NGX_OK;

    if (!entry->args) {
        input.data = entry->input.piece.start;
        input.len = ngx_modelgw_response_bytes_len(&entry->input);

        rc = ngx_modelgw_response_block_json(&st->write, entry->block, &input);
    }

    ngx_modelgw_response_bytes_free(&st->write, &entry->input);

    return rc;
}


/* from the last one backwards: it is nearly always the one */

static ngx_modelgw_response_entry_t *
ngx_modelgw_response_entry_find(ngx_modelgw_response_stream_t *st,
    ngx_uint_t index)
{
    ngx_uint_t                        i;
    ngx_modelgw_response_entry_t     *entry;
    ngx_modelgw_response_messages_t  *m;

    m = st->state;
    entry = m->entries.elts;

    for (i = m->entries.nelts; i > 0; i--) {
        if (entry[i - 1].index == index) {
            return &entry[i - 1];
        }
    }

    return NULL;
}


static ngx_modelgw_response_block_t *
ngx_modelgw_response_content_start(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *content, ngx_modelgw_completion_kind_e kind)
{
    ngx_str_t  id, name;

    (void) ngx_modelgw_completion_string(st->tape, content, "id", &id);
    (void) ngx_modelgw_completion_string(st->tape, content, "name", &name);

    return ngx_modelgw_response_block_start(&st->write,
                                            ngx_modelgw_response_kinds[kind],
                                            &id, &name);
}


/* what a block has at its start; all of it in a whole answer */

static ngx_int_t
ngx_modelgw_response_content_text(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *content, ngx_modelgw_completion_kind_e kind,
    ngx_modelgw_response_block_t *block)
{
    ngx_str_t    text;
    const char  *member;

    switch (kind) {

    case NGX_MODELGW_COMPLETION_TEXT:
        member = "text";
        break;

    case NGX_MODELGW_COMPLETION_THINKING:
        member = "thinking";

        (void) ngx_modelgw_completion_string(st->tape, content, "signature",
                                             &text);

        if (ngx_modelgw_response_block_signature(&st->write, block, &text)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        break;

    case NGX_MODELGW_COMPLETION_REDACTED:
        member = "data";
        break;

    default: /* NGX_MODELGW_COMPLETION_TOOL */
        return NGX_OK;
    }

    (void) ngx_modelgw_completion_string(st->tape, content, member, &text);

    return ngx_modelgw_response_block_text(&st->write, block, &text);
}


static ngx_uint_t
ngx_modelgw_response_content_call(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *content)
{
    ngx_str_t  id, name;

    return ngx_modelgw_completion_string(st->tape, content, "id", &id)
           && ngx_modelgw_completion_string(st->tape, content, "name", &name);
}
