"""What is logged of a request, for those who run a gateway."""

import re
import threading

import pytest

from client import assert_flat
from gateway import (Key, MODELS_A, MODELS_B, chat, group_a, group_b,
                     messages)
from upstream import (chat_error, chat_stream, message_error, reply_json, sse)

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
