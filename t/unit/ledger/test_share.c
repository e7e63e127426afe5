
/*
 * Limits over all nodes: several ledgers, a database that is modelled, and time
 * that is simulated.  What is admitted is counted by the millisecond.
 */


#include "unit_ledger.h"


#define MINUTE    60000
#define START     86412345
#define DATABASE  1700000000500ULL       /* its clock at 0 */
#define NODES     8
#define CALLS     4096
#define MS        1200000
#define ASKS      16


/* the row of a limit, and those of its slots */

typedef struct {
    uint64_t  second;
    uint64_t  counts[66];                /* from second - 60 to second + 5 */
    uint64_t  slots[NODES];
    int64_t   lacks[NODES];
    uint64_t  seen[NODES];
} row_t;


typedef struct {
    ngx_modelgw_ledger_t        *l;
    uint32_t                     key;
    uint32_t                     worker;
    uint64_t                     next;   /* exchange */
    uint64_t                     applied; /* 0: none is on its way */
    uint64_t                     answered;
    ngx_uint_t                   n;
    ngx_modelgw_share_ask_t      asks[ASKS];
    ngx_modelgw_share_said_t     said[ASKS];
    uint64_t                     cut;    /* until then nothing is reached */
    ngx_uint_t                   dead;
} node_t;


typedef struct {
    ngx_uint_t                   node;
    ngx_modelgw_share_ticket_t   ticket;
    ngx_modelgw_call_t          *call;
    uint32_t                     n;      /* tokens to take */
    uint64_t                     use;    /* that are used */
    uint64_t                     began;  /* 0: none */
    uint64_t                     taken;
    uint64_t                     ends;
} pending_t;


static row_t      rows[NGX_MODELGW_SHARE_KINDS];
static node_t     nodes[NODES];
static pending_t  calls[CALLS];
static uint32_t   used[MS + MINUTE];     /* by when it was taken */
static ngx_uint_t ncalls, refused, waited, statements;
static uint64_t   resume;                /* when arrive() goes on; 0: START */


static void
minute(ngx_modelgw_share_ask_t *ask, uint64_t live, uint64_t now,
    ngx_modelgw_share_said_t *said)
{
    row_t     *row;
    int64_t    i, at, second, shift;
    uint64_t   counts[66], sum, rest;

    row = &rows[ask->kind];
    second = now / 1000;
    at = (int64_t) (now - ask->age) / 1000;
    shift = ngx_min(ngx_max(second - (int64_t) row->second, 0), 66);
    sum = 0;

    for (i = 0; i < 66; i++) {
        counts[i] = (i + shift < 66) ? row->counts[i + shift] : 0;

        if (second - 60 + i == (int64_t) ask->second) {
            counts[i] -= ngx_min(counts[i], ask->booked);
        }

        if (second - 60 + i == at) {
            counts[i] += ask->used;
        }

        sum += counts[i];
    }

    rest = (ask->limit > sum + ask->keep) ? ask->limit - sum - ask->keep : 0;

    said->took = 0;

    if (rest >= ask->least) {
        said->took = ngx_min(ask->need, rest);
        said->took += ngx_min(ask->want, (rest - said->took) / (2 * live));
    }

    counts[65] += ask->keep + said->took;
    rest -= said->took;

    said->second = second + 5;
    said->rest = rest;
    said->wait = 0;
    said->wait_most = 0;
    said->lacks = 0;
    said->idle = 0;

    if (said->took < ask->need) {
        sum = rest;

        for (i = 1; i <= 66 && sum < ask->most; i++) {
            sum += counts[i - 1];

            if (said->wait == 0 && sum >= ask->least) {
                said->wait = i * 1000 - now % 1000;
            }
        }

        said->wait_most = (i - 1) * 1000 - now % 1000;
    }

    row->second = second;
    memcpy(row->counts, counts, sizeof(counts));
}


static void
slots(ngx_modelgw_share_ask_t *ask, ngx_uint_t node, uint64_t live,
    uint64_t now, ngx_modelgw_share_said_t *said)
{
    row_t       *row;
    uint64_t     others, rest;
    ngx_uint_t   i;

    row = &rows[NGX_MODELGW_SHARE_CALLS];
    others = 0;
    said->lacks = 0;
    said->idle = 0;

    for (i = 0; i < NODES; i++) {
        if (i != node && row->seen[i] + 10000 > now) {
            others += row->slots[i];

            if (row->seen[i] + 2000 > now) {
                said->lacks += ngx_max(row->lacks[i], 0);
                said->idle += ngx_max(-row->lacks[i], 0);
            }
        }
    }

    rest = (ask->limit > others + ask->keep) ? ask->limit - others - ask->keep
                                             : 0;
    said->took = ngx_min(ask->need, rest);
    said->took += ngx_min(ask->want, (rest - said->took) / (2 * live));

    row->slots[node] = ask->keep + said->took;
    row->lacks[node] = (int64_t) (ask->need - said->took - ask->idle);
    row->seen[node] = now;

    said->rest = rest - said->took;
    said->second = 1;
    said->wait = 0;
    said->wait_most = 0;
}


