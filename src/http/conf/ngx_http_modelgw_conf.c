
/*
 * The life of the configuration: created, set, merged, and checked once all of
 * it is read.
 *
 * The order in which an operator writes things does not matter: keys may stand
 * before their groups, groups before their upstreams.  So what refers to
 * something else is checked in init_main_conf, which nginx calls when the http
 * block has ended and before it merges locations.  A message then names the
 * place where the thing was written (ngx_http_modelgw_place_t): the parser's
 * own position is the end of the http block by that time.
 *
 * Handlers and filters are registered if any location needs them: that is known
 * when all are merged, and kept in "used".
 */


#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_ledger.h"


static char *ngx_http_modelgw_conf_location(ngx_conf_t *cf,
    ngx_http_modelgw_loc_conf_t *mlcf, ngx_uint_t own);
static ngx_uint_t ngx_http_modelgw_conf_replaceable(ngx_file_info_t *file,
    u_char *dir, ngx_file_info_t *info);


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
     *     mmcf->key_prefix = { 0, NULL };
     *     mmcf->skip = NULL;
     *     mmcf->plans = { NULL };
     *     mmcf->scans = { NULL };
     *     mmcf->tape = NULL;
     *     mmcf->ledger = NULL;
     *     mmcf->zone = NULL;
     *     mmcf->ledger_path = { 0, NULL };
     *     mmcf->lists = NULL;
     *     mmcf->used = 0;
     */

    mmcf->zone_size = NGX_CONF_UNSET_SIZE;
    mmcf->ledger_flush = NGX_CONF_UNSET_MSEC;
    mmcf->ledger_keep = NGX_CONF_UNSET;
    mmcf->founding = NGX_CONF_UNSET;

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
        || ngx_http_modelgw_lists_check(cf, mmcf) != NGX_OK
        || ngx_http_modelgw_zone_check(cf, mmcf) != NGX_OK
        || ngx_http_modelgw_verdict_plans(cf, mmcf) != NGX_OK)
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
     *     mscf->flat = 0;
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
     *     mlcf->place = { NULL, 0 };
     *     mlcf->admin = { NULL, 0 };
     */

    mlcf->enable = NGX_CONF_UNSET;
    mlcf->flat_errors = NGX_CONF_UNSET;
    mlcf->error_compat = NGX_CONF_UNSET;
    mlcf->translate_strict = NGX_CONF_UNSET;
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

    ngx_uint_t                     own;
    ngx_http_modelgw_main_conf_t  *mmcf;

    own = (conf->enable != NGX_CONF_UNSET);

    if (!own) {
        conf->place = prev->place;
    }

    ngx_conf_merge_value(conf->enable, prev->enable, 0);
    ngx_conf_merge_value(conf->flat_errors, prev->flat_errors, NGX_CONF_UNSET);
    ngx_conf_merge_value(conf->error_compat, prev->error_compat, 0);
    ngx_conf_merge_value(conf->translate_strict, prev->translate_strict, 0);
    ngx_conf_merge_size_value(conf->max_event_size, prev->max_event_size,
                              NGX_MODELGW_SSE_MAX_EVENT);
    ngx_conf_merge_uint_value(conf->abort, prev->abort,
                              NGX_HTTP_MODELGW_ABORT_AUTO);
    ngx_conf_merge_msec_value(conf->abort_timeout, prev->abort_timeout, 60000);
    ngx_conf_merge_msec_value(conf->keepalive, prev->keepalive, 15000);

    if (ngx_http_modelgw_admin_location(cf, prev, conf) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (conf->flat_errors == 1) {
        mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_modelgw_module);
        mmcf->used = 1;
    }

    if (!conf->enable) {
        return NGX_CONF_OK;
    }

    return ngx_http_modelgw_conf_location(cf, conf, own);
}


static char *
ngx_http_modelgw_conf_location(ngx_conf_t *cf,
    ngx_http_modelgw_loc_conf_t *mlcf, ngx_uint_t own)
{
    ngx_http_modelgw_srv_conf_t   *mscf;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_modelgw_module);
    mscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_modelgw_module);

    mmcf->used = 1;
    mscf->flat = 1;

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

    return ngx_http_modelgw_lint_location(cf, own);
}


char *
ngx_http_modelgw_set_enable(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_loc_conf_t *mlcf = conf;

    mlcf->place.file = cf->conf_file->file.name.data;
    mlcf->place.line = cf->conf_file->line;

    return ngx_conf_set_flag_slot(cf, cmd, conf);
}


/*
 * The prefix tells a service key from a vendor's in a header, so it may not be
 * empty, and only of characters that stand in a bearer token (RFC 6750, 2.1).
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


ngx_int_t
ngx_http_modelgw_conf_file(ngx_conf_t *cf, u_char *name)
{
    size_t            len;
    u_char           *dir;
    ngx_file_info_t   info, *file;

    file = &cf->conf_file->file.info;

    if (ngx_file_access(file) & S_IWOTH) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "keys file \"%s\" can be written by others: "
                           "chmod o-w", name);
        return NGX_ERROR;
    }

    /* names of configuration files are full ones */

    for (len = ngx_strlen(name); len && name[len - 1] != '/'; len--) {
        /* void */
    }

    dir = ngx_pnalloc(cf->temp_pool, len + 1);
    if (dir == NULL) {
        return NGX_ERROR;
    }

    ngx_cpystrn(dir, name, len + 1);

    if (ngx_file_info(dir, &info) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_file_info_n " \"%s\" failed", dir);
        return NGX_ERROR;
    }

    if (ngx_http_modelgw_conf_replaceable(file, dir, &info)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "keys file \"%s\" is in a directory that others "
                           "can write: chmod o-w \"%s\"", name, dir);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * In a directory with the sticky bit, as /tmp, others can add files, but not
 * replace those of another user: what root or the user of nginx's master has
 * made there is theirs.  On a file system that is read-only modes do not
 * matter: Kubernetes mounts what it provides so, with mode 0777.
 */

static ngx_uint_t
ngx_http_modelgw_conf_replaceable(ngx_file_info_t *file, u_char *dir,
    ngx_file_info_t *info)
{
    if (!(info->st_mode & S_IWOTH)) {
        return 0;
    }

    if ((info->st_mode & S_ISVTX)
        && (file->st_uid == 0 || file->st_uid == geteuid()))
    {
        return 0;
    }

    return access((char *) dir, W_OK) == 0 || ngx_errno != EROFS;
}
