
/*
 * Access to the admin interface: which requests are looked at, before anybody
 * signs in.
 *
 * On a unix socket the kernel knows the user of the client.  Over TCP it does
 * not; there the browser of a user who may connect must be refused what another
 * page than ours asks of it: it must neither read responses nor send top-ups.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"
#include "ngx_http_modelgw_headers.h"


/* a header that is looked at */

typedef struct {
    ngx_str_t    name;
    size_t       offset;                 /* of its value in the client */
} ngx_http_modelgw_guard_header_t;


static ngx_int_t ngx_http_modelgw_guard_peer(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_guard_headers(ngx_http_request_t *r,
    ngx_http_modelgw_admin_client_t *client);
static void ngx_http_modelgw_guard_header(
    ngx_http_modelgw_admin_client_t *client, ngx_str_t *text,
    ngx_str_t *value);
static void ngx_http_modelgw_guard_cookie(
    ngx_http_modelgw_admin_client_t *client, ngx_str_t *value);
static ngx_uint_t ngx_http_modelgw_admin_named(ngx_http_request_t *r);
static ngx_uint_t ngx_http_modelgw_admin_matches(ngx_str_t *name,
    ngx_str_t *host);
static ngx_uint_t ngx_http_modelgw_admin_address(ngx_http_request_t *r);
static ngx_int_t ngx_http_modelgw_guard_browser(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_uint_t ngx_http_modelgw_guard_own(ngx_http_request_t *r,
    ngx_http_modelgw_admin_client_t *client, ngx_uint_t safe);
static ngx_uint_t ngx_http_modelgw_guard_origin(ngx_http_request_t *r,
    ngx_str_t *origin);


static ngx_http_modelgw_guard_header_t  ngx_http_modelgw_guard_table[] = {
    { ngx_string("authorization"),
      offsetof(ngx_http_modelgw_admin_client_t, authorization) },
    { ngx_string("origin"),
      offsetof(ngx_http_modelgw_admin_client_t, origin) },
    { ngx_string("sec-fetch-site"),
      offsetof(ngx_http_modelgw_admin_client_t, site) },
    { ngx_string("x-modelgw-console"),
      offsetof(ngx_http_modelgw_admin_client_t, console) },
    { ngx_null_string, 0 }
};


ngx_int_t
ngx_http_modelgw_admin_guard(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                         rc;
    ngx_http_modelgw_loc_conf_t      *mlcf;
    ngx_http_modelgw_main_conf_t     *mmcf;
    ngx_http_modelgw_admin_client_t  *client;

    client = ngx_pcalloc(r->pool, sizeof(ngx_http_modelgw_admin_client_t));
    if (client == NULL) {
        return NGX_ERROR;
    }

    ctx->client = client;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);
    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    /* the family is the listening socket's: c->sockaddr may come from a header,
       with realip */

    if (r->connection->listening->sockaddr->sa_family == AF_UNIX) {
        client->from = NGX_HTTP_MODELGW_ADMIN_UNIX;

    } else if (mlcf->admin_role) {
        client->from = NGX_HTTP_MODELGW_ADMIN_VARIABLES;

    } else if (mmcf->operators) {
        client->from = NGX_HTTP_MODELGW_ADMIN_TOKENS;

    } else {
        client->from = NGX_HTTP_MODELGW_ADMIN_ANY;
    }

    ngx_http_modelgw_guard_headers(r, client);

    rc = (client->from == NGX_HTTP_MODELGW_ADMIN_UNIX)
         ? ngx_http_modelgw_guard_peer(r, ctx)
         : ngx_http_modelgw_admin_host(r, ctx);

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_guard_browser(r, ctx);
    }

    return (rc == NGX_OK) ? ngx_http_modelgw_access_early(r, ctx, client->early)
                          : rc;
}


/*
 * nginx lets every user of the machine connect to its unix sockets; root and
 * the user of the workers are allowed, who have access to the ledger's file
 * anyway.
 */

static ngx_int_t
ngx_http_modelgw_guard_peer(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    uid_t                             own;
    socklen_t                         len;
    ngx_str_t                        *name;
    struct ucred                      peer;
    ngx_http_modelgw_admin_client_t  *client;

    client = ctx->client;
    len = sizeof(struct ucred);

    if (getsockopt(r->connection->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len)
        == -1)
    {
        ngx_log_error(NGX_LOG_ALERT, r->connection->log, ngx_socket_errno,
                      "getsockopt(SO_PEERCRED) failed");
        return NGX_ERROR;
    }

    own = geteuid();

    if (peer.uid != 0 && peer.uid != own) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "user %uD may not use the admin interface",
                      (uint32_t) peer.uid);

        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_FORBIDDEN, "FORBIDDEN",
                                      "Over a unix socket only root and "
                                      "nginx's own user (uid %uD) are served, "
                                      "you are uid %uD", (uint32_t) own,
                                      (uint32_t) peer.uid);
    }

    name = &client->name;

    name->data = ngx_pnalloc(r->pool, sizeof("uid:") + NGX_INT32_LEN);
    if (name->data == NULL) {
        return NGX_ERROR;
    }

    name->len = ngx_sprintf(name->data, "uid:%uD", (uint32_t) peer.uid)
                - name->data;

    return NGX_OK;
}


static void
ngx_http_modelgw_guard_headers(ngx_http_request_t *r,
    ngx_http_modelgw_admin_client_t *client)
{
    ngx_table_elt_t             *h;
    ngx_http_modelgw_headers_t   hs;

    ngx_http_modelgw_headers_init(&hs, &r->headers_in.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (ngx_http_modelgw_headers_is(&h->key, "cookie")) {
            client->cookies = 1;
            ngx_http_modelgw_guard_cookie(client, &h->value);
            continue;
        }

        client->early |= ngx_http_modelgw_headers_is(&h->key, "early-data");

        ngx_http_modelgw_guard_header(client, &h->key, &h->value);
    }
}


