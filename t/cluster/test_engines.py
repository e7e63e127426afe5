"""Operators get the same answers of a ledger in SQLite and of a cluster's
database, byte for byte, and their changes make the same of both."""

import os
import random
import re
import sqlite3
import subprocess
import time

import pytest

import postgres
from cluster import wait_for

CLI = os.environ["MODELGW_ENGINES_CLI"]
HOUR = 3600000
DAY = 24 * HOUR
NOW = 1795330020123             # 2026-11-22T06:47:00.123Z
MARK = NOW // HOUR * HOUR - 30 * HOUR + 1234
SUMS = ("calls", "errors", "input", "cache_read", "cache_write",
        "cache_write_1h", "output", "reasoning", "cost", "duration",
        "first_bytes", "first_byte")
CALLS = ("id", "time", "ended", "key", "account", "model", "input",
         "cache_read", "cache_write", "cache_write_1h", "output", "reasoning",
         "cost", "outcome", "end", "status", "request_id", "first_byte",
         "flags", "price")


class Engine:
    """A process that answers."""

    def __init__(self, *args):
        self.p = subprocess.Popen([CLI, *args], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)

    def ask(self, command, **kw):
        line = "\t".join([command] + ["%s=%s" % i for i in kw.items()])
        self.p.stdin.write(line.encode() + b"\n")
        self.p.stdin.flush()
        rc, length = self.p.stdout.readline().split()
        text = self.p.stdout.read(int(length) + 1)[:-1]
        return int(rc), text

    def close(self):
        self.p.stdin.close()
        assert self.p.wait(30) == 0


class Both:
    def __init__(self, server, tmp):
        self.server = server
        self.path = str(tmp / "ledger.db")
        password = tmp / "password"
        password.write_text(server.password + "\n")
        password.chmod(0o600)
        self.sqlite = Engine("sqlite", self.path)
        self.pq = Engine("pq", server.conninfo(), str(password))
        wait_for(self.made, "there are no tables")

    def made(self):
        """By the first of the two."""
        db = sqlite3.connect(self.path)
        try:
            return db.execute("SELECT count(*) FROM sqlite_master "
                              "WHERE name = 'calls'").fetchone()[0] == 1
        except sqlite3.OperationalError:        # it is being made
            return False
        finally:
            db.close()

    def ask(self, command, **kw):
        """The answer of both."""
        one = self.sqlite.ask(command, **kw)
        two = self.pq.ask(command, **kw)
        assert one == two, (command, kw)
        assert one[0] != -1, (command, kw, one)
        return one

    def close(self):
        self.sqlite.close()
        self.pq.close()


@pytest.fixture
def server(database):
    return database


@pytest.fixture
def both(server, tmp_path):
    b = Both(server, tmp_path)
    yield b
    b.close()


def insert(db, table, columns, rows):
    names = ", ".join('"%s"' % c for c in columns)
    db.executemany("INSERT INTO %s (%s) VALUES (%s)" % (
        table, names, ", ".join("?" * len(columns))), rows)


def insert_pq(c, table, columns, rows):
    names = ", ".join('"%s"' % n for n in columns)
    for i in range(0, len(rows), 500):
        c.run("INSERT INTO modelgw.%s (%s) VALUES %s" % (
            table, names, ", ".join(
                "(%s)" % ", ".join(postgres.quote(v) for v in row)
                for row in rows[i:i + 500])))


TEXTS = ("ä", "a'b", 'q"q', "=1+1", "\\x", "z\tz", "Z", "_", "~", "é\n", "-1")


