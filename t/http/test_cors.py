"""modelgw_cors: preflights, and what pages of other origins may read."""

import json
import os
import re
import socket
import threading

import pytest

from client import assert_flat, build
from gateway import ROOT, Key, chat, group_a, group_b, messages
from upstream import (chat_error, chat_stream, raw, reply, reply_json, sse)

APP = "https://app.example"
LOCAL = "http://localhost:5173"
EVIL = "https://evil.example"

POOR = Key("poor-1", "b", "account=poor")
SLOW = Key("slow-1", "b", "account=slow rpm=1")

PATHS = ["/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens",
         "/v1/responses", "/v1/embeddings", "/v1/models", "/v1/models/fam-b-one"]

# what the SDKs send

NAMES = ("authorization,x-api-key,content-type,anthropic-version,"
         "anthropic-beta,anthropic-dangerous-direct-browser-access,"
         "x-stainless-arch,x-stainless-lang,x-stainless-os,"
         "x-stainless-package-version,x-stainless-retry-count,"
         "x-stainless-runtime,x-stainless-runtime-version,"
         "x-stainless-timeout")

LISTED = "modelgw_cors %s %s;" % (APP, LOCAL)

LIMITS = "limit_req_zone $binary_remote_addr zone=r:1m rate=1r/m;"


@pytest.fixture(scope="module")
def g(module_gateway):
    """Any origin."""
    return module_gateway(server="modelgw_cors *;", keys=[SLOW],
                          http="modelgw_zone 4m;")


@pytest.fixture(scope="module")
def listed(module_gateway):
    return module_gateway(server=LISTED)


@pytest.fixture(autouse=True)
def fresh(g):
    g.a.reset()
    g.b.reset()


def preflight(g, path="/v1/chat/completions", origin=APP, method="POST",
              names=NAMES, more=(), **kw):
    headers = [("Access-Control-Request-Method", method)]
    headers += [("Origin", origin)] if origin else []
    if names is not None:
        headers.append(("Access-Control-Request-Headers", names))
    return g.request("OPTIONS", path, headers=headers + list(more), **kw)


def vary(r):
    """Of all fields, in lower case."""
    return {name.strip().lower() for value in r.all("vary")
            for name in value.split(",")}


def readable(r, origin="*"):
    """A page of another origin may read the answer and its headers."""
    assert r.all("access-control-allow-origin") == [origin], r
    assert "origin" in vary(r)
    (exposed,) = r.all("access-control-expose-headers")
    exposed = [name.strip() for name in exposed.split(",")]
    assert "*" not in exposed and len(exposed) == len(set(exposed))
    plain = {"server", "date", "content-type", "content-length", "connection",
             "transfer-encoding", "vary", "access-control-allow-origin",
             "access-control-expose-headers", "cache-control", "keep-alive",
             "x-accel-buffering"}
    for name, value in r.headers:
        assert name.lower() in exposed or name.lower() in plain, name
    assert not r.all("access-control-allow-credentials")


def unreadable(r):
    assert not [n for n, v in r.headers
                if n.lower().startswith("access-control-")], r
    assert "origin" in vary(r)


# preflights

@pytest.mark.parametrize("path", PATHS)
def test_preflight(g, path, http):
    """Of every endpoint, without a key."""
    r = preflight(g, path, version=http)
    assert r.status == 204 and r.complete and not r.body, r
    assert r.get("access-control-allow-origin") == "*"
    assert r.get("access-control-allow-methods") == "GET, POST, OPTIONS"
    assert r.get("access-control-allow-headers") == NAMES
    assert r.get("access-control-max-age") == "86400"
    assert vary(r) == {"origin", "access-control-request-headers"}
    assert not r.all("access-control-allow-credentials")
    assert not r.all("access-control-allow-private-network")
    assert not r.all("access-control-expose-headers")
    assert not r.all("content-length") and not r.all("content-type")
    assert g.untouched()


