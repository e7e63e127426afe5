"""modelgw_admin: accounts, top-ups, calls, usage and keys over HTTP."""

import calendar
import concurrent.futures
import contextlib
import csv
import fcntl
import gzip
import io
import itertools
import json
import os
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time

import pytest

import client
import gateway as lib
from client import assert_flat, assert_ids
from config_check import Config
from gateway import (Key, MODELS_A, MODELS_B, VERSION, chat, ended_cpu,
                     group_a, group_b)
from metrics import LOCATION
from shim import THREADS, Shim
from upstream import both, chat_error, raw, reply_json

LEDGER = "modelgw_ledger $dir/ledger.db; modelgw_founding_credit 5.00;"

# a ledger requires the maximum output of a model

GROUPS = (group_a(models=MODELS_A.replace("max_output=64000", "")
                  .replace(";", " max_output=4000;"))
          + group_b(models=MODELS_B.replace(";", " max_output=4000;")))

WITH_LEDGER = {"http": LEDGER, "groups": GROUPS}

ADMIN = """
        location /admin/ { modelgw_admin; allow 127.0.0.1; deny all; }
"""


class Admin:
    """Requests to the admin interface of a gateway, below a path."""

    def __init__(self, gw, base="/admin"):
        self.gw = gw
        self.base = base

    def get(self, path, **kw):
        return self.gw.get(self.base + path, **kw)

    def ok(self, path, **kw):
        r = self.get(path, **kw)
        assert r.status == 200 and r.complete, r
        assert r.get("content-type") == "application/json"
        assert r.get("cache-control") == "no-store"
        assert_ids(r)
        return r.json()

    def topup(self, account, id, amount, **kw):
        return self.post(account, {"id": id, "amount": amount}, **kw)

    def post(self, account, body, headers=(), **kw):
        return self.gw.post("%s/accounts/%s/topups" % (self.base, account),
                            body, headers=headers, **kw)

    def account(self, id):
        return {a["id"]: a for a in self.ok("/accounts")["accounts"]}[id]

    def balance(self, id):
        return self.account(id)["balance"]


@pytest.fixture(scope="module")
def module_admin(module_gateway):
    return Admin(module_gateway(**WITH_LEDGER, locations=ADMIN,
                                keys=KEYS))


KEYS = [Key("erin@x.test", "b",
            "account=pool:1 rpm=60 tpm=1000 concurrency=2 expires=2035-02-28"),
        Key("frank", "a", "models=fam-a-small,fam-a-mini account=pool:1")]


@pytest.fixture
def admin(module_admin, upstreams):
    for u in upstreams:
        u.reset()
    yield module_admin
    assert module_admin.gw.process.poll() is None, "nginx has exited"


def refused(r, status, code, *words):
    error = assert_flat(r, status, code)
    for word in words:
        assert word in r.json()["message"], r
    return error


# accounts


def test_accounts(admin, http):
    accounts = admin.ok("/accounts", version=http)["accounts"]
    assert sorted(a["id"] for a in accounts) \
        == ["alice", "bob-1", "carol", "dave-1", "pool:1"]
    for a in accounts:
        assert sorted(a) == ["available", "balance", "held", "id", "keys",
                             "spent_24h", "spent_30d", "state"]

    # its only key has expired

    assert admin.account("dave-1") == {"id": "dave-1", "balance": "5.00",
                                       "held": "0.00", "available": "5.00",
                                       "state": "open", "spent_24h": "0.00",
                                       "spent_30d": "0.00", "keys": 0}
    assert admin.account("pool:1")["keys"] == 2


def test_account(admin):
    end = time.monotonic() + client.LIMIT
    while not admin.ok("/accounts/dave-1")["topups"]:
        assert time.monotonic() < end, "the founding credit is not written"
        time.sleep(0.02)
    a = admin.ok("/accounts/dave-1")
    (topup,) = a.pop("topups")
    assert a == {"id": "dave-1", "balance": "5.00", "held": "0.00",
                 "available": "5.00", "state": "open", "spent_24h": "0.00",
                 "spent_30d": "0.00", "keys": 0, "note": ""}
    assert topup["id"] == "founding:dave-1" and topup["amount"] == "5.00"
    assert set(topup) == {"id", "time", "amount"}


def test_account_with_an_escaped_id(admin):
    assert admin.ok("/accounts/pool%3A1")["id"] == "pool:1"
    assert admin.ok("/accounts/pool:1")["id"] == "pool:1"


@pytest.mark.parametrize("id", ["nobody", "alice/", "ali%20ce",
                                "a" * 65, "%22", "alice%01", "%2e%2e%2fx",
                                "ALICE", "alice/topups/x"])
def test_no_such_account(admin, id):
    refused(admin.get("/accounts/" + id), 404, "NOT_FOUND")
    if "/" not in id and "%2f" not in id:
        refused(admin.topup(id, "x", "1.00"), 404, "NOT_FOUND",
                "No such account")


def test_held_while_a_call_runs(admin):
    gw = admin.gw
    go = threading.Event()
    gw.b.script(raw(go, both))
    before = admin.account("bob-1")
    assert before["held"] == "0.00"
    with gw.connect() as c:
        c.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                  chat(max_tokens=1000))
        gw.b.wait()
        during = admin.account("bob-1")
        go.set()
        assert c.response().status == 200
    assert during["balance"] == before["balance"]
    assert nano(during["held"]) > 0
    assert nano(during["available"]) \
        == nano(during["balance"]) - nano(during["held"])
    after = admin.account("bob-1")
    assert after["held"] == "0.00" and after["available"] == after["balance"]
    assert nano(after["balance"]) < nano(before["balance"])


# lists of accounts

HOUR = 3600000
DAY = 24 * HOUR

COLUMNS = ("id, time, ended, key, account, model, input, cache_read,"
           " cache_write, cache_write_1h, output, reasoning, cost, outcome,"
           ' "end", status')

# (account, hours ago, nano-euro): the spans end in hours that are not whole

SPENT = [("a-1", 1, 5), ("a-1", 23, 70), ("a-1", 25, 900), ("a-2", 719, 11000),
         ("a-2", 721, 130000), ("a-3", 0, 1), ("a-3", 23.99, 2),
         ("a-3", 24.01, 4), ("a-4", 719.99, 6), ("a-4", 720.01, 8),
         ("a-5", 1000, 10 ** 18), ("a-6", 30, 975), ("a-7", 40, 975)]


@pytest.fixture(scope="module")
def listed(module_gateway):
    """Accounts of which some have the same balance, or have spent the same;
    calls of 42 days, of which no hour was summed up yet."""
    gw = module_gateway(**WITH_LEDGER, locations=ADMIN)
    g = Admin(gw)
    for i in range(10):
        body = {"id": "a-%d" % i, "founding": False,
                "note": "floor %d, %s" % (i % 2, "Room" if i > 6 else "hall")}
        assert gw.post("/admin/accounts", body).status == 201
        if i % 3:
            assert g.topup("a-%d" % i, "t-%d" % i, "%d" % (i % 3)).status == 201
    g.now = int(time.time() * 1000)
    gw.stop()
    db = sqlite3.connect(gw.path("ledger.db"), isolation_level=None)
    for i, (account, ago, cost) in enumerate(SPENT):
        ended = g.now - int(ago * HOUR)
        db.execute("INSERT INTO calls (%s) VALUES (?, ?, ?, ?, ?, 'm', 1, 0, 0,"
                   " 0, 1, 0, ?, 'reported', 'complete', 200)" % COLUMNS,
                   (i + 1, ended - 1, ended, "k-" + account, account, cost))
    db.execute("DELETE FROM hours")
    db.execute("UPDATE marks SET value = 0 WHERE name = 'hours'")
    db.close()
    gw.start()
    return g


def spent(account, hours):
    return sum(cost for name, ago, cost in SPENT
               if name == account and ago < hours)


def test_spent(listed):
    """Exactly, whether the calls are summed up to hours or not, and the same
    as usage says."""
    end = time.monotonic() + client.LIMIT
    done = False
    while not done:
        assert time.monotonic() < end, "hours are not summed up"
        done = store(listed.gw, "SELECT count(*) FROM marks, calls"
                     " WHERE name = 'hours' AND ended < value") == [(len(SPENT),)]
        for a in listed.ok("/accounts")["accounts"]:
            assert nano(a["spent_24h"]) == spent(a["id"], 24), a
            assert nano(a["spent_30d"]) == spent(a["id"], 720), a
    for name, since in (("spent_24h", "-24h"), ("spent_30d", "-30d")):
        rows = listed.ok("/usage?by=account&from=" + since)["usage"]
        costs = {row["account"]: row["cost"] for row in rows}
        for a in listed.ok("/accounts")["accounts"]:
            assert a[name] == costs.get(a["id"], "0.00")
    one = listed.ok("/accounts/a-1")
    assert one["spent_24h"] == "0.000000075"
    assert one["spent_30d"] == "0.000000975" and one["topups"]


ORDERS = {"": None, "sort=opened": None, "sort=name": lambda a: a["id"],
          "sort=balance": lambda a: (nano(a["balance"]), a["id"]),
          "sort=spent": lambda a: (-nano(a["spent_30d"]), a["id"])}


def pages(admin, query, size):
    """All rows, page by page; each but the last has as many as asked for."""
    rows, after = [], ""
    while True:
        page = admin.ok("/accounts?limit=%d&%s%s" % (size, query, after))
        rows += page["accounts"]
        if "more" not in page:
            assert "next" not in page and len(page["accounts"]) <= size
            return rows
        assert page["more"] is True and len(page["accounts"]) == size
        after = "&after=" + page["next"]


@pytest.mark.parametrize("query", ORDERS)
def test_order_and_pages(listed, query):
    everything = listed.ok("/accounts?" + query)["accounts"]
    opened = listed.ok("/accounts")["accounts"]
    n = len(everything)
    assert n >= 14
    assert everything == (sorted(opened, key=ORDERS[query]) if ORDERS[query]
                          else opened)
    for size in (1, 2, 3, 5, n - 1, n, n + 1, 1000):
        assert pages(listed, query, size) == everything


