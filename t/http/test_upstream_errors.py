"""Errors of upstreams: in one flat form, with the reason, without secrets."""

import gzip
import json
import threading

import pytest

from client import assert_flat
from gateway import chat, group_a, group_b, messages
from upstream import (both, chat_completion, chat_error, early,
                      message_error, raw, reply, reply_json)

TEXT = "prompt is too long: 210000 tokens > 200000 maximum"

SHAPES = {"chat": lambda text: chat_error(text),
          "messages": lambda text: message_error(text)}


@pytest.fixture(params=["chat", "messages"])
def side(gw, request):
    """The upstream, a call, and the error form of one protocol.  Whatever the
    upstream did, the next call works."""
    if request.param == "chat":
        side = gw.b, gw.chat, chat, chat_error, request.param
    else:
        side = gw.a, gw.messages, messages, message_error, request.param
    yield side
    for u in (gw.a, gw.b):
        u.reset()
    for stream in (False, True):
        r = side[1](side[2](stream=stream))
        assert r.status == 200 and r.complete, r


# status of the upstream: status, code, whether the text is passed on
TABLE = [
    (400, 400, "INVALID_REQUEST", True),
    (422, 400, "INVALID_REQUEST", True),
    (401, 502, "UPSTREAM_ERROR", False),
    (402, 502, "UPSTREAM_ERROR", False),
    (403, 502, "UPSTREAM_ERROR", False),
    (404, 502, "UPSTREAM_ERROR", False),
    (408, 504, "UPSTREAM_TIMEOUT", None),
    (409, (400, 409, 502), None, None),
    (413, (400, 413), ("REQUEST_TOO_LARGE", "INVALID_REQUEST"), None),
    (418, (400, 502), None, None),
    (429, 429, "RATE_LIMITED", None),
    (500, 502, "UPSTREAM_ERROR", None),
    (501, 502, "UPSTREAM_ERROR", None),
    (502, 502, "UPSTREAM_ERROR", None),
    (503, 503, ("UPSTREAM_UNAVAILABLE", "UPSTREAM_OVERLOADED"), None),
    (504, 504, "UPSTREAM_TIMEOUT", None),
    (520, 502, "UPSTREAM_ERROR", None),
    (599, 502, "UPSTREAM_ERROR", None),
    (300, 502, "UPSTREAM_ERROR", None),
    (301, 502, "UPSTREAM_ERROR", None),
    (302, 502, "UPSTREAM_ERROR", None),
    (304, 502, "UPSTREAM_ERROR", None),
    (307, 502, "UPSTREAM_ERROR", None)]


@pytest.mark.parametrize("status,ours,code,text", TABLE,
                         ids=[str(row[0]) for row in TABLE])
@pytest.mark.parametrize("stream", [False, True])
def test_status(side, status, ours, code, text, stream):
    up, call, body, shape, _ = side
    up.script(reply_json(shape("the reason is 42"), status))
    r = call(body(stream=stream))
    assert_flat(r, ours, code)
    if text is True:
        assert r.json()["message"] == "the reason is 42"
    elif text is False:
        assert "42" not in r.json()["message"]


def test_529(gw, http):
    """A 529 of messages is kept; chat has none."""
    gw.a.script(reply_json(message_error("Overloaded", "overloaded_error"),
                           529))
    assert_flat(gw.messages(version=http), 529, "UPSTREAM_OVERLOADED")
    gw.b.script(reply_json(chat_error("Overloaded"), 529))
    assert_flat(gw.chat(version=http), 503, "UPSTREAM_OVERLOADED")


