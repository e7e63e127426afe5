
/*
 * A flush of the writer: one transaction of the store, then its effects in
 * shared memory.
 *
 * Calls that are DONE are counted before the accounts, so that the batch
 * includes the accounts of these calls.  New accounts are written first, and
 * alone as long as they fill a batch.
 *
 * Short calls need no hold in the store: holds are stored only of calls that
 * had been sent at the previous flush and are still open.  So a flush may
 * check holds without writing a row: the transaction begins with the first
 * row.
 *
 * Only the writer frees the slot of a call that was sent, so records that are
 * being stored do not change, except that a call may end.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_managed.h"
#include "ngx_modelgw_redo.h"
#include "ngx_modelgw_store.h"
#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_BATCH_ACCOUNTS  10000  /* at most */
#define NGX_HTTP_MODELGW_BATCH_CALLS     1000   /* at most */


typedef struct {
    ngx_uint_t             done;
    ngx_uint_t             held;
    ngx_uint_t             due;              /* holds for the next batch */
    ngx_uint_t             begun;            /* 1: the transaction has begun */
    ngx_uint_t             refill;           /* 1: of the table of keys */
    ngx_uint_t             job;              /* 1: the exchanger's, too */
    uint32_t               first;            /* new account */
    uint32_t               last;             /* new account, exclusive */
    ngx_uint_t             n;                /* number of changes */
    ngx_modelgw_change_t  *changes[NGX_MODELGW_LEDGER_CHANGES];
    ngx_modelgw_change_e   results[NGX_MODELGW_LEDGER_CHANGES];
} ngx_http_modelgw_batch_t;


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
static ngx_int_t ngx_http_modelgw_batch_job(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_int_t ngx_http_modelgw_batch_effect(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static ngx_int_t ngx_http_modelgw_batch_budgets(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static void ngx_http_modelgw_batch_durable(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b);
static void ngx_http_modelgw_batch_publish(ngx_http_modelgw_writer_t *w,
    ngx_modelgw_change_t *change);


ngx_int_t
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

    if (w->cluster && !w->windows
        && ngx_http_modelgw_journal_windows(w) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_modelgw_batch_fill(w, &b);

    /* what a batch that has failed has added */

    ngx_modelgw_fresh_durable(&w->fresh, 0);

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

    if (ngx_http_modelgw_batch_effect(w, &b) != NGX_OK) {
        return NGX_ERROR;
    }

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

    w->next_check = now + NGX_HTTP_MODELGW_WRITER_CHECK;

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

    if (w->cluster) {
        ngx_modelgw_journal_written(w->store, ngx_modelgw_fresh_add,
                                    &w->fresh);
    }

    return NGX_OK;
}


static void
ngx_http_modelgw_batch_fill(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_uint_t  held;

    held = ngx_modelgw_ledger_held_count(w->ledger);

    /* the accounts of its leases are counted after it, and written before */

    b->job = (w->cluster && ngx_http_modelgw_journal_asked(w));

    b->done = ngx_min(ngx_modelgw_ledger_done_count(w->ledger),
                      NGX_HTTP_MODELGW_BATCH_CALLS);
    b->held = ngx_min(w->due, NGX_HTTP_MODELGW_BATCH_CALLS);
    b->due = held - b->held;
    b->begun = 0;
    b->refill = 0;
    b->n = 0;

    b->first = ngx_modelgw_ledger_stored(w->ledger);
    b->last = ngx_modelgw_ledger_accounts(w->ledger);

    if (b->last - b->first > NGX_HTTP_MODELGW_BATCH_ACCOUNTS) {
        b->last = b->first + NGX_HTTP_MODELGW_BATCH_ACCOUNTS;
        b->done = 0;
        b->held = 0;
        b->due = w->due;
        b->job = 0;
        return;
    }

    /* those of a cluster are made in its database, and come from there */

    if (w->cluster == NULL) {
        ngx_http_modelgw_batch_fill_changes(w, b);
    }
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
        || ngx_http_modelgw_batch_calls(w, b) != NGX_OK
        || ngx_http_modelgw_batch_job(w, b) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!b->begun) {
        return NGX_OK;
    }

    for (i = 0; i < b->n; i++) {

        if (b->results[i] == NGX_MODELGW_CHANGE_MADE) {
            ngx_modelgw_ledger_change_tried(b->changes[i]);
        }
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


/*
 * A change of a key that was tried before may be durable already.  It is read
 * as the key is now, after later changes of the same batch: the table is filled
 * again then, and none of them is published one by one, but revocations: they
 * are final, and drop records of limits, too.
 */

static ngx_int_t
ngx_http_modelgw_batch_changes(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_uint_t  i, keys;

    keys = ngx_http_modelgw_batch_keys(w, b);

    for (i = 0; i < b->n; i++) {

        if (ngx_http_modelgw_batch_adds_key(b->changes[i])
            && !b->changes[i]->tried)
        {
            if (keys == 0) {
                b->results[i] = NGX_MODELGW_CHANGE_FULL;
                continue;
            }

            keys--;
        }

        if (b->changes[i]->kind >= NGX_MODELGW_CHANGE_KEY_NEW
            && b->changes[i]->tried
            && w->shared->managed)
        {
            b->refill = 1;
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


/* without grace the place of the former secret is used */

static ngx_uint_t
ngx_http_modelgw_batch_adds_key(ngx_modelgw_change_t *change)
{
    return change->kind == NGX_MODELGW_CHANGE_KEY_NEW
           || (change->kind == NGX_MODELGW_CHANGE_KEY_ROTATE && change->until);
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

        if (w->cluster) {
            ngx_modelgw_lease_used(w->ledger, call, call->ended);
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_batch_job(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    if (!b->job) {
        return NGX_OK;
    }

    return (ngx_http_modelgw_batch_begin(w, b) == NGX_OK
            && ngx_http_modelgw_journal_write(w) == NGX_OK)
           ? NGX_OK : NGX_ERROR;
}


/* What is durable takes effect; no configuration gives budgets meanwhile. */

static ngx_int_t
ngx_http_modelgw_batch_effect(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_int_t  rc;

    if (b->n == 0) {
        ngx_http_modelgw_batch_durable(w, b);

        if (!b->job) {
            return NGX_OK;
        }
    }

    ngx_modelgw_redo_mutex_lock(&w->shared->budgets);

    if (b->job) {
        rc = ngx_http_modelgw_journal_publish(w);

        ngx_modelgw_redo_mutex_unlock(&w->shared->budgets);

        return rc;
    }

    rc = ngx_http_modelgw_batch_budgets(w, b);

    if (rc == NGX_OK && b->refill) {
        rc = ngx_http_modelgw_zone_keys_fill(w->shared->managed, w->store);

        if (rc != NGX_OK) {
            ngx_modelgw_store_error(w->store, &w->error);
        }
    }

    if (rc == NGX_OK) {
        ngx_http_modelgw_batch_durable(w, b);
    }

    ngx_modelgw_redo_mutex_unlock(&w->shared->budgets);

    return rc;
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


static void
ngx_http_modelgw_batch_durable(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_batch_t *b)
{
    ngx_uint_t  i;

    if (b->last != b->first) {
        ngx_modelgw_ledger_set_stored(w->ledger, b->last);
    }

    for (i = 0; i < b->n; i++) {

        if (b->results[i] == NGX_MODELGW_CHANGE_MADE
            && (!b->refill
                || b->changes[i]->kind == NGX_MODELGW_CHANGE_KEY_REVOKE))
        {
            ngx_http_modelgw_batch_publish(w, b->changes[i]);
        }

        ngx_modelgw_ledger_change_answer(w->ledger, b->changes[i],
                                         b->results[i]);
    }

    /* before they count as durable: the exchanger expects them here then */

    ngx_modelgw_fresh_durable(&w->fresh, 1);

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
 * A change of a key, in shared memory, before the request is answered.  There
 * is a place for a key that is added: see batch_keys().
 */

static void
ngx_http_modelgw_batch_publish(ngx_http_modelgw_writer_t *w,
    ngx_modelgw_change_t *change)
{
    ngx_str_t               id;
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

        id.len = change->key.id.len;
        id.data = change->key.id.data;

        ngx_modelgw_ledger_key_drop(w->ledger, &id);
        break;

    default:
        break;
    }
}


/*
 * A commit that failed may be on the disk: its changes are written again, and
 * are not answered until then.
 */

void
ngx_http_modelgw_batch_failed(ngx_http_modelgw_writer_t *w)
{
    ngx_uint_t             i;
    ngx_modelgw_change_t  *change;

    if (w->cluster) {
        ngx_http_modelgw_journal_failed(w);
        return;
    }

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


ngx_uint_t
ngx_http_modelgw_batch_more(ngx_http_modelgw_writer_t *w)
{
    return ngx_modelgw_ledger_done_count(w->ledger)
           >= NGX_HTTP_MODELGW_BATCH_CALLS
           || ngx_modelgw_ledger_stored(w->ledger)
              < ngx_modelgw_ledger_accounts(w->ledger)
           || (w->cluster && ngx_http_modelgw_journal_asked(w));
}
