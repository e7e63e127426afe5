
/*
 * The ledger in shared memory: accounts, limits of keys, and calls in flight.
 * Any process may be killed at any instant and leaves it consistent.
 *
 * One robust mutex protects it.  A change of more than one word is first
 * recorded as new values (the redo record, ngx_modelgw_redo.h), then applied: a
 * process that gets the mutex of a dead owner applies it again.
 *
 * States of a call (a slot):
 *
 *     FREE   in the list of free slots
 *     OPEN   counted against its key's concurrency
 *     HELD   its hold is reserved from the account's credit
 *     SENT   the upstream may have read it: from here on it is charged
 *     DONE   charged; in the writer's ring until it is durable, then FREE
 *
 * Without credit a SENT call becomes FREE at once.
 */


#ifndef _NGX_MODELGW_LEDGER_H_INCLUDED_
#define _NGX_MODELGW_LEDGER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_budget.h"
#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_limit.h"


#define NGX_MODELGW_LEDGER_NAME     64   /* bytes of a key's or account's id */
#define NGX_MODELGW_LEDGER_MODEL    96   /* bytes kept of a model id */
#define NGX_MODELGW_LEDGER_REQUEST  64   /* bytes kept of a request id */
#define NGX_MODELGW_LEDGER_WORKERS  1024 /* processes at a time; fewer in a
                                            small zone */
#define NGX_MODELGW_LEDGER_CHANGES  8    /* pending changes by operators */
#define NGX_MODELGW_LEDGER_ADDRESS  48   /* bytes kept of a client's address */
#define NGX_MODELGW_LEDGER_NOTE     256  /* bytes of a reason or a note */
#define NGX_MODELGW_LEDGER_MODELS   256  /* bytes of a list of models */
#define NGX_MODELGW_LEDGER_STALL    2000 /* ms: a flush that takes longer is
                                            stalled */

#define NGX_MODELGW_LEDGER_NONE     ((uint32_t) -1)


typedef struct ngx_modelgw_ledger_s  ngx_modelgw_ledger_t;


typedef struct {
    uint64_t              len;
    u_char                data[NGX_MODELGW_LEDGER_NAME];
} ngx_modelgw_ledger_name_t;


typedef struct {
    int64_t                     balance; /* nano-euro: top-ups less charges */
    int64_t                     held;    /* reserved for calls in flight */
    int64_t                     founding; /* credit it was opened with */
    uint64_t                    opened;  /* seconds since the Epoch */
    ngx_modelgw_ledger_name_t   name;
    uint32_t                    next;    /* in its hash chain */
    uint32_t                    closed;  /* 1: its keys are refused; read
                                            without the lock */
} ngx_modelgw_ledger_account_t;


/*
 * What is held is kept of each key with a record, so that a budget may be given
 * to it at any time; what is spent, of those with a window.
 */

#define NGX_MODELGW_LEDGER_PENDING  0x100    /* "spent" is not known yet */

typedef struct {
    uint64_t                    calls;   /* OPEN, HELD or SENT */
    ngx_modelgw_limit_t         rpm;     /* by the caller, under the lock */
    ngx_modelgw_limit_t         tpm;
    uint64_t                    window;  /* ngx_modelgw_window_e, and maybe
                                            PENDING */
    uint64_t                    ends;    /* of the window, milliseconds since
                                            the Epoch, exclusive */
    int64_t                     spent;   /* nano-euro, in the window */
    int64_t                     held;
    ngx_modelgw_ledger_name_t   name;
    uint32_t                    next;
    uint32_t                    generation; /* of the last configuration that
                                               named it */
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
    NGX_MODELGW_END_COMPLETE = 0,        /* the whole answer was received */
    NGX_MODELGW_END_CLIENT,              /* the client closed its connection */
    NGX_MODELGW_END_UPSTREAM,            /* the upstream failed or broke off */
    NGX_MODELGW_END_TIMEOUT,
    NGX_MODELGW_END_KILLED,              /* our worker was killed */
    NGX_MODELGW_END_STOPPED,             /* nginx was stopped */
    NGX_MODELGW_END_LOST                 /* all processes were killed; the
                                            store alone uses it */
} ngx_modelgw_end_e;

