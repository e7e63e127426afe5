
/*
 * Changes by operators, in a batch of the writer.
 *
 * Each writes a row of "actions" in the same transaction: who has changed what,
 * from where, and how it was before.  Its id is the change's time, which no two
 * have in common: a change whose row exists was made by a writer that was
 * killed before it answered, or could not know that its commit was durable.  A
 * node of a cluster does not have its actions in its journal, and its clock
 * may have been set back: then a change that was not tried before gets a later
 * time.
 *
 * Everything is checked before the first row is written: a change that is
 * refused must not fail the batch, and each batch after it that tries the same.
 *
 * Changes are rare, so their statements are prepared when they are needed.
 *
 * In a cluster the first statement locks what the change is of: an account, or
 * the version of all keys and accounts.  So it does not change meanwhile, and a
 * commit of the same change, of which nothing is known, has ended.  The lock
 * makes the versions visible in their order, too.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_budget.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_store_cluster.h"
#include "ngx_modelgw_store_private.h"


static ngx_int_t ngx_modelgw_store_change_lock(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change);
static ngx_int_t ngx_modelgw_store_change_version(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change);
static ngx_int_t ngx_modelgw_store_change_balance(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change);
static ngx_int_t ngx_modelgw_store_change_made(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change);
static ngx_int_t ngx_modelgw_store_change_unique(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change);
static ngx_int_t ngx_modelgw_store_change_read(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change);
static ngx_int_t ngx_modelgw_store_change_topup(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action);
static ngx_int_t ngx_modelgw_store_topup_known(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_change_e *result);
static ngx_int_t ngx_modelgw_store_topup_fits(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, int64_t *balance);
static ngx_int_t ngx_modelgw_store_change_account_new(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action);
static ngx_int_t ngx_modelgw_store_change_account_set(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action);
static ngx_int_t ngx_modelgw_store_account_state(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_text_t *text,
    ngx_uint_t *closed);
static ngx_int_t ngx_modelgw_store_account_update(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change);
static ngx_int_t ngx_modelgw_store_text_write(void *data, u_char *p,
    size_t len, ngx_uint_t borrowed);
static void ngx_modelgw_store_bind_text(ngx_modelgw_stmt_t *stmt, int i,
    ngx_modelgw_store_text_t *text);


static ngx_modelgw_store_change_pt
    ngx_modelgw_store_changes[NGX_MODELGW_CHANGE_KINDS] =
{
    [NGX_MODELGW_CHANGE_TOPUP] = ngx_modelgw_store_change_topup,
    [NGX_MODELGW_CHANGE_ACCOUNT_NEW] = ngx_modelgw_store_change_account_new,
    [NGX_MODELGW_CHANGE_ACCOUNT_SET] = ngx_modelgw_store_change_account_set,
    [NGX_MODELGW_CHANGE_NODE_SET] = ngx_modelgw_store_node_set,
    [NGX_MODELGW_CHANGE_NODE_WRITE_OFF] = ngx_modelgw_store_node_write_off,
    [NGX_MODELGW_CHANGE_KEY_NEW] = ngx_modelgw_store_key_new,
    [NGX_MODELGW_CHANGE_KEY_SET] = ngx_modelgw_store_key_set,
    [NGX_MODELGW_CHANGE_KEY_ROTATE] = ngx_modelgw_store_key_rotate,
    [NGX_MODELGW_CHANGE_KEY_REVOKE] = ngx_modelgw_store_key_revoke
};


/* what is locked in a cluster; keys_version: of the last change */

#define NGX_MODELGW_STORE_LOCK_KEYS                                           \
    "SELECT keys_version FROM cluster FOR UPDATE"

