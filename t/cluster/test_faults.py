"""Nodes that are killed, databases that crash, fall over and are restored, and
networks in between: nothing is lost, and nothing is spent twice but what the
tests compute as the bound."""

import os
import random
import shutil
import sqlite3
import threading
import time

import pytest

import postgres
from client import assert_flat
from cluster import Load, call
from gateway import Key, within
from test_shared_credit import BODY, BOB, HOLD
from upstream import Blackhole

ROUNDS = int(os.environ.get("MODELGW_ROUNDS", 3))   # the long form has 300

# accounts that run dry while the test runs, and one that does not

RICH = Key("rich", "b")
POOR = [Key("poor-%d" % i, "b") for i in range(3)]
KEYS = [RICH] + POOR


# top-ups by operators

TOPUPS = "SELECT id, account, amount, reason FROM modelgw.topups WHERE " \
         "id IN ('kept', 'more', 'less', 'founding:new') ORDER BY id"


@pytest.fixture
def mixed(cluster):
    """A cluster with the accounts, and a load on it."""
    def make(**kw):
        c = cluster(**{"founding": "0", "keys": KEYS, **kw})
        c.expect()
        c.put("rich", 10 ** 13)
        for key in POOR:
            c.put(key.id, 40 * HOLD)
        return c

    return make


def feed(c):
    """The poor get a little, so that they are always near the end."""
    for key in POOR:
        c.put(key.id, 5 * HOLD)


def overspent(c):
    return {key.id: -c.balance_of(key.id) for key in KEYS
            if c.balance_of(key.id) < 0}


def granted(server):
    return {(row["node"], row["account"]): row["granted"] for row in
            server.query("SELECT node, account, granted "
                         "FROM modelgw.leases")}


def lost_grants(before, after):
    """Nano-euro by account that a database has forgotten."""
    out = {}
    for (node, account), amount in before.items():
        lost = amount - after.get((node, account), 0)
        if lost > 0:
            out[account] = out.get(account, 0) + lost
    return out


def bounded(c, lost):
    """No account is overspent by more than this."""
    for account, amount in overspent(c).items():
        assert amount <= lost.get(account, 0), (account, amount, lost)


def settled(c):
    c.settle()
    assert c.differences() == []


def test_a_node_is_killed(mixed):
    """All of its processes at once, and started again; the other nodes do not
    notice."""
    c = mixed()
    r = random.Random(1)
    with Load(c, KEYS, 6, body=BODY) as load:
        for i in range(ROUNDS):
            load.wait(20)
            n = r.randrange(3)
            c.nodes[n].power_cut()
            begin = time.time()
            others = [x for x in range(3) if x != n]
            load.wait(10, nodes=others)
            time.sleep(r.uniform(0, 1))
            assert set(load.statuses(begin, nodes=others)) <= {200, 402}
            c.nodes[n].restart()
            feed(c)
            load.wait(5, nodes=[n])
    settled(c)
    assert overspent(c) == {}


def test_a_worker_is_killed(mixed):
    c = mixed(workers=2)
    c.expect("exited on signal 9")
    with Load(c, KEYS, 6, body=BODY) as load:
        for i in range(2 * ROUNDS):
            load.wait(10)
            c.nodes[i % 3].kill_worker(i % 2)
            feed(c)
        load.wait(10)
    settled(c)
    assert overspent(c) == {}


def test_reload(mixed):
    """The exchanger changes hands; no call is refused."""
    c = mixed()
    begin = time.time()
    with Load(c, [RICH], 4, body=BODY) as load:
        for i in range(3):
            load.wait(20)
            c.nodes[i].reload()
        load.wait(20)
    assert set(load.statuses(begin)) == {200}
    settled(c)


def test_connections_are_ended_by_the_server(mixed):
    c = mixed()
    with Load(c, KEYS, 6, body=BODY) as load:
        for _ in range(5):
            load.wait(20)
            c.wait(lambda: c.server.disconnect() >= 1, "none is connected")
            feed(c)
        load.wait(20)
    settled(c)
    assert overspent(c) == {}


@pytest.mark.parametrize("n", [0, 1, 40])
def test_an_answer_to_a_commit_is_lost(mixed, n):
    """It is not known whether it was done: nothing is done twice."""
    c = mixed()
    with Load(c, KEYS, 6, body=BODY) as load:
        for i in range(3 * ROUNDS):
            load.wait(5)
            proxy = c.nodes[i % 3].proxy
            proxy.cut_answer(n)
            assert proxy.happened()
            feed(c)
        load.wait(20)
    settled(c)
    assert overspent(c) == {}
    assert all(node.proxy.status()["connections"] > 1 for node in c.nodes)


