
/*
 * What the unit tests of floor 0 share.  A test is one program: its own .c
 * file, all of src/ngx_modelgw_*.c, and the few nginx objects that pools and
 * strings need; for the rest see stub.h.
 */


#ifndef _UNIT_H_INCLUDED_
#define _UNIT_H_INCLUDED_


#include "stub.h"

#include <setjmp.h>
#include <cmocka.h>

#undef skip                              /* the name is ours */


/* every case is replayed with chunks of 1 ... UNIT_CHUNKS bytes, then whole */

#define UNIT_CHUNKS  31


static ngx_inline ngx_pool_t *
unit_pool_create(void)
{
    ngx_pool_t  *pool;

    pool = stub_pool_create();
    assert_non_null(pool);

    return pool;
}


/* setup and teardown of a cmocka test: *state is a pool */

static ngx_inline int
unit_setup(void **state)
{
    *state = unit_pool_create();

    return 0;
}


static ngx_inline int
unit_teardown(void **state)
{
    ngx_destroy_pool(*state);

    return 0;
}


#define unit_case(f)                                                          \
    cmocka_unit_test_setup_teardown(f, unit_setup, unit_teardown)


/*
 * The chunk size of the i-th replay of a document of len bytes: 1 ...
 * UNIT_CHUNKS for i below that, then the whole; 0: no more replays.
 */

static ngx_inline size_t
unit_chunk(ngx_uint_t i, size_t len)
{
    if (i < UNIT_CHUNKS) {
        return i + 1;
    }

    return (i == UNIT_CHUNKS) ? ngx_max(len, 1) : 0;
}


/*
 * A copy of the bytes in a malloc() block of exactly their size, so that
 * AddressSanitizer detects a read past their end; freed by unit_free().
 */

static ngx_inline u_char *
unit_dup(const void *p, size_t len)
{
    u_char  *copy;

    copy = malloc(ngx_max(len, 1));
    assert_non_null(copy);

    ngx_memcpy(copy, p, len);

    return copy;
}


#define unit_free(p)  free(p)


static ngx_inline ngx_str_t
unit_str(const char *s)
{
    ngx_str_t  str;

    str.data = (u_char *) s;
    str.len = ngx_strlen(s);

    return str;
}


/* fails the test with both texts, if they differ */

static ngx_inline void
unit_assert_str(const u_char *data, size_t len, const char *expected)
{
    if (len != ngx_strlen(expected)
        || ngx_memcmp(data, expected, len) != 0)
    {
        print_error("got \"%.*s\" instead of \"%s\"\n", (int) len,
                    (const char *) data, expected);
        fail();
    }
}


#endif /* _UNIT_H_INCLUDED_ */
