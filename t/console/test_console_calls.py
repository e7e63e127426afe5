"""Calls on the console: found, worked out, downloaded; charts, models,
refusals, status and the audit log."""

import csv
import io
import json
import re
import subprocess
from decimal import Decimal

import pytest

from browser import pattern
from console import ROOT, fill
from upstream import both, chat_completion, reply_json


@pytest.fixture(scope="module")
def console(start_console):
    c = start_console()
    c.keys = fill(c)
    return c


@pytest.fixture(autouse=True)
def reset(upstreams):
    for u in upstreams:
        u.reset()


def rows(page, table):
    """Its rows, as {heading: text}."""
    head, *body = page.find("table", table).js("""function() {
        return [...this.rows].map(
            r => [...r.cells].map(c => c.innerText.trim()));
    }""")
    return [dict(zip(head, row)) for row in body]


def test_request_id(console, visit, upstreams):
    """What a customer quotes leads to the call, and to each cent of it."""
    usage = {"prompt_tokens": 1234, "completion_tokens": 56,
             "total_tokens": 1290,
             "prompt_tokens_details": {"cached_tokens": 200},
             "completion_tokens_details": {"reasoning_tokens": 16}}
    upstreams[1].script(reply_json(chat_completion("one-0613", usage=usage)))
    r = console.gw.chat(key=console.keys["globex-app"])
    assert r.status == 200
    id = r.get("request-id")
    (call,) = console.calls(request_id=id)

    page = visit(console.vera, "#/calls")
    page.find("table", "Calls")
    page.find("searchbox", "Request id").type(id)
    page.key("Enter")
    row = page.wait(lambda: len(rows(page, "Calls")) == 1
                    and rows(page, "Calls")[0], "the call")
    assert row["Account"] == "globex" and row["Key"] == "globex-app"
    page.find("table", "Calls").find("rowheader").find("link").click()
    page.find("heading", "Call %d" % call["id"])
    cost = page.wait(lambda: rows(page, "How the cost is made up"), "cost")
    parts = {r["Tokens"]: (r["Number"], r["€ per million"], r["Cost (€)"])
             for r in cost}
    assert parts["Input"] == ("1,034", "1.00", "0.001034")
    assert parts["Cache read"] == ("200", "1.00", "0.0002")
    assert parts["Output"] == ("56", "2.00", "0.000112")
    assert sum(Decimal(c) for _, _, c in parts.values()) \
        == Decimal("0.001346") == Decimal(call["cost"])
    text = page.text().replace("\xa0", " ")
    assert "€ 0.001346" in text and id in text
    assert "16 tokens" in text and "differs" not in text


def test_request_id_that_is_unknown(console, visit):
    page = visit(console.vera, "#/calls?request_id=%s" % ("0" * 32))
    page.wait_text("No call matches")
    page.wait_text("24 hours")
    page.open("#/calls/999999999")
    page.allow(r"^network: .* status of 404 .*/calls/999999999$")
    assert "NOT_FOUND" in page.find("alert").text


def test_filters(console, visit):
    page = visit(console.vera, "#/calls")
    page.find("combobox", "Outcome").choose("refused")
    page.find("textbox", "Account").type("acme")
    page.find("combobox", "From (UTC)").type("-30d")
    page.find("button", "Search").click()

    def found():
        got = rows(page, "Calls")
        return got and all(r["Account"] == "acme" and "refused" in r["Result"]
                           for r in got)

    page.wait(found, "refused calls of acme")
    want = console.ok("/calls?account=acme&outcome=refused&from=-30d&limit=50")
    assert len(rows(page, "Calls")) == len(want["calls"])


@pytest.mark.parametrize("where, query", [
    ("#/calls", ""), ("#/calls?account=initech&from=-30d",
                      "account=initech&from=-30d")])
def test_csv(console, visit, where, query):
    page = visit(console.vera, where)
    page.find("table", "Calls")
    page.find("button", "Download CSV").click()
    with open(page.wait_file(), "rb") as f:
        data = f.read()
    r = console.send("GET", "/calls?" + query,
                     headers=[("Accept", "text/csv")])
    assert r.status == 200 and data == r.body
    table = list(csv.reader(io.StringIO(data.decode())))
    assert len(table) > 50 and "request_id" in table[0]
    page.wait_text("downloaded")


