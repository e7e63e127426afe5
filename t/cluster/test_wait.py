"""Calls that wait for credit, nodes that are offline, and reloads: what the
nginx side does of a cluster."""

import json
import os
import time

import pytest

import gateway as lib
import metrics
from client import H2, Connection, assert_flat, build
from cluster import call, wait_for
from gateway import Key, chat
from money import Bound, Line
from operators import GROUPS
from upstream import reply

LINE = Line(input=1, output=2, max_output=4000)     # of fam-b-one
BODY = chat(max_tokens=50)
HOLD = Bound(json.dumps(BODY).encode(), LINE, "chat").hold
BOB = "bob-1"
ALICE = "alice"
PLACES = "location = /ready { modelgw_ready; }"


def put(c, amount):
    c.wait(lambda: c.free(BOB) is not None, "there is no account")
    c.put(BOB, amount)


@pytest.fixture
def one(cluster):
    """A node, with credit, that has none of it yet."""
    def make(options="wait=10s", more="", **kw):
        c = cluster(founding="0", n=1, locations=PLACES + more,
                    options=options, **kw)
        c.expect()
        wait_for(lambda: c.nodes[0].get("/ready").status == 200,
                 "it is not ready")
        put(c, 1000 * HOLD)
        return c
    return make


def scraped(node):
    return metrics.Metrics(node.get("/metrics").body.decode())


def waiting(node, n):
    wait_for(lambda: scraped(node).one("modelgw_cluster_waiting") == n,
             lambda: "not %d wait, but %s" % (
                 n, scraped(node).one("modelgw_cluster_waiting")), 10)


def in_flight(node, n):
    wait_for(lambda: node.get("/admin/status").json()["in_flight"] == n,
             "not %d calls have a slot" % n, 10)


def ask(node):
    c = Connection(node.port)
    c.send(build("POST", "/v1/chat/completions", [node.bob.bearer()], BODY))
    return c


# A client leaves.

@pytest.mark.parametrize("http", ["h1", "h2", "reset"])
def test_a_client_leaves(one, http):
    """Nothing is left of its call: no slot, no claim, no hold."""
    c = one()
    node = c.nodes[0]
    node.proxy.hole()
    if http == "h1":
        a = ask(node)
    else:
        a = H2(node.port2)
        sid = a.request("POST", "/v1/chat/completions", [node.bob.bearer()],
                        BODY)
    waiting(node, 1)
    in_flight(node, 1)
    if http == "reset":
        a.reset(sid)
    else:
        a.close()
    waiting(node, 0)
    in_flight(node, 0)
    b = ask(node)
    waiting(node, 1)
    node.proxy.clear()
    assert b.response().status == 200
    assert len(c.b.requests) == 1
    c.settle()
    c.wait(lambda: c.one("SELECT sum(held)::bigint FROM modelgw.leases") == 0,
           "something is held")
    assert "client prematurely closed" in node.read("error.log")
    a.close()


def test_many_streams_of_a_connection_leave(one):
    c = one()
    node = c.nodes[0]
    node.proxy.hole()
    a = H2(node.port2)
    for _ in range(30):
        a.request("POST", "/v1/chat/completions", [node.bob.bearer()], BODY)
    waiting(node, 30)
    a.close()
    waiting(node, 0)
    node.proxy.clear()
    assert node.chat(BODY, node.bob).status == 200


# What waits goes on as if it had not.

@pytest.mark.parametrize("target,body", [
    ("/v1/chat/completions", BODY),
    ("/v1/chat/completions", chat(stream=True)),
    ("/v1/responses", {"model": "fam-b-one", "input": "Hello",
                       "max_output_tokens": 50})])
def test_it_goes_on(one, target, body):
    c = one()
    node = c.nodes[0]
    node.proxy.hole()
    conn = Connection(node.port)
    data = build("POST", target, [node.bob.bearer()], body)
    conn.send(data[:-30])               # the body is read in two parts
    time.sleep(0.1)
    conn.send(data[-30:])
    waiting(node, 1)
    node.proxy.clear()
    r = conn.response()
    assert r.status == 200 and r.complete, r
    (sent,) = c.b.requests
    assert json.loads(sent.body)["model"] == "one-0613"
    conn.send(build("POST", "/v1/chat/completions", [node.bob.bearer()], BODY))
    assert conn.response().status == 200    # the connection is kept
    assert scraped(node).one("modelgw_cluster_waits_total",
                              result="lent") >= 1


def test_translated_calls_wait(one):
    """Each is the upstream's call that its own body makes, whatever the worker
    has read since."""
    c = one()
    node = c.nodes[0]
    c.wait(lambda: c.free(ALICE) is not None, "there is no account")
    c.put(ALICE, 10 ** 12)
    node.proxy.hole()
    texts = ["one", "two and more", "three"]
    conns = []
    for n, text in enumerate(texts):
        conns.append(Connection(node.port))
        conns[-1].send(build("POST", "/v1/chat/completions",
                             [node.alice.bearer()], chat(
            "fam-a-large", messages=[{"role": "user", "content": text}],
            temperature=n / 2)))
        waiting(node, n + 1)
    node.proxy.clear()
    assert [conn.response().status for conn in conns] == [200, 200, 200]
    sent = [json.loads(q.body) for q in c.a.requests]
    assert sorted((q["temperature"], q["messages"][0]["content"][0]["text"])
                  for q in sent) == [(n / 2, t) for n, t in enumerate(texts)]


