
/*
 * Events that repeat the previous one except for their text: the fast path
 * gives the same results as the full one, and is taken where it should be.
 */


#define _GNU_SOURCE

#include "unit.h"
#include "repeat.h"


#define CHAT(text)                                                            \
    "data: {\"id\":\"x\",\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":"  \
    "{\"content\":\"" text "\"},\"finish_reason\":null}],\"usage\":null}\n\n"

#define LATE(text)                                                            \
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" text "\"}}],"    \
    "\"model\":\"m-1\"}\n\n"

#define NOISE(text, noise)                                                    \
    "data: {\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" \
    text "\"}}],\"obfuscation\":\"" noise "\"}\n\n"

#define NOISE_LATE(text, noise)                                               \
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" text "\"}}],"    \
    "\"model\":\"m-1\",\"obfuscation\":\"" noise "\"}\n\n"

#define NOISE_FIRST(text, noise)                                              \
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" text "\"}}],"    \
    "\"obfuscation\":\"" noise "\",\"model\":\"m-1\"}\n\n"

#define START                                                                 \
    "data: {\"type\":\"message_start\",\"message\":{\"id\":\"i\",\"model\":\"m\","  \
    "\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n"

#define MESSAGES(text)                                                        \
    "event: content_block_delta\n"                                            \
    "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":"      \
    "\"text_delta\",\"text\":\"" text "\"}}\n\n"

#define DELTA(type, name, text)                                               \
    "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\""   \
    type "\",\"" name "\":\"" text "\"}}\n\n"

#define BLOCK(block)                                                          \
    "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":"      \
    block "}\n\n"


#define NUMBERED(n, text)                                                     \
    "data: {\"type\":\"x.delta\",\"sequence_number\":" n ",\"delta\":\""         \
    text "\",\"logprobs\":[]}\n\n"

#define NUMBERED_LATE(n, text, noise)                                         \
    "event: x.delta\n"                                                        \
    "data: {\"type\":\"x.delta\",\"delta\":\"" text "\",\"obfuscation\":\""    \
    noise "\",\"sequence_number\":" n "}\n\n"

#define NUMBERED_BETWEEN(n, text, noise)                                      \
    "data: {\"type\":\"x.delta\",\"delta\":\"" text "\",\"sequence_number\":"   \
    n ",\"obfuscation\":\"" noise "\"}\n\n"


typedef struct {
    ngx_uint_t   protocol;
    const char  *stream;
    ngx_uint_t   taken;
} case_t;


/* whole, in pieces of each size, and cut at each place once */

static void
replay(case_t *c)
{
    size_t      i, chunk, len;
    ngx_uint_t  taken;

    len = strlen(c->stream);

    taken = repeat_compare(c->protocol, (u_char *) c->stream, len, len, 0);

    if (taken != c->taken) {
        print_error("%s: %d instead of %d\n", c->stream, (int) taken,
                    (int) c->taken);
        fail();
    }

    for (i = 0; (chunk = unit_chunk(i, len)) != 0; i++) {
        (void) repeat_compare(c->protocol, (u_char *) c->stream, len, chunk, 0);
    }

    for (i = 1; i < len; i++) {
        (void) repeat_compare(c->protocol, (u_char *) c->stream, len, i, 0);
    }
}


static void
replay_all(case_t *c, ngx_uint_t n)
{
    ngx_uint_t  i;

    for (i = 0; i < n; i++) {
        replay(&c[i]);
    }
}


