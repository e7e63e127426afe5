"""Silent streams: modelgw_keepalive.

The interval is 100 ms in most tests.  On a busy machine pauses are longer and
keep-alives more, so they are not counted: tests wait until some come.
"""

import itertools
import json
import threading
import time

import anthropic
import openai
import pytest

import client
from client import assert_flat
from gateway import chat, group_a, group_b, messages
from upstream import (chat_completion, chat_error, chat_stream, data, event,
                      message, message_error, message_stream,
                      response_stream, sse)

COUNT = itertools.count()

COMMENT = b": keep-alive\n\n"
PING = b'event: ping\ndata: {"type":"ping"}\n\n'

LOG = """log_format keepalive escape=json '{"tag":"$http_x_test_tag",'
        '"status":"$status","first_byte":"$modelgw_first_byte_time",'
        '"output":"$modelgw_output_tokens","complete":"$modelgw_complete",'
        '"cost":"$modelgw_cost","outcome":"$modelgw_outcome"}';"""
SERVER = "access_log $dir/keepalive.log keepalive;"

NAMES = ["chat", "messages", "translated"]


@pytest.fixture(scope="module")
def quick(module_gateway):
    return module_gateway(http=LOG, server=SERVER,
                          location="modelgw_keepalive 100ms;")


@pytest.fixture
def g(quick):
    quick.a.reset(), quick.b.reset()
    seen, pids = len(quick.faults()), quick.pids()
    yield quick
    quick.a.reset(), quick.b.reset()
    assert quick.pids() == pids, "a worker has exited"
    assert not quick.faults()[seen:], "\n".join(quick.faults()[seen:])


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


class Call:
    """A stream and its keep-alives."""

    def __init__(self, gw, name):
        self.gw, self.name = gw, name
        self.tag = "keepalive-%d" % next(COUNT)
        self.up = gw.b if name == "chat" else gw.a
        self.target = "/v1/messages" if name == "messages" \
            else "/v1/chat/completions"
        key = gw.bob if name == "chat" else gw.alice
        self.headers = [key.bearer(), ("X-Test-Tag", self.tag)]
        self.body = {"chat": chat(stream=True),
                     "messages": messages(stream=True),
                     "translated": chat("fam-a-large", stream=True)}[name]
        self.events = chat_stream("one-0613") if name == "chat" \
            else [e for e in message_stream("large-2026-01-01")
                  if b"ping" not in e]
        self.text = PING if name == "messages" else COMMENT
        self.error = data(chat_error("Overloaded")) if name == "chat" \
            else event("error", message_error("Overloaded",
                                              "overloaded_error"))

    def start(self, **kw):
        c = self.gw.connect(**kw)
        c.request("POST", self.target, self.headers, body=self.body)
        return c

    def line(self):
        return self.gw.logged(self.tag, name="keepalive.log")

    def silent(self, c, n=1):
        """Reads the header, and events until n keep-alives have come."""
        assert c.head().status == 200
        for _ in range(n):
            while c.event() != self.text:
                pass

    def plain(self, body):
        """The stream without its keep-alives, which are between events."""
        parts = [p + b"\n\n" for p in body.split(b"\n\n")[:-1]]
        return b"".join(p for p in parts if p != self.text)


@pytest.fixture
def call(g, name):
    return Call(g, name)


def finish(c):
    while c.read():
        pass
    return c.current


def undisturbed(call):
    """The same stream with no pause in it, logged as a call of its own."""
    other = Call(call.gw, call.name)
    other.up.script(sse(call.events))
    with other.start() as c:
        return other.plain(c.response().body)


def same(got, want):
    """Translated chunks differ in ids and times."""
    assert len(got.split(b"\n\n")) == len(want.split(b"\n\n"))
    assert got[-14:] == want[-14:]


def test_between_events(call):
    """Several in one pause; the stream is otherwise unchanged."""
    gate = threading.Event()
    call.up.script(sse(call.events[:3] + [gate] + call.events[3:]))
    with call.start() as c:
        call.silent(c, 3)
        gate.set()
        r = finish(c)
    assert r.complete
    same(call.plain(r.body), undisturbed(call))
    line = call.line()
    assert line["complete"] == "1" and line["output"] == "7", line


def test_between_events_h2(call):
    gate = threading.Event()
    call.up.script(sse(call.events[:3] + [gate] + call.events[3:]))
    with client.H2(call.gw.port2) as c:
        sid = c.request("POST", call.target, call.headers, call.body)
        while c.streams[sid].body.count(call.text) < 3:
            c.wait()
        gate.set()
        r = c.response(sid)
    assert r.complete
    same(call.plain(r.body), undisturbed(call))


