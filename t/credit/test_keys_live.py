"""modelgw_managed_keys: keys that are made, changed and revoked while nginx
runs."""

import calendar
import concurrent.futures
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import threading
import time

import pytest

import client
import gateway as lib
from gateway import Key, chat, free_port
from test_admin import (ADMIN, GROUPS, LEDGER, Admin, nano, refusals, refused,
                        store, wait_refusals)
from test_budget import COST
from metrics import LOCATION
from upstream import both, raw

PARTS = {"http": LEDGER + " modelgw_managed_keys 100;", "groups": GROUPS,
         "locations": ADMIN}

SECRET = r"sk-eu-[0-9a-f]{48}"


class Live(Admin):
    """Requests about keys; "made" are the secrets, which no log may have."""

    def __init__(self, gw):
        super().__init__(gw)
        self.made = []

    def send(self, method, path, body=None, headers=(), **kw):
        r = self.gw.request(method, "/admin" + path, headers=headers,
                            body=json.dumps(body) if body is not None else b"",
                            **kw)
        if r is not None and r.status in (200, 201):
            self.made += [r.json()["key"]] if "key" in r.json() else []
        return r

    def new(self, id=None, **body):
        body = dict({"group": "b"}, **body)
        if id:
            body["id"] = id
        r = self.send("POST", "/keys", body)
        assert r.status == 201, r
        key = Key(r.json()["id"], body["group"])
        key.secret = r.json().get("key")
        key.answer = r
        return key

    def expire(self, id):
        r = self.send("PATCH", "/keys/" + id, {"expires": "2020-01-01"})
        assert r.status == 200, r

    def key(self, id):
        return self.ok("/keys/" + id)

    def actions(self, target):
        return [a["action"]
                for a in self.ok("/actions?target=" + target)["actions"]][::-1]


@pytest.fixture(scope="module")
def shared(module_gateway):
    return Live(module_gateway(**PARTS))


@pytest.fixture
def live(shared, upstreams):
    for u in upstreams:
        u.reset()
    yield shared
    assert shared.gw.process.poll() is None, "nginx has exited"


def admitted(gw, key, times=8):
    """By every worker: each connection may be another one's."""
    for _ in range(times):
        r = gw.get("/v1/models", key=key)
        assert r.status == 200, r


def shut(gw, key, times=8):
    for _ in range(times):
        refused(gw.get("/v1/models", key=key), 401, "INVALID_API_KEY")


def test_create(live):
    key = live.new("dora", note="for the fair", rpm=60)
    r = key.answer
    assert r.get("location") == "/admin/keys/dora" and r.get("etag") == '"1"'
    assert r.get("cache-control") == "no-store"
    answer = r.json()
    assert len(answer.pop("key")) == len("sk-eu-") + 48
    assert answer == {
        "id": "dora", "group": "b", "account": "dora", "models": None,
        "rpm": 60, "tpm": None, "concurrency": None, "expires": None,
        "used": {"rpm": 0, "tpm": None, "concurrency": None},
        "resets_in": {"rpm": 0, "tpm": None},
        "source": "ledger", "state": "active", "version": 1, "budget": None,
        "budget_used": None, "budget_resets_in": None,
        "old_secret_until": None, "note": "for the fair"}
    admitted(live.gw, key)
    r = live.gw.chat(key=key)
    assert r.status == 200 and r.get("x-ratelimit-limit-requests") == "60", r
    assert live.balance("dora") < "5.00"
    shown = live.get("/keys/dora")
    assert shown.get("etag") == '"1"' and shown.json()["rpm"] == 60
    assert live.actions("dora") == ["account.create", "key.create"]
    assert [t["id"] for t in live.ok("/accounts/dora")["topups"]] \
        == ["founding:dora"]


def test_create_for_an_account(live):
    before = live.balance("alice")
    key = live.new("alice-2", account="alice", group="a",
                   models=["fam-a-small"])
    assert live.balance("alice") == before
    assert live.key("alice-2")["models"] == ["fam-a-small"]
    models = live.gw.get("/v1/models", key=key).json()["data"]
    assert [m["id"] for m in models] == ["fam-a-small"]
    refused(live.gw.messages(key=key), 400, "INVALID_MODEL")
    assert live.new("no-credit", founding=False).secret
    assert live.balance("no-credit") == "0.00"


@pytest.mark.parametrize("founding", [True, False])
def test_account_that_a_key_opens(live, founding):
    """It is an action of its own, as if an operator had opened it before."""
    id = "opens-%d" % founding
    live.new(id, account="of-" + id, founding=founding, note="of the key")
    live.new(id + "-2", account="of-" + id)
    (opened,) = live.ok("/actions?target=of-" + id)["actions"]
    (made,) = live.ok("/actions?target=" + id)["actions"]
    (second,) = live.ok("/actions?target=%s-2" % id)["actions"]
    assert (opened["action"], made["action"], second["action"]) \
        == ("account.create", "key.create", "key.create")
    assert opened["before"] == {}
    assert opened["after"] == {"state": "open", "note": "", "founding":
                               "5.00" if founding else "0.00"}
    assert opened["id"] == made["id"] - 1 and made["id"] < second["id"]
    for member in ("actor", "address"):
        assert opened[member] == made[member] == "127.0.0.1"
    assert live.balance("of-" + id) == opened["after"]["founding"]
    refused(live.send("POST", "/keys", {"id": id, "group": "b",
                                        "account": "not-opened"}), 409,
            "KEY_EXISTS")
    assert live.ok("/actions?target=not-opened")["actions"] == []


def test_id_that_is_made(live):
    first = live.send("POST", "/keys", {"group": "b"},
                      [("Idempotency-Key", "order-17")])
    assert first.status == 201 and first.json()["id"].startswith("key-")
    again = live.send("POST", "/keys", {"group": "b"},
                      [("Idempotency-Key", "order-17")])
    refused(again, 409, "KEY_EXISTS", first.json()["id"])
    assert first.json()["key"] not in again.body.decode()
    ids = {live.new().id for _ in range(3)}
    assert len(ids) == 3


