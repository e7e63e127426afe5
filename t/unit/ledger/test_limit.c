
/*
 * Limits per minute: what is admitted, what is reported, what is corrected.
 */


#include "unit.h"

#include "ngx_modelgw_limit.h"


#define MINUTE   60000
#define START    86412345                /* not a full minute */

#define MINUTES  10


static ngx_modelgw_limit_state_t  st;

static uint64_t  admitted[(MINUTES + 1) * MINUTE];


static ngx_int_t
take(ngx_modelgw_limit_t *l, uint64_t limit, uint64_t n, uint64_t time)
{
    ngx_modelgw_limit_t        before;
    ngx_modelgw_limit_state_t  peek;

    before = *l;
    ngx_memset(&st, 0x5a, sizeof(st));

    if (ngx_modelgw_limit_take(l, limit, n, time, &st) == NGX_OK) {
        assert_int_equal(st.wait, 0);
        return NGX_OK;
    }

    assert_true(st.wait > 0);
    assert_true(st.wait <= 2 * MINUTE);
    assert_true(st.reset >= st.wait);

    /* nothing was taken */

    ngx_modelgw_limit_state(&before, limit, time, &peek);
    assert_int_equal(peek.remaining, st.remaining);
    assert_int_equal(peek.reset, st.reset);

    return NGX_DECLINED;
}


/* takes n at a time until it is refused; returns the sum */

static uint64_t
hammer(ngx_modelgw_limit_t *l, uint64_t limit, uint64_t n, uint64_t time)
{
    uint64_t  sum;

    for (sum = 0; take(l, limit, n, time) == NGX_OK; sum += n) {
        assert_true(sum <= limit);
    }

    return sum;
}


static void
test_burst(void **state)
{
    uint64_t             i;
    ngx_modelgw_limit_t  l = { 0, 0, 0 };

    for (i = 0; i < 60; i++) {
        assert_int_equal(take(&l, 60, 1, START), NGX_OK);
        assert_int_equal(st.remaining, 59 - i);
    }

    assert_int_equal(take(&l, 60, 1, START), NGX_DECLINED);
    assert_int_equal(st.remaining, 0);

    /* nothing is freed in the first minute; then one a second */

    assert_int_equal(take(&l, 60, 1, START + MINUTE - 1), NGX_DECLINED);
    assert_int_equal(st.wait, 1);

    assert_int_equal(take(&l, 60, 1, START + MINUTE), NGX_OK);
    assert_int_equal(take(&l, 60, 1, START + MINUTE), NGX_DECLINED);
    assert_int_equal(take(&l, 60, 1, START + MINUTE + 999), NGX_DECLINED);
    assert_int_equal(st.wait, 1);
    assert_int_equal(take(&l, 60, 1, START + MINUTE + 1000), NGX_OK);
    assert_int_equal(take(&l, 60, 1, START + MINUTE + 1001), NGX_DECLINED);
}


/* calls for MINUTES, every "step" milliseconds from the first one on */

static void
run(uint64_t limit, uint64_t n, uint64_t step)
{
    uint64_t             t, sum, most, all;
    ngx_modelgw_limit_t  l = { 0, 0, 0 };

    ngx_memzero(admitted, sizeof(admitted));

    for (t = 0; t < MINUTES * MINUTE; t += step) {
        admitted[t] = hammer(&l, limit, n, START + t);
    }

    /* the first minute */

    for (t = 0, sum = 0; t < MINUTE; t++) {
        sum += admitted[t];
    }

    assert_int_equal(sum, limit / n * n);

    /* in any 60 seconds: never more; and as much, from the second minute
       on */

    most = limit + limit / 100;
    all = sum;

    for (t = 0; t < (MINUTES - 1) * MINUTE; t++) {

        if (sum > most) {
            fail_msg("%lu of %lu in 60 s from %lu", (long) sum, (long) limit,
                     (long) t);
        }

        if (t >= MINUTE && sum + n < limit - limit / 100) {
            fail_msg("only %lu of %lu in 60 s from %lu", (long) sum,
                     (long) limit, (long) t);
        }

        sum += admitted[t + MINUTE];
        all += admitted[t + MINUTE];
        sum -= admitted[t];
    }

    /* the whole time */

    if (all * 100 < limit * (MINUTES * 100 - MINUTES) - 100 * n
        || all > limit * MINUTES + limit / 100)
    {
        fail_msg("%lu of %lu", (long) all, (long) (limit * MINUTES));
    }
}


static void
test_hammer(void **state)
{
    run(100, 1, 1);
    run(600, 1, 1);
    run(600, 1, 7);
    run(6000, 1, 3);
}


static void
test_hammer_tokens(void **state)
{
    run(100000, 700, 5);
    run(1000000, 999, 2);
    run(1000000000, 1000000, 10);
}


