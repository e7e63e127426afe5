
/*
 * GET requests: the query strings, and the responses about calls and usage.
 *
 * An unknown parameter is refused, and so is one that is given twice: a sum
 * over more than was meant is worse than none.  In a value "+" is a plus, as
 * ids of models and offsets of times have it.
 *
 * query_* parse a query string, admin_query_* respond.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_store.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_QUERY_CALLS   100      /* rows by default */
#define NGX_HTTP_MODELGW_QUERY_MAX     10000    /* rows; of usage always */
#define NGX_HTTP_MODELGW_QUERY_CSV     1000000  /* rows of CSV */

#define NGX_HTTP_MODELGW_QUERY_DAY     (sizeof("2027-01-01") - 1)

#define NGX_HTTP_MODELGW_QUERY_HOUR    3600000  /* ms */
#define NGX_HTTP_MODELGW_QUERY_WINDOW  86400000 /* ms searched for an id */

#define NGX_HTTP_MODELGW_QUERY_TIME_TAKES                                     \
    "a day such as 2027-01-01, a time such as 2027-01-01T12:00:00Z, now, "    \
    "today, yesterday, -90m, -24h or -7d"


typedef struct {
    ngx_str_t    name;
    ngx_uint_t   day;                    /* from its beginning, not from now */
    time_t       before;                 /* seconds */
} ngx_http_modelgw_query_relative_t;


static void ngx_http_modelgw_query_defaults(ngx_http_modelgw_job_t *job);
static ngx_int_t ngx_http_modelgw_query_zone_first(ngx_http_request_t *r,
    ngx_http_modelgw_job_t *job);
static ngx_int_t ngx_http_modelgw_query_arg(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_job_t *job, ngx_str_t *arg,
    ngx_uint_t *given);
static ngx_http_modelgw_option_t *ngx_http_modelgw_query_find(
    ngx_http_modelgw_job_t *job, ngx_str_t *name);
static ngx_http_modelgw_option_t *ngx_http_modelgw_query_table(
    ngx_http_modelgw_job_t *job);
static ngx_int_t ngx_http_modelgw_query_unknown(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *name);
static ngx_int_t ngx_http_modelgw_query_value(ngx_pool_t *pool,
    ngx_str_t *text, ngx_str_t *value);