def fill(both, seed=1, ncalls=1500):
    """The same rows in both, as writers leave them: calls above the mark only
    in "calls", those below it also in "hours"."""
    r = random.Random(seed)
    accounts = ["acme", "Acme", "beta-1", "beta_1", "ö", "zeta"]
    keys = ["k%d" % i for i in range(9)]
    models = ["gpt-5", "claude", "ä-model", "=cmd"]
    calls = []
    for i in range(ncalls):
        ended = NOW - r.choice((r.randrange(40 * HOUR), r.randrange(20 * DAY)))
        if i % 50 == 1:
            ended = calls[-1][2]
        time = ended - r.randrange(90000)
        calls.append((1795000000000 + i * 1024 + i % 3, time, ended,
                      r.choice(keys), r.choice(accounts), r.choice(models),
                      *[r.randrange(0, 10 ** 6) for _ in range(6)],
                      r.choice((0, r.randrange(10 ** 12))),
                      r.choice(("reported", "estimated", "unanswered")),
                      r.choice(("complete", "client", "lost")),
                      r.choice((200, 200, 200, 0, 404, 500)),
                      r.choice(("", "req_%d" % i) + TEXTS),
                      r.choice((None, r.randrange(5000))), r.randrange(4),
                      r.choice((0, 7, -8))))
    hours, days = {}, {}
    for c in calls:
        if c[2] < MARK:
            add(hours, (c[2] // HOUR, c[4], c[3], c[5]), c)
    for i in range(200):
        day = "2026-%02d-%02d" % (r.randrange(8, 11), r.randrange(1, 29))
        key = (day, r.choice(accounts), r.choice(keys), r.choice(models))
        days[key] = [r.randrange(10 ** 6) for _ in SUMS]
    topups = [("t%s%d" % (TEXTS[i % 11], i), r.choice(accounts),
               r.randrange(-10 ** 9, 10 ** 10), NOW - i // 3 * 1000,
               r.choice(TEXTS)) for i in range(60)]
    balances = {a: r.randrange(-10 ** 9, 10 ** 12) for a in accounts}
    state = {a: r.choice(("open", "closed")) for a in accounts}
    note = {a: r.choice(TEXTS) for a in accounts}
    rows = key_rows(r, accounts)
    prices = [(7, "g", "gpt-5", NOW - DAY, 1, 2, 3, 4, 5),
              (-8, "", "ä", NOW, 10 ** 6, 10 ** 7, 0, 0, 9)]
    actions = [(NOW - i * 10, NOW - i * 10, r.choice(("alice", "bob")), "::1",
                "topup", r.choice(accounts), "{}", '{"n":%d}' % i)
               for i in range(50)]
    db = sqlite3.connect(both.path)
    with db:
        insert(db, "calls", CALLS, calls)
        insert(db, "accounts", ("name", "balance", "opened", "state", "note"),
               [(a, balances[a], NOW - 1, state[a], note[a]) for a in accounts])
        insert(db, "topups", TOPUPS, topups)
        insert(db, "hours", ("hour", "account", "key", "model") + SUMS,
               [k + tuple(v) for k, v in hours.items()])
        insert(db, "days", ("day", "account", "key", "model") + SUMS,
               [k + tuple(v) for k, v in days.items()])
        db.execute("UPDATE marks SET value = ? WHERE name = 'hours'", (MARK,))
        insert(db, "keys", KEYS, rows)
        insert(db, "prices", PRICES, prices)
        insert(db, "actions", ACTIONS, actions)
    db.close()
    with both.server.connect() as c:
        insert_pq(c, "calls", ("node", "pos") + CALLS,
                  [(i % 3 + 1, i) + row for i, row in enumerate(calls)])
        leases = [(n, a, 10 ** 12 + n, n, 1, r.randrange(10 ** 11), n)
                  for a in accounts for n in range(1, 4)]
        insert_pq(c, "leases", ("node", "account", "granted", "returned",
                                "forced", "spent", "held"), leases)
        lent = {a: sum(g - b - f - s for _, n, g, b, f, s, _ in leases
                       if n == a) for a in accounts}
        insert_pq(c, "accounts", ("name", "free", "opened", "state", "note"),
                  [(a, balances[a] - lent[a], NOW - 1, state[a], note[a])
                   for a in accounts] + [("k1/month#1", 5, 1, "open", "")])
        insert_pq(c, "topups", TOPUPS, topups)
        insert_pq(c, "hours", ("hour", "account", "key", "model") + SUMS,
                  [k + tuple(v) for k, v in hours.items()])
        # a day's sums are those of several nodes
        insert_pq(c, "days", ("node", "day", "account", "key", "model") + SUMS,
                  [row for k, v in days.items() for row in (
                      (1,) + k + tuple(x // 3 for x in v),
                      (2,) + k + tuple(x - x // 3 for x in v))])
        c.run("UPDATE modelgw.marks SET value = %d WHERE name = 'hours'" % MARK)
        insert_pq(c, "keys", KEYS, rows)
        insert_pq(c, "prices", PRICES, prices)
        insert_pq(c, "actions", ("node",) + ACTIONS, [(3,) + a for a in actions])
    return calls, accounts, keys, models


TOPUPS = ("id", "account", "amount", "time", "reason")
PRICES = ("id", "group", "model", "from", "input", "output", "cache_read",
          "cache_write", "cache_write_1h")
ACTIONS = ("id", "time", "actor", "address", "action", "target", "before",
           "after")
KEYS = ("digest", "id", "account", "group", "models", "rpm", "tpm",
        "concurrency", "budget", "window", "expires", "state", "version",
        "created", "changed", "note")


def key_rows(r, accounts):
    rows = []
    ids = ["m%d" % i for i in range(30)] + ["M1", "m-1", "m_1", "m.1"]
    for n, name in enumerate(ids):
        states = [r.choice(("active", "active", "revoked"))] \
            + ["rotated"] * (n % 3) + ["replaced"] * (n % 2)
        for i, state in enumerate(states):
            rows.append((bytes([n, i] * 16), name, r.choice(accounts), "g",
                         r.choice(("", "a,b")), n, n * 2, n % 4,
                         r.choice((0, 10 ** 9)), r.choice(("day", "month", "")),
                         r.choice((0, NOW - DAY, NOW + DAY)) if i == 0
                         else NOW + r.randrange(-DAY, DAY),
                         state, 1 + n % 5, NOW - n, NOW - i,
                         r.choice(TEXTS).replace("\t", " ").replace("\n", "")))
    return rows


def add(sums, key, c):
    row = sums.setdefault(key, [0] * len(SUMS))
    for i, v in enumerate((1, not 200 <= c[15] <= 299, *c[6:13], c[2] - c[1],
                           c[17] is not None, c[17] or 0)):
        row[i] += v


def test_calls_of_both(both):
    calls, _, _, _ = fill(both)
    r = random.Random(2)
    ask = both.ask

    for kw in ({}, {"account": "acme"}, {"key": "k1", "model": "claude"},
               {"outcome": "estimated"}, {"end": "lost"}, {"status": 0},
               {"status": 404, "min_cost": 10 ** 11}, {"request_id": "a'b"},
               {"request_id": "é"}, {"account": "acm"}, {"from": NOW - DAY},
               {"to": NOW - DAY, "from": NOW - 9 * DAY}):
        ask("calls", limit=1000000, **kw)
        ask("csv", limit=1000000, **kw)

        after, n = "", 0
        for _ in range(400):
            rc, text = ask("calls", limit=300, after=after, **kw)
            n += text.count(b'{"id":')
            if b'"more":true' not in text:
                break
            after = text.rsplit(b'"next":"', 1)[1][:-2].decode()
        if not kw:
            assert n == len(calls)

    for c in r.sample(calls, 20):
        assert ask("call", id=c[0])[0] == 0
        ask("call", id=c[0], account="acme")
    assert ask("call", id=5)[0] == -5


@pytest.mark.parametrize("part", range(2))
def test_usage(both, part):
    fill(both)
    r = random.Random(2)
    ask = both.ask
    spans = [(0, 0), (NOW - 3 * DAY, 0), (NOW - 3 * DAY, NOW - DAY),
             (NOW - HOUR + 7, NOW - 1), (MARK - HOUR, MARK + HOUR),
             (MARK, NOW), (0, MARK), (NOW - 80 * DAY, NOW - 30 * DAY)]
    spans += [(a, a + r.randrange(30 * DAY)) for a in
              [NOW - r.randrange(90 * DAY) for _ in range(6)]]
    for start, end in spans[part::2]:
        for by in ("h", "d", "m", "k", "o", "a", "da", "ak", "hk", "mo"):
            kw = {"by": by, "from": start, "to": end, "now": NOW,
                  "zone": r.choice((0, 5 * HOUR, -11 * HOUR))}
            ask("usage", limit=100000, **kw)
            ask("usage", limit=10, account="acme", model="gpt-5", **kw)
            ask("usage_csv", limit=10000, **kw)
        for by in "ka":
            one = both.sqlite.ask("spent", by=by, start=start)
            two = both.pq.ask("spent", by=by, start=start)
            assert sorted(one[1].splitlines()) == sorted(two[1].splitlines())
            assert_among(both, "spent", by=by, start=start)


def assert_among(both, command, field=0, **kw):
    """With names it says of these what it says of all, and nothing else."""
    def ask(engine, names=""):
        return sorted(engine.ask(command, names=names, **kw)[1].splitlines())
    everything = ask(both.pq)
    names = sorted({line.split()[field].decode() for line in everything})
    for some in (names[:1], names[1:2], ["nobody"], names[::2],
                 names[1:3] + ["nobody"]):
        few = [line for line in everything
               if line.split()[field].decode() in some]
        assert ask(both.pq, ",".join(some)) == few
        if len(some) == 1 and command != "balances":
            assert ask(both.sqlite, some[0]) == few


def test_accounts(both):
    _, accounts, _, _ = fill(both)
    ask = both.ask
    for a in accounts + ["nobody", "\xff"]:
        ask("note", account=a)
        ask("topups", account=a, limit=100)
        ask("topups", account=a, limit=3)
    for command, kw in (("accounts", {}), ("closed", {}), ("noted", {"text": "a"}),
                        ("noted", {"text": "ä"}), ("noted", {"text": "%"})):
        one, two = both.sqlite.ask(command, **kw), both.pq.ask(command, **kw)
        assert sorted(one[1].splitlines()) == sorted(two[1].splitlines())
    held = dict(line.rsplit(b" ", 2)[::2] for line in
                both.pq.ask("balances")[1].splitlines())
    assert set(held.values()) == {b"6"} and len(held) == len(accounts)
    assert_among(both, "balances")


def test_lists(both):
    _, accounts, _, _ = fill(both)
    for kw in ({}, {"q": "m1"}, {"q": "a'b"}, {"q": "%"}, {"account": "acme"},
               {"state": "active"}, {"state": "expired"}, {"id": "m.1"},
               {"state": "revoked", "q": "ä"}):
        after, seen = "", []
        for _ in range(50):
            _, text = both.ask("keys", now=NOW // 1000, limit=3, after=after, **kw)
            rows = text.decode().splitlines()
            seen += rows
            if len(rows) < 3:
                break
            after = re.search(r"\} [0-9a-f]{64} (\S+)", rows[-1])[1]
        assert "\n".join(seen) == both.ask("keys", now=NOW // 1000, **kw)[1] \
            .decode().rstrip("\n")
    one, two = (e.ask("table", time=NOW // 1000)[1].splitlines()
                for e in (both.sqlite, both.pq))
    assert sorted(one) == sorted(two)
    assert_among(both, "table", 2, time=NOW // 1000)

    for kw in ({}, {"actor": "bob"}, {"target": "acme"}):
        after = node = 0
        for _ in range(60):
            one = both.sqlite.ask("actions", limit=7, after=after, **kw)
            two = both.pq.ask("actions", limit=7, after=after, node=node, **kw)
            assert one[1] == re.sub(rb'("next":"\d+)-\d+', rb"\1", two[1])
            m = re.search(rb'"next":"(\d+)-(\d+)"', two[1])
            if not m:
                break
            after, node = int(m[1]), int(m[2])


def test_actions_of_nodes(both):
    """Nodes that changed something in the same millisecond: none is lost
    between two pages."""
    with both.server.connect() as c:
        insert_pq(c, "actions", ("node",) + ACTIONS,
                  [(n, NOW + t, NOW + t, "a", "", "x", "y", "{}",
                    "[%d,%d]" % (n, t)) for n in (1, 2, 3, 11) for t in range(5)])
    seen, after, node = [], 0, 0
    for _ in range(30):
        _, text = both.pq.ask("actions", limit=3, after=after, node=node)
        seen += re.findall(rb'"after":(\[.*?\])', text)
        m = re.search(rb'"next":"(\d+)-(\d+)"', text)
        if not m:
            break
        after, node = int(m[1]), int(m[2])
    assert len(seen) == len(set(seen)) == 20


def test_interrupt(both):
    """A query that waits, or a server that does not answer, ends soon when it
    is interrupted, and the server ends what it was doing."""
    with both.server.connect() as c:
        c.run("BEGIN")
        c.run("LOCK TABLE modelgw.calls")
        start = time.monotonic()
        rc, text = both.pq.ask("calls", limit=1, interrupt=1)
        assert rc == -1 and text.startswith(b'the database of "modelgw_cluster"')
        assert 0.15 < time.monotonic() - start < 2
        both.server.wait("SELECT count(*)::int FROM pg_stat_activity "
                         "WHERE wait_event_type = 'Lock' AND datname = %s",
                         0, args=[both.server.name])
    assert both.pq.ask("calls", limit=1)[0] == 0


def test_no_database(tmp_path):
    with postgres.Server() as server:
        both = Both(server, tmp_path)
        try:
            no_database(both)
        finally:
            both.close()


def no_database(both):
    assert both.pq.ask("calls", limit=1)[0] == 0
    both.server.stop()
    rc, text = both.pq.ask("calls", limit=1)
    assert rc == -1 and text.startswith(b'the database of "modelgw_cluster"')
    rc, text = both.pq.ask("change", kind=TOPUP, time=NOW, owner="a", id="x")
    assert rc == -1
    rc, text = both.pq.ask("clerk", num=1)
    assert rc == -1


TOPUP, ACCOUNT_NEW, ACCOUNT_SET = 0, 1, 2


def kinds():
    """The numbers of changes of keys, from the header."""
    import gateway
    with open(os.path.join(gateway.ROOT, "src/ledger/ngx_modelgw_ledger.h")) as f:
        text = re.search(r"NGX_MODELGW_CHANGE_TOPUP = 0.*?NGX_MODELGW_CHANGE_KINDS",
                         f.read(), re.S)[0]
    names = re.findall(r"NGX_MODELGW_CHANGE_(\w+)", text)
    return {n: i for i, n in enumerate(names)}


def test_changes(both):
    """A random sequence of changes: the same results, keys, accounts, and
    rows of the audit log."""
    k = kinds()
    r = random.Random(5)
    t = NOW
    results = set()
    new, sets, rotate, revoke = (k["KEY_" + n] for n in
                                 ("NEW", "SET", "ROTATE", "REVOKE"))
    for i in range(400):
        t += r.randrange(2, 1000)
        kind = r.choice((TOPUP, ACCOUNT_NEW, ACCOUNT_SET, new, new, sets, sets,
                         rotate, revoke))
        kw = {"kind": kind, "time": t, "owner": "acc%d" % r.randrange(6),
              "note": r.choice(("", "n", "ä'\"")),
              "sets": r.randrange(256), "closed": r.randrange(2)}
        if kind == TOPUP:
            kw.update(id="t%d" % r.randrange(40), correction=1,
                      amount=r.choice((-5, 10 ** 9, 10 ** 9, 2 ** 62)))
        elif kind in (ACCOUNT_NEW, ACCOUNT_SET):
            kw.update(amount=r.choice((0, 5 * 10 ** 9)), sets=r.randrange(4))
        else:
            kw.update(key="key%d" % r.randrange(5), group="g", amount=10 ** 9,
                      digest="d%d" % r.randrange(1000), rpm=r.randrange(9),
                      tpm=r.randrange(9), concurrency=r.randrange(9),
                      budget=r.choice((0, 10 ** 9)), window=r.randrange(3),
                      models=r.choice(("", "a,b")),
                      expires=r.choice((0, t // 1000 + r.randrange(-99, 9999))),
                      until=r.choice((0, t // 1000 + r.randrange(1, 99))),
                      if_match=r.choice((0, 0, 0, 1, 2, 3)))
            if kind == sets:
                kw["owner"] = ""
        rc, text = both.ask("change", **kw)
        assert rc == 0
        results.add((kind, text.split()[1]))
        if i % 7 == 0:          # the same again
            assert both.ask("change", tried=1, **kw)[0] == 0
    assert len(results) > 14, results

    both.ask("keys", now=t // 1000)
    for i in range(6):
        both.ask("note", account="acc%d" % i)
        both.ask("topups", account="acc%d" % i, limit=1000)
    for command in ("accounts", "closed"):
        one, two = both.sqlite.ask(command), both.pq.ask(command)
        assert sorted(one[1].splitlines()) == sorted(two[1].splitlines())
    one, two = (e.ask("actions", limit=1000000)[1] for e in (both.sqlite,
                                                            both.pq))
    assert one == two and one.count(b'"actor":"alice"') > 50
    assert both.server.query("SELECT * FROM modelgw.audit "
                             "WHERE difference <> 0") == []

    # the feed has each key and account as it is at last, whatever the steps

    version, accounts, rows = 0, {}, {}
    for _ in range(400):
        _, text = both.pq.ask("feed", version=version)
        if not text:
            break
        got = {}
        for line in text.decode().splitlines():
            v, rest = line.split(" ", 1)
            assert int(v) > version
            if rest.startswith("account "):
                _, name, closed = rest.split(" ")
                accounts[name] = closed
            else:
                digest, name = rest.split(" ")[:2]
                got.setdefault(name, {})[digest] = rest
            last = int(v)
        rows.update(got)
        version = last
    assert version == both.server.one("SELECT keys_version FROM modelgw.cluster")
    table = [re.sub(r" -?\d+\n", "", line) for line in
             both.pq.ask("table", time=0)[1].decode().splitlines()]
    fed = [row for key in rows.values() for row in key.values()]
    assert {f.split()[0] for f in fed} == {f.split()[0] for f in table}
    assert both.server.query("SELECT name FROM modelgw.accounts") \
        and set(accounts) == {a["name"] for a in both.server.query(
            "SELECT name FROM modelgw.accounts")}


def test_topup_of_two_nodes(both):
    """The id of a top-up is used once, whoever asks, and the lock of an
    account's row is waited for."""
    assert both.pq.ask("change", kind=ACCOUNT_NEW, time=NOW, owner="a")[0] == 0
    assert both.pq.ask("change", kind=ACCOUNT_NEW, time=NOW + 2, owner="b")[0] == 0
    with both.server.connect() as c:
        c.run("BEGIN")
        c.run("SET search_path = modelgw")
        c.run("INSERT INTO topups VALUES ('x', 'b', 5, 1, '')")
        c.run("UPDATE accounts SET free = free + 5 WHERE name = 'b'")
        line = b"change\tkind=0\ttime=%d\towner=a\tid=x\tamount=7\n" % (NOW + 4)
        both.pq.p.stdin.write(line)
        both.pq.p.stdin.flush()
        both.server.wait("SELECT count(*)::int FROM pg_stat_activity "
                         "WHERE wait_event_type = 'Lock'", 1)
        c.run("COMMIT")
    rc, length = both.pq.p.stdout.readline().split()
    text = both.pq.p.stdout.read(int(length) + 1)
    assert rc == b"0" and text.startswith(b"result 4 "), text
    assert both.server.query("SELECT * FROM modelgw.audit "
                             "WHERE difference <> 0") == []
