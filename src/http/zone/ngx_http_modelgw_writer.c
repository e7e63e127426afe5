
/*
 * The thread that writes the store.
 *
 * Each worker has one, and one of them is the writer: the others wait on a
 * robust mutex until it exits or dies.  It is a thread because a slow or
 * hanging disk must not block the event loop.  The thread and the worker share
 * nothing but shared memory and ngx_http_modelgw_writer_t.
 *
 * Records that cannot be written stay in shared memory, and no call is
 * admitted until writing works again.  After a failure the store is reopened
 * and the batch is written again from memory: the page cache is not trusted
 * after a failed fsync().  A disk that hangs is noticed by the workers, as the
 * begin and end of a flush are in shared memory.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_store.h"
#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"

#include <dlfcn.h>
#include <pthread.h>


#define NGX_HTTP_MODELGW_WRITER_IDLE     500    /* ms */
#define NGX_HTTP_MODELGW_WRITER_STEP     10     /* ms */
#define NGX_HTTP_MODELGW_WRITER_RETRY    100    /* ms */
#define NGX_HTTP_MODELGW_WRITER_MAX      1000   /* ms between retries */
#define NGX_HTTP_MODELGW_WRITER_OLD      1000   /* ms after a reload, until its
                                                   workers may write */

#define NGX_HTTP_MODELGW_WRITER_GRACE    1500   /* ms, less than the time after
                                                   which a flush hangs */

#define NGX_HTTP_MODELGW_HOURS           10     /* seconds */
#define NGX_HTTP_MODELGW_HOURS_AGE       2      /* seconds; younger calls may
                                                   not be written yet */
#define NGX_HTTP_MODELGW_ROLL_UP         3600   /* seconds */
#define NGX_HTTP_MODELGW_UPKEEP_STEP     1000   /* calls */


/* values of "state" */

#define NGX_HTTP_MODELGW_WRITER_NONE     0      /* there is no thread */
#define NGX_HTTP_MODELGW_WRITER_WAITS    1      /* another one is the writer */
#define NGX_HTTP_MODELGW_WRITER_WRITES   2
#define NGX_HTTP_MODELGW_WRITER_ENDED    3


/* values of "stop" */

#define NGX_HTTP_MODELGW_WRITER_STOP     1      /* when all is written */
#define NGX_HTTP_MODELGW_WRITER_GONE     2      /* at once */


typedef ngx_int_t (*ngx_http_modelgw_writer_step_pt)(ngx_modelgw_store_t *s,
    uint64_t time, ngx_uint_t max, ngx_uint_t *n);


static ngx_int_t ngx_http_modelgw_writer_pin(void);
static void ngx_http_modelgw_writer_free(ngx_http_modelgw_writer_t *w);
static void *ngx_http_modelgw_writer_thread(void *data);
static void ngx_http_modelgw_writer_write(ngx_http_modelgw_writer_t *w);
static ngx_uint_t ngx_http_modelgw_writer_old(ngx_http_modelgw_writer_t *w);
static void ngx_http_modelgw_writer_flush(ngx_http_modelgw_writer_t *w,
    uint64_t now);
static ngx_int_t ngx_http_modelgw_writer_settle(ngx_http_modelgw_writer_t *w,
    ngx_int_t rc);
static ngx_int_t ngx_http_modelgw_writer_failed(ngx_http_modelgw_writer_t *w);
static ngx_int_t ngx_http_modelgw_writer_full(ngx_http_modelgw_writer_t *w);
static ngx_int_t ngx_http_modelgw_writer_restored(ngx_http_modelgw_writer_t *w);
static ngx_int_t ngx_http_modelgw_writer_prices(ngx_http_modelgw_writer_t *w);
static ngx_int_t ngx_http_modelgw_writer_upkeep(ngx_http_modelgw_writer_t *w);
static ngx_int_t ngx_http_modelgw_writer_step(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_writer_step_pt step, time_t *next, time_t age,
    time_t interval);
static void ngx_http_modelgw_writer_pause(ngx_http_modelgw_writer_t *w,
    uint64_t start);
static void ngx_http_modelgw_writer_sleep(ngx_http_modelgw_writer_t *w,
    ngx_msec_t time);


static ngx_http_modelgw_writer_t  ngx_http_modelgw_writer;


