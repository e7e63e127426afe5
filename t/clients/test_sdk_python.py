"""The official Python SDKs, blocking and asynchronous, against the gateway;
sdk/apis.py lets one test serve them all.  Translated is the chat SDK with a
group that speaks messages.
"""

import asyncio
import json
import threading
import time

import anthropic
import openai
import pytest

import upstream
from client import LIMIT
from gateway import Gateway, Key
from sdk import answers
from sdk.apis import (HI, Chat, Messages, Translated, each, environment,
                      opened, then)
from upstream import reply, reply_json, sse

APIS = {"openai": Chat, "anthropic": Messages, "translated": Translated}
FOREIGN = "sk-ant-api03-" + "x" * 40
LONG = "prompt is too long: 210000 tokens > 200000 maximum"


@pytest.fixture(params=["sync", "async"])
def form(request):
    return request.param


@pytest.fixture
def chat(gw, form, tag):
    return Chat(gw, form, tag)


@pytest.fixture
def messages(gw, form, tag):
    return Messages(gw, form, tag)


@pytest.fixture(params=APIS)
def api(request, gw, form, tag):
    return APIS[request.param](gw, form, tag)


@pytest.fixture(params=["openai-sync", "anthropic-async", "translated-async"])
def slow_api(request, gw, tag):
    """For slow tests: one form each."""
    name, form = request.param.split("-")
    return APIS[name](gw, form, tag)


# Answers.

def test_answer(api):
    r = api.run(lambda c: api.ask(c))
    assert api.text(r) == "Hello"
    assert r.model == api.model
    assert api.up.last().json()["model"] == api.inner
    assert api.key.secret.encode() not in api.up.last().head


def test_usage(chat, messages):
    r = chat.run(lambda c: chat.ask(c))
    assert (r.usage.prompt_tokens, r.usage.completion_tokens) == (11, 7)
    r = messages.run(lambda c: messages.ask(c))
    assert (r.usage.input_tokens, r.usage.output_tokens) == (11, 7)


@pytest.mark.parametrize("cls", [Chat, Messages])
def test_body_arrives_byte_for_byte(gw, form, tag, cls):
    """Only the model's id changes, with 3 MB before or after it; unknown
    fields are kept."""
    api = cls(gw, form, tag)
    sent = []

    async def later(request):
        sent.append(request)

    hook = later if api.form == "async" else sent.append
    http = getattr(api.sdk, "DefaultAsyncHttpxClient"
                   if api.form == "async" else "DefaultHttpxClient")
    text = 'ä €\u2028\U0001f600 "model":"%s" \\ \t' % api.model * 80000

    async def body(c):
        await api.ask(c, messages=[{"role": "user", "content": text}],
                      extra_body={"future": {"model": "m", "a": [1.50, None]},
                                  "metadata": {"user_id": "u-1"}})

    api.run(body, http_client=http(event_hooks={"request": [hook]}))
    original = sent[0].content
    assert len(original) > 3000000
    token = b'"model":"' + api.model.encode() + b'"'
    assert original.count(token) == 1
    assert api.up.last().body == original.replace(
        token, b'"model":"' + api.inner.encode() + b'"')


def test_several_calls_over_one_connection(api):
    async def body(c):
        for _ in range(3):
            assert api.text(await api.ask(c)) == "Hello"
            with pytest.raises(api.sdk.BadRequestError):
                await api.ask(c, model="none")

    api.run(body)


def test_async_calls_side_by_side(gw, tag):
    chat, messages = Chat(gw, "async", tag), Messages(gw, "async", tag)

    async def body():
        async with chat.client() as c, messages.client() as m:
            out = await asyncio.gather(*[chat.ask(c) for _ in range(8)],
                                       *[messages.ask(m) for _ in range(8)])
        return [r.model for r in out]

    assert asyncio.run(body()) == [chat.model] * 8 + [messages.model] * 8


# Streams.

def test_stream(api):
    async def body(c):
        stream = await api.ask(c, stream=True)
        items = [item async for item in each(stream)]
        return items, "".join(api.piece(item) for item in items)

    items, text = api.run(body)
    assert text == "Hello"
    models = {m for item in items
              for m in [getattr(item, "model", None)
                        or getattr(getattr(item, "message", None), "model",
                                   None)] if m}
    assert models == {api.model}


