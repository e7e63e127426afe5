
/*
 * The ledger when its users are killed, with SIGKILL.
 *
 * A child is run one instruction at a time (ptrace) through each operation.
 * From the memory after each instruction that changed it we continue as if the
 * child had been killed there; after some of them it really is.  Then two
 * children work as fast as possible and are killed at random.  Each time we
 * sweep up, write what is DONE, and check that the ledger is consistent and no
 * money is lost.
 *
 * That these checks can fail is tested, too: with the committed change
 * discarded they must.  KILLS=n really kills n times per operation (2), and n
 * rounds at random (160, two kills each).
 */


#include "unit_ledger.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <time.h>


#define SIZE     (16 * 1024 + sizeof(ngx_modelgw_ledger_t))
#define MORE     (64 * 1024)             /* of a cluster */
#define START    (100 * EURO)
#define BEFORE   (7 * EURO)              /* spent in the window before */
#define TOPUP    7
#define STEPS    40000                   /* instructions of an operation */
#define IMAGES   2000
#define IDS      (8 * 1024 * 1024)
#define SECONDS  120                     /* then the test is killed itself */


typedef enum {
    OPEN = 0,
    HOLD,
    SENT,
    SETTLE,
    RELEASE,
    GIVE_UP,
    PASS,
    PASS_BESIDE,
    ASK,
    ANSWER,
    WRITE,
    JOIN,
    LEAVE,
    ACCOUNT,
    KEY,
    SWEEP,
    CLAIM,
    TRY,
    END,
    FREE,
    BACK,
    SAID,
    LEAVE_WAITING,
    SWEEP_WAITING,
    OPERATIONS
} operation_e;


/* how many calls are DONE in the end */

static struct {
    const char            *name;
    ngx_uint_t             kind;
    ngx_uint_t             min;
    ngx_uint_t             max;
} operations[] = {
    { "open", 1, 0, 0 },
    { "hold", 1, 0, 0 },
    { "sent", 1, 0, 1 },
    { "settle what was sent", 1, 1, 1 },
    { "settle what was held", 1, 0, 0 },
    { "settle what was open", 1, 0, 0 },
    { "settle without credit", 0, 0, 0 },
    { "settle without credit, next to a free slot", 0, 0, 0 },
    { "top up", 1, 0, 0 },
    { "answer a top-up", 1, 0, 0 },
    { "written", 1, 5, 5 },
    { "join", 1, 0, 0 },
    { "leave", 1, 0, 0 },
    { "add an account", 1, 0, 0 },
    { "use a key's record again", 1, 0, 0 },
    { "sweep", 1, 1, 1 },
    { "wait", 2, 0, 0 },
    { "hold what waits", 2, 0, 0 },
    { "refuse what waits", 2, 0, 0 },
    { "stop to wait", 2, 0, 0 },
    { "give back what is lent", 2, 1, 1 },
    { "be lent more", 2, 0, 0 },
    { "leave while calls wait", 2, 0, 0 },
    { "sweep up what waits", 2, 1, 1 },
};


typedef struct {
    ngx_modelgw_ledger_t  *ledger;
    size_t                 size;
    uint32_t               self;
    uint32_t               account;
    uint32_t               key;
    uint64_t               first;        /* id that was not yet counted */
    uint64_t               asked;        /* top-ups, likewise */
    int64_t                balance;      /* expected */
    int64_t                spent;        /* likewise, of the key's budget */
    ngx_uint_t             written;

    /* of the child that is stepped */

    uint32_t               worker;
    ngx_modelgw_call_t    *call;
    ngx_modelgw_change_t  *topup;
    ngx_modelgw_claim_t   *claim;
} world_t;


/* memory shared with the children besides the ledger */

typedef struct {
    uint64_t               ready;
    uint64_t               finished;
    int64_t                stored[IDS];  /* cost of the call, and 1 */
} store_t;


typedef struct {
    u_char                 memory[SIZE + MORE];
    ngx_uint_t             step;
    ngx_uint_t             committed;
} image_t;


static store_t            *store;
static image_t            *images;

