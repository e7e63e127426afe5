"""Event streams: each event is sent when it arrives, byte for byte except for
the model's id; usage is requested and hidden again."""

import contextlib
import gzip
import json
import random
import threading
import time

import pytest

import client
import gateway as lib
from client import assert_ids, build
from gateway import chat, messages
from upstream import (DONE, LIMIT, chat_chunk, chat_completion, chat_stream,
                      chat_usage_chunk, data, event, message_stream,
                      message_usage, raw, reply_json, sse)

USAGE_ON = {"include_usage": True}


@pytest.fixture(params=["chunked", "close"])
def framing(request):
    return request.param


@pytest.fixture(params=["chat", "messages"])
def protocol(request):
    return request.param


class Proto:
    """What differs between the protocols, for tests of both."""

    def __init__(self, gw, name):
        chatty = name == "chat"
        self.up = gw.b if chatty else gw.a
        self.send = gw.chat if chatty else gw.messages
        self.key = gw.bob if chatty else gw.alice
        self.target = "/v1/chat/completions" if chatty else "/v1/messages"
        self.id = b"one-0613" if chatty else b"large-2026-01-01"
        self.service = b"fam-b-one" if chatty else b"fam-a-large"
        self.body = (chat if chatty else messages)(stream=True)
        self.events = chat_stream("one-0613", usage=False) if chatty \
            else message_stream("large-2026-01-01")

    def mapped(self, events=None):
        return b"".join(e for e in events or self.events
                        if isinstance(e, bytes)).replace(self.id,
                                                         self.service)


@pytest.fixture
def p(gw, protocol):
    return Proto(gw, protocol)


def start(gw, p, **kw):
    c = gw.connect(**kw)
    c.request("POST", p.target, [p.key.bearer()], body=p.body)
    return c


def test_stream(p, framing, http):
    p.up.script(sse(p.events, framing=framing))
    r = p.send(p.body, version=http)
    assert r.status == 200 and r.complete, r
    assert r.get("content-type").startswith("text/event-stream")
    assert_ids(r)
    assert r.body == p.mapped()


def test_each_event_leaves_when_it_came(gw, p, framing):
    """The upstream sends an event only after the client has the last one."""
    gates = [threading.Event() for _ in p.events]
    steps = [x for pair in zip(gates, p.events) for x in pair]
    p.up.script(sse(steps, framing=framing))
    with start(gw, p) as c:
        got = []
        for i, gate in enumerate(gates):
            gate.set()
            if i == 0:
                assert c.head().status == 200
            got.append(c.event())
        assert c.event() == b""
        assert c.current.complete
    assert b"".join(got) == p.mapped()


def test_each_event_leaves_when_it_came_h2(gw, p):
    gates = [threading.Event() for _ in p.events]
    steps = [x for pair in zip(gates, p.events) for x in pair]
    p.up.script(sse(steps))
    with client.H2(gw.port2) as c:
        sid = c.request("POST", p.target, [p.key.bearer()], p.body)
        want = b""
        for i, e in enumerate(p.events):
            gates[i].set()
            want += p.mapped([e])
            assert c.body(sid, len(want)) == want
        r = c.response(sid)
        assert r.complete and r.body == want


def test_head_leaves_before_the_first_event_is_needed(gw, p):
    """The head may wait for the first event, but not for the second."""
    gate = threading.Event()
    p.up.script(sse([p.events[0], gate] + p.events[1:]))
    with start(gw, p) as c:
        assert c.head().status == 200
        assert c.event() == p.mapped([p.events[0]])
        gate.set()
        while c.read():
            pass
        assert c.current.complete and c.current.body == p.mapped()


def test_connection_is_free_at_once_after_the_last_event(gw, p):
    """Clients wait for the end of the response, not for the last event."""
    p.up.script(sse(p.events))
    with start(gw, p) as c:
        assert c.response().complete
        assert c.alive()
        c.request("GET", "/v1/models", [p.key.bearer()])
        assert c.response().status == 200


