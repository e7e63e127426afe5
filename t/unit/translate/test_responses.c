
/*
 * The codec of responses requests: items, tools, thinking that comes back, the
 * prompt cache, and chat upstreams; docs/responses.md.  The vectors have what
 * clients send.  Each allocation fails once.
 */


#include "unit_memory.h"
#include "unit_request.h"

#include "ngx_modelgw_responses.h"
#include "ngx_modelgw_usage.h"


#define U(text)  "{\"role\":\"user\",\"content\":\"" text "\"}"
#define A(text)  "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define D(text)  "{\"role\":\"developer\",\"content\":\"" text "\"}"

#define CALL(id)                                                              \
    "{\"type\":\"function_call\",\"call_id\":\"" id "\",\"name\":\"f\","      \
    "\"arguments\":\"{}\"}"
#define DONE(id)                                                              \
    "{\"type\":\"function_call_output\",\"call_id\":\"" id "\","              \
    "\"output\":\"" id "!\"}"

/* the same of messages */

#define TEXT(text)  "{\"type\":\"text\",\"text\":\"" text "\"}"
#define USER(blocks)  "{\"role\":\"user\",\"content\":[" blocks "]}"
#define ASSISTANT(blocks)  "{\"role\":\"assistant\",\"content\":[" blocks "]}"
#define USE(id)                                                               \
    "{\"type\":\"tool_use\",\"id\":\"" id "\",\"name\":\"f\",\"input\":{}}"
#define RESULT(id)                                                            \
    "{\"type\":\"tool_result\",\"tool_use_id\":\"" id "\",\"content\":\"" id  \
    "!\"}"

#define INPUT(items)  "\"input\":[" items "]"
#define OUT(turns)  ",\"messages\":[" turns "]"

#define HI  "\"input\":\"hi\","
#define HI_OUT  OUT(USER(TEXT("hi")))

#define FUNCTION(name)  "{\"type\":\"function\",\"name\":\"" name "\"}"
#define SPACE(name, tools)                                                    \
    "{\"type\":\"namespace\",\"name\":\"" name "\",\"tools\":[" tools "]}"
#define LONG64                                                                \
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define LONG256  LONG64 LONG64 LONG64 LONG64

#define CHAT_TOOL(name)                                                       \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\","             \
    "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}"

#define CACHED  ",\"cache_control\":{\"type\":\"ephemeral\"}"


static ngx_uint_t                     protocol;
static ngx_modelgw_responses_call_t   call;


static int
responses_setup(void **state)
{
    set_defaults();
    protocol = NGX_MODELGW_MESSAGES;

    return unit_setup(state);
}


#define responses_case(f)                                                     \
    cmocka_unit_test_setup_teardown(f, responses_setup, unit_teardown)


