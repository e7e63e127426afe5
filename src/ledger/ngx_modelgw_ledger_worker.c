
/*
 * Who takes part in the ledger, and what is left of those who died.
 *
 * A worker holds a mutex for as long as its thread lives, and the kernel gives
 * it up for the dead: whether a worker lives is asked by trying to lock that,
 * which never waits.  Who gets it is the one that sweeps up; should that one be
 * killed, too, the next gets it, and goes on with what is left.
 *
 * Rejected: pids (they are used again), heartbeats (a worker that is stopped or
 * swapped out would be taken for dead, and its calls ended twice).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_ledger_private.h"


static ngx_uint_t ngx_modelgw_ledger_dead(ngx_modelgw_ledger_t *l,
    uint32_t worker);
static ngx_uint_t ngx_modelgw_ledger_end_call(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, uint32_t worker, ngx_modelgw_end_e end,
    uint64_t time, int64_t *charged);


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

        /* used: it lives, or has died and is to be swept up first */

        if (w->used || ngx_modelgw_redo_mutex_trylock(&w->life) != NGX_OK) {
            continue;
        }

        /* in this order: who is killed between them is within the scan */

        if (i >= l->joined) {
            __atomic_store_n(&l->joined, i + 1, __ATOMIC_RELEASE);
        }

        __atomic_store_n(&w->used, 1, __ATOMIC_RELEASE);

        *worker = i;
        rc = NGX_OK;
        break;
    }

    ngx_modelgw_redo_unlock(&l->redo);

    return rc;
}


void
ngx_modelgw_ledger_leave(ngx_modelgw_ledger_t *l, uint32_t worker)
{
    ngx_modelgw_ledger_worker_t  *w;

    w = &l->workers[worker];

    ngx_modelgw_redo_lock(&l->redo);

    ngx_modelgw_ledger_topups_forget_locked(l, worker);

    ngx_modelgw_redo_add(&l->redo, &w->used, 0);
    ngx_modelgw_redo_commit(&l->redo);

    ngx_modelgw_redo_mutex_unlock(&w->life);

    ngx_modelgw_redo_unlock(&l->redo);
}


ngx_uint_t
ngx_modelgw_ledger_sweep(ngx_modelgw_ledger_t *l, uint32_t self,
    uint64_t time, int64_t *charged)
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
                                        charged);

        /* its lock is ours now: we leave in its place */

        ngx_modelgw_ledger_leave(l, i);
    }

    return n;
}


/*
 * Whether it was used and is dead; its lock is the caller's then.  The ledger's
 * mutex comes first: it is not the dead one's any more when we have it, so that
 * all that it had committed is done.
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
 * Looks for them without the mutex, so that nobody waits for us meanwhile: the
 * calls of a worker that is dead, or is the caller, are not changed by others.
 */

ngx_uint_t
ngx_modelgw_ledger_end_all(ngx_modelgw_ledger_t *l, uint32_t worker,
    ngx_modelgw_end_e end, uint64_t time, int64_t *charged)
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

        n += ngx_modelgw_ledger_end_call(l, call, worker, end, time, charged);
    }

    if (n) {
        ngx_modelgw_ledger_wake(l);
    }

    return n;
}


static ngx_uint_t
ngx_modelgw_ledger_end_call(ngx_modelgw_ledger_t *l, ngx_modelgw_call_t *call,
    uint32_t worker, ngx_modelgw_end_e end, uint64_t time, int64_t *charged)
{
    ngx_uint_t  ended;

    ngx_modelgw_redo_lock(&l->redo);

    ended = (call->worker == worker
             && call->state != NGX_MODELGW_CALL_FREE
             && call->state != NGX_MODELGW_CALL_DONE);

    if (ended) {
        (void) ngx_modelgw_ledger_settle_locked(l, call, end, time,
                                                ngx_modelgw_ledger_clock());

        *charged = ngx_modelgw_ledger_sum(*charged, call->charge.cost);
    }

    ngx_modelgw_redo_unlock(&l->redo);

    return ended;
}
