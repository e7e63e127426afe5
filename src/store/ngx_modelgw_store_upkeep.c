
/*
 * Operations on the whole store: recovering it, reading its accounts, summing
 * up calls by hours, rolling up old ones to days.
 *
 * A call is in "hours" if it ended before the mark: those that are written
 * later are added with their batch, all others when the mark is moved, by
 * ngx_modelgw_store_hours().  A call that is rolled up to its day is taken out
 * of its hour.
 *
 * Calls are also summed up in memory as they are inserted, by windows of the
 * time when they ended.  Every call in these sums is in the file: if the file
 * has as many in the window, they are the same, and _hours() adds these sums.
 * Otherwise (after a start, if the clock was set, of too many keys) it reads
 * the calls.
 *
 * Rejected: GROUP BY, which sorts the calls: 27,500 instructions a call, twice
 * what inserting one takes; reading takes 7,700, summing up in memory 1,300.
 *
 * A trigger that was added to the file may drop rows silently: so the rows that
 * each step should change are counted before it.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_store_private.h"


#define NGX_MODELGW_STORE_LATE  10000    /* younger calls looked at, at most */


/* the last of ?2 calls that ended before ?1, of the ?3 with the lowest ids */

#define ngx_modelgw_store_old_sql(condition)                                  \
    "SELECT max(id), count(*) FROM (SELECT id FROM (SELECT id, ended"         \
    " FROM calls" condition " ORDER BY id LIMIT ?3) WHERE ended < ?1"         \
    " ORDER BY id LIMIT ?2)"


typedef struct {
    const char  *sql;
    const char  *rows;                   /* counts what it should change */
    const char  *failed;                 /* text, if it has changed fewer */
} ngx_modelgw_store_step_t;


static ngx_int_t ngx_modelgw_store_recover_holds(ngx_modelgw_store_t *s,
    uint64_t time, ngx_uint_t *n, int64_t *charged);
static ngx_int_t ngx_modelgw_store_roll_up_to(ngx_modelgw_store_t *s,
    int64_t before, ngx_uint_t max, int64_t *last, ngx_uint_t *n);
static void ngx_modelgw_store_hours_note_sums(ngx_modelgw_call_t *call,
    int64_t *sums);
static ngx_int_t ngx_modelgw_store_hours_noted(ngx_modelgw_store_t *s,
    int64_t *mark, ngx_uint_t *n, ngx_modelgw_store_hours_t **hours);
static ngx_int_t ngx_modelgw_store_hours_sum(ngx_modelgw_store_t *s,
    ngx_uint_t max, int64_t *mark, ngx_uint_t *n);
static ngx_int_t ngx_modelgw_store_hours_call(ngx_modelgw_store_t *s,
    sqlite3_stmt *stmt, int64_t ended);
static ngx_int_t ngx_modelgw_store_hours_add(ngx_modelgw_store_hours_t *hours,
    int64_t ended, ngx_str_t *names, int64_t *sums);
static ngx_modelgw_store_hour_t *ngx_modelgw_store_hours_row(
    ngx_modelgw_store_hours_t *hours, int64_t hour, ngx_str_t *names);
static ngx_uint_t ngx_modelgw_store_hours_same(ngx_modelgw_store_hour_t *row,
    ngx_str_t *names);
static ngx_int_t ngx_modelgw_store_hours_names(ngx_modelgw_store_hour_t *row,
    ngx_str_t *names);
static ngx_int_t ngx_modelgw_store_hours_flush(ngx_modelgw_store_t *s,
    ngx_modelgw_store_hours_t *hours);
static void ngx_modelgw_store_hours_forget(ngx_modelgw_store_hours_t *hours);
static ngx_int_t ngx_modelgw_store_steps(ngx_modelgw_store_t *s,
    ngx_modelgw_store_step_t *step, int64_t first, int64_t second);


/* in a journal, before they are calls: their positions */

static ngx_modelgw_store_step_t  ngx_modelgw_store_recovery_outbox[] = {

    { "INSERT INTO outbox SELECT " NGX_MODELGW_JOURNAL_END " + count(*),"
          " min(id), json_group_array(id - (SELECT min(id) FROM holds))"
          " FROM holds GROUP BY NULL",
      "SELECT count(*) FROM (SELECT 1 FROM holds LIMIT 1)",
      "failed: calls have no positions" },

    { NULL, NULL, NULL }
};


