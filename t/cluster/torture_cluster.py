"""A torture test of a cluster: the shared books against an invoice that the
upstream keeps, while whatever there is fails.

usage: t/cluster/torture_cluster.py [--quick] [--seconds N] [--seed S] [--slots N]
                    [--only KIND] [--keep]

Three nodes with journals of their own, a PostgreSQL with a standby, a proxy
between each node and each server.  Clients make random calls of all APIs, which
they give to the nodes in turn, as a balancer does, and leave at random points;
credit is topped up, keys are made and revoked, prices change by reload.
Meanwhile nodes and workers are killed, connections are cut, delayed and held
back, answers to commits are lost, the database crashes, a standby that is
behind is promoted, nodes are written off, a dump is restored: class Faults.

At the end all is compared: class Books.  It is printed how much was overspent,
and how much may have been: what a database has forgotten to have lent, and what
was written off.  Each check is then tested by a fault that is put into the
books by hand, which it must find.

The last line is "N passed, N failed"; exits with 1 if any has failed.  What
calls do follows from the seed, but not when.  A failed run keeps its directory.
"""

import argparse
import asyncio
import collections
import contextlib
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../lib"), os.path.join(HERE, "../credit")]

import gateway as lib                                           # noqa: E402
import money                                                    # noqa: E402
import postgres                                                 # noqa: E402
import torture as single                                        # noqa: E402
import torture_audit as audit                                   # noqa: E402
import torture_books as books                                   # noqa: E402
from cluster import Cluster                                     # noqa: E402
from gateway import Key                                         # noqa: E402
from torture import PARALLEL, READ_TIMEOUT, Visit               # noqa: E402
from torture_call import CHAT, Call                             # noqa: E402

NODES = 3
WORKERS = 2
RICH = ["rich-%d" % i for i in range(6)]
POOR = ["poor-%d" % i for i in range(4)]
THRIFTY = ["rich-thrifty-%d" % i for i in range(2)]     # their keys have budgets
FOUNDING = {"rich": 10000 * 10 ** 9, "poor": 1000000007}
BUDGET = money.nano("2.5")
GROUPS = "mcdre"
OPTIONS = "exchange=50ms wait=2s offline=20s"
TIMEOUT = 60            # seconds for anything, on a busy machine, too
AFTER = 1.5             # seconds between faults, on average
SHOWN = 20              # differences of a check


class Calls(collections.abc.Mapping):
    """Calls by their numbers, made again when they are needed."""

    KEPT = 4000

    def __init__(self, seed):
        self.seed = seed
        self.count = 0
        self.kept = collections.OrderedDict()
        self.given = {}             # those that are not as planned

    def next(self):
        self.count += 1
        return self[self.count]

    def __getitem__(self, n):
        if n in self.given:
            return self.given[n]
        if type(n) is not int or not 0 < n <= self.count:
            raise KeyError(n)
        call = self.kept.get(n)
        if call is None:
            call = self.kept[n] = Call(self.seed, n, RICH, POOR + THRIFTY)
            if len(self.kept) > self.KEPT:
                self.kept.popitem(last=False)
        return call

    def __len__(self):
        return self.count

    def __iter__(self):
        return iter(range(1, self.count + 1))


class Clients(single.Clients):
    """As a balancer they give calls to the nodes in turn; one that could not be
    sent goes to the next."""

    def __init__(self, run, rate):
        super().__init__(run)
        self.turn = 0
        self.pause = rate and 1 / rate
        self.next = time.monotonic()

    async def slot(self):
        while self.going:
            if self.pause:
                now = time.monotonic()
                self.next = max(self.next + self.pause, now - 1)
                await asyncio.sleep(max(0, self.next - now))
            call = self.run.next_call()
            visit = self.run.visits[call.n] = Visit()
            try:
                await asyncio.wait_for(self.visit(call, visit), TIMEOUT)
            except asyncio.TimeoutError:
                self.faults.append("call %d: the client waited for %d s at %s"
                                   % (call.n, TIMEOUT, visit.node))
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                visit.end(call)
            if visit.refused:
                await asyncio.sleep(0.05)

    async def visit(self, call, visit):
        visit.node = None
        for _ in range(NODES):
            self.turn += 1
            node = self.run.c.nodes[self.turn % NODES]
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", node.port, limit=1 << 22)
            except OSError:
                continue
            visit.node = node.name
            break
        else:
            visit.refused = True
            return
        try:
            await self.talk(call, visit, reader, writer)
        finally:
            if visit.left and call.leave_reset:
                single.reset(writer)
            writer.close()

    async def talk(self, call, visit, reader, writer):
        visit.key = self.run.key_of(call)
        self.run.keys[call.account, call.line[1]] = visit.key
        await super().talk(call, visit, reader, writer)


