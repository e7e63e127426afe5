"""Starts nginx with the module in a directory of its own and looks after it.

MODELGW_NGINX    the binary; /usr/sbin/nginx
MODELGW_MODULE   the module; build/ngx_http_modelgw_module.so, empty: linked in
MODELGW_WORKERS  number of workers; 1
MODELGW_ASAN     set: built with a sanitizer, time and memory are not checked

The configuration is the default one of group() and Gateway, any part of which
a test may replace.  stop() checks each nginx: no critical messages in its log,
no sanitizer report, workers that exited with 0, and no secret in any log.
"""

import contextlib
import glob
import hashlib
import itertools
import json
import os
import random
import re
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import time
import weakref

import client

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
NGINX = os.environ.get("MODELGW_NGINX", "/usr/sbin/nginx")
MODULE = os.environ.get("MODELGW_MODULE", os.path.join(
    ROOT, "build/ngx_http_modelgw_module.so"))
WORKERS = int(os.environ.get("MODELGW_WORKERS") or 1)
ASAN = bool(os.environ.get("MODELGW_ASAN"))
GLIBC = tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")))
LOG_LEVEL = os.environ.get("MODELGW_LOG_LEVEL", "info")

STARTED = "start worker process "
STALL = 3           # seconds, proxy_read_timeout where an upstream stalls;
                    # longer than a busy machine needs to answer
SHUTDOWN = 10       # seconds until workers that exit close connections

CRITICAL = re.compile(r"\[(alert|emerg|crit)\]|Sanitizer"
                      r"|exited with (fatal )?code [1-9]|exited on signal")

QUOTED = re.compile(rb"(?m)^.*\[info\].* client sent "
                    rb"(duplicate|invalid) (header|host).*$")

LOG_FORMAT = """log_format test escape=json '{"tag":"$http_x_test_tag",'
        '"status":"$status","request":"$request","uri":"$uri",'
        '"id":"$modelgw_id","account":"$modelgw_account",'
        '"group":"$modelgw_group","model":"$modelgw_model",'
        '"upstream_model":"$modelgw_upstream_model",'
        '"code":"$modelgw_code","reason":"$modelgw_reason",'
        '"stream":"$modelgw_stream","input":"$modelgw_input_tokens",'
        '"output":"$modelgw_output_tokens",'
        '"cached":"$modelgw_cached_tokens",'
        '"first_byte":"$modelgw_first_byte_time",'
        '"completion":"$request_completion"}';"""


started = weakref.WeakSet()     # all Gateways so far, for reports


class Failed(Exception):
    """nginx did not start."""


def version():
    out = subprocess.run([NGINX, "-v"], capture_output=True, text=True)
    m = re.search(r"nginx/(\d+)\.(\d+)\.(\d+)", out.stderr)
    return tuple(int(n) for n in m.groups())


VERSION = version()


class Key:
    """A service key, made at random."""

    def __init__(self, id, group, options="", prefix="sk-eu-", secret=None):
        self.id = id
        self.group = group
        self.options = options
        self.secret = secret or prefix + secrets.token_hex(24)

    def digest(self):
        return "sha256:" + hashlib.sha256(self.secret.encode()).hexdigest()

    def line(self):
        return "%s %s %s %s;" % (self.id, self.digest(), self.group,
                                 self.options)

    def bearer(self):
        return ("Authorization", "Bearer " + self.secret)

    def header(self):
        return ("x-api-key", self.secret)


MODELS_A = """
        model fam-a-large  large-2026-01-01  input=3 output=15 cache_read=0.3
            cache_write=3.75 cache_write_1h=6 context=200000
            max_output=64000;
        model fam-a-small  small-2026-02-02  input=0.25 output=1.25;
        model fam-a-mini   mini-2026-03-03   input=0.1 output=0.5;
"""

