
/*
 * What the files of the store share: ngx_modelgw_store*.c and nobody else.
 */


#ifndef _NGX_MODELGW_STORE_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_STORE_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include <sqlite3.h>

#include "ngx_modelgw_store.h"


#define NGX_MODELGW_STORE_ROWS    1000   /* calls before they are written */
#define NGX_MODELGW_STORE_DELTAS  256    /* accounts charged before a flush */
#define NGX_MODELGW_STORE_SLOTS   1024   /* of their hash, a power of 2 */

#define NGX_MODELGW_STORE_BESIDE  2      /* files: "-wal", "-shm" */

#define NGX_MODELGW_STORE_TOKENS  6      /* numbers of ngx_modelgw_tokens_t */

#define NGX_MODELGW_STORE_DAY     86400  /* seconds */
#define NGX_MODELGW_STORE_LATE    10000  /* calls that rolling up looks past */


#define NGX_MODELGW_STORE_WHERE                                               \
    " WHERE (?1 IS NULL OR account = ?1) AND (?2 IS NULL OR key = ?2)"        \
    " AND (?3 IS NULL OR model = ?3)"


/* the end of an answer that had more rows than its limit */

#define NGX_MODELGW_STORE_MORE  "],\"more\":true}"


/* statements that are prepared as the file is opened to write */

typedef enum {
    NGX_MODELGW_STORE_BEGIN = 0,
    NGX_MODELGW_STORE_COMMIT,
    NGX_MODELGW_STORE_CALLS,
    NGX_MODELGW_STORE_HOLD,
    NGX_MODELGW_STORE_UNHOLD,
    NGX_MODELGW_STORE_CHARGE,
    NGX_MODELGW_STORE_BALANCE,
    NGX_MODELGW_STORE_ACCOUNT,
    NGX_MODELGW_STORE_TOPUP,
    NGX_MODELGW_STORE_TOPUP_FIND,
    NGX_MODELGW_STORE_STATEMENTS
} ngx_modelgw_store_statement_e;


/* what a batch has charged to an account so far, or credited */

typedef struct {
    int64_t                      amount;
    ngx_modelgw_ledger_name_t    name;
} ngx_modelgw_store_delta_t;


/* a call of the batch that is not written yet */

typedef struct {
    uint64_t                     id;
    ngx_modelgw_call_t          *call;
    ngx_modelgw_ledger_name_t   *account;
} ngx_modelgw_store_row_t;


struct ngx_modelgw_store_s {
    sqlite3                     *db;
    sqlite3_stmt                *stmts[NGX_MODELGW_STORE_STATEMENTS];

    ngx_uint_t                   batch;  /* between _begin() and _commit() */
    ngx_uint_t                   failed; /* nothing more is written */

    /* the table "temp.modelgw_batch": rows from "first" on, before "end" */

    sqlite3_vtab                 table;
    sqlite3_vtab_cursor          cursor;
    ngx_uint_t                   first;
    ngx_uint_t                   row;    /* where the cursor is */
    ngx_uint_t                   end;

    ngx_uint_t                   nrows;
    ngx_modelgw_store_row_t      rows[NGX_MODELGW_STORE_ROWS];

    ngx_uint_t                   ndeltas;
    uint16_t                     slots[NGX_MODELGW_STORE_SLOTS]; /* number of
                                            a delta and 1; 0: free */
    ngx_modelgw_store_delta_t    deltas[NGX_MODELGW_STORE_DELTAS];

    ngx_modelgw_store_file_t     beside[NGX_MODELGW_STORE_BESIDE]; /* of a
                                            writer; ino 0: not known yet */
    ngx_modelgw_store_error_t    error;
    const char                  *path;
};


/*
 * Makes the file, if it is not there, empty: NGX_OK, NGX_ERROR (error says
 * why).
 */
ngx_int_t ngx_modelgw_store_touch(const char *path,
    ngx_modelgw_store_error_t *error);

/* Makes the tables in an empty file: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_store_create(ngx_modelgw_store_t *s);

/*
 * Whether we know a file of this application_id and user_version: NGX_OK,
 * NGX_ERROR (error says why).
 */
ngx_int_t ngx_modelgw_store_version(int64_t id, int64_t version,
    const char *path, ngx_modelgw_store_error_t *error);


/*
 * "PATH" text: words of errno err, if it is not 0.
 */
void ngx_modelgw_store_say(ngx_modelgw_store_error_t *error, const char *path,
    const char *text, int err);

/*
 * The last failure of SQLite is kept in s->error.  stmt, if not NULL, is reset.
 * Returns NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_fail(ngx_modelgw_store_t *s, sqlite3_stmt *stmt);

/* The same with words of our own. */
ngx_int_t ngx_modelgw_store_fail_text(ngx_modelgw_store_t *s,
    const char *text);

