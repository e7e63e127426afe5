"""Thousands of keys and calls: pages of a list, and searches that the server
makes."""

import itertools

import pytest

from console import many

N = 2500


@pytest.fixture(scope="module")
def console(start_console):
    c = start_console(managed="modelgw_managed_keys 5000;")
    many(c, N)
    return c


def ids(page, table):
    return page.find("table", table).js("""function() {
        return [...this.tBodies[0].rows].map(r => r.cells[0].innerText);
    }""")


def answers(page, path):
    """The number of requests to that path of the API, and no page of more
    than a hundred rows is asked for."""
    urls = [r["request"]["url"] for r in page.requests]
    urls = [u for u in urls if "/api" + path + "?" in u]
    assert all("limit=" in u and int(u.split("limit=")[1].split("&")[0]) <= 100
               for u in urls), urls
    return len(urls)


@pytest.mark.parametrize("way, table, path", [
    ("keys", "Keys", "/keys"), ("calls", "Calls", "/calls")])
def test_pages(console, visit, way, table, path):
    page = visit(console.vera, "#/" + way)
    seen = [ids(page, table)]
    for n in range(3):
        page.find("link", "Next page").click()
        page.wait(lambda: "after=" in page.route
                  and ids(page, table) != seen[-1], "next page")
        seen.append(ids(page, table))
    assert all(len(rows) == 50 for rows in seen)
    if way == "keys":
        flat = list(itertools.chain(*seen))
        assert len(set(flat)) == 200
        want = [k["id"] for k in console.ok("/keys?limit=200")["keys"]]
        assert [f.split()[0] for f in flat] == want
    page.back()
    page.wait(lambda: ids(page, table) == seen[-2], "the page before")
    page.find("link", "First page").click()
    page.wait(lambda: ids(page, table) == seen[0], "the first page")
    assert 4 <= answers(page, path) <= 7


def test_search_of_keys(console, visit):
    """One that is on no page that was loaded."""
    page = visit(console.vera, "#/keys")
    page.find("table", "Keys")
    before = answers(page, "/keys")
    page.find("searchbox", "Search").type("many-2345")
    page.key("Enter")
    page.wait(lambda: ids(page, "Keys") == ["many-2345"], "the key")
    assert answers(page, "/keys") == before + 1


def test_search_of_calls(console, visit):
    page = visit(console.vera, "#/calls")
    page.find("table", "Calls")
    page.find("searchbox", "Request id").type("request-17")
    page.key("Enter")
    page.wait(lambda: len(ids(page, "Calls")) == 1, "the call")
    page.find("table", "Calls").find("rowheader").find("link").click()
    page.find("heading", "Call 17")


def test_last_page(console, visit):
    page = visit(console.vera, "#/keys?account=many&q=many-249")
    page.wait(lambda: len(ids(page, "Keys")) == 11, "keys")
    assert not page.has("link", "Next page")


def test_account(console, visit):
    """With all its keys: the first ones, and a way to the others."""
    page = visit(console.vera, "#/accounts/many")
    page.find("link", "All keys of this account").click()
    page.wait(lambda: page.route.startswith("/keys?account=many")
              and len(ids(page, "Keys")) == 50, "keys")


def test_csv_of_all(console, visit):
    page = visit(console.vera, "#/calls?account=many")
    page.find("table", "Calls")
    page.find("button", "Download CSV").click()
    with open(page.wait_file(), "rb") as f:
        assert f.read().count(b"\n") == N + 1