def test_stream_helper(api):
    async def body(c):
        async with opened(api.helper(c)) as stream:
            kinds = [e.type async for e in each(stream)]
            final, text = await api.final(stream)
            return kinds, final, text

    kinds, final, text = api.run(body)
    assert text == "Hello"
    assert final.model == api.model
    assert kinds.count("content.delta" if api.sdk is openai else "text") >= 2


def test_stream_helper_text_only(messages):
    async def body(c):
        async with opened(messages.helper(c)) as stream:
            text = [t async for t in each(stream.text_stream)]
            return text, await then(stream.get_final_message())

    text, final = messages.run(body)
    assert text == ["Hel", "lo"]
    assert final.usage.output_tokens == 7 and final.stop_reason == "end_turn"


def test_stream_usage_only_when_asked(chat):
    async def body(c):
        plain = [k async for k in each(await chat.ask(c, stream=True))]
        asked = [k async for k in each(await chat.ask(
            c, stream=True, stream_options={"include_usage": True}))]
        return plain, asked

    plain, asked = chat.run(body)
    assert all(k.choices and not k.usage for k in plain)
    assert asked[-1].choices == [] and asked[-1].usage.total_tokens == 18
    for r in chat.up.requests:
        assert r.json()["stream_options"]["include_usage"] is True


def test_stream_is_not_held_back(api):
    """The rest is sent when the client has read the beginning."""
    go, waited = threading.Event(), []
    first = api.events(["Hel"], whole=False)
    rest = api.events(["Hel", "lo"])[len(first):]
    api.up.script(sse(first + [lambda x: waited.append(go.wait(LIMIT))]
                      + rest))

    async def body(c):
        text = ""
        async for item in each(await api.ask(c, stream=True)):
            text += api.piece(item)
            if text == "Hel":
                go.set()
        return text

    assert api.run(body) == "Hello" and waited == [True]


def test_break_closes_the_upstream(api):
    gone = threading.Event()

    def wait(x):
        if x.wait_gone():
            gone.set()

    api.up.script(sse(api.events(["Hel"], whole=False) + [wait]))

    async def body(c):
        stream = await api.ask(c, stream=True)
        async for item in each(stream):
            if api.piece(item):
                break
        await then(stream.close())
        return await asyncio.to_thread(gone.wait, LIMIT)

    assert api.run(body), "the upstream was still connected"


BREAKS = {
    "cut": dict(end="close"),
    "reset": dict(end="reset"),
    "sized": dict(end="close", framing="sized"),
    "unframed": dict(end="clean", framing="close"),
    "clean": dict(end="clean"),
}


@pytest.mark.parametrize("how", BREAKS)
def test_broken_stream_raises(api, how):
    """However it ends, without its last event it is not complete."""
    api.up.script(sse(api.events(whole=False) + [0.05], **BREAKS[how]))
    text = []

    async def body(c):
        stream = await api.ask(c, stream=True)
        with pytest.raises(api.sdk.APIError) as e:
            async for item in each(stream):
                text.append(api.piece(item))
        return e.value

    e = api.run(body)
    assert "".join(text) == "Hello"
    assert e.body["code" if "code" in e.body else "error"], e.body
    assert api.seen() == 1, "a stream that has begun is not repeated"


@pytest.mark.parametrize("how", ["cut", "clean"])
def test_broken_stream_raises_in_the_helper(api, how):
    api.up.script(sse(api.events(whole=False) + [0.05], **BREAKS[how]))

    async def body(c):
        with pytest.raises(api.sdk.APIError):
            async with opened(api.helper(c)) as stream:
                await api.final(stream)

    api.run(body)
    assert api.seen() == 1


def test_stream_cut_inside_an_event(api):
    """A partial event is not passed."""
    events = api.events(whole=False)
    api.up.script(sse(events[:-1] + [events[-1][:-9], 0.05], end="close"))
    text = []

    async def body(c):
        with pytest.raises(api.sdk.APIError):
            async for item in each(await api.ask(c, stream=True)):
                text.append(api.piece(item))

    api.run(body)
    assert "".join(text) == "Hel"


