
/*
 * The ledger in shared memory: accounts, keys, and calls from open to settle.
 *
 * Accounts are never removed.  When there is no room left, records of keys are
 * reused for keys that the configuration in force does not name.  Such a record
 * is unlinked from its chain first, by one store, and linked into its new one
 * last, by another: between them it belongs to no name, and the next search for
 * a record to reuse finds it again.
 *
 * Each step of a call reads what it needs under the mutex, writes the fields
 * that no other process reads yet, and commits the rest at once: the state of
 * the call changes together with the money and the counts that go with it.  So
 * the state alone tells another process what has to be given back:
 *
 *     OPEN        key->calls counts the call
 *     HELD, SENT  and account->held and key->held include call->hold
 *     DONE        none of them; call->charge.cost was subtracted from
 *                 account->balance and added to key->spent
 *
 * A call is charged to the window of the key's budget in which it ends, as in
 * the store.  A window is turned by the first call that ends in the next one:
 * until then, what was spent is 0 for whoever asks later than it ends.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_ledger_private.h"


/* ms that a clock may be set back within a window, without an effect on it */

#define NGX_MODELGW_LEDGER_SKEW    86400000

#define ngx_modelgw_ledger_next(table, i)                                     \
    (*(uint32_t *) ((table)->records + (i) * (table)->size + (table)->next))

#define ngx_modelgw_ledger_name(table, i)                                     \
    ((ngx_modelgw_ledger_name_t *)                                            \
        ((table)->records + (i) * (table)->size + (table)->name))


static void ngx_modelgw_ledger_key_forget(ngx_modelgw_ledger_t *l,
    ngx_modelgw_ledger_key_t *key);
static uint32_t ngx_modelgw_ledger_key_unused(ngx_modelgw_ledger_t *l);
static void ngx_modelgw_ledger_unlink(ngx_modelgw_ledger_table_t *t,
    uint32_t i);
static void ngx_modelgw_ledger_add_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_ledger_table_t *t, ngx_str_t *name);
static void ngx_modelgw_ledger_link_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_ledger_table_t *t, uint32_t i, ngx_str_t *name);
static uint64_t *ngx_modelgw_ledger_chain(ngx_modelgw_ledger_table_t *t,
    u_char *name, size_t len);
static uint64_t ngx_modelgw_ledger_slot_locked(ngx_modelgw_ledger_t *l);
static void ngx_modelgw_ledger_call_init(ngx_modelgw_call_t *call);
static void ngx_modelgw_ledger_charge(ngx_modelgw_call_t *call,
    ngx_modelgw_charge_t *charge);
static void ngx_modelgw_ledger_give_back_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, uint64_t clock);
static void ngx_modelgw_ledger_spend_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call);
static ngx_inline void ngx_modelgw_ledger_push_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_ledger_ring_t *ring, ngx_modelgw_call_t *call);
static void ngx_modelgw_ledger_free_locked(ngx_modelgw_ledger_t *l,
    uint64_t slot);


static const char  *ngx_modelgw_ends[] = {
    [NGX_MODELGW_END_COMPLETE] = "complete",
    [NGX_MODELGW_END_CLIENT] = "client",
    [NGX_MODELGW_END_UPSTREAM] = "upstream",
    [NGX_MODELGW_END_TIMEOUT] = "timeout",
    [NGX_MODELGW_END_KILLED] = "killed",
    [NGX_MODELGW_END_STOPPED] = "stopped",
    [NGX_MODELGW_END_LOST] = "lost"
};


const char *
ngx_modelgw_end_name(ngx_modelgw_end_e end)
{
    return ngx_modelgw_ends[end];
}


ngx_uint_t
ngx_modelgw_ledger_full(ngx_modelgw_ledger_t *l)
{
    return ngx_modelgw_ledger_load(&l->free) == NGX_MODELGW_LEDGER_NONE
           && ngx_modelgw_ledger_load(&l->fresh) == l->max;
}


ngx_modelgw_call_t *
ngx_modelgw_ledger_call_at(ngx_modelgw_ledger_t *l, ngx_uint_t i)
{
    return (i < ngx_modelgw_ledger_load(&l->fresh)) ? &l->calls[i] : NULL;
}


