"""What a node must not work with: it is told by name in the log, in /status and
by "modelgwctl cluster check", admits nothing, and loses nothing.  Versions are
in test_versions.py; what becomes of the books is in test_faults.py, too."""

import os
import shutil
import sqlite3
import subprocess

import pytest

import gateway as lib
import postgres
from client import assert_flat
from cluster import call
from gateway import Key
from test_shared_credit import BODY

CTL = os.path.join(lib.ROOT, "conf/modelgwctl")
RICH = Key("rich", "b")


def check(node, *args, conninfo=None, password=None, journal=True, **kw):
    """cluster check, as the user of the node's workers: it asks nobody."""
    return subprocess.run(
        [CTL, "cluster", "check", conninfo or node.cluster.servers[0]
         .conninfo(), "--password", password or node.path("db.password")]
        + (["--journal", node.path("ledger.db")] if journal else [])
        + list(args), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=60, **kw)


def failed(p, *lines):
    assert p.returncode == 1, p
    for line in lines:
        assert "FAILED  " + line in p.stdout, p


def fine(p):
    assert p.returncode == 0 and "FAILED" not in p.stdout, p


def refused(node, *words):
    """In the log, by /status, and to clients."""
    c = node.cluster
    c.wait(lambda: node.get("/admin/status").json()["cluster"]["state"]
           == "refused", lambda: node.read("error.log")[-1000:])
    cluster = node.get("/admin/status").json()["cluster"]
    for word in words:
        assert word in cluster["reason"], cluster
    node.wait_log("must not work with the cluster's database, calls are "
                  "refused: ")
    assert cluster["reason"][:200] in node.read("error.log")
    assert_flat(call(c, c.nodes.index(node), RICH, BODY).response, 503,
                "SERVICE_UNAVAILABLE")
    r = node.get("/admin/nodes")
    assert r.status == 503 and words[0] in r.json()["message"], r


@pytest.fixture
def rich(cluster):
    def make(**kw):
        c = cluster(founding="0", keys=[RICH], **kw)
        c.expect("cluster|database|journal|permission|rights")
        c.put("rich", 10 ** 13)
        for n in range(len(c.nodes)):
            assert call(c, n, RICH, BODY).status == 200
        c.settle()
        return c

    return make


@pytest.mark.parametrize("taken, given, words, line", [
    ("REVOKE INSERT ON modelgw.calls FROM modelgw",
     "GRANT INSERT ON modelgw.calls TO modelgw",
     "it lacks INSERT on modelgw.calls", "rights: calls needs INSERT"),
    ("REVOKE SELECT ON modelgw.cluster FROM modelgw",
     "GRANT SELECT ON modelgw.cluster TO modelgw",
     "too few rights", "rights: ERROR:  permission denied"),
    ("REVOKE USAGE ON SCHEMA modelgw FROM modelgw",
     "GRANT USAGE ON SCHEMA modelgw TO modelgw",
     "too few rights", "rights: ERROR:  permission denied"),
    ("ALTER SCHEMA modelgw RENAME TO other",
     "ALTER SCHEMA other RENAME TO modelgw",
     "no tables of a cluster", "schema: ")])
def test_while_it_runs(rich, taken, given, words, line):
    """What is in flight is charged when the role has its rights again."""
    c = rich(n=2)
    node = c.nodes[0]
    fine(check(node))
    c.server.run(taken)
    for n in (0, 1):
        c.wait(lambda: call(c, n, RICH, BODY).status == 503, "it goes on")
        refused(c.nodes[n], words)
    failed(check(node), line)
    c.server.run(given)
    c.wait_joined()
    for n in (0, 1):
        assert call(c, n, RICH, BODY).status == 200
    c.settle()
    assert c.differences() == []
    fine(check(node))


def test_another_cluster(rich, server):
    c = rich(n=1)
    node = c.nodes[0]
    server.replace(c.server)
    node.proxy.retarget(server.socket())
    refused(node, "the database is of another cluster")
    failed(check(node, conninfo=server.conninfo()), "cluster of the journal")
    node.proxy.retarget(c.servers[0].socket())
    c.wait_joined()
    c.settle()
    assert c.differences() == []


def copied(node, to):
    with sqlite3.connect("file:%s?mode=ro" % node.path("ledger.db"),
                         uri=True) as source, sqlite3.connect(to) as target:
        source.backup(target)
    source.close()
    target.close()


