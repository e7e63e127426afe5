
/*
 * The limits of keys, and the database: a transaction of its own, which need
 * not be durable.
 *
 *     BEGIN, SET LOCAL, [minute], [lock, slots], nodes, COMMIT
 *
 * minute  a row of "limits" has a count for each second, from 60 before the
 *         last change to 5 after it, and their sum.  Used requests and tokens
 *         are in the second when they were used; what nodes have and have not
 *         used is in the last one, as it may be used until then, and each
 *         answer moves it there again.  So the sum is never less than what was
 *         used in the last 60 seconds and what may still be used, and lending
 *         no more than the limit keeps all of them together below it.
 * slots   the same for calls in flight: a row for each node, which counts for
 *         10 s.  The row of the key in "limits" is its lock.
 *
 * Rows are locked in the order of keys and kinds, those of calls in flight
 * last.  A row that is not there is not updated: it is added on its own, then
 * all is said again that was not answered.
 *
 * A clock of the database that goes back by more than the 5 s leaves what was
 * counted where it was, as seen from the new time.
 *
 * Rejected: a sliding minute of two counts, now and before: a burst at the end
 * of one minute, and what it leaves of the next one, is up to twice the limit
 * in 60 s.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_limits.h"
#include "ngx_modelgw_share.h"


#define NGX_MODELGW_LIMITS_ASKS     256  /* in a transaction, at most */
#define NGX_MODELGW_LIMITS_COLUMNS  12
#define NGX_MODELGW_LIMITS_RESULTS  7
#define NGX_MODELGW_LIMITS_TIMEOUT  NGX_MODELGW_SHARE_PATIENCE


typedef struct {
    ngx_modelgw_pq_t            *pq;
    ngx_modelgw_pq_error_t      *error;
    ngx_uint_t                   results; /* statements added */
    ngx_uint_t                   minute; /* the place of its result */
    ngx_uint_t                   slots;
    ngx_uint_t                   nodes;

    ngx_uint_t                   n;
    ngx_modelgw_share_ask_t     *asks;
    ngx_modelgw_share_said_t     said[NGX_MODELGW_LIMITS_ASKS];
    u_char                       answered[NGX_MODELGW_LIMITS_ASKS];
    ngx_uint_t                   places[NGX_MODELGW_LIMITS_ASKS];
                                         /* in asks, of rows of a statement */
    ngx_modelgw_pq_array_t       arrays[NGX_MODELGW_LIMITS_COLUMNS];
} ngx_modelgw_limits_run_t;


static ngx_int_t ngx_modelgw_limits_run(ngx_modelgw_limits_run_t *run,
    uint64_t node, uint64_t live, uint64_t *nodes);
static ngx_int_t ngx_modelgw_limits_minute(ngx_modelgw_limits_run_t *run,
    uint64_t live);
static ngx_int_t ngx_modelgw_limits_slots(ngx_modelgw_limits_run_t *run,
    uint64_t node, uint64_t live);
static ngx_int_t ngx_modelgw_limits_nodes(ngx_modelgw_limits_run_t *run,
    uint64_t node);
static ngx_int_t ngx_modelgw_limits_add_rows(ngx_modelgw_limits_run_t *run);
static ngx_uint_t ngx_modelgw_limits_pick(ngx_modelgw_limits_run_t *run,
    ngx_uint_t calls);
static ngx_int_t ngx_modelgw_limits_columns(ngx_modelgw_limits_run_t *run,
    const ngx_modelgw_pq_column_t *columns, ngx_uint_t n, ngx_uint_t rows,
    ngx_modelgw_pq_param_t *params);
static ngx_int_t ngx_modelgw_limits_add(ngx_modelgw_limits_run_t *run,
    const char *sql, ngx_modelgw_pq_param_t *params, ngx_uint_t n,
    ngx_uint_t *place);
static ngx_uint_t ngx_modelgw_limits_said(ngx_modelgw_limits_run_t *run,
    ngx_modelgw_pq_result_t *result, ngx_uint_t calls);


