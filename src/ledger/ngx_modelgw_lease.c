
/*
 * Leases: what a node has borrowed of accounts and budgets.
 *
 * The totals only grow, so they may be said any number of times.  Of these,
 * "granted" and "forced" are the database's word, "returned" is the node's: it
 * grows here first, then in the journal, then it is said.  A node that is
 * killed in between has less to spend than the database thinks, never more.
 *
 * A balance and the totals that it follows from change by one commit.  What
 * only decides how much is borrowed in advance is changed word by word, by the
 * writer and by the exchanger: it may be a little off, nothing depends on that.
 *
 * Borrowed in advance is twice the largest call of about a minute, and what two
 * seconds cost.  When less than half of this target is left, the rest of it is
 * asked for.  More than twice the target is given back down to it, and
 * everything after ten seconds without a call, or when another node needs it.
 * Calls that wait are another matter: what they need is asked for all or
 * nothing.  But a recall takes what they have gathered so far, too, or two
 * nodes would wait for each other's.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_ledger_private.h"
#include "ngx_modelgw_share.h"


#define NGX_MODELGW_LEASE_NODES    1024  /* the last bits of a call's id */
#define NGX_MODELGW_LEASE_STEP     100   /* ms: the rate is averaged by these */
#define NGX_MODELGW_LEASE_STEPS    64    /* after these it is the new one */
#define NGX_MODELGW_LEASE_MINUTE   60000


/* what a fund has on this node */

typedef struct {
    int64_t               left;          /* of what is lent */
    int64_t               held;
    int64_t               spent;         /* in all, or in the window */
    uint64_t              ends;          /* of the window; 0: of an account */
} ngx_modelgw_lease_state_t;


static ngx_int_t ngx_modelgw_lease_state_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, uint64_t time, ngx_modelgw_lease_state_t *s);
static int64_t ngx_modelgw_lease_lent(ngx_modelgw_lease_t *lease);
static int64_t ngx_modelgw_lease_target(ngx_modelgw_lease_t *lease,
    ngx_modelgw_lease_state_t *s, uint64_t time);
static void ngx_modelgw_lease_average(ngx_modelgw_lease_t *lease,
    int64_t spent, uint64_t time);
static void ngx_modelgw_lease_forget_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_lease_t *lease, uint64_t ends);
static void ngx_modelgw_lease_turn_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_lease_t *lease, uint64_t ends);
static void ngx_modelgw_lease_back_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, ngx_modelgw_lease_t *lease, int64_t back);
static void ngx_modelgw_lease_add_balance_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, int64_t amount);
static void ngx_modelgw_node_bar(ngx_modelgw_ledger_t *l);


u_char *
ngx_modelgw_lease_init(ngx_modelgw_ledger_t *l, u_char *p,
    ngx_modelgw_ledger_room_t *room)
{
    ngx_uint_t  i;

    const uint32_t  n[NGX_MODELGW_FUNDS] = { room->accounts, room->keys };

    for (i = 0; i < NGX_MODELGW_FUNDS; i++) {
        p = ngx_align_ptr(p, NGX_MODELGW_LEDGER_ALIGN);
        l->leases[i] = (ngx_modelgw_lease_t *) p;
        p += n[i] * sizeof(ngx_modelgw_lease_t);
    }

    p = ngx_align_ptr(p, NGX_MODELGW_LEDGER_ALIGN);
    l->claims = (ngx_modelgw_claim_t *) p;
    p += NGX_MODELGW_CLAIMS * sizeof(ngx_modelgw_claim_t);

    p = ngx_align_ptr(p, NGX_MODELGW_LEDGER_ALIGN);
    l->node = (ngx_modelgw_lease_node_t *) p;
    p += sizeof(ngx_modelgw_lease_node_t);

    p = ngx_align_ptr(p, NGX_MODELGW_LEDGER_ALIGN);
    l->shares = ngx_modelgw_shares_init(p, room->keys);
    p += ngx_modelgw_shares_size(room->keys);

    ngx_modelgw_node_set(l, NGX_MODELGW_NODE_NEW);
    l->node->live = 1;

    return p;
}


