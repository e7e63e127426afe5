"""The metrics of a gateway: scraped and parsed, without the module's help."""

import json
import os
import re
import subprocess
import time
import urllib.parse
import urllib.request
from decimal import Decimal

import client
import gateway

LOCATION = """
        location = /metrics { modelgw_metrics; allow 127.0.0.1; deny all; }
"""

TYPE = "text/plain; version=0.0.4; charset=utf-8"

BOARD = os.path.join(gateway.ROOT, "conf/grafana/modelgw.json")

# what Grafana puts in

VARIABLES = {"$__rate_interval": "1m", "$__range": "15m", "$instance": ".*",
             "$group": ".*", "$model": ".*"}

LINE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"(?:,|$)')
ESCAPE = re.compile(r"\\(.)")


def unescape(text):
    return ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], text)


class Metrics:
    """Samples by name and labels."""

    def __init__(self, text):
        self.text = text
        self.types = {}
        self.samples = {}
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                name, kind = line.split()[2:]
                assert name not in self.types, line
                self.types[name] = kind
            elif not line.startswith("# HELP "):
                self._sample(line)

    def _sample(self, line):
        m = LINE.match(line)
        assert m, line
        name, labels, value = m.groups()
        found = [(n, unescape(v)) for n, v in LABEL.findall(labels or "")]
        assert ",".join('%s="' % n for n, v in found).count('="') \
            == len(found), line
        sample = name, frozenset(found)
        assert sample not in self.samples, line
        self.samples[sample] = Decimal(value)

    def all(self, metric, **labels):
        """{labels: value} of those that have these labels, le aside."""
        wanted = set(labels.items())
        return {found: value for (name, found), value in self.samples.items()
                if name == metric and wanted <= found}

    def sum(self, metric, **labels):
        return sum(self.all(metric, **labels).values())

    def one(self, metric, **labels):
        values = list(self.all(metric, **labels).values())
        assert len(values) == 1, (metric, labels, self.text)
        return values[0]

    def values(self, metric, label):
        return {dict(found)[label] for found in self.all(metric)}

    def counters(self):
        """All that must never fall."""
        return {(name, labels): value
                for (name, labels), value in self.samples.items()
                if name.endswith(("_total", "_bucket", "_sum", "_count"))
                and not name.startswith("nginx_")}


def scrape(gw, path="/metrics", **kw):
    r = gw.get(path, **kw)
    assert r.status == 200 and r.complete, r
    assert r.get("content-type") == TYPE
    return Metrics(r.body.decode())


def lint(text):
    """promtool's opinion: "" if all is well."""
    run = subprocess.run(["promtool", "check", "metrics"], input=text,
                         capture_output=True, text=True, timeout=60)
    return run.stdout + run.stderr if run.returncode else ""


def fallen(before, after):
    """Counters that are less than they were, or gone."""
    now = after.counters()
    return {sample: (value, now.get(sample))
            for sample, value in before.counters().items()
            if now.get(sample, -1) < value}


class Prometheus:
    """In a directory of its own, on a port of loopback."""

    def __init__(self, directory, gw, rules=()):
        self.port = gateway.free_port()
        self.log = directory / "log"
        config = directory / "prometheus.yml"
        config.write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": list(rules),
            "scrape_configs": [{
                "job_name": "modelgw",
                "static_configs": [
                    {"targets": ["127.0.0.1:%d" % gw.port]}]}]}))
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", "--config.file=%s" % config,
                 "--storage.tsdb.path=%s" % (directory / "data"),
                 "--web.listen-address=127.0.0.1:%d" % self.port],
                stdout=log, stderr=log)

    def get(self, path, **args):
        with urllib.request.urlopen("http://127.0.0.1:%d/api/v1/%s?%s" % (
                self.port, path, urllib.parse.urlencode(args)),
                timeout=10) as f:
            answer = json.load(f)
        assert answer["status"] == "success", answer
        return answer["data"]

    def ask(self, expression):
        return self.get("query", query=expression)["result"]

    def wait(self, expression, timeout=client.LIMIT):
        end = time.monotonic() + timeout
        while True:
            try:
                if self.ask(expression):
                    return
            except OSError:         # it does not listen yet
                pass
            assert time.monotonic() < end, (expression, self.log.read_text())
            time.sleep(0.2)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def board():
    with open(BOARD) as f:
        return json.load(f)


def panels():
    return [p for p in board()["panels"] if p["type"] != "row"]


def filled(expression):
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression


def expressions(cluster=False):
    """(panel, reference, expression) of those about a cluster, or the
    others."""
    return [(p["title"], t["refId"], t["expr"]) for p in panels()
            for t in p["targets"]
            if ("modelgw_cluster_" in t["expr"]) == cluster]
