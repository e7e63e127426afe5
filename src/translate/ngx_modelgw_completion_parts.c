
/*
 * The parts of a messages answer that mean the same in a whole answer and in a
 * stream.  Both codecs ask here, and nowhere else, so that a stream put
 * together by the client equals the answer it would have got without streaming.
 *
 * Tables say what the block types and stop reasons are.  What is not in them
 * is no error: the upstream adds types and reasons without notice, and a client
 * is better off with an answer that lacks a block it could not have used.
 * Peers that fail on unknown stop reasons, or show the upstream's own tools as
 * calls to the client, have broken agents with it (translate.md, section 8).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_completion_private.h"


#define ngx_modelgw_completion_reported(n)  ((n) < 0 ? 0 : (n))


typedef struct {
    const char                     *type;
    ngx_modelgw_completion_kind_e   kind;
} ngx_modelgw_completion_type_t;


static ngx_modelgw_completion_type_t  ngx_modelgw_completion_types[] = {
    { "text", NGX_MODELGW_COMPLETION_TEXT },
    { "tool_use", NGX_MODELGW_COMPLETION_TOOL },
    { "thinking", NGX_MODELGW_COMPLETION_THINKING },
    { "redacted_thinking", NGX_MODELGW_COMPLETION_REDACTED },
    { NULL, NGX_MODELGW_COMPLETION_SKIP }
};


/*
 * "tool_use" without a tool call: the upstream ran tools of its own only.
 * Tool calls with "end_turn", no reason or an unknown one: look-alikes, whose
 * clients would not run the tools if they were told "stop".
 */

static ngx_modelgw_completion_stop_t  ngx_modelgw_completion_stops[] = {

    { "end_turn", ngx_string("stop"), ngx_string("tool_calls"), 1, 0 },
    { "tool_use", ngx_string("stop"), ngx_string("tool_calls"), 1, 0 },
    { "max_tokens", ngx_string("length"), ngx_string("length"), 0, 0 },
    { "model_context_window_exceeded", ngx_string("length"),
      ngx_string("length"), 0, 0 },
    { "stop_sequence", ngx_string("stop"), ngx_string("stop"), 0, 0 },
    { "pause_turn", ngx_string("stop"), ngx_string("stop"), 0, 0 },
    { "refusal", ngx_string("content_filter"), ngx_string("content_filter"),
      0, 1 },
    { "sensitive", ngx_string("content_filter"), ngx_string("content_filter"),
      0, 1 },

    /* all else */

    { NULL, ngx_string("stop"), ngx_string("tool_calls"), 1, 0 }
};


ngx_modelgw_completion_kind_e
ngx_modelgw_completion_kind(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *block)
{
    ngx_modelgw_node_t             *node;
    ngx_modelgw_completion_type_t  *type;

    node = ngx_modelgw_tape_member(tape, block, "type");

    for (type = ngx_modelgw_completion_types; type->type; type++) {
        if (ngx_modelgw_tape_is(tape, node, type->type)) {
            break;
        }
    }

    return type->kind;
}


ngx_uint_t
ngx_modelgw_completion_string(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *obj, const char *name, ngx_str_t *inside)
{
    ngx_modelgw_node_t  *node;

    node = ngx_modelgw_tape_member(tape, obj, name);

    if (node == NULL || node->type != NGX_MODELGW_TAPE_STRING) {
        ngx_str_null(inside);
        return 0;
    }

    ngx_modelgw_tape_inside(tape, node, inside);

    return 1;
}


/*
 * Clients take the id for a string, and some merge answers of one id, so one is
 * made up if need be.  The length is bounded since each chunk carries it.
 */

void
ngx_modelgw_completion_id(ngx_modelgw_completion_t *c,
    ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *message, u_char *buf,
    ngx_str_t *id)
{
    u_char     *last;
    ngx_str_t   own;

    if (ngx_modelgw_completion_string(tape, message, "id", &own)
        && own.len > 0 && own.len <= NGX_MODELGW_COMPLETION_ID)
    {
        last = ngx_cpymem(buf, own.data, own.len);

    } else {
        last = ngx_sprintf(buf, "msg_%T", c->created);
    }

    id->len = last - buf;
    id->data = buf;
}


