"""The official chat SDK with a group that speaks messages.  What all APIs
share, such as broken streams, errors and retries, is in test_sdk_python.py,
for this group too; here is what translation adds.  The upstream refuses what
the real one refuses (messages_api.py), and no test may cause that.
"""

import asyncio
import base64
import json
import threading
import time
from typing import List, Optional

import openai
import pydantic
import pytest

import messages_api
from client import LIMIT
from messages_api import redacted, text, thinking, use
from sdk.apis import HI, each, environment, opened, then
from sdk.translated import chat, make_chat, sync, translating
from upstream import (event, message_error, message_stream, raw, reply,
                      reply_json, sse)

CITY = {"city": "Köln", "unit": "°C", "big": 12345678901234567890, "f": 1.0}
PNG = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQ"
       "DwAEhQGAhKmMIQAAAABJRU5ErkJggg==")
PDF = base64.b64encode(b"%PDF-1.4 nothing").decode()
LONG = "".join("word-%d \u20ac\n" % n for n in range(2000))

USAGE = {"prompt_tokens": 131, "completion_tokens": 7, "total_tokens": 138}


def tool(name, strict=None, **properties):
    function = {"name": name, "description": "Says the %s." % name,
                "parameters": {"type": "object", "properties": properties}}
    return {"type": "function", "function": function}


WEATHER = tool("weather", city={"type": "string"}, unit={"type": "string"})
CLOCK = tool("clock")
TOOLS = [WEATHER, CLOCK]


def say(question, *more):
    return {"role": "user",
            "content": [{"type": "text", "text": question}] + list(more)
            if more else question}


async def streamed(chat, c, **kw):
    """The completion that the SDK's helper makes of the chunks; of one that
    cannot be parsed it is in the exception."""
    kw.setdefault("stream_options", {"include_usage": True})
    async with opened(chat.helper(c, **kw)) as stream:
        try:
            return await then(stream.get_final_completion())
        except (openai.LengthFinishReasonError,
                openai.ContentFilterFinishReasonError) as e:
            return e.completion


def plain(completion):
    """What streamed and whole answers have in common."""
    out = completion.to_dict()
    del out["created"]
    out.pop("system_fingerprint", None)
    for choice in out["choices"]:
        for call in choice["message"].get("tool_calls") or ():
            call.pop("index", None)
            call["function"].pop("parsed_arguments", None)
        choice["message"].pop("parsed", None)
        choice["message"] = {k: v for k, v in choice["message"].items() if v}
    return out


def refused(chat, path, status=400, code="UNSUPPORTED_FIELD", **kw):
    """Refused by the gateway, not by the upstream."""
    n = len(chat.up.requests)
    e, _ = chat.fails(status, path, **kw)
    assert e.code == code
    assert len(chat.up.requests) == n
    return e


# Answers: streamed and whole ones are the same.

ANSWERS = {
    "text": [text("Hello\nWörld \u2028 \U0001f600 \"\\")],
    "texts": [text("Hello "), text("World")],
    "nothing": [],
    "tool": [use("weather", CITY)],
    "text_tool": [text("I look."), use("weather", CITY, "toolu_1")],
    "tools": [text("I look."), use("weather", CITY, "toolu_1"),
              use("clock", {}, "toolu_2"), use("weather", {}, "toolu_3")],
    "between": [use("clock", {}, "toolu_1"), text("and"),
                use("weather", CITY, "toolu_2")],
    "thinking": [thinking("Hm, \"so\"."), text("Hello")],
    "redacted": [redacted(), thinking("Hm"), text("Hello"),
                 use("weather", CITY)],
    "thinking_only": [thinking("Hm")],
    "long": [text(LONG)],
    "long_input": [use("weather", {"city": LONG})],
    "max_tokens": {"content": [text("Hel")], "stop": "max_tokens"},
    "stop_sequence": {"content": [text("Hel")], "stop": "stop_sequence",
                      "stop_sequence": "x"},
    "refusal": {"content": [], "stop": "refusal", "stop_details": {
        "type": "refusal", "category": None, "explanation": "No, \"no\"."}},
    "refusal_late": {"content": [text("Well")], "stop": "refusal"},
    "server_tool": {"content": [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
         "input": {"query": "x"}}, text("Found."), use("clock", {})]},
}

FINISH = {"max_tokens": "length", "refusal": "content_filter",
          "refusal_late": "content_filter"}


