"""Accounts on the console: top-ups, corrections, opened and closed ones."""

import itertools
import re

import pytest


@pytest.fixture(scope="module")
def console(start_console):
    return start_console()


NAMES = ("acc-%d" % i for i in itertools.count())


@pytest.fixture
def account(console):
    """Opened with 5.00 of founding credit."""
    name = next(NAMES)
    console.post("/accounts", {"id": name})
    return name


def topups(console, account):
    """Without the founding credit."""
    return [t for t in console.ok("/accounts/" + account)["topups"]
            if not t["id"].startswith("founding:")]


def balance(page):
    text = page.js("""[...document.querySelectorAll("dl.tiles > div")].find(
        d => d.querySelector("dt").innerText == "Balance")
        .querySelector("dd").innerText""")
    return re.sub(r"[^-\d.]", "", text)


@pytest.mark.parametrize("name", ["ada", "bill"])
def test_double_click_tops_up_once(console, visit, account, name):
    page = visit(getattr(console, name), "#/accounts/" + account)
    page.find("button", "Top up").click()
    form = page.find("dialog", "Top up " + account)
    form.find("textbox", "Amount in €").type("12.50")
    form.find("textbox", "Reason").type("invoice 7")
    reference = form.find("textbox", "Reference").value
    form.find("button", "Top up").double_click()
    page.wait_text("Topped up")
    page.find("button", "Done").click()
    page.wait(lambda: balance(page) == "17.50", "new balance")
    (topup,) = topups(console, account)
    assert topup["id"] == reference and topup["amount"] == "12.50"
    (action,) = [a for a in console.ok("/actions?target=" + account)["actions"]
                 if a["action"] == "topup"]
    assert action["actor"] == name and action["after"]["reason"] == "invoice 7"
    sent = [r for r in page.requests if r["request"]["method"] == "POST"
            and r["request"]["url"].endswith("/topups")]
    assert len(sent) == 1


def test_answer_that_was_lost(console, visit, account):
    """The connection breaks after the gateway has booked: sent again from the
    same form, it counts once."""
    page = visit(console.ada, "#/accounts/" + account)
    page.find("button", "Top up").click()
    form = page.find("dialog", "Top up " + account)
    form.find("textbox", "Amount in €").type("3.00")
    page.js("""{
        const real = fetch;
        window.fetch = async (...args) => {
            window.fetch = real;
            await real(...args);
            throw new TypeError("connection lost");
        };
    }""")
    form.find("button", "Top up").click()
    page.wait_text("The connection broke")
    assert len(topups(console, account)) == 1
    form.find("button", "Top up").click()
    page.wait_text("booked already")
    assert len(topups(console, account)) == 1
    page.find("button", "Done").click()
    page.wait(lambda: balance(page) == "8.00", "new balance")


def test_two_top_ups(console, visit, account):
    """A form that is opened again has another reference."""
    page = visit(console.ada, "#/accounts/" + account)
    for n in 1, 2:
        page.find("button", "Top up").click()
        form = page.find("dialog", "Top up " + account)
        form.find("textbox", "Amount in €").type("1.00")
        form.find("button", "Top up").click()
        page.find("button", "Done").click()
        page.wait_gone("dialog", "Top up " + account)
        assert len(topups(console, account)) == n


def test_refused_amounts(console, visit, account):
    page = visit(console.ada, "#/accounts/" + account)
    page.allow(r"^network: .* status of (400|409) ")
    page.find("button", "Top up").click()
    form = page.find("dialog", "Top up " + account)
    for wrong in "-1.00", "1,50", "0", "1e3", "9999999999999":
        form.find("textbox", "Amount in €").type(wrong)
        form.find("button", "Top up").click()
        assert "INVALID_FIELD" in page.wait(
            lambda: form.find("alert").text, "answer")
    assert topups(console, account) == []

    console.post("/accounts/%s/topups" % account,
                 {"id": "used-" + account, "amount": "1.00"})
    form.find("textbox", "Amount in €").type("2.00")
    form.find("textbox", "Reference").type("used-" + account)
    form.find("button", "Top up").click()
    page.wait_text("TOPUP_CONFLICT")
    assert "another reference" in form.find("alert").text
    assert len(topups(console, account)) == 1