/* The name in the store: "complete", "client", "upstream", ... */
const char *ngx_modelgw_end_name(ngx_modelgw_end_e end);


#define NGX_MODELGW_CALL_GROUP       0x80000000  /* a bit of "cell" */


/* flags of a call */

#define NGX_MODELGW_CALL_STREAM      0x01 /* the client asked for events */
#define NGX_MODELGW_CALL_TRANSLATED  0x02 /* chat to messages */


/*
 * Grouped by cache lines of 64 bytes: a call is written by a worker, then read
 * by the writer on another processor.
 */

typedef struct {
    uint64_t              state;         /* ngx_modelgw_call_e */
    uint64_t              id;            /* unique, never used again */
    uint64_t              noted;         /* its hold may be in the store */
    uint32_t              next;          /* in the list of free slots */
    uint32_t              worker;

    uint32_t              key;           /* NONE: a key without limits */
    uint32_t              account;       /* NONE: no credit */

    /* set by the caller before it is HELD */
    int64_t               hold;          /* nano-euro */
    int64_t               estimate;      /* tokens of input, at least 1 */
    int64_t               taken;         /* tokens taken from the key's tpm */

    /* updated by the owner while it is SENT */
    ngx_modelgw_seen_t    seen;

    /* set when it becomes DONE */
    ngx_modelgw_charge_t  charge;
    uint64_t              ended;         /* milliseconds since the Epoch */
    ngx_modelgw_end_e     end;

    /* set by the caller before ngx_modelgw_ledger_sent() */
    uint32_t              model_len;
    uint64_t              started;       /* milliseconds since the Epoch */
    ngx_modelgw_price_t   price;
    ngx_modelgw_ledger_name_t  key_name;
    u_char                model[NGX_MODELGW_LEDGER_MODEL];

    uint64_t              price_id;      /* in the store's "prices"; 0: none */
    uint32_t              cell;          /* of the model in the metrics, or
                                            before it is known, of the group
                                            with NGX_MODELGW_CALL_GROUP */

    /* updated by the owner while it is SENT */
    uint32_t              flags;         /* NGX_MODELGW_CALL_* */
    uint32_t              first_byte;    /* of the answer, milliseconds from
                                            "started"; NONE: not sent */
    uint32_t              request_id_len;
    u_char                request_id[NGX_MODELGW_LEDGER_REQUEST];
} ngx_modelgw_call_t;


/* a key that operators make, see ngx_modelgw_managed.h */

typedef enum {
    NGX_MODELGW_KEY_FREE = 0,            /* no key */
    NGX_MODELGW_KEY_ACTIVE,
    NGX_MODELGW_KEY_ROTATED,             /* there is a newer one of its id */
    NGX_MODELGW_KEY_REVOKED              /* refused; or its grace has ended */
} ngx_modelgw_key_state_e;


typedef struct {
    u_char                      digest[NGX_MODELGW_KEY_DIGEST];
    ngx_modelgw_ledger_name_t   id;
    ngx_modelgw_ledger_name_t   account;
    ngx_modelgw_ledger_name_t   group;
    uint64_t                    expires; /* seconds since the Epoch; 0: never */
    uint64_t                    old_until; /* the end of the grace of an older
                                            one, seconds since the Epoch; 0:
                                            there is none; for operators, not
                                            in the table */
    uint64_t                    version;
    int64_t                     budget;  /* nano-euro */
    uint32_t                    window;  /* ngx_modelgw_window_e */
    uint32_t                    state;   /* ngx_modelgw_key_state_e */
    uint32_t                    next;    /* in the list of free records */
    uint32_t                    rpm;     /* 0: no limit of its own; so are the
                                            next two */
    uint32_t                    tpm;
    uint32_t                    concurrency;
    uint32_t                    models_len; /* 0: all of the group */
    u_char                      models[NGX_MODELGW_LEDGER_MODELS];
} ngx_modelgw_managed_key_t;


/* what an operator changes */