static void
setup(ngx_uint_t n)
{
    ngx_uint_t  i;

    memset(rows, 0, sizeof(rows));
    memset(calls, 0, sizeof(calls));
    memset(used, 0, sizeof(used));
    memset(nodes, 0, sizeof(nodes));
    ncalls = refused = waited = statements = 0;
    resume = 0;

    for (i = 0; i < n; i++) {
        nodes[i].l = ledger_create(LEDGER_SIZE, 1, NGX_MODELGW_LEDGER_CLUSTER);
        nodes[i].key = ledger_key(nodes[i].l, "key");
        nodes[i].next = START + i * 37;

        assert_int_equal(ngx_modelgw_ledger_join(nodes[i].l,
                                                 &nodes[i].worker), NGX_OK);
        ngx_modelgw_shares_reached(nodes[i].l, START, n, i);
    }
}


static void
teardown(ngx_uint_t n)
{
    ngx_uint_t  i;

    for (i = 0; i < n; i++) {
        ngx_modelgw_ledger_leave(nodes[i].l, nodes[i].worker);
        ledger_destroy(nodes[i].l, LEDGER_SIZE);
    }
}


/* an exchange is asked, reaches the database, and is answered */

static void
exchange(ngx_uint_t i, ngx_uint_t n, uint64_t t, ngx_uint_t slow)
{
    node_t      *node;
    ngx_uint_t   k;

    node = &nodes[i];

    if (node->answered && t >= node->answered) {

        for (k = 0; k < node->n; k++) {
            ngx_modelgw_ledger_lock(node->l);

            if (node->cut > t) {
                ngx_modelgw_share_unsaid_locked(node->l, &node->asks[k]);

            } else {
                ngx_modelgw_share_said_locked(node->l, &node->asks[k],
                                              &node->said[k], t);
            }

            ngx_modelgw_ledger_unlock(node->l);
        }

        node->answered = 0;
        node->next = t + random() % 80;
    }

    if (node->applied && t >= node->applied) {

        for (k = 0; k < node->n; k++) {
            statements++;

            if (node->asks[k].kind == NGX_MODELGW_SHARE_CALLS) {
                slots(&node->asks[k], i, n, DATABASE + t, &node->said[k]);

            } else {
                minute(&node->asks[k], n, DATABASE + t, &node->said[k]);
            }
        }

        node->applied = 0;
        node->answered = t + 1 + random() % slow;
    }

    if (node->applied || node->answered || t < node->next || node->cut > t) {
        return;
    }

    if (node->dead) {
        return;
    }

    node->n = ngx_modelgw_shares_asks(node->l, t, node->asks, ASKS);

    ngx_modelgw_shares_reached(node->l, t, n, i);

    if (node->n) {
        node->applied = t + random() % slow;

    } else {
        node->next = t + 20;
    }
}


/* the most in any minute */

static uint64_t
densest(uint64_t end)
{
    uint64_t  t, sum, max;

    sum = 0;
    max = 0;

    for (t = 0; t < end; t++) {
        sum += used[t];

        if (t >= MINUTE) {
            sum -= used[t - MINUTE];
        }

        max = ngx_max(max, sum);
    }

    return max;
}


static uint64_t
total(uint64_t from, uint64_t to)
{
    uint64_t  sum;

    for (sum = 0; from < to; from++) {
        sum += used[from];
    }

    return sum;
}


static pending_t *
pending(void)
{
    ngx_uint_t  i;

    for (i = 0; i < ncalls && calls[i].began; i++) { /* void */ }

    assert_true(i < CALLS);

    ncalls = ngx_max(ncalls, i + 1);

    return &calls[i];
}


/* one call tries to take a request */

static void
request(pending_t *c, uint32_t limit, uint64_t t)
{
    node_t                     *node;
    ngx_int_t                   rc;
    ngx_modelgw_limit_state_t   state;

    node = &nodes[c->node];

    ngx_modelgw_ledger_lock(node->l);
    rc = ngx_modelgw_share_take_locked(node->l, node->key,
                                       NGX_MODELGW_SHARE_REQUESTS, limit, 1, t,
                                       NULL, &c->ticket, &state);
    ngx_modelgw_ledger_unlock(node->l);

    if (rc == NGX_AGAIN) {
        assert_true(c->ticket.since);
        return;
    }

    if (rc == NGX_OK) {
        used[t - START]++;
        assert_true(state.remaining <= limit);
        assert_int_equal(state.wait, 0);

    } else {
        assert_true(state.wait > 0 && state.wait <= 66000);
        assert_int_equal(state.remaining, 0);
        refused++;
    }

    c->ticket.since = 0;
    c->began = 0;
}


