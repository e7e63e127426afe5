"""Errors that the module or nginx itself makes: flat, always."""

import json
import subprocess

import pytest

import gateway as lib
from client import Connection, assert_flat, assert_ids, build, h1
from gateway import chat, messages
from upstream import Blackhole, Refused, raw, reply_json


def no_html(r):
    assert b"<html" not in r.body.lower() and b"nginx" not in r.body.lower()


# nginx's own

@pytest.mark.parametrize("line", [
    b"GARBAGE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
    b"GET /\x01 HTTP/1.1\r\n\r\n",
    b"GET  HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
    b"POST /v1/messages HTTP/1.1 extra\r\n\r\n",
    b"G@T / HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_bad_request_line(gw, line):
    with gw.connect() as c:
        c.send(line)
        r = c.response(method="GET")
        assert_flat(r, (400, 405, 505))
        if r.status == 400:
            assert r.json()["code"] == "INVALID_REQUEST"
        no_html(r)
        assert c.closed()


def test_http_2_preface_on_http_1(gw):
    if lib.VERSION >= (1, 25, 1):
        pytest.skip("both protocols on one port")
    with gw.connect() as c:
        c.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        r = c.response(method="GET")
        assert r is None or r.status in (400, 505), r
        if r:
            no_html(r)


@pytest.mark.parametrize("head", [
    b"GET /v1/models HTTP/1.1\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
    b"Content-Length: 2\r\n\r\nx"])
def test_bad_headers(gw, head):
    with gw.connect() as c:
        c.send(head)
        r = c.response(method="GET")
        assert_flat(r, 400, "INVALID_REQUEST")
        no_html(r)


def test_unknown_transfer_encoding(gw):
    with gw.connect() as c:
        c.send(build("POST", "/v1/messages", [
            gw.alice.bearer(), ("Transfer-Encoding", "xchunked")]))
        r = c.response()
    assert_flat(r, (400, 501))
    no_html(r)
    assert gw.untouched()


def test_plain_http_to_a_tls_port(gateway, tmp_path):
    """nginx's 497 is sent as 400, with the reason."""
    key, cert = str(tmp_path / "k.pem"), str(tmp_path / "c.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",
                    "-subj", "/CN=gateway.test", "-days", "2", "-keyout", key,
                    "-out", cert], check=True, capture_output=True)
    port = lib.free_port()
    g = gateway(server="listen 127.0.0.1:%d ssl; ssl_certificate %s; "
                       "ssl_certificate_key %s;" % (port, cert, key))
    with Connection(port) as c:
        c.send(build("GET", "/v1/models", [g.alice.bearer()]))
        r = c.response(method="GET")
    assert_flat(r, 400, "INVALID_REQUEST",
                "Plain HTTP was sent to an HTTPS port")
    no_html(r)
    assert g.get("/v1/models", g.alice).status == 200


def test_oversized_header(gw, http):
    """nginx's 494 is sent as 400."""
    r = gw.get("/v1/models", headers=[("X-Big", "x" * 60000)], version=http)
    if r is None:
        assert http == "h2"         # nginx closes the connection
        return
    assert_flat(r, 400, "INVALID_REQUEST")


def test_too_many_headers(gw):
    r = gw.get("/v1/models", headers=[("X-%d" % i, "x" * 6000)
                                      for i in range(10)])
    assert_flat(r, 400, "INVALID_REQUEST")


def test_uri_too_long(gw):
    r = gw.get("/v1/models/" + "x" * 60000, gw.alice)
    assert_flat(r, 414, "REQUEST_TOO_LARGE")


def test_413_by_length(gw, http):
    """Over 32 MB by Content-Length: refused at once."""
    if http == "h2":
        r = gw.chat(b"x" * (33 << 20), version="h2")
        assert_flat(r, 413, "REQUEST_TOO_LARGE")
        return
    with gw.connect() as c:
        c.send(build("POST", "/v1/chat/completions", [gw.bob.bearer()],
                     length=33 << 20))
        assert_flat(c.response(), 413, "REQUEST_TOO_LARGE")
    assert gw.untouched()


def test_413_chunked(gateway):
    g = gateway(location="client_max_body_size 100k;")
    r = g.chat(chat(pad="x" * 200000), chunked=True)
    assert_flat(r, 413, "REQUEST_TOO_LARGE")
    assert g.untouched()


def test_413_with_the_whole_upload(gateway):
    """The client reads the refusal, not a reset, with 3 MB in flight."""
    g = gateway(location="client_max_body_size 100k;")
    body = json.dumps(chat(pad="x" * (3 << 20)))
    for version in ("h1", "h2"):
        for _ in range(3):
            r = g.chat(body, version=version)
            assert_flat(r, 413, "REQUEST_TOO_LARGE")
    assert g.untouched()


def test_deny(gateway, http):
    g = gateway(location="deny all;")
    r = g.chat(version=http)
    assert_flat(r, 403, "FORBIDDEN")
    assert g.untouched()
    r = g.get("/v1/models", version=http)
    assert_flat(r, (401, 403))


def test_deny_comes_before_the_body(gateway):
    g = gateway(location="deny all;")
    with g.connect() as c:
        c.send(build("POST", "/v1/chat/completions", [g.bob.bearer()],
                     length=100000))
        assert_flat(c.response(), 403, "FORBIDDEN")


def test_404_elsewhere(gw, http):
    """modelgw on applies to its server: errors of other locations are flat,
    too."""
    for target in ("/", "/x", "/index.html", "/favicon.ico", "/v2/x"):
        r = gw.get(target, version=http)
        assert_flat(r, (403, 404), ("NOT_FOUND", "FORBIDDEN"))
        no_html(r)


def test_405_of_the_static_module(gw):
    """POST to a file: nginx's own 405."""
    r = gw.post("/x", {})
    assert_flat(r, (404, 405), ("NOT_FOUND", "METHOD_NOT_ALLOWED"))


@pytest.mark.parametrize("status,code", [
    (400, "INVALID_REQUEST"), (403, "FORBIDDEN"), (404, "NOT_FOUND"),
    (405, "METHOD_NOT_ALLOWED"), (413, "REQUEST_TOO_LARGE"),
    (500, "INTERNAL_ERROR"), (502, None), (503, None), (504, None),
    (401, None), (429, None), (418, None)])
def test_return(gateway, status, code):
    """Whatever status nginx returns in such a server."""
    g = gateway(locations="location = /r { return %d; }" % status)
    r = g.get("/r")
    if status == 429:
        assert r.status == 429 and len(r.json()) == 2
        return
    assert_flat(r, status, code)
    no_html(r)


def test_limit_req_and_conn(gateway):
    """Other modules' refusals."""
    g = gateway(http="limit_req_zone $server_name zone=z:1m rate=1r/m;",
                location="limit_req zone=z;")
    assert g.get("/v1/models", g.alice).status == 200
    r = g.get("/v1/models", g.alice)
    assert_flat(r, 503)
    g = gateway(http="limit_req_zone $server_name zone=z:1m rate=1r/m;",
                location="limit_req zone=z; limit_req_status 429;")
    assert g.get("/v1/models", g.alice).status == 200
    r = g.get("/v1/models", g.alice)
    assert_flat(r, 429, "RATE_LIMITED")


def test_flat_errors_for_a_whole_server(gateway):
    """For a server without a gateway location; other servers are unchanged."""
    flat, plain = lib.free_port(), lib.free_port()
    gateway(http="""
    server { listen 127.0.0.1:%d; modelgw_flat_errors on;
             location /off { modelgw_flat_errors off; } }
    server { listen 127.0.0.1:%d; }
""" % (flat, plain))
    assert_flat(h1(flat, "GET", "/x"), 404, "NOT_FOUND")
    with Connection(flat) as c:
        c.send(b"GARBAGE\r\n\r\n")
        assert_flat(c.response(method="GET"), 400, "INVALID_REQUEST")
    for port, target in ((flat, "/off"), (plain, "/x")):
        r = h1(port, "GET", target)
        assert r.status == 404 and b"<html" in r.body, r


def test_flat_errors_off_elsewhere(gateway):
    g = gateway(locations="location /docs { modelgw_flat_errors off; }")
    r = g.get("/docs/x")
    assert r.status == 404 and b"<html" in r.body
    assert_flat(g.get("/x"), 404, "NOT_FOUND")


# the upstream cannot be reached

def test_connect_refused(gateway, http):
    refused = Refused()
    try:
        g = gateway(b=refused)
        for body in (chat(), chat(stream=True)):
            r = g.chat(body, version=http)
            assert_flat(r, 503, "UPSTREAM_UNAVAILABLE")
            assert "127.0.0.1" not in r.body.decode()
            assert "vendor-b.test" not in r.body.decode()
    finally:
        refused.stop()


def test_no_live_peer(gateway):
    refused = Refused()
    try:
        g = gateway(b=refused, upstreams="""
    upstream api.vendor-a.test { server 127.0.0.1:$a; }
    upstream api.vendor-b.test {
        server 127.0.0.1:$b max_fails=1 fail_timeout=60s;
        server 127.0.0.1:$b max_fails=1 fail_timeout=60s; }
""")
        for _ in range(4 * g.workers):
            assert_flat(g.chat(), 503, "UPSTREAM_UNAVAILABLE")
    finally:
        refused.stop()


def test_all_peers_down(gateway):
    g = gateway(upstreams="""
    upstream api.vendor-a.test { server 127.0.0.1:$a; }
    upstream api.vendor-b.test { server 127.0.0.1:$b down; }
""")
    assert_flat(g.chat(), 503, "UPSTREAM_UNAVAILABLE")
    assert g.untouched()


def test_connect_timeout(gateway):
    blackhole = Blackhole()
    try:
        g = gateway(b=blackhole, location="proxy_connect_timeout 1s;")
        assert_flat(g.chat(), 504, "UPSTREAM_TIMEOUT")
    finally:
        blackhole.stop()


@pytest.mark.parametrize("when", ["nothing", "half a head", "head only"])
def test_read_timeout(gateway, when, http):
    g = gateway(location="proxy_read_timeout 1s;")
    sent = {"nothing": b"", "half a head": b"HTTP/1.1 200 OK\r\nContent-",
            "head only": b"HTTP/1.1 200 OK\r\nContent-Type: application/json"
                         b"\r\nContent-Length: 100\r\n\r\n"}[when]
    for body in (chat(), chat(stream=True)):
        g.b.script(raw(*([sent] if sent else []), "stall"))
        r = g.chat(body, version=http)
        assert_flat(r, 504, "UPSTREAM_TIMEOUT")


@pytest.mark.parametrize("how", ["close", "reset"])
def test_upstream_hangs_up_before_a_byte(gw, how, http):
    gw.b.script(raw(how))
    assert_flat(gw.chat(version=http), 502, "UPSTREAM_ERROR")
    assert len(gw.b.requests) == 1, "a POST was sent twice"


@pytest.mark.parametrize("how", ["close", "reset"])
def test_reused_connection_is_closed(gw, how):
    """The upstream closes a kept connection when the second request
    arrives."""
    assert gw.chat().status == 200
    gw.b.script(raw(how))
    r = gw.chat()
    if r.status != 200:
        assert_flat(r, 502, "UPSTREAM_ERROR")
    assert len(gw.b.requests) == 2


def test_a_post_goes_to_one_peer_at_most_once(gateway):
    """Once sent it is not repeated, whatever comes back (L6)."""
    g = gateway(upstreams="""
    upstream api.vendor-a.test { server 127.0.0.1:$a; }
    upstream api.vendor-b.test { server 127.0.0.1:$b max_fails=0;
                                 server 127.0.0.1:$b max_fails=0; }
""", location="proxy_read_timeout 1s; proxy_next_upstream error timeout "
              "invalid_header http_500 http_502 http_503 http_504 http_429;")
    for script in (raw("close"), raw("reset"), raw("stall"),
                   raw(b"garbage\r\n\r\n", "close"),
                   reply_json({}, 500), reply_json({}, 503),
                   reply_json({}, 429)):
        g.b.reset()
        g.b.script(script)
        r = g.chat()
        assert_flat(r, (429, 502, 503, 504))
        assert len(g.b.requests) == 1


# after a refusal

def smuggle(gw):
    """A whole good request as the body of another."""
    return build("GET", "/v1/models", [gw.alice.bearer()])


REFUSALS = [("unknown key", "/v1/chat/completions", 401,
             [("x-api-key", "sk-eu-" + "0" * 48)]),
            ("no key", "/v1/chat/completions", 401, []),
            ("wrong path", "/v1/nothing", (401, 404), None),
            ("wrong path, no key", "/nothing", (404, 405), []),
            ("encoding", "/v1/chat/completions", 415, "gzip"),
            ("mismatch", "/v1/messages", 403, None),
            ("bad body", "/v1/chat/completions", 400, None)]


def refusal_headers(gw, headers):
    if headers is None:
        return [gw.bob.bearer()]
    if headers == "gzip":
        return [gw.bob.bearer(), ("Content-Encoding", "gzip")]
    return headers


@pytest.mark.parametrize("name,target,status,headers", REFUSALS,
                         ids=[r[0] for r in REFUSALS])
@pytest.mark.parametrize("chunked", [False, True])
def test_H2_body_is_no_request(gw, name, target, status, headers, chunked):
    """The unread body never becomes the next request."""
    inner = smuggle(gw)
    with gw.connect() as c:
        c.request("POST", target, refusal_headers(gw, headers), body=inner,
                  chunked=chunked)
        assert_flat(c.response(), status)
        # the body is not read as a request; a real second request is answered
        # properly, or the connection is closed
        if not c.closed(0.4):
            assert not c.data
            c.request("GET", "/v1/models/none", [gw.alice.bearer()])
            r = c.response(method="GET")
            assert r is None or r.status == 404, r
    assert gw.untouched()


@pytest.mark.parametrize("name,target,status,headers", REFUSALS,
                         ids=[r[0] for r in REFUSALS])
def test_H2_pipelined(gw, name, target, status, headers):
    """First request, its body, a second request: all in one write."""
    inner = smuggle(gw)
    with gw.connect() as c:
        c.send(build("POST", target, refusal_headers(gw, headers), body=inner)
               + build("GET", "/v1/models/none", [gw.alice.bearer()]))
        assert_flat(c.response(), status)
        r = c.response(method="GET")
        assert r is None or r.status == 404, r


def test_H2_413_pipelined(gateway):
    g = gateway(location="client_max_body_size 10;")
    inner = smuggle(g)
    with g.connect() as c:
        c.send(build("POST", "/v1/chat/completions", [g.bob.bearer()],
                     body=inner)
               + build("GET", "/v1/models/none", [g.alice.bearer()]))
        assert_flat(c.response(), 413, "REQUEST_TOO_LARGE")
        r = c.response(method="GET")
        assert r is None or r.status == 404, r


def test_H2_half_the_body_then_silence(gw):
    """The refusal does not wait for the rest of the body."""
    with gw.connect() as c:
        c.send(build("POST", "/v1/messages", [("x-api-key", "no")],
                     length=5000) + b"x" * 100)
        assert_flat(c.response(), 401, "INVALID_API_KEY")


@pytest.mark.parametrize("case", ["key", "path", "mismatch", "json",
                                  "field", "encoding"])
def test_3_mb_upload_reads_the_refusal(gw, case, http):
    """Not a reset, at whatever stage it is refused: on a reset clients discard
    the response."""
    key, target, headers, pad = gw.bob, "/v1/chat/completions", [], ""
    status = 400
    if case == "key":
        key, status = lib.Key("x", "b"), 401
    elif case == "path":
        target, status = "/v1/nothing", 404
    elif case == "mismatch":
        target, status = "/v1/messages", 403
    elif case == "json":
        pad = "{{"
    elif case == "field":
        pad = '{"Model":1,'
    elif case == "encoding":
        headers, status = [("Content-Encoding", "br")], 415
    body = pad + json.dumps(chat(pad="x" * (3 << 20)))
    for _ in range(3):
        r = gw.post(target, body, key, headers, version=http)
        assert_flat(r, status)
    assert gw.untouched()


def test_3_mb_upload_that_does_not_stop_to_read(gw):
    """A client that sends all before it reads, slowly."""
    body = json.dumps(chat(pad="x" * (3 << 20))).encode()
    with gw.connect() as c:
        c.send(build("POST", "/v1/messages", [("x-api-key", "no")],
                     length=len(body)))
        for i in range(0, len(body), 65536):
            if not c.try_send(body[i:i + 65536]):
                break
        r = c.response()
        assert_flat(r, 401, "INVALID_API_KEY")


def test_keep_alive_after_errors(gw):
    """Errors after the body was read keep the connection open."""
    with gw.connect() as c:
        for body, status in ((chat("nothing"), 400), (b"{", 400),
                             (chat("fam-a-large"), 403), (chat(), 200),
                             ({"messages": []}, 400),
                             (chat(models=["x"]), 400), (chat(), 200)):
            c.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                      body=body)
            r = c.response()
            assert r.status == status, r
        for status in (401, 404):
            c.request("GET", "/v1/models/none",
                      [gw.bob.bearer()] if status == 404 else [])
            assert_flat(c.response(method="GET"), status)
        assert c.alive()


