"""A day of calls for the ledger of a demo that has none yet.

usage: day.py LEDGER [NOW]

The ledger is one that nginx has made, with its prices and founding credit, and
has closed again.  Added is what operators and calls of the 26 hours before NOW
(seconds since the Epoch) would have left there, in the same form: each cost is
that of the tokens at the prices of the ledger, and nginx sums up the hours when
it opens the file.  The hashes of the keys are those of no key.
How much each account has spent does not depend on NOW.

Standard library only, like stub.py.
"""

import bisect
import hashlib
import itertools
import json
import os
import random
import sqlite3
import sys
import time

CALLS = 1500
SPAN = 26 * 3600        # seconds
LEAD = 600              # of them before the first call
LAST = 60               # and after the last one
CENT = 10 ** 7          # nano-euro

# calls in each hour of the day, UTC

OFFICE = (2, 1, 1, 1, 1, 2, 5, 12, 22, 29, 31, 28,
          20, 26, 32, 30, 25, 18, 12, 9, 7, 6, 4, 3)
NIGHT = (30, 34, 32, 28, 20, 9, 2, 1, 1, 1, 1, 1,
         1, 1, 1, 1, 1, 1, 1, 2, 3, 6, 12, 22)
EVEN = (2,) * 24

# id, group, account, models, limits; those of demo are in the configuration

KEYS = (
    ("acme-web", "b", "acme", "", {"rpm": 120, "note": "web shop"}),
    ("acme-batch", "a", "acme", "family_a-large,family_a-small",
     {"budget": 5000 * CENT, "window": "month", "note": "summaries, by night"}),
    ("globex-app", "a", "globex", "",
     {"tpm": 400000, "concurrency": 20, "note": "assistant in the app"}),
    ("globex-code", "b", "globex", "code-fast", {"note": "editors"}),
    ("initech-1", "b", "initech", "", {"rpm": 60}),
    ("initech-old", "b", "initech", "", {"note": "old server"}),
)

# key, model, group; share of the calls, when, tokens of input (median) and
# output, the part of the input that is cached, of calls that stream, and of
# those that are translated

TRAFFIC = (
    ("acme-web", "family_b-chat", "b", 34, OFFICE, 1400, 380, 0.4, 0.9, 0),
    ("acme-web", "code-fast", "b", 4, OFFICE, 900, 220, 0, 0.5, 0),
    ("acme-batch", "family_a-large", "a", 9, NIGHT, 9000, 900, 0, 0, 0),
    ("acme-batch", "family_a-small", "a", 9, NIGHT, 5000, 420, 0, 0, 0),
    ("globex-app", "family_a-large", "a", 13, OFFICE, 6500, 500, 0.8, 1, 0.3),
    ("globex-app", "family_a-small", "a", 8, OFFICE, 1200, 260, 0, 1, 0.3),
    ("globex-code", "code-fast", "b", 11, OFFICE, 16000, 600, 0, 1, 0),
    ("initech-1", "family_b-chat", "b", 5, EVEN, 11000, 700, 0, 0.3, 0),
    ("demo-a", "family_a-large", "a", 3, OFFICE, 700, 240, 0, 0.7, 0.5),
    ("demo-b", "family_b-chat", "b", 4, OFFICE, 500, 200, 0, 0.7, 0),
)

# outcome, end and status, in per mille; the others are reported

FAILURES = (
    (15, "refused", "complete", 429),
    (4, "refused", "complete", 500),
    (4, "refused", "complete", 400),
    (14, "estimated", "client", 200),
    (3, "estimated", "upstream", 200),
    (3, "unanswered", "timeout", 0),
    (2, "unsent", "upstream", 0),
)

# the upstream of group b was overloaded for a while: a part of the span

OVERLOADED = (0.62, 0.635)

CLASSES = ("input", "output", "cache_read", "cache_write", "cache_write_1h")


def euro(nano):
    """As the gateway writes amounts: two decimals at least."""

    text = "%d.%09d" % divmod(abs(nano), 10 ** 9)
    return "-" * (nano < 0) + text[:-7] + text[-7:].rstrip("0")


def some(rng, median, spread=0.6):
    return max(1, int(rng.lognormvariate(0, spread) * median))