@pytest.mark.parametrize("size", [10, 500000])
def test_not_inside_an_event(call, size):
    """Half of the event has come: large events are not passed in pieces."""
    at = [i for i, e in enumerate(call.events) if b"Hel" in e][0]
    text = call.events[at].replace(b"Hel", b"H" * size)
    call.events[at] = text
    gate = threading.Event()
    cut = text.index(b"H" * 10) + size // 2
    call.up.script(sse(call.events[:at] + [text[:cut], gate, text[cut:]]
                       + call.events[at + 1:]))
    with call.start() as c:
        call.silent(c, 2)
        gate.set()
        r = finish(c)
    assert r.complete
    same(call.plain(r.body), undisturbed(call))


def test_none_while_events_come(gateway, name):
    g = gateway(http=LOG, server=SERVER, location="modelgw_keepalive 60s;")
    call = Call(g, name)
    call.up.script(sse(call.events, pause=0.02))
    with call.start() as c:
        r = c.response()
    assert r.complete and call.text not in r.body


def test_off(gateway, name):
    g = gateway(http=LOG, server=SERVER,
                location="modelgw_keepalive off; proxy_read_timeout 1s;")
    call = Call(g, name)
    call.up.script(sse(call.events[:3], end="stall"))
    with call.start() as c:
        r = c.response()
    assert not r.complete and call.text not in r.body
    call.up.script(sse([], end="stall"))
    with call.start() as c:
        assert_flat(c.response(), 504, "UPSTREAM_TIMEOUT")


def test_before_the_first_event(call):
    """The header is sent, the stream has begun.  This does not count as the
    first byte of the answer."""
    gate = threading.Event()
    call.up.script(sse([gate] + call.events))
    begin = time.monotonic()
    with call.start() as c:
        r = c.head()
        assert r.status == 200
        assert r.get("content-type").startswith("text/event-stream")
        assert r.get("x-accel-buffering") == "no"
        client.assert_ids(r)
        for _ in range(2):
            assert c.event() == call.text
        waited = time.monotonic() - begin
        gate.set()
        r = finish(c)
    assert r.complete
    same(call.plain(r.body), undisturbed(call))
    line = call.line()
    assert line["complete"] == "1" and line["output"] == "7", line
    assert waited > 0.29
    assert float(line["first_byte"]) > 0.29, line


@pytest.mark.timed("the first keep-alive is due after a second, not two")
def test_an_interval_after_the_first_event(gateway, name):
    """Also if the timer was set before the first event."""
    g = gateway(location="modelgw_keepalive 1s;")

    def waited():
        call = Call(g, name)
        gate = threading.Event()
        call.up.script(sse([call.events[0], gate]))
        with call.start() as c:
            assert c.head().status == 200
            c.event()
            begin = time.monotonic()
            while c.event() != call.text:
                pass
            begin = time.monotonic() - begin
        gate.set()
        return begin

    assert any(waited() < 1.6 for _ in range(5))


def test_the_header_waits_for_twice_the_interval(gateway, name):
    """An error before that is a status: test_broken.py."""
    g = gateway(http=LOG, server=SERVER, location="modelgw_keepalive 1s;")
    call = Call(g, name)
    begin = time.monotonic()
    call.up.script(sse([], end="stall"))
    with call.start() as c:
        assert c.head().status == 200
        assert time.monotonic() - begin >= 1.99


def test_an_early_error_is_a_frame_then(call):
    gate = threading.Event()
    call.up.script(sse([gate, call.error]))
    with call.start() as c:
        call.silent(c)
        gate.set()
        r = finish(c)
    assert r.complete
    frame = call.plain(r.body)
    assert frame.count(b"\n\n") == 1 and b'"error"' in frame, frame
    call.gw.wait_log("client gets 200 [A-Z_]+ in its stream")


@pytest.mark.parametrize("how", ["clean", "close"])
def test_an_early_break_is_a_frame_then(call, how):
    gate = threading.Event()
    call.up.script(sse([gate], end=how))
    with call.start() as c:
        call.silent(c)
        gate.set()
        r = finish(c)
    assert not r.complete
    frame = call.plain(r.body)
    assert frame.count(b"\n\n") == 1 and b'"error"' in frame, frame


@pytest.fixture(scope="module")
def ledger(module_gateway):
    price = " input=1 output=2 max_output=1000;"
    return module_gateway(
        groups=group_a(models="model fam-a-large large-2026-01-01" + price
                       + "model fam-a-small small" + price)
        + group_b(models="model fam-b-one one-0613" + price),
        http=LOG + "modelgw_zone 4m; modelgw_ledger $dir/ledger.db;"
                   "modelgw_founding_credit 10;",
        server=SERVER, location="modelgw_keepalive 100ms;")


