
/*
 * Calls that wait until enough is lent to this node.
 *
 *     FREE -> ASKED -> HELD, CREDIT, BUDGET, SILENT, GONE -> FREE
 *
 * A claim waits for the funds that did not cover its call, its "waits"; each
 * of their leases counts it in "claims".  It may begin to wait for the other
 * one later, when calls have come before it there; its ticket is of the time
 * when it was made, so it is served before those.  The state, the counts and
 * the call's hold change by one commit.
 *
 * Two claims do not wait for each other: the one with the lowest ticket is the
 * first in all that it waits for.
 *
 * The table is small, so it is searched as a whole: nothing has to be linked.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_ledger_private.h"


#define ngx_modelgw_claim_bit(kind)  ((uint64_t) 1 << (kind))


static uint64_t ngx_modelgw_claim_lacks_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_claim_t *claim, uint64_t time,
    int64_t lacks[NGX_MODELGW_FUNDS]);
static ngx_uint_t ngx_modelgw_claim_fund(ngx_modelgw_claim_t *claim,
    ngx_uint_t kind, ngx_modelgw_fund_t *fund);
static ngx_modelgw_call_t *ngx_modelgw_claim_call(ngx_modelgw_ledger_t *l,
    ngx_modelgw_claim_t *claim);
static ngx_uint_t ngx_modelgw_claim_behind(ngx_modelgw_ledger_t *l,
    ngx_modelgw_claim_t *claim);
static void ngx_modelgw_claim_count_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_claim_t *claim, uint64_t waits, int64_t n);
static void ngx_modelgw_claim_state_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_claim_t *claim, ngx_modelgw_claim_e state);
static ngx_uint_t ngx_modelgw_claim_refused(ngx_modelgw_claim_t *claim,
    ngx_modelgw_ask_t *ask, ngx_modelgw_claim_said_t *said);
static void ngx_modelgw_claim_free_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_claim_t *claim);


ngx_int_t
ngx_modelgw_claim_locked(ngx_modelgw_ledger_t *l, ngx_modelgw_call_t *call,
    uint32_t account, ngx_modelgw_budget_t *budget, uint64_t time,
    ngx_msec_t wait, ngx_modelgw_claim_t **claim)
{
    int64_t               lacks[NGX_MODELGW_FUNDS];
    ngx_uint_t            i;
    ngx_modelgw_fund_t    fund;
    ngx_modelgw_claim_t  *c;
    ngx_modelgw_lease_t  *lease;

    for (i = 0; l->claims[i].state != NGX_MODELGW_CLAIM_FREE; i++) {
        if (i == NGX_MODELGW_CLAIMS - 1) {
            return NGX_BUSY;
        }
    }

    c = &l->claims[i];

    /* all but the state, which is still FREE */

    c->ticket = l->ticket + 1;
    c->id = call->id;
    c->waits = 0;
    c->slot = call - l->calls;
    c->worker = call->worker;
    c->account = account;
    c->key = budget->limit ? call->key : NGX_MODELGW_LEDGER_NONE;
    c->budget = *budget;
    c->made = time;
    c->deadline = time + wait;
    c->available = 0;
    c->away = 0;

    ngx_memzero(c->recalls, sizeof(c->recalls));
    ngx_memzero(&c->left, sizeof(ngx_modelgw_ledger_left_t));

    for (i = 0; i < NGX_MODELGW_FUNDS; i++) {

        if (ngx_modelgw_claim_fund(c, i, &fund)) {
            lease = ngx_modelgw_lease(l, &fund);

            lease->used = time;

            if (i == NGX_MODELGW_FUND_BUDGET) {
                lease->limit = budget->limit;
            }
        }
    }

    c->waits = ngx_modelgw_claim_lacks_locked(l, c, time, lacks);

    ngx_modelgw_claim_count_locked(l, c, c->waits, 1);
    ngx_modelgw_redo_add(&l->redo, &l->ticket, c->ticket);
    ngx_modelgw_redo_add(&l->redo, &l->node->waiting, l->node->waiting + 1);
    ngx_modelgw_redo_add(&l->redo, &c->state, NGX_MODELGW_CLAIM_ASKED);
    ngx_modelgw_redo_commit(&l->redo);

    *claim = c;

    return NGX_OK;
}


