
/*
 * Access to the admin interface.
 *
 * It has no passwords.  On a unix socket the kernel knows the user of the
 * client.  Over TCP it does not; there the browser of a user who may connect
 * must be refused: a hostile page must neither read responses nor send top-ups.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"
#include "ngx_http_modelgw_headers.h"


static ngx_int_t ngx_http_modelgw_admin_peer(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_admin_uid(ngx_http_request_t *r, uid_t *uid);
static ngx_uint_t ngx_http_modelgw_admin_named(ngx_http_request_t *r);
static ngx_uint_t ngx_http_modelgw_admin_matches(ngx_str_t *name,
    ngx_str_t *host);
static ngx_uint_t ngx_http_modelgw_admin_address(ngx_http_request_t *r);
static ngx_int_t ngx_http_modelgw_admin_foreign(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


ngx_int_t
ngx_http_modelgw_admin_guard(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_modelgw_admin_peer(r, ctx);

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_admin_host(r, ctx);
    }

    if (rc == NGX_OK && !(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        rc = ngx_http_modelgw_admin_foreign(r, ctx);
    }

    return rc;
}


/*
 * nginx lets every user of the machine connect to its unix sockets; root and
 * the user of the workers are allowed, who have access to the ledger's file
 * anyway.  The family is the listening socket's: c->sockaddr may come from a
 * header, with realip.
 */

static ngx_int_t
ngx_http_modelgw_admin_peer(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    uid_t      own, uid;
    ngx_int_t  rc;

    rc = ngx_http_modelgw_admin_uid(r, &uid);

    if (rc != NGX_OK) {
        return (rc == NGX_DECLINED) ? NGX_OK : NGX_ERROR;
    }

    own = geteuid();

    if (uid == 0 || uid == own) {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "user %uD may not use the admin interface",
                  (uint32_t) uid);

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_FORBIDDEN, "FORBIDDEN",
                                  "Over a unix socket only root and nginx's "
                                  "own user (uid %uD) are served, you are uid "
                                  "%uD", (uint32_t) own, (uint32_t) uid);
}


/*
 * NGX_OK        *uid is the user at the other end of a unix socket
 * NGX_DECLINED  it is no unix socket
 * NGX_ERROR     logged
 */

static ngx_int_t
ngx_http_modelgw_admin_uid(ngx_http_request_t *r, uid_t *uid)
{
    socklen_t          len;
    struct ucred       peer;
    ngx_connection_t  *c;

    c = r->connection;

    if (c->listening->sockaddr->sa_family != AF_UNIX) {
        return NGX_DECLINED;
    }

    len = sizeof(struct ucred);

    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == -1) {
        ngx_log_error(NGX_LOG_ALERT, c->log, ngx_socket_errno,
                      "getsockopt(SO_PEERCRED) failed");
        return NGX_ERROR;
    }

    *uid = peer.uid;

    return NGX_OK;
}


/*
 * A client may send any user name: it counts only where "auth_basic" has
 * checked its password.
 */

ngx_int_t
ngx_http_modelgw_admin_actor(ngx_http_request_t *r,
    ngx_modelgw_change_t *change)
{
    u_char                       *p;
    uid_t                         uid;
    ngx_int_t                     rc;
    ngx_str_t                    *text;
    ngx_modelgw_ledger_name_t    *actor;
    ngx_http_modelgw_loc_conf_t  *mlcf;

    actor = &change->actor;
    text = &r->connection->addr_text;

    change->address_len = ngx_min(text->len, NGX_MODELGW_LEDGER_ADDRESS);
    ngx_memcpy(change->address, text->data, change->address_len);

    rc = ngx_http_modelgw_admin_uid(r, &uid);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == NGX_OK) {
        p = ngx_sprintf(actor->data, "uid:%uD", (uint32_t) uid);
        actor->len = p - actor->data;

        return NGX_OK;
    }

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    if (mlcf->admin_users && r->headers_in.user.len) {
        text = &r->headers_in.user;
    }

    actor->len = ngx_min(text->len, NGX_MODELGW_LEDGER_NAME);
    ngx_memcpy(actor->data, text->data, actor->len);

    return NGX_OK;
}


/*
 * A hostile page can make its own name resolve to our address, and then read
 * our responses as its own (DNS rebinding).  The browser sends that name as
 * Host.  So over TCP Host must be a name of the server, or an address, which is
 * not resolved.  Browsers do not connect to unix sockets.
 */