@pytest.mark.parametrize("origin", [APP, LOCAL])
def test_preflight_of_a_listed_origin(listed, origin, http):
    r = preflight(listed, origin=origin, version=http)
    assert r.status == 204
    assert r.all("access-control-allow-origin") == [origin]
    assert vary(r) == {"origin", "access-control-request-headers"}


@pytest.mark.parametrize("origin", [
    EVIL, "null", "https://app.example:444", "http://app.example",
    "https://app.example/", "HTTPS://APP.EXAMPLE", "https://app.example.evil",
    "https://xapp.example", APP + " " + LOCAL, APP + "," + LOCAL, "*", "app",
    "https://app.exampl"])
def test_preflight_of_another_origin(listed, origin):
    r = preflight(listed, origin=origin)
    assert_flat(r, 403, "FORBIDDEN")
    unreadable(r)
    assert "access-control-request-headers" in vary(r)
    assert origin not in r.body.decode()


@pytest.mark.parametrize("second", [APP, LOCAL, EVIL, ""])
def test_two_origins(listed, second):
    more = [("Origin", second)]
    unreadable(preflight(listed, more=more))
    unreadable(listed.get("/v1/models", listed.bob, [("Origin", APP)] + more))


@pytest.mark.parametrize("origin", ["null", EVIL, "file://"])
def test_any_origin(g, origin):
    r = preflight(g, origin=origin)
    assert r.status == 204 and r.get("access-control-allow-origin") == "*"
    r = g.get("/v1/models", g.bob, [("Origin", origin)])
    readable(r)


def test_private_network(g):
    name = "Access-Control-Request-Private-Network"
    r = preflight(g, more=[(name, "true")])
    assert r.get("access-control-allow-private-network") == "true"
    r = preflight(g, more=[(name, "1")])
    assert not r.all("access-control-allow-private-network")


@pytest.mark.parametrize("names", ["X-A, X-B", "x-a", "a_b,c.d", "x-a ,\tx-b"])
def test_names_are_repeated(g, names):
    r = preflight(g, names=names)
    assert r.all("access-control-allow-headers") == [names]


@pytest.mark.parametrize("names", [
    None, "", "x-a;x-b", "x a\x7f", "x:a", '"x"', "<x>", "x\u00e9",
    "x" * 3000])
def test_names_that_are_not_repeated(g, names):
    r = preflight(g, names=names)
    assert r.status == 204
    assert not r.all("access-control-allow-headers")


def test_two_lists_of_names(g):
    r = preflight(g, more=[("Access-Control-Request-Headers", "x-b")])
    assert r.status == 204 and not r.all("access-control-allow-headers")


@pytest.mark.parametrize("path", ["/v1/none", "/v1/", "/v1/chat",
                                  "/v1/messages/"])
def test_preflight_of_no_endpoint(g, listed, path):
    r = preflight(g, path)
    assert_flat(r, 404, "NOT_FOUND")
    readable(r)
    assert "access-control-request-headers" in vary(r)
    r = preflight(listed, path, origin=EVIL)
    assert_flat(r, 404, "NOT_FOUND")
    unreadable(r)


@pytest.mark.parametrize("headers", [
    [], [("Origin", APP)], [("Access-Control-Request-Method", "POST")]])
def test_options_that_is_no_preflight(g, headers):
    r = g.request("OPTIONS", "/v1/messages", headers=headers)
    assert_flat(r, 404, "NOT_FOUND")
    readable(r)


def test_preflight_with_a_body(g):
    """It is read, and the connection may be used again."""
    with g.connect() as c:
        for body in None, b"x" * 100000:
            c.request("OPTIONS", "/v1/messages",
                      [("Origin", APP),
                       ("Access-Control-Request-Method", "POST")], body)
            assert c.response().status == 204
        c.request("GET", "/v1/models", [g.bob.bearer()])
        assert c.response().status == 200


def test_preflight_costs_no_rpm(g):
    for _ in range(5):
        assert preflight(g, more=[SLOW.bearer()]).status == 204
    assert g.chat(key=SLOW).status == 200
    assert preflight(g, more=[SLOW.bearer()]).status == 204
    r = g.chat(key=SLOW, headers=[("Origin", APP)])
    assert_flat(r, 429, "RATE_LIMITED")
    readable(r)


