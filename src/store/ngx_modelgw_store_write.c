
/*
 * Batches of the store: what the writer stores in one transaction.
 *
 * Everything here may be repeated: after a failed commit it is unknown what is
 * on the disk, and after a crash the ledger in shared memory starts again from
 * the file.  A row with a known id changes nothing, and what is not inserted is
 * not charged.
 *
 * After a failure nothing more is written: the batch is rolled back, and
 * further statements would not be part of one.
 *
 * Calls are gathered, then inserted by one statement, which reads them as rows
 * of a virtual table, "temp.modelgw_batch": by its full name, as the file may
 * have a table of that name.  They are sorted by id, so nearly all of them are
 * appended to "calls", which is cheaper than inserting them in between.
 *
 * A call that is already stored makes the statement fail and undoes it.  This
 * happens after a crash: the calls are then inserted one by one, and what is
 * already stored is not charged.  A trigger that was added to the file may drop
 * rows silently: so they are counted.
 *
 * Charges are summed up in memory, one UPDATE per account at the end of the
 * batch, because most calls of a batch are of a few accounts.  If there are
 * more accounts than the table has room for, its sums are written and it is
 * emptied.
 *
 * Rejected: a statement per call (a third more), an INSERT of 16 or 64 rows of
 * bound values (8 to 11 % more instructions in batches of 10 to 1000 calls).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"


#define NGX_MODELGW_STORE_BATCH_SQL  512  /* bytes */


#define ngx_modelgw_store_result_name(ctx, name)                              \
    sqlite3_result_text(ctx, (char *) (name)->data,                           \
                        ngx_min((name)->len, NGX_MODELGW_LEDGER_NAME),        \
                        SQLITE_STATIC)

#define ngx_modelgw_store_of(base, member)                                    \
    ((ngx_modelgw_store_t *)                                                  \
        ((u_char *) base - offsetof(ngx_modelgw_store_t, member)))


/* what a column of the virtual table is taken from */

typedef enum {
    NGX_MODELGW_COLUMN_ID = 0,           /* the row's id */
    NGX_MODELGW_COLUMN_ACCOUNT,          /* the row's account */
    NGX_MODELGW_COLUMN_INT64,            /* a member of the call, as below */
    NGX_MODELGW_COLUMN_UINT64,
    NGX_MODELGW_COLUMN_UINT32,
    NGX_MODELGW_COLUMN_NAME,
    NGX_MODELGW_COLUMN_MODEL,            /* with call->model_len */
    NGX_MODELGW_COLUMN_REQUEST,          /* with call->request_id_len */
    NGX_MODELGW_COLUMN_MSEC,             /* uint32_t; NONE is NULL */
    NGX_MODELGW_COLUMN_OUTCOME,          /* enums, as text */
    NGX_MODELGW_COLUMN_END
} ngx_modelgw_store_column_e;


/* the type that such a member must have; an array is compared as a pointer */

#define NGX_MODELGW_COLUMN_INT64_TYPE    int64_t
#define NGX_MODELGW_COLUMN_UINT64_TYPE   uint64_t
#define NGX_MODELGW_COLUMN_UINT32_TYPE   uint32_t
#define NGX_MODELGW_COLUMN_NAME_TYPE     ngx_modelgw_ledger_name_t
#define NGX_MODELGW_COLUMN_MODEL_TYPE    u_char *
#define NGX_MODELGW_COLUMN_REQUEST_TYPE  u_char *
#define NGX_MODELGW_COLUMN_MSEC_TYPE     uint32_t
#define NGX_MODELGW_COLUMN_OUTCOME_TYPE  ngx_modelgw_outcome_e
#define NGX_MODELGW_COLUMN_END_TYPE      ngx_modelgw_end_e


typedef struct {
    const char                  *name;
    ngx_modelgw_store_column_e   type;
    size_t                       offset; /* in ngx_modelgw_call_t */
} ngx_modelgw_store_column_t;


static ngx_int_t ngx_modelgw_store_calls_write(ngx_modelgw_store_t *s);
static ngx_int_t ngx_modelgw_store_calls_each(ngx_modelgw_store_t *s);
static ngx_int_t ngx_modelgw_store_calls_insert(ngx_modelgw_store_t *s,
    ngx_uint_t first, ngx_uint_t last);
static ngx_int_t ngx_modelgw_store_calls_outbox(ngx_modelgw_store_t *s,
    ngx_uint_t first, ngx_uint_t last);
static ngx_int_t ngx_modelgw_store_calls_late(ngx_modelgw_store_t *s,
    ngx_uint_t first, ngx_uint_t last);
