"""Calls that a server of an upstream block refuses, and another one gets: the
group's "retry" line (docs/operating.md, docs/credit.md).

The servers of the block, one, two and three, are scripted upstreams.  What they
were asked and have answered is their invoice: the ledger must agree."""

import concurrent.futures
import json
import random
import socket
import ssl
import subprocess
import threading

import pytest

import client
import gateway as lib
import money
from client import assert_flat
from money import Seen
from test_credit import (ADMIN, APIS, CHAT, MESSAGES, TRANSLATED, body_of,
                         bound, expect, fresh, groups, line_of, make_bank)
from upstream import (Refused, Upstream, both, chat_error, early, raw, reply,
                      reply_json)

__all__ = ["make_bank"]

CALLS = 1000
THREADS = 16
LARGE = 20 * 1024 * 1024            # bytes of a body
TOKENS = {"input": 11, "output": 7}     # what both() reports
DEFAULT, OPTIONAL = (429, 503, 529), (500, 401, 403)

TLS = "proxy_ssl_verify off; proxy_ssl_session_reuse off; "
TRIES = ("log_format tries escape=json '{\"tag\":\"$http_x_test_tag\","
         "\"tries\":\"$upstream_status\"}'; ")


class Pool:
    """A gateway whose groups have one block, of the servers given; by default
    nginx tries each server again however often it has failed."""

    def __init__(self, make, servers, retry="", block="", location="",
                 options="max_fails=0", scheme="http", **kw):
        self.servers = servers
        to = scheme + "://pool.test"
        lines = ["server %s %s;" % (
            s if isinstance(s, str) else "127.0.0.1:%d" % s.port, options)
            for s in servers]
        self.bank = make(
            a=servers[0], upstreams="upstream pool.test { %s %s }" % (
                " ".join(lines), block or "keepalive 16;"),
            groups=groups(extra=retry).replace("http://m.test", to)
            .replace("http://c.test", to),
            http=TRIES, location="access_log $dir/tries.log tries; "
            + location, **kw)
        self.g = self.bank.g

    def call(self, api=CHAT, model=None, **more):
        """The body of a call, and its response."""
        body = body_of(api, model, **more)
        r = self.bank.post(api, body, [("X-Test-Tag", body["model"])])
        return body, r

    def tries(self, body):
        return self.g.logged(body["model"], name="tries.log")["tries"]

    def asked(self):
        """How often each of the servers was."""
        return [len(s.requests) for s in self.servers
                if not isinstance(s, str)]


@pytest.fixture
def pool(make_bank):
    """pool(n, …) makes n servers, of which those given instead are others."""
    made = []

    def run(n, *others, tls=None, **kw):
        own = [Upstream(tls) for _ in range(n - len(others))]
        made.extend(own + [s for s in others if not isinstance(s, str)])
        return Pool(make_bank, own + list(others), **kw)

    yield run
    for server in made:
        assert not getattr(server, "faults", None)
        server.stop()


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    d = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048",
                    "-nodes", "-subj", "/CN=pool.test", "-keyout",
                    str(d / "key"), "-out", str(d / "pem")],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(d / "pem"), str(d / "key"))
    return context


def refuse(status=429, wait=7):
    return reply_json(chat_error("come again"), status,
                      headers=[("Retry-After", str(wait))])


def stall(x):
    x.wait_gone()


def zero(pool, body, outcome, status):
    row = pool.bank.row(body["model"])
    assert (row["outcome"], row["cost"], row["status"]) \
        == (outcome, 0, status), row


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("status", DEFAULT)
def test_a_refused_call_is_sent_to_the_next_server(pool, status, api, stream):
    """The same bytes, and it is charged as the only one."""
    p = pool(2)
    p.servers[0].script(refuse(status))
    body, r = p.call(api, stream=stream)
    assert r.status == 200 and r.complete, r
    assert p.asked() == [1, 1]
    one, two = (s.last() for s in p.servers)
    assert one.head == two.head and one.body == two.body
    expect(p.bank, api, body, Seen(200, TOKENS, True))
    assert p.tries(body) == "%d, 200" % status