def times(curve, begin, end):
    """Cumulated weights of the minutes from begin to end."""

    return list(itertools.accumulate(curve[t // 3600 % 24]
                                     for t in range(begin, end, 60)))


class Call:
    """What a call was, but for when it began."""

    def __init__(self, rng, price, traffic):
        (self.key, self.model, self.group, _, self.curve, self.typical,
         self.wordy, self.cached, stream, translated) = traffic
        self.price = price
        self.part = rng.random()
        self.flags = (rng.random() < stream) + 2 * (rng.random() < translated)
        self.tokens = dict.fromkeys(CLASSES + ("reasoning",), 0)
        self.outcome, self.end, self.status = self.fate(rng)
        self.count(rng)
        pico = sum(self.tokens[name] * price[name] for name in CLASSES)
        self.cost = (pico + 999) // 1000
        self.clock(rng)

    def fate(self, rng):
        n = rng.randrange(1000)
        if self.group == "b" and OVERLOADED[0] < self.part < OVERLOADED[1]:
            return "refused", "complete", 529
        for mille, outcome, end, status in FAILURES:
            n -= mille
            if n < 0:
                break
        else:
            return "reported", "complete", 200
        if outcome == "estimated":
            self.flags |= 1             # others are read to their end
        return outcome, end, status

    def count(self, rng):
        size, words = some(rng, self.typical), some(rng, self.wordy)
        if self.outcome in ("refused", "unsent"):
            return
        t = self.tokens
        t["input"] = size
        if self.outcome == "unanswered":
            return
        if rng.random() < self.cached:
            t["cache_read"] = size * 3 // 4
            t["input"] -= t["cache_read"]
        elif self.cached and self.group == "a":
            t["cache_write"] = size // 2
            t["input"] -= t["cache_write"]
        if self.outcome == "estimated":
            words = words // 3 + 1
        t["output"] = words
        if self.model == "family_b-chat" and rng.random() < 0.15:
            t["reasoning"] = words // 2

    def clock(self, rng):
        """Milliseconds from the request to the first byte, and to the end."""

        first = some(rng, 620 if "large" in self.model else 340, 0.4)
        self.first_byte, self.duration = None, first // 3
        if self.outcome == "unanswered":
            self.duration = 600000 + first % 10     # proxy_read_timeout
        elif self.outcome == "unsent":
            self.duration = first % 5
        elif self.outcome != "refused":
            rate = 14 if "large" in self.model else 8
            self.duration = first + self.tokens["output"] * rate
            self.first_byte = first if self.flags & 1 else self.duration - 1

    def row(self, number, account, started, rng):
        name = "req_stub_%x" % (started * 10 ** 6 + rng.randrange(10 ** 6))
        if self.status == 0:
            name = "%032x" % rng.getrandbits(128)   # nginx's own
        t = self.tokens
        return (number, started, started + self.duration, self.key, account,
                self.model, t["input"], t["cache_read"], t["cache_write"],
                t["cache_write_1h"], t["output"], t["reasoning"], self.cost,
                self.outcome, self.end, self.status, name, self.first_byte,
                self.flags, self.price["id"])


class Day:
    def __init__(self, db, now):
        self.db, self.rng = db, random.Random(14)
        self.begin, self.now = now - SPAN, now
        self.accounts = {key: account for key, _, account, _, _ in KEYS}
        self.accounts.update({"demo-a": "demo", "demo-b": "demo"})
        self.calls, self.actions = [], {}

    def make(self):
        prices = self.prices()
        calls = [Call(self.rng, prices[t[2], t[1]], t)
                 for t in self.rng.choices(TRAFFIC, [t[3] for t in TRAFFIC],
                                           k=CALLS)]
        self.place(calls)
        self.operate()
        self.db.execute(
            "UPDATE accounts SET opened = ?, balance ="
            " (SELECT sum(amount) FROM topups WHERE account = name)"
            " - coalesce((SELECT sum(cost) FROM calls WHERE account = name),"
            " 0)", (self.begin * 1000,))

    def prices(self):
        """Those of the ledger, which count since the day began."""

        self.db.execute('UPDATE prices SET "from" = ?', (self.begin * 1000,))
        return {(p["group"], p["model"]): dict(p)
                for p in self.db.execute("SELECT * FROM prices")}

    def place(self, calls):
        begin, end = self.begin + LEAD, self.now - LAST
        curves = {c: times(c, begin, end) for c in (OFFICE, NIGHT, EVEN)}
        placed = []
        for i, call in enumerate(calls):
            sums = curves[call.curve]
            minute = bisect.bisect(sums, call.part * sums[-1])
            started = (begin + minute * 60) * 1000 + self.rng.randrange(60000)
            last = end * 1000 - call.duration
            placed.append((min(started, last), i, call))
        self.db.executemany(
            "INSERT INTO calls VALUES (" + ", ".join("?" * 20) + ")",
            (call.row(started * 1000 + n, self.accounts[call.key], started,
                      self.rng)
             for n, (started, _, call) in enumerate(sorted(placed))))

    # what operators have done, in its order

    def operate(self):
        (founding,) = self.db.execute("SELECT amount FROM topups"
                                      " WHERE id = 'founding:demo'").fetchone()
        self.db.execute("UPDATE topups SET time = ?", (self.begin * 1000,))
        opened = set()

        for n, key in enumerate(KEYS):
            at = self.begin * 1000 + 1 + n * 2
            if key[2] not in opened:
                self.open(at, key[2], founding)
                opened.add(key[2])
            self.key(at + 1, *key)

        hour = self.begin * 1000 + 3600000
        self.top_up(hour, "acme", 5000, "invoice-2041", "")
        self.top_up(hour + 19000, "globex", 25000, "invoice-2042", "")
        self.top_up(hour + 142000, "globex", -22500, "fix-2042",
                    "a digit too many")
        self.revoke(hour + 7 * 3600000, KEYS[-1])

    def act(self, at, action, target, before, after):
        self.db.execute(
            "INSERT INTO actions VALUES (?1, ?1, ?2, 'unix:', ?3, ?4, ?5, ?6)",
            (at, "uid:%d" % os.getuid(), action, target, *(
                json.dumps(x, separators=(",", ":")) for x in (before, after))))

    def open(self, at, account, founding):
        self.db.execute("INSERT INTO accounts VALUES (?, 0, 0, 'open', '')",
                        (account,))
        self.db.execute("INSERT INTO topups VALUES (?, ?, ?, ?, '')",
                        ("founding:" + account, account, founding,
                         self.begin * 1000))
        self.act(at, "account.create", account, {},
                 {"state": "open", "note": "", "founding": euro(founding)})

    def key(self, at, name, group, account, models, limits):
        limit = limits.get
        digest = hashlib.sha256(("no key: " + name).encode()).digest()
        self.db.execute(
            "INSERT INTO keys VALUES (" + ", ".join("?" * 16) + ")",
            (digest, name, account, group, models, limit("rpm", 0),
             limit("tpm", 0), limit("concurrency", 0), limit("budget", 0),
             limit("window", ""), 0, "active", 1, at, at, limit("note", "")))
        self.act(at, "key.create", name, {},
                 self.describe(group, account, models, limits))

    @staticmethod
    def describe(group, account, models, limits, state="active", version=1):
        found = {"account": account, "group": group, "models": models}
        found.update((name, limits.get(name, 0))
                     for name in ("rpm", "tpm", "concurrency"))
        if "budget" in limits:
            found.update(budget=euro(limits["budget"]),
                         window=limits["window"])
        return dict(found, expires=None, old_until=None, state=state,
                    version=version, note=limits.get("note", ""))

    def revoke(self, at, key):
        self.db.execute("UPDATE keys SET state = 'revoked', version = 2,"
                        " changed = ? WHERE id = ?", (at, key[0]))
        self.act(at, "key.revoke", key[0], self.describe(*key[1:]),
                 self.describe(*key[1:], "revoked", 2))

    def top_up(self, at, account, cents, name, reason):
        (balance,) = self.db.execute(
            "SELECT (SELECT sum(amount) FROM topups WHERE account = ?1)"
            " - (SELECT coalesce(sum(cost), 0) FROM calls WHERE account = ?1"
            " AND ended < ?2)", (account, at)).fetchone()
        amount = cents * CENT
        self.db.execute("INSERT INTO topups VALUES (?, ?, ?, ?, ?)",
                        (name, account, amount, at, reason))
        after = {"balance": euro(balance + amount), "id": name,
                 "amount": euro(amount)}
        if reason:
            after["reason"] = reason
        self.act(at, "topup" if amount > 0 else "correction", account,
                 {"balance": euro(balance)}, after)


def main():
    path, *now = sys.argv[1:]

    # never makes a file

    db = sqlite3.connect("file:%s?mode=rw" % path, uri=True)
    db.row_factory = sqlite3.Row

    with db:
        Day(db, int(*now) if now else int(time.time())).make()

    db.close()


if __name__ == "__main__":
    main()