/*
 * Requests arrive at random nodes; often[] is a mean of calls a second in each
 * phase, or random ones.
 */

static void
arrive(ngx_uint_t n, ngx_uint_t only, uint32_t limit, double often,
    uint64_t length, ngx_uint_t slow)
{
    double       rate;
    uint64_t     t, phase;
    ngx_uint_t   i;
    pending_t   *c;

    rate = often;
    phase = START;

    for (t = resume ? resume : START; t < START + length; t++) {

        if (often == 0 && t >= phase) {
            rate = (random() % 4) ? (double) limit / 60
                                    * (random() % 1000) / 400
                                  : (random() % 2 ? 0 : limit);
            phase = t + random() % 90000;
        }

        for (i = 0; i < n; i++) {
            exchange(i, n, t, slow);
        }

        while (ncalls && calls[ncalls - 1].began == 0) {
            ncalls--;
        }

        for (i = 0; i < ncalls; i++) {
            c = &calls[i];

            if (c->ticket.since
                && ngx_modelgw_share_answered(nodes[c->node].l,
                                              nodes[c->node].key,
                                              NGX_MODELGW_SHARE_REQUESTS,
                                              &c->ticket, t))
            {
                waited++;
                request(c, limit, t);
            }
        }

        if ((double) (random() % 1000000) < rate * 1000) {
            c = pending();
            c->began = t;
            c->node = only ? only - 1 : (ngx_uint_t) random() % n;
            request(c, limit, t);
        }
    }
}


static void
test_flood(void **state)
{
    uint32_t  limit;

    /* 3 nodes, 200 requests a second, 60 a minute */

    setup(3);
    arrive(3, 0, 60, 200, 3 * MINUTE, 10);

    print_message("flood: %lu of 60 in the densest minute, %lu in 3, "
                  "%lu waited, %lu refused, %lu statements\n",
                  densest(3 * MINUTE), total(0, 3 * MINUTE), waited, refused,
                  statements);

    assert_true(densest(3 * MINUTE) <= 60);
    assert_true(total(0, 3 * MINUTE) >= 3 * 58);
    assert_true(refused > waited);

    teardown(3);

    for (limit = 1; limit < 30000; limit = limit * 10 + 3) {
        setup(3);
        arrive(3, 0, limit, ngx_min(limit / 20.0 + 5, 900), 4 * MINUTE, 10);

        print_message("flood: %lu of %u in the densest minute, %lu in 4\n",
                      densest(4 * MINUTE), limit, total(0, 4 * MINUTE));

        assert_true(densest(4 * MINUTE) <= limit);

        if (limit / 60.0 < 800) {
            assert_true(total(0, 4 * MINUTE) * 100 >= 3 * 97 * limit);
        }

        teardown(3);
    }
}


/* a client that comes to one node has all of the limit */

static void
test_one_node(void **state)
{
    uint32_t  limit, end;

    for (limit = 4; limit < 3000; limit = limit * 5) {
        setup(3);
        arrive(3, 2, limit, limit / 60.0 * 1.5 + 1, 10 * MINUTE, 10);

        end = 10 * MINUTE;

        print_message("one node: %lu of %u in the densest minute, "
                      "%.1f a minute\n", densest(end), limit,
                      total(MINUTE, end) / 9.0);

        assert_true(densest(end) <= limit);
        assert_true(total(MINUTE, end) >= 9 * 0.97 * limit - 1);

        teardown(3);
    }
}


static void
test_random(void **state)
{
    uint64_t    most;
    uint32_t    limit;
    ngx_uint_t  i, n;

    for (i = 0; i < 24; i++) {
        srandom(i + 1);

        n = 1 + i % NODES;
        limit = 1 + random() % 600;

        setup(n);
        arrive(n, 0, limit, 0, 10 * MINUTE, (i % 3) ? 10 : 300);

        most = densest(10 * MINUTE);

        if (most > limit || i % 8 == 0) {
            print_message("random: seed %lu, %lu nodes, %lu of %u\n", i + 1, n,
                          most, limit);
        }

        assert_true(most <= limit);

        teardown(n);
    }
}


/* a call tries to take tokens, which it uses when it ends */

static void
tokens(pending_t *c, uint32_t limit, uint32_t n, uint64_t t)
{
    node_t                     *node;
    ngx_int_t                   rc;
    ngx_modelgw_limit_state_t   state;

    node = &nodes[c->node];

    if (c->call == NULL) {
        assert_int_equal(call_open(node->l, node->worker, node->key, 0,
                                   &c->call), NGX_OK);
    }

    ngx_modelgw_ledger_lock(node->l);
    rc = ngx_modelgw_share_take_locked(node->l, node->key,
                                       NGX_MODELGW_SHARE_TOKENS, limit, n, t,
                                       c->call, &c->ticket, &state);
    ngx_modelgw_ledger_unlock(node->l);

    if (rc == NGX_AGAIN) {
        return;
    }

    if (rc == NGX_OK) {
        assert_int_equal(c->call->taken, ngx_min(n, limit));
        c->call->state = NGX_MODELGW_CALL_SENT;
        c->call->started = TIME + t;
        c->taken = t;
        return;
    }

    refused++;
    assert_true(state.remaining < ngx_min(n, limit));
    call_settle(node->l, c->call, NGX_MODELGW_END_COMPLETE, TIME + t, t);
    memset(c, 0, sizeof(pending_t));
}


