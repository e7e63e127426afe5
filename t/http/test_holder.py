"""The holder of a service key sees its own account in the admin interface, and
nothing of another's: canaries are in everything that another account has."""

import contextlib
import re
import urllib.parse

import pytest

from gateway import Key
from operators import (ADMIN, API, OWN, PARTS, SOCKET, Console, address,
                       as_text, bearer, cookie, forbidden, refused, trio,
                       unsigned, wait)
from shim import THREADS, Shim
from upstream import chat_error, reply_json

MARK = "canary"

CONFIGURED = [Key("mine-c", "b", "account=mine rpm=77"),
              Key("%s-key-c" % MARK, "b", "account=%s-account rpm=77" % MARK),
              Key("self", "b", "account=%s-account" % MARK)]

# amounts and counts that are of the other account only

ODD = "31.415926535"


class Two:
    """Two accounts, "mine" and another's, each with keys of both kinds, calls,
    top-ups and notes."""

    def __init__(self, console):
        self.console = c = console
        self.gw = c.gw
        self.place = address()              # of the other's client
        self.mine = c.new_key("mine-1", account="mine",
                              note="hidden-note-of-mine-1",
                              models=["fam-b-one"])
        self.mine2 = c.new_key("mine-2", account="mine", group="a",
                               note="hidden-note-of-mine-2")
        self.other = c.new_key("%s-key-1" % MARK,
                               account="%s-account" % MARK,
                               note="%s-note-of-key" % MARK,
                               rpm=917253846, budget="654987.31/day")
        self.other2 = c.new_key("%s-key-2" % MARK,
                                account="%s-account" % MARK)
        for account, note, amount in (
                ("mine", "hidden-note-of-account", "1.25"),
                (MARK + "-account", MARK + "-note-of-account", ODD)):
            assert c.root("PATCH", "/accounts/" + account,
                          {"note": note}).status == 200
            r = c.root("POST", "/accounts/%s/topups" % account,
                       {"id": "%s-topup" % account, "amount": amount})
            assert r.status == 201, r
            r = c.root("POST", "/accounts/%s/topups" % account,
                       {"id": "%s-fix" % account, "amount": "-0.01",
                        "correction": True, "reason": "%s-reason" % account})
            assert r.status == 201, r
        self.ids = []
        for key, source in ((self.mine, address()), (self.mine2, address()),
                            (self.other, self.place),
                            (self.other, self.place),
                            (self.mine, address()),
                            (self.other2, self.place)):
            if key.group == "a":
                r = self.gw.messages(key=key, source=source)
            else:
                r = self.gw.chat(key=key, source=source)
            assert r.status == 200, r
            self.ids.append((key, r.get("x-request-id")))
        self.gw.b.script(reply_json(chat_error(MARK + "-error"), 400))
        self.gw.chat(key=self.other, source=self.place)
        self.gw.b.reset()
        wait(lambda: len(c.read("/calls")["calls"]) >= 7, "no calls")
        self.calls = c.read("/calls")["calls"]
        self.strange = [str(call["id"]) for call in self.calls
                        if call["account"] != "mine"]
        self.own = [str(call["id"]) for call in self.calls
                    if call["account"] == "mine"]
        self.canaries = [MARK, ODD, self.place, "917253846", "654987.31",
                         "hidden-note", self.gw.secret_a, self.gw.secret_b,
                         "one-0613", "large-2026", "vendor-a", "vendor-b"]
        self.canaries += [id for key, id in self.ids
                          if key.id.startswith(MARK)]

    def head(self, how, key=None):
        key = key or self.mine
        if how == "bearer":
            return [bearer(key.secret)]
        return OWN + [cookie(self.console.session(key))]


@pytest.fixture(scope="module")
def two(module_gateway):
    g = module_gateway(**dict(
        PARTS, locations=ADMIN
        + "location = /metrics { modelgw_metrics; }"),
        operators=trio(), keys=CONFIGURED)
    return Two(Console(g))


@pytest.fixture(params=["cookie", "bearer"])
def head(two, request):
    return two.head(request.param)


CSV = ("Accept", "text/csv")

# each route that a holder may read, with all parameters

