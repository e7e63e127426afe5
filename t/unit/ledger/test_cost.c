
/*
 * What tokens cost, what a call is charged, and amounts of money as text.
 */


#include "unit.h"

#include "ngx_modelgw_cost.h"


#define MAX_COUNT  999999999LL
#define MAX_PRICE  999999999999ULL

#define FINAL      NGX_MODELGW_SEEN_FINAL
#define ODD        NGX_MODELGW_SEEN_ODD
#define UNREAD     NGX_MODELGW_SEEN_UNREAD
#define UNSENT     NGX_MODELGW_SEEN_UNSENT


/* classes of tokens, and where their prices are */

typedef struct {
    size_t               tokens;
    size_t               price;
} class_t;


static class_t  classes[] = {
    { offsetof(ngx_modelgw_tokens_t, input),
      offsetof(ngx_modelgw_price_t, input) },
    { offsetof(ngx_modelgw_tokens_t, cache_read),
      offsetof(ngx_modelgw_price_t, cache_read) },
    { offsetof(ngx_modelgw_tokens_t, cache_write),
      offsetof(ngx_modelgw_price_t, cache_write) },
    { offsetof(ngx_modelgw_tokens_t, cache_write_1h),
      offsetof(ngx_modelgw_price_t, cache_write_1h) },
    { offsetof(ngx_modelgw_tokens_t, output),
      offsetof(ngx_modelgw_price_t, output) },
};

#define NCLASSES  (sizeof(classes) / sizeof(classes[0]))


/* 3, 15, 0.3, 3.75 and 6 euro per million tokens */

static ngx_modelgw_price_t  price = { 3000000, 15000000, 300000, 3750000,
                                      6000000 };


static void
set(void *p, size_t offset, uint64_t n)
{
    *(uint64_t *) ((u_char *) p + offset) = n;
}


/* each class with each of the counts and prices, all others at 0 */

static void
test_classes(void **state)
{
    int64_t               expected;
    ngx_uint_t            i, j, k;
    ngx_modelgw_price_t   p;
    ngx_modelgw_tokens_t  t;

    static int64_t  counts[] = { 0, 1, 2, 999, 1000, MAX_COUNT };
    static uint64_t prices[] = { 0, 1, 999, 1000, 1001, MAX_PRICE };

    for (i = 0; i < NCLASSES; i++) {

        for (j = 0; j < 36; j++) {
            ngx_memzero(&p, sizeof(p));
            ngx_memzero(&t, sizeof(t));
            t.reasoning = MAX_COUNT;

            set(&t, classes[i].tokens, counts[j / 6]);
            set(&p, classes[i].price, prices[j % 6]);

            expected = (int64_t) (((unsigned __int128) counts[j / 6]
                                   * prices[j % 6] + 999) / 1000);

            assert_int_equal(ngx_modelgw_cost(&p, &t), expected);

            /* no other class has that price */

            for (k = 0; k < NCLASSES; k++) {
                ngx_memzero(&t, sizeof(t));
                set(&t, classes[k].tokens, counts[j / 6]);

                assert_int_equal(ngx_modelgw_cost(&p, &t),
                                 (k == i) ? expected : 0);
            }
        }
    }
}


static void
test_all_classes(void **state)
{
    ngx_modelgw_price_t   p = { MAX_PRICE, MAX_PRICE, MAX_PRICE, MAX_PRICE,
                                MAX_PRICE };
    ngx_modelgw_tokens_t  most = { MAX_COUNT, MAX_COUNT, MAX_COUNT, MAX_COUNT,
                                   MAX_COUNT, MAX_COUNT };
    ngx_modelgw_tokens_t  one = { 1, 1, 1, 1, 1, 1 };
    ngx_modelgw_tokens_t  none = { 0, 0, 0, 0, 0, 0 };
    ngx_modelgw_tokens_t  mixed = { 1000, 2000, 300, 40, 500, 100 };

    /* 5 * 999999999 * 999999999999 / 1000, rounded up */
    assert_int_equal(ngx_modelgw_cost(&p, &most), 4999999994995000001LL);

    assert_int_equal(ngx_modelgw_cost(&p, &one), 5000000000LL);
    assert_int_equal(ngx_modelgw_cost(&p, &none), 0);

    assert_int_equal(ngx_modelgw_cost(&price, &one), 28050);
    assert_int_equal(ngx_modelgw_cost(&price, &none), 0);
    assert_int_equal(ngx_modelgw_cost(&price, &mixed),
                     3000000 + 600000 + 1125000 + 240000 + 7500000);
}