/* of asks, as arrays in the order of their parameters */

#define ngx_modelgw_limits_number(name)                                       \
    ngx_modelgw_pq_number(ngx_modelgw_share_ask_t, name)

static const ngx_modelgw_pq_column_t  ngx_modelgw_limits_minute_columns[] =
{
    { NGX_MODELGW_PQ_TEXT, 0 },
    { NGX_MODELGW_PQ_INT4, 0 },
    ngx_modelgw_limits_number(limit),
    ngx_modelgw_limits_number(second),
    ngx_modelgw_limits_number(booked),
    ngx_modelgw_limits_number(used),
    ngx_modelgw_limits_number(age),
    ngx_modelgw_limits_number(keep),
    ngx_modelgw_limits_number(least),
    ngx_modelgw_limits_number(need),
    ngx_modelgw_limits_number(want),
    ngx_modelgw_limits_number(most)
};

static const ngx_modelgw_pq_column_t  ngx_modelgw_limits_slots_columns[] =
{
    { NGX_MODELGW_PQ_TEXT, 0 },
    ngx_modelgw_limits_number(limit),
    ngx_modelgw_limits_number(keep),
    ngx_modelgw_limits_number(need),
    ngx_modelgw_limits_number(want),
    ngx_modelgw_limits_number(idle)
};

#define NGX_MODELGW_LIMITS_NOW  "(extract(epoch FROM now()) * 1000)::bigint"


/*
 * $1 to $12: the columns above; $13 nodes that live.  A time of the database
 * that is a little behind that of the last change is of a transaction that has
 * waited for it.
 *
 *     a, b   places of what is used now, and of what is booked, in the new
 *            counts; shift: in the old ones they are so much further
 *     over   is too old to count; "new_counts" and "sum" are without it
 *     took   what is lent: calls that wait come first
 */

static const char  ngx_modelgw_limits_minute_sql[] =
    "WITH u AS ("
        "SELECT * FROM unnest($1::text[], $2::integer[], $3::bigint[],"
            " $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],"
            " $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[],"
            " $12::bigint[]) WITH ORDINALITY AS u(key, kind, lim, second,"
            " booked, used, age, keep, least, need, want, most, no)"
    "), l AS ("
        "SELECT l.* FROM u JOIN modelgw.limits l ON l.key = u.key"
            " AND l.kind = u.kind ORDER BY l.key, l.kind FOR UPDATE OF l"
    "), t AS ("
        "SELECT " NGX_MODELGW_LIMITS_NOW " AS ms"
    "), n AS ("
        "SELECT u.*, l.counts, l.total, t.ms,"
            " CASE WHEN l.second - t.ms / 1000 BETWEEN 0 AND 5 THEN l.second"
                " ELSE t.ms / 1000 END AS now,"
            " least(greatest(t.ms / 1000 - l.second, 0), 66)::integer AS shift"
        " FROM u JOIN l ON l.key = u.key AND l.kind = u.kind CROSS JOIN t"
    "), p AS MATERIALIZED ("
        "SELECT n.*, ((ms - age) / 1000 - now + 61)::integer AS a,"
            " least(greatest(second - now + 61, 0), 67)::integer AS b,"
            " (SELECT coalesce(sum(counts[i]), 0)"
                " FROM generate_series(1, shift) i)::bigint AS over"
        " FROM n"
    "), c AS MATERIALIZED ("
        "SELECT p.*, CASE WHEN a > 0 THEN used ELSE 0 END AS new,"
            " CASE WHEN b > 0 THEN least(booked, coalesce(counts[b + shift],"
                " 0)) ELSE 0 END AS back"
        " FROM p"
    "), g AS MATERIALIZED ("
        "SELECT *, CASE WHEN rest < least THEN 0"
                " ELSE least(need, rest) + least(want,"
                    " (rest - least(need, rest)) / (2 * $13::bigint))"
                " END AS took"
        " FROM (SELECT c.*, total - over - back + new + keep AS sum,"
            " greatest(lim - total + over + back - new - keep, 0) AS rest"
            " FROM c) x"
    "), h AS MATERIALIZED ("
        "SELECT g.*, ARRAY(SELECT coalesce(g.counts[i + shift], 0)"
            " - CASE WHEN i = b THEN back ELSE 0 END"
            " + CASE WHEN i = a THEN new ELSE 0 END"
            " + CASE WHEN i = 66 THEN keep + took ELSE 0 END"
            " FROM generate_series(1, 66) i) AS new_counts"
        " FROM g"
    ") UPDATE modelgw.limits x SET second = h.now, lim = h.lim,"
        " total = h.sum + h.took, counts = h.new_counts"
    " FROM h CROSS JOIN LATERAL ("
        "SELECT min(i) FILTER (WHERE sum >= h.least) AS least,"
            " min(i) FILTER (WHERE sum >= h.most) AS most"
        " FROM (SELECT i, sum(n) OVER (ORDER BY i) + h.rest - h.took AS sum"
            " FROM unnest(h.new_counts) WITH ORDINALITY AS c(n, i)"
            " WHERE h.took < h.need) s"
    ") w"
    " WHERE x.key = h.key AND x.kind = h.kind"
    " RETURNING h.no, h.took, h.now + 5 AS second, h.rest - h.took AS rest,"
        " (h.now + w.least) * 1000 - h.ms AS wait,"
        " (h.now + w.most) * 1000 - h.ms AS wait_most, 0 AS lacks,"
        " 0 AS idle";