def test_nginx_limits_apply(gateway):
    """limit_req is before us, for preflights as for others."""
    g = gateway(server="modelgw_cors *;", http=LIMITS,
                location="limit_req zone=r burst=1 nodelay; "
                "limit_req_status 429;")
    assert [preflight(g).status for _ in range(3)] == [204, 204, 429]
    r = preflight(g)
    assert_flat(r, 429, "RATE_LIMITED")
    readable(r)


def test_connection_limit_applies(gateway):
    g = gateway(server="modelgw_cors *;",
                http="limit_conn_zone $server_name zone=c:1m;",
                location="limit_conn c 1;")
    gate = threading.Event()
    g.b.script(sse(chat_stream("one-0613")[:1] + [gate]
                   + chat_stream("one-0613")[1:]))
    with g.connect() as c:
        c.request("POST", "/v1/chat/completions", [g.bob.bearer()],
                  chat(stream=True))
        assert c.head().status == 200
        r = preflight(g)
        assert_flat(r, 503, "SERVICE_UNAVAILABLE")
        readable(r)
        gate.set()


# answers

def test_answer(g, listed, http):
    readable(g.chat(headers=[("Origin", APP)], version=http))
    readable(listed.chat(headers=[("Origin", LOCAL)], version=http), LOCAL)
    unreadable(listed.chat(headers=[("Origin", EVIL)], version=http))
    unreadable(listed.chat(version=http))
    readable(g.messages(headers=[("Origin", APP)], version=http))
    readable(g.post("/v1/responses", {"model": "fam-b-one", "input": "Hi"},
                    g.bob, [("Origin", APP)], version=http))


def test_origin_does_not_reach_the_upstream(g):
    g.chat(headers=[("Origin", APP)])
    assert not [n for n, v in g.b.last().headers if n.lower() == "origin"]


@pytest.mark.parametrize("body", [chat, messages])
def test_stream(g, body, http):
    send = g.chat if body is chat else g.messages
    r = send(body(stream=True), headers=[("Origin", APP)], version=http)
    assert r.status == 200 and r.complete
    readable(r)


def test_translated(gateway):
    g = gateway(server=LISTED)
    r = g.post("/v1/chat/completions", chat("fam-a-large", logit_bias={}),
               g.alice, [("Origin", APP)])
    assert r.status == 200
    readable(r, APP)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/fam-b-one"])
def test_models(listed, method, path, http):
    r = listed.request(method, path, listed.bob, [("Origin", APP)],
                       version=http)
    assert r.status == 200
    readable(r, APP)


def test_upstreams_own_headers_are_dropped(g):
    g.b.script(reply_json({"model": "one-0613", "choices": []}, headers=[
        ("Access-Control-Allow-Origin", "https://vendor.example"),
        ("access-control-allow-credentials", "true"),
        ("Access-Control-Expose-Headers", "x-vendor"),
        ("Vary", "Accept")]))
    r = g.chat(headers=[("Origin", APP)])
    readable(r)
    assert r.all("vary") == ["Origin"]


# errors

@pytest.mark.parametrize("send, status", [
    (lambda g, h: g.post("/v1/chat/completions", chat(), headers=h), 401),
    (lambda g, h: g.chat(b"{", headers=h), 400),
    (lambda g, h: g.chat(chat("none"), headers=h), 400),
    (lambda g, h: g.chat(key=g.alice, headers=h), 403),
    (lambda g, h: g.messages(key=g.bob, headers=h), 403),
    (lambda g, h: g.get("/v1/models/none", g.bob, headers=h), 404),
    (lambda g, h: g.get("/v1/none", g.bob, headers=h), 404),
    (lambda g, h: g.get("/v1/messages", g.bob, headers=h), 405),
    (lambda g, h: g.chat(headers=h + [("Content-Encoding", "gzip")]), 415)])