/* the sum is rounded, not the parts of it; up, and never by one too many */

static void
test_ceil(void **state)
{
    ngx_modelgw_price_t   p = { 1, 1, 1, 1, 1 };
    ngx_modelgw_tokens_t  t = { 0, 0, 0, 0, 0, 0 };

    t.input = 1;
    assert_int_equal(ngx_modelgw_cost(&p, &t), 1);
    t.output = 1;
    t.cache_read = 1;
    t.cache_write = 1;
    t.cache_write_1h = 1;
    assert_int_equal(ngx_modelgw_cost(&p, &t), 1);

    t.input = 996;
    assert_int_equal(ngx_modelgw_cost(&p, &t), 1);
    t.input = 997;
    assert_int_equal(ngx_modelgw_cost(&p, &t), 2);
    t.input = 1996;
    assert_int_equal(ngx_modelgw_cost(&p, &t), 2);
    t.input = 1997;
    assert_int_equal(ngx_modelgw_cost(&p, &t), 3);
}


/* the largest sum divided in 64 bits, and the next one, which is not */

static void
test_wide(void **state)
{
    ngx_modelgw_price_t   p = { 1ULL << 39, 0, 0, 0, 0 };
    ngx_modelgw_tokens_t  t = { (1 << 25) - 1, 0, 0, 0, 0, 0 };

    /* with the 999 for the rounding: 2^64 - 1, then 2^64 */

    p.output = (1ULL << 39) - 1000;
    t.output = 1;
    assert_int_equal(ngx_modelgw_cost(&p, &t), 18446744073709551LL);

    p.output++;
    assert_int_equal(ngx_modelgw_cost(&p, &t), 18446744073709551LL);

    /* 2^64 - 616 is a whole nano-euro */

    p.output = (1ULL << 39) - 616;
    assert_int_equal(ngx_modelgw_cost(&p, &t), 18446744073709551LL);

    p.output++;
    assert_int_equal(ngx_modelgw_cost(&p, &t), 18446744073709552LL);
}


static void
test_bound(void **state)
{
    ngx_modelgw_price_t  p = { 10, 1, 20, 30, 40 };

    assert_int_equal(ngx_modelgw_cost_bound(&price, 1000, 100, 0),
                     3750000 + 1500000);
    assert_int_equal(ngx_modelgw_cost_bound(&price, 1000, 100, 1),
                     6000000 + 1500000);
    assert_int_equal(ngx_modelgw_cost_bound(&price, 0, 0, 1), 0);

    /* whichever is the highest */

    assert_int_equal(ngx_modelgw_cost_bound(&p, 1000, 0, 0), 30);
    assert_int_equal(ngx_modelgw_cost_bound(&p, 1000, 0, 1), 40);
    p.cache_write_1h = 5;
    assert_int_equal(ngx_modelgw_cost_bound(&p, 1000, 0, 1), 30);
    p.cache_write = 5;
    assert_int_equal(ngx_modelgw_cost_bound(&p, 1000, 0, 0), 20);
    p.cache_read = 5;
    assert_int_equal(ngx_modelgw_cost_bound(&p, 1000, 0, 0), 10);

    /* one rounding */

    assert_int_equal(ngx_modelgw_cost_bound(&p, 99, 10, 0), 1);
    assert_int_equal(ngx_modelgw_cost_bound(&p, 99, 11, 0), 2);

    /* an overflow is more than any balance */

    p.output = MAX_PRICE;
    assert_int_equal(ngx_modelgw_cost_bound(&p, 0, MAX_COUNT, 0),
                     999999998999000001LL);
    assert_int_equal(ngx_modelgw_cost_bound(&p, MAX_COUNT, INT64_MAX, 0),
                     INT64_MAX);
}


