"""What is logged of a request, for those who run a gateway."""

import json
import os
import re
import sqlite3
import threading
import time
from decimal import Decimal

import pytest

from client import LIMIT, assert_flat
from gateway import (Key, MODELS_A, MODELS_B, ROOT, chat, group_a,
                     group_b, messages)
from upstream import (chat_completion, chat_error, chat_stream, chat_usage,
                      message_error, message_stream, message_usage, raw, reply,
                      reply_json, sse)

BOUNDED = group_a(models=MODELS_A.replace("output=1.25", "output=1.25"
                                          " max_output=1000").replace(
    "output=0.5", "output=0.5 max_output=1000")) \
    + group_b(models=MODELS_B.replace(";", " max_output=1000;"))

CHAT = "/v1/chat/completions"
NAMES = ("id", "account", "group")


@pytest.fixture(scope="module")
def limited(module_gateway):
    """Keys with a limit that a first call uses up."""
    keys = [Key("key-rpm", "b", "rpm=1"),
            Key("key-tpm", "b", "tpm=1"),
            Key("key-concurrency", "b", "concurrency=1")]
    return module_gateway(http="modelgw_zone 4m;", keys=keys)


def refused(g, tag, status, call=None, headers=(), **kw):
    """The line of a call that is refused; its body."""
    headers = list(headers) + [("X-Test-Tag", tag)]
    r = (call or g.chat)(headers=headers, **kw)
    assert r.status == status, r
    line = g.logged(tag)
    assert line["code"] == r.json()["code"]
    return line, r


# Reasons.

def test_reasons_of_401(gw, tag, http):
    stranger, prefix = Key("x", "b"), gw.bob.secret[:6]
    for reason, headers in (
            ("missing", []),
            ("malformed", [("Authorization", "Bearer vendor-key")]),
            ("malformed", [("Authorization", "Basic " + gw.bob.secret)]),
            ("malformed", [("x-api-key", prefix)]),
            ("differ", [gw.alice.bearer(), gw.bob.header()]),
            ("unknown", [stranger.bearer()]),
            ("unknown", [("x-api-key", gw.bob.secret + "x")])):
        name = "%s-%s" % (tag, len(str(headers)))
        line, _ = refused(gw, name, 401, call=lambda headers: gw.post(
            CHAT, chat(), headers=headers, version=http), headers=headers)
        assert line["reason"] == reason, headers
        assert [line[n] for n in NAMES] == ["", "", ""]


def test_expired_key(gw, tag, http):
    """F6: the log names it, the client cannot tell it from an unknown one."""
    line, r = refused(gw, tag, 401, key=gw.dave, version=http)
    assert line["reason"] == "expired"
    assert [line[n] for n in NAMES] == ["dave-1", "dave-1", "b"]
    _, other = refused(gw, tag + "x", 401, key=Key("x", "b"), version=http)
    assert_flat(r, 401, "INVALID_API_KEY", "Invalid API key")

    def shown(r):
        return r.body, [(n, v) for n, v in r.headers
                        if n.lower() not in ("date", "request-id",
                                             "x-request-id")]

    assert shown(r) == shown(other)
    assert gw.untouched()


@pytest.mark.parametrize("name", ["rpm", "tpm"])
def test_reason_of_a_minute(limited, upstreams, tag, name):
    key, = (k for k in limited.keys if k.id == "key-" + name)
    assert limited.chat(key=key).status == 200
    line, _ = refused(limited, tag, 429, key=key)
    assert (line["reason"], line["id"]) == (name, key.id)


def test_reason_concurrency(limited, upstreams, tag):
    key, = (k for k in limited.keys if k.id == "key-concurrency")
    here, go = threading.Event(), threading.Event()

    def script(x):
        here.set()
        go.wait(60)
        reply_json(chat_error("late"), 400)(x)

    limited.b.script(script)
    first = threading.Thread(target=limited.chat, kwargs={"key": key})
    first.start()
    try:
        assert here.wait(60)
        line, _ = refused(limited, tag, 429, key=key)
    finally:
        go.set()
        first.join()
        limited.b.reset()
    assert line["reason"] == "concurrency"