@pytest.mark.parametrize("name", ANSWERS)
def test_stream_and_whole_are_the_same(chat, name):
    answer = ANSWERS[name]
    chat.says(answer)
    blocks = answer if isinstance(answer, list) else answer["content"]
    calls = [b for b in blocks if b["type"] == "tool_use"]
    tools = {"tools": TOOLS} if calls else {}

    async def body(c):
        return await chat.ask(c, **tools), await streamed(chat, c, **tools)

    whole, stream = chat.run(body)
    assert plain(whole) == plain(stream)
    choice = whole.choices[0]
    assert (choice.message.content or "") == "".join(
        b["text"] for b in blocks if b["type"] == "text")
    assert [(c.id, c.function.name, json.loads(c.function.arguments))
            for c in choice.message.tool_calls or ()] \
        == [(b["id"], b["name"], b["input"]) for b in calls]
    assert choice.finish_reason == FINISH.get(
        name, "tool_calls" if calls else "stop")
    assert whole.usage.to_dict().items() >= USAGE.items()
    assert whole.usage.prompt_tokens_details.cached_tokens == 100
    assert (whole.model, whole.id) == (chat.model, "msg_01XFDUDYJgAACzvnpt")


@pytest.mark.parametrize("cut", [1, 7, 4096])
def test_stream_in_any_pieces(chat, cut):
    """However the network splits it."""
    chat.fake.cut = cut
    chat.says(ANSWERS["tools"])

    async def body(c):
        return await chat.ask(c, tools=TOOLS), await streamed(chat, c,
                                                              tools=TOOLS)

    whole, stream = chat.run(body)
    assert plain(whole) == plain(stream)


def test_stream_of_large_events(chat):
    """One of them has a megabyte."""
    chat.fake.size = 2000000
    chat.says([text(LONG * 30), use("weather", {"city": LONG * 30})])

    async def body(c):
        return await chat.ask(c, tools=TOOLS), await streamed(chat, c,
                                                              tools=TOOLS)

    whole, stream = chat.run(body)
    assert plain(whole) == plain(stream)
    assert chat.text(whole) == LONG * 30


def test_refusal(chat):
    chat.says(ANSWERS["refusal"])

    async def body(c):
        return (await chat.ask(c)).choices[0].message

    message = chat.run(body)
    assert message.refusal == 'No, "no".'
    assert not message.content


def test_message_of_a_whole_answer(chat):
    r = chat.run(lambda c: chat.ask(c))
    assert r.object == "chat.completion" and r._request_id
    assert abs(r.created - time.time()) < 60
    assert r.choices[0].to_dict() == {
        "index": 0, "finish_reason": "stop", "logprobs": None,
        "message": {"role": "assistant", "content": "Hello",
                    "refusal": None}}


def test_chunks(chat):
    """The role once, at the beginning; one finish; usage if asked for."""
    chat.says(ANSWERS["tools"])

    async def body(c, **kw):
        return [k async for k in each(await chat.ask(
            c, tools=TOOLS, stream=True, **kw))]

    chunks = chat.run(body)
    assert [k.choices[0].delta.role for k in chunks] \
        == ["assistant"] + [None] * (len(chunks) - 1)
    assert [k.choices[0].finish_reason for k in chunks] \
        == [None] * (len(chunks) - 1) + ["tool_calls"]
    assert all(k.usage is None for k in chunks)
    assert len({(k.id, k.model, k.created, k.object) for k in chunks}) == 1

    calls = [call for k in chunks for call in k.choices[0].delta.tool_calls
             or ()]
    assert {call.index for call in calls} == {0, 1, 2}
    assert [call.id for call in calls if call.id] \
        == ["toolu_1", "toolu_2", "toolu_3"]
    assert len([1 for call in calls if call.function.name]) == 3

    asked = chat.run(lambda c: body(c, stream_options={"include_usage": True}))
    assert asked[-1].choices == [] and asked[-1].usage.total_tokens == 138
    assert all(k.usage is None for k in asked[:-1])


def test_events_of_the_helper(chat):
    chat.says(ANSWERS["text_tool"])

    async def body(c):
        async with opened(chat.helper(c, tools=TOOLS)) as stream:
            return [e async for e in each(stream)]

    events = chat.run(body)
    kinds = [e.type for e in events if e.type != "chunk"]
    assert "content.delta" in kinds and "content.done" in kinds
    assert "".join(e.delta for e in events if e.type == "content.delta") \
        == "I look."
    done = [e for e in events
            if e.type == "tool_calls.function.arguments.done"]
    assert [(e.name, e.index, json.loads(e.arguments)) for e in done] \
        == [("weather", 0, CITY)]


