"""modelgwctl cluster and journal: the database of a cluster, a ledger that moves
into it and back.  What needs running nodes is in test_admin.py."""

import json
import os
import shutil
import sqlite3
import stat
import subprocess

import pytest

import postgres
from gateway import ROOT
from operators import GROUPS, LEDGER

CTL = os.path.join(ROOT, "conf/modelgwctl")
WITH_LEDGER = {"http": LEDGER, "groups": GROUPS}
TABLES = ("accounts", "calls", "topups", "days", "hours", "keys", "prices",
          "actions", "marks")

SHELLS = [s for s in ("dash", "bash") if shutil.which(s)]

# what a CSV, a shell or SQL could take for something else

ODD = "it's \"odd\", \\N \\. \t\u00e4\n;$(x)`y`"


@pytest.fixture
def server(databases):
    with databases.database(schema=False) as d:
        yield d


def owner(server):
    return server.conninfo(user="postgres")


def run(*args, shell=None, env=None):
    command = [shell] if shell else []
    return subprocess.run(command + [CTL] + [str(a) for a in args],
                          env=dict(os.environ, **(env or {})),
                          capture_output=True, text=True, timeout=120)


def ok(p):
    assert p.returncode == 0, (p.stdout, p.stderr)
    return p.stdout


def refused(p, *words, code=1):
    assert p.returncode == code, (p.stdout, p.stderr)
    text = p.stdout + p.stderr
    for word in words:
        assert word in text, text


@pytest.fixture
def made(server):
    """The conninfo of a cluster's owner."""
    ok(run("cluster", "init", owner(server), "--role", postgres.ROLE))
    return owner(server)


@pytest.fixture(scope="module")
def ledger(module_gateway):
    """A ledger as nginx makes it, then with rows of all kinds."""
    gw = module_gateway(**WITH_LEDGER)
    path = gw.path("ledger.db")
    gw.stop()
    return path


@pytest.fixture
def full(ledger, tmp_path):
    path = str(tmp_path / "ledger.db")
    shutil.copy(ledger, path)
    db = sqlite3.connect(path)
    for table in TABLES:
        db.execute("DELETE FROM %s" % table)
    rows = db.executemany
    rows("INSERT INTO accounts VALUES (?, ?, ?, ?, ?)",
         [("a", 100 - 30 - 5, 1000, "open", ODD),
          ("b", -7, 2000, "closed", ""), ("c", 0, 3000, "open", "")])
    rows("INSERT INTO topups VALUES (?, ?, ?, ?, ?)",
         [("founding:a", "a", 60, 1, ""), ("t1", "a", 40, 5, ODD),
          ("t2", "b", -7, 5, "")])
    rows("INSERT INTO calls VALUES (%s)" % ", ".join("?" * 20),
         [(10, 1, 2, "k", "a", "m", 1, 2, 3, 4, 5, 6, 10, "reported",
           "complete", 200, "", None, 1, 77),
          (12, 1, 3600009, "k", "a", ODD, 1, 2, 3, 4, 5, 6, 20, "unanswered",
           "lost", 0, ODD, 0, 2, 0)])
    rows("INSERT INTO days VALUES (%s)" % ", ".join("?" * 16),
         [("2026-01-01", "a", "k", "m", 1, 2, 3, 4, 5, 6, 7, 5, 8, 9, 10, 11)])
    rows("INSERT INTO hours VALUES (%s)" % ", ".join("?" * 16),
         [(0, "a", "k", "m", 1, 0, 1, 2, 3, 4, 5, 6, 10, 1, 0, 0)])
    rows("INSERT INTO marks VALUES (?, ?)",
         [("hours", 3600000), ("price:g/m", 77)])
    rows("INSERT INTO keys VALUES (%s)" % ", ".join("?" * 16),
         [(bytes(range(32)), "id", "a", "g", "m1,m2", 1, 2, 3, 4, "month", 0,
           "active", 3, 1, 2, ODD),
          (b"\xff" * 32, "id", "a", "g", "", 0, 0, 0, 0, "", 9, "rotated", 2,
           1, 2, "")])
    rows("INSERT INTO prices VALUES (%s)" % ", ".join("?" * 9),
         [(77, "g", "m", 1, 2, 3, 4, 5, 6)])
    rows("INSERT INTO actions VALUES (%s)" % ", ".join("?" * 8),
         [(5, 5, "me", "1.2.3.4", "topup", "a", "{}", json.dumps({"x": ODD}))])
    db.commit()
    assert db.execute("SELECT count(*) FROM audit WHERE difference <> 0 "
                      "OR hours <> 0").fetchone() == (0,)
    db.close()
    return path


def contents(path):
    db = sqlite3.connect("file:%s?mode=ro" % path, uri=True)
    try:
        return {t: sorted(db.execute("SELECT * FROM %s" % t), key=repr)
                for t in TABLES}
    finally:
        db.close()