BODIES = {
    "html": (b"<html><h1>502 Bad Gateway</h1>api.vendor-b.test</html>",
             "text/html"),
    "empty": (b"", "application/json"),
    "no type": (b'{"error":{"message":"x"}}', None),
    "text": (b"upstream connect error", "text/plain"),
    "cut json": (b'{"error":{"message":"x', "application/json"),
    "other json": (b'["x",1]', "application/json"),
    "string": (b'{"error":"just a string"}', "application/json"),
    "detail": (b'{"detail":"not this way"}', "application/json"),
    "message": (b'{"message":"top level"}', "application/json"),
    "null": (b'{"error":null}', "application/json"),
    "number": (b'{"error":{"message":17,"code":400}}', "application/json"),
    "binary": (bytes(range(256)), "application/octet-stream"),
    "bad utf-8": (b'{"error":{"message":"a\xff\xfeb"}}',
                  "application/json"),
    "array": (b'[{"error":{"message":"x","code":400}}]',
              "application/json"),
    "deep": (b'{"error":' * 2000 + b"1" + b"}" * 2000, "application/json"),
    "huge": (b'{"error":{"message":"' + b"y" * 1000000 + b'"}}',
             "application/json"),
    "nul": (b'{"error":{"message":"a\\u0000b\\u001f\\ud800"}}',
            "application/json"),
    "sse": (b'event: error\ndata: {"error":{"message":"x"}}\n\n',
            "text/event-stream")}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("framing", ["sized", "chunked", "close"])
def test_bodies(side, name, framing):
    """Whatever is in the body, the client gets JSON of two members."""
    up, call, body, _, _ = side
    content, ctype = BODIES[name]
    for status, ours in ((400, 400), (500, 502), (429, 429)):
        up.script(reply(status, content, framing=framing, ctype=ctype))
        r = call()
        assert_flat(r, ours)
        text = r.json()["message"]
        assert "<" not in text and "vendor-b.test" not in text
        assert len(text.encode()) <= 512


@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_gzip(side, status):
    """Not requested: neither decoded nor passed."""
    up, call, body, shape, _ = side
    up.script(reply(status, gzip.compress(json.dumps(shape("z")).encode()),
                    headers=[("Content-Encoding", "gzip")]))
    r = call()
    assert_flat(r, {400: 400, 401: 502, 429: 429, 500: 502}[status])
    assert r.get("content-encoding") is None


def test_L3_gzip_of_a_good_answer(gw):
    """It cannot be read, and may contain an upstream id."""
    gw.b.script(reply(200, gzip.compress(json.dumps(
        chat_completion("one-0613")).encode()),
        headers=[("Content-Encoding", "gzip")]))
    why = 'of group "b" answered 200 with Content-Encoding "gzip" for model '
    before = gw.log_count(why)
    r = gw.chat()
    if r.status == 200:
        body = r.body
        if r.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        assert b"one-0613" not in body
    else:
        assert_flat(r, 502, "UPSTREAM_ERROR")
        assert gw.log_count(why) == before + 1


def test_204(side):
    up, call, _, _, _ = side
    up.script(raw(b"HTTP/1.1 204 No Content\r\n\r\n"))
    assert_flat(call(), 502, "UPSTREAM_ERROR")


@pytest.mark.parametrize("ctype", ["text/html", "text/plain", None,
                                   "application/octet-stream", "image/png"])
def test_wrong_type_of_200(gw, side, ctype):
    """An HTML page is not an answer; JSON of another type is sent as
    application/json or not passed."""
    up, call, body, _, name = side
    up.script(reply(200, b"<html>It works</html>", ctype=ctype))
    why = ' answered 200 with Content-Type "%s" for model ' % (ctype or "")
    before = gw.log_count(why)
    assert_flat(call(), 502, "UPSTREAM_ERROR")
    assert gw.log_count(why) == before + 1
    up.script(reply_json({"model": "q", "choices": []}, ctype=ctype))
    r = call()
    if r.status == 200:
        assert r.get("content-type").startswith("application/json"), r
        assert r.json()["model"].startswith("fam-")
    else:
        assert_flat(r, 502, "UPSTREAM_ERROR")


@pytest.mark.parametrize("content", [b"", b"not json", b"{", b"[]", b"null",
                                     b"\xef\xbb\xbf{}", b"{}x",
                                     b'{"model":"one-0613"'])
def test_200_that_is_no_json(side, content):
    up, call, _, _, _ = side
    up.script(reply(200, content))
    assert_flat(call(), 502, "UPSTREAM_ERROR")


