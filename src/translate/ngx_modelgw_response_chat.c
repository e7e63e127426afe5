
/*
 * Answers of a chat upstream, for the writer of responses.  The message of a
 * whole answer is read like a delta of a stream that has only one.
 *
 * Chat says how an answer ends, but not how its parts do.  A text or reasoning
 * ends when something else comes; a call, too, if its arguments are one JSON
 * object, else more of them may come: the calls after it wait.
 *
 * What look-alikes do, and is read as it is meant: no role, empty deltas, null
 * for anything; no "index", or the same one, for calls with other ids; an id
 * and a name in each delta of a call; arguments that are an object; "reasoning"
 * instead of "reasoning_content", or both with the same text; content in parts.
 *
 * Of an answer that was cut, calls that are not whole are left out; if it was
 * cut by a limit, the last one in any case.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_completion_private.h"
#include "ngx_modelgw_response_private.h"
#include "ngx_modelgw_stream.h"


#define NGX_MODELGW_RESPONSE_CALLS  8        /* enough for most streams */


typedef struct {
    ngx_uint_t                       index;  /* the upstream's */
    ngx_str_t                        id;     /* as it came */
    ngx_modelgw_response_block_t    *block;  /* NULL: it has stopped */
} ngx_modelgw_response_call_t;


typedef struct {
    ngx_uint_t                       finished;  /* a reason was given */
    ngx_uint_t                       limit;  /* the answer is cut by one */
    ngx_modelgw_response_end_t       end;
    ngx_modelgw_response_block_t    *block;  /* the open one that is no call;
                                                may be NULL */
    ngx_array_t                      calls;
    ngx_uint_t                       ndeltas;  /* in this event */
} ngx_modelgw_response_chat_t;


/* an element of "tool_calls" */

typedef struct {
    ngx_uint_t                       index;
    ngx_str_t                        id;
    ngx_str_t                        name;
    ngx_str_t                        args;
    ngx_str_t                        json;   /* arguments that are no string */
} ngx_modelgw_response_fields_t;


static ngx_int_t ngx_modelgw_response_chat_init(
    ngx_modelgw_response_stream_t *st);
static ngx_int_t ngx_modelgw_response_chat_whole(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *root);
static ngx_int_t ngx_modelgw_response_chat_event(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *event,
    ngx_str_t *name);
static ngx_int_t ngx_modelgw_response_chat_end(
    ngx_modelgw_response_stream_t *st);
static ngx_int_t ngx_modelgw_response_chat_choice(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *root,
    ngx_modelgw_node_t *choice, ngx_modelgw_node_t *delta);
static ngx_int_t ngx_modelgw_response_chat_content(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *delta);
static ngx_int_t ngx_modelgw_response_chat_text(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_response_kind_e kind,
    ngx_str_t *text);
static ngx_int_t ngx_modelgw_response_chat_stop(
    ngx_modelgw_response_stream_t *st);
static void ngx_modelgw_response_chat_finish(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *choice);
static ngx_int_t ngx_modelgw_response_call_check(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *calls);
static ngx_int_t ngx_modelgw_response_call_read(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_node_t *node, ngx_uint_t i);
static ngx_modelgw_response_call_t *ngx_modelgw_response_call_new(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_response_fields_t *f);
static ngx_modelgw_response_call_t *ngx_modelgw_response_call_find(
    ngx_modelgw_response_stream_t *st, ngx_modelgw_response_fields_t *f);
static void ngx_modelgw_response_call_fields(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *node, ngx_uint_t i, ngx_modelgw_response_fields_t *f);


ngx_modelgw_response_reader_t  ngx_modelgw_response_chat = {
    ngx_modelgw_response_chat_init,
    ngx_modelgw_response_chat_whole,
    ngx_modelgw_response_chat_event,
    ngx_modelgw_response_chat_end
};


static ngx_int_t
ngx_modelgw_response_chat_init(ngx_modelgw_response_stream_t *st)
{
    ngx_modelgw_response_chat_t  *c;

    c = ngx_pcalloc(st->write.pool, sizeof(ngx_modelgw_response_chat_t));
    if (c == NULL) {
        return NGX_ERROR;
    }

    st->state = c;

    return ngx_array_init(&c->calls, st->write.pool,
                          NGX_MODELGW_RESPONSE_CALLS,
                          sizeof(ngx_modelgw_response_call_t));
}