@pytest.mark.parametrize("body, code, words", [
    ({}, "MISSING_FIELD", '"group"'),
    ({"group": "nosuch"}, "INVALID_FIELD", 'Unknown group "nosuch"'),
    ({"group": ""}, "INVALID_FIELD", "group"),
    ({"group": "x" * 300}, "INVALID_FIELD", '"group"'),
    ({"group": 1}, "INVALID_FIELD", '"group"'),
    ({"group": "b", "id": "a b"}, "INVALID_FIELD", '"id"'),
    ({"group": "b", "id": ""}, "INVALID_FIELD", '"id"'),
    ({"group": "b", "account": "x" * 65}, "INVALID_FIELD", '"account"'),
    ({"group": "b", "models": ["nosuch"]}, "INVALID_FIELD", '"nosuch"'),
    ({"group": "b", "models": ["fam-a-small"]}, "INVALID_FIELD",
     '"fam-a-small"'),
    ({"group": "b", "models": []}, "INVALID_FIELD", '"models"'),
    ({"group": "b", "models": [1]}, "INVALID_FIELD", '"models"'),
    ({"group": "b", "models": ["fam-b-one", None]}, "INVALID_FIELD",
     '"models"'),
    ({"group": "b", "models": "fam-b-one"}, "INVALID_FIELD", '"models"'),
    ({"group": "b", "models": ["a,b"]}, "INVALID_FIELD", '"models"'),
    ({"group": "b", "models": ["fam-b-one"] * 40}, "INVALID_FIELD", "256"),
    ({"group": "b", "rpm": 0}, "INVALID_FIELD", '"rpm"'),
    ({"group": "b", "tpm": -1}, "INVALID_FIELD", '"tpm"'),
    ({"group": "b", "concurrency": 1.5}, "INVALID_FIELD", '"concurrency"'),
    ({"group": "b", "rpm": "5"}, "INVALID_FIELD", '"rpm"'),
    ({"group": "b", "rpm": 10 ** 10}, "INVALID_FIELD", '"rpm"'),
    ({"group": "b", "expires": "tomorrow"}, "INVALID_FIELD", '"expires"'),
    ({"group": "b", "expires": "2027-02-30"}, "INVALID_FIELD", '"expires"'),
    ({"group": "b", "budget": "5"}, "INVALID_FIELD", '"budget"'),
    ({"group": "b", "budget": "x/month"}, "INVALID_FIELD", '"budget"'),
    ({"group": "b", "budget": "5/year"}, "INVALID_FIELD", '"budget"'),
    ({"group": "b", "hash": "sha256:00"}, "INVALID_FIELD", '"hash"'),
    ({"group": "b", "hash": "md5:" + "0" * 64}, "INVALID_FIELD", '"hash"'),
    ({"group": "b", "note": "x" * 257}, "INVALID_FIELD", '"note"'),
    ({"group": "b", "founding": 1}, "INVALID_FIELD", '"founding"'),
    ({"group": "b", "state": "active"}, "INVALID_FIELD", '"state"')])
def test_bad_keys(live, body, code, words):
    n = store(live.gw, "SELECT count(*) FROM keys")
    refused(live.send("POST", "/keys", body), 400, code, words)
    assert store(live.gw, "SELECT count(*) FROM keys") == n


def test_known_ids(live):
    live.new("twice")
    refused(live.send("POST", "/keys", {"id": "twice", "group": "b"}), 409,
            "KEY_EXISTS", "twice")
    refused(live.send("POST", "/keys", {"id": "bob-1", "group": "b"}), 409,
            "KEY_EXISTS", "bob-1")
    for method, path in (("PATCH", "/keys/bob-1"), ("DELETE", "/keys/bob-1"),
                         ("POST", "/keys/bob-1/rotate"),
                         ("POST", "/keys/bob-1/revoke")):
        refused(live.send(method, path, {}), 409, "CONFIGURED_KEY", "bob-1")
    for method, path in (("PATCH", "/keys/x"), ("DELETE", "/keys/x"),
                         ("POST", "/keys/x/rotate"), ("GET", "/keys/x"),
                         ("POST", "/keys/x/revoke"), ("DELETE", "/keys/a%20b")):
        refused(live.send(method, path, None if method == "GET"
                          else {"rpm": 1} if method == "PATCH" else {}),
                404, "NOT_FOUND")
    assert live.key("bob-1")["source"] == "config"


@pytest.mark.parametrize("how", ["revoke", "delete"])
def test_revoke(live, how):
    key = live.new("gone-" + how)
    admitted(live.gw, key)
    if how == "delete":
        r = live.send("DELETE", "/keys/" + key.id)
    else:
        r = live.send("POST", "/keys/%s/revoke" % key.id)
    assert r.status == 200 and r.json()["state"] == "revoked", r
    shut(live.gw, key)
    assert live.send("POST", "/keys/%s/revoke" % key.id).status == 200
    assert live.key(key.id)["version"] == 2
    refused(live.send("POST", "/keys", {"id": key.id, "group": "b"}), 409,
            "KEY_EXISTS")
    refused(live.send("PATCH", "/keys/" + key.id, {"rpm": 1}), 404,
            "NOT_FOUND")
    assert live.actions(key.id) == ["account.create", "key.create",
                                    "key.revoke"]


def test_log_of_revoked(gateway):
    """The log names who still uses a key that is no more, also after a restart;
    the client cannot tell it from one that never was."""
    g = Live(gateway(**dict(PARTS, http=LEDGER + " modelgw_managed_keys 5;")))
    revoked, rotated, stays = g.new("gone"), g.new("turn"), g.new("stays")
    revoked_old = g.send("POST", "/keys/gone/rotate", {"grace": "1h"}).json()
    g.send("POST", "/keys/turn/rotate")
    assert g.send("DELETE", "/keys/gone").status == 200
    old = Key("gone", "b")
    old.secret = revoked_old["key"]

    def reason(tag, key):
        r = g.gw.chat(key=key, headers=[("X-Test-Tag", tag)])
        refused(r, 401, "INVALID_API_KEY", "Invalid API key")
        line = g.gw.logged(tag)
        return line["reason"], line["id"], line["account"], line["group"]

    for n in (1, 2):
        for key in (revoked, old, rotated):
            tag = "%s-%d-%s" % (key.id, n, key.secret[-4:])
            assert reason(tag, key) == ("revoked", key.id, key.id, "b")
        admitted(g.gw, stays)
        if n == 1:
            g.gw.power_cut()
            g.gw.start()

    # they make room for new ones: "turn" and "stays" are the other two

    for i in range(3):
        admitted(g.gw, g.new("new-%d" % i))
    refused(g.send("POST", "/keys", {"id": "new-3", "group": "b"}), 503,
            "SERVICE_UNAVAILABLE", "modelgw_managed_keys")
    assert reason("forgotten", revoked) == ("unknown", "", "", "")


def test_rotate(live):
    """The old secret works until the end of its grace; without one, no more."""
    old = live.new("turn", note="n", rpm=7)
    r = live.send("POST", "/keys/turn/rotate", {"grace": "1h"})
    assert r.status == 200 and r.json()["version"] == 2, r
    assert r.json()["rpm"] == 7 and r.json()["note"] == "n"
    new = Key("turn", "b")
    new.secret = r.json()["key"]
    assert new.secret != old.secret
    for key in (old, new):
        admitted(live.gw, key)
    rows = store(live.gw, "SELECT state, expires > 0 FROM keys"
                 " WHERE id = 'turn' ORDER BY state")
    assert rows == [("active", 0), ("rotated", 1)]

    r = live.send("POST", "/keys/turn/rotate")
    newest = Key("turn", "b")
    newest.secret = r.json()["key"]
    admitted(live.gw, newest)
    for key in (old, new):
        shut(live.gw, key)
    assert [k["id"] for k in live.ok("/keys?q=turn")["keys"]] == ["turn"]
    assert live.send("DELETE", "/keys/turn").status == 200
    shut(live.gw, newest)


def test_end_of_grace(live):
    old = live.new("short")
    assert live.send("POST", "/keys/short/rotate",
                     {"grace": "1s"}).status == 200
    end = time.monotonic() + client.LIMIT
    while live.gw.get("/v1/models", key=old).status == 200:
        assert time.monotonic() < end
        time.sleep(0.05)
    shut(live.gw, old)


