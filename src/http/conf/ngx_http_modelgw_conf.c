
/*
 * The configuration's life: it is created, set, merged, and checked when it is
 * complete.
 *
 * The order of directives does not matter: keys may come before their groups,
 * groups before their upstreams.  So references are checked in init_main_conf,
 * which nginx calls at the end of the http block, before it merges locations.
 * A message then names the place of the directive (ngx_http_modelgw_place_t),
 * as the parser is at the end of the http block by then.
 *
 * Handlers and filters are registered if a location needs them.  That is known
 * when all locations are merged, and kept in "used".
 */


#include "ngx_http_modelgw_conf.h"
#include "ngx_modelgw_sse.h"


#define NGX_HTTP_MODELGW_KEEPALIVE_MAX  (60 * 60 * 1000)  /* ms */


static ngx_uint_t ngx_http_modelgw_conf_origin(ngx_str_t *text);


static ngx_conf_enum_t  ngx_http_modelgw_abort_modes[] = {
    { ngx_string("auto"), NGX_HTTP_MODELGW_ABORT_AUTO },
    { ngx_string("cut"), NGX_HTTP_MODELGW_ABORT_CUT },
    { ngx_string("drain"), NGX_HTTP_MODELGW_ABORT_DRAIN },
    { ngx_null_string, 0 }
};


void *
ngx_http_modelgw_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_modelgw_main_conf_t));
    if (mmcf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     mmcf->keys = NULL;
     *     mmcf->managed_max = 0;
     *     mmcf->managed = NULL;
     *     mmcf->managed_zone = NULL;
     *     mmcf->managed_place = { NULL, 0 };
     *     mmcf->operators = NULL;
     *     mmcf->sessions_zone = NULL;
     *     mmcf->key_prefix = { 0, NULL };
     *     mmcf->skip = NULL;
     *     mmcf->plans = { NULL };
     *     mmcf->scans = { NULL };
     *     mmcf->tape = NULL;
     *     mmcf->ledger = NULL;
     *     mmcf->zone = NULL;
     *     mmcf->ledger_path = { 0, NULL };
     *     mmcf->cluster = NULL;
     *     mmcf->budget_place = { NULL, 0 };
     *     mmcf->config_time = 0;
     *     mmcf->metrics = NULL;
     *     mmcf->metrics_keys = 0;
     *     mmcf->lists = NULL;
     *     mmcf->proxy = NULL;
     *     mmcf->metered = 0;
     *     mmcf->used = 0;
     */

    mmcf->zone_size = NGX_CONF_UNSET_SIZE;
    mmcf->ledger_flush = NGX_CONF_UNSET_MSEC;
    mmcf->ledger_keep = NGX_CONF_UNSET;
    mmcf->founding = NGX_CONF_UNSET;
    mmcf->metrics_size = NGX_CONF_UNSET_SIZE;

    if (ngx_array_init(&mmcf->groups, cf->pool, 4,
                       sizeof(ngx_http_modelgw_group_t *))
        != NGX_OK)
    {
        return NULL;
    }

    return mmcf;
}


