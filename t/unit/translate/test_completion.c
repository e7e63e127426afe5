
/*
 * Whole messages answers as chat completions: the tables of
 * docs/translation.md, Answers, usage as chat counts it, and what is not a
 * message.
 *
 * In answers, and in what is expected, ' is written for ".
 */


#include "unit_answer.h"


#define ANS(content, members)                                                 \
    "{'id':'i','type':'message','role':'assistant','model':'up','content':["  \
    content "],'stop_sequence':null" members "}"
#define ENDED  ",'stop_reason':'end_turn'"
#define SAID(t)   "{'type':'text','text':'" t "'}"
#define MUSE(t)  "{'type':'thinking','thinking':'" t "','signature':'s'}"
#define TOOL(id, input)                                                       \
    "{'type':'tool_use','id':'" id "','name':'f','input':" input "}"

#define CHAT(message, finish, usage)                                          \
    "{'id':'i','object':'chat.completion','created':1,'model':'m','choices':" \
    "[{'index':0,'message':{'role':'assistant','content':" message "},"       \
    "'logprobs':null,'finish_reason':'" finish "'}],'usage':{" usage "}}"
#define NONE                                                                  \
    "'prompt_tokens':0,'completion_tokens':0,'total_tokens':0,"               \
    "'prompt_tokens_details':{'cached_tokens':0,'cache_write_tokens':0}"
#define SAYS(message)  CHAT(message, "stop", NONE)
#define CALL(id, args)                                                        \
    "{'id':'" id "','type':'function','function':{'name':'f','arguments':'"   \
    args "'}}"


typedef struct {
    const char   *name;
    ngx_uint_t    reasoning;
    const char   *in;
    const char   *out;                   /* NULL: it is not a message */
} case_t;