@pytest.mark.parametrize("answer", [
    b"garbage\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n",
    b"HTTP/1.1 99 x\r\n\r\n", b"ICY 200 OK\r\n\r\n{}", b"\x00\x01\x02\x03",
    b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 1000 OK\r\n\r\n", b"<html></html>",
    b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\x00: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xyz\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nX-Big: " + b"x" * 300000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzzz\r\n{}\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 100000 + b"\r\n",
    b"\r\n\r\n"], ids=range(18))
def test_H11_garbage(side, answer):
    up, call, body, _, _ = side
    for stream in (False, True):
        up.script(raw(answer, "close"))
        r = call(body(stream=stream))
        assert_flat(r, 502, "UPSTREAM_ERROR")


def test_H11_interim_answers(gw):
    """1xx before the answer is skipped, or an error; it never is the
    answer."""
    good = json.dumps(chat_completion("one-0613")).encode()
    end = (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
           b"Content-Length: %d\r\n\r\n" % len(good) + good)
    for status in (b"100 Continue", b"103 Early Hints", b"102 Processing"):
        for n in (1, 3, 200):
            gw.b.script(raw((b"HTTP/1.1 " + status + b"\r\n\r\n") * n + end,
                            "close"))
            r = gw.chat()
            if r.status == 200:
                assert r.json()["model"] == "fam-b-one"
            else:
                assert_flat(r, 502, "UPSTREAM_ERROR")
    gw.b.script(raw(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n"
                    b"Connection: upgrade\r\n\r\nevil", "close"))
    assert_flat(gw.chat(), 502, "UPSTREAM_ERROR")


# what is passed of the text

CONTEXT = [
    (chat_error("This model's maximum context length is 128000 tokens. "
                "However, your messages resulted in 200000 tokens.",
                code="context_length_exceeded"), 400),
    (message_error(TEXT), 400)]


@pytest.mark.parametrize("obj,status", CONTEXT, ids=["chat", "messages"])
def test_context_length(gw, obj, status):
    up, call = (gw.a, gw.messages) if "type" in obj else (gw.b, gw.chat)
    up.script(reply_json(obj, status))
    r = call()
    assert_flat(r, 400, ("CONTEXT_LENGTH_EXCEEDED", "INVALID_REQUEST"),
                obj["error"]["message"])
    if "type" not in obj:
        assert r.json()["code"] == "CONTEXT_LENGTH_EXCEEDED"


def test_text_is_verbatim(gw):
    """Assistants match this text: quotes, escapes and letters of any kind."""
    text = 'messages.1.content: "x" \u2192 \\ / \t\U0001f600 d\u00e9j\u00e0'
    gw.a.script(reply_json(message_error(text), 400))
    r = gw.messages()
    assert r.status == 400
    assert r.json()["message"].replace(" ", "") == text.replace(" ", "") \
        or r.json()["message"] == text


def test_upstream_ids_become_service_ids(gw):
    gw.b.script(reply_json(chat_error(
        "The model `one-0613` does not support x; one-0613 is old"), 400))
    r = gw.chat()
    assert_flat(r, 400, "INVALID_REQUEST")
    assert "one-0613" not in r.json()["message"]
    assert "fam-b-one" in r.json()["message"]


@pytest.mark.parametrize("text", [
    "Incorrect API key provided: %(secret)s.",
    "see https://api.vendor-b.test/account/%(secret)s",
    "POST http://api.vendor-b.test/v1/chat failed",
    "host api.vendor-b.test unreachable",
    "x Authorization: Bearer %(secret)s y",
    "key sk-proj-abcdefghijklmnopqrstuvwxyz0123456789 is bad",
    "key sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789-AA is bad",
    "your key %(key)s is bad"])
def test_K6_scrubbed(gw, text):
    """Credentials, addresses and hosts are never disclosed."""
    text = text % {"secret": gw.secret_b, "key": gw.bob.secret}
    for status in (400, 401, 403, 404, 429, 500, 503):
        gw.b.script(reply_json(chat_error(text), status))
        r = gw.chat()
        assert r.status in (400, 429, 502, 503), r
        shown = r.body.decode() + str(r.headers)
        for hidden in (gw.secret_b, gw.bob.secret, "vendor-b.test", "http",
                       "sk-proj-abc", "sk-ant-api03-abc"):
            assert hidden not in shown.replace("application/", ""), (text, r)


