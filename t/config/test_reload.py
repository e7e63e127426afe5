"""Keys rotate by reload, under load."""

import os
import threading

import pytest

import gateway as lib
from client import LIMIT, Connection, assert_flat
from gateway import Key, chat
from upstream import chat_stream, sse


class Load:
    """Clients that call until they are stopped."""

    def __init__(self, g, key, n=4):
        self.g, self.key = g, key
        self.stopping = threading.Event()
        self.done = 0
        self.faults = []
        self.threads = [threading.Thread(target=self.run, args=(i,))
                        for i in range(n)]

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *exc):
        self.stopping.set()
        for t in self.threads:
            t.join(LIMIT)

    def run(self, i):
        while not self.stopping.is_set():
            try:
                body = chat(stream=(self.done + i) % 2 == 0)
                r = self.g.chat(body, self.key)
                if r is None or r.status != 200 or not r.complete:
                    self.faults.append(r)
                self.done += 1
            except Exception as e:
                self.faults.append(e)


@pytest.mark.parametrize("rounds", [6])
def test_keys_rotate_under_load(gateway, rounds):
    """A new key works at once, a removed one gets 401, no request fails."""
    steady = Key("steady", "b")
    g = gateway(keys=[steady])
    old = None
    with Load(g, steady) as load:
        for i in range(rounds):
            new = Key("rotating", "b", "account=same")
            g.keys = [k for k in g.keys if k is not old] + [new]
            g.write_keys()
            g.reload()
            assert g.chat(key=new).status == 200
            if old:
                assert_flat(g.chat(key=old), 401, "INVALID_API_KEY",
                            "Invalid API key")
            old = new
    assert not load.faults, load.faults[:3]
    assert load.done > rounds


def test_running_streams_finish(gateway):
    """Begun before the reload, ended after it, by the old worker."""
    gone = Key("gone", "b")
    g = gateway(keys=[gone])
    gate = threading.Event()
    events = chat_stream("one-0613", usage=False)
    g.b.script(sse(events[:2] + [gate] + events[2:]))
    with g.connect() as c:
        c.request("POST", "/v1/chat/completions", [gone.bearer()],
                  body=chat(stream=True))
        assert c.head().status == 200
        assert c.event()
        g.keys = [k for k in g.keys if k is not gone]
        g.write_keys()
        g.reload()
        assert_flat(g.chat(key=gone), 401, "INVALID_API_KEY")
        gate.set()
        while c.read():
            pass
        assert c.current.complete
        assert c.current.body == b"".join(events).replace(b"one-0613",
                                                          b"fam-b-one")


def test_models_and_secrets_rotate(gateway):
    """The whole configuration, the credential too."""
    g = gateway()
    assert g.chat().status == 200
    g.secret_b = "rotated-" + g.secret_b
    g.write_secret("b.secret", g.secret_b)
    g.groups = lib.group_a() + lib.group_b(
        models="model fam-b-new new-id input=1 output=1;")
    with open(g.path("nginx.conf"), "w") as f:
        f.write(g.config())
    g.reload()
    assert_flat(g.chat(), 400, "INVALID_MODEL")
    assert g.chat(chat("fam-b-new")).status == 200
    assert g.b.last().get("authorization") == "Bearer " + g.secret_b


def test_K9_half_written_file_keeps_the_old_set(gateway):
    """A file cut in a line is refused as a whole; old keys stay."""
    more = Key("more", "b")
    g = gateway()
    whole = "\n".join(k.line() for k in g.keys + [more]) + "\n"
    last = len(whole) - len(more.line())
    for cut in (last + 20, len(whole) - 2, 5):
        g.write_keys(whole[:cut])
        g.reload(ok=False)
        assert g.chat().status == 200
        assert g.messages().status == 200
        assert_flat(g.chat(key=more), 401, "INVALID_API_KEY")
    g.write_keys(whole)
    g.reload()
    assert g.chat(key=more).status == 200


def test_K9_cut_at_every_byte(gateway):
    """In the last line: nginx -t refuses each, or there are fewer keys."""
    g = gateway()
    key = Key("tail", "b", "account=x models=fam-b-one,fam-b-two")
    head = "\n".join(k.line() for k in g.keys) + "\n"
    line = key.line()
    for cut in range(1, len(line), 3):
        g.write_keys(head + line[:cut])
        r = g.check_again()
        assert r.returncode != 0, line[:cut]
        assert "keys.conf:" in r.stderr, r.stderr
        assert key.secret not in r.stderr
    g.expect(r"\[emerg\]")
    g.write_keys(head + line + "\n")


@pytest.mark.parametrize("text", [
    "x", "x y z;", "a-1 sha256:zz a;", "a-1 sha256:%s none;" % ("0" * 64),
    "a-1 md5:%s a;" % ("0" * 64), "\x00", "}", "{", "a-1 sha256:%s a"
    % ("0" * 64), "a-1 sha256:%s a models=;" % ("0" * 64),
    "a-1 sha256:%s a expires=never;" % ("0" * 64)])
def test_K9_wrong_lines(gateway, text):
    """Refused at reload with the file named; the old set stays."""
    g = gateway()
    g.write_keys("\n".join(k.line() for k in g.keys) + "\n" + text + "\n")
    g.reload(ok=False)
    assert "keys.conf" in g.read("error.log")
    assert g.chat().status == 200


def test_missing_file_keeps_the_old_set(gateway):
    g = gateway()
    os.rename(g.path("keys.conf"), g.path("keys.conf.new"))
    g.reload(ok=False)
    assert g.chat().status == 200
    os.rename(g.path("keys.conf.new"), g.path("keys.conf"))


def test_kept_connections_of_old_workers(gateway):
    """The reload closes idle connections."""
    g = gateway()
    with g.connect() as c:
        c.request("GET", "/v1/models", [g.bob.bearer()])
        assert c.response().status == 200
        g.reload()
        assert c.closed()
    with g.connect() as c:
        c.request("GET", "/v1/models", [g.bob.bearer()])
        assert c.response().status == 200


def test_many_reloads(gateway):
    """Nothing accumulates and nothing fails."""
    g = gateway()
    with Load(g, g.bob, 2) as load:
        for _ in range(8):
            g.reload()
    assert not load.faults, load.faults[:3]


def test_K10_stream_of_a_removed_key_is_no_way_back(gateway):
    """The connection to the old worker takes no second request."""
    gone = Key("gone", "b")
    g = gateway(keys=[gone])
    gate = threading.Event()
    events = chat_stream("one-0613", usage=False)
    g.b.script(sse(events[:2] + [gate] + events[2:]))
    with Connection(g.port) as c:
        c.request("POST", "/v1/chat/completions", [gone.bearer()],
                  body=chat(stream=True))
        assert c.head().status == 200
        assert c.event()
        g.keys = [k for k in g.keys if k is not gone]
        g.write_keys()
        g.reload()
        gate.set()
        while c.read():
            pass
        g.b.reset()
        c.try_send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: "
                   b"Bearer " + gone.secret.encode() + b"\r\n\r\n")
        assert c.closed()
