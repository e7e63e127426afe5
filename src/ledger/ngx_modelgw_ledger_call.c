
/*
 * Calls in the ledger: a slot from open to settle.
 *
 * Each step reads what it needs under the mutex, writes the fields that nobody
 * else looks at yet, and commits the rest at once: the state of the call
 * changes together with the money and the counts that go with it.  So the state
 * alone tells another process what there is to be given back.
 *
 *     OPEN        key->calls counts it
 *     HELD, SENT  and account->held has call->hold in it
 *     DONE        neither; account->balance is less call->charge.cost
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_ledger_private.h"


static uint64_t ngx_modelgw_ledger_slot_locked(ngx_modelgw_ledger_t *l);
static void ngx_modelgw_ledger_call_init(ngx_modelgw_call_t *call);
static void ngx_modelgw_ledger_charge(ngx_modelgw_call_t *call,
    ngx_modelgw_charge_t *charge);
static void ngx_modelgw_ledger_give_back_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, uint64_t clock);


ngx_int_t
ngx_modelgw_ledger_open_locked(ngx_modelgw_ledger_t *l, uint32_t worker,
    uint32_t key, uint32_t concurrency, ngx_modelgw_call_t **call)
{
    uint64_t                   slot;
    ngx_modelgw_call_t        *c;
    ngx_modelgw_ledger_key_t  *k;

    k = (key == NGX_MODELGW_LEDGER_NONE) ? NULL
                                         : ngx_modelgw_ledger_key_at(l, key);

    if (k && concurrency && k->calls >= concurrency) {
        return NGX_DECLINED;
    }

    slot = ngx_modelgw_ledger_slot_locked(l);

    if (slot == NGX_MODELGW_LEDGER_NONE) {
        return NGX_ERROR;
    }

    c = &l->calls[slot];

    ngx_modelgw_ledger_call_init(c);

    /* both may be looked at without the mutex: by the writer, by who stops */

    __atomic_store_n(&c->id, l->id, __ATOMIC_RELAXED);
    __atomic_store_n(&c->worker, worker, __ATOMIC_RELAXED);
    c->key = key;

    ngx_modelgw_redo_add(&l->redo, &l->id, l->id + 1);

    if (k) {
        ngx_modelgw_redo_add(&l->redo, &k->calls, k->calls + 1);
    }

    ngx_modelgw_redo_add(&l->redo, &c->state, NGX_MODELGW_CALL_OPEN);

    ngx_modelgw_redo_commit(&l->redo);

    *call = c;

    return NGX_OK;
}


/* A free slot, or one never used. */

static uint64_t
ngx_modelgw_ledger_slot_locked(ngx_modelgw_ledger_t *l)
{
    uint64_t  slot;

    if (l->free != NGX_MODELGW_LEDGER_NONE) {
        slot = l->free;
        ngx_modelgw_redo_add(&l->redo, &l->free, l->calls[slot].next);

    } else if (l->fresh < l->max) {
        slot = l->fresh;
        ngx_modelgw_redo_add(&l->redo, &l->fresh, slot + 1);

    } else {
        slot = NGX_MODELGW_LEDGER_NONE;
    }

    return slot;
}


/* All but the state, which is FREE still, and the text behind a length of 0. */

static void
ngx_modelgw_ledger_call_init(ngx_modelgw_call_t *call)
{
    call->noted = 0;
    call->account = NGX_MODELGW_LEDGER_NONE;
    call->hold = 0;
    call->estimate = 1;
    call->taken = 0;
    call->started = 0;
    call->key_name.len = 0;
    call->model_len = 0;

    ngx_memzero(&call->price, sizeof(ngx_modelgw_price_t));
    ngx_modelgw_seen_init(&call->seen);
}


ngx_int_t
ngx_modelgw_ledger_hold_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, uint32_t account, int64_t *available)
{
    int64_t                        left;
    ngx_modelgw_ledger_account_t  *a;

    call->account = l->credit ? account : NGX_MODELGW_LEDGER_NONE;

    if (call->account == NGX_MODELGW_LEDGER_NONE) {
        ngx_modelgw_redo_add(&l->redo, &call->state, NGX_MODELGW_CALL_HELD);
        ngx_modelgw_redo_commit(&l->redo);

        return NGX_OK;
    }

    a = ngx_modelgw_ledger_account_at(l, account);
    left = ngx_modelgw_ledger_sum(a->balance, -a->held);

    if (call->hold > 0 && left < call->hold) {
        *available = left;
        return NGX_DECLINED;
    }

    /* held is never above what was covered: it cannot overflow */

    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &a->held,
                         a->held + call->hold);
    ngx_modelgw_redo_add(&l->redo, &call->state, NGX_MODELGW_CALL_HELD);

    ngx_modelgw_redo_commit(&l->redo);

    return NGX_OK;
}


