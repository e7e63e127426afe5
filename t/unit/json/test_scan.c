
/*
 * The scanner: values that are watched, keys that are checked, and the texts
 * of faults.
 */


#include "unit_scan.h"


#define LONE  (NGX_MODELGW_SCAN_TEXT + 1)


enum {
    W_MODEL = 0, W_MESSAGES, W_STREAM, W_MAX_TOKENS, W_STOP, W_TEMPERATURE,
    W_OPTIONS, W_INCLUDE, W_USAGE, W_OUTPUT, W_DETAILS, W_CACHED, W_ANY, W_N
};


static ngx_modelgw_scan_watch_t  watches[] = {
    { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("messages"), NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("stream"), NGX_MODELGW_SCAN_BOOL|NGX_MODELGW_SCAN_NULL },
    { ngx_string("max_tokens"),
      NGX_MODELGW_SCAN_COUNT|NGX_MODELGW_SCAN_NULL },
    { ngx_string("stop"), NGX_MODELGW_SCAN_STRING|NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("temperature"), NGX_MODELGW_SCAN_NUMBER },
    { ngx_string("stream_options"), NGX_MODELGW_SCAN_OBJECT
      |NGX_MODELGW_SCAN_NULL|NGX_MODELGW_SCAN_KEYS },
    { ngx_string("stream_options.include_usage"), NGX_MODELGW_SCAN_BOOL },
    { ngx_string("usage"), NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("usage.output"), NGX_MODELGW_SCAN_COUNT },
    { ngx_string("usage.details"), NGX_MODELGW_SCAN_OBJECT },
    { ngx_string("usage.details.cached"), NGX_MODELGW_SCAN_COUNT },
    { ngx_string("anyThing"), NGX_MODELGW_SCAN_ANY }
};


static ngx_str_t  denied[] = {
    ngx_string("models"), ngx_string("apiBase"), ngx_string("fallbacks")
};


static ngx_modelgw_scan_conf_t  strict = { watches, W_N, 1, denied, 3, NULL,
                                           NULL, 0 };
static ngx_modelgw_scan_conf_t  loose = { watches, W_N, 0, denied, 3, NULL,
                                          NULL, 0 };


static void
run(void **state, ngx_modelgw_scan_conf_t *conf, const char *doc,
    unit_scan_t *r)
{
    unit_scan(*state, conf, doc, strlen(doc), r);
}


static void
pass(void **state, ngx_modelgw_scan_conf_t *conf, const char *doc,
    unit_scan_t *r)
{
    run(state, conf, doc, r);

    if (r->rc != NGX_OK) {
        print_error("%s: %s\n", doc, r->fault);
        fail();
    }
}


static void
refused(void **state, const char *doc, ngx_uint_t kind, const char *fault)
{
    unit_scan_t  r;

    run(state, &strict, doc, &r);

    if (r.rc != NGX_DECLINED || r.kind != kind
        || strcmp((char *) r.fault, fault) != 0)
    {
        print_error("%s: %d, %d, \"%s\" instead of \"%s\"\n", doc, (int) r.rc,
                    (int) r.kind, r.fault, fault);
        fail();
    }
}


/* the raw token of a value */

static void
token(unit_scan_t *r, ngx_uint_t i, const char *doc, ngx_uint_t type,
    const char *raw)
{
    assert_int_equal(r->values[i].type, type);
    unit_assert_str((u_char *) doc + r->values[i].from,
                    r->values[i].to - r->values[i].from, raw);
}


