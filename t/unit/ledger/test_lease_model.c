
/*
 * Three nodes with ledgers of a cluster, and a database that does what the
 * statements of an exchange do, for random steps: calls, exchanges whose
 * answers are lost or which are applied late, nodes that are killed and start
 * from their journal, one that is written off while it runs, a standby that
 * lags and is promoted.
 *
 * After each step, of an account and of a key's budget:
 *
 *     I1  what was spent and is held is not more than there is, but for what a
 *         promotion has lost, a write-off has taken, or calls cost beyond their
 *         holds
 *     I2  what is free and what is lent is what there is
 *     I3  what the database has as spent is the journal up to its position
 *
 * And from there, without further faults (then the state is restored):
 *
 *     L1  when all calls have ended and nobody wants anything, all is free but
 *         what was spent
 *     L2  a call that waits is held if all nodes together cover it, and only
 *         then
 *     L3  of calls that wait at all nodes at once, one is held if it is covered
 *
 * Nodes that make one of these mistakes do not pass: STEPS=n for n steps a
 * world (400), WORLDS=n (60).
 */


#include "unit_ledger.h"
#include "ngx_modelgw_lease.h"

#include <stdlib.h>


#define NODES      3
#define FUNDS      NGX_MODELGW_FUNDS
#define ACCOUNT    NGX_MODELGW_FUND_ACCOUNT
#define BUDGET     NGX_MODELGW_FUND_BUDGET
#define TOTAL      NGX_MODELGW_WINDOW_TOTAL
#define CALLS      8                     /* in flight, of a node */
#define ROWS       4096
#define HOLD       10
#define CREDIT     60
#define RECALL     NGX_MODELGW_LEASE_RECALL
#define ROUNDS     60
#define ROUND      40                    /* ms */
#define SIZE       (128 * 1024)
#define ENDS       ((uint64_t) -1)       /* of the budget's window */


/* mistakes that a node could make */

typedef enum {
    RIGHT = 0,
    DELTA,                               /* says what it gives back now, not in
                                            all */
    RETURN_LATE,                         /* writes into the journal what it has
                                            given back when that is answered;
                                            what the journal says, counts */
    KEEP_PARKED,                         /* keeps what a waiting call has, when
                                            it answers a recall */
    GREEDY,                              /* borrows in advance during a recall */
    MAX_GRANT,                           /* does not believe that a grant was
                                            lost */
    MISTAKES
} mistake_e;


typedef struct {
    int64_t                   granted;
    int64_t                   returned;
    int64_t                   forced;
    int64_t                   spent;
    uint64_t                  answered;
} db_lease_t;

typedef struct {
    uint64_t                  epoch;
    uint64_t                  pos;
    db_lease_t                leases[FUNDS];
} db_node_t;

typedef struct {
    int64_t                   free;
    uint64_t                  recall;
    uint64_t                  until;
} db_fund_t;

typedef struct {
    db_fund_t                 funds[FUNDS];
    db_node_t                 nodes[NODES];
} db_t;


typedef struct {
    ngx_uint_t                set;
    uint64_t                  epoch;
    uint64_t                  from;
    uint64_t                  to;
    ngx_uint_t                n;
    ngx_modelgw_ask_t         asks[FUNDS];
} request_t;

typedef struct {
    ngx_uint_t                set;
    ngx_uint_t                fenced;
    db_lease_t                leases[FUNDS];
    ngx_modelgw_claim_said_t  said[FUNDS];
    uint64_t                  recalls[FUNDS];
} answer_t;


typedef struct {
    ngx_modelgw_call_t       *call;
    ngx_modelgw_claim_t      *claim;
    ngx_uint_t                keyed;
    ngx_uint_t                sent;
} flight_t;

typedef struct {
    ngx_modelgw_ledger_t     *ledger;
    uint64_t                  process;
    ngx_uint_t                joined;
    uint64_t                  epoch;
    uint64_t                  pos;
    request_t                 request;
    request_t                 late;      /* of a connection that was lost */
    answer_t                  answer;
    flight_t                  calls[CALLS];

    /* the journal: sums of the costs of the first n calls, and the leases */

    uint64_t                  rows;
    int64_t                   sums[ROWS][FUNDS];
    db_lease_t                leases[FUNDS];
} node_t;


