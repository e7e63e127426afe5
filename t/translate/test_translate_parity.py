"""A translated stream equals the translation of the whole message: for every
stream of the vectors, and for generated messages."""

import glob
import itertools
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gateway as lib
import message_events as m
from aggregate import aggregate, disorder, events
from gateway import ROOT, chat
from generated import (PROFILE, by_type, cut, message_to_events, messages,
                       pairs)
from message_events import dumps
from upstream import reply, sse
from vectors import LOG, SERVER, Log, Vector, encode, same

STREAMS = [v for v in map(Vector, sorted(glob.glob(
    os.path.join(ROOT, "t/vectors/str-*.json"))))
    if v.protocol == "messages"]

MODELS = "".join("""
        model fam-a-%s  large-2026-01-01  reasoning_output=%s;""" % (r, r)
                 for r in ("off", "content", "full"))

COUNT = itertools.count()
TOKENS = ("input", "cache_read", "cache_write", "cache_write_1h", "output",
          "reasoning")


@pytest.fixture(scope="module")
def g(module_gateway):
    g = module_gateway(groups=lib.group_a(models=lib.MODELS_A + MODELS)
                       + lib.group_b(), http=LOG, server=SERVER)
    g.lines = Log(g)
    return g


def call(g, script, reasoning, **more):
    """(response, usage in the log)"""
    tag = "parity-%d" % next(COUNT)
    g.a.reset()
    g.a.script(script)
    r = g.chat(chat("fam-a-" + reasoning, **more), g.alice,
               [("X-Test-Tag", tag)])
    line = g.lines.line(tag)
    assert r is not None and r.status == 200 and r.complete, r
    return r, {name: int(line[name] or 0) for name in TOKENS}, line


def streamed(g, pieces, reasoning="content"):
    r, metered, line = call(g, sse(pieces), reasoning, stream=True,
                            stream_options={"include_usage": True})
    assert line["complete"] == "1"
    seen = events(r.body)
    assert disorder(seen) is None, disorder(seen)
    assert len({(e["id"], e["created"], e["model"], e["object"])
                for e in seen[:-1]}) == 1
    assert seen[0]["model"] == "fam-a-" + reasoning
    assert seen[0]["object"] == "chat.completion.chunk"
    return dict(aggregate(seen), id=seen[0]["id"]), metered


def whole(g, message, reasoning="content"):
    r, metered, line = call(g, reply(200, encode(dumps(message))), reasoning)
    assert line["complete"] == "1"
    body = r.json()
    choice, = body["choices"]
    assert body["object"] == "chat.completion"
    assert body["model"] == "fam-a-" + reasoning
    return dict(choice["message"], finish_reason=choice["finish_reason"],
                usage=body["usage"], id=body["id"], end="done"), metered


def normal(answer):
    """A stream's content begins as "", that of a whole answer may be null."""
    answer = {k: pairs(v) for k, v in answer.items() if v is not None}
    if answer.get("content") == "":
        del answer["content"]
    return answer


def check_parity(g, pieces, message, reasoning="content"):
    stream, by_stream = streamed(g, pieces, reasoning)
    answer, by_answer = whole(g, message, reasoning)
    wrong = same(normal(answer), normal(stream))
    assert not wrong, "whole: %s\nstream: %s\n%s" % (answer, stream, wrong)
    assert by_answer == by_stream
    return stream


@pytest.mark.parametrize("vector", STREAMS, ids=lambda v: v.name)
def test_vectors(g, vector):
    try:
        message = m.fold(vector.raw)
    except m.NotWhole:
        # a stream that breaks; a partial tool input, which no whole answer has
        assert vector.out.get("aggregate", {}).get("end") != "done" \
            or vector.out["aggregate"]["finish_reason"] == "length"
        return
    check_parity(g, [encode(vector.raw)], message,
                 vector.opts.get("reasoning_output", "content"))


def check_answer(message, answer, reasoning):
    """What can be checked without the rules of translation."""
    text = "".join(b["text"] for b in by_type(message, "text"))
    assert pairs(answer.get("content") or "") == pairs(text)
    tools = by_type(message, "tool_use")
    assert [(c["id"], c["type"], c["function"]["name"],
             c["function"]["arguments"])
            for c in answer.get("tool_calls") or ()] \
        == [(t["id"], "function", t["name"], str(t["input"]))
            for t in tools]
    thoughts = by_type(message, "thinking")
    thought = "".join(b["thinking"] for b in thoughts)
    assert pairs(answer.get("reasoning_content") or "") \
        == pairs("" if reasoning == "off" else thought)
    if reasoning == "full":
        assert pairs(answer.get("thinking_blocks") or []) == pairs([
            b for b in message["content"]
            if b["type"] in ("thinking", "redacted_thinking")])
    else:
        assert "thinking_blocks" not in answer
    usage = answer["usage"]
    assert usage["total_tokens"] \
        == usage["prompt_tokens"] + usage["completion_tokens"]


@PROFILE
@given(messages(), st.randoms(use_true_random=False),
       st.sampled_from(["content", "full", "off"]))
def test_generated(g, message, random, reasoning):
    stream = message_to_events(random, message, reasoning)
    folded = m.fold(b"".join(stream).decode(errors="surrogatepass"))
    answer = check_parity(g, cut(random, b"".join(stream)),
                          dict(message, usage=folded["usage"]), reasoning)
    check_answer(message, answer, reasoning)
    assert answer["id"] == message["id"]