ngx_uint_t
ngx_modelgw_ledger_credit(ngx_modelgw_ledger_t *l)
{
    return l->kind != NGX_MODELGW_LEDGER_LIMITS;
}


void
ngx_modelgw_ledger_lock(ngx_modelgw_ledger_t *l)
{
    ngx_modelgw_redo_lock(&l->redo);
}


void
ngx_modelgw_ledger_unlock(ngx_modelgw_ledger_t *l)
{
    ngx_modelgw_redo_unlock(&l->redo);
}


uint64_t
ngx_modelgw_ledger_clock(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);

    return (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


uint64_t
ngx_modelgw_ledger_time(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_REALTIME_COARSE, &ts);

    return (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


ngx_int_t
ngx_modelgw_ledger_account(ngx_modelgw_ledger_t *l, ngx_str_t *name,
    ngx_uint_t add, int64_t balance, uint64_t opened, ngx_uint_t stored,
    uint32_t *index)
{
    ngx_int_t  rc;

    if (name->len > NGX_MODELGW_LEDGER_NAME) {
        return add ? NGX_ERROR : NGX_DECLINED;
    }

    ngx_modelgw_redo_lock(&l->redo);

    *index = ngx_modelgw_ledger_find_locked(&l->accounts, name);

    if (*index != NGX_MODELGW_LEDGER_NONE) {
        rc = NGX_OK;

    } else if (!add) {
        rc = NGX_DECLINED;

    } else if (l->accounts.n + l->reserved >= l->accounts.max) {
        rc = NGX_ERROR;

    } else {
        rc = NGX_DONE;
        *index = l->accounts.n;

        ngx_modelgw_ledger_account_add_locked(l, name, balance, opened,
                                              stored);

        if (stored) {
            ngx_modelgw_ledger_account_at(l, *index)->founding = 0;
        }

        ngx_modelgw_redo_commit(&l->redo);
    }

    ngx_modelgw_redo_unlock(&l->redo);

    if (rc == NGX_DONE && !stored) {
        ngx_modelgw_ledger_wake(l);
    }

    return rc;
}


void
ngx_modelgw_ledger_account_add_locked(ngx_modelgw_ledger_t *l,
    ngx_str_t *name, int64_t founding, uint64_t opened, ngx_uint_t stored)
{
    ngx_modelgw_ledger_account_t  *a;

    a = ngx_modelgw_ledger_account_at(l, l->accounts.n);
    a->balance = (l->kind == NGX_MODELGW_LEDGER_CLUSTER && !stored)
                 ? 0 : founding;
    a->held = 0;
    a->founding = founding;
    a->opened = opened;
    a->closed = 0;

    /* after one that is not stored it is stored again, without effect */

    if (stored && l->stored == l->accounts.n) {
        ngx_modelgw_redo_add(&l->redo, &l->stored, l->stored + 1);
    }

    ngx_modelgw_ledger_add_locked(l, &l->accounts, name);
}


uint32_t
ngx_modelgw_ledger_accounts(ngx_modelgw_ledger_t *l)
{
    return ngx_modelgw_ledger_load(&l->accounts.n);
}


uint32_t
ngx_modelgw_ledger_accounts_free(ngx_modelgw_ledger_t *l)
{
    return l->accounts.max - ngx_modelgw_ledger_load(&l->accounts.n)
           - ngx_modelgw_ledger_load(&l->reserved);
}


ngx_modelgw_ledger_account_t *
ngx_modelgw_ledger_account_at(ngx_modelgw_ledger_t *l, uint32_t index)
{
    return (ngx_modelgw_ledger_account_t *) l->accounts.records + index;
}


void
ngx_modelgw_ledger_generation(ngx_modelgw_ledger_t *l)
{
    ngx_modelgw_redo_lock(&l->redo);

    l->generation++;
    l->rover = 0;

    ngx_modelgw_redo_unlock(&l->redo);
}


ngx_int_t
ngx_modelgw_ledger_key(ngx_modelgw_ledger_t *l, ngx_str_t *name,
    uint32_t *index)
{
    ngx_int_t                  rc;
    ngx_modelgw_ledger_key_t  *key;

    if (name->len > NGX_MODELGW_LEDGER_NAME) {
        return NGX_ERROR;
    }

    rc = NGX_OK;

    ngx_modelgw_redo_lock(&l->redo);

    *index = ngx_modelgw_ledger_find_locked(&l->keys, name);

    if (*index == NGX_MODELGW_LEDGER_NONE && l->keys.n < l->keys.max) {
        *index = l->keys.n;
        ngx_modelgw_ledger_add_locked(l, &l->keys, name);
        ngx_modelgw_redo_commit(&l->redo);

    } else if (*index == NGX_MODELGW_LEDGER_NONE) {
        *index = ngx_modelgw_ledger_key_unused(l);

        if (*index == NGX_MODELGW_LEDGER_NONE) {
            rc = NGX_ERROR;

        } else {
            key = ngx_modelgw_ledger_key_at(l, *index);

            ngx_memzero(&key->rpm, sizeof(ngx_modelgw_limit_t));
            ngx_memzero(&key->tpm, sizeof(ngx_modelgw_limit_t));
            key->window = NGX_MODELGW_WINDOW_NONE;

            ngx_modelgw_lease_drop_locked(l, *index);

            if (l->shares) {
                ngx_modelgw_share_forget_locked(l, *index);
            }

            ngx_modelgw_ledger_link_locked(l, &l->keys, *index, name);
            ngx_modelgw_redo_commit(&l->redo);
        }
    }

    if (rc == NGX_OK) {
        key = ngx_modelgw_ledger_key_at(l, *index);

        ngx_modelgw_ledger_key_forget(l, key);
        key->generation = l->generation;
    }

    ngx_modelgw_redo_unlock(&l->redo);

    return rc;
}


/* calls of a key that was not named were not counted */

static void
ngx_modelgw_ledger_key_forget(ngx_modelgw_ledger_t *l,
    ngx_modelgw_ledger_key_t *key)
{
    if ((uint32_t) l->generation - key->generation > 1) {
        key->window = NGX_MODELGW_WINDOW_NONE;
    }
}


ngx_int_t
ngx_modelgw_ledger_key_find(ngx_modelgw_ledger_t *l, ngx_str_t *name,
    ngx_modelgw_ledger_key_t *key)
{
    uint32_t  i;

    ngx_modelgw_redo_lock(&l->redo);

    i = ngx_modelgw_ledger_find_locked(&l->keys, name);

    if (i != NGX_MODELGW_LEDGER_NONE) {
        *key = *ngx_modelgw_ledger_key_at(l, i);
        ngx_modelgw_ledger_key_forget(l, key);
    }

    ngx_modelgw_redo_unlock(&l->redo);

    return (i != NGX_MODELGW_LEDGER_NONE) ? NGX_OK : NGX_DECLINED;
}


void
ngx_modelgw_ledger_key_drop(ngx_modelgw_ledger_t *l, ngx_str_t *name)
{
    uint32_t  i;

    ngx_modelgw_redo_lock(&l->redo);

    i = ngx_modelgw_ledger_find_locked(&l->keys, name);

    if (i != NGX_MODELGW_LEDGER_NONE) {
        ngx_modelgw_ledger_key_at(l, i)->generation = l->generation - 1;
        l->rover = 0;
    }

    ngx_modelgw_redo_unlock(&l->redo);
}


/*
 * A record whose key is not named and has no calls, unlinked from its chain.
 * Each record is looked at once per generation, and again after one was
 * dropped.
 */

static uint32_t
ngx_modelgw_ledger_key_unused(ngx_modelgw_ledger_t *l)
{
    uint32_t                   i;
    ngx_modelgw_ledger_key_t  *key;

    while (l->rover < l->keys.n) {
        i = l->rover++;
        key = ngx_modelgw_ledger_key_at(l, i);

        if (key->generation != (uint32_t) l->generation && key->calls == 0) {
            ngx_modelgw_ledger_unlink(&l->keys, i);
            return i;
        }
    }

    return NGX_MODELGW_LEDGER_NONE;
}


/* It may be in none, if a process was killed while it reused the record. */

static void
ngx_modelgw_ledger_unlink(ngx_modelgw_ledger_table_t *t, uint32_t i)
{
    uint32_t                    before;
    uint64_t                   *chain;
    ngx_modelgw_ledger_name_t  *n;

    n = ngx_modelgw_ledger_name(t, i);
    chain = ngx_modelgw_ledger_chain(t, n->data, n->len);

    if (*chain == i) {
        __atomic_store_n(chain, ngx_modelgw_ledger_next(t, i),
                         __ATOMIC_RELEASE);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        return;
    }

    for (before = *chain;
         before != NGX_MODELGW_LEDGER_NONE;
         before = ngx_modelgw_ledger_next(t, before))
    {
        if (ngx_modelgw_ledger_next(t, before) == i) {
            __atomic_store_n(&ngx_modelgw_ledger_next(t, before),
                             ngx_modelgw_ledger_next(t, i), __ATOMIC_RELEASE);
            __atomic_signal_fence(__ATOMIC_SEQ_CST);
            return;
        }
    }
}


ngx_uint_t
ngx_modelgw_ledger_budget_set(ngx_modelgw_ledger_t *l, uint32_t index,
    ngx_uint_t window)
{
    ngx_modelgw_ledger_key_t  *key;

    key = ngx_modelgw_ledger_key_at(l, index);

    if (key->window == window) {
        return 0;
    }

    ngx_modelgw_redo_lock(&l->redo);

    ngx_modelgw_lease_window_locked(l, index, window);

    key->window = window | NGX_MODELGW_LEDGER_PENDING;
    l->budgets = 1;

    ngx_modelgw_redo_unlock(&l->redo);

    return 1;
}


void
ngx_modelgw_ledger_budget_begin_locked(ngx_modelgw_ledger_t *l, uint32_t index,
    uint64_t time)
{
    ngx_modelgw_ledger_key_t  *key;

    key = ngx_modelgw_ledger_key_at(l, index);

    key->spent = 0;
    key->ends = ngx_modelgw_budget_end(key->window
                                       & ~NGX_MODELGW_LEDGER_PENDING, time);
}


void
ngx_modelgw_ledger_budget_add(ngx_modelgw_ledger_t *l, ngx_str_t *name,
    ngx_uint_t window, int64_t amount)
{
    uint32_t                   i;
    ngx_modelgw_ledger_key_t  *key;

    ngx_modelgw_redo_lock(&l->redo);

    i = ngx_modelgw_ledger_find_locked(&l->keys, name);

    if (i != NGX_MODELGW_LEDGER_NONE) {
        key = ngx_modelgw_ledger_key_at(l, i);

        if (key->window == (window | NGX_MODELGW_LEDGER_PENDING)) {
            key->spent = ngx_modelgw_ledger_sum(key->spent, amount);
        }
    }

    ngx_modelgw_redo_unlock(&l->redo);
}


void
ngx_modelgw_ledger_budget_known(ngx_modelgw_ledger_t *l, uint32_t index)
{
    ngx_modelgw_redo_lock(&l->redo);

    ngx_modelgw_ledger_key_at(l, index)->window &= ~NGX_MODELGW_LEDGER_PENDING;

    ngx_modelgw_redo_unlock(&l->redo);
}


int64_t
ngx_modelgw_ledger_budget_used_locked(ngx_modelgw_ledger_key_t *key,
    uint64_t time, uint64_t *ends)
{
    return ngx_modelgw_ledger_sum(ngx_modelgw_ledger_spent(key, time, ends),
                                  key->held);
}


/*
 * Of the window with the time, whose end is *ends.  Clocks of workers differ a
 * little around it; but a window that ends later than one can was begun by a
 * clock that was wrong.
 */

int64_t
ngx_modelgw_ledger_spent(ngx_modelgw_ledger_key_t *key, uint64_t time,
    uint64_t *ends)
{
    ngx_uint_t  window;

    window = key->window & ~NGX_MODELGW_LEDGER_PENDING;
    *ends = key->ends;

    if (time < key->ends
        && (window == NGX_MODELGW_WINDOW_TOTAL
            || key->ends - time <= ngx_modelgw_budget_longest(window)
                                   + NGX_MODELGW_LEDGER_SKEW))
    {
        return key->spent;
    }

    *ends = ngx_modelgw_budget_end(window, time);

    return 0;
}


ngx_modelgw_ledger_key_t *
ngx_modelgw_ledger_key_at(ngx_modelgw_ledger_t *l, uint32_t index)
{
    return (ngx_modelgw_ledger_key_t *) l->keys.records + index;
}


uint32_t
ngx_modelgw_ledger_find_locked(ngx_modelgw_ledger_table_t *t, ngx_str_t *name)
{
    uint32_t                    i;
    ngx_modelgw_ledger_name_t  *n;

    for (i = *ngx_modelgw_ledger_chain(t, name->data, name->len);
         i != NGX_MODELGW_LEDGER_NONE;
         i = ngx_modelgw_ledger_next(t, i))
    {
        n = ngx_modelgw_ledger_name(t, i);

        if (n->len == name->len
            && ngx_memcmp(n->data, name->data, name->len) == 0)
        {
            return i;
        }
    }

    return NGX_MODELGW_LEDGER_NONE;
}


/*
 * Adds the record after the last one, whose other fields are set, when the
 * caller commits.
 */

static void
ngx_modelgw_ledger_add_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_ledger_table_t *t, ngx_str_t *name)
{
    ngx_modelgw_ledger_link_locked(l, t, t->n, name);

    ngx_modelgw_redo_add(&l->redo, &t->n, t->n + 1);
}


/* Gives the record a name; it is in its chain when the caller has committed. */

static void
ngx_modelgw_ledger_link_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_ledger_table_t *t, uint32_t i, ngx_str_t *name)
{
    uint64_t                   *chain;
    ngx_modelgw_ledger_name_t  *n;

    n = ngx_modelgw_ledger_name(t, i);
    n->len = name->len;
    ngx_memcpy(n->data, name->data, name->len);

    chain = ngx_modelgw_ledger_chain(t, name->data, name->len);
    ngx_modelgw_ledger_next(t, i) = *chain;

    ngx_modelgw_redo_add(&l->redo, chain, i);
}


