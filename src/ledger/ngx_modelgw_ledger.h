
/*
 * The ledger in shared memory: accounts, limits of keys, and the calls in
 * flight.  Any process may be killed at any instant and leaves it consistent.
 *
 * One robust mutex guards it.  Who changes more than one word first writes down
 * all the new values (the redo record, ngx_modelgw_redo.h), then applies them:
 * who finds the mutex left by the dead does the applying again.
 *
 * The life of a call, which is a slot:
 *
 *     FREE   in the list of free slots
 *     OPEN   counted against its key's concurrency
 *     HELD   its hold is set aside from the account's credit
 *     SENT   the upstream may have read it: from here it is charged
 *     DONE   charged; in the ring for the writer, which frees it when it is
 *            durable.  Without credit the slot is free at once.
 */


#ifndef _NGX_MODELGW_LEDGER_H_INCLUDED_
#define _NGX_MODELGW_LEDGER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_limit.h"


#define NGX_MODELGW_LEDGER_NAME     64   /* bytes of a key's or account's id */
#define NGX_MODELGW_LEDGER_MODEL    96   /* bytes kept of a model id */
#define NGX_MODELGW_LEDGER_WORKERS  1024 /* processes at a time, at most; a
                                            small zone has room for fewer */
#define NGX_MODELGW_LEDGER_TOPUPS   64   /* top-ups asked for at a time */
#define NGX_MODELGW_LEDGER_HUNG     2000 /* milliseconds: a flush that takes
                                            longer hangs */

#define NGX_MODELGW_LEDGER_NONE     ((uint32_t) -1)


typedef struct ngx_modelgw_ledger_s  ngx_modelgw_ledger_t;


typedef struct {
    uint64_t              len;
    u_char                data[NGX_MODELGW_LEDGER_NAME];
} ngx_modelgw_ledger_name_t;


typedef struct {
    int64_t                     balance; /* nano-euro: top-ups less charges */
    int64_t                     held;    /* of it, for calls in flight */
    int64_t                     founding; /* granted as it was opened */
    uint64_t                    opened;  /* seconds since the Epoch */
    ngx_modelgw_ledger_name_t   name;
    uint32_t                    next;    /* in the chain of its hash */
} ngx_modelgw_ledger_account_t;


typedef struct {
    uint64_t                    calls;   /* OPEN, HELD or SENT */
    ngx_modelgw_limit_t         rpm;     /* for the caller, under the lock */
    ngx_modelgw_limit_t         tpm;
    ngx_modelgw_ledger_name_t   name;
    uint32_t                    next;
    uint32_t                    generation; /* of the configuration that named
                                               it last */
} ngx_modelgw_ledger_key_t;


typedef enum {
    NGX_MODELGW_CALL_FREE = 0,
    NGX_MODELGW_CALL_OPEN,
    NGX_MODELGW_CALL_HELD,
    NGX_MODELGW_CALL_SENT,
    NGX_MODELGW_CALL_DONE
} ngx_modelgw_call_e;


/* how a call ended */

typedef enum {
    NGX_MODELGW_END_COMPLETE = 0,        /* all of the answer came */
    NGX_MODELGW_END_CLIENT,              /* the client left */
    NGX_MODELGW_END_UPSTREAM,            /* the upstream failed or broke off */
    NGX_MODELGW_END_TIMEOUT,
    NGX_MODELGW_END_KILLED,              /* our worker was */
    NGX_MODELGW_END_STOPPED,             /* nginx was stopped */
    NGX_MODELGW_END_LOST                 /* everything was killed; of the store
                                            only */
} ngx_modelgw_end_e;


/*
 * Whole cache lines of 64 bytes, and what belongs together in one: calls are
 * written by a worker, then read by the writer on another processor.
 */

