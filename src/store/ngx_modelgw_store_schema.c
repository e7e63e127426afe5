
/*
 * The tables of the file, and what kind and version of it there are.
 *
 * They are created in one transaction, together with application_id and
 * user_version: a file has all of them or is empty.
 *
 * Rejected: an index of calls by account (it more than doubles what a call
 * costs, for a query that an operator makes once a week); numbers instead of
 * words in the tables (the accountant's SQL has to be readable).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"


#define NGX_MODELGW_STORE_ID        0x6d67776c  /* application_id: "mgwl" */
#define NGX_MODELGW_STORE_JOURNAL   100  /* added to the version of a journal:
                                            an nginx that does not know of them
                                            refuses it */


static ngx_int_t ngx_modelgw_store_tables(ngx_modelgw_store_t *s,
    const char *sql, const char *id);


/*
 * Amounts are nano-euro, times are milliseconds since the Epoch.  An account's
 * balance is its top-ups less the cost of its calls, including those rolled up
 * to days (UTC, by their end): "audit" computes it again.
 */

static const char  ngx_modelgw_store_schema[] =
    "CREATE TABLE accounts ("
        "name TEXT NOT NULL PRIMARY KEY,"
        "balance INTEGER NOT NULL,"
        "opened INTEGER NOT NULL,"
        "state TEXT NOT NULL DEFAULT 'open',"
        "note TEXT NOT NULL DEFAULT ''"
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
        "status INTEGER NOT NULL,"
        "request_id TEXT NOT NULL DEFAULT '',"
        "first_byte INTEGER,"
        "flags INTEGER NOT NULL DEFAULT 0,"
        "price INTEGER NOT NULL DEFAULT 0"
    ") STRICT;"

    /* of calls that were sent; cost: if the call is lost */

    "CREATE TABLE holds ("
        "id INTEGER NOT NULL PRIMARY KEY,"
        "time INTEGER NOT NULL,"
        "key TEXT NOT NULL,"
        "account TEXT NOT NULL,"
        "model TEXT NOT NULL,"
        "hold INTEGER NOT NULL,"
        "input INTEGER NOT NULL,"
        "cost INTEGER NOT NULL,"
        "request_id TEXT NOT NULL DEFAULT '',"
        "flags INTEGER NOT NULL DEFAULT 0,"
        "price INTEGER NOT NULL DEFAULT 0"
    ") STRICT;"

    "CREATE TABLE topups ("
        "id TEXT NOT NULL PRIMARY KEY,"
        "account TEXT NOT NULL,"
        "amount INTEGER NOT NULL,"
        "time INTEGER NOT NULL,"
        "reason TEXT NOT NULL DEFAULT ''"
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
        "errors INTEGER NOT NULL DEFAULT 0,"
        "duration INTEGER NOT NULL DEFAULT 0,"
        "first_bytes INTEGER NOT NULL DEFAULT 0,"
        "first_byte INTEGER NOT NULL DEFAULT 0,"
        "PRIMARY KEY (day, account, key, model)"
    ") STRICT, WITHOUT ROWID;";


/* what version 2 has added, with the views of it */

