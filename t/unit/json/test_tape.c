
/*
 * The tape.  Each document is fed whole, in chunks of 1 to 31 bytes and cut in
 * two at every byte, with every variant of the string loop; the tape must
 * agree with a recursive walk over the document.  So must that of the scanner.
 */


#include "unit.h"
#include "unit_tape.h"

#include "ngx_modelgw_scan.h"


static const char  *docs[] = {
    "{}", "[]", "null", "true", "false", "0", "-1.5e+10", "\"\"", "\"a\"",
    " {} ", "\r\n\t[ ]\n", "  17  ", "\t\"x\"\n",

    "[1,22,333,4444]",
    "[ 1 , 2\n,\t3 ]",
    "[[],[[]],[[],[]],{}]",
    "[null,true,false,0,\"\",{},[]]",
    "{\"a\":1}",
    "{\"a\":1,\"b\":[1,2,{\"c\":null}],\"d\":{\"e\":{},\"f\":\"g\"}}",
    "{ \"a\" : 1 , \"b\" : [ ] }",
    "{\"a\":{\"a\":{\"a\":{\"a\":1}}},\"a\":2}",

    /* structure inside a string */

    "[\"[\",\"]\",\"{\",\"}\",\",\",\":\",\"1\",\"true\"]",
    "[\"\\\"\",\"\\\\\",\"\\\\\\\"\",\"\\\\\\\\\",\"x\\\"],[\\\"\"]",
    "{\"\\\"\":\"\\\"}\",\"\\\\\":\"\\\\\"}",
    "[\"\\u0022\",\"\\u005c\",\"\\u005C\\u005c\",\"a\\u0041b\"]",
    "[\"\\b\\f\\n\\r\\t\\/\",\"\\ud83d\\ude00\"]",
    "[\"\xc3\xa9\",\"\xe2\x82\xac\xe2\x82\xac\",\"\xf0\x9f\x98\x80 \","
        "\"\xd0\x9f\xd1\x80\xd0\xb8 \xd0\xbc\\n\xd0\xb8\xd1\x80\\\"\"]",

    "{\"model\":\"family_a-large\",\"messages\":[{\"role\":\"user\","
        "\"content\":\"a question that is longer than any vector of bytes, "
        "so that the loop runs\\nonce more\"},{\"role\":\"assistant\","
        "\"content\":null,\"tool_calls\":[{\"id\":\"call_1\",\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
        "\"{\\\"path\\\":\\\"/tmp/x\\\",\\\"n\\\":[1,2]}\"}}]}],"
        "\"temperature\":0.7,\"stream\":true}",

    /* as deep as the tape goes, and deeper */

    "[[[[[[[[[1]]]]]]]]]",
    "[[[[[[[[[[1,2,3]]]]]]]]]]",
    "[[[[[[[[[[[1,2,3]]]]]]]]]]]",
    "[[[[[[[[[[[]]]]]]]]]]]",
    "[[[[[[[[[[[[]]]]]]]]]]],2]",
    "[[[[[[[[[[[[[[[[1,\"]\"],{\"a\":[]}],\"x\\\"\"]]]]],4]]],{}],5],6],7]],8]",
    "[[[[[[[[[[{},{\"a\":1},{\"a\":{}},{\"a\":[1,{}],\"b\":[]},[],[0],[{}],"
        "\"x\",1]]]]]]]]],{\"a\":1}]"
};

#define NDOCS  (sizeof(docs) / sizeof(docs[0]))


/* feeds a piece in a block of exactly its size, which is then freed */

static void
feed(ngx_modelgw_tape_t *tape, const u_char *p, size_t len)
{
    u_char  *piece;

    piece = unit_dup(p, len);
    assert_int_equal(ngx_modelgw_tape_feed(tape, piece, len), NGX_OK);
    unit_free(piece);
}


static void
check(ngx_modelgw_tape_t *tape, const char *doc)
{
    assert_int_equal(ngx_modelgw_tape_done(tape, (u_char *) doc), NGX_OK);

    if (!unit_tape_sound(tape, (u_char *) doc, strlen(doc))) {
        print_error("a wrong tape of %s\n", doc);
        fail();
    }
}


