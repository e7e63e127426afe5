
/*
 * Top-ups: asked for by a worker, made durable by the writer, credited as it
 * answers.
 *
 *     FREE -> ASKED -> NEW, KNOWN, OTHER, FAILED -> FREE
 *
 * What is ASKED belongs to the writer, which may be storing it: nobody else
 * changes it or uses the slot again.  If the worker does not want the answer
 * any more, or has died, the slot is nobody's (worker NONE), and the answer
 * frees it.
 *
 * A writer may be killed between its commit and its answer: the next one is
 * given the same top-up again, and must credit it; so "tried" is here and not
 * with the writer: it keeps any of them from answering FAILED.  No two top-ups
 * have the same time, so the store tells that one, by its time, from one that
 * somebody makes twice.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_ledger_private.h"


static ngx_modelgw_topup_t *ngx_modelgw_ledger_topup_unused(
    ngx_modelgw_ledger_t *l);
static void ngx_modelgw_ledger_topup_forget_locked(
    ngx_modelgw_topup_t *topup);


ngx_modelgw_topup_t *
ngx_modelgw_ledger_topup(ngx_modelgw_ledger_t *l, uint32_t worker,
    uint32_t account, ngx_str_t *id, int64_t amount, uint64_t time)
{
    ngx_modelgw_topup_t  *topup;

    if (id->len > NGX_MODELGW_LEDGER_NAME) {
        return NULL;
    }

    ngx_modelgw_redo_lock(&l->redo);

    topup = ngx_modelgw_ledger_topup_unused(l);

    if (topup) {
        topup->tried = 0;
        topup->account = account;
        topup->worker = worker;
        topup->amount = amount;
        topup->time = ngx_max(time, l->topup_time + 1);
        topup->id.len = id->len;
        ngx_memcpy(topup->id.data, id->data, id->len);

        ngx_modelgw_redo_add(&l->redo, &l->topup_time, topup->time);
        ngx_modelgw_redo_add(&l->redo, &topup->state, NGX_MODELGW_TOPUP_ASKED);
        ngx_modelgw_redo_commit(&l->redo);
    }

    ngx_modelgw_redo_unlock(&l->redo);

    if (topup) {
        ngx_modelgw_ledger_wake(l);
    }

    return topup;
}


static ngx_modelgw_topup_t *
ngx_modelgw_ledger_topup_unused(ngx_modelgw_ledger_t *l)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_MODELGW_LEDGER_TOPUPS; i++) {
        if (l->topups[i].state == NGX_MODELGW_TOPUP_FREE) {
            return &l->topups[i];
        }
    }

    return NULL;
}


void
ngx_modelgw_ledger_topup_free(ngx_modelgw_ledger_t *l,
    ngx_modelgw_topup_t *topup)
{
    ngx_modelgw_redo_lock(&l->redo);

    ngx_modelgw_ledger_topup_forget_locked(topup);

    ngx_modelgw_redo_unlock(&l->redo);
}


/* One store: nobody can be killed in the middle of it. */

static void
ngx_modelgw_ledger_topup_forget_locked(ngx_modelgw_topup_t *topup)
{
    if (topup->state == NGX_MODELGW_TOPUP_ASKED) {
        __atomic_store_n(&topup->worker, NGX_MODELGW_LEDGER_NONE,
                         __ATOMIC_RELEASE);
        return;
    }

    __atomic_store_n(&topup->state, NGX_MODELGW_TOPUP_FREE, __ATOMIC_RELEASE);
}


void
ngx_modelgw_ledger_topups_forget_locked(ngx_modelgw_ledger_t *l,
    uint32_t worker)
{
    ngx_uint_t            i;
    ngx_modelgw_topup_t  *topup;

    for (i = 0; i < NGX_MODELGW_LEDGER_TOPUPS; i++) {
        topup = &l->topups[i];

        if (topup->worker == worker
            && topup->state != NGX_MODELGW_TOPUP_FREE)
        {
            ngx_modelgw_ledger_topup_forget_locked(topup);
        }
    }
}


ngx_modelgw_topup_t *
ngx_modelgw_ledger_topup_asked(ngx_modelgw_ledger_t *l, ngx_uint_t *i)
{
    ngx_modelgw_topup_t  *topup;

    while (*i < NGX_MODELGW_LEDGER_TOPUPS) {
        topup = &l->topups[(*i)++];

        if (ngx_modelgw_ledger_load(&topup->state)
            == NGX_MODELGW_TOPUP_ASKED)
        {
            return topup;
        }
    }

    return NULL;
}


void
ngx_modelgw_ledger_topup_tried(ngx_modelgw_topup_t *topup)
{
    __atomic_store_n(&topup->tried, 1, __ATOMIC_RELEASE);
}


void
ngx_modelgw_ledger_topup_answer(ngx_modelgw_ledger_t *l,
    ngx_modelgw_topup_t *topup, ngx_modelgw_topup_e state)
{
    ngx_modelgw_ledger_account_t  *a;

    ngx_modelgw_redo_lock(&l->redo);

    if (topup->state == NGX_MODELGW_TOPUP_ASKED) {

        if (state == NGX_MODELGW_TOPUP_NEW) {
            a = ngx_modelgw_ledger_account_at(l, topup->account);

            ngx_modelgw_redo_add(&l->redo, (uint64_t *) &a->balance,
                                 ngx_modelgw_ledger_sum(a->balance,
                                                        topup->amount));
        }

        if (topup->worker == NGX_MODELGW_LEDGER_NONE) {
            state = NGX_MODELGW_TOPUP_FREE;
        }

        ngx_modelgw_redo_add(&l->redo, &topup->state, state);
        ngx_modelgw_redo_commit(&l->redo);
    }

    ngx_modelgw_redo_unlock(&l->redo);
}
