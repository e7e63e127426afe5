"""Keys that one node makes, changes and revokes, and all nodes know."""

import os
import time

import pytest

from client import assert_flat
from cluster import call
from gateway import ASAN, Key

EXCHANGE = 0.1
MANY_KEYS = int(os.environ.get("MODELGW_KEYS", 4000 if ASAN else 20000))
                                        # the long form has 100000


def made(node, id, **body):
    r = node.post("/admin/keys", dict({"id": id, "group": "b"}, **body))
    assert r.status == 201, r
    key = Key(id, "b", secret=r.json()["key"])
    for other in node.cluster.nodes:
        other.hidden.append(key.secret)
    return key


def change(node, id, method="PATCH", body=None):
    r = node.request(method, "/admin/keys/" + id, body=body)
    assert r.status in (200, 204), r


def everywhere(c, key, status, begin, nodes=None, seconds=EXCHANGE + 1):
    """Within the time all nodes answer so; each of them then goes on to."""
    for n in nodes if nodes is not None else range(len(c.nodes)):
        c.wait(lambda: call(c, n, key).status == status,
               "%s: %s" % (c.nodes[n].name, status))
        took = time.monotonic() - begin
        assert took < seconds + 1, took         # a busy machine
    for n in nodes if nodes is not None else range(len(c.nodes)):
        for _ in range(4):
            a = call(c, n, key)
            assert a.status == status, a


def test_a_key_works_on_all_nodes(cluster):
    """When the node that made it says so, the others know it."""
    c = cluster()
    for i, node in enumerate(c.nodes):
        key = made(node, "dora-%d" % i)
        for n in range(3):
            a = call(c, n, key)
            assert a.status == 200, (i, a.response)


def test_a_node_that_starts(cluster):
    """Until it has heard of all keys it does not say of any that it is wrong;
    a new one is not ready.  Others are, also without the database."""
    c = cluster(n=1, locations="location = /ready { modelgw_ready; }")
    node = c.add("new")
    wrong = Key("wrong", "b")
    for i in range(2):                  # made while it was stopped, too
        key = made(c.nodes[0], "dora-%d" % i, account="alice")
        node.proxy.delay(0.3)
        node.start()
        seen = set()
        while seen.isdisjoint({200}):
            if i == 0 and node.get("/ready").status == 200:
                assert call(c, 1, key).status == 200
            seen.add(call(c, 1, key).status)
        assert seen <= {503, 200}, seen
        c.wait(lambda: node.get("/ready").status == 200, "it is not ready")
        assert call(c, 1, wrong).status == 401
        node.proxy.clear()
        if i == 0:
            node.stop()


def test_a_revoked_key_stops_on_all_nodes(cluster):
    c = cluster()
    key = made(c.nodes[0], "dora")
    everywhere(c, key, 200, time.monotonic())
    begin = time.monotonic()
    change(c.nodes[1], "dora", "DELETE")
    everywhere(c, key, 401, begin)
    for node in c.nodes:
        assert node.get("/admin/keys/dora").json()["state"] == "revoked"


def test_a_changed_key(cluster):
    c = cluster()
    key = made(c.nodes[0], "dora")
    change(c.nodes[1], "dora", body={"models": ["fam-b-two"]})
    for n in range(3):
        c.wait(lambda: call(c, n, key).status == 400, "%d" % n)
    change(c.nodes[2], "dora", body={"models": None})
    everywhere(c, key, 200, time.monotonic())


def test_keys_are_there_after_a_restart(cluster):
    """Without database, too: they are in the journal."""
    c = cluster(n=2, options="offline=1h wait=1s")
    c.expect()
    key = made(c.nodes[0], "dora")
    gone = made(c.nodes[0], "gone")
    everywhere(c, key, 200, time.monotonic())
    change(c.nodes[0], "gone", "DELETE")
    everywhere(c, gone, 401, time.monotonic())
    node = c.nodes[1]
    node.power_cut()
    node.proxy.refuse()
    node.restart()
    assert call(c, 1, gone).status == 401
    assert call(c, 1, key).status in (200, 503)     # by its lease, or without
    node.proxy.clear()
    c.wait_joined()
    c.wait(lambda: call(c, 1, key).status == 200, "it is not known")


