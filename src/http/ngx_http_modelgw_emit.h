
/*
 * Output of a stream: see emit.c.
 */


#ifndef _NGX_HTTP_MODELGW_EMIT_H_INCLUDED_
#define _NGX_HTTP_MODELGW_EMIT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_splice.h"


typedef struct {
    ngx_pool_t                         *pool;
    ngx_chain_t                        *out;    /* made in this call */
    ngx_chain_t                       **last_out;
    ngx_chain_t                        *busy;   /* passed on, not sent yet */
    ngx_chain_t                        *free;
    ngx_buf_t                          *tail;   /* of out, if it may grow */
    ngx_uint_t                          borrowed; /* of the upstream's buf */
    size_t                              ahead;  /* bytes in its next ones */
    size_t                              hint;   /* bytes that may still come */
} ngx_http_modelgw_emit_t;


/* The filter was called: what is emitted now leaves with emit_send(). */
void ngx_http_modelgw_emit_begin(ngx_http_modelgw_emit_t *em,
    ngx_chain_t *in);

/* The next of the upstream's bufs is dealt with, from here to emit_read(). */
void ngx_http_modelgw_emit_at(ngx_http_modelgw_emit_t *em, ngx_buf_t *b);

/*
 * Appends len bytes.  Borrowed ones stay where they are until emit_read() of
 * their buf has had its effect; others are copied.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_http_modelgw_emit(ngx_http_modelgw_emit_t *em, u_char *p,
    size_t len, ngx_uint_t borrowed);

/* The same for raw with the cut applied, whose text is copied. */
ngx_int_t ngx_http_modelgw_emit_replaced(ngx_http_modelgw_emit_t *em,
    ngx_str_t *raw, ngx_modelgw_cut_t *cut, ngx_uint_t borrowed);

/*
 * All of the upstream's buf was dealt with: it counts as read when all that was
 * emitted until now is sent, or before.
 */
void ngx_http_modelgw_emit_read(ngx_http_modelgw_emit_t *em, ngx_buf_t *b);

/* Appends last_buf: NGX_OK, NGX_ERROR (no memory). */
ngx_int_t ngx_http_modelgw_emit_last(ngx_http_modelgw_emit_t *em);

/*
 * What was passed on counts as sent, and is left alone: frames of HTTP/2 that
 * wait to be written may point into it.
 */
void ngx_http_modelgw_emit_drop(ngx_http_modelgw_emit_t *em);

/* Passes it all on; the usual return codes of filters. */
ngx_int_t ngx_http_modelgw_emit_send(ngx_http_request_t *r,
    ngx_http_modelgw_emit_t *em);


#endif /* _NGX_HTTP_MODELGW_EMIT_H_INCLUDED_ */
