
/*
 * Processes around the ledger: the writer and its queues, workers that join,
 * leave and die.
 *
 * The writer is given calls that are DONE, calls whose holds are to be stored,
 * new accounts, and changes.  Only the writer takes entries out of the rings,
 * so it reads them without the mutex: what is between head and tail stays.  If
 * an entry's call has ended meanwhile, its slot may hold another call.
 *
 * The order of a batch is: count; store; commit; _noted(); and only then
 * _written(): a call that gets a freed slot finds room in the ring of holds
 * (ngx_modelgw_ledger_private.h).
 *
 * A writer may be killed between its commit and _written() or _noted().  The
 * next one is given the same entries again: storing them twice changes nothing.
 *
 * A worker holds a mutex for as long as its thread lives, and the kernel
 * releases it when the thread dies: whether a worker lives is found by trying
 * to lock that mutex, which never waits.  The process that gets it sweeps up;
 * if that one is killed too, the next gets it and continues with what is left.
 *
 * Rejected: pids (they are reused), heartbeats (a worker that is stopped or
 * swapped out would be taken for dead, and its calls ended twice).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <linux/futex.h>
#include <sys/syscall.h>

#include "ngx_modelgw_ledger_private.h"


/* values of a futex, see ngx_modelgw_ledger_wait() */

#define NGX_MODELGW_WRITER_BUSY    0
#define NGX_MODELGW_WRITER_WAITS   1
#define NGX_MODELGW_WRITER_CALLED  2

/* calls freed in one step: a word each, and two for the ring and the list */

#define NGX_MODELGW_LEDGER_BATCH   (NGX_MODELGW_REDO_WORDS - 2)


static void ngx_modelgw_ledger_written_locked(ngx_modelgw_ledger_t *l,
    ngx_uint_t n);
static ngx_uint_t ngx_modelgw_ledger_count(ngx_modelgw_ledger_ring_t *ring);
static ngx_modelgw_ledger_entry_t *ngx_modelgw_ledger_entry(
    ngx_modelgw_ledger_ring_t *ring, uint64_t i);
static ngx_inline void ngx_modelgw_ledger_sleep(ngx_modelgw_ledger_t *l,
    uint32_t *waits, ngx_uint_t (*idle)(ngx_modelgw_ledger_t *l),
    ngx_msec_t timeout);
static ngx_inline void ngx_modelgw_ledger_rouse(uint32_t *waits);
static ngx_uint_t ngx_modelgw_ledger_idle(ngx_modelgw_ledger_t *l);
static void ngx_modelgw_ledger_futex_wait(uint32_t *word, uint32_t value,
    ngx_msec_t timeout);
static ngx_uint_t ngx_modelgw_ledger_dead(ngx_modelgw_ledger_t *l,
    uint32_t worker);
static ngx_uint_t ngx_modelgw_ledger_end_call(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, uint32_t worker, ngx_modelgw_end_e end,
    uint64_t time, ngx_modelgw_ledger_ended_t *ended);


/*
 * The previous writer may have died in a change of the rings that is committed
 * and not yet applied: it is applied here, as we read them without the mutex.
 */

uint64_t
ngx_modelgw_ledger_elect(ngx_modelgw_ledger_t *l)
{
    uint64_t  stalled;

    ngx_modelgw_redo_mutex_lock(&l->writer);

    /* a dead writer does not flush; a stalled flush ends with our first one */

    stalled = ngx_modelgw_ledger_stalled(l);

    if (stalled == 0) {
        ngx_modelgw_ledger_flushing(l, 0);
    }

    ngx_modelgw_redo_lock(&l->redo);
    ngx_modelgw_redo_unlock(&l->redo);

    return stalled;
}


void
ngx_modelgw_ledger_resign(ngx_modelgw_ledger_t *l)
{
    ngx_modelgw_redo_mutex_unlock(&l->writer);
}


/* The ring is written in order: what is before the n-th is durable, too. */

uint64_t
ngx_modelgw_ledger_done_ever(ngx_modelgw_ledger_t *l)
{
    return ngx_modelgw_ledger_load(&l->done.tail);
}