/*
 * ?1: the time when they end, which is not before the mark.  A hold of a call
 * that exists was charged already.  A hold of an account that does not exist
 * charges no account: "audit" shows it.
 */

static ngx_modelgw_store_step_t  ngx_modelgw_store_recovery[] = {

    { "INSERT INTO calls"
      " SELECT id, time, max(time, ?1, " NGX_MODELGW_STORE_MARK "), key,"
          " account, model, input, 0, 0, 0,"
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

/* "+": not by the index, which would read all calls that are old enough */

#define NGX_MODELGW_STORE_DUE  " id <= ?2 AND +ended < ?1"

/* the hours of these calls, which are still there */

#define NGX_MODELGW_STORE_ROLLED                                              \
    " AND hour BETWEEN (SELECT min(ended) / 3600000 FROM calls WHERE"         \
    NGX_MODELGW_STORE_DUE ") AND (SELECT max(ended) / 3600000 FROM calls"     \
    " WHERE" NGX_MODELGW_STORE_DUE ")"

static ngx_modelgw_store_step_t  ngx_modelgw_store_rolling[] = {

    { "UPDATE hours SET" ngx_modelgw_store_sums_set("hours.", "- ", "rolled.")
      " FROM (SELECT ended / 3600000 AS hour, account, key, model,"
          NGX_MODELGW_STORE_SUMS_OF_CALLS
          "FROM calls WHERE" NGX_MODELGW_STORE_DUE
          " AND +ended < " NGX_MODELGW_STORE_MARK
          " GROUP BY 1, 2, 3, 4) AS rolled"
      " WHERE hours.hour = rolled.hour AND hours.account = rolled.account"
          " AND hours.key = rolled.key AND hours.model = rolled.model",
      "SELECT count(*) FROM (SELECT 1 FROM calls WHERE" NGX_MODELGW_STORE_DUE
          " AND +ended < " NGX_MODELGW_STORE_MARK
          " GROUP BY ended / 3600000, account, key, model)",
      "failed: hours were not updated" },

    { "DELETE FROM hours WHERE calls = 0" NGX_MODELGW_STORE_ROLLED,
      "SELECT count(*) FROM hours WHERE calls = 0" NGX_MODELGW_STORE_ROLLED,
      "failed: hours were not deleted" },

    { "INSERT INTO days (day, account, key, model," NGX_MODELGW_STORE_SUMS ")"
      " SELECT date(ended / 1000, 'unixepoch'), account, key, model,"
          NGX_MODELGW_STORE_SUMS_OF_CALLS
          "FROM calls WHERE" NGX_MODELGW_STORE_DUE " GROUP BY 1, 2, 3, 4"
      " ON CONFLICT (day, account, key, model) DO UPDATE SET"
          ngx_modelgw_store_sums_set("days.", "+ ", "excluded."),
      "SELECT count(*) FROM (SELECT date(ended / 1000, 'unixepoch'), account,"
          " key, model FROM calls WHERE" NGX_MODELGW_STORE_DUE
          " GROUP BY 1, 2, 3, 4)",
      "failed: days were not updated" },

    { "DELETE FROM calls WHERE" NGX_MODELGW_STORE_DUE,
      "SELECT count(*) FROM calls WHERE" NGX_MODELGW_STORE_DUE,
      "failed: calls were not deleted" },

    { NULL, NULL, NULL }
};


/* what each call adds, from the mark, ?1; ?2: the end */

static const char  ngx_modelgw_store_hours_calls[] =
    "SELECT ended, account, key, model," NGX_MODELGW_STORE_SUMS_OF_CALL
    "FROM calls WHERE ended >= ?1 AND ended < ?2 ORDER BY ended";


/* to the next one, ?1 */

static ngx_modelgw_store_step_t  ngx_modelgw_store_marking[] = {

    { "INSERT INTO marks VALUES ('hours', ?1)"
      " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
      "SELECT 1",
      "failed: the mark of hours was not set" },

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

    if (s->journal
        && ngx_modelgw_store_steps(s, ngx_modelgw_store_recovery_outbox, 0, 0)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_modelgw_store_steps(s, ngx_modelgw_store_recovery, time, 0);
}


ngx_int_t
ngx_modelgw_store_roll_up(ngx_modelgw_store_t *s, uint64_t time,
    ngx_uint_t max, ngx_uint_t *n)
{
    int64_t     before, last;
    ngx_uint_t  i;

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

    /* if the clock was set, calls of a window may have been rolled up */

    for (i = 0; *n && i < NGX_MODELGW_STORE_WINDOWS; i++) {
        ngx_modelgw_store_hours_forget(&s->hours[i]);
    }

    return ngx_modelgw_store_commit(s);
}


ngx_int_t
ngx_modelgw_store_hours(ngx_modelgw_store_t *s, uint64_t time, ngx_uint_t max,
    ngx_uint_t *n)
{
    int64_t                     before, mark, count;
    ngx_int_t                   rc;
    ngx_modelgw_store_hours_t  *hours;

    *n = 0;
    before = (int64_t) time * 1000;
    before -= before % NGX_MODELGW_STORE_WINDOW;

    /* none, or the clock was set back */

    if (ngx_modelgw_store_step(s, "SELECT count(*) FROM (SELECT 1 FROM calls"
                                  " WHERE ended >= ?1 AND ended < ?2 LIMIT 1)",
                               s->mark, before, &count)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (count == 0) {
        return NGX_OK;
    }

    if (ngx_modelgw_store_begin(s) != NGX_OK) {
        return NGX_ERROR;
    }

    mark = before;

    rc = ngx_modelgw_store_hours_noted(s, &mark, n, &hours);

    if (rc == NGX_DECLINED) {
        hours = &s->hours[NGX_MODELGW_STORE_WINDOWS];
        rc = ngx_modelgw_store_hours_sum(s, max, &mark, n);
    }

    if (rc != NGX_OK
        || ngx_modelgw_store_hours_flush(s, hours) != NGX_OK
        || ngx_modelgw_store_steps(s, ngx_modelgw_store_marking, mark, 0)
           != NGX_OK)
    {
        return ngx_modelgw_store_abandon(s);
    }

    if (ngx_modelgw_store_commit(s) != NGX_OK) {
        return NGX_ERROR;
    }

    s->mark = mark;

    if (mark < before) {
        *n = ngx_max(*n, max);
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_store_hours_init(ngx_modelgw_store_t *s)
{
    s->hours = calloc(NGX_MODELGW_STORE_WINDOWS + 1,
                      sizeof(ngx_modelgw_store_hours_t));

    if (s->hours == NULL) {
        return ngx_modelgw_store_fail_text(s, "failed: no memory");
    }

    return NGX_OK;
}


void
ngx_modelgw_store_hours_free(ngx_modelgw_store_t *s)
{
    ngx_uint_t  i;

    if (s->hours == NULL) {
        return;
    }

    for (i = 0; i <= NGX_MODELGW_STORE_WINDOWS; i++) {
        ngx_modelgw_store_hours_forget(&s->hours[i]);
    }

    free(s->hours);
}


/* A call that cannot be added is not counted, so the sums are not used. */

void
ngx_modelgw_store_hours_note(ngx_modelgw_store_t *s,
    ngx_modelgw_store_row_t *row)
{
    int64_t                     window, sums[NGX_MODELGW_STORE_HOUR_SUMS];
    ngx_str_t                   names[NGX_MODELGW_STORE_HOUR_NAMES];
    ngx_modelgw_call_t         *call;
    ngx_modelgw_store_hours_t  *hours;

    call = row->call;

    window = call->ended / NGX_MODELGW_STORE_WINDOW;
    hours = &s->hours[window % NGX_MODELGW_STORE_WINDOWS];

    if (hours->window != window) {
        ngx_modelgw_store_hours_forget(hours);
        hours->window = window;
    }

    /* as they are inserted: account, key, model */

    names[0].data = row->account->data;
    names[0].len = ngx_min(row->account->len, NGX_MODELGW_LEDGER_NAME);

    names[1].data = call->key_name.data;
    names[1].len = ngx_min(call->key_name.len, NGX_MODELGW_LEDGER_NAME);

    names[2].data = call->model;
    names[2].len = ngx_min(call->model_len, NGX_MODELGW_LEDGER_MODEL);

    ngx_modelgw_store_hours_note_sums(call, sums);

    if (ngx_modelgw_store_hours_add(hours, call->ended, names, sums)
        == NGX_OK)
    {
        hours->calls++;
    }
}


/* NGX_MODELGW_STORE_SUMS_OF_CALL */

static void
ngx_modelgw_store_hours_note_sums(ngx_modelgw_call_t *call, int64_t *sums)
{
    ngx_uint_t             begun;
    ngx_modelgw_tokens_t  *tokens;

    tokens = &call->charge.tokens;
    begun = (call->first_byte != NGX_MODELGW_LEDGER_NONE);

    *sums++ = 1;
    *sums++ = (call->seen.status < 200 || call->seen.status > 299);
    *sums++ = tokens->input;
    *sums++ = tokens->cache_read;
    *sums++ = tokens->cache_write;
    *sums++ = tokens->cache_write_1h;
    *sums++ = tokens->output;
    *sums++ = tokens->reasoning;
    *sums++ = call->charge.cost;
    *sums++ = call->ended - call->started;
    *sums++ = begun;
    *sums = begun ? call->first_byte : 0;
}


/*
 * The sums of the window that begins at the mark and ends before *mark, which
 * becomes its end.
 *     NGX_OK        *hours is set
 *     NGX_DECLINED  they are not of all calls
 *     NGX_ERROR
 */

static ngx_int_t
ngx_modelgw_store_hours_noted(ngx_modelgw_store_t *s, int64_t *mark,
    ngx_uint_t *n, ngx_modelgw_store_hours_t **hours)
{
    int64_t                     window, end, count;
    ngx_modelgw_store_hours_t  *h;

    window = s->mark / NGX_MODELGW_STORE_WINDOW;
    end = s->mark + NGX_MODELGW_STORE_WINDOW;

    h = &s->hours[window % NGX_MODELGW_STORE_WINDOWS];

    if (h->window != window || h->calls == 0
        || s->mark % NGX_MODELGW_STORE_WINDOW || end > *mark)
    {
        return NGX_DECLINED;
    }

    if (ngx_modelgw_store_step(s, "SELECT count(*) FROM calls"
                                  " WHERE ended >= ?1 AND ended < ?2",
                               s->mark, end, &count)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (count != (int64_t) h->calls) {
        return NGX_DECLINED;
    }

    *mark = end;
    *n = count;
    *hours = h;

    return NGX_OK;
}


/*
 * Sums up the calls that ended from the mark up to *mark; if there are more
 * than max, *mark becomes less.  *n: how many there were, at least max if there
 * are more: more than max only if they ended in the same millisecond.
 */

static ngx_int_t
ngx_modelgw_store_hours_sum(ngx_modelgw_store_t *s, ngx_uint_t max,
    int64_t *mark, ngx_uint_t *n)
{
    int            rc;
    int64_t        ended, last;
    sqlite3_stmt  *stmt;

    if (ngx_modelgw_store_prepare(s, ngx_modelgw_store_hours_calls, &stmt)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    (void) sqlite3_bind_int64(stmt, 1, s->mark);
    (void) sqlite3_bind_int64(stmt, 2, *mark);

    last = s->mark;

    for ( ;; ) {
        rc = sqlite3_step(stmt);
        if (rc != SQLITE_ROW) {
            break;
        }

        ended = sqlite3_column_int64(stmt, 0);

        if (*n >= max && ended != last) {
            *mark = ended;
            rc = SQLITE_DONE;
            break;
        }

        last = ended;
        (*n)++;

        if (ngx_modelgw_store_hours_call(s, stmt, ended) != NGX_OK) {
            (void) sqlite3_finalize(stmt);
            return NGX_ERROR;
        }
    }

    if (rc != SQLITE_DONE) {
        (void) ngx_modelgw_store_fail(s, NULL);
    }

    (void) sqlite3_finalize(stmt);

    return (rc == SQLITE_DONE) ? NGX_OK : NGX_ERROR;
}


/* Adds a call that is read. */

static ngx_int_t
ngx_modelgw_store_hours_call(ngx_modelgw_store_t *s, sqlite3_stmt *stmt,
    int64_t ended)
{
    int                         i;
    int64_t                     sums[NGX_MODELGW_STORE_HOUR_SUMS];
    ngx_str_t                   names[NGX_MODELGW_STORE_HOUR_NAMES];
    ngx_modelgw_store_hours_t  *hours;

    hours = &s->hours[NGX_MODELGW_STORE_WINDOWS];

    if (hours->nrows == NGX_MODELGW_STORE_HOUR_ROWS
        && ngx_modelgw_store_hours_flush(s, hours) != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < NGX_MODELGW_STORE_HOUR_NAMES; i++) {
        names[i].data = (u_char *) sqlite3_column_text(stmt, 1 + i);
        names[i].len = sqlite3_column_bytes(stmt, 1 + i);

        /* the column is NOT NULL: there is no memory */

        if (names[i].data == NULL) {
            return ngx_modelgw_store_fail(s, NULL);
        }
    }

    for (i = 0; i < NGX_MODELGW_STORE_HOUR_SUMS; i++) {
        sums[i] = sqlite3_column_int64(stmt,
                                       1 + NGX_MODELGW_STORE_HOUR_NAMES + i);
    }

    switch (ngx_modelgw_store_hours_add(hours, ended, names, sums)) {

    case NGX_OK:
        return NGX_OK;

    case NGX_DECLINED:
        return ngx_modelgw_store_fail_text(s, "failed: no memory");

    default: /* NGX_ERROR */
        return ngx_modelgw_store_fail_text(s,
                                        "failed: a sum of an hour overflows");
    }
}


/*
 *     NGX_OK
 *     NGX_DECLINED  there is no room or no memory
 *     NGX_ERROR     a sum overflows; some are added
 */

static ngx_int_t
ngx_modelgw_store_hours_add(ngx_modelgw_store_hours_t *hours, int64_t ended,
    ngx_str_t *names, int64_t *sums)
{
    ngx_uint_t                 i;
    ngx_modelgw_store_hour_t  *row;

    row = ngx_modelgw_store_hours_row(hours, ended / NGX_MODELGW_STORE_HOUR,
                                      names);
    if (row == NULL) {
        return NGX_DECLINED;
    }

    for (i = 0; i < NGX_MODELGW_STORE_HOUR_SUMS; i++) {
        if (__builtin_add_overflow(row->sums[i], sums[i], &row->sums[i])) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/*
 * The row of an hour and names, which is added if it is new; NULL: there is no
 * room or no memory.
 */

static ngx_modelgw_store_hour_t *
ngx_modelgw_store_hours_row(ngx_modelgw_store_hours_t *hours, int64_t hour,
    ngx_str_t *names)
{
    uint16_t                  *slot;
    uint32_t                   i, hash;
    ngx_modelgw_store_hour_t  *row;

    hash = hour;

    for (i = 0; i < NGX_MODELGW_STORE_HOUR_NAMES; i++) {
        hash = hash * 31 + ngx_murmur_hash2(names[i].data, names[i].len);
    }

    for ( /* void */ ; /* void */ ; hash++) {
        slot = &hours->slots[hash % NGX_MODELGW_STORE_HOUR_SLOTS];

        if (*slot == 0) {
            break;
        }

        row = &hours->rows[*slot - 1];

        if (row->hour == hour && ngx_modelgw_store_hours_same(row, names)) {
            return row;
        }
    }

    row = &hours->rows[hours->nrows];

    if (hours->nrows == NGX_MODELGW_STORE_HOUR_ROWS
        || ngx_modelgw_store_hours_names(row, names) != NGX_OK)
    {
        return NULL;
    }

    row->hour = hour;
    ngx_memzero(row->sums, sizeof(row->sums));

    *slot = ++hours->nrows;

    return row;
}


static ngx_uint_t
ngx_modelgw_store_hours_same(ngx_modelgw_store_hour_t *row, ngx_str_t *names)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_MODELGW_STORE_HOUR_NAMES; i++) {
        if (row->names[i].len != names[i].len
            || ngx_memcmp(row->names[i].data, names[i].data, names[i].len) != 0)
        {
            return 0;
        }
    }

    return 1;
}


static ngx_int_t
ngx_modelgw_store_hours_names(ngx_modelgw_store_hour_t *row, ngx_str_t *names)
{
    size_t       len;
    u_char      *p;
    ngx_uint_t   i;

    len = 1;

    for (i = 0; i < NGX_MODELGW_STORE_HOUR_NAMES; i++) {
        len += names[i].len;
    }

    p = malloc(len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < NGX_MODELGW_STORE_HOUR_NAMES; i++) {
        row->names[i].data = p;
        row->names[i].len = names[i].len;

        p = ngx_cpymem(p, names[i].data, names[i].len);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_store_hours_flush(ngx_modelgw_store_t *s,
    ngx_modelgw_store_hours_t *hours)
{
    ngx_uint_t                 i, k;
    sqlite3_stmt              *stmt;
    ngx_modelgw_store_hour_t  *row;

    stmt = s->stmts[NGX_MODELGW_STORE_HOURS];

    for (i = 0; i < hours->nrows; i++) {
        row = &hours->rows[i];

        (void) sqlite3_bind_int64(stmt, 1, row->hour);

        for (k = 0; k < NGX_MODELGW_STORE_HOUR_NAMES; k++) {
            (void) sqlite3_bind_text(stmt, 2 + k, (char *) row->names[k].data,
                                     row->names[k].len, SQLITE_STATIC);
        }

        for (k = 0; k < NGX_MODELGW_STORE_HOUR_SUMS; k++) {
            (void) sqlite3_bind_int64(stmt,
                                      2 + NGX_MODELGW_STORE_HOUR_NAMES + k,
                                      row->sums[k]);
        }

        if (ngx_modelgw_store_run_row(s, NGX_MODELGW_STORE_HOURS,
                                      "failed: hours were not updated")
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    ngx_modelgw_store_hours_forget(hours);

    return NGX_OK;
}


static void
ngx_modelgw_store_hours_forget(ngx_modelgw_store_hours_t *hours)
{
    if (hours->nrows == 0) {
        return;
    }

    while (hours->nrows) {
        free(hours->rows[--hours->nrows].names[0].data);
    }

    hours->calls = 0;
    ngx_memzero(hours->slots, sizeof(hours->slots));
}


/*
 * The id up to which there are max calls to roll up, and how many there are.
 *
 * Ids grow with the time when calls begin, and so, nearly, with the time when
 * they end.  So only the lowest ids are looked at, and a month of calls need
 * not be read to find that none is old enough: if there are more than
 * NGX_MODELGW_STORE_LATE younger calls in between, which takes a clock that was
 * wrong, older ones after them are left for another day.
 *
 * In a journal those that are in the outbox, which the exchanger still needs,
 * or in a block of it that has rows left, are left, too, and higher ids.
 */

static ngx_int_t
ngx_modelgw_store_roll_up_to(ngx_modelgw_store_t *s, int64_t before,
    ngx_uint_t max, int64_t *last, ngx_uint_t *n)
{
    ngx_int_t      rc;
    sqlite3_stmt  *stmt;

    if (ngx_modelgw_store_prepare(s,
            s->journal ? ngx_modelgw_store_old_sql(
                             " WHERE id < (SELECT coalesce(min(first),"
                             " 0x7fffffffffffffff) FROM (SELECT first"
                             " FROM lowest UNION ALL SELECT first FROM outbox"
                             " WHERE pos > (SELECT coalesce(max(pos), 0)"
                             " FROM lowest)))")
                       : ngx_modelgw_store_old_sql(""), &stmt)
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
ngx_modelgw_store_snapshot(ngx_modelgw_store_t *s)
{
    int64_t  n;

    /* the transaction begins to read with its first statement */

    return (ngx_modelgw_store_exec(s, "BEGIN") == NGX_OK
            && ngx_modelgw_store_number(s, "SELECT count(*) FROM marks", &n)
               == NGX_OK)
           ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_modelgw_store_has_call(ngx_modelgw_store_t *s, uint64_t id)
{
    int64_t  n;

    if (ngx_modelgw_store_step(s, "SELECT count(*) FROM calls"
                                  " WHERE id >= ?1 AND id <= ?2", id, id, &n)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return n ? NGX_OK : NGX_DECLINED;
}
