
/*
 * The access phase: finds the endpoint, and checks the key.
 *
 * The handler sends refusals itself instead of returning 401: so they are flat,
 * the connection is kept, and no "error_page" turns them into a 200.  It
 * returns NGX_OK if the key is valid.  With "satisfy any" the access handler of
 * another module may admit a request before this one is called: the precontent
 * phase refuses a request without a key.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_headers.h"


#define NGX_HTTP_TOO_EARLY  425          /* RFC 8470, 5.2 */


/* what the request headers say */

typedef struct {
    ngx_str_t                   *prefix;    /* of service keys */
    ngx_str_t                    secret;    /* the service key; len 0: none */
    ngx_uint_t                   sent;      /* there is a credential */
    ngx_uint_t                   differ;    /* there are two service keys */
    ngx_uint_t                   encoded;   /* the body is compressed */
    ngx_uint_t                   early;     /* a proxy got it as early data */
} ngx_http_modelgw_access_t;


typedef struct {
    ngx_str_t                    name;
    void                       (*handler)(ngx_http_modelgw_access_t *a,
                                          ngx_str_t *value);
} ngx_http_modelgw_access_header_t;


static ngx_int_t ngx_http_modelgw_access_route(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static size_t ngx_http_modelgw_access_alias(ngx_http_request_t *r,
    ngx_str_t *uri);
static ngx_uint_t ngx_http_modelgw_access_websocket(ngx_http_request_t *r);
static ngx_int_t ngx_http_modelgw_access_method(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_access_key(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_access_invalid(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_http_modelgw_reason_e ngx_http_modelgw_access_check(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_http_modelgw_access_t *a,
    ngx_modelgw_key_t *key);
static ngx_uint_t ngx_http_modelgw_access_closed(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_modelgw_key_t *key);
static ngx_uint_t ngx_http_modelgw_access_in_early_data(ngx_http_request_t *r);
static void ngx_http_modelgw_access_headers(ngx_http_request_t *r,
    ngx_http_modelgw_access_t *a);
static void ngx_http_modelgw_access_authorization(ngx_http_modelgw_access_t *a,
    ngx_str_t *value);
static void ngx_http_modelgw_access_x_api_key(ngx_http_modelgw_access_t *a,
    ngx_str_t *value);
static void ngx_http_modelgw_access_encoding(ngx_http_modelgw_access_t *a,
    ngx_str_t *value);
static void ngx_http_modelgw_access_early_data(ngx_http_modelgw_access_t *a,
    ngx_str_t *value);
static void ngx_http_modelgw_access_credential(ngx_http_modelgw_access_t *a,
    ngx_str_t *value, ngx_uint_t bearer);


static ngx_http_modelgw_access_header_t  ngx_http_modelgw_access_table[] = {
    { ngx_string("authorization"), ngx_http_modelgw_access_authorization },
    { ngx_string("x-api-key"), ngx_http_modelgw_access_x_api_key },
    { ngx_string("content-encoding"), ngx_http_modelgw_access_encoding },
    { ngx_string("early-data"), ngx_http_modelgw_access_early_data },
    { ngx_null_string, NULL }
};


static ngx_http_modelgw_endpoint_t  ngx_http_modelgw_endpoints[] = {

    { ngx_string("/v1/chat/completions"),
      NGX_HTTP_POST, NGX_MODELGW_CHAT,
      ngx_string("/v1/chat/completions"),
      ngx_string("/v1/chat/completions"),
      0 },

    { ngx_string("/v1/messages"),
      NGX_HTTP_POST, NGX_MODELGW_MESSAGES,
      ngx_string("/v1/messages"),
      ngx_string("/v1/messages?beta=true"),
      NGX_HTTP_MODELGW_MAX_TOKENS },

    { ngx_string("/v1/messages/count_tokens"),
      NGX_HTTP_POST, NGX_MODELGW_MESSAGES,
      ngx_string("/v1/messages/count_tokens"),
      ngx_string("/v1/messages/count_tokens?beta=true"),
      NGX_HTTP_MODELGW_COUNT },

    { ngx_string("/v1/embeddings"),
      NGX_HTTP_POST, NGX_MODELGW_EMBEDDINGS,
      ngx_string("/v1/embeddings"),
      ngx_string("/v1/embeddings"),
      0 },

    { ngx_string("/v1/models"),
      NGX_HTTP_GET, 0, ngx_null_string, ngx_null_string, 0 },

    { ngx_string("/v1/models/"),
      NGX_HTTP_GET, 0, ngx_null_string, ngx_null_string,
      NGX_HTTP_MODELGW_PREFIX },

    { ngx_string("/v1/responses"),
      NGX_HTTP_POST, NGX_MODELGW_RESPONSES,
      ngx_string("/v1/responses"),
      ngx_string("/v1/responses"),
      NGX_HTTP_MODELGW_WEBSOCKET },

    { ngx_null_string, 0, 0, ngx_null_string, ngx_null_string, 0 }
};


ngx_int_t
ngx_http_modelgw_access_handler(ngx_http_request_t *r)
{
    ngx_int_t                     rc;
    ngx_http_modelgw_ctx_t       *ctx;
    ngx_http_modelgw_loc_conf_t  *mlcf;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    if (!mlcf->enable) {
        return NGX_DECLINED;
    }

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "modelgw access: \"%V\"", &r->uri);

    /* disables "error_page" */
    r->error_page = 1;

    if (ngx_http_modelgw_get_ctx(r) != NULL) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "internal redirect to a gateway location, \"%V\", "
                      "of a request that was in one before", &r->uri);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx = ngx_http_modelgw_create_ctx(r);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_modelgw_access_route(r, ctx);

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_access_key(r, ctx);
    }

    if (rc == NGX_DECLINED) {
        return ngx_http_modelgw_reply_error(r, ctx);
    }

    return (rc == NGX_OK || rc == NGX_DONE) ? rc
                                            : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


/*
 *     NGX_OK        the path and the method are those of an endpoint
 *     NGX_DONE      the response is sent
 *     NGX_DECLINED  refused, ctx->error is set
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_http_modelgw_access_route(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_endpoint_t  *e;

    e = ngx_http_modelgw_endpoint(r, &ctx->request.id);

    if (e && ngx_http_modelgw_cors_preflight(r)) {
        ctx->request.endpoint = e;
        return ngx_http_modelgw_cors_reply(r, ctx);
    }

    if (e == NULL || r->method == NGX_HTTP_OPTIONS) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                      "No such endpoint");
    }

    ctx->request.endpoint = e;

    /* after 426 a client continues over HTTP at once, after 404 or 405 it
       repeats the WebSocket handshake for seconds */

    return ((e->flags & NGX_HTTP_MODELGW_WEBSOCKET)
            && ngx_http_modelgw_access_websocket(r))
           ? ngx_http_modelgw_reply_upgrade(r, ctx)
           : ngx_http_modelgw_access_method(r, ctx);
}


ngx_http_modelgw_endpoint_t *
ngx_http_modelgw_endpoint(ngx_http_request_t *r, ngx_str_t *rest)
{
    size_t                        len, skip;
    ngx_str_t                     uri;
    ngx_http_modelgw_endpoint_t  *e;

    uri = r->uri;
    skip = ngx_http_modelgw_access_alias(r, &uri);

    for (e = ngx_http_modelgw_endpoints; e->uri.len; e++) {

        len = e->uri.len - skip;

        if (e->flags & NGX_HTTP_MODELGW_PREFIX) {

            if (uri.len <= len) {
                continue;
            }

        } else if (uri.len != len) {
            continue;
        }

        if (ngx_memcmp(uri.data, e->uri.data + skip, len) == 0) {
            rest->data = uri.data + len;
            rest->len = uri.len - len;
            return e;
        }
    }

    return NULL;
}


/*
 * Clients are given an address with or without "/v1", whatever they add to it
 * themselves.  Removes a second one from the path; returns the bytes to skip in
 * the path of an endpoint, if there is none.
 */

static size_t
ngx_http_modelgw_access_alias(ngx_http_request_t *r, ngx_str_t *uri)
{
    ngx_http_modelgw_loc_conf_t  *mlcf;

    static ngx_str_t  v1 = ngx_string("/v1");

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    if (!mlcf->aliases || !mlcf->enable) {
        return 0;
    }

    if (uri->len >= 7 && ngx_memcmp(uri->data, "/v1/v1/", 7) == 0) {
        uri->data += v1.len;
        uri->len -= v1.len;
        return 0;
    }

    return (uri->len >= 4 && ngx_memcmp(uri->data, "/v1/", 4) == 0)
           ? 0 : v1.len;
}


/* RFC 6455, 4.1; HTTP/1.0 and HTTP/2 have no Upgrade */

static ngx_uint_t
ngx_http_modelgw_access_websocket(ngx_http_request_t *r)
{
    ngx_table_elt_t  *h;

    h = r->headers_in.upgrade;

    return r->method == NGX_HTTP_GET
           && r->http_version == NGX_HTTP_VERSION_11
           && h != NULL
           && ngx_strcasestrn(h->value.data, "websocket", 9 - 1) != NULL;
}


static ngx_int_t
ngx_http_modelgw_access_method(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_str_t   value;
    ngx_uint_t  method;

    method = ctx->request.endpoint->method;

    if (r->method == method
        || (method == NGX_HTTP_GET && r->method == NGX_HTTP_HEAD))
    {
        if (ngx_http_arg(r, (u_char *) "beta", 4, &value) == NGX_OK
            && value.len == 4 && ngx_memcmp(value.data, "true", 4) == 0)
        {
            ctx->request.beta = 1;
        }

        return NGX_OK;
    }

    /* RFC 9110, 15.5.6 */

    if (method == NGX_HTTP_GET) {
        ngx_str_set(&value, "GET, HEAD");

    } else {
        ngx_str_set(&value, "POST");
    }

    if (ngx_http_modelgw_headers_add(r, "Allow", &value) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_ALLOWED,
                                  "METHOD_NOT_ALLOWED",
                                  "Method not allowed; use %V", &value);
}


static ngx_int_t
ngx_http_modelgw_access_key(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    u_char                         digest[NGX_MODELGW_KEY_DIGEST];
    ngx_int_t                      rc;
    ngx_modelgw_key_t             *key;
    ngx_http_modelgw_access_t      a;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    ngx_memzero(&a, sizeof(ngx_http_modelgw_access_t));

    a.prefix = &mmcf->key_prefix;

    ngx_http_modelgw_access_headers(r, &a);

    if (!a.sent) {
        ctx->request.reason = NGX_HTTP_MODELGW_REASON_MISSING;

        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_UNAUTHORIZED,
                                      "API_KEY_REQUIRED", "API key required");
    }

    key = NULL;

    if (!a.differ) {

        /* without a service key the empty string is looked up, so that the
           response time is the same */

        if (ngx_modelgw_key_digest(&a.secret, digest) != NGX_OK) {
            return NGX_ERROR;
        }

        rc = ngx_http_modelgw_access_find(r, mmcf, digest, &key);

        if (rc == NGX_BUSY) {
            return ngx_http_modelgw_access_busy(r, ctx);
        }

        if (rc != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ctx->request.found = key;
    ctx->request.reason = ngx_http_modelgw_access_check(mmcf, &a, key);

    if (ctx->request.reason != NGX_HTTP_MODELGW_REASON_NONE) {
        return ngx_http_modelgw_access_invalid(r, ctx);
    }

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "modelgw key: \"%V\"", &key->id);

    ctx->state = NGX_HTTP_MODELGW_KNOWN;
    ctx->request.key = key;
    ctx->request.secret = a.secret;

    rc = ngx_http_modelgw_access_early(r, ctx, a.early);
    if (rc != NGX_OK) {
        return rc;
    }

    if (a.encoded) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_UNSUPPORTED_MEDIA_TYPE,
                                      "UNSUPPORTED_ENCODING",
                                      "The body must not be compressed");
    }

    return ngx_http_modelgw_limit_request(r, ctx);
}


