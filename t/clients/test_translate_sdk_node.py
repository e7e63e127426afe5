"""The official chat SDK for Node, the AI SDK and LangChain with a group that
speaks messages.  sdk/translate.mjs runs all scenes at once, the tests check
their results; the text of each question names its scene, by which ANSWERS
selects the upstream's answer.  It refuses what the real one refuses
(messages_api.py).  What does not depend on translation is in test_sdk_node.py,
for this group too.
"""

import json

import pytest

import gateway
import messages_api
from messages_api import in_turn, redacted, text, thinking, use
from sdk import node, translated
from upstream import Upstream, event, message_error, message_stream, sse

REPORT = {"city": "Köln", "degrees": [19, 20.5]}
CITIES = [use("weather", {"city": "Köln"}, "toolu_1"),
          use("weather", {"city": "Bonn"}, "toolu_2")]
LONG = "".join("word-%d \u20ac\n" % n for n in range(2000))

TOOLS = in_turn([thinking("Hm."), text("I look."), *CITIES],
                [use("weather", {"city": "Ulm"}, "toolu_3")],
                [text("It is fine.")])

pytestmark = node.needed


def broken(end):
    events = message_stream("large-2026-01-01")[:5]
    if end == "frame":
        events.append(event("error", message_error("no", "overloaded_error")))
    return lambda body: sse(events + [0.05], end="close" if end == "cut"
                            else "clean")


def left(body):
    """Until the client hangs up."""
    return sse(message_stream("large-2026-01-01")[:4]
               + [lambda x: x.server.left.append(x.wait_gone())])


def always(*blocks, **more):
    return lambda body: dict(more, content=list(blocks))


SAME = {
    "tools": always(text("I look."), *CITIES,
                    use("weather", {}, "toolu_3")),
    "thinking": always(redacted(), thinking("Hm, so."), text("Hello")),
    "refusal": always(stop="refusal", stop_details={
        "type": "refusal", "explanation": "No."}),
    "between": always(use("weather", {}, "toolu_1"), text("and"),
                      CITIES[1]),
    "long": always(text(LONG), use("weather", {"city": LONG})),
}

ANSWERS = {
    "openai.run_tools": TOOLS,
    "openai.run_tools_stream": TOOLS,
    "openai.parse": always(text(json.dumps(REPORT))),
    "openai.parse_tool": always(use("report", REPORT)),
    "openai.error": broken("frame"),
    "openai.helper_error": broken("clean"),
    "openai.first_event": lambda body: sse(
        [event("error", message_error("no", "rate_limit_error"))]),
    "openai.abort": left,
    "ai.tools": TOOLS,
    "ai.tools_stream": TOOLS,
    "ai.object": always(text(json.dumps(REPORT))),
    "ai.object_stream": always(text(json.dumps(REPORT))),
    "ai.reasoning": always(thinking("Hm."), text("Hello")),
    "ai.broken": broken("cut"),
    "ai.error": lambda body: sse([], ctype="text/html"),
    "langchain.tools": TOOLS,
    "langchain.tools_stream": TOOLS,
    "langchain.schema": always(text(json.dumps(REPORT))),
    "langchain.function": always(use("report", REPORT)),
    "langchain.broken": broken("clean"),
}
ANSWERS.update(("openai.same_" + name, says) for name, says in SAME.items())


class Run(node.Results):

    def __init__(self):
        self.up = Upstream()
        self.up.left = []
        self.asked = {}             # scene: its requests

    def says(self, body):
        name = messages_api.blocks(body["messages"][0])[0]["text"]
        self.asked.setdefault(name, []).append(body)
        return ANSWERS.get(name, always(text("Hello")))(body)

    def play(self, directory):
        gw = gateway.Gateway(directory, self.up, self.up,
                             groups=translated.GROUPS).start()
        self.fake = translated.fake(gw.secret_a, self.says)
        self.up.script(self.fake)
        try:
            super().__init__(node.play(
                "translate.mjs", gw.dir, alice=gw.alice.secret,
                url="http://127.0.0.1:%d" % gw.port))
        finally:
            gw.stop()
            self.up.stop()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = Run()
    run.play(tmp_path_factory.mktemp("node"))
    return run


def test_nothing_is_refused(run):
    assert run.fake.refused == []
    assert run.up.faults == []


# openai.

@pytest.mark.parametrize("name", SAME)
def test_stream_and_whole_are_the_same(run, name):
    r = run.ok("openai.same_" + name)
    answer = SAME[name](None)
    calls = [b for b in answer["content"] if b["type"] == "tool_use"]

    for message in (r["whole"], r["stream"]):
        assert (message["content"] or "") == "".join(
            b["text"] for b in answer["content"] if b["type"] == "text")
        assert [(c["id"], c["function"]["name"],
                 json.loads(c["function"]["arguments"]))
                for c in message.get("tool_calls") or ()] \
            == [(b["id"], b["name"], b["input"]) for b in calls]
        assert message["role"] == "assistant"
        assert message["refusal"] == ("No." if name == "refusal" else None)

    # of members unknown to it, the runner keeps the last piece only
    assert r["whole"].get("reasoning_content") \
        == ("Hm, so." if name == "thinking" else None)
    assert r["total"]["total_tokens"] == 138
    assert r["finish"] == ("content_filter" if name == "refusal" else
                           "tool_calls" if calls else "stop")
    assert r["events"].get("tool_calls.function.arguments.done", 0) \
        == len(calls)


