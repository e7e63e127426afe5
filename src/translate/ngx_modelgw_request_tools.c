
/*
 * tools, tool_choice and parallel_tool_calls.
 *
 * A tool becomes its name, its description and its schema; the last two are
 * copied byte for byte, since the order of members in a schema steers the model
 * and the prompt cache.  A schema needs a "type" upstream, which chat does not
 * require, so one is put in front of its members.
 *
 * tool_choice and parallel_tool_calls are one object upstream.  "allowed_tools"
 * has no counterpart but a shorter list of tools: changing the choice then
 * costs the prompt cache, but there is no other way to express it.  If no tool
 * would be left the request is refused: sending all tools would widen what the
 * client meant to narrow.
 *
 * With "none" the tools are still sent, because calls in the history refer to
 * them; without "none" the model might call one.
 *
 * Rejected: repairing names, as some gateways do with a map back in the answer.
 * The map would have to reach every stream, and the chat API itself accepts no
 * other names.
 *
 * Rejected: accepting "any" for "required".  No chat client sends it.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


#define NGX_MODELGW_REQUEST_TOOL_NAME  128             /* bytes */

/* comparisons of names that allowed_tools may cost */
#define NGX_MODELGW_REQUEST_ALLOWED    (1024 * 1024)


typedef struct {
    const char           *name;
    ngx_uint_t            choice;
} ngx_modelgw_request_mode_t;


static ngx_int_t ngx_modelgw_request_tools(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *array);
static ngx_int_t ngx_modelgw_request_tool(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, ngx_uint_t i, ngx_modelgw_request_tool_t *tool);
static ngx_int_t ngx_modelgw_request_tool_function(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *function, ngx_uint_t i,
    ngx_modelgw_request_tool_t *tool);
static ngx_int_t ngx_modelgw_request_choice(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *choice);
static ngx_int_t ngx_modelgw_request_choice_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *choice);
static ngx_int_t ngx_modelgw_request_choice_named(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *choice);
static ngx_int_t ngx_modelgw_request_choice_allowed(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *choice);
static ngx_int_t ngx_modelgw_request_choice_leave(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *allowed);
static ngx_int_t ngx_modelgw_request_choice_name(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *obj, ngx_str_t *name);
static ngx_modelgw_request_tool_t *ngx_modelgw_request_choice_find(
    ngx_modelgw_request_tools_t *tools, ngx_str_t *name);
static void ngx_modelgw_request_tool_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tool_t *tool, ngx_modelgw_out_t *out);
static void ngx_modelgw_request_tool_write_description(
    ngx_modelgw_request_t *rq, ngx_modelgw_request_tool_t *tool,
    ngx_modelgw_out_t *out);
static void ngx_modelgw_request_tool_write_schema(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tool_t *tool, ngx_modelgw_out_t *out);
static void ngx_modelgw_request_choice_write(
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_out_t *out);


ngx_modelgw_request_field_t  ngx_modelgw_request_tools_fields[] = {

    ngx_modelgw_request_field(tools, ARRAY, ngx_modelgw_request_tools),
    ngx_modelgw_request_field(tool_choice, CHOICE, ngx_modelgw_request_choice),
    ngx_modelgw_request_field(parallel_tool_calls, BOOLEAN,
                              ngx_modelgw_request_parallel),

    ngx_modelgw_request_fields_end
};


/* a bit for each byte, as in ngx_escape_uri() */

const uint32_t  ngx_modelgw_request_plain_bytes[] = {
    0x00000000,
    0x03ff2000,                          /* 0 to 9, - */
    0x87fffffe,                          /* A to Z, _ */
    0x07fffffe,                          /* a to z */
    0x00000000, 0x00000000, 0x00000000, 0x00000000
};

static ngx_modelgw_request_mode_t  ngx_modelgw_request_modes[] = {
    { "auto", NGX_MODELGW_REQUEST_CHOICE_AUTO },
    { "none", NGX_MODELGW_REQUEST_CHOICE_NONE },
    { "required", NGX_MODELGW_REQUEST_CHOICE_ANY },
    { NULL, 0 }
};

static ngx_modelgw_request_mode_t  ngx_modelgw_request_allowed_modes[] = {
    { "auto", NGX_MODELGW_REQUEST_CHOICE_AUTO },
    { "required", NGX_MODELGW_REQUEST_CHOICE_ANY },
    { NULL, 0 }
};

/* types of "tool_choice" upstream */

