
/*
 * Unit tests of calls on their way from the writer to the exchanger: batches
 * that fail, no room, positions with gaps, columns that have one value.
 */


#include "unit.h"

#include "ngx_modelgw_exchange.h"
#include "ngx_modelgw_fresh.h"


#define ROOM  (NGX_MODELGW_FRESH * NGX_MODELGW_EXCHANGE_CALLS)


static ngx_modelgw_fresh_t     fresh;
static ngx_modelgw_shipment_t  calls;


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
    ngx_modelgw_shipment_free(&calls);

    return 0;
}


/* at most a batch; the calls stay as they are until the next ones */

static void
add(uint64_t first, uint64_t last, int64_t price)
{
    uint64_t             pos;
    ngx_modelgw_call_t  *call;

    static ngx_modelgw_call_t         batch[NGX_MODELGW_FRESH_CALLS];
    static ngx_modelgw_ledger_name_t  accounts[] = {
        { .len = 4, .data = "acme" }, { .len = 4, .data = "echo" }
    };

    for (pos = first; pos <= last; pos++) {
        call = &batch[pos % NGX_MODELGW_FRESH_CALLS];

        memset(call, 0, sizeof(ngx_modelgw_call_t));

        call->id = 7 * pos;
        call->price_id = price;
        call->first_byte = NGX_MODELGW_LEDGER_NONE;

        ngx_modelgw_fresh_add(&fresh, pos, call, &accounts[pos % 100 == 0]);
    }
}


static int64_t
number(ngx_uint_t column, u_char **p)
{
    ngx_str_t  element;

    *p = ngx_modelgw_pq_array_next(&calls.columns[column], *p, &element);
    assert_non_null(*p);

    return ngx_modelgw_pq_read(element.data, element.len);
}


/* Takes all that there is after pos; returns the position of the last one. */

static uint64_t
take(uint64_t pos, int64_t price, uint64_t *end, uint64_t *gap)
{
    u_char      *id, *name, *p;
    ngx_str_t    account;
    ngx_uint_t   i;

    for ( ;; ) {
        ngx_modelgw_shipment_clear(&calls);

        if (ngx_modelgw_fresh_take(&fresh, pos, &calls, end, gap) != NGX_OK) {
            return pos;
        }

        assert_in_range(calls.n, 1, NGX_MODELGW_EXCHANGE_CALLS);
        assert_int_equal(calls.first, pos + 1);

        p = NULL;
        assert_int_equal(number(NGX_MODELGW_SHIPMENT_PRICE, &p), price);
        assert_true(calls.once & (1 << NGX_MODELGW_SHIPMENT_PRICE));

        id = NULL;
        name = NULL;

        for (i = 0; i < calls.n; i++) {
            assert_int_equal(number(NGX_MODELGW_SHIPMENT_ID, &id), 7 * ++pos);

            if (i && (calls.once & (1 << NGX_MODELGW_SHIPMENT_ACCOUNT))) {
                assert_true(pos % 100);
                continue;
            }

            name = ngx_modelgw_pq_array_next(
                                  &calls.columns[NGX_MODELGW_SHIPMENT_ACCOUNT],
                                  name, &account);
            assert_non_null(name);
            assert_int_equal(account.len, 4);
            assert_memory_equal(account.data, (pos % 100) ? "acme" : "echo", 4);
        }

        assert_int_equal(calls.id, 7 * pos);
    }
}


static void
test_batches(void **state)
{
    uint64_t  end, gap;

    add(1, 10, 1);
    assert_int_equal(take(0, 1, &end, &gap), 0);
    assert_int_equal(end, 0);

    /* it fails, and is written again, with others */

    ngx_modelgw_fresh_durable(&fresh, 0);
    add(1, 12, 2);
    ngx_modelgw_fresh_durable(&fresh, 1);

    assert_int_equal(take(0, 2, &end, &gap), 12);
    assert_int_equal(end, 12);

    /* several, in one */

    for (end = 12; end < 512; end += 10) {
        add(end + 1, end + 10, 2);
        ngx_modelgw_fresh_durable(&fresh, 1);
    }

    assert_int_equal(fresh.n, 1);
    assert_int_equal(take(12, 2, &end, &gap), 512);
    assert_int_equal(end, 512);

    /* those before are in the journal only, and those that it has had */

    add(513, 520, 2);
    ngx_modelgw_fresh_durable(&fresh, 1);

    assert_int_equal(take(510, 2, &end, &gap), 510);
    assert_int_equal(gap, 2);

    assert_int_equal(take(516, 2, &end, &gap), 516);
    assert_int_equal(end, 520);
    assert_true(gap > NGX_MODELGW_EXCHANGE_CALLS);
    assert_int_equal(fresh.n, 0);
}


static void
test_gap(void **state)
{
    uint64_t  end, gap;

    add(5, 6, 1);
    add(8, 9, 1);
    ngx_modelgw_fresh_durable(&fresh, 1);

    add(11, 12, 1);
    ngx_modelgw_fresh_durable(&fresh, 1);

    assert_int_equal(take(0, 1, &end, &gap), 0);
    assert_int_equal(gap, 4);
    assert_int_equal(end, 12);

    assert_int_equal(take(4, 1, &end, &gap), 6);
    assert_int_equal(gap, 1);
    assert_int_equal(take(7, 1, &end, &gap), 9);
    assert_int_equal(gap, 1);
    assert_int_equal(take(10, 1, &end, &gap), 12);

    /* one alone */

    add(14, 14, 1);
    ngx_modelgw_fresh_durable(&fresh, 1);

    assert_int_equal(take(13, 1, &end, &gap), 14);
}


static void
test_no_room(void **state)
{
    uint64_t  pos, end, gap;

    for (pos = 0; pos < ROOM + 500; pos += 100) {
        add(pos + 1, pos + 100, 1);
        ngx_modelgw_fresh_durable(&fresh, 1);
    }

    /* the end tells that there are more */

    assert_int_equal(take(0, 1, &end, &gap), ROOM);
    assert_int_equal(end, ROOM + 500);

    /* a batch that fails does not move it */

    add(end + 1, end + 9, 1);
    ngx_modelgw_fresh_durable(&fresh, 0);
    ngx_modelgw_fresh_durable(&fresh, 1);

    assert_int_equal(take(end, 1, &end, &gap), ROOM + 500);
    assert_int_equal(end, ROOM + 500);

    /* when the journal has given these; a batch may be large */

    add(end + 1, end + NGX_MODELGW_EXCHANGE_CALLS - 1, 1);
    ngx_modelgw_fresh_durable(&fresh, 1);
    add(fresh.end + 1, fresh.end + 300, 1);
    ngx_modelgw_fresh_durable(&fresh, 1);

    assert_int_equal(fresh.n, 2);
    assert_int_equal(take(end, 1, &end, &gap),
                     ROOM + 500 + NGX_MODELGW_EXCHANGE_CALLS + 299);
    assert_int_equal(end, ROOM + 500 + NGX_MODELGW_EXCHANGE_CALLS + 299);
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
