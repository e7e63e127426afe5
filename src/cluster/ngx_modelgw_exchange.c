
/*
 * The exchange: one transaction, sent at once in a pipeline.
 *
 *     BEGIN, fence, [prices, calls, late], [money], answer, [elsewhere], COMMIT
 *
 * fence      locks the node's row.  It fails, and all that follows with it,
 *            unless the epoch is that of this process, and the position the one
 *            that the node knows: so calls are stored exactly once, whatever
 *            was lost, is late, or is said again.
 * calls      what was settled; what it has cost is added to the node's leases,
 *            also to those of budgets of keys: a lease cannot be charged
 *            without the calls, nor calls be there without the charge.
 * late       adds calls to "hours" that ended before its mark.
 * money      for accounts where something is borrowed, given back, or a recall
 *            is answered.  The account's row is locked here, not by settling.
 *            "cover" is what the lease is short of (usage above a hold, or a
 *            grant that a failover has lost), and is always granted; "need",
 *            what a waiting call lacks, wholly or not at all: two calls that
 *            hold a half each would both wait for ever; "want" is lent in
 *            advance, a share of what is left, nothing during a recall.
 * answer     what is new.
 * elsewhere  for calls that wait: what other nodes have, and who has not
 *            answered.
 *
 * Nothing is counted by the node: "returned" is said as a total, and so may be
 * said again.  All decisions are made on rows that the statement has locked, or
 * that are written under the lock of the node's row, so READ COMMITTED is
 * enough.
 *
 * Rejected: numbers of batches (after a crash the same number may have other
 * calls in it); NOTIFY (it takes a lock of the whole server when it commits,
 * and does not pass every pooler).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_exchange_private.h"


#define NGX_MODELGW_EXCHANGE_FENCED  "22012"  /* division_by_zero */


/* of the calls that are shipped, see ngx_modelgw_shipment.c */

#define ngx_modelgw_exchange_column(i, type)                                  \
    ", coalesce(u.c" #i ", ($" #i "::" #type "[])[1])"

#define NGX_MODELGW_EXCHANGE_SEEN  1024  /* hashes of accounts */


/* the results of a run, in the order in which its statements were added */

typedef enum {
    NGX_MODELGW_EXCHANGE_BEGIN = 0,
    NGX_MODELGW_EXCHANGE_FENCE,
    NGX_MODELGW_EXCHANGE_PRICES,
    NGX_MODELGW_EXCHANGE_SHIP,
    NGX_MODELGW_EXCHANGE_LATE,
    NGX_MODELGW_EXCHANGE_MONEY,
    NGX_MODELGW_EXCHANGE_ANSWER,
    NGX_MODELGW_EXCHANGE_ELSEWHERE,
    NGX_MODELGW_EXCHANGE_COMMIT,
    NGX_MODELGW_EXCHANGE_STATEMENTS
} ngx_modelgw_exchange_statement_e;

typedef struct {
    ngx_uint_t                n;         /* added */
    ngx_uint_t                at[NGX_MODELGW_EXCHANGE_STATEMENTS];
                                         /* 1 + the place of its result; 0: it
                                            was not added */
    ngx_modelgw_pq_result_t  *results[NGX_MODELGW_EXCHANGE_STATEMENTS];
} ngx_modelgw_exchange_run_t;


static ngx_int_t ngx_modelgw_exchange_ask(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_round_t *round, uint64_t pos,
    ngx_modelgw_exchange_run_t *run);
static ngx_int_t ngx_modelgw_exchange_ship(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_round_t *round, uint64_t pos,
    ngx_modelgw_exchange_run_t *run);
static void ngx_modelgw_exchange_held(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_round_t *round, ngx_modelgw_exchange_args_t *args);
static ngx_int_t ngx_modelgw_exchange_money(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_round_t *round, ngx_modelgw_exchange_run_t *run);
static ngx_int_t ngx_modelgw_exchange_elsewhere(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_round_t *round, ngx_modelgw_exchange_run_t *run);
static ngx_int_t ngx_modelgw_exchange_queue(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_run_t *run, ngx_modelgw_exchange_statement_e i,
    ngx_modelgw_exchange_args_t *args);
static ngx_modelgw_pq_result_t *ngx_modelgw_exchange_result(
    ngx_modelgw_exchange_run_t *run, ngx_modelgw_exchange_statement_e i);
static void ngx_modelgw_exchange_said(ngx_modelgw_exchange_round_t *round,
    ngx_modelgw_pq_result_t *money, ngx_modelgw_pq_result_t *elsewhere);
