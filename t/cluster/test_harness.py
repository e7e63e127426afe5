"""What the tests of clusters stand on: servers, standbys, dumps, and a proxy
whose faults are where they are said to be."""

import contextlib
import os
import subprocess
import threading

import pytest

import postgres
from faultproxy import Proxy


@pytest.fixture(scope="module")
def shared():
    with postgres.Server() as s:
        yield s


@pytest.fixture
def proxy(shared):
    shared.run("DELETE FROM modelgw.marks WHERE name <> 'hours'")
    p = Proxy(shared.socket())
    yield p
    p.remove()


@pytest.fixture(scope="module")
def secure():
    """A server with TLS."""
    with postgres.Server(tls=True) as s:
        yield s


def psql(server, sql, conninfo, timeout=20):
    """As the nodes' role; None: it was cut off, or got no answer."""
    try:
        p = subprocess.run(
            ["psql", conninfo, "-qtA", "-v", "ON_ERROR_STOP=1"], input=sql,
            env=dict(os.environ, PGPASSWORD=server.password),
            capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None
    return p.stdout.strip() if p.returncode == 0 else None


def by(proxy, server, sql, **kw):
    return psql(server, sql, server.conninfo(proxy.directory, proxy.port),
                **kw)


def marks(server):
    return {row["name"] for row in server.query(
        "SELECT name FROM modelgw.marks")} - {"hours"}


def insert(name):
    return ("BEGIN; INSERT INTO modelgw.marks VALUES ('%s', 1); COMMIT; "
            "SELECT 'done';" % name)


def test_the_servers_sync(shared):
    assert shared.one("SHOW fsync") == "on"


def test_values(shared):
    (row,) = shared.query("SELECT 1 AS i, 'ü''x' AS t, NULL AS n, true AS b, "
                          "'\\x00ff'::bytea AS d, 12345678901::bigint AS l")
    assert row == {"i": 1, "t": "ü'x", "n": None, "b": True, "d": b"\0\xff",
                   "l": 12345678901}
    assert shared.one("SELECT %s", "a'b") == "a'b"


def test_an_error(shared):
    with shared.connect() as c:
        with pytest.raises(postgres.Error) as e:
            c.query("SELECT 1/0")
        assert e.value.code == "22012"
        assert c.query("SELECT 1 AS x") == [{"x": 1}]


@pytest.mark.parametrize("sql", [
    "DROP TABLE modelgw.calls", "DELETE FROM modelgw.topups",
    "UPDATE modelgw.topups SET amount = 1",
    "CREATE TABLE modelgw.x ()", "UPDATE pg_authid SET rolsuper = true"])
def test_the_role_has_few_rights(shared, sql):
    assert psql(shared, "SELECT 1", shared.conninfo()) == "1"
    assert psql(shared, sql, shared.conninfo()) is None


def test_crash(server):
    server.run("INSERT INTO modelgw.marks VALUES ('x', 1)")
    server.crash()
    assert marks(server) == {"x"}


def test_a_standby_that_is_behind(server):
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(server.standby())
        server.run("INSERT INTO modelgw.marks VALUES ('x', 1)")
        server.caught_up(other)
        other.cut()
        server.run("INSERT INTO modelgw.marks VALUES ('y', 1)")
        server.stop()
        other.promote()
        assert marks(other) == {"x"}
        other.run("INSERT INTO modelgw.marks VALUES ('z', 1)")


def test_dump_and_restore(database):
    database.run("INSERT INTO modelgw.marks VALUES ('x', 1)")
    path = database.dump()
    database.run("DELETE FROM modelgw.marks")
    database.restore(path)
    assert marks(database) == {"x"}
    node = database.conninfo()
    assert psql(database, "DROP TABLE modelgw.calls", node) is None
    assert psql(database, "SELECT 1", node) == "1"


def test_tls(secure):
    assert psql(secure, "SELECT 1", secure.tls_conninfo()) == "1"
    assert psql(secure, "SELECT 1",
                secure.tls_conninfo(host="other.test")) is None
    other = postgres.Authority(secure.top, "other")
    assert psql(secure, "SELECT 1", secure.tls_conninfo(ca=other.ca)) is None


def test_proxy_of_a_port(secure):
    p = Proxy(secure.tcp)
    try:
        assert psql(secure, "SELECT 1", secure.tls_conninfo(p.port)) == "1"
        p.hole()
        assert psql(secure, "SELECT 1", secure.tls_conninfo(p.port),
                    timeout=1) is None
    finally:
        p.remove()


def test_delay(shared, proxy):
    assert by(proxy, shared, "SELECT 1") == "1"
    proxy.delay(10)
    assert by(proxy, shared, "SELECT 1", timeout=1) is None
    proxy.clear()
    assert by(proxy, shared, "SELECT 1") == "1"


def test_an_answer_to_a_commit_is_lost(shared, proxy):
    proxy.cut_answer()
    assert by(proxy, shared, "SELECT 1") == "1"     # no commit
    assert proxy.status()["happened"] == 0
    assert by(proxy, shared, insert("x")) is None
    assert proxy.happened() and marks(shared) == {"x"}
    assert by(proxy, shared, insert("y")) == "done"


def test_a_request_is_cut(shared, proxy):
    assert by(proxy, shared, insert("x")) == "done"
    sent = proxy.status()["requests"]
    proxy.cut_after(sent - 50)         # in the INSERT
    assert by(proxy, shared, insert("y")) is None
    assert proxy.happened() and marks(shared) == {"x"}
    proxy.cut_after(1)
    assert by(proxy, shared, insert("y")) is None
    assert by(proxy, shared, insert("z")) == "done"


def test_a_hole_delivers_later(shared, proxy):
    """As a network does: nothing is lost while both ends wait."""
    proxy.hole()
    done = []
    t = threading.Thread(target=lambda: done.append(
        by(proxy, shared, insert("x"))))
    t.start()
    t.join(0.5)
    assert not done and not marks(shared)
    proxy.clear()
    t.join(20)
    assert done == ["done"] and marks(shared) == {"x"}


def test_answers_are_held_back(shared, proxy):
    assert by(proxy, shared, "SELECT 1") == "1"
    proxy.hole_back()
    assert by(proxy, shared, "SELECT 1", timeout=1) is None


def test_cut_and_refuse(shared, proxy):
    p = subprocess.Popen(
        ["psql", shared.conninfo(proxy.directory, proxy.port), "-qtA"],
        env=dict(os.environ, PGPASSWORD=shared.password), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL)
    p.stdin.write("SELECT 1;\n")
    p.stdin.flush()
    assert p.stdout.readline() == "1\n"
    proxy.refuse()
    assert by(proxy, shared, "SELECT 1") is None
    p.communicate("SELECT 2;\n", timeout=20)
    assert p.returncode
    proxy.clear()
    assert by(proxy, shared, "SELECT 1") == "1"


def test_the_database_is_down(shared, proxy):
    shared.stop()
    try:
        assert by(proxy, shared, "SELECT 1") is None
    finally:
        shared.start()
    assert by(proxy, shared, "SELECT 1") == "1"
