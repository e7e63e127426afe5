
/*
 * Unit tests of the store as the journal of a node: its tables, what is
 * refused, the outbox, leases, the feed, and what is kept of calls.
 */


#include "unit_store.h"

#include "ngx_modelgw_journal.h"


#define UNIT_ID    "0123456789abcdef0123456789abcdef"
#define UNIT_OTHER "ffffffffffffffffffffffffffffffff"


static ngx_modelgw_store_error_t  error;


static ngx_modelgw_store_t *
journal_open(unit_store_t *u, const char *id)
{
    ngx_modelgw_store_t  *s;

    s = ngx_modelgw_store_open_journal(u->path, id, &error);

    if (s == NULL) {
        fail_msg("%.*s", (int) error.len, error.data);
    }

    assert_int_equal(ngx_modelgw_store_journal(s), 1);

    return s;
}


static void
put_lease(ngx_modelgw_store_t *s, const char *name, int64_t granted,
    int64_t returned, int64_t forced)
{
    ngx_str_t  str;

    str.len = strlen(name);
    str.data = (u_char *) name;

    unit_store_ok(s, ngx_modelgw_journal_lease(s, &str, granted, returned,
                                               forced));
}


static void
put_call(ngx_modelgw_store_t *s, uint64_t id, int64_t cost)
{
    ngx_modelgw_call_t  call = unit_call(id, "key-1", cost);

    unit_put_call(s, &call, "acme");
}


static void
test_new(void **state)
{
    unit_store_t           *u = *state;
    ngx_modelgw_store_t    *s;
    ngx_modelgw_journal_t   j;

    assert_int_equal(ngx_modelgw_store_check(u->path, 1, &error), NGX_OK);

    s = journal_open(u, UNIT_ID);
    unit_store_ok(s, ngx_modelgw_journal_read(s, &j));

    assert_string_equal(j.id, UNIT_ID);
    assert_string_equal(j.cluster, "");
    assert_true(j.num == 0 && j.exchanged == 0 && j.pos == 0 && j.end == 0
                && j.keys_version == 0);

    /* in the header, whatever is in the WAL; also after a probe */

    assert_int_equal(ngx_modelgw_store_check(u->path, 1, &error), NGX_OK);
    unit_store_ok(s, ngx_modelgw_store_probe(s));
    assert_int_equal(unit_sql(u, "PRAGMA user_version"),
                     100 + NGX_MODELGW_STORE_VERSION);

    strcpy(j.cluster, UNIT_OTHER);
    j.num = 7;
    j.exchanged = UNIT_TIME;
    j.pos = 5;
    j.keys_version = 12;

    unit_begin(s);
    unit_store_ok(s, ngx_modelgw_journal_set(s, &j));
    unit_commit(s);

    ngx_modelgw_store_close(s);

    /* once it is one, it keeps its id */

    s = journal_open(u, UNIT_OTHER);
    memset(&j, 0, sizeof(j));
    unit_store_ok(s, ngx_modelgw_journal_read(s, &j));

    assert_string_equal(j.id, UNIT_ID);
    assert_string_equal(j.cluster, UNIT_OTHER);
    assert_true(j.num == 7 && j.exchanged == UNIT_TIME && j.pos == 5
                && j.keys_version == 12);

    ngx_modelgw_store_close(s);
}


/* neither is taken for the other, and neither changes */

