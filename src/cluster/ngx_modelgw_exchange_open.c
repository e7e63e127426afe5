
/*
 * Opening what is lent, and saying top-ups again.  An account is opened with
 * its founding credit, by whichever node names it first.
 *
 * A budget is opened with its limit less what the calls of its window have cost
 * so far, and each node gets a lease that it has used up with its own: so
 * "left" of a lease means the same to the node, which counts all calls of the
 * window.  No call may be missed or counted twice, so no exchange is running
 * meanwhile: an exchange begins with the lock of its node's row, this with the
 * locks of all of them, and of the cluster's, without which no node can be
 * added.  They are held only if there is a budget that is not open.
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
    NGX_MODELGW_OPEN_ARRAYS
} ngx_modelgw_open_array_e;


static ngx_uint_t ngx_modelgw_exchange_open_some(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_open_t *opens, ngx_uint_t n, ngx_uint_t budgets);
static ngx_int_t ngx_modelgw_exchange_open_accounts(ngx_modelgw_exchange_t *x);
static ngx_int_t ngx_modelgw_exchange_open_budgets(ngx_modelgw_exchange_t *x);
static ngx_int_t ngx_modelgw_exchange_open_new(ngx_modelgw_exchange_t *x);
static ngx_int_t ngx_modelgw_exchange_open_limits(ngx_modelgw_exchange_t *x);


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


/* $1 names, $2 limits: how many are not open, how many limits differ */

static const char  ngx_modelgw_exchange_differ[] =
    "SELECT count(*) FILTER (WHERE b.name IS NULL),"
        " count(*) FILTER (WHERE b.lim <> u.lim)"
    " FROM unnest($1::text[], $2::bigint[]) AS u(name, lim)"
        " LEFT JOIN modelgw.budgets b ON b.name = u.name";


static const char  ngx_modelgw_exchange_lock_cluster[] =
    "SELECT one FROM modelgw.cluster FOR KEY SHARE";

static const char  ngx_modelgw_exchange_lock_nodes[] =
    "SELECT num FROM modelgw.nodes ORDER BY num FOR UPDATE";


/*
 * $1 names, $2 limits, $3 keys, $4 starts, $5 ends.  A day counts to the window
 * that it begins in.
 */

static const char  ngx_modelgw_exchange_opened[] =
    "WITH b AS ("
        "INSERT INTO modelgw.budgets (name, lim, key, starts, ends)"
        " SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[],"
            " $4::bigint[], $5::bigint[]) AS u(name)"
        " ORDER BY u.name ON CONFLICT DO NOTHING"
        " RETURNING name, lim, key, starts, ends"
    "), s AS ("
        "SELECT name, node, sum(cost)::bigint AS spent FROM ("
            "SELECT b.name, c.node, c.cost FROM b JOIN modelgw.calls c"
                " ON c.key = b.key AND c.ended >= b.starts AND c.ended < b.ends"
            " UNION ALL"
            " SELECT b.name, d.node, d.cost FROM b JOIN modelgw.days d"
                " ON d.key = b.key AND d.day >= to_char(to_timestamp(b.starts"
                    " / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
                " AND extract(epoch FROM d.day::date) * 1000 >= b.starts"
                " AND extract(epoch FROM d.day::date) * 1000 < b.ends"
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


/* $1 names, $2 limits */

static const char  ngx_modelgw_exchange_limited[] =
    "WITH c AS ("
        "SELECT b.name, u.lim, u.lim - b.lim AS more"
        " FROM unnest($1::text[], $2::bigint[]) AS u(name, lim)"
            " JOIN modelgw.budgets b ON b.name = u.name"
        " WHERE b.lim <> u.lim"
    "), ub AS ("
        "UPDATE modelgw.budgets b SET lim = c.lim FROM c WHERE b.name = c.name"
    ")"
    " UPDATE modelgw.accounts a SET free = a.free + c.more FROM c"
    " WHERE a.name = c.name";


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

    for (i = 0; i < NGX_MODELGW_OPEN_ARRAYS; i++) {
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

    ngx_modelgw_exchange_array(&args, &x->arrays[NGX_MODELGW_OPEN_NAME]);
    ngx_modelgw_exchange_array(&args, &x->arrays[NGX_MODELGW_OPEN_AMOUNT]);

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


static ngx_int_t
ngx_modelgw_exchange_open_new(ngx_modelgw_exchange_t *x)
{
    ngx_uint_t                   i;
    ngx_modelgw_exchange_args_t  args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));

    if (ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_begin, &args)
        != NGX_OK
        || ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_lock_cluster,
                                    &args)
           != NGX_OK
        || ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_lock_nodes, &args)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < NGX_MODELGW_OPEN_ARRAYS; i++) {
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

    ngx_modelgw_exchange_array(&args, &x->arrays[NGX_MODELGW_OPEN_NAME]);
    ngx_modelgw_exchange_array(&args, &x->arrays[NGX_MODELGW_OPEN_AMOUNT]);

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

    static const ngx_modelgw_exchange_column_t  columns[] = {
        ngx_modelgw_exchange_string(ngx_modelgw_journal_topup_t, id),
        ngx_modelgw_exchange_string(ngx_modelgw_journal_topup_t, account),
        ngx_modelgw_exchange_number(ngx_modelgw_journal_topup_t, amount),
        ngx_modelgw_exchange_number(ngx_modelgw_journal_topup_t, time),
        ngx_modelgw_exchange_string(ngx_modelgw_journal_topup_t, reason)
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
