"""Who may do what in the admin interface: each route and method by each role.

The routes are those of the table in the source, so a new one needs a row here.
"""

import json
import os
import re

import pytest

from gateway import ROOT, chat
from operators import (OWN, PARTS, Console, bearer, cookie, forbidden, nobody,
                       refused, trio, unsigned, wait)

SOURCE = os.path.join(ROOT, "src/http/admin/ngx_http_modelgw_admin.c")

ROW = re.compile(r'\{ ngx_string\("([^"]+)"\),\s+'
                 r'(?:ngx_null_string|ngx_string\("([^"]+)"\)),\s+'
                 r'NGX_HTTP_(\w+),')

ADMIN = ("admin",)
BILLING = ("admin", "billing")
READ = ("admin", "billing", "viewer")
ALL = READ + ("holder",)

# (method, path, body, who may, status); "*": an id of the own account.  What is
# made or ended is another one's for each role.

ROUTES = {
    ("POST", "session"): ({"token": "{token}"}, ALL, 200),
    ("GET", "session"): (None, ALL, 200),
    ("DELETE", "session"): (None, ALL, 204),
    ("GET", "operators"): (None, ADMIN, 200),
    ("GET", "accounts"): (None, READ, 200),
    ("POST", "accounts"): ({"id": "new-{n}", "founding": False}, ADMIN, 201),
    ("POST", "accounts/*/topups"): (
        {"id": "topup-{n}", "amount": "1.00"}, BILLING, 201),
    ("GET", "accounts/*"): (None, ALL, 200),
    ("PATCH", "accounts/*"): ({"note": "{n}"}, ADMIN, 200),
    ("GET", "actions"): (None, READ, 200),
    ("GET", "calls"): (None, ALL, 200),
    ("GET", "calls/*"): (None, ALL, 200),
    ("GET", "usage"): (None, ALL, 200),
    ("GET", "keys"): (None, ALL, 200),
    ("POST", "keys"): (
        {"id": "key-{n}", "group": "b", "founding": False}, ADMIN, 201),
    ("GET", "keys/*"): (None, ALL, 200),
    ("PATCH", "keys/*"): ({"note": "{n}"}, ADMIN, 200),
    ("POST", "keys/*/rotate"): (None, ADMIN, 200),
    ("POST", "keys/*/revoke"): (None, ADMIN, 200),
    ("DELETE", "keys/*"): (None, ADMIN, 200),
    ("POST", "keys/self/revoke"): (None, ("holder",), 200),
    ("GET", "groups"): (None, READ, 200),
    ("GET", "models"): (None, ALL, 200),
    ("GET", "refusals"): (None, READ, 200),
    ("GET", "status"): (None, READ, 200),

    # this is one machine

    ("GET", "nodes"): (None, READ, 404),
    ("PATCH", "nodes/*"): ({"drain": True}, ADMIN, 404),
    ("POST", "nodes/*/write-off"): (None, ADMIN, 404),
}


def routes_of_the_source():
    with open(SOURCE) as f:
        text = f.read()
    begin = text.index("_admin_routes[] = {")
    rows = ROW.findall(text[begin:text.index("\n};", begin)])
    return [(method, path + ("*" if path.endswith("/") else "") + tail)
            for path, tail, method in rows]


def test_every_route_has_a_row():
    found = routes_of_the_source()
    assert len(found) >= 20 and len(found) == len(set(found))
    assert set(ROUTES) - set(found) <= {("POST", "keys/self/revoke")}
    assert set(found) - set(ROUTES) == set()


def test_every_route_is_described():
    """conf/openapi.json and this table agree."""
    path = os.path.join(ROOT, "conf/openapi.json")
    if not os.path.exists(path):
        pytest.skip("no conf/openapi.json")
    with open(path) as f:
        paths = json.load(f)["paths"]
    described = {(method.upper(), re.sub(r"\{\w+\}", "*", path).lstrip("/"))
                 for path, methods in paths.items() for method in methods
                 if method in ("get", "post", "patch", "delete", "put")}
    assert described == set(ROUTES)


