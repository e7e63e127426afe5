"""A cluster at the sizes that tests do not have: many trials, nodes, accounts.

usage: t/cluster/torture_scale.py CASE... [--times N] [--nodes N] [--accounts N]
                    [--seconds N] [--keep]

Each case makes a cluster of its own, prints what it has measured, and compares
the books at the end: the database with each journal, and the audits; no account
may be overspent, and there may be no deadlock in the server's log.

case      what                                       times, seconds; long form
race      1,000 calls at once over three nodes, on   3 trials; 100
          credit for ten: ten pass, the others get
          402
kills     kill -9 of a whole node under load, started 3; 300
          again after up to 5 s
cuts      connections cut after N bytes of requests,  20 places; 4000
          and after N bytes of the answer to a commit
holes     the database is not reached for "offline"   offline=2s; --times 9
          and 5 s more, both ways and one way         is up to 10 s
clocks    a node's clock, and then the database's,    10 s each; 130
          are an hour off at a start and while they
          run: t/cluster/clock.c
nodes     16 nodes on one account, then on 1,000      10 s each; 60
accounts  1,000,000 accounts: joins, memory,          100,000 accounts are
          administration, a node's start, failover    called by one node

The last line is "N passed, N failed"; exits with 1 if any has failed.
"""

import argparse
import collections
import contextlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../lib")]

import cluster as clusterlib                                    # noqa: E402
import gateway as lib                                           # noqa: E402
import metrics                                                  # noqa: E402
import money                                                    # noqa: E402
import postgres                                                 # noqa: E402
from cluster import Cluster, Load, Race, call                   # noqa: E402
from gateway import Key, chat                                   # noqa: E402
from upstream import Upstream, both                             # noqa: E402

CLOCK = os.environ.get("MODELGW_CLOCK_SO",
                       os.path.join(lib.ROOT, "build/clock.so"))
BODY = chat(max_tokens=50)
LINE = money.Line(input=1, output=2, max_output=4000)   # of fam-b-one
HOLD = money.Bound(json.dumps(BODY).encode(), LINE, "chat").hold
RICH = Key("rich", "b")
POOR = [Key("poor-%d" % i, "b") for i in range(3)]
KEYS = [RICH] + POOR
HOUR = 3600


def say(text):
    print("scale: " + text, flush=True)


def quantiles(took):
    """Of seconds, in milliseconds."""
    took = sorted(took) or [0]
    return "p50 %.0f, p99 %.0f, longest %.0f ms" % tuple(
        1000 * took[min(len(took) - 1, int(len(took) * q))]
        for q in (0.5, 0.99, 1))


class Fast:
    """An upstream that answers as upstream.both() does, but by nginx."""

    def __init__(self, directory):
        self.dir = directory
        os.makedirs(directory)
        self.port = lib.free_port()
        body = json.dumps({
            "id": "1", "object": "chat.completion", "created": 1,
            "model": "one-0613", "choices": [{
                "index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": "Hi"}}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7,
                      "total_tokens": 18}})
        path = os.path.join(directory, "nginx.conf")
        with open(path, "w") as f:
            f.write("""
daemon off; master_process off; pid %s/nginx.pid; error_log %s/log error;
worker_rlimit_nofile 16384; events { worker_connections 8192; }
http {
    access_log off; client_body_temp_path %s; proxy_temp_path %s;
    fastcgi_temp_path %s; uwsgi_temp_path %s; scgi_temp_path %s;
    keepalive_requests 1000000;
    server {
        listen 127.0.0.1:%d backlog=4096;
        location / { default_type application/json; return 200 '%s'; }
    }
}
""" % (*[directory] * 7, self.port, body))
        self.process = subprocess.Popen(
            [lib.NGINX, "-p", directory, "-c", path, "-e",
             os.path.join(directory, "log")], stdin=subprocess.DEVNULL)
        clusterlib.wait_for(lambda: clusterlib.answers(self.port), "upstream")

    def stop(self):
        self.process.kill()
        self.process.wait()


WRK = """
local secrets, n = {}, %d
for line in io.lines("%s") do secrets[#secrets + 1] = line end
request = function()
    n = n %% #secrets + 1
    return wrk.format("POST", "/v1/chat/completions", {
        ["Authorization"] = "Bearer " .. secrets[n],
        ["Content-Type"] = "application/json"}, '%s')
end
done = function(s, latency, r)
    io.write(string.format("%%d %%d %%d %%d %%d %%d\\n", s.requests,
             s.errors.status, s.errors.connect + s.errors.read
             + s.errors.timeout, s.duration, latency:percentile(50),
             latency:percentile(99)))
end
"""