static ngx_modelgw_fund_t  account_fund = { NGX_MODELGW_FUND_ACCOUNT, 0 };
static ngx_modelgw_fund_t  budget_fund = { NGX_MODELGW_FUND_BUDGET, 0 };


static ngx_uint_t
kills(ngx_uint_t n)
{
    char  *value;

    value = getenv("KILLS");

    return value ? (ngx_uint_t) atoi(value) : n;
}


/* The next call to end is the first one in a new window of the key's budget. */

static void
world_window(world_t *w)
{
    ngx_modelgw_ledger_key_t  *key;

    key = ngx_modelgw_ledger_key_at(w->ledger, w->key);

    key->window = NGX_MODELGW_WINDOW_DAY;
    key->ends = TIME;
    key->spent = BEFORE;

    w->spent = 0;
}


/* All that there is, is lent. */

static void
world_lend(world_t *w)
{
    ngx_modelgw_ledger_lock(w->ledger);

    ngx_modelgw_lease_said_locked(w->ledger, &account_fund, 0, START, 0, 0, 0);
    ngx_modelgw_lease_said_locked(w->ledger, &budget_fund,
                                  ngx_modelgw_budget_end(
                                               NGX_MODELGW_WINDOW_DAY, TIME),
                                  START, 0, 0, 0);

    ngx_modelgw_ledger_unlock(w->ledger);
}


static void
world_create(world_t *w, ngx_uint_t kind)
{
    ngx_modelgw_ledger_key_t  *key;

    ngx_memzero(w, sizeof(world_t));

    w->size = SIZE + (kind == NGX_MODELGW_LEDGER_CLUSTER ? MORE : 0);
    w->ledger = ledger_create(w->size, w->first, kind);
    w->first = w->ledger->id;
    w->account = ledger_account(w->ledger, "alice", START);
    w->key = ledger_key(w->ledger, "alice-1");
    w->balance = START;

    key = ngx_modelgw_ledger_key_at(w->ledger, w->key);
    ngx_modelgw_limit_correct(&key->tpm, 0, 1000, ngx_modelgw_ledger_clock());

    world_window(w);

    if (kind == NGX_MODELGW_LEDGER_CLUSTER) {
        world_lend(w);
    }

    assert_int_equal(ngx_modelgw_ledger_join(w->ledger, &w->self), NGX_OK);
    ngx_memzero(store->stored, 64 * sizeof(int64_t));
}


static void
world_destroy(world_t *w)
{
    ngx_modelgw_ledger_leave(w->ledger, w->self);
    ledger_destroy(w->ledger, w->size);
}


/* The writer, with an array as the store. */

static void
world_store(ngx_modelgw_ledger_t *l)
{
    uint64_t              id;
    ngx_uint_t            i, done, held;
    ngx_modelgw_call_t   *call;
    ngx_modelgw_change_t  *topup;

    held = ngx_modelgw_ledger_held_count(l);
    done = ngx_modelgw_ledger_done_count(l);

    for (i = 0; i < held; i++) {
        (void) ngx_modelgw_ledger_held(l, i, &id);
    }

    for (i = 0; i < done; i++) {
        call = ngx_modelgw_ledger_done(l, i);
        __atomic_store_n(&store->stored[call->id % IDS],
                         call->charge.cost + 1, __ATOMIC_SEQ_CST);
    }

    i = 0;

    while ((topup = ngx_modelgw_ledger_change_asked(l, &i)) != NULL) {
        ngx_modelgw_ledger_change_answer(l, topup, NGX_MODELGW_CHANGE_MADE);
    }

    ngx_modelgw_ledger_noted(l, held);
    ngx_modelgw_ledger_written(l, done);
}


/* The hold of each call that was sent was stored, or is to be. */

static const char *
world_check_held(ngx_modelgw_ledger_t *l)
{
    uint64_t             i, k;
    ngx_modelgw_call_t  *call;

    for (i = 0; i < l->fresh; i++) {
        call = &l->calls[i];

        if (call->state != NGX_MODELGW_CALL_SENT || call->noted
            || call->account == NONE)
        {
            continue;
        }

        for (k = l->held.head; k != l->held.tail; k++) {
            if (l->held.entries[k % l->held.size].slot == i
                && l->held.entries[k % l->held.size].id == call->id)
            {
                break;
            }
        }

        if (k == l->held.tail) {
            return "a hold will not be stored";
        }
    }

    return NULL;
}


