"""Company sign-on: modelgw_admin actor=… role=… with what another module has
found out, here auth_request, as with oauth2-proxy and OpenID Connect.

The stub is a server of the same nginx: it knows the user by the cookie of its
own, as oauth2-proxy does, and says so in response headers."""

import subprocess

import pytest

import client
from gateway import NGINX
from operators import (API, OWN, PAGE, PARTS, Console, Operator, address,
                       as_text, bearer, cookie, dumps, forbidden, nobody, trio,
                       unsigned)

pytestmark = pytest.mark.skipif(
    "auth_request" not in subprocess.run(
        [NGINX, "-V"], capture_output=True, text=True).stderr,
    reason="nginx has no auth_request")

# user of the proxy's cookie: email, groups

HTTP = """
    map $cookie__oauth2_proxy $who_email {
        root    root@corp.test;
        bill    bill@corp.test;
        vera    vera@corp.test;
        new     new@corp.test;
        king    king@corp.test;
        nameless "";
        default "";
    }
    map $cookie__oauth2_proxy $who_groups {
        root    staff,gateway-admins;
        bill    gateway-billing;
        vera    staff,gateway-viewers,all;
        new     staff;
        king    kings;
        nameless gateway-admins;
        default "";
    }
    map $groups $role {
        ~(^|,)gateway-admins(,|$)   admin;
        ~(^|,)gateway-billing(,|$)  billing;
        ~(^|,)gateway-viewers(,|$)  viewer;
        kings                       king;
        default                     "";
    }
    map $cookie__oauth2_proxy $known {
        ""      0;
        default 1;
    }
    server {
        listen unix:$dir/who.sock;
        location / {
            if ($known = 0) { return 401; }
            add_header X-Auth-Request-Email $who_email;
            add_header X-Auth-Request-Groups $who_groups;
            return 204;
        }
    }"""

LOCATIONS = """
    location = /who {
        internal;
        proxy_pass              http://unix:$dir/who.sock;
        proxy_pass_request_body off;
        proxy_set_header        Content-Length "";
    }
    location %s/ {
        auth_request      /who;
        auth_request_set  $user   $upstream_http_x_auth_request_email;
        auth_request_set  $groups $upstream_http_x_auth_request_groups;
        modelgw_admin     actor=$user role=$role;
    }""" % API

STRANGERS = [[], [("X-Auth-Request-Email", "root@corp.test"),
                  ("X-Auth-Request-Groups", "gateway-admins"),
                  ("X-Auth-Request-User", "root")]]


@pytest.fixture(scope="module")
def module_signon(module_gateway):
    """With operators, too: they are for other locations."""
    return Console(module_gateway(
        **dict(PARTS, http=PARTS["http"] + HTTP,
               locations=LOCATIONS + "location /own/ { modelgw_admin; }"),
        operators=trio()))


@pytest.fixture
def signon(module_signon):
    yield module_signon
    assert module_signon.gw.process.poll() is None, "nginx has exited"


def proxy(user):
    return cookie(user, "_oauth2_proxy")


ROLES = [("root", "admin"), ("bill", "billing"), ("vera", "viewer")]


@pytest.mark.parametrize("user, role", ROLES)
def test_roles(signon, http, user, role):
    head = [proxy(user)]
    said = signon.ok("/session", head, version=http)
    assert said == {"name": user + "@corp.test", "role": role,
                    "expires": None, "account": None, "key": None,
                    "group": None, "topup_url": None, "gateway_url": None,
                    "managed_keys": True}
    assert signon.ok("/accounts", head, version=http)
    for path, body, who in (
            ("/accounts/alice/topups", signon.amount(), ("admin", "billing")),
            ("/accounts", {"id": "of-%s-%s" % (user, http),
                           "founding": False}, ("admin",)),
            ("/keys", {"id": "k-%s-%s" % (user, http), "group": "a"},
             ("admin",))):
        r = signon.send("POST", path, OWN + head, body, version=http)
        if role in who:
            assert r.status == 201, r
            if "key" in r.json():
                signon.gw.hidden.append(r.json()["key"])
        else:
            forbidden(r)
    r = signon.get("/operators", head, version=http)
    assert r.status == (200 if role == "admin" else 403)


def test_the_actor(signon):
    source = address()
    r = signon.topup(OWN + [proxy("bill")], source=source)
    assert r.status == 201, r
    action = signon.read("/actions?limit=1")["actions"][0]
    assert (action["actor"], action["address"]) == ("bill@corp.test", source)


