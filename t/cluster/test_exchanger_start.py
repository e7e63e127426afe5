"""The exchanger's start fails, for want of memory: it is tried again."""

import os
import signal

from cluster import wait_for
from memory_fails import Memory, altered, skip

pytestmark = skip

FIRST = 7           # allocations before are three of the memo, and the writer's

LINE = ("the cluster cannot be reached, calls go on with what is lent: its "
        "thread does not start, for want of memory")


AGAIN = "the cluster is reached again"


def restarted(c, memory, n):
    """A new worker, whose n-th allocation has failed, is a member; returns how
    often each of the two lines is in the log."""
    node = c.nodes[0]
    (pid,) = node.pids()
    process = node.row()["process"]
    os.kill(pid, signal.SIGSTOP)        # it allocates, too
    memory.fail(n)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: memory.count() >= n, "it was not reached")
    memory.fail(0)
    wait_for(lambda: node.row()["process"] != process and node.joined(),
             "it is not tried again")
    lines = node.log_count(LINE)
    wait_for(lambda: node.log_count(AGAIN) == lines, "nothing was said")
    return lines


def test_it_is_tried_again(cluster, tmp_path):
    """Each allocation of a worker's start fails once; where it is one of the
    exchanger, there is one line, then another that it is well."""
    memory = Memory(str(tmp_path / "counts"))
    with altered(memory):
        c = cluster(n=1, workers=1)
    node = c.nodes[0]
    c.expect()
    node.expect("exited on signal 9")
    lines, hits, n = 0, [], FIRST
    while len(hits) < 12 and n < FIRST + 24:
        seen = restarted(c, memory, n)
        assert seen in (lines, lines + 1), node.read("error.log")[-2000:]
        if seen > lines:
            hits.append(n)
            lines = seen
        n += 1
    assert len(hits) == 12, hits
    assert node.chat().status == 200