def drive(c, keys, seconds, connections=2, nodes=None):
    """wrk at each node: [(node, calls, refused, failed, us, p50, p99)]."""
    path = os.path.join(c.dir, "secrets")
    with open(path, "w") as f:
        f.write("".join(key.secret + "\n" for key in keys))
    started = []
    nodes = nodes or c.nodes
    for i, node in enumerate(nodes):
        script = node.path("wrk.lua")
        with open(script, "w") as f:
            f.write(WRK % (i * len(keys) // len(nodes), path,
                           json.dumps(BODY)))
        started.append(subprocess.Popen(
            ["wrk", "-t", "1", "-c", str(connections), "-d", str(seconds),
             "--timeout", "60", "-s", script,
             "http://127.0.0.1:%d" % node.port],
            stdout=subprocess.PIPE, text=True))
    out = []
    for node, p in zip(nodes, started):
        text, _ = p.communicate(timeout=seconds + 120)
        out.append((node, *map(int, text.splitlines()[-1].split())))
    os.unlink(path)
    return out


class Case:
    """One case, and what is to be cleaned up after it."""

    def __init__(self, args):
        self.args = args
        self.dir = tempfile.mkdtemp(prefix="cluster-scale-")
        self.faults = []
        self.c = None
        self.upstreams = []

    def make(self, fast=False, load=True, **kw):
        """With accounts that have much, and such that have little."""
        if fast:
            up = Fast(os.path.join(self.dir, "upstream"))
            self.upstreams = [up]
            pair = up, up
        else:
            pair = self.upstreams = [Upstream(), Upstream()]
        kw.setdefault("keys", KEYS)
        self.c = c = Cluster(os.path.join(self.dir, "cluster"), *pair,
                             founding="0", **kw)
        c.expect()
        for node in c.nodes:        # too many keys to look for all
            node.quiet = len(kw["keys"]) < 100
        if load:
            c.start()
            self.feed(10 ** 13, 40 * HOLD)
        return c

    def feed(self, rich=0, poor=5 * HOLD):
        for key in KEYS:
            amount = rich if key is RICH else poor
            if amount:
                self.c.put(key.id, amount)

    def check(self, what, ok):
        if not ok:
            self.faults.append(str(what))
            say("FAILED: %s" % str(what)[:300])

    def books(self, journals=True):
        """Afterwards."""
        c = self.c
        c.heal()
        c.settle(300)
        self.faults += c.differences(None if journals else [])
        self.faults += ["%(name)s is overspent: %(free)s" % row
                        for row in c.query(
            "SELECT name, (free + coalesce((SELECT sum(granted - returned - "
            "forced - spent) FROM modelgw.leases WHERE account = name), 0))"
            "::bigint AS free FROM modelgw.accounts") if row["free"] < 0]
        n, ids = c.query("SELECT count(*) AS n, count(DISTINCT id) AS ids "
                         "FROM modelgw.calls")[0].values()
        self.check("%d calls have %d ids" % (n, ids), n == ids)
        log = c.server.log()
        waits = postgres.lock_waits(log)
        say("%d calls; %d deadlocks, %d waits for locks, the longest %.0f ms"
            % (n, log.count("deadlock detected"), len(waits),
               1000 * max(waits, default=0)))

    def end(self):
        if self.c is not None:
            self.faults += self.c.remove()
        for up in self.upstreams:
            up.stop()
        if self.faults or self.args.keep:
            say(self.dir + " is kept")
        else:
            shutil.rmtree(self.dir, ignore_errors=True)


def race(case):
    """Credit for ten, and a thousand clients."""
    c = case.make(location="proxy_read_timeout 600s;")
    key = c.nodes[0].bob
    took = []
    for i in range(case.args.times or 3):
        c.settle()
        more = 10 * HOLD - c.balance_of("bob-1") if i else 10 * HOLD
        c.put("bob-1", more)
        begin = time.monotonic()
        r = Race(c, key, BODY, 1000)
        try:
            r.read(990)
            took.append(time.monotonic() - begin)
            c.wait(lambda: r.sent() == 10, lambda: "%d are sent" % r.sent())
            r.finish()
            case.check("trial %d: %s" % (i, r.statuses()),
                       r.statuses() == {200: 10, 402: 990})
        finally:
            r.close()
    say("%d trials, 10 calls passed in each; until 990 were refused: %s"
        % (len(took), quantiles(took)))
    case.books()