@pytest.mark.parametrize("more", STRANGERS, ids=["alone", "with headers"])
def test_nobody(signon, http, more):
    """Unknown to the proxy: nginx's 401 is flat as ours."""
    before = signon.state()
    for head in ([], OWN, [bearer(signon.operator("alice").secret)],
                 [bearer(signon.gw.alice.secret)], [proxy("")]):
        r = signon.get("/accounts", head + more, version=http)
        assert r.status == 401, r
        r = signon.topup(head + more, version=http)
        assert r.status in (401, 403), r
        assert b"<html>" not in r.body
    assert signon.state() == before


@pytest.mark.parametrize("more", STRANGERS, ids=["alone", "with headers"])
def test_without_a_role(signon, http, more):
    """A header of the client has no effect; nor has one that the proxy's answer
    does not have."""
    before = signon.state()
    for user in ("new", "nameless", "unknown"):
        head = [proxy(user)] + more
        unsigned(signon.get("/accounts", head, version=http))
        unsigned(signon.get("/session", head, version=http))
        unsigned(signon.topup(OWN + head, version=http))
    assert signon.state() == before


@pytest.mark.parametrize("more", STRANGERS, ids=["alone", "with headers"])
def test_unknown_role(signon, http, more):
    before = signon.state()
    head = [proxy("king")] + more
    forbidden(signon.get("/accounts", head, version=http))
    forbidden(signon.get("/session", head, version=http))
    forbidden(signon.topup(OWN + head, version=http))
    assert signon.state() == before
    signon.gw.wait_log('role "king"')


@pytest.mark.parametrize("name", ["X-Auth-Request-Email",
                                  "X-Auth-Request-Groups", "X-Modelgw-Role",
                                  "X-Modelgw-Actor"])
def test_headers_of_a_client(signon, name):
    """Nobody becomes more by sending what the proxy answers."""
    source = address()
    for value in ("root@corp.test", "gateway-admins", "admin"):
        head = [proxy("vera"), (name, value)]
        assert signon.ok("/session", head)["role"] == "viewer"
        assert signon.ok("/session", head)["name"] == "vera@corp.test"
        forbidden(signon.topup(OWN + head))
        r = signon.topup(OWN + [proxy("bill"), (name, value)], source=source)
        assert r.status == 201, r
        action = signon.read("/actions?limit=1")["actions"][0]
        assert action["actor"] == "bill@corp.test"


def test_other_credentials_have_no_effect(signon):
    """Neither a token nor a session makes more of it, or less."""
    alice = signon.operator("alice")
    for more in ([bearer(alice.secret)],
                 [bearer(Operator("x", "admin").secret)],
                 [bearer(signon.gw.alice.secret)]):
        said = signon.ok("/session", [proxy("vera")] + more)
        assert (said["name"], said["role"]) == ("vera@corp.test", "viewer")
        forbidden(signon.topup(OWN + [proxy("vera")] + more))


def test_no_sign_in_here(signon):
    """A session of ours is not made, nor ended."""
    for head in ([proxy("root")], [proxy("vera")]):
        r = signon.send("POST", "/session", OWN + head,
                        {"token": signon.operator("alice").secret})
        assert 400 <= r.status < 500 and not r.all("set-cookie"), r
        r = signon.send("DELETE", "/session", OWN + head)
        assert r.status < 500, r
        assert signon.ok("/session", head)


FOREIGN = [
    [("Sec-Fetch-Site", "cross-site"), PAGE],
    [("Sec-Fetch-Site", "same-site"), PAGE],
    [("Origin", "https://evil.test"), PAGE], [("Origin", "null"), PAGE],
    [("Sec-Fetch-Site", "same-origin")],
    [("Origin", "http://gateway.test")],
    [],
    [("Sec-Fetch-Site", "cross-site"), ("Content-Type", "text/plain")]]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_csrf(signon, headers):
    """The proxy's cookie is sent by a browser, whatever page it is."""
    before = signon.state()
    forbidden(signon.topup([proxy("root")] + headers))
    forbidden(signon.send("POST", "/keys", [proxy("root")] + headers,
                          {"group": "a"}))
    assert signon.state() == before


def test_site_that_reads(signon):
    for site in ("cross-site", "same-site"):
        forbidden(signon.get("/accounts", [proxy("root"),
                                           ("Sec-Fetch-Site", site)]))
    assert signon.ok("/accounts", [proxy("root"), ("Sec-Fetch-Site", "none")])


@pytest.mark.parametrize("host", ["evil.test", "gateway.test.evil.test"])
def test_rebinding(signon, host):
    forbidden(signon.get("/accounts", [proxy("root")], host=host), "Host")


