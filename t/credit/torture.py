"""A torture test of credit: the ledger is compared with an invoice that the
upstream keeps, through kills of workers, reloads and power cuts.

usage: t/credit/torture.py [--quick] [--kills N] [--cuts N] [--seed S]
                    [--slots N] [--workers N] [--keep]
       t/credit/torture.py --again DIR

A scripted upstream keeps its own invoice; clients make random calls of all
APIs, passed through and translated, leave at random points; workers are killed with SIGKILL, prices
change by reload, credit is topped up, workers are killed and nginx is stopped
at once, its WAL is deleted, its disk is full while workers are killed, and
everything is killed at once ("power cut") and started again.  At the end the
metrics are compared with the rows since the last start, after which workers are
killed, too; and each row of the store is compared with what the upstream has sent for its call:
torture_audit.py.

What calls do follows from the seed, but not when: a seed repeats the same
calls, but not the time of a kill.  Prints the seed first, a summary last;
exits with 1 on any difference.  The check itself is tested: it is run again on
the same results with one error, which it must find.

A failed run keeps its directory: nginx's logs, the store, and in run.pickle
what the clients and the upstream saw; --again repeats the check on it.

Uses MODELGW_NGINX and MODELGW_MODULE as the other tests do.
"""

import argparse
import asyncio
import contextlib
import os
import pickle
import random
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../lib"))

import gateway as lib                                           # noqa: E402
import metrics                                                  # noqa: E402
import money                                                    # noqa: E402
import torture_audit as audit                                   # noqa: E402
import torture_answer                                           # noqa: E402
import torture_call                                             # noqa: E402
from gateway import Gateway, Key                                # noqa: E402
from torture_call import CHAT, PATHS, Call                      # noqa: E402
from torture_answer import EMBEDDINGS, MESSAGES, RESPONSES      # noqa: E402

RICH = ["rich-%d" % i for i in range(6)]
POOR = ["poor-%d" % i for i in range(4)]
FOUNDING = {"rich": "10000.00", "poor": "1.000000007"}
READ_TIMEOUT = 1.2          # seconds, the gateway's timeout for the upstream
TIMEOUT = 60                # seconds for anything, on a busy machine, too
SETTLED = 3                 # seconds until earlier disk activity has ended
LINES = 20                  # of each log of nginx, when it has failed
PARALLEL = 48               # of a key; it has that many slots for calls
DISK = 96                   # megabytes
LAST_KILLS = 5              # after all else, for the metrics

# a client that is done has seen this

LAST = {CHAT: b"data: [DONE]", MESSAGES: b"event: message_stop",
        RESPONSES: b"event: response.completed", EMBEDDINGS: b"}"}


class Invoice:
    """What the upstream did for a call."""

    def __init__(self, reused):
        self.received = time.time()
        self.reused = reused    # the connection had a request before
        self.sent = 0           # steps of the script
        self.ended = None       # when; None: not yet
        self.how = None         # "complete", "cut", "reset", "gone"
        self.paused = time.monotonic()
        self.late = False       # a pause was as long as the gateway's timeout

    def sends(self):
        now = time.monotonic()
        self.late |= now - self.paused > READ_TIMEOUT - 0.1
        self.paused = now
        self.sent += 1


class Visit:
    """What the client saw of a call."""

    def __init__(self):
        self.started = time.time()
        self.ended = None
        self.status = None
        self.body = b""
        self.size = 0           # of the body
        self.text = 0           # of a stream that broke off: in its events
        self.error = b""        # a refusal
        self.complete = False
        self.left = False
        self.refused = False    # connection refused

    def end(self, call):
        """Keeps what the check needs."""
        self.ended = time.time()
        self.size = len(self.body)
        if b"event: error\n" in self.body and call.speaks == RESPONSES:
            self.complete = False   # its last event says so
        if self.status != 200:
            self.error = self.body
        elif call.stream and not self.complete:
            self.text = torture_answer.text_of(self.body)
        self.body = b""


# The upstream.

