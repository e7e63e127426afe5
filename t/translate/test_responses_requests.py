"""Responses requests of every kind, valid and nearly valid: each is either
refused here, with the path of what is wrong, or becomes a request that
messages_api.py or chat_api.py accepts, except for what only the vendor can
check.  What is passed to responses_api.py names no state."""

import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chat_api
import client
import gateway
import messages_api
import responses_api
from compare_responses import sealed
from responses_api import OUTPUTS
from sdk import translated
from test_translate_requests import (JPEG, PDF, PNG, PROFILE, SIGNED, of,
                                     schema, some)

COUNT = itertools.count()

CHAT_MODELS = {"fam-b-one": ("one-0613", chat_api.Model()),
               "fam-b-old": ("old-0301", chat_api.Model("max_tokens"))}

LINES = "\n".join("model %s %s free chat_limit=%s;" % (name, inner,
                                                       model.limit)
                  for name, (inner, model) in CHAT_MODELS.items())

# Parts and texts.

words = of("Hi", "Go on", "Hi ", " a\n", "ä\u2028\U0001f600", "\"\\/", "END",
           "What?", "", " ", "\n\t", "x", "y", "z")

mark = st.one_of(*[st.just({})] * 5, st.just(
    {"prompt_cache_breakpoint": {"mode": "explicit"}}))


def marked(part):
    return st.builds(lambda part, more: {**part, **more}, part, mark)


input_text = words.map(lambda text: {"type": "input_text", "text": text})

media = of(
    {"type": "input_image", "image_url": "data:image/png;base64," + PNG},
    {"type": "input_image", "image_url": "data:image/jpg;base64," + JPEG,
     "detail": "original"},
    {"type": "input_image", "image_url": "https://x.example/y.png",
     "detail": "low"},
    {"type": "input_image", "image_url": "http://x.example/y.png"},
    {"type": "input_image", "image_url": "data:image/bmp;base64,AA=="},
    {"type": "input_image", "image_url": None, "file_id": "file_1"},
    {"type": "input_image"},
    {"type": "input_file", "filename": "x.pdf",
     "file_data": "data:application/pdf;base64," + PDF},
    {"type": "input_file", "file_data": "data:text/plain;base64,SGk="},
    {"type": "input_file", "file_data": "data:text/csv;base64,SGk="},
    {"type": "input_file", "file_url": "https://x.example/y.pdf"},
    {"type": "input_file", "file_id": "file_1"},
    {"type": "input_audio", "input_audio": {"data": "", "format": "mp3"}})

part = marked(st.one_of(*[input_text] * 4, media))

parts = st.one_of(*[st.lists(part, min_size=1, max_size=3)] * 9,
                  st.just([]))

output_part = st.one_of(
    words.map(lambda text: {"type": "output_text", "text": text,
                            "annotations": []}),
    words.map(lambda text: {"type": "refusal", "refusal": text}))

# Tools, in any of four places.

NAMES = ("clock", "clock", "weather", "x.y", "n" * 70, "n" * 130)
SPACES = (None, None, "mcp__demo", "functions", "m m")

function = st.fixed_dictionaries(
    {"type": st.just("function"), "name": of(*NAMES)}, optional={
        "description": words, "parameters": schema,
        "strict": of(False, None), "defer_loading": st.booleans()})

custom = st.fixed_dictionaries(
    {"type": st.just("custom"), "name": of("patch", "exec")}, optional={
        "description": words, "format": of(
            {"type": "text"}, {"type": "grammar", "syntax": "lark",
                               "definition": "start: \"a\"\n"})})

simple = st.one_of(function, function, custom)

namespace = st.builds(
    lambda name, tools: {"type": "namespace", "name": name,
                         "description": "", "tools": tools},
    of(*filter(None, SPACES)), st.lists(simple, min_size=1, max_size=2))

search = of({"type": "tool_search", "execution": "client",
             "description": "Finds", "parameters": {
                 "type": "object", "properties": {}}},
            {"type": "tool_search"})

hosted = of({"type": "web_search", "external_web_access": False},
            {"type": "image_generation"}, {"type": "web_search_preview"})

forbidden = of({"type": "file_search", "vector_store_ids": ["vs_1"]},
               {"type": "mcp", "server_label": "x"}, {"type": "hologram"},
               {"type": "local_shell"}, {"type": "function"})

