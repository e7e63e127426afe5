"""Limits of keys that all nodes of a cluster share.  The arithmetic is in
t/unit/ledger/test_share.c, the statements are in test_limits_sql.py."""

import os
import threading
import time

import pytest

from client import assert_flat
from cluster import LIMIT, call, wait_for
from gateway import Key, chat
from operators import GROUPS
from upstream import both, raw

MINUTES = float(os.environ.get("MODELGW_MINUTES", 1.5))  # the long form: 3
SOME = 60 if "MODELGW_MINUTES" in os.environ else 20    # seconds
RATE = 200 if "MODELGW_MINUTES" in os.environ else 80   # calls a second
RPM = Key("rpm", "b", "account=bob-1 rpm=60")
RPM2 = Key("rpm2", "b", "account=bob-1 rpm=60")
TPM = Key("tpm", "b", "account=bob-1 tpm=2000")
CALLS = Key("calls", "b", "account=bob-1 concurrency=8")
FREE = Key("free", "b", "account=bob-1")
KEYS = [RPM, RPM2, TPM, CALLS, FREE]
BODY = chat(max_tokens=5)
FREE_MODELS = GROUPS.replace("one-0613  input=1 output=2", "one-0613  free")


@pytest.fixture
def nodes(cluster):
    def make(**kw):
        c = cluster(founding="100", keys=KEYS, **kw)
        for i in range(len(c.nodes)):
            wait_for(lambda: call(c, i, FREE, BODY).status == 200,
                     lambda: "node %d admits nothing" % i)
        return c
    return make


class Clients:
    """So many calls a second, by nodes in turn; times of those that passed."""

    def __init__(self, c, key, rate, places=None, threads=8):
        self.c, self.key = c, key
        self.pause = threads / rate
        self.places = places or range(len(c.nodes))
        self.passed, self.refused, self.others, self.slow = [], [], [], 0.0
        self.ends = None
        self.threads = [threading.Thread(target=self.run, args=(i,))
                        for i in range(threads)]

    def run(self, at):
        due = time.monotonic() + at * self.pause / len(self.threads)
        while time.monotonic() < self.ends \
                or (len(self.passed) < self.passes
                    and time.monotonic() < self.ends + LIMIT):
            n = self.places[at % len(self.places)]
            at += 1
            a = call(self.c, n, self.key, BODY)
            if a.status == 200:
                self.passed.append(a.begin)
            elif a.status == 429:
                self.refused.append(a)
            else:
                self.others.append(a)
            due += self.pause
            time.sleep(max(0, due - time.monotonic()))

    def during(self, seconds, passes=0):
        """And until so many have passed: later on a busy machine."""
        self.ends = time.monotonic() + seconds
        self.passes = passes
        for t in self.threads:
            t.start()
        for t in self.threads:
            t.join()
        assert not self.others, self.others[:3]
        return self

    def densest(self):
        """The most in any 60 s; a call passes some ms after it began."""
        p = sorted(self.passed)
        return max((sum(a <= t < a + 60 for t in p) for a in p), default=0)


def test_requests_a_minute(nodes):
    """A crowd at 3 nodes: 60 calls pass in any minute."""
    c = nodes()
    s = Clients(c, RPM, RATE).during(60 * MINUTES)
    assert s.densest() <= 65
    assert len(s.passed) >= 58 * int(MINUTES + 0.4)
    assert len(s.refused) > 20 * 60 * MINUTES
    for a in s.refused[:3] + s.refused[-3:]:
        assert_flat(a.response, 429, "RATE_LIMITED")
        assert 1 <= int(a.response.get("retry-after")) <= 60
        assert a.response.get("x-ratelimit-remaining-requests") == "0"
    assert c.server.deadlocks() == 0


def test_a_client_of_one_node(nodes):
    """It has all of the limit, and the headers say what is left of it."""
    c = nodes()
    left = [call(c, 0, RPM, BODY).response for _ in range(20)]
    left = [int(r.get("x-ratelimit-remaining-requests")) for r in left]
    assert left == sorted(left, reverse=True)
    assert 60 - 20 - 8 <= left[-1] <= 60 - 20
    s = Clients(c, RPM2, 5, [1]).during(SOME, 58)
    assert s.densest() <= 60
    assert len(s.passed) >= 58


