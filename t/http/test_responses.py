"""POST /v1/responses, passed on: nothing is stored, and the answer leaves byte
for byte except for the model's id."""

import base64
import json
import random
import threading
import time

import pytest

import gateway as lib
from client import assert_flat, assert_ids, build
from gateway import group_b
from upstream import (numbered, reply, reply_json, response, response_events,
                      response_item, response_stream, response_usage, sse)

TARGET = "/v1/responses"
UP, OUR = b'"one-0613"', b'"fam-b-one"'

LOG = """log_format responses escape=json '{"tag":"$http_x_test_tag",'
        '"status":"$status","code":"$modelgw_code",'
        '"input":"$modelgw_input_tokens","output":"$modelgw_output_tokens",'
        '"cached":"$modelgw_cached_tokens","stream":"$modelgw_stream",'
        '"complete":"$modelgw_complete"}';"""


@pytest.fixture(scope="module")
def shared(module_gateway):
    return module_gateway(
        groups=lib.group_a() + group_b(protocol="responses"),
        http=LOG, server="access_log $dir/responses.log responses;",
        location="modelgw_abort drain;")


@pytest.fixture
def g(shared):
    for up in (shared.a, shared.b):
        up.wait_idle()
        up.reset()
    yield shared
    assert not shared.faults(), "\n".join(shared.faults())


def responses(model="fam-b-one", input="Hi", **more):
    return dict({"model": model, "input": input}, **more)


def post(g, body=None, key=None, **kw):
    return g.post(TARGET, responses() if body is None else body,
                  key or g.bob, **kw)


def logged(g, tag):
    return g.logged(tag, name="responses.log")


def sent(g):
    return g.b.last().body


def ours(events):
    return b"".join(events).replace(UP, OUR)


# Endpoint.

@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PUT", "PATCH"])
def test_other_methods(g, method):
    r = g.request(method, TARGET, g.bob)
    assert r.status == 405 and r.get("allow") == "POST", r
    assert g.untouched()


@pytest.mark.parametrize("target", ["/v1/responses/", "/v1/responses/resp_1",
                                    "/v1/responses/resp_1/cancel",
                                    "/v1/responses/compact",
                                    "/v1/responses/input_tokens",
                                    "/v1/conversations"])
def test_nothing_else_is_there(g, target):
    assert_flat(g.request("POST", target, g.bob, body={}), 404, "NOT_FOUND",
                has="No such endpoint")


def test_a_group_without_it(g):
    """It is translated, see t/translate."""
    r = post(g, responses("fam-a-large"), g.alice)
    assert r.status == 200, r
    assert g.a.last().target == "/v1/messages"


def test_answer(g, tag, http):
    answer = response("one-0613", usage=response_usage(100, 9, 30, 20, 4))
    g.b.script(reply_json(answer))
    r = post(g, headers=[("X-Test-Tag", tag)], version=http)
    assert r.status == 200 and r.complete, r
    assert_ids(r)
    assert r.json() == dict(answer, model="fam-b-one")
    assert g.b.last().target == TARGET
    line = logged(g, tag)
    assert (line["input"], line["output"], line["cached"]) == ("50", "9", "30")
    assert line["complete"] == "1", line


def test_stream(g, tag, http):
    events = response_stream("one-0613",
                             usage=response_usage(100, 9, 30, 20, 4))
    g.b.script(sse(events))
    r = post(g, responses(stream=True), headers=[("X-Test-Tag", tag)],
             version=http)
    assert r.status == 200 and r.complete, r
    assert r.body == ours(events)
    line = logged(g, tag)
    assert (line["input"], line["output"], line["cached"]) == ("50", "9", "30")
    assert line["complete"] == "1", line


# The body.