/* Nobody waits any more, and what is left is what is lent and not spent. */

static const char *
world_check_leases(world_t *w)
{
    ngx_uint_t             i;
    ngx_modelgw_lease_t   *lease;
    ngx_modelgw_ledger_t  *l;

    l = w->ledger;

    for (i = 0; i < NGX_MODELGW_CLAIMS; i++) {
        if (l->claims[i].state != NGX_MODELGW_CLAIM_FREE) {
            return "a claim is left";
        }
    }

    if (ngx_modelgw_lease(l, &account_fund)->claims
        || ngx_modelgw_lease(l, &budget_fund)->claims
        || ngx_modelgw_node(l)->waiting)
    {
        return "calls are counted that do not wait";
    }

    lease = ngx_modelgw_lease(l, &account_fund);

    return (lease->granted - lease->returned - lease->forced
            - (START - w->balance)
            == ngx_modelgw_ledger_account_at(l, w->account)->balance)
           ? NULL : "what is left is not what is lent and not spent";
}


/* No other process is alive: what is wrong, or NULL. */

static const char *
world_check(world_t *w)
{
    uint64_t                       i;
    const char                    *wrong;
    ngx_modelgw_ledger_t          *l;
    ngx_modelgw_ledger_key_t      *k;
    ngx_modelgw_ledger_ended_t     ended;
    ngx_modelgw_ledger_account_t  *a;

    l = w->ledger;
    ngx_memzero(&ended, sizeof(ngx_modelgw_ledger_ended_t));
    w->written = 0;

    /* a committed change is applied by the next owner, whichever it is */

    ngx_modelgw_ledger_lock(l);
    ngx_modelgw_ledger_unlock(l);

    wrong = world_check_held(l);
    if (wrong) {
        return wrong;
    }

    (void) ngx_modelgw_ledger_sweep(l, w->self, TIME, &ended);

    wrong = ledger_check(l);
    if (wrong) {
        return wrong;
    }

    (void) ngx_modelgw_ledger_elect(l);
    world_store(l);
    ngx_modelgw_ledger_resign(l);

    wrong = ledger_check(l);
    if (wrong) {
        return wrong;
    }

    for (i = 0; i < l->fresh; i++) {
        if (l->calls[i].state != NGX_MODELGW_CALL_FREE) {
            return "a call is left";
        }
    }

    for (i = 0; i < NGX_MODELGW_LEDGER_CHANGES; i++) {
        if (l->changes[i].state != NGX_MODELGW_CHANGE_FREE) {
            return "a top-up is left";
        }
    }

    for (i = 0; i < l->nworkers; i++) {
        if (l->workers[i].used && i != w->self) {
            return "a worker is left";
        }
    }

    for ( /* void */ ; w->first < l->id; w->first++) {
        if (store->stored[w->first % IDS]) {
            w->balance -= store->stored[w->first % IDS] - 1;
            w->spent += store->stored[w->first % IDS] - 1;
            w->written++;
        }
    }

    if (l->change_time) {
        w->balance += TOPUP * (l->change_time - (TIME - 1) - w->asked);
        w->asked = l->change_time - (TIME - 1);
    }

    a = ngx_modelgw_ledger_account_at(l, w->account);

    k = ngx_modelgw_ledger_key_at(l, w->key);

    if (a->held || k->calls || k->held) {
        return "something is held";
    }

    /* its record may be another key's by now */

    if (k->window
        && k->spent != ((k->ends == TIME) ? BEFORE : w->spent))
    {
        return "a budget is not charged like the account";
    }

    if (k->window && k->ends == TIME && w->spent) {
        return "a budget is not charged";
    }

    if (k->window) {
        world_window(w);
    }

    if (l->claims) {
        return world_check_leases(w);
    }

    return (a->balance == w->balance) ? NULL : "money is lost or made";
}


/* all keys can be found, or added again */

