"""How cost grows: the cost of a request with more keys and with more open
streams, with all features on, and a reload of very many keys under load.

usage: t/bench/growth.py [--keys N]... [--streams N]... [--rounds N]
                         [--clients N] [--seconds S] [--out FILE]

"make bench-scan" shows that the scan of 32 MB costs the same with any chunk
size; "make bench-growth" prints both.

With N keys, each has an account and limits, and up to 10,000 of them, spread
over the file, call in turn.  Ratios are to the smallest number, of turns in
the same round.  Streams have begun, and are idle; requests run meanwhile.
"""

import argparse
import http.client
import json
import os
import resource
import signal
import sys
import tempfile
import threading
import time

import bodies
import cases
import gateway
import harness

KEYS = [10, 1000, 100000, 1000000]
STREAMS = [1, 100, 1000, 10000]
CALLING = 10000
LOAD = "json-1k-32"


def case(name, keys):
    """With that many keys, each with an account if there is a ledger."""
    zone = max(32, 1 + keys * 600 // (1 << 20))
    if name == "metering":
        return dict(cases.CASES[name], all_keys=keys)
    return dict(cases.CASES[name], all_keys=keys, keys=cases.LIMITS,
                http="modelgw_zone %dm; " % zone + cases.CASES[name]["http"])


def spread(keys):
    """Numbers of the keys that call."""
    step = max(1, keys // CALLING)
    return range(0, keys, step)


def settled(nginx, seconds=300):
    """Returns when the worker is idle: accounts of new keys are created and
    written after it has begun to answer."""
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        before, _ = nginx.cpu_us()
        time.sleep(1)
        if nginx.cpu_us()[0] - before < 10000:
            return
    sys.exit("the worker does not become idle")


def interleaved(args, things, turn):
    """The medians of turn(thing), and the ratios to the first thing's."""
    rounds = [[(name, turn(name)) for name in things]
              for _ in range(args.rounds)]
    results = gateway.Results(rounds)
    first = list(things)[0]
    return [(name, results, results.ratio(name, first)) for name in things]


def show(what, number, table, more=lambda number: ""):
    print("%10s %9s %8s %8s %8s %6s" % (what, "cpu_us", "p50_us", "p99_us",
                                        "rss_kb", "ratio"))
    for name, results, ratio in table:
        print("%10d %9.1f %8d %8d %8d %6.3f%s" % ((name,) + tuple(
            results.median(field, name) for field in (
                "cpu_us", "p50_us", "p99_us", "rss_kb")) + (
            ratio, more(name))))
    print(flush=True)
    return [dict({number: name, "ratio": round(ratio, 3)}, **{
        field: round(results.median(field, name), 1)
        for field in gateway.FIELDS}) for name, results, ratio in table]


def keys(args, directory, upstream):
    """With the look-up of the key only, and with accounts and limits."""
    table = []
    for name in ("metering", "all"):
        print(name)
        home = os.path.join(directory, name)
        os.mkdir(home)
        table += [dict({"case": name}, **row)
                  for row in keys_of(name, args, home, upstream)]
    return table


def keys_of(name, args, directory, upstream):
    running, loads, started, opened = {}, {}, {}, {}
    try:
        for n in args.keys:
            begin = time.monotonic()
            running[n] = harness.Nginx(case(name, n), os.path.join(
                directory, "keys-%d" % n), upstream)
            started[n] = time.monotonic() - begin
            settled(running[n])
            opened[n] = time.monotonic() - begin
            home = os.path.join(directory, "load-%d" % n)
            os.mkdir(home)
            loads[n] = gateway.Load(LOAD, home, spread(n))
            loads[n].check(name, running[n])
            loads[n].run(name, running[n], 1)

        table = interleaved(args, args.keys, lambda n: loads[n].run(
            name, running[n], args.seconds))
        return show("keys", "keys", table,
                    lambda n: "   started in %.1f s, at rest after %.1f s"
                    % (started[n], opened[n]))
    finally:
        for nginx in running.values():
            nginx.stop()


def streams(args, directory, upstream):
    """An nginx for each number, as a worker keeps the memory that it has
    used."""
    reach = (harness.FILES - 1200) // 2    # two files each
    numbers = []
    for n in args.streams:
        if n > reach:
            print("of %d streams %d can be open: the limit of files is %d" % (
                n, reach, harness.FILES))
            n = reach
        numbers.append(n)

    running, sockets = {}, {}
    load = gateway.Load(LOAD, directory)
    try:
        # this process holds the clients' ends of one number at a time

        rounds = []
        for _ in range(args.rounds):
            turns = []
            for n in numbers:
                running[n] = harness.start("all", tempfile.mkdtemp(
                    dir=directory), upstream)
                sockets[n] = gateway.open_streams(running[n].port, "chat", n)
                load.run("all", running[n], 1)
                turns.append((n, load.run("all", running[n], args.seconds)))
                for s in sockets.pop(n):
                    s.close()
                running.pop(n).stop()
            rounds.append(turns)
        results = gateway.Results(rounds)
        return show("streams", "streams", [
            (n, results, results.ratio(n, numbers[0])) for n in numbers])
    finally:
        for nginx in running.values():
            nginx.stop()


class Client(threading.Thread):
    """Calls, one after the other, on a connection that is kept.

    A kept connection may be closed just when it is reused, as nginx does when
    an old worker exits.  Then the request is retried, as HTTP clients do, but
    only if no byte of an answer was received."""

    def __init__(self, port, number, body):
        super().__init__()
        self.port, self.number, self.body = port, number, body
        self.answered = self.again = 0
        self.slowest = 0.0
        self.failed = []
        self.stop = False

    def run(self):
        connection, used = None, False
        while not self.stop:
            if connection is None:
                connection = http.client.HTTPConnection(
                    "127.0.0.1", self.port, timeout=60)
                used = False
            begin = time.monotonic()
            try:
                status, answer = harness.request(
                    self.port, "chat", self.body, n=self.number,
                    connection=connection)
                used = True
                if status == 200 and bodies.LAST_WORDS["json"] in answer:
                    self.answered += 1
                else:
                    self.failed.append("%d %r" % (status, answer[:200]))
            except (http.client.RemoteDisconnected, ConnectionError) as e:
                if used:
                    self.again += 1
                else:
                    self.failed.append(repr(e))
                connection.close()
                connection = None
            except (OSError, http.client.HTTPException) as e:
                self.failed.append(repr(e))
                connection.close()
                connection = None
            self.slowest = max(self.slowest, time.monotonic() - begin)


def workers_changed(nginx, old, seconds):
    """Seconds until there are new workers; and until the old ones have
    exited."""
    begin, new = time.monotonic(), None
    while time.monotonic() < begin + seconds:
        now = set(nginx.pids())
        if now - old and new is None:
            new = time.monotonic() - begin
        if new is not None and not now & old:
            return new, time.monotonic() - begin
        time.sleep(0.02)
    sys.exit("no reload within %d s:\n%s" % (
        seconds, nginx.read("error.log")[-2000:]))


def reload(args, directory, upstream):
    """Twice, under load, with the greatest number of keys."""
    n = max(args.keys)
    nginx = harness.Nginx(case("all", n), os.path.join(directory, "reload"),
                          upstream)
    body = bodies.chat(bodies.conversation(1024))
    clients = [Client(nginx.port, number, body)
               for number in spread(n)[:args.clients]]
    try:
        for c in clients:
            c.start()
        time.sleep(1)
        times = []
        for _ in range(2):
            old = set(nginx.pids())
            nginx.process.send_signal(signal.SIGHUP)
            times.append(workers_changed(nginx, old, 120))
            time.sleep(1)
    finally:
        for c in clients:
            c.stop = True
        for c in clients:
            if c.ident:
                c.join()
        nginx.stop()

    row = {"keys": n, "answered": sum(c.answered for c in clients),
           "failed": sum(len(c.failed) for c in clients),
           "made_again": sum(c.again for c in clients),
           "slowest_ms": round(max(c.slowest for c in clients) * 1000),
           "new_worker_s": [round(new, 2) for new, gone in times],
           "old_gone_s": [round(gone, 2) for new, gone in times]}
    print("reload, %(keys)d keys, twice: %(answered)d requests answered, "
          "%(failed)d failed, %(made_again)d made again on a connection that "
          "was just closed; slowest %(slowest_ms)d ms; new worker after "
          "%(new_worker_s)s s, old one gone after %(old_gone_s)s s" % row)
    for c in clients:
        for failure in c.failed[:1]:
            print("    " + failure)
    print(flush=True)
    return [row]


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--keys", type=int, action="append")
    p.add_argument("--streams", type=int, action="append")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=int, default=1)
    p.add_argument("--clients", type=int, default=16)
    p.add_argument("--out", default=os.path.join(harness.ROOT,
                                                 "build/growth.json"))
    args = p.parse_args()
    args.keys = args.keys or KEYS
    args.streams = args.streams or STREAMS
    return args


def main():
    args = arguments()
    resource.setrlimit(resource.RLIMIT_NOFILE, (
        resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    out = {}
    with tempfile.TemporaryDirectory(prefix="modelgw-bench-") as directory:
        upstream = harness.Upstream(directory)
        try:
            for part in (keys, streams, reload):
                out[part.__name__] = part(args, directory, upstream)
        finally:
            upstream.stop()
    with open(args.out, "w") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