static void
ended(pending_t *c, uint64_t t)
{
    ngx_modelgw_call_t  *call;

    call = c->call;

    call->seen.status = 200;
    call->seen.input = 0;
    call->seen.output = c->use;
    call->seen.flags = NGX_MODELGW_SEEN_FINAL;

    call_settle(nodes[c->node].l, call, NGX_MODELGW_END_COMPLETE, TIME + t, t);

    used[c->taken - START] += c->use;
    memset(c, 0, sizeof(pending_t));
}


/* calls of n tokens at most, which last up to "lasts" ms, every "every" ms */

static void
spend(ngx_uint_t nn, ngx_uint_t only, uint32_t limit, uint32_t n,
    uint64_t lasts, uint64_t every, uint64_t length)
{
    uint64_t     t;
    ngx_uint_t   i;
    pending_t   *c;

    for (t = START; t < START + length; t++) {

        for (i = 0; i < nn; i++) {
            exchange(i, nn, t, 10);
        }

        while (ncalls && calls[ncalls - 1].began == 0) {
            ncalls--;
        }

        for (i = 0; i < ncalls; i++) {
            c = &calls[i];

            if (c->taken && t >= c->ends) {
                ended(c, t);

            } else if (c->ticket.since
                       && ngx_modelgw_share_answered(nodes[c->node].l,
                                                  nodes[c->node].key,
                                                  NGX_MODELGW_SHARE_TOKENS,
                                                  &c->ticket, t))
            {
                tokens(c, limit, c->n, t);
            }
        }

        if (random() % every == 0) {
            c = pending();
            c->began = t;
            c->node = only ? only - 1 : (ngx_uint_t) random() % nn;
            c->n = n / 2 + random() % (n / 2) + 1;
            c->use = random() % (c->n + 1);
            c->ends = t + random() % lasts + 1;
            tokens(c, limit, c->n, t);
        }
    }

    for (i = 0; i < ncalls; i++) {
        if (calls[i].taken) {
            ended(&calls[i], t);
        }
    }
}


static void
test_tokens(void **state)
{
    ngx_uint_t  i;

    const struct {
        ngx_uint_t  nodes, only;
        uint32_t    n;
        uint64_t    lasts, every;
    } t[] = {
        { 3, 0, 1000, 1, 40 }, { 3, 0, 1000, 3000, 40 },
        { 3, 2, 1000, 1, 40 }, { 3, 2, 1000, 3000, 20 },
        { 5, 0, 30000, 1, 900 }, { 5, 0, 300, 20000, 10 },
    };

    for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        setup(t[i].nodes);
        spend(t[i].nodes, t[i].only, 120000, t[i].n, t[i].lasts, t[i].every,
              6 * MINUTE);

        print_message("tokens: %lu of 120000 in the densest minute, %lu a "
                      "minute, %lu refused\n", densest(6 * MINUTE),
                      total(MINUTE, 5 * MINUTE) / 4, refused);

        assert_true(densest(6 * MINUTE) <= 120000 * 1.08);

        teardown(t[i].nodes);
    }
}


/* calls in flight, at random nodes, which last up to "lasts" ms */

static ngx_uint_t
flight(ngx_uint_t n, uint32_t limit, uint64_t lasts, uint64_t every,
    uint64_t from, uint64_t to)
{
    uint64_t      t;
    ngx_int_t     rc;
    ngx_uint_t    i, k, most;
    node_t       *node;
    pending_t    *c;

    most = 0;

    for (t = from; t < to; t++) {

        for (i = 0; i < n; i++) {
            exchange(i, n, t, 10);
        }

        if (random() % every == 0) {
            c = pending();
            c->began = t;

            do {
                c->node = random() % n;
            } while (nodes[c->node].dead);
        }

        for (i = 0, k = 0; i < ncalls; i++) {
            c = &calls[i];
            node = &nodes[c->node];

            if (c->began == 0) {
                continue;
            }

            if (c->call) {
                k++;

                if (t >= c->ends && !node->dead) {
                    call_settle(node->l, c->call, NGX_MODELGW_END_COMPLETE,
                                TIME + t, t);
                    memset(c, 0, sizeof(pending_t));
                    k--;

                } else if (node->dead) {
                    k--;                 /* killed with its node */
                }

                continue;
            }

            if (node->dead) {
                memset(c, 0, sizeof(pending_t));
                continue;
            }

            if (c->ticket.since
                && (random() % 10     /* it is not polled all the time */
                    || !ngx_modelgw_share_answered(node->l, node->key,
                                                   NGX_MODELGW_SHARE_CALLS,
                                                   &c->ticket, t)))
            {
                continue;
            }

            ngx_modelgw_ledger_lock(node->l);

            rc = ngx_modelgw_share_open_locked(node->l, node->key, limit, t,
                                               &c->ticket);
            if (rc == NGX_OK) {
                rc = ngx_modelgw_ledger_open_locked(node->l, node->worker,
                                                    node->key, limit,
                                                    &c->call);
                assert_int_equal(rc, NGX_OK);
                c->ends = t + 1 + random() % lasts;
                k++;

            } else if (rc == NGX_DECLINED) {
                refused++;
                memset(c, 0, sizeof(pending_t));
            }

            ngx_modelgw_ledger_unlock(node->l);
        }

        most = ngx_max(most, k);
    }

    return most;
}