def test_pipelined_calls(one):
    c = one()
    node = c.nodes[0]
    node.proxy.hole()
    conn = ask(node)
    conn.send(build("POST", "/v1/chat/completions", [node.bob.bearer()], BODY))
    waiting(node, 1)
    node.proxy.clear()
    assert [conn.response().status for _ in range(2)] == [200, 200]


def test_a_reload_while_calls_wait(one):
    """The old worker stays for them."""
    c = one()
    node = c.nodes[0]
    node.proxy.hole()
    conns = [ask(node) for _ in range(3)]
    waiting(node, 3)
    node.reload()
    node.proxy.clear()
    assert [conn.response().status for conn in conns] == [200] * 3


def test_a_worker_is_killed_while_calls_wait(one):
    """Places and slots are free again."""
    c = one(workers=2)
    node = c.nodes[0]
    node.expect("exited on signal 9")
    node.proxy.hole()
    conns = [ask(node) for _ in range(11)]
    waiting(node, 11)
    node.kill_workers()
    waiting(node, 0)
    node.proxy.clear()
    c.wait(lambda: call(c, 0, node.bob, BODY).status == 200, "its slot is lost")
    for conn in conns:
        conn.close()


# Refusals.

def test_more_wait_than_there_are_claims(one):
    """256, and then in turn."""
    c = one("wait=30s")
    node = c.nodes[0]
    node.proxy.hole()
    conns = [ask(node) for _ in range(300)]
    waiting(node, 256)
    for conn in conns[-10:]:
        conn.close()
    time.sleep(0.2)
    node.proxy.clear()
    assert {conn.response().status for conn in conns[:-10]} == {200}
    waiting(node, 0)
    assert len(c.b.requests) == 290


def test_402_is_that_of_one_machine(cluster):
    c = cluster(founding="0", n=2, locations=PLACES)
    put(c, HOLD - 1)
    r = c.nodes[0].chat(BODY, c.nodes[0].bob)
    text = assert_flat(r, 402, "INSUFFICIENT_CREDIT")["message"]
    euro = "%.9f" % ((HOLD - 1) / 1e9)
    assert text.startswith("Insufficient credit: the call may cost up to ")
    assert ", %s are left; add credit, or ask for less: max_tokens of 49 " \
        "would fit" % euro.rstrip("0") in text
    assert scraped(c.nodes[0]).one("modelgw_cluster_waits_total",
                                    result="402") == 1


def test_402_names_what_a_node_has_that_is_away(cluster):
    c = cluster(founding="0", n=2)
    c.expect()
    put(c, 2 * HOLD)
    assert call(c, 1, c.nodes[1].bob, BODY).status == 200
    c.wait(lambda: c.nodes[1].lease(BOB)["rest"] > 0, "nothing is lent")
    c.nodes[1].proxy.hole()
    c.nodes[1].power_cut()
    c.wait(lambda: c.nodes[1].row()["seen"] < c.now() - 4000, "it is seen")
    many = chat(max_tokens=100)
    r = c.nodes[0].chat(many, c.nodes[0].bob)
    text = assert_flat(r, 402, "INSUFFICIENT_CREDIT")["message"]
    assert "euro are held by a node that does not answer; add credit" in text
    c.nodes[1].proxy.clear()
    c.nodes[1].restart()
    c.wait_joined()


def test_503_without_the_database(one):
    """Before "offline" nobody says how much there is."""
    c = one("wait=500ms offline=1m")
    node = c.nodes[0]
    node.proxy.refuse()
    node.wait_log("the cluster cannot be reached, calls go on with what is "
                  "lent: ")
    a = call(c, 0, node.bob, BODY)
    assert_flat(a.response, 503, "SERVICE_UNAVAILABLE",
                has="The cluster cannot be reached, and not enough credit is "
                    "lent to this node")
    assert a.response.get("retry-after") == "1" and a.took < 3, a
    assert node.get("/ready").status == 200
    m = scraped(node)
    assert m.one("modelgw_cluster_up") == 0
    assert m.one("modelgw_cluster_waits_total", result="503") == 1
    node.proxy.clear()
    c.wait(lambda: call(c, 0, node.bob, BODY).status == 200, "it is not lent")
    node.wait_log("the cluster is reached again")


