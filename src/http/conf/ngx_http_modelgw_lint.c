
/*
 * The checks of a gateway location by nginx -t, and the settings that the
 * module forces on it.
 *
 * A location is checked when our configuration of it is merged.  nginx merges
 * modules in the order of its list, and filters come after handlers (see
 * "config"), so proxy, mirror, auth_request and core are merged by then.
 *
 * The structs of other modules' configurations are private, so only the first
 * member is used: for proxy it is the public ngx_http_upstream_conf_t, for
 * mirror an array pointer, for auth_request and addition a string, for ssi its
 * flag.  This is so in every nginx since these modules exist; tests would fail
 * if it changed.
 *
 * A location is refused if a call, its body or its answer would bypass our
 * checks, or if a call would be billed twice.  Its content handler must be the
 * proxy module's, with exactly $modelgw_upstream as the address: any other text
 * or handler would send calls that are neither credentialed nor charged.
 * Warnings are for settings that break clients, with the line to add.  A
 * location without a content handler is not checked: it may inherit "modelgw
 * on" from the server and serve files.  "if" and limit_except blocks are
 * locations of their own, they can be refused but get no warnings.
 *
 * Directives of the proxy module are also checked when they are read: at merge
 * time the text of "proxy_pass" is in a private member, and the proxy module's
 * own errors, which do not help here, have been logged already.  So the cycle
 * gets a copy of the proxy module with our commands, which check the
 * arguments, call the proxy's own commands and explain their errors.  The list
 * of modules and the copy belong to the cycle, the proxy module itself is not
 * changed.
 *
 * Rejected: to change the commands of the proxy module itself, as all cycles
 * share them, and nginx continues with the old cycle if a reload fails; to
 * have directives of the same name in a module before the proxy, which is not
 * possible in a static build.
 */


#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_LINT_BODY     (32 * 1024 * 1024)  /* bytes */
#define NGX_HTTP_MODELGW_LINT_BUFFER   (1024 * 1024)       /* bytes */
#define NGX_HTTP_MODELGW_LINT_TIMEOUT  (300 * 1000)        /* ms */

/* bytes; a call takes 12 to 16 KB of the pool of its request */

#define NGX_HTTP_MODELGW_LINT_POOL     (8 * 1024)

/* bytes; headers of an SDK, and a short body */

#define NGX_HTTP_MODELGW_LINT_HEADER   (2 * 1024)


typedef struct {
    ngx_http_core_srv_conf_t    *cscf;
    ngx_http_core_loc_conf_t    *clcf;
    ngx_http_upstream_conf_t    *proxy;      /* NULL: nginx has no proxy */
    ngx_array_t                 *mirror;     /* NULL: none */
    ngx_str_t                   *auth;       /* NULL: no such module */
    ngx_str_t                   *addition;   /* NULL: no such module */
    ngx_flag_t                  *ssi;        /* NULL: no such module */
    ngx_uint_t                   ssl;        /* 1: some upstream is https */
    ngx_uint_t                   bypass;     /* 1: the content handler sends
                                                calls elsewhere */
} ngx_http_modelgw_lint_t;


static void ngx_http_modelgw_lint_init(ngx_conf_t *cf,
    ngx_http_modelgw_lint_t *lint);
static ngx_module_t **ngx_http_modelgw_lint_module(ngx_conf_t *cf,
    const char *name);
static void ngx_http_modelgw_lint_adjust(ngx_http_modelgw_lint_t *lint);
static const char *ngx_http_modelgw_lint_refused(
    ngx_http_modelgw_lint_t *lint);
static void ngx_http_modelgw_lint_warn(ngx_conf_t *cf,
    ngx_http_modelgw_lint_t *lint);
static void ngx_http_modelgw_lint_aliased(ngx_conf_t *cf,
    ngx_http_modelgw_lint_t *lint);
static void ngx_http_modelgw_lint_log(ngx_uint_t level, ngx_conf_t *cf,
    ngx_http_modelgw_lint_t *lint, const char *text);
