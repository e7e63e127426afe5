
/*
 * Messages streams as chat streams: the table of docs/translation.md, Streams,
 * row by row; known bugs of other gateways; what is refused.
 * Each stream is fed at all chunk sizes, through the reader of events and the
 * scanner, and must give the same bytes.
 */


#include "unit_answer.h"


/* chunks */

#define CHUNK(delta)                                                          \
    "data: {'id':'i','object':'chat.completion.chunk','created':1,'model':"   \
    "'m','choices':[{'index':0,'delta':" delta ",'logprobs':null,"            \
    "'finish_reason':null}]}\n\n"

#define ROLE         CHUNK("{'role':'assistant','content':''}")
#define SAYS(t)      CHUNK("{'content':'" t "'}")
#define REASONS(t)   CHUNK("{'reasoning_content':'" t "'}")
#define CALL(n, id)                                                           \
    CHUNK("{'tool_calls':[{'index':" n ",'id':'" id "','type':'function',"    \
          "'function':{'name':'f','arguments':''}}]}")
#define MORE(n, args)                                                         \
    CHUNK("{'tool_calls':[{'index':" n ",'function':{'arguments':'" args       \
          "'}}]}")
#define BLOCK(n, members)                                                     \
    CHUNK("{'thinking_blocks':[{'index':" n "," members "}]}")
#define REFUSES(t)   CHUNK("{'refusal':'" t "'}")

#define FINISHED(r)                                                           \
    "data: {'id':'i','object':'chat.completion.chunk','created':1,'model':"   \
    "'m','choices':[{'index':0,'delta':{},'logprobs':null,"                   \
    "'finish_reason':'" r "'}]}\n\n"
#define DONE         "data: [DONE]\n\n"
#define STOPPED      FINISHED("stop") DONE


typedef struct {
    const char   *name;
    ngx_uint_t    reasoning;
    ngx_int_t     rc;
    const char   *in;
    const char   *out;
} case_t;