static void
test_values(void **state)
{
    unit_scan_t   r;
    const char   *doc =
        " { \"model\" : \"a\\u0041\\n\\ud83d\\ude39\xc3\xa9\" ,"
        "\"messages\":[1,[2,3],{\"model\":\"x\"}], \"stream\":true,"
        "\"max_tokens\" :\n123456789 , \"stop\":[ ], \"temperature\":-1.5e3,"
        "\"stream_options\": {\"x\":1,\"include_usage\":false} ,"
        "\"usage\":{\"output\":0,\"details\":{\"a\":{\"cached\":9},"
        "\"cached\":42}},\"other\":{\"usage\":{\"output\":7}},"
        "\"anyThing\":null}";

    pass(state, &strict, doc, &r);

    token(&r, W_MODEL, doc, NGX_MODELGW_SCAN_STRING,
          "\"a\\u0041\\n\\ud83d\\ude39\xc3\xa9\"");
    unit_assert_str(r.values[W_MODEL].text, r.values[W_MODEL].len,
                    "aA\n\xf0\x9f\x98\xb9\xc3\xa9");

    token(&r, W_MESSAGES, doc, NGX_MODELGW_SCAN_ARRAY,
          "[1,[2,3],{\"model\":\"x\"}]");
    assert_int_equal(r.values[W_MESSAGES].elements, 3);

    token(&r, W_STREAM, doc, NGX_MODELGW_SCAN_TRUE, "true");

    token(&r, W_MAX_TOKENS, doc,
          NGX_MODELGW_SCAN_NUMBER|NGX_MODELGW_SCAN_COUNT, "123456789");
    unit_assert_str(r.values[W_MAX_TOKENS].text, r.values[W_MAX_TOKENS].len,
                    "123456789");

    token(&r, W_STOP, doc, NGX_MODELGW_SCAN_ARRAY, "[ ]");
    assert_int_equal(r.values[W_STOP].elements, 0);

    token(&r, W_TEMPERATURE, doc, NGX_MODELGW_SCAN_NUMBER, "-1.5e3");
    unit_assert_str(r.values[W_TEMPERATURE].text,
                    r.values[W_TEMPERATURE].len, "-1.5e3");

    token(&r, W_OPTIONS, doc, NGX_MODELGW_SCAN_OBJECT,
          "{\"x\":1,\"include_usage\":false}");
    assert_int_equal(r.values[W_OPTIONS].elements, 2);
    token(&r, W_INCLUDE, doc, NGX_MODELGW_SCAN_FALSE, "false");

    assert_int_equal(r.values[W_USAGE].elements, 2);
    token(&r, W_OUTPUT, doc,
          NGX_MODELGW_SCAN_NUMBER|NGX_MODELGW_SCAN_COUNT, "0");
    token(&r, W_CACHED, doc,
          NGX_MODELGW_SCAN_NUMBER|NGX_MODELGW_SCAN_COUNT, "42");

    token(&r, W_ANY, doc, NGX_MODELGW_SCAN_NULL, "null");
}


/* only the root's member is the model */

static void
test_p11_decoys(void **state)
{
    ngx_uint_t    i;
    unit_scan_t   r;
    const char   *docs[] = {
        "{\"x\":{\"model\":\"a\"},\"model\":\"b\"}",
        "{\"model\":\"b\",\"x\":{\"model\":\"a\"}}",
        "{\"x\":[{\"model\":\"a\"},\"model\"],\"model\":\"b\"}",
        "{\"usage\":{\"model\":\"a\"},\"model\":\"b\"}",
        "{\"stream_options\":{\"model\":\"a\"},\"model\":\"b\"}",
        "{\"messages\":[{\"model\":\"a\",\"model\":1}],\"model\":\"b\"}",
        "{\"x\":\"\\\"model\\\":\\\"a\\\"\",\"model\":\"b\"}",
        "{\"x.model\":\"a\",\"usage.output\":1,\"model\":\"b\"}",
        "{\"\":{\"\":{\"model\":{\"model\":[{}]}}},\"model\":\"b\"}"
    };

    for (i = 0; i < sizeof(docs) / sizeof(docs[0]); i++) {
        pass(state, &strict, docs[i], &r);
        token(&r, W_MODEL, docs[i], NGX_MODELGW_SCAN_STRING, "\"b\"");
        assert_int_equal(r.values[W_OUTPUT].type, NGX_MODELGW_SCAN_ABSENT);
    }

    pass(state, &strict, "{\"x\":{\"model\":\"a\"}}", &r);
    assert_int_equal(r.values[W_MODEL].type, NGX_MODELGW_SCAN_ABSENT);
}