static char *ngx_http_modelgw_lint_set(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_modelgw_lint_pass(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_int_t ngx_http_modelgw_lint_variable(ngx_str_t *url);
static ngx_uint_t ngx_http_modelgw_lint_word(u_char ch);


char *
ngx_http_modelgw_lint_location(ngx_conf_t *cf, ngx_uint_t own)
{
    const char               *text;
    ngx_http_modelgw_lint_t   lint;

    ngx_http_modelgw_lint_init(cf, &lint);

    if (lint.proxy == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"modelgw on\" needs nginx with its proxy module");
        return NGX_CONF_ERROR;
    }

    ngx_http_modelgw_lint_adjust(&lint);

    if (lint.clcf->handler == NULL && !lint.clcf->noname) {

        if (own && lint.clcf->name.len && lint.clcf->locations == NULL) {
            ngx_http_modelgw_lint_log(NGX_LOG_WARN, cf, &lint,
                                      "there is no \"proxy_pass\": add "
                                      "\"proxy_pass $modelgw_upstream;\"");
        }

        return NGX_CONF_OK;
    }

    text = ngx_http_modelgw_lint_refused(&lint);

    if (text) {
        ngx_http_modelgw_lint_log(NGX_LOG_EMERG, cf, &lint, text);
        return NGX_CONF_ERROR;
    }

    if (!lint.clcf->noname) {
        ngx_http_modelgw_lint_warn(cf, &lint);
        ngx_http_modelgw_lint_aliased(cf, &lint);
    }

    return NGX_CONF_OK;
}


static void
ngx_http_modelgw_lint_init(ngx_conf_t *cf, ngx_http_modelgw_lint_t *lint)
{
    void                          **confs;
    ngx_uint_t                      i;
    ngx_array_t                   **mirror;
    ngx_http_modelgw_group_t      **group;
    ngx_http_modelgw_loc_conf_t    *mlcf;
    ngx_http_modelgw_main_conf_t   *mmcf;

    lint->cscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    lint->clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    confs = ((ngx_http_conf_ctx_t *) cf->ctx)->loc_conf;

    lint->proxy = ngx_http_modelgw_lint_conf(cf, confs,
                                             "ngx_http_proxy_module");
    lint->auth = ngx_http_modelgw_lint_conf(cf, confs,
                                            "ngx_http_auth_request_module");
    lint->addition =
        ngx_http_modelgw_lint_conf(cf, confs,
                                   "ngx_http_addition_filter_module");
    lint->ssi = ngx_http_modelgw_lint_conf(cf, confs,
                                           "ngx_http_ssi_filter_module");

    mirror = ngx_http_modelgw_lint_conf(cf, confs, "ngx_http_mirror_module");
    lint->mirror = mirror ? *mirror : NULL;

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_modelgw_module);

    group = mmcf->groups.elts;
    lint->ssl = 0;

    for (i = 0; i < mmcf->groups.nelts; i++) {
        lint->ssl |= group[i]->ssl;
    }

    /*
     * "if" and limit_except blocks without a proxy_pass of their own have the
     * location's, which is checked there
     */

    mlcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_modelgw_module);

    lint->bypass = lint->clcf->handler
                   && (lint->clcf->handler != mmcf->proxy || mlcf->elsewhere);
}


void *
ngx_http_modelgw_lint_conf(ngx_conf_t *cf, void **confs, const char *name)
{
    ngx_module_t  **module;

    module = ngx_http_modelgw_lint_module(cf, name);

    return module ? confs[(*module)->ctx_index] : NULL;
}


static ngx_module_t **
ngx_http_modelgw_lint_module(ngx_conf_t *cf, const char *name)
{
    ngx_module_t  **module;

    for (module = cf->cycle->modules; *module; module++) {

        if ((*module)->type == NGX_HTTP_MODULE
            && ngx_strcmp((*module)->name, name) == 0)
        {
            return module;
        }
    }

    return NULL;
}


