"""Credit of POST /v1/responses: what is held, charged, refused.  The rules are
those of money.py, as in test_credit.py."""

import json
import threading

import pytest

import client
import gateway as lib
import money
from client import assert_flat
from money import Seen
from test_credit import (ADMIN, LINES, UPSTREAMS, Bank, expect, fresh, line_of,
                         wire)
from upstream import (LIMIT, event, numbered, raw, reply_json, response,
                      response_events, response_item, response_usage, sse)

TARGET = "/v1/responses"
API = "responses"


def models(prefix):
    return "\n".join("model ~^(%s-.+)$ up-$1 %s;" % (name, line.text())
                     for name, line in LINES.items()
                     if name.startswith(prefix))


GROUPS = (lib.group("m", "responses", "tm-", "http://m.test",
                    "x-api-key file:$dir/a.secret", models("tm-"))
          + lib.group("c", "chat", "tc-", "http://c.test",
                      "x-api-key file:$dir/b.secret", models("tc-")))


class Purse(Bank):
    """A gateway with a ledger, and a group of responses."""

    def __init__(self, make, *args, **kw):
        kw.setdefault("locations", ADMIN)
        kw.setdefault("groups", GROUPS)
        super().__init__(make, *args, **kw)

    def call(self, body, **kw):
        return self.g.post(TARGET, body, self.km, **kw)

    def begin(self, body):
        c = self.g.connect()
        c.request("POST", TARGET, [self.km.bearer()], body=body)
        return c


@pytest.fixture(scope="module")
def module_bank(module_gateway):
    return Purse(module_gateway)


@pytest.fixture
def bank(module_bank):
    module_bank.g.a.reset()
    yield module_bank
    module_bank.g.a.reset()
    module_bank.audit()


@pytest.fixture
def make_bank(gateway):
    made = []

    def run(*args, **kw):
        made.append(Purse(gateway, *args, **kw))
        return made[-1]

    yield run
    for bank in made:
        bank.audit()


def body_of(model=None, **more):
    return dict({"model": model or fresh("tm-a"), "input": "Hi"}, **more)