typedef struct {
    uint64_t              state;         /* of ngx_modelgw_call_e */
    uint64_t              id;            /* never the same twice */
    uint64_t              noted;         /* the hold may be in the store */
    uint32_t              next;          /* free slot behind this one */
    uint32_t              worker;

    uint32_t              key;           /* NONE: of no limited key */
    uint32_t              account;       /* NONE: no credit */

    /* the caller's, to be set before it is HELD */
    int64_t               hold;          /* nano-euro */
    int64_t               estimate;      /* tokens of input, at least 1 */
    int64_t               taken;         /* tokens taken of the key's tpm */

    /* the owner's, while it is SENT */
    ngx_modelgw_seen_t    seen;

    /* set as it is DONE */
    ngx_modelgw_charge_t  charge;
    uint64_t              ended;         /* milliseconds since the Epoch */
    ngx_modelgw_end_e     end;

    /* the caller's, to be set before ngx_modelgw_ledger_sent() */
    uint32_t              model_len;
    uint64_t              started;       /* milliseconds since the Epoch */
    ngx_modelgw_price_t   price;
    ngx_modelgw_ledger_name_t  key_name;
    u_char                model[NGX_MODELGW_LEDGER_MODEL];

    uint64_t              unused[3];     /* the last line to its end */
} ngx_modelgw_call_t;


/* a top-up that was asked for, and what came of it */

typedef enum {
    NGX_MODELGW_TOPUP_FREE = 0,
    NGX_MODELGW_TOPUP_ASKED,
    NGX_MODELGW_TOPUP_NEW,               /* durable, and credited */
    NGX_MODELGW_TOPUP_KNOWN,             /* the same was made before */
    NGX_MODELGW_TOPUP_OTHER,             /* that id has another account or
                                            amount */
    NGX_MODELGW_TOPUP_FAILED             /* the store cannot be written */
} ngx_modelgw_topup_e;


typedef struct {
    uint64_t                    state;   /* of ngx_modelgw_topup_e */
    uint64_t                    tried;   /* it may be durable already */
    uint32_t                    account;
    uint32_t                    worker;
    int64_t                     amount;  /* nano-euro */
    uint64_t                    time;    /* milliseconds since the Epoch */
    ngx_modelgw_ledger_name_t   id;
} ngx_modelgw_topup_t;


/* setting up */

typedef struct {
    uint32_t              accounts;
    uint32_t              keys;
    uint32_t              calls;
} ngx_modelgw_ledger_room_t;

/*
 * How many of each fit in size bytes; keys get three eighths, accounts two,
 * calls three.
 */
void ngx_modelgw_ledger_room(size_t size, ngx_modelgw_ledger_room_t *room);

/*
 * Lays a ledger out in size bytes of shared memory that is all zero and aligned
 * to a page.  id: that of the first call; credit: calls are charged to accounts
 * and written.
 *     NULL  there is not enough of it, or no robust mutex
 */
ngx_modelgw_ledger_t *ngx_modelgw_ledger_create(void *memory, size_t size,
    uint64_t id, ngx_uint_t credit);

ngx_uint_t ngx_modelgw_ledger_credit(ngx_modelgw_ledger_t *l);

/*
 * The account of that name: found, or (with add set) added with the balance
 * given.  *index is its number for ever.
 *     NGX_OK        it was there
 *     NGX_DONE      it is new; it is for the writer to store, if "stored" is 0
 *     NGX_DECLINED  it is not there, and not to be added
 *     NGX_ERROR     there is no room
 */
ngx_int_t ngx_modelgw_ledger_account(ngx_modelgw_ledger_t *l, ngx_str_t *name,
    ngx_uint_t add, int64_t balance, uint64_t opened, ngx_uint_t stored,
    uint32_t *index);

uint32_t ngx_modelgw_ledger_accounts(ngx_modelgw_ledger_t *l);
uint32_t ngx_modelgw_ledger_accounts_free(ngx_modelgw_ledger_t *l);
ngx_modelgw_ledger_account_t *ngx_modelgw_ledger_account_at(
    ngx_modelgw_ledger_t *l, uint32_t index);

/*
 * The record of limits of the key of that name, found or added.  A
 * configuration that is taken into force begins with a new generation and names
 * all its keys; if there is no room left, records of keys that it has not named
 * (so far) and that have no calls are used again.
 *     NGX_OK, NGX_ERROR (there is no room)
 */
void ngx_modelgw_ledger_generation(ngx_modelgw_ledger_t *l);
ngx_int_t ngx_modelgw_ledger_key(ngx_modelgw_ledger_t *l, ngx_str_t *name,
    uint32_t *index);
ngx_modelgw_ledger_key_t *ngx_modelgw_ledger_key_at(ngx_modelgw_ledger_t *l,
    uint32_t index);

