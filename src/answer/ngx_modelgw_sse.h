
/*
 * Server-sent events (WHATWG HTML, section 9.2): bytes in, events out, for any
 * split of the bytes.  The reader finds the borders of events and tells where
 * their data lies; it changes and decodes nothing.
 */


#ifndef _NGX_MODELGW_SSE_H_INCLUDED_
#define _NGX_MODELGW_SSE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_MODELGW_SSE_MAX_EVENT  (4 * 1024 * 1024)   /* by default */
#define NGX_MODELGW_SSE_MIN_EVENT  (16 * 1024)         /* the least limit */


/*
 * One event, or a block of comments, as it came: raw holds all its bytes with
 * the blank line that ends it, and the blank lines that stood before it.
 */
typedef struct {
    ngx_str_t             raw;
    ngx_str_t             name;          /* value of the last "event:" line */
    ngx_str_t             data;          /* value of the first "data:" line */
    ngx_uint_t            lines;         /* of data */
    unsigned              borrowed:1;    /* raw points into the caller's bytes,
                                            not into the reader's own memory */
    unsigned              bom:1;         /* raw begins with the stream's BOM */
} ngx_modelgw_sse_event_t;


typedef struct {
    ngx_pool_t           *pool;
    size_t                max_event;

    /* the beginning of an event whose end has not come yet */
    u_char               *start;
    size_t                len;
    size_t                size;

    unsigned              state:4;
    unsigned              given:1;       /* it was handed out: the next call
                                            drops it */
    unsigned              bom:1;         /* it begins with the stream's BOM */
} ngx_modelgw_sse_t;


/* Makes sse ready for a stream; events longer than max_event are a fault. */
void ngx_modelgw_sse_init(ngx_modelgw_sse_t *sse, ngx_pool_t *pool,
    size_t max_event);

/*
 * Takes bytes from *pos, up to last, and moves *pos behind what was taken.
 *     NGX_OK        *ev is one whole event; call again for the next.  It is
 *                   valid until the next call; if ev->borrowed, as long as the
 *                   caller's bytes are.
 *     NGX_AGAIN     all bytes are taken, the current event has not ended
 *     NGX_DECLINED  the event is longer than max_event; it stays so
 *     NGX_ERROR     no memory
 * A line ends with LF, CR LF or CR, in any mix; a CR that comes last in the
 * bytes ends its line at once, and an LF that follows later belongs to it.
 */
ngx_int_t ngx_modelgw_sse_next(ngx_modelgw_sse_t *sse, u_char **pos,
    u_char *last, ngx_modelgw_sse_event_t *ev);

/*
 * 1: an event has been taken, and nothing of the next.  Then a caller who knows
 * that one lies in its bytes, which ends with LF, may leave it out.
 */
ngx_uint_t ngx_modelgw_sse_between(ngx_modelgw_sse_t *sse);

/*
 * At the end of the stream: whatever is left, though its blank line never came.
 *     NGX_OK        *ev is the rest
 *     NGX_DECLINED  nothing is left
 */
ngx_int_t ngx_modelgw_sse_rest(ngx_modelgw_sse_t *sse,
    ngx_modelgw_sse_event_t *ev);

/*
 * Walks over the values of the event's "data:" lines; *state starts as NULL.
 * The values, joined by LF, are the event's data.
 *     NGX_OK        *line is the next value, a part of ev->raw
 *     NGX_DECLINED  no more
 */
ngx_int_t ngx_modelgw_sse_data(ngx_modelgw_sse_event_t *ev, u_char **state,
    ngx_str_t *line);


#endif /* _NGX_MODELGW_SSE_H_INCLUDED_ */
