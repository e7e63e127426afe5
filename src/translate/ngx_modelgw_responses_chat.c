
/*
 * The chat request that is written for a responses request.
 *
 * An assistant's turn is one message, its texts joined; the results of its
 * calls follow as "tool" messages, which have text only, and what else the
 * results have follows them as a user's message.  Values that need no decision
 * are copied byte for byte.
 *
 * Texts are joined by a line feed: parts of an output are a command's words and
 * its result.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_responses_private.h"


#define ngx_modelgw_responses_comma(out, n)                                   \
    if ((n)++) {                                                              \
        ngx_modelgw_out_text(out, ",");                                       \
    }

/* before ends with a colon */

#define ngx_modelgw_responses_raw(rq, node, before, out)                      \
    if (node) {                                                               \
        ngx_modelgw_out_text(out, before);                                    \
        ngx_modelgw_request_raw(rq, node, out);                               \
    }


static void ngx_modelgw_responses_chat_turns(ngx_modelgw_request_plan_t *plan,
    ngx_modelgw_out_t *out);
static void ngx_modelgw_responses_chat_assistant(
    ngx_modelgw_request_turn_t *turn, ngx_modelgw_out_t *out);
static ngx_uint_t ngx_modelgw_responses_chat_texts(ngx_array_t *blocks,
    ngx_modelgw_out_t *out);
static void ngx_modelgw_responses_chat_call(ngx_modelgw_request_block_t *block,
    ngx_modelgw_out_t *out);
static void ngx_modelgw_responses_chat_results(ngx_array_t *results,
    ngx_modelgw_out_t *out);
static void ngx_modelgw_responses_chat_result_media(ngx_array_t *results,
    ngx_modelgw_out_t *out);
static void ngx_modelgw_responses_chat_content(ngx_array_t *blocks,
    ngx_modelgw_out_t *out);
static void ngx_modelgw_responses_chat_part(ngx_modelgw_request_block_t *block,
    ngx_modelgw_out_t *out);
static void ngx_modelgw_responses_chat_tools(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);
static void ngx_modelgw_responses_chat_choice(ngx_modelgw_request_plan_t *plan,
    ngx_modelgw_out_t *out);
static void ngx_modelgw_responses_chat_params(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);
static void ngx_modelgw_responses_chat_format(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);


void
ngx_modelgw_responses_chat_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out)
{
    ngx_modelgw_out_text(out, "{\"model\":\"");
    ngx_modelgw_out(out, rq->model.data, rq->model.len);
    ngx_modelgw_out_text(out, "\",\"messages\":[");

    ngx_modelgw_responses_chat_turns(plan, out);

    ngx_modelgw_out_text(out, "]");

    ngx_modelgw_responses_chat_tools(rq, plan, out);
    ngx_modelgw_responses_chat_params(rq, plan, out);

    if (plan->stream) {
        ngx_modelgw_out_text(out, ",\"stream\":true,"
                                  "\"stream_options\":"
                                  "{\"include_usage\":true}");
    }

    ngx_modelgw_out_text(out, "}");
}


static void
ngx_modelgw_responses_chat_turns(ngx_modelgw_request_plan_t *plan,
    ngx_modelgw_out_t *out)
{
    ngx_uint_t                   i;
    ngx_modelgw_request_turn_t  *turn;

    turn = plan->turns.turns.elts;

    for (i = 0; i < plan->turns.turns.nelts; i++) {

        if (i) {
            ngx_modelgw_out_text(out, ",");
        }

        switch (turn[i].role) {

        case NGX_MODELGW_TURN_ASSISTANT:
            ngx_modelgw_responses_chat_assistant(&turn[i], out);
            break;

        case NGX_MODELGW_TURN_SYSTEM:
            ngx_modelgw_out_text(out, "{\"role\":\"system\",\"content\":");
            ngx_modelgw_responses_chat_content(&turn[i].blocks, out);
            ngx_modelgw_out_text(out, "}");
            break;

        default: /* NGX_MODELGW_TURN_USER */
            ngx_modelgw_out_text(out, "{\"role\":\"user\",\"content\":");
            ngx_modelgw_responses_chat_content(&turn[i].blocks, out);
            ngx_modelgw_out_text(out, "}");
            break;
        }
    }
}


