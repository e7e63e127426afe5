"""Signing in and out: operators of each role, what each may do, and sessions
that end while a page is open."""

import re

import pytest

from conftest import sign_in
from console import Operator


@pytest.fixture(scope="module")
def console(start_console):
    c = start_console()
    c.gw.chat()
    c.calls()
    return c


ROLES = {"ada": "admin", "bill": "billing", "vera": "viewer"}


@pytest.mark.parametrize("name", ROLES)
def test_operator(console, visit, name):
    who = getattr(console, name)
    page = visit()
    field = page.find("textbox", "Token or service key")
    assert field.get("type") == "password"
    assert page.focused == field
    sign_in(page, who)
    page.find("heading", "Overview")
    page.wait_text(r"%s\s+%s" % (name, ROLES[name]))
    links = [e.text for e in page.find("navigation", "Console").all("link")]
    assert links[:5] == ["Overview", "Accounts", "Keys", "Models", "Calls"]
    assert ("Operators" in links) == (name == "ada")

    # the session is a cookie that no script sees, and no token

    (cookie,) = page.cookies()
    assert cookie["name"] == "__Host-modelgw"
    assert cookie["httpOnly"] and cookie["secure"] and cookie["path"] == "/"
    assert cookie["sameSite"] == "Strict"
    assert who.secret not in cookie["value"]
    page.allow("^issue: PerformanceIssue: .*DocumentCookie")
    assert page.js("document.cookie") == ""
    kept = page.js("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert who.secret not in kept

    # it lasts when the page is loaded again, and in another tab

    page.reload()
    page.find("heading", "Overview")
    assert who.secret not in page.js("document.documentElement.outerHTML")
    assert who.secret not in page.strings()


@pytest.mark.parametrize("name", ROLES)
def test_role(console, visit, name):
    """What a role must not do is not offered, and is refused anyway."""
    who = getattr(console, name)
    page = visit(who, "#/accounts/alice")
    page.find("heading", "alice")
    page.wait_text("Balance")
    assert page.has("button", "Top up") == (name != "vera")
    assert page.has("button", "Correct") == (name != "vera")
    assert page.has("button", "Close account") == (name == "ada")
    page.open("#/keys")
    page.find("heading", "Keys")
    page.find("table", "Keys")
    assert page.has("button", "New key") == (name == "ada")

    page.allow(r"^network: .* status of 403 ")
    answers = page.js("""(async () => {
        const send = (where, body) => fetch("api" + where, {
            method: "POST", body: JSON.stringify(body),
            headers: {"X-Modelgw-Console": "1"}}).then(r => r.status);
        return [await send("/accounts/alice/topups",
                           {id: "of-%s", amount: "1.00"}),
                await send("/accounts", {id: "of-%s"}),
                (await fetch("api/operators")).status];
    })()""" % (name, name))
    assert answers == {"ada": [201, 201, 200], "bill": [201, 403, 403],
                       "vera": [403, 403, 403]}[name]


def test_wrong_tokens(console, visit):
    page = visit()
    page.allow(r"^network: .* status of 401 .*/console/api/session$")
    revoked = console.new_key("was-revoked")
    console.post("/keys/was-revoked/revoke")
    for wrong in (Operator("eve", "admin").secret, console.gw.dave.secret,
                  revoked.secret, "x", "<img src=x onerror=alert(1)>"):
        page.find("textbox", "Token or service key").type(wrong)
        page.find("button", "Sign in").click()
        alert = page.find("alert")
        assert "SIGN_IN_REQUIRED" in alert.text
        assert len(wrong) < 9 or wrong not in page.text()
        assert page.cookies() == []
        page.reload()
        page.find("button", "Sign in")
    sign_in(page, console.vera)


def test_too_many_attempts(start_console, chromium):
    console = start_console()
    page = chromium.page(console.origin)
    page.allow(r"^network: .* status of (401|429) .*/console/api/session$")
    page.open("/console/")
    for _ in range(20):
        page.find("textbox", "Token or service key").type("op-eu-wrong")
        page.find("button", "Sign in").click()
        text = page.wait(lambda: page.find("alert").text, "answer")
        if "RATE_LIMITED" in text:
            break
        page.reload()
    assert "RATE_LIMITED" in text and re.search(r"again in \d+ s", text), text
    page.check()
    page.close()


def test_sign_out(console, visit):
    page = visit(console.ada, "#/accounts/alice")
    page.wait_text("Balance")
    page.open("#/keys/alice-1")
    page.find("heading", "alice-1")
    (cookie,) = page.cookies()
    page.find("button", "Sign out").click()
    page.find("textbox", "Token or service key")
    assert page.cookies() == []
    assert "Balance" not in page.text()

    # neither the browser's back button nor the cookie bring it back

    for step in (page.back, page.reload):
        step()
        page.find("textbox", "Token or service key")
        assert "Balance" not in page.text()
        assert page.route == "/accounts/alice"
    r = console.gw.get("/console/api/session", headers=[
        ("Cookie", "__Host-modelgw=" + cookie["value"])],
        host="127.0.0.1:%d" % console.gw.port)
    assert r.status == 401, r


def test_sign_out_elsewhere(console, visit, chromium):
    """Of another tab: this one finds out, and after signing in is where it
    was."""
    page = visit(console.ada, "#/accounts/alice")
    page.wait_text("Balance")
    other = chromium.page(console.origin, sibling=page)
    other.open("/console/")
    other.find("button", "Sign out").click()
    other.find("textbox", "Token or service key")
    other.allow(r"^network: .* status of 401 ")     # was about to load
    other.check()
    other.close()

    page.allow(r"^network: .* status of 401 ")
    page.open("#/keys")
    page.find("textbox", "Token or service key")
    page.wait_text("(?i)session has ended")
    sign_in(page, console.ada)
    page.find("heading", "Keys")
    assert page.route == "/keys"


def test_operator_is_removed(console, visit):
    who = Operator("gone", "admin")
    console.operators.append(who)
    console.write_operators()
    console.gw.reload()
    page = visit(who, "#/accounts/alice")
    page.find("heading", "alice")
    console.operators.remove(who)
    console.write_operators()
    console.gw.reload()

    page.allow(r"^network: .* status of 401 ")
    page.open("#/keys")
    page.find("textbox", "Token or service key").type(who.secret)
    page.wait_text("(?i)session has ended")
    page.find("button", "Sign in").click()
    assert "SIGN_IN_REQUIRED" in page.find("alert").text
    page.reload()
    sign_in(page, console.vera)
    page.find("heading", "Keys")


def test_change_while_signed_out(console, visit):
    """A form is sent after the session has ended: it is not made, and nothing
    of it is lost silently."""
    page = visit(console.ada, "#/accounts/alice")
    page.find("button", "Top up").click()
    dialog = page.find("dialog", "Top up alice")
    dialog.find("textbox", "Amount in €").type("7.00")
    console.gw.stop()
    console.gw._start()        # sessions do not outlive nginx
    page.allow(r"^network: .* status of 401 ")
    dialog.find("button", "Top up").click()
    page.find("textbox", "Token or service key")
    sign_in(page, console.ada)
    page.find("heading", "alice")
    amounts = [t["amount"] for t in console.ok("/accounts/alice")["topups"]]
    assert "7.00" not in amounts


@pytest.mark.parametrize("who", ["alice", "made"])
def test_holder(console, visit, who):
    key = console.gw.alice if who == "alice" else console.new_key("made")
    page = visit(key)
    page.find("heading", "Billing")
    page.wait_text("Account %s" % ("alice" if who == "alice" else "made"))
    links = [e.text for e in page.find("navigation", "Console").all("link")]
    assert links == ["Billing", "Models", "Calls", "Connect"]
    (cookie,) = page.cookies()
    assert key.secret not in cookie["value"]
    for path in "accounts", "keys", "status", "actions", "operators", "start":
        page.open("#/" + path)
        page.find("heading", "Not found")