/*
 * X-Accel-* of an upstream must not control nginx, errors of an upstream are
 * rewritten by us, and its trailers are not passed.  Clients that close their
 * connections are handled by modelgw_abort.  "/v1" is not redirected to
 * "/v1/", as to clients it is an unknown path like any other.  The pools of
 * requests to the server have larger blocks than nginx's default of 4 KB: two
 * of them hold a call, which needs a small part of a fourth one otherwise.  And
 * what is read first is larger than the default of 1 KB: a small call comes in
 * one recv().
 */

static void
ngx_http_modelgw_lint_adjust(ngx_http_modelgw_lint_t *lint)
{
    ngx_http_upstream_conf_t  *proxy;

    proxy = lint->proxy;

    lint->clcf->auto_redirect = 0;

    lint->cscf->request_pool_size = ngx_max(lint->cscf->request_pool_size,
                                            NGX_HTTP_MODELGW_LINT_POOL);

    lint->cscf->client_header_buffer_size =
                                ngx_max(lint->cscf->client_header_buffer_size,
                                        NGX_HTTP_MODELGW_LINT_HEADER);

    proxy->ignore_headers |= NGX_HTTP_UPSTREAM_IGN_XA_REDIRECT
                             |NGX_HTTP_UPSTREAM_IGN_XA_EXPIRES
                             |NGX_HTTP_UPSTREAM_IGN_XA_LIMIT_RATE
                             |NGX_HTTP_UPSTREAM_IGN_XA_BUFFERING
                             |NGX_HTTP_UPSTREAM_IGN_XA_CHARSET;

    proxy->intercept_errors = 0;
    proxy->ignore_client_abort = 1;
    proxy->pass_trailers = 0;
}


/* Returns the reason to refuse the location, or NULL. */

static const char *
ngx_http_modelgw_lint_refused(ngx_http_modelgw_lint_t *lint)
{
    ngx_http_upstream_conf_t  *proxy;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = lint->clcf;
    proxy = lint->proxy;

    if (lint->bypass) {
        return "the content handler must be \"proxy_pass "
               "$modelgw_upstream\", unless there is \"modelgw off\"";
    }

    if (!proxy->request_buffering) {
        return "\"proxy_request_buffering off\" sends a body before it is "
               "checked";
    }

    if (!proxy->pass_request_headers) {
        return "\"proxy_pass_request_headers off\" would drop what clients "
               "need";
    }

    if (!proxy->pass_request_body) {
        return "\"proxy_pass_request_body off\" would drop the question";
    }

    if (proxy->next_upstream & NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT) {
        return "\"proxy_next_upstream non_idempotent\" would bill a call "
               "twice";
    }

#if (NGX_HTTP_CACHE)

    if (proxy->cache > 0) {
        return "\"proxy_cache\" would give one caller's answer to another";
    }

#endif

    if (proxy->store > 0) {
        return "\"proxy_store\" would keep answers in files";
    }

    if (lint->mirror) {
        return "\"mirror\" would copy prompts elsewhere";
    }

    if (lint->auth && lint->auth->len) {
        return "\"auth_request\" would run this location's checks in a "
               "subrequest";
    }

    if (lint->addition && lint->addition->len) {
        return "\"add_before_body\" would make answers no JSON";
    }

    if (lint->ssi && *lint->ssi == 1) {
        return "\"ssi\" would run what a model writes";
    }

    /* 0: off; the constants are private to the core module */

    if (clcf->client_body_in_file_only) {
        return "\"client_body_in_file_only\" would keep prompts in files";
    }

    if (clcf->post_action.len) {
        return "\"post_action\" would run each call again";
    }

    return NULL;
}


