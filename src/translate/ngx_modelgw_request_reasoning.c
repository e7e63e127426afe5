
/*
 * How much the model may think, and how much it may write (translate.md, 2.5):
 * reasoning_effort, with the extension "thinking", and max_tokens.
 *
 * Models know thinking in three ways.  With a budget, which is a part of
 * max_tokens: if the client set no limit the budget is added to the default,
 * so that thinking does not eat the answer.  Adaptive: the model decides, an
 * effort tells how eagerly.  Adaptive only: the same, and it cannot be told to
 * have a budget, or to be off.
 *
 * Upstreams refuse thinking together with a call that is forced, and with a
 * budget in a loop of tools whose assistant turns lost their signed thinking,
 * as they do with most chat clients.  Then the answer matters more than the
 * thinking: it is left out, and said to be ignored.
 *
 * Rejected: budgets in proportion to max_tokens.  The same effort would mean
 * something else in each call.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


/*
 * The levels of reasoning_effort.  An effort is sent if the model lists it,
 * else its second choice if it lists that, else none.
 */
typedef struct {
    ngx_str_t             name;
    ngx_uint_t            budget;
    ngx_uint_t            effort;
    ngx_uint_t            second;
} ngx_modelgw_request_level_t;


static ngx_int_t ngx_modelgw_request_reasoning_limit(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_fields_t *fields, ngx_uint_t *limit);
static ngx_int_t ngx_modelgw_request_reasoning_level(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, ngx_modelgw_request_level_t **level);
static ngx_int_t ngx_modelgw_request_reasoning_choose(
    ngx_modelgw_request_t *rq, ngx_modelgw_request_plan_t *plan,
    ngx_modelgw_request_level_t *level);
