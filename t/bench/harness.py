"""The processes of the benchmark: the upstream, the nginx of each case, and a
request that checks the answer of a case.

MODELGW_NGINX     the binary; /usr/sbin/nginx
MODELGW_MODULE    the module; build/ngx_http_modelgw_module.so
MODELGW_BENCH     the directory of programs compiled from t/bench; build/bench
MODELGW_MODULES   the directory of nginx's own modules
MODELGW_POSTGRES  programs of PostgreSQL, of the cases that need it
"""

import contextlib
import hashlib
import http.client
import json
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

import bodies
import cases

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NGINX = os.environ.get("MODELGW_NGINX", "/usr/sbin/nginx")
MODULE = os.environ.get("MODELGW_MODULE", os.path.join(
    ROOT, "build/ngx_http_modelgw_module.so"))
BENCH = os.environ.get("MODELGW_BENCH", os.path.join(ROOT, "build/bench"))

KEYS = 100      # that call; tpm ends at 1e9, which is too little for one
CORES = sorted(os.sched_getaffinity(0))
CORE, OTHER = CORES[0], CORES[-1]

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages",
         "responses": "/v1/responses", "embeddings": "/v1/embeddings"}

MEMORY = "/dev/shm"

# of files: two of a stream, and some
FILES = min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


CONF = """
%(load)s
%(user)s
daemon off;
master_process %(master)s;
worker_processes 1;
worker_cpu_affinity %(affinity)s;
worker_rlimit_nofile %(files)d;
error_log %(dir)s/error.log warn;
pid %(dir)s/nginx.pid;
events { worker_connections %(connections)d; }

http {
    client_body_temp_path %(dir)s/body;
    proxy_temp_path %(dir)s/proxy;
    fastcgi_temp_path %(dir)s/fastcgi;
    uwsgi_temp_path %(dir)s/uwsgi;
    scgi_temp_path %(dir)s/scgi;
    access_log off;

    upstream upstream.test {
        server 127.0.0.1:%(upstream)d;
        keepalive 512;
        keepalive_requests 1000000000;
    }
    %(http)s
    server {
        listen 127.0.0.1:%(port)d backlog=4096;
        include %(dir)s/proxy.conf;
        keepalive_requests 1000000000;
        %(server)s
    }
}
"""


def secret(n):
    return "sk-eu-" + hashlib.sha256(b"bench %d" % n).hexdigest()[:48]


def key_line(n, options=""):
    return "bench-%d sha256:%s bench %s;\n" % (
        n, hashlib.sha256(secret(n).encode()).hexdigest(), options)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_port(port, process, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            sys.exit("%s ended" % process.args[0])
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.02)
    sys.exit("nothing listens on port %d" % port)


def module(name):
    """The file of a module of cases.py."""
    own = {"modelgw": MODULE, "stage": os.path.join(BENCH, "stage.so")}
    return own.get(name) or os.path.join(cases.MODULES,
                                         "ngx_%s_module.so" % name
                                         if name != "ndk_http"
                                         else "ndk_http_module.so")


class Process:

    def shipped(self):
        pass

    def stop(self, how=signal.SIGTERM, seconds=10):
        self.process.send_signal(how)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def pids(self):
        return [self.process.pid]

    def rss_kb(self):
        total = 0
        for pid in self.pids():
            with open("/proc/%d/statm" % pid) as f:
                total += int(f.read().split()[1])
        return total * os.sysconf("SC_PAGE_SIZE") // 1024

    def cpu_us(self):
        """Of all threads, user and system; and of those beside the first."""
        total = beside = 0
        for pid in self.pids():
            for thread in os.listdir("/proc/%d/task" % pid):
                path = "/proc/%d/task/%s/schedstat" % (pid, thread)
                with open(path) as f:
                    us = int(f.read().split()[0]) / 1000
                total += us
                if int(thread) != pid:
                    beside += us
        return total, beside


class Upstream(Process):

    def __init__(self, directory):
        for name, make in bodies.ANSWERS.items():
            with open(os.path.join(directory, name), "wb") as f:
                f.write(make())
        self.port = free_port()
        self.process = subprocess.Popen(
            ["taskset", "-c", str(OTHER), os.path.join(BENCH, "upstream"),
             str(self.port), directory])
        wait_port(self.port, self.process)


class Direct(Process):
    """No gateway, and so no cost."""

    def __init__(self, upstream):
        self.port = upstream.port
        self.process = upstream.process

    def cpu_us(self):
        return 0, 0

    def rss_kb(self):
        return 0

    def stop(self):
        pass


