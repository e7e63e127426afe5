"""Markup in every text that a client, an upstream or an operator can set: all
screens show it as text, and nothing of it becomes an element."""

import urllib.parse

import pytest

from gateway import Key, chat
from upstream import chat_completion, chat_error, reply_json

IMG = "<img src=x onerror=alert(1)>\"'"
SCRIPT = "<script>alert(2)</script>"
LINK = "javascript:alert(3)//{{7*7}}${7*7}&lt;b&gt;"
MARKS = (IMG, SCRIPT, LINK)


@pytest.fixture(scope="module")
def console(start_console, upstreams):
    """Company sign-on at /sso/ lets a test choose the name of the operator."""
    for u in upstreams:
        u.reset()
    c = start_console(
        keys=[Key("marked", "b", "account=marked")],
        locations="""
        location /sso/ {
            modelgw_admin actor=$http_x_user role=$http_x_role;
            allow 127.0.0.1; deny all;
        }""")
    gw = c.gw
    for i, mark in enumerate(MARKS):
        c.post("/accounts", {"id": "marked-%d" % i, "note": mark})
        c.post("/accounts/marked-%d/topups" % i,
               {"id": topup_id(c, mark), "amount": "1.00", "reason": mark})
        key = c.new_key("marked-key-%d" % i, account="marked-%d" % i,
                        note=mark)

        # a client's model, user agent and request id; an upstream's

        upstreams[1].script(
            reply_json(dict(chat_completion(mark), id=mark),
                       headers=[("request-id", mark), ("x-request-id", mark),
                                ("Server", mark)]))
        r = gw.chat(key=key, headers=[
            ("User-Agent", mark), ("X-Request-Id", mark), ("Referer", mark)])
        assert r.status == 200, r
        upstreams[1].script(reply_json(
            chat_error(mark, mark, mark, mark), status=400,
            headers=[("x-request-id", mark)]))
        gw.chat(key=key)
        gw.chat(chat(mark), key=key)
        gw.chat(chat("code-" + mark), key=key)
        gw.get("/v1/" + urllib.parse.quote(mark), key=key)

        r = gw.request("PATCH", "/sso/accounts/marked-%d" % i, headers=[
            ("X-User", mark), ("X-Role", "admin")],
            body='{"note": %s}' % quoted(mark + " again"))
        assert r.status == 200, r

    # a model's id cannot have markup, but for who could write into the file

    c.calls(6)
    gw.stop()
    ((columns,),) = c.store("SELECT group_concat('\"' || name || '\"') FROM"
                            " pragma_table_info('calls') WHERE name NOT IN"
                            " ('id', 'model', 'request_id')")
    ((last,),) = c.store("SELECT max(id) FROM calls")
    for i, mark in enumerate(MARKS):
        c.store("INSERT INTO calls (id, model, request_id, %s) SELECT ?, ?, ?,"
                " %s FROM calls WHERE key = ? LIMIT 1" % (columns, columns),
                (last + 1 + i, "code-" + mark, mark, "marked-key-%d" % i))
    gw.start()
    c.call = {"code-" + mark: last + 1 + i for i, mark in enumerate(MARKS)}
    return c


def quoted(text):
    return '"%s"' % text.replace("\\", "\\\\").replace('"', '\\"')


def topup_id(console, mark):
    """The mark itself, if the interface takes it."""
    r = console.send("POST", "/accounts/marked-0/topups",
                     {"id": mark, "amount": "1.00"})
    return mark + "2" if r.status == 201 else "plain-%d" % len(mark)


def harmless(page):
    """What the page is made of: no elements but those of the console."""
    assert page.js("document.title") != "executed"
    odd = page.js("""[...document.querySelectorAll(
        "#app img, #app script, #app iframe, #app b, #app object, #app svg,"
        + "#app [onerror], #app [onclick], #app a[href^=javascript]")].map(
            e => e.outerHTML)""")
    assert odd == [], odd


def settled(page, way):
    page.open("#/" + way)
    page.wait(lambda: page.all("heading") and "Loading" not in page.text(),
              way)
    harmless(page)


def shown(page, mark):
    """As text, wherever it stands on the page."""
    assert mark in page.js("document.body.textContent"), (mark, page.url)


SCREENS = ["", "?range=30d", "accounts", "keys", "models", "calls", "refusals",
           "status", "actions", "operators", "connect", "start"]


def test_screens(console, visit):
    page = visit(console.ada)
    expected = {"": MARKS, "?range=30d": MARKS, "calls": MARKS,
                "actions": MARKS}
    for way in SCREENS:
        settled(page, way)
        for mark in expected.get(way, ()):
            shown(page, mark)


@pytest.mark.parametrize("i, mark", list(enumerate(MARKS)))
def test_one(console, visit, i, mark):
    """Of an account, a key and a call; in forms, too."""
    page = visit(console.ada, allow=[r"^network: .* status of 400 .*model="])
    settled(page, "accounts/marked-%d" % i)
    shown(page, mark + " again")
    page.find("button", "Edit note").click()
    note = page.find("textbox", "Note")
    assert note.value == mark + " again"
    page.key("Escape")
    settled(page, "keys/marked-key-%d" % i)
    shown(page, mark)
    page.find("button", "Edit").click()
    assert page.find("textbox", "Note").value == mark
    harmless(page)
    page.key("Escape")
    settled(page, "calls/%d" % console.call["code-" + mark])
    shown(page, mark)
    settled(page, "calls?model=" + urllib.parse.quote("code-" + mark))
    assert page.find("textbox", "Model").value == "code-" + mark


@pytest.mark.parametrize("mark", MARKS)
def test_answers_that_repeat_it(console, visit, mark):
    """Error texts name what was asked for."""
    page = visit(console.ada, allow=[r"^network: .* status of 40[04] "])
    text = urllib.parse.quote(mark, safe="")
    for way in ("accounts/" + text, "keys/" + text, "calls/" + text, text,
                "calls?from=" + text, "calls?status=" + text, "?range=" + text,
                "actions?actor=" + text, "keys?q=" + text, "accounts?q=" + text,
                "connect?key=" + text):
        settled(page, way)
    page.open("#/accounts")
    page.find("button", "Open account").click()
    form = page.find("dialog", "Open account")
    form.find("textbox", "Account id").type(mark)
    form.find("button", "Open account").click()
    assert form.find("alert").text
    harmless(page)


def test_holder(console, visit):
    for i, mark in enumerate(MARKS):
        page = visit(console.made[i])
        page.find("heading", "Billing")
        for way in "", "calls", "models", "connect":
            settled(page, way)
            assert mark + " again" not in page.text()   # an operator's note
        settled(page, "calls/%d" % console.call["code-" + mark])
        shown(page, mark)


def test_csv(console, visit):
    """Complete, and no formula for a spreadsheet."""
    page = visit(console.ada, "#/calls")
    page.find("table", "Calls")
    page.find("button", "Download CSV").click()
    with open(page.wait_file()) as f:
        text = f.read()
    for mark in MARKS:
        assert "code-" + mark.replace('"', '""') in text