static uint64_t *
ngx_modelgw_ledger_chain(ngx_modelgw_ledger_table_t *t, u_char *name,
    size_t len)
{
    return &t->chains[ngx_murmur_hash2(name, len) % t->max];
}


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

    /* the writer and _end_all() may read both without the mutex */

    __atomic_store_n(&c->id, l->id, __ATOMIC_RELAXED);
    __atomic_store_n(&c->worker, worker, __ATOMIC_RELAXED);
    c->key = key;

    ngx_modelgw_redo_add(&l->redo, &l->id, l->id + l->step);

    if (k) {
        ngx_modelgw_redo_add(&l->redo, &k->calls, k->calls + 1);
    }

    ngx_modelgw_redo_add(&l->redo, &c->state, NGX_MODELGW_CALL_OPEN);

    ngx_modelgw_redo_commit(&l->redo);

    *call = c;

    return NGX_OK;
}


/* A free slot, else one never used; NONE: there is none. */

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


/* All but the state, which is still FREE, and texts whose length is now 0. */

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
    call->price_id = 0;
    call->cell = 0;
    call->flags = 0;
    call->first_byte = NGX_MODELGW_LEDGER_NONE;
    call->request_id_len = 0;

    ngx_memzero(&call->price, sizeof(ngx_modelgw_price_t));
    ngx_modelgw_seen_init(&call->seen);
}


