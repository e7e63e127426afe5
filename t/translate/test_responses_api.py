"""The fake responses API itself: the official SDK accepts its answers, and it
refuses what the real one refuses."""

import glob
import json
import os

import openai
import pytest

import response_events
import responses_api as api
from gateway import ROOT
from upstream import Upstream

MODELS = {"one"}
SEALED = ["reasoning.encrypted_content"]
ADD = {"type": "function", "name": "add", "strict": False,
       "parameters": {"type": "object", "properties": {}}}
PATCH = {"type": "custom", "name": "patch"}
SPACE = {"type": "namespace", "name": "mcp", "description": "",
         "tools": [ADD]}
SEARCH = {"type": "tool_search", "execution": "client"}
TOOLS = [ADD, PATCH, SPACE, SEARCH]

ANSWER = [api.reasoning("Let me see: °C", "So."), api.text("I add\u2028it."),
          api.use("add", '{"n": 12345678901234567890}'),
          api.use("add", {}, "call_2", namespace="mcp"),
          api.custom("patch", 'a "b"\\\n', "call_3"),
          api.tool_search({"query": "x"}, "call_4")]


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
    return {"model": "one", "input": "Hi", "store": False, **more}


OUTPUTS = {"function_call": "function_call_output",
           "custom_tool_call": "custom_tool_call_output",
           "tool_search_call": "tool_search_output"}


def outputs(items):
    for item in items:
        if item["type"] in OUTPUTS:
            more = {"tools": [], "execution": "client"} \
                if item["type"] == "tool_search_call" else {"output": "20"}
            yield {"type": OUTPUTS[item["type"]],
                   "call_id": item["call_id"], **more}


def bare(item):
    """Without the id, and what the SDK's helpers add."""
    if isinstance(item, list):
        return [bare(i) for i in item]
    return {k: bare(v) if k == "content" else v for k, v in item.items()
            if k != "id" and not k.startswith("parsed")}


@pytest.mark.parametrize("cut", [0, 1, 100])
def test_sdk(server, cut):
    """Whole and streamed it is the same response, which may be sent back."""
    fake = api.ResponsesApi(MODELS, api.in_turn(ANSWER, [api.text("Fine.")]),
                            cut=cut)
    server.script(fake)
    more = {"tools": TOOLS, "include": SEALED,
            "reasoning": {"summary": "auto"}}
    with client(server) as c:
        whole = c.responses.create(**ask(**more))
        with c.responses.stream(**ask(**more)) as stream:
            streamed = stream.get_final_response()
        said = [item.to_dict() for item in whole.output]
        assert [bare(i) for i in said] == ANSWER
        assert json.loads(json.dumps([bare(i.to_dict()) for i in
                                      streamed.output])) == ANSWER
        assert streamed.usage == whole.usage
        last = c.responses.create(**ask(tools=TOOLS, input=[
            {"role": "user", "content": "Hi"}, *said, *outputs(said)]))
    assert last.output_text == "Fine."
    assert fake.refused == []


@pytest.mark.parametrize("more", [{}, {"reason": "max_output_tokens"}])
def test_events(more):
    """The streams are valid for all clients."""
    body = ask(include=SEALED, reasoning={"summary": "auto"})
    whole = api.response(body, *ANSWER, api.refusal("No."), **more)
    response_events.whole(json.dumps(whole))
    for size in (1, 5, 1000):
        assert response_events.fold(b"".join(api.wire(
            api.stream(whole, size)))) == whole


def test_failing(server):
    fake = api.ResponsesApi(MODELS, api.failing(
        "rate_limit_exceeded", "Slow down", api.text("He")))
    server.script(fake)
    with client(server) as c:
        *_, last = c.responses.create(**ask(stream=True))
        assert last.type == "response.failed"
        assert last.response.error.code == "rate_limit_exceeded"
        with pytest.raises(openai.InternalServerError, match="Slow down"):
            c.responses.create(**ask())


def test_sdk_error(server):
    fake = api.ResponsesApi(MODELS, api.always(api.text("no")))
    server.script(fake)
    with client(server) as c:
        with pytest.raises(openai.BadRequestError, match="Zero Data"):
            c.responses.create(**ask(previous_response_id="resp_1"))
        with pytest.raises(openai.NotFoundError):
            c.responses.create(**ask(model="two"))
    assert len(fake.refused) == 2


# Refusals: the request, and words of the error.

