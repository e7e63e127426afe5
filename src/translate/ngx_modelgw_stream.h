
/*
 * The events of a messages stream as the chunks of a chat stream; see
 * docs/translation.md, Streams.
 */


#ifndef _NGX_MODELGW_STREAM_H_INCLUDED_
#define _NGX_MODELGW_STREAM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_completion.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_tape.h"


/* content blocks of a message; more are refused */
#define NGX_MODELGW_STREAM_MAX_BLOCKS  1024


typedef struct ngx_modelgw_stream_s  ngx_modelgw_stream_t;


/*
 * Creates the state of a stream; NULL: no memory.  c, tape and out must live as
 * long; the tape may be used for something else between two calls.  max is the
 * most bytes that are kept from one event to the next: thinking (with
 * NGX_MODELGW_REASONING_FULL), inputs of tools, the text of a refusal.
 */
ngx_modelgw_stream_t *ngx_modelgw_stream_create(ngx_pool_t *pool,
    ngx_modelgw_completion_t *c, ngx_modelgw_tape_t *tape, size_t max,
    ngx_modelgw_out_t *out);

/*
 * Translates one event: its data, which the scanner has accepted as a JSON
 * object and whose usage is merged, and the value of its "event:" line, used if
 * the data has no type.  Texts of borrowed data are written as borrowed.
 *     NGX_OK        translated; possibly into nothing
 *     NGX_DONE      the last one; all is written, "[DONE]" included
 *     NGX_ABORT     an error event; nothing is written
 *     NGX_DECLINED  makes no sense, or max is exceeded; nothing is written
 *     NGX_ERROR     no memory
 * A failed write is in out->failed.  No event may follow NGX_DONE, NGX_ABORT
 * and NGX_DECLINED.
 */
ngx_int_t ngx_modelgw_stream_event(ngx_modelgw_stream_t *st, ngx_str_t *data,
    ngx_str_t *name, ngx_uint_t borrowed);

/*
 * The text of the event just translated, in its data, between the quotes; NULL
 * if it was no delta.  An event that differs from it in nothing but this text
 * may be given to _repeat().
 *     NGX_OK, NGX_DECLINED (max is exceeded), NGX_ERROR (no memory)
 */
u_char *ngx_modelgw_stream_text(ngx_modelgw_stream_t *st);
ngx_int_t ngx_modelgw_stream_repeat(ngx_modelgw_stream_t *st, ngx_str_t *text,
    ngx_uint_t borrowed);

/*
 * The upstream's stream has ended without its last event.
 *     NGX_DONE      the stop reason is known; all is written, "[DONE]" included
 *     NGX_DECLINED  the answer is incomplete; nothing is written
 */
ngx_int_t ngx_modelgw_stream_end(ngx_modelgw_stream_t *st);


#endif /* _NGX_MODELGW_STREAM_H_INCLUDED_ */
