
/*
 * An upstream's event stream: what stream.c and event.c share.
 */


#ifndef _NGX_HTTP_MODELGW_STREAM_H_INCLUDED_
#define _NGX_HTTP_MODELGW_STREAM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_emit.h"
#include "ngx_modelgw_choices.h"
#include "ngx_modelgw_repeat.h"
#include "ngx_modelgw_text.h"


/* see stream.c */

typedef enum {
    NGX_HTTP_MODELGW_STREAM_OPEN = 0,
    NGX_HTTP_MODELGW_STREAM_COMPLETE,
    NGX_HTTP_MODELGW_STREAM_REFUSED,
    NGX_HTTP_MODELGW_STREAM_FAILED,
    NGX_HTTP_MODELGW_STREAM_BROKEN
} ngx_http_modelgw_stream_state_e;


typedef struct ngx_http_modelgw_translate_s  ngx_http_modelgw_translate_t;


struct ngx_http_modelgw_stream_s {
    ngx_http_modelgw_stream_state_e   state;
    unsigned                          ended:1; /* last_buf was emitted */
    unsigned                          begun:1; /* an event was passed on */
    unsigned                          grace:1; /* the unclean end is near */

    ngx_modelgw_sse_t                 sse;
    ngx_modelgw_scan_t               *scan;    /* the worker's: what it knows
                                                  is of the event at hand */
    ngx_str_t                         joined;  /* data of several lines */
    size_t                            room;    /* for joined */
    ngx_modelgw_text_t                text;    /* of the event that was read
                                                  last, and did not repeat */
    ngx_modelgw_repeat_t              repeat;  /* the event before, if the next
                                                  may differ in its text only */
    ngx_modelgw_choices_t             choices; /* of several, those that have
                                                  ended */

    ngx_http_modelgw_emit_t           emit;
    ngx_http_modelgw_translate_t     *translate;  /* NULL: passed on */

    ngx_event_t                       keepalive;  /* its timer */
    ngx_msec_t                        passed;     /* when output was, last */
};


/*
 * Passes on what was emitted, after the header if that is still held; in is
 * what the body filter was called with.  The usual return codes of filters.
 */
ngx_int_t ngx_http_modelgw_stream_output(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in);

/*
 * keepalive.c: starts to watch for silence, as set by modelgw_keepalive:
 * NGX_OK, NGX_ERROR (no memory).
 */
ngx_int_t ngx_http_modelgw_keepalive_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


/*
 * Passes an event on, or drops it on purpose; may change the stream's state.
 *     NGX_OK
 *     NGX_DECLINED  it is no event of the protocol
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_event(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev);

/*
 * The same for those at *pos, up to last, that repeat the event before but for
 * its text; moves *pos behind them.
 */
ngx_int_t ngx_http_modelgw_event_repeats(ngx_http_modelgw_ctx_t *ctx,
    u_char **pos, u_char *last);

/*
 * Reads an event: merges its usage, *kind is one of NGX_MODELGW_DOC_*, from and
 * to of model are the model id's place in its raw bytes, 0 if it has none.
 *     NGX_OK
 *     NGX_DECLINED  it is no event of the protocol
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_event_read(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, ngx_modelgw_cut_t *model, ngx_uint_t *kind);

/*
 * An event's data, without copying it if that is one line; valid until the next
 * call.  It is empty in a comment and in an event of its name only (WHATWG
 * HTML, 9.2.6).
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_event_data(ngx_http_modelgw_stream_t *st,
    ngx_modelgw_sse_event_t *ev, ngx_str_t *data);

/*
 * Keeps what an event's data tells for the charge, after its usage was merged.
 */
void ngx_http_modelgw_event_seen(ngx_http_modelgw_ctx_t *ctx, ngx_str_t *data);

/*
 * An error event: sets ctx->error and emits it in the shape of the client's
 * protocol, or leaves it to be the answer's status if nothing was sent yet.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_event_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev);

/* Emits ctx->error in the shape that the protocol's clients raise on. */
ngx_int_t ngx_http_modelgw_event_frame(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* translate_stream.c */

ngx_int_t ngx_http_modelgw_translate_stream_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);

/* As ngx_http_modelgw_event(). */
ngx_int_t ngx_http_modelgw_translate_event(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev);

/* The same for an event that was kept, with another text, which is borrowed. */
ngx_int_t ngx_http_modelgw_translate_repeat(ngx_http_modelgw_ctx_t *ctx,
    ngx_str_t *text);

/*
 * At the end of the upstream's stream, whose last event has not come.
 *     NGX_OK        the answer was whole all the same
 *     NGX_DECLINED  it was not
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_translate_rest(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


#endif /* _NGX_HTTP_MODELGW_STREAM_H_INCLUDED_ */