USER = {"role": "user", "content": "x"}
CALL = bare(api.use("add", {}, "c1"))
DONE = {"type": "function_call_output", "call_id": "c1", "output": "3"}
CUSTOM = bare(api.custom("patch", "x", "c1"))


def items(*given):
    return {"input": list(given)}


def user(*parts):
    return items({"role": "user", "content": list(parts)})


def tools(*given, **more):
    return dict(more, tools=list(given))


REFUSED = [
    ({"store": True}, "store"), ({"store": None}, "store"),
    ({"seed": 1}, "seed: Extra"), ({"max_output_tokens": 15}, "16"),
    ({"temperature": 2.1}, "temperature"), ({"input": 5}, "input"),
    ({"stream": "yes"}, "stream"), ({"stream_options": {}}, "stream_options"),
    ({"previous_response_id": "resp_1"}, "Zero"),
    ({"background": True}, "Zero"), ({"include": ["all"]}, "include"),
    ({"text": {"format": {"type": "yaml"}}}, "format"),
    ({"reasoning": {"effort": "huge"}}, "effort"),
    ({"truncation": "on"}, "truncation"),
    ({"prompt_cache_key": "x" * 65}, "prompt_cache_key"),
    (user({"type": "text", "text": "x"}), "expected tags"),
    (user({"type": "output_text", "text": "x"}), "expected tags"),
    (user({"type": "input_text", "text": "x", "y": 1}), "y: Extra"),
    (user({"type": "input_image", "image_url": {"url": "x"}}), "image_url"),
    (user({"type": "input_image", "image_url": "ftp://x"}), "image_url"),
    (user({"type": "input_image"}), "needs one of"),
    (items({"role": "tool", "content": "x"}), "role"),
    (items({"role": "assistant", "content": [
        {"type": "input_text", "text": "x"}]}), "expected tags"),
    (items({"type": "dance"}), "expected tags"),
    (items({"type": "item_reference", "id": "fc_1"}), "not persisted"),
    (items({"id": "fc_1"}), "not persisted"),
    (items(dict(USER, id="x")), "id"),
    (items(CALL), "No tool output found"),
    (items(DONE), "No tool call found"),
    (items(DONE, CALL), "No tool call found"),
    (items(CALL, DONE, DONE), "No tool call found"),
    (items(CALL, CALL, DONE), "Duplicate call_id"),
    (items(CUSTOM, DONE), "No tool call found"),
    (items(dict(CALL, arguments={}), DONE), "arguments"),
    (items(dict(CALL, name="a.b"), DONE), "name"),
    (items(dict(CALL, call_id="x" * 65), DONE), "call_id"),
    (items(CALL, dict(DONE, output=[{"type": "output_text"}])), "output"),
    (items({"type": "reasoning", "summary": []}), "not found"),
    (items({"type": "reasoning", "summary": [],
            "encrypted_content": "mgw1.W10"}), "could not be verified"),
    (items({"type": "reasoning", "summary": [],
            "encrypted_content": api.seal("x")[:-1]}), "verified"),
    (tools({"type": "function"}), "name: Field required"),
    (tools({"type": "function", "function": ADD}), "function: Extra"),
    (tools({"type": "dance"}), "expected tags"),
    (tools(ADD, dict(ADD, description="x")), "Duplicate tool"),
    (tools(dict(ADD, strict=True)), "additionalProperties"),
    (tools(dict(PATCH, format={"type": "grammar"})), "format"),
    ({"tool_choice": "required"}, "needs tools"),
    (tools(ADD, tool_choice={"type": "function", "name": "x"}), "not found"),
    (tools(SPACE, tool_choice={"type": "function", "name": "add"}),
     "not found"),
]


@pytest.mark.parametrize("more, words", REFUSED)
def test_refused(more, words):
    with pytest.raises(api.Refused, match="(?s).*" + words) as e:
        api.check(ask(**more), MODELS)
    assert e.value.status == 400


def test_vectors():
    """The requests that the vectors expect are accepted, but for what only
    the client answers for: members that nobody knows, seals of others."""
    for name in glob.glob(os.path.join(
            ROOT, "t/vectors-responses/**/rq-*.json"), recursive=True):
        with open(name) as f:
            vector = json.load(f)
        out = vector["out"]
        if vector["opts"]["upstream"] != "responses" or "error" in out:
            continue
        try:
            api.check(out, {out["model"]})
        except api.Refused as e:
            assert "Extra inputs" in str(e) or "verified" in str(e), name
