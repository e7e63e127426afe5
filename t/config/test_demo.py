"""The demo of "make run": every command that it prints does what its heading
says, Ctrl-C leaves nothing running, a port in use is a clear error."""

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import time

import pytest

from client import LIMIT
from gateway import NGINX, ROOT, free_port
from upstream import Refused

RUN = os.path.join(ROOT, "demo/run.sh")

pytestmark = pytest.mark.skipif(
    os.environ.get("MODELGW_MODULE") == "",
    reason="the demo loads the module, here it is linked in")


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def start(directory, **env):
    """A running demo.  Its port was free before: if another process has taken
    it since, another port is tried."""
    for n in range(5):
        d = Demo(directory, free_port(), **env)
        wait_for(d.ready, "no demo")
        if not re.search("is taken|Address already in use", d.text()):
            break
    assert d.process.poll() is None, d.text()
    return d


def default_sighup():
    """A shell cannot trap a signal that its parent ignores, as nohup does."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Demo:
    def __init__(self, directory, port, **env):
        self.directory, self.port = directory, port
        self.out = open(directory / "out", "w+")
        self.process = subprocess.Popen(
            [RUN], stdout=self.out, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=default_sighup,
            env=dict(os.environ, MODELGW_PORT=str(port),
                     MODELGW_RUN=str(directory / "run"), **env))

    def text(self):
        with open(self.directory / "out") as f:
            return f.read()

    def ready(self):
        return "Ctrl-C stops everything." in self.text() \
            or self.process.poll() is not None

    def calls(self):
        """(heading, command) pairs, as printed."""

        return re.findall(r"^# (.*)\n((?:curl|head|/.*modelgwctl) .*)$",
                          self.text(), re.M)

    def group(self):
        """The remaining processes of the demo."""

        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == self.process.pid and fields[0] != "Z":
                found.append(int(pid))
        return found

    def stop(self, signum=signal.SIGINT):
        if self.group():
            os.killpg(self.process.pid, signum)
        self.process.wait(60)
        wait_for(lambda: not self.group(), "processes are left")


def running(directory):
    """The life of a fixture."""
    d = start(directory)
    try:
        yield d
    finally:
        d.stop()
        d.out.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    yield from running(tmp_path_factory.mktemp("demo"))


def test_every_line_does_what_it_says(demo):
    seen = set()
    calls = demo.calls()
    assert len(calls) >= 20

    for heading, command in calls:
        r = subprocess.run(["bash", "-c", command], capture_output=True,
                           text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert r.returncode == 0, (heading, command, r.stderr)
        if "modelgwctl" in command:
            assert r.stdout.strip(), heading
            seen.add(command.rsplit("admin.sock ", 1)[1].split()[0])
            continue

        body, status = r.stdout.rstrip().rsplit("\n", 1)
        error = re.match(r"(\d+) ([A-Z_]+)", heading)
        seen.add(error.group(2) if error else heading)

        if error:
            assert status == error.group(1), (heading, r.stdout)
            assert f'"code":"{error.group(2)}"' in body, (heading, r.stdout)
            continue

        assert status == "200", (heading, r.stdout)

        # answers have the model ids of the gateway, never those of the
        # upstream
        assert "2026-01-01" not in body

        if heading.startswith("chat, translated"):
            assert "family_a-large" in body and "the local " in body
            assert "chat.completion" in body and "prompt_tokens" in body
        elif heading.startswith("chat"):
            assert "family_b-chat" in body and "the local " in body
        if heading.startswith("messages"):
            assert "family_a-large" in body and "the local " in body
        if heading.startswith("chat") and heading.endswith("streamed"):
            assert body.rstrip().endswith("data: [DONE]")
        if heading.startswith("responses"):
            assert '"status":"completed"' in body and "the local " in body
            assert ("event: response.completed" in body) \
                == heading.endswith("streamed")
        if heading == "embeddings":
            assert "family_b-embed" in body and "prompt_tokens" in body
            assert body.count('"embedding": [') == 2
        if heading.startswith("messages, streamed"):
            assert "event: message_stop" in body

    assert {"accounts", "topup", "usage", "key", "status", "for Prometheus",
            "API_KEY_REQUIRED", "INVALID_API_KEY", "INVALID_JSON",
            "MISSING_FIELD", "INVALID_MODEL", "PROVIDER_MISMATCH",
            "UNSUPPORTED_FIELD", "chat, translated and streamed",
            "responses, translated to messages",
            "responses, translated to chat, and streamed", "embeddings",
            "NOT_FOUND", "METHOD_NOT_ALLOWED", "REQUEST_TOO_LARGE",
            "RATE_LIMITED", "CONTEXT_LENGTH_EXCEEDED", "UPSTREAM_ERROR",
            "UPSTREAM_OVERLOADED"} <= seen


# The samples of the documents: "$ ", a command, and what it printed.  "…",
# keys and times match anything.  They run in this order: the balances depend on
# it, and docs/keys.md adds accounts.

DOCUMENTS = ["README.md", "docs/api.md", "docs/translation.md",
             "docs/operating.md", "docs/credit.md", "docs/keys.md",
             "docs/directives.md", "docs/performance.md",
             "docs/development.md"]

# nginx and modelgwctl in samples are those of the demo; variables and the
# directory stay for the next sample

COMMANDS = """
. "$RUN/shell"
trap '{ declare -p KEY RID ID key || :; echo "cd $PWD"; } > "$RUN/shell" 2>&-' EXIT
nginx() { "$NGINX" -p "$RUN/" -c conf/nginx.conf -g "$GLOBAL" "$@"; }
modelgwctl() { "$ROOT/conf/modelgwctl" --socket "$RUN/admin.sock" "$@"; }
"""

# logs and the books are written after the client has its answer

ASKS = re.compile(r"modelgwctl (accounts|actions|calls|keys|usage|refusals)"
                  r"|grep|jq")

PLACES = {"/etc/nginx/nginx.conf": "conf/nginx.conf", "/var/lib/modelgw": "", "/var/log/nginx/modelgw.log":
          "logs/access.log", "/var/log/nginx/error.log": "logs/error.log"}

ANYTHING = re.compile(r"sk-eu-[0-9a-f]{48}|\d{4}-\d\d-\d\dT[\d:.]{12}Z"
                      r"|\d{4}-\d\d-\d\d|\b1[78]\d{11,14}\b|…")


def test_paths_of_the_demo():
    """The table before the samples of docs/operating.md has those of PLACES."""
    with open(os.path.join(ROOT, "docs/operating.md")) as f:
        table = dict(re.findall(r"^\| `(/\S+)` +\| `build/run/(\S+)` +\|$",
                                f.read(), re.M))
    assert len(table) >= 5
    for path, place in table.items():
        for name, there in [*PLACES.items(),
                            ("/etc/nginx/modelgw", "conf/modelgw")]:
            path = path.replace(name, there)
        assert path.lstrip("/") == place


def samples(text):
    """(command, output) of each, as written."""
    found, more = [], False
    for line in re.findall(r"^(?:    (.*)|(\S.*))?$", text, re.M):
        code, other = line
        if other:
            found.append(None)
        elif code.startswith("$ "):
            found.append([code[2:], []])
        elif more:
            found[-1][0] += "\n" + code
        elif found and found[-1]:
            found[-1][1].append(code)
        more = bool(found and found[-1]) and code.endswith("\\")
    return [(command, "\n".join(out).strip()) for command, out in
            filter(None, found)]


def test_samples_of_the_documents(tmp_path):
    """On a separate demo; statements in SQL after it has ended."""
    d = start(tmp_path)
    run = tmp_path / "run"
    conf = str(run / "conf/modelgw")
    texts = {}
    for name in DOCUMENTS:
        with open(os.path.join(ROOT, name)) as f:
            texts[name] = f.read()
    try:
        (run / "shell").write_text("")
        env = dict(os.environ, RUN=str(run), ROOT=ROOT, NGINX=NGINX,
                   GLOBAL="daemon off; pid logs/nginx.pid;"
                   + ("user root;" if os.geteuid() == 0 else ""),
                   VENDOR_KEY="secret", **dict(
                       re.findall(r"(KEY_[AB])=(sk-eu-\w+)", d.text())))
        count = 0
        for name in DOCUMENTS:
            for written, expected in samples(texts[name]):
                command = written.replace(":8080/", ":%d/" % d.port)
                for name_, place in PLACES.items():
                    command = command.replace(name_, str(run / place))
                command = command.replace("/etc/nginx/modelgw", conf)
                if "sqlite3" in command and not shutil.which("sqlite3"):
                    continue
                pattern = ".*".join(map(re.escape, ANYTHING.split(expected)))
                end = time.monotonic() + LIMIT
                while True:
                    r = subprocess.run(["bash", "-ec", COMMANDS + command],
                                       env=env, text=True, timeout=60,
                                       stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT)
                    out = r.stdout.replace("\r", "").replace(
                        conf, "/etc/nginx/modelgw").strip()
                    right = r.returncode == 0 and (
                        not expected or re.fullmatch(pattern, out, re.S))
                    if right or not ASKS.match(command) \
                            or time.monotonic() > end:
                        break
                    time.sleep(0.1)
                assert right, "%s: %s\n%s" % (name, written, out)
                count += 1
        assert count >= 50
    finally:
        d.stop()

    db = sqlite3.connect(run / "ledger.db")
    statements = re.findall(r"(?ms)^```sql\n(.*?)^```$",
                            "\n".join(texts.values()))
    assert statements
    for text in statements:
        assert all(balance == derived
                   for _, balance, derived in db.execute(text))
    assert not any(db.execute("SELECT 1 FROM audit WHERE difference OR hours"))
    db.close()


def test_secrets_are_private_and_not_in_the_log(demo):
    conf = demo.directory / "run/conf/modelgw"
    secrets = [(conf / f"{g}.secret").read_text().strip() for g in "ab"]

    for name in "a.secret", "b.secret", "keys.conf", "operators.conf":
        assert (conf / name).stat().st_mode & 0o077 == 0

    keys = re.findall(r"^    (?:KEY_.=)?((?:sk|op)-eu-\w+)", demo.text(), re.M)
    assert len(keys) == 3

    for name in "access.log", "error.log":
        text = (demo.directory / "run/logs" / name).read_text()
        assert not [s for s in secrets + keys if s in text]


def session(demo, token, jar):
    """Signs in; returns what the cookie then says of the session."""
    url = f"http://127.0.0.1:{demo.port}/console/api/session"
    subprocess.run(["curl", "-sS", "-f", "-c", jar, url, "--json",
                    json.dumps({"token": token})], check=True,
                   capture_output=True, timeout=60)
    r = subprocess.run(["curl", "-sS", "-f", "-b", jar, url], check=True,
                       capture_output=True, timeout=60)
    return json.loads(r.stdout)


def test_console_and_its_sign_in(demo, tmp_path):
    """With what is printed: the operator's token, and the keys."""
    text = demo.text()
    (token,) = re.findall(r"^    (op-eu-[0-9a-f]{48})   #", text, re.M)
    found = session(demo, token, tmp_path / "jar")
    assert (found["role"], found["account"]) == ("admin", None)

    for group, key in re.findall(r"KEY_(.)=(sk-eu-\w+)", text):
        found = session(demo, key, tmp_path / "jar")
        assert (found["role"], found["account"], found["key"]) \
            == ("holder", "demo", "demo-" + group.lower())

    if not os.path.exists(os.path.join(ROOT, "build/console/index.html")):
        assert "make console" in text
        return
    (page,) = re.findall(r"^    (http://\S+/console/)$", text, re.M)
    r = subprocess.run(["curl", "-sS", "-f", page], check=True,
                       capture_output=True, text=True, timeout=60)
    for name in re.findall(r'(?:src|href)="([\w./]+)"', r.stdout):
        subprocess.run(["curl", "-sS", "-f", page + name], check=True,
                       capture_output=True, timeout=60)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM,
                                    signal.SIGHUP])
