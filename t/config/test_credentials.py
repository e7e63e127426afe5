"""Credentials are not disclosed: the client's not to the upstream, the group's
only to the upstream, whatever an operator logs and an upstream echoes."""

import pytest

from client import assert_flat
from upstream import raw, reply_json


@pytest.mark.parametrize("name", [
    "x_api_key", "X_Api_Key", "api_key", "proxy_authorization",
    "x_forwarded_for", "x_real_ip", "accept_encoding", "transfer_encoding_x",
    "anything-at-all", "user-agent", "x-claude-any"])
def test_K6_service_key_in_any_header(gw, name):
    """CGI and similar upstreams read x_api_key as x-api-key; and a service key
    is never forwarded."""
    gw.b.reset()
    secret = gw.bob.secret
    r = gw.chat(headers=[(name, secret), ("x-claude-fine_one", "1")])
    assert r.status == 200, r
    request = gw.b.last()
    assert secret not in request.head.decode()
    assert request.get("x-claude-fine_one") == "1"


@pytest.mark.parametrize("name", ["x_forwarded_for", "Proxy_Thing", "x_api_key",
                                  "X_Accel_Redirect", "via", "forwarded"])
def test_H4_underscores_are_dashes(gw, name):
    gw.b.reset()
    assert gw.chat(headers=[(name, "spoofed")]).status == 200
    assert "spoofed" not in gw.b.last().head.decode()


def test_K6_not_in_variables(gateway):
    """After the credential was sent, no variable of nginx has it."""
    g = gateway(
        http='log_format creds "$http_authorization|$http_x_api_key|$status";',
        location='add_header X-Shown "$http_authorization$http_x_api_key" '
                 'always; access_log $dir/creds.log creds; '
                 'proxy_read_timeout 1s;')
    shown = b""
    for script in (None, reply_json({"error": {"message": "no"}}, 500),
                   raw("close"), raw("stall"), raw(b"rubbish\r\n\r\n")):
        for up, call in ((g.a, g.messages), (g.b, g.chat)):
            up.reset()
            if script:
                up.script(script)
            r = call()
            shown += str(r.headers).encode() + r.body
    g.stop()
    shown += g.read("creds.log").encode()
    assert shown.count(b"|") == 20
    assert g.secret_a.encode() not in shown
    assert g.secret_b.encode() not in shown


def test_K6_reason_phrase(gw):
    """The reason phrase is text of the upstream, too."""
    body = b'{"model":"vendor","choices":[]}'
    gw.b.script(raw(b"HTTP/1.1 200 api.vendor-b.test %s\r\n"
                    b"Content-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%s"
                    % (gw.secret_b.encode(), len(body), body)))
    r = gw.chat()
    assert (r.status, r.reason) == (200, "OK")


def test_H4_long_connection_header(gw):
    """The comparison of names with options is bounded; valid lists are
    short."""
    gw.b.reset()
    r = gw.chat(headers=[("Connection", "keep-alive, " + "x," * 300)])
    assert_flat(r, 400, "INVALID_REQUEST")
    assert gw.untouched()
