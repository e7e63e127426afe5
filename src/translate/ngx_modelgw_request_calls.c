
/*
 * Tool calls in the messages: their blocks, their ids, and which of them have
 * no result yet.  The messages themselves, results included, are read in
 * request_turns.c.
 *
 * Each call must have exactly one result, after the message that made it and
 * before a user or an assistant speaks: the chat API and the upstream both
 * require it.  Calls without a result are kept in a tree by id, as there may be
 * tens of thousands; a result removes its call, so a second result finds none.
 * Ids are made fit for the upstream (letters, digits, '_', '-') on both sides
 * and compared after that: two calls that would get the same id are refused.
 *
 * Arguments are JSON in a string.  They are unescaped once, checked to be one
 * object, and copied byte for byte: big numbers, the order of members and white
 * space are preserved.
 *
 * Rejected: mending arguments that are not JSON (wrapping them in a string,
 * {}).  The model would read a call that it never made.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


#define NGX_MODELGW_REQUEST_CALL_SHOWN  64   /* bytes of an id in a message */


static ngx_int_t ngx_modelgw_request_call(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *call, ngx_uint_t i, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_call_name(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *name, ngx_uint_t i, ngx_str_t *text);
static ngx_int_t ngx_modelgw_request_call_input(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *arguments, ngx_uint_t i, ngx_str_t *input);
static ngx_int_t ngx_modelgw_request_call_open(ngx_modelgw_request_walk_t *w,
    ngx_str_t *id, ngx_uint_t i);
static ngx_uint_t ngx_modelgw_request_call_id_kept(ngx_str_t *id);


ngx_int_t
ngx_modelgw_request_calls(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *calls, ngx_array_t *blocks)
{
    ngx_int_t            rc;
    ngx_uint_t           i;
    ngx_modelgw_node_t  *call;

    if (calls->type != NGX_MODELGW_TAPE_ARRAY) {
        return ngx_modelgw_request_invalid(w->rq,
                                    "messages[%ui].tool_calls is not an array",
                                    w->index);
    }

    w->caller = w->index;
    i = 0;

    for (call = ngx_modelgw_tape_first(w->rq->tape, calls);
         call;
         call = ngx_modelgw_tape_next(w->rq->tape, calls, call))
    {
        rc = ngx_modelgw_request_call(w, call, i, blocks);
        if (rc != NGX_OK) {
            return rc;
        }

        i++;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_call(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *call, ngx_uint_t i, ngx_array_t *blocks)
{
    ngx_int_t                     rc;
    ngx_modelgw_node_t           *node, *function;
    ngx_modelgw_request_block_t  *block;

    node = ngx_modelgw_request_member(w->rq, call, "type");

    if (!ngx_modelgw_request_absent(node)
        && !ngx_modelgw_tape_is(w->rq->tape, node, "function"))
    {
        return ngx_modelgw_request_unsupported(w->rq,
                             "messages[%ui].tool_calls[%ui].type other than "
                             "\"function\" is not supported",
                             w->index, i);
    }

    function = ngx_modelgw_request_member(w->rq, call, "function");

    if (function == NULL || function->type != NGX_MODELGW_TAPE_OBJECT) {
        return ngx_modelgw_request_invalid(w->rq,
                             "messages[%ui].tool_calls[%ui].function is not "
                             "an object", w->index, i);
    }

    block = ngx_modelgw_request_block(blocks, NGX_MODELGW_BLOCK_TOOL_USE);
    if (block == NULL) {
        return NGX_ERROR;
    }

    node = ngx_modelgw_request_member(w->rq, call, "id");

    rc = ngx_modelgw_request_call_id(w, node, &block->id);

    if (rc == NGX_DECLINED) {
        return ngx_modelgw_request_invalid(w->rq,
                             "messages[%ui].tool_calls[%ui].id is not a "
                             "non-empty string", w->index, i);
    }

    if (rc == NGX_OK) {
        rc = ngx_modelgw_request_call_open(w, &block->id, i);
    }

    if (rc == NGX_OK) {
        node = ngx_modelgw_request_member(w->rq, function, "name");
        rc = ngx_modelgw_request_call_name(w, node, i, &block->name);
    }

    if (rc == NGX_OK) {
        node = ngx_modelgw_request_member(w->rq, function, "arguments");
        rc = ngx_modelgw_request_call_input(w, node, i, &block->value);
    }

    if (rc != NGX_OK) {
        return rc;
    }

    ngx_modelgw_request_block_cache(w, call, block);

    if (block->cache_control == NULL) {
        ngx_modelgw_request_block_cache(w, function, block);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_call_name(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *name, ngx_uint_t i, ngx_str_t *text)
{
    if (ngx_modelgw_request_string(name)) {

        if (ngx_modelgw_tape_text(w->rq->tape, w->rq->pool, name, text)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (ngx_modelgw_request_tool_name(text)) {
            return NGX_OK;
        }
    }

    return ngx_modelgw_request_invalid(w->rq,
                             "messages[%ui].tool_calls[%ui].function.name is "
                             "not a string of 1 to 128 letters, digits, "
                             "\"_\" and \"-\"", w->index, i);
}


static ngx_int_t
ngx_modelgw_request_call_input(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *arguments, ngx_uint_t i, ngx_str_t *input)
{
    ngx_int_t  rc;
    ngx_str_t  fault;
    u_char     text[NGX_MODELGW_SCAN_FAULT_LEN];

    fault.data = text;

    rc = ngx_modelgw_request_call_arguments(w, arguments, input, &fault);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (fault.len == 0) {
        return ngx_modelgw_request_invalid(w->rq,
                             "messages[%ui].tool_calls[%ui].function.arguments "
                             "is not a string", w->index, i);
    }

    return ngx_modelgw_request_invalid(w->rq,
                             "messages[%ui].tool_calls[%ui].function.arguments "
                             "is not valid JSON: %V", w->index, i, &fault);
}


ngx_int_t
ngx_modelgw_request_call_arguments(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *arguments, ngx_str_t *input, ngx_str_t *fault)
{
    ngx_int_t  rc;

    ngx_str_set(input, "{}");

    if (ngx_modelgw_request_absent(arguments)) {
        return NGX_OK;
    }

    if (arguments->type != NGX_MODELGW_TAPE_STRING) {
        fault->len = 0;
        return NGX_DECLINED;
    }

    if (ngx_modelgw_tape_blank(w->rq->tape, arguments)) {
        return NGX_OK;
    }

    if (ngx_modelgw_tape_text(w->rq->tape, w->rq->pool, arguments, input)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_modelgw_request_call_check(w, input);

    if (rc == NGX_DECLINED) {
        (void) ngx_modelgw_scan_fault(w->scan, fault);
    }

    return rc;
}


ngx_int_t
ngx_modelgw_request_call_check(ngx_modelgw_request_walk_t *w, ngx_str_t *text)
{
    if (w->scan == NULL) {
        w->scan_conf.skip = w->rq->skip;

        w->scan = ngx_modelgw_scan_create(w->rq->pool, &w->scan_conf);
        if (w->scan == NULL) {
            return NGX_ERROR;
        }

    } else {
        ngx_modelgw_scan_reset(w->scan);
    }

    if (ngx_modelgw_scan_feed(w->scan, text->data, text->len) == NGX_OK
        && ngx_modelgw_scan_done(w->scan) == NGX_OK)
    {
        return NGX_OK;
    }

    return NGX_DECLINED;
}


static ngx_int_t
ngx_modelgw_request_call_open(ngx_modelgw_request_walk_t *w, ngx_str_t *id,
    ngx_uint_t i)
{
    ngx_str_node_t  *node;

    if (ngx_str_rbtree_lookup(&w->open, id, 0)) {
        return ngx_modelgw_request_invalid(w->rq,
                             "messages[%ui].tool_calls[%ui].id is the same as "
                             "that of another call", w->index, i);
    }

    node = ngx_palloc(w->rq->pool, sizeof(ngx_str_node_t));
    if (node == NULL) {
        return NGX_ERROR;
    }

    node->node.key = 0;
    node->str = *id;

    ngx_rbtree_insert(&w->open, &node->node);

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_request_calls_answer(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *id, ngx_str_t *sanitised)
{
    ngx_int_t        rc;
    ngx_str_node_t  *node;

    rc = ngx_modelgw_request_call_id(w, id, sanitised);

    if (rc == NGX_DECLINED) {
        return ngx_modelgw_request_invalid(w->rq,
                             "messages[%ui].tool_call_id is not a non-empty "
                             "string", w->index);
    }

    if (rc != NGX_OK) {
        return rc;
    }

    node = ngx_str_rbtree_lookup(&w->open, sanitised, 0);

    if (node == NULL) {
        return ngx_modelgw_request_invalid(w->rq,
                             "messages[%ui].tool_call_id \"%*s\" is not the id "
                             "of an earlier tool call without a result",
                             w->index,
                             ngx_min(sanitised->len,
                                     NGX_MODELGW_REQUEST_CALL_SHOWN),
                             sanitised->data);
    }

    ngx_rbtree_delete(&w->open, &node->node);

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_request_calls_answered(ngx_modelgw_request_walk_t *w)
{
    ngx_str_t  *id;

    if (w->open.root == &w->sentinel) {
        return NGX_OK;
    }

    id = &((ngx_str_node_t *) ngx_rbtree_min(w->open.root, &w->sentinel))->str;

    return ngx_modelgw_request_invalid(w->rq,
                             "messages[%ui].tool_calls: \"%*s\" has no result "
                             "in a tool message after it", w->caller,
                             ngx_min(id->len, NGX_MODELGW_REQUEST_CALL_SHOWN),
                             id->data);
}


ngx_int_t
ngx_modelgw_request_call_id(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *node, ngx_str_t *id)
{
    ngx_str_t  text;

    if (!ngx_modelgw_request_string(node)) {
        return NGX_DECLINED;
    }

    if (ngx_modelgw_tape_text(w->rq->tape, w->rq->pool, node, &text)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (text.len == 0) {
        return NGX_DECLINED;
    }

    if (ngx_modelgw_request_plain_text(&text)
        || (w->chat && ngx_modelgw_request_call_id_kept(&text)))
    {
        *id = text;
        return NGX_OK;
    }

    id->data = ngx_pnalloc(w->rq->pool, text.len);
    if (id->data == NULL) {
        return NGX_ERROR;
    }

    id->len = ngx_modelgw_request_sanitise(id->data, &text) - id->data;

    return NGX_OK;
}


/* a chat upstream gets its own ids back, "functions.add:0" */

static ngx_uint_t
ngx_modelgw_request_call_id_kept(ngx_str_t *id)
{
    size_t  i;

    for (i = 0; i < id->len; i++) {

        if (id->data[i] < 0x20 || id->data[i] > 0x7e
            || id->data[i] == '"' || id->data[i] == '\\')
        {
            return 0;
        }
    }

    return 1;
}


/* one '_' a character, of any number of bytes */

u_char *
ngx_modelgw_request_sanitise(u_char *dst, ngx_str_t *text)
{
    u_char  *p, *last;

    last = text->data + text->len;

    for (p = text->data; p < last; p++) {

        if (ngx_modelgw_request_plain(*p)) {
            *dst++ = *p;

        } else if ((*p & 0xc0) != 0x80) {
            *dst++ = '_';
        }
    }

    return dst;
}
