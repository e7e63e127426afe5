
/*
 * A messages stream as a chat stream, event by event.
 *
 *     NEW        nothing has come; pings are dropped, so that the caller can
 *                hold the client's headers until something is sure
 *     STARTED    message_start was seen and the chunk with the role is out
 *     ending     STARTED, and the stop reason is known
 *     DONE       finish chunk, usage and "[DONE]" are out: nothing more is fed
 *
 *     NEW -- message_start --> STARTED
 *     NEW -- any other event of a message --> refused
 *     STARTED -- message_delta with a stop reason --> ending
 *     STARTED, ending -- message_stop --> DONE
 *     ending -- the upstream's end --> DONE; some never send message_stop
 *     STARTED -- the upstream's end --> refused, the answer is not whole
 *     any -- error --> refused
 *
 * What the upstream may add some day (types of events, of blocks, of deltas) is
 * ignored: a table says what is known.  What is known and makes no sense is
 * refused: half an answer that ends cleanly is worse than an error, and peers
 * that write "[DONE]" in any case have shown it.
 *
 * Each event is put on the same tape, so that a stream takes no memory with its
 * length.  Rejected: to translate while the event is being scanned, which would
 * need a codec that holds back text until the type is known, since members come
 * in any order.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_stream_write.h"


#define NGX_MODELGW_CHUNK_BLOCKS  8      /* that most streams have room with */


typedef struct {
    ngx_str_t             type;
    ngx_int_t           (*handler)(ngx_modelgw_chunk_t *ch,
                                   ngx_modelgw_node_t *event);
    ngx_uint_t            started;       /* only behind message_start */
} ngx_modelgw_chunk_event_t;


static ngx_modelgw_chunk_event_t *ngx_modelgw_chunk_find(
    ngx_modelgw_chunk_t *ch, ngx_modelgw_node_t *event, ngx_str_t *name);
