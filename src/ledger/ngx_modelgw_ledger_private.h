
/*
 * The layout of the ledger, for ngx_modelgw_ledger.c and
 * ngx_modelgw_ledger_queue.c only.
 */


#ifndef _NGX_MODELGW_LEDGER_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_LEDGER_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_redo.h"
#include "ngx_modelgw_share.h"


/*
 * A worker.  "used" is changed only by the owner of "life", which is held
 * until the thread ends: if it is used, and "life" can be locked, it is dead.
 */

typedef struct {
    pthread_mutex_t                life;
    uint64_t                       used;
    uint64_t                       generation; /* when it joined */
} ngx_modelgw_ledger_worker_t;


/*
 * An entry of a ring: a slot, and the call that it had.
 *
 * The ring of calls that are DONE has room for each slot once, and a slot is in
 * it once: the writer removes and frees it in one step.
 *
 * The ring of calls whose holds are to be stored has room for each slot twice,
 * and one more.  Only calls that were SENT are added, so calls that end before
 * cannot fill it.  Of calls that are not freed there is at most one per slot.
 * The others were freed by the writer: they were in this ring when it counted
 * them as DONE, and what is in it when the writer counts for a batch is removed
 * in the next one, before it frees anything more.  So of these, too, there is
 * at most one per slot.
 *
 * Writers that are killed one after another, each after its first batch, could
 * fill it nevertheless: what has no room then is not stored as a hold, only as
 * a call.
 */

typedef struct {
    uint64_t                       id;
    uint64_t                       slot;
} ngx_modelgw_ledger_entry_t;


typedef struct {
    uint64_t                       head; /* entries removed so far */
    uint64_t                       tail; /* entries added so far */
    uint64_t                       size;
    ngx_modelgw_ledger_entry_t    *entries;
} ngx_modelgw_ledger_ring_t;


/* Accounts or keys by name: hash chains of records that never move. */

typedef struct {
    uint64_t                       n;    /* records in use */
    uint64_t                       max;  /* records, and chains */
    uint64_t                      *chains; /* the first record, or NONE */
    u_char                        *records;
    size_t                         size; /* bytes of a record */
    size_t                         name; /* offsets in a record */
    size_t                         next;
} ngx_modelgw_ledger_table_t;


struct ngx_modelgw_ledger_s {
    ngx_modelgw_redo_t             redo;

    /* protected by its mutex */

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
    uint64_t                       rover; /* keys below cannot be reused */
    uint64_t                       budgets; /* 1: a key has had one */

    uint64_t                       credit;
    uint64_t                       change_time; /* ms, of the last one */
    uint64_t                       reserved; /* accounts that pending changes
                                                may open */
    ngx_modelgw_shares_t          *shares; /* NULL without a cluster */

    /* one word each, used without the mutex */

    uint64_t                       stored;
    uint64_t                       writable;
    uint64_t                       flush; /* ms, when it began; 0: none runs */
    uint32_t                       writer_waits; /* a futex */

    pthread_mutex_t                writer;

    uint64_t                       nworkers;
    uint64_t                       joined; /* workers from here on were never
                                              used */
    ngx_modelgw_ledger_worker_t   *workers;
    ngx_modelgw_change_t           changes[NGX_MODELGW_LEDGER_CHANGES];
};


/* ledger.c */

/* The index of an account, or NONE. */
uint32_t ngx_modelgw_ledger_account_find_locked(ngx_modelgw_ledger_t *l,
    ngx_str_t *name);

/*
 * Adds an account that does not exist, when the caller commits; there must be
 * room.  opened: seconds since the Epoch; stored: it is in the store.
 */
void ngx_modelgw_ledger_account_add_locked(ngx_modelgw_ledger_t *l,
    ngx_str_t *name, int64_t founding, uint64_t opened, ngx_uint_t stored);


/* ledger_change.c */

/* The changes of a worker that leaves lose their owner. */
void ngx_modelgw_ledger_changes_forget_locked(ngx_modelgw_ledger_t *l,
    uint32_t worker);


#define ngx_modelgw_ledger_load(word)  __atomic_load_n(word, __ATOMIC_ACQUIRE)


/* a + b, or the end of the range in case of overflow */

static ngx_inline int64_t
ngx_modelgw_ledger_sum(int64_t a, int64_t b)
{
    int64_t  sum;

    if (__builtin_add_overflow(a, b, &sum)) {
        return (b < 0) ? INT64_MIN : INT64_MAX;
    }

    return sum;
}


#endif /* _NGX_MODELGW_LEDGER_PRIVATE_H_INCLUDED_ */