typedef enum {
    NGX_MODELGW_CHANGE_TOPUP = 0,        /* or a correction */
    NGX_MODELGW_CHANGE_ACCOUNT_NEW,
    NGX_MODELGW_CHANGE_ACCOUNT_SET,
    NGX_MODELGW_CHANGE_NODE_SET,         /* of a cluster; so is the next one */
    NGX_MODELGW_CHANGE_NODE_WRITE_OFF,
    NGX_MODELGW_CHANGE_KEY_NEW,          /* from here on: of keys */
    NGX_MODELGW_CHANGE_KEY_SET,
    NGX_MODELGW_CHANGE_KEY_ROTATE,
    NGX_MODELGW_CHANGE_KEY_REVOKE,
    NGX_MODELGW_CHANGE_KINDS
} ngx_modelgw_change_kind_e;


/* a requested change and its result */

typedef enum {
    NGX_MODELGW_CHANGE_FREE = 0,
    NGX_MODELGW_CHANGE_ASKED,
    NGX_MODELGW_CHANGE_MADE,             /* durable, and in effect */
    NGX_MODELGW_CHANGE_KNOWN,            /* the same was made before */
    NGX_MODELGW_CHANGE_OTHER,            /* its id was used before, for
                                            something else */
    NGX_MODELGW_CHANGE_DIGEST,           /* another key has the digest */
    NGX_MODELGW_CHANGE_MISSING,          /* there is no such key */
    NGX_MODELGW_CHANGE_STALE,            /* the key has another version */
    NGX_MODELGW_CHANGE_FULL,             /* there are too many keys */
    NGX_MODELGW_CHANGE_FAILED            /* the store cannot be written */
} ngx_modelgw_change_e;


/* what the change sets; other fields stay as they are */

#define NGX_MODELGW_CHANGE_STATE    0x01
#define NGX_MODELGW_CHANGE_NOTE     0x02
#define NGX_MODELGW_CHANGE_RPM      0x04
#define NGX_MODELGW_CHANGE_TPM      0x08
#define NGX_MODELGW_CHANGE_CALLS    0x10 /* concurrency */
#define NGX_MODELGW_CHANGE_MODELS   0x20
#define NGX_MODELGW_CHANGE_EXPIRES  0x40
#define NGX_MODELGW_CHANGE_BUDGET   0x80


typedef struct {
    uint64_t                    state;   /* ngx_modelgw_change_e */
    uint64_t                    tried;   /* it may be durable already */
    uint64_t                    time;    /* milliseconds since the Epoch; no two
                                            have the same; a new key also has
                                            the one before */
    ngx_modelgw_change_kind_e   kind;
    uint32_t                    worker;
    uint32_t                    account; /* NONE: there is none in shared
                                            memory yet */
    uint32_t                    reserved; /* set by the ledger: 1: a place for
                                            the account */
    uint32_t                    sets;    /* a mask of the above */
    uint32_t                    closed;  /* the new state of the account */
    uint32_t                    correction; /* a top-up that may be negative */
    uint32_t                    imported; /* a key with a digest that was given,
                                            not made */
    uint32_t                    window;  /* of the key's budget or its group's,
                                            ngx_modelgw_window_e */
    uint64_t                    if_match; /* the version that a key must have;
                                            0: any */
    uint64_t                    version; /* that it has, for the store only */
    uint64_t                    until;   /* seconds: the end of a key's grace
                                            after it was rotated; 0: none */
    int64_t                     amount;  /* nano-euro: of the top-up, or the
                                            founding credit */
    int64_t                     balance; /* in a cluster: the account's after
                                            it, set by the store; of a key what
                                            its budget has used */
    int64_t                     held;
    ngx_modelgw_ledger_name_t   owner;   /* name of the account */
    ngx_modelgw_ledger_name_t   id;      /* of the top-up */

    /* who asks, for the audit log */

    ngx_modelgw_ledger_name_t   actor;
    uint32_t                    address_len;
    uint32_t                    note_len;
    u_char                      address[NGX_MODELGW_LEDGER_ADDRESS];
    u_char                      note[NGX_MODELGW_LEDGER_NOTE]; /* or reason */

    ngx_modelgw_managed_key_t   key;     /* what it is to be; then what it
                                            is */
} ngx_modelgw_change_t;


/* setup */

typedef enum {
    NGX_MODELGW_LEDGER_LIMITS = 0,       /* of keys; no credit */
    NGX_MODELGW_LEDGER_CREDIT,           /* calls are charged to accounts, and
                                            written */
    NGX_MODELGW_LEDGER_CLUSTER           /* so they are; the credit is borrowed,
                                            see ngx_modelgw_lease.h */
} ngx_modelgw_ledger_kind_e;

