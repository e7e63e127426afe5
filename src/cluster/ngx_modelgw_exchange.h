
/*
 * A node and the database of its cluster: joining it, and the exchange, in
 * which a node ships calls that are settled and durable, and says what it
 * borrows and what it gives back.
 *
 * All times that decide anything are the database's.
 */


#ifndef _NGX_MODELGW_EXCHANGE_H_INCLUDED_
#define _NGX_MODELGW_EXCHANGE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_journal.h"
#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_pq.h"
#include "ngx_modelgw_shipment.h"
#include "ngx_modelgw_store.h"


#ifndef NGX_MODELGW_SCHEMA_VERSION
#define NGX_MODELGW_SCHEMA_VERSION   1   /* of the database; tests build others,
                                            too */
#endif
#define NGX_MODELGW_EXCHANGE_CALLS   1000
#define NGX_MODELGW_EXCHANGE_ASKS    1000
#define NGX_MODELGW_EXCHANGE_LIVE    3000  /* ms since a node was seen, or
                                              three exchanges */
#define NGX_MODELGW_EXCHANGE_ARRAYS  16
#define NGX_MODELGW_RANDOM_ID        33  /* of a journal, process, cluster: 32
                                            hexadecimal digits and a NUL */


/* zeroed at first; what is not of the caller is between exchanges */

typedef struct {
    ngx_modelgw_pq_t     *pq;            /* of the caller; NULL: there is no
                                            connection */
    char                 *name;          /* of the node */
    char                  journal[NGX_MODELGW_RANDOM_ID];
    char                  process[NGX_MODELGW_RANDOM_ID];
    char                  cluster[NGX_MODELGW_RANDOM_ID]; /* "": not known */
    uint64_t              num;
    uint64_t              epoch;
    uint64_t              pos;           /* acknowledged */
    uint64_t              keys_version;  /* that this node knows, of the
                                            caller */
    uint64_t              end;           /* the last position of the journal,
                                            set before each join */
    ngx_int_t           (*call)(void *data, uint64_t pos, uint64_t *id);
                                         /* of the caller, in a join and with
                                            its data: the id of the journal's
                                            call at that position, 0 if it does
                                            not have it any more; NGX_OK,
                                            NGX_ERROR */
    uint64_t              age;           /* of the caller: ms since its
                                            configuration was loaded */
    ngx_uint_t            fresh;         /* of the caller, 1: of a process that
                                            has just started: it may take
                                            over; 0 after a join */
    ngx_modelgw_pq_error_t    error;
    ngx_modelgw_pq_result_t  *answer;
    ngx_modelgw_pq_array_t    arrays[NGX_MODELGW_EXCHANGE_ARRAYS];
} ngx_modelgw_exchange_t;

/* Frees the memory of exchanges; the connection is the caller's. */
void ngx_modelgw_exchange_free(ngx_modelgw_exchange_t *x);


/*
 * What the database knows of a lease, also of those of budgets whose windows
 * are over.  Other than NGX_OK is returned by the join.
 */
typedef ngx_int_t (*ngx_modelgw_exchange_lease_pt)(void *data, ngx_str_t *name,
    int64_t granted, int64_t returned, int64_t forced, int64_t spent,
    int64_t held);

/*
 * Joins the cluster, on a connection that was just opened.
 *     NGX_OK        the node is a member; num, epoch, pos are set, and cluster
 *                   if it was ""
 *     NGX_AGAIN     the connection or the database has failed: later
 *     NGX_BUSY      it has left, as it was and still is asked to: later
 *     NGX_DECLINED  it must not work with this database: error is a sentence
 *                   (another cluster, another process has the journal, an old
 *                   copy of the journal is in its place, versions, no schema,
 *                   too few rights)
 */
ngx_int_t ngx_modelgw_exchange_join(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_lease_pt handler, void *data);


/* of an ask, in the answer */

typedef struct {
    int64_t               granted;
    int64_t               returned;
    int64_t               forced;
    int64_t               spent;         /* of calls that were shipped */
    ngx_uint_t            found;         /* 0: there is no such account, it is
                                            to be opened; all else is 0 */
    ngx_uint_t            brief;         /* 1: the need was not met */
    int64_t               free;          /* that no node has */
    uint64_t              recall;        /* by which the answers of others are
                                            counted: ask->recall, unless a
                                            failover has lost it, or the one
                                            that was raised */

    /* if brief */

    int64_t               lent;          /* to other nodes */
    uint64_t              silent;        /* nodes that live, have something, and
                                            have not answered the recall */
    int64_t               away;          /* lent to nodes that are away */
} ngx_modelgw_exchange_said_t;