static case_t  cases[] = {

    /* the table, row by row */

    { "message_start", CONTENT, NGX_DECLINED, START, ROLE },
    { "message_start twice", CONTENT, NGX_DONE, START START FINISH,
      ROLE STOPPED },
    { "empty", CONTENT, NGX_DONE, START FINISH, ROLE STOPPED },

    { "ping", CONTENT, NGX_DONE, PING START PING FINISH PING,
      ROLE ": ping\n\n" STOPPED },

    { "start with text", CONTENT, NGX_DONE,
      START BEGIN("0", "{'type':'text','text':'a'}") TEXT("0", "b") END("0")
      FINISH, ROLE SAYS("a") SAYS("b") STOPPED },
    { "start without text", CONTENT, NGX_DONE,
      START BEGIN("0", "{'type':'text'}") TEXT("0", "b") FINISH,
      ROLE SAYS("b") STOPPED },
    { "start with thinking", CONTENT, NGX_DONE,
      START BEGIN("0", "{'type':'thinking','thinking':'a'}") THINK("0", "b")
      END("0") FINISH, ROLE REASONS("a") REASONS("b") STOPPED },
    { "thinking, off", OFF, NGX_DONE,
      START BEGIN("0", "{'type':'thinking','thinking':'a'}") THINK("0", "b")
      SIGN("0", "s") END("0") FINISH, ROLE STOPPED },

    { "text without a block", CONTENT, NGX_DONE, START TEXT("0", "a") FINISH,
      ROLE SAYS("a") STOPPED },
    { "text after its stop", CONTENT, NGX_DONE,
      START BEGIN_TEXT("0") END("0") TEXT("0", "a") FINISH,
      ROLE SAYS("a") STOPPED },
    { "text for other kinds", CONTENT, NGX_DONE,
      START BEGIN_THINK("0") BEGIN_TOOL("1", "t")
      BEGIN("2", "{'type':'redacted_thinking','data':'d'}")
      BEGIN("3", "{'type':'compaction'}")
      TEXT("0", "a") TEXT("1", "a") TEXT("2", "a") TEXT("3", "a")
      REASON("'pause_turn'") STOP, ROLE CALL("0", "t") STOPPED },
    { "thinking for other kinds", CONTENT, NGX_DONE,
      START BEGIN_TEXT("0") THINK("0", "a") SIGN("0", "s") THINK("1", "a")
      END("0") FINISH, ROLE STOPPED },
    { "arguments for other kinds", CONTENT, NGX_DONE,
      START BEGIN_TEXT("0") ARGS("0", "{}") ARGS("1", "{}") FINISH,
      ROLE STOPPED },
    { "no texts", CONTENT, NGX_DONE,
      START BEGIN_TEXT("0") BEGIN_THINK("1") BEGIN_TOOL("2", "t")
      TEXT("0", "") THINK("1", "") SIGN("1", "") ARGS("2", "")
      DELTA("0", "{'type':'text_delta'}") DELTA("0", "{'type':'text_delta',"
      "'text':null}") DELTA("0", "{'type':'text_delta','text':7}")
      DELTA("0", "null") DELTA("0", "{}") DELTA("0", "{'text':'a'}")
      REASON("'max_tokens'") STOP,
      ROLE CALL("0", "t") FINISHED("length") DONE },
    { "unknown deltas", CONTENT, NGX_DONE,
      START BEGIN_TEXT("0") DELTA("0", "{'type':'citations_delta','citation':"
      "{'type':'x','text':'t'}}") DELTA("0", "{'type':'compaction_delta',"
      "'content':'x'}") FINISH, ROLE STOPPED },

    { "unknown events", CONTENT, NGX_DONE,
      EV("{'type':'what'}") START EV("{'type':'what','index':'x'}") EV("{}")
      "event: what\n" EV("{'index':0}") EV("{'type':7}") FINISH,
      ROLE STOPPED },

    { "end without message_stop", CONTENT, NGX_DONE,
      START TEXT("0", "a") REASON("'end_turn'"), ROLE SAYS("a") STOPPED },
    { "message_stop without a reason", CONTENT, NGX_DONE,
      START TEXT("0", "a") STOP, ROLE SAYS("a") STOPPED },
    { "message_stop without a reason, tools", CONTENT, NGX_DONE,
      START BEGIN_TOOL("0", "t") END("0") STOP,
      ROLE CALL("0", "t") MORE("0", "{}") FINISHED("tool_calls") DONE },
    { "end, reason null", CONTENT, NGX_DECLINED,
      START TEXT("0", "a") REASON("null"), ROLE SAYS("a") },
    { "end, reason empty", CONTENT, NGX_DECLINED, START REASON("''"), ROLE },
    { "reason stays", CONTENT, NGX_DONE,
      START REASON("'max_tokens'") REASON("null") EV("{'type':'message_delta'"
      ",'usage':{}}"), ROLE FINISHED("length") DONE },
    { "last reason counts", CONTENT, NGX_DONE,
      START REASON("'max_tokens'") REASON("'end_turn'") STOP, ROLE STOPPED },
    { "reason in message_start is none", CONTENT, NGX_DECLINED,
      MSG(",'stop_reason':'end_turn'"), ROLE },

    { "after the end", CONTENT, NGX_DONE, START FINISH TEXT("0", "a")
      EV("{'type':'error','error':{}}") "data: {\n\n", ROLE STOPPED },

    /* cut */

    { "nothing", CONTENT, NGX_DECLINED, "", "" },
    { "comments only", CONTENT, NGX_DECLINED, ": a\n\n:\n\n", "" },
    { "cut in text", CONTENT, NGX_DECLINED, START BEGIN_TEXT("0")
      TEXT("0", "a"), ROLE SAYS("a") },
    { "cut after a block", CONTENT, NGX_DECLINED, START BEGIN_TEXT("0")
      TEXT("0", "a") END("0"), ROLE SAYS("a") },
    { "cut in an event", CONTENT, NGX_DECLINED, START "data: {'type':'mess",
      ROLE },
    { "cut in an event, reason known", CONTENT, NGX_DECLINED,
      START REASON("'end_turn'") "data: {'type':'mess", ROLE },
    { "last event without a blank line", CONTENT, NGX_DONE,
      START REASON("'end_turn'") "data: {'type':'message_stop'}",
      ROLE STOPPED },

    /* errors */

    { "error first", CONTENT, NGX_ABORT,
      "event: error\n" EV("{'type':'error','error':{'type':'overloaded_error',"
      "'message':'Overloaded'}}"), "" },
    { "error in a stream", CONTENT, NGX_ABORT,
      START TEXT("0", "a") EV("{'type':'error','error':{'type':'x'}}") FINISH,
      ROLE SAYS("a") },
    { "error after the reason", CONTENT, NGX_ABORT,
      START REASON("'end_turn'") EV("{'type':'error'}") STOP, ROLE },
    { "error without type", CONTENT, NGX_ABORT,
      START EV("{'error':{'message':'x'}}"), ROLE },
    { "error of an unknown type", CONTENT, NGX_ABORT,
      START EV("{'type':'overloaded_error','error':{'message':'x'}}"), ROLE },
    { "error by its name", CONTENT, NGX_ABORT,
      START "event: error\n" EV("{'message':'x'}"), ROLE },
    { "error by its name, of an unknown type", CONTENT, NGX_ABORT,
      START "event: error\n" EV("{'type':'x','message':'x'}"), ROLE },
    { "no error", CONTENT, NGX_DONE,
      START EV("{'type':'x','error':null}") FINISH, ROLE STOPPED },

    /* invalid sequences */

    { "no JSON", CONTENT, NGX_DECLINED, START EV("{invalid"), ROLE },
    { "no JSON, first", CONTENT, NGX_DECLINED,
      "event: message_start\n" EV("{invalid"), "" },
    { "no JSON, error", CONTENT, NGX_DECLINED,
      "event: error\n" EV("{invalid"), "" },
    { "no object", CONTENT, NGX_DECLINED, START EV("[]"), ROLE },
    { "start of a block first", CONTENT, NGX_DECLINED, BEGIN_TEXT("0"), "" },
    { "delta first", CONTENT, NGX_DECLINED, TEXT("0", "a") START, "" },
    { "stop of a block first", CONTENT, NGX_DECLINED, END("0"), "" },
    { "message_delta first", CONTENT, NGX_DECLINED, REASON("'end_turn'"), "" },
    { "message_stop first", CONTENT, NGX_DECLINED, STOP, "" },
    { "start without index", CONTENT, NGX_DECLINED,
      START EV("{'type':'content_block_start','content_block':"
      "{'type':'text','text':'a'}}"), ROLE },
    { "index null", CONTENT, NGX_DECLINED, START TEXT("null", "a"), ROLE },
    { "index negative", CONTENT, NGX_DECLINED, START TEXT("-1", "a"), ROLE },
    { "index a fraction", CONTENT, NGX_DECLINED, START TEXT("0.5", "a"),
      ROLE },
    { "index a string", CONTENT, NGX_DECLINED, START END("'0'"), ROLE },
    { "tool without id", CONTENT, NGX_DECLINED,
      START BEGIN("0", "{'type':'tool_use','name':'f','input':{}}"), ROLE },
    { "tool without name", CONTENT, NGX_DECLINED,
      START BEGIN("0", "{'type':'tool_use','id':'t','name':null}"), ROLE },
    { "no block", CONTENT, NGX_DONE,
      START BEGIN("0", "null") TEXT("0", "a") BEGIN("1", "{'type':7}")
      BEGIN("2", "'x'") END("0") END("7") FINISH, ROLE STOPPED },

    /* the type of an event: its data's, or its name; members in any order */

    { "by name", CONTENT, NGX_DONE,
      "event: message_start\n" EV("{'message':{'id':'i'}}")
      "event: content_block_delta\n" EV("{'index':0,'delta':{'type':"
      "'text_delta','text':'a'}}") "event: message_stop\n" EV("{}"),
      ROLE SAYS("a") STOPPED },
    { "type wins over name", CONTENT, NGX_DONE,
      "event: message_stop\n" START "event: error\n" TEXT("0", "a")
      "event: message_stop\n" EV("{'type':'what'}") FINISH,
      ROLE SAYS("a") STOPPED },
    { "type last, escaped", CONTENT, NGX_DONE,
      START EV("{'delta':{'text':'a','type':'text\\u005fdelta'},'index':0,"
      "'t\\u0079pe':'content_block_delta'}") FINISH,
      ROLE SAYS("a") STOPPED },
    { "several lines, CR LF", CONTENT, NGX_DONE,
      START "data: {'type':\r\ndata:'content_block_delta',\r\ndata: 'index':0,"
      "'delta':\r\ndata: {'type':'text_delta','text':'a'}}\r\n\r\n" FINISH,
      ROLE SAYS("a") STOPPED },
    { "no space, blanks", CONTENT, NGX_DONE,
      "\n\ndata:{'type':'message_start','message':{'id':'i'}   }\n\n"
      "event:ping\n\n" ": x\n\n" FINISH, ROLE STOPPED },
    { "CR", CONTENT, NGX_DONE,
      START "data: {'type':'content_block_delta','index':0,\rdata: 'delta':"
      "{'type':'text_delta','text':'a'}}\r\r" FINISH,
      ROLE SAYS("a") STOPPED },

    /* texts as they are written */

    { "escapes", CONTENT, NGX_DONE,
      START TEXT("0", "\\n\\\\\\/\\u0000\\ud83d\\ude00\\ud800")
      TEXT("0", "\xe2\x80\xa8\xd0\xb8") FINISH,
      ROLE SAYS("\\n\\\\\\/\\u0000\\ud83d\\ude00\\ud800")
      SAYS("\xe2\x80\xa8\xd0\xb8") STOPPED },
    { "partial JSON", CONTENT, NGX_DONE,
      START BEGIN_TOOL("0", "t\\u00fc") ARGS("0", "{\\u0022a\\\": 1.0")
      ARGS("0", "e400,\\n 12345678901234567890}") END("0")
      REASON("'tool_use'") STOP,
      ROLE CALL("0", "t\\u00fc") MORE("0", "{\\u0022a\\\": 1.0")
      MORE("0", "e400,\\n 12345678901234567890}") FINISHED("tool_calls")
      DONE },

    /* tools: indices, arguments */

    { "text, then a tool", CONTENT, NGX_DONE,
      START BEGIN_TEXT("0") TEXT("0", "a") END("0") BEGIN_TOOL("1", "t")
      ARGS("1", "{}") END("1") REASON("'tool_use'") STOP,
      ROLE SAYS("a") CALL("0", "t") MORE("0", "{}") FINISHED("tool_calls")
      DONE },
    { "tools between texts", CONTENT, NGX_DONE,
      START BEGIN_TEXT("0") TEXT("0", "a") END("0") BEGIN_TOOL("1", "t")
      ARGS("1", "1") END("1") BEGIN_TEXT("2") TEXT("2", "b") END("2")
      BEGIN_TOOL("3", "u") ARGS("3", "2") END("3") REASON("'tool_use'") STOP,
      ROLE SAYS("a") CALL("0", "t") MORE("0", "1") SAYS("b") CALL("1", "u")
      MORE("1", "2") FINISHED("tool_calls") DONE },
    { "interleaved", CONTENT, NGX_DONE,
      START BEGIN_TOOL("5", "t") BEGIN_TOOL("9", "u") BEGIN_TEXT("7")
      ARGS("9", "1") ARGS("5", "2") TEXT("7", "a") ARGS("9", "3") END("9")
      ARGS("5", "4") END("5") END("7") REASON("'tool_use'") STOP,
      ROLE CALL("0", "t") CALL("1", "u") MORE("1", "1") MORE("0", "2")
      SAYS("a") MORE("1", "3") MORE("0", "4") FINISHED("tool_calls") DONE },
    { "the upstream's tools", CONTENT, NGX_DONE,
      START BEGIN("0", "{'type':'server_tool_use','id':'s','name':'w','input':"
      "{}}") ARGS("0", "{q") END("0") BEGIN("1", "{'type':"
      "'web_search_tool_result','tool_use_id':'s','content':[]}") END("1")
      BEGIN_TOOL("2", "t") ARGS("2", "1") END("2") REASON("'tool_use'") STOP,
      ROLE CALL("0", "t") MORE("0", "1") FINISHED("tool_calls") DONE },
    { "the upstream's tools only", CONTENT, NGX_DONE,
      START BEGIN("0", "{'type':'server_tool_use','id':'s','name':'w'}")
      END("0") REASON("'tool_use'") STOP, ROLE STOPPED },

    { "no arguments", CONTENT, NGX_DONE,
      START BEGIN_TOOL("0", "t") ARGS("0", "") END("0") END("0")
      BEGIN_TOOL("1", "u") END("1") REASON("'tool_use'") STOP,
      ROLE CALL("0", "t") MORE("0", "{}") CALL("1", "u") MORE("1", "{}")
      FINISHED("tool_calls") DONE },
    { "all arguments in the start", CONTENT, NGX_DONE,
      START BEGIN("0", "{'type':'tool_use','id':'t','name':'f','input':"
      "{'a': [1.0, 'x\\n\\u0022']}}") END("0") REASON("'tool_use'") STOP,
      ROLE CALL("0", "t") MORE("0", "{\\'a\\': [1.0, \\'x\\\\n\\\\u0022\\']}")
      FINISHED("tool_calls") DONE },
    { "arguments in the start, and deltas", CONTENT, NGX_DONE,
      START BEGIN("0", "{'type':'tool_use','id':'t','name':'f','input':"
      "{'a':1}}") ARGS("0", "{}") END("0") REASON("'tool_use'") STOP,
      ROLE CALL("0", "t") MORE("0", "{}") FINISHED("tool_calls") DONE },
    { "no input", CONTENT, NGX_DONE,
      START BEGIN("0", "{'type':'tool_use','id':'t','name':'f'}") END("0")
      BEGIN("1", "{'type':'tool_use','id':'u','name':'f','input':null}")
      END("1")
      BEGIN("2", "{'type':'tool_use','id':'v','name':'f','input':[]}")
      END("2") REASON("'tool_use'") STOP,
      ROLE CALL("0", "t") MORE("0", "{}") CALL("1", "u") MORE("1", "{}")
      CALL("2", "v") MORE("2", "{}") FINISHED("tool_calls") DONE },
    { "not stopped, tool_use", CONTENT, NGX_DONE,
      START BEGIN_TOOL("0", "t") REASON("'tool_use'") STOP,
      ROLE CALL("0", "t") MORE("0", "{}") FINISHED("tool_calls") DONE },
    { "not stopped, arguments in the start", CONTENT, NGX_DONE,
      START BEGIN("0", "{'type':'tool_use','id':'t','name':'f','input':"
      "{'a':1}}") REASON("'max_tokens'"),
      ROLE CALL("0", "t") MORE("0", "{\\'a\\':1}") FINISHED("length") DONE },
    { "half arguments", CONTENT, NGX_DONE,
      START BEGIN_TOOL("0", "t") ARGS("0", "{\\'a") REASON("'max_tokens'")
      STOP, ROLE CALL("0", "t") MORE("0", "{\\'a") FINISHED("length") DONE },
    { "no half arguments are made", CONTENT, NGX_DONE,
      START BEGIN_TOOL("0", "t") REASON("'max_tokens'") STOP,
      ROLE CALL("0", "t") FINISHED("length") DONE },
    { "arguments after the stop", CONTENT, NGX_DONE,
      START BEGIN_TOOL("0", "t") END("0") ARGS("0", "{}")
      REASON("'tool_use'") STOP,
      ROLE CALL("0", "t") MORE("0", "{}") FINISHED("tool_calls") DONE },

    { "an index twice", CONTENT, NGX_DONE,
      START BEGIN("0", "{'type':'server_tool_use','id':'s','name':'w'}")
      ARGS("0", "{}") BEGIN_TOOL("0", "t") BEGIN_TOOL("0", "u")
      ARGS("0", "1") BEGIN_TEXT("0") TEXT("0", "a") END("0") END("0")
      REASON("'tool_use'") STOP,
      ROLE CALL("0", "t") MORE("0", "{}") CALL("1", "u") MORE("1", "1")
      SAYS("a") FINISHED("tool_calls") DONE },

    /* thinking blocks */

    { "full", FULL, NGX_DONE,
      START BEGIN_THINK("0") THINK("0", "a\\n") THINK("0", "b") SIGN("0", "s")
      SIGN("0", "t") END("0") END("0") FINISH,
      ROLE REASONS("a\\n") REASONS("b")
      BLOCK("0", "'type':'thinking','thinking':'a\\nb','signature':'st'")
      STOPPED },
    { "full, redacted", FULL, NGX_DONE,
      START BEGIN("0", "{'type':'redacted_thinking','data':'d\\/'}") END("0")
      BEGIN_TEXT("1") TEXT("1", "a") END("1")
      BEGIN("2", "{'type':'thinking','thinking':'x','signature':''}")
      END("2") FINISH,
      ROLE BLOCK("0", "'type':'redacted_thinking','data':'d\\/'") SAYS("a")
      REASONS("x") BLOCK("2", "'type':'thinking','thinking':'x','signature':"
      "''") STOPPED },
    { "full, omitted text", FULL, NGX_DONE,
      START BEGIN_THINK("0") SIGN("0", "s") END("0") FINISH,
      ROLE BLOCK("0", "'type':'thinking','thinking':'','signature':'s'")
      STOPPED },
    { "full, unsigned, not stopped", FULL, NGX_DONE,
      START BEGIN_THINK("0") THINK("0", "a") REASON("'max_tokens'") STOP,
      ROLE REASONS("a") BLOCK("0", "'type':'thinking','thinking':'a'")
      FINISHED("length") DONE },
    { "full, interleaved", FULL, NGX_DONE,
      START BEGIN_THINK("0") BEGIN_THINK("1") THINK("0", "a") THINK("1", "b")
      SIGN("1", "s") END("1") END("0") BEGIN_THINK("0") THINK("0", "c")
      END("0") FINISH,
      ROLE REASONS("a") REASONS("b")
      BLOCK("1", "'type':'thinking','thinking':'b','signature':'s'")
      BLOCK("2", "'type':'thinking','thinking':'a'") REASONS("c")
      BLOCK("3", "'type':'thinking','thinking':'c'") STOPPED },
    { "not full, redacted", CONTENT, NGX_DONE,
      START BEGIN("0", "{'type':'redacted_thinking','data':'d'}") END("0")
      FINISH, ROLE STOPPED },

    /* refusals */

    { "refusal", CONTENT, NGX_DONE,
      START TEXT("0", "a") EV("{'type':'message_delta','delta':{'stop_reason':"
      "'refusal','stop_details':{'type':'refusal','explanation':'no\\n'}}}")
      STOP,
      ROLE SAYS("a") REFUSES("no\\n") FINISHED("content_filter") DONE },
    { "refusal, details kept", CONTENT, NGX_DONE,
      START EV("{'type':'message_delta','delta':{'stop_details':"
      "{'explanation':'one'}}}") EV("{'type':'message_delta','delta':"
      "{'stop_reason':'refusal','stop_details':{'explanation':'two'}}}")
      EV("{'type':'message_delta','delta':{'stop_details':null}}"),
      ROLE REFUSES("two") FINISHED("content_filter") DONE },
    { "refusal without details", CONTENT, NGX_DONE,
      START EV("{'type':'message_delta','delta':{'stop_reason':'refusal',"
      "'stop_details':{'explanation':null}}}") STOP,
      ROLE REFUSES("The model declined to respond.")
      FINISHED("content_filter") DONE },
    { "explanation without a refusal", CONTENT, NGX_DONE,
      START EV("{'type':'message_delta','delta':{'stop_reason':'end_turn',"
      "'stop_details':{'explanation':'x'}}}") STOP, ROLE STOPPED },
};

