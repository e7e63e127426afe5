
/*
 * Answers of messages and chat upstreams as streams of the responses API, and
 * as whole responses: known bugs of other gateways; what is cut, interleaved,
 * refused.  Each stream is fed at all chunk sizes and must give the same bytes;
 * what clients need of any stream is checked by response_events.h.  Each
 * allocation fails once.
 */


#include "unit_answer.h"
#include "unit_memory.h"
#include "response_events.h"


#define ENC   0x01                       /* encrypted reasoning is included */
#define SHOW  0x02                       /* a summary was asked for */
#define JSON  0x04                       /* text.format asks for JSON */
#define CHAT  0x08                       /* of the upstream */

#define BEGIN_CALL(i, id, name)                                               \
    BEGIN(i, "{'type':'tool_use','id':'" id "','name':'" name "','input':{}}")

#define CHUNK(delta)  EV("{'id':'i','choices':[{'index':0,'delta':" delta "}]}")
#define SAY(t)        CHUNK("{'content':'" t "'}")
#define REASONING(t)  CHUNK("{'reasoning_content':'" t "'}")
#define CALLS(calls)  CHUNK("{'tool_calls':[" calls "]}")
#define FINISHED(r)                                                           \
    EV("{'choices':[{'index':0,'delta':{},'finish_reason':" r "}]}")
#define DONE          EV("[DONE]")


typedef struct {
    const char   *name;
    ngx_uint_t    flags;
    ngx_int_t     rc;
    const char   *in;
    const char   *words;                 /* after "created progress" */
} case_t;


