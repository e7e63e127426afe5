
/*
 * What nginx -t says of a gateway location, and what we set in it ourselves.
 *
 * It runs as our configuration of the location is merged.  nginx merges module
 * by module in the order of its list, and a filter stands behind the handlers
 * (see "config"), so proxy, mirror, auth_request and core are merged by then.
 *
 * Of other modules' configurations, whose structs are private, only the first
 * member is touched: the proxy's is the public ngx_http_upstream_conf_t, the
 * mirror's an array pointer, those of auth_request and addition a string, that
 * of ssi its flag.  It is so in every nginx since these modules exist; tests
 * would tell if it changed.
 *
 * Refused is what leads a call, its body or its answer past our checks, or what
 * would bill a call twice.  Warned of, with the line to add, is what breaks
 * clients.  A location without a content handler is left alone: "modelgw on" of
 * a whole server is inherited by locations with files, too.  So that nothing is
 * lost in "if" and limit_except, which are locations inside, refusals apply to
 * them as well.
 */


#include "ngx_http_modelgw.h"


#define NGX_HTTP_MODELGW_LINT_BODY     (32 * 1024 * 1024)
#define NGX_HTTP_MODELGW_LINT_BUFFER   (1024 * 1024)
#define NGX_HTTP_MODELGW_LINT_TIMEOUT  (300 * 1000)


typedef struct {
    ngx_http_core_srv_conf_t    *cscf;
    ngx_http_core_loc_conf_t    *clcf;
    ngx_http_upstream_conf_t    *proxy;      /* NULL: nginx has no proxy */
    ngx_array_t                 *mirror;     /* NULL: none */
    ngx_str_t                   *auth;       /* NULL: nginx cannot do it */
    ngx_str_t                   *addition;   /* likewise; added before */
    ngx_flag_t                  *ssi;        /* likewise */
    ngx_uint_t                   ssl;        /* some upstream is https */
} ngx_http_modelgw_lint_t;


typedef struct {
    ngx_uint_t                 (*found)(ngx_http_modelgw_lint_t *lint);
    const char                  *text;
} ngx_http_modelgw_lint_rule_t;


static char *ngx_http_modelgw_lint_refuse(ngx_conf_t *cf,
    ngx_http_modelgw_lint_t *lint);
static void ngx_http_modelgw_lint_log(ngx_uint_t level, ngx_conf_t *cf,
    ngx_http_modelgw_lint_t *lint, const char *text);
static void ngx_http_modelgw_lint_init(ngx_conf_t *cf,
    ngx_http_modelgw_lint_t *lint);
static void ngx_http_modelgw_lint_adjust(ngx_http_modelgw_lint_t *lint);

