"""Requests for anything else: a flat error at once, and the connection is
kept."""

import pytest

from client import assert_flat, assert_ids, build
from gateway import chat, within
from upstream import raw

ASKED = [("HEAD", "/api/hello", None), ("GET", "/api/hello", None),
         ("GET", "/v1/responses/x", "key"), ("POST", "/v1/responses/x", "key"),
         ("GET", "/.well-known/oauth-authorization-server", None),
         ("GET", "/robots.txt", None), ("POST", "/api/event_logging/batch",
                                        None),
         ("GET", "/v1/organizations", "key"), ("POST", "/messages", "key"),
         ("POST", "/v1/v1/messages", "key"), ("GET", "/models", None)]


def ask(c, method, target, headers):
    c.send(build(method, target, headers,
                 body=b"{}" if method == "POST" else None))
    return c.response(method=method)


@pytest.mark.timed("an answer within a second, once in five times")
@pytest.mark.parametrize("method,target,key", ASKED,
                         ids=[a[0] + a[1] for a in ASKED])
def test_stranger(gw, method, target, key):
    headers = [gw.alice.bearer()] if key else []
    with gw.connect() as c:
        for _ in range(3):
            r = within(lambda: ask(c, method, target, headers), 1)
            if method == "HEAD":
                assert r.status == 404, r
                assert r.get("content-type").startswith("application/json")
                assert_ids(r)
            elif method == "POST" and not target.startswith("/v1/"):
                assert_flat(r, (404, 405))
            else:
                assert_flat(r, 404, "NOT_FOUND")
        assert c.alive()
    assert gw.untouched()


@pytest.mark.parametrize("target", ["/", "/v1/chat/completions",
                                    "/v1/messages", "/v1/models", "/x", "*"])
def test_options(gw, target):
    """A browser's preflight: flat, at once, kept."""
    with gw.connect() as c:
        for _ in range(2):
            c.send(build("OPTIONS", target, [
                ("Origin", "https://app.test"),
                ("Access-Control-Request-Method", "POST"),
                ("Access-Control-Request-Headers", "authorization")]))
            r = c.response()
            assert_flat(r, (400, 404, 405) if target == "*" else (404, 405))
            if r.status == 400:
                return
        assert c.alive()
    assert gw.untouched()


WEBSOCKET = [("Connection", "Upgrade"), ("Upgrade", "websocket"),
             ("Sec-WebSocket-Version", "13"),
             ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")]


@pytest.mark.parametrize("key", [True, False])
@pytest.mark.parametrize("upgrade", ["websocket", "WebSocket",
                                     "h2c, websocket"])
def test_websocket(gw, key, upgrade):
    """Codex tries this before its first call, and falls back to HTTP at
    once."""
    headers = [(n, upgrade if n == "Upgrade" else v) for n, v in WEBSOCKET]
    if key:
        headers.append(gw.bob.bearer())
    with gw.connect() as c:
        for _ in range(7):
            c.send(build("GET", "/v1/responses?x=1", headers))
            r = c.response()
            assert_flat(r, 426, "UPGRADE_REQUIRED", has="use HTTP")
            assert r.all("upgrade") == ["HTTP/1.1"], r
            assert "upgrade" in r.all("connection"), r
        assert c.alive()
    assert gw.untouched()


@pytest.mark.parametrize("method,target,upgrade,version,status", [
    ("GET", "/v1/responses", "h2c", "HTTP/1.1", 405),
    ("GET", "/v1/responses", "websocket", "HTTP/1.0", 405),
    ("POST", "/v1/responses", "websocket", "HTTP/1.1", 400),
    ("DELETE", "/v1/responses", "websocket", "HTTP/1.1", 405),
    ("GET", "/v1/responses/x", "websocket", "HTTP/1.1", 404),
    ("GET", "/v1/responses/", "websocket", "HTTP/1.1", 404),
    ("GET", "/v1/response", "websocket", "HTTP/1.1", 404),
    ("GET", "/V1/responses", "websocket", "HTTP/1.1", 404)])
def test_no_websocket(gw, method, target, upgrade, version, status):
    """Everything else there is what it would be without."""
    headers = [(n, upgrade if n == "Upgrade" else v) for n, v in WEBSOCKET]
    r = gw.request(method, target, gw.bob, headers, host="gateway.test",
                   body=b"{}" if method == "POST" else None)
    if version == "HTTP/1.0":
        with gw.connect() as c:
            c.send(build(method, target, headers, version=version))
            r = c.response(3)
    assert_flat(r, status)
    assert r.get("upgrade") is None, r
    assert gw.untouched()


def test_websocket_on_an_endpoint(gw):
    """The upgrade is not forwarded; the request is served without it."""
    r = gw.chat(headers=[("Connection", "Upgrade"),
                         ("Upgrade", "websocket")])
    assert r.status == 200, r
    assert gw.b.last().get("upgrade") is None
    assert "upgrade" not in gw.b.last().get("connection", "").lower()


def test_no_tunnel(gw):
    """An upstream that switches protocols gets no tunnel to the client."""
    gw.b.script(raw(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket"
                    b"\r\nConnection: upgrade\r\n\r\nevil", 0.2, "close"))
    with gw.connect() as c:
        c.request("POST", "/v1/chat/completions",
                  [gw.bob.bearer(), ("Connection", "Upgrade"),
                   ("Upgrade", "websocket")], body=chat())
        assert_flat(c.response(), 502, "UPSTREAM_ERROR")
        assert b"evil" not in c.data


def test_head_of_an_endpoint(gw):
    for target in ("/v1/chat/completions", "/v1/messages"):
        with gw.connect() as c:
            c.send(build("HEAD", target, [gw.alice.bearer()]))
            r = c.response(method="HEAD")
            assert r.status == 405 and "POST" in r.get("allow"), r
            assert c.alive()
    assert gw.untouched()


def test_first_call_of_claude_code(gw):
    """HEAD to open the connection, then the call on the same one."""
    with gw.connect() as c:
        c.send(build("HEAD", "/api/hello"))
        assert c.response(method="HEAD").status == 404
        c.request("POST", "/v1/messages?beta=true", [gw.alice.bearer()],
                  body={"model": "fam-a-large", "max_tokens": 1,
                        "messages": [], "stream": True})
        r = c.response()
        assert r.status == 200 and r.complete
        assert b"message_stop" in r.body


def test_h2_strangers(gw):
    for method, target in (("GET", "/api/hello"), ("GET", "/"),
                           ("GET", "/favicon.ico")):
        assert_flat(gw.request(method, target, version="h2"), (403, 404))
    r = gw.request("OPTIONS", "/v1/messages", version="h2")
    assert_flat(r, (404, 405))


def test_connection_flood_of_refusals(gw):
    """Many refusals on one connection leak nothing."""
    with gw.connect() as c:
        for i in range(300):
            c.request("POST", "/v1/messages", [("x-api-key", "no-%d" % i)],
                      body=b'{"model":"x"}')
            assert_flat(c.response(), 401)
        assert c.alive()
