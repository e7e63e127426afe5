
/*
 * What the files of the exchanger share: the thread that exchanges with the
 * database of a cluster, see ngx_http_modelgw_exchanger.c.
 */


#ifndef _NGX_HTTP_MODELGW_EXCHANGER_H_INCLUDED_
#define _NGX_HTTP_MODELGW_EXCHANGER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_cluster.h"
#include "ngx_modelgw_exchange.h"
#include "ngx_modelgw_journal.h"
#include "ngx_modelgw_lease.h"
#include "ngx_http_modelgw_writer.h"


#define NGX_HTTP_MODELGW_EXCHANGER_TEXT   1024   /* bytes of a row's texts */
#define NGX_HTTP_MODELGW_EXCHANGER_PRICES  256
#define NGX_HTTP_MODELGW_EXCHANGER_FEED   1000   /* rows at a time */
#define NGX_HTTP_MODELGW_EXCHANGER_BEAT   1000   /* ms: with nothing to say */


/*
 * funds.c: the funds that are in use here, of which something may have to be
 * said: a call has waited for them, and something of them is left or was used
 * lately.  A round looks at these, not at all accounts.
 */

typedef struct {
    ngx_modelgw_fund_t             fund;
    uint64_t                       round;    /* that has looked at it last */
    uint64_t                       joined;   /* when the database's leases were
                                                read last, it had this one */

    unsigned                       unknown:1; /* the database does not have
                                                it */
    unsigned                       dirty:1;  /* the journal has other totals */
} ngx_http_modelgw_fund_t;

/* a budget as this process has opened it in the database */

typedef struct {
    uint64_t                       ends;
    int64_t                        limit;
} ngx_http_modelgw_fund_budget_t;

typedef struct {
    ngx_http_modelgw_fund_t       *elts;
    ngx_uint_t                     n;
    ngx_uint_t                     size;
    ngx_uint_t                     next;     /* where the next round begins */
    uint32_t                       max[NGX_MODELGW_FUNDS];
    uint32_t                      *places[NGX_MODELGW_FUNDS];
                                             /* by index: in elts, from 1; 0:
                                                it is not in use */
    ngx_http_modelgw_fund_budget_t  *budgets; /* by index, of those that are not
                                                in use, too */
} ngx_http_modelgw_funds_t;

/* NGX_OK, NGX_ERROR (no memory); what is allocated is freed by _free(). */
ngx_int_t ngx_http_modelgw_funds_create(ngx_http_modelgw_funds_t *funds,
    ngx_modelgw_ledger_t *ledger);
void ngx_http_modelgw_funds_free(ngx_http_modelgw_funds_t *funds);

/*
 * Finds a fund; _add() adds it if it is not there.  NULL: it is not, or there
 * is no memory.  What they return is valid until the next _add() or _remove().
 */
ngx_http_modelgw_fund_t *ngx_http_modelgw_funds_find(
    ngx_http_modelgw_funds_t *funds, ngx_modelgw_fund_t *fund);
ngx_http_modelgw_fund_t *ngx_http_modelgw_funds_add(
    ngx_http_modelgw_funds_t *funds, ngx_modelgw_fund_t *fund);

/* Removes the i-th one: the last one gets its place. */
void ngx_http_modelgw_funds_remove(ngx_http_modelgw_funds_t *funds,
    ngx_uint_t i);


/* a change by an operator that is made, until live nodes know it */

typedef struct {
    ngx_modelgw_change_t          *change;
    uint64_t                       time;     /* of the change: which it is */
    uint64_t                       version;
    uint64_t                       until;    /* ms, then it is answered */
    ngx_modelgw_change_e           result;
} ngx_http_modelgw_made_t;