static ngx_uint_t ngx_http_modelgw_lint_static(ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_unbuffered(
    ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_headers(ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_body(ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_next(ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_cache(ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_store(ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_mirror(ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_auth(ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_addition(ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_ssi(ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_in_file(ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_post_action(
    ngx_http_modelgw_lint_t *lint);

static ngx_uint_t ngx_http_modelgw_lint_max_body(ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_buffer(ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_underscores(
    ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_timeout(ngx_http_modelgw_lint_t *lint);
#if (NGX_HTTP_SSL)
static ngx_uint_t ngx_http_modelgw_lint_sni(ngx_http_modelgw_lint_t *lint);
static ngx_uint_t ngx_http_modelgw_lint_verify(ngx_http_modelgw_lint_t *lint);
#endif


static ngx_http_modelgw_lint_rule_t  ngx_http_modelgw_lint_refused[] = {

    { ngx_http_modelgw_lint_static,
      "\"proxy_pass\" must be \"proxy_pass $modelgw_upstream\"" },
    { ngx_http_modelgw_lint_unbuffered,
      "\"proxy_request_buffering off\" sends a body before it is checked" },
    { ngx_http_modelgw_lint_headers,
      "\"proxy_pass_request_headers off\" would drop what clients need" },
    { ngx_http_modelgw_lint_body,
      "\"proxy_pass_request_body off\" would drop the question" },
    { ngx_http_modelgw_lint_next,
      "\"proxy_next_upstream non_idempotent\" would bill a call twice" },
    { ngx_http_modelgw_lint_cache,
      "\"proxy_cache\" would give one caller's answer to another" },
    { ngx_http_modelgw_lint_store,
      "\"proxy_store\" would keep answers in files" },
    { ngx_http_modelgw_lint_mirror,
      "\"mirror\" would copy prompts elsewhere" },
    { ngx_http_modelgw_lint_auth,
      "\"auth_request\" would run this location's checks in a subrequest" },
    { ngx_http_modelgw_lint_addition,
      "\"add_before_body\" would make answers no JSON" },
    { ngx_http_modelgw_lint_ssi,
      "\"ssi\" would run what a model writes" },
    { ngx_http_modelgw_lint_in_file,
      "\"client_body_in_file_only\" would keep prompts in files" },
    { ngx_http_modelgw_lint_post_action,
      "\"post_action\" would run each call again" },

    { NULL, NULL }
};


static ngx_http_modelgw_lint_rule_t  ngx_http_modelgw_lint_warned[] = {

    { ngx_http_modelgw_lint_max_body,
      "long conversations and images will be refused: add "
      "\"client_max_body_size 32m;\"" },
    { ngx_http_modelgw_lint_buffer,
      "most bodies will go through temporary files: add "
      "\"client_body_buffer_size 2m;\"" },
    { ngx_http_modelgw_lint_underscores,
      "some assistants' headers will be dropped: add "
      "\"underscores_in_headers on;\"" },
    { ngx_http_modelgw_lint_timeout,
      "models that think for long will be cut off: add "
      "\"proxy_read_timeout 600s;\"" },
#if (NGX_HTTP_SSL)
    { ngx_http_modelgw_lint_sni,
      "the https upstream is not told which host is meant: add "
      "\"proxy_ssl_server_name on;\"" },
    { ngx_http_modelgw_lint_verify,
      "the https upstream's certificate is not checked: add "
      "\"proxy_ssl_verify on;\" and \"proxy_ssl_trusted_certificate "
      "/etc/ssl/certs/ca-certificates.crt;\"" },
#endif

    { NULL, NULL }
};


char *
ngx_http_modelgw_lint_location(ngx_conf_t *cf, ngx_uint_t own)
{
    ngx_http_modelgw_lint_t        lint;
    ngx_http_modelgw_lint_rule_t  *rule;

    ngx_http_modelgw_lint_init(cf, &lint);

    if (lint.proxy == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"modelgw on\" needs nginx with its proxy module");
        return NGX_CONF_ERROR;
    }

    ngx_http_modelgw_lint_adjust(&lint);

    if (lint.clcf->noname) {
        return ngx_http_modelgw_lint_refuse(cf, &lint);
    }

    if (lint.clcf->handler == NULL) {

        if (own && lint.clcf->name.len && lint.clcf->locations == NULL) {
            ngx_http_modelgw_lint_log(NGX_LOG_WARN, cf, &lint,
                                      "calls end here: add \"proxy_pass "
                                      "$modelgw_upstream;\"");
        }

        return NGX_CONF_OK;
    }

    if (ngx_http_modelgw_lint_refuse(cf, &lint) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    for (rule = ngx_http_modelgw_lint_warned; rule->found; rule++) {
        if (rule->found(&lint)) {
            ngx_http_modelgw_lint_log(NGX_LOG_WARN, cf, &lint, rule->text);
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_modelgw_lint_refuse(ngx_conf_t *cf, ngx_http_modelgw_lint_t *lint)
{
    ngx_http_modelgw_lint_rule_t  *rule;

    for (rule = ngx_http_modelgw_lint_refused; rule->found; rule++) {
        if (rule->found(lint)) {
            ngx_http_modelgw_lint_log(NGX_LOG_EMERG, cf, lint, rule->text);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


/* The best we know of the place: nginx keeps no line of a location. */

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


static void
ngx_http_modelgw_lint_init(ngx_conf_t *cf, ngx_http_modelgw_lint_t *lint)
{
    void                          **confs;
    ngx_uint_t                      i;
    ngx_array_t                   **mirror;
    ngx_http_modelgw_group_t      **group;
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
}


void *
ngx_http_modelgw_lint_conf(ngx_conf_t *cf, void **confs, const char *name)
{
    ngx_module_t  **module;

    module = ngx_http_modelgw_lint_module(cf, name);

    return module ? confs[(*module)->ctx_index] : NULL;
}


ngx_module_t **
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
 * An upstream's X-Accel-* must not drive nginx, its errors are ours to rewrite,
 * and its trailers have no place in what we send.  A client that leaves is
 * modelgw_abort's business.  "/v1" is not redirected to "/v1/": to a client it
 * is one more path that does not exist.
 */

static void
ngx_http_modelgw_lint_adjust(ngx_http_modelgw_lint_t *lint)
{
    ngx_http_upstream_conf_t  *proxy;

    proxy = lint->proxy;

    lint->clcf->auto_redirect = 0;

    proxy->ignore_headers |= NGX_HTTP_UPSTREAM_IGN_XA_REDIRECT
                             |NGX_HTTP_UPSTREAM_IGN_XA_EXPIRES
                             |NGX_HTTP_UPSTREAM_IGN_XA_LIMIT_RATE
                             |NGX_HTTP_UPSTREAM_IGN_XA_BUFFERING
                             |NGX_HTTP_UPSTREAM_IGN_XA_CHARSET;

    proxy->intercept_errors = 0;
    proxy->ignore_client_abort = 1;
    proxy->pass_trailers = 0;
}


static ngx_uint_t
ngx_http_modelgw_lint_static(ngx_http_modelgw_lint_t *lint)
{
    return lint->proxy->upstream != NULL;
}


static ngx_uint_t
ngx_http_modelgw_lint_unbuffered(ngx_http_modelgw_lint_t *lint)
{
    return !lint->proxy->request_buffering;
}


static ngx_uint_t
ngx_http_modelgw_lint_headers(ngx_http_modelgw_lint_t *lint)
{
    return !lint->proxy->pass_request_headers;
}


static ngx_uint_t
ngx_http_modelgw_lint_body(ngx_http_modelgw_lint_t *lint)
{
    return !lint->proxy->pass_request_body;
}


static ngx_uint_t
ngx_http_modelgw_lint_next(ngx_http_modelgw_lint_t *lint)
{
    return (lint->proxy->next_upstream & NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT)
           != 0;
}


static ngx_uint_t
ngx_http_modelgw_lint_cache(ngx_http_modelgw_lint_t *lint)
{
#if (NGX_HTTP_CACHE)
    return lint->proxy->cache > 0;
#else
    return 0;
#endif
}


static ngx_uint_t
ngx_http_modelgw_lint_store(ngx_http_modelgw_lint_t *lint)
{
    return lint->proxy->store > 0;
}


static ngx_uint_t
ngx_http_modelgw_lint_mirror(ngx_http_modelgw_lint_t *lint)
{
    return lint->mirror != NULL;
}


static ngx_uint_t
ngx_http_modelgw_lint_auth(ngx_http_modelgw_lint_t *lint)
{
    return lint->auth != NULL && lint->auth->len != 0;
}


static ngx_uint_t
ngx_http_modelgw_lint_addition(ngx_http_modelgw_lint_t *lint)
{
    return lint->addition != NULL && lint->addition->len != 0;
}


static ngx_uint_t
ngx_http_modelgw_lint_ssi(ngx_http_modelgw_lint_t *lint)
{
    return lint->ssi != NULL && *lint->ssi == 1;
}


/* 0: off; the values have no names outside of the core module's file */

static ngx_uint_t
ngx_http_modelgw_lint_in_file(ngx_http_modelgw_lint_t *lint)
{
    return lint->clcf->client_body_in_file_only != 0;
}


static ngx_uint_t
ngx_http_modelgw_lint_post_action(ngx_http_modelgw_lint_t *lint)
{
    return lint->clcf->post_action.len != 0;
}


/* 0: no limit */

static ngx_uint_t
ngx_http_modelgw_lint_max_body(ngx_http_modelgw_lint_t *lint)
{
    return lint->clcf->client_max_body_size != 0
           && lint->clcf->client_max_body_size < NGX_HTTP_MODELGW_LINT_BODY;
}


static ngx_uint_t
ngx_http_modelgw_lint_buffer(ngx_http_modelgw_lint_t *lint)
{
    return lint->clcf->client_body_buffer_size < NGX_HTTP_MODELGW_LINT_BUFFER;
}


static ngx_uint_t
ngx_http_modelgw_lint_underscores(ngx_http_modelgw_lint_t *lint)
{
    return !lint->cscf->underscores_in_headers;
}


static ngx_uint_t
ngx_http_modelgw_lint_timeout(ngx_http_modelgw_lint_t *lint)
{
    return lint->proxy->read_timeout < NGX_HTTP_MODELGW_LINT_TIMEOUT;
}


#if (NGX_HTTP_SSL)

static ngx_uint_t
ngx_http_modelgw_lint_sni(ngx_http_modelgw_lint_t *lint)
{
    return lint->ssl && !lint->proxy->ssl_server_name;
}


static ngx_uint_t
ngx_http_modelgw_lint_verify(ngx_http_modelgw_lint_t *lint)
{
    return lint->ssl && !lint->proxy->ssl_verify;
}

#endif
