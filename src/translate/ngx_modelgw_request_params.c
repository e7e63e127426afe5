
/*
 * How much the model may think and write, and how the answer is sampled:
 * thinking, reasoning_effort, max_tokens, max_completion_tokens, temperature,
 * top_p, top_k, stop.
 *
 * Models think in three ways.  With a budget, which is a part of max_tokens: if
 * the client set no limit the budget is added to the default, so that thinking
 * does not eat the answer.  Adaptive: the model decides, guided by an effort.
 * Adaptive only: the same, and the model accepts neither a budget nor
 * "disabled".
 *
 * "thinking" is an extension of chat in the words of the messages API; it wins
 * over reasoning_effort if the model can think.  Only its known members are
 * sent, those that fit the type.
 *
 * Upstreams refuse thinking together with a forced call, and with a budget in a
 * tool loop whose assistant turns have lost their signed thinking, which most
 * chat clients do not send back.  The answer matters more than the thinking
 * then: thinking is left out and reported as ignored.
 *
 * Some models take temperature or top_p but not both, some neither, and none
 * takes them while it thinks; what cannot be sent is reported as ignored.  A
 * temperature or top_p of 1 is the upstream's default: its loss is not
 * reported.
 *
 * Numbers reach the upstream as they were written.  Their ranges are checked on
 * the text, digit by digit: exact for any length and exponent, and as short as
 * a checked conversion to double.
 *
 * Rejected: budgets in proportion to max_tokens.  The same effort would mean
 * something else in each call.
 *
 * Rejected: adjusting a client's budget that the upstream would refuse.  A
 * client that uses this field means its number.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


/* the smallest budget that an upstream accepts, tokens */
#define NGX_MODELGW_REQUEST_BUDGET    1024

/* exponents of numbers are cut off here; more than the digits of any body */
#define NGX_MODELGW_REQUEST_EXPONENT  ((int64_t) 1 << 40)


/* from ADAPTIVE on the model thinks */

enum {
    NGX_MODELGW_REQUEST_THINKING_DEFAULT = 0,          /* nothing is sent */
    NGX_MODELGW_REQUEST_THINKING_DISABLED,
    NGX_MODELGW_REQUEST_THINKING_ADAPTIVE,
    NGX_MODELGW_REQUEST_THINKING_ENABLED               /* with a budget */
};


/*
 * The levels of reasoning_effort.  The effort is sent if the model lists it,
 * else the second choice if the model lists that, else none.
 */
struct ngx_modelgw_request_level_s {
    ngx_str_t             name;
    ngx_uint_t            budget;        /* tokens; 0: no thinking */
    ngx_uint_t            effort;
    ngx_uint_t            second;
};


static ngx_int_t ngx_modelgw_request_thinking(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *thinking);
static ngx_int_t ngx_modelgw_request_thinking_details(
    ngx_modelgw_request_t *rq, ngx_modelgw_node_t *thinking,
    ngx_modelgw_request_reasoning_t *r);
static ngx_int_t ngx_modelgw_request_reasoning_choose(
    ngx_modelgw_request_t *rq, ngx_modelgw_request_plan_t *plan);
static void ngx_modelgw_request_reasoning_apply(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_reasoning_t *r, ngx_modelgw_request_level_t *level);
static ngx_str_t *ngx_modelgw_request_reasoning_effort(
    ngx_modelgw_request_t *rq, ngx_modelgw_request_level_t *level);