static case_t  cases[] = {

    /* texts */

    { "empty", 0, NGX_DONE, START FINISH, "completed" },
    { "blocks are one message", 0, NGX_DONE,
      START BEGIN_TEXT("0") TEXT("0", "a") END("0") BEGIN_TEXT("1")
      TEXT("1", "b") END("1") FINISH, "+message ( ~a ~b ) -completed completed"
    },
    { "start with text", 0, NGX_DONE,
      START BEGIN("0", "{'type':'text','text':'a'}") TEXT("0", "b") END("0")
      FINISH, "+message ( ~a ~b ) -completed completed" },
    { "blocks without text", 0, NGX_DONE,
      START BEGIN_TEXT("0") END("0") BEGIN_TEXT("1") TEXT("1", "") END("1")
      BEGIN("2", "{'type':'text'}") FINISH, "completed" },
    { "text without a block", 0, NGX_DONE, START TEXT("0", "a") TEXT("7", "b")
      FINISH, "+message ( ~a ~b ) -completed completed" },
    { "text after its stop", 0, NGX_DONE,
      START BEGIN_TEXT("0") END("0") TEXT("0", "a") BEGIN_CALL("0", "t", "f")
      END("0") FINISH, "+message ( ~a ) -completed +function_call:f:t ~{} =f "
      "-completed completed" },
    { "unknown blocks, deltas, events", 0, NGX_DONE,
      EV("{'type':'what'}") START BEGIN("0", "{'type':'server_tool_use','id':"
      "'s','name':'web_search','input':{}}") ARGS("0", "{}") END("0")
      BEGIN("1", "{'type':'what'}") TEXT("1", "x") END("1") BEGIN_TEXT("2")
      DELTA("2", "{'type':'citations_delta'}") TEXT("2", "a")
      EV("{'type':'what'}") FINISH,
      "+message ( ~a ) -completed completed" },
    { "deltas for other kinds", 0, NGX_DONE,
      START BEGIN_THINK("0") BEGIN_CALL("1", "t", "f") TEXT("0", "x")
      ARGS("0", "x") TEXT("1", "x") THINK("1", "x") ARGS("2", "x") END("0")
      END("1") FINISH,
      "+reasoning - +function_call:f:t ~{} =f -completed completed" },
    { "pings", 0, NGX_DONE, PING START PING FINISH,
      "keepalive completed" },
    { "message_start twice", 0, NGX_DONE, START START FINISH, "completed" },
    { "limit", 0, NGX_DONE,
      START BEGIN_TEXT("0") TEXT("0", "a") END("0") REASON("'max_tokens'") STOP,
      "+message ( ~a ) -incomplete incomplete:max_output_tokens" },
    { "context", 0, NGX_DONE,
      START TEXT("0", "a") REASON("'model_context_window_exceeded'") STOP,
      "+message ( ~a ) -incomplete incomplete:max_output_tokens" },
    { "a reason without message_stop", 0, NGX_DONE,
      START TEXT("0", "a") REASON("'end_turn'"),
      "+message ( ~a ) -completed completed" },

    /* reasoning */

    { "not shown, not sealed", 0, NGX_DONE,
      START BEGIN_THINK("0") THINK("0", "a") SIGN("0", "s") END("0") FINISH,
      "+reasoning - completed" },
    { "shown", SHOW, NGX_DONE,
      START BEGIN("0", "{'type':'thinking','thinking':'a','signature':'s'}")
      THINK("0", "b") END("0") BEGIN_THINK("1") END("1") BEGIN_THINK("2")
      THINK("2", "c") SIGN("2", "s") END("2") TEXT("3", "d") FINISH,
      "+reasoning ( ~a ~b ) ( ~c ) - +message ( ~d ) -completed completed" },
    { "reasoning again", SHOW, NGX_DONE,
      START BEGIN_THINK("0") THINK("0", "a") END("0") BEGIN_TEXT("1")
      TEXT("1", "b") END("1") BEGIN_THINK("2") THINK("2", "c") END("2") FINISH,
      "+reasoning ( ~a ) - +message ( ~b ) -completed +reasoning ( ~c ) - "
      "completed" },
    { "an empty text does not part reasoning", SHOW, NGX_DONE,
      START BEGIN_THINK("0") THINK("0", "a") END("0") BEGIN_TEXT("1") END("1")
      BEGIN_THINK("2") THINK("2", "c") END("2") FINISH,
      "+reasoning ( ~a ) ( ~c ) - completed" },

    /* calls */

    { "names", 0, NGX_DONE,
      START BEGIN_CALL("0", "t1", "n__add") ARGS("0", "{}") END("0")
      BEGIN_CALL("1", "t2", "add") END("1") BEGIN_CALL("2", "t3", "n_add")
      END("2") FINISH,
      "+function_call:n/add:t1 ~{} =add -completed "
      "+function_call:add:t2 ~{} =add -completed "
      "+function_call:n_add:t3 ~{} =n_add -completed completed" },
    { "ids", 0, NGX_DONE,
      START BEGIN_CALL("0", "a:b/\\u00e9-_", "f") END("0")
      BEGIN_CALL("1", "", "f") END("1") FINISH,
      "+function_call:f:a:b/\\u00e9-_ ~{} =f -completed "
      "+function_call:f:call_fc_i_1 ~{} =f -completed completed" },
    { "input of the start", 0, NGX_DONE,
      START BEGIN("0", "{'type':'tool_use','id':'t','name':'f','input':"
      "{'a':'b\\n'}}") END("0") FINISH,
      "+function_call:f:t ~{\\'a\\':\\'b\\\\n\\'} =f -completed completed" },
    { "input of the start, and deltas", 0, NGX_DONE,
      START BEGIN("0", "{'type':'tool_use','id':'t','name':'f','input':"
      "{'a':1}}") ARGS("0", "{}") END("0") FINISH,
      "+function_call:f:t ~{} =f -completed completed" },
    { "input of the start, no stop", 0, NGX_DONE,
      START BEGIN("0", "{'type':'tool_use','id':'t','name':'f','input':"
      "{'a':1}}") FINISH,
      "+function_call:f:t ~{\\'a\\':1} =f -completed completed" },
    { "no stop", 0, NGX_DONE, START BEGIN_CALL("0", "t", "f") ARGS("0", "{}")
      FINISH, "+function_call:f:t ~{} =f -completed completed" },
    { "broken arguments, a block follows", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") ARGS("0", "{") END("0")
      BEGIN_CALL("1", "u", "f") ARGS("1", "x") END("1") FINISH,
      "+function_call:f:t ~{ =f -completed +function_call:f:u ~x =f -completed "
      "completed" },
    { "broken arguments, cut", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") ARGS("0", "{") END("0")
      REASON("'max_tokens'") STOP,
      "+function_call:f:t ~{ incomplete:max_output_tokens" },
    { "an open call is cut, a text waits", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") ARGS("0", "{") BEGIN_TEXT("1")
      TEXT("1", "a") END("1") BEGIN_CALL("2", "u", "f")
      REASON("'max_tokens'") STOP,
      "+function_call:f:t ~{ +message ( ~a ) -incomplete "
      "incomplete:max_output_tokens" },
    { "an open call is cut, thinking and a whole one wait", SHOW, NGX_DONE,
      START TEXT("7", "b") BEGIN_CALL("0", "t", "f") ARGS("0", "{")
      BEGIN_THINK("1") THINK("1", "a") END("1") BEGIN_CALL("2", "u", "f")
      ARGS("2", "{}") END("2") REASON("'max_tokens'") STOP,
      "+message ( ~b ) -completed +function_call:f:t ~{ +reasoning ( ~a ) - "
      "+function_call:f:u ~{} =f -completed incomplete:max_output_tokens" },
    { "an open call is cut, a whole one waits", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") ARGS("0", "{") BEGIN_CALL("1", "u", "f")
      ARGS("1", "{}") END("1") REASON("'refusal'") STOP,
      "+function_call:f:t ~{ +function_call:f:u ~{} =f -completed "
      "+message ( ~The model declined to respond. ) -completed completed" },
    { "no arguments, cut", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") ARGS("0", "") END("0") PING
      REASON("'max_tokens'") STOP,
      "+function_call:f:t keepalive incomplete:max_output_tokens" },
    { "no arguments, no input, cut", 0, NGX_DONE,
      START BEGIN("0", "{'type':'tool_use','id':'t','name':'f'}") END("0")
      ARGS("0", "{}") END("0") REASON("'model_context_window_exceeded'"),
      "+function_call:f:t incomplete:max_output_tokens" },
    { "no arguments, custom, cut", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "patch") END("0") REASON("'max_tokens'") STOP,
      "+custom_tool_call:patch:t incomplete:max_output_tokens" },
    { "no arguments, search, cut", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "search") END("0") REASON("'max_tokens'") STOP,
      "+tool_search_call::t incomplete:max_output_tokens" },
    { "no arguments, a call follows, cut", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") END("0") BEGIN_CALL("1", "u", "patch")
      END("1") REASON("'max_tokens'") STOP,
      "+function_call:f:t ~{} =f -completed +custom_tool_call:patch:u "
      "incomplete:max_output_tokens" },
    { "no arguments, its index again, cut", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") END("0") BEGIN_CALL("0", "u", "f")
      END("0") REASON("'max_tokens'") STOP,
      "+function_call:f:t ~{} =f -completed +function_call:f:u "
      "incomplete:max_output_tokens" },
    { "no arguments, an empty text follows, cut", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") END("0") BEGIN_TEXT("1") END("1")
      REASON("'max_tokens'") STOP,
      "+function_call:f:t ~{} =f -completed incomplete:max_output_tokens" },
    { "no arguments, an unknown block follows, cut", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") END("0") BEGIN("1", "{'type':'what'}")
      REASON("'max_tokens'") STOP,
      "+function_call:f:t ~{} =f -completed incomplete:max_output_tokens" },
    { "no arguments, a text without a block follows, cut", 0, NGX_DONE,
      START TEXT("7", "a") BEGIN_CALL("0", "t", "f") END("0") TEXT("7", "b")
      TEXT("7", "c") REASON("'max_tokens'") STOP,
      "+message ( ~a ) -completed +function_call:f:t ~{} =f -completed "
      "+message ( ~b ~c ) -incomplete incomplete:max_output_tokens" },
    { "no arguments, an empty delta of a text before, cut", 0, NGX_DONE,
      START BEGIN_TEXT("0") END("0") BEGIN_CALL("1", "t", "f") END("1")
      TEXT("0", "") TEXT("7", "") REASON("'max_tokens'") STOP,
      "+function_call:f:t incomplete:max_output_tokens" },
    { "no arguments, blocks begin before its stop, cut", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") BEGIN_TEXT("1") END("0") END("1")
      BEGIN_CALL("2", "u", "f") TEXT("7", "a") END("2") REASON("'max_tokens'")
      STOP,
      "+function_call:f:t ~{} =f -completed +function_call:f:u ~{} =f "
      "-completed +message ( ~a ) -incomplete incomplete:max_output_tokens" },
    { "no arguments, it waits for a text, cut", 0, NGX_DONE,
      START BEGIN_TEXT("0") TEXT("0", "a") BEGIN_CALL("1", "t", "f") END("1")
      TEXT("0", "b") END("0") REASON("'max_tokens'") STOP,
      "+message ( ~a ~b ) -completed +function_call:f:t "
      "incomplete:max_output_tokens" },
    { "no arguments, it waits for an open text, cut", 0, NGX_DONE,
      START BEGIN_TEXT("0") TEXT("0", "a") BEGIN_CALL("1", "t", "f") END("1")
      REASON("'max_tokens'") STOP,
      "+message ( ~a ) -incomplete incomplete:max_output_tokens" },
    { "no arguments, refused", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") END("0") REASON("'refusal'") STOP,
      "+function_call:f:t ~{} =f -completed "
      "+message ( ~The model declined to respond. ) -completed completed" },
    { "no arguments, a reason that is unknown", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") END("0") REASON("'what'"),
      "+function_call:f:t ~{} =f -completed completed" },
    { "no arguments, no reason", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") END("0") STOP,
      "+function_call:f:t ~{} =f -completed completed" },
    { "no arguments, cut off", 0, NGX_DECLINED,
      START BEGIN_CALL("0", "t", "f") END("0"), "+function_call:f:t" },
    { "broken arguments, an empty text, cut", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") ARGS("0", "{") END("0") BEGIN_TEXT("1")
      END("1") REASON("'max_tokens'") STOP,
      "+function_call:f:t ~{ incomplete:max_output_tokens" },
    { "broken arguments, refused", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") ARGS("0", "{") END("0")
      REASON("'refusal'") STOP,
      "+function_call:f:t ~{ +message ( ~The model declined to respond. ) "
      "-completed completed" },
    { "cut without a stop", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") ARGS("0", "{}") REASON("'max_tokens'")
      STOP, "+function_call:f:t ~{} incomplete:max_output_tokens" },
    { "a whole call, then cut", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") ARGS("0", "{}") END("0")
      REASON("'max_tokens'") STOP,
      "+function_call:f:t ~{} =f -completed incomplete:max_output_tokens" },
    { "custom", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "patch") ARGS("0", "{\\'inp")
      ARGS("0", "ut\\':\\'a\\\\n\\\\\\'b\\'}") END("0") FINISH,
      "+custom_tool_call:patch:t ~a\\n\\'b -completed completed" },
    { "custom, an empty input", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "patch") ARGS("0", "{\\'input\\':\\'\\'}")
      END("0") FINISH, "+custom_tool_call:patch:t -completed completed" },
    { "custom, other members", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "patch") ARGS("0", "{\\'x\\':{\\'input\\':"
      "\\'n\\'},\\'i\\\\u006eput\\':\\'a\\'}") END("0") FINISH,
      "+custom_tool_call:patch:t ~a -completed completed" },
    { "custom, no string", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "patch") ARGS("0", "{\\'input\\':7}") END("0")
      FINISH, "+custom_tool_call:patch:t ~{\\'input\\':7} -completed completed"
    },
    { "custom, nothing", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "patch") END("0") FINISH,
      "+custom_tool_call:patch:t ~{} -completed completed" },
    { "custom, broken", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "patch") ARGS("0", "{\\'input\\':") END("0")
      FINISH, "+custom_tool_call:patch:t ~{\\'input\\': -completed completed" },
    { "custom, cut", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "patch") ARGS("0", "{\\'input\\':\\'r")
      END("0") REASON("'max_tokens'") STOP,
      "+custom_tool_call:patch:t incomplete:max_output_tokens" },
    { "search", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "search") ARGS("0", "{\\n\\'q\\':\\'a\\'\\r}")
      END("0") BEGIN_CALL("1", "u", "search") ARGS("1", "{ }") END("1")
      BEGIN_CALL("2", "v", "search") ARGS("2", "{") END("2") FINISH,
      "+tool_search_call::t -completed +tool_search_call::u -completed "
      "+tool_search_call::v -completed completed" },

    /* several blocks at a time */

    { "interleaved", SHOW, NGX_DONE,
      START BEGIN_TEXT("0") BEGIN_CALL("1", "t", "f") TEXT("0", "a")
      ARGS("1", "{") BEGIN_THINK("2") THINK("2", "c") TEXT("0", "b")
      ARGS("1", "}") END("1") BEGIN_TEXT("3") TEXT("3", "d") END("0")
      THINK("2", "e") END("2") TEXT("3", "f") FINISH,
      "+message ( ~a ~b ) -completed +function_call:f:t ~{} =f -completed "
      "+reasoning ( ~c ~e ) - +message ( ~d ~f ) -completed completed" },
    { "interleaved, cut", 0, NGX_DONE,
      START BEGIN_TEXT("0") TEXT("0", "a") BEGIN_CALL("1", "t", "f")
      ARGS("1", "{") BEGIN_CALL("2", "u", "f") ARGS("2", "{}") END("2")
      REASON("'max_tokens'") STOP,
      "+message ( ~a ) -completed +function_call:f:u ~{} =f -completed "
      "incomplete:max_output_tokens" },
    { "an index again", 0, NGX_DONE,
      START BEGIN_CALL("0", "t", "f") ARGS("0", "{}") BEGIN_CALL("0", "u", "f")
      ARGS("0", "{}") FINISH,
      "+function_call:f:t ~{} =f -completed +function_call:f:u ~{} =f "
      "-completed completed" },

    { "an index again, input of the start", 0, NGX_DONE,
      START BEGIN("0", "{'type':'tool_use','id':'t','name':'f','input':"
      "{'a':1}}") BEGIN_CALL("0", "u", "f") FINISH,
      "+function_call:f:t ~{\\'a\\':1} =f -completed +function_call:f:u ~{} =f "
      "-completed completed" },

    /* refusals */

    { "refusal", 0, NGX_DONE, START TEXT("0", "a") REASON("'refusal'") STOP,
      "+message ( ~a ) -completed +message ( ~The model declined to respond. ) "
      "-completed completed" },
    { "refusal, explained", JSON, NGX_DONE,
      START EV("{'type':'message_delta','delta':{'stop_reason':'refusal',"
      "'stop_details':{'explanation':'No\\n.'}}}") STOP,
      "+message ( ~No\\n. ) -completed completed" },

    /* refused */

    { "an error", 0, NGX_ABORT, START TEXT("0", "a")
      EV("{'type':'error','error':{}}"), "+message ( ~a" },
    { "cut off", 0, NGX_DECLINED, START TEXT("0", "a"), "+message ( ~a" },
    { "no index", 0, NGX_DECLINED,
      START EV("{'type':'content_block_start','content_block':{}}"), "" },
    { "a call without a name", 0, NGX_DECLINED,
      START BEGIN("0", "{'type':'tool_use','id':'t'}"), "" },
    { "no JSON", 0, NGX_DECLINED, START EV("{"), "" },

    /* chat */

    { "chat", CHAT, NGX_DONE,
      CHUNK("{'role':'assistant','content':''}") SAY("a") SAY("b")
      FINISHED("'stop'") EV("{'choices':[],'usage':{}}") DONE,
      "+message ( ~a ~b ) -completed completed" },
    { "chat, nulls", CHAT|SHOW, NGX_DONE,
      CHUNK("{'role':null,'content':null,'refusal':null,'tool_calls':null,"
      "'reasoning':null}") CHUNK("{}") CHUNK("null") EV("{'choices':null}")
      EV("{'choices':[null]}") EV("{'error':null}") SAY("a")
      FINISHED("null") FINISHED("''") FINISHED("'what'"),
      "+message ( ~a ) -completed completed" },
    { "chat, reasoning", CHAT|SHOW, NGX_DONE,
      REASONING("a") CHUNK("{'reasoning':'b'}")
      CHUNK("{'reasoning_content':'c','reasoning':'c','content':'d'}")
      SAY("e") FINISHED("'stop'") DONE,
      "+reasoning ( ~a ~b ~c ) - +message ( ~d ~e ) -completed completed" },
    { "chat, reasoning not shown", CHAT|ENC, NGX_DONE,
      REASONING("a") SAY("b") FINISHED("'stop'") DONE,
      "+message ( ~b ) -completed completed" },
    { "chat, limit", CHAT, NGX_DONE, SAY("a") FINISHED("'length'") DONE,
      "+message ( ~a ) -incomplete incomplete:max_output_tokens" },
    { "chat, filter", CHAT, NGX_DONE, SAY("a") FINISHED("'content_filter'")
      DONE, "+message ( ~a ) -incomplete incomplete:content_filter" },
    { "chat, refusal", CHAT|JSON, NGX_DONE,
      SAY("a") CHUNK("{'refusal':'b'}") CHUNK("{'refusal':'c'}")
      FINISHED("'stop'") DONE,
      "+message ( ~a ) -completed +message ( ~b ~c ) -completed completed" },
    { "chat, calls", CHAT, NGX_DONE,
      SAY("a") CALLS("{'index':0,'id':'t','type':'function','function':{'name':"
      "'n__add','arguments':''}}") CALLS("{'index':0,'function':{'arguments':"
      "'{'}}") CALLS("{'index':0,'function':{'arguments':'}'}}")
      CALLS("{'index':1,'id':'u','function':{'name':'patch','arguments':"
      "'{\\'input\\':\\'x\\'}'}}") FINISHED("'tool_calls'") DONE,
      "+message ( ~a ) -completed +function_call:n/add:t ~{ ~} =add -completed "
      "+custom_tool_call:patch:u ~x -completed completed" },
    { "chat, a call after reasoning", CHAT|SHOW, NGX_DONE,
      REASONING("a") CALLS("{'index':0,'id':'t','function':{'name':'f',"
      "'arguments':'{}'}}") FINISHED("'tool_calls'") DONE,
      "+reasoning ( ~a ) - +function_call:f:t ~{} =f -completed completed" },
    { "chat, calls in one chunk", CHAT, NGX_DONE,
      CALLS("{'index':0,'id':'t','function':{'name':'f','arguments':'{}'}},"
      "{'index':1,'id':'u','function':{'name':'f','arguments':'{}'}}")
      FINISHED("'tool_calls'") DONE,
      "+function_call:f:t ~{} =f -completed +function_call:f:u ~{} =f "
      "-completed completed" },
    { "chat, interleaved calls", CHAT, NGX_DONE,
      CALLS("{'index':0,'id':'t','function':{'name':'f','arguments':'{'}}")
      CALLS("{'index':1,'id':'u','function':{'name':'f','arguments':'{'}}")
      SAY("a") CALLS("{'index':0,'function':{'arguments':'}'}}")
      CALLS("{'index':1,'function':{'arguments':'}'}}") SAY("b")
      FINISHED("'tool_calls'") DONE,
      "+function_call:f:t ~{ ~} =f -completed +function_call:f:u ~{} =f "
      "-completed +message ( ~ab ) -completed completed" },
    { "chat, ids instead of indices", CHAT, NGX_DONE,
      CALLS("{'id':'t','function':{'name':'f','arguments':'{}'}}")
      CALLS("{'id':'u','function':{'name':'f','arguments':'{}'}}")
      CALLS("{'index':0,'id':'v','function':{'name':'f','arguments':'{}'}}")
      FINISHED("'tool_calls'") DONE,
      "+function_call:f:t ~{} =f -completed +function_call:f:u ~{} =f "
      "-completed +function_call:f:v ~{} =f -completed completed" },
    { "chat, neither ids nor indices", CHAT, NGX_DONE,
      CALLS("{'function':{'name':'f','arguments':'{}'}}")
      CALLS("{'function':{'name':'f','arguments':'{}'}}") FINISHED("'stop'")
      DONE, "+function_call:f:call_fc_i_0 ~{} =f -completed "
      "+function_call:f:call_fc_i_1 ~{} =f -completed completed" },
    { "chat, id and name in each delta", CHAT, NGX_DONE,
      CALLS("{'index':0,'id':'t','function':{'name':'f','arguments':'{'}}")
      CALLS("{'index':0,'id':'t','function':{'name':'f','arguments':'}'}}")
      CALLS("{'index':1,'function':{'name':'f','arguments':'{'}}")
      CALLS("{'index':1,'function':{'name':'f','arguments':'}'}}")
      FINISHED("'tool_calls'") DONE,
      "+function_call:f:t ~{ ~} =f -completed +function_call:f:call_fc_i_1 ~{ "
      "~} =f -completed completed" },
    { "chat, arguments as an object", CHAT, NGX_DONE,
      CALLS("{'index':0,'id':'t','function':{'name':'f','arguments':{'a':1}}}")
      FINISHED("'stop'") DONE,
      "+function_call:f:t ~{\\'a\\':1} =f -completed completed" },
    { "chat, content in parts", CHAT, NGX_DONE,
      CHUNK("{'content':[{'type':'text','text':'a'},{'type':'x'},7,'b',"
            "{'type':'text','text':'c'}]}")
      SAY("d") FINISHED("'stop'") DONE,
      "+message ( ~a ~c ~d ) -completed completed" },
    { "chat, a call that is cut", CHAT, NGX_DONE,
      CALLS("{'index':0,'id':'t','function':{'name':'f','arguments':'{}'}}")
      CALLS("{'index':1,'id':'u','function':{'name':'f','arguments':'{}'}}")
      FINISHED("'length'") DONE,
      "+function_call:f:t ~{} =f -completed +function_call:f:u ~{} "
      "incomplete:max_output_tokens" },
    { "chat, a filter", CHAT, NGX_DONE,
      CALLS("{'index':0,'id':'t','function':{'name':'f','arguments':'{}'}}")
      FINISHED("'content_filter'") DONE,
      "+function_call:f:t ~{} =f -completed incomplete:content_filter" },
    { "chat, a call that a filter has cut", CHAT, NGX_DONE,
      CALLS("{'index':0,'id':'t','function':{'name':'f','arguments':'{'}}")
      FINISHED("'content_filter'") DONE,
      "+function_call:f:t ~{ incomplete:content_filter" },
    { "chat, a call that is cut, a text waits", CHAT, NGX_DONE,
      CALLS("{'index':0,'id':'t','function':{'name':'f','arguments':'{'}}")
      SAY("a") FINISHED("'length'") DONE,
      "+function_call:f:t ~{ +message ( ~a ) -incomplete "
      "incomplete:max_output_tokens" },
    { "chat, no arguments", CHAT, NGX_DONE,
      CALLS("{'index':0,'id':'t','function':{'name':'f'}}")
      CALLS("{'index':1,'id':'u','function':{'name':'f','arguments':''}}")
      FINISHED("'stop'") DONE,
      "+function_call:f:t ~{} =f -completed +function_call:f:u ~{} =f "
      "-completed completed" },
    { "chat, no arguments, cut", CHAT, NGX_DONE,
      CALLS("{'index':0,'id':'t','function':{'name':'f','arguments':''}}")
      FINISHED("'length'") DONE,
      "+function_call:f:t incomplete:max_output_tokens" },
    { "chat, a name that comes later", CHAT, NGX_DONE,
      CALLS("{'index':0,'id':'t','function':{'arguments':''}}")
      CALLS("{'index':0,'id':'t','function':{'name':'f','arguments':'{}'}}")
      FINISHED("'stop'") DONE,
      "+function_call:f:t ~{} =f -completed completed" },
    { "chat, a call without a name", CHAT, NGX_DECLINED,
      CHUNK("{}") CALLS("{'index':0,'id':'t','function':{'arguments':'{'}}"),
      "" },
    { "chat, an error", CHAT, NGX_ABORT, SAY("a")
      EV("{'error':{'message':'m'}}"), "+message ( ~a" },
    { "chat, an error as a text", CHAT, NGX_ABORT, SAY("a")
      EV("{'error':'m'}"), "+message ( ~a" },
    { "chat, no reason", CHAT, NGX_DECLINED, SAY("a") DONE, "+message ( ~a" },
};