def test_the_end_does_not_wait_for_the_upstream(gw, p):
    """Clients wait for the end of the response: it follows the last event,
    also if the upstream takes its time to end."""
    gate = threading.Event()
    p.up.script(sse(p.events + [gate]))
    with start(gw, p) as c:
        r = c.response()
        assert r.complete and r.body == p.mapped()
        gate.set()


ODD_CHAT = [
    b": comment\n\n", b":\n\n", b"\n", b"retry: 1000\n\n", b"id: 7\n\n",
    b"data:%s\n\n" % json.dumps(chat_chunk("one-0613", {"content": "a"}),
                                separators=(",", ":")).encode(),
    b"data:   {\"model\" : \"one-0613\" ,\"choices\":[{}],\"x\":1.50}\n\n",
    b"event: x\nid: 1\ndata: {\"model\":\"one-0613\",\"choices\":[{}]}\n\n",
    b"data: {\"choices\":[{\"delta\":{\"content\":\"\\\"model\\\":\\\"q\\\""
    b"\"}}],\"model\":\"one-0613\"}\n\n",
    b"data: {\"choices\":[{\"model\":\"q\"}],\"y\":{\"model\":\"z\"},"
    b"\"model\":\"one-0613\"}\n\n",
    b"data\n\n", b"data: \n\n", b"x\n\n",
    b"data: {\"choices\":[{\"delta\":{\"content\":\"\xf0\x9f\x98\x80\"}}]}"
    b"\n\n", b"unknown: field\n\n"]


def test_odd_events_pass_as_they_are(gw):
    events = ODD_CHAT + chat_stream("one-0613", usage=False)
    gw.b.script(sse(events))
    r = gw.chat(chat(stream=True))
    assert r.status == 200 and r.complete, r
    assert r.body == b"".join(events).replace(b"one-0613", b"fam-b-one")


@pytest.mark.parametrize("ctype", [
    "text/event-stream; charset=utf-8", "text/event-stream;charset=UTF-8",
    "Text/Event-Stream"])
def test_content_types(p, ctype):
    p.up.script(sse(p.events, ctype=ctype))
    r = p.send(p.body)
    assert r.status == 200 and r.complete, r
    assert r.get("content-type").lower().startswith("text/event-stream")
    assert r.body == p.mapped()


@pytest.mark.parametrize("done", [
    b"data:[DONE]\n\n", b"data: [DONE]\r\n\r\n", b"data:  [DONE]\n\n",
    b"data: [DONE] \n\n", b"event: done\ndata: [DONE]\n\n",
    b": bye\n\ndata: [DONE]\n\n"])
def test_spellings_of_done(gw, done):
    """An end, however it is spelt; with odd blanks it may be none, but then
    the stream looks broken."""
    events = chat_stream("one-0613", usage=False)[:-1] + [done]
    gw.b.script(sse(events))
    r = gw.chat(chat(stream=True))
    assert r.status == 200
    if b"  [" in done or b"] " in done:
        assert r.complete or b'"error"' in r.body
    else:
        assert r.complete, r
    if r.complete:
        assert r.body == b"".join(events).replace(b"one-0613", b"fam-b-one")


def test_message_stop_without_its_event_line(gw):
    events = message_stream("large-2026-01-01")
    events = [e[e.index(b"data:"):] for e in events]
    gw.a.script(sse(events))
    r = gw.messages(messages(stream=True))
    assert r.complete
    assert r.body == b"".join(events).replace(b"large-2026-01-01",
                                              b"fam-a-large")


def test_L3_gzip_stream(p):
    """Unasked and not to be read: no upstream id gets out, no clean end."""
    body = gzip.compress(b"".join(p.events))
    p.up.script(sse([body], headers=[("Content-Encoding", "gzip")]))
    r = p.send(p.body)
    if r.status == 200:
        assert p.id not in r.body
        assert not (r.complete and r.get("content-encoding"))
    else:
        assert r.status == 502 and r.json()["code"] == "UPSTREAM_ERROR", r


