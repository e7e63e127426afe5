"""A proxy between a node and its database that delays, holds back and cuts.

usage: t/lib/faultproxy.py CONTROL

CONTROL is the path of a socket.  Each connection to it is a proxy, which ends
with it.  It takes lines, and answers each with a line of JSON:

listen AT TARGET
                paths of sockets or ports of loopback; once, before all others
pass            no more faults: what was held back is delivered
delay MS        each way, whatever is sent
hole            nothing is delivered either way, connections stay
hole-back       answers are not delivered
cut             resets all connections
refuse          closes new connections at once; with those that are there, cut
cut-after N     resets the connection when N more bytes of requests were
                delivered
cut-answer N    resets the connection that commits next: the database has
                committed, of its answer N bytes are delivered
status          what was delivered, and whether the last fault has happened

A fault of one connection (cut-after, cut-answer) happens once.  Those that
commit are found by the protocol, PostgreSQL 15, chapter 55, not through TLS.

Tests run it as a process of its own, so that they do not slow the database down
when they are busy: one for all their proxies.  It ends with its standard input.
"""

import asyncio
import atexit
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

LIMIT = 30          # seconds, to start and for a command
PART = 65536
SPECIAL = (80877103, 80877104, 80877102)    # SSL, GSS: answered by one byte;
                                            # a cancelled query: by none


class Messages:
    """Finds the messages of the server in what it sends."""

    def __init__(self):
        self.data = b""
        self.bytes = 0              # of answers without a message
        self.tls = False

    def feed(self, data):
        """(type, body) of those that have ended."""
        self.data += data
        while self.bytes and self.data:
            self.tls |= self.data[:1] in (b"S", b"G")
            self.data, self.bytes = self.data[1:], self.bytes - 1
        while not self.tls and len(self.data) >= 5:
            (size,) = struct.unpack(">i", self.data[1:5])
            if len(self.data) < size + 1:
                break
            yield self.data[:1], self.data[5:size + 1]
            self.data = self.data[size + 1:]
        if self.tls:
            self.data = b""


class Pair:
    """A connection of the node, and the one to the database."""

    def __init__(self, proxy, client, server):
        self.proxy = proxy
        self.client = client        # (reader, writer)
        self.server = server
        self.messages = Messages()
        self.head = b""             # of what the client sends first
        self.begun = False
        self.ready = False          # for statements
        self.kept = b""             # an answer that may be cut

    async def run(self):
        tasks = [asyncio.create_task(self.requests()),
                 asyncio.create_task(self.answers())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.client[1].close()
            self.server[1].close()

    def reset(self):
        for _, writer in (self.client, self.server):
            sock = writer.get_extra_info("socket")
            try:
                if sock.family == socket.AF_INET:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                    struct.pack("ii", 1, 0))
            except OSError:
                pass
            writer.transport.abort()

    async def requests(self):
        proxy = self.proxy
        while True:
            data = await self.client[0].read(PART)
            if not data:
                return
            self.begin(data)
            await proxy.wait_way("requests")
            if proxy.after is not None:
                if len(data) >= proxy.after:
                    data, proxy.after = data[:proxy.after], None
                    await self.send("requests", self.server, data)
                    proxy.happened += 1
                    self.reset()
                    return
                proxy.after -= len(data)
            await self.send("requests", self.server, data)

    def begin(self, data):
        """Counts the requests before the first message."""
        if self.begun:
            return
        self.head += data
        while len(self.head) >= 8:
            size, code = struct.unpack(">ii", self.head[:8])
            if code not in SPECIAL:
                self.begun = True
                return
            self.messages.bytes += code != SPECIAL[2]
            self.head = self.head[size:]

    async def answers(self):
        proxy = self.proxy
        while True:
            data = await self.server[0].read(PART)
            if not data:
                return
            ended = committed = False
            for kind, body in self.messages.feed(data):
                if kind == b"C" and body == b"COMMIT\0":
                    committed = True
                    proxy.counts["commits"] += 1
                ended |= kind == b"Z"
            if proxy.answer is not None and self.ready:
                self.kept += data
                if committed:
                    kept = self.kept[:proxy.answer]
                    proxy.answer = None
                    await self.send("answers", self.client, kept)
                    proxy.happened += 1
                    self.reset()
                    return
                if not ended:
                    continue
                data, self.kept = self.kept, b""
            elif self.kept:
                data, self.kept = self.kept + data, b""
            self.ready |= ended
            await proxy.wait_way("answers")
            await self.send("answers", self.client, data)

    async def send(self, way, to, data):
        if data:
            to[1].write(data)
            await to[1].drain()
            self.proxy.counts[way] += len(data)


