"""Every screen in both themes and at two widths: a picture in
build/console-shots, no rule of axe-core violated, nothing wider than the
page."""

import os
import re

import pytest

import axe
from browser import pattern
from console import ROOT, Console, fill
from gateway import chat
from upstream import chat_completion, reply_json

SHOTS = os.path.join(os.environ.get("MODELGW_BUILD",
                                    os.path.join(ROOT, "build")),
                     "console-shots")

needs_axe = pytest.mark.skipif(not os.path.exists(axe.PATH),
                               reason="axe-core is not installed")


@pytest.fixture(scope="module")
def console(start_console, upstreams):
    for u in upstreams:
        u.reset()
    c = start_console(http=Console.PARTS["http"] + """
        modelgw_gateway_url https://gateway.example;""")
    c.keys = fill(c)
    upstreams[1].script(reply_json(chat_completion("one-0613", usage={
        "prompt_tokens": 1234, "completion_tokens": 56, "total_tokens": 1290,
        "prompt_tokens_details": {"cached_tokens": 200}})))
    limited = c.new_key("hooli-load-test", account="hooli", rpm=2)
    for _ in range(4):
        c.gw.chat(key=limited)
    c.gw.chat(chat("fam-c-none"))
    c.gw.get("/v1/models")
    c.call = c.calls(key="hooli-load-test")[0]["id"]
    return c


@pytest.fixture(scope="module")
def empty(start_console):
    return start_console(keys_text="")


@pytest.fixture
def at(console, empty, chromium):
    """at(who, path): a page that is signed in, of the console or, for None
    and "start", of an empty one."""
    pages = []

    def run(who, way):
        c = empty if who == "start" else console
        page = chromium.page(c.origin)
        pages.append(page)
        page.open("/console/#/" + way)
        if who:
            secret = (c.keys["globex-app"] if who == "holder" else c.ada).secret
            page.find("textbox", "Token or service key").type(secret)
            page.key("Enter")
            page.find("button", "Sign out")
        settle(page)
        return page

    yield run
    try:
        for page in pages:
            page.check()
    finally:
        for page in pages:
            page.close()


def settle(page):
    """Everything is loaded and drawn; the notice after signing in has gone."""
    page.wait(lambda: page.all("heading") and "Loading…" not in page.text()
              and not page.pending, "screen")
    page.js("document.querySelectorAll('.notice span').forEach("
            "e => e.style.visibility = 'hidden')")
    page.js("document.fonts.ready.then(() => new Promise(done =>"
            " requestAnimationFrame(() => requestAnimationFrame(done))))")


with open(os.path.join(ROOT, "docs/console.md")) as f:
    DOCUMENTED = re.findall(r"\(console/(.*?\.png)\)", f.read())


def picture(page, name, whole):
    page.screenshot(os.path.join(SHOTS, name), whole)
    if name in DOCUMENTED:
        page.screenshot(os.path.join(SHOTS, "docs", name), whole,
                        most=900 if page.width > 600 else 1300)


def look(page, name, whole=True):
    """The four pictures, of the whole page or of what is seen of it."""
    for width in 1280, 360:
        page.resize(width, 800 if width > 600 else 740)
        for theme in "light", "dark":
            page.theme(theme)
            settle(page)
            page.wait(lambda: page.js(
                "document.documentElement.dataset.theme") == theme, theme)
            picture(page, "%s-%d-%s.png" % (name, width, theme), whole)
            wide = page.js("""[...document.querySelectorAll("body *")].filter(
                e => e.getBoundingClientRect().right > innerWidth + 1
                     && !e.closest(".scroll, pre")
                     && e.checkVisibility()).map(
                e => e.tagName + "." + e.className).slice(0, 5)""")
            size = page.js("document.documentElement.scrollWidth")
            assert size <= width, (name, width, size, wide)
            axe.check(page)
            order(page)
    page.resize(1280)
    page.theme("light")


def order(page):
    """One heading of the first level, the landmarks of a screen reader, a
    label of each field, and a title."""
    assert page.js("""(() => {
        const n = css => document.querySelectorAll(css).length;
        const whole = n("main.signin") ? 0 : 1;
        const wrong = Object.entries({h1: 1, main: 1, "#app > header": whole,
                "nav[aria-label=Console]": whole}).filter(
            ([css, wanted]) => n(css) !== wanted);
        for (const e of document.querySelectorAll("input, select, textarea")) {
            if (!e.hidden && ![...e.labels].some(l => l.textContent.trim()))
                wrong.push(e.outerHTML);
        }
        if (!/^.+ · modelgw$/.test(document.title)) wrong.push(document.title);
        return wrong;
    })()""") == []


