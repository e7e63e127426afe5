
/*
 * A worker's part in the ledger: it joins, looks every half second whether a
 * worker has died with calls in flight, or the writer hangs, and settles its
 * own calls when it is stopped in the midst of them.
 *
 * When nginx is stopped, a worker that leaves looks once more for the dead, and
 * waits until all that was settled so far is written.  A worker that is killed
 * after the others have left, or before the master could replace it, leaves its
 * calls to the master.
 */


#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_ledger.h"
#include "ngx_http_modelgw_writer.h"


#define NGX_HTTP_MODELGW_SWEEP  500      /* milliseconds */

/* a worker that is terminated is killed by its master after 1.5 seconds */

#define NGX_HTTP_MODELGW_QUIT   5000     /* milliseconds */
#define NGX_HTTP_MODELGW_TERM   1000     /* milliseconds */
#define NGX_HTTP_MODELGW_LAST   2000     /* milliseconds, for the master */


static ngx_int_t ngx_http_modelgw_process_join(ngx_cycle_t *cycle,
    ngx_http_modelgw_main_conf_t *mmcf);
static void ngx_http_modelgw_process_timer(ngx_event_t *ev);
static void ngx_http_modelgw_process_sweep(ngx_http_modelgw_main_conf_t *mmcf,
    uint32_t self, ngx_log_t *log);
static void ngx_http_modelgw_process_hung(ngx_http_modelgw_main_conf_t *mmcf);
static void ngx_http_modelgw_process_write(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_msec_t timeout, ngx_log_t *log);
static void ngx_http_modelgw_process_log(ngx_http_modelgw_shared_t *shared,
    ngx_log_t *log);
static uint64_t ngx_http_modelgw_process_time(void);


static ngx_event_t       ngx_http_modelgw_sweep_event;
static ngx_connection_t  ngx_http_modelgw_sweep_connection;
static uint64_t          ngx_http_modelgw_process_start;  /* milliseconds of the
                                                            ledger's clock */


static struct {
    ngx_uint_t   level;
    const char  *text;
}  ngx_http_modelgw_process_lines[] = {

    [NGX_HTTP_MODELGW_LINE_FAILED] = {
        NGX_LOG_ALERT, NGX_HTTP_MODELGW_CANNOT },

    [NGX_HTTP_MODELGW_LINE_WELL] = {
        NGX_LOG_NOTICE, "the ledger is written again" },

    [NGX_HTTP_MODELGW_LINE_SAVED] = {
        NGX_LOG_ERR, "a file of the ledger was lost while it was open, what "
                     "it had is in the ledger now: " }
};


ngx_int_t
ngx_http_modelgw_process_init(ngx_cycle_t *cycle)
{
    ngx_event_t                   *ev;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_modelgw_module);

    if (mmcf == NULL || mmcf->ledger == NULL) {
        return NGX_OK;
    }

    mmcf->worker = NGX_MODELGW_LEDGER_NONE;
    ngx_http_modelgw_process_start = ngx_modelgw_ledger_clock();

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return NGX_OK;
    }

    switch (ngx_http_modelgw_process_join(cycle, mmcf)) {

    case NGX_DECLINED:
        ngx_log_error(NGX_LOG_ERR, cycle->log, 0,
                      "too many nginx workers use \"modelgw_zone\", old ones "
                      "included: this one refuses calls until some have ended");
        break;

    case NGX_ERROR:
        return NGX_OK;
    }

    /* debug messages of timers want a connection */

    ngx_http_modelgw_sweep_connection.fd = (ngx_socket_t) -1;

    ev = &ngx_http_modelgw_sweep_event;

    ev->handler = ngx_http_modelgw_process_timer;
    ev->data = &ngx_http_modelgw_sweep_connection;
    ev->log = cycle->log;
    ev->cancelable = 1;

    ngx_add_timer(ev, NGX_HTTP_MODELGW_SWEEP);

    return NGX_OK;
}


/*
 *     NGX_OK
 *     NGX_DECLINED  there are too many workers, some of which may be about to
 *                   end
 *     NGX_ERROR     (logged)
 */

