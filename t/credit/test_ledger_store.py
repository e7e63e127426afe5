"""The ledger through starts, reloads, exits of every kind, and disk failures.

The store is read with Python's sqlite3, as an accountant would; its view
"audit" shows whether balances agree with top-ups and calls.
"""

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time

import pytest

import gateway as lib
from client import LIMIT, assert_flat
from gateway import Key, chat
from shim import Shim
from upstream import (chat_completion, chat_error, chat_stream, raw,
                      reply_json, sse)

EURO = 10 ** 9
COST = 11 * 1000 + 7 * 2000      # nano-euro, of a call to upstream.both()

MODELS_A = """
        model fam-a-large  large  input=3 output=15 max_output=1000;
        model fam-a-small  small  input=3 output=15 max_output=1000;"""
MODELS_B = "model fam-b-one  one-0613  input=1 output=2 max_output=1000;"

GROUPS = lib.group_a(models=MODELS_A) + lib.group_b(models=MODELS_B)

HTTP = """
    modelgw_ledger $dir/ledger.db %s;
    modelgw_founding_credit %s;
    %s
"""

# rows that do not agree

AUDIT = "SELECT * FROM audit WHERE difference <> 0 OR hours <> 0"

CANNOT = "the ledger cannot be written"


def http(options="", founding="1", more=""):
    return HTTP % (options, founding, more)


@pytest.fixture
def start(gateway):
    def run(options="", founding="1", more="", **kw):
        kw.setdefault("http", http(options, founding, more))
        return gateway(groups=GROUPS, **kw)

    return run


def query(g, sql, path="ledger.db"):
    db = sqlite3.connect("file:%s?mode=ro" % g.path(path), uri=True,
                         timeout=LIMIT)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def wait_query(g, sql, want, path="ledger.db", timeout=LIMIT):
    end = time.monotonic() + timeout
    while True:
        try:
            got = query(g, sql, path)
        except sqlite3.OperationalError as e:    # not created yet
            got = e
        if got == want:
            return
        assert time.monotonic() < end, (sql, got, want)
        time.sleep(0.02)


def stored(g, calls, path="ledger.db", cost=COST):
    """That many calls are on disk, each once, and the balances agree."""
    wait_query(g, "SELECT count(*) FROM calls", [(calls,)], path)
    assert query(g, AUDIT, path) == []
    assert query(g, "SELECT sum(cost) FROM calls WHERE account = 'bob-1'",
                 path) == [(cost * calls or None,)]


def opened(g, account):
    return g.log_count('account "%s" opened' % account)


def finish(g, sig):
    """Stops nginx by a signal to the master, and checks that it exits with
    0."""
    process, g.process = g.process, None
    process.send_signal(sig)
    ended(g, process)


def ended(g, process):
    assert process.wait(LIMIT) == 0
    assert not g.faults(), g.faults()


class Stream:
    """A call whose answer has begun and does not end before end(), or the
    upstream's."""

    def __init__(self, g, key=None):
        self.g = g
        g.b.script(sse(chat_stream("one-0613")[:2], end="stall"))
        n = len(g.b.requests)
        self.c = g.connect()
        self.c.request("POST", "/v1/chat/completions",
                       [(key or g.bob).bearer(), ("X-Test-Tag", "stream")],
                       chat(stream=True))
        assert self.c.head().status == 200
        self.c.event()
        g.b.wait(n + 1)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.c.close()


# accounts

def test_opened_once(start):
    """An account gets its founding credit once, whatever happens after."""
    g = start()
    assert opened(g, "alice") == opened(g, "bob-1") == 1
    assert "bob-1\" opened with 1.00 euro" in g.read("error.log")
    assert g.chat().status == 200
    stored(g, 1)

    for _ in range(2):
        g.reload()
    g.stop()
    g.start()
    g.reload()
    assert g.chat().status == 200
    stored(g, 2)

    assert opened(g, "bob-1") == opened(g, "alice") == 1
    assert query(g, "SELECT count(*), sum(amount) FROM topups") == [
        (4, 4 * EURO)]
    assert query(g, "SELECT balance FROM accounts WHERE name = 'bob-1'") == [
        (EURO - 2 * COST,)]


def test_rows_of_calls(start):
    """The id that the client was told, the first byte, and the kind of call:
    the upstream's id of a stream, nginx's own of a plain answer, an id that is
    longer than a row has room for, an error, and no answer at all."""
    g = start()
    told = []

    def call(script, **body):
        g.b.script(script)
        r = g.chat(chat(**body))
        told.append(r.get("request-id"))
        assert r.get("x-request-id") == told[-1]
        return r

    assert call(sse(chat_stream("one-0613"),
                    headers=[("x-request-id", "req_upstream-1")]),
                stream=True).status == 200
    assert told[0] == "req_upstream-1"
    assert call(reply_json(chat_completion("one-0613"))).status == 200
    assert len(told[1]) == 32
    assert call(reply_json(chat_completion("one-0613"),
                           headers=[("request-id", "r" * 80)])).status == 200
    assert call(reply_json(chat_error("no"), 400)).status == 400
    assert call(raw("reset")).status == 502

    wait_query(g, "SELECT request_id, first_byte BETWEEN 0 AND ended - time,"
               " flags, status FROM calls ORDER BY id",
               [(told[0], 1, 1, 200), (told[1], 1, 0, 200),
                ("r" * 64, 1, 0, 200), (told[3], None, 0, 400),
                (told[4], None, 0, 0)])


PRICE = "SELECT printf('%.2f', prices.input / 1e6) FROM prices JOIN calls" \
        " ON prices.id = calls.price ORDER BY calls.id"


@pytest.mark.parametrize("how", ["reload", "restart"])
def test_prices(start, how):
    """A price that changes is logged and an action, and each call keeps the one
    that it had; a price that comes back counts from then on."""
    g = start()
    groups = g.groups
    assert g.chat().status == 200
    wait_query(g, PRICE, [("1.00",)])

    for old, new, n in ("1", "4", 1), ("4", "1", 2):
        g.groups = groups.replace("input=1 ", "input=%s " % new)
        g.write()
        if how == "reload":
            g.reload()
        else:
            g.stop()
            g.start()
        wait_query(g, "SELECT count(*) FROM actions", [(n,)])
        assert g.chat().status == 200
        assert g.log_count('price of model "fam-b-one" of group "b" changed '
                           'from {"input":"%s.00",' % old) == 1
        assert query(g, "SELECT actor, action, target, before, after"
                     " FROM actions ORDER BY id")[n - 1:] == [
            ("configuration", "price", "b/fam-b-one", rates(old), rates(new))]

    wait_query(g, PRICE, [("1.00",), ("4.00",), ("1.00",)])

    # as changes of operators, whose times are their ids

    ids = [id for (id,) in query(g, "SELECT id FROM actions WHERE id = time")]
    now = time.time() * 1000
    assert len(ids) == 2 and all(now - 600000 < id < now + 10 for id in ids)
    assert query(g, "SELECT cost FROM calls ORDER BY id") == [
        (COST,), (COST + 33000,), (COST,)]
    assert query(g, "SELECT count(*) FROM prices") == [(4,)]