def test_an_old_copy_of_the_journal(rich):
    """Also before nginx is started with it."""
    c = rich(n=2)
    node = c.nodes[0]
    old, now = os.path.join(c.dir, "old.db"), os.path.join(c.dir, "now.db")
    copied(node, old)
    for _ in range(3):
        assert call(c, 0, RICH, BODY).status == 200
    c.settle()
    node.stop()
    shutil.move(node.path("ledger.db"), now)
    for end in ("-wal", "-shm"):
        if os.path.exists(node.path("ledger.db" + end)):
            os.unlink(node.path("ledger.db" + end))
    shutil.copy(old, node.path("ledger.db"))
    failed(check(node), "position of the journal")
    node.restart()
    refused(node, "the journal was set back")
    failed(check(node), "position of the journal")
    node.stop()
    for end in ("", "-wal", "-shm"):
        if os.path.exists(node.path("ledger.db" + end)):
            os.unlink(node.path("ledger.db" + end))
    shutil.move(now, node.path("ledger.db"))
    fine(check(node))
    node.restart()
    c.wait_joined()
    assert call(c, 0, RICH, BODY).status == 200
    c.settle()
    assert c.differences() == []


def test_a_copy_of_the_journal(rich):
    """It is not the file that the node works with."""
    c = rich(n=1)
    node = c.nodes[0]
    clone = c.add("clone")
    os.makedirs(clone.dir)
    copied(node, clone.path("ledger.db"))
    fine(check(node))
    db = sqlite3.connect(clone.path("ledger.db"))
    db.execute("UPDATE node SET exchanged = exchanged - 61000")
    db.commit()
    db.close()
    failed(check(clone, password=node.path("db.password")),
           "copies of the journal: its node works with the database, but not "
           "with this file")
    c.nodes.remove(clone)
    for proxy in clone.proxies:
        proxy.remove()


def test_the_password(rich):
    """Its file is read at each connection."""
    c = rich(n=1)
    node = c.nodes[0]
    path = node.path("db.password")

    def away(reason, words, **kw):
        for connection in node.proxies:
            connection.cut()
        c.wait(lambda: reason in (node.get("/admin/status").json()["cluster"]
                                  ["reason"] or ""),
               lambda: node.get("/admin/status").json())
        p = check(node, **kw)
        assert p.returncode == 1 and words in p.stdout + p.stderr, p

    os.rename(path, path + ".away")
    away("cannot be read", "cannot be read")
    node.wait_log("cluster cannot be reached, calls go on with what is lent: "
                  ".*password.* cannot be read")
    with open(path, "w") as f:
        f.write("wrong\n")
    os.chmod(path, 0o600)
    away("password authentication failed",
         "FAILED  connection: ")
    os.rename(path + ".away", path)
    c.wait_joined()
    assert node.get("/admin/status").json()["cluster"]["reason"] is None
    fine(check(node))


def test_no_password_is_asked_for(rich):
    """Not even of a terminal."""
    c = rich(n=1)
    p = subprocess.run(
        ["script", "-qec", "%s cluster check '%s'" % (
            CTL, c.servers[0].conninfo()), "/dev/null"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        env={k: v for k, v in os.environ.items() if not k.startswith("PG")})
    assert p.returncode == 1 and "no password supplied" in p.stdout, p


@pytest.fixture
def secure():
    with postgres.Server(tls=True) as s:
        yield s


def test_certificates(secure, cluster):
    """verify-full, of another authority or name: the line says what is wrong,
    and no password is sent."""
    c = cluster(servers=[secure], n=1, conninfo=secure.tls_conninfo())
    fine(check(c.nodes[0], conninfo=secure.tls_conninfo()))
    other = postgres.Authority(secure.top, "other")
    c.expect()
    failed(check(c.nodes[0], conninfo=secure.tls_conninfo().replace(
        "verify-full", "require")), "TLS: nginx refuses this conninfo")
    for text, words in (
            (secure.tls_conninfo(ca=other.ca), "certificate verify failed"),
            (secure.tls_conninfo(host="other.test"),
             "does not match host name"),
            (secure.tls_conninfo(ca=os.path.join(secure.top, "none.pem")),
             "none.pem")):
        p = check(c.nodes[0], conninfo=text)
        failed(p, "connection: ")
        assert words in p.stdout, p
        bad = cluster(start=False, servers=[secure], n=1, conninfo=text,
                      check=False, options="wait=1s")
        bad.expect()
        node = bad.nodes[0]
        node.start()
        node.wait_log("cannot be reached, calls are refused until it is: .*"
                      + words)
        r = node.get("/admin/status").json()["cluster"]
        assert r["state"] == "new" and words in r["reason"], r
        assert call(bad, 0, node.bob).status == 503
        bad.remove()


def test_a_standby(server, cluster):
    """A server that takes no changes is not worked with, and told."""
    standby = server.standby()
    try:
        server.caught_up(standby)
        c = cluster(servers=[server], n=1)
        node = c.nodes[0]
        c.expect()
        failed(check(node, conninfo=standby.conninfo(), journal=False),
               "writable: this server is a standby")
        both = "host=%s,%s dbname=%s user=%s target_session_attrs=%%s" % (
            standby.top, server.top, server.name, postgres.ROLE)
        fine(check(node, conninfo=both % "read-write"))
        failed(check(node, conninfo=standby.conninfo()
                     + " target_session_attrs=read-write"),
               "connection: ")
    finally:
        standby.remove()
