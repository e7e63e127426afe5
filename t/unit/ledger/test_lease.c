
/*
 * Leases and claims: each statement of their header, in one process.  A random
 * history of several nodes is in test_lease_model.c, kills are in
 * test_ledger_kill.c.
 */


#include "unit_ledger.h"
#include "ngx_modelgw_lease.h"


#define DAY    NGX_MODELGW_WINDOW_DAY
#define SECOND 1000


static ngx_modelgw_fund_t    alice;      /* her account, and her key's budget */
static ngx_modelgw_fund_t    budget;
static ngx_modelgw_budget_t  none;


static ngx_modelgw_ledger_t *
lease_create(void)
{
    ngx_modelgw_ledger_t  *l;

    l = ledger_create(LEDGER_SIZE, 1, NGX_MODELGW_LEDGER_CLUSTER);

    alice.kind = NGX_MODELGW_FUND_ACCOUNT;
    alice.index = ledger_account(l, "alice", 100 * EURO);

    budget.kind = NGX_MODELGW_FUND_BUDGET;
    budget.index = ledger_key(l, "k");

    return l;
}


/* with what is held now */

static void
lease_said(ngx_modelgw_ledger_t *l, ngx_modelgw_fund_t *fund, uint64_t ends,
    int64_t granted, int64_t returned, int64_t forced)
{
    int64_t  held;

    held = (fund->kind == NGX_MODELGW_FUND_ACCOUNT)
           ? ngx_modelgw_ledger_account_at(l, fund->index)->held
           : ngx_modelgw_ledger_key_at(l, fund->index)->held;

    ngx_modelgw_ledger_lock(l);
    ngx_modelgw_lease_said_locked(l, fund, ends, granted, returned, forced,
                                  held);
    ngx_modelgw_ledger_unlock(l);
}


static ngx_int_t
lease_ask(ngx_modelgw_ledger_t *l, ngx_modelgw_fund_t *fund, uint64_t time,
    ngx_modelgw_ask_t *ask)
{
    ngx_int_t  rc;

    ngx_modelgw_ledger_lock(l);
    rc = ngx_modelgw_lease_ask_locked(l, fund, time, ask);
    ngx_modelgw_ledger_unlock(l);

    return rc;
}


static int64_t
lease_available(ngx_modelgw_ledger_t *l, ngx_modelgw_fund_t *fund,
    uint64_t time)
{
    int64_t  n;

    ngx_modelgw_ledger_lock(l);
    n = ngx_modelgw_lease_available_locked(l, fund, time);
    ngx_modelgw_ledger_unlock(l);

    return n;
}


static ngx_modelgw_claim_t *
lease_claim(ngx_modelgw_ledger_t *l, uint32_t key, int64_t hold,
    ngx_modelgw_budget_t *b, uint64_t time)
{
    int64_t               available;
    ngx_modelgw_call_t   *call;
    ngx_modelgw_claim_t  *claim;

    call = ledger_open(l, 0, key);
    call->hold = hold;

    if (b == &none) {
        assert_int_equal(call_hold(l, call, alice.index, &available),
                         NGX_DECLINED);
    }

    ngx_modelgw_ledger_lock(l);
    assert_int_equal(ngx_modelgw_claim_locked(l, call, alice.index, b, time,
                                              2 * SECOND, &claim),
                     NGX_OK);
    ngx_modelgw_ledger_unlock(l);

    assert_int_equal(claim->state, NGX_MODELGW_CLAIM_ASKED);

    return claim;
}


static ngx_int_t
lease_try(ngx_modelgw_ledger_t *l, ngx_modelgw_claim_t *claim, uint64_t time,
    int64_t *lacks)
{
    ngx_int_t  rc;

    ngx_modelgw_ledger_lock(l);
    rc = ngx_modelgw_claim_try_locked(l, claim, time, lacks);
    ngx_modelgw_ledger_unlock(l);

    return rc;
}


static void
budget_known(ngx_modelgw_ledger_t *l, ngx_uint_t window, uint64_t time)
{
    ngx_str_t  name;

    name = unit_str("k");

    (void) ngx_modelgw_ledger_budget_set(l, budget.index, window);

    ngx_modelgw_ledger_lock(l);
    ngx_modelgw_ledger_budget_begin_locked(l, budget.index, time);
    ngx_modelgw_ledger_unlock(l);

    ngx_modelgw_ledger_budget_add(l, &name, window, 0);
    ngx_modelgw_ledger_budget_known(l, budget.index);
}


static void
test_room(void **state)
{
    void                       *p;
    size_t                      size, used;
    ngx_modelgw_ledger_t       *l;
    ngx_modelgw_ledger_room_t   room, credit;

    for (size = 4096; size <= 4096 * 4096; size += size / 7) {
        ngx_modelgw_ledger_room(size, NGX_MODELGW_LEDGER_CREDIT, &credit);
        ngx_modelgw_ledger_room(size, NGX_MODELGW_LEDGER_CLUSTER, &room);

        assert_true(room.accounts <= credit.accounts);
        assert_true(room.keys <= credit.keys);
        assert_true(room.calls <= credit.calls);

        p = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS,
                 -1, 0);
        assert_true(p != MAP_FAILED);

        l = ngx_modelgw_ledger_create(p, size, 1, NGX_MODELGW_LEDGER_CLUSTER);

        assert_true((l != NULL)
                    == (room.accounts && room.keys && room.calls));

        if (l) {
            used = (u_char *) (l->calls + l->max) - (u_char *) p;
            assert_true(used <= size);
            assert_true((u_char *) (l->node + 1) <= (u_char *) l->calls);
            assert_true((u_char *) (l->leases[1] + room.keys)
                        <= (u_char *) l->claims);
        }

        munmap(p, size);
    }
}


static void
test_without_cluster(void **state)
{
    ngx_modelgw_ledger_t  *l;

    alice.kind = NGX_MODELGW_FUND_ACCOUNT;

    l = ledger_create(LEDGER_SIZE, 1, NGX_MODELGW_LEDGER_CREDIT);
    alice.index = ledger_account(l, "alice", EURO);

    assert_null(ngx_modelgw_lease(l, &alice));
    assert_null(ngx_modelgw_node(l));
    assert_true(ngx_modelgw_ledger_writable(l));

    ledger_destroy(l, LEDGER_SIZE);
}


