"""The fake messages API itself: the official SDK accepts its answers, and it
refuses what the real one refuses."""

import base64
import glob
import json
import os

import anthropic
import pytest

import messages_api as api
from fake_api import parse
from gateway import ROOT
from sdk.apis import environment
from upstream import Upstream

MODELS = {"one": api.Model(effort=("low", "high")),
          "adaptive": api.Model(thinking="adaptive", sampling="one_of"),
          "newest": api.Model(thinking="adaptive_only", sampling="none",
                              prefill=False, forced_tool_choice=False,
                              structured="none", strict=False)}

TOOL = {"name": "weather", "description": "The weather",
        "input_schema": {"type": "object", "properties": {}}}
CITY = {"city": "Köln", "n": 12345678901234567890}
ANSWER = [api.thinking("Let me see: °C"), api.redacted(),
          api.text("I look \u2028 out of the window."),
          api.use("weather", CITY), api.use("weather", {}, "toolu_2")]


@pytest.fixture
def server():
    up = Upstream()
    yield up
    up.stop()
    assert not up.faults


def client(server):
    return anthropic.Anthropic(base_url="http://127.0.0.1:%d" % server.port,
                               api_key="k", max_retries=0, timeout=60)


def ask(**more):
    return dict({"model": "one", "max_tokens": 5000,
                 "messages": [{"role": "user", "content": "Hi"}]}, **more)


@pytest.mark.parametrize("cut", [0, 1, 100])
def test_sdk(server, cut):
    """Whole and streamed it is the same message, which may be sent back."""
    fake = api.MessagesApi(MODELS, api.in_turn(ANSWER, [api.text("Fine.")]),
                           cut=cut)
    server.script(fake)
    with client(server) as c:
        whole = c.messages.create(**ask(tools=[TOOL]))
        with c.messages.stream(**ask(tools=[TOOL])) as stream:
            streamed = stream.get_final_message()
        assert streamed.to_dict() == whole.to_dict()
        content = [b.to_dict() for b in whole.content]
        assert content == ANSWER and whole.stop_reason == "tool_use"
        assert whole.usage.cache_read_input_tokens == 100
        results = [{"type": "tool_result", "tool_use_id": b["id"],
                    "content": "20"} for b in content[-2:]]
        last = c.messages.create(**ask(
            tools=[TOOL], thinking={"type": "enabled", "budget_tokens": 1024},
            messages=ask()["messages"] + [
                {"role": "assistant", "content": content},
                {"role": "user", "content": results}]))
    assert last.content[0].text == "Fine."
    assert fake.refused == []


def test_sdk_error(server):
    fake = api.MessagesApi(MODELS, api.always(api.text("no")))
    server.script(fake)
    with client(server) as c:
        with pytest.raises(anthropic.BadRequestError) as e:
            c.messages.create(**ask(messages=[]))
    assert "at least one message is required" in str(e.value)
    assert len(fake.refused) == 1


# Refusals: the request, and words of the error.

def user(*content):
    return {"role": "user", "content": list(content)}


def assistant(*content):
    return {"role": "assistant", "content": list(content)}


def result(id="toolu_1", **more):
    return dict({"type": "tool_result", "tool_use_id": id}, **more)


def marked(text="x", **more):
    return dict(api.text(text), cache_control={"type": "ephemeral", **more})


def image(data=b"\x89PNG\r\n\x1a\n", kind="image/png", **more):
    return {"type": "image", "source": dict(
        {"type": "base64", "media_type": kind,
         "data": base64.b64encode(data).decode()}, **more)}


HELLO = user(api.text("Hi"))
CALL = assistant(api.use("weather", {}, "toolu_1"))
THOUGHT = assistant(api.thinking("so"), api.use("weather", {}, "toolu_2"))
UNSIGNED = {"type": "thinking", "thinking": "so", "signature": "x"}
BUDGET = {"type": "enabled", "budget_tokens": 1024}
OPEN = {"type": "object", "properties": {}}


def turns(*messages):
    return {"messages": list(messages)}


def json_schema(schema):
    return {"output_config": {"format": {"type": "json_schema",
                                         "schema": schema}}}


def tool(**more):
    return {"tools": [dict(TOOL, **more)]}