u_char *
ngx_modelgw_fund_name(ngx_modelgw_ledger_t *l, ngx_modelgw_fund_t *fund,
    uint64_t time, u_char *p)
{
    ngx_uint_t                     window;
    ngx_modelgw_ledger_key_t      *key;
    ngx_modelgw_ledger_account_t  *a;

    if (fund->kind == NGX_MODELGW_FUND_ACCOUNT) {
        a = ngx_modelgw_ledger_account_at(l, fund->index);

        return ngx_cpymem(p, a->name.data, a->name.len);
    }

    key = ngx_modelgw_ledger_key_at(l, fund->index);
    window = key->window & ~NGX_MODELGW_LEDGER_PENDING;

    *p++ = '#';
    p = ngx_cpymem(p, key->name.data, key->name.len);

    return ngx_sprintf(p, "/%V/%uL", &ngx_modelgw_windows[window],
                       ngx_modelgw_budget_start(window, time));
}


ngx_int_t
ngx_modelgw_fund_find(ngx_modelgw_ledger_t *l, ngx_str_t *name,
    ngx_modelgw_fund_t *fund, uint64_t *ends)
{
    u_char                    *p, *last, *window, text[NGX_MODELGW_FUND_NAME];
    uint64_t                   end;
    ngx_int_t                  rc;
    ngx_str_t                  key;
    ngx_modelgw_lease_t       *lease;
    ngx_modelgw_ledger_key_t  *k;

    if (name->len == 0 || name->data[0] != '#') {
        if (ends) {
            *ends = 0;
        }

        fund->kind = NGX_MODELGW_FUND_ACCOUNT;

        return ngx_modelgw_ledger_account(l, name, 0, 0, 0, 0, &fund->index);
    }

    /* ids of keys may have slashes */

    last = name->data + name->len;
    window = NULL;
    ngx_memzero(&key, sizeof(ngx_str_t));

    for (p = last - 1; p > name->data; p--) {
        if (*p != '/') {
            continue;
        }

        if (window) {
            key.data = name->data + 1;
            key.len = p - key.data;
            break;
        }

        window = p;
    }

    if (key.len == 0) {
        return NGX_DECLINED;
    }

    rc = NGX_DECLINED;
    fund->kind = NGX_MODELGW_FUND_BUDGET;

    ngx_modelgw_ledger_lock(l);

    fund->index = ngx_modelgw_ledger_find_locked(&l->keys, &key);

    if (fund->index != NGX_MODELGW_LEDGER_NONE) {
        k = ngx_modelgw_ledger_key_at(l, fund->index);
        lease = &l->leases[NGX_MODELGW_FUND_BUDGET][fund->index];

        end = (lease->ends > NGX_MODELGW_LEASE_OTHER) ? lease->ends : k->ends;

        p = ngx_modelgw_fund_name(l, fund, end - 1, text);

        if ((size_t) (p - text) == name->len
            && ngx_memcmp(text, name->data, name->len) == 0)
        {
            rc = NGX_OK;

            /* no answer for the other one can come any more */

            if (lease->ends == NGX_MODELGW_LEASE_OTHER) {
                __atomic_store_n(&lease->ends, 0, __ATOMIC_RELEASE);
            }
        }

        if (ends) {
            *ends = end;
        }
    }

    ngx_modelgw_ledger_unlock(l);

    return rc;
}


ngx_modelgw_lease_t *
ngx_modelgw_lease(ngx_modelgw_ledger_t *l, ngx_modelgw_fund_t *fund)
{
    return l->leases[fund->kind] ? &l->leases[fund->kind][fund->index] : NULL;
}


void
ngx_modelgw_lease_load(ngx_modelgw_ledger_t *l, ngx_modelgw_fund_t *fund,
    int64_t granted, int64_t returned, int64_t forced, ngx_uint_t window,
    uint64_t ends)
{
    ngx_modelgw_lease_t  *lease;

    lease = ngx_modelgw_lease(l, fund);

    lease->granted = granted;
    lease->returned = returned;
    lease->forced = forced;
    lease->said = returned;
    lease->window = window;
    lease->ends = ends;
}


void
ngx_modelgw_lease_drop_locked(ngx_modelgw_ledger_t *l, uint32_t key)
{
    ngx_modelgw_lease_t  *lease;

    if (l->kind == NGX_MODELGW_LEDGER_CLUSTER) {
        lease = &l->leases[NGX_MODELGW_FUND_BUDGET][key];

        ngx_modelgw_lease_forget_locked(l, lease,
                                        lease->ends ? NGX_MODELGW_LEASE_OTHER
                                                    : 0);
    }
}


