"""opencode, headless, with @ai-sdk/openai, its package for the responses API:
as test_codex.py."""

import json
import os

import pytest

from sdk import alone
from sdk.model import HOT, PROTOCOLS, sealed, turns
from sdk.node import NPM

COMMAND = [os.path.join(NPM, ".bin/opencode"), "run", "--pure",
           "--format", "json"]

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module", params=sorted(PROTOCOLS.values()))
def opencode(request, tmp_path_factory):
    def play(directory):
        return alone.play("agent.py", dir=directory, client="opencode",
                          command=COMMAND, protocol=request.param)

    if not alone.works(COMMAND[:1] + ["--version"]):
        pytest.skip("NOTICE: not installed: opencode")
    return dict(alone.once(tmp_path_factory, "opencode-" + request.param,
                           play), protocol=request.param)


def ended(opencode, session, status, log):
    """The session and its events; a title is asked for, too."""
    r = opencode[session]
    assert r["status"] == status, r
    assert {line["status"] for line in r["log"]} == {log}, r
    return r, [json.loads(line) for line in r["out"].splitlines()]


def says(events):
    return [e["part"]["text"] for e in events if e["type"] == "text"]


def test_text(opencode):
    r, events = ended(opencode, "text", 0, "200")
    assert says(events) == ["The kettle is on."]
    tokens = events[-1]["part"]["tokens"]
    assert (tokens["total"], tokens["cache"]["read"]) == (138, 100)
    assert {line["model"] for line in r["log"]} == {"fam-one"}


def test_two_commands(opencode):
    r, events = ended(opencode, "commands", 0, "200")
    assert r["files"] == {"one": "one\n", "two": "two\n"}
    assert says(events) == ["I do both.", "Both are done."]
    came = turns(opencode["protocol"], r["asked"][-1])
    # it runs both at once
    assert sorted(came[-2:]) == [("result", "call_1"), ("result", "call_2")]
    assert came[:-2] == sealed(opencode["protocol"], "Hm.") + [
        ("text", "I do both.")] + [
            ("call", (id, {"command": "echo %s > %s" % (word, word),
                           "description": "Says a word"}))
            for id, word in (("call_1", "one"), ("call_2", "two"))]


def test_error_of_the_upstream(opencode):
    _, events = ended(opencode, "failed", 1, "200")
    assert HOT in json.dumps(events[-1])


def test_no_credit(opencode):
    r, events = ended(opencode, "poor", 1, "402")
    assert "add credit" in json.dumps(events[-1])
    assert r["asked"] == []


def test_upstream_has_no_complaint(opencode):
    assert opencode["refused"] == [] and opencode["faults"] == []
    (key,) = opencode["keys"]
    for session in opencode.values():
        if isinstance(session, dict):
            assert key not in json.dumps(session["asked"])
