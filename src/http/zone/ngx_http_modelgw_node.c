
/*
 * The node of a cluster, as workers and the master see it: what is checked
 * when it starts, whether it admits calls, and when it stops to, since it has
 * not reached the database for too long.
 *
 * The time since the last exchange is that of CLOCK_BOOTTIME, which counts
 * while the machine sleeps, and is not set.  It is looked at by the timer of
 * each worker: an exchanger that hangs, or has died, does not keep calls going.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"


typedef struct {
    char                      *path;
    ngx_err_t                  err;
    ngx_http_modelgw_user_t    user;
} ngx_http_modelgw_password_t;


static ngx_int_t ngx_http_modelgw_node_open(void *data);
static uint64_t ngx_http_modelgw_node_clock(void);


/* for clients, by ngx_modelgw_node_e; NULL: calls are admitted */

static const char  *ngx_http_modelgw_node_words[] = {

    [NGX_MODELGW_NODE_NEW] = "The node has not joined its cluster yet",

    [NGX_MODELGW_NODE_MEMBER] = NULL,
    [NGX_MODELGW_NODE_AWAY] = NULL,

    [NGX_MODELGW_NODE_OFFLINE] =
        "The node has not reached its cluster for too long",

    [NGX_MODELGW_NODE_LEFT] = "The node has left its cluster",

    [NGX_MODELGW_NODE_REFUSED] =
        "The node cannot work with the database of its cluster"
};


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


const char *
ngx_http_modelgw_node_refuses(ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_modelgw_lease_node_t  *node;

    if (mmcf->cluster == NULL) {
        return NULL;
    }

    node = ngx_modelgw_node(mmcf->ledger);

    if (node->state == NGX_MODELGW_NODE_NEW && node->exchanged) {
        return NULL;
    }

    return ngx_http_modelgw_node_words[node->state];
}


ngx_int_t
ngx_http_modelgw_node_reason(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_str_t *reason, ngx_pool_t *pool)
{
    reason->data = ngx_pnalloc(pool, NGX_MODELGW_STORE_ERROR);
    if (reason->data == NULL) {
        return NGX_ERROR;
    }

    ngx_modelgw_ledger_lock(mmcf->ledger);

    reason->len = mmcf->shared->reason.len;
    ngx_memcpy(reason->data, mmcf->shared->reason.text, reason->len);

    ngx_modelgw_ledger_unlock(mmcf->ledger);

    return NGX_OK;
}


void
ngx_http_modelgw_node_check(ngx_http_modelgw_main_conf_t *mmcf, ngx_log_t *log)
{
    uint64_t                   state, passed, offline;
    ngx_uint_t                 level;
    ngx_modelgw_lease_node_t  *node;

    if (mmcf->cluster == NULL) {
        return;
    }

    node = ngx_modelgw_node(mmcf->ledger);
    offline = mmcf->shared->offline;

    state = __atomic_load_n(&node->state, __ATOMIC_ACQUIRE);
    passed = ngx_http_modelgw_node_passed(node);

    /*
     * An exchange has ended as this was set, or a reload has changed the time.
     * If the database is reached, the exchanger says so with the next exchange.
     */

    if (state == NGX_MODELGW_NODE_OFFLINE && passed < offline) {
        (void) ngx_modelgw_node_replace(mmcf->ledger, state,
                                        NGX_MODELGW_NODE_AWAY);
        return;
    }

    if (state >= NGX_MODELGW_NODE_OFFLINE
        || node->exchanged == 0
        || passed < offline)
    {
        return;
    }

    /* one worker logs it */

    if (ngx_modelgw_node_replace(mmcf->ledger, state, NGX_MODELGW_NODE_OFFLINE)
        == NGX_OK)
    {
        /* nginx may just have been stopped for so long */

        level = (state == NGX_MODELGW_NODE_NEW) ? NGX_LOG_NOTICE
                                                : NGX_LOG_ALERT;

        ngx_log_error(level, log, 0,
                      "the cluster was not reached for %uL s, calls are "
                      "refused until it is", passed / 1000);
    }
}


/* Words of the accounts, each of its own instant. */

int64_t
ngx_http_modelgw_node_lent(ngx_modelgw_ledger_t *ledger)
{
    int64_t                        lent;
    ngx_uint_t                     i, n;
    ngx_modelgw_ledger_account_t  *a;

    lent = 0;
    n = ngx_modelgw_ledger_accounts(ledger);

    for (i = 0; i < n; i++) {
        a = ngx_modelgw_ledger_account_at(ledger, i);
        lent += __atomic_load_n(&a->balance, __ATOMIC_RELAXED);
    }

    return lent;
}


/*
 * What the journal has may be older than the clock, and so below 0; what
 * another process has set, a little ahead of ours.
 */

uint64_t
ngx_http_modelgw_node_passed(ngx_modelgw_lease_node_t *node)
{
    int64_t  passed;

    passed = (int64_t) (ngx_http_modelgw_node_clock()
                        - __atomic_load_n(&node->exchanged, __ATOMIC_ACQUIRE));

    return ngx_max(passed, 0);
}


/* Returns ms. */

static uint64_t
ngx_http_modelgw_node_clock(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_BOOTTIME, &ts);

    return (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
