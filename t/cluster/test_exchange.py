"""Nodes and the database of their cluster: connections, joins, exchanges.

Each node is a build/unit/cluster/exchange_cli, over pipes, under ASan: what it
says and gets is as in src/cluster/ngx_modelgw_exchange.h.  What nodes must keep
in their journals, the tests keep.
"""

import os
import pathlib
import random
import secrets
import subprocess
import threading
import time

import pytest

import faultproxy
import postgres

TOP = pathlib.Path(__file__).resolve().parents[2]
CLI = pathlib.Path(os.environ.get("MODELGW_EXCHANGE_CLI",
                                  TOP / "build/unit/cluster/exchange_cli"))
HOUR = 3600000
DAY = 24 * HOUR


@pytest.fixture
def db(database):
    return database


@pytest.fixture
def node(db, tmp_path):
    """node(name) makes one; at the end all of them have exited without leaks,
    and the books are right."""
    made = []

    def make(name="n1", **kw):
        made.append(Node(db, tmp_path, name, **kw))
        return made[-1]

    yield make
    for n in made:
        n.end()
    assert wrong(db) == []


def wrong(db):
    if not db.one("SELECT count(*) FROM pg_views "
                  "WHERE schemaname = 'modelgw'"):
        return []
    return db.query("SELECT * FROM modelgw.audit WHERE difference <> 0")


class Failed(Exception):
    def __init__(self, result, state, error):
        super().__init__("%s %s %s" % (result, state, error))
        self.result, self.state, self.error = result, state, error


class Said:
    """What was said of an ask."""

    def __init__(self, text):
        (self.found, self.granted, self.returned, self.forced, self.spent,
         self.brief, self.free, self.recall, self.lent, self.silent,
         self.away) = map(int, text.split())

    def left(self):
        return self.granted - self.returned - self.forced - self.spent


class Node:
    def __init__(self, db, tmp_path, name, journal=None, process=None,
                 cluster="", fresh=1, conninfo=None):
        self.journal = journal or secrets.token_hex(16)
        self.process = process or secrets.token_hex(16)
        self.name = name
        self.cluster = cluster
        self.cli = subprocess.Popen(
            [CLI], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            encoding="utf-8", errors="surrogateescape",
            env=dict(os.environ, ASAN_OPTIONS="detect_leaks=1"))
        password = tmp_path / ("password-" + secrets.token_hex(4))
        password.write_text(db.password + "\n")
        password.chmod(0o600)
        self.conninfo = conninfo or db.conninfo()
        self.do("conf", self.conninfo, password)
        self.identify(cluster, fresh)

    def identify(self, cluster="", fresh=1):
        self.do("node", self.journal, self.process, cluster, self.name, fresh)

    def do(self, *fields):
        """The values of the answer; Failed, unless it is "ok"."""
        self.cli.stdin.write("\t".join(map(str, fields)) + "\n")
        self.cli.stdin.flush()
        line = self.cli.stdout.readline()
        assert line, "the node has exited with %r" % self.cli.wait(10)
        result, *values = line.rstrip("\n").split("\t")
        values = dict(v.split("=", 1) for v in values)
        if result != "ok":
            raise Failed(result, values.get("state"), values.get("error"))
        return values

    def connect(self, timeout=5000):
        self.do("connect", timeout)
        return self

    def join(self):
        """Connects and joins: num, epoch, pos, leases."""
        self.connect()
        return self.rejoin()

    def rejoin(self):
        got = self.do("join")
        self.num, self.epoch, self.pos = (int(got[k])
                                          for k in ("num", "epoch", "pos"))
        self.cluster = got["cluster"]
        assert got["fresh"] == "0"
        got["leases"] = {p[0]: tuple(map(int, p[1:])) for p in (
            lease.rsplit(":", 4) for lease in got["leases"].split())}
        return got

    def call(self, pos, account, cost, key="k", ended=None, *more):
        self.do("call", pos, key, account, cost,
                int(time.time() * 1000) if ended is None else ended, *more)

    def ask(self, name, returned=0, need=0, want=0, answered=0, recall=0,
            held=0):
        self.do("ask", name, returned, need, want, answered, recall, held)

    def exchange(self, end=0, live=1, keys_version=0, held=0):
        got = self.do("exchange", end, live, keys_version, held)
        self.pos = int(got["pos"])
        fixed = ("pos", "keys_version", "live", "known", "drain")
        answer = {k: int(got.pop(k)) for k in fixed}
        answer["recalls"] = dict(
            (name, int(no)) for name, no in (
                r.rsplit(" ", 1) for r in got.pop("recalls").split(",") if r))
        answer["said"] = {k: Said(v) for k, v in got.items()}
        return answer

    def money(self, name, *args, live=1, **kw):
        """An exchange with one ask."""
        self.ask(name, *args, **kw)
        return self.exchange(live=live)["said"][name]

    def open(self, *opens):
        for o in opens:
            self.do("open", *o)
        self.do("opens")

    def end(self):
        if self.cli.poll() is None:
            self.cli.stdin.close()
            assert self.cli.wait(30) == 0
        self.cli.stdout.close()


def failed(what, *args, **kw):
    with pytest.raises(Failed) as e:
        what(*args, **kw)
    return e.value


# connections

def test_values(node):
    """Numbers and texts as the server has them."""
    n = node().connect()
    got = n.do("sql", 5000, "SELECT 7::int2, -8::int4, 9::int8, true")
    assert [got["c%d" % i].split()[1] for i in range(4)] == ["7", "-8", "9",
                                                             "1"]
    for value, expected in (
            ("0", 0), ("1", 1), ("-1", -1), ("9999", 9999), ("10000", 10000),
            ("123456789012345678", 123456789012345678),
            ("-100000000", -100000000), ("1.9999", 1), ("0.5", 0),
            ("100000000.25", 100000000),
            ("9223372036854775807", 2**63 - 1),
            ("-9223372036854775808", -2**63),
            ("9223372036854775808", 2**63 - 1), ("1e40", 2**63 - 1),
            ("-1e40", -2**63)):
        got = n.do("sql", 5000, "SELECT %s::numeric" % value)
        assert int(got["c0"].split()[1]) == expected, value
    got = n.do("sql", 5000, "SELECT NULL::int8, 'é€', ''::text, '\\x00ff'::bytea")
    assert got["c0"] == "1 0 " and got["c1"] == "0 0 é€" and got["c2"] == "0 0 "
    got = n.do("sql", 5000, "SELECT $1::bigint + 1", -5)
    assert got["c0"].split()[1] == "-4"
    got = n.do("sql", 5000, "SELECT 1 WHERE false")
    assert got["rows"] == "0"
    got = n.do("sql", 5000, "UPDATE modelgw.cluster SET clerk = ''")
    assert got["changed"] == "1"