static ngx_int_t ngx_modelgw_exchange_answer(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_round_t *round, ngx_modelgw_pq_result_t *answer);


static const ngx_modelgw_pq_column_t  ngx_modelgw_exchange_prices[] = {
    ngx_modelgw_pq_number(ngx_modelgw_store_price_t, id),
    ngx_modelgw_pq_string(ngx_modelgw_store_price_t, group),
    ngx_modelgw_pq_string(ngx_modelgw_store_price_t, model),
    ngx_modelgw_pq_number(ngx_modelgw_store_price_t, time),
    ngx_modelgw_pq_number(ngx_modelgw_store_price_t, rates.input),
    ngx_modelgw_pq_number(ngx_modelgw_store_price_t, rates.output),
    ngx_modelgw_pq_number(ngx_modelgw_store_price_t, rates.cache_read),
    ngx_modelgw_pq_number(ngx_modelgw_store_price_t, rates.cache_write),
    ngx_modelgw_pq_number(ngx_modelgw_store_price_t, rates.cache_write_1h)
};


static const char  *ngx_modelgw_exchange_statements[] = {

    [NGX_MODELGW_EXCHANGE_BEGIN] = "BEGIN",

    /*
     * $1 num, $2 epoch, $3 position as known, $4 the new one, $5 keys_version,
     * $6 the journal's end, $7 id of the last of the calls, 0 if there are
     * none.  A division by zero ends the pipeline.
     */

    [NGX_MODELGW_EXCHANGE_FENCE] =
    "WITH f AS ("
        "UPDATE modelgw.nodes SET seen = " NGX_MODELGW_EXCHANGE_NOW ","
            " pos = $4, keys_version = $5, journal_end = $6,"
            " call = coalesce(nullif($7, 0), call)"
        " WHERE num = $1 AND epoch = $2 AND pos = $3 AND state = 0"
        " RETURNING num"
    ") SELECT 1 / count(*) FROM f",

    /* as in ngx_modelgw_exchange_prices[] */

    [NGX_MODELGW_EXCHANGE_PRICES] =
    "INSERT INTO modelgw.prices (id, \"group\", model, \"from\", input, output,"
        " cache_read, cache_write, cache_write_1h)"
    " SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[],"
        " $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[])"
        " AS u(id)"
    " ORDER BY u.id ON CONFLICT (id) DO NOTHING",

    /*
     * $1 num, $2 position before the first call, $3 accounts, $4 what they hold
     * now, $5 and so on as in ngx_modelgw_shipment_columns[]; a column whose
     * values are all equal has one.  first_byte -1: NULL.  What else is held,
     * by budgets, was said with their asks.  While a budget is opened no
     * exchange runs.
     */

    [NGX_MODELGW_EXCHANGE_SHIP] =
    "WITH c AS ("
        "INSERT INTO modelgw.calls (node, pos, id, price, time, ended, input,"
            " cache_read, cache_write, cache_write_1h, output, reasoning, cost,"
            " status, first_byte, flags, account, key, model, outcome, \"end\","
            " request_id)"
        " SELECT $1, $2 + u.i, u.c5"
            ngx_modelgw_exchange_column(6, bigint)
            ngx_modelgw_exchange_column(7, bigint)
            ngx_modelgw_exchange_column(8, bigint)
            ngx_modelgw_exchange_column(9, bigint)
            ngx_modelgw_exchange_column(10, bigint)
            ngx_modelgw_exchange_column(11, bigint)
            ngx_modelgw_exchange_column(12, bigint)
            ngx_modelgw_exchange_column(13, bigint)
            ngx_modelgw_exchange_column(14, bigint)
            ngx_modelgw_exchange_column(15, bigint)
            ngx_modelgw_exchange_column(16, bigint)
            ", nullif(coalesce(u.c17, ($17::bigint[])[1]), -1)"
            ngx_modelgw_exchange_column(18, bigint)
            ngx_modelgw_exchange_column(19, text)
            ngx_modelgw_exchange_column(20, text)
            ngx_modelgw_exchange_column(21, text)
            ngx_modelgw_exchange_column(22, text)
            ngx_modelgw_exchange_column(23, text)
            ngx_modelgw_exchange_column(24, text)
        " FROM unnest($5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],"
            " $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],"
            " $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[],"
            " $17::bigint[], $18::bigint[], $19::text[], $20::text[],"
            " $21::text[], $22::text[], $23::text[], $24::text[])"
            " WITH ORDINALITY AS u(c5, c6, c7, c8, c9, c10, c11, c12, c13, c14,"
            " c15, c16, c17, c18, c19, c20, c21, c22, c23, c24, i)"
        " RETURNING account, key, ended, cost"
    "), s AS ("
        "SELECT account AS name, sum(cost) AS spent FROM c GROUP BY account"
        " UNION ALL SELECT b.name, sum(c.cost)"
            " FROM c JOIN modelgw.budgets b ON b.key = c.key"
                " AND b.starts <= c.ended AND b.ends > c.ended"
            " GROUP BY b.name"
    "), h AS ("
        "SELECT name, max(held) AS held"
        " FROM unnest($3::text[], $4::bigint[]) AS h(name, held) GROUP BY name"
    ")"
    " INSERT INTO modelgw.leases AS l (node, account, spent, held)"
    " SELECT $1, s.name, s.spent, coalesce(h.held,"
        " (SELECT o.held FROM modelgw.leases o WHERE o.node = $1"
            " AND o.account = s.name), 0)"
    " FROM s LEFT JOIN h ON h.name = s.name"
    " ON CONFLICT (node, account) DO UPDATE"
    " SET spent = l.spent + excluded.spent, held = excluded.held",

    /*
     * $1 num, $2 position before the calls, $3 after them.  Who moves the mark
     * locks it FOR UPDATE first, then sums up: either that sees these calls, or
     * this sees the mark.  Who does not move it does not wait for this.
     */

    [NGX_MODELGW_EXCHANGE_LATE] =
    "WITH m AS ("
        "SELECT value FROM modelgw.marks WHERE name = 'hours' FOR KEY SHARE"
    ")"
    " INSERT INTO modelgw.hours AS h (hour, account, key, model, calls, errors,"
        " input, cache_read, cache_write, cache_write_1h, output, reasoning,"
        " cost, duration, first_bytes, first_byte)"
    " SELECT c.ended / 3600000, c.account, c.key, c.model, count(*),"
        " count(*) FILTER (WHERE c.status NOT BETWEEN 200 AND 299),"
        " sum(c.input), sum(c.cache_read), sum(c.cache_write),"
        " sum(c.cache_write_1h), sum(c.output), sum(c.reasoning), sum(c.cost),"
        " sum(c.ended - c.time), count(c.first_byte),"
        " coalesce(sum(c.first_byte), 0)"
    " FROM m JOIN modelgw.calls c ON c.ended < m.value"
    " WHERE c.node = $1 AND c.pos > $2 AND c.pos <= $3"
    " GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
    " ON CONFLICT (hour, account, key, model) DO UPDATE SET"
        " calls = h.calls + excluded.calls,"
        " errors = h.errors + excluded.errors,"
        " input = h.input + excluded.input,"
        " cache_read = h.cache_read + excluded.cache_read,"
        " cache_write = h.cache_write + excluded.cache_write,"
        " cache_write_1h = h.cache_write_1h + excluded.cache_write_1h,"
        " output = h.output + excluded.output,"
        " reasoning = h.reasoning + excluded.reasoning,"
        " cost = h.cost + excluded.cost,"
        " duration = h.duration + excluded.duration,"
        " first_bytes = h.first_bytes + excluded.first_bytes,"
        " first_byte = h.first_byte + excluded.first_byte",

    /*
     * $1 num; of each ask: $2 account, $3 returned, in total, $4 need, $5 want,
     * $6 number of the recall that it answers, $7 of the one that was raised
     * for the need, else it is raised now, $8 held; $9 live nodes, $10 ms that
     * a recall lasts.  Numbers above that of the account are of a history that
     * a failover has lost.
     */

    [NGX_MODELGW_EXCHANGE_MONEY] =
    "WITH u AS ("
        "SELECT * FROM unnest($2::text[], $3::bigint[], $4::bigint[],"
            " $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])"
            " WITH ORDINALITY"
            " AS u(account, returned, need, want, answered, no, held, i)"
    "), a AS ("
        "SELECT name, free, recall FROM modelgw.accounts WHERE name = ANY($2)"
        " ORDER BY name FOR UPDATE"
    "), c AS ("
        "SELECT u.i, u.account, u.need, u.want, u.no, u.held, a.free,"
            " a.recall, u.no = 0 OR u.no > a.recall AS fresh,"
            " coalesce(l.granted, 0) AS granted,"
            " greatest(u.returned, coalesce(l.returned, 0)) AS returned,"
            " greatest(least(u.answered, a.recall), coalesce(l.answered, 0))"
                " AS answered,"
            " a.free + greatest(u.returned - coalesce(l.returned, 0), 0)"
                " AS rest,"
            " greatest(0, coalesce(l.spent, 0) + coalesce(l.forced, 0)"
                " + greatest(u.returned, coalesce(l.returned, 0))"
                " - coalesce(l.granted, 0)) AS cover,"
            " r.no IS NOT NULL AS pending"
        " FROM u JOIN a ON a.name = u.account"
        " LEFT JOIN (SELECT * FROM modelgw.leases"
            " WHERE node = $1 AND account = ANY($2)) l ON l.account = u.account"
        " LEFT JOIN (SELECT * FROM modelgw.recalls WHERE account = ANY($2)"
            " AND until > " NGX_MODELGW_EXCHANGE_NOW ") r"
            " ON r.account = u.account"
    "), g AS ("
        "SELECT c.*, need > 0 AND rest - cover < need AS brief,"
            " need > 0 AND rest - cover < need AND fresh AS raise,"
            " cover + CASE"
                " WHEN need > 0 AND rest - cover < need THEN 0"
                " WHEN pending THEN need"
                " ELSE need + least(want, greatest(rest - cover - need, 0)"
                    " / (2 * $9)) END AS plus"
        " FROM c"
    "), ua AS ("
        "UPDATE modelgw.accounts x SET free = g.rest - g.plus,"
            " recall = x.recall + g.raise::integer"
        " FROM g WHERE x.name = g.account AND x.name = ANY($2)"
            " AND (g.rest - g.plus <> g.free OR g.raise)"
    "), ur AS ("
        "INSERT INTO modelgw.recalls (account, no, until)"
        " SELECT account, recall + raise::integer,"
            " " NGX_MODELGW_EXCHANGE_NOW " + $10"
        " FROM g WHERE brief ORDER BY account"
        " ON CONFLICT (account) DO UPDATE SET no = excluded.no,"
            " until = excluded.until"
    "), ul AS ("
        "INSERT INTO modelgw.leases AS l"
            " (node, account, granted, returned, answered, held)"
        " SELECT $1, account, granted + plus, returned, answered, held FROM g"
        " ON CONFLICT (node, account) DO UPDATE SET granted = excluded.granted,"
            " returned = excluded.returned, answered = excluded.answered,"
            " held = excluded.held"
        " RETURNING account, granted, returned, forced, spent"
    ")"
    " SELECT g.i, ul.granted, ul.returned, ul.forced, ul.spent, g.brief,"
        " g.rest - g.plus,"
        " CASE WHEN fresh THEN g.recall + g.raise::integer ELSE g.no END"
    " FROM ul JOIN g ON g.account = ul.account",

    /* $1 num, $2 ms since a node was seen that lives */

    [NGX_MODELGW_EXCHANGE_ANSWER] =
    "SELECT c.keys_version, c.oldest, n.live, n.known,"
        " (SELECT drain FROM modelgw.nodes WHERE num = $1),"
        " (SELECT string_agg(r.account || ' ' || r.no, ',')"
            " FROM modelgw.recalls r JOIN modelgw.leases l"
                " ON l.account = r.account AND l.node = $1"
            " WHERE r.until > " NGX_MODELGW_EXCHANGE_NOW
                " AND l.answered < r.no)"
    " FROM modelgw.cluster c, (SELECT count(*) AS live,"
        " min(keys_version) AS known FROM modelgw.nodes"
        " WHERE state = 0 AND seen > " NGX_MODELGW_EXCHANGE_NOW " - $2) n",

    /*
     * $1 num; of the asks with a need: $2 account, $3 number of its recall, as
     * above, $4 which ask it is; $5 ms since which a node that lives was
     * seen.  Who has nothing left has nothing to give back.
     */

    [NGX_MODELGW_EXCHANGE_ELSEWHERE] =
    "SELECT u.i, coalesce(sum(l.rest), 0),"
        " count(*) FILTER (WHERE l.rest > 0 AND n.state = 0"
            " AND n.seen > " NGX_MODELGW_EXCHANGE_NOW " - $5"
            " AND l.answered < CASE WHEN u.no = 0 OR u.no > a.recall"
                " THEN a.recall ELSE u.no END),"
        " coalesce(sum(l.rest) FILTER (WHERE l.rest > 0 AND (n.state <> 0"
            " OR n.seen <= " NGX_MODELGW_EXCHANGE_NOW " - $5)), 0)"
    " FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS u(account, no, i)"
        " JOIN modelgw.accounts a ON a.name = u.account"
        " JOIN (SELECT node, account, answered,"
            " granted - returned - forced - spent AS rest FROM modelgw.leases"
            " WHERE account = ANY($2)) l ON l.account = u.account"
            " AND l.node <> $1"
        " JOIN modelgw.nodes n ON n.num = l.node"
    " GROUP BY u.i",

    [NGX_MODELGW_EXCHANGE_COMMIT] = "COMMIT"
};