typedef struct {
    db_t                      db;
    db_t                      standby;
    node_t                    nodes[NODES];
    uint64_t                  time;
    int64_t                   all[FUNDS];
    int64_t                   slack[FUNDS]; /* that I1 allows */
    ngx_uint_t                exact;     /* nothing was lost or written off */
} world_t;


static world_t              world, kept;
static u_char              *images;
static mistake_e            mistake;
static const char          *wrong;

static ngx_modelgw_fund_t   funds[FUNDS] = { { ACCOUNT, 0 }, { BUDGET, 0 } };
static ngx_modelgw_budget_t limits[2] = { { 0, 0 }, { CREDIT, TOTAL } };


static uint64_t
dice(uint64_t n)
{
    static uint64_t  x = 88172645463325252;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;

    return x % n;
}


static ngx_uint_t
number(const char *name, ngx_uint_t n)
{
    return getenv(name) ? (ngx_uint_t) atoi(getenv(name)) : n;
}


/* what went wrong first; VERBOSE=1 shows where */

static void
fault(const char *what)
{
    ngx_uint_t            i, k;
    db_lease_t           *d;
    ngx_modelgw_lease_t  *lease;

    if (wrong) {
        return;
    }

    wrong = what;

    for (i = 0; i < FUNDS && number("VERBOSE", 0); i++) {
        print_message("%s: all %d, slack %d, free %d, recall %d\n",
                      i == ACCOUNT ? "account" : "budget", (int) world.all[i],
                      (int) world.slack[i], (int) world.db.funds[i].free,
                      (int) world.db.funds[i].recall);

        for (k = 0; k < NODES; k++) {
            d = &world.db.nodes[k].leases[i];
            lease = ngx_modelgw_lease(world.nodes[k].ledger, &funds[i]);

            print_message("  database: granted %d, returned %d, forced %d, "
                          "spent %d, answered %d; node: granted %d, "
                          "returned %d, forced %d, claims %d\n",
                          (int) d->granted, (int) d->returned,
                          (int) d->forced, (int) d->spent, (int) d->answered,
                          (int) lease->granted, (int) lease->returned,
                          (int) lease->forced, (int) lease->claims);
        }
    }
}


/* A process starts from the journal. */

static void
node_start(node_t *node)
{
    uint32_t               key, account;
    ngx_str_t              name;
    ngx_uint_t             i;
    db_lease_t            *d;
    ngx_modelgw_ledger_t  *l;

    d = &node->leases[ACCOUNT];

    if (node->ledger) {
        ngx_memzero(node->ledger, SIZE);
        l = ngx_modelgw_ledger_create(node->ledger, SIZE, 1,
                                      NGX_MODELGW_LEDGER_CLUSTER);
        assert_non_null(l);

    } else {
        l = ledger_create(SIZE, 1, NGX_MODELGW_LEDGER_CLUSTER);
    }

    node->ledger = l;
    node->process++;
    node->joined = 0;
    node->request.set = 0;
    node->answer.set = 0;

    ngx_memzero(node->calls, sizeof(node->calls));

    name = unit_str("alice");
    assert_int_equal(ngx_modelgw_ledger_account(l, &name, 1,
                               d->granted - d->returned - d->forced
                               - node->sums[node->rows][ACCOUNT], 1, 1,
                               &account),
                     NGX_DONE);

    name = unit_str("k");
    key = ledger_key(l, "k");

    for (i = 0; i < FUNDS; i++) {
        d = &node->leases[i];
        ngx_modelgw_lease_load(l, &funds[i], d->granted, d->returned,
                               d->forced, (i == BUDGET) ? TOTAL : 0,
                               (i == BUDGET) ? ENDS : 0);
    }

    assert_int_equal(ngx_modelgw_ledger_budget_set(l, key, TOTAL), 1);

    ngx_modelgw_ledger_lock(l);
    ngx_modelgw_ledger_budget_begin_locked(l, key, world.time);
    ngx_modelgw_ledger_unlock(l);

    ngx_modelgw_ledger_budget_add(l, &name, TOTAL,
                                  node->sums[node->rows][BUDGET]);
    ngx_modelgw_ledger_budget_known(l, key);
}


