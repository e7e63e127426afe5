"""cluster, to make clusters; database, an empty one; server, a PostgreSQL of the
test's own, for those that stop it, or have a standby."""

import pytest

import cluster as clusterlib
import postgres

@pytest.fixture(scope="session")
def databases():
    """A server that lives as long as the tests: it need not sync to disk, as
    what is killed are processes."""
    with postgres.Server("fsync = off") as s:
        yield s


@pytest.fixture
def database(databases):
    with databases.database() as d:
        yield d


@pytest.fixture
def server():
    with postgres.Server() as s:
        yield s


@pytest.fixture
def cluster(request, tmp_path_factory, upstreams):
    """cluster(…) makes and starts one with Cluster's arguments, with a database
    of its own if servers are none of them; at the end it is stopped, and its
    books are right, but for check=False."""
    for u in upstreams:
        u.reset()
    made, lent = [], []

    def make(check=True, start=True, servers=None, **kw):
        if servers is None:
            lent.append(request.getfixturevalue("databases").database())
            servers = lent[-1:]
        c = clusterlib.Cluster(tmp_path_factory.mktemp("cluster"),
                               *upstreams, servers=servers, **kw)
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
        except (AssertionError, OSError) as e:
            faults.append(str(e))       # the others are to be stopped, too
        finally:
            faults += c.remove()
    for d in lent:
        d.remove()
    assert not faults, "\n".join(faults[:20])
