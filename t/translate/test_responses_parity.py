"""A stream of /v1/responses equals the whole answer: for every stream of the
vectors, and for generated messages and chat completions."""

import glob
import itertools
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gateway as lib
import message_events as m
import response_events
from aggregate import aggregate, events
from compare_responses import normal
from gateway import ROOT
from generated import (IDS, INPUTS, PROFILE, TEXTS, by_type, cut,
                       message_to_events, messages, pairs, pieces_of, strings)
from message_events import Raw, dumps
from upstream import DONE, data, reply, sse
from vectors import LOG, RESPONSES, SERVER, Log, Vector, encode, same

STREAMS = [v for v in map(Vector, sorted(glob.glob(os.path.join(
    ROOT, "t/vectors-responses/**/st-*.json"), recursive=True)))
    if v.protocol != "responses"]

MODELS = {"messages": "fam-a-large", "chat": "fam-b-one"}
COUNT = itertools.count()
TOKENS = ("input", "cache_read", "cache_write", "cache_write_1h", "output",
          "reasoning")
LIMITS = ("max_tokens", "model_context_window_exceeded")
SEALED = "reasoning.encrypted_content"


@pytest.fixture(scope="module")
def g(module_gateway):
    g = module_gateway(http=LOG, server=SERVER)
    g.lines = Log(g)
    return g


def call(g, protocol, script, request):
    """(body of the response, usage in the log)"""
    tag = "responses-parity-%d" % next(COUNT)
    up, key = {"messages": (g.a, g.alice), "chat": (g.b, g.bob)}[protocol]
    up.reset()
    up.script(script)
    r = g.post(RESPONSES, dict(request, model=MODELS[protocol]), key,
               [("X-Test-Tag", tag)])
    line = g.lines.line(tag)
    assert r is not None and r.status == 200 and r.complete, r
    assert line["complete"] == "1"
    return r.body, {name: int(line[name] or 0) for name in TOKENS}


def comparable(response):
    """Without the times."""
    return pairs(normal({k: v for k, v in response.items() if k not in (
        "created_at", "completed_at")}, exact=True))


def check_parity(g, protocol, pieces, answer, request):
    """answer: JSON.  A call at the end of an answer that a limit has cut may be
    whole: only its stream shows that, if the call has arguments."""
    request = dict(request, input="hi")
    body, by_stream = call(g, protocol, sse(pieces),
                           dict(request, stream=True))
    stream = comparable(response_events.fold(body))
    body, by_answer = call(g, protocol, reply(200, encode(answer)),
                           dict(request, stream=False))
    whole = comparable(response_events.whole(body))

    if protocol == "messages" and cut_call(json.loads(answer)) \
            and argued(b"".join(pieces)) \
            and len(calls(stream)) == len(calls(whole)) + 1:
        last = [i for i in stream["output"] if i["type"].endswith("_call")][-1]
        stream["output"].remove(last)
    wrong = same(whole, stream)
    assert not wrong, "whole: %s\nstream: %s\n%s" % (whole, stream, wrong)
    assert by_answer == by_stream
    return whole


def cut_call(message):
    return message["stop_reason"] in LIMITS and message["content"] \
        and message["content"][-1]["type"] == "tool_use"


def argued(stream):
    """Whether a stream has arguments of the block that began last."""
    last, some = None, False
    for e in m.parse(stream.decode(errors="surrogatepass")):
        if e["type"] == "content_block_start":
            last, some = e["index"], bool(e["content_block"].get("input"))
        elif e.get("index") == last and "delta" in e:
            some |= bool(e["delta"].get("partial_json"))
    return some


def completion(seen):
    """The chat completion that chunks make, of the first choice."""
    message = aggregate([e for e in seen if e == "[DONE]"
                         or all(c["index"] == 0 for c in e.get("choices", ()))])
    finish, usage = message.pop("finish_reason"), message.pop("usage")
    if message.pop("end") == "error" or not finish:
        raise m.NotWhole("cut")
    return {"id": seen[0]["id"], "object": "chat.completion", "created": 1,
            "model": "up", "usage": usage, "choices": [
                {"index": 0, "message": message, "finish_reason": finish}]}