def test_grace_is_told(gateway):
    """By the key and in the audit log.  A rotation ends all older secrets, at
    the latest, and none later than before."""
    g = Live(gateway(**PARTS))

    def grace(r):
        assert r.status == 200, r
        told = r.json()["old_secret_until"]
        shown = g.key("turn")["old_secret_until"]
        (listed,) = [k["old_secret_until"] for k in g.ok("/keys")["keys"]
                     if k["id"] == "turn" and k["source"] == "ledger"]
        action = g.ok("/actions?target=turn&limit=1")["actions"][0]
        assert told == shown == listed == action["after"]["old_until"]
        if told is None:
            return None
        end = calendar.timegm(time.strptime(told, "%Y-%m-%dT%H:%M:%S.000Z"))
        return round((end - time.time()) / 3600)

    def rotate(body=None):
        r = g.send("POST", "/keys/turn/rotate", body)
        keys.append(Key("turn", "b"))
        keys[-1].secret = r.json()["key"]
        return grace(r)

    keys = [g.new("turn")]
    assert rotate({"grace": "240h"}) == 240
    assert rotate({"grace": "20h"}) == 20
    assert rotate({"grace": "40h"}) == 40
    ends = [(e / 1000 - time.time()) / 3600 for e, in store(
        g.gw, "SELECT expires FROM keys WHERE state = 'rotated'"
        " ORDER BY expires")]
    assert [round(e) for e in ends] == [20, 20, 40]
    assert grace(g.send("PATCH", "/keys/turn", {"note": "x"})) == 40
    action = g.ok("/actions?target=turn&limit=1")["actions"][0]
    assert action["before"]["old_until"] == action["after"]["old_until"]
    assert rotate() is None
    for key in keys[:-1]:
        shut(g.gw, key, 1)
    assert rotate({"grace": "10h"}) == 10
    assert grace(g.send("DELETE", "/keys/turn")) is None

    # one whose grace is over

    g.new("short")
    r = g.send("POST", "/keys/short/rotate", {"grace": "1s"})
    end = time.monotonic() + client.LIMIT
    while g.key("short")["old_secret_until"] is not None:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert "old_secret_until" not in g.key("bob-1")


def clock_ahead(g, seconds=3600):
    """Restarts nginx with a last action as of a clock that was ahead."""
    g.gw.stop()
    time_of_it = int((time.time() + seconds) * 1000)
    with contextlib.closing(sqlite3.connect(g.gw.path("ledger.db"))) as db:
        db.execute("INSERT INTO actions VALUES (?1, ?1, 'x', 'x', 'x', 'x',"
                   " '{}', '{}')", (time_of_it,))
        db.commit()
    g.gw.start()
    return time_of_it


def test_end_with_the_clock_ahead(gateway):
    """What ends at once has ended for good, also when the times of actions are
    in the future, and the table is filled again."""
    g = Live(gateway(**PARTS))
    rotated, revoked = g.new("turn"), g.new("gone")
    clock_ahead(g)
    old = g.send("POST", "/keys/turn/rotate", {"grace": "10h"}).json()["key"]
    newest = g.send("POST", "/keys/turn/rotate").json()["key"]
    g.send("POST", "/keys/gone/rotate", {"grace": "10h"})
    assert g.send("DELETE", "/keys/gone").status == 200
    between, works = Key("turn", "b"), Key("turn", "b")
    between.secret, works.secret = old, newest
    for n in (1, 2):
        for key in (rotated, between, revoked):
            shut(g.gw, key, 2)
        admitted(g.gw, works, 2)
        for query, ids in (("", ["gone", "turn"]), ("&state=active", ["turn"]),
                           ("&state=revoked", ["gone"]),
                           ("&state=expired", [])):
            assert [k["id"] for k in g.ok("/keys?q=n" + query)["keys"]
                    if k["source"] == "ledger"] == ids
        if n == 1:
            g.gw.power_cut()
            g.gw.start()
    assert store(g.gw, "SELECT id, state FROM keys ORDER BY id, state") == [
        ("gone", "replaced"), ("gone", "revoked"), ("turn", "active"),
        ("turn", "replaced"), ("turn", "replaced")]


def test_start_with_the_clock_ahead(gateway):
    """Secrets that were replaced take no place of the table."""
    g = Live(gateway(**dict(PARTS, http=LEDGER + " modelgw_managed_keys 2;")))
    key = g.new("turn")
    clock_ahead(g)
    for _ in range(4):
        r = g.send("POST", "/keys/turn/rotate")
        assert r.status == 200, r
        key.secret = r.json()["key"]
    g.gw.power_cut()
    g.gw.start()
    admitted(g.gw, key)


def test_expires_in_the_grace(gateway):
    """No secret outlives its key; its grace is not made longer."""
    g = Live(gateway(**PARTS))
    keys = {}
    for id in ("early", "late", "never"):
        key = g.new(id)
        new = g.send("POST", "/keys/%s/rotate" % id, {"grace": "300d"})
        keys[id] = key, Key(id, "b")
        keys[id][1].secret = new.json()["key"]

    def expires(id, day):
        r = g.send("PATCH", "/keys/" + id, {"expires": day})
        assert r.status == 200, r

    expires("early", "2020-01-01")
    expires("late", "2099-01-01")
    expires("never", "2098-01-01")
    expires("never", None)
    for n in (1, 2):
        for key in keys["early"]:
            shut(g.gw, key, 2)
        for key in keys["late"] + keys["never"]:
            admitted(g.gw, key, 2)
        if n == 1:
            g.gw.power_cut()
            g.gw.start()

    # what has expired stays so if the key is given another time

    expires("early", None)
    shut(g.gw, keys["early"][0])
    admitted(g.gw, keys["early"][1])
    end = (time.time() + 301 * 86400) * 1000
    assert store(g.gw, "SELECT count(*) FROM keys WHERE state = 'rotated'"
                 " AND expires BETWEEN 1 AND %d" % end) == [(3,)]


def test_actions_with_the_clock_ahead(gateway):
    """Their ids, which are their times, stay in order and unique."""
    g = Live(gateway(**PARTS))
    last = clock_ahead(g)
    for n in range(3):
        r = g.send("POST", "/keys", {"group": "b", "id": "k-%d" % n})
        assert r.status == 201, r
        assert g.send("PATCH", "/keys/k-%d" % n, {"rpm": 1}).status == 200
        actions = g.ok("/actions?limit=3")["actions"][::-1]
        assert [(a["id"], a["action"]) for a in actions] == [
            (last + 1, "account.create"), (last + 2, "key.create"),
            (last + 3, "key.set")]
        last += 3
        g.gw.power_cut()
        g.gw.start()


def test_room_after_the_grace(gateway):
    """A secret whose grace has ended takes no place."""
    g = Live(gateway(**dict(PARTS, http=LEDGER + " modelgw_managed_keys 2;")))
    old = g.new("turn")
    new = Key("turn", "b")
    new.secret = g.send("POST", "/keys/turn/rotate",
                        {"grace": "2s"}).json()["key"]
    refused(g.send("POST", "/keys", {"id": "next", "group": "b"}), 503,
            "SERVICE_UNAVAILABLE", "modelgw_managed_keys")
    end = time.monotonic() + client.LIMIT
    while g.send("POST", "/keys", {"id": "next", "group": "b"}).status != 201:
        assert time.monotonic() < end, "no room"
        time.sleep(0.1)
    admitted(g.gw, new)
    shut(g.gw, old)


@pytest.mark.parametrize("grace", ["", "x", "-1s", "400d", "1" * 300, 5, None])
def test_bad_grace(live, grace):
    if not any(k["id"] == "graceful" for k in live.ok("/keys")["keys"]):
        live.new("graceful")
    refused(live.send("POST", "/keys/graceful/rotate", {"grace": grace}), 400,
            "INVALID_FIELD", '"grace"')
    assert live.key("graceful")["version"] == 1