def test_keep_alive_after_upstream_errors(gw):
    gw.b.script(reply_json({"error": {"message": "x"}}, 400),
                reply_json({"error": {"message": "x"}}, 500),
                raw("close"), reply_json({}, 429))
    with gw.connect() as c:
        for status in (400, 502, 502, 429):
            c.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                      body=chat())
            assert_flat(c.response(), status)
        assert c.alive()


# the form

def test_head_of_an_error(gw):
    """No body, but its headers."""
    with gw.connect() as c:
        for _ in range(2):
            c.send(build("HEAD", "/v1/nothing", [gw.alice.bearer()]))
            r = c.response(method="HEAD")
            assert r.status in (404, 405), r
            assert r.get("content-type").startswith("application/json")
            assert_ids(r)
        assert c.alive()


def test_messages_are_json_whatever_they_quote(gw):
    """A quoted key or id cannot break the body."""
    for body in ('{"a\\"b\\\\c\\u0001\\n":1,"a\\"b\\\\c\\u0001\\n":2}',
                 '{"\u20ac\U0001f600\\u2028":1,"\u20ac\U0001f600\\u2028":2}',
                 '{"%s":1,"%s":2}' % ("\u00e9" * 40, "\u00e9" * 40),
                 '{"%s":1,"%s":2}' % ("k" * 5000, "k" * 5000),
                 '{"model":"</script>\\"\\\\\\u0000","messages":[]}'):
        r = gw.chat(body.encode())
        assert_flat(r, 400)
        assert len(r.body) < 2000


