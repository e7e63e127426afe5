
/*
 * The ledger in a worker: it joins, checks every half second for workers that
 * died with calls in flight and for a writer that hangs, and settles its own
 * calls when it is stopped.
 *
 * A worker that exits checks for dead workers once more, and waits until all
 * calls settled so far are written.  Calls of a worker that is killed after
 * the others have left, or before the master replaced it, are settled by the
 * master.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_SWEEP  500      /* ms */

/* the memo of bodies */

#define NGX_HTTP_MODELGW_PROCESS_STATES  1024
#define NGX_HTTP_MODELGW_PROCESS_LINK    (32 * 1024)  /* bytes */

/* a worker that does not terminate is killed by its master after 1.5 seconds */

#define NGX_HTTP_MODELGW_QUIT   5000     /* ms */
#define NGX_HTTP_MODELGW_TERM   1000     /* ms */
#define NGX_HTTP_MODELGW_LAST   2000     /* ms, for the master */


static void ngx_http_modelgw_process_memo(ngx_cycle_t *cycle,
    ngx_http_modelgw_main_conf_t *mmcf);
static ngx_int_t ngx_http_modelgw_process_join(ngx_cycle_t *cycle,
    ngx_http_modelgw_main_conf_t *mmcf);
static void ngx_http_modelgw_process_timer(ngx_event_t *ev);
static void ngx_http_modelgw_process_sweep(ngx_http_modelgw_main_conf_t *mmcf,
    uint32_t self, ngx_log_t *log);
static void ngx_http_modelgw_process_stalled(
    ngx_http_modelgw_main_conf_t *mmcf);
static void ngx_http_modelgw_process_write(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_msec_t timeout, ngx_log_t *log);
static void ngx_http_modelgw_process_log(ngx_http_modelgw_shared_t *shared,
    ngx_log_t *log);
static uint64_t ngx_http_modelgw_process_time(void);


static ngx_event_t       ngx_http_modelgw_sweep_event;

/* debug messages of timers use a connection */

static ngx_connection_t  ngx_http_modelgw_timer_connection;
static uint64_t          ngx_http_modelgw_process_start;  /* ms, by the ledger's
                                                            clock */


static struct {
    ngx_uint_t   level;
    const char  *text;
}  ngx_http_modelgw_process_lines[] = {

    [NGX_HTTP_MODELGW_LINE_FAILED] = {
        NGX_LOG_ALERT, NGX_HTTP_MODELGW_CANNOT },

    [NGX_HTTP_MODELGW_LINE_RESTORED] = {
        NGX_LOG_NOTICE, "the ledger is written again" },

    [NGX_HTTP_MODELGW_LINE_SAVED] = {
        NGX_LOG_ERR, "a file of the ledger was lost while it was open, its "
                     "content is in the ledger now: " },

    [NGX_HTTP_MODELGW_LINE_AWAY] = {
        NGX_LOG_ALERT, "the cluster cannot be reached, calls go on with what "
                       "is lent: " },

    [NGX_HTTP_MODELGW_LINE_ALONE] = {
        NGX_LOG_ALERT, "the cluster cannot be reached, calls are refused until "
                       "it is: " },

    [NGX_HTTP_MODELGW_LINE_AGAIN] = {
        NGX_LOG_NOTICE, "the cluster is reached again" },

    [NGX_HTTP_MODELGW_LINE_REFUSED] = {
        NGX_LOG_ALERT, "this node must not work with the cluster's database, "
                       "calls are refused: " },

    [NGX_HTTP_MODELGW_LINE_LEFT] = {
        NGX_LOG_NOTICE, "this node has left the cluster, calls are refused" },

    [NGX_HTTP_MODELGW_LINE_JOINED] = {
        NGX_LOG_NOTICE, "this node has joined the cluster" },

    [NGX_HTTP_MODELGW_LINE_FENCED] = {
        NGX_LOG_WARN, "the cluster has gone on without this node, which joins "
                      "it again" },

    [NGX_HTTP_MODELGW_LINE_CLUSTER] = {
        NGX_LOG_NOTICE, "cluster: " }
};