def test_places(listed):
    """A number that is out of date, or was invented, ends nothing early."""
    opened = listed.ok("/accounts")["accounts"]
    for number in ("0", "99", "-1", "9223372036854775807"):
        assert listed.ok("/accounts?after=opened:%s:%s" % (
            number, opened[4]["id"]))["accounts"] == opened[5:]
    for sort in "balance", "spent":
        for number in ("-9223372036854775807", "9223372036854775807"):
            rows = listed.ok("/accounts?sort=%s&after=%s:%s:a-1" % (
                sort, sort, number))["accounts"]
            assert len(rows) == (len(opened) if number[0] == "-" else 0)


def test_page_after_an_opened_account(listed):
    """Neither is a row lost nor does one come twice."""
    for sort in "opened", "name", "balance":
        first = listed.ok("/accounts?limit=5&sort=" + sort)
        r = listed.gw.post("/admin/accounts", {
            "id": "a-00-" + sort, "founding": False})
        assert r.status == 201, r
        rest = listed.ok("/accounts?sort=%s&after=%s" % (sort, first["next"]))
        ids = [a["id"] for a in first["accounts"] + rest["accounts"]]
        assert len(ids) == len(set(ids))
        assert set(ids) | {"a-00-" + sort} == {
            a["id"] for a in listed.ok("/accounts")["accounts"]}


@pytest.mark.parametrize("q, ids", [
    ("a-3", ["a-3"]), ("Room", ["a-7", "a-8", "a-9"]), ("room", []),
    ("floor 1", ["a-1", "a-3", "a-5", "a-7", "a-9"]), ("bob", ["bob-1"]),
    ("%25", []), ("'", []), ("_", []), ("%00", []), ("%ff", []),
    ("1, h", ["a-1", "a-3", "a-5"]), (", Room", ["a-7", "a-8", "a-9"])])
def test_q(listed, q, ids):
    q = q.replace(" ", "%20")
    rows = listed.ok("/accounts?sort=name&q=" + q)["accounts"]
    assert [a["id"] for a in rows] == ids
    assert pages(listed, "sort=name&q=" + q, 2) == rows


@pytest.mark.parametrize("query, word", [
    ("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"),
    ("limit=1&limit=1", "twice"), ("q=", "q"), ("q=" + "x" * 257, "q"),
    ("sort=", "sort"), ("sort=Name", "sort"), ("sort=held", "sort"),
    ("x=1", "x"), ("from=-1h", "from"),
    ("after=", "after"), ("after=x", "after"), ("after=name", "after"),
    ("after=opened:", "after"), ("after=opened:1", "after"),
    ("after=opened:1:", "after"), ("after=opened::a-1", "after"),
    ("after=opened:x:a-1", "after"), ("after=opened:1:a%201", "after"),
    ("after=opened:--1:a-1", "after"), ("after=:1:a-1", "after"),
    ("after=opened:99999999999999999999:a-1", "after"),
    ("after=opened:1:" + "a" * 65, "after"), ("after=config:1", "after"),
    ("after=ledger:a-1", "after"), ("after=name:0:a-1", "after"),
    ("after=opened:1:nobody", "after"),
    ("after=balance:1:nobody&sort=balance", "after"),
    ("sort=name&after=opened:0:a-1", "after"),
    ("after=name:0:a-1&sort=balance", "after"),
    ("sort=name&after=name:1:a-1", "after"),
    ("after=balance:1:a-1&sort=spent", "sort")])
def test_bad_lists_of_accounts(listed, query, word):
    refused(listed.get("/accounts?" + query), 400, "INVALID_FIELD", word)


# top-ups


def test_topup(admin, http):
    id = "invoice-17-" + http
    before = admin.balance("carol")
    r = admin.topup("carol", id, "10.00", version=http)
    assert r.status == 201 and r.complete, r
    assert_ids(r)
    after = admin.balance("carol")
    assert nano(after) == nano(before) + nano("10")
    assert r.json() == {"id": id, "account": "carol", "amount": "10.00",
                        "balance": after, "new": True}

    # durable: another process can read it at once
    rows = store(admin.gw, "SELECT count(*) FROM topups WHERE id = ?", id)
    assert rows == [(1,)]

    r = admin.topup("carol", id, "10", version=http)
    assert r.status == 200, r
    assert r.json() == {"id": id, "account": "carol", "amount": "10.00",
                        "balance": after, "new": False}
    assert admin.balance("carol") == after

    newest = admin.ok("/accounts/carol")["topups"][0]
    assert newest["id"] == id and newest["amount"] == "10.00"
    admin.gw.wait_log(r'\[notice\].* top-up "%s": 10.00 euro for account '
                      '"carol"' % id)


def nano(text):
    whole, _, part = text.partition(".")
    n = abs(int(whole)) * 10 ** 9 + int(part.ljust(9, "0"))
    return -n if text.startswith("-") else n


def store(gw, query, *args):
    db = sqlite3.connect("file:%s?mode=ro" % gw.path("ledger.db"), uri=True)
    try:
        return db.execute(query, args).fetchall()
    finally:
        db.close()


@pytest.mark.parametrize("account, amount", [("carol", "10.01"),
                                             ("carol", "9.999999999"),
                                             ("alice", "10.00")])
def test_topup_conflict(admin, account, amount):
    assert admin.topup("carol", "conflict-1", "10.00").status in (200, 201)
    before = admin.balance("carol"), admin.balance("alice")
    r = admin.topup(account, "conflict-1", amount)
    refused(r, 409, "TOPUP_CONFLICT", "conflict-1")
    assert (admin.balance("carol"), admin.balance("alice")) == before


@pytest.mark.parametrize("amount", [
    "0", "0.00", "0.000000000", "-1", "-0.01", "+1", "1e3", "", " 1", "1 ",
    "1.", ".5", "1,00", "1.0000000001", "1000000000", "9999999999999999999",
    "999999999.000000001", "999999999.999999999", "0x10", "NaN", "Infinity", "1.0.0", "١", "1\u0000", "1" * 300,
    1, 10.5, -1, True, None, [], {}, ["1"], {"euro": "1"}])
def test_bad_amount(admin, amount):
    before = admin.balance("alice")
    r = admin.topup("alice", "bad-amount", amount)
    refused(r, 400, "INVALID_FIELD", "amount")
    assert admin.balance("alice") == before


def test_balance_that_would_overflow(gateway):
    """A balance is nano-euro in an int64; a top-up that does not fit is
    refused, and earlier ones are still known."""
    g = Admin(gateway(**WITH_LEDGER, locations=ADMIN))
    for i in range(9):
        assert g.topup("alice", "big-%d" % i, "999999999").status == 201
    for _ in range(2):
        refused(g.topup("alice", "big-9", "999999999"), 400, "INVALID_FIELD",
                "amount", "balance")
    assert g.balance("alice") == "8999999996.00"
    assert g.topup("alice", "big-8", "999999999").status == 200
    assert g.topup("alice", "big-9", "223372040.854775807").status == 201
    assert g.balance("alice") == "9223372036.854775807"
    refused(g.topup("alice", "x", "0.000000001"), 400, "INVALID_FIELD",
            "balance")
    assert g.topup("carol", "x", "1.00").status == 201


@pytest.mark.parametrize("amount, shown", [
    ("0.000000001", "0.000000001"), ("1", "1.00"), ("007.5", "7.50"),
    ("1.100000000", "1.10")])
def test_good_amount(admin, amount, shown):
    r = admin.topup("alice", "good-" + shown, amount)
    assert r.status == 201 and r.json()["amount"] == shown, r


@pytest.mark.parametrize("id", [
    "", " ", "a b", "a/b", "ä", "a" * 65, "founding:alice", "founding:", "a\n",
    "a\u0000", "\ud800", "'; DROP TABLE topups; --", 1, None, [], {}, True])
def test_bad_id(admin, id):
    refused(admin.topup("alice", id, "1.00"), 400, "INVALID_FIELD", "id")


@pytest.mark.parametrize("id", ["a" * 64, "A.b_c@d:e-f", "founding", "0"])
def test_good_id(admin, id):
    refused(admin.topup("alice", id + ":" * 65, "1.00"), 400, "INVALID_FIELD",
            "id")                       # its bytes are no part of the next id
    assert admin.topup("alice", id, "1.00").status == 201
    assert admin.topup("alice", id, "1.00").status == 200


@pytest.mark.parametrize("body, code, words", [
    ("", "INVALID_JSON", "empty"),
    ("{", "INVALID_JSON", "byte 1"),
    ("[]", "INVALID_JSON", "object"),
    ('"x"', "INVALID_JSON", "object"),
    ("id=x&amount=1", "INVALID_JSON", "object"),
    ('{"id":"x","amount":"1.00"} {}', "INVALID_JSON", "nothing after"),
    ('{"id":"x","amount":"1.00",}', "INVALID_JSON", "key"),
    (b'{"id":"x\xff","amount":"1.00"}', "INVALID_JSON", "UTF-8"),
    ("{}", "MISSING_FIELD", '"id"'),
    ('{"id":"x"}', "MISSING_FIELD", '"amount"'),
    ('{"amount":"1.00"}', "MISSING_FIELD", '"id"'),
    ('{"id":"x","amount":"1.00","amount":"1.00"}', "INVALID_FIELD", "twice"),
    ('{"id":"x","amount":"1.00","amoun\\u0074":"2"}', "INVALID_FIELD", "twice"),
    ('{"id":"x","amount":"1.00","Amount":"2.00"}', "INVALID_FIELD", "Amount"),
    ('{"id":"x","amount":"1.00","note":"y"}', "INVALID_FIELD", '"note"'),
    ('{"id":"x","amount":"1.00","":1}', "INVALID_FIELD", '""'),
    ('{"id":"x","amount":"1.00","n":{"id":"y"}}', "INVALID_FIELD", '"n"'),
    ('{"i\\u0064":"x","amount":"1.00"}', "INVALID_FIELD", "Unknown field"),
    ('{"n":[{"a":"b"}],"id":"x","amount":"1.00"}', "INVALID_FIELD", '"n"'),
])
def test_bad_body(admin, body, code, words):
    before = admin.balance("alice")
    refused(admin.post("alice", body), 400, code, words)
    assert admin.balance("alice") == before


