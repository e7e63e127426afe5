
/*
 * Output of a stream, see emit.c.
 */


#ifndef _NGX_HTTP_MODELGW_EMIT_H_INCLUDED_
#define _NGX_HTTP_MODELGW_EMIT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_splice.h"


typedef struct {
    ngx_pool_t                         *pool;
    ngx_chain_t                        *out;    /* emitted, not passed on */
    ngx_chain_t                       **last_out;
    ngx_chain_t                        *busy;   /* passed on, not sent yet */
    ngx_chain_t                        *free;
    ngx_buf_t                          *tail;   /* of out, if it may grow */
    ngx_uint_t                          borrowed; /* bytes of the upstream's
                                                     current buf were */
    size_t                              ahead;  /* bytes in its next bufs */
    size_t                              hint;   /* bytes that may follow what is
                                                   emitted next */
} ngx_http_modelgw_emit_t;


/* The filter was called: what is emitted from now on leaves with _send(). */
void ngx_http_modelgw_emit_begin(ngx_http_modelgw_emit_t *em,
    ngx_chain_t *in);

/* The next of the upstream's bufs is processed, from here to _read(). */
void ngx_http_modelgw_emit_at(ngx_http_modelgw_emit_t *em, ngx_buf_t *b);

/*
 * Appends len bytes.  Borrowed ones must stay valid until their buf, given to
 * _read(), counts as read; others are copied.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_emit(ngx_http_modelgw_emit_t *em, u_char *p,
    size_t len, ngx_uint_t borrowed);

/* The same for raw with a part replaced; cut->text is copied. */
ngx_int_t ngx_http_modelgw_emit_replaced(ngx_http_modelgw_emit_t *em,
    ngx_str_t *raw, ngx_modelgw_cut_t *cut, ngx_uint_t borrowed);

/*
 * The upstream's buf was processed: it counts as read when all that was emitted
 * until now is sent, or earlier.
 */
void ngx_http_modelgw_emit_read(ngx_http_modelgw_emit_t *em, ngx_buf_t *b);

/* Appends last_buf: NGX_OK, NGX_ERROR (no memory). */
ngx_int_t ngx_http_modelgw_emit_last(ngx_http_modelgw_emit_t *em);

/*
 * Marks what was passed on as sent.  Its memory is not reused: queued HTTP/2
 * frames may point into it.
 */
void ngx_http_modelgw_emit_drop(ngx_http_modelgw_emit_t *em);

/* Passes all of out on; the usual return codes of filters. */
ngx_int_t ngx_http_modelgw_emit_send(ngx_http_request_t *r,
    ngx_http_modelgw_emit_t *em);


#endif /* _NGX_HTTP_MODELGW_EMIT_H_INCLUDED_ */
