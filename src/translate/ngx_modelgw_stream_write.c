
/*
 * The chunks of a chat stream, as text.  Nearly all of a chunk is the same from
 * the first to the last of a stream, so it is rendered once, when the message's
 * id is known, and a chunk is written as
 *
 *     head      data: {"id":...,"choices":[{"index":0,"delta":
 *     delta     {"content":"..."}
 *     tail      ,"logprobs":null,"finish_reason":null}],"usage":null}
 *
 * The texts in it are copied from one JSON string into another as they stand.
 * There can be no line end in them, which would end the event: JSON wants it
 * escaped (RFC 8259, section 7), and the scanner has checked.
 *
 * The clients' accumulators concatenate every string they find, in lists by
 * "index", so a member is written only where it adds something: "role" once,
 * "id", "type" and "name" in a call's first chunk alone (translate.md, 4).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_stream_write.h"


#define NGX_MODELGW_CHUNK_OBJECT                                              \
    "\",\"object\":\"chat.completion.chunk\",\"created\":"
#define NGX_MODELGW_CHUNK_DELTA  "{\"index\":0,\"delta\":"


/* behind a string in a delta */

static ngx_str_t  ngx_modelgw_chunk_rest = ngx_string(
    "\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n");

static ngx_str_t  ngx_modelgw_chunk_rest_usage = ngx_string(
    "\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n");


static void ngx_modelgw_chunk_write_text(ngx_modelgw_chunk_t *ch,
    ngx_str_t *text);
static void ngx_modelgw_chunk_write_call(ngx_modelgw_chunk_t *ch,
    ngx_uint_t tool);


