
/*
 * The request codec, the top level: each row of docs/translation.md,
 * Request, what is refused, what is ignored, and strict mode.
 */


#include "unit_request.h"


/* a tape fed in pieces, and the body as it is written */

static void
test_whole(void **state)
{
    sink_t                  sink;
    size_t                  chunk;
    ngx_uint_t              i;
    ngx_modelgw_request_t   rq;

    static const char  in[] =
        "{ \"max_tokens\" : 7, \"stream\" : true, \"n\":1,"
        "\"messages\" : [ { \"role\" : \"user\", \"content\" : \"hi\" } ],"
        "\"t\\u0065mperature\" : 0.50, \"model\" : \"x\" }";

    static const char  out[] =
        "{\"model\":\"upstream-id\",\"max_tokens\":7" MESSAGES
        ",\"temperature\":0.50,\"stream\":true}";

    for (i = 0; /* void */ ; i++) {
        chunk = unit_chunk(i, sizeof(in) - 1);

        if (chunk == 0) {
            break;
        }

        ngx_memzero(&sink, sizeof(sink_t));

        assert_int_equal(translate(*state, in, chunk, &rq, &sink), NGX_OK);
        unit_assert_str(sink.data, sink.len, out);
        free(sink.data);
    }
}


static void
test_failed_sink(void **state)
{
    sink_t                  sink;
    ngx_uint_t              i;
    ngx_modelgw_request_t   rq;

    static const char  in[] =
        CHAT ",\"stop\":[\"a\",\"b\"],\"user\":\"u\"," TOOLS
        ",\"reasoning_effort\":\"low\",\"response_format\":{\"type\":"
        "\"json_schema\",\"json_schema\":{\"schema\":{}}}}";

    for (i = 1; i < 20; i++) {
        ngx_memzero(&sink, sizeof(sink_t));
        sink.fail = i;

        assert_int_equal(translate(*state, in, sizeof(in), &rq, &sink),
                         NGX_OK);

        assert_int_equal(sink.writes, i);
        free(sink.data);
    }
}


static void
test_not_an_object(void **state)
{
    sink_t                  sink;
    ngx_modelgw_request_t   rq;

    ngx_memzero(&sink, sizeof(sink_t));

    assert_int_equal(translate(*state, "[\"model\",1]", 99, &rq, &sink),
                     NGX_DECLINED);
    assert_string_equal(rq.code, "INVALID_REQUEST");

    assert_int_equal(translate(*state, "{\"model\":\"m\"}", 99, &rq, &sink),
                     NGX_DECLINED);
    assert_string_equal(rq.code, "INVALID_REQUEST");
}


/* null counts as absent, for each field */

static void
test_null(void **state)
{
    char         in[64];
    ngx_uint_t   i;

    static const char  *names[] = {
        "max_completion_tokens", "max_tokens", "stream", "stream_options",
        "temperature", "top_p", "top_k", "stop", "modalities",
        "response_format", "user", "safety_identifier", "metadata", "tools",
        "tool_choice", "parallel_tool_calls", "reasoning_effort", "thinking",
        "n", "logprobs", "top_logprobs", "audio", "functions",
        "function_call", "web_search_options", "seed", "store", "whatever"
    };

    strict = 1;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(in, sizeof(in), "\"%s\":null", names[i]);
        check(*state, in, "");
    }
}


static void
test_types(void **state)
{
    char         in[128], out[128];
    ngx_uint_t   i;

    static case_t  c[] = {
        { "max_completion_tokens\":\"1\"", "a number" },
        { "max_tokens\":true", "a number" },
        { "stream\":1", "true or false" },
        { "stream_options\":[]", "an object" },
        { "temperature\":\"0.1\"", "a number" },
        { "top_p\":[1]", "a number" },
        { "top_k\":{}", "a number" },
        { "stop\":1", "a string or an array" },
        { "modalities\":\"text\"", "an array" },
        { "response_format\":\"json\"", "an object" },
        { "user\":1", "a string" },
        { "safety_identifier\":false", "a string" },
        { "metadata\":\"user\"", "an object" },
        { "tools\":{}", "an array" },
        { "tool_choice\":123", "a string or an object" },
        { "parallel_tool_calls\":0", "true or false" },
        { "reasoning_effort\":1", "a string" },
        { "thinking\":\"enabled\"", "an object" },
        { "n\":\"2\"", "a number" },
        { "logprobs\":1", "true or false" },
        { "top_logprobs\":true", "a number" },
        { NULL, NULL }
    };

    for (i = 0; c[i].in; i++) {
        snprintf(in, sizeof(in), "\"%s", c[i].in);
        snprintf(out, sizeof(out), INVALID "\"%.*s\" must be %s",
                 (int) (strchr(c[i].in, '"') - c[i].in), c[i].in, c[i].out);
        check(*state, in, out);
    }
}


