
/*
 * Opening what is lent, and saying top-ups again.  An account is opened with
 * its founding credit, by whichever node names it first.
 *
 * A budget is opened with its limit less what the calls of its window have cost
 * so far, and each node gets a lease that it has used up with its own: so
 * "left" of a lease means the same to the node, which counts all calls of the
 * window.  No call may be missed or counted twice, so no exchange is running
 * when it is opened: an exchange begins with the lock of its node's row, this
 * with the locks of all of them, and of the cluster's, without which no node
 * can be added.
 *
 * There may be a million calls to add up.  That is done before these locks are
 * taken, up to the positions that nodes have then, and only later calls are
 * added under them.  The clerk must not move calls to days in between: it waits
 * for the mark of hours.
 *
 * Rejected: an index that has the cost (each call pays for it, and its rows are
 * read all the same until they are vacuumed).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_exchange_private.h"


typedef enum {
    NGX_MODELGW_OPEN_NAME = 0,
    NGX_MODELGW_OPEN_AMOUNT,
    NGX_MODELGW_OPEN_KEY,
    NGX_MODELGW_OPEN_STARTS,
    NGX_MODELGW_OPEN_ENDS,
    NGX_MODELGW_OPEN_BUDGETS,
    NGX_MODELGW_OPEN_SUMMED = NGX_MODELGW_OPEN_BUDGETS,
    NGX_MODELGW_OPEN_NODE,
    NGX_MODELGW_OPEN_SUM,
    NGX_MODELGW_OPEN_ARRAYS
} ngx_modelgw_open_array_e;


static ngx_uint_t ngx_modelgw_exchange_open_some(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_open_t *opens, ngx_uint_t n, ngx_uint_t budgets);
static ngx_int_t ngx_modelgw_exchange_open_accounts(ngx_modelgw_exchange_t *x);
static ngx_int_t ngx_modelgw_exchange_open_budgets(ngx_modelgw_exchange_t *x);
static ngx_int_t ngx_modelgw_exchange_open_new(ngx_modelgw_exchange_t *x);
static ngx_int_t ngx_modelgw_exchange_open_sums(ngx_modelgw_exchange_t *x);
static ngx_int_t ngx_modelgw_exchange_open_limits(ngx_modelgw_exchange_t *x);
static void ngx_modelgw_exchange_open_limit(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_args_t *args);


static const char  ngx_modelgw_exchange_begin[] = "BEGIN";
static const char  ngx_modelgw_exchange_commit[] = "COMMIT";


/* $1 names, $2 founding credit */

static const char  ngx_modelgw_exchange_founded[] =
    "WITH n AS ("
        "INSERT INTO modelgw.accounts (name, free, opened)"
        " SELECT u.name, u.amount, " NGX_MODELGW_EXCHANGE_NOW
        " FROM unnest($1::text[], $2::bigint[]) AS u(name, amount)"
        " ORDER BY u.name ON CONFLICT (name) DO NOTHING"
        " RETURNING name, free"
    ")"
    " INSERT INTO modelgw.topups (id, account, amount, time)"
    " SELECT 'founding:' || name, name, free, " NGX_MODELGW_EXCHANGE_NOW
    " FROM n WHERE free > 0";


/*
 * "u" of the statements below: $1 names, $2 limits, $3 keys, $4 ms since the
 * configuration was loaded.  The limit that an operator has given a key is that
 * in "keys": a node that was away may not know it yet.
 */

#define NGX_MODELGW_OPEN_LIMITS                                               \
    "u AS ("                                                                  \
        "SELECT u.name, coalesce(k.budget, u.lim) AS lim,"                    \
            " CASE WHEN k.id IS NULL"                                         \
                " THEN " NGX_MODELGW_EXCHANGE_NOW " - $4 END AS since"        \
        " FROM unnest($1::text[], $2::bigint[], $3::text[])"                  \
            " AS u(name, lim, key)"                                           \
            " LEFT JOIN modelgw.keys k ON k.id = u.key"                       \
                " AND k.state = 'active' AND k.budget > 0"                    \
                " AND strpos(u.name, '/' || k.\"window\" || '/') > 0"         \
    ")"

