"""The check of torture.py: rows of the store against the upstream's invoice.

What a call is charged follows from what its upstream had said when it ended
(money.charge).  Where it cannot be known how much of that the gateway had
read, as when its worker was killed in the middle of a text, each amount
between what the client had received and what the upstream had sent is allowed,
and nothing else.
"""

import bisect
import collections
import copy
import json
import os
import re
import sqlite3
import time

import client
import money
import torture_call
from money import Seen
from torture_answer import CHAT, RESPONSES

ADMIN_LOCATION = ("location /admin/ { modelgw_admin; allow 127.0.0.1; "
                  "deny all; }")

SOON = 1.0          # seconds: the calls of a killed worker are settled
SLACK = 1.0         # more, on a machine that is busy
WINDOW = 0.75       # seconds: what a power cut may take; flush is 5 ms
SYNCS = 3           # and the syncs: of a writer that was killed before,
                    # of the start of the next one, of a flush
MOMENT = 0.25       # between clocks of processes
LONGEST = 30        # seconds that a stop, or a full disk, may last

BALANCES = """
    SELECT name,
           coalesce((SELECT sum(amount) FROM topups WHERE account = name), 0)
         - coalesce((SELECT sum(cost) FROM calls WHERE account = name), 0)
         - coalesce((SELECT sum(cost) FROM days WHERE account = name), 0)
           AS derived,
           balance
    FROM accounts"""


# A power cut: when it began, when all processes had exited and what they had
# sent was read, and how old the calls it loses may be.

Cut = collections.namedtuple("Cut", "begin end window")


class Version:
    """Prices, and when a call may have been held at them."""

    def __init__(self, number):
        self.number = number
        self.since = time.time()
        self.until = float("inf")
        self.lines = torture_call.lines(number)


class Store:
    """The SQLite file, read as an operator would."""

    def __init__(self, path):
        self.path = path

    def query(self, sql, *args):
        db = sqlite3.connect("file:%s?mode=ro" % self.path, uri=True,
                             timeout=10)
        try:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(sql, args)]
        finally:
            db.close()

    def holds(self):
        return self.query("SELECT * FROM holds")

    def calls(self):
        return self.query("SELECT * FROM calls ORDER BY id")

    def last(self):
        """The highest id of a call."""
        (row,) = self.query("SELECT max((SELECT coalesce(max(id), 0) FROM calls"
                            "), (SELECT coalesce(max(id), 0) FROM holds)) id")
        return row["id"]

    def balances(self):
        """account: (balance by the rows, by the account)"""
        return {row[0]: row[1:] for row in
                (tuple(r.values()) for r in self.query(BALANCES))}

    def topups(self):
        return self.query("SELECT * FROM topups")

    def hours(self):
        """account: the cost in "hours" less that of their calls"""
        return {row["account"]: row["hours"]
                for row in self.query("SELECT account, hours FROM audit")}


class Admin:

    def __init__(self, g):
        self.g = g

    @staticmethod
    def of(g):
        r = g.get("/admin/accounts")
        if r is not None and r.status == 200:
            return Admin(g)
        print("torture: SKIPPED: no admin interface: no top-ups, and live "
              "balances are not seen", flush=True)
        return None

    def accounts(self):
        r = self.g.get("/admin/accounts")
        assert r.status == 200, r
        return [{"id": a["id"], "balance": money.nano(a["balance"]),
                 "held": money.nano(a["held"])}
                for a in r.json()["accounts"]]

    def topup(self, account, id, amount):
        """Twice the same, as a client that lost the first answer; a worker may
        be killed in between."""
        r, done = None, 0
        for _ in range(50):
            try:
                r = self.g.post("/admin/accounts/%s/topups" % account,
                                {"id": id, "amount": money.euro(amount)})
                done += r is not None and r.status in (200, 201)
            except OSError:
                pass
            if done == 2:
                return
            time.sleep(0.05)
        raise AssertionError("no top-up: %s" % r)


