
/*
 * The store under random operations, against a model of a few arrays; and under
 * kill -9 at random instants.
 */


#include "unit_store.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <signal.h>


#define STEPS     10000
#define ACCOUNTS  20
#define DAY_IDS   700                    /* ids that end on the same day */

#define KILLS     60
#define FRESH     15                     /* of them, with a new file */
#define BATCH     10


static uint32_t
any(uint32_t n)
{
    static uint64_t  seed = 4711;

    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;

    return (uint32_t) (seed >> 33) % n;
}


typedef enum {
    NONE = 0,
    HELD,
    DONE
} known_e;


typedef struct {
    ngx_uint_t  there[ACCOUNTS];
    int64_t     balance[ACCOUNTS];
    known_e     calls[STEPS];
    int64_t     topups[STEPS];           /* 0: none */
    uint64_t    id;
    ngx_uint_t  ntopups;
} model_t;


static const char *
name_of(uint64_t i)
{
    static char  name[32];

    sprintf(name, "account-%d", (int) (i % ACCOUNTS));

    return name;
}


/* everything about a call follows from its id */

static ngx_modelgw_call_t
call_of(uint64_t id)
{
    ngx_modelgw_call_t  call;

    call = unit_call(id, name_of(id * 7), 1 + id % 1000);

    call.started += id / DAY_IDS * UNIT_DAY;
    call.ended = call.started + id % 5000;
    call.estimate = 1 + id % 50;
    call.noted = 1;

    return call;
}


static void
step_account(model_t *m, ngx_modelgw_store_t *s)
{
    int  i;

    i = any(ACCOUNTS);
    unit_put_account(s, name_of(i), i * 1000);

    if (!m->there[i]) {
        m->there[i] = 1;
        m->balance[i] = i * 1000;
    }
}


/* any of the last 50, or a new one; some are put twice, some held first */

static void
step_call(model_t *m, ngx_modelgw_store_t *s)
{
    int                 i;
    uint64_t            id;
    ngx_modelgw_call_t  call;

    id = any(3) ? ++m->id : m->id - ngx_min(m->id, any(50));
    i = id % ACCOUNTS;

    if (!m->there[i] || id == 0) {
        return;
    }

    call = call_of(id);

    if (m->calls[id] == NONE && any(2)) {
        unit_put_hold(s, &call, name_of(i));
        m->calls[id] = HELD;
        return;
    }

    unit_put_call(s, &call, name_of(i));

    if (m->calls[id] != DONE) {
        m->balance[i] -= call.charge.cost;
        m->calls[id] = DONE;
    }
}


static void
step_topup(model_t *m, ngx_modelgw_store_t *s)
{
    int                  i, n;
    char                 id[32];
    int64_t              amount;
    ngx_modelgw_change_e  result;

    n = any(2) ? (int) m->ntopups++ : (int) any(m->ntopups + 1);
    i = n % ACCOUNTS;
    sprintf(id, "topup-%d", n);
    amount = 1 + any(3);

    result = unit_put_topup(s, id, name_of(i), amount);

    if (m->topups[n]) {
        assert_int_equal(result, amount == m->topups[n]
                                 ? NGX_MODELGW_CHANGE_KNOWN
                                 : NGX_MODELGW_CHANGE_OTHER);

    } else if (!m->there[i]) {
        assert_int_equal(result, NGX_MODELGW_CHANGE_FAILED);

    } else {
        assert_int_equal(result, NGX_MODELGW_CHANGE_MADE);
        m->balance[i] += amount;
        m->topups[n] = amount;
    }
}


static ngx_int_t
same_account(void *data, ngx_str_t *name, int64_t balance, uint64_t opened)
{
    int       i;
    model_t  *m = data;

    i = atoi((char *) name->data + sizeof("account-") - 1);

    assert_true(i >= 0 && i < ACCOUNTS);
    assert_int_equal(m->there[i], 1);
    assert_int_equal(balance, m->balance[i]);

    m->there[i] = 2;

    return NGX_OK;
}