static ngx_int_t ngx_modelgw_request_reasoning_adapt(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
static ngx_int_t ngx_modelgw_request_reasoning_apply(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_level_t *level);
static ngx_str_t *ngx_modelgw_request_reasoning_effort(
    ngx_modelgw_request_t *rq, ngx_modelgw_request_level_t *level);
static ngx_str_t *ngx_modelgw_request_reasoning_lowest(
    ngx_modelgw_request_t *rq);
static ngx_int_t ngx_modelgw_request_reasoning_settle(
    ngx_modelgw_request_t *rq, ngx_modelgw_request_plan_t *plan,
    ngx_uint_t limit);
static ngx_int_t ngx_modelgw_request_reasoning_drop(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
static ngx_uint_t ngx_modelgw_request_reasoning_tokens(
    ngx_modelgw_request_t *rq, ngx_uint_t budget, ngx_uint_t limit);


/* from the lowest to the highest */

static ngx_modelgw_request_level_t  ngx_modelgw_request_levels[] = {

    { ngx_string("none"), 0, 0, 0 },

    { ngx_string("minimal"), 1024,
      NGX_MODELGW_EFFORT_MINIMAL, NGX_MODELGW_EFFORT_LOW },

    { ngx_string("low"), 1024, NGX_MODELGW_EFFORT_LOW, 0 },
    { ngx_string("medium"), 2048, NGX_MODELGW_EFFORT_MEDIUM, 0 },
    { ngx_string("high"), 4096, NGX_MODELGW_EFFORT_HIGH, 0 },

    { ngx_string("xhigh"), 8192,
      NGX_MODELGW_EFFORT_XHIGH, NGX_MODELGW_EFFORT_HIGH },

    { ngx_string("max"), 16384,
      NGX_MODELGW_EFFORT_MAX, NGX_MODELGW_EFFORT_HIGH },

    { ngx_null_string, 0, 0, 0 }
};


ngx_int_t
ngx_modelgw_request_reasoning_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    ngx_int_t                      rc;
    ngx_uint_t                     limit;
    ngx_modelgw_request_level_t   *level;
    ngx_modelgw_request_fields_t  *fields;

    fields = &plan->fields;

    rc = ngx_modelgw_request_reasoning_limit(rq, fields, &limit);

    if (rc != NGX_OK) {
        return rc;
    }

    rc = ngx_modelgw_request_reasoning_level(rq, fields->reasoning_effort,
                                             &level);
    if (rc != NGX_OK) {
        return rc;
    }

    rc = ngx_modelgw_request_reasoning_choose(rq, plan, level);

    if (rc != NGX_OK) {
        return rc;
    }

    return ngx_modelgw_request_reasoning_settle(rq, plan, limit);
}


/* the client's limit of tokens, 0: none */

static ngx_int_t
ngx_modelgw_request_reasoning_limit(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_fields_t *fields, ngx_uint_t *limit)
{
    ngx_uint_t           i;
    ngx_modelgw_node_t  *nodes[2];

    static const char  *names[2] = { "max_tokens", "max_completion_tokens" };

    nodes[0] = fields->max_tokens;
    nodes[1] = fields->max_completion_tokens;

    *limit = 0;

    for (i = 0; i < 2; i++) {

        if (nodes[i] == NULL) {
            continue;
        }

        if (!ngx_modelgw_tape_count(rq->tape, nodes[i], limit)
            || *limit == 0)
        {
            return ngx_modelgw_request_invalid(rq,
                             "\"%s\" must be an integer from 1 to 999999999",
                             names[i]);
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_reasoning_level(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, ngx_modelgw_request_level_t **level)
{
    ngx_str_t                     text;
    ngx_modelgw_request_level_t  *l;

    *level = NULL;

    if (node == NULL) {
        return NGX_OK;
    }

    for (l = ngx_modelgw_request_levels; l->name.len; l++) {

        if (ngx_modelgw_tape_is(rq->tape, node, (char *) l->name.data)) {
            *level = l;
            return NGX_OK;
        }
    }

    if (ngx_modelgw_request_quote(rq, node, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_modelgw_request_invalid(rq,
                             "\"reasoning_effort\" of \"%V\" is not known",
                             &text);
}


/* the extension wins over the effort, if the model can think */

static ngx_int_t
ngx_modelgw_request_reasoning_choose(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_level_t *level)
{
    ngx_int_t                         rc;
    ngx_modelgw_node_t               *thinking;
    ngx_modelgw_request_reasoning_t  *r;

    r = &plan->reasoning;
    thinking = plan->fields.thinking;

    if (thinking && rq->caps->thinking == NGX_MODELGW_THINKING_NONE) {
        ngx_memzero(r, sizeof(ngx_modelgw_request_reasoning_t));
        plan->fields.thinking = NULL;

        rc = ngx_modelgw_request_fields_ignore(rq, "thinking");

        if (rc != NGX_OK) {
            return rc;
        }

        thinking = NULL;
    }

    if (thinking == NULL) {
        return level ? ngx_modelgw_request_reasoning_apply(rq, plan, level)
                     : NGX_OK;
    }

    if (level) {
        rc = ngx_modelgw_request_fields_ignore(rq, "reasoning_effort");

        if (rc != NGX_OK) {
            return rc;
        }
    }

    return ngx_modelgw_request_reasoning_adapt(rq, plan);
}


/* what the client wants, to a model that takes nothing but "adaptive" */

static ngx_int_t
ngx_modelgw_request_reasoning_adapt(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    ngx_modelgw_request_reasoning_t  *r;

    r = &plan->reasoning;

    if (rq->caps->thinking != NGX_MODELGW_THINKING_ADAPTIVE_ONLY) {
        return NGX_OK;
    }

    if (r->thinking != NGX_MODELGW_REQUEST_THINKING_DISABLED) {
        r->thinking = NGX_MODELGW_REQUEST_THINKING_ADAPTIVE;
        return NGX_OK;
    }

    r->thinking = NGX_MODELGW_REQUEST_THINKING_DEFAULT;
    r->effort = ngx_modelgw_request_reasoning_lowest(rq);

    return ngx_modelgw_request_reasoning_drop(rq, plan);
}


/* reasoning_effort, by what the model has */

static ngx_int_t
ngx_modelgw_request_reasoning_apply(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_level_t *level)
{
    ngx_uint_t                        none;
    ngx_modelgw_request_reasoning_t  *r;

    r = &plan->reasoning;
    none = (level->budget == 0);

    switch (rq->caps->thinking) {

    case NGX_MODELGW_THINKING_BUDGET:

        if (!none) {
            r->thinking = NGX_MODELGW_REQUEST_THINKING_ENABLED;
            r->budget = level->budget;
        }

        return NGX_OK;

    case NGX_MODELGW_THINKING_ADAPTIVE:

        if (none) {
            r->thinking = NGX_MODELGW_REQUEST_THINKING_DISABLED;
            return NGX_OK;
        }

        break;

    case NGX_MODELGW_THINKING_ADAPTIVE_ONLY:

        if (none) {
            r->thinking = NGX_MODELGW_REQUEST_THINKING_DISABLED;
            return ngx_modelgw_request_reasoning_adapt(rq, plan);
        }

        break;

    default: /* NGX_MODELGW_THINKING_NONE */

        if (none) {
            return NGX_OK;
        }

        r->effort = ngx_modelgw_request_reasoning_effort(rq, level);

        return ngx_modelgw_request_reasoning_drop(rq, plan);
    }

    r->thinking = NGX_MODELGW_REQUEST_THINKING_ADAPTIVE;
    r->effort = ngx_modelgw_request_reasoning_effort(rq, level);

    return NGX_OK;
}


static ngx_str_t *
ngx_modelgw_request_reasoning_effort(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_level_t *level)
{
    ngx_uint_t  effort, known;

    known = rq->caps->effort;

    /* adaptive thinking has these, listed or not */

    if (rq->caps->thinking == NGX_MODELGW_THINKING_ADAPTIVE
        || rq->caps->thinking == NGX_MODELGW_THINKING_ADAPTIVE_ONLY)
    {
        known |= NGX_MODELGW_EFFORT_LOW|NGX_MODELGW_EFFORT_MEDIUM
                 |NGX_MODELGW_EFFORT_HIGH;
    }

    effort = (known & level->effort) ? level->effort : level->second;

    if (!(known & effort)) {
        return NULL;
    }

    for (level = ngx_modelgw_request_levels;
         level->effort != effort;
         level++) { /* void */ }

    return &level->name;
}


static ngx_str_t *
ngx_modelgw_request_reasoning_lowest(ngx_modelgw_request_t *rq)
{
    ngx_modelgw_request_level_t  *level;

    for (level = ngx_modelgw_request_levels; level->name.len; level++) {

        if (rq->caps->effort & level->effort) {
            return &level->name;
        }
    }

    return NULL;
}


/* thinking with the rest of the request, and max_tokens */

static ngx_int_t
ngx_modelgw_request_reasoning_settle(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_uint_t limit)
{
    ngx_modelgw_request_reasoning_t  *r;

    r = &plan->reasoning;
    rq->max_tokens = ngx_modelgw_request_reasoning_tokens(rq, 0, limit);

    if (r->thinking >= NGX_MODELGW_REQUEST_THINKING_ADAPTIVE
        && plan->tools.choice >= NGX_MODELGW_REQUEST_CHOICE_ANY)
    {
        return ngx_modelgw_request_reasoning_drop(rq, plan);
    }

    if (r->thinking != NGX_MODELGW_REQUEST_THINKING_ENABLED) {
        return NGX_OK;
    }

    if (plan->turns.unsigned_turn) {
        return ngx_modelgw_request_reasoning_drop(rq, plan);
    }

    limit = ngx_modelgw_request_reasoning_tokens(rq, r->budget, limit);

    if (r->budget >= limit) {

        if (plan->fields.thinking) {
            return ngx_modelgw_request_invalid(rq,
                             "thinking.budget_tokens must be less than the "
                             "%ui tokens of the answer", limit);
        }

        r->budget = limit - 1;
    }

    if (r->budget < NGX_MODELGW_REQUEST_BUDGET) {
        return ngx_modelgw_request_reasoning_drop(rq, plan);
    }

    rq->max_tokens = limit;

    return NGX_OK;
}


/* no thinking; an effort works without it, too */

static ngx_int_t
ngx_modelgw_request_reasoning_drop(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    plan->reasoning.thinking = NGX_MODELGW_REQUEST_THINKING_DEFAULT;

    if (plan->reasoning.effort) {
        return NGX_OK;
    }

    return ngx_modelgw_request_fields_ignore(rq,
                                             plan->fields.thinking ? "thinking"
                                                       : "reasoning_effort");
}


/* max_tokens: as the client says, else the default and the budget */

static ngx_uint_t
ngx_modelgw_request_reasoning_tokens(ngx_modelgw_request_t *rq,
    ngx_uint_t budget, ngx_uint_t limit)
{
    if (limit) {
        return limit;
    }

    limit = rq->caps->default_max_tokens + budget;

    if (rq->max_output) {
        limit = ngx_min(limit, rq->max_output);
    }

    return ngx_max(limit, 1);
}