typedef struct {
    uint32_t              accounts;
    uint32_t              keys;
    uint32_t              calls;
} ngx_modelgw_ledger_room_t;

/*
 * How many of each fit in size bytes: keys get three eighths of them, accounts
 * two, calls three.
 */
void ngx_modelgw_ledger_room(size_t size, ngx_modelgw_ledger_kind_e kind,
    ngx_modelgw_ledger_room_t *room);

/*
 * Lays out a ledger in size bytes of shared memory, which is zeroed and aligned
 * to a page.  id: of the first call.
 *     NULL  too little memory, or no robust mutexes
 */
ngx_modelgw_ledger_t *ngx_modelgw_ledger_create(void *memory, size_t size,
    uint64_t id, ngx_modelgw_ledger_kind_e kind);

/*
 * How many accounts, keys and calls have a place, and how many could have one:
 * without the lock, so that they may be off by what changes meanwhile.
 */
void ngx_modelgw_ledger_used(ngx_modelgw_ledger_t *l,
    ngx_modelgw_ledger_room_t *used, ngx_modelgw_ledger_room_t *max);

/* Whether no slot is free for a call; without the lock, too. */
ngx_uint_t ngx_modelgw_ledger_full(ngx_modelgw_ledger_t *l);

/*
 * The i-th slot, in any state; NULL: this one and those after it were never
 * used.
 */
ngx_modelgw_call_t *ngx_modelgw_ledger_call_at(ngx_modelgw_ledger_t *l,
    ngx_uint_t i);

/* Whether calls are charged to accounts. */
ngx_uint_t ngx_modelgw_ledger_credit(ngx_modelgw_ledger_t *l);

/*
 * Finds an account, or adds it if "add" is set.  balance: nano-euro; opened:
 * seconds since the Epoch; stored: it is in the store already.  In a cluster an
 * account that is not stored has a balance of 0: the database gives it the
 * founding credit.
 *     NGX_OK        found; *index never changes
 *     NGX_DONE      added; the writer stores it, unless "stored" is set
 *     NGX_DECLINED  not found
 *     NGX_ERROR     no room for it, or a name of more than
 *                   NGX_MODELGW_LEDGER_NAME bytes
 */
ngx_int_t ngx_modelgw_ledger_account(ngx_modelgw_ledger_t *l, ngx_str_t *name,
    ngx_uint_t add, int64_t balance, uint64_t opened, ngx_uint_t stored,
    uint32_t *index);

/* The number of accounts, of those that can be added, and one by its index. */
uint32_t ngx_modelgw_ledger_accounts(ngx_modelgw_ledger_t *l);
uint32_t ngx_modelgw_ledger_accounts_free(ngx_modelgw_ledger_t *l);
ngx_modelgw_ledger_account_t *ngx_modelgw_ledger_account_at(
    ngx_modelgw_ledger_t *l, uint32_t index);

/*
 * Finds or adds the record of limits of a key.  A new configuration begins with
 * _generation() and names all its keys.  When there is no room left, records of
 * keys that it has not named so far, and that have no calls, are reused.
 *     NGX_OK        *index is set
 *     NGX_ERROR     no room, or a name of more than NGX_MODELGW_LEDGER_NAME
 *                   bytes
 * _key_at() returns the record by its index.  _key_find() copies it and changes
 * nothing: NGX_OK, NGX_DECLINED (there is none).  _key_drop() lets the record
 * of a key that is refused from now on be reused, when it has no calls.
 */
void ngx_modelgw_ledger_generation(ngx_modelgw_ledger_t *l);
ngx_int_t ngx_modelgw_ledger_key(ngx_modelgw_ledger_t *l, ngx_str_t *name,
    uint32_t *index);
void ngx_modelgw_ledger_key_drop(ngx_modelgw_ledger_t *l, ngx_str_t *name);
ngx_modelgw_ledger_key_t *ngx_modelgw_ledger_key_at(ngx_modelgw_ledger_t *l,
    uint32_t index);