@pytest.mark.parametrize("body, want", [
    (b'{"model":"fam-b-one","input":"hi"}',
     b'{"store":false,"model":"one-0613","input":"hi"}'),
    (b' \n{ "input":"hi" , "model":"fam-b-one"}',
     b' \n{"store":false, "input":"hi" , "model":"one-0613"}'),
    (b'{"model":"fam-b-one","store":true,"input":"hi","x":{"store":true}}',
     b'{"model":"one-0613","store":false,"input":"hi","x":{"store":true}}'),
    (b'{"store":null,"model":"fam-b-one","input":"hi"}',
     b'{"store":false,"model":"one-0613","input":"hi"}'),
    (b'{"input":"hi","store" : false,"model":"fam-b-one",'
     b'"client_metadata":{"model":"fam-b-one"}}',
     b'{"input":"hi","store" : false,"model":"one-0613",'
     b'"client_metadata":{"model":"fam-b-one"}}'),
])
def test_store(g, body, want):
    assert post(g, body).status == 200
    assert sent(g) == want


def test_store_is_named(g):
    assert post(g, responses(store=True)).get("x-modelgw-ignored") == "store"
    for body in (responses(), responses(store=False), responses(store=None)):
        assert post(g, body).get("x-modelgw-ignored") is None


@pytest.mark.parametrize("more", [
    {"previous_response_id": "resp_1"}, {"conversation": "conv_1"},
    {"conversation": {"id": "conv_1"}}, {"prompt": {"id": "pmpt_1"}},
    {"background": True}])
def test_state_is_refused(g, more):
    name = list(more)[0]
    assert_flat(post(g, responses(**more)), 400, "UNSUPPORTED_FIELD",
                has='"%s"' % name)
    message = post(g, responses(**more)).json()["message"]
    assert message.endswith(
        "nothing is stored here: send the whole input"
        if name in ("previous_response_id", "conversation")
        else "not supported, nothing is stored here"), message
    assert g.untouched()


@pytest.mark.parametrize("more", [
    {"previous_response_id": None}, {"conversation": None}, {"prompt": None},
    {"background": False}, {"background": None}, {"instructions": None},
    {"instructions": "Be brief."}, {"tools": None}, {"tools": []},
    {"reasoning": None}, {"max_output_tokens": None}])
def test_no_state(g, more):
    assert post(g, responses(**more)).status == 200


@pytest.mark.parametrize("more, code", [
    ({"input": None}, "INVALID_FIELD"), ({"input": {}}, "INVALID_FIELD"),
    ({"input": 1}, "INVALID_FIELD"), ({"stream": "yes"}, "INVALID_FIELD"),
    ({"store": "yes"}, "INVALID_FIELD"), ({"tools": {}}, "INVALID_FIELD"),
    ({"instructions": [{"type": "item_reference", "id": "x"}]},
     "INVALID_FIELD"),
    ({"background": "yes"}, "INVALID_FIELD"),
    ({"Previous_Response_Id": "resp_1"}, "INVALID_FIELD"),
    ({"Store": True}, "INVALID_FIELD"),
    ({"Tools": []}, "INVALID_FIELD"),
    ({"Input": "x"}, "INVALID_FIELD"),
    ({"models": ["x"]}, "INVALID_FIELD"),
    ({"max_output_tokens": "9"}, "INVALID_FIELD")])
def test_fields(g, more, code):
    assert_flat(post(g, responses(**more)), 400, code)
    assert g.untouched()


def test_input_is_needed(g):
    assert_flat(post(g, {"model": "fam-b-one"}), 400, "MISSING_FIELD",
                has='"input"')


@pytest.mark.parametrize("more", [
    {"previous_response_id": "resp_1"}, {"prompt": {"id": "pmpt_1"}}])
def test_state_in_place_of_input(g, more):
    """The API takes these without input: what is said does not demand it."""
    assert_flat(post(g, dict(more, model="fam-b-one")), 400,
                "UNSUPPORTED_FIELD", has='"%s"' % list(more)[0])
    assert g.untouched()


USER = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize("item", [
    {"type": "item_reference", "id": "fc_1"}, {"id": "fc_1"},
    {"type": None, "id": "fc_1"}, {"type": "", "id": "fc_1"},
    {"type": "", "role": "", "id": "fc_1"}, {"role": "", "id": "fc_1"},
    {"role": None, "id": "fc_1"}, {"type": 1, "id": "fc_1"},
    {"id": "fc_1", "content": "x"}])
