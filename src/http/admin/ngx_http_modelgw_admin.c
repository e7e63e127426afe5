
/*
 * The admin interface: which request is for what, and how it is answered.
 *
 * It is a content handler, so nginx's own access rules have spoken before.
 * What may take long, because it reads the store or goes over all accounts or
 * keys, is a job on a thread; nothing here keeps the event loop waiting.
 *
 * Who owns the request: the handler adds a reference of its own, and whoever
 * answers it, now or later, finalizes it once.  reply.c works so, too.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_headers.h"


/* paths behind the location's, without the slash between */

#define NGX_HTTP_MODELGW_ADMIN_ACCOUNT  "accounts/"
#define NGX_HTTP_MODELGW_ADMIN_TOPUP    "/topups"


typedef struct {
    ngx_str_t                  path;
    ngx_http_modelgw_job_pt    handler;
    ngx_uint_t                 ledger;   /* it needs one */
    ngx_uint_t                 reads;    /* the store */
    ngx_uint_t                 query;    /* _NO_QUERY, _QUERY or _BY */
} ngx_http_modelgw_admin_route_t;


static ngx_int_t ngx_http_modelgw_admin_path(ngx_http_request_t *r,
    ngx_str_t *path);
static ngx_int_t ngx_http_modelgw_admin_route(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *path, ngx_str_t *account,
    ngx_http_modelgw_admin_route_t **route);
static ngx_int_t ngx_http_modelgw_admin_get(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_admin_route_t *route,
    ngx_str_t *account);
static ngx_int_t ngx_http_modelgw_admin_method(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t methods, const char *allow);


static ngx_http_modelgw_admin_route_t  ngx_http_modelgw_admin_routes[] = {

    { ngx_string("accounts"), ngx_http_modelgw_admin_accounts,
      1, 0, NGX_HTTP_MODELGW_ADMIN_NO_QUERY },

    { ngx_string("calls"), ngx_http_modelgw_admin_calls,
      1, 1, NGX_HTTP_MODELGW_ADMIN_QUERY },

    { ngx_string("usage"), ngx_http_modelgw_admin_usage,
      1, 1, NGX_HTTP_MODELGW_ADMIN_BY },

    { ngx_string("keys"), ngx_http_modelgw_admin_keys,
      0, 0, NGX_HTTP_MODELGW_ADMIN_NO_QUERY },

    { ngx_null_string, NULL, 0, 0, 0 }
};


static ngx_http_modelgw_admin_route_t  ngx_http_modelgw_admin_one = {
    ngx_string(NGX_HTTP_MODELGW_ADMIN_ACCOUNT), ngx_http_modelgw_admin_account,
    1, 1, NGX_HTTP_MODELGW_ADMIN_NO_QUERY
};


/* not in the table: it is the one that is no job */

static ngx_http_modelgw_admin_route_t  ngx_http_modelgw_admin_credit = {
    ngx_string(NGX_HTTP_MODELGW_ADMIN_TOPUP), NULL, 1, 0, 0
};


ngx_int_t
ngx_http_modelgw_admin_handler(ngx_http_request_t *r)
{
    ngx_int_t                        rc;
    ngx_str_t                        path, account;
    ngx_http_modelgw_ctx_t          *ctx;
    ngx_http_modelgw_admin_route_t  *route;

    if (r != r->main || ngx_http_modelgw_get_ctx(r) != NULL) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "a subrequest, or a request that has been through "
                      "a gateway location, cannot use an admin location");
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* what is answered here stays so, whatever "error_page" says */
    r->error_page = 1;

    ctx = ngx_http_modelgw_create_ctx(r);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    route = NULL;
    ngx_str_null(&path);

    rc = ngx_http_modelgw_admin_guard(r, ctx);

    if (rc == NGX_OK && ngx_http_modelgw_admin_path(r, &path) != NGX_OK) {
        rc = ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                    "Not found");
    }

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_admin_route(r, ctx, &path, &account, &route);
    }

    if (rc == NGX_OK && route->handler == NULL) {
        return ngx_http_modelgw_admin_topup(r, ctx, &account);
    }

    r->main->count++;

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_admin_get(r, ctx, route, &account);
    }

    if (rc != NGX_OK) {
        ngx_http_modelgw_admin_refuse(r, ctx, rc);
    }

    return NGX_DONE;
}


/*
 * What of the URI stands behind the location's, so that the interface may be
 * anywhere: below "location /", "location /admin" and "location /admin/".
 */