# Requests: what the upstream gets.

def test_head(chat):
    """The group's credential, and none of the client's headers."""
    chat.run(lambda c: chat.ask(c, stream=False), default_headers={
        "anthropic-beta": "x", "OpenAI-Organization": "o"},
        project="p")
    request = chat.up.last()
    assert request.target == "/v1/messages"
    assert request.get("content-type") == "application/json"
    assert request.get("anthropic-version") == "2023-06-01"
    assert request.get("accept-encoding", "identity") == "identity"
    for name in request.names():
        assert not name.startswith(("openai-", "x-stainless-"))
        assert name not in ("authorization", "anthropic-beta")


def test_conversation(chat):
    """What chat allows and messages does not."""
    chat.run(lambda c: chat.ask(c, messages=[
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "And"},
                                          {"type": "text", "text": " "}]},
        say("One"), say(""), say("Two"),
        {"role": "assistant", "content": ""},
        {"role": "system", "content": "Late."},
        {"role": "assistant", "content": None, "refusal": "I do not count."},
        {"role": "assistant", "content": "Three", "name": "a"},
        say("Four ", {"type": "text", "text": ""})]))
    asked = chat.asked()
    assert [b["text"] for b in asked["system"]] == ["Be brief.", "And",
                                                    "Late."]
    assert [(m["role"], [b["text"] for b in messages_api.blocks(m)])
            for m in asked["messages"]] == [
        ("user", ["One", "Two"]), ("assistant", ["I do not count.", "Three"]),
        ("user", ["Four "])]


def test_only_a_system_message(chat):
    chat.run(lambda c: chat.ask(c, messages=[
        {"role": "system", "content": "Say hello."}]))
    assert chat.asked()["messages"][0]["role"] == "user"


def test_max_tokens(chat):
    async def body(c):
        out = []
        for kw in ({}, {"max_tokens": 9}, {"max_completion_tokens": 8},
                   {"max_tokens": 9, "max_completion_tokens": 8}):
            await chat.ask(c, **kw)
            out.append(chat.asked()["max_tokens"])
        return out

    assert chat.run(body) == [4096, 9, 8, 8]


@pytest.mark.parametrize("model, expected", [
    ("fam-a-large", {"temperature": 1, "top_p": 0.5}),
    ("fam-a-one-of", {"temperature": 1}),
    ("fam-a-newest", {})])
def test_sampling(chat, model, expected):
    chat.run(lambda c: chat.ask(c, model=model, temperature=1.7, top_p=0.5))
    assert {k: v for k, v in chat.asked().items()
            if k in ("temperature", "top_p")} == expected


def test_stop(chat):
    async def body(c):
        await chat.ask(c, stop=["END", "\n"], user="u-1")
        first = chat.asked()
        await chat.ask(c, stop="\n", user="somebody@example.org")
        return first, chat.asked()

    first, second = chat.run(body)
    assert first["stop_sequences"] == ["END"]
    assert first["metadata"] == {"user_id": "u-1"}
    assert "stop_sequences" not in second and "metadata" not in second


def test_hints_are_ignored_and_named(chat):
    hints = dict(seed=1, presence_penalty=0.5, frequency_penalty=0.5,
                 logit_bias={"1": 1}, store=False, metadata={"k": "v"},
                 service_tier="auto", verbosity="low", prompt_cache_key="k")

    async def body(c):
        raw = await then(c.chat.completions.with_raw_response.create(
            model=chat.model, messages=HI, **hints))
        none = await then(c.chat.completions.with_raw_response.create(
            model=chat.model, messages=HI))
        return raw, none

    raw, none = chat.run(body)
    ignored = raw.headers["x-modelgw-ignored"].split(",")
    assert {"seed", "logit_bias", "presence_penalty"} <= set(ignored)
    assert set(ignored) <= set(hints)
    assert "x-modelgw-ignored" not in none.headers


def test_unknown_fields_do_not_arrive(chat):
    chat.run(lambda c: chat.ask(c, extra_body={"future": 1, "container": "c",
                                               "mcp_servers": []}))
    assert set(chat.asked()) <= {"model", "max_tokens", "messages", "stream"}


