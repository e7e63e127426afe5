
/*
 * Limits of a key over all nodes of a cluster: what this node has of each, in
 * shared memory beside the ledger's records of keys.
 *
 * The database counts what all nodes have used in each second of the last
 * minute, and what it has lent them and they have not used.  It lends so that
 * the sum is never above the limit: so in any 60 seconds no more than the limit
 * is used, on any number of nodes.  A node borrows what calls that wait lack,
 * and a little in advance: a chunk, of which calls take theirs here.  What is
 * left of a chunk counts as used until the node says otherwise, and cannot be
 * used after some seconds without an answer.
 *
 *     have      lent, and not used: calls take from it
 *     held      tokens of calls in flight; what they have not used is given
 *               back to "have" when they end
 *     used      not said to the database yet
 *     booked    what the database counts of have + held, as of the second that
 *               it has named
 *
 * Of calls in flight, "have" is how many there may be.
 *
 * Without the database a node goes on with its part of each limit: limit /
 * nodes, as last known, the first ones by number get one more of what is left
 * over, so that the sum is the limit; and what it has used in the last minute
 * counts.  Calls in flight keep to what was lent until that has expired on all
 * nodes.  So what all nodes admit may exceed the limit for a minute after the
 * database went away, by what the others may use of it; and while one node
 * alone is cut off, by its part.
 *
 * All functions with _locked() are called with the ledger's lock held.  Times
 * are milliseconds of ngx_modelgw_ledger_clock().
 */


#ifndef _NGX_MODELGW_SHARE_H_INCLUDED_
#define _NGX_MODELGW_SHARE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_limit.h"


#define NGX_MODELGW_SHARE_CHUNK     5000 /* ms that a chunk can be used */
#define NGX_MODELGW_SHARE_SLOTS    10000 /* ms that calls in flight count which
                                            a node does not say again */
#define NGX_MODELGW_SHARE_IDLE      5000 /* ms: then all is given back */
#define NGX_MODELGW_SHARE_PATIENCE  2000 /* ms that a call waits for an answer:
                                            then the database is away */


/* the numbers are those of the database */

typedef enum {
    NGX_MODELGW_SHARE_REQUESTS = 0,      /* a minute */
    NGX_MODELGW_SHARE_TOKENS,            /* a minute */
    NGX_MODELGW_SHARE_CALLS,             /* in flight */
    NGX_MODELGW_SHARE_KINDS
} ngx_modelgw_share_e;


typedef struct ngx_modelgw_shares_s  ngx_modelgw_shares_t;

/* a call that waits for an answer; all 0: it does not, yet */

typedef struct {
    uint64_t              first;         /* ms: it waits since then */
    uint64_t              since;         /* for this answer */
    uint32_t              number;        /* of the ask that it waits for */
    uint32_t              n;             /* that it waits for */
} ngx_modelgw_share_ticket_t;


/*
 * The bytes of the shares of that number of keys, and their setup in memory
 * that is zeroed, and aligned to 8 bytes.
 */
size_t ngx_modelgw_shares_size(uint32_t keys);
ngx_modelgw_shares_t *ngx_modelgw_shares_init(void *memory, uint32_t keys);

/* The record of the key is from now on another key's. */
void ngx_modelgw_share_forget_locked(ngx_modelgw_ledger_t *l, uint32_t key);


/*
 * Takes n of a limit of requests or tokens of the key with this index; of
 * tokens, for the call, whose "taken" is set with it.  *ticket is zeroed by the
 * caller when the call begins, and kept.
 *     NGX_OK        taken; *state is set
 *     NGX_AGAIN     the call waits for an answer: until _answered(), then it
 *                   tries again
 *     NGX_DECLINED  there is none; *state is set, and state->wait is not 0
 */
ngx_int_t ngx_modelgw_share_take_locked(ngx_modelgw_ledger_t *l, uint32_t key,
    ngx_modelgw_share_e kind, uint32_t limit, uint32_t n, uint64_t time,
    ngx_modelgw_call_t *call, ngx_modelgw_share_ticket_t *ticket,
    ngx_modelgw_limit_state_t *state);

