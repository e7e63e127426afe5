
/*
 * The tables of the store, and how its version is told.
 *
 * application_id and user_version are set in the transaction that makes the
 * tables: a file has all of them or is empty.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"


#define NGX_MODELGW_STORE_ID  0x6d67776c  /* application_id: "mgwl" */


/*
 * Amounts are nano-euro, times milliseconds since the Epoch.  What an account
 * has is what was topped up less what its calls have cost, those that were
 * rolled up to days (UTC, by their end) included: "audit" derives it anew.
 */

static const char  ngx_modelgw_store_schema[] =
    "CREATE TABLE accounts ("
        "name TEXT NOT NULL PRIMARY KEY,"
        "balance INTEGER NOT NULL,"
        "opened INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"

    "CREATE TABLE calls ("
        "id INTEGER NOT NULL PRIMARY KEY,"
        "time INTEGER NOT NULL,"
        "ended INTEGER NOT NULL,"
        "key TEXT NOT NULL,"
        "account TEXT NOT NULL,"
        "model TEXT NOT NULL,"
        "input INTEGER NOT NULL,"
        "cache_read INTEGER NOT NULL,"
        "cache_write INTEGER NOT NULL,"
        "cache_write_1h INTEGER NOT NULL,"
        "output INTEGER NOT NULL,"
        "reasoning INTEGER NOT NULL,"
        "cost INTEGER NOT NULL,"
        "outcome TEXT NOT NULL,"
        "\"end\" TEXT NOT NULL,"
        "status INTEGER NOT NULL"
    ") STRICT;"

    /* of calls that were sent; cost: if nothing is heard of them any more */

    "CREATE TABLE holds ("
        "id INTEGER NOT NULL PRIMARY KEY,"
        "time INTEGER NOT NULL,"
        "key TEXT NOT NULL,"
        "account TEXT NOT NULL,"
        "model TEXT NOT NULL,"
        "hold INTEGER NOT NULL,"
        "input INTEGER NOT NULL,"
        "cost INTEGER NOT NULL"
    ") STRICT;"

    "CREATE TABLE topups ("
        "id TEXT NOT NULL PRIMARY KEY,"
        "account TEXT NOT NULL,"
        "amount INTEGER NOT NULL,"
        "time INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"

    "CREATE TABLE days ("
        "day TEXT NOT NULL,"
        "account TEXT NOT NULL,"
        "key TEXT NOT NULL,"
        "model TEXT NOT NULL,"
        "calls INTEGER NOT NULL,"
        "input INTEGER NOT NULL,"
        "cache_read INTEGER NOT NULL,"
        "cache_write INTEGER NOT NULL,"
        "cache_write_1h INTEGER NOT NULL,"
        "output INTEGER NOT NULL,"
        "reasoning INTEGER NOT NULL,"
        "cost INTEGER NOT NULL,"
        "PRIMARY KEY (day, account, key, model)"
    ") STRICT, WITHOUT ROWID;"

    /* every row is to have a difference of 0 */

    "CREATE VIEW audit AS "
        "SELECT account, sum(balance) AS balance, sum(derived) AS derived,"
            " sum(balance) - sum(derived) AS difference"
        " FROM (SELECT name AS account, balance, 0 AS derived FROM accounts"
            " UNION ALL SELECT account, 0, amount FROM topups"
            " UNION ALL SELECT account, 0, -cost FROM calls"
            " UNION ALL SELECT account, 0, -cost FROM days)"
        " GROUP BY account;"

    /* for people: euro, and times as text */

    "CREATE VIEW balances AS "
        "SELECT name AS account, printf('%s%d.%09d',"
            " iif(balance < 0, '-', ''), abs(balance) / 1000000000,"
            " abs(balance) % 1000000000) AS euro,"
            " datetime(opened / 1000, 'unixepoch') AS opened"
        " FROM accounts;"

    "CREATE VIEW ledger AS "
        "SELECT id, strftime('%Y-%m-%dT%H:%M:%fZ', time / 1000.0,"
            " 'unixepoch') AS time,"
            " strftime('%Y-%m-%dT%H:%M:%fZ', ended / 1000.0,"
            " 'unixepoch') AS ended,"
            " key, account, model, input, cache_read, cache_write,"
            " cache_write_1h, output, reasoning,"
            " printf('%d.%09d', cost / 1000000000, cost % 1000000000) AS euro,"
            " outcome, \"end\", status"
        " FROM calls;";


ngx_int_t
ngx_modelgw_store_create(ngx_modelgw_store_t *s)
{
    char  sql[128];

    /* an empty file that somebody has put there may have any mode */

    if (chmod(s->path, 0600) == -1) {
        ngx_modelgw_store_say(&s->error, s->path, "cannot be made", errno);
        return NGX_ERROR;
    }

    (void) snprintf(sql, sizeof(sql),
                    "PRAGMA application_id = %d; PRAGMA user_version = %d",
                    NGX_MODELGW_STORE_ID, NGX_MODELGW_STORE_VERSION);

    if (ngx_modelgw_store_exec(s, "BEGIN IMMEDIATE") != NGX_OK
        || ngx_modelgw_store_exec(s, ngx_modelgw_store_schema) != NGX_OK
        || ngx_modelgw_store_exec(s, sql) != NGX_OK
        || ngx_modelgw_store_exec(s, "COMMIT") != NGX_OK)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_version(int64_t id, int64_t version, const char *path,
    ngx_modelgw_store_error_t *error)
{
    char  text[64];

    if (id != NGX_MODELGW_STORE_ID) {
        ngx_modelgw_store_say(error, path,
                              "is a database of another program", 0);
        return NGX_ERROR;
    }

    if (version != NGX_MODELGW_STORE_VERSION) {
        (void) snprintf(text, sizeof(text), "is of version %d, this is %d",
                        (int) version, NGX_MODELGW_STORE_VERSION);
        ngx_modelgw_store_say(error, path, text, 0);
        return NGX_ERROR;
    }

    return NGX_OK;
}
