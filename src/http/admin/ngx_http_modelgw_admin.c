
/*
 * The admin interface: the directive and the checks of its location, routes and
 * responses.
 *
 * The interface is a content handler, so nginx's own access rules are applied
 * before it.  What may take long, since it reads the store or visits all
 * accounts or keys, is a job in a thread; nothing here blocks the event loop.
 *
 * Ownership of the request: the handler takes a reference, and whatever sends
 * the response, now or later, finalizes the request once, as in reply.c.
 *
 * A request that reaches the location can create credit, so the mistake to
 * catch in a configuration is one that lets strangers in.  A server that
 * listens on unix sockets only is safe: the kernel knows the user (see
 * ngx_http_modelgw_admin_guard.c).  Over TCP it does not, and "allow 127.0.0.1"
 * admits all processes of the machine, a browser with a hostile page among
 * them.  So there is a warning for TCP unless something else authenticates the
 * client: "auth_basic", "auth_request" or client certificates; "internal"
 * locations cannot be requested directly.  As in lint.c, only the first member
 * of other modules' configurations is accessed.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_lease.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"
#include "ngx_http_modelgw_headers.h"
#include "ngx_http_modelgw_zone.h"

#if (NGX_HTTP_SSL)
#include <ngx_http_ssl_module.h>
#endif


#define NGX_HTTP_MODELGW_ADMIN_BODY     4096    /* bytes of a request's body */

/* who may use a route */

#define NGX_HTTP_MODELGW_ROLES_PAY                                            \
    (NGX_HTTP_MODELGW_ROLE_BILLING|NGX_HTTP_MODELGW_ROLE_ADMIN)
#define NGX_HTTP_MODELGW_ROLES_VIEW                                           \
    (NGX_HTTP_MODELGW_ROLES_PAY|NGX_HTTP_MODELGW_ROLE_VIEWER)
#define NGX_HTTP_MODELGW_ROLES_ALL                                            \
    (NGX_HTTP_MODELGW_ROLES_VIEW|NGX_HTTP_MODELGW_ROLE_HOLDER)
#define NGX_HTTP_MODELGW_ROLES_REVOKE                                         \
    (NGX_HTTP_MODELGW_ROLE_ADMIN|NGX_HTTP_MODELGW_ROLE_HOLDER)

/* from where a server can be reached */

typedef enum {
    NGX_HTTP_MODELGW_ADMIN_SOCKET = 0,   /* unix sockets only */
    NGX_HTTP_MODELGW_ADMIN_LOOPBACK,     /* by all processes of the machine */
    NGX_HTTP_MODELGW_ADMIN_NETWORK
} ngx_http_modelgw_admin_reach_e;


/* a row of the table of routes */

typedef ngx_int_t (*ngx_http_modelgw_admin_find_pt)(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, ngx_http_modelgw_job_t *job);

typedef struct {
    ngx_str_t                        path;     /* after the location's prefix;
                                                  an id follows a "/" */
    ngx_str_t                        tail;     /* after the id */
    ngx_uint_t                       method;   /* GET: also HEAD */
    ngx_uint_t                       roles;    /* that may; 0: all, also those
                                                  who have not signed in */
    ngx_http_modelgw_admin_find_pt   find;     /* NULL: nothing to find, or
                                                  to check */
    ngx_http_modelgw_job_pt          handler;  /* of the job; NULL: it is none,
                                                  but a change */
    ngx_http_modelgw_change_kind_t  *change;
    ngx_uint_t                       flags;
    ngx_http_modelgw_option_t       *params;   /* of the query string; NULL: as
                                                  the flags say */
} ngx_http_modelgw_admin_route_t;


static ngx_int_t ngx_http_modelgw_admin_variable(ngx_conf_t *cf,
    ngx_str_t *word, ngx_http_modelgw_loc_conf_t *mlcf);
static ngx_uint_t ngx_http_modelgw_admin_users(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf);
static ngx_http_modelgw_admin_reach_e ngx_http_modelgw_admin_reach(
    ngx_conf_t *cf, ngx_uint_t *plain);
static ngx_uint_t ngx_http_modelgw_admin_plain(ngx_http_listen_opt_t *opt);
static ngx_uint_t ngx_http_modelgw_admin_loopback(struct sockaddr *sockaddr);
static ngx_int_t ngx_http_modelgw_admin_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_modelgw_admin_path(ngx_http_request_t *r,
    ngx_str_t *path);
