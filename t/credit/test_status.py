"""modelgw_ready, for load balancers, and GET /status of the admin interface."""

import concurrent.futures
import contextlib
import os
import threading
import time

import pytest

import gateway as lib
from client import LIMIT, assert_flat, assert_ids
from config_check import Config
from gateway import Key, MODELS_B, chat, group_a, group_b
from test_admin import GROUPS, LEDGER
from metrics import LOCATION
from shim import CLOCK, Shim
from upstream import both, chat_error, raw, reply_json

READY = """
        location = /ready { modelgw_ready; }
        location /admin/ { modelgw_admin; allow 127.0.0.1; deny all; }
"""


def status(g, expected=200):
    r = g.get("/admin/status")
    assert r.status == expected and r.get("cache-control") == "no-store", r
    return r.json()


def until(g, what):
    end = time.monotonic() + LIMIT
    while not what(g):
        assert time.monotonic() < end, g.get("/admin/status")
        time.sleep(0.02)


@pytest.fixture
def gw(gateway):
    return gateway(groups=GROUPS, http=LEDGER, locations=READY)


@pytest.mark.parametrize("parts", [
    {},
    {"http": "modelgw_zone 1m;"},
    {"http": LEDGER, "groups": GROUPS},
])
def test_ready(gateway, http, parts):
    g = gateway(locations=READY, **parts)
    r = g.get("/ready", version=http)
    assert r.status == 200 and r.json() == {"status": "ok"}
    assert r.get("content-type") == "application/json"
    assert r.get("cache-control") == "no-store"
    assert_ids(r)
    r = g.request("HEAD", "/ready", version=http)
    assert r.status == 200 and r.body == b""
    r = g.post("/ready", {}, version=http)
    assert_flat(r, 405, "METHOD_NOT_ALLOWED")
    assert r.get("allow") == "GET, HEAD"


def test_ready_without_a_gateway(tmp_path):
    """Nothing else of the module is needed."""
    conf = Config(tmp_path)
    assert conf.test(groups="", keys=False, enable="", location="",
                     upstreams="", shipped=False,
                     locations="location /ready { modelgw_ready; }").rc == 0


ON = "modelgw on; proxy_pass $modelgw_upstream;"


@pytest.mark.parametrize("location, word", [
    ("location /r { modelgw_ready; modelgw on; }", "modelgw on"),
    ("location /r { modelgw_ready; modelgw_admin; }", "modelgw_ready"),
    ("location /r/ { modelgw_admin; modelgw_ready; }",
     "handler of another directive"),
    ("location /r { modelgw_ready; %s }" % ON, "modelgw on"),
    ("location /r { modelgw_ready; return 204; empty_gif; }",
     "another directive"),
    ("location /r { modelgw_ready; modelgw_ready; }", "is duplicate"),
])
def test_refused_by_nginx_t(tmp_path, location, word):
    r = Config(tmp_path).test(locations=location)
    assert r.rc != 0 and word in r.text, r.text


@pytest.mark.parametrize("location", [
    "location = /r { modelgw_ready; allow 127.0.0.1; deny all; }",
    "location ~ ^/r$ { modelgw_ready; limit_except GET { deny all; } }",
    "location /r { modelgw_ready; if ($arg_x) { set $y 1; } }",
])
def test_allowed_by_nginx_t(tmp_path, location):
    r = Config(tmp_path).test(locations=location)
    assert r.rc == 0, r.text


def test_limit_except(gateway):
    g = gateway(locations="""
        location = /ready { modelgw_ready;
                            limit_except GET { deny all; } }""")
    assert g.get("/ready").status == 200
    assert g.post("/ready", {}).status == 403


# GET /status


def test_ready_without_a_free_place(gateway):
    """No call could be admitted."""
    g = gateway(groups=GROUPS, http="modelgw_zone 128k; "
                + LEDGER.replace("5.00", "1000.00"), locations=READY)
    n = status(g)["zone"]["calls_max"]
    go = threading.Event()
    g.b.script(raw(go, both))
    try:
        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            calls = [pool.submit(g.chat) for _ in range(n)]
            g.b.wait(n)
            assert_flat(g.get("/ready"), 503, "SERVICE_UNAVAILABLE")
            assert status(g, 503)["ok"] is False
            assert_flat(g.chat(), 503, "SERVICE_UNAVAILABLE")
            go.set()
            assert {c.result().status for c in calls} == {200}
    finally:
        go.set()
    until(g, lambda g: g.get("/ready").status == 200)


LOCKS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