READ = ["/session", "/accounts/mine", "/keys", "/keys/mine-1",
        "/keys/mine-c", "/keys/mine-2", "/calls", "/usage", "/models"]

QUERIES = {
    "/keys": ["limit=1", "limit=1000", "state=active", "state=revoked",
              "state=expired", "account=mine"],
    "/calls": ["limit=1", "limit=10000", "account=mine", "key=mine-1",
               "model=fam-b-one", "outcome=reported", "outcome=refused",
               "end=complete", "status=200", "status=400", "min_cost=0.00",
               "from=-1h", "from=-1h&to=now"],
    "/usage": ["by=" + by + more for by in (
        "hour", "day", "month", "key", "model", "account", "key,model",
        "account,key", "account,model", "account,day", "key,hour",
        "model,month") for more in ("", "&from=-1h", "&account=mine")],
}


def clean(two, r):
    """Nothing of another account, no note, no id of an upstream."""
    text = as_text(r)
    for canary in two.canaries:
        assert canary not in text, (canary, r)
    return r


def test_sees_its_own(two, head):
    """And not a single thing of another's, in any answer of a list."""
    c = two.console
    n = 0
    for path in READ + ["/calls/" + id for id in two.own]:
        for query in [""] + QUERIES.get(path, []):
            target = path + ("?" + query if query else "")
            for more in ([], [CSV]):
                r = clean(two, c.get(target, head + more))
                assert r.status == 200, (target, r)
                n += 1
    assert n > 100


def test_all_pages(two, head):
    c = two.console
    for path, name in (("/calls", "calls"), ("/keys", "keys")):
        rows, after = [], ""
        while True:
            r = clean(two, c.get(path + "?limit=1" + after, head))
            page = r.json()
            rows += page[name]
            if not page.get("more"):
                break
            after = "&after=" + urllib.parse.quote(str(page["next"]))
        if name == "calls":
            assert [str(row["id"]) for row in rows] == two.own
        else:
            assert sorted(row["id"] for row in rows) \
                == ["mine-1", "mine-2", "mine-c"]
        assert {row["account"] for row in rows} == {"mine"}


def test_own_account(two, head):
    r = two.console.get("/accounts/mine", head)
    a = r.json()
    assert a["id"] == "mine" and not a.get("note")
    shown = two.console.read("/accounts/mine")
    assert "note" in shown
    for name in ("balance", "held", "available", "state", "spent_24h",
                 "spent_30d", "keys"):
        assert a[name] == shown[name], name
    assert [t["id"] for t in a["topups"]] == [t["id"] for t in
                                              shown["topups"]]


def test_own_keys(two, head):
    rows = {k["id"]: k for k in two.console.ok("/keys", head)["keys"]}
    assert set(rows) == {"mine-1", "mine-2", "mine-c"}
    for row in rows.values():
        assert not row.get("note"), row
        one = two.console.ok("/keys/" + row["id"], head)
        assert not one.get("note") and one["id"] == row["id"]
    assert rows["mine-c"]["rpm"] == 77


def test_own_calls(two, head):
    rows = two.console.ok("/calls", head)["calls"]
    assert [str(r["id"]) for r in rows] == two.own
    shown = {str(row["id"]): row for row in two.calls}
    for row in rows:
        assert "address" not in row and "client" not in row
        assert {n: row[n] for n in row if n != "note"} == {
            n: v for n, v in shown[str(row["id"])].items() if n in row}
        one = two.console.ok("/calls/%s" % row["id"], head)
        assert not set(one) & {"address", "client", "upstream",
                               "upstream_id", "upstream_model"}


def test_own_usage(two, head):
    """As the operators' sums have it."""
    c = two.console
    for by in ("key", "model", "account", "day"):
        mine = c.ok("/usage?by=" + by, head)["usage"]
        shown = c.read("/usage?account=mine&by=" + by)["usage"]
        assert mine == shown
    assert [row["account"] for row in c.ok("/usage?by=account",
                                           head)["usage"]] == ["mine"]


