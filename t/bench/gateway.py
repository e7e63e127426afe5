"""The cost of a gateway: CPU per request, latency and memory of each case,
compared to plain proxy_pass to the same upstream, in one run.

usage: t/bench/gateway.py [--quick] [--starts N] [--rounds N] [--seconds S]
                          [--case NAME]... [--load NAME]... [--out FILE]

What is measured is in cases.py, what is run in harness.py.

Each case is an nginx of its own with one worker on core 0; wrk and the
upstream are on core 1.  CPU is what the kernel counts for all threads of the
worker (user and system), divided by the requests that wrk saw answered.
writer_us is the part of it that is not the event loop's: the ledger's writer,
and the threads of a cluster.  Requests in flight when a turn ends count as CPU
but not as requests, in all cases alike; turns at large bodies are longer so
that this remains small.  A node of a cluster has shipped its calls before its
turn ends.

To wake up wrk costs the worker more when something else runs on that core, 1
to 2 us a request of it: a database beside wrk is not what nginx costs.  In
turns of the loads "busy" something always does.

Rounds are interleaved: in each, every case gets its turn, with a turn of plain
before or after it.  A ratio is that of neighbours; medians over the rounds are
printed.  The rows are also in the file FILE, as JSON.  "direct" has no gateway
and so no CPU; rss_kb is the worker's after the load, and after those before
it; idle streams are rows of the kind "idle", whose rss_kb is one stream's and
whose ratio is that of memory.

Missed targets are printed at the end; they do not affect the exit status.
"""

import argparse
import collections
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import bodies
import cases
import harness

FIELDS = ("cpu_us", "writer_us", "rps", "p50_us", "p99_us", "rss_kb")
WHOLE = FIELDS[2:]
KINDS = {("stream", "each"): "stream-each"}
WRITES = {"one": {}, "each": {"x-bench": "each"}, "busy": {}}


class Load:

    def __init__(self, name, directory, keys=range(harness.KEYS)):
        self.name = name
        self.kind, self.body, self.connections, self.writes = cases.LOADS[name]
        self.headers = WRITES[self.writes]
        self.bodies, self.files, self.lengths = {}, {}, {}
        self.sent = collections.Counter()
        for speaks in bodies.REQUESTS:
            path = os.path.join(directory, "%s.%s" % (name, speaks))
            self.bodies[speaks] = cases.request(self.body, speaks,
                                                self.kind == "stream")
            self.files[speaks] = path
            self.lengths[speaks] = cases.request_lengths(self.body, speaks)
            with open(path, "wb") as f:
                f.write(self.bodies[speaks])
        self.keys = os.path.join(directory, "secrets")
        with open(self.keys, "w") as f:
            f.writelines(harness.secret(n) + "\n" for n in keys)

    def seconds(self, case, seconds):
        if not self.body.startswith("2m") or self.connections == 1:
            return seconds
        if self.connections > 32 or cases.CASES[case].get("slow"):
            return 4 * seconds
        return 2 * seconds

    def check(self, case, gateway):
        harness.check(case, gateway, self.kind,
                      self.bodies[cases.CASES[case]["speaks"]], self.headers)

    def run(self, case, gateway, seconds):
        """One turn: a figure for each of FIELDS."""
        with harness.spinner(self.writes == "busy"):
            return self.turn(case, gateway, seconds)

    def turn(self, case, gateway, seconds):
        speaks = cases.CASES[case]["speaks"]
        before = gateway.cpu_us()
        out = subprocess.run(
            ["taskset", "-c", str(harness.OTHER), "wrk", "-t1", "--timeout",
             "60s", "-c%d" % self.connections,
             "-d%ds" % self.seconds(case, seconds),
             "-s", os.path.join(harness.HERE, "load.lua"),
             "http://127.0.0.1:%d%s" % (gateway.port, harness.PATHS[speaks])],
            env=dict(os.environ, BODY=self.files[speaks], KEYS=self.keys,
                     HEADERS="\n".join("%s: %s" % item
                                       for item in self.headers.items()),
                     NUMBER=bodies.NUMBER, FIRST=str(self.sent[gateway]),
                     LENGTHS=" ".join(map(str, self.lengths[speaks])),
                     END=bodies.END.decode()),
            capture_output=True, text=True, check=True).stdout
        gateway.shipped()
        cpu, writer = (after - us for after, us
                       in zip(gateway.cpu_us(), before))
        wrk = json.loads(out.splitlines()[-1])
        if wrk["failed"] or not wrk["requests"]:
            sys.exit("%s, %s: %d us of CPU\n%s%s" % (
                case, self.name, cpu, out,
                gateway.read("error.log")[-2000:] if case != "direct" else ""))
        self.sent[gateway] = wrk["next"]
        return {"cpu_us": cpu / wrk["requests"],
                "writer_us": writer / wrk["requests"],
                "rps": wrk["requests"] * 1e6 / wrk["us"],
                "p50_us": wrk["p50"], "p99_us": wrk["p99"],
                "rss_kb": gateway.rss_kb()}


