"""Calls that wait for credit while their process ends, or after they have come
to the gateway by another way than its location."""

import os
import signal

import pytest

from client import H2, Connection, assert_flat, build
from cluster import Node, call, wait_for
from test_wait import (BODY, BOB, HOLD, PLACES, ask, in_flight, one, put,
                       waiting)

__all__ = ["one"]


def three_wait(node):
    """Three calls, for a database that does not answer."""
    node.proxy.hole()
    conns = [ask(node) for _ in range(3)]
    waiting(node, 3)
    return conns


def exited(node, timeout=60):
    node.process.wait(timeout)
    node.process = None


def starts_again(c, node):
    node.proxy.clear()
    node.restart()
    c.wait_joined()


def nothing_is_left(c):
    c.settle()
    c.wait(lambda: c.one("SELECT sum(held)::bigint FROM modelgw.leases") == 0,
           "something is held")


# The process ends.

def test_quit_while_calls_wait(one):
    """The worker stays until they are answered: each by what comes first."""
    c = one("wait=3s")
    node = c.nodes[0]
    conns = three_wait(node)
    node.process.send_signal(signal.SIGQUIT)
    for conn in conns:
        r = conn.response()
        assert_flat(r, 503, "SERVICE_UNAVAILABLE")
        assert r.get("connection") == "close", r
    exited(node, 15)        # not at worker_shutdown_timeout
    assert not c.b.requests
    starts_again(c, node)
    assert call(c, 0, node.bob, BODY).status == 200
    nothing_is_left(c)


def test_quit_and_the_database_is_back(one):
    c = one("wait=20s")
    node = c.nodes[0]
    conns = three_wait(node)
    node.process.send_signal(signal.SIGQUIT)
    node.wait_log("gracefully shutting down")
    node.proxy.clear()
    assert [conn.response().status for conn in conns] == [200] * 3
    exited(node)
    node.restart()
    c.wait_joined()
    nothing_is_left(c)


def test_term_while_calls_wait(one):
    """At once."""
    c = one("wait=30s")
    node = c.nodes[0]
    conns = three_wait(node)
    node.process.send_signal(signal.SIGTERM)
    exited(node, 20)
    for conn in conns:
        conn.close()
    starts_again(c, node)
    waiting(node, 0)
    in_flight(node, 0)
    assert call(c, 0, node.bob, BODY).status == 200
    nothing_is_left(c)


def test_a_worker_terminates_while_calls_wait(one):
    """Another one follows it, places and slots are free again."""
    c = one("wait=30s")
    node = c.nodes[0]
    conns = three_wait(node)
    old = node.pids()
    for pid in old:
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: len(node.pids()) >= len(old)
             and not set(node.pids()) & set(old), "no new worker")
    for conn in conns:
        conn.close()
    waiting(node, 0)
    in_flight(node, 0)
    node.proxy.clear()
    c.wait(lambda: call(c, 0, node.bob, BODY).status == 200, "it is not lent")
    nothing_is_left(c)


def test_the_shutdown_timeout_while_calls_wait(one):
    """nginx closes their connections then, and the worker exits."""
    c = one("wait=30s")
    node = c.nodes[0]
    shorter = node.config().replace(
        "worker_shutdown_timeout ", "worker_shutdown_timeout 1s; #")
    assert shorter.count("worker_shutdown_timeout 1s") == 1
    with open(node.path("nginx.conf"), "w") as f:
        f.write(shorter)
    node.reload()
    c.wait(node.joined, "it is away")
    conns = three_wait(node)
    node.process.send_signal(signal.SIGQUIT)
    exited(node, 20)
    for conn in conns:
        conn.close()
    starts_again(c, node)
    waiting(node, 0)
    assert call(c, 0, node.bob, BODY).status == 200
    nothing_is_left(c)


