"""The ledger's file as the journal of a node: what is one, what it forgets and
what not, and a node that starts with it alone."""

import hashlib
import os
import sqlite3
import stat
import threading

import pytest

from cluster import Load, call
from gateway import ASAN, Failed, Key, wait_dead
from operators import GROUPS
from test_shared_credit import BODY, HOLD
from upstream import both, raw

ALONE = """
    modelgw_zone 8m;
    modelgw_ledger $dir/ledger.db;
    modelgw_founding_credit 5;
    %s
"""

CLUSTER = 'modelgw_cluster "host=/nowhere dbname=modelgw";'

MANY = 4000 if ASAN else 20000          # keys

DAY = 86400


def configured(gw, http):
    gw.http = ALONE % http
    gw.write()


def check(gw):
    """Whether nginx -t accepts it, and what it says."""
    p = gw.check_again()
    return p.returncode == 0, p.stderr


def answered(c, key, n=0):
    """By a node that may have to join first."""
    c.wait(lambda: call(c, n, key).status == 200, "no answer to %s" % key.id)


def killed(node):
    """At once, with all its processes."""
    pids = node.kill_all()
    node.process.wait()
    node.process = None
    wait_dead(pids)


def written(node, *statements):
    """To the journal of a node that does not run."""
    db = sqlite3.connect(node.path("ledger.db"))
    with db:
        for sql in statements:
            db.execute(sql)
    db.close()


def version(gw):
    with sqlite3.connect(gw.path("ledger.db")) as db:
        return db.execute("PRAGMA user_version").fetchone()[0]


def test_kinds(gateway):
    """A file is of one machine or of a node, from its first start on."""
    gw = gateway(http=ALONE % "", groups=GROUPS)
    gw.stop()
    assert version(gw) == 2
    with open(gw.path("ledger.db"), "rb") as f:
        before = hashlib.sha256(f.read()).digest()

    configured(gw, CLUSTER)
    ok, text = check(gw)
    assert not ok and "modelgwctl cluster import" in text, text
    with pytest.raises(Failed, match="modelgwctl cluster import"):
        gw.start()
    with open(gw.path("ledger.db"), "rb") as f:
        assert hashlib.sha256(f.read()).digest() == before

    os.unlink(gw.path("ledger.db"))
    gw.expect("cluster")
    gw.start()
    assert check(gw)[0]
    gw.stop()
    assert version(gw) == 102
    assert stat.S_IMODE(os.stat(gw.path("ledger.db")).st_mode) == 0o600

    configured(gw, "")
    ok, text = check(gw)
    assert not ok and 'needs "modelgw_cluster"' in text, text
    with pytest.raises(Failed, match='needs "modelgw_cluster"'):
        gw.start()


def test_identity(cluster):
    """Each node has an id of its own, and keeps it."""
    c = cluster(n=2)
    ids = [node.journal.id() for node in c.nodes]
    assert len(set(ids)) == 2 and all(len(i) == 32 for i in ids)

    c.nodes[0].stop()
    c.nodes[0].restart()
    answered(c, c.nodes[0].bob)
    assert [node.journal.id() for node in c.nodes] == ids


def test_start_alone(cluster):
    """Without the database a node starts with the keys and leases that it has,
    those of operators, too."""
    c = cluster(n=2, options="wait=500ms")
    node = c.nodes[0]
    r = node.post("/admin/keys", {"id": "late", "group": "b"})
    assert r.status == 201, r
    key = Key("late", "b", secret=r.json()["key"])
    for n in c.nodes:
        n.hidden.append(key.secret)
    c.put("late", 10 ** 10)
    c.wait(lambda: call(c, 0, key, BODY).status == 200, "no answer")

    # enough for another call is lent in advance, and written down

    def written():
        lease = node.lease("late")
        rows = node.journal.query("SELECT granted FROM leases "
                                  "WHERE account = 'late'")
        return lease["rest"] >= HOLD and lease["spent"] and rows \
            and rows[0]["granted"] == lease["granted"]

    c.wait(written, "the lease is not in the journal")

    c.expect()
    node.proxy.refuse()
    killed(node)
    node.restart()
    assert call(c, 0, key, BODY).status == 200

    # one that it does not know may have been made since

    assert node.request("GET", "/v1/models", headers=[
        ("Authorization", "Bearer sk-eu-" + "0" * 48)]).status == 503

    # what it has borrowed is all that there is

    statuses = []
    while statuses[-3:] != [503] * 3:
        statuses.append(call(c, 0, key, BODY).status)
        assert statuses[-1] in (200, 503) and len(statuses) < 1000, statuses

    node.proxy.clear()
    answered(c, key)