static void
world_create(void)
{
    ngx_uint_t             i;
    ngx_modelgw_ledger_t  *l;

    for (i = 0; i < NODES; i++) {
        l = world.nodes[i].ledger;
        ngx_memzero(&world.nodes[i], sizeof(node_t));
        world.nodes[i].ledger = l;
    }

    ngx_memzero(&world.db, sizeof(db_t));
    ngx_memzero(world.slack, sizeof(world.slack));

    world.time = TIME;
    world.exact = 1;

    for (i = 0; i < FUNDS; i++) {
        world.all[i] = CREDIT / 2 + dice(CREDIT);
        world.db.funds[i].free = world.all[i];
    }

    world.standby = world.db;

    for (i = 0; i < NODES; i++) {
        node_start(&world.nodes[i]);
    }
}


static void
row_add(node_t *node, ngx_uint_t keyed, int64_t cost)
{
    int64_t  *before, *sums;

    assert_true(node->rows < ROWS - 1);

    before = node->sums[node->rows++];
    sums = node->sums[node->rows];

    sums[ACCOUNT] = before[ACCOUNT] + cost;
    sums[BUDGET] = before[BUDGET] + (keyed ? cost : 0);
}


/* The writer: what has ended becomes durable. */

static void
node_write(node_t *node)
{
    uint64_t              i, n;
    ngx_modelgw_call_t   *call;

    n = ngx_modelgw_ledger_done_count(node->ledger);

    for (i = 0; i < n; i++) {
        call = ngx_modelgw_ledger_done(node->ledger, i);

        row_add(node, call->key != NONE, call->charge.cost);
        ngx_modelgw_lease_used(node->ledger, call, world.time);
    }

    ngx_modelgw_ledger_noted(node->ledger,
                             ngx_modelgw_ledger_held_count(node->ledger));
    ngx_modelgw_ledger_written(node->ledger, n);
}


static flight_t *
node_call(node_t *node, ngx_uint_t used)
{
    ngx_uint_t  i;
    flight_t   *f;

    for (i = 0; i < CALLS; i++) {
        f = &node->calls[(i + node->rows) % CALLS];

        if ((f->call != NULL) == used && (!used || f->claim == NULL)) {
            return f;
        }
    }

    return NULL;
}


/* A call begins: it is held, or waits; returns its claim. */

static ngx_modelgw_claim_t *
call_begin(node_t *node, int64_t hold, ngx_uint_t keyed)
{
    int64_t                     n;
    flight_t                   *f;
    ngx_int_t                   rc;
    ngx_modelgw_ledger_t       *l;
    ngx_modelgw_ledger_left_t   left;

    l = node->ledger;
    f = node_call(node, 0);

    if (f == NULL) {
        return NULL;
    }

    f->call = ledger_open(l, 0, keyed ? 0 : NONE);
    f->call->hold = hold;
    f->call->price.output = 1000;
    f->keyed = keyed;
    f->claim = NULL;
    f->sent = 0;

    ngx_modelgw_ledger_lock(l);

    rc = keyed ? ngx_modelgw_ledger_budget_locked(l, f->call, &limits[1],
                                                  world.time, &left)
               : NGX_OK;

    if (rc == NGX_OK) {
        rc = ngx_modelgw_ledger_hold_locked(l, f->call, 0, &n);
    }

    if (rc == NGX_DECLINED) {
        rc = ngx_modelgw_claim_locked(l, f->call, 0, &limits[keyed],
                                      world.time, 2000, &f->claim);
    }

    ngx_modelgw_ledger_unlock(l);

    assert_int_equal(rc, NGX_OK);

    return f->claim;
}


static void
call_end(node_t *node, flight_t *f, int64_t cost)
{
    if (f->claim) {
        ngx_modelgw_claim_free(node->ledger, f->claim);
        f->claim = NULL;

    } else {
        ngx_modelgw_ledger_sent(node->ledger, f->call);
        f->call->seen.status = 200;
        f->call->seen.input = 0;
        f->call->seen.output = cost;
        f->call->seen.flags = NGX_MODELGW_SEEN_FINAL;
    }

    call_settle(node->ledger, f->call, NGX_MODELGW_END_COMPLETE, world.time, 0);
    f->call = NULL;
}


/* The workers: calls that waited go on, or are refused. */

static void
node_poll(node_t *node)
{
    ngx_uint_t   i;
    flight_t    *f;

    for (i = 0; i < CALLS; i++) {
        f = &node->calls[i];

        if (f->call == NULL || f->claim == NULL
            || f->claim->state == NGX_MODELGW_CLAIM_ASKED)
        {
            continue;
        }

        if (f->claim->state == NGX_MODELGW_CLAIM_HELD) {
            ngx_modelgw_claim_free(node->ledger, f->claim);
            f->claim = NULL;

        } else {
            call_end(node, f, 0);
        }
    }
}


