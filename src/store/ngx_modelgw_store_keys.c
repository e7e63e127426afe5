
/*
 * Keys that operators make: a row a digest.  One that was rotated has several,
 * of which one, the newest, is "active" or "revoked".  The others are
 * "rotated", and work until they expire, or "replaced": a rotation without
 * grace, or a revocation, has ended them.  That is a state and not a time, as
 * the clock may be set back.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_out.h"
#include "ngx_modelgw_store_cluster.h"
#include "ngx_modelgw_store_private.h"


/* what ngx_modelgw_store_key_row() reads, from column 0 on */

#define ngx_modelgw_store_key_sql(old)                                        \
    "SELECT digest, id, account, \"group\", models, rpm, tpm, concurrency,"   \
    " budget, \"window\", expires / 1000, state, version, note, created, "    \
    old                                                                       \
    " FROM keys"

#define NGX_MODELGW_STORE_KEY_NOTE     13
#define NGX_MODELGW_STORE_KEY_CREATED  14
#define NGX_MODELGW_STORE_KEY_OLD      15

/* when the last of the older ones expires; not read for the table */

#define NGX_MODELGW_STORE_KEY          ngx_modelgw_store_key_sql(             \
    "(SELECT max(old.expires) / 1000 FROM keys AS old"                        \
    " WHERE old.id = keys.id AND old.state = 'rotated')")

#define NGX_MODELGW_STORE_KEY_TABLE    ngx_modelgw_store_key_sql("0")

/* the newest row of an id, rows that may be used */

#define NGX_MODELGW_STORE_KEY_NEWEST  " state IN ('active', 'revoked')"
#define NGX_MODELGW_STORE_KEY_IN_USE  " state IN ('active', 'rotated')"

/* rows that are loaded as working at the time ?1 */

#define NGX_MODELGW_STORE_KEY_WORKS                                           \
    " (state = 'active' OR (state = 'rotated' AND expires > ?1))"


static ngx_int_t ngx_modelgw_store_key_find(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_text_t *text,
    ngx_uint_t *revoked);
static ngx_int_t ngx_modelgw_store_key_account(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change);
static ngx_int_t ngx_modelgw_store_key_current(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action);
static ngx_int_t ngx_modelgw_store_key_known(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action);
static ngx_int_t ngx_modelgw_store_key_one(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_stmt_t *stmt);
static ngx_int_t ngx_modelgw_store_key_insert(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change);
static ngx_int_t ngx_modelgw_store_key_step(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, const char *sql);
static void ngx_modelgw_store_key_bind(ngx_modelgw_stmt_t *stmt,
    ngx_modelgw_change_t *change);
static ngx_int_t ngx_modelgw_store_keys_read(ngx_modelgw_store_t *s,
    const char *sql, ngx_str_t *accounts, uint64_t time,
    ngx_modelgw_store_key_pt handler, void *data);
static void ngx_modelgw_store_feed_row(ngx_modelgw_stmt_t *stmt,
    ngx_modelgw_feed_t *feed);
static void ngx_modelgw_store_key_row(ngx_modelgw_stmt_t *stmt,
    ngx_modelgw_managed_key_t *key);
static size_t ngx_modelgw_store_key_copy(ngx_modelgw_stmt_t *stmt, int i,
    u_char *data, size_t size);
static ngx_uint_t ngx_modelgw_store_key_word(ngx_modelgw_stmt_t *stmt, int i,
    ngx_str_t *words, ngx_uint_t n);
static void ngx_modelgw_store_key_write(ngx_modelgw_out_t *out,
    ngx_modelgw_managed_key_t *key, ngx_str_t *note);
static void ngx_modelgw_store_key_time(ngx_modelgw_out_t *out,
    const char *name, uint64_t time);
static void ngx_modelgw_store_key_member(ngx_modelgw_out_t *out,
    const char *name, ngx_modelgw_ledger_name_t *value);