/* the maximum is covered, and one token more is not */

static void
test_fits(void **state)
{
    int64_t              available, n;
    ngx_uint_t           i, j;
    ngx_modelgw_price_t  p;

    static uint64_t prices[] = { 1, 7, 999, 1000, 1001, 15000000, MAX_PRICE };

    for (i = 0; i < 7; i++) {
        p = price;
        p.output = prices[i];

        for (j = 0; j < 4; j++) {

            for (available = 0; available < 40000; available += 97) {
                n = ngx_modelgw_cost_fits(&p, j, j & 1, available);

                if (n == 0) {
                    assert_true(ngx_modelgw_cost_bound(&p, j, 1, j & 1)
                                > available);
                    continue;
                }

                assert_true(ngx_modelgw_cost_bound(&p, j, n, j & 1)
                            <= available);
                assert_true(ngx_modelgw_cost_bound(&p, j, n + 1, j & 1)
                            > available);
            }
        }
    }
}


static void
test_fits_edges(void **state)
{
    ngx_modelgw_price_t  p;

    /* input alone is 3750 */

    assert_int_equal(ngx_modelgw_cost_fits(&price, 1, 0, 3749), 0);
    assert_int_equal(ngx_modelgw_cost_fits(&price, 1, 0, 3750), 0);
    assert_int_equal(ngx_modelgw_cost_fits(&price, 1, 0, 18749), 0);
    assert_int_equal(ngx_modelgw_cost_fits(&price, 1, 0, 18750), 1);
    assert_int_equal(ngx_modelgw_cost_fits(&price, 1, 1, 20999), 0);
    assert_int_equal(ngx_modelgw_cost_fits(&price, 1, 1, 21000), 1);

    assert_int_equal(ngx_modelgw_cost_fits(&price, 0, 0, 0), 0);
    assert_int_equal(ngx_modelgw_cost_fits(&price, 0, 0, -1), 0);
    assert_int_equal(ngx_modelgw_cost_fits(&price, 0, 0, INT64_MIN), 0);
    assert_int_equal(ngx_modelgw_cost_fits(&price, 0, 0, INT64_MAX),
                     MAX_COUNT);

    /* output that is free, after input that is not */

    p = price;
    p.output = 0;

    assert_int_equal(ngx_modelgw_cost_fits(&p, 1, 0, 3749), 0);
    assert_int_equal(ngx_modelgw_cost_fits(&p, 1, 0, 3750), MAX_COUNT);
    assert_int_equal(ngx_modelgw_cost_fits(&p, 0, 0, -1), 0);
}


/* the rule of charging: seen, a hold, an estimate of 100 */

typedef struct {
    const char             *name;
    int64_t                 hold;
    ngx_modelgw_seen_t      seen;
    ngx_modelgw_outcome_e   outcome;
    ngx_modelgw_tokens_t    tokens;
    int64_t                 cost;
} rule_t;