def test_tokens_a_minute(nodes):
    """What a call has not used is given back on whichever node."""
    c = nodes()
    s = Clients(c, TPM, 60).during(SOME / 2, 100)
    row = c.query("SELECT * FROM modelgw.limits WHERE key = 'tpm'")[0]
    assert row["kind"] == 1 and row["lim"] == 2000
    used = 18 * len(s.passed)           # tokens of both()
    assert used <= 2000 * 1.08
    assert used >= 2000 * 0.9
    assert_flat(s.refused[-1].response, 429, "RATE_LIMITED")


class Flight:
    """Calls that last until they are let go."""

    def __init__(self, c):
        self.c, self.gate, self.answers = c, threading.Event(), []
        c.b.script(raw(self.gate, both))
        self.before = len(c.b.requests)
        self.threads = []

    def begin(self, n, node):
        for _ in range(n):
            t = threading.Thread(target=lambda: self.answers.append(
                call(self.c, node, CALLS, BODY)))
            t.start()
            self.threads.append(t)

    def flying(self):
        return len(self.c.b.requests) - self.before

    def end(self):
        self.gate.set()
        for t in self.threads:
            t.join()


def refused(c, node):
    r = call(c, node, CALLS, BODY).response
    assert_flat(r, 429, "RATE_LIMITED")
    assert r.get("retry-after") == "1"


def test_calls_in_flight(nodes):
    """8 at a time on all nodes; those of a node that is killed are free after
    10 s."""
    c = nodes()
    f = Flight(c)
    f.begin(3, 0)
    wait_for(lambda: f.flying() == 3, lambda: "%d fly" % f.flying())
    for node in range(3):
        f.begin(4, node)
    wait_for(lambda: f.flying() == 8, lambda: "%d fly" % f.flying())
    wait_for(lambda: len(f.answers) == 7, lambda: "%s" % f.answers)
    for node in range(3):
        refused(c, node)
    assert f.flying() == 8

    c.expect(".")
    killed = 7 - len([a for a in f.answers if a.node == 0])
    assert killed >= 3
    c.nodes[0].power_cut()
    begin = time.monotonic()
    refused(c, 1)
    time.sleep(max(0, begin + 11 - time.monotonic()))
    f.begin(8, 1)
    wait_for(lambda: f.flying() == 8 + killed,
             lambda: "%d fly" % f.flying())
    time.sleep(1)
    assert f.flying() == 8 + killed
    f.end()
    c.nodes[0].restart()


def test_idle_slots_go_to_who_lacks_them(nodes):
    c = nodes()
    f = Flight(c)
    f.begin(8, 0)
    wait_for(lambda: f.flying() == 8, lambda: "%d fly" % f.flying())
    refused(c, 1)
    f.end()
    begin = time.monotonic()
    wait_for(lambda: call(c, 1, CALLS, BODY).status == 200,
             lambda: "node 1 is refused")
    assert time.monotonic() - begin < 4.5       # 5 s if nobody lacks them
    g = Flight(c)
    c.wait(lambda: c.one("SELECT sum(slots)::int FROM modelgw.slots WHERE "
                         "key = 'calls'") == 0, "idle slots are not given back")
    g.begin(8, 2)
    wait_for(lambda: g.flying() == 8, lambda: "%d fly" % g.flying())
    g.end()


def test_without_the_database(nodes):
    """The nodes' parts are the limit."""
    c = nodes(groups=FREE_MODELS)
    for i in range(3):                  # the nodes are known
        assert call(c, i, RPM, BODY).status == 200
    c.expect()
    for n in c.nodes:
        n.proxy.hole()
    s = Clients(c, RPM, 20).during(SOME / 2, 52)
    assert 55 <= len(s.passed) + 3 <= 60
    for n in c.nodes:
        n.proxy.clear()
    s = Clients(c, RPM, 20).during(SOME / 2)
    assert s.densest() <= 10
