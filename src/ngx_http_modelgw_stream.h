
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
    ngx_uint_t                        ended;   /* last_buf was emitted */

    ngx_modelgw_sse_t                 sse;
    ngx_modelgw_scan_conf_t           scan_conf;
    ngx_modelgw_scan_t               *scan;

    ngx_http_modelgw_emit_t           emit;
    ngx_http_modelgw_translate_t     *translate;  /* NULL: passed on */
};


/*
 * Passes an event on, or drops it on purpose; may change the stream's state.
 *     NGX_OK
 *     NGX_DECLINED  it is no event of the protocol
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_event(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_sse_event_t *ev);

/*
 * Reads an event: merges its usage, *kind is one of NGX_MODELGW_DOC_*, *from
 * and *to are the model id's span in its raw bytes, 0 if it has none.
 *     NGX_OK
 *     NGX_DECLINED  it is no event of the protocol
 */
ngx_int_t ngx_http_modelgw_event_read(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, off_t *from, off_t *to, ngx_uint_t *kind);

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

/*
 * At the end of the upstream's stream, whose last event has not come.
 *     NGX_OK        the answer was whole all the same
 *     NGX_DECLINED  it was not
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_translate_rest(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


#endif /* _NGX_HTTP_MODELGW_STREAM_H_INCLUDED_ */
