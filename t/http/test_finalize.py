"""Other modules.  A filter after ours replaces the response: the client gets
that module's status as a flat error, and the worker goes on.  A content handler
that is set at run time, unknown to nginx -t, sends a call elsewhere."""

import os
import signal
import socket
import threading
import time

import pytest

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
                call = b""
                while not call.endswith(b"}"):
                    call += sock.recv(65536)
                calls.append(call)
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


@pytest.mark.parametrize("buffering", ["on", "off"])
def test_handler_at_run_time(gateway, scgi, buffering):
    """The answer to a call that we have not sent is not passed on."""
    port, calls = scgi
    g = gateway(main="load_module %s;" % MODULE, gateway="""
        location /v1/ {
            modelgw on;
            scgi_pass 127.0.0.1:%d;
            scgi_buffering %s;
            test_handler;
            proxy_pass $modelgw_upstream;
        }""" % (port, buffering))
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