ngx_int_t
ngx_http_modelgw_process_init(ngx_cycle_t *cycle)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_modelgw_module);

    if (mmcf == NULL) {
        return NGX_OK;
    }

    if (mmcf->used) {
        ngx_http_modelgw_heap_init();
        ngx_http_modelgw_process_memo(cycle, mmcf);
    }

    if (mmcf->ledger == NULL) {
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

    ngx_http_modelgw_process_add_timer(&ngx_http_modelgw_sweep_event,
                                       ngx_http_modelgw_process_timer,
                                       NGX_HTTP_MODELGW_SWEEP);

    return NGX_OK;
}


void
ngx_http_modelgw_process_add_timer(ngx_event_t *ev,
    ngx_event_handler_pt handler, ngx_msec_t msec)
{
    ngx_http_modelgw_timer_connection.fd = (ngx_socket_t) -1;

    ev->handler = handler;
    ev->data = &ngx_http_modelgw_timer_connection;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    ngx_add_timer(ev, msec);
}


/* without one, all bodies are scanned */

static void
ngx_http_modelgw_process_memo(ngx_cycle_t *cycle,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    u_char  secret[NGX_MODELGW_PREFIX_KEY];

    if (ngx_modelgw_key_random(secret, NGX_MODELGW_PREFIX_KEY) != NGX_OK) {
        ngx_log_error(NGX_LOG_ERR, cycle->log, 0,
                      "no random bytes, bodies are not remembered");
        return;
    }

    mmcf->memo = ngx_modelgw_memo_create(cycle->pool,
                                         NGX_HTTP_MODELGW_PROCESS_STATES,
                                         NGX_HTTP_MODELGW_PROCESS_LINK,
                                         secret);

    ngx_explicit_memzero(secret, NGX_MODELGW_PREFIX_KEY);
}


/*
 *     NGX_OK
 *     NGX_DECLINED  there are too many workers; some may be exiting
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
        && ngx_http_modelgw_writer_start(cycle, mmcf, NULL) != NGX_OK)
    {
        ngx_modelgw_ledger_leave(mmcf->ledger, mmcf->worker);
        mmcf->worker = NGX_MODELGW_LEDGER_NONE;

        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * Uses the current cycle: in single process mode it may have changed since the
 * timer was added.
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

    /* after the sweep, which frees the places of dead workers */

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
    ngx_http_modelgw_process_stalled(mmcf);
    ngx_http_modelgw_node_check(mmcf, ngx_cycle->log);

    ev->log = ngx_cycle->log;

    ngx_add_timer(ev, NGX_HTTP_MODELGW_SWEEP);
}


static void
ngx_http_modelgw_process_sweep(ngx_http_modelgw_main_conf_t *mmcf,
    uint32_t self, ngx_log_t *log)
{
    u_char                      *p, amount[NGX_MODELGW_AMOUNT_LEN];
    ngx_uint_t                   n;
    ngx_modelgw_ledger_ended_t   ended;

    ended.charged = 0;
    ended.handler = ngx_http_modelgw_zone_metrics_ended;
    ended.data = mmcf;

    n = ngx_modelgw_ledger_sweep(mmcf->ledger, self,
                                 ngx_http_modelgw_process_time(), &ended);

    if (n) {
        p = ngx_modelgw_amount(amount, ended.charged);

        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "%ui calls of workers that have died are settled, "
                      "%*s euro are charged for them", n, p - amount, amount);
    }
}


/*
 * One worker logs it, once.  A flush that began before this process did is
 * ignored: it cannot be known whether its writer is alive.  So is one that is
 * seen for the first time: if the machine stood still, it goes on now.
 */

static void
ngx_http_modelgw_process_stalled(ngx_http_modelgw_main_conf_t *mmcf)
{
    uint64_t  stalled;

    static ngx_uint_t  seen;             /* in so many calls, one by one */

    stalled = ngx_modelgw_ledger_stalled(mmcf->ledger);

    if (stalled > ngx_modelgw_ledger_clock() - ngx_http_modelgw_process_start) {
        return;
    }

    seen = stalled ? seen + 1 : 0;

    if (seen > 1 && ngx_atomic_cmp_set(&mmcf->shared->stalled, 0, 1)) {
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                      "writing the ledger hangs for %uL ms, calls are refused "
                      "until it ends: check the disk", stalled);
    }

    if (stalled == 0 && ngx_atomic_cmp_set(&mmcf->shared->stalled, 1, 0)) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "writing the ledger does not hang any more");
    }
}