def test_error_compat(gateway, http):
    """Two more members, the inner object with code, type and message."""
    g = gateway(location="modelgw_error_compat on;")
    g.b.script(reply_json({"error": {"message": "too big"}}, 400))
    for r, status, code in (
            (g.chat(key=g.dave, version=http), 401, "INVALID_API_KEY"),
            (g.chat(version=http), 400, "INVALID_REQUEST"),
            (g.chat(b"{", version=http), 400, "INVALID_JSON"),
            (g.messages(messages("none"), version=http), 400,
             "INVALID_MODEL"),
            (g.get("/v1/nothing", g.bob, version=http), 404, "NOT_FOUND")):
        assert r.status == status and r.complete, r
        body = r.json()
        assert sorted(body) == ["code", "error", "message", "type"], r
        assert body["type"] == "error" and body["code"] == code
        assert sorted(body["error"]) == ["code", "message", "type"]
        assert body["error"]["code"] == code
        assert body["error"]["message"] == body["message"]
        assert body["error"]["type"].endswith("_error")
        assert r.all("x-should-retry") == ["false"]


def test_error_compat_is_inherited(gateway):
    g = gateway(server="modelgw_error_compat on;",
                locations="location /plain { modelgw_error_compat off; }")
    assert len(g.get("/x").json()) == 4
    assert len(g.chat(key=g.dave).json()) == 4
    assert_flat(g.get("/plain"), 404, "NOT_FOUND")


def test_body_that_never_comes(gateway):
    """nginx closes without a response, as usual."""
    g = gateway(location="client_body_timeout 1s;")
    with g.connect() as c:
        c.send(build("POST", "/v1/chat/completions", [g.bob.bearer()],
                     length=500) + b'{"model"')
        r = c.response()
        if r is not None:
            assert_flat(r, 408)
        assert c.closed()
    assert g.untouched()


def test_client_goes_away_during_its_body(gw):
    for _ in range(20):
        c = gw.connect()
        c.send(build("POST", "/v1/chat/completions", [gw.bob.bearer()],
                     length=5000) + b'{"model":"fam-b-one"')
        c.reset()
    assert gw.chat().status == 200
    assert len(gw.b.requests) == 1


def test_expected_headers_only_once(gw):
    for r in (gw.chat(key=gw.dave), gw.chat(b"{"), gw.get("/x"),
              gw.get("/v1/models", gw.bob), gw.chat()):
        for name in ("content-type", "content-length", "date", "connection",
                     "request-id", "x-request-id", "x-should-retry"):
            assert len(r.all(name)) <= 1, (name, r)
