"""Frameworks on top of the chat SDK, with a group that speaks messages:
LangChain, the Agents SDK and Pydantic AI.  The translation is transparent to
them; the upstream refuses what the real one refuses (messages_api.py)."""

import asyncio
import json
from typing import List

import agents
import openai
import pydantic
import pytest
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import BinaryContent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.output import NativeOutput
from pydantic_ai.providers.openai import OpenAIProvider

from messages_api import text, thinking, use
from sdk.apis import environment
from sdk.translated import make_chat, sync, translating
from upstream import message_error, message_stream, reply_json, sse

# one loop for all tests: LangChain keeps its connections between tests
LOOP = asyncio.new_event_loop()

CITY = {"city": "Köln"}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


class Weather(pydantic.BaseModel):
    """The weather of a city."""
    city: str
    degrees: List[int]


WEATHER = Weather(city="Köln", degrees=[19, 20])
CALLS = [text("I look."), use("weather", CITY, "toolu_1"),
         use("weather", {"city": "Bonn"}, "toolu_2")]


@pytest.fixture(autouse=True)
def no_tracing(monkeypatch):
    """Traces would be sent to the vendors of the frameworks."""
    for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.setenv(name, "false")
    agents.set_tracing_disabled(True)


def wait(coroutine):
    return LOOP.run_until_complete(coroutine)


def client(sync):
    return openai.AsyncOpenAI(api_key=sync.key.secret, max_retries=0,
                              timeout=60, base_url=sync.base_url)


def results(asked):
    """The results in the last turn, as the upstream got them."""
    return [(b["tool_use_id"], b["content"])
            for b in asked["messages"][-1]["content"]
            if b["type"] == "tool_result"]


BOTH = [("toolu_1", "Köln: 20"), ("toolu_2", "Bonn: 20")]


# LangChain.

@pytest.fixture
def chain(sync):
    return lambda **kw: ChatOpenAI(**{**dict(
        model=sync.model, api_key=sync.key.secret, max_retries=0, timeout=60,
        base_url=sync.base_url, stream_usage=True), **kw})


@tool
def weather(city: str) -> str:
    """Says the weather."""
    return city + ": 20"


def whole(llm, messages):
    return llm.invoke(messages)


def in_pieces(llm, messages):
    chunks = list(llm.stream(messages))
    assert len(chunks) > 2
    out = chunks[0]
    for chunk in chunks[1:]:
        out += chunk
    return out


def later(llm, messages):
    return wait(llm.ainvoke(messages))


def later_in_pieces(llm, messages):
    async def run():
        out = None
        async for chunk in llm.astream(messages):
            out = chunk if out is None else out + chunk
        return out

    return wait(run())


every_way = pytest.mark.parametrize("ask", [whole, in_pieces, later,
                                            later_in_pieces])


@every_way
def test_langchain(sync, chain, ask):
    sync.says([thinking("Hm."), text("Hello "), text("Wörld")])
    r = ask(chain(temperature=0.5), [SystemMessage("Be brief."),
                                     HumanMessage("Hi")])
    assert r.text == "Hello Wörld"
    assert r.response_metadata["finish_reason"] == "stop"
    assert r.response_metadata["model_name"] == sync.model
    assert r.usage_metadata["input_tokens"] == 131
    assert r.usage_metadata["output_tokens"] == 7
    assert r.usage_metadata["input_token_details"]["cache_read"] == 100
    assert sync.asked()["system"] == [text("Be brief.")]


@every_way
def test_langchain_tools(sync, chain, ask):
    sync.says(CALLS, [use("weather", CITY, "toolu_3")], [text("Fine.")])
    llm = chain().bind_tools([weather])
    messages = [HumanMessage("Hi")]
    for n in (2, 1):
        r = ask(llm, messages)
        assert len(r.tool_calls) == n and not r.invalid_tool_calls
        assert r.response_metadata["finish_reason"] == "tool_calls"
        messages += [r] + [weather.invoke(call) for call in r.tool_calls]
        assert isinstance(messages[-1], ToolMessage)
    assert ask(llm, messages).text == "Fine."
    asked = sync.asked()
    assert results(asked) == [("toolu_3", "Köln: 20")]
    assert [b.get("input") for b in asked["messages"][1]["content"]] \
        == [None, CITY, {"city": "Bonn"}]


@pytest.mark.parametrize("method", ["json_schema", "function_calling",
                                    "json_mode"])
def test_langchain_structured(sync, chain, method):
    sync.says([use("Weather", WEATHER.model_dump())]
              if method == "function_calling"
              else [text(WEATHER.model_dump_json())])
    llm = chain().with_structured_output(Weather, method=method)
    assert llm.invoke("Hi, in JSON") == WEATHER
    asked = sync.asked()
    if method == "function_calling":
        assert asked["tool_choice"] == {"type": "tool", "name": "Weather",
                                        "disable_parallel_tool_use": True}
    assert ("output_config" in asked) is (method == "json_schema")


def test_langchain_picture(sync, chain):
    data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    chain().invoke([HumanMessage([
        {"type": "text", "text": "What is it?"},
        {"type": "image", "base64": data, "mime_type": "image/png"},
        {"type": "file", "base64": "JVBERi0xLjQ=", "filename": "x.pdf",
         "mime_type": "application/pdf"}])])
    content = sync.asked()["messages"][0]["content"]
    assert [b["type"] for b in content] == ["text", "image", "document"]
    assert content[1]["source"]["data"] == data