def test_models(two):
    """Those that the key may call, as /v1/models has them, with prices."""
    for key in (two.mine, two.mine2, two.gw.carol, two.gw.alice,
                two.gw.keys[4]):
        rows = two.console.ok("/models", [bearer(key.secret)])["models"]
        listed = [m["id"] for m in two.gw.get("/v1/models",
                                              key=key).json()["data"]]
        ids = [row["id"] for row in rows]
        assert [id for id in ids if not id.startswith("~")] == listed, key.id
        for row in rows:
            assert not row.get("upstream_id")
            assert not set(row) & {"upstream", "credential"}
            assert row.get("group", key.group) == key.group
        if key.id in ("mine-1", "carol-1"):
            assert len(ids) == 1


def same(two, head, path, **names):
    """What another's name is answered is what a name of nobody is."""
    answers = []
    for name in names.values():
        r = two.console.get(path % name, head)
        text = r.body.decode().replace(name, "NAME")
        text = text.replace(urllib.parse.quote(name), "NAME")
        answers.append((r.status, text, len(r.headers)))
    assert len(set(answers)) == 1, answers
    return answers[0][0]


def test_objects_of_others(two, head):
    """404, and not a word that says whether there is one."""
    c = two.console
    for id in (MARK + "-key-1", MARK + "-key-2", MARK + "-key-c", "alice-1",
               "self", "bob-1"):
        assert same(two, head, "/keys/%s", a=id, b="no-such-key") == 404
    for id in two.strange:
        refused(clean(two, c.get("/calls/" + id, head)), 404, "NOT_FOUND")
        assert same(two, head, "/calls/%s", a=id, b="987654321") == 404
    for id in (MARK + "-account", "alice", "bob-1", "carol"):
        assert same(two, head, "/accounts/%s", a=id, b="nobody") == 404
        for form in ("/accounts/%s", "/accounts/%s?account=mine"):
            r = c.get(form % id, head)
            assert r.status in (400, 403, 404), r
    for form in ("MINE", "mine%20", "%6dine/", "mine/topups", "mine%00",
                 "mine%2f..%2f" + MARK + "-account",
                 "..%2faccounts%2f" + MARK + "-account"):
        r = c.get("/accounts/" + form, head)
        assert r.status in (400, 403, 404, 405), (form, r)
    assert c.get("/accounts/%6dine", head).status == 200    # the same path


def test_calls_with_any_number(two, head):
    """Guessed ones, and those that no number is."""
    c = two.console
    low, high = (f(int(id) for id in two.own + two.strange)
                 for f in (min, max))
    for n in range(max(low - 3, 0), high + 4):
        r = clean(two, c.get("/calls/%d" % n, head))
        assert r.status == (200 if str(n) in two.own else 404), (n, r)
    for text in ("-1", "0", "+" + two.strange[0], "0" + two.strange[0],
                 "0x1", "%20" + two.strange[0], two.strange[0] + "%20",
                 two.strange[0] + ".0", "18446744073709551617",
                 "9" * 30, two.strange[0] + "%00"):
        r = clean(two, c.get("/calls/" + text, head))
        assert r.status in (400, 403, 404), (text, r)


@pytest.mark.parametrize("path", ["/calls", "/usage", "/keys"])
def test_account_of_another(two, head, path):
    c = two.console
    for name in (MARK + "-account", "alice", "no-such-account", "MINE"):
        r = c.get("%s?account=%s" % (path, name), head)
        forbidden(r)
        forbidden(c.get("%s?account=%s" % (path, name), head + [CSV]))
        assert same(two, head, path + "?account=%s", a=name,
                    b="no-such-thing") == 403
    for query in ("account=mine&account=" + MARK + "-account",
                  "account=%s-account&account=mine" % MARK,
                  "account=", "account=*", "account=mine,alice",
                  "account=mine%00", "account=%25", "Account=alice",
                  "account%5B%5D=alice", "accounts=alice"):
        r = c.get("%s?%s" % (path, query), head)
        assert r.status in (400, 403), (query, r)


