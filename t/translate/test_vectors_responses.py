"""The runner of vectors, /v1/responses: what each vector expects passes, and
nothing near it does."""

import glob
import json
import os

import pytest

import compare_responses
import response_events
from client import Response
from compare import Failed, same
from compare_responses import bind, fits, normal, sealed, unsealed
from gateway import ROOT
from response_events import PREFIXES
from upstream import event, response, response_stream
from vectors import Vector, model_line

VECTORS = [v for v in map(Vector, sorted(glob.glob(os.path.join(
    ROOT, "t/vectors-responses/**/r[qs]-*.json"), recursive=True)
    + glob.glob(os.path.join(
        ROOT, "t/vectors-responses/**/st-*.json"), recursive=True)))]
BUILT = [v for v in VECTORS if v.protocol != "responses"]
STREAMS = [v for v in BUILT if v.kind == "stream" and "events" in v.out]
WHOLE = [v for v in BUILT if v.kind == "response" and v.out["status"] == 200]

FILL = {"[id:resp]": "resp_1", "[date]": 1700000000, "[model]": "model-x",
        "[message]": "It failed"}


def names(value):
    """placeholder -> id, of the items."""
    if isinstance(value, list):
        return {k: v for one in value for k, v in names(one).items()}
    if not isinstance(value, dict):
        return {}
    found = names(list(value.values()))
    if value.get("type") in PREFIXES and "id" in value:
        found[value["id"]] = PREFIXES[value["type"]] + value["id"][4:-1]
    return found


def filled(value):
    """An answer as the vector expects it, with the members that it leaves
    open."""
    return fill(value, {**FILL, **names(value)})


def fill(value, known):
    if isinstance(value, list):
        return [fill(v, known) for v in value]
    if isinstance(value, dict):
        value = {k: fill(v, known) for k, v in value.items()}
        if value.get("object") == "response":
            value = {**response("model-x"), **value}
        return value
    return known.get(value, value) if isinstance(value, str) else value


def answer(body, status=200):
    r = Response(status)
    r.data = body if isinstance(body, bytes) else json.dumps(body).encode()
    r.complete = True
    return r


def stream(seen):
    return answer(b"".join(event(e["type"], dict(e, sequence_number=n))
                           for n, e in enumerate(seen)))


def check(vector, r):
    compare_responses.check_events(vector, vector.out, r, "model-x")


def test_names():
    names = [v.name for v in VECTORS]
    assert len(names) > 94 and len(set(names)) == len(names)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v.name)
def test_options(vector):
    line, location = model_line(vector)
    assert ("auto_cache=" in line) == (vector.protocol == "messages")
    assert vector.model()[0] in ("model-x", "other")


@pytest.mark.parametrize("vector", STREAMS, ids=lambda v: v.name)
def test_streams(vector):
    """The stream that is expected passes; without any of its events, or with
    one twice, it does not."""
    seen = filled(vector.out["events"])
    check(vector, stream(seen))
    for i, e in enumerate(seen):
        more = [dict(e, delta="")] if "delta" in e else [e]
        for wrong in ([*seen[:i], *seen[i + 1:]],
                      [*seen[:i], *more, *seen[i:]]):
            if e["type"].endswith(".delta") and len(wrong) > len(seen):
                check(vector, stream(wrong))
                continue
            with pytest.raises(Failed):
                check(vector, stream(wrong))


@pytest.mark.parametrize("vector", STREAMS, ids=lambda v: v.name)
def test_members(vector):
    """Each member of each event counts."""
    seen = filled(vector.out["events"])
    for i, e in enumerate(seen):
        for name in set(e) - {"type", "logprobs", "sequence_number"}:
            for value in ("other", 7, [e[name]]):
                with pytest.raises(Failed):
                    check(vector, stream([*seen[:i], {**e, name: value},
                                          *seen[i + 1:]]))


@pytest.mark.parametrize("vector", WHOLE, ids=lambda v: v.name)
def test_whole(vector):
    want = vector.out["body"]
    good = filled(want)
    compare_responses.check_whole(vector, want, answer(good), "model-x")
    for name in response_events.REQUIRED:
        bad = dict(good)
        del bad[name]
        with pytest.raises(Failed):
            compare_responses.check_whole(vector, want, answer(bad),
                                          "model-x")
    for name in ("output", "usage", "status", "model"):
        with pytest.raises(Failed):
            compare_responses.check_whole(
                vector, want, answer({**good, name: [7]}), "model-x")


@pytest.mark.parametrize("damage", [
    lambda b: b.replace(b"event: response.created", b"event: created"),
    lambda b: b.replace(b'"sequence_number": 3', b'"sequence_number": 4'),
    lambda b: b + b"data: [DONE]\n\n", lambda b: b[:-1],
    lambda b: b.replace(b"\n", b"\r\n")])
def test_frames(damage):
    body = b"".join(response_stream("m"))
    assert response_events.fold(body)["output"][0]["content"][0]["text"] \
        == "Hello"
    with pytest.raises((response_events.Broken, ValueError)):
        response_events.fold(damage(body))


def test_no_end():
    with pytest.raises(response_events.Broken, match="no terminal event"):
        response_events.fold(b"".join(response_stream("m", last=None)))


def test_placeholders():
    names = {}
    assert bind({"a": "[id:1]", "b": ["[id:1]", "[id:2]"], "c": "[raw]"},
                {"a": "x", "b": ["x", "y"], "c": 5}, names) \
        == {"a": "x", "b": ["x", "y"], "c": 5}
    assert bind("[id:3]", "x", names) == "[id:3]"       # the name of another
    assert bind("[id:1]", "y", names) == "x"
    assert bind("[id:4]", "", names) == "[id:4]"
    assert bind("[message]", "", names) == "[message]"


def test_seals():
    blocks = [{"type": "thinking", "thinking": "ä?>", "signature": "s"}]
    assert unsealed(sealed(blocks)) == {"sealed": blocks}
    assert "=" not in sealed(blocks) and "+" not in sealed("???>>>")
    assert unsealed("gAAAA") == "gAAAA" and unsealed(None) is None
    assert unsealed("mgw1.!") == "mgw1.!"
    one = normal({"encrypted_content": sealed(blocks)})
    assert same(one, normal({"encrypted_content": sealed(
        json.dumps(blocks))})) is None


def test_arguments():
    want = {"type": "function_call", "arguments": '{"a":1}'}
    other = dict(want, arguments='{ "a": 1.0 }')
    assert fits(want, other, {}) is None
    assert fits(want, other, {}, exact=True)
