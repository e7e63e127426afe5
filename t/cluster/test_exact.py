"""What could be charged twice or not at all, given twice or lost: by clocks that
are set back, locks that are waited for, and databases that have lost a tail."""

import threading

import pytest

from cluster import call
from gateway import Key
from test_shared_credit import BODY, HOLD

RICH = Key("rich", "b")
OTHER = Key("other", "b")

# what "hours" has, and what calls have that ended before its mark

HOURS = """SELECT * FROM (SELECT account, sum(cost)::bigint AS difference FROM (
        SELECT account, cost FROM modelgw.hours
        UNION ALL SELECT account, -cost FROM modelgw.calls WHERE ended <
            (SELECT value FROM modelgw.marks WHERE name = 'hours')) AS x
    GROUP BY account) AS y WHERE difference <> 0"""


@pytest.fixture
def rich(cluster):
    def make(**kw):
        c = cluster(**{"founding": "0", "keys": [RICH, OTHER], "n": 2, **kw})
        c.expect()
        c.put("rich", 10 ** 13)
        c.put("other", 10 ** 13)
        return c

    return make


def test_a_clock_that_was_set_back(rich):
    """An operator's change is made, though an action of the same millisecond
    exists, of before the clock was set back."""
    c = rich(n=1)
    node = c.nodes[0]
    before = c.balance_of("rich")
    c.server.run("INSERT INTO modelgw.actions SELECT %s, i, i, 'me', '', "
                 "'topup', 'rich', '{}', '{}' FROM "
                 "generate_series(%s::bigint, %s::bigint) AS i",
                 node.num(), c.now() - 1000, c.now() + 60000)
    r = node.post("/admin/accounts/rich/topups", {"id": "t", "amount": "1.5"})
    assert r.status == 201, r
    assert c.balance_of("rich") == before + 1500000000
    r = node.post("/admin/keys", {"id": "late", "group": "b"})
    assert r.status == 201, r
    node.hidden.append(r.json()["key"])
    assert c.one("SELECT count(*) FROM modelgw.keys WHERE id = 'late'") == 1
    assert c.one("SELECT count(*) FROM modelgw.actions WHERE id > %s",
                 c.now() + 59000) >= 2


def test_hours_of_a_write_off(rich):
    """A write-off that charges waits for its locks, so that the mark of hours
    passes the moment when it was begun: what it charges is in the hours all the
    same, when the mark has passed that."""
    c = rich()
    node, other = c.nodes
    num = node.num()
    assert call(c, 0, RICH, BODY).status == 200
    c.wait(lambda: c.one("SELECT count(*) FROM modelgw.calls") == 1
           and node.lease("rich")["rest"] > 0, "nothing is lent")
    node.kill_all()
    node.kill()
    c.server.run("UPDATE modelgw.cluster SET clerk_until = 0")
    answers = []

    def write_off():
        answers.append(other.post("/admin/nodes/%d/write-off" % num,
                                  {"charge": True}))

    def mark():
        assert c.query(HOURS) == []
        return c.one("SELECT value FROM modelgw.marks WHERE name = 'hours'")

    c.wait(lambda: mark() > c.one("SELECT max(ended) FROM modelgw.calls"),
           "the mark does not move")

    t = threading.Thread(target=write_off)
    with c.server.connect() as lock:
        lock.run("BEGIN")
        lock.query("SELECT 1 FROM modelgw.nodes WHERE num = %s FOR UPDATE",
                   num)
        t.start()
        c.wait(lambda: c.one("SELECT count(*) FROM pg_stat_activity WHERE "
                             "wait_event_type = 'Lock' AND query LIKE "
                             "'%%FROM nodes WHERE num%%'") == 1, "no lock")

        # no call has ended since: as a clerk would move it after 5 s, which is
        # nearly as long as a change may take

        c.server.run("UPDATE modelgw.marks SET value = %s "
                     "WHERE name = 'hours'", c.now())
        lock.run("COMMIT")
    t.join()
    assert answers[0].status == 200, answers[0]
    (row,) = c.query("SELECT * FROM modelgw.calls WHERE pos < 0")
    assert row["cost"] > 0
    c.wait(lambda: call(c, 1, OTHER, BODY).status == 200
           and mark() > row["ended"], "the mark does not move")
    assert mark() and c.audit() == []
    c.nodes.remove(node)


def test_a_lost_grant_is_written_down(rich):
    """A database that has lost what it has granted says so when a node joins:
    the journal knows it before the node admits a call, and is killed."""
    c = rich(n=1)
    node = c.nodes[0]
    c.wait(lambda: call(c, 0, RICH, BODY).status == 200
           and node.journal.query("SELECT granted FROM leases WHERE account = "
                                  "'rich' AND granted > %d" % (3 * HOLD)),
           "the journal has no lease")
    c.settle()
    node.proxy.refuse()
    node.proxy.cut()
    epoch = node.row()["epoch"]
    c.wait(lambda: not node.joined(), "it is still joined")
    c.server.run("UPDATE modelgw.leases SET granted = granted - %s "
                 "WHERE account = 'rich'", HOLD)
    c.server.run("UPDATE modelgw.accounts SET free = free + %s "
                 "WHERE name = 'rich'", HOLD)
    node.proxy.clear()
    c.wait(lambda: node.row()["epoch"] > epoch and node.joined(),
           "it does not join")
    node.kill_all()
    (row,) = node.journal.query("SELECT granted FROM leases "
                                "WHERE account = 'rich'")
    assert row["granted"] <= node.lease("rich")["granted"]
    node.kill()
    node.restart()
    c.wait_joined()


def test_an_account_that_was_closed_in_a_lost_tail(rich):
    """Its nodes say it again, and the log does; one that was opened since stays
    open."""
    c = rich()
    node, other = c.nodes
    first = c.one("SELECT keys_version FROM modelgw.cluster")
    for name in ("rich", "other"):
        r = node.request("PATCH", "/admin/accounts/" + name,
                         body={"state": "closed"})
        assert r.status == 200, r
    c.wait(lambda: all(call(c, n, key, BODY).status == 401
                       for n in (0, 1) for key in (RICH, OTHER)),
           "they are not closed")
    for n in c.nodes:
        n.proxy.refuse()
        n.proxy.cut()

    # a standby that did not have it: "other" is opened there by somebody

    c.server.run("UPDATE modelgw.accounts SET state = 'open', version = 0 "
                 "WHERE name = 'rich'")
    c.server.run("UPDATE modelgw.accounts SET state = 'open', version = %s "
                 "WHERE name = 'other'", first + 1)
    c.server.run("UPDATE modelgw.cluster SET keys_version = %s", first + 1)
    for n in c.nodes:
        n.proxy.clear()
    c.wait(lambda: c.query("SELECT name FROM modelgw.accounts "
                           "WHERE state = 'closed'") == [{"name": "rich"}],
           "it is not closed again")
    c.wait(lambda: all(call(c, n, OTHER, BODY).status == 200
                       and call(c, n, RICH, BODY).status == 401
                       for n in (0, 1)), "the nodes differ")
    c.wait(lambda: any("rich: these accounts are closed again"
                       in n.read("error.log") for n in c.nodes),
           "the log does not say so")
    assert c.one("SELECT count(*) FROM modelgw.actions "
                 "WHERE actor = 'failover'") == 1
