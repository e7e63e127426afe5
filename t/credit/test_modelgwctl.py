"""The command modelgwctl: against a gateway, and on keys files."""

import base64
import contextlib
import csv
import datetime
import functools
import glob
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import threading
import time
import urllib.parse
import uuid
import zoneinfo

import pytest

import client
from gateway import Key, NGINX, ROOT
from metrics import LOCATION
from test_admin import KEYS, WITH_LEDGER, Admin, nano

CTL = os.path.join(ROOT, "conf/modelgwctl")

SOCKET = """
    server { listen unix:$dir/admin.sock; location / { modelgw_admin; } }"""

SHELLS = [s for s in ("dash", "bash", "busybox") if shutil.which(s)]


def run(*args, env=None, shell=None, **kw):
    command = {None: [], "busybox": ["busybox", "sh"]}.get(shell, [shell])
    env = dict(os.environ, **(env or {}))
    return subprocess.run(command + [CTL] + [str(a) for a in args], env=env,
                          capture_output=True, text=True, timeout=60, **kw)


@pytest.fixture(scope="module")
def gw(module_gateway):
    parts = dict(WITH_LEDGER, http=WITH_LEDGER["http"] + SOCKET)
    gw = module_gateway(**parts, keys=KEYS, locations="""
        location /admin/ { modelgw_admin; allow 127.0.0.1; deny all; }""")
    assert gw.chat().status == 200
    return gw


@pytest.fixture
def ctl(gw):
    def call(*args, **kw):
        return run("--socket", gw.path("admin.sock"), *args, **kw)

    return call


def ok(p, err=""):
    assert p.returncode == 0, (p.stdout, p.stderr)
    assert re.fullmatch(err, p.stderr.strip()), p.stderr
    return p.stdout


def refused(p, code, *words):
    assert p.returncode == code, (p.returncode, p.stdout, p.stderr)
    assert p.stdout == ""
    for word in words:
        assert word in p.stderr, p.stderr


def test_status(ctl, gw):
    out = ok(ctl("status"))
    for line in ("ok: true", "workers.running: %d" % gw.workers,
                 "ledger.writable: true", "zone.accounts: "):
        assert line in out, out
    assert re.search(r"(?m)^name +last_ok +last_error +error_ratio_5m$", out)
    assert json.loads(ok(ctl("status", "--json")))["ok"] is True
    refused(ctl("status", "now"), 2, "no arguments")


def rows(text):
    """A table as a list of dicts."""
    head, *lines = [line.split() for line in text.splitlines()]
    assert all(len(line) == len(head) for line in lines), text
    return [dict(zip(head, line)) for line in lines]


# questions


@pytest.mark.parametrize("shell", SHELLS)
def test_accounts(ctl, shell):
    table = {r["id"]: r for r in rows(ok(ctl("accounts", shell=shell)))}
    assert set(table) == {"alice", "bob-1", "carol", "dave-1", "pool:1"}
    assert table["dave-1"] == {"id": "dave-1", "balance": "5.00",
                               "held": "0.00", "available": "5.00",
                               "state": "open", "spent_24h": "0.00",
                               "spent_30d": "0.00", "keys": "0"}


@pytest.mark.parametrize("shell", SHELLS)
def test_lists_in_pages(ctl, shell):
    """The options are the gateway's; "--after" goes on where a page ends."""
    def ids(*args, err=""):
        return [r["id"] for r in rows(ok(ctl(*args, shell=shell), err=err))]

    assert ids("accounts", "--sort", "name") == [
        "alice", "bob-1", "carol", "dave-1", "pool:1"]
    assert ids("accounts", "--sort", "balance")[0] == "bob-1"
    assert ids("accounts", "--sort", "spent", "--q", "b") == ["bob-1"]
    assert ids("keys", "--account", "pool:1") == ["erin@x.test", "frank"]
    assert ids("key", "list", "--state", "expired") == ["dave-1"]

    for command, n in ((["accounts"], 5), (["accounts", "--sort", "name"], 5),
                       (["accounts", "--sort", "balance"], 5), (["keys"], 6)):
        seen, after = [], []
        while after is not None:
            p = ctl(*command, "--limit", "2", *after, shell=shell)
            more = re.search("more rows.* --after ([^ ,]+),", p.stderr)
            after = ["--after", more.group(1)] if more else None
            seen += [r["id"] for r in rows(ok(p, err=".*"))]
        assert len(seen) == n and seen == ids(*command)


def test_columns_stand_below_each_other(ctl):
    lines = ok(ctl("accounts")).splitlines()
    ends = {line.index("5.00") + 4 for line in lines if "dave" in line}
    assert ends == {lines[0].index("balance") + len("balance")}


def test_account(ctl):
    text = ok(ctl("accounts", "dave-1"))
    top, table = text.split("\n\n")
    assert top.splitlines() == ["id: dave-1", "balance: 5.00", "held: 0.00",
                                "available: 5.00", "state: open",
                                "spent_24h: 0.00", "spent_30d: 0.00",
                                "keys: 0", "note: -"]
    (row,) = rows(table)
    assert row["id"] == "founding:dave-1" and row["amount"] == "5.00"


def test_where(gw):
    """The ways to give the gateway's address; the option takes precedence."""
    unix = "unix:" + gw.path("admin.sock")
    url = "http://127.0.0.1:%d/admin" % gw.port
    for args, env in ((["--url", url], {}), (["--url", url + "/"], {}),
                      (["--url", unix], {}), ([], {"MODELGW_ADMIN": unix}),
                      ([], {"MODELGW_ADMIN": url}),
                      (["--url", url], {"MODELGW_ADMIN": "unix:/nowhere"}),
                      (["--url", url], {"http_proxy": "http://127.0.0.1:1"})):
        assert "dave-1" in ok(run(*args, "accounts", env=env))


@pytest.mark.parametrize("args", [
    ["--socket", "/nowhere/x.sock"], ["--url", "http://127.0.0.1:1/"]])
def test_nobody_there(args):
    p = run(*args, "accounts")
    refused(p, 1, "no answer from")
    assert ("it is not a socket" in p.stderr) == ("--socket" in args)
    assert "port 80" not in p.stderr


def test_no_admin_there(gw):
    for path in ("/v1", "", "/"):
        p = run("--url", "http://127.0.0.1:%d%s" % (gw.port, path), "accounts")
        refused(p, 1, 'no "modelgw_admin"', "--url needs its path")
    p = run("--url", "http://127.0.0.1:%d/admin" % gw.port, "call", "1")
    assert "--url" not in p.stderr


@pytest.mark.parametrize("command", [["accounts"], ["keys"], ["calls"],
                                     ["usage"], ["accounts", "alice"]])
def test_json(ctl, command):
    """--json before or after the command."""
    one = json.loads(ok(ctl("--json", *command)))
    assert one == json.loads(ok(ctl(*command, "--json"))) and one


def test_keys(ctl):
    table = {r["id"]: r for r in rows(ok(ctl("keys")))}
    assert table["erin@x.test"] == {
        "id": "erin@x.test", "group": "b", "account": "pool:1", "models": "-",
        "rpm": "60", "tpm": "1000", "concurrency": "2",
        "used": "rpm=0,tpm=0,concurrency=0", "resets_in": "rpm=0,tpm=0",
        "budget": "-", "budget_used": "-", "budget_resets_in": "-",
        "expires": "2035-02-28", "source": "config", "state": "active",
        "last_used": "-"}
    assert table["frank"]["models"] == "fam-a-small,fam-a-mini"
    assert table["alice-1"]["rpm"] == "-"