#define NCASES  (sizeof(cases) / sizeof(cases[0]))


static void
check(const char *name, answer_t *a, ngx_int_t rc, const char *out)
{
    if (a->rc != rc) {
        print_error("%s: %d instead of %d\n", name, (int) a->rc, (int) rc);
        fail();
    }

    assert_int_equal(a->out.failed, 0);
    unit_assert_str(a->text ? a->text : (u_char *) "", a->len, out);
}


static void
replay(const char *name, ngx_uint_t reasoning, ngx_uint_t include_usage,
    ngx_int_t rc, const char *in, const char *out)
{
    char        *stream, *expected;
    size_t       len, chunk;
    answer_t     a;
    ngx_pool_t  *pool;
    ngx_uint_t   i;

    stream = unit_quoted(in);
    expected = unit_quoted(out);
    len = ngx_strlen(stream);

    for (i = 0; (chunk = unit_chunk(i, len)) != 0; i++) {
        pool = unit_pool_create();

        answer_init(&a, pool, reasoning, include_usage, MAX);
        (void) answer_stream(&a, (u_char *) stream, len, chunk);

        check(name, &a, rc, expected);

        answer_free(&a);
        ngx_destroy_pool(pool);
    }

    unit_free(stream);
    unit_free(expected);
}


static void
streams(void **state)
{
    ngx_uint_t  i;

    for (i = 0; i < NCASES; i++) {
        replay(cases[i].name, cases[i].reasoning, 0, cases[i].rc, cases[i].in,
               cases[i].out);
    }
}