static void
replay(ngx_modelgw_tape_t *tape, const char *doc)
{
    size_t      len, size, at;
    ngx_uint_t  i;

    len = strlen(doc);

    for (i = 0; (size = unit_chunk(i, len)) != 0; i++) {
        ngx_modelgw_tape_reset(tape);

        for (at = 0; at < len; at += size) {
            feed(tape, (u_char *) doc + at, ngx_min(size, len - at));
        }

        check(tape, doc);
    }

    for (at = 0; at <= len; at++) {
        ngx_modelgw_tape_reset(tape);

        feed(tape, (u_char *) doc, at);
        feed(tape, (u_char *) doc + at, len - at);

        check(tape, doc);
    }
}


static void
test_shapes(void **state)
{
    ngx_uint_t                   i, k, n;
    ngx_modelgw_tape_t           tape;
    ngx_modelgw_skip_variant_t  *variants;

    variants = ngx_modelgw_skip_variants(&n);

    for (k = 0; k < n; k++) {
        ngx_modelgw_tape_init(&tape, *state, variants[k].skip);

        for (i = 0; i < NDOCS; i++) {
            replay(&tape, docs[i]);
        }
    }
}


/* read by the scanner, in a first piece and others of that size */

static void
scan(ngx_modelgw_scan_t *s, ngx_modelgw_tape_t *tape, const char *doc,
    size_t first, size_t size)
{
    size_t   len, at, n;
    u_char  *piece;

    len = strlen(doc);

    ngx_modelgw_scan_reset(s);
    ngx_modelgw_tape_reset(tape);
    ngx_modelgw_scan_tape(s, tape);

    for (at = 0; at < len; at += n) {
        n = ngx_min(at ? size : first, len - at);

        piece = unit_dup((u_char *) doc + at, n);
        assert_int_equal(ngx_modelgw_scan_feed(s, piece, n), NGX_OK);
        unit_free(piece);
    }

    assert_int_equal(ngx_modelgw_scan_done(s), NGX_OK);
    assert_int_equal(tape->pos, len);

    check(tape, doc);
}


static void
scan_doc(ngx_modelgw_scan_t *s, ngx_modelgw_tape_t *tape, const char *doc)
{
    size_t  len, at, size, i;

    len = strlen(doc);

    for (at = 1; at <= len; at++) {
        scan(s, tape, doc, at, len);
    }

    for (i = 0; (size = unit_chunk(i, len)) != 0; i++) {
        scan(s, tape, doc, size, size);
    }
}


/* the scanner watches some of it, and counts some */

static void
test_scanned(void **state)
{
    char                         doc[2048];
    ngx_uint_t                   i, j, k, n;
    ngx_modelgw_scan_t          *s;
    ngx_modelgw_tape_t           tape;
    ngx_modelgw_scan_conf_t      conf;
    ngx_modelgw_skip_variant_t  *variants;

    static const char  *forms[] = {
        "%s", "{\"k\":%s}", "{\"model\": %s , \"x\":{ \"model\":%s}}",
        "\n{\"a long name of a member, in which there is a value\":{\"y\":[%s,"
            "%s]},\"\\u006dodel\":%s,\"k\":{\"k\":{\"k\":\"\"}},\"z\":{}}"
    };

    static ngx_modelgw_scan_watch_t  watches[] = {
        { ngx_string("model"), NGX_MODELGW_SCAN_ANY },
        { ngx_string("k"), NGX_MODELGW_SCAN_ANY },
        { ngx_string("k.a"), NGX_MODELGW_SCAN_ANY }
    };

    static ngx_modelgw_scan_mark_t  marks[] = {
        { ngx_string("role"), ngx_null_string },
        { ngx_string("type"), ngx_string("func") }
    };

    ngx_memzero(&conf, sizeof(conf));
    conf.watches = watches;
    conf.marks = marks;

    variants = ngx_modelgw_skip_variants(&n);

    for (k = 0; k < 4 * n; k++) {
        conf.skip = variants[k / 4].skip;
        conf.nwatches = (k & 1) ? 3 : 0;
        conf.nmarks = (k & 2) ? 2 : 0;

        s = ngx_modelgw_scan_create(*state, &conf);
        assert_non_null(s);

        ngx_modelgw_tape_init(&tape, *state, conf.skip);

        for (i = 0; i < NDOCS; i++) {

            for (j = 0; j < sizeof(forms) / sizeof(forms[0]); j++) {
                (void) snprintf(doc, sizeof(doc), forms[j], docs[i], docs[i],
                                docs[i]);

                if (doc[0] == '{' || doc[0] == '\n') {
                    scan_doc(s, &tape, doc);
                }
            }
        }
    }
}


