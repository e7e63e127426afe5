
/*
 * What an upstream answered: which of its headers pass, and what is told of its
 * errors.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_headers.h"


static ngx_int_t ngx_http_modelgw_upstream_input_init(void *data);
static ngx_int_t ngx_http_modelgw_upstream_input(void *data, ssize_t bytes);
static ngx_int_t ngx_http_modelgw_upstream_retry_after(ngx_table_elt_t *h);
static time_t ngx_http_modelgw_upstream_seconds(ngx_str_t *value);


/*
 * Headers of an upstream's answer that clients get; what nginx makes itself
 * (type, length, date, server) is not in the list of headers.  Rate limits that
 * the upstream tells are the operator's, not the key's.
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
    ngx_http_modelgw_headers_index(&ngx_http_modelgw_passed_out,
                                   ngx_http_modelgw_passed_out_list);
}


/*
 * Broken framing is an error of the proxy module's input filter, by which nginx
 * would close the client's connection at once and send nothing any more.
 */

void
ngx_http_modelgw_upstream_watch(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    ctx->input_init = u->input_filter_init;
    u->input_filter_init = ngx_http_modelgw_upstream_input_init;
}


/* the proxy module chooses its filter here */

static ngx_int_t
ngx_http_modelgw_upstream_input_init(void *data)
{
    ngx_http_request_t *r = data;

    ngx_http_upstream_t     *u;
    ngx_http_modelgw_ctx_t  *ctx;

    u = r->upstream;
    ctx = ngx_http_modelgw_get_ctx(r);

    if (ctx->input_init(data) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->input = u->input_filter;
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

    if (ctx->input(data, bytes) != NGX_OK) {

        /* what was read before still leaves, then nginx finalizes with 502;
           in a buffer without room nothing more is read */

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
       as soon as we return; what is unread must not meet the next request */

    u->length = 0;
    u->keepalive = 0;
}


void
ngx_http_modelgw_upstream_headers_out(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_table_elt_t             *h;
    ngx_http_modelgw_headers_t   hs;

    /* the header filter writes this one, whatever its hash */
    ngx_http_clear_location(r);

    ngx_http_modelgw_headers_init(&hs, &r->headers_out.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (!ngx_http_modelgw_headers_listed(&ngx_http_modelgw_passed_out,
                                             &h->key)
            || ngx_http_modelgw_headers_holds(&h->value, &ctx->group->secret)
            || ngx_http_modelgw_upstream_retry_after(h) != NGX_OK)
        {
            h->hash = 0;
        }
    }
}


/*
 * Clients get whole seconds, 1 to 60: some really wait for hours, and some take
 * a date for none at all (clients.md, 3.3).
 *     NGX_OK        another header, or one that is fit now
 *     NGX_DECLINED  it says nothing
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

    /* not longer than it was: one digit, several, or a date */

    h->value.len = ngx_sprintf(h->value.data, "%T", n) - h->value.data;

    return NGX_OK;
}


/*
 * Seconds, however many digits they have, or a date (RFC 9110, 10.2.3), as 1 to
 * 60; NGX_ERROR: neither.
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
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, ngx_uint_t frame,
    ngx_str_t *body)
{
    ngx_uint_t                level;
    ngx_modelgw_error_mask_t  mask;

    mask.upstream_model = ctx->upstream_id;
    mask.service_model = ctx->service_id;
    mask.upstream_host = ctx->group->host;
    mask.credential = ctx->group->secret;

    if (ngx_modelgw_error_upstream(r->pool, status, body,
                                   ctx->endpoint->protocol, frame, &mask,
                                   &ctx->error)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* the rest is the client's doing */

    level = NGX_LOG_INFO;

    if (ctx->error.loud || ctx->error.status >= NGX_HTTP_INTERNAL_SERVER_ERROR)
    {
        level = NGX_LOG_ERR;
    }

    ngx_log_error(level, r->connection->log, 0,
                  "upstream of group \"%V\" answered %ui for model \"%V\", "
                  "client gets %ui %V",
                  &ctx->group->name, status, &ctx->upstream_id,
                  ctx->error.status, &ctx->error.code);

    return NGX_OK;
}
