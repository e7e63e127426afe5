"""Clients that disconnect: a call that is cut closes the upstream connection
at once, one that is drained is read to its usage, in bounded time and bytes;
and nginx goes on."""

import itertools
import json
import random
import socket
import threading
import time

import pytest

import client
import gateway as lib
from client import build
from gateway import chat, messages
from upstream import (DONE, LIMIT, Blackhole, Gone, Hangup, chat_chunk,
                      chat_completion, chat_stream, chat_usage_chunk, data,
                      message, message_stream, raw, reply, reply_json, sse)

pytestmark = pytest.mark.timed("a drained connection is not closed at once")

COUNT = itertools.count()
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"

LOG = """log_format abort escape=json '{"tag":"$http_x_test_tag",'
        '"status":"$status","code":"$modelgw_code",'
        '"input":"$modelgw_input_tokens","output":"$modelgw_output_tokens",'
        '"first_byte":"$modelgw_first_byte_time",'
        '"complete":"$modelgw_complete","time":"$request_time"}';"""
SERVER = "access_log $dir/abort.log abort;"

SETTLE = 0.25       # seconds in which a drained connection must not be closed
LEFT = "client prematurely closed connection, "


def begin(make, mode=None, location="", **kw):
    if mode:
        location = "modelgw_abort %s; %s" % (mode, location)
    return make(http=LOG, server=SERVER, location=location, **kw)


def lines(gw):
    return [json.loads(line) for line in gw.whole_lines("abort.log")]


def line(gw, tag, timeout=client.LIMIT):
    end = time.monotonic() + timeout
    while True:
        found = [one for one in lines(gw) if one["tag"] == tag]
        if found:
            assert len(found) == 1, found
            return found[0]
        assert time.monotonic() < end, "nothing logged for " + tag
        time.sleep(0.02)


def wait_left(gw, before):
    """Waits until nginx has noticed that one more client has left."""
    end = time.monotonic() + client.LIMIT
    while gw.log_count(LEFT) <= before:
        assert time.monotonic() < end, "the client's leaving was not noticed"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def gateways(module_gateway):
    return {mode: begin(module_gateway, mode)
            for mode in ("auto", "cut", "drain")}


@pytest.fixture(params=["auto", "cut", "drain"])
def mode(request):
    return request.param


@pytest.fixture
def g(gateways, mode):
    yield from checked(gateways[mode])


@pytest.fixture
def drain(gateways):
    yield from checked(gateways["drain"])


def checked(gw):
    """The gateway; afterwards, that no worker has exited or logged a fault."""
    for up in (gw.a, gw.b):
        up.reset()
        up.faults.clear()
    seen, pids = len(gw.faults()), gw.pids()
    yield gw
    for up in (gw.a, gw.b):
        up.reset()
        assert not up.faults, up.faults
    assert gw.pids() == pids, "a worker has exited"
    assert not gw.faults()[seen:], "\n".join(gw.faults()[seen:])


class Script:
    """An upstream that sends the first steps, waits until the gate is opened
    or the gateway hangs up, and sends the rest.  outcome is "whole" or
    "gone"."""

    def __init__(self, gw, first, rest, framing="chunked", length=None,
                 ctype="text/event-stream"):
        self.gw, self.left = gw, gw.log_count(LEFT)
        self.first, self.rest = first, rest
        self.framing, self.length, self.ctype = framing, length, ctype
        self.held = threading.Event()       # the first steps are sent
        self.gate = threading.Event()
        self.over = threading.Event()
        self.outcome = None
        self.sent = 0
        self.connection = None

    def __call__(self, x):
        self.connection = x.request.conn
        try:
            self.run(x)
            self.outcome = "whole"
        except Hangup:
            self.outcome = "whole"
            raise
        except Gone:
            self.outcome = "gone"
            raise
        finally:
            self.over.set()

    def run(self, x):
        """x.end() raises Hangup if the answer ends with its connection."""
        if self.first is not None:
            x.head(200, [("Content-Type", self.ctype)],
                   framing=self.framing, length=self.length)
            for part in self.first:
                self.send(x, part)
        self.held.set()
        end = time.monotonic() + LIMIT
        while not self.gate.is_set() and time.monotonic() < end:
            if x.peer_closed(0.01):
                raise Gone()
        if self.first is None:
            x.head(200, [("Content-Type", self.ctype)],
                   framing=self.framing, length=self.length)
        for part in self.rest:
            self.send(x, part)
        x.end()

    def send(self, x, part):
        x.body(part)
        self.sent += len(part)

    def assert_end(self, drained):
        """Waits for the end of the upstream connection: drained or cut."""
        if drained:
            self.stays()
            self.gate.set()
            assert self.over.wait(LIMIT), "not read to its end"
            assert self.outcome == "whole"
        else:
            assert self.over.wait(LIMIT), "the upstream stayed open"
            assert self.outcome == "gone"

    def stays(self):
        """The gateway has noticed that the client has left, and still reads;
        an answer that ends earlier is that of a call whose client has not
        left."""
        wait_left(self.gw, self.left)
        assert not self.over.wait(SETTLE), "the upstream was " \
            + str(self.outcome)