static void
ngx_http_modelgw_lint_warn(ngx_conf_t *cf, ngx_http_modelgw_lint_t *lint)
{
    ngx_http_upstream_conf_t  *proxy;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = lint->clcf;
    proxy = lint->proxy;

    /* 0: no limit */

    if (clcf->client_max_body_size
        && clcf->client_max_body_size < NGX_HTTP_MODELGW_LINT_BODY)
    {
        ngx_http_modelgw_lint_log(NGX_LOG_WARN, cf, lint,
                                  "long conversations and images will be "
                                  "refused: add \"client_max_body_size 32m;\"");
    }

    if (clcf->client_body_buffer_size < NGX_HTTP_MODELGW_LINT_BUFFER) {
        ngx_http_modelgw_lint_log(NGX_LOG_WARN, cf, lint,
                                  "most bodies will go through temporary "
                                  "files: add \"client_body_buffer_size 2m;\"");
    }

    if (!lint->cscf->underscores_in_headers) {
        ngx_http_modelgw_lint_log(NGX_LOG_WARN, cf, lint,
                                  "some assistants' headers will be dropped: "
                                  "add \"underscores_in_headers on;\"");
    }

    if (proxy->read_timeout < NGX_HTTP_MODELGW_LINT_TIMEOUT) {
        ngx_http_modelgw_lint_log(NGX_LOG_WARN, cf, lint,
                                  "models that think for long will be cut "
                                  "off: add \"proxy_read_timeout 600s;\"");
    }

#if (NGX_HTTP_SSL)

    if (lint->ssl && !proxy->ssl_server_name) {
        ngx_http_modelgw_lint_log(NGX_LOG_WARN, cf, lint,
                                  "no host name is sent to the https "
                                  "upstream: add \"proxy_ssl_server_name "
                                  "on;\"");
    }

    if (lint->ssl && !proxy->ssl_verify) {
        ngx_http_modelgw_lint_log(NGX_LOG_WARN, cf, lint,
                                  "the https upstream's certificate is not "
                                  "checked: add \"proxy_ssl_verify on;\" and "
                                  "\"proxy_ssl_trusted_certificate "
                                  "/etc/ssl/certs/ca-certificates.crt;\"");
    }

#endif
}


/* A path without "/v1" may reach a location that begins in another way. */

static void
ngx_http_modelgw_lint_aliased(ngx_conf_t *cf, ngx_http_modelgw_lint_t *lint)
{
    ngx_str_t                    *name;
    ngx_http_modelgw_loc_conf_t  *mlcf;
    ngx_http_modelgw_srv_conf_t  *mscf;

    mlcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_modelgw_module);

    if (!mlcf->aliases) {
        return;
    }

    mscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_modelgw_module);
    name = &lint->clcf->name;

    mscf->aliases = mlcf->place;

#if (NGX_PCRE)

    if (lint->clcf->regex) {
        mscf->aliased = 1;
        return;
    }

#endif

    if (name->len < 3 || ngx_strncmp(name->data, "/v1", 3) != 0) {
        mscf->aliased = 1;
    }
}


void
ngx_http_modelgw_lint_aliases(ngx_conf_t *cf)
{
    ngx_uint_t                     i;
    ngx_http_core_srv_conf_t     **cscf;
    ngx_http_core_main_conf_t     *cmcf;
    ngx_http_modelgw_srv_conf_t   *mscf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    cscf = cmcf->servers.elts;

    for (i = 0; i < cmcf->servers.nelts; i++) {

        mscf = cscf[i]->ctx->srv_conf[ngx_http_modelgw_module.ctx_index];

        if (mscf->aliases.line && !mscf->aliased) {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "\"modelgw_aliases\": paths without \"/v1\" reach no "
                          "gateway location of the server: use \"location "
                          "/\"; \"modelgw on\" is in %s:%ui",
                          mscf->aliases.file, mscf->aliases.line);
        }
    }
}


/*
 * nginx keeps no line number of a location, so that of "modelgw on" is logged.
 */

static void
ngx_http_modelgw_lint_log(ngx_uint_t level, ngx_conf_t *cf,
    ngx_http_modelgw_lint_t *lint, const char *text)
{
    ngx_http_modelgw_loc_conf_t  *mlcf;

    mlcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_modelgw_module);

    ngx_log_error(level, cf->log, 0,
                  "gateway location \"%V\": %s; \"modelgw on\" is in %s:%ui",
                  &lint->clcf->name, text, mlcf->place.file, mlcf->place.line);
}