/* An account has nothing of its own, only what is lent. */

static void
test_account(void **state)
{
    int64_t                        available;
    ngx_modelgw_call_t            *call;
    ngx_modelgw_lease_t           *lease;
    ngx_modelgw_ledger_t          *l;
    ngx_modelgw_ledger_account_t  *a;

    l = lease_create();
    a = ngx_modelgw_ledger_account_at(l, alice.index);
    lease = ngx_modelgw_lease(l, &alice);

    assert_int_equal(a->balance, 0);
    assert_int_equal(a->founding, 100 * EURO);

    call = ledger_open(l, 0, NONE);
    call->hold = 5;
    assert_int_equal(call_hold(l, call, alice.index, &available),
                     NGX_DECLINED);
    assert_int_equal(available, 0);

    lease_said(l, &alice, 0, 12, 0, 0);
    assert_int_equal(a->balance, 12);
    assert_int_equal(call_hold(l, call, alice.index, &available), NGX_OK);
    assert_int_equal(lease_available(l, &alice, TIME), 7);

    /* the database's word: less is lent, and some was taken back */

    lease_said(l, &alice, 0, 10, 0, 4);
    assert_int_equal(a->balance, 6);

    /* more was returned than this node knows; less than it does */

    lease_said(l, &alice, 0, 10, 2, 4);
    assert_int_equal(a->balance, 4);
    assert_int_equal(lease->returned, 2);
    lease_said(l, &alice, 0, 10, 1, 4);
    assert_int_equal(a->balance, 4);
    assert_int_equal(lease->said, 1);

    ledger_assert(l);
    ledger_destroy(l, LEDGER_SIZE);
}


/* A call that waits, and one behind it that would be covered. */

static void
test_claims(void **state)
{
    int64_t                available, lacks[NGX_MODELGW_FUNDS];
    ngx_uint_t             i;
    ngx_modelgw_ask_t      ask;
    ngx_modelgw_call_t    *small, *free;
    ngx_modelgw_claim_t   *one, *two, *three;
    ngx_modelgw_lease_t   *lease;
    ngx_modelgw_ledger_t  *l;

    l = lease_create();
    lease = ngx_modelgw_lease(l, &alice);

    lease_said(l, &alice, 0, 10, 0, 0);

    one = lease_claim(l, NONE, 50, &none, TIME);

    small = ledger_open(l, 0, NONE);
    small->hold = 3;
    assert_int_equal(call_hold(l, small, alice.index, &available),
                     NGX_DECLINED);
    assert_int_equal(available, 10);

    free = ledger_open(l, 0, NONE);
    assert_int_equal(call_hold(l, free, alice.index, &available), NGX_OK);

    two = lease_claim(l, NONE, 3, &none, TIME);
    three = lease_claim(l, NONE, 4, &none, TIME);

    assert_int_equal(lease->claims, 3);
    assert_int_equal(ngx_modelgw_node(l)->waiting, 3);

    i = 0;
    assert_ptr_equal(ngx_modelgw_claim_asked(l, &i), one);
    assert_ptr_equal(ngx_modelgw_claim_asked(l, &i), two);
    assert_ptr_equal(ngx_modelgw_claim_asked(l, &i), three);
    assert_null(ngx_modelgw_claim_asked(l, &i));

    assert_int_equal(lease_try(l, one, TIME, lacks), NGX_DECLINED);
    assert_int_equal(lacks[NGX_MODELGW_FUND_ACCOUNT], 40);
    assert_int_equal(lacks[NGX_MODELGW_FUND_BUDGET], 0);
    assert_int_equal(lease_try(l, two, TIME, lacks), NGX_BUSY);

    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_OK);
    assert_int_equal(ask.need, 40);
    assert_int_equal(ask.want, 3 + 4);
    assert_int_equal(ask.recall, 0);
    assert_int_equal(ask.back, 0);
    unit_assert_str(ask.name, ask.len, "alice");

    lease_said(l, &alice, 0, 53, 0, 0);

    assert_int_equal(lease_try(l, two, TIME, lacks), NGX_BUSY);
    assert_int_equal(lease_try(l, one, TIME, lacks), NGX_OK);
    assert_int_equal(one->state, NGX_MODELGW_CLAIM_HELD);
    assert_int_equal(lease_try(l, one, TIME, lacks), NGX_ERROR);
    assert_int_equal(lease_try(l, two, TIME, lacks), NGX_OK);
    assert_int_equal(lease_try(l, three, TIME, lacks), NGX_DECLINED);

    /* from now on also in advance, twice the largest that was held */

    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_OK);
    assert_int_equal(ask.need, 4);
    assert_int_equal(ask.want, 2 * 50);

    ngx_modelgw_claim_free(l, one);
    ngx_modelgw_claim_free(l, three);
    assert_int_equal(lease->claims, 0);
    assert_int_equal(ngx_modelgw_node(l)->waiting, 0);
    assert_int_equal(ngx_modelgw_node(l)->lent, 2);

    ledger_assert(l);
    ledger_destroy(l, LEDGER_SIZE);
}


static void
lease_recall(ngx_modelgw_ledger_t *l, ngx_modelgw_fund_t *fund, uint64_t no,
    uint64_t time)
{
    ngx_modelgw_ledger_lock(l);
    ngx_modelgw_lease_recall_locked(l, fund, no, time);
    ngx_modelgw_ledger_unlock(l);
}


static ngx_modelgw_call_t *
lease_hold(ngx_modelgw_ledger_t *l, uint32_t key, int64_t hold)
{
    int64_t              available;
    ngx_modelgw_call_t  *call;

    call = ledger_open(l, 0, key);
    call->hold = hold;
    call->price.output = 1000;

    assert_int_equal(call_hold(l, call, alice.index, &available), NGX_OK);
    ngx_modelgw_ledger_sent(l, call);

    return call;
}


static void
lease_end(ngx_modelgw_ledger_t *l, ngx_modelgw_call_t *call, int64_t cost,
    uint64_t time)
{
    call->seen.status = 200;
    call->seen.input = 0;
    call->seen.output = cost;
    call->seen.flags = NGX_MODELGW_SEEN_FINAL;

    call_settle(l, call, NGX_MODELGW_END_COMPLETE, time, 0);
}


/* a call of her key that is settled, durable and freed */

