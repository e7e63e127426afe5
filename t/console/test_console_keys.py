"""Keys on the console: from the form to a call, and to the last one."""

import pytest

from browser import pattern


@pytest.fixture(scope="module")
def console(start_console):
    return start_console()


def facts(page, name=None):
    """{name: value} of the page's lists of facts."""
    return dict(page.js("""[...document.querySelectorAll("dl.facts > div")].map(
        d => [d.querySelector("dt").innerText, d.querySelector("dd").innerText]
    )"""))


def new_key(page, account, id=None, group=None, **fields):
    """Fills in the form and sends it; returns the secret."""
    page.open("#/keys")
    page.find("button", "New key").click()
    form = page.find("dialog", "New key")
    form.find("combobox", "Account").type(account)
    if id:
        form.find("textbox", "Key id").type(id)
    if group:
        form.find("combobox", "Group").choose(group)
    for label, value in fields.items():
        form.find("spinbutton", label).type(value)
    form.find("button", "Make the key").click()
    box = page.find("dialog", "The secret of " + (id or ""))
    return box, box.find("group", "Secret").text.strip()


def test_life_of_a_key(console, visit):
    gw = console.gw
    page = visit(console.ada)
    box, secret = new_key(page, "dora", "dora-1", "b",
                          **{"Requests a minute": "50"})
    assert secret.startswith("sk-eu-") and len(secret) == 54
    box.find("button", "Copy the secret").click()
    page.wait(lambda: page.clipboard() == secret, "copy")
    page.wait_text("Copied")

    # it is gone when the box closes: from the page, its memory and its address

    assert secret in page.strings()
    del box
    page.find("button", "I have copied it").click()
    page.wait_gone("dialog", "The secret of dora-1")
    page.find("heading", "dora-1")
    page.js("navigator.clipboard.writeText('')", userGesture=True)
    assert secret not in page.js("document.documentElement.outerHTML")
    page.wait(lambda: secret not in page.strings(),
              "end of the secret in memory")
    page.reload()
    page.find("heading", "dora-1")
    assert secret not in page.js("document.documentElement.outerHTML")

    shown = page.wait(lambda: facts(page), "facts")
    assert shown["State"] == "active" and shown["Account"] == "dora"
    assert shown["Kept in"] == "the ledger"

    # the key is good for a call, and the page shows the call

    key = console.made_key("dora-1", "b", secret)
    assert gw.chat(key=key).status == 200
    (call,) = console.calls(key="dora-1")
    page.reload()
    table = page.find("table", "Latest calls")
    assert "fam-b-one" in table.text
    table.find("link").click()
    page.find("heading", "Call %d" % call["id"])

    # until it is revoked

    page.open("#/keys/dora-1")
    page.find("button", "Revoke").click()
    page.find("dialog", "Revoke dora-1?").find(
        "button", "Revoke for ever").click()
    page.wait(lambda: facts(page).get("State") == "revoked", "revocation")
    assert gw.chat(key=key).status == 401
    assert not page.has("button", "Edit") and not page.has("button", "Rotate")
    actions = console.ok("/actions?target=dora-1")["actions"]
    assert [(a["action"], a["actor"]) for a in actions] \
        == [("key.revoke", "ada"), ("key.create", "ada")]


def test_closed_by_escape(console, visit):
    """The secret does not outlive its box, however that is closed."""
    page = visit(console.ada)
    _, secret = new_key(page, "dora", "dora-2")
    page.key("Escape")
    page.wait_gone("dialog", "The secret of dora-2")
    assert secret not in page.js("document.documentElement.outerHTML")
    page.back()
    page.wait_gone("dialog", "The secret of dora-2")
    assert secret not in page.js("document.documentElement.outerHTML")
    page.wait(lambda: secret not in page.strings(),
              "end of the secret in memory")
    assert all(secret not in str(r) for r in page.requests)


def test_double_click_makes_one_key(console, visit):
    page = visit(console.ada, "#/keys")
    page.find("button", "New key").click()
    form = page.find("dialog", "New key")
    form.find("combobox", "Account").type("twice")
    form.find("button", "Make the key").double_click()
    page.wait(lambda: page.has("dialog", pattern("^The secret of")),
              "secret")
    assert len(console.ok("/keys?account=twice")["keys"]) == 1


def test_form_refuses(console, visit):
    """What the gateway refuses is shown in the form, which keeps what was
    typed."""
    console.new_key("taken")
    page = visit(console.ada, "#/keys")
    page.allow(r"^network: .* status of (400|409) .*/console/api/keys$")
    page.find("button", "New key").click()
    form = page.find("dialog", "New key")
    form.find("button", "Make the key").click()
    assert form.find("combobox", "Account").js(
        "function() { return !this.validity.valid; }")
    form.find("combobox", "Account").type("an account")
    form.find("button", "Make the key").click()
    assert "INVALID_FIELD" in form.find("alert").text
    form.find("combobox", "Account").type("taken")
    form.find("textbox", "Key id").type("taken")
    form.find("button", "Make the key").click()
    page.wait_text("KEY_EXISTS")
    assert "choose another" in form.find("alert").text
    assert form.find("textbox", "Key id").value == "taken"
    form.find("textbox", "Key id").type("not-taken")
    form.find("textbox", "Budget in €").type("12,50")
    form.find("button", "Make the key").click()
    page.wait_text("INVALID_FIELD")
    form.find("textbox", "Budget in €").type("12.50")
    form.find("button", "Make the key").click()
    page.find("dialog", "The secret of not-taken")
    key = console.ok("/keys/not-taken")
    assert (key["budget"], key["account"]) == ("12.50/month", "taken")