#define NCASES  (sizeof(cases) / sizeof(cases[0]))


static void
init(answer_t *a, ngx_pool_t *pool, ngx_uint_t flags, size_t max)
{
    answer_init(a, pool, CONTENT, 0, MAX);

    if (a->rc != NGX_OK) {
        return;
    }

    answer_responses(a, (flags & CHAT) ? NGX_MODELGW_CHAT
                                       : NGX_MODELGW_MESSAGES, max);

    if (a->rc != NGX_OK) {
        return;
    }

    a->call.encrypted = (flags & ENC) != 0;
    a->call.show = (flags & SHOW) != 0;
    a->call.json = (flags & JSON) != 0;

    answer_tool(a, NGX_MODELGW_RESPONSES_FUNCTION, "add", "", "add");
    answer_tool(a, NGX_MODELGW_RESPONSES_FUNCTION, "n__add", "n", "add");
    answer_tool(a, NGX_MODELGW_RESPONSES_CUSTOM, "patch", "", "patch");
    answer_tool(a, NGX_MODELGW_RESPONSES_SEARCH, "search", "", "tool_search");
}


static void
expect_words(answer_t *a, const char *name, const char *words)
{
    char               *want;
    size_t              n;
    const char         *got;
    response_events_t   v;

    n = ngx_strlen("created progress ");

    response_events(&v, a->pool, a->skip, a->text, a->len);

    want = unit_quoted(words);
    got = v.words.len > n ? (char *) v.words.data + n : "";

    if (ngx_strcmp(got, want) != 0) {
        fail_msg("%s:\n  got  %s\n  want %s", name, got, want);
    }

    unit_free((u_char *) want);
    response_events_free(&v);
}