static ngx_int_t
ngx_http_modelgw_process_join(ngx_cycle_t *cycle,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    if (ngx_modelgw_ledger_join(mmcf->ledger, &mmcf->worker) != NGX_OK) {
        mmcf->worker = NGX_MODELGW_LEDGER_NONE;
        return NGX_DECLINED;
    }

    if (ngx_modelgw_ledger_credit(mmcf->ledger)
        && ngx_http_modelgw_writer_start(cycle, mmcf) != NGX_OK)
    {
        ngx_modelgw_ledger_leave(mmcf->ledger, mmcf->worker);
        mmcf->worker = NGX_MODELGW_LEDGER_NONE;

        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * In the cycle that is in force: one process that is master and worker may have
 * got another since the timer was made.
 */

static void
ngx_http_modelgw_process_timer(ngx_event_t *ev)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_modelgw_module);

    if (mmcf == NULL || mmcf->ledger == NULL) {
        return;
    }

    ngx_http_modelgw_process_sweep(mmcf, mmcf->worker, ngx_cycle->log);

    /* swept up first: those who died took places, too */

    if (mmcf->worker == NGX_MODELGW_LEDGER_NONE && !ngx_exiting) {

        switch (ngx_http_modelgw_process_join((ngx_cycle_t *) ngx_cycle,
                                              mmcf))
        {

        case NGX_OK:
            ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                          "this worker has found a place in \"modelgw_zone\"");
            break;

        case NGX_ERROR:
            return;
        }
    }

    ngx_http_modelgw_process_log(mmcf->shared, ngx_cycle->log);
    ngx_http_modelgw_process_hung(mmcf);

    ev->log = ngx_cycle->log;

    ngx_add_timer(ev, NGX_HTTP_MODELGW_SWEEP);
}


static void
ngx_http_modelgw_process_sweep(ngx_http_modelgw_main_conf_t *mmcf,
    uint32_t self, ngx_log_t *log)
{
    u_char      *p, amount[NGX_MODELGW_AMOUNT_LEN];
    int64_t      charged;
    ngx_uint_t   n;

    charged = 0;

    n = ngx_modelgw_ledger_sweep(mmcf->ledger, self,
                                 ngx_http_modelgw_process_time(), &charged);

    if (n) {
        p = ngx_modelgw_amount(amount, charged);

        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "%ui calls of workers that have died are settled, "
                      "%*s euro are charged for them", n, p - amount, amount);
    }
}


/*
 * One of the workers says it, once.  Of a flush that is older than we are we
 * cannot tell whether its writer is alive: that is up to workers that were.
 */

static void
ngx_http_modelgw_process_hung(ngx_http_modelgw_main_conf_t *mmcf)
{
    uint64_t  hung;

    hung = ngx_modelgw_ledger_hung(mmcf->ledger);

    if (hung > ngx_modelgw_ledger_clock() - ngx_http_modelgw_process_start) {
        return;
    }

    if (hung && ngx_atomic_cmp_set(&mmcf->shared->hung, 0, 1)) {
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                      "writing the ledger hangs for %uL ms, calls are refused "
                      "until it ends: is the disk well?", hung);
    }

    if (hung == 0 && ngx_atomic_cmp_set(&mmcf->shared->hung, 1, 0)) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "writing the ledger does not hang any more");
    }
}


void
ngx_http_modelgw_process_exit(ngx_cycle_t *cycle)
{
    u_char                        *p, amount[NGX_MODELGW_AMOUNT_LEN];
    int64_t                        charged;
    ngx_uint_t                     n;
    ngx_http_modelgw_main_conf_t  *mmcf;

    ngx_http_modelgw_unlisted_log(cycle->log);

    mmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_modelgw_module);

    if (mmcf == NULL || mmcf->ledger == NULL) {
        return;
    }

    if (ngx_http_modelgw_sweep_event.timer_set) {
        ngx_del_timer(&ngx_http_modelgw_sweep_event);
    }

    if (mmcf->worker == NGX_MODELGW_LEDGER_NONE) {
        return;
    }

    ngx_http_modelgw_process_sweep(mmcf, mmcf->worker, cycle->log);

    charged = 0;

    n = ngx_modelgw_ledger_end_all(mmcf->ledger, mmcf->worker,
                                   NGX_MODELGW_END_STOPPED,
                                   ngx_http_modelgw_process_time(), &charged);

    if (n) {
        p = ngx_modelgw_amount(amount, charged);

        ngx_log_error(NGX_LOG_NOTICE, cycle->log, 0,
                      "%ui calls were open as this worker was stopped, "
                      "%*s euro are charged for them", n, p - amount, amount);
    }

    ngx_http_modelgw_process_write(mmcf, ngx_terminate ? NGX_HTTP_MODELGW_TERM
                                                      : NGX_HTTP_MODELGW_QUIT,
                                   cycle->log);

    ngx_modelgw_ledger_leave(mmcf->ledger, mmcf->worker);
    mmcf->worker = NGX_MODELGW_LEDGER_NONE;
}


