
/*
 * The upstream's side of an answer: broken framing, the headers that pass, the
 * client's error for one of the upstream.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_headers.h"
#include "ngx_http_modelgw_zone.h"


/* bytes of a log message about a header */

#define NGX_HTTP_MODELGW_UPSTREAM_WITH  128


static ngx_int_t ngx_http_modelgw_upstream_input_init(void *data);
static ngx_int_t ngx_http_modelgw_upstream_input(void *data, ssize_t bytes);
static ngx_int_t ngx_http_modelgw_upstream_retry_after(ngx_table_elt_t *h);
static time_t ngx_http_modelgw_upstream_seconds(ngx_str_t *value);
static u_char *ngx_http_modelgw_upstream_with(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, u_char *p);


/*
 * Headers of an upstream's answer that clients get; those that nginx writes
 * itself (type, length, date, server) are not in headers_out.headers.  Rate
 * limits of the upstream are the operator's, not the key's, and do not pass.
 */

static ngx_http_modelgw_name_t  ngx_http_modelgw_passed_out_list[] = {
    { ngx_string("request-id"), 0, NULL },
    { ngx_string("x-request-id"), 0, NULL },
    { ngx_string("retry-after"), 0, NULL },
    { ngx_string("retry-after-ms"), 0, NULL },
    { ngx_string("x-should-retry"), 0, NULL },
    { ngx_string("cache-control"), 0, NULL },
    { ngx_string("openai-processing-ms"), 0, NULL },
    { ngx_string("openai-version"), 0, NULL },
    { ngx_string("anthropic-version"), 0, NULL },
    { ngx_null_string, 0, NULL }
};

static ngx_http_modelgw_names_t  ngx_http_modelgw_passed_out;


void
ngx_http_modelgw_upstream_init(void)
{
    ngx_http_modelgw_names_index(&ngx_http_modelgw_passed_out,
                                 ngx_http_modelgw_passed_out_list);
}


/* a call of which nothing was known when its client left is not counted */

void
ngx_http_modelgw_upstream_end(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_uint_t                  error;
    ngx_http_upstream_state_t  *us;

    if (ctx->state != NGX_HTTP_MODELGW_FORWARDED
        || r->upstream_states == NULL || r->upstream_states->nelts == 0)
    {
        return;
    }

    us = r->upstream_states->elts;
    us += r->upstream_states->nelts - 1;

    error = ctx->error.code.len
            && (ctx->error.status >= NGX_HTTP_INTERNAL_SERVER_ERROR
                || ctx->error.status == NGX_HTTP_TOO_MANY_REQUESTS);

    if (error || us->status) {
        ngx_http_modelgw_health_count(ngx_http_modelgw_ctx_group(ctx), error);
    }
}


/*
 * If the proxy module's input filter fails, on broken framing, nginx closes the
 * client's connection at once and sends nothing.
 */

void
ngx_http_modelgw_upstream_watch(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    ctx->upstream.input_init = u->input_filter_init;
    u->input_filter_init = ngx_http_modelgw_upstream_input_init;
}


/* the proxy module sets u->input_filter in its own input_filter_init() */

