
/*
 * What operators ask of the store row by row, as JSON.
 *
 * There is no index for it: calls are read in the order of their ids, newest
 * first, and filtered.  A million calls take about half a second, and nobody
 * waits for a reader but himself.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"


/* Writes a row. */

typedef void (*ngx_modelgw_store_row_pt)(ngx_modelgw_store_text_t *t,
    sqlite3_stmt *stmt);


static void ngx_modelgw_store_bind_str(sqlite3_stmt *stmt, int i,
    ngx_str_t *str);
static ngx_int_t ngx_modelgw_store_rows(ngx_modelgw_store_t *s,
    ngx_modelgw_store_text_t *t, sqlite3_stmt *stmt,
    ngx_modelgw_store_row_pt row, ngx_uint_t limit, const char *end,
    ngx_str_t *out);
static void ngx_modelgw_store_call_row(ngx_modelgw_store_text_t *t,
    sqlite3_stmt *stmt);
static void ngx_modelgw_store_topup_row(ngx_modelgw_store_text_t *t,
    sqlite3_stmt *stmt);


static const char  ngx_modelgw_store_calls_sql[] =
    "SELECT id, time, key, account, model, outcome, \"end\", status, cost,"
    " input, cache_read, cache_write, cache_write_1h, output, reasoning"
    " FROM calls" NGX_MODELGW_STORE_WHERE " AND ended >= ?4 AND ended < ?5"
    " ORDER BY id DESC LIMIT ?6";


static const char  ngx_modelgw_store_topups_sql[] =
    "SELECT id, time, amount FROM topups WHERE account = ?1"
    " ORDER BY time DESC, id LIMIT ?2";


