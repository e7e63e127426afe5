
/*
 * An upstream's event stream: what stream.c, stream_error.c, translate.c,
 * keepalive.c and abort.c of src/http/ share.
 */


#ifndef _NGX_HTTP_MODELGW_STREAM_H_INCLUDED_
#define _NGX_HTTP_MODELGW_STREAM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_repeat.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_sse.h"
#include "ngx_modelgw_text.h"
#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_emit.h"


/* see the head of stream.c */

typedef enum {
    NGX_HTTP_MODELGW_STREAM_OPEN = 0,
    NGX_HTTP_MODELGW_STREAM_LAST,
    NGX_HTTP_MODELGW_STREAM_COMPLETE,
    NGX_HTTP_MODELGW_STREAM_FAILED,
    NGX_HTTP_MODELGW_STREAM_ENDED,
    NGX_HTTP_MODELGW_STREAM_REFUSED,
    NGX_HTTP_MODELGW_STREAM_BROKEN,
    NGX_HTTP_MODELGW_STREAM_GRACE
} ngx_http_modelgw_stream_state_e;


typedef struct ngx_http_modelgw_translate_s  ngx_http_modelgw_translate_t;


/* a stream of responses that is passed on */

typedef struct {
    ngx_str_t                         id;      /* of the response; len 0: none
                                                  yet */
    ngx_uint_t                        next;    /* sequence number of an event
                                                  of ours */
    size_t                            items;   /* bytes of text of the items
                                                  that are done */
    size_t                            text;    /* that were counted */
    size_t                            ahead;   /* of these, those of items that
                                                  have begun: their deltas may
                                                  repeat them */
    ngx_uint_t                        begun;   /* an item has begun */
} ngx_http_modelgw_responses_t;


struct ngx_http_modelgw_stream_s {
    ngx_http_modelgw_stream_state_e   state;
    ngx_uint_t                        begun;   /* an event was emitted */

    ngx_modelgw_sse_t                 sse;
    ngx_modelgw_scan_t               *scan;    /* the worker's: its values are
                                                  those of the last event */
    u_char                           *joined;  /* data of several lines */
    size_t                            room;    /* bytes at joined */
    ngx_modelgw_text_t                text;    /* of the last event scanned */
    ngx_modelgw_repeat_t              repeat;  /* that event, if another text
                                                  makes it the next one */
    ngx_modelgw_choices_t             choices; /* that have finished, if the
                                                  call is for several */
    ngx_http_modelgw_responses_t      responses;

    ngx_http_modelgw_emit_t           emit;
    ngx_http_modelgw_translate_t     *translate;  /* NULL: passed on */

    ngx_event_t                       keepalive;  /* its timer */
    ngx_msec_t                        passed;  /* time of the last output */
};


/*
 * Sends what was emitted, after the header if that is still held; in is what
 * the body filter was called with.  The usual return codes of filters.
 */
ngx_int_t ngx_http_modelgw_stream_output(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in);


/*
 * stream_responses.c: an event of responses, which is scanned.  After a part or
 * an item that is done, the client may have what it wants: its call is not cut
 * then if it leaves, as usage may follow.  kind is NGX_MODELGW_DOC_*.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_stream_responses(ngx_http_modelgw_ctx_t *ctx,
    ngx_str_t *data, ngx_uint_t kind);


/*
 * n bytes of text have come as deltas.  Returns how many of them are new, and
 * counts these.
 */
size_t ngx_http_modelgw_stream_deltas(ngx_http_modelgw_responses_t *rs,
    size_t n);


/* stream_error.c */

/*
 * An error event: sets ctx->error and emits it in the form of the client's
 * protocol, or makes it the status if nothing was sent yet.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_stream_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *data);

/*
 * The same for the event "response.failed", which is scanned.
 *     NGX_OK
 *     NGX_DECLINED  ctx->error is set, the event can be passed on as it is
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_stream_failed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *data);

/*
 * Emits ctx->error as the event, or events, that clients of the protocol raise
 * on.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_stream_emit_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


/*
 * keepalive.c: starts the timer of modelgw_keepalive, if it is on.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_keepalive_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


/* translate.c: makes a stream of the client's API of one of another */

/* Sets stream->translate: NGX_OK, NGX_ERROR (no memory). */
ngx_int_t ngx_http_modelgw_translate_stream_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/*
 * Emits what an event becomes; data is its data, which was scanned.
 *     NGX_OK        emitted, or nothing to emit
 *     NGX_DONE      it was the last event
 *     NGX_ABORT     it is an error event, nothing is emitted
 *     NGX_DECLINED  it is no event of the protocol, or the translation would
 *                   have to keep too much of the stream
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_translate_event(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, ngx_str_t *data);

/*
 * The same for an event that repeats the one before with another text, which
 * stays in the upstream's buffer.
 *     NGX_OK        emitted, or nothing to emit
 *     NGX_DECLINED  the translation would have to keep too much of the stream
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_translate_repeat(ngx_http_modelgw_ctx_t *ctx,
    ngx_str_t *text);

/*
 * The upstream's stream ends without its last event.
 *     NGX_DONE      the answer is complete all the same, its end is emitted
 *     NGX_DECLINED  it is not
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_translate_end(ngx_http_modelgw_ctx_t *ctx);

/*
 * Emits ctx->error as events of the responses API, translated or not, with the
 * numbers that follow.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_translate_error(ngx_http_modelgw_ctx_t *ctx);

/*
 * Emits a keep-alive with such a number.
 *     NGX_OK
 *     NGX_DECLINED  the stream is not translated to responses
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_translate_ping(ngx_http_modelgw_ctx_t *ctx);


#endif /* _NGX_HTTP_MODELGW_STREAM_H_INCLUDED_ */