/* less than a second apart may be the same configuration */

#define NGX_MODELGW_OPEN_DIFFERS                                              \
    "CASE WHEN u.since IS NULL THEN b.lim <> u.lim"                           \
        " ELSE b.since < u.since + 1000"                                      \
            " AND (b.lim <> u.lim OR b.since < u.since - 1000) END"


/* how many are not open, how many limits differ */

static const char  ngx_modelgw_exchange_differ[] =
    "WITH " NGX_MODELGW_OPEN_LIMITS
    " SELECT count(*) FILTER (WHERE b.name IS NULL),"
        " count(*) FILTER (WHERE " NGX_MODELGW_OPEN_DIFFERS ")"
    " FROM u LEFT JOIN modelgw.budgets b ON b.name = u.name";


static const char  ngx_modelgw_exchange_lock_mark[] =
    "SELECT value FROM modelgw.marks WHERE name = 'hours' FOR SHARE";

static const char  ngx_modelgw_exchange_lock_cluster[] =
    "SELECT one FROM modelgw.cluster FOR KEY SHARE";

static const char  ngx_modelgw_exchange_lock_nodes[] =
    "SELECT num FROM modelgw.nodes ORDER BY num FOR UPDATE";


/*
 * $1 names, $2 keys, $3 starts, $4 ends: positions of nodes, under an empty
 * name, and sums of calls up to there.  A day counts to the window that it
 * begins in.
 */

static const char  ngx_modelgw_exchange_summed[] =
    "WITH b AS ("
        "SELECT u.* FROM unnest($1::text[], $2::text[], $3::bigint[],"
            " $4::bigint[]) AS u(name, key, starts, ends)"
        " WHERE NOT EXISTS (SELECT 1 FROM modelgw.budgets x"
            " WHERE x.name = u.name)"
    ")"
    " SELECT '', num, pos FROM modelgw.nodes"
    " UNION ALL SELECT name, node, sum(cost)::bigint FROM ("
        "SELECT b.name, c.node, c.cost FROM b JOIN modelgw.calls c"
            " ON c.key = b.key AND c.ended >= b.starts AND c.ended < b.ends"
        " UNION ALL"
        " SELECT b.name, d.node, d.cost FROM b JOIN modelgw.days d"
            " ON d.key = b.key AND d.day >= to_char(to_timestamp(b.starts"
                " / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
            " AND extract(epoch FROM d.day::date) * 1000 >= b.starts"
            " AND extract(epoch FROM d.day::date) * 1000 < b.ends"
    ") AS x GROUP BY name, node";


/*
 * $1 to $4 as in "u", $5 starts, $6 ends; $7, $8, $9: what the statement above
 * has returned.  Calls since then are found by their positions, of any key:
 * with LIMIT no other plan is possible.
 */