def test_offline(one):
    """Calls are refused, the balancer is told, and then all goes on."""
    c = one("wait=500ms offline=2s")
    node = c.nodes[0]
    assert call(c, 0, node.bob, BODY).status == 200
    assert node.get("/ready").status == 200
    status = node.get("/admin/status").json()
    assert status["ok"] and status["cluster"]["state"] == "member"
    assert status["cluster"]["node"] == node.num()

    node.proxy.refuse()
    wait_for(lambda: node.get("/ready").status == 503, "it is ready")
    text = "The node has not reached its cluster for too long"
    assert_flat(node.get("/ready"), 503, "SERVICE_UNAVAILABLE", has=text)
    r = node.chat(BODY, node.bob)
    assert_flat(r, 503, "SERVICE_UNAVAILABLE", text + ", try again later")
    r = node.get("/admin/status")
    assert r.status == 503
    assert r.json()["cluster"]["state"] == "offline"
    assert r.json()["cluster"]["last_exchange_ms"] >= 2000
    assert scraped(node).one("modelgw_cluster_seconds_since_exchange") >= 2
    node.wait_log("the cluster was not reached for \\d+ s, calls are refused")

    node.proxy.clear()
    wait_for(lambda: node.get("/ready").status == 200, "it is not ready")
    assert call(c, 0, node.bob, BODY).status == 200
    status = node.get("/admin/status").json()
    assert status["ok"] and status["cluster"]["state"] == "member"
    assert node.read("error.log").count("was not reached for") == 1


def test_offline_is_that_of_the_last_reload(one):
    c = one("wait=500ms offline=1m")
    node = c.nodes[0]
    assert call(c, 0, node.bob, BODY).status == 200
    node.proxy.refuse()
    time.sleep(1)
    node.http = node.http.replace("offline=1m", "offline=1s")
    node.write()
    node.reload()
    wait_for(lambda: node.get("/ready").status == 503, "it is ready")
    node.http = node.http.replace("offline=1s", "offline=1m")
    node.write()
    node.reload()
    wait_for(lambda: node.get("/ready").status == 200, "it is not ready")
    assert node.get("/admin/status").json()["cluster"]["state"] == "away"
    node.proxy.clear()
    c.wait(lambda: node.get("/admin/status").json()["cluster"]["state"]
           == "member", "it is away")


# Metrics of an exchange.

def test_metrics(one):
    c = one()
    node = c.nodes[0]
    assert call(c, 0, node.bob, BODY).status == 200
    c.settle()
    m = scraped(node)
    assert m.one("modelgw_cluster_up") == 1
    assert m.one("modelgw_cluster_behind_calls") == 0
    assert 0 <= m.one("modelgw_cluster_seconds_since_exchange") < 3
    assert m.one("modelgw_cluster_exchange_seconds_count") >= 1
    assert m.one("modelgw_cluster_exchange_seconds_sum") > 0
    assert m.one("modelgw_cluster_lent_euro") * 10 ** 9 \
        == node.lease(BOB)["rest"]
    assert m.one("modelgw_cluster_fenced_total") == 0


# Reloads that change what cannot be changed.

def test_the_directive_stays(one):
    c = one()
    node = c.nodes[0]
    before = node.http
    node.http = "\n".join(line for line in before.split("\n")
                          if "modelgw_cluster" not in line)
    node.write()
    node.reload(ok=False)
    assert "\"modelgw_cluster\" cannot be added or removed by a reload" \
        in node.read("error.log")
    node.http = before
    node.write()
    os.chmod(node.path("db.password"), 0o644)
    node.reload(ok=False)
    assert "chmod 0600" in node.read("error.log")
    os.chmod(node.path("db.password"), 0o600)
    node.reload()
    assert call(c, 0, node.bob, BODY).status == 200


def test_the_directive_cannot_be_added(gateway):
    g = gateway(http="modelgw_ledger $dir/ledger.db;", groups=GROUPS)
    g.http += 'modelgw_cluster "host=/run/none";'
    g.write()
    g.reload(ok=False)
    assert "\"modelgw_cluster\" cannot be added or removed by a reload" \
        in g.read("error.log")


def test_a_ledger_of_one_machine(gateway):
    """It has to be imported."""
    g = gateway(http="modelgw_ledger $dir/ledger.db;", groups=GROUPS)
    g.stop()
    g.http += 'modelgw_cluster "host=/run/none";'
    p = g.check()
    assert p.returncode == 1 and "modelgwctl cluster import" in p.stderr
    with pytest.raises(lib.Failed, match="modelgwctl cluster import"):
        g.start()


def test_what_is_lent_is_not_what_is_left(cluster):
    """A refusal by a budget tells what is left of it; nothing else does."""
    key = Key("spender", "b", "account=bob-1 budget=1/day")
    c = cluster(n=1, keys=[key])
    c.expect()
    node = c.nodes[0]
    c.wait(lambda: call(c, 0, key, BODY).status == 200, "it is not lent")
    c.b.script(reply(500, b"{}"))
    r = node.chat(BODY, key)
    assert r.status >= 500 and not r.get("x-modelgw-budget-remaining"), r
    r = node.chat(chat(max_tokens=4000, n=128), key)
    assert_flat(r, 402, "BUDGET_EXCEEDED")
    assert 0.9 < float(r.get("x-modelgw-budget-remaining")) < 1
