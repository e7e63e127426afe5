"""The translation of a messages stream to a chat stream: each row of
docs/translation.md, Streams, and every error of an upstream.  A stream ends in
exactly one of three ways: complete, with [DONE]; broken, with an error frame
and no [DONE]; refused, with a status."""

import concurrent.futures
import gzip
import itertools
import json
import random
import re
import threading
import time

import pytest

import client
import gateway as lib
import message_events as m
from aggregate import aggregate, comments, disorder, events, is_error
from client import assert_flat, assert_ids
from gateway import chat
from message_events import event
from upstream import message, message_error, raw, reply, reply_json, sse
from vectors import LOG, SERVER, Log

COUNT = itertools.count()
CHAT = "/v1/chat/completions"

MODELS = """
        model fam-a-off   large-2026-01-01  reasoning_output=off;
        model fam-a-full  large-2026-01-01  reasoning_output=full;
"""
GROUPS = lib.group_a(models=lib.MODELS_A + MODELS) + lib.group_b()


def begin(make, **kw):
    return make(groups=GROUPS, http=LOG, server=SERVER, **kw)


@pytest.fixture(scope="module")
def one(module_gateway):
    g = begin(module_gateway)
    g.lines = Log(g)
    return g


@pytest.fixture
def g(one):
    one.a.reset()
    seen = len(one.faults())
    yield one
    one.a.reset()
    assert one.process.poll() is None, "nginx has exited"
    assert not one.faults()[seen:], "\n".join(one.faults()[seen:])


# One stream with everything, and its answer.

def base():
    return [m.start(), m.ping(),
            m.text_block(0), m.text(0, "Hel"), m.text(0, "lo"),
            m.end_block(0),
            m.tool_block(1), m.partial(1, ""), m.partial(1, '{"a":'),
            m.partial(1, "1}"), m.end_block(1),
            m.end("tool_use"), m.stop()]


def simple(*middle, reason="end_turn"):
    return [m.start()] + list(middle) + [m.end(reason), m.stop()]


USAGE = {"prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17,
         "prompt_tokens_details": {"cached_tokens": 0,
                                   "cache_write_tokens": 0}}


class Result:
    """What the client got, with the checks that apply to every stream."""

    def __init__(self, r, asked, model):
        self.r = r
        self.seen = events(r.body)
        wrong = disorder(self.seen)
        assert wrong is None, (wrong, r)
        self.check_chunks([e for e in self.seen if isinstance(e, dict)
                           and not is_error(e)], asked, model)
        self.answer = aggregate(self.seen)
        self.end = self.answer["end"]
        if self.end == "done":
            assert r.complete, r
            assert bool(self.answer["usage"]) == asked, r
        else:
            self.check_error(self.seen[-1])

    def check_chunks(self, chunks, asked, model):
        assert len({(c["id"], c["created"]) for c in chunks}) <= 1
        for c in chunks:
            assert sorted(set(c) - {"usage"}) == [
                "choices", "created", "id", "model", "object"], c
            assert c["object"] == "chat.completion.chunk"
            assert c["model"] == model
            assert abs(c["created"] - time.time()) < 60
            assert ("usage" in c) == asked, c
            if c["choices"]:
                choice, = c["choices"]
                assert sorted(choice) == ["delta", "finish_reason", "index",
                                          "logprobs"], c
                assert choice["index"] == 0 and choice["logprobs"] is None
                assert not asked or c["usage"] is None
                assert choice["finish_reason"] or choice["delta"], c

    def check_error(self, frame):
        assert sorted(frame) == ["code", "error", "message"], frame
        assert frame["error"] == {"code": frame["code"],
                                  "message": frame["message"]}
        assert frame["message"]
        assert b"[DONE]" not in self.r.body
        assert self.answer["finish_reason"] is None

    def deltas(self):
        return [c["choices"][0]["delta"] for c in self.seen
                if isinstance(c, dict) and c.get("choices")]


def ask(g, pieces, asked=False, model="fam-a-large", version="h1", headers=(),
        **kw):
    """The raw response to one streamed call."""
    script = pieces if callable(pieces) else sse(pieces, **kw)
    g.a.script(script)
    more = {"stream_options": {"include_usage": True}} if asked else {}
    r = g.chat(chat(model, stream=True, **more), g.alice, headers,
               version=version)
    assert r is not None, "no answer"
    return r


def run(g, pieces, asked=False, model="fam-a-large", **kw):
    r = ask(g, pieces, asked, model, **kw)
    assert r.status == 200, r
    assert r.get("content-type").startswith("text/event-stream"), r
    assert r.get("content-length") is None
    assert_ids(r)
    return Result(r, asked, model)


def whole(g, pieces, **kw):
    out = run(g, pieces, **kw)
    assert out.end == "done", out.r
    return out.answer


def broken(g, pieces, code="UPSTREAM_ERROR", **kw):
    out = run(g, pieces, **kw)
    assert out.end == "error", out.r
    assert out.answer["error"]["code"] == code, out.r
    return out.answer


def refused(g, pieces, status=502, code="UPSTREAM_ERROR", **kw):
    return assert_flat(ask(g, pieces, **kw), status, code)


def metered(g, pieces, **kw):
    """(response, line of the log)"""
    tag = "stream-%d" % next(COUNT)
    r = ask(g, pieces, headers=[("X-Test-Tag", tag)], **kw)
    return r, g.lines.line(tag)


# The rows of the table.

@pytest.mark.parametrize("asked", [False, True], ids=["", "usage"])
@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_everything(g, asked, framing, http):
    answer = whole(g, base(), asked=asked, framing=framing, version=http)
    assert answer["role"] == "assistant" and answer["content"] == "Hello"
    assert answer["tool_calls"] == [
        {"id": "toolu_1", "type": "function",
         "function": {"name": "get_weather", "arguments": '{"a":1}'}}]
    assert answer["finish_reason"] == "tool_calls"
    assert answer["usage"] == (USAGE if asked else None)


