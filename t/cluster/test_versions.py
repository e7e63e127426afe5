"""Nodes of two versions side by side, while a cluster is upgraded, and nodes
that do not fit the tables: they say so, admit nothing, and lose nothing.

There is one version of the tables so far.  The next one is made here: what it
adds, the modelgwctl that knows it, and build/next.so, the module that does.
"""

import contextlib
import os
import shutil
import subprocess
import threading

import pytest

import gateway as lib
import postgres
from client import assert_flat
from cluster import Load, call
from gateway import Key
from test_shared_credit import BODY
from test_shared_keys import made
from upstream import both, raw

NEXT = os.environ.get("MODELGW_MODULE_NEXT",
                      os.path.join(lib.ROOT, "build/next.so"))
RICH = Key("rich", "b")
OLD = "this nginx knows version 1 of the database's tables, and 2 is the oldest"
NEW = "the database's tables are of version 1, this nginx needs 2"

ADDED = """
ALTER TABLE modelgw.calls ADD region TEXT NOT NULL DEFAULT '';
ALTER TABLE modelgw.keys ADD region TEXT NOT NULL DEFAULT '';
ALTER TABLE modelgw.leases ADD region BIGINT NOT NULL DEFAULT 0;
CREATE TABLE modelgw.regions (name TEXT NOT NULL PRIMARY KEY);
CREATE INDEX calls_region ON modelgw.calls (region);
"""

pytestmark = pytest.mark.skipif(
    lib.ASAN or not lib.MODULE or not os.path.exists(NEXT)
    or os.path.dirname(lib.MODULE) != os.path.dirname(NEXT),
    reason="the module is built for the packaged nginx only")


@contextlib.contextmanager
def upgraded():
    """Nodes that are started are of the next version."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lib, "MODULE", NEXT)
        yield


@pytest.fixture
def tools(tmp_path):
    """Of both versions: modelgwctl of a server, as a function."""
    paths = {1: os.path.join(lib.ROOT, "conf"), 2: str(tmp_path / "conf")}
    shutil.copytree(paths[1], paths[2])
    with open(os.path.join(paths[2], "cluster/schema-2.sql"), "w") as f:
        f.write(ADDED)
    path = os.path.join(paths[2], "modelgwctl-cluster")
    with open(path) as f:
        text = f.read()
    assert text.count("\nVERSION=1 ") == 1
    with open(path, "w") as f:
        f.write(text.replace("\nVERSION=1 ", "\nVERSION=2 "))

    def run(version, *args):
        return subprocess.run(
            [os.path.join(paths[version], "modelgwctl")] + list(args),
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120)

    return run


def upgrade(tools, c, *args):
    return tools(2, "cluster", "upgrade", c.servers[0].owner(), "--role",
                 postgres.ROLE, *args)


def upgrade_ok(tools, c, *args):
    p = upgrade(tools, c, *args)
    assert p.returncode == 0, p
    return p.stderr


def check(tools, version, node):
    """cluster check, as the user of the node's workers."""
    return tools(version, "cluster", "check", node.cluster.servers[0]
                 .conninfo(), "--password", node.path("db.password"),
                 "--journal", node.path("ledger.db"))


def rich(cluster, **kw):
    c = cluster(founding="0", keys=[RICH], **kw)
    c.expect()
    c.put("rich", 10 ** 13)
    return c


def replaced(node):
    """The node is stopped, and started in the next version."""
    node.stop()
    with upgraded():
        node.restart()
    node.cluster.wait(node.joined, lambda: node.read("error.log")[-1000:])
    assert node.row()["version"] == 2


def says(tools, node, text):
    """Wherever an operator looks, and clients get 503."""
    c = node.cluster
    node.wait_log("must not work with the cluster's database, calls are "
                  "refused: " + text)
    c.wait(lambda: call(c, c.nodes.index(node), RICH, BODY).status == 503,
           "it goes on")
    assert_flat(call(c, c.nodes.index(node), RICH, BODY).response, 503,
                "SERVICE_UNAVAILABLE")
    assert node.get("/ready").status == 503
    r = node.get("/admin/status")
    assert r.status == 503 and r.json()["cluster"]["state"] == "refused"
    assert r.json()["cluster"]["reason"].startswith(text), r.json()
    for target in ("/admin/nodes", "/admin/accounts", "/admin/calls"):
        r = node.get(target)
        assert r.status == 503 and text in r.json()["message"], r
    assert node.get("/admin/calls?local=1").status == 200
    r = node.post("/admin/accounts/rich/topups", {"id": "t", "amount": "1"})
    assert r.status == 503 and text in r.json()["message"], r
    p = tools(1, "--url", "http://127.0.0.1:%d/admin" % node.port, "nodes")
    assert p.returncode == 1 and text in p.stderr, p
    p = tools(1, "--url", "http://127.0.0.1:%d/admin" % node.port, "status")
    assert p.returncode == 1 and text in p.stdout, p


