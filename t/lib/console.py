"""A gateway with the console, as conf/modelgw/console.conf serves it, and a
ledger with a month of calls to look at."""

import hashlib
import json
import os
import random
import re
import secrets
import sqlite3
import time

import client
from gateway import MODELS_A, MODELS_B, ROOT, Key, group_a, group_b

HOUR = 3600000      # ms
DAY = 24 * HOUR

INSTALLED = "/usr/share/modelgw/console/"
FILES = os.path.join(os.environ.get("MODELGW_BUILD",
                                    os.path.join(ROOT, "build")), "console/")

GROUPS = (group_a(models=MODELS_A.replace("max_output=64000", "")
                  .replace(";", " max_output=4000;"))
          + group_b(models=MODELS_B.replace(";", " max_output=4000;")))


class Operator:
    """A line of operators.conf, with a token made at random."""

    def __init__(self, name, role, options=""):
        self.id = self.name = name
        self.role = role
        self.options = options
        self.secret = "op-eu-" + secrets.token_hex(24)

    def line(self):
        digest = hashlib.sha256(self.secret.encode()).hexdigest()
        return "%s sha256:%s %s %s;" % (self.name, digest, self.role,
                                        self.options)

    def bearer(self):
        return ("Authorization", "Bearer " + self.secret)


class Console:
    """The gateway and its operators: ada (admin), bill (billing), vera
    (viewer)."""

    PARTS = {"http": """
        modelgw_ledger $dir/ledger.db;
        modelgw_founding_credit 5.00;
        modelgw_operators { include $dir/operators.conf; }
        modelgw_topup_url "https://pay.example/?account=%s";
        modelgw_metrics_zone 4m;""",
             "managed": "modelgw_managed_keys 100;",
             "metrics": """
        location = /metrics {
            modelgw_metrics; allow 127.0.0.1; deny all;
        }""",
             "groups": GROUPS}

    def __init__(self, start, files=FILES, **kw):
        """start is Gateway's fixture."""
        self.ada = Operator("ada", "admin")
        self.bill = Operator("bill", "billing")
        self.vera = Operator("vera", "viewer")
        self.operators = [self.ada, self.bill, self.vera]
        parts = dict(self.PARTS, **kw)
        parts["http"] += parts.pop("managed")
        parts["locations"] = parts.get("locations", "") + self.snippet(files) \
            + parts.pop("metrics")
        parts["files"] = dict(kw.get("files", {}),
                              **{"operators.conf": self.lines()})
        self.made = []          # keys
        self.gw = start(**parts)

    @staticmethod
    def snippet(files=FILES):
        """console.conf, with the files that have not been installed."""
        with open(os.path.join(ROOT, "conf/modelgw/console.conf")) as f:
            text = f.read()
        assert INSTALLED in text
        assert os.path.isdir(files), files + ": make console"
        text = text.replace(INSTALLED, files)
        return re.sub(r"(?m)^\s*#.*$", "", text)

    def lines(self):
        return "".join(o.line() + "\n" for o in self.operators)

    def write_operators(self):
        """For a reload."""
        self.gw.files["operators.conf"] = self.lines()
        with open(self.gw.path("operators.conf"), "w") as f:
            f.write(self.lines())

    @property
    def origin(self):
        return "http://127.0.0.1:%d" % self.gw.port

    def leaks(self):
        """Of what this gateway gave out or knows, in its files."""
        return self.gw.leaks([k.secret for k in self.made + self.operators])

    # the administration, by its API

    def send(self, method, path, body=None, operator=None, headers=()):
        return self.gw.request(
            method, "/console/api" + path, key=operator or self.ada,
            headers=list(headers), host="127.0.0.1:%d" % self.gw.port,
            body=b"" if body is None else json.dumps(body))

    def ok(self, path, **kw):
        r = self.send("GET", path, **kw)
        assert r.status == 200, r
        return r.json()

    def post(self, path, body=None, method="POST", **kw):
        r = self.send(method, path, {} if body is None else body, **kw)
        assert r.status in (200, 201, 204), r
        return r.json() if r.body else None

    def new_key(self, id, **body):
        """A Key with its secret."""
        body = dict({"id": id, "group": "b"}, **body)
        return self.made_key(id, body["group"], self.post("/keys",
                                                          body)["key"])

    def made_key(self, id, group, secret):
        """As on the page."""
        key = Key(id, group, secret=secret)
        self.made.append(key)
        return key

    def calls(self, n=1, **filters):
        """The newest calls, when there are at least so many."""
        query = "&".join("%s=%s" % f for f in filters.items())
        end = time.monotonic() + client.LIMIT
        while True:
            calls = self.ok("/calls?" + query)["calls"]
            if len(calls) >= n:
                return calls
            assert time.monotonic() < end, "%d calls" % len(calls)
            time.sleep(0.02)

    def store(self, sql, args=()):
        """Changes the ledger of a gateway that was stopped."""
        db = sqlite3.connect(self.gw.path("ledger.db"), timeout=client.LIMIT)
        with db:
            rows = db.execute(sql, args).fetchall()
        db.close()
        return rows


# A month of some accounts, the same each time.

ACCOUNTS = [  # id, note, top-ups, calls a day
    ("acme", "Acme GmbH, invoice by the month", ("500.00", "250.00"), 90),
    ("globex", "Globex, pilot until spring", ("120.00",), 40),
    ("initech", "", ("60.00", "60.00"), 25),
    ("umbrella", "pays late", ("40.00",), 12),
    ("hooli", "", (), 2)]

