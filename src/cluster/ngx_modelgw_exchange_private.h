
/*
 * What the statements of joining, exchanging and opening share.
 *
 * Whoever locks rows does so in this order, so there are no deadlocks: the one
 * of the cluster, those of nodes by their numbers, leases of these nodes,
 * prices, the mark of hours, hours, accounts by their names, recalls.  The
 * leases of a node are written by who has locked the node's row.  Who opens a
 * budget has the mark first, FOR SHARE: only the clerk waits for that, and it
 * locks nothing before it.
 */


#ifndef _NGX_MODELGW_EXCHANGE_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_EXCHANGE_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_exchange.h"


#define NGX_MODELGW_EXCHANGE_TIMEOUT  10000  /* ms */
#define NGX_MODELGW_EXCHANGE_LONG     60000  /* ms, of what may read a lot */

/* milliseconds since the Epoch, when the transaction was begun */

#define NGX_MODELGW_EXCHANGE_NOW  "(extract(epoch FROM now()) * 1000)::bigint"


/* the parameters of a statement; those in arrays use x->arrays */

typedef struct {
    ngx_uint_t               n;
    ngx_uint_t               failed;     /* no memory */
    ngx_modelgw_pq_param_t   params[NGX_MODELGW_PQ_PARAMS];
    u_char                   numbers[NGX_MODELGW_PQ_PARAMS][sizeof(int64_t)];
} ngx_modelgw_exchange_args_t;

void ngx_modelgw_exchange_int(ngx_modelgw_exchange_args_t *args, int64_t n);
void ngx_modelgw_exchange_text(ngx_modelgw_exchange_args_t *args, char *text);
void ngx_modelgw_exchange_array(ngx_modelgw_exchange_args_t *args,
    ngx_modelgw_pq_array_t *a);

/*
 * The columns of nrows rows, of size bytes each, as arrays: the i-th one is in
 * x->arrays[i].
 */
void ngx_modelgw_exchange_columns(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_args_t *args,
    const ngx_modelgw_pq_column_t *columns, ngx_uint_t n, void *rows,
    size_t size, ngx_uint_t nrows);

/*
 * Queues a statement, and drops its parameters.
 *     NGX_OK, NGX_ERROR (x->error is set)
 */
ngx_int_t ngx_modelgw_exchange_add(ngx_modelgw_exchange_t *x, const char *sql,
    ngx_modelgw_exchange_args_t *args);

/* Executes one statement, that may read a lot: as ngx_modelgw_pq_exec(). */
ngx_int_t ngx_modelgw_exchange_exec(ngx_modelgw_exchange_t *x,
    const char *sql, ngx_modelgw_exchange_args_t *args,
    ngx_modelgw_pq_result_t **result);

/*
 * Whether nodes of this version may use the tables still, of which "oldest" is
 * the oldest version that may.
 *     NGX_OK, NGX_DECLINED (x->error is set)
 */
ngx_int_t ngx_modelgw_exchange_known(ngx_modelgw_exchange_t *x, int64_t oldest);

/* sets x->error */
void ngx_modelgw_exchange_set_error(ngx_modelgw_exchange_t *x, const char *fmt,
    ...);


#endif /* _NGX_MODELGW_EXCHANGE_PRIVATE_H_INCLUDED_ */