def test_reason_upstream(gw, tag):
    gw.b.script(reply_json(chat_error("slow down"), 429))
    line, _ = refused(gw, tag, 429)
    assert line["reason"] == "upstream"
    gw.b.script(reply_json(chat_error("no"), 400))
    assert refused(gw, tag + "x", 400)[0]["reason"] == ""
    gw.a.script(reply_json(message_error("no"), 401))
    assert refused(gw, tag + "y", 502,
                   call=gw.messages)[0]["reason"] == ""


def test_reason_credit(gateway, tag):
    g = gateway(http="modelgw_zone 4m; modelgw_ledger $dir/ledger.db;",
                groups=BOUNDED)
    assert refused(g, tag, 402)[0]["reason"] == "credit"


def test_no_reason(gw, tag):
    gw.chat(headers=[("X-Test-Tag", tag)])
    assert gw.logged(tag)["reason"] == ""
    line, _ = refused(gw, tag + "x", 400, body=b"{")
    assert line["reason"] == ""


# Streams.

def test_stream(gw, tag, http):
    gw.b.script(sse(chat_stream("one-0613", usage=True)))
    for i, (call, body, stream) in enumerate((
            (gw.chat, chat(stream=True), "true"),
            (gw.chat, chat(stream=False), "false"),
            (gw.messages, messages(), "false"),
            (gw.chat, chat("none", stream=True), "true"),
            (gw.chat, b"{", ""),
            (gw.chat, {"model": "fam-b-one"}, ""))):
        gw.b.reset()
        call(body, headers=[("X-Test-Tag", tag + str(i))], version=http)
        assert gw.logged(tag + str(i))["stream"] == stream, body
    gw.get("/v1/models", gw.bob, [("X-Test-Tag", tag + "m")], version=http)
    assert gw.logged(tag + "m")["stream"] == ""
    refused(gw, tag + "u", 401, key=gw.dave)
    assert gw.logged(tag + "u")["stream"] == ""


# The error log.

IDS = re.compile(r", server: \S+?, request: .*?(, call: (\d+))?(, key: (\S+))?"
                 r", request_id: (\S+)$")


def lines(g, before, text, times=1):
    """The lines with the text, and the ids at their ends, since then."""
    g.wait_log(re.escape(text), times + before.count(text))
    found = [line for line in g.whole_lines("error.log")
             if text in line][-times:]
    ids = [IDS.search(line) for line in found]
    assert all(ids), found
    return [(m.group(2), m.group(4), m.group(5)) for m in ids]


def test_ids_of_an_upstream_error(gw, http):
    before = gw.read("error.log")
    gw.b.script(reply_json(chat_error("no"), 529,
                           headers=[("x-request-id", "up-17")]))
    r = gw.chat(version=http)
    assert r.status == 503 and r.get("request-id") == "up-17"
    assert lines(gw, before, 'upstream of group "b" answered 529') \
        == [(None, "bob-1", "up-17")]


def test_ids_of_refusals(gw, http):
    for key, call, id in ((gw.bob, "{", "bob-1"), (gw.dave, "{", "dave-1"),
                          (None, "{", None)):
        before = gw.read("error.log")
        r = gw.post(CHAT, call.encode(), key, version=http)
        assert lines(gw, before, "refused ") \
            == [(None, id, r.get("request-id"))]
        assert len(r.get("request-id")) == 32


def test_ids_of_lines_of_nginx(gateway, http):
    """Lines before and after the answer have the id that the client got."""
    g = gateway(upstreams="""
    upstream api.vendor-a.test { server 127.0.0.1:1; server 127.0.0.1:$a; }
    upstream api.vendor-b.test { server 127.0.0.1:1; }""")
    g.expect("connect\\(\\) failed")
    r = g.chat(version=http)
    assert r.status == 503
    assert lines(g, "", "connect() failed") \
        == [(None, "bob-1", r.get("request-id"))]


