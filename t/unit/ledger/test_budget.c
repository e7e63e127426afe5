
/*
 * Budgets: their text, windows of the calendar, and calls in the ledger at the
 * turn of a window.
 */


#include "unit_ledger.h"

#include "ngx_modelgw_budget.h"


#define DAY    NGX_MODELGW_WINDOW_DAY
#define WEEK   NGX_MODELGW_WINDOW_WEEK
#define MONTH  NGX_MODELGW_WINDOW_MONTH
#define TOTAL  NGX_MODELGW_WINDOW_TOTAL


/* 2027-01-31T23:59:59.900Z is utc(2027, 1, 31, 23, 59, 59) + 900 */

static uint64_t
utc(int year, int mon, int day, int hour, int min, int sec)
{
    struct tm  tm;

    ngx_memzero(&tm, sizeof(struct tm));

    tm.tm_year = year - 1900;
    tm.tm_mon = mon - 1;
    tm.tm_mday = day;
    tm.tm_hour = hour;
    tm.tm_min = min;
    tm.tm_sec = sec;

    return (uint64_t) timegm(&tm) * 1000;
}


static void
test_parse(void **state)
{
    ngx_str_t              s;
    ngx_uint_t             i;
    ngx_modelgw_budget_t   b;

    static const char     *invalid[] = {
        "", "/", "50", "50/", "/month", "50/year", "50/months", "50/mont",
        "50/Month", "0/day", "0.00/day", "-1/day", "1e3/day", "50/month/",
        "50/month ", " 50/month", "1000000000/day", "0.0000000001/day",
        "50 /month", "50//month"
    };

    static const struct {
        const char        *text;
        int64_t            limit;
        ngx_uint_t         window;
    } valid[] = {
        { "50.00/month", 50 * EURO, MONTH },
        { "1/day", EURO, DAY },
        { "0.000000001/week", 1, WEEK },
        { "999999999/total", 999999999 * EURO, TOTAL }
    };

    for (i = 0; i < sizeof(invalid) / sizeof(invalid[0]); i++) {
        s = unit_str(invalid[i]);
        assert_int_equal(ngx_modelgw_budget_parse(&s, &b), NGX_DECLINED);
    }

    for (i = 0; i < sizeof(valid) / sizeof(valid[0]); i++) {
        s = unit_str(valid[i].text);
        assert_int_equal(ngx_modelgw_budget_parse(&s, &b), NGX_OK);
        assert_int_equal(b.limit, valid[i].limit);
        assert_int_equal(b.window, valid[i].window);
    }
}


static void
window(ngx_uint_t window, uint64_t start, uint64_t end)
{
    assert_int_equal(ngx_modelgw_budget_start(window, start), start);
    assert_int_equal(ngx_modelgw_budget_end(window, start), end);
    assert_int_equal(ngx_modelgw_budget_start(window, end - 1), start);
    assert_int_equal(ngx_modelgw_budget_end(window, end - 1), end);
    assert_int_equal(ngx_modelgw_budget_start(window, (start + end) / 2),
                     start);
    assert_int_equal(ngx_modelgw_budget_start(window, end), end);
}


static void
test_windows(void **state)
{
    int  year, mon;

    window(DAY, utc(2027, 1, 1, 0, 0, 0), utc(2027, 1, 2, 0, 0, 0));
    window(DAY, utc(2027, 12, 31, 0, 0, 0), utc(2028, 1, 1, 0, 0, 0));
    window(DAY, utc(2028, 2, 29, 0, 0, 0), utc(2028, 3, 1, 0, 0, 0));

    /* 2027-01-04, 2027-12-27 and 2028-02-28 are Mondays */

    window(WEEK, utc(2027, 1, 4, 0, 0, 0), utc(2027, 1, 11, 0, 0, 0));
    window(WEEK, utc(2027, 12, 27, 0, 0, 0), utc(2028, 1, 3, 0, 0, 0));
    window(WEEK, utc(2028, 2, 28, 0, 0, 0), utc(2028, 3, 6, 0, 0, 0));
    window(WEEK, utc(1970, 1, 5, 0, 0, 0), utc(1970, 1, 12, 0, 0, 0));

    assert_int_equal(ngx_modelgw_budget_start(WEEK, 0), 0);
    assert_int_equal(ngx_modelgw_budget_end(WEEK, 0), utc(1970, 1, 5, 0, 0, 0));

    /* leap years are 2028, 2096 and 2400, not 2100 */

    window(MONTH, utc(2028, 2, 1, 0, 0, 0), utc(2028, 3, 1, 0, 0, 0));
    assert_int_equal(utc(2028, 3, 1, 0, 0, 0) - utc(2028, 2, 1, 0, 0, 0),
                     29 * 86400000ULL);
    window(MONTH, utc(2400, 2, 1, 0, 0, 0), utc(2400, 3, 1, 0, 0, 0));

    for (year = 1970; year < 2110; year++) {
        for (mon = 1; mon <= 12; mon++) {
            window(MONTH, utc(year, mon, 1, 0, 0, 0),
                   utc(year, mon + 1, 1, 0, 0, 0));
        }
    }

    assert_int_equal(ngx_modelgw_budget_start(TOTAL, TIME), 0);
    assert_int_equal(ngx_modelgw_budget_end(TOTAL, TIME), (uint64_t) -1);
}


