
/*
 * The ledger of a cluster, in its database.
 *
 * The functions for operators in ngx_modelgw_store.h then answer for all nodes:
 * those that read, of a store that was opened by _open_cluster(); and changes,
 * of one that was attached to a connection.  No others may be used.
 */


#ifndef _NGX_MODELGW_STORE_CLUSTER_H_INCLUDED_
#define _NGX_MODELGW_STORE_CLUSTER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_journal.h"
#include "ngx_modelgw_pq.h"
#include "ngx_modelgw_store.h"


/*
 * For reading.  It connects when it is first read, for 5 seconds at most; what
 * it reads is of that instant.  conf lives as long as the store.
 *     NULL  no memory, error is set
 */
ngx_modelgw_store_t *ngx_modelgw_store_open_cluster(
    ngx_modelgw_pq_conf_t *conf, ngx_modelgw_store_error_t *error);

/*
 * For changes, by ngx_modelgw_store_begin(), _change() and _commit(), on a
 * connection that is not in a transaction; node: the number of this one.  After
 * an NGX_ERROR the transaction is rolled back, the store is to be closed, and
 * the connection can be used if it is alive.  If _commit() fails, what was
 * committed is not known, until the same change is made again.
 * ngx_modelgw_store_close() does not close the connection.
 *     NULL  no memory
 */
ngx_modelgw_store_t *ngx_modelgw_store_attach(ngx_modelgw_pq_t *pq,
    uint64_t node);

/*
 * After ngx_modelgw_store_change(): the version of keys and accounts that it
 * has made; 0: it has changed neither.
 */
uint64_t ngx_modelgw_store_keys_version(ngx_modelgw_store_t *s);

/*
 * Keys and accounts of the versions after this one, in their order: at most max
 * rows, of whole versions.  Of a version with more rows than max, which a key
 * has that was rotated so often, the oldest digests are left out.
 *     NGX_OK     *n rows; 0: there is nothing newer
 *     NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_feed(ngx_modelgw_store_t *s, uint64_t version,
    ngx_modelgw_feed_t *feed, ngx_uint_t max, ngx_uint_t *n);

/*
 * Calls the handler for each budget of a key that has the time in its window,
 * milliseconds since the Epoch: with the key's id, what is spent of it and held
 * by calls, nano-euro, and the end of the window.
 *     NGX_OK, NGX_ERROR (of the store, or the handler's)
 */
ngx_int_t ngx_modelgw_store_budgets(ngx_modelgw_store_t *s, uint64_t time,
    ngx_modelgw_store_account_pt handler, void *data);

/*
 * Calls the handler for each account of these names, as in
 * ngx_modelgw_store_spent(), with its balance and what is held by calls, as
 * nodes have said last, nano-euro.
 *     NGX_OK, NGX_ERROR (of the store, or the handler's)
 */
ngx_int_t ngx_modelgw_store_balances(ngx_modelgw_store_t *s, ngx_str_t *names,
    ngx_modelgw_store_account_pt handler, void *data);


#endif /* _NGX_MODELGW_STORE_CLUSTER_H_INCLUDED_ */
