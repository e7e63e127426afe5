
/*
 * The thread that writes the store.
 *
 * Every worker has one, and one of them is the writer: the others wait at a
 * robust mutex for it to end, however it ends.  It is a thread because a disk
 * that is slow, or hangs, must not hold up the event loop; the two have nothing
 * in common but shared memory and the words in ngx_http_modelgw_writer_t.
 *
 * What cannot be written stays where it is, in shared memory, and no call is
 * admitted until all is well again.  After a failure the store is opened anew
 * and the batch is written again from memory: what an fsync() that failed has
 * left of it in the page cache is not believed.  A disk that neither works nor
 * fails is seen by the workers: a flush begins and ends in shared memory.
 */


#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_ledger.h"
#include "ngx_http_modelgw_writer.h"

#include <dlfcn.h>
#include <pthread.h>


#define NGX_HTTP_MODELGW_WRITER_IDLE   1000        /* milliseconds */
#define NGX_HTTP_MODELGW_WRITER_STEP   10          /* milliseconds */
#define NGX_HTTP_MODELGW_WRITER_RETRY  100         /* milliseconds */
#define NGX_HTTP_MODELGW_WRITER_MAX    1000        /* milliseconds */

#define NGX_HTTP_MODELGW_WRITER_PATIENCE  1500     /* milliseconds, fewer than
                                                      after what it hangs */

#define NGX_HTTP_MODELGW_ROLL_UP       3600        /* seconds */
#define NGX_HTTP_MODELGW_ROLL_UP_STEP  1000        /* calls */


static ngx_int_t ngx_http_modelgw_writer_pin(void);
static void *ngx_http_modelgw_writer_thread(void *data);
static void ngx_http_modelgw_writer_flush(ngx_http_modelgw_writer_t *w,
    uint64_t now);
static ngx_int_t ngx_http_modelgw_writer_roll_up(ngx_http_modelgw_writer_t *w);
static ngx_int_t ngx_http_modelgw_writer_settle(ngx_http_modelgw_writer_t *w,
    ngx_int_t rc);
static ngx_int_t ngx_http_modelgw_writer_failed(ngx_http_modelgw_writer_t *w);
static ngx_int_t ngx_http_modelgw_writer_well(ngx_http_modelgw_writer_t *w);
static void ngx_http_modelgw_writer_pause(ngx_http_modelgw_writer_t *w,
    uint64_t start);
static void ngx_http_modelgw_writer_sleep(ngx_http_modelgw_writer_t *w,
    ngx_msec_t time);
static uint64_t ngx_http_modelgw_writer_clock(void);


static ngx_http_modelgw_writer_t  ngx_http_modelgw_writer;


