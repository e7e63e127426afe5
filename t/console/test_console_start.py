"""From nothing to the first call; pages without data, and errors that say what
to do."""

import os
import subprocess

import pytest

from console import GROUPS, Console
from gateway import Key


@pytest.fixture(scope="module")
def console(start_console):
    """No keys, no accounts, no calls."""
    return start_console(keys_text="")


def test_from_nothing_to_the_first_call(start_console, chromium, tmp_path):
    """On one page: a key, what to paste, and the call in the ledger."""
    console = start_console(keys_text="")
    page = chromium.page(console.origin)
    page.open("/console/")
    page.find("textbox", "Token or service key").type(console.ada.secret)
    page.key("Enter")
    page.find("heading", "Make the first call")
    here = page.url
    form = page.find("form", "New key")
    form.find("combobox", "Account").type("first")
    form.find("combobox", "Group").choose("b")
    form.find("button", "Make the key").click()
    secret = page.find("group", "Secret").text.strip()
    key = Key("first", "b", secret=secret)
    console.made.append(key)
    curl = page.wait(lambda: [
        e.text for e in page.select(".code pre") if "curl" in e.text],
        "what to paste")[0]
    page.wait_text("Waiting for the call")
    p = subprocess.run(["bash", "-c", curl], capture_output=True, text=True,
                       env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
                       timeout=60)
    assert '"choices"' in p.stdout, (curl, p.stderr)
    page.wait_text("The call is here")
    assert page.url == here
    (call,) = console.calls()
    assert call["account"] == "first"
    assert call["cost"] in page.text()
    page.find("link", "How it was charged").click()
    page.find("heading", "Call %d" % call["id"])
    page.open("#/")
    page.find("heading", "Overview")
    assert secret not in page.js("document.documentElement.outerHTML")
    page.check()
    page.close()


def test_first_calls_are_not_of_embedding_models(start_console, chromium):
    """Nor do they decide which clients fit the group."""
    console = start_console(keys_text="", groups=GROUPS.replace(
        "model fam-a-large", "model fam-a-emb e kind=embedding input=1; "
        "model fam-a-large").replace("messages;", "messages embeddings;"))
    page = chromium.page(console.origin)
    page.open("/console/")
    page.find("textbox", "Token or service key").type(console.ada.secret)
    page.key("Enter")
    page.find("button", "Sign out")
    page.open("#/connect")
    page.find("button", "Claude Code").click()
    page.wait(lambda: any("fam-a-large" in e.text
                          for e in page.select(".code pre")), "what to paste")
    assert "does not speak" not in page.text()
    assert "fam-a-emb" not in page.text()
    page.open("#/models")
    page.wait_text("fam-a-emb")
    page.wait_text("chat, messages, responses, embeddings")
    page.check()
    page.close()


@pytest.mark.parametrize("way, text", [
    ("accounts", "no accounts yet"), ("keys", "no keys yet"),
    ("calls", "(?i)no calls yet"), ("actions", "(?i)nothing was changed yet|"
                                               "configuration"),
    ("refusals", "was refused"), ("accounts?q=x", "No account matches"),
    ("keys?q=x", "No key matches"), ("calls?key=x", "No call matches"),
    ("actions?actor=x", "Nothing matches")])
def test_empty(console, visit, way, text):
    """It says what to do next: there is a link or a button."""
    page = visit(console.ada, "#/" + way)
    page.wait_text(text)
    assert page.find("main").all("link") or page.find("main").all("button")


def test_viewer_at_the_start(console, visit):
    """It can make no key, and is told who can."""
    page = visit(console.vera)
    page.wait_text("role admin")
    assert not page.has("button", "Make the key")


def test_no_such_page(console, visit):
    page = visit(console.ada, "#/nothing/like/it")
    page.find("heading", "Not found")
    page.find("main").find("link").click()
    page.find("heading", "Make the first call")


@pytest.mark.parametrize("way, status", [
    ("accounts/nobody", 404), ("keys/nobody", 404), ("calls/12", 404),
    ("calls/x", 404), ("calls?from=nonsense", 400), ("calls?status=x", 400)])
def test_errors(console, visit, way, status):
    page = visit(console.ada, "#/" + way,
                 [r"^network: .* status of %d " % status])
    alert = page.find("alert")
    assert ("NOT_FOUND" if status == 404 else "INVALID_FIELD") in alert.text
    if status == 404:
        assert "mistyped" in alert.text


def test_gateway_is_gone(console, visit):
    """Its answer is awaited for no longer than the connection lasts; with the
    gateway the page is there again."""
    page = visit(console.ada, "#/accounts")
    page.wait_text("no accounts yet")
    console.gw.stop()
    page.allow(r"^network: .*ERR_CONNECTION_REFUSED")
    page.open("#/keys")
    alert = page.find("alert")
    assert "cannot be reached" in alert.text
    console.gw._start()
    page.allow(r"^network: .* status of 401 ")
    alert.find("button", "Try again").click()
    page.find("textbox", "Token or service key")    # it was started again


def test_without_managed_keys(start_console, chromium):
    console = start_console(managed="")
    page = chromium.page(console.origin)
    page.open("/console/#/keys")
    page.find("textbox", "Token or service key").type(console.ada.secret)
    page.key("Enter")
    page.find("button", "New key").click()
    page.wait_text("modelgw_managed_keys")
    page.open("#/start")
    page.find("heading", "Make the first call")
    page.check()
    page.close()


def test_without_a_ledger(start_console, chromium):
    """What cannot be shown says why; the rest works."""
    console = start_console(http="""
        modelgw_operators { include $dir/operators.conf; }""", managed="",
        metrics="")
    page = chromium.page(console.origin)
    page.allow(r"^network: .* status of (404|503|409|501) ")
    page.open("/console/#/accounts")
    page.find("textbox", "Token or service key").type(console.ada.secret)
    page.key("Enter")
    page.find("heading", "Accounts")
    assert "ledger" in page.find("alert").text
    for way in "", "calls", "actions":
        page.open("#/" + way)
        page.wait(lambda: page.all("heading") and "Loading" not in page.text(),
                  way)
        page.wait_text("ledger")
    page.open("#/keys")
    page.wait_text("bob-1")
    page.open("#/models")
    page.wait_text("fam-b-one")
    page.open("#/status")
    page.wait_text("admits calls")
    page.open("#/refusals")
    page.wait_text("modelgw_metrics")
    page.check()
    page.close()
