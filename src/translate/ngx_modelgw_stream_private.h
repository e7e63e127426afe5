
/*
 * What the files of the stream codec share: the chunks of a chat stream, as
 * text; see stream_write.c.
 */


#ifndef _NGX_MODELGW_STREAM_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_STREAM_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_completion_private.h"


typedef struct {
    /* set by the caller */

    ngx_modelgw_completion_t  *c;
    ngx_modelgw_out_t         *out;
    ngx_uint_t                 borrowed;     /* texts may be written as such */

    ngx_uint_t                 next_thinking; /* least index of the next entry
                                                of "thinking_blocks" */

    /* the same in all chunks of the stream, rendered at its start */

    ngx_str_t                  head;         /* up to the delta */
    size_t                     top;          /* of head, up to "choices":[ */
    ngx_str_t                  tail;         /* without a finish reason */
    ngx_str_t                  rest;         /* the tail after a delta that
                                                ends with a string */
} ngx_modelgw_stream_write_t;


/*
 * Renders what all chunks have in common; message may be NULL.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_stream_write_init(ngx_modelgw_stream_write_t *w,
    ngx_pool_t *pool, ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *message);

/*
 * Each writes one chunk.  Texts, ids and names are insides of JSON strings and
 * written as they are; texts may be borrowed if w->borrowed is set.
 */

/* the delta is complete */
void ngx_modelgw_stream_write_delta(ngx_modelgw_stream_write_t *w,
    ngx_str_t *delta);

/* member: the delta up to the text, {"name":" */
void ngx_modelgw_stream_write_string(ngx_modelgw_stream_write_t *w,
    ngx_str_t *member, ngx_str_t *text);

/* the start of a tool call */
void ngx_modelgw_stream_write_tool(ngx_modelgw_stream_write_t *w,
    ngx_uint_t tool, ngx_str_t *id, ngx_str_t *name);

/* arguments of a tool call; raw ones are JSON that is still to be escaped */
void ngx_modelgw_stream_write_args(ngx_modelgw_stream_write_t *w,
    ngx_uint_t tool, ngx_str_t *args, ngx_uint_t raw);

/* an entry of "thinking_blocks" for the block of that index */
void ngx_modelgw_stream_write_thinking(ngx_modelgw_stream_write_t *w,
    ngx_uint_t index, ngx_modelgw_completion_kind_e kind, ngx_str_t *text,
    ngx_str_t *signature);

void ngx_modelgw_stream_write_finish(ngx_modelgw_stream_write_t *w,
    ngx_str_t *reason);

void ngx_modelgw_stream_write_usage(ngx_modelgw_stream_write_t *w);


#endif /* _NGX_MODELGW_STREAM_PRIVATE_H_INCLUDED_ */
