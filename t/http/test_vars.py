"""The $modelgw_ variables, final when the access log is written."""

import time

import pytest

import gateway as lib
from gateway import Key, chat, messages
from upstream import (chat_completion, chat_error, chat_stream, chat_usage,
                      event, message, message_stream, message_usage, raw,
                      reply_json, sse)


def logged(gw, tag, call, body, **kw):
    call(body, headers=[("X-Test-Tag", tag)], **kw)
    return gw.logged(tag)


NAMES = ("id", "account", "group", "model", "upstream_model")


def test_names(gw, tag, http):
    line = logged(gw, tag, gw.messages, messages(), version=http)
    assert [line[n] for n in NAMES] == [
        "alice-1", "alice", "a", "fam-a-large", "large-2026-01-01"]
    assert line["code"] in ("", "-", "OK")


def test_account_is_the_id_by_default(gw, tag):
    line = logged(gw, tag, gw.chat, chat())
    assert [line[n] for n in NAMES] == [
        "bob-1", "bob-1", "b", "fam-b-one", "one-0613"]


def test_pattern_model(gw, tag):
    line = logged(gw, tag, gw.chat, chat("code-x"))
    assert (line["model"], line["upstream_model"]) == ("code-x", "x")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_tokens_of_chat(gw, tag, stream, asked):
    usage = chat_usage(123, 45)
    gw.b.script(sse(chat_stream("one-0613", tokens=usage)) if stream
                else reply_json(chat_completion("one-0613", usage=usage)))
    body = chat(stream=stream)
    if asked and stream:
        body["stream_options"] = {"include_usage": True}
    line = logged(gw, tag, gw.chat, body)
    assert (line["input"], line["output"]) == ("123", "45"), line
    assert line["cached"] in ("0", "", "-")


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_of_messages(gw, tag, stream, http):
    usage = message_usage(123, 45)
    gw.a.script(sse(message_stream("large-2026-01-01", usage=usage))
                if stream
                else reply_json(message("large-2026-01-01", usage=usage)))
    line = logged(gw, tag, gw.messages, messages(stream=stream),
                  version=http)
    assert (line["input"], line["output"]) == ("123", "45"), line


@pytest.mark.parametrize("stream", [False, True])
def test_cached_tokens(gw, tag, stream):
    """The same meaning for both protocols, though they count differently:
    chat's prompt_tokens includes cached tokens, input_tokens of messages does
    not."""
    usage = chat_usage(1000, 10, cached=600)
    gw.b.script(sse(chat_stream("one-0613", tokens=usage)) if stream
                else reply_json(chat_completion("one-0613", usage=usage)))
    one = logged(gw, tag + "b", gw.chat, chat(stream=stream))
    usage = message_usage(400, 10, read=600)
    gw.a.script(sse(message_stream("large-2026-01-01", usage=usage))
                if stream
                else reply_json(message("large-2026-01-01", usage=usage)))
    two = logged(gw, tag + "a", gw.messages, messages(stream=stream))
    for line in (one, two):
        assert line["cached"] == "600" and line["output"] == "10", line
    assert one["input"] == two["input"] in ("400", "1000")


def test_latest_usage_counts(gw, tag):
    """message_delta is cumulative: its numbers replace the earlier ones."""
    events = message_stream("large-2026-01-01", usage=message_usage(9, 50))
    events[-1:-1] = [event("message_delta", {
        "type": "message_delta", "delta": {},
        "usage": {"input_tokens": 10, "output_tokens": 60}})]
    gw.a.script(sse(events))
    line = logged(gw, tag, gw.messages, messages(stream=True))
    assert (line["input"], line["output"]) == ("10", "60"), line


def test_no_usage(gw, tag):
    obj = chat_completion("one-0613")
    del obj["usage"]
    gw.b.script(reply_json(obj))
    line = logged(gw, tag, gw.chat, chat())
    assert line["input"] in ("", "-", "0") and line["status"] == "200"


@pytest.mark.parametrize("odd", [
    {"prompt_tokens": -5}, {"prompt_tokens": "7"}, {"prompt_tokens": 1.5},
    {"prompt_tokens": 10 ** 18}, {"prompt_tokens": None}, [], "x", None, 5,
    {"prompt_tokens": {"a": 1}}], ids=str)
def test_L4_odd_usage(gw, tag, odd):
    """What is not a valid count is ignored; the answer passes."""
    gw.b.script(reply_json(dict(chat_completion("one-0613"), usage=odd)))
    body = gw.chat(headers=[("X-Test-Tag", tag)])
    assert body.status == 200 and body.json()["usage"] == odd
    assert gw.logged(tag)["input"] in ("", "-", "0")


