"""Randomly generated upstreams and clients.  Whatever an upstream sends, the
client gets a whole answer, a flat error, or a stream that looks broken;
nothing of the upstream is disclosed, and the next call works.  Whatever a
client sends, an upstream gets one of the constant requests with one document,
or nothing."""

import gzip
import json
import random

import pytest

from client import Connection, assert_flat, build
from gateway import chat, messages
from upstream import (DONE, chat_chunk, chat_completion, chat_error,
                      chat_stream, data, event, message, message_error,
                      message_stream)

SCRIPTS = 400
REQUESTS = 600
BATCH = 20


class RandomAnswer:
    """One random answer; repr() describes it."""

    def __init__(self, seed):
        self.seed = seed
        self.rnd = rnd = random.Random(seed)
        self.chatty = rnd.random() < 0.5
        self.stream = rnd.random() < 0.6
        self.model = "one-0613" if self.chatty else "large-2026-01-01"
        self.status = rnd.choice([200] * 30 + [201, 204, 302, 304, 400, 401,
                                              404, 429, 500, 503, 529, 999])
        self.framing = rnd.choice(["sized", "chunked", "close"])
        self.ctype = rnd.choice(
            ["application/json", "text/event-stream"] * 4
            + ["text/event-stream" if self.stream else "application/json"] * 40
            + ["text/html", "", "application/json; charset=latin-1", "/",
               "text/event-streams", "application/jsonp"])
        self.end = rnd.choice(["clean"] * 5 + ["close", "reset"])
        self.length_error = rnd.choice([0] * 6 + [-5, 5, 1000])
        self.body = self.make() if self.status not in (204, 304) else b""
        self.step = rnd.choice([1 << 20, 1 << 20, 4096, 100, 7])
        self.headers = self.some_headers()

    def __repr__(self):
        return "RandomAnswer(%d): %s" % (self.seed, {
            k: v for k, v in vars(self).items() if k not in ("rnd", "body")})

    def some_headers(self):
        out = []
        for header in (("Content-Encoding", "gzip"),
                       ("Content-Encoding", "identity"),
                       ("Retry-After", "1e9"), ("X-Accel-Redirect", "/x"),
                       ("X-Accel-Buffering", "yes"), ("Set-Cookie", "a=b"),
                       ("Location", "http://api.vendor-b.test/"),
                       ("request-id", "r" * 3000), ("Content-Range", "x"),
                       ("Transfer-Encoding", "identity"), ("Age", "-1"),
                       ("ETag", '"x"'), ("Last-Modified", "now"),
                       ("Connection", "close"), ("WWW-Authenticate", "x"),
                       ("Content-Type", "text/plain")):
            if self.rnd.random() < 0.03:
                out.append(header)
        return out

    def make(self):
        rnd, model = self.rnd, self.model
        events = chat_stream(model, usage=rnd.random() < 0.5) \
            if self.chatty else message_stream(model)
        odd = [b": ping\n\n", b"data\n\n", b"\n\n", b"data: {\n\n", DONE,
               b"event: error\ndata: x\n\n", b"\xff\xfe\n\n", b"\r\r",
               event("error", message_error("m")), data(chat_error("m")),
               data(chat_chunk(model, {})), data({"type": "message_stop"}),
               data([]), data(None), data({"choices": [], "usage": 5}),
               b"data: " + b"[" * 500 + b"\n\n", b"\xef\xbb\xbf", b"\0"]
        for _ in range(rnd.choice([0, 0, 1, 3])):
            events.insert(rnd.randrange(len(events) + 1), rnd.choice(odd))
        for _ in range(rnd.choice([0, 0, 0, 1])):
            events.pop(rnd.randrange(len(events)))
        answer = json.dumps((chat_completion if self.chatty else message)(
            model, "x" * rnd.choice([1, 100, 100000]))).encode()
        body = rnd.choice(
            [b"".join(events)] * (40 if self.stream else 1)
            + [answer] * (1 if self.stream else 40)
            + [b"", b"{}", b"<html>%s</html>" % model.encode(), b"null",
               json.dumps(message_error(model)).encode(),
               json.dumps(chat_error(model)).encode(),
               gzip.compress(answer), rnd.randbytes(300), b"\n" * 70000])
        if rnd.random() < 0.15 and body:
            at = rnd.randrange(len(body))
            body = rnd.choice([body[:at], body[at:], body + body,
                               body[:at] + b"\0" + body[at + 1:],
                               body[:at] + body[at + 1:]])
        return body

    def __call__(self, x):
        x.head(self.status, [("Content-Type", self.ctype)] * bool(self.ctype)
               + self.headers, framing=self.framing,
               length=max(len(self.body) + self.length_error, 0), reason="X")
        for i in range(0, len(self.body), self.step):
            x.body(self.body[i:i + self.step])
        x.end(self.end if self.length_error <= 0 or self.framing != "sized"
              else "close")
        if self.length_error < 0 and self.framing == "sized":
            x.end("close")


