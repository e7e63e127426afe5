
/*
 * The chunks of a chat stream, as text.  Most of a chunk is the same in the
 * whole stream and rendered once, when the id of the message is known:
 *
 *     head      data: {"id":...,"choices":[{"index":0,"delta":
 *     delta     {"content":"..."}
 *     tail      ,"logprobs":null,"finish_reason":null}],"usage":null}
 *
 * Texts are copied from one JSON string into another as they are.  A line end
 * would end the event, but must be escaped in JSON (RFC 8259, section 7), which
 * the scanner has checked.
 *
 * Clients' accumulators concatenate all strings of a stream, in lists by
 * "index", so a member is written only where it adds something: "role" once,
 * "id", "type" and "name" only in the first chunk of a call.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_stream_private.h"


#define NGX_MODELGW_STREAM_OBJECT                                             \
    "\",\"object\":\"chat.completion.chunk\",\"created\":"
#define NGX_MODELGW_STREAM_DELTA  "{\"index\":0,\"delta\":"


/* after a string in a delta */

static ngx_str_t  ngx_modelgw_stream_rest = ngx_string(
    "\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n");

static ngx_str_t  ngx_modelgw_stream_rest_usage = ngx_string(
    "\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n");


static void ngx_modelgw_stream_write_text(ngx_modelgw_stream_write_t *w,
    ngx_str_t *text);
static void ngx_modelgw_stream_write_call(ngx_modelgw_stream_write_t *w,
    ngx_uint_t tool);