@pytest.mark.parametrize("model", ["null", "5", '{"id":"one-0613"}', "[]"])
def test_model_of_another_type(p, model):
    """No string, no id of ours: not replaced, nothing broken."""
    odd = p.events[0].replace(b'"%s"' % p.id, model.encode())
    p.up.script(sse([odd] + p.events[1:]))
    r = p.send(p.body)
    assert r.status == 200 and r.complete, r
    assert r.body in (odd + p.mapped(p.events[1:]), p.mapped())


@pytest.mark.parametrize("junk", [b"data: not json\n\n", b"data: {\n\n",
                                  b"data: [1]\n\n", b"data: \xff\n\n"])
def test_data_that_is_no_document(p, junk):
    """Passes as it is, or breaks the stream for all to see."""
    p.up.script(sse(p.events[:1] + [junk] + p.events[1:]))
    r = p.send(p.body)
    assert r.status == 200
    if r.complete:
        assert r.body == p.mapped(p.events[:1] + [junk] + p.events[1:])
    else:
        assert b'"error"' in r.body.rstrip().rsplit(b"\n\n")[-1]


@pytest.mark.parametrize("eol", [b"\r\n", b"\r"], ids=["crlf", "cr"])
def test_L5_other_line_ends(p, eol):
    events = [e.replace(b"\n", eol) for e in p.events]
    p.up.script(sse(events))
    r = p.send(p.body)
    assert r.status == 200 and r.complete, r
    assert r.body == p.mapped(events)


def test_L5_byte_order_mark(p):
    events = [b"\xef\xbb\xbf" + p.events[0]] + p.events[1:]
    p.up.script(sse(events))
    r = p.send(p.body)
    assert r.complete and r.body == p.mapped(events)


def test_data_over_several_lines(gw):
    """The lines of one event are one document, joined by LF."""
    events = [b'data: {"id":"x",\ndata: "model":"one-0613",\n'
              b'data: "choices":[{"delta":{}}]}\n\n', DONE]
    gw.b.script(sse(events))
    r = gw.chat(chat(stream=True))
    assert r.status == 200 and r.complete, r
    assert b"one-0613" not in r.body
    lines = b"".join(line[5:] for line in r.body.split(b"\n\n")[0]
                     .split(b"\n") if line.startswith(b"data:"))
    assert json.loads(lines) == {"id": "x", "model": "fam-b-one",
                                 "choices": [{"delta": {}}]}


def test_another_upstream_id(gw):
    """Vendors answer with a dated id; the client sees its own."""
    gw.b.script(sse(chat_stream("one-0613-2026-09-09", usage=False)))
    r = gw.chat(chat(stream=True))
    assert r.body == b"".join(chat_stream("fam-b-one", usage=False))


@pytest.mark.parametrize("step", [1, 2, 3, 5, 11, 64])
def test_events_in_pieces(p, step):
    """Wherever the upstream's writes end."""
    whole = b"".join(p.events)
    pieces = []
    for i in range(0, len(whole), step):
        pieces.append(whole[i:i + step])
        if i % (step * 97) == 0:
            pieces.append(0.001)
    p.up.script(sse(pieces))
    r = p.send(p.body)
    assert r.complete and r.body == p.mapped()


def test_many_events_in_one_write(gw):
    events = chat_stream("one-0613", ["w%d " % i for i in range(5000)],
                         usage=False)
    gw.b.script(sse([b"".join(events)]))
    r = gw.chat(chat(stream=True))
    assert r.complete
    assert r.body == b"".join(events).replace(b"one-0613", b"fam-b-one")


WORDS = ["", "a", " token", '"', "\\", "\n", "\x7f", "é", "日本", "😹",
         "\"delta\":", "\n\ndata: x\n\n", "x" * 2000, "y" * 5000, "é" * 9000]


