
/*
 * What ngx_modelgw_store*.c share.  A function that returns NGX_ERROR has set
 * s->error.
 */


#ifndef _NGX_MODELGW_STORE_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_STORE_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include <sqlite3.h>

#include "ngx_modelgw_journal.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_stmt.h"
#include "ngx_modelgw_store.h"
#include "ngx_modelgw_store_sums.h"


#define NGX_MODELGW_STORE_ROWS    1000   /* calls before they are written */
#define NGX_MODELGW_STORE_DELTAS  256    /* accounts charged before a flush */
#define NGX_MODELGW_STORE_SLOTS   1024   /* of their hash, a power of 2 */

/* calls are summed up as they are written, in windows: a step counts those of
   one, and there are windows for twice the time between steps */

#define NGX_MODELGW_STORE_WINDOW      2500  /* ms */
#define NGX_MODELGW_STORE_WINDOWS     8

#define NGX_MODELGW_STORE_HOUR_ROWS   1024  /* of "hours" before a flush */
#define NGX_MODELGW_STORE_HOUR_SLOTS  4096  /* of their hash, a power of 2 */
#define NGX_MODELGW_STORE_HOUR_NAMES  3     /* account, key, model */
#define NGX_MODELGW_STORE_HOUR_SUMS   12    /* NGX_MODELGW_STORE_SUMS */

#define NGX_MODELGW_STORE_PRICES  64     /* that a writer knows */

#define NGX_MODELGW_STORE_WAL_FILES  2   /* "-wal", "-shm" */

#define NGX_MODELGW_STORE_DAY     86400  /* seconds */
#define NGX_MODELGW_STORE_HOUR    3600000  /* milliseconds */


/* rows that are added to "hours" */

#define ngx_modelgw_store_hours_add_sql(rows)                                 \
    "INSERT INTO hours (hour, account, key, model," NGX_MODELGW_STORE_SUMS    \
    ") " rows " ON CONFLICT (hour, account, key, model) DO UPDATE SET"        \
    ngx_modelgw_store_sums_set("hours.", "+ ", "excluded.")

/* the calls of a condition, summed up by hour */

#define ngx_modelgw_store_hours_sql(condition)                                \
    ngx_modelgw_store_hours_add_sql(                                          \
        "SELECT ended / 3600000, account, key, model,"                        \
        NGX_MODELGW_STORE_SUMS_OF_CALLS                                       \
        "FROM calls WHERE " condition " GROUP BY 1, 2, 3, 4")

/* the time, in milliseconds, before which all calls are in "hours" */

#define NGX_MODELGW_STORE_MARK                                                \
    "(SELECT coalesce(max(value), 0) FROM marks WHERE name = 'hours')"


/*
 * The view "audit".  Both "difference" and "hours" must be 0 in every row: the
 * balance less what it is derived from, credit and calls, and the cost in
 * "hours" less that of their calls.
 */

#define ngx_modelgw_store_audit_sql(credit)                                   \
    "CREATE VIEW audit AS "                                                   \
        "SELECT account, sum(balance) AS balance, sum(derived) AS derived,"   \
            " sum(balance) - sum(derived) AS difference, sum(hours) AS hours" \
        " FROM (SELECT name AS account, balance, 0 AS derived, 0 AS hours"    \
                " FROM accounts"                                              \
            " UNION ALL SELECT account, 0, " credit                           \
            " UNION ALL SELECT account, 0, -cost,"                            \
                " iif(ended < " NGX_MODELGW_STORE_MARK ", -cost, 0)"          \
                " FROM calls"                                                 \
            " UNION ALL SELECT account, 0, 0, cost FROM hours"                \
            " UNION ALL SELECT account, 0, -cost, 0 FROM days)"               \
        " GROUP BY account;"


/* the first second of a row of "days"; those from a time on, ?1 */

#define NGX_MODELGW_STORE_DAY_TIME  "CAST(strftime('%s', day) AS INTEGER)"

#define NGX_MODELGW_STORE_DAYS_SINCE                                          \
    "day >= date((?1 + 86399999) / 1000, 'unixepoch')"

/* a table of accounts with their balances; what tells actions of a time apart,
   one number here */