/* a key with a budget of which nothing is spent, as at a start */

static uint32_t
budget_key(ngx_modelgw_ledger_t *l, const char *name, ngx_uint_t window,
    uint64_t time)
{
    uint32_t  key;

    key = ledger_key(l, name);

    assert_int_equal(ngx_modelgw_ledger_budget_set(l, key, window), 1);

    ngx_modelgw_ledger_lock(l);
    ngx_modelgw_ledger_budget_begin_locked(l, key, time);
    ngx_modelgw_ledger_unlock(l);

    ngx_modelgw_ledger_budget_known(l, key);

    assert_int_equal(ngx_modelgw_ledger_budget_set(l, key, window), 0);

    return key;
}


static ngx_int_t
budget_check(ngx_modelgw_ledger_t *l, uint32_t key, int64_t hold,
    ngx_modelgw_budget_t *budget, uint64_t time,
    ngx_modelgw_ledger_left_t *left)
{
    ngx_int_t           rc;
    ngx_modelgw_call_t  call;

    call.key = key;
    call.hold = hold;

    ngx_modelgw_ledger_lock(l);
    rc = ngx_modelgw_ledger_budget_locked(l, &call, budget, time, left);
    ngx_modelgw_ledger_unlock(l);

    return rc;
}


/* A call that ends in the next month is charged to that. */

static void
test_end_of_month(void **state)
{
    uint32_t                    key, account;
    uint64_t                    last, next;
    ngx_modelgw_call_t         *one, *two, *three;
    ngx_modelgw_ledger_t       *l;
    ngx_modelgw_ledger_left_t   left;

    ngx_modelgw_budget_t        budget = { 10 * EURO, MONTH };

    l = ledger_create(LEDGER_SIZE, 1, 1);
    account = ledger_account(l, "alice", 1000 * EURO);

    last = utc(2027, 12, 31, 23, 59, 59) + 900;
    next = utc(2028, 1, 1, 0, 0, 0);

    key = budget_key(l, "k", MONTH, last);

    /* spent: 4 in December */

    one = ledger_sent(l, 0, key, account, 5 * EURO, 4);
    call_settle(l, one, NGX_MODELGW_END_COMPLETE, last, 0);

    assert_int_equal(budget_check(l, key, 6 * EURO, &budget, last, &left),
                     NGX_OK);
    assert_int_equal(left.amount, 6 * EURO);
    assert_int_equal(left.ends, next);
    assert_int_equal(budget_check(l, key, 6 * EURO + 1, &budget, last, &left),
                     NGX_DECLINED);

    /* held: 3 and 2 */

    two = ledger_sent(l, 0, key, account, 3 * EURO, 1);
    three = ledger_sent(l, 0, key, account, 2 * EURO, 2);

    assert_int_equal(budget_check(l, key, EURO + 1, &budget, next - 1, &left),
                     NGX_DECLINED);
    assert_int_equal(left.amount, EURO);
    assert_int_equal(budget_check(l, key, 0, &budget, next - 1, &left),
                     NGX_OK);

    /* in January only what is held counts, before any call has ended there */

    assert_int_equal(budget_check(l, key, 5 * EURO, &budget, next, &left),
                     NGX_OK);
    assert_int_equal(left.amount, 5 * EURO);
    assert_int_equal(left.ends, utc(2028, 2, 1, 0, 0, 0));

    /* one ends in December still, the other in January */

    call_settle(l, two, NGX_MODELGW_END_COMPLETE, next - 1, 0);

    (void) budget_check(l, key, 1, &budget, next - 1, &left);
    assert_int_equal(left.amount, (10 - 4 - 1 - 2) * EURO);

    call_settle(l, three, NGX_MODELGW_END_COMPLETE, next, 0);

    (void) budget_check(l, key, 1, &budget, next, &left);
    assert_int_equal(left.amount, (10 - 2) * EURO);
    assert_int_equal(ngx_modelgw_ledger_key_at(l, key)->spent, 2 * EURO);

    ledger_assert(l);
    ledger_destroy(l, LEDGER_SIZE);
}


