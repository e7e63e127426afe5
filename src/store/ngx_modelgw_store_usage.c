
/*
 * Queries of operators, in sums: usage by times, keys, models, accounts.
 *
 * Usage counts a call at the time when it ended and was charged, as do "hours"
 * and the days that calls are rolled up to; a day counts at its first
 * millisecond.  So the usage of two adjacent spans is that of both together,
 * whatever was rolled up.
 *
 * Whole hours of the span are read from "hours" up to the mark, and from
 * "calls" above it; the rest of the span, less than an hour at either end, from
 * "calls".  It is one statement, so that all of it is of one instant.
 *
 * Days and months are those of the filter's zone, which is whole hours from
 * UTC, as the sums are by hour of UTC.  A day that was rolled up is one of UTC
 * and counts as the zone's day of the same name, at whose beginning it is.
 *
 * Rows are summed up here and not by GROUP BY, for which SQLite sorts them.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"


/* the beginning of the zone's day, ?10 is the zone */

#define NGX_MODELGW_STORE_ZONE_DAY                                            \
    "(" NGX_MODELGW_STORE_DAY_TIME " * 1000 - ?10)"

/* bytes that tell a group: a time, names with their length */

#define NGX_MODELGW_STORE_GROUP                                               \
    (sizeof(int64_t)                                                          \
     + NGX_MODELGW_STORE_BYS * (1 + NGX_MODELGW_LEDGER_MODEL))

#define NGX_MODELGW_STORE_GROUPS    200000  /* at most; each is some 300 bytes
                                               of memory */

#define NGX_MODELGW_STORE_MONTHS    12


/* the columns after time, key, model and account: NGX_MODELGW_STORE_SUMS */

typedef enum {
    NGX_MODELGW_SUM_CALLS = 0,
    NGX_MODELGW_SUM_ERRORS,
    NGX_MODELGW_SUM_TOKENS,              /* six classes */
    NGX_MODELGW_SUM_COST = NGX_MODELGW_SUM_TOKENS + 6,
    NGX_MODELGW_SUM_DURATION,
    NGX_MODELGW_SUM_FIRST_BYTES,
    NGX_MODELGW_SUM_FIRST_BYTE,
    NGX_MODELGW_STORE_NSUMS
} ngx_modelgw_store_sum_e;

#define NGX_MODELGW_STORE_FIRST_SUM  4   /* column */


typedef struct {
    ngx_str_node_t                sn;    /* "time", and the names, each after
                                            its length */
    int64_t                       time;  /* its number; 0: none */
    int64_t                       sums[NGX_MODELGW_STORE_NSUMS];
} ngx_modelgw_store_group_t;


typedef struct {
    ngx_modelgw_store_by_t       *by;
    int64_t                       zone;      /* of the filter */
    ngx_uint_t                    csv;       /* 0: JSON */
    ngx_uint_t                    rows;      /* that are written */
    ngx_uint_t                    cells;     /* the same, of the last row */
    ngx_array_t                   groups;    /* of pointers */
    ngx_rbtree_t                  tree;
    ngx_rbtree_node_t             sentinel;
    ngx_modelgw_store_group_t    *last;      /* found; often the next, too */
} ngx_modelgw_store_groups_t;


/* what usage is summed up by: a time, or a column of names */

typedef struct {
    ngx_str_t                     name;
    int64_t                     (*number)(int64_t ms, int64_t zone);
    void                        (*write)(ngx_modelgw_out_t *out, int64_t n);
    int                           column;
} ngx_modelgw_store_dimension_t;


static ngx_int_t ngx_modelgw_store_usage_read(ngx_modelgw_store_t *s,
    ngx_modelgw_store_by_t *by, ngx_modelgw_store_filter_t *filter,
    ngx_modelgw_store_groups_t *groups, ngx_pool_t *pool);
static ngx_int_t ngx_modelgw_store_usage_query(ngx_modelgw_store_t *s,
    ngx_modelgw_store_filter_t *filter, ngx_modelgw_stmt_t *stmt);
static ngx_int_t ngx_modelgw_store_sum_up(ngx_modelgw_store_t *s,
    ngx_modelgw_store_groups_t *groups, ngx_modelgw_stmt_t *stmt);
static ngx_int_t ngx_modelgw_store_sum_row(ngx_modelgw_store_groups_t *groups,
    ngx_modelgw_stmt_t *stmt);
