
/*
 * The directive modelgw_cluster, as the rooms below http see it.
 */


#ifndef _NGX_MODELGW_CLUSTER_H_INCLUDED_
#define _NGX_MODELGW_CLUSTER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_pq.h"


typedef struct {
    ngx_modelgw_pq_conf_t  pq;
    char                  *name;         /* of the node, for people */
    ngx_msec_t             exchange;     /* ms, between two exchanges while
                                            there is something to say */
    ngx_msec_t             wait;         /* ms, that a call waits for credit */
    ngx_msec_t             offline;      /* ms, without an exchange: then calls
                                            are refused */
    ngx_msec_t             lost;         /* ms, that a node was not seen: then
                                            it is written off; 0: off */
    uint64_t               loaded;       /* CLOCK_BOOTTIME, ms, when it has come
                                            into force */
} ngx_modelgw_cluster_conf_t;


#endif /* _NGX_MODELGW_CLUSTER_H_INCLUDED_ */