ngx_uint_t
ngx_modelgw_ledger_durable(ngx_modelgw_ledger_t *l, uint64_t n)
{
    return ngx_modelgw_ledger_load(&l->done.head) >= n
           && ngx_modelgw_ledger_stored(l) >= ngx_modelgw_ledger_accounts(l);
}


ngx_modelgw_call_t *
ngx_modelgw_ledger_done(ngx_modelgw_ledger_t *l, ngx_uint_t i)
{
    ngx_modelgw_ledger_entry_t  *e;

    e = ngx_modelgw_ledger_entry(&l->done, i);

    return e ? &l->calls[e->slot] : NULL;
}


void
ngx_modelgw_ledger_written(ngx_modelgw_ledger_t *l, ngx_uint_t n)
{
    ngx_uint_t  k;

    n = ngx_min(n, ngx_modelgw_ledger_count(&l->done));

    while (n) {
        k = ngx_min(n, NGX_MODELGW_LEDGER_BATCH);

        ngx_modelgw_redo_lock(&l->redo);
        ngx_modelgw_ledger_written_locked(l, k);
        ngx_modelgw_redo_unlock(&l->redo);

        n -= k;
    }
}


/* They are added to the list of free slots as a chain, the oldest first. */

static void
ngx_modelgw_ledger_written_locked(ngx_modelgw_ledger_t *l, ngx_uint_t n)
{
    uint64_t             slot, next;
    ngx_uint_t           i;
    ngx_modelgw_call_t  *call;

    next = l->free;

    for (i = n; i-- > 0; /* void */ ) {
        slot = ngx_modelgw_ledger_entry(&l->done, i)->slot;
        call = &l->calls[slot];

        call->next = next;
        next = slot;

        ngx_modelgw_redo_add(&l->redo, &call->state, NGX_MODELGW_CALL_FREE);
    }

    ngx_modelgw_redo_add(&l->redo, &l->free, next);
    ngx_modelgw_redo_add(&l->redo, &l->done.head, l->done.head + n);

    ngx_modelgw_redo_commit(&l->redo);
}


/*
 * That the hold may be stored is set here, before it is: if the writer is
 * killed after its commit, the call says so, and its hold will be deleted.  So
 * what is to be stored is decided here, and the call is not looked at again.
 *
 * The call was SENT when its entry was added.  If it still is, it stays in its
 * slot until the writer frees it.  Otherwise the slot may have another call by
 * now, in any state: the state is read first, and the id is not older than
 * that.
 */

ngx_modelgw_call_t *
ngx_modelgw_ledger_held(ngx_modelgw_ledger_t *l, ngx_uint_t i, uint64_t *id)
{
    ngx_modelgw_call_t          *call;
    ngx_modelgw_ledger_entry_t  *e;

    *id = 0;

    e = ngx_modelgw_ledger_entry(&l->held, i);

    if (e == NULL) {
        return NULL;
    }

    call = &l->calls[e->slot];

    if (ngx_modelgw_ledger_load(&call->state) == NGX_MODELGW_CALL_SENT
        && __atomic_load_n(&call->id, __ATOMIC_RELAXED) == e->id)
    {
        __atomic_store_n(&call->noted, 1, __ATOMIC_RELEASE);
        *id = e->id;
    }

    return call;
}


void
ngx_modelgw_ledger_noted(ngx_modelgw_ledger_t *l, ngx_uint_t n)
{
    n = ngx_min(n, ngx_modelgw_ledger_count(&l->held));

    __atomic_store_n(&l->held.head, l->held.head + n, __ATOMIC_RELEASE);
}


ngx_uint_t
ngx_modelgw_ledger_done_count(ngx_modelgw_ledger_t *l)
{
    return ngx_modelgw_ledger_count(&l->done);
}


ngx_uint_t
ngx_modelgw_ledger_held_count(ngx_modelgw_ledger_t *l)
{
    return ngx_modelgw_ledger_count(&l->held);
}


static ngx_uint_t
ngx_modelgw_ledger_count(ngx_modelgw_ledger_ring_t *ring)
{
    uint64_t  head;

    head = ngx_modelgw_ledger_load(&ring->head);

    return ngx_modelgw_ledger_load(&ring->tail) - head;
}