/*
 * Of a cluster: as a key's row, with columns after it.  Each part is limited by
 * itself, so that of a million accounts only the next ones are read.
 */

static const char  ngx_modelgw_store_feed_sql[] =
    "(SELECT digest, id, account, \"group\", models, rpm, tpm, concurrency,"
        " budget, \"window\", expires / 1000, state, version, '', 0, 0,"
        " keys_version, 0, 0, state = 'replaced', changed"
    " FROM modelgw.keys WHERE keys_version > ?1"
    " ORDER BY 17, 20, 21 DESC LIMIT ?2)"
    " UNION ALL (SELECT '', name, '', '', '', 0, 0, 0,"
        " 0, '', 0, '', 0, '', 0, 0,"
        " version, 1, CASE state WHEN 'closed' THEN 1 ELSE 0 END, false, 0"
    " FROM modelgw.accounts WHERE version > ?1"
    " ORDER BY 17 LIMIT ?2)"
    " ORDER BY 17, 18 DESC, 20, 21 DESC LIMIT ?2";

#define NGX_MODELGW_STORE_FEED_VERSION  16
#define NGX_MODELGW_STORE_FEED_ACCOUNT  17
#define NGX_MODELGW_STORE_FEED_CLOSED   18


static ngx_str_t  ngx_modelgw_store_key_states[] = {
    [NGX_MODELGW_KEY_FREE] = ngx_string(""),
    [NGX_MODELGW_KEY_ACTIVE] = ngx_string("active"),
    [NGX_MODELGW_KEY_ROTATED] = ngx_string("rotated"),
    [NGX_MODELGW_KEY_REVOKED] = ngx_string("revoked")
};