def test_usage_and_calls(ctl, gw):
    admin = Admin(gw)
    for _ in range(200):
        if admin.ok("/calls")["calls"]:
            break
    (call,) = rows(ok(ctl("calls", "--account", "bob-1", "--limit", "5",
                          "--from", "2020-01-01", "--to",
                          "9999-12-31T23:59:59+00:00")))
    assert call["model"] == "fam-b-one" and call["outcome"] == "reported"
    (row,) = rows(ok(ctl("usage", "--by", "model")))
    assert row["model"] == "fam-b-one" and row["calls"] == "1"
    assert nano(row["cost"]) == nano(call["cost"]) > 0
    none = "modelgwctl: no rows"
    assert ok(ctl("usage", "--key", "nobody"), err=none) == ""
    assert ok(ctl("calls", "--model", "a+b/c:d@e"), err=none) == ""
    (row,) = rows(ok(ctl("usage", "--by", "account,hour", "--from", "-1h")))
    assert row["account"] == "bob-1" and row["calls"] == "1"
    one = ok(ctl("call", call["id"]))
    assert "call.request_id: %s\n" % call["request_id"] in one
    for option in (("--request-id", call["request_id"]), ("--status", "200"),
                   ("--min-cost", call["cost"]), ("--outcome", "reported"),
                   ("--end", "complete"), ("--from", "yesterday")):
        assert rows(ok(ctl("calls", *option))) == [call]
    head, line = csv.reader(ok(ctl("usage", "--csv", "--by", "model,key",
                                   "--tz", "+01:00")).splitlines())
    assert head[:3] == ["model", "key", "calls"]
    assert line[:3] == ["fam-b-one", "bob-1", "1"]
    refused(ctl("usage", "--csv", "--by", "hour", "--from", "2020-01-01"), 1,
            "Too many rows")
    head, line = csv.reader(ok(ctl("calls", "--csv")).splitlines())
    assert dict(zip(head, line))["request_id"] == call["request_id"]
    assert ok(ctl("calls", "--csv", "--key", "nobody")).strip() \
        == ",".join(head)


class Asked(contextlib.AbstractContextManager):
    """What modelgwctl asks for: the target of its request."""

    def __enter__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.settimeout(20)
        self.url = "http://127.0.0.1:%d" % self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()
        return self

    def serve(self):
        with self.socket.accept()[0] as c:
            c.settimeout(20)
            self.target = c.recv(65536).split()[1].decode()
            c.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
                      b"Content-Length: 12\r\n\r\n{\"usage\":[]}")

    def __exit__(self, *error):
        self.thread.join(20)
        self.socket.close()


NO_ZONES = pytest.mark.skipif(not os.path.exists("/usr/share/zoneinfo/UTC"),
                              reason="no tzdata")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name, offset", [
    ("+01:00", "+01:00"), ("-05:00", "-05:00"), ("+05:30", "+05:30"),
    ("Z", "Z"), ("+25:00", "+25:00"),
    pytest.param("UTC", "+00:00", marks=NO_ZONES),
    pytest.param("Etc/GMT-14", "+14:00", marks=NO_ZONES),
    pytest.param("Etc/GMT+5", "-05:00", marks=NO_ZONES),
    pytest.param("Asia/Kolkata", "+05:30", marks=NO_ZONES),
    pytest.param("Europe/Berlin", None, marks=NO_ZONES),
    pytest.param("America/New_York", None, marks=NO_ZONES)])
def test_zones(shell, name, offset):
    if offset is None:
        at = datetime.datetime.now(zoneinfo.ZoneInfo(name))
        offset = re.sub("(..)$", r":\1", at.strftime("%z"))
    for command in ("usage", "calls"):
        with Asked() as asked:
            p = run("--url", asked.url, command, "--from", "today", "--tz",
                    name, "--limit", "3", shell=shell,
                    env={"TZ": "Asia/Tokyo"})
            ok(p, err="modelgwctl: no rows")
        query = dict(urllib.parse.parse_qsl(asked.target.partition("?")[2],
                                            strict_parsing=True))
        assert query == {"from": "today", "tz": offset, "limit": "3"}


@pytest.mark.parametrize("name", [
    "Europe/Nowhere", "Europe", "europe/berlin", "+1", "1:00", "", "/etc/passwd",
    "../zoneinfo/UTC", "/UTC", "/Europe/Berlin", "tzdata.zi", "leapseconds", "CEST", "UTC+3",
    "Europe/Berlin x", "$(id)", "x;y", "+01:000"])
def test_unknown_zones(ctl, name):
    """Never UTC instead."""
    for command in ("usage", "calls"):
        p = ctl(command, "--tz", name)
        refused(p, 2, "--tz " + name, "/usr/share/zoneinfo")


def test_days_of_a_zone(ctl, gw):
    """Of whole hours only; a call of now is of today, anywhere."""
    for _ in range(200):
        if Admin(gw).ok("/calls")["calls"]:
            break
    for tz in ("+14:00", "-12:00", "Z"):
        (row,) = rows(ok(ctl("usage", "--by", "day", "--tz", tz, "--from",
                             "-1m")))[:1]
        now = time.gmtime(time.time() + 3600 * int(tz.replace("Z", "0")[:3]))
        assert row["day"] == time.strftime("%Y-%m-%d", now)
    for tz in ("+05:30", "+25:00"):
        refused(ctl("usage", "--tz", tz), 1, '"tz" must be', "whole hours")
    refused(ctl("keys", "--tz", "Z"), 2)
    refused(ctl("actions", "--tz", "Z"), 2, "--tz")
    refused(ctl("usage", "--tz"), 2, "needs a value")
    refused(ctl("usage", "--tz", "Z", "--tz", "Z"), 1, "twice")


@pytest.mark.parametrize("shell", SHELLS)
def test_refusals(gateway, shell):
    gw = gateway(**dict(WITH_LEDGER, http=WITH_LEDGER["http"] + SOCKET),
                 keys=[Key("once", "b", "rpm=1")], locations=LOCATION)
    socket = "--socket", gw.path("admin.sock")
    since = r"since: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z\n"
    none = ok(run(*socket, "refusals", shell=shell), err="modelgwctl: no rows")
    assert re.fullmatch(since, none)

    # a stranger's only, then those of a key, too

    assert gw.get("/v1/models", Key("x", "b")).status == 401
    wait_for(lambda: "models" in run(*socket, "refusals").stdout)
    out = ok(run(*socket, "refusals", shell=shell))
    m = re.fullmatch(since + r"\n(group .*)", out, re.S)
    stranger = {"group": "-", "endpoint": "models", "code": "INVALID_API_KEY",
                "requests": "1"}
    assert rows(m[1]) == [stranger]

    while gw.chat(key=gw.keys[-1]).status == 200:
        pass
    gw.chat(key=gw.keys[-1])
    wait_for(lambda: "     2  " in run(*socket, "refusals").stdout)
    out = ok(run(*socket, "refusals", shell=shell))
    m = re.fullmatch(since + r"\n(id .*)\n\n(group .*)", out, re.S)
    assert rows(m[1]) == [{
        "id": "once", "rate_limited": "2", "insufficient_credit": "0",
        "budget_exceeded": "0", "refused": "0", "failed": "0"}]
    assert rows(m[2]) == [{"group": "b", "endpoint": "chat",
                           "code": "RATE_LIMITED", "requests": "2"}, stranger]
    answer = json.loads(ok(run(*socket, "refusals", "--json", shell=shell)))
    assert sorted(answer) == ["codes", "keys", "since"]
    refused(run(*socket, "refusals", "x"), 2, "no arguments")


def wait_for(condition, timeout=client.LIMIT):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_refusals_without_metrics(ctl):
    refused(ctl("refusals"), 1, '"modelgw_metrics"')


@pytest.mark.parametrize("shell", SHELLS)
def test_lists(shell):
    """Of texts, in one object and in rows; of objects in rows; empty ones."""
    for body, expected in (
            (b'{"id":"x","models":["a,1","b\\"]"],"rpm":null,"n":5}',
             'id: x\nmodels: a,1,b"]\nrpm: -\nn: 5\n'),
            (b'{"keys":[{"id":"x","models":["a","b"],"more":[]},'
             b'{"id":"y","models":null,"more":{"p":1,"q":null}}],"n":1}',
             "n: 1\n\nid  models  more\nx   a,b     -\n"
             "y   -       p=1,q=-\n"),
            (b'{"a":[],"models":["only"],"rows":[{"id":1}]}',
             "models: only\n\nid\n 1\n")):
        with answering(body) as url:
            assert ok(run("--url", url, "keys", shell=shell)) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_more(shell):
    """A truncated answer; a string that looks like one is not."""
    answer = (b'{"usage":[{"key":"a\\"]}","cost":"1.00"}],"more":true}',
              b'{"calls":[{"key":"a\\"]}","cost":"1.00"}],"more":true,'
              b'"next":"1f-2"}',
              b'{"usage":[{"key":"],\\"more\\":true}","cost":"1.00"}]}')
    for body, more in zip(answer, (True, "1f-2", False)):
        with answering(body) as url:
            p = run("--url", url, "usage", "--limit", "1", shell=shell)
            text = ok(p, err=".*more rows.*limit.*" if more else "")
            assert (more == "1f-2") == ("--after 1f-2, " in p.stderr)
            assert text.split()[:2] == ["key", "cost"] and "1.00" in text
            assert len(text.splitlines()) == 2
        with answering(body) as url:
            p = run("--url", url, "usage", "--json", shell=shell)
            assert ok(p, err=".*more rows.*" if more else "") \
                == body.decode() + "\n"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("command, limit, ways", [
    ("calls", None, "--after x, a shorter time, or a higher --limit (10000 at "
                    "most)"),
    ("calls", 5000, "--after x, a shorter time, or a higher --limit (10000 at "
                    "most)"),
    ("calls", 10000, "--after x, a shorter time"),
    ("usage", None, "a shorter time"), ("usage", 10000, "a shorter time"),
    ("usage", 5, "a shorter time, or a higher --limit (10000 at most)"),
    ("accounts", 5, "--after x, or a higher --limit (1000 at most)"),
    ("keys", 999, "--after x, or a higher --limit (1000 at most)"),
    ("keys", 1000, "--after x"), ("actions", 1000, "--after x"),
    ("actions", None, "--after x, or a higher --limit (1000 at most)")])