static void
test_kinds(void **state)
{
    int                     i;
    unit_store_t           *u = *state;
    ngx_modelgw_store_t    *s;
    ngx_modelgw_journal_t   j;

    s = unit_open(u);
    assert_int_equal(ngx_modelgw_store_journal(s), 0);
    assert_int_equal(ngx_modelgw_journal_read(s, &j), NGX_DECLINED);
    ngx_modelgw_store_close(s);

    for (i = 2; i >= 1; i--) {
        unit_write_sql(u, (i == 2) ? "PRAGMA user_version = 2"
                                   : "PRAGMA user_version = 1");

        assert_int_equal(ngx_modelgw_store_check(u->path, 1, &error),
                         NGX_DECLINED);
        unit_error_has(&error, "modelgwctl cluster import");

        assert_null(ngx_modelgw_store_open_journal(u->path, UNIT_ID, &error));
        unit_error_has(&error, "modelgwctl cluster import");
        assert_int_equal(unit_sql(u, "PRAGMA user_version"), i);
    }

    assert_int_equal(unlink(u->path), 0);

    s = journal_open(u, UNIT_ID);
    ngx_modelgw_store_close(s);

    assert_int_equal(ngx_modelgw_store_check(u->path, 0, &error), NGX_DECLINED);
    unit_error_has(&error, "needs \"modelgw_cluster\"");
    assert_null(ngx_modelgw_store_open(u->path, &error));
    unit_error_has(&error, "needs \"modelgw_cluster\"");

    /* of a version to come, or that never was */

    unit_write_sql(u, "PRAGMA user_version = 103");
    assert_null(ngx_modelgw_store_open_journal(u->path, UNIT_ID, &error));
    unit_error_has(&error, "has version 3, 2 is required");

    unit_write_sql(u, "PRAGMA user_version = 101");
    assert_null(ngx_modelgw_store_open_journal(u->path, UNIT_ID, &error));
    unit_error_has(&error, "has version 1, 2 is required");
}


typedef struct {
    ngx_uint_t   n;
    uint64_t     pos[16];
    int64_t      id[16];
    int64_t      cost;
    char         text[128];
} calls_t;


static ngx_int_t
take_call(void *data, ngx_modelgw_journal_call_t *call)
{
    calls_t  *calls = data;

    assert_true(calls->n < 16);

    calls->pos[calls->n] = call->pos;
    calls->id[calls->n++] = call->id;
    calls->cost += call->cost;

    snprintf(calls->text, sizeof(calls->text),
             "%.*s %.*s %.*s %.*s %.*s %.*s %d %d %d",
             (int) call->key.len, call->key.data,
             (int) call->account.len, call->account.data,
             (int) call->model.len, call->model.data,
             (int) call->outcome.len, call->outcome.data,
             (int) call->end.len, call->end.data,
             (int) call->request_id.len, call->request_id.data,
             (int) call->status, (int) call->first_byte, (int) call->flags);

    return NGX_OK;
}


static ngx_int_t
take_price(void *data, ngx_modelgw_store_price_t *price)
{
    int64_t  *sum = data;

    *sum += price->id * 100 + price->rates.input;

    return NGX_OK;
}


/* What the writer is told must be what a reader finds. */

static void
take_written(void *data, uint64_t pos, ngx_modelgw_call_t *call,
    ngx_modelgw_ledger_name_t *account)
{
    calls_t  *calls = data;

    assert_int_equal(account->len, 4);
    assert_memory_equal(account->data, "acme", 4);

    calls->pos[calls->n] = pos;
    calls->id[calls->n++] = call->id;
}