static void
streams(void **state)
{
    char        *in;
    size_t       chunk, len;
    u_char      *first;
    answer_t     a;
    ngx_int_t    rc;
    ngx_uint_t   i, n;
    ngx_pool_t  *pool;

    for (i = 0; i < NCASES; i++) {
        in = unit_quoted(cases[i].in);
        len = 0;
        first = NULL;

        for (n = 0; (chunk = unit_chunk(n, ngx_strlen(in))) != 0; n++) {
            pool = unit_pool_create();
            init(&a, pool, cases[i].flags, MAX);

            rc = answer_stream(&a, (u_char *) in, ngx_strlen(in), chunk);

            if (rc != cases[i].rc || a.out.failed) {
                fail_msg("%s: %ld", cases[i].name, (long) rc);
            }

            if (first == NULL) {
                expect_words(&a, cases[i].name, cases[i].words);
                first = unit_dup(a.text, a.len);
                len = a.len;
            }

            assert_int_equal(a.len, len);
            assert_memory_equal(a.text, first, len);

            answer_free(&a);
            ngx_destroy_pool(pool);
        }

        unit_free(first);
        unit_free((u_char *) in);
    }
}


/* whole answers */

static struct {
    const char   *name;
    ngx_uint_t    flags;
    const char   *in;
    const char   *out;                   /* in the response; NULL: declined */
} answers[] = {

    { "ids and defaults", 0, "{'id':'msg_1','content':[]}",
      "{'id':'resp_1','object':'response','created_at':1,'status':'completed',"
      "'completed_at':2,'error':null,'incomplete_details':null,"
      "'instructions':null,'max_output_tokens':null,'metadata':{},'model':'m',"
      "'output':[],'parallel_tool_calls':true,'previous_response_id':null,"
      "'reasoning':{'effort':null,'summary':null},'store':false,"
      "'temperature':1.0,'text':{'format':{'type':'text'}},"
      "'tool_choice':'auto','tools':[],'top_p':1.0,'truncation':'disabled',"
      "'usage':{'input_tokens':0,'input_tokens_details':{'cached_tokens':0,"
      "'cache_write_tokens':0},'output_tokens':0,'output_tokens_details':"
      "{'reasoning_tokens':0},'total_tokens':0}}" },
    { "no id", 0, "{'content':[]}", "{'id':'resp_1'," },
    { "message", 0, "{'id':'i','content':[{'type':'text','text':'a\\n'},"
      "{'type':'x'},{'type':'text','text':'b'}]}",
      "'output':[{'type':'message','id':'msg_i_0','role':'assistant',"
      "'content':[{'type':'output_text','annotations':[],'logprobs':[],"
      "'text':'a\\nb'}],'status':'completed'}]," },
    { "refusal", JSON, "{'id':'i','content':[],'stop_reason':'refusal'}",
      "'content':[{'type':'refusal','refusal':'The model declined to respond.'}"
      "]" },
    { "reasoning", ENC|SHOW, "{'id':'i','content':[{'type':'thinking',"
      "'thinking':'a','signature':'s'},{'type':'thinking','thinking':'b'},"
      "{'type':'redacted_thinking','data':'d'},{'type':'redacted_thinking'}]}",
      "'output':[{'type':'reasoning','id':'rs_i_0','summary':[{'type':"
      "'summary_text','text':'a'},{'type':'summary_text','text':'b'}],"
      "'encrypted_content':'mgw1."
      "W3sidHlwZSI6InRoaW5raW5nIiwidGhpbmtpbmciOiJhIiwic2lnbmF0dXJlIjoicyJ9LHsi"
      "dHlwZSI6InJlZGFjdGVkX3RoaW5raW5nIiwiZGF0YSI6ImQifV0'}]," },
    { "nothing to seal", ENC, "{'id':'i','content':[{'type':'thinking',"
      "'thinking':'a','signature':''}]}",
      "'output':[{'type':'reasoning','id':'rs_i_0','summary':[]}]," },
    { "input", 0, "{'id':'i','content':[{'type':'tool_use','id':'t','name':"
      "'n__add','input':{ 'a' : 'b\\'\\u00e9' }}]}",
      "'output':[{'type':'function_call','id':'fc_i_0','call_id':'t','name':"
      "'add','namespace':'n','arguments':'{ \\'a\\' : \\'b\\\\\\'\\\\u00e9\\' }'"
      ",'status':'completed'}]," },
    { "custom", 0, "{'id':'i','content':[{'type':'tool_use','id':'t','name':"
      "'patch','input':{'x':1,'input':'b\\'\\u00e9\\ud83d'}}]}",
      "'output':[{'type':'custom_tool_call','id':'ctc_i_0','call_id':'t','name'"
      ":'patch','input':'b\\'\\u00e9\\ud83d','status':'completed'}]," },
    { "search", 0, "{'id':'i','content':[{'type':'tool_use','id':'t','name':"
      "'search','input':{'q':\n'a'}}]}",
      "'output':[{'type':'tool_search_call','id':'tsc_i_0','execution':"
      "'client','call_id':'t','arguments':{'q': 'a'},'status':'completed'}],"
    },
    { "search, no object", 0, "{'id':'i','content':[{'type':'tool_use','id':"
      "'t','name':'search','input':[7]}]}",
      "'call_id':'t','arguments':'[7]','status':'completed'}]," },
    { "cut", 0, "{'id':'i','stop_reason':'max_tokens','content':[{'type':"
      "'tool_use','id':'t','name':'f','input':{'a':1}},{'type':'tool_use','id':"
      "'u','name':'f','input':{'a':1}}]}",
      "'output':[{'type':'function_call','id':'fc_i_0','call_id':'t','name':'f'"
      ",'arguments':'{\\'a\\':1}','status':'completed'}]," },
    { "cut, no input", 0, "{'id':'i','stop_reason':'max_tokens','content':["
      "{'type':'tool_use','id':'t','name':'f','input':{}},{'type':'tool_use',"
      "'id':'u','name':'patch','input':{}}]}",
      "'output':[{'type':'function_call','id':'fc_i_0','call_id':'t','name':'f'"
      ",'arguments':'{}','status':'completed'}]," },
    { "cut, no input, an empty text follows", 0, "{'id':'i','stop_reason':"
      "'max_tokens','content':[{'type':'tool_use','id':'t','name':'f','input':"
      "{}},{'type':'text','text':''}]}",
      "'output':[{'type':'function_call','id':'fc_i_0','call_id':'t','name':'f'"
      ",'arguments':'{}','status':'completed'}]," },
    { "refused after a call", 0, "{'id':'i','stop_reason':'refusal','content':"
      "[{'type':'tool_use','id':'t','name':'f','input':{'a':1}}]}",
      "'output':[{'type':'function_call','id':'fc_i_0','call_id':'t','name':'f'"
      ",'arguments':'{\\'a\\':1}','status':'completed'},{'type':'message',"
      "'id':'msg_i_1'," },
    { "no content", 0, "{'id':'i'}", NULL },
    { "no message", 0, "{'type':'error','content':[]}", NULL },
    { "a call without an id", 0,
      "{'content':[{'type':'tool_use','name':'f'}]}", NULL },

    { "chat", CHAT, "{'id':'chatcmpl-1','choices':[{'message':{'content':'a'},"
      "'finish_reason':'stop'}],'usage':{'prompt_tokens':9,'completion_tokens':"
      "2,'prompt_tokens_details':{'cached_tokens':4}}}", "{'id':'resp_1'," },
    { "chat, usage", CHAT, "{'choices':[{'message':{'content':'a'},"
      "'finish_reason':'stop'}],'usage':{'prompt_tokens':9,'completion_tokens':"
      "2,'prompt_tokens_details':{'cached_tokens':4}}}",
      "'usage':{'input_tokens':9,'input_tokens_details':{'cached_tokens':4,"
      "'cache_write_tokens':0},'output_tokens':2,'output_tokens_details':"
      "{'reasoning_tokens':0},'total_tokens':11}" },
    { "chat, all", CHAT|SHOW, "{'id':'i','choices':[{'message':{'tool_calls':[{"
      "'id':'t','function':{'name':'f','arguments':'{'}},{'id':'u','function':{"
      "'name':'f','arguments':'{}'}}],'content':'b','reasoning':'a'}}]}",
      "'output':[{'type':'reasoning','id':'rs_i_0','summary':[{'type':"
      "'summary_text','text':'a'}]},{'type':'message','id':'msg_i_1','role':"
      "'assistant','content':[{'type':'output_text','annotations':[],'logprobs'"
      ":[],'text':'b'}],'status':'completed'},{'type':'function_call','id':"
      "'fc_i_2','call_id':'t','name':'f','arguments':'{','status':'completed'},"
      "{'type':'function_call','id':'fc_i_3','call_id':'u','name':'f',"
      "'arguments':'{}','status':'completed'}]," },
    { "chat, cut", CHAT, "{'id':'i','choices':[{'message':{'tool_calls':[{'id':"
      "'t','function':{'name':'f','arguments':'{}'}},{'id':'u','function':{"
      "'name':'f','arguments':'{}'}}]},'finish_reason':'length'}]}",
      "'output':[{'type':'function_call','id':'fc_i_0','call_id':'t','name':'f'"
      ",'arguments':'{}','status':'completed'}]," },
    { "chat, cut, no arguments", CHAT, "{'id':'i','choices':[{'message':{"
      "'tool_calls':[{'id':'t','function':{'name':'f','arguments':''}}]},"
      "'finish_reason':'length'}]}", "'output':[]," },
    { "chat, no choices", CHAT, "{'id':'i','choices':[]}", NULL },
    { "chat, no message", CHAT, "{'choices':[{'delta':{}}]}", NULL },
    { "chat, a call without a name", CHAT, "{'choices':[{'message':{"
      "'tool_calls':[{'function':{'arguments':'{}'}}]}}]}", NULL },
};