static void
lease_spend(ngx_modelgw_ledger_t *l, uint32_t key, int64_t hold, int64_t cost,
    uint64_t time)
{
    lease_end(l, lease_hold(l, key, hold), cost, time);

    ngx_modelgw_lease_used(l, ngx_modelgw_ledger_done(l, 0), time);
    ngx_modelgw_ledger_noted(l, 1);
    ngx_modelgw_ledger_written(l, 1);
}


/* What is borrowed in advance, and given back. */

static void
test_slices(void **state)
{
    uint64_t               time;
    ngx_uint_t             i;
    ngx_modelgw_ask_t      ask;
    ngx_modelgw_lease_t   *lease;
    ngx_modelgw_ledger_t  *l;

    l = lease_create();
    lease = ngx_modelgw_lease(l, &alice);
    time = 28333333 * (uint64_t) 60000 + 1;     /* a minute begins */

    /* nothing is wanted of what is not used */

    assert_int_equal(ngx_modelgw_lease_active(l, &alice), 0);
    assert_int_equal(lease_ask(l, &alice, time, &ask), NGX_DECLINED);
    unit_assert_str(ask.name, ask.len, "alice");

    /* the largest call, twice */

    lease_said(l, &alice, 0, 1000, 0, 0);
    assert_int_equal(ngx_modelgw_lease_active(l, &alice), 1);
    lease_spend(l, NONE, 200, 0, time);
    lease_spend(l, NONE, 100, 0, time);

    assert_int_equal(lease_ask(l, &alice, time, &ask), NGX_OK);
    assert_int_equal(ask.back, 1);
    assert_int_equal(ask.returned, 600);
    assert_int_equal(ask.granted, 1000);
    assert_int_equal(lease_available(l, &alice, time), 400);

    /* an answer was lost: it is said again, and not more */

    assert_int_equal(lease_ask(l, &alice, time, &ask), NGX_OK);
    assert_int_equal(ask.back, 1);
    assert_int_equal(ask.returned, 600);

    lease_said(l, &alice, 0, 1000, 600, 0);
    assert_int_equal(lease_ask(l, &alice, time, &ask), NGX_DECLINED);

    /* half of the target is left: enough; less is not */

    lease_spend(l, NONE, 200, 200, time);
    assert_int_equal(lease_ask(l, &alice, time, &ask), NGX_DECLINED);
    lease_spend(l, NONE, 1, 1, time);
    assert_int_equal(lease_ask(l, &alice, time, &ask), NGX_OK);
    assert_int_equal(ask.want, 400 - 199);
    assert_int_equal(ask.need, 0);
    assert_int_equal(ask.back, 0);

    /* 2000 a second, for a while */

    for (i = 0; i < 50; i++) {
        lease_said(l, &alice, 0, ask.granted + ask.want, ask.returned, 0);
        time += 100;
        lease_spend(l, NONE, 200, 200, time);
        (void) lease_ask(l, &alice, time, &ask);
    }

    assert_in_range(lease->rate, 1950, 2000);
    assert_in_range(lease_available(l, &alice, time), 2000, 4400);
    lease_said(l, &alice, 0, ask.granted + ask.want, ask.returned, 0);

    /* no rate any more, and after a minute another peak */

    lease_spend(l, NONE, 1, 0, time + 9000);
    (void) lease_ask(l, &alice, time + 9000, &ask);
    assert_in_range(lease->rate, 0, 8);
    assert_int_equal(lease->peak, 200);

    lease_spend(l, NONE, 1, 0, time + 60000);
    (void) lease_ask(l, &alice, time + 60000, &ask);
    assert_int_equal(lease->peak, 100);
    assert_in_range(lease_available(l, &alice, time), 200, 430);

    /* all of it after a while without a call */

    (void) lease_ask(l, &alice, time + 69999, &ask);
    assert_true(lease_available(l, &alice, time) > 0);
    assert_int_equal(lease_ask(l, &alice, time + 70000, &ask), NGX_OK);
    assert_int_equal(ask.back, 1);
    assert_int_equal(ask.want, 0);
    assert_int_equal(lease_available(l, &alice, time), 0);

    lease_said(l, &alice, 0, ask.granted, ask.returned, 0);
    assert_int_equal(ngx_modelgw_lease_active(l, &alice), 0);
    assert_int_equal(lease_ask(l, &alice, time + 80000, &ask), NGX_DECLINED);

    ledger_destroy(l, LEDGER_SIZE);
}


/* A clock that is set back does not make a lease last. */

static void
test_clock(void **state)
{
    ngx_modelgw_ask_t      ask;
    ngx_modelgw_ledger_t  *l;

    l = lease_create();

    lease_said(l, &alice, 0, 40, 0, 0);
    lease_spend(l, NONE, 20, 0, TIME + 86400000);
    lease_recall(l, &alice, 1, TIME + 86400000);
    (void) lease_ask(l, &alice, TIME + 86400000, &ask);
    lease_said(l, &alice, 0, 40, 40, 0);

    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_OK);
    assert_int_equal(ask.want, 40);

    lease_said(l, &alice, 0, 80, 40, 0);
    assert_int_equal(lease_ask(l, &alice, TIME + 9999, &ask), NGX_DECLINED);
    assert_int_equal(lease_ask(l, &alice, TIME + 10000, &ask), NGX_OK);
    assert_int_equal(ask.returned, 80);

    ledger_destroy(l, LEDGER_SIZE);
}


/*
 * What the database was told to be held is corrected, though nothing is left to
 * give back: a call has cost all that was held, and was not seen to end.
 */

static void
test_held_is_told(void **state)
{
    ngx_modelgw_ask_t      ask;
    ngx_modelgw_call_t    *call;
    ngx_modelgw_ledger_t  *l;

    l = lease_create();

    lease_said(l, &alice, 0, 12, 0, 0);
    call = lease_hold(l, NONE, 12);

    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_OK);
    assert_int_equal(ask.back, 0);
    assert_int_equal(ask.held, 12);
    lease_said(l, &alice, 0, 12, 0, 0);

    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_DECLINED);
    assert_int_equal(ngx_modelgw_lease_active(l, &alice), 1);

    lease_end(l, call, 12, TIME);

    assert_int_equal(ngx_modelgw_lease_active(l, &alice), 1);
    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_OK);
    assert_int_equal(ask.held, 0);
    lease_said(l, &alice, 0, 12, 0, 0);

    assert_int_equal(ngx_modelgw_lease_active(l, &alice), 0);
    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_DECLINED);

    ledger_destroy(l, LEDGER_SIZE);
}