SCREENS = [
    ("sign-in", None, ""), ("first-start", "start", ""),
    ("empty-accounts", "start", "accounts"), ("empty-calls", "start", "calls"),
    ("empty-keys", "start", "keys"), ("empty-refusals", "start", "refusals"),
    ("empty-status", "start", "status"),
    ("empty-audit-log", "start", "actions"), ("start", "ada", "start"),
    ("keys-none", "ada", "keys?q=nothing"),
    ("calls-none", "ada", "calls?request_id=nothing"),
    ("connect-key", "ada", "connect?key=acme-batch"),
    ("overview", "ada", ""), ("overview-30d", "ada", "?range=30d"),
    ("accounts", "ada", "accounts"), ("account", "ada", "accounts/acme"),
    ("keys", "ada", "keys"), ("key", "ada", "keys/acme-batch"),
    ("key-configured", "ada", "keys/alice-1"), ("models", "ada", "models"),
    ("calls", "ada", "calls"), ("refusals", "ada", "refusals"),
    ("status", "ada", "status"), ("audit-log", "ada", "actions"),
    ("operators", "ada", "operators"), ("connect", "ada", "connect"),
    ("not-found", "ada", "nothing"), ("billing", "holder", ""),
    ("holder-calls", "holder", "calls"), ("holder-models", "holder", "models"),
    ("holder-connect", "holder", "connect")]


@needs_axe
@pytest.mark.parametrize("name, who, way", SCREENS, ids=[s[0] for s in SCREENS])
def test_screen(at, name, who, way):
    look(at(who, way), name)


@needs_axe
def test_call(console, at):
    look(at("ada", "calls/%d" % console.call), "call")


@needs_axe
def test_call_of_a_holder(console, at):
    (call, *_) = console.calls(account="globex")
    look(at("holder", "calls/%d" % call["id"]), "holder-call")


@needs_axe
@pytest.mark.parametrize("name", [
    "Claude Code", "Codex", "opencode", "OpenAI Python", "OpenAI Node",
    "Anthropic Python", "Anthropic Node"])
def test_client(at, name):
    page = at("ada", "connect")
    page.find("button", name).click()
    page.wait(lambda: page.has("group", pattern("^%s: " % name))
              or page.has("button", name) and page.select(".empty"), name)
    look(page, "connect-" + name.lower().replace(" ", "-"))


DIALOGS = [
    ("new-key", "keys", "New key"), ("edit-key", "keys/acme-batch", "Edit"),
    ("rotate", "keys/acme-prod", "Rotate"),
    ("revoke", "keys/acme-prod", "Revoke"),
    ("open-account", "accounts", "Open account"),
    ("top-up", "accounts/globex", "Top up"),
    ("correct", "accounts/globex", "Correct"),
    ("close-account", "accounts/globex", "Close account"),
    ("note", "accounts/globex", "Edit note")]


@needs_axe
@pytest.mark.parametrize("name, way, button", DIALOGS,
                         ids=[d[0] for d in DIALOGS])
def test_dialog(at, name, way, button):
    page = at("ada", way)
    page.find("button", button).click()
    page.find("button", "Cancel")
    look(page, name, whole=False)


@needs_axe
def test_secret(at):
    page = at("ada", "keys")
    page.find("button", "New key").click()
    form = page.find("dialog", "New key")
    form.find("combobox", "Account").type("pied-piper")
    form.find("textbox", "Key id").type("pied-piper-1")
    form.find("button", "Make the key").click()
    page.find("dialog", pattern("The secret of"))
    # the picture is for everybody
    page.js("""document.querySelector(".secret code").firstChild.data =
        "sk-eu-" + "0123456789abcdef".repeat(3)""")
    look(page, "secret", whole=False)


@needs_axe
@pytest.mark.parametrize("name, reference", [
    ("topped-up", "invoice-7"), ("top-up-conflict", "invoice-acme-1")])
def test_booked(at, name, reference):
    page = at("ada", "accounts/acme")
    page.allow(r"^network: .* status of 409 ")
    page.find("button", "Top up").click()
    box = page.find("dialog", "Top up acme")
    box.find("textbox", "Amount in €").type("10.00")
    box.find("textbox", "Reference").type(reference)
    box.find("button", "Top up").click()
    box.find("alert" if name == "top-up-conflict" else "status")
    look(page, name, whole=False)


@needs_axe
def test_revoke_of_a_holder(at):
    page = at("holder", "")
    page.find("button", "Revoke this key").click()
    look(page, "holder-revoke", whole=False)


@needs_axe
def test_wrong_token(at):
    page = at(None, "")
    page.allow(r"^network: .* status of 401 ")
    page.find("textbox", "Token or service key").type("op-eu-wrong")
    page.find("button", "Sign in").click()
    page.find("alert")
    look(page, "sign-in-wrong")