static ngx_http_modelgw_admin_route_t *ngx_http_modelgw_admin_route(
    ngx_http_request_t *r, ngx_str_t *path, ngx_str_t *id,
    ngx_uint_t *methods);
static ngx_uint_t ngx_http_modelgw_admin_matches(
    ngx_http_modelgw_admin_route_t *route, ngx_str_t *path, ngx_str_t *id);
static ngx_int_t ngx_http_modelgw_admin_allowed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_admin_route_t *route);
static ngx_int_t ngx_http_modelgw_admin_unknown(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t methods);
static ngx_int_t ngx_http_modelgw_admin_get(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_admin_route_t *route,
    ngx_str_t *id);
static ngx_uint_t ngx_http_modelgw_admin_accepts_csv(ngx_http_request_t *r);


/*
 * A path with a tail is before the one without; rows of the same path, each for
 * a method, are adjacent.
 */

static ngx_http_modelgw_admin_route_t  ngx_http_modelgw_admin_routes[] = {

    { ngx_string("accounts"), ngx_null_string, NGX_HTTP_GET,
      NGX_HTTP_MODELGW_ROLES_VIEW,
      NULL, ngx_http_modelgw_admin_accounts_list, NULL,
      NGX_HTTP_MODELGW_ADMIN_LEDGER|NGX_HTTP_MODELGW_ADMIN_STORE,
      ngx_http_modelgw_admin_account_params },

    { ngx_string("accounts"), ngx_null_string, NGX_HTTP_POST,
      NGX_HTTP_MODELGW_ROLE_ADMIN,
      NULL, NULL, &ngx_http_modelgw_admin_account_new, 0, NULL },

    { ngx_string("accounts/"), ngx_string("/topups"), NGX_HTTP_POST,
      NGX_HTTP_MODELGW_ROLES_PAY,
      NULL, NULL, &ngx_http_modelgw_admin_topup, 0, NULL },

    { ngx_string("accounts/"), ngx_null_string, NGX_HTTP_GET,
      NGX_HTTP_MODELGW_ROLES_ALL,
      ngx_http_modelgw_admin_accounts_find_job,
      ngx_http_modelgw_admin_accounts_get, NULL,
      NGX_HTTP_MODELGW_ADMIN_LEDGER|NGX_HTTP_MODELGW_ADMIN_STORE
      |NGX_HTTP_MODELGW_ADMIN_OWN, NULL },

    { ngx_string("accounts/"), ngx_null_string, NGX_HTTP_PATCH,
      NGX_HTTP_MODELGW_ROLE_ADMIN,
      NULL, NULL, &ngx_http_modelgw_admin_account_set, 0, NULL },

    { ngx_string("actions"), ngx_null_string, NGX_HTTP_GET,
      NGX_HTTP_MODELGW_ROLES_VIEW,
      NULL, ngx_http_modelgw_admin_list_actions, NULL,
      NGX_HTTP_MODELGW_ADMIN_LEDGER|NGX_HTTP_MODELGW_ADMIN_STORE,
      ngx_http_modelgw_admin_action_params },

    { ngx_string("calls"), ngx_null_string, NGX_HTTP_GET,
      NGX_HTTP_MODELGW_ROLES_ALL,
      NULL, ngx_http_modelgw_admin_query_calls, NULL,
      NGX_HTTP_MODELGW_ADMIN_LEDGER|NGX_HTTP_MODELGW_ADMIN_STORE
      |NGX_HTTP_MODELGW_ADMIN_QUERY|NGX_HTTP_MODELGW_ADMIN_CSV, NULL },

    { ngx_string("calls/"), ngx_null_string, NGX_HTTP_GET,
      NGX_HTTP_MODELGW_ROLES_ALL,
      ngx_http_modelgw_admin_query_find_call,
      ngx_http_modelgw_admin_query_call, NULL,
      NGX_HTTP_MODELGW_ADMIN_LEDGER|NGX_HTTP_MODELGW_ADMIN_STORE, NULL },

    { ngx_string("usage"), ngx_null_string, NGX_HTTP_GET,
      NGX_HTTP_MODELGW_ROLES_ALL,
      NULL, ngx_http_modelgw_admin_query_usage, NULL,
      NGX_HTTP_MODELGW_ADMIN_LEDGER|NGX_HTTP_MODELGW_ADMIN_STORE
      |NGX_HTTP_MODELGW_ADMIN_QUERY|NGX_HTTP_MODELGW_ADMIN_BY
      |NGX_HTTP_MODELGW_ADMIN_CSV, NULL },

    { ngx_string("keys"), ngx_null_string, NGX_HTTP_GET,
      NGX_HTTP_MODELGW_ROLES_ALL,
      ngx_http_modelgw_admin_keys_find, ngx_http_modelgw_admin_keys_list, NULL,
      NGX_HTTP_MODELGW_ADMIN_KEYS, ngx_http_modelgw_admin_key_params },

    { ngx_string("keys"), ngx_null_string, NGX_HTTP_POST,
      NGX_HTTP_MODELGW_ROLE_ADMIN,
      NULL, NULL, &ngx_http_modelgw_admin_key_new, 0, NULL },

    { ngx_string("keys/"), ngx_string("/rotate"), NGX_HTTP_POST,
      NGX_HTTP_MODELGW_ROLE_ADMIN,
      NULL, NULL, &ngx_http_modelgw_admin_key_rotate, 0, NULL },

    { ngx_string("keys/"), ngx_string("/revoke"), NGX_HTTP_POST,
      NGX_HTTP_MODELGW_ROLES_REVOKE,
      NULL, NULL, &ngx_http_modelgw_admin_key_revoke, 0, NULL },

    { ngx_string("keys/"), ngx_null_string, NGX_HTTP_GET,
      NGX_HTTP_MODELGW_ROLES_ALL,
      ngx_http_modelgw_admin_keys_find, ngx_http_modelgw_admin_keys_get, NULL,
      NGX_HTTP_MODELGW_ADMIN_KEYS, NULL },

    { ngx_string("keys/"), ngx_null_string, NGX_HTTP_PATCH,
      NGX_HTTP_MODELGW_ROLE_ADMIN,
      NULL, NULL, &ngx_http_modelgw_admin_key_set, 0, NULL },

    { ngx_string("keys/"), ngx_null_string, NGX_HTTP_DELETE,
      NGX_HTTP_MODELGW_ROLE_ADMIN,
      NULL, NULL, &ngx_http_modelgw_admin_key_revoke, 0, NULL },

    { ngx_string("groups"), ngx_null_string, NGX_HTTP_GET,
      NGX_HTTP_MODELGW_ROLES_VIEW,
      NULL, ngx_http_modelgw_admin_list_groups, NULL, 0, NULL },

    { ngx_string("models"), ngx_null_string, NGX_HTTP_GET,
      NGX_HTTP_MODELGW_ROLES_ALL,
      NULL, ngx_http_modelgw_admin_list_models, NULL, 0, NULL },

    { ngx_string("refusals"), ngx_null_string, NGX_HTTP_GET,
      NGX_HTTP_MODELGW_ROLES_VIEW,
      ngx_http_modelgw_admin_refusals_find, ngx_http_modelgw_admin_refusals,
      NULL, 0, NULL },

    { ngx_string("status"), ngx_null_string, NGX_HTTP_GET,
      NGX_HTTP_MODELGW_ROLES_VIEW,
      NULL, ngx_http_modelgw_admin_status, NULL, 0, NULL },

    { ngx_string("nodes"), ngx_null_string, NGX_HTTP_GET,
      NGX_HTTP_MODELGW_ROLES_VIEW,
      ngx_http_modelgw_admin_nodes_find, ngx_http_modelgw_admin_nodes, NULL,
      NGX_HTTP_MODELGW_ADMIN_LEDGER|NGX_HTTP_MODELGW_ADMIN_STORE
      |NGX_HTTP_MODELGW_ADMIN_SHARED, NULL },

    { ngx_string("nodes/"), ngx_string("/write-off"), NGX_HTTP_POST,
      NGX_HTTP_MODELGW_ROLE_ADMIN,
      NULL, NULL, &ngx_http_modelgw_admin_node_write_off, 0, NULL },

    { ngx_string("nodes/"), ngx_null_string, NGX_HTTP_PATCH,
      NGX_HTTP_MODELGW_ROLE_ADMIN,
      NULL, NULL, &ngx_http_modelgw_admin_node_set, 0, NULL },

    { ngx_string("operators"), ngx_null_string, NGX_HTTP_GET,
      NGX_HTTP_MODELGW_ROLE_ADMIN,
      NULL, NULL, &ngx_http_modelgw_admin_operators, 0, NULL },

    { ngx_string("session"), ngx_null_string, NGX_HTTP_GET,
      0,
      NULL, NULL, &ngx_http_modelgw_admin_session_get, 0, NULL },

    { ngx_string("session"), ngx_null_string, NGX_HTTP_POST,
      0,
      NULL, NULL, &ngx_http_modelgw_admin_session_new, 0, NULL },

    { ngx_string("session"), ngx_null_string, NGX_HTTP_DELETE,
      NGX_HTTP_MODELGW_ROLES_ALL,
      NULL, NULL, &ngx_http_modelgw_admin_session_end, 0, NULL },

    { ngx_null_string, ngx_null_string, 0, 0, NULL, NULL, NULL, 0, NULL }
};