/* what follows the last node that there is room for does no harm */

static void
test_scanned_too_many(void **state)
{
    u_char                   *doc, *p, *last;
    ngx_uint_t                n;
    ngx_modelgw_scan_t       *s;
    ngx_modelgw_tape_t        tape;
    ngx_modelgw_scan_conf_t   conf;

    static const char  item[] = "{\"a\":[{\"b\":1},\"x\",{\"c\":true}]},";

    ngx_memzero(&conf, sizeof(conf));
    conf.skip = ngx_modelgw_skip_variants(&n)[0].skip;

    s = ngx_modelgw_scan_create(*state, &conf);
    assert_non_null(s);

    doc = malloc(5 * NGX_MODELGW_TAPE_MAX_NODES);
    assert_non_null(doc);

    last = doc + 5 * NGX_MODELGW_TAPE_MAX_NODES - sizeof(item);

    for (p = ngx_cpymem(doc, "{\"k\":[", 6); p < last; /* void */ ) {
        p = ngx_cpymem(p, item, sizeof(item) - 1);
    }

    p = ngx_cpymem(p - 1, "]}", 2);

    ngx_modelgw_tape_init(&tape, *state, conf.skip);
    ngx_modelgw_scan_tape(s, &tape);

    assert_int_equal(ngx_modelgw_scan_feed(s, doc, p - doc), NGX_OK);
    assert_int_equal(ngx_modelgw_scan_done(s), NGX_OK);
    assert_int_equal(tape.rc, NGX_DECLINED);
    assert_int_equal(tape.n, NGX_MODELGW_TAPE_MAX_NODES);
    assert_int_equal(ngx_modelgw_tape_done(&tape, doc), NGX_DECLINED);

    /* no memory for the first node */

    ngx_modelgw_tape_init(&tape, *state, conf.skip);
    tape.rc = NGX_ERROR;

    ngx_modelgw_scan_reset(s);
    ngx_modelgw_scan_tape(s, &tape);

    assert_int_equal(ngx_modelgw_scan_feed(s, doc, p - doc), NGX_OK);
    assert_int_equal(tape.n, 0);
    assert_int_equal(ngx_modelgw_tape_done(&tape, doc), NGX_DECLINED);

    unit_free(doc);
}


/* a document on a tape; base is the document itself */

static ngx_modelgw_node_t *
tape_of(ngx_modelgw_tape_t *tape, ngx_pool_t *pool, const char *doc)
{
    ngx_uint_t  n;

    ngx_modelgw_tape_init(tape, pool, ngx_modelgw_skip_variants(&n)[0].skip);

    replay(tape, doc);

    return ngx_modelgw_tape_root(tape);
}


static void
assert_raw(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node,
    const char *expected)
{
    ngx_str_t  raw;

    assert_non_null(node);

    ngx_modelgw_tape_raw(tape, node, &raw);
    unit_assert_str(raw.data, raw.len, expected);
}


