
/*
 * The clerk of a cluster.
 *
 * All times are the database's.  Steps that lock several rows of one table skip
 * those that are locked, or lock what exchanges lock, in the same order: the
 * rows of nodes, leases, accounts by name, recalls.
 *
 * The mark of hours is locked before the statement that reads calls begins: an
 * exchange that adds calls holds it, too, until it commits; so either its calls
 * are read here, or it finds the new mark and adds them to "hours" itself.
 * Calls that are rolled up to days do not move the mark: it is locked so that
 * exchanges do not wait meanwhile, and only clerks do.
 *
 * Rows of nodes are not deleted, nor those of their leases: a node that comes
 * back is known by its journal, and its position tells what it has shipped.
 * Without them it would be a new one, and ship again what its journal still
 * has; it is not trimmed while nginx does not run.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_clerk.h"
#include "ngx_modelgw_store_sums.h"


#define NGX_MODELGW_CLERK_TIMEOUT  30000   /* ms, of a step */
#define NGX_MODELGW_CLERK_SLOW     600000  /* ms between slow steps */
#define NGX_MODELGW_CLERK_SURE     60000   /* ms until a node may be lost: after
                                              an outage of the database all of
                                              them have been away */
#define NGX_MODELGW_CLERK_SQL      2
#define NGX_MODELGW_CLERK_ROWS     1000
#define NGX_MODELGW_CLERK_BUDGETS  100     /* while no exchange is running */

#define NGX_MODELGW_CLERK_FULL     16      /* steps that have left something to
                                              do, then it renews its minute */

#define NGX_MODELGW_CLERK_PARAMS   5       /* of all statements: num, keep,
                                              lost, cluster, now */


typedef struct {
    const char           *sql[NGX_MODELGW_CLERK_SQL];
    ngx_uint_t            counts;        /* index of the statement that returns
                                            what it has done */
    int64_t               full;          /* at most: there may be more */
    ngx_uint_t            slow;
    size_t                option;        /* offset of what must be set */
} ngx_modelgw_clerk_step_t;


static ngx_int_t ngx_modelgw_clerk_run(ngx_modelgw_pq_t *pq,
    ngx_modelgw_clerk_t *clerk, ngx_modelgw_clerk_step_t *step, int64_t *n,
    ngx_modelgw_pq_error_t *error);
static void ngx_modelgw_clerk_said(ngx_modelgw_clerk_t *clerk,
    ngx_modelgw_pq_result_t *result, int64_t *n);
static ngx_uint_t ngx_modelgw_clerk_due(ngx_modelgw_clerk_t *clerk,
    ngx_modelgw_clerk_step_t *step);


#define NGX_MODELGW_CLERK_NOW                                                 \
    "CAST(extract(epoch FROM now()) * 1000 AS BIGINT)"

/* the mark of hours moves up to here: younger calls may not be shipped yet */

#define NGX_MODELGW_CLERK_MARK  "(" NGX_MODELGW_CLERK_NOW " - 5000)"

#define NGX_MODELGW_CLERK_LOCK_MARK                                           \
    "SELECT value FROM modelgw.marks WHERE name = 'hours' FOR "

/* the first millisecond of the first day whose calls are kept */

#define NGX_MODELGW_CLERK_KEPT                                                \
    "((CAST(extract(epoch FROM now()) AS BIGINT) - $2) / 86400 * 86400000)"

/* 8 days: journals ship calls again for 7 */

#define NGX_MODELGW_CLERK_ENDED  "ends < " NGX_MODELGW_CLERK_NOW " - 691200000"

#define ngx_modelgw_clerk_delete(table, key, condition)                       \
    "WITH d AS (DELETE FROM modelgw." table " WHERE (" key ") IN"             \
        " (SELECT " key " FROM modelgw." table " WHERE " condition            \
            " LIMIT 1000 FOR UPDATE SKIP LOCKED)"                             \
        " RETURNING 1)"                                                       \
    " SELECT count(*) FROM d"