static ngx_str_t  ngx_modelgw_request_choice_types[] = {
    [NGX_MODELGW_REQUEST_CHOICE_DEFAULT] = ngx_null_string,
    [NGX_MODELGW_REQUEST_CHOICE_AUTO] = ngx_string("auto"),
    [NGX_MODELGW_REQUEST_CHOICE_NONE] = ngx_string("none"),
    [NGX_MODELGW_REQUEST_CHOICE_ANY] = ngx_string("any"),
    [NGX_MODELGW_REQUEST_CHOICE_TOOL] = ngx_string("tool")
};


static ngx_str_t  ngx_modelgw_request_tool_member_names[] = {
    [NGX_MODELGW_TOOL_TYPE] = ngx_string("type"),
    [NGX_MODELGW_TOOL_NAME] = ngx_string("name"),
    [NGX_MODELGW_TOOL_DESCRIPTION] = ngx_string("description"),
    [NGX_MODELGW_TOOL_PARAMETERS] = ngx_string("parameters"),
    [NGX_MODELGW_TOOL_STRICT] = ngx_string("strict"),
    [NGX_MODELGW_TOOL_FORMAT] = ngx_string("format"),
    [NGX_MODELGW_TOOL_TOOLS] = ngx_string("tools"),
    [NGX_MODELGW_TOOL_EXECUTION] = ngx_string("execution")
};