static void
test_outbox(void **state)
{
    int64_t               sum;
    uint64_t              end, id;
    calls_t               calls, written;
    ngx_uint_t            n;
    int64_t               charged;
    unit_store_t         *u = *state;
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s, *r;

    s = journal_open(u, UNIT_ID);

    memset(&written, 0, sizeof(written));
    ngx_modelgw_journal_written(s, take_written, &written);

    unit_begin(s);
    unit_put_account(s, "acme", 5000);
    put_call(s, 11, 100);
    put_call(s, 10, 200);
    unit_commit(s);

    /* no founding credit in a journal */

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM topups"), 0);
    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"), -300);
    unit_audit(u);

    /* those that are repeated have their position already */

    call = unit_call(12, "key-1", 300);
    call.price_id = 77;

    unit_begin(s);
    put_call(s, 10, 200);
    unit_put_call(s, &call, "acme");
    unit_commit(s);

    /* one that was lost gets one, too */

    call = unit_call(13, "key-1", 0);

    unit_begin(s);
    unit_put_hold(s, &call, "acme");
    unit_commit(s);

    unit_store_ok(s, ngx_modelgw_store_recover(s, UNIT_TIME + 5000, &n,
                                               &charged));
    assert_int_equal(n, 1);

    r = ngx_modelgw_store_open_read(u->path, NULL, &error);
    assert_non_null(r);
    assert_int_equal(ngx_modelgw_store_journal(r), 1);

    memset(&calls, 0, sizeof(calls));
    unit_store_ok(r, ngx_modelgw_journal_calls(r, 0, 100, take_call, &calls));

    assert_int_equal(calls.n, 4);
    assert_true(calls.id[0] == 10 && calls.id[1] == 11 && calls.id[2] == 12
                && calls.id[3] == 13);
    assert_true(calls.pos[0] == 1 && calls.pos[1] == 2 && calls.pos[2] == 3
                && calls.pos[3] == 4);

    assert_int_equal(written.n, 3);
    assert_memory_equal(written.id, calls.id, 3 * sizeof(calls.id[0]));
    assert_memory_equal(written.pos, calls.pos, 3 * sizeof(calls.pos[0]));

    assert_int_equal(calls.cost, 600 + charged);
    assert_string_equal(calls.text, "key-1 acme family_a-large unanswered lost"
                                    " req-1 0 -1 1");

    unit_store_ok(r, ngx_modelgw_journal_end(r, &end));
    assert_int_equal(end, calls.pos[3]);

    for (n = 0; n < 4; n++) {
        unit_store_ok(r, ngx_modelgw_journal_call(r, calls.pos[n], &id));
        assert_int_equal(id, calls.id[n]);
    }

    unit_store_ok(r, ngx_modelgw_journal_call(r, end + 1, &id));
    assert_int_equal(id, 0);

    n = calls.pos[0];

    memset(&calls, 0, sizeof(calls));
    unit_store_ok(r, ngx_modelgw_journal_calls(r, n, 2, take_call, &calls));

    assert_int_equal(calls.n, 2);
    assert_true(calls.id[0] == 11 && calls.id[1] == 12);
    assert_string_equal(calls.text, "key-1 acme family_a-large reported"
                                    " complete req-1 200 20 1");

    sum = 0;
    unit_store_ok(r, ngx_modelgw_journal_price(r, 77, take_price, &sum));
    assert_int_equal(sum, 7700 + 2000);

    sum = 0;
    unit_store_ok(r, ngx_modelgw_journal_price(r, 78, take_price, &sum));
    assert_int_equal(sum, 0);

    ngx_modelgw_store_close(r);
    ngx_modelgw_store_close(s);
    unit_audit(u);
}


static ngx_int_t
take_lease(void *data, ngx_str_t *name, int64_t granted, int64_t returned,
    int64_t forced)
{
    int64_t  *sum = data;

    *sum += (int64_t) name->len * 1000000 + granted - returned - forced;

    return NGX_OK;
}


static void
test_leases(void **state)
{
    int64_t               sum;
    ngx_str_t             name = ngx_string("nobody");
    unit_store_t         *u = *state;
    ngx_modelgw_store_t  *s;

    s = journal_open(u, UNIT_ID);

    unit_begin(s);
    unit_put_account(s, "acme", 0);
    put_lease(s, "acme", 1000, 0, 0);
    put_call(s, 10, 300);
    unit_commit(s);

    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"), 700);
    unit_audit(u);

    /* totals: again is the same; a failover may have lost what was granted */

    unit_begin(s);
    put_lease(s, "acme", 1000, 0, 0);
    put_lease(s, "acme", 1500, 200, 50);
    put_lease(s, "acme", 900, 200, 50);
    put_lease(s, "#key-1/month/1793491200000", 77, 7, 0);
    unit_commit(s);

    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"), 350);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM audit"), 1);
    unit_audit(u);

    sum = 0;
    unit_store_ok(s, ngx_modelgw_journal_leases(s, take_lease, &sum));
    assert_int_equal(sum, 30 * 1000000 + 650 + 70);

    /* the account must exist */

    unit_begin(s);
    unit_store_ok(s, ngx_modelgw_journal_lease(s, &name, 5, 0, 0));
    assert_int_equal(ngx_modelgw_store_commit(s), NGX_ERROR);

    ngx_modelgw_store_close(s);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM leases"), 2);
}


