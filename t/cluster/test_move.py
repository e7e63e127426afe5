"""From one machine to several and back: the same calls cost the same, and the
books agree, to the nano-euro; nodes that leave, and are written off."""

import os
import sqlite3
import subprocess

import pytest

import gateway as lib
import money
from cluster import Load, call
from gateway import Key
from operators import GROUPS
from test_shared_credit import BODY, BOB, COST, HOLD

CTL = os.path.join(lib.ROOT, "conf/modelgwctl")
FOUNDING = 5 * 10 ** 9


def ctl(*args):
    p = subprocess.run([CTL] + list(args), capture_output=True, text=True,
                       timeout=120)
    assert p.returncode == 0, (p.stdout, p.stderr)
    return p.stdout + p.stderr


def change(node, path, body):
    r = node.request("PATCH", "/admin/nodes/" + path, body=body)
    assert r.status == 200, r
    return r.json()


def nodes(node):
    r = node.get("/admin/nodes")
    assert r.status == 200, r
    return {n["name"]: n for n in r.json()["nodes"]}


def drain(c, node):
    """From another node: it ships all, gives all back, and leaves."""
    other = next(n for n in c.nodes if n is not node)
    num = node.num()
    change(other, str(num), {"drain": True})
    c.wait(lambda: node.row()["state"] == 1, lambda: "%s does not leave: %s"
           % (node.name, node.row()))
    assert not [k for k in c.lent() if k[0] == num]


def ledger(path, sql):
    db = sqlite3.connect("file:%s?mode=ro" % path, uri=True)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def test_there_and_back(database, gateway, cluster):
    """Ten calls on one machine, ten on three nodes, ten on one machine again."""
    g = gateway(http="modelgw_ledger $dir/ledger.db; modelgw_founding_credit "
                     "5.00; modelgw_managed_keys 100;", groups=GROUPS,
                locations="location /admin/ { modelgw_admin; }")
    made = g.post("/admin/keys", {"id": "dora", "group": "b"}).json()
    dora = Key("dora", "b", secret=made["key"])
    for _ in range(10):
        assert g.chat(BODY, dora).status == 200
    g.stop()
    one = g.path("ledger.db")
    database.run("DROP SCHEMA modelgw CASCADE")
    ctl("cluster", "init", database.owner(), "--role", "modelgw")
    ctl("cluster", "import", one, database.owner())

    c = cluster(servers=[database])
    for node in c.nodes:
        node.hidden.append(dora.secret)
    for n in range(3):                  # it has joined, and hears of keys then
        c.wait(lambda: c.nodes[n].get("/v1/models", key=dora).status == 200,
               "the key is not known")
    for i in range(10):
        a = call(c, i % 3, dora, BODY)
        assert a.status == 200, a.response
    c.settle()
    assert c.differences() == []
    assert c.cost_of("dora") == 20 * COST
    assert c.balance_of("dora") == FOUNDING - 20 * COST
    for node in c.nodes[1:]:
        drain(c, node)
    change(c.nodes[0], str(c.nodes[0].num()), {"drain": True})
    c.wait(lambda: c.nodes[0].row()["state"] == 1, "the last does not leave")
    assert c.lent() == {}
    assert c.remove() == []
    c.nodes.clear()

    ctl("cluster", "export", one, database.owner())
    g.start()
    for _ in range(10):
        assert g.chat(BODY, dora).status == 200
    g.stop()
    assert ledger(one, "SELECT count(*) FROM audit WHERE difference <> 0 "
                       "OR hours <> 0") == [(0,)]
    assert ledger(one, "SELECT balance FROM accounts WHERE name = 'dora'") \
        == [(FOUNDING - 30 * COST,)]
    assert ledger(one, "SELECT count(*), count(DISTINCT id), sum(cost) FROM "
                       "calls WHERE key = 'dora'") == [(30, 30, 30 * COST)]


def test_drain_under_load(cluster):
    """The balancer's other nodes take the calls; it comes back when it is
    told to."""
    rich = Key("rich", "b")
    c = cluster(founding="0", keys=[rich])
    c.expect()
    c.put("rich", 10 ** 12)
    node = c.nodes[2]
    with Load(c, [rich], 4, body=BODY) as load:
        load.wait(30)
        drain(c, node)
        assert nodes(c.nodes[0])["gw3"]["state"] == "left"
        load.wait(5, 503, nodes=[2])
        load.wait(20, nodes=[0, 1])
        assert set(load.statuses(nodes=[0, 1])) == {200}
        change(c.nodes[0], str(node.num()), {"drain": False})
        load.wait(10, nodes=[2])


@pytest.mark.parametrize("alive", [True, False])
def test_write_off_by_an_operator(cluster, alive):
    """What the node had is free; its calls, if it comes back, are charged."""
    c = cluster(founding="0", n=2)
    c.expect()
    c.put(BOB, 20 * HOLD)
    for _ in range(3):
        assert call(c, 0, c.nodes[0].bob, BODY).status == 200
    num = c.nodes[0].num()
    if not alive:
        c.nodes[0].proxy.refuse()
    c.wait(lambda: alive or nodes(c.nodes[1])["gw1"]["state"] == "away",
           "it is not away")
    r = c.nodes[1].post("/admin/nodes/%d/write-off" % num, {})
    assert r.status == 200, r
    if not alive:
        assert c.lent().get((num, BOB)) is None
    c.nodes[0].proxy.clear()
    c.wait_joined()
    c.wait(lambda: call(c, 0, c.nodes[0].bob, BODY).status == 200,
           "it does not come back")
    c.settle()
    assert c.differences() == []
    assert c.balance_of(BOB) == 20 * HOLD - c.cost_of(BOB)
    assert money.euro(c.balance_of(BOB))
