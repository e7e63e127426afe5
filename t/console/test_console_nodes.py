"""The page of the nodes of a cluster."""

import os

import pytest

import postgres
from console import Console

SHOTS = os.path.join(os.environ.get("MODELGW_BUILD", "build"), "console-shots")


@pytest.fixture(scope="module")
def server():
    with postgres.Server() as s:
        yield s


@pytest.fixture(scope="module")
def console(server, start_console, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("db") / "password")
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
        f.write(server.password)
    return start_console(http=Console.PARTS["http"] + """
        modelgw_cluster "%s" password=file:%s name=gw1 exchange=50ms;"""
                         % (server.conninfo(), path))


@pytest.fixture(scope="module")
def dead(console, server):
    """A node that will not come back, with 1.50 of the account alice."""
    server.wait("SELECT count(*) = 1 FROM modelgw.nodes WHERE name = 'gw1'")
    server.wait("SELECT count(*) > 0 FROM modelgw.accounts "
                "WHERE name = 'alice'")
    server.run("INSERT INTO modelgw.nodes (num, journal, name, version, epoch, "
               "process, pos, joined, seen, state) VALUES (7, 'gone', "
               "'gw7-dead', 1, 1, 'x', 5, 0, 0, 0)")
    server.run("UPDATE modelgw.accounts SET free = free - 1500000000 "
               "WHERE name = 'alice'")
    server.run("INSERT INTO modelgw.leases (node, account, granted) "
               "VALUES (7, 'alice', 1500000000)")


def left(server):
    return server.one("SELECT granted - returned - forced - spent "
                      "FROM modelgw.leases WHERE node = 7")


def test_nodes(visit, console, server, dead):
    """A node that is dead is written off: what it had is free again."""
    page = visit(console.ada, "#/nodes")
    page.find("heading", "Nodes")
    page.wait_text("gw7-dead")
    page.wait_text("1\\.50")
    os.makedirs(SHOTS, exist_ok=True)
    page.screenshot(os.path.join(SHOTS, "nodes.png"))

    page.find("button", "Write off").click()
    form = page.find("dialog", "Write off gw7-dead?")
    assert left(server) == 1500000000
    form.find("button", "Write off").click()
    page.wait_gone("dialog", "Write off gw7-dead?")
    page.wait_text("written off")
    assert left(server) == 0
    assert server.one("SELECT count(*) FROM modelgw.audit "
                      "WHERE difference <> 0") == 0


def test_drain_and_rejoin(visit, console, server, dead):
    page = visit(console.ada, "#/nodes")
    page.find("button", "Drain").click()
    form = page.find("dialog", "Drain gw1?")
    form.find("button", "Drain").click()
    page.wait_gone("dialog", "Drain gw1?")
    server.wait("SELECT state = 1 FROM modelgw.nodes WHERE name = 'gw1'")
    page.find("button", "Rejoin").click()
    form = page.find("dialog", "Rejoin gw1?")
    form.find("button", "Rejoin").click()
    page.wait_gone("dialog", "Rejoin gw1?")
    server.wait("SELECT state = 0 FROM modelgw.nodes WHERE name = 'gw1'")


def test_states(visit, console, server, dead):
    """What may be done with a node depends on how it stands."""
    for num, name, state, drain, seen in (
            (8, "gw8-drains", 0, True, "9000000000000"),
            (9, "gw9-written-off", 2, False, "0"),
            (10, "gw10-away", 0, False, "0")):
        server.run("INSERT INTO modelgw.nodes (num, journal, name, version, "
                   "epoch, process, pos, joined, seen, state, drain) VALUES "
                   "(%d, '%s', '%s', 1, 1, 'x', 5, 0, %s, %d, %s)"
                   % (num, name, name, seen, state, drain))
    page = visit(console.ada, "#/nodes")
    page.wait_text("gw10-away")
    page.screenshot(os.path.join(SHOTS, "nodes-states.png"))
    rows = {row.split()[0]: row for row in page.text().splitlines()
            if row.startswith("gw")}
    for name, word in (("gw8-drains", "draining"), ("gw10-away", "away"),
                       ("gw9-written-off", "written off")):
        assert any(word in row for n, row in rows.items() if n == name), rows
    server.run("DELETE FROM modelgw.nodes WHERE num > 7")


def test_a_node_that_is_refused(visit, console, server):
    """Both pages say why, as the log does."""
    words = "8 is the oldest that may be used"
    console.gw.expect("must not work with the cluster's database")
    server.run("UPDATE modelgw.cluster SET version = 8, oldest = 8")
    try:
        console.gw.wait_log(words)
        allow = [r"^network: .* status of 503 "]
        page = visit(console.ada, "#/status", allow=allow)
        page.wait_text("No call is admitted")
        page.wait_text(words)
        page.screenshot(os.path.join(SHOTS, "status-refused.png"))
        page = visit(console.ada, "#/nodes", allow=allow)
        page.wait_text(words)
        page.screenshot(os.path.join(SHOTS, "nodes-refused.png"))
    finally:
        server.run("UPDATE modelgw.cluster SET version = 1, oldest = 1")
    server.wait("SELECT count(*) = 1 FROM modelgw.nodes WHERE name = 'gw1' "
                "AND state = 0 AND seen > extract(epoch FROM now()) * 1000 "
                "- 1000")


def test_who_may_not(visit, console, server):
    """A viewer sees the nodes, and changes none."""
    page = visit(console.vera, "#/nodes")
    page.wait_text("gw1")
    assert not page.has("button", "Drain") and not page.has("button",
                                                            "Write off")


def test_the_navigation_has_nodes_in_a_cluster_only(visit, console):
    page = visit(console.vera, "#/status")
    page.find("link", "Nodes")