static void
whole(void **state)
{
    char        *in, *out;
    answer_t     a;
    ngx_int_t    rc;
    ngx_uint_t   i;
    ngx_pool_t  *pool;

    for (i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        pool = unit_pool_create();
        init(&a, pool, answers[i].flags, MAX);

        in = unit_quoted(answers[i].in);
        rc = answer_message(&a, (u_char *) in, ngx_strlen(in));

        if (answers[i].out == NULL) {
            assert_int_equal(rc, NGX_DECLINED);
            assert_int_equal(a.len, 0);

        } else {
            assert_int_equal(rc, NGX_OK);

            out = unit_quoted(answers[i].out);
            (void) answer_write(&a, (u_char *) "", 1, 0);

            if (ngx_strstr(a.text, out) == NULL) {
                fail_msg("%s:\n  got  %s\n  want %s", answers[i].name, a.text,
                         out);
            }

            unit_free((u_char *) out);
        }

        unit_free((u_char *) in);
        answer_free(&a);
        ngx_destroy_pool(pool);
    }
}


/* each allocation fails, with texts as they are and with long ones */

typedef struct {
    ngx_uint_t   flags;
    u_char      *in;
    size_t       len;
} memory_t;


static ngx_int_t
memory_stream(void *data, ngx_pool_t *pool)
{
    memory_t *m = data;

    answer_t  a;

    init(&a, pool, m->flags, MAX);
    (void) answer_stream(&a, m->in, m->len, 1000);
    answer_free(&a);

    return a.out.failed ? NGX_ERROR : a.rc;
}