static void
test_members(void **state)
{
    ngx_modelgw_node_t  *root, *node;
    ngx_modelgw_tape_t   tape;

    root = tape_of(&tape, *state,
                   "{\"a\":1,\"ab\":{\"a\":2,\"x\":{\"a\":3}},\"abc\":[\"a\"],"
                   "\"\":4,\"b\":\"a\",\"t\\u0079p\\u0065\":5,\"\\n\":6,"
                   "\"twice\":7,\"tw\\u0069ce\":8,\"last\":null}");

    assert_int_equal(root->count, 10);
    assert_int_equal(root->type, NGX_MODELGW_TAPE_OBJECT);

    assert_raw(&tape, ngx_modelgw_tape_member(&tape, root, "a"), "1");
    assert_raw(&tape, ngx_modelgw_tape_member(&tape, root, ""), "4");
    assert_raw(&tape, ngx_modelgw_tape_member(&tape, root, "b"), "\"a\"");
    assert_raw(&tape, ngx_modelgw_tape_member(&tape, root, "abc"), "[\"a\"]");
    assert_raw(&tape, ngx_modelgw_tape_member(&tape, root, "type"), "5");
    assert_raw(&tape, ngx_modelgw_tape_member(&tape, root, "\n"), "6");
    assert_raw(&tape, ngx_modelgw_tape_member(&tape, root, "twice"), "8");
    assert_raw(&tape, ngx_modelgw_tape_member(&tape, root, "last"), "null");

    assert_null(ngx_modelgw_tape_member(&tape, root, "x"));
    assert_null(ngx_modelgw_tape_member(&tape, root, "c"));
    assert_null(ngx_modelgw_tape_member(&tape, root, "abcd"));
    assert_null(ngx_modelgw_tape_member(&tape, NULL, "a"));

    node = ngx_modelgw_tape_member(&tape, root, "ab");
    assert_raw(&tape, node, "{\"a\":2,\"x\":{\"a\":3}}");
    assert_raw(&tape, ngx_modelgw_tape_member(&tape, node, "a"), "2");

    node = ngx_modelgw_tape_member(&tape, node, "x");
    assert_raw(&tape, ngx_modelgw_tape_member(&tape, node, "a"), "3");
    assert_null(ngx_modelgw_tape_member(&tape, node, "x"));

    node = ngx_modelgw_tape_member(&tape, root, "abc");
    assert_null(ngx_modelgw_tape_member(&tape, node, "a"));
}


/* all at once: what a look-up of each finds */

static void
test_members_at_once(void **state)
{
    ngx_uint_t           i, k;
    ngx_modelgw_node_t  *values[8], *root;
    ngx_modelgw_tape_t   tape;

    static ngx_str_t  names[] = {
        ngx_string("abc"), ngx_string("a"), ngx_string(""),
        ngx_string("type"), ngx_string("twice"), ngx_string("last"),
        ngx_string("absent"), ngx_string("\n")
    };

    static const char  *documents[] = {
        "{\"a\":1,\"ab\":{\"a\":2},\"abc\":[\"a\"],\"\":4,\"b\":\"a\","
        "\"t\\u0079p\\u0065\":5,\"\\n\":6,\"twice\":7,\"tw\\u0069ce\":8,"
        "\"last\":null}",
        "{\"absen\\u0074\":{\"a\":1},\"a\":2,\"a\":3,\"last\":{}}",
        "{}", "[\"a\",\"abc\"]", "\"a\"", NULL
    };

    for (i = 0; documents[i]; i++) {
        root = tape_of(&tape, *state, documents[i]);

        memset(values, 0xa5, sizeof(values));
        ngx_modelgw_tape_members(&tape, root, names, 8, values);

        for (k = 0; k < 8; k++) {
            assert_ptr_equal(values[k],
                             ngx_modelgw_tape_member(&tape, root,
                                                     (char *) names[k].data));
        }
    }

    ngx_modelgw_tape_members(&tape, NULL, names, 8, values);
    assert_null(values[1]);
}


static void
assert_walk(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *container,
    const char **expected)
{
    ngx_modelgw_node_t  *node;

    node = ngx_modelgw_tape_first(tape, container);

    for ( /* void */ ; *expected; expected++) {
        assert_raw(tape, node, *expected);
        node = ngx_modelgw_tape_next(tape, container, node);
    }

    assert_null(node);
}