static ngx_modelgw_feed_t
feed_key(const char *id, int digest, ngx_modelgw_key_state_e state,
    uint64_t version)
{
    ngx_modelgw_feed_t  feed;

    memset(&feed, 0, sizeof(feed));

    feed.key.id = unit_name(id);
    feed.key.account = unit_name("acme");
    feed.key.group = unit_name("a");
    memset(feed.key.digest, digest, NGX_MODELGW_KEY_DIGEST);
    feed.key.state = state;
    feed.key.version = version;
    feed.key.rpm = 60;
    feed.key.budget = 5000;
    feed.key.window = NGX_MODELGW_WINDOW_MONTH;
    feed.key.models_len = 3;
    memcpy(feed.key.models, "a,b", 3);

    if (state == NGX_MODELGW_KEY_ROTATED) {
        feed.key.expires = UNIT_TIME / 1000 + 60;
    }

    return feed;
}


static ngx_modelgw_feed_t
feed_account(const char *name, ngx_uint_t closed)
{
    ngx_modelgw_feed_t  feed;

    memset(&feed, 0, sizeof(feed));

    feed.account = 1;
    feed.name = unit_name(name);
    feed.closed = closed;

    return feed;
}


static void
put_feed(ngx_modelgw_store_t *s, ngx_modelgw_feed_t *feed, ngx_uint_t n)
{
    unit_begin(s);
    unit_store_ok(s, ngx_modelgw_journal_feed(s, feed, n, UNIT_TIME));
    unit_commit(s);
}


/* digits: the state of each key */

static ngx_int_t
take_key(void *data, ngx_modelgw_managed_key_t *key)
{
    int64_t  *states = data;

    assert_true(key->rpm == 60 && key->budget == 5000
                && key->window == NGX_MODELGW_WINDOW_MONTH
                && key->models_len == 3
                && memcmp(key->models, "a,b", 3) == 0);

    *states += (key->digest[0] == 1) ? key->state
               : (key->digest[0] == 2) ? key->state * 10 : key->state * 100;

    return NGX_OK;
}


static int64_t
states(ngx_modelgw_store_t *s)
{
    int64_t  sum;

    sum = 0;
    unit_store_ok(s, ngx_modelgw_store_keys(s, NULL, UNIT_TIME / 1000,
                                            take_key, &sum));
    return sum;
}