static ngx_modelgw_store_group_t *ngx_modelgw_store_group(
    ngx_modelgw_store_groups_t *groups, ngx_str_t *name, int64_t time);
static ngx_modelgw_store_group_t *ngx_modelgw_store_group_add(
    ngx_modelgw_store_groups_t *groups, ngx_str_t *name, int64_t time,
    uint32_t hash);
static int ngx_libc_cdecl ngx_modelgw_store_group_cmp(const void *one,
    const void *two);
static ngx_uint_t ngx_modelgw_store_usage_write(
    ngx_modelgw_store_groups_t *groups, ngx_modelgw_store_filter_t *filter,
    ngx_modelgw_out_t *out);
static void ngx_modelgw_store_usage_header(ngx_modelgw_store_groups_t *groups,
    ngx_modelgw_out_t *out);
static ngx_uint_t ngx_modelgw_store_groups_write(
    ngx_modelgw_store_groups_t *groups, ngx_modelgw_store_filter_t *filter,
    ngx_modelgw_out_t *out);
static ngx_uint_t ngx_modelgw_store_series_write(
    ngx_modelgw_store_groups_t *groups, ngx_modelgw_store_filter_t *filter,
    ngx_modelgw_out_t *out);
static void ngx_modelgw_store_group_write(ngx_modelgw_store_groups_t *groups,
    ngx_modelgw_store_group_t *group, ngx_modelgw_out_t *out);
static void ngx_modelgw_store_group_cell(ngx_modelgw_store_groups_t *groups,
    ngx_modelgw_out_t *out, ngx_str_t *name);
static void ngx_modelgw_store_group_name(ngx_modelgw_store_groups_t *groups,
    ngx_modelgw_out_t *out, ngx_str_t *name);
static void ngx_modelgw_store_average(ngx_modelgw_store_groups_t *groups,
    ngx_modelgw_out_t *out, int64_t sum, int64_t n);
static int64_t ngx_modelgw_store_hour_number(int64_t ms, int64_t zone);
static int64_t ngx_modelgw_store_day_number(int64_t ms, int64_t zone);
static int64_t ngx_modelgw_store_month_number(int64_t ms, int64_t zone);
static void ngx_modelgw_store_hour_write(ngx_modelgw_out_t *out, int64_t n);
static void ngx_modelgw_store_day_write(ngx_modelgw_out_t *out, int64_t n);
static void ngx_modelgw_store_month_write(ngx_modelgw_out_t *out, int64_t n);


/*
 * ?4 to ?5 is the span, ?6 to ?7 its whole hours, ?8 to ?9 the same in
 * milliseconds.
 */

#define ngx_modelgw_store_usage_calls(from, to)                               \
    " UNION ALL SELECT ended, key, model, account,"                           \
    NGX_MODELGW_STORE_SUMS_OF_CALL "FROM calls"                               \
    NGX_MODELGW_STORE_WHERE " AND ended >= " from " AND ended < " to

static const char  ngx_modelgw_store_usage_sql[] =
    "SELECT hour * 3600000, key, model, account," NGX_MODELGW_STORE_SUMS
    " FROM hours" NGX_MODELGW_STORE_WHERE " AND hour >= ?6 AND hour < ?7"
    ngx_modelgw_store_usage_calls("?4", "?8")
    ngx_modelgw_store_usage_calls("max(?8, " NGX_MODELGW_STORE_MARK ")", "?9")
    ngx_modelgw_store_usage_calls("?9", "?5")
    " UNION ALL SELECT " NGX_MODELGW_STORE_ZONE_DAY ", key, model, account,"
    NGX_MODELGW_STORE_SUMS " FROM days" NGX_MODELGW_STORE_WHERE
    " AND " NGX_MODELGW_STORE_ZONE_DAY " >= ?4"
    " AND " NGX_MODELGW_STORE_ZONE_DAY " < ?5";


/*
 * ?1 is the start: as above, whole hours of "hours", and what is before the
 * first of them or above the mark of "calls"; ?2 are the names.
 */

