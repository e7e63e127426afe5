"""What a gateway costs: CPU per request, latency and memory of each case beside
plain proxy_pass to the same upstream, in one run.

usage: t/bench/gateway.py [--quick] [--rounds N] [--seconds S] [--case NAME]...
                          [--load NAME]... [--out FILE]

MODELGW_NGINX     the binary; /usr/sbin/nginx
MODELGW_MODULE    the module; build/ngx_http_modelgw_module.so
MODELGW_UPSTREAM  t/bench/upstream.c, compiled; build/bench/upstream

Each case is an nginx of its own with one worker on core 0; wrk and the upstream
are on core 1.  CPU is what the kernel counts for the worker's threads (user and
system), divided by the requests that wrk saw answered.  Rounds are interleaved:
in each, every case gets its turn, and a ratio is that of two neighbours; what
is printed are the medians.  The rows are also in the file FILE, as JSON.

To measure something more, add a line to CASES or LOADS below.
"""

import argparse
import hashlib
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import bodies

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NGINX = os.environ.get("MODELGW_NGINX", "/usr/sbin/nginx")
MODULE = os.environ.get("MODELGW_MODULE", os.path.join(
    ROOT, "build/ngx_http_modelgw_module.so"))
UPSTREAM = os.environ.get("MODELGW_UPSTREAM", os.path.join(
    ROOT, "build/bench/upstream"))

KEY = "sk-eu-" + hashlib.sha256(b"of the benchmark").hexdigest()[:48]
CORES = sorted(os.sched_getaffinity(0))
CORE, OTHER = CORES[0], CORES[-1]

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}
SIZES = {"1k": 1 << 10, "20k": 20 << 10, "200k": 200 << 10, "2m": 2 << 20}


# What is between client and upstream.  "http" and "server" are pieces of its
# configuration, "speaks" is what the client speaks.

GATEWAY = """
    modelgw_group g {
        protocol    %s;
        family      bench-;
        owned_by    vendor;
        upstream    http://upstream.test;
        credential  Authorization file:$dir/secret bearer;
        model bench-large  large-2026-01-01  input=3 output=15
            max_output=64000;
    }
    modelgw_keys { include $dir/keys.conf; }
"""
LOCATION = "location /v1/ { modelgw on; proxy_pass $modelgw_upstream; }"

CASES = {
    "plain": {
        "about": "proxy_pass with keep-alive",
        "server": "location /v1/ { proxy_buffering off; "
                  "proxy_pass http://upstream.test; }",
        "speaks": "chat"},
    "chat": {
        "about": "the gateway, chat to chat",
        "http": GATEWAY % "chat", "server": LOCATION, "speaks": "chat"},
    "messages": {
        "about": "the gateway, messages to messages",
        "http": GATEWAY % "messages", "server": LOCATION,
        "speaks": "messages"},
    "translate": {
        "about": "the gateway, chat to messages",
        "http": GATEWAY % "messages", "server": LOCATION, "speaks": "chat"},
}


# What goes through it: kind and size of the body, connections, and whether a
# stream comes in one write or in one for each event.

LOADS = {
    "json-1k": ("json", "1k", 32, "one"),
    "json-20k": ("json", "20k", 32, "one"),
    "json-200k": ("json", "200k", 32, "one"),
    "json-20k-1": ("json", "20k", 1, "one"),
    "stream": ("stream", "1k", 32, "one"),
    "stream-each": ("stream", "1k", 32, "each"),
}
QUICK = ("json-20k", "stream")


# What issue 3 asks for: (what, limit, the figure from a function that gives
# the median CPU of a case, or of several cases in the same round)

def own(cpu, case):
    return cpu(case) - cpu("plain")


TARGETS = [
    ("translated 20 KB request: CPU, times the untranslated chat call's",
     "json-20k", 1.5, lambda cpu: cpu("translate") / cpu("chat")),
    ("the same, without what plain proxy_pass costs in both",
     "json-20k", 1.5,
     lambda cpu: own(cpu, "translate") / own(cpu, "chat")),
    ("translated stream: us an event over messages to messages",
     "stream", 2,
     lambda cpu: (cpu("translate") - cpu("messages")) / bodies.EVENTS),
    ("translated stream: us an event over chat to chat",
     "stream", 2, lambda cpu: (cpu("translate") - cpu("chat")) / bodies.EVENTS),
    ("written event by event: us an event over messages to messages",
     "stream-each", 2,
     lambda cpu: (cpu("translate") - cpu("messages")) / bodies.EVENTS),
]


