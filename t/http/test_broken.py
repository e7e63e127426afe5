"""Streams and answers that break off never look complete.

A stream that breaks after its first event ends with an error frame in the form
of its protocol, without the terminal event, and without a proper end of the
response.  Before the first event the response is an error status.
"""

import itertools
import json
import time

import pytest

import client
from client import assert_flat
from gateway import STALL, chat, messages
from upstream import (DONE, chat_completion, chat_error, chat_stream, data,
                      event, message, message_error, message_stream, raw,
                      reply, sse)

COUNT = itertools.count()

# time between the upstream's end and the client's, by nginx's clock
LOG = """log_format end escape=json '{"tag":"$http_x_test_tag",'
        '"took":"$request_time","upstream":"$upstream_response_time",'
        '"at":"$msec","completion":"$request_completion"}';"""
SERVER = "access_log $dir/end.log end;"

GRACE = 0.19        # seconds; the clocks are in whole milliseconds

TERMINAL = {"chat": b"[DONE]", "messages": b"message_stop"}


class Side:

    def __init__(self, gw, name):
        chatty = name == "chat"
        self.name = name
        self.up = gw.b if chatty else gw.a
        self.call = gw.chat if chatty else gw.messages
        self.body = chat(stream=True) if chatty else messages(stream=True)
        self.plain = chat() if chatty else messages()
        self.events = chat_stream("one-0613", usage=False) if chatty \
            else message_stream("large-2026-01-01")
        self.answer = json.dumps(
            chat_completion("one-0613", "x" * 3000) if chatty
            else message("large-2026-01-01", "x" * 3000)).encode()


@pytest.fixture(params=["chat", "messages"])
def name(request):
    return request.param


def gateway_of(make, version, more=""):
    return make(http=LOG, server=SERVER, listen="sndbuf=16k", gateway="""
        location /v1/ {
            modelgw on;
            proxy_http_version %s;
            proxy_set_header Connection "";
            %s
            proxy_pass $modelgw_upstream;
        }""" % (version, more))


@pytest.fixture(scope="module", params=["1.1", "1.0"])
def broken(request, module_gateway):
    """Gateways with short timeouts, with both HTTP versions to the
    upstream."""
    return gateway_of(module_gateway, request.param,
                      "proxy_read_timeout %ds; send_timeout %ds;"
                      % (STALL, 2 * STALL))


@pytest.fixture(scope="module", params=["1.1", "1.0"])
def no_timeouts(request, module_gateway):
    return gateway_of(module_gateway, request.param)


@pytest.fixture
def side(broken, name):
    broken.a.reset(), broken.b.reset()
    return Side(broken, name)


def frames(body):
    return [f for f in body.split(b"\n\n") if f]


def assert_error_frame(frame, name):
    """The frame on which clients of the protocol raise an error."""
    lines = frame.split(b"\n")
    values = [line[5:].strip() for line in lines if line.startswith(b"data:")]
    obj = json.loads(b"\n".join(values))
    if name == "chat":
        assert isinstance(obj["code"], str) and obj["code"]
        assert isinstance(obj["message"], str) and obj["message"]
        assert obj["error"]["code"] == obj["code"]
        assert obj["error"]["message"] == obj["message"]
    else:
        assert b"event: error" in lines
        assert obj["type"] == "error"
        assert obj["error"]["type"].endswith("_error")
        assert obj["error"]["message"]
    return obj


def assert_broken(r, name, sent=None):
    """The response looks broken to every client."""
    assert r.status == 200, r
    assert not r.complete, r
    parts = frames(r.body)
    assert_error_frame(parts[-1], name)
    assert TERMINAL[name] not in r.body
    if sent is not None:
        assert parts[:-1] == frames(sent)


def mapped(events):
    return b"".join(events).replace(b"one-0613", b"fam-b-one").replace(
        b"large-2026-01-01", b"fam-a-large")