/* low limits: a difference of one is more than one percent */

static void
test_hammer_few(void **state)
{
    uint64_t             t, limit, sum;
    ngx_modelgw_limit_t  l;

    for (limit = 1; limit < 20; limit++) {
        ngx_memzero(&l, sizeof(l));
        sum = 0;

        for (t = 0; t < MINUTES * MINUTE; t++) {
            sum += hammer(&l, limit, 1, START + t);

            if (t == MINUTE - 1) {
                assert_int_equal(sum, limit);
            }
        }

        assert_true(sum <= limit * MINUTES);
        assert_true(sum + MINUTES >= limit * MINUTES);
    }
}


/* a client that returns after a pause gets the whole limit, not more */

static void
test_pause(void **state)
{
    uint64_t             pause;
    ngx_modelgw_limit_t  l;

    for (pause = 2 * MINUTE; pause < 5 * MINUTE; pause += 999) {
        ngx_memzero(&l, sizeof(l));

        assert_int_equal(hammer(&l, 50, 1, START), 50);
        assert_int_equal(hammer(&l, 50, 1, START + pause), 50);
        assert_int_equal(hammer(&l, 50, 1, START + pause + MINUTE - 1), 0);
    }

    /* after half of the next minute, half of it */

    ngx_memzero(&l, sizeof(l));

    assert_int_equal(hammer(&l, 50, 1, START), 50);
    assert_int_equal(hammer(&l, 50, 1, START + MINUTE + MINUTE / 2), 26);
}


/* a call that has expired, or was given back, does not begin a minute */

static void
test_free_again(void **state)
{
    uint64_t             t, begin, sum;
    ngx_uint_t           i;
    ngx_modelgw_limit_t  l;

    for (i = 0; i < 2; i++) {
        ngx_memzero(&l, sizeof(l));

        assert_int_equal(take(&l, 600, 1, START), NGX_OK);
        begin = START + MINUTE + MINUTE / 2;

        if (i) {
            ngx_modelgw_limit_correct(&l, 1, 0, START + 10);
            begin = START + MINUTE / 2;
        }

        for (t = begin, sum = 0; t < begin + MINUTE; t++) {
            sum += hammer(&l, 600, 1, t);
        }

        assert_int_equal(sum, 600);
    }
}


/* the worst case of holding requests back: twice the limit, once */

static void
test_held_back(void **state)
{
    uint64_t             t, sum;
    ngx_modelgw_limit_t  l = { 0, 0, 0 };

    assert_int_equal(take(&l, 600, 1, START), NGX_OK);
    sum = hammer(&l, 600, 1, START + MINUTE - 1);
    assert_int_equal(sum, 599);

    for (t = MINUTE; t < 2 * MINUTE - 1; t++) {
        sum += hammer(&l, 600, 1, START + t);
    }

    assert_true(sum <= 1200);

    for (sum = 0; t < 3 * MINUTE - 1; t++) {
        sum += hammer(&l, 600, 1, START + t);
    }

    assert_true(sum <= 606);
}


/* a retry after the reported time passes, one before it does not */

static void
test_wait(void **state)
{
    uint64_t             i, n, limit, t, wait;
    ngx_uint_t           k;
    ngx_modelgw_limit_t  l, again, early;

    static uint64_t limits[] = { 1, 2, 3, 60, 777, 60000, 1000000,
                                 1000000000 };

    srandom(1);

    for (k = 0; k < 8; k++) {
        limit = limits[k];
        ngx_memzero(&l, sizeof(l));
        t = START;

        for (i = 0; i < 20000; i++) {
            n = 1 + (uint64_t) random() % limit;
            t += (uint64_t) random() % 20000;

            if (random() % 4 == 0) {
                ngx_modelgw_limit_correct(&l, n / 2, random() % (2 * limit), t);
            }

            again = l;

            if (take(&l, limit, n, t) == NGX_OK) {
                continue;
            }

            wait = st.wait;
            early = again;

            assert_int_equal(take(&early, limit, n, t + wait - 1),
                             NGX_DECLINED);
            assert_int_equal(take(&again, limit, n, t + wait), NGX_OK);
        }
    }
}


/* the whole limit is free after the reported time, and not before */

static void
test_reset(void **state)
{
    uint64_t                   i, t, reset;
    ngx_modelgw_limit_t        l = { 0, 0, 0 };
    ngx_modelgw_limit_state_t  peek;

    srandom(2);

    for (i = 0, t = START; i < 20000; i++) {
        t += (uint64_t) random() % 5000;

        (void) take(&l, 1000, 1 + random() % 500, t);
        reset = st.reset;
        assert_true(reset > 0 && reset <= 2 * MINUTE);

        ngx_modelgw_limit_state(&l, 1000, t + reset, &peek);
        assert_int_equal(peek.remaining, 1000);
        assert_int_equal(peek.reset, 0);
        assert_int_equal(peek.wait, 0);

        ngx_modelgw_limit_state(&l, 1000, t + reset - 1, &peek);
        assert_true(peek.remaining < 1000);
    }
}


