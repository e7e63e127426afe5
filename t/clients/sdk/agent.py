"""Plays sessions of assistants that speak the responses API against a gateway,
all on loopback: with a group that passes it through, or translates it to
messages or chat.

usage: agent.py '{"dir": for all files, "namespace": true or false,
    "client": "codex" or "opencode", "command": its command,
    "protocol": of the group}'

Prints the result of each session; alone.play() starts it.
"""

import base64
import json
import os
import signal
import sys

CLIENTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(CLIENTS, "../lib"), CLIENTS]

import gateway                                                  # noqa: E402
import upstream                                                 # noqa: E402
from sdk import alone, model                                    # noqa: E402
from sdk.model import (REPORT, breaks, fails, text, thinking,   # noqa: E402
                       use, waits)

# A name that Codex knows, or begins with one, decides which tools it offers.
# The account's credit pays for a turn of fam-priced, not for one of fam-dear.

INNER = {"fam-one": "one-1", "gpt-5.5-x": "patching-1",
         "gpt-5.6-sol": "coding-1", "fam-priced": "priced-1",
         "fam-dear": "dear-1"}
PRICES = {"fam-priced": "input=1 output=2 max_output=64000",
          "fam-dear": "input=90000 output=90000 max_output=64000"}

GROUP = gateway.group(
    "a", "%s", "fam- gpt-5.5 gpt-5.6-", "http://api.vendor-a.test", "%s",
    "\n".join("model %s %s %s;" % (name, inner, PRICES.get(name, "free"))
              for name, inner in INNER.items()))

LEDGER = ("modelgw_zone 4m; modelgw_ledger $dir/ledger.db;"
          " modelgw_founding_credit 5;")

ADD = use("mcp__demo__add", {"a": 1, "b": 2}, "call_1")
PATCH = ("*** Begin Patch\n*** Add File: new.txt\n"
         "+one \"quoted\" line, 5 \u20ac\n*** End Patch\n")
CODE = ("const r = await tools.exec_command({cmd: \"echo three > three\"});"
        " text(r.output);")
PNG = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAE"
       "hQGAhKmMIQAAAABJRU5ErkJggg==")
SCHEMA = {"type": "object", "additionalProperties": False,
          "required": ["city", "degrees"],
          "properties": {"city": {"type": "string"}, "degrees": {
              "type": "array", "items": {"type": "number"}}}}


def shell(tool, member, **more):
    """A round of two commands, and the answer to what they print."""
    def command(n, word):
        return use(tool, dict({member: "echo %s > %s" % (word, word)},
                              **more), "call_%d" % n)

    return [[thinking("Hm."), text("I do both."), command(1, "one"),
             command(2, "two")],
            [text("Both are done.")]]


def compact(protocol, body):
    """A round of tools, by which the conversation is too long; its summary;
    the answer to that."""
    if not body.get("tools"):
        return [text("SUMMARY-1")]
    if "SUMMARY-1" in json.dumps(body):
        return [text("It is summed up.")]
    return [use("exec_command", {"cmd": "echo one"}, "call_1")]


def titled(answers):
    """A client asks for a title first, without tools."""
    def says(protocol, body):
        return answers[min(model.rounds(protocol, body), len(answers) - 1)] \
            if body.get("tools") else [text("A title")]

    return says


class Agent:
    """play() runs it once, with a home and files of its own."""

    def __init__(self, at, up):
        self.at = at
        self.up = up
        self.up.gone = []
        os.makedirs(self.path("gateway"))
        self.gw = gateway.Gateway(
            self.path("gateway"), up, up, http=LEDGER,
            groups=GROUP % (at["protocol"],
                            model.credential(at["protocol"])))
        self.gw.keys = [self.gw.alice]
        self.gw.start()
        self.model = model.Model(self.scenes, self.gw.secret_a,
                                 *INNER.values())
        up.script(self.model)
        self.results = {}

    def path(self, *names):
        return os.path.join(self.at["dir"], *names)

    def url(self):
        return "http://127.0.0.1:%d/v1" % self.gw.port

    def log(self):
        return self.gw.read("access.log").splitlines()

    def play(self, session, *more, during=lambda p: None, key=None, **kw):
        home, work = self.path(session), self.path(session, "work")
        os.makedirs(work)
        env = alone.environment(home, MODELGW_KEY=key or self.gw.alice.secret,
                                **self.configure(home, **kw))
        lines, self.before = len(self.log()), len(self.up.requests)
        r = alone.run(self.at["command"] + list(more) + [
            "scene-%s, please" % session], env, work, during)
        self.gw.wait_idle()         # the last line of the log is written
        r["log"] = [json.loads(line) for line in self.log()[lines:]]
        r["asked"] = self.model.asked.get(session, [])
        r["files"] = {}
        for name in os.listdir(work):
            if os.path.isfile(os.path.join(work, name)):
                with open(os.path.join(work, name)) as f:
                    r["files"][name] = f.read()
        self.results[session] = r