def test_ids_of_a_call(gateway, upstreams, tag):
    g = gateway(http="modelgw_zone 4m; modelgw_ledger $dir/ledger.db;"
                "modelgw_founding_credit 1000;"
                "log_format call escape=json '{\"tag\":\"$http_x_test_tag\","
                "\"call\":\"$modelgw_call\"}';",
                server="access_log $dir/call.log call;", groups=BOUNDED)
    g.b.script(reply_json(chat_error("no"), 500))
    r = g.chat(headers=[("X-Test-Tag", tag)])
    call = g.logged(tag, name="call.log")["call"]
    assert int(call) > 0
    assert lines(g, "", "upstream of group") \
        == [(call, "bob-1", r.get("request-id"))]


def test_ids_are_not_displaced(gw):
    """nginx cuts a line at 2048 bytes."""
    before = gw.read("error.log")
    r = gw.post(CHAT + "?" + "x" * 4000, b"{", gw.bob)
    assert lines(gw, before, "refused 400") \
        == [(None, "bob-1", r.get("request-id"))]


def test_ids_are_printable(gw):
    before = gw.read("error.log")
    gw.b.script(reply_json(chat_error("no"), 500,
                           headers=[("x-request-id", "a\x1b[1m\tb, key: x")]))
    gw.chat()
    assert lines(gw, before, "upstream of group") \
        == [(None, "bob-1", "a?[1m?b,?key:?x")]


def test_lines_of_other_requests(gateway):
    """Without the gateway they are as they were."""
    g = gateway(locations="location /plain/ { modelgw_flat_errors off; }")
    assert g.get("/plain/x").status == 404
    g.wait_log("failed \\(2")
    line, = [line for line in g.whole_lines("error.log")
             if "failed (2" in line]
    assert line.endswith(', host: "gateway.test"'), line


# $modelgw_log

SHIPPED = "include %s;" % os.path.join(ROOT, "conf/modelgw/log.conf")
LEDGER = "modelgw_zone 4m; modelgw_ledger $dir/ledger.db;" \
         "modelgw_founding_credit 1000;"

TEXT, NUMBER, SECONDS = str, int, Decimal
TYPES = dict(
    time=TEXT, request_id=TEXT, connection=NUMBER, client=TEXT, protocol=TEXT,
    method=TEXT, path=TEXT, status=NUMBER, code=TEXT, reason=TEXT, key=TEXT,
    account=TEXT, group=TEXT, model=TEXT, upstream_model=TEXT, stream=bool,
    translated=bool, input_tokens=NUMBER, output_tokens=NUMBER,
    cached_tokens=NUMBER, cache_write_tokens=NUMBER,
    cache_write_1h_tokens=NUMBER, reasoning_tokens=NUMBER, call=NUMBER,
    cost=Decimal, outcome=TEXT, end=TEXT, complete=bool, first_byte_ms=NUMBER,
    first_byte_time=SECONDS, upstream_tries=NUMBER, upstream_addr=TEXT,
    upstream_status=NUMBER, upstream_connect_time=SECONDS,
    upstream_time=SECONDS, completion=TEXT, request_length=NUMBER,
    bytes_sent=NUMBER, duration_ms=NUMBER, request_time=SECONDS)
ALWAYS = {"time", "request_id", "connection", "client", "path", "status",
          "request_length", "bytes_sent", "duration_ms", "request_time"}


def once(pairs):
    """No member is there twice."""
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), names
    return dict(pairs)


class Logger:
    """A gateway with the shipped format, and the lines of its requests."""

    def __init__(self, g):
        self.g = g
        self.seen = 0

    def line(self):
        """That of the next request."""
        end = time.monotonic() + LIMIT
        while len(lines := self.g.whole_lines("shipped.log")) <= self.seen:
            assert time.monotonic() < end, self.seen
            time.sleep(0.01)
        line = json.loads(lines[self.seen], parse_float=Decimal,
                          object_pairs_hook=once)
        self.seen += 1
        for name, value in line.items():
            assert type(value) is TYPES[name], (name, value)
            assert value != "", name
        assert ALWAYS <= set(line)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z",
                            line["time"])
        assert line["request_time"] * 1000 == line["duration_ms"]
        return line


