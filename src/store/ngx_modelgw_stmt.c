
/*
 * Statements of operators, by SQLite; or by PostgreSQL, in another file.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"


ngx_int_t
ngx_modelgw_stmt_prepare(ngx_modelgw_store_t *s, const char *sql,
    ngx_modelgw_stmt_t *stmt)
{
    ngx_memzero(stmt, sizeof(ngx_modelgw_stmt_t));

    stmt->store = s;

    if (s->cluster) {
        ngx_modelgw_stmt_pq_prepare(stmt, sql);
        return NGX_OK;
    }

    return ngx_modelgw_store_prepare(s, sql, &stmt->sqlite);
}


void
ngx_modelgw_stmt_bind_int(ngx_modelgw_stmt_t *stmt, ngx_uint_t i, int64_t n)
{
    if (stmt->sqlite == NULL) {
        ngx_modelgw_pq_param_int(&stmt->params[i], stmt->numbers[i], n);
        return;
    }

    (void) sqlite3_bind_int64(stmt->sqlite, i, n);
}


/* this cannot fail: nothing is copied; without data it would be NULL */

void
ngx_modelgw_stmt_bind_text(ngx_modelgw_stmt_t *stmt, ngx_uint_t i,
    u_char *data, size_t len)
{
    if (stmt->sqlite == NULL) {
        ngx_modelgw_stmt_pq_bind_text(stmt, i, data, len);
        return;
    }

    (void) sqlite3_bind_text(stmt->sqlite, i, len ? (char *) data : "", len,
                             SQLITE_STATIC);
}


void
ngx_modelgw_stmt_bind_blob(ngx_modelgw_stmt_t *stmt, ngx_uint_t i,
    u_char *data, size_t len)
{
    if (stmt->sqlite == NULL) {
        stmt->params[i].type = NGX_MODELGW_PQ_BYTEA;
        stmt->params[i].len = len;
        stmt->params[i].data = data;
        return;
    }

    (void) sqlite3_bind_blob(stmt->sqlite, i, data, len, SQLITE_STATIC);
}


void
ngx_modelgw_stmt_bind_str(ngx_modelgw_stmt_t *stmt, ngx_uint_t i,
    ngx_str_t *str)
{
    if (str->len) {
        ngx_modelgw_stmt_bind_text(stmt, i, str->data, str->len);
    }
}


void
ngx_modelgw_stmt_bind_name(ngx_modelgw_stmt_t *stmt, ngx_uint_t i,
    ngx_modelgw_ledger_name_t *name)
{
    ngx_modelgw_stmt_bind_text(stmt, i, name->data,
                               ngx_min(name->len, NGX_MODELGW_LEDGER_NAME));
}


ngx_int_t
ngx_modelgw_stmt_next(ngx_modelgw_stmt_t *stmt)
{
    if (stmt->sqlite == NULL) {
        return ngx_modelgw_stmt_pq_next(stmt);
    }

    ngx_set_errno(0);

    switch (sqlite3_step(stmt->sqlite)) {

    case SQLITE_ROW:
        return NGX_OK;

    case SQLITE_DONE:
        return NGX_DONE;
    }

    return ngx_modelgw_store_fail(stmt->store, NULL);
}


ngx_uint_t
ngx_modelgw_stmt_changes(ngx_modelgw_stmt_t *stmt)
{
    return stmt->sqlite ? (ngx_uint_t) sqlite3_changes(stmt->store->db)
                        : stmt->result ? ngx_modelgw_pq_changed(stmt->result)
                                       : 0;
}


ngx_uint_t
ngx_modelgw_stmt_null(ngx_modelgw_stmt_t *stmt, ngx_uint_t i)
{
    return stmt->sqlite ? sqlite3_column_type(stmt->sqlite, i) == SQLITE_NULL
                        : ngx_modelgw_pq_null(stmt->result, stmt->row, i);
}


int64_t
ngx_modelgw_stmt_int(ngx_modelgw_stmt_t *stmt, ngx_uint_t i)
{
    return stmt->sqlite ? sqlite3_column_int64(stmt->sqlite, i)
                        : ngx_modelgw_pq_int(stmt->result, stmt->row, i);
}


void
ngx_modelgw_stmt_text(ngx_modelgw_stmt_t *stmt, ngx_uint_t i, ngx_str_t *text)
{
    if (stmt->sqlite == NULL) {
        ngx_modelgw_pq_text(stmt->result, stmt->row, i, text);
        return;
    }

    text->data = (u_char *) sqlite3_column_text(stmt->sqlite, i);
    text->len = sqlite3_column_bytes(stmt->sqlite, i);
}


void
ngx_modelgw_stmt_blob(ngx_modelgw_stmt_t *stmt, ngx_uint_t i,
    ngx_str_t *bytes)
{
    if (stmt->sqlite == NULL) {
        ngx_modelgw_pq_text(stmt->result, stmt->row, i, bytes);
        return;
    }

    bytes->data = (u_char *) sqlite3_column_blob(stmt->sqlite, i);
    bytes->len = sqlite3_column_bytes(stmt->sqlite, i);
}


void
ngx_modelgw_stmt_finalize(ngx_modelgw_stmt_t *stmt)
{
    (void) sqlite3_finalize(stmt->sqlite);

    if (stmt->result) {
        ngx_modelgw_pq_clear(stmt->result);
    }
}