static ngx_int_t
memory_answer(void *data, ngx_pool_t *pool)
{
    memory_t *m = data;

    answer_t  a;

    init(&a, pool, m->flags, MAX);

    if (a.rc == NGX_OK) {
        (void) answer_message(&a, m->in, m->len);
    }

    answer_free(&a);

    return a.out.failed ? NGX_ERROR : a.rc;
}


static void
memory_case(unit_memory_pt f, ngx_uint_t flags, const char *in,
    const char *name)
{
    memory_t  m;

    m.flags = flags;
    m.in = (u_char *) unit_quoted(in);
    m.len = ngx_strlen(in);

    (void) unit_memory(f, &m, name);

    unit_memory_lengthen(&m.in, &m.len);

    (void) unit_memory(f, &m, name);

    unit_free(m.in);
}


static ngx_int_t
memory_error(void *data, ngx_pool_t *pool)
{
    answer_t   a;
    ngx_str_t  text;

    init(&a, pool, 0, MAX);
    ngx_str_set(&text, "a \"b\"");

    if (a.rc == NGX_OK) {
        a.rc = ngx_modelgw_response_error(&a.rs, pool, &text, 7, &text, &text,
                                          &a.out);
    }

    answer_free(&a);

    return a.out.failed ? NGX_ERROR : a.rc;
}