static void
test_repeats(void **state)
{
    static case_t  c[] = {

        { NGX_MODELGW_CHAT, CHAT("a") CHAT("bc") CHAT("") CHAT("d"), 3 },
        { NGX_MODELGW_CHAT, LATE("a") LATE("longer") LATE(""), 2 },
        { NGX_MODELGW_CHAT, CHAT("") CHAT("a") LATE("a") LATE("b"), 2 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("b") "data: [DONE]\n\n", 1 },
        { NGX_MODELGW_CHAT, CHAT("a") "\n\n" CHAT("b") CHAT("c"), 0 },
        { NGX_MODELGW_CHAT, CHAT("a") ": ping\n\n" CHAT("b") CHAT("c"), 1 },

        { NGX_MODELGW_MESSAGES, START MESSAGES("a") MESSAGES("bc")
          MESSAGES("") MESSAGES("d"), 3 },
        { NGX_MODELGW_MESSAGES, MESSAGES("a") MESSAGES("b"), 0 },

        { NGX_MODELGW_MESSAGES, START
          BLOCK("{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\"}")
          DELTA("input_json_delta", "partial_json", "")
          DELTA("input_json_delta", "partial_json", "{\\\"a\\\":")
          DELTA("input_json_delta", "partial_json", "1}"), 2 },

        { NGX_MODELGW_MESSAGES, START
          BLOCK("{\"type\":\"thinking\",\"thinking\":\"\"}")
          DELTA("thinking_delta", "thinking", "a")
          DELTA("thinking_delta", "thinking", "b")
          DELTA("signature_delta", "signature", "c")
          DELTA("signature_delta", "signature", "d")
          "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n", 2 },

        /* a text that is not part of the answer */

        { NGX_MODELGW_MESSAGES, START
          BLOCK("{\"type\":\"server_tool_use\"}")
          MESSAGES("a") MESSAGES("b"), 0 },
        { NGX_MODELGW_MESSAGES, START
          DELTA("text_delta", "text\":\"a\",\"more", "x")
          DELTA("text_delta", "text\":\"a\",\"more", "y"), 0 }
    };

    replay_all(c, sizeof(c) / sizeof(c[0]));
}


static void
test_noise(void **state)
{
    static case_t  c[] = {

        { NGX_MODELGW_CHAT, NOISE("a", "xyz") NOISE("bc", "") NOISE("", "x")
          NOISE("d\xc3\xa9", "\\n"), 3 },
        { NGX_MODELGW_CHAT, NOISE_LATE("a", "xyz") NOISE_LATE("bc", "")
          NOISE_LATE("", "xx"), 2 },
        { NGX_MODELGW_CHAT, NOISE_FIRST("a", "xyz") NOISE_FIRST("bc", "xy")
          NOISE_FIRST("d", "xy"), 1 },
        { NGX_MODELGW_CHAT, NOISE("a", "x") CHAT("b") NOISE("a", "x"), 0 },
        { NGX_MODELGW_CHAT, NOISE("a", "x") NOISE("a", "\x01"), 0 },
        { NGX_MODELGW_CHAT, NOISE("a", "x\",\"x\":\"") NOISE("a", "x"), 0 },
        { NGX_MODELGW_CHAT,
          "data: {\"delta\":{\"x\":\"y\",\"obfuscation\":\"a\"}}\n\n"
          "data: {\"delta\":{\"x\":\"y\",\"obfuscation\":\"bc\"}}\n\n", 1 },
        { NGX_MODELGW_CHAT,
          "data: {\"obfuscation\":\"a\",\"delta\":\"b\"}\n\n"
          "data: {\"obfuscation\":\"a\",\"delta\":\"cd\"}\n\n"
          "data: {\"obfuscation\":\"ef\",\"delta\":\"b\"}\n\n", 1 },
        { NGX_MODELGW_CHAT,
          "data: {\"delta\":\"b\",\"error\":{\"obfuscation\":\"x\"}}\n\n"
          "data: {\"delta\":\"b\",\"error\":{\"obfuscation\":\"y\"}}\n\n", 0 },
        { NGX_MODELGW_CHAT,
          "data: {\"delta\":\"b\",\"usage\":{\"prompt_tokens\":3,"
          "\"obfuscation\":\"x\"}}\n\n"
          "data: {\"delta\":\"b\",\"usage\":{\"prompt_tokens\":3,"
          "\"obfuscation\":\"yz\"}}\n\n", 1 },
        { NGX_MODELGW_MESSAGES, START
          "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{"
          "\"type\":\"text_delta\",\"text\":\"a\"},\"obfuscation\":\"x\"}\n\n"
          "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{"
          "\"type\":\"text_delta\",\"text\":\"b\"},\"obfuscation\":\"yz\"}\n\n",
          1 }
    };

    replay_all(c, sizeof(c) / sizeof(c[0]));
}


/* events of responses, which have a number */