char *
ngx_http_modelgw_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_modelgw_main_conf_t *mmcf = conf;

    ngx_uint_t                   n;
    ngx_modelgw_skip_variant_t  *variants;

    ngx_conf_init_msec_value(mmcf->ledger_flush, 5);
    ngx_conf_init_value(mmcf->ledger_keep, 90 * 24 * 60 * 60);
    ngx_conf_init_value(mmcf->founding, 0);

    if (mmcf->key_prefix.data == NULL) {
        ngx_str_set(&mmcf->key_prefix, "sk-eu-");
    }

    variants = ngx_modelgw_skip_variants(&n);
    mmcf->skip = variants[0].skip;

    if (ngx_http_modelgw_group_check(cf, mmcf) != NGX_OK
        || ngx_http_modelgw_keys_check(cf, mmcf) != NGX_OK
        || ngx_http_modelgw_operators_check(cf, mmcf) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


void *
ngx_http_modelgw_create_srv_conf(ngx_conf_t *cf)
{
    /*
     * set by ngx_pcalloc():
     *
     *     mscf->names = { NULL };
     *     mscf->peer_init = NULL;
     *     mscf->flat = 0;
     *     mscf->aliases = { NULL, 0 };
     *     mscf->aliased = 0;
     *     mscf->cors = 0;
     *     mscf->balanced = 0;
     */

    return ngx_pcalloc(cf->pool, sizeof(ngx_http_modelgw_srv_conf_t));
}


void *
ngx_http_modelgw_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_modelgw_loc_conf_t  *mlcf;

    mlcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_modelgw_loc_conf_t));
    if (mlcf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     mlcf->own = 0;
     *     mlcf->place = { NULL, 0 };
     *     mlcf->admin = { NULL, 0 };
     *     mlcf->ready = { NULL, 0 };
     *     mlcf->admin_users = 0;
     *     mlcf->admin_actor = NULL;
     *     mlcf->admin_role = NULL;
     *     mlcf->topup_url = { 0, NULL };
     *     mlcf->gateway_url = { 0, NULL };
     *     mlcf->metrics = { NULL, 0 };
     *     mlcf->metrics_keys = 0;
     *     mlcf->metrics_accounts = 0;
     *     mlcf->elsewhere = 0;
     */

    mlcf->enable = NGX_CONF_UNSET;
    mlcf->flat_errors = NGX_CONF_UNSET;
    mlcf->error_compat = NGX_CONF_UNSET;
    mlcf->translate_strict = NGX_CONF_UNSET;
    mlcf->memo = NGX_CONF_UNSET;
    mlcf->aliases = NGX_CONF_UNSET;
    mlcf->cors = NGX_CONF_UNSET_PTR;
    mlcf->max_event_size = NGX_CONF_UNSET_SIZE;
    mlcf->abort = NGX_CONF_UNSET_UINT;
    mlcf->abort_timeout = NGX_CONF_UNSET_MSEC;
    mlcf->keepalive = NGX_CONF_UNSET_MSEC;

    return mlcf;
}


char *
ngx_http_modelgw_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_modelgw_loc_conf_t *prev = parent;
    ngx_http_modelgw_loc_conf_t *conf = child;

    if (!conf->own) {
        conf->place = prev->place;
    }

    ngx_conf_merge_value(conf->enable, prev->enable, 0);
    ngx_conf_merge_value(conf->flat_errors, prev->flat_errors, NGX_CONF_UNSET);
    ngx_conf_merge_value(conf->error_compat, prev->error_compat, 0);
    ngx_conf_merge_value(conf->translate_strict, prev->translate_strict, 0);
    ngx_conf_merge_value(conf->memo, prev->memo, 1);
    ngx_conf_merge_value(conf->aliases, prev->aliases, 0);
    ngx_conf_merge_ptr_value(conf->cors, prev->cors, NULL);
    ngx_conf_merge_size_value(conf->max_event_size, prev->max_event_size,
                              NGX_MODELGW_SSE_MAX_EVENT);
    ngx_conf_merge_uint_value(conf->abort, prev->abort,
                              NGX_HTTP_MODELGW_ABORT_AUTO);
    ngx_conf_merge_msec_value(conf->abort_timeout, prev->abort_timeout, 60000);
    ngx_conf_merge_msec_value(conf->keepalive, prev->keepalive, 15000);
    ngx_conf_merge_str_value(conf->topup_url, prev->topup_url, "");
    ngx_conf_merge_str_value(conf->gateway_url, prev->gateway_url, "");

    return NGX_CONF_OK;
}


