
/*
 * Questions about calls: their query strings, and the store's answers.
 *
 * A parameter that is not known is refused, and so is one that comes twice:
 * a sum over more than was meant is worse than none.  In a value "+" is a plus,
 * as ids of models and offsets of times have it.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_admin.h"


#define NGX_HTTP_MODELGW_QUERY_CALLS  100      /* rows, if not told */
#define NGX_HTTP_MODELGW_QUERY_MAX    10000    /* of usage always */

#define NGX_HTTP_MODELGW_QUERY_DAY    (sizeof("2027-01-01") - 1)


/* NULL: taken, else what is wrong with the value */
typedef const char *(*ngx_http_modelgw_query_pt)(ngx_http_modelgw_job_t *job,
    ngx_str_t *value);

typedef struct {
    ngx_str_t                   name;
    ngx_http_modelgw_query_pt   set;
} ngx_http_modelgw_query_t;


static ngx_int_t ngx_http_modelgw_query_one(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_job_t *job, ngx_uint_t query,
    ngx_str_t *arg, ngx_uint_t *given);
static ngx_int_t ngx_http_modelgw_query_unknown(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *name);
static ngx_int_t ngx_http_modelgw_query_value(ngx_pool_t *pool,
    ngx_str_t *text, ngx_str_t *value);
static const char *ngx_http_modelgw_query_account(ngx_http_modelgw_job_t *job,
    ngx_str_t *value);
static const char *ngx_http_modelgw_query_key(ngx_http_modelgw_job_t *job,
    ngx_str_t *value);
static const char *ngx_http_modelgw_query_id(ngx_str_t *value, ngx_str_t *id);
static const char *ngx_http_modelgw_query_model(ngx_http_modelgw_job_t *job,
    ngx_str_t *value);
static const char *ngx_http_modelgw_query_from(ngx_http_modelgw_job_t *job,
    ngx_str_t *value);
static const char *ngx_http_modelgw_query_to(ngx_http_modelgw_job_t *job,
    ngx_str_t *value);
static const char *ngx_http_modelgw_query_limit(ngx_http_modelgw_job_t *job,
    ngx_str_t *value);
static const char *ngx_http_modelgw_query_by(ngx_http_modelgw_job_t *job,
    ngx_str_t *value);
static const char *ngx_http_modelgw_query_time(ngx_str_t *value,
    uint64_t *msec);
static ngx_int_t ngx_http_modelgw_query_clock(u_char *p, u_char *last,
    int64_t *msec);
static u_char *ngx_http_modelgw_query_two(u_char *p, u_char *last, u_char sep,
    ngx_int_t max, ngx_int_t *n);


static ngx_http_modelgw_query_t  ngx_http_modelgw_queries[] = {

    { ngx_string("by"), ngx_http_modelgw_query_by },
    { ngx_string("account"), ngx_http_modelgw_query_account },
    { ngx_string("key"), ngx_http_modelgw_query_key },
    { ngx_string("model"), ngx_http_modelgw_query_model },
    { ngx_string("from"), ngx_http_modelgw_query_from },
    { ngx_string("to"), ngx_http_modelgw_query_to },
    { ngx_string("limit"), ngx_http_modelgw_query_limit },

    { ngx_null_string, NULL }
};


/* by ngx_modelgw_store_by_e */

static ngx_str_t  ngx_http_modelgw_query_bys[] = {
    ngx_string("day"),
    ngx_string("key"),
    ngx_string("model"),
    ngx_string("account"),
    ngx_null_string
};