ngx_int_t
ngx_http_modelgw_access_find(ngx_http_request_t *r,
    ngx_http_modelgw_main_conf_t *mmcf, u_char *digest, ngx_modelgw_key_t **key)
{
    ngx_int_t  rc;

    *key = mmcf->keys ? ngx_modelgw_keys_find(mmcf->keys, digest) : NULL;

    if (*key || mmcf->managed == NULL) {
        return NGX_OK;
    }

    rc = ngx_http_modelgw_managed(r, mmcf, digest, key);

    return (rc == NGX_DECLINED) ? NGX_OK : rc;
}


ngx_int_t
ngx_http_modelgw_access_again(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                      rc;
    ngx_modelgw_key_t             *key;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);
    key = ctx->request.key;

    rc = key->managed ? ngx_http_modelgw_managed_again(mmcf, key) : NGX_OK;

    if (rc == NGX_BUSY) {
        return ngx_http_modelgw_access_busy(r, ctx);
    }

    if (rc == NGX_DECLINED) {
        ctx->request.reason = NGX_HTTP_MODELGW_REASON_REVOKED;

    } else if (key->expires && key->expires <= ngx_time()) {
        ctx->request.reason = NGX_HTTP_MODELGW_REASON_EXPIRED;

    } else if (ngx_http_modelgw_access_closed(mmcf, key)) {
        ctx->request.reason = NGX_HTTP_MODELGW_REASON_CLOSED;

    } else {
        return NGX_OK;
    }

    return ngx_http_modelgw_access_invalid(r, ctx);
}