static const char *
world_check_keys(world_t *w)
{
    u_char      text[32];
    uint32_t    i;
    uint64_t    k;
    ngx_str_t   name;

    name.data = text;

    ngx_modelgw_ledger_generation(w->ledger);

    for (k = 0; k < w->ledger->keys.max; k++) {
        name.len = ngx_sprintf(text, "key-%uL", k) - text;

        if (ngx_modelgw_ledger_key(w->ledger, &name, &i) != NGX_OK) {
            return "a record of a key is lost";
        }

        ngx_modelgw_ledger_key_at(w->ledger, i)->rpm.now = k;
    }

    for (k = 0; k < w->ledger->keys.max; k++) {
        name.len = ngx_sprintf(text, "key-%uL", k) - text;

        if (ngx_modelgw_ledger_key(w->ledger, &name, &i) != NGX_OK
            || ngx_modelgw_ledger_key_at(w->ledger, i)->rpm.now != k)
        {
            return "two keys have one record";
        }
    }

    return NULL;
}


static void
child_call(world_t *w, ngx_modelgw_call_e state, int64_t n)
{
    int64_t  available;

    if (call_open(w->ledger, w->worker, w->key, 0, &w->call) != NGX_OK) {
        _exit(1);
    }

    if (state == NGX_MODELGW_CALL_OPEN) {
        w->call->hold = 5 * EURO;
        return;
    }

    w->call->hold = 5 * EURO;
    w->call->estimate = 3;
    w->call->price.input = 1000000000000;
    w->call->price.output = 1000000000000;

    if (call_hold(w->ledger, w->call, w->account, &available) != NGX_OK) {
        _exit(1);
    }

    if (state == NGX_MODELGW_CALL_HELD) {
        return;
    }

    ngx_modelgw_ledger_sent(w->ledger, w->call);

    w->call->seen.status = 200;
    w->call->seen.input = 1;
    w->call->seen.output = n;
    w->call->seen.flags = NGX_MODELGW_SEEN_FINAL;
}


/* A call that waits, for its account and for its key's budget. */

static void
child_claim(world_t *w)
{
    ngx_int_t             rc;
    ngx_modelgw_budget_t  budget = { START, NGX_MODELGW_WINDOW_DAY };

    ngx_modelgw_ledger_lock(w->ledger);
    rc = ngx_modelgw_claim_locked(w->ledger, w->call, w->account, &budget,
                                  TIME, 2000, &w->claim);
    ngx_modelgw_ledger_unlock(w->ledger);

    if (rc != NGX_OK) {
        _exit(1);
    }
}


static void
child_wait(world_t *w)
{
    child_call(w, NGX_MODELGW_CALL_OPEN, 0);
    w->call->hold = 2 * START;
    child_claim(w);
}


static void
child_settle(world_t *w)
{
    call_settle(w->ledger, w->call, NGX_MODELGW_END_COMPLETE, TIME,
                ngx_modelgw_ledger_clock());
}


/* The state left by a worker that was killed before the child begins. */

static void
child_victim(world_t *w)
{
    int        status;
    pid_t      pid;
    ngx_str_t  id;

    pid = fork();

    if (pid == 0) {
        id = unit_str("t");

        if (ngx_modelgw_ledger_join(w->ledger, &w->worker) != NGX_OK) {
            _exit(1);
        }

        child_call(w, NGX_MODELGW_CALL_OPEN, 0);
        child_call(w, NGX_MODELGW_CALL_HELD, 0);
        child_call(w, NGX_MODELGW_CALL_SENT, 4);

        if (w->ledger->claims) {
            child_wait(w);
            _exit(0);
        }

        w->topup = ledger_topup(w->ledger, w->worker, w->account, &id, TOPUP,
                                TIME);
        _exit(w->topup ? 0 : 1);
    }

    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        _exit(1);
    }
}


