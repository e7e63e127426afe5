
/*
 * The items of a response: a message, reasoning, a call of a tool.
 *
 * An item is written as it comes, as events, and kept as it will be in the last
 * event, which repeats the whole output (clients of the SDKs read the texts
 * from there).  So its bytes are kept once: the open item is the end of the
 * output, and what its last events repeat is a part of that.
 *
 *     {"type":"message",...,"content":[{...,"text":"Hello"}],"status":...}
 *     |                                |            |
 *     from                             part_from    text_from
 *
 * Arguments of a call come in pieces of a JSON string.  Those of a function
 * stay one.  A custom tool has a string instead, which the upstream gives as
 * {"input":"..."}: it is cut out of the arguments when they are complete, and
 * copied as it is between its quotes.  Arguments of another form are the text
 * of that string, so that the client can tell the model.
 *
 * A call whose arguments are no JSON when its block has stopped may have been
 * cut by a limit of tokens.  Clients run what they are given, so it is not done
 * until more has come.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_response_private.h"


#define NGX_MODELGW_RESPONSE_BASE64  768     /* bytes encoded at once; a
                                                multiple of 3 */


struct ngx_modelgw_response_item_s {
    ngx_str_t                    type;       /* up to the id */
    ngx_str_t                    prefix;     /* of the id */
    ngx_str_t                    more;       /* after the id, or before the
                                                name of a tool */
    ngx_str_t                    added;      /* the rest of a new item */
    ngx_str_t                    begin;      /* what follows in the output */
    ngx_str_t                    delta;      /* types of events, */
    ngx_str_t                    done;       /* of calls */
    ngx_str_t                    member;     /* and the member with the text */
};


struct ngx_modelgw_response_part_s {
    ngx_str_t                    added;      /* types of events */
    ngx_str_t                    delta;
    ngx_str_t                    text_done;
    ngx_str_t                    done;
    ngx_str_t                    index;      /* the member with the index */
    ngx_str_t                    begin;      /* of the part, up to its text */
    ngx_str_t                    member;     /* with the text, in text_done */
    ngx_str_t                    more;       /* members of events with text */
};


static ngx_int_t ngx_modelgw_response_item_open(
    ngx_modelgw_response_write_t *w, ngx_modelgw_response_kind_e kind,
    ngx_modelgw_response_item_t *item);
static void ngx_modelgw_response_item_head(ngx_modelgw_response_write_t *w,
    ngx_modelgw_out_t *out);
static void ngx_modelgw_response_item_event(ngx_modelgw_response_write_t *w,
    ngx_str_t *type);
static void ngx_modelgw_response_item_done(ngx_modelgw_response_write_t *w);
static void ngx_modelgw_response_item_delta(ngx_modelgw_response_write_t *w,
    ngx_str_t *text);
static ngx_int_t ngx_modelgw_response_item_seal(
    ngx_modelgw_response_write_t *w);
static ngx_int_t ngx_modelgw_response_part_open(
    ngx_modelgw_response_write_t *w, ngx_modelgw_response_part_t *part);
static ngx_int_t ngx_modelgw_response_part_text(
    ngx_modelgw_response_write_t *w, ngx_str_t *text);
static ngx_int_t ngx_modelgw_response_part_close(
    ngx_modelgw_response_write_t *w);
static ngx_int_t ngx_modelgw_response_tool_done(
    ngx_modelgw_response_write_t *w, ngx_uint_t force);
static ngx_int_t ngx_modelgw_response_tool_replace(
    ngx_modelgw_response_write_t *w, ngx_str_t *doc, ngx_str_t *input);
static ngx_int_t ngx_modelgw_response_tool_read(
    ngx_modelgw_response_write_t *w, ngx_str_t *doc, ngx_str_t *input);
static void ngx_modelgw_response_tool_free(ngx_modelgw_response_write_t *w,
    ngx_str_t *doc);
static ngx_uint_t ngx_modelgw_response_tool_inside(
    ngx_modelgw_response_write_t *w, ngx_str_t *doc);
static ngx_modelgw_responses_tool_t *ngx_modelgw_response_tool_find(
    ngx_modelgw_response_write_t *w, ngx_str_t *name);


