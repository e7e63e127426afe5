"""The clerk: hours, days, what is deleted, and nodes that are lost."""

import random
import threading
import time

import pytest

from test_engines import (Both, CALLS, DAY, HOUR, SUMS, Engine, insert_pq)

NODES = ("num", "journal", "name", "version", "epoch", "process", "pos",
         "joined", "seen", "state")


@pytest.fixture
def server(database):
    return database


@pytest.fixture
def both(server, tmp_path):
    server.run("GRANT DELETE ON modelgw.accounts TO modelgw")
    b = Both(server, tmp_path)
    yield b
    b.close()


def now(server):
    return server.one("SELECT (extract(epoch FROM now()) * 1000)::bigint")


def audit(server):
    assert server.query("SELECT * FROM modelgw.audit "
                        "WHERE difference <> 0") == []
    m = server.one("SELECT value FROM modelgw.marks WHERE name = 'hours'")
    assert server.query("""SELECT * FROM (
        SELECT hour, account, key, model, sum(n) AS n, sum(c) AS c, sum(e) AS e,
            sum(f) AS f FROM (
            SELECT hour, account, key, model, calls AS n, cost AS c,
                errors AS e, first_byte AS f FROM modelgw.hours
            UNION ALL SELECT ended / 3600000, account, key, model, -1, -cost,
                -(status NOT BETWEEN 200 AND 299)::int,
                -coalesce(first_byte, 0)
            FROM modelgw.calls WHERE ended < %s) AS x
        GROUP BY 1, 2, 3, 4) AS y
        WHERE n <> 0 OR c <> 0 OR e <> 0 OR f <> 0""", m) == []
    assert server.query("SELECT 1 FROM modelgw.hours WHERE calls = 0") == []


def make_calls(server, n, spread, seed=1, pos=0):
    r = random.Random(seed)
    end = now(server) - 10000
    rows = []
    for i in range(n):
        ended = end - r.randrange(spread)
        rows.append((i % 3 + 1, pos + i, i, ended - r.randrange(9999), ended,
                     "k%d" % r.randrange(4), "a%d" % r.randrange(3), "m",
                     *[r.randrange(1000) for _ in range(6)], r.randrange(10 ** 9),
                     "reported", "complete", r.choice((200, 500)), "",
                     r.choice((None, 7)), 0, 0))
    with server.connect() as c:
        insert_pq(c, "calls", ("node", "pos") + CALLS, rows)
    return rows


def accounts(server, rows):
    """As their nodes have been lent what they spent."""
    spent = {}
    for row in rows:
        spent[row[0], row[6]] = spent.get((row[0], row[6]), 0) + row[14]
    with server.connect() as c:
        names = sorted({a for _, a in spent})
        insert_pq(c, "accounts", ("name", "free", "opened"),
                  [(a, 0, 1) for a in names])
        insert_pq(c, "leases", ("node", "account", "granted", "spent"),
                  [(n, a, s, s) for (n, a), s in spent.items()])
        insert_pq(c, "topups", ("id", "account", "amount", "time"), [
            ("t" + a, a, sum(s for (_, b), s in spent.items() if a == b), 1)
            for a in names])


