"""What operators change: corrections, accounts, and the audit log of it."""

import base64
import concurrent.futures
import json
import threading

import pytest

from gateway import Key, chat
from test_admin import (ADMIN, Admin, WITH_LEDGER, nano, refused, store)
from upstream import both, raw

KEYS = [Key("erin", "b", "account=shop"), Key("frank", "b", "account=shop")]

PASSWORDS = "ops:{PLAIN}open-sesame\n"


@pytest.fixture(scope="module")
def shared(module_gateway):
    return Admin(module_gateway(**WITH_LEDGER, locations=ADMIN, keys=KEYS))


@pytest.fixture
def admin(shared, upstreams):
    for u in upstreams:
        u.reset()
    yield shared
    assert shared.gw.process.poll() is None, "nginx has exited"


def post(admin, path, body, **kw):
    return admin.gw.request("POST", "/admin" + path, body=json.dumps(body),
                            **kw)


def patch(admin, path, body, **kw):
    return admin.gw.request("PATCH", "/admin" + path, body=json.dumps(body),
                            **kw)


def actions(admin, query=""):
    return admin.ok("/actions" + query)["actions"]


# corrections


def test_correction(admin):
    before = nano(admin.balance("carol"))
    r = post(admin, "/accounts/carol/topups",
             {"id": "fix-1", "amount": "-7.50", "correction": True,
              "reason": "typed twice"})
    assert r.status == 201, r
    assert r.json()["amount"] == "-7.50"
    assert nano(admin.balance("carol")) == before - nano("7.5") < 0
    admin.gw.wait_log('correction "fix-1": -7.50 euro for account "carol"')

    # once, as any top-up
    r = post(admin, "/accounts/carol/topups",
             {"id": "fix-1", "amount": "-7.50", "correction": True,
              "reason": "typed twice"})
    assert r.status == 200 and r.json()["new"] is False, r
    refused(post(admin, "/accounts/carol/topups",
                 {"id": "fix-1", "amount": "-7.51", "correction": True,
                  "reason": "x"}), 409, "TOPUP_CONFLICT")
    assert nano(admin.balance("carol")) == before - nano("7.5")
    assert store(admin.gw, "SELECT amount, reason FROM topups"
                 " WHERE id = 'fix-1'") == [(-7500000000, "typed twice")]

    action = actions(admin, "?target=carol&limit=1")[0]
    assert action["action"] == "correction"
    assert action["actor"] == action["address"] == "127.0.0.1"
    assert action["before"] == {"balance": "5.00"}
    assert action["after"] == {"balance": "-2.50", "id": "fix-1",
                               "amount": "-7.50", "reason": "typed twice"}


@pytest.mark.parametrize("body, code, words", [
    ({"amount": "-1.00"}, "INVALID_FIELD", '"amount"'),
    ({"amount": "-1.00", "correction": False}, "INVALID_FIELD", '"amount"'),
    ({"amount": "-1.00", "correction": True}, "MISSING_FIELD", '"reason"'),
    ({"amount": "1.00", "correction": True}, "MISSING_FIELD", '"reason"'),
    ({"amount": "-1.00", "correction": True, "reason": ""}, "MISSING_FIELD",
     '"reason"'),
    ({"amount": "--1", "correction": True, "reason": "x"}, "INVALID_FIELD",
     '"amount"'),
    ({"amount": "-", "correction": True, "reason": "x"}, "INVALID_FIELD",
     '"amount"'),
    ({"amount": "-0.00", "correction": True, "reason": "x"}, "INVALID_FIELD",
     '"amount"'),
    ({"amount": "-1", "correction": "yes", "reason": "x"}, "INVALID_FIELD",
     '"correction"'),
    ({"amount": "-1", "correction": True, "reason": 1}, "INVALID_FIELD",
     '"reason"'),
    ({"amount": "1", "reason": "x" * 257}, "INVALID_FIELD", '"reason"'),
    ({"amount": "1", "reason": "ä" * 129}, "INVALID_FIELD", '"reason"')])
