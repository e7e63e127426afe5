
/*
 * Writing JSON: the chain, or the one piece, has what was written in pieces of
 * every size; long borrowed pieces are not copied; no buf is empty; a failure
 * is permanent; strings, numbers and times are valid JSON.
 */


#include "unit.h"

#include "ngx_modelgw_out.h"


#define BORROW     1024                  /* shorter pieces are copied */
#define TOO_LARGE  (SIZE_MAX / 4)        /* bytes that malloc() does not give */


/* malloc() returns NULL for too much, as it does without AddressSanitizer */

const char *__asan_default_options(void);

const char *
__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}


static u_char  source[300000];
static u_char  joined[2 * sizeof(source)];


static int
fill(void **state)
{
    size_t  i;

    for (i = 0; i < sizeof(source); i++) {
        source[i] = (u_char) (i * 31 + (i >> 8));
    }

    return 0;
}


/* the bytes of the chain, in "joined" */

static size_t
join(ngx_modelgw_out_chain_t *chain)
{
    u_char       *p;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    p = joined;

    for (cl = chain->first; cl; cl = cl->next) {
        b = cl->buf;

        assert_true(b->pos < b->last);
        assert_ptr_equal(b->start, b->pos);
        assert_ptr_equal(b->end, b->last);
        assert_int_equal(b->memory + b->temporary, 1);
        assert_false(ngx_buf_special(b));
        assert_false(b->in_file || b->last_buf || b->flush || b->sync);
        assert_true(b->last - b->pos <= joined + sizeof(joined) - p);

        p = ngx_cpymem(p, b->pos, b->last - b->pos);
    }

    assert_int_equal(chain->size, p - joined);
    assert_null(*chain->last);

    return p - joined;
}


static ngx_uint_t
bufs(ngx_modelgw_out_chain_t *chain)
{
    ngx_uint_t    n;
    ngx_chain_t  *cl;

    n = 0;

    for (cl = chain->first; cl; cl = cl->next) {
        n++;
    }

    return n;
}


static void
test_copies(void **state)
{
    size_t                    at, n, size;
    ngx_uint_t                i;
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_chain_t   chain;

    for (i = 0; (size = unit_chunk(i, sizeof(source))) != 0; i++) {
        ngx_modelgw_out_chain(&out, &chain, *state, 0);

        for (at = 0; at < sizeof(source); at += n) {
            n = ngx_min(size, sizeof(source) - at);
            ngx_modelgw_out(&out, source + at, n);
        }

        assert_int_equal(out.failed, 0);
        assert_int_equal(join(&chain), sizeof(source));
        assert_memory_equal(joined, source, sizeof(source));

        /* 4, 8, 16, 32 KB, then 64 KB each */

        assert_int_equal(bufs(&chain), 8);
    }
}


static void
test_hint(void **state)
{
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_chain_t   chain;

    ngx_modelgw_out_chain(&out, &chain, *state, sizeof(source));
    ngx_modelgw_out(&out, source, sizeof(source) - 1);
    ngx_modelgw_out(&out, source + sizeof(source) - 1, 1);
    assert_int_equal(bufs(&chain), 1);
    assert_int_equal(join(&chain), sizeof(source));

    ngx_modelgw_out(&out, source, 65536);
    assert_int_equal(bufs(&chain), 2);

    /* nothing written: no buf */

    ngx_modelgw_out_chain(&out, &chain, *state, 10);
    ngx_modelgw_out(&out, source, 0);
    ngx_modelgw_out_borrowed(&out, source, 0);
    ngx_modelgw_out_escaped(&out, source, 0);
    assert_null(chain.first);
    assert_int_equal(join(&chain), 0);
}


