
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
    uint64_t  lacks[NODES];
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
} node_t;


typedef struct {
    ngx_uint_t                   node;
    ngx_modelgw_share_ticket_t   ticket;
    ngx_modelgw_call_t          *call;
    uint64_t                     ends;
    uint64_t                     use;    /* tokens, at the end */
    uint64_t                     began;
} pending_t;


static row_t      rows[NGX_MODELGW_SHARE_KINDS];
static node_t     nodes[NODES];
static pending_t  calls[CALLS];
static uint32_t   used[MS + MINUTE];     /* by when it was taken */
static ngx_uint_t ncalls, refused, waited, statements;


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
    said->lacks = 0;

    if (said->took < ask->need) {
        sum = rest;

        for (i = 0; i < 66 && sum < ask->least; i++) {
            sum += counts[i];
        }

        said->wait = i * 1000 - now % 1000;
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

    for (i = 0; i < NODES; i++) {
        if (i != node && row->seen[i] + 10000 > now) {
            others += row->slots[i];

            if (row->seen[i] + 2000 > now) {
                said->lacks += row->lacks[i];
            }
        }
    }

    rest = (ask->limit > others + ask->keep) ? ask->limit - others - ask->keep
                                             : 0;
    said->took = ngx_min(ask->need, rest);
    said->took += ngx_min(ask->want, (rest - said->took) / (2 * live));

    row->slots[node] = ask->keep + said->took;
    row->lacks[node] = ask->need - ngx_min(ask->need, said->took);
    row->seen[node] = now;

    said->rest = rest - said->took;
    said->second = 1;
    said->wait = 0;
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
        node->next = t + 80;
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

    ngx_modelgw_shares_reached(node->l, t, n, i);

    node->n = ngx_modelgw_shares_asks(node->l, t, node->asks, ASKS);

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

    for (t = START; t < START + length; t++) {

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


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_one_node),
        cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