static void
test_walks(void **state)
{
    ngx_modelgw_node_t  *root, *node;
    ngx_modelgw_tape_t   tape;
    static const char   *none[] = { NULL };
    static const char   *outer[] = { "[]", "{ }", "[1,[2],3]", "\"s\"",
                                     "{\"a\":[1],\"b\":{\"c\":2}}", "17",
                                     NULL };
    static const char   *array[] = { "1", "[2]", "3", NULL };
    static const char   *object[] = { "\"a\"", "[1]", "\"b\"", "{\"c\":2}",
                                      NULL };

    root = tape_of(&tape, *state, "[[],{ },[1,[2],3],\"s\","
                                  "{\"a\":[1],\"b\":{\"c\":2}}, 17 ]");

    assert_walk(&tape, root, outer);

    node = ngx_modelgw_tape_first(&tape, root);
    assert_walk(&tape, node, none);

    node = ngx_modelgw_tape_next(&tape, root, node);
    assert_walk(&tape, node, none);

    node = ngx_modelgw_tape_next(&tape, root, node);
    assert_walk(&tape, node, array);

    node = ngx_modelgw_tape_next(&tape, root, node);
    assert_walk(&tape, node, none);

    node = ngx_modelgw_tape_next(&tape, root, node);
    assert_walk(&tape, node, object);

    node = ngx_modelgw_tape_next(&tape, root, node);
    assert_walk(&tape, node, none);
    assert_null(ngx_modelgw_tape_next(&tape, root, node));
}


/* what is too deep is not found, and what contains it can be copied */

static void
test_too_deep(void **state)
{
    ngx_uint_t           i;
    ngx_modelgw_node_t  *node, *inner;
    ngx_modelgw_tape_t   tape;

    node = tape_of(&tape, *state,
                   "[[[[[[[[{\"a\":1},{},[2],[],3]]]]]]]]");

    for (i = 0; i < NGX_MODELGW_TAPE_MAX_DEPTH; i++) {
        node = ngx_modelgw_tape_first(&tape, node);
    }

    assert_raw(&tape, node, "{\"a\":1}");
    assert_null(ngx_modelgw_tape_member(&tape, node, "a"));
    assert_null(ngx_modelgw_tape_first(&tape, node));
    assert_true(node->count > 0);

    inner = &tape.nodes[NGX_MODELGW_TAPE_MAX_DEPTH - 1];
    assert_int_equal(inner->count, 5);

    node = ngx_modelgw_tape_next(&tape, inner, node);
    assert_raw(&tape, node, "{}");
    assert_int_equal(node->count, 0);

    node = ngx_modelgw_tape_next(&tape, inner, node);
    assert_raw(&tape, node, "[2]");
    assert_null(ngx_modelgw_tape_first(&tape, node));
    assert_true(node->count > 0);

    node = ngx_modelgw_tape_next(&tape, inner, node);
    assert_raw(&tape, node, "[]");
    assert_int_equal(node->count, 0);

    node = ngx_modelgw_tape_next(&tape, inner, node);
    assert_raw(&tape, node, "3");
    assert_null(ngx_modelgw_tape_next(&tape, inner, node));
}


typedef struct {
    const char  *doc;
    const char  *text;
    size_t       len;
} text_t;

#define text(doc, text)  { doc, text, sizeof(text) - 1 }

static text_t  texts[] = {
    text("\"\"", ""),
    text("\"a\"", "a"),
    text("\"plain text\"", "plain text"),
    text("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"),
    text("\"\\\\n\"", "\\n"),
    text("\"a\\nb\\nc\"", "a\nb\nc"),
    text("\"\\u0041\\u007f\"", "A\x7f"),
    text("\"x\\u0000y\"", "x\0y"),
    text("\"\\u0080\\u07ff\\u07FF\"", "\xc2\x80\xdf\xbf\xdf\xbf"),
    text("\"\\u0800\\uffff\\u20ac\"", "\xe0\xa0\x80\xef\xbf\xbf\xe2\x82\xac"),
    text("\"\\ud800\\udc00\\udbff\\udfff\\uD83D\\uDE00\"",
         "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\xf0\x9f\x98\x80"),
    text("\"\xc3\xa9\\u00e9\xc3\xa9\"", "\xc3\xa9\xc3\xa9\xc3\xa9"),

    /* lone surrogates */

    text("\"\\ud800\"", "\xef\xbf\xbd"),
    text("\"\\udfff\"", "\xef\xbf\xbd"),
    text("\"\\ud800x\"", "\xef\xbf\xbdx"),
    text("\"\\ud800\\n\"", "\xef\xbf\xbd\n"),
    text("\"\\ud800abcdef\"", "\xef\xbf\xbd" "abcdef"),
    text("\"\\ud800\\u0041\"", "\xef\xbf\xbd" "A"),
    text("\"\\ud800\\ud800\\udc00\"", "\xef\xbf\xbd\xf0\x90\x80\x80"),
    text("\"\\udc00\\ud800\"", "\xef\xbf\xbd\xef\xbf\xbd")
};