@pytest.fixture(scope="module")
def roles(module_gateway):
    """A Console with a call and keys of the account "own"."""
    c = Console(module_gateway(
        **dict(PARTS, locations=PARTS["locations"]
               + "location = /metrics { modelgw_metrics; }"),
        operators=trio()))
    c.n = 0
    c.keys = {}
    key = c.new_key("own-0", account="own")
    assert c.gw.chat(key=key).status == 200
    wait(lambda: c.read("/calls")["calls"], "no calls")
    c.call = c.read("/calls")["calls"][0]["id"]
    return c


def credential(roles, role, how, key):
    """Headers of one of the role; the holder's is the key."""
    if role == "nobody":
        return OWN if how == "cookie" else []
    who = key if role == "holder" else next(
        o for o in roles.gw.operators if o.role == role)
    if how == "cookie":
        return OWN + [cookie(roles.session(who))]
    return [bearer(who.secret)]


def fresh(roles):
    """A key of the account that a request may end."""
    roles.n += 1
    return roles.new_key("own-%d" % roles.n, account="own")


@pytest.mark.parametrize("how", ["cookie", "bearer"])
@pytest.mark.parametrize("role", ["admin", "billing", "viewer", "holder",
                                  "nobody"])
@pytest.mark.parametrize("method, route", ROUTES)
def test_role(roles, method, route, role, how):
    body, who, status = ROUTES[method, route]
    key = fresh(roles)
    headers = credential(roles, role, how, key)
    path = route
    if "*" in path:
        path = path.replace("*", {"accounts": "own", "keys": key.id,
                                  "calls": str(roles.call), "nodes": "1"}[
                                      path.split("/")[0]])
    if body:
        body = json.loads(json.dumps(body).replace("{n}", "%s" % key.id)
                          .replace("{token}", key.secret))
    before = roles.state()
    r = roles.send(method, "/" + path, headers, body)
    if r.status in (200, 201) and r.body and "key" in r.json() \
            and route.startswith("keys") and r.json()["key"]:
        roles.gw.hidden.append(r.json()["key"])

    if (method, route) == ("POST", "session"):
        assert r.status == 200, r
        roles.gw.hidden.append(
            re.match("[^=]+=([^;]+)", r.get("set-cookie")).group(1))
        return

    if (method, route, role) == ("GET", "session", "nobody"):
        nobody(r)
    elif role == "nobody":
        unsigned(r)
    elif role in who:
        assert r.status == status, r
        if method in ("GET", "DELETE") and how == "cookie" \
                and route == "session":
            assert r.all("set-cookie") if method == "DELETE" else True
    elif route == "keys/self/revoke":
        assert r.status in (403, 404), r        # no key has this id
    else:
        forbidden(r)
    if role not in who or method == "GET" or route == "session":
        assert roles.state() == before
    elif status not in (204, 404):
        assert roles.state() != before


@pytest.mark.parametrize("method, route", [
    (m, r) for m, r in ROUTES if m == "GET"])
@pytest.mark.parametrize("role", ["admin", "billing", "viewer", "holder",
                                  "nobody"])
def test_head(roles, method, route, role):
    """As GET, without a body."""
    key = fresh(roles)
    headers = credential(roles, role, "bearer", key)
    path = "/" + route.replace("*", {"accounts": "own", "keys": key.id,
                                     "calls": str(roles.call)}.get(
                                         route.split("/")[0], ""))
    get = roles.get(path, headers)
    head = roles.send("HEAD", path, headers)
    assert head.status == get.status and head.body == b""


@pytest.mark.parametrize("path", ["/", "/x", "/accounts/own/x",
                                  "/session/x", "/operators/alice", "/keys/",
                                  "/keys/own-0/x", "/Session", "/session/",
                                  "//session", "/sessions", "/self",
                                  "/keys/self/rotate", "/keys/self"])
