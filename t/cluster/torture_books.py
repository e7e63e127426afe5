"""The checks of torture_cluster.py: the books in the database and in the journals
against the upstream's invoice.  Each check returns what is wrong, as text."""

import collections
import contextlib
import copy
import re
import time

import money
import torture_audit as audit
from cluster import COLUMNS, LEFT, wait_for
from gateway import Key
from postgres import quote

SOON = 5                # seconds until all nodes know a key, on a busy machine
TICK = 0.1              # between clocks of processes
GRACE = 6               # that calls may fail after a fault of the database:
                        # the longest pause between two tries is 3
LIVE = 3                # that a node counts as live without an exchange
SAMPLE = 2000           # calls, with which the checks are tested


class Topup:

    def __init__(self, account, id, amount):
        self.account = account
        self.id = id
        self.amount = amount
        self.begun = time.time()


def granted(server):
    """What the server has lent, in all."""
    return {(row["node"], row["account"]): row["granted"] for row in
            server.query("SELECT node, account, granted FROM modelgw.leases")}


class Facts:
    """All that is on the books."""

    def __init__(self, run, sample=None):
        c = run.c
        self.numbers = {node.name: node.num() for node in c.nodes}
        self.rows = c.query("SELECT node, pos, %s FROM modelgw.calls"
                            % ", ".join(COLUMNS))
        self.topups = {row["id"]: (row["account"], row["amount"]) for row in
                       c.query("SELECT id, account, amount "
                               "FROM modelgw.topups")}
        self.audit = c.audit()
        self.lent = c.lent()
        self.balances = {row["name"]: row["balance"] for row in c.query(
            "SELECT name, (free + coalesce((SELECT sum(%s) FROM modelgw.leases"
            " WHERE account = name), 0))::bigint AS balance "
            "FROM modelgw.accounts" % LEFT)}
        self.budgets = c.query("SELECT * FROM modelgw.budgets")
        self.hours = c.query(
            "SELECT account, sum(cost)::bigint AS difference FROM ("
            "SELECT account, cost FROM modelgw.hours UNION ALL "
            "SELECT account, -cost FROM modelgw.calls WHERE ended < "
            "(SELECT value FROM modelgw.marks WHERE name = 'hours')) AS x "
            "GROUP BY 1 HAVING sum(cost) <> 0")
        self.journals = {node.name: node.journal.calls() for node in c.nodes}
        self.journal_faults = ["%s: %s" % (node.name, row) for node in c.nodes
                               for row in node.journal.faults()]
        self.holds = ["%s: %s" % (node.name, row) for node in c.nodes
                      for row in node.journal.holds()]
        self.sample = sample


# What a client may have seen, beside what it may on one machine.

AWAY = re.compile(rb", -?[0-9.]+ euro are held by a node that does not answer")

SILENT = b"A node of the cluster that may have credit has not answered"

one_machine = audit.verify_client


def silent(run, begin, end):
    """Whether a node may have been silent then, and still have counted as
    live."""
    return any(audit.between(spans, begin - LIVE + grace, end)
               for book in run.books.values()
               for spans, grace in ((book.kills, 0), (book.cuts, 0),
                                    (book.stops, 0), (book.fulls, GRACE)))


def verify_client(book, call, visit, invoice, ended):
    error = visit.error or b""
    if visit.status == 402 and b"BUDGET_EXCEEDED" in error \
       and "thrifty" in call.account and invoice is None:
        return None
    if visit.status == 402:
        visit = copy.copy(visit)
        visit.error = AWAY.sub(b"", error)
    if visit.status == 503 and SILENT in error and invoice is None \
       and silent(book.run, visit.started, ended):
        return None
    if visit.status == 429 and b"calls at a time" in error and invoice is None:
        # nodes lend an eighth of them in advance, and without the database a
        # node has none that it did not have before, for ten seconds
        return None
    if visit.status == 401 and invoice is None:
        for made in book.run.made_keys.values():
            if made.key is visit.key and (
                    made.revoked and made.revoked < ended + TICK
                    or any(t > made.created - TICK
                           for t in book.run.rollbacks)):
                return None
    return one_machine(book, call, visit, invoice, ended)