USAGES = [
    (response_usage(100, 9, 30, 20, 4),
     dict(input=50, cache_read=30, cache_write=20, output=9)),
    (response_usage(100, 9), dict(input=100, output=9)),
    ({"input_tokens": 5, "output_tokens": 6}, dict(input=5, output=6)),
    ({"input_tokens": 5, "input_tokens_details": None, "output_tokens": 0,
      "output_tokens_details": None}, dict(input=5, output=0)),
    (response_usage(10, 3, 30), dict(input=0, cache_read=30, output=3)),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("usage, tokens", USAGES)
def test_reported(bank, usage, tokens, stream):
    body = body_of(stream=stream)
    bank.g.a.script(sse(numbered(response_events("m", usage=usage)))
                    if stream else reply_json(response("m", usage=usage)))
    assert bank.call(body).status == 200
    expect(bank, API, body, Seen(200, tokens, final=True))
    row = bank.row(body["model"])
    details = usage.get("output_tokens_details") or {}
    assert row["reasoning"] == details.get("reasoning_tokens", 0)


@pytest.mark.parametrize("last", ["response.completed", "response.incomplete",
                                  "response.failed"])
def test_last_events(bank, last):
    body = body_of(stream=True)
    events = response_events("m", last=last)
    events[-1]["response"]["error"] = {"code": "server_error", "message": "x"}
    bank.g.a.script(sse(numbered(events)))
    assert bank.call(body).status == 200
    expect(bank, API, body, Seen(200, dict(input=11, output=7), final=True),
           end="upstream" if last == "response.failed" else "complete")


def cut(bank, events, seen, end="close", **kw):
    """The stream breaks off behind the events."""
    body = body_of(stream=True)
    bank.g.a.script(sse(numbered(events), end=end))
    r = bank.call(body)
    assert r.status == 200 and b"response.failed" in r.body
    expect(bank, API, body, seen, end="upstream")


WORDS = ("alpha ", "b\u00e9ta ", '"gamma" ')
TEXT = len("".join(WORDS).encode())


def test_text_of_deltas(bank):
    cut(bank, response_events("m", WORDS)[:7], Seen(200, text=TEXT))


def test_text_of_deltas_and_of_items_is_one(bank):
    cut(bank, response_events("m", WORDS, last=None), Seen(200, text=TEXT))


def test_text_of_items_only(bank):
    cut(bank, response_events("m", WORDS, last=None, deltas=False),
        Seen(200, text=TEXT))


def test_text_of_the_last_event_only(bank):
    """No usage: the answer is complete, and estimated."""
    for n in (None, 0):
        body = body_of(stream=True)
        events = response_events("m", WORDS, deltas=False)
        if n is not None:
            events = events[:1] + events[-1:]
        events[-1]["response"]["usage"] = None
        bank.g.a.script(sse(numbered(events)))
        assert bank.call(body).complete
        expect(bank, API, body, Seen(200, text=TEXT))


def items():
    return [{"type": "reasoning", "id": "rs_1", "content": [],
             "summary": [{"type": "summary_text", "text": "12345"}],
             "encrypted_content": "x" * 100, "status": "completed"},
            {"type": "function_call", "id": "fc_1", "call_id": "call_123456",
             "name": "f" * 20, "arguments": '{"a":1}'},
            {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_x",
             "name": "g" * 20, "input": "0123456789"},
            {"type": "web_search_call", "id": "ws", "status": "completed",
             "action": {"type": "search", "queries": ["a long query"]}},
            {"type": "message", "id": "msg_1", "role": "assistant",
             "phase": "final_answer", "content": [
                 {"type": "output_text", "text": "abc",
                  "annotations": [{"type": "url_citation", "title": "long",
                                   "url": "https://long.test"}],
                  "logprobs": [{"token": "abc", "bytes": [1]}]},
                 {"type": "refusal", "refusal": "no"}]}]


ITEMS_TEXT = 5 + 100 + len('{"a":1}') + 10 + 3 + 2


def done(items):
    for i, item in enumerate(items):
        yield {"type": "response.output_item.added", "output_index": i,
               "item": {"type": item["type"], "id": item["id"]}}
        yield {"type": "response.output_item.done", "output_index": i,
               "item": item}


def test_text_of_all_items(bank):
    cut(bank, response_events("m")[:2] + list(done(items())),
        Seen(200, text=ITEMS_TEXT))


# Calls of tools, with their text as the deltas have it.

def action(kind, **more):
    return dict({"type": kind, "id": "x_1", "call_id": "call_1",
                 "status": "completed"}, **more)


CALLS = [
    (action("function_call", name="f", arguments='{"a":"b"}'), '{"a":"b"}'),
    (action("custom_tool_call", name="f", input="0123456789"), "0123456789"),
    (action("mcp_call", name="f", server_label="s", arguments='{"a":1}',
            output="what a server has said", error=None), '{"a":1}'),
    (action("shell_call", action={
        "commands": ["ls -l", "cat \u00e9"], "timeout_ms": 1000,
        "max_output_length": None}), "ls -lcat \u00e9"),
    (action("local_shell_call", action={
        "type": "exec", "command": ["ls", "-a", "~"], "env": {"A": "x"},
        "user": "root"}), "ls-a~"),
    (action("apply_patch_call", operation={
        "type": "update_file", "path": "", "diff": "@@\n-a\n+bcd\n"}),
     "@@\n-a\n+bcd\n"),
    (action("apply_patch_call", operation={
        "type": "delete_file", "path": "obsolete.txt"}), "obsolete.txt"),
    (action("tool_search_call", execution="client",
            arguments={"goal": "a tool"}), '{"goal":"a tool"}')]


@pytest.mark.parametrize("item, text", CALLS)
@pytest.mark.parametrize("steps", [
    "added", "done", "added done", "deltas", "deltas done",
    "added deltas", "added deltas done", "added done next",
    "deltas done next", "done next", "next done"])
def test_text_of_calls_of_tools(bank, item, text, steps):
    """Once, wherever it comes; the next item is one more."""
    bare = {"type": item["type"], "id": item["id"]}
    more = dict(type="response.function_call_arguments.delta", item_id="x_1")
    words = [dict(more, delta=c) for c in text]
    events = {"added": [{"type": "response.output_item.added", "item": item}],
              "deltas": [{"type": "response.output_item.added",
                          "item": bare}][:"added" not in steps] + words,
              "done": [{"type": "response.output_item.done", "item": item}],
              "next": response_events("m", WORDS, last=None,
                                      deltas=False)[2:]}
    seen = len(text.encode()) * (steps != "next") + TEXT * ("next" in steps)
    cut(bank, response_events("m")[:2] + [
        e for step in steps.split() for e in events[step]],
        Seen(200, text=seen))


@pytest.mark.parametrize("steps", [
    "+a +b a -a b -b", "+a +b a b -a -b", "+a +b -a b -b", "+a +b b -b a",
    "+a a -a +b -b", "+a +b -b -a"])
def test_text_of_items_side_by_side(bank, steps):
    """They begin (+) with all of it; deltas of one may come when the other is
    done (-)."""
    items = {c: action("function_call", id=c, name="f", arguments=c * n)
             for c, n in (("a", 10), ("b", 25))}
    events = response_events("m")[:2]
    for step in steps.split():
        item = items[step[-1]]
        events += [
            {"type": "response.function_call_arguments.delta",
             "item_id": step, "delta": c} for c in item["arguments"]
        ] if step in items else [
            {"type": "response.output_item."
             + ("added" if step[0] == "+" else "done"), "item": item}]
    cut(bank, events, Seen(200, text=10 + 25))


def test_output_of_a_shell_is_no_text(bank):
    """The vendor's computer has written it."""
    shell = {"type": "response.shell_call_output_content.delta",
             "command_index": 0, "delta": {"stdout": "x" * 1000}}
    cut(bank, response_events("m", WORDS)[:6] + [shell, shell]
        + response_events("m", WORDS)[6:7], Seen(200, text=TEXT))


def test_reasoning_that_begins_is_no_text(bank):
    """It has encrypted content before anything was thought."""
    item = items()[0]
    begun = dict(item, summary=[], encrypted_content="y" * 50)
    events = response_events("m")[:2] + [
        {"type": "response.output_item.added", "item": begun},
        {"type": "response.reasoning_summary_text.delta", "delta": "12345"},
        {"type": "response.output_item.done", "item": item}]
    for n, text in ((3, 0), (4, 5), (5, 105)):
        cut(bank, events[:n], Seen(200, text=text))


def test_words_in_echoes_are_no_text(bank):
    """Tools and instructions come back three times."""
    events = response_events("m", WORDS, last=None)
    tool = {"type": "function", "name": "f", "parameters": {"properties": {
        name: {"text": "x" * 1000, "description": "y" * 1000}
        for name in ("delta", "output", "item", "content")}}}
    for e in events[:2]:
        e["response"] = dict(e["response"], tools=[tool],
                             instructions="z" * 1000)
    cut(bank, events, Seen(200, text=TEXT))


@pytest.mark.parametrize("whole", [True, False])
def test_an_answer_without_usage(bank, whole):
    answer = response("m", usage=0, output=items(), instructions="x" * 999)
    answer["usage"] = None
    body = body_of()
    if whole:
        bank.g.a.script(reply_json(answer))
        assert bank.call(body).status == 200
        expect(bank, API, body, Seen(200, text=ITEMS_TEXT))
        return
    text = json.dumps(answer).encode()
    text = text[:text.index(b'"refusal": "no"')]
    bank.g.a.script(raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json"
                        b"\r\nContent-Length: 99999\r\n\r\n" + text, "close"))
    assert bank.call(body).status == 502
    expect(bank, API, body, Seen(200, text=ITEMS_TEXT - 2), end="upstream",
           status=200)