static void
test_calls(void **state)
{
    ngx_uint_t  most, seed;

    /* what was lent for calls that wait is not given back before they come */

    for (seed = 1; seed < 50; seed++) {
        srandom(seed);
        setup(1);

        (void) flight(1, 8, 60000, 1, START, START + 8);
        most = flight(1, 8, 60000, 1000000, START + 8, START + 1000);

        assert_int_equal(most, 8);
        assert_int_equal(refused, 0);

        teardown(1);
    }

    setup(3);

    most = flight(3, 8, 2000, 20, START, START + 60000);
    print_message("calls: %lu of 8 at most\n", most);
    assert_int_equal(most, 8);

    /* a node is killed: what it had is free after 10 s */

    nodes[1].dead = 1;

    most = flight(3, 8, 2000, 20, START + 60000, START + 69000);
    assert_true(most <= 8);

    most = flight(3, 8, 2000, 20, START + 71000, START + 80000);
    assert_int_equal(most, 8);

    /* nothing is in use for a while: one node may have all */

    (void) flight(3, 8, 1, 1000000, START + 80000, START + 95000);

    nodes[2].dead = 1;

    most = flight(3, 8, 2000, 20, START + 95000, START + 98000);
    assert_int_equal(most, 8);

    teardown(3);
}


/*
 * All calls of a limit come to one node, then to another, while most of what
 * there may be is idle elsewhere: they wait until it is given back.
 */

static void
test_calls_idle(void **state)
{
    uint64_t     t;
    ngx_uint_t   i, k, node, most, seed;
    pending_t   *c;

    const uint32_t  limits[] = { 2, 8, 100 };

    for (seed = 1; seed <= 30; seed++) {
        srandom(seed);
        setup(3);

        t = START;
        most = 0;

        for (i = 0; i < 12; i++) {
            node = random() % 3;

            for (k = 0; k < limits[seed % 3]; k++) {
                c = pending();
                c->began = t;
                c->node = node;
            }

            k = flight(3, limits[seed % 3], 500, 1000000000, t, t + 3000);
            most = ngx_max(most, k);
            t += 3000;
        }

        if (refused) {
            print_message("idle: seed %lu, %lu of %u at most, %lu refused\n",
                          seed, most, limits[seed % 3], refused);
        }

        assert_int_equal(refused, 0);
        assert_true(most <= limits[seed % 3]);

        teardown(3);
    }
}


/* a node that was away comes back with its calls: they are in the sum */

static void
test_calls_away(void **state)
{
    ngx_uint_t  i, most, seed;

    for (seed = 1; seed < 20; seed++) {
        srandom(seed);
        setup(3);

        most = flight(3, 8, 3000, 20, START, START + 20000);
        assert_int_equal(most, 8);

        /* calls of the node end before what it has expires for others */

        nodes[0].cut = START + 40000;
        most = flight(3, 8, 3000, 20, START + 20000, START + 26000);
        assert_true(most <= 8);

        /* the database is away for all: each has its part, 3 + 3 + 2 */

        for (i = 0; i < 3; i++) {
            nodes[i].cut = START + 80000;
        }

        (void) flight(3, 8, 3000, 20, START + 26000, START + 50000);
        most = flight(3, 8, 3000, 20, START + 50000, START + 70000);
        assert_int_equal(most, 8);

        most = flight(3, 8, 3000, 20, START + 70000, START + 110000);
        assert_int_equal(most, 8);

        teardown(3);
    }
}


/* without the database the parts are the limit, and what was used counts */