/* $1 keys, $2 limits */

static const char  ngx_modelgw_limits_lock_sql[] =
    "INSERT INTO modelgw.limits AS l (key, kind, second, counts, total, lim)"
    " SELECT key, 2, " NGX_MODELGW_LIMITS_NOW " / 1000, '{}', 0, lim"
        " FROM unnest($1::text[], $2::bigint[]) AS u(key, lim) ORDER BY key"
    " ON CONFLICT (key, kind) DO UPDATE SET second = excluded.second,"
        " lim = excluded.lim";


/*
 * $1 to $6: the columns above; $7 this node, $8 nodes that live.  Only
 * statements that begin when the lock is held see what others have done.  What
 * is idle is a negative "lacks" in the table.
 */

static const char  ngx_modelgw_limits_slots_sql[] =
    "WITH u AS ("
        "SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[],"
            " $4::bigint[], $5::bigint[], $6::bigint[]) WITH ORDINALITY"
            " AS u(key, lim, keep, need, want, idle, no)"
    "), t AS ("
        "SELECT " NGX_MODELGW_LIMITS_NOW " AS ms"
    "), o AS ("
        "SELECT s.key, sum(s.slots)::bigint AS slots,"
            " (sum(greatest(s.lacks, 0)) FILTER (WHERE s.seen > t.ms - 2000))"
                "::bigint AS lacks,"
            " (sum(greatest(-s.lacks, 0)) FILTER (WHERE s.seen > t.ms - 2000))"
                "::bigint AS idle"
        " FROM modelgw.slots s CROSS JOIN t WHERE s.key = ANY($1::text[])"
            " AND s.node <> $7::bigint AND s.seen > t.ms - 10000"
        " GROUP BY s.key"
    "), c AS ("
        "SELECT u.*, coalesce(o.lacks, 0) AS others_lack,"
            " coalesce(o.idle, 0) AS others_idle,"
            " greatest(lim - keep - coalesce(o.slots, 0), 0) AS rest"
        " FROM u LEFT JOIN o ON o.key = u.key"
    "), g AS ("
        "SELECT c.*, least(need, rest) + least(want,"
            " (rest - least(need, rest)) / (2 * $8::bigint)) AS took"
        " FROM c"
    "), s AS ("
        "INSERT INTO modelgw.slots (key, node, slots, lacks, seen)"
        " SELECT key, $7::bigint, keep + took, need - took - idle, t.ms"
            " FROM g CROSS JOIN t"
        " ON CONFLICT (key, node) DO UPDATE SET slots = excluded.slots,"
            " lacks = excluded.lacks, seen = excluded.seen"
    ") SELECT no, took, 1 AS second, rest - took AS rest, 0 AS wait,"
        " 0 AS wait_most, others_lack AS lacks, others_idle AS idle FROM g";


