"""The official SDK for Python, the Agents SDK, Pydantic AI and LangChain, over
the responses API: with a group that passes it through and with groups that
speak messages and chat.  The upstreams refuse what the real ones refuse."""

import asyncio
import json
from typing import List

import agents
import openai
import pydantic
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.output import NativeOutput
from pydantic_ai.providers.openai import OpenAIProvider

from messages_api import text, use
from sdk.apis import environment
from sdk.model import (HOT, PROTOCOLS, ROUNDS, Responses, breaks, empty, fails,
                       sealed, turns, waits, wanted)

CITIES = ["Köln", "Bonn", "Ulm"]
INCLUDE = ["reasoning.encrypted_content"]
TOOL = {"type": "function", "name": "weather", "strict": False,
        "parameters": {"type": "object", "required": ["city"],
                       "properties": {"city": {"type": "string"}}}}

# one loop for all tests: LangChain keeps its connections between tests
LOOP = asyncio.new_event_loop()


class Weather(pydantic.BaseModel):
    """The weather of a city."""
    city: str
    degrees: List[int]


WEATHER = Weather(city="Köln", degrees=[19, 20])
REPORT = [text(WEATHER.model_dump_json())]


@pytest.fixture(scope="module")
def api(module_gateway):
    api = Responses(module_gateway)
    yield api
    api.close()


@pytest.fixture(autouse=True)
def no_tracing(monkeypatch):
    """Traces would be sent to the vendors of the frameworks."""
    for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.setenv(name, "false")
    agents.set_tracing_disabled(True)


class Place:
    """A model of a group; its upstream speaks the protocol."""

    def __init__(self, api, protocol):
        self.api = api
        self.protocol = protocol
        self.model = "fam-%s-one" % protocol
        self.key = next(key.secret for key in api.keys
                        if key.group == protocol)
        self.at = dict(api_key=self.key, max_retries=0, timeout=60,
                       base_url="http://127.0.0.1:%d/v1" % api.gw.port)

    def client(self):
        return openai.OpenAI(**self.at)

    def later(self):
        return openai.AsyncOpenAI(**self.at)

    def says(self, *answers):
        """The prompt to which the upstream's model answers so."""
        self.scene = "py%d" % len(self.api.model.scenes)
        self.api.model.scenes[self.scene] = list(answers)
        return "scene-%s, please" % self.scene

    def asked(self):
        return self.api.model.asked.get(self.scene, [])

    def thoughts(self):
        """Of a conversation of two rounds of calls."""
        assert len(self.asked()) == 3
        came = turns(self.protocol, self.asked()[-1])
        assert [kind for kind, _ in came if kind != "thought"] == [
            "text", "call", "call", "result", "result", "call", "result"]
        return [turn for turn in came if turn[0] == "thought"]


@pytest.fixture(params=sorted(PROTOCOLS.values()))
def place(request, api):
    return Place(api, request.param)


def wait(coroutine):
    return LOOP.run_until_complete(coroutine)


# openai: whole, in events, by its stream runner, asynchronously.

def whole(place, **request):
    return place.client().responses.create(**request)


def events(place, **request):
    response = None
    with place.client().responses.create(stream=True, **request) as stream:
        for n, event in enumerate(stream):
            assert event.sequence_number == n
            response = getattr(event, "response", response)
    return response


def runner(place, **request):
    with place.client().responses.stream(**request) as stream:
        for event in stream:
            pass
        return stream.get_final_response()


def later(place, **request):
    async def run():
        async with place.later() as client:
            return await client.responses.create(**request)

    return wait(run())


every_way = pytest.mark.parametrize("ask", [whole, events, runner, later])


