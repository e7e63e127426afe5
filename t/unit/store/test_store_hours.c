
/*
 * The sums by hour: what usage answers does not depend on how many calls are in
 * them, and neither do pages of calls, CSV, one call, and a file of version 1.
 */


#include "unit_store.h"

#include "ngx_modelgw_store_sums.h"

#include <sys/wait.h>
#include <signal.h>


#define DAYS   3
#define CALLS  600

/* midnight, UTC */

#define MIDNIGHT  (UNIT_TIME / UNIT_DAY * UNIT_DAY)
#define HOUR      3600000ULL


static ngx_modelgw_store_error_t  error;


static ngx_modelgw_store_by_t  bys[] = {
    { 1, { NGX_MODELGW_BY_HOUR, 0 } },
    { 1, { NGX_MODELGW_BY_DAY, 0 } },
    { 1, { NGX_MODELGW_BY_MONTH, 0 } },
    { 1, { NGX_MODELGW_BY_KEY, 0 } },
    { 1, { NGX_MODELGW_BY_MODEL, 0 } },
    { 1, { NGX_MODELGW_BY_ACCOUNT, 0 } },
    { 2, { NGX_MODELGW_BY_ACCOUNT, NGX_MODELGW_BY_DAY } },
    { 2, { NGX_MODELGW_BY_HOUR, NGX_MODELGW_BY_KEY } },
    { 2, { NGX_MODELGW_BY_KEY, NGX_MODELGW_BY_MODEL } }
};

#define BYS  (sizeof(bys) / sizeof(bys[0]))


/* spans that end in hours, at their ends, and without a whole hour */

static struct {
    uint64_t  from;
    uint64_t  to;
} spans[] = {
    { 0, 0 },
    { MIDNIGHT, MIDNIGHT + UNIT_DAY },
    { MIDNIGHT + 5 * HOUR, MIDNIGHT + 31 * HOUR },
    { MIDNIGHT + 5 * HOUR + 1, MIDNIGHT + 31 * HOUR - 1 },
    { MIDNIGHT + 30 * 60000, MIDNIGHT + 2 * UNIT_DAY + 1 },
    { MIDNIGHT + 7 * HOUR + 1000, MIDNIGHT + 7 * HOUR + 1800000 },
    { MIDNIGHT + 7 * HOUR + 1800000, MIDNIGHT + 8 * HOUR + 1800000 },
    { MIDNIGHT + UNIT_DAY, 0 }
};

#define SPANS  (sizeof(spans) / sizeof(spans[0]))


/* calls in a random order, at random times, some of them on the hour */

static void
put_calls(ngx_modelgw_store_t *s, int first, int last)
{
    int                  i;
    char                 key[16], account[16];
    ngx_modelgw_call_t   call;

    unit_begin(s);

    for (i = first; i < last; i++) {
        sprintf(key, "key-%d", rand() % 5);
        sprintf(account, "account-%d", rand() % 3);

        call = unit_call(i + 1, key, rand() % 1000);
        call.model_len -= rand() % 2;
        call.ended = MIDNIGHT + rand() % DAYS * UNIT_DAY + rand() % UNIT_DAY;

        if (rand() % 3 == 0) {
            call.ended -= call.ended % HOUR;
        }

        call.started = call.ended - rand() % 1000;

        if (rand() % 2) {
            call.first_byte = NGX_MODELGW_LEDGER_NONE;
        }

        call.seen.status = (rand() % 4) ? 200 : 429;
        call.charge.tokens.input = rand() % 100;
        unit_put_call(s, &call, account);
    }

    unit_commit(s);
}


static void
put_accounts(ngx_modelgw_store_t *s)
{
    unit_begin(s);
    unit_put_account(s, "account-0", 1000000000);
    unit_put_account(s, "account-1", 1000000000);
    unit_put_account(s, "account-2", 1000000000);
    unit_commit(s);
}


/* all usages, as one text */

static ngx_str_t
usages(unit_store_t *u)
{
    size_t                       i, j;
    ngx_str_t                    out, all;
    ngx_modelgw_store_t         *s;
    ngx_modelgw_store_filter_t   f;

    s = ngx_modelgw_store_open_read(u->path, NULL, &error);
    assert_non_null(s);

    all.len = 0;
    all.data = ngx_palloc(u->pool, BYS * SPANS * 2 * 100000);
    assert_non_null(all.data);

    for (i = 0; i < BYS * SPANS * 2; i++) {
        j = i / 2;

        memset(&f, 0, sizeof(f));
        f.limit = 500;
        f.now = MIDNIGHT + DAYS * UNIT_DAY;
        f.from = spans[j / BYS].from;
        f.to = spans[j / BYS].to;

        if (i % 2) {
            ngx_str_set(&f.key, "key-1");
        }

        unit_store_ok(s, ngx_modelgw_store_usage(s, &bys[j % BYS], &f, &out,
                                                 u->pool));
        memcpy(all.data + all.len, out.data, out.len);
        all.len += out.len;
    }

    ngx_modelgw_store_close(s);

    return all;
}


/* what _spent() gives is that of the calls themselves */

typedef struct {
    unit_store_t  *unit;
    const char    *name;                 /* of the column */
    uint64_t       start;
    int64_t        n;
} spent_t;


static ngx_int_t
spent_by(void *data, ngx_str_t *name, int64_t sum, uint64_t last)
{
    char      sql[256];
    spent_t  *spent = data;

    spent->n++;

    sprintf(sql, "SELECT sum(cost) FROM calls WHERE %s = '%.*s' AND ended >="
                 " %llu", spent->name, (int) name->len, name->data,
            (unsigned long long) spent->start);
    assert_int_equal(sum, unit_sql(spent->unit, sql));

    sprintf(sql, "SELECT max(ended) / 3600000 * 3600000 FROM calls"
                 " WHERE %s = '%.*s'", spent->name, (int) name->len,
            name->data);
    assert_int_equal(last, unit_sql(spent->unit, sql));

    return NGX_OK;
}