static ngx_int_t ngx_modelgw_store_calls_unhold(ngx_modelgw_store_t *s);
static ngx_int_t ngx_modelgw_store_charge_now(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_name_t *account, int64_t amount);
static uint16_t *ngx_modelgw_store_slot(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_name_t *name);
static ngx_int_t ngx_modelgw_store_flush(ngx_modelgw_store_t *s);
static void ngx_modelgw_store_forget(ngx_modelgw_store_t *s);
static ngx_int_t ngx_modelgw_store_run(ngx_modelgw_store_t *s,
    ngx_modelgw_store_statement_e i, ngx_uint_t *changes);
static ngx_int_t ngx_modelgw_store_statement(ngx_modelgw_store_t *s,
    ngx_modelgw_store_statement_e i, ngx_modelgw_stmt_t *stmt);
static ngx_int_t ngx_modelgw_store_statement_run(ngx_modelgw_store_t *s,
    ngx_modelgw_store_statement_e i, ngx_modelgw_stmt_t *stmt,
    ngx_uint_t *changes);
static ngx_int_t ngx_modelgw_store_calls_init(ngx_modelgw_store_t *s);
static int ngx_modelgw_store_batch_connect(sqlite3 *db, void *data, int argc,
    const char *const *argv, sqlite3_vtab **table, char **error);
static int ngx_modelgw_store_batch_disconnect(sqlite3_vtab *table);
static int ngx_modelgw_store_batch_plan(sqlite3_vtab *table,
    sqlite3_index_info *info);
static int ngx_modelgw_store_batch_open(sqlite3_vtab *table,
    sqlite3_vtab_cursor **cursor);
static int ngx_modelgw_store_batch_close(sqlite3_vtab_cursor *cursor);
static int ngx_modelgw_store_batch_first(sqlite3_vtab_cursor *cursor, int plan,
    const char *name, int argc, sqlite3_value **argv);
static int ngx_modelgw_store_batch_next(sqlite3_vtab_cursor *cursor);
static int ngx_modelgw_store_batch_eof(sqlite3_vtab_cursor *cursor);
static int ngx_modelgw_store_batch_rowid(sqlite3_vtab_cursor *cursor,
    sqlite3_int64 *rowid);
static int ngx_modelgw_store_batch_column(sqlite3_vtab_cursor *cursor,
    sqlite3_context *ctx, int i);


static const char  *ngx_modelgw_store_sql[NGX_MODELGW_STORE_STATEMENTS] = {

    [NGX_MODELGW_STORE_BEGIN] = "BEGIN IMMEDIATE",

    [NGX_MODELGW_STORE_COMMIT] = "COMMIT",

    [NGX_MODELGW_STORE_CALLS] =
        "INSERT INTO main.calls SELECT * FROM temp.modelgw_batch",

    [NGX_MODELGW_STORE_HOLD] =
        "INSERT INTO holds"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
        " ON CONFLICT (id) DO UPDATE SET cost = cost",

    [NGX_MODELGW_STORE_UNHOLD] = "DELETE FROM holds WHERE id = ?1",

    [NGX_MODELGW_STORE_CHARGE] =
        "UPDATE accounts SET balance = balance + ?2 WHERE name = ?1",

    [NGX_MODELGW_STORE_ACCOUNT] =
        "INSERT INTO accounts (name, balance, opened) VALUES (?1, 0, ?2)"
        " ON CONFLICT (name) DO NOTHING",

    [NGX_MODELGW_STORE_TOPUP] =
        "INSERT INTO topups (id, account, amount, time, reason)"
        " VALUES (?1, ?2, ?3, ?4, ?5)"
        " ON CONFLICT (id) DO NOTHING",

    [NGX_MODELGW_STORE_LATE] = ngx_modelgw_store_hours_sql("id = ?1"),

    [NGX_MODELGW_STORE_HOURS] = ngx_modelgw_store_hours_add_sql(
        "VALUES (?1, ?2, ?3, ?4,"
        " ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)"),

    [NGX_MODELGW_STORE_OUTBOX] =
        "INSERT INTO outbox"
        " VALUES (" NGX_MODELGW_JOURNAL_END " + ?1, ?2, ?3)",

    [NGX_MODELGW_STORE_LOWEST] =
        "INSERT INTO lowest SELECT max(pos), min(first) FROM outbox"
        " WHERE pos > (SELECT coalesce(max(pos), 0) FROM lowest)"
};


/* does not compile if the member has another type than its column */

#define ngx_modelgw_store_member(name, type, member)                          \
    { name, NGX_MODELGW_COLUMN_##type,                                        \
      _Generic(((ngx_modelgw_call_t *) 0)->member,                            \
               NGX_MODELGW_COLUMN_##type##_TYPE:                              \
               offsetof(ngx_modelgw_call_t, member)) }


/*
 * The columns of the virtual table, which is declared from this list.  They are
 * those of "calls" (see ngx_modelgw_store_schema), in the same order: "INSERT
 * ... SELECT *" goes by position.  With another number of columns it cannot be
 * prepared, and the file not be opened.
 */

