
/*
 * What the tests of the store share: a directory for the file, short forms of
 * batches, and queries by a separate connection.
 */


#ifndef _UNIT_STORE_H_INCLUDED_
#define _UNIT_STORE_H_INCLUDED_


#include "unit.h"

#include <sqlite3.h>

#include "ngx_modelgw_store.h"


/* 2026-11-22T06:47:00.123Z */

#define UNIT_TIME  1795330020123ULL
#define UNIT_CALLS 4096                  /* of a batch */
#define UNIT_DAY   86400000ULL


typedef struct {
    char           dir[64];
    char           path[96];
    ngx_pool_t    *pool;
} unit_store_t;


static ngx_inline int
unit_store_setup(void **state)
{
    unit_store_t  *u;

    u = calloc(1, sizeof(unit_store_t));
    assert_non_null(u);

    strcpy(u->dir, "/tmp/modelgw-store-XXXXXX");
    assert_non_null(mkdtemp(u->dir));
    sprintf(u->path, "%s/ledger.db", u->dir);

    u->pool = unit_pool_create();
    *state = u;

    return 0;
}


static ngx_inline int
unit_store_teardown(void **state)
{
    int            i;
    char           path[128];
    unit_store_t  *u = *state;
    const char    *tails[] = { "", "-wal", "-shm", "-journal" };

    for (i = 0; i < 4; i++) {
        sprintf(path, "%s%s", u->path, tails[i]);
        (void) unlink(path);
    }

    assert_int_equal(rmdir(u->dir), 0);

    ngx_destroy_pool(u->pool);
    free(u);

    return 0;
}


#define unit_store_case(f)                                                    \
    cmocka_unit_test_setup_teardown(f, unit_store_setup, unit_store_teardown)


static ngx_inline ngx_modelgw_store_t *
unit_open(unit_store_t *u)
{
    ngx_modelgw_store_t        *s;
    ngx_modelgw_store_error_t   error;

    s = ngx_modelgw_store_open(u->path, &error);

    if (s == NULL) {
        fail_msg("%.*s", (int) error.len, error.data);
    }

    return s;
}


static ngx_inline void
unit_store_ok(ngx_modelgw_store_t *s, ngx_int_t rc)
{
    ngx_modelgw_store_error_t  error;

    if (rc != NGX_OK) {
        ngx_modelgw_store_error(s, &error);
        fail_msg("%d: %.*s", (int) rc, (int) error.len, error.data);
    }
}


static ngx_inline void
unit_error_has(ngx_modelgw_store_error_t *error, const char *text)
{
    assert_in_range(error->len, 1, NGX_MODELGW_STORE_ERROR);

    if (memmem(error->data, error->len, text, strlen(text)) == NULL) {
        fail_msg("\"%.*s\" lacks \"%s\"", (int) error->len, error->data, text);
    }
}


/* the first column of a query, by another connection than the store */

static ngx_inline int64_t
unit_sql(unit_store_t *u, const char *sql)
{
    int64_t        n;
    sqlite3       *db;
    sqlite3_stmt  *stmt;

    assert_int_equal(sqlite3_open_v2(u->path, &db, SQLITE_OPEN_READONLY,
                                     NULL), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);

    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK
        || sqlite3_step(stmt) != SQLITE_ROW)
    {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }

    n = sqlite3_column_int64(stmt, 0);

    sqlite3_finalize(stmt);
    sqlite3_close(db);

    return n;
}


/* executes SQL on a connection that may write */

static ngx_inline void
unit_write_sql(unit_store_t *u, const char *sql)
{
    sqlite3  *db;

    assert_int_equal(sqlite3_open(u->path, &db), SQLITE_OK);

    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }

    sqlite3_close(db);
}


static ngx_inline void
unit_audit(unit_store_t *u)
{
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM audit"
                                 " WHERE difference != 0 OR hours != 0"), 0);
}


static ngx_inline ngx_modelgw_ledger_name_t
unit_name(const char *text)
{
    ngx_modelgw_ledger_name_t  name;

    memset(&name, 0xa5, sizeof(name));

    name.len = strlen(text);
    assert_true(name.len <= NGX_MODELGW_LEDGER_NAME);
    memcpy(name.data, text, name.len);

    return name;
}