def test_overview(console, visit):
    page = visit(console.vera)
    page.find("heading", "Overview")
    for by, name in (("24h", "24 hours"), ("7d", "7 days"),
                     ("30d", "30 days")):
        page.find("navigation", "Time range").find("link", name).click()
        page.wait(lambda: ("range=" + by) in page.route, "range")
        usage = console.ok("/usage?by=account&from=-" + by)["usage"]
        top = page.wait(
            lambda: (got := rows(page, "Top accounts"))
            and [r["Account"] for r in got] == [u["account"] for u in usage]
            and got, "accounts of " + name)
        calls = sum(u["calls"] for u in usage)
        page.wait_text(r"Calls\s+{:,}\s".format(calls))
        assert [int(r["Calls"].replace(",", "")) for r in top] \
            == [u["calls"] for u in usage]
        page.wait(lambda: len(page.select("figure canvas")) == 4, "plots")
        assert len(page.all("image", pattern("^Plot: "))) == 4


def test_models(console, visit):
    page = visit(console.vera, "#/models")
    one = page.wait(lambda: {r["Model"]: r for r in
                             rows(page, "Models of group b")}, "models")
    assert one["fam-b-two"]["Upstream id"] == "vendor/two:v2@eu+x"
    assert one["fam-b-one"]["Input (€)"] == "1.00"
    assert {"fam-b-one", "fam-b-two", "~^code-(.+)$"} == set(one)
    assert rows(page, "Models of group a")[0]["Write (€)"] == "3.75"


def test_refusals(console, visit):
    limited = console.new_key("limited", account="hooli", rpm=1)
    for want in 200, 429, 429:
        assert console.gw.chat(key=limited).status == want
    page = visit(console.vera, "#/refusals")
    row = page.wait(lambda: [r for r in rows(page, "Refusals by key")
                             if r["Key"] == "limited"], "refusals")[0]
    assert row["Rate limited (429)"] == "2"
    codes = rows(page, "Refusals by code")
    assert any(r["Code"] == "RATE_LIMITED" for r in codes), codes


def test_status(console, visit):
    page = visit(console.vera, "#/status")
    page.wait_text("admits calls")
    page.wait_text("ledger.db")
    assert len(rows(page, "Upstreams")) == 2
    status = console.ok("/status")
    assert status["version"] in page.text()


def test_actions(console, visit):
    page = visit(console.vera, "#/actions?target=acme-prod")
    (row,) = page.wait(lambda: rows(page, "Audit log"), "actions")
    assert row["Actor"] == "ada" and row["Action"] == "key.create"
    assert "rpm: 600" in row["Changes"]
    page.find("link", "acme-prod").click()
    page.find("heading", "acme-prod")


def test_operators(console, visit):
    page = visit(console.ada, "#/operators")
    got = page.wait(lambda: rows(page, "Operators"), "operators")
    assert [(r["Name"], r["Role"]) for r in got] \
        == [("ada", "admin"), ("bill", "billing"), ("vera", "viewer")]


def block(page, client):
    page.find("group", "Client").find("button", client).click()
    page.wait(lambda: page.find("button", client).attribute(
        "aria-pressed") == "true", client)
    return [e.text for e in page.select(".code pre")]


def test_connect(console, visit, tmp_path):
    """What the page says to paste into a shell works."""
    key = console.keys["acme-dev"]
    page = visit(console.ada, "#/connect?key=acme-dev")
    page.find("group", "Client")
    for client in ("Claude Code", "Codex", "opencode", "OpenAI Python",
                   "OpenAI Node", "Anthropic Python", "Anthropic Node"):
        text = "\n".join(block(page, client))
        assert console.origin in text or "messages" in page.text(), client
        assert ('wire_api = "responses"' in text) is (client == "Codex")
    (curl,) = block(page, "curl")
    p = subprocess.run(["bash", "-c", curl], capture_output=True, text=True,
                       env={"MODELGW_KEY": key.secret, "PATH": "/usr/bin:/bin",
                            "HOME": str(tmp_path)}, timeout=60)
    assert json.loads(p.stdout)["choices"], (p.stdout, p.stderr)