#define NTEXTS  (sizeof(texts) / sizeof(texts[0]))


static void
test_text(void **state)
{
    ngx_str_t            text, inside;
    ngx_uint_t           i;
    ngx_modelgw_node_t  *root;
    ngx_modelgw_tape_t   tape;

    for (i = 0; i < NTEXTS; i++) {
        root = tape_of(&tape, *state, texts[i].doc);

        ngx_modelgw_tape_inside(&tape, root, &inside);
        assert_ptr_equal(inside.data, texts[i].doc + 1);
        assert_int_equal(inside.len, strlen(texts[i].doc) - 2);

        assert_int_equal(ngx_modelgw_tape_text(&tape, *state, root, &text),
                         NGX_OK);
        assert_int_equal(text.len, texts[i].len);
        assert_memory_equal(text.data, texts[i].text, text.len);

        assert_int_equal(text.data == inside.data,
                         strchr(texts[i].doc, '\\') == NULL);
    }
}


static void
test_is(void **state)
{
    ngx_modelgw_node_t  *root;
    ngx_modelgw_tape_t   tape;

    root = tape_of(&tape, *state, "\"user\"");
    assert_true(ngx_modelgw_tape_is(&tape, root, "user"));
    assert_false(ngx_modelgw_tape_is(&tape, root, "use"));
    assert_false(ngx_modelgw_tape_is(&tape, root, "users"));
    assert_false(ngx_modelgw_tape_is(&tape, root, "User"));
    assert_false(ngx_modelgw_tape_is(&tape, root, ""));
    assert_false(ngx_modelgw_tape_is(&tape, NULL, "user"));

    root = tape_of(&tape, *state, "\"\\u0075s\\u0065r\\t\"");
    assert_true(ngx_modelgw_tape_is(&tape, root, "user\t"));
    assert_false(ngx_modelgw_tape_is(&tape, root, "user"));

    root = tape_of(&tape, *state, "\"\"");
    assert_true(ngx_modelgw_tape_is(&tape, root, ""));
    assert_false(ngx_modelgw_tape_is(&tape, root, "a"));

    /* a NUL byte does not end the text; non-ASCII characters are not equal */

    root = tape_of(&tape, *state, "\"a\\u0000\"");
    assert_false(ngx_modelgw_tape_is(&tape, root, "a"));

    root = tape_of(&tape, *state, "\"\\u0161\"");
    assert_false(ngx_modelgw_tape_is(&tape, root, "a"));

    root = tape_of(&tape, *state, "[\"user\"]");
    assert_false(ngx_modelgw_tape_is(&tape, root, "user"));
    assert_false(ngx_modelgw_tape_is(&tape, root, "[\"user\"]"));

    root = tape_of(&tape, *state, "true");
    assert_false(ngx_modelgw_tape_is(&tape, root, "true"));
}


static void
test_blank(void **state)
{
    ngx_uint_t           i;
    ngx_modelgw_tape_t   tape;
    static const char   *blank[] = {
        "\"\"", "\" \"", "\"   \"", "\"\\t\\n\\r\\f\"", "\"\\u000b\\u000B\"",
        "\" \\u0020 \\u0009\\u000a\\u000c\\u000d\""
    };
    static const char   *other[] = {
        "\"a\"", "\" a \"", "\"\\n.\"", "\"\\u0000\"", "\"\\b\"", "\"\\\\n\"",
        "\"\\u0008\"", "\"\\u000e\"", "\"\\u001f\"", "\"\\u0021\"",
        "\"\\u00a0\"", "\"\xc2\xa0\"", "\"\\u0120\"", "\"\\u2003\"",
        "\"\\ud800\"", "\"\\\"\""
    };

    for (i = 0; i < sizeof(blank) / sizeof(blank[0]); i++) {
        assert_true(ngx_modelgw_tape_blank(&tape,
                                        tape_of(&tape, *state, blank[i])));
    }

    for (i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
        assert_false(ngx_modelgw_tape_blank(&tape,
                                        tape_of(&tape, *state, other[i])));
    }
}


