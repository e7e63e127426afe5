"""The runner of vectors: what compares equal, and that errors are found."""

import json
import os
import shutil

import pytest

import vectors
from aggregate import aggregate, disorder
from gateway import ROOT
from vectors import (Failed, check_metered, compact, cut, members,
                     normal_aggregate, normal_answer, normal_request, replays,
                     same)



@pytest.mark.parametrize("want,got,equal", [
    (1, 1.0, True), (1, True, False), (None, 0, False), ("1", 1, False),
    (12345678901234567890, 12345678901234567891, False),
    ("[date]", 1700000000, True), ("[date]", "x", False),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True), ({}, {"a": None}, False),
    ({"a": None}, {}, False), ([1, 2], [1], False), ([], {}, False)])
def test_same(want, got, equal):
    assert (same(want, got) is None) == equal


def request(content="x", **more):
    return dict({"messages": [{"role": "user", "content": content}]}, **more)


def text(t):
    return [{"type": "text", "text": t}]


def result(content):
    return [{"type": "tool_result", "tool_use_id": "t", "content": content}]


def call(arguments):
    return [{"id": "c", "type": "function",
             "function": {"name": "f", "arguments": arguments}}]


@pytest.mark.parametrize("want,got,equal", [
    (request("x"), request(text("x")), True),
    (request("x"), request(text("y")), False),
    (request(system="s"), request(system=text("s")), True),
    (request(system="a\nb"), request(system=text("a") + text("b")), False),
    (request(result("r")), request(result(text("r"))), True),
    (request(result("r")), request(result("q")), False),
    (request(), request(tool_choice={"type": "auto"}), True),
    (request(), request(tool_choice={"type": "any"}), False),
    (request(tool_choice={"type": "auto", "disable_parallel_tool_use": True}),
     request(), False),
    (request(), request(temperature=None), False)])
def test_requests(want, got, equal):
    assert (same(normal_request(want), normal_request(got)) is None) == equal


def answer(**message):
    return {"choices": [{"message": message, "finish_reason": "stop"}]}


@pytest.mark.parametrize("want,got,equal", [
    (answer(content="x", refusal=None), answer(content="x"), True),
    (answer(content=None), answer(content=""), False),
    (answer(tool_calls=call('{"a":1,"b":2}')),
     answer(tool_calls=call('{ "b":2, "a":1.0}')), True),
    (answer(tool_calls=call('{"a":1}')),
     answer(tool_calls=call('{"a":2}')), False),
    (answer(tool_calls=call('{"a":')),
     answer(tool_calls=call('{"a": ')), False),
    (answer(content="x"), dict(answer(content="x"), id="y"), False)])
def test_answers(want, got, equal):
    assert (same(normal_answer(want), normal_answer(got)) is None) == equal


def chunk(delta, finish=None, **more):
    return dict({"choices": [{"index": 0, "delta": delta,
                              "finish_reason": finish}]}, **more)


ROLE = chunk({"role": "assistant", "content": ""})
END = chunk({}, "stop")
USAGE = {"choices": [], "usage": {"prompt_tokens": 1}}
ERROR = {"code": "X", "message": "y", "error": {"code": "X", "message": "y"}}


@pytest.mark.parametrize("seen,fine", [
    ([ROLE, END, "[DONE]"], True), ([ROLE, END, USAGE, "[DONE]"], True),
    ([ROLE, ERROR], True), ([ROLE, END], False), ([ROLE, "[DONE]"], False),
    ([END, "[DONE]"], False), ([ROLE, ROLE, END, "[DONE]"], False),
    ([ROLE, END, END, "[DONE]"], False), ([ROLE, USAGE, END, "[DONE]"], False),
    ([ROLE, ERROR, "[DONE]"], False), ([ROLE, END, "[DONE]", ERROR], False),
    ([ROLE, END, chunk({"content": "x"}), "[DONE]"], False),
    ([ROLE, END, USAGE, USAGE, "[DONE]"], False), ([], False)])
def test_order(seen, fine):
    assert (disorder(seen) is None) == fine


def test_the_accumulator_shows_what_is_sent_twice():
    tool = {"index": 0, "id": "t", "function": {"name": "f",
                                                "arguments": "{"}}
    out = aggregate([ROLE, chunk({"role": "assistant"}),
                     chunk({"tool_calls": [tool]}),
                     chunk({"tool_calls": [tool]})])
    assert out["role"] == "assistantassistant"
    assert out["tool_calls"] == [{"id": "tt", "function": {
        "name": "ff", "arguments": "{{"}}]
    with pytest.raises(TypeError):
        aggregate([chunk({"thinking_blocks": [{"type": "thinking"}]})])