def test_bad_corrections(admin, body, code, words):
    before = admin.balance("alice")
    refused(post(admin, "/accounts/alice/topups", dict(body, id="bad")), 400,
            code, words)
    assert admin.balance("alice") == before


def test_reason_of_a_topup(admin):
    r = post(admin, "/accounts/alice/topups",
             {"id": "gift", "amount": "1", "reason": "Ω \"gift\"\n"})
    assert r.status == 201, r
    action = actions(admin, "?target=alice&limit=1")[0]
    assert action["action"] == "topup"
    assert action["after"]["reason"] == "Ω \"gift\"\n"


def test_correction_that_would_overflow(gateway):
    g = Admin(gateway(**WITH_LEDGER, locations=ADMIN))
    for i in range(10):
        r = post(g, "/accounts/alice/topups",
                 {"id": "c-%d" % i, "amount": "-999999999", "correction": True,
                  "reason": "x"})
        assert r.status == (201 if i < 9 else 400), r
    assert g.topup("alice", "back", "1.00").status == 201


def test_correction_leaves_holds_alone(admin):
    gw = admin.gw
    go = threading.Event()
    gw.b.script(raw(go, both))
    with gw.connect() as c:
        c.request("POST", "/v1/chat/completions", [KEYS[0].bearer()],
                  chat(max_tokens=1000))
        gw.b.wait()
        held = admin.account("shop")["held"]
        r = post(admin, "/accounts/shop/topups",
                 {"id": "down", "amount": "-100", "correction": True,
                  "reason": "x"})
        assert r.status == 201
        assert admin.account("shop")["held"] == held != "0.00"
        go.set()
        assert c.response().status == 200
    assert admin.account("shop")["held"] == "0.00"
    assert gw.chat(key=KEYS[0]).status == 402
    assert admin.topup("shop", "up", "100").status == 201
    gw.b.script(both)
    assert gw.chat(key=KEYS[0]).status == 200


# accounts


def test_open_account(admin):
    r = post(admin, "/accounts", {"id": "dora", "note": "by phone"})
    assert r.status == 201, r
    assert r.json() == {"id": "dora", "balance": "5.00", "held": "0.00",
                        "available": "5.00", "state": "open",
                        "note": "by phone"}
    account = admin.ok("/accounts/dora")
    assert account["note"] == "by phone"
    assert [t["id"] for t in account["topups"]] == ["founding:dora"]
    refused(post(admin, "/accounts", {"id": "dora"}), 409, "ACCOUNT_EXISTS",
            "dora")
    refused(post(admin, "/accounts", {"id": "alice"}), 409, "ACCOUNT_EXISTS")

    (action,) = actions(admin, "?target=dora")
    assert action["action"] == "account.create"
    assert action["before"] == {}
    assert action["after"] == {"state": "open", "note": "by phone",
                               "founding": "5.00"}
    assert admin.topup("dora", "dora-1", "1.00").json()["balance"] == "6.00"


def test_open_account_without_founding_credit(admin):
    r = post(admin, "/accounts", {"id": "poor", "founding": False})
    assert r.status == 201 and r.json()["balance"] == "0.00", r
    assert admin.ok("/accounts/poor")["topups"] == []


@pytest.mark.parametrize("body, code, words", [
    ({}, "MISSING_FIELD", '"id"'), ({"id": "a b"}, "INVALID_FIELD", '"id"'),
    ({"id": "x" * 65}, "INVALID_FIELD", '"id"'),
    ({"id": 5}, "INVALID_FIELD", '"id"'),
    ({"id": "x", "founding": 1}, "INVALID_FIELD", '"founding"'),
    ({"id": "x", "note": None}, "INVALID_FIELD", '"note"'),
    ({"id": "x", "note": "y" * 257}, "INVALID_FIELD", '"note"'),
    ({"id": "x", "balance": "9"}, "INVALID_FIELD", '"balance"')])
