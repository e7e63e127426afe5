
/*
 * What is logged of a request beside its own messages: an end of each line of
 * the error log, and $modelgw_log, one line of an access log.
 *
 * nginx appends client, server and request to a line by r->log_handler, which
 * is replaced: so lines of nginx itself, such as those about an upstream that
 * does not answer, have the ids too.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"


#define NGX_HTTP_MODELGW_LOG_IDS  512    /* bytes */


static u_char *ngx_http_modelgw_log_handler(ngx_http_request_t *r,
    ngx_http_request_t *sr, u_char *buf, size_t len);
static u_char *ngx_http_modelgw_log_ids(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, u_char *p, u_char *last);
static ngx_int_t ngx_http_modelgw_log_id(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id);


/*
 * A variable that has no index is evaluated anew each time, and each value of
 * this one is another.
 */

ngx_int_t
ngx_http_modelgw_log_init(ngx_conf_t *cf)
{
    ngx_str_t  name;

    ngx_str_set(&name, "request_id");

    return (ngx_http_get_variable_index(cf, &name) == NGX_ERROR)
           ? NGX_ERROR : NGX_OK;
}


void
ngx_http_modelgw_log_begin(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    if (r->log_handler != ngx_http_modelgw_log_handler) {
        ctx->log_handler = r->log_handler;
        r->log_handler = ngx_http_modelgw_log_handler;
    }
}


/*
 * The room of the ids is kept free: a long request line must not displace them.
 * The last byte of buf becomes the line feed.  Without memory for an id nginx
 * logs that, which calls this again.
 */

static u_char *
ngx_http_modelgw_log_handler(ngx_http_request_t *r, ngx_http_request_t *sr,
    u_char *buf, size_t len)
{
    size_t                   n;
    u_char                  *last, ids[NGX_HTTP_MODELGW_LOG_IDS];
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_modelgw_get_ctx(r);

    if (ctx == NULL || ctx->log_handler == NULL) {
        return buf;
    }

    if (r != sr || ctx->logging) {
        return ctx->log_handler(r, sr, buf, len);
    }

    ctx->logging = 1;
    n = ngx_http_modelgw_log_ids(r, ctx, ids, ids + sizeof(ids)) - ids;
    ctx->logging = 0;

    last = buf + len;

    if (n < len) {
        buf = ctx->log_handler(r, sr, buf, len - n - 1);
    }

    return ngx_cpymem(buf, ids, ngx_min(n, (size_t) (last - buf)));
}


/* A byte of an upstream's id may be any but CR, LF and NUL. */

static u_char *
ngx_http_modelgw_log_ids(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    u_char *p, u_char *last)
{
    size_t     i;
    ngx_str_t  id;

    if (ctx->money.id) {
        p = ngx_slprintf(p, last, ", call: %uL", ctx->money.id);
    }

    if (ctx->request.found) {
        p = ngx_slprintf(p, last, ", key: %V", &ctx->request.found->id);
    }

    if (ngx_http_modelgw_log_id(r, ctx, &id) != NGX_OK) {
        return p;
    }

    p = ngx_slprintf(p, last, ", request_id: ");

    for (i = 0; i < id.len && p < last; i++) {
        *p++ = (id.data[i] > 0x20 && id.data[i] < 0x7f) ? id.data[i] : '?';
    }

    return p;
}


/*
 * The id that the client was told; before that the one that it will be told,
 * unless the upstream sends another.
 */

static ngx_int_t
ngx_http_modelgw_log_id(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_str_t *id)
{
    if (ctx && ctx->answer.request_id.len) {
        *id = ctx->answer.request_id;
        return NGX_OK;
    }

    return ngx_http_modelgw_reply_own_id(r, id);
}
