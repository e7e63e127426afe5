
/*
 * The text of an answer in the events of a stream: how many bytes it is.
 */


#include "unit.h"

#include "ngx_modelgw_text.h"
#include "ngx_modelgw_usage.h"


#define CHUNK(delta)                                                          \
    "{\"id\":\"x\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":" delta  \
    ",\"finish_reason\":null}],\"usage\":null}"


/* in a block of exactly that size: ASan detects a read past its end */

static size_t
text(const char *data, size_t len)
{
    u_char              *copy;
    ngx_modelgw_text_t   t;

    copy = unit_dup(data, len);

    ngx_modelgw_text(&t, copy, len);

    assert_true(t.n <= len);

    if (t.last.data) {
        assert_true(t.last.data >= copy);
        assert_true(t.last.data + t.last.len <= copy + len);
        assert_true(ngx_modelgw_text_len(&t.last) <= t.n);
    }

    unit_free(copy);

    return t.n;
}


static void
test_text(void **state)
{
    size_t      got;
    ngx_uint_t  i;

    static struct {
        const char  *data;
        size_t       n;
    } c[] = {

        /* chat */

        { CHUNK("{\"role\":\"assistant\",\"content\":\"\"}"), 0 },
        { CHUNK("{\"content\":\" token\"}"), 6 },
        { CHUNK("{\"content\":null,\"refusal\":\"no\"}"), 2 },
        { CHUNK("{\"reasoning_content\":\"abc\",\"content\":\"de\"}"), 5 },
        { CHUNK("{\"tool_calls\":[{\"index\":0,\"id\":\"call_1\",\"type\":"
                "\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
                "\"{\\\"a\\\":1}\"}}]}"), 7 },
        { CHUNK("{}"), 0 },
        { CHUNK("null"), 0 },
        { "{\"choices\":[{\"delta\":{\"content\":\"ab\"}},{\"index\":1,"
          "\"delta\":{\"content\":\"cde\"}}],\"object\":\"x\"}", 5 },
        { "{ \"choices\" : [ { \"delta\" :\n{ \"content\" : \"ab\" , \"role\" "
          ":\t\"x\" , \"z\" : [ \"c\" , \"d\" ] } } ] }", 4 },

        /* messages */

        { "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":"
          "\"text_delta\",\"text\":\"Hello\"}}", 5 },
        { "{\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":"
          "\"{\\\"a\\\": \"}}", 6 },
        { "{\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},"
          "\"usage\":{\"output_tokens\":7}}", 0 },
        { "{\"type\":\"content_block_start\",\"content_block\":{\"type\":"
          "\"text\",\"text\":\"abc\"}}", 0 },

        /* escapes, unescaped */

        { "{\"delta\":\"\\n\\\"\\\\\\/\"}", 4 },
        { "{\"delta\":\"\\u0041\\u00e9\\u20ac\\ud83d\\ude39\"}", 10 },
        { "{\"delta\":\"\xc3\xa9\xe2\x82\xac\"}", 5 },

        /* members that do not count, and others that do */

        { "{\"delta\":{\"type\":\"aaa\",\"x\":\"b\",\"id\":\"aaa\"}}", 1 },
        { "{\"delta\":{\"type\":7,\"x\":\"b\"}}", 1 },
        { "{\"delta\":{\"type\":{\"x\":\"b\"},\"y\":\"c\"}}", 2 },
        { "{\"delta\":{\"x\":[{\"type\":\"a\"},\"bc\"]}}", 2 },
        { "{\"delta\":{\"types\":\"abc\",\"typ\":\"d\"}}", 4 },
        { "{\"delta\":{\"delta\":{\"x\":\"ab\"}},\"text\":\"abc\"}", 2 },
        { "{\"delta\":[\"a\",[\"b\"]],\"y\":\"c\"}", 2 },

        /* no members "delta" */

        { "{\"type\":\"delta\",\"x\":[\"delta\",\"y\"]}", 0 },
        { "{\"x\\\"delta\":\"abc\"}", 0 },
        { "{\"x\":\"\\\"delta\\\":\\\"abc\\\"\"}", 0 },
        { "{\"x\":\"{\\\"delta\\\":{}}\",\"delta\":\"ab\"}", 2 },
        { "{\"Delta\":\"abc\",\"deltas\":\"abc\"}", 0 },
        { "{\"a\":1:\"abc\",\"x\"\"delta\" x:\"abc\"}", 0 },
        { "delta\":\"abc\"", 0 },

        /* not JSON */

        { "", 0 },
        { "[DONE]", 0 },
        { "\"delta\"", 0 },
        { "\"delta\":", 0 },
        { "\"delta\" : ", 0 },
        { "\"delta\":\"", 0 },
        { "\"delta\":{\"a", 1 },
        { "\"delta\":}\"delta\":\"a\"", 1 },
        { "\"delta\":\"\\", 1 },
        { "\"delta\":\"\\u12", 3 },
        { "\"delta\":\"\\uzzzz\"", 1 },
        { "\"delta\":{\"a\":\"b\"", 1 },
        { "\"delta\":\"a\"\"delta\":\"b\"", 2 }
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        got = text(c[i].data, strlen(c[i].data));

        if (got != c[i].n) {
            print_error("%s: %d instead of %d\n", c[i].data, (int) got,
                        (int) c[i].n);
            fail();
        }
    }
}