class Book:
    """All that is known of a run."""

    def __init__(self, run):
        self.run = run
        self.rows = run.store.calls()
        self.topups = run.store.topups()
        self.balances = run.store.balances()
        self.holds = run.store.holds()
        self.hours = run.store.hours()
        self.live = run.live
        self.invoices = run.invoices
        self.bills = {}         # cost of each reported call, by number
        self.over = {}          # and the part that was not held
        self.kills = sorted(run.kills)
        self.cuts = sorted(run.cuts)
        self.stops = sorted(run.stops)
        self.fulls = sorted(run.fulls)
        self.late = 0           # seconds, of killed calls
        self.lost_age = 0
        self.outcomes = {}
        self.unread_rows = 0
        self.missing = 0


def number(row):
    tail = row["model"].rsplit("-", 1)[-1]
    return int(tail) if tail.isdigit() else None


def between(spans, begin, end):
    """Whether one of the (begin, end) spans overlaps this one."""
    i = bisect.bisect_left(spans, (begin - LONGEST,))
    while i < len(spans) and spans[i][0] <= end:
        if spans[i][1] >= begin:
            return True
        i += 1
    return False


def verify(run, book=None):
    """All differences, as text."""
    book = book or Book(run)
    run.book = book
    say = []

    seen = {}
    for row in book.rows:
        n = number(row)
        if n not in run.calls:
            say.append("row %s is of no call: %s" % (row["id"],
                                                     row["model"]))
        elif n in seen:
            say.append("call %d has two rows: %s, %s" % (n, seen[n]["id"],
                                                         row["id"]))
        seen[n] = row

    for n, call in run.calls.items():
        fault = verify_call(book, call, seen.get(n))
        if fault:
            say.append("call %d: %s\n        %s" % (
                n, fault, describe(book, call, seen.get(n))))
        call.forget()

    return say + verify_accounts(book) + verify_metrics(run, book)


def verify_metrics(run, book):
    """The counters since the last start are the sums of the rows, to the
    nano-euro, but for calls of workers that were killed as they counted."""
    if getattr(run, "metrics", None) is None:
        return []

    say, run.uncounted, missing = [], [], 0
    rows = [row for row in book.rows if row["id"] > run.first]
    models = run.metrics.values("modelgw_calls_total", "model")

    for model in sorted(models | {None}, key=str):
        of = [row for row in rows if model is None
              and not any(re.match(m[1:], row["model"]) for m in models)
              or model and re.match(model[1:], row["model"])]
        calls = len(of) - run.metrics.sum("modelgw_calls_total", model=model)
        cost = sum(row["cost"] for row in of) - 10 ** 9 * run.metrics.sum(
            "modelgw_cost_euro_total", model=model)
        if calls or cost:
            missing += max(calls, 1)
            text = "%d calls of model %s, %s euro, are not in the metrics" % (
                calls, model, money.euro(int(cost)))
            run.uncounted.append(text)
            if calls < 0 or cost < 0:
                say.append(text)

    if missing > run.metered_kills:
        say += ["%d kills: %s" % (run.metered_kills, text)
                for text in run.uncounted]
    run.metered = len(rows)
    return say


def verify_call(book, call, row):
    run = book.run
    visit = run.visits[call.n]
    invoice = book.invoices.get(call.n)
    ended = max(visit.ended, (invoice and invoice.ended) or 0)

    fault = verify_client(book, call, visit, invoice, ended)
    if fault:
        return fault

    if row is None:
        if invoice is None:
            return None
        if cut_soon(book, invoice.received - MOMENT, invoice.received):
            book.missing += 1
            book.lost_age = max(book.lost_age,
                                age(book, invoice.received))
            return None
        return "was sent, and has no row"

    if visit.refused:
        return "nobody listened, but it has a row"

    if row["account"] != call.account:
        return "is charged to %s" % row["account"]

    if row["end"] == "killed":
        at = row["ended"] / 1000
        kills = [k for k in book.kills
                 if visit.started <= k[1] and k[0] <= at + 0.01]
        if not kills:
            return "no worker was killed"
        book.late = max(book.late, at - kills[-1][1])
        if at - kills[-1][1] > SOON + SLACK:
            return "was settled %.1f s after the kill" % (at - kills[-1][1])
    elif row["end"] == "lost":
        cut = cut_soon(book, visit.started, ended)
        if not cut:
            return "is lost without a power cut"
        book.lost_age = max(book.lost_age, cut.begin - ended)
    elif row["end"] == "stopped":
        if not between(book.stops, visit.started, ended + MOMENT):
            return "nginx was not stopped"

    allowed = list(charges(book, call, row, visit, invoice))
    for charge, line in allowed:
        if same(row, charge):
            if charge.outcome == "reported":
                book.bills[call.n] = line.cost(charge.tokens)
            book.over[call.n] = max(0, row["cost"] - call.bound(line).hold)
            name = charge.outcome + "/" + row["end"]
            book.outcomes[name] = book.outcomes.get(name, 0) + 1
            if invoice is None:
                book.unread_rows += 1
            return None
    return "is charged %s, allowed is %s" % (
        row_text(row), sorted({str(c) for c, _ in allowed})[:6])


