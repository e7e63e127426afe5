"""The nodes of a cluster, as the administration, modelgwctl and the description
of the interface show them; what draining and writing off do is in test_move.py.
"""

import json
import os
import subprocess

import pytest
from jsonschema import Draft202012Validator

import gateway as lib

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