def test_tables_of_an_export_are_those_of_nginx(ledger):
    """conf/cluster/ledger.sql has what src/store makes."""
    def tables(db):
        return set(db.execute("SELECT name, sql FROM sqlite_master WHERE sql "
                              "IS NOT NULL"))

    made = sqlite3.connect(":memory:")
    with open(os.path.join(ROOT, "conf/cluster/ledger.sql")) as f:
        made.executescript(f.read())
    assert tables(made) == tables(sqlite3.connect(ledger))


@pytest.mark.parametrize("shell", SHELLS)
def test_init_once(server, shell):
    p = run("cluster", "init", owner(server), "--role", postgres.ROLE,
            shell=shell)
    ok(p)
    assert server.one("SELECT count(*) FROM modelgw.cluster") == 1
    id = server.one("SELECT id FROM modelgw.cluster")
    refused(run("cluster", "init", owner(server), shell=shell), "already",
            "nothing was changed", '"modelgwctl cluster upgrade" is for')
    assert server.one("SELECT id FROM modelgw.cluster") == id


def test_init_of_a_role_that_is_not_there(server):
    refused(run("cluster", "init", owner(server), "--role", "nobody"),
            "nobody", "nothing was changed")
    assert server.one("SELECT count(*) FROM pg_namespace "
                      "WHERE nspname = 'modelgw'") == 0


def node(server):
    return server.conninfo()


@pytest.fixture
def password(server, tmp_path):
    path = tmp_path / "password"
    path.write_text(server.password)
    return str(path)


def test_check(server, made, password):
    out = ok(run("cluster", "check", node(server), "--password", password))
    assert all(line.startswith("ok ") for line in out.splitlines()), out
    assert "rights" in out and "audit" in out


def test_check_says_what_is_wrong(server, made, password, tmp_path):
    def check(*args):
        return run("cluster", "check", node(server), "--password", password,
                   *args)

    refused(run("cluster", "check", node(server), "--password",
                tmp_path / "none"), "none cannot be read")

    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    refused(run("cluster", "check", node(server), "--password", wrong),
            "FAILED  connection", "password authentication failed")

    server.run("REVOKE DELETE ON modelgw.recalls FROM modelgw")
    refused(check(), "FAILED  rights: recalls needs DELETE")
    ok(run("cluster", "upgrade", made, "--role", postgres.ROLE))
    ok(check())

    server.run("UPDATE modelgw.cluster SET version = 7, oldest = 6")
    refused(check(), "FAILED  version", "6 is the oldest that may be used")
    refused(run("cluster", "upgrade", made), "version 7, newer than this",
            "nothing was changed")
    server.run("UPDATE modelgw.cluster SET version = 1, oldest = 1")

    server.run("INSERT INTO modelgw.accounts VALUES ('x', 1, 0)")
    refused(check(), "FAILED  audit: 1 accounts differ")
    server.run("DELETE FROM modelgw.accounts")

    refused(check("--journal", tmp_path / "no.db"), "FAILED  journal: there is")

    server.run("DROP SCHEMA modelgw CASCADE")
    refused(run("cluster", "upgrade", made), "modelgwctl cluster init")
    refused(check(), "FAILED  schema", "modelgwctl cluster init")

    refused(run("cluster", "check", server.conninfo(tmp_path), "--password",
                password), "FAILED  connection")


def test_a_password_in_the_conninfo(server, made):
    refused(run("cluster", "check", node(server) + " password=x"),
            "must not have a password", code=2)
    refused(run("cluster", "check", "postgres://u:secret@h/d"),
            "must not have a password", code=2)


@pytest.mark.parametrize("shell", SHELLS)
def test_import_and_export(server, made, full, tmp_path, shell):
    """There and back: nothing has changed."""
    before = contents(full)
    p = run("cluster", "import", full, made, shell=shell)
    ok(p)
    assert "3 accounts, 2 calls are imported, the audits are equal" in p.stderr
    assert not os.path.exists(full)
    assert contents(full + ".imported") == before

    assert server.one("SELECT count(*) FROM modelgw.audit "
                      "WHERE difference <> 0") == 0
    assert {r["name"]: r["free"] for r in server.query(
        "SELECT name, free FROM modelgw.accounts")} == {"a": 65, "b": -7,
                                                        "c": 0}
    # nodes fetch what is newer than 0, all rows of a key at once
    assert {r["name"]: r["version"] for r in server.query(
        "SELECT name, version FROM modelgw.accounts")} == {"a": 1, "b": 2,
                                                           "c": 3}
    assert {r["keys_version"] for r in server.query(
        "SELECT keys_version FROM modelgw.keys")} == {4}
    assert server.one("SELECT keys_version FROM modelgw.cluster") == 4

    path = str(tmp_path / "new.db")
    ok(run("cluster", "export", path, made, shell=shell))
    assert contents(path) == before
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (2,)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_what_export_wrote_is_a_ledger(server, made, full, gateway, tmp_path):
    """An nginx of one machine goes on with it."""
    ok(run("cluster", "import", full, made))
    g = gateway(**WITH_LEDGER)
    g.stop()
    path = g.path("ledger.db")
    for name in os.listdir(g.dir):
        if name.startswith("ledger.db"):
            os.unlink(os.path.join(g.dir, name))
    ok(run("cluster", "export", path, made))
    g.start()
    assert g.chat().status == 200
    db = sqlite3.connect(path)
    g.stop()
    assert db.execute("SELECT count(*) FROM audit WHERE difference <> 0 OR "
                      "hours <> 0").fetchone() == (0,)
    assert db.execute("SELECT balance FROM accounts WHERE name = 'b'"
                      ).fetchone() == (-7,)