/* Nothing is said of a key that has no window, so no answer can come for it. */

void
ngx_modelgw_lease_window_locked(ngx_modelgw_ledger_t *l, uint32_t key,
    ngx_uint_t window)
{
    ngx_modelgw_lease_t  *lease;

    if (l->kind != NGX_MODELGW_LEDGER_CLUSTER) {
        return;
    }

    lease = &l->leases[NGX_MODELGW_FUND_BUDGET][key];

    if (ngx_modelgw_ledger_key_at(l, key)->window != NGX_MODELGW_WINDOW_NONE
        || lease->ends == NGX_MODELGW_LEASE_OTHER)
    {
        ngx_modelgw_lease_drop_locked(l, key);

    } else if (lease->window != window) {
        ngx_modelgw_lease_forget_locked(l, lease, 0);
    }
}


static void
ngx_modelgw_lease_forget_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_lease_t *lease, uint64_t ends)
{
    ngx_modelgw_lease_turn_locked(l, lease, ends);
    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &lease->limit, 0);
    ngx_modelgw_redo_add(&l->redo, &lease->window, NGX_MODELGW_WINDOW_NONE);
    ngx_modelgw_redo_commit(&l->redo);

    lease->peak = 0;
    lease->rate = 0;
    lease->rated = 0;
    lease->used = 0;
}


/* NGX_DECLINED: what is spent of a budget is not known, or there is none */

static ngx_int_t
ngx_modelgw_lease_state_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, uint64_t time, ngx_modelgw_lease_state_t *s)
{
    ngx_modelgw_lease_t           *lease;
    ngx_modelgw_ledger_key_t      *key;
    ngx_modelgw_ledger_account_t  *a;

    lease = ngx_modelgw_lease(l, fund);

    if (fund->kind == NGX_MODELGW_FUND_ACCOUNT) {
        a = ngx_modelgw_ledger_account_at(l, fund->index);

        s->left = a->balance;
        s->held = a->held;
        s->spent = ngx_modelgw_lease_lent(lease) - a->balance;
        s->ends = 0;

        return NGX_OK;
    }

    key = ngx_modelgw_ledger_key_at(l, fund->index);

    if (key->window == NGX_MODELGW_WINDOW_NONE
        || (key->window & NGX_MODELGW_LEDGER_PENDING))
    {
        return NGX_DECLINED;
    }

    s->spent = ngx_modelgw_ledger_spent(key, time, &s->ends);
    s->held = key->held;
    s->left = -s->spent;

    if (lease->ends == s->ends) {
        s->left += ngx_modelgw_lease_lent(lease);
    }

    return NGX_OK;
}


static int64_t
ngx_modelgw_lease_lent(ngx_modelgw_lease_t *lease)
{
    return lease->granted - lease->returned - lease->forced;
}


int64_t
ngx_modelgw_lease_available_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, uint64_t time)
{
    ngx_modelgw_ledger_left_t  left;

    (void) ngx_modelgw_lease_left_locked(l, fund, time, &left);

    return left.amount;
}


ngx_int_t
ngx_modelgw_lease_left_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, uint64_t time, ngx_modelgw_ledger_left_t *left)
{
    ngx_modelgw_lease_state_t  s;

    ngx_memzero(left, sizeof(ngx_modelgw_ledger_left_t));

    if (ngx_modelgw_lease_state_locked(l, fund, time, &s) != NGX_OK) {
        return NGX_DECLINED;
    }

    left->amount = ngx_modelgw_ledger_sum(s.left, -s.held);
    left->ends = s.ends;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_lease_wait_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, uint32_t account, int64_t *available)
{
    ngx_modelgw_ledger_account_t  *a;

    a = ngx_modelgw_ledger_account_at(l, account);

    call->account = account;
    *available = ngx_modelgw_ledger_sum(a->balance, -a->held);

    return NGX_DECLINED;
}


