
/*
 * The durable ledger: an SQLite file with accounts, calls, open holds, top-ups,
 * and the days that old calls are rolled up to.
 *
 * One process and one thread of it writes at a time (the caller sees to that);
 * readers, a "sqlite3 -readonly" of the operator among them, never wait for it
 * nor it for them.
 */


#ifndef _NGX_MODELGW_STORE_H_INCLUDED_
#define _NGX_MODELGW_STORE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_ledger.h"


#define NGX_MODELGW_STORE_VERSION  1     /* PRAGMA user_version */
#define NGX_MODELGW_STORE_ERROR    256   /* bytes of a message */


typedef struct ngx_modelgw_store_s  ngx_modelgw_store_t;

/* text of the last failure, with SQLite's own words and the file's name */
typedef struct {
    u_char                data[NGX_MODELGW_STORE_ERROR];
    size_t                len;
    ngx_uint_t            locked;        /* another process has locked the file:
                                            nothing was committed */
} ngx_modelgw_store_error_t;


/*
 * Opens the file to write, and makes it and its tables, of mode 0600, if it is
 * new.
 *     NULL  error says why: another version, no SQLite file, no right, no
 *           memory
 */
ngx_modelgw_store_t *ngx_modelgw_store_open(const char *path,
    ngx_modelgw_store_error_t *error);

/*
 * Which file that is: as long as nginx runs there is only one that its memory
 * belongs to, and it is neither made anew nor exchanged.  Who keeps a _file()
 * keeps a descriptor of it, too, or the numbers may become another file's; one
 * by O_PATH, as to close any other drops SQLite's locks.
 *     _file()        NGX_OK, NGX_ERROR: the path does not lead to what is open
 *     _open_known()  opens that file and no other to write; NULL, as above
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

/* To read only; the file must be there, and be "file", if that is not NULL. */
ngx_modelgw_store_t *ngx_modelgw_store_open_read(const char *path,
    ngx_modelgw_store_file_t *file, ngx_modelgw_store_error_t *error);

void ngx_modelgw_store_close(ngx_modelgw_store_t *s);

/*
 * For the writer: whether the files beside the ledger, "-wal" and "-shm", are
 * those that were there as it was opened.  SQLite does not look, and goes on
 * with a file that was removed, which no other process finds.  So a commit is
 * durable only if they are there after it; or when _checkpoint() has moved it
 * into the ledger, which it does from a removed WAL, too.
 *     NGX_OK
 *     NGX_ERROR  the store is to stay open until its _checkpoint() has worked,
 *                then to be closed
 */
ngx_int_t ngx_modelgw_store_beside(ngx_modelgw_store_t *s);

/*
 * For the writer, outside of a batch.  _checkpoint() moves all that the WAL has
 * into the file itself, made durable there, and begins the WAL anew: behind a
 * commit that failed, what SQLite finds of it in the WAL may be in memory only.
 * It fails while somebody reads.  _space() looks whether the file system has
 * more left than a few rows take.  _probe() writes something, and makes it
 * durable, that changes nothing.
 *     NGX_OK, NGX_ERROR (after _checkpoint() and _probe() the store is to be
 *     closed)
 */
ngx_int_t ngx_modelgw_store_checkpoint(ngx_modelgw_store_t *s);
ngx_int_t ngx_modelgw_store_space(ngx_modelgw_store_t *s);
ngx_int_t ngx_modelgw_store_probe(ngx_modelgw_store_t *s);

/*
 * Makes a function of the store that is running fail soon; may be called by
 * another thread than the one that runs it, as long as the store is open.
 */
void ngx_modelgw_store_interrupt(ngx_modelgw_store_t *s);

/*
 * What "nginx -t" can tell without changing anything: that the file is of our
 * version and can be written, or that its directory lets us make it.
 *     NGX_OK, NGX_DECLINED (error says why)
 */
ngx_int_t ngx_modelgw_store_check(const char *path,
    ngx_modelgw_store_error_t *error);

/* The words of the last failure of a function below that returned NGX_ERROR. */
void ngx_modelgw_store_error(ngx_modelgw_store_t *s,
    ngx_modelgw_store_error_t *error);


/* at start, before anybody writes */

/*
 * Holds that are still open are of calls that everything was killed with:
 * charges each as unanswered (the cost that was stored with it), ended "lost".
 * time: milliseconds since the Epoch, when they end.
 *     NGX_OK        *n of them, *charged nano-euro together
 *     NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_recover(ngx_modelgw_store_t *s, uint64_t time,
    ngx_uint_t *n, int64_t *charged);

/* The highest id of a call, 0 if there is none: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_store_last_id(ngx_modelgw_store_t *s, uint64_t *id);

/*
 * Calls back for each account; stops at the first answer but NGX_OK, and
 * returns it.  opened: seconds since the Epoch.
 *     NGX_OK, NGX_ERROR (of the store, or the callback's)
 */