def rates(input):
    return ('{"input":"%s.00","output":"2.00","cache_read":"%s.00",'
            '"cache_write":"%s.00","cache_write_1h":"%s.00"}'
            % ((input,) * 4))


def test_migrated(start):
    """A file of version 1, with calls; nginx says that it was migrated."""
    g = start()
    assert g.chat().status == 200
    stored(g, 1)
    g.stop()
    db = sqlite3.connect(g.path("ledger.db"))
    db.executescript(VERSION_1)
    db.close()
    g.start()
    assert g.log_count('ledger.db" was migrated to version 2') == 1
    assert g.chat().status == 200
    stored(g, 2)
    assert query(g, "SELECT account, difference, hours FROM audit"
                 " WHERE account = 'bob-1'") == [("bob-1", 0, 0)]
    assert query(g, "SELECT request_id = '', price = 0, first_byte IS NULL"
                 " FROM calls ORDER BY id") == [(1, 1, 1), (0, 0, 0)]


VERSION_1 = """
DROP VIEW audit; DROP VIEW balances; DROP VIEW ledger;
DROP TABLE hours; DROP TABLE marks; DROP TABLE keys; DROP TABLE prices;
DROP TABLE actions; DROP INDEX calls_ended;
ALTER TABLE accounts DROP COLUMN state;
ALTER TABLE accounts DROP COLUMN note;
ALTER TABLE calls DROP COLUMN request_id;
ALTER TABLE calls DROP COLUMN first_byte;
ALTER TABLE calls DROP COLUMN flags;
ALTER TABLE calls DROP COLUMN price;
ALTER TABLE holds DROP COLUMN request_id;
ALTER TABLE holds DROP COLUMN flags;
ALTER TABLE holds DROP COLUMN price;
ALTER TABLE topups DROP COLUMN reason;
ALTER TABLE days DROP COLUMN errors;
ALTER TABLE days DROP COLUMN duration;
ALTER TABLE days DROP COLUMN first_bytes;
ALTER TABLE days DROP COLUMN first_byte;
CREATE VIEW audit AS SELECT 1; CREATE VIEW balances AS SELECT 1;
CREATE VIEW ledger AS SELECT 1;
PRAGMA user_version = 1;
"""


def test_opened_by_reload(start):
    g = start()
    erin = Key("erin-1", "b", "account=erin")
    g.keys.append(erin)
    g.write_keys()
    g.reload()
    assert opened(g, "erin") == 1
    assert g.chat(key=erin).status == 200
    wait_query(g, "SELECT balance FROM accounts WHERE name = 'erin'",
               [(EURO - COST,)])


def test_founding_of_later(start):
    """The amount of the configuration that creates the account counts."""
    g = start(founding="0.000000001")
    assert_flat(g.chat(), 402, "INSUFFICIENT_CREDIT")
    g.http = http(founding="2.50")
    g.keys.append(Key("erin-1", "b"))
    g.write()
    g.reload()
    wait_query(g, "SELECT name, balance FROM accounts WHERE name IN"
               " ('bob-1', 'erin-1') ORDER BY name",
               [("bob-1", 1), ("erin-1", 2500000000)])
    assert_flat(g.chat(), 402, "INSUFFICIENT_CREDIT")


def test_keys_share_an_account(start):
    """Two keys, one account; a key that changes accounts leaves the credit."""
    one, two = (Key("k-%d" % i, "b", "account=shared") for i in range(2))
    g = start(keys=[one, two])
    assert opened(g, "shared") == 1
    for key in (one, two, one):
        assert g.chat(key=key).status == 200
    wait_query(g, "SELECT balance FROM accounts WHERE name = 'shared'",
               [(EURO - 3 * COST,)])
    two.options = "account=other"
    g.write_keys()
    g.reload()
    assert g.chat(key=two).status == 200
    wait_query(g, "SELECT name, balance FROM accounts WHERE name IN"
               " ('shared', 'other') ORDER BY name",
               [("other", EURO - COST), ("shared", EURO - 3 * COST)])


def test_failed_reload_opens_nothing(start, upstreams):
    """A reload that fails after the zone was found, at a port in use."""
    g = start()
    stored(g, 0)
    good = g.server
    g.keys.append(Key("erin-1", "b", "account=erin"))
    g.server = "listen 127.0.0.1:%d;" % upstreams[0].port
    g.write()
    g.expect(r"bind\(\)")
    g.reload(ok=False)
    assert g.chat().status == 200
    g.wait_log(r"still could not bind\(\)")
    stored(g, 1)
    assert opened(g, "erin") == 0
    assert query(g, "SELECT * FROM accounts WHERE name = 'erin'") == []
    g.server = good
    g.write()
    g.reload()
    assert opened(g, "erin") == 1


def test_no_room_for_accounts(start):
    """The zone keeps all accounts ever created: a reload whose new accounts do
    not fit is refused, even if they would fit alone, and nginx goes on."""
    first = [Key("a-%d" % i, "b") for i in range(30)]
    g = start(more="modelgw_zone 64k;", keys=first)
    fresh = [Key("b-%d" % i, "b") for i in range(40)]
    g.keys[4:] = fresh
    g.write_keys()
    assert g.check_again().returncode == 0    # it is valid
    g.reload(ok=False)
    text = g.read("error.log")
    assert "zone too small" in text and "stop nginx, then start it" in text
    assert opened(g, "b-0") == 0
    assert g.chat().status == g.chat(key=first[-1]).status == 200
    g.keys[4:] = first + fresh[:3]
    g.write_keys()
    g.reload()
    assert g.chat(key=fresh[0]).status == 200
    wait_query(g, "SELECT count(*) FROM calls", [(3,)])
    assert query(g, AUDIT) == []


def test_accounts_of_the_ledger_need_room(start):
    g = start(more="modelgw_zone 64k;")
    stored(g, 0)
    g.stop()
    db = sqlite3.connect(g.path("ledger.db"))
    db.executemany("INSERT INTO accounts (name, balance, opened) VALUES (?, 0, 0)",
                   [("x%d" % i,) for i in range(2000)])
    db.commit()
    db.close()
    with pytest.raises(lib.Failed, match="zone too small.*accounts of the"):
        g.start()
    g.http = http(more="modelgw_zone 4m;")
    g.start()
    assert g.chat().status == 200
    g.expect("zone too small")


# reloads that are refused

@pytest.mark.parametrize("http, words", [
    (http(more="modelgw_zone 33m;"), '"modelgw_zone"'),
    (http().replace("ledger.db", "other.db"), '"modelgw_ledger"'),
    ("", "modelgw_ledger ")])