/* a JSON answer, whole and cut anywhere */

static void
test_answer(void **state)
{
    size_t       n, len, got, before;
    u_char      *copy;
    ngx_uint_t   i;

    static struct {
        ngx_uint_t   protocol;
        const char  *data;
        size_t       n;
    } c[] = {
        { NGX_MODELGW_CHAT, "{\"id\":\"chatcmpl-1\",\"model\":\"m\","
          "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
          "\"content\":\"Hello\",\"refusal\":null},\"logprobs\":{"
          "\"content\":[{\"token\":\"Hello\"}]},\"finish_reason\":\"stop\"},"
          "{\"index\":1,\"message\":{\"reasoning_content\":\"ab\","
          "\"tool_calls\":[{\"id\":\"call_1\",\"type\":\"function\","
          "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\""
          "}}]}}],\"service_tier\":\"default\"}", 14 },
        { NGX_MODELGW_CHAT, "{\"choices\":[{\"message\":null}]}", 0 },
        { NGX_MODELGW_CHAT, "{\"content\":[{\"text\":\"abc\"}]}", 0 },
        { NGX_MODELGW_CHAT, "{\"message\":{\"content\":\"\\\"message\\\":"
          "\\\"abc\\\"\"}}", 15 },

        { NGX_MODELGW_MESSAGES, "{\"id\":\"msg_1\",\"type\":\"message\","
          "\"role\":\"assistant\",\"model\":\"m\",\"content\":[{\"type\":"
          "\"thinking\",\"thinking\":\"abc\",\"signature\":\"de\"},"
          "{\"type\":\"text\",\"text\":\"\\u00e9\"}],\"stop_reason\":"
          "\"end_turn\",\"stop_sequence\":\"abc\"}", 7 },

        /* {"a":[1,"b\"}"],"c":null}, with blanks; then {} and a string */

        { NGX_MODELGW_MESSAGES, "{\"content\" : [ {\"type\":\"tool_use\","
          "\"id\":\"toolu_1\",\"name\":\"f\",\"input\" :\n { \"a\" : [ 1,"
          "\t\"b\\\"}\" ], \"c\": null } }, {\"type\":\"text\",\"text\":"
          "\"xyz\"} ] , \"input\":{\"x\":\"y\"}}", 25 + 3 },
        { NGX_MODELGW_MESSAGES, "{\"content\":[{\"input\":{}}]}", 2 },
        { NGX_MODELGW_MESSAGES, "{\"content\":[{\"input\":\"abc\"}]}", 3 },
        { NGX_MODELGW_MESSAGES, "{\"content\":\"abc\"}", 3 },
        { NGX_MODELGW_MESSAGES, "{\"message\":{\"text\":\"abc\"}}", 0 },

        { NGX_MODELGW_RESPONSES, "{\"instructions\":\"abc\",\"output\":[{"
          "\"type\":\"shell_call\",\"action\":{\"commands\":[\"ab\",\"c\"]}},"
          "{\"type\":\"message\",\"content\":[{\"text\":\"de\"}]}],"
          "\"tools\":[{\"command\":[\"abc\"]}]}", 5 },

        { NGX_MODELGW_MESSAGES, "<html>content: \"abc\"</html>", 0 },
        { NGX_MODELGW_MESSAGES, "", 0 },
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        len = strlen(c[i].data);

        for (n = 0, before = 0; n <= len; n++) {
            copy = unit_dup(c[i].data, n);
            got = ngx_modelgw_text_answer(c[i].protocol, copy, n);
            unit_free(copy);

            /* a key may look like text, half of an escape counts its bytes */

            assert_true(got <= before + 17);
            before = got;
        }

        if (got != c[i].n) {
            print_error("%s: %d instead of %d\n", c[i].data, (int) got,
                        (int) c[i].n);
            fail();
        }
    }
}