ngx_int_t
ngx_http_modelgw_access_busy(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                  "SERVICE_UNAVAILABLE",
                                  "The keys are being loaded, try again");
}


static ngx_int_t
ngx_http_modelgw_access_invalid(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_UNAUTHORIZED,
                                  "INVALID_API_KEY", "Invalid API key");
}


/* Why the key is refused; the client gets the same answer for all. */

static ngx_http_modelgw_reason_e
ngx_http_modelgw_access_check(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_access_t *a, ngx_modelgw_key_t *key)
{
    if (a->differ) {
        return NGX_HTTP_MODELGW_REASON_DIFFER;
    }

    if (a->secret.len == 0) {
        return NGX_HTTP_MODELGW_REASON_MALFORMED;
    }

    return ngx_http_modelgw_access_refuses(mmcf, key);
}


ngx_http_modelgw_reason_e
ngx_http_modelgw_access_refuses(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_modelgw_key_t *key)
{
    if (key == NULL) {
        return NGX_HTTP_MODELGW_REASON_UNKNOWN;
    }

    if (key->revoked) {
        return NGX_HTTP_MODELGW_REASON_REVOKED;
    }

    if (key->expires && key->expires <= ngx_time()) {
        return NGX_HTTP_MODELGW_REASON_EXPIRED;
    }

    if (key->group == NULL) {
        return NGX_HTTP_MODELGW_REASON_UNKNOWN_GROUP;
    }

    if (ngx_http_modelgw_access_closed(mmcf, key)) {
        return NGX_HTTP_MODELGW_REASON_CLOSED;
    }

    return NGX_HTTP_MODELGW_REASON_NONE;
}