static ngx_modelgw_response_item_t  ngx_modelgw_response_message = {
    ngx_string("{\"type\":\"message\",\"id\":\""),
    ngx_string("msg_"),
    ngx_string(",\"role\":\"assistant\""),
    ngx_string(",\"status\":\"in_progress\",\"content\":[]}"),
    ngx_string(",\"content\":["),
    ngx_string(""),
    ngx_string(""),
    ngx_string("")
};


static ngx_modelgw_response_item_t  ngx_modelgw_response_reasoning = {
    ngx_string("{\"type\":\"reasoning\",\"id\":\""),
    ngx_string("rs_"),
    ngx_string(""),
    ngx_string(",\"summary\":[]}"),
    ngx_string(",\"summary\":["),
    ngx_string(""),
    ngx_string(""),
    ngx_string("")
};


/* by NGX_MODELGW_RESPONSES_* */

static ngx_modelgw_response_item_t  ngx_modelgw_response_calls[] = {

    { ngx_string("{\"type\":\"function_call\",\"id\":\""),
      ngx_string("fc_"),
      ngx_string(""),
      ngx_string(",\"arguments\":\"\",\"status\":\"in_progress\"}"),
      ngx_string(",\"arguments\":\""),
      ngx_string("response.function_call_arguments.delta"),
      ngx_string("response.function_call_arguments.done"),
      ngx_string(",\"arguments\":\"") },

    { ngx_string("{\"type\":\"custom_tool_call\",\"id\":\""),
      ngx_string("ctc_"),
      ngx_string(""),
      ngx_string(",\"input\":\"\",\"status\":\"in_progress\"}"),
      ngx_string(",\"input\":\""),
      ngx_string("response.custom_tool_call_input.delta"),
      ngx_string("response.custom_tool_call_input.done"),
      ngx_string(",\"input\":\"") },

    /* without events of its own, so the last two are not used */

    { ngx_string("{\"type\":\"tool_search_call\",\"id\":\""),
      ngx_string("tsc_"),
      ngx_string(",\"execution\":\"client\""),
      ngx_string(",\"arguments\":{},\"status\":\"in_progress\"}"),
      ngx_string(",\"arguments\":\""),
      ngx_string(""),
      ngx_string(""),
      ngx_string("") }
};


static ngx_modelgw_response_part_t  ngx_modelgw_response_part_output = {
    ngx_string("response.content_part.added"),
    ngx_string("response.output_text.delta"),
    ngx_string("response.output_text.done"),
    ngx_string("response.content_part.done"),
    ngx_string(",\"content_index\":"),
    ngx_string("{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],"
               "\"text\":\""),
    ngx_string(",\"text\":\""),
    ngx_string(",\"logprobs\":[]")
};


static ngx_modelgw_response_part_t  ngx_modelgw_response_part_refusal = {
    ngx_string("response.content_part.added"),
    ngx_string("response.refusal.delta"),
    ngx_string("response.refusal.done"),
    ngx_string("response.content_part.done"),
    ngx_string(",\"content_index\":"),
    ngx_string("{\"type\":\"refusal\",\"refusal\":\""),
    ngx_string(",\"refusal\":\""),
    ngx_string("")
};


static ngx_modelgw_response_part_t  ngx_modelgw_response_part_summary = {
    ngx_string("response.reasoning_summary_part.added"),
    ngx_string("response.reasoning_summary_text.delta"),
    ngx_string("response.reasoning_summary_text.done"),
    ngx_string("response.reasoning_summary_part.done"),
    ngx_string(",\"summary_index\":"),
    ngx_string("{\"type\":\"summary_text\",\"text\":\""),
    ngx_string(",\"text\":\""),
    ngx_string("")
};


static ngx_str_t  ngx_modelgw_response_item_added =
    ngx_string("response.output_item.added");
static ngx_str_t  ngx_modelgw_response_item_ended =
    ngx_string("response.output_item.done");