def test_bad_accounts(admin, body, code, words):
    refused(post(admin, "/accounts", body), 400, code, words)
    refused(admin.get("/accounts/x"), 404, "NOT_FOUND")


@pytest.mark.parametrize("body, code, words", [
    ({}, "MISSING_FIELD", '"state"'),
    ({"state": "shut"}, "INVALID_FIELD", '"state"'),
    ({"state": True}, "INVALID_FIELD", '"state"'),
    ({"state": "x" * 300}, "INVALID_FIELD", '"state"'),
    ({"note": "y" * 257}, "INVALID_FIELD", '"note"'),
    ({"id": "x"}, "INVALID_FIELD", '"id"')])
def test_bad_changes_of_accounts(admin, body, code, words):
    refused(patch(admin, "/accounts/alice", body), 400, code, words)
    assert admin.account("alice")["state"] == "open"


def test_close_account(admin):
    """All keys of it are refused at once, by all workers; its balance and a
    call that is running stay."""
    gw = admin.gw
    before = admin.balance("shop")
    assert gw.chat(key=KEYS[0]).status == 200
    r = patch(admin, "/accounts/shop", {"state": "closed"})
    assert r.status == 200 and r.json()["state"] == "closed", r
    for _ in range(8):
        for key in KEYS:
            refused(gw.chat(key=key), 401, "INVALID_API_KEY")
            refused(gw.get("/v1/models", key=key), 401, "INVALID_API_KEY")
    assert gw.chat(key=gw.bob).status == 200
    after = admin.account("shop")
    assert after["state"] == "closed" and nano(after["balance"]) > 0
    assert nano(after["balance"]) < nano(before)
    assert admin.topup("shop", "late", "1.00").status == 201
    refused(post(admin, "/accounts", {"id": "shop"}), 409, "ACCOUNT_EXISTS")

    r = patch(admin, "/accounts/shop", {"state": "open", "note": "came back"})
    assert r.status == 200 and r.json()["note"] == "came back", r
    assert gw.chat(key=KEYS[1]).status == 200
    assert [a["action"] for a in actions(admin, "?target=shop&limit=3")] \
        == ["account.open", "topup", "account.close"]


def test_changes_that_change_nothing(admin):
    """They are answered as others, and are no action."""
    assert post(admin, "/accounts", {"id": "calm"}).status == 201
    for body, action in (
            ({"state": "open"}, None),
            ({"state": "closed"}, "account.close"),
            ({"state": "closed"}, None),
            ({"state": "closed", "note": "n"}, "account.note"),
            ({"state": "closed", "note": "n"}, None),
            ({"note": "n"}, None),
            ({"state": "open", "note": "n"}, "account.open"),
            ({"note": ""}, "account.note"), ({"note": ""}, None)):
        last = actions(admin, "?target=calm")
        r = patch(admin, "/accounts/calm", body)
        assert r.status == 200, r
        for member in body:
            assert r.json()[member] == body[member]
            assert admin.ok("/accounts/calm")[member] == body[member]
        new = actions(admin, "?target=calm")[:-len(last)]
        assert [a["action"] for a in new] == ([action] if action else [])


def test_restart_keeps_closed_accounts(gateway):
    g = Admin(gateway(**WITH_LEDGER, locations=ADMIN, keys=KEYS))
    assert patch(g, "/accounts/shop", {"state": "closed"}).status == 200
    assert post(g, "/accounts", {"id": "new"}).status == 201
    last = actions(g)[0]["id"]
    g.gw.reload()
    refused(g.gw.chat(key=KEYS[0]), 401, "INVALID_API_KEY")
    g.gw.power_cut()
    g.gw.start()
    refused(g.gw.chat(key=KEYS[0]), 401, "INVALID_API_KEY")
    assert g.balance("new") == "5.00"
    assert patch(g, "/accounts/shop", {"state": "open"}).status == 200
    assert g.gw.chat(key=KEYS[0]).status == 200
    assert actions(g)[0]["id"] > last
    audit = store(g.gw, "SELECT count(*) FROM audit WHERE difference != 0")
    assert audit == [(0,)]


