
/*
 * Connections to PostgreSQL, as far as no server is needed: what a conninfo may
 * have, failures to connect, and parameters in binary.  The rest is tested with
 * a server by t/cluster/test_exchange.py.
 */


#include "unit.h"

#include <sys/stat.h>

#include "ngx_modelgw_pq.h"


/* the message has the text; NULL: it is accepted */

static void
check(const char *conninfo, const char *expected)
{
    ngx_int_t               rc;
    ngx_modelgw_pq_conf_t   conf;
    ngx_modelgw_pq_error_t  error;

    conf.conninfo = (char *) conninfo;
    conf.password = NULL;
    conf.application = NULL;

    ngx_memzero(&error, sizeof(ngx_modelgw_pq_error_t));

    rc = ngx_modelgw_pq_check(&conf, &error);

    if (rc != (expected ? NGX_ERROR : NGX_OK)
        || (expected && ngx_strnstr(error.data, (char *) expected, error.len)
                        == NULL))
    {
        fail_msg("%s: %ld, \"%.*s\"", conninfo, (long) rc, (int) error.len,
                 error.data);
    }
}


static void
test_conninfo(void **state)
{
    check("host=/var/run/postgresql dbname=a", NULL);
    check("host=@abstract", NULL);
    check("host=localhost port=5433", NULL);
    check("host=127.0.0.1,::1,/tmp port=1,2,3", NULL);
    check("hostaddr=127.1.2.3", NULL);
    check("host=db1,db2 sslmode=verify-full sslrootcert=/a.pem", NULL);
    check("postgres://modelgw@localhost/modelgw", NULL);
    check("postgresql://a@db1:5432,db2/modelgw?sslmode=verify-full", NULL);

    /* the address decides, not the name */

    check("host=db1 hostaddr=127.0.0.1", NULL);
    check("host=localhost hostaddr=192.0.2.1", "verify-full");

    check("host=db1", "\"db1\" could be read or changed");
    check("host=localhost,db2", "\"db2\" could be");
    check("host=db1 sslmode=require", "verify-full");
    check("host=db1 sslmode=verify-ca", "verify-full");
    check("host=127.0.0.1.example.com", "verify-full");
    check("host=128.0.0.1", "verify-full");
    check("host=::2", "verify-full");

    check("", "names no host");
    check("dbname=a", "names no host");
    check("host=localhost,", "names no host");
    check("host=localhost password=secret", "file");
    check("postgres://a:secret@localhost/b", "file");
    check("host=localhost sslpassword=secret", "without one");
    check("service=a", "service");
    check("host=a,b,c hostaddr=127.0.0.1", "different lengths");
    check("host=/a,/b port=1,2,3", "different lengths");

    check("host", "missing \"=\"");
    check("host=localhost nothing=1", "nothing");
    check("postgres://localhost:1/?a", "separator");
    check("host=/01234567890123456789012345678901234567890123456789012345678901"
          "2345678901234567890123456789012345678901234567890123456789012345678"
          "9012345678901234567890123456789012345678901234567890123456789012345"
          "6789012345678901234567890123456789012345678901234567890123456789",
          "too long");
}


static void
test_password(void **state)
{
    int                     fd;
    char                    path[] = "/tmp/unit_pq_XXXXXX";
    ngx_modelgw_pq_conf_t   conf;
    ngx_modelgw_pq_error_t  error;

    fd = mkstemp(path);
    assert_true(fd != -1);

    conf.conninfo = "host=/nowhere";
    conf.password = path;
    conf.application = "modelgw/unit";

    assert_int_equal(ngx_modelgw_pq_check(&conf, &error), NGX_OK);

    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(ngx_modelgw_pq_check(&conf, &error), NGX_ERROR);
    assert_non_null(ngx_strnstr(error.data, "chmod 0600", error.len));
    assert_int_equal(chmod(path, 0600), 0);

    /* it is read when it connects */

    assert_null(ngx_modelgw_pq_connect(&conf, 1000, NULL, &error));
    assert_non_null(ngx_strnstr(error.data, "no password", error.len));

    assert_int_equal(write(fd, "secret\n", 7), 7);

    assert_null(ngx_modelgw_pq_connect(&conf, 1000, NULL, &error));
    assert_non_null(ngx_strnstr(error.data, "/nowhere", error.len));
    assert_null(ngx_strnstr(error.data, "secret", error.len));
    assert_string_equal(error.state, "");

    (void) close(fd);
    assert_int_equal(unlink(path), 0);

    assert_null(ngx_modelgw_pq_connect(&conf, 1000, NULL, &error));
    assert_non_null(ngx_strnstr(error.data, "No such file", error.len));
    assert_int_equal(ngx_modelgw_pq_check(&conf, &error), NGX_ERROR);

    conf.password = "/tmp";
    assert_int_equal(ngx_modelgw_pq_check(&conf, &error), NGX_ERROR);
}


/*
 * A listener that accepts and is silent, as a server that hangs: the next host
 * is tried when it has had its share of the time, and all of them are named.
 */