ngx_int_t
ngx_http_modelgw_admin_query(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_job_t *job, ngx_uint_t query)
{
    u_char      *p, *last;
    ngx_int_t    rc;
    ngx_str_t    arg;
    ngx_uint_t   given;

    job->filter.limit = (query == NGX_HTTP_MODELGW_ADMIN_BY)
                        ? NGX_HTTP_MODELGW_QUERY_MAX
                        : NGX_HTTP_MODELGW_QUERY_CALLS;

    given = 0;
    p = r->args.data;
    last = p + r->args.len;

    while (p < last) {

        arg.data = p;

        p = ngx_strlchr(p, last, '&');
        if (p == NULL) {
            p = last;
        }

        arg.len = p - arg.data;
        p++;

        if (arg.len == 0) {
            continue;
        }

        rc = ngx_http_modelgw_query_one(r, ctx, job, query, &arg, &given);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (job->filter.to && job->filter.from >= job->filter.to) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD",
                                      "\"from\" must be before \"to\"");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_query_one(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_job_t *job, ngx_uint_t query, ngx_str_t *arg,
    ngx_uint_t *given)
{
    u_char                    *p, *last;
    ngx_str_t                  name, text, value;
    const char                *wrong;
    ngx_uint_t                 bit;
    ngx_http_modelgw_query_t  *q;

    last = arg->data + arg->len;

    p = ngx_strlchr(arg->data, last, '=');
    if (p == NULL) {
        p = last;
    }

    name.data = arg->data;
    name.len = p - arg->data;

    text.data = (p < last) ? p + 1 : last;
    text.len = last - text.data;

    q = ngx_http_modelgw_queries;

    if (query != NGX_HTTP_MODELGW_ADMIN_BY) {
        q++;
    }

    while (q->name.len
           && (q->name.len != name.len
               || ngx_memcmp(q->name.data, name.data, name.len) != 0))
    {
        q++;
    }

    if (query == NGX_HTTP_MODELGW_ADMIN_NO_QUERY || q->name.len == 0) {
        return ngx_http_modelgw_query_unknown(r, ctx, &name);
    }

    bit = (ngx_uint_t) 1 << (q - ngx_http_modelgw_queries);

    if (*given & bit) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD",
                                      "\"%V\" is given twice", &q->name);
    }

    *given |= bit;

    if (ngx_http_modelgw_query_value(job->pool, &text, &value) != NGX_OK) {
        return NGX_ERROR;
    }

    wrong = q->set(job, &value);

    if (wrong) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD", "\"%V\" must be %s",
                                      &q->name, wrong);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_query_unknown(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *name)
{
    ngx_str_t  shown;

    shown = *name;
    shown.len = ngx_min(shown.len, 64);

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                  "INVALID_FIELD",
                                  "\"%V\" is no parameter of this", &shown);
}


static ngx_int_t
ngx_http_modelgw_query_value(ngx_pool_t *pool, ngx_str_t *text,
    ngx_str_t *value)
{
    u_char  *src, *dst;

    value->data = ngx_pnalloc(pool, text->len + 1);
    if (value->data == NULL) {
        return NGX_ERROR;
    }

    src = text->data;
    dst = value->data;

    ngx_unescape_uri(&dst, &src, text->len, 0);

    value->len = dst - value->data;

    return NGX_OK;
}


static const char *
ngx_http_modelgw_query_account(ngx_http_modelgw_job_t *job, ngx_str_t *value)
{
    return ngx_http_modelgw_query_id(value, &job->filter.account);
}


static const char *
ngx_http_modelgw_query_key(ngx_http_modelgw_job_t *job, ngx_str_t *value)
{
    return ngx_http_modelgw_query_id(value, &job->filter.key);
}


static const char *
ngx_http_modelgw_query_id(ngx_str_t *value, ngx_str_t *id)
{
    if (!ngx_http_modelgw_conf_word(value, NGX_HTTP_MODELGW_ADMIN_ID,
                                    NGX_MODELGW_LEDGER_NAME))
    {
        return "an id of 1 to 64 letters, digits and \"._@:-\"";
    }

    *id = *value;

    return NULL;
}


/* the ledger keeps as much of a long id */

static const char *
ngx_http_modelgw_query_model(ngx_http_modelgw_job_t *job, ngx_str_t *value)
{
    if (!ngx_http_modelgw_model_id(value)) {
        return "the id of a model";
    }

    job->filter.model = *value;
    job->filter.model.len = ngx_min(value->len, NGX_MODELGW_LEDGER_MODEL);

    return NULL;
}


static const char *
ngx_http_modelgw_query_from(ngx_http_modelgw_job_t *job, ngx_str_t *value)
{
    return ngx_http_modelgw_query_time(value, &job->filter.from);
}


static const char *
ngx_http_modelgw_query_to(ngx_http_modelgw_job_t *job, ngx_str_t *value)
{
    return ngx_http_modelgw_query_time(value, &job->filter.to);
}


static const char *
ngx_http_modelgw_query_limit(ngx_http_modelgw_job_t *job, ngx_str_t *value)
{
    ngx_int_t  n;

    n = ngx_atoi(value->data, value->len);

    if (n < 1 || n > NGX_HTTP_MODELGW_QUERY_MAX) {
        return "a number from 1 to 10000";
    }

    job->filter.limit = n;

    return NULL;
}


