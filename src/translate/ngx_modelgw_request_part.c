
/*
 * Parts of content.  One table says which types there are, who may use them
 * and what reads them; a type that is not in it, or not for the role that used
 * it, is refused by name.  Dropping what is not understood would be the worst
 * answer: the model would speak about an image that it never got.
 *
 * A part becomes one block, or none: a blank text, thinking without signature.
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


static ngx_int_t ngx_modelgw_request_part_type(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *type, ngx_uint_t accepted,
    ngx_modelgw_request_part_type_t **found);
static ngx_int_t ngx_modelgw_request_part_text(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_part_refusal(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_node_t *part,
    ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_part_string(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_node_t *part,
    const char *member, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_part_image(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_part_file(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_array_t *blocks);
static ngx_int_t ngx_modelgw_request_part_redacted(
    ngx_modelgw_request_walk_t *w, ngx_modelgw_node_t *block,
    ngx_array_t *blocks);


static ngx_modelgw_request_part_type_t  ngx_modelgw_request_part_types[] = {

    { "text", NGX_MODELGW_PART_TEXT, ngx_modelgw_request_part_text },

    { "image_url", NGX_MODELGW_PART_MEDIA, ngx_modelgw_request_part_image },

    { "file", NGX_MODELGW_PART_MEDIA, ngx_modelgw_request_part_file },

    { "refusal", NGX_MODELGW_PART_REFUSAL, ngx_modelgw_request_part_refusal },

    { "thinking", NGX_MODELGW_PART_THINKING,
      ngx_modelgw_request_part_thinking_block },

    { "redacted_thinking", NGX_MODELGW_PART_THINKING,
      ngx_modelgw_request_part_thinking_block },

    { NULL, 0, NULL }
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


/* a text block of a member, which is given with a '.' in front */

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

    return ngx_modelgw_request_source(w, url, 0, block);
}


static ngx_int_t
ngx_modelgw_request_part_file(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_node_t *part, ngx_array_t *blocks)
{
    ngx_modelgw_node_t           *file, *id, *data, *name;
    ngx_modelgw_request_block_t  *block;

    file = ngx_modelgw_request_member(w->rq, part, "file");
    id = ngx_modelgw_request_member(w->rq, file, "file_id");
    data = ngx_modelgw_request_member(w->rq, file, "file_data");
    name = ngx_modelgw_request_member(w->rq, file, "filename");

    if (!ngx_modelgw_request_absent(id)) {
        return ngx_modelgw_request_part_unsupported(w, ".file.file_id", NULL,
                                             " is not supported, use"
                                             " file_data");
    }

    if (!ngx_modelgw_request_string(data)) {
        return ngx_modelgw_request_part_invalid(w, ".file.file_data",
                                                " is not a string");
    }

    block = ngx_modelgw_request_block(blocks, NGX_MODELGW_BLOCK_DOCUMENT);
    if (block == NULL) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_request_string(name)
        && !ngx_modelgw_tape_blank(w->rq->tape, name))
    {
        ngx_modelgw_tape_inside(w->rq->tape, name, &block->name);
    }

    return ngx_modelgw_request_source(w, data, 1, block);
}


/*
 * A thinking or redacted_thinking block as the upstream made it, or with the
 * member names that some clients give it: text, redacted_content.
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


/* models may hide the text: it is "" or absent then, and signed all the same */

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
    return ngx_modelgw_request_invalid(w->rq, "messages[%ui].content[%ui]%s%s",
                                       w->index, w->part, member, fault);
}


ngx_int_t
ngx_modelgw_request_part_unsupported(ngx_modelgw_request_walk_t *w,
    const char *member, ngx_str_t *text, const char *fault)
{
    if (text == NULL) {
        return ngx_modelgw_request_unsupported(w->rq,
                             "messages[%ui].content[%ui]%s%s",
                             w->index, w->part, member, fault);
    }

    return ngx_modelgw_request_unsupported(w->rq,
                             "messages[%ui].content[%ui]%s \"%V\"%s",
                             w->index, w->part, member, text, fault);
}
