
/*
 * The ledger's file as the journal of a node: what it must not forget of the
 * cluster.  src/store/ngx_modelgw_store_journal.c
 *
 * It has all tables of a ledger of one machine, and besides: node (one row),
 * outbox (positions of calls, which the view "positions" has one by one),
 * leases and acknowledged.  PRAGMA user_version is 100 +
 * NGX_MODELGW_STORE_VERSION, so an older nginx refuses it.  An account's
 * balance is what is left of its lease: granted - returned - forced - the cost
 * of its calls.  The top-ups in it are those that this node has taken lately,
 * to be said again; they do not count.
 *
 * It is made and opened by ngx_modelgw_store_open_journal().
 */


#ifndef _NGX_MODELGW_JOURNAL_H_INCLUDED_
#define _NGX_MODELGW_JOURNAL_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store.h"


#define NGX_MODELGW_JOURNAL_ID    33     /* 32 hexadecimal digits and a NUL */
#define NGX_MODELGW_JOURNAL_KEEP  604800 /* seconds that outbox rows are kept
                                            after they were acknowledged, but
                                            for the newest one, and their calls,
                                            or twice as long; and top-ups */

typedef struct {
    char                  id[NGX_MODELGW_JOURNAL_ID];
    char                  cluster[NGX_MODELGW_JOURNAL_ID]; /* "": none yet */
    uint64_t              num;           /* of the node; 0: not known yet */
    uint64_t              exchanged;     /* ms since the Epoch, of the last
                                            good exchange, about; 0: none */
    uint64_t              pos;           /* acknowledged */
    uint64_t              end;           /* the last position, from outbox */
    uint64_t              keys_version;  /* of the keys in it */
} ngx_modelgw_journal_t;

/*
 * Sets *journal.
 *     NGX_OK
 *     NGX_DECLINED  it is no journal
 *     NGX_ERROR
 */
ngx_int_t ngx_modelgw_journal_read(ngx_modelgw_store_t *s,
    ngx_modelgw_journal_t *journal);

/*
 * Calls the handler for each lease, until it returns something other than
 * NGX_OK, which is returned; granted, returned, forced: totals, nano-euro.
 *     NGX_OK, NGX_ERROR (of the store, or the handler's)
 */
typedef ngx_int_t (*ngx_modelgw_journal_lease_pt)(void *data, ngx_str_t *name,
    int64_t granted, int64_t returned, int64_t forced);
ngx_int_t ngx_modelgw_journal_leases(ngx_modelgw_store_t *s,
    ngx_modelgw_journal_lease_pt handler, void *data);

/* a settled call; texts are valid until the next one is read */

typedef struct {
    uint64_t              pos;
    int64_t               id;
    int64_t               time;
    int64_t               ended;
    int64_t               input;
    int64_t               cache_read;
    int64_t               cache_write;
    int64_t               cache_write_1h;
    int64_t               output;
    int64_t               reasoning;
    int64_t               cost;
    int64_t               status;
    int64_t               first_byte;    /* -1: NULL */
    int64_t               flags;
    int64_t               price;
    ngx_str_t             key;
    ngx_str_t             account;
    ngx_str_t             model;
    ngx_str_t             outcome;
    ngx_str_t             end;
    ngx_str_t             request_id;
} ngx_modelgw_journal_call_t;

/*
 * For a reader.  _calls() calls the handler for at most max calls after pos, in
 * the order of their positions, _price() for the price with the id, if there is
 * one.
 *     NGX_OK, NGX_ERROR (of the store, or the handler's)
 */
typedef ngx_int_t (*ngx_modelgw_journal_call_pt)(void *data,
    ngx_modelgw_journal_call_t *call);
ngx_int_t ngx_modelgw_journal_calls(ngx_modelgw_store_t *s, uint64_t pos,
    ngx_uint_t max, ngx_modelgw_journal_call_pt handler, void *data);

typedef ngx_int_t (*ngx_modelgw_journal_price_pt)(void *data,
    ngx_modelgw_store_price_t *price);
ngx_int_t ngx_modelgw_journal_price(ngx_modelgw_store_t *s, uint64_t id,
    ngx_modelgw_journal_price_pt handler, void *data);

typedef struct {
    ngx_str_t             id;
    ngx_str_t             account;
    int64_t               amount;
    uint64_t              time;          /* ms */
    ngx_str_t             reason;
} ngx_modelgw_journal_topup_t;