/* Everything is killed: calls that were held are found in the journal. */

static void
node_kill(node_t *node)
{
    ngx_uint_t           i;
    ngx_modelgw_call_t  *call;

    node_write(node);

    for (i = 0; i < CALLS; i++) {
        call = node->calls[i].call;

        if (call && node->calls[i].claim == NULL && dice(3)) {
            row_add(node, node->calls[i].keyed, dice(call->hold + 1));
        }
    }

    if (node->request.set && !node->answer.set && dice(2)) {
        node->late = node->request;
    }

    node_start(node);
}


/* What the database does with what it is asked, in one transaction. */

static void
db_money(db_t *db, ngx_uint_t n, ngx_modelgw_ask_t *ask, answer_t *a)
{
    int64_t                    returned, rest, cover, plus;
    uint64_t                   no;
    ngx_uint_t                 i, pending, brief;
    db_fund_t                 *f;
    db_lease_t                *d;
    ngx_modelgw_claim_said_t  *said;

    f = &db->funds[ask->fund.kind];
    d = &db->nodes[n].leases[ask->fund.kind];
    said = &a->said[ask->fund.kind];

    returned = (mistake == DELTA) ? d->returned + ask->returned
                                  : ngx_max(ask->returned, d->returned);
    pending = (f->until > world.time && mistake != GREEDY);

    rest = f->free + returned - d->returned;
    cover = ngx_max(d->spent + returned + d->forced - d->granted, 0);
    brief = (ask->need > 0 && rest - cover < ask->need);
    plus = cover;

    if (!brief) {
        plus += ask->need;
    }

    if (!brief && !pending) {
        plus += ngx_min(ask->want, ngx_max(rest - cover - ask->need, 0)
                                   / (2 * NODES));
    }

    f->free = rest - plus;
    f->recall += (brief && ask->recall == 0);

    if (brief) {
        f->until = world.time + RECALL;
    }

    d->granted += plus;
    d->returned = returned;
    no = ngx_min(ask->answered, f->recall);
    d->answered = ngx_max(d->answered, no);

    ngx_memzero(said, sizeof(ngx_modelgw_claim_said_t));

    said->brief = brief;
    said->free = f->free;
    said->recall = f->recall;
    no = ask->recall ? ask->recall : f->recall;

    for (i = 0; i < NODES; i++) {
        if (i != n && db->nodes[i].leases[ask->fund.kind].answered < no) {
            said->silent++;
        }
    }
}


static void
db_apply(ngx_uint_t n, request_t *r, answer_t *a)
{
    node_t      *node;
    ngx_uint_t   i;
    db_node_t   *d;

    ngx_memzero(a, sizeof(answer_t));
    a->set = 1;

    d = &world.db.nodes[n];
    node = &world.nodes[n];

    if (d->epoch != r->epoch || d->pos != r->from) {
        a->fenced = 1;
        return;
    }

    for (i = 0; i < FUNDS; i++) {
        d->leases[i].spent += node->sums[r->to][i] - node->sums[r->from][i];
    }

    d->pos = r->to;

    for (i = 0; i < r->n; i++) {
        db_money(&world.db, n, &r->asks[i], a);
    }

    for (i = 0; i < FUNDS; i++) {
        a->leases[i] = d->leases[i];

        if (world.db.funds[i].until > world.time
            && d->leases[i].answered < world.db.funds[i].recall)
        {
            a->recalls[i] = world.db.funds[i].recall;
        }
    }
}


static void
node_said(node_t *node, ngx_uint_t fund, db_lease_t *d)
{
    int64_t               granted, returned;
    ngx_modelgw_lease_t  *lease;

    lease = ngx_modelgw_lease(node->ledger, &funds[fund]);
    granted = d->granted;
    returned = d->returned;

    if (mistake == MAX_GRANT) {
        granted = ngx_max(granted, lease->granted);
    }

    if (mistake == DELTA || mistake == RETURN_LATE) {
        returned = lease->returned;
    }

    ngx_modelgw_ledger_lock(node->ledger);
    ngx_modelgw_lease_said_locked(node->ledger, &funds[fund],
                                  (fund == BUDGET) ? ENDS : 0, granted,
                                  returned, d->forced, 0);
    ngx_modelgw_ledger_unlock(node->ledger);
}