static const ngx_modelgw_store_column_t  ngx_modelgw_store_columns[] = {
    { "id", NGX_MODELGW_COLUMN_ID, 0 },
    ngx_modelgw_store_member("time", UINT64, started),
    ngx_modelgw_store_member("ended", UINT64, ended),
    ngx_modelgw_store_member("key", NAME, key_name),
    { "account", NGX_MODELGW_COLUMN_ACCOUNT, 0 },
    ngx_modelgw_store_member("model", MODEL, model),
    ngx_modelgw_store_member("input", INT64, charge.tokens.input),
    ngx_modelgw_store_member("cache_read", INT64, charge.tokens.cache_read),
    ngx_modelgw_store_member("cache_write", INT64, charge.tokens.cache_write),
    ngx_modelgw_store_member("cache_write_1h", INT64,
                             charge.tokens.cache_write_1h),
    ngx_modelgw_store_member("output", INT64, charge.tokens.output),
    ngx_modelgw_store_member("reasoning", INT64, charge.tokens.reasoning),
    ngx_modelgw_store_member("cost", INT64, charge.cost),
    ngx_modelgw_store_member("outcome", OUTCOME, charge.outcome),
    ngx_modelgw_store_member("end", END, end),
    ngx_modelgw_store_member("status", UINT32, seen.status),
    ngx_modelgw_store_member("request_id", REQUEST, request_id),
    ngx_modelgw_store_member("first_byte", MSEC, first_byte),
    ngx_modelgw_store_member("flags", UINT32, flags),
    ngx_modelgw_store_member("price", UINT64, price_id)
};

#define NGX_MODELGW_STORE_COLUMNS                                             \
    (sizeof(ngx_modelgw_store_columns) / sizeof(ngx_modelgw_store_column_t))


static sqlite3_module  ngx_modelgw_store_batch = {
    .xCreate = ngx_modelgw_store_batch_connect,
    .xConnect = ngx_modelgw_store_batch_connect,
    .xBestIndex = ngx_modelgw_store_batch_plan,
    .xDisconnect = ngx_modelgw_store_batch_disconnect,
    .xDestroy = ngx_modelgw_store_batch_disconnect,
    .xOpen = ngx_modelgw_store_batch_open,
    .xClose = ngx_modelgw_store_batch_close,
    .xFilter = ngx_modelgw_store_batch_first,
    .xNext = ngx_modelgw_store_batch_next,
    .xEof = ngx_modelgw_store_batch_eof,
    .xColumn = ngx_modelgw_store_batch_column,
    .xRowid = ngx_modelgw_store_batch_rowid
};


ngx_int_t
ngx_modelgw_store_write_init(ngx_modelgw_store_t *s)
{
    ngx_uint_t  i;

    if (ngx_modelgw_store_calls_init(s) != NGX_OK) {
        return NGX_ERROR;
    }

    for (i = 0; i < NGX_MODELGW_STORE_STATEMENTS; i++) {

        if (i >= NGX_MODELGW_STORE_OUTBOX && !s->journal) {
            continue;
        }

        if (sqlite3_prepare_v3(s->db, ngx_modelgw_store_sql[i], -1,
                               SQLITE_PREPARE_PERSISTENT, &s->stmts[i], NULL)
            != SQLITE_OK)
        {
            return ngx_modelgw_store_fail(s, NULL);
        }
    }

    return ngx_modelgw_store_number(s, "SELECT " NGX_MODELGW_STORE_MARK,
                                    &s->mark);
}


