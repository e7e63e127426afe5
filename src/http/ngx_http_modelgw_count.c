
/*
 * Metrics of requests: counted as a request ends, however that is, and of its
 * call as the call is settled.  Nothing is counted while data passes.
 *
 * No value of a label comes from a client: codes, endpoints, results and
 * statuses are those of the tables here, and what is in none is "other".
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_metrics.h"
#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_PAYMENT_REQUIRED  402         /* RFC 9110, 15.5.3 */


static ngx_uint_t ngx_http_modelgw_count_endpoint(ngx_http_modelgw_ctx_t *ctx);
static ngx_uint_t ngx_http_modelgw_count_code(ngx_str_t *code);
static ngx_uint_t ngx_http_modelgw_count_result(ngx_uint_t status,
    ngx_uint_t code);
static ngx_uint_t ngx_http_modelgw_count_responses(ngx_http_request_t *r,
    ngx_http_modelgw_main_conf_t *mmcf, uint32_t group);
static ngx_uint_t ngx_http_modelgw_count_status(
    ngx_http_upstream_state_t *us);


enum {
    NGX_HTTP_MODELGW_COUNT_CHAT = 0,
    NGX_HTTP_MODELGW_COUNT_MESSAGES,
    NGX_HTTP_MODELGW_COUNT_TOKENS,
    NGX_HTTP_MODELGW_COUNT_EMBEDDINGS,
    NGX_HTTP_MODELGW_COUNT_MODELS,
    NGX_HTTP_MODELGW_COUNT_RESPONSES,
    NGX_HTTP_MODELGW_COUNT_OTHER
};

/* a name that the counters have no room for does not compile */

ngx_str_t  ngx_http_modelgw_count_endpoints[
    NGX_MODELGW_METRICS_ENDPOINTS + 1] =
{
    [NGX_HTTP_MODELGW_COUNT_CHAT] = ngx_string("chat"),
    [NGX_HTTP_MODELGW_COUNT_MESSAGES] = ngx_string("messages"),
    [NGX_HTTP_MODELGW_COUNT_TOKENS] = ngx_string("count_tokens"),
    [NGX_HTTP_MODELGW_COUNT_EMBEDDINGS] = ngx_string("embeddings"),
    [NGX_HTTP_MODELGW_COUNT_MODELS] = ngx_string("models"),
    [NGX_HTTP_MODELGW_COUNT_RESPONSES] = ngx_string("responses"),
    [NGX_HTTP_MODELGW_COUNT_OTHER] = ngx_string("other"),
    [NGX_MODELGW_METRICS_ENDPOINTS] = ngx_null_string
};


enum {
    NGX_HTTP_MODELGW_RESULT_OK = 0,
    NGX_HTTP_MODELGW_RESULT_LIMITED,
    NGX_HTTP_MODELGW_RESULT_CREDIT,
    NGX_HTTP_MODELGW_RESULT_BUDGET,
    NGX_HTTP_MODELGW_RESULT_REFUSED,
    NGX_HTTP_MODELGW_RESULT_FAILED
};

ngx_str_t  ngx_http_modelgw_count_results[] = {
    [NGX_HTTP_MODELGW_RESULT_OK] = ngx_string("ok"),
    [NGX_HTTP_MODELGW_RESULT_LIMITED] = ngx_string("rate_limited"),
    [NGX_HTTP_MODELGW_RESULT_CREDIT] = ngx_string("insufficient_credit"),
    [NGX_HTTP_MODELGW_RESULT_BUDGET] = ngx_string("budget_exceeded"),
    [NGX_HTTP_MODELGW_RESULT_REFUSED] = ngx_string("refused"),
    [NGX_HTTP_MODELGW_RESULT_FAILED] = ngx_string("failed"),
    ngx_null_string
};


/* after the first, which is no error; the last one is all that is not here */

#define NGX_HTTP_MODELGW_CODE_BUDGET  1

