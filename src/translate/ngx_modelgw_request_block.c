
/*
 * Blocks: how they are made and how they are written.  Each kind has one
 * function that writes it, up to the members that all kinds share.
 *
 * Texts are written as they stand between the quotes of the client's document:
 * both documents are JSON, so an escape means the same in ours.  That goes for
 * escapes of lone surrogates, too: they are plain ASCII here, and what they
 * mean is for the upstream to say.  Rejected: to unescape and escape again,
 * which is slower, and where gateways lose or double bytes.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


static size_t ngx_modelgw_request_block_space(ngx_str_t *text);
static void ngx_modelgw_request_block_write_text(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out);
static void ngx_modelgw_request_block_write_image(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out);
static void ngx_modelgw_request_block_write_document(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out);
static void ngx_modelgw_request_block_write_source(
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out);
static void ngx_modelgw_request_block_write_thinking(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out);
static void ngx_modelgw_request_block_write_redacted(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out);
static void ngx_modelgw_request_block_write_call(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out);
static void ngx_modelgw_request_block_write_result(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out);


typedef void (*ngx_modelgw_request_block_pt)(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out);


/* by kind */

static ngx_modelgw_request_block_pt  ngx_modelgw_request_block_writers[] = {
    ngx_modelgw_request_block_write_text,
    ngx_modelgw_request_block_write_image,
    ngx_modelgw_request_block_write_document,
    ngx_modelgw_request_block_write_thinking,
    ngx_modelgw_request_block_write_redacted,
    ngx_modelgw_request_block_write_call,
    ngx_modelgw_request_block_write_result
};


/* a member that is a string: before ends in its first quote */

#define ngx_modelgw_request_block_string(out, before, text)                   \
    ngx_modelgw_out_text(out, before);                                        \
    ngx_modelgw_out_borrowed(out, (text)->data, (text)->len);                 \
    ngx_modelgw_out_text(out, "\"")


ngx_modelgw_request_block_t *
ngx_modelgw_request_block(ngx_array_t *blocks, ngx_uint_t kind)
{
    ngx_modelgw_request_block_t  *block;

    block = ngx_array_push(blocks);
    if (block == NULL) {
        return NULL;
    }

    ngx_memzero(block, sizeof(ngx_modelgw_request_block_t));
    block->kind = kind;

    return block;
}


ngx_int_t
ngx_modelgw_request_block_text(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *text, ngx_array_t *blocks)
{
    ngx_modelgw_request_block_t  *block;

    if (ngx_modelgw_tape_blank(w->rq->tape, text)) {
        return NGX_OK;
    }

    block = ngx_modelgw_request_block(blocks, NGX_MODELGW_BLOCK_TEXT);
    if (block == NULL) {
        return NGX_ERROR;
    }

    ngx_modelgw_tape_inside(w->rq->tape, text, &block->value);

    return NGX_OK;
}


/* the upstream does not take cache_control on thinking */

void
ngx_modelgw_request_block_cache(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *obj, ngx_modelgw_request_block_t *block)
{
    if (block->kind == NGX_MODELGW_BLOCK_THINKING
        || block->kind == NGX_MODELGW_BLOCK_REDACTED)
    {
        return;
    }

    block->cache_control = ngx_modelgw_request_cache_control(w->rq, obj);
}


void
ngx_modelgw_request_block_trim(ngx_str_t *text)
{
    size_t  n;

    do {
        n = ngx_modelgw_request_block_space(text);
        text->len -= n;

    } while (n);
}


/*
 * How many bytes at the end of the inside of a string are white space: a space,
 * one of \t \n \f \r, or a \u escape of these or of \v; 0: none.  It is an
 * escape only if the backslash is not escaped itself.
 */

static size_t
ngx_modelgw_request_block_space(ngx_str_t *text)
{
    size_t      n;
    u_char     *p, *last;
    ngx_int_t   unit;

    p = text->data;
    last = p + text->len;

    if (text->len == 0) {
        return 0;
    }

    if (last[-1] == ' ') {
        return 1;
    }

    if (text->len >= 2 && last[-2] == '\\'
        && ngx_strchr("tnfr", last[-1]) != NULL)
    {
        n = 2;

    } else if (text->len >= 6 && last[-6] == '\\' && last[-5] == 'u') {
        unit = ngx_hextoi(last - 4, 4);

        if (unit != ' ' && (unit < '\t' || unit > '\r')) {
            return 0;
        }

        n = 6;

    } else {
        return 0;
    }

    for (p = last - n; p > text->data && p[-1] == '\\'; p--) { /* void */ }

    return ((last - n - p) % 2 == 0) ? n : 0;
}


ngx_modelgw_node_t *
ngx_modelgw_request_cache_control(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *obj)
{
    ngx_modelgw_node_t  *node, *type;

    node = ngx_modelgw_request_member(rq, obj, "cache_control");
    type = ngx_modelgw_request_member(rq, node, "type");

    return ngx_modelgw_tape_is(rq->tape, type, "ephemeral") ? node : NULL;
}


