
/*
 * The messages of a chat request as the turns of a messages request.  Chat has
 * a list of messages of five roles, in which neighbours may be of one role and
 * may say nothing; a messages upstream takes turns of two roles that alternate,
 * each a list of blocks that are not blank, and "system" apart.  So each
 * message is read into blocks at the end of the last turn of its role, or of a
 * new one if the last turn is the other role's; a turn that stays empty is
 * taken back.
 *
 * What chat allows and messages forbids is set right here: empty texts,
 * neighbours, instructions in the middle, blanks at the end.  What chat forbids
 * itself (calls without results, results without calls) is refused: whatever
 * would be made up for it, the model would take for true.
 *
 * That results of calls stand first in their turn, as they must, needs no
 * sorting: only instructions may come between calls and their results.
 *
 * Rejected: instructions in the middle as text of a user: it would be the
 * user's word then, and he could say the same.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


enum {
    ngx_modelgw_request_turns_system = 0,
    ngx_modelgw_request_turns_user,
    ngx_modelgw_request_turns_assistant
};


typedef struct {
    const char           *name;
    ngx_uint_t            turn;          /* where its blocks go */
    ngx_uint_t            ends_calls;    /* no result may come behind it */
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
    ngx_modelgw_request_walk_t *w, ngx_uint_t turn);
static ngx_modelgw_request_turn_t *ngx_modelgw_request_turns_push(
    ngx_modelgw_request_walk_t *w, ngx_uint_t role);
static ngx_int_t ngx_modelgw_request_turns_end(ngx_modelgw_request_walk_t *w);
static ngx_int_t ngx_modelgw_request_turns_system_only(
    ngx_modelgw_request_walk_t *w);
static ngx_int_t ngx_modelgw_request_turns_prefill(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_request_turn_t *turn);
static ngx_uint_t ngx_modelgw_request_turns_signed(
    ngx_modelgw_request_turn_t *turn);
static ngx_uint_t ngx_modelgw_request_turns_unsigned(
    ngx_modelgw_request_turns_t *turns);
static void ngx_modelgw_request_turns_json(ngx_uint_t system,
    ngx_modelgw_out_t *out);