def assert_sound(c, r, secret):
    assert r is not None, c
    for hidden in (secret, "vendor-b.test", "vendor-a.test"):
        assert hidden not in str(r.headers) + r.body.decode("latin-1"), c
    if r.status != 200:
        assert_flat(r, (400, 429, 502, 503, 504, 529))
        assert c.model not in r.body.decode(), c
        return
    ctype = r.get("content-type").split(";")[0].lower()
    if ctype == "application/json":
        assert r.complete and isinstance(r.json(), dict), c
        assert r.json().get("model") != c.model, c
        return
    assert ctype == "text/event-stream", c
    end = DONE[:-2] if c.chatty else b"message_stop"
    if r.complete:
        assert end in r.body or b'"error"' in r.body, (c, r.body[-300:])
    else:
        assert b'"error"' in r.body.rsplit(b"\n\n", 2)[-2], (c, r.body[-300:])


@pytest.mark.parametrize("batch", range(SCRIPTS // BATCH))
def test_H11_hostile(gw, batch):
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        c = RandomAnswer(seed)
        up, call, secret = (gw.b, gw.chat, gw.secret_b) if c.chatty \
            else (gw.a, gw.messages, gw.secret_a)
        up.reset()
        up.script(c)
        body = (chat if c.chatty else messages)(stream=c.stream)
        assert_sound(c, call(body, version=c.rnd.choice(["h1", "h2"])),
                     secret)
        up.wait_idle()
        up.reset()
        r = call(body)
        assert r.status == 200 and r.complete, (c, r)


JUNK = [b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b",", b";", b"\xff",
        b"0\r\n\r\n", b"Content-Length: 5\r\n", b"Content-Length: 0\r\n",
        b"Transfer-Encoding: chunked\r\n", b"x-api-key: x\r\n",
        b"Connection: close, content-length\r\n", b"Expect: 100-continue\r\n",
        b"Host: evil\r\n", b"HTTP/1.0", b"GET ", b"..", b"/", b"%2f", b"?",
        b"ffffffff", b'"', b"\\", b"{", b"}", b"]", b'"model":"x",',
        b'"Model":"x",', b'\\u0000', b'\\ud800', b"1e5", b"true", b"null"]


def mutant(rnd, gw):
    """A valid request, damaged in one to three places."""
    body = json.dumps(chat(stream=rnd.random() < 0.3,
                           pad="p" * rnd.choice([0, 10, 3000])))
    text = build("POST", "/v1/chat/completions",
                 [gw.bob.bearer(), ("X-A", "b")], body=body,
                 chunked=rnd.choice([False, False, 7, 500]))
    for _ in range(rnd.choice([1, 1, 2, 3])):
        at = rnd.randrange(len(text))
        if rnd.random() < 0.5:          # in the head
            at = rnd.randrange(text.index(b"\r\n\r\n") + 4) \
                if b"\r\n\r\n" in text else at
        how = rnd.randrange(5)
        end = min(at + rnd.choice([1, 1, 2, 10, 100]), len(text))
        if how == 0:
            text = text[:at] + rnd.choice(JUNK) + text[at:]
        elif how == 1:
            text = text[:at] + text[end:]
        elif how == 2:
            text = text[:at] + bytes([rnd.randrange(256)]) + text[at + 1:]
        elif how == 3:
            text = text[:end] + text[at:]
        else:
            text = text[:at] + rnd.choice(JUNK) + text[end:]
    return text


def only_constant_requests(gw):
    """A damaged pad or header may pass; nothing else of the request can."""
    assert not gw.a.requests
    for sent in gw.b.requests:
        assert sent.line == "POST /v1/chat/completions HTTP/1.1"
        assert sent.all("authorization") == ["Bearer " + gw.secret_b]
        assert sent.all("content-length") == [str(len(sent.body))]
        assert sent.all("host") == ["api.vendor-b.test"]
        assert sent.get("transfer-encoding") is None
        assert sent.get("x-api-key") is None
        assert gw.bob.secret.encode() not in sent.head
        pairs = json.loads(sent.body, object_pairs_hook=list)
        names = [name for name, value in pairs]
        assert len(names) == len(set(names))
        assert dict(pairs)["model"] == "one-0613"


@pytest.fixture(scope="module")
def malformed(module_gateway):
    """nginx quotes invalid headers in its log, which is not searched for
    keys."""
    g = module_gateway()
    g.quiet = False
    return g


@pytest.mark.parametrize("batch", range(REQUESTS // BATCH))
def test_H1_spoilt_requests(malformed, batch):
    gw = malformed
    gw.a.reset(), gw.b.reset()
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        rnd = random.Random(seed)
        text = mutant(rnd, gw)
        with Connection(gw.port) as c:
            c.try_send(text)
            try:
                c.recv(0.05)
                while c.recv(0.02):
                    pass
            except TimeoutError:
                pass
            for part in c.data.split(b"HTTP/1.1 ")[1:]:
                assert part[:3].isdigit(), (seed, text, c.data)
            assert b"<html" not in c.data, (seed, text, c.data)
            assert gw.secret_b.encode() not in c.data
    only_constant_requests(gw)
    gw.b.reset()
    assert gw.chat().status == 200