def test_name_of_an_upstream_block_that_is_a_word(gateway):
    """It is an address only with a port; a name with a dot always is."""
    g = gateway(groups=group_a(name="127.0.0.1") + group_b(name="mock"),
                upstreams="""
    upstream 127.0.0.1 { server 127.0.0.1:$a; }
    upstream mock { server 127.0.0.1:$b; }""")
    for text, shown in (("mock overloaded", "mock overloaded"),
                        ("The mock: mocked.", "The mock: mocked."),
                        ("mock:8080 overloaded", "[redacted] overloaded"),
                        ("POST http://mock/v1 failed",
                         "POST [redacted] failed")):
        g.b.script(reply_json(chat_error(text), 400))
        assert_flat(g.chat(), 400, "INVALID_REQUEST", shown)
    g.a.script(reply_json(message_error("127.0.0.1 overloaded"), 400))
    assert_flat(g.messages(), 400, "INVALID_REQUEST", "[redacted] overloaded")


def test_K6_upstream_shows_its_request(gw):
    """In each place of an error body."""
    def echo(status, shape):
        def script(x):
            head = x.request.head.decode("latin-1")
            reply_json(shape(head), status)(x)
        return script

    shapes = [lambda h: chat_error(h), lambda h: {"error": h},
              lambda h: {"detail": h}, lambda h: {"message": h},
              lambda h: {"error": {"message": "x", "code": h, "type": h}},
              lambda h: {h: h}]
    for shape in shapes:
        for status in (400, 401, 404, 422, 429, 500):
            gw.b.script(echo(status, shape))
            r = gw.chat()
            assert_flat(r, r.status)
            assert r.status >= 400
            assert gw.secret_b not in r.body.decode()
            assert "vendor-b.test" not in r.body.decode()


def test_loud_line_for_our_credential(gw):
    """401 and 403 of the upstream are for the operator to fix."""
    for status in (401, 402, 403, 404):
        before = len(gw.read("error.log"))
        gw.b.script(reply_json(chat_error("no"), status))
        assert_flat(gw.chat(), 502, "UPSTREAM_ERROR")
        new = gw.read("error.log")[before:]
        logged = [line for line in new.splitlines()
                  if "[error]" in line or "[crit]" in line
                  or "[alert]" in line]
        assert any(str(status) in line for line in logged), new
        assert gw.secret_b not in new


# Retry-After

@pytest.mark.parametrize("status", [429, 503, 529, 500])
@pytest.mark.parametrize("value,ours", [
    ("7", "7"), ("1", "1"), ("60", "60"), ("0", "1"), ("61", "60"),
    ("3600", "60"), ("99999999999999999999", "60"),
    ("Wed, 21 Oct 2099 07:28:00 GMT", "60")])
def test_retry_after(side, status, value, ours):
    up, call, _, shape, _ = side
    up.script(reply_json(shape("slow down"), status,
                         headers=[("Retry-After", value)]))
    r = call()
    assert_flat(r, r.status)
    if status in (429, 503, 529):
        assert r.all("retry-after") == [ours], r
    elif r.get("retry-after"):
        assert r.all("retry-after") == [ours], r


@pytest.mark.parametrize("value", ["", "abc", "-5", "1.5", "7, 8", "0x10",
                                   " 7 ", "1e3"])
def test_retry_after_of_nonsense(gw, value):
    """Always an integer from 1 to 60."""
    gw.b.script(reply_json(chat_error("x"), 429,
                           headers=[("Retry-After", value)]))
    assert_flat(gw.chat(), 429, "RATE_LIMITED")


def test_retry_after_without_one(gw):
    gw.b.script(reply_json(chat_error("x"), 429))
    assert_flat(gw.chat(), 429, "RATE_LIMITED")