FILLED_KEYS = [  # id, account, group, options
    ("acme-prod", "acme", "a", {"rpm": 600, "tpm": 400000, "concurrency": 20}),
    ("acme-batch", "acme", "a", {"models": ["fam-a-small", "fam-a-mini"],
                                 "budget": "150.00/month"}),
    ("acme-dev", "acme", "b", {"rpm": 60, "expires": "2035-01-01"}),
    ("globex-app", "globex", "b", {"rpm": 120, "note": "their web shop"}),
    ("initech-ci", "initech", "a", {"models": ["fam-a-mini"],
                                    "budget": "5.00/day"}),
    ("umbrella-1", "umbrella", "b", {}),
    ("hooli-trial", "hooli", "b", {"rpm": 10, "concurrency": 1})]

MODELS = {"a": ("fam-a-large", "fam-a-small", "fam-a-mini"),
          "b": ("fam-b-one", "fam-b-two", "code-9")}


def fill(console, days=30):
    """Accounts, keys, top-ups and calls; nginx is started again."""
    for account, note, topups, _ in ACCOUNTS:
        console.post("/accounts", {"id": account, "note": note})
        for i, amount in enumerate(topups, 1):
            console.post("/accounts/%s/topups" % account,
                         {"id": "invoice-%s-%d" % (account, i),
                          "amount": amount, "reason": "invoice %d" % i})
    keys = {id: console.new_key(id, account=account, group=group, **options)
            for id, account, group, options in FILLED_KEYS}
    console.post("/accounts/globex/topups",
                 {"id": "fix-globex-1", "amount": "-20.00", "correction": True,
                  "reason": "a digit too many"})

    gw = console.gw
    gw.stop()
    chance = random.Random(14)
    now = int(time.time() * 1000)
    prices = {(g, m): p for g, m, *p in console.store(
        'SELECT "group", model, id, input, output, cache_read FROM prices')}
    rows, spent = [], {}
    for id, account, group, options in FILLED_KEYS:
        per_day = {a: n for a, _, _, n in ACCOUNTS}[account] \
            / sum(a == account for _, a, _, _ in FILLED_KEYS)
        for day in range(days):
            for _ in range(int(per_day * (0.6 + chance.random() * 0.8))):
                hour = min(max(chance.gauss(13, 4), 0), 23.99)
                ended = now - day * DAY - int(hour * HOUR)
                model = chance.choice(options.get("models", MODELS[group]))
                name = "~^code-(.+)$" if model == "code-9" else model
                price, input_, output, read = prices[group, name]
                tokens = [int(chance.lognormvariate(7, 1.2)),
                          int(chance.lognormvariate(7, 1))
                          if chance.random() < 0.4 else 0,
                          int(chance.lognormvariate(5.5, 1))]
                failed = chance.random() < 0.03
                if failed:
                    tokens = [0, 0, 0]
                cost = -(-(tokens[0] * input_ + tokens[1] * read
                           + tokens[2] * output) // 1000)
                duration = int(400 + tokens[2] * chance.uniform(8, 25))
                rows.append((
                    ended - duration, ended, id, account, model, *tokens, cost,
                    "refused" if failed else "reported", "complete",
                    chance.choice((429, 500, 529)) if failed else 200,
                    "%032x" % chance.getrandbits(128),
                    None if failed else int(chance.uniform(150, 900)),
                    int(chance.random() < 0.7), price))
                spent[account] = spent.get(account, 0) + cost
    db = sqlite3.connect(gw.path("ledger.db"), timeout=client.LIMIT)
    with db:
        (last,) = db.execute("SELECT coalesce(max(id), 0) FROM calls").fetchone()
        db.executemany(
            'INSERT INTO calls (id, time, ended, "key", account, model, input,'
            ' cache_read, cache_write, cache_write_1h, output, reasoning, cost,'
            ' outcome, "end", status, request_id, first_byte, flags, price)'
            " VALUES (%s, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, 0, %s)"
            % ("?", ", ".join("?" * 8)),
            [(last + i, *row) for i, row in enumerate(sorted(rows), 1)])
        for account, cost in spent.items():
            db.execute("UPDATE accounts SET balance = balance - ?"
                       " WHERE name = ?", (cost, account))
        db.execute("DELETE FROM hours")
        db.execute("UPDATE marks SET value = 0 WHERE name = 'hours'")
    db.close()
    gw.start()
    return keys


def many(console, n=2500):
    """So many keys of one account, and as many calls of one of them."""
    console.new_key("many-0", account="many")
    gw = console.gw
    gw.stop()
    now = int(time.time() * 1000)
    db = sqlite3.connect(gw.path("ledger.db"), timeout=client.LIMIT)
    with db:
        columns = [r[1] for r in db.execute("PRAGMA table_info(keys)")]
        row = dict(zip(columns, db.execute(
            "SELECT * FROM keys WHERE id = 'many-0'").fetchone()))
        for i in range(1, n):
            row.update(id="many-%d" % i, digest=secrets.token_bytes(32))
            db.execute("INSERT INTO keys VALUES (%s)"
                       % ", ".join("?" * len(row)), list(row.values()))
        db.executemany(
            'INSERT INTO calls (id, time, ended, "key", account, model, input,'
            ' cache_read, cache_write, cache_write_1h, output, reasoning, cost,'
            ' outcome, "end", status, request_id, first_byte, flags)'
            " VALUES (?, ?, ?, 'many-0', 'many', 'fam-b-one', 1, 0, 0, 0, 1, 0,"
            " 1000, 'reported', 'complete', 200, ?, 300, 0)",
            [(i, now - (n - i) * 1000 - 500, now - (n - i) * 1000,
              "request-%d" % i) for i in range(1, n + 1)])
        db.execute("UPDATE accounts SET balance = balance - ?"
                   " WHERE name = 'many'", (1000 * n,))
        db.execute("DELETE FROM hours")
        db.execute("UPDATE marks SET value = 0 WHERE name = 'hours'")
    db.close()
    gw.start()