def some_events(p, rnd):
    """Runs of events that differ in their text only, and in noise."""
    words = [rnd.choice(WORDS) + rnd.choice(WORDS) for _ in range(60)]
    raw = rnd.choice((True, False))
    out = []
    for e in (chat_stream("one-0613", words, usage=False)
              if p.id == b"one-0613"
              else message_stream("large-2026-01-01", words)):
        head, colon, text = e.partition(b"data: ")
        if e != DONE:
            doc = json.loads(text)
            if rnd.random() < 0.3:
                doc["obfuscation"] = "z" * rnd.randrange(9)
            if rnd.random() < 0.1:
                doc["choices"] = doc.pop("choices", [])
            text = json.dumps(doc, ensure_ascii=raw).encode() + b"\n\n"
        out.append(head + colon + text)
    return out


@pytest.mark.parametrize("seed", range(6))
def test_events_that_repeat(p, seed):
    rnd = random.Random(seed)
    events = some_events(p, rnd)
    whole = b"".join(events)
    cuts = sorted(rnd.randrange(len(whole)) for _ in range(seed * 9))
    pieces = []
    for start, end in zip([0] + cuts, cuts + [len(whole)]):
        pieces += [whole[start:end], 0.001] if end > start else []
    p.up.script(sse(pieces))
    r = p.send(p.body)
    assert r.complete and r.body == p.mapped(events)


@pytest.mark.parametrize("size", [10000, 100000, 1 << 20, 3 << 20])
def test_big_event(gw, size, framing):
    events = chat_stream("one-0613", ["x" * size, "y"], usage=False)
    gw.b.script(sse(events, framing=framing))
    r = gw.chat(chat(stream=True))
    assert r.complete, r.status
    assert r.body == b"".join(events).replace(b"one-0613", b"fam-b-one")


def test_event_beyond_any_bound(gw):
    """An event that never ends breaks the stream."""
    gw.b.script(sse(chat_stream("one-0613", ["x"], usage=False)[:2]
                    + [b"data: " + b"x" * (9 << 20)] + [DONE]))
    r = gw.chat(chat(stream=True))
    assert r.status in (200, 502)
    if r.status == 200 and r.complete:
        assert len(r.body) > 9 << 20


def test_long_stream_of_messages(gw):
    events = message_stream("large-2026-01-01",
                            ["w%d " % i for i in range(3000)])
    gw.a.script(sse(events))
    r = gw.messages(messages(stream=True))
    assert r.complete
    assert r.body == b"".join(events).replace(b"large-2026-01-01",
                                              b"fam-a-large")


def test_thinking_signatures_arrive(gw):
    events = message_stream("large-2026-01-01")
    events[3:3] = [event("content_block_delta", {
        "type": "content_block_delta", "index": 0,
        "delta": {"type": "signature_delta", "signature": "EqQB+/==" * 99}})]
    gw.a.script(sse(events))
    r = gw.messages(messages(stream=True))
    assert r.body == b"".join(events).replace(b"large-2026-01-01",
                                              b"fam-a-large")


@pytest.mark.timed("other answers within two seconds, once in five times")
def test_slow_reader_stalls_nobody(gw):
    """A client that does not read does not delay others, and loses nothing."""
    events = chat_stream("one-0613", ["z" * 50000] * 400, usage=False)
    gw.b.script(sse(events), sse(chat_stream("one-0613", usage=False)))
    p = Proto(gw, "chat")
    with start(gw, p, rcvbuf=4096) as slow:
        assert slow.head().status == 200
        slow.read()
        gw.wait_idle()
        for _ in range(10):
            assert lib.within(lambda: gw.chat(chat(stream=True)), 2).complete
        while slow.read():
            pass
        assert slow.current.complete
        assert slow.current.body == p.mapped(events)


