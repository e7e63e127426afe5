"""Instructions that the worker executes per request, in user mode, as
callgrind counts them: the same on a busy machine as on a quiet one, so changes
of the code are judged by it.

usage: t/bench/instructions.py [--case NAME]... [--load NAME]... [--top N]
                               [--of CASE] [--function NAME]... [--threads]
                               [--out FILE]

Needs what harness.py says, and valgrind.  Each case runs twice, with N and with
2N requests over one connection: the difference is the cost of N requests
without start and exit.  Of the threads only the event loop's is counted, with
--threads those of the ledger's writer and the exchanger of a cluster, too, with
N = 2000 over 20 connections.

Not measured: the kernel, which takes most of a request's time; caches; SHA-NI
and AVX-512, which valgrind hides from OpenSSL and from our scanner, so that a
digest, of half a microsecond, counts as thousands of instructions.  A timer of
half a second fires a few times more or less: a dozen instructions per request.
"""

import argparse
import collections
import concurrent.futures
import glob
import http.client
import os
import re
import sys
import tempfile

import cases
import harness

CASES = ["plain", "auth", "scan", "metering", "limits", "ledger", "cluster",
         "all", "metrics", "messages", "responses", "embeddings", "translate",
         "codex-messages", "codex-chat"]

# of --threads, which do as much at a time as under load: N, of connections with
# a key each

BATCHES = 2000
CONNECTIONS = 20

# kind, size of the body, and how many requests are N
LOADS = {
    "json-1k": ("json", "1k", 200),
    "json-20k": ("json", "20k", 100),
    "json-50k": ("json", "50k", 50),
    "json-codex": ("json", "codex", 50),
    "stream": ("stream", "1k", 50),
}


def events(path):
    """{function: instructions of itself} of a file of callgrind's."""
    names, total, function = {}, collections.Counter(), None
    objects, of_function, called = {}, {}, False
    line_of = re.compile(r"(fn|cfn|ob|cob)=\((\d+)\)(?: (.*))?$")

    with open(path, errors="replace") as f:
        for line in f:
            m = line_of.match(line)
            if m:
                kind, number, name = m.groups()
                table = names if kind.endswith("fn") else objects
                table.setdefault(number, name)
                if kind == "ob":
                    ob = number
                elif kind == "fn":
                    function = number
                    of_function[number] = ob
            elif line.startswith("calls="):
                called = True           # the next line is the callee's cost
            elif line[:1].isdigit() or line[:1] in "+-*":
                if not called and function:
                    fields = line.split()
                    if len(fields) > 1:
                        total[function] += int(fields[1])
                called = False

    merged = collections.Counter()
    for number, cost in total.items():
        name = names[number].split("'")[0]
        if name.startswith("0x"):       # stripped: its address, at least
            name = "%s %s" % (
                os.path.basename(objects[of_function[number]]), name)
        merged[name] += cost
    return merged


def counted(directory, threads):
    """The files of the threads: the first is the main one's."""
    files = sorted(glob.glob(directory + "/callgrind-*-[0-9][0-9]"))
    if not files:
        sys.exit("callgrind has not written in " + directory)
    return files if threads else files[:1]


def call(name, gateway, body, n, key=None):
    """n requests over one connection, with one key or with all of them."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port,
                                            timeout=60)
    for i in range(n):
        status, answer = harness.request(
            gateway.port, cases.CASES[name]["speaks"], body,
            n=i % harness.KEYS if key is None else key, connection=connection)
        if status != 200:
            sys.exit("%s: %d %s" % (name, status, answer[:300]))
    connection.close()


def run(name, kind, body, n, directory, upstream, threads):
    """{function: instructions} of a worker with n requests."""
    os.mkdir(directory)
    gateway = harness.start(name, directory, upstream, [
        "valgrind", "-q", "--tool=callgrind", "--separate-threads=yes",
        "--fair-sched=yes", "--callgrind-out-file=%s/callgrind-%%p" % directory])

    try:
        harness.check(name, gateway, kind, body)
        if threads:
            with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
                for job in [pool.submit(call, name, gateway, body,
                                        n // CONNECTIONS, i)
                            for i in range(CONNECTIONS)]:
                    job.result()
        else:
            call(name, gateway, body, n)
    finally:
        gateway.stop()

    total = collections.Counter()
    for i, path in enumerate(counted(directory, threads)):
        for function, cost in events(path).items():
            total[function + (" %d" % (i + 1) if threads else "")] += cost
    return total


def measure(name, load, directory, upstream, threads):
    """{function: instructions per request}"""
    kind, size, n = LOADS[load]
    if threads:
        n = BATCHES
    speaks = cases.CASES[name]["speaks"]
    body = cases.request(size, speaks, kind == "stream")
    first, second = (run(name, kind, body, count, "%s/%s-%s-%d" % (
        directory, name, load, count), upstream, threads)
        for count in (n, 2 * n))
    return {function: (second[function] - first.get(function, 0)) / n
            for function in second}


def show(table, args, out):
    def say(text=""):
        print(text, flush=True)
        out.append(text)

    say("instructions per request (user mode, %s)" % (
        "all threads" if args.threads else "event loop"))
    say("%-14s" % "case" + "".join("%12s %7s" % (load, "ratio")
                                   for load in args.load))
    for name in args.case:
        line = "%-14s" % name
        for load in args.load:
            if (name, load) not in table:
                line += "%12s %7s" % ("-", "-")
                continue
            total = sum(table[name, load].values())
            plain = table.get(("plain", load))
            line += "%12.0f %7s" % (
                total, "%.2f" % (total / sum(plain.values())) if plain else "-")
        say(line)

    for load in args.load:
        if (args.of, load) not in table:
            continue
        functions = table[args.of, load]
        total = sum(functions.values())
        say()
        say("%s, %s: functions by their own instructions" % (args.of, load))
        for function in sorted(functions, key=functions.get,
                               reverse=True)[:args.top]:
            say("%10.0f %5.1f%%  %s" % (
                functions[function], 100 * functions[function] / total,
                function))

    for function in args.function:
        say()
        say(function)
        for (name, load), functions in table.items():
            say("%10.0f  %s, %s" % (sum(
                cost for f, cost in functions.items() if function in f),
                name, load))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--case", action="append",
                   choices=[name for name in cases.CASES if name != "direct"])
    p.add_argument("--load", action="append", choices=list(LOADS))
    p.add_argument("--top", type=int, default=25)
    p.add_argument("--of", default="all")
    p.add_argument("--function", action="append", default=[])
    p.add_argument("--threads", action="store_true")
    p.add_argument("--jobs", type=int, default=len(harness.CORES))
    p.add_argument("--out")
    args = p.parse_args()
    args.case = args.case or CASES
    args.load = args.load or list(LOADS)

    out = []
    with tempfile.TemporaryDirectory(prefix="modelgw-bench-") as directory:
        upstream = harness.Upstream(directory)
        try:
            with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
                running = {(name, load): pool.submit(
                    measure, name, load, directory, upstream, args.threads)
                    for load in args.load for name in args.case
                    if not cases.left_out(name, load)}
                table = {cell: job.result() for cell, job in running.items()}
        finally:
            upstream.stop()

    show(table, args, out)
    if args.out:
        with open(args.out, "w") as f:
            f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