def test_set(live):
    key = live.new("mute", rpm=5, note="x", expires="2035-01-01",
                   budget="50.00/month")
    assert live.key("mute")["expires"] == "2035-01-01"
    assert live.key("mute")["budget"] == "50.00/month"
    r = live.send("PATCH", "/keys/mute", {"rpm": None, "tpm": 100000,
                                          "models": ["fam-b-one"]})
    assert r.status == 200 and r.get("etag") == '"2"', r
    answer = r.json()
    assert (answer["rpm"], answer["tpm"]) == (None, 100000)
    assert answer["models"] == ["fam-b-one"] and answer["note"] == "x"
    assert answer["expires"] == "2035-01-01"
    r = live.gw.chat(key=key)
    assert r.status == 200 and r.get("x-ratelimit-limit-tokens") == "100000"
    assert r.get("x-ratelimit-limit-requests") is None
    r = live.send("PATCH", "/keys/mute", {"expires": "2020-01-01"})
    assert r.json()["state"] == "expired"
    shut(live.gw, key)
    r = live.send("PATCH", "/keys/mute", {"expires": None, "models": None,
                                          "budget": None, "note": ""})
    assert r.json()["state"] == "active" and r.json()["budget"] is None
    admitted(live.gw, key)
    refused(live.send("PATCH", "/keys/mute", {"models": ["nosuch"]}), 400,
            "INVALID_FIELD", "nosuch")
    refused(live.send("PATCH", "/keys/mute", {"group": "a"}), 400,
            "INVALID_FIELD", '"group"')
    refused(live.send("PATCH", "/keys/mute", {}), 400, "MISSING_FIELD")
    (action,) = [a for a in live.ok("/actions?target=mute")["actions"]
                 if a["after"].get("version") == 2]
    assert action["before"]["rpm"] == 5 and action["after"]["tpm"] == 100000


@pytest.mark.parametrize("match, status", [
    ('"1"', 200), ("*", 200), ('"2"', 412), ('"0"', 412), ("1", 412),
    ('W/"1"', 412), ('"x"', 412), ('"-1"', 412), ('""', 412),
    ('"99999999999999999999"', 412), ("", 412)])
def test_if_match(live, match, status):
    id = "match-" + hashlib.sha1(match.encode()).hexdigest()[:8]
    live.new(id)
    r = live.send("PATCH", "/keys/" + id, {"rpm": 3}, [("If-Match", match)])
    assert r.status == status, r
    if status == 412:
        refused(r, 412, "PRECONDITION_FAILED")
        assert live.key(id)["version"] == 1


def test_import(live):
    secret = "sk-eu-of-another-house"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    key = live.new("moved", hash="sha256:" + digest)
    assert "key" not in key.answer.json()
    key.secret = secret
    admitted(live.gw, key)
    assert live.actions("moved") == ["account.create", "key.import"]
    refused(live.send("POST", "/keys", {
        "id": "other", "group": "b", "hash": "sha256:" + digest}), 409,
        "KEY_EXISTS", "hash")
    assert digest not in json.dumps(live.ok("/actions?limit=1000"))
    assert digest not in json.dumps(live.ok("/keys"))


def test_budget(live):
    """Of a key made here, as of any other."""
    key = live.new("frugal", budget="0.000001/month")
    assert live.gw.chat(key=key).status == 402
    shown = live.key("frugal")
    assert shown["budget"] == "0.000001/month"
    assert shown["budget_used"] == "0.00" and shown["budget_resets_in"] > 0
    r = live.send("PATCH", "/keys/frugal", {"budget": "1/total"})
    assert r.status == 200 and live.gw.chat(key=key).status == 200
    assert nano(live.key("frugal")["budget_used"]) > 0
    r = live.send("PATCH", "/keys/frugal", {"budget": None})
    assert r.json()["budget"] is None
    assert live.gw.chat(key=key).status == 200


def budget(live, key, text):
    r = live.send("PATCH", "/keys/" + key.id, {"budget": text})
    assert r.status == 200, r
    return nano(r.json()["budget_used"]) if text else None


def test_budget_counts_what_was_spent(live):
    """Before the key had one, too, and after a budget was taken away."""
    key = live.new("spender")
    for n, window in enumerate(("day", "week", "month", "total"), 1):
        assert live.gw.chat(key=key).status == 200
        assert budget(live, key, "1.00/" + window) == n * COST
        assert nano(live.key("spender")["budget_used"]) == n * COST
        budget(live, key, None)


def test_budget_bounds_what_was_spent(live):
    key = live.new("sparing")
    assert live.gw.chat(key=key).status == 200
    budget(live, key, "0.000000001/month")
    refused(live.gw.chat(key=key), 402, "BUDGET_EXCEEDED", "0.000025 of")


def test_budget_counts_calls_in_flight(live):
    """They began as the key had no limits, and so no record of them."""
    key = live.new("runner")
    go = threading.Event()
    live.gw.b.script(raw(go, both))
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            call = pool.submit(live.gw.chat, key=key)
            assert live.gw.b.wait(1)
            assert budget(live, key, "1.00/month") == 0
            go.set()
            assert call.result().status == 200
    finally:
        go.set()
    assert nano(live.key("runner")["budget_used"]) == COST


def test_budget_changes_while_calls_end(live):
    """Each is counted once, in whatever window."""
    key = live.new("restless", rpm=1000000)
    stop = threading.Event()

    def work():
        while not stop.is_set():
            assert live.gw.chat(key=key).status in (200, 503)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(work) for _ in range(4)]
        try:
            for n in range(20):
                budget(live, key,
                       ("100.00/total", "100.00/month", None)[n % 3])
        finally:
            stop.set()
        for f in futures:
            f.result()
    calls = len(live.gw.b.requests)
    assert calls > 10
    assert budget(live, key, "100.00/total") == calls * COST
    assert budget(live, key, "100.00/week") == calls * COST


def test_budget_after_a_restart(gateway):
    live = Live(gateway(**PARTS))
    key = live.new("k")
    assert live.gw.chat(key=key).status == 200
    assert budget(live, key, "1.00/month") == COST
    live.gw.stop()
    live.gw.start()
    assert nano(live.key("k")["budget_used"]) == COST


@pytest.mark.parametrize("id", [".", "..", ".a", "-a", "--json"])
def test_ids_that_no_path_can_have(live, id):
    """Nor an argument."""
    for path, body in (("/keys", {"group": "b", "id": id}),
                       ("/keys", {"group": "b", "account": id}),
                       ("/accounts", {"id": id})):
        refused(live.send("POST", path, body), 400, "INVALID_FIELD", '"."')


@pytest.mark.parametrize("method, path", [
    ("POST", "/keys?founding=false"), ("PATCH", "/keys/x?rpm=1"),
    ("POST", "/keys/x/rotate?grace=24h"), ("DELETE", "/keys/x?grace=1h"),
    ("POST", "/accounts?id=x"), ("PATCH", "/accounts/x?state=closed"),
    ("POST", "/accounts/x/topups?amount=1")])
def test_changes_have_no_parameters(live, method, path):
    word = path.split("?")[1].split("=")[0]
    refused(live.send(method, path, {"group": "b"}), 400, "INVALID_FIELD",
            'Unknown parameter "%s"' % word)


def test_a_key_that_has_expired_is_not_made(live):
    refused(live.send("POST", "/keys", {"group": "b", "expires": "2020-01-01"}),
            400, "INVALID_FIELD", "a day to come")


def test_empty_idempotency_key(live):
    """It is none: two requests are not the same for it."""
    for _ in range(2):
        r = live.send("POST", "/keys", {"group": "b"},
                      [("Idempotency-Key", "")])
        assert r.status == 201, r


