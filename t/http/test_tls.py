"""TLS to the upstream: the certificate and its name are verified."""

import ssl
import subprocess

import pytest

import gateway as lib
import upstream
from client import assert_flat


def openssl(*args):
    subprocess.run(["openssl"] + list(args), check=True, capture_output=True)


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    """A CA, a certificate for the upstream's name, one for another."""
    d = tmp_path_factory.mktemp("ca")
    p = lambda name: str(d / name)
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=test ca", "-keyout", p("ca.key"),
            "-out", p("ca.pem"))
    for name, host in (("good", "api.vendor-b.test"), ("bad", "evil.test")):
        (d / "ext").write_text("subjectAltName=DNS:%s\n" % host)
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj",
                "/CN=" + host, "-keyout", p(name + ".key"),
                "-out", p(name + ".csr"))
        openssl("x509", "-req", "-in", p(name + ".csr"), "-CA", p("ca.pem"),
                "-CAkey", p("ca.key"), "-CAcreateserial", "-days", "2",
                "-extfile", p("ext"), "-out", p(name + ".pem"))
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=api.vendor-b.test", "-addext",
            "subjectAltName=DNS:api.vendor-b.test", "-keyout",
            p("self.key"), "-out", p("self.pem"))
    return d


@pytest.fixture
def tls(ca, gateway):
    """tls(name) makes a gateway to an upstream with that certificate.  nginx
    never frees the sessions that it caches."""
    made = []

    def make(name, **kw):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(str(ca / (name + ".pem")),
                                str(ca / (name + ".key")))
        names = []
        context.sni_callback = lambda s, n, c: names.append(n)
        u = upstream.Upstream(tls=context)
        u.names = names
        made.append(u)
        return gateway(b=u, groups=lib.group_a()
                       + lib.group_b(scheme="https"),
                       location="proxy_ssl_trusted_certificate %s; "
                       "proxy_ssl_session_reuse off;"
                       % (ca / "ca.pem"), **kw)

    yield make
    for u in made:
        u.stop()


def test_verified(tls):
    """The right name from the right CA; SNI and Host have it."""
    g = tls("good")
    for _ in range(3):
        r = g.chat()
        assert r.status == 200, r
    assert g.b.last().all("host") == ["api.vendor-b.test"]
    assert set(g.b.names) == {"api.vendor-b.test"}
    r = g.chat(lib.chat(stream=True))
    assert r.status == 200 and r.complete


@pytest.mark.parametrize("name", ["bad", "self"])
def test_not_verified(tls, name):
    """Another name, or an untrusted certificate: not one byte is sent."""
    g = tls(name)
    r = g.chat()
    assert_flat(r, (502, 503))
    assert not g.b.requests
    assert "vendor-b.test" not in r.body.decode()
    assert "certificate" in g.read("error.log")


def test_plain_text_server(gateway, upstreams):
    """The upstream has no TLS: no credential is sent in plain text."""
    g = gateway(groups=lib.group_a() + lib.group_b(scheme="https"),
                location="proxy_connect_timeout 1s;")
    g.expect(r"SSL_do_handshake")
    r = g.chat()
    assert_flat(r, (502, 503, 504))
    assert not g.b.requests