static void
spent_as_called(unit_store_t *u)
{
    char                  sql[128];
    size_t                i, j;
    spent_t               spent;
    ngx_modelgw_store_t  *s;

    s = ngx_modelgw_store_open_read(u->path, NULL, &error);
    assert_non_null(s);

    spent.unit = u;

    for (i = 0; i < SPANS; i++) {
        for (j = 0; j < 2; j++) {
            spent.name = j ? "account" : "key";
            spent.start = spans[i].from;
            spent.n = 0;

            unit_store_ok(s, ngx_modelgw_store_spent(s,
                                              j ? NGX_MODELGW_BY_ACCOUNT
                                                : NGX_MODELGW_BY_KEY, NULL,
                                              spent.start, spent_by, &spent));

            sprintf(sql, "SELECT count(DISTINCT %s) FROM calls"
                         " WHERE ended >= %llu", spent.name,
                    (unsigned long long) spent.start);
            assert_int_equal(spent.n, unit_sql(u, sql));
            assert_true(spent.n > 0);
        }
    }

    ngx_modelgw_store_close(s);
}


static void
same_usages(unit_store_t *u, ngx_str_t *before)
{
    ngx_str_t  now;

    now = usages(u);
    assert_int_equal(now.len, before->len);
    assert_memory_equal(now.data, before->data, now.len);
    unit_audit(u);
}


static ngx_uint_t
hours(ngx_modelgw_store_t *s, uint64_t time, ngx_uint_t max)
{
    ngx_uint_t  n;

    n = 4711;
    unit_store_ok(s, ngx_modelgw_store_hours(s, time / 1000, max, &n));

    return n;
}


/* steps of any size, with calls that are written behind the mark */

static void
test_usage(void **state)
{
    int                   i, late;
    ngx_str_t             before;
    ngx_uint_t            n;
    unit_store_t         *u = *state;
    ngx_modelgw_store_t  *s;

    srand(1);

    s = unit_open(u);
    put_accounts(s);
    put_calls(s, 0, CALLS);
    before = usages(u);

    late = 0;

    for (i = 0; i <= DAYS * 24; i++) {

        do {
            n = hours(s, MIDNIGHT + i * HOUR, 7);
            assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"
                                         " WHERE ended < (SELECT value"
                                         " FROM marks)"),
                             unit_sql(u, "SELECT sum(calls) FROM hours"));
        } while (n >= 7);

        if (i % 6 == 0) {
            same_usages(u, &before);
            spent_as_called(u);

            put_calls(s, CALLS + late, CALLS + late + 10);
            late += 10;
            before = usages(u);
        }

        /* a writer that starts again knows the mark */

        if (i % 10 == 0) {
            ngx_modelgw_store_close(s);
            s = unit_open(u);
        }
    }

    assert_int_equal(unit_sql(u, "SELECT sum(calls) FROM hours"),
                     CALLS + late);

    /* a clock that is set back */

    assert_int_equal(hours(s, MIDNIGHT, 7), 0);
    same_usages(u, &before);

    ngx_modelgw_store_close(s);
}


/* all that is in "hours" is what SQLite says of the calls before the mark */

static void
sums_as_called(unit_store_t *u)
{
    assert_int_equal(unit_sql(u,
        "SELECT count(*) FROM (SELECT ended / 3600000, account, key, model,"
        NGX_MODELGW_STORE_SUMS_OF_CALLS "FROM calls WHERE ended < (SELECT value"
        " FROM marks) GROUP BY 1, 2, 3, 4 EXCEPT SELECT hour, account, key,"
        " model," NGX_MODELGW_STORE_SUMS "FROM hours)"), 0);

    assert_int_equal(unit_sql(u, "SELECT coalesce(sum(calls), 0) FROM hours"),
                     unit_sql(u, "SELECT count(*) FROM calls WHERE ended <"
                                 " (SELECT value FROM marks)"));
    unit_audit(u);
}


/* each with other numbers, some without a first byte, some errors */

static ngx_modelgw_call_t
counted_call(int i, int keys)
{
    char                key[16];
    ngx_modelgw_call_t  call;

    sprintf(key, "key-%d", i * 7 % keys);

    call = unit_call(i + 1, key, i);
    call.model_len -= i % 2;
    call.first_byte = (i % 3) ? (uint32_t) i : NGX_MODELGW_LEDGER_NONE;
    call.seen.status = (i % 5) ? 200 : 500;
    call.charge.tokens.input = i + 1;
    call.charge.tokens.cache_read = i + 2;
    call.charge.tokens.cache_write = i + 3;
    call.charge.tokens.cache_write_1h = i + 4;
    call.charge.tokens.output = i + 5;
    call.charge.tokens.reasoning = i + 6;

    return call;
}


/*
 * Calls that are read: of more keys than are summed up at a time, and more in a
 * millisecond than a step should take.
 */

static void
test_sums(void **state)
{
    int                   i;
    unit_store_t         *u = *state;
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s;

    s = unit_open(u);
    put_accounts(s);
    unit_begin(s);

    for (i = 0; i <= 3000; i++) {
        call = counted_call(i, 2000);
        call.ended = MIDNIGHT + ((i < 1500) ? HOUR : i * 1000ULL);

        if (i == 3000) {
            call.ended = MIDNIGHT + HOUR + 5;
        }

        call.started = MIDNIGHT + i % 100;
        unit_put_call(s, &call, (i % 2) ? "account-1" : "account-0");
    }

    unit_commit(s);
    ngx_modelgw_store_close(s);

    s = unit_open(u);

    assert_int_equal(hours(s, MIDNIGHT + 1600000, 1000), 100);
    sums_as_called(u);

    /* 1,400, then 1,500 in one millisecond, then one */

    assert_int_equal(hours(s, MIDNIGHT + UNIT_DAY, 1405), 2900);
    assert_int_equal(unit_sql(u, "SELECT value FROM marks"),
                     MIDNIGHT + HOUR + 5);
    sums_as_called(u);

    assert_int_equal(hours(s, MIDNIGHT + UNIT_DAY, 1405), 1);
    assert_int_equal(unit_sql(u, "SELECT value FROM marks"),
                     MIDNIGHT + UNIT_DAY);
    sums_as_called(u);

    ngx_modelgw_store_close(s);
}


