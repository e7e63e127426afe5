
/*
 * What a node of a cluster has borrowed, in shared memory beside the ledger:
 * a lease of each account, and of the budget of each key, and the calls that
 * wait for one.
 *
 * The balance of an account is what is left of its lease: granted - returned -
 * forced - what its calls have cost.  So a call is held and settled as on one
 * machine; only what the database and this node give each other changes the
 * balance otherwise, here.
 *
 * All functions with _locked() are called with the ledger's lock held.
 */


#ifndef _NGX_MODELGW_LEASE_H_INCLUDED_
#define _NGX_MODELGW_LEASE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_budget.h"
#include "ngx_modelgw_ledger.h"


#define NGX_MODELGW_CLAIMS        256    /* calls that wait at a time */
#define NGX_MODELGW_FUND_NAME     128    /* bytes of a fund's name */
#define NGX_MODELGW_LEASE_RECALL  2000   /* ms that a recall lasts */
#define NGX_MODELGW_LEASE_IDLE    10000  /* ms: then all is given back */


/* what a lease is of */

typedef enum {
    NGX_MODELGW_FUND_ACCOUNT = 0,        /* index: of the account */
    NGX_MODELGW_FUND_BUDGET,             /* index: of the key's record */
    NGX_MODELGW_FUNDS
} ngx_modelgw_fund_e;

typedef struct {
    uint32_t              kind;          /* ngx_modelgw_fund_e */
    uint32_t              index;
} ngx_modelgw_fund_t;

/*
 * Writes the name that the fund has in the database and in the journal: that of
 * the account, or "#KEY/WINDOW/START", START in ms since the Epoch, of the
 * window with "time"; at most NGX_MODELGW_FUND_NAME bytes.  Returns the end.
 */
u_char *ngx_modelgw_fund_name(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, uint64_t time, u_char *p);

/*
 * Finds a fund by that name, and adds none; takes the lock.  For budgets: not
 * while an answer of the database is expected.
 *     NGX_OK        *fund is set, *ends as in the lease; NULL: not wanted
 *     NGX_DECLINED  not known, or of another window than the key's budget now
 */
ngx_int_t ngx_modelgw_fund_find(ngx_modelgw_ledger_t *l, ngx_str_t *name,
    ngx_modelgw_fund_t *fund, uint64_t *ends);


/*
 * "ends" of a lease that was of another key or window: an answer for that one
 * may still come
 */

#define NGX_MODELGW_LEASE_OTHER   1

typedef struct {
    int64_t               granted;       /* totals, nano-euro */
    int64_t               returned;
    int64_t               forced;
    int64_t               said;          /* of "returned", what the database
                                            has; it may be less when an answer
                                            was lost */
    int64_t               told;          /* what calls hold, as the database
                                            was told with the fund; it hears of
                                            it with calls, too */
    uint64_t              ends;          /* of a budget: the end of the window
                                            that these are of, ms; 0: not
                                            known */
    uint64_t              window;        /* ngx_modelgw_window_e of a budget
                                            that was loaded: its key gets its
                                            window later */
    int64_t               limit;         /* of a budget, as it was used last */

    /* how much is borrowed in advance */

    int64_t               peak;          /* the largest hold, of about a
                                            minute */
    int64_t               rate;          /* nano-euro a second, averaged */
    int64_t               spent;         /* in all, when rate was computed */
    uint64_t              rated;         /* ms, when that was */
    uint64_t              used;          /* ms, when it was wanted last */

    uint64_t              recall;        /* number of the recall that is to be
                                            answered; 0: none */
    uint64_t              recalled;      /* ms, until then nothing is borrowed
                                            in advance */
    uint64_t              claims;        /* calls that wait for it */
} ngx_modelgw_lease_t;


/* The lease of a fund; NULL: the ledger is not of a cluster. */
ngx_modelgw_lease_t *ngx_modelgw_lease(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund);