class Upstream:

    def __init__(self, calls):
        self.calls = calls
        self.invoices = {}
        self.twice = []
        self.faults = []

    async def start(self):
        self.server = await asyncio.start_server(
            self.serve, "127.0.0.1", 0, backlog=512)
        self.port = self.server.sockets[0].getsockname()[1]

    async def serve(self, reader, writer):
        reused = False
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n")
                          if line.startswith(b"content-length:")]
                body = await reader.readexactly(
                    int(length[0].split(b":")[1]))
                if not await self.answer(reader, writer, body, reused):
                    break
                reused = True
        except (OSError, asyncio.IncompleteReadError,
                asyncio.CancelledError):
            pass
        except Exception as e:
            self.faults.append(repr(e))
            raise
        finally:
            writer.close()

    async def answer(self, reader, writer, body, reused):
        at = body.index(b'"up-')
        model = body[at + 4:body.index(b'"', at + 4)].decode()
        n = int(model.rsplit("-", 1)[1])
        call = self.calls[n]
        invoice = Invoice(reused)
        if n in self.invoices:
            self.twice.append(n)
        self.invoices[n] = invoice
        try:
            return await self.act(reader, writer, call, invoice)
        finally:
            invoice.ended = time.time()
            call.forget()

    async def act(self, reader, writer, call, invoice):
        await asyncio.sleep(call.wait)
        how = call.behaviour
        if how in ("early close", "early reset", "stall early"):
            return await self.end(reader, writer, how, invoice)

        steps = call.script()
        last = len(steps)
        if how in ("close", "reset", "stall"):
            last = 1 + int(call.cut * (last - 1))
        for data, _ in steps[:last]:
            if writer.is_closing():
                invoice.how = "gone"
                return False
            # before it is sent: a worker killed in between may have read it
            invoice.sends()
            writer.write(data)
            await writer.drain()
            if call.pause:
                await asyncio.sleep(call.pause)
        if last < len(steps):
            return await self.end(reader, writer, how, invoice)
        invoice.how = "complete"
        return True

    async def end(self, reader, writer, how, invoice):
        if "stall" in how:
            await asyncio.wait_for(reader.read(1), TIMEOUT)
            invoice.how = "stall"
        elif "reset" in how:
            reset(writer)
            invoice.how = "reset"
        else:
            invoice.how = "close"
        return False


def reset(writer):
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                    struct.pack("ii", 1, 0))
    writer.transport.abort()


# The clients.

class Clients:

    def __init__(self, run):
        self.run = run
        self.going = True
        self.faults = []

    async def slot(self):
        run = self.run
        while self.going:
            call = run.next_call()
            visit = run.visits[call.n] = Visit()
            try:
                await asyncio.wait_for(self.visit(call, visit), TIMEOUT)
            except asyncio.TimeoutError:
                self.faults.append("call %d: the client waited for %d s"
                                   % (call.n, TIMEOUT))
            except ConnectionRefusedError:
                visit.refused = True
                await asyncio.sleep(0.05)
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                visit.end(call)

    async def visit(self, call, visit):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.run.g.port, limit=1 << 22)
        try:
            await self.talk(call, visit, reader, writer)
        finally:
            if visit.left and call.leave_reset:
                reset(writer)
            writer.close()

    async def talk(self, call, visit, reader, writer):
        target = PATHS[call.speaks]
        key = self.run.keys[call.account, call.line[1]]
        head = ("POST %s HTTP/1.1\r\nHost: gateway.test\r\n"
                "Authorization: Bearer %s\r\nX-Test-Tag: %d\r\n"
                "Content-Length: %d\r\nConnection: close\r\n\r\n"
                % (target, key.secret, call.n, len(call.body)))
        data = head.encode() + call.body
        if call.leaves == "sending":
            writer.write(data[:len(data) - 1 - int(
                call.leave_part * (len(call.body) - 1))])
            await asyncio.sleep(call.leave_after)
            visit.left = True
            return
        writer.write(data)
        if call.leaves == "sent":
            await asyncio.sleep(call.leave_after)
            visit.left = True
            return
        await self.read(call, visit, reader)

    async def read(self, call, visit, reader):
        head = await reader.readuntil(b"\r\n\r\n")
        visit.status = int(head[9:12])
        chunked = b"transfer-encoding: chunked" in head.lower()
        if chunked:
            while True:
                size = int(await reader.readuntil(b"\r\n"), 16)
                visit.body += (await reader.readexactly(size + 2))[:size]
                if size == 0:
                    visit.complete = True
                    return
                if self.leaves(call, visit):
                    return
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
                while len(visit.body) < length:
                    part = await reader.read(length - len(visit.body))
                    if not part:
                        return
                    visit.body += part
                    if self.leaves(call, visit):
                        return
                visit.complete = True

    def leaves(self, call, visit):
        visit.left = (
            call.leaves == "reading" and len(visit.body) >= call.leave_bytes
            or call.leaves == "done" and LAST[call.speaks] in visit.body)
        return visit.left