#define NGX_MODELGW_STORE_BALANCES      "accounts AS balances"
#define NGX_MODELGW_STORE_ACTIONS_NODE  "(id IS NULL)"

/* whether a name is one of ?2; NULL: any.  See ngx_modelgw_store_spent(). */

#define NGX_MODELGW_STORE_AMONG       "IN (?2)"
#define ngx_modelgw_store_among(name)                                         \
    "(?2 IS NULL OR " name " " NGX_MODELGW_STORE_AMONG ")"


/* of a journal: the last position; one that no call has yet is 0, too */

#define NGX_MODELGW_JOURNAL_END                                               \
    "(SELECT coalesce(max(pos), 0) FROM outbox)"

/* positions, after which a row of "lowest" is written */

#define NGX_MODELGW_JOURNAL_BLOCK  65536


/* statements prepared when the file is opened for writing */

typedef enum {
    NGX_MODELGW_STORE_BEGIN = 0,
    NGX_MODELGW_STORE_COMMIT,
    NGX_MODELGW_STORE_CALLS,
    NGX_MODELGW_STORE_HOLD,
    NGX_MODELGW_STORE_UNHOLD,
    NGX_MODELGW_STORE_CHARGE,
    NGX_MODELGW_STORE_ACCOUNT,
    NGX_MODELGW_STORE_TOPUP,
    NGX_MODELGW_STORE_LATE,
    NGX_MODELGW_STORE_HOURS,
    NGX_MODELGW_STORE_OUTBOX,            /* of a journal only, as the rest */
    NGX_MODELGW_STORE_LOWEST,
    NGX_MODELGW_STORE_STATEMENTS
} ngx_modelgw_store_statement_e;


/* what the batch has charged or credited to an account so far */

typedef struct {
    int64_t                      amount;
    ngx_modelgw_ledger_name_t    name;
} ngx_modelgw_store_delta_t;


/* what is added to a row of "hours"; the names are one block of memory */

typedef struct {
    int64_t                      hour;
    ngx_str_t                    names[NGX_MODELGW_STORE_HOUR_NAMES];
    int64_t                      sums[NGX_MODELGW_STORE_HOUR_SUMS];
} ngx_modelgw_store_hour_t;


/* sums of calls that ended in a window, by rows of "hours" */

typedef struct {
    int64_t                      window; /* number of it, since the Epoch */
    ngx_uint_t                   calls;  /* in the rows */
    ngx_uint_t                   nrows;
    uint16_t                     slots[NGX_MODELGW_STORE_HOUR_SLOTS]; /* as
                                            those of deltas */
    ngx_modelgw_store_hour_t     rows[NGX_MODELGW_STORE_HOUR_ROWS];
} ngx_modelgw_store_hours_t;


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
    ngx_uint_t                   migrated; /* when it was opened */
    ngx_uint_t                   journal; /* it is one, of a cluster's node */
    ngx_modelgw_journal_written_pt  written; /* NULL: nothing is called */
    void                        *written_data;

    /* the table "temp.modelgw_batch" has the rows first <= row < end */

    sqlite3_vtab                 table;
    sqlite3_vtab_cursor          cursor;
    ngx_uint_t                   first;
    ngx_uint_t                   row;    /* where the cursor is */
    ngx_uint_t                   end;

    ngx_uint_t                   nrows;
    ngx_modelgw_store_row_t      rows[NGX_MODELGW_STORE_ROWS];

    u_char                       ids[NGX_MODELGW_STORE_ROWS
                                     * sizeof("9223372036854775807,") + 2];

    ngx_uint_t                   ndeltas;
    uint16_t                     slots[NGX_MODELGW_STORE_SLOTS]; /* 1 plus
                                            the index of a delta; 0: free */
    ngx_modelgw_store_delta_t    deltas[NGX_MODELGW_STORE_DELTAS];

    ngx_modelgw_store_hours_t   *hours;  /* of a writer: of windows, at the
                                            remainder of their number; then one
                                            of calls that are read */

    /* of a writer: ids of prices that are stored, at their place */

    uint64_t                     prices[NGX_MODELGW_STORE_PRICES];

    int64_t                      mark;   /* of a writer: NGX_MODELGW_STORE_MARK,
                                            as it was committed last */

    /* of a writer; ino 0: not known yet */

    ngx_modelgw_store_file_t     wal_files[NGX_MODELGW_STORE_WAL_FILES];

    /* of a cluster, without db */

    ngx_uint_t                   cluster;
    ngx_modelgw_pq_conf_t       *conf;   /* of a reader; NULL: attached */
    ngx_modelgw_pq_t            *pq;     /* NULL: not connected yet */
    volatile ngx_atomic_t        stop;   /* of a reader: interrupted */
    ngx_uint_t                   cursors;
    uint64_t                     node;
    uint64_t                     keys_version; /* of a change */

    ngx_modelgw_store_error_t    error;
    const char                  *path;
};


