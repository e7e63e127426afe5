
/*
 * modelgw_admin, and what nginx -t says of its location.
 *
 * A request that reaches the location can make money, so the mistake to catch
 * is one that lets strangers in.  A server that listens on unix sockets only is
 * safe: the handler asks the kernel for the user.  Over TCP it cannot, and
 * "allow 127.0.0.1" admits every process of the machine, a browser with a
 * hostile page among them.  So TCP is warned of unless something else asks for
 * a proof: "auth_basic", "auth_request", certificates of clients; "internal"
 * locations are not reached directly.  As in lint.c, of other modules'
 * configurations only the first member is touched.
 */


#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_ledger.h"

#if (NGX_HTTP_SSL)
#include <ngx_http_ssl_module.h>
#endif


static ngx_int_t ngx_http_modelgw_admin_server(ngx_conf_t *cf);
static ngx_uint_t ngx_http_modelgw_admin_guarded(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf);
static ngx_uint_t ngx_http_modelgw_admin_unix(ngx_conf_t *cf);


char *
ngx_http_modelgw_set_admin(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_loc_conf_t *mlcf = conf;

    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_modelgw_main_conf_t  *mmcf;

    if (mlcf->admin.line) {
        return "is duplicate";
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


/*
 * Called for every location, merged already.  "if" and limit_except are
 * locations inside: they are as the one around them.
 */

char *
ngx_http_modelgw_admin_location(ngx_conf_t *cf,
    ngx_http_modelgw_loc_conf_t *parent, ngx_http_modelgw_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->noname) {
        conf->admin = parent->admin;
    }

    if (conf->admin.line == 0) {
        return NGX_CONF_OK;
    }

    if (conf->enable) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"modelgw_admin\" and \"modelgw on\" in one location "
                      "\"%V\": one of a server is to be switched off by "
                      "\"modelgw off\", in %s:%ui",
                      &clcf->name, conf->admin.file, conf->admin.line);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_modelgw_admin_server(cf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    /* bodies are small, and read from memory */

    clcf->client_max_body_size = NGX_HTTP_MODELGW_ADMIN_BODY;
    clcf->client_body_buffer_size = NGX_HTTP_MODELGW_ADMIN_BODY * 2;
    clcf->client_body_in_file_only = 0;

    if (clcf->noname) {

        if (clcf->lmt_excpt && clcf->handler == NULL) {
            clcf->handler = ngx_http_modelgw_admin_handler;
        }

        return NGX_CONF_OK;
    }

    if (clcf->handler != ngx_http_modelgw_admin_handler) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "another directive than \"modelgw_admin\" answers in "
                      "location \"%V\", in %s:%ui",
                      &clcf->name, conf->admin.file, conf->admin.line);
        return NGX_CONF_ERROR;
    }

    if (!ngx_http_modelgw_admin_guarded(cf, clcf)) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "admin location \"%V\" is reachable over TCP, where it "
                      "asks for no password: every process that may connect "
                      "can read balances and make credit; have its server "
                      "listen on a unix socket only, in %s:%ui",
                      &clcf->name, conf->admin.file, conf->admin.line);
    }

    return NGX_CONF_OK;
}


/*
 * Keeps the names of the server, which nginx has in a temporary pool, for the
 * handler to compare with Host.
 */

static ngx_int_t
ngx_http_modelgw_admin_server(ngx_conf_t *cf)
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

    mscf->flat = 1;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_modelgw_admin_guarded(ngx_conf_t *cf, ngx_http_core_loc_conf_t *clcf)
{
    void                    **realm;
    ngx_str_t                *auth;
    ngx_http_conf_ctx_t      *ctx;
#if (NGX_HTTP_SSL)
    ngx_http_ssl_srv_conf_t  *sscf;
#endif

    ctx = cf->ctx;

    realm = ngx_http_modelgw_lint_conf(cf, ctx->loc_conf,
                                       "ngx_http_auth_basic_module");
    auth = ngx_http_modelgw_lint_conf(cf, ctx->loc_conf,
                                      "ngx_http_auth_request_module");

#if (NGX_HTTP_SSL)

    sscf = ngx_http_modelgw_lint_conf(cf, ctx->srv_conf, "ngx_http_ssl_module");

    if (sscf && sscf->verify == 1) {
        return 1;
    }

#endif

    return clcf->internal
           || (realm && *realm)
           || (auth && auth->len)
           || ngx_http_modelgw_admin_unix(cf);
}


/* whether all that the server listens on are unix sockets */

static ngx_uint_t
ngx_http_modelgw_admin_unix(ngx_conf_t *cf)
{
    ngx_uint_t                   i, j, k;
    ngx_http_conf_addr_t        *addr;
    ngx_http_conf_port_t        *port;
    ngx_http_core_srv_conf_t    *cscf, **server;
    ngx_http_core_main_conf_t   *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    cscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);

    if (cmcf->ports == NULL) {
        return 0;
    }

    port = cmcf->ports->elts;

    for (i = 0; i < cmcf->ports->nelts; i++) {

        if (port[i].family == AF_UNIX) {
            continue;
        }

        addr = port[i].addrs.elts;

        for (j = 0; j < port[i].addrs.nelts; j++) {

            server = addr[j].servers.elts;

            for (k = 0; k < addr[j].servers.nelts; k++) {
                if (server[k] == cscf) {
                    return 0;
                }
            }
        }
    }

    return 1;
}
