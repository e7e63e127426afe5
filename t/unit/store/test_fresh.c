
/*
 * Unit tests of calls on their way from the writer to the exchanger: batches
 * that fail, no room, positions with gaps, around the ring's end.
 */


#include "unit.h"

#include "ngx_modelgw_fresh.h"


static ngx_modelgw_fresh_t  fresh;


static int
setup(void **state)
{
    assert_int_equal(ngx_modelgw_fresh_init(&fresh), NGX_OK);

    ngx_modelgw_fresh_begin(&fresh);

    return 0;
}


static int
teardown(void **state)
{
    ngx_modelgw_fresh_free(&fresh);

    return 0;
}


static void
add(uint64_t first, uint64_t last, int64_t cost)
{
    uint64_t                   pos;
    ngx_modelgw_call_t         call;
    ngx_modelgw_ledger_name_t  account;

    memset(&call, 0, sizeof(ngx_modelgw_call_t));
    memset(&account, 0, sizeof(ngx_modelgw_ledger_name_t));

    account.len = 4;
    memcpy(account.data, "acme", 4);

    call.charge.cost = cost;
    call.first_byte = NGX_MODELGW_LEDGER_NONE;

    for (pos = first; pos <= last; pos++) {
        call.id = 7 * pos;
        ngx_modelgw_fresh_add(&fresh, pos, &call, &account);
    }
}


/* Takes all that there is after pos; returns the position of the last one. */

static uint64_t
take(uint64_t pos, int64_t cost, uint64_t *end)
{
    ngx_uint_t                   i, n;
    ngx_modelgw_journal_call_t  *call;

    for ( ;; ) {
        call = ngx_modelgw_fresh_take(&fresh, pos, 1000, &n, end);

        if (n == 0) {
            return pos;
        }

        assert_true(n <= 1000);

        for (i = 0; i < n; i++) {
            assert_int_equal(call[i].pos, ++pos);
            assert_int_equal(call[i].id, 7 * pos);
            assert_int_equal(call[i].cost, cost);
            assert_int_equal(call[i].first_byte, -1);
            assert_int_equal(call[i].account.len, 4);
            assert_memory_equal(call[i].account.data, "acme", 4);
        }
    }
}


static void
test_batches(void **state)
{
    uint64_t  end;

    end = 0;

    add(1, 10, 1);
    assert_int_equal(take(0, 1, &end), 0);

    /* it fails, and is written again, with others */

    ngx_modelgw_fresh_durable(&fresh, 0);
    add(1, 12, 2);
    ngx_modelgw_fresh_durable(&fresh, 1);

    assert_int_equal(take(0, 2, &end), 12);
    assert_int_equal(end, 12);

    /* the exchange is said again */

    add(13, 20, 2);
    ngx_modelgw_fresh_durable(&fresh, 1);

    assert_int_equal(take(15, 2, &end), 20);
    assert_int_equal(take(20, 2, &end), 20);

    /* those before are in the journal only */

    assert_int_equal(take(3, 2, &end), 3);
}


static void
test_gap(void **state)
{
    uint64_t  end;

    add(5, 6, 1);
    add(8, 9, 1);
    ngx_modelgw_fresh_durable(&fresh, 1);

    assert_int_equal(take(0, 1, &end), 0);
    assert_int_equal(take(4, 1, &end), 6);
    assert_int_equal(end, 9);
    assert_int_equal(take(7, 1, &end), 9);
}


static void
test_no_room(void **state)
{
    uint64_t  end;

    add(1, NGX_MODELGW_FRESH + 100, 1);
    ngx_modelgw_fresh_durable(&fresh, 1);

    /* the end tells that there are more */

    assert_int_equal(take(0, 1, &end), NGX_MODELGW_FRESH);
    assert_int_equal(end, NGX_MODELGW_FRESH + 100);

    /* a batch that fails does not move it */

    add(end + 1, end + 9, 1);
    ngx_modelgw_fresh_durable(&fresh, 0);
    ngx_modelgw_fresh_durable(&fresh, 1);

    assert_int_equal(take(end, 1, &end), NGX_MODELGW_FRESH + 100);

    /* when the journal has given these, around the ring's end */

    add(end + 1, end + NGX_MODELGW_FRESH, 1);
    ngx_modelgw_fresh_durable(&fresh, 1);

    assert_int_equal(take(end, 1, &end), 2 * NGX_MODELGW_FRESH + 100);
    assert_int_equal(end, 2 * NGX_MODELGW_FRESH + 100);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test_setup_teardown(test_batches, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gap, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_room, setup, teardown)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