audit.verify_client = verify_client


def book_of(run, name):
    """Of one node: what has happened there."""
    book = audit.Book.__new__(audit.Book)
    book.run = run
    book.invoices = run.invoices
    book.bills, book.over, book.outcomes = run.bills, run.over, run.outcomes
    book.kills = sorted(run.kills[name])
    book.cuts = sorted(run.cuts[name])
    book.stops = sorted(run.stops[name])
    book.fulls = sorted(run.disturbed[name])
    book.late = book.lost_age = book.unread_rows = book.missing = 0
    return book


def invoice(run, facts):
    """Each call is charged once, by what the upstream has said."""
    run.bills, run.over, run.outcomes = {}, {}, {}
    say, seen = [], {}
    for row in facts.rows:
        n = audit.number(row)
        if n not in run.calls:
            say.append("row %(node)s, %(pos)s is of no call: %(model)s" % row)
        elif n in seen:
            say.append("call %d has two rows: %s, %s" % (n, seen[n]["id"],
                                                         row["id"]))
        seen[n] = row
    run.books = {name: book_of(run, name) for name in facts.numbers}
    for n in run.visits:
        if facts.sample and n not in facts.sample:
            continue
        call, row, visit = run.calls[n], seen.get(n), run.visits[n]
        if visit.node is None:
            fault = row and "no node has taken it, but it has a row"
        elif row and row["node"] != facts.numbers[visit.node]:
            fault = "it is of %s, but its row is of node %d" % (
                visit.node, row["node"])
        else:
            fault = audit.verify_call(run.books[visit.node], call, row)
        if fault:
            say.append("call %d, %s: %s\n        %s" % (
                n, visit.node, fault, audit.describe(
                    next(iter(run.books.values())), call, row)))
        call.forget()
    return say


def bills(run, facts):
    """What the upstream bills, by account, is what the rows say."""
    billed, rows = collections.Counter(), collections.Counter()
    for row in facts.rows:
        n = audit.number(row)
        if row["outcome"] == "reported" and (not facts.sample
                                             or n in facts.sample):
            rows[row["account"]] += row["cost"]
            billed[row["account"]] += run.bills.get(n, 0)
    return ["%s: the upstream has billed %d, the calls say %d" % (
        account, billed[account], rows[account])
        for account in sorted(rows) if billed[account] != rows[account]]


def once(run, facts):
    """Each row of a journal is in the database, as it is, and no other one."""
    theirs = {name: {} for name in facts.numbers}
    names = {num: name for name, num in facts.numbers.items()}
    say = []
    for row in facts.rows:
        name = names.get(row["node"])
        if name is None:
            say.append("a row of node %s" % row["node"])
            continue
        theirs[name][row["pos"]] = {
            k: v for k, v in row.items() if k not in ("node", "pos")}
    for name, mine in facts.journals.items():
        for pos in sorted(set(mine) | set(theirs[name])):
            if mine.get(pos) != theirs[name].get(pos):
                say.append("%s, position %d: journal %s, database %s" % (
                    name, pos, mine.get(pos), theirs[name].get(pos)))
    return say


def in_the_database(run, facts):
    return facts.audit


def in_the_journals(run, facts):
    return facts.journal_faults


def hours(run, facts):
    return ["%(account)s: the hours differ by %(difference)s" % row
            for row in facts.hours]


def topups(run, facts):
    """Those that were answered, and no others."""
    wanted = {t.id: (t.account, t.amount) for t in run.topups}
    return ["top-up %s: %s, in the database %s" % (
        id, wanted.get(id), facts.topups.get(id))
        for id in sorted(set(wanted) | set(facts.topups))
        if wanted.get(id) != facts.topups.get(id)]