static const char *
ngx_http_modelgw_query_by(ngx_http_modelgw_job_t *job, ngx_str_t *value)
{
    ngx_uint_t   i;
    ngx_str_t   *by;

    by = ngx_http_modelgw_query_bys;

    for (i = 0; by[i].len; i++) {

        if (by[i].len == value->len
            && ngx_memcmp(by[i].data, value->data, value->len) == 0)
        {
            job->by = (ngx_modelgw_store_by_e) i;
            return NULL;
        }
    }

    return "day, key, model or account";
}


/*
 * A day, "2027-01-01", which is its first millisecond, or a time of RFC 3339,
 * "2027-01-01T12:00:00.5+01:00".  0 means that there is no bound, and times
 * before that are no use.
 */

static const char *
ngx_http_modelgw_query_time(ngx_str_t *value, uint64_t *msec)
{
    time_t      day;
    int64_t     clock;
    ngx_str_t   text;

    static const char  *wrong = "a day, as 2027-01-01, or a time, as "
                                "2027-01-01T12:00:00Z";

    text = *value;
    text.len = ngx_min(text.len, NGX_HTTP_MODELGW_QUERY_DAY);

    if (ngx_modelgw_key_date(&text, &day) != NGX_OK) {
        return wrong;
    }

    clock = 0;

    if (value->len > text.len
        && ngx_http_modelgw_query_clock(value->data + text.len,
                                        value->data + value->len, &clock)
           != NGX_OK)
    {
        return wrong;
    }

    clock += (int64_t) day * 1000;

    if (clock < 0) {
        return wrong;
    }

    *msec = (uint64_t) clock;

    return NULL;
}


/* "T12:00:00.5+01:00" as milliseconds since the day began in Greenwich */

static ngx_int_t
ngx_http_modelgw_query_clock(u_char *p, u_char *last, int64_t *msec)
{
    int64_t    t, unit;
    ngx_int_t  h, m, s, sign;

    if (*p != 'T' && *p != 't' && *p != ' ') {
        return NGX_DECLINED;
    }

    p = ngx_http_modelgw_query_two(p + 1, last, ':', 23, &h);
    p = ngx_http_modelgw_query_two(p, last, ':', 59, &m);
    p = ngx_http_modelgw_query_two(p, last, '\0', 60, &s);

    if (p == NULL || p == last) {
        return NGX_DECLINED;
    }

    t = ((h * 60 + m) * 60 + s) * 1000;

    if (*p == '.') {

        p++;

        if (p == last || *p < '0' || *p > '9') {
            return NGX_DECLINED;
        }

        for (unit = 100; p < last && *p >= '0' && *p <= '9'; unit /= 10) {
            t += (*p++ - '0') * unit;
        }
    }

    if (last - p == 1 && (*p == 'Z' || *p == 'z')) {
        *msec = t;
        return NGX_OK;
    }

    if (p == last || (*p != '+' && *p != '-')) {
        return NGX_DECLINED;
    }

    sign = (*p == '-') ? 1 : -1;

    p = ngx_http_modelgw_query_two(p + 1, last, ':', 23, &h);
    p = ngx_http_modelgw_query_two(p, last, '\0', 59, &m);

    if (p != last) {
        return NGX_DECLINED;
    }

    *msec = t + sign * (h * 60 + m) * 60 * 1000;

    return NGX_OK;
}


/* Two digits, and what stands behind them, if anything must; NULL: it is not
   so.  p may be NULL already. */

static u_char *
ngx_http_modelgw_query_two(u_char *p, u_char *last, u_char sep, ngx_int_t max,
    ngx_int_t *n)
{
    if (p == NULL || last - p < 2) {
        return NULL;
    }

    *n = ngx_atoi(p, 2);

    if (*n == NGX_ERROR || *n > max) {
        return NULL;
    }

    p += 2;

    if (sep) {
        return (p < last && *p == sep) ? p + 1 : NULL;
    }

    return p;
}


ngx_int_t
ngx_http_modelgw_admin_calls(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    return ngx_modelgw_store_calls(store, &job->filter, &job->body, job->pool);
}


ngx_int_t
ngx_http_modelgw_admin_usage(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    return ngx_modelgw_store_usage(store, job->by, &job->filter, &job->body,
                                   job->pool);
}