ngx_int_t
ngx_modelgw_response_item_text(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_kind_e kind, ngx_str_t *text)
{
    ngx_modelgw_response_part_t  *part;

    if (w->kind != kind) {
        part = &ngx_modelgw_response_part_output;

        if (kind == NGX_MODELGW_RESPONSE_REFUSAL && w->rs->call->json) {
            part = &ngx_modelgw_response_part_refusal;
        }

        if (ngx_modelgw_response_item_open(w, kind,
                                           &ngx_modelgw_response_message)
            != NGX_OK
            || ngx_modelgw_response_part_open(w, part) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return ngx_modelgw_response_part_text(w, text);
}


ngx_int_t
ngx_modelgw_response_item_thinking(ngx_modelgw_response_write_t *w,
    ngx_str_t *text)
{
    if (w->kind != NGX_MODELGW_RESPONSE_THINKING
        && ngx_modelgw_response_item_open(w, NGX_MODELGW_RESPONSE_THINKING,
                                          &ngx_modelgw_response_reasoning)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (text->len == 0) {
        return NGX_OK;
    }

    if (!w->part_open
        && ngx_modelgw_response_part_open(w, &ngx_modelgw_response_part_summary)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_modelgw_response_part_text(w, text);
}


ngx_int_t
ngx_modelgw_response_item_thinking_stop(ngx_modelgw_response_write_t *w)
{
    return ngx_modelgw_response_part_close(w);
}


ngx_int_t
ngx_modelgw_response_item_tool(ngx_modelgw_response_write_t *w, ngx_str_t *id,
    ngx_str_t *name)
{
    ngx_modelgw_response_item_t  *item;

    /* it describes the open item until that is closed */

    if (ngx_modelgw_response_item_close(w, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    w->broken = 0;
    w->call_id = *id;
    w->tool = ngx_modelgw_response_tool_find(w, name);

    item = &ngx_modelgw_response_calls[w->tool->kind];

    return ngx_modelgw_response_item_open(w, NGX_MODELGW_RESPONSE_TOOL, item);
}


ngx_int_t
ngx_modelgw_response_item_args(ngx_modelgw_response_write_t *w,
    ngx_str_t *text)
{
    ngx_modelgw_out(&w->output.out, text->data, text->len);

    if (w->tool->kind == NGX_MODELGW_RESPONSES_FUNCTION) {
        ngx_modelgw_response_item_delta(w, text);
    }

    return w->output.out.failed ? NGX_ERROR : NGX_OK;
}


ngx_int_t
ngx_modelgw_response_item_tool_stop(ngx_modelgw_response_write_t *w)
{
    ngx_str_t  none;

    if (ngx_modelgw_response_bytes_len(&w->output) == w->text_from) {
        ngx_str_set(&none, "{}");

        if (ngx_modelgw_response_item_args(w, &none) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return ngx_modelgw_response_tool_done(w, 0);
}


ngx_int_t
ngx_modelgw_response_item_whole(ngx_modelgw_response_write_t *w,
    ngx_uint_t *whole)
{
    ngx_int_t  rc;
    ngx_str_t  doc, input;

    /* not worth reading: it may be asked for often */

    if (w->output.piece.last[-1] != '}'
        || w->broken == ngx_modelgw_response_bytes_len(&w->output))
    {
        *whole = 0;
        return NGX_OK;
    }

    rc = ngx_modelgw_response_tool_read(w, &doc, &input);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    *whole = (rc == NGX_OK);

    if (!*whole) {
        w->broken = ngx_modelgw_response_bytes_len(&w->output);
    }

    ngx_modelgw_response_tool_free(w, &doc);

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_response_item_close(ngx_modelgw_response_write_t *w,
    ngx_uint_t incomplete)
{
    switch (w->kind) {

    case NGX_MODELGW_RESPONSE_NONE:
        return NGX_OK;

    case NGX_MODELGW_RESPONSE_TOOL:
        return ngx_modelgw_response_tool_done(w, 1);

    case NGX_MODELGW_RESPONSE_THINKING:

        if (ngx_modelgw_response_part_close(w) != NGX_OK) {
            return NGX_ERROR;
        }

        ngx_modelgw_out_text(&w->output.out, "]");

        if (ngx_modelgw_response_item_seal(w) != NGX_OK) {
            return NGX_ERROR;
        }

        ngx_modelgw_out_text(&w->output.out, "}");
        break;

    default: /* TEXT, REFUSAL */

        if (ngx_modelgw_response_part_close(w) != NGX_OK) {
            return NGX_ERROR;
        }

        ngx_modelgw_out_text(&w->output.out, "],\"status\":");

        if (incomplete) {
            ngx_modelgw_out_text(&w->output.out, "\"incomplete\"}");

        } else {
            ngx_modelgw_out_text(&w->output.out, "\"completed\"}");
        }

        break;
    }

    if (w->output.out.failed) {
        return NGX_ERROR;
    }

    ngx_modelgw_response_item_done(w);

    return NGX_OK;
}


void
ngx_modelgw_response_item_drop(ngx_modelgw_response_write_t *w)
{
    if (w->kind != NGX_MODELGW_RESPONSE_NONE) {
        w->output.piece.last = w->output.piece.start + w->from;
        w->kind = NGX_MODELGW_RESPONSE_NONE;
        w->part_open = 0;
    }
}


/* the index of an item that is dropped is not used again: it was announced */

static ngx_int_t
ngx_modelgw_response_item_open(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_kind_e kind, ngx_modelgw_response_item_t *item)
{
    u_char  *p;

    if (ngx_modelgw_response_item_close(w, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    w->kind = kind;
    w->item = item;
    w->part = NULL;
    w->nparts = 0;
    w->index = w->nitems++;
    w->from = ngx_modelgw_response_bytes_len(&w->output);

    p = ngx_sprintf(w->id_buf, "%V%V_%ui", &item->prefix, &w->base, w->index);

    w->id.data = w->id_buf;
    w->id.len = p - w->id_buf;

    if (w->from) {
        ngx_modelgw_out_text(&w->output.out, ",");
    }

    ngx_modelgw_response_item_head(w, &w->output.out);
    ngx_modelgw_out(&w->output.out, item->begin.data, item->begin.len);

    w->text_from = ngx_modelgw_response_bytes_len(&w->output);

    if (!w->events) {
        return w->output.out.failed ? NGX_ERROR : NGX_OK;
    }

    ngx_modelgw_response_event(w, &ngx_modelgw_response_item_added);
    ngx_modelgw_out_text(w->out, ",\"output_index\":");
    ngx_modelgw_out_number(w->out, w->index);
    ngx_modelgw_out_text(w->out, ",\"item\":");
    ngx_modelgw_response_item_head(w, w->out);
    ngx_modelgw_out(w->out, item->added.data, item->added.len);
    ngx_modelgw_out_text(w->out, "}\n\n");

    p = ngx_sprintf(w->delta_buf,
                    "event: %V\ndata: {\"type\":\"%V\",\"item_id\":\"%V\","
                    "\"output_index\":%ui,\"sequence_number\":",
                    &item->delta, &item->delta, &w->id, w->index);

    w->delta.data = w->delta_buf;
    w->delta.len = p - w->delta_buf;

    return w->output.out.failed ? NGX_ERROR : NGX_OK;
}


static void
ngx_modelgw_response_item_head(ngx_modelgw_response_write_t *w,
    ngx_modelgw_out_t *out)
{
    ngx_modelgw_out(out, w->item->type.data, w->item->type.len);
    ngx_modelgw_out(out, w->id.data, w->id.len);
    ngx_modelgw_out_text(out, "\"");
    ngx_modelgw_out(out, w->item->more.data, w->item->more.len);

    if (w->kind != NGX_MODELGW_RESPONSE_TOOL) {
        return;
    }

    ngx_modelgw_out_text(out, ",\"call_id\":\"");

    if (w->call_id.len) {
        ngx_modelgw_out(out, w->call_id.data, w->call_id.len);

    } else {
        ngx_modelgw_out_text(out, "call_");
        ngx_modelgw_out(out, w->id.data, w->id.len);
    }

    ngx_modelgw_out_text(out, "\"");

    if (w->tool->kind == NGX_MODELGW_RESPONSES_SEARCH) {
        return;
    }

    ngx_modelgw_out_text(out, ",\"name\":\"");
    ngx_modelgw_out(out, w->tool->name.data, w->tool->name.len);

    if (w->tool->space.len) {
        ngx_modelgw_out_text(out, "\",\"namespace\":\"");
        ngx_modelgw_out(out, w->tool->space.data, w->tool->space.len);
    }

    ngx_modelgw_out_text(out, "\"");
}


/* the start of an event about the open item */

static void
ngx_modelgw_response_item_event(ngx_modelgw_response_write_t *w,
    ngx_str_t *type)
{
    ngx_modelgw_response_event(w, type);

    ngx_modelgw_out_text(w->out, ",\"item_id\":\"");
    ngx_modelgw_out(w->out, w->id.data, w->id.len);
    ngx_modelgw_out_text(w->out, "\",\"output_index\":");
    ngx_modelgw_out_number(w->out, w->index);
}


static void
ngx_modelgw_response_item_done(ngx_modelgw_response_write_t *w)
{
    u_char  *p;

    w->kind = NGX_MODELGW_RESPONSE_NONE;

    if (!w->events) {
        return;
    }

    /* without the comma */

    p = w->output.piece.start + w->from;
    p += (w->from != 0);

    ngx_modelgw_response_event(w, &ngx_modelgw_response_item_ended);

    ngx_modelgw_out_text(w->out, ",\"output_index\":");
    ngx_modelgw_out_number(w->out, w->index);
    ngx_modelgw_out_text(w->out, ",\"item\":");
    ngx_modelgw_out(w->out, p, w->output.piece.last - p);
    ngx_modelgw_out_text(w->out, "}\n\n");
}


static void
ngx_modelgw_response_item_delta(ngx_modelgw_response_write_t *w,
    ngx_str_t *text)
{
    if (!w->events) {
        return;
    }

    ngx_modelgw_out(w->out, w->delta.data, w->delta.len);
    ngx_modelgw_out_number(w->out, w->seq++);
    ngx_modelgw_out_text(w->out, ",\"delta\":\"");

    if (w->borrowed) {
        ngx_modelgw_out_borrowed(w->out, text->data, text->len);

    } else {
        ngx_modelgw_out(w->out, text->data, text->len);
    }

    ngx_modelgw_out_text(w->out, "\"}\n\n");
}


/*
 * What the upstream wants back, for the client to keep: the array of blocks,
 * which no other gateway mistakes for its own.
 */

static ngx_int_t
ngx_modelgw_response_item_seal(ngx_modelgw_response_write_t *w)
{
    u_char     *p, buf[ngx_base64_encoded_length(NGX_MODELGW_RESPONSE_BASE64)];
    ngx_str_t   src, dst;

    if (ngx_modelgw_response_bytes_len(&w->seal) == 0) {
        return NGX_OK;
    }

    ngx_modelgw_out_text(&w->seal.out, "}]");

    if (w->seal.out.failed) {
        return NGX_ERROR;
    }

    ngx_modelgw_out_text(&w->output.out, ",\"encrypted_content\":\""
                                         NGX_MODELGW_RESPONSES_SEAL);

    dst.data = buf;

    for (p = w->seal.piece.start; p < w->seal.piece.last; p += src.len) {
        src.data = p;
        src.len = ngx_min(w->seal.piece.last - p, NGX_MODELGW_RESPONSE_BASE64);

        ngx_encode_base64url(&dst, &src);

        ngx_modelgw_out(&w->output.out, dst.data, dst.len);
    }

    ngx_modelgw_out_text(&w->output.out, "\"");

    ngx_modelgw_response_bytes_free(w, &w->seal);

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_response_part_open(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_part_t *part)
{
    u_char  *p;

    if (w->nparts) {
        ngx_modelgw_out_text(&w->output.out, ",");
    }

    w->part = part;
    w->part_open = 1;
    w->part_from = ngx_modelgw_response_bytes_len(&w->output);

    ngx_modelgw_out(&w->output.out, part->begin.data, part->begin.len);

    w->text_from = ngx_modelgw_response_bytes_len(&w->output);

    if (w->output.out.failed) {
        return NGX_ERROR;
    }

    if (!w->events) {
        return NGX_OK;
    }

    ngx_modelgw_response_item_event(w, &part->added);
    ngx_modelgw_out(w->out, part->index.data, part->index.len);
    ngx_modelgw_out_number(w->out, w->nparts);
    ngx_modelgw_out_text(w->out, ",\"part\":");
    ngx_modelgw_out(w->out, part->begin.data, part->begin.len);
    ngx_modelgw_out_text(w->out, "\"}}\n\n");

    p = ngx_sprintf(w->delta_buf,
                    "event: %V\ndata: {\"type\":\"%V\",\"item_id\":\"%V\","
                    "\"output_index\":%ui%V%ui%V,\"sequence_number\":",
                    &part->delta, &part->delta, &w->id, w->index,
                    &part->index, w->nparts, &part->more);

    w->delta.data = w->delta_buf;
    w->delta.len = p - w->delta_buf;

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_response_part_text(ngx_modelgw_response_write_t *w,
    ngx_str_t *text)
{
    ngx_modelgw_out(&w->output.out, text->data, text->len);

    if (w->output.out.failed) {
        return NGX_ERROR;
    }

    ngx_modelgw_response_item_delta(w, text);

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_response_part_close(ngx_modelgw_response_write_t *w)
{
    size_t                        len;
    u_char                       *start;
    ngx_modelgw_response_part_t  *part;

    if (!w->part_open) {
        return NGX_OK;
    }

    len = ngx_modelgw_response_bytes_len(&w->output) - w->text_from;

    ngx_modelgw_out_text(&w->output.out, "\"}");

    if (w->output.out.failed) {
        return NGX_ERROR;
    }

    part = w->part;
    w->part_open = 0;

    if (w->events) {
        start = w->output.piece.start;

        ngx_modelgw_response_item_event(w, &part->text_done);
        ngx_modelgw_out(w->out, part->index.data, part->index.len);
        ngx_modelgw_out_number(w->out, w->nparts);
        ngx_modelgw_out(w->out, part->member.data, part->member.len);
        ngx_modelgw_out(w->out, start + w->text_from, len);
        ngx_modelgw_out_text(w->out, "\"");
        ngx_modelgw_out(w->out, part->more.data, part->more.len);
        ngx_modelgw_out_text(w->out, "}\n\n");

        ngx_modelgw_response_item_event(w, &part->done);
        ngx_modelgw_out(w->out, part->index.data, part->index.len);
        ngx_modelgw_out_number(w->out, w->nparts);
        ngx_modelgw_out_text(w->out, ",\"part\":");
        ngx_modelgw_out(w->out, start + w->part_from,
                        w->output.piece.last - start - w->part_from);
        ngx_modelgw_out_text(w->out, "}\n\n");
    }

    w->nparts++;

    return NGX_OK;
}


/*
 * Closes a call.  Without force a call stays open if its arguments are not one
 * JSON object.
 */

static ngx_int_t
ngx_modelgw_response_tool_done(ngx_modelgw_response_write_t *w,
    ngx_uint_t force)
{
    ngx_int_t   rc;
    ngx_str_t   doc, input, text;

    rc = ngx_modelgw_response_tool_read(w, &doc, &input);

    if (rc == NGX_DECLINED && !force) {
        ngx_modelgw_response_tool_free(w, &doc);
        return NGX_OK;
    }

    if (rc == NGX_OK) {
        rc = ngx_modelgw_response_tool_replace(w, &doc, &input);
    }

    ngx_modelgw_response_tool_free(w, &doc);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    text.len = ngx_modelgw_response_bytes_len(&w->output) - w->text_from;

    if (rc != NGX_DONE) {
        ngx_modelgw_out_text(&w->output.out, "\"");
    }

    ngx_modelgw_out_text(&w->output.out, ",\"status\":\"completed\"}");

    if (w->output.out.failed) {
        return NGX_ERROR;
    }

    text.data = w->output.piece.start + w->text_from;

    if (w->events && w->item->done.len) {

        if (w->tool->kind == NGX_MODELGW_RESPONSES_CUSTOM && text.len) {
            w->borrowed = 0;
            ngx_modelgw_response_item_delta(w, &text);
        }

        ngx_modelgw_response_item_event(w, &w->item->done);

        if (w->tool->kind == NGX_MODELGW_RESPONSES_FUNCTION) {
            ngx_modelgw_out_text(w->out, ",\"name\":\"");
            ngx_modelgw_out(w->out, w->tool->name.data, w->tool->name.len);
            ngx_modelgw_out_text(w->out, "\"");
        }

        ngx_modelgw_out(w->out, w->item->member.data, w->item->member.len);
        ngx_modelgw_out(w->out, text.data, text.len);
        ngx_modelgw_out_text(w->out, "\"}\n\n");
    }

    ngx_modelgw_response_item_done(w);

    return NGX_OK;
}


/*
 * Makes what the client gets of the arguments, which are one JSON object.
 *     NGX_OK        a string, still without its closing quote
 *     NGX_DONE      an object
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_modelgw_response_tool_replace(ngx_modelgw_response_write_t *w,
    ngx_str_t *doc, ngx_str_t *input)
{
    u_char  *p, *last;

    switch (w->tool->kind) {

    case NGX_MODELGW_RESPONSES_CUSTOM:

        if (input->data == NULL) {
            return NGX_OK;
        }

        w->output.piece.last = w->output.piece.start + w->text_from;
        ngx_modelgw_out(&w->output.out, input->data, input->len);

        return w->output.out.failed ? NGX_ERROR : NGX_OK;

    case NGX_MODELGW_RESPONSES_SEARCH:

        /* an object without strings has no members */

        if (ngx_modelgw_response_tool_inside(w, doc)) {
            w->output.piece.last = w->output.piece.start + w->text_from - 1;
            ngx_modelgw_out_text(&w->output.out, "{}");

            return w->output.out.failed ? NGX_ERROR : NGX_DONE;
        }

        /* white space between the values, which would end the event */

        last = doc->data + doc->len;

        for (p = doc->data; p < last; p++) {
            if (*p == LF || *p == CR) {
                *p = ' ';
            }
        }

        /* with the quote */

        w->output.piece.last = w->output.piece.start + w->text_from - 1;
        ngx_modelgw_out(&w->output.out, doc->data, doc->len);

        return w->output.out.failed ? NGX_ERROR : NGX_DONE;

    default: /* NGX_MODELGW_RESPONSES_FUNCTION */
        return NGX_OK;
    }
}


/*
 * Reads the arguments of the open call: doc is set to the text of the string,
 * input to the inside of the string that is its member "input", or to NULL.
 *     NGX_OK        they are one JSON object
 *     NGX_DECLINED  they are not
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_modelgw_response_tool_read(ngx_modelgw_response_write_t *w, ngx_str_t *doc,
    ngx_str_t *input)
{
    ngx_modelgw_node_t         node;
    ngx_modelgw_tape_t         tape;
    ngx_modelgw_scan_value_t  *value;

    ngx_str_null(input);

    /* the string as the only node of a tape; its closing quote is not read */

    ngx_memzero(&node, sizeof(ngx_modelgw_node_t));

    tape.base = w->output.piece.start + w->text_from - 1;
    node.type = NGX_MODELGW_TAPE_STRING;
    node.to = w->output.piece.last - tape.base + 1;

    if (ngx_modelgw_tape_text(&tape, w->pool, &node, doc) != NGX_OK) {
        ngx_str_null(doc);
        return NGX_ERROR;
    }

    if (w->scan == NULL) {
        w->scan = ngx_modelgw_scan_create(w->pool, &w->scan_conf);
        if (w->scan == NULL) {
            return NGX_ERROR;
        }

    } else {
        ngx_modelgw_scan_reset(w->scan);
    }

    if (ngx_modelgw_scan_feed(w->scan, doc->data, doc->len) != NGX_OK
        || ngx_modelgw_scan_done(w->scan) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    value = ngx_modelgw_scan_value(w->scan, 0);

    if (value->type == NGX_MODELGW_SCAN_STRING) {
        input->data = doc->data + value->from + 1;
        input->len = value->to - value->from - 2;
    }

    return NGX_OK;
}


static void
ngx_modelgw_response_tool_free(ngx_modelgw_response_write_t *w, ngx_str_t *doc)
{
    if (doc->data && !ngx_modelgw_response_tool_inside(w, doc)) {
        (void) ngx_pfree(w->pool, doc->data);
    }
}


/* without escapes the text is in the output itself */

static ngx_uint_t
ngx_modelgw_response_tool_inside(ngx_modelgw_response_write_t *w,
    ngx_str_t *doc)
{
    return doc->data >= w->output.piece.start
           && doc->data < w->output.piece.end;
}


/* a tool that was not declared is a function */

static ngx_modelgw_responses_tool_t *
ngx_modelgw_response_tool_find(ngx_modelgw_response_write_t *w,
    ngx_str_t *name)
{
    ngx_uint_t                     i;
    ngx_modelgw_responses_tool_t  *tool;

    tool = w->rs->call->tools.elts;

    for (i = 0; i < w->rs->call->tools.nelts; i++) {

        if (tool[i].upstream.len == name->len
            && ngx_memcmp(tool[i].upstream.data, name->data, name->len) == 0)
        {
            return &tool[i];
        }
    }

    ngx_memzero(&w->unknown, sizeof(ngx_modelgw_responses_tool_t));
    w->unknown.name = *name;

    return &w->unknown;
}