/*
 * The clock of the database was set back, by more than 10 s.  Times of what is
 * said all the time are soon right again; those of a node that is gone would
 * count until the clock is there again, so they are brought back.
 */

#define NGX_MODELGW_CLERK_SET_BACK                                            \
    "clerk_until > " NGX_MODELGW_CLERK_NOW " + 70000"

#define ngx_modelgw_clerk_past(table, key, column)                            \
    "UPDATE modelgw." table " SET " column " = " NGX_MODELGW_CLERK_NOW        \
    " WHERE EXISTS (SELECT 1 FROM c)"                                         \
        " AND (" key ") IN (SELECT " key " FROM modelgw." table               \
            " WHERE " column " > " NGX_MODELGW_CLERK_NOW " + 10000"           \
            " FOR UPDATE SKIP LOCKED)"


static ngx_modelgw_clerk_step_t  ngx_modelgw_clerk_steps[] = {

    /* being the clerk for a minute */

    { { "WITH c AS ("
            "SELECT 1 FROM modelgw.cluster WHERE $4 IN ('', id)"
                " AND " NGX_MODELGW_CLERK_SET_BACK " FOR NO KEY UPDATE"
        "), n AS (" ngx_modelgw_clerk_past("nodes", "num", "seen")
        "), s AS (" ngx_modelgw_clerk_past("slots", "key, node", "seen")
        "), r AS (" ngx_modelgw_clerk_past("recalls", "account", "until")
        ") SELECT 1",
        "UPDATE modelgw.cluster SET clerk = CAST($1 AS TEXT),"
            " clerk_until = " NGX_MODELGW_CLERK_NOW " + 60000"
        " WHERE $4 IN ('', id) AND (clerk = CAST($1 AS TEXT)"
            " OR clerk_until < " NGX_MODELGW_CLERK_NOW
            " OR " NGX_MODELGW_CLERK_SET_BACK ")"
        " RETURNING " NGX_MODELGW_CLERK_NOW },
      1, INT64_MAX, 0, 0 },

    /* sums by hour: at most 1000 calls, more if they ended together */

    { { NGX_MODELGW_CLERK_LOCK_MARK "UPDATE",
        "WITH m AS ("
            "SELECT value, least(" NGX_MODELGW_CLERK_MARK ", coalesce(("
                "SELECT greatest(ended, value + 1) FROM modelgw.calls"
                " WHERE ended >= value ORDER BY ended LIMIT 1 OFFSET 1000),"
                " " NGX_MODELGW_CLERK_MARK ")) AS next"
            " FROM modelgw.marks WHERE name = 'hours'"
        "), h AS ("
            "INSERT INTO modelgw.hours (hour, account, key, model,"
                NGX_MODELGW_STORE_SUMS ")"
            " SELECT ended / 3600000, account, key, model,"
                NGX_MODELGW_STORE_SUMS_OF_CALLS
            "FROM m JOIN modelgw.calls ON ended >= value AND ended < next"
            " GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
            " ON CONFLICT (hour, account, key, model) DO UPDATE SET"
                ngx_modelgw_store_sums_set("hours.", "+ ", "excluded.")
            " RETURNING 1"
        ")"
        " UPDATE modelgw.marks SET value = next FROM m"
        " WHERE name = 'hours' AND EXISTS (SELECT 1 FROM h)"
        " RETURNING CASE WHEN next < " NGX_MODELGW_CLERK_MARK
            " THEN 1 ELSE 0 END" },
      1, 1, 0, 0 },

    { { ngx_modelgw_clerk_delete("recalls", "account",
                       "until < " NGX_MODELGW_CLERK_NOW " - 60000") },
      0, NGX_MODELGW_CLERK_ROWS, 0, 0 },

    { { ngx_modelgw_clerk_delete("limits", "key, kind",
                       "second < " NGX_MODELGW_CLERK_NOW " / 1000 - 86400") },
      0, NGX_MODELGW_CLERK_ROWS, 1, 0 },

    { { ngx_modelgw_clerk_delete("slots", "key, node",
                       "seen < " NGX_MODELGW_CLERK_NOW " - 86400000") },
      0, NGX_MODELGW_CLERK_ROWS, 1, 0 },

    /* budgets that are over, while no exchange is running */

    { { "SELECT num FROM modelgw.nodes WHERE EXISTS (SELECT 1"
            " FROM modelgw.budgets WHERE " NGX_MODELGW_CLERK_ENDED ")"
        " ORDER BY num FOR UPDATE",
        "WITH b AS ("
            "DELETE FROM modelgw.budgets WHERE name IN ("
                "SELECT name FROM modelgw.budgets"
                " WHERE " NGX_MODELGW_CLERK_ENDED " LIMIT 100)"
            " RETURNING name"
        "), l AS ("
            "DELETE FROM modelgw.leases"
            " WHERE account IN (SELECT name FROM b)"
        "), a AS ("
            "DELETE FROM modelgw.accounts"
            " WHERE name IN (SELECT name FROM b)"
        ")"
        " SELECT count(*) FROM b" },
      1, NGX_MODELGW_CLERK_BUDGETS, 1, 0 },

    /*
     * A node that is lost: it is fenced, and what it has left is taken back.
     * Leases are written under the lock of the node's row only: an exchange
     * that has just committed has changed "seen", and the row is not found.
     * Nothing is done if the database's machine has stood still since the round
     * began, or its clock was set: no node can have been seen meanwhile.
     */

    { { "WITH n AS ("
            "UPDATE modelgw.nodes SET epoch = epoch + 1, process = '',"
                " state = 2"
            " WHERE num = (SELECT num FROM modelgw.nodes WHERE state = 0"
                " AND seen < " NGX_MODELGW_CLERK_NOW " - $3 AND num <> $1"
                " AND " NGX_MODELGW_CLERK_NOW " - $5 < 60000"
                " ORDER BY num LIMIT 1 FOR UPDATE SKIP LOCKED)"
            " RETURNING num, name"
        "), l AS ("
            "SELECT node, account, granted - returned - forced - spent AS rest"
            " FROM n JOIN modelgw.leases ON node = num"
            " WHERE granted - returned - forced - spent > 0"
        "), a AS ("
            "SELECT name FROM modelgw.accounts"
            " WHERE name IN (SELECT account FROM l) ORDER BY name FOR UPDATE"
        "), u AS ("
            "UPDATE modelgw.accounts SET free = free + rest FROM l, a"
            " WHERE accounts.name = a.name AND l.account = a.name"
        "), f AS ("
            "UPDATE modelgw.leases SET forced = forced + rest FROM l"
            " WHERE leases.node = l.node AND leases.account = l.account"
        "), s AS ("
            "SELECT num, name, coalesce((SELECT sum(rest) FROM l"
                " WHERE account NOT LIKE '#%'), 0) AS taken FROM n"
        "), c AS ("
            "INSERT INTO modelgw.actions (node, id, time, actor, address,"
                " action, target, before, after)"
            " SELECT CAST($1 AS INTEGER), " NGX_MODELGW_CLERK_NOW ","
                " " NGX_MODELGW_CLERK_NOW ", 'configuration', '',"
                " 'node.write_off', name, '{\"state\":\"member\"}',"
                " '{\"state\":\"written off\",\"amount\":\"'"
                " || trim_scale(taken / 1000000000)"
                " || '\",\"charged\":false}' FROM s"
        ")"
        " SELECT count(*), max(num), sum(taken) FROM s" },
      0, 1, 0, offsetof(ngx_modelgw_clerk_t, lost) },

    /*
     * Days: calls that are not kept, which are taken out of their hours.  The
     * last one, as it may have a lot to do.
     */

    { { NGX_MODELGW_CLERK_LOCK_MARK "NO KEY UPDATE",
        "WITH d AS ("
            "DELETE FROM modelgw.calls WHERE (node, pos) IN ("
                "SELECT node, pos FROM modelgw.calls"
                " WHERE ended < " NGX_MODELGW_CLERK_KEPT
                " ORDER BY ended LIMIT 1000)"
            " RETURNING *"
        "), t AS ("
            "INSERT INTO modelgw.days (day, account, key, model, node,"
                NGX_MODELGW_STORE_SUMS ")"
            " SELECT to_char(to_timestamp(ended / 1000) AT TIME ZONE 'UTC',"
                " 'YYYY-MM-DD'), account, key, model, node,"
                NGX_MODELGW_STORE_SUMS_OF_CALLS
            "FROM d GROUP BY 1, 2, 3, 4, 5"
            " ON CONFLICT (day, account, key, model, node) DO UPDATE SET"
                ngx_modelgw_store_sums_set("days.", "+ ", "excluded.")
        "), r AS ("
            "SELECT ended / 3600000 AS hour, account, key, model,"
                NGX_MODELGW_STORE_SUMS_OF_CALLS
            "FROM d WHERE ended < (SELECT value FROM modelgw.marks"
                " WHERE name = 'hours')"
            " GROUP BY 1, 2, 3, 4"
        "), o AS ("
            "SELECT h.hour, h.account, h.key, h.model,"
                " h.calls = r.calls AS empty FROM modelgw.hours h"
                " JOIN r USING (hour, account, key, model)"
            " ORDER BY 1, 2, 3, 4 FOR UPDATE OF h"
        "), h AS ("
            "UPDATE modelgw.hours SET"
                ngx_modelgw_store_sums_set("hours.", "- ", "r.")
            " FROM o JOIN r USING (hour, account, key, model)"
            " WHERE NOT empty"
                " AND hours.hour = o.hour AND hours.account = o.account"
                " AND hours.key = o.key AND hours.model = o.model"
        "), e AS ("
            "DELETE FROM modelgw.hours USING o WHERE empty"
                " AND hours.hour = o.hour AND hours.account = o.account"
                " AND hours.key = o.key AND hours.model = o.model"
        ")"
        " SELECT count(*) FROM d" },
      1, NGX_MODELGW_CLERK_ROWS, 1, offsetof(ngx_modelgw_clerk_t, keep) }
};