/*
 * What the call lacks, and the funds that it has to wait for: those that do not
 * cover it, and those that others wait for.  A budget of which it is not known
 * what was spent covers nothing.
 */

static uint64_t
ngx_modelgw_claim_lacks_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_claim_t *claim, uint64_t time,
    int64_t lacks[NGX_MODELGW_FUNDS])
{
    int64_t                     hold;
    uint64_t                    waits;
    ngx_int_t                   rc;
    ngx_uint_t                  i;
    ngx_modelgw_fund_t          fund;
    ngx_modelgw_ledger_left_t   left;

    waits = 0;
    hold = l->calls[claim->slot].hold;

    for (i = 0; i < NGX_MODELGW_FUNDS; i++) {
        lacks[i] = 0;

        if (hold <= 0 || !ngx_modelgw_claim_fund(claim, i, &fund)) {
            continue;
        }

        rc = ngx_modelgw_lease_left_locked(l, &fund, time, &left);

        if (i == NGX_MODELGW_FUND_BUDGET) {
            claim->left = left;

            if (ngx_modelgw_ledger_key_at(l, claim->key)->window
                != claim->budget.window)
            {
                rc = NGX_DECLINED;
            }
        }

        lacks[i] = (rc == NGX_OK)
                   ? ngx_max(ngx_modelgw_ledger_sum(hold, -left.amount), 0)
                   : hold;

        if (lacks[i] || ngx_modelgw_lease(l, &fund)->claims) {
            waits |= ngx_modelgw_claim_bit(i);
        }
    }

    return waits;
}


/* Whether its call has such a fund. */

static ngx_uint_t
ngx_modelgw_claim_fund(ngx_modelgw_claim_t *claim, ngx_uint_t kind,
    ngx_modelgw_fund_t *fund)
{
    fund->kind = kind;
    fund->index = (kind == NGX_MODELGW_FUND_ACCOUNT) ? claim->account
                                                     : claim->key;

    return fund->index != NGX_MODELGW_LEDGER_NONE;
}


/* NULL: it has ended, its slot may be another's */

static ngx_modelgw_call_t *
ngx_modelgw_claim_call(ngx_modelgw_ledger_t *l, ngx_modelgw_claim_t *claim)
{
    ngx_modelgw_call_t  *call;

    call = &l->calls[claim->slot];

    return (call->id == claim->id && call->state == NGX_MODELGW_CALL_OPEN)
           ? call : NULL;
}


void
ngx_modelgw_claim_free(ngx_modelgw_ledger_t *l, ngx_modelgw_claim_t *claim)
{
    ngx_modelgw_ledger_lock(l);

    ngx_modelgw_claim_free_locked(l, claim);

    ngx_modelgw_ledger_unlock(l);
}


static void
ngx_modelgw_claim_free_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_claim_t *claim)
{
    if (claim->state == NGX_MODELGW_CLAIM_ASKED) {
        ngx_modelgw_claim_state_locked(l, claim, NGX_MODELGW_CLAIM_FREE);
        ngx_modelgw_redo_commit(&l->redo);
        return;
    }

    __atomic_store_n(&claim->state, NGX_MODELGW_CLAIM_FREE, __ATOMIC_RELEASE);
}


void
ngx_modelgw_claims_forget_locked(ngx_modelgw_ledger_t *l, uint32_t worker)
{
    ngx_uint_t  i;

    if (l->claims == NULL) {
        return;
    }

    for (i = 0; i < NGX_MODELGW_CLAIMS; i++) {
        if (l->claims[i].state != NGX_MODELGW_CLAIM_FREE
            && l->claims[i].worker == worker)
        {
            ngx_modelgw_claim_free_locked(l, &l->claims[i]);
        }
    }
}


ngx_modelgw_claim_t *
ngx_modelgw_claim_asked(ngx_modelgw_ledger_t *l, ngx_uint_t *i)
{
    ngx_uint_t            k;
    ngx_modelgw_claim_t  *claim, *first;

    first = NULL;

    for (k = 0; k < NGX_MODELGW_CLAIMS; k++) {
        claim = &l->claims[k];

        if (ngx_modelgw_ledger_load(&claim->state) == NGX_MODELGW_CLAIM_ASKED
            && claim->ticket > *i
            && (first == NULL || claim->ticket < first->ticket))
        {
            first = claim;
        }
    }

    if (first) {
        *i = first->ticket;
    }

    return first;
}


