
/*
 * What the files of the ledger share: its layout.
 *
 *     ledger.c         layout, accounts, keys
 *     ledger_call.c    calls, from open to settle
 *     ledger_worker.c  who takes part, and the calls of those who died
 *     ledger_queue.c   what the writer is given, and its waiting
 *     ledger_topup.c   top-ups
 */


#ifndef _NGX_MODELGW_LEDGER_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_LEDGER_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_redo.h"


/* what the futex of the writer says */

#define NGX_MODELGW_WRITER_BUSY     0
#define NGX_MODELGW_WRITER_WAITS    1
#define NGX_MODELGW_WRITER_CALLED   2


/*
 * Who takes part.  "used" is set and cleared by the owner of "life", which is
 * held until its thread ends: used, and free to be locked, is dead.
 */

typedef struct {
    pthread_mutex_t                life;
    uint64_t                       used;
} ngx_modelgw_ledger_worker_t;


/*
 * A call in a ring: the slot, and the call that it had.
 *
 * The ring of those DONE has room for each slot once, and a slot is in it once:
 * the writer takes it out as it frees it, in one step.
 *
 * The ring of those whose holds are to be stored has room for each twice, and
 * one more.  Only calls that were SENT get here, so who gives calls up before
 * that cannot fill it.  Of calls that are not freed there is at most one a
 * slot.  The others were freed by the writer: they were in this ring when it
 * counted them as DONE, and what is here when it counts for a batch it takes
 * out in the next one, before it frees anything more.  So of these, too, there
 * is at most one a slot.
 *
 * Writers that are killed one after the other, each behind its first batch,
 * could fill it all the same: what has no room then is not stored as a hold,
 * only as a call.
 */

typedef struct {
    uint64_t                       id;
    uint64_t                       slot;
} ngx_modelgw_ledger_entry_t;


typedef struct {
    uint64_t                       head; /* how many were taken out, ever */
    uint64_t                       tail; /* how many were put in */
    uint64_t                       size;
    ngx_modelgw_ledger_entry_t    *entries;
} ngx_modelgw_ledger_ring_t;


/* Accounts or keys by their names: chains of records that never move. */

typedef struct {
    uint64_t                       n;    /* records in use */
    uint64_t                       max;  /* and as many chains */
    uint64_t                      *chains; /* NONE, or the first record */
    u_char                        *records;
    size_t                         size; /* of a record */
    size_t                         name; /* where it is in it */
    size_t                         next;
} ngx_modelgw_ledger_table_t;


struct ngx_modelgw_ledger_s {
    ngx_modelgw_redo_t             redo;

    /* under its mutex */

    uint64_t                       id;   /* of the next call */
    uint64_t                       free; /* first free slot, or NONE */
    uint64_t                       fresh; /* slots from here on were never
                                            used, and are not in the list */
    uint64_t                       max;  /* slots */
    ngx_modelgw_call_t            *calls;

    ngx_modelgw_ledger_ring_t      done;
    ngx_modelgw_ledger_ring_t      held;

    ngx_modelgw_ledger_table_t     accounts;
    ngx_modelgw_ledger_table_t     keys;
    uint64_t                       generation;
    uint64_t                       rover; /* keys below are not to be had */

    uint64_t                       credit;
    uint64_t                       topup_time; /* of the last one */

    /* a word each, without the mutex */

    uint64_t                       stored;
    uint64_t                       writable;
    uint64_t                       flush; /* when it began; 0: there is none */
    uint32_t                       writer_waits; /* a futex */

    pthread_mutex_t                writer;

    uint64_t                       nworkers;
    uint64_t                       joined; /* workers from here on were never
                                              used */
    ngx_modelgw_ledger_worker_t   *workers;
    ngx_modelgw_topup_t            topups[NGX_MODELGW_LEDGER_TOPUPS];
};


#define ngx_modelgw_ledger_load(word)  __atomic_load_n(word, __ATOMIC_ACQUIRE)


/* The top-ups of a worker that goes; the caller has the mutex. */
void ngx_modelgw_ledger_topups_forget_locked(ngx_modelgw_ledger_t *l,
    uint32_t worker);

/* a + b, or the end of the range that it would be behind */

static ngx_inline int64_t
ngx_modelgw_ledger_sum(int64_t a, int64_t b)
{
    int64_t  sum;

    if (__builtin_add_overflow(a, b, &sum)) {
        return (b < 0) ? INT64_MIN : INT64_MAX;
    }

    return sum;
}


/* An entry more; it is there when the caller has committed. */

static ngx_inline void
ngx_modelgw_ledger_push_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_ledger_ring_t *ring, ngx_modelgw_call_t *call)
{
    ngx_modelgw_ledger_entry_t  *e;

    if (ring->tail - ngx_modelgw_ledger_load(&ring->head) >= ring->size) {
        return;
    }

    e = &ring->entries[ring->tail % ring->size];
    e->id = call->id;
    e->slot = call - l->calls;

    ngx_modelgw_redo_add(&l->redo, &ring->tail, ring->tail + 1);
}


/* A slot that is in no list gets into that of free ones; as above. */

static ngx_inline void
ngx_modelgw_ledger_free_locked(ngx_modelgw_ledger_t *l, uint64_t slot)
{
    l->calls[slot].next = l->free;

    ngx_modelgw_redo_add(&l->redo, &l->free, slot);
}


#endif /* _NGX_MODELGW_LEDGER_PRIVATE_H_INCLUDED_ */
