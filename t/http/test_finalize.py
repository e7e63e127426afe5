"""Other modules.  A filter after ours replaces the response: the client gets
that module's status as a flat error, and the worker goes on.  A content handler
that is set at run time, unknown to nginx -t, sends a call elsewhere."""

import os
import signal
import socket
import threading
import time

import pytest

import client
import gateway as lib
from client import assert_flat
from gateway import chat, messages
from upstream import (chat_completion, chat_stream, message, message_stream,
                      reply_json, sse)

MODULE = os.environ.get("MODELGW_FINALIZE",
                        os.path.join(lib.ROOT, "build/finalize.so"))
LIMIT = 5           # seconds for the client; a looping worker never answers

pytestmark = pytest.mark.skipif(
    lib.ASAN or not lib.MODULE or not os.path.exists(MODULE)
    or os.path.dirname(lib.MODULE) != os.path.dirname(MODULE),
    reason="the module is built for the packaged nginx only")


@pytest.fixture(scope="module", params=["header", "body"])
def fin(request, module_gateway):
    return module_gateway(main="load_module %s;" % MODULE, workers=1,
                          location="test_finalize %s;" % request.param)


def answers(api, stream):
    if api == "chat":
        return sse(chat_stream("one-0613")) if stream \
            else reply_json(chat_completion("one-0613"))
    return sse(message_stream("large-2026-01-01")) if stream \
        else reply_json(message("large-2026-01-01"))


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("api", ["chat", "messages"])
def test_finalize(fin, upstreams, api, stream):
    for u in upstreams:
        u.reset()
    (fin.b if api == "chat" else fin.a).script(answers(api, stream))
    send = fin.chat if api == "chat" else fin.messages
    body = (chat if api == "chat" else messages)(stream=stream)
    pid, = fin.pids()
    try:
        r = send(body, timeout=LIMIT)
        fin.wait_idle(timeout=LIMIT)
    except Exception:
        fin.expect("exited on signal 9")
        os.kill(pid, signal.SIGKILL)
        while fin.pids() in ([pid], []):
            time.sleep(0.01)
        raise
    assert_flat(r, 403, "FORBIDDEN")
    assert fin.pids() == [pid]


JSON = b'{"model": "real-b", "usage": {"prompt_tokens": 1}}'
SCGI = (b"Status: 200 OK\r\nX-Real: real-b\r\nSet-Cookie: real-b\r\n"
        b"Content-Type: ")
TUNNEL = (b"Status: 101 Switching Protocols\r\nUpgrade: x\r\n"
          b"Connection: upgrade\r\n\r\nreal-b")


@pytest.fixture
def scgi():
    """The port of an SCGI server, and the calls that it got."""
    calls = []
    server = socket.create_server(("127.0.0.1", 0))

    def run():
        while True:
            try:
                sock, _ = server.accept()
            except OSError:
                return
            with sock:
                sock.settimeout(client.LIMIT)
                call = b""
                while not call.endswith(b"}"):
                    part = sock.recv(65536)
                    if not part:
                        break
                    call += part
                calls.append(call)
                if b"tunnel" in call:
                    sock.sendall(TUNNEL)
                    sock.shutdown(socket.SHUT_WR)
                    try:
                        calls.append(sock.recv(65536))
                    except ConnectionResetError:
                        calls.append(b"")
                    continue
                sock.sendall(SCGI + (
                    b"text/event-stream\r\n\r\ndata: " + JSON + b"\n\n"
                    if b'"stream": true' in call
                    else b"application/json\r\n\r\n" + JSON))

    thread = threading.Thread(target=run)
    thread.start()
    yield server.getsockname()[1], calls
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


@pytest.fixture
def bypass(gateway, scgi):
    """A gateway whose calls go to the SCGI server."""
    return lambda scgi_lines, **kw: gateway(
        main="load_module %s;" % MODULE, gateway="""
        location /v1/ {
            modelgw on;
            scgi_pass 127.0.0.1:%d;
            %s
            test_handler;
            proxy_pass $modelgw_upstream;
        }""" % (scgi[0], scgi_lines), **kw)


def test_tunnel_at_run_time(bypass, scgi):
    """Neither is what follows a 101, in both directions."""
    g = bypass("")
    with g.connect() as c:
        c.request("POST", "/v1/chat/completions",
                  [g.bob.bearer(), ("Connection", "upgrade"),
                   ("Upgrade", "x")], chat(user="tunnel"))
        assert_flat(c.response(), 500, "INTERNAL_ERROR")
        c.try_send(b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        while c.recv():
            pass
        assert c.data.startswith(b"HTTP/1.1 404") and b"real-b" not in c.data
    end = time.monotonic() + client.LIMIT
    while len(scgi[1]) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert scgi[1][1:] == [b""], "the upstream gets nothing more"


def test_cache_at_run_time(bypass, scgi):
    """Neither is it from a cache."""
    g = bypass("scgi_cache cache; scgi_cache_key x; scgi_cache_valid 1h;"
               "scgi_cache_methods POST; scgi_ignore_headers Set-Cookie;",
               http="scgi_cache_path $dir/cache keys_zone=cache:64k;")
    for n in range(1, 100):
        assert_flat(g.chat(), 500, "INTERNAL_ERROR")
        if len(scgi[1]) < n:
            break
    assert len(scgi[1]) < n, "no answer was in the cache"
    assert g.log_count("a call was not sent by") == n


@pytest.mark.parametrize("buffering", ["on", "off"])
def test_handler_at_run_time(bypass, scgi, buffering):
    """The answer to a call that we have not sent is not passed on."""
    calls = scgi[1]
    g = bypass("scgi_buffering %s;" % buffering)
    with g.connect() as c:
        for n, stream in enumerate((False, True, False), 1):
            c.request("POST", "/v1/chat/completions", [g.bob.bearer()],
                      chat(stream=stream))
            r = c.response()
            assert_flat(r, 500, "INTERNAL_ERROR")
            assert "real-b" not in repr(r.headers) + repr(r.body)
            assert len(calls) == n
            assert g.bob.secret.encode() not in calls[-1]
            assert g.secret_b.encode() not in calls[-1]
        assert c.alive()
    assert g.untouched()
    assert g.log_count("a call was not sent by") == 3
    assert g.get("/v1/models", g.alice).status == 200