def cut_soon(book, begin, end):
    """The power cut in between, or so soon after that the end was not written
    yet."""
    for cut in book.cuts:
        if cut.end >= begin and cut.begin <= end + cut.window:
            return cut
    return None


def age(book, moment):
    later = [cut.begin for cut in book.cuts if cut.end >= moment - MOMENT]
    return max(0, later[0] - moment) if later else 0


def verify_client(book, call, visit, invoice, ended):
    """What the client saw is what was planned, or a process was killed."""
    if visit.refused or visit.left:
        return None
    begin, end = visit.started - MOMENT, ended + MOMENT
    disturbed = (between(book.kills, begin, end)
                 or between(book.cuts, begin, end)
                 or between(book.stops, begin, end)
                 or between(book.fulls, begin, end))
    if visit.status == 402:
        if call.account.startswith("rich"):
            return "402 for a rich account"
        if invoice is not None:
            return "402, but it was sent"
        return verify_refusal(book, call, visit)
    if visit.status in (401, 403, 404, 413, 429, 503) and invoice is None \
       and not call.dead and not disturbed:
        return "%s: %s" % (visit.status, visit.error)
    if visit.complete and visit.status == 200 and (
            invoice is None or invoice.sent < call.whole()):
        return "a whole answer, but the upstream sent none"
    if not visit.complete and not disturbed and call.behaviour == "ok" \
       and not call.dead and not (invoice and invoice.late):
        return "the answer broke off"
    return None


def verify_refusal(book, call, visit):
    """The amount that a 402 asks for is the hold, and not less than is
    left."""
    try:
        need, left, fits = money.refusal(json.loads(visit.error)["message"])
    except (AssertionError, ValueError, KeyError) as e:
        return "402 says %r" % e
    if fits and (b" max_output_tokens " in visit.error) != (
            call.speaks == RESPONSES):
        return "402 says %s" % visit.error
    for version in book.run.versions:
        line = version.lines[call.line]
        bound = call.bound(line)
        if need == bound.hold and fits == bound.fits(line, left) \
           and left < need:
            return None
    return "402 says %s, the hold is %d" % (visit.error, bound.hold)


def charges(book, call, row, visit, invoice):
    """All that the rules allow: (charge, line)."""
    begin = visit.started - MOMENT
    end = (invoice.received if invoice else visit.ended) + MOMENT
    for version in book.run.versions:
        if version.since <= end and version.until >= begin:
            line = version.lines[call.line]
            bound = call.bound(line)
            for seen in moments(call, row["end"], visit, invoice):
                yield money.charge(line, bound.hold, bound.estimate,
                                   seen), line


def moments(call, end, visit, invoice):
    """What the gateway may have known when the call ended this way."""
    if invoice is None:
        # killed, or left, before it was sent; or there was no connection
        if end in ("killed", "lost", "client", "stopped"):
            yield Seen()
        if end in ("client", "stopped") or call.dead and end == "upstream":
            yield Seen(unsent=True)
        return

    if end == "lost":
        yield Seen()
        return

    steps = call.script()
    sent = invoice.sent
    known = [Seen()] + [seen for _, seen in steps]

    if end == "complete":
        if invoice.how == "complete":
            yield finished(call, known[-1])
        else:
            for at in range(call.whole(), sent + 1):
                yield finished(call, known[at])
        return

    low = received(call, visit, steps) if call.stream else (
        1 if visit.status == 200 else 0)

    if end in ("upstream", "timeout"):
        if invoice.how == "stall" or invoice.how == "close" \
                and end == "upstream":
            low = sent
        else:
            low = min(low, sent)    # or, on a busy machine, sent too late
        # the answer was received, but not its end
        for at in range(low, sent + 1):
            yield known[at]
        if sent == 0 and invoice.reused and end == "upstream":
            yield Seen(unread=True)
        return

    # the client left, the worker was killed, or nginx stopped
    if end == "client" and not call.stream and invoice.how in (
            "complete", "close", "stall"):
        low = sent      # it was read to its end after the client left
    for at in range(low, sent + 1):
        yield known[at]
    if sent == len(steps):
        yield finished(call, known[-1])
    if sent == 0 and invoice.reused and end == "client":
        yield Seen(unread=True)