@pytest.mark.parametrize("end", ["error", "break", "whole"])
def test_the_charge_is_the_same(ledger, name, end):
    """As without a keep-alive: an error instead of an answer is free, a broken
    answer is estimated by its text, a complete one is charged as reported."""
    rows = []
    for silent in (False, True):
        call = Call(ledger, name)
        events = {"error": [call.error], "break": call.events[:4],
                  "whole": call.events}[end]
        gate = threading.Event()
        call.up.script(sse(([gate] if silent else []) + events,
                           end="clean" if end == "whole" else "close"))
        with call.start() as c:
            if silent:
                call.silent(c)
            else:
                c.head()
            gate.set()
            finish(c)
        line = call.line()
        rows.append((line["outcome"], line["cost"]))
    assert rows[0] == rows[1]
    assert rows[0][0] == {"error": "refused", "break": "estimated",
                          "whole": "reported"}[end]
    assert (float(rows[0][1]) == 0) == (end == "error")


@pytest.mark.parametrize("name", ["chat", "translated"])
def test_no_keep_alive_in_json(g, name):
    """The answer takes longer than several intervals."""
    call = Call(g, name)
    call.body["stream"] = False
    text = json.dumps(chat_completion("one-0613") if name == "chat"
                      else message("large-2026-01-01")).encode()
    call.up.script(sse([text[:40], 0.5, text[40:]], ctype="application/json"))
    with call.start() as c:
        r = c.response()
    assert r.status == 200 and r.complete
    assert r.json()["object"] == "chat.completion"


def test_not_after_the_end(call):
    """The client has the whole stream when the upstream ends late."""
    gate = threading.Event()
    call.up.script(sse(call.events + [gate]))
    with call.start() as c:
        r = c.response()
        assert r.complete
        assert c.alive()
        gate.set()


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("early", [True, False])
def test_client_leaves_while_it_is_silent(call, how, early):
    """The call is cut, as usual."""
    call.up.script(sse([] if early else call.events[:3], end="stall"))
    with call.start() as c:
        call.silent(c)
        getattr(c, how)()
        assert call.up.last().gone.wait(5)
    call.line()


def test_client_leaves_while_it_is_silent_h2(call):
    call.up.script(sse(call.events[:3], end="stall"))
    with client.H2(call.gw.port2) as c:
        sid = c.request("POST", call.target, call.headers, call.body)
        while call.text not in c.streams[sid].body:
            c.wait()
        c.reset(sid)
        assert call.up.last().gone.wait(5)
    call.line()


def test_drained_call(gateway, name):
    """A drained call needs no keep-alives."""
    g = gateway(http=LOG, server=SERVER,
                location="modelgw_keepalive 100ms; modelgw_abort drain;")
    call = Call(g, name)
    gate = threading.Event()
    call.up.script(sse(call.events[:3] + [gate] + call.events[3:]))
    with call.start() as c:
        call.silent(c)
        c.reset()
    g.wait_log("client prematurely closed connection, ")
    time.sleep(0.3)             # some intervals
    gate.set()
    assert call.line()["complete"] == "1"


@pytest.mark.parametrize("version", ["h1", "h2"])
def test_slow_reader(gateway, name, version):
    """Nothing is added while output waits, and a client that does not read is
    disconnected after send_timeout."""
    g = gateway(http=LOG, server=SERVER,
                location="modelgw_keepalive 50ms; send_timeout 1s;")
    call = Call(g, name)
    at = [i for i, e in enumerate(call.events) if b"Hel" in e][0]
    big = call.events[at].replace(b"Hel", b"H" * 3500000)
    call.up.script(sse(call.events[:at] + [big], end="stall"))
    if version == "h1":
        c = call.start(rcvbuf=4096)
    else:
        c = client.H2(g.port2)
        c.request("POST", call.target, call.headers, call.body)
    with c:
        assert call.up.wait().gone.wait(8), "the connection stays open"
        call.line()


def test_slow_reader_that_reads_on(gateway, name):
    """The whole event arrives, then keep-alives."""
    g = gateway(http=LOG, server=SERVER, location="modelgw_keepalive 50ms;")
    call = Call(g, name)
    at = [i for i, e in enumerate(call.events) if b"Hel" in e][0]
    call.events[at] = call.events[at].replace(b"Hel", b"H" * 3500000)
    gate = threading.Event()
    call.up.script(sse(call.events[:at + 1] + [gate] + call.events[at + 1:]))
    with call.start(rcvbuf=4096) as c:
        time.sleep(0.5)         # some intervals
        assert c.head().status == 200
        while c.event() != call.text or len(c.current.data) < 3500000:
            pass
        gate.set()
        r = finish(c)
    assert r.complete
    same(call.plain(r.body), undisturbed(call))