def test_usage_before_the_last_event_is_not_believed(bank):
    events = response_events("m", WORDS, last=None)
    for e in events:
        e["usage"] = response_usage(1, 1)
        e["response"] = dict(e.get("response", {}), usage=response_usage(2, 2))
    cut(bank, events, Seen(200, text=TEXT))


@pytest.mark.parametrize("value", [-1, 1.5, "7", 10 ** 9, True])
@pytest.mark.parametrize("stream", [True, False])
def test_what_is_no_count_is_no_usage(bank, value, stream):
    usage = dict(response_usage(), output_tokens=value)
    body = body_of(stream=stream)
    bank.g.a.script(sse(numbered(response_events("m", usage=usage)))
                    if stream else reply_json(response("m", usage=usage)))
    assert bank.call(body).status == 200
    expect(bank, API, body, Seen(200, dict(input=11), odd=["output"],
                                 text=len("Hello")))


@pytest.mark.parametrize("first", [
    {"type": "error", "code": "server_error", "message": "x"},
    {"type": "response.failed", "response": {"error": {
        "code": "server_error", "message": "x"}}}])
def test_an_error_first_is_free(bank, first):
    body = body_of(stream=True)
    bank.g.a.script(sse([event(first["type"], first)]))
    assert bank.call(body).status == 502
    expect(bank, API, body, Seen(502), end=None, status=502)