@pytest.mark.parametrize("scene", ["run_tools", "run_tools_stream"])
def test_run_tools(run, scene):
    r = run.ok("openai." + scene)
    assert r["text"] == "It is fine."
    assert r["calls"] == ["Köln", "Bonn", "Ulm"]
    assert r["roles"] == ["user", "assistant", "tool", "tool", "assistant",
                          "tool", "assistant"]
    asked = run.asked["openai." + scene]
    assert [len(body["messages"]) for body in asked] == [1, 3, 5]


def test_parse(run):
    assert run.ok("openai.parse") == [REPORT, REPORT]
    assert run.ok("openai.parse_tool") == REPORT
    assert run.asked["openai.parse_tool"][0]["tools"][0]["strict"] is True
    for body in run.asked["openai.parse"]:
        assert body["output_config"]["format"]["type"] == "json_schema"


@pytest.mark.parametrize("sdk, kinds", [
    ("openai", ["text", "image"]), ("ai", ["text", "image", "document"])])
def test_media(run, sdk, kinds):
    run.ok(sdk + ".media")
    content = run.asked[sdk + ".media"][0]["messages"][0]["content"]
    assert [b["type"] for b in content] == kinds


def test_errors(run):
    r = run.ok("openai.error")
    assert r["text"] == "Hello"
    assert r["error"]["code"] == "UPSTREAM_OVERLOADED"
    assert run.error("openai.helper_error")["code"] == "UPSTREAM_TRUNCATED"
    e = run.error("openai.unsupported")
    assert (e["class"], e["code"]) == ("BadRequestError", "UNSUPPORTED_FIELD")
    assert "openai.unsupported" not in run.asked
    e = run.error("openai.first_event")
    assert (e["class"], e["code"]) == ("RateLimitError", "RATE_LIMITED")


def test_abort(run):
    assert run.ok("openai.abort") == "APIUserAbortError"
    assert run.up.left == [True]


# AI SDK.

@pytest.mark.parametrize("scene", ["tools", "tools_stream"])
def test_ai_tools(run, scene):
    """It sends the reasoning back, unsigned: that is dropped."""
    r = run.ok("ai." + scene)
    assert (r["text"], r["steps"], r["finish"]) == ("It is fine.", 3, "stop")
    assert r["calls"] == ["Bonn", "Köln", "Ulm"] and r["input"] == 3 * 131
    assert r.get("reasoning") in (None, "Hm.") and not r.get("errors"), r
    for body in run.asked["ai." + scene]:
        assert "thinking" not in body
        assert [b["type"] for m in body["messages"] if m["role"] == "assistant"
                for b in m["content"]] \
            in ([], ["text", "tool_use", "tool_use"],
                ["text", "tool_use", "tool_use", "tool_use"])


def test_ai_object(run):
    assert run.ok("ai.object") == REPORT
    r = run.ok("ai.object_stream")
    assert r["object"] == REPORT and r["parts"] > 1
    for scene in ("ai.object", "ai.object_stream"):
        assert "format" in run.asked[scene][0]["output_config"]


def test_ai_reasoning(run):
    assert run.ok("ai.reasoning") == {"text": "Hello", "reasoning": "Hm."}
    assert run.asked["ai.reasoning"][0]["thinking"]["budget_tokens"] == 4096


def test_ai_errors(run):
    r = run.ok("ai.broken")
    assert r["text"] == "Hello" and r["errors"], r
    e = run.error("ai.error")
    assert e["status"] == 502
    assert json.loads(e["text"])["code"] == "UPSTREAM_ERROR"


# LangChain.

@pytest.mark.parametrize("scene", ["answer", "answer_stream"])
def test_langchain(run, scene):
    assert run.ok("langchain." + scene) == {"text": "Hello", "input": 131,
                                            "finish": "stop"}
    assert run.asked["langchain." + scene][0]["system"] \
        == [text("Be brief.")]


@pytest.mark.parametrize("scene", ["tools", "tools_stream"])
def test_langchain_tools(run, scene):
    assert run.ok("langchain." + scene) == {
        "text": "It is fine.", "calls": ["Köln", "Bonn", "Ulm"], "steps": 3}


@pytest.mark.parametrize("scene", ["schema", "function"])
def test_langchain_structured(run, scene):
    assert run.ok("langchain." + scene) == REPORT


def test_langchain_broken(run):
    assert run.error("langchain.broken")["code"] == "UPSTREAM_TRUNCATED"
