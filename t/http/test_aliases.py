"""modelgw_aliases: paths without /v1, and with two."""

import json
import time

import pytest

from client import LIMIT, assert_flat
from gateway import chat, group_a, group_b, messages
from upstream import reply_json

GATEWAY = """
        location / {
            modelgw on;
            modelgw_aliases on;
            proxy_pass $modelgw_upstream;
        }"""

LOG = "log_format whole escape=none '$http_x_test_tag $modelgw_log';"

FORMS = ["", "/v1", "/v1/v1"]


@pytest.fixture(scope="module")
def g(module_gateway):
    return module_gateway(
        gateway=GATEWAY, http=LOG, server="access_log $dir/whole.log whole;",
        groups=group_a(protocol="messages")
        + group_b(protocol="chat embeddings",
                  models="model fam-b-one one input=1 output=2; "
                  "model fam-b-emb emb kind=embedding input=1;"),
        locations="location /plain/ { modelgw off; }")


@pytest.fixture(autouse=True)
def fresh(g):
    g.a.reset()
    g.b.reset()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("path, a, target", [
    ("/messages", True, "/v1/messages"),
    ("/messages?beta=true", True, "/v1/messages?beta=true"),
    ("/messages/count_tokens", True, "/v1/messages/count_tokens"),
    ("/chat/completions", False, "/v1/chat/completions"),
    ("/embeddings", False, "/v1/embeddings")])
def test_same_endpoint(g, form, path, a, target, http):
    """The upstream gets the real path."""
    if path == "/embeddings":
        g.b.script(reply_json({"model": "emb", "usage": {}}))
        body = {"model": "fam-b-emb", "input": "x"}
    else:
        body = messages() if a else chat()
    r = g.post(form + path, body, g.alice if a else g.bob, version=http)
    assert r.status == 200, r
    seen = (g.a if a else g.b).requests
    assert [x.target for x in seen] == [target]


@pytest.mark.parametrize("form", FORMS)
def test_responses(g, form):
    """Translated, so the upstream has another path."""
    r = g.post(form + "/responses", {"model": "fam-b-one", "input": "Hi"},
               g.bob)
    assert r.status == 200 and r.json()["object"] == "response", r
    assert g.b.last().target == "/v1/chat/completions"


@pytest.mark.parametrize("form", FORMS)
def test_models(g, form):
    r = g.get(form + "/models", g.bob)
    assert [m["id"] for m in r.json()["data"]] == ["fam-b-one", "fam-b-emb"]
    r = g.get(form + "/models/fam-b-one", g.bob)
    assert r.json()["id"] == "fam-b-one"
    assert_flat(g.get(form + "/models/fam-b-none", g.bob), 404, "NOT_FOUND")
    assert g.request("HEAD", form + "/models", g.bob).status == 200


@pytest.mark.parametrize("form", FORMS)
def test_websocket(g, form):
    r = g.get(form + "/responses", headers=[("Upgrade", "websocket"),
                                            ("Connection", "Upgrade")])
    assert r.status == 426


@pytest.mark.parametrize("form", FORMS)
def test_errors(g, form):
    assert_flat(g.post(form + "/messages", messages()), 401,
                "API_KEY_REQUIRED")
    r = g.get(form + "/messages", g.alice)
    assert_flat(r, 405, "METHOD_NOT_ALLOWED")
    assert_flat(g.post(form + "/messages", chat(), g.bob), 403,
                "PROVIDER_MISMATCH")


@pytest.mark.parametrize("path", [
    "/", "/v1", "/v1/", "/v1/v1", "/v1/v1/", "/v1/v1/v1/messages",
    "/v2/messages", "/messages/", "/Messages", "/x/messages", "/v1messages",
    "/v1/v1messages", "/models/", "/v1/v1/models/", "/chat", "/completions",
    "/v1/v", "/me", "/batches", "/?x/v1/models/y", "/v?/v1/models/y"])
def test_exact_paths_only(g, path):
    assert_flat(g.post(path, messages(), g.alice), 404, "NOT_FOUND")
    assert_flat(g.get(path, g.alice), 404, "NOT_FOUND")


def test_slashes_are_merged_by_nginx(g):
    assert g.post("//messages", messages(), g.alice).status == 200


@pytest.mark.parametrize("form", FORMS)
def test_log_has_the_endpoint(g, form, tag):
    g.post(form + "/messages", messages(), g.alice, [("X-Test-Tag", tag)])
    g.get(form + "/models/fam-a-mini", g.alice, [("X-Test-Tag", tag)])
    lines, end = [], time.monotonic() + LIMIT
    while len(lines) < 2:
        assert time.monotonic() < end
        lines = [json.loads(line.split(" ", 1)[1])
                 for line in g.whole_lines("whole.log")
                 if line.startswith(tag + " ")]
    assert sorted(x["path"] for x in lines) == ["/v1/messages",
                                                "/v1/models/*"]


@pytest.mark.parametrize("path", ["/messages", "/v1/v1/messages"])
def test_off_by_default(gateway, path):
    g = gateway(gateway=GATEWAY.replace("modelgw_aliases on;", ""))
    assert_flat(g.post(path, messages(), g.alice), 404, "NOT_FOUND")
    assert g.post("/v1/messages", messages(), g.alice).status == 200


def test_in_v1_only(gateway):
    """Aliases without /v1 do not reach the location, the others do."""
    g = gateway(location="modelgw_aliases on;")
    assert g.post("/v1/v1/messages", messages(), g.alice).status == 200
    assert g.post("/messages", messages(), g.alice).status == 404
    assert g.log_count("no gateway location of the server") == 1


def test_metrics(gateway):
    g = gateway(gateway=GATEWAY, http="modelgw_zone 4m;", locations="location "
                "= /m { modelgw_metrics; allow 127.0.0.1; deny all; }")
    for form in FORMS:
        assert g.post(form + "/messages", messages(), g.alice).status == 200
        g.get(form + "/models", g.alice)
    for endpoint in "messages", "models":
        g.wait_metric('modelgw_requests_total{endpoint="%s",group="a",code=""}'
                      ' 3' % endpoint)