static void
node_join(node_t *node, ngx_uint_t n)
{
    ngx_uint_t   i;
    db_node_t   *d;

    d = &world.db.nodes[n];

    /*
     * Not only of a new process: else what was said on the old connection could
     * still be granted after this, and the node would not hear of it before it
     * says something of the fund again.
     */

    node->epoch = ++d->epoch;
    node->pos = d->pos;
    node->joined = 2;

    for (i = 0; i < FUNDS; i++) {
        node_said(node, i, &d->leases[i]);
    }
}


static void
node_journal(node_t *node, ngx_modelgw_ask_t *ask)
{
    db_lease_t  *d;

    d = &node->leases[ask->fund.kind];

    d->granted = ask->granted;
    d->returned = ask->returned;
    d->forced = ask->forced;
}


/* Asks for a fund as the mistake has it. */

static ngx_int_t
node_ask(node_t *node, ngx_modelgw_fund_t *fund, ngx_modelgw_ask_t *ask)
{
    int64_t                returned;
    uint64_t               recall;
    ngx_int_t              rc;
    ngx_modelgw_lease_t   *lease;

    lease = ngx_modelgw_lease(node->ledger, fund);
    recall = 0;
    returned = lease->returned;

    if (mistake == KEEP_PARKED && lease->claims) {
        recall = lease->recall;
        lease->recall = 0;
    }

    if (mistake == GREEDY) {
        lease->recalled = 0;
    }

    ngx_modelgw_ledger_lock(node->ledger);
    rc = ngx_modelgw_lease_ask_locked(node->ledger, fund, world.time, ask);
    ngx_modelgw_ledger_unlock(node->ledger);

    if (recall) {
        ask->answered = recall;
        rc = NGX_OK;
    }

    if (mistake == DELTA) {
        ask->returned -= returned;
    }

    return rc;
}


/* An exchange begins; it may be killed on the way. */

static void
node_send(node_t *node, ngx_uint_t faults)
{
    ngx_uint_t          i;
    request_t          *r;
    ngx_modelgw_ask_t  *ask;

    r = &node->request;

    r->n = 0;

    for (i = 0; i < FUNDS; i++) {
        ask = &r->asks[r->n];

        if (node_ask(node, &funds[i], ask) != NGX_OK) {
            continue;
        }

        r->n++;

        if (faults && dice(200) == 0) {
            node_kill(node);
            return;
        }

        if (ask->back && mistake != RETURN_LATE) {
            node_journal(node, ask);
        }
    }

    r->set = 1;
    r->epoch = node->epoch;
    r->from = node->pos;
    r->to = node->rows;
}


static void
node_receive(node_t *node)
{
    ngx_uint_t           i;
    request_t           *r;
    ngx_modelgw_ask_t   *ask;
    ngx_modelgw_fund_t  *fund;

    r = &node->request;

    r->set = 0;
    node->answer.set = 0;

    if (node->answer.fenced) {
        node->joined = ngx_min(node->joined, 1);
        return;
    }

    node->pos = r->to;

    for (i = 0; i < r->n; i++) {
        ask = &r->asks[i];
        fund = &ask->fund;

        if (ask->back && mistake == RETURN_LATE) {
            node_journal(node, ask);
        }

        node_said(node, fund->kind, &node->answer.leases[fund->kind]);

        ngx_modelgw_ledger_lock(node->ledger);
        (void) ngx_modelgw_claim_said_locked(node->ledger, ask,
                                             &node->answer.said[fund->kind],
                                             world.time);
        ngx_modelgw_ledger_unlock(node->ledger);
    }

    for (i = 0; i < FUNDS; i++) {
        if (node->answer.recalls[i]) {
            ngx_modelgw_ledger_lock(node->ledger);
            ngx_modelgw_lease_recall_locked(node->ledger, &funds[i],
                                            node->answer.recalls[i],
                                            world.time);
            ngx_modelgw_ledger_unlock(node->ledger);
        }
    }

    node_poll(node);
}


/* One exchange without faults, from whatever it is in the middle of. */

static void
node_round(ngx_uint_t n)
{
    node_t  *node;

    node = &world.nodes[n];
    node_write(node);

    if (node->request.set && !node->answer.set) {
        db_apply(n, &node->request, &node->answer);
    }

    if (node->answer.set) {
        node_receive(node);
    }

    if (node->joined < 2) {
        node_join(node, n);
    }

    node_send(node, 0);
    db_apply(n, &node->request, &node->answer);
    node_receive(node);
}