static rule_t  rules[] = {

    /* seen: input, cache_read, cache_write, cache_write_1h, output, reasoning,
       text, status, flags */

    { "no upstream", 9000000,
      { -1, -1, -1, -1, -1, -1, 0, 0, UNSENT },
      NGX_MODELGW_UNSENT, { 0, 0, 0, 0, 0, 0 }, 0 },

    { "no upstream goes before all", 9000000,
      { 9, 9, 9, 9, 9, 9, 9, 200, UNSENT|UNREAD|FINAL },
      NGX_MODELGW_UNSENT, { 0, 0, 0, 0, 0, 0 }, 0 },

    { "unread", 9000000,
      { -1, -1, -1, -1, -1, -1, 0, 0, UNREAD },
      NGX_MODELGW_REFUSED, { 0, 0, 0, 0, 0, 0 }, 0 },

    { "unread goes before usage", 9000000,
      { 9, 9, 9, 9, 9, 9, 9, 200, UNREAD|FINAL },
      NGX_MODELGW_REFUSED, { 0, 0, 0, 0, 0, 0 }, 0 },

    { "300", 9000000,
      { -1, -1, -1, -1, -1, -1, 500, 300, 0 },
      NGX_MODELGW_REFUSED, { 0, 0, 0, 0, 0, 0 }, 0 },

    { "503", 9000000,
      { -1, -1, -1, -1, -1, -1, 500, 503, FINAL },
      NGX_MODELGW_REFUSED, { 0, 0, 0, 0, 0, 0 }, 0 },

    { "an error with a part of usage", 9000000,
      { 50, -1, -1, -1, 5, -1, 500, 400, 0 },
      NGX_MODELGW_REFUSED, { 0, 0, 0, 0, 0, 0 }, 0 },

    { "an error with usage", 9000000,
      { 50, -1, -1, -1, 5, -1, 500, 400, FINAL },
      NGX_MODELGW_REPORTED, { 50, 0, 0, 0, 5, 0 }, 150000 + 75000 },

    { "usage", 9000000,
      { 50, 40, 30, 20, 7, 3, 500, 200, FINAL },
      NGX_MODELGW_REPORTED, { 50, 40, 10, 20, 7, 3 },
      150000 + 12000 + 37500 + 120000 + 105000 },

    { "usage of nothing", 9000000,
      { 0, 0, 0, 0, 0, 0, 500, 200, FINAL },
      NGX_MODELGW_REPORTED, { 0, 0, 0, 0, 0, 0 }, 0 },

    { "usage above the hold", 1000,
      { 50, -1, -1, -1, 7, -1, 500, 200, FINAL },
      NGX_MODELGW_REPORTED, { 50, 0, 0, 0, 7, 0 }, 150000 + 105000 },

    /* incomplete usage: what it has counts, and the rest is estimated */

    { "usage without input", 9000000,
      { -1, -1, -1, -1, 7, -1, 500, 200, FINAL },
      NGX_MODELGW_ESTIMATED, { 100, 0, 0, 0, 7, 0 }, 300000 + 105000 },

    { "usage without input, above the hold", 1,
      { -1, -1, -1, -1, 7, -1, 500, 200, FINAL },
      NGX_MODELGW_ESTIMATED, { 100, 0, 0, 0, 7, 0 }, 1 },

    { "usage without input, of an error", 9000000,
      { -1, -1, -1, -1, 7, -1, 500, 400, FINAL },
      NGX_MODELGW_REFUSED, { 0, 0, 0, 0, 0, 0 }, 0 },

    { "usage with only the cached input", 9000000,
      { -1, 60, 30, 10, 7, -1, 500, 200, FINAL },
      NGX_MODELGW_ESTIMATED, { 10, 60, 20, 10, 7, 0 },
      30000 + 18000 + 75000 + 60000 + 105000 },

    { "usage with more cached input than is thought", 9000000,
      { -1, 160, -1, -1, 7, -1, 500, 200, FINAL },
      NGX_MODELGW_ESTIMATED, { 0, 160, 0, 0, 7, 0 }, 48000 + 105000 },

    { "usage without output", 9000000,
      { 50, -1, -1, -1, -1, -1, 31, 200, FINAL },
      NGX_MODELGW_ESTIMATED, { 50, 0, 0, 0, 11, 0 }, 150000 + 165000 },

    { "usage with what is no count", 9000000,
      { 50, -1, 30, -1, 7, 3, 500, 200, FINAL|ODD },
      NGX_MODELGW_ESTIMATED, { 50, 0, 30, 0, 7, 3 },
      150000 + 112500 + 105000 },

    { "usage with what is no count, above the hold", 1000,
      { 50, -1, -1, -1, 7, -1, 500, 200, FINAL|ODD },
      NGX_MODELGW_ESTIMATED, { 50, 0, 0, 0, 7, 0 }, 1000 },

    { "usage with an output that is no count", 9000000,
      { 50, -1, -1, -1, 7, -1, 31, 200, ODD },
      NGX_MODELGW_ESTIMATED, { 50, 0, 0, 0, 11, 0 }, 150000 + 165000 },

    { "a 2xx", 9000000,
      { -1, -1, -1, -1, -1, -1, 30, 200, 0 },
      NGX_MODELGW_ESTIMATED, { 100, 0, 0, 0, 10, 0 }, 300000 + 150000 },

    { "a 2xx without text", 9000000,
      { -1, -1, -1, -1, -1, -1, 0, 200, 0 },
      NGX_MODELGW_ESTIMATED, { 100, 0, 0, 0, 0, 0 }, 300000 },

    { "a 2xx, a third of the text", 9000000,
      { 10, 20, 30, 5, 3, 2, 28, 200, 0 },
      NGX_MODELGW_ESTIMATED, { 10, 20, 25, 5, 10, 2 },
      30000 + 6000 + 93750 + 30000 + 150000 },

    { "a 2xx, the output so far", 9000000,
      { 10, -1, -1, -1, 11, -1, 30, 299, 0 },
      NGX_MODELGW_ESTIMATED, { 10, 0, 0, 0, 11, 0 }, 30000 + 165000 },

    { "a 2xx, capped", 1234,
      { 10, -1, -1, -1, 11, -1, 30, 200, 0 },
      NGX_MODELGW_ESTIMATED, { 10, 0, 0, 0, 11, 0 }, 1234 },

    { "a 2xx, without a hold", 0,
      { 10, -1, -1, -1, 11, -1, 30, 200, 0 },
      NGX_MODELGW_ESTIMATED, { 10, 0, 0, 0, 11, 0 }, 0 },

    { "no answer", 9000000,
      { -1, -1, -1, -1, -1, -1, 0, 0, 0 },
      NGX_MODELGW_UNANSWERED, { 100, 0, 0, 0, 0, 0 }, 300000 },

    { "no answer, capped", 299999,
      { -1, -1, -1, -1, -1, -1, 0, 0, 0 },
      NGX_MODELGW_UNANSWERED, { 100, 0, 0, 0, 0, 0 }, 299999 },

    { "a 1xx is none", 9000000,
      { -1, -1, -1, -1, -1, -1, 99, 101, 0 },
      NGX_MODELGW_UNANSWERED, { 100, 0, 0, 0, 0, 0 }, 300000 },

    /* partly updated */

    { "more written for an hour than at all", 9000000,
      { 10, -1, 5, 20, 1, -1, 0, 200, FINAL },
      NGX_MODELGW_REPORTED, { 10, 0, 0, 20, 1, 0 },
      30000 + 120000 + 15000 },

    { "more written than a count can say", INT64_MAX,
      { 10, -1, 2 * MAX_COUNT, MAX_COUNT, 1, -1, 0, 200, FINAL },
      NGX_MODELGW_REPORTED, { 10, 0, MAX_COUNT, MAX_COUNT, 1, 0 },
      30000 + 3750 * MAX_COUNT + 6000 * MAX_COUNT + 15000 },

    { "written for an hour only", 9000000,
      { 10, -1, -1, 20, 1, -1, 0, 200, FINAL },
      NGX_MODELGW_REPORTED, { 10, 0, 0, 20, 1, 0 },
      30000 + 120000 + 15000 },

    { NULL, 0, { 0, 0, 0, 0, 0, 0, 0, 0, 0 }, 0, { 0, 0, 0, 0, 0, 0 }, 0 }
};