/*
 * Calls that are summed up as they are written: used if they are all of their
 * window, whatever is written late or twice, with a clock that is set, more
 * keys than there is room for, or a writer that starts again.
 */

static void
test_noted(void **state)
{
    int                   i, round, used, last;
    uint64_t              now;
    ngx_uint_t            n;
    unit_store_t         *u = *state;
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s;

    srand(4);

    s = unit_open(u);
    put_accounts(s);

    now = MIDNIGHT + HOUR - 300 * 1000;
    used = 0;
    last = 0;

    for (round = 0; round < 250; round++) {
        unit_begin(s);

        for (i = rand() % 40 + ((round % 50) ? 0 : 1100); i > 0; i--) {
            call = counted_call((rand() % 50) ? last++ : rand() % (last + 1),
                                (round % 50) ? 10 : 3000);
            call.ended = now - rand() % 1000;

            if (rand() % 500 == 0) {
                call.ended += rand() % 120000 - 60000;
            }

            call.started = call.ended - rand() % 500;
            unit_put_call(s, &call, "account-1");
        }

        unit_commit(s);

        now += rand() % 4000;

        if (rand() % 30 == 0) {
            ngx_modelgw_store_close(s);
            s = unit_open(u);
        }

        if (rand() % 4) {
            continue;
        }

        do {
            n = hours(s, now - 2000, 5);

            /* calls that are read are 5, or some more in one millisecond */

            used += (n > 10);

        } while (n >= 5);

        sums_as_called(u);
    }

    assert_true(used > 20);

    ngx_modelgw_store_close(s);
}


/* a mark inside of a window, and as many calls after it as in the window */

static void
test_noted_in_part(void **state)
{
    int                   i;
    unit_store_t         *u = *state;
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s;

    s = unit_open(u);
    put_accounts(s);
    unit_begin(s);

    for (i = 0; i < 3; i++) {
        call = counted_call(i, 10);
        call.ended = MIDNIGHT + i * 1300;
        call.started = call.ended;
        unit_put_call(s, &call, "account-1");
    }

    unit_commit(s);

    for (i = 0; i < 3; i++) {
        (void) hours(s, MIDNIGHT + 30000, 1);
        sums_as_called(u);
    }

    assert_int_equal(unit_sql(u, "SELECT sum(calls) FROM hours"), 3);
    ngx_modelgw_store_close(s);
}


static ngx_int_t
spent_sum(void *data, ngx_str_t *name, int64_t cost, uint64_t last)
{
    int64_t *sum = data;

    *sum += cost;

    return NGX_OK;
}


/* ends of a zone's day: times of UTC, and days and months of the zone */

static struct {
    int          zone;                   /* hours */
    uint64_t     ended;
    const char  *by_day;
    const char  *by_month;
} borders[] = {

    /* 2026-11-22, 00:00 is MIDNIGHT */

    { 0, MIDNIGHT - 1, "2026-11-21", "2026-11" },
    { 0, MIDNIGHT, "2026-11-22", "2026-11" },
    { 2, MIDNIGHT - 2 * HOUR - 1, "2026-11-21", "2026-11" },
    { 2, MIDNIGHT - 2 * HOUR, "2026-11-22", "2026-11" },
    { 2, MIDNIGHT + 22 * HOUR - 1, "2026-11-22", "2026-11" },
    { 2, MIDNIGHT + 22 * HOUR, "2026-11-23", "2026-11" },
    { -5, MIDNIGHT + 5 * HOUR - 1, "2026-11-21", "2026-11" },
    { -5, MIDNIGHT + 5 * HOUR, "2026-11-22", "2026-11" },
    { 14, MIDNIGHT + 10 * HOUR - 1, "2026-11-22", "2026-11" },
    { 14, MIDNIGHT + 10 * HOUR, "2026-11-23", "2026-11" },
    { -12, MIDNIGHT + 12 * HOUR - 1, "2026-11-21", "2026-11" },
    { -12, MIDNIGHT + 12 * HOUR, "2026-11-22", "2026-11" },

    /* 2026-12-01, and 2027-01-01 */

    { 2, MIDNIGHT + 9 * UNIT_DAY - 2 * HOUR - 1, "2026-11-30", "2026-11" },
    { 2, MIDNIGHT + 9 * UNIT_DAY - 2 * HOUR, "2026-12-01", "2026-12" },
    { -5, MIDNIGHT + 9 * UNIT_DAY + 5 * HOUR - 1, "2026-11-30", "2026-11" },
    { -5, MIDNIGHT + 9 * UNIT_DAY + 5 * HOUR, "2026-12-01", "2026-12" },
    { 14, MIDNIGHT + 40 * UNIT_DAY - 14 * HOUR - 1, "2026-12-31", "2026-12" },
    { 14, MIDNIGHT + 40 * UNIT_DAY - 14 * HOUR, "2027-01-01", "2027-01" }
};

#define BORDERS  (sizeof(borders) / sizeof(borders[0]))


/* the first member of the answer's only row */

static void
one_row(ngx_modelgw_store_t *s, unit_store_t *u, ngx_modelgw_store_by_t *by,
    ngx_modelgw_store_filter_t *f, const char *name, const char *value)
{
    char       expected[64];
    ngx_str_t  out;

    unit_store_ok(s, ngx_modelgw_store_usage(s, by, f, &out, u->pool));

    sprintf(expected, "{\"usage\":[{\"%s\":\"%s\",\"calls\":1,", name, value);

    assert_true(out.len > strlen(expected));
    assert_memory_equal(out.data, expected, strlen(expected));
    assert_null(memmem(out.data, out.len, "},{", 3));
}


/* from "calls" and from "hours" */