/*
 * Sets s->error to the last failure of SQLite.  stmt, unless NULL, is reset.
 * Returns NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_fail(ngx_modelgw_store_t *s, sqlite3_stmt *stmt);

/*
 * Sets *error to a text about a path, without a store.  err: errno, or 0.
 */
void ngx_modelgw_store_set_error(ngx_modelgw_store_error_t *error,
    const char *path, const char *text, int err);

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

/*
 * Calls the handler for each row, of a name and two numbers; first and names
 * are bound if there are parameters.  names: NULL, or empty: all.
 *     NGX_OK, NGX_ERROR (of the store, or the handler's)
 */
ngx_int_t ngx_modelgw_store_each(ngx_modelgw_store_t *s, const char *sql,
    int64_t first, ngx_str_t *names, ngx_modelgw_store_account_pt handler,
    void *data);

/* stmt_pq.c: what functions of the same names do of a cluster */

void ngx_modelgw_stmt_pq_prepare(ngx_modelgw_stmt_t *stmt, const char *sql);
void ngx_modelgw_stmt_pq_bind_text(ngx_modelgw_stmt_t *stmt, ngx_uint_t i,
    u_char *data, size_t len);
ngx_int_t ngx_modelgw_stmt_pq_next(ngx_modelgw_stmt_t *stmt);
void ngx_modelgw_store_cluster_close(ngx_modelgw_store_t *s);
ngx_int_t ngx_modelgw_store_cluster_begin(ngx_modelgw_store_t *s);
ngx_int_t ngx_modelgw_store_cluster_commit(ngx_modelgw_store_t *s);
void ngx_modelgw_store_cluster_rollback(ngx_modelgw_store_t *s);

/* reading */

#define NGX_MODELGW_STORE_ANSWER  4096   /* bytes allocated at first */

/* a filter's first three members, as ?1, ?2 and ?3 */

#define NGX_MODELGW_STORE_WHERE                                               \
    " WHERE (?1 IS NULL OR account = ?1) AND (?2 IS NULL OR key = ?2)"        \
    " AND (?3 IS NULL OR model = ?3)"

/*
 * Prepares a query, and binds these, and the span to ?4 and ?5: NGX_OK,
 * NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_query(ngx_modelgw_store_t *s, const char *sql,
    ngx_modelgw_store_filter_t *filter, ngx_modelgw_stmt_t *stmt);

/*
 * Writes a text as a cell of CSV, one that a spreadsheet would take for a
 * formula with a "'" before it.
 */
void ngx_modelgw_store_cell(ngx_modelgw_out_t *out, ngx_str_t *text);

/* what a column is written as */

typedef enum {
    NGX_MODELGW_FIELD_NUMBER = 0,
    NGX_MODELGW_FIELD_TIME,
    NGX_MODELGW_FIELD_STRING,
    NGX_MODELGW_FIELD_AMOUNT,
    NGX_MODELGW_FIELD_BOOL
} ngx_modelgw_store_field_e;


typedef struct {
    ngx_str_t                   name;
    ngx_modelgw_store_field_e   type;
} ngx_modelgw_store_field_t;


/* Writes the first n columns of a row as a JSON object. */
void ngx_modelgw_store_object(ngx_modelgw_out_t *out, ngx_modelgw_stmt_t *stmt,
    ngx_modelgw_store_field_t *fields, ngx_uint_t n);

