
/*
 * The blocks of an answer, as the upstream sends them, become items, which the
 * client gets one after the other:
 *
 *     texts in a row                    one message
 *     thinking and redacted ones        one reasoning item
 *     a refusal, a call                 an item each
 *
 * Upstreams may interleave blocks.  The first one that has not stopped is
 * written as it comes; the others are kept, in the order they began, until it
 * has stopped.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_completion_private.h"
#include "ngx_modelgw_response_private.h"


#define NGX_MODELGW_RESPONSE_BYTES  8192     /* allocated first, at least: more
                                                than a block of the pool, so it
                                                can be freed */


#define ngx_modelgw_response_block_first(w)                                   \
    ngx_queue_data(ngx_queue_head(&(w)->blocks),                              \
                   ngx_modelgw_response_block_t, queue)


static ngx_int_t ngx_modelgw_response_block_open(
    ngx_modelgw_response_write_t *w, ngx_modelgw_response_block_t *block);
static ngx_int_t ngx_modelgw_response_block_write(
    ngx_modelgw_response_write_t *w, ngx_modelgw_response_block_t *block,
    ngx_str_t *text);
static ngx_int_t ngx_modelgw_response_block_close(
    ngx_modelgw_response_write_t *w, ngx_modelgw_response_block_t *block);
static ngx_int_t ngx_modelgw_response_block_next(
    ngx_modelgw_response_write_t *w);
static ngx_int_t ngx_modelgw_response_block_begin(
    ngx_modelgw_response_write_t *w);
static ngx_int_t ngx_modelgw_response_block_seal(
    ngx_modelgw_response_write_t *w, ngx_modelgw_response_block_t *block);
static void ngx_modelgw_response_block_free(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block);
static ngx_int_t ngx_modelgw_response_block_copy(
    ngx_modelgw_response_write_t *w, ngx_str_t *dst, ngx_str_t *src);


ngx_modelgw_response_block_t *
ngx_modelgw_response_block_start(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_kind_e kind, ngx_str_t *id, ngx_str_t *name)
{
    ngx_uint_t                     first;
    ngx_modelgw_response_block_t  *block;

    block = ngx_pcalloc(w->pool, sizeof(ngx_modelgw_response_block_t));
    if (block == NULL) {
        return NULL;
    }

    block->kind = kind;

    if (kind == NGX_MODELGW_RESPONSE_TOOL) {

        if (ngx_modelgw_response_block_copy(w, &block->id, id) != NGX_OK
            || ngx_modelgw_response_block_copy(w, &block->name, name)
               != NGX_OK)
        {
            return NULL;
        }
    }

    first = ngx_queue_empty(&w->blocks);

    ngx_queue_insert_tail(&w->blocks, &block->queue);
    w->nblocks++;

    if (first && ngx_modelgw_response_block_open(w, block) != NGX_OK) {
        return NULL;
    }

    return block;
}


ngx_int_t
ngx_modelgw_response_block_text(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block, ngx_str_t *text)
{
    if (text->len == 0) {
        return NGX_OK;
    }

    if (block != ngx_modelgw_response_block_first(w)) {
        return ngx_modelgw_response_bytes(w, &block->text, text);
    }

    return ngx_modelgw_response_block_write(w, block, text);
}