char *
ngx_http_modelgw_check_loc_conf(ngx_conf_t *cf,
    ngx_http_modelgw_loc_conf_t *mlcf)
{
    ngx_http_modelgw_srv_conf_t   *mscf;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_modelgw_module);
    mscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_modelgw_module);

    if (mlcf->enable || mlcf->flat_errors == 1) {
        mmcf->used = 1;
    }

    if (!mlcf->enable) {
        return NGX_CONF_OK;
    }

    mscf->flat = 1;
    mscf->cors |= (mlcf->cors != NULL);

    if (mmcf->groups.nelts == 0) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"modelgw on\" but no \"modelgw_group\" in http, "
                      "in %s:%ui",
                      mlcf->place.file, mlcf->place.line);
        return NGX_CONF_ERROR;
    }

    if (mmcf->keys == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"modelgw on\" but no \"modelgw_keys\" in http: every "
                      "call would be refused, in %s:%ui",
                      mlcf->place.file, mlcf->place.line);
        return NGX_CONF_ERROR;
    }

    return ngx_http_modelgw_lint_location(cf, mlcf->own);
}


char *
ngx_http_modelgw_set_enable(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_loc_conf_t *mlcf = conf;

    mlcf->place.file = cf->conf_file->file.name.data;
    mlcf->place.line = cf->conf_file->line;
    mlcf->own = 1;

    return ngx_conf_set_flag_slot(cf, cmd, conf);
}


/*
 * By the prefix a service key is distinguished from a vendor's key in a
 * header, so it must not be empty.  It has the characters of a bearer token
 * only (RFC 6750, 2.1).
 */

char *
ngx_http_modelgw_set_key_prefix(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_main_conf_t *mmcf = conf;

    ngx_str_t  *value;

    if (mmcf->key_prefix.data) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (!ngx_http_modelgw_conf_word(&value[1], "-_", 32)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid key prefix \"%V\": it is 1 to 32 letters, "
                           "digits, \"-\" or \"_\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    mmcf->key_prefix = value[1];

    return NGX_CONF_OK;
}


/*
 * The console makes a link of it, and shows it as text to be pasted.  A "%s",
 * where it puts the account, must not be in the host.
 */

char *
ngx_http_modelgw_set_url(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char       *rv;
    size_t      host;
    u_char     *p, *last;
    ngx_str_t  *url;

    rv = ngx_conf_set_str_slot(cf, cmd, conf);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    url = (ngx_str_t *) ((char *) conf + cmd->offset);

    p = url->data;
    last = p + url->len;

    if (ngx_strncmp(p, "https://", 8) == 0) {
        p += 8;

    } else if (ngx_strncmp(p, "http://", 7) == 0) {
        p += 7;

    } else {
        goto invalid;
    }

    host = strcspn((char *) p, "/?#%");

    if (host == 0 || p[host] == '%') {
        goto invalid;
    }

    for ( /* void */ ; p < last; p++) {

        if (*p <= ' ' || *p > '~' || ngx_strchr("\"'`\\<>$", *p)) {
            goto invalid;
        }
    }

    return NGX_CONF_OK;

invalid:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid address \"%V\" in \"%V\": it begins with "
                       "\"https://\" or \"http://\" and a host, and has no "
                       "blanks, quotes, \"\\\", \"<\", \">\" or \"$\"",
                       url, &cmd->name);

    return NGX_CONF_ERROR;
}


/* The error of ngx_conf_set_enum_slot() does not list the valid values. */

char *
ngx_http_modelgw_set_abort(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_loc_conf_t *mlcf = conf;

    ngx_str_t  *value;

    if (mlcf->abort != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_modelgw_option_word_find(ngx_http_modelgw_abort_modes,
                                          &value[1], &mlcf->abort)
        != NGX_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\": it is \"auto\", \"cut\" or "
                           "\"drain\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_modelgw_set_keepalive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_loc_conf_t *mlcf = conf;

    ngx_int_t   n;
    ngx_str_t  *value;

    if (mlcf->keepalive != NGX_CONF_UNSET_MSEC) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "off") == 0) {
        mlcf->keepalive = 0;
        return NGX_CONF_OK;
    }

    n = ngx_parse_time(&value[1], 0);

    if (n == NGX_ERROR || n == 0 || n > NGX_HTTP_MODELGW_KEEPALIVE_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"modelgw_keepalive\", it "
                           "must be a time of 1ms to 1h, or \"off\"",
                           &value[1]);
        return NGX_CONF_ERROR;
    }

    mlcf->keepalive = n;

    return NGX_CONF_OK;
}