ngx_int_t
ngx_modelgw_store_begin(ngx_modelgw_store_t *s)
{
    if (s->cluster) {
        return ngx_modelgw_store_cluster_begin(s);
    }

    if (ngx_modelgw_store_run(s, NGX_MODELGW_STORE_BEGIN, NULL) != NGX_OK) {
        return NGX_ERROR;
    }

    s->batch = 1;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_commit(ngx_modelgw_store_t *s)
{
    if (s->cluster) {
        return ngx_modelgw_store_cluster_commit(s);
    }

    if (ngx_modelgw_store_calls_write(s) != NGX_OK
        || ngx_modelgw_store_flush(s) != NGX_OK
        || ngx_modelgw_store_run(s, NGX_MODELGW_STORE_COMMIT, NULL) != NGX_OK)
    {
        return NGX_ERROR;
    }

    s->batch = 0;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_account(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_account_t *a)
{
    u_char              *p, text[sizeof("founding:") + NGX_MODELGW_LEDGER_NAME];
    ngx_str_t            id, reason;
    ngx_uint_t           made;
    ngx_modelgw_stmt_t   stmt;

    if (ngx_modelgw_store_statement(s, NGX_MODELGW_STORE_ACCOUNT, &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_name(&stmt, 1, &a->name);
    ngx_modelgw_stmt_bind_int(&stmt, 2, a->opened * 1000);

    if (ngx_modelgw_store_statement_run(s, NGX_MODELGW_STORE_ACCOUNT, &stmt,
                                        &made)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!made || a->founding == 0 || s->journal) {
        return NGX_OK;
    }

    p = ngx_cpymem(text, "founding:", sizeof("founding:") - 1);
    p = ngx_cpymem(p, a->name.data,
                   ngx_min(a->name.len, NGX_MODELGW_LEDGER_NAME));

    id.data = text;
    id.len = p - text;

    ngx_str_set(&reason, "");

    if (ngx_modelgw_store_topup_insert(s, &id, &a->name, a->founding,
                                       a->opened * 1000, &reason, &made)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return made ? ngx_modelgw_store_charge(s, &a->name, a->founding) : NGX_OK;
}


ngx_int_t
ngx_modelgw_store_topup_insert(ngx_modelgw_store_t *s, ngx_str_t *id,
    ngx_modelgw_ledger_name_t *account, int64_t amount, uint64_t time,
    ngx_str_t *reason, ngx_uint_t *made)
{
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_statement(s, NGX_MODELGW_STORE_TOPUP, &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_text(&stmt, 1, id->data, id->len);
    ngx_modelgw_stmt_bind_name(&stmt, 2, account);
    ngx_modelgw_stmt_bind_int(&stmt, 3, amount);
    ngx_modelgw_stmt_bind_int(&stmt, 4, time);
    ngx_modelgw_stmt_bind_text(&stmt, 5, reason->data, reason->len);

    return ngx_modelgw_store_statement_run(s, NGX_MODELGW_STORE_TOPUP, &stmt,
                                           made);
}


ngx_int_t
ngx_modelgw_store_hold(ngx_modelgw_store_t *s, ngx_modelgw_call_t *call,
    ngx_modelgw_ledger_name_t *account)
{
    ngx_uint_t             changes;
    sqlite3_stmt          *stmt;
    ngx_modelgw_seen_t     seen;
    ngx_modelgw_charge_t   charge;

    ngx_modelgw_seen_init(&seen);
    ngx_modelgw_charge(&call->price, call->hold, call->estimate, &seen,
                       &charge);

    stmt = s->stmts[NGX_MODELGW_STORE_HOLD];

    (void) sqlite3_bind_int64(stmt, 1, call->id);
    (void) sqlite3_bind_int64(stmt, 2, call->started);
    ngx_modelgw_store_bind_name(stmt, 3, &call->key_name);
    ngx_modelgw_store_bind_name(stmt, 4, account);
    (void) sqlite3_bind_text(stmt, 5, (char *) call->model,
                             ngx_min(call->model_len, NGX_MODELGW_LEDGER_MODEL),
                             SQLITE_STATIC);
    (void) sqlite3_bind_int64(stmt, 6, call->hold);
    (void) sqlite3_bind_int64(stmt, 7, charge.tokens.input);
    (void) sqlite3_bind_int64(stmt, 8, charge.cost);
    (void) sqlite3_bind_text(stmt, 9, (char *) call->request_id,
                             ngx_min(call->request_id_len,
                                     NGX_MODELGW_LEDGER_REQUEST),
                             SQLITE_STATIC);
    (void) sqlite3_bind_int64(stmt, 10, call->flags);
    (void) sqlite3_bind_int64(stmt, 11, call->price_id);

    if (ngx_modelgw_store_run(s, NGX_MODELGW_STORE_HOLD, &changes) != NGX_OK) {
        return NGX_ERROR;
    }

    /* an existing hold counts as a change: a trigger has dropped the row */

    if (changes == 0) {
        return ngx_modelgw_store_fault_text(s,
                                            "failed: a hold was not inserted");
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_call(ngx_modelgw_store_t *s, ngx_modelgw_call_t *call,
    ngx_modelgw_ledger_name_t *account)
{
    ngx_modelgw_store_row_t  *row;

    if (s->failed || !s->batch) {
        return NGX_ERROR;
    }

    if (s->nrows == NGX_MODELGW_STORE_ROWS
        && ngx_modelgw_store_calls_write(s) != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* they come nearly in order */

    for (row = &s->rows[s->nrows++];
         row > s->rows && row[-1].id > call->id;
         row--)
    {
        row[0] = row[-1];
    }

    row->id = call->id;
    row->call = call;
    row->account = account;

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_store_calls_write(ngx_modelgw_store_t *s)
{
    ngx_int_t  rc;

    if (s->nrows == 0) {
        return NGX_OK;
    }

    rc = ngx_modelgw_store_calls_insert(s, 0, s->nrows);

    if (rc == NGX_DECLINED) {
        rc = ngx_modelgw_store_calls_each(s);
    }

    if (rc != NGX_OK || ngx_modelgw_store_calls_unhold(s) != NGX_OK) {
        return NGX_ERROR;
    }

    s->nrows = 0;

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_store_calls_each(ngx_modelgw_store_t *s)
{
    ngx_uint_t  i;

    for (i = 0; i < s->nrows; i++) {
        if (ngx_modelgw_store_calls_insert(s, i, i + 1) == NGX_ERROR) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/*
 * Inserts some of the calls, and charges them.
 *     NGX_OK
 *     NGX_DECLINED  one of them exists already: nothing was done
 *     NGX_ERROR     the batch is rolled back, here or before
 */

static ngx_int_t
ngx_modelgw_store_calls_insert(ngx_modelgw_store_t *s, ngx_uint_t first,
    ngx_uint_t last)
{
    int            rc;
    ngx_uint_t     i;
    sqlite3_stmt  *stmt;

    if (s->failed || !s->batch) {
        return NGX_ERROR;
    }

    stmt = s->stmts[NGX_MODELGW_STORE_CALLS];

    s->first = first;
    s->end = last;

    ngx_set_errno(0);

    rc = sqlite3_step(stmt);

    if (rc == SQLITE_CONSTRAINT_PRIMARYKEY) {
        (void) sqlite3_reset(stmt);
        return NGX_DECLINED;
    }

    if (rc != SQLITE_DONE) {
        return ngx_modelgw_store_fault(s, stmt);
    }

    (void) sqlite3_reset(stmt);

    if ((ngx_uint_t) sqlite3_changes(s->db) != last - first) {
        return ngx_modelgw_store_fault_text(s,
                                            "failed: calls were not inserted");
    }

    for (i = first; i < last; i++) {
        if (ngx_modelgw_store_charge(s, s->rows[i].account,
                                     -s->rows[i].call->charge.cost)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (ngx_modelgw_store_price_of(s, s->rows[i].call) != NGX_OK) {
            return NGX_ERROR;
        }

        ngx_modelgw_store_hours_note(s, &s->rows[i]);
    }

    if (s->journal
        && ngx_modelgw_store_calls_outbox(s, first, last) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_modelgw_store_calls_late(s, first, last);
}


/* Gives them their positions. */

static ngx_int_t
ngx_modelgw_store_calls_outbox(ngx_modelgw_store_t *s, ngx_uint_t first,
    ngx_uint_t last)
{
    u_char        *p, *digits, buf[NGX_INT64_LEN];
    uint64_t       pos;
    ngx_uint_t     i;
    sqlite3_stmt  *stmt;

    stmt = s->stmts[NGX_MODELGW_STORE_OUTBOX];

    p = s->ids;

    for (i = first; i < last; i++) {
        *p++ = (i == first) ? '[' : ',';

        digits = ngx_modelgw_out_digits(buf + sizeof(buf),
                                        s->rows[i].id - s->rows[first].id);
        p = ngx_cpymem(p, digits, buf + sizeof(buf) - digits);
    }

    *p++ = ']';

    (void) sqlite3_bind_int64(stmt, 1, last - first);
    (void) sqlite3_bind_int64(stmt, 2, s->rows[first].id);
    (void) sqlite3_bind_text(stmt, 3, (char *) s->ids, p - s->ids,
                             SQLITE_STATIC);

    if (ngx_modelgw_store_run_row(s, NGX_MODELGW_STORE_OUTBOX,
                                  "failed: calls have no positions")
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    pos = sqlite3_last_insert_rowid(s->db);

    if (pos / NGX_MODELGW_JOURNAL_BLOCK
        != (pos - (last - first)) / NGX_MODELGW_JOURNAL_BLOCK
        && ngx_modelgw_store_run_row(s, NGX_MODELGW_STORE_LOWEST,
                                     "failed: the lowest id was not noted")
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = first; s->written && i < last; i++) {
        s->written(s->written_data, pos - (last - 1 - i), s->rows[i].call,
                   s->rows[i].account);
    }

    return NGX_OK;
}


void
ngx_modelgw_journal_written(ngx_modelgw_store_t *s,
    ngx_modelgw_journal_written_pt handler, void *data)
{
    s->written = handler;
    s->written_data = data;
}


/* Adds to "hours" those of the new calls that ended before the mark. */

static ngx_int_t
ngx_modelgw_store_calls_late(ngx_modelgw_store_t *s, ngx_uint_t first,
    ngx_uint_t last)
{
    ngx_uint_t     i;
    sqlite3_stmt  *stmt;

    stmt = s->stmts[NGX_MODELGW_STORE_LATE];

    for (i = first; i < last; i++) {

        if (s->rows[i].call->ended >= (uint64_t) s->mark) {
            continue;
        }

        (void) sqlite3_bind_int64(stmt, 1, s->rows[i].id);

        if (ngx_modelgw_store_run_row(s, NGX_MODELGW_STORE_LATE,
                                      "failed: hours were not updated")
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_store_calls_unhold(ngx_modelgw_store_t *s)
{
    ngx_uint_t     i;
    sqlite3_stmt  *stmt;

    stmt = s->stmts[NGX_MODELGW_STORE_UNHOLD];

    for (i = 0; i < s->nrows; i++) {

        if (!s->rows[i].call->noted) {
            continue;
        }

        (void) sqlite3_bind_int64(stmt, 1, s->rows[i].id);

        if (ngx_modelgw_store_run(s, NGX_MODELGW_STORE_UNHOLD, NULL)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_charge(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_name_t *account, int64_t amount)
{
    uint16_t                   *slot;
    ngx_modelgw_store_delta_t  *delta;

    if (s->cluster) {
        return ngx_modelgw_store_charge_now(s, account, amount);
    }

    slot = ngx_modelgw_store_slot(s, account);

    if (*slot) {
        delta = &s->deltas[*slot - 1];

        if (!__builtin_add_overflow(delta->amount, amount, &delta->amount)) {
            return NGX_OK;
        }

        return ngx_modelgw_store_fault_text(s, "failed: a balance overflows");
    }

    if (s->ndeltas == NGX_MODELGW_STORE_DELTAS) {

        if (ngx_modelgw_store_flush(s) != NGX_OK) {
            return NGX_ERROR;
        }

        slot = ngx_modelgw_store_slot(s, account);
    }

    delta = &s->deltas[s->ndeltas++];
    *slot = s->ndeltas;

    delta->amount = amount;
    delta->name.len = ngx_min(account->len, NGX_MODELGW_LEDGER_NAME);
    ngx_memcpy(delta->name.data, account->data, delta->name.len);

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_store_charge_now(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_name_t *account, int64_t amount)
{
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_statement(s, NGX_MODELGW_STORE_CHARGE, &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_name(&stmt, 1, account);
    ngx_modelgw_stmt_bind_int(&stmt, 2, amount);

    return ngx_modelgw_store_once(s, &stmt, 1, "failed: an account is missing");
}


int64_t
ngx_modelgw_store_charged(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_name_t *account)
{
    uint16_t  *slot;

    slot = ngx_modelgw_store_slot(s, account);

    return *slot ? s->deltas[*slot - 1].amount : 0;
}


/* returns the slot of the name, or a free one; the table is never full */

static uint16_t *
ngx_modelgw_store_slot(ngx_modelgw_store_t *s, ngx_modelgw_ledger_name_t *name)
{
    size_t                      len;
    uint32_t                    i;
    ngx_modelgw_ledger_name_t  *known;

    len = ngx_min(name->len, NGX_MODELGW_LEDGER_NAME);

    for (i = ngx_murmur_hash2(name->data, len); /* void */ ; i++) {
        i %= NGX_MODELGW_STORE_SLOTS;

        if (s->slots[i] == 0) {
            break;
        }

        known = &s->deltas[s->slots[i] - 1].name;

        if (known->len == len && ngx_memcmp(known->data, name->data, len) == 0)
        {
            break;
        }
    }

    return &s->slots[i];
}


static ngx_int_t
ngx_modelgw_store_flush(ngx_modelgw_store_t *s)
{
    ngx_uint_t     i, changes;
    sqlite3_stmt  *stmt;

    stmt = s->stmts[NGX_MODELGW_STORE_CHARGE];

    for (i = 0; i < s->ndeltas; i++) {
        ngx_modelgw_store_bind_name(stmt, 1, &s->deltas[i].name);
        (void) sqlite3_bind_int64(stmt, 2, s->deltas[i].amount);

        if (ngx_modelgw_store_run(s, NGX_MODELGW_STORE_CHARGE, &changes)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (changes == 0) {
            return ngx_modelgw_store_fault_text(s,
                                    "failed: an account of a call is missing");
        }
    }

    ngx_modelgw_store_forget(s);

    return NGX_OK;
}


static void
ngx_modelgw_store_forget(ngx_modelgw_store_t *s)
{
    if (s->ndeltas) {
        s->ndeltas = 0;
        ngx_memzero(s->slots, sizeof(s->slots));
    }
}


/* Executes a statement that returns no rows, whose parameters are bound. */

static ngx_int_t
ngx_modelgw_store_run(ngx_modelgw_store_t *s, ngx_modelgw_store_statement_e i,
    ngx_uint_t *changes)
{
    sqlite3_stmt  *stmt;

    /* BEGIN is the only statement outside of a batch */

    if (s->failed || s->batch == (i == NGX_MODELGW_STORE_BEGIN)) {
        return NGX_ERROR;
    }

    stmt = s->stmts[i];

    ngx_set_errno(0);

    if (sqlite3_step(stmt) != SQLITE_DONE) {
        return ngx_modelgw_store_fault(s, stmt);
    }

    (void) sqlite3_reset(stmt);

    if (changes) {
        *changes = sqlite3_changes(s->db);
    }

    return NGX_OK;
}


/* The same; it has to change one row. */

ngx_int_t
ngx_modelgw_store_run_row(ngx_modelgw_store_t *s,
    ngx_modelgw_store_statement_e i, const char *failed)
{
    ngx_uint_t  changes;

    if (ngx_modelgw_store_run(s, i, &changes) != NGX_OK) {
        return NGX_ERROR;
    }

    return (changes == 1) ? NGX_OK : ngx_modelgw_store_fault_text(s, failed);
}


/* One of the statements, to be bound; its text has another one of a cluster. */

static ngx_int_t
ngx_modelgw_store_statement(ngx_modelgw_store_t *s,
    ngx_modelgw_store_statement_e i, ngx_modelgw_stmt_t *stmt)
{
    if (s->cluster) {
        return ngx_modelgw_store_ready(s, ngx_modelgw_store_sql[i], stmt);
    }

    ngx_memzero(stmt, sizeof(ngx_modelgw_stmt_t));

    stmt->store = s;
    stmt->sqlite = s->stmts[i];

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_store_statement_run(ngx_modelgw_store_t *s,
    ngx_modelgw_store_statement_e i, ngx_modelgw_stmt_t *stmt,
    ngx_uint_t *changes)
{
    ngx_int_t  rc;

    if (!s->cluster) {
        return ngx_modelgw_store_run(s, i, changes);
    }

    rc = ngx_modelgw_store_query_one(s, stmt);

    *changes = ngx_modelgw_stmt_changes(stmt);

    ngx_modelgw_stmt_finalize(stmt);

    return (rc == NGX_DECLINED) ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_modelgw_store_once(ngx_modelgw_store_t *s, ngx_modelgw_stmt_t *stmt,
    ngx_uint_t changes, const char *failed)
{
    ngx_int_t  rc;

    rc = ngx_modelgw_stmt_next(stmt);

    if (rc == NGX_ERROR) {
        (void) ngx_modelgw_store_abandon(s);

    } else if (ngx_modelgw_stmt_changes(stmt) != changes) {
        rc = ngx_modelgw_store_fault_text(s, failed);

    } else {
        rc = NGX_OK;
    }

    ngx_modelgw_stmt_finalize(stmt);

    return rc;
}


ngx_int_t
ngx_modelgw_store_fault(ngx_modelgw_store_t *s, sqlite3_stmt *stmt)
{
    (void) ngx_modelgw_store_fail(s, stmt);

    return ngx_modelgw_store_abandon(s);
}


ngx_int_t
ngx_modelgw_store_fault_text(ngx_modelgw_store_t *s, const char *text)
{
    (void) ngx_modelgw_store_fail_text(s, text);

    return ngx_modelgw_store_abandon(s);
}


ngx_int_t
ngx_modelgw_store_abandon(ngx_modelgw_store_t *s)
{
    s->failed = 1;
    s->batch = 0;
    s->nrows = 0;

    ngx_modelgw_store_forget(s);

    if (s->cluster) {
        ngx_modelgw_store_cluster_rollback(s);
        return NGX_ERROR;
    }

    /* SQLite has already done so after some errors */

    if (!sqlite3_get_autocommit(s->db)) {
        (void) sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    }

    return NGX_ERROR;
}


void
ngx_modelgw_store_bind_name(sqlite3_stmt *stmt, int i,
    ngx_modelgw_ledger_name_t *name)
{
    (void) sqlite3_bind_text(stmt, i, (char *) name->data,
                             ngx_min(name->len, NGX_MODELGW_LEDGER_NAME),
                             SQLITE_STATIC);
}


static ngx_int_t
ngx_modelgw_store_calls_init(ngx_modelgw_store_t *s)
{
    if (sqlite3_create_module_v2(s->db, "modelgw_batch",
                                 &ngx_modelgw_store_batch, s, NULL)
        != SQLITE_OK)
    {
        return ngx_modelgw_store_fail(s, NULL);
    }

    return ngx_modelgw_store_exec(s, "PRAGMA temp_store = MEMORY;"
                                     "CREATE VIRTUAL TABLE temp.modelgw_batch"
                                     " USING modelgw_batch");
}


/*
 * The table "temp.modelgw_batch".  One statement at a time reads it, so it and
 * its cursor are in the store, and there is nothing to free.
 */

static int
ngx_modelgw_store_batch_connect(sqlite3 *db, void *data, int argc,
    const char *const *argv, sqlite3_vtab **table, char **error)
{
    ngx_modelgw_store_t *s = data;

    u_char      *p, *last, sql[NGX_MODELGW_STORE_BATCH_SQL];
    ngx_uint_t   i;

    ngx_memzero(&s->table, sizeof(sqlite3_vtab));

    *table = &s->table;

    p = sql;
    last = sql + sizeof(sql) - 1;

    for (i = 0; i < NGX_MODELGW_STORE_COLUMNS; i++) {
        p = ngx_slprintf(p, last, "%s\"%s\"",
                         i ? ", " : "CREATE TABLE batch (",
                         ngx_modelgw_store_columns[i].name);
    }

    /* if it does not fit, this is what is cut off: a syntax error */

    p = ngx_slprintf(p, last, ")");
    *p = '\0';

    return sqlite3_declare_vtab(db, (char *) sql);
}


static int
ngx_modelgw_store_batch_disconnect(sqlite3_vtab *table)
{
    return SQLITE_OK;
}


static int
ngx_modelgw_store_batch_plan(sqlite3_vtab *table, sqlite3_index_info *info)
{
    return SQLITE_OK;
}


static int
ngx_modelgw_store_batch_open(sqlite3_vtab *table, sqlite3_vtab_cursor **cursor)
{
    ngx_modelgw_store_t  *s;

    s = ngx_modelgw_store_of(table, table);

    *cursor = &s->cursor;

    return SQLITE_OK;
}


static int
ngx_modelgw_store_batch_close(sqlite3_vtab_cursor *cursor)
{
    return SQLITE_OK;
}


static int
ngx_modelgw_store_batch_first(sqlite3_vtab_cursor *cursor, int plan,
    const char *name, int argc, sqlite3_value **argv)
{
    ngx_modelgw_store_t  *s;

    s = ngx_modelgw_store_of(cursor, cursor);

    /* SQLite may restart a statement by itself */

    s->row = s->first;

    return SQLITE_OK;
}


static int
ngx_modelgw_store_batch_next(sqlite3_vtab_cursor *cursor)
{
    ngx_modelgw_store_of(cursor, cursor)->row++;

    return SQLITE_OK;
}


static int
ngx_modelgw_store_batch_eof(sqlite3_vtab_cursor *cursor)
{
    ngx_modelgw_store_t  *s;

    s = ngx_modelgw_store_of(cursor, cursor);

    return s->row >= s->end;
}


static int
ngx_modelgw_store_batch_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *rowid)
{
    *rowid = ngx_modelgw_store_of(cursor, cursor)->row;

    return SQLITE_OK;
}


static int
ngx_modelgw_store_batch_column(sqlite3_vtab_cursor *cursor,
    sqlite3_context *ctx, int i)
{
    u_char                            *p;
    ngx_modelgw_store_t               *s;
    ngx_modelgw_store_row_t           *row;
    const ngx_modelgw_store_column_t  *column;

    s = ngx_modelgw_store_of(cursor, cursor);
    row = &s->rows[s->row];
    column = &ngx_modelgw_store_columns[i];
    p = (u_char *) row->call + column->offset;

    switch (column->type) {

    case NGX_MODELGW_COLUMN_ID:
        sqlite3_result_int64(ctx, row->id);
        break;

    case NGX_MODELGW_COLUMN_ACCOUNT:
        ngx_modelgw_store_result_name(ctx, row->account);
        break;

    case NGX_MODELGW_COLUMN_INT64:
        sqlite3_result_int64(ctx, *(int64_t *) p);
        break;

    case NGX_MODELGW_COLUMN_UINT64:
        sqlite3_result_int64(ctx, *(uint64_t *) p);
        break;

    case NGX_MODELGW_COLUMN_UINT32:
        sqlite3_result_int64(ctx, *(uint32_t *) p);
        break;

    case NGX_MODELGW_COLUMN_NAME:
        ngx_modelgw_store_result_name(ctx, (ngx_modelgw_ledger_name_t *) p);
        break;

    case NGX_MODELGW_COLUMN_MODEL:
        sqlite3_result_text(ctx, (char *) p,
                            ngx_min(row->call->model_len,
                                    NGX_MODELGW_LEDGER_MODEL),
                            SQLITE_STATIC);
        break;

    case NGX_MODELGW_COLUMN_REQUEST:
        sqlite3_result_text(ctx, (char *) p,
                            ngx_min(row->call->request_id_len,
                                    NGX_MODELGW_LEDGER_REQUEST),
                            SQLITE_STATIC);
        break;

    case NGX_MODELGW_COLUMN_MSEC:

        if (*(uint32_t *) p != NGX_MODELGW_LEDGER_NONE) {
            sqlite3_result_int64(ctx, *(uint32_t *) p);
        }

        break;

    case NGX_MODELGW_COLUMN_OUTCOME:
        sqlite3_result_text(ctx,
                  ngx_modelgw_outcome_name(*(ngx_modelgw_outcome_e *) p), -1,
                  SQLITE_STATIC);
        break;

    case NGX_MODELGW_COLUMN_END:
        sqlite3_result_text(ctx,
                          ngx_modelgw_end_name(*(ngx_modelgw_end_e *) p), -1,
                          SQLITE_STATIC);
        break;
    }

    return SQLITE_OK;
}
