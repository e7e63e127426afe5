
/*
 * thinking, the extension of chat: the client says it in the words of the
 * messages API itself, and if the model can think that is what it gets.  Only
 * the members that are known are sent, those that fit the type.
 *
 * How it goes with reasoning_effort, with the tools and with max_tokens is
 * decided in request_reasoning.c; what comes of it is written here, whichever
 * field it came from.
 *
 * Rejected: to make a budget fit that the upstream would refuse.  A client that
 * knows this field means its number.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


static ngx_int_t ngx_modelgw_request_thinking_details(
    ngx_modelgw_request_t *rq, ngx_modelgw_node_t *thinking,
    ngx_modelgw_request_reasoning_t *r);


ngx_int_t
ngx_modelgw_request_thinking_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    ngx_modelgw_node_t               *type, *thinking;
    ngx_modelgw_request_reasoning_t  *r;

    r = &plan->reasoning;
    thinking = plan->fields.thinking;

    if (thinking == NULL) {
        return NGX_OK;
    }

    type = ngx_modelgw_request_member(rq, thinking, "type");

    if (ngx_modelgw_tape_is(rq->tape, type, "disabled")) {
        r->thinking = NGX_MODELGW_REQUEST_THINKING_DISABLED;
        return NGX_OK;
    }

    if (ngx_modelgw_tape_is(rq->tape, type, "adaptive")) {
        r->thinking = NGX_MODELGW_REQUEST_THINKING_ADAPTIVE;

    } else if (ngx_modelgw_tape_is(rq->tape, type, "enabled")) {
        r->thinking = NGX_MODELGW_REQUEST_THINKING_ENABLED;

    } else {
        return ngx_modelgw_request_invalid(rq,
                             "thinking.type must be \"enabled\", \"adaptive\" "
                             "or \"disabled\"");
    }

    return ngx_modelgw_request_thinking_details(rq, thinking, r);
}


static ngx_int_t
ngx_modelgw_request_thinking_details(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *thinking, ngx_modelgw_request_reasoning_t *r)
{
    ngx_modelgw_node_t  *node;

    node = ngx_modelgw_request_member(rq, thinking, "display");

    if (ngx_modelgw_request_string(node)) {
        r->display = node;

    } else if (!ngx_modelgw_request_absent(node)) {
        return ngx_modelgw_request_invalid(rq,
                                           "thinking.display must be a string");
    }

    if (r->thinking != NGX_MODELGW_REQUEST_THINKING_ENABLED) {
        return NGX_OK;
    }

    node = ngx_modelgw_request_member(rq, thinking, "budget_tokens");

    if (node && ngx_modelgw_tape_count(rq->tape, node, &r->budget)
        && r->budget >= NGX_MODELGW_REQUEST_BUDGET)
    {
        return NGX_OK;
    }

    return ngx_modelgw_request_invalid(rq,
                             "thinking.budget_tokens must be an integer of at "
                             "least %d", NGX_MODELGW_REQUEST_BUDGET);
}


void
ngx_modelgw_request_thinking_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out)
{
    ngx_modelgw_request_reasoning_t  *r;

    r = &plan->reasoning;

    switch (r->thinking) {

    case NGX_MODELGW_REQUEST_THINKING_DEFAULT:
        return;

    case NGX_MODELGW_REQUEST_THINKING_DISABLED:
        ngx_modelgw_out_text(out, ",\"thinking\":{\"type\":\"disabled\"");
        break;

    case NGX_MODELGW_REQUEST_THINKING_ADAPTIVE:
        ngx_modelgw_out_text(out, ",\"thinking\":{\"type\":\"adaptive\"");
        break;

    default: /* NGX_MODELGW_REQUEST_THINKING_ENABLED */
        ngx_modelgw_out_text(out, ",\"thinking\":{\"type\":\"enabled\","
                                  "\"budget_tokens\":");
        ngx_modelgw_out_number(out, r->budget);
        break;
    }

    if (r->display) {
        ngx_modelgw_out_text(out, ",\"display\":");
        ngx_modelgw_request_raw(rq, r->display, out);
    }

    ngx_modelgw_out_text(out, "}");
}