def kills(case):
    """The others do not notice; but a node counts as one that lives for three
    seconds, so an account that is dry may wait for it in vain meanwhile."""
    c = case.make()
    r = random.Random(1)
    down, starts = [], []
    with Load(c, [RICH], 3, body=BODY) as load, \
            Load(c, POOR, 3, body=BODY) as poor:
        load.wait(100)
        for i in range(case.args.times or 3):
            n = r.randrange(3)
            begin = time.time()
            c.nodes[n].power_cut()
            time.sleep(r.uniform(0, 5))
            at = time.monotonic()
            c.nodes[n].restart()
            load.wait(1, nodes=[n])
            starts.append(time.monotonic() - at)
            down.append((n, begin, time.time()))
            case.feed()
            load.wait(10)
    say("%d kills; until the first call of the node: %s"
        % (len(down), quantiles(starts)))
    for name, x in (("rich", load), ("poor", poor)):
        up, during, odd = [], [], collections.Counter()
        for a in x.answers:
            spans = [n for n, begin, end in down if begin <= a.begin < end]
            if not spans:
                up.append(a.took)
            elif a.node not in spans:
                during.append(a.took)
                if a.status != 200 and (x is load or a.status != 402) \
                   and (x is load or a.status != 503 or a.took < 1.9):
                    odd[a.status] += 1
        say("%s: calls with all nodes up: %s (%d); of the others meanwhile: "
            "%s (%d); all answers: %s" % (
                name, quantiles(up), len(up), quantiles(during), len(during),
                x.statuses()))
        case.check("%s: %s" % (name, odd), not odd)
    case.books()