/* each stop reason, without and with a tool call */

static void
stop_reasons(void **state)
{
    char         in[2048], out[4096];
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
        { "'what'", "stop", "tool_calls" },
        { "'max_tokens'", "length", "length" },
        { "'model_context_window_exceeded'", "length", "length" },
        { "'tool_use'", "stop", "tool_calls" },
        { "'tool\\u005fuse'", "stop", "tool_calls" },
        { "'refusal'", "content_filter", "content_filter" },
        { "'sensitive'", "content_filter", "content_filter" },
    };

#define REASON_END  ",'logprobs':null,'finish_reason':"
#define REASON_FINISH                                                         \
    "data: {'id':'i','object':'chat.completion.chunk','created':1,'model':"   \
    "'m','choices':[{'index':0,'delta':{},'logprobs':null,"                   \
    "'finish_reason':'%s'}]}\n\n" DONE

    for (i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        const char  *refusal;

        refusal = ngx_strcmp(reasons[i].plain, "content_filter") == 0
                  ? REFUSES("The model declined to respond.") : "";

        snprintf(in, sizeof(in), START REASON("%s") STOP, reasons[i].reason);
        snprintf(out, sizeof(out), ROLE "%s" REASON_FINISH, refusal,
                 reasons[i].plain);
        replay(reasons[i].reason, CONTENT, 0, NGX_DONE, in, out);

        snprintf(in, sizeof(in), START BEGIN_TOOL("0", "t") ARGS("0", "{}")
                 REASON("%s") STOP, reasons[i].reason);
        snprintf(out, sizeof(out), ROLE CALL("0", "t") MORE("0", "{}") "%s"
                 REASON_FINISH, refusal, reasons[i].tools);
        replay(reasons[i].reason, CONTENT, 0, NGX_DONE, in, out);
    }
}


