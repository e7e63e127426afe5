
/*
 * Queries of operators, as JSON: calls and top-ups row by row, usage in sums.
 *
 * There is no index for them: calls are read in the order of their ids, newest
 * first, and filtered.  A million calls take about half a second, and nothing
 * else waits for a reader.
 *
 * Usage is summed up here and not by GROUP BY, for which SQLite sorts all rows:
 * for a month of calls that takes several times as long, and memory or
 * temporary files for every row.  This takes some 150 bytes per group.
 *
 * Usage counts a call at the time when it ended and was charged, as do the days
 * that calls are rolled up to; a day counts at its first millisecond.  So the
 * usage of two adjacent spans is that of both together, whatever was rolled up.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_out.h"
#include "ngx_modelgw_store_private.h"


#define NGX_MODELGW_STORE_ANSWER  4096   /* bytes allocated at first */

#define NGX_MODELGW_STORE_TOKENS  6      /* members of ngx_modelgw_tokens_t */
#define NGX_MODELGW_STORE_SUMS    (2 + NGX_MODELGW_STORE_TOKENS)

#define NGX_MODELGW_STORE_TIME  "CAST(strftime('%s', day) AS INTEGER)"

/* the end of an answer with more rows than its limit */

#define NGX_MODELGW_STORE_MORE  "],\"more\":true}"

#define NGX_MODELGW_STORE_WHERE                                               \
    " WHERE (?1 IS NULL OR account = ?1) AND (?2 IS NULL OR key = ?2)"        \
    " AND (?3 IS NULL OR model = ?3)"

#define ngx_modelgw_store_usage_sql(of_call, of_day)                          \
    "SELECT " of_call ", 1, cost, input, cache_read, cache_write,"            \
    " cache_write_1h, output, reasoning FROM calls" NGX_MODELGW_STORE_WHERE   \
    " AND ended >= ?4 AND ended < ?5"                                         \
    " UNION ALL SELECT " of_day ", calls, cost, input, cache_read,"           \
    " cache_write, cache_write_1h, output, reasoning FROM days"               \
    NGX_MODELGW_STORE_WHERE                                                   \
    " AND " NGX_MODELGW_STORE_TIME " * 1000 >= ?4"                            \
    " AND " NGX_MODELGW_STORE_TIME " * 1000 < ?5"


/* writes a row */

typedef void (*ngx_modelgw_store_row_pt)(ngx_modelgw_out_t *out,
    sqlite3_stmt *stmt);


typedef struct {
    ngx_str_node_t                sn;    /* the name; a day: no bytes */
    int64_t                       day;
    int64_t                       sums[NGX_MODELGW_STORE_SUMS]; /* calls, cost,
                                            tokens */
} ngx_modelgw_store_group_t;


typedef struct {
    ngx_array_t                   groups;    /* of pointers */
    ngx_rbtree_t                  tree;
    ngx_rbtree_node_t             sentinel;
    ngx_modelgw_store_group_t    *last;      /* found; often the next, too */
} ngx_modelgw_store_groups_t;


static void ngx_modelgw_store_call_row(ngx_modelgw_out_t *out,
    sqlite3_stmt *stmt);
static void ngx_modelgw_store_topup_row(ngx_modelgw_out_t *out,
    sqlite3_stmt *stmt);
static ngx_int_t ngx_modelgw_store_rows(ngx_modelgw_store_t *s,
    ngx_modelgw_out_t *out, sqlite3_stmt *stmt,
    ngx_modelgw_store_row_pt row, ngx_uint_t limit);
static ngx_int_t ngx_modelgw_store_sum_up(ngx_modelgw_store_t *s,
    ngx_modelgw_store_groups_t *groups, sqlite3_stmt *stmt);
static ngx_int_t ngx_modelgw_store_sum_row(ngx_modelgw_store_groups_t *groups,
    sqlite3_stmt *stmt);
static ngx_modelgw_store_group_t *ngx_modelgw_store_group(
    ngx_modelgw_store_groups_t *groups, ngx_str_t *name, int64_t day);
static ngx_modelgw_store_group_t *ngx_modelgw_store_group_add(
    ngx_modelgw_store_groups_t *groups, ngx_str_t *name, int64_t day,
    uint32_t hash);