static ngx_inline ngx_modelgw_ledger_account_t
unit_account(const char *name, int64_t founding)
{
    ngx_modelgw_ledger_account_t  a;

    memset(&a, 0, sizeof(a));

    a.name = unit_name(name);
    a.founding = founding;
    a.balance = founding - 77;           /* the state of shared memory */
    a.opened = UNIT_TIME / 1000;

    return a;
}


/* a call of so many output tokens, at a nano-euro each */

static ngx_inline ngx_modelgw_call_t
unit_call(uint64_t id, const char *key, int64_t cost)
{
    ngx_modelgw_call_t  call;

    memset(&call, 0, sizeof(call));

    call.id = id;
    call.state = NGX_MODELGW_CALL_DONE;
    call.started = UNIT_TIME;
    call.ended = UNIT_TIME + 1500;
    call.key_name = unit_name(key);
    call.model_len = sizeof("family_a-large") - 1;
    memcpy(call.model, "family_a-large", call.model_len);
    call.hold = 1000000;
    call.estimate = 5;
    call.price.input = 2000;             /* 2 nano-euro a token */
    call.seen.status = 200;
    call.charge.cost = cost;
    call.charge.tokens.output = cost;
    call.first_byte = 20;
    call.flags = NGX_MODELGW_CALL_STREAM;
    call.request_id_len = sizeof("req-1") - 1;
    memcpy(call.request_id, "req-1", call.request_id_len);

    return call;
}


/* no two have the same time, as in the ledger */

static ngx_inline ngx_modelgw_change_t
unit_topup(const char *id, const char *account, int64_t amount)
{
    static uint64_t       asked;
    ngx_modelgw_change_t  t;

    memset(&t, 0, sizeof(t));

    t.state = NGX_MODELGW_CHANGE_ASKED;
    t.owner = unit_name(account);
    t.id = unit_name(id);
    t.actor = unit_name("uid:0");
    t.amount = amount;
    t.time = UNIT_TIME + asked++;

    return t;
}


static ngx_inline void
unit_begin(ngx_modelgw_store_t *s)
{
    unit_store_ok(s, ngx_modelgw_store_begin(s));
}


static ngx_inline void
unit_commit(ngx_modelgw_store_t *s)
{
    unit_store_ok(s, ngx_modelgw_store_commit(s));
}


static ngx_inline void
unit_put_account(ngx_modelgw_store_t *s, const char *name, int64_t founding)
{
    ngx_modelgw_ledger_account_t  a = unit_account(name, founding);

    unit_store_ok(s, ngx_modelgw_store_account(s, &a));
}


/* a copy: the store reads it until the commit */

static ngx_inline void
unit_put_call(ngx_modelgw_store_t *s, ngx_modelgw_call_t *call,
    const char *account)
{
    ngx_uint_t                        i;
    static ngx_uint_t                 n;
    static ngx_modelgw_call_t         calls[UNIT_CALLS];
    static ngx_modelgw_ledger_name_t  names[UNIT_CALLS];

    i = n++ % UNIT_CALLS;

    calls[i] = *call;
    names[i] = unit_name(account);

    unit_store_ok(s, ngx_modelgw_store_call(s, &calls[i], &names[i]));
}


static ngx_inline void
unit_put_hold(ngx_modelgw_store_t *s, ngx_modelgw_call_t *call,
    const char *account)
{
    ngx_modelgw_ledger_name_t  name = unit_name(account);

    unit_store_ok(s, ngx_modelgw_store_hold(s, call, &name));
}


static ngx_inline ngx_modelgw_change_e
unit_put_topup(ngx_modelgw_store_t *s, const char *id, const char *account,
    int64_t amount)
{
    ngx_modelgw_change_e  result;
    ngx_modelgw_change_t  t = unit_topup(id, account, amount);

    result = NGX_MODELGW_CHANGE_FREE;
    unit_store_ok(s, ngx_modelgw_store_change(s, &t, &result));

    return result;
}


#endif /* _UNIT_STORE_H_INCLUDED_ */
