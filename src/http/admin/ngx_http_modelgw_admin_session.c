
/*
 * Signing in to the admin interface over TCP, with "modelgw_operators".
 *
 * Operators sign in with their tokens, holders of service keys with these: they
 * see their own account only.  Scripts send the token with each request, as
 * Bearer (RFC 6750), the console once: it gets a cookie that pages cannot read,
 * and that is sent by pages of this origin only.  The "__Host-" in its name
 * makes browsers refuse one that another host, or plain HTTP, has set
 * (RFC 6265bis, 4.1.3.2).
 *
 * The token of a session is looked up again by its digest at each request.  So
 * one that was removed, replaced, revoked or has expired ends all its sessions,
 * and a new role counts at once.
 *
 * A token is random and has a fast hash: nothing here keeps the event loop
 * waiting, and none can be guessed.  Attempts that fail are limited by address
 * nevertheless.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_key.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_session.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"
#include "ngx_http_modelgw_headers.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_SESSION_SIZE    512    /* bytes allocated at first */

#define NGX_HTTP_MODELGW_SESSION_ATTRIBUTES                                   \
    "; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age="


static ngx_int_t ngx_http_modelgw_session_variables(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_loc_conf_t *mlcf);
static ngx_int_t ngx_http_modelgw_session_token(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *token);
static ngx_int_t ngx_http_modelgw_session_cookie(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_session_find(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_session_required(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_session_parse_new(
    ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_session_start(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_session_parse_get(
    ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_session_answer(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_session_stop(ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_session_set(ngx_http_request_t *r,
    ngx_str_t *text, ngx_uint_t age);
static void ngx_http_modelgw_session_write(ngx_modelgw_out_t *out,
    ngx_http_modelgw_change_t *c);
static void ngx_http_modelgw_session_text(ngx_modelgw_out_t *out,
    const char *name, ngx_str_t *text);
static ngx_int_t ngx_http_modelgw_operators_answer(
    ngx_http_modelgw_change_t *c);
static ngx_str_t *ngx_http_modelgw_session_role(ngx_uint_t role);


static ngx_modelgw_scan_watch_t  ngx_http_modelgw_session_fields[] = {
    { ngx_string("token"), NGX_MODELGW_SCAN_STRING }
};


ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_session_new = {
    .fields = ngx_http_modelgw_session_fields,
    .nfields = 1,
    .required = 1,
    .parse = ngx_http_modelgw_session_parse_new,
    .answer = ngx_http_modelgw_session_start,
    .local = 1
};

ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_session_get = {
    .fields = ngx_http_modelgw_session_fields,
    .parse = ngx_http_modelgw_session_parse_get,
    .answer = ngx_http_modelgw_session_answer,
    .local = 1
};

ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_session_end = {
    .fields = ngx_http_modelgw_session_fields,
    .answer = ngx_http_modelgw_session_stop,
    .local = 1
};

ngx_http_modelgw_change_kind_t  ngx_http_modelgw_admin_operators = {
    .fields = ngx_http_modelgw_session_fields,
    .answer = ngx_http_modelgw_operators_answer,
    .local = 1
};


ngx_int_t
ngx_http_modelgw_admin_sign_in(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_str_t                         token, *text;
    ngx_http_modelgw_loc_conf_t      *mlcf;
    ngx_http_modelgw_admin_client_t  *client;

    client = ctx->client;
    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    switch (client->from) {

    case NGX_HTTP_MODELGW_ADMIN_UNIX:
        client->role = NGX_HTTP_MODELGW_ROLE_ADMIN;
        return NGX_OK;

    case NGX_HTTP_MODELGW_ADMIN_VARIABLES:
        return ngx_http_modelgw_session_variables(r, ctx, mlcf);

    case NGX_HTTP_MODELGW_ADMIN_TOKENS:

        if (client->twice) {
            return ngx_http_modelgw_session_required(r, ctx);
        }

        return (ngx_modelgw_key_secret(&client->authorization, 1, &token)
                == NGX_OK)
               ? ngx_http_modelgw_session_token(r, ctx, &token)
               : ngx_http_modelgw_session_cookie(r, ctx);

    default: /* NGX_HTTP_MODELGW_ADMIN_ANY */

        /* a client may send any user name: it counts only where "auth_basic"
           has checked its password */

        text = (mlcf->admin_users && r->headers_in.user.len)
               ? &r->headers_in.user : &r->connection->addr_text;

        client->name = *text;
        client->role = NGX_HTTP_MODELGW_ROLE_ADMIN;

        return NGX_OK;
    }
}


/* whom another module has authenticated */

static ngx_int_t
ngx_http_modelgw_session_variables(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_loc_conf_t *mlcf)
{
    ngx_str_t                         role;
    ngx_http_modelgw_admin_client_t  *client;

    client = ctx->client;

    if (ngx_http_complex_value(r, mlcf->admin_actor, &client->name) != NGX_OK
        || ngx_http_complex_value(r, mlcf->admin_role, &role) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (client->name.len == 0 || role.len == 0) {
        return ngx_http_modelgw_session_required(r, ctx);
    }

    if (ngx_http_modelgw_option_word_find(ngx_http_modelgw_roles, &role,
                                          &client->role)
        == NGX_OK)
    {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "unknown role \"%V\" of \"%V\": it is admin, billing or "
                  "viewer", &role, &client->name);

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_FORBIDDEN, "FORBIDDEN",
                                  "You have no role here");
}


static ngx_int_t
ngx_http_modelgw_session_token(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *token)
{
    time_t                            wait;
    ngx_int_t                         rc;
    ngx_http_modelgw_main_conf_t     *mmcf;
    ngx_http_modelgw_admin_client_t  *client;

    client = ctx->client;
    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    wait = ngx_http_modelgw_sessions_wait(mmcf, r->connection->sockaddr);

    if (wait) {
        if (ngx_http_modelgw_limit_retry_after(r, wait) != NGX_OK) {
            return NGX_ERROR;
        }

        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_TOO_MANY_REQUESTS,
                                      "RATE_LIMITED",
                                      "Too many attempts to sign in have "
                                      "failed; try again in %T seconds", wait);
    }

    if (ngx_modelgw_key_digest(token, client->session.digest) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_modelgw_session_find(r, ctx);

    if (rc != NGX_DONE) {
        return rc;
    }

    ngx_http_modelgw_sessions_failed(mmcf, r->connection->sockaddr);

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "a sign-in to the admin interface has failed");

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_UNAUTHORIZED,
                                  "SIGN_IN_REQUIRED",
                                  "This is not a token of an operator, nor a "
                                  "service key, that is valid now");
}


static ngx_int_t
ngx_http_modelgw_session_cookie(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                         rc;
    ngx_http_modelgw_main_conf_t     *mmcf;
    ngx_http_modelgw_admin_client_t  *client;

    client = ctx->client;
    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    rc = ngx_http_modelgw_sessions_read(mmcf, &client->cookie,
                                        &client->session);
    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_session_find(r, ctx);

    } else if (rc == NGX_DECLINED) {
        client->session.expires = 0;
        rc = NGX_DONE;
    }

    return (rc == NGX_DONE) ? ngx_http_modelgw_session_required(r, ctx) : rc;
}


/*
 * Sets the client's role by the digest of its token, in client->session.
 *     NGX_OK
 *     NGX_DONE      there is no such token, or it is not valid now
 *     NGX_DECLINED  refused, ctx->error is set
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_http_modelgw_session_find(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    u_char                           *digest;
    ngx_int_t                         rc;
    ngx_modelgw_key_t                *key;
    ngx_http_modelgw_operator_t      *operator;
    ngx_http_modelgw_main_conf_t     *mmcf;
    ngx_http_modelgw_admin_client_t  *client;

    client = ctx->client;
    digest = client->session.digest;
    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    operator = ngx_http_modelgw_operators_find(mmcf, digest);

    if (operator) {

        if (operator->expires && operator->expires <= ngx_time()) {
            return NGX_DONE;
        }

        client->name = operator->name;
        client->role = operator->role;

        return NGX_OK;
    }

    rc = ngx_http_modelgw_access_find(r, mmcf, digest, &key);

    if (rc == NGX_BUSY) {
        return ngx_http_modelgw_access_busy(r, ctx);
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_http_modelgw_access_refuses(mmcf, key)
        != NGX_HTTP_MODELGW_REASON_NONE)
    {
        return NGX_DONE;
    }

    client->name = key->id;
    client->role = NGX_HTTP_MODELGW_ROLE_HOLDER;
    client->key = key;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_session_required(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_UNAUTHORIZED,
                                  "SIGN_IN_REQUIRED",
                                  "Sign in, with a token of an operator or "
                                  "with a service key");
}


/* POST /session */

static ngx_int_t
ngx_http_modelgw_session_parse_new(ngx_http_modelgw_change_t *c)
{
    ngx_str_t                         token;
    ngx_http_modelgw_admin_client_t  *client;

    client = c->ctx->client;

    if (client->from != NGX_HTTP_MODELGW_ADMIN_TOKENS) {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_NOT_FOUND,
                                      "NOT_FOUND",
                                      "Nobody signs in here: the configuration "
                                      "has no \"modelgw_operators\", or "
                                      "another way for this location");
    }

    (void) ngx_http_modelgw_admin_field(c, 0, &token);

    if (token.len == 0 || token.len > NGX_MODELGW_SCAN_TEXT) {
        ngx_str_set(&token, "-");
    }

    return ngx_http_modelgw_session_token(c->request, c->ctx, &token);
}


static ngx_int_t
ngx_http_modelgw_session_start(ngx_http_modelgw_change_t *c)
{
    u_char                            cookie[NGX_MODELGW_SESSION_TEXT];
    ngx_str_t                         text;
    ngx_http_modelgw_admin_client_t  *client;

    client = c->ctx->client;

    if (ngx_http_modelgw_sessions_write(c->mmcf, &client->session, cookie)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    text.len = NGX_MODELGW_SESSION_TEXT;
    text.data = cookie;

    if (ngx_http_modelgw_session_set(c->request, &text,
                                     NGX_HTTP_MODELGW_SESSION_TIME)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_log_error(NGX_LOG_NOTICE, c->request->connection->log, 0,
                  "\"%V\" has signed in", &client->name);

    return ngx_http_modelgw_session_answer(c);
}


/*
 * GET /session.  The console asks it first: that a client without a credential
 * has not signed in is an answer, and no error.
 */

static ngx_int_t
ngx_http_modelgw_session_parse_get(ngx_http_modelgw_change_t *c)
{
    ngx_http_modelgw_admin_client_t  *client;

    client = c->ctx->client;

    if (client->from == NGX_HTTP_MODELGW_ADMIN_TOKENS
        && client->authorization.data == NULL && client->cookie.data == NULL)
    {
        return NGX_OK;
    }

    return ngx_http_modelgw_admin_sign_in(c->request, c->ctx);
}


static ngx_int_t
ngx_http_modelgw_session_answer(ngx_http_modelgw_change_t *c)
{
    ngx_str_t                 body;
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_piece_t   piece;

    ngx_modelgw_out_piece(&out, &piece, c->request->pool,
                          NGX_HTTP_MODELGW_SESSION_SIZE);
    ngx_http_modelgw_session_write(&out, c);

    if (ngx_modelgw_out_piece_done(&out, &body) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_modelgw_admin_reply(c->request, c->ctx, NGX_HTTP_OK, &body);

    return NGX_OK;
}


/* DELETE /session: also by who has the token, and no session */

static ngx_int_t
ngx_http_modelgw_session_stop(ngx_http_modelgw_change_t *c)
{
    ngx_str_t                         text;
    ngx_http_modelgw_admin_client_t  *client;

    client = c->ctx->client;
    ngx_str_null(&text);

    if (client->from == NGX_HTTP_MODELGW_ADMIN_TOKENS) {
        ngx_http_modelgw_sessions_end(c->mmcf, &client->session);

        ngx_log_error(NGX_LOG_NOTICE, c->request->connection->log, 0,
                      "\"%V\" has signed out", &client->name);
    }

    if (ngx_http_modelgw_session_set(c->request, &text, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    c->request->header_only = 1;

    ngx_http_modelgw_admin_reply(c->request, c->ctx, NGX_HTTP_NO_CONTENT,
                                 &text);
    return NGX_OK;
}


/* age: in seconds, 0 removes the cookie */

static ngx_int_t
ngx_http_modelgw_session_set(ngx_http_request_t *r, ngx_str_t *text,
    ngx_uint_t age)
{
    ngx_str_t  value;

    value.data = ngx_pnalloc(r->pool,
                             sizeof(NGX_HTTP_MODELGW_ADMIN_COOKIE
                                    NGX_HTTP_MODELGW_SESSION_ATTRIBUTES)
                             + text->len + NGX_INT_T_LEN);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    value.len = ngx_sprintf(value.data,
                            NGX_HTTP_MODELGW_ADMIN_COOKIE "%V"
                            NGX_HTTP_MODELGW_SESSION_ATTRIBUTES "%ui", text,
                            age)
                - value.data;

    return ngx_http_modelgw_headers_add(r, "Set-Cookie", &value);
}


static void
ngx_http_modelgw_session_write(ngx_modelgw_out_t *out,
    ngx_http_modelgw_change_t *c)
{
    ngx_http_modelgw_group_t         *group;
    ngx_http_modelgw_loc_conf_t      *mlcf;
    ngx_http_modelgw_admin_client_t  *client;

    client = c->ctx->client;
    mlcf = ngx_http_get_module_loc_conf(c->request, ngx_http_modelgw_module);

    group = client->key ? client->key->group : NULL;

    ngx_http_modelgw_session_text(out, "{\"name\":", &client->name);
    ngx_http_modelgw_session_text(out, ",\"role\":",
                                  ngx_http_modelgw_session_role(client->role));

    ngx_modelgw_out_text(out, ",\"expires\":");

    if (client->session.expires) {
        ngx_modelgw_out_time(out, client->session.expires);

    } else {
        ngx_modelgw_out_text(out, "null");
    }

    ngx_http_modelgw_session_text(out, ",\"account\":",
                                  client->key ? &client->key->account : NULL);
    ngx_http_modelgw_session_text(out, ",\"key\":",
                                  client->key ? &client->key->id : NULL);
    ngx_http_modelgw_session_text(out, ",\"group\":",
                                  group ? &group->name : NULL);
    ngx_http_modelgw_session_text(out, ",\"topup_url\":", &mlcf->topup_url);
    ngx_http_modelgw_session_text(out, ",\"gateway_url\":",
                                  &mlcf->gateway_url);

    if (c->mmcf->cluster) {
        ngx_modelgw_out_text(out, ",\"cluster\":true");
    }

    if (c->mmcf->managed) {
        ngx_modelgw_out_text(out, ",\"managed_keys\":true}");

    } else {
        ngx_modelgw_out_text(out, ",\"managed_keys\":false}");
    }
}


/* NULL or empty: null */

static void
ngx_http_modelgw_session_text(ngx_modelgw_out_t *out, const char *name,
    ngx_str_t *text)
{
    ngx_modelgw_out(out, (u_char *) name, ngx_strlen(name));

    if (text && text->len) {
        ngx_modelgw_out_string(out, text);

    } else {
        ngx_modelgw_out_text(out, "null");
    }
}


/* GET /operators */

static ngx_int_t
ngx_http_modelgw_operators_answer(ngx_http_modelgw_change_t *c)
{
    ngx_str_t                     body;
    ngx_uint_t                    i, n;
    ngx_modelgw_out_t             out;
    ngx_modelgw_out_piece_t       piece;
    ngx_http_modelgw_operator_t  *operator;

    n = c->mmcf->operators ? c->mmcf->operators->nelts : 0;
    operator = n ? c->mmcf->operators->elts : NULL;

    ngx_modelgw_out_piece(&out, &piece, c->request->pool,
                          NGX_HTTP_MODELGW_SESSION_SIZE);
    ngx_modelgw_out_text(&out, "{\"operators\":[");

    for (i = 0; i < n; i++) {

        if (i) {
            ngx_modelgw_out_text(&out, ",");
        }

        ngx_http_modelgw_session_text(&out, "{\"name\":", &operator[i].name);
        ngx_http_modelgw_session_text(&out, ",\"role\":",
                             ngx_http_modelgw_session_role(operator[i].role));
        ngx_modelgw_out_text(&out, ",\"expires\":");

        if (operator[i].expires) {
            ngx_modelgw_out_day(&out, operator[i].expires);

        } else {
            ngx_modelgw_out_text(&out, "null");
        }

        ngx_modelgw_out_text(&out, "}");
    }

    ngx_modelgw_out_text(&out, "]}");

    if (ngx_modelgw_out_piece_done(&out, &body) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_modelgw_admin_reply(c->request, c->ctx, NGX_HTTP_OK, &body);

    return NGX_OK;
}


/* NULL: none */

static ngx_str_t *
ngx_http_modelgw_session_role(ngx_uint_t role)
{
    ngx_conf_enum_t  *word;

    static ngx_str_t  holder = ngx_string("holder");

    for (word = ngx_http_modelgw_roles; word->name.len; word++) {

        if (word->value == role) {
            return &word->name;
        }
    }

    return (role == NGX_HTTP_MODELGW_ROLE_HOLDER) ? &holder : NULL;
}