static case_t  refused[] = {
    { "\"n\":1", "" },
    { "\"n\":2", UNSUPPORTED "\"n\" other than 1 is not supported" },
    { "\"logprobs\":false,\"top_logprobs\":0", "" },
    { "\"logprobs\":true",
      UNSUPPORTED "\"logprobs\" other than false is not supported" },
    { "\"top_logprobs\":5",
      UNSUPPORTED "\"top_logprobs\" other than 0 is not supported" },
    { "\"modalities\":[\"text\"]", "" },
    { "\"modalities\":[\"text\",\"audio\"]",
      UNSUPPORTED "modalities[1] \"audio\" is not supported" },
    { "\"modalities\":[1]", INVALID "modalities[0] must be a string" },
    { "\"audio\":{\"voice\":\"x\"}",
      UNSUPPORTED "\"audio\" is not supported" },
    { "\"functions\":[]",
      UNSUPPORTED "\"functions\" is not supported, use \"tools\"" },
    { "\"function_call\":\"auto\"",
      UNSUPPORTED "\"function_call\" is not supported, use \"tool_choice\"" },
    { "\"web_search_options\":{}",
      UNSUPPORTED "\"web_search_options\" is not supported" },
    { "\"functi\\u006fns\":[]",
      UNSUPPORTED "\"functions\" is not supported, use \"tools\"" },
    { NULL, NULL }
};


static void
test_refused(void **state)
{
    check_all(*state, refused);
}


static void
test_stream(void **state)
{
    ngx_modelgw_request_t  rq;

    check(*state, "\"stream\":true", ",\"stream\":true");
    check(*state, "\"stream\":false", "");
    check(*state, "\"stream\":true,\"stream_options\":{\"include_usage\":true,"
                  "\"include_obfuscation\":false}", ",\"stream\":true");
    check(*state, "\"stream_options\":{\"include_usage\":1}",
          INVALID "stream_options.include_usage must be true or false");

    (void) outcome(*state, "\"stream_options\":{\"include_usage\":true}", &rq);
    assert_int_equal(rq.include_usage, 1);

    (void) outcome(*state, "\"stream_options\":{\"include_usage\":false}", &rq);
    assert_int_equal(rq.include_usage, 0);

    (void) outcome(*state, "\"stream_options\":{\"include_usage\":null}", &rq);
    assert_int_equal(rq.include_usage, 0);
}


static void
test_max_tokens(void **state)
{
    ngx_uint_t  i;

    static const char  *bad[] = {
        "0", "0.7", "1.0", "-1", "1e3", "1234567890"
    };

    check_tokens(*state, "", 4096);
    check_tokens(*state, "\"max_tokens\":1", 1);
    check_tokens(*state, "\"max_completion_tokens\":999999999", 999999999);
    check_tokens(*state, "\"max_completion_tokens\":8,\"max_tokens\":9", 8);
    check_tokens(*state, "\"max_tokens\":9,\"max_completion_tokens\":8", 8);
    check_tokens(*state, "\"max_tokens\":9,\"max_completion_tokens\":null", 9);

    max_output = 1000;

    check_tokens(*state, "", 1000);
    check_tokens(*state, "\"max_tokens\":2000", 2000);

    caps.default_max_tokens = 100;

    check_tokens(*state, "", 100);

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char  in[64];

        snprintf(in, sizeof(in), "\"max_tokens\":%s", bad[i]);
        check(*state, in, INVALID "\"max_tokens\" must be an integer from 1 "
                                  "to 999999999");

        snprintf(in, sizeof(in), "\"max_completion_tokens\":%s", bad[i]);
        check(*state, in, INVALID "\"max_completion_tokens\" must be an "
                                  "integer from 1 to 999999999");
    }
}


#define SCHEMA                                                                \
    "{ \"type\":\"object\",\"b\":1.0,\"a\":12345678901234567890 }"
#define SCHEMA_OUT                                                            \
    ",\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":"    \
    SCHEMA "}"
#define FORMAT                                                                \
    "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"         \
    "\"name\":\"n\",\"strict\":true,\"schema\":" SCHEMA "}}"

#define NO_SCHEMA   INVALID "response_format.json_schema.schema must be an "  \
                    "object"

