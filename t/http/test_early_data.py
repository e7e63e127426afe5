"""H9: a call in TLS early data may be a replay, and each would be billed."""

import json
import re
import subprocess

import pytest

import gateway as lib
from client import assert_flat
from operators import API, PARTS, Console, bearer, refused, trio


@pytest.mark.parametrize("header", ["Early-Data", "early-data"])
def test_H9_behind_a_proxy(gw, header):
    """The proxy in front got it as early data (RFC 8470, 5.1)."""
    gw.b.reset()
    r = gw.chat(headers=[(header, "1")])
    assert_flat(r, 425, "INVALID_REQUEST")
    assert gw.untouched()
    assert gw.get("/v1/models", key=gw.bob, headers=[(header, "1")]).status \
        == 200


def s_client(port, *args, text=b""):
    return subprocess.run(
        ["openssl", "s_client", "-connect", "127.0.0.1:%d" % port, "-tls1_3",
         "-servername", "gateway.test", "-ign_eof"] + list(args),
        input=text, capture_output=True, timeout=60).stdout


@pytest.fixture
def tls(gateway, tmp_path):
    """tls(…) is a gateway that takes early data, and the port."""
    def run(**parts):
        key, cert = str(tmp_path / "k.pem"), str(tmp_path / "c.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048",
                        "-nodes", "-subj", "/CN=gateway.test", "-days", "2",
                        "-keyout", key, "-out", cert], check=True,
                       capture_output=True)
        port = lib.free_port()
        return gateway(server="""
            listen 127.0.0.1:%d ssl;
            ssl_certificate %s;
            ssl_certificate_key %s;
            ssl_protocols TLSv1.3;
            ssl_early_data on;""" % (port, cert, key), **parts), port
    return run


def replay(port, tmp_path, request, again, done):
    """The request is served, and in early data it is done or answered 425,
    never both; again() before each.

    When nginx reads it the handshake may have completed, so that the request
    cannot be a replay: then it is served.
    """
    session, early = str(tmp_path / "session"), tmp_path / "early"
    early.write_bytes(request)
    again()
    answer = s_client(port, "-sess_out", session, text=request)
    assert re.search(rb"HTTP/1.1 20[01] ", answer)
    assert done()
    statuses = []
    for _ in range(10):
        again()
        answer = s_client(port, "-sess_in", session, "-early_data", str(early))
        assert b"Early data was accepted" in answer
        statuses += re.findall(rb"HTTP/1.1 (\d+) ", answer)
        assert done() == (statuses[-1] != b"425")
        if statuses[-1] == b"425":
            break
    assert statuses[-1] == b"425"
    assert set(statuses) <= {b"200", b"201", b"425"}


def post(path, secret, body):
    return (b"POST %s HTTP/1.1\r\nHost: gateway.test\r\n"
            b"Authorization: Bearer %s\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n%s"
            % (path.encode(), secret.encode(), len(body), body))


def test_H9_tls_early_data(tls, tmp_path):
    """A recorded POST in early data gets 425, and the upstream never sees it."""
    g, port = tls()
    body = json.dumps(lib.chat()).encode()
    replay(port, tmp_path, post("/v1/chat/completions", g.bob.secret, body),
           g.b.reset, lambda: len(g.b.requests) == 1)


@pytest.mark.parametrize("method, path, body", [
    ("POST", "/session", {"token": "op-eu-x"}),
    ("DELETE", "/session", None),
    ("POST", "/keys", {"group": "b", "account": "alice"}),
    ("PATCH", "/accounts/alice", {"state": "closed"}),
    ("DELETE", "/keys/none", None)])
def test_H9_changes_behind_a_proxy(gateway, method, path, body):
    """What is done by an operator is not done again; what he reads is."""
    c = Console(gateway(**PARTS, operators=trio()))
    head = [bearer(c.operator("alice").secret), ("Early-Data", "1")]
    before = c.state()
    refused(c.send(method, path, head, body), 425, "INVALID_REQUEST")
    assert c.state() == before
    assert c.ok("/accounts", head) and c.ok("/session", head)


def test_H9_changes_in_early_data(tls, tmp_path):
    """A recorded POST makes no second key."""
    g, port = tls(**PARTS, operators=trio())
    c = Console(g)
    seen = []
    replay(port, tmp_path,
           post(API + "/keys", c.operator("alice").secret,
                b'{"group":"b","account":"alice"}'),
           lambda: seen.append(len(c.read("/keys")["keys"])),
           lambda: len(c.read("/keys")["keys"]) == seen[-1] + 1)
