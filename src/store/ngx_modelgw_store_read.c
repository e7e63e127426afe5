
/*
 * Queries of operators, row by row: calls, as JSON or CSV, and top-ups.
 *
 * Calls are read by the index of when they ended, newest first, and filtered.
 * A million calls take about half a second, and nothing else waits for a
 * reader.  The next page begins after the last call of this one, wherever calls
 * were added meanwhile.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"


static ngx_int_t ngx_modelgw_store_calls_query(ngx_modelgw_store_t *s,
    ngx_modelgw_store_filter_t *filter, ngx_modelgw_stmt_t *stmt);
static void ngx_modelgw_store_call_row(ngx_modelgw_out_t *out,
    ngx_modelgw_stmt_t *stmt);
static void ngx_modelgw_store_call_line(ngx_modelgw_out_t *out,
    ngx_modelgw_stmt_t *stmt);
static void ngx_modelgw_store_field(ngx_modelgw_out_t *out,
    ngx_modelgw_stmt_t *stmt, int i, ngx_modelgw_store_field_e type);
static void ngx_modelgw_store_price_row(ngx_modelgw_out_t *out,
    ngx_modelgw_stmt_t *stmt);
static void ngx_modelgw_store_topup_row(ngx_modelgw_out_t *out,
    ngx_modelgw_stmt_t *stmt);


#define NGX_MODELGW_STORE_CALL                                                \
    "SELECT calls.id, time, key, account, calls.model, calls.input,"          \
    " calls.cache_read, calls.cache_write, calls.cache_write_1h,"             \
    " calls.output, reasoning, cost, outcome, \"end\", status, ended,"        \
    " ended - time, first_byte, request_id, flags & 1, flags & 2"

/* the columns of these statements that are also read otherwise */

#define NGX_MODELGW_STORE_CALL_ID     0
#define NGX_MODELGW_STORE_CALL_ENDED  15


static ngx_modelgw_store_field_t  ngx_modelgw_store_fields[] = {
    { ngx_string("id"), NGX_MODELGW_FIELD_NUMBER },
    { ngx_string("time"), NGX_MODELGW_FIELD_TIME },
    { ngx_string("key"), NGX_MODELGW_FIELD_STRING },
    { ngx_string("account"), NGX_MODELGW_FIELD_STRING },
    { ngx_string("model"), NGX_MODELGW_FIELD_STRING },
    { ngx_string("input_tokens"), NGX_MODELGW_FIELD_NUMBER },
    { ngx_string("cache_read_tokens"), NGX_MODELGW_FIELD_NUMBER },
    { ngx_string("cache_write_tokens"), NGX_MODELGW_FIELD_NUMBER },
    { ngx_string("cache_write_1h_tokens"), NGX_MODELGW_FIELD_NUMBER },
    { ngx_string("output_tokens"), NGX_MODELGW_FIELD_NUMBER },
    { ngx_string("reasoning_tokens"), NGX_MODELGW_FIELD_NUMBER },
    { ngx_string("cost"), NGX_MODELGW_FIELD_AMOUNT },
    { ngx_string("outcome"), NGX_MODELGW_FIELD_STRING },
    { ngx_string("end"), NGX_MODELGW_FIELD_STRING },
    { ngx_string("status"), NGX_MODELGW_FIELD_NUMBER },
    { ngx_string("ended"), NGX_MODELGW_FIELD_TIME },
    { ngx_string("duration_ms"), NGX_MODELGW_FIELD_NUMBER },
    { ngx_string("first_byte_ms"), NGX_MODELGW_FIELD_NUMBER },
    { ngx_string("request_id"), NGX_MODELGW_FIELD_STRING },
    { ngx_string("stream"), NGX_MODELGW_FIELD_BOOL },
    { ngx_string("translated"), NGX_MODELGW_FIELD_BOOL }
};

#define NGX_MODELGW_STORE_FIELDS                                              \
    (sizeof(ngx_modelgw_store_fields) / sizeof(ngx_modelgw_store_field_t))


static const char  ngx_modelgw_store_calls_sql[] =
    NGX_MODELGW_STORE_CALL " FROM calls" NGX_MODELGW_STORE_WHERE
    " AND ended >= ?4 AND ended < ?5"
    " AND (?6 IS NULL OR outcome = ?6) AND (?7 IS NULL OR \"end\" = ?7)"
    " AND (?8 < 0 OR status = ?8) AND (?9 IS NULL OR request_id = ?9)"
    " AND cost >= ?10 AND (ended < ?11 OR (ended = ?11 AND id < ?12))"
    " AND ended <= ?11 ORDER BY ended DESC, id DESC LIMIT ?13";