static case_t  formats[] = {
    { "\"response_format\":{\"type\":\"text\"}", "" },
    { FORMAT, SCHEMA_OUT "}" },
    { "\"response_format\":{\"type\":\"json_schema\"}", NO_SCHEMA },
    { "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
      "\"name\":\"x\"}}", NO_SCHEMA },
    { "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
      "\"schema\":[]}}", NO_SCHEMA },
    { "\"response_format\":{}",
      INVALID "response_format.type must be a string" },
    { "\"response_format\":{\"type\":\"grammar\"}",
      UNSUPPORTED "response_format.type \"grammar\" is not supported" },
    { NULL, NULL }
};


static void
test_format(void **state)
{
    sink_t                  sink;
    ngx_modelgw_request_t   rq;

    check_all(*state, formats);

    caps.thinking = NGX_MODELGW_THINKING_ADAPTIVE;
    caps.effort = NGX_MODELGW_EFFORT_LOW;

    check(*state, FORMAT ",\"reasoning_effort\":\"low\"",
          ",\"thinking\":{\"type\":\"adaptive\"}" SCHEMA_OUT
          ",\"effort\":\"low\"}");

    caps.structured = 0;

    check(*state, FORMAT,
          UNSUPPORTED "response_format.type \"json_schema\" is not supported "
          "by this model");

    ngx_memzero(&sink, sizeof(sink_t));

    assert_int_equal(translate(*state, CHAT
                               ",\"response_format\":{\"type\":"
                               "\"json_object\"}}", 999, &rq, &sink),
                     NGX_OK);

    unit_assert_str(sink.data, sink.len,
                    "{\"model\":\"upstream-id\",\"max_tokens\":4096,"
                    "\"system\":[{\"type\":\"text\",\"text\":\"Respond with a "
                    "single valid JSON object and nothing else.\"}]"
                    MESSAGES "}");
    free(sink.data);
}


#define USER(id)  ",\"metadata\":{\"user_id\":\"" id "\"}"

static case_t  users[] = {
    { "\"user\":\"u\"", USER("u") },
    { "\"user\":\"u\",\"safety_identifier\":\"s\"", USER("s") },
    { "\"user\":\"u\",\"safety_identifier\":\"s\","
      "\"metadata\":{\"user_id\":\"m\"}", USER("m") },
    { "\"metadata\":{\"user_id\":\"a\\\"b\\n\\\\\\u0063\"}",
      USER("a\\\"b\\n\\\\\\u0063") },
    { "\"metadata\":{\"other\":1}", "" },
    { "\"metadata\":{}", "" },
    { "\"metadata\":{\"user_id\":null}", "" },
    { "\"metadata\":{\"user_id\":7}",
      INVALID "metadata.user_id must be a string" },
    { "\"user\":\"\"", "" },
    { "\"user\":\"jane@example.org\"", "" },
    { "\"user\":\"jane\\u0040example.org\"", "" },
    { "\"user\":\"+49 (30) 123-45\"", "" },
    { "\"user\":\"+1\\u0000\"", USER("+1\\u0000") },
    { "\"user\":\"+a\"", USER("+a") },
    { "\"user\":\"+\"", USER("+") },
    { "\"user\":\"4930123\"", USER("4930123") },
    { "\"user\":\"u\",\"safety_identifier\":\"a@b\"", USER("u") },
    { NULL, NULL }
};


static void
test_user(void **state)
{
    char         in[2048];
    ngx_uint_t   i;

    check_all(*state, users);

    check_ignored(*state, "\"user\":\"a@b\"", "user");
    check_ignored(*state, "\"user\":\"\"", "");
    check_ignored(*state, "\"user\":\"u\",\"safety_identifier\":\"+1 2\"",
                  "safety_identifier");
    check_ignored(*state, "\"user\":\"u\",\"metadata\":{\"user_id\":\"m\"}",
                  "");
    check_ignored(*state, "\"metadata\":{\"user_id\":\"m\",\"x\":\"y\"}",
                  "metadata");
    check_ignored(*state, "\"metadata\":{\"user_id\":\"a@b\",\"x\":\"y\"}",
                  "metadata");

    /* 256 characters of two bytes, then one more */

    strcpy(in, "\"user\":\"");

    for (i = 0; i < 256; i++) {
        strcat(in, "\xc3\xa4");
    }

    strcat(in, "\"");
    check_ignored(*state, in, "");

    in[strlen(in) - 1] = '\0';
    strcat(in, "x\"");
    check_ignored(*state, in, "user");
}