def test_our_errors(g, listed, send, status, http):
    def over(gw, origin):
        class Proxy:
            def __getattr__(self, name):
                call = getattr(gw, name)
                return (lambda *a, **kw: call(*a, version=http, **kw)) \
                    if callable(call) else call
        return send(Proxy(), [("Origin", origin)])

    r = over(g, APP)
    assert r.status == status, r
    readable(r)
    readable(over(listed, APP), APP)
    unreadable(over(listed, EVIL))


def test_402(gateway):
    g = gateway(server=LISTED,
                http="modelgw_zone 4m; modelgw_ledger $dir/l.db;",
                groups=group_a(models="model ~^fam-a-.+ $0 free; "
                               "model fam-a-small s free;")
                + group_b(models="model fam-b-one one-0613 input=1 output=2 "
                          "context=9000;"), keys=[POOR])
    r = g.chat(key=POOR, headers=[("Origin", APP)])
    assert_flat(r, 402, "INSUFFICIENT_CREDIT")
    readable(r, APP)


@pytest.mark.parametrize("status", [400, 401, 404, 413, 429, 500, 503, 529])
def test_errors_of_the_upstream(g, status, http):
    g.b.script(reply_json(chat_error("no"), status, headers=[
        ("Retry-After", "3"), ("Access-Control-Allow-Origin", "null")]))
    r = g.chat(headers=[("Origin", APP)], version=http)
    assert r.status >= 400
    readable(r)


@pytest.mark.parametrize("script, status", [
    (reply(body=b"{", length=100, end="close"), 502),
    (reply(body=b"<html>", ctype="text/html"), 502),
    (reply(302, headers=[("Location", "http://x.example/")]), 502),
    (raw(b"garbage\r\n\r\n"), 502)])
def test_answers_that_are_none(g, script, status):
    g.b.script(script)
    r = g.chat(headers=[("Origin", APP)])
    assert r.status == status, r
    readable(r)
    assert not r.all("location")


# nginx's own

def test_body_too_large(g):
    r = g.chat(b"x" * (33 << 20), headers=[("Origin", APP)])
    assert_flat(r, 413, "REQUEST_TOO_LARGE")
    readable(r)


@pytest.mark.parametrize("head, status", [
    (b"GET /v1/models HTTP/1.1\r\n", 400),             # no Host
    (b"GET /v1/models HTTP/1.1\r\nHost: x\r\nOrigin: " + APP.encode()
     + b"\r\nContent-Length: x\r\n", 400),
    (b"GET /" + b"x" * 40000 + b" HTTP/1.1\r\nHost: x\r\n", 414),
    (b"GET /v1/models HTTP/1.1\r\nHost: x\r\nx: " + b"x" * 40000 + b"\r\n",
     400)])
def test_before_a_location_is_found(g, head, status):
    with g.connect() as c:
        c.try_send(head + b"\r\n")
        r = c.response()
    assert r.status == status, r
    readable(r)


def test_before_a_location_is_found_listed(listed):
    """The origin is known if its header was read."""
    with listed.connect() as c:
        c.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nOrigin: "
               + APP.encode() + b"\r\nContent-Length: x\r\n\r\n")
        r = c.response()
    assert r.status == 400
    readable(r, APP)
    with listed.connect() as c:
        c.try_send(b"GET /" + b"x" * 40000 + b" HTTP/1.1\r\n\r\n")
        unreadable(c.response())


def test_redirects_of_the_location(gateway):
    g = gateway(server=LISTED, location="if ($arg_to) { return 307 "
                "https://x.example/; }")
    r = g.request("POST", "/v1/messages?to=1", headers=[("Origin", APP)])
    assert r.status == 307
    assert r.all("access-control-allow-origin") == [APP]


# where it is not

def test_off_by_default(gw):
    r = preflight(gw)
    assert_flat(r, 404, "NOT_FOUND")
    r2 = gw.chat(headers=[("Origin", APP)])
    for answer in r, r2:
        assert not [n for n, v in answer.headers
                    if n.lower().startswith(("access-control", "vary"))]