static void
test_borrowed(void **state)
{
    u_char                   *rest;
    ngx_chain_t              *cl;
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_chain_t   chain;

    ngx_modelgw_out_chain(&out, &chain, *state, 0);

    ngx_modelgw_out_borrowed(&out, source, BORROW);
    ngx_modelgw_out(&out, source, 10);
    ngx_modelgw_out_borrowed(&out, source + 10, BORROW - 1);
    ngx_modelgw_out_borrowed(&out, source, 5000);
    ngx_modelgw_out_borrowed(&out, source, 6000);
    ngx_modelgw_out(&out, source, 20);

    assert_int_equal(bufs(&chain), 5);

    cl = chain.first;
    assert_ptr_equal(cl->buf->pos, source);
    assert_int_equal(cl->buf->last - cl->buf->pos, BORROW);
    assert_true(cl->buf->memory);

    cl = cl->next;
    assert_int_equal(cl->buf->last - cl->buf->pos, 10 + BORROW - 1);
    assert_true(cl->buf->temporary);
    rest = cl->buf->last;

    cl = cl->next;
    assert_ptr_equal(cl->buf->pos, source);
    assert_int_equal(cl->buf->last - cl->buf->pos, 5000);

    cl = cl->next;
    assert_ptr_equal(cl->buf->pos, source);
    assert_int_equal(cl->buf->last - cl->buf->pos, 6000);

    /* the next bytes are copied to the same memory */

    cl = cl->next;
    assert_ptr_equal(cl->buf->pos, rest);
    assert_int_equal(cl->buf->last - cl->buf->pos, 20);
    assert_true(cl->buf->temporary);

    assert_int_equal(join(&chain), BORROW + 10 + BORROW - 1 + 11000 + 20);
}


/* borrowed and other pieces of any size in any order, from any place */

static void
test_mixed(void **state)
{
    size_t                    at, n, max;
    ngx_uint_t                i;
    ngx_pool_t               *pool;
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_chain_t   chain;

    srandom(1);

    for (i = 0; i < 200; i++) {
        pool = unit_pool_create();
        ngx_modelgw_out_chain(&out, &chain, pool, random() % 20000);

        max = 1 + random() % 8000;

        for (at = 0; at < sizeof(source); at += n) {
            n = random() % max;
            n = ngx_min(n, sizeof(source) - at);

            if (random() % 3) {
                ngx_modelgw_out(&out, source + at, n);

            } else {
                ngx_modelgw_out_borrowed(&out, source + at, n);
            }
        }

        assert_int_equal(out.failed, 0);
        assert_int_equal(join(&chain), sizeof(source));
        assert_memory_equal(joined, source, sizeof(source));

        ngx_destroy_pool(pool);
    }
}


static void
assert_number(ngx_pool_t *pool, int64_t n, const char *expected)
{
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_chain_t   chain;

    ngx_modelgw_out_chain(&out, &chain, pool, 0);
    ngx_modelgw_out_number(&out, n);

    unit_assert_str(joined, join(&chain), expected);
}


static void
test_numbers(void **state)
{
    assert_number(*state, 0, "0");
    assert_number(*state, 7, "7");
    assert_number(*state, 10, "10");
    assert_number(*state, -1, "-1");
    assert_number(*state, 1767225600, "1767225600");
    assert_number(*state, -1234567890123, "-1234567890123");
    assert_number(*state, INT64_MAX, "9223372036854775807");
    assert_number(*state, INT64_MIN, "-9223372036854775808");
    assert_number(*state, INT64_MAX, "9223372036854775807");
    assert_number(*state, INT64_MIN, "-9223372036854775808");
}


/* one byte at a time, by the letter of RFC 8259, section 7 */

static size_t
slowly_escaped(const u_char *p, size_t len, char *dst)
{
    char        *begin;
    const char  *letter;

    begin = dst;

    for ( /* void */ ; len; p++, len--) {

        letter = (*p && *p < 0x80) ? strchr("\"\"\\\\\bb\ff\nn\rr\tt", *p)
                                   : NULL;

        if (*p >= 0x20 && *p != '"' && *p != '\\') {
            *dst++ = *p;

        } else if (letter) {
            *dst++ = '\\';
            *dst++ = letter[1];

        } else {
            dst += sprintf(dst, "\\u%04x", *p);
        }
    }

    return dst - begin;
}


static void
assert_escaped(ngx_pool_t *pool, const u_char *p, size_t len)
{
    char                     *expected;
    u_char                   *copy;
    size_t                    n;
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_chain_t   chain;

    expected = malloc(6 * len + 1);
    assert_non_null(expected);

    n = slowly_escaped(p, len, expected);
    copy = unit_dup(p, len);

    ngx_modelgw_out_chain(&out, &chain, pool, 0);
    ngx_modelgw_out_escaped(&out, copy, len);

    unit_free(copy);

    assert_int_equal(join(&chain), n);
    assert_memory_equal(joined, expected, n);

    free(expected);
}


