"""The buffer that nginx reads calls into: a small call comes in one recv(), and
a kept connection reads the next call as one, if it is not large."""

import json
import re

import pytest

from client import assert_flat, build
from gateway import chat
from upstream import chat_completion, reply_json

SMALL, LARGE = 2048, 64 << 10


def call(gw, size, tag="", **how):
    body = json.dumps(chat(messages=[{"role": "user",
                                      "content": tag + size * "x"}])).encode()
    gw.b.script(reply_json(chat_completion("one-0613")))
    return body, build("POST", "/v1/chat/completions", [gw.bob.bearer()], body,
                       **how)


def sent(gw):
    """What has reached the upstream, as the client has written it."""
    return gw.b.last().body.replace(b'"one-0613"', b'"fam-b-one"', 1)


def good(gw, c, size, tag="", **how):
    body, text = call(gw, size, tag, **how)
    c.send(text)
    assert c.response().status == 200
    assert sent(gw) == body
    return len(text)


def reads(gw):
    """(bytes read, room for them) of each recv() from a client."""
    gw.stop()
    text = gw.read("error.log")
    if "modelgw answer: status" not in text:
        pytest.skip("the module is built without its debug log")
    clients = set(re.findall(r"\*(\d+) accept: .* fd:(\d+)", text))
    return [(int(n), int(size)) for name, fd, n, size in re.findall(
        r"\*(\d+) recv: fd:(\d+) (\d+) of (\d+)", text)
        if (name, fd) in clients and n != "0"]


@pytest.mark.parametrize("line,room", [
    ("", 2048), ("client_header_buffer_size 512;", 2048),
    ("client_header_buffer_size 3k;", 3072)])
def test_small_call_is_one_read(gateway, line, room):
    gw = gateway(workers=1, log_level="debug", server=line)
    with gw.connect() as c:
        sizes = [good(gw, c, 1000) for _ in range(3)]
    assert reads(gw) == [(n, room) for n in sizes]


def test_next_call_is_one_read(gateway):
    """Also if it is a quarter longer; one that has become small, or is large,
    makes the buffer nginx's own again."""
    gw = gateway(workers=1, log_level="debug")
    with gw.connect() as c:
        sizes = [good(gw, c, size) for size in
                 (20000, 24000, 30000, 8000, 5000, 4000, 20000, LARGE, 1000)]
    read = reads(gw)
    rooms = {n: room for n, room in read}
    assert [n for n in rooms if n in sizes] == sizes[1:6] + sizes[8:], read
    assert [rooms[n] for n in sizes[1:6] + sizes[8:]] == [
        n * 5 // 4 for n in sizes[:4] + sizes[3:4]] + [SMALL], read


@pytest.mark.parametrize("server", [
    "", "connection_pool_size 8k;", "client_header_buffer_size 16k;"])
@pytest.mark.parametrize("workers", [1, 2])
def test_any_order_of_sizes(gateway, server, workers):
    """Nothing of an earlier call is seen, whatever the buffer was."""
    gw = gateway(server=server, workers=workers)
    sizes = [0, 3000, 70000, 200, 60000, 66000, 15000, 1, 30000, 40000, 1800]
    with gw.connect() as c:
        for n in range(4):
            for size in sizes[n:] + sizes[:n]:
                good(gw, c, size, "%d-%d" % (n, size))
                good(gw, c, size // 2, chunked=1000)


def test_large_call_is_the_last_of_its_buffer(gateway):
    """Also where it has fit."""
    gw = gateway(workers=1, log_level="debug")
    with gw.connect() as c:
        sizes = [good(gw, c, size) for size in (60000, 66000, 1000)]
    assert reads(gw)[-2:] == [(sizes[1], sizes[0] * 5 // 4),
                              (sizes[2], SMALL)]


def test_long_headers_of_each_call(gateway):
    """They do not fit into the first buffer."""
    gw = gateway(workers=1, log_level="debug")
    with gw.connect() as c:
        for _ in range(3):
            body, text = call(gw, 3000)
            head, end = text.split(b"\r\n\r\n", 1)
            text = head + b"".join(b"\r\nx-%d: %s" % (n, 500 * b"y")
                                   for n in range(8)) + b"\r\n\r\n" + end
            c.send(text)
            assert c.response().status == 200 and sent(gw) == body
    assert reads(gw)[-2:] == 2 * [(len(text), len(text) * 5 // 4)]


def test_pool_does_not_grow(gateway):
    """Where a small buffer is in a block of the connection's pool."""
    gw = gateway(workers=1, log_level="debug",
                 server="connection_pool_size 4k;")
    with gw.connect() as c:
        for _ in range(50):
            good(gw, c, 10)
            good(gw, c, 2600)
            good(gw, c, 5000)
    assert reads(gw)
    assert gw.read("error.log").count(":4096 @16") < 10


def test_pipelined(gateway):
    gw = gateway()
    sizes = [20000, 1000, 30000, 70000, 25000, 10]
    with gw.connect() as c:
        for _ in range(3):
            c.send(b"".join(call(gw, size, str(size))[1] for size in sizes))
            for size in sizes:
                assert c.response().status == 200
    assert [len(q.body) for q in gw.b.requests[-6:]] == [
        len(call(gw, size, str(size))[0]) - len("fam-b-one") + len("one-0613")
        for size in sizes]


def test_in_pieces(gateway):
    gw = gateway()
    with gw.connect() as c:
        for size in (20000, 20000, 24900, 31000, 500, 20000):
            body, text = call(gw, size, str(size))
            for at in range(0, len(text), 700):
                c.send(text[at:at + 700])
            assert c.response().status == 200
            assert sent(gw) == body


def test_errors_between(gateway):
    """Refused calls leave the connection as good ones do."""
    gw = gateway(location="client_max_body_size 100k;")
    with gw.connect() as c:
        for size in (20000, 100, 30000):
            good(gw, c, size)
            c.send(build("POST", "/v1/chat/completions", [gw.bob.bearer()],
                         body=size * b"x"))
            assert_flat(c.response(), 400)
            c.send(build("POST", "/v1/chat/completions", [], body=size * b"x"))
            assert_flat(c.response(), 401)
            c.send(build("GET", "/v1/models", [gw.bob.bearer()]))
            assert c.response().status == 200


def test_long_header_line(gateway):
    """nginx refuses it on a new connection; where it fits, it is read as any."""
    gw = gateway()
    text = build("POST", "/v1/chat/completions",
                 [gw.bob.bearer(), ("x-long", 40000 * "x")], chat())
    with gw.connect() as c:
        c.send(text)
        assert_flat(c.response(), 400)
    with gw.connect() as c:
        good(gw, c, 50000)
        gw.b.script(reply_json(chat_completion("one-0613")))
        c.send(text)
        assert c.response().status == 200
        assert gw.b.last().get("x-long") is None
