
/*
 * What a messages upstream is known to refuse, checked in a request that was
 * written for one: unknown members, empty turns and texts, adjacent turns of
 * one role, ids and names with invalid characters, tool calls without results
 * in the next turn.
 */


#ifndef _RULES_H_INCLUDED_
#define _RULES_H_INCLUDED_


#include <ctype.h>

#include "ngx_modelgw_tape.h"


static const char  *members[] = {
    "model", "max_tokens", "system", "messages", "tools", "tool_choice",
    "temperature", "top_p", "top_k", "stop_sequences", "stream", "metadata",
    "thinking", "output_config", NULL
};


static ngx_inline void
check(int ok)
{
    if (!ok) {
        abort();
    }
}


static ngx_inline void
check_members(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *root)
{
    ngx_uint_t           i;
    ngx_modelgw_node_t  *name, *value;

    for (name = ngx_modelgw_tape_first(tape, root);
         name;
         name = ngx_modelgw_tape_next(tape, root, value))
    {
        value = ngx_modelgw_tape_next(tape, root, name);
        check(value != NULL);

        for (i = 0; !ngx_modelgw_tape_is(tape, name, members[i]); i++) {
            check(members[i + 1] != NULL);
        }
    }
}


static ngx_inline void
check_word(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node)
{
    size_t     i;
    ngx_str_t  id;

    check(node != NULL && node->type == NGX_MODELGW_TAPE_STRING);

    ngx_modelgw_tape_inside(tape, node, &id);

    check(id.len > 0);

    for (i = 0; i < id.len; i++) {
        check(isalnum(id.data[i]) || id.data[i] == '_' || id.data[i] == '-');
    }
}


/* a tool_use is answered, once, in the next turn */

static ngx_inline void
check_answered(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *next,
    ngx_modelgw_node_t *id)
{
    ngx_str_t            a, b;
    ngx_uint_t           n, others;
    ngx_modelgw_node_t  *content, *block, *type, *node;

    content = ngx_modelgw_tape_member(tape, next, "content");
    check(content != NULL);

    ngx_modelgw_tape_inside(tape, id, &a);

    n = 0;
    others = 0;

    for (block = ngx_modelgw_tape_first(tape, content);
         block;
         block = ngx_modelgw_tape_next(tape, content, block))
    {
        type = ngx_modelgw_tape_member(tape, block, "type");

        if (!ngx_modelgw_tape_is(tape, type, "tool_result")) {
            others = 1;
            continue;
        }

        check(!others);

        node = ngx_modelgw_tape_member(tape, block, "tool_use_id");
        check_word(tape, node);
        ngx_modelgw_tape_inside(tape, node, &b);

        n += (a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
    }

    check(n == 1);
}


static ngx_inline void
check_block(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *block,
    ngx_modelgw_node_t *next)
{
    ngx_modelgw_node_t  *type, *node;

    check(block->type == NGX_MODELGW_TAPE_OBJECT);

    type = ngx_modelgw_tape_member(tape, block, "type");
    check(type != NULL && type->type == NGX_MODELGW_TAPE_STRING);

    if (ngx_modelgw_tape_is(tape, type, "text")) {
        node = ngx_modelgw_tape_member(tape, block, "text");
        check(node != NULL && node->type == NGX_MODELGW_TAPE_STRING);
        check(!ngx_modelgw_tape_blank(tape, node));
    }

    if (ngx_modelgw_tape_is(tape, type, "thinking")) {
        node = ngx_modelgw_tape_member(tape, block, "signature");
        check(node != NULL && !ngx_modelgw_tape_blank(tape, node));
    }

    if (ngx_modelgw_tape_is(tape, type, "tool_use")) {
        check_word(tape, ngx_modelgw_tape_member(tape, block, "name"));

        node = ngx_modelgw_tape_member(tape, block, "input");
        check(node != NULL && node->type == NGX_MODELGW_TAPE_OBJECT);

        node = ngx_modelgw_tape_member(tape, block, "id");
        check_word(tape, node);
        check(next != NULL);
        check_answered(tape, next, node);
    }
}


static ngx_inline void
check_turns(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *messages)
{
    ngx_uint_t           user, was;
    ngx_modelgw_node_t  *turn, *next, *role, *content, *block;

    was = 2;

    for (turn = ngx_modelgw_tape_first(tape, messages); turn; turn = next) {
        next = ngx_modelgw_tape_next(tape, messages, turn);

        role = ngx_modelgw_tape_member(tape, turn, "role");
        user = ngx_modelgw_tape_is(tape, role, "user");
        check(user || ngx_modelgw_tape_is(tape, role, "assistant"));
        check(user != was);
        was = user;

        content = ngx_modelgw_tape_member(tape, turn, "content");
        check(content != NULL && content->type == NGX_MODELGW_TAPE_ARRAY);
        check(content->count > 0);

        for (block = ngx_modelgw_tape_first(tape, content);
             block;
             block = ngx_modelgw_tape_next(tape, content, block))
        {
            check_block(tape, block, next);
        }
    }
}


static ngx_inline void
check_tools(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *tools)
{
    ngx_modelgw_node_t  *tool, *schema;

    for (tool = ngx_modelgw_tape_first(tape, tools);
         tool;
         tool = ngx_modelgw_tape_next(tape, tools, tool))
    {
        check_word(tape, ngx_modelgw_tape_member(tape, tool, "name"));

        schema = ngx_modelgw_tape_member(tape, tool, "input_schema");
        check(schema != NULL && schema->type == NGX_MODELGW_TAPE_OBJECT);
        check(ngx_modelgw_tape_member(tape, schema, "type") != NULL);
    }
}


static ngx_inline void
check_stop(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *stop)
{
    ngx_modelgw_node_t  *text;

    for (text = ngx_modelgw_tape_first(tape, stop);
         text;
         text = ngx_modelgw_tape_next(tape, stop, text))
    {
        check(text->type == NGX_MODELGW_TAPE_STRING);
        check(!ngx_modelgw_tape_blank(tape, text));
    }
}


#endif /* _RULES_H_INCLUDED_ */