def test_records_of_revoked_keys_are_used_again(gateway):
    """However many keys come and go in one configuration."""
    live = Live(gateway(**dict(PARTS, http=LEDGER + " modelgw_managed_keys 10;"
                               " modelgw_zone 128k;")))
    room = live.ok("/status")["zone"]["keys_max"]
    for i in range(room + 10):
        key = live.new("k%d" % i, account="all", rpm=10)
        assert live.gw.get("/v1/models", key=key).status == 200
        assert live.gw.chat(key=key).status == 200
        assert live.send("DELETE", "/keys/" + key.id).status == 200


REVOKED = {"DELETE": ("/keys/%s", None),
           "PATCH": ("/keys/%s", {"expires": "2020-01-01"}),
           "POST": ("/keys/%s/rotate", None)}


@pytest.mark.parametrize("how", list(REVOKED) + ["close"])
def test_revoked_while_the_body_is_sent(live, how):
    """A call whose headers came before it."""
    key = live.new(account="slow-" + how.lower())
    body = json.dumps(chat()).encode()
    with live.gw.connect() as conn:
        conn.send(client.build(
            "POST", "/v1/chat/completions",
            [key.bearer(), ("Expect", "100-continue")], length=len(body)))
        while b"100 Continue" not in conn.data:
            assert conn.recv()
        conn.data = b""
        conn.send(body[:-1])
        if how == "close":
            r = live.send("PATCH", "/accounts/" + key.answer.json()["account"],
                          {"state": "closed"})
        else:
            path, change = REVOKED[how]
            r = live.send(how, path % key.id, change)
        assert r.status == 200, r
        conn.send(body[-1:])
        refused(conn.response(), 401, "INVALID_API_KEY")
    assert not live.gw.b.requests


def test_closed_account(live):
    key = live.new("closer", account="closing")
    r = live.send("PATCH", "/accounts/closing", {"state": "closed"})
    assert r.status == 200, r
    shut(live.gw, key)
    r = live.send("PATCH", "/accounts/closing", {"state": "open"})
    admitted(live.gw, key)


def test_list(live):
    for i in range(5):
        live.new("list-%d" % i, account="lister")
    live.send("DELETE", "/keys/list-3")
    ids = [k["id"] for k in live.ok("/keys?account=lister")["keys"]]
    assert ids == ["list-%d" % i for i in range(5)]
    assert len(live.ok("/keys?q=list-&state=active")["keys"]) == 4
    assert [k["id"] for k in live.ok("/keys?q=ist-&state=revoked")["keys"]] \
        == ["list-3"]
    assert live.ok("/keys?state=expired")["keys"][0]["id"] == "dave-1"
    everything = [k["id"] for k in live.ok("/keys")["keys"]]
    assert everything[:4] == ["alice-1", "bob-1", "carol-1", "dave-1"]
    for size in (1, 2, 3, 4, 5, 1000):
        seen, query = [], "?limit=%d" % size
        while query:
            page = live.ok("/keys" + query)
            seen += [k["id"] for k in page["keys"]]
            query = ("?limit=%d&after=%s" % (size, page["next"])
                     if "more" in page else None)
        assert seen == everything
    for bad in ("limit=0", "after=x", "after=config:", "after=ledger:a%20b",
                "state=gone", "q=", "x=1", "account=a%20b"):
        refused(live.get("/keys?" + bad), 400, "INVALID_FIELD")


def test_pages_of_both_sources(live):
    """Each filter, each size: all rows, none twice."""
    for i in range(3):
        key = live.new("both-%d" % i, account="bob-1", note="of both")
        live.new("both-x%d" % i, note="both, expired")
        live.expire("both-x%d" % i)
        live.send("POST", "/keys/%s/rotate" % key.id, {"grace": "1h"})
    live.send("DELETE", "/keys/both-1")
    for query in ("", "account=bob-1", "q=bo", "q=of%20both", "state=active",
                  "state=expired", "state=revoked", "q=-1&state=active",
                  "account=bob-1&state=active&q=b", "account=dave-1",
                  "account=alice&state=active"):
        everything = live.ok("/keys?" + query)["keys"]
        ids = [(k["source"], k["id"]) for k in everything]
        assert ids and len(set(ids)) == len(ids)
        assert {k["source"] for k in everything} == (
            {"config", "ledger"} if query in (
                "", "account=bob-1", "q=bo", "state=active", "state=expired",
                "q=-1&state=active", "account=bob-1&state=active&q=b")
            else {k["source"] for k in everything})
        for size in range(1, len(ids) + 2):
            seen, after = [], ""
            while after is not None:
                page = live.ok("/keys?limit=%d&%s%s" % (size, query, after))
                seen += [(k["source"], k["id"]) for k in page["keys"]]
                after = "&after=" + page["next"] if "more" in page else None
                assert len(page["keys"]) == size or after is None
            assert seen == ids
    assert [k["id"] for k in live.ok("/keys?q=of%20both")["keys"]] \
        == ["both-0", "both-1", "both-2"]


def wait_used(g, id):
    end = time.monotonic() + client.LIMIT
    while g.key(id)["last_used"] is None:
        assert time.monotonic() < end, "the call is not written"
        time.sleep(0.02)
    return g.key(id)["last_used"]


def test_last_used(live):
    """The hour of the last call; of keys of both sources, and in lists."""
    key = live.new("worker", account="working")
    live.new("idle")
    before = time.time()
    assert live.gw.chat(key=key).status == 200
    assert live.gw.chat(key=live.gw.bob).status == 200
    hours = {time.strftime("%Y-%m-%dT%H:00:00.000Z", time.gmtime(t))
             for t in (before, time.time())}
    assert wait_used(live, "worker") in hours
    assert wait_used(live, "bob-1") in hours
    assert live.key("idle")["last_used"] is None
    keys = {k["id"]: k for k in live.ok("/keys")["keys"]}
    assert keys["worker"]["last_used"] in hours
    assert keys["bob-1"]["last_used"] in hours
    assert keys["idle"]["last_used"] is None

    # the secret is another one, the key is the same

    assert live.send("POST", "/keys/worker/rotate").status == 200
    assert live.key("worker")["last_used"] in hours


def records(g):
    return g.ok("/status")["zone"]["keys"]


@pytest.mark.parametrize("source", ["ledger", "config"])
def test_used(live, source):
    """How limits stand: as the headers of an answer say."""
    limits = dict(rpm=60, tpm=100000, concurrency=2)
    if source == "ledger":
        key = live.new("busy", **limits)
    else:
        key = Key("busy-config", "b", "rpm=60 tpm=100000 concurrency=2")
        live.gw.keys.append(key)
        live.gw.write_keys()
        live.gw.reload()
    n = records(live)
    shown = live.key(key.id)
    assert shown["used"] == {"rpm": 0, "tpm": 0, "concurrency": 0}
    assert shown["resets_in"] == {"rpm": 0, "tpm": 0}
    assert live.ok("/keys?q=busy")["keys"]
    assert records(live) == n

    go = threading.Event()
    live.gw.b.script(raw(go, both))
    with live.gw.connect() as c:
        c.request("POST", "/v1/chat/completions", [key.bearer()],
                  chat(max_tokens=1000))
        live.gw.b.wait()
        during = live.key(key.id)
        go.set()
        r = c.response()
    assert r.status == 200, r
    assert during["used"]["concurrency"] == 1 and during["used"]["rpm"] == 1
    assert during["used"]["tpm"] == 100000 - int(
        r.get("x-ratelimit-remaining-tokens"))
    assert 0 < during["resets_in"]["rpm"] <= 60
    assert 0 < during["resets_in"]["tpm"] <= 120

    after = live.key(key.id)
    assert after["used"]["concurrency"] == 0
    assert 0 < after["used"]["tpm"] < during["used"]["tpm"]
    (row,) = [k for k in live.ok("/keys")["keys"] if k["id"] == key.id]
    assert row["used"]["concurrency"] == 0 and row["used"]["rpm"] <= 1