class Call:
    """One kind of call: its target and its answer."""

    def __init__(self, gw, kind, **more):
        self.gw, self.kind = gw, kind
        self.stream = kind != "json" and kind != "translated json"
        self.tag = "abort-%d" % next(COUNT)
        translated = kind.startswith("translated")
        self.up = gw.a if kind == "messages" or translated else gw.b
        self.key = gw.bob if self.up is gw.b else gw.alice
        self.target = MESSAGES if kind == "messages" else CHAT
        self.more = more

        if kind == "messages":
            self.body = messages(stream=True)
        elif translated:
            self.body = chat("fam-a-large", stream=self.stream)
        else:
            self.body = chat(stream=self.stream)

    def parts(self, words=("Hel", "lo")):
        """The answer in two halves."""
        if self.kind == "chat":
            events = chat_stream("one-0613", words)
        elif self.kind == "json":
            text = json.dumps(chat_completion("one-0613", "".join(words)))
            return [text[:80].encode()], [text[80:].encode()]
        elif self.kind == "translated json":
            text = json.dumps(message("large-2026-01-01", "".join(words)))
            return [text[:80].encode()], [text[80:].encode()]
        else:
            events = message_stream("large-2026-01-01", words)
        return events[:3], events[3:]

    def script(self, before=False, words=("Hel", "lo"), **kw):
        first, rest = self.parts(words)
        if before:
            first, rest = None, first + rest
        if not self.stream:
            kw.setdefault("ctype", "application/json")
        self.upstream = Script(self.gw, first, rest, **kw)
        self.up.script(self.upstream)
        return self.upstream

    def headers(self):
        return [self.key.bearer(), ("X-Test-Tag", self.tag)]

    def start(self, before=False, **kw):
        """Sends the call; returns when the upstream waits at its gate, and the
        client has received all that was sent."""
        c = self.gw.connect(**kw)
        c.request("POST", self.target, self.headers(), body=self.body)
        assert self.upstream.held.wait(LIMIT)
        if self.stream and not before:
            assert c.head().status == 200
            assert c.event()
        return c

    def line(self):
        return line(self.gw, self.tag)

    def logged(self, drained, status):
        got = self.line()
        assert got["status"] == str(status), got
        if drained:
            assert (got["input"], got["output"], got["complete"]) \
                == ("11", "7", "1"), got
        else:
            assert got["complete"] != "1", got
        return got

    def again(self):
        """The gateway answers the same call again."""
        parts = sum(self.parts(), [])
        self.up.script(sse(parts) if self.stream
                       else reply(body=b"".join(parts)))
        r = self.gw.post(self.target, self.body, self.key)
        assert r.status == 200 and r.complete, r


KINDS = ["chat", "messages", "translated", "json", "translated json"]


@pytest.fixture(params=KINDS)
def call(request, g):
    return Call(g, request.param)


def drained(mode, call):
    return mode == "drain" or (mode == "auto" and not call.stream)


LEAVE = {"close": lambda c: c.close(),
         "reset": lambda c: c.reset(),
         "half": lambda c: c.sock.shutdown(socket.SHUT_WR)}


@pytest.mark.parametrize("how", LEAVE)
def test_before_the_header(mode, call, how):
    up = call.script(before=True)
    c = call.start(before=True)
    LEAVE[how](c)
    up.assert_end(drained(mode, call))
    got = call.logged(drained(mode, call), 499)
    assert got["first_byte"] == "", got
    c.close()
    call.again()