def balances(run, facts):
    """What nobody has and what is lent, is what was topped up less what the
    calls of the journals have cost."""
    have = collections.Counter()
    for t in run.topups:
        have[t.account] += t.amount
    for calls in facts.journals.values():
        for row in calls.values():
            have[row["account"]] -= row["cost"]
    return ["%s: %d, in the database %s" % (account, amount,
                                            facts.balances.get(account))
            for account, amount in sorted(have.items())
            if facts.balances.get(account) != amount]


def hold_of(run, call, visit, invoice):
    """The least that it may have held."""
    holds = [call.bound(v.lines[call.line]).hold for v in run.versions
             if v.since <= invoice.received + audit.MOMENT
             and v.until >= visit.started - audit.MOMENT]
    return min(holds)


def overspent(run, facts):
    """At no time were calls admitted beyond all credit: of each account the
    costs of calls that have ended and the holds of those that have not are at
    most what was topped up, but for usage above a hold and for the bound."""
    events = collections.defaultdict(list)
    run.worst = {}
    for t in run.topups:
        events[t.account].append((t.begun, -t.amount, 0))
    for row in facts.rows:
        n = audit.number(row)
        if not row["account"].startswith("poor") or n not in run.calls:
            continue
        invoice, hold = run.invoices.get(n), row["cost"]
        if invoice is not None:
            hold = hold_of(run, run.calls[n], run.visits[n], invoice)
        out = events[row["account"]]
        if invoice is not None:
            out.append((invoice.received + TICK, hold, 0))
            out.append((row["ended"] / 1000 - TICK, row["cost"] - hold,
                        max(0, row["cost"] - hold)))
        else:
            out.append((row["ended"] / 1000 + TICK, row["cost"], 0))
    say = []
    for account, changes in sorted(events.items()):
        total = allowed = worst = 0
        for _, amount, over in sorted(changes):
            total += amount
            allowed += over
            worst = max(worst, total - allowed)
        run.worst[account] = worst
        if worst > run.bound[account]:
            say.append("%s: %d more were admitted than there were, the bound "
                       "is %d" % (account, worst, run.bound[account]))
    return say


def budgets(run, facts):
    """Calls of a key cost no more than its budget, but for the same."""
    spent, over = collections.Counter(), collections.Counter()
    for row in facts.rows:
        spent[row["key"]] += row["cost"]
        over[row["key"]] += run.over.get(audit.number(row), 0)
    say = []
    for budget in facts.budgets:
        key = budget["key"]
        most = budget["lim"] + over[key] + run.bound[budget["name"]]
        if spent[key] > most:
            say.append("key %s has spent %d of %d (of them %d above holds)"
                       % (key, spent[key], budget["lim"], over[key]))
    return say


def given_back(run, facts):
    """Nodes without a call have nothing."""
    return ["node %d has %d of %s" % (node, rest, account)
            for (node, account), rest in facts.lent.items()]


def holds(run, facts):
    return facts.holds


def interface(run, facts):
    """Each node tells of the same balances, and of no call in flight."""
    say = []
    for name, accounts in run.live.items():
        for account, (balance, held) in sorted(accounts.items()):
            if balance != facts.balances.get(account) or held:
                say.append("%s says of %s: %d, held %d; it is %s" % (
                    name, account, balance, held,
                    facts.balances.get(account)))
    return say


def live(run):
    """By node: what its interface says of accounts, when nothing is held."""
    out = {}

    def ask(node):
        r = node.get("/admin/accounts?limit=1000")
        if r is None or r.status != 200:
            return False
        out[node.name] = {a["id"]: (money.nano(a["balance"]),
                                    money.nano(a["held"]))
                          for a in r.json()["accounts"]}
        return not any(held for _, held in out[node.name].values())

    for node in run.c.nodes:
        with contextlib.suppress(AssertionError):
            wait_for(lambda: ask(node), "held", 10)
        out.setdefault(node.name, {})
    return out


# Keys.

def admits(node, key):
    r = node.get("/v1/models", key=key)
    return r is not None and r.status == 200