def test_broken_stream_keeps_what_was_seen(gw, tag):
    events = message_stream("large-2026-01-01", usage=message_usage(77, 5))
    gw.a.script(sse(events[:4], end="close"))
    line = logged(gw, tag, gw.messages, messages(stream=True))
    assert line["input"] == "77", line
    assert line["code"] == "UPSTREAM_ERROR", line


def test_aborted_stream_keeps_what_was_seen(gw, tag):
    events = message_stream("large-2026-01-01", usage=message_usage(77, 5))
    gw.a.script(sse(events[:4], end="stall"))
    with gw.connect() as c:
        c.request("POST", "/v1/messages",
                  [gw.alice.bearer(), ("X-Test-Tag", tag)],
                  body=messages(stream=True))
        assert c.head().status == 200
        c.event()
    assert gw.logged(tag)["input"] == "77"


@pytest.mark.parametrize("name", ["key", "none", "json", "field", "model",
                                  "mismatch", "upstream", "refused"])
def test_codes(gw, tag, name):
    """The code in the client's response."""
    headers = [("X-Test-Tag", tag)]
    if name == "key":
        r = gw.chat(key=gw.dave, headers=headers)
    elif name == "none":
        r = gw.post("/v1/chat/completions", chat(), headers=headers)
    elif name == "upstream":
        gw.b.script(reply_json(chat_error("x"), 400))
        r = gw.chat(headers=headers)
    elif name == "refused":
        gw.b.script(raw("close"))
        r = gw.chat(headers=headers)
    else:
        body = {"json": b"{", "field": chat(models=1),
                "model": chat("none"), "mismatch": chat("fam-a-large")}[name]
        r = gw.chat(body, headers=headers)
    line = gw.logged(tag)
    assert line["code"] == r.json()["code"], line
    assert line["status"] == str(r.status)
    assert line["id"] == {"key": "dave-1", "none": ""}.get(name, "bob-1")


def test_code_of_nginx_errors(gw, tag):
    r = gw.get("/x", headers=[("X-Test-Tag", tag)])
    assert gw.logged(tag)["code"] == r.json()["code"] == "NOT_FOUND"


def test_first_byte_time(gw, tag):
    """Seconds with milliseconds, as nginx writes times."""
    gw.b.script(sse([0.3] + chat_stream("one-0613", usage=True)
                    + [0.3]))
    with gw.connect() as c:
        begin = time.monotonic()
        c.request("POST", "/v1/chat/completions",
                  [gw.bob.bearer(), ("X-Test-Tag", tag)], chat(stream=True))
        assert c.head().status == 200
        assert c.event()
        took = time.monotonic() - begin
        while c.read():
            pass
    line = gw.logged(tag)
    assert 0.2 <= float(line["first_byte"]) <= took + 0.05, line


def test_first_byte_time_of_refusals(gw, tag):
    line = logged(gw, tag, gw.chat, b"{")
    assert line["first_byte"] in ("", "-")


def test_count_tokens(gw, tag):
    gw.post("/v1/messages/count_tokens", messages(), gw.alice,
            [("X-Test-Tag", tag)])
    line = gw.logged(tag)
    assert line["model"] == "fam-a-large" and line["output"] in ("", "-", "0")


def test_no_control_bytes_in_the_log(gw, tag):
    """H5: values of the client cannot forge a log line."""
    r = gw.chat(chat('x","tag":"forged"}\n{"tag":"forged'),
                headers=[("X-Test-Tag", tag)])
    assert r.status == 400
    gw.logged(tag)
    assert '"tag":"forged' not in gw.read("access.log")


def test_variables_outside_a_gateway(gw, tag):
    gw.get("/nothing", headers=[("X-Test-Tag", tag)])
    line = gw.logged(tag)
    assert all(line[n] in ("", "-") for n in NAMES), line


def test_variable_in_other_directives(gateway):
    """A variable may be read before it is final."""
    g = gateway(location='set $early "$modelgw_id$modelgw_model";'
                         'add_header X-Id "$modelgw_id" always;')
    assert g.chat().get("x-id") == "bob-1"
    assert g.chat(key=g.dave).get("x-id") in (None, "", "dave-1")


def test_keys_with_accounts(gateway):
    one = Key("one", "b", "account=shop")
    two = Key("two", "b", "account=shop")
    g = gateway(keys=[one, two])
    for key in (one, two):
        g.chat(key=key, headers=[("X-Test-Tag", key.id)])
        line = g.logged(key.id)
        assert (line["id"], line["account"]) == (key.id, "shop")


def test_both_protocols_of_one_group(gateway):
    g = gateway(groups=lib.group_a(protocol="messages chat")
                + lib.group_b())
    for name, call, body in (("m", g.messages, messages(stream=True)),
                             ("c", g.chat,
                              chat("fam-a-large", stream=True))):
        call(body, g.alice, [("X-Test-Tag", name)])
        line = g.logged(name)
        assert (line["input"], line["output"]) == ("11", "7"), line
