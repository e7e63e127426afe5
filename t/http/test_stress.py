"""Calls of all kinds in parallel, each of which gets its own answer."""

import random
import threading
import time

import pytest

import client
import gateway as lib
from gateway import chat, messages
from upstream import (DONE, chat_chunk, chat_completion, data, event, message,
                      message_stream, raw, reply, reply_json, sse)

SECONDS = 4
THREADS = 8


def answer(x):
    """Answers with the caller's word, or fails as the word requests."""
    body = x.request.json()
    word = body["messages"][0]["content"]
    kind = word.split("-")[0]
    model = body["model"]
    stream = body.get("stream")
    chatty = "chat" in x.request.target

    if kind == "error":
        reply_json({"error": {"message": word}}, 400)(x)
    elif kind == "close":
        raw("close")(x)
    elif kind == "cut":
        if stream:
            sse([data(chat_chunk(model, {"content": word})) if chatty else
                 message_stream(model, [word])[0]], end="reset")(x)
        else:
            reply(200, b'{"model":"' + word.encode(), length=500,
                  end="close")(x)
    elif not stream:
        reply_json((chat_completion if chatty else message)(model, word),
                   framing=random.choice(["sized", "chunked"]))(x)
    elif chatty:
        sse([data(chat_chunk(model, {"content": word}))
             for _ in range(20)] + [DONE])(x)
    else:
        sse(message_stream(model, [word] * 20))(x)


class Caller(threading.Thread):

    def __init__(self, g, seed):
        super().__init__()
        self.g = g
        self.random = random.Random(seed)
        self.seed = seed
        self.calls = 0
        self.fault = None

    def run(self):
        end = time.monotonic() + SECONDS
        try:
            while time.monotonic() < end:
                self.call()
                self.calls += 1
        except Exception as e:
            self.fault = e

    def call(self):
        kind = self.random.choice(["good", "good", "good", "error", "close",
                                   "cut", "abort", "field", "key"])
        word = "%s-%d-%d" % (kind, self.seed, self.calls)
        stream = self.random.random() < 0.5
        chatty = self.random.random() < 0.5
        key = self.g.bob if chatty else self.g.alice
        target = "/v1/chat/completions" if chatty else "/v1/messages"
        body = (chat if chatty else messages)(stream=stream)
        body["messages"][0]["content"] = word
        body["pad"] = "p" * self.random.choice([0, 100, 20000])
        if kind == "field":
            body["Model"] = "x"
        if kind == "key":
            key = self.g.dave

        if kind == "abort":
            with client.Connection(self.g.port) as c:
                c.request("POST", target, [key.bearer()], body=body)
                if self.random.random() < 0.5:
                    c.recv()
                c.reset()
            return

        how = self.random.choice([{}, {"chunked": True}, {"version": "h2"}])
        r = self.g.post(target, body, key, **how)
        self.check(kind, word, stream, r)

    def check(self, kind, word, stream, r):
        assert r is not None, word
        if kind == "good":
            assert r.status == 200 and r.complete, (word, r)
            assert r.body.count(word.encode()) == (20 if stream else 1)
        elif kind == "error":
            assert r.status == 400 and r.json()["message"] == word
        elif kind == "close":
            assert r.status == 502, r
        elif kind == "field":
            assert r.status == 400, r
        elif kind == "key":
            assert r.status == 401, r
        elif r.status == 200:
            assert not r.complete, (word, r)
        else:
            assert r.status == 502, r
        others = r.body.replace(word.encode(), b"")
        assert b"good-" not in others and b"error-" not in others, (word, r)


@pytest.mark.parametrize("buffer", ["2m", "1k"])
def test_everything_at_once(gateway, buffer):
    g = gateway(location="client_body_buffer_size %s;" % buffer)
    for u in (g.a, g.b):
        u.script(answer)
    callers = [Caller(g, i) for i in range(THREADS)]
    for c in callers:
        c.start()
    for c in callers:
        c.join(SECONDS + 20)
        assert not c.is_alive()
    assert [c.fault for c in callers if c.fault] == []
    assert sum(c.calls for c in callers) > 100
    for u in (g.a, g.b):
        u.reset()
    assert g.chat().status == 200 and g.messages().status == 200


@pytest.mark.timed("an answer within a second, once in five times")
def test_many_idle_streams(gateway):
    """The gateway is as fast with three hundred open streams."""
    g = gateway()
    gate = threading.Event()
    first = data(chat_chunk("one-0613", {"content": "a"}))
    g.b.script(sse([first, gate, DONE]))
    conns = []
    for _ in range(300):
        c = g.connect()
        c.request("POST", "/v1/chat/completions", [g.bob.bearer()],
                  body=chat(stream=True))
        conns.append(c)
    for c in conns:
        assert c.head().status == 200
        assert c.event()
    for _ in range(20):
        assert lib.within(g.messages, 1).status == 200
    gate.set()
    for c in conns:
        while c.read():
            pass
        assert c.current.complete
        c.close()


def test_silence_of_a_client_costs_only_itself(gateway):
    """L8: heads and bodies that never end do not delay other calls."""
    g = gateway(location="client_body_timeout 2s;")
    idle = []
    for i in range(100):
        c = g.connect()
        c.send(client.build("POST", "/v1/chat/completions",
                            [g.bob.bearer()], length=1000)[:40 + i])
        idle.append(c)
    for i in range(50):
        c = g.connect()
        c.send(client.build("POST", "/v1/chat/completions",
                            [g.bob.bearer()], length=1000) + b'{"a":"')
        idle.append(c)
    for _ in range(20):
        assert g.chat().status == 200
    for c in idle:
        c.close()


def test_events_of_two_protocols_side_by_side(gateway):
    """Two streams of one client, alternately: each has its own state."""
    g = gateway(groups=lib.group_a() + lib.group_b())
    one = [threading.Event() for _ in range(8)]
    two = [threading.Event() for _ in range(8)]
    chats = [data(chat_chunk("one-0613", {"content": "c%d" % i}))
             for i in range(7)] + [DONE]
    msgs = message_stream("large-2026-01-01")
    g.b.script(sse([x for p in zip(one, chats) for x in p]))
    g.a.script(sse([x for p in zip(two, msgs) for x in p]
                   + msgs[len(two):]))
    with client.H2(g.port2) as c:
        a = c.request("POST", "/v1/messages", [g.alice.bearer()],
                      messages(stream=True))
        b = c.request("POST", "/v1/chat/completions", [g.bob.bearer()],
                      chat(stream=True))
        for x, y in zip(one, two):
            x.set(), y.set()
        ra, rb = c.response(a), c.response(b)
    assert ra.complete and rb.complete
    assert ra.body == b"".join(msgs).replace(b"large-2026-01-01",
                                             b"fam-a-large")
    assert rb.body == b"".join(chats).replace(b"one-0613", b"fam-b-one")
    assert event("ping", {"type": "ping"}) in ra.body