class Made:
    """A key that an operator has made."""

    def __init__(self, id, group, account):
        self.id = id
        self.group = group
        self.account = account
        self.key = None
        self.created = None         # when that was answered
        self.revoked = None         # when it was asked for


class Faults:
    """What is done to the cluster; each method is a kind."""

    def __init__(self, run):
        self.run = run
        self.random = random.Random("%s/torment" % run.seed)
        self.lock = asyncio.Lock()  # of the proxies: one has it who relies on
                                    # what they do
        self.tasks = set()
        self.dump = None
        self.counts = collections.Counter()

    KINDS = {
        "worker": 5, "power_cut": 3, "stop": 1, "reload": 1, "topup": 5,
        "key": 4, "delay": 1, "hole": 2, "hole_back": 2, "cut": 2,
        "cut_after": 3, "cut_answer": 4, "disconnect": 1, "crash": 1,
        "down": 1, "failover": 1, "write_off": 1, "write_off_cut": 1,
        "dump_and_restore": 1}

    async def all(self, seconds, only=None):
        """All kinds in random order, the more frequent ones several times; then
        again."""
        kinds = [k for k, n in self.KINDS.items() for _ in range(n)
                 if not only or k in only]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            # each once, first of all: a short run has all of them
            first = sorted(set(kinds)) if not self.counts else []
            self.random.shuffle(first)
            again = list(kinds)
            self.random.shuffle(again)
            for i, kind in enumerate(first + again):
                await asyncio.sleep(self.random.uniform(0.2, 2 * AFTER))
                if time.monotonic() > end and i >= len(first):
                    break
                self.counts[kind] += 1
                await getattr(self, kind)()
        await self.finish()

    async def finish(self):
        await asyncio.gather(*self.tasks)
        for node in self.run.c.nodes:
            for proxy in node.proxies:
                await asyncio.to_thread(proxy.clear)

    def node(self):
        return self.random.choice(self.run.c.nodes)

    def disturbed(self, begin, nodes=None, grace=books.GRACE):
        """Calls to the nodes may have failed since."""
        for node in nodes or self.run.c.nodes:
            self.run.disturbed[node.name].append((begin, time.time() + grace))

    def later(self, seconds, node, begin):
        """Clears the proxies of the node then."""
        async def clear():
            await asyncio.sleep(seconds)
            async with self.lock:
                for proxy in node.proxies:
                    await asyncio.to_thread(proxy.clear)
            self.disturbed(begin, [node])

        task = asyncio.create_task(clear())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # nodes

    async def worker(self):
        node = self.node()
        pids = node.pids()
        if not pids:
            return
        begin = time.time()
        with contextlib.suppress(ProcessLookupError):       # it was leaving
            os.kill(self.random.choice(pids), signal.SIGKILL)
        self.run.kills[node.name].append((begin, time.time()))

    async def power_cut(self):
        """All processes of a node at once."""
        node = self.node()
        begin = time.time()
        sync = self.run.disk.longest(begin - single.SETTLED)
        await asyncio.to_thread(node.power_cut)
        self.run.cuts[node.name].append(audit.Cut(
            begin, time.time(), audit.WINDOW + audit.SYNCS * sync))
        await self.again(node, begin)

    async def stop(self):
        node = self.node()
        begin = time.time()
        node.process.send_signal(self.random.choice(
            [signal.SIGTERM, signal.SIGINT]))
        code = await asyncio.to_thread(node.process.wait, TIMEOUT)
        if code:
            self.run.fault("%s was stopped, and exited with %s" % (
                node.name, code))
        self.run.stops[node.name].append((begin, time.time()))
        await self.again(node, begin)

    async def again(self, node, begin):
        node.process = None
        await asyncio.sleep(self.random.choice([0, 0.2, 3]))
        await asyncio.to_thread(node.restart)
        self.disturbed(begin, [node])

    async def reload(self):
        """New prices on all nodes."""
        run = self.run
        run.version += 1
        before = run.versions[-1]
        run.versions.append(audit.Version(run.version))
        for node in run.c.nodes:
            begin = time.time()
            node.groups = run.groups()
            with open(node.path("nginx.conf"), "w") as f:
                f.write(node.config())
            old = set(node.pids())
            node.process.send_signal(signal.SIGHUP)
            end = time.monotonic() + TIMEOUT
            while time.monotonic() < end:
                await asyncio.sleep(0.02)
                pids = set(node.pids())
                if len(pids - old) >= WORKERS and all(
                        single.leaving(pid) for pid in old & pids):
                    break
            else:
                run.fault("a reload has not come to an end")
            self.disturbed(begin, [node], 1)
        before.until = time.time()

    # operators

    async def ask(self, method, path, body=None, wanted=(200, 201), times=1):
        """Says it to nodes until so many have answered so; the last answer.
        Each may be killed, or have no database, meanwhile."""
        end = time.monotonic() + 2 * TIMEOUT
        last = None
        while time.monotonic() < end:
            node = self.node()
            try:
                last = await asyncio.to_thread(
                    node.request, method, "/admin" + path, None, (), body)
            except OSError:
                last = None
            if last is not None and last.status in wanted:
                times -= 1
                if not times:
                    return last
            await asyncio.sleep(0.1)
        self.run.fault("%s %s: %s" % (method, path, last))
        return None

    async def topup(self):
        """The same twice, as a client that lost the first answer."""
        run = self.run
        account = self.random.choice(POOR)
        amount = money.nano(self.random.choice(["0.25", "0.000000001",
                                                "1.5"]))
        topup = books.Topup(account, "t-%d" % len(run.topups), amount)
        run.topups.append(topup)
        await self.ask("POST", "/accounts/%s/topups" % account,
                       {"id": topup.id, "amount": money.euro(amount)},
                       times=2)

    async def key(self):
        """One is made; an old one is revoked."""
        run = self.run
        made = Made("live-%d" % len(run.made), self.random.choice("mcr"),
                    self.random.choice(RICH))
        run.made[made.id] = made
        r = await self.ask("POST", "/keys", {
            "id": made.id, "group": made.group, "account": made.account},
            (201, 409))
        if r is not None and r.status == 201:
            made.key = Key(made.id, made.group, secret=r.json()["key"])
            made.created = time.time()
            for node in run.c.nodes:
                node.hidden.append(made.key.secret)
        usable = [m for m in run.made.values() if m.key and not m.revoked]
        if len(usable) > 4:
            old = self.random.choice(usable)
            old.revoked = time.time()
            await self.ask("DELETE", "/keys/" + old.id, None,
                           (200, 204, 404, 409))

    # between the nodes and the database

    async def delay(self):
        node, begin = self.node(), time.time()
        async with self.lock:
            for proxy in node.proxies:
                await asyncio.to_thread(proxy.delay,
                                        self.random.uniform(0.01, 0.2))
        self.later(self.random.uniform(1, 4), node, begin)

    async def hole(self, name="hole"):
        node, begin = self.node(), time.time()
        async with self.lock:
            for proxy in node.proxies:
                await asyncio.to_thread(getattr(proxy, name))
        self.later(self.random.uniform(0.2, 5), node, begin)

    async def hole_back(self):
        await self.hole("hole_back")

    async def once(self, name, *args):
        """A fault of the connection that there is."""
        node, begin = self.node(), time.time()
        async with self.lock:
            proxy = node.proxies[self.run.primary]
            await asyncio.to_thread(getattr(proxy, name), *args)
            if name != "cut":
                await asyncio.to_thread(proxy.happened, 3)
                await asyncio.to_thread(proxy.clear)
        self.disturbed(begin, [node])

    async def cut(self):
        await self.once("cut")

    async def cut_after(self):
        await self.once("cut_after", self.random.randint(1, 4000))

    async def cut_answer(self):
        await self.once("cut_answer", self.random.choice([0, 0, 1, 50, 200]))

    # the database

    async def disconnect(self):
        begin = time.time()
        await asyncio.to_thread(self.run.server.disconnect)
        self.disturbed(begin)

    @contextlib.asynccontextmanager
    async def alone(self):
        """No node reaches the database, and what they have sent before is done;
        afterwards new connections are made."""
        begin = time.time()
        async with self.lock:
            proxies = [p for node in self.run.c.nodes for p in node.proxies]
            for proxy in proxies:
                await asyncio.to_thread(proxy.hole)
            await asyncio.sleep(0.3)
            try:
                yield
            finally:
                for proxy in proxies:
                    await asyncio.to_thread(proxy.cut)
                    await asyncio.to_thread(proxy.clear)
        self.disturbed(begin)

    def forgotten(self, before, what):
        """Adds the grants that the database has lost to the bound."""
        run = self.run
        after = books.granted(run.server)
        total = 0
        for (num, account), amount in before.items():
            lost = amount - after.get((num, account), 0)
            if lost > 0:
                run.bound[account] += lost
                total += lost
        run.lost[what] += total
        return total

    async def crash(self):
        """All its processes are killed: it may forget nothing."""
        async with self.alone():
            before = books.granted(self.run.server)
            await asyncio.to_thread(self.run.server.crash)
            total = self.forgotten(before, "crash")
            if total:
                self.run.fault("the database has crashed, and lost grants of "
                               "%d" % total)

    async def down(self):
        begin = time.time()
        server = self.run.server
        await asyncio.to_thread(server.stop, self.random.choice(
            ["fast", "immediate"]))
        await asyncio.sleep(self.random.uniform(0.5, 5))
        await asyncio.to_thread(server.start)
        self.disturbed(begin)

    async def failover(self):
        """To a standby that has heard nothing for up to a second and a half; a
        new one follows it."""
        run = self.run
        old, new = run.server, run.standby
        await asyncio.to_thread(new.cut)
        await asyncio.sleep(self.random.uniform(0, 1.5))
        async with self.alone():
            before = books.granted(old)
            await asyncio.to_thread(old.stop, "immediate")
            await asyncio.to_thread(new.promote)
            run.primary = 1 - run.primary
            run.rollbacks.append(time.time())
            self.forgotten(before, "failover")
        # its place is taken by a new standby
        standby = await asyncio.to_thread(new.standby)
        run.c.servers[1 - run.primary] = standby
        run.logs_of_servers.append(old.log())
        await asyncio.to_thread(old.remove)
        async with self.lock:
            for node in run.c.nodes:
                await asyncio.to_thread(
                    node.proxies[1 - run.primary].retarget, standby.socket())

    async def dump_and_restore(self):
        run = self.run
        path = await asyncio.to_thread(run.server.dump)
        await asyncio.sleep(self.random.uniform(1, 6))
        async with self.alone():
            before = books.granted(run.server)
            await asyncio.to_thread(run.server.restore, path)
            run.rollbacks.append(time.time())
            self.forgotten(before, "restore")

    async def write_off(self, cut=False):
        """Of a node that runs, and may even be cut off for a while."""
        run, begin = self.run, time.time()
        node = self.node()
        row = node.row()
        if row is None:
            return
        if cut:
            async with self.lock:
                for proxy in node.proxies:
                    await asyncio.to_thread(proxy.hole)
            self.later(self.random.uniform(0.5, 4), node, begin)
            await asyncio.sleep(self.random.uniform(0.2, 1))
        for account, amount in (await asyncio.to_thread(
                run.c.write_off, row["num"])).items():
            run.bound[account] += amount
            run.lost["write-off"] += amount
        self.disturbed(begin, [node])

    async def write_off_cut(self):
        await self.write_off(True)