static case_t  cases[] = {

    /* text */

    { "text", CONTENT, ANS(SAID("Hi"), ENDED), SAYS("'Hi','refusal':null") },
    { "texts", CONTENT,
      ANS(SAID("a ") "," SAID("") ",{'type':'text','text':'b','citations':"
      "[{'type':'char_location','cited_text':'c'}]}," SAID("."), ENDED),
      SAYS("'a b.','refusal':null") },
    { "escapes", CONTENT,
      ANS(SAID("\\n\\\\\\/\\u0000\\ud800\xe2\x80\xa8\xd0\xb8"), ENDED),
      SAYS("'\\n\\\\\\/\\u0000\\ud800\xe2\x80\xa8\xd0\xb8','refusal':null") },
    { "nothing", CONTENT, ANS("", ENDED), SAYS("'','refusal':null") },
    { "no text", CONTENT, ANS(SAID(""), ENDED), SAYS("'','refusal':null") },
    { "texts that are none", CONTENT,
      ANS("{'type':'text'},{'type':'text','text':null},{'type':'text','text':"
      "7},null,7,'x',[],{},{'type':null},{'text':'x'}", ENDED),
      SAYS("'','refusal':null") },
    { "members in any order, escaped", CONTENT,
      "{'content':[{'text':'a','t\\u0079pe':'te\\u0078t'}],'stop_re\\u0061son':"
      "'max_tok\\u0065ns','type':'message','id':'i'}",
      CHAT("'a','refusal':null", "length", NONE) },

    /* tools */

    { "tool", CONTENT, ANS(TOOL("t", "{'a':1}"), ",'stop_reason':'tool_use'"),
      CHAT("null,'refusal':null,'tool_calls':[" CALL("t", "{\\'a\\':1}") "]",
           "tool_calls", NONE) },
    { "text and tools", CONTENT,
      ANS(TOOL("t", "{}") "," SAID("a") "," TOOL("u", " {\n } "),
          ",'stop_reason':'tool_use'"),
      CHAT("'a','refusal':null,'tool_calls':[" CALL("t", "{}") ","
           CALL("u", "{}") "]", "tool_calls", NONE) },
    { "the bytes of the input", CONTENT,
      ANS(TOOL("t", "{'z': 1.0, 'a':\t12345678901234567890, 'e':1e400,\n"
               "'s':'\\u00e9\\n\\\\ \\/ \xc3\xa9','d':[[[[[[[[[[[[{'x':-0}"
               "]]]]]]]]]]]]}"), ",'stop_reason':'tool_use'"),
      CHAT("null,'refusal':null,'tool_calls':["
           CALL("t", "{\\'z\\': 1.0, \\'a\\':\\t12345678901234567890, "
           "\\'e\\':1e400,\\n\\'s\\':\\'\\\\u00e9\\\\n\\\\\\\\ \\\\/ \xc3\xa9"
           "\\',\\'d\\':[[[[[[[[[[[[{\\'x\\':-0}]]]]]]]]]]]]}") "]",
           "tool_calls", NONE) },
    { "no input", CONTENT,
      ANS("{'type':'tool_use','id':'t','name':'f'}," TOOL("u", "null") ","
          TOOL("v", "[]"), ",'stop_reason':'tool_use'"),
      CHAT("null,'refusal':null,'tool_calls':[" CALL("t", "{}") ","
           CALL("u", "{}") "," CALL("v", "{}") "]", "tool_calls", NONE) },
    { "odd ids", CONTENT,
      ANS(TOOL("t\\u00fc\\'", "{}"), ",'stop_reason':'tool_use'"),
      CHAT("null,'refusal':null,'tool_calls':[" CALL("t\\u00fc\\'", "{}") "]",
           "tool_calls", NONE) },
    { "the upstream's tools", CONTENT,
      ANS("{'type':'server_tool_use','id':'s','name':'w','input':{'q':1}},"
          "{'type':'web_search_tool_result','tool_use_id':'s','content':["
          SAID("hidden") "]}," SAID("a") "," TOOL("t", "{}") ","
          "{'type':'compaction','content':'x'},{'type':'fallback'}",
          ",'stop_reason':'tool_use'"),
      CHAT("'a','refusal':null,'tool_calls':[" CALL("t", "{}") "]",
           "tool_calls", NONE) },
    { "the upstream's tools only", CONTENT,
      ANS("{'type':'server_tool_use','id':'s','name':'w','input':{'q':1}}",
          ",'stop_reason':'tool_use'"), SAYS("'','refusal':null") },
    { "half a call", CONTENT,
      ANS(TOOL("t", "{'a':null}"), ",'stop_reason':'max_tokens'"),
      CHAT("null,'refusal':null,'tool_calls':[" CALL("t", "{\\'a\\':null}")
           "]", "length", NONE) },
    { "tool without id", CONTENT,
      ANS("{'type':'tool_use','name':'f','input':{}}", ENDED), NULL },
    { "tool without name", CONTENT,
      ANS(SAID("a") ",{'type':'tool_use','id':'t','name':7}", ENDED), NULL },

    /* thinking */

    { "thinking", CONTENT, ANS(MUSE("a\\n") "," SAID("b"), ENDED),
      SAYS("'b','refusal':null,'reasoning_content':'a\\n'") },
    { "thinking, more", CONTENT,
      ANS(MUSE("a") "," SAID("b") "," MUSE("c"), ENDED),
      SAYS("'b','refusal':null,'reasoning_content':'ac'") },
    { "thinking only", CONTENT, ANS(MUSE("a"), ENDED),
      SAYS("'','refusal':null,'reasoning_content':'a'") },
    { "thinking, off", OFF, ANS(MUSE("a") "," SAID("b"), ENDED),
      SAYS("'b','refusal':null") },
    { "thinking, omitted", CONTENT, ANS(MUSE("") "," SAID("b"), ENDED),
      SAYS("'b','refusal':null") },
    { "redacted", CONTENT,
      ANS("{'type':'redacted_thinking','data':'d'}," SAID("b"), ENDED),
      SAYS("'b','refusal':null") },
    { "full", FULL,
      ANS(MUSE("a") ",{'type':'redacted_thinking','data':'d\\/'},"
          "{'type':'thinking','thinking':'b'}," MUSE("") "," SAID("c") ","
          TOOL("t", "{}"), ",'stop_reason':'tool_use'"),
      CHAT("'c','refusal':null,'reasoning_content':'ab','thinking_blocks':["
           "{'type':'thinking','thinking':'a','signature':'s'},"
           "{'type':'redacted_thinking','data':'d\\/'},"
           "{'type':'thinking','thinking':'b'},"
           "{'type':'thinking','thinking':'','signature':'s'}],"
           "'tool_calls':[" CALL("t", "{}") "]", "tool_calls", NONE) },
    { "full, nothing", FULL, ANS(SAID("a"), ENDED),
      SAYS("'a','refusal':null") },

    /* refusals */

    { "refusal", CONTENT,
      ANS("", ",'stop_reason':'refusal','stop_details':{'type':'refusal',"
          "'explanation':'no\\n'}"),
      CHAT("null,'refusal':'no\\n'", "content_filter", NONE) },
    { "refusal with text", CONTENT,
      ANS(SAID("a"), ",'stop_reason':'sensitive','stop_details':{'explanation'"
          ":null}"),
      CHAT("'a','refusal':'The model declined to respond.'", "content_filter",
           NONE) },
    { "refusal, no details", CONTENT,
      ANS(SAID(""), ",'stop_reason':'refusal','stop_details':null"),
      CHAT("null,'refusal':'The model declined to respond.'",
           "content_filter", NONE) },
    { "details without a refusal", CONTENT,
      ANS("", ENDED ",'stop_details':{'explanation':'no'}"),
      SAYS("'','refusal':null") },

    /* usage, as chat counts it */

    { "usage", CONTENT,
      ANS(SAID("a"), ENDED ",'usage':{'input_tokens':5,'output_tokens':9,"
          "'cache_read_input_tokens':30,'cache_creation_input_tokens':200}"),
      CHAT("'a','refusal':null", "stop",
           "'prompt_tokens':235,'completion_tokens':9,'total_tokens':244,"
           "'prompt_tokens_details':{'cached_tokens':30,'cache_write_tokens':"
           "200}") },
    { "usage, reasoning", CONTENT,
      ANS(SAID("a"), ENDED ",'usage':{'input_tokens':null,'output_tokens':9,"
          "'cache_read_input_tokens':null,'output_tokens_details':"
          "{'thinking_tokens':0}}"),
      CHAT("'a','refusal':null", "stop",
           "'prompt_tokens':0,'completion_tokens':9,'total_tokens':9,"
           "'prompt_tokens_details':{'cached_tokens':0,'cache_write_tokens':0}"
           ",'completion_tokens_details':{'reasoning_tokens':0}") },
    { "usage null", CONTENT, ANS(SAID("a"), ENDED ",'usage':null"),
      SAYS("'a','refusal':null") },

    /* what is a message, and what is not */

    { "no type", CONTENT, "{'id':'i','content':[" SAID("a") "]}",
      SAYS("'a','refusal':null") },
    { "error", CONTENT,
      "{'type':'error','error':{'type':'api_error','message':'x'}}", NULL },
    { "error with content", CONTENT, "{'type':'error','content':[]}", NULL },
    { "type null", CONTENT, "{'type':null,'content':[]}", NULL },
    { "empty", CONTENT, "{}", NULL },
    { "no content", CONTENT, "{'id':'i','type':'message'}", NULL },
    { "content null", CONTENT, "{'type':'message','content':null}", NULL },
    { "content text", CONTENT, "{'type':'message','content':'a'}", NULL },
    { "no object", CONTENT, "[]", NULL },
    { "no JSON", CONTENT, "invalid json", NULL },
    { "half JSON", CONTENT, "{'type':'message','content':[", NULL },
};