/* For what a caller does with more than one word of a key or an account. */
void ngx_modelgw_ledger_lock(ngx_modelgw_ledger_t *l);
void ngx_modelgw_ledger_unlock(ngx_modelgw_ledger_t *l);


/* processes */

/*
 * Takes part as a worker, until the calling thread ends: a lock that it holds
 * for life tells others that it lives.
 *     NGX_OK        *worker is its number
 *     NGX_DECLINED  there are too many
 */
ngx_int_t ngx_modelgw_ledger_join(ngx_modelgw_ledger_t *l, uint32_t *worker);

/* To be called by the thread that has joined, when it has no calls any more. */
void ngx_modelgw_ledger_leave(ngx_modelgw_ledger_t *l, uint32_t worker);

/*
 * Ends the calls of workers that have died: what was not SENT is released, the
 * rest is charged by what was seen.  self is the caller's own number, or NONE.
 * time: milliseconds since the Epoch.
 * Returns how many calls it ended; adds the sum of their charges to *charged.
 */
ngx_uint_t ngx_modelgw_ledger_sweep(ngx_modelgw_ledger_t *l, uint32_t self,
    uint64_t time, int64_t *charged);

/* The same for the calls of one worker, the caller's own, as it stops. */
ngx_uint_t ngx_modelgw_ledger_end_all(ngx_modelgw_ledger_t *l, uint32_t worker,
    ngx_modelgw_end_e end, uint64_t time, int64_t *charged);


/*
 * Calls; all take a constant number of steps.  _locked() are for who has the
 * lock, which costs more than they do.
 */

/*
 * A slot for a call.  key: of a key with limits, or NONE; concurrency: that of
 * the key, 0: no limit.
 *     NGX_OK        *call is OPEN
 *     NGX_DECLINED  the key has as many calls already
 *     NGX_ERROR     no slot is free
 */
ngx_int_t ngx_modelgw_ledger_open_locked(ngx_modelgw_ledger_t *l,
    uint32_t worker, uint32_t key, uint32_t concurrency,
    ngx_modelgw_call_t **call);

/*
 * Sets call->hold aside from the account's credit: OPEN to HELD.  Without
 * credit (account NONE) the call becomes HELD all the same.
 *     NGX_OK
 *     NGX_DECLINED  the account's credit does not cover it; *available is what
 *                   is left of it.  A hold of 0 is always covered.
 */
ngx_int_t ngx_modelgw_ledger_hold_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, uint32_t account, int64_t *available);

/*
 * HELD to SENT, for the call's owner; puts it in the ring of calls whose holds
 * are to be stored, and wakes the writer.
 */
void ngx_modelgw_ledger_sent(ngx_modelgw_ledger_t *l, ngx_modelgw_call_t *call);

/*
 * Ends a call.  OPEN or HELD: all is given back.  SENT: charged by call->seen;
 * call->charge and call->end are set, the hold is given back, it is DONE, or
 * FREE without credit.  Corrects the key's tokens a minute from call->taken to
 * what the charge says (none, if it was not sent).
 * time: milliseconds since the Epoch; clock: that of the limits.
 * Returns whether the call is DONE: then the writer is to be woken, without the
 * lock.  Who wants call->charge copies it before the lock is given up, as
 * behind it the slot may be another call's.
 */
ngx_uint_t ngx_modelgw_ledger_settle_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, ngx_modelgw_end_e end, uint64_t time,
    uint64_t clock);

/*
 * Milliseconds of CLOCK_MONOTONIC, coarse: what the limits are told where there
 * is no event loop, which has the same clock at hand.
 */
uint64_t ngx_modelgw_ledger_clock(void);


/* for the writer, which is one thread at a time */

/*
 * Becomes the writer; blocks until nobody else is.  It stays so until the
 * thread ends or calls _resign().  Returns for how many milliseconds a flush of
 * the writer before has been hanging, which died in it; 0: none.  One that hung
 * goes on hanging, for _hung(), until the new writer ends a flush.
 */
uint64_t ngx_modelgw_ledger_elect(ngx_modelgw_ledger_t *l);
void ngx_modelgw_ledger_resign(ngx_modelgw_ledger_t *l);

/* The i-th call that is DONE and not yet freed; NULL: there is none. */
ngx_modelgw_call_t *ngx_modelgw_ledger_done(ngx_modelgw_ledger_t *l,
    ngx_uint_t i);