@pytest.mark.parametrize("vector", STREAMS, ids=lambda v: v.name)
def test_vectors(g, vector):
    try:
        answer = dumps(m.fold(vector.raw)) if vector.protocol == "messages" \
            else json.dumps(completion(events(vector.raw)))
    except m.NotWhole:
        # a stream that breaks; half a tool's input, which no whole answer has
        end = vector.out["events"][-1] if "events" in vector.out \
            else {"type": "error"}
        assert end["type"] in ("error", "response.incomplete")  \
            or "broken" in vector.name
        return
    check_parity(g, vector.protocol, [encode(vector.raw)], answer,
                 vector.request)


# Generated answers.

REQUESTS = st.fixed_dictionaries({}, optional={
    "include": st.sampled_from([[SEALED], [], None]),
    "reasoning": st.sampled_from([{"summary": "auto"}, {"summary": None},
                                  {"generate_summary": "concise"}]),
    "text": st.just({"format": {"type": "json_schema", "name": "n",
                                "schema": {"type": "object"}}}),
    "metadata": st.sampled_from([{"a": "ä\"\\"}, None]),
    "temperature": st.sampled_from([0.5, None]),
    "parallel_tool_calls": st.booleans()})

KINDS = ("function", "custom", "namespace", "tool_search", "unknown")


def declare(random, names):
    """(tools, name -> (name at the upstream, kind, name, namespace))"""
    tools, known = [], {}
    for name in sorted(names):
        kind = random.choice(KINDS)
        inner = {"type": "function", "name": name}
        known[name] = name, kind, name, None
        if kind == "namespace":
            tools.append({"type": "namespace", "name": "sp",
                          "description": "", "tools": [inner]})
            known[name] = "sp__" + name, kind, name, "sp"
        elif kind == "tool_search":
            if {"type": kind, "execution": "client"} not in tools:
                tools.append({"type": kind, "execution": "client"})
            known[name] = kind, kind, None, None
        elif kind != "unknown":
            tools.append(dict(inner, type=kind))
    return tools, known


def called(known, name, id, arguments):
    """What the client gets of a call."""
    _, kind, own, space = known[name]
    if kind == "tool_search":
        return "tool_search_call", id, None, None, json.loads(arguments)
    if kind == "custom":
        given = json.loads(arguments).get("input")
        return "custom_tool_call", id, own, None, pairs(
            given if isinstance(given, str) else arguments)
    return "function_call", id, own, space, arguments


def calls(response):
    return [(i["type"], i["call_id"], i.get("name"), i.get("namespace"),
             i["input"] if "input" in i else i["arguments"])
            for i in response["output"] if i["type"].endswith("_call")]


def texts(response, kind="message", member="content"):
    return "".join(p.get("text", p.get("refusal")) for i in response["output"]
                   if i["type"] == kind for p in i[member])


NO_ARGUMENTS = st.one_of(
    st.builds(lambda id, name: {"type": "tool_use", "id": "toolu_" + id,
                                "name": name, "input": Raw("{}")}, IDS, IDS),
    st.builds(lambda: {"type": "text", "text": ""}))


@st.composite
def endings(draw):
    """Messages that end with calls without arguments, or empty texts."""
    message = draw(messages())
    message["content"] += draw(st.lists(NO_ARGUMENTS, min_size=1, max_size=3))
    message["stop_reason"] = draw(st.sampled_from(
        LIMITS + ("refusal", "tool_use")))
    return message


@PROFILE
@given(st.one_of(messages(), endings()), st.randoms(use_true_random=False),
       REQUESTS, strings())
def test_generated_messages(g, message, random, request, text):
    uses = by_type(message, "tool_use")
    tools, known = declare(random, {use["name"] for use in uses})
    own = [use["name"] for use in uses]
    for use in uses:
        use["name"], kind, *_ = known[use["name"]]
        if kind == "custom" and random.random() < .5:
            use["input"] = Raw('{"input": %s}' % text)
    stream = message_to_events(random, message, "content")
    folded = m.fold(b"".join(stream).decode(errors="surrogatepass"))

    response = check_parity(
        g, "messages", cut(random, b"".join(stream)),
        dumps(dict(message, usage=folded["usage"])),
        dict(request, tools=tools))
    expected = [called(known, name, use["id"], str(use["input"]))
                for name, use in zip(own, uses)]
    if cut_call(message):
        expected.pop()
    assert expected == calls(response)
    check_texts(response, "".join(b["text"] for b in by_type(
        message, "text")), "".join(b["thinking"] for b in by_type(
            message, "thinking")), request)