static void
test_charge(void **state)
{
    rule_t                *r;
    ngx_modelgw_seen_t     seen;
    ngx_modelgw_charge_t   c;

    for (r = rules; r->name; r++) {
        seen = r->seen;
        ngx_memset(&c, 0x5a, sizeof(c));

        ngx_modelgw_charge(&price, r->hold, 100, &seen, &c);

        if (c.outcome != r->outcome || c.cost != r->cost
            || ngx_memcmp(&c.tokens, &r->tokens, sizeof(c.tokens)) != 0)
        {
            fail_msg("%s: outcome %d, cost %ld, tokens %ld %ld %ld %ld %ld %ld",
                     r->name, c.outcome, (long) c.cost, (long) c.tokens.input,
                     (long) c.tokens.cache_read, (long) c.tokens.cache_write,
                     (long) c.tokens.cache_write_1h, (long) c.tokens.output,
                     (long) c.tokens.reasoning);
        }

        assert_memory_equal(&seen, &r->seen, sizeof(seen));
    }
}


/* a third of the text, rounded up, at each length; and what is out of range */

static void
test_charge_text(void **state)
{
    int64_t               text;
    ngx_modelgw_seen_t    seen;
    ngx_modelgw_charge_t  c;

    ngx_modelgw_seen_init(&seen);
    seen.status = 200;

    for (text = 0; text < 1000; text++) {
        seen.text = text;
        ngx_modelgw_charge(&price, INT64_MAX, 1, &seen, &c);
        assert_int_equal(c.tokens.output, (text + 2) / 3);
    }

    seen.text = INT64_MAX;
    ngx_modelgw_charge(&price, INT64_MAX, INT64_MAX, &seen, &c);
    assert_int_equal(c.tokens.output, MAX_COUNT);
    assert_int_equal(c.tokens.input, MAX_COUNT);

    seen.text = INT64_MIN;
    seen.cache_read = INT64_MAX;
    seen.cache_write = INT64_MIN;
    seen.reasoning = INT64_MAX;
    ngx_modelgw_charge(&price, INT64_MAX, 1, &seen, &c);
    assert_int_equal(c.tokens.output, 0);
    assert_int_equal(c.tokens.input, 0);
    assert_int_equal(c.tokens.cache_read, MAX_COUNT);
    assert_int_equal(c.tokens.cache_write, 0);
    assert_int_equal(c.tokens.reasoning, MAX_COUNT);
}