static ngx_int_t
ngx_http_modelgw_admin_path(ngx_http_request_t *r, ngx_str_t *path)
{
    ngx_str_t                 *name;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    name = &clcf->name;

    /* "rewrite" may have changed it */

    if (name->len == 0 || r->uri.len <= name->len
        || ngx_memcmp(r->uri.data, name->data, name->len) != 0)
    {
        return NGX_DECLINED;
    }

    path->data = r->uri.data + name->len;
    path->len = r->uri.len - name->len;

    if (name->data[name->len - 1] == '/') {
        return NGX_OK;
    }

    if (path->data[0] != '/') {
        return NGX_DECLINED;
    }

    path->data++;
    path->len--;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_admin_route(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *path, ngx_str_t *account,
    ngx_http_modelgw_admin_route_t **route)
{
    size_t                           len, tail;
    ngx_http_modelgw_admin_route_t  *one;

    ngx_str_null(account);

    for (one = ngx_http_modelgw_admin_routes; one->path.len; one++) {

        if (path->len == one->path.len
            && ngx_memcmp(path->data, one->path.data, path->len) == 0)
        {
            *route = one;
            return ngx_http_modelgw_admin_method(r, ctx,
                                                 NGX_HTTP_GET|NGX_HTTP_HEAD,
                                                 "GET, HEAD");
        }
    }

    len = sizeof(NGX_HTTP_MODELGW_ADMIN_ACCOUNT) - 1;
    tail = sizeof(NGX_HTTP_MODELGW_ADMIN_TOPUP) - 1;

    if (path->len <= len
        || ngx_memcmp(path->data, NGX_HTTP_MODELGW_ADMIN_ACCOUNT, len) != 0)
    {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                      "Not found");
    }

    account->data = path->data + len;
    account->len = path->len - len;

    if (account->len > tail
        && ngx_memcmp(account->data + account->len - tail,
                      NGX_HTTP_MODELGW_ADMIN_TOPUP, tail)
           == 0)
    {
        account->len -= tail;
        *route = &ngx_http_modelgw_admin_credit;

        return ngx_http_modelgw_admin_method(r, ctx, NGX_HTTP_POST, "POST");
    }

    *route = &ngx_http_modelgw_admin_one;

    return ngx_http_modelgw_admin_method(r, ctx, NGX_HTTP_GET|NGX_HTTP_HEAD,
                                         "GET, HEAD");
}


static ngx_int_t
ngx_http_modelgw_admin_method(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t methods, const char *allow)
{
    ngx_str_t  value;

    if (r->method & methods) {
        return NGX_OK;
    }

    value.len = ngx_strlen(allow);
    value.data = (u_char *) allow;

    if (ngx_http_modelgw_headers_add(r, "Allow", &value) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_ALLOWED,
                                  "METHOD_NOT_ALLOWED",
                                  "Only %s is allowed here", allow);
}


static ngx_int_t
ngx_http_modelgw_admin_get(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_admin_route_t *route, ngx_str_t *account)
{
    uint32_t                       index;
    ngx_int_t                      rc;
    ngx_http_modelgw_job_t        *job;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    if (route->ledger && (mmcf->ledger_path.len == 0 || mmcf->ledger == NULL)) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                      "no ledger is configured");
    }

    index = 0;

    if (account->len) {
        rc = ngx_http_modelgw_admin_account_find(r, ctx, account, &index);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    rc = ngx_http_modelgw_job_create(r, ctx, &job);
    if (rc != NGX_OK) {
        return rc;
    }

    job->handler = route->handler;
    job->reads = route->reads;
    job->account = index;

    rc = ngx_http_modelgw_admin_query(r, ctx, job, route->query);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_modelgw_job_start(job);

    return NGX_OK;
}


void
ngx_http_modelgw_admin_reply(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, ngx_str_t *body)
{
    ngx_int_t    rc;
    ngx_str_t    value;
    ngx_chain_t  out;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        ngx_http_finalize_request(r, rc);
        return;
    }

    ctx->mode = NGX_HTTP_MODELGW_OWN;

    r->headers_out.status = status;
    r->headers_out.content_length_n = body->len;
    ngx_str_set(&r->headers_out.content_type, "application/json");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->disable_not_modified = 1;

    ngx_str_set(&value, "no-store");

    if (ngx_http_modelgw_headers_add(r, "Cache-Control", &value) != NGX_OK
        || ngx_http_modelgw_reply_body(r, body, &out) != NGX_OK)
    {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    rc = ngx_http_send_header(r);

    if (rc == NGX_OK && !r->header_only) {
        rc = ngx_http_output_filter(r, &out);
    }

    ngx_http_finalize_request(r, rc);
}


void
ngx_http_modelgw_admin_refuse(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_int_t rc)
{
    if (rc == NGX_DECLINED) {
        (void) ngx_http_modelgw_reply_error(r, ctx);
        return;
    }

    ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
}
