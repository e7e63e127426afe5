"""Fixtures: gw, one gateway for the whole session; gateway, to make others."""

import itertools
import os

import pytest

pytest.register_assert_rewrite("client", "gateway", "upstream")

import gateway as gatewaylib
import upstream

COUNT = itertools.count()
LINES = 60          # of each log, shown when a test has failed


# The nginx log of a failed test is added to its report: CI keeps nothing else.

LOGS = ("error.log", "stderr", "access.log")


def sizes():
    paths = [g.path(name) for g in gatewaylib.started for name in LOGS]
    return {path: os.path.getsize(path) for path in paths
            if os.path.exists(path)}


def tail(path, begin):
    with open(path, errors="replace") as f:
        f.seek(begin)
        return "".join(f.readlines()[-LINES:])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    item.logs_before = sizes()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    report = (yield).get_result()
    if not report.failed:
        return
    for path, size in sizes().items():
        begin = item.logs_before.get(path, 0)
        if size > begin:
            report.sections.append((path, tail(path, begin)))


@pytest.fixture(scope="session")
def upstreams():
    a, b = upstream.Upstream(), upstream.Upstream()
    yield a, b
    a.stop()
    b.stop()


def make(factory, made, pair, a=None, b=None, **kw):
    g = gatewaylib.Gateway(factory.mktemp("gw"), a or pair[0], b or pair[1],
                           **kw)
    made.append(g)
    return g.start()


def end(made):
    faults = []
    for g in made:
        try:
            g.stop()
        except AssertionError as e:
            faults.append(str(e))
    assert not faults, "\n".join(faults)


@pytest.fixture(scope="session")
def session_gateway(tmp_path_factory, upstreams):
    made = []
    g = make(tmp_path_factory, made, upstreams)
    yield g
    end(made)


@pytest.fixture
def gw(session_gateway, upstreams):
    """The default gateway, with the scripts and records of its upstreams
    reset."""
    for u in upstreams:
        u.wait_idle()
        u.reset()
    seen = len(session_gateway.faults())
    yield session_gateway
    for u in upstreams:
        u.reset()
    assert session_gateway.process.poll() is None, "nginx has exited"
    faults = session_gateway.faults()[seen:]
    assert not faults, "\n".join(faults)


@pytest.fixture
def gateway(tmp_path_factory, upstreams):
    """gateway(…) starts one with Gateway's arguments; stopped at the end."""
    for u in upstreams:
        u.reset()
    made = []
    yield lambda **kw: make(tmp_path_factory, made, upstreams, **kw)
    end(made)


@pytest.fixture(scope="module")
def module_gateway(tmp_path_factory, upstreams):
    """As gateway, but for all tests of a file; they call u.reset()."""
    made = []

    def start(**kw):
        for u in upstreams:         # of the file before
            u.reset()
        return make(tmp_path_factory, made, upstreams, **kw)

    yield start
    end(made)


@pytest.fixture
def check(tmp_path_factory, upstreams):
    """check(…) runs nginx -t with Gateway's arguments."""
    def run(**kw):
        a, b = upstreams
        g = gatewaylib.Gateway(tmp_path_factory.mktemp("t"), a, b, **kw)
        return g.check()

    return run


@pytest.fixture
def tag():
    """A value for the header X-Test-Tag, to find the line in the log."""
    return "tag-%d-%s" % (next(COUNT), id(object()))


@pytest.fixture(params=["h1", "h2"])
def http(request):
    """Runs the test over HTTP/1.1 and HTTP/2."""
    return request.param