def test_key_of_another(two, head):
    """As a filter: no rows, the same as for a key that does not exist."""
    c = two.console
    for path in ("/calls", "/usage?by=key", "/usage?by=day&from=-1h",
                 "/usage?by=account,key"):
        sep = "&" if "?" in path else "?"
        for id in (MARK + "-key-1", MARK + "-key-c", "alice-1"):
            form = path + sep + "key=%s"
            assert same(two, head, form, a=id, b="no-such-key") \
                in (200, 403, 404)
            r = c.get(form % id, head)
            if r.status == 200:
                (rows,) = [v for v in r.json().values()
                           if isinstance(v, list)]
                assert not any(row.get("calls", 1) for row in rows), r
            r = c.get(form % id, head + [CSV])
            assert r.status != 200 or MARK not in as_text(r).replace(id, "")


def test_request_ids_of_another(two, head):
    for key, id in two.ids:
        r = two.console.get("/calls?request_id=" + id, head)
        assert r.status == 200, r
        n = len(r.json()["calls"])
        assert n == (1 if key.id.startswith("mine") else 0), r


def test_search(two, head):
    """q= finds by notes, too, which are not the holder's to see."""
    c = two.console
    for q in ("hidden", "hidden-note-of-mine-1", "zzz-nothing", MARK, "mine"):
        r = c.get("/keys?q=" + q, head)
        clean(two, r) if q in ("mine", "zzz-nothing") else None
        if r.status == 200 and "hidden" in q:
            assert r.json()["keys"] == [], r
        elif r.status == 200:
            assert all(k["account"] == "mine" for k in r.json()["keys"])
        else:
            forbidden(r)
    assert same(two, head, "/keys?q=%s", a="hidden-note-of-mine-1",
                b="zzz-nothing")
    assert same(two, head, "/keys?q=%s", a=MARK, b="zzz-nothing")


def test_places_of_pages(two, head):
    """after= takes what a page before has said; another's says nothing."""
    c = two.console
    for source in ("config", "ledger"):
        for id in (MARK + "-key-1", MARK + "-key-c", "alice-1"):
            path = "/keys?after=%s:%%s" % source
            r = clean(two, c.get(path % id, head)) if MARK not in id \
                else c.get(path % id, head)
            if r.status == 200:
                assert all(k["account"] == "mine" for k in r.json()["keys"])
    for id in two.strange + ["0", "1", "987654321"]:
        r = clean(two, c.get("/calls?after=" + id, head))
        if r.status == 200:
            assert {x["account"] for x in r.json()["calls"]} <= {"mine"}
    for text in ("opened:0:" + "alice", "x", "-1", "name:0:carol"):
        for path in ("/calls", "/keys", "/usage"):
            clean(two, c.get("%s?after=%s" % (path, text), head))


CLOSED = ["/accounts", "/accounts?q=mine", "/accounts?sort=spent", "/actions",
          "/actions?actor=mine-1", "/actions?target=mine", "/groups",
          "/refusals", "/status", "/operators"]


@pytest.mark.parametrize("path", CLOSED)
def test_closed_to_holders(two, head, path):
    forbidden(clean(two, two.console.get(path, head)))
    forbidden(clean(two, two.console.get(path, head + [CSV])))


CHANGES = [
    ("POST", "/accounts", {"id": "bred"}),
    ("POST", "/accounts/mine/topups", {"id": "t-1", "amount": "9.00"}),
    ("POST", "/accounts/%s-account/topups" % MARK,
     {"id": "t-2", "amount": "-9.00", "correction": True, "reason": "x"}),
    ("PATCH", "/accounts/mine", {"note": "x"}),
    ("PATCH", "/accounts/mine", {"state": "open"}),
    ("POST", "/keys", {"group": "b"}),
    ("POST", "/keys", {"group": "b", "account": "mine"}),
    ("POST", "/keys", {"id": "bred", "group": "a", "account": "mine"}),
    ("POST", "/keys/mine-1/rotate", None),
    ("POST", "/keys/self/rotate", None),
    ("POST", "/keys/mine-1/revoke", None),
    ("POST", "/keys/mine-2/revoke", None),
    ("POST", "/keys/%s-key-1/revoke" % MARK, None),
    ("POST", "/keys/%%73elf%%2f..%%2f%s-key-1/revoke" % MARK, None),
    ("POST", "/keys/SELF/revoke", None),
    ("POST", "/keys/self%20/revoke", None),
    ("DELETE", "/keys/self", None),
    ("DELETE", "/keys/mine-1", None),
    ("DELETE", "/keys/mine-2", None),
    ("DELETE", "/keys/%s-key-1" % MARK, None),
    ("PATCH", "/keys/mine-1", {"rpm": 1000000}),
    ("PATCH", "/keys/mine-1", {"models": None}),
    ("PATCH", "/keys/mine-1", {"expires": None}),
    ("PATCH", "/keys/self", {"budget": None}),
    ("PATCH", "/keys/%s-key-1" % MARK, {"account": "mine"}),
    ("POST", "/operators", {"name": "x", "role": "admin"}),
    ("DELETE", "/operators/alice", None),
    ("POST", "/keys/import", {"keys": []}),
]