void
ngx_modelgw_request_cache_control_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_node_t *cache_control, ngx_modelgw_out_t *out)
{
    ngx_str_t            text;
    ngx_modelgw_node_t  *ttl;

    if (cache_control == NULL) {
        return;
    }

    ngx_modelgw_out_text(out, ",\"cache_control\":{\"type\":\"ephemeral\"");

    ttl = ngx_modelgw_request_member(rq, cache_control, "ttl");

    if (ngx_modelgw_request_string(ttl)) {
        ngx_modelgw_tape_raw(rq->tape, ttl, &text);

        ngx_modelgw_out_text(out, ",\"ttl\":");
        ngx_modelgw_out_borrowed(out, text.data, text.len);
    }

    ngx_modelgw_out_text(out, "}");
}


void
ngx_modelgw_request_blocks_write(ngx_modelgw_request_t *rq,
    ngx_array_t *blocks, ngx_modelgw_out_t *out)
{
    ngx_uint_t                    i;
    ngx_modelgw_request_block_t  *block;

    block = blocks->elts;

    for (i = 0; i < blocks->nelts; i++) {

        if (i) {
            ngx_modelgw_out_text(out, ",");
        }

        ngx_modelgw_request_block_writers[block[i].kind](rq, &block[i], out);
        ngx_modelgw_request_cache_control_write(rq, block[i].cache_control,
                                                out);
        ngx_modelgw_out_text(out, "}");
    }
}


static void
ngx_modelgw_request_block_write_text(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out)
{
    ngx_modelgw_request_block_string(out, "{\"type\":\"text\",\"text\":\"",
                                     &block->value);
}


static void
ngx_modelgw_request_block_write_image(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out)
{
    ngx_modelgw_out_text(out, "{\"type\":\"image\",\"source\":");
    ngx_modelgw_request_block_write_source(block, out);
}


static void
ngx_modelgw_request_block_write_document(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out)
{
    ngx_modelgw_out_text(out, "{\"type\":\"document\",\"source\":");
    ngx_modelgw_request_block_write_source(block, out);

    if (block->name.len) {
        ngx_modelgw_request_block_string(out, ",\"title\":\"", &block->name);
    }
}


static void
ngx_modelgw_request_block_write_source(ngx_modelgw_request_block_t *block,
    ngx_modelgw_out_t *out)
{
    switch (block->source) {

    case NGX_MODELGW_SOURCE_URL:
        ngx_modelgw_request_block_string(out,
                                         "{\"type\":\"url\",\"url\":\"",
                                         &block->value);
        break;

    case NGX_MODELGW_SOURCE_PLAIN:
        ngx_modelgw_out_text(out, "{\"type\":\"text\",\"media_type\":"
                                  "\"text/plain\",\"data\":\"");
        ngx_modelgw_out_escaped(out, block->value.data, block->value.len);
        ngx_modelgw_out_text(out, "\"");
        break;

    default: /* NGX_MODELGW_SOURCE_BASE64 */
        ngx_modelgw_request_block_string(out, "{\"type\":\"base64\","
                                              "\"media_type\":\"",
                                         block->media);
        ngx_modelgw_request_block_string(out, ",\"data\":\"", &block->value);
        break;
    }

    ngx_modelgw_out_text(out, "}");
}


static void
ngx_modelgw_request_block_write_thinking(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out)
{
    ngx_modelgw_request_block_string(out, "{\"type\":\"thinking\","
                                          "\"thinking\":\"",
                                     &block->value);
    ngx_modelgw_request_block_string(out, ",\"signature\":\"", &block->name);
}


static void
ngx_modelgw_request_block_write_redacted(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out)
{
    ngx_modelgw_request_block_string(out, "{\"type\":\"redacted_thinking\","
                                          "\"data\":\"",
                                     &block->value);
}


static void
ngx_modelgw_request_block_write_call(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out)
{
    ngx_modelgw_request_block_string(out, "{\"type\":\"tool_use\",\"id\":\"",
                                     &block->id);
    ngx_modelgw_request_block_string(out, ",\"name\":\"", &block->name);

    ngx_modelgw_out_text(out, ",\"input\":");
    ngx_modelgw_out_borrowed(out, block->value.data, block->value.len);
}


static void
ngx_modelgw_request_block_write_result(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out)
{
    ngx_modelgw_request_block_string(out, "{\"type\":\"tool_result\","
                                          "\"tool_use_id\":\"",
                                     &block->id);

    if (block->content) {
        ngx_modelgw_out_text(out, ",\"content\":[");
        ngx_modelgw_request_blocks_write(rq, block->content, out);
        ngx_modelgw_out_text(out, "]");

    } else if (block->value.len) {
        ngx_modelgw_request_block_string(out, ",\"content\":\"",
                                         &block->value);
    }

    if (block->is_error) {
        ngx_modelgw_out_text(out, ",\"is_error\":true");
    }
}
