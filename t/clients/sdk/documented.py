"""Runs the blocks of docs/clients.md, as they are there, against a gateway
whose upstream speaks messages, all on loopback.

usage: documented.py '{"dir": for all files, "namespace": true or false,
    "path": directories of programs, "npm": directory of node_modules,
    "clients": {name: its blocks, [language, file or null, text]}}'

Prints for each client the status and output of each program; alone.play()
starts it.
"""

import json
import os
import sys

CLIENTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(CLIENTS, "../lib"), CLIENTS]

import gateway                                                  # noqa: E402
import upstream                                                 # noqa: E402
from sdk import alone, model                                    # noqa: E402
from sdk.model import text                                      # noqa: E402

ANSWER = "The kettle is on."
ADDRESS = "http://127.0.0.1:8080"
GROUPS = gateway.group(
    "a", "messages", "family_a-", "http://api.vendor-a.test",
    model.credential("messages"), """
    model family_a-large large-1 free max_output=64000;
    model family_a-small small-1 free max_output=64000;""")


def run(at, gw, name, blocks):
    home = os.path.join(at["dir"], name)
    work = os.path.join(home, "work")
    os.makedirs(work)
    os.symlink(at["npm"], os.path.join(work, "node_modules"))
    env = alone.environment(
        home, MODELGW_KEY=gw.alice.secret, IS_SANDBOX="1",
        OPENCODE_DISABLE_MODELS_FETCH="1", OPENCODE_DISABLE_AUTOUPDATE="1")
    env["PATH"] = ":".join(at["path"] + [env["PATH"]])

    out = []
    for language, file, block in blocks:
        block = block.replace(ADDRESS, "http://127.0.0.1:%d" % gw.port)
        path = os.path.expanduser(file.replace("~", home, 1)) if file \
            else os.path.join(work, "block." + {"js": "mjs"}.get(language,
                                                                language))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(block)
        if not file:
            program = {"sh": "sh", "python": sys.executable, "js": "node"}
            out.append(alone.run([program[language], path], env, work))
    return out


def main():
    at = alone.arguments()
    up = upstream.Upstream()
    gw = gateway.Gateway(os.path.join(at["dir"], "gateway"), up, up,
                         groups=GROUPS, server="modelgw_error_compat on;")
    gw.keys = [gw.alice]
    os.makedirs(gw.dir)
    gw.start()
    said = model.Model({None: [[text(ANSWER)]]}, gw.secret_a, "large-1",
                       "small-1")

    def answer(x):
        """Claude Code sends more than others know of the messages API."""
        if x.request.get("anthropic-beta"):
            body = x.request.json()
            upstream.sse(upstream.message_stream(body["model"], [ANSWER]))(x)
        else:
            said(x)

    up.script(answer)
    try:
        out = {name: run(at, gw, name, blocks)
               for name, blocks in at["clients"].items()}
    finally:
        gw.stop()
        up.stop()
    json.dump({"clients": out, "refused": said.refused}, sys.stdout)


if __name__ == "__main__":
    main()
