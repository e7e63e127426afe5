"""The Grafana board and the alerts, asked of a Prometheus that has scraped a
gateway with calls of every kind; what is about clusters, in t/cluster.  There
is no Grafana to try the board in."""

import json
import os
import re
import subprocess
import threading

import pytest

import client
import gateway as lib
import metrics
from gateway import Key, chat, messages
from metrics import board, filled, panels
from test_metrics import GROUPS, LEDGER
from upstream import both, raw, reply_json

RULES = os.path.join(lib.ROOT, "conf/prometheus/modelgw.rules.yml")
TESTS = os.path.join(lib.ROOT, "t/credit/modelgw.rules.test.yml")

KEYS = (Key("limited", "b", "rpm=1"), Key("poor", "b", "account=poor"),
        Key("bounded", "b", "budget=50.00/month"))


def calls(gw):
    """Of every kind."""
    gw.b.script(both)
    assert gw.chat().status == 200
    assert gw.chat(chat(stream=True)).status == 200
    assert gw.messages(messages(stream=True)).status == 200
    assert gw.messages().status == 200
    gw.chat(key=KEYS[0])
    gw.chat(key=KEYS[0])
    assert gw.chat(chat(max_tokens=4000, n=100000), key=KEYS[1]).status == 402
    gw.b.script(reply_json({"error": {"message": "no"}}, 500))
    assert gw.chat().status == 502
    gw.b.script(reply_json({"error": {"message": "no"}}, 429))
    assert gw.chat().status == 429
    gw.b.script(both)


@pytest.fixture(scope="module")
def prometheus(module_gateway, tmp_path_factory):
    gw = module_gateway(http=LEDGER, groups=GROUPS, keys=KEYS,
                        locations=metrics.LOCATION)
    p = metrics.Prometheus(tmp_path_factory.mktemp("prometheus"), gw, [RULES])
    try:
        calls(gw)
        p.wait('up{job="modelgw"} == 1')
        for _ in range(3):
            calls(gw)
            before = p.ask("modelgw_requests_total")[0]["value"][0]
            p.wait("min(timestamp(modelgw_requests_total)) > %s" % before)

        # a call that runs: something is in flight, and a balance falls

        go = threading.Event()
        gw.b.script(raw(go, both))
        with gw.connect() as c:
            c.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                      chat())
            gw.b.wait()
            p.wait("sum(modelgw_calls_in_flight) > 0")
            go.set()
            assert c.response().status == 200
        p.wait("sum(modelgw_calls_in_flight) == 0")
        yield p
    finally:
        p.stop()


EXPRESSIONS = metrics.expressions()


@pytest.mark.parametrize("title, ref, expression", EXPRESSIONS,
                         ids=["%s-%s" % e[:2] for e in EXPRESSIONS])
def test_an_expression_has_data(prometheus, title, ref, expression):
    assert prometheus.ask(filled(expression)), expression


NOTHING = """
evaluation_interval: 1m
tests:
  - interval: 15s
    input_series:
      - series: 'modelgw_requests_total{instance="gw:1", group="b", code=""}'
        values: '%s'
      - series: 'modelgw_requests_total{instance="gw:1", group="b",
                                        code="UPSTREAM_ERROR"}'
        values: '%s'
    promql_expr_test:
      - expr: %s
        eval_time: 5m
        exp_samples: [{value: %s}]
"""


@pytest.mark.parametrize("good, bad, ratio", [
    ("7x40", "3x40", 0), ("0+3x40", "0+1x40", 0.25), ("_x40", "_x40", 0),
    ("0+3x40", "_x40", 0)])
def test_nothing_fails_without_traffic(tmp_path, good, bad, ratio):
    """It is no number that Grafana would show as "NaN"."""
    (expression,) = [e for title, _, e in EXPRESSIONS if title == "Failing"]
    test = tmp_path / "test.yml"
    test.write_text(NOTHING % (good, bad, json.dumps(filled(expression)),
                               ratio))
    run = promtool("test", "rules", str(test))
    assert run.returncode == 0, run.stdout + run.stderr


def test_units_of_rates():
    for p in panels():
        if "a second" in p["description"] or p["title"].endswith("a second"):
            assert re.search("ps$|/s$", p["fieldConfig"]["defaults"]["unit"]), \
                p["title"]