#define NGX_MODELGW_CLERK_STEPS                                               \
    (sizeof(ngx_modelgw_clerk_steps) / sizeof(ngx_modelgw_clerk_step_t))


ngx_int_t
ngx_modelgw_clerk(ngx_modelgw_pq_t *pq, ngx_modelgw_clerk_t *clerk,
    ngx_modelgw_pq_error_t *error)
{
    int64_t                    n;
    ngx_modelgw_clerk_step_t  *step;

    clerk->lost_node = 0;
    step = &ngx_modelgw_clerk_steps[clerk->step];

    if (ngx_modelgw_clerk_run(pq, clerk, step, &n, error) != NGX_OK) {
        return NGX_ERROR;
    }

    if (clerk->step == 0) {

        if (n == 0) {
            return NGX_DECLINED;
        }

        clerk->full = 0;
        clerk->now = n;
        clerk->since = clerk->since ? clerk->since : clerk->now;

    } else if (n >= step->full) {

        if (++clerk->full == NGX_MODELGW_CLERK_FULL) {
            clerk->step = 0;
        }

        return NGX_AGAIN;
    }

    while (++clerk->step < NGX_MODELGW_CLERK_STEPS) {

        if (ngx_modelgw_clerk_due(clerk,
                                  &ngx_modelgw_clerk_steps[clerk->step]))
        {
            return NGX_AGAIN;
        }
    }

    if (clerk->now >= clerk->slow) {
        clerk->slow = clerk->now + NGX_MODELGW_CLERK_SLOW;
    }

    clerk->step = 0;

    return NGX_OK;
}