/* What a clock that was wrong has begun does not last until its end. */

static void
test_wrong_clock(void **state)
{
    uint32_t                    i, key, account;
    uint64_t                    year;
    ngx_modelgw_call_t         *call;
    ngx_modelgw_ledger_t       *l;
    ngx_modelgw_ledger_left_t   left;

    static ngx_uint_t  windows[] = { DAY, WEEK, MONTH };

    year = (uint64_t) 365 * 86400000;

    for (i = 0; i < 3; i++) {
        ngx_modelgw_budget_t  budget = { 2 * EURO, windows[i] };

        l = ledger_create(LEDGER_SIZE, 1, 1);
        account = ledger_account(l, "alice", 1000 * EURO);
        key = budget_key(l, "k", windows[i], TIME);

        call = ledger_sent(l, 0, key, account, EURO, 1);
        call_settle(l, call, NGX_MODELGW_END_COMPLETE, TIME + year, 0);

        assert_int_equal(budget_check(l, key, EURO, &budget, TIME, &left),
                         NGX_OK);
        assert_int_equal(left.amount, 2 * EURO);
        assert_int_equal(left.ends, ngx_modelgw_budget_end(windows[i], TIME));

        call = ledger_sent(l, 0, key, account, EURO, 1);
        call_settle(l, call, NGX_MODELGW_END_COMPLETE, TIME, 0);

        (void) budget_check(l, key, EURO, &budget, TIME, &left);
        assert_int_equal(left.amount, EURO);

        ledger_destroy(l, LEDGER_SIZE);
    }

    assert_int_equal(ngx_modelgw_budget_longest(MONTH),
                     (uint64_t) 31 * 86400000);
}


/* A call of a key that had no limits, and so no record in it. */

static void
test_without_record(void **state)
{
    uint32_t                    key, account;
    ngx_modelgw_call_t         *call;
    ngx_modelgw_ledger_t       *l;
    ngx_modelgw_ledger_left_t   left;

    ngx_modelgw_budget_t        budget = { 10 * EURO, TOTAL };

    l = ledger_create(LEDGER_SIZE, 1, 1);
    account = ledger_account(l, "alice", 1000 * EURO);

    call = ledger_sent(l, 0, NONE, account, 5 * EURO, 4);
    call->key_name.len = 1;
    call->key_name.data[0] = 'k';

    key = budget_key(l, "k", TOTAL, TIME);
    call_settle(l, call, NGX_MODELGW_END_COMPLETE, TIME, 0);

    (void) budget_check(l, key, EURO, &budget, TIME, &left);
    assert_int_equal(left.amount, 6 * EURO);
    assert_int_equal(ngx_modelgw_ledger_key_at(l, key)->held, 0);
    assert_int_equal(ngx_modelgw_ledger_key_at(l, key)->calls, 0);

    ledger_destroy(l, LEDGER_SIZE);
}


static void
test_total(void **state)
{
    uint32_t                    key, account;
    ngx_modelgw_call_t         *call;
    ngx_modelgw_ledger_t       *l;
    ngx_modelgw_ledger_left_t   left;

    ngx_modelgw_budget_t        budget = { 3 * EURO, TOTAL };

    l = ledger_create(LEDGER_SIZE, 1, 1);
    account = ledger_account(l, "alice", 1000 * EURO);
    key = budget_key(l, "k", TOTAL, TIME);

    /* an upstream may report more than the hold */

    call = ledger_sent(l, 0, key, account, EURO, 5);
    call_settle(l, call, NGX_MODELGW_END_COMPLETE, TIME, 0);

    assert_int_equal(budget_check(l, key, 1, &budget, utc(2199, 1, 1, 0, 0, 0),
                                  &left),
                     NGX_DECLINED);
    assert_int_equal(left.amount, -2 * EURO);
    assert_int_equal(left.ends, (uint64_t) -1);

    ledger_destroy(l, LEDGER_SIZE);
}