ngx_int_t
ngx_modelgw_lease_budget_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, ngx_modelgw_budget_t *budget, uint64_t time,
    ngx_modelgw_ledger_left_t *left)
{
    ngx_modelgw_fund_t    fund;
    ngx_modelgw_lease_t  *lease;

    fund.kind = NGX_MODELGW_FUND_BUDGET;
    fund.index = call->key;

    if (ngx_modelgw_ledger_key_at(l, call->key)->window != budget->window
        || ngx_modelgw_lease_left_locked(l, &fund, time, left) != NGX_OK)
    {
        return NGX_ERROR;
    }

    lease = ngx_modelgw_lease(l, &fund);
    lease->limit = budget->limit;

    return (call->hold > 0 && (lease->claims || left->amount < call->hold))
           ? NGX_DECLINED : NGX_OK;
}


ngx_uint_t
ngx_modelgw_lease_active(ngx_modelgw_ledger_t *l, ngx_modelgw_fund_t *fund)
{
    int64_t                        left;
    ngx_modelgw_lease_t           *lease;
    ngx_modelgw_ledger_key_t      *key;
    ngx_modelgw_ledger_account_t  *a;

    lease = ngx_modelgw_lease(l, fund);

    if (ngx_modelgw_ledger_load(&lease->claims)
        || ngx_modelgw_ledger_load(&lease->used)
        || ngx_modelgw_ledger_load(&lease->recall)
        || lease->returned != lease->said
        || lease->told)
    {
        return 1;
    }

    /* what calls hold was lent, but may have been forced since */

    if (fund->kind == NGX_MODELGW_FUND_ACCOUNT) {
        a = ngx_modelgw_ledger_account_at(l, fund->index);

        return a->balance || a->held;
    }

    left = ngx_modelgw_lease_lent(lease);
    key = ngx_modelgw_ledger_key_at(l, fund->index);

    if (key->ends == lease->ends) {
        left -= key->spent;
    }

    return left || key->held;
}


void
ngx_modelgw_lease_used(ngx_modelgw_ledger_t *l, ngx_modelgw_call_t *call,
    uint64_t time)
{
    ngx_uint_t            i;
    ngx_modelgw_lease_t  *lease;

    const uint32_t  index[NGX_MODELGW_FUNDS] = { call->account, call->key };

    for (i = 0; i < NGX_MODELGW_FUNDS; i++) {
        if (l->leases[i] == NULL || index[i] == NGX_MODELGW_LEDGER_NONE) {
            continue;
        }

        lease = &l->leases[i][index[i]];

        if (lease->peak < call->hold) {
            __atomic_store_n(&lease->peak, call->hold, __ATOMIC_RELAXED);
        }

        __atomic_store_n(&lease->used, time, __ATOMIC_RELEASE);
    }
}


ngx_int_t
ngx_modelgw_lease_ask_locked(ngx_modelgw_ledger_t *l, ngx_modelgw_fund_t *fund,
    uint64_t time, ngx_modelgw_ask_t *ask)
{
    int64_t                     available, target, back, hold, others;
    ngx_uint_t                  say, recalled;
    ngx_modelgw_claim_t        *claim;
    ngx_modelgw_lease_t        *lease;
    ngx_modelgw_lease_state_t   s;

    ngx_memzero(ask, sizeof(ngx_modelgw_ask_t));

    lease = ngx_modelgw_lease(l, fund);

    if (ngx_modelgw_lease_state_locked(l, fund, time, &s) != NGX_OK) {
        return NGX_DECLINED;
    }

    recalled = 0;

    if (lease->ends != s.ends) {

        /* what a recall is to give back is only known with the answer */

        recalled = (lease->recall != 0);

        if (lease->limit == 0 && !recalled) {

            /* nor does it matter any more what was held of that window */

            lease->told = 0;

            return NGX_DECLINED;
        }

        ngx_modelgw_lease_turn_locked(l, lease, s.ends);
        ngx_modelgw_redo_commit(&l->redo);
    }

    target = ngx_modelgw_lease_target(lease, &s, time);
    available = ngx_modelgw_ledger_sum(s.left, -s.held);
    back = 0;

    if (lease->recall || (target == 0 && lease->claims == 0)) {
        back = available;

    } else if (lease->claims == 0 && available / 2 > target) {
        back = available - target;
    }

    ask->answered = lease->recall;

    if (back > 0 || lease->recall) {
        back = ngx_max(back, 0);

        ngx_modelgw_lease_back_locked(l, fund, lease, back);

        s.left -= back;
        available -= back;
    }

    /* what is lent to a lease below 0 is only known in the next exchange */

    claim = ngx_modelgw_claim_first_locked(l, fund, &hold, &others);

    if (s.left >= 0 && claim) {
        ask->need = ngx_max(hold - available, 0);
        ask->recall = claim->recalls[fund->kind];
    }

    if (s.left >= 0 && time >= lease->recalled) {
        available += ask->need - hold;

        if (available < target / 2 || others) {
            target = ngx_modelgw_ledger_sum(target, others);
            ask->want = ngx_max(target - available, 0);
        }
    }

    ask->fund = *fund;
    ask->len = ngx_modelgw_fund_name(l, fund, s.ends - 1, ask->name)
               - ask->name;
    ask->ends = s.ends;
    ask->limit = lease->limit;
    ask->granted = lease->granted;
    ask->returned = lease->returned;
    ask->forced = lease->forced;
    ask->held = s.held;
    ask->ticket = l->ticket;
    ask->back = (lease->returned != lease->said);

    say = (ask->back || ask->answered || ask->need || ask->want || s.left < 0
           || recalled || (target == 0 && lease->told != s.held));

    return say ? NGX_OK : NGX_DECLINED;
}


