
/*
 * The input of a responses request as turns.
 *
 * Items are smaller than messages: an answer of the model is a row of them,
 * thinking, text, calls.  Those of the assistant in a row are one turn.  For
 * messages those of the user are, too, and instructions go to "system"; for
 * chat each of the others is a turn, in place.
 *
 * Outputs belong to the turn of their calls, however much later they come: a
 * user may have steered the model before a tool had finished.  They are kept
 * with that turn, and follow it at once.  What the assistant says after an
 * output is another turn.
 *
 * Calls are kept in a tree by id.  One without an output, an output without a
 * call, and two of either are refused, as by the API itself.  Chat upstreams
 * may count the calls of each turn from 0: there an id may be that of a call
 * before which has its output.
 *
 * Thinking waits for what it was thought for: an upstream refuses a turn that
 * ends with thinking.
 *
 * Items of tools that the vendor runs are dropped: the text that came of them
 * stays.  A reference to a stored item cannot be followed, as nothing is stored
 * here, and is refused with the way out, as are all unknown items.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_responses_private.h"


#define NGX_MODELGW_RESPONSES_SHOWN  64  /* bytes of an id in a message */


#define NGX_MODELGW_RESPONSES_TEXT                                            \
    (NGX_MODELGW_PART_TEXT|NGX_MODELGW_PART_INPUT_TEXT)

#define NGX_MODELGW_RESPONSES_MEDIA                                           \
    (NGX_MODELGW_RESPONSES_TEXT|NGX_MODELGW_PART_INPUT_MEDIA)


/* a call; sn.str is its id, as it is sent */

typedef struct {
    ngx_str_node_t        sn;
    ngx_uint_t            turn;          /* index of the turn */
    ngx_uint_t            item;          /* and of the item */
    ngx_uint_t            answered;
} ngx_modelgw_responses_call_id_t;


typedef struct {
    ngx_modelgw_request_walk_t   walk;
    ngx_modelgw_request_plan_t  *plan;
    ngx_array_t                  thinking;   /* blocks that wait */
    ngx_modelgw_tape_t          *seal;       /* created for the first one */
    ngx_uint_t                   open;       /* calls without an output */
} ngx_modelgw_responses_items_t;


typedef struct {
    ngx_str_t             type;
    ngx_int_t           (*read)(ngx_modelgw_responses_items_t *t);
} ngx_modelgw_responses_item_t;


typedef struct {
    ngx_str_t             name;
    ngx_uint_t            turn;
    ngx_uint_t            accepted;      /* parts */
} ngx_modelgw_responses_role_t;


static ngx_int_t ngx_modelgw_responses_input_string(
    ngx_modelgw_responses_items_t *t, ngx_modelgw_node_t *text,
    ngx_uint_t role);
static ngx_int_t ngx_modelgw_responses_item(ngx_modelgw_responses_items_t *t);
static ngx_int_t ngx_modelgw_responses_item_untyped(
    ngx_modelgw_responses_items_t *t);
static ngx_array_t *ngx_modelgw_responses_blocks(
    ngx_modelgw_responses_items_t *t, ngx_uint_t role);