static void
child_prepare(world_t *w, operation_e op)
{
    u_char               text[32];
    uint32_t             i;
    ngx_str_t            id;
    ngx_uint_t           k;
    ngx_modelgw_call_t  *first, *last;

    id = unit_str("t");

    if (op == SWEEP || op == SWEEP_WAITING) {
        child_victim(w);
    }

    if (op != JOIN
        && ngx_modelgw_ledger_join(w->ledger, &w->worker) != NGX_OK)
    {
        _exit(1);
    }

    switch (op) {

    case HOLD:
    case GIVE_UP:
        child_call(w, NGX_MODELGW_CALL_OPEN, 0);
        break;

    case SENT:
    case RELEASE:
        child_call(w, NGX_MODELGW_CALL_HELD, 0);
        break;

    case PASS_BESIDE:
        child_call(w, NGX_MODELGW_CALL_SENT, 2);
        first = w->call;
        child_call(w, NGX_MODELGW_CALL_SENT, 6);
        last = w->call;
        w->call = first;
        child_settle(w);
        w->call = last;
        break;

    case SETTLE:
    case PASS:
        child_call(w, NGX_MODELGW_CALL_SENT, 6);
        break;

    case LEAVE:
        (void) ledger_topup(w->ledger, w->worker, w->account, &id, TOPUP,
                            TIME);
        break;

    case ANSWER:
        w->topup = ledger_topup(w->ledger, w->worker, w->account, &id, TOPUP,
                                TIME);
        (void) ngx_modelgw_ledger_elect(w->ledger);
        break;

    case WRITE:
        for (k = 0; k < 5; k++) {
            child_call(w, NGX_MODELGW_CALL_SENT, k);
            child_settle(w);
        }
        (void) ngx_modelgw_ledger_elect(w->ledger);
        break;

    case KEY:
        id.data = text;
        for (k = 0; k < w->ledger->keys.max; k++) {
            id.len = ngx_sprintf(text, "old-%ui", k) - text;
            (void) ngx_modelgw_ledger_key(w->ledger, &id, &i);
        }
        ngx_modelgw_ledger_generation(w->ledger);
        break;

    case CLAIM:
        child_call(w, NGX_MODELGW_CALL_OPEN, 0);
        w->call->hold = 2 * START;
        break;

    case TRY:
        child_wait(w);
        w->call->hold = EURO;
        break;

    case LEAVE_WAITING:
        child_wait(w);
        child_settle(w);
        child_wait(w);
        child_settle(w);
        break;

    case END:
    case FREE:
        child_wait(w);
        break;

    case BACK:
        child_call(w, NGX_MODELGW_CALL_SENT, 4);
        ngx_modelgw_ledger_lock(w->ledger);
        ngx_modelgw_lease_recall_locked(w->ledger, &account_fund, 1, TIME);
        ngx_modelgw_ledger_unlock(w->ledger);
        break;

    default:
        break;
    }
}