def test_references_are_refused(g, item):
    r = post(g, responses(input=[USER, item]))
    assert_flat(r, 400, "UNSUPPORTED_FIELD", has='set "store" to false')
    assert '"input[1]"' in r.json()["message"]
    assert g.untouched()


def test_reference_with_escapes(g):
    r = post(g, b'{"model":"fam-b-one","input":[{"t\\u0079pe":'
                b'"item\\u005freference","\\u0069d":"fc_1"}]}')
    assert_flat(r, 400, "UNSUPPORTED_FIELD", has='"input[0]"')


@pytest.mark.parametrize("item", [
    b'{"type":"message","Type":"item_reference","id":"x","role":"user"}',
    b'{"type":"message","type":"item_reference","id":"x","role":"user"}',
    b'{"type":"message","typ\\u0065":"item_reference","id":"x"}',
    b'{"type":"additional_tools","tools":[],"TOOLS":[{"type":"mcp"}]}',
    b'{"type":"additional_tools","too\xc5\xbfs":[],"tool\xc5\xbf":[],"id":1}',
    b'{"type":"reasoning","Encrypted_Content":"x","encrypted_content":"y"}'])
def test_names_in_items_are_clear(g, item):
    r = post(g, b'{"model":"fam-b-one","input":[%s]}' % item)
    assert_flat(r, 400, "INVALID_FIELD", has='"input[0]"')
    assert g.untouched()


def test_items_that_pass(g):
    items = [USER, dict(USER, type="message", id="msg_0"),
             {"type": "reasoning", "id": "rs_1", "summary": [],
              "content": None, "encrypted_content": "abc"},
             {"type": "function_call", "id": "fc_1", "call_id": "c",
              "name": "f", "arguments": "{}"},
             {"type": "function_call_output", "call_id": "c", "output": "1"},
             {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"},
             {"type": "mcp_list_tools", "id": "m", "server_label": "s",
              "tools": [{"name": "t", "input_schema": {}}]},
             {"type": "something_new", "id": "x"},
             {"role": "user", "id": "y", "content": [
                 {"type": "input_text", "text": "item_reference"}]}]
    body = json.dumps(responses(input=items, store=False)).encode()
    r = post(g, body)
    assert r.status == 200 and r.get("x-modelgw-ignored") is None
    assert sent(g) == body.replace(OUR, UP)


REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}


@pytest.mark.parametrize("reasoning", [
    REASONING, dict(REASONING, encrypted_content=None),
    dict(REASONING, encrypted_content=""),
    dict(REASONING, encrypted_content="mgw1.W10"),
    dict(REASONING, encrypted_content=7)])
@pytest.mark.parametrize("places", [[0], [1], [2], [0, 1], [1, 2], [0, 2],
                                    [0, 1, 2], [0, 1, 3, 5, 6]])
def test_reasoning_without_its_contents_is_left_out(g, reasoning, places):
    items = [dict(USER, content=str(i)) for i in range(max(7, 1))]
    mixed = [reasoning if i in places else item
             for i, item in enumerate(items)]
    for indent in (None, 2):
        r = post(g, json.dumps(responses(input=mixed), indent=indent).encode())
        assert r.status == 200, r
        assert r.get("x-modelgw-ignored") == "input.reasoning"
        assert g.b.last().json()["input"] == [
            item for i, item in enumerate(items) if i not in places]


def test_all_of_the_input_is_left_out(g):
    r = post(g, responses(input=[REASONING, REASONING]))
    assert r.status == 200
    assert g.b.last().json()["input"] == []


def function(name="f", **more):
    return dict({"type": "function", "name": name, "parameters": {}}, **more)


SEARCH = {"type": "web_search", "external_web_access": False}


def test_tools_pass_where_nothing_is_paid(g):
    tools = [function(), SEARCH, {"type": "mcp", "server_label": "x"},
             {"type": "image_generation", "model": "x"},
             {"type": "code_interpreter", "container": {"type": "auto"}},
             {"type": "namespace", "name": "n", "tools": [function()]}]
    body = json.dumps(responses(tools=tools, store=False)).encode()
    assert post(g, body).status == 200
    assert sent(g) == body.replace(OUR, UP)


