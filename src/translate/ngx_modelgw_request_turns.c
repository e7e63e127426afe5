
/*
 * The messages of a chat request as the turns of a messages request.
 *
 * Chat has a list of messages of five roles; neighbours may have the same role,
 * and messages may be empty.  A messages upstream takes turns of alternating
 * roles, each a list of blocks that are not blank, and "system" apart.  So each
 * message is read into blocks at the end of the last turn, or of a new one if
 * the last turn has the other role; a turn that stays empty is removed.
 *
 * What chat allows and the messages API does not is repaired here: empty texts,
 * neighbours, instructions in the middle, trailing white space.  What chat
 * itself forbids (calls without results, results without calls) is refused, see
 * request_calls.c: the model would believe whatever was invented instead.
 *
 * Results must come first in their turn, and they do without sorting: only
 * instructions may come between calls and their results.
 *
 * An assistant's blocks are thinking (the upstream wants it first), content,
 * refusal, tool calls.  Clients send thinking back in three forms:
 * "thinking_blocks" as we sent them, parts of content, or "reasoning_content"
 * with "reasoning_signature".  It is sent to the upstream only if signed, since
 * the upstream refuses thinking that it cannot verify.
 *
 * Members that are not read here (name, audio, annotations) are ignored.
 *
 * Rejected: instructions in the middle as text of the user.  They would have
 * the user's authority only, and a user could fake them.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


typedef struct {
    const char           *name;
    ngx_uint_t            turn;          /* where its blocks go */
    ngx_uint_t            ends_calls;    /* no result may follow it */
    ngx_int_t           (*read)(ngx_modelgw_request_walk_t *w,
                                ngx_array_t *blocks);
} ngx_modelgw_request_turns_role_t;


static ngx_int_t ngx_modelgw_request_turns_message(
    ngx_modelgw_request_walk_t *w);
static ngx_modelgw_request_turns_role_t *ngx_modelgw_request_turns_role(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_node_t *role);
static ngx_int_t ngx_modelgw_request_turns_bad_role(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_node_t *role);
static ngx_array_t *ngx_modelgw_request_turns_blocks(
    ngx_modelgw_request_walk_t *w, ngx_uint_t role);