def finished(call, seen):
    """A complete chat answer has reported its final usage."""
    if call.protocol == CHAT and "output" in seen.usage \
       and "output" not in seen.odd:
        return seen.replaced(final=True)
    return seen


def received(call, visit, steps):
    """The steps of which the client has received the result."""
    if visit.status != 200:
        return 0
    if visit.complete:
        return call.whole()
    for at, (_, seen) in enumerate(steps):
        if seen.text >= visit.text:
            return at + 1
    return len(steps)


def same(row, charge):
    return (row["cost"] == charge.cost and row["outcome"] == charge.outcome
            and all(row[name] == charge.tokens.get(name, 0)
                    for name in money.CLASSES))


def row_text(row):
    return "%s/%s %d %s" % (row["outcome"], row["end"], row["cost"],
                            {name: row[name] for name in money.CLASSES
                             if row[name]})


def describe(book, call, row):
    visit, invoice = book.run.visits[call.n], book.invoices.get(call.n)
    return ("%s%s %s, %s/%s, client %s (%s, %s, %d bytes); upstream %s; "
            "started %.3f ended %.3f row %s" % (
                call.api, " stream" if call.stream else "", call.line,
                call.behaviour, call.report, call.leaves, visit.status,
                "complete" if visit.complete else "cut", visit.size,
                "none" if invoice is None else "%d of %d, %s, %s" % (
                    invoice.sent, len(call.script()), invoice.how,
                    "reused" if invoice.reused else "fresh"),
                visit.started, visit.ended,
                {k: v for k, v in (row or {}).items() if v}))


def verify_accounts(book):
    run = book.run
    say = []

    # whose usage was read, by account: the invoice compared with the rows

    billed, rows, over = {}, {}, {}
    for row in book.rows:
        n = number(row)
        if n not in run.calls:
            continue
        account = row["account"]
        if row["outcome"] == "reported":
            rows[account] = rows.get(account, 0) + row["cost"]
            billed[account] = billed.get(account, 0) + book.bills.get(n, 0)
        over[account] = over.get(account, 0) + book.over.get(n, 0)
    for account in sorted(set(billed) | set(rows)):
        if billed.get(account, 0) != rows.get(account, 0):
            say.append("account %s: the upstream has billed %d, the calls "
                       "say %d" % (account, billed.get(account, 0),
                                   rows.get(account, 0)))

    # each balance, by three sources; and how far it may have fallen

    granted = {account: money.nano("10000" if account.startswith("rich")
                                   else "1.000000007")
               for account in {k[0] for k in run.keys}}
    for account, _, amount in run.topups:
        granted[account] += amount
    told = {}
    for t in book.topups:
        told[t["account"]] = told.get(t["account"], 0) + t["amount"]

    live = {a["id"]: a for a in book.live or []}
    for account, amount in sorted(granted.items()):
        if told.get(account) != amount:
            say.append("account %s: %d were topped up, the store says %s"
                       % (account, amount, told.get(account)))
        if account not in book.balances:
            say.append("account %s is not in the store" % account)
            continue
        derived, stored = book.balances[account]
        if derived != stored:
            say.append("account %s: the rows say %d, the account %d"
                       % (account, derived, stored))
        if book.hours.get(account):
            say.append("account %s: the hours differ by %d from their calls"
                       % (account, book.hours[account]))
        if live and live.get(account, {}).get("balance") != stored:
            say.append("account %s: %s live, %d stored"
                       % (account, live.get(account), stored))
        if live and live.get(account, {}).get("held"):
            say.append("account %s: %s are held of nothing"
                       % (account, live[account]["held"]))
        if stored < -over.get(account, 0):
            say.append("account %s: %d, which more than true usage has "
                       "overdrawn" % (account, stored))
    if book.holds:
        say.append("%d holds are left behind" % len(book.holds))

    return say


