
/*
 * tool_choice and parallel_tool_calls (translate.md, 2.4).
 *
 * What chat says in two fields is one object upstream.  "allowed_tools" has no
 * counterpart but a shorter list of tools: it costs the prompt cache when the
 * choice changes, but there is no other way to say it.  If it would leave none
 * the request is refused: to send all tools would widen what the client meant
 * to narrow.
 *
 * "none" is sent and the tools stay with it; without it the model might call
 * one, without them it would not know what the calls in the history mean.
 *
 * Rejected: to take "any" for "required".  No chat client says it.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


/* comparisons of names that allowed_tools may cost */
#define NGX_MODELGW_REQUEST_ALLOWED  (1024 * 1024)


typedef struct {
    const char           *name;
    ngx_uint_t            choice;
} ngx_modelgw_request_mode_t;


static ngx_int_t ngx_modelgw_request_choice(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *choice);
static ngx_int_t ngx_modelgw_request_choice_named(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *choice);
static ngx_int_t ngx_modelgw_request_choice_allowed(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *choice);
static ngx_int_t ngx_modelgw_request_choice_leave(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *allowed);
static ngx_uint_t ngx_modelgw_request_choice_mode(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *node,
    ngx_modelgw_request_mode_t *mode);
static ngx_int_t ngx_modelgw_request_choice_name(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *obj, ngx_str_t *name);
static ngx_modelgw_request_tool_t *ngx_modelgw_request_choice_find(
    ngx_modelgw_request_tools_t *tools, ngx_str_t *name);
static void ngx_modelgw_request_choice_serial(
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *parallel);


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

/* by NGX_MODELGW_REQUEST_CHOICE_... */

static ngx_str_t  ngx_modelgw_request_choices[] = {
    ngx_null_string,
    ngx_string("auto"),
    ngx_string("none"),
    ngx_string("any"),
    ngx_string("tool")
};


ngx_int_t
ngx_modelgw_request_choice_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    ngx_int_t                     rc;
    ngx_uint_t                    forced;
    ngx_modelgw_request_tools_t  *tools;

    tools = &plan->tools;

    if (plan->fields.tool_choice) {
        rc = ngx_modelgw_request_choice(rq, tools, plan->fields.tool_choice);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    forced = tools->choice >= NGX_MODELGW_REQUEST_CHOICE_ANY;

    if (tools->list.nelts == 0 && forced) {
        return ngx_modelgw_request_invalid(rq,
                                           "\"tool_choice\" needs \"tools\"");
    }

    if (forced && !rq->caps->forced_tool_choice) {
        return ngx_modelgw_request_unsupported(rq,
                             "a \"tool_choice\" that forces a call is not "
                             "supported by this model");
    }

    ngx_modelgw_request_choice_serial(tools, plan->fields.parallel_tool_calls);

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_choice(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *choice)
{
    ngx_str_t            text;
    ngx_modelgw_node_t  *type;

    if (choice->type == NGX_MODELGW_TAPE_STRING) {

        if (ngx_modelgw_request_choice_mode(rq, tools, choice,
                                            ngx_modelgw_request_modes))
        {
            return NGX_OK;
        }

        return ngx_modelgw_request_invalid(rq,
                             "\"tool_choice\" must be \"auto\", \"none\", "
                             "\"required\" or an object");
    }

    type = ngx_modelgw_request_member(rq, choice, "type");

    if (ngx_modelgw_tape_is(rq->tape, type, "function")) {
        return ngx_modelgw_request_choice_named(rq, tools, choice);
    }

    if (ngx_modelgw_tape_is(rq->tape, type, "allowed_tools")) {
        return ngx_modelgw_request_choice_allowed(rq, tools, choice);
    }

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

    if (!ngx_modelgw_request_choice_mode(rq, tools, mode,
                                         ngx_modelgw_request_allowed_modes))
    {
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


/* leaves out the tools that are not allowed */

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


/* sets the choice that the node names, if it is one of the table */

static ngx_uint_t
ngx_modelgw_request_choice_mode(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_tools_t *tools, ngx_modelgw_node_t *node,
    ngx_modelgw_request_mode_t *mode)
{
    for ( /* void */ ; mode->name; mode++) {

        if (ngx_modelgw_tape_is(rq->tape, node, mode->name)) {
            tools->choice = mode->choice;
            return 1;
        }
    }

    return 0;
}


/* function.name of the object; NGX_DECLINED: that is no string */

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


/* parallel_tool_calls:false is a part of the choice, so there must be one */

static void
ngx_modelgw_request_choice_serial(ngx_modelgw_request_tools_t *tools,
    ngx_modelgw_node_t *parallel)
{
    if (parallel == NULL || parallel->type != NGX_MODELGW_TAPE_FALSE
        || tools->choice == NGX_MODELGW_REQUEST_CHOICE_NONE)
    {
        return;
    }

    tools->serial = 1;

    if (tools->choice == NGX_MODELGW_REQUEST_CHOICE_DEFAULT) {
        tools->choice = NGX_MODELGW_REQUEST_CHOICE_AUTO;
    }
}


void
ngx_modelgw_request_choice_write(ngx_modelgw_request_plan_t *plan,
    ngx_modelgw_out_t *out)
{
    ngx_str_t                    *type;
    ngx_modelgw_request_tools_t  *tools;

    tools = &plan->tools;

    /* an upstream refuses a choice without tools */

    if (tools->list.nelts == 0
        || tools->choice == NGX_MODELGW_REQUEST_CHOICE_DEFAULT)
    {
        return;
    }

    type = &ngx_modelgw_request_choices[tools->choice];

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
