"""Fixtures: the browser, consoles, and pages that are signed in."""

import pytest

pytest.register_assert_rewrite("browser", "console")

import browser
from console import Console


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    b = browser.Browser(tmp_path_factory.mktemp("chromium"))
    yield b.start()
    b.stop()


@pytest.fixture(scope="module")
def start_console(module_gateway):
    """start_console(…) makes a Console for the tests of a file."""
    made = []

    def start(**kw):
        made.append(Console(module_gateway, **kw))
        return made[-1]

    yield start
    leaks = [leak for c in made for leak in c.leaks()]
    assert leaks == []


@pytest.fixture
def visit(chromium, console):
    """visit(who, path, …) is a page, signed in as an operator or with a key; at
    the end of the test no page has reported anything, and none has asked
    another host."""
    pages = []

    def visit(who=None, path="", allow=(), **kw):
        page = chromium.page(console.origin, **kw)
        pages.append(page)
        page.allow(*allow)
        page.open("/console/" + path)
        if who:
            sign_in(page, who)
        return page

    yield visit
    try:
        for page in pages:
            page.check()
    finally:
        for page in pages:
            page.close()


def sign_in(page, who):
    page.find("textbox", "Token or service key").type(who.secret)
    page.find("button", "Sign in").click()
    page.find("button", "Sign out")
