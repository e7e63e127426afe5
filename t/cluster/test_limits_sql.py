"""The statements of ngx_modelgw_limits.c: against a model of them, at times that
are given, and by many nodes at once, at the time that it is."""

import os
import random
import re
import threading
import time

import pytest

import postgres
from gateway import ROOT

SOURCE = os.path.join(ROOT, "src/cluster/ngx_modelgw_limits.c")
NOW = "(extract(epoch FROM now()) * 1000)::bigint"
COLUMNS = ("key", "kind", "limit", "second", "booked", "used", "age", "keep",
           "least", "need", "want", "most")
SLOTS = ("key", "limit", "keep", "need", "want", "idle")
ANSWER = ("took", "second", "rest", "wait", "wait_most")


@pytest.fixture
def server(database):
    return database


def statement(name):
    with open(SOURCE) as f:
        text = f.read()
    text = re.search(r"ngx_modelgw_limits_%s_sql\[\] =\n(.*?);\n\n" % name,
                     text, re.S)[1]
    text = text.replace("NGX_MODELGW_LIMITS_NOW", '"%s"' % NOW)
    return "".join(re.findall(r'"([^"]*)"', text))


def array(values):
    return "{%s}" % ",".join(str(v) for v in values)


def fill(sql, *args):
    """The parameters as literals; $12 before $1."""
    for i in range(len(args), 0, -1):
        a = args[i - 1]
        sql = sql.replace("$%d" % i, postgres.quote(
            array(a) if isinstance(a, (list, tuple)) else a))
    return sql


MINUTE, LOCK, SLOTS_SQL, ROWS = [statement(n) for n in (
    "minute", "lock", "slots", "rows")]


def rows(db, asks):
    db.run(fill(ROWS, [a["key"] for a in asks], [a["kind"] for a in asks]))


def minute(db, asks, live, now=None):
    sql = fill(MINUTE, *[[a[c] for a in asks] for c in COLUMNS], live)
    if now is not None:
        sql = sql.replace(NOW, "%d::bigint" % now)
    return {asks[r["no"] - 1]["key"]: r for r in db.query(sql)}


def ask(**kw):
    a = dict.fromkeys(COLUMNS + SLOTS, 0)
    a.update(limit=60, **kw)
    return a