def test_requests_are_cut_anywhere(mixed):
    c = mixed()
    r = random.Random(2)
    with Load(c, KEYS, 6, body=BODY) as load:
        for i in range(5 * ROUNDS):
            proxy = c.nodes[i % 3].proxy
            proxy.cut_after(r.randint(1, 4000))
            assert proxy.happened()
            if i % 3 == 0:
                feed(c)
        load.wait(20)
    settled(c)
    assert overspent(c) == {}


def test_answers_are_held_back(mixed):
    """What was asked is done; what is said again when the answers come, late,
    or never, is not done again."""
    c = mixed()
    with Load(c, KEYS, 6, body=BODY) as load:
        load.wait(20)
        c.nodes[0].proxy.hole_back()
        c.nodes[1].proxy.hole_back()
        time.sleep(3)
        c.nodes[0].proxy.clear()
        c.nodes[1].proxy.cut()
        c.nodes[1].proxy.clear()
        load.wait(20, nodes=[0])
        load.wait(20, nodes=[1])
    settled(c)
    assert overspent(c) == {}


def test_delays(mixed):
    c = mixed()
    for node in c.nodes:
        node.proxy.delay(0.1)
    with Load(c, KEYS, 6, body=BODY) as load:
        load.wait(60)
        feed(c)
        load.wait(30)
    for node in c.nodes:
        node.proxy.clear()
    settled(c)
    assert overspent(c) == {}


def test_a_node_without_database(mixed):
    """It goes on with what it was lent, until "offline"; the others go on, and
    afterwards all is in the database."""
    c = mixed(options="offline=2s wait=1s")
    c.put(BOB, 100 * HOLD)
    node = c.nodes[0]
    with Load(c, [RICH], 3, body=BODY) as load:
        load.wait(30, nodes=[0])
        node.proxy.hole()
        begin = time.time()
        a = call(c, 0, node.bob, BODY)          # no lease of this account
        assert_flat(a.response, 503, "SERVICE_UNAVAILABLE")
        assert a.response.get("retry-after") == "1" and a.took < 2, a
        load.wait(20, 503, nodes=[0])
        time.sleep(max(0, begin + 4 - time.time()))
        late = time.time()
        time.sleep(1)
        end = time.time()
        assert load.statuses(begin, begin + 1, [0]).get(200, 0) > 0
        assert set(load.statuses(late, end, [0])) == {503}
        assert set(load.statuses(begin, end, [1, 2])) == {200}
        node.proxy.clear()
        load.wait(10, nodes=[0])
    settled(c)
    assert overspent(c) == {}


def test_a_node_restarts_without_database(mixed):
    """What it has in its journal is enough, until "offline"."""
    c = mixed(options="offline=20s wait=1s")
    node = c.nodes[0]
    with Load(c, [RICH], 3, body=BODY) as load:
        load.wait(60, nodes=[0])
    c.wait(lambda: sum(row["granted"] - row["returned"] for row in
                       node.journal.query("SELECT * FROM leases WHERE "
                                          "account = 'rich'")) > 0,
           "the journal has no lease")
    node.proxy.refuse()
    node.power_cut()
    node.restart()
    # what was granted last may not be in the journal yet: 503 then
    assert call(c, 0, RICH, BODY).status in (200, 503)
    node.proxy.clear()
    c.wait_joined()
    c.wait(lambda: call(c, 0, RICH, BODY).status == 200, "it does not lend")
    settled(c)


def test_a_new_node_without_database(server, cluster):
    """Nothing is admitted, and nginx starts."""
    c = cluster(start=False, options="wait=1s", n=1, servers=[server])
    c.expect()
    c.server.stop()
    node = c.nodes[0]
    node.start()
    a = call(c, 0, node.bob, BODY)
    assert_flat(a.response, 503, "SERVICE_UNAVAILABLE")
    node.wait_log("cluster cannot be reached")
    c.servers[0].start()
    c.wait_joined()
    c.wait(lambda: call(c, 0, node.bob, BODY).status == 200,
           "it does not come back")


# The database.

def crash(c):
    """The server crashes: nano-euro by account of grants that it forgets."""
    for node in c.nodes:
        node.proxy.hole()
    before = granted(c.server)
    server = c.server
    server.stop("immediate")
    server.start()
    after = granted(server)
    for node in c.nodes:
        node.proxy.clear()
    return lost_grants(before, after)