#define NCASES  (sizeof(cases) / sizeof(cases[0]))


static void
check(const char *name, ngx_uint_t reasoning, const char *in, const char *out)
{
    char        *text, *expected;
    u_char      *doc;
    answer_t     a;
    ngx_int_t    rc;
    ngx_pool_t  *pool;

    text = unit_quoted(in);
    doc = unit_dup(text, ngx_strlen(text));
    expected = unit_quoted(out ? out : "");

    pool = unit_pool_create();
    answer_init(&a, pool, reasoning, 0, MAX);

    rc = answer_message(&a, doc, ngx_strlen(text));

    if (rc != (out ? NGX_OK : NGX_DECLINED)) {
        print_error("%s: %d\n", name, (int) rc);
        fail();
    }

    unit_assert_str(a.text ? a.text : (u_char *) "", a.len, expected);

    answer_free(&a);
    ngx_destroy_pool(pool);

    unit_free(doc);
    unit_free(text);
    unit_free(expected);
}


static void
answers(void **state)
{
    ngx_uint_t  i;

    for (i = 0; i < NCASES; i++) {
        check(cases[i].name, cases[i].reasoning, cases[i].in, cases[i].out);
    }
}


/* each stop reason, without and with a tool call */

static void
stop_reasons(void **state)
{
    char         in[1024], out[2048];
    ngx_uint_t   i;

    static struct {
        const char  *reason;
        const char  *plain;
        const char  *tools;
    } reasons[] = {
        { "'end_turn'", "stop", "tool_calls" },
        { "'stop_sequence'", "stop", "stop" },
        { "'pause_turn'", "stop", "stop" },
        { "null", "stop", "tool_calls" },
        { "7", "stop", "tool_calls" },
        { "''", "stop", "tool_calls" },
        { "'what'", "stop", "tool_calls" },
        { "'max_tokens'", "length", "length" },
        { "'model_context_window_exceeded'", "length", "length" },
        { "'tool_use'", "stop", "tool_calls" },
        { "'tool\\u005fuse'", "stop", "tool_calls" },
    };

    for (i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        snprintf(in, sizeof(in), ANS(SAID("a"), ",'stop_reason':%s"),
                 reasons[i].reason);
        snprintf(out, sizeof(out), CHAT("'a','refusal':null", "%s", NONE),
                 reasons[i].plain);
        check(reasons[i].reason, CONTENT, in, out);

        snprintf(in, sizeof(in),
                 ANS(SAID("a") "," TOOL("t", "{}"), ",'stop_reason':%s"),
                 reasons[i].reason);
        snprintf(out, sizeof(out),
                 CHAT("'a','refusal':null,'tool_calls':[" CALL("t", "{}")
                      "]", "%s", NONE),
                 reasons[i].tools);
        check(reasons[i].reason, CONTENT, in, out);
    }
}


