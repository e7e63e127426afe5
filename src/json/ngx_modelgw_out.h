
/*
 * Where a codec writes to: a function of the caller's, and an error that is
 * remembered, so that codecs read like the text they write.  And the plainest
 * such function, which collects a chain of bufs.
 */


#ifndef _NGX_MODELGW_OUT_H_INCLUDED_
#define _NGX_MODELGW_OUT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * Takes len bytes.  Borrowed ones need not be copied: they stay where they are
 * for as long as the caller of the codec knows.
 *     NGX_OK, NGX_ERROR (no memory)
 */
typedef ngx_int_t (*ngx_modelgw_out_pt)(void *data, u_char *p, size_t len,
    ngx_uint_t borrowed);


typedef struct {
    ngx_modelgw_out_pt    write;
    void                 *data;
    ngx_uint_t            failed;        /* some write was NGX_ERROR; what was
                                            written after it is lost */
} ngx_modelgw_out_t;


/* Writes; after a failure nothing more. */
void ngx_modelgw_out(ngx_modelgw_out_t *out, u_char *p, size_t len);
void ngx_modelgw_out_borrowed(ngx_modelgw_out_t *out, u_char *p, size_t len);

#define ngx_modelgw_out_text(out, text)                                       \
    ngx_modelgw_out(out, (u_char *) text, sizeof(text) - 1)

/* A number, in decimal. */
void ngx_modelgw_out_number(ngx_modelgw_out_t *out, int64_t n);

/*
 * The bytes as the inside of a JSON string: '"', '\' and control bytes are
 * escaped, all else is left as it is; so they must be UTF-8.
 */
void ngx_modelgw_out_escaped(ngx_modelgw_out_t *out, u_char *p, size_t len);


/* a chain of memory bufs; bufs have start == pos, so that they can be sent
   anew */

typedef struct {
    ngx_pool_t           *pool;
    ngx_chain_t          *first;
    ngx_chain_t         **last;
    ngx_buf_t            *buf;           /* the last one, if it is being filled;
                                            NULL: another one must be made */
    u_char               *free;          /* memory to copy to */
    u_char               *end;
    size_t                next;          /* size of the next such memory */
    off_t                 size;          /* bytes written */
} ngx_modelgw_out_chain_t;


/*
 * Makes out write to the chain.  Short pieces are copied together, long ones
 * that are borrowed get a buf of their own.  hint is about how many bytes will
 * be copied.
 */
void ngx_modelgw_out_chain(ngx_modelgw_out_t *out,
    ngx_modelgw_out_chain_t *chain, ngx_pool_t *pool, size_t hint);


#endif /* _NGX_MODELGW_OUT_H_INCLUDED_ */