/*
 * Of a window that is over, and whose budget is not known, nothing is told: a
 * node that leaves waits for all that is in use.
 */

static void
test_held_is_over(void **state)
{
    uint64_t               ends;
    ngx_modelgw_ask_t      ask;
    ngx_modelgw_ledger_t  *l;

    l = lease_create();
    ends = ngx_modelgw_budget_end(DAY, TIME);

    ngx_modelgw_lease_load(l, &budget, 70, 70, 0, DAY, ends);
    budget_known(l, DAY, TIME);
    lease_said(l, &budget, ends, 70, 70, 0);
    ngx_modelgw_lease(l, &budget)->told = 5;

    assert_int_equal(ngx_modelgw_lease_active(l, &budget), 1);
    assert_int_equal(lease_ask(l, &budget, TIME + 86400000, &ask),
                     NGX_DECLINED);
    assert_int_equal(ngx_modelgw_lease_active(l, &budget), 0);

    ledger_destroy(l, LEDGER_SIZE);
}


/* A lease that was forced while a call holds all of it is still in use. */

static void
test_held_is_forced(void **state)
{
    ngx_modelgw_ask_t      ask;
    ngx_modelgw_call_t    *call;
    ngx_modelgw_ledger_t  *l;

    l = lease_create();

    lease_said(l, &alice, 0, 12, 0, 0);
    call = lease_hold(l, NONE, 12);

    lease_said(l, &alice, 0, 12, 0, 12);
    ngx_modelgw_lease(l, &alice)->told = 0;
    assert_int_equal(ngx_modelgw_lease_active(l, &alice), 1);

    lease_end(l, call, 7, TIME);
    assert_int_equal(ngx_modelgw_lease_active(l, &alice), 1);
    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_OK);
    assert_int_equal(ask.held, 0);

    ledger_destroy(l, LEDGER_SIZE);
}


/* Another node needs it. */

static void
test_recall(void **state)
{
    int64_t                available;
    ngx_modelgw_ask_t      ask;
    ngx_modelgw_call_t    *call;
    ngx_modelgw_claim_t   *claim;
    ngx_modelgw_ledger_t  *l;

    l = lease_create();

    lease_said(l, &alice, 0, 40, 0, 0);
    lease_spend(l, NONE, 20, 0, TIME);

    call = ledger_open(l, 0, NONE);
    call->hold = 12;
    assert_int_equal(call_hold(l, call, alice.index, &available), NGX_OK);

    /* all but what is held; nothing is wanted while it lasts */

    lease_recall(l, &alice, 5, TIME);
    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_OK);
    assert_int_equal(ask.answered, 5);
    assert_int_equal(ask.returned, 28);
    assert_int_equal(ask.back, 1);
    assert_int_equal(ask.want, 0);
    assert_int_equal(ask.held, 12);

    lease_said(l, &alice, 0, 40, 28, 0);
    assert_int_equal(lease_ask(l, &alice, TIME + 1999, &ask), NGX_DECLINED);

    /* what a waiting call needs is not in advance */

    claim = lease_claim(l, NONE, 7, &none, TIME + 1999);
    assert_int_equal(lease_ask(l, &alice, TIME + 1999, &ask), NGX_OK);
    assert_int_equal(ask.need, 7);
    assert_int_equal(ask.want, 0);

    /* but what it has so far goes, too */

    lease_said(l, &alice, 0, 44, 28, 0);
    lease_recall(l, &alice, 6, TIME + 1999);
    assert_int_equal(lease_ask(l, &alice, TIME + 1999, &ask), NGX_OK);
    assert_int_equal(ask.answered, 6);
    assert_int_equal(ask.returned, 32);
    assert_int_equal(ask.need, 7);

    /* there is nothing to give: it is answered all the same */

    lease_said(l, &alice, 0, 44, 32, 0);
    lease_recall(l, &alice, 7, TIME + 2000);
    assert_int_equal(lease_ask(l, &alice, TIME + 2000, &ask), NGX_OK);
    assert_int_equal(ask.answered, 7);
    assert_int_equal(ask.returned, 32);
    assert_int_equal(ask.back, 0);

    /* one that is over when the node joins again */

    lease_recall(l, &alice, 8, TIME + 2000);
    lease_said(l, &alice, 0, 44, 32, 0);
    assert_int_equal(lease_ask(l, &alice, TIME + 4000, &ask), NGX_OK);
    assert_int_equal(ask.answered, 0);
    assert_int_equal(ask.want, 40);

    ngx_modelgw_claim_free(l, claim);
    ledger_assert(l);
    ledger_destroy(l, LEDGER_SIZE);
}


/* More was charged than was lent. */

static void
test_below(void **state)
{
    ngx_modelgw_ask_t      ask;
    ngx_modelgw_ledger_t  *l;

    l = lease_create();

    lease_said(l, &alice, 0, 40, 0, 0);
    lease_spend(l, NONE, 40, 45, TIME);

    (void) lease_claim(l, NONE, 7, &none, TIME);

    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_OK);
    assert_int_equal(ask.need, 0);
    assert_int_equal(ask.want, 0);

    lease_said(l, &alice, 0, 45, 0, 0);
    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_OK);
    assert_int_equal(ask.need, 7);

    /* also when it was not used for long */

    lease_said(l, &alice, 0, 40, 0, 0);
    assert_int_equal(lease_ask(l, &alice, TIME + 86400000, &ask), NGX_OK);
    assert_int_equal(ask.back, 0);

    ledger_destroy(l, LEDGER_SIZE);
}


static void
test_leave(void **state)
{
    ngx_modelgw_ask_t      ask;
    ngx_modelgw_ledger_t  *l;

    l = lease_create();

    lease_said(l, &alice, 0, 40, 0, 0);
    lease_spend(l, NONE, 20, 5, TIME);

    ngx_modelgw_ledger_lock(l);
    ngx_modelgw_lease_leave_locked(l, &alice);
    ngx_modelgw_ledger_unlock(l);

    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_OK);
    assert_int_equal(ask.returned, 35);
    assert_int_equal(ask.want, 0);

    ledger_destroy(l, LEDGER_SIZE);
}


