#!/usr/bin/env python3
"""Runs a command on a busy machine, to find races in tests.

usage: t/tools/busy.py [--loops N] [--sync DIR] [--] command ...

Along with the command it runs N busy loops (by default one per core) and one
that writes to the file system of DIR ("build" if it exists, else ".") and
syncs it.  They end with the command, or by themselves if this program is
killed, and leave no file.  The exit status is the command's, or 128 + n if it
was killed by signal n.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile

PIECE = 64 << 10        # bytes between two syncs
SIZE = 64               # pieces that the file has at most


def spin():
    for _ in range(100000):
        pass


def sync(file):
    file.write(b"\0" * PIECE)
    os.fsync(file.fileno())
    if file.tell() >= SIZE * PIECE:
        file.seek(0)
        file.truncate()


def start(work, *args):
    """Starts a process that works as long as this one runs; returns its
    pid."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        while os.getppid() == parent:
            work(*args)
    finally:
        os._exit(0)


def stop(pids):
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    for pid in pids:
        os.waitpid(pid, 0)


def run(command):
    """Its status.  A signal to end this program is passed on to the
    command; Ctrl-C reaches both from the terminal."""
    p = None

    def forward(number, frame):
        if p is None:
            sys.exit(128 + number)
        p.send_signal(number)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, forward)
    p = subprocess.Popen(command, preexec_fn=lambda: signal.signal(
        signal.SIGINT, signal.SIG_DFL))
    status = p.wait()
    return status if status >= 0 else 128 - status


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1][7:])
    p.add_argument("--loops", type=int, default=os.cpu_count())
    p.add_argument("--sync", default="build" if os.path.isdir("build")
                   else ".")
    p.add_argument("command", nargs=argparse.REMAINDER)
    args = p.parse_args()
    command = args.command[args.command[:1] == ["--"]:]
    if not command:
        p.error("no command")

    with tempfile.TemporaryFile(dir=args.sync) as file:
        pids = [start(spin) for _ in range(args.loops)]
        pids.append(start(sync, file))
        try:
            return run(command)
        except FileNotFoundError as e:
            print("busy: %s" % e, file=sys.stderr)
            return 127
        finally:
            stop(pids)


if __name__ == "__main__":
    sys.exit(main())
