
/*
 * The request codec: reasoning_effort, thinking and max_tokens; each row of
 * docs/translation.md, Thinking and reasoning, and conflicts.
 */


#include "unit_request.h"


#define ADAPTIVE       ",\"thinking\":{\"type\":\"adaptive\"}"
#define OUTPUT(level)  ",\"output_config\":{\"effort\":\"" level "\"}"


static void
test_effort_budget(void **state)
{
    static case_t  c[] = {
        { EFFORT("none"), "" },
        { EFFORT("minimal"), BUDGET("1024") },
        { EFFORT("low"), BUDGET("1024") },
        { EFFORT("medium"), BUDGET("2048") },
        { EFFORT("high"), BUDGET("4096") },
        { EFFORT("xhigh"), BUDGET("8192") },
        { EFFORT("m\\u0061x"), BUDGET("16384") },
        { EFFORT("MAX"),
          INVALID "unknown \"reasoning_effort\" \"MAX\"" },

        /* the client's limit is a limit of both */

        { EFFORT("high") ",\"max_tokens\":4097", BUDGET("4096") },
        { EFFORT("high") ",\"max_tokens\":4096", BUDGET("4095") },
        { EFFORT("high") ",\"max_tokens\":1025", BUDGET("1024") },
        { EFFORT("high") ",\"max_tokens\":1024", "" },

        /* thinking and sampling */

        { EFFORT("low") ",\"temperature\":0.3,\"top_p\":0.2,\"top_k\":3",
          BUDGET("1024") },
        { EFFORT("none") ",\"temperature\":0.3", ",\"temperature\":0.3" },

        /* thinking and a forced call: then the temperature is free */

        { EFFORT("high") ",\"temperature\":0.3," CHOICE("\"required\""),
          CHOSEN("\"type\":\"any\"") ",\"temperature\":0.3" },
        { EFFORT("low") "," CHOICE("\"auto\""),
          CHOSEN("\"type\":\"auto\"") BUDGET("1024") },
        { NULL, NULL }
    };

    caps.effort = NGX_MODELGW_EFFORT_HIGH;

    check_all(*state, c);

    check_tokens(*state, EFFORT("none"), 4096);
    check_tokens(*state, EFFORT("low"), 4096 + 1024);
    check_tokens(*state, EFFORT("max"), 4096 + 16384);
    check_tokens(*state, EFFORT("max") ",\"max_tokens\":5000", 5000);
    check_tokens(*state, EFFORT("high") "," CHOICE("\"required\""), 4096);

    check_ignored(*state, EFFORT("none"), "");
    check_ignored(*state, EFFORT("low"), "");
    check_ignored(*state, EFFORT("high") ",\"max_tokens\":1024",
                  "reasoning_effort");
    check_ignored(*state, EFFORT("high") "," CHOICE("\"required\""),
                  "reasoning_effort");
    check_ignored(*state, EFFORT("low") ",\"temperature\":0.3", "temperature");

    /* max_output is a limit of both, too */

    max_output = 8000;

    check(*state, EFFORT("max"), BUDGET("7999"));
    check_tokens(*state, EFFORT("max"), 8000);
    check(*state, EFFORT("medium"), BUDGET("2048"));
    check_tokens(*state, EFFORT("medium"), 4096 + 2048);

    max_output = 1000;

    check(*state, EFFORT("max"), "");
    check_tokens(*state, EFFORT("max"), 1000);
}


/* a tool loop whose assistant turn has lost its thinking */

static void
test_effort_loop(void **state)
{
    sink_t                  sink;
    ngx_modelgw_request_t   rq;

    static const char  in[] =
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},"
        "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"x\"}],"
        EFFORT("high") ",\"temperature\":0.5}";

    ngx_memzero(&sink, sizeof(sink_t));
    assert_int_equal(translate(*state, in, sizeof(in), &rq, &sink), NGX_OK);
    assert_int_equal(rq.max_tokens, 4096);
    unit_assert_str(rq.ignored.data, rq.ignored.len, "reasoning_effort");
    sink.data[sink.len] = '\0';
    assert_null(strstr((char *) sink.data, "\"thinking\""));
    assert_non_null(strstr((char *) sink.data, ",\"temperature\":0.5}"));
    free(sink.data);

    /* adaptive thinking has no such rule */

    caps.thinking = NGX_MODELGW_THINKING_ADAPTIVE;

    ngx_memzero(&sink, sizeof(sink_t));
    assert_int_equal(translate(*state, in, sizeof(in), &rq, &sink), NGX_OK);
    sink.data[sink.len] = '\0';
    assert_non_null(strstr((char *) sink.data, ADAPTIVE));
    free(sink.data);
}