def cuts(case):
    """After each number of bytes."""
    c = case.make(options="exchange=20ms")
    times = case.args.times or 20
    missed = 0
    with Load(c, KEYS, 6, body=BODY) as load:
        load.wait(30)
        for i in range(times):
            proxy = c.nodes[i % 3].proxy
            if i % 4 < 2:               # others may meet one that joins
                c.wait(c.nodes[i % 3].joined, "it does not join")
            if i % 2:
                proxy.cut_answer(i * 1000 // times)
            else:
                proxy.cut_after(1 + i * 4000 // times)
            missed += not proxy.happened()
            proxy.clear()
            if i % 10 == 0:
                case.feed()
        load.wait(30)
    say("%d cuts, %d of them not met; connections: %s; calls %s" % (
        times, missed, [node.proxy.status()["connections"]
                        for node in c.nodes], load.statuses()))
    case.check("%d cuts were not met" % missed, not missed)
    case.books()


def holes(case):
    for i in range(case.args.times or 1):
        for way in ("hole", "hole_back"):
            if case.c is not None:
                case.c.remove()
                for up in case.upstreams:
                    up.stop()
                shutil.rmtree(os.path.join(case.dir, "cluster"))
            hole(case, 2 + i, way)


def hole(case, offline, way):
    """Calls go on within the lease, and are refused then."""
    c = case.make(options="offline=%ds wait=1s" % offline)
    c.put("bob-1", 100 * HOLD)
    node = c.nodes[0]
    with Load(c, KEYS, 6, body=BODY) as load:
        load.wait(60)
        getattr(node.proxy, way)()
        begin = time.time()
        a = call(c, 0, node.bob, BODY)          # no lease of this account
        case.check("no lease: %s" % a, a.status == 503)
        time.sleep(offline + 5)
        end = time.time()
        node.proxy.clear()
        load.wait(1, nodes=[0])
        back = time.time()
        load.wait(30)
    late = begin + offline + 1
    waited = end - 2                    # calls that began later may have waited
    case.check("late: %s" % load.statuses(late, waited, [0]),
               set(load.statuses(late, waited, [0])) <= {503})
    case.check("others: %s" % load.statuses(begin, end, [1, 2]),
               set(load.statuses(begin, end, [1, 2])) <= {200, 402})
    last = max([a.begin for a in load.answers if a.node == 0
                and a.status == 200 and a.begin < waited], default=begin)
    say("%s, offline=%ds: %s by leases, the last after %.1f s; later %s; a "
        "call %.1f s after the end" % (
            way, offline, load.statuses(begin, late, [0]), last - begin,
            load.statuses(late, waited, [0]), back - end))
    case.books()


class Clock:
    """Of processes that are started with it: seconds that it is off."""

    def __init__(self, path):
        self.env = {"LD_PRELOAD": CLOCK, "MODELGW_CLOCK": path}
        self.file = open(path, "w+b", 0)
        os.chmod(path, 0o644)
        self.set(0)

    def set(self, seconds):
        self.file.seek(0)
        self.file.write(struct.pack("=q", seconds))

    def wear(self, node):
        """The node's nginx has this clock from its next start."""
        plain = node.command
        node.command = lambda *args: [
            "env", *["%s=%s" % item for item in self.env.items()],
            *plain(*args)]


@contextlib.contextmanager
def environment(more):
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def most(times, window=60):
    """The most of these within so many seconds."""
    times, first, found = sorted(times), 0, 0
    for i, t in enumerate(times):
        while times[first] <= t - window:
            first += 1
        found = max(found, i + 1 - first)
    return found


def clocks(case):
    """No clock has a part in the money, and the limits come back."""
    seconds = case.args.seconds or 10
    limited = Key("limited", "b", "rpm=120 account=rich")
    c = case.make(load=False, keys=KEYS + [limited])
    node = c.nodes[1]
    clock = Clock(os.path.join(case.dir, "clock"))
    clock.wear(node)
    os.chmod(case.dir, 0o755)
    theirs = Clock(os.path.join(case.dir, "their-clock"))
    clock.set(HOUR)
    c.start()
    case.feed(10 ** 13, 40 * HOLD)
    steps = []

    def step(name, change):
        begin = time.time()
        change()
        time.sleep(seconds)
        case.feed()
        for n in c.nodes:
            r = n.post("/admin/accounts/rich/topups", {
                "id": "%d.%s" % (len(steps), n.name), "amount": "0.01"})
            case.check("%s: top-up at %s: %s" % (name, n.name, r),
                       r.status == 201)
        steps.append((name, begin, time.time()))

    def restart(off):
        node.power_cut()
        clock.set(off)
        node.restart()

    def database(off):
        c.server.stop("fast")
        theirs.set(off)
        with environment(theirs.env):
            c.servers[0].start()

    with Load(c, KEYS, 3, body=BODY) as load, \
            Load(c, [limited], 3, body=BODY, pause=0.02) as limits:
        step("node 2 begins 1 h late", lambda: None)
        step("it is set right", lambda: clock.set(0))
        step("it is set back by 1 h", lambda: clock.set(-HOUR))
        step("it goes forward by 2 h", lambda: clock.set(HOUR))
        step("it is killed, and begins 1 h early", lambda: restart(-HOUR))
        step("the database begins 1 h late", lambda: database(HOUR))
        step("it is set back by 2 h", lambda: theirs.set(-HOUR))
        step("it is set right ", lambda: theirs.set(0))
        step("it begins 1 h early", lambda: database(-HOUR))
        step("it goes forward by 1 h", lambda: theirs.set(0))
    for name, begin, end in steps:
        passed = [a.begin for a in limits.answers
                  if a.status == 200 and begin <= a.begin < end]
        last = [t for t in passed if t >= end - 60]
        say("%s: %s; of 120 a minute at most %d passed, in the last minute "
            "%d; top-ups ok" % (name, load.statuses(begin, end),
                                most(passed), len(last)))
        if seconds > 120:
            case.check("%s: %d" % (name, len(last)), 100 <= len(last) <= 130)
    (row,) = c.query("SELECT count(*) AS n, count(DISTINCT (node, id)) AS ids "
                     "FROM modelgw.actions")
    say("%(n)d actions, %(ids)d ids" % row)
    case.check(row, row["n"] == row["ids"] > 0)
    case.books()


def updates(c):
    """Of the rows of accounts, which change when something is lent or given
    back, and of exchanges, so far."""
    time.sleep(1.5)                     # until the server counts them
    return [c.one("SELECT n_tup_upd FROM pg_stat_user_tables WHERE "
                  "relname = '%s'" % name) for name in ("accounts", "nodes")]


def cpu_of(pids):
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError), open("/proc/%s/stat" % pid) as f:
            ticks += sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def backends(c):
    return [row["pid"] for row in c.query(
        "SELECT pid FROM pg_stat_activity WHERE usename = 'modelgw'")]


def nodes(case):
    """What so many do on one account, and on many."""
    seconds = case.args.seconds or 10
    many = [Key("many-%d" % i, "b") for i in range(1000)]
    c = case.make(fast=True, n=case.args.nodes or 16, keys=KEYS + many,
                  proxied=False, log_level="notice")
    c.server.run("INSERT INTO modelgw.accounts (name, free, opened) SELECT "
                 "'many-' || i, 10000000000, 1 FROM generate_series(0, 999) i "
                 "ON CONFLICT (name) DO UPDATE SET free = 10000000000")
    c.server.run("INSERT INTO modelgw.topups (id, account, amount, time) "
                 "SELECT 'f-' || name, name, 10000000000, 1 "
                 "FROM modelgw.accounts WHERE name LIKE 'many%'")
    for keys in ([RICH], many):
        before, pids = updates(c), backends(c)
        cpu = cpu_of(pids)
        begin = time.monotonic()
        out = drive(c, keys, seconds)
        after, took = updates(c), time.monotonic() - begin
        cpu = cpu_of(pids) - cpu
        calls, refused, failed = (sum(x[i] for x in out) for i in (1, 2, 3))
        say("%d nodes, %d accounts: %d calls in %d s, %d a second; %d "
            "refused, %d failed; p50 %.1f, p99 %.1f ms (the slowest node's)"
            % (len(c.nodes), len(keys), calls, seconds, calls / seconds,
               refused, failed, max(x[5] for x in out) / 1000,
               max(x[6] for x in out) / 1000))
        say("accounts were lent or gave back %.2f times a second and node; "
            "%.1f exchanges a second and node; the server's CPU: %.0f us a "
            "call, %.0f us an exchange" % (
                (after[0] - before[0]) / took / len(c.nodes),
                (after[1] - before[1]) / took / len(c.nodes),
                1e6 * cpu / max(1, calls),
                1e6 * cpu / max(1, after[1] - before[1])))
        waits = collections.Counter()
        for node in c.nodes:
            for result in ("lent", "402", "503"):
                waits[result] += int(metrics.scrape(node).sum(
                    "modelgw_cluster_waits_total", result=result))
        say("calls that waited, so far: %s" % dict(waits))
        case.check("%d refused, %d failed" % (refused, failed),
                   refused + failed == 0)
    case.books()


def timed(run):
    begin = time.monotonic()
    result = run()
    return time.monotonic() - begin, result


def exchange_ms(node, seconds=5):
    """The mean of those of so many seconds."""
    name = "modelgw_cluster_exchange_seconds"

    def read():
        m = metrics.scrape(node)
        return [float(m.sum(name + end)) for end in ("_sum", "_count")]

    before = read()
    time.sleep(seconds)
    after = read()
    return 1000 * (after[0] - before[0]) / max(1, after[1] - before[1])


def megabytes(node):
    return node.memory("VmRSS") / 1e6


def page(node, query):
    took, r = timed(lambda: node.get("/admin/accounts?" + query, timeout=600))
    assert r.status == 200, r
    return took, r.json()


def accounts(case):
    """A million, of which one node has had a hundred thousand."""
    total = case.args.accounts or 1000000
    called = [Key("a-%07d" % i, "b")
              for i in range(0, total, max(1, total // 100000))]
    c = case.make(fast=True, load=False, proxied=False, zone="1024m",
                  keys=KEYS + called, log_level="notice")
    for server in c.servers:
        server.run("ALTER SYSTEM SET shared_buffers = '256MB'")
        server.crash()
    took, _ = timed(lambda: c.server.run(
        "INSERT INTO modelgw.accounts (name, free, opened, version) SELECT "
        "'a-' || lpad(i::text, 7, '0'), 5000000000, 1, i + 1 "
        "FROM generate_series(0, %d) i; "
        "INSERT INTO modelgw.topups (id, account, amount, time) "
        "SELECT 'f-' || name, name, free, 1 FROM modelgw.accounts; "
        "UPDATE modelgw.cluster SET keys_version = %d; ANALYZE"
        % (total - 1, total)))
    say("%d accounts are put into the database by hand in %.0f s"
        % (total, took))
    for node in c.nodes:
        took, _ = timed(node.start)
        joined, _ = timed(lambda: c.wait(node.joined, "it does not join",
                                         600))
        say("%s is started in %.1f s, and a member %.1f s later; %.0f MB a "
            "worker" % (node.name, took, joined, megabytes(node)))
        took, _ = timed(lambda: c.wait(
            lambda: node.row()["keys_version"] >= total, lambda: "it knows %d"
            % node.row()["keys_version"], 1200))
        say("it knows all accounts %.1f s later; %.0f MB a worker"
            % (took, megabytes(node)))
    case.feed(10 ** 13)
    say("an exchange, idle: %.1f ms" % exchange_ms(c.nodes[0]))
    administration(c, total)
    first = c.nodes[0]
    out = []
    while sum(x[1] for x in out) < len(called):
        out += drive(c, called[sum(x[1] for x in out):], 20, 32, [first])
    say("%s: %d calls of %d accounts, %d refused, %d failed, %.0f a second, "
        "p99 %.0f ms; %.0f MB a worker" % (
            first.name, sum(x[1] for x in out), len(called),
            sum(x[2] for x in out), sum(x[3] for x in out),
            sum(x[1] for x in out) / (20 * len(out)),
            max(x[6] for x in out) / 1000, megabytes(first)))
    case.check("refused or failed", not any(x[2] or x[3] for x in out))
    took, _ = timed(lambda: c.settle(600))
    say("all is shipped %.1f s later" % took)
    say("an exchange then: %.1f ms" % exchange_ms(first))
    starts(c, first, "with what it has borrowed")
    took, _ = timed(lambda: c.wait_free(600))
    say("all is given back %.1f s later" % took)
    say("an exchange, idle: %.1f ms" % exchange_ms(first))
    rows = c.one("SELECT count(*) FROM modelgw.leases")
    starts(c, first, "with %d leases at rest" % rows)
    begin = time.monotonic()
    c.server.crash()
    c.wait_joined(600)
    say("the database has crashed: all nodes are back after %.1f s; an "
        "exchange %.1f ms" % (time.monotonic() - begin, exchange_ms(first)))
    for n in range(len(c.nodes)):
        a = call(c, n, RICH, BODY)
        case.check(a, a.status == 200)
    administration(c, total)
    case.books()


def starts(c, node, how):
    node.power_cut()
    took, _ = timed(node.restart)
    joined, _ = timed(lambda: c.wait(node.joined, "it does not join", 600))
    a = call(c, c.nodes.index(node), RICH, BODY)
    say("%s, killed and started again, %s: %.1f s, and a member %.1f s later; "
        "first call %s in %.2f s; %.0f MB" % (
            node.name, how, took, joined, a.status, a.took, megabytes(node)))
    assert a.status == 200, a


def administration(c, total):
    node, pages, next, seen = c.nodes[1], [], "", 0
    while len(pages) < 3 and next is not None:
        took, answer = page(node, "limit=1000" + next)
        pages.append(took)
        seen += len(answer["accounts"])
        next = answer.get("next")
        next = next and "&after=" + next
    say("GET /accounts: %d in %d pages: %s" % (seen, len(pages),
                                               quantiles(pages)))
    for path in ("/accounts?limit=100&sort=balance",
                 "/accounts?limit=100&q=a-0001",
                 "/accounts/a-%07d" % (total // 3), "/nodes",
                 "/usage?by=account&limit=100", "/calls?limit=100"):
        took, r = timed(lambda: node.get("/admin" + path, timeout=600))
        say("GET %s: %s in %.2f s" % (path, r.status, took))


CASES = {f.__name__: f for f in (race, kills, cuts, holes, clocks, nodes,
                                 accounts)}


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("cases", nargs="+", choices=list(CASES), metavar="CASE")
    p.add_argument("--times", type=int)
    p.add_argument("--seconds", type=int)
    p.add_argument("--nodes", type=int)
    p.add_argument("--accounts", type=int)
    p.add_argument("--keep", action="store_true")
    args = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    failed = 0
    for name in args.cases:
        case = Case(args)
        begin = time.monotonic()
        try:
            CASES[name](case)
        except Exception:
            case.faults.append(traceback.format_exc())
        finally:
            case.end()
        for fault in case.faults[:20]:
            say("    " + fault[-2000:])
        failed += bool(case.faults)
        say("%s: %s, %d s" % (name, "FAILED" if case.faults else "ok",
                              time.monotonic() - begin))
    print("%d passed, %d failed" % (len(args.cases) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