def test_reload_refused(start, http, words):
    """The old workers continue with the same ledger, and no file is
    created."""
    g = start()
    good = g.http
    for _ in range(2):
        g.http = http
        g.write()
        g.reload(ok=False)
        text = g.read("error.log")
        assert words in text and "stop nginx, then start it" in text
        assert g.check_again().returncode == 0    # it is valid
        assert g.chat().status == 200
    stored(g, 2)
    assert not os.path.exists(g.path("other.db"))
    g.http = good
    g.write()
    g.reload()
    assert g.chat().status == 200
    stored(g, 3)


def test_reload_ledger_added(start):
    g = start(http="")
    g.http = http()
    g.write()
    g.reload(ok=False)
    assert "cannot be added" in g.read("error.log")
    assert not os.path.exists(g.path("ledger.db"))
    assert g.chat().status == 200


def test_reload_keys_removed(start):
    """A ledger is not removed with the last of its keys, either."""
    g = start()
    g.http, good = "", g.http
    g.write()
    config = g.read("nginx.conf")
    config = config[:config.index("modelgw_keys {")] + "}"
    with open(g.path("nginx.conf"), "w") as f:
        f.write(config)
    g.reload(ok=False)
    assert "cannot be removed" in g.read("error.log")
    g.http = good
    g.write()
    g.reload()
    assert g.chat().status == 200
    stored(g, 1)


def test_reload_with_calls(start):
    """A call that began two reloads ago is settled in the same ledger; its
    worker may no longer be the writer."""
    g = start()
    with Stream(g):
        wait_query(g, "SELECT account FROM holds", [("bob-1",)])
        for n in range(2):
            g.reload()
            g.b.script(lib_both)
            assert g.chat().status == 200
            wait_query(g, "SELECT count(*) FROM calls", [(n + 1,)])
        assert query(g, "SELECT count(*) FROM holds") == [(1,)]
    wait_query(g, "SELECT count(*) FROM calls", [(3,)])
    assert query(g, "SELECT count(*) FROM holds") == [(0,)]
    assert query(g, AUDIT) == []


def lib_both(x):
    import upstream
    upstream.both(x)


# one nginx at a time

def test_second_nginx(start, gateway):
    g = start()
    with pytest.raises(lib.Failed, match="in use by another nginx"):
        gateway(groups=GROUPS, http=http().replace("$dir", g.dir))
    assert g.chat().status == 200
    g.reload()
    with pytest.raises(lib.Failed, match="in use by another nginx"):
        gateway(groups=GROUPS, http=http().replace("$dir", g.dir))
    assert g.chat().status == 200
    stored(g, 2)


def test_workers_without_master(start):
    """They still write: a new nginx waits until they have exited."""
    g = start()
    pids = g.pids()
    g.process.kill()
    g.process.wait()
    g.process = None
    try:
        assert g.chat().status == 200
        with pytest.raises(lib.Failed, match="in use by another nginx"):
            g.start()
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        lib.wait_dead(pids)
    g.expect("in use by another nginx")
    g.start()
    assert g.chat().status == 200
    stored(g, 2)


def test_check_while_it_runs(start):
    """nginx -t does not change a byte of the files, and creates no account."""
    g = start()
    assert g.chat().status == 200
    stored(g, 1)
    g.keys.append(Key("erin-1", "b"))
    g.write_keys()

    def files():
        out = {}
        for name in sorted(os.listdir(g.dir)):
            if name.startswith("ledger"):
                with open(g.path(name), "rb") as f:
                    out[name] = (f.read(), os.stat(g.path(name)).st_mtime_ns)
        return out

    before, end = None, time.monotonic() + LIMIT
    while before != files():        # the writer is still running
        assert time.monotonic() < end
        before = files()
        g.wait_idle()
    assert "ledger.db-wal" in before
    p = g.check_again()
    assert p.returncode == 0, p.stderr
    assert "opened" not in p.stderr and opened(g, "erin-1") == 0
    assert files() == before


# ends

@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGQUIT,
                                 signal.SIGINT])
def test_end(start, sig):
    """What was answered is on disk when nginx has exited."""
    g = start(options="flush=200ms", workers=2)
    for _ in range(20):
        assert g.chat().status == 200
    finish(g, sig)
    stored(g, 20)
    assert query(g, "SELECT count(*) FROM holds") == [(0,)]
    g.start()
    assert g.chat().status == 200
    stored(g, 21)


def test_terminated_with_a_call(start):
    """It is charged by what was received, as one that is cut."""
    g = start()
    with Stream(g):
        finish(g, signal.SIGTERM)
    assert query(g, 'SELECT account, outcome, "end", status FROM calls') == [
        ("bob-1", "estimated", "stopped", 200)]
    assert query(g, "SELECT count(*) FROM holds") == [(0,)]
    assert query(g, AUDIT) == []
    assert g.log_count("1 calls were open as this worker was stopped") == 1


def test_all_killed(start):
    """A call in flight is charged by its hold's row at the next start; what
    was durable is kept."""
    g = start(workers=2)
    for _ in range(5):
        assert g.chat().status == 200
    stored(g, 5)
    with Stream(g):
        wait_query(g, "SELECT count(*) FROM holds", [(1,)])
        g.power_cut()
    (hold,) = query(g, "SELECT id, cost FROM holds")
    g.b.script(lib_both)
    g.start()
    assert query(g, 'SELECT id, cost, outcome FROM calls WHERE "end" = \'lost\''
                 ) == [hold + ("unanswered",)]
    assert query(g, "SELECT count(*) FROM holds") == [(0,)]
    assert g.log_count("calls that were open as nginx ended: 1,") == 1
    assert g.chat().status == 200
    wait_query(g, "SELECT count(*) FROM calls", [(7,)])
    assert query(g, AUDIT) == []
    assert query(g, "SELECT count(DISTINCT id), max(id) > %d FROM calls"
                 % hold[0]) == [(7, 1)]


def test_worker_killed(start):
    """The other workers, or a new one, charge its calls soon."""
    g = start(workers=2)
    with Stream(g):
        wait_query(g, "SELECT count(*) FROM holds", [(1,)])
        for pid in g.pids():
            os.kill(pid, signal.SIGKILL)
        g.expect("exited on signal 9")
        wait_query(g, 'SELECT account, "end", outcome FROM calls',
                   [("bob-1", "killed", "estimated")])
    assert query(g, "SELECT count(*) FROM holds") == [(0,)]
    g.wait_log("1 calls of workers that have died are settled")
    g.b.script(lib_both)
    assert g.chat().status == 200
    wait_query(g, "SELECT count(*) FROM calls", [(2,)])
    assert query(g, AUDIT) == []