def test_how_to_see_more(shell, command, limit, ways):
    """The limits are those that the command takes (see test_limits_of_lists)."""
    after = "" if command == "usage" else ',"next":"x"'
    body = '{"%s":[{"key":"a"}],"more":true%s}' % (command, after)
    with answering(body.encode()) as url:
        p = run("--url", url, command,
                *(["--limit", limit] if limit else []), shell=shell)
    ok(p, re.escape("modelgwctl: there are more rows: ask for " + ways))


@pytest.mark.parametrize("command, most", [
    ("calls", 10000), ("usage", 10000), ("accounts", 1000), ("keys", 1000),
    ("actions", 1000)])
def test_limits_of_lists(ctl, command, most):
    ok(ctl(command, "--limit", most), "(modelgwctl: no rows)?")
    refused(ctl(command, "--limit", most + 1), 1, "limit", "1 to %d" % most)


@pytest.mark.parametrize("shell", SHELLS)
def test_no_call_of_a_request_id(ctl, shell):
    """What the gateway refused itself is no call."""
    refused_itself = ".* access log only"
    p = ctl("calls", "--request-id", "f" * 32, shell=shell)
    assert ok(p, "modelgwctl: no rows\n" + refused_itself
              + "; without --from the last 24 hours are searched") == ""
    p = ctl("calls", "--request-id", "f" * 32, "--from", "-7d", shell=shell)
    assert ok(p, "modelgwctl: no rows\n" + refused_itself) == ""
    p = ctl("--json", "calls", "--request-id", "f" * 32, shell=shell)
    assert json.loads(ok(p, refused_itself + ".*")) == {"calls": []}
    ok(ctl("calls", "--from", "-1h", "--key", "nobody", shell=shell),
       "modelgwctl: no rows")


@pytest.mark.parametrize("shell", SHELLS)
def test_groups_and_models(ctl, shell):
    a, b = rows(ok(ctl("groups", shell=shell)))
    assert a["name"] == "a" and b["name"] == "b" and b["rpm"] == "-"
    assert "fam-b-one" in b["models"].split(",")
    models = {m["id"]: m for m in rows(ok(ctl("models", shell=shell)))}
    assert list(models["fam-b-one"]) == [
        "id", "group", "upstream_id", "input", "output", "cache_read",
        "cache_write", "context", "max_output"]
    assert models["fam-b-one"]["group"] == "b"
    assert models["fam-b-one"]["max_output"] == "4000"
    all = json.loads(ok(ctl("models", "--json", shell=shell)))["models"]
    assert {m["id"] for m in all} == set(models)
    assert len(all[0]) > 9
    for command in ("groups", "models"):
        refused(ctl(command, "x", shell=shell), 2, "no arguments")