static void
test_faults(void **state)
{
    ngx_uint_t  i;

    static const struct {
        const char  *doc;
        ngx_uint_t   kind;
        const char  *text;
    } cases[] = {

#define JSON   NGX_MODELGW_SCAN_JSON
#define FIELD  NGX_MODELGW_SCAN_FIELD

        { "", JSON, "byte 0: the document ends too early" },
        { "[]", JSON, "byte 0: expected an object" },
        { "{\"a\"", JSON, "byte 4: the document ends too early" },
        { "{1", JSON, "byte 1: expected a key or '}'" },
        { "{\"a\":1,}", JSON, "byte 7: expected a key" },
        { "{\"a\" 1", JSON, "byte 5: expected ':'" },
        { "{\"a\":}", JSON, "byte 5: expected a value" },
        { "{\"a\":[,", JSON, "byte 6: expected a value or ']'" },
        { "{\"a\":1 \"b\"", JSON, "byte 7: expected ',' or '}'" },
        { "{\"a\":[1}", JSON, "byte 7: expected ',' or ']'" },
        { "{}{", JSON, "byte 2: expected nothing after the document" },
        { "{\"a\":\"\n\"", JSON, "byte 6: control byte in string" },
        { "{\"a\":\"\\x\"", JSON, "byte 7: invalid escape in string" },
        { "{\"a\":\"\\u00g0\"", JSON, "byte 10: invalid escape in string" },
        { "{\"a\":\"\xc3(\"", JSON, "byte 7: invalid UTF-8 in string" },
        { "{\"a\":\"....\xed\xa0\x80...", JSON,
          "byte 11: invalid UTF-8 in string" },
        { "{\"a\":01}", JSON, "byte 6: invalid number" },
        { "{\"a\":1.}", JSON, "byte 7: invalid number" },
        { "{\"a\":nulL}", JSON, "byte 8: invalid literal" },

        { "{\"model\":1}", FIELD, "\"model\" must be a string" },
        { "{\"model\":null}", FIELD, "\"model\" must be a string" },
        { "{\"model\":[", FIELD, "\"model\" must be a string" },
        { "{\"model\":{\"model\":\"x\"}}", FIELD,
          "\"model\" must be a string" },
        { "{\"messages\":{}}", FIELD, "\"messages\" must be an array" },
        { "{\"stream\":\"true\"}", FIELD,
          "\"stream\" must be true or false" },
        { "{\"stream\":0}", FIELD, "\"stream\" must be true or false" },
        { "{\"stop\":1}", FIELD, "\"stop\" must be a string or an array" },
        { "{\"temperature\":\"1\"}", FIELD,
          "\"temperature\" must be a number" },
        { "{\"stream_options\":[]}", FIELD,
          "\"stream_options\" must be an object" },
        { "{\"stream_options\":{\"include_usage\":1}}", FIELD,
          "\"stream_options.include_usage\" must be true or false" },
        { "{\"usage\":{\"details\":{\"cached\":-1}}}", FIELD,
          "\"usage.details.cached\" must be an integer of at most 9 digits" },

        { "{\"MODEL\":\"a\"}", FIELD,
          "\"MODEL\" must be written \"model\"" },
        { "{\"\\u004dodel\":1}", FIELD,
          "\"Model\" must be written \"model\"" },
        { "{\"\xc5\xbftream\":1}", FIELD,
          "\"\xc5\xbftream\" must be written \"stream\"" },
        { "{\"stream_options\":{\"Include_Usage\":true}}", FIELD,
          "\"stream_options.Include_Usage\" must be written "
          "\"include_usage\"" },
        { "{\"anything\":1}", FIELD,
          "\"anything\" must be written \"anyThing\"" },

        { "{\"models\":[]}", FIELD, "\"models\" is not allowed" },
        { "{\"mode\\u006c\\u0073\":1}", FIELD, "\"models\" is not allowed" },
        { "{\"mOdelS\":1}", FIELD, "\"mOdelS\" is not allowed" },
        { "{\"apibase\":1}", FIELD, "\"apibase\" is not allowed" },
        { "{\"fallbac\xe2\x84\xaa\\u017F\":1}", FIELD,
          "\"fallbac\xe2\x84\xaa\xc5\xbf\" is not allowed" },

        { "{\"ab\\ud800c\":1}", FIELD,
          "\"abc\" has half of a surrogate pair" },
        { "{\"\\udc00\\ud800\":1}", FIELD,
          "\"\" has half of a surrogate pair" },
        { "{\"stream_options\":{\"x\\ud800\":1}}", FIELD,
          "\"stream_options.x\" has half of a surrogate pair" },

        { "{\"a\\\"\\\\\\n\\u0000\x7f" "b\":1,\"a\\\"\\\\\\n\\u0000\x7f" "b\"",
          FIELD, "\"a?????b\" is given twice" }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        refused(state, cases[i].doc, cases[i].kind, cases[i].text);
    }
}


/* a key that occurs twice, in any spelling, known to us or not */