def kill_and_signal(g, pids, sig):
    """Kills workers, and stops nginx before the master can replace them."""
    process, g.process = g.process, None
    g.expect("exited on signal 9")
    process.send_signal(signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    lib.wait_dead(pids)
    process.send_signal(sig)
    process.send_signal(signal.SIGCONT)
    return process


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT,
                                 signal.SIGQUIT])
@pytest.mark.parametrize("workers, killed", [(1, 1), (2, 1), (2, 2), (4, 2),
                                             (4, 4)])
def test_worker_killed_then_end(start, sig, workers, killed):
    """Workers are killed, and nginx is stopped before another worker sweeps
    them up, or with only the master left: their calls are settled as if they
    had been swept up, and what they had settled is written."""
    g = start(options="flush=1s", workers=workers)
    assert g.chat().status == 200
    stored(g, 1)
    with contextlib.ExitStack() as streams:
        for _ in range(3):
            streams.enter_context(Stream(g))
        g.b.script(lib_both)
        for _ in range(5):
            assert g.chat().status == 200
        process = kill_and_signal(g, g.pids()[:killed], sig)
    ended(g, process)
    ends = query(g, 'SELECT outcome, "end", cost > 0, status FROM calls'
                 ' ORDER BY id')
    assert len(ends) == 9, ends
    for row in ends[1:4]:
        assert row[0] == "estimated" and row[2:] == (1, 200), ends
        assert row[1] in ("killed", "stopped", "client"), ends
    assert {row[:2] for row in ends[:1] + ends[4:]} == {
        ("reported", "complete")}
    assert query(g, "SELECT count(*) FROM holds") == [(0,)]
    assert query(g, AUDIT) == []
    if killed == workers:
        assert {row[1] for row in ends[1:4]} == {"killed"}
    g.start()
    assert g.log_count("calls that were open as nginx ended") == 0


def test_writers_killed(start):
    """Whichever worker is killed, another one writes."""
    g = start(workers=2)
    g.expect("exited on signal 9")
    done = 0
    for _ in range(6):
        pid = g.pids()[0]
        for _ in range(3):
            assert g.chat().status == 200
            done += 1
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + LIMIT
        while pid in g.pids() or len(g.pids()) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
    stored(g, done)


@pytest.mark.timed("calls shorter than a flush, and holds within a second")
def test_short_calls_store_no_holds(start):
    """Only what lasts longer than a flush has a hold on disk."""
    g = start(options="flush=300ms")
    assert g.chat().status == 200
    stored(g, 1)
    calls, short = 1, 0
    end = time.monotonic() + 1.5
    while time.monotonic() < end or not short:
        begun = time.monotonic()
        assert g.chat().status == 200
        calls += 1
        if time.monotonic() - begun < 0.15:
            short += 1
        else:               # the machine is busy: this call may have a hold
            stored(g, calls)
        assert query(g, "SELECT count(*) FROM holds") == [(0,)]

    with contextlib.ExitStack() as streams:
        held = itertools.count(1)

        def one():
            streams.enter_context(Stream(g))
            wait_query(g, "SELECT count(*) FROM holds", [(next(held),)])

        lib.within(one, 1)


@pytest.mark.timed("the file is locked for 0.8 seconds")
def test_nothing_to_write(start):
    """A flush that finds only holds of calls that have ended begins no
    transaction: a file locked by another process does not matter."""
    g = start(options="flush=300ms")
    for n in range(2):      # the first flush goes on after its commit
        assert g.chat().status == 200
        stored(g, n + 1)
    for n in range(2, 5):
        assert g.chat().status == 200
        assert g.chat().status == 200
        stored(g, 2 * n)
        db = sqlite3.connect(g.path("ledger.db"), isolation_level=None,
                             timeout=LIMIT)
        db.execute("BEGIN EXCLUSIVE")
        time.sleep(0.8)
        db.execute("ROLLBACK")
        db.close()
    assert g.log_count(CANNOT) == 0


@pytest.mark.timed("five calls are written in less than four old intervals")
def test_flush_may_change(start):
    """The writer uses the new value, even if it has an older configuration."""
    g = start(options="flush=1s")
    with Stream(g):
        g.http = http(options="flush=5ms")
        g.write()
        g.reload()
        g.b.script(lib_both)
        done = itertools.count(1)

        def five():
            for _ in range(5):
                assert g.chat().status == 200
                wait_query(g, "SELECT count(*) FROM calls", [(next(done),)])

        lib.within(five, 3.5)


def test_roll_up(start):
    """Calls older than keep= are rolled up into days; balances do not
    change."""
    g = start()
    for _ in range(3):
        assert g.chat().status == 200
    stored(g, 3)
    g.stop()
    db = sqlite3.connect(g.path("ledger.db"))
    db.execute("UPDATE calls SET ended = ended - 3 * 86400000, time = time -"
               " 3 * 86400000 WHERE id <> (SELECT max(id) FROM calls)")
    db.commit()
    db.close()
    g.http = http(options="keep=1d")
    g.start()
    wait_query(g, "SELECT calls, input, output, cost FROM days",
               [(2, 22, 14, 2 * COST)])
    assert query(g, "SELECT count(*) FROM calls") == [(1,)]
    assert query(g, AUDIT) == []
    assert query(g, "SELECT balance FROM accounts WHERE name = 'bob-1'") == [
        (EURO - 3 * COST,)]


class Single(lib.Gateway):
    """One process is master and worker; nginx itself accepts no connections
    after a reload of it."""

    def config(self):
        return super().config().replace(
            "worker_processes 0;", "worker_processes 1; master_process off;")


def test_single_process(tmp_path, upstreams):
    for u in upstreams:
        u.reset()
    g = Single(tmp_path, *upstreams, groups=GROUPS, http=http())
    g.workers = 0
    g.start()
    try:
        for _ in range(3):
            assert g.chat().status == 200
        stored(g, 3)
        with Stream(g):
            finish(g, signal.SIGTERM)
        assert query(g, "SELECT account FROM calls WHERE \"end\" = 'stopped'"
                     ) == [("bob-1",)]
    finally:
        g.kill()


# the workers' user

class Nobody(lib.Gateway):
    def config(self):
        return super().config().replace("user root;", "user nobody nogroup;")


def writer_ids(pid):
    """The user ids of the process's first thread, and of the writer thread."""
    tasks, ids, end = "/proc/%d/task/" % pid, [], time.monotonic() + LIMIT
    while len(ids) < 2 or ids[0] == ids[1]:
        assert time.monotonic() < end, ids
        ids = []
        for task in sorted(os.listdir(tasks), key=int):
            with open(tasks + task + "/status") as f:
                (line,) = (l for l in f if l.startswith("Uid:"))
            ids.append({int(id) for id in line.split()[1:]})
    return ids