static void
test_escaped(void **state)
{
    size_t       i, k, len;
    u_char       buf[1200];
    ngx_pool_t  *pool;

    pool = *state;

    for (i = 0; i < 256; i++) {
        buf[0] = i;
        assert_escaped(pool, buf, 1);
    }

    /* every byte at every place */

    for (i = 0; i < 256; i++) {
        for (k = 0; k < 40; k++) {
            ngx_memset(buf, 'a', 40);
            buf[k] = i;
            assert_escaped(pool, buf, 40);
        }
    }

    /* the worst case, and plain text, of all lengths */

    for (len = 0; len < sizeof(buf); len += 1 + len / 40) {
        ngx_memset(buf, 1, len);
        assert_escaped(pool, buf, len);

        ngx_memset(buf, 'x', len);
        assert_escaped(pool, buf, len);
    }

    srandom(2);

    for (i = 0; i < 2000; i++) {
        len = random() % sizeof(buf);

        for (k = 0; k < len; k++) {
            buf[k] = (random() % (1 + i % 50)) ? ' ' + random() % 95
                                               : random() % 256;
        }

        assert_escaped(pool, buf, len);
    }
}


static ngx_int_t
fail_at(void *data, u_char *p, size_t len, ngx_uint_t borrowed)
{
    ngx_uint_t *left = data;

    assert_true(len > 0);
    assert_true(*left > 0);

    return --*left ? NGX_OK : NGX_ERROR;
}


/* after the first failure nothing is written */

static void
test_failure(void **state)
{
    ngx_uint_t          left, i;
    ngx_modelgw_out_t   out;

    for (i = 1; i < 5; i++) {
        left = i;

        out.write = fail_at;
        out.data = &left;
        out.failed = 0;

        ngx_modelgw_out_text(&out, "a");
        assert_int_equal(out.failed, i <= 1);
        ngx_modelgw_out_number(&out, 1);
        assert_int_equal(out.failed, i <= 2);
        ngx_modelgw_out_borrowed(&out, source, 1);
        assert_int_equal(out.failed, i <= 3);
        ngx_modelgw_out_escaped(&out, source, 3000);
        assert_int_equal(out.failed, 1);
        ngx_modelgw_out_text(&out, "b");
        assert_int_equal(left, 0);
    }
}


/* a piece of memory that begins with 1 byte, and is moved until it is enough */

static void
test_piece(void **state)
{
    size_t                    i, n;
    ngx_str_t                 text;
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_piece_t   piece;

    ngx_modelgw_out_piece(&out, &piece, *state, 1);

    assert_int_equal(ngx_modelgw_out_piece_done(&out, &text), NGX_OK);
    assert_int_equal(text.len, 0);

    for (i = 0, n = 1; i + n <= sizeof(source); i += n, n = n % 1000 + 7) {
        ngx_modelgw_out(&out, source + i, n);
    }

    ngx_modelgw_out_borrowed(&out, source + i, sizeof(source) - i);

    assert_int_equal(ngx_modelgw_out_piece_done(&out, &text), NGX_OK);
    assert_int_equal(text.len, sizeof(source));
    assert_memory_equal(text.data, source, sizeof(source));

    assert_int_equal(out.failed, 0);
}


/* no memory for the first piece, or for a larger one: that stays so */

static void
test_piece_failure(void **state)
{
    ngx_str_t                 text;
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_piece_t   piece;

    ngx_modelgw_out_piece(&out, &piece, *state, TOO_LARGE);

    assert_int_equal(out.failed, 1);
    ngx_modelgw_out_text(&out, "a");
    assert_int_equal(ngx_modelgw_out_piece_done(&out, &text), NGX_ERROR);

    ngx_modelgw_out_piece(&out, &piece, *state, 2);

    ngx_modelgw_out_text(&out, "a");
    assert_int_equal(out.failed, 0);
    ngx_modelgw_out(&out, source, TOO_LARGE);
    assert_int_equal(out.failed, 1);
    ngx_modelgw_out_text(&out, "b");
    assert_int_equal(piece.last - piece.start, 1);
    assert_int_equal(ngx_modelgw_out_piece_done(&out, &text), NGX_ERROR);
}


static void
test_times(void **state)
{
    ngx_str_t                 text;
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_piece_t   piece;

    ngx_modelgw_out_piece(&out, &piece, *state, 64);

    ngx_modelgw_out_time(&out, 0);
    ngx_modelgw_out_time(&out, 1795333620123);
    ngx_modelgw_out_time(&out, 951782399007);
    ngx_modelgw_out_day(&out, 951782400);
    ngx_modelgw_out_day(&out, 1795333620);

    assert_int_equal(ngx_modelgw_out_piece_done(&out, &text), NGX_OK);

    unit_assert_str(text.data, text.len, "\"1970-01-01T00:00:00.000Z\""
                                         "\"2026-11-22T07:47:00.123Z\""
                                         "\"2000-02-28T23:59:59.007Z\""
                                         "\"2000-02-29\""
                                         "\"2026-11-22\"");
}


