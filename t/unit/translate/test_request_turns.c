
/*
 * The messages of a chat request as turns: a row for each rule, and for what
 * the upstream refuses.  A row is the value of "messages" and what becomes of
 * it: the members that are written, or the code and the message of the
 * refusal.
 */


#include "unit.h"

#include "ngx_modelgw_request_private.h"


typedef struct {
    const char           *messages;
    const char           *expected;
} row_t;


static ngx_modelgw_caps_t  caps = { .prefill = 1 };


/* a request whose tape is that of the messages */

static ngx_modelgw_request_t *
request(ngx_pool_t *pool, const char *messages)
{
    size_t                   len;
    u_char                  *doc;
    ngx_uint_t               n;
    ngx_modelgw_tape_t      *tape;
    ngx_modelgw_scan_t      *s;
    ngx_modelgw_request_t   *rq;
    ngx_modelgw_scan_conf_t  conf;

    rq = ngx_pcalloc(pool, sizeof(ngx_modelgw_request_t));
    assert_non_null(rq);
    tape = ngx_pcalloc(pool, sizeof(ngx_modelgw_tape_t));
    assert_non_null(tape);

    rq->pool = pool;
    rq->tape = tape;
    rq->skip = ngx_modelgw_skip_variants(&n)->skip;
    rq->caps = &caps;

    len = ngx_strlen(messages) + sizeof("{\"messages\":}") - 1;
    doc = ngx_palloc(pool, len);
    assert_non_null(doc);
    (void) ngx_sprintf(doc, "{\"messages\":%s}", messages);

    ngx_memzero(&conf, sizeof(ngx_modelgw_scan_conf_t));
    conf.skip = rq->skip;

    s = ngx_modelgw_scan_create(pool, &conf);
    assert_non_null(s);

    if (ngx_modelgw_scan_feed(s, doc, len) != NGX_OK
        || ngx_modelgw_scan_done(s) != NGX_OK)
    {
        print_error("not JSON: %s\n", messages);
        fail();
    }

    ngx_modelgw_tape_init(tape, pool, rq->skip);
    assert_int_equal(ngx_modelgw_tape_feed(tape, doc, len), NGX_OK);
    assert_int_equal(ngx_modelgw_tape_done(tape, doc), NGX_OK);

    return rq;
}


static ngx_int_t
collect(void *data, u_char *p, size_t len, ngx_uint_t borrowed)
{
    u_char     *new;
    ngx_str_t  *text = data;

    new = realloc(text->data, text->len + len);
    assert_non_null(new);

    ngx_memcpy(new + text->len, p, len);
    text->data = new;
    text->len += len;

    return NGX_OK;
}


static void
check(ngx_pool_t *pool, const char *messages, const char *expected)
{
    u_char                       *p;
    ngx_int_t                     rc;
    ngx_str_t                     text;
    ngx_modelgw_out_t             out;
    ngx_modelgw_request_t        *rq;
    ngx_modelgw_request_turns_t   turns;

    rq = request(pool, messages);

    ngx_memzero(&turns, sizeof(ngx_modelgw_request_turns_t));
    ngx_memzero(&text, sizeof(ngx_str_t));

    out.write = collect;
    out.data = &text;
    out.failed = 0;

    rc = ngx_modelgw_request_turns_read(rq, &turns);

    if (rc == NGX_OK) {
        ngx_modelgw_request_turns_write(rq, &turns, 0, &out);

    } else {
        assert_int_equal(rc, NGX_DECLINED);

        p = ngx_palloc(pool, 1024);
        assert_non_null(p);
        (void) collect(&text, p, ngx_slprintf(p, p + 1024, "%s: %V", rq->code,
                                              &rq->message) - p, 0);
    }

    assert_false(out.failed);

    if (text.len != ngx_strlen(expected)
        || ngx_memcmp(text.data, expected, text.len) != 0)
    {
        print_error("messages: %s\n", messages);
    }

    unit_assert_str(text.data, text.len, expected);

    free(text.data);
}


static void
check_rows(void **state, row_t *row)
{
    ngx_pool_t  *pool;

    for ( /* void */ ; row->messages; row++) {
        pool = unit_pool_create();
        check(pool, row->messages, row->expected);
        ngx_destroy_pool(pool);
    }
}


/* pieces that many rows share; C joins neighbouring literals */

#define U(content)  "{\"role\":\"user\",\"content\":" content "}"
#define A(content)  "{\"role\":\"assistant\",\"content\":" content "}"
#define S(content)  "{\"role\":\"system\",\"content\":" content "}"
#define D(content)  "{\"role\":\"developer\",\"content\":" content "}"
#define T(id, content)                                                        \
    "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":" content "}"
#define CALL(id)                                                              \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":"                  \
    "{\"name\":\"f\",\"arguments\":\"{}\"}}"
#define CALLS(calls)  "{\"role\":\"assistant\",\"tool_calls\":[" calls "]}"
#define ARGS(arguments)                                                       \
    "[" U("\"q\"") "," CALLS("{\"id\":\"c\",\"type\":\"function\","           \
    "\"function\":{\"name\":\"f\"" arguments "}}") "," T("c", "\"r\"") "]"

#define TEXT(text)  "{\"type\":\"text\",\"text\":\"" text "\"}"
#define USE(id)                                                               \
    "{\"type\":\"tool_use\",\"id\":\"" id "\",\"name\":\"f\",\"input\":{}}"
#define RESULT(id, text)                                                      \
    "{\"type\":\"tool_result\",\"tool_use_id\":\"" id                         \
    "\",\"content\":\"" text "\"}"
#define USER(blocks)  "{\"role\":\"user\",\"content\":[" blocks "]}"
#define ASSISTANT(blocks)  "{\"role\":\"assistant\",\"content\":[" blocks "]}"
#define MESSAGES(turns)  ",\"messages\":[" turns "]"
#define SYSTEM(blocks)  ",\"system\":[" blocks "]"

#define CACHE  "\"cache_control\":{\"type\":\"ephemeral\"}"

#define INVALID  "INVALID_REQUEST: "
#define UNSUPPORTED  "UNSUPPORTED_FIELD: "