@pytest.mark.parametrize("status", OPTIONAL)
def test_other_refusals_if_they_are_listed(pool, status):
    p = pool(2, retry="retry 500 401 403;")
    p.servers[0].script(refuse(status))
    body, r = p.call()
    assert r.status == 200, r
    assert p.asked() == [1, 1]
    expect(p.bank, CHAT, body, Seen(200, TOKENS, True))
    assert p.tries(body) == "%d, 200" % status


@pytest.mark.parametrize("retry, location, statuses", [
    ("", "", (400, 404, 408, 413, 422, 502, 504) + OPTIONAL),
    ("retry 429;", "", (503, 529)),
    ("retry off;", "", DEFAULT),
    ("", "proxy_next_upstream off;", DEFAULT),
    ("", "proxy_next_upstream_tries 1;", DEFAULT),
])
def test_what_is_not_retried(pool, retry, location, statuses):
    p = pool(2, retry=retry, location=location)
    for n, status in enumerate(statuses, 1):
        for server in p.servers:
            server.script(refuse(status))
        body, r = p.call()
        assert r.status >= 400, r
        assert sum(p.asked()) == n
        zero(p, body, "refused", status)
        assert p.tries(body) == str(status)


def test_not_after_the_time_for_tries(pool):
    p = pool(2, location="proxy_next_upstream_timeout 1ms;")
    p.servers[0].script(raw(0.02, refuse(529)))
    body, r = p.call()
    assert_flat(r, 503)
    assert p.asked() == [1, 0]
    zero(p, body, "refused", 529)
    assert p.tries(body) == "529"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_thousand_calls(pool, tls, scheme):
    """One of three servers refuses, in each way, and sometimes before it has
    read the call: no call fails, each is on the invoice and in the ledger
    once."""
    p = pool(3, retry="retry 429 503 529 500 401 403;", location=TLS,
             tls=tls if scheme == "https" else None, scheme=scheme)
    dice = random.Random(1)

    def one(x):
        script = refuse(dice.choice(DEFAULT + OPTIONAL))
        if dice.random() < 0.9:
            x.read_body()
            script(x)
        else:
            x.head(429, framing="close")
            x.read_body()
            x.end("close")

    p.servers[0].script(early(one))

    def call(n):
        api = APIS[n % 3]
        body, r = p.call(api, stream=n % 2 == 0)
        return api, body, r

    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        done = list(threads.map(call, range(CALLS)))

    assert [r for _, _, r in done if r.status != 200 or not r.complete] == []
    assert p.asked()[0] > CALLS / 10
    assert sum(p.asked()[1:]) == CALLS

    p.bank.settled()
    rows = {row["model"]: row for row in p.bank.rows()}
    assert len(rows) == len(p.bank.rows()) == CALLS

    invoice = 0
    for api, body, _ in done:
        b = bound(api, body)
        invoice += money.charge(line_of(body["model"]), b.hold, b.estimate,
                                Seen(200, TOKENS, True)).cost
        assert rows[body["model"]]["outcome"] == "reported"
    assert sum(row["cost"] for row in rows.values()) == invoice


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("location", ["", "sendfile on;"])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("at_once", [False, True])
def test_a_large_body_is_sent_again_whole(pool, tls, api, location, scheme,
                                          at_once):
    """From its file, with the model replaced in the middle of it; also if the
    first server answers before it has read all."""
    p = pool(3, location="client_body_buffer_size 16k; "
             "client_max_body_size 32m; " + TLS + location,
             tls=tls if scheme == "https" else None, scheme=scheme)
    for server in p.servers[:2]:
        if at_once:
            server.script(early(raw(
                b"HTTP/1.1 429 Some\r\nContent-Length: 0\r\n\r\n", stall)))
        else:
            server.script(refuse())
    body = {"messages": [{"role": "user", "content": "a" * (LARGE // 2)}],
            "model": fresh("tc-f" if api == CHAT else "tm-f"),
            "user": "b" * (LARGE // 2)}
    if api == MESSAGES:
        body["max_tokens"] = 100
    model = body["model"]
    r = p.bank.post(api, body, [("X-Test-Tag", model)])
    assert r.status == 200, r
    assert p.asked() == [1, 1, 1]
    got = p.servers[2].last()
    if api == TRANSLATED:
        assert got.json()["messages"][0]["content"] == "a" * (LARGE // 2) \
            or "a" * (LARGE // 2) in json.dumps(got.json()["messages"])
    else:
        assert got.body == json.dumps(dict(body, model="up-" + model)).encode()
    if not at_once:
        assert {s.last().body for s in p.servers} == {got.body}
    assert p.tries(body) == "429, 429, 200"


@pytest.mark.parametrize("last", DEFAULT)
def test_all_refuse(pool, last):
    """The client gets what the last one says."""
    p = pool(3)
    statuses = [status for status in DEFAULT if status != last] + [last]
    for server, status in zip(p.servers, statuses):
        server.script(refuse(status, wait=status % 100))
    body, r = p.call()
    assert p.tries(body) == "%d, %d, %d" % tuple(statuses)
    assert_flat(r, 429 if last == 429 else 503)
    assert r.get("retry-after") == str(last % 100)
    zero(p, body, "refused", last)


def test_the_last_server_is_never_given_up(pool):
    """A server that refuses is left out (max_fails), but not if nginx had
    none then: it would answer calls without asking anybody."""
    p = pool(2, block="zone pool 128k;", options="fail_timeout=1h")
    for server in p.servers:
        server.script(refuse(wait=5))
    for n in range(1, 5):
        body, r = p.call()
        assert_flat(r, 429)
        assert r.get("retry-after") == "5"
        assert p.asked() == [1, n]
        zero(p, body, "refused", 429)


def test_a_server_that_refuses_leaves_the_rotation(pool):
    p = pool(2, block="zone pool 128k;",
             options="max_fails=2 fail_timeout=1h")
    p.servers[0].script(refuse())
    for _ in range(20):
        body, r = p.call()
        assert r.status == 200, r
    assert p.asked() == [2, 20]


def test_the_credential_is_no_failure_of_the_server(pool):
    """nginx goes on using a server that answers 403, and so with 401."""
    p = pool(2, retry="retry 401;", block="zone pool 128k;",
             options="fail_timeout=1h")
    p.servers[0].script(refuse(401))
    for _ in range(10):
        assert p.call()[1].status == 200
    assert p.asked()[0] > 1 and p.asked()[1] == 10


def test_a_backup(pool):
    """It gets what the others refuse."""
    backup = Upstream()
    p = pool(3, "127.0.0.1:%d backup" % backup.port)
    try:
        for server in p.servers[:2]:
            server.script(refuse())
        body, r = p.call()
        assert r.status == 200, r
        assert p.asked() == [1, 1] and len(backup.requests) == 1
        assert p.tries(body) == "429, 429, 200"
    finally:
        backup.stop()


def test_a_server_that_is_down_is_no_other(pool):
    """The refusal goes to the client, and the last server stays in rotation.
    One worker, which knows which one has failed."""
    p = pool(2, options="max_fails=1 fail_timeout=60s", workers=1,
             block="server 127.0.0.1:1 down; keepalive 4;")
    for server in p.servers:
        server.script(refuse())
    for n in range(1, 4):
        body, r = p.call()
        assert_flat(r, 429, "RATE_LIMITED")
        assert sum(p.asked()) == n + 1


def test_a_server_with_all_its_connections_is_no_other(pool):
    """One worker, which counts them."""
    p = pool(2, options="max_conns=2 max_fails=0", workers=1)
    one, two = p.servers
    one.script(refuse())
    go = threading.Event()
    two.script(raw(go, both))
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            calls = [threads.submit(p.call) for _ in range(2)]
            two.wait(2)
            n = len(one.requests)
            r = p.call()[1]
            assert len(one.requests) == n + 1
            assert_flat(r, 429, "RATE_LIMITED")
            go.set()
            assert {c.result()[1].status for c in calls} == {200}
    finally:
        go.set()
    assert len(two.requests) == 2


@pytest.mark.parametrize("balancer", ["least_conn;", "random;",
                                      "hash $request_uri;", "ip_hash;"])
def test_other_balancers(pool, balancer):
    p = pool(2, block=balancer + " keepalive 4;")
    for server, other in (p.servers, p.servers[::-1]):
        for s in p.servers:
            s.reset()
        server.script(refuse())
        for _ in range(4):
            body, r = p.call()
            assert r.status == 200, r
        assert len(other.requests) == 4


def test_a_hang_is_not_repeated(pool):
    """The second server may have begun to work: its estimate is charged."""
    p = pool(3, location="proxy_read_timeout %ds;" % lib.STALL)
    p.servers[0].script(refuse())
    p.servers[1].script(stall)
    body, r = p.call()
    assert_flat(r, 504)
    assert p.asked() == [1, 1, 0]
    expect(p.bank, CHAT, body, Seen(), "timeout", 0)
    assert p.tries(body) == "429, 504"


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_broken_answer_is_not_repeated(pool, end):
    p = pool(3)
    p.servers[0].script(refuse())
    p.servers[1].script(raw(end))
    body, r = p.call()
    assert_flat(r, 502)
    assert p.asked() == [1, 1, 0]
    expect(p.bank, CHAT, body, Seen(), "upstream", 0)
    assert p.tries(body) == "429, 502"


def test_an_answer_that_breaks_off_is_not_repeated(pool):
    p = pool(3)
    p.servers[0].script(refuse())
    p.servers[1].script(reply(200, b'{"id":', length=1000, end="close"))
    body, r = p.call()
    assert_flat(r, 502)
    assert p.asked() == [1, 1, 0]
    expect(p.bank, CHAT, body, Seen(200), "upstream", 200)


class Hasty:
    """A server that refuses each connection before it has read anything, as an
    overloaded front end does."""

    ANSWER = (b"HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\n"
              b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.socket.getsockname()[1]
        self.requests = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while True:
            sock = self.socket.accept()[0]
            if not self.requests:
                sock.sendall(self.ANSWER)
            threading.Thread(target=self._drain, args=(sock,)).start()
            if self.requests:
                return

    def _drain(self, sock):
        with sock:
            sock.settimeout(client.LIMIT)
            try:
                while sock.recv(65536):
                    pass
            except OSError:
                pass

    def stop(self):
        self.requests.append("stop")
        socket.create_connection(("127.0.0.1", self.port)).close()
        self.thread.join()
        self.socket.close()


def test_a_refusal_before_the_request(pool):
    """Of a server that answers first: nginx may read that before it has sent
    anything, which it does in a few of a hundred calls."""
    p = pool(3, Hasty())
    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        calls = list(threads.map(lambda _: p.call(), range(CALLS)))
    assert {r.status for _, r in calls} == {200}
    assert sum(p.asked()) == CALLS
    for body, r in calls[::50]:
        expect(p.bank, CHAT, body, Seen(200, TOKENS, True))


def test_a_hang_after_a_refusal_before_the_request(pool):
    """The conf that lets nginx go on is for the refusal only."""
    p = pool(3, Hasty(), location="proxy_read_timeout 1s; ")
    for s in p.servers[:2]:
        s.script(stall)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        calls = list(threads.map(lambda _: p.call(), range(10 * THREADS)))
    assert {r.status for _, r in calls} == {504}
    assert sum(p.asked()) == len(calls)
    for body, r in calls:
        assert p.tries(body) in ("504", "429, 504")


def test_the_next_server_cannot_be_reached(pool):
    """Nothing is charged if no other could, however that shows."""
    p = pool(2, Refused())
    p.servers[0].script(refuse())
    body, r = p.call()
    assert_flat(r, 503, "UPSTREAM_UNAVAILABLE")
    zero(p, body, "refused", 429)
    assert p.tries(body) == "429, 502"

    # fails at once, in connect()

    p = pool(2, "unix:/nonexistent/socket")
    p.servers[0].script(refuse(529))
    p.g.expect(r"\[crit\].* connect\(\) to unix:/nonexistent")
    body, r = p.call()
    assert_flat(r, 503, "UPSTREAM_UNAVAILABLE")
    zero(p, body, "refused", 529)
    assert p.tries(body) == "529, 502"


@pytest.mark.parametrize("dead", [Refused, lambda: "unix:/nonexistent/socket"],
                         ids=["refused", "at once"])
def test_the_third_gets_it_then(pool, dead):
    server = dead()
    other = Upstream()
    p = pool(3, server, other)
    p.servers[0].script(refuse(529))
    p.g.expect(r"\[crit\].* connect\(\) to unix:/nonexistent")
    body, r = p.call()
    assert r.status == 200, r
    assert len(other.requests) == 1
    expect(p.bank, CHAT, body, Seen(200, TOKENS, True))
    assert p.tries(body) == "529, 502, 200"


def test_a_kept_connection_that_the_next_server_closes(pool):
    """It cannot have read the call: nothing is charged."""
    kept = Upstream()
    p = pool(2, "127.0.0.1:%d backup" % kept.port, workers=1)
    try:
        p.servers[0].script(refuse())
        assert p.call()[1].status == 200
        kept.script(raw("close"))
        body, r = p.call()
        assert_flat(r, 502)
        assert kept.last().number == 1
        zero(p, body, "refused", 0)
        assert p.tries(body) == "429, 502"
    finally:
        kept.stop()


def test_a_worker_is_killed_during_the_second_try(pool):
    """The refusal before says nothing of it."""
    p = pool(2)
    p.g.expect("exited on signal 9")
    p.servers[0].script(refuse())
    p.servers[1].script(stall)
    body = body_of(CHAT)
    with p.bank.open(CHAT, body):
        p.servers[1].wait()
        p.g.kill_workers()
        expect(p.bank, CHAT, body, Seen(), "killed", 0)
    assert p.asked() == [1, 1]


def test_a_client_that_has_left_needs_no_other_server(pool):
    p = pool(2, location="modelgw_abort drain;")
    go = threading.Event()
    for server in p.servers:
        server.script(raw(go, refuse()))
    body = body_of(CHAT)
    with p.bank.open(CHAT, body):
        p.servers[0].wait()
    p.g.wait_log("answer is read for its usage")
    go.set()
    zero(p, body, "refused", 429)
    assert p.asked() == [1, 0]
    assert not p.g.log_count("the next one is tried")


def test_a_block_of_two_groups_is_the_choice_of_each(pool):
    """One of them does not retry; and one server alone is as it was."""
    p = pool(2)
    p.g.groups = p.g.groups.replace("modelgw_group c {",
                                    "modelgw_group c { retry off;")
    p.g.write()
    p.g.reload()
    for server in p.servers:
        server.script(refuse())
    body, r = p.call(CHAT)
    assert_flat(r, 429)
    assert p.tries(body) == "429"
    body, r = p.call(MESSAGES)
    assert r.status == 429
    assert p.tries(body) == "429, 429"


@pytest.mark.parametrize("block", ["", "server 127.0.0.1:$a;"])
def test_one_server(pool, block):
    """Also if nginx has two addresses of it."""
    p = pool(1, block=block, options="fail_timeout=1h")
    p.servers[0].script(refuse())
    for n in range(1, 4):
        body, r = p.call()
        assert_flat(r, 429)
        assert r.get("retry-after") == "7"
        assert p.asked() == [n]
        zero(p, body, "refused", 429)


def test_the_log_says_who_refused(pool):
    p = pool(2)
    p.servers[0].script(refuse())
    assert p.call()[1].status == 200
    p.g.wait_log(r'\[warn\].* server 127\.0\.0\.1:%d of group "c" refused '
                 r'with 429, the next one is tried' % p.servers[0].port)