# The disk: how long a sync takes at present.

class Disk(threading.Thread):

    def __init__(self, directory):
        super().__init__(daemon=True)
        self.path = os.path.join(directory, "sync")
        self.going = True
        self.syncs = []             # (end, seconds)

    def run(self):
        with open(self.path, "wb", 0) as f:
            while self.going:
                begin = time.time()
                f.seek(0)
                f.write(b"x" * 4096)
                os.fdatasync(f.fileno())
                end = time.time()
                self.syncs.append((end, end - begin))
                time.sleep(0.05)

    def longest(self, since):
        """Seconds of the longest sync that ended later, or is running."""
        last = self.syncs[-1][0] if self.syncs else time.time()
        return max([took for end, took in self.syncs if end >= since]
                   + [time.time() - last])


# The disruptions of the gateway.

class Disruptions:

    def __init__(self, run):
        self.run = run
        self.random = random.Random("%s/torment" % run.seed)

    def config(self):
        g, run = self.run.g, self.run
        run.versions.append(audit.Version(run.version))
        with open(g.path("nginx.conf"), "w") as f:
            g.groups = run.groups()
            f.write(g.config())

    async def kill(self):
        """One worker, with whatever it is doing."""
        pids = self.run.g.pids()
        if not pids:
            return
        pid = self.random.choice(pids)
        begin = time.time()
        with contextlib.suppress(ProcessLookupError):       # it was leaving
            os.kill(pid, signal.SIGKILL)
        self.run.kills.append((begin, time.time()))
        self.run.metered_kills += 1

    async def reload(self):
        """New prices; the old ones apply until all old workers have closed
        their sockets."""
        run = self.run
        old = set(run.g.pids())
        run.version += 1
        before = run.versions[-1]
        self.config()
        run.g.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            await asyncio.sleep(0.02)
            pids = set(run.g.pids())
            if len(pids - old) >= run.workers \
               and all(leaving(pid) for pid in old & pids):
                before.until = time.time()
                run.reloads += 1
                return
        run.faults.append("a reload has not come to an end")

    async def topup(self):
        run = self.run
        account = self.random.choice(POOR)
        amount = money.nano(self.random.choice(["0.25", "0.000000001",
                                                "1.5"]))
        run.topups.append((account, "t-%d" % len(run.topups), amount))
        await asyncio.to_thread(run.admin.topup, *run.topups[-1])

    async def cut(self):
        """Everything is killed at once, and started again."""
        run = self.run
        begin = time.time()
        sync = run.disk.longest(begin - SETTLED)
        pids = run.g.kill_all()
        # one that is in an fsync() exits, and releases its locks, after it
        await asyncio.to_thread(run.g.process.wait)
        await asyncio.to_thread(lib.wait_dead, pids)
        await asyncio.sleep(0.1)        # what they had sent is read
        run.cuts.append(audit.Cut(
            begin, time.time(), audit.WINDOW + audit.SYNCS * sync))
        run.keep_log()
        await asyncio.to_thread(run.restart)

    async def stop(self):
        """A fast stop, which settles running calls, and a start."""
        await self.end(signal.SIGTERM)

    async def kill_and_stop(self):
        """Workers are killed, and their master cannot replace them."""
        run = self.run
        pids = run.g.pids()
        pids = self.random.sample(pids, self.random.randint(1, len(pids)))
        begin = time.time()
        run.g.process.send_signal(signal.SIGSTOP)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):   # it was leaving
                os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(lib.wait_dead, pids)
        run.kills.append((begin, time.time()))
        run.g.process.send_signal(signal.SIGCONT)
        await self.end(self.random.choice([signal.SIGTERM, signal.SIGINT]))

    async def lose_wal(self):
        """The WAL is deleted while a writer has it open, which the first
        top-up ensures; the second one ensures that all is saved, so that a
        power cut loses nothing of it."""
        run = self.run
        await self.topup()
        os.unlink(run.g.path("data/ledger.db-wal"))
        run.wals += 1
        await self.topup()

    async def full(self):
        """The disk is full, and workers are killed, so that nothing that they
        have settled is written until there is room again."""
        run = self.run
        begin = time.time()
        await asyncio.to_thread(run.fill)
        for _ in range(3):
            await asyncio.sleep(self.random.uniform(0.2, 0.8))
            await self.kill()
        os.unlink(run.g.path("data/filler"))
        end = time.monotonic() + TIMEOUT
        while not run.recovered():
            await asyncio.sleep(0.05)
            if time.monotonic() > end:
                run.faults.append("calls are refused, the disk is not full")
                break
        run.fulls.append((begin, time.time()))

    async def end(self, sig):
        run = self.run
        begin = time.time()
        run.g.process.send_signal(sig)
        if await asyncio.to_thread(run.g.process.wait, TIMEOUT):
            run.faults.append("nginx was stopped, and exited with %s"
                              % run.g.process.returncode)
        run.stops.append((begin, time.time()))
        run.keep_log()
        await asyncio.to_thread(run.restart)

    async def all(self, kills, cuts):
        for i in range(kills):
            await asyncio.sleep(self.random.uniform(0.1, 0.7))
            await self.kill()
            if i % 7 == 3:
                await self.reload()
            if i % 5 == 1 and self.run.admin:
                await self.topup()
            if i % 8 == 5:
                await self.kill_and_stop()
            if i % 8 == 2 and self.run.admin:
                await self.lose_wal()
            if i % 12 == 9 and self.run.mounted:
                await self.full()
        for i in range(cuts):
            await asyncio.sleep(self.random.uniform(0.2, 1.5))
            if i % 3 == 1 and self.run.admin:
                await self.lose_wal()
            await self.cut()
            if i % 3 == 0:
                await asyncio.sleep(self.random.uniform(0.2, 1.5))
                await self.stop()
        for i in range(LAST_KILLS):
            await asyncio.sleep(self.random.uniform(0.1, 0.7))
            await self.kill()