char *
ngx_http_modelgw_set_admin(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_loc_conf_t *mlcf = conf;

    ngx_str_t                     *value;
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_modelgw_main_conf_t  *mmcf;

    if (mlcf->admin.line) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts > 1
        && (ngx_http_modelgw_admin_variable(cf, &value[1], mlcf) != NGX_OK
            || ngx_http_modelgw_admin_variable(cf, &value[2], mlcf) != NGX_OK))
    {
        return NGX_CONF_ERROR;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->named
#if (NGX_PCRE)
        || clcf->regex
#endif
       )
    {
        return "needs a location with a prefix, as \"location /admin/\"";
    }

    mlcf->admin.file = cf->conf_file->file.name.data;
    mlcf->admin.line = cf->conf_file->line;

    clcf->handler = ngx_http_modelgw_admin_handler;

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_modelgw_module);
    mmcf->used = 1;

    return NGX_CONF_OK;
}


/* "actor=" or "role=", each once */

static ngx_int_t
ngx_http_modelgw_admin_variable(ngx_conf_t *cf, ngx_str_t *word,
    ngx_http_modelgw_loc_conf_t *mlcf)
{
    ngx_str_t                          value;
    ngx_uint_t                         role;
    ngx_http_complex_value_t         **cv;
    ngx_http_compile_complex_value_t   ccv;

    cv = NULL;

    if (ngx_strncmp(word->data, "actor=", 6) == 0) {
        cv = &mlcf->admin_actor;
        value.data = word->data + 6;

    } else if (ngx_strncmp(word->data, "role=", 5) == 0) {
        cv = &mlcf->admin_role;
        value.data = word->data + 5;
    }

    if (cv == NULL || *cv) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\": \"modelgw_admin\" has "
                           "none, or \"actor=\" and \"role=\"", word);
        return NGX_ERROR;
    }

    value.len = word->data + word->len - value.data;

    *cv = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (*cv == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = &value;
    ccv.complex_value = *cv;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NGX_ERROR;
    }

    if ((*cv)->lengths == NULL
        && (value.len == 0
            || (cv == &mlcf->admin_role
                && ngx_http_modelgw_option_word_find(ngx_http_modelgw_roles,
                                                     &value, &role)
                   != NGX_OK)))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\": it is a variable, or a "
                           "role: admin, billing or viewer", word);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * Called for each location when it has been merged.  "if" and limit_except are
 * nested locations and have the settings of the one around them.
 */