@pytest.mark.parametrize("durable", ["on", "off"])
def test_the_database_crashes(server, mixed, durable):
    """Without synchronous_commit it forgets what it has granted last."""
    c = mixed(servers=[server])
    c.server.run("ALTER DATABASE modelgw SET synchronous_commit = "
                 + durable)
    c.server.disconnect()
    lost = {}
    with Load(c, KEYS, 6, body=BODY) as load:
        for _ in range(ROUNDS):
            load.wait(20)
            for account, amount in crash(c).items():
                lost[account] = lost.get(account, 0) + amount
            feed(c)
            load.wait(20)
    settled(c)
    assert durable == "off" or lost == {}
    bounded(c, lost)


def test_the_database_is_down_for_a_while(server, mixed):
    c = mixed(options="wait=1s", servers=[server])
    with Load(c, KEYS, 6, body=BODY) as load:
        load.wait(30)
        server.stop("fast")
        time.sleep(3)
        server.start()
        load.wait(30)
    settled(c)
    assert overspent(c) == {}


@pytest.fixture
def standby(server):
    with server.standby() as s:
        yield s


@pytest.mark.parametrize("behind", [False, True])
def test_failover(server, standby, mixed, behind):
    """To a standby, found by target_session_attrs: what it has not heard of,
    the nodes tell it again."""
    c = mixed(servers=[server, standby])
    with Load(c, KEYS, 6, body=BODY) as load:
        load.wait(50)
        if behind:
            standby.cut()
            time.sleep(1)
        for node in c.nodes:
            node.proxies[0].hole()
        before = granted(server)
        topups = c.one("SELECT count(*) FROM modelgw.topups")
        calls = c.one("SELECT count(*) FROM modelgw.calls")
        if not behind:
            server.caught_up(standby)
        server.stop("immediate")
        standby.promote()
        lost = lost_grants(before, granted(standby))
        behind_by = calls - standby.one(
            "SELECT count(*) FROM modelgw.calls")
        for node in c.nodes:
            node.proxies[0].clear()
        load.wait(50)
    settled(c)
    bounded(c, lost)
    assert c.one("SELECT count(*) FROM modelgw.topups") == topups
    assert (behind_by > 0) == behind


@pytest.mark.parametrize("killed", ["", "worker", "node"])
def test_a_topup_survives_a_failover(server, standby, mixed, killed):
    """The node that took it says it again to a database that lost it, also if
    the process that took it is gone; with the accounts that it has opened."""
    c = mixed(servers=[server, standby], founding="5.00")
    server.caught_up(standby)
    standby.cut()
    node = c.nodes[0]
    for path, body in [("/rich/topups", {"id": "kept", "amount": "1.23"}),
                       ("", {"id": "new"}),
                       ("/new/topups", {"id": "more", "amount": "2"}),
                       ("/rich/topups", {"id": "less", "amount": "-0.5",
                                         "correction": True,
                                         "reason": "too much"})]:
        r = node.post("/admin/accounts" + path, body)
        assert r.status == 201, r
    if killed == "worker":
        node.expect("exited on signal 9")
        node.kill_workers()
    elif killed:
        node.kill_all()
        node.kill()
    assert standby.query(TOPUPS) == []
    server.stop("immediate")
    standby.promote()
    if killed == "node":
        node.restart()
    c.wait(lambda: [tuple(row.values()) for row in c.query(TOPUPS)]
           == [("founding:new", "new", 5 * 10 ** 9, ""),
               ("kept", "rich", 1230000000, ""),
               ("less", "rich", -500000000, "too much"),
               ("more", "new", 2 * 10 ** 9, "")], "top-ups are lost", 180)
    assert c.balance_of("new") == 7 * 10 ** 9
    assert c.one("SELECT free + coalesce((SELECT sum(granted - returned - "
                 "forced) FROM modelgw.leases WHERE account = name), 0) "
                 "FROM modelgw.accounts WHERE name = 'rich'") \
        == 10 ** 13 + 5730000000
    settled(c)


def test_a_dump_is_restored(mixed):
    """The journals have what was done since."""
    c = mixed()
    with Load(c, KEYS, 6, body=BODY) as load:
        load.wait(50)
        path = c.server.dump()
        load.wait(50)
        for node in c.nodes:
            node.proxy.hole()
        before = granted(c.server)
        c.server.restore(path)
        lost = lost_grants(before, granted(c.server))
        for node in c.nodes:
            node.proxy.cut()
            node.proxy.clear()
        load.wait(50)
    settled(c)
    bounded(c, lost)


# Nodes that come, go, and are taken for others.

