
/*
 * The cost of a call in the ledger: open, hold, sent and settle together, in
 * one process, and in two at a time on the same account.  A writer in a
 * separate process frees calls that are DONE, every 5 ms as in nginx.
 *
 *     make bench-ledger
 */


#include "stub.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>

#include "ledger_calls.h"


#define SIZE      (64 * 1024 * 1024)
#define SAMPLES   400000
#define WARM      20000


typedef struct {
    uint64_t               ready;
    uint64_t               go;
    uint64_t               stop;
    uint32_t               ns[2][SAMPLES];
} shared_t;


static shared_t              *shared;
static ngx_modelgw_ledger_t  *ledger;
static uint32_t               account, key;


static void *
map(size_t size)
{
    void  *p;

    p = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        exit(1);
    }

    return p;
}


static uint64_t
now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + ts.tv_nsec;
}


static void
one(uint32_t worker)
{
    int64_t              available;
    ngx_modelgw_call_t  *call;

    while (call_open(ledger, worker, key, 0, &call) != NGX_OK) {
        sched_yield();
    }

    call->hold = 10;
    call->price.input = 3;
    call->price.output = 15;

    if (call_hold(ledger, call, account, &available) != NGX_OK) {
        exit(1);
    }

    ngx_modelgw_ledger_sent(ledger, call);

    call->seen.status = 200;
    call->seen.input = 1;
    call->seen.output = 1;
    call->seen.flags = NGX_MODELGW_SEEN_FINAL;

    call_settle(ledger, call, NGX_MODELGW_END_COMPLETE, 1, 1000);
}


static void
worker(ngx_uint_t n)
{
    uint32_t    number;
    uint64_t    start;
    ngx_uint_t  i;

    if (ngx_modelgw_ledger_join(ledger, &number) != NGX_OK) {
        _exit(1);
    }

    for (i = 0; i < WARM; i++) {
        one(number);
    }

    (void) __atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);

    while (!__atomic_load_n(&shared->go, __ATOMIC_SEQ_CST)) { /* void */ }

    for (i = 0; i < SAMPLES; i++) {
        start = now();
        one(number);
        shared->ns[n][i] = now() - start;
    }

    _exit(0);
}


static void
writer(void)
{
    struct timespec  ts = { 0, 5000000 };

    (void) ngx_modelgw_ledger_elect(ledger);

    while (!__atomic_load_n(&shared->stop, __ATOMIC_SEQ_CST)) {
        ngx_modelgw_ledger_noted(ledger,
                                 ngx_modelgw_ledger_held_count(ledger));
        ngx_modelgw_ledger_written(ledger,
                                   ngx_modelgw_ledger_done_count(ledger));
        nanosleep(&ts, NULL);
    }

    _exit(0);
}


static pid_t
run(void (*work)(ngx_uint_t n), ngx_uint_t n)
{
    pid_t  pid;

    pid = fork();

    if (pid == -1) {
        exit(1);
    }

    if (pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);

        if (work) {
            work(n);
        }

        writer();
    }

    return pid;
}


static int
compare(const void *a, const void *b)
{
    uint32_t  x = *(const uint32_t *) a, y = *(const uint32_t *) b;

    return (x > y) - (x < y);
}


static void
bench(ngx_uint_t processes, uint64_t overhead)
{
    int          status;
    pid_t        pids[2], pid;
    uint32_t    *ns;
    uint64_t     sum, total;
    ngx_uint_t   i;

    shared->ready = 0;
    shared->go = 0;
    shared->stop = 0;

    pid = run(NULL, 0);

    for (i = 0; i < processes; i++) {
        pids[i] = run(worker, i);
    }

    while (__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < processes) {
        sched_yield();
    }

    total = now();
    __atomic_store_n(&shared->go, 1, __ATOMIC_SEQ_CST);

    for (i = 0; i < processes; i++) {
        if (waitpid(pids[i], &status, 0) != pids[i] || status != 0) {
            exit(1);
        }
    }

    total = now() - total;

    __atomic_store_n(&shared->stop, 1, __ATOMIC_SEQ_CST);
    (void) waitpid(pid, &status, 0);

    ns = shared->ns[0];
    qsort(ns, SAMPLES, sizeof(uint32_t), compare);

    sum = 0;
    for (i = 0; i < SAMPLES; i++) {
        sum += ns[i];
    }

    printf("%d process%s  mean %4d  p50 %4d  p99 %5d  p99.9 %6d ns"
           "  %5.2f M/s together\n",
           (int) processes, processes == 1 ? "  " : "es",
           (int) (sum / SAMPLES - overhead), (int) (ns[SAMPLES / 2] - overhead),
           (int) (ns[SAMPLES / 100 * 99] - overhead),
           (int) (ns[SAMPLES / 1000 * 999] - overhead),
           processes * SAMPLES * 1e3 / total);
}


int
main(void)
{
    uint64_t                     start;
    uint32_t                     self;
    ngx_str_t                    name = ngx_string("alice");
    ngx_uint_t                   i;
    ngx_modelgw_ledger_ended_t   ended;

    shared = map(sizeof(shared_t));
    ngx_memset(shared, 1, sizeof(shared_t));

    ledger = ngx_modelgw_ledger_create(map(SIZE), SIZE, 1, 1);

    if (ledger == NULL
        || ngx_modelgw_ledger_account(ledger, &name, 1, (int64_t) 1 << 60, 1,
                                      1, &account)
           != NGX_DONE
        || ngx_modelgw_ledger_key(ledger, &name, &key) != NGX_OK
        || ngx_modelgw_ledger_join(ledger, &self) != NGX_OK)
    {
        return 1;
    }

    start = now();

    for (i = 0; i < 1000000; i++) {
        (void) now();
    }

    start = (now() - start) / 1000000;

    printf("open + hold + sent + settle (without %d ns of the clock)\n",
           (int) start);
    fflush(stdout);

    ngx_memzero(&ended, sizeof(ngx_modelgw_ledger_ended_t));

    bench(1, start);
    (void) ngx_modelgw_ledger_sweep(ledger, self, 1, &ended);

    bench(2, start);
    (void) ngx_modelgw_ledger_sweep(ledger, self, 1, &ended);

    return ngx_modelgw_ledger_account_at(ledger, account)->held != 0;
}