def test_stops_cleanly(tmp_path, signum):
    d = start(tmp_path)
    assert len(d.group()) >= 4              # shell, stub, master, a worker
    d.stop(signum)

    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", d.port)) != 0
    assert not list((tmp_path / "run/conf/modelgw").glob("*.secret"))


@pytest.mark.parametrize("name", ["conf/nginx.conf", "README.md"])
def test_error_compat_is_at_hand(name):
    """As a comment with its reason, in the gateway location of both complete
    configurations."""
    with open(os.path.join(ROOT, name)) as f:
        (location,) = re.findall(r"^ +location /v1/ {\n(.*?)^ +}$", f.read(),
                                 re.M | re.S)
    assert re.search(r"^ +modelgw +on;$", location, re.M)
    assert re.search(r"^ +# modelgw_error_compat +on;", location, re.M)
    assert "some clients show no reason of a flat error" in location


def test_port_is_taken(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        d = Demo(tmp_path, port)
        assert d.process.wait(60) == 1

    assert f"port {port} is taken" in d.text()
    assert "MODELGW_PORT" in d.text()


@pytest.mark.parametrize("env,error", [
    ({"MODELGW_A_HOST": "a.example"}, "MODELGW_A_SECRET is not"),
    ({"MODELGW_B_SECRET": "s"}, "MODELGW_B_HOST is not"),
    ({"MODELGW_A_HOST": "a b;", "MODELGW_A_SECRET": "s"}, "not a host"),
    ({"MODELGW_A_HOST": "localhost", "MODELGW_A_SECRET": "s",
      "MODELGW_A_MODEL": "x;y"}, "not a model id"),
])
def test_what_the_environment_lacks(tmp_path, env, error):
    d = Demo(tmp_path, free_port(), **env)
    assert d.process.wait(60) == 1
    assert error in d.text()
    wait_for(lambda: not d.group(), "processes are left")


def test_real_hosts_are_asked_over_verified_tls(tmp_path):
    """localhost stands in for both vendors; nothing listens there, which is
    enough to see where and how the gateway connects."""

    refused = Refused()
    port = refused.port
    d = start(tmp_path, MODELGW_A_HOST=f"localhost:{port}",
              MODELGW_A_SECRET="real-a", MODELGW_A_MODEL="real-model",
              MODELGW_B_HOST=f"localhost:{port}", MODELGW_B_SECRET="real-b")
    try:
        conf = (tmp_path / "run/conf/nginx.conf").read_text()
        assert conf.count("upstream    https://localhost;") == 2
        assert conf.count("upstream localhost {") == 1
        assert "model family_a-large  real-model " in conf
        assert "errors of the upstream" not in d.text()
        assert (tmp_path / "run/conf/modelgw/a.secret").read_text().strip() \
            == "real-a"

        heading, command = [c for c in d.calls() if c[0] == "messages"][0]
        r = subprocess.run(["bash", "-c", command], capture_output=True,
                           text=True, timeout=60)
        assert '"code":"UPSTREAM_UNAVAILABLE"' in r.stdout
        log = (tmp_path / "run/logs/error.log").read_text()
        assert f':{port}/v1/messages", host' in log and "https://" in log
    finally:
        d.stop()
        refused.stop()