static ngx_modelgw_request_turns_role_t  ngx_modelgw_request_turns_roles[] = {

    { "system", ngx_modelgw_request_turns_system, 0,
      ngx_modelgw_request_message_system },

    { "developer", ngx_modelgw_request_turns_system, 0,
      ngx_modelgw_request_message_system },

    { "user", ngx_modelgw_request_turns_user, 1,
      ngx_modelgw_request_message_user },

    { "assistant", ngx_modelgw_request_turns_assistant, 1,
      ngx_modelgw_request_message_assistant },

    { "tool", ngx_modelgw_request_turns_user, 0,
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

    w.rq = rq;
    w.turns = turns;
    ngx_modelgw_request_calls_init(&w);

    if (ngx_array_init(&turns->system, rq->pool, 2,
                       sizeof(ngx_modelgw_request_block_t)) != NGX_OK
        || ngx_array_init(&turns->turns, rq->pool, messages->count,
                          sizeof(ngx_modelgw_request_turn_t)) != NGX_OK)
    {
        return NGX_ERROR;
    }

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

    return ngx_modelgw_request_turns_end(&w);
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

    if (role->turn != ngx_modelgw_request_turns_system) {
        w->last = w->index;
        w->blank = (blocks->nelts == n
                    && role->turn == ngx_modelgw_request_turns_user);

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
                             "messages[%ui].role is none of \"system\", "
                             "\"developer\", \"user\", \"assistant\", "
                             "\"tool\"", w->index);
}


/* where the blocks of a message go; NULL: no memory */

static ngx_array_t *
ngx_modelgw_request_turns_blocks(ngx_modelgw_request_walk_t *w, ngx_uint_t role)
{
    ngx_array_t                 *turns;
    ngx_modelgw_request_turn_t  *turn;

    if (role == ngx_modelgw_request_turns_system) {
        return &w->turns->system;
    }

    turns = &w->turns->turns;

    if (turns->nelts) {
        turn = turns->elts;
        turn = &turn[turns->nelts - 1];

        if (turn->role == role) {
            return &turn->blocks;
        }
    }

    turn = ngx_modelgw_request_turns_push(w, role);
    if (turn == NULL) {
        return NULL;
    }

    return &turn->blocks;
}


static ngx_modelgw_request_turn_t *
ngx_modelgw_request_turns_push(ngx_modelgw_request_walk_t *w, ngx_uint_t role)
{
    ngx_modelgw_request_turn_t  *turn;

    turn = ngx_array_push(&w->turns->turns);
    if (turn == NULL) {
        return NULL;
    }

    turn->role = role;

    if (ngx_array_init(&turn->blocks, w->rq->pool, 1,
                       sizeof(ngx_modelgw_request_block_t)) != NGX_OK)
    {
        return NULL;
    }

    return turn;
}


/* what can be said only when all messages are read */

static ngx_int_t
ngx_modelgw_request_turns_end(ngx_modelgw_request_walk_t *w)
{
    ngx_int_t                    rc;
    ngx_modelgw_request_turn_t  *turn;

    rc = ngx_modelgw_request_calls_answered(w);
    if (rc != NGX_OK) {
        return rc;
    }

    if (w->blank) {
        return ngx_modelgw_request_invalid(w->rq,
                                           "messages[%ui].content is blank",
                                           w->last);
    }

    if (w->turns->turns.nelts == 0) {
        return ngx_modelgw_request_turns_system_only(w);
    }

    turn = w->turns->turns.elts;
    turn = &turn[w->turns->turns.nelts - 1];

    if (turn->role == ngx_modelgw_request_turns_assistant) {
        w->turns->unsigned_turn = !ngx_modelgw_request_turns_signed(turn);

        return ngx_modelgw_request_turns_prefill(w, turn);
    }

    w->turns->unsigned_turn = ngx_modelgw_request_turns_unsigned(w->turns);

    return NGX_OK;
}


/* there must be a turn, so the instructions are what the user says */

static ngx_int_t
ngx_modelgw_request_turns_system_only(ngx_modelgw_request_walk_t *w)
{
    ngx_modelgw_request_turn_t  *turn;

    if (w->turns->system.nelts == 0) {
        return ngx_modelgw_request_invalid(w->rq,
                                           "messages have no content");
    }

    turn = ngx_modelgw_request_turns_push(w, ngx_modelgw_request_turns_user);
    if (turn == NULL) {
        return NGX_ERROR;
    }

    turn->blocks = w->turns->system;
    w->turns->system.nelts = 0;

    return NGX_OK;
}


/*
 * The assistant's turn is the last one: the answer goes on from there.  The
 * upstream refuses white space at its end.
 */

static ngx_int_t
ngx_modelgw_request_turns_prefill(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_request_turn_t *turn)
{
    ngx_modelgw_request_block_t  *block;

    if (!w->rq->caps->prefill) {
        return ngx_modelgw_request_unsupported(w->rq,
                             "messages[%ui].role \"assistant\" of the last "
                             "message is not supported by this model", w->last);
    }

    block = turn->blocks.elts;
    block = &block[turn->blocks.nelts - 1];

    if (block->kind == NGX_MODELGW_BLOCK_TEXT) {
        ngx_modelgw_request_block_trim(&block->value);
    }

    return NGX_OK;
}


/*
 * The last tool loop is the assistant's turns at the end that have results
 * behind them, and nothing but results before them back to the question.
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

        if (!ngx_modelgw_request_turns_signed(&turn[i - 2])) {
            return 1;
        }
    }

    return 0;
}


/* whether the turn begins with thinking, which is only ever sent signed */

static ngx_uint_t
ngx_modelgw_request_turns_signed(ngx_modelgw_request_turn_t *turn)
{
    ngx_modelgw_request_block_t  *first;

    first = turn->blocks.elts;

    return first->kind == NGX_MODELGW_BLOCK_THINKING
           || first->kind == NGX_MODELGW_BLOCK_REDACTED;
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

        if (turn[i].role == ngx_modelgw_request_turns_user) {
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