static void
test_numbers(void **state)
{
    static case_t  c[] = {

        { NGX_MODELGW_RESPONSES, NUMBERED("8", "a") NUMBERED("9", "bc")
          NUMBERED("10", "") NUMBERED("0", "d") NUMBERED("999999999", "e"), 4 },
        { NGX_MODELGW_RESPONSES, NUMBERED_LATE("8", "a", "xyz")
          NUMBERED_LATE("9", "bc", "") NUMBERED_LATE("10", "", "x"), 2 },
        { NGX_MODELGW_RESPONSES, NUMBERED_BETWEEN("8", "a", "xyz")
          NUMBERED_BETWEEN("9", "bc", "") NUMBERED_BETWEEN("10", "", "x"), 2 },
        { NGX_MODELGW_RESPONSES, NUMBERED("8", "a") NUMBERED("9", "b")
          NUMBERED_LATE("10", "b", "") NUMBERED_LATE("11", "c", ""), 2 },

        /* no count */

        { NGX_MODELGW_RESPONSES, NUMBERED("1", "a") NUMBERED("1.5", "b")
          NUMBERED("1.5", "c"), 1 },
        { NGX_MODELGW_RESPONSES, NUMBERED("1", "a") NUMBERED("01", "b"), 0 },
        { NGX_MODELGW_RESPONSES, NUMBERED("1", "a") NUMBERED("", "b"), 0 },
        { NGX_MODELGW_RESPONSES, NUMBERED("1", "a") NUMBERED("-1", "b"), 0 },
        { NGX_MODELGW_RESPONSES, NUMBERED("1", "a") NUMBERED("null", "b")
          NUMBERED("null", "c") NUMBERED("2", "d"), 1 },
        { NGX_MODELGW_RESPONSES, NUMBERED("1", "a") NUMBERED("1 ", "b"), 0 },
        { NGX_MODELGW_RESPONSES, NUMBERED("1", "a")
          NUMBERED("1234567890", "b"), 0 },

        /* with a model */

        { NGX_MODELGW_RESPONSES,
          "data: {\"type\":\"x.delta\",\"delta\":\"a\",\"sequence_number\":1,"
          "\"response\":{\"model\":\"m\"}}\n\n"
          "data: {\"type\":\"x.delta\",\"delta\":\"a\",\"sequence_number\":2,"
          "\"response\":{\"model\":\"m\"}}\n\n", 0 },
        { NGX_MODELGW_RESPONSES,
          "data: {\"type\":\"x.delta\",\"delta\":\"a\","
          "\"response\":{\"model\":\"m\"}}\n\n"
          "data: {\"type\":\"x.delta\",\"delta\":\"b\","
          "\"response\":{\"model\":\"m\"}}\n\n", 1 }
    };

    replay_all(c, sizeof(c) / sizeof(c[0]));
}


/* the inside of the string */

static void
test_texts(void **state)
{
    static case_t  c[] = {

        { NGX_MODELGW_CHAT, CHAT("a") CHAT("\\n\\\"\\\\\\/\\t") CHAT("b"), 2 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("\\\"delta\\\":\\\"x\\\""), 1 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("\\u00e9\\ud83d\\uDE39\\ud83d"), 1 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("\xc3\xa9 \xe2\x82\xac"), 1 },
        { NGX_MODELGW_CHAT, CHAT("\xf0\x9f\x98\xb9") CHAT("b") CHAT("\x7f"),
          2 },

        { NGX_MODELGW_CHAT, CHAT("a") CHAT("0123456789abcde")
          CHAT("0123456789abcdef") CHAT("0123456789abcdef0"), 3 },

        /* not JSON */

        { NGX_MODELGW_CHAT, CHAT("a") CHAT("b\"") CHAT("c"), 0 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("0123456789abcde\x1f") CHAT("c"), 0 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("0123456789abcdef\x1f") CHAT("c"),
          0 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("\\x") CHAT("c"), 0 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("\\u00g0") CHAT("c"), 0 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("\\u00") CHAT("c"), 0 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("\\") CHAT("c"), 0 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("\t") CHAT("c"), 0 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("b\nc") CHAT("c"), 0 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("b\n\nc") CHAT("c"), 0 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("\x80") CHAT("c"), 0 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("\xc0\x80") CHAT("c"), 0 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("\xed\xa0\x80") CHAT("c"), 0 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("\xf4\x90\x80\x80") CHAT("c"), 0 },
        { NGX_MODELGW_CHAT, CHAT("a") CHAT("\xe2\x82") CHAT("c"), 0 }
    };

    replay_all(c, sizeof(c) / sizeof(c[0]));
}


/* an event with another effect, or another end, is not a pattern */