def keys(run, facts=None):
    """Each node knows those of the database, and no others."""
    rows = run.c.query("SELECT id, digest, state FROM modelgw.keys")
    active = {row["digest"].hex() for row in rows if row["state"] == "active"}
    say = []
    for made in run.made_keys.values():
        if made.key is None:
            continue
        wanted = made.key.digest()[7:] in active
        for node in run.c.nodes:
            end = time.monotonic() + (0 if facts else SOON)
            while admits(node, made.key) != wanted:
                if time.monotonic() > end:
                    say.append("%s: key %s is %s in the database" % (
                        node.name, made.id,
                        "active" if wanted else "not active"))
                    break
                time.sleep(0.05)
    return say


def keys_known(run):
    """After all: and one that is made now is known everywhere."""
    run.made_keys = dict(run.made)
    say = keys(run)
    node = run.c.nodes[0]
    r = node.post("/admin/keys", {"id": "last", "group": "m",
                                  "account": "rich-0"})
    if r is None or r.status != 201:
        return say + ["a key cannot be made: %s" % r]
    key = Key("last", "m", secret=r.json()["key"])
    for node in run.c.nodes:
        node.hidden.append(key.secret)
        try:
            wait_for(lambda: admits(node, key), "no", SOON)
        except AssertionError:
            say.append("%s does not know a key that was made last"
                       % node.name)
    return say


CHECKS = {
    "invoice": invoice, "bills": bills, "rows once": once,
    "audit of the database": in_the_database,
    "audit of the journals": in_the_journals, "hours": hours,
    "top-ups": topups, "balances": balances, "overspent": overspent,
    "budgets": budgets, "leases given back": given_back, "holds": holds,
    "interface": interface,
}


def check(run):
    """(name, what is wrong) of each."""
    facts = Facts(run)
    run.facts = facts
    results = [(name, f(run, facts)) for name, f in CHECKS.items()]
    results.append(("keys", run.known))
    results.append(("clients, upstream, faults", run.faults))
    deadlocks = sum(text.count("deadlock detected") for text in
                    run.logs_of_servers
                    + [s.log() for s in run.c.servers])
    results.append(("deadlocks", ["%d" % deadlocks] if deadlocks else []))
    kept = {name: getattr(run, name) for name in (
        "bills", "over", "outcomes", "books", "worst")}
    results += plants(run, {name for name, faults in results if faults})
    run.__dict__.update(kept)
    return results


# The test of the checks: one fault at a time is put into the books.

def a_row(run, facts):
    return next(r for r in facts.rows if r["outcome"] == "reported"
                and r["cost"] and r["end"] == "complete"
                and audit.number(r) in run.calls)


def sql(plant, heal, *finds):
    """By hand, in the database."""
    def run_it(run, facts):
        row = a_row(run, facts)
        where = dict(node=row["node"], pos=row["pos"], id=row["id"],
                     account=quote(row["account"]))
        server = run.c.server
        server.run(plant % where)
        try:
            return found(run, Facts(run, facts.sample), finds)
        finally:
            server.run(heal % where)

    run_it.finds = set(finds)
    return run_it


def memory(plant, *finds):
    """In what was read of the books, or seen."""
    def run_it(run, facts):
        facts, seen = copy.copy(facts), object.__new__(type(run))
        seen.__dict__.update(run.__dict__)
        plant(seen, facts)
        return found(seen, facts, finds)

    run_it.finds = set(finds)
    return run_it


def found(run, facts, finds):
    return {name for name in finds
            if (keys if name == "keys" else CHECKS[name])(run, facts)}


def no_topups(run, facts):
    """Of the account that has spent most."""
    spent = collections.Counter()
    for row in facts.rows:
        if row["account"].startswith("poor"):
            spent[row["account"]] += row["cost"]
    account = max(spent, key=spent.get)
    run.bound = collections.Counter()
    run.topups = [t for t in run.topups if t.account != account]


