"""Bodies that were sent before, which are not scanned again (modelgw_memo), and
how large bodies are read.  Units: t/unit/json/test_memo.c; each result compared
with that of a scan: t/fuzz/fuzz_scan.c."""

import glob
import json
import os
import random
import re
import shutil
import signal
import ssl
import subprocess

import pytest

import client
import gateway as lib
import memory_fails
from client import assert_flat, build
from upstream import chat_completion, reply_json

LINK = 32 * 1024
LARGE = 64 * 1024           # bytes of the smallest body that is remembered
BUFFER = 2 * 1024 * 1024    # of the shipped proxy.conf


def conversation(size, word="word", turn=1024, model="fam-b-one"):
    """A body of size bytes, in turns of about as many as "turn" says."""
    def dump(turns):
        return json.dumps({"model": model, "messages": turns},
                          separators=(",", ":")).encode()

    turns = [{"role": ("user", "assistant")[i % 2],
              "content": "%05d %s " % (i, word) * ((turn - 60) // (len(word) + 7))}
             for i in range(size // turn - 1)]
    turns.append({"role": "user", "content": ""})
    turns[-1]["content"] = "x" * (size - len(dump(turns)))
    return dump(turns)


def call(key, body):
    return build("POST", "/v1/chat/completions", [key.bearer()], body)


def reply(u):
    u.reset()
    u.script(reply_json(chat_completion("one-0613")))


def good(gw, body, **kw):
    """The upstream gets it, byte for byte, but for the model's id."""
    reply(gw.b)
    r = gw.chat(body, **kw)
    assert r.status == 200, r
    assert gw.b.last().body == body.replace(b'"fam-b-one"', b'"one-0613"', 1)


def bad(gw, body, code, has, **kw):
    gw.b.reset()
    assert_flat(gw.chat(body, **kw), 400, code, has=has)
    assert gw.untouched()


def grown(body, turn):
    assert body.endswith(b"]}")
    return body[:-2] + b',{"role":"user","content":"%s"}]}' % turn


# the same answers

@pytest.mark.parametrize("size", [LARGE - 2048, LARGE + 2048, 200 << 10,
                                  1 << 20, BUFFER + (1 << 20)])
def test_again_and_grown(gw, size):
    body = conversation(size, "again%d" % size)
    for turn in range(4):
        for _ in range(3):
            good(gw, body)
        body = grown(body, b"%d " % turn * 5000)


def test_end_changed(gw):
    """What was known is the beginning of a body that is refused, at every place
    that comes after it."""
    body = conversation(LARGE + 1000, "changed")
    for _ in range(3):
        good(gw, body)
    for _ in range(2):
        bad(gw, body[:-1], "INVALID_JSON", "")
        bad(gw, body + b"]", "INVALID_JSON", "")
        bad(gw, body[:-1] + b',"model":"fam-b-two"}', "INVALID_FIELD", "model")
        bad(gw, body[:-1] + b',"MODEL":"fam-b-two"}', "INVALID_FIELD", "")
        bad(gw, body[:-1] + b',"messages":[]}', "INVALID_FIELD", "messages")
        bad(gw, body[:-1] + b',"stream":"yes"}', "INVALID_FIELD", "stream")
        good(gw, body[:-1] + b',"user":"someone"}')
        good(gw, body)


@pytest.mark.parametrize("at", [10, 1000, LINK - 1, LINK, LINK + 1, 2 * LINK - 1,
                                2 * LINK, 2 * LINK + 500])
def test_byte_changed(gw, at):
    """A byte of what is known is another one: the whole is scanned."""
    body = bytearray(conversation(LARGE + 3000, "byte%d" % at))
    for _ in range(3):
        good(gw, bytes(body))
    body[at] = 1
    for _ in range(2):
        gw.b.reset()
        assert_flat(gw.chat(bytes(body)), 400)
        assert gw.untouched()
    body[at] = 0xff
    gw.b.reset()
    assert_flat(gw.chat(bytes(body)), 400)


def test_model_is_last(gw):
    """The model's id, which the body ends with, is another one each time."""
    body = conversation(LARGE + 5000, "last")
    at = body.index(b'"model"')
    body = body[:at] + body[at + len(b'"model":"fam-b-one",'):]
    for model in ("one", "two", "one", "two"):
        whole = body[:-1] + b',"model":"fam-b-%s"}' % model.encode()
        reply(gw.b)
        assert gw.chat(whole).status == 200
        upstream = {"one": "one-0613", "two": "vendor/two:v2@eu+x"}[model]
        assert json.loads(gw.b.last().body)["model"] == upstream
    bad(gw, body, "MISSING_FIELD", "model")


def test_refused_again(gw):
    body = bytearray(conversation(300 << 10, "refused"))
    body[200 << 10] = 2
    r = [gw.chat(bytes(body)) for _ in range(4)]
    assert {x.status for x in r} == {400}
    assert len({x.json()["message"] for x in r}) == 1
    assert str(200 << 10) in r[0].json()["message"]


def test_random_turns(gw):
    """Conversations that grow, change and end, in turns at random."""
    rng = random.Random(4711)
    bodies = [conversation(LARGE + rng.randrange(100000), "r%d" % i)
              for i in range(4)]
    for _ in range(40):
        i = rng.randrange(4)
        how = rng.randrange(3)
        if how == 0:
            good(gw, bodies[i])
        elif how == 1:
            bodies[i] = grown(bodies[i], b"x" * rng.randrange(50000))
            good(gw, bodies[i])
        else:
            at = rng.randrange(100, len(bodies[i]) - 100)
            gw.b.reset()
            assert_flat(gw.chat(bodies[i][:at] + b"\x00" + bodies[i][at:]), 400)
            assert gw.untouched()


# how they are read

@pytest.mark.parametrize("size", [1000, 16384, 100000, 300000])
def test_in_pieces(gw, size):
    body = conversation(600 << 10, "pieces%d" % size)
    for _ in range(3):
        reply(gw.b)
        with client.Connection(gw.port) as c:
            c.send(call(gw.bob, body)[:-len(body)])
            for at in range(0, len(body), size):
                c.send(body[at:at + size])
            assert c.response().status == 200
        assert gw.b.last().body == body.replace(b'"fam-b-one"', b'"one-0613"', 1)


def test_pipelined(gw):
    """Bytes after the body are the next request's."""
    body = conversation(LARGE + 1000, "pipelined")
    for u in (gw.a, gw.b):
        u.reset()
    reply(gw.b)
    one = call(gw.bob, body)
    with client.Connection(gw.port) as c:
        c.send(one + one + one[:500])
        c.send(one[500:])
        for _ in range(3):
            assert c.response().status == 200


@pytest.mark.parametrize("part", [0, 1000, LINK, 2 * LINK + 100, 200 << 10])
def test_client_leaves(gw, part):
    body = conversation(300 << 10, "leaves")
    good(gw, body)
    gw.b.reset()
    for _ in range(2):
        with client.Connection(gw.port) as c:
            c.send(call(gw.bob, body)[:-len(body)] + body[:part])
    good(gw, body)


def test_timeout(gateway, upstreams):
    gw = gateway(server="client_body_timeout 300ms;")
    body = conversation(300 << 10, "late")
    for _ in range(3):
        good(gw, body)
    for part in (LARGE, 200 << 10):
        with client.Connection(gw.port) as c:
            c.send(call(gw.bob, body)[:-len(body)] + body[:part])
            assert c.response() is None
        good(gw, body)


def test_error_while_reading(gateway, upstreams):
    """A file for the body cannot be made: what comes after is read to be
    discarded."""
    gw = gateway(location="client_body_buffer_size 40k;")
    gw.expect("open.. .* failed")
    body = conversation(600 << 10, "error")
    good(gw, body)
    shutil.rmtree(gw.path("tmp/body"))
    for _ in range(3):
        with client.Connection(gw.port) as c:
            c.send(call(gw.bob, body)[:-len(body)] + body[:100000])
            r = c.response()
            assert_flat(r, 500, "INTERNAL_ERROR")
            c.try_send(body[100000:])
            c.closed()
    os.mkdir(gw.path("tmp/body"))
    good(gw, body)


def test_pieces(gateway, upstreams):
    """A large body is read 256 KB at a time at most, whatever has arrived."""
    gw = gateway(workers=1, log_level="debug")
    body = conversation(BUFFER - 1000, "piece")
    for _ in range(3):
        good(gw, body)
    gw.stop()
    text = gw.read("error.log")
    if "modelgw answer: status" not in text:
        pytest.skip("the module is built without its debug log")
    sizes = list(map(int, re.findall(r"http client request body recv (\d+)",
                                     text)))
    assert max(sizes) == 256 << 10, sizes


def test_small_buffer(gateway, upstreams):
    """The body goes through a buffer that is used again, into a file."""
    gw = gateway(location="client_body_buffer_size 40k;")
    body = conversation(400 << 10, "small")
    for _ in range(3):
        good(gw, body)
    body = grown(body, b"more" * 10000)
    for _ in range(3):
        good(gw, body)
        bad(gw, body[:-1] + b',"model":"fam-b-two"}', "INVALID_FIELD", "model")


def test_versions(gw):
    """HTTP/2 and HTTP/1.1 in turn, and HTTP/1.0."""
    body = conversation(200 << 10, "versions")
    for version in ("h2", "h1", "h2", "h1"):
        good(gw, body, version=version)
    for _ in range(2):
        reply(gw.b)
        with client.Connection(gw.port) as c:
            c.send(call(gw.bob, body).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
            assert c.response().status == 200


def test_chunked(gw):
    body = conversation(200 << 10, "chunked")
    for chunked in (True, False, True):
        good(gw, body, chunked=chunked)


def test_tls(gateway, upstreams, tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",
                    "-days", "2", "-subj", "/CN=gateway.test", "-keyout",
                    str(tmp_path / "key"), "-out", str(tmp_path / "cert")],
                   check=True, capture_output=True)
    port = lib.free_port()
    gw = gateway(server="listen 127.0.0.1:%d ssl; ssl_certificate %s; "
                        "ssl_certificate_key %s;" % (
                            port, tmp_path / "cert", tmp_path / "key"))
    context = ssl.create_default_context(cafile=str(tmp_path / "cert"))
    context.check_hostname = False
    body = conversation(700 << 10, "tls")
    for _ in range(3):
        reply(gw.b)
        with client.Connection(port) as c:
            c.sock = context.wrap_socket(c.sock)
            c.send(call(gw.bob, body))
            assert c.response().status == 200
        assert gw.b.last().body == body.replace(b'"fam-b-one"', b'"one-0613"', 1)


def test_reload(gateway, upstreams):
    gw = gateway()
    body = conversation(200 << 10, "reload")
    good(gw, body)
    good(gw, body)
    gw.reload()
    good(gw, body)


@memory_fails.skip
def test_no_memory_at_start(gateway, upstreams, tmp_path):
    """Without memory for it, a worker scans all."""
    memory = memory_fails.Memory(str(tmp_path / "counts"))
    with memory_fails.altered(memory):
        gw = gateway(workers=1)
    gw.expect("exited on signal 9")
    body = conversation(200 << 10, "start")
    for n in range(1, 4):
        (pid,) = gw.pids()
        os.kill(pid, signal.SIGSTOP)        # it allocates, too
        memory.fail(n)
        gw.kill_workers()
        for _ in range(3):
            good(gw, body)
        assert memory.count() > n
        memory.fail(0)


# what it costs, and whom

@pytest.fixture
def counted(gateway, tmp_path):
    """counted(…) starts a gateway under callgrind; instructions(gw) are those
    since it was called last, of each call that has ended."""
    def start(**kw):
        gw = gateway(workers=1, start_timeout=300, before=[
            "valgrind", "-q", "--tool=callgrind",
            "--dump-after=ngx_http_modelgw_ctx_end",
            "--callgrind-out-file=%s/calls.%%p" % tmp_path], **kw)
        gw.expect("profiling")
        return gw

    return start


def instructions(path):
    """Of each call, in their order."""
    files = sorted(glob.glob(str(path / "calls.*.*")),
                   key=lambda f: int(f.rpartition(".")[2]))
    found = []
    for name in files:
        with open(name) as f:
            text = f.read()
        if "\ndesc: Trigger: --dump-after" in text:
            found.append(int(re.search(r"^summary: (\d+)", text, re.M)[1]))
    return found


SIZE = 400 << 10


def dense(word):
    """A body whose scan takes longer than what else its call costs."""
    return conversation(SIZE, word, 80)


def keys():
    return [lib.Key("eve-%d" % i, "b", "account=eve%d" % (i // 2))
            for i in range(4)]


@pytest.mark.skipif(lib.ASAN or not lib.MODULE,
                    reason="instructions are the sanitizer's")
def test_instructions(counted, tmp_path):
    """A body that its account has sent is not scanned; one that another account
    has sent costs what any other body of that size costs.  So the time of an
    answer does not tell what others have sent."""
    made = keys()
    gw = counted(keys=made)
    with client.Connection(gw.port) as c:
        for i in range(4):
            secret, other, third = (dense("%s%d" % (word, i))
                                    for word in ("s", "o", "t"))
            for key, body in [
                    (0, secret),                    # new
                    (0, secret),
                    (2, other),                     # new, of another account
                    (2, secret),                    # known to the first one only
                    (2, third),                     # new
                    (2, secret),
                    (2, secret),                    # its own now
                    (1, secret)]:                   # another key of the account
                reply(gw.b)
                c.send(call(made[key], body))
                assert c.response().status == 200
    gw.stop()

    n = instructions(tmp_path)
    assert len(n) == 32, n

    # how a body arrives costs something, too; the first call begins at start

    new, _, other, known_to_others, third, _, own, own_of_account = (
        min(n[place::8][1:]) for place in range(8))

    link = (new - own) / (SIZE // LINK)
    assert link > 0.02 * new, n
    for cost in (other, known_to_others, third):
        assert abs(cost - new) < link / 2, n
    assert abs(own_of_account - own) < link / 2, n


@pytest.mark.skipif(lib.ASAN or not lib.MODULE,
                    reason="instructions are the sanitizer's")
def test_off(counted, tmp_path):
    made = keys()
    gw = counted(keys=made, location="modelgw_memo off;")
    body = dense("switch")
    with client.Connection(gw.port) as c:
        for _ in range(5):
            reply(gw.b)
            c.send(call(made[0], body))
            assert c.response().status == 200
    gw.stop()
    n = instructions(tmp_path)
    assert len(n) == 5 and min(n[2:]) > 0.95 * n[1], n
