
/*
 * Changes by operators: top-ups, accounts, keys.
 *
 * A change is requested by a worker, made durable by the writer, and takes
 * effect in shared memory as the writer answers:
 *
 *     FREE -> ASKED -> MADE, KNOWN, OTHER, ..., FAILED -> FREE
 *
 * What is ASKED belongs to the writer, which may be storing it: no other
 * process changes it or reuses the slot.  If the worker no longer wants the
 * answer, or has died, the slot has no owner (worker NONE), and the answer
 * frees it.
 *
 * If a writer is killed between its commit and its answer, the next one is
 * given the same change again, and must put it into effect.  So "tried" is kept
 * here and not in the writer: no writer may answer FAILED then.  No two changes
 * have the same time, not even after a restart: by it the store distinguishes
 * that one from a second request for the same.
 *
 * An account that a change opens is added when the change is durable.  Its
 * place is reserved with the request, so the answer always finds it.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_ledger_private.h"


static ngx_modelgw_change_t *ngx_modelgw_ledger_change_unused(
    ngx_modelgw_ledger_t *l);
static void ngx_modelgw_ledger_change_forget_locked(
    ngx_modelgw_change_t *change);
static void ngx_modelgw_ledger_change_apply_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_change_t *change);
static void ngx_modelgw_ledger_change_open_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_change_t *change);


void
ngx_modelgw_ledger_change_after(ngx_modelgw_ledger_t *l, uint64_t time)
{
    l->change_time = time;
}


uint64_t
ngx_modelgw_ledger_change_time(ngx_modelgw_ledger_t *l, uint64_t time)
{
    ngx_modelgw_redo_lock(&l->redo);

    time = ngx_max(time, l->change_time + 1);

    ngx_modelgw_redo_add(&l->redo, &l->change_time, time);
    ngx_modelgw_redo_commit(&l->redo);

    ngx_modelgw_redo_unlock(&l->redo);

    return time;
}


ngx_int_t
ngx_modelgw_ledger_change(ngx_modelgw_ledger_t *l,
    ngx_modelgw_change_t *wanted, ngx_modelgw_change_t **change)
{
    uint32_t               reserved;
    ngx_int_t              rc;
    ngx_modelgw_change_t  *c;

    rc = NGX_OK;

    reserved = (ngx_modelgw_ledger_change_opens(wanted)
                && wanted->account == NGX_MODELGW_LEDGER_NONE);

    ngx_modelgw_redo_lock(&l->redo);

    c = ngx_modelgw_ledger_change_unused(l);

    if (c == NULL) {
        rc = NGX_BUSY;

    } else if (reserved && l->accounts.n + l->reserved >= l->accounts.max) {
        rc = NGX_DECLINED;

    } else {

        /* all but the state, which is still FREE */

        ngx_memcpy((u_char *) c + sizeof(uint64_t),
                   (u_char *) wanted + sizeof(uint64_t),
                   sizeof(ngx_modelgw_change_t) - sizeof(uint64_t));

        c->tried = 0;
        c->reserved = reserved;

        /* a key may be two actions: with its account, just before it */

        c->time = ngx_max(wanted->time, l->change_time + 1
                                  + (c->kind == NGX_MODELGW_CHANGE_KEY_NEW));

        ngx_modelgw_redo_add(&l->redo, &l->change_time, c->time);
        ngx_modelgw_redo_add(&l->redo, &l->reserved, l->reserved + reserved);
        ngx_modelgw_redo_add(&l->redo, &c->state, NGX_MODELGW_CHANGE_ASKED);
        ngx_modelgw_redo_commit(&l->redo);
    }

    ngx_modelgw_redo_unlock(&l->redo);

    if (rc == NGX_OK) {
        *change = c;

        if (l->kind == NGX_MODELGW_LEDGER_CLUSTER) {
            ngx_modelgw_exchange_wake(l);

        } else {
            ngx_modelgw_ledger_wake(l);
        }
    }

    return rc;
}


static ngx_modelgw_change_t *
ngx_modelgw_ledger_change_unused(ngx_modelgw_ledger_t *l)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_MODELGW_LEDGER_CHANGES; i++) {
        if (l->changes[i].state == NGX_MODELGW_CHANGE_FREE) {
            return &l->changes[i];
        }
    }

    return NULL;
}


ngx_uint_t
ngx_modelgw_ledger_change_opens(ngx_modelgw_change_t *change)
{
    return change->kind == NGX_MODELGW_CHANGE_ACCOUNT_NEW
           || change->kind == NGX_MODELGW_CHANGE_KEY_NEW;
}


void
ngx_modelgw_ledger_change_free(ngx_modelgw_ledger_t *l,
    ngx_modelgw_change_t *change)
{
    ngx_modelgw_redo_lock(&l->redo);

    ngx_modelgw_ledger_change_forget_locked(change);

    ngx_modelgw_redo_unlock(&l->redo);
}


/* One store: a process is killed before or after it. */