@contextlib.contextmanager
def answering(body):
    """A server for one request."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        s.settimeout(20)

        def serve():
            with s.accept()[0] as c:
                c.settimeout(20)
                c.recv(65536)
                c.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
                          b"Content-Length: %d\r\n\r\n%s"
                          % (len(body), body))

        thread = threading.Thread(target=serve)
        thread.start()
        yield "http://127.0.0.1:%d" % s.getsockname()[1]
        thread.join(20)


@pytest.mark.parametrize("args, word", [
    (["calls", "--limit", "0"], "limit"), (["usage", "--by", "week"], "by"),
    (["usage", "--by", "hour,day"], "by"), (["calls", "--after", "x"], "after"),
    (["calls", "--status", "x", "--csv"], "status"),
    (["calls", "--limit", "20000", "--status", "x", "--csv"], "status"),
    (["usage", "--by", "week", "--csv"], "by"),
    (["call", "999999999"], 'Not found: "/calls/999999999"'),
    (["calls", "--from", "x&limit=1"], "from"),
    (["calls", "--account", "a b"], "account"),
    (["accounts", "--sort", "age"], "sort"),
    (["accounts", "--limit", "1001"], "limit"),
    (["accounts", "--after", "name:0:alice"], "after"),
    (["keys", "--state", "gone"], "state"),
    (["calls", "--limit", "1", "--limit", "2"], "twice"),
    (["accounts", "nobody"], 'No such account: "nobody"'),
    (["topup", "nobody", "1.00", "x"], 'No such account: "nobody"')])
def test_the_gateway_refuses(ctl, args, word):
    refused(ctl(*args), 1, word)


@pytest.mark.parametrize("args", [
    [], ["x"], ["accounts", "a", "b"], ["accounts", "a/b"], ["accounts", "a b"],
    ["topup"], ["topup", "alice"], ["topup", "alice", "1", "x", "y"],
    ["topup", "alice", "-1"], ["topup", "alice", "1e3"], ["topup", "alice", ""],
    ["topup", "alice", '1","x":"2'], ["topup", "a/b", "1"],
    ["topup", "alice", "1", 'x"'], ["topup", "alice", "1", ""],
    ["calls", "--by", "day"], ["calls", "--limit"], ["calls", "x"],
    ["accounts", "--x", "y"], ["accounts", "--q"], ["accounts", ""],
    ["accounts", "alice", "--limit", "1"], ["accounts", "--limit", "1", "a"],
    ["keys", "--sort", "name"], ["key", "list", "--by", "day"],
    ["usage", "--x", "y"], ["keys", "x"], ["key"], ["key", "old"],
    ["accounts", "-x"], ["account", "close", "-x"], ["topup", "-x", "1"],
    ["key", "show", "-x"], ["key", "new", "--group", "a"], ["account", "list", "x"],
    ["account", "show"], ["account", "show", "a", "b"], ["account"],
    ["accounts", "--json=1"], ["usage", "--csv=1"], ["--"],
    ["--x", "accounts"], ["-x", "accounts"], ["--socket"], ["--url", "ftp://x", "accounts"]])
def test_misuse(ctl, args):
    refused(ctl(*args), 2, "modelgwctl")


def test_help():
    for args in (["--help"], ["-h"], ["help"], ["topup", "--help"],
                 ["accounts", "--help"], ["keys", "-h"]):
        text = ok(run(*args))
        assert text.startswith("usage: modelgwctl ")
    assert "accounts [--q TEXT] [--sort name|balance|spent]" in text


# top-ups


def test_topup(ctl, gw):
    before = nano(Admin(gw).balance("alice"))
    text = ok(ctl("topup", "alice", "12.50", "invoice-1"))
    assert "new: true" in text.splitlines()
    assert "amount: 12.50" in text.splitlines()
    assert nano(Admin(gw).balance("alice")) == before + nano("12.50")
    assert "new: false" in ok(ctl("topup", "alice", "12.50", "invoice-1"))
    refused(ctl("topup", "alice", "12.51", "invoice-1"), 1, "invoice-1")
    refused(ctl("topup", "alice", "0", "invoice-2"), 1, "amount")
    assert nano(Admin(gw).balance("alice")) == before + nano("12.50")


def test_topup_makes_an_id(ctl, gw):
    """It is printed first, so that a failed top-up can be repeated."""
    p = ctl("--json", "topup", "carol", "1.00")
    answer = json.loads(ok(p, err=".*"))
    id = uuid.UUID(answer["id"])
    assert id.version == 4 and id.variant == uuid.RFC_4122
    assert str(id) in p.stderr
    again = json.loads(ok(ctl("--json", "topup", "carol", "1.00", id)))
    assert again["new"] is False and again["balance"] == answer["balance"]
    p = run("--socket", "/nowhere", "topup", "carol", "1.00")
    assert p.returncode == 1
    assert re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-"
                     r"[0-9a-f]{12}", p.stderr)


# keys


def key_new(file, *args, **kw):
    return run("key", "new", *args, "--keys", file, **kw)


@pytest.mark.parametrize("shell", SHELLS)
def test_key_new(tmp_path, shell):
    file = tmp_path / "keys.conf"
    p = key_new(file, "alice-2", "--group", "a", shell=shell)
    secret = ok(p, err=".*reload.*").strip()
    assert re.fullmatch(r"sk-eu-[0-9a-f]{48}", secret)
    digest = hashlib.sha256(secret.encode()).hexdigest()
    assert file.read_text() == "alice-2 sha256:%s a;\n" % digest
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret not in p.stderr
    assert os.listdir(tmp_path) == ["keys.conf"]


def test_key_new_with_everything(tmp_path):
    file = tmp_path / "keys.conf"
    file.write_text("# ours\nbob sha256:%s b;" % ("0" * 64))
    file.chmod(0o640)
    ok(key_new(file, "a@b:c._-", "--group", "a", "--account", "acc", "--models",
               "x/1,y+2", "--rpm", "1", "--tpm", "1000000000", "--concurrency",
               "8", "--budget", "50.00/month", "--expires", "2030-01-31",
               "--prefix", "my-"), err=".*")
    head, bob, line = file.read_text().splitlines()
    assert (head, bob) == ("# ours", "bob sha256:%s b;" % ("0" * 64))
    assert re.fullmatch(
        r"a@b:c\._- sha256:[0-9a-f]{64} a account=acc models=x/1,y\+2 rpm=1 "
        r"tpm=1000000000 concurrency=8 budget=50\.00/month "
        r"expires=2030-01-31;", line)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize("text", [
    "bob sha256:x b;", "x sha256:x b; bob sha256:y b;", "\tbob\n sha256:x\nb;",
    '"bob" sha256:x b;', "'bob' sha256:x b;", "# c\nbob sha256:x b;",
    "x sha256:x b; # bob;\nbob sha256:x b;",
    "x sha256:x b;# bob;\nbob sha256:x b;", "x sha256:x b;\r\nbob\r\n x b;"])
def test_duplicate_id(tmp_path, text):
    file = tmp_path / "keys.conf"
    file.write_bytes(text.encode())
    refused(key_new(file, "bob", "--group", "b"), 1, "bob", "already")
    assert file.read_bytes() == text.encode()
    assert os.listdir(tmp_path) == ["keys.conf"]


@pytest.mark.parametrize("text", [
    "# bob sha256:x b;\n", "bob-1 sha256:x b;", "x sha256:x bob;", "",
    "x sha256:x b; #bob sha256:y b;\n", "BOB sha256:x b;"])
def test_no_duplicate_id(tmp_path, text):
    file = tmp_path / "keys.conf"
    file.write_text(text)
    ok(key_new(file, "bob", "--group", "b"), err=".*")
    assert file.read_text().startswith(text)
    assert file.read_text().splitlines()[-1].startswith("bob sha256:")


@pytest.mark.parametrize("args", [
    [], ["bob"], ["", "--group", "a"], ["a b", "--group", "a"],
    ["a;b", "--group", "a"], ["a\nb", "--group", "a"],
    ["x" * 65, "--group", "a"], ["bob", "--group", ""],
    ["bob", "--group", "a b"], ["bob", "--group", "a;}"],
    ["bob", "--group", "a", "--group", "b"], ["bob", "--group"],
    ["bob", "--group", "a", "--rpm", "0"],
    ["bob", "--group", "a", "--rpm", "01"],
    ["bob", "--group", "a", "--rpm", "-1"],
    ["bob", "--group", "a", "--rpm", "1000000001"],
    ["bob", "--group", "a", "--tpm", "1k"],
    ["bob", "--group", "a", "--budget", "50"],
    ["bob", "--group", "a", "--budget", "50/year"],
    ["bob", "--group", "a", "--budget", "/day"],
    ["bob", "--group", "a", "--budget", "5;/day"],
    ["bob", "--group", "a", "--concurrency", "99999999999"],
    ["bob", "--group", "a", "--models", ""],
    ["bob", "--group", "a", "--models", "a b"],
    ["bob", "--group", "a", "--account", "a;b"],
    ["bob", "--group", "a", "--expires", "soon"],
    ["bob", "--group", "a", "--expires", "2030-1-1"],
    ["bob", "--group", "a", "--expires", "2032-02-30"],
    ["bob", "--group", "a", "--prefix", "a b"],
    ["bob", "--group", "a", "--owner", "x"], ["bob", "--group", "a", "x"]])
def test_key_new_misuse(tmp_path, args):
    file = tmp_path / "keys.conf"
    refused(key_new(file, *args), 2, "modelgwctl")
    assert not file.exists()


def test_key_new_nowhere(tmp_path):
    refused(key_new(tmp_path / "no" / "keys.conf", "bob", "--group", "a"), 1)
    refused(key_new("/proc/keys.conf", "bob", "--group", "a"), 1)


def test_many_at_once(tmp_path):
    """None is lost, and each id is used once."""
    file = tmp_path / "keys.conf"
    ps = [subprocess.Popen([CTL, "key", "new", "key-%d" % (i // 2), "--group",
                            "a", "--keys", str(file)],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
          for i in range(20)]
    said = [p.communicate(timeout=60)[1].decode() for p in ps]
    assert sorted(p.returncode for p in ps) == [0] * 10 + [1] * 10, said
    ids = [line.split()[0] for line in file.read_text().splitlines()]
    assert sorted(ids) == sorted("key-%d" % i for i in range(10))
    assert os.listdir(tmp_path) == ["keys.conf"]


def test_link_stays(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "keys.conf"
    link.symlink_to(tmp_path / "real" / "keys.conf")
    (tmp_path / "real" / "keys.conf").write_text("")
    ok(key_new(link, "bob", "--group", "a"), err=".*")
    assert link.is_symlink() and link.read_text().startswith("bob ")


def test_a_new_key_works(gateway):
    gw = gateway()
    secret = ok(key_new(gw.path("keys.conf"), "zoe", "--group", "b",
                        "--models", "fam-b-one"), err=".*").strip()
    assert gw.chat(key=None, headers=[]).status == 200
    gw.keys_text = gw.read("keys.conf")
    gw.reload()
    r = gw.request("POST", "/v1/chat/completions", None,
                   [("Authorization", "Bearer " + secret)],
                   b'{"model":"fam-b-one","messages":[]}')
    assert r.status == 200, r


def test_shell_is_plain():
    """No bashism that dash would refuse, nor a pipe to a missing command."""
    for shell in SHELLS:
        command = ["busybox", "sh"] if shell == "busybox" else [shell]
        subprocess.run(command + ["-n", CTL], check=True, timeout=10)
    with open(CTL) as f:
        text = f.read()
    assert "[[" not in text and "jq " not in text and "python" not in text
    assert os.access(CTL, os.X_OK) and NGINX


# changes: at the end, as other tests count accounts


@pytest.mark.parametrize("shell", SHELLS)
def test_changes(ctl, shell):
    """Accounts and corrections, and who has made them."""
    id = "acc-" + str(shell)
    ctl = functools.partial(ctl, shell=shell)
    out = ok(ctl("account", "open", id, "--note", 'a "b" \\ Ω'))
    assert "balance: 5.00\n" in out and 'note: a "b" \\ Ω\n' in out
    refused(ctl("account", "open", id), 1, "already")
    out = ok(ctl("correct", id, "-7.50", "fix-" + id, "--reason", "typed twice"))
    assert "amount: -7.50\nbalance: -2.50\nnew: true\n" in out
    assert "balance: -1.50" in ok(ctl("topup", id, "1", "up-" + id,
                                      "--reason", "x"))
    assert "state: closed\n" in ok(ctl("account", "close", id))
    assert "state: open\n" in ok(ctl("account", "reopen", id))
    assert "note: new" in ok(ctl("account", "note", id, "new"))
    out = ok(ctl("actions", "--target", id, "--limit", "6"))
    head, *lines = out.splitlines()
    assert head.split() == ["id", "time", "actor", "address", "action",
                            "target", "before", "after"]
    assert [line.split()[4] for line in lines] == [
        "account.note", "account.open", "account.close", "topup", "correction",
        "account.create"]
    assert all("uid:%d" % os.getuid() in line for line in lines)
    assert "balance=5.00" in lines[4] and "reason=typed twice" in lines[4]
    p = ctl("actions", "--target", id, "--limit", "1")
    assert "--after " in p.stderr


@pytest.mark.parametrize("args, word", [
    (("correct", "alice", "-1"), "--reason"),
    (("correct", "alice", "-1", "x"), "--reason"),
    (("correct", "alice", "--1", "x", "--reason", "y"), "--1"),
    (("topup", "alice", "-1", "x"), "-1"),
    (("topup", "alice", "1", "x", "y"), "takes"),
    (("topup", "alice", "1", "x", "--reason"), "needs a value"),
    (("topup", "alice", "1", "x", "--reason", "a\nb"), "control"),
    (("account", "open"), "takes"), (("account", "shut", "x"), "takes"),
    (("account", "open", "x", "--founding"), "no option"),
    (("account", "close", "x", "y"), "id only"),
    (("account", "note", "x"), "a text"), (("account", "close", "a b"), "id"),
    (("actions", "--by", "x"), "no option"),
    (("actions", "--from", "today"), "no option")])
def test_misused_changes(ctl, args, word):
    refused(ctl(*args), 2, word)


@pytest.fixture(scope="module")
def live(module_gateway):
    parts = dict(WITH_LEDGER, http=WITH_LEDGER["http"] + SOCKET
                 + " modelgw_managed_keys 50;")
    return module_gateway(**parts)


@pytest.mark.parametrize("shell", SHELLS)
def test_keys_without_a_reload(live, tmp_path, shell):
    def ctl(*args):
        return run("--socket", live.path("admin.sock"), *args, shell=shell)

    id = "live-" + str(shell)
    p = ctl("key", "new", id, "--group", "b", "--rpm", "60", "--note", 'a "b"',
            "--models", "fam-b-one,fam-b-two", "--expires", "2035-01-01")
    key = Key(id, "b", secret=ok(p, ".*works now").strip())
    assert live.get("/v1/models", key=key).status == 200
    out = ok(ctl("key", "show", id))
    assert "rpm: 60\n" in out and 'note: a "b"\n' in out
    assert "rpm: -\n" in ok(ctl("key", "set", id, "--rpm", "none"))
    p = ctl("key", "rotate", id, "--grace", "1h")
    new = Key(id, "b", secret=ok(p, ".*rotated").strip())
    for k in key, new:
        assert live.get("/v1/models", key=k).status == 200
    assert id in ok(ctl("key", "list", "--q", id))
    assert "state: revoked\n" in ok(ctl("key", "revoke", id))
    for k in key, new:
        assert live.get("/v1/models", key=k).status == 401
    refused(ctl("key", "new", id, "--group", "b"), 1, "already")
    refused(ctl("key", "new", "x", "--group", "nosuch"), 1, "nosuch")
    refused(ctl("key", "set", id), 2, "option")
    refused(ctl("key", "shut", id), 2, "key takes")

    # a file is not changed for what is not configured

    file = tmp_path / "keys.conf"
    for args in (("--group", "nosuch"), ("--group", "b", "--models", "nosuch")):
        refused(ctl("key", "new", "x", *args, "--keys", file), 1, "nosuch",
                "nothing was changed")
    assert not file.exists()

    digest = hashlib.sha256(("sk-eu-" + id).encode()).hexdigest()
    file.write_text("# keys\nin-%s sha256:%s b rpm=5\n    account=bob-1;\n"
                    "bad-%s sha256:%s nosuch;\n" % (id, digest, id, digest))
    p = ctl("key", "import", file)
    assert p.returncode == 1
    assert '%s:4: key "bad-%s" has the hash of line 2' % (file, id) in p.stderr
    file.write_text(file.read_text().replace("bad-%s sha256:%s" % (id, digest),
                                             "bad-%s sha256:%064x" % (id, 1)))
    p = ctl("key", "import", file)
    assert p.returncode == 1 and p.stdout == "in-%s\n" % id
    assert "%s:4: " % file in p.stderr and "nosuch" in p.stderr
    moved = Key(id, "b", secret="sk-eu-" + id)
    assert live.get("/v1/models", key=moved).status == 200


def sha256(name):
    secret = "sk-eu-" + name
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()


@pytest.fixture
def importing(live, tmp_path):
    """Writes a keys file and imports it; "@NAME" is the hash of sk-eu-NAME."""
    def call(text, **kw):
        file = tmp_path / "keys.conf"
        file.write_bytes(re.sub("@([\\w-]+)", lambda m: sha256(m[1]),
                                text).encode())
        return run("--socket", live.path("admin.sock"), "key", "import", file,
                   **kw)

    return call


def said(n, skipped=0, refused=0):
    text = "modelgwctl: imported %d, skipped %d" % (n, skipped)
    return text + (", refused %d" % refused if refused else "")


@pytest.mark.parametrize("shell", SHELLS)
def test_import(importing, live, shell):
    """As nginx reads a keys file: comments, quotes, several lines or keys a
    line, CRLF."""
    a, b, c, d, e = ["i%d-%s" % (i, shell) for i in range(5)]
    text = ("# all; of them\r\n%s @%s b;# the first\r\n\r\n"
            "  '%s'\t@%s\r\n  b  # in two lines; really\r\n rpm=7;\r\n"
            "%s @%s b models=fam-b-one,fam-b-two; \"%s\" @%s b account=%s "
            "budget=5.00/day expires=2035-01-01 tpm=1000 concurrency=2 ;#x\n"
            "\t#%s @x b;\n%s @%s b;"
            % (a, a, b, b, c, c, d, d, c, e, e, e))
    p = importing(text, shell=shell)
    assert ok(p, said(5)) == "".join("%s\n" % id for id in (a, b, c, d, e))
    keys = {k["id"]: k for k in json.loads(ok(run(
        "--socket", live.path("admin.sock"), "--json", "keys")))["keys"]}
    assert keys[a]["account"] == a and keys[a]["rpm"] is None
    assert keys[b]["rpm"] == 7 and keys[b]["models"] is None
    assert keys[c]["models"] == ["fam-b-one", "fam-b-two"]
    assert keys[d]["account"] == c and keys[d]["budget"] == "5.00/day"
    assert keys[d]["expires"] == "2035-01-01" and keys[d]["tpm"] == 1000
    assert live.get("/v1/models", key=Key(e, "b", secret="sk-eu-" + e)).status == 200

    # again, and with one more

    known = r".*/keys.conf:%d: key \"%s\" is in the ledger already, " \
        "with this hash or another: skipped\n"
    p = importing(text + "%s-6 @%s-6 b;" % (a, a), shell=shell)
    lines = zip((2, 4, 7, 7, 9), (a, b, c, d, e))
    assert ok(p, "".join(known % x for x in lines) + said(1, 5)) == a + "-6\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_import_of_many(importing, live, shell):
    """By one curl for many keys, some of which are refused."""
    id = "many-" + str(shell)
    name = lambda i: "%s-%d" % (id, i)      # noqa: E731
    lines = ["%s @%s %s;" % (name(i), name(i), "b" if i % 4 else "nosuch")
             for i in range(8)]
    p = importing("\n".join(lines), shell=shell)
    assert p.returncode == 1
    assert p.stdout.split() == [name(i) for i in range(8) if i % 4]
    *wrong, last = p.stderr.splitlines()
    assert last == said(6, 0, 2)
    for i, line in zip((0, 4), wrong, strict=True):
        assert line.endswith('keys.conf:%d: key "%s" was not imported: Unknown '
                             'group "nosuch"' % (i + 1, name(i))), line

    # the id that the hash has already is another

    p = importing("%s-x @%s b;" % (id, name(1)), shell=shell)
    assert p.returncode == 1 and p.stdout == ""
    assert "Another key has the hash" in p.stderr and said(0, 0, 1) in p.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_import_ends_where_all_would_fail(importing, live, gateway, tmp_path,
                                          shell):
    gw = gateway(**dict(WITH_LEDGER, http=WITH_LEDGER["http"] + SOCKET
                        + " modelgw_managed_keys 51;"))
    lines = ["full-%d @full-%d b;" % (i, i) for i in range(120)]
    file = tmp_path / "keys.conf"
    file.write_text(re.sub("@([\\w-]+)", lambda m: sha256(m[1]),
                           "\n".join(lines)))
    p = run("--socket", gw.path("admin.sock"), "key", "import", file,
            shell=shell)
    assert p.returncode == 1
    assert p.stdout.split() == ["full-%d" % i for i in range(51)]
    assert p.stderr.splitlines() == [
        said(51), "modelgwctl: There are as many keys as "
        '"modelgw_managed_keys 51" allows: revoke some, or raise it and '
        'restart nginx']
    for where in (("--url", "http://127.0.0.1:1"), ("--socket", "/nowhere"),
                  ("--url", "http://127.0.0.1:%d/v1" % gw.port)):
        p = run(*where, "key", "import", file, shell=shell)
        assert p.returncode == 1 and p.stdout == ""
        assert p.stderr.count(where[1]) == 1 or "its path" in p.stderr


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("text, line, word", [
    ("one @one b", 1, '"one" does not end with ";"'),
    ("one @one b;\ntwo @two b # ;\n", 2, '"two" does not end with ";"'),
    ("one @one b;\ntwo @two b\n\nthree @three b;", 2, "unknown option"),
    ("one @one b rpm=abc;", 1, "rpm must be a number"),
    ("one @one b tpm=0;", 1, "tpm must be a number"),
    ("one @one b concurrency=1000000001;", 1, "concurrency must be a number"),
    ("one @one b rpm=;", 1, "rpm must be a number"),
    ("one @one b rpm;", 1, "rpm must be a number"),
    ("one @one b rpm=1 rpm=2;", 1, '"rpm" twice'),
    ("one @one b models=;", 1, "models must be"),
    ("one @one b account=a/b;", 1, "account must be"),
    ("one @one b budget=5;", 1, "budget must be"),
    ("one @one b expires=soon;", 1, "expires must be"),
    ("one @one b owner=x;", 1, 'unknown option "owner"'),
    ("\none @one;", 2, 'key "one" has no group'),
    ("one @one rpm=5;", 1, 'key "one" has no group'),
    ("one;", 1, 'the hash of key "one"'), ("one b;", 1, 'the hash of key "one"'),
    ("one sha256:00 b;", 1, 'the hash of key "one"'),
    ("one sk-eu-1234 b;", 1, "64 hex digits"),
    ("a/b @one b;", 1, '"a/b" is not an id'),
    ("# x\n include more.conf;", 2, '"include"'),
    ("one @one b;\none @two b;", 2, 'key "one" is in line 1, too'),
    ("one @one b;\ntwo @one b;", 2, "has the hash of line 1"),
    ("one @one b rpm=1\\\"x;", 1, "rpm must be a number")])
def test_import_of_wrong_lines(importing, shell, text, line, word):
    """All that is wrong is said, and nothing is imported."""
    p = importing(text, shell=shell)
    refused(p, 1, "keys.conf:%d: " % line, word, "nothing was imported")
    assert "sk-eu" not in p.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_import_of_no_keys(importing, tmp_path, shell):
    refused(importing("", shell=shell), 1, "keys.conf has no keys")
    refused(importing("# one;\n\n", shell=shell), 1, "keys.conf has no keys")
    for path, word in ((tmp_path, "is a directory"),
                       (tmp_path / "nosuch", "cannot be read")):
        refused(run("key", "import", path, shell=shell), 1, str(path), word)


def days(n):
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86400 * n))


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("day, real", [
    ("2032-02-29", True), ("2400-02-29", True), ("2030-12-31", True),
    ("2033-02-29", False), ("2100-02-29", False), ("2032-02-30", False),
    ("2030-04-31", False), ("2030-13-01", False), ("2030-00-01", False),
    ("2030-08-09", True), ("2030-09-08", True), ("2030-01-00", False),
    ("2030-01-32", False), ("9999-12-31", True)])
def test_days_that_there_are(tmp_path, ctl, shell, day, real):
    new = key_new(tmp_path / "keys.conf", "bob", "--group", "a", "--expires",
                  day, shell=shell)
    if real:
        ok(new, err=".*")
        assert " expires=%s;" % day in (tmp_path / "keys.conf").read_text()
        return
    for p in (new, ctl("key", "new", "bob", "--group", "b", "--expires", day,
                       shell=shell),
              ctl("key", "set", "alice-1", "--expires", day, shell=shell)):
        refused(p, 2, "--expires %s: " % day)
    assert not (tmp_path / "keys.conf").exists()


def test_days_in_the_past(tmp_path, live):
    """A new key cannot expire today, one that there is can."""
    def ctl(*args):
        return run("--socket", live.path("admin.sock"), "key", *args)

    ok(ctl("new", "today", "--group", "b"), ".*")
    for day in ("2020-01-01", days(-1), days(0)):
        for file in ((), ("--keys", tmp_path / "keys.conf")):
            refused(ctl("new", "past", "--group", "b", "--expires", day, *file),
                    2, "--expires %s" % day, "in the past, nor today")
        if day != days(0):
            refused(ctl("set", "today", "--expires", day), 2,
                    "--expires %s" % day, "in the past")
    ok(ctl("new", "tomorrow", "--group", "b", "--expires", days(2)), ".*")
    out = ok(ctl("set", "today", "--expires", days(1)))
    assert "expires: %s\n" % days(1) in out
    assert "expires: -\n" in ok(ctl("set", "today", "--expires", "none"))
    assert not (tmp_path / "keys.conf").exists()


@pytest.fixture
def default(tmp_path):
    """modelgwctl with another default socket."""
    def copy(path):
        with open(CTL) as f:
            text = f.read()
        assert text.count("{MODELGW_ADMIN:-unix:/run/modelgw-admin.sock}") == 1
        ctl = tmp_path / "modelgwctl"
        ctl.write_text(text.replace("/run/modelgw-admin.sock", str(path)))

        def call(*args, shell=None):
            command = {"busybox": ["busybox", "sh"]}.get(shell,
                                                         [shell or "sh"])
            return subprocess.run(command + [ctl, *map(str, args)],
                                  capture_output=True, text=True, timeout=60)

        return call

    return copy


@pytest.mark.parametrize("shell", SHELLS)
def test_key_new_asks_the_gateway(live, default, tmp_path, shell):
    """At the default socket, too: groups, models and ids."""
    file = tmp_path / "keys.conf"
    ctl = functools.partial(default(live.path("admin.sock")), shell=shell)
    id = "ask-" + str(shell)
    ok(ctl("key", "new", id, "--group", "b"), ".*")
    for args, word in (((id, "--group", "b"), "in its ledger already"),
                       (("alice-1", "--group", "b"), "in its configuration"),
                       (("x", "--group", "nosuch"), 'unknown group "nosuch"'),
                       (("x", "--group", "b", "--models", "no"), '"no"')):
        refused(ctl("key", "new", *args, "--keys", file), 1, word,
                "nothing was changed")
        refused(run("--socket", live.path("admin.sock"), "key", "new", *args,
                    "--keys", file), 1, word)
    ok(ctl("key", "revoke", id))
    refused(ctl("key", "new", id, "--group", "b", "--keys", file), 1, id)
    assert not file.exists()
    ok(ctl("key", "new", id + "-2", "--group", "b", "--keys", file), ".*reload.*")
    assert file.read_text().startswith(id + "-2 sha256:")


@pytest.mark.parametrize("shell", SHELLS)
def test_key_new_without_a_gateway(default, tmp_path, shell):
    """A socket that was left behind, or none."""
    file = tmp_path / "keys.conf"
    path = tmp_path / "left.sock"
    ok(default(path)("key", "new", "one", "--group", "b", "--keys", file,
                     shell=shell), "modelgwctl: key .*")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))
    p = default(path)("key", "new", "two", "--group", "b", "--keys", file,
                      shell=shell)
    ok(p, "modelgwctl: unix:.*/left.sock does not answer: .*\n.* reload.*")
    assert len(file.read_text().splitlines()) == 2
    refused(run("--socket", path, "key", "new", "three", "--group", "b",
                "--keys", file, shell=shell), 1, "no answer")


def test_key_new_where_no_keys_are_managed(gw, tmp_path):
    file = tmp_path / "keys.conf"
    ctl = functools.partial(run, "--socket", gw.path("admin.sock"), "key", "new")
    refused(ctl("alice-1", "--group", "b", "--keys", file), 1, "configuration")
    ok(ctl("new", "--group", "b", "--keys", file), ".*")


@pytest.mark.parametrize("shell", SHELLS)
def test_operators_by_name(gateway, tmp_path, shell):
    """As in docs/operating.md: their passwords are in ~/.netrc."""
    entry = hashlib.sha1(b"0123 random").digest()
    gw = gateway(**dict(WITH_LEDGER, http=WITH_LEDGER["http"]
                        + " modelgw_managed_keys 5;"), locations="""
        location /admin/ { modelgw_admin; auth_basic modelgw;
                           auth_basic_user_file $dir/operators; }""",
                 files={"operators": "alice:{SHA}%s\n"
                        % base64.b64encode(entry).decode()})
    url = "--url", "http://127.0.0.1:%d/admin" % gw.port
    netrc = tmp_path / ".netrc"
    env = {"HOME": str(tmp_path)}
    p = run(*url, "account", "note", "alice", "x", shell=shell, env=env)
    refused(p, 1, "~/.netrc")
    netrc.write_text("machine 127.0.0.1 login alice password '0123 random'\n"
                     .replace("'", '"'))
    ok(run(*url, "account", "note", "alice", "x", shell=shell, env=env))
    file = tmp_path / "keys.conf"
    file.write_text("by-name %s b;" % sha256("by-name"))
    ok(run(*url, "key", "import", file, shell=shell, env=env), said(1))
    actions = json.loads(ok(run(*url, "--json", "actions", env=env)))["actions"]
    assert {a["actor"] for a in actions} == {"alice"}
    assert {a["target"] for a in actions} == {"alice", "by-name"}


@pytest.mark.parametrize("shell", SHELLS)
def test_spellings(ctl, gw, shell):
    """Aliases, "--name=value", options anywhere, and "--"."""
    ctl = functools.partial(ctl, shell=shell)
    assert ok(ctl("account", "list")) == ok(ctl("accounts"))
    assert ok(ctl("account", "show", "dave-1")) == ok(ctl("accounts", "dave-1"))
    assert ok(ctl("account", "list", "--q=dave")) \
        == ok(ctl("accounts", "--q", "dave")) == ok(ctl("accounts", "--q=dave"))
    assert ok(run("--socket=" + gw.path("admin.sock"), "keys", shell=shell)) \
        == ok(run("keys", "--socket", gw.path("admin.sock"), shell=shell))
    ok(ctl("accounts", "--q=a=b"), "modelgwctl: no rows")
    refused(ctl("accounts", "--q="), 1, '"q" must be')

    # what looks like an option is a value, or a text

    id = "dash-" + str(shell)
    for args, note in ((("open", id, "--note", "--json"), "--json"),
                       (("note", id, "--", "--a=b"), "--a=b"),
                       (("note", "--", id, "--help"), "--help")):
        assert "note: %s\n" % note in ok(ctl("account", *args))
    assert "note: --help\n" in ok(ctl("account", "show", "--", id))

    # ids are named; those that begin with "-" are reached

    for args in (("accounts", "-x"), ("key", "show", "-x"),
                 ("topup", "-x", "1"), ("account", "close", "-x")):
        refused(ctl(*args), 2, '"-x" is not an id')
    refused(ctl("key", "new", "--group", "b"), 2, '"--group" is not an id')
    refused(ctl("accounts", "--", "--x"), 1, 'No such account: "--x"')
    refused(ctl("key", "show", "--", "-x"), 1, "Not found")


@pytest.mark.parametrize("shell", SHELLS)
def test_key_new_as_json_and_without_credit(live, tmp_path, shell):
    def ctl(*args):
        return run("--socket", live.path("admin.sock"), *args, shell=shell)

    id = "poor-" + str(shell)
    ok(ctl("key", "new", id, "--no-founding", "--group=b"), ".*works now")
    assert "balance: 0.00\n" in ok(ctl("accounts", id))
    ok(ctl("key", "new", id + "-2", "--group=b", "--no-founding"), ".*")
    assert "balance: 0.00\n" in ok(ctl("accounts", id + "-2"))
    file = tmp_path / "keys.conf"
    refused(ctl("key", "new", "x", "--group", "b", "--no-founding", "--keys",
                file), 2, "does not go with --keys")
    key = json.loads(ok(ctl("--json", "key", "new", id + "-3", "--group", "b",
                            "--keys", file), ".*reload.*"))
    assert key == {"id": id + "-3", "group": "b", "key": key["key"]}
    digest = hashlib.sha256(key["key"].encode()).hexdigest()
    assert file.read_text() == "%s-3 sha256:%s b;\n" % (id, digest)


# operators and tokens


@pytest.mark.parametrize("shell", SHELLS)
def test_operator_new(tmp_path, shell):
    """The token on stdout, once; its line on stderr, or in the file."""
    p = run("operator", "new", "alice", "--role", "viewer", shell=shell)
    token = ok(p, err=".*").strip()
    assert re.fullmatch(r"op-eu-[0-9a-f]{48}", token)
    digest = hashlib.sha256(token.encode()).hexdigest()
    assert p.stderr.endswith(": alice sha256:%s viewer;\n" % digest)
    assert token not in p.stderr

    file = tmp_path / "operators.conf"
    file.write_text("# ours\nbob sha256:%s admin;" % ("0" * 64))
    file.chmod(0o640)
    p = run("operator", "new", "a@b:c._-", "--role", "billing", "--expires",
            "2035-01-31", "--operators", file, shell=shell)
    digest = hashlib.sha256(ok(p, ".*reload.*").strip().encode()).hexdigest()
    assert file.read_text().splitlines()[2] \
        == "a@b:c._- sha256:%s billing expires=2035-01-31;" % digest
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    text = file.read_text()
    refused(run("operator", "new", "bob", "--role", "viewer", "--operators",
                file, shell=shell), 1, 'an operator "bob" already')
    assert file.read_text() == text
    assert os.listdir(tmp_path) == ["operators.conf"]

    made = json.loads(ok(run("operator", "new", "eve", "--role=admin", "--json",
                             shell=shell), ".*"))
    digest = hashlib.sha256(made["token"].encode()).hexdigest()
    assert made == {"name": "eve", "role": "admin", "token": made["token"],
                    "line": "eve sha256:%s admin;" % digest}


@pytest.mark.parametrize("args, word", [
    (["operator"], "takes new"), (["operator", "list"], "takes new"),
    (["operator", "new"], "a name"), (["operator", "new", "a"], "--role"),
    (["operator", "new", "a b", "--role", "admin"], "not a name"),
    (["operator", "new", "a;", "--role", "admin"], "not a name"),
    (["operator", "new", "--role", "admin"], "not an id"),
    (["operator", "new", "a", "--role", "root"], "admin, billing or viewer"),
    (["operator", "new", "a", "--role", "admin", "--role", "viewer"], "twice"),
    (["operator", "new", "a", "--role", "admin", "--expires", "soon"], "a day"),
    (["operator", "new", "a", "--role", "admin", "--expires", "2020-01-01"],
     "past"),
    (["operator", "new", "a", "--role", "admin", "--rpm", "1"], "--rpm"),
    (["operator", "new", "a", "--role"], "needs a value"),
    (["whoami", "x"], "no arguments"), (["operators", "x"], "no arguments")])
def test_misused_operators(args, word, tmp_path):
    refused(run(*args, cwd=tmp_path), 2, word)
    assert os.listdir(tmp_path) == []


def commands(word):
    """The command lines of all processes that have the word in theirs."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            with open(path, errors="replace") as f:
                text = f.read()
            if word in text:
                found.append(text)
    return found