/* data: where the next bytes go; ASan detects one too many */

static ngx_int_t
write_exact(void *data, u_char *p, size_t len, ngx_uint_t borrowed)
{
    u_char **last = data;

    *last = ngx_cpymem(*last, p, len);

    return NGX_OK;
}


/* into a piece, and into a block of malloc() that just fits */

static void
write_string(ngx_pool_t *pool, const char *text, size_t len,
    const char *expected)
{
    u_char                   *block, *last;
    ngx_str_t                 s, json;
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_piece_t   piece;

    s.len = len;
    s.data = unit_dup(text, len);

    ngx_modelgw_out_piece(&out, &piece, pool, 1);
    ngx_modelgw_out_string(&out, &s);

    assert_int_equal(ngx_modelgw_out_piece_done(&out, &json), NGX_OK);
    unit_assert_str(json.data, json.len, expected);

    block = malloc(strlen(expected));
    assert_non_null(block);
    last = block;

    out.write = write_exact;
    out.data = &last;
    out.failed = 0;

    ngx_modelgw_out_string(&out, &s);

    assert_int_equal(out.failed, 0);
    unit_assert_str(block, last - block, expected);

    free(block);
    unit_free(s.data);
}


#define BAD  "\xef\xbf\xbd"


static void
test_string(void **state)
{
    ngx_uint_t  i;

    static struct {
        const char  *text;
        const char  *json;
    } c[] = {
        { "", "\"\"" },
        { "abc /'<>&", "\"abc /'<>&\"" },
        { "\"\\", "\"\\\"\\\\\"" },
        { "\b\f\n\r\t", "\"\\b\\f\\n\\r\\t\"" },
        { "\x01\x0b\x1f\x7f", "\"\\u0001\\u000b\\u001f\x7f\"" },

        /* UTF-8, first and last of each row of the table */

        { "\xc2\x80\xdf\xbf", "\"\xc2\x80\xdf\xbf\"" },
        { "\xe0\xa0\x80\xed\x9f\xbf", "\"\xe0\xa0\x80\xed\x9f\xbf\"" },
        { "\xee\x80\x80\xef\xbf\xbf", "\"\xee\x80\x80\xef\xbf\xbf\"" },
        { "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
          "\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"" },
        { "\xe2\x80\xa8", "\"\xe2\x80\xa8\"" },

        /* and invalid UTF-8 */

        { "\x80", "\"" BAD "\"" },
        { "\xc0\x80", "\"" BAD BAD "\"" },
        { "\xc1\xbf", "\"" BAD BAD "\"" },
        { "\xe0\x9f\xbf", "\"" BAD BAD BAD "\"" },
        { "\xed\xa0\x80", "\"" BAD BAD BAD "\"" },
        { "\xf0\x8f\xbf\xbf", "\"" BAD BAD BAD BAD "\"" },
        { "\xf4\x90\x80\x80", "\"" BAD BAD BAD BAD "\"" },
        { "\xf5\x80\x80\x80", "\"" BAD BAD BAD BAD "\"" },
        { "\xff", "\"" BAD "\"" },
        { "\xc3", "\"" BAD "\"" },
        { "\xe2\x82", "\"" BAD BAD "\"" },
        { "\xf0\x9f\x98", "\"" BAD BAD BAD "\"" },
        { "\xc3(", "\"" BAD "(\"" },
        { "\xe2\x82(", "\"" BAD BAD "(\"" },
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        write_string(*state, c[i].text, strlen(c[i].text), c[i].json);
    }

    write_string(*state, "a\0b", 3, "\"a\\u0000b\"");
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_copies),
        unit_case(test_hint),
        unit_case(test_borrowed),
        unit_case(test_mixed),
        unit_case(test_numbers),
        unit_case(test_escaped),
        unit_case(test_failure),
        unit_case(test_piece),
        unit_case(test_piece_failure),
        unit_case(test_times),
        unit_case(test_string),
    };

    return cmocka_run_group_tests(tests, fill, NULL);
}