def test_session(db, node):
    n = node().connect()
    for name, value in (("plan_cache_mode", "force_generic_plan"),
                        ("enable_seqscan", "off"),
                        ("enable_bitmapscan", "off"), ("statement_timeout", "0"),
                        ("idle_in_transaction_session_timeout", "10s"),
                        ("search_path", "modelgw"),
                        ("transaction_isolation", "read committed"),
                        ("client_encoding", "UTF8"),
                        ("application_name", "modelgw/test")):
        got = n.do("sql", 5000, "SELECT current_setting('%s')" % name)
        assert got["c0"] == "0 0 " + value, name


def test_errors(db, node):
    """Of a statement: the connection goes on.  Of the connection: it does
    not."""
    n = node().connect()
    e = failed(n.do, "sql", 5000, "SELECT 1 / 0")
    assert e.state == "22012" and e.error == "division by zero"
    assert n.do("alive")["alive"] == "1"
    assert n.do("sql", 5000, "SELECT 5")["c0"].split()[1] == "5"

    start = time.monotonic()
    e = failed(n.do, "sql", 200, "SELECT pg_sleep(5)")
    assert 0.19 < time.monotonic() - start < 2
    assert e.state == "" and "has not answered in time" in e.error
    assert n.do("alive")["alive"] == "0"
    assert failed(n.do, "sql", 200, "SELECT 1").state == ""

    n.connect()
    n.do("stop", 100)
    start = time.monotonic()
    e = failed(n.do, "sql", 60000, "SELECT pg_sleep(5)")
    assert 0.09 < time.monotonic() - start < 2 and e.error == "stopped"
    n.do("stop", 0)

    n.connect()
    db.disconnect()
    time.sleep(0.1)
    e = failed(n.do, "sql", 5000, "SELECT 1")
    assert e.state == "57P01" or "closed the connection" in e.error
    assert n.do("alive")["alive"] == "0"

    n.conninfo = db.conninfo().replace("user=modelgw", "user=nobody")
    n.do("conf", n.conninfo, "")
    assert "no password supplied" in failed(n.connect).error


def test_pipeline(db, node):
    """Statements are prepared once, those after a failure are skipped, and not
    prepared then."""
    n = node().connect()
    for _ in range(2):
        for i in range(3):
            n.do("add", 0, i)
        got = n.do("run", 5000)
        assert [got["r%d" % i].split()[0] for i in range(3)] == ["0", "1", "2"]
    assert n.do("sql", 5000, "SELECT count(*) FROM pg_prepared_statements")[
        "c0"].split()[1] == "1"

    n.do("add", 0, 7)
    n.do("add", 1, 0)
    n.do("add", 2, 5)
    e = failed(n.do, "run", 5000)
    assert e.state == "22012" and n.do("alive")["alive"] == "1"

    n.do("add", 2, 5)
    n.do("add", 1, 50)
    got = n.do("run", 5000)
    assert got["r0"] == "0 5" and got["r1"].split()[0] == "2"

    # more than sockets buffer, both ways

    for i in range(8):
        n.do("add", 2, 3000000)
    got = n.do("run", 20000)
    assert all(got["r%d" % i] == "0 3000000" for i in range(8))

    n.do("add", 3, 5)
    e = failed(n.do, "run", 200)
    assert e.state == "" and n.do("alive")["alive"] == "0"
    assert failed(n.do, "add", 0, 1).result == "error"


def test_disconnected_in_a_pipeline(db, node):
    n = node().connect()
    for i in range(3):
        n.do("add", 3, 1)
    threading.Timer(0.3, db.disconnect).start()
    e = failed(n.do, "run", 20000)
    assert e.state == "57P01" or "closed the connection" in e.error
    assert n.do("alive")["alive"] == "0"


def test_hosts(db, node, tmp_path):
    """A host that is silent, or gone, is passed over."""
    proxy = faultproxy.Proxy(db.socket())
    try:
        proxy.hole()
        n = node(conninfo=db.conninfo(host="%s,/nowhere,%s" % (
            proxy.directory, db.top)))
        start = time.monotonic()
        n.connect(3000)
        assert 0.9 < time.monotonic() - start < 2.5
        assert n.do("sql", 1000, "SELECT 1")["rows"] == "1"
    finally:
        proxy.remove()


def test_tls(tmp_path):
    """The server's certificate is verified, with its name."""
    with postgres.Server("fsync = off", tls=True) as s:
        n = Node(s, tmp_path, "n1", conninfo=s.tls_conninfo())
        n.join()
        got = n.do("sql", 5000, "SELECT ssl::int4 FROM pg_stat_ssl "
                   "WHERE pid = pg_backend_pid()")
        assert got["c0"].split()[1] == "1"
        n.do("conf", s.tls_conninfo(host="other.test"), "")
        e = failed(n.connect)
        assert "other.test" in e.error and "certificate" in e.error
        other = tmp_path / "other"
        other.mkdir()
        n.do("conf", s.tls_conninfo(ca=postgres.Authority(str(other)).ca), "")
        assert "certificate verify failed" in failed(n.connect).error
        n.end()


# joins

def test_new_node(db, node):
    """It is registered, once, and numbered."""
    n = node()
    assert n.join()["leases"] == {}
    assert (n.num, n.epoch, n.pos) == (1, 1, 0)
    assert n.cluster == db.one("SELECT id FROM modelgw.cluster")
    assert n.join()["num"] == "1" and n.epoch == 2

    other = node("an other é", cluster=n.cluster)
    other.join()
    assert (other.num, other.epoch) == (2, 1)
    rows = db.query("SELECT num, journal, process, name, version, state "
                    "FROM modelgw.nodes ORDER BY num")
    assert rows == [{"num": m.num, "journal": m.journal, "process": m.process,
                     "name": m.name, "version": 1, "state": 0}
                    for m in (n, other)]


