"""Credit of accounts, and budgets of keys, that all nodes of a cluster share:
docs/cluster.md."""

import json
import os
import threading
import time

import pytest

import money
from client import Connection, assert_flat, build
from cluster import Load, Race, call
from gateway import Key, chat
from money import Bound, Line
from upstream import both, raw

LINE = Line(input=1, output=2, max_output=4000)     # of fam-b-one
COST = LINE.cost({"input": 11, "output": 7})        # as upstream.both()
BODY = chat(max_tokens=50)
HOLD = Bound(json.dumps(BODY).encode(), LINE, "chat").hold
BOB = "bob-1"                                       # account of Gateway.bob

PATIENT = "wait=30s"            # a thousand clients, and this on a busy machine
TRIALS = int(os.environ.get("MODELGW_TRIALS", 2))   # the long form has 100


def make_exact(c, amount, account=BOB, calls=None):
    """The account has so much, wherever it is; calls: how many it has had, if
    other accounts have some meanwhile."""
    if calls is None:
        c.settle()
    else:
        c.wait(lambda: c.query(
            "SELECT (SELECT count(*) FROM modelgw.calls WHERE account = %s) = "
            "%s AND NOT EXISTS (SELECT 1 FROM modelgw.leases WHERE account = "
            "%s AND held > 0) AS done", account, calls, account)[0]["done"],
            "%d calls of %s are not settled" % (calls, account))
    more = amount - c.balance_of(account)
    assert more >= 0
    if more:
        c.put(account, more)


def refused(r, code="INSUFFICIENT_CREDIT"):
    assert_flat(r, 402, code)
    return r.json()["message"]


def away(r):
    assert_flat(r, 503, "SERVICE_UNAVAILABLE")
    assert r.get("retry-after") == "1", r


# A thousand calls at once.

def race(c, key, clients, passes):
    """Just so many pass, all others are refused for credit."""
    r = Race(c, key, BODY, clients)
    try:
        r.read(clients - passes)
        assert r.statuses() == {402: clients - passes}
        c.wait(lambda: r.sent() == passes, lambda: "%d have passed" % r.sent())
        held = c.query("SELECT account, sum(held)::bigint AS held FROM "
                       "modelgw.leases GROUP BY 1")
        r.finish()
        assert r.statuses() == {200: passes, 402: clients - passes}, held
        assert r.sent() == passes
    finally:
        r.close()
    return [x for x in r.responses if x.status == 402]


def test_credit_for_ten_admits_ten(cluster):
    """From whichever nodes: as on one machine."""
    c = cluster(founding="0", options=PATIENT,
                location="proxy_read_timeout 600s;")
    for _ in range(TRIALS):
        make_exact(c, 10 * HOLD)
        for r in race(c, c.nodes[0].bob, 1000, 10)[:10]:
            assert "are left" in refused(r)
    c.settle()
    assert c.cost_of(BOB) == TRIALS * 10 * COST


def test_one_nano_euro_less_admits_one_less(cluster):
    c = cluster(founding="0", options=PATIENT,
                location="proxy_read_timeout 600s;")
    make_exact(c, 3 * HOLD - 1)
    race(c, c.nodes[0].bob, 30, 2)


@pytest.mark.parametrize("workers", [2])
def test_a_budget_for_ten_admits_ten(cluster, workers):
    key = Key("erin", "b", "budget=%s/day" % money.euro(10 * HOLD))
    c = cluster(keys=[key], founding="100", workers=workers,
                options=PATIENT, location="proxy_read_timeout 600s;")
    for r in race(c, key, 300, 10)[:5]:
        refused(r, "BUDGET_EXCEEDED")
    c.settle()
    assert c.cost_of("erin") == 10 * COST
    (budget,) = c.query("SELECT * FROM modelgw.budgets WHERE key = 'erin'")
    assert budget["lim"] == 10 * HOLD
    assert c.balance_of(budget["name"]) == 10 * (HOLD - COST)


# The last cent.

def ask_each(c, key):
    """Credit for one call, again and again, from each node in turn; seconds
    that the calls took."""
    took = []
    for i in range(4 * len(c.nodes)):
        make_exact(c, HOLD, calls=i)
        a = call(c, i % len(c.nodes), key, BODY)
        assert a.status == 200, (i, a.response)
        took.append(a.took)
    return sorted(took)