def more_billed(run, facts):
    call = copy.copy(run.calls[audit.number(a_row(run, facts))])
    call.altered = True
    call.steps = [(data, seen.replaced(
                       usage={"output": seen.usage["output"] + 1})
                   if "output" in seen.usage else seen)
                  for data, seen in call.script()]
    run.calls = copy.copy(run.calls)
    run.calls.given = dict(run.calls.given)
    run.calls.given[call.n] = call


def journal_row(run, facts):
    facts.journals = {name: dict(rows)
                      for name, rows in facts.journals.items()}
    rows = max(facts.journals.values(), key=len)
    pos = next(iter(rows))
    rows[pos] = dict(rows[pos], cost=rows[pos]["cost"] + 1)


def journal_more(run, facts):
    facts.journals = {name: dict(rows)
                      for name, rows in facts.journals.items()}
    rows = max(facts.journals.values(), key=len)
    rows[max(rows) + 1] = rows[max(rows)]


def another_node(run, facts):
    facts.numbers = {name: num + 100 for name, num in facts.numbers.items()}


def told(run, facts):
    run.live = {name: {a: (b + 1, h) for a, (b, h) in accounts.items()}
                for name, accounts in run.live.items()}


ROW = "WHERE node = %(node)d AND pos = %(pos)d"
COPY = ("INSERT INTO modelgw.calls SELECT node, pos %s, id, time, ended, key, "
        "account, model, input, cache_read, cache_write, cache_write_1h, "
        "output, reasoning, cost, outcome, \"end\", status, request_id, "
        "first_byte, flags, price FROM %s WHERE node = %%(node)d "
        "AND pos = %%(pos)d")

PLANTS = {
    "a nano-euro more": sql(
        "UPDATE modelgw.calls SET cost = cost + 1 " + ROW,
        "UPDATE modelgw.calls SET cost = cost - 1 " + ROW,
        "invoice", "bills", "rows once", "audit of the database"),
    "a token more": sql(
        "UPDATE modelgw.calls SET input = input + 1 " + ROW,
        "UPDATE modelgw.calls SET input = input - 1 " + ROW,
        "invoice", "rows once"),
    "no row": sql(
        "CREATE TABLE modelgw.planted AS SELECT * FROM modelgw.calls " + ROW
        + "; DELETE FROM modelgw.calls " + ROW,
        "INSERT INTO modelgw.calls SELECT * FROM modelgw.planted; "
        "DROP TABLE modelgw.planted",
        "invoice", "rows once", "audit of the database"),
    "two rows": sql(
        COPY % ("+ 1000000000", "modelgw.calls"),
        "DELETE FROM modelgw.calls WHERE node = %(node)d AND "
        "pos = %(pos)d + 1000000000",
        "invoice", "rows once", "audit of the database"),
    "another account": sql(
        "UPDATE modelgw.calls SET account = 'rich-x' " + ROW,
        "UPDATE modelgw.calls SET account = %(account)s " + ROW,
        "invoice", "rows once", "audit of the database"),
    "credit from nowhere": sql(
        "UPDATE modelgw.accounts SET free = free + 1 WHERE name = 'poor-0'",
        "UPDATE modelgw.accounts SET free = free - 1 WHERE name = 'poor-0'",
        "audit of the database", "balances", "interface"),
    "a lease from nowhere": sql(
        "INSERT INTO modelgw.leases (node, account, granted) VALUES (999, "
        "'poor-0', 1)", "DELETE FROM modelgw.leases WHERE node = 999",
        "audit of the database", "leases given back", "balances"),
    "a top-up of another amount": sql(
        "UPDATE modelgw.topups SET amount = amount + 1 WHERE id = 'f-poor-0'",
        "UPDATE modelgw.topups SET amount = amount - 1 WHERE id = 'f-poor-0'",
        "top-ups", "audit of the database"),
    "a top-up that is gone": sql(
        "UPDATE modelgw.topups SET id = 'planted' WHERE id = 'f-poor-0'",
        "UPDATE modelgw.topups SET id = 'f-poor-0' WHERE id = 'planted'",
        "top-ups"),
    "an hour": sql(
        "INSERT INTO modelgw.hours VALUES (1, 'poor-0', '', '', 1, 0, 0, 0, "
        "0, 0, 0, 0, 1, 0, 0, 0)",
        "DELETE FROM modelgw.hours WHERE hour = 1", "hours"),
    "a smaller budget": sql(
        "UPDATE modelgw.budgets SET lim = lim - 10000000000000",
        "UPDATE modelgw.budgets SET lim = lim + 10000000000000",
        "budgets", "audit of the database"),
    "keys that nodes were not told of": sql(
        "UPDATE modelgw.keys SET state = 'x' || state",
        "UPDATE modelgw.keys SET state = substr(state, 2)", "keys"),
    "more on the invoice": memory(more_billed, "invoice"),
    "less credit than was spent": memory(no_topups, "overspent", "balances"),
    "another row in a journal": memory(journal_row, "rows once", "balances"),
    "a journal that is not shipped": memory(journal_more, "rows once"),
    "a call of another node": memory(another_node, "invoice", "rows once"),
    "another balance in the interface": memory(told, "interface"),
    "a hold": memory(lambda run, facts: setattr(
        facts, "holds", ["planted"]), "holds"),
    "a journal's audit": memory(lambda run, facts: setattr(
        facts, "journal_faults", ["planted"]), "audit of the journals"),
}