static void
test_count(void **state)
{
    ngx_uint_t           i, n;
    ngx_modelgw_tape_t   tape;
    static const char   *other[] = {
        "-1", "-0", "1.0", "1e3", "1E3", "0.5", "1234567890", "null", "true",
        "\"1\"", "[1]", "{}", "1.5e+10"
    };

    assert_true(ngx_modelgw_tape_count(&tape, tape_of(&tape, *state, "0"),
                                       &n));
    assert_int_equal(n, 0);

    assert_true(ngx_modelgw_tape_count(&tape,
                                       tape_of(&tape, *state, " 999999999 "),
                                       &n));
    assert_int_equal(n, 999999999);

    n = 17;

    for (i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
        assert_false(ngx_modelgw_tape_count(&tape,
                                        tape_of(&tape, *state, other[i]),
                                        &n));
    }

    assert_false(ngx_modelgw_tape_count(&tape, NULL, &n));
    assert_int_equal(n, 17);
}


static void
test_unfinished(void **state)
{
    ngx_uint_t           i, n;
    ngx_modelgw_tape_t   tape;
    static const char   *parts[] = {
        "", " ", "[", "{", "[1", "[1,", "[]]]", "\"", "\"a", "\"\\", "\"a\\\"",
        "{\"a\":", "{\"a\":1", "[[]", "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]"
    };

    ngx_modelgw_tape_init(&tape, *state,
                          ngx_modelgw_skip_variants(&n)[0].skip);

    for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        ngx_modelgw_tape_reset(&tape);
        feed(&tape, (u_char *) parts[i], strlen(parts[i]));

        /* closed once too often: invalid, but it ends */

        assert_int_equal(ngx_modelgw_tape_done(&tape, (u_char *) parts[i]),
                         strcmp(parts[i], "[]]]") ? NGX_DECLINED : NGX_OK);
    }
}


/* calls all readers of a node; ASan detects reads outside the document */

static void
touch(ngx_modelgw_tape_t *tape, ngx_pool_t *pool, size_t len)
{
    ngx_str_t            s;
    ngx_uint_t           i, n;
    ngx_modelgw_node_t  *node;

    for (i = 0; i < tape->n; i++) {
        node = &tape->nodes[i];

        assert_true(node->from < node->to && node->to <= len);
        assert_true(node->after > i && node->after <= tape->n);

        (void) ngx_modelgw_tape_member(tape, node, "a");
        (void) ngx_modelgw_tape_is(tape, node, "a\n");
        (void) ngx_modelgw_tape_count(tape, node, &n);
        (void) ngx_modelgw_tape_first(tape, node);

        if (node->type == NGX_MODELGW_TAPE_STRING) {
            assert_true(node->to - node->from >= 2);
            (void) ngx_modelgw_tape_blank(tape, node);
            assert_int_equal(ngx_modelgw_tape_text(tape, pool, node, &s),
                             NGX_OK);
            assert_true(s.len <= node->to - node->from - 2);
        }
    }
}


static void
test_nonsense(void **state)
{
    u_char              *doc;
    size_t               len, at, n;
    ngx_uint_t           i, k;
    ngx_pool_t          *pool;
    ngx_modelgw_tape_t   tape;
    static const char    bytes[] = "[]{}\"\"\"\\\\:,1antfu0d8 \n\x80\x01";

    srandom(1);

    for (i = 0; i < 100000; i++) {
        pool = unit_pool_create();
        ngx_modelgw_tape_init(&tape, pool,
                              ngx_modelgw_skip_variants(&n)[0].skip);

        len = random() % 40;
        doc = malloc(ngx_max(len, 1));
        assert_non_null(doc);

        for (k = 0; k < len; k++) {
            doc[k] = bytes[random() % (sizeof(bytes) - 1)];
        }

        for (at = 0; at < len; at += n) {
            n = 1 + random() % (len - at);
            feed(&tape, doc + at, n);
        }

        if (ngx_modelgw_tape_done(&tape, doc) == NGX_OK) {
            touch(&tape, pool, len);
        }

        unit_free(doc);
        ngx_destroy_pool(pool);
    }
}