def test_unknown_paths(roles, path):
    """A stranger is not told which there are."""
    for method in ("GET", "POST", "PATCH", "DELETE", "PUT"):
        if path == "//session" and method in ("GET", "POST"):
            continue                        # nginx merges slashes
        r = roles.send(method, path, [])
        assert r.status == 401, (method, path, r)
    before = roles.state()
    for role in ("admin", "viewer", "holder"):
        for method in ("GET", "POST", "PUT"):
            if path == "//session" or role == "admin" and "self" in path:
                continue
            r = roles.send(method, path,
                           credential(roles, role, "bearer", roles.gw.bob))
            assert r.status in (403, 404, 405), (method, path, r)
    assert roles.state() == before


def test_methods(roles):
    """One that a route does not have is 405 to who may use the route, and tells
    a stranger nothing."""
    admin = credential(roles, "admin", "bearer", None)
    for route in sorted({r for _, r in ROUTES if "*" not in r
                         and r != "keys/self/revoke"}):
        allowed = {m for m, r in ROUTES if r == route}
        for method in ("GET", "POST", "PATCH", "DELETE", "PUT"):
            if method in allowed:
                continue
            r = roles.send(method, "/" + route, admin)
            refused(r, 405, "METHOD_NOT_ALLOWED")
            assert allowed <= set(r.get("allow").split(", ")), r
            unsigned(roles.send(method, "/" + route))


# what a role may do is also all that it can do, whatever else a body has


def test_a_viewer_cannot_become_more(roles):
    headers = credential(roles, "viewer", "cookie", None)
    before = roles.state()
    for more in ([("X-Modelgw-Role", "admin")], [("Role", "admin")],
                 [("Cookie", "role=admin")], [("X-Original-URL", "/accounts")],
                 [("X-Rewrite-URL", "/accounts")]):
        r = roles.send("POST", "/accounts", headers + more, {"id": "x"})
        assert r.status in (401, 403), r
    for path in ("/accounts?role=admin", "/accounts/..%2faccounts",
                 "/../api/accounts", "/./accounts", "/accounts%00",
                 "/session/../accounts", "/session/%2e%2e/accounts"):
        r = roles.send("POST", path, headers, {"id": "x", "founding": False})
        assert 400 <= r.status < 500 and r.status != 401, (path, r)
    assert roles.state() == before


def test_corrections_are_billing(roles):
    """Below zero, too; but no accounts or keys."""
    billing = credential(roles, "billing", "bearer", None)
    r = roles.send("POST", "/accounts/own/topups", billing,
                   {"id": "fix-1", "amount": "-0.01", "correction": True,
                    "reason": "test"})
    assert r.status == 201, r
    for role in ("viewer", "holder"):
        forbidden(roles.send(
            "POST", "/accounts/own/topups",
            credential(roles, role, "bearer", roles.gw.bob),
            {"id": "fix-2", "amount": "-0.01", "correction": True,
             "reason": "test"}))


def test_a_topup_opens_no_account(roles):
    """That would be an admin's."""
    billing = credential(roles, "billing", "bearer", None)
    before = roles.state()
    for id in ("opened-by-billing", "nobody"):
        refused(roles.send("POST", "/accounts/%s/topups" % id, billing,
                           {"id": "x-1", "amount": "1.00"}), 404, "NOT_FOUND")
    assert roles.state() == before


def test_refused_before_the_body(roles):
    """Who may not do it is told so, whatever the body is; nothing of it is
    read by the interface."""
    for role in ("viewer", "holder"):
        headers = credential(roles, role, "bearer", roles.gw.bob)
        for body in (b"", b"{", b"x" * 3000, b'{"id":1}'):
            forbidden(roles.send("POST", "/accounts", headers, body))
    for body in (b"", b"{", b"x" * 3000):
        unsigned(roles.send("POST", "/accounts", [], body))


def test_gateway_is_not_changed(roles):
    """Roles are of the admin interface: a key is a key."""
    assert roles.gw.chat(chat()).status == 200