static const char  ngx_modelgw_exchange_opened[] =
    "WITH " NGX_MODELGW_OPEN_LIMITS
    ", w AS ("
        "SELECT * FROM unnest($7::text[], $8::bigint[], $9::bigint[])"
            " AS w(name, node, n)"
    "), b AS ("
        "INSERT INTO modelgw.budgets (name, lim, since, key, starts, ends)"
        " SELECT u.name, u.lim, coalesce(u.since, 0), o.key, o.starts, o.ends"
        " FROM u JOIN unnest($1::text[], $3::text[], $5::bigint[],"
            " $6::bigint[]) AS o(name, key, starts, ends) ON o.name = u.name"
        " ORDER BY u.name ON CONFLICT DO NOTHING"
        " RETURNING name, lim, key, starts, ends"
    "), c AS MATERIALIZED ("
        "SELECT c.node, c.key, c.ended, c.cost FROM modelgw.nodes n"
            " LEFT JOIN w ON w.name = '' AND w.node = n.num"
            " CROSS JOIN LATERAL (SELECT * FROM modelgw.calls x"
                " WHERE x.node = n.num AND x.pos > coalesce(w.n, 0)"
                " ORDER BY x.pos LIMIT 1000000000) c"
    "), s AS ("
        "SELECT name, node, sum(cost)::bigint AS spent FROM ("
            "SELECT b.name, w.node, w.n AS cost FROM b"
                " JOIN w ON w.name = b.name"
            " UNION ALL"
            " SELECT b.name, c.node, c.cost FROM b JOIN c"
                " ON c.key = b.key AND c.ended >= b.starts AND c.ended < b.ends"
        ") AS x GROUP BY name, node"
    "), l AS ("
        "INSERT INTO modelgw.leases (node, account, granted, spent)"
        " SELECT node, name, spent, spent FROM s"
    ")"
    " INSERT INTO modelgw.accounts (name, free, opened)"
    " SELECT b.name, b.lim"
        " - coalesce((SELECT sum(s.spent) FROM s WHERE s.name = b.name), 0),"
        " " NGX_MODELGW_EXCHANGE_NOW " FROM b";


/* $1 names; before the limits are read, as they may be changed meanwhile */

static const char  ngx_modelgw_exchange_lock_accounts[] =
    "SELECT name FROM modelgw.accounts WHERE name = ANY($1)"
    " ORDER BY name FOR UPDATE";


static const char  ngx_modelgw_exchange_limited[] =
    "WITH " NGX_MODELGW_OPEN_LIMITS
    ", c AS ("
        "SELECT b.name, u.lim, coalesce(u.since, 0) AS since,"
            " u.lim - b.lim AS more"
        " FROM u JOIN modelgw.budgets b ON b.name = u.name"
        " WHERE " NGX_MODELGW_OPEN_DIFFERS
    "), ub AS ("
        "UPDATE modelgw.budgets b SET lim = c.lim, since = c.since"
        " FROM c WHERE b.name = c.name"
    ")"
    " UPDATE modelgw.accounts a SET free = a.free + c.more FROM c"
    " WHERE a.name = c.name AND c.more <> 0";


/* $1 ids, $2 accounts, $3 amounts, $4 times, $5 reasons */

static const char  ngx_modelgw_exchange_credited[] =
    "WITH a AS ("
        "SELECT name FROM modelgw.accounts WHERE name = ANY($2)"
        " ORDER BY name FOR UPDATE"
    "), t AS ("
        "INSERT INTO modelgw.topups (id, account, amount, time, reason)"
        " SELECT u.* FROM unnest($1::text[], $2::text[], $3::bigint[],"
            " $4::bigint[], $5::text[]) AS u(id, account)"
            " JOIN a ON a.name = u.account"
        " ORDER BY u.id ON CONFLICT (id) DO NOTHING"
        " RETURNING account, amount"
    "), s AS ("
        "SELECT account, sum(amount)::bigint AS amount FROM t GROUP BY account"
    ")"
    " UPDATE modelgw.accounts x SET free = x.free + s.amount"
    " FROM s WHERE x.name = s.account";


/*
 * $1 names, $2 version, $3 num.  Who changes accounts locks the cluster's row
 * first: one that was changed meanwhile has another version then.
 */

