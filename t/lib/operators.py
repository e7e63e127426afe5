"""Operators of the admin interface, their sessions, and requests with them.

A Console is a gateway whose interface is for those who sign in, at API, and for
root over a unix socket, as which a test sets things up and looks after them.
"""

import contextlib
import itertools
import json
import re
import secrets
import socket
import time

import client
from client import assert_flat, build
from gateway import MODELS_A, MODELS_B, Key, group_a, group_b

API = "/console/api"
COOKIE = "__Host-modelgw"
HOURS = 12                          # a session lasts

# the headers of the console's own page

SAME = ("Sec-Fetch-Site", "same-origin")
PAGE = ("X-Modelgw-Console", "1")
OWN = [SAME, PAGE]

LEDGER = ("modelgw_ledger $dir/ledger.db; modelgw_founding_credit 5.00;"
          " modelgw_managed_keys 1000;")

ADMIN = "location %s/ { modelgw_admin; }" % API

SOCKET = """
    server { listen unix:$dir/admin.sock; location / { modelgw_admin; } }"""

# a ledger requires the maximum output of a model

GROUPS = (group_a(models=MODELS_A.replace("max_output=64000", "")
                  .replace(";", " max_output=4000;"))
          + group_b(models=MODELS_B.replace(";", " max_output=4000;")))

PARTS = {"groups": GROUPS, "http": LEDGER + SOCKET, "locations": ADMIN}


class Operator(Key):
    """A token, made at random."""

    def __init__(self, name, role, options="", secret=None):
        super().__init__(name, None, options, "op-eu-", secret)
        self.name = name
        self.role = role

    def line(self):
        return "%s %s %s %s;" % (self.name, self.digest(), self.role,
                                 self.options)


def trio():
    """An operator of each role."""
    return [Operator("alice", "admin"), Operator("bill", "billing"),
            Operator("vera", "viewer")]


def cookie(value, name=COOKIE):
    return ("Cookie", "%s=%s" % (name, value))


def bearer(secret):
    return ("Authorization", "Bearer " + secret)


def refused(r, status, code, *words):
    """A flat error that no cache keeps and that signs nobody in."""
    error = assert_flat(r, status, code)
    for word in words:
        assert word in error["message"], r
    assert not r.all("set-cookie"), r
    assert not [n for n, _ in r.headers
                if n.lower().startswith("access-control-")], r
    return error


def unsigned(r):
    return refused(r, 401, "SIGN_IN_REQUIRED")


def nobody(r):
    """What GET /session says to who has sent no credential, not even a bad one:
    a browser would show an error in its log."""
    assert r.status == 200 and not r.all("set-cookie"), r
    session = r.json()
    assert session.pop("managed_keys") in (True, False)
    session.pop("topup_url"), session.pop("gateway_url")
    assert session == dict.fromkeys(
        ("name", "role", "expires", "account", "key", "group")), r


def forbidden(r, *words):
    return refused(r, 403, "FORBIDDEN", *words)


addresses = itertools.count(2)


def address():
    """An address of this machine that no test has used."""
    n = next(addresses)
    return "127.%d.%d.%d" % (1 + n // 62500, n // 250 % 250, 2 + n % 250)


class Console:

    def __init__(self, gw):
        self.gw = gw
        self.source = None
        self.tags = itertools.count(1)
        self.tag = secrets.token_hex(4)

    def operator(self, name):
        return {o.name: o for o in self.gw.operators}[name]

    # requests

    def send(self, method, path, headers=(), body=None, version="h1",
             source=None, **kw):
        """The response, from an address of its own if no source is given: one
        address may not fail often."""
        call = client.h2_call if version == "h2" else client.h1
        port = self.gw.port2 if version == "h2" else self.gw.port
        return call(port, method, API + path, list(headers), body,
                    source=source or self.source or address(), **kw)

    def get(self, path, headers=(), **kw):
        return self.send("GET", path, headers, **kw)

    def ok(self, path, headers=(), **kw):
        r = self.get(path, headers, **kw)
        assert r.status == 200 and r.complete, r
        assert r.get("cache-control") == "no-store", r
        assert not r.all("set-cookie"), r
        return r.json()

    def sign_in(self, secret, headers=OWN, **kw):
        """The response to POST /session; the cookie joins the secrets."""
        r = self.send("POST", "/session", headers, {"token": secret}, **kw)
        if r is not None and r.all("set-cookie"):
            value = set_cookie(r)[0]
            if value:
                self.gw.hidden.append(value)
        return r

    def session(self, who, **kw):
        """The value of the cookie of a new session."""
        r = self.sign_in(who.secret, **kw)
        assert r.status == 200, r
        return set_cookie(r)[0]

    def works(self, value, name=None, role=None, **kw):
        """The session does; returns what it says."""
        s = self.ok("/session", [cookie(value)], **kw)
        if name:
            assert (s["name"], s["role"]) == (name, role), s
        return s

    def works_for_all(self, value, *args):
        """As every worker sees it: each connection may be another one's."""
        for _ in range(4 * self.gw.workers):
            self.works(value, *args)

    def over(self, value):
        """The session has ended, for every worker."""
        for _ in range(4 * self.gw.workers):
            unsigned(self.get("/session", [cookie(value)]))
            unsigned(self.get("/accounts", [cookie(value)]))

    def topup(self, headers=(), account="alice", **kw):
        return self.send("POST", "/accounts/%s/topups" % account, headers,
                         self.amount(), **kw)

    def amount(self):
        """Of a top-up that is not there yet."""
        return {"id": "%s-%d" % (self.tag, next(self.tags)), "amount": "1.00"}

    # over the unix socket

    def root(self, method, path, body=None, headers=()):
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as sock:
            sock.settimeout(client.LIMIT)
            sock.connect(self.gw.path("admin.sock"))
            c = client.Connection.__new__(client.Connection)
            c.sock, c.data, c.eof = sock, b"", None
            c.send(build(method, path, headers, body, host="localhost"))
            return c.response(method=method)

    def read(self, path):
        r = self.root("GET", path)
        assert r.status == 200, r
        return r.json()

    def new_key(self, id, **body):
        """A key of the ledger."""
        body = dict({"id": id, "group": "b"}, **body)
        r = self.root("POST", "/keys", body)
        assert r.status == 201, r
        key = Key(id, body["group"], secret=r.json()["key"])
        self.gw.hidden.append(key.secret)
        return key

    def state(self):
        """Whatever a request could change: balances, accounts, keys, and what
        was done."""
        keys = [{name: value for name, value in key.items()
                 if name not in ("last_used", "used", "resets_in",
                                 "budget_used", "budget_resets_in")}
                for key in self.read("/keys")["keys"]]
        accounts = self.read("/accounts")["accounts"]
        return accounts, keys, self.read("/actions?limit=1000")["actions"]


def set_cookie(r):
    """Value and attributes of the one cookie of a response."""
    (text,) = r.all("set-cookie")
    name, value, attributes = re.fullmatch(r"([^=]+)=([^;]*)(.*)",
                                           text).groups()
    assert name == COOKIE, r
    return value, attributes


def wait(done, what, timeout=client.LIMIT):
    end = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def as_text(r):
    """All that a response says."""
    return "\n".join("%s: %s" % h for h in r.headers) + "\n" \
        + r.body.decode("utf-8", "replace")


def dumps(value):
    return json.dumps(value).encode()