static void
test_state(void **state)
{
    ngx_modelgw_limit_t        l = { 0, 0, 0 }, copy;
    ngx_modelgw_limit_state_t  peek;

    ngx_modelgw_limit_state(&l, 5, START, &peek);
    assert_int_equal(peek.remaining, 5);
    assert_int_equal(peek.wait, 0);
    assert_int_equal(peek.reset, 0);

    assert_int_equal(take(&l, 5, 3, START), NGX_OK);
    copy = l;

    ngx_modelgw_limit_state(&l, 5, START + 10, &peek);
    assert_int_equal(peek.remaining, 2);
    assert_int_equal(peek.wait, 0);

    /* nothing changes, even long after */

    ngx_modelgw_limit_state(&l, 5, START + 10 * MINUTE, &peek);
    assert_int_equal(peek.remaining, 5);
    assert_memory_equal(&l, &copy, sizeof(l));

    assert_int_equal(take(&l, 5, 2, START + 10), NGX_OK);
    ngx_modelgw_limit_state(&l, 5, START + 20, &peek);
    assert_int_equal(peek.remaining, 0);
    assert_int_equal(peek.wait, MINUTE - 20);

    /* a limit lower than what was taken under a higher one */

    ngx_modelgw_limit_state(&l, 2, START + 20, &peek);
    assert_int_equal(peek.remaining, 0);
    assert_true(peek.wait > MINUTE);
}


/* more than the limit is the limit: else it could never pass */

static void
test_more_than_limit(void **state)
{
    ngx_modelgw_limit_t  l = { 0, 0, 0 };

    assert_int_equal(take(&l, 1000, 5000, START), NGX_OK);
    assert_int_equal(st.remaining, 0);
    assert_int_equal(l.now, 1000);
    assert_int_equal(take(&l, 1000, 5000, START), NGX_DECLINED);
    assert_int_equal(take(&l, 1000, UINT64_MAX, START + 2 * MINUTE), NGX_OK);
}


/* a request for all of it waits until all is free: two minutes */

static void
test_whole_limit(void **state)
{
    uint64_t             t, sum;
    ngx_modelgw_limit_t  l = { 0, 0, 0 };

    for (t = 0, sum = 0; t <= MINUTES * MINUTE; t += 10) {
        sum += hammer(&l, 1000000000, 1000000000, START + t) / 1000000000;
    }

    assert_int_equal(sum, MINUTES / 2 + 1);
}


static void
test_correct(void **state)
{
    ngx_modelgw_limit_t  l = { 0, 0, 0 };

    /* down, and up */

    assert_int_equal(take(&l, 1000, 600, START), NGX_OK);
    ngx_modelgw_limit_correct(&l, 600, 100, START + 5);
    assert_int_equal(take(&l, 1000, 900, START + 6), NGX_OK);
    assert_int_equal(st.remaining, 0);

    ngx_modelgw_limit_correct(&l, 900, 900, START + 7);
    assert_int_equal(take(&l, 1000, 1, START + 8), NGX_DECLINED);

    ngx_modelgw_limit_correct(&l, 900, 1900, START + 9);
    assert_int_equal(take(&l, 1000, 1, START + 10), NGX_DECLINED);
    assert_int_equal(st.remaining, 0);

    /* twice the limit is over it for half of the next minute */

    assert_int_equal(take(&l, 1000, 1, START + MINUTE + MINUTE / 2 - 1),
                     NGX_DECLINED);
    assert_int_equal(take(&l, 1000, 10, START + MINUTE + MINUTE / 2 + MINUTE / 5),
                     NGX_OK);
}


static void
test_correct_minute_before(void **state)
{
    ngx_modelgw_limit_t  l = { 0, 0, 0 };

    /* the call was taken in the minute before, and nothing in this one */

    assert_int_equal(take(&l, 1000, 1000, START), NGX_OK);
    ngx_modelgw_limit_correct(&l, 1000, 200, START + MINUTE + 1);
    assert_int_equal(l.now, 0);
    assert_int_equal(l.before, 200);
    assert_int_equal(take(&l, 1000, 801, START + MINUTE + 1), NGX_OK);

    /* something in this one, but less than what is given back */

    ngx_memzero(&l, sizeof(l));

    assert_int_equal(take(&l, 1000, 1000, START), NGX_OK);
    assert_int_equal(take(&l, 1000, 300, START + MINUTE + MINUTE / 2), NGX_OK);
    ngx_modelgw_limit_correct(&l, 1000, 500, START + MINUTE + MINUTE / 2);
    assert_int_equal(l.now, 0);
    assert_int_equal(l.before, 800);

    /* longer ago than counts */

    ngx_modelgw_limit_correct(&l, 1000, 0, START + 9 * MINUTE);
    assert_int_equal(l.now, 0);
    assert_int_equal(l.before, 0);

    /* more is taken now */

    ngx_modelgw_limit_correct(&l, 0, 7, START + 9 * MINUTE);
    assert_int_equal(l.now, 7);

    ngx_modelgw_limit_correct(&l, UINT64_MAX, 0, START + 9 * MINUTE);
    assert_int_equal(l.now, 0);
}