char *
ngx_http_modelgw_set_cors(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_loc_conf_t *mlcf = conf;

    ngx_str_t   *value, *origin;
    ngx_uint_t   i;

    if (mlcf->cors != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "off") == 0) {
        mlcf->cors = NULL;
        return NGX_CONF_OK;
    }

    mlcf->cors = ngx_array_create(cf->pool, cf->args->nelts - 1,
                                  sizeof(ngx_str_t));
    if (mlcf->cors == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {

        if (ngx_http_modelgw_conf_listed(mlcf->cors, &value[i])) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate origin \"%V\"", &value[i]);
            return NGX_CONF_ERROR;
        }

        if (!ngx_http_modelgw_conf_origin(&value[i])
            && (cf->args->nelts != 2 || ngx_strcmp(value[1].data, "*") != 0))
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid origin \"%V\": it is a scheme, "
                               "\"://\", a host, and a port that is not the "
                               "scheme's own, in lower case, as browsers send "
                               "it; or \"*\" or \"off\" alone", &value[i]);
            return NGX_CONF_ERROR;
        }

        origin = ngx_array_push(mlcf->cors);
        if (origin == NULL) {
            return NGX_CONF_ERROR;
        }

        *origin = value[i];
    }

    return NGX_CONF_OK;
}


/*
 * Whether text is an origin in its one form (WHATWG HTML, 7.1.1), which is
 * compared as it is: "https://app.example", "http://[::1]:8080".
 */

static ngx_uint_t
ngx_http_modelgw_conf_origin(ngx_str_t *text)
{
    size_t      n;
    u_char     *p, *last, *host;
    ngx_int_t   port;

    p = text->data;
    last = p + text->len;

    n = strspn((char *) p, "abcdefghijklmnopqrstuvwxyz0123456789+-.");

    if (n == 0 || *p < 'a' || ngx_strncmp(p + n, "://", 3) != 0) {
        return 0;
    }

    host = p + n + 3;

    if (*host == '[') {
        n = 1 + strspn((char *) host + 1, "0123456789abcdef:.");

        if (n == 1 || host[n++] != ']') {
            return 0;
        }

    } else {
        n = strspn((char *) host, "abcdefghijklmnopqrstuvwxyz0123456789-._");

        if (n == 0) {
            return 0;
        }
    }

    if (host + n == last) {
        return 1;
    }

    if (host[n] != ':' || host[n + 1] == '0') {
        return 0;
    }

    port = ngx_atoi(host + n + 1, last - (host + n + 1));

    return port > 0 && port <= 65535
           && !(port == 80 && ngx_strncmp(p, "http:", 5) == 0)
           && !(port == 443 && ngx_strncmp(p, "https:", 6) == 0);
}


ngx_uint_t
ngx_http_modelgw_conf_word(ngx_str_t *text, const char *also, size_t max)
{
    u_char      c, lc;
    ngx_uint_t  i;

    if (text->len == 0 || text->len > max) {
        return 0;
    }

    for (i = 0; i < text->len; i++) {
        c = text->data[i];
        lc = (u_char) (c | 0x20);

        if ((lc >= 'a' && lc <= 'z') || (c >= '0' && c <= '9')) {
            continue;
        }

        if (c == '\0' || ngx_strchr(also, c) == NULL) {
            return 0;
        }
    }

    return 1;
}


ngx_uint_t
ngx_http_modelgw_conf_id(ngx_str_t *text)
{
    return ngx_http_modelgw_conf_word(text, "._@:-", NGX_MODELGW_LEDGER_NAME);
}


ngx_uint_t
ngx_http_modelgw_conf_listed(ngx_array_t *names, ngx_str_t *text)
{
    ngx_str_t   *name;
    ngx_uint_t   i;

    name = names->elts;

    for (i = 0; i < names->nelts; i++) {

        if (name[i].len == text->len
            && ngx_memcmp(name[i].data, text->data, text->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}
