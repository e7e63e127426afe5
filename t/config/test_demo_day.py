"""The day of calls in the ledger of a new demo: the books are in order, no
matter at which time of the day it starts, and a second start keeps them."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time

import pytest

from gateway import ROOT
from test_demo import pytestmark, running, start      # noqa: F401

DAY = os.path.join(ROOT, "demo/day.py")
ACCOUNTS = {"acme", "demo", "globex", "initech"}
CLASSES = ("input", "output", "cache_read", "cache_write", "cache_write_1h")


def ctl(demo, *args):
    r = subprocess.run([os.path.join(ROOT, "conf/modelgwctl"), "--socket",
                        demo.directory / "run/admin.sock", "--json", *args],
                       check=True, capture_output=True, timeout=60)
    return json.loads(r.stdout)


def books(path):
    """Checks a ledger of which nothing has been rolled up or cut to a hold;
    returns a connection that reads it."""

    db = sqlite3.connect("file:%s?mode=ro" % path, uri=True)
    db.row_factory = sqlite3.Row
    assert {row["account"] for row in db.execute("SELECT * FROM audit")} \
        == ACCOUNTS
    assert not any(db.execute("SELECT 1 FROM audit WHERE difference OR hours"))

    prices = {p["id"]: p for p in db.execute("SELECT * FROM prices")}
    count = 0
    for call in db.execute("SELECT * FROM calls"):
        price = prices[call["price"]]
        assert price["model"] == call["model"]
        assert price["from"] <= call["time"] <= call["ended"]
        pico = sum(call[name] * price[name] for name in CLASSES)
        assert call["cost"] == -(-pico // 1000), dict(call)
        count += 1
    assert count >= 1400
    return db


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    yield from running(tmp_path_factory.mktemp("day"))


def test_books_are_in_order(demo):
    db = books(demo.directory / "run/ledger.db")
    now = time.time() * 1000
    assert {row[0] for row in db.execute("SELECT DISTINCT outcome FROM calls")} \
        == {"reported", "estimated", "refused", "unanswered", "unsent"}
    (count,) = db.execute("SELECT count(*) FROM calls WHERE ended > ?",
                          (now - 86400000,)).fetchone()
    assert count >= 1200
    db.close()

    # each hour has a row, and calls, as gaps are shorter

    rows = ctl(demo, "usage", "--by", "hour", "--from", "-24h")["usage"]
    assert len(rows) in (24, 25)
    assert sum(row["calls"] for row in rows) == pytest.approx(count, abs=50)
    assert sum(row["calls"] > 0 for row in rows) >= 23
    assert {row["id"] for row in ctl(demo, "accounts")["accounts"]} == ACCOUNTS


def test_rows_are_as_the_gateway_writes_them(demo):
    """A call of now has the price, and a key and a top-up of now the actions,
    that those of the day have."""

    at = [c for h, c in demo.calls() if h == "chat"][0]
    now = time.time() * 1000
    subprocess.run(["bash", "-c", at], check=True, capture_output=True,
                   timeout=60)
    ctl(demo, "topup", "acme", "1.00", "now-1")
    ctl(demo, "correct", "acme", "-1.00", "now-2", "--reason", "a test")
    key = subprocess.run(
        [os.path.join(ROOT, "conf/modelgwctl"), "--socket",
         demo.directory / "run/admin.sock", "key", "new", "now-3", "--group",
         "a", "--account", "now", "--note", "a test"],
        check=True, capture_output=True, timeout=60)
    assert key.stdout.startswith(b"sk-eu-")
    ctl(demo, "key", "revoke", "now-3")

    db = sqlite3.connect("file:%s?mode=ro" % (demo.directory / "run/ledger.db"),
                         uri=True)
    end = time.monotonic() + 60
    while True:
        rows = db.execute(
            "SELECT price, min(typeof(first_byte)), substr(request_id, 1, 9)"
            " FROM calls WHERE key = 'demo-b' AND outcome = 'reported'"
            " AND flags = 0 GROUP BY ended > ?", (now,)).fetchall()
        if len(rows) == 2:
            break
        assert time.monotonic() < end, "the call is not written"
        time.sleep(0.05)
    assert rows[0] == rows[1]

    actions = ("SELECT action, address, (SELECT group_concat(key) FROM"
               " json_each(before)), (SELECT group_concat(key) FROM"
               " json_each(after)) FROM actions WHERE time ")
    made = set(db.execute(actions + "> ?", (now,)))
    assert {action for action, *_ in made} == {
        "account.create", "key.create", "key.revoke", "topup", "correction"}
    assert made <= set(db.execute(actions + "< ?", (now,)))
    assert db.execute("SELECT count(DISTINCT typeof(digest) || length(digest)"
                      " || window || typeof(note)) FROM keys").fetchone() == (2,)
    db.close()


def bare(path, to):
    """A copy of the ledger without the day, as nginx has made it."""

    source = sqlite3.connect("file:%s?mode=ro" % path, uri=True)
    db = sqlite3.connect(to)
    source.backup(db)
    source.close()
    db.executescript(
        "DELETE FROM calls; DELETE FROM hours; DELETE FROM keys;"
        "DELETE FROM actions; DELETE FROM topups WHERE id != 'founding:demo';"
        "DELETE FROM accounts WHERE name != 'demo';"
        "UPDATE marks SET value = 0 WHERE name = 'hours';")
    db.close()


def test_at_each_time_of_the_day(demo, tmp_path):
    """The same sums, whenever it is."""

    ledger = tmp_path / "bare.db"
    bare(demo.directory / "run/ledger.db", ledger)
    spent = set()
    midnight = 1800000000 // 86400 * 86400

    for second in [*range(0, 86400, 5400), 1, 86399]:
        now = midnight + second
        path = tmp_path / "ledger.db"
        shutil.copy(ledger, path)
        subprocess.run([sys.executable, DAY, path, str(now)], check=True,
                       timeout=60)
        db = books(path)
        spent.add(tuple(map(tuple, db.execute(
            "SELECT account, sum(cost), count(*) FROM calls GROUP BY 1"
            " ORDER BY 1"))))
        assert db.execute("SELECT min(time) >= ?1 - 26 * 3600000 AND"
                          " max(ended) < ?1 FROM calls",
                          (now * 1000,)).fetchone()[0]
        ids = [row["id"] for row in db.execute(
            "SELECT id FROM calls ORDER BY time, id")]
        assert ids == sorted(ids)

        # somebody spent most yesterday

        (top,) = db.execute(
            "SELECT account FROM calls WHERE ended BETWEEN ? AND ?"
            " GROUP BY 1 ORDER BY sum(cost) DESC LIMIT 1",
            ((midnight - 86400) * 1000, midnight * 1000)).fetchone()
        assert top == "acme"

        # what top-ups have found is what was there

        for action in db.execute("SELECT * FROM actions WHERE action IN"
                                 " ('topup', 'correction')"):
            (balance,) = db.execute(
                "SELECT (SELECT sum(amount) FROM topups WHERE account = ?1"
                " AND time < ?2) - (SELECT coalesce(sum(cost), 0) FROM calls"
                " WHERE account = ?1 AND ended < ?2)",
                (action["target"], action["time"])).fetchone()
            before = json.loads(action["before"])["balance"]
            assert round(float(before) * 1e9) == balance
        db.close()

    assert len(spent) == 1


def test_second_start_keeps_the_ledger(tmp_path):
    d = start(tmp_path)
    try:
        ctl(d, "topup", "demo", "1.00", "invoice-1")
        before = ctl(d, "accounts")["accounts"]
    finally:
        d.stop()
        d.out.close()

    assert len(before) == len(ACCOUNTS)
    d = start(tmp_path)
    try:
        after = ctl(d, "accounts")["accounts"]
    finally:
        d.stop()
        d.out.close()

    assert [(a["id"], a["balance"]) for a in after] \
        == [(a["id"], a["balance"]) for a in before]
    books(tmp_path / "run/ledger.db").close()


def test_real_vendors_have_no_calls_that_were_not_made(tmp_path):
    d = start(tmp_path, MODELGW_A_HOST="localhost:1", MODELGW_A_SECRET="s")
    try:
        assert ctl(d, "calls")["calls"] == []
        assert len(ctl(d, "accounts")["accounts"]) == 1
    finally:
        d.stop()
        d.out.close()
