"""Codex, headless, over the responses API: with a group that passes it through
and with groups that speak messages and chat.  sdk/agent.py runs the sessions
without any network; the tests check their results."""

import json
import os

import pytest

from sdk import alone
from sdk.agent import ADD, CODE, PATCH, SCHEMA
from sdk.model import (HOT, PROTOCOLS, REPORT, pictures, sealed, tool_names,
                       turns, wanted)
from sdk.node import NPM

COMMAND = [os.path.join(NPM, ".bin/codex"), "exec", "--json",
           "--skip-git-repo-check"]

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module", params=sorted(PROTOCOLS.values()))
def codex(request, tmp_path_factory):
    def play(directory):
        return alone.play("agent.py", dir=directory, client="codex",
                          command=COMMAND, protocol=request.param)

    if not alone.works(COMMAND[:1] + ["--version"]):
        pytest.skip("NOTICE: not installed: codex")
    return dict(alone.once(tmp_path_factory, "codex-" + request.param, play),
                protocol=request.param)


def ended(codex, session, status, *log):
    """The session and its events."""
    r = codex[session]
    assert r["status"] == status, r
    assert [line["status"] for line in r["log"]] == list(log), r
    return r, [json.loads(line) for line in r["out"].splitlines()]


def items(events, kind):
    return [e["item"] for e in events
            if e["type"] == "item.completed" and e["item"]["type"] == kind]


def says(events):
    return [item["text"] for item in items(events, "agent_message")]


def done(codex, session, text, calls):
    """A session of so many calls that ends with the text; its events, and what
    the last call has brought to the upstream."""
    r, events = ended(codex, session, 0, *["200"] * calls)
    assert says(events)[-1] == text
    assert events[-1]["type"] == "turn.completed"
    assert len(r["asked"]) == calls
    return events, turns(codex["protocol"], r["asked"][-1])


def fails(codex, session, text, *log):
    """The user reads the text."""
    r, events = ended(codex, session, 1, *log)
    assert events[-1]["type"] == "turn.failed"
    assert text in events[-1]["error"]["message"], events[-1]
    return r


def test_text(codex):
    events, _ = done(codex, "text", "The kettle is on.", 1)
    assert [item["text"] for item in items(events, "reasoning")] == ["Hm."]
    written = 0 if codex["protocol"] == "chat" else 20
    assert events[-1]["usage"] == {
        "input_tokens": 131, "cached_input_tokens": 100,
        "cache_write_input_tokens": written, "output_tokens": 7,
        "reasoning_output_tokens": 0}
    line = codex["text"]["log"][0]
    assert (line["model"], line["upstream_model"]) == ("fam-one", "one-1")
    assert line["request"] == "POST /v1/responses HTTP/1.1"


def test_two_commands(codex):
    """In one answer; and its reasoning comes back as it was signed, where the
    upstream signs."""
    events, came = done(codex, "commands", "Both are done.", 2)
    assert codex["commands"]["files"] == {"one": "one\n", "two": "two\n"}
    assert says(events) == ["I do both.", "Both are done."]
    assert came == sealed(codex["protocol"], "Hm.") + [
        ("text", "I do both."),
        ("call", ("call_1", {"cmd": "echo one > one"})),
        ("call", ("call_2", {"cmd": "echo two > two"})),
        ("result", "call_1"), ("result", "call_2")]


def added(codex, session, calls):
    events, came = done(codex, session, "It is 3.", calls)
    (call,) = items(events, "mcp_tool_call")
    assert (call["server"], call["tool"]) == ("demo", "add")
    assert "The sum is 3" in json.dumps(codex[session]["asked"][-1])
    assert came[-2:] == [("call", (ADD["id"], ADD["input"])),
                         ("result", ADD["id"])]


def test_mcp(codex):
    """Its tools are in a namespace."""
    added(codex, "mcp", 2)


def test_tool_search(codex):
    """The tool is not declared before it was searched for."""
    added(codex, "search", 3)
    asked = codex["search"]["asked"]
    assert [ADD["name"] in tool_names(codex["protocol"], body)
            for body in asked] == [False, True, True]


def test_apply_patch(codex):
    """A custom tool."""
    events, came = done(codex, "patch", "It is patched.", 2)
    assert codex["patch"]["files"] \
        == {"new.txt": "one \"quoted\" line, 5 \u20ac\n"}
    assert came[-2:] == [("call", ("call_1", {"input": PATCH})),
                         ("result", "call_1")]


def test_code_mode(codex):
    """The tools are declared in an item of the input."""
    events, came = done(codex, "code", "It is coded.", 2)
    assert codex["code"]["files"] == {"three": "three\n"}
    assert came[-2:] == [("call", ("call_1", {"input": CODE})),
                         ("result", "call_1")]


def test_compaction(codex):
    """A call without tools, in whose conversation there are calls of tools."""
    done(codex, "compact", "It is summed up.", 3)
    names = [tool_names(codex["protocol"], body)
             for body in codex["compact"]["asked"]]
    assert names[0] and names[0] == names[2]
    if codex["protocol"] == "responses":
        assert names[1] == []


def test_schema(codex):
    events, _ = done(codex, "schema", json.dumps(REPORT), 1)
    assert wanted(codex["protocol"], codex["schema"]["asked"][0]) == SCHEMA


def test_picture(codex):
    done(codex, "picture", "Hello", 1)
    (data,) = pictures(codex["protocol"], codex["picture"]["asked"][0])
    assert data.startswith("iVBORw0KGgo")


def test_error_of_the_upstream(codex):
    """Inside of the stream: the user reads its message."""
    r = fails(codex, "failed", HOT, "200")
    assert len(r["asked"]) == 1


def test_cut(codex):
    """The user reads ours."""
    fails(codex, "cut", "The upstream", "200")


def test_aborted(codex):
    """The upstream is hung up on, too."""
    r = codex["aborted"]
    assert r["status"] == 1 and len(r["log"]) == 1, r
    assert codex["gone"] == [True]


@pytest.mark.parametrize("session", ["priced", "live"])
def test_search(codex, session):
    """Codex offers to search the web, at the vendor's index, and with full
    access the web itself: this is not handed on to models with prices."""
    done(codex, session, "Hello", 1)
    assert "web_search" not in json.dumps(
        codex[session]["asked"][0].get("tools"))


def test_no_credit(codex):
    r = fails(codex, "poor", "add credit", "402")
    assert r["log"][0]["code"] == "INSUFFICIENT_CREDIT" and r["asked"] == []


def test_wrong_key(codex):
    r = fails(codex, "key", "Invalid API key", "401")
    assert r["asked"] == []


def test_websocket(codex):
    """As the vendor's own provider it asks for a WebSocket first."""
    done_log = [line["status"] for line in codex["websocket"]["log"]]
    assert done_log == ["426", "200"]
    _, events = ended(codex, "websocket", 0, *done_log)
    assert says(events) == ["Hello"]


def test_upstream_has_no_complaint(codex):
    assert codex["refused"] == [] and codex["faults"] == []


def test_key_stays_here(codex):
    (key,) = codex["keys"]
    for session in codex.values():
        if isinstance(session, dict):
            assert key not in json.dumps(session["asked"])