@pytest.mark.parametrize("how", ["close", "reset", "stall"])
@pytest.mark.parametrize("framing", ["chunked", "sized", "close"])
def test_in_the_middle(side, framing, how, http):
    events = side.events[:3]
    side.up.script(sse(events + [0.05], framing=framing, end=how))
    r = side.call(side.body, version=http)
    # a reset may overtake what was sent before it
    assert_broken(r, side.name, None if how == "reset" else mapped(events))


@pytest.mark.parametrize("how", ["clean", "close"])
@pytest.mark.parametrize("framing", ["chunked", "sized", "close"])
def test_without_the_terminal_event(side, framing, how, http):
    """A proper end of the framing, but no [DONE], no message_stop."""
    events = side.events[:-1]
    side.up.script(sse(events, framing=framing, end=how))
    r = side.call(side.body, version=http)
    assert_broken(r, side.name, mapped(events))


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_half_an_event(side, framing, http):
    """A partial event is not passed on."""
    part = side.events[1][:-9]
    side.up.script(sse(side.events[:1] + [part, 0.05], framing=framing,
                       end="close"))
    r = side.call(side.body, version=http)
    assert r.status == 200 and not r.complete
    assert_error_frame(frames(r.body)[-1], side.name)
    assert TERMINAL[side.name] not in r.body


@pytest.mark.parametrize("framing", ["chunked", "close"])
@pytest.mark.parametrize("cut", [1, 2])
def test_event_without_its_blank_line(side, framing, cut):
    """A whole document, but the upstream broke off before the event's end: it
    may pass or not, but is never merged with the error frame."""
    side.up.script(sse([side.events[0], side.events[1][:-cut], 0.05],
                       framing=framing, end="close"))
    r = side.call(side.body)
    assert r.status == 200 and not r.complete
    parts = frames(r.body)
    assert parts[:-1] in (frames(mapped(side.events[:1])),
                          frames(mapped(side.events[:2])))
    assert_error_frame(parts[-1], side.name)
    assert parts[-1].count(b"data:") == 1


def test_terminal_event_without_its_blank_line(side):
    """Cut before the last byte: either complete or broken."""
    events = side.events[:-1] + [side.events[-1].rstrip(b"\n")]
    side.up.script(sse(events, framing="close"))
    r = side.call(side.body)
    if not r.complete:
        assert_error_frame(frames(r.body)[-1], side.name)


@pytest.mark.parametrize("how,status,code", [
    ("close", 502, "UPSTREAM_ERROR"), ("reset", 502, "UPSTREAM_ERROR"),
    ("stall", 504, "UPSTREAM_TIMEOUT"), ("clean", 502, "UPSTREAM_ERROR")])
@pytest.mark.parametrize("framing", ["chunked", "sized", "close"])
def test_before_the_first_event(side, framing, how, status, code, http):
    """The head of a stream and no event: an error status."""
    side.up.script(sse([0.02], framing=framing, end=how))
    r = side.call(side.body, version=http)
    assert_flat(r, status, code)


@pytest.mark.parametrize("how", ["close", "stall"])
def test_only_a_part_of_the_first_event(side, how):
    side.up.script(sse([side.events[0][:10]], end=how))
    r = side.call(side.body)
    if r.status == 200:
        assert not r.complete
        assert_error_frame(frames(r.body)[-1], side.name)
    else:
        assert_flat(r, (502, 504))


def test_only_comments(side):
    side.up.script(sse([b": ping\n\n"] * 3, end="close"))
    r = side.call(side.body)
    if r.status == 200:
        assert not r.complete
        assert_error_frame(frames(r.body)[-1], side.name)
    else:
        assert_flat(r, 502, "UPSTREAM_ERROR")


@pytest.mark.parametrize("how", ["clean", "close", "reset", "stall"])
def test_after_the_terminal_event(side, how):
    """However the upstream ends after the last event, the stream is
    complete."""
    side.up.script(sse(side.events + [0.05], end=how))
    r = side.call(side.body)
    assert r.status == 200 and r.complete, r
    assert r.body == mapped(side.events)


def test_events_after_the_terminal_event(side):
    """Whatever follows, the client's stream is complete."""
    side.up.script(sse(side.events + [b": bye\n\n"], end="close"))
    r = side.call(side.body)
    assert r.status == 200 and r.complete, r
    assert r.body.startswith(mapped(side.events))