static void
child_operation(world_t *w, operation_e op)
{
    int64_t                      n, lacks[NGX_MODELGW_FUNDS];
    uint32_t                     i;
    ngx_str_t                    id;
    ngx_modelgw_ask_t            ask;
    ngx_modelgw_ledger_ended_t   ended;

    id = unit_str("t");

    switch (op) {

    case CLAIM:
        child_claim(w);
        break;

    case TRY:
        ngx_modelgw_ledger_lock(w->ledger);
        (void) ngx_modelgw_claim_try_locked(w->ledger, w->claim, TIME, lacks);
        ngx_modelgw_ledger_unlock(w->ledger);
        break;

    case END:
        ngx_modelgw_ledger_lock(w->ledger);
        ngx_modelgw_claim_end_locked(w->ledger, w->claim,
                                     NGX_MODELGW_CLAIM_CREDIT);
        ngx_modelgw_ledger_unlock(w->ledger);
        break;

    case FREE:
        ngx_modelgw_claim_free(w->ledger, w->claim);
        break;

    case BACK:
        ngx_modelgw_ledger_lock(w->ledger);
        (void) ngx_modelgw_lease_ask_locked(w->ledger, &account_fund, TIME,
                                            &ask);
        ngx_modelgw_ledger_unlock(w->ledger);
        break;

    case SAID:
        ngx_modelgw_ledger_lock(w->ledger);
        ngx_modelgw_lease_said_locked(w->ledger, &account_fund, 0,
                                      START + 3 * EURO, EURO, EURO, 0);
        ngx_modelgw_ledger_unlock(w->ledger);
        break;

    case OPEN:
        (void) call_open(w->ledger, w->worker, w->key, 0, &w->call);
        break;

    case HOLD:
        (void) call_hold(w->ledger, w->call, w->account, &n);
        break;

    case SENT:
        ngx_modelgw_ledger_sent(w->ledger, w->call);
        break;

    case SETTLE:
    case RELEASE:
    case GIVE_UP:
    case PASS:
    case PASS_BESIDE:
        child_settle(w);
        break;

    case ASK:
        (void) ledger_topup(w->ledger, w->worker, w->account, &id, TOPUP,
                            TIME);
        break;

    case ANSWER:
        ngx_modelgw_ledger_change_answer(w->ledger, w->topup,
                                        NGX_MODELGW_CHANGE_MADE);
        break;

    case WRITE:
        world_store(w->ledger);
        break;

    case JOIN:
        (void) ngx_modelgw_ledger_join(w->ledger, &w->worker);
        break;

    case LEAVE:
    case LEAVE_WAITING:
        ngx_modelgw_ledger_leave(w->ledger, w->worker);
        break;

    case ACCOUNT:
        (void) ngx_modelgw_ledger_account(w->ledger, &id, 1, 1, 1, 0, &i);
        break;

    case KEY:
        (void) ngx_modelgw_ledger_key(w->ledger, &id, &i);
        break;

    default:
        ngx_memzero(&ended, sizeof(ngx_modelgw_ledger_ended_t));
        (void) ngx_modelgw_ledger_sweep(w->ledger, w->worker, TIME, &ended);
    }
}


/* A child that is stopped just before its operation. */

static pid_t
child_start(world_t *w, operation_e op)
{
    int    status;
    pid_t  pid;

    store->finished = 0;

    pid = fork();
    assert_true(pid >= 0);

    if (pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        child_prepare(w, op);

        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
            _exit(2);
        }

        raise(SIGSTOP);
        child_operation(w, op);
        __atomic_store_n(&store->finished, 1, __ATOMIC_SEQ_CST);
        raise(SIGSTOP);
        _exit(0);
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);

    return pid;
}


/* One instruction; returns 0 when the operation is over. */

static ngx_uint_t
child_step(pid_t pid)
{
    int  status;

    if (store->finished) {
        return 0;
    }

    assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(WSTOPSIG(status), SIGTRAP);

    return 1;
}


static void
child_kill(pid_t pid)
{
    int  status;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}


static const char *
operation_check(world_t *w, operation_e op)
{
    const char  *wrong;

    wrong = world_check(w);

    if (wrong == NULL
        && (w->written < operations[op].min || w->written > operations[op].max))
    {
        wrong = "a call was charged that was not sent, or the other way round";
    }

    if (wrong == NULL && op == KEY) {
        wrong = world_check_keys(w);
    }

    return wrong;
}


/*
 * Steps through an operation and keeps the memory as it is after each
 * instruction that changed it; returns how many those were.
 */

static ngx_uint_t
images_take(world_t *w, operation_e op, pid_t *pid)
{
    ngx_uint_t  n, step;

    n = 0;
    *pid = child_start(w, op);

    for (step = 0; step == 0 || child_step(*pid); step++) {
        assert_true(step < STEPS);

        if (n && ngx_memcmp(images[n - 1].memory, w->ledger, w->size) == 0) {
            continue;
        }

        assert_true(n < IMAGES);
        ngx_memcpy(images[n].memory, w->ledger, w->size);
        images[n++].step = step;
    }

    child_kill(*pid);

    return n;
}


/* What the kernel does with a mutex whose owner exits. */

static void
mutex_bury(pthread_mutex_t *mutex, pid_t pid)
{
    int  *word;

    word = &mutex->__data.__lock;

    if ((*word & FUTEX_TID_MASK) == pid) {
        *word = FUTEX_OWNER_DIED;
    }
}