typedef ngx_int_t (*ngx_modelgw_store_account_pt)(void *data, ngx_str_t *name,
    int64_t balance, uint64_t opened);

ngx_int_t ngx_modelgw_store_accounts(ngx_modelgw_store_t *s,
    ngx_modelgw_store_account_pt handler, void *data);


/*
 * Writing.  What stands between _begin() and _commit() is durable when
 * _commit() has returned NGX_OK, all of it, or else none of it.  After an
 * NGX_ERROR of any of these the batch is rolled back; the store is to be closed
 * and opened anew, and the batch may be said again.
 */

ngx_int_t ngx_modelgw_store_begin(ngx_modelgw_store_t *s);
ngx_int_t ngx_modelgw_store_commit(ngx_modelgw_store_t *s);

/*
 * A new account, with its founding credit as the top-up "founding:NAME".  If it
 * is there already, nothing changes.
 */
ngx_int_t ngx_modelgw_store_account(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_account_t *a);

/* The hold of a call that was sent, with what it costs if all is lost. */
ngx_int_t ngx_modelgw_store_hold(ngx_modelgw_store_t *s,
    ngx_modelgw_call_t *call, ngx_modelgw_ledger_name_t *account);

/*
 * A call that is DONE: its row; its hold, if it was stored (call->noted), goes;
 * the account's balance is charged.  A call that is there already changes
 * nothing.  Both are read until the commit, and stay what they are till then.
 */
ngx_int_t ngx_modelgw_store_call(ngx_modelgw_store_t *s,
    ngx_modelgw_call_t *call, ngx_modelgw_ledger_name_t *account);

/*
 * A top-up.
 *     NGX_OK        *result is NGX_MODELGW_TOPUP_NEW (so it is when the very
 *                   same, by its time, is told again), _KNOWN or _OTHER; or
 *                   _FAILED: nothing was changed, there is no such account, or
 *                   its balance would leave int64
 *     NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_topup(ngx_modelgw_store_t *s,
    ngx_modelgw_topup_t *topup, ngx_modelgw_ledger_name_t *account,
    ngx_modelgw_topup_e *result);

/*
 * Rolls up to days, at most "max" of the calls that ended before "time"
 * (seconds since the Epoch, rounded down to a day, UTC), as a batch of its own.
 *     NGX_OK        *n were rolled up; fewer than max: there are no more
 *     NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_roll_up(ngx_modelgw_store_t *s, uint64_t time,
    ngx_uint_t max, ngx_uint_t *n);


/* reading, for operators: JSON, made in "out" */

typedef struct {
    ngx_str_t             account;       /* len 0: any, and so below */
    ngx_str_t             key;
    ngx_str_t             model;
    uint64_t              from;          /* when calls ended, milliseconds
                                            since the Epoch; 0: any */
    uint64_t              to;            /* likewise, not included */
    ngx_uint_t            limit;         /* of rows, at least 1 */
} ngx_modelgw_store_filter_t;


typedef enum {
    NGX_MODELGW_BY_DAY = 0,
    NGX_MODELGW_BY_KEY,
    NGX_MODELGW_BY_MODEL,
    NGX_MODELGW_BY_ACCOUNT
} ngx_modelgw_store_by_e;

/*
 * {"calls":[{"id":…,"time":"2026-11-22T06:47:00.123Z","key":…,"account":…,
 * "model":…,"input_tokens":…,"cache_read_tokens":…,"cache_write_tokens":…,
 * "cache_write_1h_tokens":…,"output_tokens":…,"reasoning_tokens":…,
 * "cost":"0.0105","outcome":"reported","end":"complete","status":200}…]}
 * newest first, by when they began; what was left out for the limit is told by
 * a last member "more":true.  Whole rolled-up days are not calls any more, and
 * not in it.
 *     NGX_OK, NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_calls(ngx_modelgw_store_t *s,
    ngx_modelgw_store_filter_t *filter, ngx_str_t *out, ngx_pool_t *pool);

/*
 * {"usage":[{"day":"2026-11-22","calls":…,tokens as above,"cost":"…"}…]}, the
 * first member named after "by": day, key, model, account.  Rolled-up days are
 * in it, if they begin in the span.  Days are newest first, the others dearest
 * first.  "more" is as above.
 */
ngx_int_t ngx_modelgw_store_usage(ngx_modelgw_store_t *s,
    ngx_modelgw_store_by_e by, ngx_modelgw_store_filter_t *filter,
    ngx_str_t *out, ngx_pool_t *pool);

/*
 * {"id":…,"topups":[{"id":…,"time":…,"amount":"…"}…]}'s array alone: the newest
 * "limit" top-ups of an account.
 */
ngx_int_t ngx_modelgw_store_topups(ngx_modelgw_store_t *s, ngx_str_t *account,
    ngx_uint_t limit, ngx_str_t *out, ngx_pool_t *pool);


#endif /* _NGX_MODELGW_STORE_H_INCLUDED_ */
