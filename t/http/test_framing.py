"""Malicious HTTP framing (H1): there is one view of where a request ends, and
the upstream gets a Content-Length."""

import pytest

import client
from client import Connection, assert_flat, build
from gateway import chat

INNER = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n\r\n"


def request(gw, headers, body=b""):
    return build("POST", "/v1/chat/completions", [gw.bob.bearer()]
                 + headers) + body


REFUSED = [
    [("Content-Length", "5"), ("Transfer-Encoding", "chunked")],
    [("Transfer-Encoding", "chunked"), ("Content-Length", "5")],
    [("Content-Length", "5"), ("Content-Length", "6")],
    [("Content-Length", "+5")], [("Content-Length", "0x5")],
    [("Content-Length", "5, 5")], [("Content-Length", "5 5")],
    [("Content-Length", "-5")], [("Content-Length", "")],
    [("Content-Length", "5e0")], [("Content-Length", "٥")],
    [("Content-Length", "99999999999999999999")],
    [("Transfer-Encoding", "xchunked")],
    [("Transfer-Encoding", "chunked, identity")],
    [("Transfer-Encoding", "identity")], [("Transfer-Encoding", "gzip")],
    [("Transfer-Encoding", "gzip, chunked")],
    [("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")],
    [("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "identity")],
    [("Transfer-Encoding", '"chunked"')], [("Transfer-Encoding", "")],
    [("Transfer-Encoding", "chunked;x=1")]]


@pytest.mark.parametrize("headers", REFUSED,
                         ids=[str(h)[:60] for h in REFUSED])
def test_H1_refused(gw, headers):
    """Refused with a flat error and closed; nothing is sent to the
    upstream."""
    with gw.connect() as c:
        c.send(request(gw, headers, b"0\r\n\r\n" + INNER))
        r = c.response()
        if r is not None and r.status == 200:
            pytest.fail("was served: %r" % r)
        assert_flat(r, (400, 413, 415, 501))
        assert c.closed(), c.data
    assert gw.untouched()


def test_H1_chunked_in_http_10(gw):
    with gw.connect() as c:
        c.send(build("POST", "/v1/chat/completions", [
            gw.bob.bearer(), ("Transfer-Encoding", "chunked")],
            version="HTTP/1.0") + client.chunks(b"{}", 10))
        r = c.response()
        assert_flat(r, (400, 411, 501))
        assert c.closed()
    assert gw.untouched()


BODY = b'{"model":"fam-b-one","messages":[]}'


@pytest.mark.parametrize("body", [
    b"%x\n" % len(BODY) + BODY + b"\n0\n\n",
    b"%x\r\n" % len(BODY) + BODY + b"\n0\r\n\r\n",
    b"%x \r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n",
    b"00000000%x\r\n" % len(BODY) + BODY + b"\r\n000\r\n\r\n",
    b"%x;a=\"\r\n\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n",
    b"0x%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n",
    b"-1\r\n" + BODY + b"\r\n0\r\n\r\n",
    b"ffffffffffffffff1\r\n" + BODY,
    b"%x\r\n" % (len(BODY) - 1) + BODY + b"\r\n0\r\n\r\n",
    b"%x\r\n" % (len(BODY) + 2) + BODY + b"\r\n0\r\n\r\n",
    b"\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n",
    b"g\r\n" + BODY + b"\r\n0\r\n\r\n"], ids=range(12))
@pytest.mark.timed("no answer within 2 seconds counts as none")
def test_H1_odd_chunks(gw, body):
    """However nginx reads them, the upstream gets at most one request, whose
    body has a length and is a whole document."""
    with gw.connect() as c:
        c.send(request(gw, [("Transfer-Encoding", "chunked")], body))
        c.try_send(INNER)
        try:
            r = c.response(2)
        except TimeoutError:
            r = None                # waits for the rest of a chunk
        if r is not None and r.status != 200:
            assert_flat(r, (400, 401, 413))
    assert len(gw.b.requests) <= 1 and not gw.a.requests
    for sent in gw.b.requests:
        assert sent.body == BODY.replace(b"fam-b-one", b"one-0613")
        assert sent.get("content-length") == str(len(sent.body))
        assert sent.get("transfer-encoding") is None


@pytest.mark.parametrize("head", [
    b"POST /v1/chat/completions HTTP/1.1\nHost: x\nX: y\n\n",
    b"POST /v1/chat/completions HTTP/1.1\r\n Host: x\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost : x\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nA\x00b: c\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n: c\r\n\r\n",
    b"POST\t/v1/chat/completions\tHTTP/1.1\r\nHost: x\r\n\r\n"],
    ids=range(7))
def test_H1_odd_heads(gw, head):
    with gw.connect() as c:
        c.send(head)
        r = c.response()
        assert_flat(r, (400, 401, 405))
    assert gw.untouched()


@pytest.mark.parametrize("name", ["Content_Length", "Transfer_Encoding",
                                  "content-length\t", "X-Api_Key",
                                  "x_api_key", "Proxy_Authorization"])
def test_H1_names_that_look_alike(gw, name):
    """With underscores they are other headers and decide nothing."""
    with gw.connect() as c:
        c.request("POST", "/v1/chat/completions",
                  [gw.bob.bearer(), (name, "7")], body=chat())
        r = c.response()
    if r.status == 200:
        sent = gw.b.last()
        assert sent.all("content-length") == [str(len(sent.body))]
        assert sent.json()["model"] == "one-0613"
    else:
        assert_flat(r, 400)


def test_H1_pipelined_good_requests(gw):
    """Two whole requests in one write are two requests."""
    with gw.connect() as c:
        one = build("POST", "/v1/chat/completions", [gw.bob.bearer()],
                    body=chat("code-1"))
        two = build("POST", "/v1/chat/completions", [gw.bob.bearer()],
                    body=chat("code-2"), chunked=7)
        c.send(one + two + one)
        for n in ("1", "2", "1"):
            r = c.response()
            assert r.status == 200 and r.json()["model"] == "code-" + n
    assert [q.json()["model"] for q in gw.b.requests] == ["1", "2", "1"]


def test_H1_body_longer_than_said(gw):
    """The rest is read as the next request, which is invalid."""
    with gw.connect() as c:
        c.send(build("POST", "/v1/chat/completions", [
            gw.bob.bearer(), ("Content-Length", str(len(BODY)))])
            + BODY + b'{"more":1}\r\n\r\n')
        assert c.response().status == 200
        r = c.response()
        assert r is None or r.status == 400, r
    assert len(gw.b.requests) == 1


def test_H1_absolute_form_and_host(gw):
    with gw.connect() as c:
        c.send(b"POST http://evil.test/v1/chat/completions HTTP/1.1\r\n"
               b"Host: api.vendor-b.test\r\nAuthorization: Bearer "
               + gw.bob.secret.encode() + b"\r\nContent-Length: %d\r\n\r\n"
               % len(BODY) + BODY)
        r = c.response()
    if r.status == 200:
        assert gw.b.last().line == "POST /v1/chat/completions HTTP/1.1"
        assert gw.b.last().get("host") == "api.vendor-b.test"


def test_http_09(gw):
    """No version, no headers: no HTML either."""
    with Connection(gw.port) as c:
        c.send(b"GET /v1/models\r\n")
        while c.recv():
            pass
        assert b"<html" not in c.data and b"fam-" not in c.data


def test_h2_length_that_lies(gw):
    """RFC 9113, 8.1.1: a body of another length is malformed."""
    for length in (1, len(BODY) - 1, len(BODY) + 1, 99999):
        with client.H2(gw.port2) as c:
            r = c.call("POST", "/v1/chat/completions", [gw.bob.bearer()],
                       BODY, length=length)
        assert r is None or r.status == 400, r
        assert gw.untouched()


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nx-evil: 1",
                                   "a\x00b"])
def test_h2_header_values(gw, value):
    """CR, LF and NUL in values never reach the upstream."""
    with client.H2(gw.port2) as c:
        r = c.call("POST", "/v1/chat/completions",
                   [gw.bob.bearer(), ("x-odd", value)], BODY)
    assert r is None or r.status in (200, 400), r
    for sent in gw.b.requests:
        assert sent.get("x-evil") is None
        assert b"\x00" not in sent.head


def test_h2_reset_of_requests(gw):
    """H8: streams opened and reset at once leave nothing allocated."""
    with client.H2(gw.port2) as c:
        for i in range(60):
            sid = c.request("POST", "/v1/chat/completions",
                            [gw.bob.bearer()], BODY)
            c.reset(sid)
    assert gw.chat().status == 200
    assert gw.chat(version="h2").status == 200
