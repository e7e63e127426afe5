"""Secrets and prompts are only where they belong (K4, K5, K6)."""

import os
import re
import secrets
import time

from client import LIMIT, build
from gateway import ROOT, Key, chat, messages
from operators import (OWN, PARTS, Console, Operator, address, as_text, bearer,
                       cookie, dumps, trio)
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


def test_canaries_of_sign_in(gateway):
    """Tokens, cookies and keys of the admin interface: on each path, good and
    bad; only the cookie's header has the cookie, and only the answer that makes
    a key the key.  What the logs, the ledger's file and all others must not
    have, Gateway.stop() looks for."""
    g = Console(gateway(**dict(
        PARTS, http=PARTS["http"] + " include %s;" % os.path.join(
            ROOT, "conf/modelgw/log.conf"),
        server="access_log $dir/shipped.log modelgw;"), operators=trio()))
    alice, vera = g.operator("alice"), g.operator("vera")
    wrong = [Operator("x", "admin").secret, Key("x", "b").secret]
    own = g.new_key("own-1")
    for who in (alice, vera, g.gw.bob, own):
        g.session(who)
    cookies = [s for s in g.gw.hidden if s != own.secret]
    assert len(cookies) == 4
    known = [alice.secret, vera.secret, own.secret] + wrong + cookies \
        + [k.secret for k in g.gw.keys]

    def said(r):
        text = as_text(r)
        for s in known:
            assert s not in text and s[6:] not in text, (s, r)
        for name in ("location", "refresh", "link", "content-location"):
            for value in r.all(name):
                assert re.fullmatch("/[a-z/]+/[a-z0-9-]+", value), r
        return r

    for token in wrong + [alice.secret[:-1], alice.secret + "0"]:
        said(g.sign_in(token))
        for headers in ([bearer(token)], [cookie(token)],
                        [("x-api-key", token)], [cookie(token, "x")],
                        [("Authorization", "Basic " + token)],
                        [("Origin", "http://" + token)]):
            for path in ("/session", "/accounts", "/nothing"):
                said(g.get(path, headers))
            said(g.topup(headers))
            said(g.send("POST", "/keys", headers, {"group": token}))
    for secret in (alice.secret, cookies[0]):
        for body in (dumps({"token": secret})[:-1],
                     dumps({"token": [secret]}), dumps([secret]),
                     dumps({"token": secret, "x": 1}), secret.encode(),
                     dumps({"token": secret})[1:]):
            r = g.send("POST", "/session", OWN, body)
            assert r.status == 400, r
            r = g.send("POST", "/accounts", [bearer(alice.secret)], body)
            assert r.status == 400, r
    for head in [[bearer(s)] for s in (alice.secret, vera.secret, own.secret)] \
            + [OWN + [cookie(s)] for s in cookies]:
        for path in ("/session", "/operators", "/accounts", "/actions",
                     "/keys", "/keys/own-1", "/calls", "/usage", "/groups",
                     "/models", "/status", "/nothing", "/keys/nobody"):
            said(g.get(path, head))
            said(g.get(path, head + [("Sec-Fetch-Site", "cross-site")]))
            said(g.get(path, head, host="evil.test"))
        said(g.topup(head))
        r = g.send("POST", "/keys", head, {"group": "b", "founding": False})
        if r.status == 201:
            key = r.json()["key"]
            g.gw.hidden.append(key)
            known.append(key)
            assert as_text(r).count(key) == 1
            assert key[6:] not in r.get("location")
            id = r.json()["id"]
            r = g.send("POST", "/keys/%s/rotate" % id, head)
            assert as_text(r).count(r.json()["key"]) == 1
            g.gw.hidden.append(r.json()["key"])
            known.append(r.json()["key"])
    for value in cookies:
        r = said(g.send("DELETE", "/session", OWN + [cookie(value)]))
        assert r.status == 204, r
    source = address()
    for i in range(12):
        said(g.sign_in(wrong[0], source=source))
    for path in ("/keys", "/actions?limit=1000", "/accounts", "/status"):
        said(g.root("GET", path))

    # the lines were written, and they name who it was

    log = g.gw.read("error.log")
    assert '"alice" has signed in' in log and '"bob-1" has signed in' in log
    assert '"vera" has signed out' in log
    assert log.count("sign-in to the admin interface has failed") >= 10
    assert g.gw.leaks(wrong) == []