def test_import_refuses(server, made, full, tmp_path):
    def untouched():
        return server.one("SELECT count(*) FROM modelgw.accounts") == 0 \
            and os.path.exists(full)

    def change(sql):
        db = sqlite3.connect(full)
        db.execute(sql)
        db.commit()
        db.close()

    change("UPDATE accounts SET balance = balance + 1 WHERE name = 'a'")
    refused(run("cluster", "import", full, made), "audit", "1 differences")
    assert untouched()
    change("UPDATE accounts SET balance = balance - 1 WHERE name = 'a'")

    change("INSERT INTO holds VALUES (99, 1, 'k', 'a', 'm', 1, 1, 1, '', 0, 0)")
    refused(run("cluster", "import", full, made), "1 open calls")
    assert untouched()
    change("DELETE FROM holds")

    other = tmp_path / "other.db"
    sqlite3.connect(other).execute("CREATE TABLE t (a)")
    refused(run("cluster", "import", other, made), "cannot be read")

    # a difference that only the database sees ends the transaction
    server.run("ALTER TABLE modelgw.topups ADD CHECK (id <> 't2')")
    refused(run("cluster", "import", full, made), "nothing was changed")
    assert untouched()
    server.run("ALTER TABLE modelgw.topups DROP CONSTRAINT topups_id_check")

    with open(full + ".lock", "w") as lock:
        import fcntl
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(run("cluster", "import", full, made), "stop nginx first")
    assert untouched()

    os.unlink(full + ".lock")
    os.mkdir(full + ".lock")
    refused(run("cluster", "import", full, made), "lock cannot be opened")
    os.rmdir(full + ".lock")
    assert untouched()

    server.run("INSERT INTO modelgw.accounts VALUES ('x', 0, 0)")
    refused(run("cluster", "import", full, made), "nothing was changed")
    server.run("DELETE FROM modelgw.accounts")

    open(full + ".imported", "w").close()
    refused(run("cluster", "import", full, made), "exists already")
    os.unlink(full + ".imported")
    ok(run("cluster", "import", full, made))


def test_export_refuses(server, made, full, tmp_path):
    ok(run("cluster", "import", full, made))
    path = str(tmp_path / "new.db")

    server.run("UPDATE modelgw.nodes SET state = 0, name = 'gw1'")
    refused(run("cluster", "export", path, made), 'node "gw1" has not left')
    server.run("UPDATE modelgw.nodes SET state = 1")

    server.run("INSERT INTO modelgw.leases (node, account, granted) "
               "VALUES (1, 'a', 5)")
    refused(run("cluster", "export", path, made), 'some of "a" is lent')
    server.run("DELETE FROM modelgw.leases")

    server.run("UPDATE modelgw.accounts SET free = free + 1 WHERE name = 'a'")
    refused(run("cluster", "export", path, made), "audit")
    assert not os.path.exists(path)
    server.run("UPDATE modelgw.accounts SET free = free - 1 WHERE name = 'a'")

    open(path, "w").close()
    refused(run("cluster", "export", path, made), "exists already")


def test_actions_of_two_nodes_at_once(server, made, tmp_path):
    """Their ids become distinct, in their order."""
    for node, id in ((1, 5), (2, 5), (1, 6), (1, 9)):
        server.run("INSERT INTO modelgw.actions VALUES (%s, %s, %s, '', '', "
                   "'topup', 'a', '{}', '{}')", node, id, id)
    path = str(tmp_path / "new.db")
    ok(run("cluster", "export", path, made))
    assert [(row[0], row[1]) for row in contents(path)["actions"]] == [
        (5, 5), (6, 5), (7, 6), (9, 9)]


@pytest.mark.parametrize("args", [
    ["cluster"], ["cluster", "x"], ["journal"], ["cluster", "init"],
    ["cluster", "init", "a", "b"], ["cluster", "import", "x"],
    ["cluster", "init", "dbname=x", "--finish"],
    ["cluster", "check", "dbname=x", "--journal"]])
def test_misuse(args):
    refused(run(*args), "Try", code=2)
