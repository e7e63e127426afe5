"""What the other tests of the console rely on: a page that reports something,
breaks the policy or asks another host is found out."""

import os
import shutil

import pytest

import axe
from browser import Error
from console import FILES


@pytest.fixture(scope="module")
def console(start_console, tmp_path_factory):
    """With two pages of the test's own, served as the console's are."""
    files = tmp_path_factory.mktemp("console") / "files"
    shutil.copytree(FILES, files)
    head = ('<!doctype html><html lang="en"><title>Control</title>'
            '<link rel="icon" href="data:,">')
    (files / "inline.html").write_text(
        head + "<script>document.title = 'executed'</script>")
    (files / "plain.html").write_text(head + "<p>Nothing</p>")
    return start_console(files=str(files) + "/")


@pytest.fixture
def plain(chromium, console):
    page = chromium.page(console.origin)
    page.open("/console/plain.html")
    page.check()
    yield page
    page.close()


def found(page, word):
    with pytest.raises(AssertionError, match=word):
        page.check()


def test_inline_script(plain):
    plain.open("/console/inline.html")
    assert plain.js("document.title") == "Control"
    found(plain, "(?s)inline script violates.*ContentSecurityPolicyIssue")


@pytest.mark.parametrize("sink", [
    "document.body.innerHTML = '<img src=x onerror=alert(1)>'",
    "document.write('x')",
    "document.createElement('script').src = 'app.js'",
    "document.body.setAttribute('onclick', 'alert(1)')"])
def test_markup(plain, sink):
    with pytest.raises(Error, match="Trusted|policy"):
        plain.js(sink)
    assert "<p>Nothing</p>" in plain.js("document.body.outerHTML")
    found(plain, "(?s)Trusted.*kTrustedTypesSinkViolation")


def test_inline_style(plain):
    plain.js("document.body.setAttribute('style', 'color: red')")
    found(plain, "inline style violates")


@pytest.mark.parametrize("address", ["https://other.example/",
                                     "http://127.0.0.1:1/"])
def test_another_host(plain, address):
    with pytest.raises(Error, match="fetch"):
        plain.js("fetch('%s')" % address)
    found(plain, "connect-src")


@pytest.mark.parametrize("expression, word", [
    ("console.log('left over')", "console.log: left over"),
    ("console.warn('beware')", "console.warning: beware"),
    ("setTimeout(() => { throw new Error('forgotten'); })", "forgotten"),
    ("void Promise.reject(new Error('unhandled'))", "unhandled"),
    ("fetch('nothing').then(r => r.status)", "404"),
    ("void setTimeout(() => alert('shown'))", "dialog: shown")])
def test_reports(plain, expression, word):
    plain.js(expression)
    found(plain, word)
    plain.check()


@pytest.mark.skipif(not os.path.exists(axe.PATH),
                    reason="axe-core is not installed")
@pytest.mark.parametrize("change, rule", [
    ("e.style.color = '#ccc'; e.textContent = 'pale'", "color-contrast"),
    ("e.append(document.createElement('input'))", "label"),
    ("e.append(document.createElement('button'))", "button-name"),
    ("e.tabIndex = 3", "tabindex")])
def test_accessibility(plain, change, rule):
    plain.js("document.body.replaceChildren(document.createElement('main'));"
             "const h = document.createElement('h1'); h.textContent = 'Title';"
             "document.querySelector('main').append(h)")
    axe.check(plain)
    plain.js("{ const e = document.createElement('p'); e.textContent = 'x';"
             "document.querySelector('main').append(e); %s }" % change)
    with pytest.raises(AssertionError, match=rule + ":"):
        axe.check(plain)


def test_policy(console):
    """Of every file, and of what is not there."""
    for path in "", "index.html", "app.js", "vendor/uPlot.min.css", "nothing":
        r = console.gw.get("/console/" + path)
        assert r.status == (404 if path == "nothing" else 200), r
        policy = r.get("content-security-policy")
        assert policy == (
            "default-src 'none'; script-src 'self'; style-src 'self'; "
            "connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'; "
            "require-trusted-types-for 'script'"), path
        assert r.get("x-content-type-options") == "nosniff"
        assert r.get("referrer-policy") == "no-referrer"
    assert console.gw.get("/console/app.js").get("cache-control") == "no-cache"
    r = console.send("GET", "/accounts")
    assert r.status == 200 and r.get("cache-control") == "no-store", r
    assert r.get("x-content-type-options") == "nosniff", r