FAILED = {"type": "response.failed", "response": {
    "id": "resp_1", "status": "failed", "usage": None, "output": [],
    "error": {"code": "rate_limit_exceeded", "message": "Try later"}}}


@pytest.mark.parametrize("last, status", [
    ({"type": "error", "code": "server_error", "message": "x"}, 502),
    (FAILED, 429)])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_an_error_before_any_item_is_free(bank, last, status, n):
    """Vendors send response.created before they know whether they can answer;
    Codex asks again five times."""
    body = body_of(stream=True)
    bank.g.a.script(sse(numbered(response_events("m")[:n] + [last])))
    assert bank.call(body).status == 200
    if n < 3:
        expect(bank, API, body, Seen(status), end="upstream", status=status)
    else:
        expect(bank, API, body, Seen(200), end="upstream")


def test_a_failure_with_usage_is_not(bank):
    body = body_of(stream=True)
    last = dict(FAILED, response=dict(FAILED["response"],
                                      usage=response_usage()))
    bank.g.a.script(sse(numbered(response_events("m")[:2] + [last])))
    assert bank.call(body).status == 200
    expect(bank, API, body, Seen(429, dict(input=11, output=7), final=True),
           end="upstream", status=429)


def test_a_failure_with_items_is_not(bank):
    """Also where no other event has shown them."""
    body = body_of(stream=True)
    last = dict(FAILED, response=dict(FAILED["response"], output=items()))
    bank.g.a.script(sse(numbered(response_events("m")[:2] + [last])))
    assert bank.call(body).status == 200
    expect(bank, API, body, Seen(200, text=ITEMS_TEXT), end="upstream")


def test_an_error_later_is_not(bank):
    body = body_of(stream=True)
    events = response_events("m", WORDS)[:7]
    events.append({"type": "error", "code": "server_error", "message": "x"})
    bank.g.a.script(sse(numbered(events)))
    assert bank.call(body).status == 200
    expect(bank, API, body, Seen(200, text=TEXT), end="upstream")


# Clients that leave.

def leave(bank, events, after, rest=()):
    """The client closes when it has read what is in "after"; the rest is sent
    when that was noticed."""
    body = body_of(stream=True)
    gate = threading.Event()
    all = numbered(events + list(rest))
    steps = all[:len(events)] + [gate] + all[len(events):]
    bank.g.a.script(sse(steps))
    left = "client prematurely closed connection, "
    before = bank.g.log_count(left)
    with bank.begin(body) as c:
        assert c.head().status == 200
        while after not in c.current.data:
            assert c.read()
        c.reset()
    bank.g.wait_log(left, before + 1)
    gate.set()
    return body


def test_a_client_leaves_in_the_middle(bank):
    """The call is cut, and what was passed on is charged."""
    events = response_events("m", WORDS)
    body = leave(bank, events[:7], b"gamma", events[7:])
    expect(bank, API, body, Seen(200, text=TEXT), end="client")


@pytest.mark.parametrize("last, n", [("output_item.done", 1),
                                     ("content_part.done", 2),
                                     ("output_text.done", 3)])
def test_a_client_leaves_after_its_answer(bank, last, n):
    """All was read but for the usage, of which hidden reasoning is the most:
    the rest is read."""
    usage = response_usage(11, 5000, reasoning=4990)
    events = response_events("m", WORDS, usage=usage)
    body = leave(bank, events[:-n], last.encode(), events[-n:])
    expect(bank, API, body, Seen(200, dict(input=11, output=5000),
                                 final=True), end=None)


def test_a_client_leaves_after_its_first_item(bank):
    """Codex calls a tool as soon as the item is done."""
    first = items()[1:2]
    usage = response_usage(11, 5000, reasoning=4990)
    last = response("m", usage=usage, output=first)
    body = leave(bank, response_events("m")[:2] + list(done(first)),
                 b"output_item.done",
                 [{"type": "response.completed", "response": last}])
    expect(bank, API, body, Seen(200, dict(input=11, output=5000),
                                 final=True), end=None)