typedef struct {
    ngx_http_modelgw_writer_t     *writer;
    ngx_http_modelgw_shared_t     *shared;
    ngx_modelgw_ledger_t          *ledger;
    ngx_modelgw_lease_node_t      *node;
    ngx_modelgw_pq_conf_t          conf;
    char                          *path;     /* of the journal */
    uint64_t                       loaded;   /* of CLOCK_BOOTTIME, ms: the
                                                configuration */
    pthread_t                      thread;
    pthread_t                      clerk;
    ngx_atomic_t                   stop;     /* set by _stop(): the last
                                                exchange follows */
    ngx_atomic_t                   gone;     /* at once */
    ngx_atomic_t                   ended;
    ngx_atomic_t                   joined;   /* 1: by this connection */

    /* of the thread */

    ngx_modelgw_exchange_t         x;
    ngx_modelgw_journal_t          journal;  /* as it is written next */
    ngx_modelgw_store_t           *reader;   /* of the journal; NULL: closed */
    uint64_t                       opened;   /* ms, the reader */
    ngx_modelgw_store_error_t      error;
    ngx_http_modelgw_funds_t       funds;

    ngx_uint_t                     left;     /* 1: the cluster, as it was
                                                asked to */
    uint64_t                       joins;
    ngx_uint_t                     lowered;  /* 1: by a join it has less than
                                                it knew, and that may not be in
                                                the journal yet */
    ngx_uint_t                     closed;   /* 1: accounts that are closed here
                                                were not compared since */
    uint32_t                       compared; /* accounts looked at for that */
    uint64_t                       since;    /* ms, when it has joined */
    ngx_uint_t                     failures; /* one after another */
    uint32_t                       refused;  /* hash of the reason that a line
                                                has told, not 0; or 0 */
    ngx_uint_t                     away;     /* 1: a line says so */
    uint64_t                       retry;    /* ms, when to connect */

    uint64_t                       number;   /* of the round */
    uint64_t                       last;     /* ms, the last exchange */
    uint64_t                       awake;    /* ms, no beat is waited for until
                                                then */
    uint64_t                       read;     /* ms, the journal */
    uint64_t                       shipped;  /* calls DONE, when all that were
                                                so had been shipped */
    uint64_t                       reads;    /* the same, if this round is
                                                good */
    uint64_t                       saved;    /* ms, the journal's row */
    ngx_uint_t                     good;     /* 1: the round had an exchange */
    ngx_uint_t                     resolved; /* claims, in this round */
    uint64_t                       ticket;   /* of the newest claim so far */
    ngx_uint_t                     hurry;    /* 1: the next round is now */
    ngx_uint_t                     hurries;  /* one after another, for calls
                                                that wait */
    ngx_uint_t                     idle;     /* rounds of a node that leaves
                                                which had nothing to say */
    uint32_t                       accounts; /* were opened */
    ngx_modelgw_exchange_round_t   round;
    u_char                        *text;     /* of prices and top-ups */
    u_char                        *text_end;
    u_char                        *texts;
    ngx_uint_t                     full;     /* 1: there are more calls */
    ngx_modelgw_store_price_t     *prices;
    uint64_t                       priced[NGX_HTTP_MODELGW_EXCHANGER_PRICES];
                                             /* ids of some that the database
                                                has, each at its place */
    ngx_modelgw_ask_t             *asks;
    ngx_modelgw_exchange_said_t   *said;
    ngx_modelgw_exchange_open_t   *opens;
    ngx_modelgw_feed_t            *feed;
    uint64_t                       version;  /* of keys and accounts: the feed
                                                was read so far */
    ngx_uint_t                     setback;  /* 1: the database was set back,
                                                all of its keys are read */
    uint64_t                      *seen;     /* then: hashes of their ids */
    ngx_uint_t                     nseen;
    ngx_uint_t                     seen_size;
    ngx_uint_t                     checked;  /* keys here, if it has them */
    ngx_modelgw_journal_topup_t   *topups;   /* of the journal, to say again */
    ngx_uint_t                     ntopups;
    uint64_t                       again;    /* ms: the later ones are to be
                                                said; -1: none */
    ngx_uint_t                     nmade;
    ngx_http_modelgw_made_t        made[NGX_MODELGW_LEDGER_CHANGES];
} ngx_http_modelgw_exchanger_t;


/* exchanger.c */

/* ms: since the Epoch, and of CLOCK_BOOTTIME. */
uint64_t ngx_http_modelgw_exchanger_time(void);
uint64_t ngx_http_modelgw_exchanger_boot(void);

/*
 * Writes these, and the row of the node, to the journal, and waits until they
 * are durable: NGX_OK, NGX_AGAIN.
 */
ngx_int_t ngx_http_modelgw_exchanger_write(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_ask_t *asks, ngx_uint_t nasks, ngx_modelgw_feed_t *feed,
    ngx_uint_t nfeed);


/* round.c */

/*
 * A round: an exchange, if there is something to say.
 *     NGX_OK        e->hurry: another one is to follow at once
 *     NGX_AGAIN     the connection is to be closed; e->x.error
 *     NGX_DECLINED  so, as the node was fenced
 */
ngx_int_t ngx_http_modelgw_round(ngx_http_modelgw_exchanger_t *e);

/* The last one: ships what is durable, says nothing else.  The same. */
ngx_int_t ngx_http_modelgw_round_last(ngx_http_modelgw_exchanger_t *e);

/*
 * Whether the exchanger has to make a round before its time: a call waits that
 * the last one has not seen, or an operator does.
 */
ngx_uint_t ngx_http_modelgw_round_due(ngx_http_modelgw_exchanger_t *e);

/*
 * When it has joined, and has less than it knew: that is in the journal before
 * a call is admitted, or a start without the database would go on with more.
 *     NGX_OK, NGX_AGAIN (the journal cannot be written)
 */
ngx_int_t ngx_http_modelgw_round_lowered(ngx_http_modelgw_exchanger_t *e);

/* Without the database: ends the waits of calls that are over. */
void ngx_http_modelgw_round_alone(ngx_http_modelgw_exchanger_t *e);

/* Sets *open for an account, with its founding credit in the configuration. */
void ngx_http_modelgw_round_open_account(ngx_http_modelgw_exchanger_t *e,
    ngx_modelgw_exchange_open_t *open, uint32_t index);

/* Copies a text to e->text, which has room for it. */
void ngx_http_modelgw_round_text(ngx_http_modelgw_exchanger_t *e,
    ngx_str_t *text);


/* exchanger_change.c */

/*
 * What follows an exchange that was good: a part of the feed, a change by an
 * operator, the limits.
 *     NGX_OK, NGX_AGAIN (the connection is to be closed; e->x.error)
 */
ngx_int_t ngx_http_modelgw_exchanger_more(ngx_http_modelgw_exchanger_t *e);

/*
 * Makes changes by operators: NGX_OK, NGX_AGAIN (the connection is to be
 * closed).
 */
ngx_int_t ngx_http_modelgw_exchanger_changes(ngx_http_modelgw_exchanger_t *e);

/* The next change that is ASKED and was not made, from *i on; NULL: no more. */
ngx_modelgw_change_t *ngx_http_modelgw_exchanger_asked(
    ngx_http_modelgw_exchanger_t *e, ngx_uint_t *i);

/* Answers changes by operators while the database is not there. */
void ngx_http_modelgw_exchanger_fail(ngx_http_modelgw_exchanger_t *e);


/* clerk.c: a thread, until e->stop */
void *ngx_http_modelgw_clerk_thread(void *data);


#endif /* _NGX_HTTP_MODELGW_EXCHANGER_H_INCLUDED_ */
