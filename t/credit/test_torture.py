"""The check of torture.py on constructed results."""

from types import SimpleNamespace

import pytest

import money
import torture
import torture_audit as audit
from torture_call import Call

SEED = "541097cd"
OVERDRAWN = (56, 176)   # calls of poor-0 that cost more than they hold


def book_of(numbers, version):
    """(run, book) of complete calls of one account, at the prices of a
    version, with exactly enough credit for their holds."""
    calls = {n: Call(SEED, n, torture.RICH, torture.POOR) for n in numbers}
    (account,) = {c.account for c in calls.values()}
    run = SimpleNamespace(
        calls=calls, versions=[audit.Version(0), audit.Version(1)],
        visits={}, topups=[], keys={(account, "m"): None})
    rows, invoices = [], {}
    for n, call in calls.items():
        invoices[n], run.visits[n] = done(call)
        rows.append(row_of(call, run.versions[version], n))
    held = sum(call.bound(run.versions[version].lines[call.line]).hold
               for call in calls.values())
    cost = sum(row["cost"] for row in rows)
    founding = money.nano("1.000000007")
    run.topups = [(account, "more", held - founding)]
    book = audit.Book.__new__(audit.Book)
    book.__dict__.update(
        run=run, rows=rows, invoices=invoices, bills={}, over={},
        outcomes={}, kills=[], cuts=[], stops=[], holds=[], live=None,
        late=0, lost_age=0, unread_rows=0, missing=0,
        fulls=[], topups=[dict(account=account, amount=held)],
        balances={account: (held - cost, held - cost)}, hours={})
    return run, book


def done(call):
    invoice, visit = torture.Invoice(False), torture.Visit()
    invoice.sent, invoice.how = len(call.script()), "complete"
    invoice.ended = visit.ended = visit.started
    visit.status, visit.complete = 200, True
    return invoice, visit


def row_of(call, version, id):
    line = version.lines[call.line]
    bound = call.bound(line)
    charge = money.charge(line, bound.hold, bound.estimate, audit.finished(
        call, call.script()[-1][1]))
    row = dict(id=id, model=call.model, account=call.account, end="complete",
               cost=charge.cost, outcome=charge.outcome)
    row.update({name: charge.tokens.get(name, 0) for name in money.CLASSES})
    return row


@pytest.mark.parametrize("version", [0, 1])
def test_an_account_may_fall_by_what_its_calls_did_not_hold(version):
    """At the prices of their holds: others would hold more or less."""
    run, book = book_of(OVERDRAWN, version)
    assert audit.verify(run, book) == []
    ((account, (balance, _)),) = book.balances.items()
    book.balances[account] = balance - 1, balance - 1
    (fault,) = audit.verify(run, book)
    assert "which more than true usage has overdrawn" in fault


@pytest.mark.parametrize("received, faults", [(101, 0), (99.1, 0), (98.9, 1)])
def test_a_power_cut_takes_what_is_young(received, faults):
    """Of a second, before it began, or during it."""
    run, book = book_of(OVERDRAWN[:1], 0)
    for n, invoice in book.invoices.items():
        invoice.received = run.visits[n].started = received
        invoice.ended = run.visits[n].ended = received + 0.1
    book.rows, book.cuts = [], [audit.Cut(100, 101.2, 1)]
    said = [f for f in audit.verify(run, book) if f.startswith("call")]
    assert len(said) == faults, said