ngx_int_t ngx_modelgw_ledger_key_find(ngx_modelgw_ledger_t *l, ngx_str_t *name,
    ngx_modelgw_ledger_key_t *key);

/*
 * Budgets of keys that have a record, when a configuration takes effect, or an
 * operator changes the key.
 *
 * _budget_set() gives the key a window.  It returns 1 if what was spent in it
 * is not known: calls are refused until the caller has found out.  For that it
 * calls _budget_begin_locked(), from which on what ends is added to "spent";
 * _budget_add() for what had ended before, which has no effect on a key that
 * does not exist or does not wait for it; _budget_known().
 */
ngx_uint_t ngx_modelgw_ledger_budget_set(ngx_modelgw_ledger_t *l,
    uint32_t index, ngx_uint_t window);
void ngx_modelgw_ledger_budget_begin_locked(ngx_modelgw_ledger_t *l,
    uint32_t index, uint64_t time);
void ngx_modelgw_ledger_budget_add(ngx_modelgw_ledger_t *l, ngx_str_t *name,
    ngx_uint_t window, int64_t amount);
void ngx_modelgw_ledger_budget_known(ngx_modelgw_ledger_t *l, uint32_t index);

/*
 * What of a key's budget is spent or held at the time, in milliseconds since
 * the Epoch; *ends is the end of the window.
 */
int64_t ngx_modelgw_ledger_budget_used_locked(ngx_modelgw_ledger_key_t *key,
    uint64_t time, uint64_t *ends);

/* For callers that use more than one word of a key or an account. */
void ngx_modelgw_ledger_lock(ngx_modelgw_ledger_t *l);
void ngx_modelgw_ledger_unlock(ngx_modelgw_ledger_t *l);


/* processes */

/*
 * Registers the calling thread as a worker until it ends: a lock that it holds
 * all the time shows others that it is alive.
 *     NGX_OK        *worker is its number
 *     NGX_DECLINED  there are too many
 */
ngx_int_t ngx_modelgw_ledger_join(ngx_modelgw_ledger_t *l, uint32_t *worker);

/*
 * How many workers there are of the last configuration, and how many others;
 * one that has died is counted until its calls are ended.
 */
void ngx_modelgw_ledger_workers(ngx_modelgw_ledger_t *l, uint32_t *running,
    uint32_t *leaving);

/* Unregisters the calling thread, which has joined and has no calls left. */
void ngx_modelgw_ledger_leave(ngx_modelgw_ledger_t *l, uint32_t worker);

/* What is done for calls that end without their worker. */

typedef struct {
    int64_t               charged;       /* nano-euro are added */

    /*
     * called for each call that was SENT, under the lock; NULL: nothing.
     * call->charge, call->end and call->ended are set.
     */
    void                (*handler)(ngx_modelgw_call_t *call, void *data);
    void                 *data;
} ngx_modelgw_ledger_ended_t;

/*
 * Ends the calls of workers that have died: those that were not SENT are
 * released, the others are charged by what was seen.  self: the caller's own
 * number, or NONE; time: milliseconds since the Epoch.
 * Returns the number of calls ended.
 */
ngx_uint_t ngx_modelgw_ledger_sweep(ngx_modelgw_ledger_t *l, uint32_t self,
    uint64_t time, ngx_modelgw_ledger_ended_t *ended);

/* The same for all calls of one worker, the caller's own, when it stops. */
ngx_uint_t ngx_modelgw_ledger_end_all(ngx_modelgw_ledger_t *l, uint32_t worker,
    ngx_modelgw_end_e end, uint64_t time, ngx_modelgw_ledger_ended_t *ended);


/*
 * Calls.  Each function takes a constant number of steps.  _locked() ones are
 * for callers that hold the lock, which costs more than they do.
 */

/*
 * Takes a slot for a call.  key: one with limits, or NONE; concurrency: its
 * limit of calls, 0: no limit.
 *     NGX_OK        *call is OPEN
 *     NGX_DECLINED  the key has as many calls already
 *     NGX_ERROR     no slot is free
 */
ngx_int_t ngx_modelgw_ledger_open_locked(ngx_modelgw_ledger_t *l,
    uint32_t worker, uint32_t key, uint32_t concurrency,
    ngx_modelgw_call_t **call);