static int64_t
node_available(node_t *node, ngx_uint_t fund)
{
    int64_t  n;

    ngx_modelgw_ledger_lock(node->ledger);
    n = ngx_modelgw_lease_available_locked(node->ledger, &funds[fund],
                                           world.time);
    ngx_modelgw_ledger_unlock(node->ledger);

    return n;
}


/* spent and held, of this node */

static int64_t
node_used(node_t *node, ngx_uint_t fund)
{
    ngx_modelgw_lease_t  *lease;

    lease = ngx_modelgw_lease(node->ledger, &funds[fund]);

    return lease->granted - lease->returned - lease->forced
           - node_available(node, fund);
}


static void
check_always(void)
{
    int64_t      used, sum;
    node_t      *node;
    db_node_t   *d;
    ngx_uint_t   i, k;

    for (i = 0; i < FUNDS; i++) {
        used = 0;
        sum = world.db.funds[i].free;

        for (k = 0; k < NODES; k++) {
            node = &world.nodes[k];
            d = &world.db.nodes[k];

            used += node_used(node, i);
            sum += d->leases[i].granted - d->leases[i].returned
                   - d->leases[i].forced;

            if (d->pos > node->rows
                || d->leases[i].spent != node->sums[d->pos][i])
            {
                fault("I3 what is charged differs from the journal");
            }
        }

        if (used > world.all[i] + world.slack[i]) {
            fault("I1 overspent");
        }

        if (sum != world.all[i]) {
            fault("I2 money was lost or made");
        }
    }
}


static void
world_keep(void)
{
    ngx_uint_t  i;

    kept = world;

    for (i = 0; i < NODES; i++) {
        ngx_memcpy(images + i * SIZE, world.nodes[i].ledger, SIZE);
    }
}


static void
world_restore(void)
{
    ngx_uint_t  i;

    world = kept;

    for (i = 0; i < NODES; i++) {
        ngx_memcpy(world.nodes[i].ledger, images + i * SIZE, SIZE);
    }
}


/* Rounds of all nodes, without calls that wait, until all has settled. */

static void
world_quiet(void)
{
    ngx_uint_t   i, k;
    flight_t    *f;

    for (i = 0; i < NODES; i++) {
        world.nodes[i].late.set = 0;

        for (k = 0; k < CALLS; k++) {
            f = &world.nodes[i].calls[k];

            if (f->call && f->claim) {
                call_end(&world.nodes[i], f, 0);
            }
        }
    }

    for (k = 0; k < 6; k++) {
        for (i = 0; i < NODES; i++) {
            node_round(i);
        }
    }

    world.time += RECALL + 1;
}


static void
check_empty(void)
{
    int64_t      spent, lent;
    node_t      *node;
    ngx_uint_t   i, k, leave;
    db_lease_t  *d;

    leave = dice(2);

    for (i = 0; i < NODES; i++) {
        for (k = 0; k < CALLS; k++) {
            if (world.nodes[i].calls[k].call) {
                call_end(&world.nodes[i], &world.nodes[i].calls[k], dice(3));
            }
        }
    }

    world_quiet();

    if (!leave) {
        world.time += NGX_MODELGW_LEASE_IDLE;
    }

    for (k = 0; k < 6; k++) {
        for (i = 0; i < NODES; i++) {
            node = &world.nodes[i];

            if (leave) {
                ngx_modelgw_lease_leave_locked(node->ledger, &funds[ACCOUNT]);
                ngx_modelgw_lease_leave_locked(node->ledger, &funds[BUDGET]);
            }

            node_round(i);
        }
    }

    for (i = 0; i < FUNDS; i++) {
        spent = 0;
        lent = 0;

        for (k = 0; k < NODES; k++) {
            node = &world.nodes[k];
            d = &world.db.nodes[k].leases[i];

            spent += node->sums[node->rows][i];
            lent |= d->granted - d->returned - d->forced - d->spent;
        }

        if (world.db.funds[i].free != world.all[i] - spent) {
            fault("L1 credit is lost or made");
        }

        if (lent) {
            fault("L1 a lease is not empty");
        }
    }
}


/* A call that waits; also where another one waits, if "all" is set. */