MODELS_B = """
        model fam-b-one  one-0613  input=1 output=2;
        model fam-b-two  vendor/two:v2@eu+x  input=1 output=2;
        model ~^code-(.+)$  $1  input=0.5 output=1;
"""


def group(name, protocol, family, upstream, credential, models, extra=""):
    return """
    modelgw_group %s {
        protocol    %s;
        family      %s;
        owned_by    vendor-%s;
        upstream    %s;
        credential  %s;
        %s
        %s
    }""" % (name, protocol, family, name, upstream, credential, models,
            extra)


def group_a(scheme="http", name="api.vendor-a.test", models=MODELS_A,
            protocol="messages", credential="x-api-key file:$dir/a.secret",
            extra=""):
    return group("a", protocol, "fam-a-", "%s://%s" % (scheme, name),
                 credential, models, extra)


def group_b(scheme="http", name="api.vendor-b.test", models=MODELS_B,
            protocol="chat",
            credential="Authorization file:$dir/b.secret bearer", extra=""):
    return group("b", protocol, "fam-b- code-", "%s://%s" % (scheme, name),
                 credential, models, extra)


# below those that the kernel gives to clients, whose connections would keep one
# from being bound

PORTS = range(12000, 32000)
SLICE = 500


def own_ports():
    """Ports that no other process of the tests takes: the first of a slice is
    bound as long as this process runs, and stands for the others."""
    firsts = list(PORTS[::SLICE])
    random.shuffle(firsts)
    for first in firsts:
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", first))
            while True:
                yield from range(first + 1, first + SLICE)
    raise RuntimeError("other tests have all the ports")


ports = own_ports()


def free_port(address="127.0.0.1"):
    """A port that is free at the address, "" for all of them; the one that was
    returned longest ago."""
    for port in itertools.islice(ports, SLICE):
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind((address, port))
            return port
    raise RuntimeError("no free port")


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


def thread_state(pid, tid):
    """"R", "S", "D", "Z" as in proc(5)."""
    with open("/proc/%d/task/%s/stat" % (pid, tid)) as f:
        return f.read().rsplit(")", 1)[1].split()[0]


def dead(pid):
    """True if no thread of it is left, so that its files are closed; a zombie
    may remain."""
    try:
        return thread_state(pid, pid) in "ZX" \
            and os.listdir("/proc/%d/task" % pid) == [str(pid)]
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_dead(pids, timeout=client.LIMIT):
    """Waits until killed processes hold no lock any more."""
    end = time.monotonic() + timeout
    while not all(dead(pid) for pid in pids):
        assert time.monotonic() < end, "processes are left"
        time.sleep(0.01)