def test_a_client_leaves_in_its_second_item(bank):
    """It is not done: the call is cut."""
    events = (response_events("m")[:2] + list(done(items()[:1]))
              + response_events("m", WORDS)[2:7])
    body = leave(bank, events, b"gamma", response_events("m", WORDS)[7:])
    expect(bank, API, body, Seen(200, text=105 + TEXT), end="client")


def test_a_client_leaves_after_the_last_event(bank):
    body = body_of(stream=True)
    gate = threading.Event()
    bank.g.a.script(sse(numbered(response_events("m")) + [gate]))
    with bank.begin(body) as c:
        assert c.head().status == 200
        while b"response.completed" not in c.current.data:
            assert c.read()
        c.reset()
    expect(bank, API, body, Seen(200, dict(input=11, output=7), final=True))
    gate.set()


# The hold.

USER = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize("more", [
    {}, {"stream": True}, {"max_output_tokens": 1},
    {"max_output_tokens": None}, {"max_output_tokens": 0},
    {"input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": "https://x.test/a.png"},
        {"type": "input_image", "image_url": "data:image/png;base64,QUJD"},
        {"type": "input_file", "file_data": "QUJD", "filename": "f"},
        {"type": "input_file", "file_url": "https://x.test/a.pdf"},
        {"type": "input_file", "file_id": "file_1"}]}]},
    {"tools": [{"type": "function", "name": "f"}]},
    {"input": [{"type": "additional_tools", "role": "developer", "tools": [
        {"type": "namespace", "tools": [{"type": "custom"}]}]}]},
    {"tools": [{"type": "shell", "environment": {"type": "local"}},
               {"type": "local_shell"}, {"type": "apply_patch"}]},
    {"tools": [{"type": "tool_search", "execution": "client"},
               {"type": "web_search"}, {"type": "function", "name": "f"}]},
    {"tools": [{"type": "web_search"}, {"type": "code_interpreter"},
               {"type": "computer"}, {"type": "function", "name": "f"}],
     "model": fresh("tm-x")},
    {"input": [{"type": "additional_tools", "tools": [
        {"type": "namespace", "tools": [{"type": "apply_patch"}]}]},
        {"type": "tool_search_output", "tools": [{"type": "apply_patch"}]},
        {"type": "shell_call", "call_id": "x", "action": {"commands": []}},
        {"type": "apply_patch_call_output", "call_id": "x"},
        {"type": "mcp_list_tools", "tools": [{"name": "f"}]}]}])
def test_hold_and_estimate(make_bank, more):
    """A tool that the vendor describes has more tokens than bytes."""
    bank = make_bank("0.000001")
    body = dict(body_of(), **more)
    b = money.Bound(wire(body), line_of(body["model"]), "responses")
    error = assert_flat(bank.call(body), 402, "INSUFFICIENT_CREDIT")
    assert money.refusal(error["message"])[0] == b.hold


@pytest.mark.parametrize("protocol", ["messages", "chat"])
def test_hold_of_names_that_grow(gateway, protocol):
    """A translation writes the namespace before the name of each tool: what
    is sent is longer than what has come."""
    tools = [{"type": "custom", "name": "t%d" % i} for i in range(300)]
    body = body_of(max_output_tokens=1, tools=[
        {"type": "namespace", "name": "ab" * 50, "tools": tools}])
    shown = dict(body, model=fresh("tm-a"), input=[dict(USER, content=[
        {"type": "input_image", "image_url": "https://x.test/a.png"}])])
    groups = GROUPS.replace("responses;", protocol + ";", 1)
    line = line_of(body["model"])
    rich, poor = (Purse(gateway, founding, groups=groups)
                  for founding in ("1", "0.000001"))
    for b, pictures in ((body, 0), (shown, 1)):
        assert rich.call(b).status == 200
        sent = len(rich.g.a.last().body)
        assert sent > 2 * len(wire(b))
        error = assert_flat(poor.call(b), 402, "INSUFFICIENT_CREDIT")
        assert money.refusal(error["message"])[0] == money.up(
            (sent + pictures * money.MEDIA_BOUND) * line.highest_price(False)
            + line.price["output"], 1000)
    # what is longer for its braces only holds what it did
    body = body_of(input=[USER] * 300, tools=[function()])
    error = assert_flat(poor.call(body), 402, "INSUFFICIENT_CREDIT")
    assert money.refusal(error["message"])[0] == money.Bound(
        wire(body), line, "responses").hold
    for bank in (rich, poor):
        bank.audit()