int
pthread_mutex_trylock(pthread_mutex_t *m)
{
    int  (*lock)(pthread_mutex_t *);

    if (access(DIR "/full", F_OK) == 0) {
        return EBUSY;
    }

    lock = (int (*)(pthread_mutex_t *)) dlsym(RTLD_NEXT,
                                              "pthread_mutex_trylock");

    return lock(m);
}
"""


@pytest.mark.parametrize("http", ["", LEDGER])
def test_ready_of_a_worker_without_a_place(gateway, tmp_path, monkeypatch,
                                           http):
    """As if all places were taken by workers of former configurations."""
    locks = Shim(tmp_path / "shim", LOCKS, monkeypatch)
    g = gateway(groups=GROUPS, http=http, locations=READY, workers=1,
                keys=[Key("limited", "b", "concurrency=5")])
    assert g.get("/ready").status == 200
    g.expect("too many nginx workers")
    locks.set("full")
    g.reload()
    r = g.get("/ready")
    assert_flat(r, 503, "SERVICE_UNAVAILABLE")
    assert "gateway is full" in r.json()["message"]
    assert status(g, 503)["ok"] is False
    assert_flat(g.chat(key=g.keys[4]), 503, "SERVICE_UNAVAILABLE")
    locks.clear("full")
    until(g, lambda g: g.get("/ready").status == 200)
    assert g.chat(key=g.keys[4]).status == 200


def test_status(gw):
    assert gw.chat().status == 200
    until(gw, lambda g: status(g)["ledger"]["queue"] == 0
          and status(g)["workers"]["running"] == gw.workers)
    s = status(gw)
    assert s["ok"] is True and s["version"]
    assert gw.get("/").get("server") in ("nginx/" + s["nginx"], "nginx")
    assert s["started"] == s["config_time"]
    assert s["workers"] == {"running": gw.workers, "leaving": 0}
    until(gw, lambda g: status(g)["ledger"]["size"]
          == os.path.getsize(g.path("ledger.db")))
    ledger = s["ledger"]
    assert ledger["writable"] is True and ledger["oldest_open"] is None
    assert ledger["path"] == gw.path("ledger.db")
    assert 0 <= ledger["last_flush_ms"] < 1000 * LIMIT
    zone = s["zone"]
    assert zone["accounts"] == 4 and zone["keys"] == 0
    assert zone["calls"] == 0 and s["in_flight"] == 0
    assert min(zone[name + "_max"] for name in ("accounts", "keys", "calls")) \
        > 1000
    assert [g["name"] for g in s["groups"]] == ["a", "b"]


def test_status_without_a_ledger(gateway):
    g = gateway(locations=READY)
    s = status(g)
    assert s["ok"] is True and s["ledger"] is None
    until(g, lambda g: status(g)["workers"]["running"] == g.workers)


@contextlib.contextmanager
def running(gw):
    """While a call runs."""
    go = threading.Event()
    gw.b.script(raw(go, both), both)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        call = pool.submit(gw.chat)
        try:
            until(gw, lambda g: status(g)["in_flight"] == 1)
            yield
        finally:
            go.set()
        assert call.result().status == 200


def test_calls_in_flight(gw):
    with running(gw):
        s = status(gw)
        assert s["ledger"]["oldest_open"] > s["started"]
        assert s["zone"]["calls"] == 1
    until(gw, lambda g: status(g)["zone"]["calls"] == 0)
    assert status(gw)["in_flight"] == 0


def test_reload(gw):
    before = status(gw)
    with running(gw):
        gw.reload()
        until(gw, lambda g: status(g)["workers"]
              == {"running": gw.workers, "leaving": 1})
        s = status(gw)
        assert s["started"] == before["started"]
        assert s["config_time"] >= before["config_time"]
    until(gw, lambda g: status(g)["workers"]["leaving"] == 0)


def group(g, name):
    return {x["name"]: x for x in status(g)["groups"]}[name]


def test_a_group_in_place_of_another(gw):
    """It begins with nothing; old workers' calls are of the former one."""
    nothing = {"name": "new", "last_ok": None, "last_error": None,
               "error_ratio_5m": None}
    gw.b.script(reply_json(chat_error("x"), status=500))
    assert gw.chat().status == 502
    until(gw, lambda g: group(g, "b")["error_ratio_5m"] == 1)
    with running(gw):
        gw.groups = GROUPS.replace("modelgw_group b ", "modelgw_group new ")
        for key in (gw.bob, gw.dave):
            key.group = "new"
        gw.write()
        gw.reload()
        assert group(gw, "new") == nothing
    until(gw, lambda g: status(g)["workers"]["leaving"] == 0)
    assert group(gw, "new") == nothing
    assert gw.chat().status == 200
    until(gw, lambda g: group(g, "new")["error_ratio_5m"] == 0)