def test_correction(console, visit, account):
    page = visit(console.bill, "#/accounts/" + account)
    page.find("button", "Correct").click()
    form = page.find("dialog", "Correct the balance of " + account)
    form.find("textbox", "Amount in €").type("-9.00")
    form.find("button", "Correct").click()
    assert form.find("textbox", "Reason").js(
        "function() { return !this.validity.valid; }")
    form.find("textbox", "Reason").type("a digit too many")
    form.find("button", "Correct").double_click()
    page.wait_text("Corrected")
    page.find("button", "Done").click()
    page.wait(lambda: balance(page) == "-4.00", "new balance")
    (topup,) = topups(console, account)
    assert topup["amount"] == "-9.00"
    assert "-9.00" in page.find("table", "Top-ups and corrections").text
    page.open("#/actions")
    row = page.wait(lambda: [r for r in page.find("table").all("row")
                             if account in r.text and "correction" in r.text],
                    "action")[0]
    assert "bill" in row.text and "a digit too many" in row.text


def test_accounts(console, visit):
    page = visit(console.ada, "#/accounts")
    page.find("button", "Open account").click()
    form = page.find("dialog", "Open account")
    form.find("textbox", "Account id").type("opened")
    form.find("textbox", "Note").type("pays by invoice")
    form.find("checkbox", "Give founding credit").click()
    form.find("button", "Open account").click()
    page.find("heading", "opened")
    page.wait(lambda: balance(page) == "0.00", "balance")
    assert "pays by invoice" in page.text()
    page.wait_text("This account has no keys")

    page.find("button", "Edit note").click()
    form = page.find("dialog", "Note of opened")
    form.find("textbox", "Note").type("pays\nlate")
    form.find("button", "Save").click()
    page.wait_text("late")
    assert console.ok("/accounts/opened")["note"] == "pays\nlate"

    page.find("button", "Close account").click()
    page.find("dialog", "Close opened?").find("button",
                                              "Close account").click()
    page.find("button", "Reopen account")
    assert console.ok("/accounts/opened")["state"] == "closed"
    page.find("button", "Reopen account").click()
    page.find("dialog", "Reopen opened?").find("button",
                                               "Reopen account").click()
    page.find("button", "Close account")
    assert console.ok("/accounts/opened")["state"] == "open"


def test_search_and_order(console, visit):
    for i, name in enumerate(("zeta", "beta", "alpha")):
        console.post("/accounts", {"id": "sorted-" + name, "founding": False})
        console.post("/accounts/sorted-%s/topups" % name,
                     {"id": "s-" + name, "amount": "%d.00" % (i + 1)})
    page = visit(console.vera, "#/accounts")

    def ids():
        return [e.text for e in
                page.find("table", "Accounts").all("rowheader")]

    page.find("searchbox", "Search").type("sorted-")
    page.find("combobox", "Sort by").choose("Name")
    page.find("button", "Search").click()
    page.wait(lambda: ids() == ["sorted-alpha", "sorted-beta", "sorted-zeta"],
              "by name")
    page.find("combobox", "Sort by").choose("Balance, lowest first")
    page.find("button", "Search").click()
    page.wait(lambda: ids() == ["sorted-zeta", "sorted-beta", "sorted-alpha"],
              "by balance")
    page.back()
    page.wait(lambda: ids() == ["sorted-alpha", "sorted-beta", "sorted-zeta"],
              "by name")
    assert page.find("combobox", "Sort by").value == "name"
    page.find("searchbox", "Search").type("nothing like it")
    page.find("button", "Search").click()
    page.wait_text("No account matches")
    page.find("link", "Show all").click()
    page.wait(lambda: "alice" in ids(), "all")