def test_a_revoked_key_stops_on_a_node_that_is_cut_off(cluster):
    """Within "offline", as everything does."""
    c = cluster(options="offline=2s wait=1s")
    c.expect()
    key = made(c.nodes[0], "dora")
    everywhere(c, key, 200, time.monotonic())
    c.nodes[2].proxy.hole()
    begin = time.monotonic()
    change(c.nodes[0], "dora", "DELETE")
    everywhere(c, key, 401, begin, [0, 1], seconds=3)
    c.wait(lambda: call(c, 2, key).status in (401, 503), "it goes on")
    assert time.monotonic() - begin < 2 + 2
    for _ in range(4):
        assert call(c, 2, key).status in (401, 503)
    c.nodes[2].proxy.clear()
    everywhere(c, key, 401, time.monotonic(), [2], seconds=10)


def test_an_account_is_closed_everywhere(cluster):
    c = cluster()
    key = made(c.nodes[0], "dora")
    everywhere(c, key, 200, time.monotonic())
    r = c.nodes[1].request("PATCH", "/admin/accounts/dora",
                           body={"state": "closed"})
    assert r.status == 200, r
    for n in range(3):
        c.wait(lambda: call(c, n, key).status == 401, "%d" % n)


@pytest.mark.parametrize("fault", ["cut-answer", "cut"])
def test_a_key_is_made_once(cluster, fault):
    """Whatever becomes of the answer of the database."""
    c = cluster(n=2)
    c.expect()
    c.settle()
    proxy = c.nodes[0].proxy
    if fault == "cut":
        proxy.cut()
    else:
        proxy.cut_answer()
    key = made(c.nodes[0], "dora")
    everywhere(c, key, 200, time.monotonic(), seconds=5)
    assert c.one("SELECT count(*) FROM modelgw.keys WHERE id = 'dora'") == 1
    assert c.one("SELECT count(*) FROM modelgw.actions WHERE action = "
                 "'key.create' AND target = 'dora'") == 1


MANY = """
    INSERT INTO modelgw.keys
    SELECT sha256(('sk-eu-' || lpad(i::text, 48, '0'))::bytea), 'many-' || i,
        account, "group", models, rpm, tpm, concurrency, budget, "window",
        expires, state, k.version, created, changed, note, c.keys_version + i
    FROM modelgw.keys k, modelgw.cluster c, generate_series(1, %d) AS i
    WHERE k.id = 'dora';
    UPDATE modelgw.cluster SET keys_version = keys_version + %d"""


def test_keys_by_the_thousand(cluster):
    """They reach nodes that run, and those that start; what is made and
    revoked then is as quick as ever."""
    many = MANY_KEYS
    c = cluster(zone="240m", managed=many + 100)
    made(c.nodes[0], "dora")
    begin = time.monotonic()
    c.server.run(MANY % (many, many))
    last = Key("many", "b", secret="sk-eu-%048d" % many)
    for node in c.nodes:
        c.wait(lambda: node.get("/v1/models", key=last).status == 200,
               "%s does not know it" % node.name, 200)
    print("%d keys are known after %.1f s" % (many, time.monotonic() - begin))
    key = made(c.nodes[1], "erin")
    everywhere(c, key, 200, time.monotonic())
    begin = time.monotonic()
    change(c.nodes[2], "erin", "DELETE")
    everywhere(c, key, 401, begin)
    c.nodes[0].stop()
    c.nodes[0].restart()
    for i in (1, many // 2, many):
        one = Key("many", "b", secret="sk-eu-%048d" % i)
        assert c.nodes[0].get("/v1/models", key=one).status == 200, i
    assert call(c, 0, key).status == 401


@pytest.mark.parametrize("before", (0, 1), ids=["none", "one"])
def test_keys_that_a_dump_does_not_have_are_gone(cluster, before):
    """Or nobody could revoke them."""
    c = cluster(n=2)
    c.expect()
    old = [made(c.nodes[0], "dora-%d" % i) for i in range(before)]
    path = c.server.dump()
    key = made(c.nodes[0], "emma")
    everywhere(c, key, 200, time.monotonic())
    for node in c.nodes:
        node.proxy.refuse()
    c.server.restore(path)
    for node in c.nodes:
        node.proxy.clear()
    everywhere(c, key, 401, time.monotonic(), seconds=10)
    for k in old:
        everywhere(c, k, 200, time.monotonic())
    late = made(c.nodes[1], "lara")
    everywhere(c, late, 200, time.monotonic())


def test_no_database_no_change(cluster):
    c = cluster(n=2)
    c.expect()
    c.nodes[0].proxy.refuse()
    r = c.nodes[0].post("/admin/keys", {"id": "dora", "group": "b"},
                        timeout=60)
    assert_flat(r, 503, "SERVICE_UNAVAILABLE")
    c.nodes[0].proxy.clear()
    c.wait_joined()
    assert c.one("SELECT count(*) FROM modelgw.keys") == 0