def ended_cpu():
    """Seconds of processor time of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def within(run, seconds, tries=5):
    """Calls run() until it takes less than so many seconds, and returns its
    result: a busy machine stalls at times, but a wait for a timer takes as
    long each time."""
    took = []
    for _ in range(tries):
        begin = time.monotonic()
        result = run()
        took.append(time.monotonic() - begin)
        if took[-1] < seconds:
            return result
    raise AssertionError("too slow: %s" % took)


class Gateway:
    """One nginx.

    a, b          the upstreams of the two groups
    groups        text of the modelgw_group blocks
    keys          list of Key, beside alice (a), bob (b), carol (a, but
                  fam-a-small only) and dave (b, expired)
    main, http, server, location
                  more directives for these contexts
    gateway       the whole /v1/ location, instead of the usual one
    locations     more locations, above /v1/
    upstreams     the upstream blocks, instead of the usual ones
    operators     list of operators.Operator; none: no modelgw_operators
    before        the command that runs nginx, and its arguments
    In all of these $dir is the directory, $a and $b are the upstreams' ports.
    """

    def __init__(self, directory, a, b, groups=None, keys=(), main="",
                 http="", server="", location="", gateway=None, locations="",
                 upstreams=None, workers=None, log_level=None, keys_text=None,
                 files=(), start_timeout=60, listen="", operators=None,
                 before=()):
        self.dir = str(directory)
        self.a = a
        self.b = b
        self.groups = groups
        self.main = main
        self.http = http
        self.server = server
        self.location = location
        self.gateway = gateway
        self.locations = locations
        self.upstreams = upstreams
        self.workers = workers or WORKERS
        self.log_level = log_level or LOG_LEVEL
        self.keys_text = keys_text
        self.files = dict(files)
        self.listen = listen
        self.operators = operators
        self.before = list(before)
        self.hidden = []            # more that no log may have
        self.start_timeout = start_timeout    # seconds
        self.expected = []
        self.quiet = True           # secrets must not show in the logs
        self.process = None
        self.starts = 0

        self.alice = Key("alice-1", "a", "account=alice")
        self.bob = Key("bob-1", "b")
        self.carol = Key("carol-1", "a", "models=fam-a-small account=carol")
        self.dave = Key("dave-1", "b", "expires=2020-01-01")
        self.keys = [self.alice, self.bob, self.carol, self.dave] + list(keys)
        self.secret_a = "upstream-a-" + secrets.token_hex(16)
        self.secret_b = "upstream-b-" + secrets.token_hex(16)

    # configuration

    def path(self, name):
        return os.path.join(self.dir, name)

    def fill(self, text):
        values = {"dir": self.dir, "port": self.port, "a": self.a.port,
                  "b": self.b.port}
        return re.sub(r"\$(dir|port|a|b)\b",
                      lambda m: str(values[m.group(1)]), text)

    def config(self):
        groups = self.groups
        if groups is None:
            groups = group_a() + group_b()
        upstreams = self.upstreams
        if upstreams is None:
            upstreams = """
    upstream api.vendor-a.test { server 127.0.0.1:$a; keepalive 16; }
    upstream api.vendor-b.test { server 127.0.0.1:$b; keepalive 16; }"""
        gateway = self.gateway
        if gateway is None:
            gateway = """
        location /v1/ {
            modelgw on;
            proxy_pass $modelgw_upstream;
            %s
        }""" % self.location

        old = VERSION < (1, 25, 1)
        return self.fill("""
%(load)s
%(user)s
daemon off;
worker_processes %(workers)d;
worker_shutdown_timeout %(shutdown)ds;
error_log %(dir)s/error.log %(level)s;
pid %(dir)s/nginx.pid;
%(main)s
events { worker_connections 2048; }

