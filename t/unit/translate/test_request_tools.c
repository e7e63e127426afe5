
/*
 * The request codec: tools, tool_choice, parallel_tool_calls; each row of
 * docs/translation.md, Tools.
 */


#include "unit_request.h"


#define FUNCTION(members)                                                     \
    "\"tools\":[{\"type\":\"function\",\"function\":{" members "}}]"
#define PARAMETERS(json)  FUNCTION("\"name\":\"f\",\"parameters\":" json)
#define INPUT(json)                                                           \
    ",\"tools\":[{\"name\":\"f\",\"input_schema\":" json "}]"
#define BAD_NAME                                                              \
    INVALID "tools[0].function.name must be 1 to 128 characters of a-z, A-Z, "\
    "0-9, \"_\" and \"-\""

static case_t  tools[] = {
    { "\"tools\":[]", "" },
    { TOOLS, TOOLS_OUT },
    { FUNCTION("\"parameters\":{\"z\":1,\"type\":\"object\",\"a\":1e5},"
               "\"description\":\"d\\u00e4\",\"name\":\"f\\u0031\""),
      ",\"tools\":[{\"name\":\"f1\",\"description\":\"d\\u00e4\","
      "\"input_schema\":{\"z\":1,\"type\":\"object\",\"a\":1e5}}]" },
    { FUNCTION("\"name\":\"f\",\"description\":null"),
      ",\"tools\":[" TOOL_OUT("f") "]" },
    { FUNCTION("\"name\":\"f\",\"description\":\" \""),
      ",\"tools\":[" TOOL_OUT("f") "]" },
    { PARAMETERS("null"), ",\"tools\":[" TOOL_OUT("f") "]" },
    { PARAMETERS("{ }"), ",\"tools\":[" TOOL_OUT("f") "]" },
    { PARAMETERS("{\"type\":\"object\"}"), INPUT("{\"type\":\"object\"}") },
    { PARAMETERS("{ \"anyOf\":[{}]}"),
      INPUT("{\"type\":\"object\", \"anyOf\":[{}]}") },
    { PARAMETERS("{\"properties\":{\"type\":{}}}"),
      INPUT("{\"type\":\"object\",\"properties\":{\"type\":{}}}") },
    { PARAMETERS("{\"t\\u0079pe\":\"object\",\"x\":1}"),
      INPUT("{\"t\\u0079pe\":\"object\",\"x\":1}") },
    { PARAMETERS("[]"),
      INVALID "tools[0].function.parameters must be an object" },
    { FUNCTION("\"name\":\"f\",\"strict\":true"),
      ",\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\","
      "\"properties\":{}},\"strict\":true}]" },
    { FUNCTION("\"name\":\"f\",\"strict\":false"),
      ",\"tools\":[" TOOL_OUT("f") "]" },
    { FUNCTION("\"name\":\"f\",\"strict\":1"),
      INVALID "tools[0].function.strict must be true or false" },
    { FUNCTION("\"name\":\"f\",\"description\":1"),
      INVALID "tools[0].function.description must be a string" },
    { FUNCTION("\"name\":\"\""), BAD_NAME },
    { FUNCTION("\"name\":\"a b\""), BAD_NAME },
    { FUNCTION("\"name\":\"a.b\""), BAD_NAME },
    { FUNCTION("\"name\":\"f\\u0000\""), BAD_NAME },
    { FUNCTION("\"name\":null"),
      INVALID "tools[0].function.name must be a string" },
    { "\"tools\":[" TOOL("f") ",{\"type\":\"function\",\"function\":null}]",
      INVALID "tools[1].function must be an object" },
    { "\"tools\":[{\"type\":\"custom\",\"custom\":{}}]",
      UNSUPPORTED "tools[0].type \"custom\" is not supported" },
    { "\"tools\":[{\"function\":{\"name\":\"f\"}}]",
      INVALID "tools[0].type must be a string" },
    { "\"tools\":[1]", INVALID "tools[0].type must be a string" },
    { "\"tools\":[{\"type\":\"function\",\"cache_control\":{\"type\":"
      "\"ephemeral\"},\"function\":{\"name\":\"f\",\"cache_control\":{"
      "\"type\":\"ephemeral\",\"ttl\":\"1h\"}}}]",
      ",\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\","
      "\"properties\":{}},\"cache_control\":{\"type\":\"ephemeral\"}}]" },
    { NULL, NULL }
};


static void
test_tools(void **state)
{
    char  in[512], out[512], name[130];

    check_all(*state, tools);

    memset(name, 'x', 129);
    name[129] = '\0';
    snprintf(in, sizeof(in), FUNCTION("\"name\":\"%s\""), name);
    check(*state, in, BAD_NAME);

    name[128] = '\0';
    snprintf(in, sizeof(in), FUNCTION("\"name\":\"%s\""), name);
    snprintf(out, sizeof(out), ",\"tools\":[" TOOL_OUT("%s") "]", name);
    check(*state, in, out);

    caps.strict = 0;
    check(*state, FUNCTION("\"name\":\"f\",\"strict\":true"),
          ",\"tools\":[" TOOL_OUT("f") "]");
}