CONF = """
%(load)s
%(user)s
daemon off;
worker_processes 1;
worker_cpu_affinity %(affinity)s;
error_log %(dir)s/error.log warn;
pid %(dir)s/nginx.pid;
events { worker_connections 4096; }

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
        keepalive_requests 1000000;
    }
    %(http)s
    server {
        listen 127.0.0.1:%(port)d backlog=4096;
        include %(proxy)s;
        %(server)s
    }
}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_port(port, process):
    for _ in range(200):
        if process.poll() is not None:
            sys.exit("%s ended" % process.args[0])
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.02)
    sys.exit("nobody listens on port %d" % port)


class Upstream:

    def __init__(self, directory):
        for name, make in bodies.ANSWERS.items():
            with open(os.path.join(directory, name), "wb") as f:
                f.write(make())
        self.port = free_port()
        self.process = subprocess.Popen(
            ["taskset", "-c", str(OTHER), UPSTREAM, str(self.port), directory])
        wait_port(self.port, self.process)

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Nginx:
    """The nginx of one case."""

    def __init__(self, case, directory, upstream):
        self.dir = directory
        self.port = free_port()
        os.mkdir(directory)
        self.write("secret", "an-upstream-credential\n")
        self.write("keys.conf", "bench-1 sha256:%s g;\n"
                   % hashlib.sha256(KEY.encode()).hexdigest())
        gateway = "http" in case
        self.write("nginx.conf", CONF % {
            "load": "load_module %s;" % MODULE if gateway else "",
            "user": "user root;" if os.geteuid() == 0 else "",
            "affinity": bin(1 << CORE)[2:], "dir": directory,
            "upstream": upstream.port, "port": self.port,
            "proxy": os.path.join(ROOT, "conf/modelgw/proxy.conf"),
            "http": case.get("http", "").replace("$dir", directory),
            "server": case["server"]})
        self.process = subprocess.Popen(
            [NGINX, "-p", directory, "-c", directory + "/nginx.conf",
             "-e", directory + "/error.log"], stderr=subprocess.DEVNULL)
        try:
            wait_port(self.port, self.process)
        except SystemExit:
            sys.stderr.write(self.read("error.log"))
            raise
        while not self.workers():
            time.sleep(0.02)

    def write(self, name, text):
        path = os.path.join(self.dir, name)
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
            f.write(text)

    def read(self, name):
        with open(os.path.join(self.dir, name), errors="replace") as f:
            return f.read()

    def workers(self):
        path = "/proc/%d/task/%d/children" % (self.process.pid,
                                              self.process.pid)
        with open(path) as f:
            return f.read().split()

    def cpu_us(self):
        """Of all threads of the workers, user and system."""
        total = 0
        for pid in self.workers():
            for thread in os.listdir("/proc/%s/task" % pid):
                path = "/proc/%s/task/%s/schedstat" % (pid, thread)
                with open(path) as f:
                    total += int(f.read().split()[0])
        return total / 1000

    def rss_kb(self):
        total = 0
        for pid in self.workers():
            with open("/proc/%s/statm" % pid) as f:
                total += int(f.read().split()[1])
        return total * os.sysconf("SC_PAGE_SIZE") // 1024

    def stop(self):
        self.process.send_signal(signal.SIGQUIT)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            self.process.wait()


class Load:

    def __init__(self, name, directory):
        self.name = name
        self.kind, self.body, self.connections, self.writes = LOADS[name]
        conversation = bodies.conversation(SIZES[self.body])
        self.files = {}
        for speaks, make in bodies.REQUESTS.items():
            path = os.path.join(directory, "%s.%s" % (name, speaks))
            with open(path, "wb") as f:
                f.write(make(conversation, self.kind == "stream"))
            self.files[speaks] = path
        self.headers = {"Authorization": "Bearer " + KEY}
        if self.writes == "each":
            self.headers["x-bench"] = "each"

    def check(self, case, nginx):
        """The answer is what it should be, before it is made a thousand
        times."""
        speaks = CASES[case]["speaks"]
        with open(self.files[speaks], "rb") as f:
            body = f.read()
        h = http.client.HTTPConnection("127.0.0.1", nginx.port, timeout=10)
        h.request("POST", PATHS[speaks], body, dict(
            self.headers, **{"Content-Type": "application/json"}))
        r = h.getresponse()
        answer = r.read()
        h.close()
        last = {"json": b"}", "stream": b"data: [DONE]\n\n"}[self.kind]
        if self.kind == "stream" and speaks == "messages":
            last = b'{"type":"message_stop"}\n\n'
        if r.status != 200 or not answer.endswith(last) \
                or bodies.LAST_WORDS[self.kind] not in answer:
            sys.exit("%s, %s: status %d\n%s" % (case, self.name, r.status,
                                                answer.decode()[-500:]))

    def run(self, case, nginx, seconds):
        """One turn: {cpu_us, rps, p50_us, p99_us, rss_kb}"""
        speaks = CASES[case]["speaks"]
        before = nginx.cpu_us()
        out = subprocess.run(
            ["taskset", "-c", str(OTHER), "wrk", "-t1",
             "-c%d" % self.connections, "-d%ds" % seconds,
             "-s", os.path.join(HERE, "load.lua"),
             "http://127.0.0.1:%d%s" % (nginx.port, PATHS[speaks])],
            env=dict(os.environ, BODY=self.files[speaks], HEADERS="\n".join(
                "%s: %s" % item for item in self.headers.items())),
            capture_output=True, text=True, check=True).stdout
        cpu = nginx.cpu_us() - before
        wrk = json.loads(out.splitlines()[-1])
        if wrk["failed"] or not wrk["requests"]:
            sys.exit("%s, %s: %d us of CPU\n%s%s" % (
                case, self.name, cpu, out, nginx.read("error.log")[-2000:]))
        return {"cpu_us": cpu / wrk["requests"],
                "rps": wrk["requests"] * 1e6 / wrk["us"],
                "p50_us": wrk["p50"], "p99_us": wrk["p99"],
                "rss_kb": nginx.rss_kb()}


def median(turns, field):
    return statistics.median(turn[field] for turn in turns)


def measure(load, gateways, rounds, seconds):
    """{case: [what run() gives, one for each round]}"""
    turns = {case: [] for case in gateways}
    for case, nginx in gateways.items():
        load.check(case, nginx)
        load.run(case, nginx, 1)
    for n in range(rounds):
        for case, nginx in gateways.items():
            turns[case].append(load.run(case, nginx, seconds))
    return turns


def rows(load, turns):
    for case, of_case in turns.items():
        row = {"case": case, "kind": load.kind, "body": load.body,
               "connections": load.connections, "writes": load.writes}
        for field in ("cpu_us", "rps", "p50_us", "p99_us", "rss_kb"):
            value = median(of_case, field)
            row[field] = round(value, 2) if field == "cpu_us" else int(value)
        row["ratio_to_plain"] = round(statistics.median(
            turn["cpu_us"] / plain["cpu_us"]
            for turn, plain in zip(of_case, turns["plain"])), 3) \
            if "plain" in turns else None
        yield row


def target(turns, figure):
    """The median over the rounds."""
    try:
        return statistics.median(
            figure(lambda case, n=n: turns[case][n]["cpu_us"])
            for n in range(len(next(iter(turns.values())))))
    except (KeyError, ZeroDivisionError):
        return None


def print_rows(table):
    line = "%-10s %-7s %5s %5s %-5s %9s %9s %8s %8s %8s %6s"
    print(line % ("case", "kind", "body", "conns", "write", "cpu_us", "rps",
                  "p50_us", "p99_us", "rss_kb", "ratio"))
    for row in table:
        print(line % (row["case"], row["kind"], row["body"],
                      row["connections"], row["writes"],
                      "%.1f" % row["cpu_us"], "%.0f" % row["rps"],
                      "%.0f" % row["p50_us"], "%.0f" % row["p99_us"],
                      row["rss_kb"], row["ratio_to_plain"] or "-"), flush=True)


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--quick", action="store_true")
    p.add_argument("--rounds", type=int)
    p.add_argument("--seconds", type=int, default=1)
    p.add_argument("--case", action="append", choices=list(CASES))
    p.add_argument("--load", action="append", choices=list(LOADS))
    p.add_argument("--out", default=os.path.join(ROOT, "build/bench.json"))
    args = p.parse_args()
    args.rounds = args.rounds or (5 if args.quick else 9)
    args.case = args.case or list(CASES)
    args.load = args.load or (QUICK if args.quick else list(LOADS))
    return args


def run(args, directory):
    table, results = [], []
    upstream = Upstream(directory)
    gateways = {}

    try:
        for case in args.case:
            gateways[case] = Nginx(CASES[case],
                                   os.path.join(directory, case), upstream)
        for name in args.load:
            load = Load(name, directory)
            turns = measure(load, gateways, args.rounds, args.seconds)
            table += rows(load, turns)
            print_rows(table[-len(gateways):])
            print()
            results += [(what, limit, target(turns, figure))
                        for what, of, limit, figure in TARGETS if of == name]
    finally:
        for nginx in gateways.values():
            nginx.stop()
        upstream.stop()

    for what, limit, value in results:
        if value is not None:
            print("%-6s %6.2f, at most %g: %s" % (
                "ok" if value <= limit else "MISSED", value, limit, what))

    return table


def main():
    args = arguments()
    print("%d rounds of %d s; worker on core %d, wrk and upstream on core %d"
          % (args.rounds, args.seconds, CORE, OTHER))
    with tempfile.TemporaryDirectory(prefix="modelgw-bench-") as directory:
        table = run(args, directory)
    with open(args.out, "w") as f:
        f.write("[\n%s\n]\n" % ",\n".join(json.dumps(row) for row in table))


if __name__ == "__main__":
    main()