/*
 * Makes a statement to be used once; the caller finalizes it: NGX_OK,
 * NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_prepare(ngx_modelgw_store_t *s, const char *sql,
    sqlite3_stmt **stmt);

/* Statements that answer nothing: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_store_exec(ngx_modelgw_store_t *s, const char *sql);

/*
 * Executes a statement once, with the parameters that it has; *n is the number
 * that it answers, NULL: it answers none.  NGX_OK, NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_step(ngx_modelgw_store_t *s, const char *sql,
    int64_t first, int64_t second, int64_t *n);

#define ngx_modelgw_store_number(s, sql, n)                                   \
    ngx_modelgw_store_step(s, sql, 0, 0, n)

/* Prepares what writing needs: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_store_write_init(ngx_modelgw_store_t *s);

/*
 * Executes a statement that answers no rows, whose parameters are bound;
 * changes, if not NULL, is set to how many rows it changed: NGX_OK, NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_run(ngx_modelgw_store_t *s,
    ngx_modelgw_store_statement_e i, ngx_uint_t *changes);

void ngx_modelgw_store_bind_name(sqlite3_stmt *stmt, int i,
    ngx_modelgw_ledger_name_t *name);

/*
 * Makes the table that calls of a batch are read from: NGX_OK, NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_calls_init(ngx_modelgw_store_t *s);

/* Writes the calls that were gathered, and charges them: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_store_calls_write(ngx_modelgw_store_t *s);

/*
 * Adds to what the batch changes the account's balance by: NGX_OK, NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_charge(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_name_t *account, int64_t amount);

/* What of it is not in the file yet. */
int64_t ngx_modelgw_store_charged(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_name_t *account);

/* Writes it; forgets it. */
ngx_int_t ngx_modelgw_store_flush(ngx_modelgw_store_t *s);
void ngx_modelgw_store_forget(ngx_modelgw_store_t *s);

/* The same, of a failure of SQLite's. */
ngx_int_t ngx_modelgw_store_fault(ngx_modelgw_store_t *s, sqlite3_stmt *stmt);

/*
 * Gives a batch up that something failed in: it is rolled back, and nothing
 * more is written.  Returns NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_abandon(ngx_modelgw_store_t *s);

/* "complete", "client", "upstream", "timeout", "killed", "stopped", "lost" */
const char *ngx_modelgw_store_end_name(ngx_modelgw_end_e end);


/* JSON that grows; a failure is remembered, and asked for at the end */

typedef struct {
    u_char                      *start;
    u_char                      *last;
    u_char                      *end;
    ngx_pool_t                  *pool;
    ngx_uint_t                   failed; /* no memory */
} ngx_modelgw_store_text_t;


void ngx_modelgw_store_text(ngx_modelgw_store_text_t *t, ngx_pool_t *pool);
void ngx_modelgw_store_put(ngx_modelgw_store_text_t *t, const char *text);

/* The text before, then a value. */

void ngx_modelgw_store_put_number(ngx_modelgw_store_text_t *t,
    const char *before, int64_t n);
void ngx_modelgw_store_put_string(ngx_modelgw_store_text_t *t,
    const char *before, ngx_str_t *s);

/* milliseconds since the Epoch: "2026-11-22T06:47:00.123Z" */
void ngx_modelgw_store_put_time(ngx_modelgw_store_text_t *t,
    const char *before, int64_t time);

/* days since the Epoch: "2026-11-22" */
void ngx_modelgw_store_put_day(ngx_modelgw_store_text_t *t,
    const char *before, int64_t day);

/* nano-euro: "0.0105" */
void ngx_modelgw_store_put_amount(ngx_modelgw_store_text_t *t,
    const char *before, int64_t amount);

/* The members of the six tokens of a call. */
void ngx_modelgw_store_put_tokens(ngx_modelgw_store_text_t *t,
    int64_t *tokens);

/* The last text; *out is all of it: NGX_OK, NGX_ERROR (no memory). */
ngx_int_t ngx_modelgw_store_put_done(ngx_modelgw_store_text_t *t,
    const char *end, ngx_str_t *out);


/*
 * A query with the conditions of a filter, NGX_MODELGW_STORE_WHERE, ?4 (from)
 * and ?5 (to): NGX_OK, NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_query(ngx_modelgw_store_t *s, const char *sql,
    ngx_modelgw_store_filter_t *filter, sqlite3_stmt **stmt);

/* The bytes of a column, until the next step. */
void ngx_modelgw_store_column(sqlite3_stmt *stmt, int i, ngx_str_t *str);


#endif /* _NGX_MODELGW_STORE_PRIVATE_H_INCLUDED_ */