ngx_int_t
ngx_http_modelgw_lint_proxy(ngx_conf_t *cf)
{
    ngx_uint_t       i, n;
    ngx_module_t   **module, *copy;
    ngx_command_t   *own, *cmd;

    module = ngx_http_modelgw_lint_module(cf, "ngx_http_proxy_module");
    if (module == NULL) {
        return NGX_OK;
    }

    own = (*module)->commands;

    for (n = 0; own[n].name.len; n++) { /* void */ }

    copy = ngx_palloc(cf->pool, sizeof(ngx_module_t));
    if (copy == NULL) {
        return NGX_ERROR;
    }

    cmd = ngx_palloc(cf->pool, (n + 1) * sizeof(ngx_command_t));
    if (cmd == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(cmd, own, (n + 1) * sizeof(ngx_command_t));

    for (i = 0; i < n; i++) {
        cmd[i].set = (ngx_strcmp(cmd[i].name.data, "proxy_pass") == 0)
                     ? ngx_http_modelgw_lint_pass : ngx_http_modelgw_lint_set;
        cmd[i].post = &own[i];
    }

    *copy = **module;
    copy->commands = cmd;

    *module = copy;

    return NGX_OK;
}


/* The usual reason for a duplicate is that proxy.conf has the directive. */

static char *
ngx_http_modelgw_lint_set(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char           *rv;
    ngx_command_t  *own;

    own = cmd->post;

    rv = own->set(cf, own, conf);

    if (rv == NGX_CONF_OK || rv == NGX_CONF_ERROR
        || ngx_strcmp(rv, "is duplicate") != 0)
    {
        return rv;
    }

    return "is duplicate: if the server has it from modelgw/proxy.conf, set "
           "your own in the location";
}


static char *
ngx_http_modelgw_lint_pass(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char                          *rv;
    ngx_int_t                      rc;
    ngx_str_t                     *value;
    ngx_command_t                 *own;
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_modelgw_loc_conf_t   *mlcf;
    ngx_http_modelgw_main_conf_t  *mmcf;

    own = cmd->post;
    value = cf->args->elts;

    rc = ngx_http_modelgw_lint_variable(&value[1]);

    if (rc == NGX_ERROR) {
        return "must be \"proxy_pass $modelgw_upstream\" with nothing before "
               "or after the variable: it has the scheme, the upstream and "
               "the path";
    }

    rv = own->set(cf, own, conf);

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    mlcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_modelgw_module);
    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_modelgw_module);

    mmcf->proxy = clcf->handler;
    mlcf->elsewhere = (rc == NGX_DECLINED);

    return NGX_CONF_OK;
}


/*
 *     NGX_OK        the text is the variable
 *     NGX_DECLINED  it does not contain the variable
 *     NGX_ERROR     it contains the variable and something else
 */

static ngx_int_t
ngx_http_modelgw_lint_variable(ngx_str_t *url)
{
    size_t   brace;
    u_char  *p, *end;

    static const char  name[] = "modelgw_upstream";

    end = url->data;

    for ( ;; ) {
        p = ngx_strcasestrn(end, (char *) name, sizeof(name) - 2);

        if (p == NULL) {
            return NGX_DECLINED;
        }

        end = p + sizeof(name) - 1;

        brace = (p > url->data && p[-1] == '{' && *end == '}');

        p -= brace;

        if (p == url->data || p[-1] != '$') {
            continue;
        }

        /* $modelgw_upstream_model is another variable */

        if (!brace && ngx_http_modelgw_lint_word(*end)) {
            continue;
        }

        return (p - 1 == url->data && end + brace == url->data + url->len)
               ? NGX_OK : NGX_ERROR;
    }
}


static ngx_uint_t
ngx_http_modelgw_lint_word(u_char ch)
{
    u_char  lc;

    lc = (u_char) (ch | 0x20);

    return ch == '_' || (ch >= '0' && ch <= '9') || (lc >= 'a' && lc <= 'z');
}