ngx_int_t
ngx_http_modelgw_writer_start(ngx_cycle_t *cycle,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    size_t                      len;
    ngx_err_t                   err;
    sigset_t                    all, before;
    ngx_http_modelgw_writer_t  *w;

    w = &ngx_http_modelgw_writer;

    if (ngx_http_modelgw_writer_pin() != NGX_OK) {
        ngx_log_error(NGX_LOG_ALERT, cycle->log, 0,
                      "the module cannot be kept loaded: %s", dlerror());
        return NGX_ERROR;
    }

    /* a process that is master and worker in one outlives its cycles */

    len = mmcf->ledger_path.len + 1;

    w->path = ngx_alloc(len, cycle->log);
    if (w->path == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(w->path, mmcf->ledger_path.data, len);

    w->ledger = mmcf->ledger;
    w->shared = mmcf->shared;
    w->state = NGX_HTTP_MODELGW_WRITER_WAITS;

    /* signals are for the worker's own thread */

    sigfillset(&all);

    err = pthread_sigmask(SIG_SETMASK, &all, &before);

    if (err == 0) {
        err = pthread_create(&w->thread, NULL, ngx_http_modelgw_writer_thread,
                             w);

        (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    }

    if (err) {
        w->state = NGX_HTTP_MODELGW_WRITER_NONE;
        ngx_free(w->path);

        ngx_log_error(NGX_LOG_ALERT, cycle->log, err,
                      "the thread that writes the ledger does not start");
        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * A worker that exits destroys its cycle, and with that unloads the module,
 * under the feet of a thread that still waits to become the writer.
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

    /* linked into nginx itself it stays */

    if (module.dli_fbase == nginx.dli_fbase
        || dlopen(module.dli_fname, RTLD_NOW|RTLD_NOLOAD|RTLD_NODELETE))
    {
        return NGX_OK;
    }

    return NGX_ERROR;
}


ngx_int_t
ngx_http_modelgw_writer_stop(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_msec_t timeout)
{
    uint64_t                    end;
    ngx_int_t                   rc;
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
        rc = ngx_modelgw_ledger_durable(w->ledger, w->done) ? NGX_OK
                                                            : NGX_DECLINED;

        if (rc == NGX_OK && w->state != NGX_HTTP_MODELGW_WRITER_WRITES) {
            break;
        }

        if (ngx_http_modelgw_writer_clock() >= end) {
            break;
        }

        ngx_msleep(1);      /* on a busy machine it is longer */
    }

    /*
     * one that still waits, or hangs in the disk, ends with the process; the
     * worker leaves now, so it is not to write any more
     */

    w->stop = NGX_HTTP_MODELGW_WRITER_GONE;

    if (w->state == NGX_HTTP_MODELGW_WRITER_ENDED) {
        (void) pthread_join(w->thread, NULL);
        ngx_free(w->path);
        w->state = NGX_HTTP_MODELGW_WRITER_NONE;
    }

    return rc;
}


static void *
ngx_http_modelgw_writer_thread(void *data)
{
    ngx_http_modelgw_writer_t *w = data;

    uint64_t  start;

    /*
     * killed while a disk hung, the one before us could not say "failed"; if
     * no worker saw it hang, there was just nobody to write since it died
     */

    if (ngx_modelgw_ledger_elect(w->ledger) && w->shared->hung) {
        w->shared->doubt = 1;
    }

    w->state = NGX_HTTP_MODELGW_WRITER_WRITES;

    if (w->shared->patience == 0) {
        w->shared->patience = ngx_http_modelgw_writer_clock()
                              + NGX_HTTP_MODELGW_WRITER_PATIENCE;
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

        /* beside a reader, closing it does not move what the WAL has */

        if (ngx_modelgw_store_beside(w->store) != NGX_OK) {
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
        rc = ngx_http_modelgw_writer_roll_up(w);
    }

    if (ngx_http_modelgw_writer_settle(w, rc) != NGX_AGAIN) {
        ngx_modelgw_ledger_flushing(w->ledger, 0);
    }
}


/* NGX_AGAIN: it is tried again in a moment, and not over before */

static ngx_int_t
ngx_http_modelgw_writer_settle(ngx_http_modelgw_writer_t *w, ngx_int_t rc)
{
    if (rc != NGX_OK) {
        return ngx_http_modelgw_writer_failed(w);
    }

    w->shared->patience = 0;

    if (ngx_modelgw_ledger_failed(w->ledger)) {
        return ngx_http_modelgw_writer_well(w);
    }

    w->retry = 0;

    return NGX_OK;
}


/* A step of it between two flushes, so that calls do not wait for it. */

static ngx_int_t
ngx_http_modelgw_writer_roll_up(ngx_http_modelgw_writer_t *w)
{
    time_t      now;
    ngx_uint_t  n;

    now = time(NULL);

    if (now < w->roll_up || w->stop) {
        return NGX_OK;
    }

    if (ngx_modelgw_store_roll_up(w->store, now - (time_t) w->shared->keep,
                                  NGX_HTTP_MODELGW_ROLL_UP_STEP, &n)
        != NGX_OK)
    {
        ngx_modelgw_store_error(w->store, &w->error);
        return NGX_ERROR;
    }

    if (n < NGX_HTTP_MODELGW_ROLL_UP_STEP) {
        w->roll_up = now + NGX_HTTP_MODELGW_ROLL_UP;
    }

    return NGX_OK;
}


/*
 * Of a writer that was killed the kernel gives up the mutex first, the locks of
 * its files a moment later: a new writer is patient with locks until its first
 * flush has worked.  Should it be killed, too, the next one has what is left of
 * that time: the lock may be that of a stranger.
 *
 * A file that was removed or moved stays open: what is in it is not lost as
 * long as we live.  Nothing new is in doubt then: what is in a WAL is moved to
 * the ledger before it goes on.  Nor is it if the ledger could not be opened or
 * is locked: nothing was committed.
 */

static ngx_int_t
ngx_http_modelgw_writer_failed(ngx_http_modelgw_writer_t *w)
{
    if (w->store && !w->lost
        && ngx_modelgw_store_beside(w->store) == NGX_OK)
    {
        if (!w->error.locked) {
            w->shared->doubt = 1;
        }

        ngx_modelgw_store_close(w->store);
        w->store = NULL;
    }

    if (w->error.locked
        && ngx_http_modelgw_writer_clock() < w->shared->patience)
    {
        w->retry = NGX_HTTP_MODELGW_WRITER_STEP;
        return NGX_AGAIN;
    }

    ngx_http_modelgw_batch_failed(w);

    w->retry = ngx_min(w->retry * 2 + NGX_HTTP_MODELGW_WRITER_RETRY,
                       NGX_HTTP_MODELGW_WRITER_MAX);

    if (ngx_modelgw_ledger_failed(w->ledger)) {
        return NGX_ERROR;
    }

    ngx_modelgw_ledger_set_writable(w->ledger, 0);

    ngx_http_modelgw_writer_say(w, NGX_HTTP_MODELGW_LINE_FAILED);

    return NGX_ERROR;
}


/*
 * A flush has worked; but it may have had nothing to write, and a file system
 * that is as good as full is not well.
 */

static ngx_int_t
ngx_http_modelgw_writer_well(ngx_http_modelgw_writer_t *w)
{
    if (ngx_modelgw_store_space(w->store) != NGX_OK) {
        w->retry = NGX_HTTP_MODELGW_WRITER_MAX;
        return NGX_ERROR;
    }

    if (ngx_modelgw_store_probe(w->store) != NGX_OK) {
        ngx_modelgw_store_error(w->store, &w->error);
        return ngx_http_modelgw_writer_failed(w);
    }

    w->retry = 0;

    ngx_modelgw_ledger_set_writable(w->ledger, 1);

    ngx_http_modelgw_writer_say(w, NGX_HTTP_MODELGW_LINE_WELL);

    return NGX_OK;
}


/* What the workers have not logged meanwhile, for seconds, is not said. */

void
ngx_http_modelgw_writer_say(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_line_e what)
{
    ngx_http_modelgw_line_t    *line;
    ngx_http_modelgw_shared_t  *shared;

    shared = w->shared;

    if (shared->said - shared->logged == NGX_HTTP_MODELGW_LINES) {
        return;
    }

    line = &shared->lines[shared->said % NGX_HTTP_MODELGW_LINES];

    line->what = what;
    line->len = (what == NGX_HTTP_MODELGW_LINE_WELL) ? 0 : w->error.len;
    ngx_memcpy(line->text, w->error.data, line->len);

    ngx_memory_barrier();

    shared->said++;
}


/*
 * Until there is something to write and the flush interval, counted from the
 * start of the flush before, is over.
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

    if (w->due == 0 && w->roll_up > time(NULL) && !w->stop) {
        ngx_modelgw_ledger_wait(w->ledger, NGX_HTTP_MODELGW_WRITER_IDLE);
    }

    end = start + w->shared->flush;
    now = ngx_http_modelgw_writer_clock();

    if (now < end) {
        ngx_http_modelgw_writer_sleep(w, end - now);
    }
}


/* Until it is to stop, or the time is over. */

static void
ngx_http_modelgw_writer_sleep(ngx_http_modelgw_writer_t *w, ngx_msec_t time)
{
    ngx_msec_t  step;

    while (time && w->stop == 0) {
        step = ngx_min(time, NGX_HTTP_MODELGW_WRITER_STEP);
        ngx_msleep(step);
        time -= step;
    }
}


/* Milliseconds; the ledger's own clock has steps of several. */

static uint64_t
ngx_http_modelgw_writer_clock(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