/* 0: it is idle, and calls do not wait for it */

static int64_t
ngx_modelgw_lease_target(ngx_modelgw_lease_t *lease,
    ngx_modelgw_lease_state_t *s, uint64_t time)
{
    int64_t  target;

    ngx_modelgw_lease_average(lease, s->spent, time);

    /* a clock may have been set back */

    if (lease->used > time) {
        lease->used = time;
    }

    if (lease->recalled > time + NGX_MODELGW_LEASE_RECALL) {
        lease->recalled = time;
    }

    if (lease->claims == 0 && time - lease->used >= NGX_MODELGW_LEASE_IDLE) {
        lease->used = 0;
        return 0;
    }

    target = ngx_modelgw_ledger_sum(lease->peak, lease->rate);

    return ngx_modelgw_ledger_sum(target, target);
}


static void
ngx_modelgw_lease_average(ngx_modelgw_lease_t *lease, int64_t spent,
    uint64_t time)
{
    int64_t   rate;
    uint64_t  n;

    if (time < lease->rated || spent < lease->spent || lease->rated == 0) {
        lease->rated = time;
        lease->spent = spent;
        return;
    }

    n = (time - lease->rated) / NGX_MODELGW_LEASE_STEP;

    if (n == 0) {
        return;
    }

    rate = (spent - lease->spent) / (int64_t) (time - lease->rated) * 1000;

    for (n = ngx_min(n, NGX_MODELGW_LEASE_STEPS); n; n--) {
        lease->rate += (rate - lease->rate) / 8;
    }

    n = time / NGX_MODELGW_LEASE_MINUTE
        - lease->rated / NGX_MODELGW_LEASE_MINUTE;

    lease->peak >>= ngx_min(n, 63);

    lease->rated = time;
    lease->spent = spent;
}


/* Nothing is lent for another window, when the caller commits. */

static void
ngx_modelgw_lease_turn_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_lease_t *lease, uint64_t ends)
{
    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &lease->granted, 0);
    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &lease->returned, 0);
    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &lease->forced, 0);
    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &lease->said, 0);
    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &lease->told, 0);
    ngx_modelgw_redo_add(&l->redo, &lease->ends, ends);
    ngx_modelgw_redo_add(&l->redo, &lease->recall, 0);
}


/* Gives so much back; a recall is answered by that. */

static void
ngx_modelgw_lease_back_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, ngx_modelgw_lease_t *lease, int64_t back)
{
    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &lease->returned,
                         lease->returned + back);
    ngx_modelgw_redo_add(&l->redo, &lease->recall, 0);

    ngx_modelgw_lease_add_balance_locked(l, fund, -back);

    ngx_modelgw_redo_commit(&l->redo);
}


/* That of a budget is computed. */

static void
ngx_modelgw_lease_add_balance_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, int64_t amount)
{
    ngx_modelgw_ledger_account_t  *a;

    if (fund->kind != NGX_MODELGW_FUND_ACCOUNT) {
        return;
    }

    a = ngx_modelgw_ledger_account_at(l, fund->index);

    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &a->balance,
                         ngx_modelgw_ledger_sum(a->balance, amount));
}