static void
test_seen_init(void **state)
{
    ngx_modelgw_seen_t  seen;
    ngx_modelgw_seen_t  nothing = { -1, -1, -1, -1, -1, -1, 0, 0, 0 };

    ngx_memset(&seen, 0x5a, sizeof(seen));
    ngx_modelgw_seen_init(&seen);

    assert_memory_equal(&seen, &nothing, sizeof(seen));
}


static void
test_names(void **state)
{
    assert_string_equal(ngx_modelgw_outcome_name(NGX_MODELGW_REPORTED),
                        "reported");
    assert_string_equal(ngx_modelgw_outcome_name(NGX_MODELGW_ESTIMATED),
                        "estimated");
    assert_string_equal(ngx_modelgw_outcome_name(NGX_MODELGW_UNANSWERED),
                        "unanswered");
    assert_string_equal(ngx_modelgw_outcome_name(NGX_MODELGW_REFUSED),
                        "refused");
    assert_string_equal(ngx_modelgw_outcome_name(NGX_MODELGW_UNSENT),
                        "unsent");
}


/* amounts */

typedef struct {
    const char  *text;
    int64_t      nano;
    const char  *written;                /* NULL: the same */
} amount_t;


static amount_t  amounts[] = {
    { "0.00", 0, NULL },
    { "0", 0, "0.00" },
    { "000.000", 0, "0.00" },
    { "10", 10000000000LL, "10.00" },
    { "0.50", 500000000, NULL },
    { "0.5", 500000000, "0.50" },
    { "0.05", 50000000, NULL },
    { "0.005", 5000000, NULL },
    { "0.000000001", 1, NULL },
    { "1.000000001", 1000000001, NULL },
    { "1.100000000", 1100000000, "1.10" },
    { "1.23456789", 1234567890, NULL },
    { "000000007.10", 7100000000LL, "7.10" },
    { "999999998.999999999", 999999998999999999LL, NULL },
    { "999999999", 999999999000000000LL, "999999999.00" },
    { "999999999.000000000", 999999999000000000LL, "999999999.00" },
    { NULL, 0, NULL }
};


