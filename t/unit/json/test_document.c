
/*
 * Reading whole documents into slots; strings of ours among them.
 */


#include "unit.h"

#include "ngx_modelgw_document.h"
#include "ngx_modelgw_out.h"


typedef struct {
    ngx_str_t    a;
    ngx_str_t    ab;
    ngx_str_t    abc;
    ngx_str_t    u;
} values_t;


static ngx_modelgw_document_slot_t  slots[] = {
    { ngx_string("a"), offsetof(values_t, a) },
    { ngx_string("a.b"), offsetof(values_t, ab) },
    { ngx_string("a.b.c"), offsetof(values_t, abc) },
    { ngx_string("\xc3\xbc"), offsetof(values_t, u) },
    { ngx_null_string, 0 }
};


typedef struct {
    const char  *doc;
    ngx_int_t    rc;
    const char  *a;
    const char  *ab;
    const char  *abc;
} case_t;


static case_t  cases[] = {

    /* what a value is */

    { "{\"a\":\"x\"}", NGX_OK, "x", "-", "-" },
    { " { \"a\" : \"\" } ", NGX_OK, "", "-", "-" },
    { "{\"a\":-1.50e+3}", NGX_OK, "-1.50e+3", "-", "-" },
    { "{\"a\":123456789012345678901234567890}", NGX_OK,
      "123456789012345678901234567890", "-", "-" },
    { "{\"a\":true}", NGX_OK, "true", "-", "-" },
    { "{\"a\":false}", NGX_OK, "false", "-", "-" },
    { "{\"a\":null}", NGX_OK, "-", "-", "-" },
    { "{\"a\":[\"x\"]}", NGX_OK, "-", "-", "-" },
    { "{\"a\":{}}", NGX_OK, "-", "-", "-" },
    { "{\"\\u0061\":\"\\u00fc\\n\\ud83d\\ude00\"}", NGX_OK,
      "\xc3\xbc\n\xf0\x9f\x98\x80", "-", "-" },

    /* where it is */

    { "{\"a\":{\"b\":\"x\"}}", NGX_OK, "-", "x", "-" },
    { "{\"a\":{\"b\":{\"c\":\"x\"}}}", NGX_OK, "-", "-", "x" },
    { "{\"a\":{\"x\":{\"b\":{\"c\":1}}}}", NGX_OK, "-", "-", "-" },
    { "{\"a\":{\"x\":{},\"b\":\"y\"},\"b\":2}", NGX_OK, "-", "y", "-" },
    { "{\"x\":{\"a\":1},\"a\":2}", NGX_OK, "2", "-", "-" },
    { "{\"a\":[{\"b\":1},{\"b\":{\"c\":2}}]}", NGX_OK, "-", "-", "-" },
    { "{\"a\":[{\"b\":1}],\"x\":{\"b\":1}}", NGX_OK, "-", "-", "-" },
    { "{\"x\":[1,{\"a\":1},\"a\"],\"a\":2}", NGX_OK, "2", "-", "-" },
    { "{\"a.b\":\"x\"}", NGX_OK, "-", "-", "-" },
    { "{\"\":{\"a\":\"x\"}}", NGX_OK, "-", "-", "-" },
    { "{\"a\":{\"\":{\"b\":\"x\"}}}", NGX_OK, "-", "-", "-" },
    { "{\"A\":\"x\",\"aa\":\"y\"}", NGX_OK, "-", "-", "-" },

    /* of two, the last */

    { "{\"a\":\"x\",\"a\":\"y\"}", NGX_OK, "y", "-", "-" },
    { "{\"a\":\"x\",\"a\":{\"b\":1}}", NGX_OK, "x", "1", "-" },

    /* no object, or not wholly */

    { "", NGX_DECLINED, "-", "-", "-" },
    { "  ", NGX_DECLINED, "-", "-", "-" },
    { "[]", NGX_DECLINED, "-", "-", "-" },
    { "[{\"a\":1}]", NGX_DECLINED, "-", "-", "-" },
    { "null", NGX_DECLINED, "-", "-", "-" },
    { "true", NGX_DECLINED, "-", "-", "-" },
    { "1", NGX_DECLINED, "-", "-", "-" },
    { "\"a\"", NGX_DECLINED, "-", "-", "-" },
    { "{", NGX_DECLINED, "-", "-", "-" },
    { "{\"x\":1", NGX_DECLINED, "-", "-", "-" },
    { "{\"x\":\"1", NGX_DECLINED, "-", "-", "-" },
    { "{\"x\":1}}", NGX_DECLINED, "-", "-", "-" },
    { "{\"x\":1}{", NGX_DECLINED, "-", "-", "-" },
    { "{\"x\":1} x", NGX_DECLINED, "-", "-", "-" },
    { "{\"x\":01}", NGX_DECLINED, "-", "-", "-" },
    { "{\"x\":1,}", NGX_DECLINED, "-", "-", "-" },
    { "{x:1}", NGX_DECLINED, "-", "-", "-" },
    { "{\"x\":\"\xff\"}", NGX_DECLINED, "-", "-", "-" },
    { "<html><body>502</body></html>", NGX_DECLINED, "-", "-", "-" },

    { NULL, 0, NULL, NULL, NULL }
};


static ngx_int_t
read_text(ngx_pool_t *pool, const char *data, size_t len, values_t *v)
{
    ngx_int_t  rc;
    ngx_str_t  doc;

    v->a = unit_str("-");
    v->ab = unit_str("-");
    v->abc = unit_str("-");
    v->u = unit_str("-");

    doc.len = len;
    doc.data = unit_dup(data, len);

    rc = ngx_modelgw_document_read(pool, &doc, slots, v);

    unit_free(doc.data);

    return rc;
}