@pytest.mark.parametrize("protocol", ["responses", "messages", "chat"])
def test_refused_calls_name_nothing_as_ignored(gateway, protocol):
    groups = GROUPS.replace("responses;", protocol + ";", 1)
    body = body_of(store=True, tools=[{"type": "web_search"}])
    rich, poor = (Purse(gateway, founding, groups=groups)
                  for founding in ("1", "0.000001"))
    assert "store" in rich.call(body).get("x-modelgw-ignored")
    r = poor.call(body)
    assert_flat(r, 402, "INSUFFICIENT_CREDIT")
    assert r.get("x-modelgw-ignored") is None


def test_402_says_what_fits(make_bank):
    bank = make_bank("0.020000007")
    model, left = fresh("tm-a"), bank.balance()

    def body(n):
        return body_of(model, max_output_tokens=n,
                       input="x" * (30 - len(str(n))))

    b = money.Bound(wire(body(60000)), line_of(model), "responses")
    error = assert_flat(bank.call(body(60000)), 402, "INSUFFICIENT_CREDIT")
    fits = b.fits(line_of(model), left)
    assert fits > 0
    assert money.refusal(error["message"].replace(
        "max_output_tokens", "max_tokens")) == (b.hold, left, fits)
    assert "max_output_tokens of %d would fit" % fits in error["message"]
    assert_flat(bank.call(body(fits + 1)), 402, "INSUFFICIENT_CREDIT")
    assert bank.call(body(fits)).status == 200
    bank.row(model)


# What has a price of its own.

def function(name="f", **more):
    return dict({"type": "function", "name": name, "parameters": {}}, **more)


def places(model, tools, **more):
    """Bodies with the tools in each place where tools are."""
    yield body_of(model, tools=tools, **more)
    yield body_of(model, tools=[{"type": "namespace", "name": "n",
                                 "tools": tools}], **more)
    for kind in ("additional_tools", "tool_search_output"):
        yield body_of(model, input=[USER, {"type": kind, "tools": tools}],
                      **more)
        yield body_of(model, input=[USER, {"type": kind, "tools": [
            {"type": "namespace", "name": "n", "tools": tools}]}], **more)


def tools_of(body):
    """The tools in such a body."""
    tools = (body["tools"] if "tools" in body
             else body["input"][1]["tools"])
    if tools and tools[0]["type"] == "namespace":
        return tools[0]["tools"]
    return tools


SEARCHES = [{"type": "web_search", "external_web_access": False},
            {"type": "web_search", "external_web_access": True},
            {"type": "web_search", "search_content_types": ["text"]},
            {"type": "web_search_preview"},
            {"type": "web_search_2025_08_26"}]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("at", [[0], [1], [2], [0, 2], [0, 1], [0, 1, 2], []])
def test_a_search_is_left_out(bank, search, at):
    mixed = [search if i in at else function(str(i)) for i in range(3)]
    for body in places(fresh("tm-a"), mixed):
        for indent in (None, 1):
            r = bank.call(json.dumps(body, indent=indent).encode())
            assert r.status == 200, r
            got = bank.g.a.last().json()
            assert tools_of(got) == [t for t in mixed if t != search]
            assert r.get("x-modelgw-ignored") == (
                "tools.web_search" if at else None)


def test_all_names_of_what_was_left_out(bank):
    r = bank.call(body_of(store=True, tools=[SEARCHES[0]], input=[
        {"type": "reasoning", "id": "x", "summary": []}, USER]))
    assert r.get("x-modelgw-ignored") == \
        "store,tools.web_search,input.reasoning"
    assert bank.g.a.last().json() == dict(
        bank.g.a.last().json(), store=False, tools=[], input=[USER])


def test_a_search_that_must_be_used(bank):
    r = bank.call(body_of(tools=[SEARCHES[0]],
                          tool_choice={"type": "web_search"}))
    assert_flat(r, 400, "INVALID_FIELD", has='"tool_choice.type"')


BILLED = [
    {"type": "mcp", "server_label": "s", "server_url": "https://x.test"},
    {"type": "image_generation"},
    {"type": "image_generation", "model": "other"},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "code_interpreter"},
    {"type": "computer_use_preview"}, {"type": "computer"},
    {"type": "shell"}, {"type": "shell", "environment": {
        "type": "container_auto"}},
    {"type": "shell", "container": {"type": "local"}},
    {"type": "shell", "environment": {"type": "container_auto"},
     "container": {"type": "local"}},
    {"type": "programmatic_tool_calling"}, {"type": "something_new"},
    {"type": "Web_Search"}, {"type": ""}, {"type": None}, {"name": "f"},
    {"type": "functions"}, {"type": ["web_search"]}]


