
/*
 * tools (translate.md, 2.4).
 *
 * A tool becomes its name, its description and its schema; the last two are the
 * client's bytes, because the order of members in a schema steers the model and
 * the prompt cache.  A schema needs a "type" upstream, which chat does not ask
 * for, so one is put in front of its members.
 *
 * Rejected: to repair names, as some do with a map back in the answer.  The map
 * would have to reach every stream, and the chat API itself takes no other
 * names.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


#define NGX_MODELGW_REQUEST_TOOL_NAME  128


static ngx_int_t ngx_modelgw_request_tools_one(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, ngx_uint_t i, ngx_modelgw_request_tool_t *tool);
static ngx_int_t ngx_modelgw_request_tools_function(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *function, ngx_uint_t i,
    ngx_modelgw_request_tool_t *tool);
static ngx_int_t ngx_modelgw_request_tools_schema(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *function, ngx_uint_t i,
    ngx_modelgw_request_tool_t *tool);
static void ngx_modelgw_request_tools_write_one(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tool_t *tool, ngx_modelgw_out_t *out);
static void ngx_modelgw_request_tools_write_schema(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tool_t *tool, ngx_modelgw_out_t *out);


/* a bit for each byte, as in ngx_escape_uri() */

const uint32_t  ngx_modelgw_request_plain_bytes[] = {
    0x00000000,
    0x03ff2000,                          /* 0 to 9, - */
    0x87fffffe,                          /* A to Z, _ */
    0x07fffffe,                          /* a to z */
    0x00000000,
    0x00000000,
    0x00000000,
    0x00000000
};