@needs_axe
@pytest.mark.parametrize("planted, word", [
    ("new Image(9, 9)", "image-alt"),
    ("Object.assign(document.createElement('p'), {textContent: 'pale'})",
     "color-contrast"),
    ("Object.assign(document.createElement('td'), {textContent: 'pale'})",
     "color-contrast"),
    ("Object.assign(document.createElement('input'), {name: 'x'})", "label"),
    ("document.createElement('h1')", "h1"),
    ("document.createElement('nav')", "planted.*, 360, 4")],
    ids=["no alt", "pale text", "pale cell", "no label", "second heading",
         "too wide"])
def test_planted(at, planted, word):
    """What is wrong is found out."""
    page = at("ada", "operators")
    page.js("""(() => {
        const e = %s;
        if (e.textContent === "pale") e.style.color = "#bbb";
        if (e.tagName === "NAV") e.style.cssText = "width: 400px; height: 9px";
        document.querySelector(e.tagName === "TD" ? "tbody tr" : "main").append(e);
    })()""" % planted)
    with pytest.raises(AssertionError, match=word):
        try:
            look(page, "planted")
        finally:
            for name in os.listdir(SHOTS):
                if name.startswith("planted-"):
                    os.unlink(os.path.join(SHOTS, name))


@needs_axe
def test_error(at):
    page = at("ada", "keys")
    page.allow(r"^network: .* status of 404 ")
    page.open("#/accounts/nobody")
    page.find("alert")
    look(page, "error")


@needs_axe
def test_menu_at_360_px(console, at):
    """All ways are behind a button there, and close with the step."""
    page = at("ada", "")
    page.resize(360, 740)
    page.wait(lambda: not page.has("link", "Keys"), "narrow page")
    button = page.find("button", "Menu")
    assert button.attribute("aria-expanded") == "false"
    button.click()
    page.wait(lambda: button.attribute("aria-expanded") == "true", "menu")
    look_narrow(page, "menu")
    page.find("navigation", "Console").find("link", "Keys").click()
    page.find("heading", "Keys")
    page.wait(lambda: not page.has("link", "Models"), "closed menu")


def look_narrow(page, name):
    for theme in "light", "dark":
        page.theme(theme)
        settle(page)
        picture(page, "%s-360-%s.png" % (name, theme), whole=False)
        axe.check(page)


@pytest.mark.parametrize("system", ["light", "dark"])
def test_theme_button(at, system):
    """Its choice is kept in the browser, and nothing else is."""
    page = at("ada", "")
    page.theme(system)
    other = {"light": "dark", "dark": "light"}[system]
    page.find("button", other.title() + " theme").click()
    for _ in range(2):
        page.wait(lambda: page.js(
            "document.documentElement.dataset.theme") == other, other)
        page.reload()
        settle(page)
    page.find("button", system.title() + " theme")
    assert page.js("Object.keys(localStorage)") == ["modelgw-theme"]
    assert page.js("sessionStorage.length") == 0
    assert page.js("indexedDB.databases().then(d => d.length)") == 0
    assert page.js("caches.keys().then(k => k.length)") == 0


def test_weight(console, at):
    """All that the page loads, as it is before compression; and all of it is
    asked for by the page itself: one round trip, then the interface's."""
    page = at("ada", "")
    origin = console.origin + "/console/"
    files = [r for r in page.requests
             if r["request"]["url"].startswith(origin)
             and "/api/" not in r["request"]["url"]]
    urls = {r["request"]["url"].split("#")[0] for r in files}
    size = 0
    for url in urls:
        r = console.gw.get(url[len(console.origin):])
        assert r.status == 200 and not r.get("content-encoding"), url
        size += len(r.body)
    assert len(urls) > 10 and size <= 200 * 1000, size

    # none is found by another one only when that has arrived

    found = page.js("""[...document.querySelectorAll(
        "link[rel=stylesheet], link[rel=modulepreload], script[src]")].map(
            e => e.href || e.src)""")
    assert urls == {origin, *found}
    late = [r["request"]["url"] for r in files[1:]
            if r["initiator"]["type"] != "parser"]
    assert late == [], late
    for way in "accounts", "keys", "calls", "connect", "status":
        before = len(page.requests)
        page.open("#/" + way)
        settle(page)
        more = [r["request"]["url"] for r in page.requests[before:]]
        assert all("/console/api/" in url for url in more), more


def test_compressed(console):
    """nginx sends the files compressed, and unchanged ones not again."""
    r = console.gw.get("/console/ui.js",
                       headers=[("Accept-Encoding", "gzip")])
    assert r.get("content-encoding") == "gzip"
    plain = console.gw.get("/console/ui.js")
    again = console.gw.get("/console/ui.js", headers=[
        ("If-None-Match", plain.get("etag"))])
    assert again.status == 304 and len(r.body) < len(plain.body) / 2
