"""H9: a call in TLS early data may be a replay, and each would be billed."""

import json
import re
import subprocess

import pytest

import gateway as lib
from client import assert_flat


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


def test_H9_tls_early_data(gateway, tmp_path):
    """A recorded POST in early data gets 425, and the upstream never sees it."""
    key, cert = str(tmp_path / "k.pem"), str(tmp_path / "c.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",
                    "-subj", "/CN=gateway.test", "-days", "2", "-keyout", key,
                    "-out", cert], check=True, capture_output=True)
    port = lib.free_port()
    g = gateway(server="""
        listen 127.0.0.1:%d ssl;
        ssl_certificate %s;
        ssl_certificate_key %s;
        ssl_protocols TLSv1.3;
        ssl_early_data on;""" % (port, cert, key))
    body = json.dumps(lib.chat()).encode()
    request = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway.test\r\n"
               b"Authorization: Bearer %s\r\nContent-Length: %d\r\n"
               b"Connection: close\r\n\r\n%s"
               % (g.bob.secret.encode(), len(body), body))
    session, early = str(tmp_path / "session"), tmp_path / "early"
    early.write_bytes(request)

    answer = s_client(port, "-sess_out", session, text=request)
    assert b"HTTP/1.1 200 " in answer
    assert len(g.b.requests) == 1

    # when nginx reads it the handshake may have completed, so that the request
    # cannot be a replay: then it is served

    statuses = []
    for _ in range(10):
        g.b.reset()
        answer = s_client(port, "-sess_in", session, "-early_data", str(early))
        assert b"Early data was accepted" in answer
        statuses += re.findall(rb"HTTP/1.1 (\d+) ", answer)
        assert len(g.b.requests) == (statuses[-1] != b"425")
        if statuses[-1] == b"425":
            break

    assert statuses[-1] == b"425" and set(statuses) <= {b"200", b"425"}