#define ngx_modelgw_store_spent_sql(name)                                     \
    "SELECT " name ", sum(cost), max(time) / 3600000 * 3600000 FROM ("        \
        "SELECT " name ", cost, hour * 3600000 AS time FROM hours"            \
            " WHERE hour >= (?1 + 3599999) / 3600000"                         \
                " AND " ngx_modelgw_store_among(name)                         \
        " UNION ALL SELECT " name ", cost, ended FROM calls"                  \
            " WHERE ended >= ?1 AND ended <"                                  \
                " min((?1 + 3599999) / 3600000 * 3600000, "                   \
                NGX_MODELGW_STORE_MARK ")"                                    \
                " AND " ngx_modelgw_store_among(name)                         \
        " UNION ALL SELECT " name ", cost, ended FROM calls"                  \
            " WHERE ended >= max(?1, " NGX_MODELGW_STORE_MARK ")"             \
                " AND " ngx_modelgw_store_among(name)                         \
        " UNION ALL SELECT " name ", cost, " NGX_MODELGW_STORE_DAY_TIME       \
            " * 1000 FROM days"                                               \
            " WHERE " NGX_MODELGW_STORE_DAYS_SINCE                            \
                " AND " ngx_modelgw_store_among(name) ") AS spent"            \
    " GROUP BY 1"

static const char  ngx_modelgw_store_spent_keys[] =
    ngx_modelgw_store_spent_sql("key");

static const char  ngx_modelgw_store_spent_accounts[] =
    ngx_modelgw_store_spent_sql("account");


static ngx_modelgw_store_dimension_t  ngx_modelgw_store_dimensions[] = {

    [NGX_MODELGW_BY_HOUR] = { ngx_string("hour"),
        ngx_modelgw_store_hour_number, ngx_modelgw_store_hour_write, 0 },

    [NGX_MODELGW_BY_DAY] = { ngx_string("day"),
        ngx_modelgw_store_day_number, ngx_modelgw_store_day_write, 0 },

    [NGX_MODELGW_BY_MONTH] = { ngx_string("month"),
        ngx_modelgw_store_month_number, ngx_modelgw_store_month_write, 0 },

    [NGX_MODELGW_BY_KEY] = { ngx_string("key"), NULL, NULL, 1 },
    [NGX_MODELGW_BY_MODEL] = { ngx_string("model"), NULL, NULL, 2 },
    [NGX_MODELGW_BY_ACCOUNT] = { ngx_string("account"), NULL, NULL, 3 }
};


/* the members of a group, or columns, after those that it is of */

static ngx_str_t  ngx_modelgw_store_usage_names[] = {
    [NGX_MODELGW_SUM_CALLS] = ngx_string("calls"),
    [NGX_MODELGW_SUM_ERRORS] = ngx_string("errors"),
    [NGX_MODELGW_SUM_TOKENS] = ngx_string("input_tokens"),
    ngx_string("cache_read_tokens"),
    ngx_string("cache_write_tokens"),
    ngx_string("cache_write_1h_tokens"),
    ngx_string("output_tokens"),
    ngx_string("reasoning_tokens"),
    [NGX_MODELGW_SUM_COST] = ngx_string("cost"),
    ngx_string("avg_ms"),
    ngx_string("avg_first_byte_ms"),
    ngx_null_string
};


ngx_int_t
ngx_modelgw_store_spent(ngx_modelgw_store_t *s, ngx_modelgw_store_by_e by,
    ngx_str_t *names, uint64_t start, ngx_modelgw_store_account_pt handler,
    void *data)
{
    return ngx_modelgw_store_each(s, (by == NGX_MODELGW_BY_ACCOUNT)
                                     ? ngx_modelgw_store_spent_accounts
                                     : ngx_modelgw_store_spent_keys,
                                  start, names, handler, data);
}


ngx_int_t
ngx_modelgw_store_usage(ngx_modelgw_store_t *s, ngx_modelgw_store_by_t *by,
    ngx_modelgw_store_filter_t *filter, ngx_str_t *out, ngx_pool_t *pool)
{
    ngx_int_t                     rc;
    ngx_uint_t                    more;
    ngx_modelgw_out_t             json;
    ngx_modelgw_out_piece_t       piece;
    ngx_modelgw_store_groups_t    groups;

    rc = ngx_modelgw_store_usage_read(s, by, filter, &groups, pool);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_modelgw_out_piece(&json, &piece, pool, NGX_MODELGW_STORE_ANSWER);
    ngx_modelgw_out_text(&json, "{\"usage\":[");

    more = ngx_modelgw_store_usage_write(&groups, filter, &json);

    return ngx_modelgw_store_finish(s, &json,
                                    more ? "],\"more\":true}" : "]}", out);
}


