
/*
 * The cost of a call for the writer: CPU and time of batches of calls, of one
 * account and of many, of the sums by hours and of the roll-up; then the time
 * of operators' queries.
 *
 *     make bench-store
 */


#include "stub.h"

#include <time.h>
#include <sqlite3.h>

#include "ngx_modelgw_store.h"


#define CALLS  60000
#define BATCH  1000     /* at most */


static ngx_uint_t  batches[] = { 1, 10, 150, 1000 };
static ngx_uint_t  accounts[] = { 1, 100, 10000 };


static double
clock_of(clockid_t clock)
{
    struct timespec  ts;

    clock_gettime(clock, &ts);

    return ts.tv_sec + ts.tv_nsec / 1e9;
}


static void
check(ngx_modelgw_store_t *s, ngx_int_t rc)
{
    ngx_modelgw_store_error_t  error;

    if (rc != NGX_OK) {
        ngx_modelgw_store_error(s, &error);
        printf("%.*s\n", (int) error.len, error.data);
        exit(1);
    }
}


static void
name_of(ngx_modelgw_ledger_name_t *name, ngx_uint_t i)
{
    name->len = sprintf((char *) name->data, "account-%06u", (unsigned) i);
}


static void
found(ngx_modelgw_store_t *s, ngx_uint_t n)
{
    ngx_uint_t                    i;
    ngx_modelgw_ledger_account_t  a;

    check(s, ngx_modelgw_store_begin(s));

    for (i = 0; i < n; i++) {
        memset(&a, 0, sizeof(a));
        name_of(&a.name, i);
        a.opened = 1795330020;
        a.founding = 1000000000;
        check(s, ngx_modelgw_store_account(s, &a));
    }

    check(s, ngx_modelgw_store_commit(s));
}


static void
calls(ngx_modelgw_store_t *s, ngx_uint_t n, ngx_uint_t size, ngx_uint_t many,
    ngx_uint_t holds)
{
    double                            cpu, wall;
    ngx_uint_t                        i, k;
    ngx_modelgw_call_t               *call;
    ngx_modelgw_ledger_name_t        *name;
    static uint64_t                   id = 1795330020123456;
    static uint64_t                   time = 1795330020123;
    static ngx_modelgw_call_t         slots[BATCH];
    static ngx_modelgw_ledger_name_t  names[BATCH];

    for (k = 0; k < size; k++) {
        call = &slots[k];

        call->model_len = sprintf((char *) call->model, "family_a-large");
        call->charge.cost = 10500000;
        call->charge.tokens.input = 1234;
        call->charge.tokens.output = 567;
        call->charge.tokens.cache_read = 20000;
        call->seen.status = 200;
        call->estimate = 2000;
        call->hold = 100000000;
    }

    wall = clock_of(CLOCK_MONOTONIC);
    cpu = clock_of(CLOCK_THREAD_CPUTIME_ID);

    for (i = 0; i < n; i += size) {
        check(s, ngx_modelgw_store_begin(s));

        for (k = 0; k < size; k++) {
            call = &slots[k];
            name = &names[k];

            call->id = id++;
            call->started = time++;
            call->ended = call->started + 1500;
            call->noted = holds;

            name_of(name, (id * 7919) % many);
            call->key_name = *name;

            if (holds) {
                check(s, ngx_modelgw_store_hold(s, call, name));
            }

            check(s, ngx_modelgw_store_call(s, call, name));
        }

        check(s, ngx_modelgw_store_commit(s));
    }

    cpu = clock_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
    wall = clock_of(CLOCK_MONOTONIC) - wall;

    printf("%6u a batch, %5u accounts%s: %6.2f us CPU, %6.2f us a call\n",
           (unsigned) size, (unsigned) many, holds ? ", held" : "      ",
           cpu / i * 1e6, wall / i * 1e6);
}


static void
hours(ngx_modelgw_store_t *s)
{
    double      cpu;
    ngx_uint_t  n, sum;

    cpu = clock_of(CLOCK_THREAD_CPUTIME_ID);
    sum = 0;

    do {
        check(s, ngx_modelgw_store_hours(s, 1895330020, 1000, &n));
        sum += n;
    } while (n >= 1000);

    cpu = clock_of(CLOCK_THREAD_CPUTIME_ID) - cpu;

    printf("summing up %u calls by hours: %.2f us CPU a call\n",
           (unsigned) sum, cpu / sum * 1e6);
}


static void
queries(const char *path)
{
    double                       wall;
    ngx_str_t                    out;
    ngx_uint_t                   i;
    ngx_pool_t                  *pool;
    ngx_modelgw_store_t         *s;
    ngx_modelgw_store_by_t       by;
    ngx_modelgw_store_error_t    error;
    ngx_modelgw_store_filter_t   filter;

    pool = stub_pool_create();
    s = ngx_modelgw_store_open_read(path, NULL, &error);

    if (pool == NULL || s == NULL) {
        exit(1);
    }

    memset(&filter, 0, sizeof(filter));
    filter.limit = 100;

    by.n = 1;

    for (i = 0; i <= NGX_MODELGW_BY_ACCOUNT; i++) {
        by.bys[0] = i;
        wall = clock_of(CLOCK_MONOTONIC);
        check(s, ngx_modelgw_store_usage(s, &by, &filter, &out, pool));
        printf("usage, %u: %.0f ms\n", (unsigned) i,
               (clock_of(CLOCK_MONOTONIC) - wall) * 1e3);
    }

    ngx_str_set(&filter.account, "account-007777");

    wall = clock_of(CLOCK_MONOTONIC);
    check(s, ngx_modelgw_store_calls(s, &filter, &out, pool));
    printf("calls of an account: %.0f ms\n",
           (clock_of(CLOCK_MONOTONIC) - wall) * 1e3);

    ngx_modelgw_store_close(s);
    ngx_destroy_pool(pool);
}


static void
roll_up(ngx_modelgw_store_t *s)
{
    double      wall;
    ngx_uint_t  n, sum;

    wall = clock_of(CLOCK_MONOTONIC);
    sum = 0;

    do {
        check(s, ngx_modelgw_store_roll_up(s, 1895330020, 1000, &n));
        sum += n;
    } while (n == 1000);

    wall = clock_of(CLOCK_MONOTONIC) - wall;

    printf("rolling up %u calls: %.2f us a call\n", (unsigned) sum,
           wall / sum * 1e6);
}


int
main(int argc, char **argv)
{
    char                        path[1024], file[1100];
    ngx_uint_t                  i, k;
    const char                **tail;
    ngx_modelgw_store_t        *s;
    ngx_modelgw_store_error_t   error;
    static const char          *tails[] = { "", "-wal", "-shm", NULL };

    snprintf(path, sizeof(path), "%s/bench-store.db",
             argc > 1 ? argv[1] : "/tmp");

    s = ngx_modelgw_store_open(path, &error);

    if (s == NULL) {
        printf("%.*s\n", (int) error.len, error.data);
        return 1;
    }

    found(s, 10000);

    for (i = 0; i < sizeof(accounts) / sizeof(accounts[0]); i++) {
        for (k = 0; k < sizeof(batches) / sizeof(batches[0]); k++) {
            calls(s, batches[k] < 150 ? 200 * batches[k] : CALLS, batches[k],
                  accounts[i], 0);
        }
    }

    calls(s, CALLS, 150, 100, 1);

    hours(s);
    queries(path);
    roll_up(s);

    ngx_modelgw_store_close(s);

    for (tail = tails; *tail; tail++) {
        snprintf(file, sizeof(file), "%s%s", path, *tail);
        (void) unlink(file);
    }

    return 0;
}