/* Frees the first n of them: they are durable. */
void ngx_modelgw_ledger_written(ngx_modelgw_ledger_t *l, ngx_uint_t n);

/*
 * For any process: how many calls became DONE so far, and whether that many of
 * them, and all accounts, are durable.
 */
uint64_t ngx_modelgw_ledger_done_ever(ngx_modelgw_ledger_t *l);
ngx_uint_t ngx_modelgw_ledger_durable(ngx_modelgw_ledger_t *l, uint64_t n);

/*
 * The i-th call that was SENT since; NULL: there is none.  *id is the call's if
 * it is SENT still: its hold is to be stored, and call->noted says from now on
 * that it may be.  Or 0: there is nothing to store, and the slot may be that of
 * another call.
 */
ngx_modelgw_call_t *ngx_modelgw_ledger_held(ngx_modelgw_ledger_t *l,
    ngx_uint_t i, uint64_t *id);

/* Takes the first n of them out of the ring. */
void ngx_modelgw_ledger_noted(ngx_modelgw_ledger_t *l, ngx_uint_t n);

/* How many are in the two rings. */
ngx_uint_t ngx_modelgw_ledger_done_count(ngx_modelgw_ledger_t *l);
ngx_uint_t ngx_modelgw_ledger_held_count(ngx_modelgw_ledger_t *l);

/*
 * The number of accounts that are stored; they are those with the lowest
 * numbers.
 */
uint32_t ngx_modelgw_ledger_stored(ngx_modelgw_ledger_t *l);
void ngx_modelgw_ledger_set_stored(ngx_modelgw_ledger_t *l, uint32_t n);

/*
 * Waits until there is something to write, at most so many milliseconds; who
 * makes something to write wakes it, with a system call only if it waits here.
 */
void ngx_modelgw_ledger_wait(ngx_modelgw_ledger_t *l, ngx_msec_t timeout);
void ngx_modelgw_ledger_wake(ngx_modelgw_ledger_t *l);

/*
 * Whether the store can be written: while it cannot, no call is admitted.  The
 * writer says so, or else hangs: _failed() is what it has said alone.
 */
ngx_uint_t ngx_modelgw_ledger_writable(ngx_modelgw_ledger_t *l);
ngx_uint_t ngx_modelgw_ledger_failed(ngx_modelgw_ledger_t *l);
void ngx_modelgw_ledger_set_writable(ngx_modelgw_ledger_t *l, ngx_uint_t on);

/*
 * For the writer: a flush begins, if none has begun, or ends; and for anybody:
 * for how many milliseconds it has been running if it hangs, 0: it does not.
 */
void ngx_modelgw_ledger_flushing(ngx_modelgw_ledger_t *l, ngx_uint_t on);
uint64_t ngx_modelgw_ledger_hung(ngx_modelgw_ledger_t *l);


/* top-ups */

/*
 * Asks the writer for a top-up.  NULL: too many are being made.  The caller
 * looks at (*topup)->state until the writer has set it, then frees it; it may
 * free one that is still ASKED, too: that one may be made all the same.
 */
ngx_modelgw_topup_t *ngx_modelgw_ledger_topup(ngx_modelgw_ledger_t *l,
    uint32_t worker, uint32_t account, ngx_str_t *id, int64_t amount,
    uint64_t time);
void ngx_modelgw_ledger_topup_free(ngx_modelgw_ledger_t *l,
    ngx_modelgw_topup_t *topup);

/* For the writer: the next one that is ASKED, from number *i on; NULL: none. */
ngx_modelgw_topup_t *ngx_modelgw_ledger_topup_asked(ngx_modelgw_ledger_t *l,
    ngx_uint_t *i);

/*
 * For the writer, before a commit: whatever is heard of that, this one may be
 * durable, and is not to be answered FAILED, by no writer.
 */
void ngx_modelgw_ledger_topup_tried(ngx_modelgw_topup_t *topup);

/* For the writer: what came of it; NEW credits the account. */
void ngx_modelgw_ledger_topup_answer(ngx_modelgw_ledger_t *l,
    ngx_modelgw_topup_t *topup, ngx_modelgw_topup_e state);


#endif /* _NGX_MODELGW_LEDGER_H_INCLUDED_ */
