"""Programs that node runs with packages from npm: sdk/package.json names them,
sdk/play.mjs has what the programs share."""

import json
import os
import subprocess

import pytest

from gateway import ROOT

BUILD = os.environ.get("MODELGW_BUILD", os.path.join(ROOT, "build"))
NPM = os.path.join(os.environ.get("MODELGW_NPM", os.path.join(BUILD, "npm")),
                   "node_modules")
NODE = os.path.join(NPM, "node/bin/node")

needed = pytest.mark.skipif(not os.path.exists(NODE),
                            reason="NOTICE: no npm packages in " + NPM)


def play(program, home, **at):
    """The result of each scene; "at" is the program's argument."""
    # without proxies, keys and addresses of the user's environment
    out = subprocess.run(
        [NODE, os.path.join(ROOT, "t/clients/sdk", program),
         json.dumps(dict(at, npm=NPM))],
        env={"PATH": os.environ["PATH"], "HOME": home},
        capture_output=True, text=True, timeout=240)
    assert out.returncode == 0, out.stderr[-4000:]
    return json.loads(out.stdout)


class Results:

    def __init__(self, results):
        self.results = results

    def ok(self, name):
        r = self.results[name]
        assert "ok" in r, r
        return r["ok"]

    def error(self, name):
        r = self.results[name]
        assert "error" in r, r
        return r["error"]