def test_readers_add_no_record(gateway):
    """A budget begins with the answer that gives it, not with a reader."""
    g = Live(gateway(**PARTS))
    key = g.new("calm")
    n = records(g)
    before = g.key("calm")
    assert before["budget"] is None and before["used"]["rpm"] is None
    for _ in range(3):
        g.ok("/keys")
        g.key("calm")
    assert records(g) == n
    r = g.send("PATCH", "/keys/calm", {"budget": "5/day"})
    assert r.json()["budget"] == "5.00/day", r
    assert r.json()["budget_used"] == "0.00"
    assert 0 < r.json()["budget_resets_in"] <= 86400
    assert records(g) == n + 1
    assert g.key("calm")["budget_used"] == "0.00"
    assert g.gw.chat(key=key).status == 200
    assert nano(g.key("calm")["budget_used"]) > 0

    # another window: what was spent in it counts

    r = g.send("PATCH", "/keys/calm", {"budget": "5/total"})
    assert nano(r.json()["budget_used"]) == COST
    assert r.json()["budget_resets_in"] is None


def test_only_limits_take_a_record(gateway):
    """Also of keys that are there as a configuration takes effect."""
    g = Live(gateway(**PARTS))
    n = records(g)
    for i, limit in enumerate(({}, {}, {"rpm": 9}, {"tpm": 9}, {},
                               {"concurrency": 1}, {"budget": "1/day"})):
        admitted(g.gw, g.new("k-%d" % i, **limit), 1)
    g.gw.reload()
    assert records(g) == n + 4
    g.gw.stop()
    g.gw.start()
    assert records(g) == n + 4

    # a limit of the group is one of the key

    one = lib.group_b(models=lib.MODELS_B.replace(";", " max_output=4000;"))
    assert one in GROUPS
    g.gw.groups = GROUPS.replace(one, one.replace("{", "{ limits rpm=60;", 1))
    g.gw.write()
    g.gw.reload()
    assert records(g) >= n + 7


def test_budget_of_a_configured_key(gateway):
    """One of its id that is imported does not begin another window."""
    g = Live(gateway(**PARTS, keys=[Key("moving", "b", "budget=1/month")]))
    (key,) = [k for k in g.gw.keys if k.id == "moving"]
    assert g.gw.chat(key=key).status == 200
    used = g.key("moving")["budget_used"]
    assert nano(used) > 0
    digest = hashlib.sha256(key.secret.encode()).hexdigest()
    r = g.send("POST", "/keys", {"id": "moving", "group": "b", "budget":
                                 "2/day", "hash": "sha256:" + digest})
    assert r.status == 201, r
    assert g.key("moving")["budget_used"] == used
    assert g.gw.chat(key=key).status == 200
    assert nano(g.key("moving")["budget_used"]) == 2 * nano(used)


def test_keys_of_accounts(gateway):
    """Those that are in use: neither expired nor revoked, one that both have
    once."""
    g = Live(gateway(**PARTS))

    def keys():
        return {a["id"]: a["keys"] for a in g.ok("/accounts")["accounts"]}

    assert keys() == {"alice": 1, "bob-1": 1, "carol": 1, "dave-1": 0}
    for i in range(4):
        g.new("m-%d" % i, account="carol")
    g.new("old", account="carol")
    g.expire("old")
    g.send("POST", "/keys/m-0/rotate", {"grace": "1h"})
    assert keys()["carol"] == 5
    g.send("DELETE", "/keys/m-1")
    assert keys()["carol"] == 4 and g.ok("/accounts/carol")["keys"] == 4
    secret = "sk-eu-moves"
    g.new("moves", account="carol", hash="sha256:"
          + hashlib.sha256(secret.encode()).hexdigest())
    assert keys()["carol"] == 5

    # an id and a hash that the configuration has, too

    same = Key("moves-2", "b", "account=alice")
    same.secret = secret
    g.gw.keys += [Key("m-2", "b", "account=bob-1"), same]
    g.gw.write_keys()
    g.gw.reload()
    g.gw.wait_log('key "m-2" of the ledger is not used')
    assert keys() == {"alice": 2, "bob-1": 2, "carol": 3, "dave-1": 0}


def test_groups_and_models(live):
    groups = {g["name"]: g for g in live.ok("/groups")["groups"]}
    assert set(groups) == {"a", "b"} and "fam-b-one" in groups["b"]["models"]
    models = {m["id"]: m for m in live.ok("/models")["models"]}
    assert models["fam-b-one"]["group"] == "b"
    assert float(models["fam-b-one"]["input"]) > 0
    text = json.dumps([groups, models])
    for secret in live.gw.secrets():
        assert secret not in text


def test_no_secrets(live):
    """Not in a log, the store, a list, or an answer but the first."""
    live.new("canary")
    assert live.send("POST", "/keys/canary/rotate").status == 200
    assert len(live.made) > 1
    texts = [live.get(p).body for p in ("/keys", "/keys/canary", "/actions",
                                        "/keys?limit=5", "/accounts/canary")]
    for name in ("access.log", "error.log"):
        with open(live.gw.path(name), "rb") as f:
            texts.append(f.read())
    with open(live.gw.path("ledger.db"), "rb") as f:
        texts.append(f.read())
    with open(live.gw.path("ledger.db-wal"), "rb") as f:
        texts.append(f.read())
    for secret in live.made:
        for text in texts:
            assert secret.encode() not in text
            assert secret[6:].encode() not in text


def test_off(gateway):
    """Without the directive the API says so, and nothing else changes."""
    g = Live(gateway(http=LEDGER, groups=GROUPS, locations=ADMIN))
    for method, path in (("POST", "/keys"), ("PATCH", "/keys/x"),
                         ("POST", "/keys/x/rotate"), ("DELETE", "/keys/x")):
        refused(g.send(method, path, {"group": "b"}), 404, "NOT_FOUND",
                "modelgw_managed_keys")
    assert len(g.ok("/keys")["keys"]) == 4
    assert g.gw.chat().status == 200


def test_restart_and_reload(gateway):
    g = Live(gateway(**PARTS))
    keys = [g.new("k-%d" % i) for i in range(5)]
    g.send("DELETE", "/keys/k-0")
    old = keys[1]
    r = g.send("POST", "/keys/k-1/rotate", {"grace": "1h"})
    keys[1] = Key("k-1", "b")
    keys[1].secret = r.json()["key"]

    def check():
        shut(g.gw, keys[0])
        for key in keys[1:] + [old]:
            admitted(g.gw, key, 2)

    check()
    g.gw.reload()
    check()
    g.gw.power_cut()
    g.gw.start()
    check()
    assert [k["version"] for k in g.ok("/keys?q=k-")["keys"]
            if k["source"] == "ledger"] == [2, 2, 1, 1, 1]
    g.gw.reload()
    later = g.new("after")
    admitted(g.gw, later)