def test_a_reload_and_then_the_database_is_back(one):
    """The calls wait in the old worker, the exchanger is in a new one."""
    c = one("wait=30s")
    node = c.nodes[0]
    conns = three_wait(node)
    old = node.pids()
    node.reload()
    new = set(node.pids()) - set(old)
    wait_for(lambda: any(map(exchanges, new)), "no new one has the exchanger")
    waiting(node, 3)
    node.proxy.clear()
    assert [conn.response().status for conn in conns] == [200] * 3
    wait_for(lambda: not set(node.pids()) & set(old), "the old worker stays")
    nothing_is_left(c)


def exchanges(pid):
    """Whether threads of the exchanger run: beside the worker's own, and the
    writer's."""
    return len(os.listdir("/proc/%d/task" % pid)) > 2


# Another way to the gateway.

WAYS = {
    "rewrite": "location /api/ { rewrite ^/api/(.*)$ /$1 last; }",
    "try_files": "location /api/ { try_files /none /v1/chat/completions; }",
}


@pytest.mark.parametrize("http", ["h1", "h2"])
@pytest.mark.parametrize("way", WAYS)
def test_internal_redirects(one, way, http):
    """It is answered once, and leaves nothing; a client may go."""
    c = one(more=WAYS[way])
    node = c.nodes[0]
    target = "/api/v1/chat/completions"
    first = node.post(target, BODY, node.bob, version=http)
    assert first.status == 200, first
    c.wait_free()
    node.proxy.hole()
    before = len(c.b.requests)
    a = ask_by(node, target, http)
    b = ask_by(node, target, http)
    waiting(node, 2)
    b.close()
    waiting(node, 1)
    node.proxy.clear()
    if http == "h1":
        assert a.response().status == 200
    else:
        assert a.response(a.sid).status == 200
    assert len(c.b.requests) == before + 1
    a.close()
    nothing_is_left(c)


def ask_by(node, target, http):
    if http == "h1":
        c = Connection(node.port)
        c.send(build("POST", target, [node.bob.bearer()], BODY))
        return c
    c = H2(node.port2)
    c.sid = c.request("POST", target, [node.bob.bearer()], BODY)
    return c


def test_error_pages_do_not_replace_refusals(one):
    """402 and 503 of calls that have waited."""
    c = one("wait=500ms", server="error_page 402 503 =200 /ok.html;",
            more="location = /ok.html { return 200 hello; }")
    node = c.nodes[0]
    c.put(BOB, -1000 * HOLD + HOLD - 1)
    r = node.chat(BODY, node.bob)
    assert_flat(r, 402, "INSUFFICIENT_CREDIT")
    node.proxy.hole()
    r = node.chat(BODY, node.bob)
    assert_flat(r, 503, "SERVICE_UNAVAILABLE")
    node.proxy.clear()


# One process is master and worker.

class Single(Node):
    def config(self):
        return super().config().replace(
            "worker_processes 0;", "worker_processes 1; master_process off;")


def test_single_process(cluster, monkeypatch):
    """Calls wait, are lent to and charged, also over a reload, after which nginx
    itself accepts no connections in this mode."""
    import cluster as clusterlib
    monkeypatch.setattr(clusterlib, "Node", Single)
    c = cluster(n=1, founding="0", locations=PLACES, options="wait=20s",
                workers=1, start=False)
    node = c.nodes[0]
    node.workers = 0
    c.start()
    c.expect()
    put(c, 1000 * HOLD)
    assert call(c, 0, node.bob, BODY).status == 200
    c.settle()
    c.wait_free()
    conns = three_wait(node)
    node.proxy.clear()
    assert [conn.response().status for conn in conns] == [200] * 3
    nothing_is_left(c)
    node.process.send_signal(signal.SIGQUIT)
    exited(node)
    assert c.one("SELECT count(*)::int FROM modelgw.calls") == 4
    node.restart()
    c.wait_joined()
    assert call(c, 0, node.bob, BODY).status == 200
    c.settle()