ngx_int_t
ngx_modelgw_request_tools_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    ngx_int_t                     rc;
    ngx_uint_t                    i;
    ngx_modelgw_node_t           *node, *array;
    ngx_modelgw_request_tool_t   *tool;
    ngx_modelgw_request_tools_t  *tools;

    tools = &plan->tools;
    array = plan->fields.tools;

    if (ngx_array_init(&tools->list, rq->pool, array ? array->count + 1 : 1,
                       sizeof(ngx_modelgw_request_tool_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    node = array ? ngx_modelgw_tape_first(rq->tape, array) : NULL;

    for (i = 0; node; i++) {

        tool = ngx_array_push(&tools->list);
        if (tool == NULL) {
            return NGX_ERROR;
        }

        rc = ngx_modelgw_request_tools_one(rq, node, i, tool);

        if (rc != NGX_OK) {
            return rc;
        }

        node = ngx_modelgw_tape_next(rq->tape, array, node);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_tools_one(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, ngx_uint_t i, ngx_modelgw_request_tool_t *tool)
{
    ngx_str_t            text;
    ngx_modelgw_node_t  *type, *function;

    ngx_memzero(tool, sizeof(ngx_modelgw_request_tool_t));

    type = ngx_modelgw_request_member(rq, node, "type");

    if (!ngx_modelgw_request_string(type)) {
        return ngx_modelgw_request_invalid(rq,
                                           "tools[%ui].type must be a string",
                                           i);
    }

    if (!ngx_modelgw_tape_is(rq->tape, type, "function")) {

        if (ngx_modelgw_request_quote(rq, type, &text) != NGX_OK) {
            return NGX_ERROR;
        }

        return ngx_modelgw_request_unsupported(rq,
                            "tools[%ui].type \"%V\" is not supported", i,
                            &text);
    }

    function = ngx_modelgw_request_member(rq, node, "function");

    if (function == NULL || function->type != NGX_MODELGW_TAPE_OBJECT) {
        return ngx_modelgw_request_invalid(rq,
                                  "tools[%ui].function must be an object", i);
    }

    tool->cache_control = ngx_modelgw_request_cache_control(rq, node);

    if (tool->cache_control == NULL) {
        tool->cache_control = ngx_modelgw_request_cache_control(rq, function);
    }

    return ngx_modelgw_request_tools_function(rq, function, i, tool);
}


static ngx_int_t
ngx_modelgw_request_tools_function(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *function, ngx_uint_t i,
    ngx_modelgw_request_tool_t *tool)
{
    ngx_modelgw_node_t  *node;

    node = ngx_modelgw_request_member(rq, function, "name");

    if (!ngx_modelgw_request_string(node)) {
        return ngx_modelgw_request_invalid(rq,
                             "tools[%ui].function.name must be a string", i);
    }

    if (ngx_modelgw_tape_text(rq->tape, rq->pool, node, &tool->name)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!ngx_modelgw_request_tool_name(&tool->name)) {
        return ngx_modelgw_request_invalid(rq,
                         "tools[%ui].function.name must be 1 to 128 characters "
                         "of a-z, A-Z, 0-9, \"_\" and \"-\"", i);
    }

    node = ngx_modelgw_request_member(rq, function, "description");

    if (ngx_modelgw_request_string(node)) {

        if (!ngx_modelgw_tape_blank(rq->tape, node)) {
            tool->description = node;
        }

    } else if (!ngx_modelgw_request_absent(node)) {
        return ngx_modelgw_request_invalid(rq,
                      "tools[%ui].function.description must be a string", i);
    }

    return ngx_modelgw_request_tools_schema(rq, function, i, tool);
}


static ngx_int_t
ngx_modelgw_request_tools_schema(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *function, ngx_uint_t i,
    ngx_modelgw_request_tool_t *tool)
{
    ngx_modelgw_node_t  *node;

    node = ngx_modelgw_request_member(rq, function, "parameters");

    if (node && node->type == NGX_MODELGW_TAPE_OBJECT) {
        tool->parameters = node->count ? node : NULL;
        tool->typed = ngx_modelgw_request_member(rq, node, "type") != NULL;

    } else if (!ngx_modelgw_request_absent(node)) {
        return ngx_modelgw_request_invalid(rq,
                       "tools[%ui].function.parameters must be an object", i);
    }

    node = ngx_modelgw_request_member(rq, function, "strict");

    if (node && node->type == NGX_MODELGW_TAPE_TRUE) {
        if (!rq->caps->strict) {
            return ngx_modelgw_request_fields_ignore(rq,
                                                     "tools.function.strict");
        }

        tool->strict = 1;

    } else if (!ngx_modelgw_request_absent(node)
               && node->type != NGX_MODELGW_TAPE_FALSE)
    {
        return ngx_modelgw_request_invalid(rq,
                     "tools[%ui].function.strict must be true or false", i);
    }

    return NGX_OK;
}


/* what a messages upstream takes: ^[A-Za-z0-9_-]{1,128}$ */

ngx_uint_t
ngx_modelgw_request_tool_name(ngx_str_t *name)
{
    return name->len > 0
           && name->len <= NGX_MODELGW_REQUEST_TOOL_NAME
           && ngx_modelgw_request_plain_text(name);
}


ngx_uint_t
ngx_modelgw_request_plain_text(ngx_str_t *text)
{
    size_t  i;

    for (i = 0; i < text->len; i++) {

        if (!ngx_modelgw_request_plain(text->data[i])) {
            return 0;
        }
    }

    return 1;
}


void
ngx_modelgw_request_tools_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out)
{
    ngx_uint_t                    i, n;
    ngx_modelgw_request_tool_t   *tool;
    ngx_modelgw_request_tools_t  *tools;

    tools = &plan->tools;

    if (tools->list.nelts == 0) {
        return;
    }

    tool = tools->list.elts;

    for (i = 0, n = 0; i < tools->list.nelts; i++) {

        if (tool[i].left_out) {
            continue;
        }

        if (n++ == 0) {
            ngx_modelgw_out_text(out, ",\"tools\":[");

        } else {
            ngx_modelgw_out_text(out, ",");
        }

        ngx_modelgw_request_tools_write_one(rq, &tool[i], out);
    }

    ngx_modelgw_out_text(out, "]");
}


static void
ngx_modelgw_request_tools_write_one(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tool_t *tool, ngx_modelgw_out_t *out)
{
    ngx_modelgw_out_text(out, "{\"name\":\"");
    ngx_modelgw_out(out, tool->name.data, tool->name.len);
    ngx_modelgw_out_text(out, "\"");

    if (tool->description) {
        ngx_modelgw_out_text(out, ",\"description\":");
        ngx_modelgw_request_raw(rq, tool->description, out);
    }

    ngx_modelgw_request_tools_write_schema(rq, tool, out);

    if (tool->strict) {
        ngx_modelgw_out_text(out, ",\"strict\":true");
    }

    ngx_modelgw_request_cache_control_write(rq, tool->cache_control, out);

    ngx_modelgw_out_text(out, "}");
}


static void
ngx_modelgw_request_tools_write_schema(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tool_t *tool, ngx_modelgw_out_t *out)
{
    ngx_str_t  raw;

    ngx_modelgw_out_text(out, ",\"input_schema\":");

    if (tool->parameters == NULL) {
        ngx_modelgw_out_text(out, "{\"type\":\"object\",\"properties\":{}}");
        return;
    }

    if (tool->typed) {
        ngx_modelgw_request_raw(rq, tool->parameters, out);
        return;
    }

    /* the schema has members: what stands behind its bracket goes on */

    ngx_modelgw_tape_raw(rq->tape, tool->parameters, &raw);

    ngx_modelgw_out_text(out, "{\"type\":\"object\",");
    ngx_modelgw_out_borrowed(out, raw.data + 1, raw.len - 1);
}