@pytest.mark.parametrize("how", LEAVE)
@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_in_the_middle(mode, call, how, framing):
    up = call.script(framing=framing)
    c = call.start()
    LEAVE[how](c)
    up.assert_end(drained(mode, call))
    call.logged(drained(mode, call), 200 if call.stream else 499)
    c.close()
    call.again()


@pytest.mark.parametrize("how", ["close", "half"])
@pytest.mark.parametrize("kind", ["chat", "messages", "translated"])
def test_after_the_last_event(mode, g, kind, how):
    """Nothing is cut or drained: the client has its whole answer, only the
    upstream connection is still open."""
    call = Call(g, kind)
    first, rest = call.parts()
    up = call.upstream = Script(g, first + rest, [])
    call.up.script(up)
    c = call.start()
    while c.read():
        pass
    assert c.current.complete
    LEAVE[how](c)
    assert up.over.wait(LIMIT) and up.outcome == "gone"
    call.line()
    assert g.log_count(LEFT) == up.left
    c.close()


@pytest.mark.parametrize("kind", ["chat", "messages", "translated"])
def test_after_the_last_event_with_output_left(mode, g, kind):
    """The last event was read, but the client's receive window is full."""
    call = Call(g, kind)
    first, rest = call.parts(["w" * 200000])
    up = call.upstream = Script(g, first + rest, [])
    call.up.script(up)
    with client.H2(g.port2) as c:
        sid = c.request("POST", call.target, call.headers(), call.body)
        assert up.held.wait(LIMIT)
        g.wait_idle(0.1)
        c.reset(sid)
        wait_left(g, up.left)
    assert up.over.wait(LIMIT)
    call.line()


def test_half_closed_client_gets_no_more(mode, call):
    """As in nginx: a client that shuts down its side has left."""
    up = call.script()
    c = call.start()
    LEAVE["half"](c)
    up.assert_end(drained(mode, call))
    if call.stream:
        while c.read():
            pass
        assert not c.current.complete
    else:
        assert c.head() is None
    c.close()


# After a long stream a connection has a window of up to 32 MB, and an upstream
# may not block on it: such streams close theirs.

@pytest.mark.parametrize("how", ["reset", "close", "half"])
@pytest.mark.parametrize("kind", ["chat", "messages", "translated"])
def test_client_that_stopped_to_read(mode, g, kind, how):
    """The gateway has stopped reading the upstream when the client leaves."""
    call = Call(g, kind)
    words = ["%05d" % n + "w" * 16000 for n in range(1000)]
    up = call.script(words=words, framing="close")
    up.gate.set()
    c = g.connect(rcvbuf=4096)
    c.request("POST", call.target, call.headers(), body=call.body)
    assert c.head().status == 200
    settled(up)
    assert not up.over.is_set(), "the upstream was not blocked"
    LEAVE[how](c)
    assert up.over.wait(LIMIT), "the upstream is not read"
    assert up.outcome == ("whole" if drained(mode, call) else "gone")
    call.logged(drained(mode, call), 200)
    c.close()
    call.again()


def settled(up):
    """Waits until the upstream is blocked in sending."""
    seen = -1
    end = time.monotonic() + LIMIT
    while up.sent != seen:
        assert time.monotonic() < end, "the upstream was not blocked"
        seen = up.sent
        up.gw.wait_idle(0.4)


@pytest.mark.parametrize("how", ["stream", "connection", "reset"])
@pytest.mark.parametrize("when", ["before", "middle"])
def test_h2(mode, call, how, when):
    before = when == "before"
    up = call.script(before=before)
    with client.H2(call.gw.port2) as c:
        sid = c.request("POST", call.target, call.headers(), call.body)
        assert up.held.wait(LIMIT)
        if call.stream and not before:
            assert c.body(sid, 1)
        if how == "stream":
            c.reset(sid)
        elif how == "connection":
            c.close()
        else:
            c.wire.reset()
        up.assert_end(drained(mode, call))
        call.logged(drained(mode, call),
                    499 if before or not call.stream else 200)
    call.again()