static ngx_int_t
ngx_modelgw_response_chat_whole(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *root)
{
    ngx_int_t                     rc;
    ngx_modelgw_node_t           *choice, *message;
    ngx_modelgw_response_chat_t  *c;

    choice = ngx_modelgw_tape_first(st->tape,
                          ngx_modelgw_tape_member(st->tape, root, "choices"));
    message = ngx_modelgw_tape_member(st->tape, choice, "message");

    if (message == NULL || message->type != NGX_MODELGW_TAPE_OBJECT) {
        return NGX_DECLINED;
    }

    rc = ngx_modelgw_response_chat_choice(st, root, choice, message);
    if (rc != NGX_OK) {
        return rc;
    }

    /* a missing reason is none that says the answer was cut */

    c = st->state;
    c->finished = 1;

    rc = ngx_modelgw_response_chat_end(st);

    return (rc == NGX_DONE) ? NGX_OK : rc;
}


static ngx_int_t
ngx_modelgw_response_chat_event(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *event, ngx_str_t *name)
{
    ngx_int_t                     rc;
    ngx_uint_t                    index;
    ngx_modelgw_node_t           *error, *choices, *choice, *delta;
    ngx_modelgw_response_chat_t  *c;

    error = ngx_modelgw_tape_member(st->tape, event, "error");

    if (error
        && (error->type == NGX_MODELGW_TAPE_OBJECT
            || error->type == NGX_MODELGW_TAPE_STRING))
    {
        return NGX_ABORT;
    }

    choices = ngx_modelgw_tape_member(st->tape, event, "choices");

    if (choices == NULL || choices->type != NGX_MODELGW_TAPE_ARRAY) {
        return NGX_OK;
    }

    c = st->state;
    c->ndeltas = 0;

    choice = ngx_modelgw_tape_first(st->tape, choices);

    /* one was asked for, which is the first */

    if (ngx_modelgw_tape_count(st->tape,
                            ngx_modelgw_tape_member(st->tape, choice, "index"),
                            &index)
        && index > 0)
    {
        return NGX_OK;
    }

    delta = ngx_modelgw_tape_member(st->tape, choice, "delta");

    rc = ngx_modelgw_response_chat_choice(st, event, choice, delta);

    if (c->ndeltas != 1) {
        st->text = NULL;
    }

    return rc;
}


