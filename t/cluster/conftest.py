"""cluster, to make clusters, and server, a PostgreSQL."""

import pytest

import cluster as clusterlib
import postgres

@pytest.fixture
def server():
    with postgres.Server() as s:
        yield s


@pytest.fixture
def cluster(tmp_path_factory, upstreams):
    """cluster(…) makes and starts one with Cluster's arguments; at the end it is
    stopped, and its books are right, but for check=False."""
    for u in upstreams:
        u.reset()
    made = []

    def make(check=True, start=True, **kw):
        c = clusterlib.Cluster(tmp_path_factory.mktemp("cluster"),
                               *upstreams, **kw)
        made.append((c, check))
        return c.start() if start else c

    yield make
    faults = []
    for c, check in made:
        try:
            if check:
                c.heal()
                c.settle()
                faults += c.differences()
        finally:
            faults += c.remove()
    assert not faults, "\n".join(faults[:20])
