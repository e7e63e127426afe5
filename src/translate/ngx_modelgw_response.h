
/*
 * Answers of messages and chat upstreams as answers of the responses API, whole
 * ones and streams; see docs/responses.md.
 */


#ifndef _NGX_MODELGW_RESPONSE_H_INCLUDED_
#define _NGX_MODELGW_RESPONSE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_out.h"
#include "ngx_modelgw_responses.h"
#include "ngx_modelgw_tape.h"
#include "ngx_modelgw_usage.h"


/* what the answer depends on, apart from the upstream's */

typedef struct {
    ngx_str_t                      model;    /* the id the client sent, a JSON
                                                string with quotes */
    time_t                         created;  /* s */
    time_t                         now;      /* s; set by the caller before each
                                                call */
    ngx_uint_t                     protocol; /* the upstream's: NGX_MODELGW_CHAT
                                                or NGX_MODELGW_MESSAGES */
    ngx_modelgw_usage_t           *usage;    /* merged by the caller before each
                                                call */
    ngx_modelgw_responses_call_t  *call;
} ngx_modelgw_response_t;


typedef struct ngx_modelgw_response_stream_s  ngx_modelgw_response_stream_t;


/*
 * Writes the response for a whole answer, which is on the tape.
 *     NGX_OK        complete; a failed write is in out->failed
 *     NGX_DECLINED  not an answer of the protocol; nothing is written
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_modelgw_response(ngx_modelgw_response_t *rs, ngx_pool_t *pool,
    ngx_modelgw_tape_t *tape, ngx_modelgw_out_t *out);


/*
 * Creates the state of a stream; NULL: no memory.  rs, tape and out must live
 * as long; the tape may be used for something else between two calls.  max is
 * about the most bytes that are kept: the items written so far, which the last
 * event repeats, and what cannot be written yet.
 */
ngx_modelgw_response_stream_t *ngx_modelgw_response_stream_create(
    ngx_pool_t *pool, ngx_modelgw_response_t *rs, ngx_modelgw_tape_t *tape,
    size_t max, ngx_modelgw_out_t *out);

/*
 * Translates one event: its data, which the scanner has accepted as a JSON
 * object and whose usage is merged, and the value of its "event:" line, used if
 * the data has no type.  Texts of borrowed data are written as borrowed.
 *     NGX_OK        translated; possibly into nothing
 *     NGX_DONE      the last one; all is written
 *     NGX_ABORT     an error event; nothing is written
 *     NGX_DECLINED  makes no sense, or max is exceeded; nothing is written
 *     NGX_ERROR     no memory
 * A failed write is in out->failed.  No event may follow NGX_DONE, NGX_ABORT
 * and NGX_DECLINED.
 */
ngx_int_t ngx_modelgw_response_stream_event(ngx_modelgw_response_stream_t *st,
    ngx_str_t *data, ngx_str_t *name, ngx_uint_t borrowed);

/*
 * The text of the event just translated, in its data, between the quotes; NULL
 * if it was no delta.  An event that differs from it in nothing but this text
 * may be given to _repeat().
 *     NGX_OK, NGX_DECLINED (max is exceeded), NGX_ERROR (no memory)
 */
u_char *ngx_modelgw_response_stream_text(ngx_modelgw_response_stream_t *st);
ngx_int_t ngx_modelgw_response_stream_repeat(ngx_modelgw_response_stream_t *st,
    ngx_str_t *text, ngx_uint_t borrowed);

/*
 * The upstream's stream has ended: without its last event, or, from a chat
 * upstream, with "[DONE]".
 *     NGX_DONE      it is known how the answer ends; all is written
 *     NGX_DECLINED  the answer is incomplete; nothing is written
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_modelgw_response_stream_end(ngx_modelgw_response_stream_t *st);

/*
 * Writes a keep-alive event.  Before the first event of the upstream the
 * response begins with it, since clients expect "response.created" first.
 */
void ngx_modelgw_response_stream_ping(ngx_modelgw_response_stream_t *st);

/*
 * Writes "response.failed" and "error", the end of a stream that has failed;
 * the response begins with them if it has not begun.  code is ours
 * ("RATE_LIMITED"); both are UTF-8, not escaped.
 */
void ngx_modelgw_response_stream_error(ngx_modelgw_response_stream_t *st,
    ngx_str_t *code, ngx_str_t *message);

/*
 * Writes the same for a stream that is not translated, as its events from
 * number seq on, 0 if it has not begun; id is that of its response, len 0: not
 * known.  Of rs only the model and created are used.
 *     NGX_OK        a failed write is in out->failed
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_modelgw_response_error(ngx_modelgw_response_t *rs,
    ngx_pool_t *pool, ngx_str_t *id, uint64_t seq, ngx_str_t *code,
    ngx_str_t *message, ngx_modelgw_out_t *out);


#endif /* _NGX_MODELGW_RESPONSE_H_INCLUDED_ */