char *
ngx_http_modelgw_admin_location(ngx_conf_t *cf,
    ngx_http_modelgw_loc_conf_t *parent, ngx_http_modelgw_loc_conf_t *conf)
{
    ngx_uint_t                     plain;
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_modelgw_srv_conf_t   *mscf;
    ngx_http_modelgw_main_conf_t  *mmcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->noname) {
        conf->admin = parent->admin;
        conf->admin_actor = parent->admin_actor;
        conf->admin_role = parent->admin_role;
    }

    if (conf->admin.line == 0) {
        return NGX_CONF_OK;
    }

    if (conf->enable) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"modelgw_admin\" and \"modelgw on\" in one location "
                      "\"%V\": \"modelgw on\" of the server can be disabled "
                      "by \"modelgw off\", in %s:%ui",
                      &clcf->name, conf->admin.file, conf->admin.line);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_modelgw_admin_server_names(cf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    mscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_modelgw_module);
    mscf->flat = 1;

    conf->admin_users = ngx_http_modelgw_admin_users(cf, clcf);

    /* bodies are small and must be in memory */

    clcf->client_max_body_size = NGX_HTTP_MODELGW_ADMIN_BODY;
    clcf->client_body_buffer_size = NGX_HTTP_MODELGW_ADMIN_BODY * 2;
    clcf->client_body_in_file_only = 0;

    if (clcf->noname) {

        if (clcf->lmt_excpt && clcf->handler == NULL) {
            clcf->handler = ngx_http_modelgw_admin_handler;
        }

    } else if (clcf->handler != ngx_http_modelgw_admin_handler) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "location \"%V\" with \"modelgw_admin\" has the content "
                      "handler of another directive, in %s:%ui",
                      &clcf->name, conf->admin.file, conf->admin.line);
        return NGX_CONF_ERROR;
    }

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_modelgw_module);

    /* a role that is the same for all is no guard */

    if ((conf->admin_role ? conf->admin_role->lengths != NULL
                          : mmcf->operators != NULL)
        || ngx_http_modelgw_admin_guarded(cf, clcf))
    {
        return NGX_CONF_OK;
    }

    if (ngx_http_modelgw_admin_reach(cf, &plain)
        == NGX_HTTP_MODELGW_ADMIN_NETWORK)
    {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "admin location \"%V\" is open to the network: it "
                      "needs \"modelgw_operators\" in http, or its server "
                      "must listen on unix sockets or loopback addresses "
                      "only, in %s:%ui",
                      &clcf->name, conf->admin.file, conf->admin.line);
        return NGX_CONF_ERROR;
    }

    if (clcf->noname) {
        return NGX_CONF_OK;             /* warned of the one around it */
    }

    ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                  "admin location \"%V\" is reachable over TCP without a "
                  "password: any process that can connect may read balances, "
                  "add credit and make keys; its server should listen on a "
                  "unix socket only, in %s:%ui",
                  &clcf->name, conf->admin.file, conf->admin.line);

    return NGX_CONF_OK;
}


