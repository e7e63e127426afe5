
/*
 * One chat message as blocks: what each role may hold, and in which order its
 * members become blocks.  An assistant's thinking goes first (the upstream
 * wants it there), then content as it is, then the refusal, then tool calls.
 *
 * Thinking comes back from clients in three forms: "thinking_blocks" as we
 * sent them, parts of content, or reasoning_content with a reasoning_signature.
 * It is given back to the upstream only with its signature; without one it is
 * dropped, because the upstream refuses what it cannot know for its own.
 *
 * A tool message is one block, and its parts are blocks in it.  The upstream
 * refuses cache_control in there, so the last of the parts' goes to the result.
 *
 * Members that are not named here (name, audio, annotations) are ignored.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


static ngx_int_t ngx_modelgw_request_message_content(
    ngx_modelgw_request_walk_t *w, ngx_uint_t accepted, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_message_placeholder(ngx_array_t *blocks,
    ngx_uint_t from);
static ngx_int_t ngx_modelgw_request_message_thinking(
    ngx_modelgw_request_walk_t *w, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_message_refusal(
    ngx_modelgw_request_walk_t *w, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_message_result(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_request_block_t *result);
static void ngx_modelgw_request_message_hoist(
    ngx_modelgw_request_block_t *result);


ngx_int_t
ngx_modelgw_request_message_system(ngx_modelgw_request_walk_t *w,
    ngx_array_t *blocks)
{
    return ngx_modelgw_request_message_content(w, NGX_MODELGW_PART_TEXT,
                                               blocks);
}


ngx_int_t
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


ngx_int_t
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


ngx_int_t
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
        return ngx_modelgw_request_message_result(w, result);
    }

    if (!ngx_modelgw_tape_blank(w->rq->tape, node)) {
        ngx_modelgw_tape_inside(w->rq->tape, node, &result->value);
    }

    return NGX_OK;
}


/* content is a text or parts */

static ngx_int_t
ngx_modelgw_request_message_content(ngx_modelgw_request_walk_t *w,
    ngx_uint_t accepted, ngx_array_t *blocks)
{
    ngx_int_t            rc;
    ngx_modelgw_node_t  *content, *part;

    content = ngx_modelgw_request_member(w->rq, w->message, "content");

    if (ngx_modelgw_request_string(content)) {
        return ngx_modelgw_request_block_text(w, content, blocks);
    }

    if (content == NULL || content->type != NGX_MODELGW_TAPE_ARRAY) {
        return ngx_modelgw_request_invalid(w->rq,
                             "messages[%ui].content is neither a string nor "
                             "an array", w->index);
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


/* a message with a document must have a text, which stands in front then */

static ngx_int_t
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


/* thinking that does not stand in content */

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

    /* the same once more, if there were blocks */

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


/* a result that is not a string: the parts of it */

static ngx_int_t
ngx_modelgw_request_message_result(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_request_block_t *result)
{
    ngx_int_t     rc;
    ngx_array_t  *blocks;

    blocks = ngx_array_create(w->rq->pool, 1,
                              sizeof(ngx_modelgw_request_block_t));
    if (blocks == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_modelgw_request_message_content(w, NGX_MODELGW_PART_TEXT
                                                |NGX_MODELGW_PART_MEDIA,
                                             blocks);
    if (rc != NGX_OK) {
        return rc;
    }

    if (blocks->nelts == 0) {
        return NGX_OK;
    }

    result->content = blocks;
    ngx_modelgw_request_message_hoist(result);

    return ngx_modelgw_request_message_placeholder(blocks, 0);
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
    }
}
