"""The clerk beside the exchanger: whatever it waits for, exchanges go on."""

import contextlib
import time

import pytest

import metrics
from cluster import Load, wait_for

DAY = 86400000

WAITS = """SELECT pid, query_start::text FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
        AND usename = 'modelgw' AND query LIKE %s"""

OLD = """INSERT INTO modelgw.calls (node, pos, id, time, ended, key, account,
        model, input, cache_read, cache_write, cache_write_1h, output,
        reasoning, cost, outcome, "end", status, request_id, first_byte, flags,
        price)
    SELECT 1000 + i %% 3, i, i, ended - 9, ended, 'k' || i %% 50, 'old-1', 'm',
        1, 0, 0, 0, 1, 0, 0, 'reported', 'complete', 200, '', NULL, 0, 0
    FROM (SELECT i, (extract(epoch FROM now()) * 1000)::bigint - 9 * %s
            + i::bigint * 4 * %s / %s AS ended
        FROM generate_series(1, %s) i) AS x"""


def old(c, n):
    """So many calls, of nine to five days ago, which cost nothing."""
    with c.server.connect() as s:
        s.query(OLD, DAY, DAY, n, n)


@pytest.fixture
def kept(cluster):
    """Nodes that keep calls for two days, started when the database has n
    others."""
    def make(calls, n=2):
        c = cluster(n=n, start=False)
        for node in c.nodes:
            node.http = node.http.replace("ledger.db;", "ledger.db keep=2d;")
            assert "keep=2d" in node.http
        old(c, calls)
        return c.start()
    return make


def exchanges(c):
    return [metrics.scrape(node).one("modelgw_cluster_exchange_seconds_count")
            for node in c.nodes]


def go_on(c, waiting):
    """Calls are lent to, charged and shipped while the clerk waits."""
    first = waiting()
    assert first
    before = exchanges(c)
    with Load(c, [c.nodes[0].bob], threads=2) as load:
        load.wait(20)
    assert set(load.statuses()) == {200}, load.refused()
    c.settle()
    assert all(b >= a + 3 for a, b in zip(before, exchanges(c)))
    assert waiting() == first, "it does not wait any more"


@contextlib.contextmanager
def marked(c):
    """The mark is locked, and the clerk waits for it: who waits."""
    with c.server.connect() as s:
        s.run("BEGIN")
        s.query("SELECT value FROM modelgw.marks FOR KEY SHARE")

        def waiting():
            return c.query(WAITS, "%marks%FOR UPDATE%")

        c.wait(waiting, "the clerk does not wait")
        yield waiting
        s.run("ROLLBACK")


def test_the_clerk_waits_for_the_mark(kept):
    """As long as an exchange might, of a node that stands still."""
    c = kept(0)
    with marked(c) as waiting:
        go_on(c, waiting)


def test_calls_are_rolled_up(kept):
    """For as long as that takes."""
    c = kept(0)
    c.expect("exited on signal 9")
    c.settle()
    with c.server.connect() as s:
        s.run("BEGIN")
        s.run("LOCK TABLE modelgw.days IN SHARE MODE")
        old(c, 2000)
        c.server.run("UPDATE modelgw.cluster SET clerk_until = 0")
        for node in c.nodes:            # the slow steps are due at once
            node.kill_workers()

        def waiting():
            return c.query(WAITS, "%INSERT INTO modelgw.days%")

        c.wait(waiting, "the clerk does not wait")
        go_on(c, waiting)
        s.run("ROLLBACK")
    rolled_up(c, 2000)


def rolled_up(c, n):
    c.wait(lambda: c.one("SELECT sum(calls)::int FROM modelgw.days") == n,
           "they are not rolled up")
    assert c.one("SELECT count(*)::int FROM modelgw.calls "
                 "WHERE account = 'old-1'") == 0
    assert c.query("SELECT 1 FROM modelgw.hours WHERE account = 'old-1'") == []
    assert c.query("SELECT 1 FROM modelgw.hours WHERE calls <= 0") == []


def test_many_old_calls(kept):
    """They are rolled up under load, and all is counted."""
    c = kept(20000)
    with Load(c, [c.nodes[0].bob], threads=2) as load:
        rolled_up(c, 20000)
    assert set(load.statuses()) == {200}, load.refused()
    c.settle()


def test_it_ends_with_its_worker(kept):
    """And is taken over."""
    c = kept(0, n=1)
    node = c.nodes[0]
    with marked(c) as waiting:
        first = waiting()
        node.reload()
        begin = time.monotonic()
        wait_for(lambda: waiting() not in ([], first), "it is not taken over")
        assert time.monotonic() - begin < 25, "the old one was waited for"
