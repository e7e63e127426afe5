
/*
 * Writing JSON: to a function of the caller, with an error that is kept, so
 * that writers read like the text they write.  Two such functions are here: one
 * makes a chain of bufs, the other one piece of memory.
 */


#ifndef _NGX_MODELGW_OUT_H_INCLUDED_
#define _NGX_MODELGW_OUT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * Takes len bytes, at least one.  Borrowed bytes need not be copied: they live
 * as long as what is written.
 *     NGX_OK, NGX_ERROR (no memory)
 */
typedef ngx_int_t (*ngx_modelgw_out_pt)(void *data, u_char *p, size_t len,
    ngx_uint_t borrowed);


typedef struct {
    ngx_modelgw_out_pt    write;
    void                 *data;          /* its first argument */
    ngx_uint_t            failed;        /* write has returned NGX_ERROR, and is
                                            not called any more */
} ngx_modelgw_out_t;


/*
 * Functions that write return nothing: out->failed is looked at once, at the
 * end.
 */

void ngx_modelgw_out(ngx_modelgw_out_t *out, u_char *p, size_t len);
void ngx_modelgw_out_borrowed(ngx_modelgw_out_t *out, u_char *p, size_t len);

/* a string literal */
#define ngx_modelgw_out_text(out, text)                                       \
    ngx_modelgw_out(out, (u_char *) text, sizeof(text) - 1)

/*
 * Writes a number in decimal that ends at last, of NGX_INT64_LEN digits at
 * most, and returns its beginning.  It is done some times for each request, and
 * for each event of a stream: ngx_sprintf() takes 300 instructions.
 */

static ngx_inline u_char *
ngx_modelgw_out_digits(u_char *last, uint64_t n)
{
    do {
        *--last = (u_char) ('0' + n % 10);
        n /= 10;
    } while (n);

    return last;
}


/* Writes the number in decimal. */
void ngx_modelgw_out_number(ngx_modelgw_out_t *out, int64_t n);

/*
 * Writes the inside of a JSON string: '"', '\' and control bytes are escaped,
 * other bytes are copied; so they must be UTF-8.
 */
void ngx_modelgw_out_escaped(ngx_modelgw_out_t *out, u_char *p, size_t len);

/* Writes a JSON string, with quotes; bytes that are not UTF-8 become U+FFFD. */
void ngx_modelgw_out_string(ngx_modelgw_out_t *out, ngx_str_t *s);

/*
 * Writes a time as a JSON string (RFC 3339), in UTC: _time() milliseconds since
 * the Epoch, not negative, as "2026-11-22T06:47:00.123Z"; _day() the day of a
 * time in seconds since the Epoch, as "2026-11-22".
 */
void ngx_modelgw_out_time(ngx_modelgw_out_t *out, int64_t ms);
void ngx_modelgw_out_day(ngx_modelgw_out_t *out, time_t sec);


/*
 * A chain of memory bufs.  They have start == pos, so that they can be sent
 * again.
 */
typedef struct {
    ngx_pool_t           *pool;
    ngx_chain_t          *first;
    ngx_chain_t         **last;
    ngx_buf_t            *buf;           /* the last one, if it is being filled;
                                            NULL: the next bytes need another */
    u_char               *free;          /* memory to copy to */
    u_char               *end;
    size_t                next;          /* bytes to allocate next */
    off_t                 size;          /* bytes written */
} ngx_modelgw_out_chain_t;


/*
 * Makes out write to the chain, which becomes empty.  Short pieces are copied
 * together, long ones that are borrowed get a buf of their own.  hint is about
 * how many bytes will be copied.
 */
void ngx_modelgw_out_chain(ngx_modelgw_out_t *out,
    ngx_modelgw_out_chain_t *chain, ngx_pool_t *pool, size_t hint);


/*
 * One piece of memory.  When it is full, its bytes are moved to a piece that is
 * twice as large, or has room for twice what is written then; the old one is
 * freed if the pool can free it.
 */

typedef struct {
    ngx_pool_t           *pool;
    u_char               *start;
    u_char               *last;
    u_char               *end;
} ngx_modelgw_out_piece_t;


/*
 * Makes out write to one piece of memory of the pool.  hint, at least 1, is how
 * many bytes are allocated first.  The caller owns out and piece, and keeps
 * both until _piece_done(); the memory belongs to the pool.
 */
void ngx_modelgw_out_piece(ngx_modelgw_out_t *out,
    ngx_modelgw_out_piece_t *piece, ngx_pool_t *pool, size_t hint);

/*
 * Sets *text to all that was written to the piece; it is not copied, so nothing
 * more may be written.  out must be one of _piece().
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_out_piece_done(ngx_modelgw_out_t *out, ngx_str_t *text);


#endif /* _NGX_MODELGW_OUT_H_INCLUDED_ */
