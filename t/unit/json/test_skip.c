
/*
 * The variants of the string loop: each against a loop over bytes, for every
 * byte at every place of runs around the vectors' sizes.
 */


#include "unit.h"

#include "ngx_modelgw_skip.h"


#define LONGEST  150


static size_t
reference(u_char *p, size_t len)
{
    size_t  n;

    for (n = 0; n < len; n++) {
        if (p[n] == '\\' && n + 1 < len && p[n + 1]
            && strchr("\"\\/bfnrt", p[n + 1]))
        {
            n++;

        } else if (p[n] < 0x20 || p[n] >= 0x80 || p[n] == '"'
                   || p[n] == '\\')
        {
            break;
        }
    }

    return n;
}


static void
compare(u_char *p, size_t len)
{
    u_char                      *copy;
    size_t                       want;
    ngx_uint_t                   i, n;
    ngx_modelgw_skip_variant_t  *v;

    v = ngx_modelgw_skip_variants(&n);
    want = reference(p, len);

    /* a separate block: ASan detects a read before it and past its end */

    copy = unit_dup(p, len);

    for (i = 0; i < n; i++) {
        if (v[i].skip(copy, len) != want) {
            print_error("%s: %zu instead of %zu of %zu\n",
                        (char *) v[i].name.data, v[i].skip(copy, len), want,
                        len);
            fail();
        }
    }

    unit_free(copy);
}


static void
test_variants(void **state)
{
    ngx_uint_t                   i, n;
    ngx_modelgw_skip_variant_t  *v;

    v = ngx_modelgw_skip_variants(&n);

    assert_true(n >= 1);
    assert_string_equal(v[n - 1].name.data, "scalar");

    for (i = 0; i < n; i++) {
        assert_int_equal(v[i].name.len, ngx_strlen(v[i].name.data));
        assert_int_equal(v[i].skip((u_char *) "", 0), 0);
        assert_int_equal(ngx_modelgw_skip_wide(v[i].skip),
                         ngx_strcmp(v[i].name.data, "avx2") == 0);
    }
}


static void
test_every_byte_everywhere(void **state)
{
    u_char      buf[LONGEST];
    size_t      len, at;
    ngx_uint_t  ch;

    for (len = 1; len <= LONGEST; len += (len < 70) ? 1 : 13) {
        for (at = 0; at < len; at++) {
            for (ch = 0; ch < 256; ch += (len < 40) ? 1 : 3) {
                memset(buf, 'a', len);
                buf[at] = (u_char) ch;

                compare(buf, len);
            }
        }
    }
}


/* two marks: the first one counts; plain bytes next to the borders of plain */

static void
test_two_marks(void **state)
{
    u_char         buf[LONGEST];
    size_t         i, k, a, b;
    static u_char  marks[] = { 0x00, 0x1f, '"', '\\', 0x80, 0xff };
    static u_char  plain[] = { 0x20, 0x21, 0x23, 0x5b, 0x5d, 0x7f };

    for (a = 0; a < 70; a++) {
        for (b = a + 1; b < 72; b++) {
            for (i = 0; i < sizeof(marks); i++) {
                for (k = 0; k < sizeof(buf); k++) {
                    buf[k] = plain[(k + i) % sizeof(plain)];
                }

                buf[a] = marks[i];
                buf[b] = marks[(i + b) % sizeof(marks)];

                compare(buf, 72);
            }
        }
    }
}


/* every byte at every place of the 16; the bytes after them do not matter */

static void
test_short(void **state)
{
    u_char      buf[NGX_MODELGW_SKIP_SHORT], *copy;
    size_t      at;
    ngx_uint_t  ch;

    for (at = 0; at < NGX_MODELGW_SKIP_SHORT; at++) {
        for (ch = 0; ch < 256; ch++) {
            memset(buf, 'a', at);
            memset(buf + at, '"', sizeof(buf) - at);
            buf[at] = (u_char) ch;

            copy = unit_dup(buf, sizeof(buf));

            assert_int_equal(ngx_modelgw_skip_short(copy),
                             ngx_modelgw_skip_plain(ch)
                             ? at + 1 : at);

            unit_free(copy);
        }
    }

    memset(buf, 'a', sizeof(buf));
    assert_int_equal(ngx_modelgw_skip_short(buf), NGX_MODELGW_SKIP_SHORT);
}