ngx_modelgw_claim_t *
ngx_modelgw_claim_first_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, int64_t *hold, int64_t *others)
{
    ngx_uint_t            i;
    ngx_modelgw_fund_t    f;
    ngx_modelgw_call_t   *call;
    ngx_modelgw_claim_t  *claim, *first;

    *hold = 0;
    *others = 0;

    if (ngx_modelgw_lease(l, fund)->claims == 0) {
        return NULL;
    }

    first = NULL;
    i = 0;

    while ((claim = ngx_modelgw_claim_asked(l, &i)) != NULL) {

        call = ngx_modelgw_claim_call(l, claim);

        if (call == NULL
            || !(claim->waits & ngx_modelgw_claim_bit(fund->kind))
            || !ngx_modelgw_claim_fund(claim, fund->kind, &f)
            || f.index != fund->index)
        {
            continue;
        }

        if (first) {
            *others = ngx_modelgw_ledger_sum(*others, call->hold);

        } else {
            first = claim;
            *hold = call->hold;
        }
    }

    return first;
}


ngx_int_t
ngx_modelgw_claim_try_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_claim_t *claim, uint64_t time,
    int64_t lacks[NGX_MODELGW_FUNDS])
{
    uint64_t              waits;
    ngx_uint_t            i;
    ngx_modelgw_call_t   *call;
    ngx_modelgw_fund_t    fund;
    ngx_modelgw_lease_t  *lease;

    if (claim->state != NGX_MODELGW_CLAIM_ASKED) {
        return NGX_ERROR;
    }

    call = ngx_modelgw_claim_call(l, claim);

    if (call == NULL) {
        ngx_modelgw_claim_end_locked(l, claim, NGX_MODELGW_CLAIM_GONE);
        return NGX_ERROR;
    }

    waits = ngx_modelgw_claim_lacks_locked(l, claim, time, lacks)
            & ~claim->waits;

    if (waits) {
        ngx_modelgw_claim_count_locked(l, claim, waits, 1);
        ngx_modelgw_redo_add(&l->redo, &claim->waits, claim->waits | waits);
        ngx_modelgw_redo_commit(&l->redo);
    }

    if (ngx_modelgw_claim_behind(l, claim)) {
        return NGX_BUSY;
    }

    if (lacks[NGX_MODELGW_FUND_ACCOUNT] || lacks[NGX_MODELGW_FUND_BUDGET]) {
        return NGX_DECLINED;
    }

    /* not before: what is refused is no reason to borrow in advance */

    for (i = 0; i < NGX_MODELGW_FUNDS; i++) {

        if (ngx_modelgw_claim_fund(claim, i, &fund)) {
            lease = ngx_modelgw_lease(l, &fund);
            lease->peak = ngx_max(lease->peak, call->hold);
        }
    }

    call->account = claim->account;

    ngx_modelgw_ledger_reserve_locked(l, call,
                            ngx_modelgw_ledger_account_at(l, claim->account));
    ngx_modelgw_claim_state_locked(l, claim, NGX_MODELGW_CLAIM_HELD);
    ngx_modelgw_redo_commit(&l->redo);

    return NGX_OK;
}


/* Whether an older one waits for a fund that this one waits for. */

static ngx_uint_t
ngx_modelgw_claim_behind(ngx_modelgw_ledger_t *l, ngx_modelgw_claim_t *claim)
{
    uint64_t              both;
    ngx_uint_t            i;
    ngx_modelgw_claim_t  *c;

    for (i = 0; i < NGX_MODELGW_CLAIMS; i++) {
        c = &l->claims[i];

        if (c->state != NGX_MODELGW_CLAIM_ASKED || c->ticket >= claim->ticket) {
            continue;
        }

        both = c->waits & claim->waits;

        if (((both & ngx_modelgw_claim_bit(NGX_MODELGW_FUND_ACCOUNT))
             && c->account == claim->account)
            || ((both & ngx_modelgw_claim_bit(NGX_MODELGW_FUND_BUDGET))
                && c->key == claim->key))
        {
            return 1;
        }
    }

    return 0;
}


/* n more calls wait for these funds, when the caller commits */

