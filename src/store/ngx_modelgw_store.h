
/*
 * The durable ledger: an SQLite file with accounts, calls, open holds, top-ups,
 * and the days that old calls are rolled up to.
 *
 * Only one thread of one process writes at a time, which the caller ensures.
 * Readers, including the operator's "sqlite3 -readonly", never wait for it, nor
 * does it wait for them.
 *
 * NGX_ERROR is a failure of SQLite, of the file or of memory, with a text for
 * ngx_modelgw_store_error().
 */


#ifndef _NGX_MODELGW_STORE_H_INCLUDED_
#define _NGX_MODELGW_STORE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_ledger.h"


#define NGX_MODELGW_STORE_VERSION  2     /* PRAGMA user_version; of a journal,
                                            see ngx_modelgw_journal.h, more */
#define NGX_MODELGW_STORE_ERROR    256   /* bytes of a message */


typedef struct ngx_modelgw_store_s  ngx_modelgw_store_t;

/* text of the last failure, with SQLite's message and the file's name */
typedef struct {
    u_char                data[NGX_MODELGW_STORE_ERROR];
    size_t                len;
    ngx_uint_t            locked;        /* another process has locked the file:
                                            nothing was committed */
    ngx_uint_t            denied;        /* the user has no permission */
} ngx_modelgw_store_error_t;


/*
 * Opens the file for writing; if it is new, creates it, with mode 0600, and its
 * tables.  A file of an older version is migrated, in one transaction.
 * _open_journal() does so for a node of a cluster: a new file becomes a journal
 * with the id, 32 hexadecimal digits.
 *     NULL  error is set: a newer version, not an SQLite file, no permission,
 *           no memory; or it is a journal, and for _open_journal() a ledger of
 *           one machine, which did not change
 */
ngx_modelgw_store_t *ngx_modelgw_store_open(const char *path,
    ngx_modelgw_store_error_t *error);
ngx_modelgw_store_t *ngx_modelgw_store_open_journal(const char *path,
    const char *id, ngx_modelgw_store_error_t *error);

/*
 * The identity of the file: as long as nginx runs, its memory belongs to one
 * file, never created again or replaced.  A caller that keeps a _file()
 * also keeps a descriptor of it, or the numbers might be reused; an O_PATH one,
 * as closing any other drops SQLite's locks.
 *     _file()        NGX_OK, NGX_ERROR: the path leads to another file than the
 *                    open one, or to none
 *     _open_known()  opens that file only, for writing; NULL: error is set
 *     _known()       NGX_OK, NGX_ERROR: the path does not lead there any more
 */
typedef struct {
    uint64_t              dev;
    uint64_t              ino;
} ngx_modelgw_store_file_t;

ngx_int_t ngx_modelgw_store_file(ngx_modelgw_store_t *s,
    ngx_modelgw_store_file_t *file);
ngx_modelgw_store_t *ngx_modelgw_store_open_known(const char *path,
    ngx_modelgw_store_file_t *file, ngx_modelgw_store_error_t *error);
ngx_int_t ngx_modelgw_store_known(ngx_modelgw_store_t *s,
    ngx_modelgw_store_file_t *file);

/*
 * Opens an existing file for reading, which must be "file", unless that is
 * NULL.  NULL: error is set.
 */
ngx_modelgw_store_t *ngx_modelgw_store_open_read(const char *path,
    ngx_modelgw_store_file_t *file, ngx_modelgw_store_error_t *error);

/* Whether opening the file has migrated it; whether it is a journal. */
ngx_uint_t ngx_modelgw_store_migrated(ngx_modelgw_store_t *s);
ngx_uint_t ngx_modelgw_store_journal(ngx_modelgw_store_t *s);

/* Rolls back what is not committed, and frees the store. */
void ngx_modelgw_store_close(ngx_modelgw_store_t *s);

/*
 * For the writer: whether the files "-wal" and "-shm" of the ledger are those
 * that existed when it was opened.  SQLite does not check, and goes on with a
 * removed file, which no other process finds.  So a commit is durable only if
 * they are still there after it; or when _checkpoint() has moved it into the
 * ledger, which it does from a removed WAL, too.
 *     NGX_OK
 *     NGX_ERROR  the store must be kept open until _checkpoint() has succeeded,
 *                then closed
 */
ngx_int_t ngx_modelgw_store_check_wal(ngx_modelgw_store_t *s);

