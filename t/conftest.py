"""Fixtures: gw, one gateway for the whole session; gateway, to make others."""

import itertools

import pytest

pytest.register_assert_rewrite("client", "gateway", "upstream")

import gateway as gatewaylib
import upstream

COUNT = itertools.count()


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
    """The default gateway, its upstreams without scripts and records."""
    for u in upstreams:
        u.reset()
    seen = len(session_gateway.faults())
    yield session_gateway
    for u in upstreams:
        u.reset()
    assert session_gateway.process.poll() is None, "nginx has died"
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
    yield lambda **kw: make(tmp_path_factory, made, upstreams, **kw)
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