/* $1 num, $2 epoch, $3 position: what is left of budgets ends with them */

static const char  ngx_modelgw_exchange_left[] =
    "UPDATE modelgw.nodes SET state = 1, seen = " NGX_MODELGW_EXCHANGE_NOW
    " WHERE num = $1 AND epoch = $2 AND pos = $3 AND state = 0"
        " AND NOT EXISTS (SELECT 1 FROM modelgw.leases"
            " WHERE node = $1 AND account NOT LIKE '#%'"
            " AND granted - returned - forced - spent <> 0)";


ngx_int_t
ngx_modelgw_exchange(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_round_t *round)
{
    uint64_t                     pos;
    ngx_int_t                    rc;
    ngx_uint_t                   i;
    ngx_modelgw_exchange_run_t   run;

    ngx_modelgw_pq_clear(x->answer);
    x->answer = NULL;

    pos = round->calls.n ? round->calls.first + round->calls.n - 1 : x->pos;

    ngx_memzero(&run, sizeof(ngx_modelgw_exchange_run_t));

    if (ngx_modelgw_exchange_ask(x, round, pos, &run) != NGX_OK) {
        return NGX_AGAIN;
    }

    if (ngx_modelgw_pq_run(x->pq, NGX_MODELGW_EXCHANGE_TIMEOUT, run.results,
                           run.n, &x->error)
        != NGX_OK)
    {
        return (ngx_strcmp(x->error.state, NGX_MODELGW_EXCHANGE_FENCED) == 0)
               ? NGX_DECLINED : NGX_AGAIN;
    }

    x->pos = pos;

    ngx_modelgw_exchange_said(round,
            ngx_modelgw_exchange_result(&run, NGX_MODELGW_EXCHANGE_MONEY),
            ngx_modelgw_exchange_result(&run, NGX_MODELGW_EXCHANGE_ELSEWHERE));

    rc = ngx_modelgw_exchange_answer(x, round,
            ngx_modelgw_exchange_result(&run, NGX_MODELGW_EXCHANGE_ANSWER));

    for (i = 0; i < run.n; i++) {
        if (run.results[i] != x->answer) {
            ngx_modelgw_pq_clear(run.results[i]);
        }
    }

    return rc;
}


