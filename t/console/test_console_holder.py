"""The console of a key's holder: its own account, read-only."""

import pytest

from console import fill


@pytest.fixture(scope="module")
def console(start_console):
    c = start_console()
    c.keys = fill(c, days=7)
    return c


@pytest.fixture
def page(console, visit):
    page = visit(console.keys["globex-app"])
    page.find("heading", "Billing")
    page.wait_text("Available")
    return page


def test_billing(console, page):
    account = console.ok("/accounts/globex")
    text = page.wait_text(r"(?s)Lasts.*").string.replace("\xa0", " ")
    assert "€ " + account["balance"] in text
    assert "their web shop" not in text and "pilot" not in text
    assert page.find("link", "Top up").attribute("href") \
        == "https://pay.example/?account=globex"
    page.wait_text("invoice-globex-1")
    page.wait_text("fix-globex-1")
    page.wait_text(r"about \d+ (days|h)|about")
    assert page.has("heading", "This key: globex-app")
    page.find("table", "Limits as they stand")


def test_only_its_own(console, page):
    """Nothing of another account is shown, or answered."""
    others = ["acme", "initech", "umbrella", "hooli", "alice", "bob-1"]
    for way in "", "models", "calls", "connect", "calls?from=-30d":
        page.open("#/" + way)
        page.wait(lambda: page.all("heading") and "Loading" not in page.text(),
                  way)
        shown = page.text() + page.js("document.body.outerHTML")
        for other in others:
            assert other not in shown, way

    page.allow(r"^network: .* status of (403|404) ")
    answers = page.js("""Promise.all([
        "/accounts", "/accounts/acme", "/keys/acme-prod", "/calls?account=acme",
        "/usage?by=key&account=acme", "/groups", "/status", "/actions",
        "/operators", "/refusals"].map(
            where => fetch("api" + where).then(r => r.status)))""")
    assert set(answers) <= {403, 404}, answers
    mine = page.js("""fetch("api/calls?limit=1000").then(r => r.json())""")
    assert {c["account"] for c in mine["calls"]} == {"globex"}
    changed = page.js("""Promise.all([
        ["POST", "/keys", {group: "b"}],
        ["POST", "/accounts/globex/topups", {id: "own", amount: "1.00"}],
        ["PATCH", "/keys/globex-app", {rpm: 1000}],
        ["POST", "/keys/globex-app/rotate", {}],
        ["PATCH", "/accounts/globex", {note: "x"}]].map(
            ([method, where, body]) => fetch("api" + where, {
                method, body: JSON.stringify(body),
                headers: {"X-Modelgw-Console": "1"}}).then(r => r.status)))""")
    assert set(changed) <= {403, 404}, changed


def test_links_lead_somewhere(console, page):
    """No link of a holder's page is one of an operator's."""
    seen, ways = set(), ["#/"]
    while ways:
        way = ways.pop()
        seen.add(way)
        page.open(way)
        page.wait(lambda: page.all("heading") and "Loading" not in page.text(),
                  way)
        assert not page.has("heading", "Not found"), way
        links = page.js("""[...document.querySelectorAll('main a')].map(
            a => a.getAttribute('href'))""")
        ways += [link for link in links if link.startswith("#/")
                 and link not in seen
                 and not (link.startswith("#/calls/") and any(
                     s.startswith("#/calls/") for s in seen))]
        if len(seen) > 15:
            break


def test_calls(console, page):
    page.find("navigation", "Console").find("link", "Calls").click()
    page.find("heading", "Calls")
    table = page.find("table", "Calls")
    assert not page.has("textbox", "Account")
    table.all("rowheader")[0].find("link").click()
    page.find("table", "How the cost is made up")


def test_connect(console, page):
    page.open("#/connect")
    page.wait_text("fam-b-one")
    assert "fam-a-" not in page.text()


def test_revoke_own_key(console, visit):
    key = console.new_key("leaked", account="globex")
    assert console.gw.chat(key=key).status == 200
    page = visit(key)
    page.find("button", "Revoke this key").click()
    page.allow(r"^network: .* status of 401 ")
    page.find("dialog", "Revoke leaked?").find(
        "button", "Revoke for ever").click()
    page.find("textbox", "Token or service key").type(key.secret)
    assert console.gw.chat(key=key).status == 401
    (action, _) = console.ok("/actions?target=leaked")["actions"]
    assert action["action"] == "key.revoke" and "leaked" in action["actor"]
    page.find("button", "Sign in").click()
    assert "SIGN_IN_REQUIRED" in page.find("alert").text


def test_configured_key(console, visit):
    """It is ended where it is kept."""
    page = visit(console.gw.bob)
    page.wait_text("kept in the gateway's configuration")
    assert not page.has("button", "Revoke this key")
    assert page.find("link", "Top up").attribute("href").endswith("=bob-1")


def test_closed_account(console, visit):
    key = console.new_key("of-closed", account="closed")
    page = visit(key)
    page.wait_text("Available")
    console.post("/accounts/closed", {"state": "closed"}, method="PATCH")
    page.allow(r"^network: .* status of 401 ")
    page.open("#/calls")
    page.wait(lambda: "closed" in page.text()
              or page.has("textbox", "Token or service key"), "answer")
