
/*
 * The fast paths of the scanner against the slow ones.  Read whole, and with
 * room after it, a document is read by the loop over members and the fast
 * forms of keys and strings; read byte by byte it is read by none of them.
 * Whatever is damaged in it at any byte, both must give the same result.
 */


#include "unit_scan.h"


#define ROOM  64                         /* blanks: room to look ahead */


static ngx_modelgw_scan_watch_t  watches[] = {
    { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("aKey"), NGX_MODELGW_SCAN_ANY },
    { ngx_string("usage"), NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("usage.n"), NGX_MODELGW_SCAN_COUNT },
    { ngx_string("keys"), NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_KEYS },
    { ngx_string("keys.k"), NGX_MODELGW_SCAN_STRING|NGX_MODELGW_SCAN_NULL },
    { ngx_string("other"), NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_ARRAY }
};

#define NWATCHES  (sizeof(watches) / sizeof(watches[0]))


static ngx_str_t  denied[] = { ngx_string("models"), ngx_string("apiBase") };


static ngx_modelgw_scan_mark_t  marks[] = {
    { ngx_string("url"), ngx_null_string },
    { ngx_string("type"), ngx_string("image") },
    { ngx_string("type"), ngx_string("doc") },
    { ngx_string("sixteen_bytes_16"), ngx_null_string }
};

#define NMARKS  (sizeof(marks) / sizeof(marks[0]))


static const char  *docs[] = {
    "{\"model\":\"m\",\"x\":{\"type\":\"image_url\",\"url\":{\"a\":{\"b\":{}}},"
    "\"sixteen_bytes_16\":\"seventeen bytes 1\",\"z\":[{\"type\":\"doc\"}]}}",

    "{\"aKey\": \"a\", \"usage\": {\"n\": 12, \"m\": {\"type\": \"text\"}}, "
    "\"keys\": {\"k\": \"longer than sixteen bytes\", \"l\": {\"\": \"\"}}}",

    "{\"other\":{\"a\":{\"url\":\"x\\n\\u0061\"},\"type\":\"image\"},\"fifteen_"
    "bytes_x\":{\"seventeen_bytes_x\":{\"url\":null}},\"\xc3\xa9\":true}"
};


/* what replaces a byte, or is inserted before it */

static const char  bytes[] = "\"\\:,{}[] \n0-tuaK\x1f\x7f\x80\xc3\xc5";


static void
read_doc(ngx_modelgw_scan_t *s, u_char *doc, size_t len, size_t chunk,
    unit_scan_t *r, ngx_uint_t *counts)
{
    ngx_uint_t  i;

    unit_scan_once(s, NWATCHES, doc, len, chunk, r);

    for (i = 0; i < NMARKS; i++) {
        counts[i] = ngx_modelgw_scan_mark(s, i);
    }
}


static void
agree(ngx_modelgw_scan_t *s, u_char *doc, size_t len)
{
    ngx_uint_t   fast[NMARKS], slow[NMARKS];
    unit_scan_t  a, b;

    memset(doc + len, ' ', ROOM);
    len += ROOM;

    read_doc(s, doc, len, len, &a, fast);
    read_doc(s, doc, len, 1, &b, slow);

    unit_scan_same(&b, &a, "whole", len, doc, len);
    assert_memory_equal(fast, slow, sizeof(fast));
}


static void
test_broken_anywhere(void **state)
{
    size_t                    len, at;
    u_char                    doc[512];
    ngx_uint_t                i, k, n;
    ngx_modelgw_scan_t       *s;
    ngx_modelgw_scan_conf_t   conf;

    ngx_memzero(&conf, sizeof(conf));

    conf.watches = watches;
    conf.nwatches = NWATCHES;
    conf.denied = denied;
    conf.ndenied = 2;
    conf.skip = ngx_modelgw_skip_variants(&n)[0].skip;
    conf.marks = marks;

    for (n = 0; n < 4; n++) {
        conf.check = n & 1;
        conf.nmarks = (n & 2) ? NMARKS : 0;

        s = ngx_modelgw_scan_create(*state, &conf);
        assert_non_null(s);

        for (i = 0; i < sizeof(docs) / sizeof(docs[0]); i++) {
            len = strlen(docs[i]);

            for (at = 0; at < len; at++) {

                memcpy(doc, docs[i], at);
                memcpy(doc + at, docs[i] + at + 1, len - at - 1);
                agree(s, doc, len - 1);

                for (k = 0; k < sizeof(bytes); k++) {
                    memcpy(doc, docs[i], len);
                    doc[at] = (u_char) bytes[k];
                    agree(s, doc, len);

                    memcpy(doc + at + 1, docs[i] + at, len - at);
                    agree(s, doc, len + 1);
                }
            }
        }
    }
}


/* as deep as it may be, and deeper */