static void
test_p1_duplicates(void **state)
{
    ngx_uint_t    i;
    unit_scan_t   r;

    static const struct {
        const char  *doc;
        const char  *text;
    } cases[] = {
        { "{\"model\":\"a\",\"model\"", "\"model\" is given twice" },
        { "{\"x\":1,\"y\":{},\"x\":1}", "\"x\" is given twice" },
        { "{\"\":1,\"\":1}", "\"\" is given twice" },
        { "{\"model\":\"a\",\"mod\\u0065l\":\"b\"}",
          "\"model\" is given twice" },
        { "{\"x\":{\"model\":1},\"model\":\"b\",\"model\":\"c\"}",
          "\"model\" is given twice" },
        { "{\"stream_options\":{\"a\":1,\"a\":1}}",
          "\"stream_options.a\" is given twice" },
        { "{\"stream_options\":null,\"stream_options\":{}}",
          "\"stream_options\" is given twice" }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        refused(state, cases[i].doc, NGX_MODELGW_SCAN_FIELD, cases[i].text);
    }

    /* objects that are not watched are left to the upstream */

    pass(state, &strict, "{\"x\":{\"a\":1,\"a\":2},\"y\":[{\"a\":1,\"a\":2}],"
                         "\"usage\":{\"a\":1,\"a\":2}}", &r);
}


/* every casing, and the two characters that fold to ASCII */

static void
test_p2_casings(void **state)
{
    char          doc[32], text[64], *p;
    ngx_uint_t    i, n;
    unit_scan_t   r;

    for (n = 0; n < 32; n++) {
        p = doc + sprintf(doc, "{\"model\":\"a\"}") - strlen("model\":\"a\"}");

        for (i = 0; i < 5; i++) {
            if (n & (1 << i)) {
                p[i] -= 'a' - 'A';
            }
        }

        if (n == 0) {
            pass(state, &strict, doc, &r);
            assert_int_equal(r.values[W_MODEL].type, NGX_MODELGW_SCAN_STRING);
            continue;
        }

        sprintf(text, "\"%.5s\" must be written \"model\"", p);
        refused(state, doc, NGX_MODELGW_SCAN_FIELD, text);

        pass(state, &loose, doc, &r);
        assert_int_equal(r.values[W_MODEL].type, NGX_MODELGW_SCAN_ABSENT);
    }
}


static void
test_p2_folds(void **state)
{
    u_char        doc[128], *p;
    size_t        k;
    ngx_str_t    *name;
    ngx_uint_t    i, n;
    unit_scan_t   r;

    /* each watch of the root, each of its letters that has a fold */

    for (i = 0; i < W_N; i++) {
        name = &watches[i].path;

        if (ngx_strlchr(name->data, name->data + name->len, '.')) {
            continue;
        }

        for (k = 0; k < name->len; k++) {
            for (n = 0; n < 4; n++) {
                p = ngx_cpymem(doc, "{\"", 2);
                p = ngx_cpymem(p, name->data, k);

                if (name->data[k] == 's') {
                    p = ngx_cpymem(p, (n & 1) ? "\\u017f" : "\xc5\xbf",
                                   (n & 1) ? 6 : 2);

                } else if (name->data[k] == 'k') {
                    p = ngx_cpymem(p, (n & 1) ? "\\u212A" : "\xe2\x84\xaa",
                                   (n & 1) ? 6 : 3);

                } else if (name->data[k] == '_') {
                    continue;

                } else {
                    *p++ = (u_char) (name->data[k] ^ 0x20);
                }

                p = ngx_cpymem(p, name->data + k + 1, name->len - k - 1);
                p = ngx_cpymem(p, "\":1}", 5);

                run(state, &strict, (char *) doc, &r);
                assert_int_equal(r.rc, NGX_DECLINED);
                assert_non_null(strstr((char *) r.fault, "must be written"));
            }
        }
    }
}


/* a key that only looks like a fold is another key */

static void
test_p2_no_folds(void **state)
{
    ngx_uint_t    i;
    unit_scan_t   r;
    const char   *keys[] = {
        "mode", "modell", "model ", " model", "model\\u0000", "mod\xc3\xa9" "l",
        "\xd0\xbcodel", "m\xe2\x84\xaf" "del", "\xef\xbd\x8dodel", "stre am",
        "\xc5\xbe" "tream", "\xc5", "stream_option", "include_usage",
        "max-tokens", "\xc4\xb0", "@odel", "model\\n", "messageS_",
        "\xe2\x84", "to\xe2\x84\xab" "ens"
    };
    char          doc[128];

    for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        sprintf(doc, "{\"%s\":{}}", keys[i]);
        run(state, &strict, doc, &r);

        /* two of them are no UTF-8 */

        if (r.rc != NGX_OK) {
            assert_int_equal(r.kind, NGX_MODELGW_SCAN_JSON);
        }
    }
}