static void
check_waiting(ngx_uint_t all)
{
    int64_t               sums[FUNDS], hold, held[NODES];
    ngx_uint_t            i, k, n, who, keyed, waiting, admitted, covered;
    ngx_modelgw_claim_t  *claim;

    world_quiet();

    who = dice(NODES);
    keyed = all ? 0 : dice(2);
    hold = 1 + dice(HOLD);
    n = 0;

    for (k = 0; k < FUNDS; k++) {
        sums[k] = world.db.funds[k].free;

        for (i = 0; i < NODES; i++) {
            sums[k] += node_available(&world.nodes[i], k);
        }
    }

    for (i = 0; i < NODES; i++) {
        held[i] = ngx_modelgw_ledger_account_at(world.nodes[i].ledger, 0)->held;

        if (i != who && !all) {
            continue;
        }

        if (node_call(&world.nodes[i], 0) == NULL) {
            return;
        }

        claim = call_begin(&world.nodes[i], hold, keyed);

        if (claim == NULL) {
            return;
        }

        n++;
    }

    waiting = n;

    for (k = 0; k < ROUNDS && waiting; k++) {
        for (i = 0; i < NODES; i++) {
            node_round(i);
        }

        waiting = 0;
        world.time += ROUND;

        for (i = 0; i < NODES; i++) {
            waiting += ngx_modelgw_node(world.nodes[i].ledger)->waiting;
        }
    }

    admitted = 0;

    for (i = 0; i < NODES; i++) {
        admitted += (ngx_modelgw_ledger_account_at(world.nodes[i].ledger,
                                                   0)->held > held[i]);
    }

    covered = (sums[ACCOUNT] >= hold && (!keyed || sums[BUDGET] >= hold));

    if (waiting) {
        fault("L2, L3 a call waits for ever");
    }

    if (covered && !admitted) {
        fault(all ? "L3 all are refused, though one is covered"
                  : "L2 refused although there is credit");
    }

    if (!covered && admitted && world.exact) {
        fault("L2 held without credit");
    }
}


static void
check_later(void)
{
    world_keep();
    check_empty();
    world_restore();

    check_waiting(0);
    world_restore();

    check_waiting(1);
    world_restore();
}


/* An operator writes the node off; it runs on. */

static void
world_force(ngx_uint_t n)
{
    int64_t      left;
    ngx_uint_t   i;
    db_lease_t  *d;

    for (i = 0; i < FUNDS; i++) {
        d = &world.db.nodes[n].leases[i];
        left = d->granted - d->returned - d->forced - d->spent;

        if (left > 0) {
            d->forced += left;
            world.db.funds[i].free += left;
            world.slack[i] += left;
        }
    }

    world.db.nodes[n].epoch++;
    world.exact = 0;
}


/* The standby is promoted: what it does not have is lost. */

static void
world_promote(void)
{
    int64_t      lost;
    node_t      *node;
    ngx_uint_t   i, k;

    for (k = 0; k < NODES; k++) {
        node = &world.nodes[k];

        for (i = 0; i < FUNDS; i++) {
            lost = world.db.nodes[k].leases[i].granted
                   - world.standby.nodes[k].leases[i].granted;
            world.slack[i] += ngx_max(lost, 0);
        }

        node->late.set = 0;
        node->request.set = 0;
        node->answer.set = 0;
        node->joined = ngx_min(node->joined, 1);
    }

    world.db = world.standby;
    world.exact = 0;
}


/* An exchange, by parts. */

static void
step_exchange(ngx_uint_t n)
{
    node_t  *node;

    node = &world.nodes[n];

    if (node->joined < 2) {
        if (!node->request.set) {
            node_join(node, n);

            if (dice(8) == 0) {
                node->joined = 0;        /* the answer was lost */
            }
        }

    } else if (node->answer.set) {
        node_receive(node);

    } else if (node->request.set) {
        db_apply(n, &node->request, &node->answer);

    } else {
        node_send(node, 1);
    }
}


/* A connection breaks; what was said on it may be applied later. */

static void
step_lose(node_t *node)
{
    if (!node->request.set) {
        return;
    }

    if (!node->answer.set && dice(2)) {
        node->late = node->request;
    }

    node->request.set = 0;
    node->answer.set = 0;
    node->joined = ngx_min(node->joined, 1);
}


