
/*
 * Parts of content, and the blocks that they become.
 *
 * One table lists the types of parts, who may use them and what reads them; any
 * other type is refused by name.  Dropping what is not understood would be
 * worse: the model would talk about an image that it never got.  A part becomes
 * one block, or none: a blank text, thinking without a signature.
 *
 * Texts are written as they are between the quotes of the client's document:
 * both documents are JSON, so escapes mean the same.  This includes escapes of
 * lone surrogates: they are plain ASCII here, their meaning is up to the
 * upstream.
 *
 * Rejected: unescaping and escaping again, which is slower, and where gateways
 * lose or double bytes.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"


typedef struct {
    const char           *type;
    ngx_uint_t            bit;
    ngx_int_t           (*read)(ngx_modelgw_request_walk_t *w,
                                ngx_modelgw_node_t *part, ngx_array_t *blocks);
} ngx_modelgw_request_part_type_t;


typedef void (*ngx_modelgw_request_block_pt)(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out);


static ngx_int_t ngx_modelgw_request_part_type(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *type, ngx_uint_t accepted,
    ngx_modelgw_request_part_type_t **found);
static ngx_int_t ngx_modelgw_request_part_text(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_part_refusal(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_node_t *part,
    ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_part_string(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, const char *member, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_part_image(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_part_file(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_part_input_image(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_node_t *part,
    ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_part_input_file(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_node_t *part,
    ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_part_file_read(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_node_t *file,
    const char *id_member, const char *data_member, ngx_array_t *blocks);
static ngx_modelgw_request_block_t *ngx_modelgw_request_part_document(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_node_t *file,
    ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_part_redacted(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_node_t *block,
    ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_part_unsupported(
    ngx_modelgw_request_walk_t *w, const char *member, ngx_str_t *text,
    const char *fault);
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
static void ngx_modelgw_request_block_write_sealed(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out);
static void ngx_modelgw_request_block_write_call(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out);
static void ngx_modelgw_request_block_write_result(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out);


static ngx_modelgw_request_part_type_t  ngx_modelgw_request_part_types[] = {

    { "text", NGX_MODELGW_PART_TEXT, ngx_modelgw_request_part_text },

    { "image_url", NGX_MODELGW_PART_MEDIA, ngx_modelgw_request_part_image },

    { "file", NGX_MODELGW_PART_MEDIA, ngx_modelgw_request_part_file },

    { "refusal", NGX_MODELGW_PART_REFUSAL, ngx_modelgw_request_part_refusal },

    { "thinking", NGX_MODELGW_PART_THINKING,
      ngx_modelgw_request_part_thinking_block },

    { "redacted_thinking", NGX_MODELGW_PART_THINKING,
      ngx_modelgw_request_part_thinking_block },

    { "input_text", NGX_MODELGW_PART_INPUT_TEXT,
      ngx_modelgw_request_part_text },

    { "output_text", NGX_MODELGW_PART_INPUT_TEXT,
      ngx_modelgw_request_part_text },

    { "input_image", NGX_MODELGW_PART_INPUT_MEDIA,
      ngx_modelgw_request_part_input_image },

    { "input_file", NGX_MODELGW_PART_INPUT_MEDIA,
      ngx_modelgw_request_part_input_file },

    { NULL, 0, NULL }
};


/* by kind of block */

static ngx_modelgw_request_block_pt  ngx_modelgw_request_block_writers[] = {
    ngx_modelgw_request_block_write_text,
    ngx_modelgw_request_block_write_image,
    ngx_modelgw_request_block_write_document,
    ngx_modelgw_request_block_write_thinking,
    ngx_modelgw_request_block_write_redacted,
    ngx_modelgw_request_block_write_sealed,
    ngx_modelgw_request_block_write_call,
    ngx_modelgw_request_block_write_result
};