static void
test_borders(void **state)
{
    size_t                       i;
    unit_store_t                *u = *state;
    ngx_modelgw_call_t           call;
    ngx_modelgw_store_t         *s;
    ngx_modelgw_store_filter_t   f;

    s = unit_open(u);
    put_accounts(s);

    for (i = 0; i < 2 * BORDERS; i++) {

        if (i == BORDERS) {
            assert_int_equal(hours(s, MIDNIGHT + 50 * UNIT_DAY, 1000),
                             BORDERS);
        }

        memset(&f, 0, sizeof(f));
        f.limit = 10;
        f.zone = borders[i % BORDERS].zone * (int64_t) HOUR;

        if (i < BORDERS) {
            call = unit_call(i + 1, "key-1", 10);
            call.ended = borders[i].ended;
            call.model[0] = 'A' + i;

            unit_begin(s);
            unit_put_call(s, &call, "account-1");
            unit_commit(s);
        }

        call.model[0] = 'A' + i % BORDERS;
        f.model.data = call.model;
        f.model.len = call.model_len;

        one_row(s, u, &bys[1], &f, "day", borders[i % BORDERS].by_day);
        one_row(s, u, &bys[2], &f, "month", borders[i % BORDERS].by_month);

        /* a series to now */

        f.now = borders[i % BORDERS].ended;
        f.from = f.now;

        one_row(s, u, &bys[1], &f, "day", borders[i % BORDERS].by_day);
        one_row(s, u, &bys[2], &f, "month", borders[i % BORDERS].by_month);
    }

    ngx_modelgw_store_close(s);
}


/* what SQLite says of a day */

static int64_t
day_sql(unit_store_t *u, const char *sum, const char *day, int64_t zone)
{
    char  sql[256];

    sprintf(sql, "SELECT coalesce(%s, 0) FROM calls"
            " WHERE date((ended + %lld) / 1000, 'unixepoch') = '%.10s'",
            sum, (long long) zone, day);

    return unit_sql(u, sql);
}


/* all days of all zones, without gaps, however many calls are in "hours" */

static void
test_zones(void **state)
{
    int                          zone, steps;
    char                        *p;
    int64_t                      calls, all;
    ngx_str_t                    out;
    ngx_uint_t                   days;
    unit_store_t                *u = *state;
    ngx_modelgw_store_t         *s;
    ngx_modelgw_store_filter_t   f;

    srand(3);

    s = unit_open(u);
    put_accounts(s);
    put_calls(s, 0, CALLS);

    for (steps = 0; steps < 3; steps++) {

        (void) hours(s, MIDNIGHT + (steps * 36 + 1) * HOUR, CALLS);

        for (zone = -12; zone <= 14; zone++) {

            memset(&f, 0, sizeof(f));
            f.limit = 100;
            f.zone = zone * (int64_t) HOUR;
            f.from = MIDNIGHT - UNIT_DAY - f.zone;
            f.now = MIDNIGHT + (DAYS + 1) * UNIT_DAY - f.zone;

            unit_store_ok(s, ngx_modelgw_store_usage(s, &bys[1], &f, &out,
                                                     u->pool));
            out.data[out.len - 1] = '\0';

            all = 0;
            days = 0;
            p = (char *) out.data;

            while ((p = strstr(p, "\"day\":\"")) != NULL) {
                p += sizeof("\"day\":\"") - 1;

                calls = strtoll(p + sizeof("2026-11-22\",\"calls\":") - 1,
                                NULL, 10);

                assert_int_equal(calls, day_sql(u, "count(*)", p, f.zone));
                assert_int_equal(strtoll(strstr(p, "\"input_tokens\":") + 15,
                                         NULL, 10),
                                 day_sql(u, "sum(input)", p, f.zone));
                all += calls;
                days++;
            }

            assert_int_equal(all, CALLS);
            assert_int_equal(days, DAYS + 3);
            assert_memory_equal(out.data, "{\"usage\":[{\"day\":\"2026-11-26",
                                27);
        }
    }

    ngx_modelgw_store_close(s);
}


/* a day that was rolled up is of UTC, and of the day of its name elsewhere */

static void
test_zones_of_days(void **state)
{
    int                          i;
    ngx_uint_t                   n;
    unit_store_t                *u = *state;
    ngx_modelgw_call_t           call;
    ngx_modelgw_store_t         *s;
    ngx_modelgw_store_filter_t   f;

    static const int64_t  zones[] = { 0, -5, 2, 14, -12 };

    s = unit_open(u);
    put_accounts(s);

    call = unit_call(1, "key-1", 10);
    call.ended = MIDNIGHT + 3 * HOUR;

    unit_begin(s);
    unit_put_call(s, &call, "account-1");
    unit_commit(s);

    unit_store_ok(s, ngx_modelgw_store_roll_up(s, (MIDNIGHT + UNIT_DAY) / 1000,
                                               10, &n));
    assert_int_equal(n, 1);

    for (i = 0; i < 5; i++) {

        memset(&f, 0, sizeof(f));
        f.limit = 10;
        f.zone = zones[i] * (int64_t) HOUR;

        one_row(s, u, &bys[1], &f, "day", "2026-11-22");
        one_row(s, u, &bys[2], &f, "month", "2026-11");

        f.from = MIDNIGHT - f.zone;
        f.to = f.from + UNIT_DAY;
        f.now = f.to;
        one_row(s, u, &bys[1], &f, "day", "2026-11-22");
        one_row(s, u, &bys[3], &f, "key", "key-1");
    }

    ngx_modelgw_store_close(s);
}


/* days are rolled up with and without their hours */