static void
test_deep(void **state)
{
    u_char                    doc[2048], *p;
    ngx_uint_t                n, i;
    unit_scan_t               r;
    ngx_modelgw_scan_t       *s;
    ngx_modelgw_scan_conf_t   conf;

    ngx_memzero(&conf, sizeof(conf));
    conf.skip = ngx_modelgw_skip_variants(&n)[0].skip;

    s = ngx_modelgw_scan_create(*state, &conf);
    assert_non_null(s);

    for (n = NGX_MODELGW_SCAN_MAX_DEPTH - 2;
         n < NGX_MODELGW_SCAN_MAX_DEPTH + 2;
         n++)
    {
        p = doc;

        for (i = 0; i < n; i++) {
            p = ngx_cpymem(p, "{\"k\":", 5);
        }

        p = ngx_cpymem(p, "\"\"", 2);

        for (i = 0; i < n; i++) {
            *p++ = '}';
        }

        agree(s, doc, p - doc);

        unit_scan_once(s, 0, doc, p - doc + ROOM, p - doc + ROOM, &r);
        assert_int_equal(r.rc, (n <= NGX_MODELGW_SCAN_MAX_DEPTH)
                               ? NGX_OK : NGX_DECLINED);
    }
}


/* keys are compared by hashes of two kinds, and folded in words and bytes */

static void
test_keys(void **state)
{
    u_char                    doc[2048];
    ngx_str_t                 text;
    ngx_uint_t                i, n;
    ngx_modelgw_scan_t       *s;
    ngx_modelgw_scan_conf_t   conf;

    static const struct {
        const char  *keys;
        const char  *fault;
    } cases[] = {
        { "\"a\":1,\"b\":2,\"ab\":3,\"\":4", "" },
        { "\"a\":1,\"\\u0000\":2,\"a\\u0000\":3,\"\":4", "" },
        { "\"a\":1,\"b\\u0000\":2", "" },
        { "\"\":1,\"\":2", "\"\" is given twice" },
        { "\"eightbyt\":1,\"eightbyte\":2,\"eightby\":3", "" },
        { "\"eightbyt\":1,\"\\u0065ightbyt\":2",
          "\"eightbyt\" is given twice" },
        { "\"MODEL\":1", "\"MODEL\" must be written \"model\"" },
        { "\"mo\\u0044el\":1", "\"moDel\" must be written \"model\"" },
        { "\"akey\":1", "\"akey\" must be written \"aKey\"" },
        { "\"a\xe2\x84\xaa" "ey\":1",
          "\"a\xe2\x84\xaa" "ey\" must be written \"aKey\"" },
        { "\"APIBASE\":1", "\"APIBASE\" is not allowed" },
        { "\"apiba\xc5\xbf" "e\":1",
          "\"apiba\xc5\xbf" "e\" is not allowed" },
        { "\"model[\":1,\"@odel\":2,\"mod`el\":3,\"aKey\":4", "" },
        { "\"usage\":{\"models\":2,\"n\":3,\"n\":4}", "" },
        { "\"usage\":{\"n\":3,\"N\":1}",
          "\"usage.N\" must be written \"n\"" },
        { "\"x\":{\"N\":1,\"usage\":{\"N\":1}}", "" },
        { "\"keys\":{\"models\":1,\"K\":1}",
          "\"keys.K\" must be written \"k\"" },
        { "\"keys\":{\"models\":1,\"\xe2\x84\xaa\":1}",
          "\"keys.\xe2\x84\xaa\" must be written \"k\"" }
    };

    ngx_memzero(&conf, sizeof(conf));
    conf.watches = watches;
    conf.nwatches = NWATCHES;
    conf.denied = denied;
    conf.ndenied = 2;
    conf.check = 1;
    conf.skip = ngx_modelgw_skip_variants(&n)[0].skip;

    s = ngx_modelgw_scan_create(*state, &conf);
    assert_non_null(s);

    text.data = doc + sizeof(doc) - NGX_MODELGW_SCAN_FAULT_LEN;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        n = snprintf((char *) doc, sizeof(doc), "{%s}%64s", cases[i].keys, "");

        ngx_modelgw_scan_reset(s);
        text.len = 0;

        if (ngx_modelgw_scan_feed(s, doc, n) != NGX_OK) {
            assert_int_equal(ngx_modelgw_scan_fault(s, &text),
                             NGX_MODELGW_SCAN_FIELD);
        }

        unit_assert_str(text.data, text.len, cases[i].fault);
        agree(s, doc, n - 64);
    }
}


/* keys longer than there is room for are compared by all their bytes */

static void
test_long_keys(void **state)
{
    size_t                    len, at;
    u_char                    doc[2048], *p;
    ngx_uint_t                n;
    unit_scan_t               r;
    ngx_modelgw_scan_t       *s;
    ngx_modelgw_scan_conf_t   conf;

    ngx_memzero(&conf, sizeof(conf));
    conf.check = 1;
    conf.skip = ngx_modelgw_skip_variants(&n)[0].skip;

    s = ngx_modelgw_scan_create(*state, &conf);
    assert_non_null(s);

    for (len = 180; len < 210; len++) {
        for (at = 0; at <= len; at++) {
            p = doc;
            *p++ = '{';

            for (n = 0; n < 2; n++) {
                *p++ = '"';
                memset(p, 'k', len);

                if (n && at < len) {
                    p[at] = 'l';
                }

                p += len;
                p = ngx_cpymem(p, "\":1,", 4);
            }

            p[-1] = '}';

            unit_scan_once(s, 0, doc, p - doc, p - doc, &r);
            assert_int_equal(r.rc, (at < len) ? NGX_OK : NGX_DECLINED);

            agree(s, doc, p - doc);
        }
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_broken_anywhere),
        unit_case(test_deep),
        unit_case(test_keys),
        unit_case(test_long_keys)
    };

    return cmocka_run_group_tests_name("scan_member", tests, NULL, NULL);
}