/*
 * Copies the names of the server, which nginx allocates from a temporary pool:
 * the handler compares them with Host.
 */

ngx_int_t
ngx_http_modelgw_admin_server_names(ngx_conf_t *cf)
{
    size_t                        size;
    ngx_http_core_srv_conf_t     *cscf;
    ngx_http_modelgw_srv_conf_t  *mscf;

    cscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    mscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_modelgw_module);

    if (mscf->names.nelts) {
        return NGX_OK;
    }

    size = cscf->server_names.nelts * sizeof(ngx_http_server_name_t);

    mscf->names = cscf->server_names;
    mscf->names.elts = ngx_palloc(cf->pool, size);
    if (mscf->names.elts == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(mscf->names.elts, cscf->server_names.elts, size);

    return NGX_OK;
}


/*
 * Whether a password is required of all: "off" is none, and variables may be
 * "off"; with "satisfy any" it is not asked for.
 */

static ngx_uint_t
ngx_http_modelgw_admin_users(ngx_conf_t *cf, ngx_http_core_loc_conf_t *clcf)
{
    ngx_http_conf_ctx_t        *ctx;
    ngx_http_complex_value_t  **realm;

    ctx = cf->ctx;

    realm = ngx_http_modelgw_lint_conf(cf, ctx->loc_conf,
                                       "ngx_http_auth_basic_module");

    return realm && *realm
           && clcf->satisfy == NGX_HTTP_SATISFY_ALL
           && (*realm)->lengths == NULL
           && ((*realm)->value.len != 3
               || ngx_strncmp((*realm)->value.data, "off", 3) != 0);
}


ngx_uint_t
ngx_http_modelgw_admin_guarded(ngx_conf_t *cf, ngx_http_core_loc_conf_t *clcf)
{
    ngx_str_t                       *auth;
    ngx_uint_t                       plain;
    ngx_http_conf_ctx_t             *ctx;
    ngx_http_modelgw_admin_reach_e   reach;
#if (NGX_HTTP_SSL)
    ngx_http_ssl_srv_conf_t         *sscf;
#endif

    ctx = cf->ctx;
    reach = ngx_http_modelgw_admin_reach(cf, &plain);

    auth = ngx_http_modelgw_lint_conf(cf, ctx->loc_conf,
                                      "ngx_http_auth_request_module");

#if (NGX_HTTP_SSL)

    sscf = ngx_http_modelgw_lint_conf(cf, ctx->srv_conf, "ngx_http_ssl_module");

    if (sscf && sscf->verify == 1 && !plain) {
        return 1;
    }

#endif

    return clcf->internal
           || ngx_http_modelgw_admin_users(cf, clcf)
           || (auth && auth->len && clcf->satisfy == NGX_HTTP_SATISFY_ALL)
           || reach == NGX_HTTP_MODELGW_ADMIN_SOCKET;
}