static void
ids(void **state)
{
    char         in[1024], out[2048], id[400];
    ngx_uint_t   i;

    static const char  *values[] = { "null", "7", "''", "{}" };

#define ID_OUT                                                                \
    "{'id':'%s','object':'chat.completion','created':1,'model':'m','choices'" \
    ":[{'index':0,'message':{'role':'assistant','content':'','refusal':null}" \
    ",'logprobs':null,'finish_reason':'stop'}],'usage':{" NONE "}}"

    for (i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        snprintf(in, sizeof(in), "{'id':%s,'content':[]}", values[i]);
        snprintf(out, sizeof(out), ID_OUT, "msg_1");
        check("id", CONTENT, in, out);
    }

    check("no id", CONTENT, "{'content':[]}", out);

    for (i = 255; i < 258; i++) {
        memset(id, 'x', i);
        id[i] = '\0';

        snprintf(in, sizeof(in), "{'id':'%s','content':[]}", id);
        snprintf(out, sizeof(out), ID_OUT, i <= 256 ? id : "msg_1");
        check("long id", CONTENT, in, out);
    }
}


static void
broken_sink(void **state)
{
    char      *doc;
    answer_t   a;

    doc = unit_quoted(ANS(SAID("a") "," MUSE("b") "," TOOL("t", "{'x':1}"),
                     ENDED));

    answer_init(&a, *state, FULL, 0, MAX);
    a.broken = 1;

    assert_int_equal(answer_message(&a, (u_char *) doc, ngx_strlen(doc)),
                     NGX_OK);
    assert_int_equal(a.out.failed, 1);
    assert_int_equal(a.len, 0);

    answer_free(&a);
    unit_free(doc);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(answers),
        cmocka_unit_test(stop_reasons),
        cmocka_unit_test(ids),
        unit_case(broken_sink),
    };

    return cmocka_run_group_tests_name("completion", tests, NULL, NULL);
}
