"""Any node answers operators for all."""

import re
import time

from client import assert_flat
from cluster import call
from test_shared_keys import change, made

RESETS = re.compile(rb'"budget_resets_in":\d+')     # seconds: they go by
LISTS = ("/admin/accounts", "/admin/accounts/alice", "/admin/keys",
         "/admin/calls?limit=5", "/admin/usage?by=account",
         "/admin/actions?limit=2")


def test_the_same_at_each_node(cluster):
    """What nodes have borrowed, spent and hold is the account's, whoever is
    asked; so are pages of lists and the answers of changes."""
    c = cluster()
    keys = [made(c.nodes[i], "dora-%d" % i, account="alice",
                 budget="3.00/day") for i in range(2)]
    for n in range(3):
        for key in keys:
            assert call(c, n, key).status == 200
    c.settle()
    cost = c.cost_of("alice")
    assert cost > 0

    for path in LISTS:
        got = [node.get(path) for node in c.nodes]
        assert {g.status for g in got} == {200}, (path, got)
        bodies = [RESETS.sub(b"", g.body) for g in got]
        assert bodies[1:] == 2 * bodies[:1], path

    account = c.nodes[1].get("/admin/accounts/alice").json()
    assert nano(account["balance"]) == 5 * 10 ** 9 - cost \
        == c.balance_of("alice")
    assert nano(account["spent_24h"]) == cost

    used = [c.nodes[n].get("/admin/keys/dora-0").json()["budget_used"]
            for n in range(3)]
    assert len(set(used)) == 1 and nano(used[0]) > 0, used
    assert [c.nodes[2].request("PATCH", "/admin/keys/dora-0",
                               body={"note": "x"}).json()["budget_used"]] \
        == used[:1]

    r = c.nodes[2].post("/admin/accounts/alice/topups",
                        {"id": "t1", "amount": "2.00"})
    assert r.status == 201, r
    assert nano(r.json()["balance"]) == 7 * 10 ** 9 - cost
    r = c.nodes[0].post("/admin/accounts/alice/topups",
                        {"id": "t1", "amount": "2.00"})
    assert r.status == 200 and r.json()["new"] is False
    assert nano(r.json()["balance"]) == 7 * 10 ** 9 - cost
    r = c.nodes[0].post("/admin/accounts/alice/topups",
                        {"id": "t1", "amount": "3.00"})
    assert_flat(r, 409, "TOPUP_CONFLICT")
    r = c.nodes[1].request("PATCH", "/admin/accounts/alice",
                           body={"note": "n"})
    assert nano(r.json()["balance"]) == 7 * 10 ** 9 - cost

    seen, after = [], ""
    for i in range(20):
        page = c.nodes[i % 3].get("/admin/actions?limit=1" + after).json()
        seen += page["actions"]
        if not page.get("more"):
            break
        after = "&after=" + page["next"]
    assert len(seen) == c.one("SELECT count(*) FROM modelgw.actions")

    # what a node has stored itself

    sizes = [len(node.get("/admin/calls?limit=100&local=1").json()["calls"])
             for node in c.nodes]
    assert sizes == [2, 2, 2]
    assert len(c.nodes[0].get("/admin/calls?limit=100").json()["calls"]) == 6


def test_without_database(cluster):
    """503 for what only it knows; the node's own journal can be read."""
    c = cluster(n=2)
    key = made(c.nodes[0], "dora", account="alice")
    assert call(c, 0, key).status == 200
    c.settle()
    c.expect()
    c.nodes[0].proxy.refuse()
    for path in LISTS:
        begin = time.monotonic()
        assert_flat(c.nodes[0].get(path), 503, "SERVICE_UNAVAILABLE")
        assert time.monotonic() - begin < 10
    assert len(c.nodes[0].get("/admin/calls?limit=9&local=1")
               .json()["calls"]) == 1
    assert c.nodes[1].get("/admin/accounts").status == 200
    c.nodes[0].proxy.clear()
    c.wait_joined()
    change(c.nodes[0], "dora", body={"note": "again"})


def nano(text):
    euro, cents = text.split(".")
    return int(euro) * 10 ** 9 + int(cents.ljust(9, "0"))