class Nginx(Process):
    """The nginx of one case.  "before" is a command that runs it, many times
    slower; with it, all is one process, and threads have more time, so that
    they do as much at a time as they do else."""

    def __init__(self, case, directory, upstream, before=()):
        self.dir = directory
        self.port = free_port()
        self.alone = bool(before)
        os.mkdir(directory)
        self.write("secret", "an-upstream-credential\n")
        self.database = None
        if "$conninfo" in case.get("http", ""):
            self.database = database()
            self.write("password", self.database.password)
        self.write_keys(case)
        self.write_proxy()
        self.write("nginx.conf", CONF % {
            "load": "\n".join("load_module %s;" % module(name)
                              for name in case["modules"]),
            "user": "user root;" if os.geteuid() == 0 else "",
            "master": "off" if self.alone else "on",
            "affinity": bin(1 << CORE)[2:], "dir": directory, "files": FILES,
            # nginx closes kept ones when less than a sixteenth is free
            "connections": 2 * FILES,
            "upstream": upstream.port, "port": self.port,
            "http": self.fill(case.get("http", "")),
            "server": self.fill(case["server"])})
        with open(directory + "/stderr", "wb") as stderr:
            self.process = subprocess.Popen(
                list(before) + [NGINX, "-p", directory, "-c",
                                directory + "/nginx.conf", "-e",
                                directory + "/error.log"],
                stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr,
                env=dict(os.environ, **case.get("env", {})))
        try:
            wait_port(self.port, self.process, 120)
        except SystemExit:
            sys.stderr.write(self.read("stderr") + self.read("error.log"))
            raise
        while not self.pids():
            time.sleep(0.02)

    def fill(self, text):
        if self.database:
            text = text.replace("$conninfo", self.database.conninfo())
        for name, slow in (("flush", "flush=100ms"),
                           ("exchange", "exchange=1s")):
            text = text.replace("$" + name, slow if self.alone else "")
        return text.replace("$dir", self.dir).replace("$here", HERE)

    def write_keys(self, case):
        """keys.conf for the gateway, the digests for Lua and njs."""
        options = case.get("keys", "")
        self.write("keys.conf", "".join(
            key_line(n, options) for n in range(case.get("all_keys", KEYS))))
        digests = [hashlib.sha256(secret(n).encode()).hexdigest()
                   for n in range(KEYS)]
        self.write("keys", "\n".join(digests) + "\n")
        self.write("keys.json", json.dumps(dict.fromkeys(digests, True)))

    def write_proxy(self):
        """The shipped one, but connections are kept without limit."""
        with open(os.path.join(ROOT, "conf/modelgw/proxy.conf")) as f:
            lines = [line for line in f
                     if not line.startswith("keepalive_requests")]
        self.write("proxy.conf", "".join(lines))

    def write(self, name, text):
        path = os.path.join(self.dir, name)
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600),
                  "w") as f:
            f.write(text)

    def read(self, name):
        with open(os.path.join(self.dir, name), errors="replace") as f:
            return f.read()

    def pids(self):
        """The worker; the old ones of a reload, too."""
        pid = self.process.pid
        if self.alone:
            return [pid]
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            return [int(child) for child in f.read().split()]

    def shipped(self):
        """Waits until the database of a cluster has the node's calls: that is
        a part of what they cost."""
        if not self.database:
            return
        end = time.monotonic() + 60
        pos = at = None
        while pos is None or pos != at:
            if time.monotonic() > end:
                sys.exit("the database has %s of %s calls" % (pos, at))
            time.sleep(0.05)
            pos = self.database.one("SELECT pos FROM modelgw.nodes")
            with contextlib.closing(sqlite3.connect(
                    "file:%s/ledger.db?mode=ro" % self.dir, uri=True)) as db:
                (at,) = db.execute("SELECT max(pos) FROM outbox").fetchone()

    def stop(self):
        """A signal just before the process waits for events is handled with
        the next event."""
        if self.alone:
            time.sleep(0.2)
            self.process.send_signal(signal.SIGQUIT)
            time.sleep(0.2)
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                pass
        super().stop(signal.SIGQUIT, 60)
        if self.database:
            self.database.remove()


@contextlib.contextmanager
def spinner(wanted):
    """A process that always runs beside wrk, if it is wanted."""
    if not wanted:
        yield
        return
    process = subprocess.Popen(["taskset", "-c", str(OTHER), "sh", "-c",
                                "while :; do :; done"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def database():
    """A PostgreSQL server, as for tests of clusters, away from the worker, and
    for many calls: its files are in memory, as its disk would be that of the
    ledger, and it does not write checkpoints all the time."""
    sys.path.insert(0, os.path.join(ROOT, "t/lib"))
    import postgres
    sys.path.pop(0)
    os.sched_setaffinity(0, {OTHER})
    tempfile.tempdir = MEMORY if os.access(MEMORY, os.W_OK) else None
    try:
        return postgres.Server("shared_buffers = 512MB\n"
                               "max_wal_size = 8GB\n"
                               "checkpoint_timeout = 1h")
    finally:
        tempfile.tempdir = None
        os.sched_setaffinity(0, CORES)


def start(name, directory, upstream, before=()):
    if name == "direct":
        return Direct(upstream)
    return Nginx(cases.CASES[name], os.path.join(directory, name), upstream,
                 before)


def request(port, speaks, body, headers=(), n=0, connection=None):
    """One call; (status, answer)."""
    h = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    h.request("POST", PATHS[speaks], body, dict(
        headers, **{"Content-Type": "application/json",
                    "Authorization": "Bearer " + secret(n)}))
    r = h.getresponse()
    answer = r.read()
    if connection is None:
        h.close()
    return r.status, answer


def check(name, gateway, kind, body, headers=()):
    """Checks the answer once, before it is requested a thousand times."""
    speaks = cases.CASES[name]["speaks"]
    status, answer = request(gateway.port, speaks, body, headers)
    end = time.monotonic() + 60         # a node joins its cluster first
    while status == 503 and time.monotonic() < end:
        time.sleep(0.1)
        status, answer = request(gateway.port, speaks, body, headers)
    last = bodies.ENDS[speaks] if kind == "stream" else b"}"
    words = b"" if speaks == "embeddings" else bodies.LAST_WORDS[kind]
    if status != 200 or not answer.endswith(last) or words not in answer:
        sys.exit("%s, %s: status %d\n%s" % (name, kind, status,
                                            answer.decode()[-500:]))
    ours = bodies.MODEL if "modelgw" in cases.CASES[name].get("modules", ()) \
        else bodies.UPSTREAM_MODEL
    if name in ("auth", "scan"):
        ours = bodies.UPSTREAM_MODEL
    if ours.encode() not in answer:
        sys.exit("%s, %s: not the model \"%s\"\n%s" % (
            name, kind, ours, answer.decode()[:500]))