static ngx_modelgw_ledger_entry_t *
ngx_modelgw_ledger_entry(ngx_modelgw_ledger_ring_t *ring, uint64_t i)
{
    i += ngx_modelgw_ledger_load(&ring->head);

    if (i >= ngx_modelgw_ledger_load(&ring->tail)) {
        return NULL;
    }

    return &ring->entries[i % ring->size];
}


uint32_t
ngx_modelgw_ledger_stored(ngx_modelgw_ledger_t *l)
{
    return ngx_modelgw_ledger_load(&l->stored);
}


void
ngx_modelgw_ledger_set_stored(ngx_modelgw_ledger_t *l, uint32_t n)
{
    __atomic_store_n(&l->stored, n, __ATOMIC_RELEASE);
}


ngx_uint_t
ngx_modelgw_ledger_writable(ngx_modelgw_ledger_t *l)
{
    if (ngx_modelgw_ledger_load(&l->barred)) {
        return 0;
    }

    /* nearly always there is no flush */

    return ngx_modelgw_ledger_load(&l->flush) == 0
           || !ngx_modelgw_ledger_stalled(l);
}


ngx_uint_t
ngx_modelgw_ledger_failed(ngx_modelgw_ledger_t *l)
{
    return ngx_modelgw_ledger_load(&l->barred) & NGX_MODELGW_BARRED_STORE;
}


void
ngx_modelgw_ledger_set_writable(ngx_modelgw_ledger_t *l, ngx_uint_t on)
{
    ngx_modelgw_ledger_bar(l, NGX_MODELGW_BARRED_STORE, !on);
}


void
ngx_modelgw_ledger_flushing(ngx_modelgw_ledger_t *l, ngx_uint_t on)
{
    if (on && ngx_modelgw_ledger_load(&l->flush)) {
        return;
    }

    __atomic_store_n(&l->flush, on ? ngx_modelgw_ledger_clock() : 0,
                     __ATOMIC_RELEASE);
}


/* The clock is read only while a flush is running. */

uint64_t
ngx_modelgw_ledger_stalled(ngx_modelgw_ledger_t *l)
{
    uint64_t  now, start;

    start = ngx_modelgw_ledger_load(&l->flush);

    if (start == 0) {
        return 0;
    }

    now = ngx_modelgw_ledger_clock();

    if (now <= start || now - start <= NGX_MODELGW_LEDGER_STALL) {
        return 0;
    }

    return now - start;
}


/*
 *     BUSY    the writer is working
 *     WAITS   it sleeps, or is about to
 *     CALLED  there is something that it may not have seen
 *
 * A process that adds something stores it, then reads the word; the writer
 * stores the word, then looks for something to do.  With a fence between the
 * two on either side, at least one of them sees the other.  CALLED stays until
 * the writer gets here: a call is not lost when it is just about to wait, and
 * of many calls only the first stores anything.
 */

void
ngx_modelgw_ledger_wait(ngx_modelgw_ledger_t *l, ngx_msec_t timeout)
{
    ngx_modelgw_ledger_sleep(l, &l->writer_waits, ngx_modelgw_ledger_idle,
                             timeout);
}


static ngx_inline void
ngx_modelgw_ledger_sleep(ngx_modelgw_ledger_t *l, uint32_t *waits,
    ngx_uint_t (*idle)(ngx_modelgw_ledger_t *l), ngx_msec_t timeout)
{
    uint32_t  word;

    word = NGX_MODELGW_WRITER_BUSY;

    if (__atomic_compare_exchange_n(waits, &word, NGX_MODELGW_WRITER_WAITS, 0,
                                    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
        || word == NGX_MODELGW_WRITER_WAITS)
    {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);

        if (idle == NULL || idle(l)) {
            ngx_modelgw_ledger_futex_wait(waits, NGX_MODELGW_WRITER_WAITS,
                                          timeout);
        }
    }

    (void) __atomic_exchange_n(waits, NGX_MODELGW_WRITER_BUSY,
                               __ATOMIC_SEQ_CST);
}


void
ngx_modelgw_ledger_wake(ngx_modelgw_ledger_t *l)
{
    ngx_modelgw_ledger_rouse(&l->writer_waits);
}