def test_errors_compare_by_code():
    want = normal_aggregate({"error": {"code": "A"}, "end": "error"})
    assert same(want, normal_aggregate(aggregate([ERROR])))
    assert normal_aggregate({"error": {"code": "INVALID_FIELD"}})["error"] \
        == {"code": "INVALID_REQUEST"}


LINE = {"tag": "t", "code": "", "input": "5", "cache_read": "",
        "cache_write": "3", "cache_write_1h": "1", "output": "7",
        "reasoning": "", "complete": "1"}


@pytest.mark.parametrize("want,fine", [
    ({"input": 5, "cache_read": 0, "cache_write": 3, "cache_write_5m": 2,
      "cache_write_1h": 1, "output": 7, "reasoning": 0, "complete": True,
      "known": True}, True),
    ({"input": 6}, False), ({"cache_write_5m": 3}, False),
    ({"complete": False}, False), ({"known": False}, False)])
def test_metered(want, fine):
    if fine:
        return check_metered(want, LINE)
    with pytest.raises(Failed):
        check_metered(want, LINE)


def test_text_of_members():
    """Numbers and escapes stay as they are written."""
    text = ' { "a" : [1.0, "x , \\u00e9\\"}"] ,\n"b":{"c":1e400}, "d":"" } '
    out = members(text)
    assert {k: compact(v) for k, v in out.items()} == {
        "a": '[1.0,"x , \\u00e9\\"}"]', "b": '{"c":1e400}', "d": '""'}
    assert members("{}") == {}


@pytest.mark.parametrize("split", [
    None, "every byte", "every byte, and every prefix/suffix pair",
    "at each event", "each line", "CR LF between reads", "something new",
    "chunks of 5 bytes", 7, [3, 9], [[3], "every line"], {"a": 4}, True])
def test_splits(split):
    """Whatever the text: each replay is the same stream, byte by byte is one
    of them, and so are the named splits."""
    sse = b"data: {}\r\n\r\nevent: x\ndata: {}\n\n"
    seen = list(replays(sse, split))
    for how, pieces, framing in seen:
        assert b"".join(pieces) == sse and all(pieces), how
    if not isinstance(split, (int, dict)) or split is True:
        assert any(len(p) == len(sse) for _, p, _ in seen)
    if isinstance(split, str) and "pair" in split:
        assert sum(len(p) == 2 for _, p, _ in seen) == len(sse) - 1


def test_empty_stream():
    assert [p for _, p, _ in replays(b"", "every byte")]
    assert cut(b"", [0]) == [b""]


def test_a_run(tmp_path, capsys, monkeypatch):
    """Failures are printed, counted and reported; the rest goes on."""
    name = "res-054-chat-truncated-tool-call"
    shutil.copy(os.path.join(ROOT, "t/vectors", name + ".json"), tmp_path)
    good = json.loads((tmp_path / (name + ".json")).read_text())

    def also(name, **change):
        (tmp_path / (name + ".json")).write_text(json.dumps(dict(
            json.loads(json.dumps(good)), name=name, **change)))

    also("wrong-answer", out=dict(good["out"], body={}))
    also("wrong-status", out={"status": 404, "body": {"code": "NOT_FOUND"}})
    also("wrong-meter", metered={"output": 16})
    also("wrong-option", opts={"upstream": "chat", "no_such": 1})
    also("wrong-word", opts={"upstream": "chat", "thinking": "wild"})
    also("wrong-kind", kind="dance")
    also("either", out={"any_of": [{"status": 404}, good["out"]]})
    (tmp_path / "broken.json").write_text('{"name":')

    report = tmp_path / "report.txt"
    monkeypatch.setattr("sys.argv", ["vectors.py", str(tmp_path), "--report",
                                     str(report)])
    with pytest.raises(SystemExit) as e:
        vectors.main()
    assert e.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "2 passed, 7 failed"
    assert "PASS res-chat-truncated-tool-call" in lines
    assert "PASS either" in lines
    assert sum(line.startswith("FAIL wrong-") for line in lines) == 6
    assert any(line.startswith("FAIL broken: ") for line in lines)
    assert [row["reason"] for row in json.loads(report.read_text())
            if row["name"] == "wrong-meter"] \
        == ["metered.output is 15, expected 16"]