def test_slow_reader_stalls_nobody_h2(gw):
    """On one connection: a stream that is not read, and others that are."""
    events = chat_stream("one-0613", ["z" * 50000] * 40, usage=False)
    p = Proto(gw, "chat")
    gw.b.script(sse(events), sse(p.events))
    with client.H2(gw.port2) as c:
        slow = c.request("POST", p.target, [p.key.bearer()], p.body)
        hold = c.conn.acknowledge_received_data
        # its window is not updated; the connection's is
        c.conn.acknowledge_received_data = lambda n, sid: (
            c.conn.increment_flow_control_window(n) if sid == slow
            else hold(n, sid))
        c.body(slow, 60000)
        for _ in range(5):
            r = c.response(c.request("POST", p.target, [p.key.bearer()],
                                     p.body))
            assert r.complete and r.body == p.mapped()
        assert not c.streams[slow].over
        c.conn.acknowledge_received_data = hold
        c.conn.increment_flow_control_window(4 << 20, slow)
        c.flush()
        r = c.response(slow)
        assert r.complete and r.body == p.mapped(events)


def test_pipelined_behind_a_stream(gw, p):
    """The second answer waits for the end of the first."""
    p.up.script(sse([x for e in p.events for x in (e, 0.01)]))
    with gw.connect() as c:
        c.send(build("POST", p.target, [p.key.bearer()], body=p.body)
               + build("GET", "/v1/models", [p.key.bearer()]))
        r = c.response()
        assert r.complete and r.body == p.mapped()
        assert c.response().json()["object"] == "list"


@pytest.mark.skipif(lib.ASAN, reason="the sanitizer keeps freed memory")
def test_memory_of_a_long_stream(gateway):
    """What has been sent is freed: 45 MB in 240,000 events."""
    g = gateway(workers=1)
    p = Proto(g, "chat")
    block = b"".join(p.events[1:3]) * 200
    assert p.send(p.body).complete
    p.up.script(sse([block] * 300))
    p.send(p.body)
    before = g.memory()
    p.up.script(sse(p.events[:1] + [block] * 600 + p.events[-1:]))
    r = p.send(p.body)
    assert r.complete and len(r.body) > 40 << 20
    assert g.memory() - before < 4 << 20


@pytest.mark.skipif(lib.ASAN, reason="the sanitizer keeps freed memory")
def test_memory_of_streams_that_wait(gateway):
    """A burst of events, each in a chunk of its own, leaves no memory."""
    g = gateway(workers=1)
    p = Proto(g, "chat")
    events = p.events[:1] + p.events[1:2] * 100
    gate = threading.Event()

    def burst(x):
        x.head(200, [("Content-Type", "text/event-stream")], framing="chunked")
        x.send(*[b"%x\r\n%s\r\n" % (len(e), e) for e in events])
        gate.wait(LIMIT)
        x.end("close")

    assert p.send(p.body).complete
    p.up.script(burst)
    before = g.memory("VmRSS")
    with contextlib.ExitStack() as waiting:
        for _ in range(40):
            c = waiting.enter_context(start(g, p))
            got = b""
            assert c.head().status == 200
            while got.count(b"\n\n") < len(events):
                got += c.read()
        assert g.memory("VmRSS") - before < 40 * (72 << 10)
        gate.set()


@pytest.mark.skipif(lib.ASAN, reason="the sanitizer keeps freed memory")
def test_memory_of_slow_readers(gateway):
    """Only the upstream's buffer waits for them, and little else."""
    g = gateway(workers=1, location="proxy_buffer_size 256k; proxy_buffers "
                "4 256k; proxy_busy_buffers_size 256k;")
    p = Proto(g, "chat")
    first, event, *last = chat_stream("one-0613", ["x" * 2300], usage=False)
    p.up.script(sse([first] + [event * 40] * 100 + last))
    assert p.send(p.body).complete
    before = g.memory("VmRSS")
    with contextlib.ExitStack() as waiting:
        for _ in range(20):
            c = waiting.enter_context(start(g, p, rcvbuf=4096))
            assert c.head().status == 200
        g.wait_idle()
        assert g.memory("VmRSS") - before < 20 * (1 << 20)


