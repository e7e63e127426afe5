"""Journals that are not the ones that the database knows, and have gone on: an old
copy of the file, or a clone.  They admit nothing, say why, and none of their
calls is lost."""

import os
import shutil
import sqlite3
import subprocess

import pytest

from client import assert_flat
from cluster import call
from gateway import Key, ROOT, wait_dead
from test_shared_credit import BODY, HOLD

RICH = Key("rich", "b")
MANY = 4                # calls that a lease is enough for


@pytest.fixture
def rich(cluster):
    """A cluster with an account, of which the first node has a lease that is in
    its journal, and a copy of that journal."""
    def make(**kw):
        c = cluster(founding="0", keys=[RICH], check=False,
                    **{"n": 2, **kw})
        c.expect()
        c.put("rich", 10 ** 13)
        node = c.nodes[0]
        c.wait(lambda: call(c, 0, RICH, BODY).status == 200
               and left(node) >= MANY * HOLD, "the journal has no lease", 20)
        c.settle()
        copy = os.path.join(c.dir, "copy.db")
        with sqlite3.connect("file:%s?mode=ro" % node.path("ledger.db"),
                             uri=True) as a, sqlite3.connect(copy) as b:
            a.backup(b)
        a.close()
        b.close()
        return c, node, copy

    return make


def left(node):
    """What the journal has of the account's lease."""
    (row,) = node.journal.query("SELECT balance FROM accounts "
                                "WHERE name = 'rich'")
    return row["balance"]


def killed(node):
    pids = node.kill_all()
    node.process.wait()
    node.process = None
    wait_dead(pids)


def replace(node, copy):
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
        if os.path.exists(node.path(name)):
            os.unlink(node.path(name))
    shutil.copy(copy, node.path("ledger.db"))


def ctl(c, *args):
    return subprocess.run(
        [os.path.join(ROOT, "conf/modelgwctl"), *args,
         c.servers[0].owner()],
        capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("before, after", [(5, 2), (1, 4)])
def test_an_old_copy_that_has_gone_on(rich, before, after):
    """It ends before the position that the database has, or after that.  After
    "journal renew" all calls are charged, once."""
    c, node, copy = rich()
    num = node.num()
    for _ in range(before):
        assert call(c, 0, RICH, BODY).status == 200
    c.settle()
    charged = c.one("SELECT count(*) FROM modelgw.calls")

    killed(node)
    replace(node, copy)
    node.proxy.refuse()
    node.restart()
    made = sum(call(c, 0, RICH, BODY).status == 200 for _ in range(after))
    assert made > 0
    if before < after:
        assert made > before

    node.proxy.clear()
    node.wait_log("the journal was set back.*renew")
    assert_flat(call(c, 0, RICH, BODY).response, 503, "SERVICE_UNAVAILABLE")
    assert call(c, 1, RICH, BODY).status == 200

    # nor does it admit any after a start without the database

    c.wait(lambda: node.journal.query("SELECT exchanged FROM node")
           == [{"exchanged": 0}], "it is not written down")
    killed(node)
    node.proxy.refuse()
    node.restart()
    assert call(c, 0, RICH, BODY).status == 503
    node.stop()

    p = ctl(c, "cluster", "check", "--journal", node.path("ledger.db"))
    assert p.returncode == 1 and "of the journal: it" in p.stdout, p.stdout

    path = node.path("ledger.db")
    p = subprocess.run([os.path.join(ROOT, "conf/modelgwctl"), "journal",
                        "renew", path], capture_output=True, text=True)
    assert p.returncode == 1 and "CONNINFO" in p.stderr, p.stderr
    p = ctl(c, "journal", "renew", path)
    assert p.returncode == 0 and "%d calls" % made in p.stderr, p.stderr
    assert os.path.exists(path + ".old")
    assert sorted(node.journal.calls()) \
        == list(range(1, node.journal.end() + 1))

    node.proxy.clear()
    node.restart()
    c.wait_joined()
    c.wait(lambda: call(c, 0, RICH, BODY).status == 200, "it does not work")
    c.settle()
    assert node.num() != num
    assert c.one("SELECT count(*) FROM modelgw.calls") \
        == charged + made + 1 + 1
    assert c.one("SELECT count(DISTINCT id) FROM modelgw.calls") \
        == charged + made + 1 + 1
    assert c.audit() == []
    assert node.journal.faults() == []

    # one that begins without calls is not behind

    node.stop()
    os.unlink(path + ".old")
    p = ctl(c, "journal", "renew", path)
    assert p.returncode == 0 and " 0 calls" in p.stderr, p.stderr
    assert node.journal.end() == 0


def test_a_clone_goes_on(rich):
    """The clone has taken over, and ships calls: the first one is told so, also
    after a start, and keeps its own calls."""
    c, node, copy = rich(n=1)
    assert call(c, 0, RICH, BODY).status == 200
    c.settle()
    charged = c.one("SELECT count(*) FROM modelgw.calls")
    node.proxy.refuse()
    made = sum(call(c, 0, RICH, BODY).status == 200 for _ in range(2))
    assert made > 0
    c.wait(lambda: node.journal.end() == charged + made, "not settled")
    killed(node)

    clone = c.add("clone")
    os.makedirs(clone.dir)
    for suffix in "", "-wal":
        shutil.copy(node.path("ledger.db" + suffix),
                    clone.path("ledger.db" + suffix))
    with sqlite3.connect(clone.path("ledger.db")) as db:
        db.execute("DELETE FROM outbox WHERE pos > ?", (charged,))
        db.execute("DELETE FROM lowest")
    db.close()
    clone.start()
    c.wait(lambda: call(c, 1, RICH, BODY).status == 200, "the clone fails")
    c.settle()

    node.proxy.clear()
    node.restart()
    node.wait_log("the journal was set back and has gone on")
    assert call(c, 0, RICH, BODY).status == 503
    assert call(c, 1, RICH, BODY).status == 200
    node.stop()
    p = ctl(c, "journal", "renew", node.path("ledger.db"))
    assert p.returncode == 0, p.stderr
    node.restart()
    c.wait_joined()
    c.settle()
    assert c.one("SELECT count(*) FROM modelgw.calls") == charged + made + 2
    assert c.audit() == []


def test_a_start_after_offline(rich):
    """Without the database calls are admitted until so long after the last
    exchange as the journal knows it, and not from the first moment on after
    that."""
    c, node, _ = rich(n=1, options="offline=3s")
    c.wait(lambda: node.journal.query(
        "SELECT exchanged FROM node")[0]["exchanged"] > 0, "not written")
    killed(node)
    with sqlite3.connect(node.path("ledger.db")) as db:
        db.execute("UPDATE node SET exchanged = exchanged - 3600000")
    db.close()
    node.proxy.refuse()
    node.restart()
    assert_flat(call(c, 0, RICH, BODY).response, 503, "SERVICE_UNAVAILABLE")
    node.wait_log("was not reached for")
    node.proxy.clear()
    c.wait_joined()