typedef struct {
    /* asked */
    ngx_modelgw_shipment_t        calls;
    ngx_modelgw_store_price_t    *prices;    /* of the calls */
    ngx_uint_t                    nprices;
    uint64_t                      end;       /* of the journal */
    ngx_modelgw_ask_t            *asks;      /* one a fund */
    ngx_uint_t                    nasks;
    uint64_t                      live;      /* as last known */
    uint64_t                      took;      /* ms, the last one; 0: not known.
                                                If the database is slow, nodes
                                                are seen less often */
    int64_t                     (*held)(void *data, ngx_str_t *account);
                                             /* what an account that a call was
                                                of holds now, for operators;
                                                NULL: not known */
    void                         *data;

    /* answered */
    ngx_modelgw_exchange_said_t  *said;      /* of the asks, by the caller */
    uint64_t                      keys_version;
    uint64_t                      now_live;  /* this one included */
    uint64_t                      now_known; /* keys_version that all live nodes
                                                know */
    ngx_uint_t                    drain;     /* the node was asked to leave */
    ngx_str_t                     recalls;   /* "NAME NO,NAME NO", valid until
                                                the next exchange */
} ngx_modelgw_exchange_round_t;

/*
 * One exchange: a transaction.
 *     NGX_OK        committed; x->pos is that of the last call, the answers
 *                   are set
 *     NGX_AGAIN     not known, the connection is lost, or nodes of this version
 *                   are too old since now: close it, connect, join, and say it
 *                   again
 *     NGX_DECLINED  fenced: close it, connect, join
 */
ngx_int_t ngx_modelgw_exchange(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_round_t *round);

/*
 * Leaves the cluster, when all was shipped and given back.
 *     NGX_OK     the node is no member any more
 *     NGX_AGAIN  not known, or the database knows of leases that have something
 *                left, or the node is fenced: close it, connect, join
 */
ngx_int_t ngx_modelgw_exchange_leave(ngx_modelgw_exchange_t *x);


typedef struct {
    ngx_str_t             name;          /* of the fund */
    int64_t               amount;        /* founding credit, or limit */
    ngx_str_t             key;           /* of a budget; len 0: an account */
    uint64_t              starts;        /* of its window, ms */
    uint64_t              ends;          /* INT64_MAX and above: never */
} ngx_modelgw_exchange_open_t;

/*
 * Opens accounts, with their founding credit, and budgets of keys, with what
 * calls that ended in the window have cost so far: NGX_MODELGW_EXCHANGE_ASKS at
 * most.  What is open does not change, but for the limit of a budget: that of a
 * key that operators have given one is the database's, else that of the
 * configuration counts that was loaded last, on whichever node.
 *     NGX_OK
 *     NGX_AGAIN  not known, or not all of them: close it, connect, join, and
 *                open them again
 */
ngx_int_t ngx_modelgw_exchange_open(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_open_t *opens, ngx_uint_t n);


/*
 * Says top-ups again that this node has taken, NGX_MODELGW_EXCHANGE_ASKS at
 * most: a failover may have lost them.
 * Those that the database has do not change, and those of accounts that it does
 * not have are left out: accounts are to be opened before.
 *     NGX_OK
 *     NGX_AGAIN  not known, or not all of them: close it, connect, join, and
 *                say them again
 */
ngx_int_t ngx_modelgw_exchange_topups(ngx_modelgw_exchange_t *x,
    ngx_modelgw_journal_topup_t *topups, ngx_uint_t n);



/*
 * Closes accounts, by their names, that are open since a version of keys and
 * accounts up to this one: with a version, and an action, of their own.  names:
 * a buffer, len is its size; then which ones were closed, len 0: none.
 *     NGX_OK
 *     NGX_AGAIN  not known: close it, connect, join
 */
ngx_int_t ngx_modelgw_exchange_close(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_open_t *opens, ngx_uint_t n, uint64_t version,
    ngx_str_t *names);


#endif /* _NGX_MODELGW_EXCHANGE_H_INCLUDED_ */