static void
test_silent(void **state)
{
    int                     fd;
    char                    conninfo[128];
    socklen_t               len;
    ngx_atomic_t            stop;
    struct timespec         from, to;
    ngx_modelgw_pq_conf_t   conf;
    ngx_modelgw_pq_error_t  error;
    struct sockaddr_in      sin;

    fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd != -1);

    ngx_memzero(&sin, sizeof(struct sockaddr_in));
    sin.sin_family = AF_INET;
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    len = sizeof(struct sockaddr_in);

    assert_int_equal(bind(fd, (struct sockaddr *) &sin, len), 0);
    assert_int_equal(listen(fd, 5), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *) &sin, &len), 0);

    ngx_sprintf((u_char *) conninfo, "host=127.0.0.1,/nowhere,localhost"
                " port=%d,1,%d%Z", (int) ntohs(sin.sin_port),
                (int) ntohs(sin.sin_port));

    conf.conninfo = conninfo;
    conf.password = NULL;
    conf.application = NULL;
    stop = 0;

    (void) clock_gettime(CLOCK_MONOTONIC, &from);
    assert_null(ngx_modelgw_pq_connect(&conf, 300, &stop, &error));
    (void) clock_gettime(CLOCK_MONOTONIC, &to);

    assert_in_range((to.tv_sec - from.tv_sec) * 1000
                    + (to.tv_nsec - from.tv_nsec) / 1000000, 290, 2000);

    assert_non_null(ngx_strnstr(error.data, "\"127.0.0.1\" failed", error.len));
    assert_non_null(ngx_strnstr(error.data, "; ", error.len));
    assert_non_null(ngx_strnstr(error.data, "/nowhere", error.len));
    assert_non_null(ngx_strnstr(error.data, "\"localhost\" failed", error.len));

    /* stopped at once */

    stop = 1;

    assert_null(ngx_modelgw_pq_connect(&conf, 60000, &stop, &error));

    (void) close(fd);
}


static void
assert_bytes(ngx_modelgw_pq_param_t *param, uint32_t type, const char *bytes,
    size_t len)
{
    assert_int_equal(param->type, type);
    assert_int_equal(param->len, len);
    assert_memory_equal(param->data, bytes, len);
}


#define bytes(s)  s, sizeof(s) - 1

#define text(a, s)                                                            \
    ngx_modelgw_pq_array_text(a, (u_char *) s, sizeof(s) - 1)