class Listener(Asked):
    """The first request, and the commands that sent it, while they wait."""

    def serve(self):
        with self.socket.accept()[0] as c:
            c.settimeout(20)
            self.head = c.recv(65536).decode()
            self.commands = commands(self.url)
            body = b'{"name":"alice","id":"x"}'
            c.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
                      b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("way", ["variable", "file"])
@pytest.mark.parametrize("command", ["whoami", "import"])
def test_token_is_sent_to_a_url(tmp_path, shell, way, command):
    """As Bearer, in no argument of a process; a password is not sent."""
    token = "op-eu-" + "5a" * 24
    (tmp_path / ".netrc").write_text(
        "machine 127.0.0.1 login alice password open-sesame\n")
    env, args = {"HOME": str(tmp_path)}, []
    if way == "variable":
        env["MODELGW_TOKEN"] = token
    else:
        env["MODELGW_TOKEN"] = "another"
        file = tmp_path / "token"
        file.write_text(token + "\n")
        file.chmod(0o640)
        args = ["--token-file", file]
    if command == "import":
        keys = tmp_path / "keys.conf"
        keys.write_text("x %s b;\n" % sha256("x"))
        args += ["key", "import", keys]
    else:
        args += ["whoami"]
    with Listener() as at:
        assert run("--url", at.url, *args, shell=shell, env=env) \
            .returncode == 0
    assert at.head.startswith("GET /session " if command == "whoami"
                              else "POST /keys ")
    assert re.findall(r"(?im)^authorization: (.*)\r$", at.head) \
        == ["Bearer " + token]
    assert at.commands and token not in "".join(at.commands)