def test_broken_chunk_framing(side):
    side.up.script(raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream"
                       b"\r\nTransfer-Encoding: chunked\r\n\r\n",
                       b"%x\r\n" % len(side.events[0]) + side.events[0]
                       + b"\r\n", 0.1, b"zzzz\r\n", "close"))
    r = side.call(side.body)
    assert_broken(r, side.name)


def test_next_request_after_a_broken_stream(side, broken):
    """The connection is not reused, the gateway goes on."""
    side.up.script(sse(side.events[:2], end="close"))
    with broken.connect() as c:
        key = broken.bob if side.name == "chat" else broken.alice
        target = "/v1/chat/completions" if side.name == "chat" \
            else "/v1/messages"
        c.request("POST", target, [key.bearer()], body=side.body)
        r = c.response()
        assert_broken(r, side.name)
        assert c.closed()
    side.up.reset()
    assert side.call(side.body).complete


def test_break_is_told_at_once(no_timeouts, name):
    """Without waiting for a timeout: none is set."""
    no_timeouts.a.reset(), no_timeouts.b.reset()
    side = Side(no_timeouts, name)
    side.up.script(sse(side.events[:2], end="close"))
    assert_broken(side.call(side.body), side.name)


# the abnormal end follows the error frame after a delay

class Ending:
    """A stream whose client can be found in the log."""

    def __init__(self, gw, side):
        self.gw, self.side = gw, side
        self.tag = "end-%d" % next(COUNT)
        self.target = "/v1/chat/completions" if side.name == "chat" \
            else "/v1/messages"
        self.body = side.body
        self.headers = [(gw.bob if side.name == "chat" else gw.alice).bearer(),
                        ("X-Test-Tag", self.tag)]

    def call(self, version="h1"):
        return self.gw.request("POST", self.target, None, self.headers,
                               self.body, version=version)

    def start(self, **kw):
        c = self.gw.connect(**kw)
        c.request("POST", self.target, self.headers, body=self.body)
        return c

    def broken(self):
        """A client that has read the error frame."""
        self.side.up.script(sse(self.side.events[:2], end="close"))
        c = self.start()
        c.head()
        while b"error" not in c.event():
            pass
        return c

    def line(self, timeout=client.LIMIT):
        return self.gw.logged(self.tag, timeout, "end.log")

    def waited(self):
        line = self.line()
        return float(line["took"]) - float(line["upstream"])


GARBLED = b"data: {\n\n"


@pytest.mark.parametrize("how", ["close", "reset", "stall", "clean",
                                 "garbled", "chunk"])
def test_the_end_follows_the_error_frame(side, broken, how, http):
    """Clients that get both at once drop the frame."""
    events = side.events[:2]
    if how == "chunk":
        side.up.script(sse(events + [0.05, lambda x: x.send(b"zzzz\r\n")],
                           end="stall"))
    elif how == "garbled":
        side.up.script(sse(events + [GARBLED], end="stall"))
    else:
        side.up.script(sse(events + [0.05], end=how))
    one = Ending(broken, side)
    assert_broken(one.call(http), side.name,
                  None if how == "reset" else mapped(events))
    assert one.waited() >= GRACE
    if how != "clean":          # the upstream connection is closed at once
        assert side.up.last().gone.wait(client.LIMIT)


def test_an_error_of_the_upstream_ends_at_once(side, broken):
    """It ends properly: there is no delay."""
    error = event("error", message_error("x")) if side.name == "messages" \
        else data(chat_error("x"))

    def ended():
        one = Ending(broken, side)
        side.up.script(sse(side.events[:2] + [error]))
        r = one.call()
        assert r.complete and b'"error"' in r.body
        return one.waited()

    assert any(ended() < GRACE for _ in range(5))


@pytest.fixture
def big(side):
    """One event, larger than all buffers on the way, then nothing: only a
    timeout breaks the stream while output waits for the client."""
    text = [e for e in side.events if b"Hel" in e][0].replace(
        b"Hel", b"H" + b"e" * 3500000 + b"l")
    side.up.script(sse(side.events[:1] + [text], end="stall"))
    return mapped(side.events[:1] + [text])


