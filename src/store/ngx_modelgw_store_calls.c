
/*
 * The calls of a batch: gathered, then inserted by one statement, which reads
 * them as rows of a table that is in no file, "temp.modelgw_batch": by its full
 * name, as the file may have a table of that name.  A statement a call costs a
 * third more.
 *
 * They are sorted by id, so that nearly all of them are appended to "calls",
 * which is cheaper than to insert them in between.
 *
 * A call that is there already makes the statement fail, and leaves nothing of
 * it.  That is so behind a crash: they are inserted one by one then, and what
 * is there is not charged.  A trigger that somebody has put into the file may
 * leave out rows in silence: so they are counted.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"


#define ngx_modelgw_store_result_text(ctx, data, len, max)                    \
    sqlite3_result_text(ctx, (char *) (data), ngx_min(len, max), SQLITE_STATIC)

#define ngx_modelgw_store_of(base, member)                                    \
    ((ngx_modelgw_store_t *)                                                  \
        ((u_char *) base - offsetof(ngx_modelgw_store_t, member)))


static ngx_int_t ngx_modelgw_store_calls_each(ngx_modelgw_store_t *s);
static ngx_int_t ngx_modelgw_store_calls_insert(ngx_modelgw_store_t *s,
    ngx_uint_t first, ngx_uint_t last);
static ngx_int_t ngx_modelgw_store_calls_unhold(ngx_modelgw_store_t *s);
static int ngx_modelgw_store_batch_connect(sqlite3 *db, void *data, int argc,
    const char *const *argv, sqlite3_vtab **table, char **error);
static int ngx_modelgw_store_batch_plan(sqlite3_vtab *table,
    sqlite3_index_info *info);
static int ngx_modelgw_store_batch_disconnect(sqlite3_vtab *table);
static int ngx_modelgw_store_batch_open(sqlite3_vtab *table,
    sqlite3_vtab_cursor **cursor);
static int ngx_modelgw_store_batch_close(sqlite3_vtab_cursor *cursor);
static int ngx_modelgw_store_batch_first(sqlite3_vtab_cursor *cursor, int plan,
    const char *name, int argc, sqlite3_value **argv);
static int ngx_modelgw_store_batch_next(sqlite3_vtab_cursor *cursor);
static int ngx_modelgw_store_batch_eof(sqlite3_vtab_cursor *cursor);
static int ngx_modelgw_store_batch_column(sqlite3_vtab_cursor *cursor,
    sqlite3_context *ctx, int i);
static int ngx_modelgw_store_batch_rowid(sqlite3_vtab_cursor *cursor,
    sqlite3_int64 *rowid);


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


ngx_int_t
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
 * Some of the calls, and what they cost.
 *     NGX_OK, NGX_ERROR
 *     NGX_DECLINED  one of them is there already: nothing was done
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
        (void) ngx_modelgw_store_fail_text(s, "failed: it leaves out calls");
        return ngx_modelgw_store_abandon(s);
    }

    for (i = first; i < last; i++) {
        if (ngx_modelgw_store_charge(s, s->rows[i].account,
                                     -s->rows[i].call->charge.cost)
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


/*
 * The table "temp.modelgw_batch".  One statement at a time reads it, so it and
 * its cursor lie in the store, and there is nothing to free.
 */

static int
ngx_modelgw_store_batch_connect(sqlite3 *db, void *data, int argc,
    const char *const *argv, sqlite3_vtab **table, char **error)
{
    ngx_modelgw_store_t  *s = data;

    ngx_memzero(&s->table, sizeof(sqlite3_vtab));

    *table = &s->table;

    return sqlite3_declare_vtab(db, "CREATE TABLE batch (id, time, ended, key,"
                                    " account, model, input, cache_read,"
                                    " cache_write, cache_write_1h, output,"
                                    " reasoning, cost, outcome, \"end\","
                                    " status)");
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

    /* SQLite may begin a statement anew by itself */

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
    const char               *text;
    ngx_modelgw_call_t       *call;
    ngx_modelgw_store_t      *s;
    ngx_modelgw_store_row_t  *row;

    s = ngx_modelgw_store_of(cursor, cursor);
    row = &s->rows[s->row];
    call = row->call;

    switch (i) {

    case 0:
        sqlite3_result_int64(ctx, row->id);
        break;

    case 1:
        sqlite3_result_int64(ctx, call->started);
        break;

    case 2:
        sqlite3_result_int64(ctx, call->ended);
        break;

    case 3:
        ngx_modelgw_store_result_text(ctx, call->key_name.data,
                                      call->key_name.len,
                                      NGX_MODELGW_LEDGER_NAME);
        break;

    case 4:
        ngx_modelgw_store_result_text(ctx, row->account->data,
                                      row->account->len,
                                      NGX_MODELGW_LEDGER_NAME);
        break;

    case 5:
        ngx_modelgw_store_result_text(ctx, call->model, call->model_len,
                                      NGX_MODELGW_LEDGER_MODEL);
        break;

    case 6:
        sqlite3_result_int64(ctx, call->charge.tokens.input);
        break;

    case 7:
        sqlite3_result_int64(ctx, call->charge.tokens.cache_read);
        break;

    case 8:
        sqlite3_result_int64(ctx, call->charge.tokens.cache_write);
        break;

    case 9:
        sqlite3_result_int64(ctx, call->charge.tokens.cache_write_1h);
        break;

    case 10:
        sqlite3_result_int64(ctx, call->charge.tokens.output);
        break;

    case 11:
        sqlite3_result_int64(ctx, call->charge.tokens.reasoning);
        break;

    case 12:
        sqlite3_result_int64(ctx, call->charge.cost);
        break;

    case 13:
        text = ngx_modelgw_outcome_name(call->charge.outcome);
        sqlite3_result_text(ctx, text, -1, SQLITE_STATIC);
        break;

    case 14:
        text = ngx_modelgw_store_end_name(call->end);
        sqlite3_result_text(ctx, text, -1, SQLITE_STATIC);
        break;

    case 15:
        sqlite3_result_int64(ctx, call->seen.status);
        break;
    }

    return SQLITE_OK;
}