@pytest.mark.parametrize("shell", SHELLS)
def test_token_stays_here(gw, tmp_path, shell):
    """It is sent neither in clear to another machine, nor to a socket, and is
    kept in no file that all can read."""
    env = {"MODELGW_TOKEN": "op-eu-" + "5a" * 24}
    call = functools.partial(run, shell=shell)
    for url in ("http://gateway.test/admin", "http://127.0.0.1.test/",
                "http://127.0.0.1:1@gateway.test/", "http://localhost@x.test",
                "http://localhost.test", "http://x.test/127.0.0.1/",
                "http://x.test?localhost"):
        refused(call("--url", url, "whoami", env=env), 1, "https only")
    for url in ("http://127.0.0.1:1", "http://localhost:1/", "http://[::1]:1/x",
                "https://127.0.0.1:1/"):
        refused(call("--url", url, "whoami", env=env), 1, "no answer")
    ok(call("--socket", gw.path("admin.sock"), "status", env=env))

    file = tmp_path / "token"
    with_file = functools.partial(call, "--url", "http://127.0.0.1:1",
                                  "--token-file", file, "whoami")
    refused(with_file(), 1, "cannot be read")
    for text, mode, word in (("x", 0o644, "everybody"), ("", 0o600, "empty"),
                             ("a\nb", 0o600, "not a token"),
                             ('"x"', 0o600, "not a token")):
        file.write_text(text)
        file.chmod(mode)
        refused(with_file(), 1, word)
    refused(call("--token-file", file, "whoami"), 2, "goes with --url")
    refused(call("whoami", "--token-file"), 2, "needs a value")