BROKEN = "cannot be passed on: it ended before"


def wait_broken(gw, before):
    end = time.monotonic() + client.LIMIT
    while gw.log_count(BROKEN) == before:
        assert time.monotonic() < end, "the break was not noticed"
        time.sleep(0.01)


def test_the_grace_begins_when_the_frame_is_flushed(side, broken, big):
    one = Ending(broken, side)
    before = broken.log_count(BROKEN)
    with one.start(rcvbuf=4096) as c:
        wait_broken(broken, before)
        begin = time.time()
        assert_broken(c.response(), side.name, big)
    assert float(one.line()["at"]) - begin >= GRACE


def test_the_grace_begins_when_the_frame_is_flushed_h2(side, broken, big):
    one = Ending(broken, side)
    before = broken.log_count(BROKEN)
    with client.H2(broken.port2) as c:
        sid = c.request("POST", one.target, one.headers, one.body)
        wait_broken(broken, before)
        begin = time.time()
        assert_broken(c.response(sid), side.name, big)
    assert float(one.line()["at"]) - begin >= GRACE


@pytest.mark.parametrize("version", ["h1", "h2"])
def test_a_frame_that_is_not_read_is_bounded(side, broken, big, version):
    """By send_timeout, as any response."""
    one = Ending(broken, side)
    before = broken.log_count(BROKEN)
    if version == "h1":
        c = one.start(rcvbuf=4096)
    else:
        c = client.H2(broken.port2)
        c.request("POST", one.target, one.headers, one.body)
    with c:
        wait_broken(broken, before)
        one.line()


@pytest.mark.parametrize("how", ["close", "reset"])
def test_the_client_leaves_within_the_grace(side, broken, how):
    one = Ending(broken, side)
    with one.broken() as c:
        getattr(c, how)()
    one.line()
    side.up.reset()
    assert side.call(side.body).complete


@pytest.mark.parametrize("how", ["stream", "connection"])
def test_the_client_leaves_within_the_grace_h2(side, broken, how):
    side.up.script(sse(side.events[:2], end="close"))
    one = Ending(broken, side)
    with client.H2(broken.port2) as c:
        sid = c.request("POST", one.target, one.headers, one.body)
        while b"error" not in c.streams[sid].data:
            c.wait()
        if how == "connection":
            c.close()
        elif not c.streams[sid].over:
            c.reset(sid)
        one.line()
    side.up.reset()
    assert side.call(side.body).complete


def test_a_worker_that_has_to_stop_waits_for_the_grace(side, broken):
    one = Ending(broken, side)
    with one.broken() as c:
        broken.reload()
        assert c.closed()
    assert one.waited() >= GRACE


# answers that are no streams

@pytest.mark.parametrize("how,status", [("close", 502), ("reset", 502),
                                        ("stall", 504)])