def test_upgrade_under_load(cluster, tools):
    """As docs/cluster.md has it: the tables, then node after node, then the end
    of the old version.  No call fails, and the books are right."""
    c = rich(cluster, n=3, locations="location = /ready { modelgw_ready; }")
    names = [node.name for node in c.nodes]
    with Load(c, [RICH], 6, body=BODY) as load:
        load.wait(20)
        upgrade_ok(tools, c)
        load.wait(20)
        assert c.query("SELECT version, oldest FROM modelgw.cluster") == [
            {"version": 2, "oldest": 1}]
        for i, node in enumerate(c.nodes):
            p = upgrade(tools, c, "--finish")
            assert p.returncode == 1 and ", ".join(names[i:]) in p.stderr, p
            load.nodes = [n for n in range(3) if n != i]
            load.wait(12)               # none is on its way to it
            replaced(node)
            load.nodes = list(range(3))
            load.wait(20, nodes=[i])
            other = c.nodes[(i + 1) % 3]
            for maker, user in ((node, other), (other, node)):
                key = made(maker, "%s-%s" % (i, maker.name), account="rich")
                assert user.chat(None, key).status == 200
        assert "takes no older nodes; 0 nodes" in upgrade_ok(tools, c,
                                                             "--finish")
        load.wait(30)
    assert set(load.statuses()) == {200}, load.refused()
    assert c.one("SELECT oldest FROM modelgw.cluster") == 2
    c.settle()
    assert c.differences() == []


def slow(c, node):
    """A call that is in flight; what it returns ends it."""
    gate = threading.Event()
    c.b.script(raw(gate, both))
    before = len(c.b.requests)
    thread = threading.Thread(target=node.chat, args=(BODY, RICH))
    thread.start()
    c.wait(lambda: len(c.b.requests) > before, "it is not sent")

    def end():
        gate.set()
        thread.join()

    return end


@pytest.mark.parametrize("way", ["set back", "upgraded"])
def test_a_node_that_is_too_old(cluster, tools, way):
    """The old version is ended by mistake: what a node of it has in its journal
    comes to the database when that is taken back, or by its new version."""
    c = rich(cluster, n=2, locations="location = /ready { modelgw_ready; }")
    old, new = c.nodes
    upgrade_ok(tools, c)
    replaced(new)
    for n in (0, 1):
        assert call(c, n, RICH, BODY).status == 200
    end = slow(c, old)
    c.server.run("UPDATE modelgw.cluster SET oldest = 2")
    says(tools, old, OLD)
    end()
    c.wait(lambda: old.journal.end() > old.row()["pos"], "it is not settled")
    p = check(tools, 1, old)
    assert p.returncode == 1, p
    assert "FAILED  version: this version knows version 1 of the database's " \
           "tables, and 2 is the oldest that may be used" in p.stdout, p
    p = check(tools, 2, new)
    assert p.returncode == 0, p
    assert call(c, 1, RICH, BODY).status == 200
    if way == "upgraded":
        replaced(old)
    else:
        c.server.run("UPDATE modelgw.cluster SET oldest = 1")
        c.wait_joined()
        assert old.get("/admin/status").json()["cluster"]["reason"] is None
    assert call(c, 0, RICH, BODY).status == 200
    c.settle()
    assert c.differences() == []


def test_tables_that_are_too_old(cluster, tools):
    """A node is upgraded before the database."""
    c = rich(cluster, n=2, locations="location = /ready { modelgw_ready; }")
    early, old = c.nodes
    early.expect("must not work")
    assert call(c, 0, RICH, BODY).status == 200
    early.stop()
    with upgraded():
        early.restart()
    says(tools, early, NEW)
    p = check(tools, 2, early)
    assert p.returncode == 1, p
    assert "FAILED  version: the database's tables are of version 1, this " \
           "version needs 2; run \"modelgwctl cluster upgrade\"" in p.stdout, p
    assert call(c, 1, RICH, BODY).status == 200
    upgrade_ok(tools, c)
    c.wait_joined()
    assert early.row()["version"] == 2
    for n in (0, 1):
        assert call(c, n, RICH, BODY).status == 200
    c.settle()
    assert c.differences() == []


def test_an_upgrade_does_not_wait_for_long(cluster, tools):
    """Nodes would wait behind it."""
    c = rich(cluster, n=1)
    with c.server.connect() as reader:
        reader.run("BEGIN")
        reader.run("SELECT count(*) FROM modelgw.calls")
        p = upgrade(tools, c)
        assert p.returncode == 1 and "nothing was changed; if the tables " \
            "were in use, try again" in p.stderr, p
        assert c.one("SELECT version FROM modelgw.cluster") == 1
    upgrade_ok(tools, c)
    assert call(c, 0, RICH, BODY).status == 200