@pytest.mark.skipif(lib.ASAN, reason="the sanitizer keeps freed memory")
def test_memory_of_a_big_answer(gateway):
    """What is held for a plain answer is freed with its request."""
    g = gateway(workers=1)
    obj = chat_completion("one-0613", "x" * (4 << 20))
    g.b.script(reply_json(obj))
    for _ in range(3):
        assert g.chat().status == 200
    before = g.memory("VmRSS")
    for _ in range(20):
        assert g.chat().status == 200
    assert g.memory("VmRSS") - before < 8 << 20


def test_many_streams_at_once(gw):
    gate = threading.Event()
    p = Proto(gw, "chat")
    p.up.script(sse([p.events[0], gate] + p.events[1:]))
    conns = [start(gw, p) for _ in range(40)]
    for c in conns:
        assert c.head().status == 200
        assert c.event() == p.mapped([p.events[0]])
    gate.set()
    for c in conns:
        while c.read():
            pass
        assert c.current.complete and c.current.body == p.mapped()
        c.close()


# usage: always requested, shown on request

ASKED = [(None, False), ("null", False), ("{}", False),
         ('{"include_usage":false}', False),
         ('{"include_usage":null}', False),
         ('{ "include_usage" : false , "x":1 }', False),
         ('{"include_obfuscation":false}', False),
         ('{"include_obfuscation":false,"include_usage":true}', True),
         ('{"include_usage":true}', True),
         ('{"incl\\u0075de_usage":false}', False)]


@pytest.mark.parametrize("options,asked", ASKED, ids=lambda v: str(v))
@pytest.mark.parametrize("place", ["before", "after"])
def test_P14_include_usage(gw, options, asked, place, http):
    """Requested from the upstream; nothing else of the body changes."""
    option = '"stream_options":%s' % options if options else '"q":1'
    rest = ['"messages":[ {"role":"user","content":"\\u0041"} ]',
            '"model" : "fam-b-one"', '"stream": true', '"t":1.0e5']
    fields = [option] + rest if place == "before" else rest + [option]
    body = ("{" + " ,\n".join(fields) + "}").encode()

    events = chat_stream("one-0613", usage=True)
    gw.b.script(sse(events))
    r = gw.chat(body, version=http)
    assert r.status == 200 and r.complete, r

    sent = gw.b.last()
    expected = json.loads(body)
    expected["model"] = "one-0613"
    expected["stream_options"] = dict(expected.get("stream_options") or {},
                                      include_usage=True)
    assert sent.json() == expected
    assert sent.get("content-length") == str(len(sent.body))
    keys = [k for k, v in json.loads(sent.body,
                                     object_pairs_hook=lambda p: p)]
    assert len(keys) == len(set(keys)), "a duplicate key was made"
    for piece in rest:
        assert piece.replace("fam-b-one",
                             "one-0613").encode() in sent.body
    if asked:
        assert sent.body == body.replace(b"fam-b-one", b"one-0613")

    if not asked:
        events = [e for e in events if b'"choices": []' not in e]
    assert r.body == b"".join(events).replace(b"one-0613", b"fam-b-one")


def test_P14_nothing_is_added_without_stream(gw):
    for extra in ({}, {"stream": False}, {"stream": None}):
        body = json.dumps(chat(**extra)).encode()
        assert gw.chat(body).status == 200
        assert gw.b.last().body == body.replace(b"fam-b-one", b"one-0613")


def test_P14_nothing_is_added_on_messages(gw):
    body = json.dumps(messages(stream=True)).encode()
    assert gw.messages(body).status == 200
    assert gw.a.last().body == body.replace(b"fam-a-large",
                                            b"large-2026-01-01")


def test_P14_in_a_file(gateway):
    g = gateway(location="client_body_buffer_size 1k;")
    for options in (None, {"include_usage": False}):
        body = chat(stream=True, pad="p" * 30000)
        if options is not None:
            body["stream_options"] = options
        body = json.dumps(body).encode()
        assert g.chat(body).status == 200
        sent = g.b.last().json()
        assert sent["stream_options"] == {"include_usage": True}
        assert sent["pad"] == "p" * 30000


