
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
 *
 * A batch is a transaction of the store.  Calls that are DONE are counted
 * before the accounts, so that the batch includes the accounts of these calls.
 * New accounts are written first, and alone as long as they fill a batch.
 *
 * Short calls need no hold in the store: holds are stored only of calls that
 * had been sent at the previous flush and are still open.  So a flush may
 * check holds without writing a row: the transaction begins with the first
 * row.
 *
 * Only the writer frees the slot of a call that was sent, so records that are
 * being stored do not change, except that a call may end.
 *
 * writer_* is the thread and its state, batch_* the content of one flush.
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

#define NGX_HTTP_MODELGW_WRITER_GRACE    1500   /* ms, less than the time after
                                                   which a flush hangs */

#define NGX_HTTP_MODELGW_HOURS           10     /* seconds */
#define NGX_HTTP_MODELGW_HOURS_AGE       2      /* seconds; younger calls may
                                                   not be written yet */
#define NGX_HTTP_MODELGW_ROLL_UP         3600   /* seconds */
#define NGX_HTTP_MODELGW_UPKEEP_STEP     1000   /* calls */

#define NGX_HTTP_MODELGW_BATCH_CHECK     500    /* ms */
#define NGX_HTTP_MODELGW_BATCH_ACCOUNTS  10000  /* at most */
#define NGX_HTTP_MODELGW_BATCH_CALLS     1000   /* at most */


/* values of "state" */

#define NGX_HTTP_MODELGW_WRITER_NONE     0      /* there is no thread */
#define NGX_HTTP_MODELGW_WRITER_WAITS    1      /* another one is the writer */
#define NGX_HTTP_MODELGW_WRITER_WRITES   2
#define NGX_HTTP_MODELGW_WRITER_ENDED    3


/* values of "stop" */

#define NGX_HTTP_MODELGW_WRITER_STOP     1      /* when all is written */
#define NGX_HTTP_MODELGW_WRITER_GONE     2      /* at once */


typedef struct {
    ngx_modelgw_ledger_t       *ledger;
    ngx_http_modelgw_shared_t  *shared;
    ngx_modelgw_store_price_t  *prices;      /* NULL: stored */
    ngx_atomic_uint_t           configuration; /* whose prices these are */
    ngx_modelgw_metrics_t      *metrics;     /* NULL: none */
    char                       *path;        /* of the store */
    ngx_http_modelgw_user_t    *user;        /* NULL: that of the process */
    uint64_t                    done;        /* calls, in total, that must be
                                                durable before STOP ends it */
    ngx_atomic_t                stop;        /* set by the worker; 0: go on */
    ngx_atomic_t                state;       /* set by the thread */
    ngx_err_t                   err;         /* the user's identity could not
                                                be taken, if ENDED; 0: it was */
    pthread_t                   thread;

    /* used by the thread only */

    ngx_modelgw_store_t        *store;       /* NULL: not open */
    ngx_uint_t                  lost;        /* 1: its files were moved or
                                                removed; it stays open */
    uint64_t                    next_check;  /* ms, of its files */
    uint64_t                    next_space;  /* ms, of its file system */
    ngx_modelgw_store_error_t   error;       /* of the failed batch */
    ngx_uint_t                  due;         /* holds at the previous flush */
    ngx_msec_t                  retry;       /* retry delay, ms; 0 if the store
                                                is healthy */
    time_t                      hours;       /* times of the next ones */
    time_t                      roll_up;
} ngx_http_modelgw_writer_t;


typedef struct {
    ngx_uint_t             done;
    ngx_uint_t             held;
    ngx_uint_t             due;              /* holds for the next batch */
    ngx_uint_t             begun;            /* 1: the transaction has begun */
    uint32_t               first;            /* new account */
    uint32_t               last;             /* new account, exclusive */
    ngx_uint_t             n;                /* number of changes */
    ngx_modelgw_change_t  *changes[NGX_MODELGW_LEDGER_CHANGES];
    ngx_modelgw_change_e   results[NGX_MODELGW_LEDGER_CHANGES];
} ngx_http_modelgw_batch_t;


typedef ngx_int_t (*ngx_http_modelgw_writer_step_pt)(ngx_modelgw_store_t *s,
    uint64_t time, ngx_uint_t max, ngx_uint_t *n);


static ngx_int_t ngx_http_modelgw_writer_pin(void);
static void ngx_http_modelgw_writer_free(ngx_http_modelgw_writer_t *w);
static void *ngx_http_modelgw_writer_thread(void *data);
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
static void ngx_http_modelgw_writer_report(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_line_e what);
static uint64_t ngx_http_modelgw_writer_clock(void);
static uint64_t ngx_http_modelgw_writer_usec(void);
static ngx_int_t ngx_http_modelgw_batch(ngx_http_modelgw_writer_t *w,
    uint64_t now);
