"""Programs that know hosts of their own, with loopback only.

play() runs a player, a program in this directory, in a network namespace where
nothing but loopback exists: the gateway, the upstream and the clients all run
in there.  Where that is not allowed, proxy settings that lead nowhere keep them
off the network.
"""

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys

from gateway import ROOT

LIMIT = 120         # seconds for a session

# as root; as another user, where the system allows user namespaces
NAMESPACES = [["unshare", "-n"], ["unshare", "-c", "--keep-caps", "-n"]]

SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


# In the test.

def works(command):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, timeout=120,
                              capture_output=True).returncode == 0
    except OSError:
        return False


def play(player, **at):
    """What the player prints, parsed; "at" is its argument."""
    alone = next((n for n in NAMESPACES if works(n + ["true"])), [])
    at["namespace"] = bool(alone)
    out = subprocess.run(
        alone + [sys.executable, os.path.join(ROOT, "t/clients/sdk", player),
                 json.dumps(at)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr[-4000:]
    return json.loads(out.stdout)


def once(factory, name, run):
    """What run(directory) returns.  With xdist the first process runs it for
    all; it is not run again where it fails."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    done = base / (name + ".json")

    with open(base / (name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            try:
                out = {"ok": run(str(factory.mktemp(name)))}
            except AssertionError as e:
                out = {"error": str(e)}
            done.write_text(json.dumps(out))

    out = json.loads(done.read_text())
    assert "ok" in out, out["error"]
    return out["ok"]


# In the player.

def arguments():
    at = json.loads(sys.argv[1])
    if at["namespace"]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            fcntl.ioctl(s, SIOCSIFFLAGS,
                        struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING))
    return at


def environment(home, **more):
    return dict(PATH=os.environ["PATH"], HOME=home, TMPDIR=home, TERM="dumb",
                NO_PROXY="127.0.0.1", HTTP_PROXY="http://127.0.0.1:1",
                HTTPS_PROXY="http://127.0.0.1:1", **more)


def run(command, env, work, during=lambda p: None):
    """In a new session, so that its child processes end with it."""
    p = subprocess.Popen(command, cwd=work, env=env, text=True,
                         stdin=subprocess.DEVNULL, start_new_session=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        during(p)
        out, err = p.communicate(timeout=LIMIT)
        return {"status": p.returncode, "out": out, "err": err}
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        out, err = p.communicate()
        return {"status": None, "out": out, "err": err}