# the audit log


def test_pages(admin):
    for i in range(5):
        assert admin.topup("erin-pages", "p", "1").status == 404
        assert admin.topup("alice", "page-%d" % i, "1").status == 201
    seen = []
    query = "?target=alice&limit=2"
    while query:
        page = admin.ok("/actions" + query)
        assert len(page["actions"]) == 2 or "more" not in page
        seen += [a["after"]["id"] for a in page["actions"]]
        query = ("?target=alice&limit=2&after=" + page["next"]
                 if "more" in page else None)
    assert seen[:5] == ["page-%d" % i for i in (4, 3, 2, 1, 0)]
    assert actions(admin, "?actor=nobody") == []
    assert len(actions(admin, "?actor=127.0.0.1&limit=5")) == 5


@pytest.mark.parametrize("query, word", [
    ("?limit=0", '"limit"'), ("?limit=1001", '"limit"'), ("?limit=x", "limit"),
    ("?after=-1", '"after"'), ("?after=x", '"after"'),
    ("?after=5-3", '"after"'), ("?actor=", '"actor"'),
    ("?target=" + "x" * 65, '"target"'), ("?by=day", '"by"'),
    ("?from=2027-01-01", '"from"'), ("?actor=a&actor=b", "twice")])
def test_bad_queries(admin, query, word):
    refused(admin.get("/actions" + query), 400, "INVALID_FIELD", word)


def test_refused_changes_leave_no_trace(admin):
    last = actions(admin, "?limit=1")
    assert admin.topup("alice", "a b", "1").status == 400
    assert post(admin, "/accounts", {"id": "alice"}).status == 409
    assert actions(admin, "?limit=1") == last


def test_actor_with_a_password(gateway):
    """The user that auth_basic has checked; a name that a client merely sends
    is not believed."""
    locations = """
        location /admin/ { modelgw_admin; auth_basic x;
                           auth_basic_user_file $dir/passwords; }
        location /open/ { modelgw_admin; allow 127.0.0.1; deny all; }
        location /any/ { modelgw_admin; satisfy any; allow 127.0.0.1; deny all;
                         auth_basic x; auth_basic_user_file $dir/passwords;
                         set $who $remote_user; }
        location /off/ { modelgw_admin; auth_basic off; set $who $remote_user;
                         allow 127.0.0.1; deny all; }
"""
    g = Admin(gateway(**WITH_LEDGER, locations=locations,
                      files={"passwords": PASSWORDS}))
    basic = "Basic " + base64.b64encode(b"ops:open-sesame").decode()
    for path, actor in (("/admin", "ops"), ("/open", "127.0.0.1"),
                        ("/any", "127.0.0.1"), ("/off", "127.0.0.1")):
        r = g.gw.request("POST", path + "/accounts", headers=[
            ("Authorization", basic)], body='{"id":"%s"}' % path[1:])
        assert r.status == 201, r
    rows = store(g.gw, "SELECT target, actor, address FROM actions"
                 " ORDER BY id")
    assert rows == [("admin", "ops", "127.0.0.1"),
                    ("open", "127.0.0.1", "127.0.0.1"),
                    ("any", "127.0.0.1", "127.0.0.1"),
                    ("off", "127.0.0.1", "127.0.0.1")]
    warned = g.gw.read("stderr")
    for path in ("/open/", "/any/", "/off/"):
        assert 'admin location "%s" is reachable over TCP' % path in warned
    assert 'admin location "/admin/" is' not in warned


def test_more_at_a_time_than_slots(admin):
    """Those that find no slot wait for one."""
    with concurrent.futures.ThreadPoolExecutor(60) as pool:
        rs = list(pool.map(lambda i: admin.topup("alice", "many-%d" % i, "1"),
                           range(60)))
    assert [r.status for r in rs] == [201] * 60