/*
 * Whether there may be one more call of the key in flight, of a limit; to be
 * called before ngx_modelgw_ledger_open_locked(), which counts it.
 *     NGX_OK, NGX_AGAIN, NGX_DECLINED   as above
 */
ngx_int_t ngx_modelgw_share_open_locked(ngx_modelgw_ledger_t *l, uint32_t key,
    uint32_t limit, uint64_t time, ngx_modelgw_share_ticket_t *ticket);

/* As _take_locked() would set it; nothing is taken. */
void ngx_modelgw_share_state_locked(ngx_modelgw_ledger_t *l, uint32_t key,
    ngx_modelgw_share_e kind, uint32_t limit, uint64_t time,
    ngx_modelgw_limit_state_t *state);

/*
 * Without the lock: whether the ticket's ask was answered, or has waited for
 * too long.
 */
ngx_uint_t ngx_modelgw_share_answered(ngx_modelgw_ledger_t *l, uint32_t key,
    ngx_modelgw_share_e kind, ngx_modelgw_share_ticket_t *ticket,
    uint64_t time);

/*
 * For the ledger, when a call ends that has taken tokens and used others: adds
 * to the changes that are committed.
 */
void ngx_modelgw_share_settle_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, uint64_t used, uint64_t clock);


/*
 * Without the lock: whether something is to be said now: then the exchanger is
 * to be woken.
 */
ngx_uint_t ngx_modelgw_shares_urgent(ngx_modelgw_ledger_t *l);


/* what is said of a limit in an exchange */

typedef struct {
    uint32_t              key;
    ngx_modelgw_share_e   kind;
    uint32_t              number;        /* of the ask */
    ngx_modelgw_ledger_name_t  name;     /* of the key */
    uint64_t              limit;
    uint64_t              booked;        /* is there no more ... */
    uint64_t              second;        /* ... as of that second */
    uint64_t              used;          /* is to be counted ... */
    uint64_t              age;           /* ... that many ms ago */
    uint64_t              unsaid;        /* "used" of the share */
    uint64_t              keep;          /* that the node still has */
    uint64_t              waiting;       /* that all calls that wait want */
    uint64_t              least;         /* that helps a call that waits */
    uint64_t              most;          /* that such a call lacks */
    uint64_t              need;          /* that all such calls lack */
    uint64_t              want;          /* in advance */
    uint64_t              idle;          /* calls in flight that there may be,
                                            and that none waits for */
    uint64_t              time;          /* when it was asked */
} ngx_modelgw_share_ask_t;

typedef struct {
    uint64_t              took;          /* lent by this answer */
    uint64_t              second;        /* "keep" and it are counted there */
    uint64_t              rest;          /* that is left for others, too */
    uint64_t              wait;          /* ms until there is "least"; 0: not
                                            known */
    uint64_t              wait_most;     /* the same of "most" */
    uint64_t              lacks;         /* calls in flight that other nodes
                                            could not get */
    uint64_t              idle;          /* that other nodes do not need */
} ngx_modelgw_share_said_t;

/*
 * For the exchanger, which takes the lock here: what is to be said now, of the
 * keys that are in use, at most max; fewer than max: that is all.  What is
 * given back cannot be used from now on.  Each is followed by _said_locked() or
 * _unsaid_locked(): it is not known whether the database has heard it.
 */
ngx_uint_t ngx_modelgw_shares_asks(ngx_modelgw_ledger_t *l, uint64_t time,
    ngx_modelgw_share_ask_t *asks, ngx_uint_t max);
void ngx_modelgw_share_said_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_share_ask_t *ask, ngx_modelgw_share_said_t *said,
    uint64_t time);
void ngx_modelgw_share_unsaid_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_share_ask_t *ask);

/*
 * For the exchanger, after _asks() and what it has returned: the database was
 * reached at the time; live nodes are members, and "rank" of them have lower
 * numbers.  live 0: as it was.
 */
void ngx_modelgw_shares_reached(ngx_modelgw_ledger_t *l, uint64_t time,
    uint64_t live, uint64_t rank);


#endif /* _NGX_MODELGW_SHARE_H_INCLUDED_ */