static void
test_feed(void **state)
{
    unit_store_t         *u = *state;
    ngx_modelgw_feed_t    feed[4];
    ngx_modelgw_store_t  *s;

    s = journal_open(u, UNIT_ID);

    /* an account is known with or without a key */

    feed[0] = feed_account("open", 0);
    feed[1] = feed_account("closed", 1);
    feed[2] = feed_key("k", 1, NGX_MODELGW_KEY_ACTIVE, 1);
    put_feed(s, feed, 3);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM accounts"), 3);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM accounts"
                                 " WHERE state = 'closed' AND name = 'closed'"),
                     1);
    assert_int_equal(states(s), 1);
    unit_audit(u);

    /* rotated with grace: two digests */

    feed[0] = feed_key("k", 1, NGX_MODELGW_KEY_ROTATED, 2);
    feed[1] = feed_key("k", 2, NGX_MODELGW_KEY_ACTIVE, 2);
    feed[2] = feed_account("closed", 0);
    put_feed(s, feed, 3);

    assert_int_equal(states(s), 12);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM accounts"
                                 " WHERE state = 'closed'"), 0);

    /* again, without; and another key */

    feed[0] = feed_key("k", 1, NGX_MODELGW_KEY_REVOKED, 2);
    feed[1] = feed_key("k", 2, NGX_MODELGW_KEY_REVOKED, 3);
    feed[2] = feed_key("k", 3, NGX_MODELGW_KEY_ACTIVE, 3);
    feed[3] = feed_key("l", 4, NGX_MODELGW_KEY_REVOKED, 9);

    assert_int_equal(ngx_modelgw_feed_rows(feed, 4), 3);
    assert_int_equal(ngx_modelgw_feed_rows(feed, 2), 2);
    assert_int_equal(ngx_modelgw_feed_rows(&feed[3], 1), 1);

    put_feed(s, feed, 3);
    assert_int_equal(states(s), 133);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM keys"
                                 " WHERE state = 'replaced'"), 2);

    /* revoked: the newest one tells so, to operators, too */

    feed[0] = feed_key("k", 1, NGX_MODELGW_KEY_REVOKED, 2);
    feed[1] = feed_key("k", 3, NGX_MODELGW_KEY_REVOKED, 4);
    feed[2] = feed_key("k", 2, NGX_MODELGW_KEY_REVOKED, 3);
    put_feed(s, feed, 3);

    assert_int_equal(states(s), 333);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM keys"
                                 " WHERE state = 'revoked'"), 1);
    assert_int_equal(unit_sql(u, "SELECT hex(digest) LIKE '03%' FROM keys"
                                 " WHERE state = 'revoked'"), 1);

    ngx_modelgw_store_close(s);
}


static ngx_uint_t
trim(ngx_modelgw_store_t *s, uint64_t now, ngx_uint_t max)
{
    ngx_uint_t  n;

    unit_store_ok(s, ngx_modelgw_journal_trim(s, now - NGX_MODELGW_JOURNAL_KEEP,
                                              max, &n));
    return n;
}


static ngx_uint_t
roll_up(ngx_modelgw_store_t *s)
{
    ngx_uint_t  n;

    unit_store_ok(s, ngx_modelgw_store_roll_up(s, UNIT_TIME / 1000 + 30 * 86400,
                                               100, &n));
    return n;
}


static void
acknowledge(ngx_modelgw_store_t *s, uint64_t pos)
{
    ngx_modelgw_journal_t  j;

    unit_store_ok(s, ngx_modelgw_journal_read(s, &j));
    j.pos = pos;

    unit_begin(s);
    unit_store_ok(s, ngx_modelgw_journal_set(s, &j));
    unit_commit(s);
}


/* what is not acknowledged is kept, and what is, for a time */

