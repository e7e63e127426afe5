
/*
 * The limits of keys, and the database: what ngx_modelgw_share.h has to say is
 * said, and answered.
 */


#ifndef _NGX_MODELGW_LIMITS_H_INCLUDED_
#define _NGX_MODELGW_LIMITS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_pq.h"


/*
 * To be called after each exchange of money, by the same thread, and at least
 * once a second: that the database is reached is a part of what it says.  It
 * returns at once if there is nothing else to say.  node: the number of this
 * one; live: nodes that live.
 *     NGX_OK
 *     NGX_AGAIN  error is set; the connection is to be closed.  Until this is
 *                called again, each limit is divided by the number of nodes
 */
ngx_int_t ngx_modelgw_limits_exchange(ngx_modelgw_pq_t *pq,
    ngx_modelgw_ledger_t *l, uint64_t node, uint64_t live,
    ngx_modelgw_pq_error_t *error);


#endif /* _NGX_MODELGW_LIMITS_H_INCLUDED_ */