def test_write_off_of_a_node_that_is_cut_off(mixed):
    """What it has left is free at once; what it has spent comes when it does,
    and is overspent at most by that."""
    c = mixed(options="offline=10m")
    with Load(c, [RICH], 3, body=BODY) as load:
        load.wait(30, nodes=[0])
        num = c.nodes[0].num()
        c.nodes[0].proxy.hole()
        load.wait(5, nodes=[0])                 # by its lease
        c.nodes[0].proxy.refuse()
        forced = c.write_off(num)
        assert forced["rich"] > 0
        assert c.lent().get((num, "rich")) is None
        load.wait(10, nodes=[1, 2])
        c.nodes[0].proxy.clear()
        load.wait(10, nodes=[0])
    settled(c)
    bounded(c, forced)
    assert c.nodes[0].num() == num


def test_write_off_of_a_node_that_runs(mixed):
    c = mixed()
    lost = {}
    with Load(c, KEYS, 6, body=BODY) as load:
        for i in range(3):
            load.wait(30, nodes=[i])
            for account, amount in c.write_off(c.nodes[i].num()).items():
                lost[account] = lost.get(account, 0) + amount
            feed(c)
            load.wait(10, nodes=[i])
    settled(c)
    bounded(c, lost)
    assert lost


def test_the_journal_is_deleted(mixed):
    """The node is another one; what the old one was lent is with that."""
    c = mixed()
    node = c.nodes[0]
    assert call(c, 0, RICH, BODY).status == 200
    c.settle()
    old = node.num()
    node.stop()
    for name in os.listdir(node.dir):
        if name.startswith("ledger.db"):
            os.unlink(node.path(name))
    node.restart()
    c.wait_joined()
    assert node.num() != old
    assert call(c, 0, RICH, BODY).status == 200
    settled(c)


def copy_journal(node, to):
    with sqlite3.connect("file:%s?mode=ro" % node.path("ledger.db"),
                         uri=True) as source, sqlite3.connect(to) as target:
        source.backup(target)
    source.close()
    target.close()


def test_a_journal_is_copied(mixed):
    """Only one of the nodes that have it goes on; the other says so, and admits
    nothing."""
    c = mixed(n=2)
    assert call(c, 0, RICH, BODY).status == 200
    c.settle()
    clone = c.add("clone")
    os.makedirs(clone.dir)
    copy_journal(c.nodes[0], clone.path("ledger.db"))
    clone.expect("journal")
    c.nodes[0].expect("journal")
    clone.start()
    pair = [0, 2]
    c.wait(lambda: any("another process" in c.nodes[n].read("error.log")
                       for n in pair), "neither says so")
    (loser,) = [n for n in pair
                if "another process" in c.nodes[n].read("error.log")]
    (winner,) = [n for n in pair if n != loser]
    c.wait(c.nodes[winner].joined, "neither goes on")
    time.sleep(2)
    assert call(c, loser, RICH, BODY).status == 503
    assert call(c, winner, RICH, BODY).status == 200
    loser = c.nodes.pop(loser)
    settled(c)
    loser.stop()
    for proxy in loser.proxies:
        proxy.remove()


def test_a_journal_is_set_back(mixed):
    """It is told by name, with the command to give; nothing is admitted, and
    nothing is lost."""
    c = mixed(n=2)
    node = c.nodes[0]
    node.expect("journal")
    c.settle()
    copy = os.path.join(c.dir, "copy.db")
    copy_journal(node, copy)
    for _ in range(5):
        assert call(c, 0, RICH, BODY).status == 200
    c.settle()
    before = c.cost_of("rich")
    node.stop()
    os.unlink(node.path("ledger.db"))
    for name in ("ledger.db-wal", "ledger.db-shm"):
        if os.path.exists(node.path(name)):
            os.unlink(node.path(name))
    shutil.copy(copy, node.path("ledger.db"))
    node.restart()
    node.wait_log("journal.*renew")
    assert_flat(call(c, 0, RICH, BODY).response, 503, "SERVICE_UNAVAILABLE")
    assert call(c, 1, RICH, BODY).status == 200
    c.nodes.pop(0)
    settled(c)
    assert c.cost_of("rich") >= before
    node.stop()
    node.proxy.remove()


def test_another_clusters_database(server, mixed):
    """It is not told of anything."""
    c = mixed(n=1)
    node = c.nodes[0]
    assert call(c, 0, RICH, BODY).status == 200
    c.settle()
    node.expect("another|other|cluster")
    server.replace(c.server)
    node.proxy.retarget(server.socket())
    node.wait_log("must not work with the cluster")
    c.wait(lambda: call(c, 0, RICH, BODY).status == 503, "it goes on")
    assert server.one("SELECT count(*) FROM modelgw.nodes") == 0
    node.proxy.retarget(c.servers[0].socket())
    c.wait(lambda: call(c, 0, RICH, BODY).status == 200,
           "it does not come back")