static void
ngx_modelgw_responses_chat_assistant(ngx_modelgw_request_turn_t *turn,
    ngx_modelgw_out_t *out)
{
    ngx_uint_t                    i, n;
    ngx_modelgw_request_block_t  *block;

    ngx_modelgw_out_text(out, "{\"role\":\"assistant\",\"content\":");

    if (ngx_modelgw_responses_chat_texts(&turn->blocks, out) == 0) {
        ngx_modelgw_out_text(out, "null");
    }

    block = turn->blocks.elts;

    for (i = 0, n = 0; i < turn->blocks.nelts; i++) {

        if (block[i].kind != NGX_MODELGW_BLOCK_TOOL_USE) {
            continue;
        }

        if (n++ == 0) {
            ngx_modelgw_out_text(out, ",\"tool_calls\":[");

        } else {
            ngx_modelgw_out_text(out, ",");
        }

        ngx_modelgw_responses_chat_call(&block[i], out);
    }

    if (n) {
        ngx_modelgw_out_text(out, "]");
    }

    ngx_modelgw_out_text(out, "}");

    if (turn->results) {
        ngx_modelgw_responses_chat_results(turn->results, out);
    }
}


/* writes texts as a string; nothing, and returns 0, if there are none */

static ngx_uint_t
ngx_modelgw_responses_chat_texts(ngx_array_t *blocks, ngx_modelgw_out_t *out)
{
    ngx_uint_t                    i, n;
    ngx_modelgw_request_block_t  *block;

    block = blocks->elts;

    for (i = 0, n = 0; i < blocks->nelts; i++) {

        if (block[i].kind != NGX_MODELGW_BLOCK_TEXT) {
            continue;
        }

        if (n++ == 0) {
            ngx_modelgw_out_text(out, "\"");

        } else {
            ngx_modelgw_out_text(out, "\\n");
        }

        ngx_modelgw_out_borrowed(out, block[i].value.data, block[i].value.len);
    }

    if (n) {
        ngx_modelgw_out_text(out, "\"");
    }

    return n;
}


/* arguments are a string here: what is the inside of one is written as it is */

static void
ngx_modelgw_responses_chat_call(ngx_modelgw_request_block_t *block,
    ngx_modelgw_out_t *out)
{
    ngx_modelgw_request_block_string(out, "{\"id\":\"", &block->id);
    ngx_modelgw_request_block_string(out, ",\"type\":\"function\","
                                          "\"function\":{\"name\":\"",
                                     &block->name);
    ngx_modelgw_out_text(out, ",\"arguments\":\"");

    switch (block->source) {

    case NGX_MODELGW_CALL_STRING:
        ngx_modelgw_out_borrowed(out, block->value.data, block->value.len);
        break;

    case NGX_MODELGW_CALL_INPUT:
        ngx_modelgw_out_text(out, "{\\\"input\\\":\\\"");
        ngx_modelgw_out_escaped(out, block->value.data, block->value.len);
        ngx_modelgw_out_text(out, "\\\"}");
        break;

    default: /* NGX_MODELGW_CALL_OBJECT */
        ngx_modelgw_out_escaped(out, block->value.data, block->value.len);
        break;
    }

    ngx_modelgw_out_text(out, "\"}}");
}


static void
ngx_modelgw_responses_chat_results(ngx_array_t *results,
    ngx_modelgw_out_t *out)
{
    ngx_uint_t                    i;
    ngx_modelgw_request_block_t  *result;

    result = results->elts;

    for (i = 0; i < results->nelts; i++) {
        ngx_modelgw_request_block_string(out, ",{\"role\":\"tool\","
                                              "\"tool_call_id\":\"",
                                         &result[i].id);
        ngx_modelgw_out_text(out, ",\"content\":");

        if (result[i].content == NULL) {
            ngx_modelgw_request_block_string(out, "\"", &result[i].value);

        } else if (ngx_modelgw_responses_chat_texts(result[i].content, out)
                   == 0)
        {
            ngx_modelgw_out_text(out, "\"\"");
        }

        ngx_modelgw_out_text(out, "}");
    }

    ngx_modelgw_responses_chat_result_media(results, out);
}