static void
no_memory(void **state)
{
    ngx_uint_t  i;

    (void) unit_memory(memory_error, NULL, "error");

    for (i = 0; i < NCASES; i++) {
        memory_case(memory_stream, cases[i].flags, cases[i].in, cases[i].name);
    }

    for (i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        memory_case(memory_answer, answers[i].flags, answers[i].in,
                    answers[i].name);
    }
}


/* what the response repeats of the call, which may have line ends */

static void
echo(void **state)
{
    char      *in;
    answer_t   a;

    init(&a, *state, 0, MAX);

    ngx_str_set(&a.call.metadata, "{\"a\":\r\n\"b\"}");
    ngx_str_set(&a.call.parallel_tool_calls, "false");
    ngx_str_set(&a.call.temperature, "0.5");
    ngx_str_set(&a.call.top_p, "0.25");
    ngx_str_set(&a.call.tool_choice, "\"required\"");
    ngx_str_set(&a.call.max_output_tokens, "77");
    ngx_str_set(&a.call.effort, "\"low\"");
    ngx_str_set(&a.call.summary, "\"auto\"");
    ngx_str_set(&a.call.format, "{\n}");

    in = unit_quoted(START FINISH);
    (void) answer_stream(&a, (u_char *) in, ngx_strlen(in), 1000);
    unit_free((u_char *) in);

    expect_words(&a, "echo", "completed");
    (void) answer_write(&a, (u_char *) "", 1, 0);

    in = unit_quoted("'max_output_tokens':77,'metadata':{'a':  'b'},'model':"
                     "'m','output':[],'parallel_tool_calls':false,"
                     "'previous_response_id':null,'reasoning':{'effort':'low',"
                     "'summary':'auto'},'store':false,'temperature':0.5,'text':"
                     "{'format':{ }},'tool_choice':'required','tools':[],"
                     "'top_p':0.25,");
    assert_non_null(ngx_strstr(a.text, in));
    unit_free((u_char *) in);

    answer_free(&a);
}


static void
feed(answer_t *a, const char *s)
{
    char  *in;

    in = unit_quoted(s);
    (void) answer_feed(a, (u_char *) in, ngx_strlen(in));
    unit_free((u_char *) in);
}