REFUSED = [
    (dict(n=2), "n"),
    (dict(logprobs=True), "logprobs"),
    (dict(top_logprobs=2), "top_logprobs"),
    (dict(modalities=["audio"], audio={"voice": "x", "format": "mp3"}), "aud"),
    (dict(functions=[{"name": "x"}]), "functions"),
    (dict(function_call="auto"), "function_call"),
    (dict(web_search_options={}), "web_search_options"),
    (dict(tools=[{"type": "custom", "custom": {"name": "x"}}]), "tools[0]"),
    (dict(messages=[say("x", {"type": "input_audio", "input_audio": {
        "data": "", "format": "mp3"}})]), "messages[0].content[1]"),
    (dict(messages=[say("x", {"type": "file", "file": {"file_id": "f"}})]),
     "messages[0].content[1]"),
    (dict(model="fam-a-small", response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": {}}}),
     "response_format"),
    (dict(model="fam-a-newest", tools=TOOLS, tool_choice="required"),
     "tool_choice"),
    (dict(model="fam-a-newest", messages=HI + [
        {"role": "assistant", "content": "He"}]), "messages[1]"),
]


@pytest.mark.parametrize("n", range(len(REFUSED)))
def test_refused_with_the_path(sync, n):
    """With one request, as no retry would help; also for streams."""
    kw, path = REFUSED[n]
    for stream in (False, True):
        e = refused(sync, path, stream=stream, retries=2, **kw)
        assert e.response.headers["x-should-retry"] == "false"
    assert sync.seen(2) == 2


WRONG = [
    (dict(messages=[say("x", {"type": "image_url", "image_url": {
        "url": "http://x/y.png"}})]), "messages[0].content[1]"),
    (dict(messages=[]), "messages"),
    (dict(messages=HI + [
        {"role": "tool", "tool_call_id": "c", "content": ""}]),
     "messages[1]"),
    (dict(messages=HI + [{"role": "assistant", "tool_calls": [
        {"id": "c", "type": "function", "function": {
            "name": "clock", "arguments": "{}"}}]}, say("Well?")]),
     "messages[1]"),
    (dict(messages=HI + [{"role": "assistant", "tool_calls": [
        {"id": "c", "type": "function", "function": {
            "name": "clock", "arguments": "{,}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": ""}]),
     "messages[1].tool_calls[0].function.arguments"),
    (dict(temperature=2.1), "temperature"),
    (dict(reasoning_effort="gigantic"), "reasoning_effort"),
    (dict(tools=[tool("a b")]), "tools[0].function.name"),
    (dict(tool_choice="required"), "tool_choice"),
]


@pytest.mark.parametrize("n", range(len(WRONG)))
def test_wrong_with_the_path(sync, n):
    kw, path = WRONG[n]
    e, _ = sync.fails(400, path, **kw)
    assert e.code in ("INVALID_REQUEST", "INVALID_FIELD")
    assert not sync.up.requests


# Tools.

async def loop(chat, c, ask, **kw):
    """What agents do: until no tool is called."""
    messages = HI[:]
    rounds = 0
    while rounds < 9:
        message = (await ask(c, messages=messages, tools=TOOLS,
                             **kw)).choices[0].message
        if not message.tool_calls:
            return message.content, rounds, messages
        rounds += 1
        messages.append(message.to_dict())
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id,
                             "content": "It is %s." % call.function.name})
    raise AssertionError("no end")


@pytest.mark.parametrize("stream", [False, True])
def test_tool_loop(chat, stream):
    chat.says([text("I look."), use("weather", CITY, "toolu_1"),
               use("clock", {}, "toolu_2")],
              [use("weather", {"city": ""}, "toolu_3")],
              [text("It is fine.")])

    async def ask(c, **kw):
        return await (streamed(chat, c, **kw) if stream
                      else chat.ask(c, **kw))

    content, rounds, _ = chat.run(lambda c: loop(chat, c, ask))
    assert (content, rounds) == ("It is fine.", 2)
    asked = chat.asked()
    assert [m["role"] for m in asked["messages"]] \
        == ["user", "assistant"] * 2 + ["user"]
    assert asked["messages"][1]["content"] == [
        text("I look."), use("weather", CITY, "toolu_1"),
        use("clock", {}, "toolu_2")]
    assert asked["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "toolu_1",
         "content": "It is weather."},
        {"type": "tool_result", "tool_use_id": "toolu_2",
         "content": "It is clock."}]
    assert asked["tools"][0] == {
        "name": "weather", "description": "Says the weather.",
        "input_schema": WEATHER["function"]["parameters"]}


def test_tool_arguments_are_the_same_bytes(chat):
    """In both directions: no number is rounded, no key moved."""
    raw = ('{"z": 1.0, "a": 12345678901234567890123, "m": -0, "e": 1E400,'
           ' "s": "\\u00e9 \\/ é"}')
    call = {"id": "call_1", "type": "function",
            "function": {"name": "weather", "arguments": raw}}

    answer = json.dumps(messages_api.message(chat.inner, use("weather", {})))
    chat.says(reply(200, answer.replace('"input": {}',
                                        '"input": ' + raw).encode()))
    r = chat.run(lambda c: chat.ask(c, tools=TOOLS, messages=HI + [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "20"}]))
    assert r.choices[0].message.tool_calls[0].function.arguments == raw
    assert ('"input":' + raw).encode() in chat.up.last().body


