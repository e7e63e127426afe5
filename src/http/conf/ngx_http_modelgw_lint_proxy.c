
/*
 * What nginx -t says of the proxy module's directives, as they are read.
 *
 * lint.c looks at a location when all is merged.  It does not see the text of
 * "proxy_pass", which is in a private member, nor what the proxy module itself
 * has refused by then, in words that do not help.  So the cycle gets a copy of
 * the proxy module with commands of ours: they look at the arguments, call the
 * proxy's own, and explain what these say.  The list of modules and the copy
 * belong to the cycle, the proxy module itself is not touched.
 *
 * Rejected: changing the commands of the proxy module, as all cycles share
 * them, and one that was not accepted leaves a process behind that goes on; and
 * a directive of the same name in a module before it, which cannot be had in a
 * static build.
 */


#include "ngx_http_modelgw.h"


static char *ngx_http_modelgw_lint_set(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_modelgw_lint_pass(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_uint_t ngx_http_modelgw_lint_around(ngx_str_t *url);
static ngx_uint_t ngx_http_modelgw_lint_word(u_char ch);


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


/* The usual reason for two on one level is that proxy.conf has the first. */

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
    ngx_str_t      *value;
    ngx_command_t  *own;

    own = cmd->post;
    value = cf->args->elts;

    if (ngx_http_modelgw_lint_around(&value[1])) {
        return "must be \"proxy_pass $modelgw_upstream\" with nothing before "
               "or after the variable: it has the scheme, the upstream and "
               "the path";
    }

    return own->set(cf, own, conf);
}


/* Whether the variable is in the text, and is not all of it. */

static ngx_uint_t
ngx_http_modelgw_lint_around(ngx_str_t *url)
{
    size_t   brace;
    u_char  *p, *end;

    static const char  name[] = "modelgw_upstream";

    end = url->data;

    for ( ;; ) {
        p = ngx_strcasestrn(end, (char *) name, sizeof(name) - 2);

        if (p == NULL) {
            return 0;
        }

        end = p + sizeof(name) - 1;

        brace = (p > url->data && p[-1] == '{' && *end == '}');

        p -= brace;

        if (p == url->data || p[-1] != '$') {
            continue;
        }

        /* $modelgw_upstream_model is another one */

        if (!brace && ngx_http_modelgw_lint_word(*end)) {
            continue;
        }

        return p - 1 != url->data || end + brace != url->data + url->len;
    }
}


static ngx_uint_t
ngx_http_modelgw_lint_word(u_char ch)
{
    u_char  lc;

    lc = (u_char) (ch | 0x20);

    return ch == '_' || (ch >= '0' && ch <= '9') || (lc >= 'a' && lc <= 'z');
}