def plants(run, failed):
    """Checks that have failed anyway prove nothing here."""
    facts = copy.copy(run.facts)
    facts.sample = set(list(run.visits)[:SAMPLE]) | {
        audit.number(a_row(run, facts))}
    out = []
    for name, plant in PLANTS.items():
        finds = plant.finds - failed
        if not any(made.key for made in run.made_keys.values()):
            finds -= {"keys"}           # of a run without them
        try:
            missed = finds - plant(run, facts)
            faults = ["%s has not found it" % check for check in missed]
        except Exception as e:
            faults = ["%r" % e]
        out.append(("found: " + name, faults))
    return out


def summary(run, seconds):
    """Lines for people."""
    if not hasattr(run, "worst"):
        return ["nothing to sum up, after %d s" % seconds]
    facts = run.facts
    refused = collections.Counter(v.status for v in run.visits.values())
    own = collections.Counter(
        v.status for n, v in run.visits.items()
        if v.status and v.status != 200 and n not in run.invoices)
    per = collections.Counter(row["node"] for row in facts.rows)
    out = ["%d calls, %d rows (%s), %s euro, of them %s billed by usage and "
           "equal to the invoice; %d s" % (
               len(run.calls), len(facts.rows), ", ".join(
                   "node %d: %d" % item for item in sorted(per.items())),
               money.euro(sum(row["cost"] for row in facts.rows)),
               money.euro(sum(run.bills.values())), seconds),
           "answers: " + ", ".join("%s %d" % (status or "none", n) for
                                   status, n in sorted(
                                       refused.items(),
                                       key=lambda x: x[0] or 0))
           + "; by the gateway: " + ", ".join(
               "%s %d" % item for item in sorted(own.items())),
           "faults: " + ", ".join("%s %d" % item for item in
                                  sorted(run.torment.counts.items())),
           "lost by kills of nodes: %d calls; top-ups: %d, keys: %d" % (
               sum(b.missing for b in run.books.values()), len(run.topups),
               len(run.made_keys))]
    for account, worst in sorted(run.worst.items()):
        if account.startswith("poor"):
            out.append("%s: overspent at most %s euro; the bound, of what the "
                       "database has forgotten or was written off, is %s" % (
                           account, money.euro(worst),
                           money.euro(run.bound[account])))
    out.append("in all by " + (", ".join(
        "%s %s" % (what, money.euro(amount)) for what, amount in
        sorted(run.lost.items()) if amount) or "nothing") + " euro")
    return out