static ngx_int_t
ngx_modelgw_exchange_ask(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_round_t *round, uint64_t pos,
    ngx_modelgw_exchange_run_t *run)
{
    ngx_modelgw_exchange_args_t  args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));

    if (ngx_modelgw_exchange_queue(x, run, NGX_MODELGW_EXCHANGE_BEGIN, &args)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_exchange_int(&args, x->num);
    ngx_modelgw_exchange_int(&args, x->epoch);
    ngx_modelgw_exchange_int(&args, x->pos);
    ngx_modelgw_exchange_int(&args, pos);
    ngx_modelgw_exchange_int(&args, x->keys_version);
    ngx_modelgw_exchange_int(&args, round->end);
    ngx_modelgw_exchange_int(&args, round->calls.n ? round->calls.id : 0);

    if (ngx_modelgw_exchange_queue(x, run, NGX_MODELGW_EXCHANGE_FENCE, &args)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (round->calls.n
        && ngx_modelgw_exchange_ship(x, round, pos, run) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (round->nasks
        && ngx_modelgw_exchange_money(x, round, run) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_exchange_int(&args, x->num);
    ngx_modelgw_exchange_int(&args, ngx_max(3 * round->took,
                                            NGX_MODELGW_EXCHANGE_LIVE));

    if (ngx_modelgw_exchange_queue(x, run, NGX_MODELGW_EXCHANGE_ANSWER, &args)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_modelgw_exchange_elsewhere(x, round, run) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_modelgw_exchange_queue(x, run, NGX_MODELGW_EXCHANGE_COMMIT,
                                      &args);
}


static ngx_int_t
ngx_modelgw_exchange_ship(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_round_t *round, uint64_t pos,
    ngx_modelgw_exchange_run_t *run)
{
    ngx_uint_t                   i;
    ngx_modelgw_exchange_args_t  args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));

    if (round->nprices) {
        ngx_modelgw_exchange_columns(x, &args, ngx_modelgw_exchange_prices,
                                     sizeof(ngx_modelgw_exchange_prices)
                                     / sizeof(ngx_modelgw_pq_column_t),
                                     round->prices,
                                     sizeof(ngx_modelgw_store_price_t),
                                     round->nprices);

        if (ngx_modelgw_exchange_queue(x, run, NGX_MODELGW_EXCHANGE_PRICES,
                                       &args)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    ngx_modelgw_exchange_int(&args, x->num);
    ngx_modelgw_exchange_int(&args, round->calls.first - 1);
    ngx_modelgw_exchange_held(x, round, &args);

    for (i = 0; i < NGX_MODELGW_SHIPMENT_COLUMNS; i++) {
        ngx_modelgw_exchange_array(&args, &round->calls.columns[i]);
    }

    if (ngx_modelgw_exchange_queue(x, run, NGX_MODELGW_EXCHANGE_SHIP, &args)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_exchange_int(&args, x->num);
    ngx_modelgw_exchange_int(&args, x->pos);
    ngx_modelgw_exchange_int(&args, pos);

    return ngx_modelgw_exchange_queue(x, run, NGX_MODELGW_EXCHANGE_LATE, &args);
}


/*
 * Accounts of calls, most of them once, and what they hold now; one with the
 * hash of another one keeps what was said of it before.
 */

static void
ngx_modelgw_exchange_held(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_round_t *round, ngx_modelgw_exchange_args_t *args)
{
    u_char                  *p;
    uint32_t                 hash, seen[NGX_MODELGW_EXCHANGE_SEEN];
    ngx_str_t                account;
    ngx_modelgw_pq_array_t  *a;

    ngx_memzero(seen, sizeof(seen));
    a = x->arrays;

    ngx_modelgw_pq_array_begin(&a[0], NGX_MODELGW_PQ_TEXT);
    ngx_modelgw_pq_array_begin(&a[1], NGX_MODELGW_PQ_INT8);

    p = NULL;

    for ( ;; ) {
        p = ngx_modelgw_pq_array_next(
                       &round->calls.columns[NGX_MODELGW_SHIPMENT_ACCOUNT], p,
                       &account);

        if (p == NULL || round->held == NULL) {
            break;
        }

        hash = ngx_murmur_hash2(account.data, account.len) | 1;

        if (seen[(hash >> 1) % NGX_MODELGW_EXCHANGE_SEEN] == hash) {
            continue;
        }

        seen[(hash >> 1) % NGX_MODELGW_EXCHANGE_SEEN] = hash;

        ngx_modelgw_pq_array_text(&a[0], account.data, account.len);
        ngx_modelgw_pq_array_int(&a[1], round->held(round->data, &account));
    }

    ngx_modelgw_exchange_array(args, &a[0]);
    ngx_modelgw_exchange_array(args, &a[1]);
}


void
ngx_modelgw_exchange_columns(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_args_t *args,
    const ngx_modelgw_pq_column_t *columns, ngx_uint_t n, void *rows,
    size_t size, ngx_uint_t nrows)
{
    ngx_uint_t               i;
    ngx_modelgw_pq_array_t  *a;

    for (i = 0; i < n; i++) {
        a = &x->arrays[i];

        ngx_modelgw_pq_array_begin(a, columns[i].type);
        ngx_modelgw_pq_array_column(a, &columns[i], rows, size, nrows);

        ngx_modelgw_exchange_array(args, a);
    }
}


static ngx_int_t
ngx_modelgw_exchange_money(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_round_t *round, ngx_modelgw_exchange_run_t *run)
{
    ngx_uint_t                    i;
    ngx_modelgw_ask_t            *ask;
    ngx_modelgw_pq_array_t       *a;
    ngx_modelgw_exchange_args_t   args;

    static const uint32_t  types[] = {
        NGX_MODELGW_PQ_TEXT, NGX_MODELGW_PQ_INT8, NGX_MODELGW_PQ_INT8,
        NGX_MODELGW_PQ_INT8, NGX_MODELGW_PQ_INT8, NGX_MODELGW_PQ_INT8,
        NGX_MODELGW_PQ_INT8
    };

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));
    a = x->arrays;

    for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        ngx_modelgw_pq_array_begin(&a[i], types[i]);
    }

    for (i = 0; i < round->nasks; i++) {
        ask = &round->asks[i];

        ngx_modelgw_pq_array_text(&a[0], ask->name, ask->len);
        ngx_modelgw_pq_array_int(&a[1], ask->returned);
        ngx_modelgw_pq_array_int(&a[2], ask->need);
        ngx_modelgw_pq_array_int(&a[3], ask->want);
        ngx_modelgw_pq_array_int(&a[4], ask->answered);
        ngx_modelgw_pq_array_int(&a[5], ask->recall);
        ngx_modelgw_pq_array_int(&a[6], ask->held);
    }

    ngx_modelgw_exchange_int(&args, x->num);

    for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        ngx_modelgw_exchange_array(&args, &a[i]);
    }

    ngx_modelgw_exchange_int(&args, ngx_max(round->live, 1));
    ngx_modelgw_exchange_int(&args, NGX_MODELGW_LEASE_RECALL);

    return ngx_modelgw_exchange_queue(x, run, NGX_MODELGW_EXCHANGE_MONEY,
                                      &args);
}


static ngx_int_t
ngx_modelgw_exchange_elsewhere(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_round_t *round, ngx_modelgw_exchange_run_t *run)
{
    ngx_uint_t                    i;
    ngx_modelgw_ask_t            *ask;
    ngx_modelgw_pq_array_t       *a;
    ngx_modelgw_exchange_args_t   args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));
    a = x->arrays;

    ngx_modelgw_pq_array_begin(&a[0], NGX_MODELGW_PQ_TEXT);
    ngx_modelgw_pq_array_begin(&a[1], NGX_MODELGW_PQ_INT8);
    ngx_modelgw_pq_array_begin(&a[2], NGX_MODELGW_PQ_INT8);

    for (i = 0; i < round->nasks; i++) {
        ask = &round->asks[i];

        if (ask->need > 0) {
            ngx_modelgw_pq_array_text(&a[0], ask->name, ask->len);
            ngx_modelgw_pq_array_int(&a[1], ask->recall);
            ngx_modelgw_pq_array_int(&a[2], i);
        }
    }

    if (a[0].n == 0) {
        return NGX_OK;
    }

    ngx_modelgw_exchange_int(&args, x->num);
    ngx_modelgw_exchange_array(&args, &a[0]);
    ngx_modelgw_exchange_array(&args, &a[1]);
    ngx_modelgw_exchange_array(&args, &a[2]);
    ngx_modelgw_exchange_int(&args, ngx_max(3 * round->took,
                                            NGX_MODELGW_EXCHANGE_LIVE));

    return ngx_modelgw_exchange_queue(x, run, NGX_MODELGW_EXCHANGE_ELSEWHERE,
                                      &args);
}