@every_way
def test_tools(place, ask):
    prompt = place.says(*ROUNDS)
    messages = [{"role": "user", "content": prompt}]
    cities = []
    while True:
        r = ask(place, model=place.model, input=messages, store=False,
                tools=[TOOL], include=INCLUDE, reasoning={"summary": "auto"})
        assert (r.status, r.model) == ("completed", place.model)
        assert (r.usage.input_tokens, r.usage.total_tokens) == (131, 138)
        calls = [item for item in r.output if item.type == "function_call"]
        if not calls:
            break
        # the runner adds members that the API does not know
        messages += [item.model_dump(exclude_none=True, exclude={
            "parsed_arguments": True, "content": {"__all__": {"parsed"}}})
            for item in r.output]
        for call in calls:
            cities.append(json.loads(call.arguments)["city"])
            messages.append({"type": "function_call_output", "output": "20",
                             "call_id": call.call_id})
    assert (r.output_text, cities) == ("It is fine.", CITIES)
    assert place.thoughts() == sealed(place.protocol, "Hm.")


def test_structured(place):
    prompt = place.says(REPORT)
    client = place.client()
    r = client.responses.parse(model=place.model, input=prompt,
                               text_format=Weather)
    assert r.output_parsed == WEATHER
    with client.responses.stream(model=place.model, input=prompt,
                                 text_format=Weather) as stream:
        assert stream.get_final_response().output_parsed == WEATHER
    for body in place.asked():
        assert list(wanted(place.protocol, body)["properties"]) \
            == ["city", "degrees"]


@pytest.mark.parametrize("ask", [events, runner])
def test_cut(place, ask):
    with pytest.raises(openai.APIError) as e:
        ask(place, model=place.model, input=place.says(breaks))
    assert "upstream" in str(e.value)


def test_error_of_the_upstream(place):
    """In mid-stream: without an event "error" the SDK throws nothing."""
    try:
        r = events(place, model=place.model, input=place.says(fails))
        assert place.protocol == "responses"
        assert (r.status, r.error.message) == ("failed", HOT)
    except openai.APIError as e:
        assert HOT in str(e)


def test_error_status(place):
    with pytest.raises(openai.InternalServerError) as e:
        whole(place, model=place.model, input=place.says(empty))
    assert (e.value.status_code, e.value.code) == (502, "UPSTREAM_ERROR")


@pytest.mark.parametrize("member, value", [
    ("previous_response_id", "resp_1"), ("background", True),
    ("conversation", "conv_1"), ("prompt", {"id": "pmpt_1"}),
    ("input", [{"type": "item_reference", "id": "msg_1"}]),
    ("tools", [{"type": "file_search", "vector_store_ids": ["vs_1"]}])])
def test_state_is_refused(place, member, value):
    with pytest.raises(openai.BadRequestError) as e:
        whole(place, **{**dict(model=place.model, input=place.says(REPORT)),
                        member: value})
    assert e.value.code == "UNSUPPORTED_FIELD" and member in str(e.value)
    assert place.asked() == []


def test_aborted(place):
    place.api.up.gone.clear()
    with place.client().responses.create(
            model=place.model, input=place.says(waits),
            stream=True) as stream:
        while next(stream).type != "response.output_text.delta":
            pass
    place.api.up.wait_idle()
    assert place.api.up.gone == [True]


# Agents SDK: it keeps reasoning for later turns where it is told to ask for it.

@agents.function_tool(name_override="weather")
def agents_weather(city: str) -> str:
    """Says the weather."""
    return city + ": 20"


def agent(place, **more):
    return agents.Agent(
        "Helper", model=agents.OpenAIResponsesModel(place.model,
                                                    place.later()),
        model_settings=agents.ModelSettings(store=False,
                                            response_include=INCLUDE), **more)


async def agents_run(agent, prompt):
    return (await agents.Runner.run(agent, prompt)).final_output


async def agents_stream(agent, prompt):
    r = agents.Runner.run_streamed(agent, prompt)
    async for event in r.stream_events():
        pass
    return r.final_output


both_ways = pytest.mark.parametrize("how", [agents_run, agents_stream])


@both_ways
def test_agents(place, how):
    prompt = place.says(*ROUNDS)
    assert wait(how(agent(place, tools=[agents_weather]), prompt)) \
        == "It is fine."
    assert place.thoughts() == sealed(place.protocol, "Hm.")


@both_ways
def test_agents_output(place, how):
    assert wait(how(agent(place, output_type=Weather), place.says(REPORT))) \
        == WEATHER