/* only strings that a model has written */

static void
test_items(void **state)
{
    u_char      *copy;
    size_t       len, n, got, begun, before;
    ngx_uint_t   i;

    static struct {
        const char  *data;
        size_t       n;
        size_t       sealed;    /* of these */
    } c[] = {
        { "{\"type\":\"message\",\"id\":\"msg_1\",\"status\":\"completed\","
          "\"content\":[{\"type\":\"output_text\",\"text\":\"a\\n\xc3\xa9\","
          "\"annotations\":[{\"url\":\"u\",\"title\":\"t\"}],\"logprobs\":"
          "[{\"token\":\"a\",\"bytes\":[1]}]},{\"type\":\"refusal\","
          "\"refusal\":\"no\"}]}", 6, 0 },
        { "{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\","
          "\"text\":\"abc\"}],\"encrypted_content\":\"0123456789\"}", 13,
          10 },
        { "{\"type\":\"function_call\",\"call_id\":\"call_1\",\"name\":\"f\","
          "\"arguments\":\"{\\\"a\\\":1}\"}", 7, 0 },
        { "{\"type\":\"custom_tool_call\",\"name\":\"f\",\"input\":\"xy\"}", 2, 0 },
        { "{\"type\":\"code_interpreter_call\",\"code\":\"1+1\"}", 3, 0 },
        { "{\"type\":\"shell_call\",\"call_id\":\"call_1\",\"action\":{"
          "\"commands\":[\"ls -l\", \"pwd\"],\"timeout_ms\":null}}", 8, 0 },
        { "{\"type\":\"local_shell_call\",\"action\":{\"type\":\"exec\","
          "\"command\":[\"ls\",\"-a\"],\"env\":{\"A\":\"b\"},\"user\":"
          "\"root\"}}", 4, 0 },
        { "{\"type\":\"apply_patch_call\",\"operation\":{\"type\":"
          "\"update_file\",\"path\":\"a.c\",\"diff\":\"@@\\n+x\"}}", 8, 0 },
        { "{\"type\":\"mcp_call\",\"server_label\":\"s\",\"arguments\":"
          "\"{}\",\"output\":\"long\",\"error\":null}", 2, 0 },
        { "{\"type\":\"tool_search_call\",\"arguments\": { \"a\" : \"b\" },"
          "\"execution\":\"client\"}", 9, 0 },
        { "{\"action\":{\"queries\":[\"a\",\"b\"],\"query\":\"c\"}}", 0, 0 },
        { "[{\"text\":\"a\"},{\"content\":[{\"text\":\"bc\"}]},\"x\",[\"y\"]]",
          3, 0 },
        { "[]", 0, 0 },
        { "{}", 0, 0 },
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        len = strlen(c[i].data);

        for (n = 0, got = 0, begun = 0, before = 0;
             n <= len;
             n++, before = got)
        {
            copy = unit_dup(c[i].data, n);
            got = ngx_modelgw_text_items(copy, n, 1);
            begun = ngx_modelgw_text_items(copy, n, 0);
            unit_free(copy);

            assert_true(got <= before + 10);
            assert_true(begun <= got);
        }

        assert_int_equal(got, c[i].n);
        assert_int_equal(begun, c[i].n - c[i].sealed);
    }
}


/* a truncated document has no more text than the whole one */

static void
test_cut(void **state)
{
    size_t       n, len, got, before;
    const char  *doc =
        "{\"choices\":[{\"delta\":{\"content\":\"a\\u00e9\\ud83d\\ude39\\n\xc3"
        "\xa9\",\"role\":\"assistant\",\"x\":[\"y\",{\"name\":\"z\"}]}}]}";

    len = strlen(doc);

    for (n = 0, before = 0; n <= len; n++) {
        got = text(doc, n);

        /* half of an escape counts its bytes, a key may look like text */

        assert_true(got <= before + 10);
        before = got;
    }

    assert_int_equal(before, 11);
}