static const char  ngx_modelgw_exchange_closed[] =
    "WITH c AS ("
        "UPDATE modelgw.cluster SET keys_version = keys_version + 1"
        " WHERE EXISTS (SELECT 1 FROM modelgw.accounts"
            " WHERE name = ANY($1) AND state = 'open' AND version <= $2)"
        " RETURNING keys_version"
    "), l AS ("
        "SELECT a.name, c.keys_version FROM c, modelgw.accounts a"
        " WHERE a.name = ANY($1) AND a.state = 'open' AND a.version <= $2"
        " ORDER BY a.name FOR UPDATE OF a"
    "), a AS ("
        "UPDATE modelgw.accounts x SET state = 'closed',"
            " version = l.keys_version"
        " FROM l WHERE x.name = l.name RETURNING x.name"
    "), i AS ("
        "INSERT INTO modelgw.actions (node, id, time, actor, address, action,"
            " target, before, after)"
        " SELECT $3, greatest(" NGX_MODELGW_EXCHANGE_NOW ","
                " (SELECT max(id) FROM modelgw.actions WHERE node = $3) + 1)"
                " + row_number() OVER (), " NGX_MODELGW_EXCHANGE_NOW ","
            " 'failover', '', 'account.close', name, '{\"state\":\"open\"}',"
            " '{\"state\":\"closed\"}' FROM a"
    ")"
    " SELECT string_agg(name, ', ') FROM a";


ngx_int_t
ngx_modelgw_exchange_close(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_open_t *opens, ngx_uint_t n, uint64_t version,
    ngx_str_t *names)
{
    ngx_str_t                     text;
    ngx_uint_t                    i;
    ngx_modelgw_pq_array_t       *a;
    ngx_modelgw_pq_result_t      *result;
    ngx_modelgw_exchange_args_t   args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));

    a = &x->arrays[NGX_MODELGW_OPEN_NAME];
    ngx_modelgw_pq_array_begin(a, NGX_MODELGW_PQ_TEXT);

    for (i = 0; i < n; i++) {
        ngx_modelgw_pq_array_text(a, opens[i].name.data, opens[i].name.len);
    }

    ngx_modelgw_exchange_array(&args, a);
    ngx_modelgw_exchange_int(&args, version);
    ngx_modelgw_exchange_int(&args, x->num);

    if (ngx_modelgw_exchange_exec(x, ngx_modelgw_exchange_closed, &args,
                                  &result)
        != NGX_OK)
    {
        return NGX_AGAIN;
    }

    ngx_modelgw_pq_text(result, 0, 0, &text);

    names->len = ngx_min(text.len, names->len);
    ngx_memcpy(names->data, text.data, names->len);

    ngx_modelgw_pq_clear(result);

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_exchange_open(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_open_t *opens, ngx_uint_t n)
{
    if (ngx_modelgw_exchange_open_some(x, opens, n, 0)
        && ngx_modelgw_exchange_open_accounts(x) != NGX_OK)
    {
        return NGX_AGAIN;
    }

    if (ngx_modelgw_exchange_open_some(x, opens, n, 1)
        && ngx_modelgw_exchange_open_budgets(x) != NGX_OK)
    {
        return NGX_AGAIN;
    }

    return NGX_OK;
}


/* Sets the arrays: of budgets, or of accounts.  Returns how many there are. */

static ngx_uint_t
ngx_modelgw_exchange_open_some(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_open_t *opens, ngx_uint_t n, ngx_uint_t budgets)
{
    ngx_uint_t                    i;
    ngx_modelgw_pq_array_t       *a;
    ngx_modelgw_exchange_open_t  *open;

    static const uint32_t  types[] = {
        [NGX_MODELGW_OPEN_NAME] = NGX_MODELGW_PQ_TEXT,
        [NGX_MODELGW_OPEN_AMOUNT] = NGX_MODELGW_PQ_INT8,
        [NGX_MODELGW_OPEN_KEY] = NGX_MODELGW_PQ_TEXT,
        [NGX_MODELGW_OPEN_STARTS] = NGX_MODELGW_PQ_INT8,
        [NGX_MODELGW_OPEN_ENDS] = NGX_MODELGW_PQ_INT8
    };

    a = x->arrays;

    for (i = 0; i < NGX_MODELGW_OPEN_BUDGETS; i++) {
        ngx_modelgw_pq_array_begin(&a[i], types[i]);
    }

    for (i = 0; i < n; i++) {
        open = &opens[i];

        if ((open->key.len != 0) != budgets) {
            continue;
        }

        ngx_modelgw_pq_array_text(&a[NGX_MODELGW_OPEN_NAME], open->name.data,
                                  open->name.len);
        ngx_modelgw_pq_array_int(&a[NGX_MODELGW_OPEN_AMOUNT], open->amount);
        ngx_modelgw_pq_array_text(&a[NGX_MODELGW_OPEN_KEY], open->key.data,
                                  open->key.len);
        ngx_modelgw_pq_array_int(&a[NGX_MODELGW_OPEN_STARTS], open->starts);
        ngx_modelgw_pq_array_int(&a[NGX_MODELGW_OPEN_ENDS],
                                 ngx_min(open->ends, INT64_MAX));
    }

    return a[NGX_MODELGW_OPEN_NAME].n;
}