def test_usage_in_the_last_chunk_stays(gw):
    """Usage with choices is not an extra chunk."""
    events = [data(chat_chunk("one-0613", {"content": "a"})),
              data(dict(chat_chunk("one-0613", {}, "stop"),
                        usage={"prompt_tokens": 1, "completion_tokens": 2})),
              DONE]
    gw.b.script(sse(events))
    r = gw.chat(chat(stream=True))
    assert r.body == b"".join(events).replace(b"one-0613", b"fam-b-one")


def test_other_chunks_without_choices_stay(gw):
    """A first chunk with filter results has choices [] but no usage."""
    events = [data({"id": "", "model": "", "object": "", "choices": [],
                    "prompt_filter_results": [{"x": 1}]})] \
        + chat_stream("one-0613", usage=False)
    gw.b.script(sse(events))
    r = gw.chat(chat(stream=True))
    assert r.complete
    assert b"prompt_filter_results" in r.body
    assert r.body.count(b"\n\n") == len(events)


def test_usage_chunk_in_the_same_write(gw):
    """Removed from the middle of one read."""
    events = chat_stream("one-0613", usage=True)
    gw.b.script(sse([b"".join(events)]))
    r = gw.chat(chat(stream=True))
    assert r.body == b"".join(
        e for e in events if b'"choices": []' not in e).replace(
            b"one-0613", b"fam-b-one")


def test_usage_chunk_byte_by_byte(gw):
    events = chat_stream("one-0613", usage=True)
    whole = b"".join(events)
    gw.b.script(sse([whole[i:i + 1] for i in range(len(whole))]))
    r = gw.chat(chat(stream=True))
    assert r.body == b"".join(
        e for e in events if b'"choices": []' not in e).replace(
            b"one-0613", b"fam-b-one")


def test_usage_chunk_written_oddly(gw):
    """Recognized by its members, not by its form."""
    odd = (b'data:{ "usage" : {"completion_tokens":2,"prompt_tokens":1},'
           b'"choices" : [ ] , "model":"one-0613" }\n\n')
    events = chat_stream("one-0613", usage=False)
    gw.b.script(sse(events[:-1] + [odd] + events[-1:]))
    r = gw.chat(chat(stream=True))
    assert r.complete
    assert r.body == b"".join(events).replace(b"one-0613", b"fam-b-one")


def test_two_usage_chunks(gw):
    events = chat_stream("one-0613", usage=False)
    usage = data(chat_usage_chunk("one-0613"))
    gw.b.script(sse(events[:-1] + [usage, usage] + events[-1:]))
    r = gw.chat(chat(stream=True))
    assert r.complete
    assert r.body == b"".join(events).replace(b"one-0613", b"fam-b-one")


def test_message_delta_keeps_its_usage(gw):
    """Clients crash without it."""
    gw.a.script(sse(message_stream("large-2026-01-01",
                                   usage=message_usage(5, 6))))
    r = gw.messages(messages(stream=True))
    assert b'"usage": {"output_tokens": 6}' in r.body


# hang-ups

def test_client_hangs_up_in_the_middle(gw, p):
    """The upstream connection is closed at once; the gateway goes on."""
    p.up.script(sse([p.events[0], 0.05] * 200))
    c = start(gw, p)
    assert c.head().status == 200
    assert c.event()
    c.reset()
    assert p.up.wait().gone.wait(client.LIMIT), \
        "the upstream connection stayed open"
    p.up.script(sse(p.events))
    assert p.send(p.body).complete


def test_client_hangs_up_in_silence(gw, p):
    p.up.script(sse([p.events[0]], end="stall"))
    c = start(gw, p)
    assert c.head().status == 200
    c.close()
    assert p.up.wait().gone.wait(client.LIMIT)


def test_client_hangs_up_before_the_answer(gw, p):
    p.up.script(raw("stall"))
    c = start(gw, p)
    request = p.up.wait()
    c.close()
    assert request.gone.wait(client.LIMIT)


