
/*
 * Service keys: secrets in headers, digests, dates, the table of keys.
 */


#include "unit.h"

#include <openssl/evp.h>
#include <time.h>

#include "ngx_modelgw_key.h"


#define MANY  100000


static void
digest_of(const char *text, u_char *digest)
{
    unsigned int  len;

    assert_int_equal(EVP_Digest(text, strlen(text), digest, &len, EVP_sha256(),
                                NULL),
                     1);
    assert_int_equal(len, NGX_MODELGW_KEY_DIGEST);
}


/* FIPS 180-4 examples, and OpenSSL's own digest of texts of every length */

static void
test_digest(void **state)
{
    char        text[200];
    u_char      digest[NGX_MODELGW_KEY_DIGEST];
    u_char      other[NGX_MODELGW_KEY_DIGEST];
    ngx_str_t   secret;
    ngx_uint_t  i;

    static struct {
        ngx_str_t  text;
        ngx_str_t  hex;
    } cases[] = {
        { ngx_string("abc"),
          ngx_string("ba7816bf8f01cfea414140de5dae2223"
                     "b00361a396177a9cb410ff61f20015ad") },
        { ngx_string(""),
          ngx_string("e3b0c44298fc1c149afbf4c8996fb924"
                     "27ae41e4649b934ca495991b7852b855") },
        { ngx_string("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
          ngx_string("248d6a61d20638b8e5c026930c3e6039"
                     "A33CE45964FF2167F6ECEDD419DB06C1") },
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(ngx_modelgw_key_digest(&cases[i].text, digest),
                         NGX_OK);
        assert_int_equal(ngx_modelgw_key_hex(&cases[i].hex, other), NGX_OK);
        assert_memory_equal(digest, other, NGX_MODELGW_KEY_DIGEST);
    }

    memset(text, 0, sizeof(text));
    secret.data = (u_char *) text;

    for (i = 0; i < sizeof(text) - 1; i++) {
        text[i] = (char) ('0' + i % 64);
        secret.len = i + 1;

        assert_int_equal(ngx_modelgw_key_digest(&secret, digest), NGX_OK);
        digest_of(text, other);
        assert_memory_equal(digest, other, NGX_MODELGW_KEY_DIGEST);
    }
}


static void
test_hex(void **state)
{
    u_char      digest[NGX_MODELGW_KEY_DIGEST];
    u_char      text[NGX_MODELGW_KEY_DIGEST * 2 + 1];
    ngx_str_t   hex;
    ngx_uint_t  i;

    hex.data = text;
    memset(text, 'a', sizeof(text));

    for (hex.len = 0; hex.len <= sizeof(text); hex.len++) {
        assert_int_equal(ngx_modelgw_key_hex(&hex, digest),
                         hex.len == NGX_MODELGW_KEY_DIGEST * 2 ? NGX_OK
                                                               : NGX_DECLINED);
    }

    hex.len = NGX_MODELGW_KEY_DIGEST * 2;

    for (i = 0; i < hex.len; i++) {
        text[i] = 'g';
        assert_int_equal(ngx_modelgw_key_hex(&hex, digest), NGX_DECLINED);
        text[i] = 'a';
    }
}


static void
test_secret(void **state)
{
    u_char      *copy;
    ngx_str_t    value, secret;
    ngx_int_t    rc;
    ngx_uint_t   i;

    static struct {
        const char  *value;
        ngx_uint_t   bearer;
        const char  *secret;             /* NULL: declined */
    } cases[] = {
        { "sk-eu-1", 0, "sk-eu-1" },
        { " \t sk-eu-1\t ", 0, "sk-eu-1" },
        { "Bearer sk-eu-1", 0, "Bearer sk-eu-1" },
        { "sk eu", 0, "sk eu" },
        { "a,b", 0, "a,b" },
        { "x", 0, "x" },
        { "", 0, NULL },
        { " ", 0, NULL },
        { " \t ", 0, NULL },

        { "Bearer sk-eu-1", 1, "sk-eu-1" },
        { "bearer sk-eu-1", 1, "sk-eu-1" },
        { "BEARER sk-eu-1", 1, "sk-eu-1" },
        { "bEaReR  \t sk-eu-1 \t", 1, "sk-eu-1" },
        { " Bearer x", 1, "x" },
        { "Bearer\tx", 1, "x" },
        { "Bearer a, Bearer b", 1, "a, Bearer b" },
        { "Bearer", 1, NULL },
        { "Bearer ", 1, NULL },
        { "Bearer \t ", 1, NULL },
        { "Bearersk-eu-1", 1, NULL },
        { "Bearer:sk-eu-1", 1, NULL },
        { "Basic sk-eu-1", 1, NULL },
        { "Token sk-eu-1", 1, NULL },
        { "sk-eu-1", 1, NULL },
        { "Beare", 1, NULL },
        { "", 1, NULL },
        { " ", 1, NULL },
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {

        value.len = strlen(cases[i].value);
        copy = malloc(value.len ? value.len : 1);
        assert_non_null(copy);
        memcpy(copy, cases[i].value, value.len);
        value.data = copy;

        rc = ngx_modelgw_key_secret(&value, cases[i].bearer, &secret);

        if (cases[i].secret == NULL) {
            assert_int_equal(rc, NGX_DECLINED);

        } else {
            assert_int_equal(rc, NGX_OK);
            assert_int_equal(secret.len, strlen(cases[i].secret));
            assert_memory_equal(secret.data, cases[i].secret, secret.len);
        }

        free(copy);
    }
}


static ngx_int_t
date(const char *text, time_t *t)
{
    ngx_str_t  s;

    s.data = (u_char *) text;
    s.len = strlen(text);

    return ngx_modelgw_key_date(&s, t);
}


static void
test_date(void **state)
{
    time_t       t;
    const char **text;

    static const char  *bad[] = {
        "", "2027", "2027-1-1", "2027-01-1", "2027-01-011", "2027/01/01",
        "2027-00-01", "2027-13-01", "2027-01-00", "2027-01-32", "2027-02-29",
        "2027-02-30", "2027-04-31", "2100-02-29", "1969-12-31", "0000-01-01",
        "2027-01-01T00:00:00Z", "x027-01-01", "2027-0x-01", "2027-01-0x",
        "-027-01-01", "2027-+1-01", "2027-01- 1", NULL
    };

    assert_int_equal(date("1970-01-01", &t), NGX_OK);
    assert_int_equal(t, 0);
    assert_int_equal(date("2027-01-01", &t), NGX_OK);
    assert_int_equal(t, 1798761600);
    assert_int_equal(date("2028-02-29", &t), NGX_OK);
    assert_int_equal(date("2000-02-29", &t), NGX_OK);
    assert_int_equal(date("9999-12-31", &t), NGX_OK);

    for (text = bad; *text; text++) {
        if (date(*text, &t) != NGX_DECLINED) {
            fail_msg("\"%s\" was accepted", *text);
        }
    }
}


/* each day of 400 years is one day after the one before, as libc has it */

static void
test_calendar(void **state)
{
    char       text[16];
    time_t     t, day;
    struct tm  tm;

    for (day = 0; day < (time_t) 400 * 366 * 86400; day += 86400) {
        gmtime_r(&day, &tm);
        strftime(text, sizeof(text), "%Y-%m-%d", &tm);
        assert_int_equal(date(text, &t), NGX_OK);
        assert_int_equal(t, day);
    }
}


static ngx_str_t
name_of(ngx_pool_t *pool, ngx_uint_t i)
{
    ngx_str_t  id;

    id.data = ngx_pnalloc(pool, NGX_INT_T_LEN + 4);
    assert_non_null(id.data);
    id.len = ngx_sprintf(id.data, "key-%ui", i) - id.data;

    return id;
}


static void
test_table_empty(void **state)
{
    u_char               digest[NGX_MODELGW_KEY_DIGEST];
    ngx_modelgw_keys_t  *keys;

    keys = ngx_modelgw_keys_create(*state, *state);
    assert_non_null(keys);

    digest_of("x", digest);

    assert_null(ngx_modelgw_keys_find(keys, digest));
    assert_int_equal(ngx_modelgw_keys_ready(keys), NGX_OK);
    assert_null(ngx_modelgw_keys_find(keys, digest));
    assert_int_equal(ngx_modelgw_keys_count(keys), 0);
}


static void
test_table_twins(void **state)
{
    u_char               one[NGX_MODELGW_KEY_DIGEST];
    u_char               two[NGX_MODELGW_KEY_DIGEST];
    ngx_str_t            a = ngx_string("a"), b = ngx_string("b");
    ngx_modelgw_key_t   *first, *twin;
    ngx_modelgw_keys_t  *keys;

    digest_of("1", one);
    digest_of("2", two);

    keys = ngx_modelgw_keys_create(*state, *state);
    assert_non_null(keys);

    first = ngx_modelgw_keys_add(keys, one, &a, &twin);
    assert_non_null(first);
    assert_null(twin);

    assert_null(ngx_modelgw_keys_add(keys, two, &a, &twin));
    assert_ptr_equal(twin, first);

    assert_null(ngx_modelgw_keys_add(keys, one, &b, &twin));
    assert_ptr_equal(twin, first);

    assert_int_equal(ngx_modelgw_keys_count(keys), 1);

    assert_non_null(ngx_modelgw_keys_add(keys, two, &b, &twin));
    assert_int_equal(ngx_modelgw_keys_count(keys), 2);
}


/* digests that begin alike, up to each of their bytes, are kept apart */

static void
test_table_near(void **state)
{
    u_char               digest[NGX_MODELGW_KEY_DIGEST];
    ngx_str_t            id;
    ngx_uint_t           i;
    ngx_modelgw_key_t   *near[NGX_MODELGW_KEY_DIGEST], *twin;
    ngx_modelgw_keys_t  *keys;

    keys = ngx_modelgw_keys_create(*state, *state);
    assert_non_null(keys);

    memset(digest, 0xff, sizeof(digest));

    for (i = 0; i < NGX_MODELGW_KEY_DIGEST; i++) {
        digest[i] ^= 1;
        id = name_of(*state, i);
        near[i] = ngx_modelgw_keys_add(keys, digest, &id, &twin);
        assert_non_null(near[i]);
        digest[i] ^= 1;
    }

    assert_int_equal(ngx_modelgw_keys_ready(keys), NGX_OK);
    assert_null(ngx_modelgw_keys_find(keys, digest));

    for (i = 0; i < NGX_MODELGW_KEY_DIGEST; i++) {
        digest[i] ^= 1;
        assert_ptr_equal(ngx_modelgw_keys_find(keys, digest), near[i]);
        digest[i] ^= 1;
    }
}


/* 100,000 keys: each is found, before and after the table is laid out */

static void
test_table_many(void **state)
{
    u_char               digest[NGX_MODELGW_KEY_DIGEST];
    char                 secret[64];
    ngx_str_t            id;
    ngx_uint_t           i;
    ngx_pool_t          *temp;
    ngx_modelgw_key_t   *key, *twin;
    ngx_modelgw_keys_t  *keys;

    temp = unit_pool_create();

    keys = ngx_modelgw_keys_create(*state, temp);
    assert_non_null(keys);

    for (i = 0; i < MANY; i++) {
        snprintf(secret, sizeof(secret), "sk-eu-%u", (unsigned) i);
        digest_of(secret, digest);
        id = name_of(*state, i);

        key = ngx_modelgw_keys_add(keys, digest, &id, &twin);
        assert_non_null(key);
        assert_null(key->models);
        assert_int_equal(key->expires, 0);
        key->rpm = (uint32_t) i;

        assert_ptr_equal(ngx_modelgw_keys_find(keys, digest), key);
    }

    assert_int_equal(ngx_modelgw_keys_ready(keys), NGX_OK);
    assert_int_equal(ngx_modelgw_keys_count(keys), MANY);

    ngx_destroy_pool(temp);

    for (i = 0; i < MANY; i++) {
        snprintf(secret, sizeof(secret), "sk-eu-%u", (unsigned) i);
        digest_of(secret, digest);

        key = ngx_modelgw_keys_find(keys, digest);
        assert_non_null(key);
        assert_int_equal(key->rpm, i);
        assert_memory_equal(key->digest, digest, NGX_MODELGW_KEY_DIGEST);

        digest[31] ^= 1;
        assert_null(ngx_modelgw_keys_find(keys, digest));
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_digest),
        cmocka_unit_test(test_hex),
        cmocka_unit_test(test_secret),
        cmocka_unit_test(test_date),
        cmocka_unit_test(test_calendar),
        unit_case(test_table_empty),
        unit_case(test_table_twins),
        unit_case(test_table_near),
        unit_case(test_table_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