ngx_int_t
ngx_modelgw_chunk_write_init(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *message)
{
    size_t      len;
    u_char     *p, buf[NGX_MODELGW_COMPLETION_ID];
    ngx_str_t   id;

    ngx_modelgw_completion_id(ch->c, ch->tape, message, buf, &id);

    len = sizeof("data: {\"id\":\"" NGX_MODELGW_CHUNK_OBJECT
                 ",\"model\":,\"choices\":[" NGX_MODELGW_CHUNK_DELTA)
          + NGX_TIME_T_LEN + id.len + ch->c->model.len;

    p = ngx_pnalloc(ch->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ch->head.data = p;

    p = ngx_sprintf(p, "data: {\"id\":\"%V" NGX_MODELGW_CHUNK_OBJECT
                    "%T,\"model\":%V,\"choices\":[",
                    &id, ch->c->created, &ch->c->model);

    ch->top = p - ch->head.data;

    p = ngx_cpymem(p, NGX_MODELGW_CHUNK_DELTA,
                   sizeof(NGX_MODELGW_CHUNK_DELTA) - 1);

    ch->head.len = p - ch->head.data;

    ch->rest = ch->c->include_usage ? ngx_modelgw_chunk_rest_usage
                                    : ngx_modelgw_chunk_rest;

    ch->tail.data = ch->rest.data + 2;
    ch->tail.len = ch->rest.len - 2;

    return NGX_OK;
}


void
ngx_modelgw_chunk_write_delta(ngx_modelgw_chunk_t *ch, ngx_str_t *delta)
{
    ngx_modelgw_out(ch->out, ch->head.data, ch->head.len);
    ngx_modelgw_out(ch->out, delta->data, delta->len);
    ngx_modelgw_out(ch->out, ch->tail.data, ch->tail.len);
}


void
ngx_modelgw_chunk_write_string(ngx_modelgw_chunk_t *ch, ngx_str_t *member,
    ngx_str_t *text)
{
    ngx_modelgw_out(ch->out, ch->head.data, ch->head.len);
    ngx_modelgw_out(ch->out, member->data, member->len);
    ngx_modelgw_chunk_write_text(ch, text);
    ngx_modelgw_out(ch->out, ch->rest.data, ch->rest.len);
}


void
ngx_modelgw_chunk_write_tool(ngx_modelgw_chunk_t *ch, ngx_uint_t tool,
    ngx_str_t *id, ngx_str_t *name)
{
    ngx_modelgw_chunk_write_call(ch, tool);

    ngx_modelgw_out_text(ch->out, ",\"id\":\"");
    ngx_modelgw_out(ch->out, id->data, id->len);
    ngx_modelgw_out_text(ch->out,
                         "\",\"type\":\"function\",\"function\":{\"name\":\"");
    ngx_modelgw_out(ch->out, name->data, name->len);
    ngx_modelgw_out_text(ch->out, "\",\"arguments\":\"\"}}]}");

    ngx_modelgw_out(ch->out, ch->tail.data, ch->tail.len);
}


void
ngx_modelgw_chunk_write_args(ngx_modelgw_chunk_t *ch, ngx_uint_t tool,
    ngx_str_t *args, ngx_uint_t raw)
{
    ngx_modelgw_chunk_write_call(ch, tool);

    ngx_modelgw_out_text(ch->out, ",\"function\":{\"arguments\":\"");

    if (raw) {
        ngx_modelgw_out_escaped(ch->out, args->data, args->len);

    } else {
        ngx_modelgw_chunk_write_text(ch, args);
    }

    ngx_modelgw_out_text(ch->out, "\"}}]}");

    ngx_modelgw_out(ch->out, ch->tail.data, ch->tail.len);
}


/*
 * "index" is what makes accumulators put the entry into a slot of its own: the
 * block's, or the next one, if blocks have ended in another order than they
 * began, since a slot that is there already would be concatenated to.
 */

void
ngx_modelgw_chunk_write_thinking(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_str_t *text, ngx_str_t *signature)
{
    ngx_uint_t  index;

    index = ngx_max(block->index, ch->thinking);
    ch->thinking = index + 1;

    ngx_modelgw_out(ch->out, ch->head.data, ch->head.len);
    ngx_modelgw_out_text(ch->out, "{\"thinking_blocks\":[{\"index\":");
    ngx_modelgw_out_number(ch->out, index);
    ngx_modelgw_out_text(ch->out, ",");
    ngx_modelgw_completion_thinking(ch->out, block->kind, text, signature);
    ngx_modelgw_out_text(ch->out, "}]}");
    ngx_modelgw_out(ch->out, ch->tail.data, ch->tail.len);
}


void
ngx_modelgw_chunk_write_finish(ngx_modelgw_chunk_t *ch, ngx_str_t *reason)
{
    ngx_modelgw_out(ch->out, ch->head.data, ch->head.len);
    ngx_modelgw_out_text(ch->out, "{},\"logprobs\":null,\"finish_reason\":\"");
    ngx_modelgw_out(ch->out, reason->data, reason->len);

    if (ch->c->include_usage) {
        ngx_modelgw_out_text(ch->out, "\"}],\"usage\":null}\n\n");

    } else {
        ngx_modelgw_out_text(ch->out, "\"}]}\n\n");
    }
}


void
ngx_modelgw_chunk_write_usage(ngx_modelgw_chunk_t *ch)
{
    ngx_modelgw_out(ch->out, ch->head.data, ch->top);
    ngx_modelgw_out_text(ch->out, "],\"usage\":");
    ngx_modelgw_completion_usage(ch->out, ch->c->usage);
    ngx_modelgw_out_text(ch->out, "}\n\n");
}


/* a text of the event at hand */

static void
ngx_modelgw_chunk_write_text(ngx_modelgw_chunk_t *ch, ngx_str_t *text)
{
    if (ch->borrowed) {
        ngx_modelgw_out_borrowed(ch->out, text->data, text->len);

    } else {
        ngx_modelgw_out(ch->out, text->data, text->len);
    }
}


static void
ngx_modelgw_chunk_write_call(ngx_modelgw_chunk_t *ch, ngx_uint_t tool)
{
    ngx_modelgw_out(ch->out, ch->head.data, ch->head.len);
    ngx_modelgw_out_text(ch->out, "{\"tool_calls\":[{\"index\":");
    ngx_modelgw_out_number(ch->out, tool);
}
