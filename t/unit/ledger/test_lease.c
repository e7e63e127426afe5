
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


static void
lease_said(ngx_modelgw_ledger_t *l, ngx_modelgw_fund_t *fund, uint64_t ends,
    int64_t granted, int64_t returned, int64_t forced)
{
    ngx_modelgw_ledger_lock(l);
    ngx_modelgw_lease_said_locked(l, fund, ends, granted, returned, forced);
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
    assert_int_equal(ask.want, 2 * 50 + 3 + 4);
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

    ngx_modelgw_claim_free(l, one);
    ngx_modelgw_claim_free(l, three);
    assert_int_equal(lease->claims, 0);
    assert_int_equal(ngx_modelgw_node(l)->waiting, 0);
    assert_int_equal(ngx_modelgw_node(l)->lent, 2);

    ledger_assert(l);
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