static ngx_int_t
ngx_modelgw_request_tools(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *array)
{
    ngx_int_t                    rc;
    ngx_uint_t                   i;
    ngx_array_t                 *list;
    ngx_modelgw_node_t          *node;
    ngx_modelgw_request_tool_t  *tool;

    list = &plan->tools.list;

    if (ngx_array_init(list, rq->pool, array->count + 1,
                       sizeof(ngx_modelgw_request_tool_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    node = ngx_modelgw_tape_first(rq->tape, array);

    for (i = 0; node; i++) {

        tool = ngx_array_push(list);
        if (tool == NULL) {
            return NGX_ERROR;
        }

        rc = ngx_modelgw_request_tool(rq, node, i, tool);

        if (rc != NGX_OK) {
            return rc;
        }

        node = ngx_modelgw_tape_next(rq->tape, array, node);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_tool(ngx_modelgw_request_t *rq,
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

    return ngx_modelgw_request_tool_function(rq, function, i, tool);
}


static ngx_int_t
ngx_modelgw_request_tool_function(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *function, ngx_uint_t i,
    ngx_modelgw_request_tool_t *tool)
{
    const char          *fault;
    ngx_modelgw_node_t  *node, *members[NGX_MODELGW_TOOL_MEMBERS];

    ngx_modelgw_request_tool_members(rq, function, members);

    node = members[NGX_MODELGW_TOOL_NAME];

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

    fault = ngx_modelgw_request_tool_details(rq, members, tool);

    if (fault) {
        return ngx_modelgw_request_invalid(rq, "tools[%ui].function%s", i,
                                           fault);
    }

    if (tool->strict && !rq->caps->strict) {
        tool->strict = 0;
        return ngx_modelgw_request_ignore(rq, "tools.function.strict");
    }

    return NGX_OK;
}


void
ngx_modelgw_request_tool_members(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *obj, ngx_modelgw_node_t **members)
{
    ngx_modelgw_tape_members(rq->tape, obj,
                             ngx_modelgw_request_tool_member_names,
                             NGX_MODELGW_TOOL_MEMBERS, members);
}


const char *
ngx_modelgw_request_tool_details(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t **members, ngx_modelgw_request_tool_t *tool)
{
    ngx_modelgw_node_t  *node;

    node = members[NGX_MODELGW_TOOL_DESCRIPTION];

    if (ngx_modelgw_request_string(node)) {

        if (!ngx_modelgw_tape_blank(rq->tape, node)) {
            tool->description = node;
        }

    } else if (!ngx_modelgw_request_absent(node)) {
        return ".description must be a string";
    }

    node = members[NGX_MODELGW_TOOL_PARAMETERS];

    if (node && node->type == NGX_MODELGW_TAPE_OBJECT) {
        tool->parameters = node->count ? node : NULL;
        tool->typed = ngx_modelgw_request_member(rq, node, "type") != NULL;

    } else if (!ngx_modelgw_request_absent(node)) {
        return ".parameters must be an object";
    }

    node = members[NGX_MODELGW_TOOL_STRICT];

    if (node && node->type == NGX_MODELGW_TAPE_TRUE) {
        tool->strict = 1;

    } else if (!ngx_modelgw_request_absent(node)
               && node->type != NGX_MODELGW_TAPE_FALSE)
    {
        return ".strict must be true or false";
    }

    return NULL;
}


static ngx_int_t
ngx_modelgw_request_choice(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *choice)
{
    ngx_int_t  rc;

    rc = ngx_modelgw_request_choice_read(rq, &plan->tools, choice);

    return (rc == NGX_OK) ? ngx_modelgw_request_choice_force(rq, &plan->tools)
                          : rc;
}


ngx_int_t
ngx_modelgw_request_choice_force(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools)
{
    tools->forced = (tools->choice == NGX_MODELGW_REQUEST_CHOICE_ANY
                     || tools->choice == NGX_MODELGW_REQUEST_CHOICE_TOOL);

    if (tools->forced && tools->list.nelts == 0) {
        return ngx_modelgw_request_invalid(rq,
                             "\"tool_choice\" forces a call, and there is no "
                             "tool to call");
    }

    if (tools->forced && !rq->caps->forced_tool_choice) {
        return ngx_modelgw_request_unsupported(rq,
                             "a \"tool_choice\" that forces a call is not "
                             "supported by this model");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_choice_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *choice)
{
    ngx_modelgw_node_t  *type;

    if (choice->type == NGX_MODELGW_TAPE_STRING) {
        return ngx_modelgw_request_choice_word(rq, tools, choice);
    }

    type = ngx_modelgw_request_member(rq, choice, "type");

    if (ngx_modelgw_tape_is(rq->tape, type, "function")) {
        return ngx_modelgw_request_choice_named(rq, tools, choice);
    }

    if (ngx_modelgw_tape_is(rq->tape, type, "allowed_tools")) {
        return ngx_modelgw_request_choice_allowed(rq, tools, choice);
    }

    return ngx_modelgw_request_choice_other(rq, type);
}


ngx_int_t
ngx_modelgw_request_choice_word(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *choice)
{
    if (ngx_modelgw_request_choice_mode(rq, tools, choice, 0)) {
        return NGX_OK;
    }

    return ngx_modelgw_request_invalid(rq,
                             "\"tool_choice\" must be \"auto\", \"none\", "
                             "\"required\" or an object");
}


ngx_int_t
ngx_modelgw_request_choice_other(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *type)
{
    ngx_str_t  text;

    if (!ngx_modelgw_request_string(type)) {
        return ngx_modelgw_request_invalid(rq,
                                          "tool_choice.type must be a string");
    }

    if (ngx_modelgw_request_quote(rq, type, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_modelgw_request_unsupported(rq,
                             "tool_choice.type \"%V\" is not supported", &text);
}


static ngx_int_t
ngx_modelgw_request_choice_named(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *choice)
{
    ngx_int_t                    rc;
    ngx_str_t                    name;
    ngx_modelgw_request_tool_t  *tool;

    rc = ngx_modelgw_request_choice_name(rq, choice, &name);

    if (rc == NGX_DECLINED) {
        return ngx_modelgw_request_invalid(rq,
                                 "tool_choice.function.name must be a string");
    }

    if (rc != NGX_OK) {
        return rc;
    }

    tool = ngx_modelgw_request_choice_find(tools, &name);

    if (tool == NULL) {
        return ngx_modelgw_request_invalid(rq,
                             "tool_choice.function.name is not in \"tools\"");
    }

    tools->choice = NGX_MODELGW_REQUEST_CHOICE_TOOL;
    tools->name = tool->name;

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_choice_allowed(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *choice)
{
    ngx_modelgw_node_t  *mode, *allowed;

    choice = ngx_modelgw_request_member(rq, choice, "allowed_tools");
    mode = ngx_modelgw_request_member(rq, choice, "mode");

    if (!ngx_modelgw_request_choice_mode(rq, tools, mode, 1)) {
        return ngx_modelgw_request_invalid(rq,
                             "tool_choice.allowed_tools.mode must be \"auto\" "
                             "or \"required\"");
    }

    allowed = ngx_modelgw_request_member(rq, choice, "tools");

    if (allowed == NULL || allowed->type != NGX_MODELGW_TAPE_ARRAY) {
        return ngx_modelgw_request_invalid(rq,
                           "tool_choice.allowed_tools.tools must be an array");
    }

    if (tools->list.nelts * allowed->count > NGX_MODELGW_REQUEST_ALLOWED) {
        return ngx_modelgw_request_invalid(rq,
                      "tool_choice.allowed_tools.tools has too many elements");
    }

    return ngx_modelgw_request_choice_leave(rq, tools, allowed);
}


/* marks the tools that are not allowed */

static ngx_int_t
ngx_modelgw_request_choice_leave(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *allowed)
{
    ngx_int_t                    rc;
    ngx_str_t                    name;
    ngx_uint_t                   i, n;
    ngx_modelgw_node_t          *node;
    ngx_modelgw_request_tool_t  *tool;

    tool = tools->list.elts;

    for (i = 0; i < tools->list.nelts; i++) {
        tool[i].left_out = 1;
    }

    node = ngx_modelgw_tape_first(rq->tape, allowed);

    for (i = 0, n = 0; node; i++) {
        rc = ngx_modelgw_request_choice_name(rq, node, &name);

        if (rc == NGX_DECLINED) {
            return ngx_modelgw_request_invalid(rq,
                             "tool_choice.allowed_tools.tools[%ui].function."
                             "name must be a string", i);
        }

        if (rc != NGX_OK) {
            return rc;
        }

        tool = ngx_modelgw_request_choice_find(tools, &name);

        if (tool) {
            tool->left_out = 0;
            n++;
        }

        node = ngx_modelgw_tape_next(rq->tape, allowed, node);
    }

    if (n == 0) {
        return ngx_modelgw_request_invalid(rq,
                             "tool_choice.allowed_tools.tools names none of "
                             "\"tools\"");
    }

    return NGX_OK;
}


ngx_uint_t
ngx_modelgw_request_choice_mode(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *node,
    ngx_uint_t allowed_tools)
{
    ngx_modelgw_request_mode_t  *mode;

    mode = allowed_tools ? ngx_modelgw_request_allowed_modes
                         : ngx_modelgw_request_modes;

    for ( /* void */ ; mode->name; mode++) {

        if (ngx_modelgw_tape_is(rq->tape, node, mode->name)) {
            tools->choice = mode->choice;
            return 1;
        }
    }

    return 0;
}


/*
 * Gets function.name.
 *     NGX_OK, NGX_DECLINED (not a string), NGX_ERROR (no memory)
 */

static ngx_int_t
ngx_modelgw_request_choice_name(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *obj, ngx_str_t *name)
{
    ngx_modelgw_node_t  *node;

    node = ngx_modelgw_request_member(rq, obj, "function");
    node = ngx_modelgw_request_member(rq, node, "name");

    if (!ngx_modelgw_request_string(node)) {
        return NGX_DECLINED;
    }

    return ngx_modelgw_tape_text(rq->tape, rq->pool, node, name);
}


static ngx_modelgw_request_tool_t *
ngx_modelgw_request_choice_find(ngx_modelgw_request_tools_t *tools,
    ngx_str_t *name)
{
    ngx_uint_t                   i;
    ngx_modelgw_request_tool_t  *tool;

    tool = tools->list.elts;

    for (i = 0; i < tools->list.nelts; i++) {

        if (tool[i].name.len == name->len
            && ngx_memcmp(tool[i].name.data, name->data, name->len) == 0)
        {
            return &tool[i];
        }
    }

    return NULL;
}


/* false is a member of tool_choice upstream, so there must be a choice */

ngx_int_t
ngx_modelgw_request_parallel(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *parallel)
{
    ngx_modelgw_request_tools_t  *tools;

    tools = &plan->tools;

    if (parallel->type != NGX_MODELGW_TAPE_FALSE
        || tools->choice == NGX_MODELGW_REQUEST_CHOICE_NONE)
    {
        return NGX_OK;
    }

    tools->serial = 1;

    if (tools->choice == NGX_MODELGW_REQUEST_CHOICE_DEFAULT) {
        tools->choice = NGX_MODELGW_REQUEST_CHOICE_AUTO;
    }

    return NGX_OK;
}


void
ngx_modelgw_request_tools_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out)
{
    ngx_uint_t                    i, n;
    ngx_modelgw_request_tool_t   *tool;
    ngx_modelgw_request_tools_t  *tools;

    tools = &plan->tools;

    /* an upstream refuses a choice without tools */

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

        ngx_modelgw_request_tool_write(rq, &tool[i], out);
    }

    ngx_modelgw_out_text(out, "]");

    if (tools->choice != NGX_MODELGW_REQUEST_CHOICE_DEFAULT) {
        ngx_modelgw_request_choice_write(tools, out);
    }
}


static void
ngx_modelgw_request_tool_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tool_t *tool, ngx_modelgw_out_t *out)
{
    ngx_modelgw_out_text(out, "{\"name\":\"");
    ngx_modelgw_out(out, tool->name.data, tool->name.len);
    ngx_modelgw_out_text(out, "\"");

    ngx_modelgw_request_tool_write_details(rq, tool, ",\"input_schema\":",
                                           out);
    ngx_modelgw_request_cache_control_write(rq, tool->cache_control,
                                            tool->breakpoint, out);

    ngx_modelgw_out_text(out, "}");
}


void
ngx_modelgw_request_tool_write_details(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tool_t *tool, const char *before,
    ngx_modelgw_out_t *out)
{
    if (tool->description || tool->definition) {
        ngx_modelgw_request_tool_write_description(rq, tool, out);
    }

    ngx_modelgw_out(out, (u_char *) before, ngx_strlen(before));
    ngx_modelgw_request_tool_write_schema(rq, tool, out);

    if (tool->strict) {
        ngx_modelgw_out_text(out, ",\"strict\":true");
    }
}


/* the grammar of a custom tool has no other place than its description */

static void
ngx_modelgw_request_tool_write_description(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tool_t *tool, ngx_modelgw_out_t *out)
{
    ngx_str_t  text;

    ngx_modelgw_out_text(out, ",\"description\":\"");

    if (tool->description) {
        ngx_modelgw_tape_inside(rq->tape, tool->description, &text);
        ngx_modelgw_out_borrowed(out, text.data, text.len);
    }

    if (tool->definition) {

        if (tool->description) {
            ngx_modelgw_out_text(out, "\\n\\n");
        }

        ngx_modelgw_out_text(out, "The value of \\\"input\\\" must match "
                                  "this ");

        if (tool->regex) {
            ngx_modelgw_out_text(out, "regex");

        } else {
            ngx_modelgw_out_text(out, "lark");
        }

        ngx_modelgw_tape_inside(rq->tape, tool->definition, &text);

        ngx_modelgw_out_text(out, " grammar:\\n");
        ngx_modelgw_out_borrowed(out, text.data, text.len);
    }

    ngx_modelgw_out_text(out, "\"");
}


static void
ngx_modelgw_request_tool_write_schema(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tool_t *tool, ngx_modelgw_out_t *out)
{
    ngx_str_t  raw;

    if (tool->custom) {
        ngx_modelgw_out_text(out, "{\"type\":\"object\",\"properties\":"
                                  "{\"input\":{\"type\":\"string\"}},"
                                  "\"required\":[\"input\"],"
                                  "\"additionalProperties\":false}");
        return;
    }

    if (tool->parameters == NULL) {
        ngx_modelgw_out_text(out, "{\"type\":\"object\",\"properties\":{}}");
        return;
    }

    if (tool->typed) {
        ngx_modelgw_request_raw(rq, tool->parameters, out);
        return;
    }

    /* the schema has members: the rest follows its opening brace */

    ngx_modelgw_tape_raw(rq->tape, tool->parameters, &raw);

    ngx_modelgw_out_text(out, "{\"type\":\"object\",");
    ngx_modelgw_out_borrowed(out, raw.data + 1, raw.len - 1);
}


static void
ngx_modelgw_request_choice_write(ngx_modelgw_request_tools_t *tools,
    ngx_modelgw_out_t *out)
{
    ngx_str_t  *type;

    type = &ngx_modelgw_request_choice_types[tools->choice];

    ngx_modelgw_out_text(out, ",\"tool_choice\":{\"type\":\"");
    ngx_modelgw_out(out, type->data, type->len);

    if (tools->choice == NGX_MODELGW_REQUEST_CHOICE_TOOL) {
        ngx_modelgw_out_text(out, "\",\"name\":\"");
        ngx_modelgw_out(out, tools->name.data, tools->name.len);
    }

    ngx_modelgw_out_text(out, "\"");

    if (tools->serial) {
        ngx_modelgw_out_text(out, ",\"disable_parallel_tool_use\":true");
    }

    ngx_modelgw_out_text(out, "}");
}


/* ^[A-Za-z0-9_-]{1,128}$, as in Messages API, Tools */

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
