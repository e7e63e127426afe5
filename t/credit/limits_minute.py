"""Limits under load: 60 seconds of as many calls as possible, with 1, 2 and 4
workers; the number admitted must be the limit, within one percent.

usage: t/credit/limits_minute.py [workers...]

A key with requests a minute and one with tokens a minute are used in parallel.
Tokens are counted as the upstream reports them.
"""

import json
import os
import shutil
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../lib"))

import client
import gateway
from upstream import Upstream, message, message_usage, reply_json

MINUTE = 60
THREADS = 4                         # of each kind
RPM = 3000
TPM = 1000000
USED = 1000                         # tokens of a call
WITHIN = 0.01


class Load:
    """Calls on THREADS connections for a minute from the first one on."""

    def __init__(self, g, path, key, body):
        self.g = g
        self.head = (path, [key.bearer()], json.dumps(body).encode())
        self.statuses = {}
        self.ended = 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run)
                        for _ in range(THREADS)]

    def start(self, begin):
        self.end = begin + MINUTE
        for t in self.threads:
            t.start()

    def run(self):
        path, headers, body = self.head
        mine = {}
        c = client.Connection(self.g.port)
        while time.monotonic() < self.end:
            c.request("POST", path, headers, body)
            r = c.response()
            mine[r.status] = mine.get(r.status, 0) + 1
            if r.get("connection") == "close":      # keepalive_requests
                c.close()
                c = client.Connection(self.g.port)
        c.close()
        with self.lock:
            self.ended += 1
            for status, n in mine.items():
                self.statuses[status] = self.statuses.get(status, 0) + n

    def join(self):
        for t in self.threads:
            t.join(2 * MINUTE)
        assert self.ended == THREADS, "a client has failed"
        assert set(self.statuses) <= {200, 429}, self.statuses
        return self.statuses.get(200, 0), self.statuses.get(429, 0)


def minute(workers):
    """(limit, admitted, refused) of requests and of tokens."""
    directory = tempfile.mkdtemp(prefix="limits-")
    a, b = Upstream(), Upstream()
    rpm = gateway.Key("requests", "b", "rpm=%d" % RPM)
    tpm = gateway.Key("tokens", "a", "tpm=%d" % TPM)
    g = gateway.Gateway(directory, a, b, keys=[rpm, tpm], workers=workers,
                        log_level="notice")
    try:
        g.start()
        a.script(reply_json(message("large-2026-01-01", usage=message_usage(
            11, USED - 11))))
        hammers = [Load(g, "/v1/chat/completions", rpm, gateway.chat()),
                   Load(g, "/v1/messages", tpm,
                        gateway.messages(max_tokens=USED - 50))]
        begin = time.monotonic()
        for h in hammers:
            h.start(begin)
        (calls, no), (paid, unpaid) = [h.join() for h in hammers]
        g.stop()
    finally:
        g.kill()
        a.stop()
        b.stop()
        shutil.rmtree(directory, ignore_errors=True)
    return {"requests": (RPM, calls, no), "tokens": (TPM, paid * USED,
                                                     unpaid)}


def main():
    bad = 0
    for workers in [int(n) for n in sys.argv[1:]] or [1, 2, 4]:
        for what, (limit, admitted, refused) in minute(workers).items():
            ratio = admitted / limit
            ok = abs(ratio - 1) <= WITHIN
            bad += not ok
            print("%d workers  %-8s  limit %7d  admitted %7d  ratio %.4f  "
                  "refused calls %6d  %s" % (workers, what, limit, admitted,
                                             ratio, refused,
                                             "ok" if ok else "FAILED"),
                  flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