/* Calls are in flight as a key gets its budget, then another window. */

static void
test_pending(void **state)
{
    uint32_t                    key, account, other;
    ngx_str_t                   name, nobody;
    ngx_modelgw_call_t         *one, *two;
    ngx_modelgw_ledger_t       *l;
    ngx_modelgw_ledger_left_t   left;

    ngx_modelgw_budget_t        day = { 10 * EURO, DAY };
    ngx_modelgw_budget_t        total = { 10 * EURO, TOTAL };

    l = ledger_create(LEDGER_SIZE, 1, 1);
    name = unit_str("k");
    nobody = unit_str("nobody");

    ngx_modelgw_ledger_generation(l);

    account = ledger_account(l, "alice", 1000 * EURO);
    key = ledger_key(l, "k");

    one = ledger_sent(l, 0, key, account, 2 * EURO, 1);
    two = ledger_sent(l, 0, key, account, 3 * EURO, 3);

    assert_int_equal(ngx_modelgw_ledger_budget_set(l, key, DAY), 1);
    assert_int_equal(budget_check(l, key, 1, &day, TIME, &left), NGX_ERROR);

    ngx_modelgw_ledger_lock(l);
    ngx_modelgw_ledger_budget_begin_locked(l, key, TIME);
    ngx_modelgw_ledger_unlock(l);

    call_settle(l, one, NGX_MODELGW_END_COMPLETE, TIME, 0);

    ngx_modelgw_ledger_budget_add(l, &name, DAY, 4 * EURO);
    ngx_modelgw_ledger_budget_add(l, &name, WEEK, 100 * EURO);
    ngx_modelgw_ledger_budget_add(l, &nobody, DAY, EURO);

    assert_int_equal(budget_check(l, key, 1, &day, TIME, &left), NGX_ERROR);

    ngx_modelgw_ledger_budget_known(l, key);

    assert_int_equal(budget_check(l, key, 1, &day, TIME, &left), NGX_OK);
    assert_int_equal(left.amount, (10 - 1 - 4 - 3) * EURO);

    ngx_modelgw_ledger_budget_add(l, &name, DAY, EURO);
    (void) budget_check(l, key, 1, &day, TIME, &left);
    assert_int_equal(left.amount, 2 * EURO);

    /* calls of the configuration before, with the window of that */

    assert_int_equal(ngx_modelgw_ledger_budget_set(l, key, TOTAL), 1);
    assert_int_equal(budget_check(l, key, 1, &day, TIME, &left), NGX_ERROR);

    ngx_modelgw_ledger_lock(l);
    ngx_modelgw_ledger_budget_begin_locked(l, key, TIME);
    ngx_modelgw_ledger_unlock(l);

    call_settle(l, two, NGX_MODELGW_END_COMPLETE, TIME, 0);
    ngx_modelgw_ledger_budget_known(l, key);

    assert_int_equal(budget_check(l, key, 1, &total, TIME, &left), NGX_OK);
    assert_int_equal(left.amount, 7 * EURO);

    /* named by the next configuration: kept; not by that one: not known */

    ngx_modelgw_ledger_generation(l);
    assert_int_equal(ledger_key(l, "k"), key);
    assert_int_equal(ngx_modelgw_ledger_budget_set(l, key, TOTAL), 0);

    ngx_modelgw_ledger_generation(l);
    other = ledger_key(l, "other");
    assert_int_not_equal(other, key);

    ngx_modelgw_ledger_generation(l);
    assert_int_equal(ledger_key(l, "k"), key);
    assert_int_equal(ngx_modelgw_ledger_budget_set(l, key, TOTAL), 1);

    ledger_assert(l);
    ledger_destroy(l, LEDGER_SIZE);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_end_of_month),
        cmocka_unit_test(test_wrong_clock),
        cmocka_unit_test(test_without_record),
        cmocka_unit_test(test_total),
        cmocka_unit_test(test_pending),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
