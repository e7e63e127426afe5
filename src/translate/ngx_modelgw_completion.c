
/*
 * A whole messages answer as a chat completion, and the parts of an answer that
 * mean the same in a stream.
 *
 * The content is read once first: it decides about "content", the finish
 * reason, and whether the answer can be expressed at all.  Then the members are
 * written in the order of chat, each by one walk over the blocks: text that was
 * cut into blocks becomes one string, thinking another one, tool calls a list.
 *
 * Texts are JSON strings on both sides, so they are copied as they are between
 * the quotes; a tool's input becomes a string by escaping its bytes.
 *
 * Streams use the second half of this file, so that a stream put together by
 * the client equals the answer without streaming.  Unknown block types and stop
 * reasons are no error: the upstream adds them without notice, and an answer
 * without a block that the client could not have used is better than none.
 * Gateways that fail on unknown stop reasons, or show the upstream's own tools
 * as calls to the client, have broken agents.
 *
 * Rejected: reading the answer into objects and printing those, which changes
 * big integers and the order of members.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_caps.h"
#include "ngx_modelgw_completion_private.h"


#define ngx_modelgw_completion_reported(n)  ((n) < 0 ? 0 : (n))


typedef struct {
    ngx_modelgw_tape_t             *tape;
    ngx_modelgw_out_t              *out;
    ngx_modelgw_node_t             *content;
    ngx_uint_t                      text;      /* some block has one */
    ngx_uint_t                      reasoning;
    ngx_uint_t                      nthinking; /* blocks, redacted ones too */
    ngx_uint_t                      ntools;
} ngx_modelgw_completion_ctx_t;


typedef struct {
    const char                     *type;
    ngx_modelgw_completion_kind_e   kind;
} ngx_modelgw_completion_type_t;


static ngx_int_t ngx_modelgw_completion_read(ngx_modelgw_completion_ctx_t *x,
    ngx_modelgw_node_t *root);
static ngx_int_t ngx_modelgw_completion_read_block(
    ngx_modelgw_completion_ctx_t *x, ngx_modelgw_node_t *block);
static void ngx_modelgw_completion_head(ngx_modelgw_completion_t *c,
    ngx_modelgw_completion_ctx_t *x);
static void ngx_modelgw_completion_message(ngx_modelgw_completion_t *c,
    ngx_modelgw_completion_ctx_t *x, ngx_modelgw_completion_stop_t *stop);
static void ngx_modelgw_completion_joined(ngx_modelgw_completion_ctx_t *x,
    ngx_modelgw_completion_kind_e kind, const char *member);
static void ngx_modelgw_completion_thinking_blocks(
    ngx_modelgw_completion_ctx_t *x);
static void ngx_modelgw_completion_tool_calls(ngx_modelgw_completion_ctx_t *x);


static ngx_modelgw_completion_type_t  ngx_modelgw_completion_types[] = {
    { "text", NGX_MODELGW_COMPLETION_TEXT },
    { "tool_use", NGX_MODELGW_COMPLETION_TOOL },
    { "thinking", NGX_MODELGW_COMPLETION_THINKING },
    { "redacted_thinking", NGX_MODELGW_COMPLETION_REDACTED },
    { NULL, NGX_MODELGW_COMPLETION_SKIP }
};


/* by ngx_modelgw_completion_event_e, the most frequent one first */

static ngx_str_t  ngx_modelgw_completion_events[] = {
    ngx_string("content_block_delta"),
    ngx_string("content_block_start"),
    ngx_string("content_block_stop"),
    ngx_string("ping"),
    ngx_string("message_start"),
    ngx_string("message_delta"),
    ngx_string("message_stop"),
    ngx_string("error")
};


/*
 * "tool_use" without a tool call: the upstream ran only tools of its own.  Tool
 * calls with "end_turn", no reason or an unknown one come from compatible
 * upstreams; clients would not run the tools after "stop".
 */