/*
 * Sets the totals, when nginx starts, as the journal has them, before any call;
 * the balance of an account is set by ngx_modelgw_ledger_account(), and has
 * them applied.  window, ends: of a budget; if its key gets another window than
 * that, nothing is known.
 */
void ngx_modelgw_lease_load(ngx_modelgw_ledger_t *l, ngx_modelgw_fund_t *fund,
    int64_t granted, int64_t returned, int64_t forced, ngx_uint_t window,
    uint64_t ends);

/*
 * What is left of it, less what is held; may be negative.  time: milliseconds
 * since the Epoch, as in all that follows.
 */
int64_t ngx_modelgw_lease_available_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, uint64_t time);

/*
 * Whether there may be something to say of the fund; without the lock, for a
 * loop over all.
 */
ngx_uint_t ngx_modelgw_lease_active(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund);

/*
 * For the writer, without the lock: a call of these, that was settled, has held
 * so much, at the time (ms): the lease is in use.
 */
void ngx_modelgw_lease_used(ngx_modelgw_ledger_t *l, ngx_modelgw_call_t *call,
    uint64_t time);


/* what is said of a fund in an exchange */

typedef struct {
    ngx_modelgw_fund_t    fund;
    size_t                len;           /* of its name */
    u_char                name[NGX_MODELGW_FUND_NAME];
    uint64_t              ends;          /* of a budget: of its window */
    int64_t               limit;         /* of a budget; 0: not known here, so
                                            that it is not opened or changed */
    int64_t               granted;       /* as this node knows it */
    int64_t               returned;
    int64_t               forced;
    int64_t               held;
    int64_t               need;          /* that a waiting call lacks */
    int64_t               want;          /* to have in advance */
    uint64_t              answered;      /* number of a recall; 0: none */
    uint64_t              recall;        /* that the waiting call has raised; 0:
                                            it has none yet: one is to be raised
                                            if the need is not met */
    uint64_t              ticket;        /* of the last claim when this was
                                            decided */
    ngx_uint_t            back;          /* 1: the database does not have this
                                            "returned" yet: the totals must be
                                            in the journal before it is said */
} ngx_modelgw_ask_t;

/*
 * Decides what to say of a fund now (time, ms): gives back what is too much, or
 * all that is not held if it is recalled or idle, which changes the lease and
 * the balance; asks for what waiting calls lack, and for slices in advance
 * while no recall is on.
 *     NGX_OK        there is something to say
 *     NGX_DECLINED  there is nothing, or it is a budget that is not known or
 *                   not used here; ask->len is 0 then, else *ask is set and may
 *                   be said nevertheless
 */
ngx_int_t ngx_modelgw_lease_ask_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, uint64_t time, ngx_modelgw_ask_t *ask);

/*
 * What the database has said: the totals.  Its granted and forced replace ours;
 * of returned the larger one counts.  The balance changes with them.  What it
 * says of another window than the lease is of, is ignored.  Recalls are
 * forgotten: those that are still on come with each answer, after this.  held:
 * what it was told that calls hold.
 *
 * When a node has joined, a fund of which the database has nothing is said to
 * have 0, 0, 0, 0.
 */
void ngx_modelgw_lease_said_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, uint64_t ends, int64_t granted, int64_t returned,
    int64_t forced, int64_t held);

/* A recall of the fund: it is to be answered in the next exchange. */
void ngx_modelgw_lease_recall_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund, uint64_t no, uint64_t time);

/*
 * For a node that leaves, before each _ask_locked(): that one then gives back
 * all that is not held, and asks for nothing in advance.
 */
void ngx_modelgw_lease_leave_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_fund_t *fund);


/*
 * Calls that wait.  A claim is made by a worker, resolved by the exchanger, and
 * freed by the worker, which polls its state.  A call waits for the funds that
 * do not cover it: those calls are held in the order of their claims, and while
 * there are any, no other call of the fund is held:
 * ngx_modelgw_ledger_hold_locked() and _budget_locked() return NGX_DECLINED
 * then.
 */

