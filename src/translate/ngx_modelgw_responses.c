
/*
 * A request of the responses API as one for messages or chat: what becomes of
 * each field of the top level, and where the prompt cache has its breakpoints.
 *
 * It is read as a chat request is, by tables and, where the APIs agree, by the
 * same functions; see ngx_modelgw_request.c.  The plan is the same, too, so
 * that the output for messages is written by what writes it for chat requests.
 *
 * Nothing is stored here, since the upstream knows one customer, the operator:
 * what one key stores there any other could read.  So what needs state is
 * refused by name, and "store" is not sent.
 *
 * A messages upstream caches what is marked, and only that.  Clients of the
 * responses API mark nothing, as theirs caches by itself; without marks each
 * turn pays for the whole conversation.  So tools and instructions end with a
 * breakpoint, and the last user's turn with another.  There may be four, with
 * those of the client: the last ones are kept.
 *
 * Rejected: a default for max_tokens that is lower than what the model can.  A
 * client of this API may leave the limit away; a patch that is cut is an error
 * for it.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_responses_private.h"


#define NGX_MODELGW_RESPONSES_BREAKPOINTS  4    /* of one request */

#define NGX_MODELGW_RESPONSES_STATELESS  ", nothing is stored here"
#define NGX_MODELGW_RESPONSES_WHOLE                                           \
    NGX_MODELGW_RESPONSES_STATELESS ": send the whole input"


static ngx_int_t ngx_modelgw_responses_record(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value);
static void ngx_modelgw_responses_keep(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, ngx_str_t *raw);
static ngx_int_t ngx_modelgw_responses_later(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value);
static ngx_int_t ngx_modelgw_responses_store(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *store);
static ngx_int_t ngx_modelgw_responses_truncation(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *truncation);
static ngx_int_t ngx_modelgw_responses_include(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *include);
static ngx_int_t ngx_modelgw_responses_text(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *text);
static ngx_int_t ngx_modelgw_responses_user(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *id);
static ngx_int_t ngx_modelgw_responses_reasoning_field(
    ngx_modelgw_request_t *rq, ngx_modelgw_request_plan_t *plan,
    ngx_modelgw_request_field_t *field, ngx_modelgw_node_t *reasoning);