ngx_int_t
ngx_http_modelgw_writer_start(ngx_cycle_t *cycle,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_http_modelgw_user_t *user)
{
    size_t                      len;
    ngx_err_t                   err;
    ngx_http_modelgw_writer_t  *w;

    w = &ngx_http_modelgw_writer;

    if (ngx_http_modelgw_writer_pin() != NGX_OK) {
        ngx_log_error(NGX_LOG_ALERT, cycle->log, 0,
                      "the module cannot be kept loaded: %s", dlerror());
        return NGX_ERROR;
    }

    /* in single process mode the thread outlives the cycle, and its path */

    len = mmcf->ledger_path.len + 1;

    w->path = ngx_alloc(len, cycle->log);
    if (w->path == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(w->path, mmcf->ledger_path.data, len);

    w->ledger = mmcf->ledger;
    w->shared = mmcf->shared;
    w->user = user;
    w->mmcf = mmcf;
    w->cluster = mmcf->cluster;

    w->configuration = mmcf->shared->configuration;

    w->prices = ngx_http_modelgw_prices_copy(mmcf, cycle->log);
    if (w->prices == NULL
        || (w->cluster && (ngx_http_modelgw_journal_init(&w->job) != NGX_OK
                           || ngx_modelgw_fresh_init(&w->fresh) != NGX_OK)))
    {
        ngx_http_modelgw_writer_free(w);
        return NGX_ERROR;
    }

    /* in single process mode a reload may remove their zone */

    w->metrics = (ngx_process == NGX_PROCESS_SINGLE) ? NULL : mmcf->metrics;

    w->state = NGX_HTTP_MODELGW_WRITER_WAITS;

    err = ngx_http_modelgw_process_thread(&w->thread,
                                          ngx_http_modelgw_writer_thread, w);
    if (err) {
        w->state = NGX_HTTP_MODELGW_WRITER_NONE;
        ngx_http_modelgw_writer_free(w);

        ngx_log_error(NGX_LOG_ALERT, cycle->log, err,
                      "the thread that writes the ledger does not start");
        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * A worker that exits destroys its cycle, which would unload the module while
 * a thread may still wait to become the writer.
 */

static ngx_int_t
ngx_http_modelgw_writer_pin(void)
{
    Dl_info  module, nginx;

    if (dladdr(&ngx_http_modelgw_writer, &module) == 0
        || dladdr((void *) &ngx_cycle, &nginx) == 0)
    {
        return NGX_ERROR;
    }

    /* a static module cannot be unloaded */

    if (module.dli_fbase == nginx.dli_fbase
        || dlopen(module.dli_fname, RTLD_NOW|RTLD_NOLOAD|RTLD_NODELETE))
    {
        return NGX_OK;
    }

    return NGX_ERROR;
}


static void
ngx_http_modelgw_writer_free(ngx_http_modelgw_writer_t *w)
{
    ngx_free(w->path);

    if (w->prices) {
        ngx_free(w->prices);
        w->prices = NULL;
    }

    ngx_http_modelgw_journal_free(&w->job);
    ngx_modelgw_fresh_free(&w->fresh);
}


ngx_int_t
ngx_http_modelgw_writer_stop(ngx_msec_t timeout, ngx_log_t *log)
{
    uint64_t                    end;
    ngx_int_t                   rc;
    ngx_atomic_uint_t           state;
    ngx_http_modelgw_writer_t  *w;

    w = &ngx_http_modelgw_writer;

    if (w->state == NGX_HTTP_MODELGW_WRITER_NONE) {
        return NGX_OK;
    }

    w->done = ngx_modelgw_ledger_done_ever(w->ledger);

    ngx_memory_barrier();

    w->stop = NGX_HTTP_MODELGW_WRITER_STOP;
    ngx_modelgw_ledger_wake(w->ledger);

    end = ngx_http_modelgw_writer_clock() + timeout;

    for ( ;; ) {
        state = w->state;

        ngx_memory_barrier();

        rc = ngx_modelgw_ledger_durable(w->ledger, w->done) ? NGX_OK
                                                            : NGX_DECLINED;

        if (state == NGX_HTTP_MODELGW_WRITER_ENDED
            || (rc == NGX_OK && state != NGX_HTTP_MODELGW_WRITER_WRITES))
        {
            break;
        }

        if (ngx_http_modelgw_writer_clock() >= end) {
            break;
        }

        ngx_msleep(1);
    }

    /*
     * a thread that still waits, or hangs in disk I/O, ends with the process;
     * it must not write any more, as the worker leaves the ledger now
     */

    w->stop = NGX_HTTP_MODELGW_WRITER_GONE;

    if (w->state == NGX_HTTP_MODELGW_WRITER_ENDED) {
        (void) pthread_join(w->thread, NULL);

        if (w->err) {
            ngx_log_error(NGX_LOG_EMERG, log, w->err,
                          "\"modelgw_ledger\": acting as the user %s failed",
                          w->user->name);
        }

        ngx_http_modelgw_writer_free(w);
        w->state = NGX_HTTP_MODELGW_WRITER_NONE;
    }

    return rc;
}


static void *
ngx_http_modelgw_writer_thread(void *data)
{
    ngx_http_modelgw_writer_t *w = data;

    w->err = w->user ? ngx_http_modelgw_user_become(w->user) : 0;

    if (w->err) {
        ngx_memory_barrier();

        w->state = NGX_HTTP_MODELGW_WRITER_ENDED;
        return NULL;
    }

    for ( ;; ) {
        ngx_http_modelgw_writer_write(w);

        if (w->stop) {
            break;
        }

        /* another thread becomes the writer, if there is any */

        w->state = NGX_HTTP_MODELGW_WRITER_WAITS;

        ngx_http_modelgw_writer_sleep(w, NGX_HTTP_MODELGW_WRITER_MAX);
    }

    w->state = NGX_HTTP_MODELGW_WRITER_ENDED;

    return NULL;
}


/* Becomes the writer, until it is to stop or too old. */

static void
ngx_http_modelgw_writer_write(ngx_http_modelgw_writer_t *w)
{
    uint64_t    start;
    ngx_uint_t  exchange;

    /*
     * a writer that was killed while the disk hung could not report a failure;
     * if no worker saw it hang, the flush is merely old, since its writer died
     */

    if (ngx_modelgw_ledger_elect(w->ledger) && w->shared->stalled) {
        w->shared->unsynced = 1;
    }

    w->state = NGX_HTTP_MODELGW_WRITER_WRITES;

    if (w->shared->grace_until == 0) {
        w->shared->grace_until = ngx_http_modelgw_writer_clock()
                                 + NGX_HTTP_MODELGW_WRITER_GRACE;
    }

    ngx_memory_barrier();

    /*
     * a worker that is leaving destroys its cycle, with the configuration of
     * the cluster, unless it has found by then that this thread is the writer
     */

    exchange = (w->cluster && w->stop == 0);

    if (exchange) {
        w->windows = 0;
        ngx_http_modelgw_journal_open(&w->job);
        ngx_modelgw_fresh_begin(&w->fresh);
    }

    while (w->stop == 0
           || (w->stop == NGX_HTTP_MODELGW_WRITER_STOP
               && !ngx_modelgw_ledger_durable(w->ledger, w->done)))
    {

        start = ngx_http_modelgw_writer_clock();

        if (w->cluster && ngx_http_modelgw_writer_old(w)) {
            break;
        }

        if (exchange && w->stop == 0) {
            ngx_http_modelgw_exchanger_start(w);
        }

        ngx_http_modelgw_writer_flush(w, start);

        ngx_http_modelgw_writer_pause(w, start);
    }

    /* it reads what was written, and so ships it before the store is closed */

    if (exchange) {
        ngx_http_modelgw_journal_close(&w->job);
        ngx_http_modelgw_exchanger_stop(w);
    }

    if (w->store) {

        /*
         * if there is a reader, closing the store does not checkpoint the WAL
         */

        if (ngx_modelgw_store_check_wal(w->store) != NGX_OK) {
            (void) ngx_modelgw_store_checkpoint(w->store);
        }

        ngx_modelgw_store_close(w->store);
        w->store = NULL;
    }

    ngx_modelgw_ledger_resign(w->ledger);
}


/*
 * Keys of a cluster get budgets of their groups by the writer, so it should
 * know the groups that are configured now; a worker that is leaving may have
 * calls for hours.  Once for a configuration: if there is no other thread, this
 * one becomes the writer again.
 */

static ngx_uint_t
ngx_http_modelgw_writer_old(ngx_http_modelgw_writer_t *w)
{
    uint64_t           now;
    ngx_atomic_uint_t  configuration;

    configuration = w->shared->configuration;

    if (w->configuration == configuration || w->left == configuration
        || w->stop || ngx_process == NGX_PROCESS_SINGLE)
    {
        return 0;
    }

    now = ngx_http_modelgw_writer_clock();

    if (w->leave == 0) {
        w->leave = now + NGX_HTTP_MODELGW_WRITER_OLD;
    }

    if (now < w->leave) {
        return 0;
    }

    w->leave = 0;
    w->left = configuration;

    return 1;
}


static void
ngx_http_modelgw_writer_flush(ngx_http_modelgw_writer_t *w, uint64_t now)
{
    ngx_int_t  rc;

    ngx_modelgw_ledger_flushing(w->ledger, 1);

    rc = ngx_http_modelgw_batch(w, now);

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_writer_prices(w);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_writer_upkeep(w);
    }

    if (ngx_http_modelgw_writer_settle(w, rc) != NGX_AGAIN) {
        ngx_modelgw_ledger_flushing(w->ledger, 0);
    }
}


/* NGX_AGAIN: the flush goes on with another try */

static ngx_int_t
ngx_http_modelgw_writer_settle(ngx_http_modelgw_writer_t *w, ngx_int_t rc)
{
    if (rc != NGX_OK) {
        return ngx_http_modelgw_writer_failed(w);
    }

    w->shared->grace_until = 0;

    if (ngx_modelgw_ledger_failed(w->ledger)) {
        return ngx_http_modelgw_writer_restored(w);
    }

    w->retry = 0;

    return ngx_http_modelgw_writer_full(w);
}


/*
 * When a writer is killed, the kernel releases the mutex first, and the locks
 * of files a moment later: so a new writer waits for locks until its first
 * flush has worked.  If it is killed, too, the next writer has only the rest
 * of that time, as the lock may be of another program.
 *
 * If the ledger was removed or moved, the file stays open, and its content is
 * not lost while the writer lives.  Then nothing becomes unsynced, as the WAL
 * is moved to the ledger before the next commit.  Nor does it if the ledger
 * cannot be opened or is locked, as nothing was committed.
 */

static ngx_int_t
ngx_http_modelgw_writer_failed(ngx_http_modelgw_writer_t *w)
{
    if (w->store && !w->lost
        && ngx_modelgw_store_check_wal(w->store) == NGX_OK)
    {
        if (!w->error.locked) {
            w->shared->unsynced = 1;
        }

        ngx_modelgw_store_close(w->store);
        w->store = NULL;
    }

    if (w->error.locked
        && ngx_http_modelgw_writer_clock() < w->shared->grace_until)
    {
        w->retry = NGX_HTTP_MODELGW_WRITER_STEP;
        return NGX_AGAIN;
    }

    ngx_http_modelgw_batch_failed(w);
    ngx_http_modelgw_zone_metrics_failure(w->metrics);

    w->retry = ngx_min(w->retry * 2 + NGX_HTTP_MODELGW_WRITER_RETRY,
                       NGX_HTTP_MODELGW_WRITER_MAX);

    if (ngx_modelgw_ledger_failed(w->ledger)) {
        return NGX_ERROR;
    }

    ngx_modelgw_ledger_set_writable(w->ledger, 0);

    ngx_http_modelgw_writer_report(w, NGX_HTTP_MODELGW_LINE_FAILED);

    return NGX_ERROR;
}


/*
 * A flush has worked, but calls that are admitted now may fill the file system
 * before they end.  The store stays open: what has ended is still written as
 * long as there is any room.
 */

static ngx_int_t
ngx_http_modelgw_writer_full(ngx_http_modelgw_writer_t *w)
{
    uint64_t         now;
    ngx_file_info_t  fi;

    now = ngx_http_modelgw_writer_clock();

    if (now < w->next_space) {
        return NGX_OK;
    }

    w->next_space = now + NGX_HTTP_MODELGW_WRITER_CHECK;

    /* that a file is missing is found with the next batch, which says so */

    if (ngx_file_info(w->path, &fi) == NGX_FILE_ERROR) {
        return NGX_OK;
    }

    w->shared->size = ngx_file_size(&fi);

    if (ngx_modelgw_store_space(w->store) == NGX_OK) {
        return NGX_OK;
    }

    ngx_modelgw_store_error(w->store, &w->error);

    w->retry = NGX_HTTP_MODELGW_WRITER_CHECK;

    ngx_modelgw_ledger_set_writable(w->ledger, 0);

    ngx_http_modelgw_writer_report(w, NGX_HTTP_MODELGW_LINE_FAILED);

    return NGX_ERROR;
}


/*
 * A flush has worked, but it may have had nothing to write, and the file
 * system may be almost full.
 */

static ngx_int_t
ngx_http_modelgw_writer_restored(ngx_http_modelgw_writer_t *w)
{
    if (ngx_modelgw_store_space(w->store) != NGX_OK) {
        w->retry = NGX_HTTP_MODELGW_WRITER_CHECK;
        return NGX_ERROR;
    }

    if (ngx_modelgw_store_probe(w->store) != NGX_OK) {
        ngx_modelgw_store_error(w->store, &w->error);
        return ngx_http_modelgw_writer_failed(w);
    }

    w->retry = 0;

    ngx_modelgw_ledger_set_writable(w->ledger, 1);

    ngx_http_modelgw_writer_report(w, NGX_HTTP_MODELGW_LINE_RESTORED);

    return NGX_OK;
}


/*
 * Of this configuration, once; the master has logged what changed.  A worker
 * that is leaving may become the writer: its prices do not count any more.
 */

static ngx_int_t
ngx_http_modelgw_writer_prices(ngx_http_modelgw_writer_t *w)
{
    if (w->prices == NULL || w->stop) {
        return NGX_OK;
    }

    if (w->configuration == w->shared->configuration
        && ngx_http_modelgw_prices_store(w->prices, w->store, w->ledger, NULL)
           != NGX_OK)
    {
        ngx_modelgw_store_error(w->store, &w->error);
        return NGX_ERROR;
    }

    ngx_free(w->prices);
    w->prices = NULL;

    return NGX_OK;
}


/* One step of each between two flushes, so that calls do not wait for more. */

static ngx_int_t
ngx_http_modelgw_writer_upkeep(ngx_http_modelgw_writer_t *w)
{
    if (ngx_http_modelgw_writer_step(w, ngx_modelgw_store_hours, &w->hours,
                                     NGX_HTTP_MODELGW_HOURS_AGE,
                                     NGX_HTTP_MODELGW_HOURS)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* calls that leave the outbox may be rolled up */

    if (w->cluster
        && ngx_http_modelgw_writer_step(w, ngx_modelgw_journal_trim, &w->trim,
                                        NGX_MODELGW_JOURNAL_KEEP,
                                        NGX_HTTP_MODELGW_ROLL_UP)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_writer_step(w, ngx_modelgw_store_roll_up,
                                        &w->roll_up, (time_t) w->shared->keep,
                                        NGX_HTTP_MODELGW_ROLL_UP);
}


/* handles calls of that age, in seconds; next: time of the next step */

static ngx_int_t
ngx_http_modelgw_writer_step(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_writer_step_pt step, time_t *next, time_t age,
    time_t interval)
{
    time_t      now;
    ngx_uint_t  n;

    now = time(NULL);

    if (now < *next || w->stop) {
        return NGX_OK;
    }

    if (step(w->store, now - age, NGX_HTTP_MODELGW_UPKEEP_STEP, &n)
        != NGX_OK)
    {
        ngx_modelgw_store_error(w->store, &w->error);
        return NGX_ERROR;
    }

    if (n < NGX_HTTP_MODELGW_UPKEEP_STEP) {
        *next = now + interval;
    }

    return NGX_OK;
}


/*
 * Waits until there is something to write, and the flush interval since the
 * start of the previous flush is over.
 */

static void
ngx_http_modelgw_writer_pause(ngx_http_modelgw_writer_t *w, uint64_t start)
{
    uint64_t  now, end;

    if (w->retry) {
        ngx_http_modelgw_writer_sleep(w, w->retry);

        if (w->stop) {
            ngx_msleep(NGX_HTTP_MODELGW_WRITER_RETRY);
        }

        return;
    }

    if (ngx_http_modelgw_batch_more(w)) {
        return;
    }

    if (w->due == 0 && ngx_min(w->hours, w->roll_up) > time(NULL)
        && (w->cluster == NULL || w->trim > time(NULL))
        && !w->stop)
    {
        ngx_modelgw_ledger_wait(w->ledger, NGX_HTTP_MODELGW_WRITER_IDLE);
    }

    end = start + w->shared->flush;
    now = ngx_http_modelgw_writer_clock();

    if (now < end) {
        ngx_http_modelgw_writer_sleep(w, end - now);
    }
}


/* Sleeps for that many ms, or until the thread is to stop. */

static void
ngx_http_modelgw_writer_sleep(ngx_http_modelgw_writer_t *w, ngx_msec_t time)
{
    uint64_t  now, end;

    now = ngx_http_modelgw_writer_clock();
    end = now + time;

    while (now < end && w->stop == 0) {
        ngx_msleep(ngx_min(end - now, NGX_HTTP_MODELGW_WRITER_STEP));
        now = ngx_http_modelgw_writer_clock();
    }
}


void
ngx_http_modelgw_writer_report(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_line_e what)
{
    ngx_http_modelgw_process_report(w->ledger, w->shared, what, w->error.data,
                                    (what == NGX_HTTP_MODELGW_LINE_RESTORED)
                                    ? 0 : w->error.len);
}


/* Returns ms; the clock of the ledger is coarser. */

uint64_t
ngx_http_modelgw_writer_clock(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


uint64_t
ngx_http_modelgw_writer_usec(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}