static void
test_away(void **state)
{
    uint64_t    before, after;
    ngx_uint_t  i;

    srandom(1);
    setup(3);
    arrive(3, 0, 61, 5, 2 * MINUTE, 10);

    for (i = 0; i < 3; i++) {
        nodes[i].cut = START + 100 * MINUTE;
    }

    resume = START + 2 * MINUTE;
    arrive(3, 0, 61, 5, 6 * MINUTE, 10);

    before = densest(3 * MINUTE);
    after = total(3 * MINUTE, 6 * MINUTE);

    print_message("away: %lu of 61 in the densest minute around it, "
                  "%.1f a minute\n", before, after / 3.0);

    assert_true(before <= 2 * 61);
    assert_true(after <= 3 * 61 + 3);
    assert_true(after >= 3 * 61 * 0.97);

    /* it is reached again */

    for (i = 0; i < 3; i++) {
        nodes[i].cut = 0;
    }

    resume = START + 6 * MINUTE;
    arrive(3, 0, 61, 5, 10 * MINUTE, 10);

    after = total(7 * MINUTE, 10 * MINUTE);
    print_message("back: %lu of 61 in the first minute, %.1f a minute\n",
                  total(6 * MINUTE, 7 * MINUTE), after / 3.0);

    assert_true(after <= 3 * 61 && after >= 3 * 61 * 0.95);
    assert_true(total(6 * MINUTE, 7 * MINUTE) <= 61 * 1.08);

    teardown(3);
}


/* an answer that is lost lends nothing, and costs what it has lent */

static void
test_lost_answers(void **state)
{
    uint64_t    most;
    ngx_uint_t  i, k;

    for (i = 0; i < 8; i++) {
        srandom(i + 1);
        setup(3);

        for (k = 0; k < 40; k++) {
            resume = START + k * 5000;
            nodes[random() % 3].cut = (i % 2) ? resume + 1000 : 0;
            arrive(3, 0, 200, (i < 4) ? 5 : 20, (k + 1) * 5000, 10);
        }

        most = densest(200000);

        print_message("lost answers: %lu of 200 in the densest minute\n",
                      most);

        assert_true(most <= ((i % 2) ? 200 + 200 / 3 : 200));

        teardown(3);
    }
}


/* a call that tries until it is decided; it uses all that it takes */

static ngx_int_t
once(ngx_uint_t n, ngx_uint_t i, ngx_modelgw_share_e kind, uint32_t limit,
    uint32_t want, uint64_t *t, ngx_modelgw_limit_state_t *state)
{
    node_t                      *node;
    ngx_int_t                    rc;
    ngx_uint_t                   k;
    ngx_modelgw_call_t          *call;
    ngx_modelgw_share_ticket_t   ticket;

    node = &nodes[i];
    call = NULL;
    memset(&ticket, 0, sizeof(ticket));

    if (kind == NGX_MODELGW_SHARE_TOKENS) {
        assert_int_equal(call_open(node->l, node->worker, node->key, 0, &call),
                         NGX_OK);
    }

    for (rc = NGX_AGAIN; rc == NGX_AGAIN; (*t)++) {

        for (k = 0; k < n; k++) {
            exchange(k, n, *t, 10);
        }

        if (ticket.since
            && !ngx_modelgw_share_answered(node->l, node->key, kind, &ticket,
                                           *t))
        {
            continue;
        }

        ngx_modelgw_ledger_lock(node->l);
        rc = ngx_modelgw_share_take_locked(node->l, node->key, kind, limit,
                                           want, *t, call, &ticket, state);
        ngx_modelgw_ledger_unlock(node->l);
    }

    if (call) {

        if (rc == NGX_OK) {
            call->state = NGX_MODELGW_CALL_SENT;
            call->started = TIME + *t;
            call->seen.status = 200;
            call->seen.output = want;
            call->seen.flags = NGX_MODELGW_SEEN_FINAL;
        }

        call_settle(node->l, call, NGX_MODELGW_END_COMPLETE, TIME + *t, *t);
    }

    return rc;
}


static void
idle(ngx_uint_t n, uint64_t *t, uint64_t length)
{
    uint64_t    end;
    ngx_uint_t  k;

    for (end = *t + length; *t < end; (*t)++) {
        for (k = 0; k < n; k++) {
            exchange(k, n, *t, 10);
        }
    }
}


/*
 * A client that waits as long as it is told gets through, on whichever node,
 * and whatever it wants; it does not wait for longer than a minute, and what
 * was used in one second counts until a minute after it has ended.
 */

