
/*
 * The credential of a group: a header whose value is read from a file.
 *
 * The secret is in a file of its own so that the configuration can be read,
 * shown and kept under version control.  The master reads it when it loads the
 * configuration, so workers need no access to the file, and a new secret needs
 * a reload.  A file that is accessible to users other than its owner and group
 * is refused, as ssh does with private keys.
 *
 * The value becomes a header line, so each byte is checked here, and only
 * here: a line feed in the file would add another header.  The value is never
 * logged.
 */


#include "ngx_http_modelgw_conf.h"


#define NGX_HTTP_MODELGW_SECRET_MAX  4096

#define ngx_http_modelgw_blank(c)                                             \
    ((c) == ' ' || (c) == '\t' || (c) == CR || (c) == LF)


static ngx_int_t ngx_http_modelgw_credential_header(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_str_t *name);
static ngx_int_t ngx_http_modelgw_credential_file(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_str_t *path);
static ngx_int_t ngx_http_modelgw_credential_read(ngx_conf_t *cf,
    ngx_file_t *file, ngx_str_t *text);
static const char *ngx_http_modelgw_credential_fault(ngx_str_t *text);


/* headers that frame the request or that the proxy sets */

static ngx_str_t  ngx_http_modelgw_credential_reserved[] = {
    ngx_string("connection"),
    ngx_string("content-length"),
    ngx_string("content-type"),
    ngx_string("expect"),
    ngx_string("host"),
    ngx_string("te"),
    ngx_string("trailer"),
    ngx_string("transfer-encoding"),
    ngx_string("upgrade"),
    ngx_null_string
};


char *
ngx_http_modelgw_credential(ngx_conf_t *cf, ngx_http_modelgw_group_t *group)
{
    ngx_str_t   *value, path;
    ngx_uint_t   bearer;

    if (group->header.data) {
        return "\"credential\" is duplicate";
    }

    value = cf->args->elts;
    bearer = (cf->args->nelts == 4);

    if (bearer && ngx_strcmp(value[3].data, "bearer") != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" of \"credential\" in "
                           "group \"%V\"", &value[3], &group->name);
        return NGX_CONF_ERROR;
    }

    if (ngx_strncmp(value[2].data, "file:", 5) != 0 || value[2].len == 5) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"credential\" of group \"%V\" needs "
                           "\"file:PATH\": the secret itself does not belong "
                           "into the configuration", &group->name);
        return NGX_CONF_ERROR;
    }

    path.len = value[2].len - 5;
    path.data = value[2].data + 5;

    if (ngx_http_modelgw_credential_header(cf, group, &value[1]) != NGX_OK
        || ngx_http_modelgw_pass_header_check(cf, group) != NGX_OK
        || ngx_http_modelgw_credential_file(cf, group, &path) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    group->header_value = group->secret;

    if (bearer) {
        group->header_value.len = sizeof("Bearer ") - 1 + group->secret.len;
        group->header_value.data = ngx_pnalloc(cf->pool,
                                               group->header_value.len);
        if (group->header_value.data == NULL) {
            return NGX_CONF_ERROR;
        }

        ngx_sprintf(group->header_value.data, "Bearer %V", &group->secret);
    }

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_modelgw_credential_header(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_str_t *name)
{
    ngx_str_t  *reserved;

    group->header = *name;
    group->header_lowcase.len = name->len;
    group->header_lowcase.data = ngx_pnalloc(cf->pool, name->len + 1);
    if (group->header_lowcase.data == NULL) {
        return NGX_ERROR;
    }

    group->header_hash = ngx_hash_strlow(group->header_lowcase.data, name->data,
                                         name->len);
    group->header_lowcase.data[name->len] = '\0';

    reserved = ngx_http_modelgw_credential_reserved;

    while (reserved->len
           && ngx_strcmp(reserved->data, group->header_lowcase.data) != 0)
    {
        reserved++;
    }

    if (reserved->len
        || !ngx_http_modelgw_conf_word(name, "_-", NGX_HTTP_MODELGW_HEADER_LEN))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid header \"%V\" in \"credential\" of group "
                           "\"%V\"", name, &group->name);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_credential_file(ngx_conf_t *cf,
    ngx_http_modelgw_group_t *group, ngx_str_t *path)
{
    ngx_int_t    rc;
    ngx_file_t   file;
    const char  *fault;

    ngx_memzero(&file, sizeof(ngx_file_t));

    file.name = *path;
    file.log = cf->log;

    if (ngx_conf_full_name(cf->cycle, &file.name, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    file.fd = ngx_open_file(file.name.data, NGX_FILE_RDONLY|NGX_FILE_NONBLOCK,
                            NGX_FILE_OPEN, 0);

    if (file.fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_open_file_n " \"%s\", the credential of group "
                           "\"%V\", failed", file.name.data, &group->name);
        return NGX_ERROR;
    }

    rc = ngx_http_modelgw_credential_read(cf, &file, &group->secret);

    if (ngx_close_file(file.fd) == NGX_FILE_ERROR) {
        ngx_log_error(NGX_LOG_ALERT, cf->log, ngx_errno,
                      ngx_close_file_n " \"%s\" failed", file.name.data);
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    fault = ngx_http_modelgw_credential_fault(&group->secret);

    if (fault) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "credential file \"%s\" of group \"%V\" %s",
                           file.name.data, &group->name, fault);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* Reads the file into text after checks of its type, mode and size. */

static ngx_int_t
ngx_http_modelgw_credential_read(ngx_conf_t *cf, ngx_file_t *file,
    ngx_str_t *text)
{
    off_t         size;
    ssize_t       n;
    const char   *fault;

    if (ngx_fd_info(file->fd, &file->info) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_fd_info_n " \"%s\" failed", file->name.data);
        return NGX_ERROR;
    }

    size = ngx_file_size(&file->info);

    fault = !ngx_is_file(&file->info) ? "is not a file"
            : (ngx_file_access(&file->info) & 07)
              ? "is accessible by others: chmod o-rwx"
            : size > NGX_HTTP_MODELGW_SECRET_MAX ? "is too long"
            : NULL;

    if (fault) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "credential file \"%s\" %s",
                           file->name.data, fault);
        return NGX_ERROR;
    }

    text->data = ngx_pnalloc(cf->pool, size + 1);
    if (text->data == NULL) {
        return NGX_ERROR;
    }

    n = ngx_read_file(file, text->data, size, 0);
    if (n == NGX_ERROR) {
        return NGX_ERROR;
    }

    text->len = n;

    return NGX_OK;
}


/* Trims the text.  Returns what is wrong with it, or NULL. */

static const char *
ngx_http_modelgw_credential_fault(ngx_str_t *text)
{
    u_char  *p, *last;

    p = text->data;
    last = p + text->len;

    while (p < last && ngx_http_modelgw_blank(*p)) {
        p++;
    }

    while (p < last && ngx_http_modelgw_blank(last[-1])) {
        last--;
    }

    if (p == last) {
        return "is empty";
    }

    text->data = p;
    text->len = last - p;

    for ( /* void */ ; p < last; p++) {
        if (*p < 0x20 || *p > 0x7e) {
            return "has a byte that is not printable ASCII";
        }
    }

    return NULL;
}