static ngx_uint_t
claim_said(ngx_modelgw_ledger_t *l, ngx_modelgw_ask_t *ask, uint64_t recall,
    uint64_t silent, int64_t free)
{
    ngx_uint_t                n;
    ngx_modelgw_claim_said_t  said = { 1, recall, silent, free, 3 };

    ngx_modelgw_ledger_lock(l);
    n = ngx_modelgw_claim_said_locked(l, ask, &said, TIME);
    ngx_modelgw_ledger_unlock(l);

    return n;
}


/* Refused is what all nodes have not, as they have said since. */

static void
test_refuse(void **state)
{
    ngx_modelgw_ask_t      ask;
    ngx_modelgw_claim_t   *one, *two, *three, *late;
    ngx_modelgw_ledger_t  *l;

    l = lease_create();

    lease_said(l, &alice, 0, 10, 0, 0);

    one = lease_claim(l, NONE, 50, &none, TIME);
    two = lease_claim(l, NONE, 15, &none, TIME);
    three = lease_claim(l, NONE, 16, &none, TIME);

    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_OK);
    assert_int_equal(ask.recall, 0);

    late = lease_claim(l, NONE, 50, &none, TIME);

    /* 5 are free; a recall is raised, which one node has not answered */

    assert_int_equal(claim_said(l, &ask, 7, 1, 5), 0);
    assert_int_equal(one->recalls[NGX_MODELGW_FUND_ACCOUNT], 7);
    assert_int_equal(two->recalls[NGX_MODELGW_FUND_ACCOUNT], 7);
    assert_int_equal(late->recalls[NGX_MODELGW_FUND_ACCOUNT], 0);

    /* it has now: 15 are all that there is */

    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_OK);
    assert_int_equal(ask.recall, 7);
    assert_int_equal(claim_said(l, &ask, 7, 0, 5), 2);

    assert_int_equal(one->state, NGX_MODELGW_CLAIM_CREDIT);
    assert_int_equal(one->available, 15);
    assert_int_equal(one->away, 3);
    assert_int_equal(two->state, NGX_MODELGW_CLAIM_ASKED);
    assert_int_equal(three->state, NGX_MODELGW_CLAIM_CREDIT);
    assert_int_equal(late->state, NGX_MODELGW_CLAIM_ASKED);

    lease_said(l, &alice, 0, 15, 0, 0);
    assert_int_equal(claim_said(l, &ask, 7, 0, 0), 1);
    assert_int_equal(two->state, NGX_MODELGW_CLAIM_HELD);
    assert_int_equal(late->state, NGX_MODELGW_CLAIM_ASKED);

    assert_int_equal(ngx_modelgw_node(l)->refused, 2);
    assert_int_equal(ngx_modelgw_node(l)->lent, 1);
    assert_int_equal(ngx_modelgw_node(l)->waiting, 1);

    /* its turn: a recall of its own */

    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_OK);
    assert_int_equal(ask.recall, 0);
    assert_int_equal(claim_said(l, &ask, 8, 0, 0), 1);
    assert_int_equal(late->state, NGX_MODELGW_CLAIM_CREDIT);

    ledger_assert(l);
    ledger_destroy(l, LEDGER_SIZE);
}


/* The account is used up while a call waits for its budget. */

static void
test_both(void **state)
{
    int64_t                lacks[NGX_MODELGW_FUNDS];
    ngx_modelgw_ask_t      ask;
    ngx_modelgw_claim_t   *one, *two;
    ngx_modelgw_ledger_t  *l;

    ngx_modelgw_budget_t   b = { 500, DAY };

    l = lease_create();
    budget_known(l, DAY, TIME);

    lease_said(l, &alice, 0, 10, 0, 0);
    one = lease_claim(l, budget.index, 10, &b, TIME);
    lease_spend(l, NONE, 10, 4, TIME);
    two = lease_claim(l, NONE, 8, &none, TIME);

    lease_said(l, &budget, ngx_modelgw_budget_end(DAY, TIME), 10, 0, 0);
    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_OK);
    assert_int_equal(ask.need, 2);

    assert_int_equal(lease_try(l, one, TIME, lacks), NGX_DECLINED);
    assert_int_equal(lacks[NGX_MODELGW_FUND_ACCOUNT], 4);
    assert_int_equal(lacks[NGX_MODELGW_FUND_BUDGET], 0);
    assert_int_equal(ngx_modelgw_lease(l, &alice)->claims, 2);

    assert_int_equal(lease_ask(l, &alice, TIME, &ask), NGX_OK);
    assert_int_equal(ask.need, 4);

    lease_said(l, &alice, 0, 14, 0, 0);
    assert_int_equal(lease_try(l, two, TIME, lacks), NGX_BUSY);
    assert_int_equal(lease_try(l, one, TIME, lacks), NGX_OK);
    assert_int_equal(lease_try(l, two, TIME, lacks), NGX_DECLINED);

    ngx_modelgw_claim_free(l, two);
    assert_int_equal(ngx_modelgw_lease(l, &alice)->claims, 0);
    assert_int_equal(ngx_modelgw_lease(l, &budget)->claims, 0);

    ledger_assert(l);
    ledger_destroy(l, LEDGER_SIZE);
}


/* The call of a claim may end before that does. */

static void
test_gone(void **state)
{
    int64_t                lacks[NGX_MODELGW_FUNDS];
    ngx_modelgw_claim_t   *claim;
    ngx_modelgw_ledger_t  *l;

    l = lease_create();

    claim = lease_claim(l, NONE, 50, &none, TIME);
    call_settle(l, &l->calls[claim->slot], NGX_MODELGW_END_CLIENT, TIME, 0);
    (void) ledger_open(l, 0, NONE);
    lease_said(l, &alice, 0, 100, 0, 0);

    assert_int_equal(lease_try(l, claim, TIME, lacks), NGX_ERROR);
    assert_int_equal(claim->state, NGX_MODELGW_CLAIM_GONE);
    assert_int_equal(ngx_modelgw_lease(l, &alice)->claims, 0);

    ngx_modelgw_claim_free(l, claim);
    assert_int_equal(claim->state, NGX_MODELGW_CLAIM_FREE);

    ledger_assert(l);
    ledger_destroy(l, LEDGER_SIZE);
}


