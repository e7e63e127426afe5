
/*
 * The journal of a node of a cluster: see ngx_modelgw_journal.h.
 *
 * The outbox has the calls in the order in which they were written, a row for
 * those that are inserted together: the lowest of their ids, by how much each
 * one is higher, and the position of the last one.  The newest row is never
 * deleted, so positions are not used again.
 *
 * A row of "lowest" has the lowest id of the calls of many rows, up to its
 * position, from that of the row before it: so the lowest one of all is found
 * without an index.  Its newest row is not newer than the outbox's.
 *
 * Rejected: a trigger that adds a row for each call (three times as much to do
 * as for the call itself); AUTOINCREMENT, and an index of the ids (a page each
 * that every commit writes, which is most of what the outbox costs).
 *
 * A row of "acknowledged" an hour tells since when the database has the calls
 * up to its position.  They are kept after that: a database that was restored
 * gets them once more.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_journal.h"
#include "ngx_modelgw_store_private.h"


#define NGX_MODELGW_JOURNAL_NOTE     3600  /* seconds between two rows of
                                              "acknowledged" */
#define NGX_MODELGW_JOURNAL_BUDGETS  5356800000LL  /* ms since the begin of a
                                              window: longer than a month, and
                                              a month */


/* the statements of a feed */

typedef enum {
    NGX_MODELGW_FEED_ACCOUNT = 0,
    NGX_MODELGW_FEED_STATE,
    NGX_MODELGW_FEED_FORGET,
    NGX_MODELGW_FEED_KEY,
    NGX_MODELGW_FEED_REPLACED,
    NGX_MODELGW_FEED_STATEMENTS
} ngx_modelgw_feed_e;


typedef ngx_int_t (*ngx_modelgw_journal_row_pt)(ngx_modelgw_stmt_t *stmt,
    void *handler, void *data);


static void ngx_modelgw_journal_id(ngx_modelgw_stmt_t *stmt, ngx_uint_t i,
    char *id);
static ngx_int_t ngx_modelgw_journal_leased(ngx_modelgw_store_t *s,
    ngx_str_t *name, int64_t *total);
static ngx_int_t ngx_modelgw_journal_feed_account(ngx_modelgw_store_t *s,
    ngx_modelgw_stmt_t *stmts, ngx_modelgw_feed_t *feed, uint64_t time);
static ngx_int_t ngx_modelgw_journal_feed_keys(ngx_modelgw_store_t *s,
    ngx_modelgw_stmt_t *stmts, ngx_modelgw_feed_t *feed, ngx_uint_t n,
    uint64_t time);
static ngx_int_t ngx_modelgw_journal_open_account(ngx_modelgw_store_t *s,
    ngx_modelgw_stmt_t *stmts, ngx_modelgw_ledger_name_t *name, uint64_t time);
static void ngx_modelgw_journal_bind_key(ngx_modelgw_stmt_t *stmt,
    ngx_modelgw_managed_key_t *key);
static ngx_int_t ngx_modelgw_journal_run(ngx_modelgw_store_t *s,
    ngx_modelgw_stmt_t *stmt);
static ngx_int_t ngx_modelgw_journal_rows(ngx_modelgw_store_t *s,
    const char *sql, uint64_t pos, ngx_uint_t max,
    ngx_modelgw_journal_row_pt row, void *handler, void *data);
static ngx_int_t ngx_modelgw_journal_lease_row(ngx_modelgw_stmt_t *stmt,
    void *handler, void *data);
static ngx_int_t ngx_modelgw_journal_call_row(ngx_modelgw_stmt_t *stmt,
    void *handler, void *data);
static ngx_int_t ngx_modelgw_journal_price_row(ngx_modelgw_stmt_t *stmt,
    void *handler, void *data);
static ngx_int_t ngx_modelgw_journal_topup_row(ngx_modelgw_stmt_t *stmt,
    void *handler, void *data);


