
/*
 * libFuzzer: a responses request.  The first four bytes of the input are the
 * model's capabilities, the cuts and the upstream's protocol, the rest is a
 * document.  If the scanner accepts it as a JSON object, the codec must refuse
 * it with a code and a message, or write a request that the scanner accepts,
 * too.  One for messages must have nothing that such an upstream is known to
 * refuse, see rules.h; in one for chat each call has its result behind it.  Fed
 * whole and in pieces it must give the same, and the same record of the call.
 */


#define _GNU_SOURCE

#include "unit.h"

#define MUTATE_OPTIONS  4

#include "mutate.h"
#include "request.h"


static ngx_int_t
codec(result_t *r, ngx_modelgw_out_t *out)
{
    return ngx_modelgw_responses(&r->rq, r->protocol, &r->call, out);
}


static void
check_record(ngx_modelgw_responses_call_t *call)
{
    ngx_uint_t                     i, k;
    ngx_modelgw_responses_tool_t  *tool;

    tool = call->tools.elts;

    for (i = 0; i < call->tools.nelts; i++) {
        check(tool[i].upstream.len > 0 && tool[i].upstream.len <= 128);
        check(tool[i].name.len > 0);
        check(tool[i].kind <= NGX_MODELGW_RESPONSES_SEARCH);

        for (k = 0; k < tool[i].upstream.len; k++) {
            check(isalnum(tool[i].upstream.data[k])
                  || tool[i].upstream.data[k] == '_'
                  || tool[i].upstream.data[k] == '-');
        }

        if (i) {
            check(tool[i].upstream.len != tool[i - 1].upstream.len
                  || memcmp(tool[i].upstream.data, tool[i - 1].upstream.data,
                            tool[i].upstream.len)
                     != 0);
        }
    }
}


/* as many results as calls, at once behind them */

static void
check_chat(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *messages)
{
    size_t               open;
    ngx_modelgw_node_t  *message, *role, *calls, *content;

    open = 0;

    check(messages != NULL && messages->count > 0);

    for (message = ngx_modelgw_tape_first(tape, messages);
         message;
         message = ngx_modelgw_tape_next(tape, messages, message))
    {
        role = ngx_modelgw_tape_member(tape, message, "role");
        content = ngx_modelgw_tape_member(tape, message, "content");
        calls = ngx_modelgw_tape_member(tape, message, "tool_calls");

        check(content != NULL);

        if (ngx_modelgw_tape_is(tape, role, "tool")) {
            check(content->type == NGX_MODELGW_TAPE_STRING);
            check_word(tape, ngx_modelgw_tape_member(tape, message,
                                                     "tool_call_id"));
            check(open > 0);
            open--;
            continue;
        }

        check(open == 0);

        if (calls) {
            check(ngx_modelgw_tape_is(tape, role, "assistant"));
            check(calls->count > 0);
            open = calls->count;

        } else {
            check(content->count > 0
                  || content->type == NGX_MODELGW_TAPE_STRING);
        }
    }

    check(open == 0);
}


/* of blocks and tools; thinking is as the client has it */

static size_t
breakpoints(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *list)
{
    size_t               n;
    ngx_modelgw_node_t  *node;

    n = 0;

    for (node = ngx_modelgw_tape_first(tape, list);
         node;
         node = ngx_modelgw_tape_next(tape, list, node))
    {
        n += breakpoints(tape, ngx_modelgw_tape_member(tape, node, "content"));

        if (ngx_modelgw_tape_member(tape, node, "thinking") == NULL
            && ngx_modelgw_tape_member(tape, node, "data") == NULL)
        {
            n += ngx_modelgw_tape_member(tape, node, "cache_control") != NULL;
        }
    }

    return n;
}


static void
check_written(ngx_modelgw_tape_t *tape, result_t *r)
{
    ngx_modelgw_node_t  *root, *messages;

    root = ngx_modelgw_tape_root(tape);
    messages = ngx_modelgw_tape_member(tape, root, "messages");

    check_record(&r->call);

    if (r->protocol == NGX_MODELGW_CHAT) {
        check_chat(tape, messages);
        return;
    }

    check(breakpoints(tape, messages)
          + breakpoints(tape, ngx_modelgw_tape_member(tape, root, "system"))
          + breakpoints(tape, ngx_modelgw_tape_member(tape, root, "tools"))
          <= 4);
}
