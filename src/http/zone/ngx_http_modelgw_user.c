
/*
 * A master that runs as root works on the ledger as the workers' user: files
 * get the owner that the workers need, and a file that a worker may have
 * replaced is never opened by root.
 *
 * This is done in a thread, which takes the user's identity for good.  The
 * rest of the process stays root, and a thread that hangs in disk I/O never
 * becomes root again.  Rejected: a temporary seteuid() of the whole process.
 *
 * On Linux each thread has an identity.  The functions of the C library change
 * that of all threads, as POSIX wants it, so system calls are used.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"

#include <sys/syscall.h>
#include <grp.h>
#include <pthread.h>


/* on some 32-bit platforms the calls without a number have 16-bit ids */

#if defined(SYS_setresuid32)
#define NGX_HTTP_MODELGW_SETGROUPS  SYS_setgroups32
#define NGX_HTTP_MODELGW_SETRESGID  SYS_setresgid32
#define NGX_HTTP_MODELGW_SETRESUID  SYS_setresuid32
#else
#define NGX_HTTP_MODELGW_SETGROUPS  SYS_setgroups
#define NGX_HTTP_MODELGW_SETRESGID  SYS_setresgid
#define NGX_HTTP_MODELGW_SETRESUID  SYS_setresuid
#endif


typedef struct {
    ngx_http_modelgw_user_t      *user;
    ngx_http_modelgw_user_pt      handler;
    void                         *data;
    ngx_int_t                     rc;
    ngx_err_t                     err;       /* 0: handler was called */
} ngx_http_modelgw_user_run_t;


static void *ngx_http_modelgw_user_thread(void *data);


ngx_int_t
ngx_http_modelgw_user_find(ngx_http_modelgw_user_t *user, ngx_cycle_t *cycle,
    ngx_log_t *log)
{
    ngx_core_conf_t  *ccf;

    user->name = NULL;

    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);

    if (geteuid() != 0
        || ccf->user == (ngx_uid_t) NGX_CONF_UNSET_UINT
        || ccf->user == 0)
    {
        return NGX_OK;
    }

    user->uid = ccf->user;
    user->gid = ccf->group;
    user->n = NGX_HTTP_MODELGW_GROUPS;

    if (getgrouplist(ccf->username, ccf->group, user->groups, &user->n) == -1) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "\"modelgw_ledger\": the user %s is in too many groups",
                      ccf->username);
        return NGX_ERROR;
    }

    user->name = ccf->username;

    return NGX_OK;
}


ngx_err_t
ngx_http_modelgw_user_become(ngx_http_modelgw_user_t *user)
{
    if (user->name == NULL) {
        return 0;
    }

    if (syscall(NGX_HTTP_MODELGW_SETGROUPS, (size_t) user->n, user->groups)
        == -1
        || syscall(NGX_HTTP_MODELGW_SETRESGID, user->gid, user->gid, user->gid)
           == -1
        || syscall(NGX_HTTP_MODELGW_SETRESUID, user->uid, user->uid, user->uid)
           == -1)
    {
        return ngx_errno;
    }

    return 0;
}


ngx_int_t
ngx_http_modelgw_user_run(ngx_http_modelgw_user_t *user,
    ngx_http_modelgw_user_pt handler, void *data, ngx_log_t *log)
{
    ngx_err_t                     err;
    pthread_t                     thread;
    ngx_http_modelgw_user_run_t   run;

    if (user->name == NULL) {
        return handler(data);
    }

    run.user = user;
    run.handler = handler;
    run.data = data;

    err = ngx_http_modelgw_process_thread(&thread, ngx_http_modelgw_user_thread,
                                          &run);
    if (err == 0) {
        (void) pthread_join(thread, NULL);
        err = run.err;
    }

    if (err) {
        ngx_log_error(NGX_LOG_EMERG, log, err,
                      "\"modelgw_ledger\": acting as the user %s failed",
                      user->name);
        return NGX_ERROR;
    }

    return run.rc;
}


static void *
ngx_http_modelgw_user_thread(void *data)
{
    ngx_http_modelgw_user_run_t *run = data;

    run->err = ngx_http_modelgw_user_become(run->user);

    if (run->err == 0) {
        run->rc = run->handler(run->data);
    }

    return NULL;
}