ngx_str_t  ngx_http_modelgw_count_codes[NGX_MODELGW_METRICS_CODES] = {
    ngx_null_string,
    [NGX_HTTP_MODELGW_CODE_BUDGET] = ngx_string("BUDGET_EXCEEDED"),
    ngx_string("INSUFFICIENT_CREDIT"),
    ngx_string("RATE_LIMITED"),
    ngx_string("INVALID_API_KEY"),
    ngx_string("API_KEY_REQUIRED"),
    ngx_string("INVALID_MODEL"),
    ngx_string("INVALID_FIELD"),
    ngx_string("INVALID_REQUEST"),
    ngx_string("INVALID_JSON"),
    ngx_string("MISSING_FIELD"),
    ngx_string("UNSUPPORTED_FIELD"),
    ngx_string("CONTEXT_LENGTH_EXCEEDED"),
    ngx_string("PROVIDER_MISMATCH"),
    ngx_string("FORBIDDEN"),
    ngx_string("NOT_FOUND"),
    ngx_string("METHOD_NOT_ALLOWED"),
    ngx_string("REQUEST_TOO_LARGE"),
    ngx_string("UNSUPPORTED_ENCODING"),
    ngx_string("UPGRADE_REQUIRED"),
    ngx_string("INTERNAL_ERROR"),
    ngx_string("UPSTREAM_ERROR"),
    ngx_string("UPSTREAM_TRUNCATED"),
    ngx_string("UPSTREAM_UNAVAILABLE"),
    ngx_string("UPSTREAM_OVERLOADED"),
    ngx_string("UPSTREAM_TIMEOUT"),
    ngx_string("SERVICE_UNAVAILABLE"),
    ngx_string("other")
};


/* those of statuses[], then the three that are none */

static ngx_uint_t  ngx_http_modelgw_count_numbers[] = {
    200, 400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 502, 503, 504, 529
};

#define NGX_HTTP_MODELGW_COUNT_NUMBERS                                        \
    (sizeof(ngx_http_modelgw_count_numbers) / sizeof(ngx_uint_t))

enum {
    NGX_HTTP_MODELGW_STATUS_OTHER = NGX_HTTP_MODELGW_COUNT_NUMBERS,
    NGX_HTTP_MODELGW_STATUS_ERROR,
    NGX_HTTP_MODELGW_STATUS_TIMEOUT,
    NGX_HTTP_MODELGW_STATUS_NONE         /* not counted */
};

ngx_str_t  ngx_http_modelgw_count_statuses[] = {
    ngx_string("200"), ngx_string("400"), ngx_string("401"), ngx_string("402"),
    ngx_string("403"), ngx_string("404"), ngx_string("408"), ngx_string("413"),
    ngx_string("422"), ngx_string("429"), ngx_string("500"), ngx_string("502"),
    ngx_string("503"), ngx_string("504"), ngx_string("529"),
    ngx_string("other"), ngx_string("error"), ngx_string("timeout"),
    ngx_null_string
};


void
ngx_http_modelgw_count_request(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_modelgw_key_t              *key;
    ngx_http_modelgw_main_conf_t   *mmcf;
    ngx_modelgw_metrics_request_t   counted;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    if (mmcf->metrics == NULL || !ctx->gateway) {
        return;
    }

    key = ctx->request.key;

    counted.group = key ? ngx_http_modelgw_ctx_group(ctx)->cell
                        : NGX_MODELGW_METRICS_NOBODY;
    counted.key = key ? key->cell : NGX_MODELGW_METRICS_OTHER;

    counted.endpoint = ngx_http_modelgw_count_endpoint(ctx);
    counted.code = 0;
    counted.result = NGX_HTTP_MODELGW_RESULT_OK;

    if (ctx->error.code.len) {
        counted.code = ngx_http_modelgw_count_code(&ctx->error.code);
        counted.result = ngx_http_modelgw_count_result(ctx->error.status,
                                                       counted.code);
    }

    counted.status = ngx_http_modelgw_count_responses(r, mmcf, counted.group);

    ngx_modelgw_metrics_request(mmcf->metrics, mmcf->worker, &counted);
}


static ngx_uint_t
ngx_http_modelgw_count_endpoint(ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_endpoint_t  *e;

    e = ctx->request.endpoint;

    if (e == NULL) {
        return NGX_HTTP_MODELGW_COUNT_OTHER;
    }

    if (e->flags & NGX_HTTP_MODELGW_COUNT) {
        return NGX_HTTP_MODELGW_COUNT_TOKENS;
    }

    switch (e->protocol) {

    case NGX_MODELGW_CHAT:
        return NGX_HTTP_MODELGW_COUNT_CHAT;

    case NGX_MODELGW_MESSAGES:
        return NGX_HTTP_MODELGW_COUNT_MESSAGES;

    case NGX_MODELGW_RESPONSES:
        return NGX_HTTP_MODELGW_COUNT_RESPONSES;

    case NGX_MODELGW_EMBEDDINGS:
        return NGX_HTTP_MODELGW_COUNT_EMBEDDINGS;

    default:
        return NGX_HTTP_MODELGW_COUNT_MODELS;
    }
}