REFUSED = [
    ({"seed": 1}, "seed: Extra inputs are not permitted"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": 64001}, "max_tokens"),
    ({"stream": "yes"}, "stream"),
    ({"temperature": 1.1}, "temperature"),
    ({"stop_sequences": ["a", "\n"]}, "non-whitespace"),
    ({"metadata": {"k": "v"}}, "metadata.k: Extra inputs"),
    ({"metadata": {"user_id": "x" * 257}}, "user_id"),
    ({"model": "adaptive", "temperature": 1, "top_p": 1}, "both"),
    ({"model": "newest", "temperature": 1}, "temperature"),
    ({"output_config": {"effort": "max"}}, "effort"),
    ({"system": ""}, "non-empty"),
    ({"system": [api.text("\n")]}, "non-whitespace"),

    (turns(), "at least one"),
    (turns(assistant(api.text("Hi"))), "first message"),
    (turns({"role": "system", "content": "x"}), "messages.0.role"),
    (turns({"role": "user", "content": ""}), "non-empty"),
    (turns(user()), "non-empty"),
    (turns(user(api.text(""))), "non-empty"),
    (turns(user(api.text(" \n"))), "non-whitespace"),
    (turns(HELLO, HELLO), "alternate"),
    (turns(user({"type": "input_audio"})), "messages.0.content.0"),
    (turns(user(dict(api.text("x"), detail="low"))), "detail: Extra inputs"),
    (turns(HELLO, assistant(api.text("so ")), ), "trailing whitespace"),
    (dict(turns(HELLO, assistant(api.text("so"))), model="newest"),
     "prefill"),
    (turns(user(*[marked()] * 5)), "A maximum of 4"),
    (turns(user(marked(), marked(ttl="1h"))), "must not come after"),
    (turns(user(marked(ttl="2h"))), "ttl"),
    (turns(user(image(data=b"\xff\xd8\xff"))), "does not"),
    (turns(user(image(kind="image/bmp"))), "media_type"),
    (turns(user(image(data=b"", media_type="image/gif"))), "does not"),
    (turns(user({"type": "image", "source": {
        "type": "url", "url": "http://x"}})), "https"),
    (turns(user({"type": "document", "source": {
        "type": "base64", "media_type": "text/csv", "data": ""}})), "pdf"),

    (turns(HELLO, CALL), "without `tool_result`"),
    (turns(HELLO, CALL, HELLO), "without `tool_result`"),
    (turns(HELLO, CALL, user(api.text("x"), result())),
     "without `tool_result`"),
    (turns(HELLO, CALL, user(result(), result())), "a single result"),
    (turns(HELLO, CALL, user(result("toolu_2"), result())), "unexpected"),
    (turns(user(result())), "unexpected"),
    (turns(HELLO, CALL, user(result()), CALL, user(result())), "unique"),
    (turns(HELLO, CALL, user(result(content=[marked()]))), "not allowed"),
    (turns(HELLO, CALL, user(result(content=[api.text("")]))), "non-empty"),
    (turns(HELLO, assistant(api.use("weather", {}, "call:1"))), "pattern"),
    (turns(HELLO, assistant(api.use("we ather", {}))), "pattern"),
    (turns(HELLO, assistant(api.use("weather", []))), "dictionary"),
    (turns(HELLO, assistant(UNSIGNED), HELLO), "signature"),
    (turns(HELLO, assistant({"type": "thinking", "thinking": "so"}), HELLO),
     "signature: Field required"),
    (turns(HELLO, assistant(api.redacted("x")), HELLO), "redacted"),

    (tool(input_schema={}), "type: Field required"),
    (tool(input_schema=dict(OPEN, anyOf=[])), "anyOf"),
    (tool(parameters={}), "parameters: Extra inputs"),
    (tool(name="x" * 129), "pattern"),
    (tool(strict=True), "additionalProperties"),
    (dict(tool(strict=True, input_schema=dict(
        OPEN, additionalProperties=False)), model="newest"), "strict"),
    ({"tools": [TOOL, TOOL]}, "unique"),
    ({"tool_choice": {"type": "auto"}}, "while providing tools"),
    (dict(tool(), tool_choice={"type": "tool", "name": "x"}), "not found"),
    (dict(tool(), tool_choice={"type": "required"}), "expected tags"),
    (dict(tool(), tool_choice={"type": "any"}, model="newest"), "forced"),
    (dict(tool(), tool_choice={"type": "none",
                               "disable_parallel_tool_use": True}),
     "Extra inputs"),

    ({"thinking": {"type": "enabled", "budget_tokens": 1023}}, "budget"),
    ({"thinking": {"type": "enabled", "budget_tokens": 5000}}, "greater"),
    ({"thinking": {"type": "adaptive"}}, "not supported"),
    ({"thinking": BUDGET, "model": "newest"}, "not supported"),
    ({"thinking": {"type": "disabled"}, "model": "newest"}, "not supported"),
    ({"thinking": BUDGET, "temperature": 0.5}, "temperature"),
    ({"thinking": BUDGET, "top_p": 0.5}, "top_p"),
    (dict(tool(), thinking=BUDGET, tool_choice={"type": "any"}), "forces"),
    (dict(turns(HELLO, CALL, user(result())), thinking=BUDGET),
     "must start with a thinking block"),
    (dict(turns(HELLO, CALL, user(result()), THOUGHT, user(result("toolu_2"))),
          thinking=BUDGET),
     "must start with a thinking block"),

    (json_schema(OPEN), "additionalProperties"),
    (json_schema(dict(OPEN, additionalProperties=False, properties={
        "a": OPEN})), "schema.properties.a: For 'object'"),
    (dict(json_schema({}), model="newest"), "not supported"),
]


@pytest.mark.parametrize("more, words", REFUSED)
def test_refused(more, words):
    with pytest.raises(api.Refused, match="(?s).*" + words) as e:
        api.check(ask(**more), MODELS)
    assert e.value.status == 400


def test_loop_thinks_once():
    api.check(ask(**turns(HELLO, THOUGHT, user(result("toolu_2")), CALL,
                          user(result())), thinking=BUDGET), MODELS)


@pytest.mark.parametrize("missing", ["model", "max_tokens", "messages"])
def test_required(missing):
    body = ask()
    del body[missing]
    with pytest.raises(api.Refused, match=missing + ": Field required"):
        api.check(body, MODELS)


def test_unknown_model():
    with pytest.raises(api.Refused, match="model: two") as e:
        api.check(ask(model="two"), MODELS)
    assert e.value.status == 404


@pytest.mark.parametrize("text", [
    b'{"a":1,"a":2}', b"\xff", b'"\\ud800"', b"{}x", b""])
def test_not_json(text):
    with pytest.raises(api.Refused, match="not valid JSON"):
        parse(text)


# vectors whose expected request the vendor would refuse; its error is passed
WRONG = {"req-tool-schema-root-anyof": "anyOf",
         "req-structured-output-native": "additionalProperties",
         "req-agw-structured-output-refs": "additionalProperties"}

# names of capabilities that differ from those of the gateway's model line
KNOWN = ("sampling", "thinking", "effort", "structured", "strict", "prefill",
         "forced_tool_choice")


def test_vectors(monkeypatch):
    """The requests that the vectors expect are accepted: the fake is not
    stricter than the specification.  Their pictures and signatures are not
    real, their options may exceed the model's line."""
    monkeypatch.setattr(api, "encoded", lambda path, source: None)
    monkeypatch.setattr(api, "signed", lambda path, block: None)
    found = glob.glob(os.path.join(ROOT, "t/vectors/req-*.json")) \
        + glob.glob(os.path.join(ROOT, "t/vectors-responses/**/rq-*.json"),
                    recursive=True)
    refused = {}

    for name in found:
        with open(name) as f:
            vector = json.loads(f.read().replace('"[raw]"', "{}"))
        out, opts = vector["out"], vector.get("opts", {})
        if "max_tokens" not in out or opts.get("upstream") == "chat":
            continue
        model = api.Model(max_output=128000, **{
            k: opts[k] for k in KNOWN if k in opts})
        if out.get("thinking", {}).get("type") == "adaptive":
            model.thinking = "adaptive"
        if model.thinking.startswith("adaptive"):
            model.effort = ("low", "medium", "high", *model.effort)
        try:
            api.check(out, {out["model"]: model})
        except api.Refused as e:
            refused[vector["name"]] = str(e)

    assert set(refused) == set(WRONG), refused
    for name, words in WRONG.items():
        assert words in refused[name]
