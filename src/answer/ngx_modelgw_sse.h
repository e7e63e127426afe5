
/*
 * Server-sent events (WHATWG HTML, section 9.2): splits a stream of bytes, fed
 * in pieces of any length, into events.  The reader finds the ends of events
 * and their data; it neither changes nor decodes anything.
 */


#ifndef _NGX_MODELGW_SSE_H_INCLUDED_
#define _NGX_MODELGW_SSE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/* bytes of an event: the default limit, and the smallest limit allowed */

#define NGX_MODELGW_SSE_MAX_EVENT  (4 * 1024 * 1024)
#define NGX_MODELGW_SSE_MIN_EVENT  (16 * 1024)


/*
 * One event, or a block of comments, as received: raw is all of its bytes with
 * the blank line that ends it, and the blank lines before it.
 */
typedef struct {
    ngx_str_t             raw;
    ngx_str_t             name;          /* value of the last "event:" line */
    ngx_str_t             data;          /* value of the first "data:" line */
    ngx_uint_t            lines;         /* of data */
    unsigned              borrowed:1;    /* raw is in the caller's memory, not
                                            in the reader's */
    unsigned              bom:1;         /* raw begins with the stream's BOM */
} ngx_modelgw_sse_event_t;


typedef struct {
    ngx_pool_t           *pool;
    size_t                max_event;     /* bytes */

    /* the beginning of an event whose end has not been received yet */
    u_char               *start;
    size_t                len;
    size_t                size;          /* allocated bytes */

    unsigned              state:4;
    unsigned              returned:1;    /* to the caller: the next call frees
                                            it */
    unsigned              bom:1;         /* it begins with the stream's BOM */
} ngx_modelgw_sse_t;


/* Initializes sse; an event longer than max_event bytes is a fault. */
void ngx_modelgw_sse_init(ngx_modelgw_sse_t *sse, ngx_pool_t *pool,
    size_t max_event);

/*
 * Reads bytes from *pos up to last, and moves *pos past those that were read.
 *     NGX_OK        *ev is one whole event; call again for the next.  It is
 *                   valid until the next call; if ev->borrowed, as long as the
 *                   caller's bytes are.
 *     NGX_AGAIN     all bytes were read, the current event has not ended
 *     NGX_DECLINED  the event is longer than max_event; all later calls return
 *                   the same
 *     NGX_ERROR     no memory
 * A line ends with LF, CR LF or CR, in any mix; a CR that is the last byte ends
 * its line at once, and belongs together with an LF that follows later.
 */
ngx_int_t ngx_modelgw_sse_next(ngx_modelgw_sse_t *sse, u_char **pos,
    u_char *last, ngx_modelgw_sse_event_t *ev);

/*
 * Returns 1 if an event has ended and no byte of the next was read.  Then a
 * caller that knows the next event to be in its bytes, and to end with LF, may
 * skip it.
 */
ngx_uint_t ngx_modelgw_sse_between(ngx_modelgw_sse_t *sse);

/*
 * At the end of the stream: returns an event that lacks its blank line.
 *     NGX_OK        *ev is the rest of the stream
 *     NGX_DECLINED  nothing is left
 */
ngx_int_t ngx_modelgw_sse_rest(ngx_modelgw_sse_t *sse,
    ngx_modelgw_sse_event_t *ev);

/*
 * Iterates over the values of "data:" lines; *state is initially NULL.  The
 * values, joined by LF, are the event's data.
 *     NGX_OK        *line is the next value, a part of ev->raw
 *     NGX_DECLINED  no more
 */
ngx_int_t ngx_modelgw_sse_data(ngx_modelgw_sse_event_t *ev, u_char **state,
    ngx_str_t *line);


#endif /* _NGX_MODELGW_SSE_H_INCLUDED_ */