def files(path):
    """(name, stat) of the files in a directory that are not removed
    meanwhile."""
    for name in os.listdir(path):
        with contextlib.suppress(FileNotFoundError):
            yield name, os.stat(os.path.join(path, name))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another user")
def test_user(upstreams):
    """Files that the master creates are owned by the workers' user."""
    for u in upstreams:
        u.reset()
    directory = tempfile.mkdtemp(prefix="modelgw-")
    os.chmod(directory, 0o755)
    g = Nobody(directory, *upstreams, groups=GROUPS,
               http=http("flush=1s").replace("$dir", "$dir/data"))
    try:
        os.mkdir(g.path("data"))
        p = g.check()
        assert p.returncode == 1
        assert "modelgw_ledger" in p.stderr and "as the user nobody" in p.stderr
        assert os.listdir(g.path("data")) == []
        with pytest.raises(lib.Failed, match="as the user nobody"):
            g.start()

        nobody = pwd.getpwnam("nobody").pw_uid
        os.chown(g.path("data"), nobody, -1)
        g.expect("as the user nobody")
        g.start()
        assert g.chat().status == 200
        g.reload()
        assert g.chat().status == 200
        stored(g, 2, "data/ledger.db")
        db = sqlite3.connect(g.path("data/ledger.db"), isolation_level=None,
                             timeout=LIMIT)
        db.execute("BEGIN EXCLUSIVE")
        assert g.chat().status == 200       # the master writes it
        for name, st in files(g.path("data")):
            assert (st.st_uid, st.st_mode & 0o777) == (nobody, 0o600), name
        assert os.stat(g.path("nginx.pid")).st_uid == 0

        process = kill_and_signal(g, g.pids(), signal.SIGTERM)
        ids = writer_ids(process.pid)
        db.execute("ROLLBACK")
        db.close()
        ended(g, process)
        assert ids == [{0}, {nobody}]       # permanently: saved ids, too
        for name, st in files(g.path("data")):
            assert st.st_uid == nobody, name

        # SQLite of root creates this, and changes its owner a little later:
        # maybe before SQLite of the workers' user, which could not write it,
        # opens it to read

        shm = g.path("data/ledger.db-shm")
        for n, mode in enumerate([0o600, 0o644], 4):
            with open(shm, "x"):
                os.chmod(shm, mode)
            timer = threading.Timer(0.3, os.chown, (shm, nobody, -1))
            timer.start()
            g.start()
            timer.join()
            assert g.chat().status == 200
            stored(g, n, "data/ledger.db")
            g.stop()
    finally:
        g.kill()
        shutil.rmtree(directory)


# disk failures; a state that must persist is watched for a while: timed tests

timed = pytest.mark.timed("a state that must persist is watched for 1.5 s")


