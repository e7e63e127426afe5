
/*
 * What the files of the stream codec share: its state.
 *
 *     chunk.c        the events of a message; the end
 *     chunk_block.c  the events of content blocks
 *     chunk_write.c  the chunks, as text
 *     chunk_keep.c   bytes that are kept from one event to the next
 */


#ifndef _NGX_MODELGW_STREAM_WRITE_H_INCLUDED_
#define _NGX_MODELGW_STREAM_WRITE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_caps.h"
#include "ngx_modelgw_stream.h"
#include "ngx_modelgw_completion_private.h"


/* bytes that are kept, in memory that is used again */

typedef struct {
    ngx_str_t                       text;     /* data NULL: none, not even an
                                                 empty one */
    u_char                         *start;
    size_t                          size;
} ngx_modelgw_chunk_bytes_t;


/* of one block: a tool's input, or thinking */

typedef struct ngx_modelgw_chunk_kept_s  ngx_modelgw_chunk_kept_t;

struct ngx_modelgw_chunk_kept_s {
    ngx_modelgw_chunk_bytes_t       text;
    ngx_modelgw_chunk_bytes_t       signature;
    ngx_modelgw_chunk_kept_t       *next;     /* in the list of free ones */
};


typedef struct {
    ngx_uint_t                      index;    /* the upstream's */
    ngx_modelgw_completion_kind_e   kind;     /* SKIP once it has ended, but
                                                 TEXT stays */
    ngx_uint_t                      tool;     /* the client's index */
    ngx_uint_t                      args;     /* the client has some */
    ngx_modelgw_chunk_kept_t       *kept;     /* may be NULL */
} ngx_modelgw_chunk_block_t;


/* takes the text of a delta, as it is written; block may be NULL */

typedef ngx_int_t (*ngx_modelgw_chunk_text_pt)(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_str_t *text);


struct ngx_modelgw_chunk_s {
    ngx_pool_t                     *pool;
    ngx_modelgw_completion_t       *c;
    ngx_modelgw_out_t              *out;

    ngx_modelgw_tape_t             *tape;     /* of the event at hand */
    ngx_uint_t                      borrowed; /* its texts */

    /* of the delta at hand: its text, NULL if it is none, and what takes it */
    u_char                         *text;
    ngx_modelgw_chunk_text_pt       handler;
    ngx_modelgw_chunk_block_t      *block;

    ngx_uint_t                      started;
    ngx_modelgw_completion_stop_t  *stop;     /* NULL: not known yet */
    ngx_modelgw_chunk_bytes_t       refusal;

    ngx_array_t                     blocks;
    ngx_uint_t                      nstarts;  /* of blocks, replaced ones too */
    ngx_uint_t                      ntools;
    ngx_uint_t                      thinking; /* least index of the next entry
                                                 of "thinking_blocks" */

    size_t                          max;
    size_t                          kept;     /* bytes */
    ngx_modelgw_chunk_kept_t       *free;

    /* what all chunks of the stream have, made at its start */
    ngx_str_t                       head;     /* up to the delta */
    size_t                          top;      /* of head: up to "choices":[ */
    ngx_str_t                       tail;     /* without a finish reason */
    ngx_str_t                       rest;     /* the same, behind a delta that
                                                 ends with a string */
};


/* chunk_block.c: the handlers of events, as in chunk.c */

ngx_int_t ngx_modelgw_chunk_block_start(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event);
ngx_int_t ngx_modelgw_chunk_block_delta(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event);
ngx_int_t ngx_modelgw_chunk_block_stop(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *event);

/*
 * The message has ended: blocks that were not stopped give what they have;
 * complete tells that the tool calls are to be made, so that they have
 * arguments, if only "{}".
 */
void ngx_modelgw_chunk_block_end(ngx_modelgw_chunk_t *ch, ngx_uint_t complete);


/* chunk_write.c */

/* renders what all chunks have; NGX_OK, NGX_ERROR (no memory) */
ngx_int_t ngx_modelgw_chunk_write_init(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_node_t *message);

/*
 * Chunks: one whose delta is given; one with a string, of which the member's
 * beginning ("{", its name, ":", a quote) is given; a tool call's beginning;
 * more of its arguments, raw ones are JSON yet to be escaped; a thinking block;
 * the finish; the usage.  Texts that are not raw are copied as they stand, or
 * borrowed, if the event at hand is.
 */
void ngx_modelgw_chunk_write_delta(ngx_modelgw_chunk_t *ch, ngx_str_t *delta);
void ngx_modelgw_chunk_write_string(ngx_modelgw_chunk_t *ch,
    ngx_str_t *member, ngx_str_t *text);
void ngx_modelgw_chunk_write_tool(ngx_modelgw_chunk_t *ch, ngx_uint_t tool,
    ngx_str_t *id, ngx_str_t *name);
void ngx_modelgw_chunk_write_args(ngx_modelgw_chunk_t *ch, ngx_uint_t tool,
    ngx_str_t *args, ngx_uint_t raw);
void ngx_modelgw_chunk_write_thinking(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_block_t *block, ngx_str_t *text, ngx_str_t *signature);
void ngx_modelgw_chunk_write_finish(ngx_modelgw_chunk_t *ch,
    ngx_str_t *reason);
void ngx_modelgw_chunk_write_usage(ngx_modelgw_chunk_t *ch);


/* chunk_keep.c */

/*
 * Adds to what is kept.
 *     NGX_OK
 *     NGX_DECLINED  more than ch->max would be kept
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_modelgw_chunk_keep(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_bytes_t *bytes, ngx_str_t *text);

/* forgets what is kept */
void ngx_modelgw_chunk_keep_drop(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_bytes_t *bytes);

/* something empty to keep in, NULL if there is no memory; and its return */
ngx_modelgw_chunk_kept_t *ngx_modelgw_chunk_keep_get(ngx_modelgw_chunk_t *ch);
void ngx_modelgw_chunk_keep_put(ngx_modelgw_chunk_t *ch,
    ngx_modelgw_chunk_kept_t *kept);


#endif /* _NGX_MODELGW_STREAM_WRITE_H_INCLUDED_ */
