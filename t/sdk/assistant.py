"""Plays a coding assistant's sessions against a gateway, all on loopback.

usage: assistant.py '{"dir": …, "claude": the program}'

An assistant also talks to its vendor, and downloads.  test_assistants.py starts
this program in a network namespace of its own, where nothing but loopback
exists: the gateway, the upstreams and the assistant all live in there.  Where
that is not allowed, proxies that nobody answers keep it at home.

Prints one object: what came of each session.
"""

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))

import gateway                                                  # noqa: E402
import upstream                                                 # noqa: E402
from sdk import answers                                         # noqa: E402

LIMIT = 60          # seconds for a session
FOREIGN = "sk-ant-api03-" + "x" * 40
NOTE = "The kettle is on the balcony."
PROMPT = "Read note.txt and tell me where the kettle is."

SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, SIOCSIFFLAGS,
                    struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING))


class Sessions:

    def __init__(self, at):
        self.at = at
        self.up = upstream.Upstream()
        directory = os.path.join(at["dir"], "gateway")
        os.makedirs(directory)
        self.gw = gateway.Gateway(directory, self.up, self.up).start()
        self.results = {}

    def environment(self, home, **more):
        model = "fam-a-large"
        return {
            "PATH": os.environ["PATH"], "HOME": home, "TMPDIR": home,
            "IS_SANDBOX": "1", "TERM": "dumb",
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:%d" % self.gw.port,
            "ANTHROPIC_MODEL": model,
            "ANTHROPIC_DEFAULT_OPUS_MODEL": model,
            "ANTHROPIC_DEFAULT_SONNET_MODEL": model,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "fam-a-small",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "HTTP_PROXY": "http://127.0.0.1:1",
            "HTTPS_PROXY": "http://127.0.0.1:1",
            "NO_PROXY": "127.0.0.1", **more}

    def play(self, name, script=upstream.both, prompt="Say hi", **env):
        """One run of the assistant; its home and its files are its own."""
        home = os.path.join(self.at["dir"], name)
        work = os.path.join(home, "work")
        os.makedirs(work)
        with open(os.path.join(work, "note.txt"), "w") as f:
            f.write(NOTE + "\n")

        self.up.reset()
        self.up.script(script)
        lines = len(self.log())
        begin = time.monotonic()
        try:
            p = subprocess.run(
                [self.at["claude"], "-p", prompt, "--output-format", "json"],
                cwd=work, env=self.environment(home, **env), text=True,
                stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT)
            r = {"status": p.returncode, "out": p.stdout, "err": p.stderr}
        except subprocess.TimeoutExpired as e:
            r = {"status": None, "out": str(e.stdout), "err": str(e.stderr)}

        r["seconds"] = time.monotonic() - begin
        time.sleep(0.1)             # the last line of the log
        r["log"] = [json.loads(line) for line in self.log()[lines:]]
        r["upstream"] = [{"target": q.target,
                          "head": q.head.decode("latin-1"),
                          "body": q.body.decode()} for q in self.up.requests]
        self.results[name] = r

    def log(self):
        return self.gw.read("access.log").splitlines()

    def all(self):
        key = self.gw.alice.secret
        note = os.path.join(self.at["dir"], "tools/work/note.txt")

        self.play("tools",
                  answers.tools("Read", {"file_path": note},
                                "It is on the balcony."),
                  PROMPT, ANTHROPIC_AUTH_TOKEN=key)
        self.play("api_key", ANTHROPIC_API_KEY=key)
        self.play("both_keys", ANTHROPIC_AUTH_TOKEN=key,
                  ANTHROPIC_API_KEY=FOREIGN)
        self.play("error_401", ANTHROPIC_AUTH_TOKEN=key + "0")
        self.play("error_403", ANTHROPIC_AUTH_TOKEN=self.gw.bob.secret)
        self.play("broken", answers.first_of(
            upstream.sse(upstream.message_stream("large-2026-01-01")[:5]
                         + [0.1], end="close"), upstream.both),
            ANTHROPIC_AUTH_TOKEN=key)
        return self.results

    def stop(self):
        self.gw.stop()
        self.up.stop()


def main():
    at = json.loads(sys.argv[1])
    if at["namespace"]:
        loopback_up()

    sessions = Sessions(at)
    try:
        results = sessions.all()
    finally:
        sessions.stop()
    results["secrets"] = [key.secret for key in sessions.gw.keys]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