static void
test_retry_after(void **state)
{
    uint32_t                    limit, want, first;
    uint64_t                    t, began, wait;
    ngx_int_t                   rc;
    ngx_uint_t                  n, seed, tries;
    ngx_modelgw_share_e         kind;
    ngx_modelgw_limit_state_t   st;

    for (seed = 1; seed <= 60; seed++) {
        srandom(seed);

        n = (seed % 2) ? 1 : 3;
        kind = (seed % 4 < 2) ? NGX_MODELGW_SHARE_REQUESTS
                              : NGX_MODELGW_SHARE_TOKENS;
        limit = (kind == NGX_MODELGW_SHARE_REQUESTS) ? 60 : 6000;

        setup(n);

        t = START;
        first = 0;

        do {
            want = (kind == NGX_MODELGW_SHARE_REQUESTS)
                   ? 1 : 1 + random() % (limit / 4);

            rc = once(n, random() % n, kind, limit, want, &t, &st);

            if (rc == NGX_OK) {
                assert_true(st.remaining <= limit - want);
                idle(n, &t, random() % ((seed % 3) ? 900 : 20));
            }

            first = first ? first : t;

        } while (rc == NGX_OK);

        /* all of it is used, and another call wants more or less */

        for (tries = 0; rc == NGX_DECLINED && tries < 2; tries++) {
            assert_true(st.remaining < want);

            if (tries == 0 && random() % 2) {
                want = 1 + random() % want;
                rc = once(n, random() % n, kind, limit, want, &t, &st);
                if (rc == NGX_OK) {
                    break;
                }
            }

            began = t;
            wait = (st.wait + 999) / 1000 * 1000;
            idle(n, &t, ngx_min(wait, MINUTE));
            rc = once(n, random() % n, kind, limit, want, &t, &st);

            if (rc != NGX_OK) {
                print_message("seed %lu: refused after %lu of %lu ms, now "
                              "%lu\n", seed, t - began, wait, st.wait);
                assert_true(wait > MINUTE);
            }
        }

        assert_int_equal(rc, NGX_OK);
        assert_true(t - first <= 2 * MINUTE);

        teardown(n);
    }
}


/* by hand: what is said, and when */

