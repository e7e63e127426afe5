
/*
 * The $modelgw_* variables: the one for proxy_pass, and those for the access
 * log.  None has a secret, or a part of a prompt.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_usage.h"
#include "ngx_http_modelgw.h"


static ngx_int_t ngx_http_modelgw_vars_text(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_modelgw_vars_key(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_modelgw_vars_group(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_modelgw_vars_reason(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_modelgw_vars_stream(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_modelgw_vars_tokens(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_modelgw_vars_complete(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_modelgw_vars_first_byte(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_modelgw_vars_wait(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_modelgw_vars_seconds(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, ngx_msec_t ms);
static ngx_int_t ngx_http_modelgw_vars_call(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_modelgw_vars_cost(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_modelgw_vars_outcome(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_modelgw_vars_number(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, int64_t n);
static ngx_int_t ngx_http_modelgw_vars_set(ngx_http_variable_value_t *v,
    ngx_str_t *text);


static ngx_http_variable_t  ngx_http_modelgw_vars[] = {

    { ngx_string("modelgw_upstream"), NULL,
      ngx_http_modelgw_forward_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_id"), NULL, ngx_http_modelgw_vars_key,
      offsetof(ngx_modelgw_key_t, id), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_account"), NULL, ngx_http_modelgw_vars_key,
      offsetof(ngx_modelgw_key_t, account), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_group"), NULL, ngx_http_modelgw_vars_group,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_model"), NULL, ngx_http_modelgw_vars_text,
      offsetof(ngx_http_modelgw_ctx_t, call.service_id),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_upstream_model"), NULL, ngx_http_modelgw_vars_text,
      offsetof(ngx_http_modelgw_ctx_t, call.upstream_id),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_code"), NULL, ngx_http_modelgw_vars_text,
      offsetof(ngx_http_modelgw_ctx_t, error.code),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_reason"), NULL, ngx_http_modelgw_vars_reason,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_stream"), NULL, ngx_http_modelgw_vars_stream,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_input_tokens"), NULL, ngx_http_modelgw_vars_tokens,
      offsetof(ngx_modelgw_usage_t, input), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_output_tokens"), NULL, ngx_http_modelgw_vars_tokens,
      offsetof(ngx_modelgw_usage_t, output), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_cached_tokens"), NULL, ngx_http_modelgw_vars_tokens,
      offsetof(ngx_modelgw_usage_t, cache_read), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_cache_write_tokens"), NULL,
      ngx_http_modelgw_vars_tokens,
      offsetof(ngx_modelgw_usage_t, cache_write), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_cache_write_1h_tokens"), NULL,
      ngx_http_modelgw_vars_tokens,
      offsetof(ngx_modelgw_usage_t, cache_write_1h),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_reasoning_tokens"), NULL,
      ngx_http_modelgw_vars_tokens,
      offsetof(ngx_modelgw_usage_t, reasoning), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_complete"), NULL, ngx_http_modelgw_vars_complete,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_first_byte_time"), NULL,
      ngx_http_modelgw_vars_first_byte, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_wait_time"), NULL, ngx_http_modelgw_vars_wait,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_call"), NULL, ngx_http_modelgw_vars_call,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_cost"), NULL, ngx_http_modelgw_vars_cost,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_outcome"), NULL, ngx_http_modelgw_vars_outcome,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("modelgw_log"), NULL, ngx_http_modelgw_log_variable,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    ngx_http_null_variable
};


ngx_int_t
ngx_http_modelgw_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_modelgw_vars; v->name.len; v++) {

        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


/* an ngx_str_t of the context */

static ngx_int_t
ngx_http_modelgw_vars_text(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_modelgw_get_ctx(r->main);

    return ngx_http_modelgw_vars_set(v, ctx ? (ngx_str_t *)
                                              ((u_char *) ctx + data)
                                            : NULL);
}


/* an ngx_str_t of the key */

static ngx_int_t
ngx_http_modelgw_vars_key(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_modelgw_get_ctx(r->main);

    return ngx_http_modelgw_vars_set(v, (ctx && ctx->request.found)
                                        ? (ngx_str_t *)
                                          ((u_char *) ctx->request.found + data)
                                        : NULL);
}


static ngx_int_t
ngx_http_modelgw_vars_group(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_modelgw_ctx_t    *ctx;
    ngx_http_modelgw_group_t  *group;

    ctx = ngx_http_modelgw_get_ctx(r->main);

    group = (ctx && ctx->request.found) ? ctx->request.found->group : NULL;

    return ngx_http_modelgw_vars_set(v, group ? &group->name : NULL);
}


static ngx_int_t
ngx_http_modelgw_vars_reason(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_modelgw_get_ctx(r->main);

    return ngx_http_modelgw_vars_set(v, ctx ? ngx_http_modelgw_reason(ctx)
                                            : NULL);
}


static ngx_int_t
ngx_http_modelgw_vars_stream(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t               *text;
    ngx_http_modelgw_ctx_t  *ctx;

    static ngx_str_t  words[] = { ngx_string("false"), ngx_string("true") };

    ctx = ngx_http_modelgw_get_ctx(r->main);

    text = (ctx && ctx->call.choices) ? &words[ctx->call.streaming] : NULL;

    return ngx_http_modelgw_vars_set(v, text);
}