static void
ngx_modelgw_ledger_change_forget_locked(ngx_modelgw_change_t *change)
{
    if (change->state == NGX_MODELGW_CHANGE_ASKED) {
        __atomic_store_n(&change->worker, NGX_MODELGW_LEDGER_NONE,
                         __ATOMIC_RELEASE);
        return;
    }

    __atomic_store_n(&change->state, NGX_MODELGW_CHANGE_FREE,
                     __ATOMIC_RELEASE);
}


void
ngx_modelgw_ledger_changes_forget_locked(ngx_modelgw_ledger_t *l,
    uint32_t worker)
{
    ngx_uint_t             i;
    ngx_modelgw_change_t  *change;

    for (i = 0; i < NGX_MODELGW_LEDGER_CHANGES; i++) {
        change = &l->changes[i];

        if (change->worker == worker
            && change->state != NGX_MODELGW_CHANGE_FREE)
        {
            ngx_modelgw_ledger_change_forget_locked(change);
        }
    }
}


ngx_modelgw_change_t *
ngx_modelgw_ledger_change_asked(ngx_modelgw_ledger_t *l, ngx_uint_t *i)
{
    ngx_modelgw_change_t  *change;

    while (*i < NGX_MODELGW_LEDGER_CHANGES) {
        change = &l->changes[(*i)++];

        if (ngx_modelgw_ledger_load(&change->state)
            == NGX_MODELGW_CHANGE_ASKED)
        {
            return change;
        }
    }

    return NULL;
}


void
ngx_modelgw_ledger_change_tried(ngx_modelgw_change_t *change)
{
    __atomic_store_n(&change->tried, 1, __ATOMIC_RELEASE);
}


void
ngx_modelgw_ledger_change_answer(ngx_modelgw_ledger_t *l,
    ngx_modelgw_change_t *change, ngx_modelgw_change_e state)
{
    ngx_modelgw_redo_lock(&l->redo);

    if (change->state == NGX_MODELGW_CHANGE_ASKED) {

        if (state == NGX_MODELGW_CHANGE_MADE) {
            ngx_modelgw_ledger_change_apply_locked(l, change);
        }

        if (change->worker == NGX_MODELGW_LEDGER_NONE) {
            state = NGX_MODELGW_CHANGE_FREE;
        }

        ngx_modelgw_redo_add(&l->redo, &l->reserved,
                             l->reserved - change->reserved);
        ngx_modelgw_redo_add(&l->redo, &change->state, state);
        ngx_modelgw_redo_commit(&l->redo);
    }

    ngx_modelgw_redo_unlock(&l->redo);
}


/* The effect in shared memory, when the caller commits. */

static void
ngx_modelgw_ledger_change_apply_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_change_t *change)
{
    ngx_modelgw_ledger_account_t  *a;

    if (ngx_modelgw_ledger_change_opens(change)) {
        ngx_modelgw_ledger_change_open_locked(l, change);
        return;
    }

    if (change->account == NGX_MODELGW_LEDGER_NONE) {
        return;
    }

    a = ngx_modelgw_ledger_account_at(l, change->account);

    if (change->kind == NGX_MODELGW_CHANGE_TOPUP
        && l->kind != NGX_MODELGW_LEDGER_CLUSTER)
    {
        ngx_modelgw_redo_add(&l->redo, (uint64_t *) &a->balance,
                             ngx_modelgw_ledger_sum(a->balance,
                                                    change->amount));

    } else if (change->kind == NGX_MODELGW_CHANGE_ACCOUNT_SET
               && l->kind != NGX_MODELGW_LEDGER_CLUSTER
               && (change->sets & NGX_MODELGW_CHANGE_STATE))
    {
        /*
         * half a word; a process killed here is followed by another answer.  A
         * node of a cluster learns of it as the others do, in the right order
         */

        __atomic_store_n(&a->closed, change->closed, __ATOMIC_RELEASE);
    }
}


/*
 * A configuration may have added the account meanwhile, with another founding
 * credit: what the store has counts, which did not insert it again.  In a
 * cluster all credit is the database's.
 */

static void
ngx_modelgw_ledger_change_open_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_change_t *change)
{
    int64_t                        amount;
    uint32_t                       i;
    ngx_str_t                      name;
    ngx_modelgw_ledger_account_t  *a;

    name.len = change->owner.len;
    name.data = change->owner.data;

    i = ngx_modelgw_ledger_find_locked(&l->accounts, &name);

    amount = change->amount;

    if (l->kind == NGX_MODELGW_LEDGER_CLUSTER) {
        amount = 0;
    }

    if (i == NGX_MODELGW_LEDGER_NONE) {
        ngx_modelgw_ledger_account_add_locked(l, &name, amount,
                                              change->time / 1000, 1);
        return;
    }

    a = ngx_modelgw_ledger_account_at(l, i);

    if (i < l->stored || a->founding == change->amount
        || l->kind == NGX_MODELGW_LEDGER_CLUSTER)
    {
        return;
    }

    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &a->balance,
                         ngx_modelgw_ledger_sum(a->balance,
                                                change->amount - a->founding));
    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &a->founding, change->amount);
}