static ngx_int_t
ngx_modelgw_exchange_queue(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_run_t *run, ngx_modelgw_exchange_statement_e i,
    ngx_modelgw_exchange_args_t *args)
{
    run->at[i] = ++run->n;

    return ngx_modelgw_exchange_add(x, ngx_modelgw_exchange_statements[i],
                                    args);
}


/* NULL: the statement was not part of the run */

static ngx_modelgw_pq_result_t *
ngx_modelgw_exchange_result(ngx_modelgw_exchange_run_t *run,
    ngx_modelgw_exchange_statement_e i)
{
    return run->at[i] ? run->results[run->at[i] - 1] : NULL;
}


static void
ngx_modelgw_exchange_said(ngx_modelgw_exchange_round_t *round,
    ngx_modelgw_pq_result_t *money, ngx_modelgw_pq_result_t *elsewhere)
{
    ngx_uint_t                    row, i;
    ngx_modelgw_exchange_said_t  *said;

    ngx_memzero(round->said,
                round->nasks * sizeof(ngx_modelgw_exchange_said_t));

    for (row = 0; money && row < ngx_modelgw_pq_rows(money); row++) {

        i = ngx_modelgw_pq_int(money, row, 0) - 1;

        if (i >= round->nasks) {
            continue;
        }

        said = &round->said[i];

        said->found = 1;
        said->granted = ngx_modelgw_pq_int(money, row, 1);
        said->returned = ngx_modelgw_pq_int(money, row, 2);
        said->forced = ngx_modelgw_pq_int(money, row, 3);
        said->spent = ngx_modelgw_pq_int(money, row, 4);
        said->brief = ngx_modelgw_pq_int(money, row, 5);
        said->free = ngx_modelgw_pq_int(money, row, 6);
        said->recall = ngx_modelgw_pq_int(money, row, 7);
    }

    for (row = 0; elsewhere && row < ngx_modelgw_pq_rows(elsewhere); row++) {

        i = ngx_modelgw_pq_int(elsewhere, row, 0);

        if (i >= round->nasks) {
            continue;
        }

        said = &round->said[i];

        if (said->brief) {
            said->lent = ngx_modelgw_pq_int(elsewhere, row, 1);
            said->silent = ngx_modelgw_pq_int(elsewhere, row, 2);
            said->away = ngx_modelgw_pq_int(elsewhere, row, 3);
        }
    }
}


