
/*
 * Sessions of the console: cookies that are written and read, and those that
 * were changed.
 */


#include "unit.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "ngx_modelgw_session.h"


#define NOW  1800000000


static void
session_of(ngx_modelgw_session_t *session)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_MODELGW_KEY_DIGEST; i++) {
        session->digest[i] = (u_char) (i * 7);
    }

    session->expires = NOW + 43200;
}


static void
test_write(void **state)
{
    u_char                 secret[NGX_MODELGW_SESSION_SECRET];
    u_char                 text[NGX_MODELGW_SESSION_TEXT];
    u_char                 bytes[NGX_MODELGW_SESSION_TEXT], code[32];
    ngx_str_t              src, dst;
    unsigned int           len;
    ngx_modelgw_session_t  session, read;

    ngx_memset(secret, 's', sizeof(secret));
    session_of(&session);

    assert_int_equal(ngx_modelgw_session_write(secret, &session, text), NGX_OK);

    src.data = text;
    src.len = sizeof(text);
    dst.data = bytes;

    assert_int_equal(ngx_decode_base64url(&dst, &src), NGX_OK);
    assert_int_equal(dst.len, 72);

    assert_memory_equal(bytes, session.digest, 32);
    assert_memory_equal(bytes + 32, "\0\0\0\0\x6b\x4a\x7a\xc0", 8);
    assert_non_null(HMAC(EVP_sha256(), secret, sizeof(secret), bytes, 40, code,
                         &len));
    assert_memory_equal(bytes + 40, code, 32);

    ngx_memset(&read, 0, sizeof(read));

    assert_int_equal(ngx_modelgw_session_read(secret, &src, NOW, &read),
                     NGX_OK);
    assert_memory_equal(read.digest, session.digest, 32);
    assert_int_equal(read.expires, session.expires);
}


static void
test_expires(void **state)
{
    u_char                 secret[NGX_MODELGW_SESSION_SECRET];
    u_char                 text[NGX_MODELGW_SESSION_TEXT];
    ngx_str_t              src;
    ngx_modelgw_session_t  session, read;

    ngx_memset(secret, 1, sizeof(secret));
    session_of(&session);

    src.data = text;
    src.len = sizeof(text);

    assert_int_equal(ngx_modelgw_session_write(secret, &session, text), NGX_OK);

    assert_int_equal(ngx_modelgw_session_read(secret, &src,
                                              session.expires - 1, &read),
                     NGX_OK);
    assert_int_equal(ngx_modelgw_session_read(secret, &src, session.expires,
                                              &read),
                     NGX_DECLINED);
    assert_int_equal(ngx_modelgw_session_read(secret, &src, UINT64_MAX, &read),
                     NGX_DECLINED);
}


/* every other character, at every place; every length; another secret */

static void
test_changed(void **state)
{
    u_char                 secret[NGX_MODELGW_SESSION_SECRET];
    u_char                 text[NGX_MODELGW_SESSION_TEXT + 4], was;
    ngx_str_t              src;
    ngx_uint_t             i, c;
    ngx_modelgw_session_t  session, read;

    ngx_memset(secret, 2, sizeof(secret));
    ngx_memset(text, 'A', sizeof(text));
    session_of(&session);

    assert_int_equal(ngx_modelgw_session_write(secret, &session, text), NGX_OK);

    src.data = text;
    src.len = NGX_MODELGW_SESSION_TEXT;

    for (i = 0; i < src.len; i++) {
        was = text[i];

        for (c = 0; c < 256; c++) {
            text[i] = (u_char) c;

            assert_int_equal(ngx_modelgw_session_read(secret, &src, NOW, &read),
                             (c == was) ? NGX_OK : NGX_DECLINED);
        }

        text[i] = was;
    }

    for (src.len = 0; src.len <= sizeof(text); src.len++) {
        assert_int_equal(ngx_modelgw_session_read(secret, &src, NOW, &read),
                         (src.len == NGX_MODELGW_SESSION_TEXT) ? NGX_OK
                                                               : NGX_DECLINED);
    }

    src.len = NGX_MODELGW_SESSION_TEXT;
    secret[31] ^= 1;

    assert_int_equal(ngx_modelgw_session_read(secret, &src, NOW, &read),
                     NGX_DECLINED);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_expires),
        cmocka_unit_test(test_changed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