static void
test_others(void **state)
{
    ngx_uint_t     i;
    static case_t  c[] = {

        { NGX_MODELGW_CHAT, "\xef\xbb\xbf" CHAT("a") CHAT("b") CHAT("c"), 1 },
        { NGX_MODELGW_CHAT, "\n" CHAT("a") CHAT("b") CHAT("c"), 1 },
        { NGX_MODELGW_CHAT, CHAT("\"},\"finish_reason\":\"stop\",\"x\":{\"y\":\"")
          CHAT("a") CHAT("b"), 1 },
        { NGX_MODELGW_CHAT, "data: {\"delta\":\"a\"}\r\n\r\n"
          "data: {\"delta\":\"b\"}\r\n\r\ndata: {\"delta\":\"c\"}\r\n\r\n", 2 },
        { NGX_MODELGW_CHAT, "data: {\"delta\":\"a\"}\r\r"
          "data: {\"delta\":\"b\"}\r\rdata: {\"delta\":\"c\"}\r\r", 0 },
        { NGX_MODELGW_CHAT, "data: {\"delta\":\"a\"}\ndata:\n\n"
          "data: {\"delta\":\"b\"}\ndata:\n\n", 0 },
        { NGX_MODELGW_CHAT, "data: {\"delta\":\"a\",\"usage\":{\"prompt_tokens\":"
          "3}}\n\ndata: {\"usage\":{\"prompt_tokens\":5}}\n\n"
          "data: {\"delta\":\"b\",\"usage\":{\"prompt_tokens\":3}}\n\n", 0 },
        { NGX_MODELGW_CHAT, "data: {\"delta\":\"a\",\"error\":\"x\"}\n\n"
          "data: {\"delta\":\"b\",\"error\":\"x\"}\n\n", 0 },
        { NGX_MODELGW_CHAT, "data: {\"model\":\"a\"}\n\n"
          "data: {\"model\":\"b\"}\n\n", 0 }
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        replay(&c[i]);
    }
}


/* several events in a row, of which the last ones are not copied */

#define ROW(event)  event("a") event("bc") event("") event("d")

#define CHAT_END    CHAT("y") CHAT("z") CHAT("\x01")
#define LATE_END    LATE("x") LATE("y") LATE("z") LATE("w") LATE("v")
#define LONG        "0123456789abcdef0123456789abcdef0123456789abcdef"


static void
test_rows(void **state)
{
    size_t         len;
    ngx_uint_t     i, seed, copied;
    static case_t  c[] = {

        /* the first one is scanned, the second one read by _next() */

        { NGX_MODELGW_CHAT, ROW(CHAT) CHAT_END, 3 },
        { NGX_MODELGW_CHAT, ROW(CHAT) ROW(CHAT) ROW(CHAT) CHAT_END, 11 },
        { NGX_MODELGW_CHAT, ROW(LATE) ROW(LATE) LATE_END, 8 },
        { NGX_MODELGW_CHAT, ROW(CHAT) CHAT("\\n\\n\\\"x\\\\") CHAT("\\/") CHAT_END,
          5 },
        { NGX_MODELGW_CHAT, ROW(CHAT) CHAT(LONG) CHAT("a" LONG "\\n" LONG)
          CHAT("0123456789abcde\\n") CHAT("0123456789abcdef\\n")
          CHAT("0123456789abcdef0123456789abcde")
          CHAT("0123456789abcdef0123456789abcdef")
          CHAT("0123456789abcdef0123456789abcdefg") CHAT_END, 10 },
        { NGX_MODELGW_CHAT, ROW(CHAT) CHAT("\xc3\xa9") CHAT("\\u00e9\\ud83d")
          CHAT_END, 5 },
        { NGX_MODELGW_CHAT, ROW(CHAT) CHAT("a\x01") CHAT("a") CHAT_END, 2 },
        { NGX_MODELGW_CHAT, ROW(CHAT) CHAT("\\x") CHAT("a") CHAT_END, 2 },
        { NGX_MODELGW_CHAT, ROW(CHAT) CHAT("\xff") CHAT("a") CHAT_END, 2 },
        { NGX_MODELGW_CHAT, ROW(CHAT) "data: {}\n\n" ROW(CHAT) CHAT_END, 4 },
        { NGX_MODELGW_CHAT, NOISE("a", "xyz") NOISE("bc", "") NOISE("", "x")
          NOISE("d\xc3\xa9", "\\n") NOISE("", LONG LONG) NOISE("\\t", "\\u00e9")
          NOISE("a", "b") NOISE("a", "b") NOISE("a", "b") NOISE("a", "b")
          NOISE("a", "b"), 6 },

        { NGX_MODELGW_MESSAGES, START ROW(MESSAGES) ROW(MESSAGES)
          MESSAGES("y") MESSAGES("z"), 6 },
        { NGX_MODELGW_MESSAGES, START ROW(MESSAGES) BLOCK("{}") BLOCK("{}")
          MESSAGES("y"), 1 },

        { NGX_MODELGW_RESPONSES, NUMBERED("8", "a") NUMBERED("9", "bc")
          NUMBERED("10", "") NUMBERED("0", "d") NUMBERED("999999999", "e")
          NUMBERED("7", "e") NUMBERED("6", "e") NUMBERED("5", "e"), 3 },
        { NGX_MODELGW_RESPONSES, NUMBERED("8", "a") NUMBERED("9", "bc")
          NUMBERED("10", "") NUMBERED("01", "d") NUMBERED("6", "e")
          NUMBERED("7", "e") NUMBERED("8", "e") NUMBERED("9", "e"), 1 },
        { NGX_MODELGW_RESPONSES, NUMBERED_LATE("8", "a", "xyz")
          NUMBERED_LATE("9", "bc", "") NUMBERED_LATE("10", "", "x")
          NUMBERED_LATE("11", "", "x") NUMBERED_LATE("12", "", "x")
          NUMBERED_LATE("13", "", "x") NUMBERED_LATE("14", "", "x"), 2 }
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        len = strlen(c[i].stream);

        (void) repeat_compare_copied(c[i].protocol, (u_char *) c[i].stream, len,
                                     len, 0, &copied);

        if (copied != c[i].taken) {
            print_error("%d instead of %d: %s\n", (int) copied,
                        (int) c[i].taken, c[i].stream);
            fail();
        }

        for (seed = 1; seed < 100; seed++) {
            (void) repeat_compare(c[i].protocol, (u_char *) c[i].stream, len,
                                  20 * len, seed);
        }

        for (seed = 1; seed < len; seed++) {
            (void) repeat_compare(c[i].protocol, (u_char *) c[i].stream, len,
                                  seed, 0);
        }
    }
}