def test_the_last_cent_is_spent_from_any_node(cluster):
    """Nodes with nothing to say hear of a recall within a second."""
    c = cluster(founding="0")
    took = ask_each(c, c.nodes[0].bob)
    assert took[len(took) // 2] < 1.5, took


def test_the_last_cent_while_nodes_are_busy(cluster):
    rich = Key("rich", "b")
    c = cluster(founding="0", keys=[rich])
    c.put("rich", 10 ** 12)
    with Load(c, [rich], 3) as load:
        took = ask_each(c, c.nodes[0].bob)
    assert set(load.statuses()) == {200}, load.refused()
    assert took[len(took) // 2] < 0.5, took


def test_nodes_are_waited_for_after_an_outage(cluster):
    """All seem to be away then: that is no reason to refuse a call."""
    c = cluster(n=2, founding="0", options="exchange=50ms wait=20s")
    c.expect()
    bob = c.nodes[0].bob

    def again():
        make_exact(c, HOLD)
        assert call(c, 1, bob, BODY).status == 200
        c.settle()
        c.put(BOB, COST)                # the rest is lent to the second one
        for node in c.nodes:
            node.proxy.refuse()
        time.sleep(4)
        c.nodes[0].proxy.clear()
        c.wait(c.nodes[0].joined, "the first one is back")
        timer = threading.Timer(0.5, c.nodes[1].proxy.clear)
        timer.start()
        a = call(c, 0, bob, BODY)
        timer.join()
        c.wait_joined()
        return a

    # the second one has 3 s, and may miss them on a busy machine

    answers = []
    while len(answers) < 3:
        answers.append(again())
        if answers[-1].status == 200:
            return
    raise AssertionError([a.response for a in answers])


def test_two_want_the_last_one(cluster):
    """One gets it, and the other one is refused: neither waits for ever."""
    c = cluster(founding="0", options=PATIENT,
                location="proxy_read_timeout 600s;")
    for i in range(4):
        make_exact(c, HOLD)
        race(c, c.nodes[0].bob, 2, 1)


def test_a_call_after_one_that_is_short_is_told_soon(cluster):
    """It has a recall of its own, and an idle node that has just heard of one
    does not let it wait for another beat."""
    c = cluster(founding="0", n=2, location="proxy_read_timeout 600s;")
    bob = c.nodes[0].bob
    make_exact(c, HOLD)
    gate = threading.Event()
    c.b.script(raw(gate, both))
    answers = {}

    def one(i, n):
        answers[i] = call(c, n, bob, BODY)

    threads = [threading.Thread(target=one, args=("held", 1))]
    threads[0].start()
    c.wait(lambda: c.b.requests, "it is not sent")
    later = []
    for _ in range(3):
        time.sleep(3)                   # until the nodes are idle
        for i in range(2):
            threads.append(threading.Thread(target=one, args=(i, 0)))
            threads[-1].start()
            time.sleep(0.1)
        for t in threads[-2:]:
            t.join()
        assert [answers[i].status for i in range(2)] == [402, 402]
        later.append(answers[1].begin + answers[1].took
                     - answers[0].begin - answers[0].took)
    gate.set()
    threads[0].join()
    assert answers["held"].status == 200
    assert sorted(later)[1] < 0.7, later


def test_402_says_what_is_left(cluster):
    c = cluster(founding="0")
    make_exact(c, HOLD - 1)
    for n in range(3):
        need, left, fits = money.refusal(refused(
            call(c, n, c.nodes[0].bob, BODY).response))
        assert (need, left) == (HOLD, HOLD - 1) and fits == 49, n


# Calls that wait.

def test_a_worker_goes_on_while_a_call_waits(cluster):
    """And what waits leaves nothing behind when its client leaves."""
    rich = Key("rich", "b")
    c = cluster(founding="0", keys=[rich], options="wait=5s", workers=1,
                n=1)
    c.expect()
    node = c.nodes[0]
    c.put("rich", 10 ** 12)
    c.put(BOB, 10 * HOLD)
    for _ in range(20):             # of which some more are lent in advance
        assert call(c, 0, rich).status == 200
        time.sleep(0.05)
    node.proxy.hole()
    waiting = []
    for _ in range(5):
        conn = Connection(node.port)
        conn.send(build("POST", "/v1/chat/completions", [node.bob.bearer()],
                        BODY))
        waiting.append(conn)
    a = call(c, 0, rich)
    assert a.status == 200 and a.took < 2, a
    for conn in waiting[1:]:
        conn.close()
    sent = len(c.b.requests)
    node.proxy.clear()
    assert waiting[0].response().status == 200
    waiting[0].close()
    time.sleep(0.5)
    assert len(c.b.requests) == sent + 1
    c.settle()
    assert c.cost_of(BOB) == COST
    c.wait_free()
    assert c.free(BOB) == 10 * HOLD - COST
    assert node.journal.holds() == []


def test_many_wait_and_all_are_lent(cluster):
    """More than there are places for: none is lost."""
    c = cluster(founding="0", options="wait=20s", n=2)
    c.expect()
    c.put(BOB, 1000 * HOLD)
    for node in c.nodes:
        node.proxy.hole()
    done = []

    def one(i):
        done.append(call(c, i % 2, c.nodes[0].bob, BODY))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(60)]
    for t in threads:
        t.start()
    time.sleep(0.5)
    assert done == []
    for node in c.nodes:
        node.proxy.clear()
    for t in threads:
        t.join()
    assert [a.status for a in done] == [200] * 60


def test_503_when_nobody_answers(cluster):
    """What is there is with a node that lives and is silent: not 402."""
    c = cluster(founding="0", options="wait=1s", n=2)
    c.expect()
    make_exact(c, HOLD)
    assert call(c, 0, c.nodes[0].bob, BODY).status == 200
    make_exact(c, HOLD)             # the rest of the hold is with the first
    c.b.script(raw(both))
    c.nodes[0].proxy.hole()
    a = call(c, 1, c.nodes[0].bob, BODY)
    assert a.status in (402, 503), a
    if a.status == 503:
        away(a.response)
    else:
        assert "does not answer" in refused(a.response)
    c.nodes[0].proxy.clear()
    c.wait(lambda: call(c, 1, c.nodes[0].bob, BODY).status == 200,
           "it is not lent")


# What nodes have together.

def test_idle_nodes_give_back(cluster):
    """All of it, after ten seconds without a call."""
    c = cluster()
    with Load(c, [c.nodes[0].bob], 3) as load:
        load.wait(30)
    assert c.lent()
    c.settle()
    c.wait_free()
    assert c.free(BOB) == 5 * 10 ** 9 - c.cost_of(BOB)


def test_topup_on_any_node(cluster):
    """It is one, whoever is told of it, and each node lends it."""
    c = cluster(founding="0")
    for node in c.nodes:
        r = node.post("/admin/accounts/%s/topups" % BOB,
                      {"id": "t-1", "amount": money.euro(3 * HOLD)})
        assert r.status in (200, 201), r
    assert c.balance_of(BOB) == 3 * HOLD
    for n in range(3):
        assert call(c, n, c.nodes[0].bob, BODY).status == 200
    r = c.nodes[1].post("/admin/accounts/%s/topups" % BOB,
                        {"id": "t-1", "amount": "7.00"})
    assert r.status == 409, r


def test_any_node_answers_for_all(cluster):
    c = cluster()
    for n in range(3):
        assert call(c, n, c.nodes[0].bob).status == 200
    c.settle()
    for node in c.nodes:
        accounts = {a["id"]: a for a in node.get(
            "/admin/accounts").json()["accounts"]}
        assert accounts[BOB]["balance"] == money.euro(
            5 * 10 ** 9 - 3 * COST), node.name
        calls = node.get("/admin/calls?account=%s" % BOB).json()["calls"]
        assert len(calls) == 3 and len({x["id"] for x in calls}) == 3


def test_the_balancer(cluster):
    """Calls in turn, and none is lost while a node is away."""
    c = cluster()
    b = c.balance()
    for _ in range(9):
        assert b.post("/v1/chat/completions", BODY,
                      c.nodes[0].bob).status == 200
    c.settle()
    per = c.query("SELECT node, count(*) AS n FROM modelgw.calls GROUP BY 1")
    assert sorted(row["n"] for row in per) == [3, 3, 3]
    c.nodes[1].stop()
    for _ in range(6):
        assert b.post("/v1/chat/completions", BODY,
                      c.nodes[0].bob).status == 200


@pytest.mark.parametrize("how", ["stop", "power_cut"])
def test_a_budget_comes_back_from_a_node_that_was_restarted(cluster, how):
    """Also if its key is not used there again: the last call of it is admitted
    by any node, and nodes that are idle have nothing."""
    key = Key("erin", "b", "budget=%s/total" % money.euro(4 * HOLD))
    c = cluster(keys=[key], founding="100", n=2)
    c.expect()
    assert call(c, 1, key, BODY).status == 200
    c.settle()
    getattr(c.nodes[1], how)()
    c.nodes[1].restart()
    c.wait_joined()
    for _ in range(3):
        a = call(c, 0, key, BODY)
        assert a.status == 200, a.response
    spent = 4 * COST
    body = dict(BODY, max_tokens=50 + (4 * HOLD - spent - HOLD) // 2000)
    a = call(c, 0, key, body)       # all but less than one more token
    assert a.status == 200, a.response
    c.settle()
    c.wait_free()


def test_what_is_held_is_told_again(cluster):
    """After the database was set back to when calls held something: that they
    have ended is said again, also of a lease of which nothing is left."""
    key = Key("erin", "b", "budget=5.00/total")
    c = cluster(keys=[key], founding="100", n=2)
    c.expect()
    assert call(c, 0, key, BODY).status == 200
    c.settle()
    c.wait_free()
    n = c.one("WITH u AS (UPDATE modelgw.leases SET held = 1000 RETURNING 1) "
              "SELECT count(*) FROM u")
    assert n >= 2                   # of the account, and of the budget
    for node in c.nodes:
        node.proxy.cut()
    c.settle()
    assert c.differences() == []