def test_langchain_reasoning(sync, chain):
    sync.says([thinking("Hm."), text("Hello")])
    chain(reasoning_effort="high").invoke("Hi")
    assert sync.asked()["thinking"]["budget_tokens"] == 4096


def test_langchain_errors(sync, chain):
    sync.says(reply_json(message_error("slow", "rate_limit_error"), 429))
    with pytest.raises(openai.RateLimitError):
        chain().invoke("Hi")
    sync.says(sse(message_stream(sync.inner)[:5] + [0.05], end="clean"))
    with pytest.raises(openai.APIError):
        list(chain().stream("Hi"))
    with pytest.raises(openai.BadRequestError) as e:
        chain(n=2).invoke("Hi")
    assert e.value.code == "UNSUPPORTED_FIELD"


# Agents SDK.

@agents.function_tool(name_override="weather")
def agents_weather(city: str) -> str:
    """Says the weather."""
    return city + ": 20"


@pytest.fixture
def agent(sync):
    """agent(how, …) makes one and runs it."""
    def run(how, **kw):
        model = agents.OpenAIChatCompletionsModel(sync.model, client(sync))
        return wait(how(agents.Agent("Helper", model=model,
                                     instructions="Be brief.", **kw)))

    return run


async def agents_run(agent):
    return (await agents.Runner.run(agent, "Hi")).final_output


async def agents_stream(agent):
    r = agents.Runner.run_streamed(agent, "Hi")
    async for event in r.stream_events():
        pass
    return r.final_output


both_ways = pytest.mark.parametrize("how", [agents_run, agents_stream])


@both_ways
def test_agents(sync, agent, how):
    sync.says([thinking("Hm."), *CALLS], [text("Fine.")])
    assert agent(how, tools=[agents_weather]) == "Fine."
    asked = sync.asked()
    assert results(asked) == BOTH
    assert [b["text"] for b in asked["system"]] == ["Be brief."]
    assert len(sync.up.requests) == 2


@both_ways
def test_agents_output(sync, agent, how):
    sync.says([text(WEATHER.model_dump_json())])
    assert agent(how, output_type=Weather) == WEATHER
    assert "format" in sync.asked()["output_config"]


@both_ways
def test_agents_settings(sync, agent, how):
    sync.says([thinking("Hm."), text("Fine.")])
    assert agent(how, model_settings=agents.ModelSettings(
        temperature=0.3, max_tokens=3000, parallel_tool_calls=False,
        reasoning={"effort": "low"}), tools=[agents_weather]) == "Fine."
    asked = sync.asked()
    assert asked["thinking"]["budget_tokens"] == 1024
    assert asked["max_tokens"] == 3000 and "temperature" not in asked


@both_ways
def test_agents_errors(sync, agent, how):
    sync.says(reply_json(message_error("no", "overloaded_error"), 529))
    with pytest.raises(openai.InternalServerError):
        agent(how)
    sync.says(sse(message_stream(sync.inner)[:5] + [0.05], end="clean"))
    with pytest.raises(openai.APIError):
        agent(agents_stream)


# Pydantic AI.

def pydantic_agent(sync, **kw):
    model = OpenAIChatModel(sync.model, provider=OpenAIProvider(
        openai_client=client(sync)))
    return Agent(model, system_prompt="Be brief.", **kw)


async def ai_run(agent, prompt="Hi", **kw):
    return (await agent.run(prompt, **kw)).output


async def ai_stream(agent, prompt="Hi", **kw):
    async with agent.run_stream(prompt, **kw) as r:
        return await r.get_output()


ai_both_ways = pytest.mark.parametrize("how", [ai_run, ai_stream])


@ai_both_ways
def test_pydantic_ai(sync, how):
    # a text before the calls would end its stream
    sync.says([thinking("Hm."), *CALLS[1:]], [text("Fine.")])
    agent = pydantic_agent(sync)

    @agent.tool_plain(name="weather")
    def ask(city: str) -> str:
        return city + ": 20"

    assert wait(how(agent)) == "Fine."
    assert results(sync.asked()) == BOTH


@ai_both_ways
def test_pydantic_ai_output(sync, how):
    """By a tool that must be called, and by a schema."""
    sync.says([use("final_result", WEATHER.model_dump())])
    assert wait(how(pydantic_agent(sync, output_type=Weather))) \
        == WEATHER
    assert sync.asked()["tool_choice"]["type"] == "any"
    sync.says([text(WEATHER.model_dump_json())])
    assert wait(how(pydantic_agent(
        sync, output_type=NativeOutput(Weather)))) == WEATHER
    assert "format" in sync.asked()["output_config"]


def test_pydantic_ai_picture(sync):
    wait(ai_run(pydantic_agent(sync), [
        "What is it?", BinaryContent(PNG, media_type="image/png")]))
    content = sync.asked()["messages"][0]["content"]
    assert [b["type"] for b in content] == ["text", "image"]


def test_pydantic_ai_errors(sync):
    sync.says(reply_json(message_error("slow", "rate_limit_error"), 429))
    with pytest.raises(ModelHTTPError) as e:
        wait(ai_run(pydantic_agent(sync)))
    assert e.value.status_code == 429
    assert json.loads(json.dumps(e.value.body))["code"] == "RATE_LIMITED"