tool = st.one_of(*[simple] * 16, *[namespace] * 8, *[search] * 2,
                 *[hosted] * 2, forbidden)


tools = st.lists(tool, max_size=3, unique_by=lambda tool: tool.get(
    "name", tool["type"]))

# Items.

easy = st.builds(
    lambda role, content, more: {"role": role, "content": content, **more},
    of("user", "user", "user", "developer", "system"),
    st.one_of(words, parts), of({}, {"type": "message"},
                                {"type": "message", "id": "msg_1"}))

said = st.builds(
    lambda content, more: {"role": "assistant", "content": content, **more},
    st.one_of(words, st.lists(output_part, max_size=2)),
    some(type=st.just("message"), id=st.just("msg_2"),
         status=st.just("completed"),
         phase=of("commentary", "final_answer")))

thought = st.builds(
    lambda content, summary: {"type": "reasoning", "summary": [
        {"type": "summary_text", "text": summary}],
        "encrypted_content": content},
    of(sealed([SIGNED]), sealed([SIGNED, messages_api.redacted()]),
       sealed([{"type": "text", "text": "x"}]), sealed([]), "gAAAA", None,
       "mgw1.", "mgw1.!"), words)

CALL_IDS = ("call_", "functions.clock:", "call|", "x" * 70, "a b", "ä")


def call_of(kind, **members):
    return st.fixed_dictionaries({
        "type": st.just(kind), "call_id": of(*CALL_IDS).map(
            lambda id: "%s%d" % (id, next(COUNT))), **members},
        optional={"id": st.just("x_1"), "status": st.just("completed")})


def spaced(call):
    return st.builds(lambda call, space: {
        **call, **({"namespace": space} if space else {})}, call,
        of(*SPACES))


call = st.one_of(
    spaced(call_of("function_call", name=of(*NAMES), arguments=of(
        "{}", "{}", "", " ", '{"a":1.0}', ' {"b":[{}]} ', "{", "[]"))),
    spaced(call_of("custom_tool_call", name=of("patch", "exec"),
                   input=words)),
    call_of("tool_search_call", execution=st.just("client"),
            arguments=of({}, {"query": "x"})))

dropped = of({"type": "web_search_call", "id": "ws_1", "status": "completed"},
             {"type": "mcp_call", "id": "m", "name": "x"},
             {"type": "image_generation_call", "id": "i", "result": "AA=="})

refused = of({"type": "item_reference", "id": "fc_1"}, {"id": "fc_1"},
             {"type": "compaction", "encrypted_content": "x"},
             {"type": "local_shell_call", "id": "x"}, {"type": "hologram"})

more_tools = tools.map(lambda tools: {
    "type": "additional_tools", "role": "developer", "tools": tools})


item = st.one_of(*[easy] * 8, *[said] * 4, *[thought] * 4, *[call] * 12,
                 *[dropped] * 2, *[more_tools] * 2, refused)


@st.composite
def answers(draw, call):
    """What answers a call: mostly one output."""
    kind = OUTPUTS[call["type"]]
    content = {"tools": draw(tools), "execution": "client"} \
        if kind == "tool_search_output" \
        else {"output": draw(st.one_of(words, parts))}
    n = draw(st.sampled_from([1] * 38 + [0, 2]))
    return [{"type": kind, "call_id": call["call_id"], **content}] * n


@st.composite
def turn(draw):
    """Items, and the outputs of their calls, some of which come late."""
    out = draw(st.lists(item, min_size=1, max_size=4))
    outputs = sum((draw(answers(one)) for one in out
                   if one.get("type") in OUTPUTS), [])
    if draw(st.booleans()):
        outputs = list(draw(st.permutations(outputs)))
    if outputs and not draw(st.integers(0, 3)):
        outputs.insert(draw(st.integers(0, len(outputs))), draw(easy))
    return out + outputs


conversation = st.builds(lambda head, turns: sum(turns, head),
                         st.lists(easy, min_size=1, max_size=2),
                         st.lists(turn(), max_size=4))

named = st.builds(
    lambda kind, name, space: {"type": kind, "name": name, **(
        {"namespace": space} if space else {})},
    of("function", "function", "custom"), of("clock", "patch"), of(*SPACES))

