"""A filter of another module, after ours, replaces the response: the client
gets that module's status as a flat error, and the worker goes on."""

import os
import signal
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
    reason="the filter is built for the packaged nginx only")


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