static void
step_calls(node_t *node)
{
    int64_t    cost;
    flight_t  *f;

    if (dice(2)) {
        (void) call_begin(node, 1 + dice(HOLD), dice(2));
        return;
    }

    f = node_call(node, 1);

    if (f) {
        cost = dice(f->call->hold + 1);

        if (dice(60) == 0) {
            cost = f->call->hold + dice(5);
            world.slack[ACCOUNT] += cost - f->call->hold;
            world.slack[BUDGET] += cost - f->call->hold;
            world.exact = 0;
        }

        call_end(node, f, cost);
    }
}


static void
step_fault(ngx_uint_t n, ngx_uint_t what)
{
    answer_t              a;
    node_t               *node;
    ngx_uint_t            i;
    ngx_modelgw_lease_t  *lease;

    node = &world.nodes[n];

    switch (what) {

    case 0:
        node_kill(node);
        break;

    case 1:
    case 2:
        step_lose(node);
        break;

    case 3:
    case 4:
        if (node->late.set) {
            db_apply(n, &node->late, &a);
            node->late.set = 0;
        }
        break;

    case 5:
        if (dice(4) == 0) {
            world_force(n);
        }
        break;

    case 6:
        world.standby = world.db;
        break;

    case 7:
        if (dice(4) == 0) {
            world_promote();
        }
        break;

    case 8:
        world.time += dice(4) ? RECALL : NGX_MODELGW_LEASE_IDLE;
        break;

    case 9:
        for (i = 0; i < CALLS; i++) {

            /* clients that wait go away */

            if (node->calls[i].call && node->calls[i].claim) {
                call_end(node, &node->calls[i], 0);
            }
        }
        break;

    case 10:

        /* grants need not be in the journal, but may be */

        for (i = 0; i < FUNDS; i++) {
            lease = ngx_modelgw_lease(node->ledger, &funds[i]);
            node->leases[i].granted = lease->granted;
            node->leases[i].forced = lease->forced;
        }
        break;

    default:

        /* a top-up; on the standby, too */

        i = dice(FUNDS);
        world.all[i] += HOLD;
        world.db.funds[i].free += HOLD;
        world.standby.funds[i].free += HOLD;
    }
}


static void
world_step(void)
{
    ngx_uint_t  n;

    n = dice(NODES);

    switch (dice(10)) {

    case 0:
        step_fault(n, dice(12));
        break;

    case 1:
    case 2:
        node_write(&world.nodes[n]);
        break;

    case 3:
    case 4:
    case 5:
        step_calls(&world.nodes[n]);
        break;

    default:
        step_exchange(n);
    }

    world.time += dice(30);
}


/* NULL, or what is wrong; *steps were made */

static const char *
world_run(ngx_uint_t worlds, ngx_uint_t *steps)
{
    ngx_uint_t  i, k, n;

    wrong = NULL;
    *steps = 0;
    n = number("STEPS", 400);

    for (i = 0; i < worlds && wrong == NULL; i++) {
        world_create();

        for (k = 0; k < n && wrong == NULL; k++) {
            world_step();
            check_always();

            if (k % 8 == 7 && wrong == NULL) {
                check_later();
            }

            (*steps)++;
        }

        for (k = 0; k < NODES; k++) {
            ledger_assert(world.nodes[k].ledger);
        }
    }

    return wrong;
}


static void
test_nodes(void **state)
{
    ngx_uint_t  steps;

    mistake = RIGHT;

    if (world_run(number("WORLDS", 60), &steps)) {
        print_error("%s, after %d steps\n", wrong, (int) steps);
        fail();
    }

    print_message("%d steps\n", (int) steps);
}


static void
test_mistakes(void **state)
{
    ngx_uint_t  i, steps;

    static const char  *names[MISTAKES] = {
        "", "delta", "returnlate", "keepparked", "greedy", "maxgrant"
    };

    for (i = RIGHT + 1; i < MISTAKES; i++) {
        mistake = i;

        if (world_run(1000, &steps) == NULL) {
            print_error("%s is not found\n", names[i]);
            fail();
        }

        print_message("%s, after %d steps: %s\n", names[i], (int) steps,
                      wrong);
    }

    mistake = RIGHT;
}


int
main(void)
{
    int  rc;

    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_mistakes),
    };

    images = malloc(NODES * SIZE);
    if (images == NULL) {
        return 1;
    }

    rc = cmocka_run_group_tests(tests, NULL, NULL);

    free(images);

    return rc;
}