/* linear in the text, however many members there are */

static void
test_linear(void **state)
{
    size_t              i, n;
    u_char             *doc;
    ngx_modelgw_text_t  t;
    static const char  *parts[] = {
        "\"delta\"", "\"delta\":", "\"delta\":{", "\"delta\":[\"x\\\"", "\\",
        "\"", "{\"delta\":\"\\u00e9\"}", ":", "\"  :", "\"delta\"  "
    };

    doc = malloc(1 << 20);
    assert_non_null(doc);

    for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {

        for (n = 0; n + strlen(parts[i]) <= 1 << 20; n += strlen(parts[i])) {
            memcpy(doc + n, parts[i], strlen(parts[i]));
        }

        ngx_modelgw_text(&t, doc, n);

        assert_true(t.n <= n);
    }

    free(doc);
}


static void
test_finished(void **state)
{
    size_t               n, len;
    u_char              *copy;
    ngx_uint_t           i;
    ngx_modelgw_text_t   t;

    static struct {
        const char  *data;
        ngx_uint_t   finished;
    } c[] = {
        { CHUNK("{\"content\":\"x\"}"), 0 },
        { "{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}", 1 },
        { "{\"choices\":[{\"finish_reason\"\t:\n \"length\"}]}", 1 },
        { "{\"choices\":[{\"finish_reason\":null},{\"finish_reason\":\"a\"}]}",
          1 },
        { "{\"choices\":[{\"finish_reason\":\"a\"},{\"delta\":{\"x\":\"y\"},"
          "\"finish_reason\":\"a\"}]}", 2 },
        { "{\"choices\":[{\"finish_reason\":null},{\"finish_reason\":7}]}", 0 },
        { "{\"delta\":{\"finish_reason\":\"stop\"}}", 0 },
        { "{\"finish_reasons\":\"stop\"}", 0 },
        { "{\"x\":\"finish_reason\",\"y\":\"stop\"}", 0 },
        { "{\"x\":[\"finish_reason\",\"stop\"]}", 0 },
        { "{\"x\":\"\\\"finish_reason\\\":\\\"stop\\\"\"}", 0 },
        { "{\"x\\\"finish_reason\":\"stop\"}", 0 },
        { "\"finish_reason\":", 0 },
        { "", 0 }
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        len = strlen(c[i].data);

        /* truncated, it is not finished any earlier */

        for (n = 0; n <= len; n++) {
            copy = unit_dup(c[i].data, n);

            ngx_modelgw_text(&t, copy, n);

            assert_true(t.finished <= c[i].finished);
            assert_true(n < len || t.finished == c[i].finished);

            unit_free(copy);
        }
    }
}


/* the text that may differ from event to event */

static void
test_last(void **state)
{
    ngx_uint_t           i;
    ngx_modelgw_text_t   t;

    static struct {
        const char  *data;
        const char  *last;
    } c[] = {
        { CHUNK("{\"content\":\" token\"}"), " token" },
        { CHUNK("{\"content\":\"a\\\"b\",\"role\":\"assistant\"}"),
          "a\\\"b" },
        { CHUNK("{\"content\":\"a\",\"reasoning\":\"\"}"), "" },
        { CHUNK("{\"role\":\"assistant\"}"), NULL },
        { "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":"
          "\"text_delta\",\"text\":\"Hello\"}}", "Hello" },
        { "{\"delta\":\"x\",\"text\":\"y\"}", "x" },
        { "{\"text\":\"y\"}", NULL }
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        ngx_modelgw_text(&t, (u_char *) c[i].data, strlen(c[i].data));

        if (c[i].last == NULL) {
            assert_null(t.last.data);
            continue;
        }

        assert_non_null(t.last.data);
        unit_assert_str(t.last.data, t.last.len, c[i].last);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_text),
        unit_case(test_answer),
        unit_case(test_items),
        unit_case(test_cut),
        unit_case(test_linear),
        unit_case(test_finished),
        unit_case(test_last),
    };

    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