STORED = [
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "file_search"},
    {"type": "other", "vector_store_ids": ["vs_1"]},
    {"type": "code_interpreter", "container": "cntr_1"},
    {"type": "code_interpreter",
     "container": {"type": "auto", "file_ids": ["file_1"]}},
    {"type": "code_interpreter",
     "container": {"type": "auto", "container_id": "cntr_1"}},
    {"type": "code_interpreter",
     "container": {"type": "local", "container_id": "cntr_1"}},
    {"type": "shell", "environment": {"type": "container_reference",
                                      "container_id": "cntr_1"}},
    {"type": "shell", "environment": {"type": "container_auto",
                                      "file_ids": ["file_1"]}},
    {"type": "shell", "environment": {"type": "container_auto",
                                      "skills": [{"skill_id": "s"}]}}]


def places(tool):
    """The tool in each place where tools are."""
    space = {"type": "namespace", "name": "n",
             "tools": [function("a"), tool]}
    for tools in ([tool], [function(), tool], [function(), space]):
        yield responses(tools=tools)
        for kind in ("additional_tools", "tool_search_output"):
            yield responses(input=[USER, {"type": kind, "tools": tools}])


@pytest.mark.parametrize("tool", STORED)
def test_the_operators_stores(g, tool):
    for body in places(tool):
        assert_flat(post(g, body), 400, "UNSUPPORTED_FIELD",
                    has="nothing is stored here")
    assert g.untouched()


@pytest.mark.parametrize("tool", [
    b'{"type":"function","name":"f","Type":"file_search"}',
    b'{"type":"function","type":"file_search"}',
    b'{"type":"code_interpreter","container":{"type":"auto"},'
    b'"Container":"cntr_1"}',
    b'{"type":"code_interpreter","container":{"type":"auto",'
    b'"file_ids":[],"File_Ids":["x"]}}',
    b'{"type":"namespace","tools":[],"too\\u006cs":[{"type":"file_search"}]}'])
def test_names_in_tools_are_clear(g, tool):
    r = post(g, b'{"model":"fam-b-one","input":"x","tools":[%s]}' % tool)
    assert_flat(r, 400, "INVALID_FIELD")
    assert g.untouched()


def test_words_are_no_tools(g):
    """Types of tools mean nothing in texts, schemas, metadata."""
    kinds = ["web_search_2025_08_26", "mcp_toolset", "file_search",
             "item_reference", "computer_use_preview", "code_execution_2"]
    schema = {"type": "object", "properties": {
        "anyOf": [{"type": kind, "id": "x", "vector_store_ids": ["x"],
                   "container": "cntr_1"} for kind in kinds]}}
    body = responses(
        store=False, metadata={"type": "file_search", "id": "x"},
        input=[dict(USER, id="msg_1", content=[
            {"type": "input_text", "text": json.dumps(schema)}]),
            {"type": "tool_search_call", "id": "t", "call_id": "c",
             "execution": "client", "arguments": schema}],
        tools=[function(parameters=schema), function(mcp_servers=[schema])])
    raw = json.dumps(body).encode()
    assert post(g, raw).status == 200
    assert sent(g) == raw.replace(OUR, UP)


def test_deep_tools_are_refused(g):
    tools = [{"type": "file_search", "vector_store_ids": ["x"]}]
    for _ in range(6):
        tools = [{"type": "namespace", "name": "n", "tools": tools}]
        r = post(g, responses(tools=tools))
        assert r.status == 400, r
        r = post(g, responses(input=[{"type": "additional_tools",
                                      "tools": tools}]))
        assert r.status == 400, r
    assert g.untouched()


def test_many_items(g):
    """The worker must not be blocked: half a million bytes a second at the
    least."""
    n = 60000
    items = [REASONING if i % 2 else USER for i in range(n)]
    body = json.dumps(responses(input=items)).encode()
    begin = time.monotonic()
    r = post(g, body, timeout=60)
    took = time.monotonic() - begin
    assert r.status == 200 and r.get("x-modelgw-ignored") == "input.reasoning"
    assert g.b.last().json()["input"] == items[::2]
    assert took < len(body) / 500000 or lib.ASAN, took


