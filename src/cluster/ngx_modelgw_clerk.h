
/*
 * The clerk: the node that keeps the database in order, one at a time.  It sums
 * up calls by hours, rolls up old ones to days, deletes what is over, and takes
 * back what nodes had that are lost.
 *
 * Two clerks at once do no harm: each step is a transaction of its own, and
 * finds nothing to do where the other one has been.
 */


#ifndef _NGX_MODELGW_CLERK_H_INCLUDED_
#define _NGX_MODELGW_CLERK_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_pq.h"


/* zeroed by the caller when it has connected, then kept; times are those of
   the configuration in force, and may change */

typedef struct {
    uint64_t              num;           /* of this node */
    char                 *cluster;       /* its id; "": of any */
    uint64_t              keep;          /* seconds that calls are kept; 0: for
                                            ever */
    uint64_t              lost;          /* ms without an exchange after which
                                            a node is lost; 0: never */

    /* set by the step that has taken back what a node had */

    uint64_t              lost_node;     /* its number; 0: none */
    int64_t               taken;         /* nano-euro, without budgets */

    /* of the clerk only */

    ngx_uint_t            step;
    ngx_uint_t            full;          /* steps that have left something to
                                            do, since the first one */
    uint64_t              now;           /* ms since the Epoch, by the
                                            database's clock */
    uint64_t              since;         /* of the first call */
    uint64_t              slow;          /* when slow steps are due */
} ngx_modelgw_clerk_t;


/*
 * Does one step, a transaction, on a connection that is in none: some
 * milliseconds, or tenths of a second if it deletes calls; exchanges do not
 * wait for that.  To be called from time to time by each node.
 *     NGX_OK        there is nothing more to do
 *     NGX_AGAIN     there is more to do
 *     NGX_DECLINED  another node is the clerk
 *     NGX_ERROR     error is set; the step is done again by the next call, if
 *                   the connection is alive
 */
ngx_int_t ngx_modelgw_clerk(ngx_modelgw_pq_t *pq, ngx_modelgw_clerk_t *clerk,
    ngx_modelgw_pq_error_t *error);


#endif /* _NGX_MODELGW_CLERK_H_INCLUDED_ */