static void
ngx_modelgw_claim_count_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_claim_t *claim, uint64_t waits, int64_t n)
{
    ngx_uint_t            i;
    ngx_modelgw_fund_t    fund;
    ngx_modelgw_lease_t  *lease;

    for (i = 0; i < NGX_MODELGW_FUNDS; i++) {

        if ((waits & ngx_modelgw_claim_bit(i))
            && ngx_modelgw_claim_fund(claim, i, &fund))
        {
            lease = ngx_modelgw_lease(l, &fund);
            ngx_modelgw_redo_add(&l->redo, &lease->claims, lease->claims + n);
        }
    }
}


void
ngx_modelgw_claim_end_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_claim_t *claim, ngx_modelgw_claim_e state)
{
    if (claim->state == NGX_MODELGW_CLAIM_ASKED) {
        ngx_modelgw_claim_state_locked(l, claim, state);
        ngx_modelgw_redo_commit(&l->redo);
    }
}


/* Its call does not wait any more, when the caller commits. */

static void
ngx_modelgw_claim_state_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_claim_t *claim, ngx_modelgw_claim_e state)
{
    uint64_t                  *counter;
    ngx_modelgw_lease_node_t  *node;

    node = l->node;

    uint64_t *const  counters[] = {
        [NGX_MODELGW_CLAIM_HELD] = &node->lent,
        [NGX_MODELGW_CLAIM_CREDIT] = &node->refused,
        [NGX_MODELGW_CLAIM_BUDGET] = &node->refused,
        [NGX_MODELGW_CLAIM_SILENT] = &node->silent,
        [NGX_MODELGW_CLAIM_GONE] = NULL
    };

    counter = counters[state];

    if (counter) {
        ngx_modelgw_redo_add(&l->redo, counter, *counter + 1);
    }

    ngx_modelgw_claim_count_locked(l, claim, claim->waits, -1);
    ngx_modelgw_redo_add(&l->redo, &node->waiting, node->waiting - 1);
    ngx_modelgw_redo_add(&l->redo, &claim->state, state);
}


ngx_uint_t
ngx_modelgw_claim_said_locked(ngx_modelgw_ledger_t *l, ngx_modelgw_ask_t *ask,
    ngx_modelgw_claim_said_t *said, uint64_t time)
{
    int64_t               all, lacks[NGX_MODELGW_FUNDS];
    ngx_int_t             rc;
    ngx_uint_t            i, n;
    ngx_modelgw_fund_t    fund;
    ngx_modelgw_claim_t  *claim;

    i = 0;
    n = 0;

    while ((claim = ngx_modelgw_claim_asked(l, &i)) != NULL
           && claim->ticket <= ask->ticket)
    {
        if (!(claim->waits & ngx_modelgw_claim_bit(ask->fund.kind))
            || !ngx_modelgw_claim_fund(claim, ask->fund.kind, &fund)
            || fund.index != ask->fund.index)
        {
            continue;
        }

        rc = ngx_modelgw_claim_try_locked(l, claim, time, lacks);

        if (rc == NGX_OK || rc == NGX_ERROR) {
            n++;
            continue;
        }

        all = ngx_modelgw_ledger_sum(said->free,
                          ngx_modelgw_lease_available_locked(l, &fund, time));

        if (ngx_modelgw_claim_refused(claim, ask, said)
            && l->calls[claim->slot].hold > all)
        {
            claim->available = all;
            claim->away = said->away;

            ngx_modelgw_claim_end_locked(l, claim,
                                 (fund.kind == NGX_MODELGW_FUND_ACCOUNT)
                                 ? NGX_MODELGW_CLAIM_CREDIT
                                 : NGX_MODELGW_CLAIM_BUDGET);
            n++;
        }
    }

    return n;
}


/* Whether all nodes have given back what they could since it was made. */

static ngx_uint_t
ngx_modelgw_claim_refused(ngx_modelgw_claim_t *claim, ngx_modelgw_ask_t *ask,
    ngx_modelgw_claim_said_t *said)
{
    uint64_t  no;

    if (!said->brief) {
        return 0;
    }

    /* that which this need has raised, with the first answer or now */

    no = ask->recall ? ask->recall : said->recall;

    if (claim->recalls[ask->fund.kind] == 0 && ask->recall == 0) {
        claim->recalls[ask->fund.kind] = no;
    }

    return said->silent == 0 && claim->recalls[ask->fund.kind]
           && claim->recalls[ask->fund.kind] <= no;
}