static void
test_effort_adaptive(void **state)
{
    static case_t  all[] = {
        { EFFORT("minimal"), ADAPTIVE OUTPUT("low") },
        { EFFORT("low"), ADAPTIVE OUTPUT("low") },
        { EFFORT("medium"), ADAPTIVE OUTPUT("medium") },
        { EFFORT("high"), ADAPTIVE OUTPUT("high") },
        { EFFORT("xhigh"), ADAPTIVE OUTPUT("high") },
        { EFFORT("max"), ADAPTIVE OUTPUT("max") },
        { EFFORT("high") ",\"max_tokens\":5", ADAPTIVE OUTPUT("high") },
        { EFFORT("high") ",\"temperature\":0", ADAPTIVE OUTPUT("high") },
        { EFFORT("high") ",\"temperature\":0," CHOICE("\"required\""),
          CHOSEN("\"type\":\"any\"") ",\"temperature\":0" OUTPUT("high") },
        { NULL, NULL }
    };

    caps.thinking = NGX_MODELGW_THINKING_ADAPTIVE;
    caps.effort = NGX_MODELGW_EFFORT_LOW|NGX_MODELGW_EFFORT_MEDIUM
                  |NGX_MODELGW_EFFORT_HIGH|NGX_MODELGW_EFFORT_MAX;

    check_all(*state, all);
    check(*state, EFFORT("none"), ",\"thinking\":{\"type\":\"disabled\"}");
    check(*state, EFFORT("none") ",\"temperature\":0.5",
          ",\"temperature\":0.5,\"thinking\":{\"type\":\"disabled\"}");
    check_tokens(*state, EFFORT("max"), 4096);
    check_ignored(*state, EFFORT("high") "," CHOICE("\"required\""), "");

    caps.thinking = NGX_MODELGW_THINKING_ADAPTIVE_ONLY;

    check_all(*state, all);
    check(*state, EFFORT("none"), OUTPUT("low"));
    check_ignored(*state, EFFORT("none"), "");

    caps.effort = NGX_MODELGW_EFFORT_MINIMAL|NGX_MODELGW_EFFORT_XHIGH;

    check(*state, EFFORT("none"), OUTPUT("minimal"));
    check(*state, EFFORT("minimal"), ADAPTIVE OUTPUT("minimal"));
    check(*state, EFFORT("high"), ADAPTIVE OUTPUT("high"));
    check(*state, EFFORT("xhigh"), ADAPTIVE OUTPUT("xhigh"));
    check(*state, EFFORT("max"), ADAPTIVE OUTPUT("high"));

    caps.effort = 0;

    check(*state, EFFORT("high"), ADAPTIVE OUTPUT("high"));
    check_ignored(*state, EFFORT("high"), "");
    check(*state, EFFORT("none"), OUTPUT("low"));
    check_ignored(*state, EFFORT("none"), "");

    caps.effort = NGX_MODELGW_EFFORT_XHIGH;

    check(*state, EFFORT("none"), OUTPUT("low"));
}


static void
test_effort_none(void **state)
{
    caps.thinking = NGX_MODELGW_THINKING_NONE;

    check(*state, EFFORT("high"), "");
    check_ignored(*state, EFFORT("high"), "reasoning_effort");
    check_ignored(*state, EFFORT("none"), "");

    caps.effort = NGX_MODELGW_EFFORT_HIGH;

    check(*state, EFFORT("none"), "");
    check(*state, EFFORT("low"), "");
    check(*state, EFFORT("high") ",\"temperature\":0.5",
          ",\"temperature\":0.5" OUTPUT("high"));
    check(*state, EFFORT("xhigh"), OUTPUT("high"));
}