/*
 * From where the server can be reached, and whether over TCP without TLS: there
 * no client has a certificate, whatever is required of it.
 */

static ngx_http_modelgw_admin_reach_e
ngx_http_modelgw_admin_reach(ngx_conf_t *cf, ngx_uint_t *plain)
{
    ngx_uint_t                       i, j, k;
    ngx_http_conf_addr_t            *addr;
    ngx_http_conf_port_t            *port;
    ngx_http_core_srv_conf_t        *cscf, **server;
    ngx_http_core_main_conf_t       *cmcf;
    ngx_http_modelgw_admin_reach_e   reach;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    cscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);

    *plain = (cmcf->ports == NULL);

    if (cmcf->ports == NULL) {
        return NGX_HTTP_MODELGW_ADMIN_NETWORK;
    }

    reach = NGX_HTTP_MODELGW_ADMIN_SOCKET;
    port = cmcf->ports->elts;

    for (i = 0; i < cmcf->ports->nelts; i++) {

        if (port[i].family == AF_UNIX) {
            continue;
        }

        addr = port[i].addrs.elts;

        for (j = 0; j < port[i].addrs.nelts; j++) {

            server = addr[j].servers.elts;

            for (k = 0; k < addr[j].servers.nelts; k++) {

                if (server[k] != cscf) {
                    continue;
                }

                *plain |= ngx_http_modelgw_admin_plain(&addr[j].opt);

                if (!ngx_http_modelgw_admin_loopback(addr[j].opt.sockaddr)) {
                    reach = NGX_HTTP_MODELGW_ADMIN_NETWORK;

                } else if (reach == NGX_HTTP_MODELGW_ADMIN_SOCKET) {
                    reach = NGX_HTTP_MODELGW_ADMIN_LOOPBACK;
                }
            }
        }
    }

    return reach;
}


static ngx_uint_t
ngx_http_modelgw_admin_plain(ngx_http_listen_opt_t *opt)
{
#if (NGX_HTTP_V3)

    if (opt->quic) {
        return 0;
    }

#endif

    return !opt->ssl;
}


/* RFC 5735, 3; RFC 4291, 2.5.3 */

static ngx_uint_t
ngx_http_modelgw_admin_loopback(struct sockaddr *sockaddr)
{
    struct sockaddr_in   *sin;
#if (NGX_HAVE_INET6)
    struct sockaddr_in6  *sin6;
#endif

    switch (sockaddr->sa_family) {

#if (NGX_HAVE_INET6)
    case AF_INET6:
        sin6 = (struct sockaddr_in6 *) sockaddr;
        return IN6_IS_ADDR_LOOPBACK(&sin6->sin6_addr);
#endif

    default: /* AF_INET */
        sin = (struct sockaddr_in *) sockaddr;
        return ntohl(sin->sin_addr.s_addr) >> 24 == 127;
    }
}


static ngx_int_t
ngx_http_modelgw_admin_handler(ngx_http_request_t *r)
{
    ngx_int_t                        rc;
    ngx_str_t                        path, id;
    ngx_uint_t                       methods;
    ngx_http_modelgw_ctx_t          *ctx;
    ngx_http_modelgw_admin_route_t  *route;

    if (r != r->main || ngx_http_modelgw_get_ctx(r) != NULL) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "a subrequest, or a request redirected from a gateway "
                      "location, cannot use an admin location");
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* "error_page" does not apply */
    r->error_page = 1;

    ctx = ngx_http_modelgw_create_ctx(r);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    route = NULL;
    methods = 0;

    rc = ngx_http_modelgw_admin_guard(r, ctx);

    if (rc == NGX_OK && ngx_http_modelgw_admin_path(r, &path) == NGX_OK) {
        route = ngx_http_modelgw_admin_route(r, &path, &id, &methods);
    }

    if (rc == NGX_OK && (route == NULL || route->roles)) {
        rc = ngx_http_modelgw_admin_sign_in(r, ctx);
    }

    if (rc == NGX_OK) {
        rc = route ? ngx_http_modelgw_admin_allowed(r, ctx, route)
                   : ngx_http_modelgw_admin_unknown(r, ctx, methods);
    }

    if (rc == NGX_OK && route->change) {
        rc = ngx_http_modelgw_admin_query_none(r, ctx);
    }

    if (rc == NGX_OK && route->change) {
        rc = ngx_http_modelgw_admin_holder_change(r, ctx, &id);
    }

    if (rc == NGX_OK && route->change) {
        return ngx_http_modelgw_admin_change(r, ctx, route->change, &id);
    }

    r->main->count++;

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_admin_get(r, ctx, route, &id);
    }

    if (rc != NGX_OK) {
        ngx_http_modelgw_admin_refuse(r, ctx, rc);
    }

    return NGX_DONE;
}