static ngx_uint_t
ngx_modelgw_clerk_due(ngx_modelgw_clerk_t *clerk,
    ngx_modelgw_clerk_step_t *step)
{
    uint64_t  *option;

    if (step->slow && clerk->now < clerk->slow) {
        return 0;
    }

    if (step->option == 0) {
        return 1;
    }

    option = (uint64_t *) ((u_char *) clerk + step->option);

    return *option
           && (option != &clerk->lost
               || clerk->now - clerk->since >= NGX_MODELGW_CLERK_SURE);
}


/* Executes a step, in a transaction; *n is what it has returned, or 0. */

static ngx_int_t
ngx_modelgw_clerk_run(ngx_modelgw_pq_t *pq, ngx_modelgw_clerk_t *clerk,
    ngx_modelgw_clerk_step_t *step, int64_t *n, ngx_modelgw_pq_error_t *error)
{
    u_char                    numbers[NGX_MODELGW_CLERK_PARAMS]
                                     [sizeof(int64_t)];
    ngx_uint_t                i;
    ngx_modelgw_pq_error_t    unused;
    ngx_modelgw_pq_param_t    params[NGX_MODELGW_CLERK_PARAMS];
    ngx_modelgw_pq_result_t  *results[NGX_MODELGW_CLERK_SQL + 2];

    ngx_modelgw_pq_param_int(&params[0], numbers[0], clerk->num);
    ngx_modelgw_pq_param_int(&params[1], numbers[1], clerk->keep);
    ngx_modelgw_pq_param_int(&params[2], numbers[2], clerk->lost);
    ngx_modelgw_pq_param_text(&params[3], (u_char *) clerk->cluster,
                              ngx_strlen(clerk->cluster));
    ngx_modelgw_pq_param_int(&params[4], numbers[4], clerk->now);

    if (ngx_modelgw_pq_add(pq, "BEGIN", NULL, 0, error) != NGX_OK) {
        return NGX_ERROR;
    }

    for (i = 0; i < NGX_MODELGW_CLERK_SQL && step->sql[i]; i++) {

        if (ngx_modelgw_pq_add(pq, step->sql[i], params,
                               NGX_MODELGW_CLERK_PARAMS, error)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (ngx_modelgw_pq_add(pq, "COMMIT", NULL, 0, error) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_pq_run(pq, NGX_MODELGW_CLERK_TIMEOUT, results, i + 2,
                           error)
        != NGX_OK)
    {
        if (ngx_modelgw_pq_alive(pq)) {
            (void) ngx_modelgw_pq_exec(pq, "ROLLBACK", NULL, 0,
                                       NGX_MODELGW_CLERK_TIMEOUT, NULL,
                                       &unused);
        }

        return NGX_ERROR;
    }

    ngx_modelgw_clerk_said(clerk, results[1 + step->counts], n);

    for (i += 2; i > 0; i--) {
        ngx_modelgw_pq_clear(results[i - 1]);
    }

    return NGX_OK;
}


/* the step that takes back returns three numbers */

static void
ngx_modelgw_clerk_said(ngx_modelgw_clerk_t *clerk,
    ngx_modelgw_pq_result_t *result, int64_t *n)
{
    *n = 0;

    if (ngx_modelgw_pq_rows(result) == 0) {
        return;
    }

    *n = ngx_modelgw_pq_int(result, 0, 0);

    if (ngx_modelgw_clerk_steps[clerk->step].option
        == offsetof(ngx_modelgw_clerk_t, lost)
        && *n)
    {
        clerk->lost_node = ngx_modelgw_pq_int(result, 0, 1);
        clerk->taken = ngx_modelgw_pq_int(result, 0, 2);
    }
}
