
/*
 * What the exchanger of a cluster has the writer write: leases, the row of the
 * node, top-ups, and the feed of keys and accounts that have changed.
 *
 * They are two threads of one process.  A job is copied, so that the exchanger
 * may give it up while the disk hangs, and what it says is in totals, so that
 * one that was given up may be made nevertheless, or again.
 *
 *     NONE -> ASKED -> TAKEN -> MADE, FAILED -> NONE
 *
 * A long feed is written in parts, each in a batch of its own, so that calls do
 * not wait for it.  A part has all rows of its keys, and each key changes in
 * shared memory at once, after the commit.  The version of the keys comes last,
 * there and in the journal: if a writer is killed before, the next exchanger
 * has the same feed written again.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_journal.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_managed.h"
#include "ngx_modelgw_redo.h"
#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"

#include <pthread.h>


#define NGX_HTTP_MODELGW_JOURNAL_ROWS  1000  /* of the feed, in a batch */
#define NGX_HTTP_MODELGW_JOURNAL_RUN   64    /* rows of it without a pause */
#define NGX_HTTP_MODELGW_JOURNAL_WAIT  5     /* seconds that a job may take */


static ngx_int_t ngx_http_modelgw_journal_copy(ngx_http_modelgw_job_t *job,
    ngx_http_modelgw_journal_job_t *from);
static ngx_int_t ngx_http_modelgw_journal_wait(ngx_http_modelgw_job_t *job);
static void ngx_http_modelgw_journal_forget(ngx_http_modelgw_job_t *job);
static void ngx_http_modelgw_journal_end(ngx_http_modelgw_job_t *job,
    ngx_http_modelgw_job_e state);
static ngx_uint_t ngx_http_modelgw_journal_part(ngx_http_modelgw_job_t *job);
static ngx_int_t ngx_http_modelgw_journal_budgets(ngx_http_modelgw_writer_t *w,
    ngx_modelgw_feed_t *feed, ngx_uint_t n);
static ngx_uint_t ngx_http_modelgw_journal_account(
    ngx_http_modelgw_writer_t *w, ngx_modelgw_feed_t *feed);
static ngx_uint_t ngx_http_modelgw_journal_key(ngx_http_modelgw_writer_t *w,
    ngx_modelgw_feed_t *feed, ngx_uint_t n);
static ngx_modelgw_managed_key_t *ngx_http_modelgw_journal_newest(
    ngx_modelgw_feed_t *feed, ngx_uint_t n);
static ngx_http_modelgw_main_conf_t *ngx_http_modelgw_journal_conf(
    ngx_http_modelgw_writer_t *w);


ngx_int_t
ngx_http_modelgw_journal_init(ngx_http_modelgw_job_t *job)
{
    int                 err;
    pthread_condattr_t  attr;

    ngx_memzero(job, sizeof(ngx_http_modelgw_job_t));

    job->closed = 1;

    if (pthread_mutex_init(&job->mutex, NULL) != 0
        || pthread_condattr_init(&attr) != 0)
    {
        return NGX_ERROR;
    }

    err = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);

    if (err == 0) {
        err = pthread_cond_init(&job->cond, &attr);
    }

    (void) pthread_condattr_destroy(&attr);

    return err ? NGX_ERROR : NGX_OK;
}


void
ngx_http_modelgw_journal_open(ngx_http_modelgw_job_t *job)
{
    (void) pthread_mutex_lock(&job->mutex);
    job->closed = 0;
    (void) pthread_mutex_unlock(&job->mutex);
}


void
ngx_http_modelgw_journal_close(ngx_http_modelgw_job_t *job)
{
    (void) pthread_mutex_lock(&job->mutex);

    job->closed = 1;
    ngx_http_modelgw_journal_end(job, NGX_HTTP_MODELGW_JOB_FAILED);

    (void) pthread_mutex_unlock(&job->mutex);
}


ngx_int_t
ngx_http_modelgw_writer_job(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_journal_job_t *wanted)
{
    ngx_int_t                rc;
    ngx_http_modelgw_job_t  *job;

    job = &w->job;

    (void) pthread_mutex_lock(&job->mutex);

    rc = (job->closed || w->stop) ? NGX_DECLINED : NGX_AGAIN;

    /* one that was given up may still be TAKEN */

    if (rc == NGX_AGAIN
        && job->state == NGX_HTTP_MODELGW_JOB_NONE
        && ngx_http_modelgw_journal_copy(job, wanted) == NGX_OK)
    {
        ngx_modelgw_ledger_wake(w->ledger);

        rc = ngx_http_modelgw_journal_wait(job);
    }

    (void) pthread_mutex_unlock(&job->mutex);

    return rc;
}