class Codex(Agent):

    scenes = {
        "text": [[thinking("Hm."), text("The kettle is on.")]],
        "commands": shell("exec_command", "cmd"),
        "mcp": [[ADD], [text("It is 3.")]],
        "search": [[use("tool_search", {"query": "add", "limit": 3},
                        "call_0")], [ADD], [text("It is 3.")]],
        "patch": [[use("apply_patch", {"input": PATCH}, "call_1")],
                  [text("It is patched.")]],
        "code": [[use("functions__exec", {"input": CODE}, "call_1")],
                 [text("It is coded.")]],
        "compact": compact,
        "schema": [[text(json.dumps(REPORT))]],
        "failed": [fails],
        "cut": [breaks],
        "aborted": [waits],
    }

    def configure(self, home, name="fam-one", more="", access=True,
                  provider=True):
        with open(os.path.join(home, "config.toml"), "w") as f:
            f.write("""
model = "%s"
check_for_update_on_startup = false
%s
approval_policy = "never"
sandbox_mode = "%s"
%s

[analytics]
enabled = false

[feedback]
enabled = false

[model_providers.modelgw]
name = "modelgw"
base_url = "%s"
env_key = "MODELGW_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0

[mcp_servers.demo]
command = "%s"
args = ["%s"]
""" % (name, 'model_provider = "modelgw"' if provider else
                "openai_base_url = \"%s\"" % self.url(),
                "danger-full-access" if access else "read-only", more,
                self.url(), sys.executable,
                os.path.join(CLIENTS, "sdk/mcp_add.py")))
        return dict({"CODEX_HOME": home}, **({} if provider else {
            "CODEX_API_KEY": self.gw.alice.secret}))

    def sessions(self):
        for name in ("text", "commands", "mcp", "failed", "cut"):
            self.play(name)
        self.play("patch", name="gpt-5.5-x")
        self.play("search", name="gpt-5.5-x")
        self.play("code", name="gpt-5.6-sol")
        self.play("compact", more="model_auto_compact_token_limit = 100")
        self.play("aborted", during=self.abort)
        self.play("priced", name="fam-priced", access=False)
        self.play("live", name="fam-priced")
        self.play("poor", name="fam-dear", access=False)
        self.play("key", key=self.gw.alice.secret + "0")
        self.play("websocket", provider=False)

        with open(self.path("schema.json"), "w") as f:
            json.dump(SCHEMA, f)
        self.play("schema", "--output-schema", self.path("schema.json"))
        with open(self.path("picture.png"), "wb") as f:
            f.write(base64.b64decode(PNG))
        self.play("picture", "--image=" + self.path("picture.png"))

    def abort(self, p):
        """As Ctrl-C does."""
        self.up.wait(self.before + 1)
        os.killpg(p.pid, signal.SIGINT)


class Opencode(Agent):

    scenes = {name: titled(turns) for name, turns in {
        "text": [[thinking("Hm."), text("The kettle is on.")]],
        "commands": shell("bash", "command", description="Says a word"),
        "failed": [fails],
    }.items()}

    def configure(self, home, name="fam-one"):
        os.makedirs(os.path.join(home, "opencode"))
        with open(os.path.join(home, "opencode/opencode.json"), "w") as f:
            json.dump({
                "autoupdate": False, "share": "disabled",
                "permission": "allow", "enabled_providers": ["modelgw"],
                "model": "modelgw/" + name, "small_model": "modelgw/" + name,
                "provider": {"modelgw": {
                    "npm": "@ai-sdk/openai", "name": "modelgw",
                    "options": {"baseURL": self.url(),
                                "apiKey": "{env:MODELGW_KEY}"},
                    "models": {name: {
                        "reasoning": True,
                        "limit": {"context": 200000, "output": 32000},
                        "options": {"store": False, "include": [
                            "reasoning.encrypted_content"]}}}}}}, f)
        return dict({"XDG_%s_HOME" % kind: home for kind in (
            "CONFIG", "DATA", "STATE", "CACHE")}, **{
                "OPENCODE_DISABLE_" + what: "1" for what in (
                    "AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "SHARE",
                    "DEFAULT_PLUGINS")})

    def sessions(self):
        for name in ("text", "commands", "failed"):
            self.play(name)
        self.play("poor", name="fam-dear")


def main():
    at = alone.arguments()
    up = upstream.Upstream()
    agent = {"codex": Codex, "opencode": Opencode}[at["client"]](at, up)
    try:
        agent.sessions()
    finally:
        agent.gw.stop()
        up.stop()
    json.dump(dict(agent.results, refused=agent.model.refused, gone=up.gone,
                   faults=[repr(e) for e in up.faults],
                   keys=[agent.gw.alice.secret]), sys.stdout)


if __name__ == "__main__":
    main()