def test_as_many_as_allowed(gateway):
    parts = dict(PARTS, http=LEDGER + " modelgw_managed_keys 3;")
    g = Live(gateway(**parts))
    keys = [g.new("k-%d" % i) for i in range(3)]
    r = g.send("POST", "/keys", {"id": "k-3", "group": "b"})
    refused(r, 503, "SERVICE_UNAVAILABLE", "modelgw_managed_keys 3")
    refused(g.send("POST", "/keys/k-0/rotate", {"grace": "1h"}), 503,
            "SERVICE_UNAVAILABLE")
    assert g.ok("/actions?target=k-3")["actions"] == []

    # a secret that must go at once leaves its place to the new one

    r = g.send("POST", "/keys/k-2/rotate")
    assert r.status == 200, r
    shut(g.gw, keys[2])
    keys[2].secret = r.json()["key"]
    admitted(g.gw, keys[2])
    assert g.send("DELETE", "/keys/k-0").status == 200
    admitted(g.gw, g.new("k-3"))
    admitted(g.gw, keys[1])
    assert g.gw.get("/v1/models", key=keys[0]).status == 401


ALONE = """%s
daemon off; master_process off; pid %s/nginx.pid; error_log %s/error.log;
events {}
http { access_log off;
       client_body_temp_path %s; proxy_temp_path %s; fastcgi_temp_path %s;
       uwsgi_temp_path %s; scgi_temp_path %s;
       server { listen 127.0.0.1:%d;
                location /admin/ { modelgw_admin; allow 127.0.0.1; deny all; }
}}
"""


def test_a_server_of_the_administration_alone(tmp_path):
    """There are no keys, and no table of them."""
    port = free_port()
    load = "load_module %s;" % lib.MODULE if lib.MODULE else ""
    (tmp_path / "nginx.conf").write_text(ALONE % (
        (load,) + (tmp_path,) * 7 + (port,)))
    nginx = subprocess.Popen([lib.NGINX, "-c", str(tmp_path / "nginx.conf")])
    try:
        end = time.monotonic() + client.LIMIT
        while True:
            try:
                r = client.h1(port, "GET", "/admin/keys", host="localhost")
                break
            except OSError:
                assert time.monotonic() < end and nginx.poll() is None
                time.sleep(0.02)
        assert r.status == 200 and r.json() == {"keys": []}, r
        refused(client.h1(port, "GET", "/admin/keys/x", host="localhost"), 404,
                "NOT_FOUND")
    finally:
        nginx.terminate()
        assert nginx.wait() == 0


def test_more_keys_than_allowed(gateway):
    """At a start: refused with the number that is needed; a warning if there is
    to be none, and customers would get 401."""
    parts = dict(PARTS, http=LEDGER + " modelgw_managed_keys 9;")
    g = Live(gateway(**parts))
    keys = [g.new("k-%d" % i) for i in range(4)]
    g.send("POST", "/keys/k-0/rotate", {"grace": "1h"})
    g.send("POST", "/keys/k-1/rotate")
    g.send("DELETE", "/keys/k-2")

    def start(n):
        g.gw.stop()
        g.gw.http = LEDGER + (" modelgw_managed_keys %s;" % n if n else "")
        g.gw.write()
        g.gw.start()

    g.gw.expect("the ledger has 4 keys, more than")
    with pytest.raises(lib.Failed) as refusal:
        start(3)
    assert 'ledger has 4 keys, more than "modelgw_managed_keys 3"' \
        in str(refusal.value)
    for n in (None, "0"):
        warnings = g.gw.log_count("the ledger has 4 keys that are refused: "
                                  'they need "modelgw_managed_keys"')
        start(n)
        assert g.gw.log_count("the ledger has 4 keys that are refused: "
                              'they need "modelgw_managed_keys"') > warnings
        assert g.gw.get("/v1/models", key=keys[0]).status == 401
    start(4)
    admitted(g.gw, keys[0])
    admitted(g.gw, keys[3])
    assert g.gw.log_count("that are refused") == 2


def test_configuration_wins(gateway):
    """An id or a hash that it has, too."""
    secret = "sk-eu-both"
    g = Live(gateway(**PARTS))
    one = g.new("one")
    two = g.new("two", hash="sha256:"
                + hashlib.sha256(secret.encode()).hexdigest())
    two.secret = secret
    admitted(g.gw, one)
    admitted(g.gw, two)
    mine = Key("one", "a")
    same = Key("three", "a")
    same.secret = secret
    g.gw.keys += [mine, same]
    g.gw.write_keys()
    g.gw.reload()
    g.gw.wait_log(r'key "one" of the ledger is not used: .* its id')
    g.gw.wait_log(r'key "two" of the ledger is not used: .* its hash')
    shut(g.gw, one)
    admitted(g.gw, mine)
    names = {m["id"] for m in g.gw.get("/v1/models",
                                       key=same).json()["data"]}
    assert all(name.startswith("fam-a") for name in names)
    refused(g.send("DELETE", "/keys/one"), 409, "CONFIGURED_KEY")
    g.gw.keys = g.gw.keys[:-2]
    g.gw.write_keys()
    g.gw.reload()
    admitted(g.gw, one)
    admitted(g.gw, two)


def test_group_that_is_gone(gateway):
    g = Live(gateway(**PARTS))
    key = g.new("orphan", group="a")
    admitted(g.gw, key)
    g.gw.groups = GROUPS.replace("modelgw_group a ", "modelgw_group a2 ")
    for k in g.gw.keys:
        k.group = k.group.replace("a", "a2")
    g.gw.write()
    g.gw.reload()
    shut(g.gw, key)
    g.gw.wait_log('group "a" of key "orphan" is not configured')
    assert g.key("orphan")["group"] == "a"


def test_without_configured_keys(gateway):
    g = Live(gateway(**PARTS, keys_text=""))
    key = g.new("only")
    admitted(g.gw, key)


def test_many_at_once(gateway):
    """Keys made, changed and revoked while others are used."""
    parts = dict(PARTS, http=LEDGER + " modelgw_managed_keys 1000;")
    g = Live(gateway(**parts))
    stay = [g.new("stay-%d" % i) for i in range(10)]
    stop = threading.Event()
    wrong = []

    def use():
        while not stop.is_set():
            for key in stay:
                r = g.gw.get("/v1/models", key=key)
                if r.status != 200:
                    wrong.append(r)
                    return

    users = [threading.Thread(target=use) for _ in range(3)]
    for t in users:
        t.start()
    for i in range(60):
        key = g.new("come-%d" % i)
        assert g.gw.get("/v1/models", key=key).status == 200
        assert g.send("PATCH", "/keys/" + key.id, {"rpm": 9}).status == 200
        assert g.send("DELETE", "/keys/" + key.id).status == 200
        assert g.gw.get("/v1/models", key=key).status == 401
    stop.set()
    for t in users:
        t.join()
    assert not wrong