void
ngx_modelgw_lease_said_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, uint64_t ends, int64_t granted, int64_t returned,
    int64_t forced, int64_t held)
{
    int64_t               lent, all;
    ngx_modelgw_lease_t  *lease;

    lease = ngx_modelgw_lease(l, fund);

    if (lease->ends != ends && lease->ends != 0) {
        return;
    }

    lent = ngx_modelgw_lease_lent(lease);
    all = ngx_max(lease->returned, returned);

    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &lease->granted, granted);
    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &lease->returned, all);
    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &lease->forced, forced);
    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &lease->said, returned);
    ngx_modelgw_redo_add(&l->redo, (uint64_t *) &lease->told, held);
    ngx_modelgw_redo_add(&l->redo, &lease->ends, ends);
    ngx_modelgw_redo_add(&l->redo, &lease->recall, 0);

    ngx_modelgw_lease_add_balance_locked(l, fund,
                                         granted - all - forced - lent);

    ngx_modelgw_redo_commit(&l->redo);
}


void
ngx_modelgw_lease_recall_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, uint64_t no, uint64_t time)
{
    ngx_modelgw_lease_t  *lease;

    lease = ngx_modelgw_lease(l, fund);

    __atomic_store_n(&lease->recalled, time + NGX_MODELGW_LEASE_RECALL,
                     __ATOMIC_RELEASE);
    __atomic_store_n(&lease->recall, no, __ATOMIC_RELEASE);
}


void
ngx_modelgw_lease_leave_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund)
{
    ngx_modelgw_lease(l, fund)->used = 0;
}


ngx_modelgw_lease_node_t *
ngx_modelgw_node(ngx_modelgw_ledger_t *l)
{
    return l->node;
}


void
ngx_modelgw_node_set(ngx_modelgw_ledger_t *l, ngx_modelgw_node_e state)
{
    __atomic_store_n(&l->node->state, state, __ATOMIC_SEQ_CST);

    ngx_modelgw_node_bar(l);
}


ngx_int_t
ngx_modelgw_node_replace(ngx_modelgw_ledger_t *l, ngx_modelgw_node_e state,
    ngx_modelgw_node_e with)
{
    uint64_t  old;

    old = state;

    if (!__atomic_compare_exchange_n(&l->node->state, &old, with, 0,
                                     __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
    {
        return NGX_DECLINED;
    }

    ngx_modelgw_node_bar(l);

    return NGX_OK;
}


/* Another one may set it meanwhile: who looks last bars by what is in force. */

static void
ngx_modelgw_node_bar(ngx_modelgw_ledger_t *l)
{
    uint64_t    state;
    ngx_uint_t  admits;

    do {
        state = __atomic_load_n(&l->node->state, __ATOMIC_SEQ_CST);

        admits = (state == NGX_MODELGW_NODE_MEMBER
                  || state == NGX_MODELGW_NODE_AWAY
                  || (state == NGX_MODELGW_NODE_NEW
                      && ngx_modelgw_ledger_load(&l->node->exchanged)));

        ngx_modelgw_ledger_bar(l, NGX_MODELGW_BARRED_NODE, !admits);

    } while (state != __atomic_load_n(&l->node->state, __ATOMIC_SEQ_CST));
}


/* By the wall clock: what was lost in a crash is not used again. */

void
ngx_modelgw_node_ids(ngx_modelgw_ledger_t *l, uint64_t num)
{
    uint64_t  n;

    num %= NGX_MODELGW_LEASE_NODES;
    n = ngx_modelgw_ledger_time();

    ngx_modelgw_redo_lock(&l->redo);

    if (l->step != NGX_MODELGW_LEASE_NODES
        || l->id % NGX_MODELGW_LEASE_NODES != num)
    {
        n = ngx_max(n, l->id / NGX_MODELGW_LEASE_NODES + 1);

        ngx_modelgw_redo_add(&l->redo, &l->id,
                             n * NGX_MODELGW_LEASE_NODES + num);
        ngx_modelgw_redo_add(&l->redo, &l->step, NGX_MODELGW_LEASE_NODES);
        ngx_modelgw_redo_commit(&l->redo);
    }

    ngx_modelgw_redo_unlock(&l->redo);
}