class Faults:
    """Calls while the store cannot be written; counts those answered."""

    def __init__(self, g, path="ledger.db"):
        self.g = g
        self.path = path
        self.answered = 0
        g.expect(CANNOT)

    def call(self):
        r = self.g.chat()
        if r.status == 200:
            self.answered += 1
        else:
            assert_flat(r, 503, "SERVICE_UNAVAILABLE")
            assert 1 <= int(r.get("Retry-After")) <= 60
        return r.status

    def until(self, status, timeout=LIMIT):
        end = time.monotonic() + timeout
        while self.call() != status:
            assert time.monotonic() < end, self.g.read("error.log")[-2000:]
            time.sleep(0.01)

    def stays(self, status, seconds=1.5):
        """For so long; a state that persists cannot be waited for."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.call() == status
            time.sleep(0.05)

    def recovered(self, times=1):
        """All is written; the log has one line per failure, and one per
        recovery."""
        stored(self.g, self.answered, self.path)
        assert query(self.g, "SELECT count(*) FROM holds", self.path) == [(0,)]
        assert len(self.g.b.requests) == self.answered
        self.g.wait_log("the ledger is written again", times)
        assert self.g.log_count(CANNOT) == times
        assert self.g.log_count("the ledger is written again") == times


@timed
def test_locked(start):
    """Another process locks the file: nothing is admitted, nothing is lost."""
    g = start(workers=2)
    f = Faults(g)
    for n in range(1, 3):
        f.until(200)
        db = sqlite3.connect(g.path("ledger.db"), isolation_level=None,
                             timeout=LIMIT)
        db.execute("BEGIN EXCLUSIVE")
        f.until(503)
        f.stays(503)
        g.wait_log("locked")
        db.execute("ROLLBACK")
        db.close()
        f.until(200)
        f.recovered(n)


@timed
def test_moved(start):
    """The file is moved away, and back: nothing is admitted meanwhile, nothing
    is lost, and no other file is used instead."""
    g = start(workers=2)
    g.expect("exited on signal 9")
    f = Faults(g)
    path = g.path("ledger.db")
    for n in range(1, 3):
        f.until(200)
        os.rename(path, path + ".away")
        f.until(503)
        g.wait_log(CANNOT, n)
        if n == 2:
            g.kill_workers()
        f.stays(503)
        assert not os.path.exists(path)
        shutil.copy(path + ".away", path)
        f.stays(503)
        os.rename(path + ".away", path)
        f.until(200)
        f.recovered(n)
    g.stop()
    stored(g, f.answered)


@timed
def test_removed(start):
    """A stop does not wait for it without limit, and creates none."""
    g = start()
    f = Faults(g)
    f.until(200)
    stored(g, f.answered)
    os.unlink(g.path("ledger.db"))
    f.until(503)
    f.stays(503)
    g.wait_log("is missing")
    g.reload()
    f.stays(503)
    g.stop()
    assert not os.path.exists(g.path("ledger.db"))


ADMIN = "location /admin/ { modelgw_admin; }"


def test_replaced_is_not_read(start):
    """Another file of that name is not read either with the WAL of the open
    one."""
    g = start(locations=ADMIN)
    f = Faults(g)
    path = g.path("ledger.db")
    f.until(200)
    assert g.get("/admin/calls").status == 200
    shutil.copy(path, path + ".new")
    os.rename(path, path + ".away")
    os.rename(path + ".new", path)
    for what in ("calls", "usage?by=key", "accounts/bob-1"):
        assert_flat(g.get("/admin/" + what), 503, "SERVICE_UNAVAILABLE")
    assert g.log_count('could not be read: "%s" is another file now' % path)
    f.until(503)
    os.rename(path + ".away", path)
    assert g.get("/admin/calls").status == 200
    f.until(200)
    f.recovered()


def remove(path):
    os.unlink(path)


def replace(path):
    shutil.copy(path, path + ".new")
    os.rename(path + ".new", path)


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
@pytest.mark.parametrize("lose", [remove, replace])
def test_wal_lost(start, suffix, lose):
    """What was answered as durable survives a kill of everything: all of the
    lost file is in the ledger before the answer."""
    g = start(workers=2, locations=ADMIN)
    for n in range(1, 4):
        assert g.chat().status == 200
        stored(g, n)
        lose(g.path("ledger.db" + suffix))
        r = g.post("/admin/accounts/bob-1/topups",
                   {"id": "t-%d" % n, "amount": "7.00"})
        assert r.status == 201, r
        if n == 2:
            g.wait_log('a file of the ledger was lost.*ledger.db%s" is'
                       % suffix)
        else:
            g.power_cut()
            g.start()
        assert query(g, "SELECT count(*) FROM topups WHERE id LIKE 't-%'"
                     ) == [(n,)]
        assert query(g, AUDIT) == []
    assert g.log_count(CANNOT) == 0


def test_wal_lost_while_idle(start):
    """It is noticed without a call, each time."""
    g = start()
    assert g.chat().status == 200
    stored(g, 1)
    for n in range(1, 3):
        os.unlink(g.path("ledger.db-wal"))
        g.wait_log("a file of the ledger was lost", n)
        assert g.chat().status == 200
        stored(g, n + 1)
    g.power_cut()
    g.start()
    stored(g, 3)


@timed
def test_wal_lost_beside_a_reader(start):
    """A reader prevents that it is saved: nothing is admitted, and no top-up
    is confirmed."""
    g = start(workers=2, locations=ADMIN)
    f = Faults(g)
    f.until(200)
    stored(g, 1)
    topup = "/admin/accounts/bob-1/topups", {"id": "t-1", "amount": "7.00"}
    db = sqlite3.connect("file:%s?mode=ro" % g.path("ledger.db"), uri=True,
                         isolation_level=None)
    db.execute("BEGIN")
    db.execute("SELECT count(*) FROM calls").fetchone()
    f.until(200)
    os.unlink(g.path("ledger.db-wal"))
    assert g.post(*topup, timeout=20).status not in (200, 201)
    f.until(503)
    f.stays(503)
    g.wait_log(CANNOT + '.*ledger.db-wal" is ')
    db.close()
    f.until(200)
    f.recovered()
    assert g.post(*topup).status in (200, 201)
    g.power_cut()
    g.start()
    stored(g, f.answered)
    assert query(g, "SELECT count(*) FROM topups WHERE id = 't-1'") == [(1,)]


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGQUIT])
def test_wal_lost_at_the_end(start, sig):
    """While another connection stays open, closing alone does not save it."""
    g = start()
    for _ in range(3):
        assert g.chat().status == 200
    stored(g, 3)
    db = sqlite3.connect("file:%s?mode=ro" % g.path("ledger.db"), uri=True)
    assert db.execute("SELECT count(*) FROM calls").fetchone() == (3,)
    os.unlink(g.path("ledger.db-wal"))
    finish(g, sig)
    db.close()
    stored(g, 3)


@timed
def test_all_lost(start):
    """All files are removed, and the ledger comes back: what was committed is
    only in the files that the writer has open, which it keeps open until
    then."""
    g = start(workers=2)
    f = Faults(g)
    path = g.path("ledger.db")
    for n in range(1, 4):
        f.until(200)
        stored(g, f.answered)
        os.link(path, path + ".kept")
        for suffix in ("-wal", "-shm", ""):
            os.unlink(path + suffix)
        f.until(503)
        f.stays(503)
        os.rename(path + ".kept", path)
        f.until(200)
        f.recovered(n)
    g.power_cut()
    g.start()
    stored(g, f.answered)


@timed
def test_back_beside_a_reader(start):
    """If the file was only moved, no data are unsynced: a reader that stays
    open does not stop the writer."""
    g = start(workers=2)
    g.expect("exited on signal 9")
    f = Faults(g)
    path = g.path("ledger.db")
    f.until(200)
    db = sqlite3.connect("file:%s?mode=ro" % path, uri=True,
                         isolation_level=None)
    db.execute("BEGIN")
    db.execute("SELECT count(*) FROM calls").fetchone()
    f.until(200)
    os.rename(path, path + ".away")
    f.until(503)
    g.wait_log(CANNOT)
    g.kill_workers()
    f.stays(503)
    os.rename(path + ".away", path)
    f.until(200)
    db.close()
    f.recovered()


def test_locked_beside_a_reader(start):
    """Nor are data unsynced after a lock: nothing was written."""
    g = start(workers=2)
    f = Faults(g)
    f.until(200)
    path = g.path("ledger.db")
    reader = sqlite3.connect("file:%s?mode=ro" % path, uri=True,
                             isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM calls").fetchone()
    f.until(200)
    stored(g, f.answered)
    db = sqlite3.connect(path, isolation_level=None, timeout=LIMIT)
    db.execute("BEGIN IMMEDIATE")
    f.until(503)
    g.wait_log(CANNOT)
    db.execute("ROLLBACK")
    db.close()
    f.until(200)
    reader.close()
    f.recovered()


@timed
def test_locked_reload_and_end(start):
    """A worker that exits meanwhile leaves its calls to the others; a new one
    that finds the store locked keeps trying."""
    g = start()
    f = Faults(g)
    db = sqlite3.connect(g.path("ledger.db"), isolation_level=None,
                         timeout=LIMIT)
    db.execute("BEGIN EXCLUSIVE")
    f.until(503)
    g.reload()
    f.stays(503)
    db.execute("ROLLBACK")
    db.close()
    f.until(200)
    f.recovered()
    g.stop()
    stored(g, f.answered)


def test_locked_stream(start):
    """A call that runs meanwhile is settled, and written afterwards."""
    g = start()
    f = Faults(g)
    with Stream(g):
        db = sqlite3.connect(g.path("ledger.db"), isolation_level=None,
                             timeout=LIMIT)
        db.execute("BEGIN EXCLUSIVE")
        g.b.script(lib_both)
        f.until(503)
    g.logged("stream")
    db.execute("ROLLBACK")
    db.close()
    f.until(200)
    wait_query(g, "SELECT count(*) FROM calls", [(f.answered + 1,)])
    wait_query(g, "SELECT count(*) FROM holds", [(0,)])
    assert query(g, AUDIT) == []


def test_ended_while_locked(start):
    """What cannot be written at exit is logged, and charged by the holds."""
    g = start()
    with Stream(g):
        wait_query(g, "SELECT count(*) FROM holds", [(1,)])
        db = sqlite3.connect(g.path("ledger.db"), isolation_level=None,
                             timeout=LIMIT)
        db.execute("BEGIN EXCLUSIVE")
        g.expect(CANNOT)
        finish(g, signal.SIGTERM)
        db.execute("ROLLBACK")
        db.close()
    said = g.log_count("could not be written before this worker ended")
    assert 1 <= said <= g.workers, "logged once per worker at most"
    assert query(g, "SELECT count(*) FROM calls") == [(0,)]
    g.b.script(lib_both)
    g.start()
    assert query(g, 'SELECT "end" FROM calls') == [("lost",)]
    assert g.chat().status == 200


def test_terminated_while_locked_on_a_busy_machine(faulty, start):
    """A worker whose sleeps are too long still exits before the master kills
    it, 1.5 seconds after the signal."""
    g = start()
    faulty.set("late")
    assert g.chat().status == 200
    stored(g, 1)
    db = sqlite3.connect(g.path("ledger.db"), isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    assert g.chat().status == 200
    g.expect(CANNOT)
    finish(g, signal.SIGTERM)
    db.execute("ROLLBACK")
    db.close()
    said = g.log_count("could not be written before this worker ended")
    assert 1 <= said <= g.workers, "logged once per worker at most"


@pytest.fixture
def disk(tmp_path):
    """A separate file system of 4 MB."""
    path = str(tmp_path / "disk")
    os.mkdir(path)
    p = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", path],
                       capture_output=True, text=True)
    if p.returncode:
        pytest.skip("no tmpfs: " + p.stderr)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


SHIM = r"""
#include <errno.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>

