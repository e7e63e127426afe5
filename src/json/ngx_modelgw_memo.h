
/*
 * States of scanners by what they have read, so that a conversation that is
 * sent again, and has grown, is not scanned again.
 *
 * A state is found by the keyed hash of all bytes before it (prefix.h), with
 * the plan and the owner: so a hit is the state that a scan of these bytes
 * gives, but for a collision, which cannot be found without the secret.
 * Owners do not see each other's: neither their states, nor, by the time that
 * a scan takes, whether there are any.  What was not used for longest goes,
 * whosever it is: that tells an owner how much others have read, not what.
 */


#ifndef _NGX_MODELGW_MEMO_H_INCLUDED_
#define _NGX_MODELGW_MEMO_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_prefix.h"
#include "ngx_modelgw_scan.h"


typedef struct ngx_modelgw_memo_s  ngx_modelgw_memo_t;


/* a document that is read */

typedef struct {
    ngx_modelgw_memo_t    *memo;
    ngx_modelgw_scan_t    *scan;
    off_t                  read;
    off_t                  scanned;      /* or skipped */
    u_char                *from;         /* the first one after them */
    off_t                  last;         /* end of the last link in it; 0: that
                                            is not wanted */
    ngx_uint_t             seen;         /* 1: all links so far were */
    ngx_modelgw_prefix_t   prefix;
} ngx_modelgw_memo_read_t;


/*
 * Returns a memo of at most nstates states, each after a multiple of size
 * bytes, which is one of NGX_MODELGW_PREFIX_UNIT, with a secret of
 * NGX_MODELGW_PREFIX_KEY bytes.  It lives as long as the pool.  NULL if there
 * is no memory, or the processor has no instructions for it.
 */
ngx_modelgw_memo_t *ngx_modelgw_memo_create(ngx_pool_t *pool,
    ngx_uint_t nstates, size_t size, u_char *secret);

/*
 * Begins a document of len bytes for a scanner that has read nothing, whose
 * plan lives as long as the memo.  The owner's name has at most
 * NGX_MODELGW_PREFIX_UNIT - 32 bytes.
 */
void ngx_modelgw_memo_begin(ngx_modelgw_memo_t *m, ngx_modelgw_memo_read_t *r,
    ngx_modelgw_scan_t *scan, ngx_str_t *owner, off_t len);

/*
 * Reads the next len bytes of the document, as ngx_modelgw_scan_feed() does.
 * With more they may wait for the next call, and must be in memory until then.
 */
ngx_int_t ngx_modelgw_memo_feed(ngx_modelgw_memo_read_t *r, u_char *p,
    size_t len, ngx_uint_t more);

/* Returns how many bytes were not scanned, of all documents: for tests. */
uint64_t ngx_modelgw_memo_skipped(ngx_modelgw_memo_t *m);


#endif /* _NGX_MODELGW_MEMO_H_INCLUDED_ */