#define THINKING(members)  "\"thinking\":{" members "}"
#define ENABLED(n)         THINKING("\"budget_tokens\":" n ",\"type\":"       \
                                    "\"enabled\"")

#define BAD_BUDGET                                                            \
    INVALID "thinking.budget_tokens must be an integer of at least 1024"

static case_t  thinking[] = {
    { THINKING("\"type\":\"enabled\",\"budget_tokens\":1024,\"display\":"
               "\"omitted\",\"other\":1"),
      ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024,"
      "\"display\":\"omitted\"}" },
    { THINKING("\"type\":\"adaptive\",\"display\":\"summarized\","
               "\"budget_tokens\":5"),
      ",\"thinking\":{\"type\":\"adaptive\",\"display\":\"summarized\"}" },
    { THINKING("\"type\":\"disabled\",\"display\":null") ",\"temperature\":0.3",
      ",\"temperature\":0.3,\"thinking\":{\"type\":\"disabled\"}" },
    { ENABLED("2000") ",\"temperature\":0.3", BUDGET("2000") },
    { ENABLED("2000") "," EFFORT("high"), BUDGET("2000") },
    { ENABLED("2000") ",\"max_tokens\":2001", BUDGET("2000") },
    { ENABLED("2000") ",\"max_tokens\":2000",
      INVALID "thinking.budget_tokens must be less than the 2000 tokens of the "
      "answer" },
    { ENABLED("1023"), BAD_BUDGET },
    { ENABLED("\"1024\""), BAD_BUDGET },
    { ENABLED("1024.0"), BAD_BUDGET },
    { THINKING("\"type\":\"enabled\""), BAD_BUDGET },
    { THINKING("\"type\":\"adaptive\",\"display\":1"),
      INVALID "thinking.display must be a string" },
    { THINKING("\"type\":\"on\""),
      INVALID "thinking.type must be \"enabled\", \"adaptive\" or "
      "\"disabled\"" },
    { THINKING(""),
      INVALID "thinking.type must be \"enabled\", \"adaptive\" or "
      "\"disabled\"" },
    { ENABLED("2000") "," CHOICE("\"required\""),
      CHOSEN("\"type\":\"any\"") },
    { THINKING("\"type\":\"disabled\"") "," CHOICE("\"required\""),
      CHOSEN("\"type\":\"any\"") ",\"thinking\":{\"type\":\"disabled\"}" },
    { NULL, NULL }
};


static void
test_thinking(void **state)
{
    check_all(*state, thinking);

    check_tokens(*state, ENABLED("2000"), 6096);
    check_ignored(*state, ENABLED("2000") "," EFFORT("high"),
                  "reasoning_effort");
    check_ignored(*state, ENABLED("2000") "," CHOICE("\"required\""),
                  "thinking");

    max_output = 5000;

    check_tokens(*state, ENABLED("2000"), 5000);
    check(*state, ENABLED("5000"),
          INVALID "thinking.budget_tokens must be less than the 5000 tokens of "
          "the answer");

    /* models with adaptive thinking only */

    caps.thinking = NGX_MODELGW_THINKING_ADAPTIVE_ONLY;
    caps.effort = NGX_MODELGW_EFFORT_LOW|NGX_MODELGW_EFFORT_HIGH;

    check(*state, ENABLED("2000"), ADAPTIVE);
    check(*state, THINKING("\"type\":\"disabled\""), OUTPUT("low"));

    caps.effort = 0;

    check(*state, THINKING("\"type\":\"disabled\""), OUTPUT("low"));
    check_ignored(*state, THINKING("\"type\":\"disabled\""), "");

    /* models without thinking */

    caps.thinking = NGX_MODELGW_THINKING_NONE;
    caps.effort = NGX_MODELGW_EFFORT_HIGH;

    check(*state, ENABLED("2000"), "");
    check_tokens(*state, ENABLED("2000"), 4096);
    check_ignored(*state, ENABLED("2000"), "thinking");
    check(*state, ENABLED("2000") "," EFFORT("high"), OUTPUT("high"));
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        request_case(test_effort_budget),
        request_case(test_effort_loop),
        request_case(test_effort_adaptive),
        request_case(test_effort_none),
        request_case(test_thinking)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