ngx_int_t
ngx_modelgw_store_key_new(ngx_modelgw_store_t *s, ngx_modelgw_change_t *change,
    ngx_modelgw_store_action_t *action)
{
    ngx_int_t   rc;
    ngx_uint_t  revoked;

    action->target = &change->key.id;

    rc = ngx_modelgw_store_key_known(s, change, action);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    change->key.version = 1;

    if (ngx_modelgw_store_key_account(s, change) != NGX_OK
        || ngx_modelgw_store_key_insert(s, change) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (change->imported) {
        ngx_str_set(&action->name, "key.import");

    } else {
        ngx_str_set(&action->name, "key.create");
    }

    return ngx_modelgw_store_key_find(s, change, &action->after, &revoked);
}


/*
 * The account of a new key, if there is none yet: an action of its own, just
 * before that of the key.
 */

static ngx_int_t
ngx_modelgw_store_key_account(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change)
{
    ngx_int_t                   rc;
    ngx_modelgw_store_action_t  action;

    ngx_memzero(&action, sizeof(ngx_modelgw_store_action_t));

    action.target = &change->owner;

    rc = ngx_modelgw_store_account_open(s, change, &action);

    if (rc != NGX_OK) {
        return (rc == NGX_DECLINED) ? NGX_OK : NGX_ERROR;
    }

    return ngx_modelgw_store_change_record(s, change, change->time - 1,
                                           &action);
}


/* NGX_DECLINED: neither the id nor the digest is known */

static ngx_int_t
ngx_modelgw_store_key_known(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action)
{
    ngx_int_t           rc;
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_ready(s, "SELECT id = ?1 FROM keys"
                                   " WHERE id = ?1 OR digest = ?2"
                                   " ORDER BY id = ?1 DESC", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_store_key_bind(&stmt, change);

    rc = ngx_modelgw_store_query_one(s, &stmt);

    if (rc == NGX_OK) {
        action->result = ngx_modelgw_stmt_int(&stmt, 0)
                         ? NGX_MODELGW_CHANGE_OTHER
                         : NGX_MODELGW_CHANGE_DIGEST;
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return rc;
}


ngx_int_t
ngx_modelgw_store_key_set(ngx_modelgw_store_t *s, ngx_modelgw_change_t *change,
    ngx_modelgw_store_action_t *action)
{
    ngx_int_t      rc;
    ngx_uint_t     i, revoked;
    const char   **sql;

    static const char  *sets[] = {
        "UPDATE keys SET note = ?3 WHERE id = ?1 AND state = 'active'",
        "UPDATE keys SET rpm = ?4 WHERE id = ?1 AND"
            NGX_MODELGW_STORE_KEY_IN_USE,
        "UPDATE keys SET tpm = ?5 WHERE id = ?1 AND"
            NGX_MODELGW_STORE_KEY_IN_USE,
        "UPDATE keys SET concurrency = ?6 WHERE id = ?1 AND"
            NGX_MODELGW_STORE_KEY_IN_USE,
        "UPDATE keys SET models = ?7 WHERE id = ?1 AND"
            NGX_MODELGW_STORE_KEY_IN_USE,
        "UPDATE keys SET expires = CASE WHEN state = 'active'"
            " OR ?8 BETWEEN 1 AND expires THEN ?8 ELSE expires END"
            " WHERE id = ?1 AND"
            NGX_MODELGW_STORE_KEY_IN_USE,
        "UPDATE keys SET budget = ?9, \"window\" = ?10 WHERE id = ?1 AND"
            NGX_MODELGW_STORE_KEY_IN_USE,
        NULL
    };

    rc = ngx_modelgw_store_key_current(s, change, action);

    if (rc != NGX_OK || action->result != NGX_MODELGW_CHANGE_MADE) {
        return rc;
    }

    /* in the order of the bits */

    i = NGX_MODELGW_CHANGE_NOTE;

    for (sql = sets; *sql; sql++) {

        if ((change->sets & i)
            && ngx_modelgw_store_key_step(s, change, *sql) != NGX_OK)
        {
            return NGX_ERROR;
        }

        i <<= 1;
    }

    if (ngx_modelgw_store_key_step(s, change,
            "UPDATE keys SET version = version + 1, changed = ?11"
            " WHERE id = ?1 AND" NGX_MODELGW_STORE_KEY_IN_USE)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_str_set(&action->name, "key.set");

    return ngx_modelgw_store_key_find(s, change, &action->after, &revoked);
}


/*
 * The new row is as the old one, but for its digest.  Older ones end at the end
 * of the grace, at the latest; without one they are replaced.
 */

ngx_int_t
ngx_modelgw_store_key_rotate(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action)
{
    ngx_int_t   rc;
    ngx_uint_t  revoked;

    rc = ngx_modelgw_store_key_current(s, change, action);

    if (rc != NGX_OK || action->result != NGX_MODELGW_CHANGE_MADE) {
        return rc;
    }

    if (ngx_modelgw_store_key_step(s, change,
            "INSERT INTO keys SELECT ?2, id, account, \"group\", models, rpm,"
            " tpm, concurrency, budget, \"window\", expires, 'active',"
            " version, created, ?11, note"
            " FROM keys WHERE id = ?1 AND state = 'active'")
        != NGX_OK
        || ngx_modelgw_store_key_step(s, change,
            "UPDATE keys SET changed = ?11,"
            " state = CASE ?12 WHEN 0 THEN 'replaced' ELSE 'rotated' END,"
            " expires = CASE WHEN expires = 0 OR ?12 BETWEEN 1 AND expires"
                " THEN ?12 ELSE expires END"
            " WHERE id = ?1 AND digest != ?2 AND" NGX_MODELGW_STORE_KEY_IN_USE)
           != NGX_OK
        || ngx_modelgw_store_key_step(s, change,
            "UPDATE keys SET version = version + 1"
            " WHERE id = ?1 AND" NGX_MODELGW_STORE_KEY_IN_USE)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_str_set(&action->name, "key.rotate");

    return ngx_modelgw_store_key_find(s, change, &action->after, &revoked);
}


ngx_int_t
ngx_modelgw_store_key_revoke(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action)
{
    ngx_int_t   rc;
    ngx_uint_t  revoked;

    action->target = &change->key.id;

    rc = ngx_modelgw_store_key_find(s, change, &action->before, &revoked);

    if (rc == NGX_OK && revoked) {
        action->result = NGX_MODELGW_CHANGE_KNOWN;
        return ngx_modelgw_store_key_read(s, change);
    }

    rc = ngx_modelgw_store_key_current(s, change, action);

    if (rc != NGX_OK || action->result != NGX_MODELGW_CHANGE_MADE) {
        return rc;
    }

    if (ngx_modelgw_store_key_step(s, change,
            "UPDATE keys SET changed = ?11,"
            " version = version + CASE state WHEN 'active' THEN 1 ELSE 0 END,"
            " state = CASE state WHEN 'active' THEN 'revoked'"
                " ELSE 'replaced' END"
            " WHERE id = ?1 AND" NGX_MODELGW_STORE_KEY_IN_USE)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_str_set(&action->name, "key.revoke");

    return ngx_modelgw_store_key_find(s, change, &action->after, &revoked);
}


/* Whether there is an active key of the version, which is described. */

static ngx_int_t
ngx_modelgw_store_key_current(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action)
{
    ngx_int_t   rc;
    ngx_uint_t  revoked;

    action->target = &change->key.id;

    rc = ngx_modelgw_store_key_find(s, change, &action->before, &revoked);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == NGX_DECLINED || revoked) {
        action->result = NGX_MODELGW_CHANGE_MISSING;

    } else if (change->if_match && change->if_match != change->version) {
        action->result = NGX_MODELGW_CHANGE_STALE;
    }

    return NGX_OK;
}


/*
 * Describes the key, and sets change->version.
 *     NGX_OK, NGX_DECLINED (no such key), NGX_ERROR
 */

static ngx_int_t
ngx_modelgw_store_key_find(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_text_t *text,
    ngx_uint_t *revoked)
{
    ngx_int_t                  rc;
    ngx_str_t                  note;
    ngx_modelgw_out_t          out;
    ngx_modelgw_stmt_t         stmt;
    ngx_modelgw_managed_key_t  key;

    rc = ngx_modelgw_store_key_one(s, change, &stmt);

    if (rc == NGX_OK) {
        ngx_modelgw_store_key_row(&stmt, &key);

        ngx_modelgw_stmt_text(&stmt, NGX_MODELGW_STORE_KEY_NOTE, &note);
        note.len = ngx_min(note.len, NGX_MODELGW_LEDGER_NOTE);

        *revoked = (key.state == NGX_MODELGW_KEY_REVOKED);
        change->version = key.version;

        ngx_modelgw_store_text(&out, text);
        ngx_modelgw_store_key_write(&out, &key, &note);
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return rc;
}


/*
 * The row of the key that is not an old one; the caller finalizes the statement
 * in any case.
 *     NGX_OK, NGX_DECLINED (there is none), NGX_ERROR
 */

static ngx_int_t
ngx_modelgw_store_key_one(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_stmt_t *stmt)
{
    ngx_memzero(stmt, sizeof(ngx_modelgw_stmt_t));

    if (ngx_modelgw_store_ready(s, NGX_MODELGW_STORE_KEY
                                   " WHERE id = ?1 AND"
                                   NGX_MODELGW_STORE_KEY_NEWEST, stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_name(stmt, 1, &change->key.id);

    return ngx_modelgw_store_query_one(s, stmt);
}


static ngx_int_t
ngx_modelgw_store_key_insert(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change)
{
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_ready(s, "INSERT INTO keys VALUES (?2, ?1, ?13, ?14,"
                                   " ?7, ?4, ?5, ?6, ?9, ?10, ?8, 'active', 1,"
                                   " ?11, ?11, ?3)", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_store_key_bind(&stmt, change);

    return ngx_modelgw_store_once(s, &stmt, 1, "failed: a key was not written");
}


/* A statement that changes any number of rows. */

static ngx_int_t
ngx_modelgw_store_key_step(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, const char *sql)
{
    ngx_int_t           rc;
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_ready(s, sql, &stmt) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_modelgw_store_key_bind(&stmt, change);

    rc = ngx_modelgw_store_query_one(s, &stmt);

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


/* A parameter that the statement does not have is not bound. */

static void
ngx_modelgw_store_key_bind(ngx_modelgw_stmt_t *stmt,
    ngx_modelgw_change_t *change)
{
    ngx_str_t                  *window;
    ngx_modelgw_managed_key_t  *key;

    key = &change->key;
    window = &ngx_modelgw_windows[key->window];

    ngx_modelgw_stmt_bind_name(stmt, 1, &key->id);
    ngx_modelgw_stmt_bind_blob(stmt, 2, key->digest, NGX_MODELGW_KEY_DIGEST);
    ngx_modelgw_stmt_bind_text(stmt, 3, change->note,
                               ngx_min(change->note_len,
                                       NGX_MODELGW_LEDGER_NOTE));
    ngx_modelgw_stmt_bind_int(stmt, 4, key->rpm);
    ngx_modelgw_stmt_bind_int(stmt, 5, key->tpm);
    ngx_modelgw_stmt_bind_int(stmt, 6, key->concurrency);
    ngx_modelgw_stmt_bind_text(stmt, 7, key->models,
                               ngx_min(key->models_len,
                                       NGX_MODELGW_LEDGER_MODELS));
    ngx_modelgw_stmt_bind_int(stmt, 8, key->expires * 1000);
    ngx_modelgw_stmt_bind_int(stmt, 9, key->budget);
    ngx_modelgw_stmt_bind_text(stmt, 10, window->data, window->len);
    ngx_modelgw_stmt_bind_int(stmt, 11, change->time);
    ngx_modelgw_stmt_bind_int(stmt, 12, change->until * 1000);
    ngx_modelgw_stmt_bind_name(stmt, 13, &change->owner);
    ngx_modelgw_stmt_bind_name(stmt, 14, &key->group);
}


ngx_int_t
ngx_modelgw_store_key_read(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change)
{
    ngx_int_t           rc;
    ngx_modelgw_stmt_t  stmt;

    rc = ngx_modelgw_store_key_one(s, change, &stmt);

    if (rc == NGX_OK) {
        ngx_modelgw_store_key_row(&stmt, &change->key);

        change->note_len = ngx_modelgw_store_key_copy(&stmt,
                                       NGX_MODELGW_STORE_KEY_NOTE, change->note,
                                       NGX_MODELGW_LEDGER_NOTE);
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


ngx_int_t
ngx_modelgw_store_keys(ngx_modelgw_store_t *s, ngx_str_t *accounts,
    uint64_t time, ngx_modelgw_store_key_pt handler, void *data)
{
    ngx_int_t   rc;
    ngx_uint_t  i;

    static const char  *sql[] = {
        NGX_MODELGW_STORE_KEY_TABLE " WHERE" NGX_MODELGW_STORE_KEY_WORKS
            " AND " ngx_modelgw_store_among("account"),
        NGX_MODELGW_STORE_KEY_TABLE " WHERE NOT" NGX_MODELGW_STORE_KEY_WORKS
            " AND " ngx_modelgw_store_among("account")
    };

    rc = NGX_OK;

    for (i = 0; i < 2 && rc == NGX_OK; i++) {
        rc = ngx_modelgw_store_keys_read(s, sql[i], accounts, time, handler,
                                         data);
    }

    return rc;
}


ngx_int_t
ngx_modelgw_store_keys_count(ngx_modelgw_store_t *s, uint64_t time,
    ngx_uint_t *n)
{
    int64_t    count;
    ngx_int_t  rc;

    count = 0;

    rc = ngx_modelgw_store_step(s, "SELECT count(*) FROM keys WHERE"
                                   NGX_MODELGW_STORE_KEY_WORKS,
                                time * 1000, 0, &count);
    *n = count;

    return rc;
}


static ngx_int_t
ngx_modelgw_store_keys_read(ngx_modelgw_store_t *s, const char *sql,
    ngx_str_t *accounts, uint64_t time, ngx_modelgw_store_key_pt handler,
    void *data)
{
    ngx_int_t                  rc;
    ngx_modelgw_stmt_t         stmt;
    ngx_modelgw_managed_key_t  key;

    if (ngx_modelgw_stmt_prepare(s, sql, &stmt) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_int(&stmt, 1, time * 1000);

    if (accounts) {
        ngx_modelgw_stmt_bind_str(&stmt, 2, accounts);
    }

    while ((rc = ngx_modelgw_stmt_next(&stmt)) == NGX_OK) {

        ngx_modelgw_store_key_row(&stmt, &key);

        if (key.state == NGX_MODELGW_KEY_ROTATED && key.expires <= time) {
            key.state = NGX_MODELGW_KEY_REVOKED;
        }

        rc = handler(data, &key);

        if (rc != NGX_OK) {
            break;
        }
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_DONE) ? NGX_OK : rc;
}


/*
 * Accounts come before the keys of their version, digests that were replaced
 * after all others.
 */

ngx_int_t
ngx_modelgw_store_feed(ngx_modelgw_store_t *s, uint64_t version,
    ngx_modelgw_feed_t *feed, ngx_uint_t max, ngx_uint_t *n)
{
    ngx_int_t            rc;
    ngx_uint_t           i;
    ngx_modelgw_stmt_t   stmt;

    if (ngx_modelgw_stmt_prepare(s, ngx_modelgw_store_feed_sql, &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_int(&stmt, 1, version);
    ngx_modelgw_stmt_bind_int(&stmt, 2, (int64_t) max + 1);

    i = 0;

    while ((rc = ngx_modelgw_stmt_next(&stmt)) == NGX_OK && i < max) {
        ngx_modelgw_store_feed_row(&stmt, &feed[i++]);
    }

    *n = i;

    if (rc == NGX_OK) {
        version = ngx_modelgw_stmt_int(&stmt, NGX_MODELGW_STORE_FEED_VERSION);

        while (i && feed[i - 1].version == version) {
            i--;
        }

        *n = i ? i : max;
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


static void
ngx_modelgw_store_feed_row(ngx_modelgw_stmt_t *stmt, ngx_modelgw_feed_t *feed)
{
    ngx_memzero(feed, sizeof(ngx_modelgw_feed_t));

    feed->version = ngx_modelgw_stmt_int(stmt, NGX_MODELGW_STORE_FEED_VERSION);
    feed->account = ngx_modelgw_stmt_int(stmt, NGX_MODELGW_STORE_FEED_ACCOUNT);

    if (!feed->account) {
        ngx_modelgw_store_key_row(stmt, &feed->key);
        return;
    }

    feed->name.len = ngx_modelgw_store_key_copy(stmt, 1, feed->name.data,
                                                NGX_MODELGW_LEDGER_NAME);
    feed->closed = ngx_modelgw_stmt_int(stmt, NGX_MODELGW_STORE_FEED_CLOSED);
}


ngx_int_t
ngx_modelgw_store_keys_list(ngx_modelgw_store_t *s,
    ngx_modelgw_store_keys_t *filter, ngx_modelgw_store_listed_pt handler,
    void *data)
{
    ngx_int_t                  rc;
    ngx_str_t                  note;
    ngx_modelgw_stmt_t         stmt;
    ngx_modelgw_managed_key_t  key;

    if (ngx_modelgw_stmt_prepare(s, NGX_MODELGW_STORE_KEY
            " WHERE" NGX_MODELGW_STORE_KEY_NEWEST
            " AND (?1 IS NULL OR id = ?1)"
            " AND (?2 IS NULL OR instr(id, ?2) > 0 OR instr(account, ?2) > 0"
                " OR instr(note, ?2) > 0)"
            " AND (?3 IS NULL OR account = ?3)"
            " AND (?4 IS NULL OR ?4 = CASE WHEN state = 'active'"
                " AND expires BETWEEN 1 AND ?7 THEN 'expired' ELSE state END)"
            " AND (?5 IS NULL OR id COLLATE BINARY > ?5)"
            " ORDER BY id COLLATE BINARY LIMIT ?6", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_str(&stmt, 1, &filter->id);
    ngx_modelgw_stmt_bind_str(&stmt, 2, &filter->q);
    ngx_modelgw_stmt_bind_str(&stmt, 3, &filter->account);
    ngx_modelgw_stmt_bind_str(&stmt, 4, &filter->state);
    ngx_modelgw_stmt_bind_str(&stmt, 5, &filter->after);
    ngx_modelgw_stmt_bind_int(&stmt, 6, filter->limit);
    ngx_modelgw_stmt_bind_int(&stmt, 7, filter->now * 1000);

    while ((rc = ngx_modelgw_stmt_next(&stmt)) == NGX_OK) {

        ngx_modelgw_store_key_row(&stmt, &key);
        ngx_modelgw_stmt_text(&stmt, NGX_MODELGW_STORE_KEY_NOTE, &note);

        rc = handler(data, &key,
                     ngx_modelgw_stmt_int(&stmt, NGX_MODELGW_STORE_KEY_CREATED),
                     &note);

        if (rc != NGX_OK) {
            break;
        }
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_DONE) ? NGX_OK : rc;
}


/* a row that was written by others may have anything: it is cut to fit */

static void
ngx_modelgw_store_key_row(ngx_modelgw_stmt_t *stmt,
    ngx_modelgw_managed_key_t *key)
{
    ngx_str_t  digest;

    ngx_memzero(key, sizeof(ngx_modelgw_managed_key_t));

    ngx_modelgw_stmt_blob(stmt, 0, &digest);

    if (digest.len == NGX_MODELGW_KEY_DIGEST) {
        ngx_memcpy(key->digest, digest.data, NGX_MODELGW_KEY_DIGEST);
    }

    key->id.len = ngx_modelgw_store_key_copy(stmt, 1, key->id.data,
                                             NGX_MODELGW_LEDGER_NAME);
    key->account.len = ngx_modelgw_store_key_copy(stmt, 2, key->account.data,
                                                  NGX_MODELGW_LEDGER_NAME);
    key->group.len = ngx_modelgw_store_key_copy(stmt, 3, key->group.data,
                                                NGX_MODELGW_LEDGER_NAME);
    key->models_len = ngx_modelgw_store_key_copy(stmt, 4, key->models,
                                                 NGX_MODELGW_LEDGER_MODELS);

    key->rpm = ngx_modelgw_stmt_int(stmt, 5);
    key->tpm = ngx_modelgw_stmt_int(stmt, 6);
    key->concurrency = ngx_modelgw_stmt_int(stmt, 7);
    key->budget = ngx_modelgw_stmt_int(stmt, 8);
    key->window = ngx_modelgw_store_key_word(stmt, 9,
                                             ngx_modelgw_windows,
                                             NGX_MODELGW_WINDOW_TOTAL);
    key->expires = ngx_modelgw_stmt_int(stmt, 10);
    key->state = ngx_modelgw_store_key_word(stmt, 11,
                                            ngx_modelgw_store_key_states,
                                            NGX_MODELGW_KEY_REVOKED);

    /* "replaced", or what is not known */

    if (key->state == NGX_MODELGW_KEY_FREE) {
        key->state = NGX_MODELGW_KEY_REVOKED;
    }

    key->version = ngx_modelgw_stmt_int(stmt, 12);
    key->old_until = ngx_modelgw_stmt_int(stmt, NGX_MODELGW_STORE_KEY_OLD);
}


static size_t
ngx_modelgw_store_key_copy(ngx_modelgw_stmt_t *stmt, int i, u_char *data,
    size_t size)
{
    ngx_str_t  text;

    ngx_modelgw_stmt_text(stmt, i, &text);
    text.len = ngx_min(text.len, size);

    if (text.len) {
        ngx_memcpy(data, text.data, text.len);
    }

    return text.len;
}


/* The number of the word, at most n; 0: it is another one. */

static ngx_uint_t
ngx_modelgw_store_key_word(ngx_modelgw_stmt_t *stmt, int i, ngx_str_t *words,
    ngx_uint_t n)
{
    ngx_str_t  text;

    ngx_modelgw_stmt_text(stmt, i, &text);

    for ( /* void */ ; n > 0; n--) {

        if (words[n].len == text.len
            && ngx_memcmp(words[n].data, text.data, text.len) == 0)
        {
            break;
        }
    }

    return n;
}


/* for the audit log: no digest */

static void
ngx_modelgw_store_key_write(ngx_modelgw_out_t *out,
    ngx_modelgw_managed_key_t *key, ngx_str_t *note)
{
    ngx_str_t  text;

    ngx_modelgw_out_text(out, "{");
    ngx_modelgw_store_key_member(out, "\"account\":", &key->account);
    ngx_modelgw_store_key_member(out, ",\"group\":", &key->group);

    text.len = key->models_len;
    text.data = key->models;

    ngx_modelgw_out_text(out, ",\"models\":");
    ngx_modelgw_out_string(out, &text);
    ngx_modelgw_out_text(out, ",\"rpm\":");
    ngx_modelgw_out_number(out, key->rpm);
    ngx_modelgw_out_text(out, ",\"tpm\":");
    ngx_modelgw_out_number(out, key->tpm);
    ngx_modelgw_out_text(out, ",\"concurrency\":");
    ngx_modelgw_out_number(out, key->concurrency);

    if (key->window) {
        ngx_modelgw_out_text(out, ",\"budget\":");
        ngx_modelgw_amount_out(out, key->budget);
        ngx_modelgw_out_text(out, ",\"window\":");
        ngx_modelgw_out_string(out, &ngx_modelgw_windows[key->window]);
    }

    ngx_modelgw_store_key_time(out, ",\"expires\":", key->expires);
    ngx_modelgw_store_key_time(out, ",\"old_until\":", key->old_until);
    ngx_modelgw_out_text(out, ",\"state\":");
    ngx_modelgw_out_string(out, &ngx_modelgw_store_key_states[key->state]);
    ngx_modelgw_out_text(out, ",\"version\":");
    ngx_modelgw_out_number(out, key->version);
    ngx_modelgw_out_text(out, ",\"note\":");
    ngx_modelgw_out_string(out, note);
    ngx_modelgw_out_text(out, "}");
}


static void
ngx_modelgw_store_key_time(ngx_modelgw_out_t *out, const char *name,
    uint64_t time)
{
    ngx_modelgw_out(out, (u_char *) name, ngx_strlen(name));

    if (time) {
        ngx_modelgw_out_time(out, time * 1000);

    } else {
        ngx_modelgw_out_text(out, "null");
    }
}


static void
ngx_modelgw_store_key_member(ngx_modelgw_out_t *out, const char *name,
    ngx_modelgw_ledger_name_t *value)
{
    ngx_str_t  text;

    text.len = value->len;
    text.data = value->data;

    ngx_modelgw_out(out, (u_char *) name, ngx_strlen(name));
    ngx_modelgw_out_string(out, &text);
}