static ngx_modelgw_ledger_t *
image_restore(world_t *w, ngx_uint_t i, pid_t pid)
{
    ngx_uint_t             k;
    ngx_modelgw_ledger_t  *l;

    l = w->ledger;
    ngx_memcpy(l, images[i].memory, w->size);

    mutex_bury(&l->redo.mutex, pid);
    mutex_bury(&l->writer, pid);

    for (k = 0; k < l->nworkers; k++) {
        mutex_bury(&l->workers[k].life, pid);
    }

    return l;
}


/*
 * Continues from each of those images as if the child had been killed there;
 * "forget": only from those with a committed change, which is discarded.
 * Returns how many checks have failed.
 */

static ngx_uint_t
images_check(world_t *world, operation_e op, ngx_uint_t n, pid_t pid,
    ngx_uint_t forget, ngx_uint_t *checked)
{
    int64_t                stored[64];
    world_t                w;
    ngx_uint_t             i, failed;
    const char            *wrong;
    ngx_modelgw_ledger_t  *l;

    failed = 0;

    /* ids begin with 1 each time: what the child itself has stored */

    ngx_memcpy(stored, store->stored, sizeof(stored));

    for (i = 0; i < n; i++) {
        w = *world;
        l = image_restore(&w, i, pid);

        images[i].committed = (l->redo.committed != 0);

        if (forget && !images[i].committed) {
            continue;
        }

        if (forget) {
            l->redo.committed = 0;
        }

        ngx_memcpy(store->stored, stored, sizeof(stored));

        wrong = operation_check(&w, op);
        (*checked)++;

        if (wrong) {
            failed++;
        }

        if (wrong && !forget) {
            print_error("%s, killed after instruction %d: %s\n",
                        operations[op].name, (int) images[i].step, wrong);
        }
    }

    return failed;
}


/* The same with a child that is really killed after that instruction. */

static void
kill_at(operation_e op, ngx_uint_t step)
{
    pid_t        pid;
    world_t      w;
    ngx_uint_t   i;
    const char  *wrong;

    world_create(&w, operations[op].kind);
    pid = child_start(&w, op);

    for (i = 0; i < step && child_step(pid); i++) { /* void */ }

    child_kill(pid);

    wrong = operation_check(&w, op);

    if (wrong) {
        print_error("%s, really killed after instruction %d: %s\n",
                    operations[op].name, (int) step, wrong);
        fail();
    }

    world_destroy(&w);
}


static void
test_steps(void **state)
{
    pid_t       pid;
    world_t     w;
    ngx_uint_t  i, k, n, total, failed, killed, every;

    total = 0;
    failed = 0;
    killed = 0;

    for (i = 0; i < OPERATIONS; i++) {
        world_create(&w, operations[i].kind);

        n = images_take(&w, i, &pid);
        assert_true(n > 1);
        failed += images_check(&w, i, n, pid, 0, &total);

        world_destroy(&w);

        every = n / kills(2) + 1;

        for (k = every - 1; k < n; k += every) {
            kill_at(i, images[k].step);
            killed++;
        }
    }

    print_message("%d states after an instruction, really killed %d times\n",
                  (int) total, (int) killed);

    assert_int_equal(failed, 0);
    assert_true(total > 20 * OPERATIONS);
}


/* Without the replay of what was committed, the checks above fail. */

static void
test_control(void **state)
{
    pid_t               pid;
    world_t             w;
    ngx_uint_t          i, n, total, failed;

    static operation_e  all[] = { OPEN, HOLD, SENT, SETTLE, RELEASE, GIVE_UP,
                                  PASS_BESIDE, ANSWER, WRITE, SWEEP, CLAIM,
                                  TRY, END, FREE, BACK, SAID,
                                  LEAVE_WAITING, SWEEP_WAITING };

    for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        world_create(&w, operations[all[i]].kind);

        total = 0;
        n = images_take(&w, all[i], &pid);
        failed = images_check(&w, all[i], n, pid, 1, &total);

        world_destroy(&w);

        print_message("%s: %d of %d lost changes are seen\n",
                      operations[all[i]].name, (int) failed, (int) total);

        assert_true(total > 0);
        assert_true(failed > 0);
    }
}