/* writes a row */

typedef void (*ngx_modelgw_store_row_pt)(ngx_modelgw_out_t *out,
    ngx_modelgw_stmt_t *stmt);


/* rows of an answer */

typedef struct {
    ngx_uint_t            limit;
    const char           *separator;
    int                   columns[2];    /* of "last" */
    uint64_t              last[2];       /* values of the last row */
} ngx_modelgw_store_rows_t;

/*
 * Writes at most rows->limit rows, and finalizes the statement.
 *     NGX_OK     all of them
 *     NGX_AGAIN  there are more
 *     NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_rows(ngx_modelgw_store_t *s,
    ngx_modelgw_out_t *out, ngx_modelgw_stmt_t *stmt,
    ngx_modelgw_store_row_pt row, ngx_modelgw_store_rows_t *rows);

/* Writes the end; *text is the whole answer: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_store_finish(ngx_modelgw_store_t *s,
    ngx_modelgw_out_t *out, const char *end, ngx_str_t *text);

/* Prepares what writing needs: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_store_write_init(ngx_modelgw_store_t *s);

/*
 * Executes a statement of a batch, which returns no rows, and finalizes it; if
 * it fails, or changes another number of rows, the batch is rolled back.
 *     NGX_OK, NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_once(ngx_modelgw_store_t *s,
    ngx_modelgw_stmt_t *stmt, ngx_uint_t changes, const char *failed);

/*
 * Executes one of the writer's statements in a batch, which is rolled back if
 * it fails or does not change one row; failed: the text then.
 *     NGX_OK, NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_run_row(ngx_modelgw_store_t *s,
    ngx_modelgw_store_statement_e i, const char *failed);

/*
 * Sums of calls, for ngx_modelgw_store_hours(): allocates them (NGX_OK,
 * NGX_ERROR), adds a call that was inserted, frees them.
 */
ngx_int_t ngx_modelgw_store_hours_init(ngx_modelgw_store_t *s);
void ngx_modelgw_store_hours_note(ngx_modelgw_store_t *s,
    ngx_modelgw_store_row_t *row);
void ngx_modelgw_store_hours_free(ngx_modelgw_store_t *s);

/* Stores a call's price in its batch, if it may be new: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_store_price_of(ngx_modelgw_store_t *s,
    ngx_modelgw_call_t *call);

/*
 * Rolls back a batch in which something failed; nothing more is written.
 * _fault() sets s->error first, and resets the statement, unless that is NULL;
 * _fault_text() sets it to the text.  All return NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_abandon(ngx_modelgw_store_t *s);
ngx_int_t ngx_modelgw_store_fault(ngx_modelgw_store_t *s, sqlite3_stmt *stmt);
ngx_int_t ngx_modelgw_store_fault_text(ngx_modelgw_store_t *s,
    const char *text);

/*
 * Adds a top-up in a batch, without crediting it; *made is 0 if its id exists.
 *     NGX_OK, NGX_ERROR
 */
ngx_int_t ngx_modelgw_store_topup_insert(ngx_modelgw_store_t *s, ngx_str_t *id,
    ngx_modelgw_ledger_name_t *account, int64_t amount, uint64_t time,
    ngx_str_t *reason, ngx_uint_t *made);

/* Adds the amount to the account's balance: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_store_charge(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_name_t *account, int64_t amount);

/* What the batch has added to it, and not written yet. */
int64_t ngx_modelgw_store_charged(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_name_t *account);

/* The name must not change until the statement is executed. */
void ngx_modelgw_store_bind_name(sqlite3_stmt *stmt, int i,
    ngx_modelgw_ledger_name_t *name);


/* store_journal.c: what a journal has besides, to be made with its tables */

extern const char  ngx_modelgw_journal_schema[];

/*
 * Sets the id of a new journal, outside of a batch: NGX_OK, NGX_ERROR.
 */
ngx_int_t ngx_modelgw_journal_init(ngx_modelgw_store_t *s, const char *id);


/* store_schema.c */