def test_lost_call(cluster):
    """A call that was open as a node was killed has a position, too."""
    c = cluster(n=2)
    node = c.nodes[0]
    answered(c, node.bob)
    c.settle()
    end = node.journal.end()
    before = len(node.journal.calls())

    gate = threading.Event()
    node.b.script(raw(gate, both))
    caller = threading.Thread(target=call, args=(c, 0, node.bob))
    caller.start()
    c.wait(lambda: node.journal.holds(), "a hold")
    killed(node)
    gate.set()
    caller.join()
    node.b.reset()
    node.restart()
    c.settle()

    calls = node.journal.calls()
    assert len(calls) == before + 1
    lost = calls[max(calls)]
    assert max(calls) > end
    assert (lost["outcome"], lost["end"]) == ("unanswered", "lost")


def libpq(gw):
    """Whether the master or a worker has it in memory."""
    for pid in [gw.process.pid] + gw.pids():
        with open("/proc/%d/maps" % pid) as f:
            if "libpq" in f.read():
                return True
    return False


def test_libpq_without_cluster(gateway, cluster):
    """It is loaded by nodes of a cluster only."""
    gw = gateway(groups=GROUPS, http=ALONE % "")
    assert gw.chat(BODY, gw.bob).status == 200
    assert not libpq(gw)

    c = cluster(n=1)
    answered(c, c.nodes[0].bob)
    assert libpq(c.nodes[0])


def test_keep(cluster):
    """Calls are kept until a week after the database has them, then they are
    rolled up here; those that it does not have are not."""
    c = cluster(n=1, check=False)
    node = c.nodes[0]
    answered(c, node.bob)
    for _ in range(4):          # they are forgotten by batches
        c.settle()
        assert call(c, 0, node.bob).status == 200
    c.settle()
    c.wait(lambda: node.journal.query("SELECT pos FROM node")
           == [{"pos": node.journal.end()}], "the row of the node is behind")
    c.expect()
    node.proxy.refuse()
    node.stop()

    # ten days ago

    old = "UPDATE calls SET time = time - %d, ended = ended - %d" % (
        2 * (10 * DAY * 1000,))
    written(node, "DELETE FROM acknowledged",
            "INSERT INTO acknowledged SELECT CAST(strftime('%s', 'now') AS "
            "INTEGER) - 8 * 86400, pos - 2 FROM node",
            "DELETE FROM hours", "DELETE FROM marks WHERE name = 'hours'",
            old)
    node.http = node.http.replace("ledger.db;", "ledger.db keep=1d;")
    assert "keep=1d" in node.http
    node.write()
    node.restart()
    c.wait(lambda: len(node.journal.calls()) == 2
           and node.journal.query("SELECT sum(calls) AS n FROM days")[0]["n"],
           lambda: "calls are kept: %s" % node.journal.calls())
    assert node.journal.query("SELECT sum(calls) AS n FROM days") == [{"n": 3}]
    assert node.journal.query("SELECT count(*) AS n FROM calls") == [{"n": 2}]
    assert node.journal.faults() == []

    node.proxy.clear()
    answered(c, node.bob)
    c.settle()


def test_many_keys(cluster):
    """Keys by the thousand reach the nodes while calls go on, and none of them
    finds a key unknown."""
    c = cluster(n=2, start=False, options="wait=30s")
    for node in c.nodes:
        node.http = node.http.replace("managed_keys 1000",
                                      "managed_keys %d" % (MANY + 10))
        node.http = node.http.replace("modelgw_zone 8m", "modelgw_zone 64m")
    c.start()
    keys = [Key("many-%d" % i, "b") for i in (0, 1, MANY - 1)]
    for node in c.nodes:
        node.hidden += [key.secret for key in keys]
    digests = "CASE n %s ELSE sha256(n::text::bytea) END" % " ".join(
        "WHEN %s THEN '\\x%s'" % (key.id[5:], key.digest()[7:])
        for key in keys)

    def put(rpm):
        """Each of them is a change of its own."""
        c.server.run("WITH v AS (UPDATE modelgw.cluster SET keys_version = "
                     "keys_version + %d RETURNING keys_version) "
                     "INSERT INTO modelgw.keys SELECT %s, "
                     "'many-' || n, 'many', 'b', '', %d, 0, 0, 10^10::bigint, "
                     "'month', 0, 'active', 1, 1, 1, '', v.keys_version - n "
                     "FROM v, generate_series(0, %d) AS n "
                     "ON CONFLICT (digest) DO UPDATE SET rpm = excluded.rpm, "
                     "keys_version = excluded.keys_version"
                     % (MANY, digests, rpm, MANY - 1))

    def known(rpm):
        return all(node.journal.query("SELECT count(*) AS n FROM keys "
                                      "WHERE rpm = ?", rpm) == [{"n": MANY}]
                   for node in c.nodes)

    c.server.run("INSERT INTO modelgw.accounts (name, free, opened) "
                 "VALUES ('many', 0, 1)")
    c.put("many", 10 ** 13)
    put(100000)
    c.wait(lambda: known(100000), "not all nodes have all keys", 120)
    for n in range(2):
        for key in keys:
            answered(c, key, n)

    with Load(c, keys, threads=2) as load:
        load.wait(20)
        put(200000)
        c.wait(lambda: known(200000), "not all nodes have all changes", 120)
        load.wait(20)
    assert set(load.statuses()) == {200}, load.refused()
