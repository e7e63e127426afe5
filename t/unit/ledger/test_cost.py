"""What a call costs, against Python's fractions: usage as the two APIs report
it passes the scanner, the merge and the prices of the module
(build/unit/ledger/cost_cli), and the result must agree to the nano-euro.
"""

import collections
import fcntl
import json
import math
import os
import pathlib
import random
import subprocess
import tempfile
from fractions import Fraction

import pytest

import money

TOP = pathlib.Path(__file__).resolve().parents[3]
CLI = pathlib.Path(os.environ.get("MODELGW_COST_CLI",
                                  TOP / "build/unit/ledger/cost_cli"))

CALLS = 100000
MOST = 999999999                    # valid token counts

COUNTS = (lambda r: 0, lambda r: 1, lambda r: MOST,
          lambda r: r.randrange(10), lambda r: r.randrange(3000),
          lambda r: r.randrange(3000), lambda r: r.randrange(300000),
          lambda r: r.randrange(MOST + 1))

# invalid token counts; None counts as absent
NOTHING = (None, -1, 1.5, "7", True, [], {}, MOST + 1, 10 ** 30)

PRICES = ("0", "0.000001", "0.0125", "0.1", "0.3", "3", "3.75", "6", "15",
          "999999", "999999.999999")


def build():
    """One at a time: pytest-xdist runs several workers."""

    if "MODELGW_COST_CLI" in os.environ:
        return
    CLI.parent.mkdir(parents=True, exist_ok=True)
    with open(CLI.parent / "cost_cli.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", "-C", TOP, "build/unit/ledger/cost_cli"],
                       check=True, stdout=subprocess.DEVNULL)


def price(r):
    """Euro per million tokens, as an operator writes it."""
    if r.random() < 0.5:
        return r.choice(PRICES)
    return "%d.%06d" % (r.randrange(r.choice((1, 10, 100, 1000000))),
                        r.randrange(1000000))


def pico(text):
    n = Fraction(text) * 10 ** 6
    assert n.denominator == 1
    return int(n)


class Call:
    """One call: its prices, and the documents that report its usage."""

    def __init__(self, r):
        self.r = r
        self.prices = {name: price(r) for name in
                       ("input", "output", "read", "write", "hour")}

    def report(self, usage, path, chance=0.7):
        """Puts a count, or an invalid value, into a usage object."""
        x = self.r.random()
        if x < chance:
            put(usage, path, self.r.choice(COUNTS)(self.r))
        elif x > 0.97:
            put(usage, path, self.r.choice(NOTHING))

    def expected(self):
        """Outcome, tokens and cost, computed by money.py."""
        merged = self.merged
        known = merged.classes()
        final = "output" in known and "output" not in merged.odd
        tokens = [known.get(name, 0) for name in money.CLASSES]
        if "input" not in known:
            # one token is the estimate of an input that is not reported
            tokens[0] = max(0, 1 - sum(tokens[1:4]))
        p = self.prices
        euro = sum(n * Fraction(p[name])
                   for name, n in zip(("input", "read", "write", "hour",
                                       "output"), tokens)) / 10 ** 6
        reported = final and "input" in known and not merged.odd
        return ["reported" if reported else "estimated",
                math.ceil(euro * 10 ** 9)] + tokens + [
                    merged.known.get("reasoning", 0)]

    def line(self, n, doc):
        p = self.prices
        return b"%s %d %d %d %d %d %d\n%s" % (
            b"more" if n else self.protocol, pico(p["input"]),
            pico(p["output"]), pico(p["read"]), pico(p["write"]),
            pico(p["hour"]), len(doc), doc)


def put(usage, path, value):
    *above, last = path.split(".")
    for name in above:
        usage = usage.setdefault(name, {})
    usage[last] = value


class ChatCall(Call):
    """The prompt's tokens include the cached ones."""

    protocol = b"chat"

    def documents(self):
        usage = {}
        self.report(usage, "prompt_tokens", 0.9)
        self.report(usage, "prompt_tokens_details.cached_tokens")
        self.report(usage, "prompt_tokens_details.cache_write_tokens", 0.3)
        self.report(usage, "completion_tokens", 0.95)
        self.report(usage, "completion_tokens_details.reasoning_tokens")
        self.merged = money.ChatUsage(usage)
        usage["total_tokens"] = self.r.randrange(10 ** 9)
        return [{"id": "x", "object": "chat.completion", "model": "m",
                 "choices": [{"index": 0, "message": {
                     "role": "assistant",
                     "content": '"usage":{"prompt_tokens":1}'}}],
                 "usage": usage}]