def test_hours_and_days(both):
    server = both.server
    rows = make_calls(server, 4000, 12 * DAY)
    accounts(server, rows)
    usage = {"by": "mo", "now": now(server) // DAY * DAY, "limit": 1000}
    by_day = {"by": "da", "now": usage["now"], "limit": 1000}
    before = both.pq.ask("usage", **usage), both.pq.ask("usage", **by_day)

    rc, text = both.pq.ask("clerk", num=1, keep=0, lost=0)
    assert rc == 0, text
    audit(server)
    assert server.one("SELECT sum(calls)::int FROM modelgw.hours") == 4000
    assert server.one("SELECT value FROM modelgw.marks WHERE name = 'hours'") \
        > now(server) - 60000
    assert before == (both.pq.ask("usage", **usage),
                      both.pq.ask("usage", **by_day))

    rc, text = both.pq.ask("clerk", num=1, keep=5 * 86400, lost=0)
    assert rc == 0, text
    audit(server)
    kept = (now(server) // 1000 - 5 * 86400) // 86400 * DAY
    assert server.one("SELECT count(*)::int FROM modelgw.calls") == sum(
        row[4] >= kept for row in rows) < 4000
    assert server.one("SELECT min(ended) >= %s FROM modelgw.calls", kept)
    assert server.one("SELECT min(hour) * 3600000 >= %s FROM modelgw.hours", kept)
    assert before == (both.pq.ask("usage", **usage),
                      both.pq.ask("usage", **by_day))

    # late calls, which an exchange adds to hours, are rolled up, too

    assert both.pq.ask("clerk", num=1, keep=86400, lost=0)[0] == 0
    audit(server)
    assert before == (both.pq.ask("usage", **usage),
                      both.pq.ask("usage", **by_day))


def test_many_steps(both):
    server = both.server
    rows = make_calls(server, 12000, HOUR)
    server.run("UPDATE modelgw.calls SET ended = %s", now(server) - 20000)
    rows += make_calls(server, 12000, HOUR, 2, 12000)
    accounts(server, rows)
    _, text = both.pq.ask("clerk", num=1)
    assert text.split().count(b"1") > 2, text
    audit(server)
    assert server.one("SELECT sum(calls)::int FROM modelgw.hours") == 24000


def test_two_clerks(both, server, tmp_path):
    """Both at once, while nodes ship calls, those late, too: nothing is counted
    twice or not at all."""
    rows = make_calls(server, 6000, 12 * DAY)
    accounts(server, rows)
    password = str(tmp_path / "password")
    engines = [Engine("pq", server.conninfo(), password) for _ in range(2)]
    stop, errors = threading.Event(), []

    def clerk(e, num):
        while not stop.is_set():
            server.run("UPDATE modelgw.cluster SET clerk_until = 0")
            rc, text = e.ask("clerk", num=num, keep=5 * 86400)
            if rc:
                errors.append(text)

    def node(num):
        r = random.Random(num)
        pos = 10 ** 6
        while not stop.is_set():
            pos += 1
            with server.connect() as c:
                c.run("BEGIN")
                ended = now(server) - 10000 - r.randrange(2 * DAY)
                insert_pq(c, "calls", ("node", "pos") + CALLS, [
                    (num, pos, pos, ended, ended, "k1", "a1", "m",
                     *[1] * 6, 0, "reported", "complete", 200, "", None, 0, 0)])
                c.query("""WITH m AS (SELECT value FROM modelgw.marks
                        WHERE name = 'hours' FOR SHARE)
                    INSERT INTO modelgw.hours AS h (hour, account, key, model,
                        calls, errors, input, cache_read, cache_write,
                        cache_write_1h, output, reasoning, cost, duration,
                        first_bytes, first_byte)
                    SELECT c.ended / 3600000, c.account, c.key, c.model, 1, 0,
                        1, 1, 1, 1, 1, 1, 0, 0, 0, 0
                    FROM m JOIN modelgw.calls c ON c.ended < m.value
                    WHERE c.node = %s AND c.pos = %s
                    ON CONFLICT (hour, account, key, model) DO UPDATE SET
                        calls = h.calls + 1, input = h.input + 1,
                        cache_read = h.cache_read + 1,
                        cache_write = h.cache_write + 1,
                        cache_write_1h = h.cache_write_1h + 1,
                        output = h.output + 1, reasoning = h.reasoning + 1""",
                        num, pos)
                c.run("COMMIT")

    threads = [threading.Thread(target=clerk, args=(e, i + 1))
               for i, e in enumerate(engines)]
    threads += [threading.Thread(target=node, args=(i,)) for i in (1, 2)]
    for t in threads:
        t.start()
    time.sleep(5)
    stop.set()
    for t in threads:
        t.join()
    for e in engines:
        e.close()
    assert not errors, errors[:3]
    assert both.pq.ask("clerk", num=1, keep=5 * 86400)[0] == 0 \
        or both.pq.ask("clerk", num=2, keep=5 * 86400)[0] == 0
    audit(server)
    assert server.deadlocks() == 0


def test_who_is_the_clerk(both):
    server = both.server
    assert both.pq.ask("clerk", num=7)[0] == 0
    assert server.one("SELECT clerk FROM modelgw.cluster") == "7"
    assert both.pq.ask("clerk", num=8)[1].split() == [b"0"]
    assert server.one("SELECT clerk FROM modelgw.cluster") == "7"
    server.run("UPDATE modelgw.cluster SET clerk_until = %s", now(server) - 1)
    assert both.pq.ask("clerk", num=8)[0] == 0
    assert server.one("SELECT clerk FROM modelgw.cluster") == "8"
    assert 50000 < server.one("SELECT clerk_until FROM modelgw.cluster") \
        - now(server) <= 60000


def test_what_is_over(both):
    server = both.server
    t = now(server)
    with server.connect() as c:
        insert_pq(c, "recalls", ("account", "no", "until"),
                  [("a", 1, t - 61000), ("b", 1, t - 10000), ("c", 1, t + 900)])
        c.run("INSERT INTO modelgw.limits (key, kind, second, counts, total, lim)"
              " VALUES ('a', 0, %d, '{1}', 1, 1), ('b', 1, %d, '{1}', 1, 1)"
              % (t // 1000 - 86500, t // 1000 - 86300))
        insert_pq(c, "slots", ("key", "node", "slots", "lacks", "seen"),
                  [("a", 1, 1, 0, t - DAY - 9000), ("a", 2, 1, 0, t - DAY + 9000)])
        for key, ends in (("old", t - 8 * DAY - 9000), ("new", t - 8 * DAY + 9000),
                          ("total", 2 ** 63 - 1)):
            name = "#%s/day/1" % key
            insert_pq(c, "budgets", ("key", "starts", "ends", "name", "lim"),
                      [(key, ends - DAY, ends, name, 100)])
            insert_pq(c, "accounts", ("name", "free", "opened"), [(name, 70, 1)])
            insert_pq(c, "leases", ("node", "account", "granted"),
                      [(1, name, 20), (2, name, 10)])
        insert_pq(c, "accounts", ("name", "free", "opened"), [("old", 0, 1)])
        insert_pq(c, "nodes", NODES, [(i, "j%d" % i, "n", 1, 0, "p", 0, 1, t, 0)
                                      for i in (1, 2)])
    audit(server)
    rc, text = both.pq.ask("clerk", num=1)
    assert rc == 0, text
    audit(server)

    def names(table, column):
        return {r[column] for r in server.query(
            "SELECT %s FROM modelgw.%s" % (column, table))}

    assert names("recalls", "account") == {"b", "c"}
    assert names("limits", "key") == {"b"}
    assert names("slots", "node") == {2}
    assert names("budgets", "key") == {"new", "total"}
    assert names("accounts", "name") == {"#new/day/1", "#total/day/1", "old"}
    assert names("leases", "account") == {"#new/day/1", "#total/day/1"}


def test_nodes_stay(both):
    """One that has left long ago may come back with a journal that has calls of
    its last days: by its row they are known to be charged."""
    server = both.server
    t = now(server)
    with server.connect() as c:
        insert_pq(c, "nodes", NODES, [
            (1, "j1", "clerk", 1, 0, "p", 0, 1, t, 0),
            (2, "j2", "left", 1, 5, "p", 9, 1, t - 400 * DAY, 1)])
        insert_pq(c, "accounts", ("name", "free", "opened"), [("a", 0, 1)])
        insert_pq(c, "leases", ("node", "account", "granted", "spent"),
                  [(2, "a", 0, 0)])
    assert both.pq.ask("clerk", num=1, keep=86400, lost=600000, since=1)[0] == 0
    assert server.query("SELECT num, state, pos FROM modelgw.nodes "
                        "ORDER BY num") == [
        {"num": 1, "state": 0, "pos": 0}, {"num": 2, "state": 1, "pos": 9}]
    assert server.one("SELECT count(*)::int FROM modelgw.leases") == 1


def test_lost(both):
    """What a lost node has left is taken back; a node that is exchanging, and
    the clerk, are none."""
    server = both.server
    t = now(server)
    with server.connect() as c:
        insert_pq(c, "nodes", NODES, [
            (1, "j1", "clerk", 1, 0, "p", 0, 1, t - 900000, 0),
            (2, "j2", "gone", 1, 5, "p", 9, 1, t - 700000, 0),
            (3, "j3", "alive", 1, 0, "p", 0, 1, t - 500000, 0),
            (4, "j4", "left", 1, 0, "p", 0, 1, t - 900000, 1),
            (5, "j5", "gone", 1, 0, "p", 0, 1, t - 700000, 0)])
        insert_pq(c, "accounts", ("name", "free", "opened"),
                  [("a", 10, 1), ("b", 20, 1), ("#k/day/1", 5, 1)])
        insert_pq(c, "budgets", ("key", "starts", "ends", "name", "lim"),
                  [("k", 0, t + DAY, "#k/day/1", 12)])
        insert_pq(c, "leases", ("node", "account", "granted", "returned",
                                "spent"),
                  [(2, "a", 100, 30, 0), (2, "b", 3, 0, 0), (3, "a", 7, 0, 0),
                   (2, "#k/day/1", 7, 0, 0), (5, "b", 9, 9, 0)])
        insert_pq(c, "topups", ("id", "account", "amount", "time"),
                  [("t", "a", 87, 1), ("u", "b", 23, 1)])
    audit(server)

    assert both.pq.ask("clerk", num=1, lost=600000)[0] == 0   # too early
    assert server.one("SELECT count(*)::int FROM modelgw.nodes "
                      "WHERE state = 2") == 0
    rc, text = both.pq.ask("clerk", num=1, lost=600000, since=1)
    assert rc == 0 and b"[2 73]" in text and b"[5 0]" in text, text
    audit(server)
    assert server.query("SELECT num, state, epoch, process FROM modelgw.nodes "
                        "WHERE state = 2 ORDER BY num") == [
        {"num": 2, "state": 2, "epoch": 6, "process": ""},
        {"num": 5, "state": 2, "epoch": 1, "process": ""}]
    assert {r["name"]: r["free"] for r in server.query(
        "SELECT name, free FROM modelgw.accounts")} == {
        "a": 80, "b": 23, "#k/day/1": 12}
    assert [(r["action"], r["target"]) for r in server.query(
        "SELECT action, target FROM modelgw.actions")] == [
        ("node.write_off", "gone")] * 2
    assert b'"amount":"0.000000073"' in both.pq.ask("actions", limit=9)[1]