@pytest.fixture(scope="module")
def named(module_gateway):
    """A gateway with operators, made by modelgwctl itself."""
    gw = module_gateway(
        **dict(WITH_LEDGER, http=WITH_LEDGER["http"] + """
            modelgw_managed_keys 100;
            modelgw_operators { include $dir/operators.conf; }"""),
        keys=KEYS, files={"operators.conf": ""},
        locations=LOCATION + " location /admin/ { modelgw_admin; }")
    os.chmod(gw.path("operators.conf"), 0o600)
    gw.tokens = {role: ok(run("operator", "new", role + "@x", "--role", role,
                              "--operators", gw.path("operators.conf")),
                          ".*").strip()
                 for role in ("admin", "billing", "viewer")}
    gw.reload()
    assert gw.chat().status == 200
    return gw


def as_(gw, token, *args, **kw):
    return run("--url", "http://127.0.0.1:%d/admin" % gw.port, *args,
               env={"MODELGW_TOKEN": token}, **kw)


@pytest.mark.parametrize("shell", SHELLS)
def test_operators(named, shell):
    call = functools.partial(as_, named, shell=shell)
    out = ok(call(named.tokens["viewer"], "whoami"))
    assert "name: viewer@x\nrole: viewer\n" in out
    assert rows(ok(call(named.tokens["admin"], "operators"))) == [
        {"name": role + "@x", "role": role, "expires": "-"}
        for role in ("admin", "billing", "viewer")]
    refused(call(named.tokens["billing"], "operators"), 1, "may not do this")
    refused(call("op-eu-" + "0" * 48, "whoami"), 1, "not a token of an operator")
    refused(run("--url", "http://127.0.0.1:%d/admin" % named.port, "whoami",
                shell=shell), 1, "wants a token", "--token-file")
    ok(call(named.tokens["billing"], "topup", "alice", "1.00", "by-" + str(shell)))
    refused(call(named.tokens["viewer"], "topup", "alice", "1.00", "x"), 1,
            "may not do this")
    action = json.loads(ok(call(named.tokens["viewer"], "--json", "actions",
                                "--limit", "1"), ".*"))["actions"][0]
    assert action["actor"] == "billing@x" and action["target"] == "alice"


