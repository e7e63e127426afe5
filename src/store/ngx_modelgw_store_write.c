
/*
 * Batches of the store: what the writer has to say, a transaction at a time.
 *
 * Everything here may be said twice: after a failed commit nobody knows what
 * the disk has, and after a crash the ledger in shared memory begins anew from
 * the file.  A row with the same id changes nothing, and what is not inserted
 * is not charged.
 *
 * After a failure nothing more is written: the batch is rolled back, and a
 * statement behind it would not be part of one.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"


static ngx_int_t ngx_modelgw_store_topup_known(ngx_modelgw_store_t *s,
    ngx_modelgw_topup_t *topup, ngx_modelgw_ledger_name_t *account,
    ngx_modelgw_topup_e *result);
static ngx_int_t ngx_modelgw_store_topup_fits(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_name_t *account, int64_t amount);
static ngx_int_t ngx_modelgw_store_topup_insert(ngx_modelgw_store_t *s,
    u_char *id, size_t len, ngx_modelgw_ledger_name_t *account,
    int64_t amount, uint64_t time, ngx_uint_t *made);
static void ngx_modelgw_store_bind_model(sqlite3_stmt *stmt, int i,
    ngx_modelgw_call_t *call);


static const char  *ngx_modelgw_store_sql[NGX_MODELGW_STORE_STATEMENTS] = {

    [NGX_MODELGW_STORE_BEGIN] = "BEGIN IMMEDIATE",

    [NGX_MODELGW_STORE_COMMIT] = "COMMIT",

    [NGX_MODELGW_STORE_CALLS] =
        "INSERT INTO main.calls SELECT * FROM temp.modelgw_batch",

    [NGX_MODELGW_STORE_HOLD] =
        "INSERT INTO holds VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
        " ON CONFLICT (id) DO UPDATE SET cost = cost",

    [NGX_MODELGW_STORE_UNHOLD] = "DELETE FROM holds WHERE id = ?1",

    [NGX_MODELGW_STORE_CHARGE] =
        "UPDATE accounts SET balance = balance + ?2 WHERE name = ?1",

    [NGX_MODELGW_STORE_BALANCE] =
        "SELECT balance FROM accounts WHERE name = ?1",

    [NGX_MODELGW_STORE_ACCOUNT] =
        "INSERT INTO accounts VALUES (?1, 0, ?2)"
        " ON CONFLICT (name) DO NOTHING",

    [NGX_MODELGW_STORE_TOPUP] =
        "INSERT INTO topups VALUES (?1, ?2, ?3, ?4)"
        " ON CONFLICT (id) DO NOTHING",

    [NGX_MODELGW_STORE_TOPUP_FIND] =
        "SELECT account = ?2 AND amount = ?3, time = ?4 FROM topups"
        " WHERE id = ?1"
};


static const char  *ngx_modelgw_store_ends[] = {
    "complete", "client", "upstream", "timeout", "killed", "stopped", "lost"
};


ngx_int_t
ngx_modelgw_store_write_init(ngx_modelgw_store_t *s)
{
    ngx_uint_t  i;

    if (ngx_modelgw_store_calls_init(s) != NGX_OK) {
        return NGX_ERROR;
    }

    for (i = 0; i < NGX_MODELGW_STORE_STATEMENTS; i++) {

        if (sqlite3_prepare_v3(s->db, ngx_modelgw_store_sql[i], -1,
                               SQLITE_PREPARE_PERSISTENT, &s->stmts[i], NULL)
            != SQLITE_OK)
        {
            return ngx_modelgw_store_fail(s, NULL);
        }
    }

    return NGX_OK;
}


const char *
ngx_modelgw_store_end_name(ngx_modelgw_end_e end)
{
    return ngx_modelgw_store_ends[end];
}


ngx_int_t
ngx_modelgw_store_begin(ngx_modelgw_store_t *s)
{
    if (ngx_modelgw_store_run(s, NGX_MODELGW_STORE_BEGIN, NULL) != NGX_OK) {
        return NGX_ERROR;
    }

    s->batch = 1;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_commit(ngx_modelgw_store_t *s)
{
    if (ngx_modelgw_store_calls_write(s) != NGX_OK
        || ngx_modelgw_store_flush(s) != NGX_OK
        || ngx_modelgw_store_run(s, NGX_MODELGW_STORE_COMMIT, NULL) != NGX_OK)
    {
        return NGX_ERROR;
    }

    s->batch = 0;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_account(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_account_t *a)
{
    u_char        *p, id[sizeof("founding:") + NGX_MODELGW_LEDGER_NAME];
    ngx_uint_t     made;
    sqlite3_stmt  *stmt;

    stmt = s->stmts[NGX_MODELGW_STORE_ACCOUNT];

    ngx_modelgw_store_bind_name(stmt, 1, &a->name);
    (void) sqlite3_bind_int64(stmt, 2, a->opened * 1000);

    if (ngx_modelgw_store_run(s, NGX_MODELGW_STORE_ACCOUNT, &made) != NGX_OK) {
        return NGX_ERROR;
    }

    if (!made || a->founding == 0) {
        return NGX_OK;
    }

    p = ngx_cpymem(id, "founding:", sizeof("founding:") - 1);
    p = ngx_cpymem(p, a->name.data,
                   ngx_min(a->name.len, NGX_MODELGW_LEDGER_NAME));

    if (ngx_modelgw_store_topup_insert(s, id, p - id, &a->name, a->founding,
                                       a->opened * 1000, &made)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return made ? ngx_modelgw_store_charge(s, &a->name, a->founding) : NGX_OK;
}


ngx_int_t
ngx_modelgw_store_hold(ngx_modelgw_store_t *s, ngx_modelgw_call_t *call,
    ngx_modelgw_ledger_name_t *account)
{
    ngx_uint_t             changes;
    sqlite3_stmt          *stmt;
    ngx_modelgw_seen_t     seen;
    ngx_modelgw_charge_t   charge;

    ngx_modelgw_seen_init(&seen);
    ngx_modelgw_charge(&call->price, call->hold, call->estimate, &seen,
                       &charge);

    stmt = s->stmts[NGX_MODELGW_STORE_HOLD];

    (void) sqlite3_bind_int64(stmt, 1, call->id);
    (void) sqlite3_bind_int64(stmt, 2, call->started);
    ngx_modelgw_store_bind_name(stmt, 3, &call->key_name);
    ngx_modelgw_store_bind_name(stmt, 4, account);
    ngx_modelgw_store_bind_model(stmt, 5, call);
    (void) sqlite3_bind_int64(stmt, 6, call->hold);
    (void) sqlite3_bind_int64(stmt, 7, charge.tokens.input);
    (void) sqlite3_bind_int64(stmt, 8, charge.cost);

    if (ngx_modelgw_store_run(s, NGX_MODELGW_STORE_HOLD, &changes) != NGX_OK) {
        return NGX_ERROR;
    }

    /* one that is there counts as well, so something else has kept it out */

    if (changes == 0) {
        (void) ngx_modelgw_store_fail_text(s, "failed: it leaves out a hold");
        return ngx_modelgw_store_abandon(s);
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_topup(ngx_modelgw_store_t *s, ngx_modelgw_topup_t *topup,
    ngx_modelgw_ledger_name_t *account, ngx_modelgw_topup_e *result)
{
    ngx_int_t   rc;
    ngx_uint_t  made;

    rc = ngx_modelgw_store_topup_known(s, topup, account, result);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    rc = ngx_modelgw_store_topup_fits(s, account, topup->amount);

    if (rc == NGX_DECLINED) {
        *result = NGX_MODELGW_TOPUP_FAILED;
        return NGX_OK;
    }

    if (rc != NGX_OK
        || ngx_modelgw_store_topup_insert(s, topup->id.data,
                                          ngx_min(topup->id.len,
                                                  NGX_MODELGW_LEDGER_NAME),
                                          account, topup->amount, topup->time,
                                          &made)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* there was none of this id, so something else has kept it out */

    if (!made) {
        (void) ngx_modelgw_store_fail_text(s, "failed: it leaves out a top-up");
        return ngx_modelgw_store_abandon(s);
    }

    *result = NGX_MODELGW_TOPUP_NEW;

    return ngx_modelgw_store_charge(s, account, topup->amount);
}


/*
 * NGX_OK: there is one of this id, *result is set; NGX_DECLINED: none.  One
 * that was asked for at the same time is the very same, which a writer stored
 * and did not live to answer, or could not tell to be stored: no two have one
 * time.
 */

static ngx_int_t
ngx_modelgw_store_topup_known(ngx_modelgw_store_t *s,
    ngx_modelgw_topup_t *topup, ngx_modelgw_ledger_name_t *account,
    ngx_modelgw_topup_e *result)
{
    int            rc;
    sqlite3_stmt  *stmt;

    if (!s->batch) {
        return NGX_ERROR;
    }

    stmt = s->stmts[NGX_MODELGW_STORE_TOPUP_FIND];

    ngx_modelgw_store_bind_name(stmt, 1, &topup->id);
    ngx_modelgw_store_bind_name(stmt, 2, account);
    (void) sqlite3_bind_int64(stmt, 3, topup->amount);
    (void) sqlite3_bind_int64(stmt, 4, topup->time);

    rc = sqlite3_step(stmt);

    if (rc == SQLITE_ROW) {
        *result = NGX_MODELGW_TOPUP_OTHER;

        if (sqlite3_column_int(stmt, 0)) {
            *result = sqlite3_column_int(stmt, 1) ? NGX_MODELGW_TOPUP_NEW
                                                  : NGX_MODELGW_TOPUP_KNOWN;
        }

    } else if (rc != SQLITE_DONE) {
        return ngx_modelgw_store_fault(s, stmt);
    }

    (void) sqlite3_reset(stmt);

    return (rc == SQLITE_ROW) ? NGX_OK : NGX_DECLINED;
}


/*
 * A balance that left int64 would be an error of the whole batch, and of the
 * next one that tries the same: NGX_DECLINED.  So would an account that is not
 * there.
 */

static ngx_int_t
ngx_modelgw_store_topup_fits(ngx_modelgw_store_t *s,
    ngx_modelgw_ledger_name_t *account, int64_t amount)
{
    int            rc;
    int64_t        balance;
    sqlite3_stmt  *stmt;

    stmt = s->stmts[NGX_MODELGW_STORE_BALANCE];

    ngx_modelgw_store_bind_name(stmt, 1, account);

    rc = sqlite3_step(stmt);

    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        return ngx_modelgw_store_fault(s, stmt);
    }

    balance = sqlite3_column_int64(stmt, 0);

    (void) sqlite3_reset(stmt);

    if (rc == SQLITE_DONE) {
        return NGX_DECLINED;
    }

    if (__builtin_add_overflow(amount, ngx_modelgw_store_charged(s, account),
                               &amount)
        || __builtin_add_overflow(balance, amount, &balance))
    {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_store_topup_insert(ngx_modelgw_store_t *s, u_char *id, size_t len,
    ngx_modelgw_ledger_name_t *account, int64_t amount, uint64_t time,
    ngx_uint_t *made)
{
    sqlite3_stmt  *stmt;

    stmt = s->stmts[NGX_MODELGW_STORE_TOPUP];

    (void) sqlite3_bind_text(stmt, 1, (char *) id, len, SQLITE_STATIC);
    ngx_modelgw_store_bind_name(stmt, 2, account);
    (void) sqlite3_bind_int64(stmt, 3, amount);
    (void) sqlite3_bind_int64(stmt, 4, time);

    return ngx_modelgw_store_run(s, NGX_MODELGW_STORE_TOPUP, made);
}


/* executes a statement that answers no rows, whose parameters are bound */

ngx_int_t
ngx_modelgw_store_run(ngx_modelgw_store_t *s, ngx_modelgw_store_statement_e i,
    ngx_uint_t *changes)
{
    sqlite3_stmt  *stmt;

    /* only BEGIN is outside of a batch, and only it */

    if (s->failed || s->batch == (i == NGX_MODELGW_STORE_BEGIN)) {
        return NGX_ERROR;
    }

    stmt = s->stmts[i];

    ngx_set_errno(0);

    if (sqlite3_step(stmt) != SQLITE_DONE) {
        return ngx_modelgw_store_fault(s, stmt);
    }

    (void) sqlite3_reset(stmt);

    if (changes) {
        *changes = sqlite3_changes(s->db);
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_fault(ngx_modelgw_store_t *s, sqlite3_stmt *stmt)
{
    (void) ngx_modelgw_store_fail(s, stmt);

    return ngx_modelgw_store_abandon(s);
}


ngx_int_t
ngx_modelgw_store_abandon(ngx_modelgw_store_t *s)
{
    s->failed = 1;
    s->batch = 0;
    s->nrows = 0;

    ngx_modelgw_store_forget(s);

    /* SQLite has done so by itself after some errors */

    if (!sqlite3_get_autocommit(s->db)) {
        (void) sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    }

    return NGX_ERROR;
}


void
ngx_modelgw_store_bind_name(sqlite3_stmt *stmt, int i,
    ngx_modelgw_ledger_name_t *name)
{
    (void) sqlite3_bind_text(stmt, i, (char *) name->data,
                             ngx_min(name->len, NGX_MODELGW_LEDGER_NAME),
                             SQLITE_STATIC);
}


static void
ngx_modelgw_store_bind_model(sqlite3_stmt *stmt, int i,
    ngx_modelgw_call_t *call)
{
    (void) sqlite3_bind_text(stmt, i, (char *) call->model,
                             ngx_min(call->model_len, NGX_MODELGW_LEDGER_MODEL),
                             SQLITE_STATIC);
}