static int
sync_(long call, int fd)
{
    while (access(DIR "/hang", F_OK) == 0) {
        usleep(5000);
    }

    if (access(DIR "/fail", F_OK) == 0) {
        errno = EIO;
        return -1;
    }

    return syscall(call, fd);
}

int fsync(int fd) { return sync_(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_(SYS_fdatasync, fd); }

int
usleep(useconds_t us)
{
    struct timespec  ts;

    if (access(DIR "/late", F_OK) == 0) {
        us += 10000;
    }

    ts.tv_sec = us / 1000000;
    ts.tv_nsec = us % 1000000 * 1000;

    return nanosleep(&ts, NULL);
}
"""


@pytest.fixture
def faulty(tmp_path, monkeypatch):
    """fsync() hangs or fails while a file "hang" or "fail" exists; what is
    written stays in the page cache, as on a failing disk.  While "late"
    exists, sleeps are longer, as on a busy machine."""
    return Shim(tmp_path / "shim", SHIM, monkeypatch)


@timed
def test_sync_fails(faulty, start):
    """What was written and never synced is visible to SQLite, but is not
    durable: nothing is admitted before a sync has succeeded."""
    g = start(workers=2)
    f = Faults(g)
    for n in range(1, 3):
        f.until(200)
        faulty.set("fail")
        f.until(503)
        f.stays(503)
        assert g.log_count("the ledger is written again") == n - 1
        faulty.clear("fail")
        f.until(200)
        f.recovered(n)


@timed
def test_replaced_while_closed(faulty, start):
    """While the writer has closed it, and after a reload, too: a copy never
    gets the inode by which the file is recognized."""
    g = start(workers=2)
    f = Faults(g)
    path = g.path("ledger.db")
    f.until(200)
    g.reload()
    f.until(200)
    shutil.copy(path, path + ".bak")
    inode = os.stat(path).st_ino
    faulty.set("fail")
    f.until(503)
    time.sleep(1)
    for _ in range(3):
        os.unlink(path)
        shutil.copy(path + ".bak", path)
        assert os.stat(path).st_ino != inode
    faulty.clear("fail")
    f.stays(503, 2.5)
    g.expect("could not be written before this worker ended")


def wal(g):
    with open(g.path("ledger.db-wal"), "rb") as f:
        return f.read()


def killed_in_a_commit(faulty, start, stalled, pause=0):
    """With a reader, which prevents a checkpoint of the WAL; then there is no
    worker for "pause" seconds."""
    g = start(workers=2)
    g.expect("exited on signal 9")
    g.expect("writing the ledger hangs")
    f = Faults(g)
    f.until(200)
    stored(g, 1)
    db = sqlite3.connect("file:%s?mode=ro" % g.path("ledger.db"), uri=True,
                         isolation_level=None)
    db.execute("BEGIN")
    db.execute("SELECT count(*) FROM calls").fetchone()
    before = wal(g)
    faulty.set("hang")
    f.until(200)
    if stalled:
        f.until(503)
        g.wait_log("writing the ledger hangs")
    else:
        end = time.monotonic() + LIMIT
        while wal(g) == before:
            assert time.monotonic() < end
            time.sleep(0.01)
    pids = g.pids()
    os.kill(g.process.pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    faulty.clear("hang")
    lib.wait_dead(pids)
    time.sleep(pause)
    os.kill(g.process.pid, signal.SIGCONT)
    return f, db


@timed
@pytest.mark.parametrize("pause", [0, 2.5])
def test_killed_in_a_commit(faulty, start, pause):
    """A disk that was busy has not failed: the next writer does not wait for
    the reader, even if there was no writer for longer than a disk may take."""
    f, db = killed_in_a_commit(faulty, start, False, pause)
    f.until(200)
    stored(f.g, f.answered)
    f.stays(200)
    db.close()
    f.recovered(0)


@timed
def test_killed_in_a_commit_that_hung(faulty, start):
    """Its writer was killed before it could tell whether it had failed: what
    is in the WAL is not trusted before a checkpoint, which waits for the
    reader."""
    f, db = killed_in_a_commit(faulty, start, True)
    f.until(503)
    f.stays(503)
    f.g.wait_log(CANNOT)
    db.close()
    f.until(200)
    f.recovered()


@timed
def test_sync_hangs(faulty, start):
    """A disk that neither works nor fails: calls are refused after two
    seconds, and it is logged once."""
    g = start(workers=2)
    g.expect("writing the ledger hangs")
    f = Faults(g)
    f.until(200)
    stored(g, f.answered)
    faulty.set("hang")
    begun = time.monotonic()
    f.until(200)
    f.until(503)
    assert time.monotonic() - begun > 1.5
    f.stays(503)
    g.wait_log("does not hang any more|writing the ledger hangs for")
    assert g.log_count("writing the ledger hangs") == 1
    assert g.log_count("does not hang any more") == 0
    faulty.clear("hang")
    f.until(200)
    g.wait_log("writing the ledger does not hang any more")
    stored(g, f.answered)
    assert g.log_count("writing the ledger hangs") == 1
    assert g.log_count(CANNOT) == 0


@timed
def test_topup_of_a_writer_that_died(faulty, start):
    """The commit of a top-up reached the file, its writer was killed before it
    reported that, and the next one has a failing disk: it does not report a
    failure, so that what is in the file is credited on recovery."""
    g = start(workers=2, locations="location /admin/ { modelgw_admin; }",
              options="flush=5ms")
    g.expect("exited on signal 9")
    g.expect(CANNOT)
    assert g.chat().status == 200
    stored(g, 1)
    faulty.set("hang")
    answers = []

    def ask():
        answers.append(g.post("/admin/accounts/bob-1/topups",
                              {"id": "t-1", "amount": "7.00"}))

    thread = threading.Thread(target=ask)
    thread.start()
    end = time.monotonic() + LIMIT
    while b"t-1" not in wal(g):
        assert time.monotonic() < end
        time.sleep(0.01)
    faulty.set("fail")
    faulty.clear("hang")
    for pid in g.pids():
        os.kill(pid, signal.SIGKILL)
    g.wait_log(CANNOT)
    time.sleep(0.3)
    faulty.clear("fail")
    g.wait_log("the ledger is written again")
    thread.join(LIMIT)
    assert not thread.is_alive() and answers == [None]    # it was killed
    stored(g, 1)
    accounts = g.get("/admin/accounts").json()["accounts"]
    assert [a["balance"] for a in accounts if a["id"] == "bob-1"] == [
        "7.999975"]


def on(disk):
    return http().replace("$dir", disk)


def fill(disk, leave=0):
    fs = os.statvfs(disk)
    with open(os.path.join(disk, "filler"), "wb", 0) as f:
        for _ in range(max(0, fs.f_bavail * fs.f_frsize - leave) // 4096):
            try:
                f.write(b"x" * 4096)
            except OSError:
                return


@timed
def test_disk_full(disk, start):
    path = disk + "/ledger.db"
    g = start(http=on(disk), workers=2)
    f = Faults(g, path)
    for n in range(1, 3):
        f.until(200)
        fill(disk)
        f.until(503)
        f.stays(503)
        os.unlink(disk + "/filler")
        f.until(200)
        f.recovered(n)


def test_ready_follows_the_disk(disk, start):
    """Without calls: 503 in less than a second, 200 in less than two."""
    g = start(http=on(disk),
              locations="""location = /ready { modelgw_ready; }
                           location /admin/ { modelgw_admin; }""")
    f = Faults(g, disk + "/ledger.db")
    f.call = lambda: g.get("/ready").status

    def turn(act, status, seconds):
        act()
        begin = time.monotonic()
        f.until(status)
        return time.monotonic() - begin < seconds

    f.until(200)
    for _ in range(5):          # a busy machine stalls at times
        full = turn(lambda: fill(disk), 503, 1)
        r = g.get("/ready")
        assert_flat(r, 503, "SERVICE_UNAVAILABLE")
        assert r.get("retry-after") == "1"
        r = g.get("/admin/status")
        assert r.status == 503 and r.json()["ok"] is False
        assert r.json()["ledger"]["writable"] is False
        room = turn(lambda: os.unlink(disk + "/filler"), 200, 2)
        if full and room:
            break
    assert full and room
    assert not g.b.requests


@timed
def test_start_on_full_disk(disk, start):
    """No call is admitted before the disk works."""
    path = disk + "/ledger.db"
    g = start(http=on(disk))
    f = Faults(g, path)
    f.until(200)
    stored(g, f.answered, path)
    g.stop()
    fill(disk, leave=256 * 1024)
    for n in range(2):
        g.start()
        g.wait_log(CANNOT, n + 1)
        f.stays(503)
        g.stop()
    g.start()
    f.stays(503)
    os.unlink(disk + "/filler")
    f.until(200)
    stored(g, f.answered, path)
    assert query(g, "SELECT count(*) FROM holds", path) == [(0,)]
    g.wait_log("the ledger is written again")
    assert g.log_count(CANNOT) == 3


@timed
@pytest.mark.parametrize("change", ["reload", "kill_workers"])
def test_full_disk_and_a_new_writer(disk, start, change):
    """A new writer has no grace period for a full disk: calls are admitted
    only before its first batch, or at once if the machine is busy."""
    path = disk + "/ledger.db"
    g = start(http=on(disk), workers=2)
    g.expect("exited on signal 9")
    f = Faults(g, path)
    f.until(200)
    admitted = []
    for n in range(5):
        stored(g, f.answered, path)
        before = f.answered
        fill(disk)
        getattr(g, change)()
        f.until(503)
        f.stays(503, 0.5)
        admitted.append(f.answered - before)
        os.unlink(disk + "/filler")
        f.until(200)
        if admitted[-1] <= 3:
            break
    assert admitted[-1] <= 3, admitted
    f.recovered(len(admitted))


def kill_until_refused(f):
    """Kills workers repeatedly, until a writer has stopped the calls."""
    end = time.monotonic() + LIMIT
    while not f.g.log_count(CANNOT):
        assert time.monotonic() < end
        f.g.kill_workers()
        f.call()
        time.sleep(0.9)     # less than the grace period of a new writer
    for _ in range(3):
        f.g.kill_workers()
        f.stays(503, 0.2)


@timed
def test_full_disk_and_dying_workers(disk, start):
    """No writer runs for long, but what one has found persists."""
    path = disk + "/ledger.db"
    g = start(http=on(disk), workers=2)
    g.expect("exited on signal 9")
    f = Faults(g, path)
    f.until(200)
    fill(disk)
    kill_until_refused(f)
    os.unlink(disk + "/filler")
    f.until(200)
    f.recovered()


@timed
def test_locked_and_dying_workers(start):
    """New writers have a grace period for a lock, which may be that of a
    killed one; it is one period for all of them."""
    g = start(workers=2)
    g.expect("exited on signal 9")
    f = Faults(g)
    f.until(200)
    db = sqlite3.connect(g.path("ledger.db"), isolation_level=None, timeout=5)
    db.execute("BEGIN EXCLUSIVE")
    kill_until_refused(f)
    db.execute("ROLLBACK")
    db.close()
    f.until(200)
    f.recovered()


@timed
def test_disk_nearly_full(disk, start):
    """Room for a few rows is not enough to go on."""
    path = disk + "/ledger.db"
    g = start(http=on(disk))
    f = Faults(g, path)
    f.until(200)
    fill(disk)
    f.until(503)
    os.unlink(disk + "/filler")
    fill(disk, leave=256 * 1024)
    f.stays(503, 2.5)
    os.unlink(disk + "/filler")
    f.until(200)
    f.recovered()


@timed
def test_read_only(disk, start):
    """The kernel does not remount a file system read-only while a file of it
    is open for writing, so it is locked first: then the writer closes it."""
    path = disk + "/ledger.db"
    g = start(http=on(disk))
    f = Faults(g, path)
    f.until(200)
    for _ in range(5):
        db = sqlite3.connect(path, isolation_level=None, timeout=LIMIT)
        db.execute("BEGIN EXCLUSIVE")
        f.until(503)
        f.stays(503)
        db.execute("ROLLBACK")
        db.close()
        if remount(disk, "ro"):
            break
    else:
        pytest.skip("the file system is never idle")
    f.until(503)
    f.stays(503)
    assert remount(disk, "rw")
    f.until(200)
    stored(g, f.answered, path)
    assert len(g.b.requests) == f.answered


def remount(disk, mode):
    return subprocess.run(["mount", "-o", "remount," + mode, disk],
                          capture_output=True).returncode == 0