@pytest.mark.parametrize("how", ["stream", "connection"])
def test_client_hangs_up_h2(gw, p, how):
    p.up.script(sse([p.events[0]], end="stall"))
    with client.H2(gw.port2) as c:
        sid = c.request("POST", p.target, [p.key.bearer()], p.body)
        assert c.body(sid, 1)
        if how == "stream":
            c.reset(sid)
        else:
            c.close()
        assert p.up.wait().gone.wait(client.LIMIT)


def test_hang_up_right_after_done(gw, p, tag):
    """As the OpenAI SDKs do: they do not wait for the end.  The call counts as
    complete."""
    gate = threading.Event()
    events = p.events
    if p.up is gw.b:
        events = chat_stream("one-0613", usage=True)
    p.up.script(sse(events + [gate]))
    c = gw.connect()
    c.request("POST", p.target, [p.key.bearer(), ("X-Test-Tag", tag)],
              body=p.body)
    assert c.head().status == 200
    while True:
        e = c.event()
        assert e
        if b"[DONE]" in e or b"message_stop" in e:
            break
    c.close()
    gw.wait_idle()
    gate.set()
    line = gw.logged(tag)
    assert line["input"] == "11" and line["output"] == "7", line


# the operator's own settings do not break streams

def test_buffering_on_in_the_configuration(gateway):
    """The module turns buffering off for streams, whatever is configured."""
    g = gateway(location="proxy_buffering on; proxy_buffers 8 64k;")
    test_each_event_leaves_when_it_came(g, Proto(g, "chat"), "chunked")


def test_gzip_in_the_server(gateway):
    g = gateway(location="gzip on; gzip_types *; gzip_min_length 1;")
    p = Proto(g, "chat")
    gates = [threading.Event() for _ in p.events]
    p.up.script(sse([x for pair in zip(gates, p.events) for x in pair]))
    with g.connect() as c:
        c.request("POST", p.target, [p.key.bearer()], body=p.body)
        for i, gate in enumerate(gates):
            gate.set()
            if i == 0:
                assert c.head().status == 200
            assert c.event()


def test_small_proxy_buffer(gateway):
    """Events longer than the buffer for one read."""
    g = gateway(location="proxy_buffer_size 1k; proxy_buffers 4 1k; "
                         "proxy_busy_buffers_size 2k;")
    for name in ("chat", "messages"):
        p = Proto(g, name)
        p.up.script(sse(p.events))
        r = p.send(p.body)
        assert r.complete and r.body == p.mapped()
    events = chat_stream("one-0613", ["x" * 100000], usage=True)
    g.b.script(sse(events))
    r = g.chat(chat(stream=True, stream_options=USAGE_ON))
    assert r.body == b"".join(events).replace(b"one-0613", b"fam-b-one")


def test_pattern_model_in_a_stream(gw):
    gw.b.script(sse(chat_stream("fast", usage=True)))
    r = gw.chat(chat("code-fast", stream=True))
    assert r.complete
    assert b'"model": "code-fast"' in r.body
    assert b'"model": "fast"' not in r.body


def test_stream_in_http_10(gw):
    """An HTTP/1.0 client gets the bytes until the connection closes."""
    with gw.connect() as c:
        c.send(build("POST", "/v1/chat/completions", [gw.bob.bearer()],
                     body=chat(stream=True), version="HTTP/1.0"))
        r = c.response()
    assert r.status == 200 and r.framing == "close" and r.complete
    assert r.body.endswith(DONE)


def test_groups_with_both_protocols_stream(gateway):
    g = gateway(groups=lib.group_a(protocol="messages chat")
                + lib.group_b())
    g.a.script(sse(chat_stream("large-2026-01-01", usage=True)))
    r = g.chat(chat("fam-a-large", stream=True), g.alice)
    assert r.status == 200 and r.complete, r
    assert g.a.last().json()["stream_options"] == USAGE_ON
    assert b'"choices": []' not in r.body