/* what is left of a budget */
typedef struct {
    int64_t               amount;        /* nano-euro; may be negative */
    uint64_t              ends;          /* of its window, milliseconds since
                                            the Epoch; -1: never */
} ngx_modelgw_ledger_left_t;

/*
 * Whether the budget of the call's key covers call->hold; to be called right
 * before _hold_locked(), which sets it aside there, too.  time: milliseconds
 * since the Epoch.  In a cluster it is what is lent of the budget that must
 * cover it.
 *     NGX_OK        *left is set
 *     NGX_DECLINED  the hold is more than what is left; *left is set.  A hold
 *                   of 0 is always covered.  In a cluster also if other calls
 *                   wait for the budget.
 *     NGX_ERROR     what was spent in this window is not known
 */
ngx_int_t ngx_modelgw_ledger_budget_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, ngx_modelgw_budget_t *budget, uint64_t time,
    ngx_modelgw_ledger_left_t *left);

/*
 * Reserves call->hold from the account's credit: OPEN to HELD.  Without credit
 * (account NONE) the call becomes HELD, too.
 *     NGX_OK
 *     NGX_DECLINED  the hold is more than what is left of the credit,
 *                   *available nano-euro.  A hold of 0 is always covered.  In a
 *                   cluster also if other calls wait for credit.
 */
ngx_int_t ngx_modelgw_ledger_hold_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, uint32_t account, int64_t *available);

/*
 * HELD to SENT, for the call's owner.  A call with an account is added to the
 * ring of those whose holds are to be stored, and the writer is woken.  No
 * effect in other states.
 */
void ngx_modelgw_ledger_sent(ngx_modelgw_ledger_t *l, ngx_modelgw_call_t *call);

/*
 * Ends a call.  OPEN or HELD: everything is given back.  SENT: charged by
 * call->seen; call->charge and call->end are set, the hold is given back, and
 * it becomes DONE, or FREE without credit.  Corrects the key's tokens per
 * minute from call->taken to those charged (0, if it was not sent).
 * time: milliseconds since the Epoch; clock: milliseconds, that of the limits.
 * Returns 1 if the call is DONE: then the writer must be woken, after the lock
 * is released.  call->charge must be read before that: then the slot may be
 * used for another call.
 */
ngx_uint_t ngx_modelgw_ledger_settle_locked(ngx_modelgw_ledger_t *l,
    ngx_modelgw_call_t *call, ngx_modelgw_end_e end, uint64_t time,
    uint64_t clock);

/*
 * Milliseconds of CLOCK_MONOTONIC_COARSE: the clock of the limits where there
 * is no event loop, which keeps the same time.
 */
uint64_t ngx_modelgw_ledger_clock(void);


/* for the writer, one thread at a time */

/*
 * Becomes the writer, and blocks while there is another one.  It stays so until
 * the thread ends or calls _resign().  Returns for how many milliseconds the
 * flush has been stalled in which the previous writer died; 0: none.  Such a
 * flush stays stalled, for _stalled(), until the new writer ends one.
 */
uint64_t ngx_modelgw_ledger_elect(ngx_modelgw_ledger_t *l);
void ngx_modelgw_ledger_resign(ngx_modelgw_ledger_t *l);

/* The i-th call that is DONE and not yet freed; NULL: no more. */
ngx_modelgw_call_t *ngx_modelgw_ledger_done(ngx_modelgw_ledger_t *l,
    ngx_uint_t i);

/* Frees the first n of them, which are durable. */
void ngx_modelgw_ledger_written(ngx_modelgw_ledger_t *l, ngx_uint_t n);

/*
 * For any process: how many calls became DONE so far, and whether that many of
 * them, and all accounts, are durable.
 */
uint64_t ngx_modelgw_ledger_done_ever(ngx_modelgw_ledger_t *l);
ngx_uint_t ngx_modelgw_ledger_durable(ngx_modelgw_ledger_t *l, uint64_t n);

/*
 * The i-th call in the ring of holds; NULL: no more.  *id is its id if it is
 * still SENT: its hold is to be stored, and call->noted is now set, as it may
 * be.  *id is 0 if there is nothing to store: the slot may be another call's.
 */