static uint64_t
dice(uint64_t n)
{
    static uint64_t  x;

    if (x == 0) {
        x = 88172645463325252 ^ ((uint64_t) getpid() << 20);
    }

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;

    return x % n;
}


/* Works until it is killed; one of them is the writer besides. */

static void
child_work(world_t *w, ngx_uint_t writer)
{
    int64_t    available;
    ngx_str_t  id;

    id = unit_str("t");

    if (ngx_modelgw_ledger_join(w->ledger, &w->worker) != NGX_OK) {
        _exit(1);
    }

    if (writer) {
        (void) ngx_modelgw_ledger_elect(w->ledger);
    }

    __atomic_add_fetch(&store->ready, 1, __ATOMIC_SEQ_CST);

    for ( ;; ) {

        if (writer && dice(3) == 0) {
            world_store(w->ledger);
        }

        if (dice(8) == 0) {
            w->topup = ledger_topup(w->ledger, w->worker, w->account, &id,
                                    TOPUP, TIME);
            if (w->topup) {
                ngx_modelgw_ledger_change_free(w->ledger, w->topup);
            }
        }

        if (call_open(w->ledger, w->worker, w->key, 0, &w->call) != NGX_OK) {
            continue;
        }

        w->call->hold = dice(2);
        w->call->estimate = dice(100);
        w->call->price.input = 1000;

        if (dice(8) == 0
            || call_hold(w->ledger, w->call, w->account, &available)
               != NGX_OK)
        {
            child_settle(w);
            continue;
        }

        if (dice(8)) {
            ngx_modelgw_ledger_sent(w->ledger, w->call);
            w->call->seen.status = 200;
            w->call->seen.output = dice(100);
            w->call->seen.flags = NGX_MODELGW_SEEN_FINAL;
        }

        child_settle(w);
    }
}


static pid_t
child_worker(world_t *w, ngx_uint_t writer)
{
    pid_t  pid;

    pid = fork();
    assert_true(pid >= 0);

    if (pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        child_work(w, writer);
    }

    return pid;
}


static void
pause_for(long usec)
{
    struct timespec  ts;

    ts.tv_sec = 0;
    ts.tv_nsec = usec * 1000;

    (void) nanosleep(&ts, NULL);
}


static void
test_random(void **state)
{
    pid_t                        a, b;
    world_t                      w;
    ngx_uint_t                   i, n, torn, written;
    const char                  *wrong;
    ngx_modelgw_ledger_ended_t   ended;

    world_create(&w, 1);
    n = kills(160);
    torn = 0;
    written = 0;

    for (i = 0; i < n; i++) {
        store->ready = 0;
        a = child_worker(&w, i & 1);
        b = child_worker(&w, !(i & 1));

        while (__atomic_load_n(&store->ready, __ATOMIC_SEQ_CST) < 2) {
            sched_yield();
        }

        pause_for(dice(1000));

        /* one is swept up while the other works */

        child_kill(a);
        ngx_memzero(&ended, sizeof(ngx_modelgw_ledger_ended_t));
        (void) ngx_modelgw_ledger_sweep(w.ledger, w.self, TIME, &ended);

        pause_for(dice(500));
        child_kill(b);

        torn += (w.ledger->redo.committed != 0);
        wrong = world_check(&w);
        written += w.written;

        if (wrong) {
            print_error("round %d: %s\n", (int) i, wrong);
            fail();
        }
    }

    print_message("killed %d times, %d of the second ones in a change;"
                  " %d calls\n", (int) (2 * n), (int) torn, (int) written);
    assert_true(written > n);

    world_destroy(&w);
}


int
main(void)
{
    int  rc;

    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_control),
        cmocka_unit_test(test_random),
    };

    alarm(kills(0) ? 3600 : SECONDS);

    store = mmap(NULL, sizeof(store_t), PROT_READ|PROT_WRITE,
                 MAP_SHARED|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);
    images = malloc(IMAGES * sizeof(image_t));

    if (store == MAP_FAILED || images == NULL) {
        return 1;
    }

    rc = cmocka_run_group_tests(tests, NULL, NULL);

    free(images);

    return rc;
}
