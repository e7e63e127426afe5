"""Secrets and prompts are only where they belong (K4, K5, K6)."""

import os
import re
import secrets
import time

from client import LIMIT, build
from gateway import ROOT, Key, chat, messages
from upstream import (chat_error, chat_stream, message_error, message_stream,
                      raw, reply, reply_json, sse)


def test_canaries(gateway):
    """50 keys, 50 prompts, every path; then all files are searched."""
    keys = [Key("k%d" % i, "ab"[i % 2]) for i in range(50)]
    vendor = "sk-ant-api03-" + secrets.token_hex(20)
    prompts = ["canary" + secrets.token_hex(8) for _ in range(50)]
    g = gateway(keys=keys, log_level="info",
                http="include %s;" % os.path.join(ROOT,
                                                  "conf/modelgw/log.conf"),
                server="access_log $dir/shipped.log modelgw;",
                location="client_body_buffer_size 1k; "
                         "proxy_read_timeout 1s;")
    shown = b""

    def call(i, body, key, headers=(), target=None):
        nonlocal shown
        target = target or ("/v1/messages" if key.group == "a"
                            else "/v1/chat/completions")
        r = g.post(target, body, key, headers)
        if r is not None and r.status >= 400:
            shown += r.body + str(r.headers).encode()

    def text(i, n=1):
        return [{"role": "user", "content": (prompts[i] + " ") * n}]

    echo = lambda x: reply_json(chat_error(x.request.body.decode()[:2000]
                                           + x.request.head.decode()),
                                500)(x)
    a = [sse(message_stream("large-2026-01-01")),
         reply_json(message_error("no"), 401),
         sse(message_stream("large-2026-01-01")[:3], end="close"),
         raw("close"), reply(200, b"garbage"), raw("stall"), echo]
    b = [sse(chat_stream("one-0613", usage=True)),
         reply_json(chat_error("no"), 403),
         sse(chat_stream("one-0613")[:2], end="reset"),
         raw("reset"), reply(500, b"<html>"), raw("stall"), echo]

    for i, key in enumerate(keys):
        up, scripts = (g.a, a) if key.group == "a" else (g.b, b)
        up.script(scripts[i % len(scripts)])
        body = messages(messages=text(i), stream=i % 3 == 0) \
            if key.group == "a" else chat(messages=text(i),
                                          stream=i % 3 == 0)
        case = i % 10
        if case == 1:
            call(i, {"model": "none", "messages": text(i)}, key)
        elif case == 2:
            call(i, ('{"model":"%s' % prompts[i]).encode(), key)
        elif case == 3:
            call(i, body, Key("x", "a", secret=key.secret + "x"))
        elif case == 4:
            call(i, body, key, [("x-api-key", vendor)])
        elif case == 5:
            call(i, body, key, [("x-api-key", keys[(i + 2) % 50].secret)])
        elif case == 6:
            up.script(sse(message_stream("large-2026-01-01"))
                      if key.group == "a"
                      else sse(chat_stream("one-0613", usage=True)))
            call(i, dict(body, messages=text(i, 3000)), key)
        elif case == 7:
            with g.connect() as c:
                c.send(build("POST", "/v1/messages", [key.bearer()],
                             length=99999)
                       + str(text(i, 300)).encode())
                c.reset()
        else:
            call(i, body, key)

    hidden = prompts + [vendor] + [k.secret for k in keys] \
        + [g.secret_a, g.secret_b]
    for secret in hidden:
        if secret not in prompts:
            assert secret.encode() not in shown
    assert g.leaks(prompts + [vendor]) == []

    # the lines were written
    assert g.read("shipped.log").count('"key":"k') > 30
    assert len(re.findall(", key: k.*, request_id: ",
                          g.read("error.log"))) > 10


def test_K5_no_file_is_left(gateway):
    """Temporary files of bodies are removed with their requests."""
    g = gateway(location="client_body_buffer_size 1k;")
    for _ in range(5):
        assert g.chat(chat(pad="p" * 50000)).status == 200
        assert g.chat(chat("none", pad="p" * 50000)).status == 400
    end = time.monotonic() + LIMIT      # the last removal may lag
    while left := [os.path.join(d, n) for d, _, names
                   in os.walk(g.path("tmp")) for n in names]:
        assert time.monotonic() < end, left
        time.sleep(0.01)


def test_K4_keys_in_odd_headers(gw):
    """Refused requests of every kind leave no key in the log."""
    for header in (("Authorization", "Bearer " + gw.alice.secret + "x"),
                   ("Authorization", "Basic " + gw.alice.secret),
                   ("x-api-key", gw.alice.secret + ", x")):
        gw.post("/v1/messages", messages(), headers=[header])
        gw.post("/v1/nothing", messages(), headers=[header])
        gw.get("/v1/models/x", headers=[header])
    assert gw.leaks() == []


def test_K4_log_names_the_key_by_its_id(gw):
    """An operator can find the key of an error line."""
    before = len(gw.read("error.log"))
    gw.b.script(reply_json(chat_error("no"), 401))
    gw.chat()
    new = gw.read("error.log")[before:]
    assert gw.bob.secret not in new and gw.secret_b not in new


def test_K6_upstream_echo_in_every_place(gw):
    """Status line, header, body: the credential is removed from each."""
    def script(x):
        secret = x.request.get("authorization")
        x.send(("HTTP/1.1 400 %s\r\nX-Echo: %s\r\nContent-Type: application"
                "/json\r\nrequest-id: %s\r\nRetry-After: %s\r\n"
                "Connection: close\r\n\r\n" % ((secret,) * 4)).encode())
        x.send(('{"error":{"message":"%s","code":"%s","type":"%s"},"%s":1}'
                % ((secret,) * 4)).encode())
        x.close_after = True

    gw.b.script(script)
    with gw.connect() as c:
        c.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                  body=chat())
        while c.recv():
            if b'"message"' in c.data:
                break
        assert b"HTTP/1.1 400" in c.data
        assert gw.secret_b.encode() not in c.data
