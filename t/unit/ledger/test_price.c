
/*
 * Prices: decimal text to pico-euro a token.
 */


#include "unit.h"

#include "ngx_modelgw_cost.h"


typedef struct {
    const char  *text;
    uint64_t     price;
} case_t;


static case_t  good[] = {
    { "0", 0 },
    { "3", 3000000 },
    { "15", 15000000 },
    { "0.3", 300000 },
    { "3.75", 3750000 },
    { "0.0125", 12500 },
    { "0.000001", 1 },
    { "0.1", 100000 },
    { "0.10", 100000 },
    { "00.10", 100000 },
    { "000001", 1000000 },
    { "1.000000", 1000000 },
    { "999999", 999999000000ULL },
    { "999999.999999", 999999999999ULL },
    { NULL, 0 }
};


static const char  *bad[] = {
    "", ".", ".5", "5.", "-1", "+1", " 1", "1 ", "1e3", "1E3", "0x10", "1,5",
    "1.2.3", "1..2", "1000000", "0000001", "0.0000001", "1.0000000", "nan",
    "inf", "free", "3eur", "1_000", "\xd9\xa3", NULL
};


static ngx_int_t
parse(const char *text, uint64_t *price)
{
    u_char     *copy;
    ngx_int_t   rc;
    ngx_str_t   s;

    /* memory of the exact size, so that ASan detects a read past it */

    s.len = strlen(text);
    copy = malloc(s.len ? s.len : 1);
    assert_non_null(copy);
    memcpy(copy, text, s.len);
    s.data = copy;

    rc = ngx_modelgw_price_parse(&s, price);

    free(copy);

    return rc;
}


static void
test_good(void **state)
{
    case_t    *c;
    uint64_t   price;

    for (c = good; c->text; c++) {
        price = 42;
        assert_int_equal(parse(c->text, &price), NGX_OK);
        assert_int_equal(price, c->price);
    }
}


static void
test_bad(void **state)
{
    uint64_t     price;
    const char **text;

    for (text = bad; *text; text++) {
        price = 42;

        if (parse(*text, &price) != NGX_DECLINED) {
            fail_msg("\"%s\" was accepted", *text);
        }

        assert_int_equal(price, 42);
    }
}


/* a NUL is a byte like others, the text does not end there */

static void
test_nul(void **state)
{
    uint64_t   price;
    ngx_str_t  s = ngx_string("1\0");

    assert_int_equal(ngx_modelgw_price_parse(&s, &price), NGX_DECLINED);
}


/* every price of 4 digits, with the point at every place */

static void
test_all(void **state)
{
    char        text[16];
    uint64_t    price;
    ngx_uint_t  n, digits, unit;

    for (n = 0; n < 10000; n++) {
        unit = 1;

        for (digits = 1; digits <= 4; digits++) {
            unit *= 10;
            snprintf(text, sizeof(text), "%u.%0*u", (unsigned) (n / unit),
                     (int) digits, (unsigned) (n % unit));

            assert_int_equal(parse(text, &price), NGX_OK);
            assert_int_equal(price, (uint64_t) n * (1000000 / unit));
        }
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_nul),
        cmocka_unit_test(test_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