static const char  ngx_modelgw_store_schema2[] =

    /* by the hour when calls ended, up to the mark "hours" */

    "CREATE TABLE hours ("
        "hour INTEGER NOT NULL,"
        "account TEXT NOT NULL,"
        "key TEXT NOT NULL,"
        "model TEXT NOT NULL,"
        "calls INTEGER NOT NULL,"
        "errors INTEGER NOT NULL,"
        "input INTEGER NOT NULL,"
        "cache_read INTEGER NOT NULL,"
        "cache_write INTEGER NOT NULL,"
        "cache_write_1h INTEGER NOT NULL,"
        "output INTEGER NOT NULL,"
        "reasoning INTEGER NOT NULL,"
        "cost INTEGER NOT NULL,"
        "duration INTEGER NOT NULL,"
        "first_bytes INTEGER NOT NULL,"
        "first_byte INTEGER NOT NULL,"
        "PRIMARY KEY (hour, account, key, model)"
    ") STRICT, WITHOUT ROWID;"

    "CREATE TABLE marks ("
        "name TEXT NOT NULL PRIMARY KEY,"
        "value INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"

    "CREATE INDEX calls_ended ON calls (ended);"

    /* a row a digest: a key that is rotated with grace has two */

    "CREATE TABLE keys ("
        "digest BLOB NOT NULL PRIMARY KEY,"
        "id TEXT NOT NULL,"
        "account TEXT NOT NULL,"
        "\"group\" TEXT NOT NULL,"
        "models TEXT NOT NULL,"
        "rpm INTEGER NOT NULL,"
        "tpm INTEGER NOT NULL,"
        "concurrency INTEGER NOT NULL,"
        "budget INTEGER NOT NULL,"
        "window TEXT NOT NULL,"
        "expires INTEGER NOT NULL,"
        "state TEXT NOT NULL,"
        "version INTEGER NOT NULL,"
        "created INTEGER NOT NULL,"
        "changed INTEGER NOT NULL,"
        "note TEXT NOT NULL"
    ") STRICT, WITHOUT ROWID;"

    "CREATE INDEX keys_id ON keys (id);"

    /* pico-euro per token */

    "CREATE TABLE prices ("
        "id INTEGER NOT NULL PRIMARY KEY,"
        "\"group\" TEXT NOT NULL,"
        "model TEXT NOT NULL,"
        "\"from\" INTEGER NOT NULL,"
        "input INTEGER NOT NULL,"
        "output INTEGER NOT NULL,"
        "cache_read INTEGER NOT NULL,"
        "cache_write INTEGER NOT NULL,"
        "cache_write_1h INTEGER NOT NULL"
    ") STRICT;"

    "CREATE TABLE actions ("
        "id INTEGER NOT NULL PRIMARY KEY,"
        "time INTEGER NOT NULL,"
        "actor TEXT NOT NULL,"
        "address TEXT NOT NULL,"
        "action TEXT NOT NULL,"
        "target TEXT NOT NULL,"
        "before TEXT NOT NULL,"
        "after TEXT NOT NULL"
    ") STRICT;"

    ngx_modelgw_store_audit_sql("amount, 0 FROM topups")

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
            " outcome, \"end\", status, request_id, first_byte,"
            " flags & 1 AS stream, flags / 2 & 1 AS translated, price"
        " FROM calls;"

    /* nothing in a new file */

    "INSERT INTO marks SELECT 'hours', min(coalesce(max(ended) + 1, 0),"
        " CAST(strftime('%s', 'now') AS INTEGER) * 1000) FROM calls;"

    ngx_modelgw_store_hours_sql("ended < " NGX_MODELGW_STORE_MARK) ";";


/*
 * What a file of version 1 lacks.  Columns are added at the end, where they are
 * in a new file, too: calls are inserted by position.
 */

static const char  ngx_modelgw_store_migration[] =
    "DROP VIEW audit;"
    "DROP VIEW balances;"
    "DROP VIEW ledger;"

    "ALTER TABLE accounts ADD COLUMN state TEXT NOT NULL DEFAULT 'open';"
    "ALTER TABLE accounts ADD COLUMN note TEXT NOT NULL DEFAULT '';"

    "ALTER TABLE calls ADD COLUMN request_id TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE calls ADD COLUMN first_byte INTEGER;"
    "ALTER TABLE calls ADD COLUMN flags INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE calls ADD COLUMN price INTEGER NOT NULL DEFAULT 0;"

    "ALTER TABLE holds ADD COLUMN request_id TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE holds ADD COLUMN flags INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE holds ADD COLUMN price INTEGER NOT NULL DEFAULT 0;"

    "ALTER TABLE topups ADD COLUMN reason TEXT NOT NULL DEFAULT '';"

    "ALTER TABLE days ADD COLUMN errors INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE days ADD COLUMN duration INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE days ADD COLUMN first_bytes INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE days ADD COLUMN first_byte INTEGER NOT NULL DEFAULT 0;";