static ngx_inline void
ngx_modelgw_ledger_rouse(uint32_t *waits)
{
    uint32_t  word;

    __atomic_thread_fence(__ATOMIC_SEQ_CST);

    word = __atomic_load_n(waits, __ATOMIC_RELAXED);

    if (word == NGX_MODELGW_WRITER_CALLED) {
        return;
    }

    word = __atomic_exchange_n(waits, NGX_MODELGW_WRITER_CALLED,
                               __ATOMIC_SEQ_CST);

    if (word == NGX_MODELGW_WRITER_WAITS) {
        (void) syscall(SYS_futex, waits, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}


/* What it finds to do is in many places: it looks after each timeout, too. */

void
ngx_modelgw_exchange_wait(ngx_modelgw_ledger_t *l, ngx_msec_t timeout)
{
    ngx_modelgw_ledger_sleep(l, &l->node->waits, NULL, timeout);
}


void
ngx_modelgw_exchange_wake(ngx_modelgw_ledger_t *l)
{
    ngx_modelgw_ledger_rouse(&l->node->waits);
}


/* In a cluster the exchanger makes the changes. */

static ngx_uint_t
ngx_modelgw_ledger_idle(ngx_modelgw_ledger_t *l)
{
    ngx_uint_t  i;

    i = 0;

    return ngx_modelgw_ledger_count(&l->done) == 0
           && ngx_modelgw_ledger_count(&l->held) == 0
           && ngx_modelgw_ledger_accounts(l) <= ngx_modelgw_ledger_stored(l)
           && (l->kind == NGX_MODELGW_LEDGER_CLUSTER
               || ngx_modelgw_ledger_change_asked(l, &i) == NULL);
}


/*
 * Returns for any reason: timeout, a signal, another value, a wakeup.  There is
 * always a timeout, as a process may be killed before it wakes the writer.  A
 * signal shortens the wait: the caller then finds nothing to do.
 */

static void
ngx_modelgw_ledger_futex_wait(uint32_t *word, uint32_t value,
    ngx_msec_t timeout)
{
    struct timespec  ts;

    ts.tv_sec = timeout / 1000;
    ts.tv_nsec = (timeout % 1000) * 1000000;

    (void) syscall(SYS_futex, word, FUTEX_WAIT, value, &ts, NULL, 0);
}


ngx_int_t
ngx_modelgw_ledger_join(ngx_modelgw_ledger_t *l, uint32_t *worker)
{
    uint32_t                      i;
    ngx_int_t                     rc;
    ngx_modelgw_ledger_worker_t  *w;

    rc = NGX_DECLINED;

    ngx_modelgw_redo_lock(&l->redo);

    for (i = 0; i < l->nworkers; i++) {
        w = &l->workers[i];

        /* used: it is alive, or is dead and must be swept first */

        if (w->used || ngx_modelgw_redo_mutex_trylock(&w->life) != NGX_OK) {
            continue;
        }

        /* in this order: if we are killed in between, the sweep covers it */

        if (i >= l->joined) {
            __atomic_store_n(&l->joined, i + 1, __ATOMIC_RELEASE);
        }

        w->generation = l->generation;

        __atomic_store_n(&w->used, 1, __ATOMIC_RELEASE);

        *worker = i;
        rc = NGX_OK;
        break;
    }

    ngx_modelgw_redo_unlock(&l->redo);

    return rc;
}


void
ngx_modelgw_ledger_workers(ngx_modelgw_ledger_t *l, uint32_t *running,
    uint32_t *leaving)
{
    uint64_t                      i, joined;
    ngx_modelgw_ledger_worker_t  *w;

    *running = 0;
    *leaving = 0;

    joined = ngx_modelgw_ledger_load(&l->joined);

    for (i = 0; i < joined; i++) {
        w = &l->workers[i];

        if (!ngx_modelgw_ledger_load(&w->used)) {
            continue;
        }

        if (w->generation == ngx_modelgw_ledger_load(&l->generation)) {
            (*running)++;

        } else {
            (*leaving)++;
        }
    }
}


void
ngx_modelgw_ledger_leave(ngx_modelgw_ledger_t *l, uint32_t worker)
{
    ngx_modelgw_ledger_worker_t  *w;

    w = &l->workers[worker];

    ngx_modelgw_redo_lock(&l->redo);

    ngx_modelgw_ledger_changes_forget_locked(l, worker);
    ngx_modelgw_claims_forget_locked(l, worker);

    ngx_modelgw_redo_add(&l->redo, &w->used, 0);
    ngx_modelgw_redo_commit(&l->redo);

    ngx_modelgw_redo_mutex_unlock(&w->life);

    ngx_modelgw_redo_unlock(&l->redo);
}


ngx_uint_t
ngx_modelgw_ledger_sweep(ngx_modelgw_ledger_t *l, uint32_t self,
    uint64_t time, ngx_modelgw_ledger_ended_t *ended)
{
    uint32_t    i;
    uint64_t    joined;
    ngx_uint_t  n;

    n = 0;
    joined = ngx_modelgw_ledger_load(&l->joined);

    for (i = 0; i < joined; i++) {

        if (i == self || !ngx_modelgw_ledger_dead(l, i)) {
            continue;
        }

        n += ngx_modelgw_ledger_end_all(l, i, NGX_MODELGW_END_KILLED, time,
                                        ended);

        /* its lock is ours now: we leave for it */

        ngx_modelgw_ledger_leave(l, i);
    }

    return n;
}


/*
 * Whether the worker is used and dead; if so, the caller owns its lock.  The
 * ledger's mutex is locked first: then all that the dead worker had committed
 * is applied.
 */

static ngx_uint_t
ngx_modelgw_ledger_dead(ngx_modelgw_ledger_t *l, uint32_t worker)
{
    ngx_uint_t                    dead;
    ngx_modelgw_ledger_worker_t  *w;

    w = &l->workers[worker];

    if (!ngx_modelgw_ledger_load(&w->used)) {
        return 0;
    }

    ngx_modelgw_redo_lock(&l->redo);

    dead = (w->used && ngx_modelgw_redo_mutex_trylock(&w->life) == NGX_OK);

    ngx_modelgw_redo_unlock(&l->redo);

    return dead;
}


/*
 * Looks for the calls without the mutex, so that no other process waits: the
 * calls of a worker that is dead, or is the caller, are not changed by others.
 */

ngx_uint_t
ngx_modelgw_ledger_end_all(ngx_modelgw_ledger_t *l, uint32_t worker,
    ngx_modelgw_end_e end, uint64_t time, ngx_modelgw_ledger_ended_t *ended)
{
    uint64_t             i, fresh, state;
    ngx_uint_t           n;
    ngx_modelgw_call_t  *call;

    n = 0;
    fresh = ngx_modelgw_ledger_load(&l->fresh);

    for (i = 0; i < fresh; i++) {
        call = &l->calls[i];
        state = ngx_modelgw_ledger_load(&call->state);

        if (state == NGX_MODELGW_CALL_FREE || state == NGX_MODELGW_CALL_DONE
            || ngx_modelgw_ledger_load(&call->worker) != worker)
        {
            continue;
        }

        n += ngx_modelgw_ledger_end_call(l, call, worker, end, time, ended);
    }

    if (n) {
        ngx_modelgw_ledger_wake(l);
    }

    return n;
}


static ngx_uint_t
ngx_modelgw_ledger_end_call(ngx_modelgw_ledger_t *l, ngx_modelgw_call_t *call,
    uint32_t worker, ngx_modelgw_end_e end, uint64_t time,
    ngx_modelgw_ledger_ended_t *ended)
{
    ngx_uint_t  sent, active;

    ngx_modelgw_redo_lock(&l->redo);

    active = (call->worker == worker
              && call->state != NGX_MODELGW_CALL_FREE
              && call->state != NGX_MODELGW_CALL_DONE);

    if (active) {
        sent = (call->state == NGX_MODELGW_CALL_SENT);

        (void) ngx_modelgw_ledger_settle_locked(l, call, end, time,
                                                ngx_modelgw_ledger_clock());

        ended->charged = ngx_modelgw_ledger_sum(ended->charged,
                                                call->charge.cost);

        if (sent && ended->handler) {
            ended->handler(call, ended->data);
        }
    }

    ngx_modelgw_redo_unlock(&l->redo);

    return active;
}