/*
 * What the file is, and whether it is a journal.
 *     NGX_OK        a ledger of this version
 *     NGX_DONE      of an older one
 *     NGX_DECLINED  the file is empty
 *     NGX_ERROR     it is something else, or cannot be read
 */
ngx_int_t ngx_modelgw_store_identify(ngx_modelgw_store_t *s);

/*
 * Checks the application_id and the user_version of a file; *version becomes
 * that of the tables, which both kinds have.
 *     NGX_OK
 *     NGX_ERROR     not a version that is known here; *error is set
 */
ngx_int_t ngx_modelgw_store_version(int64_t id, int64_t *version,
    ngx_uint_t *journal, const char *path, ngx_modelgw_store_error_t *error);

/* Whether it is of the kind that is needed: NGX_OK, NGX_ERROR (*error). */
ngx_int_t ngx_modelgw_store_kind(ngx_uint_t journal, ngx_uint_t cluster,
    const char *path, ngx_modelgw_store_error_t *error);

/*
 * Makes the tables of an empty file, id: of a journal, or NULL; makes those of
 * version 1 what they are now: NGX_OK, NGX_ERROR.
 */
ngx_int_t ngx_modelgw_store_create(ngx_modelgw_store_t *s, const char *id);
ngx_int_t ngx_modelgw_store_migrate(ngx_modelgw_store_t *s);

/* PRAGMA user_version of a file of its kind. */
int ngx_modelgw_store_user_version(ngx_modelgw_store_t *s);


/* store_change.c, store_keys.c: changes by operators */

#define NGX_MODELGW_STORE_STATE   4096   /* bytes of a state as JSON */


/* a JSON object in memory of the caller; it fits in */

typedef struct {
    size_t                len;
    u_char                data[NGX_MODELGW_STORE_STATE];
} ngx_modelgw_store_text_t;


/* the row of "actions" */

typedef struct {
    ngx_str_t                  name;
    ngx_modelgw_ledger_name_t *target;
    ngx_modelgw_store_text_t   before;
    ngx_modelgw_store_text_t   after;
    ngx_modelgw_change_e       result;
} ngx_modelgw_store_action_t;


/*
 * Makes the change and describes it, or sets action->result to what prevents
 * it, and changes nothing.
 *     NGX_OK, NGX_ERROR (the batch is rolled back)
 */
typedef ngx_int_t (*ngx_modelgw_store_change_pt)(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action);

/* Prepares a statement of a batch, which is rolled back if that fails. */
ngx_int_t ngx_modelgw_store_ready(ngx_modelgw_store_t *s, const char *sql,
    ngx_modelgw_stmt_t *stmt);

/*
 * Reads the first row of a statement, which the caller finalizes.
 *     NGX_OK, NGX_DECLINED (there is none), NGX_ERROR (as of a batch)
 */
ngx_int_t ngx_modelgw_store_query_one(ngx_modelgw_store_t *s,
    ngx_modelgw_stmt_t *stmt);

/* Makes out write to the text, which becomes empty. */
void ngx_modelgw_store_text(ngx_modelgw_out_t *out,
    ngx_modelgw_store_text_t *text);

/* Writes the row of "actions"; the time is its id, too: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_store_change_record(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, uint64_t time,
    ngx_modelgw_store_action_t *action);

/*
 * Opens the account of a change, and describes that.
 *     NGX_OK
 *     NGX_DECLINED  it exists; nothing was changed
 *     NGX_ERROR     the batch is rolled back
 */
ngx_int_t ngx_modelgw_store_account_open(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action);

/* of the type ngx_modelgw_store_change_pt */
ngx_int_t ngx_modelgw_store_key_new(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action);
ngx_int_t ngx_modelgw_store_key_set(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action);
ngx_int_t ngx_modelgw_store_key_rotate(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action);
ngx_int_t ngx_modelgw_store_key_revoke(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action);

/* store_nodes.c: the same; the store is the database of a cluster */
ngx_int_t ngx_modelgw_store_node_set(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action);
ngx_int_t ngx_modelgw_store_node_write_off(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action);

/* Sets change->key, and its note, to what the store has: NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_store_key_read(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change);


#endif /* _NGX_MODELGW_STORE_PRIVATE_H_INCLUDED_ */
