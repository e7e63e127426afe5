"""The fake chat API itself: the official SDK accepts its answers, and it
refuses what the real one refuses."""

import glob
import json
import os

import openai
import pytest

import chat_api as api
from gateway import ROOT
from upstream import Upstream

MODELS = {"one": api.Model(), "old": api.Model("max_tokens")}
ADD = {"type": "function", "function": {
    "name": "add", "parameters": {"type": "object", "properties": {}}}}
ANSWER = [api.thinking("Hm."), api.text("I add\u2028it."),
          api.use("add", '{"n": 12345678901234567890}'),
          api.use("add", {}, "call_2")]


@pytest.fixture
def server():
    up = Upstream()
    yield up
    up.stop()
    assert not up.faults


def client(server):
    return openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % server.port,
                         api_key="k", max_retries=0, timeout=60)


def ask(**more):
    return {"model": "one", "messages": [{"role": "user", "content": "Hi"}],
            **more}


@pytest.mark.parametrize("cut", [0, 1, 100])
def test_sdk(server, cut):
    """Whole and streamed it is the same completion, which may be sent back."""
    fake = api.ChatApi(MODELS, api.in_turn(ANSWER, [api.text("Fine.")]),
                       cut=cut)
    server.script(fake)
    with client(server) as c:
        whole = c.chat.completions.create(**ask(tools=[ADD]))
        with c.chat.completions.stream(**ask(tools=[ADD], stream_options={
                "include_usage": True})) as stream:
            streamed = stream.get_final_completion()
        assert streamed.usage == whole.usage
        said = whole.choices[0].message.to_dict()
        again = streamed.choices[0].message.to_dict()
        for name in ("content", "reasoning_content"):
            assert said[name] == again[name]
        assert [t["function"]["arguments"] for t in said["tool_calls"]] \
            == [t["function"]["arguments"] for t in again["tool_calls"]]
        results = [{"role": "tool", "tool_call_id": t["id"], "content": "3"}
                   for t in said["tool_calls"]]
        last = c.chat.completions.create(**ask(tools=[ADD], messages=ask()[
            "messages"] + [said] + results))
    assert last.choices[0].message.content == "Fine."
    assert last.choices[0].finish_reason == "stop"
    assert fake.refused == []


def test_sdk_error(server):
    fake = api.ChatApi(MODELS, api.always(api.text("no")))
    server.script(fake)
    with client(server) as c:
        with pytest.raises(openai.BadRequestError, match="minimum length"):
            c.chat.completions.create(**ask(messages=[]))
        with pytest.raises(openai.NotFoundError):
            c.chat.completions.create(**ask(model="two"))
    assert len(fake.refused) == 2


# Refusals: the request, and words of the error.

USER = {"role": "user", "content": "x"}
CALL = {"role": "assistant", "content": None, **api.use("add", {}, "c1")}
DONE = {"role": "tool", "tool_call_id": "c1", "content": "3"}


def messages(*given):
    return {"messages": list(given)}


def user(*parts):
    return messages({"role": "user", "content": list(parts)})


def add(**more):
    return {"tools": [{"type": "function", "function": {
        **ADD["function"], **more}}]}


REFUSED = [
    ({"instructions": "x"}, "instructions: Extra"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_completion_tokens": 9, "max_tokens": 9}, "at the same time"),
    ({"max_completion_tokens": 9, "model": "old"}, "Unsupported"),
    ({"temperature": 2.1}, "temperature"),
    ({"reasoning_effort": "huge"}, "reasoning_effort"),
    ({"verbosity": "loud"}, "verbosity"),
    ({"stream_options": {"include_usage": True}}, "when 'stream'"),
    ({"response_format": {"type": "json_schema", "schema": {}}}, "schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {
        "name": "x y"}}}, "name"),
    (user(), "minimum length"), (user({"type": "input_text"}), "tags"),
    (user({"type": "image_url", "image_url": "x"}), "dictionary"),
    (user({"type": "image_url", "image_url": {
        "url": "https://x", "detail": "original"}}), "detail"),
    (messages({"role": "system", "content": [
        {"type": "image_url"}]}), "tags"),
    (messages({"role": "robot", "content": "x"}), "role"),
    (messages({"role": "assistant", "content": None}), "content"),
    (messages(dict(CALL, tool_calls=[])), "minimum length"),
    (messages(USER, CALL), "did not have response"),
    (messages(USER, CALL, USER, DONE), "did not have response"),
    (messages(USER, DONE), "preceeding"),
    (messages(USER, CALL, DONE, DONE), "preceeding"),
    (messages(USER, dict(CALL, tool_calls=2 * CALL["tool_calls"]), DONE),
     "unique"),
    (messages({"role": "assistant", **api.use("a.b", {}, "c1")}, DONE),
     "name"),
    (add(name="x" * 65), "name"), (add(parameters={"type": "string"}),
                                   "type"),
    (add(strict=True), "additionalProperties"), (add(namespace="x"), "Extra"),
    ({"tools": []}, "minimum length"), ({"tools": [ADD, ADD]}, "unique"),
    ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tags"),
    ({"tool_choice": "auto"}, "when 'tools'"),
    ({"parallel_tool_calls": True}, "when 'tools'"),
    (dict(add(), tool_choice={"type": "function", "function": {
        "name": "x"}}), "not found"),
]


@pytest.mark.parametrize("more, words", REFUSED)
def test_refused(more, words):
    with pytest.raises(api.Refused, match="(?s).*" + words) as e:
        api.check(ask(**more), MODELS)
    assert e.value.status == 400


def test_vectors():
    """The requests that the vectors expect are accepted."""
    found = 0
    for name in glob.glob(os.path.join(
            ROOT, "t/vectors-responses/**/rq-*.json"), recursive=True):
        with open(name) as f:
            vector = json.load(f)
        out, opts = vector["out"], vector["opts"]
        if opts["upstream"] == "chat" and "error" not in out:
            found += 1
            api.check(out, {out["model"]: api.Model(opts.get(
                "chat_limit", "max_completion_tokens"))})
    assert found