static void
test_instructions(void **state)
{
    static row_t  rows[] = {

        /* hoisted from anywhere, a block for each part, in order */

        { "[" S("\"s1\"") "," D("[" TEXT("d1") "," TEXT("d2") "]") ","
          U("\"u\"") "]",
          SYSTEM(TEXT("s1") "," TEXT("d1") "," TEXT("d2"))
          MESSAGES(USER(TEXT("u"))) },

        { "[" U("\"u\"") "," D("\"d\"") "]",
          SYSTEM(TEXT("d")) MESSAGES(USER(TEXT("u"))) },

        /* does not end a turn */

        { "[" U("\"first\"") "," S("\"rule\"") "," U("\"second\"") "]",
          SYSTEM(TEXT("rule")) MESSAGES(USER(TEXT("first") ","
          TEXT("second"))) },

        { "[" U("\"q\"") "," CALLS(CALL("a") "," CALL("b")) "," T("a", "\"1\"")
          "," S("\"s\"") "," T("b", "\"2\"") "," D("\"d\"") "," U("\"u\"") "]",
          SYSTEM(TEXT("s") "," TEXT("d"))
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(USE("a") "," USE("b")) ","
          USER(RESULT("a", "1") "," RESULT("b", "2") "," TEXT("u"))) },

        /* blanks are dropped */

        { "[" S("\" \\n\"") "," S("[" TEXT("") "," TEXT("s") "]") ","
          U("\"u\"") "]",
          SYSTEM(TEXT("s")) MESSAGES(USER(TEXT("u"))) },

        { "[" S("\"\"") "," U("\"u\"") "]", MESSAGES(USER(TEXT("u"))) },

        /* nothing else: they become a user's message */

        { "[" S("\"s\"") "," D("[" TEXT("d") "]") "]",
          MESSAGES(USER(TEXT("s") "," TEXT("d"))) },

        { "[" S("\"s\"") "," A("\"\"") "]", MESSAGES(USER(TEXT("s"))) },

        { "[" S("\"\"") "]", INVALID "there is no content in messages" },

        /* texts only */

        { "[" S("[{\"type\":\"image_url\",\"image_url\":{\"url\":"
          "\"https://example.com/a.png\"}}]") "," U("\"u\"") "]",
          UNSUPPORTED "messages[0].content[0].type \"image_url\" is not "
          "supported here" },

        { "[" S("null") "," U("\"u\"") "]",
          INVALID "messages[0].content is neither a string nor an array" },

        { NULL, NULL }
    };

    check_rows(state, rows);
}


static void
test_turns(void **state)
{
    static row_t  rows[] = {

        { "[" U("\"hi\"") "," A("\"Hello.\"") "," U("\"go on\"") "]",
          MESSAGES(USER(TEXT("hi")) "," ASSISTANT(TEXT("Hello.")) ","
          USER(TEXT("go on"))) },

        /* neighbours of one role */

        { "[" U("\"a\"") "," U("[" TEXT("b") "]") "," A("\"c\"") ","
          CALLS(CALL("x")) "," T("x", "\"r\"") "," U("\"d\"") "]",
          MESSAGES(USER(TEXT("a") "," TEXT("b")) "," ASSISTANT(TEXT("c") ","
          USE("x")) "," USER(RESULT("x", "r") "," TEXT("d"))) },

        /* empty: dropped, and its neighbours merge */

        { "[" U("\"a\"") "," A("\"\"") "," U("\"b\"") "]",
          MESSAGES(USER(TEXT("a") "," TEXT("b"))) },

        { "[" U("\"a\"") "," A("null") "," U("[]") "," U("\"b\"") "]",
          MESSAGES(USER(TEXT("a") "," TEXT("b"))) },

        { "[" U("\"a\"") ",{\"role\":\"assistant\"}," U("\"b\"") "]",
          MESSAGES(USER(TEXT("a") "," TEXT("b"))) },

        { "[" U("\" \"") "," A("\"a\"") "," U("\"b\"") "]",
          MESSAGES(ASSISTANT(TEXT("a")) "," USER(TEXT("b"))) },

        { "[" U("\"a\"") "," A("\"\"") "]", MESSAGES(USER(TEXT("a"))) },

        /* the first message is an assistant's: left to the upstream */

        { "[" A("\"a\"") "," U("\"b\"") "]",
          MESSAGES(ASSISTANT(TEXT("a")) "," USER(TEXT("b"))) },

        /* the last one is blank */

        { "[" U("\"\"") "]", INVALID "messages[0].content is blank" },

        { "[" U("\"a\"") "," U("[" TEXT(" \\t") "]") "," S("\"s\"") "]",
          INVALID "messages[1].content is blank" },

        /* not messages */

        { "[]", INVALID "messages is empty" },
        { "null", INVALID "messages is not an array" },
        { "{}", INVALID "messages is not an array" },
        { "[1]", INVALID "messages[0] is not an object" },

        { "[{\"content\":\"a\"}]",
          INVALID "messages[0].role must be one of \"system\", \"developer\", "
          "\"user\", \"assistant\", \"tool\"" },

        { "[" U("\"a\"") ",{\"role\":\"robot\",\"content\":\"a\"}]",
          INVALID "messages[1].role must be one of \"system\", \"developer\", "
          "\"user\", \"assistant\", \"tool\"" },

        { "[{\"role\":\"function\",\"name\":\"f\",\"content\":\"a\"}]",
          UNSUPPORTED "messages[0].role \"function\" is not supported, use "
          "\"tool\"" },

        { "[" U("0") "]",
          INVALID "messages[0].content is neither a string nor an array" },

        { "[{\"role\":\"user\"}]",
          INVALID "messages[0].content is neither a string nor an array" },

        { "[" U("\"a\"") "," A("{}") "]",
          INVALID "messages[1].content is neither a string nor an array" },

        { NULL, NULL }
    };

    check_rows(state, rows);
}


/* the bytes between the quotes stay; order of members and escapes in names */