def test_an_account_without_a_key(cluster):
    """Each node knows it, though no call of it can come."""
    c = cluster(n=2, founding="0")
    r = c.nodes[0].post("/admin/accounts", {"id": "lonely"})
    assert r.status == 201, r
    c.wait(lambda: c.nodes[1].get("/admin/accounts/lonely").status == 200,
           "the other one does not know it")
    r = c.nodes[1].post("/admin/accounts/lonely/topups",
                        {"id": "t", "amount": "1.00"})
    assert r.status == 201, r
    for node in c.nodes:
        accounts = node.get("/admin/accounts?limit=1000").json()["accounts"]
        assert [a["balance"] for a in accounts if a["id"] == "lonely"] \
            == ["1.00"]


MANY = 20000        # accounts


def test_reads_what_it_answers(cluster):
    """One account, or a page of them, whatever their number is: no other rows
    are read, and what is said of them is what the whole list says."""
    c = cluster(n=1, zone="32m")
    node = c.nodes[0]
    key = made(node, "dora", account="alice")
    assert call(c, 0, key).status == 200
    c.settle()
    start = c.one("SELECT keys_version FROM modelgw.cluster")
    c.server.run(
        "INSERT INTO modelgw.accounts (name, free, opened, version) SELECT "
        "'a-' || lpad(i::text, 5, '0'), 5 + i %% 7, 1, %d + i "
        "FROM generate_series(1, %d) i; "
        "INSERT INTO modelgw.topups (id, account, amount, time) "
        "SELECT 'f-' || name, name, free, 1 FROM modelgw.accounts "
        "WHERE name LIKE 'a-%%'; "
        "INSERT INTO modelgw.leases (node, account, granted, spent, held) "
        "SELECT 99, name, 0, 0, 3 FROM modelgw.accounts "
        "WHERE name LIKE 'a-%%'; "
        "UPDATE modelgw.cluster SET keys_version = %d"
        % (start, MANY, start + MANY))
    c.server.run("ANALYZE")
    c.wait(lambda: node.row()["keys_version"] >= start + MANY,
           "it does not know them")

    whole, rows = read(c, "/admin/accounts")
    assert rows > 2 * MANY              # so they are counted
    whole = whole["accounts"]
    assert len(whole) > MANY
    assert [a["held"] for a in whole if a["id"].startswith("a-")] \
        == MANY * ["0.000000003"]

    for a in (whole[1000], whole[-1], whole[0]):
        one, rows = read(c, "/admin/accounts/" + a["id"])
        assert {name: one[name] for name in a} == a
        assert rows < MANY / 10

    (listed,) = [k for k in node.get("/admin/keys?limit=1000").json()["keys"]
                 if k["id"] == "dora"]
    assert listed["last_used"]
    assert node.get("/admin/keys/dora").json() == listed
    assert_flat(node.get("/admin/keys/dora,dora"), 404, "NOT_FOUND")

    for sort, order in (("opened", whole),
                        ("name", sorted(whole, key=lambda a: a["id"]))):
        first, rows = read(c, "/admin/accounts?limit=10&sort=" + sort)
        assert first["accounts"] == order[:10] and rows < MANY / 10
        page, rows = read(c, "/admin/accounts?limit=10&sort=%s&after=%s"
                          % (sort, first["next"]))
        assert page["accounts"] == order[10:20] and rows < MANY / 10

    for sort, order in (("balance", lambda a: (nano(a["balance"]), a["id"])),
                        ("spent", lambda a: (-nano(a["spent_30d"]), a["id"]))):
        order = sorted(whole, key=order)
        for limit in (1, 10, 1000):
            page = node.get("/admin/accounts?limit=%d&sort=%s"
                            % (limit, sort)).json()
            assert page["accounts"] == order[:limit]
            page = node.get("/admin/accounts?limit=%d&sort=%s&after=%s"
                            % (limit, sort, page["next"])).json()
            assert page["accounts"] == order[limit:2 * limit]


def read(c, path):
    """What is answered, and how many rows of accounts and leases are read for
    it, at least once of some times: an exchange may tell the server later what
    it has read."""
    for _ in range(5):
        answer, rows = read_once(c, path)
        if rows < MANY / 10:
            break
    return answer, rows


def read_once(c, path):
    """The server counts them when the connection has ended."""
    count = ("SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM "
             "pg_stat_user_tables WHERE relname IN ('accounts', 'leases')")
    backends = ("SELECT count(*) FROM pg_stat_activity WHERE usename = "
                "'modelgw' AND datname = current_database()")
    n, before = c.one(backends), int(c.one(count))
    r = c.nodes[0].get(path)
    assert r.status == 200, r
    c.wait(lambda: c.one(backends) <= n, "the connection does not end")
    return r.json(), int(c.one(count)) - before