def test_many_new_nodes(db, node):
    nodes = [node("n%d" % i) for i in range(8)]
    threads = [threading.Thread(target=n.join) for n in nodes]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(n.num for n in nodes) == list(range(1, 9))


def test_restart(db, node):
    """The next process has the next epoch; what the one before says is
    refused."""
    n = node()
    n.join()
    n.open(("a", 1000))
    n.money("a", want=100)
    n.call(5, "a", 30)
    n.exchange(end=5)
    late = node(journal=n.journal, process=n.process, fresh=0)
    late.join()
    assert late.epoch == 2 and late.pos == 5

    again = node("renamed", journal=n.journal, cluster=n.cluster)
    assert again.join()["leases"] == {"a": (100, 0, 0, 30)}
    assert (again.num, again.epoch, again.pos) == (1, 3, 5)
    assert db.one("SELECT name FROM modelgw.nodes") == "renamed"

    for old in (n, late):
        e = failed(old.exchange)
        assert e.result == "declined"
    again.exchange(end=5)


def test_another_process(db, node):
    """Two nginx with one journal: the one that has started last works."""
    n = node()
    n.join()
    copy = node(journal=n.journal)
    copy.join()
    n.identify(fresh=0)
    e = failed(n.join)
    assert e.result == "declined" and "another process" in e.error
    copy.exchange()

    # after a write-off it may begin again, without a start of nginx

    db.run("UPDATE modelgw.nodes SET epoch = epoch + 1, process = '', "
           "state = 2")
    assert failed(copy.exchange).result == "declined"
    copy.identify(fresh=0)
    copy.join()
    assert copy.epoch == 4
    assert db.one("SELECT state FROM modelgw.nodes") == 0
    copy.exchange()


def test_a_start_is_lost(db, node):
    """After a failover, or a restore, the database knows the process before, and
    not the one that has started last: that one goes on, until another starts."""
    before = node()
    before.join()
    n = node(journal=before.journal)
    n.join()
    n.exchange()
    db.run("UPDATE modelgw.nodes SET epoch = 1, process = '%s'"
           % before.process)
    assert failed(n.exchange).result == "declined"
    n.join()
    assert n.epoch == 2
    n.exchange()
    assert failed(before.join).result == "declined"
    after = node(journal=n.journal)
    after.join()
    e = failed(n.join)
    assert e.result == "declined" and "another process" in e.error
    after.exchange()


def test_a_journal_that_is_another_one(db, node):
    """An old copy that has gone on ends where the database does, or after
    that, with another call there: it does not take over."""
    n = node()
    n.join()
    n.open(("a", 1000))
    n.call(5, "a", 30)
    n.exchange(end=5)
    n.exchange(end=5)
    (row,) = db.query("SELECT pos, call FROM modelgw.nodes")
    assert row == {"pos": 5, "call": 5 * 1024 + n.num}

    copy = node(journal=n.journal)
    copy.do("has", 5 * 1024 + n.num + 1024)
    e = failed(copy.join)
    assert e.result == "declined" and "has gone on" in e.error
    n.exchange(end=5)

    copy.do("has", 5 * 1024 + n.num)
    copy.join()
    assert copy.pos == 5 and failed(n.exchange).result == "declined"


def test_another_cluster(db, node):
    n = node(cluster="0" * 32)
    e = failed(n.join)
    assert e.result == "declined" and "another cluster" in e.error
    assert db.one("SELECT id FROM modelgw.cluster") in e.error
    assert db.one("SELECT count(*) FROM modelgw.nodes") == 0


@pytest.mark.parametrize("change,text", [
    ("UPDATE modelgw.cluster SET oldest = 2, version = 2", "upgrade this node"),
    ("UPDATE modelgw.cluster SET version = 0", "cluster upgrade"),
    ("DELETE FROM modelgw.cluster", "is empty"),
    ("DROP SCHEMA modelgw CASCADE", "cluster init"),
    ("DROP TABLE modelgw.budgets CASCADE", "cluster init"),
    ("ALTER TABLE modelgw.nodes DROP COLUMN drain", "drain"),
    ("REVOKE INSERT, DELETE ON modelgw.calls FROM modelgw",
     '"modelgw" has too few rights, it lacks DELETE on modelgw.calls, '
     'INSERT on modelgw.calls'),
    ("REVOKE UPDATE ON modelgw.nodes, modelgw.marks FROM modelgw",
     "UPDATE on modelgw.marks, UPDATE on modelgw.nodes"),
    ("REVOKE USAGE ON SCHEMA modelgw FROM modelgw", "schema modelgw"),
])
def test_not_to_work_with(db, node, change, text):
    n = node()
    db.run(change)
    e = failed(n.join)
    assert e.result == "declined" and text in e.error, e.error


def test_newer_schema(db, node):
    """What is only added does not stop an older node."""
    db.run("UPDATE modelgw.cluster SET version = 2")
    db.run("ALTER TABLE modelgw.calls ADD more TEXT NOT NULL DEFAULT ''")
    db.run("ALTER TABLE modelgw.leases ADD more BIGINT NOT NULL DEFAULT 0")
    n = node()
    n.join()
    n.open(("a", 1000))
    n.call(1, "a", 5)
    n.ask("a", need=10)
    got = n.exchange(end=1)
    assert got["said"]["a"].left() == 10

    # until it is too old: what was said is there, what comes is not
    db.run("UPDATE modelgw.cluster SET oldest = 2")
    n.call(2, "a", 1)
    assert failed(n.exchange, end=2).result == "again"
    e = failed(n.join)
    assert e.result == "declined" and "2 is the oldest" in e.error, e.error
    db.run("UPDATE modelgw.cluster SET oldest = 1")
    n.join()
    assert n.pos == 2


def test_server_in_latin1(db, node):
    with db.connect("postgres") as c:
        c.run("CREATE DATABASE latin1 ENCODING 'LATIN1' LOCALE 'C' "
              "TEMPLATE template0")
    n = node(conninfo=db.conninfo().replace("dbname=" + db.name,
                                            "dbname=latin1"))
    e = failed(n.join)
    assert e.result == "declined"
    with db.connect("postgres") as c:
        c.run("DROP DATABASE latin1 WITH (FORCE)")