static ngx_int_t ngx_modelgw_request_reasoning_adapt(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
static ngx_int_t ngx_modelgw_request_reasoning_budget(
    ngx_modelgw_request_t *rq, ngx_modelgw_request_plan_t *plan);
static ngx_int_t ngx_modelgw_request_reasoning_drop(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
static ngx_uint_t ngx_modelgw_request_tokens(ngx_modelgw_request_t *rq,
    ngx_uint_t budget, ngx_uint_t limit);
static ngx_int_t ngx_modelgw_request_range(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_field_t *field, ngx_modelgw_node_t *value,
    ngx_uint_t max);
static ngx_int_t ngx_modelgw_request_top_k(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value);
static ngx_int_t ngx_modelgw_request_stop(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *stop);
static ngx_int_t ngx_modelgw_request_sampling_drop(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t **node, const char *name, ngx_uint_t unity);
static ngx_int_t ngx_modelgw_request_compare(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, ngx_uint_t n);
static int64_t ngx_modelgw_request_exponent(u_char *p, u_char *last);
static void ngx_modelgw_request_stops_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *stop, ngx_modelgw_out_t *out);


ngx_modelgw_request_field_t  ngx_modelgw_request_params_fields[] = {

    ngx_modelgw_request_field(thinking, OBJECT, ngx_modelgw_request_thinking),
    ngx_modelgw_request_field(max_tokens, NUMBER, ngx_modelgw_request_limit),
    ngx_modelgw_request_field(max_completion_tokens, NUMBER,
                              ngx_modelgw_request_limit),
    ngx_modelgw_request_field(reasoning_effort, STRING,
                              ngx_modelgw_request_effort),

    ngx_modelgw_request_step(ngx_modelgw_request_reasoning),

    ngx_modelgw_request_field(temperature, NUMBER,
                              ngx_modelgw_request_temperature),
    ngx_modelgw_request_field(top_p, NUMBER, ngx_modelgw_request_top_p),
    ngx_modelgw_request_field(top_k, NUMBER, ngx_modelgw_request_top_k),
    ngx_modelgw_request_field(stop, STRINGS, ngx_modelgw_request_stop),

    ngx_modelgw_request_step(ngx_modelgw_request_sampling),

    ngx_modelgw_request_fields_end
};


/* from the lowest to the highest; what comes next to "none" is "minimal" */

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


static ngx_int_t
ngx_modelgw_request_thinking(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *thinking)
{
    ngx_modelgw_node_t               *type;
    ngx_modelgw_request_reasoning_t  *r;

    r = &plan->reasoning;
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
        ngx_modelgw_tape_raw(rq->tape, node, &r->display);

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


/* max_completion_tokens is read last and wins */

ngx_int_t
ngx_modelgw_request_limit(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *limit)
{
    if (ngx_modelgw_tape_count(rq->tape, limit, &plan->limit)
        && plan->limit > 0)
    {
        return NGX_OK;
    }

    return ngx_modelgw_request_invalid(rq,
                             "\"%V\" must be an integer from 1 to 999999999",
                             &field->name);
}


ngx_int_t
ngx_modelgw_request_effort(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value)
{
    ngx_str_t                     text;
    ngx_modelgw_request_level_t  *level;

    for (level = ngx_modelgw_request_levels; level->name.len; level++) {

        if (ngx_modelgw_tape_is(rq->tape, value, (char *) level->name.data)) {
            plan->reasoning.level = level;
            return NGX_OK;
        }
    }

    if (ngx_modelgw_request_quote(rq, value, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_modelgw_request_invalid(rq, "unknown \"%s\" \"%V\"",
                                       plan->form->effort, &text);
}


/* decides thinking and max_tokens, with the rest of the request */

ngx_int_t
ngx_modelgw_request_reasoning(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value)
{
    ngx_int_t                         rc;
    ngx_modelgw_request_reasoning_t  *r;

    r = &plan->reasoning;

    rc = ngx_modelgw_request_reasoning_choose(rq, plan);

    if (rc != NGX_OK) {
        return rc;
    }

    rq->max_tokens = ngx_modelgw_request_tokens(rq, 0, plan->limit);

    if (r->thinking >= NGX_MODELGW_REQUEST_THINKING_ADAPTIVE
        && plan->tools.forced)
    {
        return ngx_modelgw_request_reasoning_drop(rq, plan);
    }

    if (r->thinking != NGX_MODELGW_REQUEST_THINKING_ENABLED) {
        return NGX_OK;
    }

    if (plan->turns.unsigned_turn) {
        return ngx_modelgw_request_reasoning_drop(rq, plan);
    }

    return ngx_modelgw_request_reasoning_budget(rq, plan);
}


/* "thinking" wins over reasoning_effort, if the model can think */

static ngx_int_t
ngx_modelgw_request_reasoning_choose(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    ngx_int_t                         rc;
    ngx_modelgw_request_level_t      *level;
    ngx_modelgw_request_reasoning_t  *r;

    r = &plan->reasoning;
    level = r->level;

    if (plan->fields.thinking
        && rq->caps->thinking == NGX_MODELGW_THINKING_NONE)
    {
        ngx_memzero(r, sizeof(ngx_modelgw_request_reasoning_t));
        plan->fields.thinking = NULL;

        rc = ngx_modelgw_request_ignore(rq, "thinking");

        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (level && plan->fields.thinking) {
        rc = ngx_modelgw_request_ignore(rq, plan->form->effort);

        if (rc != NGX_OK) {
            return rc;
        }

    } else if (level) {
        ngx_modelgw_request_reasoning_apply(rq, r, level);
    }

    return ngx_modelgw_request_reasoning_adapt(rq, plan);
}


/* reasoning_effort, as thinking */

static void
ngx_modelgw_request_reasoning_apply(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_reasoning_t *r, ngx_modelgw_request_level_t *level)
{
    ngx_uint_t  thinking;

    thinking = rq->caps->thinking;

    if (level->budget == 0) {

        /* "none": thinking with a budget is off by default */

        if (thinking != NGX_MODELGW_THINKING_BUDGET
            && thinking != NGX_MODELGW_THINKING_NONE)
        {
            r->thinking = NGX_MODELGW_REQUEST_THINKING_DISABLED;
        }

    } else if (thinking == NGX_MODELGW_THINKING_BUDGET) {
        r->thinking = NGX_MODELGW_REQUEST_THINKING_ENABLED;
        r->budget = level->budget;

    } else {
        r->thinking = NGX_MODELGW_REQUEST_THINKING_ADAPTIVE;
        r->effort = ngx_modelgw_request_reasoning_effort(rq, level);
    }
}


static ngx_str_t *
ngx_modelgw_request_reasoning_effort(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_level_t *level)
{
    ngx_uint_t  effort, known;

    known = rq->caps->effort;

    /* with adaptive thinking these are known even if not listed */

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


/* replaces thinking that the model does not accept */

static ngx_int_t
ngx_modelgw_request_reasoning_adapt(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    ngx_modelgw_request_reasoning_t  *r;

    r = &plan->reasoning;

    if (r->thinking == NGX_MODELGW_REQUEST_THINKING_DEFAULT) {
        return NGX_OK;
    }

    switch (rq->caps->thinking) {

    case NGX_MODELGW_THINKING_NONE:
        return ngx_modelgw_request_reasoning_drop(rq, plan);

    case NGX_MODELGW_THINKING_ADAPTIVE_ONLY:

        if (r->thinking == NGX_MODELGW_REQUEST_THINKING_DISABLED) {
            r->effort = ngx_modelgw_request_reasoning_effort(rq,
                                      &ngx_modelgw_request_levels[1]);
            return ngx_modelgw_request_reasoning_drop(rq, plan);
        }

        r->thinking = NGX_MODELGW_REQUEST_THINKING_ADAPTIVE;

        return NGX_OK;

    default: /* NGX_MODELGW_THINKING_BUDGET, NGX_MODELGW_THINKING_ADAPTIVE */
        return NGX_OK;
    }
}


static ngx_int_t
ngx_modelgw_request_reasoning_budget(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    ngx_uint_t                        tokens;
    ngx_modelgw_request_reasoning_t  *r;

    r = &plan->reasoning;
    tokens = ngx_modelgw_request_tokens(rq, r->budget, plan->limit);

    if (r->budget >= tokens) {

        if (plan->fields.thinking) {
            return ngx_modelgw_request_invalid(rq,
                             "thinking.budget_tokens must be less than the "
                             "%ui tokens of the answer", tokens);
        }

        r->budget = tokens - 1;
    }

    if (r->budget < NGX_MODELGW_REQUEST_BUDGET) {
        return ngx_modelgw_request_reasoning_drop(rq, plan);
    }

    rq->max_tokens = tokens;

    return NGX_OK;
}


/* no thinking; an effort is sent without it, too */

static ngx_int_t
ngx_modelgw_request_reasoning_drop(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    plan->reasoning.thinking = NGX_MODELGW_REQUEST_THINKING_DEFAULT;

    if (plan->reasoning.effort) {
        return NGX_OK;
    }

    return ngx_modelgw_request_ignore(rq, plan->fields.thinking
                                          ? "thinking" : plan->form->effort);
}


/* max_tokens: the client's limit, else the default and the budget */

static ngx_uint_t
ngx_modelgw_request_tokens(ngx_modelgw_request_t *rq, ngx_uint_t budget,
    ngx_uint_t limit)
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


ngx_int_t
ngx_modelgw_request_temperature(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value)
{
    return ngx_modelgw_request_range(rq, field, value, 2);
}


ngx_int_t
ngx_modelgw_request_top_p(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value)
{
    return ngx_modelgw_request_range(rq, field, value, 1);
}


static ngx_int_t
ngx_modelgw_request_range(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_field_t *field, ngx_modelgw_node_t *value,
    ngx_uint_t max)
{
    if (ngx_modelgw_request_compare(rq, value, 0) >= 0
        && ngx_modelgw_request_compare(rq, value, max) <= 0)
    {
        return NGX_OK;
    }

    return ngx_modelgw_request_invalid(rq, "\"%V\" must be from 0 to %ui",
                                       &field->name, max);
}


static ngx_int_t
ngx_modelgw_request_top_k(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value)
{
    ngx_uint_t  n;

    if (ngx_modelgw_tape_count(rq->tape, value, &n)) {
        return NGX_OK;
    }

    return ngx_modelgw_request_invalid(rq,
                     "\"top_k\" must be an integer from 0 to 999999999");
}


static ngx_int_t
ngx_modelgw_request_stop(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *stop)
{
    ngx_uint_t           i;
    ngx_modelgw_node_t  *node;

    /* a string has no first element */

    node = ngx_modelgw_tape_first(rq->tape, stop);

    for (i = 0; node; i++) {

        if (node->type != NGX_MODELGW_TAPE_STRING) {
            return ngx_modelgw_request_invalid(rq, "stop[%ui] must be a string",
                                               i);
        }

        node = ngx_modelgw_tape_next(rq->tape, stop, node);
    }

    return NGX_OK;
}


void
ngx_modelgw_request_show(ngx_modelgw_request_plan_t *plan)
{
    ngx_modelgw_request_reasoning_t  *r;

    r = &plan->reasoning;

    if (r->thinking == NGX_MODELGW_REQUEST_THINKING_ADAPTIVE) {
        ngx_str_set(&r->display, "\"summarized\"");
    }
}


/* drops fields that the model does not accept, or not together */

ngx_int_t
ngx_modelgw_request_sampling(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value)
{
    ngx_int_t                      rc;
    ngx_uint_t                     none, one_of;
    ngx_modelgw_request_fields_t  *fields;

    fields = &plan->fields;

    none = rq->caps->sampling == NGX_MODELGW_SAMPLING_NONE
           || plan->reasoning.thinking
              >= NGX_MODELGW_REQUEST_THINKING_ADAPTIVE;

    one_of = rq->caps->sampling == NGX_MODELGW_SAMPLING_ONE_OF
             && fields->temperature;

    rc = NGX_OK;

    if (none || one_of) {
        rc = ngx_modelgw_request_sampling_drop(rq, &fields->top_p, "top_p", 1);
    }

    if (none && rc == NGX_OK) {
        rc = ngx_modelgw_request_sampling_drop(rq, &fields->temperature,
                                               "temperature", 1);
    }

    if (none && rc == NGX_OK) {
        rc = ngx_modelgw_request_sampling_drop(rq, &fields->top_k, "top_k", 0);
    }

    return rc;
}


/* unity: 1 is the default upstream, and larger values are cut to it */

static ngx_int_t
ngx_modelgw_request_sampling_drop(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t **node, const char *name, ngx_uint_t unity)
{
    ngx_modelgw_node_t  *dropped;

    dropped = *node;
    *node = NULL;

    if (dropped == NULL
        || (unity && ngx_modelgw_request_compare(rq, dropped, 1) >= 0))
    {
        return NGX_OK;
    }

    return ngx_modelgw_request_ignore(rq, name);
}


/*
 * Compares a JSON number with a digit: -1, 0, 1.  The number is taken as
 * d.ddd * 10^e with d not 0: the exponent decides, else the digits.
 */

static ngx_int_t
ngx_modelgw_request_compare(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, ngx_uint_t n)
{
    u_char      *p, *end, *last, *point;
    int64_t      exponent;
    ngx_str_t    raw;
    ngx_int_t    sign;
    ngx_uint_t   digit;

    ngx_modelgw_tape_raw(rq->tape, node, &raw);

    p = raw.data;
    last = p + raw.len;
    sign = 1;

    if (*p == '-') {
        sign = -1;
        p++;
    }

    for (end = p; end < last && (*end | 0x20) != 'e'; end++) { /* void */ }

    point = ngx_strlchr(p, end, '.');
    exponent = ngx_modelgw_request_exponent(end, last)
               + ((point ? point : end) - p);

    while (p < end && (*p == '0' || *p == '.')) {
        exponent -= (*p == '0');
        p++;
    }

    if (p == end) {
        return (n == 0) ? 0 : -1;
    }

    if (sign < 0) {
        return -1;
    }

    /* the exponent is e + 1 here */

    if (exponent != 1 || n == 0) {
        return (exponent < 1 && n) ? -1 : 1;
    }

    digit = *p - '0';

    if (digit != n) {
        return (digit < n) ? -1 : 1;
    }

    for (p++; p < end; p++) {

        if (*p != '0' && *p != '.') {
            return 1;
        }
    }

    return 0;
}


/* the value of "e-12"; 0 for an empty text; huge ones are cut off */

static int64_t
ngx_modelgw_request_exponent(u_char *p, u_char *last)
{
    int64_t  exponent, sign;

    exponent = 0;
    sign = 1;

    for ( /* void */ ; p < last; p++) {

        if (*p == '-') {
            sign = -1;

        } else if (*p >= '0' && *p <= '9'
                   && exponent < NGX_MODELGW_REQUEST_EXPONENT)
        {
            exponent = exponent * 10 + (*p - '0');
        }
    }

    return sign * exponent;
}


void
ngx_modelgw_request_sampling_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out)
{
    ngx_modelgw_request_fields_t  *fields;

    fields = &plan->fields;

    if (fields->temperature) {
        ngx_modelgw_out_text(out, ",\"temperature\":");

        /* the limit is 2 in chat, 1 upstream */

        if (ngx_modelgw_request_compare(rq, fields->temperature, 1) > 0) {
            ngx_modelgw_out_text(out, "1");

        } else {
            ngx_modelgw_request_raw(rq, fields->temperature, out);
        }
    }

    if (fields->top_p) {
        ngx_modelgw_out_text(out, ",\"top_p\":");
        ngx_modelgw_request_raw(rq, fields->top_p, out);
    }

    if (fields->top_k) {
        ngx_modelgw_out_text(out, ",\"top_k\":");
        ngx_modelgw_request_raw(rq, fields->top_k, out);
    }

    if (fields->stop) {
        ngx_modelgw_request_stops_write(rq, fields->stop, out);
    }
}


/* an upstream refuses blank stop sequences */

static void
ngx_modelgw_request_stops_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *stop, ngx_modelgw_out_t *out)
{
    ngx_uint_t           n;
    ngx_modelgw_node_t  *node, *next;

    node = stop;

    if (stop->type == NGX_MODELGW_TAPE_ARRAY) {
        node = ngx_modelgw_tape_first(rq->tape, stop);
    }

    for (n = 0; node; node = next) {
        next = ngx_modelgw_tape_next(rq->tape, stop, node);

        if (ngx_modelgw_tape_blank(rq->tape, node)) {
            continue;
        }

        if (n++ == 0) {
            ngx_modelgw_out_text(out, ",\"stop_sequences\":[");

        } else {
            ngx_modelgw_out_text(out, ",");
        }

        ngx_modelgw_request_raw(rq, node, out);
    }

    if (n) {
        ngx_modelgw_out_text(out, "]");
    }
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

    if (r->display.len) {
        ngx_modelgw_out_text(out, ",\"display\":");
        ngx_modelgw_out_borrowed(out, r->display.data, r->display.len);
    }

    ngx_modelgw_out_text(out, "}");
}