ngx_int_t
ngx_modelgw_ledger_budget_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, ngx_modelgw_budget_t *budget, uint64_t time,
    ngx_modelgw_ledger_left_t *left)
{
    int64_t                    used;
    ngx_modelgw_ledger_key_t  *k;

    if (l->kind == NGX_MODELGW_LEDGER_CLUSTER) {
        return ngx_modelgw_lease_budget_locked(l, call, budget, time, left);
    }

    k = ngx_modelgw_ledger_key_at(l, call->key);

    if (k->window != budget->window) {
        return NGX_ERROR;
    }

    used = ngx_modelgw_ledger_budget_used_locked(k, time, &left->ends);
    left->amount = ngx_modelgw_ledger_sum(budget->limit, -used);

    return (call->hold > 0 && left->amount < call->hold) ? NGX_DECLINED
                                                         : NGX_OK;
}


ngx_int_t
ngx_modelgw_ledger_hold_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, uint32_t account, int64_t *available)
{
    int64_t                        left;
    ngx_modelgw_ledger_account_t  *a;

    if (l->kind != NGX_MODELGW_LEDGER_CREDIT) {

        if (l->kind == NGX_MODELGW_LEDGER_LIMITS) {
            account = NGX_MODELGW_LEDGER_NONE;

        } else if (ngx_modelgw_lease_busy(l, call, account)) {
            return ngx_modelgw_lease_wait_locked(l, call, account, available);
        }
    }

    call->account = account;

    if (account == NGX_MODELGW_LEDGER_NONE) {
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

    ngx_modelgw_ledger_reserve_locked(l, call, a);

    ngx_modelgw_redo_commit(&l->redo);

    return NGX_OK;
}


/*
 * The state is stored before the end of the ring: the writer, which reads
 * without the mutex, finds only entries of calls that are SENT.
 */

void
ngx_modelgw_ledger_sent(ngx_modelgw_ledger_t *l, ngx_modelgw_call_t *call)
{
    if (call->state != NGX_MODELGW_CALL_HELD) {
        return;
    }

    /* one word, which only its owner changes while the owner lives */

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

    /* a process killed here may have set these: they get the same values */

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


/*
 * Gives back concurrency, tokens per minute and the hold; takes the cost.
 * call->ended is set.
 */

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

        /* on a copy: its words change with the others, at the commit */

        tpm = k->tpm;
        ngx_modelgw_limit_correct(&tpm, call->taken, used, clock);

        ngx_modelgw_redo_add(&l->redo, &k->tpm.minute, tpm.minute);
        ngx_modelgw_redo_add(&l->redo, &k->tpm.now, tpm.now);
        ngx_modelgw_redo_add(&l->redo, &k->tpm.before, tpm.before);

        if (l->shares && call->taken) {
            ngx_modelgw_share_settle_locked(l, call, used, clock);
        }
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

    ngx_modelgw_ledger_spend_locked(l, call);
}


/*
 * The same for the key's budget.  A call that began when the key had no limits
 * has no record of it: nothing is held, but what it costs is spent.
 */

static void
ngx_modelgw_ledger_spend_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call)
{
    int64_t                    spent;
    uint32_t                   i;
    uint64_t                   ends;
    ngx_str_t                  name;
    ngx_modelgw_ledger_key_t  *k;

    i = call->key;

    if (i == NGX_MODELGW_LEDGER_NONE && l->budgets) {
        name.len = call->key_name.len;
        name.data = call->key_name.data;

        i = ngx_modelgw_ledger_find_locked(&l->keys, &name);
    }

    if (i == NGX_MODELGW_LEDGER_NONE) {
        return;
    }

    k = ngx_modelgw_ledger_key_at(l, i);

    if (call->key != NGX_MODELGW_LEDGER_NONE) {
        ngx_modelgw_redo_add(&l->redo, (uint64_t *) &k->held,
                             k->held - call->hold);
    }

    if (k->window == NGX_MODELGW_WINDOW_NONE) {
        return;
    }

    spent = ngx_modelgw_ledger_spent(k, call->ended, &ends);
    spent = ngx_modelgw_ledger_sum(spent, call->charge.cost);

    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &k->spent, spent);
    ngx_modelgw_redo_add(&l->redo, &k->ends, ends);
}


/* Adds an entry, when the caller commits; without room there is none. */

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


/* Adds a slot to the list of free ones, when the caller commits. */

static void
ngx_modelgw_ledger_free_locked(ngx_modelgw_ledger_t *l, uint64_t slot)
{
    l->calls[slot].next = l->free;

    ngx_modelgw_redo_add(&l->redo, &l->free, slot);
}