def test_error_event_of_the_upstream(api):
    """It raises; on messages with the upstream's text."""
    error = api.error("Overloaded, says the model", "overloaded_error")
    api.up.script(sse(api.events(whole=False) + [api.frame(error), 0.05],
                      end="close"))

    async def body(c):
        with pytest.raises(api.sdk.APIError) as e:
            async for item in each(await api.ask(c, stream=True)):
                pass
        return e.value

    e = api.run(body)
    assert "overloaded" in str(e).lower()
    assert api.sdk is openai or "Overloaded, says the model" in str(e)


def test_early_error_of_a_stream_is_a_status(api):
    """A stream that ends before its first event is a 502, not a 200."""
    api.up.script(sse([0.05], end="close"))
    api.fails(502, "", stream=True)
    api.up.script(reply_json(api.error(LONG), 400))
    api.fails(400, LONG, stream=True)
    api.up.script(reply_json(api.error("no"), 500))
    api.fails(502, "", stream=True)
    api.fails(400, "", model="none", stream=True)


def test_cut_answer_raises(api):
    """A plain answer that ends early is an error too."""
    api.up.script(reply_json(api.whole(api.inner), length=9999, end="close"))

    async def body(c):
        with pytest.raises(api.sdk.APIError):
            await api.ask(c)

    api.run(body, max_retries=0)


# Tools.

CHAT_TOOLS = [{"type": "function", "function": {
    "name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}}}}]
MESSAGE_TOOLS = [{"name": "weather", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}}}}]


def test_chat_tools(chat):
    chat.up.script(answers.tools("weather"))

    async def body(c):
        r = await chat.ask(c, tools=CHAT_TOOLS)
        call = r.choices[0].message.tool_calls[0]
        assert r.choices[0].finish_reason == "tool_calls"
        assert json.loads(call.function.arguments) == answers.ARGUMENTS
        return await chat.ask(c, tools=CHAT_TOOLS, messages=HI + [
            r.choices[0].message.to_dict(),
            {"role": "tool", "tool_call_id": call.id, "content": "20"}])

    assert chat.text(chat.run(body)) == "It is fine."
    assert chat.up.last().json()["messages"][1]["tool_calls"][0] \
        == answers.chat_call("weather")


def test_chat_tools_in_a_stream(chat):
    chat.up.script(answers.tools("weather"))

    async def body(c):
        text = ""
        async for k in each(await chat.ask(c, tools=CHAT_TOOLS, stream=True)):
            for call in k.choices[0].delta.tool_calls or []:
                text += call.function.arguments
        async with opened(chat.helper(c)) as stream:
            return text, await then(stream.get_final_completion())

    text, final = chat.run(body)
    call = final.choices[0].message.tool_calls[0]
    assert call.id == "call_1" and call.function.name == "weather"
    assert json.loads(text) == json.loads(call.function.arguments) \
        == answers.ARGUMENTS


def test_message_tools(messages):
    messages.up.script(answers.tools("weather"))

    async def body(c):
        r = await messages.ask(c, tools=MESSAGE_TOOLS)
        use = r.content[1]
        assert r.stop_reason == "tool_use"
        assert use.input == answers.ARGUMENTS
        return await messages.ask(c, tools=MESSAGE_TOOLS, messages=HI + [
            {"role": "assistant", "content": [b.to_dict() for b in
                                              r.content]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": use.id,
                 "content": "20"}]}])

    assert messages.text(messages.run(body)) == "It is fine."


def test_message_tools_in_a_stream(messages):
    messages.up.script(answers.tools("weather"))

    async def body(c):
        async with opened(messages.helper(c)) as stream:
            return await then(stream.get_final_message())

    final = messages.run(body)
    assert final.stop_reason == "tool_use" and final.model == messages.model
    assert final.content[0].name == "weather"
    assert final.content[0].input == answers.ARGUMENTS


def test_message_tool_runner(gw, tag):
    """The SDK's own loop: call, result, answer."""
    messages = Messages(gw, "sync", tag)
    messages.up.script(answers.tools("weather"))
    calls = []

    @anthropic.beta_tool
    def weather(city: str, unit: str) -> str:
        """The weather."""
        calls.append((city, unit))
        return "20"

    async def body(c):
        return c.beta.messages.tool_runner(
            model=messages.model, max_tokens=100, messages=HI,
            tools=[weather]).until_done()

    assert messages.text(messages.run(body)) == "It is fine."
    assert calls == [tuple(answers.ARGUMENTS.values())]


# Models, tokens, beta.

