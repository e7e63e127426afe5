
/*
 * What ngx_modelgw_store*.c share.  A function that returns NGX_ERROR has set
 * s->error.
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

#define NGX_MODELGW_STORE_WAL_FILES  2   /* "-wal", "-shm" */

#define NGX_MODELGW_STORE_DAY     86400  /* seconds */


/* statements prepared when the file is opened for writing */

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


/* what the batch has charged or credited to an account so far */

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

    /* the table "temp.modelgw_batch" has the rows first <= row < end */

    sqlite3_vtab                 table;
    sqlite3_vtab_cursor          cursor;
    ngx_uint_t                   first;
    ngx_uint_t                   row;    /* where the cursor is */
    ngx_uint_t                   end;

    ngx_uint_t                   nrows;
    ngx_modelgw_store_row_t      rows[NGX_MODELGW_STORE_ROWS];

    ngx_uint_t                   ndeltas;
    uint16_t                     slots[NGX_MODELGW_STORE_SLOTS]; /* 1 plus
                                            the index of a delta; 0: free */
    ngx_modelgw_store_delta_t    deltas[NGX_MODELGW_STORE_DELTAS];

    /* of a writer; ino 0: not known yet */

    ngx_modelgw_store_file_t     wal_files[NGX_MODELGW_STORE_WAL_FILES];

    ngx_modelgw_store_error_t    error;
    const char                  *path;
};


/*
 * Sets s->error to the last failure of SQLite.  stmt, unless NULL, is reset.
 * Returns NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_fail(ngx_modelgw_store_t *s, sqlite3_stmt *stmt);

/* Sets s->error to a text.  Returns NGX_ERROR. */
ngx_int_t ngx_modelgw_store_fail_text(ngx_modelgw_store_t *s,
    const char *text);

/*
 * Prepares a statement to be used once, which the caller finalizes: NGX_OK,
 * NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_prepare(ngx_modelgw_store_t *s, const char *sql,
    sqlite3_stmt **stmt);

/* Executes statements that return no rows: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_store_exec(ngx_modelgw_store_t *s, const char *sql);

/*
 * Executes a statement once; first and second are bound if it has parameters.
 * *n is set to the number that it returns; if n is NULL, it returns none.
 *     NGX_OK, NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_step(ngx_modelgw_store_t *s, const char *sql,
    int64_t first, int64_t second, int64_t *n);

#define ngx_modelgw_store_number(s, sql, n)                                   \
    ngx_modelgw_store_step(s, sql, 0, 0, n)

/* Prepares what writing needs: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_store_write_init(ngx_modelgw_store_t *s);

/*
 * Rolls back a batch in which something failed; nothing more is written.
 * Returns NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_abandon(ngx_modelgw_store_t *s);


#endif /* _NGX_MODELGW_STORE_PRIVATE_H_INCLUDED_ */