/*
 * There is one row, as a join has found the one of the cluster.  NGX_AGAIN: the
 * node is too old since now, as joining says.
 */

static ngx_int_t
ngx_modelgw_exchange_answer(ngx_modelgw_exchange_t *x,
    ngx_modelgw_exchange_round_t *round, ngx_modelgw_pq_result_t *answer)
{
    x->answer = answer;

    round->keys_version = ngx_modelgw_pq_int(answer, 0, 0);
    round->now_live = ngx_modelgw_pq_int(answer, 0, 2);
    round->now_known = ngx_modelgw_pq_int(answer, 0, 3);
    round->drain = ngx_modelgw_pq_int(answer, 0, 4);

    ngx_modelgw_pq_text(answer, 0, 5, &round->recalls);

    return ngx_modelgw_exchange_known(x, ngx_modelgw_pq_int(answer, 0, 1))
           == NGX_OK ? NGX_OK : NGX_AGAIN;
}


ngx_int_t
ngx_modelgw_exchange_leave(ngx_modelgw_exchange_t *x)
{
    ngx_uint_t                    changed;
    ngx_modelgw_pq_result_t      *result;
    ngx_modelgw_exchange_args_t   args;

    ngx_memzero(&args, sizeof(ngx_modelgw_exchange_args_t));

    ngx_modelgw_exchange_int(&args, x->num);
    ngx_modelgw_exchange_int(&args, x->epoch);
    ngx_modelgw_exchange_int(&args, x->pos);

    if (ngx_modelgw_exchange_exec(x, ngx_modelgw_exchange_left, &args, &result)
        != NGX_OK)
    {
        return NGX_AGAIN;
    }

    changed = ngx_modelgw_pq_changed(result);
    ngx_modelgw_pq_clear(result);

    if (changed != 1) {
        ngx_modelgw_exchange_set_error(x, "the node has leases with something"
                                       " left, or is fenced");
        return NGX_AGAIN;
    }

    return NGX_OK;
}