@pytest.mark.parametrize("how", ["stream", "connection"])
@pytest.mark.parametrize("kind", ["chat", "messages", "translated"])
@pytest.mark.parametrize("size", [1000, 100000])
def test_h2_with_a_full_window(mode, g, kind, how, size):
    """When the client leaves, unwritten frames still refer to our bufs."""
    call = Call(g, kind)
    words = ["%05d" % n + "w" * size for n in range(16000000 // size)]
    up = call.script(words=words, framing="close")
    up.gate.set()
    with client.H2(g.port2) as c:
        c.request("POST", call.target, call.headers(), call.body)
        settled(up)             # not read: no window update
        assert not up.over.is_set(), "the upstream was not blocked, but was " \
            + "%s at %d bytes" % (up.outcome, up.sent)
        if how == "stream":
            c.reset(1)
        else:
            c.close()
        assert up.over.wait(LIMIT), "the upstream is not read"
        assert up.outcome == ("whole" if drained(mode, call) else "gone")
    call.logged(drained(mode, call), 200)
    call.again()


def test_h2_other_streams_go_on(mode, g):
    """One of three streams of a connection is reset."""
    calls = [Call(g, "chat") for _ in range(3)]
    scripts = []
    with client.H2(g.port2) as c:
        sids = []
        for one in calls:
            scripts.append(one.script())
            sids.append(c.request("POST", one.target, one.headers(),
                                  one.body))
            assert scripts[-1].held.wait(LIMIT)
            assert c.body(sids[-1], 1)
        c.reset(sids[1])
        scripts[1].assert_end(mode == "drain")
        for i in (0, 2):
            scripts[i].gate.set()
            r = c.response(sids[i])
            assert r.complete and r.body.endswith(DONE), r
        calls[1].logged(mode == "drain", 200)
        # the same connection still works
        g.b.script(sse(chat_stream("one-0613")))
        assert c.call("POST", CHAT, calls[0].headers(), calls[0].body).complete


def test_finished_chat_is_drained(g, mode):
    """All text has been sent, only the usage is missing: worth a short
    wait."""
    call = Call(g, "chat")
    events = chat_stream("one-0613")
    up = call.script()
    up.first, up.rest = events[:-2], events[-2:]
    c = call.start()
    while b'"stop"' not in c.event():
        pass
    c.reset()
    up.assert_end(mode != "cut")
    call.logged(mode != "cut", 200)


def test_unfinished_chat_is_cut(gateways):
    """One of two choices has ended, the other may take long."""
    for gw in checked(gateways["auto"]):
        call = Call(gw, "chat")
        call.body["n"] = 2
        other = chat_chunk("one-0613", {"content": "Hel"})
        other["choices"][0]["index"] = 1
        up = call.script()
        up.first = chat_stream("one-0613", usage=False, done=False)
        up.rest = [data(other), data(chat_usage_chunk("one-0613")), DONE]
        c = call.start()
        while b'"stop"' not in c.event():
            pass
        c.reset()
        up.assert_end(False)
        call.logged(False, 200)


def test_choices_that_end_at_once(g, mode):
    """Two choices that end in one event have both ended."""
    call = Call(g, "chat")
    call.body["n"] = 2
    events = chat_stream("one-0613")
    end = chat_chunk("one-0613", {}, "stop")
    end["choices"].append(dict(end["choices"][0], index=1))
    up = call.script()
    up.first, up.rest = events[:-3] + [data(end)], events[-2:]
    c = call.start()
    while b'"stop"' not in c.event():
        pass
    c.reset()
    up.assert_end(mode != "cut")
    call.logged(mode != "cut", 200)


@pytest.mark.parametrize("others", [0, 1])
def test_choice_that_ends_twice(gateways, others):
    """It still counts as one choice of two, with the other or without."""
    for gw in checked(gateways["auto"]):
        call = Call(gw, "chat")
        call.body["n"] = 2
        events = chat_stream("one-0613")
        end = chat_chunk("one-0613", {}, "stop")
        other = chat_chunk("one-0613", {}, "length")
        other["choices"][0]["index"] = 1
        up = call.script()
        up.first = (events[:-3] + [data(other)] * others + [data(end)] * 2
                    + [b": all\n\n"])
        up.rest = events[-2:]
        c = call.start()
        while b": all" not in c.event():
            pass
        c.reset()
        up.assert_end(others == 1)
        call.logged(others == 1, 200)


def test_half_an_event_has_come(drain):
    """What was read before the client left is joined with what comes later."""
    call = Call(drain, "chat")
    up = call.script()
    text = b"".join(up.first + up.rest)
    at = text.index(b'"prompt_tokens"') + 5
    up.first, up.rest = [text[:at]], [text[at:]]
    c = call.start()
    c.reset()
    up.assert_end(True)
    call.logged(True, 200)


def test_upstream_connection_is_kept(gateway):
    """After a drained answer the upstream connection is kept for the next call
    of the same worker, as after any other."""
    drain = begin(gateway, "drain", workers=1)
    call = Call(drain, "chat")
    up = call.script()
    c = call.start()
    c.reset()
    up.assert_end(True)
    call.line()
    call.again()
    assert drain.b.last().conn == up.connection
    assert drain.b.last().number > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", [True, False])
def test_drained_upstream_breaks(drain, kind, before):
    call = Call(drain, kind)
    up = call.script(before=before)
    up.rest = [lambda: None]
    up.send = breaking(up)
    c = call.start(before=before)
    c.reset()
    up.stays()
    up.gate.set()
    assert up.over.wait(LIMIT)
    got = call.line()
    assert got["complete"] != "1", got
    call.again()


def breaking(up):
    """The connection is closed when the gate opens."""
    send = Script.send

    def run(x, part):
        if callable(part):
            x.sock.shutdown(socket.SHUT_RDWR)
            raise Gone()
        send(up, x, part)

    return run


@pytest.mark.parametrize("status", [429, 500])
def test_drained_error(drain, status):
    """An error whose client has left is logged."""
    gate, got = threading.Event(), threading.Event()
    call = Call(drain, "json")
    call.up.script(raw(lambda x: got.set(), gate,
                       reply_json({"error": {"message": "no"}}, status)))
    left = drain.log_count(LEFT)
    c = drain.connect()
    c.request("POST", call.target, call.headers(), body=call.body)
    assert got.wait(LIMIT)
    c.reset()
    wait_left(drain, left)
    gate.set()
    line = call.logged(False, 499)
    assert line["code"], line
    call.again()


def test_timeout_of_a_drain(gateway):
    g = begin(gateway, "drain", "modelgw_abort_timeout 600ms;")
    for kind, before in itertools.product(("chat", "json"), (True, False)):
        call = Call(g, kind)
        up = call.script(before=before)
        c = call.start(before=before)
        start = time.monotonic()
        c.reset()
        assert up.over.wait(LIMIT), "the drain does not end"
        assert up.outcome == "gone"
        assert time.monotonic() - start > 0.4
        call.logged(False, 499 if before or kind == "json" else 200)
        call.again()


def test_timeout_of_a_drain_that_talks(gateway):
    """Events for ten seconds do not extend it."""
    g = begin(gateway, "drain", "modelgw_abort_timeout 600ms;")
    call = Call(g, "chat")
    up = call.script(words=["w"] * 500)
    up.send = slowly(up, 0.02)
    c = call.start()
    up.gate.set()
    start = time.monotonic()
    c.reset()
    assert up.over.wait(LIMIT) and up.outcome == "gone"
    assert time.monotonic() - start > 0.4
    call.logged(False, 200)


def slowly(up, pause):
    send = Script.send

    def run(x, part):
        time.sleep(pause)
        send(up, x, part)

    return run


@pytest.mark.parametrize("when", ["before", "middle"])
def test_bytes_of_a_drain(drain, when):
    """32 MB are read, and no more."""
    part = data(chat_chunk("one-0613", {"content": "w" * 65536}))
    call = Call(drain, "chat")
    up = call.script(before=when == "before")
    up.rest = itertools.chain(up.rest[:1] if when == "middle" else [],
                              (part for _ in range(4000)))
    c = call.start(before=when == "before")
    c.reset()
    up.stays()
    start = up.sent
    up.gate.set()
    assert up.over.wait(LIMIT), "the drain does not end"
    assert up.outcome == "gone"
    assert 32 * 2 ** 20 <= up.sent - start < 50 * 2 ** 20
    call.logged(False, 499 if when == "before" else 200)
    call.again()


def test_bytes_of_a_drain_without_an_event(drain):
    call = Call(drain, "chat")
    up = call.script(before=True)
    up.rest = (b": " + b"c" * 65534 + b"\n\n" for _ in range(4000))
    c = call.start(before=True)
    c.reset()
    up.stays()
    up.gate.set()
    assert up.over.wait(LIMIT) and up.outcome == "gone"
    assert up.sent < 50 * 2 ** 20
    call.logged(False, 499)
    call.again()


def test_long_drain_is_whole(drain):
    """Below the limit all is read, and memory does not grow with it."""
    call = Call(drain, "chat")
    up = call.script(words=["w" * 16384] * 1500, framing="close")
    c = call.start()
    before = drain.memory()
    c.reset()
    up.assert_end(True)
    call.logged(True, 200)
    if not lib.ASAN:
        assert drain.memory() - before < 8 * 2 ** 20


def test_pipelined_call_is_no_abort(mode, g):
    """A second request after the first, in the same write and later."""
    call = Call(g, "chat")
    text = build("POST", CHAT, call.headers(), body=call.body)
    for split in (False, True):
        up = call.script()
        with g.connect() as c:
            c.send(text if split else text + text)
            assert up.held.wait(LIMIT)
            assert c.head().status == 200
            if split:
                c.send(text[:100])
                g.wait_idle()
                c.send(text[100:])
            assert not up.over.wait(SETTLE), "the first call was canceled"
            second = Script(g, up.first, up.rest)
            second.gate.set()
            g.b.script(second)
            up.gate.set()
            while c.read():
                pass
            assert c.current.complete
            assert c.current.body.endswith(DONE)
            r = c.response()
            assert r.status == 200 and r.body.endswith(DONE), r
            assert up.over.wait(LIMIT) and second.over.wait(LIMIT)
            assert up.outcome == second.outcome == "whole"


def test_pipelined_bytes_and_the_end(mode, g):
    """The client leaves when bytes of a next request have been received."""
    call = Call(g, "chat")
    up = call.script()
    c = call.start()
    c.send(b"POST " * 1000)
    g.wait_idle()
    c.close()
    up.assert_end(mode == "drain")
    call.logged(mode == "drain", 200)


@pytest.mark.parametrize("kind", ["chat", "json"])
def test_request_and_end_in_one(mode, g, kind):
    """The client's FIN is received before its request is read."""
    call = Call(g, kind)
    up = call.script(before=True)
    c = g.connect()
    c.send(build("POST", call.target, call.headers(), body=call.body))
    c.sock.shutdown(socket.SHUT_WR)
    end = time.monotonic() + LIMIT
    while not up.held.wait(0.01) and not any(
            one["tag"] == call.tag for one in lines(g)):
        assert time.monotonic() < end, "the call was not handled"
    if up.held.is_set():        # the upstream had got it by then
        up.assert_end(drained(mode, call))
    got = call.line()
    assert got["status"] == "499", got
    c.close()
    up.gate.set()
    call.again()


def test_what_was_not_sent_is_cut(gateway, mode):
    """Nothing is billed for a request that was not sent."""
    blackhole = Blackhole()
    try:
        g = begin(gateway, mode, b=blackhole)
        call = Call(g, "json")
        c = g.connect()
        c.request("POST", call.target, call.headers(), body=call.body)
        g.wait_idle()
        assert not lines(g)
        c.reset()
        got = line(g, call.tag)
        assert got["status"] == "499", got
    finally:
        blackhole.stop()


def test_client_that_never_reads(gateway, mode):
    """nginx's send_timeout applies in every mode."""
    g = begin(gateway, mode, "send_timeout 1s;")
    call = Call(g, "chat")
    up = call.script(words=["%05d" % n + "w" * 16000 for n in range(1000)])
    up.gate.set()
    with g.connect(rcvbuf=4096) as c:
        c.request("POST", call.target, call.headers(), body=call.body)
        assert c.head().status == 200
        assert up.over.wait(LIMIT), "the connection stays open"
        assert up.outcome == "gone"
        call.logged(False, 200)


def test_drain_outlives_a_reload(gateway):
    g = begin(gateway, "drain")
    call = Call(g, "chat")
    up = call.script()
    c = call.start()
    c.reset()
    up.stays()
    g.reload()
    up.assert_end(True)
    call.logged(True, 200)


def test_default_is_auto(gateway):
    g = begin(gateway)
    for kind in ("chat", "json"):
        call = Call(g, kind)
        up = call.script()
        c = call.start()
        c.reset()
        up.assert_end(kind == "json")
        call.line()


def test_proxy_ignore_client_abort_changes_nothing(gateway):
    for value in ("on", "off"):
        g = begin(gateway, "auto", "proxy_ignore_client_abort %s;" % value)
        call = Call(g, "chat")
        up = call.script()
        call.start().reset()
        up.assert_end(False)


@pytest.mark.parametrize("mode", ["drain", "auto"])
def test_abort_anywhere(gateways, mode):
    """200 clients leave at random, many at a time; each call that reached the
    upstream is complete in the log of a gateway that drains."""
    for gw in checked(gateways[mode]):
        anywhere(gw, mode, random.Random(6))


def anywhere(gw, mode, rng):
    calls = []
    streams = {gw.a: message_stream("large-2026-01-01", ["word"] * 20),
               gw.b: chat_stream("one-0613", ["word"] * 20)}
    for up, events in streams.items():
        up.script(pieces(b"".join(events), rng.randrange(1 << 30)))

    def one(seed):
        own = random.Random(seed)
        call = Call(gw, own.choice(["chat", "messages", "translated"]))
        calls.append(call)
        if own.random() < 0.3:
            leave_h2(call, own)
        else:
            leave(call, own)

    for _ in range(10):
        threads = [threading.Thread(target=one, args=(rng.random(),))
                   for _ in range(20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(LIMIT)

    assert len(calls) == 200
    whole = 0
    for call in calls:
        got = call.line()
        whole += got["complete"] == "1"
        if mode == "drain" and got["complete"] != "":
            assert (got["input"], got["output"], got["complete"]) \
                == ("11", "7", "1"), got
    assert whole > (150 if mode == "drain" else 5)
    for up in (gw.a, gw.b):
        up.reset()
    Call(gw, "chat").again()
    Call(gw, "messages").again()


def pieces(text, seed):
    """The stream in pieces that do not end where events do."""

    def script(x):
        own = random.Random(seed)
        at = 0
        x.head(200, [("Content-Type", "text/event-stream")],
               framing="chunked")
        while at < len(text):
            n = own.randrange(1, 400)
            x.body(text[at:at + n])
            at += n
            time.sleep(own.random() * 0.01)
        x.end()

    return script


def leave(call, own):
    with call.gw.connect(rcvbuf=own.choice([None, 2048])) as c:
        c.request("POST", call.target, call.headers(), body=call.body)
        limit = own.randrange(5000)
        got = 0
        while got < limit:
            try:
                if not c.recv(own.choice([0.01, 0.05, 5])):
                    break
            except TimeoutError:
                break
            got += len(c.data)
            c.data = b""
        time.sleep(own.random() * 0.05)
        LEAVE[own.choice(list(LEAVE))](c)
        time.sleep(own.random() * 0.05)


def leave_h2(call, own):
    with client.H2(call.gw.port2) as c:
        sid = c.request("POST", call.target, call.headers(), call.body)
        try:
            c.body(sid, own.randrange(5000), own.choice([0.01, 0.05, 5]))
        except TimeoutError:
            pass
        if c.streams[sid].over:
            return
        if own.random() < 0.5:
            c.reset(sid)
            time.sleep(own.random() * 0.05)
        elif own.random() < 0.5:
            c.wire.reset()


# configuration

@pytest.mark.parametrize("value,text", [
    ("modelgw_abort never;", 'invalid value "never"'),
    ("modelgw_abort auto; modelgw_abort cut;", "is duplicate"),
    ("modelgw_abort;", "invalid number of arguments"),
    ("modelgw_abort_timeout soon;", "invalid value")])
def test_bad_values(check, value, text):
    r = check(location=value)
    assert r.returncode != 0 and text in r.stderr, r.stderr


@pytest.mark.parametrize("where", ["http", "server", "location"])
def test_contexts(check, where):
    r = check(**{where: "modelgw_abort drain; modelgw_abort_timeout 5m;"})
    assert r.returncode == 0, r.stderr


def test_no_finish_in_an_empty_reason(gateways):
    """Some upstreams say "finish_reason": "" until the answer ends."""
    for gw in checked(gateways["auto"]):
        call = Call(gw, "chat")
        up = call.script()
        part = data(chat_chunk("one-0613", {"content": "Hel"}, ""))
        up.first = [part, part]
        up.rest = [part, data(chat_usage_chunk("one-0613")), DONE]
        c = call.start()
        while b"Hel" not in c.event():
            pass
        c.reset()
        up.assert_end(False)
