
/*
 * What the ledger gives the writer: calls that are DONE, calls whose holds are
 * to be stored, new accounts; how it waits for them, and becomes the writer.
 *
 * Only the writer takes entries out of the rings, so it looks at them without
 * the mutex: what is between head and tail stays.  What a call of which there
 * is only an entry left says meanwhile is another's.
 *
 * A batch is made so: count; store; commit; then _noted(), and only then
 * _written(): who gets a slot that is freed finds room in the ring of holds
 * (ledger_private.h).
 *
 * A writer may be killed between its commit and _written() or _noted().  The
 * next one is given the same entries again: to store them once more changes
 * nothing.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <linux/futex.h>
#include <sys/syscall.h>

#include "ngx_modelgw_ledger_private.h"


/* freed in one step: a word each, and two for the ring and the list */

#define NGX_MODELGW_LEDGER_BATCH  (NGX_MODELGW_REDO_WORDS - 2)


static ngx_modelgw_ledger_entry_t *ngx_modelgw_ledger_entry(
    ngx_modelgw_ledger_ring_t *ring, uint64_t i);
static ngx_uint_t ngx_modelgw_ledger_count(ngx_modelgw_ledger_ring_t *ring);
static void ngx_modelgw_ledger_written_locked(ngx_modelgw_ledger_t *l,
    ngx_uint_t n);
static ngx_uint_t ngx_modelgw_ledger_idle(ngx_modelgw_ledger_t *l);
static void ngx_modelgw_ledger_futex_wait(uint32_t *word, uint32_t value,
    ngx_msec_t timeout);


/*
 * The writer before us may have died in a change that is committed and not yet
 * made, of the rings that we look at without the mutex: it is made here.
 */

uint64_t
ngx_modelgw_ledger_elect(ngx_modelgw_ledger_t *l)
{
    uint64_t  hung;

    ngx_modelgw_redo_mutex_lock(&l->writer);

    /* the dead do not flush; what hung does so until our first flush is over */

    hung = ngx_modelgw_ledger_hung(l);

    if (hung == 0) {
        ngx_modelgw_ledger_flushing(l, 0);
    }

    ngx_modelgw_redo_lock(&l->redo);
    ngx_modelgw_redo_unlock(&l->redo);

    return hung;
}


void
ngx_modelgw_ledger_resign(ngx_modelgw_ledger_t *l)
{
    ngx_modelgw_redo_mutex_unlock(&l->writer);
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


/* The ring is written in its order: what is before the n-th is durable, too. */

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


/* They get into the list of free slots as a chain, the oldest first. */

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
 * That the hold may be stored is set here, before it is: a writer that is
 * killed behind its commit leaves a call that says so, and not a hold that
 * nobody takes away.  So what is to be stored is decided here, and not by who
 * looks at the call again.
 *
 * The call was SENT as its entry got here.  If it is so still, it stays in its
 * slot until we free it ourselves.  Else there may be another one in the slot
 * by now, at any point of its life: the state is looked at first, and the id is
 * not older than that.
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
    return !ngx_modelgw_ledger_failed(l) && !ngx_modelgw_ledger_hung(l);
}


ngx_uint_t
ngx_modelgw_ledger_failed(ngx_modelgw_ledger_t *l)
{
    return !ngx_modelgw_ledger_load(&l->writable);
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


/* The clock is asked only while there is a flush. */

uint64_t
ngx_modelgw_ledger_hung(ngx_modelgw_ledger_t *l)
{
    uint64_t  now, start;

    start = ngx_modelgw_ledger_load(&l->flush);

    if (start == 0) {
        return 0;
    }

    now = ngx_modelgw_ledger_clock();

    return (now > start && now - start > NGX_MODELGW_LEDGER_HUNG) ? now - start
                                                                  : 0;
}


void
ngx_modelgw_ledger_set_writable(ngx_modelgw_ledger_t *l, ngx_uint_t on)
{
    __atomic_store_n(&l->writable, on ? 1 : 0, __ATOMIC_RELEASE);
}


/*
 *     BUSY    the writer is at work
 *     WAITS   it sleeps, or is about to
 *     CALLED  there is something that it may not have seen
 *
 * Who has made something stores it, then looks at the word; the writer stores
 * the word, then looks for something.  With a fence between the two on either
 * side, at least one of them sees the other.  CALLED stays until the writer
 * comes here: a call is not lost on one that is just about to wait, and of many
 * calls only the first stores anything.
 */

void
ngx_modelgw_ledger_wait(ngx_modelgw_ledger_t *l, ngx_msec_t timeout)
{
    uint32_t  word;

    word = NGX_MODELGW_WRITER_BUSY;

    if (__atomic_compare_exchange_n(&l->writer_waits, &word,
                                    NGX_MODELGW_WRITER_WAITS, 0,
                                    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
        || word == NGX_MODELGW_WRITER_WAITS)
    {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);

        if (ngx_modelgw_ledger_idle(l)) {
            ngx_modelgw_ledger_futex_wait(&l->writer_waits,
                                          NGX_MODELGW_WRITER_WAITS, timeout);
        }
    }

    (void) __atomic_exchange_n(&l->writer_waits, NGX_MODELGW_WRITER_BUSY,
                               __ATOMIC_SEQ_CST);
}


void
ngx_modelgw_ledger_wake(ngx_modelgw_ledger_t *l)
{
    uint32_t  word;

    __atomic_thread_fence(__ATOMIC_SEQ_CST);

    word = __atomic_load_n(&l->writer_waits, __ATOMIC_RELAXED);

    if (word == NGX_MODELGW_WRITER_CALLED) {
        return;
    }

    word = __atomic_exchange_n(&l->writer_waits, NGX_MODELGW_WRITER_CALLED,
                               __ATOMIC_SEQ_CST);

    if (word == NGX_MODELGW_WRITER_WAITS) {
        (void) syscall(SYS_futex, &l->writer_waits, FUTEX_WAKE, 1, NULL, NULL,
                       0);
    }
}


static ngx_uint_t
ngx_modelgw_ledger_idle(ngx_modelgw_ledger_t *l)
{
    ngx_uint_t  i;

    i = 0;

    return ngx_modelgw_ledger_count(&l->done) == 0
           && ngx_modelgw_ledger_count(&l->held) == 0
           && ngx_modelgw_ledger_accounts(l) <= ngx_modelgw_ledger_stored(l)
           && ngx_modelgw_ledger_topup_asked(l, &i) == NULL;
}


/*
 * Returns for any reason: the time, a signal, another value, a waker; and never
 * waits longer than that, as a waker may be killed before it wakes.  A signal
 * makes it shorter, which the caller sees by finding nothing.
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