static void
test_ignored(void **state)
{
    char         in[8192], name[101];
    ngx_uint_t   i, n;

    ngx_modelgw_request_t  rq;

    check_ignored(*state, "", "");
    check_ignored(*state, "\"seed\":1,\"logit_bias\":{},\"store\":false",
                  "seed,logit_bias,store");
    check_ignored(*state, "\"presence_penalty\":0,\"frequency_penalty\":\"x\","
                  "\"prediction\":{},\"prompt_cache_key\":\"k\","
                  "\"prompt_cache_retention\":\"24h\","
                  "\"prompt_cache_options\":{},\"moderation\":1,"
                  "\"verbosity\":\"low\",\"service_tier\":\"flex\"",
                  "presence_penalty,frequency_penalty,prediction,"
                  "prompt_cache_key,prompt_cache_retention,"
                  "prompt_cache_options,moderation,verbosity,service_tier");

    /* unknown names: not all can be listed in a header */

    check_ignored(*state, "\"x-Y_9.z\":1,\"a b\":1,\"\":1,\"\\r\\n\":1,"
                  "\"a,b\":1,\"\xc3\xa4\":1,\"b\\u0063\":[]", "x-Y_9.z,bc");
    check_ignored(*state, "\"aa\":1,\"a\":1,\"aa\":2", "aa,a");
    check_ignored(*state, "\"seed\":null,\"x\":null", "");

    /* at most 16 of them */

    in[0] = '\0';

    for (i = 0; i < 20; i++) {
        snprintf(in + strlen(in), 32, "%s\"f%lu\":1", i ? "," : "",
                 (unsigned long) i);
    }

    (void) outcome(*state, in, &rq);

    for (i = 0, n = 1; i < rq.ignored.len; i++) {
        n += (rq.ignored.data[i] == ',');
    }

    assert_int_equal(n, 16);

    /* and less than 512 bytes, names of up to 64; a longer one is not cut */

    memset(name, 'z', 65);
    name[65] = '\0';
    snprintf(in, 256, "\"%s\":1,", name);

    for (i = 0; i < 20; i++) {
        memset(name, 'a' + i, 64);
        name[64] = '\0';
        snprintf(in + strlen(in), 256, "%s\"%s\":1", i ? "," : "", name);
    }

    (void) outcome(*state, in, &rq);

    assert_in_range(rq.ignored.len, 400, 511);
    assert_int_equal(strchr((char *) rq.ignored.data, ',')
                     - (char *) rq.ignored.data, 64);
    assert_int_equal(rq.ignored.data[0], 'a');
}


static void
test_strict(void **state)
{
    strict = 1;

    check(*state, "\"seed\":1",
          UNSUPPORTED "\"seed\" is not supported, it would have no effect");
    check(*state, "\"what ever\":1",
          UNSUPPORTED "\"what ever\" is not supported, it would have no "
          "effect");
    check(*state, "\"metadata\":{\"a\":1}",
          UNSUPPORTED "\"metadata\" is not supported, it would have no effect");
    check(*state, "\"user\":\"a@b\"",
          UNSUPPORTED "\"user\" is not supported, it would have no effect");
    check(*state, EFFORT("low") ",\"top_p\":0.5",
          UNSUPPORTED "\"top_p\" is not supported, it would have no effect");
    check(*state, EFFORT("low") ",\"temperature\":1", BUDGET("1024"));
    check(*state, "\"seed\":null,\"n\":1,\"stream_options\":{},\"store\":null,"
          "\"user\":\"u\",\"parallel_tool_calls\":true", USER("u"));
}


/* a message is cut at a character */

static void
test_long_texts(void **state)
{
    char                    in[4096];
    ngx_uint_t              i;
    ngx_modelgw_request_t   rq;

    strict = 1;
    strcpy(in, "\"x");

    for (i = 0; i < 700; i++) {
        strcat(in, "\xc3\xa4");
    }

    strcat(in, "\":1");

    (void) outcome(*state, in, &rq);

    assert_string_equal(rq.code, "UNSUPPORTED_FIELD");
    assert_in_range(rq.message.len, 64, 160);

    for (i = 0; rq.message.data[i] != 0xc3; i++) { /* void */ }

    for ( /* void */ ; rq.message.data[i] == 0xc3; i += 2) {
        assert_int_equal(rq.message.data[i + 1], 0xa4);
    }

    assert_int_equal(rq.message.data[i], '"');
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        request_case(test_whole),
        request_case(test_failed_sink),
        request_case(test_not_an_object),
        request_case(test_null),
        request_case(test_types),
        request_case(test_refused),
        request_case(test_stream),
        request_case(test_max_tokens),
        request_case(test_format),
        request_case(test_user),
        request_case(test_ignored),
        request_case(test_strict),
        request_case(test_long_texts)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
