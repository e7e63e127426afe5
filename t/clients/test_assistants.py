"""Coding assistants from npm, headless, against the gateway: Claude Code over
messages, Qwen Code over chat and over chat that is translated.
sdk/assistant.py runs the sessions without any network; the tests check their
results."""

import json
import os

import pytest

from sdk import alone
from sdk.node import NODE, NPM

PROGRAMS = {"claude": [os.path.join(NPM, ".bin/claude")],
            "qwen": [NODE, os.path.join(NPM, ".bin/qwen")]}


def play(directory):
    at = {name: command if alone.works(command + ["--version"]) else None
          for name, command in PROGRAMS.items()}
    return alone.play("assistant.py", dir=directory, **at) \
        if any(at.values()) else {}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The results of all sessions of the assistants that are installed."""
    return alone.once(tmp_path_factory, "assistants", play)


def sessions(played, name, program=None):
    if name not in played:
        pytest.skip("NOTICE: not installed: " + PROGRAMS[program or name][-1])
    for session, r in played[name].items():
        if session != "keys":
            assert r["status"] is not None, (session, r)
    return played[name]


@pytest.fixture
def claude(played):
    return sessions(played, "claude")


@pytest.fixture
def qwen(played):
    return sessions(played, "qwen")


@pytest.fixture
def translated(played):
    return sessions(played, "translated", "qwen")


pytestmark = pytest.mark.timeout(1500)      # eleven sessions, 120 s at most each


def result(r):
    """The last object of an assistant's JSON."""
    out = json.loads(r["out"])
    return out[-1] if isinstance(out, list) else out


def statuses(r):
    return [line["status"] for line in r["log"]]


def no_key_went_on(sessions, *more):
    for name, r in sessions.items():
        for request in r["upstream"] if name != "keys" else ():
            for key in sessions["keys"] + list(more):
                assert key not in request["head"] + request["body"], name


# Claude Code.

def test_claude_tools(claude):
    """A tool's call in a stream, its result, the answer to it."""
    r = claude["tools"]
    assert r["status"] == 0, r
    assert result(r)["result"] == "It is on the balcony."
    assert statuses(r) == ["200"] * len(r["log"])
    assert len(r["upstream"]) >= 2
    last = r["upstream"][-1]
    assert "The kettle is on the balcony." in last["body"]
    for request in r["upstream"]:
        body = json.loads(request["body"])
        assert request["target"] == "/v1/messages?beta=true"
        assert body["model"] in ("large-2026-01-01", "small-2026-02-02")
        assert "anthropic-beta: " in request["head"].lower()
    assert {line["model"] for line in r["log"]} \
        <= {"fam-a-large", "fam-a-small"}


@pytest.mark.parametrize("session", ["api_key", "both_keys"])
def test_claude_keys(claude, session):
    """The key in either variable, also with a vendor's key set."""
    r = claude[session]
    assert r["status"] == 0 and result(r)["result"] == "Hello", r


def test_claude_keys_stay_here(claude):
    no_key_went_on(claude, "sk-ant-")


def test_claude_401_ends_at_once(claude):
    """Without x-should-retry it retries silently for three minutes."""
    r = claude["error_401"]
    assert r["status"] == 1 and "Invalid API key" in result(r)["result"], r
    assert statuses(r) == ["401"]
    assert r["upstream"] == []


def test_claude_403_shows_the_reason(claude):
    r = claude["error_403"]
    assert r["status"] == 1 and "403" in result(r)["result"], r
    assert statuses(r) == ["403"]


def test_claude_broken_stream(claude):
    """Half an answer is not accepted: the request is repeated."""
    r = claude["broken"]
    assert r["status"] == 0 and "Hello" in result(r)["result"], r
    assert 2 <= len(r["upstream"]) <= 5


# Qwen Code.

def test_qwen_tools(qwen):
    r = qwen["tools"]
    assert r["status"] == 0, r
    assert result(r)["result"] == "It is on the balcony."
    assert statuses(r) == ["200"] * len(r["log"])
    assert any("The kettle is on the balcony." in q["body"]
               for q in r["upstream"])
    for request in r["upstream"]:
        assert json.loads(request["body"])["model"] == "one-0613"
    no_key_went_on(qwen)


def test_qwen_401_shows_the_reason(qwen):
    """Its SDK reads the "error" that modelgw_error_compat adds."""
    r = qwen["error_401"]
    assert r["status"] == 1, r
    assert "401 Invalid API key" in result(r)["error"]["message"]
    assert statuses(r) == ["401"]


def test_qwen_broken_stream(qwen):
    """It retries, a limited number of times."""
    r = qwen["broken"]
    assert r["status"] == 0 and "Hello" in result(r)["result"], r
    assert 2 <= len(r["upstream"]) <= 8


# Qwen Code, with a group that speaks messages.

def test_translated_tools(translated):
    """As over chat; and the upstream refuses none of its requests."""
    r = translated["tools"]
    assert r["refused"] == []
    assert r["status"] == 0, r
    assert result(r)["result"] == "It is on the balcony."
    assert statuses(r) == ["200"] * len(r["log"])
    asked = [json.loads(q["body"]) for q in r["upstream"]]
    assert any("The kettle is on the balcony." in json.dumps(body["messages"])
               for body in asked)
    for body in asked:
        assert body["model"] == "large-2026-01-01" and body["max_tokens"]
    assert max(len(body.get("tools", ())) for body in asked) >= 5
    assert {line["model"] for line in r["log"]} == {"fam-a-large"}
    no_key_went_on(translated)


def test_translated_broken_stream(translated):
    r = translated["broken"]
    assert r["status"] == 0 and "Hello" in result(r)["result"], r
    assert 2 <= len(r["upstream"]) <= 8