def test_models(api):
    async def body(c):
        ids = [m.id async for m in each(c.models.list())] \
            if api.form == "async" else [m.id for m in c.models.list()]
        one = await then(c.models.retrieve(ids[0]))
        with pytest.raises(api.sdk.NotFoundError):
            await then(c.models.retrieve(api.other))
        return ids, one

    ids, one = api.run(body)
    assert ids == api.ids
    assert one.id == api.model


def test_models_of_a_restricted_key(messages):
    async def body(c):
        return [m.id async for m in each(c.models.list())]

    assert messages.run(body, api_key=messages.gw.carol.secret) \
        == ["fam-a-small"]


def test_count_tokens(messages):
    async def body(c):
        return (await then(c.messages.count_tokens(
                    model=messages.model, messages=HI)),
                await then(c.beta.messages.count_tokens(
                    model=messages.model, messages=HI)))

    plain, beta = messages.run(body)
    assert plain.input_tokens == beta.input_tokens == 42
    assert [r.target.split("?")[0] for r in messages.up.requests] \
        == ["/v1/messages/count_tokens"] * 2
    assert messages.up.last().json()["model"] == messages.inner


def test_beta_messages(messages):
    betas = ["context-1m-2025-08-07", "interleaved-thinking-2025-05-14"]

    async def body(c):
        r = await then(c.beta.messages.create(
            model=messages.model, max_tokens=100, messages=HI, betas=betas))
        async with opened(c.beta.messages.stream(
                model=messages.model, max_tokens=100, messages=HI,
                betas=betas)) as stream:
            return r, await then(stream.get_final_message())

    for r in messages.run(body):
        assert messages.text(r) == "Hello" and r.model == messages.model
    for r in messages.up.requests:
        assert r.target in ("/v1/messages?beta=true", "/v1/messages")
        assert r.get("anthropic-beta") == ",".join(betas)
        assert r.get("anthropic-version")


def test_beta_query(messages):
    """Some versions of the SDK send ?beta=true, others do not."""
    async def body(c):
        return await messages.ask(c, extra_query={"beta": "true"})

    assert messages.text(messages.run(body)) == "Hello"
    assert messages.up.last().target == "/v1/messages?beta=true"


# Keys.

@pytest.mark.parametrize("blanks", [" %s", "   %s"])
def test_key_with_blanks(api, blanks):
    """More blanks between "Bearer" and the key."""
    r = api.run(lambda c: api.ask(c), api_key=blanks % api.key.secret)
    assert api.text(r) == "Hello"


def test_key_in_each_header(messages):
    secret = messages.key.secret

    for kw in (dict(api_key=secret), dict(auth_token=secret),
               dict(api_key=FOREIGN, default_headers={"x-api-key": secret}),
               dict(auth_token=secret,
                    default_headers={"x-api-key": FOREIGN}),
               dict(auth_token=secret,
                    default_headers={"x-api-key": secret})):
        r = messages.run(lambda c: messages.ask(c), **kw)
        assert messages.text(r) == "Hello", kw
        head = messages.up.last().head
        assert FOREIGN.encode() not in head and secret.encode() not in head
        assert messages.up.last().get("x-api-key") == messages.gw.secret_a


# Errors: the class, the message, the number of requests.

def test_error_401(api):
    async def body(c):
        with pytest.raises(api.sdk.AuthenticationError) as e:
            await api.ask(c)
        return e.value

    e = api.run(body, api_key=Key("x", "a").secret)
    assert e.body == {"code": "INVALID_API_KEY",
                      "message": "Invalid API key"}
    assert "Invalid API key" in str(e)
    assert api.seen() == 1


def test_errors_of_the_client(api):
    """400, 403, 404: one request each, whatever max_retries says."""
    e, _ = api.fails(400, "", retries=2, model="fam-none")
    assert e.body["code"] == "INVALID_MODEL"
    e, _ = api.fails(403, "", retries=2, model=api.other)
    assert e.body["code"] == "PROVIDER_MISMATCH"
    api.up.script(reply_json(api.error(LONG), 400))
    e, _ = api.fails(400, LONG, retries=2)
    assert e.body["code"] in ("CONTEXT_LENGTH_EXCEEDED", "INVALID_REQUEST")

    async def body(c):
        with pytest.raises(api.sdk.NotFoundError) as e:
            await then(c.post("/nothing" if api.base else "/v1/nothing",
                              body={}, cast_to=object))
        return e.value

    assert api.run(body, max_retries=2).body["code"] == "NOT_FOUND"
    assert api.seen(4) == 4
    assert len(api.up.requests) == 1