/*
 * For a reader: calls the handler for at most max top-ups that were made after
 * "time", milliseconds since the Epoch, in the order of their times, of which
 * no two are the same; texts are valid until the next one is read.
 *     NGX_OK, NGX_ERROR (of the store, or the handler's)
 */
typedef ngx_int_t (*ngx_modelgw_journal_topup_pt)(void *data,
    ngx_modelgw_journal_topup_t *topup);
ngx_int_t ngx_modelgw_journal_topups(ngx_modelgw_store_t *s, uint64_t time,
    ngx_uint_t max, ngx_modelgw_journal_topup_pt handler, void *data);

/*
 * The last position: of the outbox's newest row; 0: no call was written.
 *     NGX_OK, NGX_ERROR
 */
ngx_int_t ngx_modelgw_journal_end(ngx_modelgw_store_t *s, uint64_t *end);

/*
 * Sets *id of the call at a position; 0: it has none there, or not any more.
 *     NGX_OK, NGX_ERROR
 */
ngx_int_t ngx_modelgw_journal_call(ngx_modelgw_store_t *s, uint64_t pos,
    uint64_t *id);


/*
 * For a writer: the handler is called for each call that is inserted, with its
 * position.  Both count when the batch is committed, and are void if it fails.
 */
typedef void (*ngx_modelgw_journal_written_pt)(void *data, uint64_t pos,
    ngx_modelgw_call_t *call, ngx_modelgw_ledger_name_t *account);
void ngx_modelgw_journal_written(ngx_modelgw_store_t *s,
    ngx_modelgw_journal_written_pt handler, void *data);


/* In a batch of the writer: NGX_OK, NGX_ERROR (the batch is rolled back). */

ngx_int_t ngx_modelgw_journal_set(ngx_modelgw_store_t *s,
    ngx_modelgw_journal_t *journal);     /* cluster, num, exchanged, pos,
                                            keys_version; not id and end */
ngx_int_t ngx_modelgw_journal_lease(ngx_modelgw_store_t *s, ngx_str_t *name,
    int64_t granted, int64_t returned, int64_t forced);
                                         /* totals; accounts.balance changes by
                                            the difference to those it had;
                                            the account must exist.  Names of
                                            budgets begin with "#". */
ngx_int_t ngx_modelgw_journal_topup(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change);       /* or the founding credit of an account
                                            that it has opened; one that is
                                            there does not change */


/*
 * What the database has of keys and accounts that have changed: "feed".  Rows
 * of one key come together, a row a digest (state ACTIVE, ROTATED or REVOKED).
 * The writer writes them to the journal, then they are published.
 */

typedef struct {
    uint64_t              version;       /* cluster.keys_version */
    ngx_uint_t            account;       /* 1: of an account, else of a key */
    ngx_modelgw_ledger_name_t  name;     /* of the account */
    ngx_uint_t            closed;
    ngx_modelgw_managed_key_t  key;
} ngx_modelgw_feed_t;

/*
 * How many of these n rows, at least one, the first one belongs with: 1 for an
 * account, all that come together for a key.
 */
ngx_uint_t ngx_modelgw_feed_rows(ngx_modelgw_feed_t *feed, ngx_uint_t n);

/*
 * In a batch: all rows of a key replace those that the journal has of its id;
 * an account that the journal does not have is added, at "time", milliseconds
 * since the Epoch, if it is closed or a key is of it that may be used.
 *     NGX_OK, NGX_ERROR (the batch is rolled back)
 */
ngx_int_t ngx_modelgw_journal_feed(ngx_modelgw_store_t *s,
    ngx_modelgw_feed_t *feed, ngx_uint_t n, uint64_t time);

/*
 * Deletes, in a batch of its own, at most "max" rows of the outbox, but not the
 * newest one, of calls that were acknowledged before "time", seconds since the
 * Epoch; top-ups made before it; and what was lent of budgets whose windows are
 * long over.  It notes what is acknowledged now, NGX_MODELGW_JOURNAL_KEEP
 * later.
 *     NGX_OK        *n were deleted; fewer than max: there are no more
 *     NGX_ERROR
 */
ngx_int_t ngx_modelgw_journal_trim(ngx_modelgw_store_t *s, uint64_t time,
    ngx_uint_t max, ngx_uint_t *n);


#endif /* _NGX_MODELGW_JOURNAL_H_INCLUDED_ */