static void
test_trim(void **state)
{
    uint64_t              now, end;
    ngx_uint_t            i;
    unit_store_t         *u = *state;
    ngx_modelgw_store_t  *s;

    s = journal_open(u, UNIT_ID);

    unit_begin(s);
    unit_put_account(s, "acme", 0);

    /* positions come by batches */

    for (i = 0; i < 10; i++) {
        put_call(s, 10 + i, 1);

        if (i % 2) {
            unit_commit(s);
            unit_begin(s);
        }
    }

    put_lease(s, "#k/day/1793491200000", 5, 0, 0);
    put_lease(s, "#k/total/0", 5, 0, 0);
    unit_commit(s);

    now = UNIT_TIME / 1000 + 40 * 86400;

    assert_int_equal(trim(s, now, 100), 0);
    assert_int_equal(roll_up(s), 0);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM acknowledged"), 1);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM leases"), 2);

    acknowledge(s, 6);

    /* noted once an hour; nothing is old enough */

    assert_int_equal(trim(s, now + 10, 100), 0);
    assert_int_equal(trim(s, now + 3600, 100), 0);
    assert_int_equal(trim(s, now + 3610, 100), 0);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM acknowledged"), 2);
    assert_int_equal(trim(s, now + 3599 + NGX_MODELGW_JOURNAL_KEEP, 100), 0);
    assert_int_equal(roll_up(s), 0);

    /* in steps */

    now += 3600 + NGX_MODELGW_JOURNAL_KEEP;

    assert_int_equal(trim(s, now, 2), 2);
    assert_int_equal(roll_up(s), 4);
    assert_int_equal(trim(s, now, 2), 1);
    assert_int_equal(trim(s, now, 2), 0);
    assert_int_equal(roll_up(s), 2);
    assert_int_equal(roll_up(s), 0);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"), 4);
    assert_int_equal(unit_sql(u, "SELECT sum(calls) FROM days"), 6);
    unit_audit(u);

    /* a database that was set back gets the rest again */

    acknowledge(s, 10);

    assert_int_equal(trim(s, now + 3600, 100), 0);

    acknowledge(s, 8);

    now += 3600 + NGX_MODELGW_JOURNAL_KEEP;

    assert_int_equal(trim(s, now, 100), 1);
    assert_int_equal(unit_sql(u, "SELECT min(pos) FROM outbox"), 10);

    /* the newest row is not deleted, so its position is not used again */

    acknowledge(s, 10);

    assert_int_equal(trim(s, now, 100), 0);
    unit_store_ok(s, ngx_modelgw_journal_end(s, &end));
    assert_int_equal(end, 10);

    unit_begin(s);
    put_call(s, 30, 1);
    unit_commit(s);

    assert_int_equal(trim(s, now, 100), 1);
    assert_int_equal(unit_sql(u, "SELECT pos FROM outbox"), 11);

    /* budgets whose windows are long over */

    assert_int_equal(trim(s, now + 62 * 86400, 100), 0);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM leases"), 1);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM leases"
                                 " WHERE account = '#k/total/0'"), 1);

    ngx_modelgw_store_close(s);
    unit_audit(u);
}


#define BLOCK  65536                     /* positions, see "lowest" */


/* ids that do not grow with positions, over the end of a block */

static void
test_lowest(void **state)
{
    uint64_t              now;
    ngx_uint_t            i, n;
    unit_store_t         *u = *state;
    ngx_modelgw_store_t  *s;

    static const struct {
        ngx_uint_t  calls[4];
        uint64_t    last;                /* position */
    } rows[] = {
        { { 20, 21 }, 2 },
        { { 40 }, BLOCK - 2 },
        { { 30, 31, 32 }, BLOCK + 1 },
        { { 10 }, BLOCK + 2 },
        { { 50 }, BLOCK + 3 },
    };

    now = UNIT_TIME / 1000 + 40 * 86400;

    s = journal_open(u, UNIT_ID);

    for (i = 0; i < 5; i++) {
        unit_begin(s);
        unit_put_account(s, "acme", 0);

        for (n = 0; n < 4 && rows[i].calls[n]; n++) {
            put_call(s, rows[i].calls[n], 1);
        }

        unit_commit(s);

        if (i == 1) {
            unit_write_sql(u, "UPDATE outbox SET pos = 65534 WHERE pos = 3");
        }

        assert_int_equal(unit_sql(u, "SELECT max(pos) FROM outbox"),
                         rows[i].last);
        assert_int_equal(unit_sql(u, "SELECT count(*) FROM lowest"), i > 1);
    }

    assert_int_equal(unit_sql(u, "SELECT pos FROM lowest"), BLOCK + 1);
    assert_int_equal(unit_sql(u, "SELECT first FROM lowest"), 20);

    acknowledge(s, BLOCK + 1);
    assert_int_equal(trim(s, now, 100), 0);
    assert_int_equal(roll_up(s), 0);

    /* it counts as long as one of its rows is there, and then later ones */

    now += NGX_MODELGW_JOURNAL_KEEP + 1;

    assert_int_equal(trim(s, now, 2), 2);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM lowest"), 1);
    assert_int_equal(trim(s, now, 2), 1);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM lowest"), 0);
    assert_int_equal(roll_up(s), 0);

    acknowledge(s, BLOCK + 3);
    now += NGX_MODELGW_JOURNAL_KEEP + 3600;

    assert_int_equal(trim(s, now, 100), 0);
    now += NGX_MODELGW_JOURNAL_KEEP + 3600;
    assert_int_equal(trim(s, now, 100), 1);
    assert_int_equal(roll_up(s), 7);

    ngx_modelgw_store_close(s);
    unit_audit(u);
}


