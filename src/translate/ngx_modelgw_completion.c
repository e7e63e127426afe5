
/*
 * A whole messages answer as a chat completion.
 *
 * First the content is read once: what is in it decides about "content", the
 * finish reason, and whether it can be expressed at all.  Then the members are
 * written in the order of chat, each by one walk over the blocks: text that was
 * cut into blocks becomes one string, thinking another one, tool calls a list.
 *
 * Texts are JSON strings here and there, so what is between the quotes is
 * copied as it stands; a tool's input becomes a string by escaping its bytes.
 * Rejected: to read the answer into objects and print those, which changes big
 * integers and the order of members.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_caps.h"
#include "ngx_modelgw_completion_private.h"


typedef struct {
    ngx_modelgw_tape_t   *tape;
    ngx_modelgw_out_t    *out;
    ngx_modelgw_node_t   *content;
    ngx_uint_t            text;          /* some block has one */
    ngx_uint_t            reasoning;
    ngx_uint_t            nthinking;     /* blocks, redacted ones too */
    ngx_uint_t            ntools;
} ngx_modelgw_completion_ctx_t;


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


/* Some look-alikes leave the type out; then the content tells. */

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


/* a call without id or name is one that the client can not answer */

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
 * "content" is null only if there is no text, but tool calls or a refusal: the
 * chat SDKs, and what is built on them, take null for "something else came".
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
 * One string of that member of all blocks of the kind, with nothing between:
 * citations cut sentences into blocks.
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