@pytest.mark.parametrize("choice, parallel, expected", [
    ("auto", None, (None, {"type": "auto"})),
    ("none", None, ({"type": "none"},)),
    ("required", None, ({"type": "any"},)),
    ({"type": "function", "function": {"name": "clock"}}, None,
     ({"type": "tool", "name": "clock"},)),
    (None, False, ({"type": "auto", "disable_parallel_tool_use": True},)),
    ("required", False, ({"type": "any", "disable_parallel_tool_use": True},)),
    (None, True, (None, {"type": "auto"})),
])
def test_tool_choice(sync, choice, parallel, expected):
    kw = {k: v for k, v in (("tool_choice", choice),
                            ("parallel_tool_calls", parallel))
          if v is not None}
    sync.run(lambda c: sync.ask(c, tools=TOOLS, **kw))
    assert sync.asked().get("tool_choice") in expected
    assert len(sync.asked()["tools"]) == 2


def test_allowed_tools(sync):
    sync.run(lambda c: sync.ask(c, tools=TOOLS, tool_choice={
        "type": "allowed_tools", "allowed_tools": {
            "mode": "required", "tools": [
                {"type": "function", "function": {"name": "clock"}}]}}))
    assert [t["name"] for t in sync.asked()["tools"]] == ["clock"]
    assert sync.asked()["tool_choice"] == {"type": "any"}


def test_conversation_of_another_vendor(sync):
    """Its ids and empty strings are not valid in messages."""
    ids = ["functions.clock:0", "call|1", "chatcmpl-tool-9"]
    sync.run(lambda c: sync.ask(c, tools=[tool("clock")], messages=HI + [
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": id, "type": "function",
             "function": {"name": "clock", "arguments": arguments}}
            for id, arguments in zip(ids, ("", " ", "{}"))]},
        {"role": "tool", "tool_call_id": ids[2], "content": ""},
        {"role": "tool", "tool_call_id": ids[1], "content": [
            {"type": "text", "text": "noon"}]},
        {"role": "tool", "tool_call_id": ids[0], "content": "noon"},
        say("So?")]))
    uses, results = sync.asked()["messages"][1:]
    assert [b["input"] for b in uses["content"]] == [{}] * 3
    assert [b["type"] for b in results["content"]] \
        == ["tool_result"] * 3 + ["text"]


def test_pydantic_tools(chat):
    """The SDK's helper: strict schemas are sent, models returned."""

    class Weather(pydantic.BaseModel):
        """The weather of a city."""
        city: str
        days: Optional[List[int]]

    chat.says([use("Weather", {"city": "Köln", "days": [1, 2]})])

    async def body(c):
        tools = [openai.pydantic_function_tool(Weather)]
        r = await then(c.chat.completions.parse(
            model=chat.model, messages=HI, tools=tools))
        return r, await streamed(chat, c, tools=tools)

    for r in chat.run(body):
        call = r.choices[0].message.tool_calls[0]
        assert call.function.parsed_arguments \
            == Weather(city="Köln", days=[1, 2])
    tool = chat.asked()["tools"][0]
    assert tool["strict"] is True and tool["name"] == "Weather"


# Structured outputs.

class Step(pydantic.BaseModel):
    explanation: str
    output: str


class Solution(pydantic.BaseModel):
    steps: List[Step]
    answer: float


SOLUTION = Solution(steps=[Step(explanation="ä\n", output="x = 1")], answer=1)


def test_parse(chat):
    chat.says([text(SOLUTION.model_dump_json())])

    async def body(c):
        r = await then(c.chat.completions.parse(
            model=chat.model, messages=HI, response_format=Solution))
        return r, await streamed(chat, c, response_format=Solution)

    for r in chat.run(body):
        assert r.choices[0].message.parsed == SOLUTION
    format = chat.asked()["output_config"]["format"]
    assert set(format) == {"type", "schema"}
    assert format["schema"]["required"] == ["steps", "answer"]