ngx_int_t
ngx_modelgw_store_usage_csv(ngx_modelgw_store_t *s, ngx_modelgw_store_by_t *by,
    ngx_modelgw_store_filter_t *filter, ngx_str_t *out, ngx_pool_t *pool)
{
    ngx_int_t                     rc;
    ngx_uint_t                    more;
    ngx_modelgw_out_t             csv;
    ngx_modelgw_out_piece_t       piece;
    ngx_modelgw_store_groups_t    groups;

    rc = ngx_modelgw_store_usage_read(s, by, filter, &groups, pool);
    if (rc != NGX_OK) {
        return rc;
    }

    groups.csv = 1;

    ngx_modelgw_out_piece(&csv, &piece, pool, NGX_MODELGW_STORE_ANSWER);
    ngx_modelgw_store_usage_header(&groups, &csv);

    more = ngx_modelgw_store_usage_write(&groups, filter, &csv);

    if (ngx_modelgw_store_finish(s, &csv, "", out) != NGX_OK) {
        return NGX_ERROR;
    }

    return more ? NGX_AGAIN : NGX_OK;
}


/* Sets *groups to all of them, in their order: NGX_OK, NGX_BUSY, NGX_ERROR. */

static ngx_int_t
ngx_modelgw_store_usage_read(ngx_modelgw_store_t *s,
    ngx_modelgw_store_by_t *by, ngx_modelgw_store_filter_t *filter,
    ngx_modelgw_store_groups_t *groups, ngx_pool_t *pool)
{
    ngx_int_t           rc;
    ngx_modelgw_stmt_t  stmt;

    ngx_memzero(groups, sizeof(ngx_modelgw_store_groups_t));
    ngx_rbtree_init(&groups->tree, &groups->sentinel,
                    ngx_str_rbtree_insert_value);

    groups->by = by;
    groups->zone = filter->zone;

    if (ngx_array_init(&groups->groups, pool, 16, sizeof(void *)) != NGX_OK) {
        return ngx_modelgw_store_fail_text(s, "failed: no memory");
    }

    if (ngx_modelgw_store_usage_query(s, filter, &stmt) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_modelgw_store_sum_up(s, groups, &stmt);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_qsort(groups->groups.elts, groups->groups.nelts, sizeof(void *),
              ngx_modelgw_store_group_cmp);

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_store_usage_query(ngx_modelgw_store_t *s,
    ngx_modelgw_store_filter_t *filter, ngx_modelgw_stmt_t *stmt)
{
    int64_t  from, to, first, last;

    if (ngx_modelgw_store_query(s, ngx_modelgw_store_usage_sql, filter, stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    from = ngx_min(filter->from, (uint64_t) INT64_MAX);
    to = filter->to ? ngx_min(filter->to, (uint64_t) INT64_MAX) : INT64_MAX;

    first = from / NGX_MODELGW_STORE_HOUR
            + (from % NGX_MODELGW_STORE_HOUR != 0);
    last = to / NGX_MODELGW_STORE_HOUR;

    ngx_modelgw_stmt_bind_int(stmt, 6, first);
    ngx_modelgw_stmt_bind_int(stmt, 7, last);

    /* without a whole hour all is before the first of them */

    if (first < last) {
        ngx_modelgw_stmt_bind_int(stmt, 8, first * NGX_MODELGW_STORE_HOUR);
        ngx_modelgw_stmt_bind_int(stmt, 9, last * NGX_MODELGW_STORE_HOUR);

    } else {
        ngx_modelgw_stmt_bind_int(stmt, 8, to);
        ngx_modelgw_stmt_bind_int(stmt, 9, to);
    }

    ngx_modelgw_stmt_bind_int(stmt, 10, filter->zone);

    return NGX_OK;
}


/* Reads all rows, and finalizes the statement: NGX_OK, NGX_BUSY, NGX_ERROR. */

static ngx_int_t
ngx_modelgw_store_sum_up(ngx_modelgw_store_t *s,
    ngx_modelgw_store_groups_t *groups, ngx_modelgw_stmt_t *stmt)
{
    ngx_int_t  rc;

    while ((rc = ngx_modelgw_stmt_next(stmt)) == NGX_OK) {

        if (ngx_modelgw_store_sum_row(groups, stmt) != NGX_OK) {
            rc = ngx_modelgw_store_fail_text(s, "failed: no memory");
            break;
        }

        if (groups->groups.nelts > NGX_MODELGW_STORE_GROUPS) {
            rc = NGX_BUSY;
            break;
        }
    }

    ngx_modelgw_stmt_finalize(stmt);

    return (rc == NGX_DONE) ? NGX_OK : rc;
}


static ngx_int_t
ngx_modelgw_store_sum_row(ngx_modelgw_store_groups_t *groups,
    ngx_modelgw_stmt_t *stmt)
{
    int                             i;
    u_char                         *p, buf[NGX_MODELGW_STORE_GROUP];
    int64_t                         time;
    ngx_str_t                       name;
    ngx_uint_t                      n;
    ngx_modelgw_store_group_t      *group;
    ngx_modelgw_store_dimension_t  *d;

    time = 0;
    p = buf + sizeof(int64_t);

    for (n = 0; n < groups->by->n; n++) {
        d = &ngx_modelgw_store_dimensions[groups->by->bys[n]];

        if (d->number) {
            time = d->number(ngx_modelgw_stmt_int(stmt, 0), groups->zone);
            continue;
        }

        ngx_modelgw_stmt_text(stmt, d->column, &name);

        name.len = ngx_min(name.len, NGX_MODELGW_LEDGER_MODEL);

        *p++ = (u_char) name.len;
        p = ngx_cpymem(p, name.data, name.len);
    }

    ngx_memcpy(buf, &time, sizeof(int64_t));

    name.data = buf;
    name.len = p - buf;

    group = ngx_modelgw_store_group(groups, &name, time);
    if (group == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < NGX_MODELGW_STORE_NSUMS; i++) {
        group->sums[i] += ngx_modelgw_stmt_int(stmt,
                                             NGX_MODELGW_STORE_FIRST_SUM + i);
    }

    return NGX_OK;
}


static ngx_modelgw_store_group_t *
ngx_modelgw_store_group(ngx_modelgw_store_groups_t *groups, ngx_str_t *name,
    int64_t time)
{
    uint32_t                    hash;
    ngx_str_node_t             *sn;
    ngx_modelgw_store_group_t  *group;

    group = groups->last;

    if (group
        && group->sn.str.len == name->len
        && ngx_memcmp(group->sn.str.data, name->data, name->len) == 0)
    {
        return group;
    }

    hash = ngx_murmur_hash2(name->data, name->len);

    sn = ngx_str_rbtree_lookup(&groups->tree, name, hash);

    group = sn ? (ngx_modelgw_store_group_t *) sn
               : ngx_modelgw_store_group_add(groups, name, time, hash);

    groups->last = group;

    return group;
}


static ngx_modelgw_store_group_t *
ngx_modelgw_store_group_add(ngx_modelgw_store_groups_t *groups,
    ngx_str_t *name, int64_t time, uint32_t hash)
{
    ngx_pool_t                  *pool;
    ngx_modelgw_store_group_t   *group, **p;

    pool = groups->groups.pool;

    group = ngx_pcalloc(pool, sizeof(ngx_modelgw_store_group_t));
    if (group == NULL) {
        return NULL;
    }

    group->sn.str.data = ngx_pnalloc(pool, name->len);
    if (group->sn.str.data == NULL) {
        return NULL;
    }

    p = ngx_array_push(&groups->groups);
    if (p == NULL) {
        return NULL;
    }

    *p = group;

    group->time = time;
    group->sn.str.len = name->len;
    ngx_memcpy(group->sn.str.data, name->data, name->len);
    group->sn.node.key = hash;

    ngx_rbtree_insert(&groups->tree, &group->sn.node);

    return group;
}


static int ngx_libc_cdecl
ngx_modelgw_store_group_cmp(const void *one, const void *two)
{
    ngx_modelgw_store_group_t  *a, *b;

    a = *(ngx_modelgw_store_group_t **) one;
    b = *(ngx_modelgw_store_group_t **) two;

    if (a->time != b->time) {
        return (a->time < b->time) ? 1 : -1;
    }

    if (a->sums[NGX_MODELGW_SUM_COST] != b->sums[NGX_MODELGW_SUM_COST]) {
        return (a->sums[NGX_MODELGW_SUM_COST] < b->sums[NGX_MODELGW_SUM_COST])
               ? 1 : -1;
    }

    return (int) ngx_memn2cmp(a->sn.str.data, b->sn.str.data, a->sn.str.len,
                              b->sn.str.len);
}


/* Writes at most the limit, and returns whether there are more. */

static ngx_uint_t
ngx_modelgw_store_usage_write(ngx_modelgw_store_groups_t *groups,
    ngx_modelgw_store_filter_t *filter, ngx_modelgw_out_t *out)
{
    ngx_modelgw_store_by_t  *by;

    by = groups->by;

    if (by->n == 1 && ngx_modelgw_store_dimensions[by->bys[0]].number) {
        return ngx_modelgw_store_series_write(groups, filter, out);
    }

    return ngx_modelgw_store_groups_write(groups, filter, out);
}


static void
ngx_modelgw_store_usage_header(ngx_modelgw_store_groups_t *groups,
    ngx_modelgw_out_t *out)
{
    ngx_str_t   *name;
    ngx_uint_t   i;

    for (i = 0; i < groups->by->n; i++) {
        name = &ngx_modelgw_store_dimensions[groups->by->bys[i]].name;

        ngx_modelgw_out(out, name->data, name->len);
        ngx_modelgw_out_text(out, ",");
    }

    for (name = ngx_modelgw_store_usage_names; name->len; name++) {

        ngx_modelgw_out(out, name->data, name->len);

        if (name[1].len) {
            ngx_modelgw_out_text(out, ",");
        }
    }

    ngx_modelgw_out_text(out, "\r\n");
}


static ngx_uint_t
ngx_modelgw_store_groups_write(ngx_modelgw_store_groups_t *groups,
    ngx_modelgw_store_filter_t *filter, ngx_modelgw_out_t *out)
{
    ngx_uint_t                   i, n;
    ngx_modelgw_store_group_t  **group;

    group = groups->groups.elts;
    n = ngx_min(groups->groups.nelts, filter->limit);

    for (i = 0; i < n; i++) {
        ngx_modelgw_store_group_write(groups, group[i], out);
    }

    return n < groups->groups.nelts;
}


/* The same for one time: those without a group have none of anything. */

static ngx_uint_t
ngx_modelgw_store_series_write(ngx_modelgw_store_groups_t *groups,
    ngx_modelgw_store_filter_t *filter, ngx_modelgw_out_t *out)
{
    int64_t                       now, first, t;
    ngx_uint_t                    i, n;
    ngx_modelgw_store_group_t   **group, none;
    int64_t                     (*number)(int64_t ms, int64_t zone);

    group = groups->groups.elts;
    n = groups->groups.nelts;
    number = ngx_modelgw_store_dimensions[groups->by->bys[0]].number;

    if (filter->from == 0 && n == 0) {
        return 0;
    }

    now = filter->now;

    if (filter->to && (int64_t) filter->to <= now) {
        now = filter->to - 1;
    }

    first = number(filter->from ? (int64_t) filter->from : now, filter->zone);
    t = number(now, filter->zone);

    if (n) {
        first = filter->from ? first : group[n - 1]->time;
        t = (filter->from || filter->to) ? ngx_max(t, group[0]->time)
                                         : group[0]->time;
    }

    ngx_memzero(&none, sizeof(ngx_modelgw_store_group_t));

    for (i = 0, n = 0; t >= first && n < filter->limit; t--, n++) {

        if (i < groups->groups.nelts && group[i]->time == t) {
            ngx_modelgw_store_group_write(groups, group[i++], out);
            continue;
        }

        none.time = t;
        ngx_modelgw_store_group_write(groups, &none, out);
    }

    return t >= first;
}


static void
ngx_modelgw_store_group_write(ngx_modelgw_store_groups_t *groups,
    ngx_modelgw_store_group_t *group, ngx_modelgw_out_t *out)
{
    u_char                         *p;
    int64_t                        *sums;
    ngx_str_t                       text, *name;
    ngx_uint_t                      i;
    ngx_modelgw_store_dimension_t  *d;

    if (!groups->csv && groups->rows++) {
        ngx_modelgw_out_text(out, ",");
    }

    groups->cells = 0;

    p = group->sn.str.data + sizeof(int64_t);

    for (i = 0; i < groups->by->n; i++) {
        d = &ngx_modelgw_store_dimensions[groups->by->bys[i]];

        ngx_modelgw_store_group_cell(groups, out, &d->name);

        if (d->write) {
            d->write(out, group->time);

        } else {
            text.len = *p++;
            text.data = p;
            p += text.len;

            ngx_modelgw_store_group_name(groups, out, &text);
        }
    }

    sums = group->sums;
    name = ngx_modelgw_store_usage_names;

    for (i = 0; i < NGX_MODELGW_SUM_COST; i++) {
        ngx_modelgw_store_group_cell(groups, out, name++);
        ngx_modelgw_out_number(out, sums[i]);
    }

    ngx_modelgw_store_group_cell(groups, out, name++);
    ngx_modelgw_amount_out(out, sums[NGX_MODELGW_SUM_COST]);

    ngx_modelgw_store_group_cell(groups, out, name++);
    ngx_modelgw_store_average(groups, out, sums[NGX_MODELGW_SUM_DURATION],
                              sums[NGX_MODELGW_SUM_CALLS]);

    ngx_modelgw_store_group_cell(groups, out, name);
    ngx_modelgw_store_average(groups, out, sums[NGX_MODELGW_SUM_FIRST_BYTE],
                              sums[NGX_MODELGW_SUM_FIRST_BYTES]);

    if (groups->csv) {
        ngx_modelgw_out_text(out, "\r\n");

    } else {
        ngx_modelgw_out_text(out, "}");
    }
}


/* what is before a value: of CSV a comma, of JSON also its name */

static void
ngx_modelgw_store_group_cell(ngx_modelgw_store_groups_t *groups,
    ngx_modelgw_out_t *out, ngx_str_t *name)
{
    if (groups->cells++) {
        ngx_modelgw_out_text(out, ",");

    } else if (!groups->csv) {
        ngx_modelgw_out_text(out, "{");
    }

    if (!groups->csv) {
        ngx_modelgw_out_text(out, "\"");
        ngx_modelgw_out(out, name->data, name->len);
        ngx_modelgw_out_text(out, "\":");
    }
}


static void
ngx_modelgw_store_group_name(ngx_modelgw_store_groups_t *groups,
    ngx_modelgw_out_t *out, ngx_str_t *name)
{
    if (groups->csv) {
        ngx_modelgw_store_cell(out, name);

    } else {
        ngx_modelgw_out_string(out, name);
    }
}


/* without anything it is of: null, an empty cell */

static void
ngx_modelgw_store_average(ngx_modelgw_store_groups_t *groups,
    ngx_modelgw_out_t *out, int64_t sum, int64_t n)
{
    if (n > 0) {
        ngx_modelgw_out_number(out, sum / n);

    } else if (!groups->csv) {
        ngx_modelgw_out_text(out, "null");
    }
}


/* numbers of times count from the Epoch: hours of UTC, others of the zone */

static int64_t
ngx_modelgw_store_hour_number(int64_t ms, int64_t zone)
{
    return ms / NGX_MODELGW_STORE_HOUR;
}


static int64_t
ngx_modelgw_store_day_number(int64_t ms, int64_t zone)
{
    return (ms + zone) / 1000 / NGX_MODELGW_STORE_DAY;
}


static int64_t
ngx_modelgw_store_month_number(int64_t ms, int64_t zone)
{
    time_t     sec;
    struct tm  tm;

    sec = (ms + zone) / 1000;
    ngx_memzero(&tm, sizeof(struct tm));
    (void) gmtime_r(&sec, &tm);

    return (tm.tm_year - 70) * NGX_MODELGW_STORE_MONTHS + tm.tm_mon;
}


static void
ngx_modelgw_store_hour_write(ngx_modelgw_out_t *out, int64_t n)
{
    ngx_modelgw_out_time(out, n * NGX_MODELGW_STORE_HOUR);
}


static void
ngx_modelgw_store_day_write(ngx_modelgw_out_t *out, int64_t n)
{
    ngx_modelgw_out_day(out, n * NGX_MODELGW_STORE_DAY);
}


static void
ngx_modelgw_store_month_write(ngx_modelgw_out_t *out, int64_t n)
{
    u_char  *last, buf[sizeof("\"2026-11\"") + NGX_INT64_LEN];

    last = ngx_sprintf(buf, "\"%04L-%02L\"",
                       n / NGX_MODELGW_STORE_MONTHS + 1970,
                       n % NGX_MODELGW_STORE_MONTHS + 1);

    ngx_modelgw_out(out, buf, last - buf);
}