/*
 * Sets *path to the part of the URI after the location's prefix: the interface
 * may be in "location /", "location /admin" or "location /admin/".
 */

static ngx_int_t
ngx_http_modelgw_admin_path(ngx_http_request_t *r, ngx_str_t *path)
{
    ngx_str_t                 *name;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    name = &clcf->name;

    /* "rewrite" may have changed the URI */

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


/* NULL: there is none; *methods are those of the path, 0: it is unknown */

static ngx_http_modelgw_admin_route_t *
ngx_http_modelgw_admin_route(ngx_http_request_t *r, ngx_str_t *path,
    ngx_str_t *id, ngx_uint_t *methods)
{
    size_t                           tail;
    ngx_http_modelgw_admin_route_t  *one;

    tail = 0;

    for (one = ngx_http_modelgw_admin_routes; one->path.len; one++) {

        if (!ngx_http_modelgw_admin_matches(one, path, id)
            || (*methods && one->tail.len != tail))
        {
            if (*methods) {
                break;
            }

            continue;
        }

        if (one->method == r->method
            || (one->method == NGX_HTTP_GET && r->method == NGX_HTTP_HEAD))
        {
            return one;
        }

        *methods |= one->method;
        tail = one->tail.len;
    }

    return NULL;
}


static ngx_uint_t
ngx_http_modelgw_admin_matches(ngx_http_modelgw_admin_route_t *route,
    ngx_str_t *path, ngx_str_t *id)
{
    size_t  len;

    len = route->path.len;

    if (path->len < len
        || ngx_memcmp(path->data, route->path.data, len) != 0)
    {
        return 0;
    }

    id->data = path->data + len;
    id->len = path->len - len;

    if (route->path.data[len - 1] != '/') {
        return id->len == 0;
    }

    if (id->len <= route->tail.len) {
        return 0;
    }

    id->len -= route->tail.len;

    return ngx_memcmp(id->data + id->len, route->tail.data, route->tail.len)
           == 0;
}


static ngx_int_t
ngx_http_modelgw_admin_allowed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_admin_route_t *route)
{
    ngx_http_modelgw_admin_client_t  *client;

    client = ctx->client;

    if (route->roles == 0 || (route->roles & client->role)) {
        return NGX_OK;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_FORBIDDEN, "FORBIDDEN",
                                  "\"%V\" may not do this", &client->name);
}


/* 404, or 405 if the path has other methods */

static ngx_int_t
ngx_http_modelgw_admin_unknown(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t methods)
{
    u_char     *p;
    ngx_str_t   allow;

    if (methods == 0) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                      "Not found");
    }

    p = ngx_pnalloc(r->pool, sizeof(", GET, HEAD, POST, PATCH, DELETE"));
    if (p == NULL) {
        return NGX_ERROR;
    }

    allow.data = p + 2;

    p = ngx_sprintf(p, "%s%s%s%s",
                    (methods & NGX_HTTP_GET) ? ", GET, HEAD" : "",
                    (methods & NGX_HTTP_POST) ? ", POST" : "",
                    (methods & NGX_HTTP_PATCH) ? ", PATCH" : "",
                    (methods & NGX_HTTP_DELETE) ? ", DELETE" : "");

    allow.len = p - allow.data;

    if (ngx_http_modelgw_headers_add(r, "Allow", &allow) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_ALLOWED,
                                  "METHOD_NOT_ALLOWED",
                                  "Only %V is allowed here", &allow);
}


