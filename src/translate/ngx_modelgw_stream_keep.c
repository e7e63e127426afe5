
/*
 * Bytes that a stream keeps from one event to the next.  An event's data goes
 * away with it, but some of it is told to the client later: a thinking block
 * goes into one chunk with its signature, a tool's input may stand in the event
 * that begins its block.
 *
 * Streams are long, so memory must not be taken anew for each block: what most
 * blocks need is handed on from block to block, what is larger is given back.
 * The bytes kept are counted, all blocks together, so that an upstream which
 * opens a thousand blocks at a time gets little more than one that opens one:
 * the least room for each.
 *
 * The allocations are larger than what a pool cuts from its own blocks, so that
 * ngx_pfree() can give them back.  Rejected: a list of the events' own buffers,
 * which would hold all of a stream that interleaves its blocks.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_stream_write.h"


#define NGX_MODELGW_CHUNK_KEEP_SIZE  8192


static ngx_int_t ngx_modelgw_chunk_keep_room(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_bytes_t *bytes, size_t len);


ngx_int_t
ngx_modelgw_chunk_keep(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_bytes_t *bytes, ngx_str_t *text)
{
    if (text->len > ch->max - ch->kept) {
        return NGX_DECLINED;
    }

    if (ngx_modelgw_chunk_keep_room(ch, bytes, bytes->text.len + text->len)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    bytes->text.data = bytes->start;

    if (text->len) {
        ngx_memcpy(bytes->text.data + bytes->text.len, text->data, text->len);
        bytes->text.len += text->len;
        ch->kept += text->len;
    }

    return NGX_OK;
}


/* room for len bytes, of which the first bytes->text.len are there */

static ngx_int_t
ngx_modelgw_chunk_keep_room(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_bytes_t *bytes, size_t len)
{
    size_t   size;
    u_char  *p;

    if (bytes->start && len <= bytes->size) {
        return NGX_OK;
    }

    size = ngx_max(2 * len, NGX_MODELGW_CHUNK_KEEP_SIZE);

    p = ngx_palloc(ch->pool, size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    if (bytes->start) {
        ngx_memcpy(p, bytes->start, bytes->text.len);
        (void) ngx_pfree(ch->pool, bytes->start);
    }

    bytes->start = p;
    bytes->size = size;

    return NGX_OK;
}


void
ngx_modelgw_chunk_keep_drop(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_bytes_t *bytes)
{
    ch->kept -= bytes->text.len;

    ngx_str_null(&bytes->text);

    if (bytes->size > NGX_MODELGW_CHUNK_KEEP_SIZE) {
        (void) ngx_pfree(ch->pool, bytes->start);

        bytes->start = NULL;
        bytes->size = 0;
    }
}


ngx_modelgw_chunk_kept_t *
ngx_modelgw_chunk_keep_get(ngx_modelgw_chunk_t *ch)
{
    ngx_modelgw_chunk_kept_t  *kept;

    kept = ch->free;

    if (kept == NULL) {
        return ngx_pcalloc(ch->pool, sizeof(ngx_modelgw_chunk_kept_t));
    }

    ch->free = kept->next;

    return kept;
}


void
ngx_modelgw_chunk_keep_put(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_kept_t *kept)
{
    ngx_modelgw_chunk_keep_drop(ch, &kept->text);
    ngx_modelgw_chunk_keep_drop(ch, &kept->signature);

    kept->next = ch->free;
    ch->free = kept;
}
