"""Chat requests of every kind, valid and nearly valid: each is either refused
here or becomes a request that messages_api.py accepts, except for what only
the vendor can check."""

import base64
import itertools
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import messages_api
from sdk import translated
from sdk.translated import MODELS, translating

COUNT = itertools.count()

# MODELGW_REQUESTS: the number of examples, which then differ each time

PROFILE = settings(max_examples=int(os.environ.get("MODELGW_REQUESTS", 400)),
                   deadline=None, database=None,
                   derandomize="MODELGW_REQUESTS" not in os.environ,
                   suppress_health_check=list(HealthCheck))

PNG = base64.b64encode(messages_api.MAGIC["image/png"] + bytes(9)).decode()
JPEG = base64.b64encode(messages_api.MAGIC["image/jpeg"] + bytes(9)).decode()
PDF = base64.b64encode(messages_api.MAGIC["application/pdf"]).decode()

SIGNED = messages_api.thinking("Hm, so.")


def some(**members):
    """An object with some of the members."""
    return st.fixed_dictionaries({}, optional=members)


def of(*values):
    return st.sampled_from(values)


words = of("Hi", "", " ", "\n\t", "Hi ", " a\n", "ä\u2028\U0001f600", "\"\\/",
           "END")

cache = st.one_of(*[st.just({})] * 6, of(
    {"cache_control": {"type": "ephemeral"}},
    {"cache_control": {"type": "ephemeral", "ttl": "5m"}},
    {"cache_control": {"type": "other"}}, {"cache_control": None}))


def marked(part):
    return st.builds(lambda part, more: {**part, **more}, part, cache)


text_part = words.map(lambda text: {"type": "text", "text": text})

media_part = of(
    {"type": "image_url", "image_url": {
        "url": "data:image/png;base64," + PNG}},
    {"type": "image_url", "image_url": {
        "url": "data:image/jpg;base64," + JPEG, "detail": "low"}},
    {"type": "image_url", "image_url": {"url": "https://x.example/y.png"}},
    {"type": "image_url", "image_url": {"url": "https://x.example/y.pdf"}},
    {"type": "image_url", "image_url": {"url": "http://x.example/y.png"}},
    {"type": "image_url", "image_url": {"url": "data:image/bmp;base64,AA=="}},
    {"type": "image_url", "image_url": {
        "url": "data:application/pdf;base64," + PDF}},
    {"type": "file", "file": {
        "filename": "x.pdf", "file_data": "data:application/pdf;base64,"
        + PDF}},
    {"type": "file", "file": {"file_data": "data:text/plain;base64,SGk="}},
    {"type": "file", "file": {"file_data": "data:text/csv;base64,SGk="}},
    {"type": "file", "file": {"file_id": "file-1"}},
    {"type": "input_audio", "input_audio": {"data": "", "format": "mp3"}})

assistant_part = st.one_of(text_part, of(
    {"type": "refusal", "refusal": "No."}, {"type": "refusal", "refusal": ""},
    SIGNED, {"type": "thinking", "thinking": "unsigned"},
    {"type": "redacted_thinking", "data": "redacted-1"}))

user = st.builds(
    lambda content, more: {"role": "user", "content": content, **more},
    st.one_of(words, st.lists(marked(st.one_of(text_part, media_part)),
                              max_size=3)), cache)

system = st.builds(
    lambda role, content: {"role": role, "content": content},
    of("system", "developer"),
    st.one_of(words, st.lists(marked(text_part), max_size=2)))

call = marked(st.builds(
    lambda id, name, arguments: {
        "id": "%s%d" % (id, next(COUNT)), "type": "function",
        "function": {"name": name, "arguments": arguments}},
    of("call_", "functions.clock:", "call|", "x" * 70, "a b", "ä"),
    of("clock", "clock", "weather", "weather", "x.y"),
    of("{}", "{}", "", " ", '{"a":1.0}', ' {"b":[{}]} ', "{", "[]", None)))