/* names are compared unescaped, offsets are those of the raw token */

static void
test_p3_escaped_keys(void **state)
{
    unit_scan_t   r;
    ngx_uint_t    i;
    const char   *docs[] = {
        "{\"mod\\u0065l\":\"b\"}",
        "{\"\\u006d\\u006F\\u0064\\u0065\\u006C\" :\"b\"}",
        "{\"mode\\u006c\":\t\"b\" ,\"model\\u0000\":1}",
        "{\"\\ud83d\\ude39\":1,\"\xf0\x9f\x98\xb8\":2,\"model\":\"b\"}"
    };

    for (i = 0; i < sizeof(docs) / sizeof(docs[0]); i++) {
        pass(state, &strict, docs[i], &r);
        token(&r, W_MODEL, docs[i], NGX_MODELGW_SCAN_STRING, "\"b\"");
    }

    refused(state, "{\"\\ud83d\\ude39\":1,\"\xf0\x9f\x98\xb9\":2}",
            NGX_MODELGW_SCAN_FIELD,
            "\"\xf0\x9f\x98\xb9\" is given twice");
    refused(state, "{\"\\/\":1,\"/\":2}", NGX_MODELGW_SCAN_FIELD,
            "\"/\" is given twice");
}


static void
test_p7_counts(void **state)
{
    char          doc[64], *big;
    ngx_uint_t    i;
    unit_scan_t   r;
    const char   *bad[] = {
        "-1", "-0", "1e2", "1E2", "100.0", "0.5", "1234567890",
        "18446744073709551616", "1e400", "\"1\"", "true", "[1]"
    };

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        sprintf(doc, "{\"max_tokens\":%s}", bad[i]);
        refused(state, doc, NGX_MODELGW_SCAN_FIELD,
                "\"max_tokens\" must be an integer of at most 9 digits");

        pass(state, &loose, doc, &r);
        assert_int_equal(r.values[W_MAX_TOKENS].type,
                         NGX_MODELGW_SCAN_ABSENT);
    }

    big = malloc(400100);
    assert_non_null(big);

    i = sprintf(big, "{\"temperature\":1");
    memset(big + i, '7', 400000);
    strcpy(big + i + 400000, ",\"max_tokens\":null}");

    pass(state, &strict, big, &r);
    assert_int_equal(r.values[W_TEMPERATURE].len, LONE);
    assert_int_equal(r.values[W_TEMPERATURE].to
                     - r.values[W_TEMPERATURE].from, 400001);
    assert_int_equal(r.values[W_MAX_TOKENS].type, NGX_MODELGW_SCAN_NULL);

    free(big);
}


static size_t
keys(char *doc, const char *open, ngx_uint_t n, const char *close)
{
    char        *p;
    ngx_uint_t   i;

    p = doc + sprintf(doc, "%s", open);

    for (i = 0; i < n; i++) {
        p += sprintf(p, "%s\"k%d\":%d", i ? "," : "", (int) i, (int) i);
    }

    return p + sprintf(p, "%s", close) - doc;
}


static void
test_p6_crowds(void **state)
{
    char         doc[8192];
    unit_scan_t  r;

    keys(doc, "{", 256, "}");
    pass(state, &strict, doc, &r);

    keys(doc, "{", 257, "}");
    refused(state, doc, NGX_MODELGW_SCAN_FIELD,
            "the body has more than 256 keys");
    pass(state, &loose, doc, &r);

    keys(doc, "{\"stream_options\":{", 256, "},\"a\":1,\"b\":2}");
    pass(state, &strict, doc, &r);
    assert_int_equal(r.values[W_OPTIONS].elements, 256);

    keys(doc, "{\"stream_options\":{", 257, "}}");
    refused(state, doc, NGX_MODELGW_SCAN_FIELD,
            "\"stream_options\" has more than 256 keys");

    /* keys are per object, and only the root denies names */

    pass(state, &strict, "{\"x\":1,\"stream_options\":{\"x\":1,\"y\":2,"
                         "\"models\":3,\"model\":4,\"MODEL\":5},\"y\":2}",
         &r);
    assert_int_equal(r.values[W_OPTIONS].elements, 5);

    /* objects that are not checked have no bound */

    keys(doc, "{\"a\":{\"k1\":0,", 600, "}}");
    pass(state, &strict, doc, &r);

    keys(doc, "{\"usage\":{", 600, "}}");
    pass(state, &strict, doc, &r);
    assert_int_equal(r.values[W_USAGE].elements, 600);
}