static int ngx_libc_cdecl ngx_modelgw_store_group_cmp(const void *one,
    const void *two);
static void ngx_modelgw_store_group_row(ngx_modelgw_out_t *out,
    ngx_str_t *by, ngx_modelgw_store_group_t *group);
static void ngx_modelgw_store_tokens(ngx_modelgw_out_t *out, int64_t *tokens);
static ngx_int_t ngx_modelgw_store_finish(ngx_modelgw_store_t *s,
    ngx_modelgw_out_t *out, const char *end, ngx_str_t *text);
static ngx_int_t ngx_modelgw_store_query(ngx_modelgw_store_t *s,
    const char *sql, ngx_modelgw_store_filter_t *filter, sqlite3_stmt **stmt);
static void ngx_modelgw_store_bind_str(sqlite3_stmt *stmt, int i,
    ngx_str_t *str);
static void ngx_modelgw_store_column(sqlite3_stmt *stmt, int i, ngx_str_t *str);


static const char  ngx_modelgw_store_calls_sql[] =
    "SELECT id, time, key, account, model, outcome, \"end\", status, cost,"
    " input, cache_read, cache_write, cache_write_1h, output, reasoning"
    " FROM calls" NGX_MODELGW_STORE_WHERE " AND ended >= ?4 AND ended < ?5"
    " ORDER BY id DESC LIMIT ?6";


static const char  ngx_modelgw_store_topups_sql[] =
    "SELECT id, time, amount FROM topups WHERE account = ?1"
    " ORDER BY time DESC, id LIMIT ?2";


static const char  *ngx_modelgw_store_usages[] = {

    [NGX_MODELGW_BY_DAY] =
        ngx_modelgw_store_usage_sql("ended / 86400000",
                                    NGX_MODELGW_STORE_TIME " / 86400"),

    [NGX_MODELGW_BY_KEY] = ngx_modelgw_store_usage_sql("key", "key"),
    [NGX_MODELGW_BY_MODEL] = ngx_modelgw_store_usage_sql("model", "model"),
    [NGX_MODELGW_BY_ACCOUNT] = ngx_modelgw_store_usage_sql("account", "account")
};


/* the first member of a group, up to its value */

static ngx_str_t  ngx_modelgw_store_bys[] = {
    [NGX_MODELGW_BY_DAY] = ngx_string("{\"day\":"),
    [NGX_MODELGW_BY_KEY] = ngx_string("{\"key\":"),
    [NGX_MODELGW_BY_MODEL] = ngx_string("{\"model\":"),
    [NGX_MODELGW_BY_ACCOUNT] = ngx_string("{\"account\":")
};


static ngx_str_t  ngx_modelgw_store_token_names[NGX_MODELGW_STORE_TOKENS] = {
    ngx_string(",\"input_tokens\":"), ngx_string(",\"cache_read_tokens\":"),
    ngx_string(",\"cache_write_tokens\":"),
    ngx_string(",\"cache_write_1h_tokens\":"),
    ngx_string(",\"output_tokens\":"), ngx_string(",\"reasoning_tokens\":")
};