assistant = st.builds(
    lambda more, cached: {"role": "assistant", **more, **cached},
    some(content=st.one_of(st.none(), words,
                           st.lists(marked(assistant_part), max_size=3)),
         refusal=st.one_of(st.none(), words),
         tool_calls=st.lists(call, max_size=3),
         reasoning_content=words,
         thinking_blocks=st.lists(of(
             SIGNED, {"type": "thinking", "thinking": "unsigned"},
             {"type": "redacted_thinking", "data": "redacted-1"}),
             max_size=2)), cache)

result = st.one_of(words, st.lists(marked(st.one_of(text_part, media_part)),
                                   max_size=2))


@st.composite
def turn(draw):
    """Mostly as the chat API requires: with all results."""
    message = draw(st.one_of(user, user, system, assistant, assistant))
    out = [message]
    for call in message.get("tool_calls", ()):
        if draw(st.integers(0, 19)):
            out.append(draw(marked(st.builds(
                lambda content: {"role": "tool", "content": content,
                                 "tool_call_id": call["id"]}, result))))
    return out


conversation = st.builds(
    lambda head, turns: sum(turns, head),
    st.lists(st.one_of(system, user), min_size=1, max_size=2),
    st.lists(turn(), max_size=4))

schema = of({"type": "object", "properties": {}}, {}, None,
            {"properties": {"a": {}}},
            {"type": "object", "properties": {}, "required": [],
             "additionalProperties": False})

tool = marked(st.builds(
    lambda function: {"type": "function", "function": function},
    st.fixed_dictionaries({"name": of("clock", "weather", "x.y")}, optional={
        "description": words, "parameters": schema,
        "strict": of(False, None)})))

named = {"type": "function", "function": {"name": "clock"}}

request = st.fixed_dictionaries(
    {"model": of(*MODELS), "messages": conversation},
    optional=dict(
        stream=st.booleans(),
        max_tokens=of(1, 1025, 8192, None),
        max_completion_tokens=of(1, 1024, 5000),
        temperature=of(0, 0.5, 1, 1.0, 1.5, 2, None),
        top_p=of(0, 0.5, 1, None),
        top_k=of(0, 5),
        stop=st.one_of(words, st.lists(words, max_size=3), st.none()),
        user=of("u-1", "", "a@example.org", "x" * 300),
        metadata=of({"user_id": "u-2"}, {"k": "v"}, None),
        seed=st.just(1),
        reasoning_effort=of("none", "minimal", "low", "medium", "high",
                            "xhigh", "max", None),
        thinking=of({"type": "enabled", "budget_tokens": 1024},
                    {"type": "disabled"}),
        response_format=of(
            {"type": "text"}, {"type": "json_object"},
            {"type": "json_schema", "json_schema": {
                "name": "x", "strict": True, "schema": {
                    "type": "object", "properties": {}, "required": [],
                    "additionalProperties": False}}}),
        tools=st.lists(tool, max_size=2, unique_by=lambda tool: tool[
            "function"]["name"]),
        tool_choice=of("auto", "none", "required", named, {
            "type": "allowed_tools", "allowed_tools": {
                "mode": "auto", "tools": [named]}}),
        parallel_tool_calls=st.booleans()))

# what is up to the client: the vendor's 400 is passed

PASSED = ("A maximum of 4", "messages: first message must use")

# and of a client that configures thinking itself

THINKING = ("thinking", "messages: Expected `thinking`", "`max_tokens`")


@pytest.fixture(scope="module")
def fake(translating):
    fake = translated.fake(translating.secret_a)
    translating.a.reset()
    translating.a.script(fake)
    yield fake
    translating.a.reset()


@PROFILE
@given(body=request)
def test_refused_here_or_taken(translating, fake, body):
    fake.refused.clear()
    translating.a.requests.clear()
    r = translating.chat(body, translating.alice)
    refused = [why for why, _ in fake.refused]

    if not translating.a.requests:
        assert r.status == 400 and r.json()["message"]
        return
    passed = PASSED + (THINKING if "thinking" in body else ())
    if refused and refused[0].startswith(passed):
        assert r.status == 400 and refused[0] in r.json()["message"]
        return
    assert refused == [], json.dumps(json.loads(fake.refused[0][1]), indent=1)
    assert r.status == 200 and r.complete
