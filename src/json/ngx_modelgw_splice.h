
/*
 * Replacing pieces of a body by byte offsets, in memory and in files; all other
 * bytes stay the same.
 */


#ifndef _NGX_MODELGW_SPLICE_H_INCLUDED_
#define _NGX_MODELGW_SPLICE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


typedef struct {
    off_t                 from;          /* bytes [from, to) are replaced; if */
    off_t                 to;            /* they are equal, text is inserted */
    ngx_str_t             text;          /* the new bytes; may be empty */
} ngx_modelgw_cut_t;


/*
 * Sets *out to a chain with the bytes of in, with the n cuts applied.  Cuts are
 * in ascending order, do not overlap and are within the chain.  The bufs of in
 * are not changed; new bufs refer to the same memory and files, and to the
 * texts of the cuts, which must live as long.  The flags last_buf, flush and
 * sync are not copied.  Bufs may be in memory, in a file, or both: then the
 * memory is used.  The chain must be sent only once: nginx cannot rewind a
 * chain of several file bufs for a retry.
 *     NGX_OK     *out is set; *grown is the difference in bytes
 *     NGX_ERROR  no memory, or a cut is outside the chain or out of order
 */
ngx_int_t ngx_modelgw_splice(ngx_pool_t *pool, ngx_chain_t *in,
    ngx_modelgw_cut_t *cuts, ngx_uint_t n, ngx_chain_t **out, off_t *grown);


#endif /* _NGX_MODELGW_SPLICE_H_INCLUDED_ */