class Results:
    """The turns of one load: rounds of (case, what Load.run() gives)."""

    def __init__(self, rounds):
        self.rounds = rounds

    def has(self, *names):
        return all(name in [case for case, turn in self.rounds[0]]
                   for name in names)

    def median(self, field, case):
        return statistics.median(turn[field] for turns in self.rounds
                                 for name, turn in turns if name == case)

    def neighbours(self, turns, case, of):
        """The two turns of a round that are nearest to each other."""
        places = [(abs(i - j), i, j)
                  for i, (a, _) in enumerate(turns) if a == case
                  for j, (b, _) in enumerate(turns) if b == of]
        _, i, j = min(places)
        return turns[i][1], turns[j][1]

    def ratio(self, case, of="plain", field="cpu_us"):
        pairs = [self.neighbours(turns, case, of) for turns in self.rounds]
        return statistics.median(one[field] / other[field]
                                 for one, other in pairs)

    def added(self, field, case, of="plain"):
        pairs = [self.neighbours(turns, case, of) for turns in self.rounds]
        return statistics.median(one[field] - other[field]
                                 for one, other in pairs)

    def of_round(self, figure):
        """The median of a figure of the rounds: figure(cpu of a case)."""
        return statistics.median(
            figure(lambda case, turns=turns: statistics.median(
                turn["cpu_us"] for name, turn in turns if name == case))
            for turns in self.rounds)


def measure(load, names, gateways, rounds, seconds):
    names = [case for case in names if not cases.left_out(case, load.name)]
    for case in names:
        load.check(case, gateways[case])
        load.run(case, gateways[case], 1)
    return [[(case, load.run(case, gateways[case], seconds))
             for case in cases.sequence(names)] for _ in range(rounds)]


def rows(load, results, names):
    for case in names:
        if not results.has(case):
            continue
        row = {"case": case, "kind": KINDS.get((load.kind, load.writes),
                                               load.kind),
               "body": load.body, "connections": load.connections,
               "writes": load.writes}
        for field in FIELDS:
            value = results.median(field, case)
            row[field] = int(value) if field in WHOLE else round(value, 2)
        row["ratio_to_plain"] = round(results.ratio(case), 3) \
            if results.has("plain") else None
        yield row


# Idle streams.

def open_streams(port, speaks, n):
    """n connections, each with an answer that has begun."""
    body = bodies.REQUESTS[speaks](bodies.conversation(1024), True)
    sockets = []
    for i in range(n):
        s = socket.create_connection(("127.0.0.1", port), 60)
        s.sendall((
            "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            "Authorization: Bearer %s\r\nx-bench: idle\r\n"
            "Content-Length: %d\r\n\r\n" % (
                harness.PATHS[speaks], harness.secret(i % harness.KEYS),
                len(body))).encode() + body)
        begun = b""
        while b"data: " not in begun:
            piece = s.recv(65536)
            begun += piece
            if not piece or not begun.startswith(b"HTTP/1.1 200"):
                sys.exit("a stream did not begin: %r" % begun[:300])
        sockets.append(s)
    return sockets


def idle(name, directory, upstream):
    """Memory of an idle stream; of a worker that has served some."""
    gateway = harness.start(name, directory, upstream)
    speaks = cases.CASES[name]["speaks"]
    try:
        for s in open_streams(gateway.port, speaks, 10):
            s.close()
        time.sleep(0.2)
        before = gateway.rss_kb()
        sockets = open_streams(gateway.port, speaks, cases.IDLE)
        time.sleep(0.5)
        each = (gateway.rss_kb() - before) / cases.IDLE
        for s in sockets:
            s.close()
    finally:
        gateway.stop()
    return dict(dict.fromkeys(FIELDS), rss_kb=each)