/*
 * For the writer, outside of a batch.  _checkpoint() moves everything from the
 * WAL into the file, makes it durable there, and starts a new WAL: after a
 * commit that failed, what SQLite finds of it in the WAL may be in memory only.
 * It fails while the file is being read.  _space() checks that the file system
 * has more space than a few rows need.  _probe() writes something that changes
 * nothing, and makes it durable.
 *     NGX_OK, NGX_ERROR (after _checkpoint() and _probe() the store must be
 *     closed)
 */
ngx_int_t ngx_modelgw_store_checkpoint(ngx_modelgw_store_t *s);
ngx_int_t ngx_modelgw_store_space(ngx_modelgw_store_t *s);
ngx_int_t ngx_modelgw_store_probe(ngx_modelgw_store_t *s);

/*
 * Makes a running function of the store fail soon.  May be called by another
 * thread than the one that runs it, as long as the store is open.
 */
void ngx_modelgw_store_interrupt(ngx_modelgw_store_t *s);

/*
 * For "nginx -t", changes nothing: checks that the file has our version, is a
 * journal if there is a cluster, else a ledger of one machine, and can be
 * written, or that its directory allows to create it.
 *     NGX_OK, NGX_DECLINED (error is set)
 */
ngx_int_t ngx_modelgw_store_check(const char *path, ngx_uint_t cluster,
    ngx_modelgw_store_error_t *error);

/* The text of the last NGX_ERROR of this store. */
void ngx_modelgw_store_error(ngx_modelgw_store_t *s,
    ngx_modelgw_store_error_t *error);


/* at start, before anything is written */

/*
 * Holds that are still open belong to calls that were lost when all processes
 * were killed: charges each as unanswered (the cost that was stored with it),
 * ended "lost".  time: milliseconds since the Epoch, when they end.
 *     NGX_OK        *n of them, *charged nano-euro in total
 *     NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_recover(ngx_modelgw_store_t *s, uint64_t time,
    ngx_uint_t *n, int64_t *charged);

/* The highest id of a call, 0 if there is none: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_store_last_id(ngx_modelgw_store_t *s, uint64_t *id);

/*
 * Calls the handler for each account, until it returns something other than
 * NGX_OK, which is returned.  balance: nano-euro; opened: seconds since the
 * Epoch.
 *     NGX_OK, NGX_ERROR (of the store, or the handler's)
 */
typedef ngx_int_t (*ngx_modelgw_store_account_pt)(void *data, ngx_str_t *name,
    int64_t balance, uint64_t opened);

ngx_int_t ngx_modelgw_store_accounts(ngx_modelgw_store_t *s,
    ngx_modelgw_store_account_pt handler, void *data);

/*
 * The same for the names of accounts that are closed; and the time of the last
 * change, milliseconds since the Epoch, 0 if there was none.
 *     NGX_OK, NGX_ERROR
 */
typedef ngx_int_t (*ngx_modelgw_store_name_pt)(void *data, ngx_str_t *name);

ngx_int_t ngx_modelgw_store_closed(ngx_modelgw_store_t *s,
    ngx_modelgw_store_name_pt handler, void *data);
ngx_int_t ngx_modelgw_store_last_change(ngx_modelgw_store_t *s,
    uint64_t *time);

/*
 * The same for keys that may be used at "time", seconds since the Epoch, then,
 * as revoked, for those that were revoked, replaced or rotated before: keys of
 * these accounts, as in _spent().  The handler may return NGX_DONE, and gets no
 * more.
 *     NGX_OK, NGX_ERROR (of the store, or the handler's)
 */
typedef ngx_int_t (*ngx_modelgw_store_key_pt)(void *data,
    ngx_modelgw_managed_key_t *key);

ngx_int_t ngx_modelgw_store_keys(ngx_modelgw_store_t *s, ngx_str_t *accounts,
    uint64_t time, ngx_modelgw_store_key_pt handler, void *data);

/* How many keys may be used at that time: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_store_keys_count(ngx_modelgw_store_t *s, uint64_t time,
    ngx_uint_t *n);


/*
 * For a reader: what it reads from now on is of this instant.  Then whether
 * that has the call: NGX_OK, NGX_DECLINED, NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_snapshot(ngx_modelgw_store_t *s);
ngx_int_t ngx_modelgw_store_has_call(ngx_modelgw_store_t *s, uint64_t id);

/*
 * Writing.  What is written between _begin() and _commit() is durable when
 * _commit() has returned NGX_OK: all of it, or else nothing.  After an
 * NGX_ERROR of any of these the batch is rolled back, and all of them return
 * NGX_ERROR; the store must be closed and opened again, and the batch may be
 * repeated.
 *     NGX_OK, NGX_ERROR
 */