@pytest.mark.parametrize("tool", BILLED)
def test_other_tools_are_refused(bank, tool):
    for body in places(fresh("tm-a"), [function(), tool]):
        assert_flat(bank.call(body), 400, "INVALID_FIELD")
    assert bank.g.untouched()


@pytest.mark.parametrize("tool", [
    b'{"type":"function","Type":"mcp","name":"f"}',
    b'{"type":"function","type":"mcp","name":"f"}',
    b'{"typ\\u0065":"mcp"}', b'{"type":"m\\u0063p"}',
    b'{"type":"web\\u005fsearch"}',
    b'{"type":"namespace","tools":[],"tool\\u0073":[{"type":"mcp"}]}',
    b'{"type":"namespace","tools":[],"tool\xc5\xbf":[{"type":"mcp"}]}'])
def test_tools_in_disguise(bank, tool):
    r = bank.call(b'{"model":"%s","input":"x","tools":[%s]}'
                  % (fresh("tm-a").encode(), tool))
    assert_flat(r, 400, "INVALID_FIELD")
    assert bank.g.untouched()


FREE = [function(), {"type": "custom", "name": "c"},
        {"type": "tool_search", "execution": "client"},
        {"type": "local_shell"}, {"type": "apply_patch"},
        {"type": "shell", "environment": {"type": "local"}},
        function(model="x")]


@pytest.mark.parametrize("tool", FREE)
def test_tools_of_the_client_pass(bank, tool):
    for body in places(fresh("tm-a"), [tool, tool]):
        r = bank.call(body)
        assert r.status == 200 and r.get("x-modelgw-ignored") is None


@pytest.mark.parametrize("line", ["tm-x", "tm-f"])
def test_extras_are_included_or_all_is_free(bank, line):
    """A model that an image is made with has a price in any case."""
    for tool in SEARCHES + BILLED:
        body = body_of(fresh(line), tools=[tool], service_tier="flex")
        r = bank.call(body)
        if line == "tm-x" and "model" in tool:
            assert_flat(r, 400, "INVALID_FIELD", has='"tools[0].model"')
            continue
        assert r.status == 200 and r.get("x-modelgw-ignored") is None
        assert bank.g.a.last().json()["tools"] == [tool]


@pytest.mark.parametrize("more, name", [
    ({"service_tier": "priority"}, "service_tier"),
    ({"input": [{"role": "user", "content": [
        {"type": "input_audio", "input_audio": {"data": "QQ=="}}]}]},
     "input_audio")])
def test_what_has_its_own_price(bank, more, name):
    assert_flat(bank.call(body_of(**more)), 400, "INVALID_FIELD", has=name)
    assert bank.g.untouched()


def test_words_are_no_tools(bank):
    kinds = ["web_search_2025_08_26", "web_fetch_2025", "code_execution_2025",
             "mcp_toolset", "mcp", "computer_use"]
    schema = {"properties": {"anyOf": [{"type": kind, "mcp_servers": 1}
                                       for kind in kinds]}}
    for at in ({"tools": [function(parameters=schema)]},
               {"metadata": schema},
               {"text": {"format": {"type": "json_schema", "name": "x",
                                    "schema": schema}}},
               {"input": [{"role": "user", "content": [
                   {"type": "input_text", "text": json.dumps(schema)}]}]}):
        body = body_of(**at)
        r = bank.call(body)
        assert r.status == 200, r
        assert bank.g.a.last().json() == dict(
            body, store=False, model="up-" + body["model"])


@pytest.mark.timed("a body of many tools does not hold up a worker")
def test_many_tools(bank):
    """Every other one is a search: 30,000 cuts."""
    n = 60000
    tools = [SEARCHES[3] if i % 2 else {"type": "custom"} for i in range(n)]
    body = body_of(tools=tools)
    r = lib.within(lambda: bank.call(body, timeout=LIMIT), 8)
    assert r.status == 200 and r.get("x-modelgw-ignored") == \
        "tools.web_search"
    assert bank.g.a.last().json()["tools"] == tools[::2]
