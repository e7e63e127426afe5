"""The nodes of a cluster, as the administration, modelgwctl and the description
of the interface show them; what draining and writing off do is in test_move.py.
"""

import json
import os
import subprocess
import time

import pytest
from jsonschema import Draft202012Validator

import gateway as lib
import metrics
from test_shared_keys import made

CTL = os.path.join(lib.ROOT, "conf/modelgwctl")

with open(os.path.join(lib.ROOT, "conf/openapi.json")) as f:
    API = json.load(f)


@pytest.fixture
def two(cluster):
    return cluster(n=2)


def check(name, r):
    """The answer is as described."""
    method, path = name.split()
    answers = API["paths"][path][method.lower()]["responses"]
    answer = answers[str(r.status)]
    if "$ref" in answer:
        answer = API["components"]["responses"][answer["$ref"].split("/")[-1]]
    schema = answer["content"]["application/json"]["schema"]
    Draft202012Validator(dict(schema, components=API["components"])).validate(
        r.json())
    return r.json()


def ctl(node, *args):
    return subprocess.run(
        [CTL, "--url", "http://127.0.0.1:%d/admin" % node.port] + list(args),
        capture_output=True, text=True, timeout=60)


def test_as_described(two):
    first, second = two.nodes
    answer = check("GET /nodes", first.get("/admin/nodes"))
    assert [n["name"] for n in answer["nodes"]] == [first.name, second.name]
    assert answer["cluster"]["self"] == first.num()
    assert {n["state"] for n in answer["nodes"]} == {"member"}
    r = first.get("/admin/nodes?local=1")
    assert r.status == 400 and "only the database" in r.json()["message"], r
    check("GET /nodes", r)
    r = first.get("/admin/status")
    assert check("GET /status", r)["cluster"]["reason"] is None

    path = "/admin/nodes/%d" % second.num()
    r = first.request("PATCH", path, body={"drain": True})
    assert check("PATCH /nodes/{node}", r)["state"] == "draining"
    two.wait(lambda: second.row()["state"] == 1, "it does not leave")
    state = {n["name"]: n["state"] for n in
             check("GET /nodes", first.get("/admin/nodes"))["nodes"]}
    assert state[second.name] == "left"
    path = "/admin/nodes/%03d" % second.num()
    r = first.request("PATCH", path, body={"drain": False})
    answer = check("PATCH /nodes/{node}", r)
    assert (answer["num"], answer["state"]) == (second.num(), "member")
    two.wait_joined()

    for method, path, name in (
            ("PATCH", "/admin/nodes/99", "PATCH /nodes/{node}"),
            ("PATCH", "/admin/nodes/x", "PATCH /nodes/{node}"),
            ("POST", "/admin/nodes/99/write-off",
             "POST /nodes/{node}/write-off")):
        r = first.request(method, path, body={"drain": True}
                          if method == "PATCH" else {})
        assert r.status == 404, r
        check(name, r)

    actions = first.get("/admin/actions?actor=127.0.0.1").json()["actions"]
    assert [(a["action"], a["target"]) for a in actions
            if a["action"].startswith("node.")] == [
        ("node.rejoin", second.name), ("node.drain", second.name)]


def test_modelgwctl(two):
    first, second = two.nodes
    p = ctl(first, "nodes")
    assert p.returncode == 0, p
    assert [line for line in p.stdout.splitlines()
            if line.split()[1:3] == [second.name, "member"]], p.stdout

    p = ctl(first, "nodes", "drain", second.name)
    assert p.returncode == 0 and "state: draining" in p.stdout, p
    two.wait(lambda: second.row()["state"] == 1, "it does not leave")
    p = ctl(first, "nodes", "rejoin", str(second.num()))
    assert p.returncode == 0, p
    two.wait_joined()

    p = ctl(first, "nodes", "write-off", second.name, "--charge")
    assert p.returncode == 0 and "state: written off" in p.stdout, p
    two.wait_joined()                   # it lives: it begins anew

    p = ctl(first, "nodes", "drain", "nobody")
    assert p.returncode == 1 and 'no node "nobody"' in p.stderr, p
    for args in (["nodes", "x"], ["nodes", "drain"],
                 ["nodes", "drain", "a", "b"],
                 ["nodes", "rejoin", "a", "--charge"]):
        assert ctl(first, *args).returncode == 2, args


def test_idle_nodes_know_a_key_soon(two):
    """Each says so when it knows it, not a second later: operators wait."""
    first, second = two.nodes
    took = []
    for i in range(3):
        begin = time.monotonic()
        r = first.post("/admin/keys", {"id": "k%d" % i, "group": "b",
                                       "account": "alice"})
        took.append(time.monotonic() - begin)
        assert r.status == 201, r
    assert min(took) < 1.7, took


def test_left_and_back(two):
    """A node that has left refuses at once, limits are asked of nobody; the log
    says when it is back, whatever had kept it away."""
    first, second = two.nodes
    key = made(first, "limited", account="alice", rpm=60)
    two.expect()
    ctl(first, "nodes", "drain", second.name)
    two.wait(lambda: second.row()["state"] == 1, "it does not leave")
    begin = time.monotonic()
    for i in range(8):
        assert "has left" in second.chat(None, key).json()["message"]
    assert time.monotonic() - begin < 1.5
    ctl(first, "nodes", "rejoin", second.name)
    two.wait_joined()
    two.wait(lambda: "has left the cluster" in second.read("error.log")
             .rsplit("joined the cluster", 1)[0], "no line of it")

    two.server.run("UPDATE modelgw.cluster SET version = 8, oldest = 8")
    second.stop()
    second.start()
    two.wait(lambda: "8 is the oldest" in second.read("error.log"),
             "no reason")
    two.server.run("UPDATE modelgw.cluster SET version = 9, oldest = 9")
    two.wait(lambda: "9 is the oldest" in second.read("error.log"),
             "the new reason is not told")
    two.server.run("UPDATE modelgw.cluster SET version = 1, oldest = 1")
    two.wait_joined()
    two.wait(lambda: "joined the cluster" in second.read("error.log")
             .rsplit("9 is the oldest", 1)[1], "no line of it")


def test_the_board_has_data(two, tmp_path):
    """Each query of the board of Grafana that is about a cluster."""
    assert two.nodes[0].chat().status == 200
    p = metrics.Prometheus(tmp_path, two.nodes[0])
    try:
        for title, ref, expression in metrics.expressions(cluster=True):
            p.wait(metrics.filled(expression))
    finally:
        p.stop()