/*
 * The state is stored before the ring's end: the writer, who looks without the
 * mutex, finds an entry only of a call that is SENT.
 */

void
ngx_modelgw_ledger_sent(ngx_modelgw_ledger_t *l, ngx_modelgw_call_t *call)
{
    if (call->state != NGX_MODELGW_CALL_HELD) {
        return;
    }

    /* one word, and nobody but its owner changes it while the owner lives */

    if (call->account == NGX_MODELGW_LEDGER_NONE) {
        __atomic_store_n(&call->state, NGX_MODELGW_CALL_SENT,
                         __ATOMIC_RELEASE);
        return;
    }

    ngx_modelgw_redo_lock(&l->redo);

    ngx_modelgw_redo_add(&l->redo, &call->state, NGX_MODELGW_CALL_SENT);
    ngx_modelgw_ledger_push_locked(l, &l->held, call);

    ngx_modelgw_redo_commit(&l->redo);
    ngx_modelgw_redo_unlock(&l->redo);

    ngx_modelgw_ledger_wake(l);
}


ngx_uint_t
ngx_modelgw_ledger_settle_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, ngx_modelgw_end_e end, uint64_t time,
    uint64_t clock)
{
    ngx_uint_t  done;

    if (call->state == NGX_MODELGW_CALL_FREE
        || call->state == NGX_MODELGW_CALL_DONE)
    {
        return 0;
    }

    done = (call->state == NGX_MODELGW_CALL_SENT
            && call->account != NGX_MODELGW_LEDGER_NONE);

    /* who was killed in here may have set these already: they come out anew */

    ngx_modelgw_ledger_charge(call, &call->charge);

    call->end = end;
    call->ended = time;

    ngx_modelgw_ledger_give_back_locked(l, call, clock);

    if (done) {
        ngx_modelgw_redo_add(&l->redo, &call->state, NGX_MODELGW_CALL_DONE);
        ngx_modelgw_ledger_push_locked(l, &l->done, call);

    } else {
        ngx_modelgw_redo_add(&l->redo, &call->state, NGX_MODELGW_CALL_FREE);
        ngx_modelgw_ledger_free_locked(l, call - l->calls);
    }

    ngx_modelgw_redo_commit(&l->redo);

    return done;
}


static void
ngx_modelgw_ledger_charge(ngx_modelgw_call_t *call,
    ngx_modelgw_charge_t *charge)
{
    if (call->state != NGX_MODELGW_CALL_SENT) {
        ngx_memzero(charge, sizeof(ngx_modelgw_charge_t));
        charge->outcome = NGX_MODELGW_UNSENT;
        return;
    }

    ngx_modelgw_charge(&call->price, call->hold, call->estimate, &call->seen,
                       charge);
}


/* Concurrency, tokens a minute, the hold; and what it cost is taken. */

static void
ngx_modelgw_ledger_give_back_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, uint64_t clock)
{
    uint64_t                       used;
    ngx_modelgw_limit_t            tpm;
    ngx_modelgw_tokens_t          *t;
    ngx_modelgw_ledger_key_t      *k;
    ngx_modelgw_ledger_account_t  *a;

    if (call->key != NGX_MODELGW_LEDGER_NONE) {
        k = ngx_modelgw_ledger_key_at(l, call->key);
        t = &call->charge.tokens;

        used = t->input + t->cache_read + t->cache_write + t->cache_write_1h
               + t->output;

        ngx_modelgw_redo_add(&l->redo, &k->calls, k->calls - 1);

        /* of a copy: its words change with the others */

        tpm = k->tpm;
        ngx_modelgw_limit_correct(&tpm, call->taken, used, clock);

        ngx_modelgw_redo_add(&l->redo, &k->tpm.minute, tpm.minute);
        ngx_modelgw_redo_add(&l->redo, &k->tpm.now, tpm.now);
        ngx_modelgw_redo_add(&l->redo, &k->tpm.before, tpm.before);
    }

    if (call->account == NGX_MODELGW_LEDGER_NONE
        || call->state == NGX_MODELGW_CALL_OPEN)
    {
        return;
    }

    a = ngx_modelgw_ledger_account_at(l, call->account);

    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &a->held,
                         a->held - call->hold);

    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &a->balance,
                         ngx_modelgw_ledger_sum(a->balance,
                                                -call->charge.cost));
}