def test_thinking_that_waits(g):
    """Thinking waits for what it was thought for, however long, in memory that
    grows with the body."""
    seal = "mgw1." + base64.urlsafe_b64encode(
        b'[{"type":"thinking","thinking":"","signature":"s"}]').decode()
    think = {"type": "reasoning", "encrypted_content": seal.rstrip("=")}
    blank = {"role": "assistant", "content": " "}
    before = g.memory("VmRSS")
    r = post(g, responses("fam-a-large", [{"role": "user", "content": "Hi"}]
                          + 1500 * [think, blank]
                          + [{"role": "assistant", "content": "a"},
                             {"role": "user", "content": "b"}]), g.alice)
    assert r.status == 200, r
    assert g.memory() - before < 32 << 20
    said = g.a.last().json()["messages"][1]["content"]
    assert len(said) == 1501 and said[-1] == {"type": "text", "text": "a"}


def test_too_many_values(g):
    r = post(g, responses(input=[REASONING] * 150000), timeout=60)
    assert_flat(r, 400, "INVALID_REQUEST", has="too many values")


@pytest.mark.parametrize("n", [32767, 32768])
def test_too_many_cuts(g, n):
    """Each costs memory until the call ends; "store" is one, too."""
    r = post(g, responses(input=[0] + n * [{"type": "reasoning"}, 0]),
             timeout=60)
    if n < 32768:
        assert r.status == 200 and set(g.b.last().json()["input"]) == {0}
        return
    assert_flat(r, 400, "INVALID_REQUEST", has="too many elements")
    assert g.untouched()


def test_body_in_a_file(gateway):
    g = gateway(groups=lib.group_a() + group_b(protocol="responses"),
                location="client_body_buffer_size 1k;")
    items = [dict(USER, content="x" * 5000), REASONING,
             dict(USER, content="y" * 5000)]
    assert post(g, responses(input=items, store=True)).status == 200
    assert g.b.last().json() == responses(model="one-0613", store=False,
                                          input=[items[0], items[2]])
    r = post(g, responses(input=items + [{"id": "x"}]))
    assert_flat(r, 400, "UNSUPPORTED_FIELD", has='"input[3]"')


# The answer.

def test_model_in_response_only(g):
    """An id in a text, or beside "response", is not the model's."""
    events = numbered([
        {"type": "response.created", "model": "one-0613",
         "response": {"id": "r", "model": "one-0613", "output": [],
                      "metadata": {"model": "one-0613"}}},
        {"type": "response.output_text.delta", "output_index": 0,
         "delta": 'the "model":"one-0613"', "model": "one-0613"},
        {"type": "response.completed", "model": "one-0613",
         "response": {"model": "one-0613", "usage": response_usage()}}])
    g.b.script(sse(events))
    r = post(g, responses(stream=True))
    want = []
    for e in events:
        at = e.rfind(b'"model": "one-0613"') if b"metadata" not in e \
            else e.index(b'"model": "one-0613", "output"')
        want.append(e if b"delta" in e else
                    e[:at] + e[at:].replace(b"one-0613", b"fam-b-one", 1))
    assert r.body == b"".join(want)


def tokens(g, events, tag, complete="1", **kw):
    g.b.script(sse(events, **kw))
    r = post(g, responses(stream=True), headers=[("X-Test-Tag", tag)])
    line = logged(g, tag)
    assert line["complete"] == complete, line
    return r, line["input"], line["output"]


@pytest.mark.parametrize("last", ["response.completed", "response.incomplete"])
def test_last_events(g, tag, last):
    events = response_stream("one-0613", last=last)
    events.append(b"data: [DONE]\n\n")
    r, *counts = tokens(g, events, tag)
    assert r.complete and counts == ["11", "7"]
    assert r.body == ours(events)


def test_upstream_that_does_not_end(g, tag):
    events = response_stream("one-0613")
    r, *counts = tokens(g, events, tag, end="stall")
    assert r.complete and counts == ["11", "7"]
    assert r.body == ours(events)