# exchanges

def test_calls(db, node):
    """Every column, and what is not UTF-8."""
    n = node()
    n.join()
    n.open(("a", 1000))
    n.do("price", 2**63 - 1)
    n.do("call", 3, "k1", "a", 40, 1700000000123, 200, 17, "m-é", "id\udcff\udcc3")
    n.do("call", 4, "k2", "a", 2, 1700000000999, 503, -1, "m", "")
    n.exchange(end=12, keys_version=7, held=55)
    rows = db.query("SELECT * FROM modelgw.calls ORDER BY pos")
    assert rows[0] == dict(
        node=1, pos=3, id=3073, time=1699999999873, ended=1700000000123,
        key="k1", account="a", model="m-é", input=1, cache_read=2,
        cache_write=3, cache_write_1h=4, output=5, reasoning=6, cost=40,
        outcome="reported", end="complete", status=200, request_id="id??",
        first_byte=17, flags=7, price=8)
    assert rows[1]["first_byte"] is None and rows[1]["status"] == 503
    assert db.query("SELECT * FROM modelgw.prices") == [dict(
        id=2**63 - 1, group="g", model="m", **{"from": 1}, input=2, output=3,
        cache_read=4, cache_write=5, cache_write_1h=6)]
    assert db.query("SELECT pos, keys_version, journal_end FROM modelgw.nodes"
                    ) == [dict(pos=4, keys_version=7, journal_end=12)]
    assert db.query("SELECT account, granted, spent, held FROM modelgw.leases"
                    ) == [dict(account="a", granted=0, spent=42, held=55)]

    # the lease is short: it is covered by the next ask, of whatever

    said = n.money("a")
    assert said.left() == 0 and said.granted == 42 and said.free == 958

    # those after a gap

    n.do("price", 2**63 - 1)
    n.call(10, "a", 1)
    n.exchange(end=12)
    assert db.query("SELECT pos FROM modelgw.nodes") == [dict(pos=10)]


def test_held(db, node):
    """What an account holds is said with its calls, what a budget holds with
    its asks: calls of its key do not change that."""
    n = node()
    n.join()
    n.open(("a", 1000), ("b", 1000), ("#k/total/0", 500, "k", 0, 2**62))
    n.money("#k/total/0", need=100, held=20)
    n.call(1, "a", 3)
    n.call(2, "b", 4, "other")
    n.exchange(held=55)
    assert db.query("SELECT account, spent, held FROM modelgw.leases"
                    " ORDER BY account") == [
        dict(account="#k/total/0", spent=3, held=20),
        dict(account="a", spent=3, held=55),
        dict(account="b", spent=4, held=55)]


def test_many_calls(db, node):
    n = node()
    n.join()
    n.open(*[("a%d" % i, 10**9) for i in range(1500)])
    assert db.one("SELECT count(*) FROM modelgw.topups") == 1500
    pos = 0
    for _ in range(3):
        for i in range(1000):
            pos += 1
            n.call(pos, "a%d" % (pos % 1500), pos)
        for i in range(1000):
            n.ask("a%d" % i, want=100)
        said = n.exchange(end=pos)["said"]
        assert len(said) == 1000 and all(s.found for s in said.values())
    assert db.one("SELECT count(*) FROM modelgw.calls") == 3000
    assert db.one("SELECT sum(spent) FROM modelgw.leases") == pos * (pos + 1) // 2


