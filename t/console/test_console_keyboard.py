"""The console without a mouse, and what a screen reader is told."""

import pytest

from browser import pattern


@pytest.fixture(scope="module")
def console(start_console):
    c = start_console()
    c.gw.chat()
    c.calls()
    return c


def visible_focus(page):
    """The element with the focus has a ring around it; the last stop of a
    date is the button within it, whose ring is the browser's."""
    return page.js("""(() => {
        const e = document.activeElement, s = getComputedStyle(e);
        return e.type === "date" || s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2;
    })()""")


def tab_to(page, role, name, most=60):
    """Presses Tab until the element has the focus; each stop is seen."""
    for _ in range(most):
        page.key("Tab")
        focused = page.focused
        assert visible_focus(page), focused.accessible
        if focused.accessible == (role, name):
            return focused
    raise AssertionError("Tab does not reach %s %s" % (role, name))


def test_key_without_a_mouse(console, visit):
    """Sign in, make a key, copy its secret, sign out."""
    page = visit()
    field = page.find("textbox", "Token or service key")
    assert page.focused == field
    page.keys(console.ada.secret)
    page.key("Enter")
    page.find("heading", "Overview")
    page.wait(lambda: page.focused.accessible == ("heading", "Overview"),
              "focus on the heading")
    for _ in range(30):
        page.key("Tab", "Shift")
        if page.focused.accessible == ("link", "Keys"):
            break
    assert page.focused.accessible == ("link", "Keys")
    assert visible_focus(page)
    page.key("Enter")
    page.find("heading", "Keys")
    assert page.focused.accessible == ("heading", "Keys")
    opener = tab_to(page, "button", "New key")
    page.key("Enter")
    page.find("dialog", "New key")
    page.wait(lambda: page.focused.accessible == ("combobox", "Account"),
              "focus in the form")
    page.keys("tabbed")

    # the dialog keeps the focus, and Shift-Tab goes back

    stops = set()
    for _ in range(40):
        page.key("Tab")
        stops.add(page.focused.accessible)
        inside = page.focused.js("function() {"
                                 " return !!this.closest('dialog'); }")
        assert inside or page.focused.get("tagName") == "BODY", \
            page.focused.accessible
    assert ("button", "Make the key") in stops
    assert ("button", "Cancel") in stops
    page.find("textbox", "Key id").js("function() { this.focus(); }")
    page.key("Tab", "Shift")
    assert page.focused.accessible == ("combobox", "Account")
    tab_to(page, "button", "Make the key")
    page.key("Enter")
    box = page.find("dialog", pattern("^The secret of "))
    assert len(console.ok("/keys?account=tabbed")["keys"]) == 1
    secret = box.find("group", "Secret").text.strip()
    page.wait(lambda: page.focused.accessible == ("button", "Copy the secret"),
              "focus on what is next")
    assert visible_focus(page)
    page.key("Enter")
    page.wait(lambda: page.clipboard() == secret, "copy")
    tab_to(page, "button", "I have copied it")
    page.key(" ")
    page.wait_gone("button", "I have copied it")
    for _ in range(60):
        page.key("Tab", "Shift")
        if page.focused.accessible == ("button", "Sign out"):
            break
    page.allow(r"^network: .* status of 401 ")      # the key's page may load
    page.key("Enter")
    page.find("textbox", "Token or service key")


@pytest.mark.parametrize("way, button, dialog", [
    ("keys", "New key", "New key"), ("accounts", "Open account",
                                     "Open account"),
    ("accounts/alice", "Top up", "Top up alice"),
    ("accounts/alice", "Close account", "Close alice?")])
@pytest.mark.parametrize("close", ["Escape", "Cancel", "Close"])
def test_focus_returns(console, visit, way, button, dialog, close):
    """From a dialog to the button that has opened it; nothing was done."""
    page = visit(console.ada, "#/" + way)
    opener = page.find("button", button)
    opener.js("function() { this.focus(); }")
    page.key("Enter")
    box = page.find("dialog", dialog)
    assert page.focused.js("function() { return !!this.closest('dialog'); }")
    box.find("button", "Cancel")        # the form is there
    if close == "Escape":
        page.key("Escape")
    else:
        box.find("button", close).js("function() { this.focus(); }")
        page.key("Enter")
    page.wait_gone("dialog", dialog)
    page.wait(lambda: page.focused.accessible == ("button", button),
              "focus on the button")
    assert console.ok("/accounts/alice")["state"] == "open"


def test_skip_link(console, visit):
    page = visit(console.vera)
    page.reload()
    page.find("heading", "Overview")
    page.key("Tab")
    assert page.focused.accessible == ("link", "Skip to the content")
    assert visible_focus(page)
    page.key("Enter")
    page.wait(lambda: page.focused.accessible[0] == "main", "main")
    assert page.route in ("", "/")


def test_landmarks(console, visit):
    page = visit(console.ada)
    for way in "", "accounts", "keys", "keys/alice-1", "calls", "status":
        page.open("#/" + way)
        page.wait(lambda: page.all("heading") and "Loading" not in page.text(),
                  way)
        page.find("banner")
        page.find("main")
        page.find("navigation", "Console")
        assert len(page.select("h1")) == 1
        assert page.js("document.documentElement.lang") == "en"
        assert "modelgw" in page.js("document.title")
        current = page.find("navigation", "Console").js("""function() {
            return [...this.querySelectorAll('[aria-current=page]')].map(
                a => a.innerText); }""")
        assert len(current) == 1, way


def test_messages_are_read_out(console, visit):
    """Notices are in a live region that was there before, errors are
    alerts."""
    page = visit(console.ada, "#/accounts/bob-1")
    page.find("button", "Edit note").click()
    form = page.find("dialog", "Note of bob-1")
    page.js("document.querySelector('[aria-live]').dataset.before = 'yes'")
    form.find("textbox", "Note").type("read out")
    form.find("button", "Save").click()
    page.wait(lambda: "saved" in page.element(
        "document.querySelector('[aria-live][data-before]')").text, "notice")


def test_fields(console, visit):
    """Each has a label, hints are its description."""
    page = visit(console.ada, "#/keys")
    page.find("button", "New key").click()
    page.find("dialog", "New key").find("button", "Cancel")
    fields = page.select("dialog input, dialog select, dialog textarea")
    assert len(fields) > 8
    for e in fields:
        if e.js("function() { return this.checkVisibility(); }"):
            assert e.accessible[1], e.js("function() {"
                                         " return this.outerHTML; }")
        hint = e.attribute("aria-describedby")
        assert not hint or page.js("!!document.getElementById('%s')" % hint)