static ngx_int_t
ngx_http_modelgw_admin_get(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_admin_route_t *route, ngx_str_t *id)
{
    ngx_int_t                         rc;
    ngx_uint_t                        flags, ledger;
    ngx_http_modelgw_job_t           *job;
    ngx_http_modelgw_main_conf_t     *mmcf;
    ngx_http_modelgw_admin_client_t  *client;

    client = ctx->client;
    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    ledger = (mmcf->ledger_path.len && mmcf->ledger != NULL);

    if ((route->flags & NGX_HTTP_MODELGW_ADMIN_LEDGER) && !ledger) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                      "No ledger is configured");
    }

    flags = route->flags;

    if (!ngx_http_modelgw_admin_accepts_csv(r)) {
        flags &= ~NGX_HTTP_MODELGW_ADMIN_CSV;
    }

    if ((flags & NGX_HTTP_MODELGW_ADMIN_KEYS) && ledger) {
        flags |= NGX_HTTP_MODELGW_ADMIN_STORE;
    }

    if (client->key) {
        flags |= NGX_HTTP_MODELGW_ADMIN_HOLDER;
    }

    rc = ngx_http_modelgw_job_create(r, ctx, flags, &job);
    if (rc != NGX_OK) {
        return rc;
    }

    job->handler = route->handler;
    job->params = route->params;

    rc = ngx_http_modelgw_admin_holder(r, ctx, id, job);

    if (rc == NGX_OK && route->find) {
        rc = route->find(r, ctx, id, job);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_admin_query(r, ctx, job);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_admin_holder_query(r, ctx, job);
    }

    if (rc == NGX_OK && (flags & NGX_HTTP_MODELGW_ADMIN_STORE)
        && !job->local)
    {
        rc = ngx_http_modelgw_admin_member(r, ctx);
    }

    if (rc == NGX_OK) {
        ngx_http_modelgw_job_start(job);
    }

    return rc;
}


static ngx_uint_t
ngx_http_modelgw_admin_accepts_csv(ngx_http_request_t *r)
{
    ngx_table_elt_t             *h;
    ngx_http_modelgw_headers_t   hs;

    ngx_http_modelgw_headers_init(&hs, &r->headers_in.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (ngx_http_modelgw_headers_is(&h->key, "accept")
            && ngx_strcasestrn(h->value.data, "text/csv", 8 - 1) != NULL)
        {
            return 1;
        }
    }

    return 0;
}


void
ngx_http_modelgw_admin_reply(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, ngx_str_t *body)
{
    if (ngx_http_modelgw_headers_no_store(r) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    (void) ngx_http_modelgw_reply_json(r, ctx, status, body);
}


void
ngx_http_modelgw_admin_refuse(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_int_t rc)
{
    if (rc == NGX_DECLINED && ngx_http_modelgw_headers_no_store(r) == NGX_OK) {
        (void) ngx_http_modelgw_reply_error(r, ctx);
        return;
    }

    ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
}


const char *
ngx_http_modelgw_admin_books(ngx_http_request_t *r)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    return mmcf->cluster ? "The database of the cluster" : "The ledger";
}


ngx_int_t
ngx_http_modelgw_admin_member(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_str_t                         reason;
    ngx_http_modelgw_main_conf_t     *mmcf;
    ngx_http_modelgw_admin_client_t  *client;

    client = ctx->client;
    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    if (mmcf->cluster == NULL
        || ngx_modelgw_node(mmcf->ledger)->state != NGX_MODELGW_NODE_REFUSED)
    {
        return NGX_OK;
    }

    if (ngx_http_modelgw_node_reason(mmcf, &reason, r->pool) != NGX_OK) {
        return NGX_ERROR;
    }

    if (client->key) {
        reason.len = 0;
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                  "SERVICE_UNAVAILABLE",
                                  "This node must not work with the cluster's "
                                  "database%s%V", reason.len ? ": " : "",
                                  &reason);
}


ngx_int_t
ngx_http_modelgw_admin_etag(ngx_http_request_t *r, uint64_t version)
{
    ngx_str_t  value;

    value.data = ngx_pnalloc(r->pool, NGX_INT64_LEN + 2);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    value.len = ngx_sprintf(value.data, "\"%uL\"", version) - value.data;

    return ngx_http_modelgw_headers_add(r, "ETag", &value);
}