def test_the_deltas_themselves(g):
    """Each member is sent once; a continuation has only the index."""
    assert run(g, base()).deltas() == [
        {"role": "assistant", "content": ""},
        {"content": "Hel"}, {"content": "lo"},
        {"tool_calls": [{"index": 0, "id": "toolu_1", "type": "function",
                         "function": {"name": "get_weather",
                                      "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]},
        {}]


@pytest.mark.parametrize("options,asked", [
    (None, False), ({}, False), ({"include_usage": False}, False),
    ({"include_usage": None}, False), ({"include_usage": True}, True),
    ({"include_usage": True, "include_obfuscation": False}, True)])
def test_usage_only_if_asked(g, options, asked):
    g.a.script(sse(base()))
    more = {} if options is None else {"stream_options": options}
    r = g.chat(chat("fam-a-large", stream=True, **more), g.alice)
    assert Result(r, asked, "fam-a-large").end == "done"
    assert "stream_options" not in g.a.last().json()


def test_ping_is_a_comment(g):
    r = run(g, [m.start(), m.ping(), m.ping(), m.text_block(0),
                m.text(0, "x"), m.ping(), m.end(), m.stop()])
    assert len(r.seen) == 4
    assert len(comments(r.r.body)) <= 3


def test_text_in_the_block_start(g):
    assert whole(g, simple(m.text_block(0, "a"), m.text(0, "b"),
                           m.end_block(0)))["content"] == "ab"


@pytest.mark.parametrize("model,shown", [
    ("fam-a-large", True), ("fam-a-full", True), ("fam-a-off", False)])
def test_thinking(g, model, shown):
    answer = whole(g, simple(
        m.thinking_block(0, "a"), m.thinking(0, "b"), m.signature(0, "S1"),
        m.signature(0, "S2"), m.end_block(0),
        m.begin(1, {"type": "redacted_thinking", "data": "R"}),
        m.end_block(1), m.text_block(2), m.text(2, "x"), m.end_block(2),
        m.thinking_block(3), m.signature(3, "S3"), m.end_block(3)),
        model=model)
    assert answer["content"] == "x"
    assert answer.get("reasoning_content") == ("ab" if shown else None)
    assert answer.get("thinking_blocks") == ([
        {"type": "thinking", "thinking": "ab", "signature": "S1S2"},
        {"type": "redacted_thinking", "data": "R"},
        {"type": "thinking", "thinking": "", "signature": "S3"}]
        if model == "fam-a-full" else None)


def test_thinking_blocks_have_the_index_of_their_block(g):
    deltas = run(g, simple(
        m.text_block(0, "x"), m.end_block(0), m.thinking_block(1, "a"),
        m.signature(1, "S"), m.end_block(1)), model="fam-a-full").deltas()
    entries = [e for d in deltas for e in d.get("thinking_blocks", ())]
    assert [e["index"] for e in entries] == [1]


@pytest.mark.parametrize("kind", ["server_tool_use", "mcp_tool_use",
                                  "compaction", "fallback", "next_year"])
def test_hidden_blocks(g, kind):
    """Whatever they contain; the client's own tool is number 0."""
    answer = whole(g, simple(
        m.begin(0, {"type": kind, "id": "x", "name": "y", "input": {},
                    "text": "no", "content": "no"}),
        m.partial(0, '{"query":"no"}'), m.text(0, "no"),
        m.thinking(0, "no"), m.delta(0, "compaction_delta", content="no"),
        m.end_block(0),
        m.begin(1, {"type": "web_search_tool_result", "tool_use_id": "x",
                    "content": [{"type": "web_search_result", "text": "no",
                                 "encrypted_content": "z" * 50000}]}),
        m.end_block(1),
        m.tool_block(2), m.partial(2, '{"b":2}'), m.end_block(2),
        reason="tool_use"))
    assert answer["content"] == "" and "reasoning_content" not in answer
    assert [c["function"]["arguments"] for c in answer["tool_calls"]] \
        == ['{"b":2}']


@pytest.mark.parametrize("reason,finish", [
    ("tool_use", "stop"), ("end_turn", "stop"), ("pause_turn", "stop")])
def test_only_server_tools(g, reason, finish):
    answer = whole(g, simple(
        m.begin(0, {"type": "server_tool_use", "id": "x", "name": "y",
                    "input": {}}), m.partial(0, "{}"), m.end_block(0),
        reason=reason))
    assert answer["finish_reason"] == finish
    assert "tool_calls" not in answer


@pytest.mark.parametrize("wrong", [
    m.thinking(0, "no"), m.partial(0, "no"), m.signature(0, "no"),
    m.delta(0, "citations_delta", citation={"cited_text": "no"}),
    m.delta(0, "compaction_delta", content="no"),
    m.delta(0, "next_years_delta", text="no", thinking="no"),
    m.text(0, ""), m.thinking(7, "no"), m.partial(7, "no"),
    m.signature(7, "no"), m.end_block(7)],
    ids=lambda e: re.search(rb"\w+_(delta|stop)", e).group().decode())
def test_deltas_that_do_not_fit(g, wrong):
    answer = whole(g, simple(m.text_block(0), m.text(0, "a"), wrong,
                             m.text(0, "b"), m.end_block(0)))
    assert answer["content"] == "ab"
    assert sorted(k for k, v in answer.items() if v) == [
        "content", "end", "finish_reason", "role"]


def test_text_in_a_thinking_block_or_a_tool(g):
    answer = whole(g, simple(
        m.thinking_block(0), m.text(0, "no"), m.thinking(0, "t"),
        m.end_block(0), m.tool_block(1), m.text(1, "no"), m.end_block(1),
        reason="tool_use"))
    assert answer["content"] == ""
    assert answer["reasoning_content"] == "t"
    assert answer["tool_calls"][0]["function"]["arguments"] == "{}"


def test_text_without_its_block(g):
    assert whole(g, simple(m.text(0, "a"), m.text(0, "b")))["content"] == "ab"


@pytest.mark.parametrize("input,parts,expected", [
    (None, [], "{}"), (None, [""], "{}"), (None, ["", "", ""], "{}"),
    ({"x": 1}, [], '{"x":1}'), ({"x": 1}, [""], '{"x":1}'),
    ({"x": 1}, ['{"x":', "2}"], '{"x":2}'), (None, ["{", "}"], "{}"),
    (None, ['{"a":"\\u00e9\\"', '\\n/é"}'], '{"a":"\\u00e9\\"\\n/é"}'),
    (None, ['{"a":12345678901234567890,', '"b":1.0}'],
     '{"a":12345678901234567890,"b":1.0}')])
def test_arguments(g, input, parts, expected):
    """Exactly once: the deltas, else the input at the block's start, else
    {}."""
    out = run(g, simple(m.tool_block(0, input=input),
                        *(m.partial(0, p) for p in parts), m.end_block(0),
                        reason="tool_use"))
    got = out.answer["tool_calls"][0]["function"]["arguments"]
    if input and not any(parts):
        assert json.loads(got) == json.loads(expected)
    else:
        assert got == expected
    assert all(c["function"]["arguments"] for d in out.deltas()
               for c in d.get("tool_calls", ()) if "id" not in c)


def test_a_block_that_stops_twice(g):
    answer = whole(g, simple(m.tool_block(0), m.end_block(0), m.end_block(0),
                             reason="tool_use"))
    assert answer["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize("reason,expected,finish", [
    ("tool_use", "{}", "tool_calls"), ("max_tokens", "", "length")])
def test_a_tool_that_never_stops(g, reason, expected, finish):
    answer = whole(g, simple(m.tool_block(0), reason=reason))
    assert answer["tool_calls"][0]["function"]["arguments"] == expected
    assert answer["finish_reason"] == finish


def test_half_a_tool(g):
    answer = whole(g, simple(m.tool_block(0), m.partial(0, '{"a": "b'),
                             reason="max_tokens"))
    assert answer["tool_calls"][0]["function"]["arguments"] == '{"a": "b'


def test_tools_are_numbered_by_their_start(g):
    answer = whole(g, simple(
        m.text_block(0, "a"), m.end_block(0), m.tool_block(5, "t5", "five"),
        m.tool_block(3, "t3", "three"), m.partial(3, '{"n":'),
        m.partial(5, '{"m":'), m.partial(3, "3}"), m.end_block(3),
        m.text_block(4, "b"), m.partial(5, "5}"), m.end_block(5),
        reason="tool_use"))
    assert answer["content"] == "ab"
    assert [(c["id"], c["function"]["name"], c["function"]["arguments"])
            for c in answer["tool_calls"]] \
        == [("t5", "five", '{"m":5}'), ("t3", "three", '{"n":3}')]


def test_a_block_index_that_comes_again(g):
    """As for web search results: the later block counts."""
    answer = whole(g, simple(
        m.tool_block(0, "t0"), m.partial(0, '{"n":0}'), m.end_block(0),
        m.tool_block(0, "t1"), m.partial(0, '{"n":1}'), m.end_block(0),
        m.text_block(0), m.text(0, "x"), m.end_block(0), reason="tool_use"))
    assert answer["content"] == "x"
    assert [c["id"] for c in answer["tool_calls"]] == ["t0", "t1"]
    assert [json.loads(c["function"]["arguments"])["n"]
            for c in answer["tool_calls"]] == [0, 1]


def test_two_message_deltas(g):
    answer = whole(g, [
        m.start(), m.text_block(0, "x"), m.end_block(0),
        m.end("max_tokens", {"output_tokens": 5}),
        event("message_delta", delta={}), m.stop()], asked=True)
    assert answer["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 5


REASONS = [("end_turn", "stop"), ("stop_sequence", "stop"),
           ("pause_turn", "stop"), (None, "stop"), ("next_year", "stop"),
           ("max_tokens", "length"),
           ("model_context_window_exceeded", "length"),
           ("refusal", "content_filter"), ("sensitive", "content_filter"),
           (5, "stop"), ("tool_use", "stop")]


@pytest.mark.parametrize("reason,finish", REASONS)
def test_finish_reason(g, reason, finish):
    answer = whole(g, simple(m.text_block(0, "x"), m.end_block(0),
                             reason=reason))
    assert answer["finish_reason"] == finish
    assert bool(answer.get("refusal")) == (finish == "content_filter")


@pytest.mark.parametrize("reason,finish", [
    ("end_turn", "tool_calls"), (None, "tool_calls"), ("max_tokens", "length"),
    ("next_year", "tool_calls"), ("tool_use", "tool_calls"),
    ("refusal", "content_filter")])
def test_finish_reason_with_a_tool(g, reason, finish):
    answer = whole(g, simple(m.tool_block(0), m.end_block(0),
                             reason=reason))
    assert answer["finish_reason"] == finish


@pytest.mark.parametrize("details,text", [
    ({"type": "refusal", "explanation": "Not \"this\""}, 'Not "this"'),
    ({"type": "refusal", "explanation": None},
     "The model declined to respond."),
    (None, "The model declined to respond.")])
def test_refusal(g, details, text):
    answer = whole(g, [m.start(), m.end("refusal", stop_details=details),
                       m.stop()])
    assert answer["refusal"] == text
    assert answer["finish_reason"] == "content_filter"


# Errors of the upstream.

ERRORS = [("invalid_request_error", 400, "INVALID_REQUEST"),
          ("authentication_error", 502, "UPSTREAM_ERROR"),
          ("billing_error", 502, "UPSTREAM_ERROR"),
          ("permission_error", 502, "UPSTREAM_ERROR"),
          ("not_found_error", 502, "UPSTREAM_ERROR"),
          ("request_too_large", 413, "REQUEST_TOO_LARGE"),
          ("rate_limit_error", 429, "RATE_LIMITED"),
          ("api_error", 502, "UPSTREAM_ERROR"),
          ("timeout_error", 504, "UPSTREAM_TIMEOUT"),
          ("overloaded_error", 503, "UPSTREAM_OVERLOADED"),
          ("next_years_error", 502, "UPSTREAM_ERROR")]


# between the operator and the vendor

OURS = ("authentication_error", "billing_error", "permission_error",
        "not_found_error")


def error_event(type="overloaded_error", text="text of the upstream"):
    return event("error", **{k: v for k, v in
                             message_error(text, type).items()
                             if k != "type"})


@pytest.mark.parametrize("type,status,code", ERRORS)
def test_error_first(g, type, status, code):
    """An error status, though the upstream sent 200."""
    body = refused(g, [error_event(type)], status, code)
    if type in OURS:
        assert "text of the upstream" not in body["message"]
    elif status in (400, 413):
        assert "text of the upstream" in body["message"]


@pytest.mark.parametrize("type,status,code", ERRORS)
def test_error_later(g, type, status, code):
    answer = broken(g, [m.start(), m.text_block(0), m.text(0, "half"),
                        error_event(type), m.text(0, "no"), m.end(),
                        m.stop()], code)
    assert answer["content"] == "half"


def test_error_after_the_stop_reason(g):
    """The end was not sent yet, so the stream is broken."""
    broken(g, [m.start(), m.text_block(0, "x"), m.end_block(0), m.end(),
               error_event()], "UPSTREAM_OVERLOADED")


@pytest.mark.parametrize("first", [
    [m.ping()] * 3, [b": comment\n\n"] * 3, [b"event: ping\n\n"],
    [b"\n\n\n", b"retry: 5\n\n", b"id: 1\n\n"],
    [m.ping(), event("next_years_event", text="no")]],
    ids=["ping", "comment", "no data", "fields", "unknown"])
def test_error_after_what_is_no_answer(g, first):
    """Slowly, as an upstream that queues the request."""
    steps = [x for e in first for x in (e, 0.15)]
    refused(g, steps + [error_event()], 503, "UPSTREAM_OVERLOADED")


def test_slow_pings_then_an_answer(g):
    steps = [x for _ in range(5) for x in (m.ping(), 0.1)]
    assert whole(g, steps + base())["content"] == "Hello"


@pytest.mark.parametrize("body", [
    b"event: error\ndata: {}\n\n",
    b'event: error\ndata: {"type":"error"}\n\n',
    b'data: {"type":"error","error":"busy"}\n\n',
    b'data: {"type":"error","error":{"type":null,"message":5}}\n\n',
    b'data: {"type":"error","error":{}}\n\n',
    b'data: {"error":{"type":"overloaded_error","message":"x"},'
    b'"type":"error"}\n\n'])
def test_errors_of_odd_form(g, body):
    r = ask(g, [body])
    assert r.status in (502, 503), r
    assert_flat(r, r.status)
    out = run(g, [m.start(), m.text_block(0, "x"), body, m.end(), m.stop()])
    assert out.end == "error"


@pytest.mark.parametrize("status,code,there", [
    (400, "INVALID_REQUEST", 400), (401, "UPSTREAM_ERROR", 502),
    (402, "UPSTREAM_ERROR", 502), (403, "UPSTREAM_ERROR", 502),
    (404, "UPSTREAM_ERROR", 502), (413, "REQUEST_TOO_LARGE", 413),
    (429, "RATE_LIMITED", 429), (500, "UPSTREAM_ERROR", 502),
    (503, None, 503), (504, "UPSTREAM_TIMEOUT", 504),
    (529, "UPSTREAM_OVERLOADED", 503)])
def test_status_instead_of_a_stream(g, status, code, there):
    refused(g, reply_json(message_error("no"), status), there, code)


# The end of a stream.

def ends_of(pieces):
    """(bytes, complete events in them, whether a partial event after them may
    count) for each place where the stream can be cut."""
    at = 0
    for n, piece in enumerate(pieces):
        full = len(piece.rstrip(b"\n"))
        for i in range(len(piece)):
            yield at + i, n, i >= full
        at += len(piece)
    yield at, len(pieces), False


def expected_end(pieces, n):
    """The end of a stream of which n events were received."""
    kinds = [re.search(rb'"type": "(\w+)"', p).group(1) for p in pieces[:n]]
    if b"message_delta" in kinds:
        return "done"
    return "error" if b"message_start" in kinds else "refused"


def end_of(r):
    if r.status != 200:
        assert_flat(r, 502, "UPSTREAM_TRUNCATED")
        return "refused"
    out = Result(r, False, "fam-a-large")
    if out.end == "error":
        assert out.answer["error"]["code"] == "UPSTREAM_TRUNCATED", r
    return out.end


def test_EOF_after_each_byte(g):
    """In parallel: a broken stream ends a while after its error frame.  The
    request says where the answer is cut."""
    pieces = base()
    stream = b"".join(pieces)

    def answer(x):
        at = int(re.search(rb"cut-(\d+)", x.request.body).group(1))
        sse([stream[:at]] if at else [],
            framing="close" if at % 2 else "chunked")(x)

    def one(cut):
        return g.chat(chat("fam-a-large", stream=True, messages=[
            {"role": "user", "content": "cut-%d" % cut[0]}]), g.alice)

    g.a.script(answer)
    cuts = list(ends_of(pieces))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for (at, n, more), r in zip(cuts, pool.map(one, cuts)):
            allowed = {expected_end(pieces, n)}
            if more:
                allowed.add(expected_end(pieces, n + 1))
            got = end_of(r)
            assert got in allowed, (stream[:at][-100:], got, allowed)


@pytest.mark.parametrize("framing", ["chunked", "close", "sized"])
@pytest.mark.parametrize("end", ["close", "reset"])
def test_cut_after_each_event(g, framing, end):
    """The connection breaks, in every framing."""
    pieces = base()
    for n in range(len(pieces) + 1):
        steps = pieces[:n] + ([0.02] if end == "reset" else [])
        r = ask(g, steps, framing=framing, end=end)
        if r.status != 200:
            assert_flat(r, 502)
            assert n <= 2, (n, r)
            continue
        out = Result(r, False, "fam-a-large")
        if n < len(pieces) - 1:
            assert out.end == "error", (n, r)
        elif n == len(pieces):
            assert out.end == "done", (n, r)


@pytest.mark.parametrize("tail", [
    m.stop(), m.text(0, "no"), b"data: no json\n\n", error_event(),
    b"data: [DONE]\n\n", m.start(), m.ping(), b": comment\n\n",
    b"data: half", b"\xff\xfe\n\n", m.text_block(9, "no") * 2000],
    ids=lambda e: e[:30].decode(errors="replace").split("\n")[0])
def test_anything_after_the_end(g, tail):
    answer = whole(g, base() + [tail])
    assert answer["content"] == "Hello"
    answer = whole(g, base() + [0.05, tail])
    assert answer["content"] == "Hello"
    assert whole(g, base())["content"] == "Hello"


def test_anything_after_an_error(g):
    broken(g, [m.start(), error_event()] + base(), "UPSTREAM_OVERLOADED")
    refused(g, [error_event()] + base(), 503, "UPSTREAM_OVERLOADED")


def test_the_end_does_not_wait_for_the_upstream(g):
    gate = threading.Event()
    g.a.script(sse(base() + [gate]))
    with g.connect() as c:
        c.request("POST", CHAT, [g.alice.bearer()],
                  body=chat("fam-a-large", stream=True))
        r = c.response()
        assert r.complete and Result(r, False, "fam-a-large").end == "done"
        gate.set()


def test_each_event_leaves_when_it_came(g):
    pieces = base()
    gates = [threading.Event() for _ in pieces]
    g.a.script(sse([x for p in zip(gates, pieces) for x in p]))
    shown = {0, 3, 4, 6, 8, 9, 12}      # that make a chunk
    with g.connect() as c:
        c.request("POST", CHAT, [g.alice.bearer()],
                  body=chat("fam-a-large", stream=True))
        for i, gate in enumerate(gates):
            gate.set()
            if i == 0:
                assert c.head().status == 200
            if i in shown:
                while c.event().startswith(b":"):
                    pass
        while c.read():
            pass
        assert Result(c.current, False, "fam-a-large").end == "done"


def test_idle_before_the_first_event(gateway):
    g = begin(gateway, location="proxy_read_timeout 1s;")
    refused(g, [m.ping()], 504, "UPSTREAM_TIMEOUT", end="stall")
    assert g.a.last().gone.wait(client.LIMIT)


@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_idle_later(gateway, n):
    g = begin(gateway, location="proxy_read_timeout %ds;" % lib.STALL)
    broken(g, base()[:n], "UPSTREAM_TIMEOUT", end="stall")
    assert g.a.last().gone.wait(client.LIMIT)


def test_idle_after_the_end_is_no_error(gateway):
    g = begin(gateway, location="proxy_read_timeout %ds;" % lib.STALL)
    whole(g, base(), end="stall")


# What is in an event.

BAD = [b"not json", b"{", b"[1]", b"5", b'"x"', b"null", b"{}}", b'{"a":1',
       b'{"a":1,}', b"{'type':'ping'}", b'{"type":"ping"} x',
       b'{"type":"text","x":"\xff"}', b'{"x":"\xc3"}', b'{"x":"\xed\xa0\x80"}',
       b'{"x":"\x01"}', b'{"x":"\\q"}', b'{"x":01}', b'{"x":NaN}',
       b'{"a":' * 100 + b"1" + b"}" * 100, b"{" + b"[" * 5000]


@pytest.mark.parametrize("bad", BAD, ids=lambda b: repr(b[:16])[2:-1])
def test_invalid_json(g, bad):
    event = b"data: " + bad + b"\n\n"
    refused(g, [event] + base())
    refused(g, [m.ping(), event] + base())
    answer = broken(g, [m.start(), m.text_block(0), m.text(0, "half"), event,
                        m.text(0, "no"), m.end(), m.stop()])
    assert answer["content"] == "half"


def test_done_of_another_protocol(g):
    """A compatible API that ends as chat does: no proper end unless the answer
    was complete."""
    out = run(g, base()[:-1] + [b"data: [DONE]\n\n"])
    assert out.end in ("done", "error")
    assert run(g, base()[:4] + [b"data: [DONE]\n\n"]).end == "error"
    assert run(g, base()[:4] + [b"data: [DONE]\ndata:\n\n"]).end == "error"
    assert run(g, base()[:-1] + [b"data: [DONE]\ndata:\n\n"]).end == "done"


@pytest.mark.parametrize("odd", [
    b'event: next_years_event\ndata: {"type":"next_years_event"}\n\n',
    b'data: {"type":"next_years_event","index":0,"delta":{"type":'
    b'"text_delta","text":"no"}}\n\n',
    b'data: {"delta":{"type":"text_delta","text":"no"},"index":0}\n\n',
    b'data: {}\n\n', b'data: {"type":null}\n\n', b'data: {"type":5}\n\n',
    b'event: \ndata: {}\n\n', b"data\n\n", b"data:\n\n", b"\n\n",
    b"data:\ndata:\n\n", b": comment\n\n", b":\n\n", b"event: message_stop\n\n",
    b"event: error\n\n", b"id: 1\n\n", b"retry: 1\n\n", b"nonsense\n\n"],
    ids=lambda e: repr(e[:40])[2:-1])
def test_events_that_say_nothing(g, odd):
    """Unknown, without a type, without data: ignored."""
    pieces = base()
    for n in (0, 1, 4, len(pieces) - 1):
        assert whole(g, pieces[:n] + [odd]
                     + pieces[n:])["content"] == "Hello"


def test_the_event_line_is_a_fallback(g):
    """data.type counts; if it is missing, the event's name does."""
    named = [re.sub(rb'"type": "(message|content|ping)\w*"(, )?', b"", e, 1)
             for e in base()]
    assert b'data: {"message"' in named[0] and b"data: {}" in named[-1]
    assert whole(g, named)["content"] == "Hello"
    wrong = [re.sub(rb"event: \w+", b"event: ping", e) for e in base()]
    assert whole(g, wrong)["content"] == "Hello"
    bare = [e[e.index(b"data:"):] for e in base()]
    assert whole(g, bare)["content"] == "Hello"


ODD = [
    b'{"type":"message_start"}', b'{"type":"message_start","message":null}',
    b'{"type":"message_start","message":[]}',
    b'{"type":"message_start","message":{}}',
    b'{"type":"message_start","message":{"id":5,"usage":null}}',
    b'{"type":"content_block_start"}',
    b'{"type":"content_block_start","index":0}',
    b'{"type":"content_block_start","index":0,"content_block":null}',
    b'{"type":"content_block_start","index":0,"content_block":{}}',
    b'{"type":"content_block_start","index":"0","content_block":'
    b'{"type":"text","text":"x"}}',
    b'{"type":"content_block_start","index":-1,"content_block":'
    b'{"type":"text","text":"x"}}',
    b'{"type":"content_block_start","index":1.5,"content_block":'
    b'{"type":"text","text":"x"}}',
    b'{"type":"content_block_start","index":99999999999999999999,'
    b'"content_block":{"type":"text","text":"x"}}',
    b'{"type":"content_block_start","index":4294967296,"content_block":'
    b'{"type":"tool_use","id":"a","name":"b","input":{}}}',
    b'{"type":"content_block_start","content_block":'
    b'{"type":"text","text":"x"}}',
    b'{"type":"content_block_start","index":9,"content_block":'
    b'{"type":"tool_use"}}',
    b'{"type":"content_block_start","index":9,"content_block":'
    b'{"type":"tool_use","id":null,"name":5,"input":"x"}}',
    b'{"type":"content_block_start","index":9,"content_block":'
    b'{"type":"text","text":null}}',
    b'{"type":"content_block_start","index":9,"content_block":'
    b'{"type":"thinking","thinking":5}}',
    b'{"type":"content_block_delta"}',
    b'{"type":"content_block_delta","index":0}',
    b'{"type":"content_block_delta","index":0,"delta":null}',
    b'{"type":"content_block_delta","index":0,"delta":{}}',
    b'{"type":"content_block_delta","index":0,"delta":{"type":5}}',
    b'{"type":"content_block_delta","index":0,"delta":'
    b'{"type":"text_delta"}}',
    b'{"type":"content_block_delta","index":0,"delta":'
    b'{"type":"text_delta","text":null}}',
    b'{"type":"content_block_delta","index":0,"delta":'
    b'{"type":"text_delta","text":["x"]}}',
    b'{"type":"content_block_delta","delta":'
    b'{"type":"text_delta","text":"x"}}',
    b'{"type":"content_block_stop"}',
    b'{"type":"content_block_stop","index":null}',
    b'{"type":"message_delta"}', b'{"type":"message_delta","delta":null}',
    b'{"type":"message_delta","delta":5,"usage":7}',
    b'{"type":"message_delta","delta":{"stop_reason":5}}',
    b'{"type":"message_delta","delta":{"stop_reason":null,'
    b'"stop_details":"x"},"usage":null}',
    b'{"type":"ping","x":null}']


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("n", [0, 1, 4])
def test_events_of_odd_form(g, odd, n):
    """An event with missing members is either skipped or breaks the stream,
    and the next call works."""
    pieces = base()
    r = ask(g, pieces[:n] + [b"data: " + odd + b"\n\n"] + pieces[n:])
    if r.status == 200:
        out = Result(r, False, "fam-a-large")
        assert out.end in ("done", "error")
    else:
        assert n == 0
        assert_flat(r, 502, "UPSTREAM_ERROR")
    assert whole(g, pieces)["content"] == "Hello"


def test_message_start_twice(g):
    """The role is concatenated by SDKs: it comes once."""
    r = ask(g, [m.start(), m.start()] + base()[1:])
    assert r.status == 200
    Result(r, False, "fam-a-large")


@pytest.mark.parametrize("n", range(2, len(base())))
def test_no_message_start(g, n):
    """A stream that begins in the middle."""
    r = ask(g, base()[n:])
    if r.status == 200:
        Result(r, False, "fam-a-large")
    else:
        assert_flat(r, 502)


def test_member_order(g):
    """type may come last, keys may be escaped."""
    answer = whole(g, [
        b'data: {"message":{"usage":{"input_tokens":3},"id":"msg_z"},'
        b'"type":"message_start"}\n\n',
        b'data: {"content_block":{"text":"a","type":"text"},"index":0,'
        b'"type":"content_block_start"}\n\n',
        b'data: {"delta":{"t\\u0065xt":"b","typ\\u0065":"text_\\u0064elta"},'
        b'"index":0,"type":"content_block_delta"}\n\n',
        b'data: {"index":1,"content_block":{"input":{},"name":"f","id":"t",'
        b'"type":"tool_use"},"type":"content_block_start"}\n\n',
        b'data: {"index":1,"type":"content_block_stop"}\n\n',
        b'data: {"usage":{"output_tokens":2},"delta":{"stop_reason":'
        b'"tool_use"},"type":"message_delta"}\n\n',
        b'data: {"type":"message_stop"}\n\n'], asked=True)
    assert answer["content"] == "ab"
    assert answer["tool_calls"][0]["id"] == "t"
    assert answer["usage"]["total_tokens"] == 5


def test_many_blocks(g):
    """Too many are an error: memory is bounded."""
    blocks = [b for i in range(900) for b in
              (m.text_block(i, "x"), m.end_block(i))]
    assert whole(g, simple(*blocks))["content"] == "x" * 900
    blocks = [m.tool_block(i, "t%d" % i) for i in range(1100)]
    broken(g, simple(*blocks, reason="tool_use"))


# The bytes.

@pytest.mark.parametrize("eol", [b"\r\n", b"\r"], ids=["crlf", "cr"])
def test_other_line_ends(g, eol):
    pieces = [e.replace(b"\n", eol) for e in base()]
    assert whole(g, pieces)["content"] == "Hello"
    stream = b"".join(pieces)
    assert whole(g, [stream[i:i + 1] for i in range(len(stream))])[
        "content"] == "Hello"


def test_mixed_line_ends(g):
    rng = random.Random(3)
    for _ in range(40):
        # CR before LF would be one line end: the blank line needs another
        stream = b"".join(
            re.sub(rb"\n", lambda _: rng.choice([b"\n", b"\r\n"]), e)
            if rng.random() < .7 else e.replace(b"\n", b"\r")
            for e in base())
        stream = re.sub(rb"\r\r(?=\n)", b"\r\r: \n", stream)
        places = sorted(rng.randrange(len(stream)) for _ in range(20))
        pieces = [p for p in (stream[a:b] for a, b in
                              zip([0] + places, places + [len(stream)]))
                  if p]
        assert whole(g, pieces)["content"] == "Hello", stream


def test_byte_order_mark(g):
    pieces = base()
    assert whole(g, [b"\xef\xbb\xbf" + pieces[0]] + pieces[1:])[
        "content"] == "Hello"


@pytest.mark.parametrize("step", [1, 2, 3, 5, 11, 64])
def test_pieces(g, step):
    stream = b"".join(base())
    pieces = []
    for i in range(0, len(stream), step):
        pieces.append(stream[i:i + step])
        if i % (step * 97) == 0:
            pieces.append(0.001)
    assert whole(g, pieces)["content"] == "Hello"


def test_no_space_and_several_lines(g):
    pieces = [e.replace(b": {", b":{", 1).replace(b'", "', b'",\ndata:"')
              for e in base()]
    assert b"\ndata:\"" in pieces[0]
    assert whole(g, pieces)["content"] == "Hello"


@pytest.mark.parametrize("ascii", [True, False], ids=["escaped", "utf-8"])
@pytest.mark.parametrize("text", [
    "a\u2028b\u2029c\u0085d\u000bd\u000ce", "\x00\x01\x1f\x7f",
    "\U0001f600\u00e9\u6f22", '"\\/\b\f\n\r\t', "\ufeff\ufffe\uffff",
    "data: [DONE]\n\n", "\r\n\r\n", "</script>"],
    ids=["U+2028", "controls", "planes", "escapes", "nonchars", "done",
         "crlf", "slash"])
def test_text(g, text, ascii):
    def spell(e):
        at = e.index(b"data: ") + 6
        return e[:at] + json.dumps(json.loads(e[at:]),
                                   ensure_ascii=ascii).encode() + b"\n\n"

    pieces = [spell(e) for e in simple(
        m.text_block(0), m.text(0, text), m.end_block(0),
        m.thinking_block(1), m.thinking(1, text), m.end_block(1),
        m.tool_block(2), m.partial(2, text), m.end_block(2))]
    stream = b"".join(pieces)
    for cut in (pieces, [stream[i:i + 1] for i in range(len(stream))]):
        answer = whole(g, cut)
        assert answer["content"] == text
        assert answer["reasoning_content"] == text
        assert answer["tool_calls"][0]["function"]["arguments"] == text


def test_lone_surrogates(g):
    answer = whole(g, simple(m.text_block(0), m.text(0, "a\ud800b"),
                             m.text(0, "\udc00"), m.end_block(0)))
    assert answer["content"].encode("utf-16", "surrogatepass").decode(
        "utf-16", "replace").replace("\ufffd", "") == "ab"


@pytest.mark.parametrize("size", [10000, 100000, 1 << 20, 3 << 20])
def test_big_events(g, size):
    text = ("é\"\n" * size)[:size // 3]
    answer = whole(g, simple(
        m.text_block(0), m.text(0, text), m.end_block(0), m.tool_block(1),
        m.partial(1, text), m.end_block(1)))
    assert answer["content"] == text
    assert answer["tool_calls"][0]["function"]["arguments"] == text


def test_a_big_signature(g):
    answer = whole(g, simple(
        m.thinking_block(0, "t"), m.signature(0, "S" * 300000),
        m.signature(0, "T" * 300000), m.end_block(0)), model="fam-a-full")
    assert answer["thinking_blocks"][0]["signature"] \
        == "S" * 300000 + "T" * 300000


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_an_event_of_10_MB(g, framing):
    """Over the limit: an error frame, first or later; and bounded memory."""
    big = m.text(0, "x" * (10 << 20))
    answer = broken(g, [m.start(), m.text_block(0), m.text(0, "half"), big,
                        m.end(), m.stop()], framing=framing)
    assert answer["content"] == "half"
    refused(g, [big], framing=framing)
    refused(g, [b"data: " + b"x" * (10 << 20)], framing=framing)
    if not lib.ASAN:
        assert g.memory() < 200 << 20


def test_an_event_that_never_ends(g):
    """The limit applies before the event's end."""
    gone = broken(g, [m.start(), b"data: " + b"x" * (5 << 20)], end="stall")
    assert gone["content"] == ""
    assert g.a.last().gone.wait(client.LIMIT)


def test_the_limit_is_configurable(gateway):
    g = begin(gateway, location="modelgw_max_event_size 16k;")
    text = "x" * 15000
    assert whole(g, simple(m.text_block(0), m.text(0, text)))[
        "content"] == text
    broken(g, simple(m.text_block(0), m.text(0, "x" * 17000)))


def test_kept_thinking_is_bounded(gateway):
    """What is kept of many events is bounded like one event."""
    g = begin(gateway, location="modelgw_max_event_size 16k;")
    out = run(g, simple(m.thinking_block(0), *[m.thinking(0, "x" * 1000)]
                        * 200, m.signature(0, "S"), m.end_block(0)),
              model="fam-a-full")
    if out.end == "done":
        assert "thinking_blocks" not in out.answer \
            or len(out.answer["thinking_blocks"][0]["thinking"]) == 200000


def test_many_events(g):
    pieces = simple(m.text_block(0), *(m.text(0, "w%d " % i)
                                       for i in range(5000)), m.end_block(0))
    expected = "".join("w%d " % i for i in range(5000))
    assert whole(g, pieces)["content"] == expected
    assert whole(g, [b"".join(pieces)])["content"] == expected


@pytest.mark.skipif(lib.ASAN, reason="freed memory is kept back")
def test_memory_of_a_long_stream(gateway):
    g = begin(gateway, workers=1)
    block = b"".join([m.text(0, "word "), m.thinking(1, "thought "),
                      m.partial(2, '"x",')]) * 200
    first = [m.start(), m.text_block(0), m.thinking_block(1),
             m.tool_block(2)]
    for n in (100, 400):
        assert whole(g, first + [block] * n + [m.end(), m.stop()])["content"]
        if n == 100:
            before = g.memory()
    assert g.memory() - before < 4 << 20


# Random damage.

def mutated(rng, stream):
    """The stream with some damage: of bytes, of values, of whole events."""
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(stream))
        how = rng.randrange(7)
        if how == 0:
            stream = stream[:at] + stream[at + rng.randrange(1, 9):]
        elif how == 1:
            stream = stream[:at] + bytes([rng.randrange(256)]) \
                + stream[at + 1:]
        elif how == 2:
            stream = stream[:at] + rng.choice(
                [b"\n", b"\r", b"\n\n", b'"', b"{", b"}", b"\\", b"\0",
                 b"data: ", b"null", b"\xe2\x80\xa8"]) + stream[at:]
        elif how == 3:
            values = list(re.finditer(rb'(?<=: )("[^"]*"|\d+|null)', stream))
            v = rng.choice(values)
            stream = stream[:v.start()] + rng.choice(
                [b"null", b"-1", b"1e9", b'""', b"[]", b"{}", b"true", b"7",
                 b'"tool_use"', b'"text"', b"1025"]) + stream[v.end():]
        else:
            parts = stream.split(b"\n\n")
            i, j = rng.randrange(len(parts)), rng.randrange(len(parts))
            if how == 4:
                parts[i], parts[j] = parts[j], parts[i]
            elif how == 5:
                parts.insert(i, parts[j])
            else:
                del parts[i]
            stream = b"\n\n".join(parts) or b"\n"
    return stream


@pytest.mark.parametrize("seed", range(8))
def test_damaged_streams(g, seed):
    """Each ends in one of the three ways."""
    rng = random.Random(seed)
    rich = b"".join(
        [m.start(), m.thinking_block(0), m.thinking(0, "t"),
         m.signature(0, "S"), m.end_block(0)]
        + [e.replace(b'"index": 1', b'"index": 2').replace(
            b'"index": 0', b'"index": 1') for e in base()[1:]])
    for _ in range(60):
        stream = mutated(rng, rich)
        model = rng.choice(["fam-a-large", "fam-a-full", "fam-a-off"])
        r = ask(g, [stream], model=model,
                end=rng.choice(["clean", "clean", "close"]))
        try:
            if r.status == 200:
                Result(r, False, model)
            else:
                assert_flat(r, (400, 413, 429, 502, 503, 504))
        except (AssertionError, ValueError, TypeError) as e:
            raise AssertionError("%s\n%r" % (e, stream)) from e
    assert whole(g, base())["content"] == "Hello"


# Usage.

@pytest.mark.parametrize("start,end,expected", [
    (None, None, ("", "", "", "")),
    ({}, {}, ("", "", "", "")),
    ({"input_tokens": 5, "output_tokens": 1}, None, ("5", "", "", "1")),
    ({"input_tokens": None, "output_tokens": None},
     {"output_tokens": 3}, ("", "", "", "3")),
    ({"input_tokens": 5, "cache_read_input_tokens": 4}, {
        "input_tokens": None, "cache_read_input_tokens": None,
        "output_tokens": 3}, ("5", "4", "", "3")),
    ({"input_tokens": "5", "output_tokens": [1]},
     {"output_tokens": -3}, ("", "", "", "")),
    ({"input_tokens": 5, "cache_read_input_tokens": 4,
      "cache_creation_input_tokens": 3, "output_tokens": 9},
     {"input_tokens": 6, "output_tokens": 0}, ("6", "4", "3", "0"))])
def test_usage(g, start, end, expected):
    """A null or a wrong type counts as absent; a later count replaces."""
    first = event("message_start", message={"id": "m", "usage": start})
    last = event("message_delta", delta={"stop_reason": "end_turn"},
                 usage=end)
    r, line = metered(g, [first, m.text_block(0, "x"), last, m.stop()],
                      asked=True)
    usage = Result(r, True, "fam-a-large").answer["usage"]
    got = tuple(int(line[n] or 0) for n in ("input", "cache_read",
                                            "cache_write", "output"))
    want = tuple(int(n or 0) for n in expected)
    assert got == want
    assert usage["prompt_tokens"] == sum(want[:3])
    assert usage["completion_tokens"] == want[3]
    assert usage["total_tokens"] == sum(want)
    assert line["complete"] == "1"


@pytest.mark.parametrize("n,output", [(1, "1"), (4, "1"), (12, "7")])
def test_what_is_metered_of_a_broken_stream(g, n, output):
    r, line = metered(g, base()[:n] + [b"data: no json\n\n"])
    assert Result(r, False, "fam-a-large").end == "error"
    assert line["input"] == "10" and line["output"] == output, line
    assert line["complete"] == "0" and line["code"] == "UPSTREAM_ERROR"


def test_what_is_metered_after_the_end(g):
    """An event after the last one changes nothing."""
    r, line = metered(g, base() + [m.end("end_turn",
                                         {"output_tokens": 999})])
    assert line["output"] == "7" and line["complete"] == "1"


# Clients.

def start_call(g, tag="none", **kw):
    c = g.connect(**kw)
    c.request("POST", CHAT, [g.alice.bearer(), ("X-Test-Tag", tag)],
              body=chat("fam-a-large", stream=True))
    return c


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("silent", [False, True])
def test_client_gone(g, how, silent):
    """The upstream connection is closed at once; input is metered
    nevertheless."""
    tag = "gone-%d" % next(COUNT)
    g.a.script(sse(base()[:5], end="stall") if silent
               else sse(base()[:4] + [m.text(0, "x"), 0.05] * 200))
    c = start_call(g, tag)
    assert c.head().status == 200
    assert c.event()
    getattr(c, how)()
    assert g.a.wait().gone.wait(client.LIMIT), \
        "the upstream connection stayed open"
    line = g.lines.line(tag)
    assert line["input"] == "10" and line["complete"] == "0", line
    assert whole(g, base())["content"] == "Hello"


def test_client_gone_before_the_first_event(g):
    g.a.script(sse([m.ping()], end="stall"))
    c = start_call(g)
    request = g.a.wait()
    g.wait_idle()
    c.close()
    assert request.gone.wait(client.LIMIT)


def test_client_gone_h2(g):
    g.a.script(sse(base()[:4], end="stall"))
    with client.H2(g.port2) as c:
        sid = c.request("POST", CHAT, [g.alice.bearer()],
                        chat("fam-a-large", stream=True))
        assert c.body(sid, 1)
        c.reset(sid)
        assert g.a.wait().gone.wait(client.LIMIT)


def test_client_gone_after_done(g):
    """SDKs do not wait for the end of the response: the call is complete."""
    tag = "gone-%d" % next(COUNT)
    gate = threading.Event()
    g.a.script(sse(base() + [gate]))
    c = start_call(g, tag)
    assert c.head().status == 200
    while b"[DONE]" not in c.event():
        pass
    c.close()
    g.wait_idle()
    gate.set()
    line = g.lines.line(tag)
    assert line["output"] == "7" and line["complete"] == "1"


def test_slow_reader(g):
    text = "z" * 50000
    g.a.script(sse(simple(m.text_block(0), *[m.text(0, text)] * 200)))
    with start_call(g, rcvbuf=4096) as slow:
        assert slow.head().status == 200
        slow.read()
        g.wait_idle()
        while slow.read():
            pass
        out = Result(slow.current, False, "fam-a-large")
        assert out.answer["content"] == text * 200


def test_many_streams_at_once(g):
    """Each keeps its own state."""
    def script(x):
        word = x.request.json()["messages"][0]["content"][0]["text"]
        sse([y for e in simple(m.text_block(0), m.text(0, word),
                               m.text(0, word), m.end_block(0))
             for y in (e, 0.01)])(x)

    g.a.script(script)
    calls = []
    for i in range(40):
        c = g.connect()
        body = chat("fam-a-large", stream=True)
        body["messages"][0]["content"] = "word%d" % i
        c.request("POST", CHAT, [g.alice.bearer()], body=body)
        calls.append(c)
    for i, c in enumerate(calls):
        out = Result(c.response(), False, "fam-a-large")
        assert out.answer["content"] == "word%d" % i * 2
        c.close()


# An upstream that answers in another form.

def test_json_where_a_stream_was_asked_for(g):
    r = ask(g, reply_json(message("large-2026-01-01")))
    if r.status == 200:
        assert b"large-2026-01-01" not in r.body
        assert b"stop_reason" not in r.body
    else:
        assert_flat(r, 502)


def test_a_stream_where_json_was_asked_for(g):
    g.a.script(sse(base()))
    r = g.chat(chat("fam-a-large"), g.alice)
    if r.status == 200:
        assert b"large-2026-01-01" not in r.body
        assert b"content_block" not in r.body
    else:
        assert_flat(r, 502)


@pytest.mark.parametrize("ctype", ["text/event-stream; charset=utf-8",
                                   "Text/Event-Stream", "text/plain",
                                   "application/octet-stream", ""])
def test_content_types(g, ctype):
    r = ask(g, base(), ctype=ctype)
    if r.status == 200:
        assert Result(r, False, "fam-a-large").end == "done"
    else:
        assert "event" not in ctype.lower()
        assert_flat(r, 502)


def test_gzip(g):
    """Not requested, and not readable."""
    refused(g, sse([gzip.compress(b"".join(base()))],
                   headers=[("Content-Encoding", "gzip")]))


def test_redirect(g):
    refused(g, reply(302, headers=[("Location", "http://127.0.0.1/")]))


def test_headers_of_the_stream(g):
    r = ask(g, sse(base(), headers=[
        ("anthropic-ratelimit-tokens-remaining", "5"),
        ("request-id", "req_up"), ("X-Accel-Redirect", "/x")]))
    assert Result(r, False, "fam-a-large").end == "done"
    assert r.get("anthropic-ratelimit-tokens-remaining") is None
    assert r.get("x-accel-redirect") is None
    assert r.get("request-id") == "req_up"


@pytest.mark.parametrize("location", [
    "proxy_buffering on; proxy_buffers 8 64k;",
    "gzip on; gzip_types *; gzip_min_length 1;",
    "proxy_buffer_size 1k; proxy_buffers 4 1k; "
    "proxy_busy_buffers_size 2k;"])
def test_the_operators_settings(gateway, location):
    g = begin(gateway, location=location)
    test_each_event_leaves_when_it_came(g)
    assert whole(g, simple(m.text_block(0), m.text(0, "x" * 100000)))[
        "content"] == "x" * 100000