static void
test_bytes(void **state)
{
    static row_t  rows[] = {

        { "[" U("\"\\u00e9 \\/ \\ud83d\\ude00 \\ud800 \\u0000 \xc3\xa9 "
          "\xe2\x80\xa8 \\\"\"") "]",
          MESSAGES(USER(TEXT("\\u00e9 \\/ \\ud83d\\ude00 \\ud800 \\u0000 "
          "\xc3\xa9 \xe2\x80\xa8 \\\""))) },

        { "[{\"content\":\"a\",\"name\":\"n\",\"role\":\"user\"},"
          "{\"r\\u006fle\":\"us\\u0065r\",\"c\\u006fntent\":"
          "[{\"text\":\"b\",\"x\":{\"type\":1},\"type\":\"te\\u0078t\"}]}]",
          MESSAGES(USER(TEXT("a") "," TEXT("b"))) },

        { "[{\"role\":\"assistant\",\"role\":\"user\",\"content\":\"a\"}]",
          MESSAGES(USER(TEXT("a"))) },

        { NULL, NULL }
    };

    check_rows(state, rows);
}


static void
test_prefill(void **state)
{
    static row_t  rows[] = {

        { "[" U("\"q\"") "," A("\"{ \\n\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(TEXT("{"))) },

        { "[" U("\"q\"") "," A("\"a\\\\n\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(TEXT("a\\\\n"))) },

        { "[" U("\"q\"") "," A("\"a\\\\\\n\\t\\r\\f \\u0020\\u000A\\u000b\"")
          "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(TEXT("a\\\\"))) },

        { "[" U("\"q\"") "," A("\"a\\\\u0020\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(TEXT("a\\\\u0020"))) },

        { "[" U("\"q\"") "," A("\"a\\u00e9\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(TEXT("a\\u00e9"))) },

        { "[" U("\"q\"") "," A("\"a\\b\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(TEXT("a\\b"))) },

        /* only the last text, whatever was dropped after it */

        { "[" U("\"q \"") "," A("[" TEXT("a ") "," TEXT("b ") "," TEXT(" ")
          "]") "," A("\"\"") "," S("\"s \"") "]",
          SYSTEM(TEXT("s ")) MESSAGES(USER(TEXT("q ")) ","
          ASSISTANT(TEXT("a ") "," TEXT("b"))) },

        { "[" U("\"q\"") "," A("\"a \"") "," U("\"u \"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(TEXT("a ")) ","
          USER(TEXT("u "))) },

        { NULL, NULL }
    };

    static row_t  refused[] = {

        { "[" U("\"q\"") "," A("\"a\"") "]",
          UNSUPPORTED "messages[1].role \"assistant\" of the last message is "
          "not supported by this model" },

        { "[" U("\"q\"") "," A("\"\"") "]", MESSAGES(USER(TEXT("q"))) },

        { NULL, NULL }
    };

    check_rows(state, rows);

    caps.prefill = 0;
    check_rows(state, refused);
    caps.prefill = 1;
}


static void
test_assistant(void **state)
{
    static row_t  rows[] = {

        /* refusals are text */

        { "[" U("\"q\"") "," A("[{\"type\":\"refusal\",\"refusal\":\"No.\"}]")
          "," U("\"u\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(TEXT("No.")) ","
          USER(TEXT("u"))) },

        { "[" U("\"q\"") ",{\"role\":\"assistant\",\"content\":null,"
          "\"refusal\":\"No.\",\"audio\":{\"id\":\"a\"},\"name\":\"n\","
          "\"function_call\":null,\"tool_calls\":null}," U("\"u\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(TEXT("No.")) ","
          USER(TEXT("u"))) },

        { "[" U("\"q\"") ",{\"role\":\"assistant\",\"refusal\":1}]",
          INVALID "messages[1].refusal is not a string" },

        { "[" U("[{\"type\":\"refusal\",\"refusal\":\"No.\"}]") "]",
          UNSUPPORTED "messages[0].content[0].type \"refusal\" is not supported"
          " here" },

        { "[" U("\"q\"") ",{\"role\":\"assistant\",\"content\":\"\","
          "\"function_call\":{\"name\":\"f\",\"arguments\":\"\"}}]",
          UNSUPPORTED "messages[1].function_call is not supported, use "
          "tool_calls" },

        { "[" U("\"q\"") "," A("[{\"type\":\"image_url\",\"image_url\":"
          "{\"url\":\"https://a/b\"}}]") "]",
          UNSUPPORTED "messages[1].content[0].type \"image_url\" is not "
          "supported here" },

        { NULL, NULL }
    };

    check_rows(state, rows);
}


#define THINKING(text, signature)                                             \
    "{\"type\":\"thinking\",\"thinking\":\"" text                             \
    "\",\"signature\":\"" signature "\"}"

static void
test_thinking(void **state)
{
    static row_t  rows[] = {

        /* thinking_blocks go first */

        { "[" U("\"q\"") ",{\"role\":\"assistant\",\"content\":\"a\","
          "\"reasoning_content\":\"t\",\"reasoning_signature\":\"other\","
          "\"thinking_blocks\":[{\"type\":\"thinking\",\"thinking\":\"t\\n\","
          "\"signature\":\"s==\",\"index\":0},{\"type\":\"redacted_thinking\","
          "\"data\":\"d\"},{\"type\":\"thinking\",\"thinking\":\"unsigned\"},"
          "{\"type\":\"strange\"},7]}," U("\"u\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(THINKING("t\\n", "s==")
          ",{\"type\":\"redacted_thinking\",\"data\":\"d\"}," TEXT("a")) ","
          USER(TEXT("u"))) },

        /* parts, with the members' names of two kinds of clients */

        { "[" U("\"q\"") "," A("[{\"type\":\"thinking\",\"text\":\"t\","
          "\"signature\":\"s\"},{\"type\":\"redacted_thinking\","
          "\"redacted_content\":\"d\"}," TEXT("a") ",{\"type\":\"thinking\","
          "\"thinking\":\"\",\"signature\":\"s2\"}]") "," U("\"u\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(THINKING("t", "s")
          ",{\"type\":\"redacted_thinking\",\"data\":\"d\"}," TEXT("a") ","
          THINKING("", "s2")) "," USER(TEXT("u"))) },

        { "[" U("\"q\"") ",{\"role\":\"assistant\",\"content\":\"a\","
          "\"reasoning_content\":\"t\",\"reasoning_signature\":\"s\"},"
          U("\"u\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(THINKING("t", "s") ","
          TEXT("a")) "," USER(TEXT("u"))) },

        /* unsigned: dropped, and with it a message that has nothing else */

        { "[" U("\"q\"") ",{\"role\":\"assistant\",\"content\":\"a\","
          "\"reasoning_content\":\"t\"}," U("\"u\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(TEXT("a")) ","
          USER(TEXT("u"))) },

        { "[" U("\"q\"") "," A("[{\"type\":\"thinking\",\"text\":\"t\"},"
          "{\"type\":\"thinking\",\"text\":\"t\",\"signature\":\"\"},"
          "{\"type\":\"redacted_thinking\"}]") "," U("\"u\"") "]",
          MESSAGES(USER(TEXT("q") "," TEXT("u"))) },

        /* no cache_control on thinking */

        { "[" U("\"q\"") "," A("[{\"type\":\"thinking\",\"text\":\"t\","
          "\"signature\":\"s\"," CACHE "}]," CACHE) "," U("\"u\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(THINKING("t", "s")) ","
          USER(TEXT("u"))) },

        { "[" U("[{\"type\":\"thinking\",\"text\":\"t\","
          "\"signature\":\"s\"}]") "]",
          UNSUPPORTED "messages[0].content[0].type \"thinking\" is not "
          "supported here" },

        { NULL, NULL }
    };

    check_rows(state, rows);
}


static void
test_calls(void **state)
{
    static row_t  rows[] = {

        /* ids are sanitised on both sides, a '_' for a character */

        { "[" U("\"q\"") "," CALLS(CALL("call.with space:1")) ","
          T("call.with space:1", "\"r\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(USE("call_with_space_1")) ","
          USER(RESULT("call_with_space_1", "r"))) },

        { "[" U("\"q\"") "," CALLS(CALL("\xc3\xa9\\u00e9\\ud83d\\ude00-Z"))
          "," T("\\u00e9\xc3\xa9\xf0\x9f\x98\x80-Z", "\"r\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(USE("___-Z")) ","
          USER(RESULT("___-Z", "r"))) },

        /* the same id again in a later turn is another call */

        { "[" U("\"q\"") "," CALLS(CALL("c")) "," T("c", "\"1\"") ","
          CALLS(CALL("c")) "," T("c", "\"2\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(USE("c")) ","
          USER(RESULT("c", "1")) "," ASSISTANT(USE("c")) ","
          USER(RESULT("c", "2"))) },

        /* no result, in a conversation that continues, or not */

        { "[" U("\"q\"") "," CALLS(CALL("a") "," CALL("b")) ","
          T("a", "\"1\"") "," U("\"u\"") "," T("b", "\"2\"") "]",
          INVALID "messages[1].tool_calls: \"b\" has no result in a tool "
          "message after it" },

        { "[" U("\"q\"") "," CALLS(CALL("a")) "," A("\"a\"") "]",
          INVALID "messages[1].tool_calls: \"a\" has no result in a tool "
          "message after it" },

        { "[" U("\"q\"") "," CALLS(CALL("a")) "," S("\"s\"") "]",
          INVALID "messages[1].tool_calls: \"a\" has no result in a tool "
          "message after it" },

        /* two results, a result without a call, one too late */

        { "[" U("\"q\"") "," CALLS(CALL("a")) "," T("a", "\"1\"") ","
          T("a", "\"2\"") "]",
          INVALID "messages[3].tool_call_id \"a\" is not the id of an "
          "earlier tool call without a result" },

        { "[" T("orphan", "\"1\"") "]",
          INVALID "messages[0].tool_call_id \"orphan\" is not the id of an "
          "earlier tool call without a result" },

        { "[{\"role\":\"tool\",\"content\":\"1\"}]",
          INVALID "messages[0].tool_call_id is not a non-empty string" },

        { "[" T("", "\"1\"") "]",
          INVALID "messages[0].tool_call_id is not a non-empty string" },

        /* invalid calls */

        { "[" U("\"q\"") "," CALLS(CALL("a.b") "," CALL("a:b")) "]",
          INVALID "messages[1].tool_calls[1].id is the same as that of another "
          "call" },

        { "[" U("\"q\"") "," CALLS(CALL("")) "]",
          INVALID "messages[1].tool_calls[0].id is not a non-empty string" },

        { "[" U("\"q\"") ",{\"role\":\"assistant\",\"tool_calls\":{}}]",
          INVALID "messages[1].tool_calls is not an array" },

        { "[" U("\"q\"") "," CALLS("1") "]",
          INVALID "messages[1].tool_calls[0].function is not an object" },

        { "[" U("\"q\"") "," CALLS("{\"id\":\"c\",\"type\":\"custom\","
          "\"custom\":{\"name\":\"f\",\"input\":\"\"}}") "]",
          UNSUPPORTED "messages[1].tool_calls[0].type other than \"function\" is "
          "not supported" },

        { "[" U("\"q\"") "," CALLS("{\"id\":\"c\",\"function\":{\"name\":"
          "\"a b\"}}") "]",
          INVALID "messages[1].tool_calls[0].function.name is not a string of 1"
          " to 128 letters, digits, \"_\" and \"-\"" },

        { "[" U("\"q\"") "," CALLS("{\"id\":\"c\",\"function\":{}}") "]",
          INVALID "messages[1].tool_calls[0].function.name is not a string of 1"
          " to 128 letters, digits, \"_\" and \"-\"" },

        /* the text of the message is before its calls */

        { "[" U("\"q\"") ",{\"tool_calls\":[" CALL("c") "],\"role\":"
          "\"assistant\",\"content\":\"a\"}," T("c", "\"r\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT(TEXT("a") "," USE("c")) ","
          USER(RESULT("c", "r"))) },

        { NULL, NULL }
    };

    check_rows(state, rows);
}


#define INPUT(input)                                                          \
    MESSAGES(USER(TEXT("q")) "," ASSISTANT("{\"type\":\"tool_use\","          \
    "\"id\":\"c\",\"name\":\"f\",\"input\":" input "}") ","                   \
    USER(RESULT("c", "r")))

static void
test_arguments(void **state)
{
    static row_t  rows[] = {

        { ARGS(""), INPUT("{}") },
        { ARGS(",\"arguments\":null"), INPUT("{}") },
        { ARGS(",\"arguments\":\"\""), INPUT("{}") },
        { ARGS(",\"arguments\":\" \\n\""), INPUT("{}") },

        /* the bytes stay: big numbers, order, white space, inner escapes */

        { ARGS(",\"arguments\":\"{\\\"z\\\":12345678901234567890, "
          "\\\"a\\\":1.0,\\\"e\\\":-0e400,\\n\\\"s\\\":\\\"\\\\u00e9\\\\n"
          "\\\\\\\"\\u00e9\\/\\ud83d\\ude00\\\\ud800\\\"}\""),
          INPUT("{\"z\":12345678901234567890, \"a\":1.0,\"e\":-0e400,\n"
          "\"s\":\"\\u00e9\\n\\\"\xc3\xa9/\xf0\x9f\x98\x80\\ud800\"}") },

        /* a half of a pair, escaped once only: U+FFFD */

        { ARGS(",\"arguments\":\"{\\\"a\\\":\\\"\\ud800\\\"}\""),
          INPUT("{\"a\":\"\xef\xbf\xbd\"}") },

        { ARGS(",\"arguments\":{}"),
          INVALID "messages[1].tool_calls[0].function.arguments is not a "
          "string" },

        { ARGS(",\"arguments\":\"{\\\"location\\\":\""),
          INVALID "messages[1].tool_calls[0].function.arguments is not valid "
          "JSON: byte 12: the document ends too early" },

        { NULL, NULL }
    };

    static const char  *bad[] = {
        ",\"arguments\":\"[]\"", ",\"arguments\":\"null\"",
        ",\"arguments\":\"{}{}\"", ",\"arguments\":\"{\\\"a\\\":01}\"",
        ",\"arguments\":\"{\\\"a\\\":\\\"\\n\\\"}\"",
        ",\"arguments\":\"\\\"{}\\\"\"", NULL
    };

    u_char                       *p;
    ngx_uint_t                    i;
    ngx_pool_t                   *pool;
    ngx_modelgw_request_t        *rq;
    ngx_modelgw_request_turns_t   turns;

    check_rows(state, rows);

    for (i = 0; bad[i]; i++) {
        pool = unit_pool_create();

        p = ngx_pcalloc(pool, 1024);
        assert_non_null(p);
        (void) ngx_sprintf(p, "[" CALLS("{\"id\":\"c\",\"function\":{\"name\":"
                           "\"f\"%s}}") "]", bad[i]);

        rq = request(pool, (char *) p);
        ngx_memzero(&turns, sizeof(ngx_modelgw_request_turns_t));

        assert_int_equal(ngx_modelgw_request_turns_read(rq, &turns),
                         NGX_DECLINED);
        assert_string_equal(rq->code, "INVALID_REQUEST");

        ngx_destroy_pool(pool);
    }
}


#define RESULTS(content)                                                      \
    "[" U("\"q\"") "," CALLS(CALL("c")) "," T("c", content) "]"
#define ANSWER(members)                                                       \
    MESSAGES(USER(TEXT("q")) "," ASSISTANT(USE("c")) ","                      \
    USER("{\"type\":\"tool_result\",\"tool_use_id\":\"c\"" members "}"))

static void
test_results(void **state)
{
    static row_t  rows[] = {

        { RESULTS("\"{\\\"error\\\":1}\""),
          ANSWER(",\"content\":\"{\\\"error\\\":1}\"") },

        { RESULTS("\"r \",\"is_error\":true,\"name\":\"f\""),
          ANSWER(",\"content\":\"r \",\"is_error\":true") },

        { RESULTS("\"r\",\"is_error\":false"), ANSWER(",\"content\":\"r\"") },
        { RESULTS("\"r\",\"is_error\":\"x\""), ANSWER(",\"content\":\"r\"") },

        { RESULTS("\"\""), ANSWER("") },
        { RESULTS("\" \\n\""), ANSWER("") },
        { RESULTS("[]"), ANSWER("") },
        { RESULTS("[" TEXT(" ") "]"), ANSWER("") },

        { RESULTS("[" TEXT("a") ",{\"type\":\"image_url\",\"image_url\":"
          "{\"url\":\"https://example.com/tool.png\"}}]"),
          ANSWER(",\"content\":[" TEXT("a") ",{\"type\":\"image\",\"source\":"
          "{\"type\":\"url\",\"url\":\"https://example.com/tool.png\"}}]") },

        /* cache_control has no place in there */

        { RESULTS("[{\"type\":\"text\",\"text\":\"a\"," CACHE "}," TEXT("b")
          "],\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}"),
          ANSWER(",\"content\":[" TEXT("a") "," TEXT("b") "]," CACHE) },

        { RESULTS("\"r\"," CACHE), ANSWER(",\"content\":\"r\"," CACHE) },

        { RESULTS("123"),
          INVALID "messages[2].content is neither a string nor an array" },

        { RESULTS("null"),
          INVALID "messages[2].content is neither a string nor an array" },

        { RESULTS("[{\"type\":\"refusal\",\"refusal\":\"a\"}]"),
          UNSUPPORTED "messages[2].content[0].type \"refusal\" is not supported"
          " here" },

        { NULL, NULL }
    };

    check_rows(state, rows);
}


#define URL(url)                                                              \
    "[" U("[" TEXT("t") ",{\"type\":\"image_url\",\"image_url\":{\"url\":\""  \
    url "\",\"detail\":\"low\"}}]") "]"
#define SOURCE(kind, source)                                                  \
    MESSAGES(USER(TEXT("t") ",{\"type\":\"" kind "\",\"source\":{" source "}}"))
#define BASE64(media, data)                                                   \
    "\"type\":\"base64\",\"media_type\":\"" media "\",\"data\":\"" data "\""
#define BAD_URL(text)  INVALID "messages[0].content[1].image_url.url" text

static void
test_images(void **state)
{
    static row_t  rows[] = {

        { URL("data:image/png;base64,iVBORw0KGgo="),
          SOURCE("image", BASE64("image/png", "iVBORw0KGgo=")) },

        { URL("data:image/jpg;base64,/9j/4AAQ=="),
          SOURCE("image", BASE64("image/jpeg", "/9j/4AAQ==")) },

        { URL("Data:IMAGE/Jpeg;name=a.jpg;BASE64,AA=="),
          SOURCE("image", BASE64("image/jpeg", "AA==")) },

        { URL("data:image/gif;base64,AA=="),
          SOURCE("image", BASE64("image/gif", "AA==")) },

        /* escaped; the data are not touched */

        { URL("data:image\\/webp;base64,\\/9j\\/4A=="),
          SOURCE("image", BASE64("image/webp", "\\/9j\\/4A==")) },

        { URL("\\u0064\\u0061\\u0074\\u0061\\u003aimage\\u002fpng;base64,AA=="),
          SOURCE("image", BASE64("image/png", "AA==")) },

        { URL("https://example.com/image.png"),
          SOURCE("image", "\"type\":\"url\",\"url\":"
          "\"https://example.com/image.png\"") },

        { URL("HTTPS:\\/\\/example.com\\/a?b=1,2"),
          SOURCE("image", "\"type\":\"url\",\"url\":"
          "\"HTTPS:\\/\\/example.com\\/a?b=1,2\"") },

        /* documents as image URLs */

        { URL("data:application/pdf;base64,dGVzdA=="),
          SOURCE("document", BASE64("application/pdf", "dGVzdA==")) },

        { URL("https://example.com/doc.PDF?x=/y#z"),
          SOURCE("document", "\"type\":\"url\",\"url\":"
          "\"https://example.com/doc.PDF?x=/y#z\"") },

        { URL("https://example.pdf"),
          SOURCE("image", "\"type\":\"url\",\"url\":\"https://example.pdf\"") },

        { URL("https://example.com/a?b=c.pdf"),
          SOURCE("image", "\"type\":\"url\",\"url\":"
          "\"https://example.com/a?b=c.pdf\"") },

        /* refused */

        { URL("http://example.com/a.png"),
          BAD_URL(" is neither an https URL nor a data URI") },
        { URL("gs://bucket/photo.png"),
          BAD_URL(" is neither an https URL nor a data URI") },
        { URL(""), BAD_URL(" is neither an https URL nor a data URI") },
        { URL("data:"), BAD_URL(" is not a data URI") },
        { URL("data:image/png;base64"), BAD_URL(" is not a data URI") },
        { URL("data:image/png,abc"),
          BAD_URL(" is a data URI without \";base64\"") },
        { URL("data:,abc"), BAD_URL(" is a data URI without \";base64\"") },
        { URL("data:image/png;base64,"), BAD_URL(" is a data URI without data")
        },

        { URL("data:image/bmp;base64,AA=="),
          UNSUPPORTED "messages[0].content[1].image_url.url: media type "
          "\"image/bmp\" is not supported" },

        { URL("data:text/plain;base64,AA=="),
          UNSUPPORTED "messages[0].content[1].image_url.url: media type "
          "\"text/plain\" is not supported" },

        { URL("data:;base64,AA=="),
          UNSUPPORTED "messages[0].content[1].image_url.url: media type "
          "\"\" is not supported" },

        { "[" U("[{\"type\":\"image_url\",\"image_url\":\"https://a/b\"}]")
          "]",
          INVALID "messages[0].content[0].image_url.url is not a string" },

        { NULL, NULL }
    };

    check_rows(state, rows);
}


#define FILES(before, members)                                                \
    "[" U("[" before "{\"type\":\"file\",\"file\":{" members "}}]") "]"
#define DOCUMENT(source, title)                                               \
    "{\"type\":\"document\",\"source\":{" source "}" title "}"
#define PLAIN(data)                                                           \
    "\"type\":\"text\",\"media_type\":\"text/plain\",\"data\":\"" data "\""
#define BAD_FILE(text)  INVALID "messages[0].content[0].file.file_data" text

static void
test_files(void **state)
{
    static row_t  rows[] = {

        /* a document without text gets one */

        { FILES("", "\"file_data\":\"data:application/pdf;base64,dGVzdA==\","
          "\"filename\":\"ti\\u006ey.pdf\""),
          MESSAGES(USER(TEXT(".") "," DOCUMENT(BASE64("application/pdf",
          "dGVzdA=="), ",\"title\":\"ti\\u006ey.pdf\""))) },

        { FILES("{\"type\":\"text\",\"text\":\"  \"},", "\"file_data\":"
          "\"data:application/pdf;base64,dGVzdA==\",\"filename\":\"\""),
          MESSAGES(USER(TEXT(".") "," DOCUMENT(BASE64("application/pdf",
          "dGVzdA=="), ""))) },

        { FILES("{\"type\":\"text\",\"text\":\"t\"},", "\"file_data\":"
          "\"data:application/pdf;base64,dGVzdA==\",\"filename\":null"),
          MESSAGES(USER(TEXT("t") "," DOCUMENT(BASE64("application/pdf",
          "dGVzdA=="), ""))) },

        { "[" U("\"a\"") "," U("[{\"type\":\"file\",\"file\":{\"file_data\":"
          "\"data:application/pdf;base64,AA==\"}," CACHE "},"
          "{\"type\":\"image_url\",\"image_url\":{\"url\":\"https://a/b\"}}]")
          "]",
          MESSAGES(USER(TEXT("a") "," TEXT(".") ","
          DOCUMENT(BASE64("application/pdf", "AA=="), "," CACHE)
          ",{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":"
          "\"https://a/b\"}}")) },

        /* text is decoded: h " \ line feed e-acute */

        { FILES("", "\"file_data\":\"data:text/plain;charset=utf-8;base64,"
          "aCJcCsOp\",\"filename\":\"a.txt\""),
          MESSAGES(USER(TEXT(".") "," DOCUMENT(PLAIN("h\\\"\\\\\\n\xc3\xa9"),
          ",\"title\":\"a.txt\""))) },

        { FILES("", "\"file_data\":\"data:text\\/plain;base64,Pz8\\/\""),
          MESSAGES(USER(TEXT(".") "," DOCUMENT(PLAIN("???"), ""))) },

        { FILES("", "\"file_data\":\"data:text/plain;base64,w\\u0030E=\""),
          BAD_FILE(" is text/plain, but not UTF-8") },
        { FILES("", "\"file_data\":\"data:text/plain;base64,7aCA\""),
          BAD_FILE(" is text/plain, but not UTF-8") },
        { FILES("", "\"file_data\":\"data:text/plain;base64,wK8=\""),
          BAD_FILE(" is text/plain, but not UTF-8") },
        { FILES("", "\"file_data\":\"data:text/plain;base64,9JCAgA==\""),
          BAD_FILE(" is text/plain, but not UTF-8") },
        { FILES("", "\"file_data\":\"data:text/plain;base64,8J+Y\""),
          BAD_FILE(" is text/plain, but not UTF-8") },
        { FILES("", "\"file_data\":\"data:text/plain;base64,8J+YgA==\""),
          MESSAGES(USER(TEXT(".") "," DOCUMENT(PLAIN("\xf0\x9f\x98\x80"),
          ""))) },
        { FILES("", "\"file_data\":\"data:text/plain;base64,a*==\""),
          BAD_FILE(" is not valid base64") },

        /* refused */

        { FILES("", "\"file_data\":\"dGVzdA==\""),
          BAD_FILE(" is not a data URI") },
        { FILES("", "\"file_data\":\"https://a/b.pdf\""),
          BAD_FILE(" is not a data URI") },
        { FILES("", "\"filename\":\"a\""), BAD_FILE(" is not a string") },

        { FILES("", "\"file_data\":\"data:image/png;base64,AA==\""),
          UNSUPPORTED "messages[0].content[0].file.file_data: media type "
          "\"image/png\" is not supported" },

        { FILES("", "\"file_id\":\"file_abc\",\"filename\":\"a.pdf\""),
          UNSUPPORTED "messages[0].content[0].file.file_id is not supported, "
          "use file_data" },

        { NULL, NULL }
    };

    check_rows(state, rows);
}


static void
test_parts(void **state)
{
    static row_t  rows[] = {

        { "[" U("[" TEXT("") "," TEXT("a") "," TEXT("\\n") "]") "]",
          MESSAGES(USER(TEXT("a"))) },

        { "[" U("[" TEXT("a") ",{\"type\":\"input_audio\",\"input_audio\":"
          "{\"data\":\"AA==\",\"format\":\"wav\"}}]") "]",
          UNSUPPORTED "messages[0].content[1].type \"input_audio\" is not "
          "supported here" },

        { "[" U("[{\"type\":\"video_url\"}]") "]",
          UNSUPPORTED "messages[0].content[0].type \"video_url\" is not "
          "supported here" },

        { "[" U("[{\"type\":\"n\\u00e9w\\ud800\"}]") "]",
          UNSUPPORTED "messages[0].content[0].type \"n\xc3\xa9w\xef\xbf\xbd\" "
          "is not supported here" },

        { "[" U("[\"a\"]") "]",
          INVALID "messages[0].content[0] is not an object" },

        { "[" U("[{\"text\":\"a\"}]") "]",
          INVALID "messages[0].content[0].type is not a string" },

        { "[" U("[{\"type\":\"text\"}]") "]",
          INVALID "messages[0].content[0].text is not a string" },

        { "[" A("[{\"type\":\"refusal\",\"refusal\":null}]") "]",
          INVALID "messages[0].content[0].refusal is not a string" },

        { NULL, NULL }
    };

    check_rows(state, rows);
}


#define CACHED(text)  "{\"type\":\"text\",\"text\":\"" text "\"," CACHE "}"

static void
test_cache_control(void **state)
{
    static row_t  rows[] = {

        /* of the message: its last block */

        { "[" U("\"a\",\"cache_control\":{\"ttl\":\"1h\",\"x\":1,\"type\":"
          "\"ephemer\\u0061l\"}") "," U("\"b\"") "]",
          MESSAGES(USER("{\"type\":\"text\",\"text\":\"a\",\"cache_control\":"
          "{\"type\":\"ephemeral\",\"ttl\":\"1h\"}}," TEXT("b"))) },

        { "[" D("[" TEXT("d1") "," TEXT("d2") "," TEXT("") "]," CACHE) ","
          U("\"b\"") "]",
          SYSTEM(TEXT("d1") "," CACHED("d2")) MESSAGES(USER(TEXT("b"))) },

        /* the part's own takes precedence, if it is valid */

        { "[" U("[" CACHED("a") "],\"cache_control\":{\"type\":\"ephemeral\","
          "\"ttl\":\"1h\"}") "]",
          MESSAGES(USER(CACHED("a"))) },

        { "[" U("[" CACHED("a") "," TEXT("b") "]," CACHE) "]",
          MESSAGES(USER(CACHED("a") "," CACHED("b"))) },

        { "[" U("[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":"
          "{\"type\":\"\"}}]," CACHE) "]",
          MESSAGES(USER(CACHED("a"))) },

        { "[" U("\"a\",\"cache_control\":{\"type\":\"persistent\"}") ","
          U("\"b\",\"cache_control\":null") ","
          U("\"c\",\"cache_control\":\"ephemeral\"") ","
          U("\"d\",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":5}") "]",
          MESSAGES(USER(TEXT("a") "," TEXT("b") "," TEXT("c") ","
          CACHED("d"))) },

        /* that of a dropped message is dropped, too */

        { "[" U("\"a\"") "," A("\"\"," CACHE) "," U("\"b\"") "]",
          MESSAGES(USER(TEXT("a") "," TEXT("b"))) },

        /* calls: in the call or in its function */

        { "[" U("\"q\"") "," CALLS("{\"id\":\"c\",\"function\":{\"name\":\"f\""
          "}," CACHE "},{\"id\":\"d\",\"function\":{\"name\":\"f\"," CACHE "}}")
          "," T("c", "\"1\"") "," T("d", "\"2\"") "]",
          MESSAGES(USER(TEXT("q")) "," ASSISTANT("{\"type\":\"tool_use\","
          "\"id\":\"c\",\"name\":\"f\",\"input\":{}," CACHE "},"
          "{\"type\":\"tool_use\",\"id\":\"d\",\"name\":\"f\",\"input\":{},"
          CACHE "}") "," USER(RESULT("c", "1") "," RESULT("d", "2"))) },

        { NULL, NULL }
    };

    check_rows(state, rows);
}


#define SIGNED                                                                \
    ",\"reasoning_content\":\"t\",\"reasoning_signature\":\"s\""
#define CALLED(id, members)                                                   \
    "{\"role\":\"assistant\",\"tool_calls\":[" CALL(id) "]" members "},"      \
    T(id, "\"r\"")

static void
test_loops(void **state)
{
    ngx_uint_t                    i;
    ngx_pool_t                   *pool;
    ngx_modelgw_request_turns_t   turns;

    static struct {
        const char  *messages;
        ngx_uint_t   expected;
    } rows[] = {
        { "[" U("\"q\"") "]", 0 },
        { "[" A("\"a\"") "," U("\"q\"") "]", 0 },
        { "[" U("\"q\"") "," CALLED("a", "") "]", 1 },
        { "[" CALLED("a", "") "]", 1 },
        { "[" U("\"q\"") "," CALLED("a", SIGNED) "]", 0 },
        { "[" U("\"q\"") "," CALLED("a", SIGNED) "," CALLED("b", "") "]", 0 },
        { "[" U("\"q\"") "," CALLED("a", "") "," CALLED("b", SIGNED) "]", 1 },
        { "[" U("\"q\"") "," CALLED("a", SIGNED) "," CALLED("b", SIGNED) "]",
          0 },

        /* redacted thinking counts; unsigned does not; text is before it */

        { "[" U("\"q\"") "," CALLED("a", ",\"thinking_blocks\":[{\"type\":"
          "\"redacted_thinking\",\"data\":\"d\"}]") "]", 0 },
        { "[" U("\"q\"") "," CALLED("a", ",\"reasoning_content\":\"t\"") "]",
          1 },
        { "[" U("\"q\"") "," A("\"a\"") "," CALLED("a", SIGNED) "]", 1 },

        /* a loop that has ended does not count */

        { "[" U("\"q\"") "," CALLED("a", "") "," A("\"a\"") "," U("\"u\"")
          "]", 0 },
        { "[" U("\"q\"") "," CALLED("a", "") "," A("\"a\"") "," U("\"u\"")
          "," CALLED("b", SIGNED) "]", 0 },

        /* what the answer continues from must be signed, too */

        { "[" U("\"q\"") "," A("\"a\"") "]", 1 },
        { "[" U("\"q\"") "," CALLED("a", SIGNED) "," A("\"a\"") "]", 1 },

        /* text that the user adds to the results does not end it */

        { "[" U("\"q\"") "," CALLED("a", "") "," U("\"u\"") "]", 1 }
    };

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pool = unit_pool_create();
        ngx_memzero(&turns, sizeof(ngx_modelgw_request_turns_t));

        assert_int_equal(ngx_modelgw_request_turns_read(
                             request(pool, rows[i].messages), &turns),
                         NGX_OK);

        if (turns.unsigned_turn != rows[i].expected) {
            print_error("messages: %s\n", rows[i].messages);
        }

        assert_int_equal(turns.unsigned_turn, rows[i].expected);
        ngx_destroy_pool(pool);
    }
}


/* tens of thousands of calls, answered in reverse: no linear search */

static void
test_many_calls(void **state)
{
    u_char                       *doc, *p;
    ngx_uint_t                    i;
    ngx_pool_t                   *pool = *state;
    ngx_modelgw_request_turns_t   turns;

    enum { CALLS_SENT = 50000 };

    doc = ngx_palloc(pool, CALLS_SENT * 256);
    assert_non_null(doc);

    p = ngx_sprintf(doc, "[{\"role\":\"assistant\",\"tool_calls\":[");

    for (i = 0; i < CALLS_SENT; i++) {
        p = ngx_sprintf(p, "%s{\"id\":\"call_%06ui\",\"function\":"
                        "{\"name\":\"f\"}}", i ? "," : "", i);
    }

    p = ngx_sprintf(p, "]}");

    for (i = CALLS_SENT; i; i--) {
        p = ngx_sprintf(p, ",{\"role\":\"tool\",\"tool_call_id\":"
                        "\"call_%06ui\",\"content\":\"r\"}", i - 1);
    }

    p = ngx_sprintf(p, "]%Z");

    ngx_memzero(&turns, sizeof(ngx_modelgw_request_turns_t));
    assert_int_equal(ngx_modelgw_request_turns_read(request(pool, (char *) doc),
                                                    &turns), NGX_OK);
    assert_int_equal(turns.turns.nelts, 2);
}


static void
test_json_object(void **state)
{
    ngx_uint_t                    i;
    ngx_str_t                     text;
    ngx_pool_t                   *pool = *state;
    ngx_modelgw_out_t             out;
    ngx_modelgw_request_t        *rq;
    ngx_modelgw_request_turns_t   turns;

    static row_t  rows[] = {
        { "[" S("\"s\"") "," U("\"u\"") "]",
          SYSTEM(TEXT("s") "," TEXT("Respond with a single valid JSON object "
          "and nothing else.")) MESSAGES(USER(TEXT("u"))) },

        { "[" S("\"s\"") "]",
          SYSTEM(TEXT("Respond with a single valid JSON object and nothing "
          "else.")) MESSAGES(USER(TEXT("s"))) }
    };

    for (i = 0; i < 2; i++) {
        ngx_memzero(&turns, sizeof(ngx_modelgw_request_turns_t));
        ngx_memzero(&text, sizeof(ngx_str_t));

        out.write = collect;
        out.data = &text;
        out.failed = 0;

        rq = request(pool, rows[i].messages);

        assert_int_equal(ngx_modelgw_request_turns_read(rq, &turns), NGX_OK);
        ngx_modelgw_request_turns_write(rq, &turns, 1, &out);

        unit_assert_str(text.data, text.len, rows[i].expected);
        free(text.data);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_instructions),
        unit_case(test_turns),
        unit_case(test_bytes),
        unit_case(test_prefill),
        unit_case(test_assistant),
        unit_case(test_thinking),
        unit_case(test_calls),
        unit_case(test_arguments),
        unit_case(test_results),
        unit_case(test_images),
        unit_case(test_files),
        unit_case(test_parts),
        unit_case(test_cache_control),
        unit_case(test_loops),
        unit_case(test_many_calls),
        unit_case(test_json_object)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