ngx_int_t
ngx_modelgw_store_calls(ngx_modelgw_store_t *s,
    ngx_modelgw_store_filter_t *filter, ngx_str_t *out, ngx_pool_t *pool)
{
    sqlite3_stmt              *stmt;
    ngx_modelgw_store_text_t   t;

    if (ngx_modelgw_store_query(s, ngx_modelgw_store_calls_sql, filter, &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* one more tells whether there are more */

    (void) sqlite3_bind_int64(stmt, 6, (int64_t) filter->limit + 1);

    ngx_modelgw_store_text(&t, pool);
    ngx_modelgw_store_put(&t, "{\"calls\":[");

    return ngx_modelgw_store_rows(s, &t, stmt, ngx_modelgw_store_call_row,
                                  filter->limit, "]}", out);
}


ngx_int_t
ngx_modelgw_store_topups(ngx_modelgw_store_t *s, ngx_str_t *account,
    ngx_uint_t limit, ngx_str_t *out, ngx_pool_t *pool)
{
    sqlite3_stmt              *stmt;
    ngx_modelgw_store_text_t   t;

    if (ngx_modelgw_store_prepare(s, ngx_modelgw_store_topups_sql, &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_store_bind_str(stmt, 1, account);
    (void) sqlite3_bind_int64(stmt, 2, limit);

    ngx_modelgw_store_text(&t, pool);
    ngx_modelgw_store_put(&t, "[");

    return ngx_modelgw_store_rows(s, &t, stmt, ngx_modelgw_store_topup_row,
                                  limit, "]", out);
}


ngx_int_t
ngx_modelgw_store_query(ngx_modelgw_store_t *s, const char *sql,
    ngx_modelgw_store_filter_t *filter, sqlite3_stmt **stmt)
{
    int64_t  from, to;

    if (ngx_modelgw_store_prepare(s, sql, stmt) != NGX_OK) {
        return NGX_ERROR;
    }

    /* a parameter that is not bound is NULL */

    if (filter->account.len) {
        ngx_modelgw_store_bind_str(*stmt, 1, &filter->account);
    }

    if (filter->key.len) {
        ngx_modelgw_store_bind_str(*stmt, 2, &filter->key);
    }

    if (filter->model.len) {
        ngx_modelgw_store_bind_str(*stmt, 3, &filter->model);
    }

    from = ngx_min(filter->from, (uint64_t) INT64_MAX);
    to = ngx_min(filter->to, (uint64_t) INT64_MAX);

    (void) sqlite3_bind_int64(*stmt, 4, from);
    (void) sqlite3_bind_int64(*stmt, 5, to ? to : INT64_MAX);

    return NGX_OK;
}


static void
ngx_modelgw_store_bind_str(sqlite3_stmt *stmt, int i, ngx_str_t *str)
{
    (void) sqlite3_bind_text(stmt, i, (char *) str->data, str->len,
                             SQLITE_STATIC);
}


void
ngx_modelgw_store_column(sqlite3_stmt *stmt, int i, ngx_str_t *str)
{
    str->data = (u_char *) sqlite3_column_text(stmt, i);
    str->len = sqlite3_column_bytes(stmt, i);
}


/*
 * Writes the rows, at most limit of them, with commas in between, and finalizes
 * the statement.
 */

static ngx_int_t
ngx_modelgw_store_rows(ngx_modelgw_store_t *s, ngx_modelgw_store_text_t *t,
    sqlite3_stmt *stmt, ngx_modelgw_store_row_pt row, ngx_uint_t limit,
    const char *end, ngx_str_t *out)
{
    int         rc;
    ngx_uint_t  n;

    for (n = 0; (rc = sqlite3_step(stmt)) == SQLITE_ROW && n < limit; n++) {

        if (n) {
            ngx_modelgw_store_put(t, ",");
        }

        row(t, stmt);
    }

    if (rc == SQLITE_ROW) {
        end = NGX_MODELGW_STORE_MORE;
        rc = SQLITE_DONE;
    }

    if (rc != SQLITE_DONE) {
        (void) ngx_modelgw_store_fail(s, NULL);
    }

    (void) sqlite3_finalize(stmt);

    if (rc != SQLITE_DONE) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_store_put_done(t, end, out) != NGX_OK) {
        return ngx_modelgw_store_fail_text(s, "failed: no memory");
    }

    return NGX_OK;
}


static void
ngx_modelgw_store_call_row(ngx_modelgw_store_text_t *t, sqlite3_stmt *stmt)
{
    int         i;
    int64_t     tokens[NGX_MODELGW_STORE_TOKENS];
    ngx_str_t   str[5];

    for (i = 0; i < 5; i++) {
        ngx_modelgw_store_column(stmt, i + 2, &str[i]);
    }

    for (i = 0; i < NGX_MODELGW_STORE_TOKENS; i++) {
        tokens[i] = sqlite3_column_int64(stmt, i + 9);
    }

    ngx_modelgw_store_put_number(t, "{\"id\":", sqlite3_column_int64(stmt, 0));
    ngx_modelgw_store_put_time(t, ",\"time\":", sqlite3_column_int64(stmt, 1));
    ngx_modelgw_store_put_string(t, ",\"key\":", &str[0]);
    ngx_modelgw_store_put_string(t, ",\"account\":", &str[1]);
    ngx_modelgw_store_put_string(t, ",\"model\":", &str[2]);
    ngx_modelgw_store_put_tokens(t, tokens);
    ngx_modelgw_store_put_amount(t, ",\"cost\":",
                                 sqlite3_column_int64(stmt, 8));
    ngx_modelgw_store_put_string(t, ",\"outcome\":", &str[3]);
    ngx_modelgw_store_put_string(t, ",\"end\":", &str[4]);
    ngx_modelgw_store_put_number(t, ",\"status\":",
                                 sqlite3_column_int64(stmt, 7));
    ngx_modelgw_store_put(t, "}");
}


static void
ngx_modelgw_store_topup_row(ngx_modelgw_store_text_t *t, sqlite3_stmt *stmt)
{
    ngx_str_t  id;

    ngx_modelgw_store_column(stmt, 0, &id);

    ngx_modelgw_store_put_string(t, "{\"id\":", &id);
    ngx_modelgw_store_put_time(t, ",\"time\":", sqlite3_column_int64(stmt, 1));
    ngx_modelgw_store_put_amount(t, ",\"amount\":",
                                 sqlite3_column_int64(stmt, 2));
    ngx_modelgw_store_put(t, "}");
}