@pytest.fixture(scope="module")
def shipped(module_gateway):
    return Logger(module_gateway(
        http=SHIPPED + LEDGER, groups=BOUNDED, workers=1,
        server="access_log $dir/shipped.log modelgw;"))


@pytest.fixture
def log(shipped, upstreams):
    for u in upstreams:
        u.reset()
    return shipped


def has(line, **members):
    """Those members; None: it is left out."""
    assert {name: line.get(name) for name in members} == members, line


def test_line_of_a_call(log, http):
    log.g.b.script(reply_json(chat_completion(
        "one-0613", usage=chat_usage(1000, 10, cached=600))))
    r = log.g.chat(version=http)
    line = log.line()
    has(line, request_id=r.get("request-id"), client="127.0.0.1",
        protocol={"h1": "HTTP/1.1", "h2": "HTTP/2.0"}[http], method="POST",
        path=CHAT, status=200, code=None, reason=None, key="bob-1",
        account="bob-1", group="b", model="fam-b-one",
        upstream_model="one-0613", stream=False, translated=False,
        input_tokens=400, output_tokens=10, cached_tokens=600,
        outcome="reported", end="complete", complete=True, upstream_tries=1,
        upstream_addr="127.0.0.1:%d" % log.g.b.port, upstream_status=200,
        completion="OK")
    assert line["first_byte_time"] * 1000 == line["first_byte_ms"]
    assert line["upstream_time"] <= line["request_time"] + Decimal("0.1")

    # the exact cost, as in the ledger
    end = time.monotonic() + LIMIT
    while True:
        with sqlite3.connect("file:%s?mode=ro" % log.g.path("ledger.db"),
                             uri=True) as db:
            row = db.execute("SELECT cost FROM calls WHERE id = ?",
                             (line["call"],)).fetchone()
        if row:
            break
        assert time.monotonic() < end
        time.sleep(0.01)
    assert line["cost"] * 10 ** 9 == row[0] > 0


@pytest.mark.parametrize("stream", [False, True])
def test_line_of_a_translated_call(log, stream):
    if stream:
        log.g.a.script(sse(message_stream(
            "large-2026-01-01", usage=message_usage(12, 34, 56))))
    r = log.g.chat(chat("fam-a-large", stream=stream, max_tokens=9),
                   log.g.alice)
    assert r.status == 200
    has(log.line(), path=CHAT, account="alice", group="a", stream=stream,
        translated=True, complete=True, output_tokens=34 if stream else 7,
        end="complete")


def test_line_of_a_stream_that_breaks_off(log):
    events = message_stream("large-2026-01-01", usage=message_usage(77, 5))
    log.g.a.script(sse(events[:4], end="close"))
    log.g.messages(messages(stream=True))
    has(log.line(), path="/v1/messages", status=200, code="UPSTREAM_ERROR",
        stream=True, complete=False, input_tokens=77, end="upstream",
        outcome="estimated")


def test_line_of_a_client_that_left(log):
    events = message_stream("large-2026-01-01", usage=message_usage(77, 5))
    log.g.a.script(sse(events[:4], end="stall"))
    with log.g.connect() as c:
        c.request("POST", "/v1/messages", [log.g.alice.bearer()],
                  body=messages(stream=True))
        assert c.head().status == 200
        c.event()
    has(log.line(), key="alice-1", stream=True, complete=False,
        completion=None, end="client", input_tokens=77)


def test_lines_of_upstream_errors(log):
    for script, more in (
            (reply_json(chat_error("x"), 429),
             dict(status=429, reason="upstream", upstream_status=429,
                  outcome="refused", code="RATE_LIMITED")),
            (reply(500, b"<html>"),
             dict(status=502, reason=None, upstream_status=500)),
            (raw("close"), dict(status=502, reason=None, complete=None))):
        log.g.b.reset()
        log.g.b.script(script)
        r = log.g.chat()
        line = log.line()
        has(line, code=r.json()["code"], stream=False, key="bob-1",
            request_id=r.get("request-id"), **{"status": r.status})
        has(line, **more)
        assert type(line["cost"]) is Decimal