static void
same(model_t *m, ngx_modelgw_store_t *s)
{
    int  i;

    unit_store_ok(s, ngx_modelgw_store_accounts(s, same_account, m));

    for (i = 0; i < ACCOUNTS; i++) {
        assert_int_not_equal(m->there[i], 1);
        m->there[i] = (m->there[i] != 0);
    }
}


/* calls that are open when all is killed */

static void
recover(model_t *m, ngx_modelgw_store_t *s)
{
    int64_t     charged, sum;
    uint64_t    id;
    ngx_uint_t  n, count;

    unit_store_ok(s, ngx_modelgw_store_recover(s, UNIT_TIME
                                               + m->id / DAY_IDS * UNIT_DAY,
                                               &n, &charged));

    count = 0;
    sum = 0;

    for (id = 0; id < STEPS; id++) {
        if (m->calls[id] == HELD) {
            m->calls[id] = DONE;
            m->balance[id % ACCOUNTS] -= 2 * (1 + id % 50);
            sum += 2 * (1 + id % 50);
            count++;
        }
    }

    assert_int_equal(n, count);
    assert_int_equal(charged, sum);
}


static void
test_random(void **state)
{
    int                   i;
    model_t              *m, *saved;
    uint64_t              day;
    ngx_uint_t            n, rolled;
    unit_store_t         *u = *state;
    ngx_modelgw_store_t  *s;

    m = calloc(2, sizeof(model_t));
    assert_non_null(m);
    saved = m + 1;

    s = unit_open(u);
    unit_begin(s);
    rolled = 0;

    for (i = 0; i < STEPS; i++) {

        switch (any(60)) {

        case 0:
            step_account(m, s);
            break;

        case 1:
        case 2:
            step_topup(m, s);
            break;

        case 3:
            unit_commit(s);
            same(m, s);
            *saved = *m;

            /* not those that may be put again */

            day = UNIT_TIME + m->id / DAY_IDS * UNIT_DAY - UNIT_DAY;
            unit_store_ok(s, ngx_modelgw_store_roll_up(s, day / 1000,
                                                       1 + any(30), &n));
            rolled += n;
            unit_begin(s);
            break;

        case 4:
            if (any(4)) {
                break;
            }

            /* the batch is lost; its ids and top-ups are put again */

            ngx_modelgw_store_close(s);
            *m = *saved;
            s = unit_open(u);
            recover(m, s);
            same(m, s);
            *saved = *m;
            unit_begin(s);
            break;

        default:
            step_call(m, s);
        }
    }

    unit_commit(s);
    same(m, s);
    ngx_modelgw_store_close(s);

    unit_audit(u);
    assert_true(rolled > 1000);
    assert_true(m->ntopups > 50);
    assert_int_equal(unit_sql(u, "SELECT sum(calls) FROM days"), rolled);
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM pragma_integrity_check"
                                 " WHERE integrity_check = 'ok'"), 1);

    free(m);
}


/*
 * Batches of BATCH calls, and a hold for the first call of the next one; done
 * says which were committed.  It returns if something fails.
 */