static void
test_read(void **state)
{
    case_t    *c;
    values_t   v;

    for (c = cases; c->doc; c++) {
        assert_int_equal(read_text(*state, c->doc, strlen(c->doc), &v), c->rc);

        unit_assert_str(v.a.data, v.a.len, c->a);
        unit_assert_str(v.ab.data, v.ab.len, c->ab);
        unit_assert_str(v.abc.data, v.abc.len, c->abc);
    }
}


static void
test_read_odd_text(void **state)
{
    values_t  v;

    assert_int_equal(read_text(*state, "{\"a\":\"x\\u0000y\"}", 16, &v),
                     NGX_OK);
    assert_int_equal(v.a.len, 3);
    assert_memory_equal(v.a.data, "x\0y", 3);

    assert_int_equal(read_text(*state, "{\"\xc3\xbc\":\"y\"}", 10, &v),
                     NGX_OK);
    unit_assert_str(v.u.data, v.u.len, "y");

    assert_int_equal(read_text(*state, "{\"a\":\"x\0y\"}", 11, &v),
                     NGX_DECLINED);
}


static void
test_read_depth(void **state)
{
    char       doc[1024], *p;
    ngx_int_t  depth, i, rc;
    values_t   v;

    for (depth = 1; depth < 100; depth++) {
        p = doc;

        for (i = 0; i < depth; i++) {
            p = (char *) ngx_cpymem(p, "{\"a\":", 5);
        }

        *p++ = '1';

        for (i = 0; i < depth; i++) {
            *p++ = '}';
        }

        rc = read_text(*state, doc, p - doc, &v);

        assert_int_equal(rc, depth <= NGX_MODELGW_DOCUMENT_MAX_DEPTH ? NGX_OK
                                                        : NGX_DECLINED);
    }
}


/* keys longer than any path, and paths that would be */

static void
test_read_long_path(void **state)
{
    char      doc[2048];
    size_t    n, len;
    values_t  v;

    for (n = 1; n < 600; n++) {
        len = sprintf(doc, "{\"%0*d\":{\"%0*d\":{\"a\":1}},\"a\":\"x\"}",
                      (int) n, 0, (int) (600 - n), 0);

        assert_int_equal(read_text(*state, doc, len, &v), NGX_OK);
        unit_assert_str(v.a.data, v.a.len, "x");
    }
}


/*
 * The arena is enough for the longest documents: all escapes, one long token,
 * tokens that the end cuts.
 */

static void
test_read_large(void **state)
{
    char       *doc;
    size_t      len, i, n;
    values_t    v;

    static size_t  lens[] = { 2040, 2041, 2048, 4096, 65535, 65536, 65537,
                              NGX_MODELGW_DOCUMENT_MAX_SIZE };

    doc = malloc(NGX_MODELGW_DOCUMENT_MAX_SIZE + 1);
    assert_non_null(doc);

    memset(doc, ' ', NGX_MODELGW_DOCUMENT_MAX_SIZE + 1);
    memcpy(doc, "{}", 2);

    assert_int_equal(read_text(*state, doc, NGX_MODELGW_DOCUMENT_MAX_SIZE, &v),
                     NGX_OK);
    assert_int_equal(read_text(*state, doc, NGX_MODELGW_DOCUMENT_MAX_SIZE + 1,
                               &v),
                     NGX_DECLINED);

    for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        len = lens[i];

        memset(doc, 'x', len);
        memcpy(doc, "{\"a\":\"\\n", 8);
        memcpy(doc + len - 2, "\"}", 2);

        assert_int_equal(read_text(*state, doc, len, &v), NGX_OK);
        assert_int_equal(v.a.len, len - 9);
        assert_int_equal(v.a.data[0], '\n');

        for (n = 1; n < v.a.len; n++) {
            assert_int_equal(v.a.data[n], 'x');
        }

        /* two tokens, and the end cuts the second */

        for (n = 7; n < len / 2 - 10; n += 2) {
            memcpy(doc + n, "\\t", 2);
        }

        memcpy(doc + len / 2 - 9, "\",\"b\":\"\\n", 9);

        assert_int_equal(read_text(*state, doc, len, &v), NGX_OK);
        assert_int_equal(read_text(*state, doc, len - 2, &v), NGX_DECLINED);
        assert_int_equal(read_text(*state, doc, len - 1, &v), NGX_DECLINED);
    }

    free(doc);
}


/* what is written reads back the same */

static void
test_write_read(void **state)
{
    values_t                  v;
    ngx_str_t                 s, doc;
    ngx_uint_t                ch;
    u_char                    text[4];
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_piece_t   piece;

    for (ch = 0; ch < 0x80; ch++) {
        text[0] = 'x';
        text[1] = ch;
        text[2] = ch;

        s.len = 3;
        s.data = text;

        ngx_modelgw_out_piece(&out, &piece, *state, 64);
        ngx_modelgw_out_text(&out, "{\"a\":");
        ngx_modelgw_out_string(&out, &s);
        ngx_modelgw_out_text(&out, "}");
        assert_int_equal(ngx_modelgw_out_piece_done(&out, &doc), NGX_OK);

        assert_int_equal(read_text(*state, (char *) doc.data, doc.len, &v),
                         NGX_OK);
        assert_int_equal(v.a.len, 3);
        assert_memory_equal(v.a.data, text, 3);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_read),
        unit_case(test_read_odd_text),
        unit_case(test_read_depth),
        unit_case(test_read_long_path),
        unit_case(test_read_large),
        unit_case(test_write_read),
    };

    return cmocka_run_group_tests_name("document", tests, NULL, NULL);
}