static ngx_int_t
ngx_modelgw_response_chat_end(ngx_modelgw_response_stream_t *st)
{
    ngx_uint_t                    i, n, stopped;
    ngx_modelgw_response_call_t  *call;
    ngx_modelgw_response_chat_t  *c;

    c = st->state;

    if (!c->finished) {
        return NGX_DECLINED;
    }

    call = c->calls.elts;

    n = c->end.cut ? c->calls.nelts : 0;

    for (i = 0; i + c->limit < n; i++) {

        if (call[i].block
            && ngx_modelgw_response_block_try_stop(&st->write, call[i].block,
                                                   &stopped)
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return (ngx_modelgw_response_write_end(&st->write, &c->end) == NGX_OK)
           ? NGX_DONE : NGX_ERROR;
}


/* all that can be refused comes first: nothing is written of it then */

static ngx_int_t
ngx_modelgw_response_chat_choice(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *root, ngx_modelgw_node_t *choice,
    ngx_modelgw_node_t *delta)
{
    ngx_int_t            rc;
    ngx_str_t            text;
    ngx_uint_t           i;
    ngx_modelgw_node_t  *calls, *node;

    calls = ngx_modelgw_tape_member(st->tape, delta, "tool_calls");

    if (ngx_modelgw_response_call_check(st, calls) != NGX_OK) {
        return NGX_DECLINED;
    }

    (void) ngx_modelgw_completion_string(st->tape, root, "id", &text);

    ngx_modelgw_response_write_start(&st->write, &text);

    if (st->write.rs->call->show) {
        (void) ngx_modelgw_completion_string(st->tape, delta,
                                             "reasoning_content", &text);

        if (text.len == 0) {
            (void) ngx_modelgw_completion_string(st->tape, delta, "reasoning",
                                                 &text);
        }

        rc = ngx_modelgw_response_chat_text(st, NGX_MODELGW_RESPONSE_THINKING,
                                            &text);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    rc = ngx_modelgw_response_chat_content(st, delta);
    if (rc != NGX_OK) {
        return rc;
    }

    (void) ngx_modelgw_completion_string(st->tape, delta, "refusal", &text);

    rc = ngx_modelgw_response_chat_text(st, NGX_MODELGW_RESPONSE_REFUSAL,
                                        &text);
    if (rc != NGX_OK) {
        return rc;
    }

    i = 0;

    for (node = ngx_modelgw_tape_first(st->tape, calls);
         node;
         node = ngx_modelgw_tape_next(st->tape, calls, node))
    {
        if (ngx_modelgw_response_call_read(st, node, i++) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ngx_modelgw_response_chat_finish(st, choice);

    return NGX_OK;
}


/* a string, or parts, of which those with a text are taken */

static ngx_int_t
ngx_modelgw_response_chat_content(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *delta)
{
    ngx_int_t            rc;
    ngx_str_t            text;
    ngx_modelgw_node_t  *content, *part;

    (void) ngx_modelgw_completion_string(st->tape, delta, "content", &text);

    rc = ngx_modelgw_response_chat_text(st, NGX_MODELGW_RESPONSE_TEXT, &text);

    content = ngx_modelgw_tape_member(st->tape, delta, "content");

    if (content == NULL || content->type != NGX_MODELGW_TAPE_ARRAY) {
        return rc;
    }

    for (part = ngx_modelgw_tape_first(st->tape, content);
         part && rc == NGX_OK;
         part = ngx_modelgw_tape_next(st->tape, content, part))
    {
        (void) ngx_modelgw_completion_string(st->tape, part, "text", &text);

        rc = ngx_modelgw_response_chat_text(st, NGX_MODELGW_RESPONSE_TEXT,
                                            &text);
    }

    return rc;
}


static ngx_int_t
ngx_modelgw_response_chat_text(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_response_kind_e kind, ngx_str_t *text)
{
    ngx_modelgw_response_chat_t  *c;

    if (text->len == 0) {
        return NGX_OK;
    }

    c = st->state;
    c->ndeltas++;

    if (c->block == NULL || c->block->kind != kind) {

        if (ngx_modelgw_response_chat_stop(st) != NGX_OK) {
            return NGX_ERROR;
        }

        c->block = ngx_modelgw_response_block_start(&st->write, kind, NULL,
                                                    NULL);
        if (c->block == NULL) {
            return NGX_ERROR;
        }
    }

    return ngx_modelgw_response_delta(st, ngx_modelgw_response_block_text,
                                      c->block, text);
}


/* something else comes: what can be whole ends */

static ngx_int_t
ngx_modelgw_response_chat_stop(ngx_modelgw_response_stream_t *st)
{
    ngx_uint_t                     i, stopped;
    ngx_modelgw_response_call_t   *call;
    ngx_modelgw_response_chat_t   *c;
    ngx_modelgw_response_block_t  *block;

    c = st->state;
    block = c->block;

    if (block) {
        c->block = NULL;

        if (ngx_modelgw_response_block_stop(&st->write, block) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    call = c->calls.elts;

    for (i = 0; i < c->calls.nelts; i++) {

        if (call[i].block == NULL) {
            continue;
        }

        if (ngx_modelgw_response_block_try_stop(&st->write, call[i].block,
                                                &stopped)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (stopped) {
            call[i].block = NULL;
        }
    }

    return NGX_OK;
}


static void
ngx_modelgw_response_chat_finish(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *choice)
{
    ngx_modelgw_node_t           *reason;
    ngx_modelgw_response_chat_t  *c;

    reason = ngx_modelgw_tape_member(st->tape, choice, "finish_reason");

    if (reason == NULL
        || reason->type != NGX_MODELGW_TAPE_STRING
        || ngx_modelgw_tape_is(st->tape, reason, ""))
    {
        return;
    }

    c = st->state;
    c->finished = 1;

    if (ngx_modelgw_tape_is(st->tape, reason, "length")) {
        ngx_str_set(&c->end.reason, "max_output_tokens");
        c->end.cut = 1;
        c->limit = 1;

    } else if (ngx_modelgw_tape_is(st->tape, reason, "content_filter")) {
        ngx_str_set(&c->end.reason, "content_filter");
        c->end.cut = 1;
    }
}


/* arguments without a name belong to no call */

static ngx_int_t
ngx_modelgw_response_call_check(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *calls)
{
    ngx_uint_t                      i, n;
    ngx_modelgw_node_t             *node;
    ngx_modelgw_response_call_t    *call;
    ngx_modelgw_response_chat_t    *c;
    ngx_modelgw_response_fields_t   f;

    c = st->state;
    i = 0;
    n = c->calls.nelts;

    if (calls && calls->count > NGX_MODELGW_STREAM_MAX_BLOCKS) {
        return NGX_DECLINED;
    }

    for (node = ngx_modelgw_tape_first(st->tape, calls);
         node;
         node = ngx_modelgw_tape_next(st->tape, calls, node))
    {
        ngx_modelgw_response_call_fields(st, node, i++, &f);

        call = ngx_modelgw_response_call_find(st, &f);

        if (f.name.len == 0) {

            if (call == NULL && (f.args.len || f.json.len)) {
                return NGX_DECLINED;
            }

        /* without an id it may be a new one, see below */

        } else if ((call == NULL || f.id.len == 0)
                   && n++ == NGX_MODELGW_STREAM_MAX_BLOCKS)
        {
            return NGX_DECLINED;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_response_call_read(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *node, ngx_uint_t i)
{
    ngx_uint_t                      stopped;
    ngx_modelgw_response_call_t    *call;
    ngx_modelgw_response_chat_t    *c;
    ngx_modelgw_response_fields_t   f;

    c = st->state;

    ngx_modelgw_response_call_fields(st, node, i, &f);

    call = ngx_modelgw_response_call_find(st, &f);

    /*
     * A name without an id is another call's if this one is whole; so the next
     * event is read, even if it differs from this one in its text only.
     */

    c->ndeltas += (f.name.len && f.id.len == 0);

    if (call && call->block && f.name.len && f.id.len == 0 && f.args.len) {
        if (ngx_modelgw_response_block_try_stop(&st->write, call->block,
                                                &stopped)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (stopped) {
            call->block = NULL;
            call = NULL;
        }
    }

    if (call == NULL) {

        if (f.name.len == 0) {
            return NGX_OK;
        }

        call = ngx_modelgw_response_call_new(st, &f);
        if (call == NULL) {
            return NGX_ERROR;
        }
    }

    if (call->block == NULL) {
        return NGX_OK;
    }

    c->ndeltas++;

    if (f.json.len) {
        c->ndeltas++;

        return ngx_modelgw_response_block_json(&st->write, call->block,
                                               &f.json);
    }

    return ngx_modelgw_response_delta(st, ngx_modelgw_response_block_text,
                                      call->block, &f.args);
}


static ngx_modelgw_response_call_t *
ngx_modelgw_response_call_new(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_response_fields_t *f)
{
    ngx_modelgw_response_call_t  *call;
    ngx_modelgw_response_chat_t  *c;

    c = st->state;

    if (ngx_modelgw_response_chat_stop(st) != NGX_OK) {
        return NULL;
    }

    call = ngx_array_push(&c->calls);
    if (call == NULL) {
        return NULL;
    }

    ngx_memzero(call, sizeof(ngx_modelgw_response_call_t));

    call->index = f->index;

    if (f->id.len) {
        call->id.len = f->id.len;
        call->id.data = ngx_pstrdup(st->write.pool, &f->id);
        if (call->id.data == NULL) {
            return NULL;
        }
    }

    call->block = ngx_modelgw_response_block_start(&st->write,
                                                   NGX_MODELGW_RESPONSE_TOOL,
                                                   &f->id, &f->name);

    return call->block ? call : NULL;
}


/* the call that a delta is for; NULL: a new one */

static ngx_modelgw_response_call_t *
ngx_modelgw_response_call_find(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_response_fields_t *f)
{
    ngx_uint_t                    i;
    ngx_modelgw_response_call_t  *call;
    ngx_modelgw_response_chat_t  *c;

    c = st->state;
    call = c->calls.elts;

    for (i = c->calls.nelts; i > 0; i--) {
        if (call[i - 1].index == f->index) {
            break;
        }
    }

    if (i == 0) {
        return NULL;
    }

    call = &call[i - 1];

    if (f->name.len == 0
        || (f->id.len
            && f->id.len == call->id.len
            && ngx_memcmp(f->id.data, call->id.data, f->id.len) == 0))
    {
        return call;
    }

    /* a name, and another id or none: some repeat the name in each delta */

    return (f->id.len == 0 && call->block) ? call : NULL;
}


static void
ngx_modelgw_response_call_fields(ngx_modelgw_response_stream_t *st,
    ngx_modelgw_node_t *node, ngx_uint_t i, ngx_modelgw_response_fields_t *f)
{
    ngx_modelgw_node_t  *function, *args;

    if (!ngx_modelgw_tape_count(st->tape,
                            ngx_modelgw_tape_member(st->tape, node, "index"),
                            &f->index))
    {
        f->index = i;
    }

    function = ngx_modelgw_tape_member(st->tape, node, "function");

    (void) ngx_modelgw_completion_string(st->tape, node, "id", &f->id);
    (void) ngx_modelgw_completion_string(st->tape, function, "name", &f->name);
    (void) ngx_modelgw_completion_string(st->tape, function, "arguments",
                                         &f->args);

    args = ngx_modelgw_tape_member(st->tape, function, "arguments");

    ngx_str_null(&f->json);

    if (args && args->type == NGX_MODELGW_TAPE_OBJECT) {
        ngx_modelgw_tape_raw(st->tape, args, &f->json);
    }
}