/* any byte of an event in a row may be another one */

static void
test_bytes(void **state)
{
    u_char         *doc, ch;
    size_t          len, i, k;
    ngx_uint_t      n;
    static u_char   other[] = { '"', '\\', 'x', '0', LF, 0xff };
    static case_t   c[] = {
        { NGX_MODELGW_CHAT, ROW(CHAT) ROW(CHAT), 0 },
        { NGX_MODELGW_CHAT, NOISE("a", "xyz") NOISE("bc", "") NOISE("", "x")
          NOISE("d", "\\n") NOISE("a", "b") NOISE("a", "b") NOISE("a", "b"), 0 },
        { NGX_MODELGW_RESPONSES, NUMBERED("8", "a") NUMBERED("9", "bc")
          NUMBERED("10", "") NUMBERED("11", "d") NUMBERED("12", "e")
          NUMBERED("13", "f") NUMBERED("14", "g") NUMBERED("15", "h"), 0 }
    };

    for (n = 0; n < sizeof(c) / sizeof(c[0]); n++) {
        len = strlen(c[n].stream);
        doc = unit_dup((u_char *) c[n].stream, len);

        for (i = len / 4; i < 3 * len / 4; i++) {
            ch = doc[i];

            for (k = 0; k < sizeof(other); k++) {
                doc[i] = other[k];
                (void) repeat_compare(c[n].protocol, doc, len, len, 0);
            }

            doc[i] = ch;
        }

        unit_free(doc);
    }
}


/* as long as an event may be, and longer */

static void
test_long(void **state)
{
    size_t       i, n, len;
    u_char      *doc, *p;
    const char  *head, *tail;

    head = "data: {\"delta\":\"";
    tail = "\"}\n\n";

    doc = malloc(3 * REPEAT_MAX_EVENT);
    assert_non_null(doc);

    for (i = 0; i < 8; i++) {
        n = REPEAT_MAX_EVENT - strlen(head) - strlen(tail) - 4 + i;

        p = ngx_cpymem(doc, head, strlen(head));
        p = ngx_cpymem(p, tail, strlen(tail));
        p = ngx_cpymem(p, head, strlen(head));
        ngx_memset(p, 'x', n);
        p = ngx_cpymem(p + n, tail, strlen(tail));

        len = p - doc;

        assert_int_equal(repeat_compare(NGX_MODELGW_CHAT, doc, len, len, 0),
                         i <= 4);
    }

    free(doc);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_repeats),
        unit_case(test_noise),
        unit_case(test_numbers),
        unit_case(test_texts),
        unit_case(test_others),
        unit_case(test_rows),
        unit_case(test_bytes),
        unit_case(test_long),
    };

    return cmocka_run_group_tests_name("repeat", tests, NULL, NULL);
}