static const char  *ngx_modelgw_store_locks[NGX_MODELGW_CHANGE_KINDS] = {
    [NGX_MODELGW_CHANGE_TOPUP] =
        "SELECT 0 FROM accounts WHERE name = ?1 FOR UPDATE",
    [NGX_MODELGW_CHANGE_ACCOUNT_NEW] = NGX_MODELGW_STORE_LOCK_KEYS,
    [NGX_MODELGW_CHANGE_ACCOUNT_SET] = NGX_MODELGW_STORE_LOCK_KEYS,
    [NGX_MODELGW_CHANGE_KEY_NEW] = NGX_MODELGW_STORE_LOCK_KEYS,
    [NGX_MODELGW_CHANGE_KEY_SET] = NGX_MODELGW_STORE_LOCK_KEYS,
    [NGX_MODELGW_CHANGE_KEY_ROTATE] = NGX_MODELGW_STORE_LOCK_KEYS,
    [NGX_MODELGW_CHANGE_KEY_REVOKE] = NGX_MODELGW_STORE_LOCK_KEYS
};


ngx_int_t
ngx_modelgw_store_change(ngx_modelgw_store_t *s, ngx_modelgw_change_t *change,
    ngx_modelgw_change_e *result)
{
    ngx_int_t                   rc;
    ngx_modelgw_store_action_t  action;

    if (s->cluster && ngx_modelgw_store_change_lock(s, change) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = (s->cluster && !change->tried)
         ? ngx_modelgw_store_change_unique(s, change)
         : ngx_modelgw_store_change_made(s, change);

    if (rc == NGX_DECLINED) {
        ngx_memzero(&action, sizeof(ngx_modelgw_store_action_t));

        action.target = &change->owner;
        action.result = NGX_MODELGW_CHANGE_MADE;

        if (ngx_modelgw_store_changes[change->kind](s, change, &action)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (action.result != NGX_MODELGW_CHANGE_MADE) {
            *result = action.result;
            s->keys_version = 0;

            return s->cluster ? ngx_modelgw_store_change_balance(s, change)
                              : NGX_OK;
        }

        rc = ngx_modelgw_store_change_record(s, change, change->time, &action);

        if (rc == NGX_OK && s->cluster) {
            rc = ngx_modelgw_store_change_version(s, change);
        }
    }

    if (rc != NGX_OK) {
        return rc;
    }

    *result = NGX_MODELGW_CHANGE_MADE;

    if (ngx_modelgw_store_change_read(s, change) != NGX_OK) {
        return NGX_ERROR;
    }

    return s->cluster ? ngx_modelgw_store_change_balance(s, change) : NGX_OK;
}


uint64_t
ngx_modelgw_store_keys_version(ngx_modelgw_store_t *s)
{
    return s->keys_version;
}


static ngx_int_t
ngx_modelgw_store_change_lock(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change)
{
    ngx_int_t            rc;
    const char          *sql;
    ngx_modelgw_stmt_t   stmt;

    s->keys_version = 0;
    sql = ngx_modelgw_store_locks[change->kind];

    if (sql == NULL) {
        return NGX_OK;
    }

    if (ngx_modelgw_store_ready(s, sql, &stmt) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_name(&stmt, 1, &change->owner);

    rc = ngx_modelgw_store_query_one(s, &stmt);

    if (rc == NGX_OK) {
        s->keys_version = ngx_modelgw_stmt_int(&stmt, 0);
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


/* All rows of a key, and the account that may have been opened with it. */

static ngx_int_t
ngx_modelgw_store_change_version(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change)
{
    ngx_int_t            rc;
    ngx_uint_t           i;
    ngx_modelgw_stmt_t   stmt;

    static const char  *sql[] = {
        "UPDATE cluster SET keys_version = ?3",
        "UPDATE accounts SET version = ?3 WHERE name = ?1",
        "UPDATE keys SET keys_version = ?3 WHERE id = ?2"
    };

    if (ngx_modelgw_store_locks[change->kind] == NULL
        || change->kind == NGX_MODELGW_CHANGE_TOPUP)
    {
        return NGX_OK;
    }

    s->keys_version++;

    for (i = 0; i < sizeof(sql) / sizeof(char *); i++) {

        if (ngx_modelgw_store_ready(s, sql[i], &stmt) != NGX_OK) {
            return NGX_ERROR;
        }

        ngx_modelgw_stmt_bind_name(&stmt, 1, &change->owner);
        ngx_modelgw_stmt_bind_name(&stmt, 2, &change->key.id);
        ngx_modelgw_stmt_bind_int(&stmt, 3, s->keys_version);

        rc = ngx_modelgw_store_query_one(s, &stmt);

        ngx_modelgw_stmt_finalize(&stmt);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* Shared memory does not have it. */

static ngx_int_t
ngx_modelgw_store_change_balance(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change)
{
    ngx_int_t            rc;
    ngx_str_t           *window;
    const char          *sql;
    ngx_modelgw_stmt_t   stmt;

    sql = (change->kind < NGX_MODELGW_CHANGE_KEY_NEW)
          ? "SELECT balance, held FROM " NGX_MODELGW_STORE_BALANCES
            " WHERE name = ?1"
          : "SELECT coalesce(sum(l.spent + l.held), 0), 0"
            " FROM budgets b JOIN leases l ON l.account = b.name"
            " WHERE b.key = ?2 AND b.starts <= ?3 AND b.ends > ?3"
            " AND (?4 = '' OR strpos(b.name, '/' || ?4 || '/') > 0)";

    if (ngx_modelgw_store_ready(s, sql, &stmt) != NGX_OK) {
        return NGX_ERROR;
    }

    /* of the key's budget, or its group's, if that is known */

    window = &ngx_modelgw_windows[change->key.window ? change->key.window
                                                     : change->window];

    ngx_modelgw_stmt_bind_name(&stmt, 1, &change->owner);
    ngx_modelgw_stmt_bind_name(&stmt, 2, &change->key.id);
    ngx_modelgw_stmt_bind_int(&stmt, 3, change->time);
    ngx_modelgw_stmt_bind_text(&stmt, 4, window->data, window->len);

    rc = ngx_modelgw_store_query_one(s, &stmt);

    if (rc == NGX_OK) {
        change->balance = ngx_modelgw_stmt_int(&stmt, 0);
        change->held = ngx_modelgw_stmt_int(&stmt, 1);
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


/* NGX_OK: it was made before; NGX_DECLINED: not; NGX_ERROR */

static ngx_int_t
ngx_modelgw_store_change_made(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change)
{
    ngx_int_t           rc;
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_ready(s, "SELECT 1 FROM actions WHERE id = ?1",
                                &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_int(&stmt, 1, change->time);

    rc = ngx_modelgw_store_query_one(s, &stmt);

    ngx_modelgw_stmt_finalize(&stmt);

    return rc;
}


/*
 * Of a change that was not made: NGX_DECLINED, no action of this node has its
 * time, or a later one; NGX_ERROR.  A key may be two actions.
 */

static ngx_int_t
ngx_modelgw_store_change_unique(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change)
{
    ngx_int_t           rc;
    uint64_t            last;
    ngx_uint_t          before;
    ngx_modelgw_stmt_t  stmt;

    before = (change->kind == NGX_MODELGW_CHANGE_KEY_NEW);

    if (ngx_modelgw_store_ready(s, "SELECT coalesce(max(id), 0) FROM actions"
                                   " WHERE id >= ?1 AND node = ?16", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_int(&stmt, 1, change->time - before);

    rc = ngx_modelgw_store_query_one(s, &stmt);

    if (rc == NGX_OK) {
        last = ngx_modelgw_stmt_int(&stmt, 0);
        change->time = ngx_max(change->time, last + 1 + before);
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return (rc == NGX_OK) ? NGX_DECLINED : NGX_ERROR;
}


ngx_int_t
ngx_modelgw_store_change_record(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, uint64_t time,
    ngx_modelgw_store_action_t *action)
{
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_ready(s, "INSERT INTO actions VALUES"
                                   " (?1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_int(&stmt, 1, time);
    ngx_modelgw_stmt_bind_name(&stmt, 2, &change->actor);
    ngx_modelgw_stmt_bind_text(&stmt, 3, change->address,
                               ngx_min(change->address_len,
                                       NGX_MODELGW_LEDGER_ADDRESS));
    ngx_modelgw_stmt_bind_text(&stmt, 4, action->name.data, action->name.len);
    ngx_modelgw_stmt_bind_name(&stmt, 5, action->target);
    ngx_modelgw_store_bind_text(&stmt, 6, &action->before);
    ngx_modelgw_store_bind_text(&stmt, 7, &action->after);

    return ngx_modelgw_store_once(s, &stmt, 1,
                                  "failed: a change was not written");
}


/* What shared memory gets of a change that is made, now or before. */

static ngx_int_t
ngx_modelgw_store_change_read(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change)
{
    ngx_int_t           rc;
    ngx_modelgw_stmt_t  stmt;

    if (change->kind >= NGX_MODELGW_CHANGE_KEY_NEW
        && ngx_modelgw_store_key_read(s, change) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!ngx_modelgw_ledger_change_opens(change)) {
        return NGX_OK;
    }

    if (ngx_modelgw_store_ready(s, "SELECT coalesce(sum(amount), 0)"
                                   " FROM topups"
                                   " WHERE id = 'founding:' || ?1", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_name(&stmt, 1, &change->owner);

    rc = ngx_modelgw_store_query_one(s, &stmt);

    if (rc == NGX_OK) {
        change->amount = ngx_modelgw_stmt_int(&stmt, 0);
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return rc;
}


static ngx_int_t
ngx_modelgw_store_change_topup(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action)
{
    int64_t             balance;
    ngx_int_t           rc;
    ngx_str_t           id, reason;
    ngx_uint_t          made;
    ngx_modelgw_out_t   out;

    rc = ngx_modelgw_store_topup_known(s, change, &action->result);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    rc = ngx_modelgw_store_topup_fits(s, change, &balance);

    if (rc == NGX_DECLINED) {
        action->result = NGX_MODELGW_CHANGE_FAILED;
        return NGX_OK;
    }

    id.len = ngx_min(change->id.len, NGX_MODELGW_LEDGER_NAME);
    id.data = change->id.data;

    reason.len = ngx_min(change->note_len, NGX_MODELGW_LEDGER_NOTE);
    reason.data = change->note;

    if (rc != NGX_OK
        || ngx_modelgw_store_topup_insert(s, &id, &change->owner,
                                          change->amount, change->time,
                                          &reason, &made)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!made && s->cluster) {

        /* another node has just used the id */

        rc = ngx_modelgw_store_topup_known(s, change, &action->result);

        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    /* the id did not exist: a trigger has dropped the row */

    if (!made) {
        return ngx_modelgw_store_fault_text(s,
                                          "failed: a top-up was not inserted");
    }

    if (change->correction) {
        ngx_str_set(&action->name, "correction");

    } else {
        ngx_str_set(&action->name, "topup");
    }

    ngx_modelgw_store_text(&out, &action->before);
    ngx_modelgw_out_text(&out, "{\"balance\":");
    ngx_modelgw_amount_out(&out, balance);
    ngx_modelgw_out_text(&out, "}");

    ngx_modelgw_store_text(&out, &action->after);
    ngx_modelgw_out_text(&out, "{\"balance\":");
    ngx_modelgw_amount_out(&out, balance + change->amount);
    ngx_modelgw_out_text(&out, ",\"id\":");
    ngx_modelgw_out_string(&out, &id);
    ngx_modelgw_out_text(&out, ",\"amount\":");
    ngx_modelgw_amount_out(&out, change->amount);

    if (reason.len) {
        ngx_modelgw_out_text(&out, ",\"reason\":");
        ngx_modelgw_out_string(&out, &reason);
    }

    ngx_modelgw_out_text(&out, "}");

    return ngx_modelgw_store_charge(s, &change->owner, change->amount);
}


/*
 * NGX_OK        the id exists, *result is set
 * NGX_DECLINED  it does not
 * NGX_ERROR
 */

static ngx_int_t
ngx_modelgw_store_topup_known(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_change_e *result)
{
    ngx_int_t           rc;
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_ready(s, "SELECT account = ?2 AND amount = ?3"
                                   " FROM topups WHERE id = ?1", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_name(&stmt, 1, &change->id);
    ngx_modelgw_stmt_bind_name(&stmt, 2, &change->owner);
    ngx_modelgw_stmt_bind_int(&stmt, 3, change->amount);

    rc = ngx_modelgw_store_query_one(s, &stmt);

    if (rc == NGX_OK) {
        *result = ngx_modelgw_stmt_int(&stmt, 0) ? NGX_MODELGW_CHANGE_KNOWN
                                              : NGX_MODELGW_CHANGE_OTHER;
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return rc;
}


/*
 * NGX_OK        *balance is the account's, before
 * NGX_DECLINED  the account does not exist, or its balance would leave int64
 * NGX_ERROR
 */

static ngx_int_t
ngx_modelgw_store_topup_fits(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, int64_t *balance)
{
    int64_t             sum;
    ngx_int_t           rc;
    ngx_modelgw_stmt_t  stmt;

    *balance = 0;

    if (ngx_modelgw_store_ready(s, "SELECT balance"
                                   " FROM " NGX_MODELGW_STORE_BALANCES
                                   " WHERE name = ?1", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_name(&stmt, 1, &change->owner);

    rc = ngx_modelgw_store_query_one(s, &stmt);

    if (rc == NGX_OK) {
        *balance = ngx_modelgw_stmt_int(&stmt, 0);
    }

    ngx_modelgw_stmt_finalize(&stmt);

    if (rc != NGX_OK) {
        return rc;
    }

    if (__builtin_add_overflow(*balance,
                               ngx_modelgw_store_charged(s, &change->owner),
                               balance)
        || __builtin_add_overflow(*balance, change->amount, &sum))
    {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_store_change_account_new(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action)
{
    ngx_int_t  rc;

    rc = ngx_modelgw_store_account_open(s, change, action);

    if (rc == NGX_DECLINED) {
        action->result = NGX_MODELGW_CHANGE_OTHER;
        return NGX_OK;
    }

    return rc;
}


ngx_int_t
ngx_modelgw_store_account_open(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action)
{
    ngx_int_t                     rc;
    ngx_uint_t                    closed;
    ngx_modelgw_out_t             out;
    ngx_modelgw_ledger_account_t  a;

    rc = ngx_modelgw_store_account_state(s, change, &action->before, &closed);

    if (rc != NGX_DECLINED) {
        return (rc == NGX_OK) ? NGX_DECLINED : NGX_ERROR;
    }

    a.name = change->owner;
    a.founding = change->amount;
    a.opened = change->time / 1000;

    if (ngx_modelgw_store_account(s, &a) != NGX_OK) {
        return NGX_ERROR;
    }

    /* else the note is the key's */

    if (change->kind == NGX_MODELGW_CHANGE_ACCOUNT_NEW
        && change->note_len
        && ngx_modelgw_store_account_update(s, change) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_str_set(&action->name, "account.create");

    if (ngx_modelgw_store_account_state(s, change, &action->after, &closed)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* the founding credit is not a part of the state */

    action->after.len--;

    out.data = &action->after;
    out.write = ngx_modelgw_store_text_write;
    out.failed = 0;

    ngx_modelgw_out_text(&out, ",\"founding\":");
    ngx_modelgw_amount_out(&out, change->amount);
    ngx_modelgw_out_text(&out, "}");

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_store_change_account_set(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_action_t *action)
{
    ngx_int_t   rc;
    ngx_uint_t  was, closed;

    rc = ngx_modelgw_store_account_state(s, change, &action->before, &was);

    if (rc == NGX_DECLINED) {
        action->result = NGX_MODELGW_CHANGE_FAILED;
        return NGX_OK;
    }

    if (rc != NGX_OK
        || ngx_modelgw_store_account_update(s, change) != NGX_OK
        || ngx_modelgw_store_account_state(s, change, &action->after, &closed)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (action->before.len == action->after.len
        && ngx_memcmp(action->before.data, action->after.data,
                      action->after.len)
           == 0)
    {
        action->result = NGX_MODELGW_CHANGE_KNOWN;
        return NGX_OK;
    }

    if (closed == was) {
        ngx_str_set(&action->name, "account.note");

    } else if (closed) {
        ngx_str_set(&action->name, "account.close");

    } else {
        ngx_str_set(&action->name, "account.open");
    }

    return NGX_OK;
}


/*
 * NGX_OK        the text is the account's state
 * NGX_DECLINED  there is no such account
 * NGX_ERROR
 */

static ngx_int_t
ngx_modelgw_store_account_state(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change, ngx_modelgw_store_text_t *text,
    ngx_uint_t *closed)
{
    ngx_int_t           rc;
    ngx_str_t           state, note;
    ngx_modelgw_out_t   out;
    ngx_modelgw_stmt_t  stmt;

    if (ngx_modelgw_store_ready(s, "SELECT state, note, state = 'closed'"
                                   " FROM accounts WHERE name = ?1", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_name(&stmt, 1, &change->owner);

    rc = ngx_modelgw_store_query_one(s, &stmt);

    if (rc == NGX_OK) {
        ngx_modelgw_stmt_text(&stmt, 0, &state);
        ngx_modelgw_stmt_text(&stmt, 1, &note);
        note.len = ngx_min(note.len, NGX_MODELGW_LEDGER_NOTE);
        *closed = ngx_modelgw_stmt_int(&stmt, 2);

        ngx_modelgw_store_text(&out, text);
        ngx_modelgw_out_text(&out, "{\"state\":");
        ngx_modelgw_out_string(&out, &state);
        ngx_modelgw_out_text(&out, ",\"note\":");
        ngx_modelgw_out_string(&out, &note);
        ngx_modelgw_out_text(&out, "}");
    }

    ngx_modelgw_stmt_finalize(&stmt);

    return rc;
}


static ngx_int_t
ngx_modelgw_store_account_update(ngx_modelgw_store_t *s,
    ngx_modelgw_change_t *change)
{
    const char          *state;
    ngx_modelgw_stmt_t   stmt;

    if (ngx_modelgw_store_ready(s,
            "UPDATE accounts SET state = coalesce(?2, state),"
            " note = coalesce(?3, note) WHERE name = ?1", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_modelgw_stmt_bind_name(&stmt, 1, &change->owner);

    if (change->sets & NGX_MODELGW_CHANGE_STATE) {
        state = change->closed ? "closed" : "open";
        ngx_modelgw_stmt_bind_text(&stmt, 2, (u_char *) state,
                                   ngx_strlen(state));
    }

    if (change->sets & NGX_MODELGW_CHANGE_NOTE) {
        ngx_modelgw_stmt_bind_text(&stmt, 3, change->note,
                                   ngx_min(change->note_len,
                                           NGX_MODELGW_LEDGER_NOTE));
    }

    return ngx_modelgw_store_once(s, &stmt, 1,
                                  "failed: a change was not written");
}


ngx_int_t
ngx_modelgw_store_query_one(ngx_modelgw_store_t *s, ngx_modelgw_stmt_t *stmt)
{
    switch (ngx_modelgw_stmt_next(stmt)) {

    case NGX_OK:
        return NGX_OK;

    case NGX_DONE:
        return NGX_DECLINED;
    }

    return ngx_modelgw_store_abandon(s);
}


ngx_int_t
ngx_modelgw_store_ready(ngx_modelgw_store_t *s, const char *sql,
    ngx_modelgw_stmt_t *stmt)
{
    if (s->failed || !s->batch) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_stmt_prepare(s, sql, stmt) != NGX_OK) {
        return ngx_modelgw_store_abandon(s);
    }

    return NGX_OK;
}


void
ngx_modelgw_store_text(ngx_modelgw_out_t *out, ngx_modelgw_store_text_t *text)
{
    text->len = 0;

    out->write = ngx_modelgw_store_text_write;
    out->data = text;
    out->failed = 0;
}


static ngx_int_t
ngx_modelgw_store_text_write(void *data, u_char *p, size_t len,
    ngx_uint_t borrowed)
{
    ngx_modelgw_store_text_t *text = data;

    if (len > NGX_MODELGW_STORE_STATE - text->len) {
        return NGX_ERROR;
    }

    ngx_memcpy(&text->data[text->len], p, len);
    text->len += len;

    return NGX_OK;
}


static void
ngx_modelgw_store_bind_text(ngx_modelgw_stmt_t *stmt, int i,
    ngx_modelgw_store_text_t *text)
{
    if (text->len == 0) {
        ngx_modelgw_stmt_bind_text(stmt, i, (u_char *) "{}", 2);
        return;
    }

    ngx_modelgw_stmt_bind_text(stmt, i, text->data, text->len);
}