static void
test_too_many(void **state)
{
    ngx_uint_t             i;
    ngx_modelgw_call_t    *call;
    ngx_modelgw_claim_t   *claim;
    ngx_modelgw_ledger_t  *l;

    l = lease_create();
    call = ledger_open(l, 0, NONE);
    call->hold = 1;

    ngx_modelgw_ledger_lock(l);

    for (i = 0; i < NGX_MODELGW_CLAIMS; i++) {
        assert_int_equal(ngx_modelgw_claim_locked(l, call, alice.index, &none,
                                                  TIME, 1, &claim),
                         NGX_OK);
    }

    assert_int_equal(ngx_modelgw_claim_locked(l, call, alice.index, &none,
                                              TIME, 1, &claim),
                     NGX_BUSY);

    ngx_modelgw_ledger_unlock(l);

    assert_int_equal(ngx_modelgw_node(l)->waiting, NGX_MODELGW_CLAIMS);
    ledger_destroy(l, LEDGER_SIZE);
}


static ngx_int_t
budget_check(ngx_modelgw_ledger_t *l, int64_t hold, ngx_modelgw_budget_t *b,
    uint64_t time, ngx_modelgw_ledger_left_t *left)
{
    ngx_int_t           rc;
    ngx_modelgw_call_t  call;

    call.key = budget.index;
    call.hold = hold;

    ngx_modelgw_ledger_lock(l);
    rc = ngx_modelgw_ledger_budget_locked(l, &call, b, time, left);
    ngx_modelgw_ledger_unlock(l);

    return rc;
}


/* It is lent like an account, of one window. */

static void
test_budget(void **state)
{
    uint64_t                    ends, end;
    ngx_str_t                   name;
    ngx_modelgw_ask_t           ask;
    ngx_modelgw_fund_t          fund;
    ngx_modelgw_claim_t        *claim;
    ngx_modelgw_ledger_t       *l;
    ngx_modelgw_ledger_left_t   left;

    ngx_modelgw_budget_t        b = { 500, DAY };

    l = lease_create();
    ends = ngx_modelgw_budget_end(DAY, TIME);

    lease_said(l, &alice, 0, 10000, 0, 0);

    assert_int_equal(budget_check(l, 10, &b, TIME, &left), NGX_ERROR);
    budget_known(l, DAY, TIME);

    assert_int_equal(budget_check(l, 10, &b, TIME, &left), NGX_DECLINED);
    assert_int_equal(left.amount, 0);
    assert_int_equal(left.ends, ends);
    assert_int_equal(budget_check(l, 0, &b, TIME, &left), NGX_OK);

    /* a claim waits for the budget only: other calls of alice go on */

    claim = lease_claim(l, budget.index, 10, &b, TIME);
    assert_int_equal(ngx_modelgw_lease(l, &budget)->claims, 1);
    assert_int_equal(ngx_modelgw_lease(l, &alice)->claims, 0);

    lease_spend(l, NONE, 5, 5, TIME);

    assert_int_equal(lease_ask(l, &budget, TIME, &ask), NGX_OK);
    assert_int_equal(ask.need, 10);
    assert_int_equal(ask.want, 0);
    assert_int_equal(ask.limit, 500);
    assert_int_equal(ask.ends, ends);
    unit_assert_str(ask.name, ask.len, "#k/day/1699920000000");

    name.data = ask.name;
    name.len = ask.len;
    assert_int_equal(ngx_modelgw_fund_find(l, &name, &fund, &end), NGX_OK);
    assert_int_equal(fund.kind, NGX_MODELGW_FUND_BUDGET);
    assert_int_equal(fund.index, budget.index);
    assert_int_equal(end, ends);

    lease_said(l, &budget, ends, 30, 0, 0);
    assert_int_equal(budget_check(l, 1, &b, TIME, &left), NGX_DECLINED);
    ngx_modelgw_ledger_lock(l);
    assert_int_equal(ngx_modelgw_claim_said_locked(l, &ask,
                                    &(ngx_modelgw_claim_said_t) { 0 }, TIME),
                     1);
    ngx_modelgw_ledger_unlock(l);
    assert_int_equal(claim->state, NGX_MODELGW_CLAIM_HELD);
    assert_int_equal(claim->left.amount, 30);
    assert_int_equal(claim->left.ends, ends);

    assert_int_equal(budget_check(l, 20, &b, TIME, &left), NGX_OK);
    assert_int_equal(left.amount, 20);

    /* the next window: nothing is lent of it; what the old one had is gone */

    assert_int_equal(budget_check(l, 1, &b, ends, &left), NGX_DECLINED);
    assert_int_equal(left.amount, -10);
    assert_int_equal(lease_ask(l, &budget, ends, &ask), NGX_OK);
    assert_int_equal(ask.granted, 0);
    assert_int_equal(ask.ends, ends + 86400000);
    unit_assert_str(ask.name, ask.len, "#k/day/1700006400000");

    lease_said(l, &budget, ends, 1000, 0, 0);
    assert_int_equal(lease_available(l, &budget, ends), -10);
    assert_int_equal(ngx_modelgw_fund_find(l, &name, &fund, &end), NGX_OK);

    /* another limit is the database's matter; another window is another lease,
       for which an answer on its way is not */

    lease_said(l, &budget, ends + 86400000, 40, 0, 0);
    assert_int_equal(lease_available(l, &budget, ends), 30);
    budget_known(l, NGX_MODELGW_WINDOW_TOTAL, ends);
    assert_int_equal(lease_available(l, &budget, ends), -10);
    lease_said(l, &budget, ends + 86400000, 40, 0, 0);
    lease_said(l, &budget, (uint64_t) -1, 40, 0, 0);
    assert_int_equal(lease_available(l, &budget, ends), -10);

    b.window = NGX_MODELGW_WINDOW_TOTAL;
    (void) budget_check(l, 1, &b, ends, &left);
    (void) lease_ask(l, &budget, ends, &ask);
    unit_assert_str(ask.name, ask.len, "#k/total/0");
    lease_said(l, &budget, (uint64_t) -1, 40, 5, 0);
    assert_int_equal(lease_available(l, &budget, ends), 25);

    ledger_assert(l);
    ledger_destroy(l, LEDGER_SIZE);
}


/* After a start a budget is given back, though its limit is not known yet. */