ngx_int_t
ngx_modelgw_store_calls(ngx_modelgw_store_t *s,
    ngx_modelgw_store_filter_t *filter, ngx_str_t *out, ngx_pool_t *pool)
{
    ngx_int_t                 rc;
    sqlite3_stmt             *stmt;
    ngx_modelgw_out_t         json;
    ngx_modelgw_out_piece_t   piece;

    if (ngx_modelgw_store_query(s, ngx_modelgw_store_calls_sql, filter, &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* one more row shows that there are more */

    (void) sqlite3_bind_int64(stmt, 6, (int64_t) filter->limit + 1);

    ngx_modelgw_out_piece(&json, &piece, pool, NGX_MODELGW_STORE_ANSWER);
    ngx_modelgw_out_text(&json, "{\"calls\":[");

    rc = ngx_modelgw_store_rows(s, &json, stmt, ngx_modelgw_store_call_row,
                                filter->limit);
    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    return ngx_modelgw_store_finish(s, &json,
                                    (rc == NGX_AGAIN) ? NGX_MODELGW_STORE_MORE
                                                      : "]}",
                                    out);
}


static void
ngx_modelgw_store_call_row(ngx_modelgw_out_t *out, sqlite3_stmt *stmt)
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

    ngx_modelgw_out_text(out, "{\"id\":");
    ngx_modelgw_out_number(out, sqlite3_column_int64(stmt, 0));
    ngx_modelgw_out_text(out, ",\"time\":");
    ngx_modelgw_out_time(out, sqlite3_column_int64(stmt, 1));
    ngx_modelgw_out_text(out, ",\"key\":");
    ngx_modelgw_out_string(out, &str[0]);
    ngx_modelgw_out_text(out, ",\"account\":");
    ngx_modelgw_out_string(out, &str[1]);
    ngx_modelgw_out_text(out, ",\"model\":");
    ngx_modelgw_out_string(out, &str[2]);
    ngx_modelgw_store_tokens(out, tokens);
    ngx_modelgw_out_text(out, ",\"cost\":");
    ngx_modelgw_amount_out(out, sqlite3_column_int64(stmt, 8));
    ngx_modelgw_out_text(out, ",\"outcome\":");
    ngx_modelgw_out_string(out, &str[3]);
    ngx_modelgw_out_text(out, ",\"end\":");
    ngx_modelgw_out_string(out, &str[4]);
    ngx_modelgw_out_text(out, ",\"status\":");
    ngx_modelgw_out_number(out, sqlite3_column_int64(stmt, 7));
    ngx_modelgw_out_text(out, "}");
}


ngx_int_t
ngx_modelgw_store_topups(ngx_modelgw_store_t *s, ngx_str_t *account,
    ngx_uint_t limit, ngx_str_t *out, ngx_pool_t *pool)
{
    sqlite3_stmt             *stmt;
    ngx_modelgw_out_t         json;
    ngx_modelgw_out_piece_t   piece;

    if (ngx_modelgw_store_prepare(s, ngx_modelgw_store_topups_sql, &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_store_bind_str(stmt, 1, account);
    (void) sqlite3_bind_int64(stmt, 2, limit);

    ngx_modelgw_out_piece(&json, &piece, pool, NGX_MODELGW_STORE_ANSWER);
    ngx_modelgw_out_text(&json, "[");

    if (ngx_modelgw_store_rows(s, &json, stmt, ngx_modelgw_store_topup_row,
                               limit)
        == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    return ngx_modelgw_store_finish(s, &json, "]", out);
}


static void
ngx_modelgw_store_topup_row(ngx_modelgw_out_t *out, sqlite3_stmt *stmt)
{
    ngx_str_t  id;

    ngx_modelgw_store_column(stmt, 0, &id);

    ngx_modelgw_out_text(out, "{\"id\":");
    ngx_modelgw_out_string(out, &id);
    ngx_modelgw_out_text(out, ",\"time\":");
    ngx_modelgw_out_time(out, sqlite3_column_int64(stmt, 1));
    ngx_modelgw_out_text(out, ",\"amount\":");
    ngx_modelgw_amount_out(out, sqlite3_column_int64(stmt, 2));
    ngx_modelgw_out_text(out, "}");
}


/*
 * Writes at most limit rows, and finalizes the statement.
 *     NGX_OK     all of them
 *     NGX_AGAIN  there are more
 *     NGX_ERROR
 */

static ngx_int_t
ngx_modelgw_store_rows(ngx_modelgw_store_t *s, ngx_modelgw_out_t *out,
    sqlite3_stmt *stmt, ngx_modelgw_store_row_pt row, ngx_uint_t limit)
{
    int         rc;
    ngx_uint_t  n;

    for (n = 0; (rc = sqlite3_step(stmt)) == SQLITE_ROW && n < limit; n++) {

        if (n) {
            ngx_modelgw_out_text(out, ",");
        }

        row(out, stmt);
    }

    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        (void) ngx_modelgw_store_fail(s, NULL);
    }

    (void) sqlite3_finalize(stmt);

    if (rc == SQLITE_ROW) {
        return NGX_AGAIN;
    }

    return (rc == SQLITE_DONE) ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_modelgw_store_usage(ngx_modelgw_store_t *s, ngx_modelgw_store_by_e by,
    ngx_modelgw_store_filter_t *filter, ngx_str_t *out, ngx_pool_t *pool)
{
    ngx_uint_t                    i, n;
    sqlite3_stmt                 *stmt;
    ngx_modelgw_out_t             json;
    ngx_modelgw_out_piece_t       piece;
    ngx_modelgw_store_group_t   **group;
    ngx_modelgw_store_groups_t    groups;

    ngx_memzero(&groups, sizeof(ngx_modelgw_store_groups_t));
    ngx_rbtree_init(&groups.tree, &groups.sentinel,
                    ngx_str_rbtree_insert_value);

    if (ngx_array_init(&groups.groups, pool, 16, sizeof(void *)) != NGX_OK) {
        return ngx_modelgw_store_fail_text(s, "failed: no memory");
    }

    if (ngx_modelgw_store_query(s, ngx_modelgw_store_usages[by], filter, &stmt)
        != NGX_OK
        || ngx_modelgw_store_sum_up(s, &groups, stmt) != NGX_OK)
    {
        return NGX_ERROR;
    }

    group = groups.groups.elts;

    ngx_qsort(group, groups.groups.nelts, sizeof(void *),
              ngx_modelgw_store_group_cmp);

    ngx_modelgw_out_piece(&json, &piece, pool, NGX_MODELGW_STORE_ANSWER);
    ngx_modelgw_out_text(&json, "{\"usage\":[");

    n = ngx_min(groups.groups.nelts, filter->limit);

    for (i = 0; i < n; i++) {

        if (i) {
            ngx_modelgw_out_text(&json, ",");
        }

        ngx_modelgw_store_group_row(&json, &ngx_modelgw_store_bys[by],
                                    group[i]);
    }

    return ngx_modelgw_store_finish(s, &json,
                                    (n < groups.groups.nelts)
                                    ? NGX_MODELGW_STORE_MORE : "]}",
                                    out);
}


/* Reads all rows, and finalizes the statement. */

static ngx_int_t
ngx_modelgw_store_sum_up(ngx_modelgw_store_t *s,
    ngx_modelgw_store_groups_t *groups, sqlite3_stmt *stmt)
{
    int  rc;

    do {
        rc = sqlite3_step(stmt);
    } while (rc == SQLITE_ROW
             && ngx_modelgw_store_sum_row(groups, stmt) == NGX_OK);

    if (rc == SQLITE_ROW) {
        (void) ngx_modelgw_store_fail_text(s, "failed: no memory");

    } else if (rc != SQLITE_DONE) {
        (void) ngx_modelgw_store_fail(s, NULL);
    }

    (void) sqlite3_finalize(stmt);

    return (rc == SQLITE_DONE) ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_modelgw_store_sum_row(ngx_modelgw_store_groups_t *groups,
    sqlite3_stmt *stmt)
{
    int                         i;
    int64_t                     day;
    ngx_str_t                   name;
    ngx_modelgw_store_group_t  *group;

    ngx_str_set(&name, "");
    day = 0;

    if (sqlite3_column_type(stmt, 0) == SQLITE_INTEGER) {
        day = sqlite3_column_int64(stmt, 0);

    } else {
        ngx_modelgw_store_column(stmt, 0, &name);
    }

    group = ngx_modelgw_store_group(groups, &name, day);
    if (group == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < NGX_MODELGW_STORE_SUMS; i++) {
        group->sums[i] += sqlite3_column_int64(stmt, i + 1);
    }

    return NGX_OK;
}


static ngx_modelgw_store_group_t *
ngx_modelgw_store_group(ngx_modelgw_store_groups_t *groups, ngx_str_t *name,
    int64_t day)
{
    uint32_t                    hash;
    ngx_modelgw_store_group_t  *group;

    group = groups->last;

    if (group
        && group->day == day
        && group->sn.str.len == name->len
        && ngx_memcmp(group->sn.str.data, name->data, name->len) == 0)
    {
        return group;
    }

    /* the hash of a day is the day itself, all else is equal */

    hash = name->len ? ngx_murmur_hash2(name->data, name->len) : day;

    group = (ngx_modelgw_store_group_t *)
                ngx_str_rbtree_lookup(&groups->tree, name, hash);

    if (group == NULL) {
        group = ngx_modelgw_store_group_add(groups, name, day, hash);
    }

    groups->last = group;

    return group;
}


static ngx_modelgw_store_group_t *
ngx_modelgw_store_group_add(ngx_modelgw_store_groups_t *groups,
    ngx_str_t *name, int64_t day, uint32_t hash)
{
    ngx_pool_t                  *pool;
    ngx_modelgw_store_group_t   *group, **p;

    pool = groups->groups.pool;

    group = ngx_pcalloc(pool, sizeof(ngx_modelgw_store_group_t));
    if (group == NULL) {
        return NULL;
    }

    group->sn.str.data = ngx_pnalloc(pool, ngx_max(name->len, 1));
    if (group->sn.str.data == NULL) {
        return NULL;
    }

    p = ngx_array_push(&groups->groups);
    if (p == NULL) {
        return NULL;
    }

    *p = group;

    group->day = day;
    group->sn.str.len = name->len;
    ngx_memcpy(group->sn.str.data, name->data, name->len);
    group->sn.node.key = hash;

    ngx_rbtree_insert(&groups->tree, &group->sn.node);

    return group;
}


/* days newest first, all else by cost, highest first */

static int ngx_libc_cdecl
ngx_modelgw_store_group_cmp(const void *one, const void *two)
{
    ngx_modelgw_store_group_t  *a, *b;

    a = *(ngx_modelgw_store_group_t **) one;
    b = *(ngx_modelgw_store_group_t **) two;

    if (a->day != b->day) {
        return (a->day < b->day) ? 1 : -1;
    }

    if (a->sums[1] != b->sums[1]) {
        return (a->sums[1] < b->sums[1]) ? 1 : -1;
    }

    return (int) ngx_memn2cmp(a->sn.str.data, b->sn.str.data, a->sn.str.len,
                              b->sn.str.len);
}


static void
ngx_modelgw_store_group_row(ngx_modelgw_out_t *out, ngx_str_t *by,
    ngx_modelgw_store_group_t *group)
{
    ngx_modelgw_out(out, by->data, by->len);

    if (group->day) {
        ngx_modelgw_out_day(out, group->day * NGX_MODELGW_STORE_DAY);

    } else {
        ngx_modelgw_out_string(out, &group->sn.str);
    }

    ngx_modelgw_out_text(out, ",\"calls\":");
    ngx_modelgw_out_number(out, group->sums[0]);
    ngx_modelgw_store_tokens(out, &group->sums[2]);
    ngx_modelgw_out_text(out, ",\"cost\":");
    ngx_modelgw_amount_out(out, group->sums[1]);
    ngx_modelgw_out_text(out, "}");
}


/* Writes the six members of ngx_modelgw_tokens_t. */

static void
ngx_modelgw_store_tokens(ngx_modelgw_out_t *out, int64_t *tokens)
{
    ngx_str_t   *name;
    ngx_uint_t   i;

    for (i = 0; i < NGX_MODELGW_STORE_TOKENS; i++) {
        name = &ngx_modelgw_store_token_names[i];

        ngx_modelgw_out(out, name->data, name->len);
        ngx_modelgw_out_number(out, tokens[i]);
    }
}


/* Writes the end; *text is the whole answer: NGX_OK, NGX_ERROR. */

static ngx_int_t
ngx_modelgw_store_finish(ngx_modelgw_store_t *s, ngx_modelgw_out_t *out,
    const char *end, ngx_str_t *text)
{
    ngx_modelgw_out(out, (u_char *) end, ngx_strlen(end));

    if (ngx_modelgw_out_piece_done(out, text) != NGX_OK) {
        return ngx_modelgw_store_fail_text(s, "failed: no memory");
    }

    return NGX_OK;
}


/* Prepares a query, and binds a filter to ?1 to ?5: NGX_OK, NGX_ERROR. */

static ngx_int_t
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


static void
ngx_modelgw_store_column(sqlite3_stmt *stmt, int i, ngx_str_t *str)
{
    str->data = (u_char *) sqlite3_column_text(stmt, i);
    str->len = sqlite3_column_bytes(stmt, i);
}