static ngx_int_t ngx_http_modelgw_batch_store(ngx_http_modelgw_writer_t *w,
    uint64_t now);
static ngx_int_t ngx_http_modelgw_batch_save(ngx_http_modelgw_writer_t *w);
static ngx_int_t ngx_http_modelgw_batch_open(ngx_http_modelgw_writer_t *w);
static void ngx_http_modelgw_batch_fill(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static void ngx_http_modelgw_batch_fill_changes(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_int_t ngx_http_modelgw_batch_write(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_int_t ngx_http_modelgw_batch_begin(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_int_t ngx_http_modelgw_batch_accounts(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_int_t ngx_http_modelgw_batch_changes(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_uint_t ngx_http_modelgw_batch_keys(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_uint_t ngx_http_modelgw_batch_adds_key(
    ngx_modelgw_change_t *change);
static ngx_int_t ngx_http_modelgw_batch_holds(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_int_t ngx_http_modelgw_batch_calls(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static void ngx_http_modelgw_batch_durable(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_int_t ngx_http_modelgw_batch_budgets(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static void ngx_http_modelgw_batch_publish(ngx_http_modelgw_writer_t *w,
    ngx_modelgw_change_t *change);
static void ngx_http_modelgw_batch_failed(ngx_http_modelgw_writer_t *w);
static ngx_uint_t ngx_http_modelgw_batch_more(ngx_http_modelgw_writer_t *w);


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

    w->configuration = mmcf->shared->configuration;

    w->prices = ngx_http_modelgw_prices_copy(mmcf, cycle->log);
    if (w->prices == NULL) {
        ngx_free(w->path);
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

    uint64_t  start;

    w->err = w->user ? ngx_http_modelgw_user_become(w->user) : 0;

    if (w->err) {
        ngx_memory_barrier();

        w->state = NGX_HTTP_MODELGW_WRITER_ENDED;
        return NULL;
    }

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

    while (w->stop == 0
           || (w->stop == NGX_HTTP_MODELGW_WRITER_STOP
               && !ngx_modelgw_ledger_durable(w->ledger, w->done)))
    {

        start = ngx_http_modelgw_writer_clock();

        ngx_http_modelgw_writer_flush(w, start);

        ngx_http_modelgw_writer_pause(w, start);
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

    w->state = NGX_HTTP_MODELGW_WRITER_ENDED;

    return NULL;
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

    w->next_space = now + NGX_HTTP_MODELGW_BATCH_CHECK;

    /* that a file is missing is found with the next batch, which says so */

    if (ngx_file_info(w->path, &fi) == NGX_FILE_ERROR) {
        return NGX_OK;
    }

    w->shared->size = ngx_file_size(&fi);

    if (ngx_modelgw_store_space(w->store) == NGX_OK) {
        return NGX_OK;
    }

    ngx_modelgw_store_error(w->store, &w->error);

    w->retry = NGX_HTTP_MODELGW_BATCH_CHECK;

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
        w->retry = NGX_HTTP_MODELGW_BATCH_CHECK;
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


/*
 * Lines are dropped if workers have not logged the previous ones for seconds.
 */

static void
ngx_http_modelgw_writer_report(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_line_e what)
{
    ngx_http_modelgw_line_t    *line;
    ngx_http_modelgw_shared_t  *shared;

    shared = w->shared;

    if (shared->reported - shared->logged == NGX_HTTP_MODELGW_LINES) {
        return;
    }

    line = &shared->lines[shared->reported % NGX_HTTP_MODELGW_LINES];

    line->what = what;
    line->len = (what == NGX_HTTP_MODELGW_LINE_RESTORED) ? 0 : w->error.len;
    ngx_memcpy(line->text, w->error.data, line->len);

    ngx_memory_barrier();

    shared->reported++;
}


/* Returns ms; the clock of the ledger is coarser. */

static uint64_t
ngx_http_modelgw_writer_clock(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


static uint64_t
ngx_http_modelgw_writer_usec(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}


static ngx_int_t
ngx_http_modelgw_batch(ngx_http_modelgw_writer_t *w, uint64_t now)
{
    uint64_t                  start;
    ngx_http_modelgw_batch_t  b;

    start = ngx_http_modelgw_writer_usec();

    if (ngx_http_modelgw_batch_store(w, now) != NGX_OK) {
        return NGX_ERROR;
    }

    /* a writer was killed while it changed the table of keys */

    if (w->shared->managed && ngx_modelgw_managed_damaged(w->shared->managed)
        && ngx_http_modelgw_zone_keys_fill(w->shared->managed, w->store)
           != NGX_OK)
    {
        ngx_modelgw_store_error(w->store, &w->error);
        return NGX_ERROR;
    }

    ngx_http_modelgw_batch_fill(w, &b);

    if (ngx_http_modelgw_batch_write(w, &b) != NGX_OK) {
        ngx_modelgw_store_error(w->store, &w->error);
        return NGX_ERROR;
    }

    if (b.begun && ngx_modelgw_store_check_wal(w->store) != NGX_OK) {
        w->next_check = 0;

        if (ngx_http_modelgw_batch_store(w, now) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (b.n && ngx_http_modelgw_batch_budgets(w, &b) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_modelgw_batch_durable(w, &b);

    if (b.begun) {
        w->shared->flushed = ngx_http_modelgw_writer_clock() - now;
        ngx_http_modelgw_zone_metrics_flush(w->metrics,
                                     ngx_http_modelgw_writer_usec() - start);
    }

    return NGX_OK;
}


/* Opens the store, or checks that its files are in place. */

static ngx_int_t
ngx_http_modelgw_batch_store(ngx_http_modelgw_writer_t *w, uint64_t now)
{
    if (w->store == NULL) {
        return ngx_http_modelgw_batch_open(w);
    }

    if (now < w->next_check && !w->lost) {
        return NGX_OK;
    }

    w->lost = (ngx_modelgw_store_known(w->store, &w->shared->file) != NGX_OK);

    if (w->lost) {
        ngx_modelgw_store_error(w->store, &w->error);
        return NGX_ERROR;
    }

    w->next_check = now + NGX_HTTP_MODELGW_BATCH_CHECK;

    return (ngx_modelgw_store_check_wal(w->store) == NGX_OK)
           ? NGX_OK : ngx_http_modelgw_batch_save(w);
}


/*
 * A file beside the ledger was removed or replaced, so committed records would
 * be lost with this process.  They are moved to the ledger from the file that
 * is open, and new files are created.  If a reader prevents that, it is
 * retried, and nothing counts as durable until then.
 */

static ngx_int_t
ngx_http_modelgw_batch_save(ngx_http_modelgw_writer_t *w)
{
    ngx_modelgw_store_error(w->store, &w->error);

    w->lost = 1;

    if (ngx_modelgw_store_checkpoint(w->store) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_modelgw_writer_report(w, NGX_HTTP_MODELGW_LINE_SAVED);

    ngx_modelgw_store_close(w->store);

    return ngx_http_modelgw_batch_open(w);
}


/*
 * Records that this or an earlier writer could not make durable may be in the
 * WAL, in the memory of the kernel.  A batch that is written again would find
 * them there, and its commit would write nothing.  So after a failure the WAL
 * is moved to the ledger first; if a writer was just killed, an fsync() is
 * enough.
 */

static ngx_int_t
ngx_http_modelgw_batch_open(ngx_http_modelgw_writer_t *w)
{
    w->lost = 0;

    w->store = ngx_modelgw_store_open_known(w->path, &w->shared->file,
                                            &w->error);

    if (w->store == NULL) {
        return NGX_ERROR;
    }

    if ((w->shared->unsynced
         && ngx_modelgw_store_checkpoint(w->store) != NGX_OK)
        || ngx_modelgw_store_probe(w->store) != NGX_OK)
    {
        ngx_modelgw_store_error(w->store, &w->error);
        return NGX_ERROR;
    }

    w->shared->unsynced = 0;

    return NGX_OK;
}


static void
ngx_http_modelgw_batch_fill(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_uint_t  held;

    held = ngx_modelgw_ledger_held_count(w->ledger);

    b->done = ngx_min(ngx_modelgw_ledger_done_count(w->ledger),
                      NGX_HTTP_MODELGW_BATCH_CALLS);
    b->held = ngx_min(w->due, NGX_HTTP_MODELGW_BATCH_CALLS);
    b->due = held - b->held;
    b->begun = 0;
    b->n = 0;

    b->first = ngx_modelgw_ledger_stored(w->ledger);
    b->last = ngx_modelgw_ledger_accounts(w->ledger);

    if (b->last - b->first > NGX_HTTP_MODELGW_BATCH_ACCOUNTS) {
        b->last = b->first + NGX_HTTP_MODELGW_BATCH_ACCOUNTS;
        b->done = 0;
        b->held = 0;
        b->due = w->due;
        return;
    }

    ngx_http_modelgw_batch_fill_changes(w, b);
}


/*
 * The account of a change must be stored with it, or before.  A configuration
 * may have added one that a change is about to open.
 */

static void
ngx_http_modelgw_batch_fill_changes(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_str_t              name;
    ngx_uint_t             i;
    ngx_modelgw_change_t  *change;

    i = 0;

    for ( ;; ) {
        change = ngx_modelgw_ledger_change_asked(w->ledger, &i);
        if (change == NULL) {
            return;
        }

        if (ngx_modelgw_ledger_change_opens(change)) {
            name.len = change->owner.len;
            name.data = change->owner.data;

            (void) ngx_modelgw_ledger_account(w->ledger, &name, 0, 0, 0, 0,
                                              &change->account);
        }

        if (change->account == NGX_MODELGW_LEDGER_NONE
            || change->account < b->last)
        {
            b->changes[b->n++] = change;
        }
    }
}


static ngx_int_t
ngx_http_modelgw_batch_write(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_uint_t  i;

    if (ngx_http_modelgw_batch_accounts(w, b) != NGX_OK
        || ngx_http_modelgw_batch_changes(w, b) != NGX_OK
        || ngx_http_modelgw_batch_holds(w, b) != NGX_OK
        || ngx_http_modelgw_batch_calls(w, b) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!b->begun) {
        return NGX_OK;
    }

    for (i = 0; i < b->n; i++) {
        ngx_modelgw_ledger_change_tried(b->changes[i]);
    }

    return ngx_modelgw_store_commit(w->store);
}


static ngx_int_t
ngx_http_modelgw_batch_begin(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    if (b->begun) {
        return NGX_OK;
    }

    b->begun = 1;

    return ngx_modelgw_store_begin(w->store);
}


static ngx_int_t
ngx_http_modelgw_batch_accounts(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    uint32_t                       i;
    ngx_modelgw_ledger_account_t  *a;

    for (i = b->first; i < b->last; i++) {
        a = ngx_modelgw_ledger_account_at(w->ledger, i);

        if (ngx_http_modelgw_batch_begin(w, b) != NGX_OK
            || ngx_modelgw_store_account(w->store, a) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_batch_changes(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_uint_t  i, keys;

    keys = ngx_http_modelgw_batch_keys(w, b);

    for (i = 0; i < b->n; i++) {

        if (ngx_http_modelgw_batch_adds_key(b->changes[i])
            && !b->changes[i]->tried
            && keys-- == 0)
        {
            keys = 0;
            b->results[i] = NGX_MODELGW_CHANGE_FULL;
            continue;
        }

        if (ngx_http_modelgw_batch_begin(w, b) != NGX_OK
            || ngx_modelgw_store_change(w->store, b->changes[i],
                                        &b->results[i])
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* How many keys may be added; those that may be stored already have a place. */

static ngx_uint_t
ngx_http_modelgw_batch_keys(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_uint_t              i, keys;
    ngx_modelgw_managed_t  *m;

    m = w->shared->managed;

    if (m == NULL || b->n == 0) {
        return 0;
    }

    ngx_modelgw_managed_expire(m, time(NULL));

    keys = ngx_modelgw_managed_free(m);

    for (i = 0; i < b->n && keys; i++) {

        if (ngx_http_modelgw_batch_adds_key(b->changes[i])
            && b->changes[i]->tried)
        {
            keys--;
        }
    }

    return keys;
}


static ngx_uint_t
ngx_http_modelgw_batch_adds_key(ngx_modelgw_change_t *change)
{
    return change->kind == NGX_MODELGW_CHANGE_KEY_NEW
           || change->kind == NGX_MODELGW_CHANGE_KEY_ROTATE;
}


static ngx_int_t
ngx_http_modelgw_batch_holds(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    uint64_t                       id;
    ngx_uint_t                     i;
    ngx_modelgw_call_t            *call;
    ngx_modelgw_ledger_account_t  *a;

    for (i = 0; i < b->held; i++) {
        call = ngx_modelgw_ledger_held(w->ledger, i, &id);

        if (id == 0) {
            continue;
        }

        a = ngx_modelgw_ledger_account_at(w->ledger, call->account);

        if (ngx_http_modelgw_batch_begin(w, b) != NGX_OK
            || ngx_modelgw_store_hold(w->store, call, &a->name) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_batch_calls(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_uint_t                     i;
    ngx_modelgw_call_t            *call;
    ngx_modelgw_ledger_account_t  *a;

    for (i = 0; i < b->done; i++) {
        call = ngx_modelgw_ledger_done(w->ledger, i);

        if (call == NULL || call->account == NGX_MODELGW_LEDGER_NONE) {
            continue;
        }

        a = ngx_modelgw_ledger_account_at(w->ledger, call->account);

        if (ngx_http_modelgw_batch_begin(w, b) != NGX_OK
            || ngx_modelgw_store_call(w->store, call, &a->name) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static void
ngx_http_modelgw_batch_durable(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_uint_t  i;

    if (b->last != b->first) {
        ngx_modelgw_ledger_set_stored(w->ledger, b->last);
    }

    for (i = 0; i < b->n; i++) {

        if (b->results[i] == NGX_MODELGW_CHANGE_MADE) {
            ngx_http_modelgw_batch_publish(w, b->changes[i]);
        }

        ngx_modelgw_ledger_change_answer(w->ledger, b->changes[i],
                                         b->results[i]);
    }

    /*
     * in this order: a call that gets a freed slot must find a place in the
     * ring
     */

    if (b->held) {
        ngx_modelgw_ledger_noted(w->ledger, b->held);
    }

    if (b->done) {
        ngx_modelgw_ledger_written(w->ledger, b->done);
    }

    w->due = b->due;
}


/*
 * Budgets that keys get count what was spent before, too.  It is known before
 * the key is published: no call finds one that is still to be read.
 */

static ngx_int_t
ngx_http_modelgw_batch_budgets(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    uint32_t                     slot, slots[NGX_MODELGW_LEDGER_CHANGES];
    ngx_str_t                    id;
    ngx_uint_t                   i;
    ngx_modelgw_change_t        *change;
    ngx_http_modelgw_pending_t   pending;

    pending.slots = slots;
    pending.n = 0;
    pending.max = NGX_MODELGW_LEDGER_CHANGES;

    for (i = 0; i < b->n; i++) {
        change = b->changes[i];

        if (b->results[i] != NGX_MODELGW_CHANGE_MADE
            || change->window == NGX_MODELGW_WINDOW_NONE)
        {
            continue;
        }

        id.len = change->key.id.len;
        id.data = change->key.id.data;

        if (ngx_modelgw_ledger_key(w->ledger, &id, &slot) == NGX_OK) {
            ngx_http_modelgw_budget_window(w->ledger, slot, change->window,
                                           &pending);
        }
    }

    return pending.n ? ngx_http_modelgw_budget_find(w->ledger, w->path,
                                                    &w->shared->file, &pending,
                                                    &w->error)
                     : NGX_OK;
}


/* A change of a key, in shared memory, before the request is answered. */

static void
ngx_http_modelgw_batch_publish(ngx_http_modelgw_writer_t *w,
    ngx_modelgw_change_t *change)
{
    ngx_modelgw_managed_t  *m;

    m = w->shared->managed;

    if (m == NULL) {
        return;
    }

    switch (change->kind) {

    case NGX_MODELGW_CHANGE_KEY_NEW:
        (void) ngx_modelgw_managed_put(m, &change->key);
        break;

    case NGX_MODELGW_CHANGE_KEY_SET:
        ngx_modelgw_managed_update(m, &change->key);
        break;

    case NGX_MODELGW_CHANGE_KEY_ROTATE:
        (void) ngx_modelgw_managed_rotate(m, &change->key, change->until);
        break;

    case NGX_MODELGW_CHANGE_KEY_REVOKE:
        ngx_modelgw_managed_revoke(m, &change->key.id);
        break;

    default:
        break;
    }
}


/*
 * A commit that failed may be on the disk: its changes are written again, and
 * are not answered until then.
 */

static void
ngx_http_modelgw_batch_failed(ngx_http_modelgw_writer_t *w)
{
    ngx_uint_t             i;
    ngx_modelgw_change_t  *change;

    i = 0;

    for ( ;; ) {
        change = ngx_modelgw_ledger_change_asked(w->ledger, &i);
        if (change == NULL) {
            return;
        }

        if (change->tried) {
            continue;
        }

        ngx_modelgw_ledger_change_answer(w->ledger, change,
                                        NGX_MODELGW_CHANGE_FAILED);
    }
}


static ngx_uint_t
ngx_http_modelgw_batch_more(ngx_http_modelgw_writer_t *w)
{
    return ngx_modelgw_ledger_done_count(w->ledger)
           >= NGX_HTTP_MODELGW_BATCH_CALLS
           || ngx_modelgw_ledger_stored(w->ledger)
              < ngx_modelgw_ledger_accounts(w->ledger);
}