/* an empty value is one, too: data is not NULL */

static void
ngx_http_modelgw_guard_header(ngx_http_modelgw_admin_client_t *client,
    ngx_str_t *text, ngx_str_t *value)
{
    ngx_str_t                        *field;
    ngx_http_modelgw_guard_header_t  *t;

    for (t = ngx_http_modelgw_guard_table; t->name.len; t++) {

        if (!ngx_http_modelgw_headers_text_is(text, t->name.data,
                                              t->name.len))
        {
            continue;
        }

        field = (ngx_str_t *) ((u_char *) client + t->offset);

        client->twice |= (field->data != NULL);
        *field = *value;
    }
}


/* "a=b; c=d": RFC 6265, 4.2.1; HTTP/2 may have one header for each */

static void
ngx_http_modelgw_guard_cookie(ngx_http_modelgw_admin_client_t *client,
    ngx_str_t *value)
{
    size_t   len;
    u_char  *p, *last, *end;

    len = sizeof(NGX_HTTP_MODELGW_ADMIN_COOKIE) - 1;

    p = value->data;
    last = p + value->len;

    for ( /* void */ ; p < last; p = end + 1) {

        while (p < last && *p == ' ') {
            p++;
        }

        end = ngx_strlchr(p, last, ';');
        if (end == NULL) {
            end = last;
        }

        if ((size_t) (end - p) >= len
            && ngx_strncmp(p, NGX_HTTP_MODELGW_ADMIN_COOKIE, len) == 0)
        {
            client->twice |= (client->cookie.data != NULL);
            client->cookie.data = p + len;
            client->cookie.len = end - p - len;
        }
    }
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
 * Browsers say from which page a request comes (Fetch Metadata, and Origin, RFC
 * 6454, 7), and add cookies and passwords of ours to it whatever page that is.
 * Where the console signs in, or is served with what another module has
 * authenticated, our own pages may do all, and say by a header of theirs that
 * it was a script of ours: another page cannot add one.  Elsewhere no page may
 * change anything.
 */

static ngx_int_t
ngx_http_modelgw_guard_browser(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_uint_t                        safe;
    ngx_http_modelgw_admin_client_t  *client;

    client = ctx->client;
    safe = (r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD)) ? 1 : 0;

    switch (client->from) {

    case NGX_HTTP_MODELGW_ADMIN_TOKENS:
    case NGX_HTTP_MODELGW_ADMIN_VARIABLES:

        if ((client->origin.data == NULL && client->site.data == NULL
             && !(client->cookies
                  && (client->cookie.data
                      || client->from == NGX_HTTP_MODELGW_ADMIN_VARIABLES)))
            || ngx_http_modelgw_guard_own(r, client, safe))
        {
            return NGX_OK;
        }

        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_FORBIDDEN, "FORBIDDEN",
                                      "Only pages of this origin are served, "
                                      "and change things with the header "
                                      "\"X-Modelgw-Console: 1\"");

    default: /* NGX_HTTP_MODELGW_ADMIN_UNIX, NGX_HTTP_MODELGW_ADMIN_ANY */

        if (safe || (client->origin.data == NULL && client->site.data == NULL))
        {
            return NGX_OK;
        }

        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_FORBIDDEN, "FORBIDDEN",
                                      "Browsers are not served here");
    }
}


/* whether a browser may send this, safe: it changes nothing */

static ngx_uint_t
ngx_http_modelgw_guard_own(ngx_http_request_t *r,
    ngx_http_modelgw_admin_client_t *client, ngx_uint_t safe)
{
    ngx_str_t   *site;
    ngx_uint_t   same;

    site = &client->site;

    if (client->twice
        || (client->origin.data
            && !ngx_http_modelgw_guard_origin(r, &client->origin)))
    {
        return 0;
    }

    same = (site->len == 11
            && ngx_strncmp(site->data, "same-origin", 11) == 0);

    if (site->data && !same
        && !(safe && site->len == 4
             && ngx_strncmp(site->data, "none", 4) == 0))
    {
        return 0;
    }

    if (safe) {
        return 1;
    }

    return (same || client->origin.data)
           && client->console.len == 1 && client->console.data[0] == '1';
}


/*
 * Whether the origin is that of this request.  In front of nginx may be a proxy
 * that ends TLS, so only nginx's own TLS is compared with the scheme.
 */

static ngx_uint_t
ngx_http_modelgw_guard_origin(ngx_http_request_t *r, ngx_str_t *origin)
{
    ngx_str_t         scheme, host;
    ngx_table_elt_t  *h;

    ngx_str_set(&scheme, "https://");

    if (origin->len < scheme.len
        || ngx_strncasecmp(origin->data, scheme.data, scheme.len) != 0)
    {
#if (NGX_HTTP_SSL)
        if (r->connection->ssl) {
            return 0;
        }
#endif
        ngx_str_set(&scheme, "http://");
    }

    h = r->headers_in.host;

    if (h == NULL || origin->len <= scheme.len
        || ngx_strncasecmp(origin->data, scheme.data, scheme.len) != 0)
    {
        return 0;
    }

    host.data = origin->data + scheme.len;
    host.len = origin->len - scheme.len;

    return host.len == h->value.len
           && ngx_strncasecmp(host.data, h->value.data, host.len) == 0;
}