def test_parse_of_a_refusal(chat):
    """Nothing is parsed: the SDK reports the refusal."""
    chat.says(ANSWERS["refusal"])

    async def body(c):
        with pytest.raises(openai.ContentFilterFinishReasonError):
            await then(c.chat.completions.parse(
                model=chat.model, messages=HI, response_format=Solution))

    chat.run(body)


def test_parse_of_a_half(chat):
    chat.says({"content": [text('{"steps":')], "stop": "max_tokens"})

    async def body(c):
        with pytest.raises(openai.LengthFinishReasonError):
            await then(c.chat.completions.parse(
                model=chat.model, messages=HI, response_format=Solution))

    chat.run(body)


def test_json_object(chat):
    chat.run(lambda c: chat.ask(
        c, response_format={"type": "json_object"}, messages=[
            {"role": "system", "content": "Be brief."}] + HI))
    system = [b["text"] for b in chat.asked()["system"]]
    assert system[0] == "Be brief." and "JSON" in system[1]
    assert "output_config" not in chat.asked()


# Pictures and documents.

def test_media(chat):
    chat.run(lambda c: chat.ask(c, messages=[say(
        "What is it?",
        {"type": "image_url", "image_url": {
            "url": "data:image/png;base64," + PNG, "detail": "high"}},
        {"type": "image_url", "image_url": {
            "url": "https://example.org/x.jpg"}},
        {"type": "file", "file": {
            "filename": "x.pdf",
            "file_data": "data:application/pdf;base64," + PDF}},
        {"type": "file", "file": {
            "filename": "x.txt",
            "file_data": "data:text/plain;base64,w6TigqwK"}})]))
    image, link, pdf, note = chat.asked()["messages"][0]["content"][1:]
    assert image == {"type": "image", "source": {
        "type": "base64", "media_type": "image/png", "data": PNG}}
    assert link == {"type": "image", "source": {
        "type": "url", "url": "https://example.org/x.jpg"}}
    assert (pdf["type"], pdf["title"]) == ("document", "x.pdf")
    assert pdf["source"] == {"type": "base64", "data": PDF,
                             "media_type": "application/pdf"}
    assert note["source"]["data"] == "ä€\n"


def test_large_picture(chat):
    """Megabytes pass, from a temporary file too."""
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"x" * 4000000).decode()
    chat.run(lambda c: chat.ask(c, messages=[
        {"role": "user", "content": [{"type": "image_url", "image_url": {
            "url": "data:image/png;base64," + data}}]}]))
    block = chat.asked()["messages"][0]["content"][-1]
    assert block["source"]["data"] == data


def test_picture_in_a_tool_result(chat):
    call = {"id": "c", "type": "function",
            "function": {"name": "clock", "arguments": "{}"}}
    chat.run(lambda c: chat.ask(c, tools=TOOLS, messages=HI + [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": [
            {"type": "text", "text": "See:"},
            {"type": "image_url", "image_url": {
                "url": "data:image/png;base64," + PNG}}]}]))
    result = chat.asked()["messages"][-1]["content"][0]
    assert [b["type"] for b in result["content"]] == ["text", "image"]


# Reasoning.

@pytest.mark.parametrize("model, effort, thinks, level", [
    ("fam-a-large", "low", {"type": "enabled", "budget_tokens": 1024}, None),
    ("fam-a-large", "high", {"type": "enabled", "budget_tokens": 4096}, None),
    ("fam-a-one-of", "minimal", {"type": "adaptive"}, "low"),
    ("fam-a-one-of", "xhigh", {"type": "adaptive"}, "xhigh"),
    ("fam-a-one-of", "none", {"type": "disabled"}, None),
    ("fam-a-newest", "xhigh", {"type": "adaptive"}, "high"),
    ("fam-a-small", "high", None, None),
])
def test_reasoning_effort(sync, model, effort, thinks, level):
    sync.says([thinking("Hm"), text("Hello")])
    r = sync.run(lambda c: sync.ask(c, model=model, reasoning_effort=effort,
                                    temperature=0.5))
    asked = sync.asked()
    assert asked.get("thinking") == thinks
    assert asked.get("output_config", {}).get("effort") == level
    assert sync.text(r) == "Hello"
    assert r.choices[0].message.reasoning_content == "Hm"


