"""Allocations that fail: for each one that the module makes for a call, the
client gets an error or an answer without an end, never one that is wrong or
lacks something, and the worker goes on.  See memory_fails."""

import re
import time

import pytest

import client
import gateway as lib
from memory_fails import Memory, altered, skip
from test_credit_responses import Purse, body_of
from upstream import (chat_completion, chat_stream, event, message,
                      message_error, message_stream, numbered, reply_json,
                      response, response_events, response_stream, sse)

TARGET = "/v1/responses"
MOST = 1000         # allocations of a call

pytestmark = skip


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    return Memory(str(tmp_path_factory.mktemp("memory") / "counts"))


@pytest.fixture(scope="module")
def g(module_gateway, memory):
    with altered(memory):
        g = module_gateway(
            workers=1, keys=[lib.Key("carl-1", "c")],
            groups=lib.group_a()
            + lib.group_b(protocol="responses embeddings", models="""
                model fam-b-one one-0613 free;
                model fam-b-emb one-0613 free kind=embedding;""")
            + lib.group("c", "chat", "fam-c-", "http://api.vendor-b.test",
                        "Authorization file:$dir/b.secret bearer",
                        "model fam-c-one one-0613 free;"))
    yield g


INPUT = [{"role": "user", "content": "Hi"},
         {"type": "reasoning", "id": "rs_1", "summary": []},
         {"role": "assistant", "content": "Ho"},
         {"role": "user", "content": "Hu " * 20000}]
TOOLS = [{"type": "function", "name": "f", "parameters": {}},
         {"type": "web_search"}]
FAILED = response_events("one-0613", last="response.failed")
FAILED[-1]["response"]["error"] = {"code": "server_error", "message": 'a "b"'}
LARGE = {"model": "one-0613", "data": [{"embedding": [0.5] * 100}] * 1000,
         "usage": {"prompt_tokens": 7, "total_tokens": 7}}

# group: what its upstream sends, whole, as a stream, and a stream that fails

ANSWERS = {
    "a": (message("large-2026-01-01"), message_stream("large-2026-01-01"),
          message_stream("large-2026-01-01")[:4]
          + [event("error", message_error("x"))]),
    "b": (response("one-0613"), response_stream("one-0613"), numbered(FAILED)),
    "c": (chat_completion("one-0613"), chat_stream("one-0613"),
          chat_stream("one-0613")[:2])}
MODELS = {"a": "fam-a-large", "b": "fam-b-one", "c": "fam-c-one"}


def same(r):
    """What a call always gives."""
    return r.status, re.sub(rb'"created\w*":\d+|"\w+_at":\d+|tm-a-\d+', b"", r.body)


def run(g, memory, script, call):
    """Makes the call again and again, until none of its allocations fails."""
    pids = g.pids()

    def one(n):
        for u in (g.a, g.b):
            u.reset()
            u.script(script)
        lines = len(g.whole_lines("access.log"))
        memory.fail(n)
        r = call()
        end = time.monotonic() + client.LIMIT
        while len(g.whole_lines("access.log")) == lines:
            assert time.monotonic() < end, "a request does not end"
            time.sleep(0.001)
        n = memory.count()
        memory.fail(0)
        return r, n

    want = same(one(0)[0])

    for n in range(1, MOST):
        r, count = one(n)
        fine = r and r.complete and same(r) == want
        if count < n:
            assert fine, r
            break
        assert fine or not r or r.status == 500 or not r.complete, (n, r)
    else:
        pytest.fail("there is no end of allocations")

    assert n > 10, "nothing has failed"
    assert same(one(0)[0]) == want
    assert g.pids() == pids and not g.faults(), g.faults()


def key(g, group):
    return {"a": g.alice, "b": g.bob, "c": g.keys[-1]}[group]


@pytest.mark.parametrize("kind", ["whole", "stream", "error", "cut", "refused"])
@pytest.mark.parametrize("group", ANSWERS)
def test_responses(g, memory, group, kind):
    whole, events, failed = ANSWERS[group]
    script = {"whole": reply_json(whole), "stream": sse(events),
              "error": sse(failed), "cut": sse(events[:-1][:4]),
              "refused": reply_json({"error": {"message": "x"}}, 400)}[kind]
    body = {"model": MODELS[group], "input": INPUT, "tools": TOOLS,
            "stream": kind not in ("whole", "refused")}
    run(g, memory, script, lambda: g.post(TARGET, body, key(g, group)))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("group, target", [
    ("a", "/v1/messages"), ("a", "/v1/chat/completions"),
    ("c", "/v1/chat/completions")])
def test_others(g, memory, group, target, stream):
    whole, events, _ = ANSWERS[group]
    body = {"model": MODELS[group], "max_tokens": 9, "stream": stream,
            "messages": [{"role": "user", "content": "Hi"}]}
    run(g, memory, sse(events) if stream else reply_json(whole),
        lambda: g.post(target, body, key(g, group)))


@pytest.mark.parametrize("more", [{"background": True}, {"input": [{}]}])
@pytest.mark.parametrize("group", ANSWERS)
def test_not_a_call(g, memory, group, more):
    body = dict({"model": MODELS[group], "input": INPUT}, **more)
    run(g, memory, reply_json({}),
        lambda: g.post(TARGET, body, key(g, group)))


def test_large(g, memory):
    body = {"model": "fam-b-emb", "input": "x"}
    run(g, memory, reply_json(LARGE),
        lambda: g.post("/v1/embeddings", body, g.bob))


@pytest.mark.parametrize("stream", [False, True])
def test_money(module_gateway, memory, stream):
    """A call that was sent is in the books, once, and no other; nothing stays
    held."""
    with altered(memory):
        bank = Purse(module_gateway, workers=1)
    g = bank.g
    sent = []

    def call():
        body = body_of(stream=stream, input=INPUT, tools=TOOLS)
        r = g.post(TARGET, body, bank.km)
        sent.extend([body["model"]] * len(g.a.requests))
        return r

    run(g, memory, sse(response_stream("m")) if stream
        else reply_json(response("m")), call)

    bank.audit()
    assert [row["model"] for row in bank.rows()] == sent