typedef enum {
    NGX_MODELGW_CLAIM_FREE = 0,
    NGX_MODELGW_CLAIM_ASKED,
    NGX_MODELGW_CLAIM_HELD,              /* the call is HELD now */
    NGX_MODELGW_CLAIM_CREDIT,            /* the account has not so much: 402 */
    NGX_MODELGW_CLAIM_BUDGET,            /* nor the key's budget: 402 */
    NGX_MODELGW_CLAIM_SILENT,            /* not all nodes have answered: 503 */
    NGX_MODELGW_CLAIM_GONE               /* the call ended meanwhile */
} ngx_modelgw_claim_e;

typedef struct {
    uint64_t              state;         /* ngx_modelgw_claim_e */
    uint64_t              ticket;        /* grows with each claim */
    uint64_t              id;            /* of the call */
    uint64_t              waits;         /* for which funds, bits by
                                            ngx_modelgw_fund_e */
    uint32_t              slot;
    uint32_t              worker;
    uint32_t              account;       /* not NONE */
    uint32_t              key;           /* NONE: it has no budget */
    ngx_modelgw_budget_t  budget;        /* of its key */
    uint64_t              made;          /* ms */
    uint64_t              deadline;      /* ms: SILENT after that */
    uint64_t              recalls[NGX_MODELGW_FUNDS];
                                         /* raised since it was made; 0: none */

    /* set with the result */

    int64_t               available;     /* nano-euro: free and given back */
    int64_t               away;          /* held by nodes that do not answer */
    ngx_modelgw_ledger_left_t  left;     /* of the budget */
} ngx_modelgw_claim_t;

/*
 * Makes a claim of a call that is OPEN, whose hold is set, when
 * ngx_modelgw_ledger_hold_locked() or _budget_locked() has declined it.
 * budget: of its key, limit 0: none; wait: ms until its deadline.
 *     NGX_OK    *claim is set; the exchanger is to be woken, without the lock,
 *               by ngx_modelgw_exchange_wake()
 *     NGX_BUSY  too many wait
 */
ngx_int_t ngx_modelgw_claim_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, uint32_t account, ngx_modelgw_budget_t *budget,
    uint64_t time, ngx_msec_t wait, ngx_modelgw_claim_t **claim);

/*
 * Frees a claim in any state, without the lock; the call is settled by its
 * owner, as ever.
 */
void ngx_modelgw_claim_free(ngx_modelgw_ledger_t *l,
    ngx_modelgw_claim_t *claim);

/*
 * For the exchanger: the next claim that is ASKED, the oldest first, NULL: no
 * more; *i is 0 at first.
 */
ngx_modelgw_claim_t *ngx_modelgw_claim_asked(ngx_modelgw_ledger_t *l,
    ngx_uint_t *i);

/*
 * Holds the call if leases cover it now, and it is the first of its funds:
 *     NGX_OK        it is HELD, the claim resolved
 *     NGX_DECLINED  a lease does not cover it, by lacks[ngx_modelgw_fund_e]
 *     NGX_BUSY      another one comes first
 *     NGX_ERROR     the call has ended: the claim is resolved as GONE; or it
 *                   was resolved before
 * _end_locked() resolves it otherwise.  Both count the result in the node's
 * counters.
 */
ngx_int_t ngx_modelgw_claim_try_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_claim_t *claim, uint64_t time,
    int64_t lacks[NGX_MODELGW_FUNDS]);
void ngx_modelgw_claim_end_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_claim_t *claim, ngx_modelgw_claim_e state);

/* what the database has said of a need */

typedef struct {
    ngx_uint_t            brief;         /* 1: it was not met */
    uint64_t              recall;        /* number of the one that is on */
    uint64_t              silent;        /* nodes that live and have not
                                            answered that */
    int64_t               free;
    int64_t               away;          /* lent to nodes that are away */
} ngx_modelgw_claim_said_t;