ngx_modelgw_call_t *ngx_modelgw_ledger_held(ngx_modelgw_ledger_t *l,
    ngx_uint_t i, uint64_t *id);

/* Removes the first n of them from the ring. */
void ngx_modelgw_ledger_noted(ngx_modelgw_ledger_t *l, ngx_uint_t n);

/* How many calls are in the two rings. */
ngx_uint_t ngx_modelgw_ledger_done_count(ngx_modelgw_ledger_t *l);
ngx_uint_t ngx_modelgw_ledger_held_count(ngx_modelgw_ledger_t *l);

/* How many accounts are stored: those with the lowest indices. */
uint32_t ngx_modelgw_ledger_stored(ngx_modelgw_ledger_t *l);
void ngx_modelgw_ledger_set_stored(ngx_modelgw_ledger_t *l, uint32_t n);

/*
 * Waits until there is something to write, at most timeout milliseconds.  Each
 * function that adds something wakes the writer; _wake() makes a system call
 * only if it waits here.
 */
void ngx_modelgw_ledger_wait(ngx_modelgw_ledger_t *l, ngx_msec_t timeout);
void ngx_modelgw_ledger_wake(ngx_modelgw_ledger_t *l);

/*
 * Whether the store can be written; if not, no call is admitted.  _failed() is
 * what the writer has set; _writable() is also 0 while a flush is stalled, and
 * while a node of a cluster admits none.
 */
ngx_uint_t ngx_modelgw_ledger_writable(ngx_modelgw_ledger_t *l);
ngx_uint_t ngx_modelgw_ledger_failed(ngx_modelgw_ledger_t *l);
void ngx_modelgw_ledger_set_writable(ngx_modelgw_ledger_t *l, ngx_uint_t on);

/*
 * For the writer: a flush begins, if none is running, or ends.  For any
 * process: for how many milliseconds it has been running, if it is stalled,
 * else 0.
 */
void ngx_modelgw_ledger_flushing(ngx_modelgw_ledger_t *l, ngx_uint_t on);
uint64_t ngx_modelgw_ledger_stalled(ngx_modelgw_ledger_t *l);


/* changes by operators */

/*
 * Sets the time that all changes are later than, milliseconds since the Epoch,
 * before the first one.
 */
void ngx_modelgw_ledger_change_after(ngx_modelgw_ledger_t *l, uint64_t time);

/*
 * The time of a change that the caller makes itself: "time", or a later one, as
 * no two changes have the same.
 */
uint64_t ngx_modelgw_ledger_change_time(ngx_modelgw_ledger_t *l,
    uint64_t time);

/*
 * Requests a change from the writer: a copy of "wanted", whose state and tried
 * are ignored, and whose time may become a later one.  The caller polls
 * change->state until the writer has set it, then frees it.  It may be freed
 * while it is ASKED: it may be made then, too.
 *     NGX_OK        *change is ASKED
 *     NGX_BUSY      too many are pending
 *     NGX_DECLINED  no room for one more account
 */
ngx_int_t ngx_modelgw_ledger_change(ngx_modelgw_ledger_t *l,
    ngx_modelgw_change_t *wanted, ngx_modelgw_change_t **change);
void ngx_modelgw_ledger_change_free(ngx_modelgw_ledger_t *l,
    ngx_modelgw_change_t *change);

/* Whether the change opens the account, if there is none. */
ngx_uint_t ngx_modelgw_ledger_change_opens(ngx_modelgw_change_t *change);

/* For the writer: the next one that is ASKED, from *i on; NULL: no more. */
ngx_modelgw_change_t *ngx_modelgw_ledger_change_asked(ngx_modelgw_ledger_t *l,
    ngx_uint_t *i);

/*
 * For the writer, before a commit: even if it fails, this change may be durable
 * from now on, and no writer may answer FAILED.
 */
void ngx_modelgw_ledger_change_tried(ngx_modelgw_change_t *change);

/*
 * For the writer: sets the result.  MADE has its effect in shared memory: the
 * account is credited, opened, or closed.
 */
void ngx_modelgw_ledger_change_answer(ngx_modelgw_ledger_t *l,
    ngx_modelgw_change_t *change, ngx_modelgw_change_e state);


#endif /* _NGX_MODELGW_LEDGER_H_INCLUDED_ */