static ngx_int_t
ngx_modelgw_exchange_open_accounts(ngx_modelgw_exchange_t *x)
{
    ngx_int_t                     rc;
    ngx_modelgw_pq_result_t      *result;
    ngx_modelgw_exchange_args_t   args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));

    ngx_modelgw_exchange_array(&args, &x->arrays[NGX_MODELGW_OPEN_NAME]);
    ngx_modelgw_exchange_array(&args, &x->arrays[NGX_MODELGW_OPEN_AMOUNT]);

    rc = ngx_modelgw_exchange_exec(x, ngx_modelgw_exchange_founded, &args,
                                   &result);
    ngx_modelgw_pq_clear(result);

    return rc;
}


static ngx_int_t
ngx_modelgw_exchange_open_budgets(ngx_modelgw_exchange_t *x)
{
    ngx_uint_t                    missing, differ;
    ngx_modelgw_pq_result_t      *result;
    ngx_modelgw_exchange_args_t   args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));

    ngx_modelgw_exchange_open_limit(x, &args);

    if (ngx_modelgw_exchange_exec(x, ngx_modelgw_exchange_differ, &args,
                                  &result)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    missing = ngx_modelgw_pq_int(result, 0, 0);
    differ = ngx_modelgw_pq_int(result, 0, 1);

    ngx_modelgw_pq_clear(result);

    if (missing && ngx_modelgw_exchange_open_new(x) != NGX_OK) {
        return NGX_ERROR;
    }

    if (differ && ngx_modelgw_exchange_open_limits(x) != NGX_OK) {
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* The parameters of "u". */

static void
ngx_modelgw_exchange_open_limit(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_args_t *args)
{
    ngx_modelgw_exchange_array(args, &x->arrays[NGX_MODELGW_OPEN_NAME]);
    ngx_modelgw_exchange_array(args, &x->arrays[NGX_MODELGW_OPEN_AMOUNT]);
    ngx_modelgw_exchange_array(args, &x->arrays[NGX_MODELGW_OPEN_KEY]);
    ngx_modelgw_exchange_int(args, x->age);
}


static ngx_int_t
ngx_modelgw_exchange_open_new(ngx_modelgw_exchange_t *x)
{
    ngx_uint_t                   i;
    ngx_modelgw_exchange_args_t  args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));

    if (ngx_modelgw_exchange_open_sums(x) != NGX_OK
        || ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_lock_cluster,
                                    &args)
           != NGX_OK
        || ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_lock_nodes, &args)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_exchange_open_limit(x, &args);

    for (i = NGX_MODELGW_OPEN_STARTS; i < NGX_MODELGW_OPEN_ARRAYS; i++) {
        ngx_modelgw_exchange_array(&args, &x->arrays[i]);
    }

    if (ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_opened, &args)
        != NGX_OK
        || ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_commit, &args)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_modelgw_pq_run(x->pq, NGX_MODELGW_EXCHANGE_LONG, NULL, 0,
                              &x->error);
}


/* Begins the transaction, and sets the last three arrays. */