/* the columns of the price come after those of the call */

static const char  ngx_modelgw_store_call_sql[] =
    NGX_MODELGW_STORE_CALL ", \"group\", prices.model, \"from\", prices.input,"
    " prices.output, prices.cache_read, prices.cache_write,"
    " prices.cache_write_1h"
    " FROM calls LEFT JOIN prices ON prices.id = calls.price"
    " WHERE calls.id = ?1 AND (?2 IS NULL OR account = ?2)";


static const char  ngx_modelgw_store_topups_sql[] =
    "SELECT id, time, amount FROM topups WHERE account = ?1"
    " ORDER BY time DESC, id COLLATE BINARY LIMIT ?2";


ngx_int_t
ngx_modelgw_store_calls(ngx_modelgw_store_t *s,
    ngx_modelgw_store_filter_t *filter, ngx_str_t *out, ngx_pool_t *pool)
{
    u_char                    *p, end[64];
    ngx_int_t                  rc;
    ngx_modelgw_out_t          json;
    ngx_modelgw_stmt_t         stmt;
    ngx_modelgw_out_piece_t    piece;
    ngx_modelgw_store_rows_t   rows;

    if (ngx_modelgw_store_calls_query(s, filter, &stmt) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_modelgw_out_piece(&json, &piece, pool, NGX_MODELGW_STORE_ANSWER);
    ngx_modelgw_out_text(&json, "{\"calls\":[");

    rows.limit = filter->limit;
    rows.separator = ",";
    rows.columns[0] = NGX_MODELGW_STORE_CALL_ENDED;
    rows.columns[1] = NGX_MODELGW_STORE_CALL_ID;

    rc = ngx_modelgw_store_rows(s, &json, &stmt, ngx_modelgw_store_call_row,
                                &rows);
    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(end, "]", 1);

    if (rc == NGX_AGAIN) {
        p = ngx_sprintf(p, ",\"more\":true,\"next\":\"%xL-%xL\"",
                        rows.last[0], rows.last[1]);
    }

    *p++ = '}';
    *p = '\0';

    return ngx_modelgw_store_finish(s, &json, (char *) end, out);
}


ngx_int_t
ngx_modelgw_store_calls_csv(ngx_modelgw_store_t *s,
    ngx_modelgw_store_filter_t *filter, ngx_str_t *out, ngx_pool_t *pool)
{
    ngx_int_t                  rc;
    ngx_str_t                 *name;
    ngx_uint_t                 i;
    ngx_modelgw_out_t          csv;
    ngx_modelgw_stmt_t         stmt;
    ngx_modelgw_out_piece_t    piece;
    ngx_modelgw_store_rows_t   rows;

    if (ngx_modelgw_store_calls_query(s, filter, &stmt) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_modelgw_out_piece(&csv, &piece, pool, NGX_MODELGW_STORE_ANSWER);

    for (i = 0; filter->after.id == 0 && i < NGX_MODELGW_STORE_FIELDS; i++) {

        if (i) {
            ngx_modelgw_out_text(&csv, ",");
        }

        name = &ngx_modelgw_store_fields[i].name;
        ngx_modelgw_out(&csv, name->data, name->len);
    }

    if (i) {
        ngx_modelgw_out_text(&csv, "\r\n");
    }

    rows.limit = filter->limit;
    rows.separator = "";
    rows.columns[0] = NGX_MODELGW_STORE_CALL_ENDED;
    rows.columns[1] = NGX_MODELGW_STORE_CALL_ID;

    rc = ngx_modelgw_store_rows(s, &csv, &stmt, ngx_modelgw_store_call_line,
                                &rows);

    if (rc == NGX_ERROR
        || ngx_modelgw_store_finish(s, &csv, "", out) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (rc == NGX_AGAIN) {
        filter->after.ended = rows.last[0];
        filter->after.id = rows.last[1];
    }

    return rc;
}


/* one row more than the limit shows that there are more */

static ngx_int_t
ngx_modelgw_store_calls_query(ngx_modelgw_store_t *s,
    ngx_modelgw_store_filter_t *filter, ngx_modelgw_stmt_t *stmt)
{
    uint64_t   ended, id;
    ngx_str_t  request_id;

    if (ngx_modelgw_store_query(s, ngx_modelgw_store_calls_sql, filter, stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    request_id = filter->request_id;
    request_id.len = ngx_min(request_id.len, NGX_MODELGW_LEDGER_REQUEST);

    ngx_modelgw_stmt_bind_str(stmt, 6, &filter->outcome);
    ngx_modelgw_stmt_bind_str(stmt, 7, &filter->end);
    ngx_modelgw_stmt_bind_int(stmt, 8, ngx_atoi(filter->status.data,
                                                filter->status.len));
    ngx_modelgw_stmt_bind_str(stmt, 9, &request_id);
    ngx_modelgw_stmt_bind_int(stmt, 10, filter->min_cost);

    ended = filter->after.id ? filter->after.ended : INT64_MAX;
    id = filter->after.id ? filter->after.id : INT64_MAX;

    ngx_modelgw_stmt_bind_int(stmt, 11, ended);
    ngx_modelgw_stmt_bind_int(stmt, 12, id);
    ngx_modelgw_stmt_bind_int(stmt, 13, (int64_t) filter->limit + 1);

    return NGX_OK;
}


/* as it was written: "HEX-HEX", each at most INT64_MAX */

ngx_int_t
ngx_modelgw_store_place(ngx_str_t *text, ngx_modelgw_store_place_t *place)
{
    u_char    *p, *last;
    ngx_int_t  ended, id;

    last = text->data + text->len;

    p = ngx_strlchr(text->data, last, '-');
    if (p == NULL) {
        return NGX_DECLINED;
    }

    ended = ngx_hextoi(text->data, p - text->data);
    id = ngx_hextoi(p + 1, last - (p + 1));

    if (ended == NGX_ERROR || id == NGX_ERROR || id == 0) {
        return NGX_DECLINED;
    }

    place->ended = ended;
    place->id = id;

    return NGX_OK;
}


static void
ngx_modelgw_store_call_row(ngx_modelgw_out_t *out, ngx_modelgw_stmt_t *stmt)
{
    ngx_modelgw_store_object(out, stmt, ngx_modelgw_store_fields,
                             NGX_MODELGW_STORE_FIELDS);
}


void
ngx_modelgw_store_object(ngx_modelgw_out_t *out, ngx_modelgw_stmt_t *stmt,
    ngx_modelgw_store_field_t *field, ngx_uint_t n)
{
    ngx_str_t   text;
    ngx_uint_t  i;

    for (i = 0; i < n; i++, field++) {

        if (i) {
            ngx_modelgw_out_text(out, ",\"");

        } else {
            ngx_modelgw_out_text(out, "{\"");
        }

        ngx_modelgw_out(out, field->name.data, field->name.len);
        ngx_modelgw_out_text(out, "\":");

        if (ngx_modelgw_stmt_null(stmt, i)) {
            ngx_modelgw_out_text(out, "null");

        } else if (field->type == NGX_MODELGW_FIELD_STRING) {
            ngx_modelgw_stmt_text(stmt, i, &text);
            ngx_modelgw_out_string(out, &text);

        } else {
            ngx_modelgw_store_field(out, stmt, i, field->type);
        }
    }

    ngx_modelgw_out_text(out, "}");
}


/* of CSV: NULL is an empty cell */

static void
ngx_modelgw_store_call_line(ngx_modelgw_out_t *out, ngx_modelgw_stmt_t *stmt)
{
    ngx_str_t                   text;
    ngx_uint_t                  i;
    ngx_modelgw_store_field_t  *field;

    for (i = 0; i < NGX_MODELGW_STORE_FIELDS; i++) {
        field = &ngx_modelgw_store_fields[i];

        if (i) {
            ngx_modelgw_out_text(out, ",");
        }

        if (field->type == NGX_MODELGW_FIELD_STRING) {
            ngx_modelgw_stmt_text(stmt, i, &text);
            ngx_modelgw_store_cell(out, &text);

        } else if (!ngx_modelgw_stmt_null(stmt, i)) {
            ngx_modelgw_store_field(out, stmt, i, field->type);
        }
    }

    ngx_modelgw_out_text(out, "\r\n");
}


/* those that are the same in JSON and CSV */

static void
ngx_modelgw_store_field(ngx_modelgw_out_t *out, ngx_modelgw_stmt_t *stmt, int i,
    ngx_modelgw_store_field_e type)
{
    int64_t  n;

    n = ngx_modelgw_stmt_int(stmt, i);

    switch (type) {

    case NGX_MODELGW_FIELD_TIME:
        ngx_modelgw_out_time(out, n);
        break;

    case NGX_MODELGW_FIELD_AMOUNT:
        ngx_modelgw_amount_out(out, n);
        break;

    case NGX_MODELGW_FIELD_BOOL:

        if (n) {
            ngx_modelgw_out_text(out, "true");

        } else {
            ngx_modelgw_out_text(out, "false");
        }

        break;

    default: /* NGX_MODELGW_FIELD_NUMBER */
        ngx_modelgw_out_number(out, n);
    }
}


/* a model's id is the client's, a request id the upstream's */

void
ngx_modelgw_store_cell(ngx_modelgw_out_t *out, ngx_str_t *text)
{
    size_t  i, from;

    ngx_modelgw_out_text(out, "\"");

    if (text->len && ngx_strlchr((u_char *) "=+-@\t\r",
                                 (u_char *) "=+-@\t\r" + 6, text->data[0]))
    {
        ngx_modelgw_out_text(out, "'");
    }

    from = 0;

    for (i = 0; i < text->len; i++) {

        if (text->data[i] == '"') {
            ngx_modelgw_out(out, text->data + from, i + 1 - from);
            from = i;
        }
    }

    ngx_modelgw_out(out, text->data + from, i - from);
    ngx_modelgw_out_text(out, "\"");
}


ngx_int_t
ngx_modelgw_store_call_get(ngx_modelgw_store_t *s, uint64_t id,
    ngx_str_t *account, ngx_str_t *out, ngx_pool_t *pool)
{
    ngx_int_t                rc;
    ngx_modelgw_out_t        json;
    ngx_modelgw_stmt_t       stmt;
    ngx_modelgw_out_piece_t  piece;

    if (ngx_modelgw_stmt_prepare(s, ngx_modelgw_store_call_sql, &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_int(&stmt, 1, id);
    ngx_modelgw_stmt_bind_str(&stmt, 2, account);

    ngx_modelgw_out_piece(&json, &piece, pool, NGX_MODELGW_STORE_ANSWER);

    rc = ngx_modelgw_stmt_next(&stmt);

    if (rc == NGX_OK) {
        ngx_modelgw_out_text(&json, "{\"call\":");
        ngx_modelgw_store_call_row(&json, &stmt);
        ngx_modelgw_out_text(&json, ",\"price\":");
        ngx_modelgw_store_price_row(&json, &stmt);
    }

    ngx_modelgw_stmt_finalize(&stmt);

    if (rc != NGX_OK) {
        return (rc == NGX_DONE) ? NGX_DECLINED : NGX_ERROR;
    }

    return ngx_modelgw_store_finish(s, &json, "}", out);
}


static void
ngx_modelgw_store_price_row(ngx_modelgw_out_t *out, ngx_modelgw_stmt_t *stmt)
{
    int                   i;
    u_char               *last, rates[NGX_MODELGW_STORE_RATES];
    ngx_str_t             text;
    ngx_modelgw_price_t   price;

    i = NGX_MODELGW_STORE_FIELDS;

    if (ngx_modelgw_stmt_null(stmt, i)) {
        ngx_modelgw_out_text(out, "null");
        return;
    }

    ngx_modelgw_stmt_text(stmt, i++, &text);
    ngx_modelgw_out_text(out, "{\"group\":");
    ngx_modelgw_out_string(out, &text);

    ngx_modelgw_stmt_text(stmt, i++, &text);
    ngx_modelgw_out_text(out, ",\"model\":");
    ngx_modelgw_out_string(out, &text);

    ngx_modelgw_out_text(out, ",\"from\":");
    ngx_modelgw_out_time(out, ngx_modelgw_stmt_int(stmt, i++));

    price.input = ngx_modelgw_stmt_int(stmt, i++);
    price.output = ngx_modelgw_stmt_int(stmt, i++);
    price.cache_read = ngx_modelgw_stmt_int(stmt, i++);
    price.cache_write = ngx_modelgw_stmt_int(stmt, i++);
    price.cache_write_1h = ngx_modelgw_stmt_int(stmt, i);

    /* an object, which goes on with the members of this one */

    last = ngx_modelgw_store_rates(rates, &price);
    rates[0] = ',';

    ngx_modelgw_out(out, rates, last - rates);
}


ngx_int_t
ngx_modelgw_store_topups(ngx_modelgw_store_t *s, ngx_str_t *account,
    ngx_uint_t limit, ngx_str_t *out, ngx_pool_t *pool)
{
    ngx_modelgw_out_t         json;
    ngx_modelgw_stmt_t        stmt;
    ngx_modelgw_out_piece_t   piece;
    ngx_modelgw_store_rows_t  rows;

    if (ngx_modelgw_stmt_prepare(s, ngx_modelgw_store_topups_sql, &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_str(&stmt, 1, account);
    ngx_modelgw_stmt_bind_int(&stmt, 2, limit);

    ngx_modelgw_out_piece(&json, &piece, pool, NGX_MODELGW_STORE_ANSWER);
    ngx_modelgw_out_text(&json, "[");

    ngx_memzero(&rows, sizeof(ngx_modelgw_store_rows_t));

    rows.limit = limit;
    rows.separator = ",";

    if (ngx_modelgw_store_rows(s, &json, &stmt, ngx_modelgw_store_topup_row,
                               &rows)
        == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    return ngx_modelgw_store_finish(s, &json, "]", out);
}


static void
ngx_modelgw_store_topup_row(ngx_modelgw_out_t *out, ngx_modelgw_stmt_t *stmt)
{
    ngx_str_t  id;

    ngx_modelgw_stmt_text(stmt, 0, &id);

    ngx_modelgw_out_text(out, "{\"id\":");
    ngx_modelgw_out_string(out, &id);
    ngx_modelgw_out_text(out, ",\"time\":");
    ngx_modelgw_out_time(out, ngx_modelgw_stmt_int(stmt, 1));
    ngx_modelgw_out_text(out, ",\"amount\":");
    ngx_modelgw_amount_out(out, ngx_modelgw_stmt_int(stmt, 2));
    ngx_modelgw_out_text(out, "}");
}


ngx_int_t
ngx_modelgw_store_rows(ngx_modelgw_store_t *s, ngx_modelgw_out_t *out,
    ngx_modelgw_stmt_t *stmt, ngx_modelgw_store_row_pt row,
    ngx_modelgw_store_rows_t *rows)
{
    ngx_int_t   rc;
    ngx_uint_t  n;

    for (n = 0;
         (rc = ngx_modelgw_stmt_next(stmt)) == NGX_OK && n < rows->limit;
         n++)
    {
        if (n) {
            ngx_modelgw_out(out, (u_char *) rows->separator,
                            ngx_strlen(rows->separator));
        }

        row(out, stmt);

        rows->last[0] = ngx_modelgw_stmt_int(stmt, rows->columns[0]);
        rows->last[1] = ngx_modelgw_stmt_int(stmt, rows->columns[1]);
    }

    ngx_modelgw_stmt_finalize(stmt);

    if (rc == NGX_OK) {
        return NGX_AGAIN;
    }

    return (rc == NGX_DONE) ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_modelgw_store_finish(ngx_modelgw_store_t *s, ngx_modelgw_out_t *out,
    const char *end, ngx_str_t *text)
{
    ngx_modelgw_out(out, (u_char *) end, ngx_strlen(end));

    if (ngx_modelgw_out_piece_done(out, text) != NGX_OK) {
        return ngx_modelgw_store_fail_text(s, "failed: no memory");
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_query(ngx_modelgw_store_t *s, const char *sql,
    ngx_modelgw_store_filter_t *filter, ngx_modelgw_stmt_t *stmt)
{
    int64_t  from, to;

    if (ngx_modelgw_stmt_prepare(s, sql, stmt) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_str(stmt, 1, &filter->account);
    ngx_modelgw_stmt_bind_str(stmt, 2, &filter->key);
    ngx_modelgw_stmt_bind_str(stmt, 3, &filter->model);

    from = ngx_min(filter->from, (uint64_t) INT64_MAX);
    to = ngx_min(filter->to, (uint64_t) INT64_MAX);

    ngx_modelgw_stmt_bind_int(stmt, 4, from);
    ngx_modelgw_stmt_bind_int(stmt, 5, to ? to : INT64_MAX);

    return NGX_OK;
}