class MessagesCall(Call):
    """The input's tokens do not include the cached ones; those written are
    reported as a total, by lifetime, or both."""

    protocol = b"messages"

    def report_all(self, usage):
        self.report(usage, "input_tokens", 0.9)
        self.report(usage, "cache_read_input_tokens")
        self.report(usage, "cache_creation_input_tokens")
        self.report(usage, "cache_creation.ephemeral_1h_input_tokens", 0.4)
        self.report(usage, "cache_creation.ephemeral_5m_input_tokens", 0.5)
        self.report(usage, "output_tokens", 0.95)
        self.report(usage, "output_tokens_details.thinking_tokens", 0.3)

    def documents(self):
        usage = {}
        self.report_all(usage)
        self.merged = money.MessageUsage(usage)
        if self.r.random() < 0.5:
            return [{"id": "msg", "type": "message", "model": "m",
                     "content": [{"type": "text",
                                  "text": '"usage":{"input_tokens":1}'}],
                     "usage": usage}]

        # a stream: totals, and totals again

        start = {"type": "message_start",
                 "message": {"id": "msg", "type": "message", "model": "m",
                             "content": [], "usage": usage}}
        usage = {}
        if self.r.random() < 0.7:
            self.report(usage, "output_tokens", 1)
        else:
            self.report_all(usage)
            # message_start has no final output count
            if usage.get("output_tokens") is None:
                usage["output_tokens"] = 3
        self.merged.take(usage)
        return [start, {"type": "message_delta",
                        "delta": {"stop_reason": "end_turn"}, "usage": usage}]


def run(calls):
    """The result of cost_cli for each call after its last document."""
    build()
    last = []
    with tempfile.TemporaryFile() as f:
        for call in calls:
            docs = call.documents()
            for i, doc in enumerate(docs):
                f.write(call.line(i, json.dumps(doc).encode()))
                last.append(i == len(docs) - 1)
        f.seek(0)
        p = subprocess.run([CLI], stdin=f, capture_output=True, timeout=300)
    assert p.returncode == 0, p.stderr
    lines = p.stdout.split(b"\n")[:-1]
    assert len(lines) == len(last)
    return [[line.split()[0].decode()] + [int(n) for n in line.split()[1:]]
            for line, keep in zip(lines, last) if keep]


@pytest.mark.parametrize("kind", [ChatCall, MessagesCall])
def test_cost(kind):
    r = random.Random(kind.__name__)
    calls = [kind(r) for _ in range(CALLS // 2)]
    answers = run(calls)
    assert len(answers) == len(calls)

    charged, outcomes = 0, collections.Counter()
    for call, answer in zip(calls, answers):
        assert answer == call.expected(), (call.merged.known, call.merged.odd,
                                           call.prices)
        charged += answer[1] > 0
        outcomes[answer[0]] += 1
    assert charged > CALLS / 3      # the calls were not all free
    assert min(outcomes.values()) > CALLS / 50, outcomes


def test_known():
    """The same call in both forms, computed by hand: 10 tokens of input, 60
    read, 30 written, 7 of output."""

    class Plain(ChatCall):
        def documents(self):
            return [{"usage": {"prompt_tokens": 100, "completion_tokens": 7,
                               "prompt_tokens_details": {
                                   "cached_tokens": 60,
                                   "cache_write_tokens": 30}}}]

    class Cached(MessagesCall):
        def documents(self):
            return [{"type": "message",
                     "usage": {"input_tokens": 10, "output_tokens": 7,
                               "cache_read_input_tokens": 60,
                               "cache_creation_input_tokens": 30}}]

    calls = [Plain(random.Random(1)), Cached(random.Random(1))]
    for call in calls:
        call.prices = {"input": "3", "output": "15", "read": "0.3",
                       "write": "3.75", "hour": "6"}
    expected = 30000 + 105000 + 18000 + 112500
    assert run(calls) == [["reported", expected, 10, 60, 30, 0, 7, 0]] * 2