static ngx_modelgw_completion_stop_t  ngx_modelgw_completion_stops[] = {

    { "end_turn", ngx_string("stop"), ngx_string("tool_calls"), 1, 0, 0 },
    { "tool_use", ngx_string("stop"), ngx_string("tool_calls"), 1, 0, 0 },
    { "max_tokens", ngx_string("length"), ngx_string("length"), 0, 0, 1 },
    { "model_context_window_exceeded", ngx_string("length"),
      ngx_string("length"), 0, 0, 1 },
    { "stop_sequence", ngx_string("stop"), ngx_string("stop"), 0, 0, 0 },
    { "pause_turn", ngx_string("stop"), ngx_string("stop"), 0, 0, 0 },
    { "refusal", ngx_string("content_filter"), ngx_string("content_filter"),
      0, 1, 0 },
    { "sensitive", ngx_string("content_filter"), ngx_string("content_filter"),
      0, 1, 0 },

    /* none, or unknown */

    { NULL, ngx_string("stop"), ngx_string("tool_calls"), 1, 0, 0 }
};


ngx_int_t
ngx_modelgw_completion(ngx_modelgw_completion_t *c, ngx_modelgw_tape_t *tape,
    ngx_modelgw_out_t *out)
{
    ngx_str_t                      *finish;
    ngx_modelgw_node_t             *root;
    ngx_modelgw_completion_ctx_t    x;
    ngx_modelgw_completion_stop_t  *stop;

    ngx_memzero(&x, sizeof(ngx_modelgw_completion_ctx_t));

    x.tape = tape;
    x.out = out;

    root = ngx_modelgw_tape_root(tape);

    if (ngx_modelgw_completion_read(&x, root) != NGX_OK) {
        return NGX_DECLINED;
    }

    stop = ngx_modelgw_completion_stop(tape,
                        ngx_modelgw_tape_member(tape, root, "stop_reason"));
    finish = ngx_modelgw_completion_finish(stop, x.ntools);

    ngx_modelgw_completion_head(c, &x);
    ngx_modelgw_completion_message(c, &x, stop);

    ngx_modelgw_out_text(out, ",\"logprobs\":null,\"finish_reason\":\"");
    ngx_modelgw_out(out, finish->data, finish->len);
    ngx_modelgw_out_text(out, "\"}],\"usage\":");
    ngx_modelgw_completion_usage(out, c->usage);
    ngx_modelgw_out_text(out, "}");

    return NGX_OK;
}


/* some compatible upstreams omit the type, "content" is enough then */

static ngx_int_t
ngx_modelgw_completion_read(ngx_modelgw_completion_ctx_t *x,
    ngx_modelgw_node_t *root)
{
    ngx_modelgw_node_t  *type, *block;

    type = ngx_modelgw_tape_member(x->tape, root, "type");
    x->content = ngx_modelgw_tape_member(x->tape, root, "content");

    if ((type && !ngx_modelgw_tape_is(x->tape, type, "message"))
        || x->content == NULL
        || x->content->type != NGX_MODELGW_TAPE_ARRAY)
    {
        return NGX_DECLINED;
    }

    for (block = ngx_modelgw_tape_first(x->tape, x->content);
         block;
         block = ngx_modelgw_tape_next(x->tape, x->content, block))
    {
        if (ngx_modelgw_completion_read_block(x, block) != NGX_OK) {
            return NGX_DECLINED;
        }
    }

    return NGX_OK;
}


/* the client could not answer a call without an id or a name */

static ngx_int_t
ngx_modelgw_completion_read_block(ngx_modelgw_completion_ctx_t *x,
    ngx_modelgw_node_t *block)
{
    ngx_str_t  text;

    switch (ngx_modelgw_completion_kind(x->tape, block)) {

    case NGX_MODELGW_COMPLETION_TEXT:
        (void) ngx_modelgw_completion_string(x->tape, block, "text", &text);
        x->text |= (text.len != 0);
        break;

    case NGX_MODELGW_COMPLETION_THINKING:
        (void) ngx_modelgw_completion_string(x->tape, block, "thinking",
                                             &text);
        x->reasoning |= (text.len != 0);
        x->nthinking++;
        break;

    case NGX_MODELGW_COMPLETION_REDACTED:
        x->nthinking++;
        break;

    case NGX_MODELGW_COMPLETION_TOOL:
        if (!ngx_modelgw_completion_string(x->tape, block, "id", &text)
            || !ngx_modelgw_completion_string(x->tape, block, "name", &text))
        {
            return NGX_DECLINED;
        }

        x->ntools++;
        break;

    default: /* NGX_MODELGW_COMPLETION_SKIP */
        break;
    }

    return NGX_OK;
}