static ngx_int_t
ngx_http_modelgw_upstream_input_init(void *data)
{
    ngx_http_request_t *r = data;

    ngx_http_upstream_t     *u;
    ngx_http_modelgw_ctx_t  *ctx;

    u = r->upstream;
    ctx = ngx_http_modelgw_get_ctx(r);

    if (ctx->upstream.input_init(data) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->upstream.input = u->input_filter;
    u->input_filter = ngx_http_modelgw_upstream_input;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_upstream_input(void *data, ssize_t bytes)
{
    ngx_http_request_t *r = data;

    ngx_http_upstream_t     *u;
    ngx_http_modelgw_ctx_t  *ctx;

    u = r->upstream;
    ctx = ngx_http_modelgw_get_ctx(r);

    if (ctx->upstream.input(data, bytes) != NGX_OK) {

        /* what was read before is still passed on, then nginx finalizes with
           502; with a full buffer nothing more is read */

        u->error = 1;
        u->buffer.last = u->buffer.end;
    }

    return NGX_OK;
}


void
ngx_http_modelgw_upstream_stop(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    /* ngx_http_upstream_process_non_buffered_request() finalizes at length 0
       when we return; the next request must not read the rest */

    u->length = 0;
    u->keepalive = 0;
}


void
ngx_http_modelgw_upstream_headers_out(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_table_elt_t             *h;
    ngx_http_modelgw_headers_t   hs;

    /* the header filter ignores the hash of this one */
    ngx_http_clear_location(r);

    ngx_http_modelgw_headers_init(&hs, &r->headers_out.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (!ngx_http_modelgw_names_find(&ngx_http_modelgw_passed_out, &h->key)
            || ngx_http_modelgw_headers_holds(&h->value,
                                    &ngx_http_modelgw_ctx_group(ctx)->secret)
            || ngx_http_modelgw_upstream_retry_after(h) != NGX_OK)
        {
            h->hash = 0;
        }
    }
}


/*
 * Clients get whole seconds, 1 to 60: some do wait for hours, others ignore a
 * date.
 *     NGX_OK        another header, or one that is valid now
 *     NGX_DECLINED  it is not valid
 */

static ngx_int_t
ngx_http_modelgw_upstream_retry_after(ngx_table_elt_t *h)
{
    time_t  n;

    if (ngx_http_modelgw_headers_is(&h->key, "retry-after-ms")) {
        n = ngx_atotm(h->value.data, h->value.len);

        return (n >= 0 && n <= 60000) ? NGX_OK : NGX_DECLINED;
    }

    if (!ngx_http_modelgw_headers_is(&h->key, "retry-after")) {
        return NGX_OK;
    }

    n = ngx_http_modelgw_upstream_seconds(&h->value);

    if (n == NGX_ERROR) {
        return NGX_DECLINED;
    }

    /* fits: one digit replaces one, two replace two or more, or a date */

    h->value.len = ngx_sprintf(h->value.data, "%T", n) - h->value.data;

    return NGX_OK;
}


/*
 * Seconds of any number of digits, or a date (RFC 9110, 10.2.3), as 1 to 60;
 * NGX_ERROR if it is neither.
 */

static time_t
ngx_http_modelgw_upstream_seconds(ngx_str_t *value)
{
    u_char      c;
    time_t      n;
    ngx_uint_t  i;

    n = 0;

    for (i = 0; i < value->len; i++) {
        c = value->data[i];

        if (c < '0' || c > '9') {
            break;
        }

        n = ngx_min(n * 10 + c - '0', 60);
    }

    if (i == 0 || i < value->len) {
        n = ngx_parse_http_time(value->data, value->len);

        if (n == NGX_ERROR) {
            return NGX_ERROR;
        }

        n = ngx_min(n - ngx_time(), 60);
    }

    return ngx_max(n, 1);
}


ngx_int_t
ngx_http_modelgw_upstream_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, ngx_uint_t event,
    ngx_str_t *body)
{
    u_char                    *p, with[NGX_HTTP_MODELGW_UPSTREAM_WITH];
    ngx_uint_t                 level;
    ngx_modelgw_error_mask_t   mask;
    ngx_http_modelgw_group_t  *group;

    group = ngx_http_modelgw_ctx_group(ctx);

    mask.upstream_model = ctx->call.upstream_id;
    mask.service_model = ctx->call.service_id;
    mask.upstream_host = group->host;
    mask.credential = group->secret;

    if (ngx_modelgw_error_upstream(r->pool, status, body,
                                   ctx->request.endpoint->protocol,
                                   event && !ctx->call.translate, &mask,
                                   &ctx->error)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* shows if the client gets 429 */
    ctx->request.reason = NGX_HTTP_MODELGW_REASON_UPSTREAM;

    level = NGX_LOG_INFO;

    if (ctx->error.log_error
        || ctx->error.status >= NGX_HTTP_INTERNAL_SERVER_ERROR)
    {
        level = NGX_LOG_ERR;
    }

    p = ngx_http_modelgw_upstream_with(r, ctx, with);

    ngx_log_error(level, r->connection->log, 0,
                  "upstream of group \"%V\" answered %ui%*s for model \"%V\", "
                  "client gets %ui %V%s",
                  &group->name, status, (size_t) (p - with), with,
                  &ctx->call.upstream_id,
                  event ? NGX_HTTP_OK : ctx->error.status, &ctx->error.code,
                  event ? " in its stream" : "");

    return NGX_OK;
}


/*
 * Writes which header makes a 200 an error, see filter.c, and returns the end;
 * nothing for another answer.
 */

static u_char *
ngx_http_modelgw_upstream_with(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, u_char *p)
{
    ngx_table_elt_t  *h;

    if (ctx->answer.mode != NGX_HTTP_MODELGW_ERROR
        || r->headers_out.status != NGX_HTTP_OK)
    {
        return p;
    }

    h = ngx_http_modelgw_filter_encoding(r);

    return ngx_snprintf(p, NGX_HTTP_MODELGW_UPSTREAM_WITH, " with %s \"%V\"",
                        h ? "Content-Encoding" : "Content-Type",
                        h ? &h->value : &r->headers_out.content_type);
}