def units(text):
    """Of UTF-16: halves of a surrogate pair may be in two items."""
    return text.encode("utf-16-le", "surrogatepass")


def check_texts(response, text, thought, request):
    assert units(texts(response)).startswith(units(text))
    asked = request.get("reasoning") or {}
    if not any(asked.values()):
        thought = ""
    assert units(texts(response, "reasoning", "summary")) == units(thought)


CALLS = st.builds(lambda id, name, arguments: {
    "id": "call_" + id, "type": "function",
    "function": {"name": name, "arguments": str(arguments)}},
    IDS, IDS, INPUTS)

USAGE = st.builds(lambda prompt, completion, details: {
    "prompt_tokens": prompt + 50, "completion_tokens": completion + 50,
    "total_tokens": prompt + completion + 100, **details},
    st.integers(0, 10**9), st.integers(0, 10**9), st.fixed_dictionaries(
        {}, optional={
            "prompt_tokens_details": st.sampled_from(
                [None, {"cached_tokens": 5, "cache_write_tokens": 7},
                 {"cached_tokens": 50}]),
            "completion_tokens_details": st.sampled_from(
                [None, {"reasoning_tokens": 50}])}))

COMPLETIONS = st.fixed_dictionaries({
    "content": st.one_of(st.none(), TEXTS), "usage": USAGE,
    "finish": st.sampled_from(["stop", "length", "content_filter",
                               "tool_calls", "next_year"]),
    "tool_calls": st.lists(CALLS, max_size=3, unique_by=lambda c: c["id"])},
    optional={"reasoning_content": TEXTS, "refusal": TEXTS})


def chunk(delta, **more):
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk",
            "created": 1, "model": "one-0613",
            "choices": [{"index": 0, "delta": delta, "finish_reason": None,
                         **more}]}


def completion_to_chunks(random, given):
    """A stream of the completion; its calls may be interleaved."""
    out = [chunk({"role": "assistant", "content": ""})]
    for name in ("reasoning_content", "content", "refusal"):
        out += [chunk({name: t})
                for t in pieces_of(random, given.get(name) or "")]
    lanes = []
    for i, one in enumerate(given["tool_calls"]):
        inner = one["function"]
        lanes.append([{"index": i, **one, "function": {
            "name": inner["name"], "arguments": ""}}] + [
                {"index": i, "function": {"arguments": t}}
                for t in pieces_of(random, inner["arguments"])])
    mixed, begun = random.random() < .3, 0
    while any(lanes):
        live = [n for n, lane in enumerate(lanes) if lane and n <= begun]
        n = random.choice(live) if mixed else live[0]
        begun += n == begun
        out.append(chunk({"tool_calls": [lanes[n].pop(0)]}))
    out.append(chunk({}, finish_reason=given["finish"]))
    out.append(dict(chunk({}), choices=[], usage=given["usage"]))
    return [data(c) for c in out] + [DONE]


@PROFILE
@given(COMPLETIONS, st.randoms(use_true_random=False), REQUESTS, strings())
def test_generated_completions(g, given, random, request, text):
    found = given["tool_calls"]
    tools, known = declare(random, {c["function"]["name"] for c in found})
    expected = []
    for one in found:
        inner = one["function"]
        if known[inner["name"]][1] == "custom" and random.random() < .5:
            inner["arguments"] = '{"input": %s}' % text
        expected.append(called(known, inner["name"], one["id"],
                               inner["arguments"]))
        inner["name"] = known[inner["name"]][0]

    message = {name: given[name] for name in (
        "content", "reasoning_content", "refusal") if name in given}
    if found:
        message["tool_calls"] = found
    answer = dict(chunk({}), object="chat.completion", usage=given["usage"],
                  choices=[{"index": 0, "finish_reason": given["finish"],
                            "message": dict(message, role="assistant")}])
    response = check_parity(
        g, "chat", cut(random, b"".join(completion_to_chunks(random, given))),
        json.dumps(answer), dict(request, tools=tools))
    if given["finish"] == "length" and expected:
        expected.pop()
    assert expected == calls(response)
    check_texts(response, given["content"] or "",
                given.get("reasoning_content", ""), request)