def test_odd_but_good_body(admin):
    r = admin.post("alice", '\n{ "amount" : "\\u0031.00",'
                            '"id":"odd:\\u0031" }\r\n')
    assert r.status == 201 and r.json()["id"] == "odd:1", r
    assert r.json()["amount"] == "1.00"


def test_body_in_pieces(admin, http):
    body = json.dumps({"id": "pieces-" + http, "amount": "1.00"})
    if http == "h2":
        assert admin.post("alice", body, version="h2").status == 201
        return
    r = client.h1(admin.gw.port, "POST", "/admin/accounts/alice/topups", [],
                  body, chunked=3)
    assert r.status == 201, r


@pytest.mark.parametrize("chunked", [False, True])
def test_body_too_large(admin, chunked):
    body = json.dumps({"id": "large", "amount": "1.00"}) + " " * 4096
    r = client.h1(admin.gw.port, "POST", "/admin/accounts/alice/topups", [],
                  body, chunked=chunked)
    refused(r, 413, "REQUEST_TOO_LARGE")
    rows = store(admin.gw, "SELECT count(*) FROM topups WHERE id = 'large'")
    assert rows == [(0,)]


def test_body_of_4096_bytes(admin):
    body = json.dumps({"id": "full", "amount": "1.00"}).ljust(4096)
    assert admin.post("alice", body).status == 201


@pytest.mark.parametrize("header", [("Origin", "https://evil.test"),
                                    ("Sec-Fetch-Site", "cross-site")])
def test_browsers_cannot_topup(admin, header):
    r = admin.topup("alice", "browser", "1.00", headers=[header])
    refused(r, 403, "FORBIDDEN")


def test_100_at_once_are_one(admin):
    """The same id, in parallel, is credited once."""
    before = nano(admin.balance("alice"))
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(
            lambda i: admin.topup("alice", "replay", "3.00"), range(100)))
    new = [r for r in answers if r.status == 201]
    known = [r for r in answers if r.status == 200]
    assert len(new) == 1, [r.status for r in answers]
    assert len(known) + len(new) + sum(r.status == 503 for r in answers) \
        == 100
    assert nano(admin.balance("alice")) == before + nano("3")


