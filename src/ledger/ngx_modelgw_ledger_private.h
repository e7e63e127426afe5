
/*
 * The layout of the ledger, for the files of the ledger and of leases only.
 */


#ifndef _NGX_MODELGW_LEDGER_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_LEDGER_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_lease.h"
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


#define NGX_MODELGW_LEDGER_ALIGN   64

/* bytes of what a cluster has beside its leases */

#define NGX_MODELGW_LEDGER_CLUSTER_SIZE                                       \
    (sizeof(ngx_modelgw_lease_node_t)                                         \
     + NGX_MODELGW_CLAIMS * sizeof(ngx_modelgw_claim_t)                       \
     + (NGX_MODELGW_FUNDS + 3) * NGX_MODELGW_LEDGER_ALIGN)


/* Why no call is admitted: bits, each set and cleared by another thread. */

#define NGX_MODELGW_BARRED_STORE  1      /* the store cannot be written */
#define NGX_MODELGW_BARRED_NODE   2      /* the node admits none */


struct ngx_modelgw_ledger_s {
    ngx_modelgw_redo_t             redo;

    /* protected by its mutex */

    uint64_t                       id;   /* of the next call */
    uint64_t                       step; /* to the one after it */
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

    uint64_t                       kind; /* ngx_modelgw_ledger_kind_e */
    uint64_t                       change_time; /* ms, of the last one */
    uint64_t                       reserved; /* accounts that pending changes
                                                may open */
    ngx_modelgw_shares_t          *shares; /* NULL without a cluster */

    /* one word each, used without the mutex */

    uint64_t                       stored;
    uint64_t                       barred; /* NGX_MODELGW_BARRED_* */
    uint64_t                       flush; /* ms, when it began; 0: none runs */
    uint32_t                       writer_waits; /* a futex */

    pthread_mutex_t                writer;

    uint64_t                       nworkers;
    uint64_t                       joined; /* workers from here on were never
                                              used */
    ngx_modelgw_ledger_worker_t   *workers;
    ngx_modelgw_change_t           changes[NGX_MODELGW_LEDGER_CHANGES];

    /* of a cluster, else NULL */

    ngx_modelgw_lease_t           *leases[NGX_MODELGW_FUNDS];
    ngx_modelgw_claim_t           *claims;
    ngx_modelgw_lease_node_t      *node;
    uint64_t                       ticket; /* of the last claim */
};


/* ledger.c */

/* The index of an account or of a key's record, or NONE. */
uint32_t ngx_modelgw_ledger_find_locked(ngx_modelgw_ledger_table_t *t,
    ngx_str_t *name);

/*
 * Adds an account that does not exist, when the caller commits; there must be
 * room.  opened: seconds since the Epoch; stored: it is in the store.
 */
void ngx_modelgw_ledger_account_add_locked(ngx_modelgw_ledger_t *l,
    ngx_str_t *name, int64_t founding, uint64_t opened, ngx_uint_t stored);


/* What was spent of a key's budget in the window with the time; its end. */
int64_t ngx_modelgw_ledger_spent(ngx_modelgw_ledger_key_t *key, uint64_t time,
    uint64_t *ends);


/* Milliseconds since the Epoch. */
uint64_t ngx_modelgw_ledger_time(void);


/* lease.c */

/* Lays out what a cluster has besides, in zeroed memory at p; its end. */
u_char *ngx_modelgw_lease_init(ngx_modelgw_ledger_t *l, u_char *p,
    ngx_modelgw_ledger_room_t *room);

/*
 * The lease of a key's record is another key's from now on, or of a budget with
 * the window, that the key is about to get.  No effect without a cluster.
 */
void ngx_modelgw_lease_drop_locked(ngx_modelgw_ledger_t *l, uint32_t key);
void ngx_modelgw_lease_window_locked(ngx_modelgw_ledger_t *l, uint32_t key,
    ngx_uint_t window);

/*
 * ngx_modelgw_ledger_hold_locked() of a call that has to wait as others do:
 * NGX_DECLINED.
 */
ngx_int_t ngx_modelgw_lease_wait_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, uint32_t account, int64_t *available);

/* ngx_modelgw_ledger_budget_locked() in a cluster. */
ngx_int_t ngx_modelgw_lease_budget_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, ngx_modelgw_budget_t *budget, uint64_t time,
    ngx_modelgw_ledger_left_t *left);

/*
 * What is left of a lease less what is held; *left is 0 if it is not known.
 *     NGX_OK
 *     NGX_DECLINED  a budget that is not known
 */
ngx_int_t ngx_modelgw_lease_left_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, uint64_t time, ngx_modelgw_ledger_left_t *left);


/* claim.c */

/* The claims of a worker that leaves are freed. */
void ngx_modelgw_claims_forget_locked(ngx_modelgw_ledger_t *l,
    uint32_t worker);

/*
 * The oldest claim that waits for the fund, NULL: none; *hold is what its call
 * is to hold, *others what those after it are.
 */
ngx_modelgw_claim_t *ngx_modelgw_claim_first_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, int64_t *hold, int64_t *others);


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


/*
 * Adds to what the account and the key hold, and HELD, when the caller commits.
 * It never exceeds what was covered: it cannot overflow.
 */

static ngx_inline void
ngx_modelgw_ledger_reserve_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, ngx_modelgw_ledger_account_t *a)
{
    ngx_modelgw_ledger_key_t  *k;

    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &a->held,
                         a->held + call->hold);

    if (call->key != NGX_MODELGW_LEDGER_NONE) {
        k = (ngx_modelgw_ledger_key_t *) l->keys.records + call->key;

        ngx_modelgw_redo_add(&l->redo, (uint64_t *) &k->held,
                             k->held + call->hold);
    }

    ngx_modelgw_redo_add(&l->redo, &call->state, NGX_MODELGW_CALL_HELD);
}


/* Whether other calls wait for the credit that the call needs. */

static ngx_inline ngx_uint_t
ngx_modelgw_lease_busy(ngx_modelgw_ledger_t *l, ngx_modelgw_call_t *call,
    uint32_t account)
{
    return account != NGX_MODELGW_LEDGER_NONE && call->hold > 0
           && l->leases[NGX_MODELGW_FUND_ACCOUNT][account].claims;
}


static ngx_inline void
ngx_modelgw_ledger_bar(ngx_modelgw_ledger_t *l, uint64_t why, ngx_uint_t on)
{
    if (on) {
        (void) __atomic_fetch_or(&l->barred, why, __ATOMIC_SEQ_CST);

    } else {
        (void) __atomic_fetch_and(&l->barred, ~why, __ATOMIC_SEQ_CST);
    }
}


#endif /* _NGX_MODELGW_LEDGER_PRIVATE_H_INCLUDED_ */