def test_reload_while_it_is_silent(gateway, name):
    g = gateway(http=LOG, server=SERVER, location="modelgw_keepalive 100ms;")
    call = Call(g, name)
    gate = threading.Event()
    call.up.script(sse(call.events[:3] + [gate] + call.events[3:]))
    with call.start() as c:
        call.silent(c)
        reload = threading.Thread(target=g.reload)
        reload.start()
        while c.event() != call.text:
            pass
        gate.set()
        assert finish(c).complete
        reload.join()


# the SDKs

def test_openai(g):
    for name in ("chat", "translated"):
        call = Call(g, name)
        call.up.script(sse([0.4] + call.events[:3] + [0.4] + call.events[3:]))
        with openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % g.port,
                           api_key=call.headers[0][1].split()[1]) as sdk:
            out = [c.choices[0].delta.content or ""
                   for c in sdk.chat.completions.create(**call.body)
                   if c.choices]
        assert "".join(out) == "Hello"


def test_anthropic(g):
    call = Call(g, "messages")
    call.up.script(sse([0.4] + call.events[:3] + [0.4] + call.events[3:]))
    body = dict(call.body)
    body.pop("stream")
    with anthropic.Anthropic(base_url="http://127.0.0.1:%d" % g.port,
                             api_key=g.alice.secret) as sdk, \
            sdk.messages.stream(**body) as stream:
        assert stream.get_final_text() == "Hello"


@pytest.mark.parametrize("model", ["fam-a-large", "fam-b-one"])
def test_openai_responses(gateway, model):
    """No event comes before response.created: a stream that is passed on has a
    comment there, a translated one begins."""
    g = gateway(location="modelgw_keepalive 100ms;",
                groups=group_a() + group_b(protocol="responses"))
    up, key, events = {
        "fam-a-large": (g.a, g.alice, message_stream("large-2026-01-01")),
        "fam-b-one": (g.b, g.bob, response_stream("one-0613"))}[model]
    silent, over = threading.Event(), threading.Event()
    up.script(sse([silent] + events[:3] + [over] + events[3:]))
    with g.connect() as c:
        c.request("POST", "/v1/responses", [key.bearer()], body={
            "model": model, "input": "Hi", "stream": True})
        assert c.head().status == 200
        first = [COMMENT] * 2 if model == "fam-b-one" else [
            b"event: response.created", b"event: response.in_progress",
            b"event: keepalive", b"event: keepalive"]
        for start in first:
            assert c.event().startswith(start)
        silent.set()
        while b"event: keepalive\n" not in c.event():
            pass
        over.set()
        assert finish(c).complete
    up.script(sse([0.4] + events[:3] + [0.4] + events[3:]))
    with openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % g.port,
                       api_key=key.secret, max_retries=0) as sdk, \
            sdk.responses.stream(model=model, input="Hi") as stream:
        assert stream.get_final_response().output_text == "Hello"


def test_openai_raises_on_an_early_error(g):
    call = Call(g, "chat")
    call.up.script(sse([0.4, call.error]))
    with openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % g.port,
                       api_key=g.bob.secret, max_retries=0) as sdk, \
            pytest.raises(openai.APIError) as e:
        list(sdk.chat.completions.create(**call.body))
    assert "Overloaded" in str(e.value)


def test_openai_responses_raises_on_an_early_error(gateway):
    """Which the SDK does not show if it comes before response.created."""
    g = gateway(location="modelgw_keepalive 100ms;",
                groups=group_a() + group_b(protocol="responses"))
    for sequence in {}, {"sequence_number": 0}:
        g.b.script(sse([0.4, event("error", dict(
            sequence, type="error", code="server_error", message="It broke"))]))
        with openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % g.port,
                           api_key=g.bob.secret, max_retries=0) as sdk, \
                pytest.raises(openai.APIError) as e, \
                sdk.responses.stream(model="fam-b-one", input="Hi") as stream:
            stream.get_final_response()
        assert str(e.value) == "It broke"


# configuration

@pytest.mark.parametrize("value,text", [
    ("modelgw_keepalive soon;", 'invalid value "soon"'),
    ("modelgw_keepalive 0;", 'invalid value "0"'),
    ("modelgw_keepalive 61m;", 'invalid value "61m"'),
    ("modelgw_keepalive 1s; modelgw_keepalive off;", "is duplicate"),
    ("modelgw_keepalive;", "invalid number of arguments")])
def test_bad_values(check, value, text):
    r = check(location=value)
    assert r.returncode != 0 and text in r.stderr, r.stderr


@pytest.mark.parametrize("where", ["http", "server", "location"])
@pytest.mark.parametrize("value", ["off", "1ms", "15s", "60m"])
def test_contexts(check, where, value):
    r = check(**{where: "modelgw_keepalive %s;" % value})
    assert r.returncode == 0, r.stderr