void
ngx_http_modelgw_process_exit(ngx_cycle_t *cycle)
{
    u_char                        *p, amount[NGX_MODELGW_AMOUNT_LEN];
    ngx_uint_t                     n;
    ngx_modelgw_ledger_ended_t     ended;
    ngx_http_modelgw_main_conf_t  *mmcf;

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

    ended.charged = 0;
    ended.handler = ngx_http_modelgw_zone_metrics_ended;
    ended.data = mmcf;

    n = ngx_modelgw_ledger_end_all(mmcf->ledger, mmcf->worker,
                                   NGX_MODELGW_END_STOPPED,
                                   ngx_http_modelgw_process_time(), &ended);

    if (n) {
        p = ngx_modelgw_amount(amount, ended.charged);

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
 * All workers have exited.  The master writes by a thread as workers do, but
 * as the workers' user, see user.c.
 */

void
ngx_http_modelgw_process_exit_master(ngx_cycle_t *cycle)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    /* the thread may use it after this function has returned */

    static ngx_http_modelgw_user_t  user;

    mmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_modelgw_module);

    /* in single process mode process_exit() did this */

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

    if (ngx_http_modelgw_user_find(&user, cycle, cycle->log) == NGX_OK
        && ngx_http_modelgw_writer_start(cycle, mmcf, &user) == NGX_OK)
    {
        ngx_http_modelgw_process_write(mmcf, NGX_HTTP_MODELGW_LAST,
                                       cycle->log);
    }
}


static void
ngx_http_modelgw_process_write(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_msec_t timeout, ngx_log_t *log)
{
    if (ngx_http_modelgw_writer_stop(timeout, log) != NGX_OK) {
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
 * A writer does not log itself: the log may be a connection to a syslog
 * server, which belongs to the event loop.  Lines of a writer that was killed
 * are logged by another worker.
 *
 * A line is copied before it is taken: after that its place may be reused.
 */

static void
ngx_http_modelgw_process_log(ngx_http_modelgw_shared_t *shared, ngx_log_t *log)
{
    ngx_atomic_uint_t        n;
    ngx_http_modelgw_line_t  line;

    for ( ;; ) {
        n = shared->logged;

        if (n == shared->reported) {
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


void
ngx_http_modelgw_process_report(ngx_modelgw_ledger_t *ledger,
    ngx_http_modelgw_shared_t *shared, ngx_http_modelgw_line_e what,
    u_char *text, size_t len)
{
    ngx_http_modelgw_line_t  *line;

    ngx_modelgw_ledger_lock(ledger);

    if (shared->reported - shared->logged < NGX_HTTP_MODELGW_LINES) {

        line = &shared->lines[shared->reported % NGX_HTTP_MODELGW_LINES];

        line->what = what;
        line->len = ngx_min(len, NGX_MODELGW_STORE_ERROR);

        if (line->len) {
            ngx_memcpy(line->text, text, line->len);
        }

        ngx_memory_barrier();

        shared->reported++;
    }

    ngx_modelgw_ledger_unlock(ledger);
}


static uint64_t
ngx_http_modelgw_process_time(void)
{
    ngx_time_t  *tp;

    tp = ngx_timeofday();

    return (uint64_t) tp->sec * 1000 + tp->msec;
}


ngx_err_t
ngx_http_modelgw_process_thread(pthread_t *thread, void *(*handler)(void *data),
    void *data)
{
    ngx_err_t  err;
    sigset_t   all, before;

    sigfillset(&all);

    err = pthread_sigmask(SIG_SETMASK, &all, &before);

    if (err == 0) {
        err = pthread_create(thread, NULL, handler, data);

        (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    }

    return err;
}