def test_ledger_that_cannot_be_written(gateway):
    """The answer says that the result is unknown; a retry with the same id
    settles it."""
    g = Admin(gateway(**WITH_LEDGER, locations=ADMIN))
    g.gw.expect("the ledger cannot be written")
    db = sqlite3.connect(g.gw.path("ledger.db"), isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    try:
        r = g.topup("alice", "x", "1.00", timeout=60)
        refused(r, 503, "SERVICE_UNAVAILABLE", "repeat it with the same id")
        assert r.get("retry-after")
        assert g.balance("alice") == "5.00"
    finally:
        db.execute("ROLLBACK")
        db.close()
    end = time.monotonic() + client.LIMIT
    while g.topup("alice", "x", "1.00").status not in (200, 201):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert g.balance("alice") == "6.00"


def test_client_that_leaves(admin):
    """The top-up may have been made; that does no harm."""
    for i in range(30):
        c = admin.gw.connect()
        c.request("POST", "/admin/accounts/alice/topups", [],
                  {"id": "leaves-%d" % i, "amount": "0.01"})
        c.reset()
    r = admin.topup("alice", "leaves-after", "0.01")
    assert r.status == 201, r
    n = store(admin.gw, "SELECT count(*) FROM topups WHERE id LIKE 'leaves-%'")
    assert 1 <= n[0][0] <= 31


def test_pipelined(admin):
    """One connection, three requests at once, three answers in order."""
    with admin.gw.connect() as c:
        c.send(client.build("POST", "/admin/accounts/alice/topups", [],
                            {"id": "pipe", "amount": "1.00"})
               + client.build("GET", "/admin/keys")
               + client.build("POST", "/admin/accounts/alice/topups", [],
                              {"id": "pipe", "amount": "1.00"}))
        answers = [c.response() for _ in range(3)]
    assert [r.status for r in answers] == [201, 200, 200], answers
    assert answers[2].json()["new"] is False


# calls and usage


@pytest.fixture(scope="module")
def called(module_gateway):
    """Two calls of bob, one of alice, in the store of a separate gateway."""
    gw = module_gateway(**WITH_LEDGER, locations=ADMIN.replace(
        "{", "{ gzip on; gzip_types text/csv; gzip_min_length 1;", 1))
    admin = Admin(gw)
    assert gw.chat().status == 200
    assert gw.chat({"model": "fam-b-two", "max_tokens": 5, "messages": [
        {"role": "user", "content": "Hi"}]}).status == 200
    assert gw.messages().status == 200
    end = time.monotonic() + client.LIMIT
    while len(admin.ok("/calls")["calls"]) < 3:
        assert time.monotonic() < end, "the calls are not written"
        time.sleep(0.02)
    return admin


def test_calls(called):
    calls = called.ok("/calls")["calls"]
    assert len(calls) == 3
    assert [c["model"] for c in calls] \
        == ["fam-a-large", "fam-b-two", "fam-b-one"]
    for c in calls:
        assert c["outcome"] == "reported" and c["end"] == "complete"
        assert c["status"] == 200 and nano(c["cost"]) > 0
    charged = sum(nano(c["cost"]) for c in calls if c["account"] == "bob-1")
    assert nano(called.balance("bob-1")) == nano("5") - charged


@pytest.mark.parametrize("query, n", [
    ("account=bob-1", 2), ("key=alice-1", 1), ("model=fam-b-two", 1),
    ("account=alice", 1), ("account=nobody", 0), ("key=bob-1&model=fam-a-large",
                                                  0),
    ("limit=1", 1), ("limit=10000", 3), ("from=2020-01-01", 3),
    ("to=2020-01-01", 0), ("to=9999-12-31", 3), ("", 3), ("&", 3),
    ("from=2020-01-01T00:00:00Z&to=9999-12-31T23:59:60.999999%2B00:00", 3),
    ("from=2020-01-01T00:00:00+02:00", 3), ("account=bob%2D1", 2),
    ("outcome=reported", 3), ("outcome=unsent", 0), ("end=complete", 3),
    ("end=lost", 0), ("status=200", 3), ("status=429", 0), ("status=0", 0),
    ("min_cost=0", 3), ("min_cost=0.000000001", 3), ("min_cost=1", 0),
    ("request_id=none", 0), ("request_id=none&to=2026-01-01", 0),
    ("request_id=none&to=1970-01-01T00:00:01Z", 0), ("from=-1h", 3), ("from=-7d&to=now", None),
    ("to=-90m", 0), ("from=yesterday", 3), ("after=1-1", 0)])
def test_filters(called, query, n):
    calls = called.ok("/calls?" + query)["calls"]
    assert len(calls) == n or n is None


def test_request_id(admin):
    """The id that a client was told finds its call, in the last day or a
    span."""
    r = admin.gw.chat()
    id = r.get("request-id")
    end = time.monotonic() + client.LIMIT
    while not admin.ok("/calls?request_id=" + id)["calls"]:
        assert time.monotonic() < end, "the call is not written"
        time.sleep(0.02)
    (call,) = admin.ok("/calls?from=-7d&request_id=" + id)["calls"]
    assert call["request_id"] == id and call["key"] == "bob-1"
    assert 0 <= call["first_byte_ms"] <= call["duration_ms"]
    assert call["stream"] is call["translated"] is False
    assert admin.ok("/calls?to=-1h&from=-7d&request_id=" + id)["calls"] == []

    one = admin.ok("/calls/%d" % call["id"])
    assert one["call"] == call and set(one) == {"call", "price"}


@pytest.mark.parametrize("id", ["0", "x", "-1", "1x", "999999999999", "1/2",
                                "99999999999999999999", "%01", ""])
def test_no_such_call(called, id):
    refused(called.get("/calls/" + id), 404, "NOT_FOUND")


def test_pages(called):
    """The pages of any size have each call once, newest first."""
    calls = called.ok("/calls")["calls"]
    assert [c["ended"] for c in calls] == sorted((c["ended"] for c in calls),
                                                 reverse=True)
    for limit in range(1, len(calls) + 1):
        got, after = [], ""
        for _ in range(len(calls) + 1):
            answer = called.ok("/calls?limit=%d%s" % (limit, after))
            got += answer["calls"]
            if "next" not in answer:
                break
            after = "&after=" + answer["next"]
        assert got == calls


def as_csv(r):
    assert r.status == 200 and r.complete, r
    assert r.get("content-type") == "text/csv; charset=utf-8"
    assert r.get("cache-control") == "no-store"
    assert_ids(r)
    return list(csv.DictReader(io.StringIO(r.body.decode(), newline="")))


ACCEPT = [("Accept", "text/csv")]


def test_csv(called, http):
    calls = called.ok("/calls")["calls"]
    lines = as_csv(called.get("/calls", headers=ACCEPT, version=http))
    assert [{k: str(v) for k, v in c.items() if type(v) is not bool}
            for c in calls] \
        == [{k: v for k, v in line.items() if k not in ("stream", "translated")}
            for line in lines]
    r = called.get("/calls?key=nobody", headers=ACCEPT)
    assert as_csv(r) == [] and r.body.startswith(b"id,time,")
    assert len(as_csv(called.get("/calls?limit=1000000", headers=ACCEPT))) \
        == len(calls)
    r = called.get("/calls", headers=ACCEPT + [("Accept-Encoding", "gzip")])
    assert r.get("content-encoding") == "gzip"
    assert gzip.decompress(r.body) == called.get("/calls", headers=ACCEPT).body
    assert len(as_csv(called.get("/calls?limit=2", headers=ACCEPT))) == 2
    refused(called.get("/calls?limit=1000001", headers=ACCEPT), 400,
            "INVALID_FIELD", "limit")
    refused(called.get("/calls?after=x", headers=ACCEPT), 400,
            "INVALID_FIELD", "after")
    r = called.gw.request("HEAD", "/admin/calls", headers=ACCEPT)
    assert r.status == 200 and r.body == b""


def test_more(called):
    """Only a truncated answer has "more"."""
    for path, n in (("/calls?", 3), ("/usage?by=model&", 3),
                    ("/usage?by=account&", 2), ("/calls?key=alice-1&", 1)):
        for limit in range(1, n + 2):
            answer = called.ok(path + "limit=%d" % limit)
            (rows,) = [v for v in answer.values() if isinstance(v, list)]
            assert len(rows) == min(limit, n)
            assert answer.get("more") == (True if limit < n else None)
            place = limit < n and path.startswith("/calls")
            assert ("next" in answer) == place
            assert len(answer) == 1 + (limit < n) + place


def test_times(called):
    """All forms of a time mean the same time; from is inclusive, to exclusive.
    The end of a call counts: then it was charged."""
    ends = dict(store(called.gw, "SELECT id, ended FROM calls"))
    last = max(ends.values())
    day = time.strftime("%Y-%m-%d", time.gmtime(last // 1000))
    clock = time.strftime("%H:%M:%S", time.gmtime(last // 1000)) \
        + ".%03d" % (last % 1000)

    def ids(query):
        return {c["id"] for c in called.ok("/calls?" + query)["calls"]}

    times = ["%sT%sZ", "%st%sz", "%s%%20%s%%2B00:00", "%sT%s-00:00"]
    times = [text % (day, clock) for text in times]
    h, rest = int(clock[:2]), clock[2:]
    if 2 <= h <= 21:
        times += ["%sT%02d%s+01:00" % (day, h + 1, rest),
                  "%sT%02d%s-02:00" % (day, h - 2, rest)]
    for text in times:
        assert ids("from=" + text) == {i for i in ends if ends[i] >= last}
        assert ids("to=" + text) == {i for i in ends if ends[i] < last}


@pytest.mark.parametrize("query, word", [
    ("limit=0", "limit"), ("limit=10001", "limit"), ("limit=-1", "limit"),
    ("limit=x", "limit"), ("limit=", "limit"), ("limit", "limit"),
    ("limit=1&limit=1", "twice"), ("limits=1", "limits"), ("by=day", "by"),
    ("Account=x", "Account"), ("account=", "account"), ("account=a%20b",
                                                        "account"),
    ("account=%27", "account"), ("key=" + "a" * 65, "key"),
    ("model=%00", "model"), ("model=a%22", "model"), ("=", '""'),
    ("from=2027-02-29", "from"), ("from=2027-13-01", "from"),
    ("from=tomorrow", "from"), ("from=", "from"), ("from=-24", "from"),
    ("from=-h", "from"), ("from=24h", "from"), ("from=--24h", "from"),
    ("from=-24x", "from"), ("from=-999999999999d", "from"),
    ("from=Yesterday", "from"), ("from=now&to=now", "before"),
    ("from=today&to=yesterday", "before"),
    ("outcome=x", "outcome"), ("outcome=", "outcome"), ("end=", "end"),
    ("end=Complete", "end"), ("status=99", "status"), ("status=600", "status"),
    ("status=-1", "status"), ("status=2xx", "status"),
    ("request_id=", "request_id"), ("min_cost=-1", "min_cost"),
    ("min_cost=1e3", "min_cost"), ("min_cost=", "min_cost"),
    ("after=", "after"), ("after=1", "after"), ("after=1-", "after"),
    ("after=1-0", "after"), ("after=x-1", "after"), ("after=-1-1", "after"),
    ("after=1-1%27", "after"), ("after=1-8000000000000000", "after"), ("from=2027-1-1", "from"),
    ("from=2027-01-01T", "from"), ("from=2027-01-01T00:00:00", "from"),
    ("from=2027-01-01T24:00:00Z", "from"), ("from=2027-01-01T00:60:00Z",
                                            "from"),
    ("from=2027-01-01T00:00:00.Z", "from"), ("from=2027-01-01T00:00Z", "from"),
    ("from=2027-01-01T00:00:00Zx", "from"), ("from=2027-01-01x", "from"),
    ("from=2027-01-01T00:00:00%2B0100", "from"),
    ("from=2027-01-01T00:00:00+24:00", "from"),
    ("from=1969-12-31", "from"), ("from=1970-01-01T00:00:00%2B01:00", "from"),
    ("from=1700000000", "from"), ("to=x", "to"),
    ("from=2027-01-02&to=2027-01-01", "before"),
    ("from=2027-01-01&to=2027-01-01", "before"),
    ("x" * 2000, "x" * 64)])
def test_bad_filters(admin, query, word):
    refused(admin.get("/calls?" + query), 400, "INVALID_FIELD", word)


@pytest.mark.parametrize("path", ["/keys/bob-1", "/groups",
                                  "/accounts/alice"])
def test_no_parameters(admin, path):
    refused(admin.get(path + "?limit=1"), 400, "INVALID_FIELD", "limit")
    assert admin.ok(path + "?")


@pytest.mark.parametrize("by, names", [
    ("key", {"alice-1", "bob-1"}), ("account", {"alice", "bob-1"}),
    ("model", {"fam-a-large", "fam-b-one", "fam-b-two"})])
def test_usage(called, by, names):
    rows = called.ok("/usage?by=" + by)["usage"]
    assert {row[by] for row in rows} == names
    assert sum(row["calls"] for row in rows) == 3
    assert sum(nano(row["cost"]) for row in rows) \
        == sum(nano(c["cost"]) for c in called.ok("/calls")["calls"])


def test_usage_by_day(called):
    by_day = called.ok("/usage?by=day")["usage"]
    assert called.ok("/usage")["usage"] == by_day
    assert sum(row["calls"] for row in by_day) == 3
    today = time.strftime("%Y-%m-%d", time.gmtime())
    assert by_day[0]["day"] <= today
    only = called.ok("/usage?by=day&account=bob-1&model=fam-b-one")["usage"]
    assert [row["calls"] for row in only] == [1]


@pytest.mark.parametrize("by, one", [
    ("account,day", "account"), ("hour,key", "key"), ("model,month", "model"),
    ("key,account", "key")])
def test_usage_by_two(called, by, one):
    two = called.ok("/usage?from=-1h&by=" + by)["usage"]
    for row in two:
        assert ",".join(list(row)[:2]) == by
    sums = {}
    for row in two:
        sums[row[one]] = sums.get(row[one], 0) + row["calls"]
    assert sums == {row[one]: row["calls"]
                    for row in called.ok("/usage?by=" + one)["usage"]}


@pytest.mark.parametrize("by, seconds", [("hour", 3600), ("day", 86400)])
def test_series(called, by, seconds):
    """Without gaps from the beginning of a span to now."""
    series = called.ok("/usage?from=-7d&by=" + by)["usage"]
    assert 7 * 86400 / seconds <= len(series) <= 7 * 86400 / seconds + 2
    assert sum(row["calls"] for row in series) \
        == len(called.ok("/calls")["calls"])
    assert series[-1]["calls"] == 0 and series[-1]["avg_ms"] is None
    assert len(called.ok("/usage?from=-7d&to=-6d&by=" + by)["usage"]) \
        in (86400 / seconds, 86400 / seconds + 1)


@pytest.mark.parametrize("by", ["", "week", "Day", "day,day", "day,hour",
                                "day,key,model", "day,", ",day", "key,x",
                                "outcome"])
def test_usage_by_what(admin, by):
    refused(admin.get("/usage?by=" + by), 400, "INVALID_FIELD", "by")


# days of a time zone

ZONES = {"+02:00": 2, "-05:00": -5, "%2B14:00": 14, "-12:00": -12, "Z": 0,
         "z": 0, "+00:00": 0, "-00:00": 0}

DAY = 86400000


@pytest.fixture(scope="module")
def zoned(module_gateway):
    """Calls at both ends of 2026-03-01 in each zone, of a model each; and at
    today's beginning."""
    g = Admin(module_gateway(**dict(WITH_LEDGER, http=LEDGER.replace(
        ";", " keep=10000d;", 1)), locations=ADMIN))
    g.gw.stop()
    ended = []
    for zone in sorted(set(ZONES.values())):
        begin = calendar.timegm((2026, 3, 1, 0, 0, 0)) * 1000 - zone * 3600000
        ended += [("m%d" % zone, t, cost) for t, cost in (
            (begin - 1, 1), (begin, 10), (begin + DAY - 1, 100),
            (begin + DAY, 1000))]
        begin = today(zone)
        ended += [("n%d" % zone, t, cost) for t, cost in (
            (begin - DAY - 1, 1), (begin - DAY, 10), (begin - 1, 100),
            (begin, 1000))]
    put(g.gw, ended)
    g.gw.start()
    return g


def today(zone):
    """The zone's midnight before now."""
    now = int(time.time() * 1000)
    return now - (now + zone * 3600000) % DAY


def put(gw, ended):
    """Adds calls of a model, at a time, of a cost to a stopped gateway."""
    db = sqlite3.connect(gw.path("ledger.db"), timeout=client.LIMIT)
    columns = [row[1:3] for row in db.execute("PRAGMA table_info(calls)")]
    for id, (model, time_, cost) in enumerate(ended, 1):
        row = {name: 0 if kind == "INTEGER" else "x" for name, kind in columns}
        row.update(id=id, time=time_, ended=time_, model=model, cost=cost,
                   status=200)
        db.execute("INSERT INTO calls VALUES (%s)" % ", ".join("?" * len(row)),
                   list(row.values()))
    db.execute("DELETE FROM marks WHERE name = 'hours'")
    db.commit()
    db.close()


def costs(g, name, query):
    """[(text of the time, cost in nano-euro)], newest first."""
    return [(row[name], nano(row["cost"]))
            for row in g.ok("/usage?" + query)["usage"]]


@pytest.mark.parametrize("tz", ZONES)
def test_days_of_a_zone(zoned, tz):
    query = "model=m%d&tz=%s&" % (ZONES[tz], tz)
    days = [("2026-03-02", 1000), ("2026-03-01", 110), ("2026-02-28", 1)]
    assert costs(zoned, "day", query + "by=day&from=2026-02-28"
                 "&to=2026-03-03") == days
    assert costs(zoned, "day", query + "from=2026-02-26&to=2026-03-05") \
        == [("2026-03-04", 0), ("2026-03-03", 0)] + days \
        + [("2026-02-27", 0), ("2026-02-26", 0)]
    assert costs(zoned, "day", query + "by=day,model&from=2026-01-01"
                 "&to=2026-03-02") == days[1:]
    assert costs(zoned, "month", query + "by=month&from=2026-01-01"
                 "&to=2026-03-02") \
        == [("2026-03", 110), ("2026-02", 1), ("2026-01", 0)]
    assert costs(zoned, "month", query + "by=month&from=2026-02-01"
                 "&to=2026-04-01") == [("2026-03", 1110), ("2026-02", 1)]

    # hours stay those of UTC, 24 of them in a day

    hours = costs(zoned, "hour", query + "by=hour&from=2026-03-01"
                  "&to=2026-03-02")
    assert [cost for _, cost in hours] == [100] + [0] * 22 + [10]
    assert hours[-1][0] == "2026-%sT%02d:00:00.000Z" % (
        "02-28" if ZONES[tz] > 0 else "03-01", -ZONES[tz] % 24)

    # truncated

    answer = zoned.ok("/usage?%sfrom=2026-02-28&to=2026-03-03&limit=2" % query)
    assert [row["day"] for row in answer["usage"]] \
        == ["2026-03-02", "2026-03-01"] and answer["more"] is True


@pytest.mark.parametrize("tz", ZONES)
def test_calls_of_a_zone(zoned, tz):
    """Its pages, too; times that have an offset of their own do not change."""
    query = "/calls?model=m%d" % ZONES[tz]
    day = "&from=2026-03-01&to=2026-03-02"
    got, after = [], ""
    for _ in range(2):
        answer = zoned.ok("%s&tz=%s%s&limit=1%s" % (query, tz, day, after))
        got += answer["calls"]
        after = "&after=" + answer.get("next", "")
    assert "more" not in answer
    assert [nano(call["cost"]) for call in got] == [100, 10]

    offset = "Z" if ZONES[tz] == 0 else tz
    span = "&from=2026-03-01T00:00:00%s&to=2026-03-01T23:59:59.999%s" \
        % (offset, offset)
    for more in ("", "&tz=+07:00", "&tz=-07:00"):
        calls = zoned.ok(query + span + more)["calls"]
        assert [nano(call["cost"]) for call in calls] == [10]


@pytest.mark.parametrize("tz", ZONES)
def test_today_in_a_zone(zoned, tz):
    query = "by=model&model=n%d&tz=%s" % (ZONES[tz], tz)
    for span, cost in (("from=today", 1000), ("to=today", 111),
                       ("from=yesterday&to=today", 110),
                       ("from=yesterday", 1110), ("to=yesterday", 1),
                       ("to=now", 1111)):
        for _ in range(2):
            begin = today(ZONES[tz])
            rows = costs(zoned, "model", query + "&" + span)
            if begin == today(ZONES[tz]):
                break
        assert rows == [("n%d" % ZONES[tz], cost)], span
    for span in ("from=-1d", "from=-24h", "from=-1440m", "to=-36h"):
        for path in ("/calls?", "/usage?by=key&"):
            for zone in ("", "&tz=+14:00"):
                assert zoned.get(path + span + zone).status == 200


def test_order_of_parameters(zoned):
    """The zone may be before and after the times."""
    parts = ["tz=-05:00", "from=2026-03-01", "to=2026-03-02", "model=m-5",
             "by=key"]
    for order in itertools.permutations(parts):
        assert costs(zoned, "key", "&".join(order)) == [("x", 110)]
    assert costs(zoned, "key", "&".join(["from=2026-03-01", "to=2026-03-02",
                                         "model=m-5", "by=key"])) != \
        [("x", 110)]


@pytest.mark.parametrize("tz", [
    "", "+1", "1", "+01", "+0100", "+01:30", "-09:30", "+05:45", "+25:00",
    "+15:00", "-13:00", "+14:30", "+1:00", "+01:0", "+01:000", "+01:00:00",
    "01:00", "%2001:00", "Zz", "UTC", "Europe/Berlin", "+ab:00", "+01:-1",
    "+-1:00", "++1:00", "%2B01%3A00%00"])
def test_bad_zones(admin, tz):
    for path in ("/usage?by=day&", "/calls?"):
        for query in ("tz=%s&from=today", "from=today&tz=%s"):
            refused(admin.get(path + query % tz), 400, "INVALID_FIELD",
                    '"tz" must be an offset in whole hours from -12:00 to '
                    '+14:00')


@pytest.mark.parametrize("path, word", [
    ("/usage?tz=Z&tz=Z", "twice"), ("/usage?tz=Z&from=today&tz=+01:00", "twice"),
    ("/usage?TZ=+01:00", "TZ"), ("/calls?TZ=+01:00&tz=+02:00", "TZ"),
    ("/usage?tz", "tz"), ("/actions?tz=Z", "tz"), ("/accounts?tz=Z", "tz"),
    ("/keys?tz=Z", "tz"), ("/calls?from=1970-01-01&tz=+01:00", "from"),
    ("/calls?to=1970-01-01&tz=+14:00", "to")])
def test_zones_elsewhere(admin, path, word):
    refused(admin.get(path), 400, "INVALID_FIELD", word)


# usage as CSV


@pytest.mark.parametrize("query", [
    "by=hour&from=-3h", "by=day&from=-2d", "by=month&from=2026-01-01",
    "by=key", "by=model", "by=account", "by=account,day", "by=hour,model",
    "by=model,key", "", "by=day&tz=+14:00&from=yesterday", "by=key&limit=1",
    "by=day&from=-5d&to=-3d", "by=key&account=nobody"])
def test_usage_csv(called, http, query):
    """The same rows, columns and order as of JSON."""
    answer = called.ok("/usage?" + query)["usage"]
    r = called.get("/usage?" + query, headers=ACCEPT, version=http)
    assert [{k: "" if v is None else str(v) for k, v in row.items()}
            for row in answer] == as_csv(r)
    head, *lines = r.body.decode().split("\r\n")
    assert lines.pop() == ""
    assert len(lines) == len(answer)
    sums = "calls,errors,input_tokens,cache_read_tokens,cache_write_tokens," \
        "cache_write_1h_tokens,output_tokens,reasoning_tokens,cost,avg_ms," \
        "avg_first_byte_ms"
    assert head.endswith("," + sums)
    if answer:
        assert head == ",".join(answer[0])


def test_usage_csv_is_no_formula(module_gateway):
    g = Admin(module_gateway(**WITH_LEDGER, locations=ADMIN))
    g.gw.stop()
    now = int(time.time() * 1000)
    models = ["=1+1", "+1", "-1", "@x", "\tx", 'a"b,c', "a=b", "x"]
    put(g.gw, [(model, now, 1 + i) for i, model in enumerate(models)])
    g.gw.start()
    rows = as_csv(g.get("/usage?by=model", headers=ACCEPT))
    assert [row["model"] for row in rows][::-1] \
        == ["'" + model for model in models[:5]] + models[5:]


def test_usage_csv_is_whole(called):
    """More rows than it has are refused, unless so many were asked for."""
    for limit in ("", "&limit=10001", "&limit=1000000"):
        refused(called.get("/usage?by=hour&from=2020-01-01" + limit,
                           headers=ACCEPT), 400, "INVALID_FIELD", "Too many")
    r = called.get("/usage?by=hour&from=2020-01-01&limit=10000",
                   headers=ACCEPT)
    assert len(as_csv(r)) == 10000
    assert len(as_csv(called.get("/usage?by=key&limit=1000000",
                                 headers=ACCEPT))) == 2
    for bad, word in (("limit=0", "limit"), ("limit=1000001", "limit"),
                      ("by=week", "by"), ("after=1-1", "after")):
        refused(called.get("/usage?" + bad, headers=ACCEPT), 400,
                "INVALID_FIELD", word)
    r = called.gw.request("HEAD", "/admin/usage", headers=ACCEPT)
    assert r.status == 200 and r.body == b""
    r = called.get("/usage", headers=ACCEPT + [("Accept-Encoding", "gzip")])
    assert gzip.decompress(r.body) == called.get("/usage", headers=ACCEPT).body


# refusals

LIMITED = [Key("once", "b", "rpm=1 account=rich"),
           Key("again", "a", "rpm=1 account=rich"),
           Key("poor", "b", "account=poor")]


def refusals(g):
    """The answer, as {key: {result: n}} and {(group, endpoint, code): n}."""
    answer = g.ok("/refusals")
    assert sorted(answer) == ["codes", "keys", "since"]
    totals = [sum(v for v in row.values() if isinstance(v, int))
              for row in answer["keys"]]
    assert totals == sorted(totals, reverse=True) and 0 not in totals
    requests = [row["requests"] for row in answer["codes"]]
    assert requests == sorted(requests, reverse=True) and 0 not in requests
    return ({row["id"]: {k: v for k, v in row.items() if k != "id" and v}
             for row in answer["keys"]},
            {(row["group"], row["endpoint"], row["code"]): row["requests"]
             for row in answer["codes"]})


def wait_refusals(g, *expected):
    """A request is counted when it ends, after its answer."""
    end = time.monotonic() + client.LIMIT
    while refusals(g) != expected:
        assert time.monotonic() < end, refusals(g)
        time.sleep(0.02)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_refusals(gateway, workers):
    g = Admin(gateway(**WITH_LEDGER, locations=ADMIN + LOCATION, keys=LIMITED,
                      workers=workers))
    begun = time.time()
    assert refusals(g) == ({}, {})
    assert g.gw.chat(key=LIMITED[0]).status == 200
    assert refusals(g) == ({}, {})
    for n in range(5):
        assert g.gw.chat(key=LIMITED[0]).status == 429
    assert g.gw.messages(key=LIMITED[1]).status == 200
    for n in range(2):
        assert g.gw.messages(key=LIMITED[1]).status == 429
    for n in range(3):
        assert g.gw.chat(chat(max_tokens=4000, n=100000),
                         key=LIMITED[2]).status == 402
        assert g.gw.chat(key=Key("stranger", "b")).status == 401
        assert g.gw.chat(chat("nosuch")).status == 400
    g.gw.b.script(reply_json(chat_error("x"), 500))
    assert g.gw.chat().status == 502

    expected = ({"once": {"rate_limited": 5}, "again": {"rate_limited": 2},
                 "bob-1": {"refused": 3, "failed": 1},
                 "poor": {"insufficient_credit": 3}},
                {("b", "chat", "RATE_LIMITED"): 5,
                 ("a", "messages", "RATE_LIMITED"): 2,
                 ("b", "chat", "INSUFFICIENT_CREDIT"): 3,
                 ("", "chat", "INVALID_API_KEY"): 3,
                 ("b", "chat", "INVALID_MODEL"): 3,
                 ("b", "chat", "UPSTREAM_ERROR"): 1})
    wait_refusals(g, *expected)
    answer = g.ok("/refusals")
    assert [row["id"] for row in answer["keys"]][0] == "once"
    assert all(len(row) == 6 for row in answer["keys"])
    since = time.strptime(answer["since"], "%Y-%m-%dT%H:%M:%S.000Z")
    assert begun - 60 < calendar.timegm(since) <= begun

    refused(g.get("/refusals?limit=1"), 400, "INVALID_FIELD",
            'Unknown parameter "limit"')

    # a reload keeps them, also those of a key that is gone

    g.gw.keys = [key for key in g.gw.keys if key.id != "once"]
    g.gw.write()
    g.gw.reload()
    assert refusals(g) == expected and g.ok("/refusals") == answer
    assert g.gw.chat(chat("nosuch")).status == 400
    expected[0]["bob-1"]["refused"] += 1
    expected[1]["b", "chat", "INVALID_MODEL"] += 1
    wait_refusals(g, *expected)


def test_refusals_without_rows(gateway):
    """Of keys without counters of their own only the codes are known."""
    g = Admin(gateway(**WITH_LEDGER, locations=ADMIN + LOCATION.replace(
        "modelgw_metrics;", "modelgw_metrics keys=0;"), keys=LIMITED))
    assert g.gw.chat(b"{").status == 400
    wait_refusals(g, {}, {("b", "chat", "INVALID_JSON"): 1})


def test_refusals_without_metrics(admin):
    refused(admin.get("/refusals"), 404, "NOT_FOUND", '"modelgw_metrics"')


# keys


def test_keys(admin, http):
    keys = {k["id"]: k for k in admin.ok("/keys", version=http)["keys"]}
    assert keys["alice-1"] == {
        "id": "alice-1", "group": "a", "account": "alice", "models": None,
        "rpm": None, "tpm": None, "concurrency": None,
        "used": {"rpm": None, "tpm": None, "concurrency": None},
        "resets_in": {"rpm": None, "tpm": None}, "budget": None,
        "budget_used": None, "budget_resets_in": None, "expires": None,
        "source": "config", "state": "active", "last_used": None}
    assert keys["erin@x.test"] == {
        "id": "erin@x.test", "group": "b", "account": "pool:1", "models": None,
        "rpm": 60, "tpm": 1000, "concurrency": 2,
        "used": {"rpm": 0, "tpm": 0, "concurrency": 0},
        "resets_in": {"rpm": 0, "tpm": 0}, "budget": None,
        "budget_used": None, "budget_resets_in": None, "expires": "2035-02-28",
        "source": "config", "state": "active", "last_used": None}
    assert keys["frank"]["models"] == ["fam-a-small", "fam-a-mini"]
    assert keys["dave-1"]["expires"] == "2020-01-01"
    assert len(keys) == 6


def test_no_secrets(admin):
    for path in ("/keys", "/accounts", "/accounts/alice", "/calls", "/usage"):
        text = admin.get(path).body.decode()
        for secret in admin.gw.secrets():
            assert secret not in text


# requests


@pytest.mark.parametrize("path, allow", [
    ("/accounts", "GET, HEAD, POST"), ("/accounts/alice", "GET, HEAD, PATCH"),
    ("/accounts/alice/topups", "POST"), ("/calls", "GET, HEAD"),
    ("/actions", "GET, HEAD"), ("/refusals", "GET, HEAD"),
    ("/usage", "GET, HEAD"), ("/keys", "GET, HEAD, POST"),
    ("/keys/alice-1", "GET, HEAD, PATCH, DELETE"), ("/groups", "GET, HEAD"),
    ("/keys/alice-1/rotate", "POST"), ("/models", "GET, HEAD")])
def test_methods(admin, path, allow):
    for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        if method in allow:
            continue
        r = admin.gw.request(method, "/admin" + path, body=b"{}")
        refused(r, 405, "METHOD_NOT_ALLOWED", allow)
        assert r.get("allow") == allow


@pytest.mark.parametrize("path", ["/accounts", "/accounts/alice", "/keys",
                                  "/calls", "/usage"])
def test_head(admin, path):
    with admin.gw.connect() as c:
        c.request("HEAD", "/admin" + path)
        r = c.response(method="HEAD")
        assert r.status == 200
        assert int(r.get("content-length")) == len(admin.get(path).body)
        c.request("GET", "/admin" + path)
        assert c.response().status == 200


@pytest.mark.parametrize("path", ["", "/", "/x", "/accounts/", "/account",
                                  "/keys/", "/keys/nobody", "/calls/1",
                                  "//topups", "/Accounts"])
def test_not_found(admin, path):
    refused(admin.get(path or "/"), 404, "NOT_FOUND")


def test_keepalive(admin):
    with admin.gw.connect() as c:
        for path, status in (("/accounts", 200), ("/x", 404), ("/keys", 200),
                             ("/calls?x=1", 400), ("/accounts/alice", 200)):
            c.request("GET", "/admin" + path)
            assert c.response().status == status


def test_reading_clients_leave(admin):
    """Jobs whose client has left end, and free their slot."""
    for i in range(40):
        c = admin.gw.connect()
        c.request("GET", "/admin/calls?limit=10000")
        c.reset()
    end = time.monotonic() + client.LIMIT
    while admin.get("/calls").status != 200:
        assert time.monotonic() < end, "all slots are taken"
        time.sleep(0.02)


def test_long_questions(gateway):
    """Four at a time are answered.  Those whose client has left end at once,
    and nginx stops without waiting for them; a top-up does not wait for
    any."""
    g = Admin(gateway(**WITH_LEDGER, locations=ADMIN, workers=1))
    g.gw.stop()
    fill(g.gw, 150000)
    g.gw.start()
    summed(g.gw, 150000)

    before = g.gw.cpu()
    assert g.get("/usage?by=key").status == 200
    alone = g.gw.cpu() - before

    def ask(n):
        """n queries that are running, once they are admitted.  There is one
        worker, which answers in order: when the later 404 is received, the
        queries that it refuses have been refused."""
        conns, end = [], time.monotonic() + client.LIMIT
        while len(conns) < n:
            assert time.monotonic() < end
            c = g.gw.connect()
            c.request("GET", "/admin/usage?by=key")
            refused(g.get("/x"), 404, "NOT_FOUND")
            try:
                c.recv(0.001)
                c.close()
            except TimeoutError:
                conns.append(c)
        return conns

    conns = ask(4)
    for path in ("/accounts/alice", "/calls", "/calls/1"):
        r = g.get(path)
        refused(r, 503, "SERVICE_UNAVAILABLE")
        assert r.get("retry-after")
    assert g.topup("alice", "meanwhile", "1.00").status == 201
    for c in conns:
        assert c.response(60).status == 200
        c.close()

    def left():
        """CPU time of four after their clients have left."""
        conns = ask(4)
        before = g.gw.cpu()
        for c in conns:
            c.reset()
        end = time.monotonic() + client.LIMIT
        while g.get("/calls/1").status == 503:
            assert time.monotonic() < end
            time.sleep(0.01)
        return g.gw.cpu() - before

    # once is enough: the others may have been about to end
    assert min(left() for _ in range(5)) < alone, "queries go on"

    conns = ask(4)
    before = ended_cpu() + g.gw.cpu()
    process, g.gw.process = g.gw.process, None
    process.terminate()
    assert process.wait(client.LIMIT) == 0
    assert ended_cpu() - before < alone + 0.5, "nginx waits for queries"
    assert not g.gw.faults(), g.gw.faults()
    for c in conns:
        c.close()


def fill(gw, n):
    """Adds so many calls to the store of a stopped nginx that a query takes
    long.  Calls that ended in one millisecond are added to the hours in one
    transaction: each has its own."""
    db = sqlite3.connect(gw.path("ledger.db"), timeout=client.LIMIT)
    columns = [row[1:3] for row in db.execute("PRAGMA table_info(calls)")]
    now = int(time.time() * 1000)
    values = []
    for name, kind in columns:
        if name in ("time", "ended"):
            values.append("%d + value" % (now - n))
        elif kind == "INTEGER":
            values.append("1000000 + value")
        else:
            values.append("'x' || (value * 7919 % 600011)")
    db.execute("WITH RECURSIVE s(value) AS (SELECT 1 UNION ALL SELECT value + "
               "1 FROM s WHERE value < %d) INSERT INTO calls (%s) SELECT %s "
               "FROM s" % (n, ", ".join('"%s"' % c[0] for c in columns),
                           ", ".join(values)))
    db.commit()
    db.close()


def summed(gw, n):
    """The writer has added them to the hours, and does nothing any more."""
    end = time.monotonic() + client.LIMIT
    db = sqlite3.connect(gw.path("ledger.db"), timeout=client.LIMIT)
    while db.execute("SELECT sum(calls) FROM hours").fetchone() != (n,):
        assert time.monotonic() < end
        time.sleep(0.1)
    db.close()


def test_long_csv(gateway):
    """More than a part; at a limited rate, compressed, to a client that reads
    slowly, and one that leaves."""
    g = Admin(gateway(**WITH_LEDGER, locations=ADMIN + """
        location /limited/ { modelgw_admin; limit_rate 4m; send_timeout 1s; }
        location /gzipped/ { modelgw_admin; gzip on; gzip_types text/csv; }
"""))
    g.gw.stop()
    fill(g.gw, 45000)
    g.gw.start()

    r = g.get("/calls", headers=ACCEPT)
    ids = [int(line["id"]) for line in as_csv(r)]
    assert len(ids) == len(set(ids)) == 45000
    assert ids == sorted(ids, reverse=True)
    assert len(as_csv(g.get("/calls?limit=10001", headers=ACCEPT))) == 10001

    for path in ("limited", "gzipped"):
        r = Admin(g.gw, "/" + path).get("/calls?limit=30000", headers=ACCEPT + [
            ("Accept-Encoding", "gzip")])
        text = gzip.decompress(r.body) if path == "gzipped" else r.body
        assert text.count(b"\r\n") == 30001

    for size, buffer in ((100000, 4096), (3000000, 65536)):
        with g.gw.connect() as c:
            c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            c.request("GET", "/admin/calls", ACCEPT)
            assert c.head().status == 200
            got = 0
            while got < size:
                got += len(c.sock.recv(65536))

    # all of its memory and threads are given back

    for _ in range(8):
        assert len(as_csv(g.get("/calls?limit=1", headers=ACCEPT))) == 1


def test_a_reader_waits(gateway):
    """A writer that closes the file as the last one locks it until its
    checkpoint is on the disk.  In the writer's own worker SQLite does not
    lock it again."""
    g = Admin(gateway(**WITH_LEDGER, locations=ADMIN, workers=2))
    pending = 0x40000000    # SQLite's PENDING_BYTE, which readers lock first
    with open(g.gw.path("ledger.db"), "r+b") as f:
        fcntl.lockf(f, fcntl.LOCK_EX, 1, pending)
        end = time.monotonic() + client.LIMIT
        while True:
            assert time.monotonic() < end, "no reader waits"
            c = g.gw.connect()
            c.request("GET", "/admin/accounts")
            try:
                assert c.recv(0.3)
            except TimeoutError:
                break
            assert c.response().status == 200
            c.close()
        fcntl.lockf(f, fcntl.LOCK_UN, 1, pending)
        assert c.response().status == 200
        c.close()


# by kind: what one is asked with, and how many are processed at a time

KINDS = {
    "store": ([("/admin/usage", ()), ("/admin/calls", ()), ("/admin/keys", ()),
               ("/admin/accounts", ())], 4),
    "memory": ([("/admin/status", ()), ("/admin/groups", ()),
                ("/admin/models", ()), ("/admin/refusals", ())], 4),
    "csv": ([("/admin/calls", ACCEPT)], 2),
    "scrape": ([("/metrics", ())], 2)}


@pytest.mark.parametrize("kind", KINDS)
def test_questions_that_hang(gateway, tmp_path, monkeypatch, kind):
    """They take no places of other kinds: a disk that hangs does not keep
    /status and scrapes from being answered."""
    threads = Shim(tmp_path / "shim", THREADS, monkeypatch)
    g = gateway(**WITH_LEDGER, workers=1, locations=ADMIN + LOCATION)
    asked, n = KINDS[kind]
    threads.set("hold")
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(g.connect()) for _ in range(n)]
        for i, c in enumerate(held):
            path, headers = asked[i % len(asked)]
            c.request("GET", path, headers)
        g.wait_idle()
        for path, headers in asked:
            refused(g.get(path, headers=headers), 503, "SERVICE_UNAVAILABLE",
                    "%d requests are being processed" % n)
        threads.clear("hold")
        for other in set(KINDS) - {kind}:
            for path, headers in KINDS[other][0]:
                assert g.get(path, headers=headers).status == 200, path
        threads.set("release")
        for c in held:
            assert c.response().status == 200
    for path, headers in asked * n:
        assert g.get(path, headers=headers).status == 200


# without a ledger, and where it may be


def test_without_a_ledger(gateway):
    g = Admin(gateway(locations=ADMIN))
    for path in ("/accounts", "/accounts/alice", "/calls", "/usage"):
        refused(g.get(path), 404, "NOT_FOUND", "No ledger is configured")
    refused(g.topup("alice", "x", "1.00"), 404, "NOT_FOUND",
            "No ledger is configured")
    assert len(g.ok("/keys")["keys"]) == 4


@pytest.mark.parametrize("location, base", [
    ("location /a/b", "/a/b"), ("location /a/b/", "/a/b"),
    ("location ^~ /a", "/a")])
def test_prefixes(gateway, location, base):
    g = Admin(gateway(**WITH_LEDGER, locations=location + """ {
        modelgw_admin; allow 127.0.0.1; deny all; }"""), base)
    assert len(g.ok("/accounts")["accounts"]) == 4
    assert g.topup("alice", "x", "1.00").status == 201
    assert g.gw.get(base + "accounts").status == 404


def over(sock):
    c = client.Connection.__new__(client.Connection)
    c.sock, c.data, c.eof = sock, b"", None
    return c


def unix(g):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(client.LIMIT)
    sock.connect(g.path("admin.sock"))
    return over(sock)


def test_unix_socket(gateway):
    g = gateway(groups=GROUPS, http=LEDGER + """
    server { listen unix:$dir/admin.sock; location / { modelgw_admin; } }""")
    with unix(g) as c:
        c.request("GET", "/accounts")
        r = c.response()
        assert r.status == 200 and len(r.json()["accounts"]) == 4
        c.request("POST", "/accounts/alice/topups", [],
                  {"id": "x", "amount": "1.00"})
        assert c.response().status == 201
        c.request("GET", "/accounts/")
        refused(c.response(), 404, "NOT_FOUND")


NOBODY = 65534


@pytest.fixture
def public(tmp_path):
    """A directory that others may enter, as /run is."""
    if os.geteuid() != 0:
        pytest.skip("only root can run as another user")
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        yield path


def ask_as(uid, sock, *args):
    """The response to curl as another user: status, body."""
    p = subprocess.run(
        ["curl", "-q", "-sS", "--max-time", "20", "-w", "\n%{http_code}",
         "--unix-socket", sock, *args], user=uid, group=uid, extra_groups=[],
        cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        timeout=60)
    assert p.returncode == 0, p.stderr
    body, status = p.stdout.rsplit("\n", 1)
    return int(status), json.loads(body)


@pytest.mark.parametrize("realip", [
    "", "set_real_ip_from unix:; real_ip_header X-Real-IP;"])
@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_unix_socket_is_for_root(public, gateway, realip, version):
    """nginx makes the socket accessible to all users.  A header with the
    client's address changes nothing."""
    path = public + "/admin.sock"
    http2 = version != "--http1.1"
    listen = "listen unix:%s; http2 on;" % path
    if VERSION < (1, 25, 1):
        listen = "listen unix:%s%s;" % (path, " http2" * http2)
    g = gateway(groups=GROUPS, http=LEDGER + """
    server { %s %s location / { modelgw_admin; } }""" % (listen, realip))
    assert os.stat(path).st_mode & 0o777 == 0o666
    topup = ["-d", '{"id":"x","amount":"1.00"}',
             "http://x/accounts/alice/topups"]
    # curl's HTTP/2 does not accept a response before it has sent the body
    early = ["-X", "POST", topup[-1]] if http2 else topup
    for args in (["http://x/accounts"], ["http://x/keys"], ["http://x/no"],
                 early):
        args = [version, "-H", "X-Real-IP: 127.0.0.1"] + args
        status, body = ask_as(NOBODY, path, *args)
        assert (status, body["code"]) == (403, "FORBIDDEN"), body
        assert "root" in body["message"] and "65534" in body["message"]
    assert store(g, "SELECT count(*) FROM topups WHERE id = 'x'") == [(0,)]
    g.wait_log("user 65534 may not use the admin interface")
    assert ask_as(0, path, version, *topup)[0] == 201


def test_unix_socket_is_for_the_workers_user(public, gateway):
    path = public + "/admin.sock"
    g = gateway(http="""
    server { listen unix:%s; location / { modelgw_admin; } }""" % path)
    g.stop()
    config = g.config
    assert config().count("user root;") == 1
    g.config = lambda: config().replace("user root;", "user nobody nogroup;")
    g.start()
    assert ask_as(NOBODY, path, "http://x/keys")[0] == 200
    assert ask_as(0, path, "http://x/keys")[0] == 200
    assert ask_as(NOBODY - 1, path, "http://x/keys")[0] == 403


# DNS rebinding: a page's own name that resolves to our address

NAMES = """
    server {
        listen 127.0.0.1:%d; %s
        location / { modelgw_admin; allow 127.0.0.1; deny all; }
    }"""

FOREIGN = ["evil.example", "evil.example:8080", "EVIL.example",
           "evil.example.", "127.0.0.1.evil.example", "127.0.0.1evil.example",
           "localhost.evil.example", "evil.localhost", "x.gateway.test",
           "gateway.test.evil.example", "xgateway.test", "127.0.0.2",
           "0.0.0.0", "2130706433", "127.1", "[::1]", "[::ffff:127.0.0.1]",
           "[127.0.0.1", "_", "*", "*.gateway.test", "gateway.tes", "."]

NEAR = ["gateway.test", "gateway.test:1", "Gateway.TEST", "gateway.test.",
        "127.0.0.1", "127.0.0.1:1", "127.0.0.1.", "localhost", "LOCALHOST:1",
        "localhost."]


def assert_unserved(r):
    if r.status == 400:                     # nginx itself does not take it
        assert_flat(r, 400, "INVALID_REQUEST")
    else:
        refused(r, 403, "FORBIDDEN", "Host")


@pytest.mark.parametrize("host", FOREIGN)
def test_host_of_a_stranger(admin, http, host):
    """GET that reads a balance, POST that changes one, and unknown paths."""
    for target in ("/keys", "/accounts", "/accounts/alice", "/nothing"):
        assert_unserved(admin.get(target, version=http, host=host))
    r = admin.topup("alice", "rebound-" + host, "1.00", version=http,
                    host=host)
    assert_unserved(r)
    assert "rebound-" + host not in [
        t["id"] for t in admin.ok("/accounts/alice")["topups"]]


@pytest.mark.parametrize("host", NEAR)
def test_host_of_the_server(admin, http, host):
    assert admin.ok("/keys", version=http, host=host)


def test_host_in_the_request_line(admin):
    """RFC 9112, 3.2.2: it takes precedence over Host."""
    port = admin.gw.port
    for authority, status in (("evil.example", 403), ("gateway.test", 200),
                              ("127.0.0.1:1", 200)):
        for host in ("gateway.test", "evil.example"):
            r = client.h1(port, "GET", "http://%s/admin/keys" % authority,
                          host=host)
            assert r.status == status, r


def test_no_host(admin):
    r = client.h1(admin.gw.port, "GET", "/admin/keys", version="HTTP/1.0",
                  host=None)
    refused(r, 403, "FORBIDDEN", "Host")


@pytest.mark.parametrize("name,good,bad", [
    ("", [], ["x.example"]),
    ("server_name _;", [], ["x.example", "evil.example"]),
    ('server_name "";', [], ["x.example"]),
    ("server_name x.example Y.example;", ["x.example", "X.Example:1",
                                          "y.example."],
     ["z.example", "a.x.example", "xx.example"]),
    ("server_name *.x.example;", ["a.x.example", "a.b.x.example"],
     ["x.example", "ax.example", ".x.example", "a.x.example.evil"]),
    ("server_name .x.example;", ["x.example", "a.x.example"],
     ["ax.example", "x.exampl"]),
    ("server_name x.example.*;", ["x.example.org", "x.example.co.uk"],
     ["x.example", "a.x.example.org", "evil.example"]),
    (r"server_name ~^(\w+)\.x\.example$;", ["a.x.example", "B.X.example"],
     ["a.x.example.evil", "x.example", "a-b.x.example"]),
    ("server_name a.example ~^b; server_name *.c.example;",
     ["a.example", "bee", "x.c.example"], ["c.example", "a.b"])])
def test_host_as_server_name(gateway, name, good, bad):
    """As nginx matches names, with a second server on the address and without;
    neither "" nor "_" matches all other names."""
    alone, beside = lib.free_port(), lib.free_port()
    gateway(http=NAMES % (alone, name) + NAMES % (beside, name)
            + "server { listen 127.0.0.1:%d; server_name other.test; }"
            % beside)
    for port in (alone, beside):
        for host in good + ["127.0.0.1", "localhost"]:
            r = client.h1(port, "GET", "/keys", host=host)
            assert r.status == 200, (host, r)
        for host in bad:
            assert_unserved(client.h1(port, "GET", "/keys", host=host))


def test_host_as_a_name_that_is_no_wildcard(gateway):
    """nginx refuses the name only if there is another server."""
    port = lib.free_port()
    gateway(http=NAMES % (port, "server_name x.exampl*;"))
    assert_unserved(client.h1(port, "GET", "/keys", host="x.example"))


@pytest.mark.skipif(not lib.has_ipv6(), reason="no IPv6 here")
def test_host_as_an_ipv6_address(gateway):
    six, both = lib.free_port(), lib.free_port("")
    # the second one is open to the network: somebody must say who it is
    g = gateway(http="""
    map $remote_addr $its_role { default admin; }
    server { listen [::1]:%d; location / { modelgw_admin; } }
    server {
        listen [::]:%d ipv6only=off;
        location / { modelgw_admin actor=$remote_addr role=$its_role; }
    }""" % (six, both))
    for addr, port, good, bad in (
            ("::1", six, ["[::1]", "[::1]:1", "localhost"],
             ["evil.example", "127.0.0.1", "::1", "[::2]", "[::1", "[]"]),
            ("::1", both, ["[::1]", "localhost"], ["127.0.0.1", "[::]"]),
            ("127.0.0.1", both, ["127.0.0.1", "localhost"],
             ["[::1]", "[::]", "evil.example"])):
        for hosts, served in ((good, True), (bad, False)):
            for host in hosts:
                sock = socket.create_connection((addr, port), client.LIMIT)
                with over(sock) as c:
                    c.request("GET", "/keys", host=host)
                    r = c.response()
                if served:
                    assert r.status == 200, (host, r)
                else:
                    assert_unserved(r)
    assert g.log_count("is not a name of this server")


def test_any_host_over_a_unix_socket(gateway):
    """Browsers cannot connect to it, and curl sends the host of its URL."""
    g = gateway(http="""
    server { listen unix:$dir/admin.sock; location / { modelgw_admin; } }""")
    with unix(g) as c:
        for host in ("evil.example", "localhost", "x"):
            c.request("GET", "/keys", host=host)
            assert c.response().status == 200


def test_a_gateway_takes_any_host(gw):
    """It requires a key, which no web page has."""
    assert gw.chat(host="evil.example").status == 200


def test_errors_of_nginx_beside_an_admin_location(gateway):
    """A server with nothing but the interface: errors of nginx are flat."""
    port = lib.free_port()
    gateway(http="""
    server {
        listen 127.0.0.1:%d; root $dir/html;
        location /admin/ { modelgw_admin; allow 127.0.0.1; deny all; }
        location /plain/ { modelgw_flat_errors off; }
    }""" % port)
    for method, target, status, code in (
            ("GET", "/x", 404, "NOT_FOUND"),
            ("POST", "/x", (404, 405), ("NOT_FOUND", "METHOD_NOT_ALLOWED")),
            ("GET", "/%zz", 400, "INVALID_REQUEST"),
            ("GET", "/" + "x" * 40000, 414, "REQUEST_TOO_LARGE"),
            ("TRACE", "/x", 405, "METHOD_NOT_ALLOWED")):
        assert_flat(client.h1(port, method, target, host="127.0.0.1"),
                    status, code)
    with client.Connection(port) as c:
        c.send(b"GET /admin/keys HTTP/1.1\r\n\r\n")
        assert_flat(c.response(method="GET"), 400, "INVALID_REQUEST")
    r = client.h1(port, "GET", "/plain/x")
    assert r.status == 404 and b"<html>" in r.body, r


def test_denied(gateway):
    g = Admin(gateway(**WITH_LEDGER, locations="""
        location /admin/ { modelgw_admin; deny all; }
        location /read/ { modelgw_admin; allow 127.0.0.1; deny all;
                          limit_except GET { deny all; } }
        location /both/ { modelgw_admin; allow 127.0.0.1; deny all;
                          limit_except GET { allow 127.0.0.1; deny all; } }
"""))
    refused(g.get("/accounts"), 403, "FORBIDDEN")
    refused(g.topup("alice", "x", "1.00"), 403, "FORBIDDEN")
    g.base = "/read"
    assert g.ok("/accounts")
    refused(g.topup("alice", "x", "1.00"), 403, "FORBIDDEN")
    g.base = "/both"
    assert g.topup("alice", "x", "1.00").status == 201


def test_survives_a_restart(gateway):
    g = Admin(gateway(**WITH_LEDGER, locations=ADMIN))
    assert g.topup("alice", "x", "2.50").json()["balance"] == "7.50"
    g.gw.reload()
    assert g.balance("alice") == "7.50"
    assert g.topup("alice", "x", "2.50").json()["new"] is False
    g.gw.stop()
    g.gw.start()
    assert g.balance("alice") == "7.50"
    assert g.topup("alice", "x", "2.50").json()["new"] is False


@pytest.mark.parametrize("workers", [3])
def test_any_worker(gateway, workers):
    """One of them is the writer, any may get the query."""
    g = Admin(gateway(**WITH_LEDGER, locations=ADMIN, workers=workers))
    for i in range(20):
        assert g.topup("alice", "n-%d" % i, "0.10").status == 201
    assert g.balance("alice") == "7.00"


# nginx -t


@pytest.fixture
def conf(tmp_path):
    return Config(tmp_path)


GUARD = "allow 127.0.0.1; deny all;"


def place(text, guard="", location="location /admin/"):
    return {"locations": "%s { %s\nmodelgw_admin; # HERE\n%s }"
                         % (location, guard, text)}


@pytest.mark.parametrize("guard", [
    'auth_basic "x"; auth_basic_user_file x;', "internal;"])
def test_guarded(conf, guard):
    conf.accepted(**open_to_all(place(guard)))


@pytest.mark.parametrize("guard", ["", GUARD, "deny all;"])
def test_reachable_over_tcp(conf, guard):
    """Allowed addresses do not protect against programs on these machines."""
    conf.warned('admin location "/admin/"', "TCP", "password", "balances",
                "unix socket", **open_to_all(place(guard)))


def open_to_all(parts):
    """config_check's server listens on a unix socket."""
    return dict(parts, server="listen 127.0.0.1:1;")


def test_on_a_unix_socket(conf):
    conf.accepted(**place(""))
    conf.accepted(**open_to_all(place("")) | {
        "late": "server { listen unix:u; location / { modelgw_admin; } }",
        "locations": ""})


def test_another_server_is_no_guard(conf):
    conf.warned("location \"/\"", late="server { listen 127.0.0.1:1; location "
                "/ {\nmodelgw_admin; # HERE\n} }")


@pytest.mark.parametrize("parts", [
    place("modelgw on; proxy_pass $modelgw_upstream;" + GUARD),
    place(GUARD, guard="modelgw on;")])
def test_not_beside_the_gateway(conf, parts):
    text = conf.test(**parts).text
    assert conf.rc == 1 and "modelgw on" in text, text


def test_not_below_the_gateway(conf):
    conf.refused("modelgw off", server="modelgw on;", **place(GUARD))
    conf.accepted(server="modelgw on;", **place("modelgw off;" + GUARD))


@pytest.mark.parametrize("location", ["location ~ ^/admin/", "location @admin"])
def test_needs_a_prefix(conf, location):
    text = conf.test(**place(GUARD, location=location)).text
    assert conf.rc == 1 and "needs a location with a prefix" in text, text


def test_one_answer_a_location(conf):
    conf.refused("another directive", **place("stub_status;" + GUARD))
    text = conf.test(**place("modelgw_admin;" + GUARD)).text
    assert conf.rc == 1 and "duplicate" in text
