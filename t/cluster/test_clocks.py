"""Clocks that are wrong; with more of it: torture_scale.py.

When the database's clock was set back by an hour, its times are of the future.
Those of nodes that live are put right by what they do next; those of nodes that
do not are the clerk's."""

import threading

from cluster import call
from gateway import Key
from test_shared_credit import BODY, BOB, HOLD, refused
from upstream import both, raw

HOUR = 3600 * 1000
CALLS = Key("calls", "b", "account=rich concurrency=8")
RICH = Key("rich", "b")


def set_back(c):
    """All times that are compared with the database's clock."""
    for table, column in (("nodes", "seen"), ("slots", "seen"),
                          ("recalls", "until"), ("cluster", "clerk_until")):
        c.server.run("UPDATE modelgw.%s SET %s = %s + %d"
                     % (table, column, column, HOUR))


def test_a_node_that_is_dead_when_the_clock_is_set_back(cluster):
    """Nobody waits for it, nor for what it has been lent."""
    c = cluster(founding="0", keys=[RICH, CALLS], n=2, check=False,
                location="proxy_read_timeout 600s;")
    c.expect()
    c.put("rich", 10 ** 12)
    c.put(BOB, HOLD)
    assert call(c, 1, c.nodes[0].bob, BODY).status == 200
    c.wait(lambda: c.lent().get((c.nodes[1].num(), BOB), 0) > 0, "not lent")
    gate = threading.Event()
    c.b.script(raw(gate, both))
    threads = [threading.Thread(target=call, args=(c, 1, CALLS, BODY))
               for _ in range(8)]
    for t in threads:
        t.start()
    c.wait(lambda: len(c.b.requests) == 9, "they do not come")
    c.b.script(both)
    c.server.run("UPDATE modelgw.cluster SET clerk = %s",
                 str(c.nodes[1].num()))
    c.nodes[1].power_cut()
    gate.set()
    for t in threads:
        t.join()
    set_back(c)
    c.wait(lambda: c.one("SELECT clerk FROM modelgw.cluster")
           == str(c.nodes[0].num()), "there is no clerk", 30)
    c.wait(lambda: call(c, 0, CALLS, BODY).status == 200,
           "the slots are taken", 30)

    def answered():
        a = call(c, 0, c.nodes[0].bob, BODY)
        return a.status == 402 and a

    c.wait(answered, "it is waited for", 30)
    assert "does not answer" in refused(answered().response)
