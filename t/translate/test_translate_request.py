"""Chat requests to a messages upstream, beyond the vectors: headers, refusals
by path, bodies of every size and framing."""

import json

import pytest

import gateway as lib
from client import assert_flat, build
from gateway import chat
from upstream import message, reply_json

CHAT = "/v1/chat/completions"


def ask(g, status=200, version="h1", headers=(), **more):
    r = g.chat(chat("fam-a-large", **more), g.alice, headers,
               version=version)
    assert r.status == status, r
    return r


def sent(g):
    return g.a.last().json()


def test_a_call(gw, http):
    r = ask(gw, version=http)
    assert r.json()["choices"][0]["message"]["content"] == "Hello"
    assert r.json()["model"] == "fam-a-large"
    assert b"large-2026-01-01" not in r.body
    up = gw.a.last()
    assert up.line == "POST /v1/messages HTTP/1.1"
    assert up.json() == {
        "model": "large-2026-01-01", "max_tokens": 4096, "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
    assert up.get("content-length") == str(len(up.body))


def test_headers(gw):
    """Headers of the chat API are dropped; ours are set."""
    ask(gw, headers=[("anthropic-version", "2020-01-01"),
                     ("anthropic-beta", "b1"), ("openai-organization", "o"),
                     ("openai-project", "p"), ("x-stainless-lang", "python"),
                     ("x-stainless-retry-count", "0"), ("Accept", "text/html"),
                     ("Content-Type", "text/plain"), ("X-Test-Tag", "t")])
    up = gw.a.last()
    assert up.all("anthropic-version") == ["2023-06-01"]
    assert up.all("content-type") == ["application/json"]
    assert up.all("x-api-key") == [gw.secret_a]
    assert up.all("accept-encoding") == ["identity"]
    assert "text/html" not in (up.get("accept") or "")
    assert not [n for n in up.names() if n.startswith(
        ("openai-", "x-stainless", "anthropic-beta", "authorization"))]


def test_query_is_not_forwarded(gw):
    r = gw.post(CHAT + "?beta=true&x=1", chat("fam-a-large"), gw.alice)
    assert r.status == 200
    assert gw.a.last().target.split("?")[0] == "/v1/messages"
    assert "x=1" not in gw.a.last().target


@pytest.mark.parametrize("stream", [False, True])
def test_ignored_hints_are_named(gw, stream):
    r = ask(gw, stream=stream, seed=1, logit_bias={"5": 1}, store=True)
    assert r.all("x-modelgw-ignored") == ["seed,logit_bias,store"]
    assert set(sent(gw)) <= {"model", "max_tokens", "messages", "stream"}
    assert not ask(gw, stream=stream).all("x-modelgw-ignored")
    assert not ask(gw, stream=stream, seed=None).all("x-modelgw-ignored")


def test_the_header_holds_no_text_of_the_client(gw):
    """Field names that would break it."""
    for name in ("a\r\nX-Evil: 1", "b,c", "é", "x" * 5000, ""):
        r = ask(gw, **{name: 1})
        assert not r.all("x-evil")
        for value in r.all("x-modelgw-ignored"):
            assert len(value) < 2000 and value.isascii()


def test_strict(gateway):
    g = gateway(location="modelgw_translate_strict on;")
    r = g.chat(chat("fam-a-large", seed=1), g.alice)
    assert_flat(r, 400, "UNSUPPORTED_FIELD", has="seed")
    assert g.untouched()
    assert g.chat(chat("fam-a-large", seed=None), g.alice).status == 200


TOOL = {"id": "c1", "type": "function",
        "function": {"name": "f", "arguments": "no json"}}

REFUSED = [
    ({"n": 2}, "UNSUPPORTED_FIELD", "n"),
    ({"logprobs": True}, "UNSUPPORTED_FIELD", "logprobs"),
    ({"functions": []}, None, None),
    ({"functions": [{"name": "f"}]}, "UNSUPPORTED_FIELD", "functions"),
    ({"web_search_options": {}}, "UNSUPPORTED_FIELD", "web_search_options"),
    ({"temperature": 3}, "INVALID_REQUEST", "temperature"),
    ({"tools": [{"type": "function", "function": {"name": "a"}},
                {"type": "custom"}]}, "UNSUPPORTED_FIELD", "tools[1].type"),
    ({"messages": [{"role": "user", "content": [
        {"type": "text", "text": "x"}, {"type": "input_audio"}]}]},
     "UNSUPPORTED_FIELD", "messages[0].content[1].type"),
    ({"messages": [{"role": "user", "content": "x"},
                   {"role": "assistant", "tool_calls": [TOOL]},
                   {"role": "tool", "tool_call_id": "c1", "content": "r"}]},
     "INVALID_REQUEST", "messages[1].tool_calls[0].function.arguments"),
    ({"messages": [{"role": "user", "content": "x"},
                   {"role": "tool", "tool_call_id": "c9", "content": "r"}]},
     "INVALID_REQUEST", "messages[1]"),
]


@pytest.mark.parametrize("more,code,path", REFUSED,
                         ids=[str(r[2]) for r in REFUSED])
def test_refusals_name_the_path(gw, more, code, path, http):
    r = gw.chat(dict(chat("fam-a-large"), **more), gw.alice, version=http)
    if code is None:
        assert r.status in (200, 400)
        return
    assert_flat(r, 400, code, has=path)
    assert gw.untouched()


def test_a_group_of_both_protocols_translates_nothing(gateway):
    g = gateway(groups=lib.group_a(protocol="messages chat") + lib.group_b())
    body = json.dumps(chat("fam-a-large", n=2, seed=1)).encode()
    assert g.chat(body, g.alice).status == 200
    assert g.a.last().target == CHAT
    assert g.a.last().body == body.replace(b"fam-a-large",
                                           b"large-2026-01-01")


@pytest.mark.parametrize("chunked", [False, True, 7])
@pytest.mark.parametrize("size", [10, 3000, 100000, 3000000])
def test_bodies(gw, size, chunked):
    """In memory, in a file, in chunks: the same request goes out."""
    if chunked == 7 and size > 100000:
        pytest.skip("seven bytes a chunk")
    text = ("é\"\\\n" * size)[:size]
    body = json.dumps(chat("fam-a-large"), ensure_ascii=False)
    body = body.replace('"Hi"', json.dumps(text, ensure_ascii=False))
    r = gw.chat(body.encode(), gw.alice, chunked=chunked)
    assert r is not None and r.status == 200, r
    block, = sent(gw)["messages"][0]["content"]
    assert block["text"] == text
    assert gw.a.last().get("content-length") == str(len(gw.a.last().body))


def test_body_in_a_file(gateway):
    g = gateway(location="client_body_buffer_size 1k;")
    data = "QUJD" * 20000
    r = g.chat(chat("fam-a-large", messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {
            "url": "data:image/png;base64," + data}},
        {"type": "text", "text": "x" * 5000}]}]), g.alice)
    assert r.status == 200, r
    image, text = sent(g)["messages"][0]["content"]
    assert image["source"] == {"type": "base64", "media_type": "image/png",
                               "data": data}
    assert text["text"] == "x" * 5000