static ngx_uint_t
ngx_http_modelgw_count_code(ngx_str_t *code)
{
    ngx_uint_t   i;
    ngx_str_t   *known;

    for (i = 1; /* void */ ; i++) {
        known = &ngx_http_modelgw_count_codes[i];

        if (known[1].len == 0
            || (known->len == code->len
                && ngx_memcmp(known->data, code->data, code->len) == 0))
        {
            return i;
        }
    }
}


static ngx_uint_t
ngx_http_modelgw_count_result(ngx_uint_t status, ngx_uint_t code)
{
    switch (status) {

    case NGX_HTTP_TOO_MANY_REQUESTS:
        return NGX_HTTP_MODELGW_RESULT_LIMITED;

    case NGX_HTTP_PAYMENT_REQUIRED:
        return (code == NGX_HTTP_MODELGW_CODE_BUDGET)
               ? NGX_HTTP_MODELGW_RESULT_BUDGET
               : NGX_HTTP_MODELGW_RESULT_CREDIT;

    default:
        return (status < NGX_HTTP_INTERNAL_SERVER_ERROR)
               ? NGX_HTTP_MODELGW_RESULT_REFUSED
               : NGX_HTTP_MODELGW_RESULT_FAILED;
    }
}


/*
 * Each try has a state; one without a peer separates those of two requests.
 * Returns the last one, for the caller to count.
 */

static ngx_uint_t
ngx_http_modelgw_count_responses(ngx_http_request_t *r,
    ngx_http_modelgw_main_conf_t *mmcf, uint32_t group)
{
    ngx_uint_t                    i, last, tries;
    ngx_http_upstream_state_t    *us;
    ngx_modelgw_metrics_group_t  *row;

    last = NGX_HTTP_MODELGW_STATUS_NONE;

    if (r->upstream_states == NULL) {
        return last;
    }

    tries = 0;
    us = r->upstream_states->elts;

    for (i = 0; i < r->upstream_states->nelts; i++) {

        if (us[i].peer == NULL) {
            continue;
        }

        if (tries++) {
            row = ngx_modelgw_metrics_row(mmcf->metrics, mmcf->worker,
                                          NGX_MODELGW_METRICS_GROUPS, group);

            ngx_modelgw_metrics_count(mmcf->metrics, mmcf->worker,
                                      &row->retries, 1);

            if (last != NGX_HTTP_MODELGW_STATUS_NONE) {
                ngx_modelgw_metrics_count(mmcf->metrics, mmcf->worker,
                                          &row->responses[last], 1);
            }
        }

        last = ngx_http_modelgw_count_status(&us[i]);
    }

    return last;
}


/* Without a header the status is nginx's, or there is none: the client left. */

static ngx_uint_t
ngx_http_modelgw_count_status(ngx_http_upstream_state_t *us)
{
    ngx_uint_t  i;

    if (us->header_time == (ngx_msec_t) -1) {

        switch (us->status) {

        case NGX_HTTP_GATEWAY_TIME_OUT:
            return NGX_HTTP_MODELGW_STATUS_TIMEOUT;

        case NGX_HTTP_BAD_GATEWAY:
            return NGX_HTTP_MODELGW_STATUS_ERROR;

        default:
            return NGX_HTTP_MODELGW_STATUS_NONE;
        }
    }

    for (i = 0; i < NGX_HTTP_MODELGW_COUNT_NUMBERS; i++) {
        if (ngx_http_modelgw_count_numbers[i] == us->status) {
            return i;
        }
    }

    return NGX_HTTP_MODELGW_STATUS_OTHER;
}


void
ngx_http_modelgw_count_call(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_metrics_call_t *counted)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    /* the slot's times begin when the body has been read */

    counted->duration = ngx_http_modelgw_elapsed(r);
    counted->key = ctx->request.key->cell;

    if (counted->first != (uint64_t) -1) {
        counted->first = ctx->answer.first_byte;
    }

    ngx_modelgw_metrics_call(mmcf->metrics, mmcf->worker, counted);
}