#define USAGE_HEAD                                                            \
    "data: {'id':'i','object':'chat.completion.chunk','created':1,'model':"   \
    "'m','choices':["
#define USAGE_CHUNK(delta, reason)                                            \
    USAGE_HEAD "{'index':0,'delta':" delta ",'logprobs':null,"                \
    "'finish_reason':" reason "}],'usage':null}\n\n"
#define USAGE_ALL(members)                                                    \
    USAGE_CHUNK("{'role':'assistant','content':''}", "null")                  \
    USAGE_CHUNK("{}", "'stop'") USAGE_HEAD "],'usage':{" members "}}\n\n" DONE
#define USAGE_DELTA(u)                                                        \
    EV("{'type':'message_delta','delta':{'stop_reason':'end_turn'},'usage':{" \
       u "}}")


/* on every chunk, last and whole; the merging itself: test_usage.c */

static void
usage(void **state)
{
    replay("usage", CONTENT, 1, NGX_DONE,
           MSG(",'usage':{'input_tokens':7,'output_tokens':1}")
           USAGE_DELTA("'input_tokens':5,'cache_read_input_tokens':30,"
                       "'cache_creation_input_tokens':200,'output_tokens':9")
           USAGE_DELTA("'output_tokens':4,'output_tokens_details':"
                       "{'thinking_tokens':3}") STOP,
           USAGE_ALL("'prompt_tokens':235,'completion_tokens':4,"
                     "'total_tokens':239,'prompt_tokens_details':"
                     "{'cached_tokens':30,'cache_write_tokens':200},"
                     "'completion_tokens_details':{'reasoning_tokens':3}"));

    replay("usage nulls", CONTENT, 1, NGX_DONE,
           MSG(",'usage':null")
           USAGE_DELTA("'input_tokens':null,'output_tokens':'7'") STOP,
           USAGE_ALL("'prompt_tokens':0,'completion_tokens':0,"
                     "'total_tokens':0,'prompt_tokens_details':"
                     "{'cached_tokens':0,'cache_write_tokens':0}"));

    replay("usage, cut", CONTENT, 1, NGX_DECLINED, START,
           USAGE_CHUNK("{'role':'assistant','content':''}", "null"));
}