/* the same for a string: every byte at every place, in blocks of every size */

static void
test_string(void **state)
{
    u_char      buf[2 * NGX_MODELGW_SKIP_SHORT], *copy, *quote;
    size_t      at, size, len;
    ngx_uint_t  ch;

    for (at = 0; at <= NGX_MODELGW_SKIP_SHORT; at++) {
        for (ch = 0; ch < 256; ch++) {
            for (size = 0; size <= sizeof(buf); size++) {
                memset(buf, 'a', sizeof(buf));
                buf[at] = (u_char) ch;
                buf[NGX_MODELGW_SKIP_SHORT - 2] = '"';

                quote = memchr(buf, '"', sizeof(buf));
                len = quote - buf;

                if (size <= NGX_MODELGW_SKIP_SHORT
                    || (at < len && !ngx_modelgw_skip_plain(ch)))
                {
                    len = NGX_MODELGW_SKIP_SHORT;
                }

                copy = unit_dup(buf, size);

                assert_int_equal(ngx_modelgw_skip_string(copy, copy + size),
                                 len);

                unit_free(copy);
            }
        }
    }

    memset(buf, 'a', sizeof(buf));
    buf[NGX_MODELGW_SKIP_SHORT] = '"';

    assert_int_equal(ngx_modelgw_skip_string(buf, buf + sizeof(buf)),
                     NGX_MODELGW_SKIP_SHORT);
}


static void
fill(u_char *buf, size_t len, const char *bytes, ngx_uint_t rare)
{
    size_t  i;

    for (i = 0; i < len; i++) {
        buf[i] = (u_char) ((random() % rare) ? 0x20 + random() % 0x60
                                             : bytes[random() % 12]);
    }
}


static void
test_random(void **state)
{
    u_char      buf[LONGEST];
    ngx_uint_t  n;

    srandom(1);

    for (n = 0; n < 200000; n++) {
        fill(buf, sizeof(buf), "\"\\\\nu/\x80\xff\0\x1f\tq", 1 + n % 100);
        compare(buf, random() % sizeof(buf));
    }
}


/* escapes, dense and sparse, over the borders of vectors: long runs pass */

static void
test_escapes(void **state)
{
    u_char      buf[LONGEST + 64];
    size_t      i, run, at, len;
    ngx_uint_t  n;

    srandom(2);

    for (n = 0; n < 100000; n++) {
        for (i = 0; i + 2 < sizeof(buf); i++) {
            buf[i] = 'a';

            if (random() % (1 + n % 40) == 0) {
                buf[i++] = '\\';
                buf[i] = "\"\\/bfnrt"[random() % 8];
            }
        }

        len = 1 + random() % i;

        if (random() % 2) {
            buf[random() % len] = "\"\\ux\x80\n"[random() % 6];
        }

        compare(buf, len);
    }

    /* runs of backslashes of every length at every place, and what follows */

    for (run = 1; run < 140; run += (run < 9) ? 1 : 17) {
        for (at = 0; at < 70; at++) {
            for (i = 0; i < 5; i++) {
                memset(buf, 'a', sizeof(buf));
                memset(buf + at, '\\', run);
                buf[at + run] = "\"nu\x80\\"[i];

                compare(buf, at + run);
                compare(buf, at + run + 1);
                compare(buf, sizeof(buf));
            }
        }
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_every_byte_everywhere),
        cmocka_unit_test(test_two_marks),
        cmocka_unit_test(test_short),
        cmocka_unit_test(test_string),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_escapes)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