def test_nothing_but_done_after_the_last_event(g, tag):
    events = response_stream("one-0613")
    r, *counts = tokens(g, events + [b"data: {}\n\n"], tag)
    assert r.complete and counts == ["11", "7"]
    assert r.body == ours(events)


def test_last_event_without_its_blank_line(g, tag):
    events = response_stream("one-0613")
    events[-1] = events[-1][:-2]
    r, *counts = tokens(g, events, tag)
    assert r.complete and counts == ["11", "7"]
    assert r.body == ours(events) + b"\n\n"


def test_usage_is_believed_at_the_end_only(g, tag):
    events = response_events("one-0613")
    for e in events[:-1]:
        e["usage"] = response_usage(1, 1)
        e["response"] = dict(e.get("response", {}), usage=response_usage(2, 2))
    events[-1]["usage"] = response_usage(3, 3)
    r, *counts = tokens(g, numbered(events), tag)
    assert r.complete and counts == ["11", "7"]


def test_usage_without_details(g, tag):
    usage = {"input_tokens": 5, "output_tokens": 6, "total_tokens": 11}
    r, *counts = tokens(g, response_stream("one-0613", usage=usage), tag)
    assert counts == ["5", "6"]


def test_failed(g, tag):
    events = response_events("one-0613", last="response.failed")
    events[-1]["response"]["error"] = {"code": "server_error", "message": "x"}
    events = numbered(events)
    g.expect("answered 200 for model")
    r, *counts = tokens(g, events, tag, complete="0")
    assert r.complete and counts == ["11", "7"]
    assert r.body == ours(events)
    assert logged(g, tag)["code"] == "UPSTREAM_ERROR"


def frames(body):
    """The data of the events at the end that tell an error."""
    out = [json.loads(e.split(b"data: ", 1)[1])
           for e in body.split(b"\n\n")[-3:-1]]
    assert [e["type"] for e in out] == ["response.failed", "error"]
    assert b"event: response.failed\n" in body and b"event: error\n" in body
    failed, error = out
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["usage"] is None
    assert failed["response"]["object"] == "response"
    assert error["sequence_number"] == failed["sequence_number"] + 1
    assert error["error"]["message"] == error["message"] \
        == failed["response"]["error"]["message"]
    assert error["error"]["code"] == error["code"]
    return failed, error


@pytest.mark.parametrize("message", [
    "Rate limit reached for one-0613 in organization org-1",
    "The model one-0613 is overloaded", 'it said "no"'])
def test_failed_is_replaced_if_its_message_was_changed(g, message):
    events = response_events("one-0613", last="response.failed")
    code = "rate_limit_exceeded" if "Rate" in message else "server_error"
    events[-1]["response"]["error"] = {"code": code, "message": message}
    events = numbered(events)
    g.b.script(sse(events))
    r = post(g, responses(stream=True))
    assert r.body.startswith(ours(events[:-1]))
    assert b"org-1" not in r.body and b"one-0613" not in r.body
    failed, error = frames(r.body)
    assert failed["response"]["error"]["code"] == code
    assert failed["response"]["id"] == "resp_1"
    assert failed["response"]["model"] == "fam-b-one"
    assert failed["sequence_number"] == len(events)


def test_error_event(g, tag):
    events = response_stream("one-0613")[:5]
    events.append(b'event: error\ndata: {"type":"error","code":"server_error",'
                  b'"message":"it broke","param":null,"sequence_number":5}'
                  b'\n\n')
    r, *counts = tokens(g, events, tag, complete="0")
    assert r.body.startswith(ours(events[:-1])) and r.complete
    failed, error = frames(r.body)
    assert error["message"] == "it broke"
    assert error["code"] == "UPSTREAM_ERROR"
    assert failed["response"]["error"]["code"] == "server_error"
    assert failed["sequence_number"] == 6


@pytest.mark.parametrize("event", [
    b'data: {"type":"error","code":"rate_limit_exceeded","message":"slow"}'
    b'\n\n',
    b'data: {"error":{"code":"rate_limit_exceeded","message":"slow"}}\n\n',
    b'data: {"type":"response.failed","response":{"error":'
    b'{"code":"rate_limit_exceeded","message":"slow"}}}\n\n'])