class Table:
    """The table of keys in shared memory, of ngx_modelgw_managed.c, which is
    found by its size and the number of its slots."""

    SEQ, MAX, NSLOTS, SLOTS = 0, 24, 56, 64     # offsets

    def __init__(self, pid, size):
        self.memory = "/proc/%d/mem" % pid
        with open("/proc/%d/maps" % pid) as f:
            areas = [line.split()[0].split("-") for line in f
                     if " rw-s " in line]
        found = []
        for start, end in ((int(a, 16), int(b, 16)) for a, b in areas):
            data = self.read(start, end - start)
            at = data.find(struct.pack("<Q", size))
            while at >= 0:
                if data[at - self.MAX + self.NSLOTS:][:8] \
                        == struct.pack("<Q", size + size // 2 + 2):
                    found.append(start + at - self.MAX)
                at = data.find(struct.pack("<Q", size), at + 1)
        (self.start,) = found
        self.nslots = self.number(self.NSLOTS)

    def read(self, at, size):
        with open(self.memory, "rb", 0) as f:
            f.seek(at)
            return f.read(size)

    def write(self, at, data):
        with open(self.memory, "r+b", 0) as f:
            f.seek(at)
            assert f.write(data) == len(data)

    def number(self, offset):
        return struct.unpack("<Q", self.read(self.start + offset, 8))[0]

    def damage(self):
        """As a writer leaves it that is killed in a change."""
        seq = self.number(self.SEQ)
        assert seq % 2 == 0
        self.write(self.start + self.SEQ, struct.pack("<Q", seq + 1))
        self.write(self.number(self.SLOTS), b"\0" * (4 * self.nslots))
        return seq


def test_damaged_table(gateway):
    """It is filled again from the ledger by the writer, without a restart."""
    g = Live(gateway(**dict(PARTS, http=LEDGER
                            + " modelgw_managed_keys 12345;")))
    keys = [g.new("k-%d" % i) for i in range(5)]
    assert g.send("DELETE", "/keys/k-4").status == 200
    table = Table(g.gw.process.pid, 12345)
    for _ in range(2):
        seq = table.damage()
        end = time.monotonic() + client.LIMIT
        while table.number(Table.SEQ) % 2:
            assert g.gw.get("/v1/models", key=keys[0]).status in (200, 503)
            assert time.monotonic() < end, "the table is not filled"
        assert table.number(Table.SEQ) > seq
        for key in keys[:4]:
            admitted(g.gw, key, 2)
        shut(g.gw, keys[4])
    admitted(g.gw, g.new("after"))


TRIALS = int(os.environ.get("MODELGW_KEY_TRIALS", "20"))


def test_killed_writers(gateway):
    """The writer's worker is killed at any moment of a request: key, credit and
    audit row are there, all or none; what was answered is there and works."""
    parts = dict(PARTS, http=LEDGER + " modelgw_managed_keys 1000;")
    g = Live(gateway(**parts, start_timeout=120))
    g.gw.expect("exited on signal 9")
    rng = random.Random(17)
    answered = {}
    for i in range(TRIALS):
        id = "trial-%d" % i
        workers = [p for p in g.gw.pids() if p != g.gw.process.pid]
        pause = rng.random() * 0.02

        def kill():
            time.sleep(pause)
            for pid in workers:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            r = g.send("POST", "/keys", {"id": id, "group": "b"})
            if r is not None and r.status == 201:
                answered[id] = r.json()["key"]
        except (OSError, AssertionError):
            pass
        killer.join()

    end = time.monotonic() + client.LIMIT
    while True:
        try:
            r = g.get("/keys")
            if r is not None and r.status == 200:
                break
        except (OSError, AssertionError):
            pass
        assert time.monotonic() < end
        time.sleep(0.1)

    assert g.new("last").secret
    rows = {r[0] for r in store(g.gw, "SELECT id FROM keys")}
    acted = {r[0] for r in store(g.gw, "SELECT target FROM actions"
                                 " WHERE action = 'key.create'")}
    opened = {r[0] for r in store(g.gw, "SELECT target FROM actions"
                                  " WHERE action = 'account.create'")}
    credit = {r[0] for r in store(
        g.gw, "SELECT account FROM topups WHERE id LIKE 'founding:trial-%'"
        " OR id = 'founding:last'")}
    accounts = {r[0] for r in store(
        g.gw, "SELECT name FROM accounts WHERE name LIKE 'trial-%'"
        " OR name = 'last'")}
    assert rows == acted == opened == credit == accounts
    assert set(answered) <= rows
    for id, secret in answered.items():
        key = Key(id, "b")
        key.secret = secret
        assert g.gw.get("/v1/models", key=key).status == 200
        assert g.balance(id) == "5.00"
    assert store(g.gw, "SELECT count(*) FROM audit WHERE difference != 0") \
        == [(0,)]


def writer(gw):
    """The worker that has the ledger open."""
    end = time.monotonic() + client.LIMIT
    while True:
        for pid in gw.pids():
            folder = "/proc/%d/fd" % pid
            for fd in os.listdir(folder):
                with contextlib.suppress(OSError):
                    if os.readlink(os.path.join(folder, fd)) \
                            == gw.path("ledger.db-wal"):
                        return pid
        assert time.monotonic() < end
        time.sleep(0.02)


def killed_after_commit(g, requests):
    """Answers of requests whose changes are one batch, which was committed when
    its writer was killed: the next one publishes them."""
    ready, go = g.gw.path("gdb.ready"), g.gw.path("gdb.go")
    gdb = subprocess.Popen(
        ["gdb", "-q", "-nx", "-batch", "-p", str(writer(g.gw)),
         "-ex", "set pagination off", "-ex", "set confirm off",
         "-ex", "shell touch %s; until [ -e %s ]; do sleep 0.05; done"
         % (ready, go),
         "-ex", "tbreak ngx_modelgw_store_commit", "-ex", "continue",
         "-ex", "backtrace", "-ex", "finish", "-ex", "kill"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        try:
            end = time.monotonic() + 2 * client.LIMIT
            while not os.path.exists(ready):
                assert time.monotonic() < end and gdb.poll() is None
                time.sleep(0.02)
            answers = []
            for request in requests:
                answers.append(pool.submit(g.send, *request))
                time.sleep(0.3)
        finally:
            with open(go, "w"):
                pass
        out = gdb.communicate(timeout=2 * client.LIMIT)[0]
        assert "ngx_http_modelgw_batch" in out, out
        return [a.result() for a in answers]


@pytest.mark.skipif(not shutil.which("gdb"), reason="no gdb")
def test_killed_after_a_commit(gateway):
    """Changes of one key in one batch, published by the next writer."""
    g = Live(gateway(**PARTS, workers=2))
    g.gw.expect("exited on signal 9")
    grace, ended = [g.new("grace")], [g.new("ended")]
    answers = killed_after_commit(g, [
        ("POST", "/keys/grace/rotate", {"grace": "1h"}),
        ("POST", "/keys/grace/rotate", {"grace": "2h"}),
        ("POST", "/keys/ended/rotate", {"grace": "1h"}),
        ("POST", "/keys/ended/rotate")])
    for keys, r in zip((grace, grace, ended, ended), answers):
        assert r.status == 200, r
        keys.append(Key(keys[0].id, "b"))
        keys[-1].secret = r.json()["key"]
    for n in (1, 2):
        for key in grace + ended[2:]:
            admitted(g.gw, key, 2)
        for key in ended[:2]:
            shut(g.gw, key, 2)
        if n == 1:
            g.gw.power_cut()
            g.gw.start()


@pytest.mark.parametrize("workers", [1, 4])
def test_refusals(gateway, workers):
    """Those of a key are known after it was revoked."""
    live = Live(gateway(**dict(PARTS, locations=ADMIN + LOCATION),
                        workers=workers))
    key = live.new("made", rpm=1)
    assert live.gw.chat(key=key).status == 200
    for _ in range(3):
        assert live.gw.chat(key=key).status == 429
    row = {"made": {"rate_limited": 3}}
    codes = {("b", "chat", "RATE_LIMITED"): 3}
    wait_refusals(live, row, codes)
    assert live.send("POST", "/keys/made/revoke").status == 200
    assert refusals(live) == (row, codes)
    assert live.gw.chat(key=key).status == 401
    codes["", "chat", "INVALID_API_KEY"] = 1
    wait_refusals(live, row, codes)
    live.gw.reload()
    assert refusals(live) == (row, codes)