static void
test_days(void **state)
{
    int64_t               sum;
    ngx_uint_t            n;
    unit_store_t         *u = *state;
    ngx_modelgw_store_t  *s;

    srand(2);

    s = unit_open(u);
    put_accounts(s);
    put_calls(s, 0, CALLS);
    (void) hours(s, MIDNIGHT + UNIT_DAY + 5 * HOUR, CALLS);

    do {
        unit_store_ok(s, ngx_modelgw_store_roll_up(s,
                               (MIDNIGHT + 2 * UNIT_DAY) / 1000, 50, &n));
        unit_audit(u);
    } while (n == 50);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM hours"), 0);
    assert_int_equal(unit_sql(u, "SELECT (SELECT sum(calls) FROM days)"
                                 " + (SELECT count(*) FROM calls)"), CALLS);

    /* a day counts at its first millisecond */

    for (n = 0; n < 2; n++) {
        sum = 0;
        unit_store_ok(s, ngx_modelgw_store_spent(s, NGX_MODELGW_BY_ACCOUNT,
                                                 NULL, MIDNIGHT + n, spent_sum,
                                                 &sum));
        assert_int_equal(sum, unit_sql(u, n
                              ? "SELECT (SELECT sum(cost) FROM calls) + sum("
                                "cost) FROM days WHERE day > '2026-11-22'"
                              : "SELECT (SELECT sum(cost) FROM calls) + sum("
                                "cost) FROM days"));
    }

    (void) hours(s, MIDNIGHT + DAYS * UNIT_DAY, CALLS);
    assert_int_equal(unit_sql(u, "SELECT sum(calls) FROM hours"),
                     unit_sql(u, "SELECT count(*) FROM calls"));
    unit_audit(u);
    ngx_modelgw_store_close(s);
}


/* a trigger that leaves out what is summed up: it refuses, and all stays */

static void
test_left_out(void **state)
{
    size_t                i;
    ngx_uint_t            n;
    unit_store_t         *u = *state;
    ngx_modelgw_store_t  *s;

    static const char  *triggers[] = {
        "CREATE TRIGGER t BEFORE INSERT ON hours BEGIN SELECT RAISE(IGNORE);"
            " END",
        "CREATE TRIGGER t BEFORE INSERT ON marks BEGIN SELECT RAISE(IGNORE);"
            " END"
    };

    srand(3);

    s = unit_open(u);
    put_accounts(s);
    put_calls(s, 0, 50);
    ngx_modelgw_store_close(s);

    for (i = 0; i < 2; i++) {
        unit_write_sql(u, triggers[i]);

        s = unit_open(u);
        assert_int_equal(ngx_modelgw_store_hours(s,
                                     (MIDNIGHT + UNIT_DAY) / 1000, 10, &n),
                         NGX_ERROR);
        ngx_modelgw_store_error(s, &error);
        unit_error_has(&error, i ? "the mark of hours was not set"
                                 : "hours were not updated");
        ngx_modelgw_store_close(s);

        assert_int_equal(unit_sql(u, "SELECT count(*) FROM hours"), 0);
        unit_audit(u);
        unit_write_sql(u, "DROP TRIGGER t");
    }
}


/* a call that is lost ends above the mark, whatever the clock says */

static void
test_recover(void **state)
{
    int64_t               charged;
    ngx_uint_t            n;
    unit_store_t         *u = *state;
    ngx_modelgw_call_t    call;
    ngx_modelgw_store_t  *s;

    s = unit_open(u);
    put_accounts(s);
    put_calls(s, 0, 50);
    (void) hours(s, MIDNIGHT + DAYS * UNIT_DAY, 100);

    unit_begin(s);
    call = unit_call(1000, "key-1", 10);
    unit_put_hold(s, &call, "account-1");
    unit_commit(s);

    unit_store_ok(s, ngx_modelgw_store_recover(s, MIDNIGHT, &n, &charged));
    assert_int_equal(n, 1);
    assert_int_equal(unit_sql(u, "SELECT ended FROM calls WHERE id = 1000"),
                     unit_sql(u, "SELECT value FROM marks"));
    unit_audit(u);
    ngx_modelgw_store_close(s);
}


/* times without calls, from the beginning of the span to now or its end */

static void
test_series(void **state)
{
    char                         expected[2048];
    ngx_str_t                    out;
    unit_store_t                *u = *state;
    ngx_modelgw_call_t           call;
    ngx_modelgw_store_t         *s;
    ngx_modelgw_store_filter_t   f;

    static const char  *none = "\",\"calls\":0,\"errors\":0,"
        "\"input_tokens\":0,\"cache_read_tokens\":0,\"cache_write_tokens\":0,"
        "\"cache_write_1h_tokens\":0,\"output_tokens\":0,"
        "\"reasoning_tokens\":0,\"cost\":\"0.00\",\"avg_ms\":null,"
        "\"avg_first_byte_ms\":null}";

    s = unit_open(u);
    put_accounts(s);

    memset(&f, 0, sizeof(f));
    f.limit = 10;
    f.now = MIDNIGHT + 2 * HOUR + 1;

    unit_store_ok(s, ngx_modelgw_store_usage(s, &bys[0], &f, &out, u->pool));
    unit_assert_str(out.data, out.len, "{\"usage\":[]}");

    f.from = MIDNIGHT + HOUR;
    unit_store_ok(s, ngx_modelgw_store_usage(s, &bys[0], &f, &out, u->pool));
    sprintf(expected, "{\"usage\":[{\"hour\":\"2026-11-22T02:00:00.000Z%s,"
            "{\"hour\":\"2026-11-22T01:00:00.000Z%s]}", none, none);
    unit_assert_str(out.data, out.len, expected);

    f.limit = 1;
    unit_store_ok(s, ngx_modelgw_store_usage(s, &bys[0], &f, &out, u->pool));
    sprintf(expected, "{\"usage\":[{\"hour\":\"2026-11-22T02:00:00.000Z%s],"
            "\"more\":true}", none);
    unit_assert_str(out.data, out.len, expected);

    f.limit = 10;
    f.to = MIDNIGHT + 2 * HOUR;
    unit_store_ok(s, ngx_modelgw_store_usage(s, &bys[0], &f, &out, u->pool));
    sprintf(expected, "{\"usage\":[{\"hour\":\"2026-11-22T01:00:00.000Z%s]}",
            none);
    unit_assert_str(out.data, out.len, expected);

    unit_begin(s);
    call = unit_call(1, "key-1", 10);
    call.ended = MIDNIGHT + 2 * HOUR;
    unit_put_call(s, &call, "account-1");
    call.id = 2;
    call.ended = MIDNIGHT + 4 * HOUR - 1;
    unit_put_call(s, &call, "account-1");
    unit_commit(s);

    memset(&f, 0, sizeof(f));
    f.limit = 10;
    unit_store_ok(s, ngx_modelgw_store_usage(s, &bys[2], &f, &out, u->pool));
    assert_memory_equal(out.data, "{\"usage\":[{\"month\":\"2026-11\",\"calls\""
                                  ":2,\"errors\":0,", 50);

    ngx_modelgw_store_close(s);
}