ngx_int_t ngx_modelgw_store_begin(ngx_modelgw_store_t *s);
ngx_int_t ngx_modelgw_store_commit(ngx_modelgw_store_t *s);

/*
 * Adds an account, with its founding credit as the top-up "founding:NAME"; in a
 * journal without, as the database gives it.  If it exists already, nothing
 * changes.
 *     NGX_OK, NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_account(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_account_t *a);

/*
 * Adds the hold of a call that was sent, and its cost if it is lost.  If it
 * exists already, nothing changes.
 *     NGX_OK, NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_hold(ngx_modelgw_store_t *s,
    ngx_modelgw_call_t *call, ngx_modelgw_ledger_name_t *account);

/*
 * A call that is DONE: adds its row, deletes its hold if it may be stored
 * (call->noted), and charges the account.  A call that exists already changes
 * nothing.  Call and account are read until the commit, and must not change
 * until then.
 *     NGX_OK, NGX_ERROR; a failure may be found later, at the latest by the
 *     commit
 */
ngx_int_t ngx_modelgw_store_call(ngx_modelgw_store_t *s,
    ngx_modelgw_call_t *call, ngx_modelgw_ledger_name_t *account);

/*
 * Makes a change, with a row of "actions" that says who has made it.  A
 * change->amount of an account that is opened becomes what it was opened with.
 *     NGX_OK        *result is NGX_MODELGW_CHANGE_MADE (also for the same one
 *                   again, recognized by its time); or another one, and nothing
 *                   was changed: _KNOWN and _OTHER (see the enum, _KNOWN
 *                   also if it is so already), or _FAILED:
 *                   the account does not exist, or its balance would leave
 *                   int64
 *     NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_change(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_change_e *result);

/* what a model costs; its id is that of calls */
typedef struct {
    uint64_t              id;
    ngx_str_t             group;
    ngx_str_t             model;
    ngx_modelgw_price_t   rates;
    uint64_t              time;          /* milliseconds since the Epoch */
} ngx_modelgw_store_price_t;

/*
 * Adds a price, in a batch, unless it is what the model has had last.  If it
 * has changed, the caller adds an action of "configuration": the time must be
 * that of no other change.
 *     NGX_OK        as it was, or it is the model's first price
 *     NGX_DONE      changed, *old is what the model had
 *     NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_price(ngx_modelgw_store_t *s,
    ngx_modelgw_store_price_t *price, ngx_modelgw_price_t *old);
ngx_int_t ngx_modelgw_store_price_action(ngx_modelgw_store_t *s,
    ngx_modelgw_store_price_t *price, ngx_modelgw_price_t *old,
    uint64_t time);

#define NGX_MODELGW_STORE_RATES  256     /* bytes of the text of a price */

/*
 * Writes the prices of a million tokens as JSON to p, which has room for
 * NGX_MODELGW_STORE_RATES bytes; returns the end.
 */
u_char *ngx_modelgw_store_rates(u_char *p, ngx_modelgw_price_t *rates);

/*
 * Rolls up to days at most "max" of the calls that ended before "time" (seconds
 * since the Epoch, rounded down to a day, UTC), in a batch of its own; in a
 * journal, none that is in the outbox, see ngx_modelgw_journal_trim().
 *     NGX_OK        *n were rolled up; fewer than max: there are no more
 *     NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_roll_up(ngx_modelgw_store_t *s, uint64_t time,
    ngx_uint_t max, ngx_uint_t *n);


/*
 * Adds to the sums by hour calls that are not in them, those that ended first,
 * in a batch of its own: of those that ended up to some seconds before "time"
 * (seconds since the Epoch) at most "max", or more that were summed up as they
 * were written, or ended in the same millisecond.
 *     NGX_OK        *n were added; fewer than max: there are no more
 *     NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_hours(ngx_modelgw_store_t *s, uint64_t time,
    ngx_uint_t max, ngx_uint_t *n);


/* reading, for operators: in *out, allocated from pool; JSON but for _csv() */

/* a place in the list of calls: after this one */
typedef struct {
    uint64_t              ended;
    uint64_t              id;            /* 0: the beginning */
} ngx_modelgw_store_place_t;