/* estimates that are too high, corrected after seconds: the real use of ten
   minutes is the limit */

static void
test_correct_sustained(void **state)
{
    uint64_t             t, used;
    ngx_uint_t           i;
    ngx_modelgw_limit_t  l = { 0, 0, 0 };

    static ngx_uint_t  pending[3000];

    ngx_memzero(pending, sizeof(pending));
    used = 0;

    for (t = 0; t < MINUTES * MINUTE; t++) {

        for (i = pending[t % 3000]; i; i--) {
            ngx_modelgw_limit_correct(&l, 1000, 100, START + t);
            used += 100;
        }

        pending[t % 3000] = hammer(&l, 100000, 1000, START + t) / 1000;
    }

    assert_true(used <= MINUTES * 101000);
    assert_true(used >= MINUTES * 90000);
}


static void
test_clock(void **state)
{
    ngx_modelgw_limit_t  l = { 0, 0, 0 };

    /* back: nothing is admitted twice, nor refused for long */

    assert_int_equal(hammer(&l, 60, 1, START), 60);
    assert_int_equal(take(&l, 60, 1, START - 1), NGX_DECLINED);
    assert_int_equal(take(&l, 60, 1, START - 10 * MINUTE), NGX_DECLINED);
    assert_int_equal(st.wait, MINUTE);
    assert_int_equal(take(&l, 60, 60, START - 8 * MINUTE), NGX_OK);
    assert_int_equal(take(&l, 60, 1, 0), NGX_DECLINED);
    assert_int_equal(take(&l, 60, 60, 2 * MINUTE), NGX_OK);

    /* forward: a pause */

    assert_int_equal(take(&l, 60, 60, UINT64_MAX / 2), NGX_OK);
    assert_int_equal(take(&l, 60, 1, UINT64_MAX / 2 + 1), NGX_DECLINED);
    assert_int_equal(take(&l, 60, 1, 5), NGX_DECLINED);
    assert_int_equal(take(&l, 60, 60, 5 + 2 * MINUTE), NGX_OK);
}


/* workers' clocks differ by a tick, and come in any order */

static void
test_clock_ticks(void **state)
{
    uint64_t             t, sum;
    ngx_modelgw_limit_t  l = { 0, 0, 0 };

    srandom(3);

    for (t = 0, sum = 0; t < MINUTES * MINUTE; t++) {
        sum += hammer(&l, 600, 1, START + t - random() % 5);

        if (t == MINUTE - 10) {
            assert_int_equal(sum, 600);
        }
    }

    assert_true(sum <= MINUTES * 606);
    assert_true(sum >= MINUTES * 594);
}


/* corrections without end do not wrap around */

static void
test_huge(void **state)
{
    ngx_uint_t           i;
    ngx_modelgw_limit_t  l = { 0, 0, 0 };

    assert_int_equal(take(&l, 1000000000, 1000000000, START), NGX_OK);
    assert_int_equal(take(&l, 1000000000, 1, START), NGX_DECLINED);
    assert_int_equal(st.wait, MINUTE);

    for (i = 0; i < 10000; i++) {
        ngx_modelgw_limit_correct(&l, 0, UINT64_MAX, START + 1);
        assert_int_equal(take(&l, 1000000000, 1, START + 2), NGX_DECLINED);
    }

    assert_int_equal(l.now, 1000000000000ULL);

    assert_int_equal(take(&l, 1000000000, 1, START + MINUTE + MINUTE / 2),
                     NGX_DECLINED);
    assert_int_equal(take(&l, 1000000000, 1000000000, START + 2 * MINUTE),
                     NGX_OK);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_burst),
        cmocka_unit_test(test_hammer),
        cmocka_unit_test(test_hammer_tokens),
        cmocka_unit_test(test_hammer_few),
        cmocka_unit_test(test_pause),
        cmocka_unit_test(test_free_again),
        cmocka_unit_test(test_held_back),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_more_than_limit),
        cmocka_unit_test(test_whole_limit),
        cmocka_unit_test(test_correct),
        cmocka_unit_test(test_correct_minute_before),
        cmocka_unit_test(test_correct_sustained),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_clock_ticks),
        cmocka_unit_test(test_huge),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