void
ngx_modelgw_exchange_free(ngx_modelgw_exchange_t *x)
{
    ngx_uint_t  i;

    ngx_modelgw_pq_clear(x->answer);
    x->answer = NULL;

    for (i = 0; i < NGX_MODELGW_EXCHANGE_ARRAYS; i++) {
        ngx_modelgw_pq_array_free(&x->arrays[i]);
    }
}


void
ngx_modelgw_exchange_int(ngx_modelgw_exchange_args_t *args, int64_t n)
{
    ngx_modelgw_pq_param_int(&args->params[args->n], args->numbers[args->n], n);
    args->n++;
}


void
ngx_modelgw_exchange_text(ngx_modelgw_exchange_args_t *args, char *text)
{
    ngx_modelgw_pq_param_text(&args->params[args->n++], (u_char *) text,
                              ngx_strlen(text));
}


void
ngx_modelgw_exchange_array(ngx_modelgw_exchange_args_t *args,
    ngx_modelgw_pq_array_t *a)
{
    if (ngx_modelgw_pq_array_end(a, &args->params[args->n++]) != NGX_OK) {
        args->failed = 1;
    }
}


ngx_int_t
ngx_modelgw_exchange_add(ngx_modelgw_exchange_t *x, const char *sql,
    ngx_modelgw_exchange_args_t *args)
{
    ngx_uint_t  n;

    n = args->n;
    args->n = 0;

    if (args->failed) {
        ngx_modelgw_exchange_set_error(x, "no memory for a statement");
        return NGX_ERROR;
    }

    return ngx_modelgw_pq_add(x->pq, sql, args->params, n, &x->error);
}


ngx_int_t
ngx_modelgw_exchange_exec(ngx_modelgw_exchange_t *x, const char *sql,
    ngx_modelgw_exchange_args_t *args, ngx_modelgw_pq_result_t **result)
{
    ngx_uint_t  n;

    n = args->n;
    args->n = 0;

    if (args->failed) {
        *result = NULL;
        ngx_modelgw_exchange_set_error(x, "no memory for a statement");
        return NGX_ERROR;
    }

    return ngx_modelgw_pq_exec(x->pq, sql, args->params, n,
                               NGX_MODELGW_EXCHANGE_LONG, result, &x->error);
}


void
ngx_modelgw_exchange_set_error(ngx_modelgw_exchange_t *x, const char *fmt, ...)
{
    u_char   *p;
    va_list   args;

    va_start(args, fmt);
    p = ngx_vslprintf(x->error.data, x->error.data + NGX_MODELGW_PQ_ERROR, fmt,
                      args);
    va_end(args);

    x->error.len = p - x->error.data;
    x->error.state[0] = '\0';
}