const char  ngx_modelgw_journal_schema[] =
    "DROP VIEW audit;"

    ngx_modelgw_store_audit_sql("granted - returned - forced, 0 FROM leases"
                                " WHERE account NOT GLOB '#*'")

    "CREATE TABLE node ("
        "journal TEXT NOT NULL,"
        "cluster TEXT NOT NULL DEFAULT '',"
        "num INTEGER NOT NULL DEFAULT 0,"
        "exchanged INTEGER NOT NULL DEFAULT 0,"
        "pos INTEGER NOT NULL DEFAULT 0,"
        "keys_version INTEGER NOT NULL DEFAULT 0"
    ") STRICT;"

    "CREATE TABLE outbox ("
        "pos INTEGER NOT NULL PRIMARY KEY,"
        "first INTEGER NOT NULL,"
        "calls TEXT NOT NULL"
    ") STRICT;"

    "CREATE TABLE lowest ("
        "pos INTEGER NOT NULL PRIMARY KEY,"
        "first INTEGER NOT NULL"
    ") STRICT;"

    /* last: of the row of the outbox, by which it is found */

    "CREATE VIEW positions (pos, call, last) AS"
        " SELECT outbox.pos - json_array_length(calls) + 1 + each.key,"
        " first + each.value, outbox.pos"
        " FROM outbox CROSS JOIN json_each(calls) AS each;"

    "CREATE TABLE acknowledged ("
        "time INTEGER NOT NULL PRIMARY KEY,"
        "pos INTEGER NOT NULL"
    ") STRICT;"

    /* of accounts, and of budgets of keys */

    "CREATE TABLE leases ("
        "account TEXT NOT NULL PRIMARY KEY,"
        "granted INTEGER NOT NULL,"
        "returned INTEGER NOT NULL,"
        "forced INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;";


/*
 * calls after ?1, at most ?2; CROSS JOIN: in this order.  Those of a row of the
 * outbox come as they are in its array; to sort by pos would read all of them.
 */

#define NGX_MODELGW_JOURNAL_CALLS                                             \
    " FROM positions CROSS JOIN calls ON id = call"                           \
    " WHERE last > ?1 AND pos > ?1 ORDER BY last LIMIT ?2"