@pytest.mark.parametrize("shell", SHELLS)
def test_key_that_has_leaked(named, shell):
    """Its holder ends it; one of the configuration is not here."""
    id = "leaked-" + str(shell)
    key = ok(as_(named, named.tokens["admin"], "key", "new", id, "--group", "b"),
             ".*").strip()
    assert "role: holder\n" in ok(as_(named, key, "whoami", shell=shell))
    out = ok(as_(named, key, "key", "revoke", "self", shell=shell))
    assert out.startswith("id: %s\n" % id) and "state: revoked" in out
    refused(as_(named, key, "whoami", shell=shell), 1, "not a token")
    refused(as_(named, named.bob.secret, "key", "revoke", "self", shell=shell),
            1, "in the configuration")


with open(os.path.join(ROOT, "conf/openapi.json")) as f:
    PATHS = json.load(f)["paths"]

# a command for each operation of the interface

COMMANDS = {
    "GET /accounts": ["accounts"],
    "POST /accounts": ["account", "open", "all-1"],
    "GET /accounts/{account}": ["account", "show", "alice"],
    "PATCH /accounts/{account}": ["account", "note", "alice", "x"],
    "POST /accounts/{account}/topups": ["topup", "alice", "1.00", "all-1"],
    "GET /actions": ["actions"],
    "GET /calls": ["calls"],
    "GET /calls/{call}": ["call", "{call}"],
    "GET /usage": ["usage"],
    "GET /keys": ["keys"],
    "POST /keys": ["key", "new", "all-1", "--group", "b"],
    "GET /keys/{key}": ["key", "show", "alice-1"],
    "PATCH /keys/{key}": ["key", "set", "all-1", "--rpm", "5"],
    "POST /keys/{key}/rotate": ["key", "rotate", "all-1"],
    "POST /keys/{key}/revoke": ["key", "revoke", "all-1"],
    "GET /groups": ["groups"],
    "GET /models": ["models"],
    "GET /refusals": ["refusals"],
    "GET /status": ["status"],
    "GET /session": ["whoami"],
    "GET /operators": ["operators"],
}

# and those that need none

WITHOUT = {
    "DELETE /keys/{key}",           # is revoke
    "POST /keys/self/revoke",       # see test_key_that_has_leaked
    "POST /session",                # a token is sent with each request
    "DELETE /session",

    # of a cluster: t/cluster/test_nodes.py
    "GET /nodes",
    "PATCH /nodes/{node}",
    "POST /nodes/{node}/write-off",
}


def test_all_of_the_interface(named):
    """Each operation of the description is asked for by a command."""
    described = {"%s %s" % (method.upper(), path)
                 for path, item in PATHS.items()
                 for method in item if method != "parameters"}
    assert set(COMMANDS) | WITHOUT == described
    assert not set(COMMANDS) & WITHOUT

    wait_for(lambda: json.loads(ok(as_(
        named, named.tokens["admin"], "--json", "calls")))["calls"])
    call = json.loads(ok(as_(named, named.tokens["admin"], "--json",
                             "calls")))["calls"][0]["id"]
    for name, args in COMMANDS.items():
        args = [arg.replace("{call}", str(call)) for arg in args]
        seen = len(named.whole_lines("access.log"))
        ok(as_(named, named.tokens["admin"], *args), "(.*\n?)*")
        method, path = name.split()
        pattern = re.compile('"request":"%s /admin%s[ ?]' % (
            method, re.sub(r"\\{[a-z]+\\}", "[^/ ?]+", re.escape(path))))
        wait_for(lambda: any(pattern.search(line) for line in
                             named.whole_lines("access.log")[seen:]))