@pytest.mark.parametrize("change, admits", [
    ("UPDATE modelgw.cluster SET version = 2, oldest = 2", False),
    ("UPDATE modelgw.cluster SET version = 2", True),
    ("REVOKE INSERT ON modelgw.calls FROM modelgw", False),
    ("REVOKE SELECT ON modelgw.cluster FROM modelgw", False),
    ("DROP SCHEMA modelgw CASCADE", False)])
def test_a_schema_that_does_not_fit(database, cluster, change, admits):
    """Told by name in the log, and nothing is admitted."""
    database.run(change)
    c = cluster(start=False, servers=[database], n=1, check=False,
                options="wait=1s")
    node = c.nodes[0]
    node.expect("cluster|schema|rights|permission|database")
    node.start()
    if admits:
        c.wait_joined()
        assert call(c, 0, node.bob).status == 200
        return
    node.wait_log(r"must not work with the cluster|permission denied")
    assert_flat(call(c, 0, node.bob).response, 503, "SERVICE_UNAVAILABLE")


def test_nginx_t_does_not_wait_for_the_database(cluster):
    """A reload must not hang on it."""
    hole = Blackhole()
    try:
        c = cluster(start=False, n=1, proxied=False, check=False,
                    conninfo="host=127.0.0.1 port=%d dbname=modelgw "
                    "user=modelgw" % hole.port)
        node = c.nodes[0]
        assert node.check().returncode == 0
        within(node.check_again, 1)
    finally:
        hole.stop()


@pytest.fixture
def secure():
    with postgres.Server(tls=True) as s:
        yield s


def test_tls(secure, cluster):
    """verify-full, with a certificate that fits; with others nothing is
    admitted, and nobody is told the password."""
    c = cluster(servers=[secure], n=1, conninfo=secure.tls_conninfo())
    assert call(c, 0, c.nodes[0].bob).status == 200
    c.settle()
    (row,) = secure.query(
        "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity "
        "USING (pid) WHERE usename = 'modelgw'")
    assert row["ssl"] is True
    assert c.differences() == []
    other = postgres.Authority(secure.top, "other")
    for text in (secure.tls_conninfo(ca=other.ca),
                 secure.tls_conninfo(host="other.test")):
        bad = cluster(start=False, servers=[secure], n=1, conninfo=text,
                      check=False, options="wait=1s")
        bad.expect()
        bad.nodes[0].start()
        bad.nodes[0].wait_log("certificate")
        assert call(bad, 0, bad.nodes[0].bob).status == 503
        bad.remove()


def test_no_deadlock_is_a_check(database):
    """differences() counts those of the server's log."""
    database.run("INSERT INTO modelgw.marks VALUES ('a', 1), ('b', 1)")

    def both(first, second, gate):
        try:
            with database.connect() as c:
                c.run("BEGIN")
                c.run("UPDATE modelgw.marks SET value = 2 WHERE name = %s",
                      first)
                gate.wait(20)
                c.run("UPDATE modelgw.marks SET value = 2 WHERE name = %s",
                      second)
                c.run("COMMIT")
        except Exception:
            pass

    gate = threading.Barrier(2)
    ts = [threading.Thread(target=both, args=(x, y, gate))
          for x, y in ("ab", "ba")]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    assert database.deadlocks() == 1


PLANTS = [
    ("UPDATE modelgw.calls SET cost = cost + 1",
     "UPDATE modelgw.calls SET cost = cost - 1", "audit", "position"),
    ("UPDATE modelgw.calls SET model = 'x'",
     "UPDATE modelgw.calls SET model = 'fam-b-one'", "position"),
    ("UPDATE modelgw.calls SET pos = pos + 1000",
     "UPDATE modelgw.calls SET pos = pos - 1000", "position"),
    ("UPDATE modelgw.accounts SET free = free + 1",
     "UPDATE modelgw.accounts SET free = free - 1", "audit"),
    ("UPDATE modelgw.leases SET granted = granted + 1",
     "UPDATE modelgw.leases SET granted = granted - 1", "audit"),
    ("UPDATE modelgw.topups SET amount = amount + 1",
     "UPDATE modelgw.topups SET amount = amount - 1", "audit")]


def test_differences_are_found(cluster):
    """What is put into the books by hand."""
    c = cluster(n=1)
    assert call(c, 0, c.nodes[0].bob, BODY).status == 200
    c.settle()
    assert c.differences() == []
    for plant, heal, *words in PLANTS:
        c.server.run(plant)
        found = "\n".join(c.differences())
        c.server.run(heal)
        for word in words:
            assert word in found, (plant, found)
    assert c.differences() == []