def leaving(pid):
    try:
        with open("/proc/%d/cmdline" % pid) as f:
            return "shutting down" in f.read()
    except OSError:
        return True


class Run:

    # what the check needs

    KEPT = ("seed", "versions", "calls", "visits", "invoices", "kills",
            "cuts", "stops", "topups", "reloads", "faults", "keys", "live",
            "store", "fulls", "wals", "metrics", "first", "metered_kills")

    def __getstate__(self):
        return {name: getattr(self, name, None) for name in self.KEPT}

    def keep(self):
        for call in self.calls.values():
            call.forget()
        with open(os.path.join(self.dir, "run.pickle"), "wb") as f:
            pickle.dump(self, f)

    def __init__(self, seed, workers, directory, apis=None):
        self.seed = seed
        self.apis = apis
        self.workers = workers
        self.dir = directory
        self.version = 0
        self.versions = []
        self.calls = {}
        self.visits = {}
        self.kills, self.cuts, self.stops, self.topups = [], [], [], []
        self.fulls, self.wals, self.mounted = [], 0, None
        self.reloads = 0
        self.faults = []
        self.logs = 0
        self.admin = None
        self.first = 0          # calls up to here are of an earlier nginx
        self.metered_kills = 0  # since then
        self.metrics = None

    def next_call(self):
        n = len(self.calls) + 1
        call = self.calls[n] = Call(self.seed, n, RICH, POOR, self.apis)
        return call

    def groups(self):
        prices = torture_call.lines(self.version)

        def models(prefix):
            return "\n".join(
                "model ~^(%s-.+)$ up-$1 %s;" % (name, line.text())
                for name, line in prices.items() if name.startswith(prefix))

        return (lib.group("m", "messages", "tm-", "http://m.test",
                          "x-api-key file:$dir/a.secret", models("tm-"))
                + lib.group("c", "chat", "tc-", "http://c.test",
                            "x-api-key file:$dir/b.secret", models("tc-"))
                + lib.group("d", "chat", "td-", "http://d.test",
                            "x-api-key file:$dir/b.secret", models("td-"))
                + lib.group("r", "responses", "tr-", "http://c.test",
                            "x-api-key file:$dir/b.secret", models("tr-"))
                + lib.group("e", "embeddings", "te-", "http://c.test",
                            "x-api-key file:$dir/b.secret", models("te-")))

    def make(self, port):
        """The gateway; the accounts get their credit by founding: first the
        rich, then the poor."""
        self.mount()
        dead = socket.socket()
        dead.bind(("127.0.0.1", 0))
        self.dead = dead

        class Port:
            pass

        Port.port = port
        live = "server 127.0.0.1:%d max_fails=0;" % port
        refuses = "server 127.0.0.1:%d max_fails=0;" % dead.getsockname()[1]
        self.keys = {(account, group): Key(
            "%s-%s" % (account, group), group,
            "account=%s concurrency=%d" % (account, PARALLEL))
            for account in RICH + POOR for group in "mcdre"}
        self.g = g = Gateway(
            self.dir, Port, Port, groups=self.groups(), workers=self.workers,
            log_level="notice",
            http=self.http("rich"),
            location="proxy_read_timeout %dms;" % (READ_TIMEOUT * 1000),
            locations=audit.ADMIN_LOCATION + metrics.LOCATION,
            upstreams="""
    upstream m.test { %s keepalive 64; }
    upstream c.test { %s %s keepalive 64; }
    upstream d.test { %s }""" % (live, live, refuses, refuses))
        g.keys = [k for k in self.keys.values() if k.id.startswith("rich")]
        g.expect(r"exited on signal 9")
        g.expect("the ledger cannot be written.*(full|I/O error)")
        # logged by nginx itself for a worker that is stopped after a reload
        g.expect("open socket #[0-9]+ left in connection|aborting$")
        self.versions.append(audit.Version(0))
        g.start()
        g.http = self.http("poor")
        g.keys = list(self.keys.values())
        g.write_keys()
        with open(g.path("nginx.conf"), "w") as f:
            f.write(g.config())
        g.reload()
        self.admin = audit.Admin.of(g)
        self.store = audit.Store(g.path("data/ledger.db"))

    def mount(self):
        """A separate file system for the ledger, which can be filled."""
        disk = os.path.join(self.dir, "data")
        os.mkdir(disk)
        p = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%dm" % DISK,
                            "none", disk], capture_output=True, text=True)
        if p.returncode:
            print("torture: NOTICE: the disk is never full: "
                  + p.stderr.strip(), flush=True)
        else:
            self.mounted = disk

    def unmount(self):
        """Keeps the contents in the directory."""
        if self.mounted:
            kept = self.mounted + ".kept"
            shutil.copytree(self.mounted, kept)
            subprocess.run(["umount", "-l", self.mounted], check=True)
            os.rmdir(self.mounted)
            os.rename(kept, self.mounted)

    def fill(self):
        with open(self.g.path("data/filler"), "wb", 0) as f:
            try:
                while True:
                    f.write(b"x" * 65536)
            except OSError:
                pass

    def recovered(self):
        """By the log, the disk was full, and is not any more."""
        full = self.g.log_count("the ledger cannot be written")
        return 0 < full == self.g.log_count("the ledger is written again")

    def http(self, kind):
        return ("modelgw_zone 8m; modelgw_ledger $dir/data/ledger.db; "
                "modelgw_founding_credit %s;" % FOUNDING[kind])

    def keep_log(self):
        self.logs += 1
        os.rename(self.g.path("error.log"),
                  self.g.path("error.log.%d" % self.logs))

    def restart(self):
        self.first = self.store.last()
        self.metered_kills = 0
        self.g.start()

    async def settle(self):
        """Waits until no call is open, drained ones included."""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            await asyncio.sleep(0.1)
            if not await asyncio.to_thread(self.busy):
                return
        self.faults.append("holds remain: %s"
                           % self.store.holds()[:5])

    def busy(self):
        return self.store.holds() or self.admin and any(
            a["held"] for a in self.admin.accounts())

    async def concurrency(self):
        """No slot of a call has leaked: a key may have as many as before."""
        key = self.keys[RICH[0], "c"]

        async def one(i):
            call = self.next_call()
            while (call.api != CHAT or call.dead or call.leaves != "never"
                   or call.behaviour != "ok"):
                self.calls.pop(call.n)
                self.skip += 1
                call = self.calls[call.n] = Call(
                    "%s/again/%d" % (self.seed, self.skip), call.n, RICH,
                    RICH)
            call.account = RICH[0]
            call.wait = 0.5
            visit = self.visits[call.n] = Visit()
            try:
                await self.clients.visit(call, visit)
            finally:
                visit.end(call)
            return visit.status

        self.skip = 0
        statuses = await asyncio.gather(*[one(i) for i in range(PARALLEL)])
        if {429, 503} & set(statuses):
            self.faults.append("%d calls at once of key %s: %s" % (
                PARALLEL, key.id, sorted(statuses)))

    async def go(self, kills, cuts, slots):
        up = self.up = Upstream(self.calls)
        await up.start()
        await asyncio.to_thread(self.make, up.port)
        self.clients = clients = Clients(self)
        self.disk = Disk(self.dir)
        self.disk.start()
        tasks = [asyncio.create_task(clients.slot()) for _ in range(slots)]
        try:
            await Disruptions(self).all(kills, cuts)
        finally:
            self.disk.going = clients.going = False
            await asyncio.gather(*tasks)
        await self.settle()
        await self.concurrency()
        await self.settle()
        self.live = self.admin and self.admin.accounts()
        self.metrics = await asyncio.to_thread(self.scrape)
        await asyncio.to_thread(self.stop)
        self.invoices = up.invoices
        self.faults += up.faults + clients.faults
        self.faults += ["call %d was sent twice" % n for n in up.twice]

    def scrape(self):
        """When all calls are written."""
        end = time.monotonic() + TIMEOUT
        while True:
            m = metrics.scrape(self.g)
            if m.one("modelgw_ledger_queue_calls") == 0:
                return m
            if time.monotonic() > end:
                self.faults.append("calls are not written")
                return m
            time.sleep(0.05)

    def stop(self):
        try:
            self.g.stop()
        except AssertionError as e:
            self.faults.append("nginx: " + str(e)[-2000:])
        for i in range(self.logs):
            for line in self.g.read("error.log.%d" % (i + 1)).splitlines():
                if lib.CRITICAL.search(line) \
                   and not any(re.search(e, line)
                               for e in self.g.expected):
                    self.faults.append("nginx: " + line)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--quick", action="store_true")
    p.add_argument("--kills", type=int)
    p.add_argument("--cuts", type=int)
    p.add_argument("--slots", type=int, default=40)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--seed", default=None)
    p.add_argument("--api", action="append", choices=list(torture_call.APIS),
                   help="no other calls but these")
    p.add_argument("--keep", action="store_true",
                   help="keep the directory, on success too")
    p.add_argument("--again", metavar="DIR",
                   help="check what is kept of a run once more")
    args = p.parse_args()
    if args.again:
        return again(args.again)
    kills = args.kills if args.kills is not None else (
        20 if args.quick else 1000)
    cuts = args.cuts if args.cuts is not None else (3 if args.quick else 100)
    seed = args.seed or secrets.token_hex(4)
    directory = tempfile.mkdtemp(prefix="torture-")
    print("torture: seed %s, %d kills, %d power cuts; %s"
          % (seed, kills, cuts, directory), flush=True)

    run = Run(seed, args.workers, directory, args.api)
    begin = time.monotonic()
    try:
        asyncio.run(run.go(kills, cuts, args.slots))
        faults = run.faults + audit.verify(run)
        faults += audit.mutants(run)
    except Exception:
        faults = ["it came to no end: " + traceback.format_exc()]
    finally:
        if getattr(run, "g", None) and run.g.process:
            for pid in run.g.pids() + [run.g.process.pid]:
                os.kill(pid, signal.SIGKILL)

    run.unmount()
    if faults or args.keep:
        run.keep()
    say(run, faults, time.monotonic() - begin)
    if faults:
        show_logs(directory)
        print("torture: FAILED, %d differences; seed %s; %s is kept"
              % (len(faults), seed, directory))
        return 1
    if args.keep:
        print("torture: kept in " + directory)
    else:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def show_logs(directory):
    for name in sorted(os.listdir(directory)):
        if name.startswith("error.log"):
            with open(os.path.join(directory, name), errors="replace") as f:
                lines = f.readlines()[-LINES:]
            print("torture: the end of %s:\n%s" % (name, "".join(lines)))


def again(directory):
    with open(os.path.join(directory, "run.pickle"), "rb") as f:
        run = pickle.load(f)
    run.store = audit.Store(os.path.join(directory, "data/ledger.db"))
    faults = run.faults + audit.verify(run)
    say(run, faults, 0)
    return 1 if faults else 0


def say(run, faults, seconds):
    for fault in faults[:40]:
        print("torture: " + fault)
    if len(faults) > 40:
        print("torture: and %d more" % (len(faults) - 40))
    print(audit.summary(run, seconds))


if __name__ == "__main__":
    sys.exit(main())