/*
 * All workers have ended.  A thread writes for the master as for a worker, and
 * as the workers' user: what a worker could have put in the place of a file is
 * not to be opened as root.
 */

void
ngx_http_modelgw_process_exit_master(ngx_cycle_t *cycle)
{
    ngx_http_modelgw_user_t        user;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_modelgw_module);

    /* one process that is master and worker has done so as a worker */

    if (mmcf == NULL || mmcf->ledger == NULL
        || ngx_process != NGX_PROCESS_MASTER
        || !ngx_modelgw_ledger_credit(mmcf->ledger))
    {
        return;
    }

    ngx_http_modelgw_process_sweep(mmcf, NGX_MODELGW_LEDGER_NONE, cycle->log);
    ngx_http_modelgw_process_log(mmcf->shared, cycle->log);

    if (ngx_modelgw_ledger_durable(mmcf->ledger,
                                   ngx_modelgw_ledger_done_ever(mmcf->ledger)))
    {
        return;
    }

    if (ngx_http_modelgw_user_become(&user, cycle, cycle->log) != NGX_OK) {
        return;
    }

    if (ngx_http_modelgw_writer_start(cycle, mmcf) == NGX_OK) {
        ngx_http_modelgw_process_write(mmcf, NGX_HTTP_MODELGW_LAST,
                                       cycle->log);
    }

    (void) ngx_http_modelgw_user_return(&user, cycle->log);
}


static void
ngx_http_modelgw_process_write(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_msec_t timeout, ngx_log_t *log)
{
    if (ngx_http_modelgw_writer_stop(mmcf, timeout) != NGX_OK) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "the ledger could not be written before this %s ended: "
                      "if no other process writes its calls, those that have "
                      "a hold in the file are charged by it at the next "
                      "start, and those that were short are lost",
                      ngx_process == NGX_PROCESS_MASTER ? "master" : "worker");
    }

    ngx_http_modelgw_process_log(mmcf->shared, log);
}


/*
 * A writer has no log of its own: nginx's may be a connection to a syslog
 * server, and that is the event loop's.  What is said by one that was killed is
 * logged by another worker.
 *
 * A line is copied first: as soon as it is ours its place may be used again.
 */

static void
ngx_http_modelgw_process_log(ngx_http_modelgw_shared_t *shared, ngx_log_t *log)
{
    ngx_atomic_uint_t        n;
    ngx_http_modelgw_line_t  line;

    for ( ;; ) {
        n = shared->logged;

        if (n == shared->said) {
            return;
        }

        ngx_memory_barrier();

        line = shared->lines[n % NGX_HTTP_MODELGW_LINES];

        if (ngx_atomic_cmp_set(&shared->logged, n, n + 1)) {
            ngx_log_error(ngx_http_modelgw_process_lines[line.what].level,
                          log, 0, "%s%*s",
                          ngx_http_modelgw_process_lines[line.what].text,
                          line.len, line.text);
        }
    }
}


static uint64_t
ngx_http_modelgw_process_time(void)
{
    ngx_time_t  *tp;

    tp = ngx_timeofday();

    return (uint64_t) tp->sec * 1000 + tp->msec;
}


ngx_int_t
ngx_http_modelgw_user_become(ngx_http_modelgw_user_t *user, ngx_cycle_t *cycle,
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

    user->gid = getegid();
    user->n = getgroups(NGX_HTTP_MODELGW_GROUPS, user->groups);

    if (user->n != -1) {
        user->name = ccf->username;
    }

    if (user->name == NULL
        || initgroups(ccf->username, ccf->group) == -1
        || setegid(ccf->group) == -1
        || seteuid(ccf->user) == -1)
    {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "\"modelgw_ledger\": acting as the user %s failed",
                      ccf->username);

        (void) ngx_http_modelgw_user_return(user, log);

        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_user_return(ngx_http_modelgw_user_t *user, ngx_log_t *log)
{
    if (user->name == NULL) {
        return NGX_OK;
    }

    if (seteuid(0) == -1
        || setegid(user->gid) == -1
        || setgroups(user->n, user->groups) == -1)
    {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "\"modelgw_ledger\": acting as root again failed");
        return NGX_ERROR;
    }

    return NGX_OK;
}