def test_many_messages(gw):
    """A long history with alternating turns."""
    messages = [{"role": ("user", "assistant")[i % 2], "content": "m%d" % i}
                for i in range(2001)]
    ask(gw, messages=messages)
    assert [m["content"][0]["text"] for m in sent(gw)["messages"]] \
        == ["m%d" % i for i in range(2001)]


@pytest.mark.parametrize("framing", ["sized", "chunked", "close"])
@pytest.mark.parametrize("size", [1, 3000, 300000])
def test_answers(gw, size, framing):
    text = "é\"\n" * size
    gw.a.script(reply_json(message("large-2026-01-01", text),
                           framing=framing))
    r = ask(gw)
    assert r.complete
    assert r.json()["choices"][0]["message"]["content"] == text
    assert r.get("content-length") == str(len(r.body))


def test_keep_alive(gw):
    """Calls of all kinds on one connection."""
    with gw.connect() as c:
        for body, status in [
                (chat("fam-a-large"), 200),
                (chat("fam-a-large", stream=True), 200),
                (chat("fam-a-large", n=2), 400),
                (lib.messages(), 200), (chat("fam-a-large"), 200)]:
            target = "/v1/messages" if "max_tokens" in body else CHAT
            c.request("POST", target, [gw.alice.bearer()], body=body)
            r = c.response()
            assert r.status == status and r.complete, r


def test_messages_pass_as_before(gw):
    """The group's own protocol is not translated."""
    body = json.dumps(lib.messages(metadata={"user_id": "a@b"})).encode()
    r = gw.messages(body)
    assert r.json()["type"] == "message"
    assert gw.a.last().body == body.replace(b"fam-a-large",
                                            b"large-2026-01-01")


# bodies that come in pieces, while the worker reads others

def pieces(g, key, framing, body):
    """(a connection, with the head of a call sent; pieces to send)"""
    c = g.connect()
    c.send(build("POST", CHAT, [key.bearer()] + [
        ("Transfer-Encoding", "chunked")] * (framing == "chunked"),
        length=None if framing == "chunked" else len(b"".join(body))))
    if framing == "chunked":
        body = [b"%x\r\n%s\r\n" % (len(p), p) for p in body]
        body[-1] += b"0\r\n\r\n"
    return c, body


def text_of(text):
    return json.dumps(chat("fam-a-large", messages=[
        {"role": "user", "content": text}])).encode()


@pytest.mark.parametrize("framing", ["chunked", "sized"])
@pytest.mark.parametrize("other", [
    [b'{"model":"fam-a-large","x":"' + 3000 * b"S", b'S"', b"}"],
    [b'{"model":"fam-a-large",', b'"messages":[{"role":"user"', b"}]}"],
    [b'{"model":"fam-a-large","messages":[[[[[', b"1,2,3]]]", b"]]}"],
    [text_of("A" * 300)[:-1], b"}", b"\n"]])
@pytest.mark.parametrize("cut", [-1, -20, 1, 0])
def test_pieces_of_two_bodies(gateway, framing, other, cut):
    """What has come of the other one is not seen in this one."""
    g = gateway(workers=1)
    mine = text_of("B" * 300)
    a, theirs = pieces(g, g.alice, framing, other)
    b, mine = pieces(g, g.alice, framing, [mine[:cut] or b" ", mine[cut:]])
    for c, piece in ((a, theirs[0]), (b, mine[0]), (a, theirs[1]), (b, mine[1])):
        c.send(piece)
        g.chat(chat("fam-b-one"))       # it has been read
    r = b.response()
    assert r.status == 200, r
    assert sent(g)["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "B" * 300}]}]
    a.send(theirs[2])
    r = a.response()
    assert r.status == (200 if theirs[0].find(b"A" * 300) > 0 else 400), r