@pytest.mark.parametrize("method, path, body", CHANGES)
def test_a_stolen_key_changes_nothing(two, head, method, path, body):
    before = two.console.state()
    r = clean(two, two.console.send(method, path, head, body)) \
        if MARK not in path else two.console.send(method, path, head, body)
    assert r.status in (403, 404, 405), r
    assert not re.search("sk-eu-|op-eu-", as_text(r))
    assert two.console.state() == before


@pytest.mark.parametrize("how", ["cookie", "bearer"])
def test_revoke_itself(two, how):
    """Once; and not the key that is called "self", nor another of its
    account."""
    c = two.console
    key = c.new_key("lost-" + how, account="mine")
    headers = two.head(how, key)
    calls = [two.head("cookie", key), two.head("bearer", key)]
    before = {k["id"]: k["state"] for k in c.read("/keys")["keys"]}
    r = c.send("POST", "/keys/self/revoke", headers)
    assert r.status == 200, r
    clean(two, r)
    after = {k["id"]: k["state"] for k in c.read("/keys")["keys"]}
    assert after == dict(before, **{key.id: "revoked"})
    for more in [headers] + calls:
        unsigned(c.send("POST", "/keys/self/revoke", more))
        unsigned(c.get("/session", more))
        unsigned(c.get("/keys", more))
    assert two.gw.get("/v1/models", key=key).status == 401
    assert two.gw.get("/v1/models", key=CONFIGURED[2]).status == 200
    (action,) = c.read("/actions?target=%s&limit=1" % key.id)["actions"]
    assert action["actor"] == key.id and "revoke" in action["action"]


def test_revoke_a_configured_key(two):
    """Also the one that is called "self"."""
    c = two.console
    before = c.state()
    for key in (CONFIGURED[0], CONFIGURED[2], two.gw.alice):
        for how in ("cookie", "bearer"):
            r = c.send("POST", "/keys/self/revoke", two.head(how, key))
            refused(r, 409, "CONFIGURED_KEY")
    assert c.state() == before
    for key in (CONFIGURED[0], CONFIGURED[2]):
        assert two.gw.get("/v1/models", key=key).status == 200


def test_the_key_named_self(two):
    """An operator's change of it is of it."""
    c = two.console
    alice = [bearer(c.operator("alice").secret)]
    r = c.send("POST", "/keys/self/revoke", alice)
    refused(r, 409, "CONFIGURED_KEY")
    assert c.get("/keys/self", alice).json()["account"] == MARK + "-account"


def test_revoke_with_a_body(two):
    """Another id in it is none of its fields."""
    c = two.console
    key = c.new_key("body-1", account="mine")
    for body in ({"id": MARK + "-key-1"}, {"key": MARK + "-key-1"},
                 {"account": MARK + "-account"}):
        r = c.send("POST", "/keys/self/revoke", two.head("bearer", key), body)
        assert r.status == 400, r
    r = c.send("POST", "/keys/self/revoke?id=%s-key-1" % MARK,
               two.head("bearer", key))
    assert r.status == 400, r
    assert c.get("/session", two.head("bearer", key)).status == 200


def test_the_same_account_elsewhere(two):
    """Two keys of an account see the same, each its own models."""
    c = two.console
    one, other = two.head("bearer", two.mine), two.head("bearer", two.mine2)
    for path in ("/accounts/mine", "/calls", "/usage?by=key"):
        assert c.ok(path, one) == c.ok(path, other)
    assert c.ok("/models", one) != c.ok("/models", other)