def test_other_locations_are_untouched(gateway):
    g = gateway(http="modelgw_cors *; modelgw_zone 4m; "
                "modelgw_ledger $dir/l.db;",
                groups=group_a(models="model ~^fam-a-.+ $0 free; "
                               "model fam-a-small s free;")
                + group_b(models="model fam-b-one one-0613 free;"),
                locations="location /admin/ { modelgw_admin; allow 127.0.0.1; "
                "deny all; } location /console/ { alias $dir/html/; } "
                "location /ready { modelgw_ready; } location /off/ { "
                "modelgw_cors off; modelgw on; proxy_pass $modelgw_upstream; }"
                " location /m { modelgw_metrics; allow all; }")
    with open(g.path("html/x.html"), "w") as f:
        f.write("x")
    seen = {}
    for path in ("/admin/accounts", "/admin/none", "/console/x.html",
                 "/console/none", "/ready", "/off/", "/m"):
        for method in "GET", "OPTIONS":
            r = g.request(method, path, headers=[
                ("Origin", APP), ("Access-Control-Request-Method", "GET")])
            seen[method, path] = r.status
            assert not [n for n, v in r.headers
                        if n.lower().startswith("access-control")], r
            assert "origin" not in vary(r)
    assert seen["GET", "/admin/accounts"] == 200
    assert seen["GET", "/console/x.html"] == 200
    readable(g.chat(headers=[("Origin", APP)]))


def test_a_server_without_a_gateway(gateway):
    g = gateway(http="modelgw_cors *; server { listen unix:$dir/s; root "
                "$dir/html; }")
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(g.path("s"))
        s.sendall(build("GET", "/none", [("Origin", APP),
                                         ("Connection", "close")]))
        text = b"".join(iter(lambda: s.recv(65536), b"")).lower()
    assert b"404" in text and b"access-control" not in text


# logs

def test_logs(gateway, tag):
    """What a header has is escaped, or not there at all."""
    g = gateway(server=LISTED, log_level="info",
                http="log_format whole escape=none '$modelgw_log'; "
                "access_log $dir/whole.log whole;")
    bad = 'https://e.example"}\x1b[31m<b>'
    assert_flat(preflight(g, origin=bad, names="x\x1b"), 403, "FORBIDDEN")
    g.chat(headers=[("Origin", bad), ("X-Test-Tag", tag)])
    g.logged(tag)
    for name in "error.log", "access.log", "whole.log":
        text = g.read(name)
        assert "\x1b" not in text and "<b>" not in text
    g.wait_log("refused 403 FORBIDDEN: The origin is not allowed")
    for line in g.whole_lines("whole.log"):
        json.loads(line)


def test_operators_header_is_doubled(gateway):
    """As docs/api.md says: add_header adds."""
    g = gateway(server="modelgw_cors *;",
                location="add_header Access-Control-Allow-Origin x always;")
    r = g.get("/v1/models", g.bob, [("Origin", APP)])
    assert r.all("access-control-allow-origin") == ["*", "x"]


def test_metrics(gateway):
    g = gateway(server="modelgw_cors *;", http="modelgw_zone 4m;",
                locations="location /m { modelgw_metrics; allow all; }")
    preflight(g, "/v1/messages")
    g.wait_metric('modelgw_requests_total{endpoint="messages",group="",code=""'
                  '} 1')


def test_the_exposed_headers_are_documented():
    with open(os.path.join(ROOT, "src/http/ngx_http_modelgw_cors.c")) as f:
        (text,) = re.findall(r"exposed = ngx_string\(([^;]*)\);", f.read())
    with open(os.path.join(ROOT, "docs/api.md")) as f:
        docs = f.read()
    for name in "".join(re.findall(r'"([^"]*)"', text)).split(", "):
        family = re.sub(r"(ratelimit-).*", r"\1…", name)
        assert "`%s`" % name in docs or "`%s`" % family in docs \
            or "`%s`" % name.capitalize() in docs, name