static void
ngx_modelgw_responses_chat_result_media(ngx_array_t *results,
    ngx_modelgw_out_t *out)
{
    ngx_uint_t                    i, k, n;
    ngx_modelgw_request_block_t  *result, *block;

    n = 0;
    result = results->elts;

    for (i = 0; i < results->nelts; i++) {

        if (result[i].content == NULL) {
            continue;
        }

        block = result[i].content->elts;

        for (k = 0; k < result[i].content->nelts; k++) {

            if (block[k].kind == NGX_MODELGW_BLOCK_TEXT) {
                continue;
            }

            if (n++ == 0) {
                ngx_modelgw_out_text(out, ",{\"role\":\"user\","
                                          "\"content\":[");

            } else {
                ngx_modelgw_out_text(out, ",");
            }

            ngx_modelgw_responses_chat_part(&block[k], out);
        }
    }

    if (n) {
        ngx_modelgw_out_text(out, "]}");
    }
}


/* a single text is a string, as many upstreams know no parts */

static void
ngx_modelgw_responses_chat_content(ngx_array_t *blocks, ngx_modelgw_out_t *out)
{
    ngx_uint_t                    i;
    ngx_modelgw_request_block_t  *block;

    block = blocks->elts;

    if (blocks->nelts == 1 && block->kind == NGX_MODELGW_BLOCK_TEXT) {
        (void) ngx_modelgw_responses_chat_texts(blocks, out);
        return;
    }

    ngx_modelgw_out_text(out, "[");

    for (i = 0; i < blocks->nelts; i++) {

        if (i) {
            ngx_modelgw_out_text(out, ",");
        }

        ngx_modelgw_responses_chat_part(&block[i], out);
    }

    ngx_modelgw_out_text(out, "]");
}


static void
ngx_modelgw_responses_chat_part(ngx_modelgw_request_block_t *block,
    ngx_modelgw_out_t *out)
{
    switch (block->kind) {

    case NGX_MODELGW_BLOCK_IMAGE:
        ngx_modelgw_request_block_string(out, "{\"type\":\"image_url\","
                                              "\"image_url\":{\"url\":\"",
                                         &block->value);

        if (block->name.len) {
            ngx_modelgw_request_block_string(out, ",\"detail\":\"",
                                             &block->name);
        }

        ngx_modelgw_out_text(out, "}}");
        break;

    case NGX_MODELGW_BLOCK_DOCUMENT:
        ngx_modelgw_request_block_string(out, "{\"type\":\"file\",\"file\":"
                                              "{\"file_data\":\"",
                                         &block->value);

        if (block->name.len) {
            ngx_modelgw_request_block_string(out, ",\"filename\":\"",
                                             &block->name);
        }

        ngx_modelgw_out_text(out, "}}");
        break;

    default: /* NGX_MODELGW_BLOCK_TEXT */
        ngx_modelgw_request_block_string(out, "{\"type\":\"text\",\"text\":\"",
                                         &block->value);
        ngx_modelgw_out_text(out, "}");
        break;
    }
}


/* an upstream refuses a choice without tools, and parallel_tool_calls, too */

static void
ngx_modelgw_responses_chat_tools(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out)
{
    ngx_uint_t                   i, n;
    ngx_modelgw_request_tool_t  *tool;

    if (plan->tools.list.nelts == 0) {
        return;
    }

    tool = plan->tools.list.elts;

    ngx_modelgw_out_text(out, ",\"tools\":[");

    for (i = 0, n = 0; i < plan->tools.list.nelts; i++) {

        if (tool[i].left_out) {
            continue;
        }

        ngx_modelgw_responses_comma(out, n);

        ngx_modelgw_request_block_string(out, "{\"type\":\"function\","
                                              "\"function\":{\"name\":\"",
                                         &tool[i].name);
        ngx_modelgw_request_tool_write_details(rq, &tool[i],
                                               ",\"parameters\":", out);
        ngx_modelgw_out_text(out, "}}");
    }

    ngx_modelgw_out_text(out, "]");

    ngx_modelgw_responses_chat_choice(plan, out);

    ngx_modelgw_responses_raw(rq, plan->fields.parallel_tool_calls,
                              ",\"parallel_tool_calls\":", out);
}


