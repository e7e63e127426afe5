
/*
 * The keyed hash of prefixes: every variant, at all lengths and cuts, gives the
 * polynomial that prefix.h describes, which is evaluated here bit by bit.
 */


#include "unit.h"

#include "ngx_modelgw_prefix.h"


#define UNIT   NGX_MODELGW_PREFIX_UNIT
#define UNITS  5


typedef unsigned __int128  u128;


static u_char     secret[NGX_MODELGW_PREFIX_KEY];
static u_char     doc[UNITS * UNIT];
static ngx_str_t  label = ngx_string("a label");


/* a * b, reduced by x^128 + x^7 + x^2 + x + 1 */

static u128
multiply(u128 a, u128 b)
{
    int   i;
    u128  product;

    product = 0;

    for (i = 127; i >= 0; i--) {
        product = product << 1 ^ (product >> 127 ? 0x87 : 0);

        if (b >> i & 1) {
            product ^= a;
        }
    }

    return product;
}


static u128
horner(u128 hash, u_char *p, size_t len)
{
    u128    key, block;
    size_t  i;

    memcpy(&key, secret, sizeof(key));

    for (i = 0; i < len; i += sizeof(block)) {
        memcpy(&block, p + i, sizeof(block));
        hash = multiply(hash ^ block, key);
    }

    return hash;
}


/* of the head: 1, the number, the length of the label, the label, zeros */

static u128
reference(uint64_t number, ngx_str_t *name, size_t len)
{
    u_char    head[UNIT];
    uint64_t  word;

    memset(head, 0, UNIT);
    head[0] = 1;
    memcpy(head + 16, &number, 8);

    word = name->len;
    memcpy(head + 24, &word, 8);
    memcpy(head + 32, name->data, name->len);

    return horner(horner(0, head, UNIT), doc, len);
}


static u128
value(ngx_modelgw_prefix_t *h)
{
    return (u128) h->hash.high << 64 | h->hash.low;
}


static int
setup(void **state)
{
    size_t    i;
    uint32_t  seed;

    seed = 17;

    for (i = 0; i < sizeof(doc); i++) {
        seed = seed * 1103515245 + 12345;
        doc[i] = seed >> 16;
    }

    for (i = 0; i < sizeof(secret); i++) {
        seed = seed * 1103515245 + 12345;
        secret[i] = seed >> 16;
    }

    return unit_setup(state);
}


static void
test_variants(void **state)
{
    size_t                         at, n, piece;
    ngx_uint_t                     i, nvariants;
    ngx_modelgw_prefix_t           h;
    ngx_modelgw_prefix_key_t      *key;
    ngx_modelgw_prefix_variant_t  *v;

    v = ngx_modelgw_prefix_variants(&nvariants);

    for (i = 0; i < nvariants; i++) {
        key = ngx_modelgw_prefix_key(*state, &v[i], secret);
        assert_non_null(key);

        for (piece = 1; piece <= sizeof(doc); piece += 1 + piece / 7) {

            ngx_modelgw_prefix_begin(&h, key, 4711, &label);
            assert_true(value(&h) == reference(4711, &label, 0));

            for (at = 0; at < sizeof(doc); at += n) {

                /* as memo.c does: a piece ends where a unit does */

                n = ngx_min(piece, sizeof(doc) - at);
                n = ngx_min(n, UNIT - at % UNIT + n / UNIT * UNIT);

                ngx_modelgw_prefix_update(&h, doc + at, n);

                if ((at + n) % UNIT == 0) {
                    assert_true(value(&h)
                                == reference(4711, &label, at + n));
                }
            }
        }
    }
}


/* what is not a polynomial of the same document has another hash */

static void
test_differs(void **state)
{
    size_t                         at;
    u128                           hash;
    ngx_uint_t                     i, n;
    ngx_modelgw_prefix_t           h;
    ngx_modelgw_prefix_key_t      *key, *another;
    ngx_modelgw_prefix_variant_t  *v;

    static ngx_str_t  labels[] = {
        ngx_string(""), ngx_string("a labe"), ngx_string("a label\0"),
        ngx_string("b label")
    };

    v = ngx_modelgw_prefix_variants(&n);

    if (n == 0) {
        return;
    }

    key = ngx_modelgw_prefix_key(*state, v, secret);
    assert_non_null(key);

    ngx_modelgw_prefix_begin(&h, key, 1, &label);
    ngx_modelgw_prefix_update(&h, doc, UNIT);
    hash = value(&h);

    for (i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
        ngx_modelgw_prefix_begin(&h, key, 1, &labels[i]);
        ngx_modelgw_prefix_update(&h, doc, UNIT);
        assert_true(value(&h) != hash);
    }

    ngx_modelgw_prefix_begin(&h, key, 2, &label);
    ngx_modelgw_prefix_update(&h, doc, UNIT);
    assert_true(value(&h) != hash);

    for (at = 0; at < UNIT; at++) {
        doc[at] ^= 1;

        ngx_modelgw_prefix_begin(&h, key, 1, &label);
        ngx_modelgw_prefix_update(&h, doc, UNIT);
        assert_true(value(&h) != hash);

        doc[at] ^= 1;
    }

    secret[0] ^= 1;

    another = ngx_modelgw_prefix_key(*state, v, secret);
    assert_non_null(another);

    ngx_modelgw_prefix_begin(&h, another, 1, &label);
    ngx_modelgw_prefix_update(&h, doc, UNIT);
    assert_true(value(&h) != hash);

    secret[0] ^= 1;
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test_setup_teardown(test_variants, setup, unit_teardown),
        cmocka_unit_test_setup_teardown(test_differs, setup, unit_teardown)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