static void
test_budget_load(void **state)
{
    uint64_t               ends;
    ngx_modelgw_ask_t      ask;
    ngx_modelgw_ledger_t  *l;

    l = lease_create();
    ends = ngx_modelgw_budget_end(DAY, TIME);

    ngx_modelgw_lease_load(l, &budget, 70, 10, 0, DAY, ends);
    assert_int_equal(lease_ask(l, &budget, TIME, &ask), NGX_DECLINED);
    assert_int_equal(ask.len, 0);

    budget_known(l, DAY, TIME);

    assert_int_equal(ngx_modelgw_lease_active(l, &budget), 1);
    assert_int_equal(lease_ask(l, &budget, TIME, &ask), NGX_OK);
    assert_int_equal(ask.returned, 70);
    assert_int_equal(ask.limit, 0);

    lease_said(l, &budget, ends, 70, 70, 0);
    assert_int_equal(ngx_modelgw_lease_active(l, &budget), 0);

    ledger_destroy(l, LEDGER_SIZE);
}


/* What was loaded is of another window; the database knows of this one. */

static void
test_budget_unknown(void **state)
{
    uint64_t               ends;
    ngx_str_t              name;
    ngx_modelgw_ask_t      ask;
    ngx_modelgw_fund_t     fund;
    ngx_modelgw_ledger_t  *l;

    l = lease_create();
    name = unit_str("#k/total/0");

    ngx_modelgw_lease_load(l, &budget, 70, 10, 0, DAY,
                           ngx_modelgw_budget_end(DAY, TIME));
    budget_known(l, NGX_MODELGW_WINDOW_TOTAL, TIME);

    assert_int_equal(lease_available(l, &budget, TIME), 0);
    assert_int_equal(lease_ask(l, &budget, TIME, &ask), NGX_DECLINED);

    /* when the node joins */

    assert_int_equal(ngx_modelgw_fund_find(l, &name, &fund, &ends), NGX_OK);
    lease_said(l, &budget, ends, 50, 20, 0);
    assert_int_equal(lease_available(l, &budget, TIME), 30);

    /* the window changes and changes back: again nothing is known */

    budget_known(l, DAY, TIME);
    budget_known(l, NGX_MODELGW_WINDOW_TOTAL, TIME);
    lease_said(l, &budget, ends, 50, 20, 0);
    assert_int_equal(lease_available(l, &budget, TIME), 0);

    /* a recall: what there is to give back comes with the answer */

    assert_int_equal(ngx_modelgw_fund_find(l, &name, &fund, NULL), NGX_OK);
    lease_recall(l, &budget, 3, TIME);
    assert_int_equal(lease_ask(l, &budget, TIME, &ask), NGX_OK);
    assert_int_equal(ask.answered, 0);
    assert_int_equal(ask.returned, 0);
    assert_int_equal(ask.back, 0);
    assert_int_equal(ask.want, 0);

    lease_said(l, &budget, ask.ends, 50, 20, 0);
    lease_recall(l, &budget, 3, TIME);
    assert_int_equal(lease_ask(l, &budget, TIME, &ask), NGX_OK);
    assert_int_equal(ask.answered, 3);
    assert_int_equal(ask.returned, 50);

    ledger_destroy(l, LEDGER_SIZE);
}


/* A record of a key that is used again has no lease of the other one. */

static void
test_key_again(void **state)
{
    u_char                 text[16];
    uint32_t               i, n;
    uint64_t               ends;
    ngx_str_t              name;
    ngx_modelgw_ask_t      ask;
    ngx_modelgw_lease_t   *lease;
    ngx_modelgw_ledger_t  *l;

    ngx_modelgw_budget_t       b = { 500, DAY };
    ngx_modelgw_ledger_left_t  left;

    l = lease_create();
    lease = ngx_modelgw_lease(l, &budget);
    ends = ngx_modelgw_budget_end(DAY, TIME);
    name.data = text;

    for (n = 1; n < l->keys.max; n++) {
        name.len = ngx_sprintf(text, "key-%uD", n) - text;
        assert_int_equal(ngx_modelgw_ledger_key(l, &name, &i), NGX_OK);
    }

    budget_known(l, DAY, TIME);
    (void) budget_check(l, 1, &b, TIME, &left);
    lease_said(l, &budget, ends, 30, 0, 0);
    lease->used = TIME;
    lease->peak = 7;
    (void) lease_ask(l, &budget, TIME, &ask);

    ngx_modelgw_ledger_generation(l);
    assert_int_equal(ledger_key(l, "other"), budget.index);

    assert_int_equal(lease->granted, 0);
    assert_int_equal(lease->limit, 0);
    assert_int_equal(lease->peak, 0);

    name = unit_str("other");
    assert_int_equal(ngx_modelgw_ledger_budget_set(l, budget.index, DAY), 1);
    ngx_modelgw_ledger_lock(l);
    ngx_modelgw_ledger_budget_begin_locked(l, budget.index, TIME);
    ngx_modelgw_ledger_unlock(l);
    ngx_modelgw_ledger_budget_known(l, budget.index);

    /* an answer for the other one */

    lease_said(l, &budget, ask.ends, 90, 0, 0);
    assert_int_equal(lease_available(l, &budget, TIME), 0);
    assert_int_equal(budget_check(l, 1, &b, TIME, &left), NGX_DECLINED);

    ledger_destroy(l, LEDGER_SIZE);
}


static void
test_find(void **state)
{
    ngx_str_t              name;
    ngx_uint_t             i;
    ngx_modelgw_fund_t     fund;
    ngx_modelgw_ledger_t  *l;

    static const char  *missing[] = {
        "", "bob", "#", "#k", "#k/day", "#/day/0", "#k/day/0", "#k/week/1",
        "#other/day/1699920000000", "#k/day/1699920000000x"
    };

    l = lease_create();
    budget_known(l, DAY, TIME);

    name = unit_str("alice");
    assert_int_equal(ngx_modelgw_fund_find(l, &name, &fund, NULL), NGX_OK);
    assert_int_equal(fund.kind, NGX_MODELGW_FUND_ACCOUNT);
    assert_int_equal(fund.index, alice.index);

    name = unit_str("#k/day/1699920000000");
    assert_int_equal(ngx_modelgw_fund_find(l, &name, &fund, NULL), NGX_OK);
    assert_int_equal(fund.kind, NGX_MODELGW_FUND_BUDGET);

    for (i = 0; i < sizeof(missing) / sizeof(missing[0]); i++) {
        name = unit_str(missing[i]);
        assert_int_equal(ngx_modelgw_fund_find(l, &name, &fund, NULL),
                         NGX_DECLINED);
    }

    ledger_destroy(l, LEDGER_SIZE);
}