# The test of the check.

SAMPLE = 500        # calls


def mutants(run):
    """One error at a time is inserted, which verify() must find."""
    whole = run.book
    try:
        before = len(verify(*sample(whole)))
        return ["the check has not found \"%s\"" % m.__name__
                for m in MUTATIONS if len(verify(*sample(whole, m))) <= before]
    finally:
        run.book = whole


def sample(whole, mutate=None):
    """(run, book) of the first calls alone, with one error."""
    run = copy.copy(whole.run)
    run.calls = {n: c for n, c in whole.run.calls.items() if n <= SAMPLE}
    book = Book.__new__(Book)
    book.__dict__.update(whole.__dict__)
    book.run = run
    book.rows = [dict(r) for r in whole.rows if number(r) in run.calls]
    book.topups = [dict(t) for t in whole.topups]
    book.balances = dict(whole.balances)
    book.hours = dict(whole.hours)
    book.bills, book.over, book.outcomes = {}, {}, {}
    if mutate:
        row = next(r for r in book.rows if r["outcome"] == "reported"
                   and r["cost"] and r["end"] == "complete")
        mutate(book, row)
    return run, book


def nano_more(book, row):
    row["cost"] += 1


def nano_less(book, row):
    row["cost"] -= 1


def invoice(book, row):
    """The upstream has billed one more token."""
    call = copy.copy(book.run.calls[number(row)])
    call.altered = True
    call.steps = [(data, seen.replaced(
                       usage={"output": seen.usage["output"] + 1})
                   if "output" in seen.usage else seen)
                  for data, seen in call.script()]
    book.run.calls[call.n] = call


def tokens(book, row):
    row["input"] += 1


def without_row(book, row):
    book.rows.remove(row)


def two_rows(book, row):
    book.rows.append(dict(row, id=-1))


def unknown_row(book, row):
    book.rows.append(dict(row, id=-1, model="tc-a-0"))


def other_account(book, row):
    row["account"] = "rich-5" if row["account"] != "rich-5" else "rich-0"


def claims_kill(book, row):
    row["end"], row["ended"] = "killed", 1000


def balance(book, row):
    derived, stored = book.balances[row["account"]]
    book.balances[row["account"]] = derived, stored + 1


def topup(book, row):
    book.topups[0]["amount"] += 1


def hold(book, row):
    book.holds = [dict(id=1)]


def hours(book, row):
    book.hours[row["account"]] += 1


MUTATIONS = (hours, nano_more, nano_less, invoice, tokens, without_row, two_rows,
             unknown_row, other_account, claims_kill, balance, topup, hold)


def summary(run, seconds):
    book = getattr(run, "book", None)
    if book is None:
        return "torture: nothing to sum up"
    euro = sum(r["cost"] for r in book.rows)
    billed = sum(book.bills.values())
    refused = sum(v.status == 402 for v in run.visits.values())
    sizes = os.path.getsize(run.store.path)
    out = ["torture: %d calls, %d rows, %s euro, of them %s billed by usage "
           "and equal to the invoice" % (
               len(run.calls), len(book.rows), money.euro(euro),
               money.euro(billed)),
           "torture: %d kills, %d power cuts, %d stops, %d reloads, %d "
           "top-ups, %d times without a WAL, %d on a full disk, %d refused "
           "for credit; %d s" % (
               len(run.kills), len(run.cuts), len(run.stops), run.reloads,
               len(run.topups), run.wals, len(run.fulls), refused, seconds),
           "torture: killed calls settled within %.3f s; power cuts lost %d "
           "calls, nothing older than %.3f s; %d rows of calls that did "
           "not reach the upstream; store %d kB" % (
               max(book.late, 0), book.missing, book.lost_age,
               book.unread_rows, sizes / 1024),
           "torture: " + ", ".join("%s %d" % item for item in
                                   sorted(book.outcomes.items())),
           "torture: metrics: %d calls and %d kills since the last start; %s"
           % (getattr(run, "metered", 0), getattr(run, "metered_kills", 0),
              "; ".join(getattr(run, "uncounted", [])) or "all are counted")]
    return "\n".join(out)