def test_error_first(g, event):
    g.b.script(sse([event]))
    assert_flat(post(g, responses(stream=True)), 429, "RATE_LIMITED")


def test_error_in_a_200(g):
    g.b.script(reply_json(response("one-0613", status="failed", error={
        "code": "server_error", "message": "x"})))
    assert_flat(post(g), 502, "UPSTREAM_ERROR")


@pytest.mark.parametrize("end", ["clean", "close", "reset"])
def test_stream_without_its_end(g, end):
    events = response_stream("one-0613", last=None)
    g.b.script(sse(events, end=end))
    r = post(g, responses(stream=True))
    assert r.status == 200 and r.complete
    assert r.body.startswith(ours(events))
    failed, error = frames(r.body)
    assert failed["sequence_number"] == len(events)
    assert error["code"] == "UPSTREAM_ERROR"


def test_no_events(g):
    g.b.script(sse([]))
    assert_flat(post(g, responses(stream=True)), 502, "UPSTREAM_ERROR")


@pytest.mark.parametrize("event", [b"data: [DONE]\n\n", b"data: x\n\n"])
def test_no_event_of_the_protocol(g, event):
    events = response_stream("one-0613", last=None)
    g.b.script(sse(events + [event]))
    r = post(g, responses(stream=True))
    frames(r.body)
    assert r.complete


def test_upstream_refuses(g):
    g.b.script(reply_json({"error": {"message": "Unknown parameter: x",
                                     "type": "invalid_request_error",
                                     "code": "unknown_parameter"}}, 400))
    assert_flat(post(g), 400, "INVALID_REQUEST", has="Unknown parameter: x")


def test_random_splits(g):
    events = response_stream("one-0613", words=["w%d \u00e9" % i
                                                for i in range(50)])
    raw = b"".join(events)
    rng = random.Random(7)
    for _ in range(10):
        cuts = sorted(rng.sample(range(1, len(raw)), 12))
        pieces = [raw[a:b] for a, b in zip([0] + cuts, cuts + [len(raw)])]
        g.b.script(sse(pieces, pause=0.002))
        r = post(g, responses(stream=True))
        assert r.complete and r.body == ours(events)


def test_strict_is_about_translations(gateway):
    """What is left out of a call that is passed on is only named."""
    body = responses(store=True)
    for protocol in ("responses", "messages", "chat"):
        g = gateway(groups=lib.group_a() + group_b(protocol=protocol),
                    location="modelgw_translate_strict on;")
        r = post(g, body)
        if protocol == "responses":
            assert r.status == 200 and r.get("x-modelgw-ignored") == "store"
            continue
        assert_flat(r, 400, "UNSUPPORTED_FIELD", has="store")
        assert_flat(post(g, responses(tools=[{"type": "web_search"}])), 400,
                    "UNSUPPORTED_FIELD", has="tools.web_search")


def test_limits_are_named_as_for_chat(gateway):
    key = lib.Key("lim", "b", "rpm=100 account=lim")
    g = gateway(groups=lib.group_a() + group_b(protocol="responses"),
                keys=[key], http="modelgw_zone 4m;")
    r = post(g, key=key)
    assert r.status == 200 and r.get("x-ratelimit-limit-requests") == "100"


def test_keepalive(gateway):
    g = gateway(groups=lib.group_a() + group_b(protocol="responses"),
                location="modelgw_keepalive 100ms;")
    gate = threading.Event()
    events = response_stream("one-0613")
    g.b.script(sse(events[:3] + [gate] + events[3:]))
    alive = b'event: keepalive\ndata: {"type":"keepalive"}\n\n'
    with g.connect() as c:
        c.request("POST", TARGET, [g.bob.bearer()],
                  body=responses(stream=True))
        assert c.head().status == 200
        got = [c.event() for _ in range(5)]
        assert got[3:] == [alive, alive]
        gate.set()
        while c.read():
            pass
    assert c.current.body.replace(alive, b"") == ours(events)
