
/*
 * What operators ask of the store in sums, as JSON.
 *
 * The rows are summed up here and not by GROUP BY, which SQLite does by sorting
 * all of them: for a month of calls that takes several times as long, and
 * memory or temporary files for every row.  This takes some 150 bytes a group.
 *
 * The time that counts is the one when a call ended and was charged, here as in
 * the days that calls are rolled up to, and a day counts where it begins: so
 * the usage of two spans is that of both together, whatever was rolled up.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"


#define NGX_MODELGW_STORE_SUMS  (2 + NGX_MODELGW_STORE_TOKENS)

#define NGX_MODELGW_STORE_TIME  "CAST(strftime('%s', day) AS INTEGER)"

#define ngx_modelgw_store_usage_sql(of_call, of_day)                          \
    "SELECT " of_call ", 1, cost, input, cache_read, cache_write,"            \
    " cache_write_1h, output, reasoning FROM calls" NGX_MODELGW_STORE_WHERE   \
    " AND ended >= ?4 AND ended < ?5"                                         \
    " UNION ALL SELECT " of_day ", calls, cost, input, cache_read,"           \
    " cache_write, cache_write_1h, output, reasoning FROM days"               \
    NGX_MODELGW_STORE_WHERE                                                   \
    " AND " NGX_MODELGW_STORE_TIME " * 1000 >= ?4"                            \
    " AND " NGX_MODELGW_STORE_TIME " * 1000 < ?5"


typedef struct {
    ngx_str_node_t                sn;    /* the name; a day: no bytes */
    int64_t                       day;
    int64_t                       sums[NGX_MODELGW_STORE_SUMS];
} ngx_modelgw_store_group_t;


typedef struct {
    ngx_array_t                   groups;    /* of pointers */
    ngx_rbtree_t                  tree;
    ngx_rbtree_node_t             sentinel;
    ngx_modelgw_store_group_t    *last;      /* found; the next is often it */
} ngx_modelgw_store_groups_t;


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
static void ngx_modelgw_store_put_group(ngx_modelgw_store_text_t *t,
    const char *before, ngx_modelgw_store_group_t *group);


/* by ngx_modelgw_store_by_e */

static const char  *ngx_modelgw_store_usages[] = {
    ngx_modelgw_store_usage_sql("ended / 86400000",
                                NGX_MODELGW_STORE_TIME " / 86400"),
    ngx_modelgw_store_usage_sql("key", "key"),
    ngx_modelgw_store_usage_sql("model", "model"),
    ngx_modelgw_store_usage_sql("account", "account")
};


static const char  *ngx_modelgw_store_bys[] = {
    "{\"day\":", "{\"key\":", "{\"model\":", "{\"account\":"
};


ngx_int_t
ngx_modelgw_store_usage(ngx_modelgw_store_t *s, ngx_modelgw_store_by_e by,
    ngx_modelgw_store_filter_t *filter, ngx_str_t *out, ngx_pool_t *pool)
{
    ngx_uint_t                    i, n;
    const char                   *end;
    sqlite3_stmt                 *stmt;
    ngx_modelgw_store_text_t      t;
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

    ngx_modelgw_store_text(&t, pool);
    ngx_modelgw_store_put(&t, "{\"usage\":[");

    n = ngx_min(groups.groups.nelts, filter->limit);

    for (i = 0; i < n; i++) {

        if (i) {
            ngx_modelgw_store_put(&t, ",");
        }

        ngx_modelgw_store_put_group(&t, ngx_modelgw_store_bys[by], group[i]);
    }

    end = (n < groups.groups.nelts) ? NGX_MODELGW_STORE_MORE : "]}";

    if (ngx_modelgw_store_put_done(&t, end, out) != NGX_OK) {
        return ngx_modelgw_store_fail_text(s, "failed: no memory");
    }

    return NGX_OK;
}


/* reads all rows, and finalizes the statement */

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

    /* of days the hash is the day itself, all else is equal */

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


/* days newest first, all else dearest first */

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
ngx_modelgw_store_put_group(ngx_modelgw_store_text_t *t, const char *before,
    ngx_modelgw_store_group_t *group)
{
    if (group->day) {
        ngx_modelgw_store_put_day(t, before, group->day);

    } else {
        ngx_modelgw_store_put_string(t, before, &group->sn.str);
    }

    ngx_modelgw_store_put_number(t, ",\"calls\":", group->sums[0]);
    ngx_modelgw_store_put_tokens(t, &group->sums[2]);
    ngx_modelgw_store_put_amount(t, ",\"cost\":", group->sums[1]);
    ngx_modelgw_store_put(t, "}");
}