static ngx_int_t ngx_modelgw_chunk_message_start(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_chunk_message_delta(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_chunk_message_stop(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_chunk_ping(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event);
static ngx_int_t ngx_modelgw_chunk_error(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event);


/* the first one is by far the most frequent, the last one an error */

static ngx_modelgw_chunk_event_t  ngx_modelgw_chunk_events[] = {

    { ngx_string("content_block_delta"), ngx_modelgw_chunk_block_delta, 1 },
    { ngx_string("content_block_start"), ngx_modelgw_chunk_block_start, 1 },
    { ngx_string("content_block_stop"), ngx_modelgw_chunk_block_stop, 1 },
    { ngx_string("ping"), ngx_modelgw_chunk_ping, 0 },
    { ngx_string("message_start"), ngx_modelgw_chunk_message_start, 0 },
    { ngx_string("message_delta"), ngx_modelgw_chunk_message_delta, 1 },
    { ngx_string("message_stop"), ngx_modelgw_chunk_message_stop, 1 },
    { ngx_string("error"), ngx_modelgw_chunk_error, 0 }
};

#define NGX_MODELGW_CHUNK_EVENTS                                              \
    (sizeof(ngx_modelgw_chunk_events) / sizeof(ngx_modelgw_chunk_event_t))


static ngx_str_t  ngx_modelgw_chunk_role =
    ngx_string("{\"role\":\"assistant\",\"content\":\"\"}");
static ngx_str_t  ngx_modelgw_chunk_refusal =
    ngx_string("{\"refusal\":\"");


ngx_modelgw_chunk_t *
ngx_modelgw_chunk_create(ngx_pool_t *pool, ngx_modelgw_completion_t *c,
    ngx_modelgw_tape_t *tape, size_t max, ngx_modelgw_out_t *out)
{
    ngx_modelgw_chunk_t  *ch;

    ch = ngx_pcalloc(pool, sizeof(ngx_modelgw_chunk_t));
    if (ch == NULL) {
        return NULL;
    }

    if (ngx_array_init(&ch->blocks, pool, NGX_MODELGW_CHUNK_BLOCKS,
                       sizeof(ngx_modelgw_chunk_block_t))
        != NGX_OK)
    {
        return NULL;
    }

    ch->pool = pool;
    ch->c = c;
    ch->tape = tape;
    ch->out = out;
    ch->max = max;

    return ch;
}


ngx_int_t
ngx_modelgw_chunk_event(ngx_modelgw_chunk_t *ch, ngx_str_t *data,
    ngx_str_t *name, ngx_uint_t borrowed)
{
    ngx_int_t                   rc;
    ngx_modelgw_node_t         *event;
    ngx_modelgw_chunk_event_t  *known;

    ch->text = NULL;

    ngx_modelgw_tape_reset(ch->tape);

    rc = ngx_modelgw_tape_feed(ch->tape, data->data, data->len);
    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_modelgw_tape_done(ch->tape, data->data) != NGX_OK) {
        return NGX_DECLINED;
    }

    event = ngx_modelgw_tape_root(ch->tape);

    known = ngx_modelgw_chunk_find(ch, event, name);
    if (known == NULL) {
        return NGX_OK;
    }

    if (known->started && !ch->started) {
        return NGX_DECLINED;
    }

    ch->borrowed = borrowed;

    return known->handler(ch, event);
}


u_char *
ngx_modelgw_chunk_text(ngx_modelgw_chunk_t *ch)
{
    return ch->text;
}


ngx_int_t
ngx_modelgw_chunk_repeat(ngx_modelgw_chunk_t *ch, ngx_str_t *text,
    ngx_uint_t borrowed)
{
    ch->borrowed = borrowed;

    return text->len ? ch->handler(ch, ch->block, text) : NGX_OK;
}


ngx_int_t
ngx_modelgw_chunk_end(ngx_modelgw_chunk_t *ch)
{
    if (ch->stop == NULL) {
        return NGX_DECLINED;
    }

    return ngx_modelgw_chunk_message_stop(ch, NULL);
}


/*
 * What kind of event it is, NULL if it is of none that is known.  Its type says
 * so, or its name if it has no type; but an error must not be overlooked, so
 * for that the name, or a member, is enough.
 */

static ngx_modelgw_chunk_event_t *
ngx_modelgw_chunk_find(ngx_modelgw_chunk_t *ch, ngx_modelgw_node_t *event,
    ngx_str_t *name)
{
    ngx_uint_t                  i;
    ngx_modelgw_node_t         *type, *error;
    ngx_modelgw_chunk_event_t  *known;

    known = ngx_modelgw_chunk_events;
    type = ngx_modelgw_tape_member(ch->tape, event, "type");

    for (i = 0; i < NGX_MODELGW_CHUNK_EVENTS; i++) {
        if (ngx_modelgw_tape_is(ch->tape, type, (char *) known[i].type.data))
        {
            return &known[i];
        }
    }

    error = ngx_modelgw_tape_member(ch->tape, event, "error");

    if (error && error->type == NGX_MODELGW_TAPE_OBJECT) {
        return &known[NGX_MODELGW_CHUNK_EVENTS - 1];
    }

    /* an unknown type */

    i = (type && type->type == NGX_MODELGW_TAPE_STRING)
        ? NGX_MODELGW_CHUNK_EVENTS - 1 : 0;

    for ( /* void */ ; i < NGX_MODELGW_CHUNK_EVENTS; i++) {
        if (name->len == known[i].type.len
            && ngx_memcmp(name->data, known[i].type.data, name->len) == 0)
        {
            return &known[i];
        }
    }

    return NULL;
}


/* "role" is in this chunk only: accumulators concatenate it */

static ngx_int_t
ngx_modelgw_chunk_message_start(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event)
{
    ngx_modelgw_node_t  *message;

    if (ch->started) {
        return NGX_OK;
    }

    message = ngx_modelgw_tape_member(ch->tape, event, "message");

    if (ngx_modelgw_chunk_write_init(ch, message) != NGX_OK) {
        return NGX_ERROR;
    }

    ch->started = 1;

    ngx_modelgw_chunk_write_delta(ch, &ngx_modelgw_chunk_role);

    return NGX_OK;
}


/*
 * May come more than once; a reason that was given stays.  An empty one is what
 * some look-alikes send until they know it.
 */

static ngx_int_t
ngx_modelgw_chunk_message_delta(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event)
{
    ngx_str_t            text;
    ngx_modelgw_node_t  *delta, *details;

    delta = ngx_modelgw_tape_member(ch->tape, event, "delta");

    (void) ngx_modelgw_completion_string(ch->tape, delta, "stop_reason",
                                         &text);
    if (text.len) {
        ch->stop = ngx_modelgw_completion_stop(ch->tape,
                        ngx_modelgw_tape_member(ch->tape, delta,
                                                "stop_reason"));
    }

    details = ngx_modelgw_tape_member(ch->tape, delta, "stop_details");

    (void) ngx_modelgw_completion_string(ch->tape, details, "explanation",
                                         &text);
    if (text.len == 0) {
        return NGX_OK;
    }

    ngx_modelgw_chunk_keep_drop(ch, &ch->refusal);

    return ngx_modelgw_chunk_keep(ch, &ch->refusal, &text);
}


static ngx_int_t
ngx_modelgw_chunk_message_stop(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event)
{
    ngx_str_t                      *finish, refusal;
    ngx_modelgw_completion_stop_t  *stop;

    /* texts are not those of an event any more */

    ch->borrowed = 0;

    stop = ch->stop ? ch->stop : ngx_modelgw_completion_stop(ch->tape, NULL);
    finish = ngx_modelgw_completion_finish(stop, ch->ntools);

    ngx_modelgw_chunk_block_end(ch, stop->calls);

    if (stop->refused) {
        refusal = ch->refusal.text;

        if (refusal.len == 0) {
            ngx_modelgw_completion_refusal(ch->tape, NULL, &refusal);
        }

        ngx_modelgw_chunk_write_string(ch, &ngx_modelgw_chunk_refusal,
                                       &refusal);
    }

    ngx_modelgw_chunk_write_finish(ch, finish);

    if (ch->c->include_usage) {
        ngx_modelgw_chunk_write_usage(ch);
    }

    ngx_modelgw_out_text(ch->out, "data: [DONE]\n\n");

    return NGX_DONE;
}


static ngx_int_t
ngx_modelgw_chunk_ping(ngx_modelgw_chunk_t *ch, ngx_modelgw_node_t *event)
{
    if (ch->started) {
        ngx_modelgw_out_text(ch->out, ": ping\n\n");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_chunk_error(ngx_modelgw_chunk_t *ch, ngx_modelgw_node_t *event)
{
    return NGX_ABORT;
}