static ngx_int_t
topups_row(void *data, ngx_modelgw_journal_topup_t *topup)
{
    char  **p = data;

    *p += sprintf(*p, "%.*s %.*s %ld %ld %.*s;", (int) topup->id.len,
                  topup->id.data, (int) topup->account.len, topup->account.data,
                  (long) topup->amount, (long) (topup->time - UNIT_TIME),
                  (int) topup->reason.len, topup->reason.data);

    return NGX_OK;
}


static char *
topups(ngx_modelgw_store_t *s, uint64_t time, ngx_uint_t max)
{
    char         *p;
    static char   text[1024];

    p = text;
    *p = '\0';

    unit_store_ok(s, ngx_modelgw_journal_topups(s, time, max, topups_row, &p));

    return text;
}


static ngx_modelgw_change_t
topup(ngx_modelgw_change_kind_e kind, const char *id, int64_t amount,
    uint64_t time)
{
    ngx_modelgw_change_t  change;

    memset(&change, 0, sizeof(change));

    change.kind = kind;
    change.id.len = strlen(id);
    memcpy(change.id.data, id, change.id.len);
    change.owner.len = 4;
    memcpy(change.owner.data, "acme", 4);
    change.note_len = 3;
    memcpy(change.note, "why", 3);
    change.amount = amount;
    change.time = UNIT_TIME + time;

    return change;
}


/* they are told as they were taken, once, and do not count */

static void
test_topups(void **state)
{
    ngx_uint_t             i;
    unit_store_t          *u = *state;
    ngx_modelgw_store_t   *s;

    ngx_modelgw_change_t  changes[] = {
        topup(NGX_MODELGW_CHANGE_TOPUP, "b", 5, 2),
        topup(NGX_MODELGW_CHANGE_ACCOUNT_NEW, "", 7, 1),
        topup(NGX_MODELGW_CHANGE_TOPUP, "a", -1, 1000),
        topup(NGX_MODELGW_CHANGE_TOPUP, "b", 6, 3)
    };

    s = journal_open(u, UNIT_ID);
    assert_string_equal(topups(s, 0, 10), "");

    unit_begin(s);
    unit_put_account(s, "acme", 0);

    for (i = 0; i < 4; i++) {
        unit_store_ok(s, ngx_modelgw_journal_topup(s, &changes[i]));
    }

    unit_commit(s);

    assert_string_equal(topups(s, 0, 10), "founding:acme acme 7 1 ;"
                                          "b acme 5 2 why;a acme -1 1000 why;");
    assert_string_equal(topups(s, 0, 1), "founding:acme acme 7 1 ;");
    assert_string_equal(topups(s, UNIT_TIME + 1, 1), "b acme 5 2 why;");
    assert_string_equal(topups(s, UNIT_TIME + 1000, 1), "");

    assert_int_equal(unit_sql(u, "SELECT balance FROM accounts"), 0);
    unit_audit(u);

    /* for a while */

    trim(s, UNIT_TIME / 1000 + NGX_MODELGW_JOURNAL_KEEP, 10);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM topups"), 3);

    trim(s, UNIT_TIME / 1000 + NGX_MODELGW_JOURNAL_KEEP + 1, 10);
    assert_string_equal(topups(s, 0, 10), "a acme -1 1000 why;");

    ngx_modelgw_store_close(s);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_store_case(test_new),
        unit_store_case(test_kinds),
        unit_store_case(test_outbox),
        unit_store_case(test_leases),
        unit_store_case(test_feed),
        unit_store_case(test_trim),
        unit_store_case(test_lowest),
        unit_store_case(test_topups)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