ngx_int_t
ngx_modelgw_journal_init(ngx_modelgw_store_t *s, const char *id)
{
    ngx_int_t      rc;
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_exec(s, ngx_modelgw_journal_schema) != NGX_OK
        || ngx_modelgw_stmt_prepare(s, "INSERT INTO node (journal)"
                                       " VALUES (?1)", &stmt)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_text(&stmt, 1, (u_char *) id, ngx_strlen(id));

    rc = ngx_modelgw_stmt_next(&stmt);

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_DONE) ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_modelgw_journal_read(ngx_modelgw_store_t *s, ngx_modelgw_journal_t *journal)
{
    ngx_int_t      rc;
    ngx_modelgw_stmt_t  stmt;

    if (!s->journal) {
        return NGX_DECLINED;
    }

    if (ngx_modelgw_stmt_prepare(s, "SELECT journal, cluster, num, exchanged,"
                                    " pos, keys_version, "
                                    NGX_MODELGW_JOURNAL_END " FROM node", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_modelgw_stmt_next(&stmt);

    if (rc == NGX_OK) {
        ngx_modelgw_journal_id(&stmt, 0, journal->id);
        ngx_modelgw_journal_id(&stmt, 1, journal->cluster);

        journal->num = ngx_modelgw_stmt_int(&stmt, 2);
        journal->exchanged = ngx_modelgw_stmt_int(&stmt, 3);
        journal->pos = ngx_modelgw_stmt_int(&stmt, 4);
        journal->keys_version = ngx_modelgw_stmt_int(&stmt, 5);
        journal->end = ngx_modelgw_stmt_int(&stmt, 6);

    } else if (rc == NGX_DONE) {
        rc = ngx_modelgw_store_fail_text(s, "does not tell whose journal it"
                                            " is");
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return rc;
}


static void
ngx_modelgw_journal_id(ngx_modelgw_stmt_t *stmt, ngx_uint_t i, char *id)
{
    ngx_str_t  text;

    ngx_modelgw_stmt_text(stmt, i, &text);

    text.len = ngx_min(text.len, NGX_MODELGW_JOURNAL_ID - 1);

    ngx_memcpy(id, text.data, text.len);
    id[text.len] = '\0';
}


ngx_int_t
ngx_modelgw_journal_end(ngx_modelgw_store_t *s, uint64_t *end)
{
    int64_t  last;

    if (ngx_modelgw_store_number(s, "SELECT " NGX_MODELGW_JOURNAL_END, &last)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    *end = last;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_journal_call(ngx_modelgw_store_t *s, uint64_t pos, uint64_t *id)
{
    int64_t  call;

    if (ngx_modelgw_store_step(s, "SELECT coalesce((SELECT call FROM positions"
                                  " WHERE pos = ?1 AND last = (SELECT min(pos)"
                                      " FROM outbox WHERE pos >= ?1)), 0)",
                               pos, 0, &call)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    *id = call;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_journal_set(ngx_modelgw_store_t *s, ngx_modelgw_journal_t *journal)
{
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_ready(s, "UPDATE node SET cluster = ?1, num = ?2,"
                                   " exchanged = ?3, pos = ?4,"
                                   " keys_version = ?5", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_text(&stmt, 1, (u_char *) journal->cluster,
                               ngx_strlen(journal->cluster));
    ngx_modelgw_stmt_bind_int(&stmt, 2, journal->num);
    ngx_modelgw_stmt_bind_int(&stmt, 3, journal->exchanged);
    ngx_modelgw_stmt_bind_int(&stmt, 4, journal->pos);
    ngx_modelgw_stmt_bind_int(&stmt, 5, journal->keys_version);

    return ngx_modelgw_store_once(s, &stmt, 1,
                                  "failed: the node was not written");
}


ngx_int_t
ngx_modelgw_journal_lease(ngx_modelgw_store_t *s, ngx_str_t *name,
    int64_t granted, int64_t returned, int64_t forced)
{
    int64_t                     total;
    ngx_modelgw_stmt_t          stmt;
    ngx_modelgw_ledger_name_t   account;

    if (ngx_modelgw_journal_leased(s, name, &total) != NGX_OK
        || ngx_modelgw_store_ready(s,
               "INSERT INTO leases VALUES (?1, ?2, ?3, ?4)"
               " ON CONFLICT (account) DO UPDATE SET"
               " granted = excluded.granted, returned = excluded.returned,"
               " forced = excluded.forced", &stmt)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_str(&stmt, 1, name);
    ngx_modelgw_stmt_bind_int(&stmt, 2, granted);
    ngx_modelgw_stmt_bind_int(&stmt, 3, returned);
    ngx_modelgw_stmt_bind_int(&stmt, 4, forced);

    if (ngx_modelgw_store_once(s, &stmt, 1, "failed: a lease was not written")
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (name->len && name->data[0] == '#') {
        return NGX_OK;
    }

    account.len = ngx_min(name->len, NGX_MODELGW_LEDGER_NAME);
    ngx_memcpy(account.data, name->data, account.len);

    return ngx_modelgw_store_charge(s, &account,
                                    granted - returned - forced - total);
}


/* *total: what the lease has been in all so far; 0: there is none */

static ngx_int_t
ngx_modelgw_journal_leased(ngx_modelgw_store_t *s, ngx_str_t *name,
    int64_t *total)
{
    ngx_int_t      rc;
    ngx_modelgw_stmt_t  stmt;

    *total = 0;

    if (ngx_modelgw_store_ready(s, "SELECT granted - returned - forced"
                                   " FROM leases WHERE account = ?1", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_str(&stmt, 1, name);

    rc = ngx_modelgw_store_query_one(s, &stmt);

    if (rc == NGX_OK) {
        *total = ngx_modelgw_stmt_int(&stmt, 0);
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


ngx_int_t
ngx_modelgw_journal_topup(ngx_modelgw_store_t *s, ngx_modelgw_change_t *change)
{
    u_char      *p, founding[sizeof("founding:") + NGX_MODELGW_LEDGER_NAME];
    ngx_str_t    id, reason;
    ngx_uint_t   made;

    id.len = ngx_min(change->id.len, NGX_MODELGW_LEDGER_NAME);
    id.data = change->id.data;

    reason.len = ngx_min(change->note_len, NGX_MODELGW_LEDGER_NOTE);
    reason.data = change->note;

    if (change->kind != NGX_MODELGW_CHANGE_TOPUP) {
        p = ngx_cpymem(founding, "founding:", sizeof("founding:") - 1);
        p = ngx_cpymem(p, change->owner.data,
                       ngx_min(change->owner.len, NGX_MODELGW_LEDGER_NAME));

        id.len = p - founding;
        id.data = founding;

        reason.len = 0;
    }

    return ngx_modelgw_store_topup_insert(s, &id, &change->owner,
                                          change->amount, change->time,
                                          &reason, &made);
}


ngx_int_t
ngx_modelgw_journal_feed(ngx_modelgw_store_t *s, ngx_modelgw_feed_t *feed,
    ngx_uint_t n, uint64_t time)
{
    ngx_int_t      rc;
    ngx_uint_t     i, keys;
    ngx_modelgw_stmt_t  stmts[NGX_MODELGW_FEED_STATEMENTS];

    /*
     * The newest row of a key tells what it is; of one that was revoked that is
     * the one with the highest version.  What is not known of a key is for
     * operators only, whom the database answers.
     */

    static const char  *sql[NGX_MODELGW_FEED_STATEMENTS] = {

        [NGX_MODELGW_FEED_ACCOUNT] =
            "INSERT INTO accounts (name, balance, opened) VALUES (?1, 0, ?2)"
            " ON CONFLICT (name) DO NOTHING",

        [NGX_MODELGW_FEED_STATE] =
            "UPDATE accounts SET state = iif(?2, 'closed', 'open')"
            " WHERE name = ?1",

        [NGX_MODELGW_FEED_FORGET] = "DELETE FROM keys WHERE id = ?1",

        [NGX_MODELGW_FEED_KEY] =
            "REPLACE INTO keys VALUES (?2, ?1, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,"
            " ?11, ?12, ?13, 0, 0, '')",

        [NGX_MODELGW_FEED_REPLACED] =
            "UPDATE keys SET state = 'replaced'"
            " WHERE id = ?1 AND state = 'revoked' AND digest !="
            " (SELECT digest FROM keys WHERE id = ?1"
            " AND state IN ('active', 'revoked')"
            " ORDER BY state, version DESC LIMIT 1)"
    };

    ngx_memzero(stmts, sizeof(stmts));

    rc = NGX_OK;

    for (i = 0; i < NGX_MODELGW_FEED_STATEMENTS && rc == NGX_OK; i++) {
        rc = ngx_modelgw_store_ready(s, sql[i], &stmts[i]);
    }

    for (i = 0; i < n && rc == NGX_OK; i += keys) {

        if (feed[i].account) {
            keys = 1;
            rc = ngx_modelgw_journal_feed_account(s, stmts, &feed[i], time);

        } else {
            keys = ngx_modelgw_feed_rows(&feed[i], n - i);
            rc = ngx_modelgw_journal_feed_keys(s, stmts, &feed[i], keys, time);
        }
    }

    for (i = 0; i < NGX_MODELGW_FEED_STATEMENTS; i++) {
        ngx_modelgw_stmt_finalize(&stmts[i]);
    }

    return rc;
}


ngx_uint_t
ngx_modelgw_feed_rows(ngx_modelgw_feed_t *feed, ngx_uint_t n)
{
    ngx_uint_t                  i;
    ngx_modelgw_ledger_name_t  *id;

    id = &feed->key.id;

    for (i = 1; i < n && !feed->account; i++) {

        if (feed[i].account
            || feed[i].key.id.len != id->len
            || ngx_memcmp(feed[i].key.id.data, id->data, id->len) != 0)
        {
            break;
        }
    }

    return i;
}


static ngx_int_t
ngx_modelgw_journal_feed_account(ngx_modelgw_store_t *s,
    ngx_modelgw_stmt_t *stmts, ngx_modelgw_feed_t *feed, uint64_t time)
{
    ngx_modelgw_stmt_t  *stmt;

    if (ngx_modelgw_journal_open_account(s, stmts, &feed->name, time)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    stmt = &stmts[NGX_MODELGW_FEED_STATE];

    ngx_modelgw_stmt_bind_name(stmt, 1, &feed->name);
    ngx_modelgw_stmt_bind_int(stmt, 2, feed->closed);

    return ngx_modelgw_journal_run(s, stmt);
}


static ngx_int_t
ngx_modelgw_journal_feed_keys(ngx_modelgw_store_t *s,
    ngx_modelgw_stmt_t *stmts, ngx_modelgw_feed_t *feed, ngx_uint_t n,
    uint64_t time)
{
    ngx_uint_t     i;
    ngx_modelgw_stmt_t  *stmt;

    stmt = &stmts[NGX_MODELGW_FEED_FORGET];

    ngx_modelgw_stmt_bind_name(stmt, 1, &feed->key.id);

    if (ngx_modelgw_journal_run(s, stmt) != NGX_OK) {
        return NGX_ERROR;
    }

    stmt = &stmts[NGX_MODELGW_FEED_KEY];

    for (i = 0; i < n; i++) {
        ngx_modelgw_journal_bind_key(stmt, &feed[i].key);

        if (feed[i].key.state != NGX_MODELGW_KEY_REVOKED
            && ngx_modelgw_journal_open_account(s, stmts, &feed[i].key.account,
                                                time)
               != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (ngx_modelgw_journal_run(s, stmt) != NGX_OK) {
            return NGX_ERROR;
        }

        if (ngx_modelgw_stmt_changes(stmt) != 1) {
            return ngx_modelgw_store_fault_text(s,
                                             "failed: a key was not written");
        }
    }

    stmt = &stmts[NGX_MODELGW_FEED_REPLACED];

    ngx_modelgw_stmt_bind_name(stmt, 1, &feed->key.id);

    return ngx_modelgw_journal_run(s, stmt);
}


static ngx_int_t
ngx_modelgw_journal_open_account(ngx_modelgw_store_t *s,
    ngx_modelgw_stmt_t *stmts, ngx_modelgw_ledger_name_t *name, uint64_t time)
{
    ngx_modelgw_stmt_t  *stmt;

    stmt = &stmts[NGX_MODELGW_FEED_ACCOUNT];

    ngx_modelgw_stmt_bind_name(stmt, 1, name);
    ngx_modelgw_stmt_bind_int(stmt, 2, time);

    return ngx_modelgw_journal_run(s, stmt);
}


static void
ngx_modelgw_journal_bind_key(ngx_modelgw_stmt_t *stmt,
    ngx_modelgw_managed_key_t *key)
{
    ngx_str_t  *window, *state;

    static ngx_str_t  states[] = {
        [NGX_MODELGW_KEY_FREE] = ngx_string("revoked"),
        [NGX_MODELGW_KEY_ACTIVE] = ngx_string("active"),
        [NGX_MODELGW_KEY_ROTATED] = ngx_string("rotated"),
        [NGX_MODELGW_KEY_REVOKED] = ngx_string("revoked")
    };

    window = &ngx_modelgw_windows[key->window];
    state = &states[key->state];

    ngx_modelgw_stmt_bind_name(stmt, 1, &key->id);
    ngx_modelgw_stmt_bind_blob(stmt, 2, key->digest, NGX_MODELGW_KEY_DIGEST);
    ngx_modelgw_stmt_bind_name(stmt, 3, &key->account);
    ngx_modelgw_stmt_bind_name(stmt, 4, &key->group);
    ngx_modelgw_stmt_bind_text(stmt, 5, key->models,
                               ngx_min(key->models_len,
                                       NGX_MODELGW_LEDGER_MODELS));
    ngx_modelgw_stmt_bind_int(stmt, 6, key->rpm);
    ngx_modelgw_stmt_bind_int(stmt, 7, key->tpm);
    ngx_modelgw_stmt_bind_int(stmt, 8, key->concurrency);
    ngx_modelgw_stmt_bind_int(stmt, 9, key->budget);
    ngx_modelgw_stmt_bind_text(stmt, 10, window->data, window->len);
    ngx_modelgw_stmt_bind_int(stmt, 11, key->expires * 1000);
    ngx_modelgw_stmt_bind_text(stmt, 12, state->data, state->len);
    ngx_modelgw_stmt_bind_int(stmt, 13, key->version);
}


/* A statement of a batch that is executed again. */

static ngx_int_t
ngx_modelgw_journal_run(ngx_modelgw_store_t *s, ngx_modelgw_stmt_t *stmt)
{
    ngx_set_errno(0);

    if (sqlite3_step(stmt->sqlite) != SQLITE_DONE) {
        return ngx_modelgw_store_fault(s, stmt->sqlite);
    }

    (void) sqlite3_reset(stmt->sqlite);

    return NGX_OK;
}


/*
 * A node that was set back to an earlier position, since the database was, has
 * not sent again what is above it: that is kept, too.
 */

ngx_int_t
ngx_modelgw_journal_trim(ngx_modelgw_store_t *s, uint64_t time, ngx_uint_t max,
    ngx_uint_t *n)
{
    int64_t  old, now;

    *n = 0;

    old = time;
    now = time + NGX_MODELGW_JOURNAL_KEEP;

    if (ngx_modelgw_store_begin(s) != NGX_OK) {
        return NGX_ERROR;
    }

    /* a clock that was wrong does not prevent it: only times near now count */

    if (ngx_modelgw_store_step(s,
            "INSERT INTO acknowledged SELECT ?2, pos FROM node"
            " WHERE NOT EXISTS (SELECT 1 FROM acknowledged"
                " WHERE time BETWEEN ?1 + 1 AND ?2)",
            now - NGX_MODELGW_JOURNAL_NOTE, now, NULL)
        != NGX_OK
        || ngx_modelgw_store_step(s,
            "DELETE FROM outbox WHERE pos IN (SELECT pos FROM outbox"
            " WHERE pos <= (SELECT min(node.pos, coalesce(max(done.pos), 0))"
                " FROM node, acknowledged AS done WHERE done.time <= ?1)"
            " AND pos < " NGX_MODELGW_JOURNAL_END
            " ORDER BY pos LIMIT ?2)", old, max, NULL)
           != NGX_OK)
    {
        return ngx_modelgw_store_abandon(s);
    }

    *n = sqlite3_changes(s->db);

    if (ngx_modelgw_store_step(s,
            "DELETE FROM lowest WHERE pos < (SELECT min(pos) FROM outbox)",
            0, 0, NULL)
        != NGX_OK
        || ngx_modelgw_store_step(s,
            "DELETE FROM acknowledged WHERE time <"
            " (SELECT max(time) FROM acknowledged WHERE time <= ?1)",
            old, 0, NULL)
        != NGX_OK
        || ngx_modelgw_store_step(s, "DELETE FROM topups WHERE time < ?1",
                                  old * 1000, 0, NULL)
           != NGX_OK
        || ngx_modelgw_store_step(s,
            "DELETE FROM leases WHERE account GLOB '#*'"
            " AND account NOT GLOB '#*/total/*'"
            " AND CAST(substr(account,"
                " length(rtrim(account, '0123456789')) + 1) AS INTEGER) < ?1",
            now * 1000 - NGX_MODELGW_JOURNAL_BUDGETS, 0, NULL)
           != NGX_OK)
    {
        return ngx_modelgw_store_abandon(s);
    }

    return ngx_modelgw_store_commit(s);
}


ngx_int_t
ngx_modelgw_journal_leases(ngx_modelgw_store_t *s,
    ngx_modelgw_journal_lease_pt handler, void *data)
{
    return ngx_modelgw_journal_rows(s, "SELECT * FROM leases", 0, 0,
                                    ngx_modelgw_journal_lease_row, &handler,
                                    data);
}


ngx_int_t
ngx_modelgw_journal_calls(ngx_modelgw_store_t *s, uint64_t pos, ngx_uint_t max,
    ngx_modelgw_journal_call_pt handler, void *data)
{
    return ngx_modelgw_journal_rows(s,
                        "SELECT pos, id, time, ended, input, cache_read,"
                        " cache_write, cache_write_1h, output, reasoning, cost,"
                        " status, coalesce(first_byte, -1), flags, price, key,"
                        " account, model, outcome, \"end\", request_id"
                        NGX_MODELGW_JOURNAL_CALLS, pos, max,
                        ngx_modelgw_journal_call_row, &handler, data);
}


ngx_int_t
ngx_modelgw_journal_price(ngx_modelgw_store_t *s, uint64_t id,
    ngx_modelgw_journal_price_pt handler, void *data)
{
    return ngx_modelgw_journal_rows(s,
                        "SELECT id, \"group\", model, \"from\", input, output,"
                        " cache_read, cache_write, cache_write_1h FROM prices"
                        " WHERE id = ?1", id, 0, ngx_modelgw_journal_price_row,
                        &handler, data);
}


ngx_int_t
ngx_modelgw_journal_topups(ngx_modelgw_store_t *s, uint64_t time,
    ngx_uint_t max, ngx_modelgw_journal_topup_pt handler, void *data)
{
    return ngx_modelgw_journal_rows(s,
                        "SELECT id, account, amount, time, reason FROM topups"
                        " WHERE time > ?1 ORDER BY time LIMIT ?2", time, max,
                        ngx_modelgw_journal_topup_row, &handler, data);
}


/* handler: the address of the function, whose type "row" knows */

static ngx_int_t
ngx_modelgw_journal_rows(ngx_modelgw_store_t *s, const char *sql, uint64_t pos,
    ngx_uint_t max, ngx_modelgw_journal_row_pt row, void *handler, void *data)
{
    ngx_int_t      rc;
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_stmt_prepare(s, sql, &stmt) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_int(&stmt, 1, pos);
    ngx_modelgw_stmt_bind_int(&stmt, 2, max);

    while ((rc = ngx_modelgw_stmt_next(&stmt)) == NGX_OK) {
        rc = row(&stmt, handler, data);

        if (rc != NGX_OK) {
            break;
        }
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_DONE) ? NGX_OK : rc;
}


static ngx_int_t
ngx_modelgw_journal_lease_row(ngx_modelgw_stmt_t *stmt, void *handler,
    void *data)
{
    ngx_str_t                      name;
    ngx_modelgw_journal_lease_pt  *lease = handler;

    ngx_modelgw_stmt_text(stmt, 0, &name);

    return (*lease)(data, &name, ngx_modelgw_stmt_int(stmt, 1),
                    ngx_modelgw_stmt_int(stmt, 2),
                    ngx_modelgw_stmt_int(stmt, 3));
}


static ngx_int_t
ngx_modelgw_journal_call_row(ngx_modelgw_stmt_t *stmt, void *handler,
    void *data)
{
    ngx_modelgw_journal_call_t    call;
    ngx_modelgw_journal_call_pt  *take = handler;

    call.pos = ngx_modelgw_stmt_int(stmt, 0);
    call.id = ngx_modelgw_stmt_int(stmt, 1);
    call.time = ngx_modelgw_stmt_int(stmt, 2);
    call.ended = ngx_modelgw_stmt_int(stmt, 3);
    call.input = ngx_modelgw_stmt_int(stmt, 4);
    call.cache_read = ngx_modelgw_stmt_int(stmt, 5);
    call.cache_write = ngx_modelgw_stmt_int(stmt, 6);
    call.cache_write_1h = ngx_modelgw_stmt_int(stmt, 7);
    call.output = ngx_modelgw_stmt_int(stmt, 8);
    call.reasoning = ngx_modelgw_stmt_int(stmt, 9);
    call.cost = ngx_modelgw_stmt_int(stmt, 10);
    call.status = ngx_modelgw_stmt_int(stmt, 11);
    call.first_byte = ngx_modelgw_stmt_int(stmt, 12);
    call.flags = ngx_modelgw_stmt_int(stmt, 13);
    call.price = ngx_modelgw_stmt_int(stmt, 14);

    ngx_modelgw_stmt_text(stmt, 15, &call.key);
    ngx_modelgw_stmt_text(stmt, 16, &call.account);
    ngx_modelgw_stmt_text(stmt, 17, &call.model);
    ngx_modelgw_stmt_text(stmt, 18, &call.outcome);
    ngx_modelgw_stmt_text(stmt, 19, &call.end);
    ngx_modelgw_stmt_text(stmt, 20, &call.request_id);

    return (*take)(data, &call);
}


static ngx_int_t
ngx_modelgw_journal_price_row(ngx_modelgw_stmt_t *stmt, void *handler,
    void *data)
{
    ngx_modelgw_store_price_t      price;
    ngx_modelgw_journal_price_pt  *take = handler;

    ngx_memzero(&price, sizeof(ngx_modelgw_store_price_t));

    price.id = ngx_modelgw_stmt_int(stmt, 0);
    ngx_modelgw_stmt_text(stmt, 1, &price.group);
    ngx_modelgw_stmt_text(stmt, 2, &price.model);
    price.time = ngx_modelgw_stmt_int(stmt, 3);
    price.rates.input = ngx_modelgw_stmt_int(stmt, 4);
    price.rates.output = ngx_modelgw_stmt_int(stmt, 5);
    price.rates.cache_read = ngx_modelgw_stmt_int(stmt, 6);
    price.rates.cache_write = ngx_modelgw_stmt_int(stmt, 7);
    price.rates.cache_write_1h = ngx_modelgw_stmt_int(stmt, 8);

    return (*take)(data, &price);
}


static ngx_int_t
ngx_modelgw_journal_topup_row(ngx_modelgw_stmt_t *stmt, void *handler,
    void *data)
{
    ngx_modelgw_journal_topup_t    topup;
    ngx_modelgw_journal_topup_pt  *take = handler;

    ngx_modelgw_stmt_text(stmt, 0, &topup.id);
    ngx_modelgw_stmt_text(stmt, 1, &topup.account);
    topup.amount = ngx_modelgw_stmt_int(stmt, 2);
    topup.time = ngx_modelgw_stmt_int(stmt, 3);
    ngx_modelgw_stmt_text(stmt, 4, &topup.reason);

    return (*take)(data, &topup);
}