@pytest.mark.parametrize("limit", [1, 1024, 1025, 5000])
def test_reasoning_fits_the_limit(sync, limit):
    """As the upstream requires: below 1024 there is no thinking."""
    sync.run(lambda c: sync.ask(c, max_completion_tokens=limit,
                                reasoning_effort="high"))
    assert sync.asked()["max_tokens"] == limit
    assert ("thinking" in sync.asked()) is (limit > 1024)


def test_reasoning_with_a_forced_tool(sync):
    sync.run(lambda c: sync.ask(c, tools=TOOLS, tool_choice="required",
                                reasoning_effort="high"))
    assert "thinking" not in sync.asked()


def test_reasoning_in_a_stream(chat):
    chat.says([thinking("Hm, so."), text("Hello")])

    async def body(c):
        out = {"reasoning_content": "", "content": ""}
        async for k in each(await chat.ask(c, stream=True)):
            for name, value in k.choices[0].delta.to_dict().items():
                if name in out:
                    out[name] += value
        return out

    assert chat.run(body) == {"reasoning_content": "Hm, so.",
                              "content": "Hello"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model, thinks", [
    ("fam-a-large", False), ("fam-a-full", True), ("fam-a-silent", False)])
def test_reasoning_in_a_tool_loop(chat, model, thinks, stream):
    """If thinking is sent in full, it comes back signed; if not, what comes
    back is dropped, and thinking is disabled: the upstream would refuse
    both."""
    chat.says([redacted(), thinking("Hm, so."), text("I look."),
               use("weather", CITY, "toolu_1"), use("clock", {}, "toolu_2")],
              [text("It is fine.")])

    async def ask(c, **kw):
        kw.update(model=model, reasoning_effort="medium")
        return await (streamed(chat, c, **kw) if stream
                      else chat.ask(c, **kw))

    content, rounds, messages = chat.run(lambda c: loop(chat, c, ask))
    assert (content, rounds) == ("It is fine.", 1)
    assert "thinking" in json.loads(chat.up.requests[-2].body)
    assert ("thinking" in chat.asked()) is thinks
    assert ("thinking_blocks" in messages[1]) is thinks
    assert ("reasoning_content" in messages[1]) is (model != "fam-a-silent")
    assert [b["type"] for b in chat.asked()["messages"][1]["content"]] \
        == ["redacted_thinking", "thinking"] * thinks \
        + ["text", "tool_use", "tool_use"]


# Errors.

def test_the_upstreams_refusal_is_told(chat):
    """What only the upstream can check is its 400, with its text."""
    union = {"type": "function", "function": {"name": "x", "parameters": {
        "type": "object", "anyOf": [{"required": ["a"]}]}}}
    for stream in (False, True):
        e, _ = chat.fails(400, "at the top level", tools=[union],
                          stream=stream, retries=2)
        assert e.code == "INVALID_REQUEST"
    assert len(chat.fake.refused) == 2
    chat.fake.refused.clear()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status, kind, cls, code", [
    (429, "rate_limit_error", "RateLimitError", "RATE_LIMITED"),
    (529, "overloaded_error", "InternalServerError", "UPSTREAM_OVERLOADED"),
    (500, "api_error", "InternalServerError", "UPSTREAM_ERROR"),
    (401, "authentication_error", "InternalServerError", "UPSTREAM_ERROR"),
    (400, "invalid_request_error", "BadRequestError",
     "CONTEXT_LENGTH_EXCEEDED"),
    (413, "request_too_large", "APIStatusError", "REQUEST_TOO_LARGE"),
])
def test_class_of_an_error(chat, status, kind, cls, code, stream):
    chat.says(reply_json(message_error(
        "prompt is too long: 210000 tokens > 200000 maximum", kind), status))

    async def body(c):
        with pytest.raises(openai.APIStatusError) as e:
            await chat.ask(c, stream=stream)
        return e.value

    e = chat.run(body, max_retries=0)
    assert (type(e).__name__, e.code) == (cls, code)
    assert e.message and e.request_id


@pytest.mark.parametrize("kind, cls, code", [
    ("rate_limit_error", "RateLimitError", "RATE_LIMITED"),
    ("overloaded_error", "InternalServerError", "UPSTREAM_OVERLOADED"),
    ("api_error", "InternalServerError", "UPSTREAM_ERROR"),
    ("invalid_request_error", "BadRequestError", "INVALID_REQUEST"),
])
def test_error_as_the_first_event(chat, kind, cls, code):
    """In a 200 of the upstream: the client gets the real status."""
    chat.says(sse([event("error", message_error("no", kind))]))

    async def body(c):
        with pytest.raises(openai.APIStatusError) as e:
            await chat.ask(c, stream=True)
        return e.value

    e = chat.run(body, max_retries=0)
    assert (type(e).__name__, e.code) == (cls, code)


