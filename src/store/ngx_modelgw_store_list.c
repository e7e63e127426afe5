
/*
 * What operators have made, for lists and for a start: the states of accounts,
 * and the audit log; and lists of names with numbers.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_out.h"
#include "ngx_modelgw_store_cluster.h"
#include "ngx_modelgw_store_private.h"


#define NGX_MODELGW_STORE_ACTION_NODE  7  /* column */


static ngx_int_t ngx_modelgw_store_names(ngx_modelgw_store_t *s,
    const char *sql, ngx_str_t *text, ngx_modelgw_store_name_pt handler,
    void *data);
static void ngx_modelgw_store_action_row(ngx_modelgw_out_t *out,
    ngx_modelgw_stmt_t *stmt);


ngx_int_t
ngx_modelgw_store_accounts(ngx_modelgw_store_t *s,
    ngx_modelgw_store_account_pt handler, void *data)
{
    return ngx_modelgw_store_each(s, "SELECT name, balance, opened / 1000"
                                     " FROM " NGX_MODELGW_STORE_BALANCES, 0,
                                  NULL, handler, data);
}


ngx_int_t
ngx_modelgw_store_balances(ngx_modelgw_store_t *s, ngx_str_t *names,
    ngx_modelgw_store_account_pt handler, void *data)
{
    return ngx_modelgw_store_each(s, "SELECT name, balance, held"
                                     " FROM " NGX_MODELGW_STORE_BALANCES
                                     " WHERE "
                                     ngx_modelgw_store_among("name"), 0,
                                  names, handler, data);
}


ngx_int_t
ngx_modelgw_store_budgets(ngx_modelgw_store_t *s, uint64_t time,
    ngx_modelgw_store_account_pt handler, void *data)
{
    return ngx_modelgw_store_each(s,
        "SELECT b.key, sum(l.spent + l.held), b.ends"
        " FROM budgets b JOIN leases l ON l.account = b.name"
        " WHERE b.starts <= ?1 AND b.ends > ?1"
        " GROUP BY b.key, b.starts, b.ends", time, NULL, handler, data);
}


ngx_int_t
ngx_modelgw_store_each(ngx_modelgw_store_t *s, const char *sql, int64_t first,
    ngx_str_t *names, ngx_modelgw_store_account_pt handler, void *data)
{
    ngx_int_t           rc;
    ngx_str_t           name;
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_stmt_prepare(s, sql, &stmt) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_int(&stmt, 1, first);

    if (names) {
        ngx_modelgw_stmt_bind_str(&stmt, 2, names);
    }

    while ((rc = ngx_modelgw_stmt_next(&stmt)) == NGX_OK) {

        ngx_modelgw_stmt_text(&stmt, 0, &name);

        rc = handler(data, &name, ngx_modelgw_stmt_int(&stmt, 1),
                     ngx_modelgw_stmt_int(&stmt, 2));

        if (rc != NGX_OK) {
            break;
        }
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_DONE) ? NGX_OK : rc;
}


ngx_int_t
ngx_modelgw_store_closed(ngx_modelgw_store_t *s,
    ngx_modelgw_store_name_pt handler, void *data)
{
    ngx_str_t  none;

    ngx_str_null(&none);

    return ngx_modelgw_store_names(s, "SELECT name FROM accounts"
                                      " WHERE state = 'closed'", &none,
                                   handler, data);
}


ngx_int_t
ngx_modelgw_store_noted(ngx_modelgw_store_t *s, ngx_str_t *text,
    ngx_modelgw_store_name_pt handler, void *data)
{
    return ngx_modelgw_store_names(s, "SELECT name FROM accounts"
                                      " WHERE instr(note, ?1) > 0", text,
                                   handler, data);
}


/* rows of a name; the text is bound if there is a parameter */