def test_limits(console, visit):
    console.new_key("edited", group="b", rpm=10, note="before")
    page = visit(console.ada, "#/keys/edited")
    page.find("button", "Edit").click()
    form = page.find("dialog", "Edit edited")
    assert form.find("spinbutton", "Requests a minute").value == "10"
    form.find("spinbutton", "Requests a minute").type("2")
    form.find("spinbutton", "Calls at a time").type("3")
    form.find("checkbox", "fam-b-two").click()
    form.find("textbox", "Budget in €").type("5.00")
    form.find("combobox", "Budget period").choose("day")
    form.find("Date", "Expires (UTC)").js(
        "function(v) { this.value = v;"
        " this.dispatchEvent(new Event('input', {bubbles: true})); }",
        "2035-02-28")
    form.find("textbox", "Note").type("after")
    form.find("button", "Save").click()
    page.wait_gone("dialog", "Edit edited")
    key = console.ok("/keys/edited")
    assert {k: key[k] for k in ("rpm", "tpm", "concurrency", "models",
                                "budget", "note", "version")} \
        == {"rpm": 2, "tpm": None, "concurrency": 3, "models": ["fam-b-two"],
            "budget": "5.00/day", "note": "after", "version": 2}
    assert key["expires"].startswith("2035-02-28")
    page.wait(lambda: facts(page).get("Note") == "after", "new values")

    # taken away again

    page.find("button", "Edit").click()
    form = page.find("dialog", "Edit edited")
    form.find("spinbutton", "Requests a minute").type("")
    form.find("checkbox", "fam-b-two").click()
    form.find("textbox", "Budget in €").type("")
    form.find("button", "Save").click()
    page.wait_gone("dialog", "Edit edited")
    key = console.ok("/keys/edited")
    assert key["rpm"] is key["models"] is key["budget"] is None
    assert key["concurrency"] == 3


def test_changed_meanwhile(console, visit):
    """Two operators edit a key: the second is told, and nothing of the first
    is overwritten."""
    console.new_key("shared", rpm=10)
    page = visit(console.ada, "#/keys/shared")
    page.allow(r"^network: .* status of 412 ")
    page.find("button", "Edit").click()
    form = page.find("dialog", "Edit shared")
    console.post("/keys/shared", {"rpm": 20}, method="PATCH")
    form.find("spinbutton", "Requests a minute").type("30")
    form.find("button", "Save").click()
    page.wait_text("PRECONDITION_FAILED")
    assert console.ok("/keys/shared")["rpm"] == 20


def test_rotate(console, visit):
    old = console.new_key("turned")
    page = visit(console.ada, "#/keys/turned")
    page.find("button", "Rotate").click()
    form = page.find("dialog", "Rotate turned")
    form.find("combobox", "The old secret works for").choose("1 hour")
    form.find("button", "Make a new secret").click()
    box = page.find("dialog", "The secret of turned")
    secret = box.find("group", "Secret").text.strip()
    new = console.made_key("turned", "b", secret)
    box.find("button", "Close").click()
    page.wait_gone("dialog", "The secret of turned")
    assert secret not in page.js("document.documentElement.outerHTML")
    for key in old, new:
        assert console.gw.chat(key=key).status == 200

    # at once

    page.find("button", "Rotate").click()
    form = page.find("dialog", "Rotate turned")
    form.find("combobox", "The old secret works for").choose(
        "no longer: it ends now")
    form.find("button", "Make a new secret").click()
    box = page.find("dialog", "The secret of turned")
    last = console.made_key("turned", "b",
                            box.find("group", "Secret").text.strip())
    assert console.gw.chat(key=new).status == 401
    assert console.gw.chat(key=last).status == 200


def test_configured_key(console, visit):
    page = visit(console.ada, "#/keys/bob-1")
    page.wait_text("configuration")
    assert facts(page)["Kept in"] == "the configuration"
    for name in "Edit", "Rotate", "Revoke":
        assert not page.has("button", name)
    page.open("#/keys")
    table = page.find("table", "Keys")
    locked = [e.text.split()[0] for e in table.all("rowheader")
              if "locked" in e.text]
    assert sorted(locked) == ["alice-1", "bob-1", "carol-1", "dave-1"]


def test_search(console, visit):
    for id in "needle-1", "needle-2", "hay":
        console.new_key(id, account="stack")
    page = visit(console.ada, "#/keys")
    page.find("searchbox", "Search").type("needle")
    page.key("Enter")
    page.wait(lambda: page.route == "/keys?q=needle", "search")
    page.wait(lambda: len(page.find("table", "Keys").all("rowheader")) == 2,
              "two keys")
    page.find("link", "Clear").click()
    page.wait(lambda: len(page.find("table", "Keys").all("rowheader")) > 2,
              "all keys")
    assert page.find("searchbox", "Search").value == ""