static void ngx_modelgw_responses_blocks_end(ngx_modelgw_responses_items_t *t,
    ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_responses_message(
    ngx_modelgw_responses_items_t *t);
static ngx_int_t ngx_modelgw_responses_said(ngx_modelgw_responses_items_t *t,
    ngx_modelgw_responses_role_t *role);
static ngx_int_t ngx_modelgw_responses_think(ngx_modelgw_responses_items_t *t,
    ngx_array_t *blocks, ngx_uint_t at);
static ngx_int_t ngx_modelgw_responses_reasoning(
    ngx_modelgw_responses_items_t *t);
static ngx_int_t ngx_modelgw_responses_call_function(
    ngx_modelgw_responses_items_t *t);
static ngx_int_t ngx_modelgw_responses_call_custom(
    ngx_modelgw_responses_items_t *t);
static ngx_int_t ngx_modelgw_responses_call_search(
    ngx_modelgw_responses_items_t *t);
static ngx_int_t ngx_modelgw_responses_call_block(
    ngx_modelgw_responses_items_t *t, ngx_modelgw_request_block_t **block);
static ngx_int_t ngx_modelgw_responses_call_id(
    ngx_modelgw_responses_items_t *t, ngx_str_t *id);
static ngx_int_t ngx_modelgw_responses_call_open(
    ngx_modelgw_responses_items_t *t, ngx_str_t *id);
static ngx_int_t ngx_modelgw_responses_call_name(
    ngx_modelgw_responses_items_t *t, ngx_modelgw_request_block_t *block);
static ngx_int_t ngx_modelgw_responses_output(
    ngx_modelgw_responses_items_t *t);
static ngx_int_t ngx_modelgw_responses_output_search(
    ngx_modelgw_responses_items_t *t);
static ngx_int_t ngx_modelgw_responses_output_block(
    ngx_modelgw_responses_items_t *t, ngx_modelgw_request_block_t **block);
static ngx_int_t ngx_modelgw_responses_output_call(
    ngx_modelgw_responses_items_t *t, ngx_str_t *id, ngx_uint_t *turn);
static ngx_int_t ngx_modelgw_responses_dropped(
    ngx_modelgw_responses_items_t *t);
static ngx_int_t ngx_modelgw_responses_reference(
    ngx_modelgw_responses_items_t *t);
static ngx_int_t ngx_modelgw_responses_input_end(
    ngx_modelgw_responses_items_t *t);
static ngx_int_t ngx_modelgw_responses_unanswered(
    ngx_modelgw_responses_items_t *t);
static ngx_int_t ngx_modelgw_responses_settle(
    ngx_modelgw_responses_items_t *t);


static ngx_modelgw_responses_item_t  ngx_modelgw_responses_item_types[] = {

    /* a name that begins with another comes before it, since only strings that
       are longer than a name are searched for escapes */

    { ngx_string("message"), ngx_modelgw_responses_message },
    { ngx_string("function_call_output"), ngx_modelgw_responses_output },
    { ngx_string("function_call"), ngx_modelgw_responses_call_function },
    { ngx_string("reasoning"), ngx_modelgw_responses_reasoning },
    { ngx_string("custom_tool_call_output"), ngx_modelgw_responses_output },
    { ngx_string("custom_tool_call"), ngx_modelgw_responses_call_custom },
    { ngx_string("tool_search_call"), ngx_modelgw_responses_call_search },
    { ngx_string("tool_search_output"), ngx_modelgw_responses_output_search },

    /* its tools have been read with the others */

    { ngx_string("additional_tools"), ngx_modelgw_responses_dropped },

    { ngx_string("web_search_call"), ngx_modelgw_responses_dropped },
    { ngx_string("file_search_call"), ngx_modelgw_responses_dropped },
    { ngx_string("image_generation_call"), ngx_modelgw_responses_dropped },
    { ngx_string("code_interpreter_call"), ngx_modelgw_responses_dropped },
    { ngx_string("computer_call"), ngx_modelgw_responses_dropped },
    { ngx_string("computer_call_output"), ngx_modelgw_responses_dropped },
    { ngx_string("mcp_call"), ngx_modelgw_responses_dropped },
    { ngx_string("mcp_list_tools"), ngx_modelgw_responses_dropped },
    { ngx_string("mcp_approval_request"), ngx_modelgw_responses_dropped },
    { ngx_string("mcp_approval_response"), ngx_modelgw_responses_dropped },

    { ngx_string("item_reference"), ngx_modelgw_responses_reference },
    { ngx_string(""), ngx_modelgw_responses_reference },

    { ngx_null_string, NULL }
};


static ngx_modelgw_responses_role_t  ngx_modelgw_responses_roles[] = {

    { ngx_string("user"), NGX_MODELGW_TURN_USER, NGX_MODELGW_RESPONSES_MEDIA },
    { ngx_string("assistant"), NGX_MODELGW_TURN_ASSISTANT,
      NGX_MODELGW_RESPONSES_TEXT|NGX_MODELGW_PART_REFUSAL },
    { ngx_string("developer"), NGX_MODELGW_TURN_SYSTEM,
      NGX_MODELGW_RESPONSES_TEXT },
    { ngx_string("system"), NGX_MODELGW_TURN_SYSTEM,
      NGX_MODELGW_RESPONSES_TEXT },

    { ngx_null_string, 0, 0 }
};


ngx_int_t
ngx_modelgw_responses_input(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value)
{
    ngx_int_t                       rc;
    ngx_modelgw_node_t             *input;
    ngx_modelgw_request_walk_t     *w;
    ngx_modelgw_responses_items_t   t;

    input = ngx_modelgw_request_member(rq, ngx_modelgw_tape_root(rq->tape),
                                       "input");

    if (input == NULL
        || (input->type != NGX_MODELGW_TAPE_STRING
            && input->type != NGX_MODELGW_TAPE_ARRAY))
    {
        return ngx_modelgw_request_invalid(rq,
                                  "input is neither a string nor an array");
    }

    ngx_memzero(&t, sizeof(ngx_modelgw_responses_items_t));

    w = &t.walk;
    t.plan = plan;

    if (ngx_modelgw_request_turns_init(w, rq, &plan->turns, input->count + 2)
        != NGX_OK
        || ngx_array_init(&t.thinking, rq->pool, 1,
                          sizeof(ngx_modelgw_request_block_t)) != NGX_OK)
    {
        return NGX_ERROR;
    }

    w->list = "input";
    w->content = "content";
    w->chat = (plan->protocol == NGX_MODELGW_CHAT);
    w->breakpoints = !w->chat;

    if (plan->fields.instructions) {
        rc = ngx_modelgw_responses_input_string(&t, plan->fields.instructions,
                                                NGX_MODELGW_TURN_SYSTEM);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (input->type == NGX_MODELGW_TAPE_STRING) {
        rc = ngx_modelgw_responses_input_string(&t, input,
                                                NGX_MODELGW_TURN_USER);

        return (rc == NGX_OK) ? ngx_modelgw_responses_input_end(&t) : rc;
    }

    for (w->message = ngx_modelgw_tape_first(rq->tape, input);
         w->message;
         w->message = ngx_modelgw_tape_next(rq->tape, input, w->message))
    {
        rc = ngx_modelgw_responses_item(&t);
        if (rc != NGX_OK) {
            return rc;
        }

        w->index++;
    }

    return ngx_modelgw_responses_input_end(&t);
}


static ngx_int_t
ngx_modelgw_responses_input_string(ngx_modelgw_responses_items_t *t,
    ngx_modelgw_node_t *text, ngx_uint_t role)
{
    ngx_array_t  *blocks;

    if (role == NGX_MODELGW_TURN_USER
        && ngx_modelgw_tape_blank(t->walk.rq->tape, text))
    {
        return ngx_modelgw_request_invalid(t->walk.rq, "input is blank");
    }

    blocks = ngx_modelgw_responses_blocks(t, role);

    if (blocks == NULL
        || ngx_modelgw_request_block_text(&t->walk, text, blocks) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_responses_blocks_end(t, blocks);

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_responses_item(ngx_modelgw_responses_items_t *t)
{
    ngx_str_t                      text;
    ngx_modelgw_node_t            *type;
    ngx_modelgw_request_walk_t    *w;
    ngx_modelgw_responses_item_t  *item;

    w = &t->walk;

    if (w->message->type != NGX_MODELGW_TAPE_OBJECT) {
        return ngx_modelgw_request_invalid(w->rq, "input[%ui] is not an object",
                                           w->index);
    }

    type = ngx_modelgw_request_member(w->rq, w->message, "type");

    if (ngx_modelgw_request_absent(type)) {
        return ngx_modelgw_responses_item_untyped(t);
    }

    if (type->type != NGX_MODELGW_TAPE_STRING) {
        return ngx_modelgw_request_invalid(w->rq,
                                           "input[%ui].type must be a string",
                                           w->index);
    }

    for (item = ngx_modelgw_responses_item_types; item->type.data; item++) {

        if (ngx_modelgw_request_named(w->rq, type, &item->type)) {
            return item->read(t);
        }
    }

    if (ngx_modelgw_request_quote(w->rq, type, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_modelgw_request_unsupported(w->rq,
                             "input[%ui].type \"%V\" is not supported",
                             w->index, &text);
}


/* a message if it has a role, else a reference */

static ngx_int_t
ngx_modelgw_responses_item_untyped(ngx_modelgw_responses_items_t *t)
{
    ngx_modelgw_node_t  *role;

    role = ngx_modelgw_request_member(t->walk.rq, t->walk.message, "role");

    if (ngx_modelgw_request_absent(role)
        || ngx_modelgw_tape_is(t->walk.rq->tape, role, ""))
    {
        return ngx_modelgw_responses_reference(t);
    }

    return ngx_modelgw_responses_message(t);
}


/* where the blocks of an item go; NULL: no memory */

static ngx_array_t *
ngx_modelgw_responses_blocks(ngx_modelgw_responses_items_t *t, ngx_uint_t role)
{
    ngx_modelgw_request_turn_t  *turn;
    ngx_modelgw_request_walk_t  *w;

    w = &t->walk;

    if (role == NGX_MODELGW_TURN_SYSTEM && !w->chat) {
        return &w->turns->system;
    }

    if (role != NGX_MODELGW_TURN_ASSISTANT && w->chat) {
        turn = ngx_modelgw_request_turns_push(w, role);

    } else {
        turn = ngx_modelgw_request_turns_last(w, role);

        if (turn && turn->results) {
            turn = ngx_modelgw_request_turns_push(w, role);
        }
    }

    return turn ? &turn->blocks : NULL;
}


/* removes the turn that an item has begun, if it stays empty */

static void
ngx_modelgw_responses_blocks_end(ngx_modelgw_responses_items_t *t,
    ngx_array_t *blocks)
{
    if (blocks != &t->walk.turns->system && blocks->nelts == 0) {
        t->walk.turns->turns.nelts--;
    }
}


static ngx_int_t
ngx_modelgw_responses_message(ngx_modelgw_responses_items_t *t)
{
    ngx_modelgw_node_t            *name;
    ngx_modelgw_request_walk_t    *w;
    ngx_modelgw_responses_role_t  *role;

    w = &t->walk;
    name = ngx_modelgw_request_member(w->rq, w->message, "role");

    for (role = ngx_modelgw_responses_roles; role->name.data; role++) {

        if (ngx_modelgw_request_string(name)
            && ngx_modelgw_request_named(w->rq, name, &role->name))
        {
            return ngx_modelgw_responses_said(t, role);
        }
    }

    return ngx_modelgw_request_invalid(w->rq,
                             "input[%ui].role must be one of \"system\", "
                             "\"developer\", \"user\", \"assistant\"",
                             w->index);
}


static ngx_int_t
ngx_modelgw_responses_said(ngx_modelgw_responses_items_t *t,
    ngx_modelgw_responses_role_t *role)
{
    ngx_int_t                    rc;
    ngx_uint_t                   n;
    ngx_array_t                 *blocks;
    ngx_modelgw_request_walk_t  *w;

    w = &t->walk;

    blocks = ngx_modelgw_responses_blocks(t, role->turn);
    if (blocks == NULL) {
        return NGX_ERROR;
    }

    n = blocks->nelts;

    rc = ngx_modelgw_request_message_content(w, role->accepted, blocks);

    if (rc == NGX_OK && role->turn == NGX_MODELGW_TURN_USER && !w->chat) {
        rc = ngx_modelgw_request_message_placeholder(blocks, n);
    }

    if (rc != NGX_OK) {
        return rc;
    }

    if (role->turn != NGX_MODELGW_TURN_SYSTEM) {
        w->last = w->index;
        w->blank = (blocks->nelts == n && role->turn == NGX_MODELGW_TURN_USER);

        if (blocks->nelts > n) {

            if (role->turn == NGX_MODELGW_TURN_ASSISTANT
                && ngx_modelgw_responses_think(t, blocks, n) != NGX_OK)
            {
                return NGX_ERROR;
            }

            t->thinking.nelts = 0;
        }
    }

    ngx_modelgw_responses_blocks_end(t, blocks);

    return NGX_OK;
}


/* inserts the thinking that waits; it does so until something follows it */

static ngx_int_t
ngx_modelgw_responses_think(ngx_modelgw_responses_items_t *t,
    ngx_array_t *blocks, ngx_uint_t at)
{
    ngx_uint_t                    n, after;
    ngx_modelgw_request_block_t  *block;

    n = t->thinking.nelts;
    after = blocks->nelts - at;

    if (n == 0) {
        return NGX_OK;
    }

    if (ngx_array_push_n(blocks, n) == NULL) {
        return NGX_ERROR;
    }

    block = blocks->elts;
    block += at;

    ngx_memmove(block + n, block, after * sizeof(ngx_modelgw_request_block_t));
    ngx_memcpy(block, t->thinking.elts,
               n * sizeof(ngx_modelgw_request_block_t));

    t->thinking.nelts = 0;

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_responses_reasoning(ngx_modelgw_responses_items_t *t)
{
    ngx_int_t                     rc;
    ngx_str_t                     text, doc;
    ngx_modelgw_node_t           *node;
    ngx_modelgw_request_walk_t   *w;
    ngx_modelgw_request_block_t  *block;

    w = &t->walk;
    node = ngx_modelgw_request_member(w->rq, w->message, "encrypted_content");

    if (w->chat || !ngx_modelgw_request_string(node)) {
        return NGX_OK;
    }

    if (ngx_modelgw_tape_text(w->rq->tape, w->rq->pool, node, &text)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_modelgw_responses_unseal(w, &t->seal, &text, &doc);

    if (rc == NGX_DECLINED) {
        return NGX_OK;
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    block = ngx_modelgw_request_block(&t->thinking, NGX_MODELGW_BLOCK_SEALED);
    if (block == NULL) {
        return NGX_ERROR;
    }

    block->value = doc;

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_responses_call_function(ngx_modelgw_responses_items_t *t)
{
    ngx_int_t                     rc;
    ngx_str_t                     fault;
    ngx_modelgw_node_t           *arguments;
    ngx_modelgw_request_walk_t   *w;
    ngx_modelgw_request_block_t  *block;
    u_char                        text[NGX_MODELGW_SCAN_FAULT_LEN];

    w = &t->walk;

    rc = ngx_modelgw_responses_call_block(t, &block);

    if (rc == NGX_OK) {
        rc = ngx_modelgw_responses_call_name(t, block);
    }

    if (rc != NGX_OK) {
        return rc;
    }

    arguments = ngx_modelgw_request_member(w->rq, w->message, "arguments");

    /* a string in chat, too, where faults are for the model to read */

    if (w->chat && ngx_modelgw_request_string(arguments)
        && !ngx_modelgw_tape_blank(w->rq->tape, arguments))
    {
        block->source = NGX_MODELGW_CALL_STRING;
        ngx_modelgw_tape_inside(w->rq->tape, arguments, &block->value);

        return NGX_OK;
    }

    fault.data = text;

    rc = ngx_modelgw_request_call_arguments(w, arguments, &block->value,
                                            &fault);

    if (rc == NGX_DECLINED && fault.len == 0) {
        return ngx_modelgw_request_invalid(w->rq,
                             "input[%ui].arguments is not a string", w->index);
    }

    if (rc == NGX_DECLINED) {
        return ngx_modelgw_request_invalid(w->rq,
                             "input[%ui].arguments is not valid JSON: %V",
                             w->index, &fault);
    }

    return rc;
}


static ngx_int_t
ngx_modelgw_responses_call_custom(ngx_modelgw_responses_items_t *t)
{
    ngx_int_t                     rc;
    ngx_modelgw_node_t           *input;
    ngx_modelgw_request_walk_t   *w;
    ngx_modelgw_request_block_t  *block;

    w = &t->walk;

    rc = ngx_modelgw_responses_call_block(t, &block);

    if (rc == NGX_OK) {
        rc = ngx_modelgw_responses_call_name(t, block);
    }

    if (rc != NGX_OK) {
        return rc;
    }

    input = ngx_modelgw_request_member(w->rq, w->message, "input");

    if (!ngx_modelgw_request_string(input)) {
        return ngx_modelgw_request_invalid(w->rq,
                                           "input[%ui].input is not a string",
                                           w->index);
    }

    block->source = NGX_MODELGW_CALL_INPUT;
    ngx_modelgw_tape_inside(w->rq->tape, input, &block->value);

    return NGX_OK;
}


/* one without an id was the vendor's to run */

static ngx_int_t
ngx_modelgw_responses_call_search(ngx_modelgw_responses_items_t *t)
{
    ngx_int_t                     rc;
    ngx_modelgw_node_t           *node;
    ngx_modelgw_request_walk_t   *w;
    ngx_modelgw_request_block_t  *block;

    w = &t->walk;
    node = ngx_modelgw_request_member(w->rq, w->message, "call_id");

    if (ngx_modelgw_request_absent(node)) {
        return NGX_OK;
    }

    rc = ngx_modelgw_responses_call_block(t, &block);

    if (rc != NGX_OK) {
        return rc;
    }

    ngx_str_set(&block->name, "tool_search");
    ngx_str_set(&block->value, "{}");

    node = ngx_modelgw_request_member(w->rq, w->message, "arguments");

    if (node && node->type == NGX_MODELGW_TAPE_OBJECT) {
        ngx_modelgw_tape_raw(w->rq->tape, node, &block->value);

    } else if (!ngx_modelgw_request_absent(node)) {
        return ngx_modelgw_request_invalid(w->rq,
                             "input[%ui].arguments is not an object",
                             w->index);
    }

    return NGX_OK;
}


/* appends the block of a call, with its id */

static ngx_int_t
ngx_modelgw_responses_call_block(ngx_modelgw_responses_items_t *t,
    ngx_modelgw_request_block_t **block)
{
    ngx_int_t                    rc;
    ngx_array_t                 *blocks;
    ngx_modelgw_request_walk_t  *w;

    w = &t->walk;

    blocks = ngx_modelgw_responses_blocks(t, NGX_MODELGW_TURN_ASSISTANT);

    if (blocks == NULL
        || ngx_modelgw_responses_think(t, blocks, blocks->nelts) != NGX_OK)
    {
        return NGX_ERROR;
    }

    *block = ngx_modelgw_request_block(blocks, NGX_MODELGW_BLOCK_TOOL_USE);
    if (*block == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_modelgw_responses_call_id(t, &(*block)->id);
    if (rc != NGX_OK) {
        return rc;
    }

    w->last = w->index;
    w->blank = 0;

    return ngx_modelgw_responses_call_open(t, &(*block)->id);
}


/* the id of a call, or of the call of an output */

static ngx_int_t
ngx_modelgw_responses_call_id(ngx_modelgw_responses_items_t *t, ngx_str_t *id)
{
    ngx_int_t                    rc;
    ngx_modelgw_node_t          *node;
    ngx_modelgw_request_walk_t  *w;

    w = &t->walk;
    node = ngx_modelgw_request_member(w->rq, w->message, "call_id");

    rc = ngx_modelgw_request_call_id(w, node, id);

    if (rc == NGX_DECLINED) {
        return ngx_modelgw_request_invalid(w->rq,
                             "input[%ui].call_id is not a non-empty string",
                             w->index);
    }

    return rc;
}


static ngx_int_t
ngx_modelgw_responses_call_open(ngx_modelgw_responses_items_t *t, ngx_str_t *id)
{
    uint32_t                          hash;
    ngx_modelgw_request_walk_t       *w;
    ngx_modelgw_responses_call_id_t  *call;

    w = &t->walk;
    hash = ngx_murmur_hash2(id->data, id->len);

    call = (ngx_modelgw_responses_call_id_t *)
               ngx_str_rbtree_lookup(&w->open, id, hash);

    if (call && (!call->answered || !w->chat)) {
        return ngx_modelgw_request_invalid(w->rq,
                             "input[%ui].call_id \"%*s\" is the same as that "
                             "of another call", w->index,
                             ngx_min(id->len, NGX_MODELGW_RESPONSES_SHOWN),
                             id->data);
    }

    if (call == NULL) {
        call = ngx_palloc(w->rq->pool,
                          sizeof(ngx_modelgw_responses_call_id_t));
        if (call == NULL) {
            return NGX_ERROR;
        }

        call->sn.node.key = hash;
        call->sn.str = *id;

        ngx_rbtree_insert(&w->open, &call->sn.node);
    }

    call->turn = w->turns->turns.nelts - 1;
    call->item = w->index;
    call->answered = 0;

    t->open++;

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_responses_call_name(ngx_modelgw_responses_items_t *t,
    ngx_modelgw_request_block_t *block)
{
    ngx_int_t  rc;

    rc = ngx_modelgw_responses_name(t->walk.rq, t->plan, t->walk.message,
                                    &block->name);

    if (rc == NGX_DECLINED) {
        return ngx_modelgw_request_invalid(t->walk.rq,
                             "input[%ui].name is not a string of 1 to 256 "
                             "bytes, or its namespace not one of 0 to 256",
                             t->walk.index);
    }

    return rc;
}


static ngx_int_t
ngx_modelgw_responses_output(ngx_modelgw_responses_items_t *t)
{
    ngx_int_t                     rc;
    ngx_modelgw_node_t           *node;
    ngx_modelgw_request_walk_t   *w;
    ngx_modelgw_request_block_t  *block;

    w = &t->walk;

    rc = ngx_modelgw_responses_output_block(t, &block);
    if (rc != NGX_OK) {
        return rc;
    }

    node = ngx_modelgw_request_member(w->rq, w->message, "output");

    if (ngx_modelgw_request_string(node)) {

        if (!ngx_modelgw_tape_blank(w->rq->tape, node)) {
            ngx_modelgw_tape_inside(w->rq->tape, node, &block->value);
        }

        return NGX_OK;
    }

    w->content = "output";
    rc = ngx_modelgw_request_message_result(w, NGX_MODELGW_RESPONSES_MEDIA,
                                            block);
    w->content = "content";

    return rc;
}


static ngx_int_t
ngx_modelgw_responses_output_search(ngx_modelgw_responses_items_t *t)
{
    ngx_int_t                     rc;
    ngx_modelgw_node_t           *node;
    ngx_modelgw_request_walk_t   *w;
    ngx_modelgw_request_block_t  *block;

    w = &t->walk;
    node = ngx_modelgw_request_member(w->rq, w->message, "call_id");

    if (ngx_modelgw_request_absent(node)) {
        return NGX_OK;
    }

    rc = ngx_modelgw_responses_output_block(t, &block);
    if (rc != NGX_OK) {
        return rc;
    }

    return ngx_modelgw_responses_found(w->rq, t->plan, w->message,
                                       &block->value);
}


/* appends the block of an output to the results of its call's turn */

static ngx_int_t
ngx_modelgw_responses_output_block(ngx_modelgw_responses_items_t *t,
    ngx_modelgw_request_block_t **block)
{
    ngx_int_t                    rc;
    ngx_str_t                    id;
    ngx_uint_t                   i;
    ngx_modelgw_request_turn_t  *turn;
    ngx_modelgw_request_walk_t  *w;

    i = 0;
    w = &t->walk;

    rc = ngx_modelgw_responses_output_call(t, &id, &i);
    if (rc != NGX_OK) {
        return rc;
    }

    turn = w->turns->turns.elts;
    turn = &turn[i];

    if (turn->results == NULL) {
        turn->results = ngx_array_create(w->rq->pool, 1,
                                         sizeof(ngx_modelgw_request_block_t));
        if (turn->results == NULL) {
            return NGX_ERROR;
        }

        /* the last turn ends here, and must not end with thinking */

        if (i == w->turns->turns.nelts - 1) {
            t->thinking.nelts = 0;
        }
    }

    *block = ngx_modelgw_request_block(turn->results,
                                       NGX_MODELGW_BLOCK_TOOL_RESULT);
    if (*block == NULL) {
        return NGX_ERROR;
    }

    (*block)->id = id;

    w->last = w->index;
    w->blank = 0;

    return NGX_OK;
}


/* finds the call of an output, which is answered then */

static ngx_int_t
ngx_modelgw_responses_output_call(ngx_modelgw_responses_items_t *t,
    ngx_str_t *id, ngx_uint_t *turn)
{
    ngx_int_t                         rc;
    ngx_modelgw_request_walk_t       *w;
    ngx_modelgw_responses_call_id_t  *call;

    w = &t->walk;

    rc = ngx_modelgw_responses_call_id(t, id);
    if (rc != NGX_OK) {
        return rc;
    }

    call = (ngx_modelgw_responses_call_id_t *)
               ngx_str_rbtree_lookup(&w->open, id,
                                     ngx_murmur_hash2(id->data, id->len));

    if (call == NULL || call->answered) {
        return ngx_modelgw_request_invalid(w->rq,
                             "input[%ui].call_id \"%*s\" is not the id of an "
                             "earlier call without an output", w->index,
                             ngx_min(id->len, NGX_MODELGW_RESPONSES_SHOWN),
                             id->data);
    }

    call->answered = 1;
    t->open--;

    *turn = call->turn;

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_responses_dropped(ngx_modelgw_responses_items_t *t)
{
    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_responses_reference(ngx_modelgw_responses_items_t *t)
{
    return ngx_modelgw_request_unsupported(t->walk.rq,
                             "input[%ui] is a reference to a stored item, and "
                             "nothing is stored here: set \"store\" to false "
                             "and send the whole input", t->walk.index);
}


static ngx_int_t
ngx_modelgw_responses_input_end(ngx_modelgw_responses_items_t *t)
{
    if (t->open) {
        return ngx_modelgw_responses_unanswered(t);
    }

    if (!t->walk.chat && ngx_modelgw_responses_settle(t) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_modelgw_request_turns_end(&t->walk);
}


/* names the first call without an output */

static ngx_int_t
ngx_modelgw_responses_unanswered(ngx_modelgw_responses_items_t *t)
{
    ngx_str_t                        *id;
    ngx_rbtree_node_t                *node;
    ngx_modelgw_responses_call_id_t  *call, *first;

    first = NULL;

    for (node = ngx_rbtree_min(t->walk.open.root, &t->walk.sentinel);
         node;
         node = ngx_rbtree_next(&t->walk.open, node))
    {
        call = (ngx_modelgw_responses_call_id_t *) node;

        if (!call->answered && (first == NULL || call->item < first->item)) {
            first = call;
        }
    }

    id = &first->sn.str;

    return ngx_modelgw_request_invalid(t->walk.rq,
                             "input[%ui].call_id \"%*s\" has no output after "
                             "it", first->item,
                             ngx_min(id->len, NGX_MODELGW_RESPONSES_SHOWN),
                             id->data);
}


/* results become the first blocks of the user's turn after their calls */

static ngx_int_t
ngx_modelgw_responses_settle(ngx_modelgw_responses_items_t *t)
{
    ngx_uint_t                    i;
    ngx_array_t                   settled, *turns;
    ngx_modelgw_request_turn_t   *turn, *new;
    ngx_modelgw_request_block_t  *blocks;

    turns = &t->walk.turns->turns;
    turn = turns->elts;

    if (ngx_array_init(&settled, t->walk.rq->pool, turns->nelts + 1,
                       sizeof(ngx_modelgw_request_turn_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < turns->nelts; i++) {

        new = ngx_array_push(&settled);
        if (new == NULL) {
            return NGX_ERROR;
        }

        *new = turn[i];

        if (turn[i].results == NULL) {
            continue;
        }

        new = ngx_array_push(&settled);
        if (new == NULL) {
            return NGX_ERROR;
        }

        new->role = NGX_MODELGW_TURN_USER;
        new->blocks = *turn[i].results;
        new->results = NULL;

        if (i + 1 == turns->nelts || turn[i + 1].role != NGX_MODELGW_TURN_USER)
        {
            continue;
        }

        i++;

        blocks = ngx_array_push_n(&new->blocks, turn[i].blocks.nelts);
        if (blocks == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(blocks, turn[i].blocks.elts,
                   turn[i].blocks.nelts * sizeof(ngx_modelgw_request_block_t));
    }

    *turns = settled;

    return NGX_OK;
}