static ngx_int_t ngx_modelgw_responses_limits(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value);
static ngx_int_t ngx_modelgw_responses_cache(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value);
static ngx_uint_t ngx_modelgw_responses_cache_auto(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
static ngx_uint_t ngx_modelgw_responses_cache_count(
    ngx_modelgw_request_plan_t *plan);
static void ngx_modelgw_responses_cache_blocks(ngx_array_t *blocks,
    ngx_uint_t *n);
static void ngx_modelgw_responses_cache_turn(ngx_modelgw_request_plan_t *plan,
    ngx_uint_t *n);
static void ngx_modelgw_responses_cache_system(
    ngx_modelgw_request_plan_t *plan, ngx_uint_t *n);
static void ngx_modelgw_responses_cache_block(ngx_array_t *blocks,
    ngx_uint_t *n);


static ngx_modelgw_request_field_t  ngx_modelgw_responses_fields[] = {

    /* "model" is rq->model; "input" is read by steps below */

    { ngx_string("model"), NGX_MODELGW_REQUEST_ANY, 0, NULL },
    { ngx_string("input"), NGX_MODELGW_REQUEST_ANY, 0, NULL },

    /* these say nothing to the model */

    { ngx_string("stream_options"), NGX_MODELGW_REQUEST_ANY, 0, NULL },
    { ngx_string("client_metadata"), NGX_MODELGW_REQUEST_ANY, 0, NULL },

    ngx_modelgw_request_step(ngx_modelgw_responses_record),

    ngx_modelgw_request_field(metadata, OBJECT, ngx_modelgw_responses_later),
    ngx_modelgw_request_field(instructions, STRING,
                              ngx_modelgw_responses_later),
    ngx_modelgw_request_field(tools, ARRAY, ngx_modelgw_responses_later),
    ngx_modelgw_request_field(prompt_cache_key, STRING,
                              ngx_modelgw_responses_later),

    ngx_modelgw_request_field(stream, BOOLEAN, ngx_modelgw_request_stream),
    ngx_modelgw_request_field(store, BOOLEAN, ngx_modelgw_responses_store),
    ngx_modelgw_request_field(truncation, STRING,
                              ngx_modelgw_responses_truncation),
    ngx_modelgw_request_field(include, ARRAY, ngx_modelgw_responses_include),
    ngx_modelgw_request_field(text, OBJECT, ngx_modelgw_responses_text),
    ngx_modelgw_request_field(safety_identifier, STRING,
                              ngx_modelgw_responses_user),
    ngx_modelgw_request_field(user, STRING, ngx_modelgw_responses_user),

    /* names of tools are needed for calls in the input */

    ngx_modelgw_request_step(ngx_modelgw_responses_tools),
    ngx_modelgw_request_field(tool_choice, CHOICE,
                              ngx_modelgw_responses_choice),
    ngx_modelgw_request_field(parallel_tool_calls, BOOLEAN,
                              ngx_modelgw_request_parallel),
    ngx_modelgw_request_step(ngx_modelgw_responses_input),

    ngx_modelgw_request_field(max_output_tokens, NUMBER,
                              ngx_modelgw_request_limit),
    ngx_modelgw_request_field(reasoning, OBJECT,
                              ngx_modelgw_responses_reasoning_field),
    ngx_modelgw_request_step(ngx_modelgw_responses_limits),

    ngx_modelgw_request_field(temperature, NUMBER,
                              ngx_modelgw_request_temperature),
    ngx_modelgw_request_field(top_p, NUMBER, ngx_modelgw_request_top_p),
    ngx_modelgw_request_step(ngx_modelgw_request_sampling),

    ngx_modelgw_request_step(ngx_modelgw_responses_cache),

    ngx_modelgw_request_fields_end
};


static ngx_modelgw_request_field_t  *ngx_modelgw_responses_tables[] = {
    ngx_modelgw_responses_fields,
    NULL
};


static ngx_modelgw_request_refused_t  ngx_modelgw_responses_refused[] = {

    { ngx_string("previous_response_id"), NGX_MODELGW_REQUEST_ANY, NULL,
      NGX_MODELGW_RESPONSES_WHOLE },
    { ngx_string("conversation"), NGX_MODELGW_REQUEST_ANY, NULL,
      NGX_MODELGW_RESPONSES_WHOLE },
    { ngx_string("prompt"), NGX_MODELGW_REQUEST_ANY, NULL,
      NGX_MODELGW_RESPONSES_STATELESS },
    { ngx_string("background"), NGX_MODELGW_REQUEST_BOOLEAN, "false",
      NGX_MODELGW_RESPONSES_STATELESS },
    { ngx_string("top_logprobs"), NGX_MODELGW_REQUEST_NUMBER, "0", "" },

    { ngx_null_string, 0, NULL, NULL }
};


static ngx_modelgw_request_form_t  ngx_modelgw_responses_form = {
    ngx_modelgw_responses_tables,
    ngx_modelgw_responses_refused,
    "reasoning.effort"
};


ngx_int_t
ngx_modelgw_responses(ngx_modelgw_request_t *rq, ngx_uint_t protocol,
    ngx_modelgw_responses_call_t *call, ngx_modelgw_out_t *out)
{
    ngx_int_t                   rc;
    ngx_modelgw_request_plan_t  plan;

    ngx_memzero(call, sizeof(ngx_modelgw_responses_call_t));
    ngx_memzero(&plan, sizeof(ngx_modelgw_request_plan_t));

    plan.protocol = protocol;
    plan.call = call;

    rc = ngx_modelgw_request_decide(rq, &plan, &ngx_modelgw_responses_form);

    if (rc != NGX_OK) {
        return rc;
    }

    if (protocol == NGX_MODELGW_CHAT) {
        ngx_modelgw_responses_chat_write(rq, &plan, out);

    } else {
        ngx_modelgw_request_write(rq, &plan, out);
    }

    return NGX_OK;
}


/* what the answer repeats, before decisions change it */

static ngx_int_t
ngx_modelgw_responses_record(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value)
{
    ngx_modelgw_request_fields_t  *fields;
    ngx_modelgw_responses_call_t  *call;

    fields = &plan->fields;
    call = plan->call;

    ngx_modelgw_responses_keep(rq, fields->metadata, &call->metadata);
    ngx_modelgw_responses_keep(rq, fields->parallel_tool_calls,
                               &call->parallel_tool_calls);
    ngx_modelgw_responses_keep(rq, fields->temperature, &call->temperature);
    ngx_modelgw_responses_keep(rq, fields->top_p, &call->top_p);
    ngx_modelgw_responses_keep(rq, fields->tool_choice, &call->tool_choice);
    ngx_modelgw_responses_keep(rq, fields->max_output_tokens,
                               &call->max_output_tokens);

    return NGX_OK;
}


static void
ngx_modelgw_responses_keep(ngx_modelgw_request_t *rq, ngx_modelgw_node_t *node,
    ngx_str_t *raw)
{
    if (!ngx_modelgw_request_absent(node)) {
        ngx_modelgw_tape_raw(rq->tape, node, raw);
    }
}


/* a step reads the field */

static ngx_int_t
ngx_modelgw_responses_later(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value)
{
    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_responses_store(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *store)
{
    if (store->type == NGX_MODELGW_TAPE_FALSE) {
        return NGX_OK;
    }

    return ngx_modelgw_request_ignore(rq, "store");
}


static ngx_int_t
ngx_modelgw_responses_truncation(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *truncation)
{
    if (ngx_modelgw_tape_is(rq->tape, truncation, "disabled")) {
        return NGX_OK;
    }

    return ngx_modelgw_request_ignore(rq, "truncation");
}


static ngx_int_t
ngx_modelgw_responses_include(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *include)
{
    ngx_uint_t           i;
    ngx_modelgw_node_t  *node;

    node = ngx_modelgw_tape_first(rq->tape, include);

    for (i = 0; node; i++) {

        if (ngx_modelgw_tape_is(rq->tape, node, "reasoning.encrypted_content"))
        {
            plan->call->encrypted = 1;
        }

        if (ngx_modelgw_tape_is(rq->tape, node,
                                "message.output_text.logprobs"))
        {
            return ngx_modelgw_request_unsupported(rq,
                             "include[%ui] \"message.output_text.logprobs\" "
                             "is not supported", i);
        }

        node = ngx_modelgw_tape_next(rq->tape, include, node);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_responses_text(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *text)
{
    ngx_int_t            rc;
    ngx_modelgw_node_t  *node;

    node = ngx_modelgw_request_member(rq, text, "format");

    if (!ngx_modelgw_request_absent(node)) {
        rc = ngx_modelgw_request_format(rq, plan, node, "text.format", "");
        if (rc != NGX_OK) {
            return rc;
        }

        ngx_modelgw_responses_keep(rq, node, &plan->call->format);
        plan->call->json = (plan->schema || plan->json_object);
    }

    node = ngx_modelgw_request_member(rq, text, "verbosity");

    if (ngx_modelgw_request_absent(node)) {
        return NGX_OK;
    }

    if (node->type != NGX_MODELGW_TAPE_STRING) {
        return ngx_modelgw_request_invalid(rq,
                                           "text.verbosity must be a string");
    }

    return (plan->protocol == NGX_MODELGW_CHAT)
           ? NGX_OK : ngx_modelgw_request_ignore(rq, "text.verbosity");
}


/* chat has the same fields */

static ngx_int_t
ngx_modelgw_responses_user(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *id)
{
    return (plan->protocol == NGX_MODELGW_CHAT)
           ? NGX_OK : ngx_modelgw_request_user(rq, plan, field, id);
}


static ngx_int_t
ngx_modelgw_responses_reasoning_field(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *reasoning)
{
    ngx_modelgw_node_t            *summary, *effort;
    ngx_modelgw_responses_call_t  *call;

    call = plan->call;

    summary = ngx_modelgw_request_member(rq, reasoning, "summary");

    if (ngx_modelgw_request_absent(summary)) {
        summary = ngx_modelgw_request_member(rq, reasoning,
                                             "generate_summary");
    }

    effort = ngx_modelgw_request_member(rq, reasoning, "effort");

    if (!ngx_modelgw_request_absent(summary)
        && summary->type != NGX_MODELGW_TAPE_STRING)
    {
        return ngx_modelgw_request_invalid(rq,
                                          "reasoning.summary must be a string");
    }

    ngx_modelgw_responses_keep(rq, summary, &call->summary);
    call->show = (call->summary.len != 0);

    if (ngx_modelgw_request_absent(effort)) {
        return NGX_OK;
    }

    if (effort->type != NGX_MODELGW_TAPE_STRING) {
        return ngx_modelgw_request_invalid(rq,
                                           "reasoning.effort must be a string");
    }

    ngx_modelgw_responses_keep(rq, effort, &call->effort);

    /* which efforts there are is up to a chat upstream */

    return (plan->protocol == NGX_MODELGW_CHAT)
           ? NGX_OK : ngx_modelgw_request_effort(rq, plan, field, effort);
}


/* decides thinking and the limit of tokens */

static ngx_int_t
ngx_modelgw_responses_limits(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value)
{
    ngx_int_t  rc;

    if (plan->protocol == NGX_MODELGW_CHAT) {
        rq->max_tokens = plan->limit;
        return NGX_OK;
    }

    if (plan->limit == 0) {
        plan->limit = rq->max_output;
    }

    rc = ngx_modelgw_request_reasoning(rq, plan, field, value);

    if (rc == NGX_OK && plan->call->show) {
        ngx_modelgw_request_show(plan);
    }

    return rc;
}


static ngx_int_t
ngx_modelgw_responses_cache(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value)
{
    ngx_uint_t  n;

    if (plan->protocol != NGX_MODELGW_CHAT) {
        n = ngx_modelgw_responses_cache_count(plan);

        if (ngx_modelgw_responses_cache_auto(rq, plan)) {
            ngx_modelgw_responses_cache_turn(plan, &n);
            ngx_modelgw_responses_cache_system(plan, &n);

            return NGX_OK;
        }
    }

    return plan->fields.prompt_cache_key
           ? ngx_modelgw_request_ignore(rq, "prompt_cache_key") : NGX_OK;
}


/* a call that is part of a conversation has been answered before */

static ngx_uint_t
ngx_modelgw_responses_cache_auto(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    ngx_uint_t                   i;
    ngx_modelgw_request_turn_t  *turn;

    switch (rq->caps->auto_cache) {

    case NGX_MODELGW_AUTO_CACHE_OFF:
        return 0;

    case NGX_MODELGW_AUTO_CACHE_ON:
        return 1;

    default: /* NGX_MODELGW_AUTO_CACHE_AUTO */
        break;
    }

    if (plan->fields.prompt_cache_key) {
        return 1;
    }

    turn = plan->turns.turns.elts;

    for (i = 0; i < plan->turns.turns.nelts; i++) {

        if (turn[i].role == NGX_MODELGW_TURN_ASSISTANT) {
            return 1;
        }
    }

    return 0;
}


/* removes the client's breakpoints before the last ones; how many are left */

static ngx_uint_t
ngx_modelgw_responses_cache_count(ngx_modelgw_request_plan_t *plan)
{
    ngx_uint_t                   i, n;
    ngx_modelgw_request_turn_t  *turn;

    n = 0;
    turn = plan->turns.turns.elts;

    for (i = plan->turns.turns.nelts; i; i--) {
        ngx_modelgw_responses_cache_blocks(&turn[i - 1].blocks, &n);
    }

    ngx_modelgw_responses_cache_blocks(&plan->turns.system, &n);

    return n;
}


static void
ngx_modelgw_responses_cache_blocks(ngx_array_t *blocks, ngx_uint_t *n)
{
    ngx_uint_t                    i;
    ngx_modelgw_request_block_t  *block;

    block = blocks->elts;

    for (i = blocks->nelts; i; i--) {

        if (block[i - 1].cache_control == NULL && !block[i - 1].breakpoint) {
            continue;
        }

        if (*n < NGX_MODELGW_RESPONSES_BREAKPOINTS) {
            (*n)++;
            continue;
        }

        block[i - 1].cache_control = NULL;
        block[i - 1].breakpoint = 0;
    }
}


/* the end of the last user's turn, which never ends with thinking */

static void
ngx_modelgw_responses_cache_turn(ngx_modelgw_request_plan_t *plan,
    ngx_uint_t *n)
{
    ngx_uint_t                   i;
    ngx_modelgw_request_turn_t  *turn;

    turn = plan->turns.turns.elts;

    for (i = plan->turns.turns.nelts; i; i--) {

        if (turn[i - 1].role == NGX_MODELGW_TURN_USER) {
            ngx_modelgw_responses_cache_block(&turn[i - 1].blocks, n);
            return;
        }
    }
}


/* the end of the instructions, which follow the tools, or of the tools */

static void
ngx_modelgw_responses_cache_system(ngx_modelgw_request_plan_t *plan,
    ngx_uint_t *n)
{
    ngx_uint_t                   i;
    ngx_modelgw_request_tool_t  *tool;

    if (plan->turns.system.nelts) {
        ngx_modelgw_responses_cache_block(&plan->turns.system, n);
        return;
    }

    tool = plan->tools.list.elts;

    for (i = plan->tools.list.nelts; i; i--) {

        if (!tool[i - 1].left_out) {
            tool[i - 1].breakpoint = (*n < NGX_MODELGW_RESPONSES_BREAKPOINTS);
            return;
        }
    }
}


/* the last block, if there may be one more breakpoint */

static void
ngx_modelgw_responses_cache_block(ngx_array_t *blocks, ngx_uint_t *n)
{
    ngx_modelgw_request_block_t  *block;

    block = blocks->elts;
    block = &block[blocks->nelts - 1];

    if (block->cache_control == NULL && !block->breakpoint
        && *n < NGX_MODELGW_RESPONSES_BREAKPOINTS)
    {
        block->breakpoint = 1;
        (*n)++;
    }
}