/*
 * Resolves the claims that waited for the fund when "ask" was made, after
 * ngx_modelgw_lease_said_locked(): holds those that are covered, refuses those
 * that all nodes together cannot cover (CREDIT, BUDGET), and notes the recall
 * in the others.  A claim is refused only if all nodes have answered a recall
 * that was raised after it was made.  Returns how many were resolved.
 */
ngx_uint_t ngx_modelgw_claim_said_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_ask_t *ask, ngx_modelgw_claim_said_t *said, uint64_t time);


/* the exchanger, and how the node stands: one word each, without the lock */

typedef enum {
    NGX_MODELGW_NODE_NEW = 0,            /* has not joined since the start */
    NGX_MODELGW_NODE_MEMBER,
    NGX_MODELGW_NODE_AWAY,               /* the database is not reached: calls
                                            go on with what is lent */
    NGX_MODELGW_NODE_OFFLINE,            /* for longer than offline= : 503 */
    NGX_MODELGW_NODE_LEFT,               /* drained: 503 */
    NGX_MODELGW_NODE_REFUSED             /* for a reason that does not pass by
                                            itself (another cluster's database,
                                            a cloned journal, versions): 503 */
} ngx_modelgw_node_e;

#define NGX_MODELGW_EXCHANGE_BUCKETS  16

typedef struct {
    uint64_t              state;         /* ngx_modelgw_node_e */
    uint64_t              num;           /* of this node; 0: not known */
    uint64_t              epoch;
    uint64_t              exchanged;     /* CLOCK_BOOTTIME, ms, when the last
                                            good exchange was begun; 0: none */
    uint64_t              live;          /* nodes, at least 1 */
    uint64_t              keys_version;
    uint64_t              known;         /* keys_version of the database */
    uint64_t              pos;           /* of the journal: acknowledged */
    uint64_t              end;           /* of the journal */
    uint32_t              waits;         /* the futex of the exchanger */
    uint32_t              current;       /* 1: since the start all keys of the
                                            database were known once */

    /* counters, for metrics */

    uint64_t              exchanges[NGX_MODELGW_EXCHANGE_BUCKETS];
                                         /* by powers of 2 of 250 us */
    uint64_t              exchange_usec;
    uint64_t              failures;
    uint64_t              fenced;
    uint64_t              recalls;       /* answered */
    uint64_t              lent;          /* waits that ended so */
    uint64_t              refused;       /* with 402 */
    uint64_t              silent;        /* with 503 */
    uint64_t              waiting;       /* gauge */
} ngx_modelgw_lease_node_t;

/* NULL: not of a cluster. */
ngx_modelgw_lease_node_t *ngx_modelgw_node(ngx_modelgw_ledger_t *l);

/*
 * Sets how the node stands.  It admits calls, as a part of
 * ngx_modelgw_ledger_writable(), when it is MEMBER or AWAY, or NEW and
 * "exchanged" is set: the caller makes it OFFLINE when that is too old.
 */
void ngx_modelgw_node_set(ngx_modelgw_ledger_t *l, ngx_modelgw_node_e state);

/*
 * Sets it, if it still stands as "state".
 *     NGX_OK        it is set
 *     NGX_DECLINED  another one has set it
 */
ngx_int_t ngx_modelgw_node_replace(ngx_modelgw_ledger_t *l,
    ngx_modelgw_node_e state, ngx_modelgw_node_e with);

/* As ngx_modelgw_ledger_wait() and _wake(), for the exchanger. */
void ngx_modelgw_exchange_wait(ngx_modelgw_ledger_t *l, ngx_msec_t timeout);
void ngx_modelgw_exchange_wake(ngx_modelgw_ledger_t *l);

/*
 * From now on ids of calls are n * 1024 + num % 1024, unique in the cluster and
 * above all so far; n is the time in ms, and grows with each call.
 */
void ngx_modelgw_node_ids(ngx_modelgw_ledger_t *l, uint64_t num);


#endif /* _NGX_MODELGW_LEASE_H_INCLUDED_ */
