
/*
 * Marked members are counted, wherever they are and however they are written.
 * Each document is read at all chunk sizes, and cut in two at every byte, with
 * every variant of the string loop.
 */


#include "unit_scan.h"


/* 63 bytes: no name is longer */

#define LONG_S  "\xc5\xbf"               /* U+017F */
#define KELVIN  "\xe2\x84\xaa"           /* U+212A */

#define LONG                                                                  \
    "a_name_of_63_bytes_0123456789_0123456789_0123456789_0123456789x"


enum {
    M_URL = 0, M_URL_DATA, M_TYPE_IMAGE, M_TYPE_IMAGES, M_TYPE_DOC, M_FILE,
    M_FILE_ID, M_LONG, M_MODEL, M_CAT, M_CAT_CAT, M_DEEP, M_ODD, M_N
};


static ngx_modelgw_scan_mark_t  marks[] = {
    { ngx_string("url"), ngx_null_string },
    { ngx_string("url"), ngx_string("data:") },
    { ngx_string("type"), ngx_string("image") },
    { ngx_string("type"), ngx_string("images") },
    { ngx_string("type"), ngx_string("\"doc\\\n") },
    { ngx_string("file"), ngx_null_string },
    { ngx_string("file_id"), ngx_null_string },
    { ngx_string(LONG), ngx_null_string },
    { ngx_string("model"), ngx_string("gp") },
    { ngx_string("\xf0\x9f\x98\xb9"), ngx_null_string },
    { ngx_string("cat"), ngx_string("x\xf0\x9f\x98\xb9") },
    { ngx_string("deep"), ngx_string("d") },
    { ngx_string("mas@_kiss[at|k_"), ngx_null_string }
};


/* objects of all kinds: checked, watched and entered, watched, neither */