def test_retry_after_ms_cannot_undo_it(gw):
    gw.b.script(reply_json(chat_error("x"), 429,
                           headers=[("Retry-After", "5"),
                                    ("retry-after-ms", "3600000")]))
    r = gw.chat()
    assert_flat(r, 429, "RATE_LIMITED")
    assert int(r.get("retry-after-ms") or 5000) <= 60000


def test_request_id_of_errors(side):
    up, call, _, shape, _ = side
    for name in ("request-id", "x-request-id"):
        up.script(reply_json(shape("x"), 400, headers=[(name, "req_9")]))
        r = call()
        assert_flat(r, 400)
        assert r.get("request-id") == "req_9"


def test_x_should_retry_of_the_upstream(gw):
    """On a 400, true would make SDKs retry it."""
    gw.b.script(reply_json(chat_error("x"), 400,
                           headers=[("x-should-retry", "true")]))
    assert_flat(gw.chat(), 400)


# cut and early

@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("framing", ["sized", "chunked"])
def test_error_that_is_cut(side, how, framing):
    """The status is enough."""
    up, call, _, shape, _ = side
    content = json.dumps(shape("reason")).encode()
    up.script(reply(400, content[:20], framing=framing, end=how,
                    length=len(content)))
    assert_flat(call(), (400, 502))


def test_error_that_stalls(gateway):
    g = gateway(location="proxy_read_timeout 1s;")
    g.b.script(reply(400, b'{"error":', framing="chunked", end="stall"))
    assert_flat(g.chat(), (400, 504))


def test_error_without_end(gw):
    """A body without end is read up to a limit only."""
    def endless(x):
        x.head(400, [("Content-Type", "application/json")],
               framing="chunked")
        for _ in range(1000):
            x.body(b"x" * 65536)

    gw.b.script(endless)
    assert_flat(gw.chat(), (400, 502))


@pytest.mark.parametrize("status", [400, 200])
def test_H11_rest_is_no_answer(gw, status):
    """The unread rest of an answer is not read as the answer to the next
    call."""
    evil = (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b'Content-Length: 28\r\n\r\n{"model":"evil","choices":[]}')
    gate = threading.Event()

    def script(x):
        start = b"not JSON " * 10000
        x.head(status, [("Content-Type", "application/json")],
               length=len(start) + len(evil))
        x.body(start)
        gate.wait(5)
        x.body(evil)

    gw.b.script(script, both)
    assert_flat(gw.chat(), (400, 502))
    timer = threading.Timer(0.2, gate.set)
    timer.start()
    r = gw.chat()
    timer.join()
    assert r.status == 200 and b"evil" not in r.body, r


def test_error_before_the_body_was_read(gw):
    """413 while the gateway is still sending: it is read, no broken pipe."""
    def script(x):
        x.head(413, [("Content-Type", "application/json")], length=2,
               framing="close")
        x.body(b"{}")
        x.end()

    gw.b.script(early(script))
    r = gw.chat(chat(pad="x" * (4 << 20)))
    assert_flat(r, (400, 413, 502))


def test_errors_on_count_tokens(gw):
    gw.a.script(reply_json(message_error("no such"), 404))
    r = gw.post("/v1/messages/count_tokens", messages(), gw.alice)
    assert_flat(r, 502, "UPSTREAM_ERROR")
    gw.a.script(reply_json(message_error("bad"), 400))
    r = gw.post("/v1/messages/count_tokens", messages(), gw.alice)
    assert_flat(r, 400, "INVALID_REQUEST", "bad")


def test_error_object_in_a_200(side):
    """Some upstreams send errors with status 200."""
    up, call, _, shape, _ = side
    up.script(reply_json(shape("quota is gone")))
    r = call()
    assert_flat(r, (400, 502))


@pytest.mark.parametrize("head", [
    b"101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade",
    b"100 Continue", b"103 Early Hints"])
def test_H11_no_body_is_not_waited_for(gw, head):
    """A 1xx for an answer: no tunnel, and no waiting for its body."""
    gw.b.script(raw(b"HTTP/1.1 " + head + b"\r\n\r\n", "stall"))
    assert_flat(gw.chat(), 502, "UPSTREAM_ERROR")