static void
test_loose(void **state)
{
    unit_scan_t   r;
    const char   *doc;

    doc = "{\"model\":\"a\",\"models\":1,\"Model\":2,\"model\":\"b\"}";
    pass(state, &loose, doc, &r);
    token(&r, W_MODEL, doc, NGX_MODELGW_SCAN_STRING, "\"b\"");

    /* of equal keys the last one counts, and nothing inside the others */

    doc = "{\"usage\":{\"output\":1,\"details\":{\"cached\":2}},"
          "\"usage\":{\"details\":{}}}";
    pass(state, &loose, doc, &r);
    token(&r, W_USAGE, doc, NGX_MODELGW_SCAN_OBJECT, "{\"details\":{}}");
    assert_int_equal(r.values[W_OUTPUT].type, NGX_MODELGW_SCAN_ABSENT);
    assert_int_equal(r.values[W_CACHED].type, NGX_MODELGW_SCAN_ABSENT);

    pass(state, &loose, "{\"usage\":{\"output\":1},\"usage\":null}", &r);
    assert_int_equal(r.values[W_USAGE].type, NGX_MODELGW_SCAN_ABSENT);
    assert_int_equal(r.values[W_OUTPUT].type, NGX_MODELGW_SCAN_ABSENT);

    pass(state, &loose, "{\"usage\":[{\"output\":1}],\"model\":1}", &r);
    assert_int_equal(r.values[W_USAGE].type, NGX_MODELGW_SCAN_ABSENT);
    assert_int_equal(r.values[W_OUTPUT].type, NGX_MODELGW_SCAN_ABSENT);
    assert_int_equal(r.values[W_MODEL].type, NGX_MODELGW_SCAN_ABSENT);

    pass(state, &loose, "{\"mod\\ud800el\":\"a\"}", &r);
    assert_int_equal(r.values[W_MODEL].type, NGX_MODELGW_SCAN_ABSENT);
    pass(state, &loose, "{\"model\\udfff\":\"a\"}", &r);
    assert_int_equal(r.values[W_MODEL].type, NGX_MODELGW_SCAN_ABSENT);
}


static void
test_texts(void **state)
{
    char          doc[1024];
    size_t        n;
    ngx_uint_t    i;
    unit_scan_t   r;
    const char   *lone[] = {
        "\\ud800", "\\udc00", "a\\ud800b", "\\ud800\\n", "\\ud800\\ud800",
        "\\udc00\\ud800", "\\ud800\\u0041", "\\ud800\xc3\xa9",
        "\\ud83d\\ude39\\ud83d", "\\ud800\\ud83d\\ude39"
    };

    for (n = 255; n <= 257; n++) {
        i = sprintf(doc, "{\"model\":\"");
        memset(doc + i, 'a', n);
        strcpy(doc + i + n, "\"}");

        pass(state, &strict, doc, &r);
        assert_int_equal(r.values[W_MODEL].len, n);
        assert_int_equal(r.values[W_MODEL].to - r.values[W_MODEL].from, n + 2);
    }

    for (i = 0; i < sizeof(lone) / sizeof(lone[0]); i++) {
        sprintf(doc, "{\"model\":\"%s\",\"x\":\"%s\"}", lone[i], lone[i]);
        pass(state, &strict, doc, &r);
        assert_int_equal(r.values[W_MODEL].len, LONE);
    }

    pass(state, &strict, "{\"model\":\"\\ud800\\udc00\\ud840\\udc01"
                         "\\udbff\\udfff\"}", &r);
    unit_assert_str(r.values[W_MODEL].text, r.values[W_MODEL].len,
                    "\xf0\x90\x80\x80\xf0\xa0\x80\x81\xf4\x8f\xbf\xbf");

    pass(state, &strict, "{\"model\":\"\"}", &r);
    assert_int_equal(r.values[W_MODEL].type, NGX_MODELGW_SCAN_STRING);
    assert_int_equal(r.values[W_MODEL].len, 0);

    pass(state, &strict, "{\"model\":\"\\u0000\\u07ff\\uffff\"}", &r);
    assert_int_equal(r.values[W_MODEL].len, 6);
    assert_memory_equal(r.values[W_MODEL].text, "\0\xdf\xbf\xef\xbf\xbf", 6);
}