/* $1 this node, $2 ms since a node was seen that lives */

static const char  ngx_modelgw_limits_nodes_sql[] =
    "SELECT count(*), count(*) FILTER (WHERE num < $1::bigint)"
    " FROM modelgw.nodes WHERE state = 0"
        " AND seen > " NGX_MODELGW_LIMITS_NOW " - $2::bigint";


/* $1 keys, $2 kinds */

static const char  ngx_modelgw_limits_rows_sql[] =
    "INSERT INTO modelgw.limits (key, kind, second, counts, total, lim)"
    " SELECT key, kind, 0, '{}', 0, 0"
        " FROM unnest($1::text[], $2::integer[]) AS u(key, kind)"
        " ORDER BY key, kind"
    " ON CONFLICT (key, kind) DO NOTHING";


ngx_int_t
ngx_modelgw_limits_exchange(ngx_modelgw_pq_t *pq, ngx_modelgw_ledger_t *l,
    uint64_t node, uint64_t live, ngx_modelgw_pq_error_t *error)
{
    uint64_t                  time, nodes[2] = { 0, 0 };
    ngx_int_t                 rc;
    ngx_uint_t                i, tries;
    ngx_modelgw_share_ask_t   asks[NGX_MODELGW_LIMITS_ASKS];
    ngx_modelgw_limits_run_t  run;

    time = ngx_modelgw_ledger_clock();

    ngx_memzero(&run, sizeof(ngx_modelgw_limits_run_t));

    run.pq = pq;
    run.error = error;
    run.asks = asks;
    run.n = ngx_modelgw_shares_asks(l, time, asks, NGX_MODELGW_LIMITS_ASKS);

    /* without an answer the rank is known of one that is alone only */

    if (run.n == 0) {
        ngx_modelgw_shares_reached(l, time, (live == 1), 0);
        return NGX_OK;
    }

    /* a row that was added may be deleted at once, but not twice */

    rc = NGX_AGAIN;

    for (tries = 0; rc == NGX_AGAIN && tries < 3; tries++) {
        rc = ngx_modelgw_limits_run(&run, node, ngx_max(live, 1), nodes);
    }

    for (i = 0; i < NGX_MODELGW_LIMITS_COLUMNS; i++) {
        ngx_modelgw_pq_array_free(&run.arrays[i]);
    }

    ngx_modelgw_ledger_lock(l);

    for (i = 0; i < run.n; i++) {

        if (run.answered[i]) {
            ngx_modelgw_share_said_locked(l, &asks[i], &run.said[i],
                                          ngx_modelgw_ledger_clock());

        } else {
            ngx_modelgw_share_unsaid_locked(l, &asks[i]);
        }
    }

    ngx_modelgw_ledger_unlock(l);

    if (rc != NGX_OK) {
        return NGX_AGAIN;
    }

    ngx_modelgw_shares_reached(l, time, nodes[0], nodes[1]);

    return NGX_OK;
}


/*
 * Says what is not answered.
 *     NGX_OK     it was
 *     NGX_AGAIN  there were no rows for some: now there are
 *     NGX_ERROR  it is not known which
 */