class Run(single.Run):

    def __init__(self, seed, directory):
        super().__init__(seed, WORKERS, directory)
        self.calls = Calls(seed)
        names = ["gw%d" % (i + 1) for i in range(NODES)]
        self.kills, self.cuts, self.stops, self.disturbed = (
            {name: [] for name in names} for _ in range(4))
        self.topups = []
        self.made = {}              # keys, by id
        self.rollbacks = []         # when the database has forgotten something
        self.bound = collections.Counter()      # nano-euro, by account
        self.lost = collections.Counter()       # and by kind of fault
        self.primary = 0            # which of the two servers
        self.logs_of_servers = []
        self.random = random.Random("%s/keys" % seed)
        self.c = None
        self.skip = 0

    def fault(self, text):
        self.faults.append(text)

    def next_call(self):
        return self.calls.next()

    @property
    def server(self):
        return self.c.servers[self.primary]

    @property
    def standby(self):
        return self.c.servers[1 - self.primary]

    def key_of(self, call):
        """One of the configuration, or one that an operator has made."""
        now = time.time()
        live = [m for m in self.made.values() if m.key and not m.revoked
                and m.account == call.account and m.group == call.line[1]
                and m.created < now - 0.5
                and not any(t > m.created for t in self.rollbacks)]
        if live and self.random.random() < 0.5:
            return self.random.choice(live).key
        return self.config_keys[call.account, call.line[1]]

    # the cluster

    def make(self, port):
        dead = single.socket.socket()
        dead.bind(("127.0.0.1", 0))
        self.dead = dead

        class Port:
            pass

        Port.port = port
        live = "server 127.0.0.1:%d max_fails=0;" % port
        refuses = "server 127.0.0.1:%d max_fails=0;" % dead.getsockname()[1]

        def options(account):
            text = "account=%s concurrency=%d" % (account, PARALLEL)
            if account in THRIFTY:
                text += " budget=%s/total" % money.euro(BUDGET)
            return text

        self.config_keys = {(account, group): Key(
            "%s-%s" % (account, group), group, options(account))
            for account in RICH + POOR + THRIFTY for group in GROUPS}
        self.keys = dict(self.config_keys)
        primary = postgres.Server()
        self.c = c = Cluster(
            self.dir, Port, Port, 0, [primary], options=OPTIONS, founding="0",
            groups=self.groups(), workers=WORKERS, log_level="notice",
            location="proxy_read_timeout %dms;" % (READ_TIMEOUT * 1000),
            upstreams="""
    upstream m.test { %s keepalive 64; }
    upstream c.test { %s %s keepalive 64; }
    upstream d.test { %s }""" % (live, live, refuses, refuses))
        c.servers.append(primary.standby())
        for i in range(NODES):
            node = c.add("gw%d" % (i + 1))
            node.keys = list(self.config_keys.values())
            node.expect(r"exited on signal 9")
            node.expect("open socket #[0-9]+ left in connection|aborting$")
        c.expect()
        self.versions.append(audit.Version(0))
        c.start()
        for account in RICH + POOR + THRIFTY:
            topup = books.Topup(account, "f-" + account,
                                FOUNDING[account[:4]])
            self.topups.append(topup)
            c.put(account, topup.amount, topup.id)

    # the end

    async def concurrency(self):
        """No slot of a call has leaked: a key may have as many as before, but
        for those that the other nodes have in advance, an eighth each."""
        key = self.config_keys[RICH[0], "c"]

        async def one(i):
            call = self.calls.next()
            while (call.api != CHAT or call.dead or call.leaves != "never"
                   or call.behaviour != "ok"):
                self.skip += 1
                call = Call("%s/again/%d" % (self.seed, self.skip), call.n,
                            RICH, RICH)
            self.calls.given[call.n] = call
            call.account = RICH[0]
            call.wait = 0.5
            visit = self.visits[call.n] = Visit()
            try:
                await self.clients.visit(call, visit)
            finally:
                visit.end(call)
            return visit.status

        self.made.clear()
        least = PARALLEL - (NODES - 1) * (PARALLEL // 8)

        # after the last fault a node may keep to its part for five seconds;
        # what has leaked would never come back

        for _ in range(10):
            statuses = await asyncio.gather(*[one(i) for i in range(PARALLEL)])
            if 503 not in statuses and statuses.count(429) <= PARALLEL - least:
                return
            await asyncio.sleep(1)
        self.fault("%d calls at once of key %s: %s" % (
            PARALLEL, key.id, collections.Counter(statuses)))

    async def go(self, seconds, slots, rate, only):
        up = self.up = single.Upstream(self.calls)
        await up.start()
        await asyncio.to_thread(self.make, up.port)
        self.clients = clients = Clients(self, rate)
        self.disk = single.Disk(self.dir)
        self.disk.start()
        tasks = [asyncio.create_task(clients.slot()) for _ in range(slots)]
        self.torment = Faults(self)
        begin = time.monotonic()
        try:
            await self.torment.all(seconds - (time.monotonic() - begin), only)
        finally:
            self.disk.going = clients.going = False
            await asyncio.gather(*tasks)
        say("all is healed after %d s" % (time.monotonic() - begin))
        await asyncio.to_thread(self.c.wait_joined)
        await asyncio.to_thread(self.c.settle)
        self.known = await asyncio.to_thread(books.keys_known, self)
        await self.concurrency()
        await asyncio.to_thread(self.c.settle)
        with contextlib.suppress(AssertionError):       # a check says which
            await asyncio.to_thread(self.c.wait_free, 30)
        self.live = await asyncio.to_thread(books.live, self)
        say("all is at rest after %d s" % (time.monotonic() - begin))
        self.invoices = up.invoices
        self.faults += up.faults + clients.faults
        self.faults += ["call %d was sent twice" % n for n in up.twice]

    def cleanup(self):
        if self.c is None:
            return
        for node in self.c.nodes:
            with contextlib.suppress(Exception):
                if node.process:
                    node.power_cut()
            for proxy in node.proxies:
                proxy.remove()
        for server in self.c.servers:
            with contextlib.suppress(Exception):
                server.remove()


def say(text):
    print("cluster-test: " + text, flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--quick", action="store_true", help="in 4 minutes")
    p.add_argument("--seconds", type=int, help="of faults; 3600")
    p.add_argument("--slots", type=int, default=30)
    p.add_argument("--rate", type=float, default=60,
                   help="calls a second at most; 0: as many as can be")
    p.add_argument("--seed")
    p.add_argument("--only", action="append", choices=list(Faults.KINDS),
                   help="no other faults")
    p.add_argument("--keep", action="store_true",
                   help="keep the directory, on success too")
    args = p.parse_args()
    seconds = args.seconds or (100 if args.quick else 3600)
    seed = args.seed or secrets.token_hex(4)
    directory = tempfile.mkdtemp(prefix="cluster-torture-")
    say("seed %s, %d s; %s" % (seed, seconds, directory))

    audit.SLACK = 5
    audit.LONGEST = 120
    run = Run(seed, directory)
    begin = time.monotonic()
    try:
        try:
            asyncio.run(run.go(seconds, args.slots, args.rate, args.only))
            results = books.check(run)
        except Exception:
            results = [("it comes to an end", [traceback.format_exc()])]
        # nginx's own words, last: then it is stopped
        results.append(("logs", [] if run.c is None else run.c.stop()))
    finally:
        run.cleanup()
    failed = [name for name, faults in results if faults]
    for name, faults in results:
        say("%s: %s" % (name, "FAILED" if faults else "ok"))
        for fault in faults[:SHOWN]:
            say("    " + fault)
        if len(faults) > SHOWN:
            say("    and %d more" % (len(faults) - SHOWN))
    for line in books.summary(run, time.monotonic() - begin):
        say(line)
    if failed or args.keep:
        say("seed %s; %s is kept" % (seed, directory))
    else:
        shutil.rmtree(directory, ignore_errors=True)
    print("%d passed, %d failed" % (len(results) - len(failed), len(failed)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