static amount_t  written[] = {
    { "-0.50", -500000000, NULL },
    { "-0.000000001", -1, NULL },
    { "-1.00", -1000000000, NULL },
    { "9223372036.854775807", INT64_MAX, NULL },
    { "-9223372036.854775808", INT64_MIN, NULL },
    { NULL, 0, NULL }
};


static const char  *no_amounts[] = {
    "", ".", "5.", ".5", "-1", "+1", " 1", "1 ", "1e3", "0x10", "1,5", "1.2.3",
    "1..2", "1000000000", "999999999.000000001", "999999999.999999999",
    "0000000001", "0.0000000001", "1.0000000000", "99999999999999999999",
    "1.99999999999999999999", "nan", "inf", "1eur", "1_000", "\xd9\xa3", NULL
};


static void
check_written(int64_t nano, const char *text)
{
    u_char  *p, *buf;

    buf = malloc(NGX_MODELGW_AMOUNT_LEN);
    assert_non_null(buf);

    p = ngx_modelgw_amount(buf, nano);
    unit_assert_str(buf, p - buf, text);

    free(buf);
}


static ngx_int_t
parse(const char *text, int64_t *nano)
{
    ngx_int_t  rc;
    ngx_str_t  s;

    s.len = strlen(text);
    s.data = unit_dup(text, s.len);

    rc = ngx_modelgw_amount_parse(&s, nano);

    unit_free(s.data);

    return rc;
}


static void
test_amounts(void **state)
{
    int64_t    nano;
    amount_t  *a;

    for (a = amounts; a->text; a++) {
        assert_int_equal(parse(a->text, &nano), NGX_OK);
        assert_int_equal(nano, a->nano);
        check_written(nano, a->written ? a->written : a->text);
    }

    for (a = written; a->text; a++) {
        check_written(a->nano, a->text);
    }
}


static void
test_no_amounts(void **state)
{
    int64_t      nano;
    ngx_str_t    nul = ngx_string("1\0");
    const char **text;

    for (text = no_amounts; *text; text++) {
        nano = 42;

        if (parse(*text, &nano) != NGX_DECLINED) {
            fail_msg("\"%s\" was accepted", *text);
        }

        assert_int_equal(nano, 42);
    }

    assert_int_equal(ngx_modelgw_amount_parse(&nul, &nano), NGX_DECLINED);
}


/* an amount is read as it was written, at all orders of magnitude */

static void
test_amounts_round_trip(void **state)
{
    u_char     buf[NGX_MODELGW_AMOUNT_LEN];
    int64_t    nano, n, add;
    ngx_str_t  s;

    for (n = 1; n <= 100000000000000000LL; n *= 10) {

        for (add = -1; add < 20; add++) {
            s.data = buf;
            s.len = ngx_modelgw_amount(buf, n * 7 + add) - buf;
            assert_true(s.len <= sizeof(buf));

            assert_int_equal(ngx_modelgw_amount_parse(&s, &nano), NGX_OK);
            assert_int_equal(nano, n * 7 + add);
        }
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_all_classes),
        cmocka_unit_test(test_ceil),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_fits),
        cmocka_unit_test(test_fits_edges),
        cmocka_unit_test(test_charge),
        cmocka_unit_test(test_charge_text),
        cmocka_unit_test(test_seen_init),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_amounts),
        cmocka_unit_test(test_no_amounts),
        cmocka_unit_test(test_amounts_round_trip),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