request = st.fixed_dictionaries(
    {"model": st.just(""), "input": st.one_of(words, *[conversation] * 9)},
    optional=dict(
        stream=st.booleans(), store=of(True, False, None),
        instructions=st.one_of(words, st.none()),
        max_output_tokens=of(1, 1024, 5000, 8192, None, None, None, 0),
        temperature=of(0, 0.5, 1, 1.5, 2, None), top_p=of(0, 0.5, 1, None),
        tools=tools, parallel_tool_calls=of(True, False, None),
        tool_choice=st.one_of(
            of("auto", "none", "required"), named, st.builds(
                lambda mode, tools: {"type": "allowed_tools", "mode": mode,
                                     "tools": tools},
                of("auto", "required"), st.lists(named, max_size=2)),
            of({"type": "web_search"}, None)),
        reasoning=some(
            effort=of("none", "minimal", "low", "medium", "high", "xhigh",
                      "max", None), summary=of("auto", "detailed", None)),
        text=some(verbosity=of("low", None), format=of(
            {"type": "text"}, {"type": "json_object"},
            {"type": "json_schema", "name": "x", "strict": True, "schema": {
                "type": "object", "properties": {}, "required": [],
                "additionalProperties": False}})),
        include=of([], *[["reasoning.encrypted_content"]] * 6, None,
                   ["message.output_text.logprobs"]),
        user=of("u-1", "", "a@example.org", "x" * 300),
        safety_identifier=of("s-1", None), metadata=of({"k": "v"}, None),
        prompt_cache_key=of("k", None), truncation=of("auto", "disabled"),
        previous_response_id=of(*[None] * 9, "resp_1"),
        client_metadata=of({"model": "x", "tools": "[]"}),
        service_tier=of("auto", None), x_unknown=of(1)))

# what is up to the client: the vendor's 400 is passed

PASSED = ("A maximum of 4", "messages: first message must use")

# of a refusal's message: members of the root

PATH = re.compile(r"\b(model|input|stream|store|instructions|tools|text"
                  r"|tool_choice|max_output_tokens|temperature|top_p|include"
                  r"|parallel_tool_calls|reasoning|previous_response_id)\b")


# of responses_api.py, what may not be

STATE = ("store", "previous_response_id", "conversation", "prompt",
         "background")


@pytest.fixture(scope="module")
def g(module_gateway):
    key = gateway.Key("erin-1", "c")
    g = module_gateway(keys=[key], groups=gateway.group_a(
        models=translated.LINES) + gateway.group_b(models=LINES)
        + gateway.group("c", "responses", "fam-c-", "http://api.vendor-b.test",
                        "Authorization file:$dir/b.secret bearer",
                        "model fam-c-one one-5 free;"))
    chat = chat_api.ChatApi(dict(CHAT_MODELS.values()), chat_api.always(
        chat_api.text("Hello")), g.secret_b)
    passed = responses_api.ResponsesApi({"one-5"}, responses_api.always(
        responses_api.text("Hello")), g.secret_b)
    g.fakes = {"fam-a": (translated.fake(g.secret_a), g.a, g.alice),
               "fam-b": (chat, g.b, g.bob), "fam-c": (passed, g.b, key)}
    yield g
    g.a.reset()
    g.b.reset()


def post(g, body, model):
    """(response, did it reach the upstream, why that has refused it)"""
    fake, up, key = g.fakes[model[:5]]
    fake.refused.clear()
    up.reset()
    up.script(fake)
    r = g.post("/v1/responses", dict(body, model=model), key)
    if not up.requests:
        refusal = client.assert_flat(r, 400)
        assert PATH.search(refusal["message"]), refusal
    return r, up.requests, [why for why, _ in fake.refused]


@PROFILE
@given(body=request, model=of(*translated.MODELS, *[*CHAT_MODELS] * 3))
def test_refused_here_or_taken(g, body, model):
    r, reached, refused = post(g, body, model)
    if refused and refused[0].startswith(PASSED):
        assert r.status == 400 and refused[0] in r.json()["message"]
    elif reached:
        assert refused == [], json.dumps(reached[-1].json(), indent=1)
        assert r.status == 200 and r.complete


@PROFILE
@given(body=request)
def test_passed_without_state(g, body):
    r, reached, refused = post(g, body, "fam-c-one")
    if refused:
        assert not refused[0].startswith(STATE), refused
        assert "not persisted" not in refused[0]
        assert r.status == 400 and r.json()["message"]
    elif reached:
        assert r.status == 200 and r.complete