def test_tokens_elsewhere(signon):
    """The other location of this server is for operators: each has its own
    way, and neither takes the other's."""
    port = signon.gw.port
    alice = [bearer(signon.operator("alice").secret)]
    r = client.h1(port, "GET", "/own/session", alice, source=address())
    assert r.json()["name"] == "alice", r
    nobody(client.h1(port, "GET", "/own/session", [proxy("root")],
                     source=address()))
    unsigned(client.h1(port, "GET", "/own/accounts", [proxy("root")],
                       source=address()))
    r = client.h1(port, "POST", "/own/session", OWN,
                  {"token": signon.operator("alice").secret},
                  source=address())
    value = r.get("set-cookie").partition("=")[2].partition(";")[0]
    signon.gw.hidden.append(value)
    assert signon.get("/accounts", [cookie(value)]).status == 401
    assert signon.topup(OWN + [cookie(value)]).status in (401, 403)


def test_unix_socket(signon):
    """As always: root is the admin."""
    r = signon.root("GET", "/session")
    assert r.json()["role"] == "admin" and "uid:" in r.json()["name"]


def test_long_and_odd_names(gateway):
    """What the proxy says is cut to what the audit log takes, and is never
    more than a text."""
    odd = 'x"}<script>%s' % ("é" * 60)
    http = """
        map $http_x_test_user $user { default $http_x_test_user; }"""
    g = Console(gateway(**dict(
        PARTS, http=PARTS["http"] + http,
        locations="location %s/ { modelgw_admin actor=$user role=billing; }"
        % API)))
    for name in (odd, "a" * 300, "\\", "a\tb"):
        head = [("X-Test-User", name)]
        r = g.get("/session", head)
        assert r.status == 200 and r.json()["role"] == "billing", r
        assert "<script>" not in as_text(r) or \
            r.get("content-type") == "application/json"
        r = g.topup(head)
        assert r.status == 201, r
        action = g.read("/actions?limit=1")["actions"][0]
        assert name.startswith(action["actor"].rstrip("\ufffd"))
        assert len(action["actor"].encode()) <= 66
    unsigned(g.get("/session"))
    unsigned(g.topup())


def test_names_that_are_not_text(gateway):
    """Bytes of any kind: the response and the audit log are JSON."""
    http = """
        map $http_x_test_user $user { default $http_x_test_user; }"""
    g = Console(gateway(**dict(
        PARTS, http=PARTS["http"] + http,
        locations="location %s/ { modelgw_admin actor=$user role=billing; }"
        % API)))
    for raw in (b"\xff\xfe", b"a\xc3", b"\xed\xa0\x80", b"\x1b[31m",
                b"a" * 63 + b"\xc3\xa9"):
        for method, path, body in (
                ("GET", "/session", b""), ("POST", "/accounts", b"{}"),
                ("POST", "/accounts/alice/topups",
                 dumps(g.amount()))):
            with client.Connection(g.gw.port, source=address()) as c:
                text = client.build(method, API + path,
                                    [("X-Test-User", "RAW")], body)
                c.send(text.replace(b"RAW", raw))
                r = c.response(method=method)
            assert r.status in (200, 201, 400, 403), r
            assert r.json()
        assert g.read("/actions?limit=10")["actions"]


@pytest.mark.parametrize("nested", [
    "if ($http_x_test_if) { set $x 1; }",
    "limit_except GET { deny 192.0.2.1; }",
    "limit_except GET { deny 192.0.2.1; } if ($http_x_test_if) { set $x 1; }"])
def test_nested_locations(gateway, nested):
    """What the location asks for, "if" and limit_except in it do, too."""
    http = """
        map $http_x_test_user $role
            { vera viewer; bill billing; default ""; }"""
    g = Console(gateway(**dict(
        PARTS, http=PARTS["http"] + http, locations="""
        location %s/ { modelgw_admin actor=$http_x_test_user role=$role; %s }
        location /own/ { modelgw_admin; %s }""" % (API, nested, nested)),
        operators=trio()))
    before = g.state()
    for more in ([], [("X-Test-If", "1")]):
        unsigned(g.get("/accounts", more))
        unsigned(g.topup(more))
        head = [("X-Test-User", "vera")] + more
        assert g.ok("/session", head)["role"] == "viewer"
        forbidden(g.topup(head))
        alice = [bearer(g.operator("alice").secret)] + more
        unsigned(g.get("/accounts", alice))
        unsigned(g.topup(alice))
        for method in ("GET", "POST"):
            r = client.h1(g.gw.port, method, "/own/accounts", more,
                          {"id": "x"} if method == "POST" else None,
                          source=address())
            unsigned(r)
    assert g.state() == before
    for more in ([], [("X-Test-If", "1")]):
        assert g.topup([("X-Test-User", "bill")] + more).status == 201
        r = client.h1(g.gw.port, "GET", "/own/session",
                      [bearer(g.operator("alice").secret)] + more,
                      source=address())
        assert r.status == 200, r
