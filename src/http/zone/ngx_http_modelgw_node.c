
/* The node of a cluster: what is checked when it starts. */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"


typedef struct {
    char                      *path;
    ngx_err_t                  err;
    ngx_http_modelgw_user_t    user;
} ngx_http_modelgw_password_t;


static ngx_int_t ngx_http_modelgw_node_open(void *data);


ngx_int_t
ngx_http_modelgw_node_start(ngx_http_modelgw_main_conf_t *mmcf, ngx_log_t *log)
{
    u_char                       *p, text[NGX_MAX_ERROR_STR / 8];
    ngx_http_modelgw_password_t   pw;

    if (mmcf->cluster == NULL || mmcf->cluster->pq.password == NULL) {
        return NGX_OK;
    }

    ngx_memzero(&pw, sizeof(ngx_http_modelgw_password_t));

    pw.path = mmcf->cluster->pq.password;

    if (ngx_http_modelgw_user_find(&pw.user, mmcf->cycle, log) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_http_modelgw_user_run(&pw.user, ngx_http_modelgw_node_open, &pw,
                                  log)
        == NGX_OK)
    {
        return NGX_OK;
    }

    if (pw.err) {
        p = ngx_log_errno(text, text + sizeof(text), pw.err);

        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "\"modelgw_cluster\": the file of the password \"%s\" "
                      "cannot be read by nginx's workers%s%s%*s: give it to "
                      "their user, in %s:%ui", pw.path,
                      pw.user.name ? ", as the user " : "",
                      pw.user.name ? pw.user.name : "",
                      (size_t) (p - text), text,
                      mmcf->cluster_place.file, mmcf->cluster_place.line);
    }

    return NGX_ERROR;
}


static ngx_int_t
ngx_http_modelgw_node_open(void *data)
{
    ngx_http_modelgw_password_t *pw = data;

    ngx_fd_t  fd;

    fd = ngx_open_file((u_char *) pw->path,
                       NGX_FILE_RDONLY|NGX_FILE_NONBLOCK, NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        pw->err = ngx_errno;
        return NGX_DECLINED;
    }

    (void) ngx_close_file(fd);

    return NGX_OK;
}