typedef struct {
    ngx_str_t             account;       /* len 0: any; so are those below */
    ngx_str_t             key;
    ngx_str_t             model;

    /* of calls only */
    ngx_str_t             outcome;
    ngx_str_t             end;
    ngx_str_t             status;        /* digits */
    ngx_str_t             request_id;
    int64_t               min_cost;      /* nano-euro */
    ngx_modelgw_store_place_t  after;

    uint64_t              from;          /* when calls ended, milliseconds
                                            since the Epoch; 0: any */
    uint64_t              to;            /* exclusive; 0: any */
    uint64_t              now;           /* where a series of times ends */
    int64_t               zone;          /* of days and months: milliseconds
                                            ahead of UTC, whole hours */
    ngx_uint_t            limit;         /* of rows, at least 1 */
} ngx_modelgw_store_filter_t;


/*
 * {"calls":[{"id":…,"time":"2026-11-22T06:47:00.123Z","key":…,"account":…,
 * "model":…,"input_tokens":…,"cache_read_tokens":…,"cache_write_tokens":…,
 * "cache_write_1h_tokens":…,"output_tokens":…,"reasoning_tokens":…,
 * "cost":"0.0105","outcome":"reported","end":"complete","status":200,
 * "ended":"…","duration_ms":…,"first_byte_ms":…,"request_id":"…",
 * "stream":…,"translated":…}…]}
 * newest first, by when they ended.  If there are more than the limit, the last
 * members are "more":true,"next":"…": the place, for ngx_modelgw_store_place().
 * Days that were rolled up are not included.
 *     NGX_OK, NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_calls(ngx_modelgw_store_t *s,
    ngx_modelgw_store_filter_t *filter, ngx_str_t *out, ngx_pool_t *pool);

/*
 * The same as CSV (RFC 4180), the header first if filter->after is the
 * beginning.  A text that a spreadsheet would take for a formula gets a "'".
 *     NGX_OK        that was all
 *     NGX_AGAIN     there are more than the limit, after filter->after
 *     NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_calls_csv(ngx_modelgw_store_t *s,
    ngx_modelgw_store_filter_t *filter, ngx_str_t *out, ngx_pool_t *pool);

/* Parses a place: NGX_OK, NGX_DECLINED. */
ngx_int_t ngx_modelgw_store_place(ngx_str_t *text,
    ngx_modelgw_store_place_t *place);

/*
 * {"call":{as above},"price":{"group":…,"model":…,"from":"…","input":"3.00",
 * "output":…,"cache_read":…,"cache_write":…,"cache_write_1h":…}}: the prices
 * that the call had, euro for a million tokens; null if they are not known.
 *     NGX_OK
 *     NGX_DECLINED  no such call, or it was rolled up, or it is not one of the
 *                   account; len 0: of any
 *     NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_call_get(ngx_modelgw_store_t *s, uint64_t id,
    ngx_str_t *account, ngx_str_t *out, ngx_pool_t *pool);


typedef enum {
    NGX_MODELGW_BY_HOUR = 0,
    NGX_MODELGW_BY_DAY,
    NGX_MODELGW_BY_MONTH,

    /* those above are times */

    NGX_MODELGW_BY_KEY,
    NGX_MODELGW_BY_MODEL,
    NGX_MODELGW_BY_ACCOUNT
} ngx_modelgw_store_by_e;

#define NGX_MODELGW_STORE_BYS  2

typedef struct {
    ngx_uint_t            n;             /* 1 or 2, one time at most */
    ngx_modelgw_store_by_e  bys[NGX_MODELGW_STORE_BYS];
} ngx_modelgw_store_by_t;

/*
 * {"usage":[{"day":"2026-11-22","calls":…,"errors":…,tokens as above,
 * "cost":"…","avg_ms":…,"avg_first_byte_ms":…}…]}, the first members named
 * after "by": hour (as a time), day, month ("2026-11"), key, model, account.
 * Calls without a first byte, and without any call, have an average of null.
 * Hours are of UTC, days and months of filter->zone.  Days that were rolled up
 * are included, if they begin in the span: these are of UTC, and counted as the
 * zone's days of the same names.  Times are newest first, else it is by cost,
 * highest first.  Times alone have no gaps, from filter->from, if any, up to
 * filter->now or filter->to.  If there are more than the limit, the last member
 * is "more":true.
 *     NGX_OK
 *     NGX_BUSY      there are more than 200,000
 *     NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_usage(ngx_modelgw_store_t *s,
    ngx_modelgw_store_by_t *by, ngx_modelgw_store_filter_t *filter,
    ngx_str_t *out, ngx_pool_t *pool);

/*
 * The same as CSV (RFC 4180), the header first; the columns are the members,
 * and null is an empty cell.
 *     NGX_OK
 *     NGX_AGAIN     there are more than the limit
 *     NGX_BUSY, NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_usage_csv(ngx_modelgw_store_t *s,
    ngx_modelgw_store_by_t *by, ngx_modelgw_store_filter_t *filter,
    ngx_str_t *out, ngx_pool_t *pool);

/*
 * Calls the handler for each key, or account, that has calls which ended since
 * "start", in milliseconds since the Epoch: with the cost of these, and with
 * the beginning of the hour when the last of them ended, of rolled-up days that
 * of the day, in milliseconds, too.  As in _usage(), rolled-up days are
 * included if they begin since start.  by: NGX_MODELGW_BY_KEY or _ACCOUNT.
 * names: those of the keys, or accounts; NULL, or empty: all.  One, or of a
 * cluster also several with commas between them.
 *     NGX_OK, NGX_ERROR (of the store, or the handler's)
 */