http {
    client_body_temp_path %(dir)s/tmp/body;
    proxy_temp_path %(dir)s/tmp/proxy;
    fastcgi_temp_path %(dir)s/tmp/fastcgi;
    uwsgi_temp_path %(dir)s/tmp/uwsgi;
    scgi_temp_path %(dir)s/tmp/scgi;
    %(log_format)s
    access_log %(dir)s/access.log test;
    %(http)s
    %(upstreams)s
    %(groups)s

    modelgw_keys { include %(dir)s/keys.conf; }

    server {
        listen 127.0.0.1:%(port)d backlog=1024 %(listen)s;
        listen 127.0.0.1:%(port2)d %(http2)s %(listen)s;
        server_name gateway.test;
        root %(dir)s/html;
        include %(proxy)s;
        %(server)s
        %(locations)s
        %(gateway)s
    }
}
""" % {"load": "load_module %s;" % MODULE if MODULE else "",
            "user": "user root;" if os.geteuid() == 0 else "",
            "workers": self.workers, "dir": self.dir,
            "shutdown": SHUTDOWN,
            "level": self.log_level, "main": self.main,
            "log_format": LOG_FORMAT, "http": self.http + (
                "" if self.operators is None else
                " modelgw_operators { include $dir/operators.conf; }"),
            "upstreams": upstreams, "groups": groups,
            "port": self.port, "port2": self.port2,
            "http2": "http2" if old else "", "listen": self.listen,
            "proxy": os.path.join(ROOT, "conf/modelgw/proxy.conf"),
            "server": self.server + ("" if old else "http2 on;"),
            "locations": self.locations, "gateway": gateway})

    def write(self):
        for sub in ("tmp", "html"):
            os.makedirs(self.path(sub), exist_ok=True)
        self.write_secret("a.secret", self.secret_a)
        self.write_secret("b.secret", self.secret_b)
        for name, text in self.files.items():
            with open(self.path(name), "w") as f:
                f.write(self.fill(text))
        self.write_keys()
        if self.operators is not None:
            self.write_operators()
        with open(self.path("nginx.conf"), "w") as f:
            f.write(self.config())

    def write_secret(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text + "\n")
        os.chmod(self.path(name), 0o600)

    def write_keys(self, text=None):
        if text is None:
            text = self.keys_text
        if text is None:
            text = "\n".join(key.line() for key in self.keys) + "\n"
        self.replace("keys.conf", text)

    def write_operators(self):
        self.replace("operators.conf", "".join(
            operator.line() + "\n" for operator in self.operators))

    def replace(self, name, text):
        tmp = self.path(name + ".new")
        with open(tmp, "w") as f:
            f.write(text)
        os.chmod(tmp, 0o600)
        os.rename(tmp, self.path(name))

    # the process

    def command(self, *args):
        return [NGINX, "-p", self.dir, "-c", self.path("nginx.conf"),
                "-e", self.path("error.log")] + list(args)

    def check(self):
        """nginx -t"""
        self.port, self.port2 = free_port(), free_port()
        self.write()
        return self.check_again()

    def check_again(self):
        """nginx -t with the existing files; it exits without freeing
        memory."""
        asan = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        return subprocess.run(self.command("-t"), capture_output=True,
                              text=True, timeout=120,
                              env=dict(os.environ, ASAN_OPTIONS=asan))

    def start(self):
        for attempt in range(5):
            self.port, self.port2 = free_port(), free_port()
            self.write()
            try:
                self._start()
                # nginx tries again, and another's connection had the port
                if self.log_count("bind() to 127.0.0.1:"):
                    self.expected.append(r"bind\(\) to 127\.0\.0\.1:\d+ failed"
                                         r" \(98")
                return self
            except Failed as e:
                if "bind()" not in str(e) or "Sanitizer" in str(e) \
                   or attempt == 4:
                    raise
                os.unlink(self.path("error.log"))
                os.truncate(self.path("stderr"), 0)
                # nginx leaves those that it has bound
                for path in glob.glob(self.path("*.sock")):
                    os.unlink(path)
        return self

    def _start(self):
        started.add(self)
        self.stderr = open(self.path("stderr"), "ab")
        before = self.log_count(STARTED)
        self.process = subprocess.Popen(self.before + self.command(),
                                        stderr=self.stderr,
                                        stdout=self.stderr,
                                        stdin=subprocess.DEVNULL)
        end = time.monotonic() + self.start_timeout
        while True:
            if self.process.poll() is not None:
                self.process = None
                text = self.read("stderr")
                # it exits without freeing memory if it refuses to start
                if "ERROR: LeakSanitizer" in text \
                   and "ERROR: AddressSanitizer" not in text:
                    os.truncate(self.path("stderr"), 0)
                raise Failed(text + self.read("error.log"))
            if self.log_count(STARTED) >= before + self.workers:
                try:
                    socket.create_connection(("127.0.0.1", self.port),
                                             1).close()
                    return
                except OSError:
                    pass
            if time.monotonic() > end:
                self.kill()
                raise Failed("no answer after %d s; " % self.start_timeout
                             + self.read("error.log"))
            time.sleep(0.01)

    def kill(self):
        """With its workers, which do not end with their master."""
        if self.process:
            pids = self.pids() if self.process.poll() is None else []
            self.process.kill()
            self.process.wait()
            self.process = None
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def kill_all(self):
        """Kills master and workers at once: all are stopped first, so that
        none survives to settle the calls of the others.  Returns the
        workers."""
        pids = self.pids()
        for sig in (signal.SIGSTOP, signal.SIGKILL):
            for pid in [self.process.pid] + pids:
                os.kill(pid, sig)
        return pids

    def power_cut(self):
        """The same, and waits until their files are closed: the next nginx
        locks the same ones."""
        pids = self.kill_all()
        self.process.wait()
        self.process = None
        wait_dead(pids)

    def kill_workers(self, timeout=client.LIMIT):
        """Kills the workers, and waits for new ones."""
        old = self.pids()
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + timeout
        while set(self.pids()) & set(old) or len(self.pids()) < len(old):
            assert time.monotonic() < end, "no new workers"
            time.sleep(0.01)

    def reload(self, ok=True, timeout=2 * client.LIMIT):
        """SIGHUP; returns when the old workers have stopped listening, or,
        with ok=False, when the new configuration was refused."""
        marks = {text: self.log_count(text) for text in
                 (STARTED, "gracefully shutting down",
                  "[emerg]", "reconfiguring")}
        self.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            grown = {text: self.log_count(text) - n
                     for text, n in marks.items()}
            if ok:
                assert not grown["[emerg]"], self.read("error.log")[-2000:]
                if grown[STARTED] >= self.workers \
                   and grown["gracefully shutting down"] >= self.workers:
                    return
            elif grown["[emerg]"]:
                self.expected.append(r"\[emerg\]")
                return
            time.sleep(0.01)
        raise AssertionError("reload: nothing happened; "
                             + self.read("error.log")[-2000:])

    def expect(self, pattern):
        """Lines of level error and above that match are part of the test."""
        self.expected.append(pattern)

    def stop(self):
        if self.process is None:
            return
        process = self.process
        process.send_signal(signal.SIGQUIT)
        try:
            process.wait(SHUTDOWN + client.LIMIT)
            slow = False
        except subprocess.TimeoutExpired:
            self.kill()
            slow = True
        self.process = None
        self.stderr.close()
        assert not slow, "nginx did not stop: " + self.read("error.log")[-2000:]
        assert process.returncode == 0, self.faults()
        assert not self.faults(), "\n".join(self.faults())
        if self.quiet and self.log_level != "debug":
            assert self.leaks() == [], "secrets in " + self.dir

    def pids(self):
        """The worker processes."""
        pid = self.process.pid
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            return [int(p) for p in f.read().split()]

    def wait_idle(self, seconds=0.2, timeout=client.LIMIT):
        """Waits until the workers are idle: for so many seconds none of their
        threads runs, or waits for a core or a disk."""
        end = since = time.monotonic()
        end += timeout
        while time.monotonic() - since < seconds:
            assert time.monotonic() < end, "the workers are not idle"
            if not self.idle():
                since = time.monotonic()
            time.sleep(0.02)

    def idle(self):
        try:
            return all(thread_state(pid, tid) == "S" for pid in self.pids()
                       for tid in os.listdir("/proc/%d/task" % pid))
        except (FileNotFoundError, ProcessLookupError):
            return False        # one has just exited

    def cpu(self):
        """Seconds of processor time that the workers have used."""
        ticks = 0
        for pid in self.pids():
            with open("/proc/%d/stat" % pid) as f:
                fields = f.read().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory(self, name="VmHWM"):
        """Bytes of memory of the largest worker: current (VmRSS) or peak."""
        return max(int(line.split()[1]) * 1024 for pid in self.pids()
                   for line in open("/proc/%d/status" % pid)
                   if line.startswith(name))

    def read(self, name):
        try:
            with open(self.path(name), errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def whole_lines(self, name):
        """Complete lines: the last one may be half written."""
        return self.read(name).rpartition("\n")[0].splitlines()

    def log_count(self, text):
        return self.read("error.log").count(text)

    def faults(self):
        return [line for name in ("error.log", "stderr")
                for line in (self.whole_lines(name) if self.process
                             else self.read(name).splitlines())
                if CRITICAL.search(line)
                and not any(re.search(e, line) for e in self.expected)]

    def secrets(self):
        out = [self.secret_a, self.secret_b]
        for key in self.keys + list(self.operators or ()):
            out += [key.secret,
                    hashlib.sha256(key.secret.encode()).hexdigest()]
        return out + self.hidden

    def leaks(self, more=()):
        """Secrets found where they must not be: (file, secret).  At level info
        nginx itself quotes headers that it refuses."""
        out = []
        private = ("nginx.conf", "keys.conf", "a.secret", "b.secret",
                   "keys.conf.new", "operators.conf", "operators.conf.new")
        for folder, _, names in os.walk(self.dir):
            for name in names:
                path = os.path.join(folder, name)
                if name in private or name.endswith(".pem") \
                   or not os.path.isfile(path):
                    continue
                with open(path, "rb") as f:
                    text = QUOTED.sub(b"", f.read())
                out += [(name, s) for s in self.secrets() + list(more)
                        if s.encode() in text]
        return out

    def logged(self, tag, timeout=client.LIMIT, name="access.log"):
        """The line of an access log of the request with the header
        X-Test-Tag."""
        end = time.monotonic() + timeout
        while True:
            for line in self.whole_lines(name):
                if '"tag":"%s"' % tag in line:
                    return json.loads(line)
            assert time.monotonic() < end, "nothing logged for " + tag
            time.sleep(0.02)

    def wait_log(self, pattern, times=1, timeout=client.LIMIT):
        """Waits until the error log has the pattern that many times."""
        end = time.monotonic() + timeout
        while len(re.findall(pattern, self.read("error.log"))) < times:
            assert time.monotonic() < end, self.read("error.log")[-2000:]
            time.sleep(0.02)

    def wait_metric(self, line, uri="/m", timeout=client.LIMIT):
        """Waits until a scrape of the location has the line: a request is
        counted when it has ended."""
        end = time.monotonic() + timeout
        while True:
            text = self.get(uri).body.decode()
            if line in text.split("\n"):
                return
            assert time.monotonic() < end, text
            time.sleep(0.02)

    # clients

    def connect(self, **kw):
        return client.Connection(self.port, **kw)

    def request(self, method, target, key=None, headers=(), body=None,
                version="h1", **kw):
        headers = list(headers)
        if key:
            headers.append(key.bearer())
        if version == "h2":
            return client.h2_call(self.port2, method, target, headers, body,
                                  **kw)
        return client.h1(self.port, method, target, headers, body, **kw)

    def post(self, target, body, key=None, headers=(), **kw):
        return self.request("POST", target, key, headers, body, **kw)

    def chat(self, body=None, key=None, headers=(), **kw):
        """POST /v1/chat/completions as bob."""
        return self.post("/v1/chat/completions",
                         chat() if body is None else body,
                         key or self.bob, headers, **kw)

    def messages(self, body=None, key=None, headers=(), **kw):
        """POST /v1/messages as alice."""
        return self.post("/v1/messages",
                         messages() if body is None else body,
                         key or self.alice, headers, **kw)

    def get(self, target, key=None, headers=(), **kw):
        return self.request("GET", target, key, headers, **kw)

    def untouched(self):
        """No request reached an upstream."""
        return not self.a.requests and not self.b.requests


def chat(model="fam-b-one", **more):
    return dict({"model": model,
                 "messages": [{"role": "user", "content": "Hi"}]}, **more)


def messages(model="fam-a-large", **more):
    return dict({"model": model, "max_tokens": 100,
                 "messages": [{"role": "user", "content": "Hi"}]}, **more)


def remove(directory):
    shutil.rmtree(directory, ignore_errors=True)
