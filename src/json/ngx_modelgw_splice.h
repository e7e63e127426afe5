
/*
 * Replacing pieces of a body by byte offsets, in memory and in files, without
 * touching anything else.
 */


#ifndef _NGX_MODELGW_SPLICE_H_INCLUDED_
#define _NGX_MODELGW_SPLICE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


typedef struct {
    off_t                 from;          /* first byte that is replaced */
    off_t                 to;            /* first byte that is not; equal to
                                            from: an insertion */
    ngx_str_t             text;          /* what comes instead; may be empty */
} ngx_modelgw_cut_t;


/*
 * Makes *out a chain with the bytes of in, the cuts applied.  Cuts are in
 * ascending order, do not overlap and lie within the chain.  The bufs of in are
 * not changed; the new bufs may refer to the same memory and files, and to the
 * cuts' texts, so all of these must live as long.  Flags of a last buf
 * (last_buf, flush, sync) are not carried.  Bufs may be in memory, in a file
 * or both; with both, memory counts.  What comes out must be sent once only:
 * nginx cannot rewind a chain of several file bufs for a retry.
 *     NGX_OK     *out is set; *grown is by how many bytes it is longer
 *     NGX_ERROR  no memory, or a cut outside the chain or out of order
 */
ngx_int_t ngx_modelgw_splice(ngx_pool_t *pool, ngx_chain_t *in,
    ngx_modelgw_cut_t *cuts, ngx_uint_t n, ngx_chain_t **out, off_t *grown);


#endif /* _NGX_MODELGW_SPLICE_H_INCLUDED_ */