/* whether the account of the key is closed */

static ngx_uint_t
ngx_http_modelgw_access_closed(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_modelgw_key_t *key)
{
    ngx_modelgw_ledger_account_t  *a;

    if (mmcf->ledger_path.len == 0
        || key->account_index == NGX_MODELGW_LEDGER_NONE)
    {
        return 0;
    }

    a = ngx_modelgw_ledger_account_at(mmcf->ledger, key->account_index);

    return __atomic_load_n(&a->closed, __ATOMIC_RELAXED);
}


ngx_int_t
ngx_http_modelgw_access_early(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t sent)
{
    if ((r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))
        || (!sent && !ngx_http_modelgw_access_in_early_data(r)))
    {
        return NGX_OK;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_TOO_EARLY,
                                  "INVALID_REQUEST",
                                  "The request must not be sent as early data");
}


/*
 * TLS early data may be a replay by an attacker, and each call costs money (RFC
 * 8470, 3).
 */

static ngx_uint_t
ngx_http_modelgw_access_in_early_data(ngx_http_request_t *r)
{
#if (NGX_HTTP_SSL)
    ngx_str_t                   name;
    ngx_http_variable_value_t  *v;

    if (r->connection->ssl == NULL) {
        return 0;
    }

    ngx_str_set(&name, "ssl_early_data");

    v = ngx_http_get_variable(r, &name, ngx_hash_key(name.data, name.len));

    return v == NULL || (!v->not_found && v->len);
#else
    return 0;
#endif
}


static void
ngx_http_modelgw_access_headers(ngx_http_request_t *r,
    ngx_http_modelgw_access_t *a)
{
    ngx_table_elt_t                   *h;
    ngx_http_modelgw_headers_t         hs;
    ngx_http_modelgw_access_header_t  *t;

    ngx_http_modelgw_headers_init(&hs, &r->headers_in.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        for (t = ngx_http_modelgw_access_table; t->name.len; t++) {

            if (ngx_http_modelgw_headers_text_is(&h->key, t->name.data,
                                                 t->name.len))
            {
                t->handler(a, &h->value);
                break;
            }
        }
    }
}


static void
ngx_http_modelgw_access_authorization(ngx_http_modelgw_access_t *a,
    ngx_str_t *value)
{
    ngx_http_modelgw_access_credential(a, value, 1);
}


static void
ngx_http_modelgw_access_x_api_key(ngx_http_modelgw_access_t *a,
    ngx_str_t *value)
{
    ngx_http_modelgw_access_credential(a, value, 0);
}


static void
ngx_http_modelgw_access_encoding(ngx_http_modelgw_access_t *a,
    ngx_str_t *value)
{
    if (value->len != sizeof("identity") - 1
        || ngx_strncasecmp(value->data, (u_char *) "identity", value->len) != 0)
    {
        a->encoded = 1;
    }
}


/* set by a proxy in front: RFC 8470, 5.1 */

static void
ngx_http_modelgw_access_early_data(ngx_http_modelgw_access_t *a,
    ngx_str_t *value)
{
    a->early = 1;
}


/*
 * Credentials that are not service keys are ignored if there is a service key:
 * some assistants send a vendor's key that is left over in the other header.
 */

static void
ngx_http_modelgw_access_credential(ngx_http_modelgw_access_t *a,
    ngx_str_t *value, ngx_uint_t bearer)
{
    ngx_str_t  secret;

    a->sent = 1;

    if (ngx_modelgw_key_secret(value, bearer, &secret) != NGX_OK
        || secret.len <= a->prefix->len
        || ngx_memcmp(secret.data, a->prefix->data, a->prefix->len) != 0)
    {
        return;
    }

    if (a->secret.len == 0) {
        a->secret = secret;
        return;
    }

    if (a->secret.len != secret.len
        || ngx_memcmp(a->secret.data, secret.data, secret.len) != 0)
    {
        a->differ = 1;
    }
}