static ngx_modelgw_scan_watch_t  watches[] = {
    { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("stream_options"), NGX_MODELGW_SCAN_OBJECT
      |NGX_MODELGW_SCAN_NULL|NGX_MODELGW_SCAN_KEYS },
    { ngx_string("usage"), NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("usage.url"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("other"), NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_ARRAY }
};


typedef struct {
    const char  *doc;
    ngx_uint_t   mark;
    ngx_uint_t   n;
} case_t;



static case_t  cases[] = {

    /* everywhere */

    { "{\"url\":1}", M_URL, 1 },
    { "{ \"url\" : null , \"x\" : { \"url\" : [ ] } }", M_URL, 2 },
    { "{\"x\":[{\"url\":1},[[{\"url\":{\"url\":[]}}]],3,\"url\"]}", M_URL, 3 },
    { "{\"usage\":{\"url\":\"x\",\"y\":{\"url\":1}}}", M_URL, 2 },
    { "{\"usage\":[{\"url\":\"x\"},{\"y\":{\"url\":1}}]}", M_URL, 2 },
    { "{\"other\":{\"url\":\"x\",\"y\":{\"url\":1}}}", M_URL, 2 },
    { "{\"other\":[{\"url\":\"x\"},{\"y\":{\"url\":1}}],\"file\":1}", M_URL,
      2 },
    { "{\"stream_options\":{\"url\":\"x\",\"y\":{\"url\":1}}}", M_URL, 2 },
    { "{\"x\":{\"y\":{\"file\":{\"file_id\":7}},\"file\":3}}", M_FILE, 2 },
    { "{\"x\":{\"y\":{\"file\":{\"file_id\":7}},\"file\":3}}", M_FILE_ID, 1 },
    { "{\"x\":{\"" LONG "\":1,\"" LONG "0\":2},\"" LONG "\":3}", M_LONG, 2 },
    { "{\"a\":[{\"url\":1},{\"url\":2},{\"url\":3},{\"url\":4}]}", M_URL, 4 },

    /* not another name, not a value, not inside text */

    { "{\"urls\":1,\"ur\":2,\"u\":3,\"\":4,\"url \":6,\"lru\":7}",
      M_URL, 0 },
    { "{\"x\":{\"urls\":1,\"ur\":2,\"u\":3,\"\":4,\"URLS\":5,\"LRu\":6}}",
      M_URL, 0 },
    { "{\"x\":\"url\",\"y\":[\"url\",\"url\"],\"z\":[[\"url\"]]}", M_URL, 0 },
    { "{\"x\":\"{\\\"url\\\":1}\",\"y\":[\"{\\\"url\\\":1}\"]}", M_URL, 0 },
    { "{\"x\":{\"\\\"url\":1,\"url\\\"\":2,\"u\\nrl\":3}}", M_URL, 0 },
    { "{\"x\":{\"" LONG "x\":1,\"x" LONG "\":2}}", M_LONG, 0 },

    /* escapes */

    { "{\"ur\\u006c\":1,\"x\":{\"\\u0075\\u0072\\u006c\":2}}", M_URL, 2 },
    { "{\"x\":[{\"\\u0075rl\":1},{\"u\\u0072l\":1},{\"ur\\u006C\":1}]}",
      M_URL, 3 },
    { "{\"x\":{\"ur\\u006d\":1,\"ur\\u006cx\":2,\"\\u0075url\":3}}", M_URL, 0 },
    { "{\"x\":\"\\u0075\",\"y\":{\"url\":\"\\u0075\",\"url2\":1}}", M_URL, 1 },
    { "{\"\xf0\x9f\x98\xb9\":1,\"x\":{\"\xf0\x9f\x98\xb9\":2}}", M_CAT, 2 },
    { "{\"\\ud83d\\ude39\":1,\"x\":{\"\\uD83D\\uDE39\":2}}", M_CAT, 2 },
    { "{\"x\":{\"\\ud83d\":1,\"\\ude39\\ud83d\":2,\"\\ud83d\xf0\x9f\x98\xb9\":"
      "3,\"\\ud83d\\ud83d\\ude39\":4}}", M_CAT, 0 },
    { "{\"x\":{\"url\\ud83d\":1,\"\\ude39url\":2,\"u\\ud83drl\":3}}", M_URL,
      0 },
    { "{\"x\":{\"\\u0000url\":1,\"url\\u0000\":2}}", M_URL, 0 },

    /* any letter case of the name, none of the value */

    { "{\"URL\":1,\"x\":{\"Url\":2,\"uRL\":3,\"urls\":4}}", M_URL, 3 },
    { "{\"x\":{\"type\":\"text\",\"Type\":\"image\",\"TYPE\":\"Image\"}}",
      M_TYPE_IMAGE, 1 },
    { "{\"x\":{\"File_Id\":1,\"FILE_ID\":2,\"file_iD\":3,\"file?id\":4,"
      "\"file\x7fid\":5,\"FILE_\\u0069D\":6}}", M_FILE_ID, 4 },
    { "{\"x\":[{\"Model\":\"gp\",\"MODEL\":\"GP\"}]}", M_MODEL, 1 },

    /* a letter with one bit changed, and bytes that are not letters */

    { "{\"x\":{\"5rl\":1,\"u2l\":2,\"urL\":3,\"ur,\":4,\"u\\u0012l\":5}}",
      M_URL, 1 },
    { "{\"x\":{\"mas@_kiss[at|k_\":1,\"mas`_kiss{at\\\\k_\":2,"
      "\"MAS@_kiss[at|K_\":3,\"mas@_kiss{at|k_\":4,\"mas`_kiss[at|k_\":5,"
      "\"mas@_kiss[at\\u007ck_\":6}}", M_ODD, 3 },

    /* U+017F and U+212A; not U+0131, nor their neighbours, nor halves */

    { "{\"x\":{\"ma" LONG_S "@_" KELVIN "i" LONG_S "S[AT|" KELVIN "_\":1,"
      "\"MA" LONG_S "@_ki\\u017fs[at|\\u212A_\":2,"
      "\"\\u006da\\u017F@_\\u212ai" LONG_S "s[at|k_\":3}}", M_ODD, 3 },
    { "{\"ma" LONG_S "@_kiss[at|k_\":[{\"mas@_kiss[at|" KELVIN "_\":3}]}",
      M_ODD, 2 },
    { "{\"x\":{\"ma\xc5\xbe@_kiss[at|k_\":1,\"mas@_\xe2\x84\xabiss[at|k_\":2,"
      "\"ma\xc6\xbf@_kiss[at|k_\":3,\"mas@_kiss[at|\xe2\x85\xaa_\":4}}",
      M_ODD, 0 },
    { "{\"x\":{\"f\xc4\xb1le\":1,\"f\\u0130le\":2,\"file" KELVIN "\":3}}",
      M_FILE, 0 },

    /* values: strings that begin so */

    { "{\"type\":\"image\",\"x\":{\"type\":\"image\"}}", M_TYPE_IMAGE, 2 },
    { "{\"x\":[{\"type\":\"image\"},{\"type\":\"image_url\"},{\"type\":"
      "\"images\"},{\"type\":\"imag\"},{\"type\":\"\"},{\"type\":\"Image\"},"
      "{\"type\":\" image\"},{\"type\":\"text\"}]}", M_TYPE_IMAGE, 3 },
    { "{\"x\":[{\"type\":\"image\"},{\"type\":\"images\"}]}", M_TYPE_IMAGES,
      1 },
    { "{\"x\":{\"type\" : \"im\\u0061ge\"},\"type\":\"\\u0069mage\\ud83d\"}",
      M_TYPE_IMAGE, 2 },
    { "{\"x\":{\"type\":\"\\ud83dimage\"},\"type\":\"im\\ude39age\"}",
      M_TYPE_IMAGE, 0 },
    { "{\"x\":{\"t\\u0079pe\":\"image\"},\"y\":{\"\\u0074ype\":\"\\u0069mag"
      "\\u0065\"}}", M_TYPE_IMAGE, 2 },
    { "{\"x\":{\"type\":\"\\\"doc\\\\\\nx\"},\"type\":\"\\u0022doc\\u005c"
      "\\u000a\"}", M_TYPE_DOC, 2 },
    { "{\"x\":{\"type\":\"\\\"doc\\\\n\"}}", M_TYPE_DOC, 0 },
    { "{\"x\":{\"url\":\"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAA"
      "FCAYAAACNbyblAAAAHEl\"},\"url\":\"data\"}", M_URL_DATA, 1 },
    { "{\"x\":{\"url\":\"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAA"
      "FCAYAAACNbyblAAAAHEl\"},\"url\":\"data\"}", M_URL, 2 },
    { "{\"x\":{\"cat\":\"x\\ud83d\\ude39\"},\"cat\":\"x\xf0\x9f\x98\xb9y\"}",
      M_CAT_CAT, 2 },
    { "{\"x\":{\"cat\":\"x\\ud83d\"},\"cat\":\"x\\ude39\\ud83d\"}", M_CAT_CAT,
      0 },

    /* watched, too */

    { "{\"model\":\"gpx\",\"x\":{\"model\":\"gp\"}}", M_MODEL, 2 },
    { "{\"model\":\"g\\u0070\\ud83d\"}", M_MODEL, 1 },
    { "{\"model\":\"\\ud83dgp\"}", M_MODEL, 0 },
    { "{\"usage\":{\"url\":\"data:\"}}", M_URL_DATA, 1 },
    { "{\"usage\":{\"url\":\"dat\\u0061:x\"},\"url\":\"data:\"}", M_URL_DATA,
      2 },

    /* the string is not the member's value */

    { "{\"type\":[\"image\"],\"x\":{\"type\":[[\"image\"],\"image\"]}}",
      M_TYPE_IMAGE, 0 },
    { "{\"type\":{\"x\":\"image\"},\"y\":\"image\"}", M_TYPE_IMAGE, 0 },
    { "{\"type\":7,\"x\":\"image\",\"y\":[{\"type\":null},\"image\"]}",
      M_TYPE_IMAGE, 0 },
    { "{\"a\":[{\"type\":{}},\"image\",{\"b\":\"image\"}]}", M_TYPE_IMAGE, 0 },
    { "{\"a\":[{\"type\":[]},{\"b\":\"image\"},{\"type\":\"image\"}]}",
      M_TYPE_IMAGE, 1 },
    { "{\"x\":\"type\",\"y\":\"image\",\"z\":[\"type\",\"image\"]}",
      M_TYPE_IMAGE, 0 },
    { "{\"x\":{\"type\":\"text\",\"y\":\"image\"}}", M_TYPE_IMAGE, 0 },

    { NULL, 0, 0 }
};


static ngx_modelgw_scan_conf_t  conf = {
    watches, sizeof(watches) / sizeof(watches[0]), 0, NULL, 0, NULL,
    marks, M_N
};


/* the document in pieces: of first bytes, then of chunk */

static void
count(ngx_modelgw_scan_t *s, const char *doc, size_t len, size_t first,
    size_t chunk, ngx_uint_t *counts)
{
    size_t       n, size;
    u_char      *piece;
    ngx_uint_t   i;

    ngx_modelgw_scan_reset(s);

    for (n = 0; n < len; n += size) {
        size = ngx_min((n == 0 && first) ? first : chunk, len - n);

        piece = unit_dup(doc + n, size);
        assert_int_equal(ngx_modelgw_scan_feed(s, piece, size), NGX_OK);
        unit_free(piece);
    }

    assert_int_equal(ngx_modelgw_scan_done(s), NGX_OK);

    for (i = 0; i < M_N; i++) {
        counts[i] = ngx_modelgw_scan_mark(s, i);
    }
}


static void
expect(ngx_modelgw_scan_t *s, case_t *c)
{
    char        padded[1024];
    size_t      len, n, chunk;
    ngx_uint_t  i, whole[M_N], other[M_N];

    len = strlen(c->doc);

    /* with room to look ahead everywhere */

    n = snprintf(padded, sizeof(padded), "%s%64s", c->doc, "");
    count(s, padded, n, 0, n, other);
    assert_int_equal(other[c->mark], c->n);

    count(s, c->doc, len, 0, len, whole);

    if (whole[c->mark] != c->n) {
        print_error("%s: mark %d: %d instead of %d\n", c->doc, (int) c->mark,
                    (int) whole[c->mark], (int) c->n);
        fail();
    }

    for (i = 0; (chunk = unit_chunk(i, len)) != 0; i++) {
        count(s, c->doc, len, 0, chunk, other);
        assert_memory_equal(whole, other, sizeof(whole));
    }

    for (n = 1; n < len; n++) {
        count(s, c->doc, len, n, len, other);

        if (memcmp(whole, other, sizeof(whole)) != 0) {
            print_error("%s: cut before byte %d\n", c->doc, (int) n);
            fail();
        }
    }
}


static void
test_marks(void **state)
{
    case_t                      *c;
    ngx_uint_t                   k, n;
    ngx_modelgw_skip_variant_t  *v;

    v = ngx_modelgw_skip_variants(&n);

    for (k = 0; k < n; k++) {
        conf.skip = v[k].skip;

        for (c = cases; c->doc; c++) {
            conf.check = 0;
            expect(ngx_modelgw_scan_create(*state, &conf), c);

            conf.check = 1;
            expect(ngx_modelgw_scan_create(*state, &conf), c);
        }
    }
}


/* every casing of a name, at every place where keys are read differently */

static void
test_casings(void **state)
{
    char                         doc[256], name[8];
    case_t                       c;
    ngx_uint_t                   i, k, n, bits;
    ngx_modelgw_scan_t          *s;
    ngx_modelgw_skip_variant_t  *v;

    static const char  *docs[] = {
        "{\"%s\":1}",
        "{\"stream_options\":{\"%s\":1}}",
        "{\"other\":[{\"x\":{\"%s\":1}},{}]}",
        "{\"x\":{\"y\":[[{\"a\":\"b\",\"%s\":{}}]]}}"
    };

    c.doc = doc;
    c.mark = M_FILE_ID;
    c.n = 1;

    v = ngx_modelgw_skip_variants(&n);

    conf.check = 1;
    conf.skip = v[0].skip;

    s = ngx_modelgw_scan_create(*state, &conf);
    assert_non_null(s);

    for (bits = 0; bits < 128; bits++) {
        memcpy(name, "file_id", 8);

        for (i = 0, k = 0; name[i]; i++) {
            if (name[i] != '_' && (bits & (1 << k++))) {
                name[i] -= 'a' - 'A';
            }
        }

        for (i = 0; i < sizeof(docs) / sizeof(docs[0]); i++) {
            sprintf(doc, docs[i], name);
            expect(s, &c);
        }
    }
}


/* counted at the end of the key, or of the value */

static void
test_when(void **state)
{
    ngx_uint_t           n;
    const char          *p;
    ngx_modelgw_scan_t  *s;

    static const char  doc[] = "{\"x\":{\"url\":\"data:x\",\"type\":\"image\"}";

    conf.check = 0;
    conf.skip = ngx_modelgw_skip_variants(&n)[0].skip;

    s = ngx_modelgw_scan_create(*state, &conf);

    for (p = doc; *p; p++) {
        assert_int_equal(ngx_modelgw_scan_mark(s, M_URL), p >= doc + 11);
        assert_int_equal(ngx_modelgw_scan_mark(s, M_URL_DATA), p >= doc + 20);
        assert_int_equal(ngx_modelgw_scan_mark(s, M_TYPE_IMAGE),
                         p >= doc + 35);
        assert_int_equal(ngx_modelgw_scan_feed(s, (u_char *) p, 1), NGX_OK);
    }

    /* a reset clears what was read, inside a value, too */

    ngx_modelgw_scan_reset(s);
    assert_int_equal(ngx_modelgw_scan_mark(s, M_URL), 0);
    assert_int_equal(ngx_modelgw_scan_mark(s, M_URL_DATA), 0);

    assert_int_equal(ngx_modelgw_scan_feed(s, (u_char *) "{\"type\":", 8),
                     NGX_OK);
    ngx_modelgw_scan_reset(s);
    assert_int_equal(ngx_modelgw_scan_feed(s, (u_char *) "{\"x\":\"image\"}",
                                           13), NGX_OK);
    assert_int_equal(ngx_modelgw_scan_done(s), NGX_OK);
    assert_int_equal(ngx_modelgw_scan_mark(s, M_TYPE_IMAGE), 0);
}


/* scanners of one plan are independent */

static void
test_plan(void **state)
{
    ngx_uint_t                n;
    ngx_modelgw_scan_t       *a, *b;
    ngx_modelgw_scan_conf_t   own;
    ngx_modelgw_scan_plan_t  *plan;

    static u_char  one[] = "{\"url\":1,\"x\":[{\"url\":2}]}";
    static u_char  two[] = "{\"file\":1,\"model\":\"m\"}";

    own = conf;
    own.skip = ngx_modelgw_skip_variants(&n)[0].skip;

    plan = ngx_modelgw_scan_plan(*state, &own);
    assert_non_null(plan);

    memset(&own, 0xa5, sizeof(own));     /* it was copied */

    a = ngx_modelgw_scan_make(*state, plan);
    b = ngx_modelgw_scan_make(*state, plan);
    assert_non_null(a);
    assert_non_null(b);

    for (n = 0; n < sizeof(one) - 1; n++) {
        assert_int_equal(ngx_modelgw_scan_feed(a, one + n, 1), NGX_OK);

        if (n < sizeof(two) - 1) {
            assert_int_equal(ngx_modelgw_scan_feed(b, two + n, 1), NGX_OK);
        }
    }

    assert_int_equal(ngx_modelgw_scan_done(a), NGX_OK);
    assert_int_equal(ngx_modelgw_scan_done(b), NGX_OK);

    assert_int_equal(ngx_modelgw_scan_mark(a, M_URL), 2);
    assert_int_equal(ngx_modelgw_scan_mark(a, M_FILE), 0);
    assert_int_equal(ngx_modelgw_scan_mark(b, M_URL), 0);
    assert_int_equal(ngx_modelgw_scan_mark(b, M_FILE), 1);
    assert_int_equal(ngx_modelgw_scan_value(a, 0)->type,
                     NGX_MODELGW_SCAN_ABSENT);
    unit_assert_str(ngx_modelgw_scan_value(b, 0)->text,
                    ngx_modelgw_scan_value(b, 0)->len, "m");
}


/* names that share a slot, and as many marks as there may be */

static void
test_crowded(void **state)
{
    char                      names[NGX_MODELGW_SCAN_MAX_MARKS][8], doc[1024];
    size_t                    len;
    ngx_uint_t                i, k, n;
    ngx_modelgw_scan_t       *s;
    ngx_modelgw_scan_mark_t   many[NGX_MODELGW_SCAN_MAX_MARKS];
    ngx_modelgw_scan_conf_t   own;

    own = conf;
    own.check = 0;
    own.skip = ngx_modelgw_skip_variants(&n)[0].skip;
    own.marks = many;
    own.nmarks = NGX_MODELGW_SCAN_MAX_MARKS;

    memset(many, 0, sizeof(many));

    for (i = 0; i < own.nmarks; i++) {
        sprintf(names[i], "k%02dk", (int) i);
        many[i].name = unit_str(names[i]);
    }

    s = ngx_modelgw_scan_create(*state, &own);
    assert_non_null(s);

    for (k = 0; k < own.nmarks; k++) {
        len = sprintf(doc, "{\"x\":[{\"%s\":1},{\"%s\":2}],\"k99k\":3}",
                      names[k], names[k]);

        ngx_modelgw_scan_reset(s);
        assert_int_equal(ngx_modelgw_scan_feed(s, (u_char *) doc, len),
                         NGX_OK);
        assert_int_equal(ngx_modelgw_scan_done(s), NGX_OK);

        for (i = 0; i < own.nmarks; i++) {
            assert_int_equal(ngx_modelgw_scan_mark(s, i), (i == k) ? 2 : 0);
        }
    }
}


static void
test_bad_marks(void **state)
{
    ngx_uint_t                i;
    u_char                    long_name[NGX_MODELGW_SCAN_MARK_LEN + 1];
    ngx_modelgw_scan_mark_t   mark;
    ngx_modelgw_scan_conf_t   own;

    static ngx_str_t  bad[] = {
        ngx_null_string, ngx_string("a\"b"), ngx_string("\\"),
        ngx_string("a/b"), ngx_string("a\nb"), ngx_string("a\0b"),
        ngx_string("aB"), ngx_string(LONG_S), ngx_string("a" KELVIN)
    };

    own = conf;
    own.marks = &mark;
    own.nmarks = 1;

    ngx_memzero(&mark, sizeof(mark));

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        mark.name = bad[i];
        assert_null(ngx_modelgw_scan_plan(*state, &own));
        assert_null(ngx_modelgw_scan_create(*state, &own));
    }

    memset(long_name, 'x', sizeof(long_name));

    mark.name.data = long_name;
    mark.name.len = NGX_MODELGW_SCAN_MARK_LEN + 1;
    assert_null(ngx_modelgw_scan_plan(*state, &own));

    mark.name.len = NGX_MODELGW_SCAN_MARK_LEN;
    assert_non_null(ngx_modelgw_scan_plan(*state, &own));

    mark.value = mark.name;
    assert_non_null(ngx_modelgw_scan_plan(*state, &own));

    mark.value.len++;
    assert_null(ngx_modelgw_scan_plan(*state, &own));

    own.marks = marks;
    own.nmarks = NGX_MODELGW_SCAN_MAX_MARKS + 1;
    assert_null(ngx_modelgw_scan_plan(*state, &own));
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_marks),
        unit_case(test_casings),
        unit_case(test_when),
        unit_case(test_plan),
        unit_case(test_crowded),
        unit_case(test_bad_marks),
    };

    return cmocka_run_group_tests_name("scan_marks", tests, NULL, NULL);
}