def test_an_account_like_another(two):
    """Names that are parts of others."""
    c = two.console
    for name in ("min", "mine-", "mine2", "ine", "m"):
        key = c.new_key("of-" + name, account=name)
        head = two.head("bearer", key)
        assert c.ok("/calls", head)["calls"] == []
        assert [k["id"] for k in c.ok("/keys", head)["keys"]] == [key.id]
        refused(c.get("/accounts/mine", head), 404, "NOT_FOUND")
        assert not any(row["calls"] for row in
                       c.ok("/usage?by=key", head)["usage"])


def test_closed_account(two):
    """401, as for calls; a session, too."""
    c = two.console
    key = c.new_key("ends", account="ends")
    heads = two.head("cookie", key), two.head("bearer", key)
    assert c.root("PATCH", "/accounts/ends", {"state": "closed"}).status == 200
    for head in heads:
        unsigned(c.get("/accounts/ends", head))
    unsigned(c.sign_in(key.secret))
    assert c.root("PATCH", "/accounts/ends", {"state": "open"}).status == 200
    c.works(c.session(key), "ends", "holder")


def test_without_a_ledger(gateway):
    """There is no account to see; the keys' limits and models are."""
    c = Console(gateway(groups=PARTS["groups"], http=SOCKET, locations=ADMIN,
                        operators=trio()))
    head = [bearer(c.gw.alice.secret)]
    for path in ("/accounts/alice", "/calls", "/usage"):
        refused(c.get(path, head), 404, "NOT_FOUND")
    assert [k["id"] for k in c.ok("/keys", head)["keys"]] == ["alice-1"]
    assert c.ok("/models", head)["models"]
    assert same_text(c, head, "/keys/bob-1", "/keys/nobody")


def same_text(c, head, one, other):
    a, b = c.get(one, head), c.get(other, head)
    name = lambda p: p.rpartition("/")[2]
    return (a.status, a.body.decode().replace(name(one), "")) \
        == (b.status, b.body.decode().replace(name(other), ""))


QUESTIONS = ["/usage", "/calls", "/keys", "/accounts/mine", "/models"]


def test_questions_that_hang(gateway, tmp_path, monkeypatch):
    """However many a holder sends, operators are answered."""
    threads = Shim(tmp_path / "shim", THREADS, monkeypatch)
    c = Console(gateway(**PARTS, workers=1, operators=trio(),
                        keys=[Key("mine-1", "b", "account=mine")]))
    key, vera = c.gw.keys[-1], c.operator("vera")
    n = 6
    threads.set("hold")
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(c.gw.connect()) for _ in range(n)]
        for i, one in enumerate(held):
            more = [CSV] if i == 1 else []
            one.request("GET", API + QUESTIONS[i % len(QUESTIONS)],
                        [bearer(key.secret)] + more)
        c.gw.wait_idle()
        for path in QUESTIONS:
            for more in ([], [CSV]):
                refused(c.get(path, [bearer(key.secret)] + more), 503,
                        "SERVICE_UNAVAILABLE")
        assert c.ok("/session", [bearer(key.secret)])
        threads.clear("hold")
        for path in QUESTIONS + ["/status", "/accounts"]:
            assert c.ok(path, [bearer(vera.secret)])
        assert c.get("/calls", [bearer(vera.secret), CSV]).status == 200
        assert c.gw.chat(key=key).status == 200
        threads.set("release")
        for one in held:
            assert one.response().status == 200
    for path in QUESTIONS:
        assert c.ok(path, [bearer(key.secret)])


def test_operators_see_all(two):
    """Control: the canaries are there."""
    c = two.console
    head = [bearer(c.operator("vera").secret)]
    text = "".join(as_text(c.get(path, head)) for path in (
        "/accounts/%s-account" % MARK, "/keys?limit=1000", "/calls", "/models",
        "/usage?by=account", "/actions", "/accounts", "/groups"))
    for canary in (MARK, ODD, "917253846", "654987.31", "hidden-note",
                   "one-0613"):
        assert canary in text, canary
    for id in two.strange:
        assert c.get("/calls/" + id, head).status == 200