static void
ngx_modelgw_completion_head(ngx_modelgw_completion_t *c,
    ngx_modelgw_completion_ctx_t *x)
{
    u_char      buf[NGX_MODELGW_COMPLETION_ID];
    ngx_str_t   id;

    ngx_modelgw_completion_id(c, x->tape, ngx_modelgw_tape_root(x->tape), buf,
                              &id);

    ngx_modelgw_out_text(x->out, "{\"id\":\"");
    ngx_modelgw_out(x->out, id.data, id.len);
    ngx_modelgw_out_text(x->out,
                         "\",\"object\":\"chat.completion\",\"created\":");
    ngx_modelgw_out_number(x->out, c->created);
    ngx_modelgw_out_text(x->out, ",\"model\":");
    ngx_modelgw_out(x->out, c->model.data, c->model.len);
    ngx_modelgw_out_text(x->out, ",\"choices\":[{\"index\":0,\"message\":");
}


/*
 * "content" is null only if there are tool calls or a refusal and no text: chat
 * SDKs take null as "there is something else".
 */

static void
ngx_modelgw_completion_message(ngx_modelgw_completion_t *c,
    ngx_modelgw_completion_ctx_t *x, ngx_modelgw_completion_stop_t *stop)
{
    ngx_str_t            refusal;
    ngx_modelgw_node_t  *details;

    ngx_modelgw_out_text(x->out, "{\"role\":\"assistant\",\"content\":");

    if (!x->text && (x->ntools || stop->refused)) {
        ngx_modelgw_out_text(x->out, "null");

    } else {
        ngx_modelgw_completion_joined(x, NGX_MODELGW_COMPLETION_TEXT, "text");
    }

    ngx_modelgw_out_text(x->out, ",\"refusal\":");

    if (stop->refused) {
        details = ngx_modelgw_tape_member(x->tape,
                                          ngx_modelgw_tape_root(x->tape),
                                          "stop_details");
        ngx_modelgw_completion_refusal(x->tape, details, &refusal);

        ngx_modelgw_out_text(x->out, "\"");
        ngx_modelgw_out(x->out, refusal.data, refusal.len);
        ngx_modelgw_out_text(x->out, "\"");

    } else {
        ngx_modelgw_out_text(x->out, "null");
    }

    if (x->reasoning && c->reasoning != NGX_MODELGW_REASONING_OFF) {
        ngx_modelgw_out_text(x->out, ",\"reasoning_content\":");
        ngx_modelgw_completion_joined(x, NGX_MODELGW_COMPLETION_THINKING,
                                      "thinking");
    }

    if (x->nthinking && c->reasoning == NGX_MODELGW_REASONING_FULL) {
        ngx_modelgw_completion_thinking_blocks(x);
    }

    if (x->ntools) {
        ngx_modelgw_completion_tool_calls(x);
    }

    ngx_modelgw_out_text(x->out, "}");
}


/*
 * Joins the texts of all blocks of a kind with nothing between them: citations
 * cut sentences into blocks.
 */

static void
ngx_modelgw_completion_joined(ngx_modelgw_completion_ctx_t *x,
    ngx_modelgw_completion_kind_e kind, const char *member)
{
    ngx_str_t            text;
    ngx_modelgw_node_t  *block;

    ngx_modelgw_out_text(x->out, "\"");

    for (block = ngx_modelgw_tape_first(x->tape, x->content);
         block;
         block = ngx_modelgw_tape_next(x->tape, x->content, block))
    {
        if (ngx_modelgw_completion_kind(x->tape, block) == kind
            && ngx_modelgw_completion_string(x->tape, block, member, &text))
        {
            ngx_modelgw_out(x->out, text.data, text.len);
        }
    }

    ngx_modelgw_out_text(x->out, "\"");
}


