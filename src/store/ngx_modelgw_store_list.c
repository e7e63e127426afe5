
/*
 * What operators have made, for lists and for a start: the states of accounts,
 * and the audit log.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_out.h"
#include "ngx_modelgw_store_private.h"


#define NGX_MODELGW_STORE_LIST   4096    /* bytes allocated at first */


static void ngx_modelgw_store_action_row(ngx_modelgw_out_t *out,
    sqlite3_stmt *stmt);
static void ngx_modelgw_store_list_bind(sqlite3_stmt *stmt, int i,
    ngx_str_t *text);
static void ngx_modelgw_store_list_column(sqlite3_stmt *stmt, int i,
    ngx_str_t *text);
static ngx_int_t ngx_modelgw_store_list_done(ngx_modelgw_store_t *s,
    sqlite3_stmt *stmt, ngx_modelgw_out_t *out, ngx_str_t *text);


ngx_int_t
ngx_modelgw_store_closed(ngx_modelgw_store_t *s,
    ngx_modelgw_store_name_pt handler, void *data)
{
    int            rc;
    ngx_int_t      result;
    ngx_str_t      name;
    sqlite3_stmt  *stmt;

    if (ngx_modelgw_store_prepare(s, "SELECT name FROM accounts"
                                     " WHERE state = 'closed'", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    result = NGX_OK;

    do {
        rc = sqlite3_step(stmt);

        if (rc == SQLITE_ROW) {
            ngx_modelgw_store_list_column(stmt, 0, &name);
            result = handler(data, &name);

        } else if (rc != SQLITE_DONE) {
            result = ngx_modelgw_store_fail(s, NULL);
        }

    } while (rc == SQLITE_ROW && result == NGX_OK);

    (void) sqlite3_finalize(stmt);

    return result;
}


ngx_int_t
ngx_modelgw_store_last_change(ngx_modelgw_store_t *s, uint64_t *time)
{
    int64_t  last;

    if (ngx_modelgw_store_number(s, "SELECT coalesce(max(id), 0) FROM actions",
                                 &last)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    *time = last;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_note(ngx_modelgw_store_t *s, ngx_str_t *account,
    ngx_str_t *out, ngx_pool_t *pool)
{
    int                       rc;
    ngx_str_t                 note;
    sqlite3_stmt             *stmt;
    ngx_modelgw_out_t         json;
    ngx_modelgw_out_piece_t   piece;

    if (ngx_modelgw_store_prepare(s, "SELECT note FROM accounts"
                                     " WHERE name = ?1", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_store_list_bind(stmt, 1, account);

    ngx_modelgw_out_piece(&json, &piece, pool, NGX_MODELGW_STORE_LIST);
    ngx_str_set(&note, "");

    rc = sqlite3_step(stmt);

    if (rc == SQLITE_ROW) {
        ngx_modelgw_store_list_column(stmt, 0, &note);

    } else if (rc != SQLITE_DONE) {
        json.failed = 1;
    }

    ngx_modelgw_out_string(&json, &note);

    return ngx_modelgw_store_list_done(s, stmt, &json, out);
}


ngx_int_t
ngx_modelgw_store_actions(ngx_modelgw_store_t *s,
    ngx_modelgw_store_actions_t *filter, ngx_str_t *out, ngx_pool_t *pool)
{
    int                       rc;
    u_char                   *p, next[NGX_INT64_LEN];
    uint64_t                  last;
    ngx_uint_t                n;
    sqlite3_stmt             *stmt;
    ngx_modelgw_out_t         json;
    ngx_modelgw_out_piece_t   piece;

    if (ngx_modelgw_store_prepare(s,
            "SELECT id, actor, address, action, target, before, after"
            " FROM actions WHERE (?1 = '' OR actor = ?1)"
            " AND (?2 = '' OR target = ?2) AND id < ?3"
            " ORDER BY id DESC LIMIT ?4", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_store_list_bind(stmt, 1, &filter->actor);
    ngx_modelgw_store_list_bind(stmt, 2, &filter->target);
    (void) sqlite3_bind_int64(stmt, 3, filter->after ? (int64_t) filter->after
                                                     : INT64_MAX);
    (void) sqlite3_bind_int64(stmt, 4, filter->limit + 1);

    ngx_modelgw_out_piece(&json, &piece, pool, NGX_MODELGW_STORE_LIST);
    ngx_modelgw_out_text(&json, "{\"actions\":[");

    last = 0;

    for (n = 0; (rc = sqlite3_step(stmt)) == SQLITE_ROW; n++) {

        if (n == filter->limit) {
            p = ngx_sprintf(next, "%uL", last);

            ngx_modelgw_out_text(&json, "],\"more\":true,\"next\":\"");
            ngx_modelgw_out(&json, next, p - next);
            ngx_modelgw_out_text(&json, "\"}");

            return ngx_modelgw_store_list_done(s, stmt, &json, out);
        }

        if (n) {
            ngx_modelgw_out_text(&json, ",");
        }

        last = sqlite3_column_int64(stmt, 0);

        ngx_modelgw_store_action_row(&json, stmt);
    }

    if (rc != SQLITE_DONE) {
        json.failed = 1;
    }

    ngx_modelgw_out_text(&json, "]}");

    return ngx_modelgw_store_list_done(s, stmt, &json, out);
}


/* what it was before and after is JSON already */

static void
ngx_modelgw_store_action_row(ngx_modelgw_out_t *out, sqlite3_stmt *stmt)
{
    ngx_str_t   text;
    ngx_uint_t  i;

    static ngx_str_t  names[] = {
        ngx_string(",\"actor\":"), ngx_string(",\"address\":"),
        ngx_string(",\"action\":"), ngx_string(",\"target\":"),
        ngx_string(",\"before\":"), ngx_string(",\"after\":")
    };

    ngx_modelgw_out_text(out, "{\"id\":");
    ngx_modelgw_out_number(out, sqlite3_column_int64(stmt, 0));
    ngx_modelgw_out_text(out, ",\"time\":");
    ngx_modelgw_out_time(out, sqlite3_column_int64(stmt, 0));

    for (i = 0; i < 6; i++) {
        ngx_modelgw_store_list_column(stmt, i + 1, &text);
        ngx_modelgw_out(out, names[i].data, names[i].len);

        if (i < 4) {
            ngx_modelgw_out_string(out, &text);

        } else {
            ngx_modelgw_out(out, text.data, text.len);
        }
    }

    ngx_modelgw_out_text(out, "}");
}


static void
ngx_modelgw_store_list_bind(sqlite3_stmt *stmt, int i, ngx_str_t *text)
{
    (void) sqlite3_bind_text(stmt, i, text->len ? (char *) text->data : "",
                             text->len, SQLITE_STATIC);
}


static void
ngx_modelgw_store_list_column(sqlite3_stmt *stmt, int i, ngx_str_t *text)
{
    text->data = (u_char *) sqlite3_column_text(stmt, i);
    text->len = text->data ? sqlite3_column_bytes(stmt, i) : 0;
}


/* Finalizes the statement; *text is what was written. */

static ngx_int_t
ngx_modelgw_store_list_done(ngx_modelgw_store_t *s, sqlite3_stmt *stmt,
    ngx_modelgw_out_t *out, ngx_str_t *text)
{
    if (out->failed || ngx_modelgw_out_piece_done(out, text) != NGX_OK) {
        (void) ngx_modelgw_store_fail(s, NULL);
        (void) sqlite3_finalize(stmt);

        return NGX_ERROR;
    }

    (void) sqlite3_finalize(stmt);

    return NGX_OK;
}
