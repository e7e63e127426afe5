
/*
 * Calls of the ledger, each under its own lock, for tests and the benchmark;
 * the module does more under one lock.
 */


#ifndef _LEDGER_CALLS_H_INCLUDED_
#define _LEDGER_CALLS_H_INCLUDED_


#include "ngx_modelgw_ledger.h"


static ngx_inline ngx_int_t
call_open(ngx_modelgw_ledger_t *l, uint32_t worker, uint32_t key,
    uint32_t concurrency, ngx_modelgw_call_t **call)
{
    ngx_int_t  rc;

    ngx_modelgw_ledger_lock(l);

    rc = ngx_modelgw_ledger_open_locked(l, worker, key, concurrency, call);

    ngx_modelgw_ledger_unlock(l);

    return rc;
}


static ngx_inline ngx_int_t
call_hold(ngx_modelgw_ledger_t *l, ngx_modelgw_call_t *call, uint32_t account,
    int64_t *available)
{
    ngx_int_t  rc;

    ngx_modelgw_ledger_lock(l);

    rc = ngx_modelgw_ledger_hold_locked(l, call, account, available);

    ngx_modelgw_ledger_unlock(l);

    return rc;
}


static ngx_inline void
call_settle(ngx_modelgw_ledger_t *l, ngx_modelgw_call_t *call,
    ngx_modelgw_end_e end, uint64_t time, uint64_t clock)
{
    ngx_uint_t  done;

    ngx_modelgw_ledger_lock(l);

    done = ngx_modelgw_ledger_settle_locked(l, call, end, time, clock);

    ngx_modelgw_ledger_unlock(l);

    if (done) {
        ngx_modelgw_ledger_wake(l);
    }
}


#endif /* _LEDGER_CALLS_H_INCLUDED_ */