static void
test_growth(void **state)
{
    size_t               len;
    u_char              *doc, *p;
    ngx_uint_t           i, n, size;
    ngx_modelgw_node_t  *nodes;
    ngx_modelgw_tape_t   tape;

    ngx_modelgw_tape_init(&tape, *state,
                          ngx_modelgw_skip_variants(&n)[0].skip);

    doc = malloc(2 * NGX_MODELGW_TAPE_MAX_NODES + 8);
    assert_non_null(doc);

    for (n = 0; n < NGX_MODELGW_TAPE_MAX_NODES; n = n * 4 + 63) {
        p = doc;
        *p++ = '[';

        for (i = 0; i < n; i++) {
            *p++ = '0' + i % 10;
            *p++ = ',';
        }

        *p++ = '"';
        *p++ = '"';
        *p++ = ']';
        len = p - doc;

        ngx_modelgw_tape_reset(&tape);
        feed(&tape, doc, len);

        assert_int_equal(ngx_modelgw_tape_done(&tape, doc), NGX_OK);
        assert_true(unit_tape_sound(&tape, doc, len));
        assert_int_equal(ngx_modelgw_tape_root(&tape)->count, n + 1);
    }

    /* much memory is freed, the rest is kept */

    assert_true(tape.size > NGX_MODELGW_TAPE_KEEP);
    ngx_modelgw_tape_reset(&tape);
    assert_true(tape.size <= NGX_MODELGW_TAPE_KEEP);

    feed(&tape, (u_char *) "[1]", 3);

    nodes = tape.nodes;
    size = tape.size;

    ngx_modelgw_tape_reset(&tape);
    feed(&tape, (u_char *) "[1]", 3);
    assert_int_equal(ngx_modelgw_tape_done(&tape, (u_char *) "[1]"), NGX_OK);
    assert_ptr_equal(tape.nodes, nodes);
    assert_int_equal(tape.size, size);

    unit_free(doc);
}


static void
test_limits(void **state)
{
    u_char              *doc;
    size_t               i, len;
    ngx_uint_t           n;
    ngx_modelgw_tape_t   tape;

    ngx_modelgw_tape_init(&tape, *state,
                          ngx_modelgw_skip_variants(&n)[0].skip);

    len = 2 * NGX_MODELGW_TAPE_MAX_NODES;
    doc = malloc(len);
    assert_non_null(doc);

    for (i = 0; i < len; i += 2) {
        doc[i] = '1';
        doc[i + 1] = ',';
    }

    /* with the array that is one node too many */

    doc[1] = '[';
    doc[0] = ' ';

    assert_int_equal(ngx_modelgw_tape_feed(&tape, doc, len), NGX_OK);
    assert_int_equal(tape.n, NGX_MODELGW_TAPE_MAX_NODES);

    assert_int_equal(ngx_modelgw_tape_feed(&tape, doc + 2, 2), NGX_DECLINED);
    assert_int_equal(ngx_modelgw_tape_feed(&tape, (u_char *) "]", 1),
                     NGX_DECLINED);
    assert_int_equal(ngx_modelgw_tape_done(&tape, doc), NGX_DECLINED);

    /* too long: refused before a byte is read */

    ngx_modelgw_tape_reset(&tape);
    assert_int_equal(ngx_modelgw_tape_feed(&tape, doc, 0x80000000),
                     NGX_DECLINED);

    ngx_modelgw_tape_reset(&tape);
    assert_int_equal(ngx_modelgw_tape_feed(&tape, (u_char *) "[1]", 3),
                     NGX_OK);
    assert_int_equal(ngx_modelgw_tape_feed(&tape, doc, 0x7ffffffd),
                     NGX_DECLINED);
    assert_int_equal(ngx_modelgw_tape_done(&tape, doc), NGX_DECLINED);

    unit_free(doc);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_shapes),
        unit_case(test_scanned),
        unit_case(test_scanned_too_many),
        unit_case(test_members),
        unit_case(test_members_at_once),
        unit_case(test_walks),
        unit_case(test_too_deep),
        unit_case(test_text),
        unit_case(test_is),
        unit_case(test_blank),
        unit_case(test_count),
        unit_case(test_unfinished),
        unit_case(test_nonsense),
        unit_case(test_growth),
        unit_case(test_limits)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