static void
ngx_modelgw_responses_chat_choice(ngx_modelgw_request_plan_t *plan,
    ngx_modelgw_out_t *out)
{
    if (plan->fields.tool_choice == NULL) {
        return;
    }

    switch (plan->tools.choice) {

    case NGX_MODELGW_REQUEST_CHOICE_NONE:
        ngx_modelgw_out_text(out, ",\"tool_choice\":\"none\"");
        break;

    case NGX_MODELGW_REQUEST_CHOICE_ANY:
        ngx_modelgw_out_text(out, ",\"tool_choice\":\"required\"");
        break;

    case NGX_MODELGW_REQUEST_CHOICE_TOOL:
        ngx_modelgw_request_block_string(out, ",\"tool_choice\":"
                                              "{\"type\":\"function\","
                                              "\"function\":{\"name\":\"",
                                         &plan->tools.name);
        ngx_modelgw_out_text(out, "}}");
        break;

    default: /* NGX_MODELGW_REQUEST_CHOICE_DEFAULT, _AUTO */
        ngx_modelgw_out_text(out, ",\"tool_choice\":\"auto\"");
        break;
    }
}


static void
ngx_modelgw_responses_chat_params(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out)
{
    ngx_modelgw_node_t            *node;
    ngx_modelgw_request_fields_t  *fields;

    fields = &plan->fields;

    if (rq->caps->chat_limit == NGX_MODELGW_CHAT_LIMIT_TOKENS) {
        ngx_modelgw_responses_raw(rq, fields->max_output_tokens,
                                  ",\"max_tokens\":", out);

    } else {
        ngx_modelgw_responses_raw(rq, fields->max_output_tokens,
                                  ",\"max_completion_tokens\":", out);
    }

    ngx_modelgw_responses_raw(rq, fields->temperature, ",\"temperature\":",
                              out);
    ngx_modelgw_responses_raw(rq, fields->top_p, ",\"top_p\":", out);
    ngx_modelgw_responses_raw(rq, fields->user, ",\"user\":", out);
    ngx_modelgw_responses_raw(rq, fields->safety_identifier,
                              ",\"safety_identifier\":", out);

    if (plan->call->effort.len) {
        ngx_modelgw_out_text(out, ",\"reasoning_effort\":");
        ngx_modelgw_out_borrowed(out, plan->call->effort.data,
                                 plan->call->effort.len);
    }

    node = ngx_modelgw_request_member(rq, fields->text, "verbosity");

    if (!ngx_modelgw_request_absent(node)) {
        ngx_modelgw_responses_raw(rq, node, ",\"verbosity\":", out);
    }

    ngx_modelgw_responses_chat_format(rq, plan, out);
}


static void
ngx_modelgw_responses_chat_format(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out)
{
    ngx_uint_t           i, n;
    ngx_modelgw_node_t  *format, *node;

    static const char  *members[] = { "name", "description", "strict" };

    if (plan->json_object) {
        ngx_modelgw_out_text(out, ",\"response_format\":"
                                  "{\"type\":\"json_object\"}");
        return;
    }

    if (plan->schema == NULL) {
        return;
    }

    format = ngx_modelgw_request_member(rq, plan->fields.text, "format");

    ngx_modelgw_out_text(out, ",\"response_format\":{\"type\":\"json_schema\","
                              "\"json_schema\":{\"schema\":");
    ngx_modelgw_request_raw(rq, plan->schema, out);

    n = sizeof(members) / sizeof(members[0]);

    for (i = 0; i < n; i++) {
        node = ngx_modelgw_request_member(rq, format, members[i]);

        if (!ngx_modelgw_request_absent(node)) {
            ngx_modelgw_out_text(out, ",\"");
            ngx_modelgw_out(out, (u_char *) members[i],
                            ngx_strlen(members[i]));
            ngx_modelgw_out_text(out, "\":");
            ngx_modelgw_request_raw(rq, node, out);
        }
    }

    ngx_modelgw_out_text(out, "}}");
}