ngx_int_t
ngx_modelgw_store_identify(ngx_modelgw_store_t *s)
{
    int64_t  pages, id, version;

    if (ngx_modelgw_store_number(s, "PRAGMA page_count", &pages) != NGX_OK) {
        return NGX_ERROR;
    }

    if (pages == 0) {
        return NGX_DECLINED;
    }

    if (ngx_modelgw_store_number(s, "PRAGMA application_id", &id) != NGX_OK
        || ngx_modelgw_store_number(s, "PRAGMA user_version", &version)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_modelgw_store_version(id, &version, &s->journal, s->path, &s->error)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return (version == NGX_MODELGW_STORE_VERSION) ? NGX_OK : NGX_DONE;
}


ngx_int_t
ngx_modelgw_store_version(int64_t id, int64_t *version, ngx_uint_t *journal,
    const char *path, ngx_modelgw_store_error_t *error)
{
    char  text[64];

    if (id != NGX_MODELGW_STORE_ID) {
        ngx_modelgw_store_set_error(error, path,
                                    "is a database of another program", 0);
        return NGX_ERROR;
    }

    *journal = (*version > NGX_MODELGW_STORE_JOURNAL);

    if (*journal) {
        *version -= NGX_MODELGW_STORE_JOURNAL;
    }

    /* there are journals since version 2 */

    if (*version < (*journal ? 2 : 1) || *version > NGX_MODELGW_STORE_VERSION) {
        (void) snprintf(text, sizeof(text), "has version %d, %d is required",
                        (int) *version, NGX_MODELGW_STORE_VERSION);
        ngx_modelgw_store_set_error(error, path, text, 0);
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_kind(ngx_uint_t journal, ngx_uint_t cluster, const char *path,
    ngx_modelgw_store_error_t *error)
{
    if (journal == cluster) {
        return NGX_OK;
    }

    ngx_modelgw_store_set_error(error, path,
              journal ? "is the journal of a node: it needs \"modelgw_cluster\""
                      : "is the ledger of one machine: a cluster takes it over "
                        "by \"modelgwctl cluster import\"", 0);

    return NGX_ERROR;
}


ngx_int_t
ngx_modelgw_store_create(ngx_modelgw_store_t *s, const char *id)
{
    /* an existing empty file may have any mode */

    if (chmod(s->path, 0600) == -1) {
        ngx_modelgw_store_set_error(&s->error, s->path, "cannot be created",
                                    errno);
        return NGX_ERROR;
    }

    return ngx_modelgw_store_tables(s, ngx_modelgw_store_schema, id);
}


ngx_int_t
ngx_modelgw_store_migrate(ngx_modelgw_store_t *s)
{
    s->migrated = 1;

    return ngx_modelgw_store_tables(s, ngx_modelgw_store_migration, NULL);
}


/*
 * sql makes the tables that are in version 1, too, what they are now; id: of a
 * journal, or NULL
 */

static ngx_int_t
ngx_modelgw_store_tables(ngx_modelgw_store_t *s, const char *sql,
    const char *id)
{
    char  ids[128];

    s->journal = (id != NULL);

    (void) snprintf(ids, sizeof(ids),
                    "PRAGMA application_id = %d; PRAGMA user_version = %d",
                    NGX_MODELGW_STORE_ID, ngx_modelgw_store_user_version(s));

    if (ngx_modelgw_store_exec(s, "BEGIN IMMEDIATE") != NGX_OK
        || ngx_modelgw_store_exec(s, sql) != NGX_OK
        || ngx_modelgw_store_exec(s, ngx_modelgw_store_schema2) != NGX_OK
        || (id && ngx_modelgw_journal_init(s, id) != NGX_OK)
        || ngx_modelgw_store_exec(s, ids) != NGX_OK
        || ngx_modelgw_store_exec(s, "COMMIT") != NGX_OK)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


int
ngx_modelgw_store_user_version(ngx_modelgw_store_t *s)
{
    return NGX_MODELGW_STORE_VERSION
           + (s->journal ? NGX_MODELGW_STORE_JOURNAL : 0);
}