static void
test_params(void **state)
{
    u_char                  buf[8];
    ngx_uint_t              i;
    ngx_modelgw_pq_array_t  a;
    ngx_modelgw_pq_param_t  param;

    ngx_modelgw_pq_param_int(&param, buf, -2);
    assert_bytes(&param, NGX_MODELGW_PQ_INT8,
                 bytes("\xff\xff\xff\xff\xff\xff\xff\xfe"));

    ngx_modelgw_pq_param_text(&param, NULL, 0);
    assert_int_equal(param.len, 0);
    assert_non_null(param.data);

    ngx_memzero(&a, sizeof(ngx_modelgw_pq_array_t));

    ngx_modelgw_pq_array_begin(&a, NGX_MODELGW_PQ_INT8);
    assert_int_equal(ngx_modelgw_pq_array_end(&a, &param), NGX_OK);
    assert_bytes(&param, NGX_MODELGW_PQ_INT8_ARRAY,
                 bytes("\0\0\0\0" "\0\0\0\0" "\0\0\0\x14"));

    ngx_modelgw_pq_array_begin(&a, NGX_MODELGW_PQ_INT4);
    ngx_modelgw_pq_array_int(&a, 258);
    assert_int_equal(ngx_modelgw_pq_array_end(&a, &param), NGX_OK);
    assert_bytes(&param, NGX_MODELGW_PQ_INT4_ARRAY,
                 bytes("\0\0\0\1" "\0\0\0\0" "\0\0\0\x17" "\0\0\0\1" "\0\0\0\1"
                       "\0\0\0\4" "\0\0\1\2"));

    ngx_modelgw_pq_array_begin(&a, NGX_MODELGW_PQ_BOOL);
    ngx_modelgw_pq_array_int(&a, 1);
    assert_int_equal(ngx_modelgw_pq_array_end(&a, &param), NGX_OK);
    assert_bytes(&param, NGX_MODELGW_PQ_BOOL_ARRAY,
                 bytes("\0\0\0\1" "\0\0\0\0" "\0\0\0\x10" "\0\0\0\1" "\0\0\0\1"
                       "\0\0\0\1" "\1"));

    /* what is not UTF-8 is not sent */

    ngx_modelgw_pq_array_begin(&a, NGX_MODELGW_PQ_TEXT);
    text(&a, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    text(&a, "\0\x80\xc0\x80\xed\xa0\x80\xe0\x80\x80\xf4\x90\x80\x80\xf5\xc3");
    text(&a, "\xe2\x82");
    ngx_modelgw_pq_array_text(&a, NULL, 0);
    assert_int_equal(ngx_modelgw_pq_array_end(&a, &param), NGX_OK);
    assert_bytes(&param, NGX_MODELGW_PQ_TEXT_ARRAY,
                 bytes("\0\0\0\1" "\0\0\0\0" "\0\0\0\x19" "\0\0\0\4" "\0\0\0\1"
                       "\0\0\0\x9" "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"
                       "\0\0\0\x10" "????????????????"
                       "\0\0\0\2" "??"
                       "\0\0\0\0"));

    /* bytes are */

    ngx_modelgw_pq_array_begin(&a, NGX_MODELGW_PQ_BYTEA);
    text(&a, "\xff");
    assert_int_equal(ngx_modelgw_pq_array_end(&a, &param), NGX_OK);
    assert_int_equal(param.type, NGX_MODELGW_PQ_BYTEA_ARRAY);
    assert_int_equal(param.data[24], 0xff);

    ngx_modelgw_pq_array_begin(&a, NGX_MODELGW_PQ_INT8);

    for (i = 0; i < 10000; i++) {
        ngx_modelgw_pq_array_int(&a, i);
    }

    assert_int_equal(ngx_modelgw_pq_array_end(&a, &param), NGX_OK);
    assert_int_equal(param.len, 20 + 12 * 10000);
    assert_memory_equal(param.data + param.len - 8, "\0\0\0\0\0\0\x27\x0f", 8);

    ngx_modelgw_pq_array_free(&a);
}


static void
test_repeat(void **state)
{
    u_char                  *p;
    ngx_str_t                element;
    ngx_uint_t               i;
    ngx_modelgw_pq_array_t   a;
    ngx_modelgw_pq_param_t   param;

    ngx_memzero(&a, sizeof(ngx_modelgw_pq_array_t));

    ngx_modelgw_pq_array_begin(&a, NGX_MODELGW_PQ_TEXT);

    assert_null(ngx_modelgw_pq_array_next(&a, NULL, &element));

    ngx_modelgw_pq_array_repeat(&a, 3);
    assert_int_equal(a.n, 0);

    text(&a, "one");
    text(&a, "");
    ngx_modelgw_pq_array_repeat(&a, 2);

    assert_int_equal(ngx_modelgw_pq_array_end(&a, &param), NGX_OK);
    assert_bytes(&param, NGX_MODELGW_PQ_TEXT_ARRAY,
                 bytes("\0\0\0\1" "\0\0\0\0" "\0\0\0\x19" "\0\0\0\6" "\0\0\0\1"
                       "\0\0\0\3" "one" "\0\0\0\0" "\0\0\0\3" "one"
                       "\0\0\0\0" "\0\0\0\3" "one" "\0\0\0\0"));

    /* while it grows */

    ngx_modelgw_pq_array_begin(&a, NGX_MODELGW_PQ_INT8);
    ngx_modelgw_pq_array_int(&a, -2);
    ngx_modelgw_pq_array_int(&a, 7);
    ngx_modelgw_pq_array_repeat(&a, 4999);

    assert_int_equal(a.n, 10000);

    p = NULL;

    for (i = 0; i < 10000; i++) {
        p = ngx_modelgw_pq_array_next(&a, p, &element);

        assert_non_null(p);
        assert_int_equal(element.len, 8);
        assert_int_equal(ngx_modelgw_pq_read(element.data, 8),
                         (i & 1) ? 7 : -2);
    }

    assert_null(ngx_modelgw_pq_array_next(&a, p, &element));

    ngx_modelgw_pq_array_free(&a);
}


/* A byte that no text may have, in each place of texts of each length. */

static void
test_clean(void **state)
{
    u_char                  buf[20];
    ngx_uint_t              i, k, len;
    ngx_modelgw_pq_array_t  a;
    ngx_modelgw_pq_param_t  param;

    static const u_char  bad[] = { 0x00, 0x80, 0xff };

    ngx_memzero(&a, sizeof(ngx_modelgw_pq_array_t));

    for (len = 1; len <= sizeof(buf); len++) {
        for (i = 0; i < len; i++) {
            for (k = 0; k < sizeof(bad); k++) {
                memset(buf, (i & 1) ? 0x01 : 0x7f, sizeof(buf));
                buf[i] = bad[k];

                ngx_modelgw_pq_array_begin(&a, NGX_MODELGW_PQ_TEXT);
                ngx_modelgw_pq_array_text(&a, buf, len);
                assert_int_equal(ngx_modelgw_pq_array_end(&a, &param), NGX_OK);

                buf[i] = '?';
                assert_int_equal(param.len, 24 + len);
                assert_memory_equal(param.data + 24, buf, len);
            }
        }
    }

    ngx_modelgw_pq_array_free(&a);
}


int
main(void)
{
    ngx_modelgw_pq_error_t  error;

    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_conninfo),
        cmocka_unit_test(test_password),
        cmocka_unit_test(test_silent),
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_repeat),
        cmocka_unit_test(test_clean)
    };

    if (ngx_modelgw_pq_load(&error) != NGX_OK) {
        print_error("%.*s\n", (int) error.len, error.data);
        return 1;
    }

    return cmocka_run_group_tests(tests, NULL, NULL);
}