/* an empty array is what some languages make of an empty object */

ngx_uint_t
ngx_modelgw_completion_input(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *block, ngx_str_t *input)
{
    ngx_uint_t           container;
    ngx_modelgw_node_t  *node;

    ngx_str_null(input);

    node = ngx_modelgw_tape_member(tape, block, "input");

    if (node == NULL || node->type == NGX_MODELGW_TAPE_NULL) {
        return 0;
    }

    container = (node->type == NGX_MODELGW_TAPE_OBJECT
                 || node->type == NGX_MODELGW_TAPE_ARRAY);

    if (container && node->count == 0) {
        return 0;
    }

    ngx_modelgw_tape_raw(tape, node, input);

    return 1;
}


ngx_modelgw_completion_stop_t *
ngx_modelgw_completion_stop(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node)
{
    ngx_modelgw_completion_stop_t  *stop;

    for (stop = ngx_modelgw_completion_stops; stop->name; stop++) {
        if (ngx_modelgw_tape_is(tape, node, stop->name)) {
            break;
        }
    }

    return stop;
}


ngx_str_t *
ngx_modelgw_completion_finish(ngx_modelgw_completion_stop_t *stop,
    ngx_uint_t ntools)
{
    return ntools ? &stop->tools : &stop->plain;
}


void
ngx_modelgw_completion_refusal(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *details, ngx_str_t *text)
{
    (void) ngx_modelgw_completion_string(tape, details, "explanation", text);

    if (text->len == 0) {
        ngx_str_set(text, "The model declined to respond.");
    }
}


void
ngx_modelgw_completion_thinking(ngx_modelgw_out_t *out,
    ngx_modelgw_completion_kind_e kind, ngx_str_t *text, ngx_str_t *signature)
{
    if (kind == NGX_MODELGW_COMPLETION_REDACTED) {
        ngx_modelgw_out_text(out, "\"type\":\"redacted_thinking\",\"data\":\"");

    } else {
        ngx_modelgw_out_text(out, "\"type\":\"thinking\",\"thinking\":\"");
    }

    ngx_modelgw_out(out, text->data, text->len);
    ngx_modelgw_out_text(out, "\"");

    if (signature->data) {
        ngx_modelgw_out_text(out, ",\"signature\":\"");
        ngx_modelgw_out(out, signature->data, signature->len);
        ngx_modelgw_out_text(out, "\"");
    }
}


/*
 * Chat counts cached input as part of the prompt.  What was not reported is 0:
 * clients read these members without asking whether they are there.
 */

void
ngx_modelgw_completion_usage(ngx_modelgw_out_t *out,
    ngx_modelgw_usage_t *usage)
{
    int64_t  prompt, output, read, write;

    read = ngx_modelgw_completion_reported(usage->cache_read);
    write = ngx_modelgw_completion_reported(usage->cache_write);
    prompt = ngx_modelgw_completion_reported(usage->input) + read + write;
    output = ngx_modelgw_completion_reported(usage->output);

    ngx_modelgw_out_text(out, "{\"prompt_tokens\":");
    ngx_modelgw_out_number(out, prompt);
    ngx_modelgw_out_text(out, ",\"completion_tokens\":");
    ngx_modelgw_out_number(out, output);
    ngx_modelgw_out_text(out, ",\"total_tokens\":");
    ngx_modelgw_out_number(out, prompt + output);
    ngx_modelgw_out_text(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    ngx_modelgw_out_number(out, read);
    ngx_modelgw_out_text(out, ",\"cache_write_tokens\":");
    ngx_modelgw_out_number(out, write);
    ngx_modelgw_out_text(out, "}");

    if (usage->reasoning >= 0) {
        ngx_modelgw_out_text(out,
                             ",\"completion_tokens_details\":"
                             "{\"reasoning_tokens\":");
        ngx_modelgw_out_number(out, usage->reasoning);
        ngx_modelgw_out_text(out, "}");
    }

    ngx_modelgw_out_text(out, "}");
}
