
/*
 * How the answer is sampled, and where it stops: temperature, top_p, top_k,
 * stop.
 *
 * Some models take temperature or top_p but not both, some take none of them,
 * and no model takes them while it thinks; what cannot be sent is ignored, and
 * said to be.  A temperature or top_p of 1 is what the upstream does anyway:
 * its loss is not worth a word.
 *
 * Numbers reach the upstream as they were written.  Their ranges are checked on
 * the text, digit by digit: it is exact for any length and exponent, and as
 * short as a conversion to double with its checks would be.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


#define NGX_MODELGW_REQUEST_EXPONENT  ((int64_t) 1 << 40)


static ngx_int_t ngx_modelgw_request_sampling_range(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, const char *name, ngx_uint_t max);
static ngx_int_t ngx_modelgw_request_sampling_limits(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan);
static ngx_int_t ngx_modelgw_request_sampling_drop(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t **node, const char *name, ngx_uint_t fine);
static ngx_int_t ngx_modelgw_request_sampling_stop(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *stop);
static void ngx_modelgw_request_sampling_stops(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *stop, ngx_modelgw_out_t *out);
static ngx_int_t ngx_modelgw_request_sampling_compare(
    ngx_modelgw_request_t *rq, ngx_modelgw_node_t *node, ngx_uint_t n);
static int64_t ngx_modelgw_request_sampling_exponent(u_char *p, u_char *last);


ngx_int_t
ngx_modelgw_request_sampling_read(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
{
    ngx_int_t                      rc;
    ngx_uint_t                     n;
    ngx_modelgw_request_fields_t  *fields;

    fields = &plan->fields;

    rc = ngx_modelgw_request_sampling_range(rq, fields->temperature,
                                            "temperature", 2);
    if (rc != NGX_OK) {
        return rc;
    }

    rc = ngx_modelgw_request_sampling_range(rq, fields->top_p, "top_p", 1);

    if (rc != NGX_OK) {
        return rc;
    }

    if (fields->top_k
        && !ngx_modelgw_tape_count(rq->tape, fields->top_k, &n))
    {
        return ngx_modelgw_request_invalid(rq,
                     "\"top_k\" must be an integer from 0 to 999999999");
    }

    rc = ngx_modelgw_request_sampling_stop(rq, fields->stop);

    if (rc != NGX_OK) {
        return rc;
    }

    return ngx_modelgw_request_sampling_limits(rq, plan);
}


static ngx_int_t
ngx_modelgw_request_sampling_range(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *node, const char *name, ngx_uint_t max)
{
    if (node == NULL
        || (ngx_modelgw_request_sampling_compare(rq, node, 0) >= 0
            && ngx_modelgw_request_sampling_compare(rq, node, max) <= 0))
    {
        return NGX_OK;
    }

    return ngx_modelgw_request_invalid(rq, "\"%s\" must be from 0 to %ui",
                                       name, max);
}


/* what this model does not take, or not together */

static ngx_int_t
ngx_modelgw_request_sampling_limits(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan)
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

    if (none || one_of) {
        rc = ngx_modelgw_request_sampling_drop(rq, &fields->top_p, "top_p", 1);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (!none) {
        return NGX_OK;
    }

    rc = ngx_modelgw_request_sampling_drop(rq, &fields->temperature,
                                           "temperature", 1);
    if (rc != NGX_OK) {
        return rc;
    }

    return ngx_modelgw_request_sampling_drop(rq, &fields->top_k, "top_k", 0);
}


/* fine: a value of 1, or cut to 1, is no loss */

static ngx_int_t
ngx_modelgw_request_sampling_drop(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t **node, const char *name, ngx_uint_t fine)
{
    ngx_modelgw_node_t  *dropped;

    dropped = *node;
    *node = NULL;

    if (dropped == NULL
        || (fine && ngx_modelgw_request_sampling_compare(rq, dropped, 1) >= 0))
    {
        return NGX_OK;
    }

    return ngx_modelgw_request_fields_ignore(rq, name);
}


static ngx_int_t
ngx_modelgw_request_sampling_stop(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *stop)
{
    ngx_uint_t           i;
    ngx_modelgw_node_t  *node;

    /* a string has nothing in it, so there is no first */

    node = stop ? ngx_modelgw_tape_first(rq->tape, stop) : NULL;

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
ngx_modelgw_request_sampling_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out)
{
    ngx_modelgw_request_fields_t  *fields;

    fields = &plan->fields;

    if (fields->temperature) {
        ngx_modelgw_out_text(out, ",\"temperature\":");

        /* chat goes to 2, messages to 1 */

        if (ngx_modelgw_request_sampling_compare(rq, fields->temperature, 1)
            > 0)
        {
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
        ngx_modelgw_request_sampling_stops(rq, fields->stop, out);
    }
}


/* an upstream refuses stop sequences of nothing but white space */

static void
ngx_modelgw_request_sampling_stops(ngx_modelgw_request_t *rq,
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


/*
 * Compares a JSON number with a digit: -1, 0, 1.  Written as d.ddd * 10^e with
 * its first digit that is not 0, the exponent decides, else the digits do.
 */

static ngx_int_t
ngx_modelgw_request_sampling_compare(ngx_modelgw_request_t *rq,
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
    exponent = ngx_modelgw_request_sampling_exponent(end, last)
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

    /* 1 now: there is one digit before the point */

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


/* of "e-12", 0 of nothing; what is beyond all meaning is cut */

static int64_t
ngx_modelgw_request_sampling_exponent(u_char *p, u_char *last)
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