def test_borrow(db, node):
    """need is met wholly or not at all; want is a share; what is given back is
    said as a total."""
    n = node()
    n.join()
    n.open(("a", 1000), ("b", 0))
    said = n.money("a", need=100, want=500, live=2)
    assert (said.granted, said.free, said.brief) == (100 + 900 // 4, 675, 0)
    said = n.money("a", want=500, live=1)
    assert said.granted == 325 + 675 // 2 and said.free == 338
    said = n.money("a", need=339)
    assert said.brief == 1 and said.free == 338 and said.left() == 662
    assert (said.recall, said.lent, said.silent, said.away) == (1, 0, 0, 0)
    said = n.money("a", need=338)
    assert said.brief == 0 and said.free == 0 and said.left() == 1000
    for _ in range(2):
        said = n.money("a", returned=600)
        assert said.free == 600 and said.left() == 400
    said = n.money("a", returned=200)
    assert said.returned == 600

    said = n.money("b", need=1)
    assert said.found and said.brief and said.free == 0
    said = n.money("nothing", need=1)
    assert not said.found and not said.brief


def seen(db):
    """All nodes, just now: the machine may be slow."""
    db.run("UPDATE modelgw.nodes SET seen = "
           "(extract(epoch FROM now()) * 1000)::bigint")


def test_recall(db, node):
    """A need that is not met: others are told, by their next answer, and lend
    nothing in advance meanwhile."""
    a, b, c = node("a"), node("b"), node("c")
    for n in (a, b, c):
        n.join()
    a.open(("x", 100))
    for n in (a, b, c):
        assert n.money("x", need=30, live=3).left() == 30

    seen(db)
    said = a.money("x", need=60, held=30, live=3)
    assert (said.brief, said.recall, said.free) == (1, 1, 10)
    assert (said.lent, said.silent, said.away) == (60, 2, 0)

    # its own number; no second recall

    seen(db)
    said = a.money("x", need=60, recall=1, held=30, live=3)
    assert (said.recall, said.silent) == (1, 2)
    assert db.one("SELECT recall FROM modelgw.accounts WHERE name = 'x'") == 1

    # b has it all in use, c gives back

    assert b.exchange(live=3)["recalls"] == {"x": 1}
    b.ask("x", answered=1, want=50, held=30)
    got = b.exchange(live=3)
    assert got["recalls"] == {} and got["said"]["x"].left() == 30
    seen(db)
    said = a.money("x", need=60, recall=1, live=3)
    assert (said.lent, said.silent, said.free) == (60, 1, 10)
    c.money("x", answered=1, returned=30, live=3)
    seen(db)
    said = a.money("x", need=60, recall=1, live=3)
    assert (said.brief, said.lent, said.silent, said.free) == (1, 30, 0, 40)
    said = a.money("x", need=40, recall=1, live=3)
    assert (said.brief, said.free) == (0, 0) and said.left() == 70

    # who has nothing left is not waited for

    seen(db)
    said = c.money("x", need=1, live=3)
    assert (said.brief, said.recall, said.silent) == (1, 2, 2)
    a.call(1, "x", 70)
    a.ask("x")
    a.exchange(end=1, live=3)
    seen(db)
    said = c.money("x", need=1, recall=2, live=3)
    assert (said.silent, said.lent) == (1, 30)

    # numbers that a failover has lost: another recall, and no answer of a
    # later one

    seen(db)
    assert c.money("x", need=99, recall=77).recall == 3
    said = b.money("x", answered=99)
    assert db.one("SELECT answered FROM modelgw.leases WHERE node = 2") == 3

    # two seconds, after which it is over

    db.run("UPDATE modelgw.recalls SET until = 0")
    assert b.exchange()["recalls"] == {}


def test_away(db, node):
    """Nodes that were not seen are not waited for; what they have is told."""
    a, b = node("a"), node("b")
    a.join(), b.join()
    a.open(("x", 100))
    b.money("x", need=100)
    seen(db)
    assert a.money("x", need=1, live=2).silent == 1
    seen(db)
    assert a.exchange()["live"] == 2
    db.run("UPDATE modelgw.nodes SET seen = seen - 4000 WHERE num = 2")
    said = a.money("x", need=1, recall=1)
    assert (said.brief, said.silent, said.lent, said.away) == (1, 0, 100, 100)
    got = a.exchange(keys_version=4)
    assert (got["live"], got["known"]) == (1, 4)


def test_keys_version(db, node):
    a, b = node("a"), node("b")
    a.join(), b.join()
    db.run("UPDATE modelgw.cluster SET keys_version = 12")
    a.exchange(keys_version=12)
    seen(db)
    got = b.exchange(keys_version=5)
    assert (got["keys_version"], got["known"]) == (12, 5)
    seen(db)
    assert a.exchange(keys_version=12)["known"] == 5
    b.exchange(keys_version=12)
    seen(db)
    assert a.exchange(keys_version=12)["known"] == 12


def test_deleted_node(db, node):
    """A connection that goes on after its node's row is gone says nothing."""
    n = node()
    n.join()
    n.open(("a", 100))
    db.run("DELETE FROM modelgw.nodes")
    n.call(1, "a", 10)
    n.ask("a", need=5)
    assert failed(n.exchange, end=1).result == "declined"
    assert db.one("SELECT count(*) FROM modelgw.calls") == 0
    n.identify(cluster=n.cluster, fresh=0)
    n.join()
    assert (n.num, n.pos) == (1, 0)


def test_fence_of_the_position(db, node):
    """A late exchange of the connection before changes nothing, neither by its
    epoch nor by its position."""
    n = node()
    n.join()
    n.open(("a", 100))
    late = node(journal=n.journal, process=n.process, fresh=0)
    late.join()
    n.call(1, "a", 10)
    n.ask("a", need=5)
    assert failed(n.exchange, end=1).result == "declined"
    late.call(1, "a", 10)
    late.exchange(end=1)
    db.run("UPDATE modelgw.nodes SET epoch = 1")
    n.connect()
    n.call(1, "a", 10)
    n.ask("a", need=5)
    assert failed(n.exchange, end=1).result == "declined"
    assert db.query("SELECT granted, spent FROM modelgw.leases") == [
        dict(granted=0, spent=10)]


@pytest.fixture
def proxy(db):
    p = faultproxy.Proxy(db.socket())
    yield p
    p.remove()


@pytest.mark.parametrize("committed", [True, False])
def test_answer_is_lost(db, node, proxy, committed):
    """The position says whether it was committed; what is said again changes
    nothing then."""
    n = node(conninfo=db.conninfo(host=proxy.directory))
    n.join()
    n.open(("a", 1000))
    n.money("a", want=100)

    def say():
        for pos in range(n.pos + 1, 101):
            n.call(pos, "a", 1)
        n.ask("a", returned=50)
        return n.exchange(end=100)

    if committed:
        proxy.cut_answer(0)
    else:
        proxy.cut_after(2000)
    assert failed(say).result == "again"
    assert n.do("alive")["alive"] == "0"
    n.identify(cluster=n.cluster, fresh=0)
    n.join()
    assert n.pos == (100 if committed else 0)
    said = say()["said"]["a"]
    assert (said.returned, said.spent, said.left()) == (50, 100, 0)
    assert said.free == 1000 - 100
    assert db.one("SELECT count(*) FROM modelgw.calls") == 100


def test_killed_backend(db, node):
    """The server ends the connection at any moment of an exchange: calls are
    stored once."""
    n = node()
    n.join()
    n.open(("a", 10**9))
    start = time.monotonic()
    n.exchange()
    took = time.monotonic() - start
    end = start + 120
    lost = 0
    with db.connect("postgres") as c:
        while lost < 10 or n.pos < 100:
            assert time.monotonic() < end
            for pos in range(n.pos + 1, n.pos + 11):
                n.call(pos, "a", 1)
            n.ask("a", need=10)
            t = threading.Timer(random.uniform(0, 2 * took), c.query, (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE usename = 'modelgw'",))
            t.start()
            try:
                n.exchange(end=n.pos + 10)
            except Failed as e:
                lost += 1
                assert e.result == "again", e
            t.join()
            n.identify(cluster=n.cluster, fresh=0)
            n.join()
    assert db.one("SELECT count(*) FROM modelgw.calls") == n.pos
    assert db.one("SELECT sum(spent) FROM modelgw.leases") == n.pos


def test_late_hours(db, node):
    """Calls that ended before the mark are added to hours."""
    n = node()
    n.join()
    n.open(("a", 1000))
    now = 1700000000000
    db.run("UPDATE modelgw.marks SET value = %d WHERE name = 'hours'" % now)
    n.do("call", 1, "k", "a", 10, now, 200, 5)
    n.do("call", 2, "k", "a", 20, now - 1, 200, 5)
    n.do("call", 3, "k", "a", 30, now - 2, 500, -1)
    n.do("call", 4, "k", "a", 40, now - 2 * HOUR, 200, 7)
    n.exchange(end=4)
    n.do("call", 5, "k", "a", 50, now - 1, 200, 5)
    n.exchange(end=5)
    rows = db.query("SELECT * FROM modelgw.hours ORDER BY hour")
    hour = (now - 1) // HOUR
    assert rows[0] == dict(
        hour=hour - 2, account="a", key="k", model="m", calls=1, errors=0,
        input=1, cache_read=2, cache_write=3, cache_write_1h=4, output=5,
        reasoning=6, cost=40, duration=250, first_bytes=1, first_byte=7)
    assert len(rows) == 2 and (
        rows[1]["hour"], rows[1]["calls"], rows[1]["errors"], rows[1]["cost"],
        rows[1]["duration"], rows[1]["first_bytes"], rows[1]["first_byte"]) \
        == (hour, 3, 1, 100, 750, 2, 10)


def test_leave(db, node):
    n = node()
    n.join()
    n.open(("a", 100), ("#k/day/0", 50, "k", 0, DAY))
    n.money("a", need=10)
    n.money("#k/day/0", need=10)
    e = failed(n.do, "leave")
    assert e.result == "again" and "something left" in e.error
    n.money("a", returned=10)
    db.run("UPDATE modelgw.nodes SET drain = true")
    assert n.exchange()["drain"] == 1
    n.do("leave")
    assert db.one("SELECT state FROM modelgw.nodes") == 1
    assert failed(n.exchange).result == "declined"

    n.identify(cluster=n.cluster, fresh=0)
    assert failed(n.join).result == "busy"

    # a start makes it a member, which is asked to leave again

    n.identify(cluster=n.cluster, fresh=1)
    n.join()
    assert n.epoch == 2 and n.exchange()["drain"] == 1
    n.do("leave")
    n.identify(cluster=n.cluster, fresh=0)
    assert failed(n.join).result == "busy"
    db.run("UPDATE modelgw.nodes SET drain = false")
    n.join()
    assert n.epoch == 3 and n.exchange()["drain"] == 0


# opening

def test_open(db, node):
    a, b = node("a"), node("b")
    a.join(), b.join()
    a.open(("x", 100), ("y", 0))
    b.open(("x", 777), ("y", 5), ("z", 1))
    assert db.query("SELECT name, free FROM modelgw.accounts ORDER BY name") \
        == [dict(name="x", free=100), dict(name="y", free=0),
            dict(name="z", free=1)]
    assert db.query("SELECT id, account, amount FROM modelgw.topups "
                    "ORDER BY id") == [
        dict(id="founding:x", account="x", amount=100),
        dict(id="founding:z", account="z", amount=1)]


def test_topups_again(db, node):
    """Those that are there do not change; several nodes at once."""
    nodes = [node("n%d" % i) for i in range(3)]
    for n in nodes:
        n.join()
    nodes[0].open(("x", 100), ("y", 0))

    def say(n):
        for i in range(1500):
            n.do("topup", "t%d" % i, "xy"[i % 2], i, "réason")
        n.do("topup", "z", "nothing", 5, "")
        n.do("topups")

    for _ in range(2):
        threads = [threading.Thread(target=say, args=(n,)) for n in nodes]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert db.query("SELECT name, free FROM modelgw.accounts "
                        "ORDER BY name") == [
            dict(name="x", free=100 + sum(range(0, 1500, 2))),
            dict(name="y", free=sum(range(1, 1500, 2)))]
    assert db.query("SELECT * FROM modelgw.topups WHERE id = 't3'") == [dict(
        id="t3", account="y", amount=3, time=77, reason="réason")]
    assert db.one("SELECT count(*) FROM modelgw.topups") == 1501
    db.run("DELETE FROM modelgw.topups WHERE id = 't3'; "
           "UPDATE modelgw.accounts SET free = free - 3 WHERE name = 'y'")
    say(nodes[1])
    assert db.one("SELECT free FROM modelgw.accounts WHERE name = 'y'") \
        == sum(range(1, 1500, 2))
    assert db.deadlocks() == 0


def test_budget(db, node):
    """It is opened with what was spent in its window, by calls and in days;
    then calls of all nodes count, and limits may change."""
    a, b = node("a"), node("b")
    a.join(), b.join()
    a.open(("x", 100000))
    start = 19700 * DAY
    for n, at in ((a, 0), (b, 1)):
        n.call(1, "x", 100, "k", start - 1)
        n.call(2, "x", 30, "k", start)
        n.call(3, "x", 7, "k", start + DAY - 1)
        n.call(4, "x", 100, "k", start + DAY)
        n.call(5, "x", 100, "other", start)
        n.exchange(end=5)
    db.run("INSERT INTO modelgw.days SELECT to_char(to_timestamp(%d) AT TIME "
           "ZONE 'UTC', 'YYYY-MM-DD'), 'x', 'k', 'm', 1, 1, 0, 0, 0, 0, 0, 0, "
           "0, cost, 0, 0, 0 FROM modelgw.calls WHERE node = 1 AND pos = 2"
           % (start // 1000))
    db.run("DELETE FROM modelgw.calls WHERE node = 1 AND pos = 2")
    name = "#k/day/%d" % start
    budget = (name, 1000, "k", start, start + DAY)
    b.open(budget)
    a.open(budget)
    assert db.query("SELECT key, starts, ends, name, lim FROM modelgw.budgets"
                    ) == [dict(key="k", starts=start, ends=start + DAY,
                               name=name, lim=1000)]
    assert db.one("SELECT free FROM modelgw.accounts WHERE name = %s",
                  name) == 1000 - 74
    assert db.query("SELECT node, granted, spent FROM modelgw.leases "
                    "WHERE account = %s ORDER BY node", name) == [
        dict(node=1, granted=37, spent=37), dict(node=2, granted=37, spent=37)]

    said = a.money(name, need=500)
    assert said.left() == 500 and said.free == 426
    a.call(6, "x", 20, "k", start + 5)
    a.call(7, "x", 1, "k", start + DAY)
    a.call(8, "x", 5, "k", start + 6)
    a.exchange(end=8)
    assert a.money(name).left() == 475

    said = b.money(name, need=427)
    assert said.brief and said.lent == 475
    a.open(budget[:1] + (1001,) + budget[2:])
    assert b.money(name, need=427, recall=1).brief == 0
    b.open(budget[:1] + (500,) + budget[2:])
    assert a.money(name).free == -501
    assert a.money(name, need=1).brief == 1

    # in all there are two windows of this key, and none of others

    b.open(("#k/month/0", 5000, "k", 0, 2**62), ("#o/total/0", 7, "o", 0, 2**62))
    assert db.one("SELECT free FROM modelgw.accounts WHERE name = "
                  "'#k/month/0'") == 5000 - 500
    b.call(6, "x", 9, "k", start)
    b.exchange(end=6)
    assert db.query("SELECT account, spent FROM modelgw.leases WHERE node = 2 "
                    "AND account LIKE '#%' ORDER BY account") == [
        dict(account=name, spent=46), dict(account="#k/month/0", spent=246)]
    for n in (a, b):
        assert n.join()["leases"]


def test_which_limit_counts(db, node):
    """Of configurations that of the one that was loaded last; of a key that
    operators have given a budget that one, whatever a node says."""
    old, new = node("old"), node("new")
    old.join(), new.join()
    old.do("age", HOUR), new.do("age", 60000)

    def budget(limit):
        return ("#k/total/0", limit, "k", 0, 2 ** 63 - 1)

    def limit(n, said):
        n.open(budget(said))
        free = db.one("SELECT free FROM modelgw.accounts WHERE name LIKE '#%'")
        assert free == db.one("SELECT lim FROM modelgw.budgets")
        return free

    assert limit(old, 1000) == 1000
    assert limit(new, 2000) == 2000
    assert limit(old, 1000) == 2000
    old.do("age", 1000)
    assert limit(old, 1000) == 1000
    assert limit(new, 1000) == 1000

    db.run("""INSERT INTO modelgw.keys VALUES ('\\x01', 'k', 'k', 'g', '', 0,
        0, 0, 7000, 'total', 0, 'active', 2, 1, 1, ''),
        ('\\x02', 'k', 'k', 'g', '', 0, 0, 0, 500, 'total', 0, 'replaced', 1,
        1, 1, '')""")
    assert limit(new, 500) == 7000
    assert limit(old, 500) == 7000
    db.run("UPDATE modelgw.keys SET budget = 0, \"window\" = ''")
    assert limit(old, 1000) == 1000


def test_budgets_are_opened_while_exchanges_run(db, node):
    """No call is missed, and none counts twice: also those of nodes that join
    meanwhile."""
    nodes = [node("n%d" % i) for i in range(4)]
    opener = node("opener")
    opener.join()
    opener.open(("x", 10**9))
    stop = threading.Event()
    faults = []

    def drive(n):
        try:
            n.join()
            pos = 0
            while not stop.is_set():
                for _ in range(random.randint(1, 20)):
                    pos += 1
                    n.call(pos, "x", random.randint(0, 9),
                           "k%d" % random.randint(0, 9),
                           random.randint(0, 2 * DAY - 1))
                if random.random() < .3:
                    n.ask("x", want=100)
                n.exchange(end=pos)
        except Exception as e:
            faults.append(e)

    threads = [threading.Thread(target=drive, args=(n,)) for n in nodes]
    for t in threads:
        t.start()
    for day in range(2):
        for k in range(10):
            opener.open(("#k%d/day/%d" % (k, day * DAY), 1000, "k%d" % k,
                         day * DAY, (day + 1) * DAY),
                        ("#k%d/total/%d" % (k, day), 5000 + day, "k%d" % k, 0,
                         2**62 - day))
            assert wrong(db) == []
    stop.set()
    for t in threads:
        t.join()
    assert not faults
    for row in db.query(
            "SELECT b.name, l.node, l.spent, (SELECT sum(cost) FROM "
            "modelgw.calls c WHERE c.key = b.key AND c.node = l.node AND "
            "c.ended >= b.starts AND c.ended < b.ends) AS cost "
            "FROM modelgw.budgets b JOIN modelgw.leases l ON l.account = b.name"):
        assert row["spent"] == row["cost"], row
    assert db.deadlocks() == 0


# nodes that do all of it, at random

class Spender:
    """A node with calls that hold and cost, which is killed, loses connections
    and is written off.  journal: what a kill leaves; the rest is memory."""

    def __init__(self, node, accounts, rnd):
        self.node, self.accounts, self.rnd = node, accounts, rnd
        self.journal = {"rows": [], "leases": {}}
        self.admitted = self.refused = self.lost = self.fenced = 0
        self.boot()

    def boot(self):
        self.leases = {a: list(v) for a, v in self.journal["leases"].items()}
        self.spent = dict.fromkeys(self.accounts, 0)
        for a, cost in self.journal["rows"]:
            self.spent[a] += cost
        self.held = []
        self.recalls, self.claim = {}, None
        self.joined, self.fresh = False, 1
        self.node.process = secrets.token_hex(16)
        self.node.identify(fresh=1)

    def available(self, a):
        granted, returned, forced = self.leases.get(a, (0, 0, 0))
        return (granted - returned - forced - self.spent[a]
                - sum(h for b, h in self.held if b == a))

    def settle(self, i, cost):
        a, _ = self.held.pop(i)
        self.journal["rows"].append((a, cost))
        self.spent[a] += cost

    def kill(self):
        held = self.held
        self.boot()
        for a, h in held:       # found open in the journal: charged
            self.held.append((a, h))
            self.settle(len(self.held) - 1, self.rnd.randint(0, h))

    def join(self):
        have = self.node.join()["leases"]
        self.fresh = 0
        asks = {}
        for a in set(self.leases) | set(have):
            granted, returned, forced, spent = have.get(a, (0, 0, 0, 0))
            v = self.leases.setdefault(a, [0, 0, 0])
            v[:] = granted, max(v[1], returned), forced
            if v[1] != returned or granted - v[1] - forced - spent < 0:
                asks[a] = {}
        self.joined = True
        if asks:
            self.exchange(asks)

    def exchange(self, asks):
        for a, ask in asks.items():     # written down before it is said
            v = self.leases.setdefault(a, [0, 0, 0])
            v[1] += ask.pop("back", 0)
            self.journal["leases"][a] = list(v)
            self.node.ask(a, returned=v[1], **ask)
        rows = self.journal["rows"]
        for pos in range(self.node.pos + 1, min(len(rows), self.node.pos + 50)
                         + 1):
            self.node.call(pos, rows[pos - 1][0], rows[pos - 1][1], ended=pos)
        got = self.node.exchange(end=len(rows), live=3)
        for a, said in got["said"].items():
            self.leases[a][0], self.leases[a][2] = said.granted, said.forced
        self.recalls = got["recalls"]
        return got["said"]

    def step(self):
        rnd = self.rnd
        if rnd.random() < .02:
            self.kill()
        if not self.joined:
            self.join()
        for _ in range(rnd.randint(0, 5)):
            a, h = rnd.choice(self.accounts), rnd.choice((5, 20, 50))
            if self.available(a) >= h:
                self.held.append((a, h))
                self.admitted += h
            elif self.claim is None:
                self.claim = [a, h, 0, time.monotonic()]
        while len(self.held) > 6 or (self.held and rnd.random() < .5):
            i = rnd.randrange(len(self.held))
            self.settle(i, rnd.randint(0, self.held[i][1]))
        asks = {}
        for a, no in self.recalls.items():
            asks[a] = dict(back=max(0, self.available(a)), answered=no)
        if self.claim and self.claim[0] not in asks:
            a, h, no, _ = self.claim
            asks[a] = dict(need=max(0, h - self.available(a)), want=60,
                           recall=no)
        for a in self.accounts:
            if a not in asks and not 0 <= self.available(a) <= 100:
                asks[a] = dict(back=max(0, self.available(a) - 50))
        said = self.exchange(asks)
        if self.claim:
            a, h, _, since = self.claim
            if self.available(a) >= h:
                self.held.append((a, h))
                self.admitted += h
                self.claim = None
            elif a in said and said[a].brief:
                self.claim[2] = said[a].recall
                if said[a].silent == 0 or time.monotonic() > since + 2:
                    self.refused += 1
                    self.claim = None

    def run(self, going):
        while going():
            self.attempt(self.step)

    def attempt(self, what, *args):
        try:
            what(*args)
            return True
        except Failed as e:
            assert e.result in ("again", "declined", "error"), e
            self.fenced += e.result == "declined"
            self.lost += e.result == "again"
            self.joined = False
            self.node.identify(cluster=self.node.cluster, fresh=self.fresh)
            return False

    def give_back(self):
        while self.held:
            self.settle(0, self.held[0][1])
        if not self.joined:
            self.join()
        while True:
            self.exchange({a: dict(back=max(0, self.available(a)))
                           for a in self.accounts})
            if self.node.pos == len(self.journal["rows"]):
                return


# of an operator, as a write-off does it

EXPEL = ("UPDATE modelgw.nodes SET epoch = epoch + 1, process = '', state = 2 "
         "WHERE num = %d")
FORCE = """
WITH l AS (
    SELECT account, granted - returned - forced - spent AS rest
    FROM modelgw.leases
    WHERE node = %d AND granted - returned - forced - spent > 0
), a AS (
    SELECT name FROM modelgw.accounts WHERE name IN (SELECT account FROM l)
    ORDER BY name FOR UPDATE
), ua AS (
    UPDATE modelgw.accounts x SET free = x.free + l.rest FROM l, a
    WHERE x.name = l.account AND a.name = x.name
)
UPDATE modelgw.leases x SET forced = x.forced + l.rest FROM l
WHERE x.node = %d AND x.account = l.account RETURNING l.rest
"""


@pytest.mark.parametrize("write_off", [False, True])
def test_nodes_at_random(db, node, write_off):
    """Nodes that are killed, lose connections, and maybe are written off while
    they run: each charge once, all that is left free at the end; and nothing
    overspent, but for what was written off."""
    rnd = random.Random()
    accounts = ["a%d" % i for i in range(3)]
    spenders = [Spender(node("n%d" % i), accounts, random.Random(rnd.random()))
                for i in range(3)]
    first = spenders[0]
    first.join()
    amounts = dict.fromkeys(accounts, 3000)
    first.node.open(*amounts.items())
    until = time.monotonic() + 5

    def going():
        now = time.monotonic()
        return now < until or (now < until + 60 and
                               sum(s.admitted for s in spenders) <= 1000)

    threads = [threading.Thread(target=s.run, args=(going,)) for s in spenders]
    for t in threads:
        t.start()
    forced = 0
    while going():
        time.sleep(rnd.uniform(.1, .6))
        a = rnd.choice(accounts)
        amounts[a] += 1000
        with db.connect() as c:
            c.query("INSERT INTO modelgw.topups VALUES (%s, %s, 1000, 0); "
                    "UPDATE modelgw.accounts SET free = free + 1000 "
                    "WHERE name = %s", secrets.token_hex(8), a, a)
            if write_off and rnd.random() < .7:
                num = rnd.randint(1, 3)
                c.run("BEGIN")
                c.run(EXPEL % num)
                forced += sum(r["rest"] for r in c.query(FORCE % (num, num)))
                c.run("COMMIT")
            else:
                c.query("SELECT pg_terminate_backend(pid) FROM "
                        "pg_stat_activity WHERE usename = 'modelgw' "
                        "ORDER BY random() LIMIT 1")
        assert wrong(db) == []
    for t in threads:
        t.join()
    for _ in range(2):
        for s in spenders:
            for _ in range(20):
                if s.attempt(s.give_back):
                    break
    over = 0
    for a in accounts:
        spent = sum(s.spent[a] for s in spenders)
        over += max(0, spent - amounts[a])
        assert db.one("SELECT free FROM modelgw.accounts WHERE name = %s",
                      a) == amounts[a] - spent
    assert over <= forced
    assert db.one("SELECT count(*) FROM modelgw.leases WHERE granted - returned"
                  " - forced - spent <> 0") == 0
    assert db.one("SELECT count(*) FROM modelgw.calls") \
        == sum(len(s.journal["rows"]) for s in spenders)
    assert sum(s.admitted for s in spenders) > 1000
    assert write_off or sum(s.fenced for s in spenders) == 0
    print("admitted %d refused %d lost %d fenced %d" % tuple(
        sum(getattr(s, k) for s in spenders)
        for k in ("admitted", "refused", "lost", "fenced")), "over", over,
        "forced", forced)
    assert db.deadlocks() == 0