static void
test_node(void **state)
{
    uint64_t                   id;
    ngx_uint_t                 i;
    ngx_modelgw_call_t        *call;
    ngx_modelgw_ledger_t      *l;
    ngx_modelgw_lease_node_t  *node;

    static const struct {
        ngx_modelgw_node_e     state;
        ngx_uint_t             admits;
    } states[] = {
        { NGX_MODELGW_NODE_NEW, 0 },
        { NGX_MODELGW_NODE_MEMBER, 1 },
        { NGX_MODELGW_NODE_AWAY, 1 },
        { NGX_MODELGW_NODE_OFFLINE, 0 },
        { NGX_MODELGW_NODE_LEFT, 0 },
        { NGX_MODELGW_NODE_REFUSED, 0 }
    };

    l = lease_create();
    node = ngx_modelgw_node(l);

    assert_int_equal(node->live, 1);
    assert_int_equal(ngx_modelgw_ledger_writable(l), 0);
    assert_int_equal(ngx_modelgw_ledger_failed(l), 0);

    for (i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        ngx_modelgw_node_set(l, states[i].state);
        assert_int_equal(node->state, states[i].state);
        assert_int_equal(ngx_modelgw_ledger_writable(l), states[i].admits);
    }

    node->exchanged = 1;
    ngx_modelgw_node_set(l, NGX_MODELGW_NODE_NEW);
    assert_int_equal(ngx_modelgw_ledger_writable(l), 1);

    ngx_modelgw_ledger_set_writable(l, 0);
    assert_int_equal(ngx_modelgw_ledger_failed(l), 1);
    ngx_modelgw_node_set(l, NGX_MODELGW_NODE_MEMBER);
    assert_int_equal(ngx_modelgw_ledger_writable(l), 0);
    ngx_modelgw_node_set(l, NGX_MODELGW_NODE_LEFT);
    ngx_modelgw_ledger_set_writable(l, 1);
    assert_int_equal(ngx_modelgw_ledger_writable(l), 0);
    assert_int_equal(ngx_modelgw_ledger_failed(l), 0);

    /* a worker's timer does not undo what the exchanger has set meanwhile */

    assert_int_equal(ngx_modelgw_node_replace(l, NGX_MODELGW_NODE_AWAY,
                                              NGX_MODELGW_NODE_OFFLINE),
                     NGX_DECLINED);
    assert_int_equal(node->state, NGX_MODELGW_NODE_LEFT);
    assert_int_equal(ngx_modelgw_ledger_writable(l), 0);

    assert_int_equal(ngx_modelgw_node_replace(l, NGX_MODELGW_NODE_LEFT,
                                              NGX_MODELGW_NODE_AWAY),
                     NGX_OK);
    assert_int_equal(ngx_modelgw_ledger_writable(l), 1);

    /* ids */

    ngx_modelgw_node_ids(l, 1027);
    call = ledger_open(l, 0, NONE);
    id = call->id;
    assert_int_equal(id % 1024, 3);
    assert_in_range(id / 1024, TIME, (uint64_t) TIME * 4);

    ngx_modelgw_node_ids(l, 3);
    call = ledger_open(l, 0, NONE);
    assert_int_equal(call->id, id + 1024);

    l->id += (uint64_t) 100000000 * 1024;
    id = l->id;
    ngx_modelgw_node_ids(l, 2);
    assert_true(l->id > id);
    assert_int_equal(l->id % 1024, 2);

    /* a call that came before the wait ends it */

    ngx_modelgw_exchange_wake(l);
    ngx_modelgw_exchange_wait(l, 60000);
    ngx_modelgw_exchange_wait(l, 1);

    ledger_destroy(l, LEDGER_SIZE);
}


/* Operators' changes wait for the exchanger; credit comes by leases only. */

static void
test_changes(void **state)
{
    uint32_t               i;
    ngx_str_t              id;
    ngx_modelgw_change_t   wanted, *change;
    ngx_modelgw_ledger_t  *l;

    l = lease_create();
    id = unit_str("t");

    ngx_modelgw_ledger_set_stored(l, 1);
    ngx_modelgw_exchange_wait(l, 1);
    change = ledger_topup(l, 0, alice.index, &id, EURO, TIME);
    assert_non_null(change);
    ngx_modelgw_exchange_wait(l, 60000);
    ngx_modelgw_ledger_wait(l, 1);

    ngx_modelgw_ledger_change_answer(l, change, NGX_MODELGW_CHANGE_MADE);
    assert_int_equal(ngx_modelgw_ledger_account_at(l, alice.index)->balance,
                     0);

    memset(&wanted, 0, sizeof(ngx_modelgw_change_t));
    wanted.kind = NGX_MODELGW_CHANGE_ACCOUNT_NEW;
    wanted.account = NONE;
    wanted.amount = EURO;
    wanted.time = TIME;
    wanted.owner.len = 3;
    memcpy(wanted.owner.data, "bob", 3);

    assert_int_equal(ngx_modelgw_ledger_change(l, &wanted, &change), NGX_OK);
    ngx_modelgw_ledger_change_answer(l, change, NGX_MODELGW_CHANGE_MADE);

    id = unit_str("bob");
    assert_int_equal(ngx_modelgw_ledger_account(l, &id, 0, 0, 0, 0, &i),
                     NGX_OK);
    assert_int_equal(ngx_modelgw_ledger_account_at(l, i)->balance, 0);

    ledger_destroy(l, LEDGER_SIZE);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_without_cluster),
        cmocka_unit_test(test_account),
        cmocka_unit_test(test_claims),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_held_is_told),
        cmocka_unit_test(test_held_is_over),
        cmocka_unit_test(test_held_is_forced),
        cmocka_unit_test(test_recall),
        cmocka_unit_test(test_below),
        cmocka_unit_test(test_leave),
        cmocka_unit_test(test_refuse),
        cmocka_unit_test(test_both),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_budget_load),
        cmocka_unit_test(test_budget_unknown),
        cmocka_unit_test(test_key_again),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_node),
        cmocka_unit_test(test_changes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