def test_first_event_is_an_error_then_well(chat):
    """Which makes retries possible."""
    chat.says(sse([event("error", message_error("no", "overloaded_error"))]))
    now = chat.fake.says

    def says(body):
        chat.says([text("Hello")])
        return now(body)

    chat.fake.says = says
    r = chat.run(lambda c: streamed(chat, c), max_retries=2)
    assert chat.text(r) == "Hello" and chat.seen(2) == 2


@pytest.mark.parametrize("after", ["thinking", "text", "tool", "tools"])
@pytest.mark.parametrize("how", ["error", "close", "clean"])
def test_break_anywhere(chat, after, how):
    """Also within a block: an error, and never a complete answer."""
    answer = messages_api.message("large-2026-01-01", *ANSWERS[after])
    events = messages_api.wire(messages_api.stream(answer))[:-3]
    if how == "error":
        events.append(event("error", message_error("Overloaded",
                                                   "overloaded_error")))
    chat.says(sse(events + [0.05], end="clean" if how == "clean"
                  else "close"))

    async def body(c):
        with pytest.raises(openai.APIError) as raw:
            async for k in each(await chat.ask(c, stream=True, tools=TOOLS)):
                assert k.choices[0].finish_reason is None
        with pytest.raises(openai.APIError):
            await streamed(chat, c, tools=TOOLS)
        return raw.value

    e = chat.run(body)
    assert e.code == ("UPSTREAM_OVERLOADED" if how == "error"
                      else "UPSTREAM_TRUNCATED")
    assert e.message


def test_raw_lines(sync):
    """As they are sent."""
    async def body(c):
        with c.chat.completions.with_streaming_response.create(
                model=sync.model, messages=HI, stream=True) as r:
            return dict(r.headers), [n for n in r.iter_lines() if n]

    headers, lines = sync.run(body)
    assert headers["content-type"].startswith("text/event-stream")
    assert lines[-1] == "data: [DONE]"
    for line in lines[:-1]:
        assert line.startswith(("data: {", ":")), line
    first = json.loads(lines[0][6:])
    assert first["choices"] == [{
        "index": 0, "delta": {"role": "assistant", "content": ""},
        "logprobs": None, "finish_reason": None}]
    assert "usage" not in first


# Cancelled, and side by side.

def test_cancelled_stream(make_chat):
    """A task that is cancelled in the middle of a stream: the upstream
    connection is closed, and the connection pool still works."""
    chat = make_chat("async")
    gone = threading.Event()

    def wait(x):
        if x.wait_gone():
            gone.set()

    begun = message_stream(chat.inner, ["Hel"])[:4]

    async def read(c, got):
        async for k in await chat.ask(c, stream=True):
            if chat.piece(k):
                got.set()

    async def body(c):
        chat.says(sse(begun + [wait]))
        got = asyncio.Event()
        task = asyncio.create_task(read(c, got))
        await asyncio.wait_for(got.wait(), LIMIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(gone.wait, LIMIT)
        chat.says([text("Hello")])
        return chat.text(await chat.ask(c))

    assert chat.run(body) == "Hello"


def test_cancelled_call(make_chat):
    chat = make_chat("async")

    async def body(c):
        begun, over = threading.Event(), threading.Event()
        chat.says(raw(lambda x: begun.set(), over, "close"))
        task = asyncio.create_task(chat.ask(c))
        assert await asyncio.to_thread(begun.wait, LIMIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        over.set()
        chat.says([text("Hello")])
        return chat.text(await chat.ask(c))

    assert chat.run(body) == "Hello"


def test_many_at_once(make_chat):
    """Each gets its own answer."""
    chat = make_chat("async")

    def says(body):
        question = messages_api.blocks(body["messages"][0])[0]["text"]
        return [text((question + " ") * 50), use("clock", {"of": question})]

    chat.fake.says = says

    async def one(c, n):
        kw = dict(messages=[say("question %d" % n)], tools=TOOLS)
        r = await (streamed(chat, c, **kw) if n % 2 else chat.ask(c, **kw))
        call = r.choices[0].message.tool_calls[0].function
        return chat.text(r), json.loads(call.arguments)["of"]

    async def body(c):
        return await asyncio.gather(*[one(c, n) for n in range(24)])

    assert chat.run(body) == [("question %d " % n * 50, "question %d" % n)
                              for n in range(24)]