def many(n):
    return GROUPS + "".join(
        lib.group("g%d" % i, "chat", "fam-g%d-" % i,
                  "http://api.vendor-b.test",
                  "Authorization file:$dir/b.secret bearer",
                  "model fam-g%d-one one input=1 output=1 max_output=9;" % i)
        for i in range(3, n + 1))


def renew(gw, n):
    """A reload to n groups, and a call to each of the last ones."""
    gw.groups = many(n)
    gw.keys = gw.keys[:4] + [Key("k%d" % i, "g%d" % i)
                             for i in range(3, n + 1)]
    gw.write()
    gw.reload()
    assert len(status(gw)["groups"]) == n
    assert gw.chat().status == 200
    for key in gw.keys[4:]:
        assert gw.chat(chat("fam-%s-one" % key.group), key=key).status == 200
    until(gw, lambda g: all(x["last_ok"] for x in status(g)["groups"]
                            if x["name"] != "a"))


def test_many_groups(gateway):
    """All have health.  A reload keeps it unless there are many more, or many
    less, of them; an old worker that has yet to end a call does no harm."""
    gw = gateway(groups=many(3), http=LEDGER, locations=READY,
                 keys=[Key("k3", "g3")])
    assert gw.chat(chat("fam-g3-one"), key=gw.keys[4]).status == 200
    until(gw, lambda g: group(g, "g3")["last_ok"])
    renew(gw, 20)
    assert group(gw, "g3")["error_ratio_5m"] == 0
    with running(gw):
        renew(gw, 70)
    assert group(gw, "g70")["error_ratio_5m"] == 0
    with running(gw):
        renew(gw, 3)
    renew(gw, 64)
    assert group(gw, "g64")["error_ratio_5m"] == 0


@pytest.mark.parametrize("http", ["", LEDGER])
def test_groups(gateway, http):
    """Kept without a ledger, too, over a reload, and by name."""
    g = gateway(groups=GROUPS, http=http, locations=READY)
    assert group(g, "b") == {"name": "b", "last_ok": None,
                             "last_error": None, "error_ratio_5m": None}
    assert g.chat().status == 200
    until(g, lambda g: group(g, "b")["last_ok"])
    assert group(g, "b")["error_ratio_5m"] == 0
    for code in (400, 500, 429):
        g.b.script(reply_json(chat_error("x"), status=code))
        assert g.chat().status in (400, 502, 429)
    until(g, lambda g: group(g, "b")["error_ratio_5m"] == 0.5)
    assert group(g, "b")["last_error"] >= group(g, "b")["last_ok"]
    assert group(g, "a")["error_ratio_5m"] is None
    g.groups = group_b(models=MODELS_B.replace(";", " max_output=9;")) \
        + group_a(models="model fam-a-small x input=1 output=1 max_output=9;")
    g.reload()
    assert group(g, "b")["error_ratio_5m"] == 0.5
    assert group(g, "a")["error_ratio_5m"] is None


def test_refused_calls_are_not_of_the_upstream(gw):
    assert gw.chat({"model": "fam-b-none", "messages": []}).status >= 400
    assert group(gw, "b")["error_ratio_5m"] is None


def test_errors_of_five_minutes(gateway, tmp_path, monkeypatch):
    """A minute's counts leave the ratio, and make room for those of another."""
    clock = Shim(tmp_path / "shim", CLOCK, monkeypatch)
    g = gateway(groups=GROUPS, http=LEDGER, locations=READY)
    assert g.chat().status == 200
    until(g, lambda g: group(g, "b")["error_ratio_5m"] == 0)
    clock.set("ahead", "180")
    g.b.script(reply_json(chat_error("x"), status=500))
    assert g.chat().status == 502
    until(g, lambda g: group(g, "b")["error_ratio_5m"] == 0.5)
    clock.set("ahead", "%d" % (5 * 60))
    until(g, lambda g: group(g, "b")["error_ratio_5m"] == 1)
    g.b.script(both)
    assert g.chat().status == 200
    until(g, lambda g: group(g, "b")["error_ratio_5m"] == 0.5)
    clock.set("ahead", "%d" % (9 * 60))
    until(g, lambda g: group(g, "b")["error_ratio_5m"] == 0)
    clock.set("ahead", "%d" % (60 * 60))
    until(g, lambda g: group(g, "b")["error_ratio_5m"] is None)
    assert group(g, "b")["last_ok"] and group(g, "b")["last_error"]