ngx_int_t
ngx_http_modelgw_admin_host(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    if (r->connection->listening->sockaddr->sa_family == AF_UNIX
        || ngx_http_modelgw_admin_named(r)
        || ngx_http_modelgw_admin_address(r))
    {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "\"%V\" is not a name of this server",
                  &r->headers_in.server);

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_FORBIDDEN, "FORBIDDEN",
                                  "The Host header is neither a server_name "
                                  "nor the address of this server");
}


/*
 * nginx does not record whether the server was selected by name or as the
 * default one, and does not compare names if an address has one server only.
 */

static ngx_uint_t
ngx_http_modelgw_admin_named(ngx_http_request_t *r)
{
    ngx_str_t                    *host;
    ngx_uint_t                    i;
    ngx_http_server_name_t       *name;
    ngx_http_modelgw_srv_conf_t  *mscf;

    mscf = ngx_http_get_module_srv_conf(r, ngx_http_modelgw_module);

    host = &r->headers_in.server;
    name = mscf->names.elts;

    for (i = 0; i < mscf->names.nelts; i++) {

#if (NGX_PCRE)
        if (name[i].regex) {
            if (ngx_regex_exec(name[i].regex->regex, host, NULL, 0) >= 0) {
                return 1;
            }

            continue;
        }
#endif

        if (ngx_http_modelgw_admin_matches(&name[i].name, host)) {
            return 1;
        }
    }

    return 0;
}


/* "name", "*.name", ".name" (both), "name.*"; all in lower case */

static ngx_uint_t
ngx_http_modelgw_admin_matches(ngx_str_t *name, ngx_str_t *host)
{
    ngx_str_t  part;

    part = *name;

    if (host->len == 0 || part.len == 0) {
        return 0;
    }

    if (part.len > 2
        && part.data[part.len - 2] == '.' && part.data[part.len - 1] == '*')
    {
        part.len--;
        return host->len > part.len
               && ngx_memcmp(host->data, part.data, part.len) == 0;
    }

    if (part.data[0] == '*' || part.data[0] == '.') {

        if (part.data[0] == '*') {
            part.data++;
            part.len--;
        }

        if (host->len > part.len
            && ngx_memcmp(host->data + host->len - part.len, part.data,
                          part.len)
               == 0)
        {
            return 1;
        }

        if (name->data[0] == '*') {
            return 0;
        }

        part.data++;
        part.len--;
    }

    return host->len == part.len
           && ngx_memcmp(host->data, part.data, part.len) == 0;
}


/* whether Host is the connection's own address, or "localhost" for it */

static ngx_uint_t
ngx_http_modelgw_admin_address(ngx_http_request_t *r)
{
    u_char     text[NGX_SOCKADDR_STRLEN];
    ngx_str_t  addr, host;

    addr.len = NGX_SOCKADDR_STRLEN;
    addr.data = text;

    if (ngx_connection_local_sockaddr(r->connection, &addr, 0) != NGX_OK) {
        return 0;
    }

    /* an IPv4 connection to a socket of both families */

    if (addr.len > 7 && ngx_strncmp(addr.data, "::ffff:", 7) == 0) {
        addr.data += 7;
        addr.len -= 7;
    }

    host = r->headers_in.server;

    if (host.len == 9 && ngx_memcmp(host.data, "localhost", 9) == 0) {
        return (addr.len == 3 && ngx_memcmp(addr.data, "::1", 3) == 0)
               || ngx_strncmp(addr.data, "127.", 4) == 0;
    }

    if (host.len > 2 && host.data[0] == '[' && host.data[host.len - 1] == ']') {
        host.data++;
        host.len -= 2;
    }

    return host.len == addr.len
           && ngx_memcmp(host.data, addr.data, addr.len) == 0;
}


/*
 * A page in the browser of a user who may connect could send a top-up, but the
 * browser adds a header with its origin.
 */

static ngx_int_t
ngx_http_modelgw_admin_foreign(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_table_elt_t            *h;
    ngx_http_modelgw_headers_t  hs;

    ngx_http_modelgw_headers_init(&hs, &r->headers_in.headers);

    for ( ;; ) {
        h = ngx_http_modelgw_headers_next(&hs);

        if (h == NULL) {
            return NGX_OK;
        }

        if (ngx_http_modelgw_headers_is(&h->key, "origin")
            || ngx_http_modelgw_headers_is(&h->key, "sec-fetch-site"))
        {
            return ngx_http_modelgw_error(r, ctx, NGX_HTTP_FORBIDDEN,
                                          "FORBIDDEN",
                                          "Browsers are not served here");
        }
    }
}