#define SERIAL        ",\"parallel_tool_calls\":false"
#define DISABLED      ",\"disable_parallel_tool_use\":true"
#define ALLOWED(mode, list)                                                   \
    CHOICE("{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"" mode  \
           "\",\"tools\":[" list "]}}")

#define BAD_CHOICE                                                            \
    INVALID "\"tool_choice\" must be \"auto\", \"none\", \"required\" or an " \
    "object"

static case_t  choices[] = {
    { CHOICE("\"auto\""), CHOSEN("\"type\":\"auto\"") },
    { CHOICE("\"none\""), CHOSEN("\"type\":\"none\"") },
    { CHOICE("\"required\""), CHOSEN("\"type\":\"any\"") },
    { CHOICE("{\"type\":\"function\",\"function\":{\"name\":\"\\u0067\"}}"),
      CHOSEN("\"type\":\"tool\",\"name\":\"g\"") },
    { CHOICE("\"any\""), BAD_CHOICE },
    { CHOICE("\"\""), BAD_CHOICE },
    { CHOICE("{}"), INVALID "tool_choice.type must be a string" },
    { CHOICE("{\"type\":\"custom\",\"custom\":{\"name\":\"g\"}}"),
      UNSUPPORTED "tool_choice.type \"custom\" is not supported" },
    { CHOICE("{\"type\":\"function\"}"),
      INVALID "tool_choice.function.name must be a string" },
    { CHOICE("{\"type\":\"function\",\"function\":{\"name\":\"h\"}}"),
      INVALID "tool_choice.function.name is not in \"tools\"" },

    { TOOLS SERIAL, CHOSEN("\"type\":\"auto\"" DISABLED) },
    { TOOLS ",\"parallel_tool_calls\":true", TOOLS_OUT },
    { CHOICE("\"none\"") SERIAL, CHOSEN("\"type\":\"none\"") },
    { CHOICE("\"required\"") SERIAL, CHOSEN("\"type\":\"any\"" DISABLED) },
    { CHOICE("{\"type\":\"function\",\"function\":{\"name\":\"g\"}}") SERIAL,
      CHOSEN("\"type\":\"tool\",\"name\":\"g\"" DISABLED) },

    { "\"tool_choice\":\"auto\"", "" },
    { "\"tool_choice\":\"none\"", "" },
    { "\"tools\":[],\"tool_choice\":\"auto\"" SERIAL, "" },
    { "\"parallel_tool_calls\":false", "" },
    { "\"tool_choice\":\"required\"",
      INVALID "\"tool_choice\" forces a call, and there is no tool to "
      "call" },
    { "\"tools\":null,\"tool_choice\":{\"type\":\"function\",\"function\":{"
      "\"name\":\"f\"}}",
      INVALID "tool_choice.function.name is not in \"tools\"" },

    { ALLOWED("required", TOOL("g")),
      ",\"tools\":[" TOOL_OUT("g") "],\"tool_choice\":{\"type\":\"any\"}" },
    { ALLOWED("auto", TOOL("x") "," TOOL("f")) SERIAL,
      ",\"tools\":[" TOOL_OUT("f") "],\"tool_choice\":{\"type\":\"auto\""
      DISABLED "}" },
    { ALLOWED("auto", TOOL("g") "," TOOL("f") "," TOOL("f")),
      CHOSEN("\"type\":\"auto\"") },
    { ALLOWED("required", TOOL("x")),
      INVALID "tool_choice.allowed_tools.tools names none of \"tools\"" },
    { ALLOWED("auto", ""),
      INVALID "tool_choice.allowed_tools.tools names none of \"tools\"" },
    { ALLOWED("none", TOOL("f")),
      INVALID "tool_choice.allowed_tools.mode must be \"auto\" or "
      "\"required\"" },
    { ALLOWED("auto", "{\"type\":\"function\"}"),
      INVALID "tool_choice.allowed_tools.tools[0].function.name must be a "
      "string" },
    { CHOICE("{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":"
             "\"auto\"}}"),
      INVALID "tool_choice.allowed_tools.tools must be an array" },
    { CHOICE("{\"type\":\"allowed_tools\"}"),
      INVALID "tool_choice.allowed_tools.mode must be \"auto\" or "
      "\"required\"" },
    { NULL, NULL }
};


static void
test_choice(void **state)
{
    static const char  forced[] =
        UNSUPPORTED "a \"tool_choice\" that forces a call is not supported by "
        "this model";

    check_all(*state, choices);

    caps.forced_tool_choice = 0;

    check(*state, CHOICE("\"required\""), forced);
    check(*state, CHOICE("{\"type\":\"function\",\"function\":{\"name\":"
                         "\"f\"}}"), forced);
    check(*state, ALLOWED("required", TOOL("g")), forced);
    check(*state, CHOICE("\"auto\""), CHOSEN("\"type\":\"auto\""));
    check(*state, ALLOWED("auto", TOOL("g")),
          ",\"tools\":[" TOOL_OUT("g") "],\"tool_choice\":{\"type\":"
          "\"auto\"}");
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        request_case(test_tools),
        request_case(test_choice)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