def idle_rows(names, directory, upstream):
    """Rows and results; the memory does not change from round to round."""
    os.mkdir(directory)
    turns = [(name, idle(name, directory, upstream)) for name in names]
    results = Results([turns])
    table = [dict({"case": name, "kind": "idle", "body": "1k",
                   "connections": cases.IDLE, "writes": "each"},
                  **dict(turn, rss_kb=round(turn["rss_kb"], 1)),
                  ratio_to_plain=round(results.ratio(name, field="rss_kb"), 3)
                  if results.has("plain") else None)
             for name, turn in turns]
    results.ratio = lambda case, of="plain": \
        Results.ratio(results, case, of, "rss_kb")
    return table, results


# Output.

LINE = "%-14s %-11s %11s %5s %-5s %9s %9s %9s %8s %8s %8s %6s"


def print_rows(table):
    print(LINE % ("case", "kind", "body", "conns", "write", "cpu_us",
                  "writer_us", "rps",
                  "p50_us", "p99_us", "rss_kb", "ratio"))
    for row in table:
        print(LINE % tuple(
            "-" if value is None else
            "%.1f" % value if field in ("cpu_us", "writer_us") else
            "%.3f" % value if field == "ratio_to_plain" else value
            for field, value in row.items()))
    print(flush=True)


def print_targets(results):
    for what, load, limit, figure in cases.TARGETS:
        try:
            value = figure(results[load])
        except (KeyError, ValueError, ZeroDivisionError,
                statistics.StatisticsError):
            continue            # not measured
        print("%-6s %7.2f, at most %g: %s" % (
            "ok" if value <= limit else "MISSED", value, limit, what))


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--quick", action="store_true")
    p.add_argument("--rounds", type=int)
    p.add_argument("--seconds", type=int, default=1)
    p.add_argument("--starts", type=int, default=1,
                   help="of each nginx, each with all rounds: one start"
                        " differs from the next by a few percent")
    p.add_argument("--case", action="append", choices=list(cases.CASES))
    p.add_argument("--load", action="append",
                   choices=list(cases.LOADS) + ["idle"])
    p.add_argument("--out", default=os.path.join(harness.ROOT,
                                                 "build/bench.json"))
    args = p.parse_args()
    args.rounds = args.rounds or (3 if args.quick else 5)
    if args.starts < 1:
        p.error("--starts: at least one")
    return args


def plan(args):
    """{load: its cases}"""
    table = dict(cases.QUICK) if args.quick else dict.fromkeys(
        cases.LOADS, list(cases.CASES))
    table.setdefault("idle", cases.IDLE_CASES)
    if args.load:
        table = {load: table.get(load, list(cases.CASES))
                 for load in args.load}
    if args.case:
        table = {load: [case for case in args.case if load != "idle"
                        or case != "direct"] for load in table}
    return table


def measure_start(args, wanted, results, directory, upstream, last):
    """All loads, with each nginx started once: adds to results.  The last start
    has the rows, and idle streams."""
    table, gateways = [], {}
    try:
        for load, names in wanted.items():
            if load == "idle":
                if not last:
                    continue
                new, results[load] = idle_rows(
                    names, os.path.join(directory, "idle"), upstream)
            else:
                for case in names:
                    if case not in gateways:
                        gateways[case] = harness.start(case, directory,
                                                       upstream)
                of = Load(load, directory)
                results[load].rounds += measure(of, names, gateways,
                                                args.rounds, args.seconds)
                new = list(rows(of, results[load], names)) if last else []
            if new:
                print_rows(new)
            table += new
    finally:
        for gateway in gateways.values():
            gateway.stop()
    return table


def run(args, directory):
    wanted = plan(args)
    results = {load: Results([]) for load in wanted}
    upstream = harness.Upstream(directory)
    try:
        for n in range(args.starts):
            each = os.path.join(directory, str(n))
            os.mkdir(each)
            table = measure_start(args, wanted, results, each, upstream,
                                  n + 1 == args.starts)
            shutil.rmtree(each)
    finally:
        upstream.stop()
    print_targets(results)
    return table


def main():
    args = arguments()
    print("%d starts, %d rounds of %d s; worker on core %d, wrk and upstream"
          " on core %d" % (args.starts, args.rounds, args.seconds, harness.CORE,
                           harness.OTHER))
    with tempfile.TemporaryDirectory(prefix="modelgw-bench-") as directory:
        table = run(args, directory)
    with open(args.out, "w") as f:
        f.write("[\n%s\n]\n" % ",\n".join(json.dumps(row) for row in table))


if __name__ == "__main__":
    main()