/* as CSV: rows without calls, names with quotes, a limit */

static void
test_usage_csv(void **state)
{
    ngx_str_t                    out;
    unit_store_t                *u = *state;
    ngx_modelgw_call_t           call;
    ngx_modelgw_store_t         *s;
    ngx_modelgw_store_filter_t   f;

    static const char  *sums = "calls,errors,input_tokens,cache_read_tokens,"
        "cache_write_tokens,cache_write_1h_tokens,output_tokens,"
        "reasoning_tokens,cost,avg_ms,avg_first_byte_ms\r\n";

    char  expected[2048];

    s = unit_open(u);
    put_accounts(s);

    memset(&f, 0, sizeof(f));
    f.limit = 10;
    f.now = MIDNIGHT + 2 * HOUR + 1;

    assert_int_equal(ngx_modelgw_store_usage_csv(s, &bys[8], &f, &out,
                                                 u->pool), NGX_OK);
    sprintf(expected, "key,model,%s", sums);
    unit_assert_str(out.data, out.len, expected);

    unit_begin(s);
    call = unit_call(1, "=key", 10);
    call.started = MIDNIGHT + HOUR;
    call.ended = call.started + 5;
    memcpy(call.model, "\"family\"", 8);
    call.model_len = 8;
    unit_put_call(s, &call, "account-1");
    unit_commit(s);

    assert_int_equal(ngx_modelgw_store_usage_csv(s, &bys[8], &f, &out,
                                                 u->pool), NGX_OK);
    sprintf(expected, "key,model,%s\"'=key\",\"\"\"family\"\"\","
            "1,0,0,0,0,0,10,0,\"0.00000001\",5,20\r\n", sums);
    unit_assert_str(out.data, out.len, expected);

    f.from = MIDNIGHT + HOUR;

    assert_int_equal(ngx_modelgw_store_usage_csv(s, &bys[0], &f, &out,
                                                 u->pool), NGX_OK);
    sprintf(expected, "hour,%s"
            "\"2026-11-22T02:00:00.000Z\",0,0,0,0,0,0,0,0,\"0.00\",,\r\n"
            "\"2026-11-22T01:00:00.000Z\",1,0,0,0,0,0,10,0,\"0.00000001\",5,20"
            "\r\n", sums);
    unit_assert_str(out.data, out.len, expected);

    f.limit = 1;

    assert_int_equal(ngx_modelgw_store_usage_csv(s, &bys[0], &f, &out,
                                                 u->pool), NGX_AGAIN);
    sprintf(expected, "hour,%s"
            "\"2026-11-22T02:00:00.000Z\",0,0,0,0,0,0,0,0,\"0.00\",,\r\n", sums);
    unit_assert_str(out.data, out.len, expected);

    ngx_modelgw_store_close(s);
}


/* pages, of calls that ended at the same times and with new ones meanwhile */

static void
test_pages(void **state)
{
    int                          i, n;
    u_char                      *p;
    ngx_str_t                    out, next;
    unit_store_t                *u = *state;
    ngx_modelgw_call_t           call;
    ngx_modelgw_store_t         *s;
    ngx_modelgw_store_filter_t   f;

    s = unit_open(u);
    put_accounts(s);

    unit_begin(s);

    for (i = 0; i < 23; i++) {
        call = unit_call(i + 1, "key-1", 10);
        call.ended = MIDNIGHT + i / 7;
        unit_put_call(s, &call, "account-1");
    }

    unit_commit(s);

    memset(&f, 0, sizeof(f));
    f.limit = 4;

    for (i = 23, n = 0; /* void */ ; n++) {
        assert_in_range(n, 0, 5);
        unit_store_ok(s, ngx_modelgw_store_calls(s, &f, &out, u->pool));

        for (p = out.data;
             (p = ngx_strnstr(p, "{\"id\":", out.data + out.len - p)) != NULL;
             p += 6)
        {
            assert_int_equal(atoi((char *) p + 6), i--);
        }

        next.data = ngx_strnstr(out.data, "\"next\":\"", out.len);

        if (next.data == NULL) {
            break;
        }

        next.data += 8;
        next.len = out.data + out.len - 2 - next.data;
        assert_int_equal(ngx_modelgw_store_place(&next, &f.after), NGX_OK);

        unit_begin(s);
        call = unit_call(100 + n, "key-1", 10);
        call.ended = MIDNIGHT + UNIT_DAY;
        unit_put_call(s, &call, "account-1");
        unit_commit(s);
    }

    assert_int_equal(i, 0);
    ngx_modelgw_store_close(s);
}


static void
test_places(void **state)
{
    size_t                      i;
    ngx_str_t                   text;
    ngx_modelgw_store_place_t   place;

    static const char  *forged[] = {
        "", "-", "1", "1-", "-1", "1-0", "1-g", "g-1", "1-1-1", " 1-1", "1-1 ",
        "8000000000000000-1", "1-8000000000000000", "1-11111111111111111",
        "'; DROP TABLE calls"
    };

    for (i = 0; i < sizeof(forged) / sizeof(forged[0]); i++) {
        text.data = (u_char *) forged[i];
        text.len = strlen(forged[i]);
        assert_int_equal(ngx_modelgw_store_place(&text, &place), NGX_DECLINED);
    }
}