def test_lines_of_refusals(log, http):
    g = log.g
    unknown = dict(model=None, call=None, cost=None, upstream_addr=None,
                   stream=None, first_byte_ms=None, complete=None,
                   input_tokens=None, end=None)
    for call, more in (
            (lambda: g.chat(key=g.dave, version=http),
             dict(unknown, key="dave-1", group="b", reason="expired")),
            (lambda: g.chat(key=Key("x", "b"), version=http),
             dict(unknown, key=None, group=None, reason="unknown")),
            (lambda: g.post(CHAT, chat(), version=http),
             dict(unknown, key=None, reason="missing")),
            (lambda: g.chat(b"{", version=http), dict(unknown, key="bob-1")),
            (lambda: g.chat(chat("none"), version=http),
             dict(unknown, stream=False, reason=None)),
            (lambda: g.get("/v1/messages", g.alice, version=http),
             dict(unknown, path="/v1/messages", key=None)),
            (lambda: g.get("/v1/x", g.bob, version=http),
             dict(unknown, path="other"))):
        r = call()
        line = log.line()
        has(line, status=r.status, code=r.json()["code"],
            request_id=r.get("request-id"), completion="OK", **more)


def test_line_of_models(log, http):
    r = log.g.get("/v1/models/fam-b-one?x=CANARY", log.g.bob, version=http)
    has(log.line(), status=200, method="GET", path="/v1/models/*", key="bob-1",
        stream=None, model=None, request_id=r.get("request-id"))
    log.g.get("/v1/models", log.g.bob, version=http)
    has(log.line(), path="/v1/models")


def test_line_of_count_tokens(log):
    log.g.post("/v1/messages/count_tokens", messages(), log.g.alice)
    has(log.line(), path="/v1/messages/count_tokens", model="fam-a-large",
        stream=False, cost=None)


def test_lines_of_other_locations(log):
    """Requests that never were in a gateway have a line, too."""
    log.g.get("/x?CANARY", headers=[("X-Canary", "CANARY")])
    has(log.line(), path="other", status=404, method="GET")
    with log.g.connect() as c:
        c.send(b"GARBAGE CANARY \xff\x01\r\n\r\n")
        c.response(method="GET")
    has(log.line(), path="other", status=400, key=None)
    log.g.get('/v1/"\\%22%0a%ff', log.g.bob)
    has(log.line(), path="other", status=404)
    assert "CANARY" not in log.g.read("shipped.log")


def test_log_escapes(gateway, tag):
    """An upstream chooses its request id."""
    g = gateway(http=SHIPPED, server="access_log $dir/shipped.log modelgw;")
    g.b.script(reply_json(chat_completion("one-0613"),
                          headers=[("request-id", 'a"b\\c\td\x01{')]))
    g.chat()
    has(Logger(g).line(), request_id='a"b\\c\td\x01{', cost=None, call=None,
        status=200, input_tokens=11)


def test_log_read_early(gateway):
    """It may be read before it is final, and is final in the log."""
    g = gateway(http=SHIPPED, server="access_log $dir/shipped.log modelgw;",
                location='set $early "$modelgw_log"; error_page 418 /x;')
    assert g.chat().status == 200
    has(Logger(g).line(), key="bob-1", status=200, output_tokens=7)


def test_old_log_format(gateway):
    """The one that was shipped before has no typed values."""
    g = gateway(http="log_format old escape=json '{\"key\":\"$modelgw_id\","
                "\"input_tokens\":\"$modelgw_input_tokens\","
                "\"complete\":\"$modelgw_complete\"}';",
                server="access_log $dir/old.log old;")
    g.chat()
    end = time.monotonic() + LIMIT
    while not g.whole_lines("old.log"):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert json.loads(g.read("old.log")) \
        == {"key": "bob-1", "input_tokens": "11", "complete": "1"}