static ngx_int_t
ngx_modelgw_exchange_open_sums(ngx_modelgw_exchange_t *x)
{
    ngx_str_t                     name;
    ngx_uint_t                    i;
    ngx_modelgw_pq_array_t       *a;
    ngx_modelgw_pq_result_t      *results[3];
    ngx_modelgw_exchange_args_t   args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));
    a = x->arrays;

    if (ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_begin, &args)
        != NGX_OK
        || ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_lock_mark, &args)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_exchange_array(&args, &a[NGX_MODELGW_OPEN_NAME]);

    for (i = NGX_MODELGW_OPEN_KEY; i < NGX_MODELGW_OPEN_BUDGETS; i++) {
        ngx_modelgw_exchange_array(&args, &a[i]);
    }

    if (ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_summed, &args)
        != NGX_OK
        || ngx_modelgw_pq_run(x->pq, NGX_MODELGW_EXCHANGE_LONG, results, 3,
                              &x->error)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_pq_array_begin(&a[NGX_MODELGW_OPEN_SUMMED],
                               NGX_MODELGW_PQ_TEXT);
    ngx_modelgw_pq_array_begin(&a[NGX_MODELGW_OPEN_NODE], NGX_MODELGW_PQ_INT8);
    ngx_modelgw_pq_array_begin(&a[NGX_MODELGW_OPEN_SUM], NGX_MODELGW_PQ_INT8);

    for (i = 0; i < ngx_modelgw_pq_rows(results[2]); i++) {
        ngx_modelgw_pq_text(results[2], i, 0, &name);

        ngx_modelgw_pq_array_text(&a[NGX_MODELGW_OPEN_SUMMED], name.data,
                                  name.len);
        ngx_modelgw_pq_array_int(&a[NGX_MODELGW_OPEN_NODE],
                                 ngx_modelgw_pq_int(results[2], i, 1));
        ngx_modelgw_pq_array_int(&a[NGX_MODELGW_OPEN_SUM],
                                 ngx_modelgw_pq_int(results[2], i, 2));
    }

    for (i = 0; i < 3; i++) {
        ngx_modelgw_pq_clear(results[i]);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_exchange_open_limits(ngx_modelgw_exchange_t *x)
{
    ngx_modelgw_exchange_args_t  args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));

    if (ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_begin, &args)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_exchange_array(&args, &x->arrays[NGX_MODELGW_OPEN_NAME]);

    if (ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_lock_accounts, &args)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_exchange_open_limit(x, &args);

    if (ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_limited, &args)
        != NGX_OK
        || ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_commit, &args)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_modelgw_pq_run(x->pq, NGX_MODELGW_EXCHANGE_LONG, NULL, 0,
                              &x->error);
}


ngx_int_t
ngx_modelgw_exchange_topups(ngx_modelgw_exchange_t *x,
    ngx_modelgw_journal_topup_t *topups, ngx_uint_t n)
{
    ngx_int_t                     rc;
    ngx_modelgw_pq_result_t      *result;
    ngx_modelgw_exchange_args_t   args;

    static const ngx_modelgw_pq_column_t  columns[] = {
        ngx_modelgw_pq_string(ngx_modelgw_journal_topup_t, id),
        ngx_modelgw_pq_string(ngx_modelgw_journal_topup_t, account),
        ngx_modelgw_pq_number(ngx_modelgw_journal_topup_t, amount),
        ngx_modelgw_pq_number(ngx_modelgw_journal_topup_t, time),
        ngx_modelgw_pq_string(ngx_modelgw_journal_topup_t, reason)
    };

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));

    ngx_modelgw_exchange_columns(x, &args, columns,
                                 sizeof(columns) / sizeof(columns[0]), topups,
                                 sizeof(ngx_modelgw_journal_topup_t), n);

    rc = ngx_modelgw_exchange_exec(x, ngx_modelgw_exchange_credited, &args,
                                   &result);
    ngx_modelgw_pq_clear(result);

    return (rc == NGX_OK) ? NGX_OK : NGX_AGAIN;
}