static void
test_csv(void **state)
{
    ngx_str_t                    out;
    unit_store_t                *u = *state;
    ngx_modelgw_call_t           call;
    ngx_modelgw_store_t         *s;
    ngx_modelgw_store_filter_t   f;

    s = unit_open(u);
    put_accounts(s);

    unit_begin(s);
    call = unit_call(1, "=1+1", 10500000);
    call.model_len = sizeof("@SUM(\"a\",b)") - 1;
    memcpy(call.model, "@SUM(\"a\",b)", call.model_len);
    call.first_byte = NGX_MODELGW_LEDGER_NONE;
    call.flags = NGX_MODELGW_CALL_TRANSLATED;
    unit_put_call(s, &call, "account-1");
    call = unit_call(2, "key-1", 0);
    unit_put_call(s, &call, "account-1");
    unit_commit(s);

    memset(&f, 0, sizeof(f));
    f.limit = 1;

    assert_int_equal(ngx_modelgw_store_calls_csv(s, &f, &out, u->pool),
                     NGX_AGAIN);
    unit_assert_str(out.data, out.len,
        "id,time,key,account,model,input_tokens,cache_read_tokens,"
        "cache_write_tokens,cache_write_1h_tokens,output_tokens,"
        "reasoning_tokens,cost,outcome,end,status,ended,duration_ms,"
        "first_byte_ms,request_id,stream,translated\r\n"
        "2,\"2026-11-22T06:47:00.123Z\",\"key-1\",\"account-1\","
        "\"family_a-large\",0,0,0,0,0,0,\"0.00\",\"reported\",\"complete\",200,"
        "\"2026-11-22T06:47:01.623Z\",1500,20,\"req-1\",true,false\r\n");

    assert_int_equal(ngx_modelgw_store_calls_csv(s, &f, &out, u->pool),
                     NGX_OK);
    unit_assert_str(out.data, out.len,
        "1,\"2026-11-22T06:47:00.123Z\",\"'=1+1\",\"account-1\","
        "\"'@SUM(\"\"a\"\",b)\",0,0,0,0,10500000,0,\"0.0105\",\"reported\","
        "\"complete\",200,\"2026-11-22T06:47:01.623Z\",1500,,\"req-1\",false,"
        "true\r\n");

    ngx_modelgw_store_close(s);
}


static void
test_filters(void **state)
{
    size_t                       i;
    ngx_str_t                    out;
    unit_store_t                *u = *state;
    ngx_modelgw_call_t           call;
    ngx_modelgw_store_t         *s;
    ngx_modelgw_store_filter_t   f[6];

    s = unit_open(u);
    put_accounts(s);

    unit_begin(s);
    call = unit_call(1, "key-1", 10);
    unit_put_call(s, &call, "account-1");
    call = unit_call(2, "key-1", 1000);
    call.charge.outcome = NGX_MODELGW_ESTIMATED;
    call.end = NGX_MODELGW_END_CLIENT;
    call.seen.status = 201;
    memset(call.request_id, 'r', NGX_MODELGW_LEDGER_REQUEST);
    call.request_id_len = NGX_MODELGW_LEDGER_REQUEST;
    unit_put_call(s, &call, "account-1");
    unit_commit(s);

    memset(&f, 0, sizeof(f));
    ngx_str_set(&f[0].outcome, "estimated");
    ngx_str_set(&f[1].end, "client");
    ngx_str_set(&f[2].status, "201");
    ngx_str_set(&f[3].request_id, "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
                                  "rrrrrrrrrrrrrrrrrrrrrrrr and more");
    f[4].min_cost = 1000;
    f[5].min_cost = 1001;

    for (i = 0; i < 6; i++) {
        f[i].limit = 10;
        unit_store_ok(s, ngx_modelgw_store_calls(s, &f[i], &out, u->pool));

        if (i == 5) {
            unit_assert_str(out.data, out.len, "{\"calls\":[]}");

        } else {
            assert_memory_equal(out.data, "{\"calls\":[{\"id\":2,", 18);
            assert_null(ngx_strnstr(out.data, "\"id\":1,", out.len));
        }
    }

    ngx_modelgw_store_close(s);
}


static void
test_one_call(void **state)
{
    ngx_str_t                   out;
    unit_store_t               *u = *state;
    ngx_modelgw_call_t          call;
    ngx_modelgw_price_t         old;
    ngx_modelgw_store_t        *s;
    ngx_modelgw_store_price_t   price;
    ngx_str_t                  any = ngx_null_string;
    ngx_str_t                  own = ngx_string("account-1");
    ngx_str_t                  other = ngx_string("account");

    memset(&price, 0, sizeof(price));
    ngx_str_set(&price.group, "a");
    ngx_str_set(&price.model, "family_a-large");
    price.id = 77;
    price.time = UNIT_TIME + 5000;
    price.rates.input = 3000000;
    price.rates.output = 15000000;
    price.rates.cache_read = 300000;
    price.rates.cache_write = 3750000;

    s = unit_open(u);
    put_accounts(s);

    unit_begin(s);
    call = unit_call(1, "key-1", 10);
    unit_put_call(s, &call, "account-1");
    call.id = 2;
    call.price_id = price.id;
    call.price = price.rates;
    unit_put_call(s, &call, "account-1");
    unit_commit(s);

    /* of a call whose configuration has not stored it, then of that */

    unit_store_ok(s, ngx_modelgw_store_call_get(s, 2, &any, &out, u->pool));
    assert_non_null(ngx_strnstr(out.data, "},\"price\":{\"group\":\"\","
        "\"model\":\"family_a-large\",\"from\":\"2026-11-22T06:47:00.123Z\","
        "\"input\":\"3.00\",", out.len));

    unit_begin(s);
    unit_store_ok(s, ngx_modelgw_store_price(s, &price, &old));
    unit_store_ok(s, ngx_modelgw_store_price(s, &price, &old));
    price.id++;
    price.rates.output++;
    assert_int_equal(ngx_modelgw_store_price(s, &price, &old), NGX_DONE);
    assert_int_equal(old.output, 15000000);
    unit_store_ok(s, ngx_modelgw_store_price_action(s, &price, &old,
                                                    UNIT_TIME + 7));
    unit_commit(s);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM prices"), 2);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM actions"), 1);
    assert_int_equal(unit_sql(u, "SELECT id FROM actions WHERE id = time"),
                     UNIT_TIME + 7);

    assert_int_equal(ngx_modelgw_store_call_get(s, 3, &any, &out, u->pool),
                     NGX_DECLINED);
    assert_int_equal(ngx_modelgw_store_call_get(s, 2, &other, &out, u->pool),
                     NGX_DECLINED);
    unit_store_ok(s, ngx_modelgw_store_call_get(s, 2, &own, &out, u->pool));

    unit_store_ok(s, ngx_modelgw_store_call_get(s, 1, &any, &out, u->pool));
    assert_memory_equal(out.data, "{\"call\":{\"id\":1,", 16);
    assert_non_null(ngx_strnstr(out.data, "},\"price\":null}", out.len));

    unit_store_ok(s, ngx_modelgw_store_call_get(s, 2, &any, &out, u->pool));
    assert_non_null(ngx_strnstr(out.data, "},\"price\":{\"group\":\"a\","
        "\"model\":\"family_a-large\",\"from\":\"2026-11-22T06:47:00.123Z\","
        "\"input\":\"3.00\",\"output\":\"15.00\",\"cache_read\":\"0.30\","
        "\"cache_write\":\"3.75\",\"cache_write_1h\":\"0.00\"}}", out.len));

    ngx_modelgw_store_close(s);
}


