
/*
 * Operations on the whole store: recovering it, reading its accounts, rolling
 * up old calls to days.
 *
 * A trigger that was added to the file may drop rows silently: so the rows that
 * each step should change are counted before it.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"


#define NGX_MODELGW_STORE_LATE  10000    /* younger calls looked at, at most */


typedef struct {
    const char  *sql;
    const char  *rows;                   /* counts what it should change */
    const char  *failed;                 /* text, if it has changed fewer */
} ngx_modelgw_store_step_t;


static ngx_int_t ngx_modelgw_store_recover_holds(ngx_modelgw_store_t *s,
    uint64_t time, ngx_uint_t *n, int64_t *charged);
static ngx_int_t ngx_modelgw_store_roll_up_to(ngx_modelgw_store_t *s,
    int64_t before, ngx_uint_t max, int64_t *last, ngx_uint_t *n);
static ngx_int_t ngx_modelgw_store_steps(ngx_modelgw_store_t *s,
    ngx_modelgw_store_step_t *step, int64_t first, int64_t second);


/*
 * ?1: the time when they end.  A hold of a call that exists was charged
 * already.  A hold of an account that does not exist charges no account:
 * "audit" shows it.
 */

static ngx_modelgw_store_step_t  ngx_modelgw_store_recovery[] = {

    { "INSERT INTO calls"
      " SELECT id, time, max(time, ?1), key, account, model, input, 0, 0, 0,"
          " 0, 0, cost, 'unanswered', 'lost', 0, request_id, NULL, flags,"
          " price"
      " FROM holds",
      "SELECT count(*) FROM holds",
      "failed: calls were not inserted" },

    { "UPDATE accounts SET balance = balance - h.cost"
      " FROM (SELECT account, sum(cost) AS cost FROM holds GROUP BY account)"
          " AS h"
      " WHERE name = h.account",
      "SELECT count(*) FROM accounts WHERE name IN (SELECT account FROM holds)",
      "failed: accounts were not charged" },

    { "DELETE FROM holds",
      "SELECT count(*) FROM holds",
      "failed: holds were not deleted" },

    { NULL, NULL, NULL }
};


/*
 * Calls with an id up to ?2 that ended before ?1.  They are rolled up to the
 * day when they ended, because they were charged then.
 */

static ngx_modelgw_store_step_t  ngx_modelgw_store_rolling[] = {

    { "INSERT INTO days"
      " SELECT date(ended / 1000, 'unixepoch'), account, key, model, count(*),"
          " sum(input), sum(cache_read), sum(cache_write),"
          " sum(cache_write_1h), sum(output), sum(reasoning), sum(cost),"
          " sum(status NOT BETWEEN 200 AND 299), sum(ended - time),"
          " count(first_byte), coalesce(sum(first_byte), 0)"
      " FROM calls WHERE id <= ?2 AND ended < ?1"
      " GROUP BY 1, 2, 3, 4"
      " ON CONFLICT (day, account, key, model) DO UPDATE SET"
          " calls = calls + excluded.calls,"
          " input = input + excluded.input,"
          " cache_read = cache_read + excluded.cache_read,"
          " cache_write = cache_write + excluded.cache_write,"
          " cache_write_1h = cache_write_1h + excluded.cache_write_1h,"
          " output = output + excluded.output,"
          " reasoning = reasoning + excluded.reasoning,"
          " cost = cost + excluded.cost,"
          " errors = errors + excluded.errors,"
          " duration = duration + excluded.duration,"
          " first_bytes = first_bytes + excluded.first_bytes,"
          " first_byte = first_byte + excluded.first_byte",
      "SELECT count(*) FROM (SELECT date(ended / 1000, 'unixepoch'), account,"
          " key, model FROM calls WHERE id <= ?2 AND ended < ?1"
          " GROUP BY 1, 2, 3, 4)",
      "failed: days were not updated" },

    { "DELETE FROM calls WHERE id <= ?2 AND ended < ?1",
      "SELECT count(*) FROM calls WHERE id <= ?2 AND ended < ?1",
      "failed: calls were not deleted" },

    { NULL, NULL, NULL }
};


ngx_int_t
ngx_modelgw_store_recover(ngx_modelgw_store_t *s, uint64_t time, ngx_uint_t *n,
    int64_t *charged)
{
    if (ngx_modelgw_store_begin(s) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_store_recover_holds(s, time, n, charged) != NGX_OK) {
        return ngx_modelgw_store_abandon(s);
    }

    return ngx_modelgw_store_commit(s);
}