/* the id, which each chunk carries */

static void
ids(void **state)
{
    char         in[2048], out[4096], id[400];
    ngx_uint_t   i;

    static const char  *messages[] = {
        "{}", "{'id':null}", "{'id':7}", "{'id':''}", "null", "[]", "{'id':{}}"
    };

#define ID_CHUNK(delta, reason)                                               \
    "data: {'id':'%s','object':'chat.completion.chunk','created':1,'model':"  \
    "'m','choices':[{'index':0,'delta':" delta ",'logprobs':null,"            \
    "'finish_reason':" reason "}]}\n\n"
#define ID_CHUNKS                                                             \
    ID_CHUNK("{'role':'assistant','content':''}", "null")                     \
    ID_CHUNK("{}", "'stop'") DONE

    for (i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
        snprintf(in, sizeof(in), EV("{'type':'message_start','message':%s}")
                 STOP, messages[i]);
        snprintf(out, sizeof(out), ID_CHUNKS, "msg_1", "msg_1");
        replay(messages[i], CONTENT, 0, NGX_DONE, in, out);
    }

    replay("no message", CONTENT, 0, NGX_DONE, EV("{'type':'message_start'}")
           STOP, out);

    for (i = NGX_MODELGW_COMPLETION_ID; i < NGX_MODELGW_COMPLETION_ID + 2;
         i++)
    {
        memset(id, 'x', i);
        id[i] = '\0';

        snprintf(in, sizeof(in), EV("{'type':'message_start','message':{'id':"
                 "'%s'}}") STOP, id);
        snprintf(out, sizeof(out), ID_CHUNKS,
                 i == NGX_MODELGW_COMPLETION_ID ? id : "msg_1",
                 i == NGX_MODELGW_COMPLETION_ID ? id : "msg_1");
        replay("long id", CONTENT, 0, NGX_DONE, in, out);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(streams),
        cmocka_unit_test(stop_reasons),
        cmocka_unit_test(usage),
        cmocka_unit_test(ids),
    };

    return cmocka_run_group_tests_name("chunk", tests, NULL, NULL);
}