/* makes a file as version 1 has made it */

static const char  version_1[] =
    "DROP VIEW audit; DROP VIEW balances; DROP VIEW ledger;"
    "DROP TABLE hours; DROP TABLE marks; DROP TABLE keys;"
    "DROP TABLE prices; DROP TABLE actions; DROP INDEX calls_ended;"
    "ALTER TABLE accounts DROP COLUMN state;"
    "ALTER TABLE accounts DROP COLUMN note;"
    "ALTER TABLE calls DROP COLUMN request_id;"
    "ALTER TABLE calls DROP COLUMN flags;"
    "ALTER TABLE calls DROP COLUMN price;"
    "ALTER TABLE holds DROP COLUMN request_id;"
    "ALTER TABLE holds DROP COLUMN flags;"
    "ALTER TABLE holds DROP COLUMN price;"
    "ALTER TABLE topups DROP COLUMN reason;"
    "ALTER TABLE days DROP COLUMN errors;"
    "ALTER TABLE days DROP COLUMN duration;"
    "ALTER TABLE days DROP COLUMN first_bytes;"
    "ALTER TABLE days DROP COLUMN first_byte;"
    "CREATE TABLE kept AS SELECT id, first_byte FROM calls;"
    "ALTER TABLE calls DROP COLUMN first_byte;"
    "CREATE VIEW audit AS SELECT 1; CREATE VIEW balances AS SELECT 1;"
    "CREATE VIEW ledger AS SELECT 1; PRAGMA user_version = 1";



/* the mark is not after now: some of the calls may be */

static void
all_before_the_mark(unit_store_t *u)
{
    assert_int_equal(unit_sql(u, "SELECT coalesce(sum(calls), 0) FROM hours"),
                     unit_sql(u, "SELECT count(*) FROM calls"
                                 " WHERE ended < (SELECT value FROM marks)"));
    assert_true(unit_sql(u, "SELECT value FROM marks WHERE name = 'hours'"
                            " AND value <= strftime('%s', 'now') * 1000") > 0);
}


static void
test_version_1(void **state)
{
    ngx_str_t             before;
    unit_store_t         *u = *state;
    ngx_modelgw_store_t  *s;

    srand(4);

    s = unit_open(u);
    put_accounts(s);
    put_calls(s, 0, 100);
    before = usages(u);
    ngx_modelgw_store_close(s);

    unit_write_sql(u, version_1);

    assert_null(ngx_modelgw_store_open_read(u->path, NULL, &error));
    unit_error_has(&error, "is not migrated yet");

    ngx_modelgw_store_close(unit_open(u));

    assert_int_equal(unit_sql(u, "PRAGMA user_version"), 2);
    all_before_the_mark(u);
    assert_int_equal(unit_sql(u, "SELECT count(first_byte) FROM calls"), 0);
    unit_audit(u);

    /* but for what version 1 did not know */

    unit_write_sql(u, "UPDATE calls SET first_byte = (SELECT first_byte"
                      " FROM kept WHERE kept.id = calls.id);"
                      "DELETE FROM hours; UPDATE marks SET value = 0");
    same_usages(u, &before);
}


/* killed at any instant, the migration has been done or not */

static void
test_version_1_killed(void **state)
{
    int                   i, status;
    pid_t                 pid;
    int64_t               version, done;
    unit_store_t         *u = *state;
    ngx_modelgw_store_t  *s;

    srand(5);

    s = unit_open(u);
    put_accounts(s);

    for (i = 0; i < 20; i++) {
        put_calls(s, i * 1000, (i + 1) * 1000);
    }

    ngx_modelgw_store_close(s);
    unit_write_sql(u, version_1);

    for (i = 0, done = 0; i < 1000 && !done; i++) {
        pid = fork();
        assert_true(pid != -1);

        if (pid == 0) {
            _exit(ngx_modelgw_store_open(u->path, &error) == NULL);
        }

        usleep(i * 3000);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);

        version = unit_sql(u, "PRAGMA user_version");

        if (version == 1) {
            assert_int_equal(unit_sql(u, "SELECT count(*) FROM sqlite_schema"
                                         " WHERE name IN ('hours', 'marks',"
                                         " 'calls_ended')"), 0);
            assert_int_equal(unit_sql(u, "SELECT count(*) FROM calls"),
                             20000);

        } else {
            assert_int_equal(version, 2);
            done = 1;
        }
    }

    assert_in_range(i, 2, 999);

    ngx_modelgw_store_close(unit_open(u));
    all_before_the_mark(u);
    unit_audit(u);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_store_case(test_usage),
        unit_store_case(test_sums),
        unit_store_case(test_noted),
        unit_store_case(test_noted_in_part),
        unit_store_case(test_borders),
        unit_store_case(test_zones),
        unit_store_case(test_zones_of_days),
        unit_store_case(test_days),
        unit_store_case(test_left_out),
        unit_store_case(test_recover),
        unit_store_case(test_series),
        unit_store_case(test_usage_csv),
        unit_store_case(test_pages),
        unit_store_case(test_places),
        unit_store_case(test_csv),
        unit_store_case(test_filters),
        unit_store_case(test_one_call),
        unit_store_case(test_version_1),
        unit_store_case(test_version_1_killed)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