class Server:

    def __init__(self):
        self.target = self.listener = None
        self.pairs = set()
        self.counts = dict.fromkeys(
            ("connections", "requests", "answers", "commits"), 0)
        self.happened = 0
        self.changed = asyncio.Condition()
        self.clear()

    async def listen(self, at, target):
        self.target = target
        self.listener = await listen(self.serve, at)
        if not at.isdigit():
            os.chmod(at, 0o777)

    def close(self):
        if self.listener:
            self.listener.close()
        self.cut()

    def cut(self):
        for pair in list(self.pairs):
            pair.reset()

    def clear(self):
        self.delay = 0
        self.held = ()              # ways
        self.refuses = False
        self.after = self.answer = None

    async def wait_way(self, way):
        if self.delay:
            await asyncio.sleep(self.delay)
        async with self.changed:
            await self.changed.wait_for(lambda: way not in self.held)

    async def serve(self, reader, writer):
        self.counts["connections"] += 1
        if self.refuses:
            writer.close()
            return
        try:
            server = await connect(self.target)
        except OSError:
            writer.close()          # the database is down
            return
        pair = Pair(self, (reader, writer), server)
        self.pairs.add(pair)
        try:
            await pair.run()
        finally:
            self.pairs.discard(pair)

    async def command(self, name, *args):
        if name == "listen":
            await self.listen(*args)
        elif name == "pass":
            self.clear()
        elif name == "delay":
            self.delay = float(args[0]) / 1000
        elif name == "hole":
            self.held = ("requests", "answers")
        elif name == "hole-back":
            self.held = ("answers",)
        elif name in ("cut", "refuse"):
            self.refuses = name == "refuse"
            self.cut()
        elif name == "cut-after":
            self.after = int(args[0])
        elif name == "cut-answer":
            self.answer = int(args[0])
        elif name != "status":
            return {"error": "unknown command"}
        if name != "status":
            self.happened = 0
        async with self.changed:
            self.changed.notify_all()
        return dict(self.counts, happened=self.happened,
                    open=len(self.pairs))


async def control(reader, writer):
    server = Server()
    try:
        while True:
            line = await reader.readline()
            if not line:
                return
            try:
                out = await server.command(*line.decode().split())
            except (ValueError, IndexError, TypeError, OSError) as e:
                out = {"error": repr(e)}
            writer.write(json.dumps(out).encode() + b"\n")
            await writer.drain()
    except OSError:
        pass
    finally:
        server.close()
        writer.close()


def connect(target):
    if target.isdigit():
        return asyncio.open_connection("127.0.0.1", int(target))
    return asyncio.open_unix_connection(target)


def listen(serve, at):
    if at.isdigit():
        return asyncio.start_server(serve, "127.0.0.1", int(at))
    return asyncio.start_unix_server(serve, at)


async def main(path):
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, ended.set)
    await listen(control, path)
    await ended.wait()


class Process:
    """That of all proxies, started with the first one."""

    lock = threading.Lock()
    directory = process = None

    @classmethod
    def connect(cls):
        with cls.lock:
            if cls.process is None:
                cls.start()
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(LIMIT)
        sock.connect(os.path.join(cls.directory, "control"))
        return sock

    @classmethod
    def start(cls):
        cls.directory = tempfile.mkdtemp(prefix="mgw-proxy-")
        control = os.path.join(cls.directory, "control")
        cls.process = subprocess.Popen([sys.executable, __file__, control],
                                       stdin=subprocess.PIPE)
        atexit.register(cls.stop)
        end = time.monotonic() + LIMIT
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as sock:
                    sock.connect(control)
                return
            except OSError:
                assert cls.process.poll() is None \
                    and time.monotonic() < end, "the proxy does not start"
                time.sleep(0.01)

    @classmethod
    def stop(cls):
        cls.process.kill()
        cls.process.wait()
        shutil.rmtree(cls.directory, ignore_errors=True)


class Proxy:
    """target: the path of a socket, or a port; the proxy listens on one of the
    same kind: directory, port are a node's host and port."""

    def __init__(self, target, port=5432):
        self.directory = tempfile.mkdtemp(prefix="mgw-proxy-")
        os.chmod(self.directory, 0o755)
        self.target = str(target)
        self.port = port
        if self.target.isdigit():
            import gateway
            self.port = gateway.free_port()
            self.at = str(self.port)
        else:
            self.at = os.path.join(self.directory, ".s.PGSQL.%d" % port)
        self.sock = None
        self.start()

    def start(self):
        self.sock = Process.connect()
        self.file = self.sock.makefile("rw")
        self.do("listen", self.at, self.target)

    def retarget(self, target):
        """Another database: connections are cut."""
        self.stop()
        for name in os.listdir(self.directory):
            os.unlink(os.path.join(self.directory, name))
        self.target = str(target)
        self.start()

    def do(self, command, *args):
        self.file.write(" ".join([command] + [str(a) for a in args]) + "\n")
        self.file.flush()
        out = json.loads(self.file.readline())
        assert "error" not in out, out
        return out

    def clear(self):
        return self.do("pass")

    def delay(self, seconds):
        return self.do("delay", seconds * 1000)

    def hole(self):
        return self.do("hole")

    def hole_back(self):
        return self.do("hole-back")

    def cut(self):
        return self.do("cut")

    def refuse(self):
        return self.do("refuse")

    def cut_after(self, n):
        return self.do("cut-after", n)

    def cut_answer(self, n=0):
        return self.do("cut-answer", n)

    def status(self):
        return self.do("status")

    def commits(self):
        return self.status()["commits"]

    def happened(self, timeout=LIMIT):
        """Waits until the last fault has happened; False if it does not."""
        end = time.monotonic() + timeout
        while not self.status()["happened"]:
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    def stop(self):
        """Returns when it no longer listens."""
        if self.sock:
            self.sock.shutdown(socket.SHUT_WR)
            self.file.read()
            self.file.close()
            self.sock.close()
            self.sock = None

    def remove(self):
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