static ngx_int_t
ngx_http_modelgw_journal_copy(ngx_http_modelgw_job_t *job,
    ngx_http_modelgw_journal_job_t *from)
{
    size_t  asks, feed;

    asks = from->nasks * sizeof(ngx_modelgw_ask_t);
    feed = from->nfeed * sizeof(ngx_modelgw_feed_t);

    job->memory = ngx_alloc(asks + feed + 1, ngx_cycle->log);
    if (job->memory == NULL) {
        return NGX_ERROR;
    }

    job->journal = *from->journal;
    job->job.journal = &job->journal;

    job->job.nasks = from->nasks;
    job->job.asks = (ngx_modelgw_ask_t *) job->memory;

    job->job.nfeed = from->nfeed;
    job->job.feed = (ngx_modelgw_feed_t *) (job->memory + asks);

    if (asks) {
        ngx_memcpy(job->job.asks, from->asks, asks);
    }

    if (feed) {
        ngx_memcpy(job->job.feed, from->feed, feed);
    }

    job->job.topup = NULL;

    if (from->topup) {
        job->topup = *from->topup;
        job->job.topup = &job->topup;
    }

    job->fed = 0;
    job->waits = 1;
    job->state = NGX_HTTP_MODELGW_JOB_ASKED;

    return NGX_OK;
}


/* The mutex is held, but for the wait itself. */

static ngx_int_t
ngx_http_modelgw_journal_wait(ngx_http_modelgw_job_t *job)
{
    int              err;
    ngx_int_t        rc;
    struct timespec  end;

    (void) clock_gettime(CLOCK_MONOTONIC, &end);

    end.tv_sec += NGX_HTTP_MODELGW_JOURNAL_WAIT;

    err = 0;

    while (job->state <= NGX_HTTP_MODELGW_JOB_TAKEN && err == 0) {
        err = pthread_cond_timedwait(&job->cond, &job->mutex, &end);
    }

    job->waits = 0;

    if (job->state == NGX_HTTP_MODELGW_JOB_TAKEN) {
        return NGX_AGAIN;
    }

    rc = (job->state == NGX_HTTP_MODELGW_JOB_MADE) ? NGX_OK
         : job->closed ? NGX_DECLINED : NGX_AGAIN;

    ngx_http_modelgw_journal_forget(job);

    return rc;
}


static void
ngx_http_modelgw_journal_forget(ngx_http_modelgw_job_t *job)
{
    if (job->memory) {
        ngx_free(job->memory);
        job->memory = NULL;
    }

    job->state = NGX_HTTP_MODELGW_JOB_NONE;
}


void
ngx_http_modelgw_journal_free(ngx_http_modelgw_job_t *job)
{
    ngx_http_modelgw_journal_forget(job);
}


/* for the writer, which holds the mutex */

static void
ngx_http_modelgw_journal_end(ngx_http_modelgw_job_t *job,
    ngx_http_modelgw_job_e state)
{
    if (job->state != NGX_HTTP_MODELGW_JOB_ASKED
        && job->state != NGX_HTTP_MODELGW_JOB_TAKEN)
    {
        return;
    }

    if (!job->waits) {
        ngx_http_modelgw_journal_forget(job);
        return;
    }

    job->state = state;

    (void) pthread_cond_signal(&job->cond);
}


ngx_uint_t
ngx_http_modelgw_journal_asked(ngx_http_modelgw_writer_t *w)
{
    ngx_uint_t               taken;
    ngx_http_modelgw_job_t  *job;

    job = &w->job;

    (void) pthread_mutex_lock(&job->mutex);

    if (job->state == NGX_HTTP_MODELGW_JOB_ASKED) {
        job->state = NGX_HTTP_MODELGW_JOB_TAKEN;
    }

    taken = (job->state == NGX_HTTP_MODELGW_JOB_TAKEN);

    (void) pthread_mutex_unlock(&job->mutex);

    return taken;
}


void
ngx_http_modelgw_journal_failed(ngx_http_modelgw_writer_t *w)
{
    (void) pthread_mutex_lock(&w->job.mutex);

    ngx_http_modelgw_journal_end(&w->job, NGX_HTTP_MODELGW_JOB_FAILED);

    (void) pthread_mutex_unlock(&w->job.mutex);
}


/* what is TAKEN does not change: no mutex is needed */