static ngx_int_t ngx_modelgw_request_message_system(
    ngx_modelgw_request_walk_t *w, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_message_user(
    ngx_modelgw_request_walk_t *w, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_message_assistant(
    ngx_modelgw_request_walk_t *w, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_message_tool(
    ngx_modelgw_request_walk_t *w, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_message_thinking(
    ngx_modelgw_request_walk_t *w, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_message_refusal(
    ngx_modelgw_request_walk_t *w, ngx_array_t *blocks);
static void ngx_modelgw_request_message_hoist(
    ngx_modelgw_request_block_t *result);
static ngx_int_t ngx_modelgw_request_turns_system_only(
    ngx_modelgw_request_walk_t *w);
static ngx_int_t ngx_modelgw_request_turns_prefill(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_request_turn_t *turn);
static ngx_uint_t ngx_modelgw_request_turns_unsigned(
    ngx_modelgw_request_turns_t *turns);
static ngx_uint_t ngx_modelgw_request_turns_signed(
    ngx_modelgw_request_turn_t *turn);
static void ngx_modelgw_request_turns_json(ngx_uint_t system,
    ngx_modelgw_out_t *out);


static ngx_modelgw_request_turns_role_t  ngx_modelgw_request_turns_roles[] = {

    { "system", NGX_MODELGW_TURN_SYSTEM, 0,
      ngx_modelgw_request_message_system },

    { "developer", NGX_MODELGW_TURN_SYSTEM, 0,
      ngx_modelgw_request_message_system },

    { "user", NGX_MODELGW_TURN_USER, 1,
      ngx_modelgw_request_message_user },

    { "assistant", NGX_MODELGW_TURN_ASSISTANT, 1,
      ngx_modelgw_request_message_assistant },

    { "tool", NGX_MODELGW_TURN_USER, 0,
      ngx_modelgw_request_message_tool },

    { NULL, 0, 0, NULL }
};


ngx_int_t
ngx_modelgw_request_turns_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_turns_t *turns)
{
    ngx_int_t                    rc;
    ngx_modelgw_node_t          *messages;
    ngx_modelgw_request_walk_t   w;

    messages = ngx_modelgw_request_member(rq, ngx_modelgw_tape_root(rq->tape),
                                          "messages");

    if (messages == NULL || messages->type != NGX_MODELGW_TAPE_ARRAY) {
        return ngx_modelgw_request_invalid(rq, "messages is not an array");
    }

    if (messages->count == 0) {
        return ngx_modelgw_request_invalid(rq, "messages is empty");
    }

    ngx_memzero(&w, sizeof(ngx_modelgw_request_walk_t));

    if (ngx_modelgw_request_turns_init(&w, rq, turns, messages->count)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    w.list = "messages";
    w.content = "content";

    for (w.message = ngx_modelgw_tape_first(rq->tape, messages);
         w.message;
         w.message = ngx_modelgw_tape_next(rq->tape, messages, w.message))
    {
        rc = ngx_modelgw_request_turns_message(&w);
        if (rc != NGX_OK) {
            return rc;
        }

        w.index++;
    }

    rc = ngx_modelgw_request_calls_answered(&w);

    return (rc == NGX_OK) ? ngx_modelgw_request_turns_end(&w) : rc;
}


ngx_int_t
ngx_modelgw_request_turns_init(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_request_t *rq, ngx_modelgw_request_turns_t *turns,
    ngx_uint_t n)
{
    w->rq = rq;
    w->turns = turns;

    ngx_rbtree_init(&w->open, &w->sentinel, ngx_str_rbtree_insert_value);

    if (ngx_array_init(&turns->system, rq->pool, 2,
                       sizeof(ngx_modelgw_request_block_t)) != NGX_OK
        || ngx_array_init(&turns->turns, rq->pool, n,
                          sizeof(ngx_modelgw_request_turn_t)) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_turns_message(ngx_modelgw_request_walk_t *w)
{
    ngx_int_t                          rc;
    ngx_uint_t                         n;
    ngx_array_t                       *blocks;
    ngx_modelgw_node_t                *name;
    ngx_modelgw_request_block_t       *block;
    ngx_modelgw_request_turns_role_t  *role;

    name = ngx_modelgw_request_member(w->rq, w->message, "role");

    role = ngx_modelgw_request_turns_role(w, name);
    if (role->name == NULL) {
        return ngx_modelgw_request_turns_bad_role(w, name);
    }

    if (role->ends_calls) {
        rc = ngx_modelgw_request_calls_answered(w);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    blocks = ngx_modelgw_request_turns_blocks(w, role->turn);
    if (blocks == NULL) {
        return NGX_ERROR;
    }

    n = blocks->nelts;

    rc = role->read(w, blocks);
    if (rc != NGX_OK) {
        return rc;
    }

    if (blocks->nelts > n) {
        block = blocks->elts;
        block = &block[blocks->nelts - 1];

        if (block->cache_control == NULL) {
            ngx_modelgw_request_block_cache(w, w->message, block);
        }
    }

    if (role->turn != NGX_MODELGW_TURN_SYSTEM) {
        w->last = w->index;
        w->blank = (blocks->nelts == n
                    && role->turn == NGX_MODELGW_TURN_USER);

        if (blocks->nelts == 0) {
            w->turns->turns.nelts--;
        }
    }

    return NGX_OK;
}


static ngx_modelgw_request_turns_role_t *
ngx_modelgw_request_turns_role(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *role)
{
    ngx_modelgw_request_turns_role_t  *r;

    for (r = ngx_modelgw_request_turns_roles; r->name; r++) {

        if (ngx_modelgw_tape_is(w->rq->tape, role, r->name)) {
            break;
        }
    }

    return r;
}


static ngx_int_t
ngx_modelgw_request_turns_bad_role(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *role)
{
    if (w->message->type != NGX_MODELGW_TAPE_OBJECT) {
        return ngx_modelgw_request_invalid(w->rq,
                                           "messages[%ui] is not an object",
                                           w->index);
    }

    if (ngx_modelgw_tape_is(w->rq->tape, role, "function")) {
        return ngx_modelgw_request_unsupported(w->rq,
                             "messages[%ui].role \"function\" is not "
                             "supported, use \"tool\"", w->index);
    }

    return ngx_modelgw_request_invalid(w->rq,
                             "messages[%ui].role must be one of \"system\", "
                             "\"developer\", \"user\", \"assistant\", "
                             "\"tool\"", w->index);
}


/* where the blocks of a message go; NULL: no memory */

static ngx_array_t *
ngx_modelgw_request_turns_blocks(ngx_modelgw_request_walk_t *w, ngx_uint_t role)
{
    ngx_modelgw_request_turn_t  *turn;

    if (role == NGX_MODELGW_TURN_SYSTEM) {
        return &w->turns->system;
    }

    turn = ngx_modelgw_request_turns_last(w, role);

    return turn ? &turn->blocks : NULL;
}


ngx_modelgw_request_turn_t *
ngx_modelgw_request_turns_last(ngx_modelgw_request_walk_t *w, ngx_uint_t role)
{
    ngx_array_t                 *turns;
    ngx_modelgw_request_turn_t  *turn;

    turns = &w->turns->turns;

    if (turns->nelts) {
        turn = turns->elts;
        turn = &turn[turns->nelts - 1];

        if (turn->role == role) {
            return turn;
        }
    }

    return ngx_modelgw_request_turns_push(w, role);
}


ngx_modelgw_request_turn_t *
ngx_modelgw_request_turns_push(ngx_modelgw_request_walk_t *w, ngx_uint_t role)
{
    ngx_modelgw_request_turn_t  *turn;

    turn = ngx_array_push(&w->turns->turns);
    if (turn == NULL) {
        return NULL;
    }

    turn->role = role;
    turn->results = NULL;

    if (ngx_array_init(&turn->blocks, w->rq->pool, 1,
                       sizeof(ngx_modelgw_request_block_t)) != NGX_OK)
    {
        return NULL;
    }

    return turn;
}


static ngx_int_t
ngx_modelgw_request_message_system(ngx_modelgw_request_walk_t *w,
    ngx_array_t *blocks)
{
    return ngx_modelgw_request_message_content(w, NGX_MODELGW_PART_TEXT,
                                               blocks);
}


static ngx_int_t
ngx_modelgw_request_message_user(ngx_modelgw_request_walk_t *w,
    ngx_array_t *blocks)
{
    ngx_int_t   rc;
    ngx_uint_t  from;

    from = blocks->nelts;

    rc = ngx_modelgw_request_message_content(w, NGX_MODELGW_PART_TEXT
                                                |NGX_MODELGW_PART_MEDIA,
                                             blocks);
    if (rc != NGX_OK) {
        return rc;
    }

    return ngx_modelgw_request_message_placeholder(blocks, from);
}


static ngx_int_t
ngx_modelgw_request_message_assistant(ngx_modelgw_request_walk_t *w,
    ngx_array_t *blocks)
{
    ngx_int_t            rc;
    ngx_modelgw_node_t  *node;

    node = ngx_modelgw_request_member(w->rq, w->message, "function_call");

    if (!ngx_modelgw_request_absent(node)) {
        return ngx_modelgw_request_unsupported(w->rq,
                             "messages[%ui].function_call is not supported, "
                             "use tool_calls", w->index);
    }

    rc = ngx_modelgw_request_message_thinking(w, blocks);
    if (rc != NGX_OK) {
        return rc;
    }

    node = ngx_modelgw_request_member(w->rq, w->message, "content");

    if (!ngx_modelgw_request_absent(node)) {
        rc = ngx_modelgw_request_message_content(w, NGX_MODELGW_PART_TEXT
                                                    |NGX_MODELGW_PART_REFUSAL
                                                    |NGX_MODELGW_PART_THINKING,
                                                 blocks);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    rc = ngx_modelgw_request_message_refusal(w, blocks);
    if (rc != NGX_OK) {
        return rc;
    }

    node = ngx_modelgw_request_member(w->rq, w->message, "tool_calls");

    if (!ngx_modelgw_request_absent(node)) {
        return ngx_modelgw_request_calls(w, node, blocks);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_message_tool(ngx_modelgw_request_walk_t *w,
    ngx_array_t *blocks)
{
    ngx_int_t                     rc;
    ngx_modelgw_node_t           *node;
    ngx_modelgw_request_block_t  *result;

    result = ngx_modelgw_request_block(blocks, NGX_MODELGW_BLOCK_TOOL_RESULT);
    if (result == NULL) {
        return NGX_ERROR;
    }

    node = ngx_modelgw_request_member(w->rq, w->message, "tool_call_id");

    rc = ngx_modelgw_request_calls_answer(w, node, &result->id);
    if (rc != NGX_OK) {
        return rc;
    }

    node = ngx_modelgw_request_member(w->rq, w->message, "is_error");
    result->is_error = (node && node->type == NGX_MODELGW_TAPE_TRUE);

    node = ngx_modelgw_request_member(w->rq, w->message, "content");

    if (!ngx_modelgw_request_string(node)) {
        return ngx_modelgw_request_message_result(w, NGX_MODELGW_PART_TEXT
                                                     |NGX_MODELGW_PART_MEDIA,
                                                  result);
    }

    if (!ngx_modelgw_tape_blank(w->rq->tape, node)) {
        ngx_modelgw_tape_inside(w->rq->tape, node, &result->value);
    }

    return NGX_OK;
}


/* content is a string or an array of parts */

ngx_int_t
ngx_modelgw_request_message_content(ngx_modelgw_request_walk_t *w,
    ngx_uint_t accepted, ngx_array_t *blocks)
{
    ngx_int_t            rc;
    ngx_modelgw_node_t  *content, *part;

    content = ngx_modelgw_request_member(w->rq, w->message, w->content);

    if (ngx_modelgw_request_string(content)) {
        return ngx_modelgw_request_block_text(w, content, blocks);
    }

    if (content == NULL || content->type != NGX_MODELGW_TAPE_ARRAY) {
        return ngx_modelgw_request_invalid(w->rq,
                             "%s[%ui].%s is neither a string nor an array",
                             w->list, w->index, w->content);
    }

    w->part = 0;

    for (part = ngx_modelgw_tape_first(w->rq->tape, content);
         part;
         part = ngx_modelgw_tape_next(w->rq->tape, content, part))
    {
        rc = ngx_modelgw_request_part(w, part, accepted, blocks);
        if (rc != NGX_OK) {
            return rc;
        }

        w->part++;
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_request_message_placeholder(ngx_array_t *blocks, ngx_uint_t from)
{
    ngx_uint_t                    i, documents;
    ngx_modelgw_request_block_t  *block, placeholder;

    documents = 0;
    block = blocks->elts;

    for (i = from; i < blocks->nelts; i++) {

        if (block[i].kind == NGX_MODELGW_BLOCK_TEXT) {
            return NGX_OK;
        }

        documents += (block[i].kind == NGX_MODELGW_BLOCK_DOCUMENT);
    }

    if (documents == 0) {
        return NGX_OK;
    }

    block = ngx_modelgw_request_block(blocks, NGX_MODELGW_BLOCK_TEXT);
    if (block == NULL) {
        return NGX_ERROR;
    }

    ngx_str_set(&block->value, ".");
    placeholder = *block;

    block = blocks->elts;
    ngx_memmove(&block[from + 1], &block[from],
                (blocks->nelts - 1 - from)
                * sizeof(ngx_modelgw_request_block_t));
    block[from] = placeholder;

    return NGX_OK;
}


/* thinking outside of content */

static ngx_int_t
ngx_modelgw_request_message_thinking(ngx_modelgw_request_walk_t *w,
    ngx_array_t *blocks)
{
    ngx_int_t            rc;
    ngx_uint_t           n;
    ngx_modelgw_node_t  *list, *node, *signature;

    n = blocks->nelts;
    list = ngx_modelgw_request_member(w->rq, w->message, "thinking_blocks");

    if (list && list->type == NGX_MODELGW_TAPE_ARRAY) {

        for (node = ngx_modelgw_tape_first(w->rq->tape, list);
             node;
             node = ngx_modelgw_tape_next(w->rq->tape, list, node))
        {
            rc = ngx_modelgw_request_part_thinking_block(w, node, blocks);
            if (rc != NGX_OK) {
                return rc;
            }
        }
    }

    /* reasoning_content would repeat the text of the blocks */

    if (blocks->nelts > n) {
        return NGX_OK;
    }

    node = ngx_modelgw_request_member(w->rq, w->message, "reasoning_content");
    signature = ngx_modelgw_request_member(w->rq, w->message,
                                           "reasoning_signature");

    return ngx_modelgw_request_part_thinking(w, node, signature, blocks);
}


static ngx_int_t
ngx_modelgw_request_message_refusal(ngx_modelgw_request_walk_t *w,
    ngx_array_t *blocks)
{
    ngx_modelgw_node_t  *refusal;

    refusal = ngx_modelgw_request_member(w->rq, w->message, "refusal");

    if (ngx_modelgw_request_absent(refusal)) {
        return NGX_OK;
    }

    if (refusal->type != NGX_MODELGW_TAPE_STRING) {
        return ngx_modelgw_request_invalid(w->rq,
                             "messages[%ui].refusal is not a string", w->index);
    }

    return ngx_modelgw_request_block_text(w, refusal, blocks);
}


ngx_int_t
ngx_modelgw_request_message_result(ngx_modelgw_request_walk_t *w,
    ngx_uint_t accepted, ngx_modelgw_request_block_t *result)
{
    ngx_int_t     rc;
    ngx_array_t  *blocks;

    blocks = ngx_array_create(w->rq->pool, 1,
                              sizeof(ngx_modelgw_request_block_t));
    if (blocks == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_modelgw_request_message_content(w, accepted, blocks);
    if (rc != NGX_OK) {
        return rc;
    }

    if (blocks->nelts == 0) {
        return NGX_OK;
    }

    result->content = blocks;
    ngx_modelgw_request_message_hoist(result);

    return w->chat ? NGX_OK
                   : ngx_modelgw_request_message_placeholder(blocks, 0);
}


static void
ngx_modelgw_request_message_hoist(ngx_modelgw_request_block_t *result)
{
    ngx_uint_t                    i;
    ngx_modelgw_request_block_t  *block;

    block = result->content->elts;

    for (i = 0; i < result->content->nelts; i++) {

        if (block[i].cache_control) {
            result->cache_control = block[i].cache_control;
            block[i].cache_control = NULL;
        }

        result->breakpoint |= block[i].breakpoint;
        block[i].breakpoint = 0;
    }
}


ngx_int_t
ngx_modelgw_request_turns_end(ngx_modelgw_request_walk_t *w)
{
    ngx_modelgw_request_turn_t  *turn;

    if (w->blank) {
        return ngx_modelgw_request_invalid(w->rq, "%s[%ui].content is blank",
                                           w->list, w->last);
    }

    if (w->turns->turns.nelts == 0) {
        return ngx_modelgw_request_turns_system_only(w);
    }

    if (w->chat) {
        return NGX_OK;
    }

    turn = w->turns->turns.elts;
    turn = &turn[w->turns->turns.nelts - 1];

    if (turn->role == NGX_MODELGW_TURN_ASSISTANT) {
        w->turns->unsigned_turn = !ngx_modelgw_request_turns_signed(turn);

        return ngx_modelgw_request_turns_prefill(w, turn);
    }

    w->turns->unsigned_turn = ngx_modelgw_request_turns_unsigned(w->turns);

    return NGX_OK;
}


/* there must be a turn: the instructions become the user's */

static ngx_int_t
ngx_modelgw_request_turns_system_only(ngx_modelgw_request_walk_t *w)
{
    ngx_modelgw_request_turn_t  *turn;

    if (w->turns->system.nelts == 0) {
        return ngx_modelgw_request_invalid(w->rq, "there is no content in %s",
                                           w->list);
    }

    turn = ngx_modelgw_request_turns_push(w, NGX_MODELGW_TURN_USER);
    if (turn == NULL) {
        return NGX_ERROR;
    }

    turn->blocks = w->turns->system;
    w->turns->system.nelts = 0;

    return NGX_OK;
}


/*
 * The last turn is the assistant's: the answer continues it.  The upstream
 * refuses white space at its end.
 */

static ngx_int_t
ngx_modelgw_request_turns_prefill(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_request_turn_t *turn)
{
    ngx_modelgw_request_block_t  *block;

    if (!w->rq->caps->prefill) {
        return ngx_modelgw_request_unsupported(w->rq,
                             "%s[%ui].role \"assistant\" of the last "
                             "message is not supported by this model",
                             w->list, w->last);
    }

    block = turn->blocks.elts;
    block = &block[turn->blocks.nelts - 1];

    if (block->kind == NGX_MODELGW_BLOCK_TEXT) {
        ngx_modelgw_request_block_trim(&block->value);
    }

    return NGX_OK;
}


/*
 * Whether the last tool loop is unsigned: the loop is the assistant's turns at
 * the end that are followed by results, back to the user's question.  It is one
 * turn to the upstream, which may think at its beginning only, and refuses
 * without thinking what has begun with it.
 */

static ngx_uint_t
ngx_modelgw_request_turns_unsigned(ngx_modelgw_request_turns_t *turns)
{
    ngx_uint_t                    i;
    ngx_modelgw_request_turn_t   *turn;
    ngx_modelgw_request_block_t  *first;

    turn = turns->turns.elts;

    for (i = turns->turns.nelts; i >= 2; i -= 2) {
        first = turn[i - 1].blocks.elts;

        if (first->kind != NGX_MODELGW_BLOCK_TOOL_RESULT) {
            break;
        }
    }

    return i < turns->turns.nelts
           && !ngx_modelgw_request_turns_signed(&turn[i]);
}


/* whether the turn begins with thinking; it is never sent unsigned */

static ngx_uint_t
ngx_modelgw_request_turns_signed(ngx_modelgw_request_turn_t *turn)
{
    ngx_modelgw_request_block_t  *first;

    first = turn->blocks.elts;

    return first->kind == NGX_MODELGW_BLOCK_THINKING
           || first->kind == NGX_MODELGW_BLOCK_REDACTED
           || first->kind == NGX_MODELGW_BLOCK_SEALED;
}


void
ngx_modelgw_request_turns_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_turns_t *turns, ngx_uint_t json_object,
    ngx_modelgw_out_t *out)
{
    ngx_uint_t                   i;
    ngx_modelgw_request_turn_t  *turn;

    if (turns->system.nelts || json_object) {
        ngx_modelgw_out_text(out, ",\"system\":[");
        ngx_modelgw_request_blocks_write(rq, &turns->system, out);

        if (json_object) {
            ngx_modelgw_request_turns_json(turns->system.nelts, out);
        }

        ngx_modelgw_out_text(out, "]");
    }

    ngx_modelgw_out_text(out, ",\"messages\":[");

    turn = turns->turns.elts;

    for (i = 0; i < turns->turns.nelts; i++) {

        if (i) {
            ngx_modelgw_out_text(out, ",");
        }

        if (turn[i].role == NGX_MODELGW_TURN_USER) {
            ngx_modelgw_out_text(out, "{\"role\":\"user\",\"content\":[");

        } else {
            ngx_modelgw_out_text(out, "{\"role\":\"assistant\",\"content\":[");
        }

        ngx_modelgw_request_blocks_write(rq, &turn[i].blocks, out);
        ngx_modelgw_out_text(out, "]}");
    }

    ngx_modelgw_out_text(out, "]");
}


/* the last block of "system" for response_format json_object */

static void
ngx_modelgw_request_turns_json(ngx_uint_t system, ngx_modelgw_out_t *out)
{
    if (system) {
        ngx_modelgw_out_text(out, ",");
    }

    ngx_modelgw_out_text(out, "{\"type\":\"text\",\"text\":\"Respond with a "
                              "single valid JSON object and nothing else.\"}");
}