static ngx_int_t
ngx_modelgw_store_recover_holds(ngx_modelgw_store_t *s, uint64_t time,
    ngx_uint_t *n, int64_t *charged)
{
    int64_t  count;

    if (ngx_modelgw_store_exec(s, "DELETE FROM holds"
                                  " WHERE id IN (SELECT id FROM calls"
                                  " WHERE calls.id = holds.id)")
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_modelgw_store_number(s, "SELECT count(*) FROM holds", &count)
        != NGX_OK
        || ngx_modelgw_store_number(s,
                                 "SELECT coalesce(sum(cost), 0) FROM holds",
                                 charged)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    *n = count;

    return ngx_modelgw_store_steps(s, ngx_modelgw_store_recovery, time, 0);
}


ngx_int_t
ngx_modelgw_store_roll_up(ngx_modelgw_store_t *s, uint64_t time,
    ngx_uint_t max, ngx_uint_t *n)
{
    int64_t  before, last;

    last = 0;
    before = (int64_t) (time - time % NGX_MODELGW_STORE_DAY) * 1000;

    if (ngx_modelgw_store_begin(s) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_store_roll_up_to(s, before, max, &last, n) != NGX_OK
        || ngx_modelgw_store_steps(s, ngx_modelgw_store_rolling, before, last)
           != NGX_OK)
    {
        return ngx_modelgw_store_abandon(s);
    }

    return ngx_modelgw_store_commit(s);
}


/*
 * The id up to which there are max calls to roll up, and how many there are.
 *
 * Ids grow with the time when calls begin, and so, nearly, with the time when
 * they end.  So only the lowest ids are looked at, and a month of calls need
 * not be read to find that none is old enough: if there are more than
 * NGX_MODELGW_STORE_LATE younger calls in between, which takes a clock that was
 * wrong, older ones after them are left for another day.
 */

static ngx_int_t
ngx_modelgw_store_roll_up_to(ngx_modelgw_store_t *s, int64_t before,
    ngx_uint_t max, int64_t *last, ngx_uint_t *n)
{
    ngx_int_t      rc;
    sqlite3_stmt  *stmt;

    if (ngx_modelgw_store_prepare(s,
            "SELECT max(id), count(*) FROM (SELECT id FROM (SELECT id, ended"
            " FROM calls ORDER BY id LIMIT ?3) WHERE ended < ?1 ORDER BY id"
            " LIMIT ?2)", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    (void) sqlite3_bind_int64(stmt, 1, before);
    (void) sqlite3_bind_int64(stmt, 2, max);
    (void) sqlite3_bind_int64(stmt, 3, max + NGX_MODELGW_STORE_LATE);

    if (sqlite3_step(stmt) == SQLITE_ROW) {
        *last = sqlite3_column_int64(stmt, 0);
        *n = sqlite3_column_int64(stmt, 1);
        rc = NGX_OK;

    } else {
        rc = ngx_modelgw_store_fail(s, NULL);
    }

    (void) sqlite3_finalize(stmt);

    return rc;
}


static ngx_int_t
ngx_modelgw_store_steps(ngx_modelgw_store_t *s, ngx_modelgw_store_step_t *step,
    int64_t first, int64_t second)
{
    int64_t  rows;

    for ( /* void */ ; step->sql; step++) {

        if (ngx_modelgw_store_step(s, step->rows, first, second, &rows)
            != NGX_OK
            || ngx_modelgw_store_step(s, step->sql, first, second, NULL)
               != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (sqlite3_changes(s->db) != rows) {
            return ngx_modelgw_store_fail_text(s, step->failed);
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_last_id(ngx_modelgw_store_t *s, uint64_t *id)
{
    int64_t  last;

    /* two subqueries of one index step each */

    if (ngx_modelgw_store_number(s,
            "SELECT max(coalesce((SELECT max(id) FROM calls), 0),"
            " coalesce((SELECT max(id) FROM holds), 0))", &last)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    *id = last;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_accounts(ngx_modelgw_store_t *s,
    ngx_modelgw_store_account_pt handler, void *data)
{
    int            rc;
    ngx_int_t      result;
    ngx_str_t      name;
    sqlite3_stmt  *stmt;

    if (ngx_modelgw_store_prepare(s, "SELECT name, balance, opened / 1000"
                                     " FROM accounts", &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    result = NGX_OK;

    do {
        rc = sqlite3_step(stmt);

        if (rc == SQLITE_ROW) {
            name.data = (u_char *) sqlite3_column_text(stmt, 0);
            name.len = sqlite3_column_bytes(stmt, 0);

            result = handler(data, &name, sqlite3_column_int64(stmt, 1),
                             sqlite3_column_int64(stmt, 2));

        } else if (rc != SQLITE_DONE) {
            result = ngx_modelgw_store_fail(s, NULL);
        }

    } while (rc == SQLITE_ROW && result == NGX_OK);

    (void) sqlite3_finalize(stmt);

    return result;
}