static ngx_int_t ngx_http_modelgw_query_model(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_query_limit(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_query_by(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_query_word(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_conf_enum_t *ngx_http_modelgw_query_enum(ngx_conf_enum_t *e,
    ngx_str_t *value);
static ngx_int_t ngx_http_modelgw_query_status(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_query_text(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_query_amount(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_query_after(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_query_zone(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_query_from(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *data);
static ngx_int_t ngx_http_modelgw_query_to(
    ngx_http_modelgw_option_t *option, ngx_str_t *value, void *data);
static ngx_int_t ngx_http_modelgw_query_time(ngx_str_t *value, int64_t zone,
    uint64_t *ms);
static ngx_int_t ngx_http_modelgw_query_relative(ngx_str_t *value,
    int64_t zone, uint64_t *ms);
static ngx_int_t ngx_http_modelgw_query_clock(u_char *p, u_char *last,
    int64_t *msec);
static u_char *ngx_http_modelgw_query_two(u_char *p, u_char *last, u_char sep,
    ngx_int_t max, ngx_int_t *n);


static ngx_http_modelgw_query_relative_t  ngx_http_modelgw_query_words[] = {
    { ngx_string("now"), 0, 0 },
    { ngx_string("today"), 1, 0 },
    { ngx_string("yesterday"), 1, 86400 },
    { ngx_null_string, 0, 0 }
};


static ngx_conf_enum_t  ngx_http_modelgw_query_bys[] = {
    { ngx_string("hour"), NGX_MODELGW_BY_HOUR },
    { ngx_string("day"), NGX_MODELGW_BY_DAY },
    { ngx_string("month"), NGX_MODELGW_BY_MONTH },
    { ngx_string("key"), NGX_MODELGW_BY_KEY },
    { ngx_string("model"), NGX_MODELGW_BY_MODEL },
    { ngx_string("account"), NGX_MODELGW_BY_ACCOUNT },
    { ngx_null_string, 0 }
};


/* the words themselves are what is looked for */

static ngx_conf_enum_t  ngx_http_modelgw_query_outcomes[] = {
    { ngx_string("reported"), 0 },
    { ngx_string("estimated"), 0 },
    { ngx_string("unanswered"), 0 },
    { ngx_string("refused"), 0 },
    { ngx_string("unsent"), 0 },
    { ngx_null_string, 0 }
};


static ngx_conf_enum_t  ngx_http_modelgw_query_ends[] = {
    { ngx_string("complete"), 0 },
    { ngx_string("client"), 0 },
    { ngx_string("upstream"), 0 },
    { ngx_string("timeout"), 0 },
    { ngx_string("killed"), 0 },
    { ngx_string("stopped"), 0 },
    { ngx_string("lost"), 0 },
    { ngx_null_string, 0 }
};


/*
 * "by" is first, those of calls only are last: see
 * ngx_http_modelgw_query_find().  Names have no "=", which a parameter of a
 * query string may lack.
 */

static ngx_http_modelgw_option_t  ngx_http_modelgw_query_options[] = {

    { ngx_string("by"), ngx_http_modelgw_query_by,
      ngx_http_modelgw_job_offset(by),
      "hour, day, month, key, model or account, or two of them as "
      "\"account,day\", one time at most", ngx_http_modelgw_query_bys },

    { ngx_string("account"), ngx_http_modelgw_option_id,
      ngx_http_modelgw_job_offset(filter.account),
      "an id of " NGX_HTTP_MODELGW_ID_TAKES, NULL },

    { ngx_string("key"), ngx_http_modelgw_option_id,
      ngx_http_modelgw_job_offset(filter.key),
      "an id of " NGX_HTTP_MODELGW_ID_TAKES, NULL },

    { ngx_string("model"), ngx_http_modelgw_query_model,
      ngx_http_modelgw_job_offset(filter.model),
      "the id of a model", NULL },

    { ngx_string("tz"), ngx_http_modelgw_query_zone,
      ngx_http_modelgw_job_offset(filter.zone),
      "an offset in whole hours from -12:00 to +14:00, such as +01:00, or Z",
      NULL },

    { ngx_string("from"), ngx_http_modelgw_query_from, 0,
      NGX_HTTP_MODELGW_QUERY_TIME_TAKES, NULL },

    { ngx_string("to"), ngx_http_modelgw_query_to, 0,
      NGX_HTTP_MODELGW_QUERY_TIME_TAKES, NULL },

    { ngx_string("limit"), ngx_http_modelgw_query_limit,
      ngx_http_modelgw_job_offset(filter.limit),
      "a number from 1 to 10000, of CSV to 1000000", NULL },

    { ngx_string("outcome"), ngx_http_modelgw_query_word,
      ngx_http_modelgw_job_offset(filter.outcome),
      "reported, estimated, unanswered, refused or unsent",
      ngx_http_modelgw_query_outcomes },

    { ngx_string("end"), ngx_http_modelgw_query_word,
      ngx_http_modelgw_job_offset(filter.end),
      "complete, client, upstream, timeout, killed, stopped or lost",
      ngx_http_modelgw_query_ends },

    { ngx_string("status"), ngx_http_modelgw_query_status,
      ngx_http_modelgw_job_offset(filter.status),
      "a status from 100 to 599, or 0", NULL },

    { ngx_string("request_id"), ngx_http_modelgw_query_text,
      ngx_http_modelgw_job_offset(filter.request_id),
      "a request id", NULL },

    { ngx_string("min_cost"), ngx_http_modelgw_query_amount,
      ngx_http_modelgw_job_offset(filter.min_cost),
      "an amount such as 0.50", NULL },

    { ngx_string("after"), ngx_http_modelgw_query_after,
      ngx_http_modelgw_job_offset(filter.after),
      "the \"next\" of another answer", NULL },

    { ngx_null_string, NULL, 0, NULL, NULL }
};


/* the first one of calls only */

#define NGX_HTTP_MODELGW_QUERY_OF_CALLS  8


ngx_int_t
ngx_http_modelgw_admin_query(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_job_t *job)
{
    u_char      *p, *last;
    uint64_t     to;
    ngx_int_t    rc;
    ngx_str_t    arg;
    ngx_uint_t   given;

    ngx_http_modelgw_query_defaults(job);

    if (ngx_http_modelgw_query_zone_first(r, job) != NGX_OK) {
        return NGX_ERROR;
    }

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

        rc = ngx_http_modelgw_query_arg(r, ctx, job, &arg, &given);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (!(job->flags & NGX_HTTP_MODELGW_ADMIN_CSV)
        && job->filter.limit > NGX_HTTP_MODELGW_QUERY_MAX)
    {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD",
                                      "\"limit\" of JSON must be a number "
                                      "from 1 to 10000");
    }

    /* no index has request ids */

    if (job->filter.request_id.len && job->filter.from == 0) {
        to = job->filter.to ? job->filter.to : job->filter.now;

        job->filter.from = (to > NGX_HTTP_MODELGW_QUERY_WINDOW)
                           ? to - NGX_HTTP_MODELGW_QUERY_WINDOW : 0;
    }

    if (job->filter.to && job->filter.from >= job->filter.to) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD",
                                      "\"from\" must be before \"to\"");
    }

    return ngx_http_modelgw_admin_accounts_check(r, ctx, job);
}


static void
ngx_http_modelgw_query_defaults(ngx_http_modelgw_job_t *job)
{
    job->filter.now = (uint64_t) ngx_time() * 1000;

    job->by.n = 1;
    job->by.bys[0] = NGX_MODELGW_BY_DAY;

    if (job->flags & NGX_HTTP_MODELGW_ADMIN_CSV) {
        job->filter.limit = NGX_MAX_INT_T_VALUE;

    } else if (job->flags & NGX_HTTP_MODELGW_ADMIN_BY) {
        job->filter.limit = NGX_HTTP_MODELGW_QUERY_MAX;

    } else {
        job->filter.limit = NGX_HTTP_MODELGW_QUERY_CALLS;
    }
}


/*
 * Times depend on the zone, wherever it is among the parameters.  What is wrong
 * with it is found in its turn.
 */

static ngx_int_t
ngx_http_modelgw_query_zone_first(ngx_http_request_t *r,
    ngx_http_modelgw_job_t *job)
{
    ngx_str_t  text, value;

    if (ngx_http_arg(r, (u_char *) "tz", 2, &text) != NGX_OK) {
        return NGX_OK;
    }

    if (ngx_http_modelgw_query_value(job->pool, &text, &value) != NGX_OK) {
        return NGX_ERROR;
    }

    (void) ngx_http_modelgw_query_zone(NULL, &value, &job->filter.zone);

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_query_arg(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_job_t *job, ngx_str_t *arg, ngx_uint_t *given)
{
    u_char                     *p, *last;
    ngx_str_t                   name, text, value;
    ngx_uint_t                  bit;
    ngx_http_modelgw_option_t  *option;

    last = arg->data + arg->len;

    p = ngx_strlchr(arg->data, last, '=');
    if (p == NULL) {
        p = last;
    }

    name.data = arg->data;
    name.len = p - arg->data;

    text.data = (p < last) ? p + 1 : last;
    text.len = last - text.data;

    /* in a cluster any list may be of what this node has stored */

    if (job->mmcf->cluster && (job->flags & NGX_HTTP_MODELGW_ADMIN_STORE)
        && arg->len == sizeof("local=1") - 1
        && ngx_strncmp(arg->data, "local=1", arg->len) == 0)
    {
        if (job->flags & NGX_HTTP_MODELGW_ADMIN_SHARED) {
            return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                          "INVALID_FIELD",
                                          "\"local\" is not possible here: "
                                          "only the database has all nodes");
        }

        job->local = 1;
        return NGX_OK;
    }

    option = ngx_http_modelgw_query_find(job, &name);
    if (option == NULL) {
        return ngx_http_modelgw_query_unknown(r, ctx, &name);
    }

    bit = (ngx_uint_t) 1 << (option - ngx_http_modelgw_query_table(job));

    if (*given & bit) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD",
                                      "\"%V\" is given twice", &name);
    }

    *given |= bit;

    if (ngx_http_modelgw_query_value(job->pool, &text, &value) != NGX_OK) {
        return NGX_ERROR;
    }

    if (option->set(option, &value, (u_char *) job + option->offset)
        != NGX_OK)
    {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD", "\"%V\" must be %s",
                                      &name, option->takes);
    }

    return NGX_OK;
}


/* returns the parameter of that name, or NULL if the route has none */

static ngx_http_modelgw_option_t *
ngx_http_modelgw_query_find(ngx_http_modelgw_job_t *job, ngx_str_t *name)
{
    ngx_uint_t                  i, n;
    ngx_http_modelgw_option_t  *option;

    i = 0;
    n = NGX_HTTP_MODELGW_QUERY_OF_CALLS;

    if (!(job->flags & NGX_HTTP_MODELGW_ADMIN_BY)) {
        i = job->params ? 0 : 1;
        n = (ngx_uint_t) -1;
    }

    if (job->params == NULL && !(job->flags & NGX_HTTP_MODELGW_ADMIN_QUERY)) {
        return NULL;
    }

    for (option = ngx_http_modelgw_query_table(job) + i;
         option->name.len && i < n;
         option++, i++)
    {
        if (option->name.len == name->len
            && ngx_memcmp(option->name.data, name->data, name->len) == 0)
        {
            return option;
        }
    }

    return NULL;
}


static ngx_http_modelgw_option_t *
ngx_http_modelgw_query_table(ngx_http_modelgw_job_t *job)
{
    return job->params ? job->params : ngx_http_modelgw_query_options;
}


ngx_int_t
ngx_http_modelgw_admin_query_none(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    u_char     *p;
    ngx_str_t   name;

    if (r->args.len == 0) {
        return NGX_OK;
    }

    name = r->args;

    for (p = name.data; p < name.data + name.len; p++) {

        if (*p == '=' || *p == '&') {
            name.len = p - name.data;
            break;
        }
    }

    return ngx_http_modelgw_query_unknown(r, ctx, &name);
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
                                  "Unknown parameter \"%V\"", &shown);
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


/* the ledger truncates long ids to this length */

static ngx_int_t
ngx_http_modelgw_query_model(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_str_t *model = field;

    if (!ngx_http_modelgw_model_id(value)) {
        return NGX_DECLINED;
    }

    model->data = value->data;
    model->len = ngx_min(value->len, NGX_MODELGW_LEDGER_MODEL);

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_query_limit(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_int_t    n;
    ngx_uint_t  *limit = field;

    n = ngx_atoi(value->data, value->len);

    if (n < 1 || n > NGX_HTTP_MODELGW_QUERY_CSV) {
        return NGX_DECLINED;
    }

    *limit = n;

    return NGX_OK;
}


/* "account,day" */

static ngx_int_t
ngx_http_modelgw_query_by(ngx_http_modelgw_option_t *option, ngx_str_t *value,
    void *field)
{
    u_char                  *p, *last;
    ngx_str_t                word;
    ngx_uint_t               i;
    ngx_conf_enum_t         *e;
    ngx_modelgw_store_by_t  *by = field;

    by->n = 0;
    p = value->data;
    last = p + value->len;

    do {
        word.data = p;

        p = ngx_strlchr(p, last, ',');
        if (p == NULL) {
            p = last;
        }

        word.len = p - word.data;

        e = ngx_http_modelgw_query_enum(option->words, &word);

        if (e == NULL || by->n == NGX_MODELGW_STORE_BYS) {
            return NGX_DECLINED;
        }

        for (i = 0; i < by->n; i++) {

            if (by->bys[i] == e->value
                || (by->bys[i] <= NGX_MODELGW_BY_MONTH
                    && e->value <= NGX_MODELGW_BY_MONTH))
            {
                return NGX_DECLINED;
            }
        }

        by->bys[by->n++] = e->value;

    } while (p++ < last);

    return NGX_OK;
}


/* one of a list */

static ngx_int_t
ngx_http_modelgw_query_word(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    if (ngx_http_modelgw_query_enum(option->words, value) == NULL) {
        return NGX_DECLINED;
    }

    *(ngx_str_t *) field = *value;

    return NGX_OK;
}


static ngx_conf_enum_t *
ngx_http_modelgw_query_enum(ngx_conf_enum_t *e, ngx_str_t *value)
{
    for ( /* void */ ; e->name.len; e++) {

        if (e->name.len == value->len
            && ngx_memcmp(e->name.data, value->data, value->len) == 0)
        {
            return e;
        }
    }

    return NULL;
}


/* 0: there was no answer */

static ngx_int_t
ngx_http_modelgw_query_status(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_int_t  n;

    n = ngx_atoi(value->data, value->len);

    if (n != 0 && (n < 100 || n > 599)) {
        return NGX_DECLINED;
    }

    *(ngx_str_t *) field = *value;

    return NGX_OK;
}


/* an upstream may have sent any text */

static ngx_int_t
ngx_http_modelgw_query_text(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    if (value->len == 0) {
        return NGX_DECLINED;
    }

    *(ngx_str_t *) field = *value;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_query_amount(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    int64_t  *nano = field;

    if (ngx_modelgw_amount_parse(value, nano) != NGX_OK || *nano < 0) {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_query_after(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    return ngx_modelgw_store_place(value, field);
}


/* "+01:00" in milliseconds; sums are kept by hour of UTC */

static ngx_int_t
ngx_http_modelgw_query_zone(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    u_char     *p, *last;
    int64_t    *zone = field;
    ngx_int_t   h, m, sign;

    p = value->data;
    last = p + value->len;

    if (value->len == 1 && (*p == 'Z' || *p == 'z')) {
        *zone = 0;
        return NGX_OK;
    }

    if (value->len == 0 || (*p != '+' && *p != '-')) {
        return NGX_DECLINED;
    }

    sign = (*p == '-') ? -1 : 1;

    p = ngx_http_modelgw_query_two(p + 1, last, ':', (sign > 0) ? 14 : 12, &h);
    p = ngx_http_modelgw_query_two(p, last, '\0', 0, &m);

    if (p != last) {
        return NGX_DECLINED;
    }

    *zone = (int64_t) sign * h * NGX_HTTP_MODELGW_QUERY_HOUR;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_query_from(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *data)
{
    ngx_http_modelgw_job_t *job = data;

    return ngx_http_modelgw_query_time(value, job->filter.zone,
                                       &job->filter.from);
}


static ngx_int_t
ngx_http_modelgw_query_to(ngx_http_modelgw_option_t *option, ngx_str_t *value,
    void *data)
{
    ngx_http_modelgw_job_t *job = data;

    return ngx_http_modelgw_query_time(value, job->filter.zone,
                                       &job->filter.to);
}


/*
 * A day of the zone, "2027-01-01", for its first millisecond, a time of RFC
 * 3339, "2027-01-01T12:00:00.5+01:00", or one that is relative.  0 means no
 * bound; times before 1970 are refused.
 */

static ngx_int_t
ngx_http_modelgw_query_time(ngx_str_t *value, int64_t zone, uint64_t *ms)
{
    time_t      day;
    int64_t     clock;
    ngx_str_t   text;

    if (ngx_http_modelgw_query_relative(value, zone, ms) == NGX_OK) {
        return NGX_OK;
    }

    text = *value;
    text.len = ngx_min(text.len, NGX_HTTP_MODELGW_QUERY_DAY);

    if (ngx_modelgw_key_date(&text, &day) != NGX_OK) {
        return NGX_DECLINED;
    }

    clock = -zone;

    if (value->len > text.len
        && ngx_http_modelgw_query_clock(value->data + text.len,
                                        value->data + value->len, &clock)
           != NGX_OK)
    {
        return NGX_DECLINED;
    }

    clock += (int64_t) day * 1000;

    if (clock < 0) {
        return NGX_DECLINED;
    }

    *ms = (uint64_t) clock;

    return NGX_OK;
}


/* days are those of the zone */

static ngx_int_t
ngx_http_modelgw_query_relative(ngx_str_t *value, int64_t zone, uint64_t *ms)
{
    u_char                             *unit;
    time_t                              now, day;
    ngx_int_t                           n;
    ngx_http_modelgw_query_relative_t  *r;

    static u_char  units[] = "mhd";
    static time_t  seconds[] = { 60, 3600, 86400 };

    now = ngx_time();
    day = now - (now + zone / 1000) % 86400;

    for (r = ngx_http_modelgw_query_words; r->name.len; r++) {

        if (r->name.len == value->len
            && ngx_memcmp(r->name.data, value->data, value->len) == 0)
        {
            *ms = (uint64_t) ((r->day ? day : now) - r->before) * 1000;
            return NGX_OK;
        }
    }

    if (value->len < 3 || value->data[0] != '-') {
        return NGX_DECLINED;
    }

    unit = ngx_strlchr(units, units + 3, value->data[value->len - 1]);
    n = ngx_atoi(value->data + 1, value->len - 2);

    if (unit == NULL || n == NGX_ERROR
        || n > now / seconds[unit - units] - 1)
    {
        return NGX_DECLINED;
    }

    *ms = (uint64_t) (now - n * seconds[unit - units]) * 1000;

    return NGX_OK;
}


/* "T12:00:00.5+01:00" as milliseconds since midnight UTC of the day */

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


/*
 * Reads two digits, and sep after them unless it is '\0'.  Returns the end, or
 * NULL if they are not there or p is NULL.
 */

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
ngx_http_modelgw_admin_query_calls(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    ngx_int_t   rc;
    ngx_uint_t  left;

    if (!(job->flags & NGX_HTTP_MODELGW_ADMIN_CSV)) {
        return ngx_modelgw_store_calls(store, &job->filter, &job->body,
                                       job->pool);
    }

    left = job->filter.limit;
    job->filter.limit = ngx_min(left, NGX_HTTP_MODELGW_QUERY_MAX);
    left -= job->filter.limit;

    rc = ngx_modelgw_store_calls_csv(store, &job->filter, &job->body,
                                     job->part);

    job->filter.limit = left;

    return (rc == NGX_AGAIN && left == 0) ? NGX_OK : rc;
}


ngx_int_t
ngx_http_modelgw_admin_query_call(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    return ngx_modelgw_store_call_get(store, job->id, &job->filter.account,
                                      &job->body, job->pool);
}


ngx_int_t
ngx_http_modelgw_admin_query_usage(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    ngx_int_t   rc;
    ngx_uint_t  limit;

    if (!(job->flags & NGX_HTTP_MODELGW_ADMIN_CSV)) {
        return ngx_modelgw_store_usage(store, &job->by, &job->filter,
                                       &job->body, job->pool);
    }

    limit = job->filter.limit;
    job->filter.limit = ngx_min(limit, NGX_HTTP_MODELGW_QUERY_MAX);

    rc = ngx_modelgw_store_usage_csv(store, &job->by, &job->filter, &job->body,
                                     job->part);

    /* CSV cannot say that there are more than were asked for */

    if (rc == NGX_AGAIN) {
        return (limit > NGX_HTTP_MODELGW_QUERY_MAX) ? NGX_BUSY : NGX_OK;
    }

    return rc;
}


ngx_int_t
ngx_http_modelgw_admin_query_find_call(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, ngx_http_modelgw_job_t *job)
{
    ngx_int_t  n;

    n = ngx_atoi(id->data, id->len);

    if (n < 1) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                      "No such call");
    }

    job->id = n;

    return NGX_OK;
}