static ngx_int_t
ngx_modelgw_limits_run(ngx_modelgw_limits_run_t *run, uint64_t node,
    uint64_t live, uint64_t *nodes)
{
    ngx_int_t                 rc;
    ngx_uint_t                i, missing;
    ngx_modelgw_pq_result_t  *results[NGX_MODELGW_LIMITS_RESULTS];

    run->results = 0;

    if (ngx_modelgw_limits_add(run, "BEGIN", NULL, 0, NULL) != NGX_OK
        || ngx_modelgw_limits_add(run, "SET LOCAL synchronous_commit = off",
                                  NULL, 0, NULL) != NGX_OK
        || ngx_modelgw_limits_minute(run, live) != NGX_OK
        || ngx_modelgw_limits_slots(run, node, live) != NGX_OK
        || ngx_modelgw_limits_nodes(run, node) != NGX_OK
        || ngx_modelgw_limits_add(run, "COMMIT", NULL, 0, NULL) != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_modelgw_pq_run(run->pq, NGX_MODELGW_LIMITS_TIMEOUT, results,
                            run->results, run->error);
    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    missing = 0;

    if (run->minute) {
        missing = ngx_modelgw_limits_said(run, results[run->minute], 0);
    }

    if (run->slots) {
        (void) ngx_modelgw_limits_said(run, results[run->slots], 1);
    }

    nodes[0] = ngx_modelgw_pq_int(results[run->nodes], 0, 0);
    nodes[1] = ngx_modelgw_pq_int(results[run->nodes], 0, 1);

    for (i = 0; i < run->results; i++) {
        ngx_modelgw_pq_clear(results[i]);
    }

    return missing ? ngx_modelgw_limits_add_rows(run) : NGX_OK;
}


static ngx_int_t
ngx_modelgw_limits_minute(ngx_modelgw_limits_run_t *run, uint64_t live)
{
    u_char                  buf[sizeof(int64_t)];
    ngx_uint_t              n;
    ngx_modelgw_pq_param_t  params[NGX_MODELGW_LIMITS_COLUMNS + 1];

    run->minute = 0;

    n = ngx_modelgw_limits_pick(run, 0);

    if (n == 0) {
        return NGX_OK;
    }

    if (ngx_modelgw_limits_columns(run, ngx_modelgw_limits_minute_columns,
                                   NGX_MODELGW_LIMITS_COLUMNS, n, params)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_pq_param_int(&params[NGX_MODELGW_LIMITS_COLUMNS], buf, live);

    return ngx_modelgw_limits_add(run, ngx_modelgw_limits_minute_sql, params,
                                  NGX_MODELGW_LIMITS_COLUMNS + 1,
                                  &run->minute);
}


static ngx_int_t
ngx_modelgw_limits_slots(ngx_modelgw_limits_run_t *run, uint64_t node,
    uint64_t live)
{
    u_char                  buf[2][sizeof(int64_t)];
    ngx_uint_t              n;
    ngx_modelgw_pq_param_t  params[8];

    run->slots = 0;

    n = ngx_modelgw_limits_pick(run, 1);

    if (n == 0) {
        return NGX_OK;
    }

    if (ngx_modelgw_limits_columns(run, ngx_modelgw_limits_slots_columns, 6, n,
                                   params)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_modelgw_limits_add(run, ngx_modelgw_limits_lock_sql, params, 2,
                               NULL)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_pq_param_int(&params[6], buf[0], node);
    ngx_modelgw_pq_param_int(&params[7], buf[1], live);

    return ngx_modelgw_limits_add(run, ngx_modelgw_limits_slots_sql, params, 8,
                                  &run->slots);
}


static ngx_int_t
ngx_modelgw_limits_nodes(ngx_modelgw_limits_run_t *run, uint64_t node)
{
    u_char                  buf[2][sizeof(int64_t)];
    ngx_modelgw_pq_param_t  params[2];

    ngx_modelgw_pq_param_int(&params[0], buf[0], node);
    ngx_modelgw_pq_param_int(&params[1], buf[1], NGX_MODELGW_SHARE_SLOTS);

    return ngx_modelgw_limits_add(run, ngx_modelgw_limits_nodes_sql, params, 2,
                                  &run->nodes);
}


/* Those that were not answered have none; in a transaction of its own. */

static ngx_int_t
ngx_modelgw_limits_add_rows(ngx_modelgw_limits_run_t *run)
{
    ngx_uint_t              n;
    ngx_modelgw_pq_param_t  params[2];

    n = ngx_modelgw_limits_pick(run, 0);

    if (ngx_modelgw_limits_columns(run, ngx_modelgw_limits_minute_columns, 2,
                                   n, params)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return (ngx_modelgw_pq_exec(run->pq, ngx_modelgw_limits_rows_sql, params,
                                2, NGX_MODELGW_LIMITS_TIMEOUT, NULL,
                                run->error)
            == NGX_OK)
           ? NGX_AGAIN : NGX_ERROR;
}


/* The places of asks of calls in flight, or the others, not yet answered. */

static ngx_uint_t
ngx_modelgw_limits_pick(ngx_modelgw_limits_run_t *run, ngx_uint_t calls)
{
    ngx_uint_t  i, n;

    n = 0;

    for (i = 0; i < run->n; i++) {
        if (!run->answered[i]
            && (run->asks[i].kind == NGX_MODELGW_SHARE_CALLS) == calls)
        {
            run->places[n++] = i;
        }
    }

    return n;
}


static ngx_int_t
ngx_modelgw_limits_columns(ngx_modelgw_limits_run_t *run,
    const ngx_modelgw_pq_column_t *columns, ngx_uint_t n, ngx_uint_t rows,
    ngx_modelgw_pq_param_t *params)
{
    ngx_uint_t                i, k;
    ngx_modelgw_pq_array_t   *a;
    ngx_modelgw_share_ask_t  *ask;

    for (i = 0; i < n; i++) {
        a = &run->arrays[i];

        ngx_modelgw_pq_array_begin(a, columns[i].type);

        for (k = 0; k < rows; k++) {
            ask = &run->asks[run->places[k]];

            switch (columns[i].type) {

            case NGX_MODELGW_PQ_TEXT:
                ngx_modelgw_pq_array_text(a, ask->name.data, ask->name.len);
                break;

            case NGX_MODELGW_PQ_INT4:
                ngx_modelgw_pq_array_int(a, ask->kind);
                break;

            default:
                ngx_modelgw_pq_array_column(a, &columns[i], ask,
                                            sizeof(ngx_modelgw_share_ask_t), 1);
            }
        }

        if (ngx_modelgw_pq_array_end(a, &params[i]) != NGX_OK) {
            run->error->state[0] = '\0';
            run->error->len = ngx_sprintf(run->error->data, "no memory")
                              - run->error->data;
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_limits_add(ngx_modelgw_limits_run_t *run, const char *sql,
    ngx_modelgw_pq_param_t *params, ngx_uint_t n, ngx_uint_t *place)
{
    if (place) {
        *place = run->results;
    }

    run->results++;

    return ngx_modelgw_pq_add(run->pq, sql, params, n, run->error);
}


/* Returns how many of the asks have no answer. */

static ngx_uint_t
ngx_modelgw_limits_said(ngx_modelgw_limits_run_t *run,
    ngx_modelgw_pq_result_t *result, ngx_uint_t calls)
{
    uint64_t                   no;
    ngx_uint_t                 i, n, left, rows, place;
    ngx_modelgw_share_said_t  *said;

    n = ngx_modelgw_limits_pick(run, calls);
    rows = ngx_modelgw_pq_rows(result);
    left = n;

    for (i = 0; i < rows; i++) {
        no = ngx_modelgw_pq_int(result, i, 0);

        if (no < 1 || no > n || run->answered[run->places[no - 1]]) {
            continue;
        }

        place = run->places[no - 1];
        said = &run->said[place];

        said->took = ngx_modelgw_pq_int(result, i, 1);
        said->second = ngx_modelgw_pq_int(result, i, 2);
        said->rest = ngx_modelgw_pq_int(result, i, 3);
        said->wait = ngx_modelgw_pq_int(result, i, 4);
        said->wait_most = ngx_modelgw_pq_int(result, i, 5);
        said->lacks = ngx_modelgw_pq_int(result, i, 6);
        said->idle = ngx_modelgw_pq_int(result, i, 7);

        run->answered[place] = 1;
        left--;
    }

    return left;
}