ngx_int_t
ngx_http_modelgw_journal_write(ngx_http_modelgw_writer_t *w)
{
    ngx_str_t                        name;
    ngx_uint_t                       i;
    ngx_modelgw_ask_t               *ask;
    ngx_http_modelgw_job_t          *job;
    ngx_http_modelgw_journal_job_t  *j;

    job = &w->job;
    j = &job->job;

    job->n = ngx_http_modelgw_journal_part(job);

    if (job->n
        && ngx_modelgw_journal_feed(w->store, &j->feed[job->fed], job->n,
                                    (uint64_t) time(NULL) * 1000)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (job->fed + job->n < j->nfeed) {
        return NGX_OK;
    }

    for (i = 0; i < j->nasks; i++) {
        ask = &j->asks[i];

        name.len = ask->len;
        name.data = ask->name;

        if (ngx_modelgw_journal_lease(w->store, &name, ask->granted,
                                      ask->returned, ask->forced)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (j->topup && ngx_modelgw_journal_topup(w->store, j->topup) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_modelgw_journal_set(w->store, j->journal);
}


/* How many of the next rows: all of the last key. */

static ngx_uint_t
ngx_http_modelgw_journal_part(ngx_http_modelgw_job_t *job)
{
    ngx_uint_t           n, rest;
    ngx_modelgw_feed_t  *feed;

    n = 0;
    feed = job->job.feed + job->fed;
    rest = job->job.nfeed - job->fed;

    while (n < rest && n < NGX_HTTP_MODELGW_JOURNAL_ROWS) {
        n += ngx_modelgw_feed_rows(&feed[n], rest - n);
    }

    return n;
}


/*
 * An account is there before its keys are.  Calls that look for a key wait
 * while one is written: this thread sleeps now and then, so that it does not
 * lose its processor while it writes one.
 */

ngx_int_t
ngx_http_modelgw_journal_publish(ngx_http_modelgw_writer_t *w)
{
    ngx_uint_t                 i, n, row, full;
    ngx_modelgw_feed_t        *feed;
    ngx_http_modelgw_job_t    *job;
    ngx_modelgw_lease_node_t  *node;

    job = &w->job;
    feed = job->job.feed + job->fed;
    full = 0;

    if (job->n
        && ngx_http_modelgw_journal_budgets(w, feed, job->n) != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < job->n; i += n) {
        n = ngx_modelgw_feed_rows(&feed[i], job->n - i);

        if (i / NGX_HTTP_MODELGW_JOURNAL_RUN
            != (i + n) / NGX_HTTP_MODELGW_JOURNAL_RUN)
        {
            ngx_msleep(1);
        }

        for (row = 0; row < n; row++) {
            full += ngx_http_modelgw_journal_account(w, &feed[i + row]);
        }

        if (!feed[i].account && w->shared->managed) {
            full += ngx_http_modelgw_journal_key(w, &feed[i], n);
        }
    }

    if (full) {
        w->error.len = ngx_sprintf(w->error.data, "there is no room for %ui "
                                   "keys or accounts: see "
                                   "\"modelgw_managed_keys\" and "
                                   "\"modelgw_zone\"", full)
                       - w->error.data;

        ngx_http_modelgw_writer_report(w, NGX_HTTP_MODELGW_LINE_CLUSTER);
    }

    job->fed += job->n;

    if (job->fed < job->job.nfeed) {
        return NGX_OK;
    }

    node = ngx_modelgw_node(w->ledger);

    __atomic_store_n(&node->keys_version, job->journal.keys_version,
                     __ATOMIC_RELEASE);

    (void) pthread_mutex_lock(&job->mutex);

    ngx_http_modelgw_journal_end(job, NGX_HTTP_MODELGW_JOB_MADE);

    (void) pthread_mutex_unlock(&job->mutex);

    return NGX_OK;
}


/*
 * As for a change by an operator: what was spent of a budget is known before
 * its key is published.
 */

static ngx_int_t
ngx_http_modelgw_journal_budgets(ngx_http_modelgw_writer_t *w,
    ngx_modelgw_feed_t *feed, ngx_uint_t n)
{
    uint32_t                       slots[NGX_HTTP_MODELGW_JOURNAL_ROWS];
    ngx_uint_t                     i, rows;
    ngx_modelgw_managed_key_t     *key;
    ngx_http_modelgw_pending_t     pending;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_modelgw_journal_conf(w);

    if (mmcf == NULL || w->shared->managed == NULL) {
        return NGX_OK;
    }

    pending.slots = slots;
    pending.n = 0;
    pending.max = NGX_HTTP_MODELGW_JOURNAL_ROWS;

    for (i = 0; i < n; i += rows) {
        rows = ngx_modelgw_feed_rows(&feed[i], n - i);

        key = ngx_http_modelgw_journal_newest(&feed[i], rows);

        if (key) {
            (void) ngx_http_modelgw_zone_keys_use(mmcf, key, &pending, NULL);
        }
    }

    return pending.n ? ngx_http_modelgw_budget_find(w->ledger, w->path,
                                                    &w->shared->file, &pending,
                                                    &w->error)
                     : NGX_OK;
}


ngx_int_t
ngx_http_modelgw_journal_windows(ngx_http_modelgw_writer_t *w)
{
    ngx_int_t                   rc;
    ngx_http_modelgw_pending_t  pending;

    if (w->shared->managed == NULL
        || w->configuration != w->shared->configuration)
    {
        w->windows = 1;
        return NGX_OK;
    }

    pending.n = 0;
    pending.max = ngx_modelgw_managed_max(w->shared->managed);

    pending.slots = ngx_alloc(pending.max * sizeof(uint32_t), ngx_cycle->log);
    if (pending.slots == NULL) {
        return NGX_OK;
    }

    rc = NGX_OK;

    ngx_modelgw_redo_mutex_lock(&w->shared->budgets);

    ngx_http_modelgw_zone_keys_in_force(w->mmcf, &pending, NULL);

    if (pending.n) {
        rc = ngx_http_modelgw_budget_find(w->ledger, w->path, &w->shared->file,
                                          &pending, &w->error);
    }

    ngx_modelgw_redo_mutex_unlock(&w->shared->budgets);

    ngx_free(pending.slots);

    w->windows = (rc == NGX_OK);

    return rc;
}


/*
 * Closes or opens an account, or adds it or that of a key: its credit is lent
 * when a call needs it.  Returns 1 if there is no room.
 */

static ngx_uint_t
ngx_http_modelgw_journal_account(ngx_http_modelgw_writer_t *w,
    ngx_modelgw_feed_t *feed)
{
    uint32_t                       index;
    ngx_str_t                      name;
    ngx_uint_t                     add;
    ngx_modelgw_ledger_name_t     *account;
    ngx_modelgw_ledger_account_t  *a;

    account = feed->account ? &feed->name : &feed->key.account;
    add = feed->account || feed->key.state != NGX_MODELGW_KEY_REVOKED;

    name.len = account->len;
    name.data = account->data;

    switch (ngx_modelgw_ledger_account(w->ledger, &name, add, 0, time(NULL), 1,
                                       &index))
    {
    case NGX_DECLINED:
        return 0;

    case NGX_ERROR:
        return 1;
    }

    if (feed->account) {
        a = ngx_modelgw_ledger_account_at(w->ledger, index);

        __atomic_store_n(&a->closed, feed->closed, __ATOMIC_RELEASE);
    }

    return 0;
}


/*
 * All rows of a key.  The record of limits of one that was revoked may be used
 * for another key, unless the configuration has one of its id.  Returns 1 if
 * there is no room.
 */

static ngx_uint_t
ngx_http_modelgw_journal_key(ngx_http_modelgw_writer_t *w,
    ngx_modelgw_feed_t *feed, ngx_uint_t n)
{
    ngx_int_t                      rc;
    ngx_str_t                      id;
    ngx_modelgw_managed_t         *m;
    ngx_http_modelgw_main_conf_t  *mmcf;

    m = w->shared->managed;

    if (ngx_modelgw_managed_free(m) == 0) {
        ngx_modelgw_managed_expire(m, time(NULL));
    }

    rc = ngx_modelgw_managed_replace(m, &feed->key, sizeof(ngx_modelgw_feed_t),
                                     n);

    mmcf = ngx_http_modelgw_journal_conf(w);

    if (mmcf && ngx_http_modelgw_journal_newest(feed, n) == NULL) {
        id.len = feed->key.id.len;
        id.data = feed->key.id.data;

        if (ngx_modelgw_keys_named(mmcf->keys, &id) == NULL) {
            ngx_modelgw_ledger_key_drop(w->ledger, &id);
        }
    }

    return rc != NGX_OK;
}


/* the one that tells what the key may do; NULL: nothing, it was revoked */

static ngx_modelgw_managed_key_t *
ngx_http_modelgw_journal_newest(ngx_modelgw_feed_t *feed, ngx_uint_t n)
{
    ngx_uint_t  i;

    for (i = 0; i < n; i++) {

        if (!feed[i].account
            && feed[i].key.state == NGX_MODELGW_KEY_ACTIVE)
        {
            return &feed[i].key;
        }
    }

    return NULL;
}


/*
 * The configuration of this process; NULL: in single process mode it is freed,
 * some time after a reload.
 */

static ngx_http_modelgw_main_conf_t *
ngx_http_modelgw_journal_conf(ngx_http_modelgw_writer_t *w)
{
    return (ngx_process == NGX_PROCESS_SINGLE
            && w->configuration != w->shared->configuration)
           ? NULL : w->mmcf;
}