ngx_int_t
ngx_modelgw_stream_write_init(ngx_modelgw_stream_write_t *w,
    ngx_pool_t *pool, ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *message)
{
    size_t      len;
    u_char     *p, buf[NGX_MODELGW_COMPLETION_ID];
    ngx_str_t   id;

    ngx_modelgw_completion_id(w->c, tape, message, buf, &id);

    len = sizeof("data: {\"id\":\"" NGX_MODELGW_STREAM_OBJECT
                 ",\"model\":,\"choices\":[" NGX_MODELGW_STREAM_DELTA)
          + NGX_TIME_T_LEN + id.len + w->c->model.len;

    p = ngx_pnalloc(pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    w->head.data = p;

    p = ngx_sprintf(p, "data: {\"id\":\"%V" NGX_MODELGW_STREAM_OBJECT
                    "%T,\"model\":%V,\"choices\":[",
                    &id, w->c->created, &w->c->model);

    w->top = p - w->head.data;

    p = ngx_cpymem(p, NGX_MODELGW_STREAM_DELTA,
                   sizeof(NGX_MODELGW_STREAM_DELTA) - 1);

    w->head.len = p - w->head.data;

    w->rest = w->c->include_usage ? ngx_modelgw_stream_rest_usage
                                  : ngx_modelgw_stream_rest;

    w->tail.data = w->rest.data + 2;
    w->tail.len = w->rest.len - 2;

    return NGX_OK;
}


void
ngx_modelgw_stream_write_delta(ngx_modelgw_stream_write_t *w, ngx_str_t *delta)
{
    ngx_modelgw_out(w->out, w->head.data, w->head.len);
    ngx_modelgw_out(w->out, delta->data, delta->len);
    ngx_modelgw_out(w->out, w->tail.data, w->tail.len);
}


void
ngx_modelgw_stream_write_string(ngx_modelgw_stream_write_t *w,
    ngx_str_t *member, ngx_str_t *text)
{
    ngx_modelgw_out(w->out, w->head.data, w->head.len);
    ngx_modelgw_out(w->out, member->data, member->len);
    ngx_modelgw_stream_write_text(w, text);
    ngx_modelgw_out(w->out, w->rest.data, w->rest.len);
}


void
ngx_modelgw_stream_write_tool(ngx_modelgw_stream_write_t *w, ngx_uint_t tool,
    ngx_str_t *id, ngx_str_t *name)
{
    ngx_modelgw_stream_write_call(w, tool);

    ngx_modelgw_out_text(w->out, ",\"id\":\"");
    ngx_modelgw_out(w->out, id->data, id->len);
    ngx_modelgw_out_text(w->out,
                         "\",\"type\":\"function\",\"function\":{\"name\":\"");
    ngx_modelgw_out(w->out, name->data, name->len);
    ngx_modelgw_out_text(w->out, "\",\"arguments\":\"\"}}]}");

    ngx_modelgw_out(w->out, w->tail.data, w->tail.len);
}


void
ngx_modelgw_stream_write_args(ngx_modelgw_stream_write_t *w, ngx_uint_t tool,
    ngx_str_t *args, ngx_uint_t raw)
{
    ngx_modelgw_stream_write_call(w, tool);

    ngx_modelgw_out_text(w->out, ",\"function\":{\"arguments\":\"");

    if (raw) {
        ngx_modelgw_out_escaped(w->out, args->data, args->len);

    } else {
        ngx_modelgw_stream_write_text(w, args);
    }

    ngx_modelgw_out_text(w->out, "\"}}]}");

    ngx_modelgw_out(w->out, w->tail.data, w->tail.len);
}


/*
 * Clients' accumulators put the entry into the slot of its "index" and
 * concatenate to a slot that exists.  So it is the block's index, or the next
 * free one if blocks have ended in another order than they began.
 */

void
ngx_modelgw_stream_write_thinking(ngx_modelgw_stream_write_t *w,
    ngx_uint_t index, ngx_modelgw_completion_kind_e kind, ngx_str_t *text,
    ngx_str_t *signature)
{
    index = ngx_max(index, w->next_thinking);
    w->next_thinking = index + 1;

    ngx_modelgw_out(w->out, w->head.data, w->head.len);
    ngx_modelgw_out_text(w->out, "{\"thinking_blocks\":[{\"index\":");
    ngx_modelgw_out_number(w->out, index);
    ngx_modelgw_out_text(w->out, ",");
    ngx_modelgw_completion_thinking(w->out, kind, text, signature);
    ngx_modelgw_out_text(w->out, "}]}");
    ngx_modelgw_out(w->out, w->tail.data, w->tail.len);
}


void
ngx_modelgw_stream_write_finish(ngx_modelgw_stream_write_t *w,
    ngx_str_t *reason)
{
    ngx_modelgw_out(w->out, w->head.data, w->head.len);
    ngx_modelgw_out_text(w->out, "{},\"logprobs\":null,\"finish_reason\":\"");
    ngx_modelgw_out(w->out, reason->data, reason->len);

    if (w->c->include_usage) {
        ngx_modelgw_out_text(w->out, "\"}],\"usage\":null}\n\n");

    } else {
        ngx_modelgw_out_text(w->out, "\"}]}\n\n");
    }
}


void
ngx_modelgw_stream_write_usage(ngx_modelgw_stream_write_t *w)
{
    ngx_modelgw_out(w->out, w->head.data, w->top);
    ngx_modelgw_out_text(w->out, "],\"usage\":");
    ngx_modelgw_completion_usage(w->out, w->c->usage);
    ngx_modelgw_out_text(w->out, "}\n\n");
}


/* a text of the current event */

static void
ngx_modelgw_stream_write_text(ngx_modelgw_stream_write_t *w, ngx_str_t *text)
{
    if (w->borrowed) {
        ngx_modelgw_out_borrowed(w->out, text->data, text->len);

    } else {
        ngx_modelgw_out(w->out, text->data, text->len);
    }
}


static void
ngx_modelgw_stream_write_call(ngx_modelgw_stream_write_t *w, ngx_uint_t tool)
{
    ngx_modelgw_out(w->out, w->head.data, w->head.len);
    ngx_modelgw_out_text(w->out, "{\"tool_calls\":[{\"index\":");
    ngx_modelgw_out_number(w->out, tool);
}