@pytest.mark.parametrize("framing", ["sized", "chunked"])
def test_answer_that_ends_early(side, framing, how, status, http):
    half = side.answer[:len(side.answer) // 2]
    side.up.script(reply(200, half, framing=framing, end=how,
                         length=len(side.answer)))
    r = side.call(side.plain, version=http)
    assert_flat(r, status, {502: "UPSTREAM_ERROR",
                            504: "UPSTREAM_TIMEOUT"}[status])


def test_answer_cut_by_the_close(side, http):
    """Without a length only the JSON shows that it is truncated."""
    side.up.script(reply(200, side.answer[:-1], framing="close"))
    assert_flat(side.call(side.plain, version=http), 502, "UPSTREAM_ERROR")


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("framing", ["sized", "chunked", "close"])
def test_big_answer_that_ends_early(side, framing, how):
    """An error status if the head was not sent yet, else the connection is
    closed early."""
    answer = side.answer.replace(b"xxx", b"x" * 900)
    side.up.script(reply(200, answer[:-9], framing=framing, end=how,
                         length=len(answer)))
    r = side.call(side.plain)
    if r.status == 200:
        assert not r.complete
    else:
        assert_flat(r, 502, "UPSTREAM_ERROR")


@pytest.mark.parametrize("at", [1, 2, 5, 10])
def test_answer_cut_anywhere(side, at):
    for i in range(1, len(side.answer) - 1, len(side.answer) // at - 1):
        side.up.script(reply(200, side.answer[:i], framing="close"))
        assert_flat(side.call(side.plain), 502, "UPSTREAM_ERROR")


# errors that the upstream puts into a stream

@pytest.mark.parametrize("end", ["clean", "close", "stall"])
def test_error_event_of_messages(broken, end):
    """The upstream's event passes, or one of the same form and type is
    made."""
    events = message_stream("large-2026-01-01")[:3]
    error = event("error", message_error("Overloaded", "overloaded_error"))
    broken.a.reset()
    broken.a.script(sse(events + [error, 0.05], end=end))
    r = broken.messages(messages(stream=True))
    assert r.status == 200 and b"message_stop" not in r.body
    parts = frames(r.body)
    obj = assert_error_frame(parts[3], "messages")
    assert obj["error"]["type"] == "overloaded_error"
    assert parts[:3] == frames(mapped(events))


@pytest.mark.parametrize("end", ["clean", "close", "stall"])
def test_error_frame_of_chat(broken, end):
    """One error frame on which chat clients raise an error, and no [DONE]."""
    events = chat_stream("one-0613", usage=False)[:2]
    error = data(chat_error("The server had an error", "server_error"))
    broken.b.reset()
    broken.b.script(sse(events + [error, 0.05], end=end))
    r = broken.chat(chat(stream=True))
    assert r.status == 200 and b"[DONE]" not in r.body
    parts = frames(r.body)
    assert_error_frame(parts[2], "chat")
    assert parts[:2] == frames(mapped(events))


def test_error_frame_and_done(broken):
    """[DONE] after an error does not make the stream complete."""
    events = chat_stream("one-0613", usage=False)[:2]
    broken.b.reset()
    broken.b.script(sse(events + [data(chat_error("x")), DONE]))
    r = broken.chat(chat(stream=True))
    assert b'"error"' in r.body


def test_error_as_the_first_event(broken):
    """Nothing was sent yet: an error status, or a stream with the error."""
    broken.a.reset(), broken.b.reset()
    broken.a.script(sse([event("error", message_error("first"))]))
    broken.b.script(sse([data(chat_error("first"))]))
    for r in (broken.messages(messages(stream=True)),
              broken.chat(chat(stream=True))):
        if r.status == 200:
            assert b"first" in r.body and b'"error"' in r.body
        else:
            assert_flat(r, (400, 502, 503))


def test_K6_secrets_in_error_events(broken):
    text = "key %s at https://api.vendor-%s.test/x model large-2026-01-01"
    broken.a.reset(), broken.b.reset()
    broken.a.script(sse(message_stream("large-2026-01-01")[:2] + [event(
        "error", message_error(text % (broken.secret_a, "a")))]))
    broken.b.script(sse(chat_stream("one-0613", usage=False)[:2] + [data(
        chat_error(text % (broken.secret_b, "b")))]))
    for r, secret in ((broken.messages(messages(stream=True)),
                       broken.secret_a),
                      (broken.chat(chat(stream=True)), broken.secret_b)):
        assert secret.encode() not in r.body
        assert b"vendor-" not in r.body
    assert b"large-2026-01-01" not in broken.messages(
        messages(stream=True)).body


@pytest.mark.timed("pauses shorter and longer than a timeout")
def test_silence_in_a_long_stream(broken, name):
    """Pauses below the timeout do no harm; above it the stream breaks."""
    side = Side(broken, name)
    side.up.reset()
    pause = 1.2 * STALL / len(side.events)
    side.up.script(sse([x for e in side.events for x in (e, pause)]))
    assert side.call(side.body).complete
    side.up.script(sse(side.events[:2] + [STALL + 1.5] + side.events[2:]))
    assert_broken(side.call(side.body), name)