def test_error_code_attribute(chat):
    e, _ = chat.fails(400, "", model="fam-none")
    assert e.code == "INVALID_MODEL"


def test_messages_with_a_key_for_chat(gw, form, tag):
    messages = Messages(gw, form, tag)

    async def body(c):
        with pytest.raises(anthropic.PermissionDeniedError) as e:
            await messages.ask(c, model="fam-b-one")
        return e.value

    e = messages.run(body, api_key=gw.bob.secret)
    assert e.body["code"] == "PROVIDER_MISMATCH" and messages.seen() == 1


@pytest.mark.parametrize("status, outer, code", [
    (401, 502, "UPSTREAM_ERROR"), (403, 502, "UPSTREAM_ERROR"),
    (404, 502, "UPSTREAM_ERROR"), (429, 429, "RATE_LIMITED"),
    (500, 502, "UPSTREAM_ERROR"), (503, 503, "UPSTREAM_OVERLOADED"),
    (529, 529, "UPSTREAM_OVERLOADED"), (504, 504, "UPSTREAM_TIMEOUT"),
])
def test_errors_of_the_upstream(api, status, outer, code):
    api.up.script(reply_json(api.error("reason"), status))
    if outer == 529 and api.sdk is openai:
        outer = 503
    e, _ = api.fails(outer, "")
    assert e.body["code"] == code
    assert len(api.up.requests) == 1


def test_html_of_the_upstream(api):
    api.up.script(reply(502, b"<html>nginx</html>", ctype="text/html"))
    e, _ = api.fails(502, "")
    assert "<" not in str(e.body)


def test_body_too_large(gateway, form, tag):
    gw = gateway(location="client_max_body_size 64k;")
    for api in (Chat(gw, form, tag), Messages(gw, form, tag)):
        e, _ = api.fails(413, "", retries=2, messages=[
            {"role": "user", "content": "x" * 300000}])
        assert e.body["code"] == "REQUEST_TOO_LARGE"
    assert api.seen(2) == 2 and gw.untouched()


def test_429_is_repeated_after_the_time(slow_api):
    api = slow_api
    api.up.script(reply_json(api.error("slow down"), 429,
                             headers=[("Retry-After", "2")]), upstream.both)

    async def body(c):
        begin = time.monotonic()
        r = await api.ask(c)
        return r, time.monotonic() - begin

    r, took = api.run(body)
    assert api.text(r) == "Hello" and took > 1.9
    assert api.seen(2) == 2


def test_5xx_is_repeated_twice(slow_api):
    api = slow_api
    api.up.script(reply_json(api.error("boom"), 500))
    api.fails(502, "", retries=2)
    assert api.seen(3) == 3 and len(api.up.requests) == 3


def test_5xx_then_well(slow_api):
    api = slow_api
    api.up.script(reply_json(api.error("boom"), 500), upstream.both)
    assert api.text(api.run(lambda c: api.ask(c, stream=False))) == "Hello"
    assert api.seen(2) == 2


@pytest.mark.parametrize("cls, form", [(Chat, "async"), (Messages, "sync")])
def test_refused_connection_is_repeated(tmp_path, tag, cls, form):
    nobody = upstream.Refused()
    gw = Gateway(tmp_path, nobody, nobody).start()
    try:
        api = cls(gw, form, tag)
        e, _ = api.fails(503, "", retries=1)
        assert e.body["code"] == "UPSTREAM_UNAVAILABLE"
        assert api.seen(2) == 2
    finally:
        gw.stop()
        nobody.stop()


# Request ids.

def test_request_ids(api):
    """Each response has one, errors too; the upstream's if it has one."""
    r = api.run(lambda c: api.ask(c))
    assert r._request_id
    ids = [("request-id", "req_upstream_1"), ("x-request-id",
                                              "req_upstream_1")]
    api.up.script(reply_json(api.whole(api.inner), headers=ids))
    assert api.run(lambda c: api.ask(c))._request_id == "req_upstream_1"
    api.up.script(reply_json(api.error(LONG), 400, headers=ids))
    e, _ = api.fails(400, LONG)
    assert e.request_id == "req_upstream_1"