ngx_int_t
ngx_modelgw_response_block_json(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block, ngx_str_t *json)
{
    ngx_int_t                 rc;
    ngx_str_t                 text;
    ngx_modelgw_out_t         out;
    ngx_modelgw_out_piece_t   piece;

    ngx_modelgw_out_piece(&out, &piece, w->pool,
                          ngx_max(2 * json->len,
                                  NGX_MODELGW_RESPONSE_BYTES));
    ngx_modelgw_out_escaped(&out, json->data, json->len);

    if (ngx_modelgw_out_piece_done(&out, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    w->borrowed = 0;

    rc = ngx_modelgw_response_block_text(w, block, &text);

    (void) ngx_pfree(w->pool, text.data);

    return rc;
}


ngx_int_t
ngx_modelgw_response_block_signature(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block, ngx_str_t *text)
{
    if (!w->rs->call->encrypted || text->len == 0) {
        return NGX_OK;
    }

    return ngx_modelgw_response_bytes(w, &block->signature, text);
}


ngx_int_t
ngx_modelgw_response_block_stop(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block)
{
    block->stopped = 1;

    return (block == ngx_modelgw_response_block_first(w))
           ? ngx_modelgw_response_block_next(w) : NGX_OK;
}


ngx_int_t
ngx_modelgw_response_block_try_stop(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block, ngx_uint_t *stopped)
{
    *stopped = (block->kind != NGX_MODELGW_RESPONSE_TOOL);

    if (!*stopped
        && block == ngx_modelgw_response_block_first(w)
        && ngx_modelgw_response_item_whole(w, stopped) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return *stopped ? ngx_modelgw_response_block_stop(w, block) : NGX_OK;
}


ngx_int_t
ngx_modelgw_response_block_end(ngx_modelgw_response_write_t *w, ngx_uint_t cut)
{
    ngx_queue_t                   *q, *next;
    ngx_modelgw_response_block_t  *block, *open;

    open = NULL;

    for (q = ngx_queue_head(&w->blocks);
         q != ngx_queue_sentinel(&w->blocks);
         q = next)
    {
        next = ngx_queue_next(q);
        block = ngx_queue_data(q, ngx_modelgw_response_block_t, queue);

        if (!cut || block->kind != NGX_MODELGW_RESPONSE_TOOL || block->stopped)
        {
            block->stopped = 1;

        } else if (block == ngx_modelgw_response_block_first(w)) {
            open = block;

        } else {
            ngx_modelgw_response_block_free(w, block);
        }
    }

    if (open) {
        ngx_modelgw_response_item_drop(w);
        ngx_modelgw_response_block_free(w, open);

        if (ngx_modelgw_response_block_begin(w) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return ngx_modelgw_response_block_next(w);
}


/* a text may stay empty, and is no item then */

static ngx_int_t
ngx_modelgw_response_block_open(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block)
{
    ngx_str_t  none;

    switch (block->kind) {

    case NGX_MODELGW_RESPONSE_TOOL:
        return ngx_modelgw_response_item_tool(w, &block->id, &block->name);

    case NGX_MODELGW_RESPONSE_THINKING:
    case NGX_MODELGW_RESPONSE_REDACTED:
        ngx_str_null(&none);
        return ngx_modelgw_response_item_thinking(w, &none);

    default: /* TEXT, REFUSAL */
        return NGX_OK;
    }
}


static ngx_int_t
ngx_modelgw_response_block_write(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block, ngx_str_t *text)
{
    switch (block->kind) {

    case NGX_MODELGW_RESPONSE_TOOL:
        return ngx_modelgw_response_item_args(w, text);

    case NGX_MODELGW_RESPONSE_REDACTED:
        return w->rs->call->encrypted
               ? ngx_modelgw_response_bytes(w, &block->text, text) : NGX_OK;

    case NGX_MODELGW_RESPONSE_THINKING:

        if (w->rs->call->encrypted
            && ngx_modelgw_response_bytes(w, &block->text, text) != NGX_OK)
        {
            return NGX_ERROR;
        }

        return w->rs->call->show
               ? ngx_modelgw_response_item_thinking(w, text) : NGX_OK;

    default: /* TEXT, REFUSAL */
        return ngx_modelgw_response_item_text(w, block->kind, text);
    }
}


/* writes blocks until one has not stopped */

static ngx_int_t
ngx_modelgw_response_block_next(ngx_modelgw_response_write_t *w)
{
    ngx_modelgw_response_block_t  *block;

    while (!ngx_queue_empty(&w->blocks)) {

        block = ngx_modelgw_response_block_first(w);

        if (!block->stopped) {
            break;
        }

        if (ngx_modelgw_response_block_close(w, block) != NGX_OK) {
            return NGX_ERROR;
        }

        ngx_modelgw_response_block_free(w, block);

        if (ngx_modelgw_response_block_begin(w) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* the first block, if any, has waited: what was kept of it is written */

static ngx_int_t
ngx_modelgw_response_block_begin(ngx_modelgw_response_write_t *w)
{
    ngx_str_t                      text;
    ngx_modelgw_response_block_t  *block;
    ngx_modelgw_response_bytes_t   kept;

    if (ngx_queue_empty(&w->blocks)) {
        return NGX_OK;
    }

    /* the texts that were kept are not those of an event */

    w->borrowed = 0;

    block = ngx_modelgw_response_block_first(w);
    kept = block->text;

    ngx_memzero(&block->text, sizeof(ngx_modelgw_response_bytes_t));

    if (ngx_modelgw_response_block_open(w, block) != NGX_OK) {
        return NGX_ERROR;
    }

    text.data = kept.piece.start;
    text.len = ngx_modelgw_response_bytes_len(&kept);

    if (text.len
        && ngx_modelgw_response_block_write(w, block, &text) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_response_bytes_free(w, &kept);

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_response_block_close(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block)
{
    switch (block->kind) {

    case NGX_MODELGW_RESPONSE_TOOL:
        return ngx_modelgw_response_item_tool_stop(w);

    case NGX_MODELGW_RESPONSE_THINKING:

        if (ngx_modelgw_response_item_thinking_stop(w) != NGX_OK) {
            return NGX_ERROR;
        }

        return ngx_modelgw_response_block_seal(w, block);

    case NGX_MODELGW_RESPONSE_REDACTED:
        return ngx_modelgw_response_block_seal(w, block);

    default: /* TEXT, REFUSAL */
        return NGX_OK;
    }
}


/* the upstream refuses blocks without a signature or data */

static ngx_int_t
ngx_modelgw_response_block_seal(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block)
{
    size_t                          len;
    ngx_str_t                       text, signature, sep;
    ngx_modelgw_completion_kind_e   kind;

    text.data = block->text.piece.start;
    text.len = ngx_modelgw_response_bytes_len(&block->text);

    signature.data = block->signature.piece.start;
    signature.len = ngx_modelgw_response_bytes_len(&block->signature);

    if (block->kind == NGX_MODELGW_RESPONSE_REDACTED) {
        kind = NGX_MODELGW_COMPLETION_REDACTED;

        if (text.len == 0) {
            return NGX_OK;
        }

        ngx_str_null(&signature);

    } else {
        kind = NGX_MODELGW_COMPLETION_THINKING;

        if (signature.len == 0) {
            return NGX_OK;
        }
    }

    len = ngx_modelgw_response_bytes_len(&w->seal);

    if (len) {
        ngx_str_set(&sep, "},{");

    } else {
        ngx_str_set(&sep, "[{");
    }

    if (ngx_modelgw_response_bytes(w, &w->seal, &sep) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_modelgw_completion_thinking(&w->seal.out, kind, &text, &signature);

    w->kept += ngx_modelgw_response_bytes_len(&w->seal) - len - sep.len;

    return w->seal.out.failed ? NGX_ERROR : NGX_OK;
}


static void
ngx_modelgw_response_block_free(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_block_t *block)
{
    ngx_queue_remove(&block->queue);
    w->nblocks--;

    ngx_modelgw_response_bytes_free(w, &block->text);
    ngx_modelgw_response_bytes_free(w, &block->signature);
}


static ngx_int_t
ngx_modelgw_response_block_copy(ngx_modelgw_response_write_t *w,
    ngx_str_t *dst, ngx_str_t *src)
{
    dst->len = src->len;

    /* an empty id is possible, memory of no bytes is not */

    dst->data = ngx_pnalloc(w->pool, src->len + 1);
    if (dst->data == NULL) {
        return NGX_ERROR;
    }

    if (src->len) {
        ngx_memcpy(dst->data, src->data, src->len);
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_response_bytes(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_bytes_t *bytes, ngx_str_t *text)
{
    if (bytes->piece.start == NULL) {
        ngx_modelgw_out_piece(&bytes->out, &bytes->piece, w->pool,
                              ngx_max(text->len, NGX_MODELGW_RESPONSE_BYTES));
    }

    if (bytes->out.failed) {
        return NGX_ERROR;
    }

    ngx_modelgw_out(&bytes->out, text->data, text->len);

    w->kept += text->len;

    return bytes->out.failed ? NGX_ERROR : NGX_OK;
}


void
ngx_modelgw_response_bytes_free(ngx_modelgw_response_write_t *w,
    ngx_modelgw_response_bytes_t *bytes)
{
    if (bytes->piece.start) {
        w->kept -= ngx_modelgw_response_bytes_len(bytes);

        (void) ngx_pfree(w->pool, bytes->piece.start);
    }

    ngx_memzero(bytes, sizeof(ngx_modelgw_response_bytes_t));
}
