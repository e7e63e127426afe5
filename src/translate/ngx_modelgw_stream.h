
/*
 * The events of a messages stream as the chunks of a chat stream
 * (translate.md, section 4).
 */


#ifndef _NGX_MODELGW_STREAM_H_INCLUDED_
#define _NGX_MODELGW_STREAM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_completion.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_tape.h"


#define NGX_MODELGW_CHUNK_MAX_BLOCKS  1024


typedef struct ngx_modelgw_chunk_s  ngx_modelgw_chunk_t;


/*
 * The state of a stream, NULL if there is no memory; c, tape and out must live
 * as long, but between two calls the tape may be used for something else.  max
 * is the most bytes that are kept from one event to the next, of all that must
 * be: thinking (NGX_MODELGW_REASONING_FULL), tools' inputs, the text of a
 * refusal.
 */
ngx_modelgw_chunk_t *ngx_modelgw_chunk_create(ngx_pool_t *pool,
    ngx_modelgw_completion_t *c, ngx_modelgw_tape_t *tape, size_t max,
    ngx_modelgw_out_t *out);

/*
 * Takes one event: its data, which the scanner has found to be a JSON object
 * and whose usage is merged, and the value of its "event:" line, which serves
 * if the data has no type; data that is in the upstream's own buffer is
 * borrowed.
 *     NGX_OK        dealt with; nothing may have been written
 *     NGX_DONE      it was the last one; all is written, "[DONE]" included
 *     NGX_ABORT     it is an error event: nothing is written
 *     NGX_DECLINED  it makes no sense: nothing is written
 *     NGX_ERROR     no memory
 * What was written may have failed, see out->failed.  Events after NGX_DONE,
 * NGX_ABORT and NGX_DECLINED must not be fed.
 */
ngx_int_t ngx_modelgw_chunk_event(ngx_modelgw_chunk_t *ch, ngx_str_t *data,
    ngx_str_t *name, ngx_uint_t borrowed);

/*
 * The inside of the text in the event just taken, where it lies in its data, if
 * that is a delta: NULL if it is not.  Then an event that differs from it in
 * nothing but this text may be taken as _repeat(), with the same return codes.
 */
u_char *ngx_modelgw_chunk_text(ngx_modelgw_chunk_t *ch);
ngx_int_t ngx_modelgw_chunk_repeat(ngx_modelgw_chunk_t *ch, ngx_str_t *text,
    ngx_uint_t borrowed);

/*
 * The upstream's stream has ended without its last event.
 *     NGX_DONE      the stop reason was known: all is written, as above
 *     NGX_DECLINED  the answer is not whole: nothing is written
 */
ngx_int_t ngx_modelgw_chunk_end(ngx_modelgw_chunk_t *ch);


#endif /* _NGX_MODELGW_STREAM_H_INCLUDED_ */