ngx_int_t ngx_modelgw_store_spent(ngx_modelgw_store_t *s,
    ngx_modelgw_store_by_e by, ngx_str_t *names, uint64_t start,
    ngx_modelgw_store_account_pt handler, void *data);

/*
 * The note of an account, as a JSON string; empty if the account is not stored
 * yet.  _noted() calls the handler for the names of accounts whose note has the
 * text in it.
 *     NGX_OK, NGX_ERROR (of the store, or the handler's)
 */
ngx_int_t ngx_modelgw_store_note(ngx_modelgw_store_t *s, ngx_str_t *account,
    ngx_str_t *out, ngx_pool_t *pool);
ngx_int_t ngx_modelgw_store_noted(ngx_modelgw_store_t *s, ngx_str_t *text,
    ngx_modelgw_store_name_pt handler, void *data);

/*
 * Calls the handler for each key that matches, in the order of their ids, from
 * after "after" on; of those that were rotated for the newest.  The key is
 * valid until it returns.  Times are milliseconds since the Epoch.
 *     NGX_OK        that was all, or the limit
 *     NGX_ERROR     of the store, or the handler's
 */
typedef struct {
    ngx_str_t             id;            /* len 0: any; so are those below */
    ngx_str_t             q;             /* a part of id, account or note */
    ngx_str_t             account;
    ngx_str_t             state;         /* active, expired, revoked */
    ngx_str_t             after;
    ngx_uint_t            limit;
    uint64_t              now;           /* seconds since the Epoch */
} ngx_modelgw_store_keys_t;

typedef ngx_int_t (*ngx_modelgw_store_listed_pt)(void *data,
    ngx_modelgw_managed_key_t *key, uint64_t created, ngx_str_t *note);

ngx_int_t ngx_modelgw_store_keys_list(ngx_modelgw_store_t *s,
    ngx_modelgw_store_keys_t *filter, ngx_modelgw_store_listed_pt handler,
    void *data);

/*
 * {"actions":[{"id":…,"time":…,"actor":…,"address":…,"action":…,"target":…,
 * "before":{…},"after":{…}}…]}: the newest "limit" changes by operators with an
 * id below "after" (0: all), of that actor and target (len 0: any).  If there
 * are more, the last members are "more":true,"next":"…", the next "after"; in a
 * cluster with "-" and the next "node".
 *     NGX_OK, NGX_ERROR
 */
typedef struct {
    ngx_str_t             actor;
    ngx_str_t             target;
    uint64_t              after;
    uint64_t              node;          /* of nodes that have "after", those
                                            below this one */
    ngx_uint_t            limit;
} ngx_modelgw_store_actions_t;

ngx_int_t ngx_modelgw_store_actions(ngx_modelgw_store_t *s,
    ngx_modelgw_store_actions_t *filter, ngx_str_t *out, ngx_pool_t *pool);

/*
 * [{"id":…,"time":…,"amount":"…"}…]: the newest "limit" top-ups of an account.
 *     NGX_OK, NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_topups(ngx_modelgw_store_t *s, ngx_str_t *account,
    ngx_uint_t limit, ngx_str_t *out, ngx_pool_t *pool);

/*
 * Of the database of a cluster: {"cluster":{"id":…,"version":…,"oldest":…,
 * "clerk":…,"self":…},"nodes":[{"num":…,"name":…,"state":"member","joined":…,
 * "seen":…,"version":…,"lent":"…","held":"…","behind":…,"keys_version":…}…]}:
 * lent is what it has left of its leases, behind how many calls of its journal
 * are not shipped, as it said last.  self: the number of this node, 0: none.
 *     NGX_OK, NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_nodes(ngx_modelgw_store_t *s, uint64_t self,
    ngx_str_t *out, ngx_pool_t *pool);


#endif /* _NGX_MODELGW_STORE_H_INCLUDED_ */