@pytest.mark.parametrize("fault", [breaks, fails])
def test_agents_errors(place, fault):
    with pytest.raises((openai.APIError, agents.AgentsException)):
        wait(agents_stream(agent(place), place.says(fault)))


# Pydantic AI.

def pydantic_agent(place, **more):
    return Agent(OpenAIResponsesModel(place.model, provider=OpenAIProvider(
        openai_client=place.later())), model_settings={
            "openai_store": False,
            "openai_include_encrypted_reasoning": True}, **more)


async def ai_run(agent, prompt):
    return (await agent.run(prompt)).output


async def ai_stream(agent, prompt):
    async with agent.run_stream(prompt) as r:
        return await r.get_output()


ai_both_ways = pytest.mark.parametrize("how", [ai_run, ai_stream])


@ai_both_ways
def test_pydantic_ai(place, how):
    # a text before the calls would end its stream
    prompt = place.says([use("weather", {"city": "Köln"}, "call_1"),
                         use("weather", {"city": "Bonn"}, "call_2")],
                        [text("Fine.")])
    ai = pydantic_agent(place)

    @ai.tool_plain(name="weather")
    def ask(city: str) -> str:
        return city + ": 20"

    assert wait(how(ai, prompt)) == "Fine."
    assert [kind for kind, _ in turns(place.protocol, place.asked()[-1])] \
        == ["call", "call", "result", "result"]


@ai_both_ways
def test_pydantic_ai_output(place, how):
    """By a tool that must be called, and by a schema."""
    prompt = place.says([use("final_result", WEATHER.model_dump())])
    assert wait(how(pydantic_agent(place, output_type=Weather), prompt)) \
        == WEATHER
    prompt = place.says(REPORT)
    assert wait(how(pydantic_agent(
        place, output_type=NativeOutput(Weather)), prompt)) == WEATHER
    assert wanted(place.protocol, place.asked()[0])


def test_pydantic_ai_errors(place):
    with pytest.raises(ModelAPIError) as e:
        wait(ai_run(pydantic_agent(place), place.says(empty)))
    assert e.value.status_code == 502
    with pytest.raises((openai.APIError, ModelAPIError)):
        wait(ai_stream(pydantic_agent(place), place.says(breaks)))


# LangChain.

def chain(place, **more):
    return ChatOpenAI(model=place.model, use_responses_api=True, store=False,
                      include=INCLUDE, output_version="responses/v1",
                      **place.at, **more)


def invoke(llm, messages):
    return llm.invoke(messages)


def in_pieces(llm, messages):
    chunks = list(llm.stream(messages))
    assert len(chunks) > 2
    out = chunks[0]
    for chunk in chunks[1:]:
        out += chunk
    return out


@pytest.mark.parametrize("ask", [invoke, in_pieces])
def test_langchain(place, ask):
    llm = chain(place, reasoning={"summary": "auto"}).bind_tools([TOOL])
    messages = [HumanMessage(place.says(*ROUNDS))]
    cities = []
    for _ in range(5):
        r = ask(llm, messages)
        assert r.usage_metadata["input_tokens"] == 131
        messages.append(r)
        for call in r.tool_calls:
            cities.append(call["args"]["city"])
            messages.append(ToolMessage("20", tool_call_id=call["id"]))
        if not r.tool_calls:
            break
    assert (r.text, cities) == ("It is fine.", CITIES)
    assert place.thoughts() == sealed(place.protocol, "Hm.")


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_structured(place, method):
    prompt = place.says([use("Weather", WEATHER.model_dump())]
                        if method == "function_calling" else REPORT)
    llm = chain(place).with_structured_output(Weather, method=method)
    assert llm.invoke(prompt) == WEATHER


def test_langchain_errors(place):
    with pytest.raises(openai.InternalServerError):
        chain(place).invoke(place.says(empty))
    for fault, message in ((breaks, "The upstream "), (fails, HOT)):
        with pytest.raises(ValueError) as e:
            list(chain(place).stream(place.says(fault)))
        assert message in str(e.value)
