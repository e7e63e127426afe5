"""Plays coding assistants' sessions against a gateway, all on loopback.

usage: assistant.py '{"dir": for all files, "namespace": true or false,
    "claude": command, "qwen": command}'

An assistant also connects to its vendor, and downloads: alone.play() keeps it
off the network.

Prints one object: for each assistant the result of each session.
"""

import json
import os
import sys

CLIENTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(CLIENTS, "../lib"), CLIENTS]

import gateway                                                  # noqa: E402
import messages_api                                             # noqa: E402
import upstream                                                 # noqa: E402
from sdk import alone, answers, translated                      # noqa: E402

FOREIGN = "sk-ant-api03-" + "x" * 40
NOTE = "The kettle is on the balcony."
READ = "Read note.txt and tell me where the kettle is."
FOUND = "It is on the balcony."


def broken(events):
    """The first stream breaks, later ones are complete."""
    return answers.first_of(upstream.sse(events + [0.1], end="close"),
                            upstream.both)


class Assistant:
    """play() runs it once, with a home and files of its own."""

    server = ""

    def __init__(self, at, up):
        self.command = at[self.program]
        self.dir = os.path.join(at["dir"], self.name)
        self.up = up
        os.makedirs(self.path("gateway"))
        self.gw = gateway.Gateway(self.path("gateway"), up, up,
                                  server=self.server).start()
        self.results = {}

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def url(self):
        return "http://127.0.0.1:%d" % self.gw.port

    def log(self):
        return self.gw.read("access.log").splitlines()

    def play(self, session, prompt="Say hi", script=upstream.both, **env):
        work = self.path(session, "work")
        os.makedirs(work)
        with open(os.path.join(work, "note.txt"), "w") as f:
            f.write(NOTE + "\n")

        home = self.path(session)
        self.up.reset()
        self.up.script(script)
        lines = len(self.log())
        r = alone.run(self.command + self.arguments(prompt),
                      alone.environment(home, **env), work)
        self.gw.wait_idle()         # the last line of the log is written
        r["log"] = [json.loads(line) for line in self.log()[lines:]]
        r["upstream"] = [{"target": q.target, "body": q.body.decode(),
                          "head": q.head.decode("latin-1")}
                         for q in self.up.requests]
        self.results[session] = r


class Claude(Assistant):
    """Claude Code, over messages."""

    name = "claude"
    program = "claude"

    def arguments(self, prompt):
        return ["-p", prompt, "--output-format", "json"]

    def play(self, session, *args, **env):
        super().play(
            session, *args, **env, IS_SANDBOX="1",
            ANTHROPIC_BASE_URL=self.url(), ANTHROPIC_MODEL="fam-a-large",
            ANTHROPIC_DEFAULT_OPUS_MODEL="fam-a-large",
            ANTHROPIC_DEFAULT_SONNET_MODEL="fam-a-large",
            ANTHROPIC_DEFAULT_HAIKU_MODEL="fam-a-small",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")

    def sessions(self):
        key = self.gw.alice.secret
        half = upstream.message_stream("large-2026-01-01")[:5]
        note = {"file_path": self.path("tools/work/note.txt")}

        self.play("tools", READ, answers.tools("Read", note, FOUND),
                  ANTHROPIC_AUTH_TOKEN=key)
        self.play("api_key", ANTHROPIC_API_KEY=key)
        self.play("both_keys", ANTHROPIC_AUTH_TOKEN=key,
                  ANTHROPIC_API_KEY=FOREIGN)
        self.play("error_401", ANTHROPIC_AUTH_TOKEN=key + "0")
        self.play("error_403", ANTHROPIC_AUTH_TOKEN=self.gw.bob.secret)
        self.play("broken", "Say hi", broken(half), ANTHROPIC_AUTH_TOKEN=key)


class Qwen(Assistant):
    """Qwen Code, over chat; its SDK does not read flat errors."""

    name = "qwen"
    program = "qwen"
    model = "fam-b-one"
    server = "modelgw_error_compat on;"

    def arguments(self, prompt):
        return ["--auth-type", "openai", "--output-format", "json", prompt]

    def play(self, session, *args, **env):
        os.makedirs(self.path(session, ".qwen"))
        with open(self.path(session, ".qwen/settings.json"), "w") as f:
            json.dump({"privacy": {"usageStatisticsEnabled": False},
                       "telemetry": {"enabled": False},
                       "general": {"enableAutoUpdate": False,
                                   "disableAutoUpdate": True}}, f)
        super().play(session, *args, **env, OPENAI_BASE_URL=self.url() + "/v1",
                     OPENAI_MODEL=self.model)

    def sessions(self):
        key = self.gw.bob.secret
        half = upstream.chat_stream("one-0613")[:3]
        note = {"file_path": self.path("tools/work/note.txt")}

        self.play("tools", READ, answers.tools("read_file", note, FOUND),
                  OPENAI_API_KEY=key)
        self.play("error_401", OPENAI_API_KEY=key + "0")
        self.play("broken", "Say hi", broken(half), OPENAI_API_KEY=key)


class Translated(Qwen):
    """Qwen Code, with a group that speaks messages and refuses what the real
    API refuses."""

    name = "translated"
    model = "fam-a-large"

    def sessions(self):
        key = self.gw.alice.secret
        half = upstream.message_stream("large-2026-01-01")[:5]
        note = {"file_path": self.path("tools/work/note.txt")}
        fake = translated.fake(self.gw.secret_a, messages_api.in_turn(
            [messages_api.thinking("Hm."),
             messages_api.use("read_file", note)],
            [messages_api.text(FOUND)]))

        self.play("tools", READ, fake, OPENAI_API_KEY=key)
        self.results["tools"]["refused"] = [why for why, _ in fake.refused]
        self.play("broken", "Say hi", broken(half), OPENAI_API_KEY=key)


def main():
    at = alone.arguments()
    up = upstream.Upstream()
    out = {}
    for kind in (Claude, Qwen, Translated):
        if not at[kind.program]:
            continue
        assistant = kind(at, up)
        try:
            assistant.sessions()
        finally:
            assistant.gw.stop()
        out[kind.name] = dict(assistant.results, keys=[
            key.secret for key in assistant.gw.keys])
    up.stop()
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