ngx_int_t
ngx_modelgw_request_part(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_uint_t accepted, ngx_array_t *blocks)
{
    ngx_int_t                         rc;
    ngx_uint_t                        n;
    ngx_modelgw_node_t               *node;
    ngx_modelgw_request_block_t      *block;
    ngx_modelgw_request_part_type_t  *type;

    if (part->type != NGX_MODELGW_TAPE_OBJECT) {
        return ngx_modelgw_request_part_invalid(w, "",
                                                " is not an object");
    }

    type = NULL;
    node = ngx_modelgw_request_member(w->rq, part, "type");

    rc = ngx_modelgw_request_part_type(w, node, accepted, &type);
    if (rc != NGX_OK) {
        return rc;
    }

    n = blocks->nelts;

    rc = type->read(w, part, blocks);
    if (rc != NGX_OK) {
        return rc;
    }

    if (blocks->nelts > n) {
        block = blocks->elts;
        ngx_modelgw_request_block_cache(w, part, &block[n]);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_part_type(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *type, ngx_uint_t accepted,
    ngx_modelgw_request_part_type_t **found)
{
    ngx_str_t                         text;
    ngx_modelgw_request_part_type_t  *t;

    if (!ngx_modelgw_request_string(type)) {
        return ngx_modelgw_request_part_invalid(w, ".type",
                                                " is not a string");
    }

    for (t = ngx_modelgw_request_part_types; t->type; t++) {

        if ((t->bit & accepted)
            && ngx_modelgw_tape_is(w->rq->tape, type, t->type))
        {
            *found = t;
            return NGX_OK;
        }
    }

    if (ngx_modelgw_request_quote(w->rq, type, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_modelgw_request_part_unsupported(w, ".type", &text,
                                                " is not supported here");
}


static ngx_int_t
ngx_modelgw_request_part_text(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_array_t *blocks)
{
    return ngx_modelgw_request_part_string(w, part, ".text", blocks);
}


static ngx_int_t
ngx_modelgw_request_part_refusal(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_array_t *blocks)
{
    return ngx_modelgw_request_part_string(w, part, ".refusal", blocks);
}


/* appends the text of a member: ".text", ".refusal", as messages name it */

static ngx_int_t
ngx_modelgw_request_part_string(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, const char *member, ngx_array_t *blocks)
{
    ngx_modelgw_node_t  *text;

    text = ngx_modelgw_request_member(w->rq, part, member + 1);

    if (!ngx_modelgw_request_string(text)) {
        return ngx_modelgw_request_part_invalid(w, member,
                                                " is not a string");
    }

    return ngx_modelgw_request_block_text(w, text, blocks);
}


static ngx_int_t
ngx_modelgw_request_part_image(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_array_t *blocks)
{
    ngx_modelgw_node_t           *url;
    ngx_modelgw_request_block_t  *block;

    url = ngx_modelgw_request_member(w->rq, part, "image_url");
    url = ngx_modelgw_request_member(w->rq, url, "url");

    if (!ngx_modelgw_request_string(url)) {
        return ngx_modelgw_request_part_invalid(w, ".image_url.url",
                                                " is not a string");
    }

    block = ngx_modelgw_request_block(blocks, NGX_MODELGW_BLOCK_IMAGE);
    if (block == NULL) {
        return NGX_ERROR;
    }

    w->member = ".image_url.url";

    return ngx_modelgw_request_source(w, url, 0, block);
}


/* of responses: the URL is a string, not an object */

static ngx_int_t
ngx_modelgw_request_part_input_image(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_array_t *blocks)
{
    ngx_modelgw_node_t           *id, *url, *detail;
    ngx_modelgw_request_block_t  *block;

    id = ngx_modelgw_request_member(w->rq, part, "file_id");
    url = ngx_modelgw_request_member(w->rq, part, "image_url");
    detail = ngx_modelgw_request_member(w->rq, part, "detail");

    if (!ngx_modelgw_request_absent(id)) {
        return ngx_modelgw_request_part_unsupported(w, ".file_id", NULL,
                                             " is not supported, use"
                                             " image_url");
    }

    if (!ngx_modelgw_request_string(url)) {
        return ngx_modelgw_request_part_invalid(w, ".image_url",
                                                " is not a string");
    }

    block = ngx_modelgw_request_block(blocks, NGX_MODELGW_BLOCK_IMAGE);
    if (block == NULL) {
        return NGX_ERROR;
    }

    if (!w->chat) {
        w->member = ".image_url";
        return ngx_modelgw_request_source(w, url, 0, block);
    }

    ngx_modelgw_tape_inside(w->rq->tape, url, &block->value);

    /* chat has no "original" */

    if (ngx_modelgw_request_string(detail)
        && !ngx_modelgw_tape_is(w->rq->tape, detail, "original"))
    {
        ngx_modelgw_tape_inside(w->rq->tape, detail, &block->name);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_part_file(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_array_t *blocks)
{
    return ngx_modelgw_request_part_file_read(w,
                                ngx_modelgw_request_member(w->rq, part, "file"),
                                ".file.file_id", ".file.file_data", blocks);
}


/* of responses */

static ngx_int_t
ngx_modelgw_request_part_input_file(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_array_t *blocks)
{
    ngx_modelgw_node_t           *url;
    ngx_modelgw_request_block_t  *block;

    url = ngx_modelgw_request_member(w->rq, part, "file_url");

    if (ngx_modelgw_request_absent(url)) {
        return ngx_modelgw_request_part_file_read(w, part, ".file_id",
                                                  ".file_data", blocks);
    }

    if (w->chat) {
        return ngx_modelgw_request_part_unsupported(w, ".file_url", NULL,
                                             " is not supported, use"
                                             " file_data");
    }

    if (url->type != NGX_MODELGW_TAPE_STRING) {
        return ngx_modelgw_request_part_invalid(w, ".file_url",
                                                " is not a string");
    }

    block = ngx_modelgw_request_part_document(w, part, blocks);
    if (block == NULL) {
        return NGX_ERROR;
    }

    w->member = ".file_url";

    return ngx_modelgw_request_source_url(w, url, block);
}


static ngx_int_t
ngx_modelgw_request_part_file_read(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *file, const char *id_member, const char *data_member,
    ngx_array_t *blocks)
{
    ngx_modelgw_node_t           *id, *data;
    ngx_modelgw_request_block_t  *block;

    id = ngx_modelgw_request_member(w->rq, file, "file_id");
    data = ngx_modelgw_request_member(w->rq, file, "file_data");

    if (!ngx_modelgw_request_absent(id)) {
        return ngx_modelgw_request_part_unsupported(w, id_member, NULL,
                                             " is not supported, use"
                                             " file_data");
    }

    if (!ngx_modelgw_request_string(data)) {
        return ngx_modelgw_request_part_invalid(w, data_member,
                                                " is not a string");
    }

    block = ngx_modelgw_request_part_document(w, file, blocks);
    if (block == NULL) {
        return NGX_ERROR;
    }

    if (w->chat) {
        ngx_modelgw_tape_inside(w->rq->tape, data, &block->value);
        return NGX_OK;
    }

    w->member = data_member;

    return ngx_modelgw_request_source(w, data, 1, block);
}


/* appends a document, which has the name of the file */

static ngx_modelgw_request_block_t *
ngx_modelgw_request_part_document(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *file, ngx_array_t *blocks)
{
    ngx_modelgw_node_t           *name;
    ngx_modelgw_request_block_t  *block;

    name = ngx_modelgw_request_member(w->rq, file, "filename");

    block = ngx_modelgw_request_block(blocks, NGX_MODELGW_BLOCK_DOCUMENT);

    if (block
        && ngx_modelgw_request_string(name)
        && !ngx_modelgw_tape_blank(w->rq->tape, name))
    {
        ngx_modelgw_tape_inside(w->rq->tape, name, &block->name);
    }

    return block;
}


/*
 * A thinking or redacted_thinking block as the upstream made it, or with member
 * names that some clients use: text, redacted_content.
 */

ngx_int_t
ngx_modelgw_request_part_thinking_block(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *block, ngx_array_t *blocks)
{
    ngx_modelgw_node_t  *type, *text, *signature;

    type = ngx_modelgw_request_member(w->rq, block, "type");

    if (ngx_modelgw_tape_is(w->rq->tape, type, "redacted_thinking")) {
        return ngx_modelgw_request_part_redacted(w, block, blocks);
    }

    if (!ngx_modelgw_tape_is(w->rq->tape, type, "thinking")) {
        return NGX_OK;
    }

    text = ngx_modelgw_request_member(w->rq, block, "thinking");

    if (ngx_modelgw_request_absent(text)) {
        text = ngx_modelgw_request_member(w->rq, block, "text");
    }

    signature = ngx_modelgw_request_member(w->rq, block, "signature");

    return ngx_modelgw_request_part_thinking(w, text, signature, blocks);
}


/* the text is "" or absent if the model hides it, but signed as well */

ngx_int_t
ngx_modelgw_request_part_thinking(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *text, ngx_modelgw_node_t *signature,
    ngx_array_t *blocks)
{
    ngx_modelgw_request_block_t  *block;

    if (!ngx_modelgw_request_string(signature)
        || ngx_modelgw_tape_blank(w->rq->tape, signature))
    {
        return NGX_OK;
    }

    block = ngx_modelgw_request_block(blocks, NGX_MODELGW_BLOCK_THINKING);
    if (block == NULL) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_request_string(text)) {
        ngx_modelgw_tape_inside(w->rq->tape, text, &block->value);
    }

    ngx_modelgw_tape_inside(w->rq->tape, signature, &block->name);

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_request_part_redacted(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *block, ngx_array_t *blocks)
{
    ngx_modelgw_node_t           *data;
    ngx_modelgw_request_block_t  *redacted;

    data = ngx_modelgw_request_member(w->rq, block, "data");

    if (ngx_modelgw_request_absent(data)) {
        data = ngx_modelgw_request_member(w->rq, block, "redacted_content");
    }

    if (!ngx_modelgw_request_string(data)
        || ngx_modelgw_tape_blank(w->rq->tape, data))
    {
        return NGX_OK;
    }

    redacted = ngx_modelgw_request_block(blocks, NGX_MODELGW_BLOCK_REDACTED);
    if (redacted == NULL) {
        return NGX_ERROR;
    }

    ngx_modelgw_tape_inside(w->rq->tape, data, &redacted->value);

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_request_part_invalid(ngx_modelgw_request_walk_t *w,
    const char *member, const char *fault)
{
    return ngx_modelgw_request_invalid(w->rq, "%s[%ui].%s[%ui]%s%s", w->list,
                                       w->index, w->content, w->part, member,
                                       fault);
}


static ngx_int_t
ngx_modelgw_request_part_unsupported(ngx_modelgw_request_walk_t *w,
    const char *member, ngx_str_t *text, const char *fault)
{
    if (text == NULL) {
        return ngx_modelgw_request_unsupported(w->rq,
                             "%s[%ui].%s[%ui]%s%s", w->list, w->index,
                             w->content, w->part, member, fault);
    }

    return ngx_modelgw_request_unsupported(w->rq,
                             "%s[%ui].%s[%ui]%s \"%V\"%s", w->list, w->index,
                             w->content, w->part, member, text, fault);
}


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


/* the upstream refuses cache_control on thinking */

void
ngx_modelgw_request_block_cache(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *obj, ngx_modelgw_request_block_t *block)
{
    ngx_modelgw_node_t  *node;

    if (block->kind == NGX_MODELGW_BLOCK_THINKING
        || block->kind == NGX_MODELGW_BLOCK_REDACTED)
    {
        return;
    }

    block->cache_control = ngx_modelgw_request_cache_control(w->rq, obj);

    if (w->breakpoints) {
        node = ngx_modelgw_request_member(w->rq, obj,
                                          "prompt_cache_breakpoint");
        block->breakpoint = (node && node->type == NGX_MODELGW_TAPE_OBJECT);
    }
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
 * The length of a trailing white space character in the inside of a string: a
 * space, one of \t \n \f \r, or a \u escape of these or of \v; 0: none.  A
 * backslash begins an escape only if it is not escaped itself.
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
    ngx_modelgw_node_t *cache_control, ngx_uint_t breakpoint,
    ngx_modelgw_out_t *out)
{
    ngx_str_t            text;
    ngx_modelgw_node_t  *ttl;

    if (cache_control == NULL && !breakpoint) {
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

        if (block[i].kind == NGX_MODELGW_BLOCK_SEALED) {
            continue;
        }

        ngx_modelgw_request_cache_control_write(rq, block[i].cache_control,
                                                block[i].breakpoint, out);
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
ngx_modelgw_request_block_write_sealed(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out)
{
    ngx_modelgw_out_borrowed(out, block->value.data, block->value.len);
}


static void
ngx_modelgw_request_block_write_call(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_block_t *block, ngx_modelgw_out_t *out)
{
    ngx_modelgw_request_block_string(out, "{\"type\":\"tool_use\",\"id\":\"",
                                     &block->id);
    ngx_modelgw_request_block_string(out, ",\"name\":\"", &block->name);

    ngx_modelgw_out_text(out, ",\"input\":");

    if (block->source == NGX_MODELGW_CALL_INPUT) {
        ngx_modelgw_request_block_string(out, "{\"input\":\"", &block->value);
        ngx_modelgw_out_text(out, "}");
        return;
    }

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