static void
ngx_modelgw_completion_thinking_blocks(ngx_modelgw_completion_ctx_t *x)
{
    ngx_str_t                       text, signature;
    ngx_uint_t                      n;
    ngx_modelgw_node_t             *block;
    ngx_modelgw_completion_kind_e   kind;

    n = 0;

    for (block = ngx_modelgw_tape_first(x->tape, x->content);
         block;
         block = ngx_modelgw_tape_next(x->tape, x->content, block))
    {
        kind = ngx_modelgw_completion_kind(x->tape, block);

        if (kind == NGX_MODELGW_COMPLETION_THINKING) {
            (void) ngx_modelgw_completion_string(x->tape, block, "thinking",
                                                 &text);
            (void) ngx_modelgw_completion_string(x->tape, block, "signature",
                                                 &signature);

        } else if (kind == NGX_MODELGW_COMPLETION_REDACTED) {
            (void) ngx_modelgw_completion_string(x->tape, block, "data",
                                                 &text);
            ngx_str_null(&signature);

        } else {
            continue;
        }

        if (n++ == 0) {
            ngx_modelgw_out_text(x->out, ",\"thinking_blocks\":[{");

        } else {
            ngx_modelgw_out_text(x->out, "},{");
        }

        ngx_modelgw_completion_thinking(x->out, kind, &text, &signature);
    }

    ngx_modelgw_out_text(x->out, "}]");
}


static void
ngx_modelgw_completion_tool_calls(ngx_modelgw_completion_ctx_t *x)
{
    ngx_str_t            text;
    ngx_uint_t           n;
    ngx_modelgw_node_t  *block;

    n = 0;

    for (block = ngx_modelgw_tape_first(x->tape, x->content);
         block;
         block = ngx_modelgw_tape_next(x->tape, x->content, block))
    {
        if (ngx_modelgw_completion_kind(x->tape, block)
            != NGX_MODELGW_COMPLETION_TOOL)
        {
            continue;
        }

        if (n++ == 0) {
            ngx_modelgw_out_text(x->out, ",\"tool_calls\":[{\"id\":\"");

        } else {
            ngx_modelgw_out_text(x->out, "},{\"id\":\"");
        }

        (void) ngx_modelgw_completion_string(x->tape, block, "id", &text);
        ngx_modelgw_out(x->out, text.data, text.len);

        ngx_modelgw_out_text(x->out,
                   "\",\"type\":\"function\",\"function\":{\"name\":\"");

        (void) ngx_modelgw_completion_string(x->tape, block, "name", &text);
        ngx_modelgw_out(x->out, text.data, text.len);

        ngx_modelgw_out_text(x->out, "\",\"arguments\":\"");

        if (ngx_modelgw_completion_input(x->tape, block, &text)) {
            ngx_modelgw_out_escaped(x->out, text.data, text.len);

        } else {
            ngx_modelgw_out_text(x->out, "{}");
        }

        ngx_modelgw_out_text(x->out, "\"}");
    }

    ngx_modelgw_out_text(x->out, "}]");
}


ngx_modelgw_completion_event_e
ngx_modelgw_completion_event(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *event, ngx_str_t *name)
{
    ngx_str_t           *known;
    ngx_uint_t           i;
    ngx_modelgw_node_t  *type, *error;

    known = ngx_modelgw_completion_events;
    type = ngx_modelgw_tape_member(tape, event, "type");

    for (i = 0; i < NGX_MODELGW_COMPLETION_UNKNOWN; i++) {
        if (ngx_modelgw_tape_is(tape, type, (char *) known[i].data)) {
            return i;
        }
    }

    error = ngx_modelgw_tape_member(tape, event, "error");

    if (error && error->type == NGX_MODELGW_TAPE_OBJECT) {
        return NGX_MODELGW_COMPLETION_ERROR;
    }

    /* of an unknown type */

    i = (type && type->type == NGX_MODELGW_TAPE_STRING)
        ? NGX_MODELGW_COMPLETION_ERROR : 0;

    for ( /* void */ ; i < NGX_MODELGW_COMPLETION_UNKNOWN; i++) {
        if (name->len == known[i].len
            && ngx_memcmp(name->data, known[i].data, name->len) == 0)
        {
            return i;
        }
    }

    return NGX_MODELGW_COMPLETION_UNKNOWN;
}


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
ngx_modelgw_completion_index(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *event, ngx_uint_t *index)
{
    return ngx_modelgw_tape_count(tape,
                               ngx_modelgw_tape_member(tape, event, "index"),
                               index);
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
 * Clients expect a string, and some merge answers with the same id, so a
 * missing id is replaced.  The length is limited since each chunk carries it.
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


/* some languages encode an empty object as an empty array */

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
 * Chat counts cached input as part of the prompt.  Counts not reported are 0:
 * clients read these members without checking that they exist.
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