def test_steps_are_longer_than_scrapes():
    """Grafana's rate interval is a minute at least with scrapes of 15 s."""
    with open(os.path.join(lib.ROOT, "docs/metrics.md")) as f:
        assert "scrape_interval: 15s" in f.read()
    (annotation,) = board()["annotations"]["list"]
    assert "[2m]" in annotation["expr"] and annotation["step"] == "60s"


def test_variables_have_values(prometheus):
    for v in board()["templating"]["list"]:
        if v["type"] == "query":
            m = re.match(r"label_values\((.*), (\w+)\)$", v["query"]["query"])
            found = prometheus.ask(filled(m[1]))
            assert any(m[2] in s["metric"] for s in found), v["name"]
            assert v["definition"] == v["query"]["query"]
            assert v["includeAll"] and v["allValue"] == ".*"


def test_the_board():
    b = board()
    assert b["schemaVersion"] <= 39 and b["uid"] == "modelgw"
    assert "id" not in b
    names = [v["name"] for v in b["templating"]["list"]]
    assert names == ["datasource", "instance", "group", "model"]
    ids = [p["id"] for p in b["panels"]]
    assert len(set(ids)) == len(ids)
    titles = [p["title"] for p in b["panels"]]
    assert len(set(titles)) == len(titles)
    for p in panels():
        assert p["title"] and p["description"].endswith(".")
        assert p["fieldConfig"]["defaults"]["unit"]
        assert p["targets"]
        for t in [p] + p["targets"]:
            assert t["datasource"]["uid"] == "${datasource}"
    assert [p["title"] for p in b["panels"] if p["type"] == "row"] == [
        "Now", "Traffic", "Spend and tokens", "Latency", "Upstreams", "Keys",
        "Accounts", "Gateway", "Cluster"]


def test_panels_do_not_overlap():
    taken = set()
    for p in board()["panels"]:
        g = p["gridPos"]
        cells = {(x, y) for x in range(g["x"], g["x"] + g["w"])
                 for y in range(g["y"], g["y"] + g["h"])}
        assert g["x"] + g["w"] <= 24 and not cells & taken, p["title"]
        taken |= cells


# the rules


def promtool(*args):
    """It computes for some 10 seconds: for minutes beside other tests."""
    return subprocess.run(["promtool", *args], capture_output=True, text=True,
                          timeout=8 * client.LIMIT)


def test_rules():
    run = promtool("check", "rules", RULES)
    assert run.returncode == 0, run.stdout + run.stderr
    run = promtool("test", "rules", TESTS)
    assert run.returncode == 0, run.stdout + run.stderr


def test_each_alert_fires_and_is_silent():
    with open(RULES) as f:
        alerts = re.findall(r"- alert: (\w+)", f.read())
    with open(TESTS) as f:
        cases = re.findall(r"alertname: (\w+)\n +exp_alerts:( \[\])?",
                           f.read())
    assert len(alerts) >= 13
    for alert in alerts:
        assert {silent for name, silent in cases if name == alert} \
            == {"", " []"}, alert


def test_rules_are_loaded(prometheus):
    """By a server, without an error, and their metrics exist: those of a
    cluster, which this nginx is not in, in the source of the scrape."""
    with open(os.path.join(lib.ROOT, "src/http/metrics",
                           "ngx_http_modelgw_scrape_text.c")) as f:
        of_cluster = re.findall(r'"(modelgw_cluster_\w+)"', f.read())
    (group,) = prometheus.get("rules")["groups"]
    assert len(group["rules"]) >= 13
    for rule in group["rules"]:
        assert rule["health"] in ("ok", "unknown"), rule
        for name in set(re.findall(r"\b(?:modelgw|gen_ai)_\w+",
                                   re.sub(r"\{[^}]*\}|by \([^)]*\)", "",
                                          rule["query"]))):
            assert prometheus.ask(name) or name in of_cluster, name


def test_alerts_are_documented():
    with open(RULES) as f:
        alerts = re.findall(r"- alert: (\w+)", f.read())
    with open(os.path.join(lib.ROOT, "docs/metrics.md")) as f:
        text = f.read()
    for alert in alerts:
        assert "`%s`" % alert in text, alert