/* a key in a fault is cut between characters */

static void
test_long_keys(void **state)
{
    char         doc[4096], key[128], text[256];
    size_t       n;
    unit_scan_t  r;

    for (n = 60; n < 70; n++) {
        memset(key, 'a', n);
        strcpy(key + n, "\xf0\x9f\x98\xb9");
        sprintf(doc, "{\"%s\":1,\"%s\":2}", key, key);

        run(state, &strict, doc, &r);
        assert_int_equal(r.kind, NGX_MODELGW_SCAN_FIELD);

        if (n == 60) {
            sprintf(key + n, "\xf0\x9f\x98\xb9");

        } else {
            sprintf(key + ngx_min(n, 64), "...");
        }

        sprintf(text, "\"%s\" is given twice", key);
        assert_string_equal((char *) r.fault, text);
    }

    /* long keys that differ in their last byte only */

    memset(doc, 'a', sizeof(doc));
    memcpy(doc, "{\"", 2);
    memcpy(doc + 1500, "b\":1,\"", 6);
    strcpy(doc + 1506 + 1498, "c\":1}");
    pass(state, &strict, doc, &r);
}


static void
test_absent_until_read(void **state)
{
    size_t                       i;
    ngx_uint_t                   n;
    const char                  *doc;
    ngx_modelgw_scan_t          *s;
    ngx_modelgw_scan_value_t    *v;
    ngx_modelgw_skip_variant_t  *variants;

    variants = ngx_modelgw_skip_variants(&n);
    strict.skip = variants[0].skip;

    s = ngx_modelgw_scan_create(*state, &strict);
    assert_non_null(s);

    /* a reset after a refusal clears everything */

    doc = "{\"usage\":{\"output\":1,\"details\":{\"cached\":2}},\"model\":1}";
    assert_int_equal(ngx_modelgw_scan_feed(s, (u_char *) doc, strlen(doc)),
                     NGX_DECLINED);
    ngx_modelgw_scan_reset(s);

    doc = "{\"messages\":[1,\"]\"],\"model\":\"ab\",\"stream\":false}";

    for (i = 0; doc[i]; i++) {
        for (n = 0; n < W_N; n++) {
            v = ngx_modelgw_scan_value(s, n);

            assert_int_equal(v->type != NGX_MODELGW_SCAN_ABSENT,
                             (n == W_MESSAGES && i >= 19)
                             || (n == W_MODEL && i >= 32)
                             || (n == W_STREAM && i >= 47));
        }

        assert_int_equal(ngx_modelgw_scan_feed(s, (u_char *) doc + i, 1),
                         NGX_OK);
        assert_int_equal(ngx_modelgw_scan_feed(s, (u_char *) "", 0), NGX_OK);
    }

    assert_int_equal(ngx_modelgw_scan_done(s), NGX_OK);
}


static void
test_bad_tables(void **state)
{
    ngx_modelgw_scan_conf_t   conf;
    ngx_modelgw_scan_watch_t  orphan[] = {
        { ngx_string("a.b"), NGX_MODELGW_SCAN_ANY },
        { ngx_string("a"), NGX_MODELGW_SCAN_ANY }
    };

    conf = strict;
    conf.watches = orphan;
    conf.nwatches = 2;
    assert_null(ngx_modelgw_scan_create(*state, &conf));

    conf.nwatches = NGX_MODELGW_SCAN_MAX_WATCHES + 1;
    assert_null(ngx_modelgw_scan_create(*state, &conf));
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_values),
        unit_case(test_p11_decoys),
        unit_case(test_faults),
        unit_case(test_p1_duplicates),
        unit_case(test_p2_casings),
        unit_case(test_p2_folds),
        unit_case(test_p2_no_folds),
        unit_case(test_p3_escaped_keys),
        unit_case(test_p7_counts),
        unit_case(test_p6_crowds),
        unit_case(test_loose),
        unit_case(test_texts),
        unit_case(test_long_keys),
        unit_case(test_absent_until_read),
        unit_case(test_bad_tables)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