/* errors and keep-alives of ours */

static void
errors(void **state)
{
    ngx_uint_t   i;
    answer_t     a;
    ngx_str_t    code, message;

    static struct {
        const char  *ours;
        const char  *words;
    } codes[] = {
        { "RATE_LIMITED", "failed:rate_limit_exceeded error:RATE_LIMITED" },
        { "CONTEXT_LENGTH_EXCEEDED", "failed:context_length_exceeded "
          "error:CONTEXT_LENGTH_EXCEEDED" },
        { "INVALID_REQUEST", "failed:invalid_prompt error:INVALID_REQUEST" },
        { "INSUFFICIENT_CREDIT", "failed:insufficient_quota "
          "error:INSUFFICIENT_CREDIT" },
        { "UPSTREAM_ERROR", "failed:server_error error:UPSTREAM_ERROR" }
    };

    ngx_str_set(&message, "a \"b\"\n");

    for (i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        code.data = (u_char *) codes[i].ours;
        code.len = ngx_strlen(codes[i].ours);

        init(&a, *state, 0, MAX);
        ngx_modelgw_response_stream_error(a.response, &code, &message);
        expect_words(&a, "error first", codes[i].words);
        answer_free(&a);
    }

    ngx_str_set(&code, "UPSTREAM_TRUNCATED");

    init(&a, *state, 0, MAX);
    ngx_modelgw_response_stream_ping(a.response);
    feed(&a, START BEGIN_CALL("0", "t", "f") ARGS("0", "{}") END("0")
         TEXT("1", "a"));
    ngx_modelgw_response_stream_ping(a.response);
    ngx_modelgw_response_stream_error(a.response, &code, &message);
    expect_words(&a, "error", "keepalive +function_call:f:t ~{} =f -completed "
                 "+message ( ~a keepalive failed:server_error "
                 "error:UPSTREAM_TRUNCATED");
    answer_free(&a);
}


/* events that differ in their text only */

static void
repeats(void **state)
{
    u_char      *p;
    answer_t     a;
    ngx_str_t    text;
    ngx_uint_t   i;

    static struct {
        ngx_uint_t   flags;
        const char  *in;
        const char  *words;              /* NULL: not to be repeated */
    } deltas[] = {
        { 0, START TEXT("0", "a"), "+message ( ~a ~b" },
        { SHOW, START BEGIN_THINK("0") THINK("0", "a"), "+reasoning ( ~a ~b" },
        { ENC, START BEGIN_THINK("0") THINK("0", "a"), "+reasoning" },
        { 0, START BEGIN_CALL("0", "t", "f") ARGS("0", "a"),
          "+function_call:f:t ~a ~b" },
        { 0, START BEGIN_TEXT("0") BEGIN_CALL("1", "t", "f") ARGS("1", "a"),
          "" },
        { 0, START BEGIN_CALL("0", "t", "f") ARGS("0", ""), NULL },
        { 0, START BEGIN("0", "{'type':'text','text':'a'}"), NULL },
        { CHAT, SAY("a"), "+message ( ~a ~b" },
        { CHAT|SHOW, REASONING("a"), "+reasoning ( ~a ~b" },
        { CHAT|SHOW, CHUNK("{'reasoning':'c','content':'a'}"), NULL },
        { CHAT, CALLS("{'index':0,'id':'t','function':{'name':'f','arguments':"
          "'a'}}"), "+function_call:f:t ~a ~b" },
        { CHAT, CALLS("{'index':0,'function':{'name':'f','arguments':'a'}}"),
          NULL },
        { CHAT, SAY("a") FINISHED("'stop'"), NULL },
    };

    ngx_str_set(&text, "b");

    for (i = 0; i < sizeof(deltas) / sizeof(deltas[0]); i++) {
        init(&a, *state, deltas[i].flags, MAX);
        feed(&a, deltas[i].in);

        p = ngx_modelgw_response_stream_text(a.response);

        if (deltas[i].words == NULL) {
            assert_null(p);
            answer_free(&a);
            continue;
        }

        assert_non_null(p);
        assert_int_equal(ngx_modelgw_response_stream_repeat(a.response, &text,
                                                            0), NGX_OK);
        expect_words(&a, deltas[i].in, deltas[i].words);
        answer_free(&a);
    }
}


/* the bytes that are kept are bounded, whatever they are kept for */

static void
bounds(void **state)
{
    answer_t     a;
    ngx_str_t    text;
    ngx_uint_t   i, n;

    static const char  *in[] = {
        START TEXT("0", "a"),
        START BEGIN_CALL("0", "t", "f") ARGS("0", "a"),
        START BEGIN_TEXT("0") BEGIN_CALL("1", "t", "f") ARGS("1", "a"),
        START BEGIN_THINK("0") THINK("0", "a"),
        START BEGIN_THINK("0") SIGN("0", "a")
    };

    ngx_str_set(&text, "0123456789");

    for (i = 0; i < sizeof(in) / sizeof(in[0]); i++) {
        init(&a, *state, ENC, 4096);
        feed(&a, in[i]);

        for (n = 0; n < 1000; n++) {
            if (ngx_modelgw_response_stream_repeat(a.response, &text, 0)
                != NGX_OK)
            {
                break;
            }
        }

        assert_in_range(n, 100, 410);
        answer_free(&a);
    }
}


/* calls of a stream, and what waits for one, are bounded, too */

static void
counts(void **state)
{
    answer_t     a;
    ngx_uint_t   i, n;

    static struct {
        const char  *first;
        const char  *in;
    } events[] = {
        { "", CALLS("{'function':{'name':'f','arguments':'{}'}}") },
        { CALLS("{'id':'t','function':{'name':'f','arguments':'{'}}"),
          SAY("a") CHUNK("{'refusal':'a'}") },
    };

    for (i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        init(&a, *state, CHAT, 4 * 1024 * 1024);
        feed(&a, events[i].first);

        for (n = 0; n < 2000 && a.rc == NGX_OK; n++) {
            feed(&a, events[i].in);
        }

        assert_int_equal(a.rc, NGX_DECLINED);
        assert_in_range(n, 500, 1100);
        answer_free(&a);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(streams),
        cmocka_unit_test(whole),
        cmocka_unit_test(no_memory),
        unit_case(echo),
        unit_case(errors),
        unit_case(repeats),
        unit_case(bounds),
        unit_case(counts),
    };

    return cmocka_run_group_tests_name("response", tests, NULL, NULL);
}