/* an int64_t of the usage; tokens */

static ngx_int_t
ngx_http_modelgw_vars_tokens(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_modelgw_get_ctx(r->main);

    return ngx_http_modelgw_vars_number(r, v, ctx
                                              ? *(int64_t *)
                                                ((u_char *) &ctx->answer.usage
                                                 + data)
                                              : -1);
}


/* "1": the upstream's answer was complete, "0": it broke off */

static ngx_int_t
ngx_http_modelgw_vars_complete(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                text;
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_modelgw_get_ctx(r->main);

    if (ctx == NULL
        || (ctx->answer.json == NULL && ctx->answer.stream == NULL))
    {
        return ngx_http_modelgw_vars_set(v, NULL);
    }

    text.len = 1;
    text.data = (u_char *) (ctx->answer.complete ? "1" : "0");

    return ngx_http_modelgw_vars_set(v, &text);
}


void
ngx_http_modelgw_answered(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ctx->answer.first_byte = ngx_http_modelgw_elapsed(r);

    ngx_http_modelgw_settle_first_byte(ctx);
}


ngx_msec_t
ngx_http_modelgw_elapsed(ngx_http_request_t *r)
{
    ngx_time_t      *tp;
    ngx_msec_int_t   ms;

    tp = ngx_timeofday();

    ms = (ngx_msec_int_t)
             ((tp->sec - r->start_sec) * 1000 + (tp->msec - r->start_msec));

    return ngx_max(ms, 0);
}


/* seconds with milliseconds, as in $request_time */

static ngx_int_t
ngx_http_modelgw_vars_first_byte(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_modelgw_get_ctx(r->main);

    if (ctx == NULL || ctx->answer.first_byte == (ngx_msec_t) -1) {
        return ngx_http_modelgw_vars_set(v, NULL);
    }

    return ngx_http_modelgw_vars_seconds(r, v, ctx->answer.first_byte);
}


static ngx_int_t
ngx_http_modelgw_vars_wait(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_modelgw_get_ctx(r->main);

    if (ctx == NULL || ctx->money.wait == NULL) {
        return ngx_http_modelgw_vars_set(v, NULL);
    }

    return ngx_http_modelgw_vars_seconds(r, v, ctx->money.waited);
}


static ngx_int_t
ngx_http_modelgw_vars_seconds(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, ngx_msec_t ms)
{
    ngx_str_t  text;

    text.data = ngx_pnalloc(r->pool, NGX_TIME_T_LEN + 4);
    if (text.data == NULL) {
        return NGX_ERROR;
    }

    text.len = ngx_sprintf(text.data, "%T.%03M", (time_t) (ms / 1000),
                           ms % 1000)
               - text.data;

    return ngx_http_modelgw_vars_set(v, &text);
}


/* the id of the row in the ledger */

static ngx_int_t
ngx_http_modelgw_vars_call(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_modelgw_get_ctx(r->main);

    return ngx_http_modelgw_vars_number(r, v, (ctx && ctx->money.id)
                                              ? (int64_t) ctx->money.id : -1);
}


/* euro, a decimal number */

static ngx_int_t
ngx_http_modelgw_vars_cost(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                text;
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_modelgw_get_ctx(r->main);

    if (ctx == NULL || !ctx->money.settled) {
        return ngx_http_modelgw_vars_set(v, NULL);
    }

    text.data = ngx_pnalloc(r->pool, NGX_MODELGW_AMOUNT_LEN);
    if (text.data == NULL) {
        return NGX_ERROR;
    }

    text.len = ngx_modelgw_amount(text.data, ctx->money.charge.cost)
               - text.data;

    return ngx_http_modelgw_vars_set(v, &text);
}


static ngx_int_t
ngx_http_modelgw_vars_outcome(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                text;
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_modelgw_get_ctx(r->main);

    if (ctx == NULL || !ctx->money.settled) {
        return ngx_http_modelgw_vars_set(v, NULL);
    }

    text.data = (u_char *) ngx_modelgw_outcome_name(ctx->money.charge.outcome);
    text.len = ngx_strlen(text.data);

    return ngx_http_modelgw_vars_set(v, &text);
}


/* negative: unknown */

static ngx_int_t
ngx_http_modelgw_vars_number(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, int64_t n)
{
    ngx_str_t  text;

    if (n < 0) {
        return ngx_http_modelgw_vars_set(v, NULL);
    }

    text.data = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (text.data == NULL) {
        return NGX_ERROR;
    }

    text.len = ngx_sprintf(text.data, "%L", n) - text.data;

    return ngx_http_modelgw_vars_set(v, &text);
}


static ngx_int_t
ngx_http_modelgw_vars_set(ngx_http_variable_value_t *v, ngx_str_t *text)
{
    if (text == NULL || text->len == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    v->len = text->len;
    v->data = text->data;
    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;

    return NGX_OK;
}