static ngx_int_t
ngx_modelgw_store_names(ngx_modelgw_store_t *s, const char *sql,
    ngx_str_t *text, ngx_modelgw_store_name_pt handler, void *data)
{
    ngx_int_t           rc;
    ngx_str_t           name;
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_stmt_prepare(s, sql, &stmt) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_str(&stmt, 1, text);

    while ((rc = ngx_modelgw_stmt_next(&stmt)) == NGX_OK) {

        ngx_modelgw_stmt_text(&stmt, 0, &name);

        rc = handler(data, &name);

        if (rc != NGX_OK) {
            break;
        }
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_DONE) ? NGX_OK : rc;
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
    ngx_int_t                rc;
    ngx_str_t                note;
    ngx_modelgw_out_t        json;
    ngx_modelgw_stmt_t       stmt;
    ngx_modelgw_out_piece_t  piece;

    if (ngx_modelgw_stmt_prepare(s, "SELECT note FROM accounts"
                                     " WHERE name = ?1", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_str(&stmt, 1, account);

    ngx_modelgw_out_piece(&json, &piece, pool, NGX_MODELGW_STORE_ANSWER);
    ngx_str_set(&note, "");

    rc = ngx_modelgw_stmt_next(&stmt);

    if (rc == NGX_OK) {
        ngx_modelgw_stmt_text(&stmt, 0, &note);
    }

    ngx_modelgw_out_string(&json, &note);

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_ERROR) ? NGX_ERROR
                             : ngx_modelgw_store_finish(s, &json, "", out);
}


ngx_int_t
ngx_modelgw_store_actions(ngx_modelgw_store_t *s,
    ngx_modelgw_store_actions_t *filter, ngx_str_t *out, ngx_pool_t *pool)
{
    ngx_int_t                 rc;
    ngx_modelgw_out_t         json;
    ngx_modelgw_stmt_t        stmt;
    ngx_modelgw_out_piece_t   piece;
    ngx_modelgw_store_rows_t  rows;

    if (ngx_modelgw_stmt_prepare(s,
            "SELECT id, actor, address, action, target, before, after, "
            NGX_MODELGW_STORE_ACTIONS_NODE
            " FROM actions WHERE (?1 IS NULL OR actor = ?1)"
            " AND (?2 IS NULL OR target = ?2) AND id <= ?3"
            " AND (id < ?3 OR " NGX_MODELGW_STORE_ACTIONS_NODE " < ?5)"
            " ORDER BY id DESC, " NGX_MODELGW_STORE_ACTIONS_NODE " DESC"
            " LIMIT ?4", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_str(&stmt, 1, &filter->actor);
    ngx_modelgw_stmt_bind_str(&stmt, 2, &filter->target);
    ngx_modelgw_stmt_bind_int(&stmt, 3, filter->after ? (int64_t) filter->after
                                                     : INT64_MAX);
    ngx_modelgw_stmt_bind_int(&stmt, 4, filter->limit + 1);
    ngx_modelgw_stmt_bind_int(&stmt, 5, filter->node);

    ngx_modelgw_out_piece(&json, &piece, pool, NGX_MODELGW_STORE_ANSWER);
    ngx_modelgw_out_text(&json, "{\"actions\":[");

    ngx_memzero(&rows, sizeof(ngx_modelgw_store_rows_t));

    rows.limit = filter->limit;
    rows.separator = ",";
    rows.columns[1] = NGX_MODELGW_STORE_ACTION_NODE;

    rc = ngx_modelgw_store_rows(s, &json, &stmt, ngx_modelgw_store_action_row,
                                &rows);
    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == NGX_AGAIN) {
        ngx_modelgw_out_text(&json, "],\"more\":true,\"next\":\"");
        ngx_modelgw_out_number(&json, rows.last[0]);

        if (s->cluster) {
            ngx_modelgw_out_text(&json, "-");
            ngx_modelgw_out_number(&json, rows.last[1]);
        }

        return ngx_modelgw_store_finish(s, &json, "\"}", out);
    }

    return ngx_modelgw_store_finish(s, &json, "]}", out);
}


/* what it was before and after is JSON already */

static void
ngx_modelgw_store_action_row(ngx_modelgw_out_t *out, ngx_modelgw_stmt_t *stmt)
{
    ngx_str_t   text;
    ngx_uint_t  i;

    static ngx_str_t  names[] = {
        ngx_string(",\"actor\":"), ngx_string(",\"address\":"),
        ngx_string(",\"action\":"), ngx_string(",\"target\":"),
        ngx_string(",\"before\":"), ngx_string(",\"after\":")
    };

    ngx_modelgw_out_text(out, "{\"id\":");
    ngx_modelgw_out_number(out, ngx_modelgw_stmt_int(stmt, 0));
    ngx_modelgw_out_text(out, ",\"time\":");
    ngx_modelgw_out_time(out, ngx_modelgw_stmt_int(stmt, 0));

    for (i = 0; i < 6; i++) {
        ngx_modelgw_stmt_text(stmt, i + 1, &text);
        ngx_modelgw_out(out, names[i].data, names[i].len);

        if (i < 4) {
            ngx_modelgw_out_string(out, &text);

        } else {
            ngx_modelgw_out(out, text.data, text.len);
        }
    }

    ngx_modelgw_out_text(out, "}");
}