class Row:
    """What the statement has to do, in other words."""

    def __init__(self):
        self.second, self.counts = 0, {}

    def say(self, a, live, ms):
        now = ms // 1000
        if 0 <= self.second - now <= 5:
            now = self.second
        elif self.second > now:         # set back: counts move with it
            self.counts = {s - self.second + now: n
                           for s, n in self.counts.items()}
        self.second = now
        counts = {s: n for s, n in self.counts.items() if s >= now - 60}
        if a["second"] in counts:
            counts[a["second"]] -= min(a["booked"], counts[a["second"]])
        at = (ms - a["age"]) // 1000
        if at >= now - 60:
            counts[at] = counts.get(at, 0) + a["used"]
        rest = max(a["limit"] - sum(counts.values()) - a["keep"], 0)
        took = 0
        if rest >= a["least"]:
            took = min(a["need"], rest)
            took += min(a["want"], (rest - took) // (2 * live))
        counts[now + 5] = counts.get(now + 5, 0) + a["keep"] + took
        rest -= took
        self.counts = counts
        return (took, now + 5, rest) + tuple(
            self.wait(rest, a[name], ms) if took < a["need"] else 0
            for name in ("least", "most"))

    def wait(self, free, n, ms):
        """What was used in a second is free 61 s after it began."""
        for second in sorted(self.counts):
            free += self.counts[second]
            if free >= n:
                return (second + 61) * 1000 - ms
        return 0


def test_minute_is_as_the_model(server):
    rnd = random.Random(16)
    keys = ["a", "b", "c"]
    ms = 1_800_000_000_000
    model = {k: Row() for k in keys}
    said = {k: (0, 0) for k in keys}
    with server.connect() as db:
        rows(db, [ask(key=k) for k in keys])
        for n in range(700):
            ms += rnd.choice((1, 40, 300, 1000, 7000, 30000))
            if n % 100 == 99:           # the clock is set back, or forward
                ms += rnd.choice((-3_600_000, -4000, -300, 200_000))
            asks = []
            for k in rnd.sample(keys, rnd.randint(1, 3)):
                least = rnd.choice((0, 1, 1, 20))
                need = least and rnd.randint(least, 30)
                second, booked = said[k]
                used = rnd.randint(0, booked)
                asks.append(ask(
                    key=k, most=least and rnd.randint(least, need),
                    second=second, booked=booked, used=used,
                    age=rnd.choice((0, 500, 9000, 120_000)),
                    keep=rnd.randint(0, booked - used), least=least, need=need,
                    want=rnd.randint(0, 8)))
            answers = minute(db, asks, 3, ms)
            for a in asks:
                k = a["key"]
                r = answers[k]
                said_now = model[k].say(a, 3, ms)
                assert tuple(r[c] or 0 for c in ANSWER) == said_now, (n, a, r)
                took, second = said_now[:2]
                said[k] = second, a["keep"] + took
            for r in db.query("SELECT * FROM modelgw.limits"):
                assert r["counts"] == "{}" or r["total"] == sum(
                    int(c) for c in r["counts"][1:-1].split(",")), r
                assert r["total"] <= 60 + 30, r


class Node(threading.Thread):
    """Borrows and uses, until it is told to stop; remembers when it has used how
    much."""

    def __init__(self, server, number, keys, stop):
        super().__init__()
        self.server, self.number, self.keys = server, number, keys
        self.stop, self.uses, self.error = stop, [], None

    def run(self):
        try:
            with self.server.connect() as db:
                self.work(db)
        except Exception as e:
            self.error = e

    def work(self, db):
        rnd = random.Random(self.number)
        have = {k: [0, 0, 0] for k in self.keys}    # second, booked, have
        while not self.stop.is_set():
            asks = []
            for k in rnd.sample(self.keys, rnd.randint(1, len(self.keys))):
                second, booked, left = have[k]
                used = rnd.randint(0, left)
                self.uses += [(time.time(), k)] * used
                asks.append(ask(key=k, kind=0, second=second, booked=booked,
                                used=used, keep=left - used, least=1,
                                need=rnd.randint(1, 9), want=2))
            db.run("BEGIN; SET LOCAL synchronous_commit = off")
            if rnd.random() < 0.1:
                time.sleep(0.02)        # begun early, executed late
            for k, r in minute(db, asks, 4).items():
                (a,) = [a for a in asks if a["key"] == k]
                booked = a["keep"] + r["took"]
                have[k] = [r["second"], booked, booked]
            db.run("COMMIT")


def test_minute_by_many_nodes_at_once(server):
    keys = ["a", "b", "c", "d"]
    with server.connect() as db:
        rows(db, [ask(key=k) for k in keys])
        stop = threading.Event()
        nodes = [Node(server, n, keys, stop) for n in range(8)]

        def used():
            return [sum(u == k for n in nodes for _, u in n.uses)
                    for k in keys]

        for n in nodes:
            n.start()
        end = time.time() + 40
        while used() != [60] * 4 and time.time() < end:
            time.sleep(0.1)
        time.sleep(5)                   # no more than that
        stop.set()
        for n in nodes:
            n.join()
        assert [n.error for n in nodes] == [None] * 8
        assert used() == [60] * 4
        for r in db.query("SELECT * FROM modelgw.limits"):
            assert r["total"] == 60
    assert server.deadlocks() == 0


def slots(db, node, asks, live=3):
    db.run("BEGIN")
    db.run(fill(LOCK, [a["key"] for a in asks], [a["limit"] for a in asks]))
    out = {asks[r["no"] - 1]["key"]: r for r in db.query(fill(
        SLOTS_SQL, *[[a[c] for a in asks] for c in SLOTS], node, live))}
    db.run("COMMIT")
    return out


def test_slots(server):
    with server.connect() as db:
        def say(node, limit=8, **kw):
            a = ask(key="k", **kw)
            a["limit"] = limit
            r = slots(db, node, [a])["k"]
            return r["took"], r["rest"], r["lacks"], r["idle"]

        assert say(1, need=1, want=1) == (2, 6, 0, 0)
        assert say(2, keep=0, need=4, want=1) == (4, 2, 0, 1)
        assert say(3, need=5) == (2, 0, 0, 1)
        assert say(1, keep=2) == (0, 0, 3, 0)       # 3 lacks 3
        assert say(2, keep=1, need=0) == (0, 3, 3, 0)
        assert say(3, keep=2, need=3) == (3, 0, 0, 0)

        # a node that was away has calls that the others have not counted

        db.run("UPDATE modelgw.slots SET seen = seen - 10001 WHERE node = 1")
        assert say(2, keep=1, need=9) == (2, 0, 0, 0)
        assert say(1, keep=2, need=1) == (0, 0, 7, 0)
        assert say(2, keep=3, need=1) == (0, 0, 1, 0)
        assert say(3, keep=0) == (0, 3, 2, 0)
        assert say(3, keep=3, idle=2) == (0, 0, 2, 0)
        assert say(1, keep=2, need=1) == (0, 0, 1, 2)


def test_slots_by_many_nodes_at_once(server):
    keys, taken, faults = ["a", "b"], {"a": 0, "b": 0}, []
    lock = threading.Lock()
    ends = time.time() + 4

    def work(node):
        rnd = random.Random(node)
        mine = dict.fromkeys(keys, 0)
        with server.connect() as db:
            while time.time() < ends:
                asks = [ask(key=k, keep=rnd.randint(0, mine[k]),
                            need=rnd.randint(0, 9), want=1)
                        for k in rnd.sample(keys, rnd.randint(1, 2))]
                with lock:              # given back before it is said
                    for a in asks:
                        taken[a["key"]] -= mine[a["key"]] - a["keep"]
                answers = slots(db, node, asks)
                with lock:
                    for a in asks:
                        k = a["key"]
                        mine[k] = a["keep"] + answers[k]["took"]
                        taken[k] += answers[k]["took"]
                        if taken[k] > 60:
                            faults.append((k, taken[k]))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert faults == []
    assert server.deadlocks() == 0