static void
test_asks(void **state)
{
    uint32_t                     key;
    uint64_t                     t;
    ngx_uint_t                   i;
    ngx_modelgw_ledger_t        *l;
    ngx_modelgw_share_ask_t      ask;
    ngx_modelgw_share_said_t     said;
    ngx_modelgw_limit_state_t    st;
    ngx_modelgw_share_ticket_t   ticket[3];

    setup(1);

    t = START;
    l = nodes[0].l;
    key = nodes[0].key;
    memset(ticket, 0, sizeof(ticket));
    memset(&said, 0, sizeof(said));

#define take(n, i)                                                            \
    ngx_modelgw_share_take_locked(l, key, NGX_MODELGW_SHARE_REQUESTS, 64, n,  \
                                  t, NULL, &ticket[i], &st)
#define asks  ngx_modelgw_shares_asks(l, t, &ask, 1)

    /* too few places for a key: later */

    assert_int_equal(asks, 0);
    assert_int_equal(ngx_modelgw_shares_urgent(l), 0);
    assert_int_equal(take(1, 0), NGX_AGAIN);
    assert_int_equal(take(1, 1), NGX_AGAIN);
    assert_int_equal(ngx_modelgw_shares_urgent(l), 1);
    assert_int_equal(asks, 0);
    assert_int_equal(ngx_modelgw_shares_urgent(l), 1);

#undef asks
#define asks  (nodes[0].n = ngx_modelgw_shares_asks(l, t, nodes[0].asks,      \
                                                    ASKS),                    \
               ngx_modelgw_shares_reached(l, t, 1, 0),                        \
               ask = nodes[0].asks[0], nodes[0].n)

    assert_int_equal(asks, 1);
    assert_int_equal(ask.need, 2);
    assert_int_equal(ask.least, 1);
    assert_int_equal(ask.most, 1);
    assert_int_equal(ask.limit, 64);
    assert_int_equal(ask.keep, 0);
    assert_int_equal(ask.name.len, 3);

    t += 5;
    said.took = 3;
    said.second = 1000;
    said.rest = 40;
    assert_false(ngx_modelgw_share_answered(l, key, 0, &ticket[0], t));
    ngx_modelgw_share_said_locked(l, &ask, &said, t);
    assert_true(ngx_modelgw_share_answered(l, key, 0, &ticket[0], t));

    /* two of the three are kept for those who wait */

    memset(&ticket[1], 0, sizeof(ticket[1]));
    assert_int_equal(take(1, 1), NGX_OK);
    assert_int_equal(st.remaining, 40);
    assert_int_equal(take(1, 1), NGX_AGAIN);
    assert_int_equal(take(1, 0), NGX_OK);

    /* the one that waits finds what another has left */

    t += 300;
    assert_int_equal(asks, 1);
    assert_int_equal(ask.booked, 3);
    assert_int_equal(ask.second, 1000);
    assert_int_equal(ask.used, 2);
    assert_int_equal(ask.keep, 1);
    assert_int_equal(ask.need, 0);
    said.took = 0;
    ngx_modelgw_share_said_locked(l, &ask, &said, t);
    assert_int_equal(take(1, 1), NGX_OK);

    /* it is renewed while it is used, and given back 5 s later */

    for (i = 0; i < 2; i++) {
        said.took = 2;
        ticket[0].since = 0;
        if (take(5, 0) == NGX_AGAIN) {
            assert_int_equal(asks, 1);
            said.took = 6;
            ngx_modelgw_share_said_locked(l, &ask, &said, t);
            assert_int_equal(take(5, 0), NGX_OK);
        }
        t += 2500;
    }

    assert_int_equal(asks, 1);
    assert_true(ask.keep > 0);
    said.took = 0;
    ngx_modelgw_share_said_locked(l, &ask, &said, t);
    t += 5001;
    assert_int_equal(asks, 1);
    assert_true(ask.booked > 0);
    assert_int_equal(ask.keep, 0);
    assert_int_equal(ask.need + ask.want, 0);
    ngx_modelgw_share_said_locked(l, &ask, &said, t);

    t += 300;
    assert_int_equal(asks, 0);
    t += 300;
    assert_int_equal(asks, 0);

    /* a refusal is believed for a second, with the wait that was said */

    memset(ticket, 0, sizeof(ticket));
    assert_int_equal(take(1, 0), NGX_AGAIN);
    assert_int_equal(asks, 1);
    said.took = 0;
    said.rest = 0;
    said.wait = 7000;
    ngx_modelgw_share_said_locked(l, &ask, &said, t);
    t += 5;
    assert_int_equal(take(1, 0), NGX_DECLINED);
    assert_int_equal(st.wait, 6995);
    assert_int_equal(take(1, 0), NGX_DECLINED);
    t += 995;
    assert_int_equal(take(1, 0), NGX_AGAIN);

    /* what is lent for calls that wait is not left for others */

    assert_int_equal(asks, 1);
    said.took = 0;
    ngx_modelgw_share_said_locked(l, &ask, &said, t);
    t += 1000;
    memset(ticket, 0, sizeof(ticket));
    assert_int_equal(take(1, 0), NGX_AGAIN);
    assert_int_equal(take(2, 1), NGX_AGAIN);
    assert_int_equal(asks, 1);
    assert_int_equal(ask.need, 3);
    assert_int_equal(ask.least, 1);
    assert_int_equal(ask.most, 2);
    said.took = 2;
    said.wait = 32000;
    said.wait_most = 40000;
    ngx_modelgw_share_said_locked(l, &ask, &said, t);
    ticket[2].since = 0;
    assert_int_equal(take(1, 2), NGX_DECLINED);
    assert_int_equal(st.remaining, 0);
    assert_int_equal(st.wait, 32000);
    assert_int_equal(take(2, 2), NGX_DECLINED);
    assert_int_equal(st.wait, 40000);
    assert_int_equal(take(1, 0), NGX_OK);
    assert_int_equal(st.remaining, 0);
    assert_int_equal(take(2, 1), NGX_DECLINED);
    assert_int_equal(st.wait, 32000);

    /* more than was refused is asked for: it is not known when there is */

    assert_int_equal(take(4, 2), NGX_AGAIN);
    assert_int_equal(asks, 1);
    said.took = 0;
    ngx_modelgw_share_said_locked(l, &ask, &said, t);

    /* others take it, since the one that waits is late: it asks again */

    t += 1000;
    memset(ticket, 0, sizeof(ticket));
    assert_int_equal(take(2, 0), NGX_AGAIN);
    assert_int_equal(asks, 1);
    said.took = ask.need;
    said.rest = 40;
    said.wait = said.wait_most = 0;
    ngx_modelgw_share_said_locked(l, &ask, &said, t);
    t += NGX_MODELGW_SHARE_PATIENCE;
    assert_int_equal(take(1, 1), NGX_OK);
    assert_int_equal(st.remaining, 41);
    assert_int_equal(take(2, 0), NGX_AGAIN);
    assert_int_equal(asks, 1);
    assert_int_equal(ask.need, 1);
    said.took = 1;
    said.rest = 0;
    ngx_modelgw_share_said_locked(l, &ask, &said, t);
    assert_int_equal(take(2, 0), NGX_OK);
    assert_int_equal(take(1, 0), NGX_AGAIN);

    /* the record becomes another key's: the answer is not for it */

    assert_int_equal(asks, 1);
    ngx_modelgw_share_forget_locked(l, key);
    said.took = 5;
    said.rest = 50;
    ngx_modelgw_share_said_locked(l, &ask, &said, t);
    memset(ticket, 0, sizeof(ticket));
    assert_int_equal(take(1, 0), NGX_AGAIN);

    /* nobody answers */

    t += NGX_MODELGW_SHARE_PATIENCE;
    assert_true(ngx_modelgw_share_answered(l, key, 0, &ticket[0], t));
    assert_int_equal(take(1, 0), NGX_OK);
    assert_int_equal(take(1, 0), NGX_OK);

    teardown(1);

#undef asks
#undef take
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_one_node),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_calls_idle),
        cmocka_unit_test(test_calls_away),
        cmocka_unit_test(test_away),
        cmocka_unit_test(test_lost_answers),
        cmocka_unit_test(test_retry_after),
        cmocka_unit_test(test_asks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