static void
write_batches(unit_store_t *u, uint64_t *done)
{
    int64_t                        charged;
    uint64_t                       id;
    ngx_uint_t                     k, n;
    ngx_modelgw_call_t             call, calls[BATCH];
    ngx_modelgw_store_t           *s;
    ngx_modelgw_store_error_t      error;
    ngx_modelgw_ledger_name_t      name;
    ngx_modelgw_ledger_account_t   a;

    s = ngx_modelgw_store_open(u->path, &error);

    if (s == NULL
        || ngx_modelgw_store_recover(s, UNIT_TIME, &n, &charged) != NGX_OK
        || ngx_modelgw_store_last_id(s, &id) != NGX_OK)
    {
        return;
    }

    for (id = (id / BATCH + 1) * BATCH; /* void */ ; id += BATCH) {

        a = unit_account(name_of(id / BATCH), 1000);

        if (ngx_modelgw_store_begin(s) != NGX_OK
            || ngx_modelgw_store_account(s, &a) != NGX_OK)
        {
            return;
        }

        for (k = 0; k < BATCH; k++) {
            calls[k] = unit_call(id + k, "key", 1 + k);
            calls[k].noted = (k == 0);
            name = a.name;

            if (ngx_modelgw_store_call(s, &calls[k], &name) != NGX_OK) {
                return;
            }
        }

        call = unit_call(id + BATCH, "key", 1);

        if (ngx_modelgw_store_hold(s, &call, &name) != NGX_OK
            || ngx_modelgw_store_commit(s) != NGX_OK)
        {
            return;
        }

        __atomic_store_n(done, id, __ATOMIC_RELEASE);
    }
}


/* what must be true of the file, whenever its writer was killed */

static void
check_file(unit_store_t *u, uint64_t done)
{
    int64_t                     charged;
    uint64_t                    last;
    ngx_uint_t                  n;
    ngx_modelgw_store_t        *s;
    ngx_modelgw_store_error_t   error;

    if (ngx_modelgw_store_check(u->path, 0, &error) != NGX_OK) {
        fail_msg("%.*s", (int) error.len, error.data);
    }

    s = unit_open(u);

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM pragma_integrity_check"
                                 " WHERE integrity_check = 'ok'"), 1);
    unit_audit(u);

    /* all of a batch or none of it, and one hold at most; the row that a hold
       was recovered to is alone in its batch */

    assert_int_equal(unit_sql(u, "SELECT count(*) FROM (SELECT 1 FROM calls"
        " WHERE \"end\" != 'lost' GROUP BY id / 10 HAVING count(*) != 10)"),
        0);
    assert_in_range(unit_sql(u, "SELECT count(*) FROM holds"), 0, 1);

    /* what was confirmed as durable is there */

    unit_store_ok(s, ngx_modelgw_store_last_id(s, &last));
    assert_in_range(done, 0, last);

    unit_store_ok(s, ngx_modelgw_store_recover(s, UNIT_TIME, &n, &charged));
    assert_int_equal(unit_sql(u, "SELECT count(*) FROM holds"), 0);
    unit_audit(u);

    ngx_modelgw_store_close(s);
}


static void
test_kill(void **state)
{
    int              i, status;
    char             path[128];
    pid_t            pid;
    uint64_t        *done, first, batches;
    unit_store_t    *u = *state;
    struct timespec  ts;

    done = mmap(NULL, sizeof(uint64_t), PROT_READ|PROT_WRITE,
                MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(done, MAP_FAILED);

    batches = 0;

    /* more of them if others keep the disk busy */

    for (i = 0; i < KILLS || (batches <= KILLS && i < 20 * KILLS); i++) {
        first = *done;

        pid = fork();
        assert_true(pid != -1);

        if (pid == 0) {
            write_batches(u, done);
            _exit(1);
        }

        ts.tv_sec = 0;
        ts.tv_nsec = any(i < FRESH ? 20 : 100) * 1000000 + any(1000000);
        nanosleep(&ts, NULL);

        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);

        if (!WIFSIGNALED(status)) {
            fail_msg("the writer ended by itself");
        }

        batches += (*done - first) / BATCH;

        check_file(u, *done);

        if (i < FRESH) {
            sprintf(path, "%s-wal", u->path);
            (void) unlink(path);
            sprintf(path, "%s-shm", u->path);
            (void) unlink(path);
            assert_int_equal(unlink(u->path), 0);
            *done = 0;
        }
    }

    print_message("%d kills, %d batches\n", i, (int) batches);
    assert_true(batches > KILLS);

    munmap(done, sizeof(uint64_t));
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_store_case(test_random),
        unit_store_case(test_kill),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