static ngx_int_t
codec(ngx_pool_t *pool, const char *text, ngx_modelgw_request_t *rq,
    ngx_modelgw_responses_call_t *record, ngx_str_t *got)
{
    ngx_int_t                 rc;
    ngx_uint_t                n;
    ngx_modelgw_out_t         out;
    ngx_modelgw_tape_t       *tape;
    ngx_modelgw_out_piece_t   piece;

    tape = ngx_pcalloc(pool, sizeof(ngx_modelgw_tape_t));
    if (tape == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(rq, sizeof(ngx_modelgw_request_t));
    rq->pool = pool;
    rq->tape = tape;
    rq->skip = ngx_modelgw_skip_variants(&n)->skip;
    rq->caps = &caps;
    rq->max_output = max_output;
    rq->strict = strict;
    ngx_str_set(&rq->model, "up");

    ngx_modelgw_tape_init(tape, pool, rq->skip);

    rc = ngx_modelgw_tape_feed(tape, (u_char *) text, strlen(text));

    if (rc == NGX_OK) {
        rc = ngx_modelgw_tape_done(tape, (u_char *) text);
    }

    if (rc != NGX_OK) {
        return rc;
    }

    ngx_modelgw_out_piece(&out, &piece, pool, 64);

    rc = ngx_modelgw_responses(rq, protocol, record, &out);

    if (ngx_modelgw_out_piece_done(&out, got) != NGX_OK) {
        return NGX_ERROR;
    }

    assert_true(rc == NGX_OK || got->len == 0);

    return rc;
}


static ngx_int_t
no_memory(void *data, ngx_pool_t *pool)
{
    ngx_str_t                      got;
    ngx_modelgw_request_t          rq;
    ngx_modelgw_responses_call_t   record;

    return codec(pool, data, &rq, &record, &got);
}


/* what follows "max_tokens", or "model" in chat; or code and message */

static const char *
result(ngx_pool_t *pool, const char *members, ngx_modelgw_request_t *rq)
{
    char       *text, *out_text;
    size_t      size;
    ngx_int_t   rc;
    ngx_str_t   got;

    size = strlen(members) + 64;
    text = ngx_pnalloc(pool, size);
    assert_non_null(text);
    snprintf(text, size, "{\"model\":\"m\",%s}", members);

    if (size < 65536) {
        (void) unit_memory(no_memory, text, members);
    }

    rc = codec(pool, text, rq, &call, &got);

    if (rc == NGX_DECLINED) {
        size = rq->message.len + 64;
        out_text = ngx_pnalloc(pool, size);
        assert_non_null(out_text);
        snprintf(out_text, size, "%s %.*s", rq->code, (int) rq->message.len,
                 rq->message.data);
        return out_text;
    }

    assert_int_equal(rc, NGX_OK);

    size = got.len + 1;
    out_text = ngx_pnalloc(pool, size);
    assert_non_null(out_text);
    snprintf(out_text, size, "%.*s", (int) got.len - 1, got.data);

    members = "{\"model\":\"up\"";
    assert_memory_equal(out_text, members, strlen(members));

    if (protocol == NGX_MODELGW_CHAT) {
        return out_text + strlen(members);
    }

    text = strchr(out_text + strlen(members) + 1, ',');
    assert_non_null(text);

    return text;
}


static void
expect(void **state, const char *in, const char *out)
{
    const char             *got;
    ngx_modelgw_request_t   rq;

    got = result(*state, in, &rq);

    if (strcmp(got, out) != 0) {
        print_error("%s:\n", in);
        unit_assert_str((u_char *) got, strlen(got), out);
    }
}


static void
expect_all(void **state, case_t *c)
{
    for ( /* void */ ; c->in; c++) {
        expect(state, c->in, c->out);
    }
}


static void
expect_ignored(void **state, const char *in, const char *ignored)
{
    ngx_modelgw_request_t  rq;

    (void) result(*state, in, &rq);

    assert_null(rq.code);
    unit_assert_str(rq.ignored.len ? rq.ignored.data : (u_char *) "",
                    rq.ignored.len, ignored);
}


static void
test_turns(void **state)
{
    static case_t  c[] = {

        /* neighbours, instructions anywhere */

        { INPUT(U("a") "," U("b") "," A("c") "," D("d") "," A("e") "," U("f")),
          ",\"system\":[" TEXT("d") "]"
          OUT(USER(TEXT("a") "," TEXT("b")) ","
              ASSISTANT(TEXT("c") "," TEXT("e")) "," USER(TEXT("f"))) },

        /* text behind a call */

        { INPUT(U("a") "," CALL("c1") "," A("b") "," DONE("c1")),
          OUT(USER(TEXT("a")) "," ASSISTANT(USE("c1") "," TEXT("b")) ","
              USER(RESULT("c1"))) },

        /* a late output goes to the turn of its call */

        { INPUT(CALL("c1") "," CALL("c2") "," DONE("c2") "," A("b") ","
                U("u") "," DONE("c1")),
          OUT(ASSISTANT(USE("c1") "," USE("c2")) ","
              USER(RESULT("c2") "," RESULT("c1")) "," ASSISTANT(TEXT("b")) ","
              USER(TEXT("u"))) },

        { INPUT(CALL("c1") "," U("u") "," CALL("c2") "," DONE("c1") ","
                DONE("c2")),
          OUT(ASSISTANT(USE("c1")) "," USER(RESULT("c1") "," TEXT("u")) ","
              ASSISTANT(USE("c2")) "," USER(RESULT("c2"))) },

        /* blank messages are dropped, and do not part turns */

        { INPUT(A("a") "," U(" ") "," A("b") "," U("u")),
          OUT(ASSISTANT(TEXT("a") "," TEXT("b")) "," USER(TEXT("u"))) },
        { INPUT(U("a") "," A("") "," U("b")),
          OUT(USER(TEXT("a") "," TEXT("b"))) },
        { INPUT(U("a") "," U("\\n")), INVALID "input[1].content is blank" },
        { "\"input\":\" \"", INVALID "input is blank" },
        { "\"input\":[]", INVALID "there is no content in input" },
        { "\"instructions\":\"i\",\"input\":[]", OUT(USER(TEXT("i"))) },
        { "\"instructions\":\" \",\"input\":\"x\"", OUT(USER(TEXT("x"))) },
        { INPUT(U("a") "," A("b \\t")),
          OUT(USER(TEXT("a")) "," ASSISTANT(TEXT("b"))) },

        /* parts of either side, and of chat */

        { INPUT("{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\","
                "\"refusal\":\"no\"},{\"type\":\"output_text\",\"text\":\"t\"}]"
                "}," U("u")),
          OUT(ASSISTANT(TEXT("no") "," TEXT("t")) "," USER(TEXT("u"))) },
        { INPUT("{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}"),
          UNSUPPORTED "input[0].content[0].type \"image_url\" is not supported "
          "here" },
        { INPUT(CALL("c") ",{\"type\":\"function_call_output\",\"call_id\":"
                "\"c\",\"output\":[{\"type\":\"input_audio\"}]}"),
          UNSUPPORTED "input[1].output[0].type \"input_audio\" is not "
          "supported here" },
        { INPUT(CALL("c") ",{\"type\":\"function_call_output\",\"call_id\":"
                "\"c\",\"output\":{}}"),
          INVALID "input[1].output is neither a string nor an array" },
        { INPUT(CALL("c") ",{\"type\":\"function_call_output\",\"call_id\":"
                "\"c\",\"output\":\" \"}"),
          OUT(ASSISTANT(USE("c")) ","
              USER("{\"type\":\"tool_result\",\"tool_use_id\":\"c\"}")) },
        { INPUT("{\"role\":\"user\",\"content\":[{\"type\":\"input_file\","
                "\"file_url\":\"https:\\/\\/x\\/a\"}]}"),
          OUT(USER(TEXT(".") ",{\"type\":\"document\",\"source\":{\"type\":"
                   "\"url\",\"url\":\"https:\\/\\/x\\/a\"}}")) },
        { INPUT("{\"role\":\"user\",\"content\":[{\"type\":\"input_file\","
                "\"file_url\":\"http://x/a\"}]}"),
          INVALID "input[0].content[0].file_url is not an https URL" },
        { INPUT("{\"role\":\"user\",\"content\":[{\"type\":\"input_image\","
                "\"image_url\":\"data:image/tiff;base64,AA\"}]}"),
          UNSUPPORTED "input[0].content[0].image_url: media type "
          "\"image/tiff\" is not supported" },
        { NULL, NULL }
    };

    expect_all(state, c);

    caps.prefill = 0;

    expect(state, INPUT(U("a") "," A("b")),
           UNSUPPORTED "input[1].role \"assistant\" of the last message is not "
           "supported by this model");
}


static void
test_items_refused(void **state)
{
    ngx_uint_t              i;
    const char             *got;
    ngx_modelgw_request_t   rq;

    static const char  *references[] = {
        INPUT(U("a") ",{\"type\":\"item_reference\",\"id\":\"x\"}"),
        INPUT(U("a") ",{\"type\":\"\",\"role\":\"user\"}"),
        INPUT(U("a") ",{\"id\":\"x\"}"),
        INPUT(U("a") ",{\"role\":\"\",\"id\":\"x\"}"),
        INPUT(U("a") ",{\"type\":null,\"role\":null,\"id\":\"x\"}"),
    };

    static case_t  c[] = {
        { INPUT("1"), INVALID "input[0] is not an object" },
        { "\"input\":{}", INVALID "input is neither a string nor an array" },
        { INPUT("{\"type\":1}"), INVALID "input[0].type must be a string" },
        { INPUT("{\"type\":\"local_shell_call\"}"),
          UNSUPPORTED "input[0].type \"local_shell_call\" is not supported" },
        { INPUT("{\"type\":\"\\u0078\"}"),
          UNSUPPORTED "input[0].type \"x\" is not supported" },
        { INPUT("{\"role\":\"tool\"}"),
          INVALID "input[0].role must be one of \"system\", \"developer\", "
          "\"user\", \"assistant\"" },
        { INPUT(CALL("a")),
          INVALID "input[0].call_id \"a\" has no output after it" },
        { INPUT(CALL("b") "," CALL("a") "," DONE("b")),
          INVALID "input[1].call_id \"a\" has no output after it" },
        { INPUT(CALL("a") "," DONE("a") "," DONE("a")),
          INVALID "input[2].call_id \"a\" is not the id of an earlier call "
          "without an output" },
        { INPUT(DONE("a") "," CALL("a")),
          INVALID "input[0].call_id \"a\" is not the id of an earlier call "
          "without an output" },
        { INPUT(CALL("a") "," DONE("a") "," CALL("a") "," DONE("a")),
          INVALID "input[2].call_id \"a\" is the same as that of another "
          "call" },
        { INPUT(CALL("a.b") "," CALL("a b")),
          INVALID "input[1].call_id \"a_b\" is the same as that of another "
          "call" },
        { INPUT(CALL("")),
          INVALID "input[0].call_id is not a non-empty string" },
        { INPUT("{\"type\":\"function_call\",\"call_id\":\"a\"}"),
          INVALID "input[0].name is not a string of 1 to 256 bytes, or "
          "its namespace not one of 0 to 256" },
        { INPUT("{\"type\":\"function_call\",\"call_id\":\"a\",\"name\":\"f\","
                "\"arguments\":\"[]\"}"),
          INVALID "input[0].arguments is not valid JSON: byte 0: expected an "
          "object" },
        { INPUT("{\"type\":\"function_call\",\"call_id\":\"a\",\"name\":\"f\","
                "\"arguments\":{}}"),
          INVALID "input[0].arguments is not a string" },
        { INPUT("{\"type\":\"custom_tool_call\",\"call_id\":\"a\","
                "\"name\":\"f\"}"),
          INVALID "input[0].input is not a string" },
        { INPUT("{\"type\":\"tool_search_call\",\"call_id\":\"a\","
                "\"arguments\":\"{}\"}"),
          INVALID "input[0].arguments is not an object" },
        { HI "\"prompt\":{\"id\":\"x\"}",
          UNSUPPORTED "\"prompt\" is not supported, nothing is stored here" },
        { HI "\"background\":true",
          UNSUPPORTED "\"background\" other than false is not supported, "
          "nothing is stored here" },
        { HI "\"conversation\":\"x\"",
          UNSUPPORTED "\"conversation\" is not supported, nothing is stored "
          "here: send the whole input" },
        { HI "\"top_logprobs\":1",
          UNSUPPORTED "\"top_logprobs\" other than 0 is not supported" },
        { HI "\"include\":[\"message.output_text.logprobs\"]",
          UNSUPPORTED "include[0] \"message.output_text.logprobs\" is not "
          "supported" },
        { HI "\"max_output_tokens\":0",
          INVALID "\"max_output_tokens\" must be an integer from 1 to "
          "999999999" },
        { HI "\"reasoning\":{\"effort\":\"huge\"}",
          INVALID "unknown \"reasoning.effort\" \"huge\"" },
        { HI "\"text\":{\"format\":{\"type\":\"json_schema\"}}",
          INVALID "text.format.schema must be an object" },
        { NULL, NULL }
    };

    expect_all(state, c);

    for (i = 0; i < sizeof(references) / sizeof(references[0]); i++) {
        got = result(*state, references[i], &rq);

        assert_non_null(rq.code);
        assert_string_equal(rq.code, "UNSUPPORTED_FIELD");
        assert_non_null(strstr(got, "input[1] "));
        assert_non_null(strstr(got, "set \"store\" to false"));
    }
}


static void
test_items_dropped(void **state)
{
    static case_t  c[] = {
        { INPUT(U("a") ",{\"type\":\"mcp_call\"},{\"type\":\"mcp_list_tools\"},"
                "{\"type\":\"computer_call_output\",\"call_id\":\"x\"},"
                "{\"type\":\"tool_search_call\",\"call_id\":null},"
                "{\"type\":\"tool_search_output\",\"tools\":[]}"),
          OUT(USER(TEXT("a"))) },
        { NULL, NULL }
    };

    expect_all(state, c);

    expect_ignored(state, HI "\"store\":true,\"truncation\":\"auto\","
                   "\"x_new\":{},\"reasoning\":{\"mode\":\"x\"},"
                   "\"stream_options\":{},\"client_metadata\":{}",
                   "x_new,store,truncation");
    expect_ignored(state, HI "\"store\":false,\"truncation\":\"disabled\","
                   "\"include\":[\"x\"],\"background\":false", "");

    strict = 1;

    expect_ignored(state, HI "\"store\":false,\"truncation\":\"disabled\"", "");
    expect(state, HI "\"store\":true",
           UNSUPPORTED "\"store\" is not supported, it would have no effect");
}


static void
test_tools(void **state)
{
    static case_t  c[] = {

        /* names */

        { HI "\"tools\":[" SPACE("n", FUNCTION("f")) "," FUNCTION("f") "]",
          HI_OUT ",\"tools\":[" TOOL_OUT("n__f") "," TOOL_OUT("f") "]" },
        { HI "\"tools\":[" FUNCTION("a b\\u00e9") "]",
          HI_OUT ",\"tools\":[" TOOL_OUT("a_b__1ab8fc48") "]" },

        /* the same twice, and what is not */

        { HI "\"tools\":[" FUNCTION("f") "," SPACE("n", FUNCTION("g")) ","
          FUNCTION("\\u0066") "," SPACE("n", FUNCTION("g")) "]",
          HI_OUT ",\"tools\":[" TOOL_OUT("f") "," TOOL_OUT("n__g") "]" },
        { HI "\"tools\":[" FUNCTION("n__g") "," SPACE("n", FUNCTION("g")) "]",
          INVALID "tools[1].tools[0] is not the only tool that would be called "
          "\"n__g\"" },
        { HI "\"tools\":[" FUNCTION("f") ",{\"type\":\"custom\",\"name\":\"f\"}"
          "]",
          INVALID "tools[1] is not the only tool that would be called \"f\"" },
        { HI "\"tools\":[" FUNCTION("tool_search")
          ",{\"type\":\"tool_search\",\"execution\":\"client\"}]",
          INVALID "tools[1] is not the only tool that would be called "
          "\"tool_search\"" },

        /* the last of two members counts, as everywhere */

        { HI "\"tools\":[{\"type\":\"web_search\",\"type\":\"function\","
          "\"name\":\"g\",\"name\":\"f\"}]",
          HI_OUT ",\"tools\":[" TOOL_OUT("f") "]" },

        { HI "\"tools\":[{\"type\":\"\\u0078\"}]",
          UNSUPPORTED "tools[0].type \"x\" is not supported" },

        /* custom tools */

        { HI "\"tools\":[{\"type\":\"custom\",\"name\":\"f\",\"format\":"
          "{\"type\":\"grammar\",\"syntax\":\"regex\",\"definition\":\"a+\"}}]",
          HI_OUT ",\"tools\":[{\"name\":\"f\",\"description\":\"The value of "
          "\\\"input\\\" must match this regex grammar:\\na+\","
          "\"input_schema\":{\"type\":\"object\",\"properties\":{\"input\":"
          "{\"type\":\"string\"}},\"required\":[\"input\"],"
          "\"additionalProperties\":false}}]" },
        { INPUT(U("u") ",{\"type\":\"additional_tools\",\"tools\":["
                SPACE("n", "{\"type\":\"custom\",\"name\":\"f\",\"format\":"
                      "{\"type\":\"grammar\",\"syntax\":\"ebnf\"}}") "]}"),
          INVALID "input[1].tools[0].tools[0].format.syntax must be \"lark\" or "
          "\"regex\"" },

        /* a search of the client, and what it has found */

        { INPUT(U("u") ",{\"type\":\"tool_search_call\",\"call_id\":\"s\","
                "\"arguments\":{\"q\":1.0}},{\"type\":\"tool_search_output\","
                "\"call_id\":\"s\",\"tools\":[" SPACE("n", FUNCTION("f")) ","
                FUNCTION("g") "]}") ",\"tools\":[{\"type\":\"tool_search\","
          "\"execution\":\"client\"}]",
          OUT(USER(TEXT("u")) ","
              ASSISTANT("{\"type\":\"tool_use\",\"id\":\"s\",\"name\":"
                        "\"tool_search\",\"input\":{\"q\":1.0}}") ","
              USER("{\"type\":\"tool_result\",\"tool_use_id\":\"s\","
                   "\"content\":\"{\\\"tools\\\":[\\\"n__f\\\",\\\"g\\\"]}\"}"))
          ",\"tools\":[" TOOL_OUT("tool_search") "," TOOL_OUT("n__f") ","
          TOOL_OUT("g") "]" },

        /* calls of a search have no namespace */

        { INPUT("{\"type\":\"tool_search_call\",\"call_id\":\"c\"}," DONE("c"))
          ",\"tools\":[" SPACE("n", "{\"type\":\"tool_search\",\"execution\":"
          "\"client\"}") ",{\"type\":\"tool_search\",\"execution\":\"client\"}]",
          OUT(ASSISTANT("{\"type\":\"tool_use\",\"id\":\"c\",\"name\":"
                        "\"tool_search\",\"input\":{}}") ","
              USER(RESULT("c"))) ",\"tools\":[" TOOL_OUT("tool_search") "]" },

        /* refused */

        { HI "\"tools\":[" SPACE("n", SPACE("m", "")) "]",
          INVALID "tools[0].tools[0] is a namespace in a namespace" },
        { HI "\"tools\":[" SPACE("", "") "]",
          INVALID "tools[0].name must be a string of 1 to 256 bytes" },
        { HI "\"tools\":[" FUNCTION("") "]",
          INVALID "tools[0].name must be a string of 1 to 256 bytes" },
        { HI "\"tools\":[" FUNCTION(LONG256 "f") "]",
          INVALID "tools[0].name must be a string of 1 to 256 bytes" },
        { HI "\"tools\":[" SPACE(LONG256 "n", FUNCTION("f")) "]",
          INVALID "tools[0].name must be a string of 1 to 256 bytes" },
        { HI "\"tools\":[" FUNCTION("f") "],\"tool_choice\":{\"type\":"
          "\"function\",\"name\":\"" LONG256 "f\"}",
          INVALID "tool_choice.name must be a string of 1 to 256 bytes" },
        { HI "\"tools\":[1]", INVALID "tools[0].type must be a string" },
        { HI "\"tools\":[{\"type\":\"mcp\"}]",
          UNSUPPORTED "tools[0].type \"mcp\" is not supported" },
        { HI "\"tools\":[{\"type\":\"function\",\"name\":\"f\","
          "\"parameters\":[]}]",
          INVALID "tools[0].parameters must be an object" },
        { INPUT("{\"type\":\"additional_tools\"}"),
          INVALID "input[0].tools must be an array" },

        /* the choice */

        { HI "\"tools\":[" FUNCTION("f") "," SPACE("n", FUNCTION("f")) "],"
          "\"tool_choice\":{\"type\":\"function\",\"name\":\"f\","
          "\"namespace\":\"n\"}",
          HI_OUT ",\"tools\":[" TOOL_OUT("f") "," TOOL_OUT("n__f") "],"
          "\"tool_choice\":{\"type\":\"tool\",\"name\":\"n__f\"}" },
        { HI "\"tools\":[" FUNCTION("f") "],\"tool_choice\":"
          "{\"type\":\"custom\",\"name\":\"f\"}",
          INVALID "tool_choice.name is not in \"tools\"" },
        { HI "\"tools\":[{\"type\":\"web_search\"}],\"tool_choice\":"
          "\"required\"",
          INVALID "\"tool_choice\" forces a call, and there is no tool to "
          "call" },
        { HI "\"tools\":[" FUNCTION("f") "],\"tool_choice\":\"none\"",
          HI_OUT ",\"tools\":[" TOOL_OUT("f") "],\"tool_choice\":"
          "{\"type\":\"none\"}" },
        { HI "\"tools\":[" FUNCTION("f") "," FUNCTION("g") "],\"tool_choice\":"
          "{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":["
          FUNCTION("g") ",{\"type\":\"mcp\",\"name\":\"f\"}]}",
          HI_OUT ",\"tools\":[" TOOL_OUT("g") "],\"tool_choice\":"
          "{\"type\":\"any\"}" },
        { HI "\"tools\":[" FUNCTION("f") "],\"tool_choice\":"
          "{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[]}",
          INVALID "tool_choice.tools names none of \"tools\"" },
        { NULL, NULL }
    };

    expect_all(state, c);

    expect_ignored(state, HI "\"tools\":[{\"type\":\"web_search_preview\"},"
                   "{\"type\":\"web_search\"},{\"type\":\"image_generation\"},"
                   "{\"type\":\"tool_search\"}]",
                   "tools.web_search,tools.image_generation,tools.tool_search");

    caps.strict = 0;

    expect_ignored(state, HI "\"tools\":[{\"type\":\"function\",\"name\":"
                   "\"f\",\"strict\":true}]", "tools.strict");
}


/* in the pool: a seal of the text */

static const char *
seal(ngx_pool_t *pool, const char *text)
{
    char       *item;
    size_t      size;
    ngx_str_t   src, dst;

    src.data = (u_char *) text;
    src.len = strlen(text);

    dst.data = ngx_pnalloc(pool, ngx_base64_encoded_length(src.len));
    assert_non_null(dst.data);
    ngx_encode_base64url(&dst, &src);

    size = dst.len + 256;
    item = ngx_pnalloc(pool, size);
    assert_non_null(item);

    snprintf(item, size, "{\"type\":\"reasoning\",\"encrypted_content\":"
             "\"mgw1.%.*s\"}", (int) dst.len, dst.data);

    return item;
}


#define THOUGHT  "{\"signature\":\"s\", \"type\":\"thinking\"," \
                 "\"thinking\":\"\\u00e9\",\"new\":[1]}"
#define HIDDEN   "{\"type\":\"redacted_thinking\",\"data\":\"d\"}"


static void
test_thinking(void **state)
{
    char        *text;
    ngx_uint_t   i;

    static const char  *broken[] = {
        "", "[]", "{}", "1", "[1]", "[" THOUGHT, "[" THOUGHT "]]",
        "[" THOUGHT "],\"a\":[" THOUGHT "]", "[" THOUGHT "]}{",
        "[" THOUGHT "," TEXT("x") "]",
        "[{\"type\":\"thinking\",\"thinking\":\"x\"}]",
        "[{\"type\":\"thinking\",\"thinking\":\"x\",\"signature\":\" \"}]",
        "[{\"type\":\"thinking\",\"signature\":\"s\",\"type\":\"text\"}]",
        "[{\"type\":\"text\",\"signature\":\"s\",\"\\u0074ype\":\"thinking\"}]",
        "[{\"type\":\"redacted_thinking\"}]", "[" THOUGHT ",\xff]",
        "[{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"s\","
        "\"cache_contro\\u006c\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}}]"
    };

    text = ngx_pnalloc(*state, 4096);
    assert_non_null(text);

    /* byte for byte, of several items, behind what has been said */

    snprintf(text, 4096, INPUT(U("u") "," A("a") ",%s,%s," CALL("c") ","
                               DONE("c")),
             seal(*state, "[" THOUGHT ", " HIDDEN "]"),
             seal(*state, " [" HIDDEN "]"));

    expect(state, text,
           OUT(USER(TEXT("u")) "," ASSISTANT(TEXT("a") "," THOUGHT ", " HIDDEN
                                             "," HIDDEN "," USE("c")) ","
               USER(RESULT("c"))));

    /* nothing follows it */

    snprintf(text, 4096, INPUT(U("u") ",%s," U("v") "," A("a") "," U("w")),
             seal(*state, "[" THOUGHT "]"));
    expect(state, text, OUT(USER(TEXT("u") "," TEXT("v")) ","
                            ASSISTANT(TEXT("a")) "," USER(TEXT("w"))));

    snprintf(text, 4096, INPUT(U("u") ",%s"), seal(*state, "[" THOUGHT "]"));
    expect(state, text, OUT(USER(TEXT("u"))));

    /* a blank text does not, an instruction between does not matter */

    snprintf(text, 4096, INPUT(U("u") ",%s," A(" ") "," D("d") "," A("a") ","
                               U("v")),
             seal(*state, "[" THOUGHT "]"));
    expect(state, text, ",\"system\":[" TEXT("d") "]"
           OUT(USER(TEXT("u")) "," ASSISTANT(THOUGHT "," TEXT("a")) ","
               USER(TEXT("v"))));

    for (i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        snprintf(text, 4096, INPUT(U("u") ",%s," A("a") "," U("v")),
                 seal(*state, broken[i]));
        expect(state, text, OUT(USER(TEXT("u")) "," ASSISTANT(TEXT("a")) ","
                                USER(TEXT("v"))));
    }

    expect(state, INPUT(U("u") ",{\"type\":\"reasoning\",\"encrypted_content\":"
                        "\"mgw1.*\"}," A("a") "," U("v")),
           OUT(USER(TEXT("u")) "," ASSISTANT(TEXT("a")) "," USER(TEXT("v"))));

    expect(state, INPUT(U("u") ",{\"type\":\"reasoning\",\"encrypted_content\":"
                        "\"mgw1\\u002eW10\"}," A("a") "," U("v")),
           OUT(USER(TEXT("u")) "," ASSISTANT(TEXT("a")) "," USER(TEXT("v"))));

    /* what is chosen for the answer */

    max_output = 64000;

    expect(state, HI "\"reasoning\":{\"effort\":\"low\"}", HI_OUT BUDGET("1024"));
    expect_ignored(state, INPUT(U("u") "," CALL("c") "," DONE("c"))
                   ",\"reasoning\":{\"effort\":\"low\"}", "reasoning.effort");

    caps.thinking = NGX_MODELGW_THINKING_ADAPTIVE;

    expect(state, HI "\"reasoning\":{\"generate_summary\":\"auto\"}", HI_OUT);
    expect(state, HI "\"reasoning\":{\"effort\":\"low\","
           "\"generate_summary\":\"auto\"}",
           HI_OUT ",\"thinking\":{\"type\":\"adaptive\",\"display\":"
           "\"summarized\"},\"output_config\":{\"effort\":\"low\"}");
}


#define MARKED(text)                                                          \
    "{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\""    \
    text "\",\"prompt_cache_breakpoint\":{\"mode\":\"explicit\"}}]}"
#define CACHED_TEXT(text)                                                     \
    "{\"type\":\"text\",\"text\":\"" text "\"" CACHED "}"


static void
test_cache(void **state)
{
    /* those of the client */

    expect(state, INPUT(MARKED("a") "," MARKED("b") "," MARKED("c") ","
                        MARKED("d") "," MARKED("e") "," U("f")),
           OUT(USER(TEXT("a") "," CACHED_TEXT("b") "," CACHED_TEXT("c") ","
                    CACHED_TEXT("d") "," CACHED_TEXT("e") "," TEXT("f"))));
    expect(state, INPUT(CALL("c") ",{\"type\":\"function_call_output\","
                        "\"call_id\":\"c\",\"output\":[{\"type\":"
                        "\"input_text\",\"text\":\"t\","
                        "\"prompt_cache_breakpoint\":{}}]}"),
           OUT(ASSISTANT(USE("c")) ","
               USER("{\"type\":\"tool_result\",\"tool_use_id\":\"c\","
                    "\"content\":[" TEXT("t") "]" CACHED "}")));
    expect_ignored(state, HI "\"prompt_cache_key\":\"k\"", "prompt_cache_key");

    caps.auto_cache = NGX_MODELGW_AUTO_CACHE_AUTO;

    expect(state, INPUT(U("a")), OUT(USER(TEXT("a"))));
    expect(state, INPUT(U("a")) ",\"prompt_cache_key\":\"k\"",
           OUT(USER(CACHED_TEXT("a"))));
    expect_ignored(state, HI "\"prompt_cache_key\":\"k\"", "");
    expect(state, INPUT(U("a") "," A("b") "," U("c")),
           OUT(USER(TEXT("a")) "," ASSISTANT(TEXT("b")) ","
               USER(CACHED_TEXT("c"))));
    expect(state, INPUT(U("a") "," A("b")),
           OUT(USER(CACHED_TEXT("a")) "," ASSISTANT(TEXT("b"))));

    caps.auto_cache = NGX_MODELGW_AUTO_CACHE_ON;

    expect(state, "\"instructions\":\"i\",\"tools\":[" FUNCTION("f") "],"
           INPUT(U("a") "," D("d")),
           ",\"system\":[" TEXT("i") "," CACHED_TEXT("d") "]"
           OUT(USER(CACHED_TEXT("a"))) ",\"tools\":[" TOOL_OUT("f") "]");
    expect(state, "\"tools\":[" FUNCTION("f") "," FUNCTION("g") "],"
           "\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\","
           "\"tools\":[" FUNCTION("f") "]}," INPUT(U("a")),
           OUT(USER(CACHED_TEXT("a"))) ",\"tools\":[{\"name\":\"f\","
           "\"input_schema\":{\"type\":\"object\",\"properties\":{}}" CACHED
           "}]");

    /* with three of the client there is room for one, at the end */

    expect(state, "\"instructions\":\"i\"," INPUT(MARKED("a") "," MARKED("b")
                                                  "," MARKED("c") "," U("d")),
           ",\"system\":[" TEXT("i") "]"
           OUT(USER(CACHED_TEXT("a") "," CACHED_TEXT("b") ","
                    CACHED_TEXT("c") "," CACHED_TEXT("d"))));

    protocol = NGX_MODELGW_CHAT;

    expect(state, INPUT(MARKED("a")),
           ",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]");
    expect_ignored(state, HI "\"prompt_cache_key\":\"k\"", "prompt_cache_key");
}


#define CHAT_CALLS(calls)                                                     \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" calls "]}"
#define CHAT_CALL(id, name, arguments)                                        \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name \
    "\",\"arguments\":\"" arguments "\"}}"
#define CHAT_RESULT(id, text)                                                 \
    "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"


static void
test_chat(void **state)
{
    static case_t  c[] = {

        /* each message of the others, in place */

        { "\"instructions\":\"i\"," INPUT(U("a") "," U("b") "," A("c") ","
                                          A("d") "," D("e") "," A("f")),
          OUT("{\"role\":\"system\",\"content\":\"i\"}," U("a") "," U("b") ","
              "{\"role\":\"assistant\",\"content\":\"c\\nd\"},"
              "{\"role\":\"system\",\"content\":\"e\"},"
              "{\"role\":\"assistant\",\"content\":\"f\"}") },

        /* results at once behind their calls; pictures behind all of them */

        { INPUT(CALL("c1") "," CALL("c2") "," D("d") "," U("u")
                ",{\"type\":\"function_call_output\",\"call_id\":\"c2\","
                "\"output\":[{\"type\":\"input_text\",\"text\":\"x\"},"
                "{\"type\":\"input_image\",\"image_url\":\"http://x/y\","
                "\"detail\":\"original\"},{\"type\":\"input_text\","
                "\"text\":\"y\"}]}," A("a") "," DONE("c1")),
          OUT(CHAT_CALLS(CHAT_CALL("c1", "f", "{}") ","
                         CHAT_CALL("c2", "f", "{}")) ","
              CHAT_RESULT("c2", "x\\ny") "," CHAT_RESULT("c1", "c1!") ","
              "{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
              "\"image_url\":{\"url\":\"http://x/y\"}}]},"
              "{\"role\":\"system\",\"content\":\"d\"}," U("u") ","
              "{\"role\":\"assistant\",\"content\":\"a\"}") },

        /* arguments */

        { INPUT("{\"type\":\"function_call\",\"call_id\":\"a\",\"name\":\"f\","
                "\"arguments\":\"{\\\"a\\\":\\u0031\"},"
                "{\"type\":\"function_call\",\"call_id\":\"b\",\"name\":\"f\","
                "\"arguments\":\" \"},{\"type\":\"tool_search_call\","
                "\"call_id\":\"c\",\"arguments\":{\"q\":\"\\\"\"}},"
                "{\"type\":\"tool_search_output\",\"call_id\":\"c\","
                "\"tools\":[]}," DONE("a") "," DONE("b")),
          OUT(CHAT_CALLS(CHAT_CALL("a", "f", "{\\\"a\\\":\\u0031") ","
                         CHAT_CALL("b", "f", "{}") ","
                         CHAT_CALL("c", "tool_search",
                                   "{\\\"q\\\":\\\"\\\\\\\"\\\"}")) ","
              CHAT_RESULT("c", "{\\\"tools\\\":[]}") ","
              CHAT_RESULT("a", "a!") "," CHAT_RESULT("b", "b!")) },

        /* parts */

        { INPUT("{\"role\":\"user\",\"content\":[{\"type\":\"input_file\","
                "\"file_data\":\"data:x\",\"filename\":\"n\"},"
                "{\"type\":\"input_image\",\"image_url\":\"u\","
                "\"detail\":\"low\"}]}"),
          OUT("{\"role\":\"user\",\"content\":[{\"type\":\"file\",\"file\":"
              "{\"file_data\":\"data:x\",\"filename\":\"n\"}},"
              "{\"type\":\"image_url\",\"image_url\":{\"url\":\"u\","
              "\"detail\":\"low\"}}]}") },
        { INPUT("{\"role\":\"user\",\"content\":[{\"type\":\"input_file\","
                "\"file_url\":\"https://x\"}]}"),
          UNSUPPORTED "input[0].content[0].file_url is not supported, use "
          "file_data" },
        { INPUT("{\"role\":\"user\",\"content\":[{\"type\":\"input_file\","
                "\"file_id\":\"x\"}]}"),
          UNSUPPORTED "input[0].content[0].file_id is not supported, use "
          "file_data" },

        /* without tools neither of these is known */

        { HI "\"tools\":[],\"tool_choice\":\"auto\","
          "\"parallel_tool_calls\":false", OUT(U("hi")) },
        { HI "\"tools\":[" FUNCTION("f") "],\"parallel_tool_calls\":false",
          OUT(U("hi")) ",\"tools\":[" CHAT_TOOL("f") "],"
          "\"parallel_tool_calls\":false" },
        { HI "\"tools\":[" FUNCTION("f") "," FUNCTION("g") "],\"tool_choice\":"
          "{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":["
          FUNCTION("g") "]}",
          OUT(U("hi")) ",\"tools\":[" CHAT_TOOL("g") "],\"tool_choice\":"
          "\"required\"" },
        { HI "\"tools\":[" FUNCTION("ffffffffffffffffffffffffffffffffffffffff"
                                    "fffffffffffffffffffffffff") "]",
          OUT(U("hi")) ",\"tools\":["
          CHAT_TOOL("fffffffffffffffffffffffffffffffffffffffffffffffffffffff_"
                    "924e8881") "]" },
        { HI "\"text\":{\"format\":{\"type\":\"json_object\"}},"
          "\"reasoning\":{\"effort\":\"new\"},\"safety_identifier\":\"a@b\"",
          OUT(U("hi")) ",\"safety_identifier\":\"a@b\","
          "\"reasoning_effort\":\"new\",\"response_format\":"
          "{\"type\":\"json_object\"}" },
        { INPUT(U("a") "," U("")), INVALID "input[1].content is blank" },
        { NULL, NULL }
    };

    protocol = NGX_MODELGW_CHAT;

    expect_all(state, c);

    caps.chat_limit = NGX_MODELGW_CHAT_LIMIT_TOKENS;
    caps.sampling = NGX_MODELGW_SAMPLING_NONE;

    expect(state, HI "\"max_output_tokens\":9,\"temperature\":0.5",
           OUT(U("hi")) ",\"max_tokens\":9");
}


static void
test_record(void **state)
{
    ngx_modelgw_request_t          rq;
    ngx_modelgw_responses_tool_t  *tool;

    (void) result(*state, HI "\"metadata\":{\"a\":\"b\"},\"temperature\":1.50,"
                  "\"top_p\":null,\"tool_choice\":{\"type\":\"allowed_tools\","
                  "\"mode\":\"auto\",\"tools\":[{\"type\":\"function\","
                  "\"name\":\"a\\u0062\"}]},\"max_output_tokens\":7,"
                  "\"parallel_tool_calls\":true,\"reasoning\":{\"effort\":"
                  "\"none\",\"summary\":\"auto\"},\"text\":{\"format\":"
                  "{\"type\":\"json_object\"}},\"include\":"
                  "[\"reasoning.encrypted_content\"],\"tools\":["
                  FUNCTION("a\\u0062") "," SPACE("n\\\"", "{\"type\":"
                  "\"custom\",\"name\":\"c\"}") ",{\"type\":\"tool_search\","
                  "\"execution\":\"client\"},{\"type\":\"web_search\"}]", &rq);

    assert_null(rq.code);
    assert_int_equal(rq.max_tokens, 7);

    unit_assert_str(call.metadata.data, call.metadata.len, "{\"a\":\"b\"}");
    unit_assert_str(call.temperature.data, call.temperature.len, "1.50");
    assert_int_equal(call.top_p.len, 0);
    unit_assert_str(call.max_output_tokens.data, call.max_output_tokens.len,
                    "7");
    unit_assert_str(call.parallel_tool_calls.data,
                    call.parallel_tool_calls.len, "true");
    unit_assert_str(call.effort.data, call.effort.len, "\"none\"");
    unit_assert_str(call.summary.data, call.summary.len, "\"auto\"");
    unit_assert_str(call.format.data, call.format.len,
                    "{\"type\":\"json_object\"}");
    assert_true(call.tool_choice.len > 0 && call.tool_choice.data[0] == '{');
    assert_true(call.encrypted && call.show && call.json);

    /* all that were declared, what the choice leaves out, too */

    assert_int_equal(call.tools.nelts, 3);
    tool = call.tools.elts;

    unit_assert_str(tool[0].upstream.data, tool[0].upstream.len, "ab");
    unit_assert_str(tool[0].name.data, tool[0].name.len, "a\\u0062");
    assert_int_equal(tool[0].space.len, 0);
    assert_int_equal(tool[0].kind, NGX_MODELGW_RESPONSES_FUNCTION);

    unit_assert_str(tool[1].upstream.data, tool[1].upstream.len,
                    "n___c_12cdbc5a");
    unit_assert_str(tool[1].name.data, tool[1].name.len, "c");
    unit_assert_str(tool[1].space.data, tool[1].space.len, "n\\\"");
    assert_int_equal(tool[1].kind, NGX_MODELGW_RESPONSES_CUSTOM);

    unit_assert_str(tool[2].upstream.data, tool[2].upstream.len,
                    "tool_search");
    unit_assert_str(tool[2].name.data, tool[2].name.len, "tool_search");
    assert_int_equal(tool[2].kind, NGX_MODELGW_RESPONSES_SEARCH);

    /* nothing is asked for */

    (void) result(*state, "\"input\":\"hi\",\"tools\":null,\"metadata\":null,"
                  "\"text\":{\"format\":{\"type\":\"text\"}}", &rq);

    assert_int_equal(call.tools.nelts, 0);
    assert_int_equal(call.metadata.len, 0);
    assert_int_equal(call.effort.len, 0);
    assert_false(call.encrypted || call.show || call.json);
}


static void
many(ngx_pool_t *pool, ngx_uint_t n)
{
    char                   *text, *p;
    size_t                  size;
    ngx_uint_t              i;
    ngx_modelgw_request_t   rq;

    size = n * 512;
    text = malloc(size);
    assert_non_null(text);

    p = text + sprintf(text, "\"tools\":[" FUNCTION("f"));

    for (i = 0; i < n; i++) {
        p += sprintf(p, "," FUNCTION("f%lu"), (unsigned long) i);
    }

    p += sprintf(p, "],\"tool_choice\":{\"type\":\"allowed_tools\","
                 "\"mode\":\"auto\",\"tools\":[" FUNCTION("f"));

    for (i = 0; i < n; i++) {
        p += sprintf(p, "," FUNCTION("f%lu"), (unsigned long) i);
    }

    p += sprintf(p, "]}," "\"input\":[" U("u"));

    for (i = 0; i < n; i++) {
        p += sprintf(p, ",{\"type\":\"function_call\",\"call_id\":\"c%lu\","
                     "\"name\":\"f\",\"arguments\":\"{}\"}", (unsigned long) i);
    }

    for (i = n; i; i--) {
        p += sprintf(p, ",{\"type\":\"function_call_output\",\"call_id\":"
                     "\"c%lu\",\"output\":\"\"}", (unsigned long) i - 1);
    }

    p += sprintf(p, "]");
    assert_true((size_t) (p - text) < size);

    (void) result(pool, text, &rq);

    assert_null(rq.code);
    assert_int_equal(call.tools.nelts, n + 1);

    free(text);
}


/*
 * More than memory is first allocated for, and as many as a body may have: it
 * would take hours if each met all others.
 */

static void
test_many(void **state)
{
    many(*state, 40);
    many(*state, 30000);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        responses_case(test_turns),
        responses_case(test_items_refused),
        responses_case(test_items_dropped),
        responses_case(test_tools),
        responses_case(test_thinking),
        responses_case(test_cache),
        responses_case(test_chat),
        responses_case(test_record),
        responses_case(test_many)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
