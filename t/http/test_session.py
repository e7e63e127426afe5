"""Sign-in to the admin interface and its sessions, with hostile requests: each
is refused, and changes nothing.

A request is made from an address of its own, as one that fails too often is
refused for a while."""

import base64
import json
import re
import socket
import ssl
import subprocess
import time
from datetime import datetime, timezone

import pytest

import client
from client import LIMIT, assert_flat, build
from gateway import ASAN, Key, chat, free_port, has_ipv6
from operators import (ADMIN, API, COOKIE, HOURS, LEDGER, OWN, PAGE, PARTS,
                       SAME, SOCKET, Console, Operator, address, as_text,
                       bearer, cookie, forbidden, nobody, refused, set_cookie,
                       trio, unsigned, wait)
from shim import CLOCK, Shim

MEMBERS = ["account", "expires", "gateway_url", "group", "key", "managed_keys",
           "name", "role", "topup_url"]


@pytest.fixture(scope="module")
def module_console(module_gateway):
    return Console(module_gateway(**PARTS, operators=trio() + [
        Operator("olga", "admin", "expires=2020-01-01"),
        Operator("late", "viewer", "expires=2097-01-01")]))


@pytest.fixture
def console(module_console, upstreams):
    for u in upstreams:
        u.reset()
    yield module_console
    assert module_console.gw.process.poll() is None, "nginx has exited"


@pytest.fixture
def start(gateway):
    """start(…) is a Console of its own."""
    def run(operators=None, **kw):
        operators = trio() if operators is None else operators
        return Console(gateway(**dict(PARTS, **kw), operators=operators))
    return run


def at(text):
    """Seconds of a time by RFC 3339."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", text)
    return datetime.fromisoformat(text[:-1]).replace(
        tzinfo=timezone.utc).timestamp()


# signing in


@pytest.mark.parametrize("name, role", [
    ("alice", "admin"), ("bill", "billing"), ("vera", "viewer"),
    ("late", "viewer")])
def test_sign_in(console, http, name, role):
    begin = time.time()
    r = console.sign_in(console.operator(name).secret, version=http)
    assert r.status == 200, r
    assert r.get("content-type") == "application/json"
    assert r.get("cache-control") == "no-store"
    value, attributes = set_cookie(r)
    assert sorted(attributes.split("; ")[1:]) == [
        "HttpOnly", "Max-Age=%d" % (HOURS * 3600), "Path=/",
        "SameSite=Strict", "Secure"]
    assert re.fullmatch(r"[!#-+\--:<-\[\]-~]{43,}", value)     # RFC 6265, 4.1.1
    said = r.json()
    assert sorted(said) == MEMBERS
    assert abs(at(said["expires"]) - begin - HOURS * 3600) < LIMIT
    assert said == dict(dict.fromkeys(MEMBERS), name=name, role=role,
                        expires=said["expires"], managed_keys=True)
    assert console.works(value, version=http) == said


def test_sign_in_of_holders(console, http):
    """Keys of the configuration and of the ledger."""
    new = console.new_key("sam-" + http, account="pool", models=["fam-b-one"])
    gw = console.gw
    for key, account, group in ((gw.alice, "alice", "a"), (gw.bob, "bob-1",
                                "b"), (new, "pool", "b")):
        r = console.sign_in(key.secret, version=http)
        assert r.status == 200, r
        said = r.json()
        assert sorted(said) == MEMBERS
        assert said == dict(dict.fromkeys(MEMBERS), name=key.id, key=key.id,
                            role="holder", account=account, group=group,
                            expires=said["expires"], managed_keys=True)
        value, attributes = set_cookie(r)
        assert "HttpOnly" in attributes and "SameSite=Strict" in attributes
        assert console.works(value, version=http) == said
        for text in (value, as_text(r)):
            assert key.secret not in text and key.secret[6:] not in text


def test_a_cookie_has_no_secret(console):
    """However it is read."""
    for who in (console.operator("alice"), console.gw.alice):
        value = console.session(who)
        for part in [value] + re.split(r"[.:~|*!-]", value):
            texts = [part.encode()]
            for decode in (base64.urlsafe_b64decode, bytes.fromhex):
                try:
                    texts.append(decode(part if decode == bytes.fromhex
                                        else part + "=" * (-len(part) % 4)))
                except ValueError:
                    pass
            for text in texts:
                for secret in (who.secret, who.secret[6:]):
                    assert secret.encode() not in text
                assert bytes.fromhex(who.secret[6:]) not in text


def test_many_sessions(console):
    """Of one token and of several, at the same time."""
    values = {}
    for _ in range(4):
        for o in console.gw.operators[:3]:
            values[console.session(o)] = o.name, o.role
    assert len(values) > 3
    for value, who in values.items():
        console.works_for_all(value, *who)


def test_bearer(console, http):
    """Scripts need neither a session nor the headers of a page."""
    for name, role in (("alice", "admin"), ("bill", "billing"),
                       ("vera", "viewer")):
        head = [bearer(console.operator(name).secret)]
        said = console.ok("/session", head, version=http)
        assert said == dict(dict.fromkeys(MEMBERS), name=name, role=role,
                            managed_keys=True)
        assert console.ok("/accounts", head, version=http)
    r = console.topup([bearer(console.operator("bill").secret)], version=http)
    assert r.status == 201, r
    said = console.ok("/session", [bearer(console.gw.alice.secret)],
                      version=http)
    assert (said["name"], said["role"], said["expires"]) \
        == ("alice-1", "holder", None)


def test_the_actor_is_the_operator(console):
    for name, head in (
            ("bill", [bearer(console.operator("bill").secret)]),
            ("alice", OWN + [cookie(console.session(
                console.operator("alice")))])):
        source = address()
        assert console.topup(head, source=source).status == 201
        action = console.read("/actions?limit=1")["actions"][0]
        assert (action["actor"], action["address"]) == (name, source)


def test_over_a_unix_socket(console):
    """Nothing changes there: no sign-in, and none is asked for."""
    r = console.root("GET", "/session")
    assert r.status == 200, r
    said = r.json()
    assert sorted(said) == MEMBERS
    assert (said["role"], said["expires"]) == ("admin", None)
    assert said["name"].startswith("uid:")
    assert console.root("GET", "/accounts").status == 200
    body = console.amount()
    r = console.root("POST", "/accounts/alice/topups", body)
    assert r.status == 201, r
    action = console.read("/actions?limit=1")["actions"][0]
    assert action["actor"].startswith("uid:")


def test_operators(console):
    admin = [bearer(console.operator("alice").secret)]
    rows = console.ok("/operators", admin)["operators"]
    assert {row["name"]: row for row in rows} == {
        "alice": {"name": "alice", "role": "admin", "expires": None},
        "bill": {"name": "bill", "role": "billing", "expires": None},
        "vera": {"name": "vera", "role": "viewer", "expires": None},
        "olga": {"name": "olga", "role": "admin", "expires": "2020-01-01"},
        "late": {"name": "late", "role": "viewer", "expires": "2097-01-01"}} \
        or [r["expires"][:10] for r in rows if r["expires"]] \
        == ["2020-01-01", "2097-01-01"]
    text = json.dumps(rows)
    for operator in console.gw.operators:
        assert operator.secret not in text
        assert operator.digest()[7:] not in text


def test_urls(start):
    """What the page shows and links to."""
    g = start(locations="""
        location %s/ { modelgw_admin;
            modelgw_topup_url "https://pay.test/?account=%%s&x=1";
            modelgw_gateway_url https://gateway.example; }""" % API)
    said = g.works(g.session(g.operator("vera")))
    assert said["topup_url"] == "https://pay.test/?account=%s&x=1"
    assert said["gateway_url"] == "https://gateway.example"


def test_without_managed_keys(start):
    g = start(http=LEDGER.replace(" modelgw_managed_keys 1000;", "") + SOCKET)
    assert g.works(g.session(g.operator("vera")))["managed_keys"] is False


def test_without_a_ledger(start):
    """Operators can sign in to what there is."""
    g = start(http=SOCKET)
    value = g.session(g.operator("alice"))
    g.works_for_all(value, "alice", "admin")
    assert g.ok("/keys", [cookie(value)])["keys"]
    assert g.send("DELETE", "/session", OWN + [cookie(value)]).status == 204
    g.over(value)


# tokens that are not admitted


def flipped(text, i):
    return text[:i] + ("0" if text[i] != "0" else "1") + text[i + 1:]


TOKENS = {
    "unknown": lambda g: Operator("x", "admin").secret,
    "unknown key": lambda g: Key("x", "a").secret,
    "expired": lambda g: g.operator("olga").secret,
    "expired key": lambda g: g.gw.dave.secret,
    "first digit": lambda g: flipped(g.operator("alice").secret, 6),
    "last digit": lambda g: flipped(g.operator("alice").secret, 53),
    "short": lambda g: g.operator("alice").secret[:-1],
    "long": lambda g: g.operator("alice").secret + "0",
    "upper case": lambda g: g.operator("alice").secret.upper(),
    "no prefix": lambda g: g.operator("alice").secret[6:],
    "prefix of a key": lambda g: "sk-eu-" + g.operator("alice").secret[6:],
    "key with the prefix": lambda g: "op-eu-" + g.gw.alice.secret[6:],
    "prefix alone": lambda g: "op-eu-",
    "hash": lambda g: g.operator("alice").digest(),
    "hash as token": lambda g: "op-eu-" + g.operator("alice").digest()[7:],
    "name": lambda g: "alice",
    "blank before": lambda g: " " + g.operator("alice").secret,
    "blank after": lambda g: g.operator("alice").secret + " ",
    "two": lambda g: " ".join([g.operator("alice").secret] * 2),
    "another vendor's": lambda g: "sk-ant-api03-" + "0" * 40,
    "quoted": lambda g: '"%s"' % g.operator("alice").secret,
    "with a scheme": lambda g: "Bearer " + g.operator("alice").secret,
    "question": lambda g: "' OR '1'='1",
    "slashes": lambda g: "../../operators.conf",
}

# what JSON can have, and a header cannot

TEXTS = {
    "empty": lambda g: "",
    "NUL after": lambda g: g.operator("alice").secret + "\0",
    "line end after": lambda g: g.operator("alice").secret + "\n",
    "not ASCII": lambda g: g.operator("alice").secret[:-1] + "٣",
    "wide digits": lambda g: "op-eu-" + "".join(
        chr(ord(c) + 0xfee0) for c in g.operator("alice").secret[6:]),
}


@pytest.mark.parametrize("case", [*TOKENS, *TEXTS])
def test_wrong_token(console, case):
    token = dict(TOKENS, **TEXTS)[case](console)
    before = console.state()
    for headers in (OWN, []):
        r = console.sign_in(token, headers)
        if case in TEXTS and r.status == 400:
            assert_flat(r, 400)
            assert not r.all("set-cookie")
        else:
            unsigned(r)
        if token.strip():
            assert token.strip() not in as_text(r)
    assert console.state() == before


@pytest.mark.parametrize("case", TOKENS)
def test_wrong_bearer(console, http, case):
    token = TOKENS[case](console)
    if token.strip() in (console.operator("alice").secret,):
        token = token.strip() + "x"         # blanks around are of no header
    before = console.state()
    for headers in ([bearer(token)], [bearer(token)] + OWN):
        unsigned(console.get("/accounts", headers, version=http))
        unsigned(console.topup(headers, version=http))
    assert console.state() == before


def test_all_wrong_tokens_are_answered_alike(console):
    """Nothing says what was wrong, or whom the token would have been."""
    said = {console.sign_in(TOKENS[case](console)).body for case in TOKENS}
    assert len(said) == 1
    said = {console.get("/accounts", [bearer(TOKENS[case](console))]).body
            for case in ("unknown", "expired", "unknown key", "expired key",
                         "short", "name")}
    assert len(said) == 1


@pytest.mark.parametrize("body", [
    b"", b" ", b"{}", b"[]", b"null", b'"x"', b"1", b"{", b"token=x",
    b'{"token":1}', b'{"token":null}', b'{"token":[]}', b'{"token":{}}',
    b'{"token":true}', b'{"Token":"x"}', b'{"tok\\u0065n":"x","token":"y"}',
    b'{"token":"x","token":"y"}', b'{"token":"x","role":"admin"}',
    b'{"token":"x","name":"alice"}', b'{"token":"x"}{"token":"y"}',
    b'{"token":"x"}x', b'{"token":"\xff"}', b'\xef\xbb\xbf{"token":"x"}',
    b"{'token':'x'}", b'{"token":"x",}', b'[{"token":"x"}]',
    b'{"a":{"token":"x"}}', b'{"token":"\\ud800"}'])
def test_bad_body(console, body):
    before = console.state()
    r = console.send("POST", "/session", OWN, body)
    if r.status != 401:
        assert_flat(r, 400)
        assert not r.all("set-cookie"), r
    assert r.status == 400 or b'"token":"' in body
    assert console.state() == before


@pytest.mark.parametrize("extra", [
    b',"role":"admin"', b',"x":1', b',"token":"op-eu-1"', b',"Token":"x"'])
def test_bad_body_with_a_token(console, extra):
    token = console.operator("vera").secret.encode()
    for body in (b'{"token":"%s"%s}' % (token, extra),
                 b'{%s,"token":"%s"}' % (extra[1:], token)):
        r = console.send("POST", "/session", OWN, body)
        assert_flat(r, 400)
        assert not r.all("set-cookie"), r


def test_large_body(console):
    for body in (b'{"token":"%s"}' % (b"x" * 5000),
                 b" " * 5000 + b'{"token":"x"}'):
        refused(console.send("POST", "/session", OWN, body), 413,
                "REQUEST_TOO_LARGE")


def test_parameters_of_the_session(console):
    token = console.operator("vera").secret
    r = console.send("POST", "/session?x=1", OWN, {"token": token})
    assert_flat(r, 400)
    assert not r.all("set-cookie"), r


# Hostile requests.  A case returns headers, and maybe another end of the path,
# with which a request that reads and one that changes are sent.

NOT_SIGNED_IN = 401, "SIGN_IN_REQUIRED"
NOT_ALLOWED = 403, "FORBIDDEN"


class World:
    """What an attacker may have seen or have."""

    def __init__(self, console, foreign):
        self.console = console
        self.gw = console.gw
        self.alice = console.operator("alice")
        self.good = console.session(self.alice)
        self.viewer = console.session(console.operator("vera"))
        self.holder = console.session(console.gw.alice)
        self.foreign = foreign
        self.parts = re.split(r"([.:~|*!-])", self.good)


@pytest.fixture(scope="module")
def world(module_console, module_gateway):
    """A second gateway with the same operators signs cookies of its own."""
    other = Console(module_gateway(**PARTS,
                                   operators=module_console.gw.operators))
    return World(module_console,
                 other.session(other.operator("alice")))


def b64(text):
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def basic(user, password):
    text = base64.b64encode(("%s:%s" % (user, password)).encode()).decode()
    return ("Authorization", "Basic " + text)


# without a session that is good: (case, headers)

STRANGERS = {
    "nothing": lambda w: [],
    "empty cookie": lambda w: [cookie("")],
    "name without a value": lambda w: [("Cookie", COOKIE)],
    "some text": lambda w: [cookie("x")],
    "another instance's": lambda w: [cookie(w.foreign)],
    "name of an operator": lambda w: [cookie("alice")],
    "token as cookie": lambda w: [cookie(w.alice.secret)],
    "key as cookie": lambda w: [cookie(w.gw.alice.secret)],
    "hash as cookie": lambda w: [cookie(w.alice.digest()[7:])],
    "cookie as token": lambda w: [bearer(w.good)],
    "cookie with its name as token": lambda w: [
        bearer(COOKIE + "=" + w.good)],
    "upper case": lambda w: [cookie(w.good.upper())],
    "lower case": lambda w: [cookie(w.good.lower())],
    "other case": lambda w: [cookie(w.good.swapcase())],
    "reversed": lambda w: [cookie(w.good[::-1])],
    "in base64": lambda w: [cookie(b64(w.good))],
    "in hex": lambda w: [cookie(w.good.encode().hex())],
    "escaped": lambda w: [cookie("".join("%%%02x" % ord(c)
                                         for c in w.good))],
    "one letter escaped": lambda w: [cookie("%%%02x" % ord(w.good[0])
                                            + w.good[1:])],
    "quoted": lambda w: [cookie('"%s"' % w.good)],
    "half quoted": lambda w: [cookie('"' + w.good)],
    "with padding": lambda w: [cookie(w.good + "=")],
    "twice in one": lambda w: [cookie(w.good + w.good)],
    "blank inside": lambda w: [cookie(w.good[:20] + " " + w.good[20:])],
    "comma after": lambda w: [cookie(w.good + ",")],
    "point after": lambda w: [cookie(w.good + ".")],
    "first half": lambda w: [cookie(w.good[:len(w.good) // 2])],
    "second half": lambda w: [cookie(w.good[len(w.good) // 2:])],
    "head of one, tail of another": lambda w: [cookie(
        w.viewer[:-43] + w.good[-43:])],
    "signature of another": lambda w: [cookie(w.good[:-43]
                                              + w.viewer[-43:])],
    "signature of zeros": lambda w: [cookie(w.good[:-43] + "A" * 43)],
    "signature of a holder": lambda w: [cookie(w.good[:-43]
                                               + w.holder[-43:])],
    "very long": lambda w: [cookie("A" * 3000)],
    "long with the good one": lambda w: [cookie(w.good + "A" * 3000)],
    "not ASCII": lambda w: [cookie(w.good[:-1] + "\u00e9")],
    "control byte": lambda w: [cookie(w.good + "\x01")],
    "another cookie's name": lambda w: [cookie(w.good, "modelgw")],
    "name with an end": lambda w: [cookie(w.good, COOKIE + "2")],
    "name with a beginning": lambda w: [cookie(w.good, "x" + COOKIE)],
    "__Secure-": lambda w: [cookie(w.good, "__Secure-modelgw")],
    "name in lower case": lambda w: [cookie(w.good, COOKIE.lower())],
    "name in upper case": lambda w: [cookie(w.good, COOKIE.upper())],
    "in another cookie's value": lambda w: [cookie(
        "%s=%s" % (COOKIE, w.good), "x")],
    "after a comma": lambda w: [("Cookie", "x=1, %s=%s" % (COOKIE, w.good))],
    "after a comma, no blank": lambda w: [("Cookie", "x=1,%s=%s"
                                           % (COOKIE, w.good))],
    "after a blank": lambda w: [("Cookie", "x=1 %s=%s" % (COOKIE, w.good))],
    "in quotes of another": lambda w: [("Cookie", 'x="1; %s=%s"'
                                        % (COOKIE, w.good))],
    "bad one first": lambda w: [("Cookie", "%s=%s; %s=%s" % (
        COOKIE, w.foreign, COOKIE, w.good))],
    "bad one last": lambda w: [("Cookie", "%s=%s; %s=%s" % (
        COOKIE, w.good, COOKIE, w.foreign))],
    "empty one first": lambda w: [("Cookie", "%s=; %s=%s" % (
        COOKIE, COOKIE, w.good))],
    "two that are good": lambda w: [("Cookie", "%s=%s; %s=%s" % (
        COOKIE, w.good, COOKIE, w.viewer))],
    "two headers, bad one first": lambda w: [cookie(w.foreign),
                                             cookie(w.good)],
    "two headers, bad one last": lambda w: [cookie(w.good),
                                            cookie(w.foreign)],
    "two headers, both good": lambda w: [cookie(w.viewer), cookie(w.good)],
    "Cookie2": lambda w: [("Cookie2", "%s=%s" % (COOKIE, w.good))],
    "Set-Cookie": lambda w: [("Set-Cookie", "%s=%s" % (COOKIE, w.good))],
    "basic": lambda w: [basic("alice", w.alice.secret)],
    "basic, token as user": lambda w: [basic(w.alice.secret, "")],
    "basic with the token": lambda w: [("Authorization",
                                        "Basic " + w.alice.secret)],
    "no scheme": lambda w: [("Authorization", w.alice.secret)],
    "scheme alone": lambda w: [("Authorization", "Bearer")],
    "scheme and a blank": lambda w: [("Authorization", "Bearer ")],
    "empty header": lambda w: [("Authorization", "")],
    "another scheme": lambda w: [("Authorization", "Token "
                                  + w.alice.secret)],
    "two tokens in one": lambda w: [bearer("%s %s" % ((w.alice.secret,) * 2))],
    "two tokens and a comma": lambda w: [bearer("%s, %s" % (
        (w.alice.secret,) * 2))],
    "bad scheme first": lambda w: [("Authorization", "Basic eDp5, Bearer "
                                    + w.alice.secret)],
    "parameter after": lambda w: [bearer(w.alice.secret + ",realm=x")],
    "x-api-key": lambda w: [("x-api-key", w.alice.secret)],
    "x-api-key with a key": lambda w: [w.gw.alice.header()],
    "proxy": lambda w: [("Proxy-Authorization", "Bearer " + w.alice.secret)],
    "named by a proxy": lambda w: [
        ("X-Remote-User", "alice"), ("X-Forwarded-User", "alice"),
        ("X-Auth-Request-Email", "alice"), ("X-Auth-Request-Groups", "admin"),
        ("X-Modelgw-Role", "admin"), ("Remote-User", "alice")],
    "from the machine itself, says a header": lambda w: [
        ("X-Forwarded-For", "127.0.0.1"), ("X-Real-IP", "127.0.0.1"),
        ("Forwarded", "for=127.0.0.1")],
    "the page's header alone": lambda w: OWN,
    "bad token with a good cookie": lambda w: [
        bearer(Operator("x", "admin").secret), cookie(w.good)],
    "in the header of the page": lambda w: [("X-Modelgw-Console", w.good)],
}

# the place of the credential in the path: not the real one, as logs have it

PATHS = ["token=%s", "access_token=%s", "key=%s", "session=%s",
         COOKIE + "=%s", "authorization=Bearer%%20%s"]


def sessions(headers):
    """How many session cookies there are."""
    text = "; ".join(value for name, value in headers if name == "Cookie")
    return len(re.findall("(?:^|; )%s=" % COOKIE, text))


def nothing_sent(headers):
    return not sessions(headers) \
        and "Authorization" not in [name for name, _ in headers]


def ambiguous(headers):
    """Two sessions: it is not tried which."""
    return sessions(headers) > 1


def from_a_page(headers):
    """But it lacks the page's own headers."""
    return any(name in ("Cookie", "X-Modelgw-Console") for name, _ in headers)


@pytest.mark.parametrize("case", STRANGERS)
def test_stranger(world, case):
    console = world.console
    headers = STRANGERS[case](world)
    before = console.state()
    for more in ([], OWN):
        for method, path, body in (
                ("GET", "/accounts", None), ("GET", "/session", None),
                ("POST", "/accounts/alice/topups", console.amount()),
                ("POST", "/keys", {"group": "a"}),
                ("DELETE", "/keys/alice-1", None)):
            extra = [h for h in more
                     if h[0] not in [name for name, _ in headers]]
            r = console.send(method, path, headers + extra, body)
            if r.status == 400:             # nginx itself does not take it
                assert_flat(r, 400, "INVALID_REQUEST")
                assert case in ("control byte", "empty header"), r
            elif r.status == 403 and (ambiguous(headers) or method != "GET"
                                      and PAGE not in headers + extra
                                      and from_a_page(headers)):
                forbidden(r)
            elif (method, path) == ("GET", "/session") \
                    and nothing_sent(headers):
                nobody(r)
            else:
                unsigned(r)
            assert world.good not in as_text(r)
    assert console.state() == before
    console.works(world.good, "alice", "admin")


@pytest.mark.parametrize("name", PATHS)
def test_stranger_with_a_query_string(start, name):
    g = start()
    g.gw.quiet = False                      # nginx logs what was asked for
    alice = g.operator("alice")
    value = g.session(alice)
    before = g.state()
    for text in (alice.secret, value, g.gw.alice.secret):
        query = "?" + name % text
        unsigned(g.get("/accounts" + query))
        unsigned(g.send("POST", "/accounts/alice/topups" + query, [],
                        g.amount()))
        r = g.send("POST", "/session" + query, OWN, {"token": "op-eu-x"})
        assert r.status == 400 and not r.all("set-cookie"), r
    assert g.state() == before


def test_two_authorization_headers(world):
    """nginx refuses them, before anything is read."""
    good, bad = bearer(world.alice.secret), bearer("op-eu-" + "0" * 48)
    for pair in ((good, bad), (bad, good), (good, good),
                 (good, basic("a", "b"))):
        r = world.console.get("/accounts", pair)
        assert r.status in (400, 401), r
        r = world.console.topup(pair)
        assert r.status in (400, 401), r


def edits(value):
    """Texts that differ from the value in one place."""
    for i, c in enumerate(value):
        for new in {c.swapcase(), chr(ord(c) ^ 1), "A", "_", "0", "."}:
            if new != c and new not in ';, "\\' and "!" <= new <= "~":
                yield value[:i] + new + value[i + 1:]
    for n in range(len(value)):
        yield value[:n]
        yield value[n:][1:]
        yield value[:n] + value[n + 1:]
        yield value[:n] + "A" + value[n:]
    for end in "A0=._-~!":
        yield value + end
        yield end + value


@pytest.mark.parametrize("who", ["alice", "vera", "holder"])
def test_every_part_of_a_cookie(world, who):
    """A letter is changed, removed, added, at each place; so there is one text
    only for each session."""
    console = world.console
    value = {"alice": world.good, "vera": world.viewer,
             "holder": world.holder}[who]
    texts = sorted(set(edits(value)) - {value})
    assert len(texts) > 300
    source = address()
    wrong = []
    with client.Connection(console.gw.port, source=source) as c:
        for text in texts:
            c.request("GET", API + "/session", [cookie(text)])
            r = c.response(method="GET")
            if r is None or r.status != 401:
                wrong.append((text, r))
            if r is None or r.get("connection") == "close":
                c.close()
                c.__init__(console.gw.port, source=source)
    assert not wrong, (len(wrong), value, wrong[:5])
    console.works(value, source=source)


# a good session, but not the console's page that sends it: CSRF

FOREIGN_SITES = {
    "cross-site": [("Sec-Fetch-Site", "cross-site"), PAGE],
    "same-site": [("Sec-Fetch-Site", "same-site"), PAGE],
    "typed address": [("Sec-Fetch-Site", "none"), PAGE],
    "unknown value": [("Sec-Fetch-Site", "x"), PAGE],
    "empty value": [("Sec-Fetch-Site", ""), PAGE],
    "beginning of the value": [("Sec-Fetch-Site", "same-origin-x"), PAGE],
    "end of the value": [("Sec-Fetch-Site", "x-same-origin"), PAGE],
    "list": [("Sec-Fetch-Site", "same-origin, cross-site"), PAGE],
    "two, the bad one last": [SAME, ("Sec-Fetch-Site", "cross-site"), PAGE],
    "two, the bad one first": [("Sec-Fetch-Site", "cross-site"), SAME, PAGE],
    "cross-site, own origin": [("Sec-Fetch-Site", "cross-site"),
                               ("Origin", "http://gateway.test"), PAGE],
    "nothing at all": [],
    "page header alone": [PAGE],
    "no page header": [SAME],
    "page header 0": [SAME, (PAGE[0], "0")],
    "page header empty": [SAME, (PAGE[0], "")],
    "page header true": [SAME, (PAGE[0], "true")],
    "page header 11": [SAME, (PAGE[0], "11")],
    "page header a list": [SAME, (PAGE[0], "1, 1")],
    "page header with underscores": [SAME, ("X_Modelgw_Console", "1")],
    "another page header": [SAME, ("X-Requested-With", "XMLHttpRequest")],
    "two page headers": [SAME, (PAGE[0], "0"), PAGE],
    "cross-site, form": [
        ("Sec-Fetch-Site", "cross-site"), ("Origin", "http://evil.test"),
        ("Content-Type", "application/x-www-form-urlencoded")],
    "cross-site, text/plain": [
        ("Sec-Fetch-Site", "cross-site"), ("Origin", "http://evil.test"),
        ("Content-Type", "text/plain")],
    "cross-site, multipart": [
        ("Sec-Fetch-Site", "cross-site"), ("Origin", "null"),
        ("Content-Type", "multipart/form-data; boundary=x")],
    "own form": [SAME, ("Content-Type",
                        "application/x-www-form-urlencoded")],
    "own text/plain": [SAME, ("Content-Type", "text/plain")],
}

ORIGINS = [
    "null", "", "http://evil.test", "https://evil.test",
    "http://gateway.test.evil.test", "http://evilgateway.test",
    "http://gateway.tes", "http://gateway.testx", "http://x.gateway.test",
    "http://gateway.test:8080", "https://gateway.test:444",
    "http://gateway.test@evil.test", "http://evil.test@gateway.test",
    "http://gateway.test:x@evil.test", "http://evil.test/gateway.test",
    "http://evil.test?gateway.test", "http://evil.test#gateway.test",
    "http://evil.test/http://gateway.test", "gateway.test", "//gateway.test",
    "http:gateway.test", "http:/gateway.test", "http:///gateway.test",
    "http://gateway.test/", "http://gateway.test/x", "http://gateway.test?",
    "http://gateway.test:", "http://gateway.test:0", "http://gateway.test..",
    "javascript://gateway.test", "file://gateway.test", "file://",
    "data://gateway.test", "ftp://gateway.test", "ws://gateway.test",
    "chrome-extension://gateway.test", "xhttp://gateway.test",
    "http://gateway.test http://evil.test",
    "http://evil.test http://gateway.test",
    "http://gateway.test, http://evil.test", "*", "http://*",
    "http://*.test", "http://127.0.0.1", "http://localhost",
    "http://gateway%2etest", "http://[gateway.test]", "undefined",
    "http://gateway.test\\evil.test", "http://evil.test\\@gateway.test"]


def hostile(console, value, headers, host="gateway.test", words=()):
    """Requests of each kind with a good session are refused, and change
    nothing; the session is left as it is."""
    before = console.state()
    for method, path, body in (
            ("POST", "/accounts/alice/topups", console.amount()),
            ("POST", "/accounts", {"id": "hostile"}),
            ("PATCH", "/accounts/alice", {"state": "closed"}),
            ("POST", "/keys", {"group": "a"}),
            ("DELETE", "/keys/alice-1", None),
            ("POST", "/keys/self/revoke", None),
            ("DELETE", "/session", None)):
        r = console.send(method, path, [cookie(value)] + headers, body,
                         host=host)
        if r.status == 400:                 # nginx itself does not take it
            assert_flat(r, 400, "INVALID_REQUEST")
        else:
            forbidden(r, *words)
    assert console.state() == before
    console.works(value)


@pytest.mark.parametrize("case", FOREIGN_SITES)
def test_foreign_site(world, case):
    hostile(world.console, world.good, FOREIGN_SITES[case])
    if case in ("cross-site", "nothing at all"):
        hostile(world.console, world.holder, FOREIGN_SITES[case])


@pytest.mark.parametrize("origin", ORIGINS)
def test_foreign_origin(world, origin):
    """Of a browser without Sec-Fetch-Site."""
    hostile(world.console, world.good, [PAGE, ("Origin", origin)])


def test_two_origins(world):
    for pair in (("http://gateway.test", "http://evil.test"),
                 ("http://evil.test", "http://gateway.test")):
        hostile(world.console, world.good,
                [PAGE] + [("Origin", origin) for origin in pair])


@pytest.mark.parametrize("host, origin, good", [
    ("gateway.test", "http://gateway.test", True),
    ("gateway.test", "https://gateway.test", True),
    ("gateway.test:8443", "https://gateway.test:8443", True),
    ("Gateway.Test", "http://gateway.test", True),
    ("127.0.0.1:81", "http://127.0.0.1:81", True),
    ("localhost:81", "http://localhost:81", True),
    ("gateway.test:8443", "https://gateway.test", False),
    ("gateway.test:8443", "https://gateway.test:8444", False),
    ("gateway.test:8443", "https://gateway.test:84430", False),
    ("gateway.test:8443", "https://gateway.test:844", False),
    ("localhost:81", "http://127.0.0.1:81", False),
    ("127.0.0.1:81", "http://localhost:81", False)])
def test_origin_of_the_host(world, host, origin, good):
    headers = [PAGE, ("Origin", origin)]
    if not good:
        hostile(world.console, world.good, headers, host)
        return
    r = world.console.topup([cookie(world.good)] + headers, host=host)
    assert r.status == 201, r


def test_own_page(world, http):
    """Controls of the cases above."""
    console = world.console
    for headers in (OWN, OWN + [("Origin", "http://gateway.test")],
                    [PAGE, ("Origin", "http://gateway.test")]):
        r = console.topup([cookie(world.good)] + headers, version=http)
        assert r.status == 201, r


@pytest.mark.parametrize("site, good", [
    ("cross-site", False), ("same-site", False), ("x", False), ("", False),
    ("same-origin, none", False), ("same-origin", True), ("none", True),
    (None, True)])
def test_site_that_reads(world, http, site, good):
    """A page of another site cannot read the response, but it can ask: how
    long it takes, and an error, say something."""
    headers = [cookie(world.good)]
    if site is not None:
        headers.append(("Sec-Fetch-Site", site))
    for path in ("/accounts", "/session", "/keys/alice-1", "/calls", "/x"):
        r = world.console.get(path, headers, version=http)
        if good:
            assert r.status == (200 if path != "/x" else 404), r
        else:
            forbidden(r)


def test_bearer_of_a_browser(world):
    """A page that has a token is held to the same rules."""
    head = bearer(world.alice.secret)
    for more in ([("Origin", "http://evil.test")],
                 [("Sec-Fetch-Site", "cross-site")],
                 [("Sec-Fetch-Site", "cross-site"), PAGE],
                 [cookie(world.good)], [cookie(world.viewer)],
                 [cookie(world.good), ("Sec-Fetch-Site", "cross-site"), PAGE]):
        forbidden(world.console.topup([head] + more))
    assert world.console.topup([head] + OWN).status == 201


@pytest.mark.parametrize("headers", [
    [("X-HTTP-Method-Override", "DELETE")], [("X-HTTP-Method", "DELETE")],
    [("X-Method-Override", "DELETE")], [("_method", "DELETE")]])
def test_method_override(world, headers):
    before = world.console.state()
    r = world.console.get("/keys/alice-1", [cookie(world.good)] + headers)
    assert r.status == 200, r
    for method in ("GET", "HEAD"):
        for path in ("/accounts/alice/topups", "/keys/alice-1/revoke"):
            r = world.console.send(method, path + "?_method=POST",
                                   [cookie(world.good)] + headers + OWN)
            assert r.status in (400, 404, 405), r
    assert world.console.state() == before


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "TRACE", "PROPFIND",
                                    "LOCK"])
def test_other_methods(world, method):
    """Nothing grants a page of another origin anything: CORS."""
    headers = [("Origin", "http://evil.test"),
               ("Access-Control-Request-Method", "POST"),
               ("Access-Control-Request-Headers", "x-modelgw-console")]
    for more in ([], [cookie(world.good)], [bearer(world.alice.secret)]):
        for path in ("/accounts/alice/topups", "/session", "/keys", "/"):
            r = world.console.send(method, path, headers + more)
            assert 400 <= r.status < 500, r
            assert not r.all("set-cookie")
            assert "access-control" not in as_text(r).lower()


@pytest.mark.parametrize("case", [
    case for case, headers in FOREIGN_SITES.items()
    if headers and headers != [PAGE]])      # no browser's
def test_sign_in_of_another_site(world, case):
    """Else a page could sign its visitor in as its author (login CSRF)."""
    headers = FOREIGN_SITES[case]
    console = world.console
    for who in (console.operator("vera"), console.gw.alice):
        for body in (json.dumps({"token": who.secret}).encode(),
                     b'{"token":"%s"}=' % who.secret.encode()):
            forbidden(console.send("POST", "/session", headers, body))


@pytest.mark.parametrize("origin", ORIGINS)
def test_sign_in_of_another_origin(world, origin):
    r = world.console.sign_in(world.alice.secret, [PAGE, ("Origin", origin)])
    if r.status == 400:
        assert_flat(r, 400, "INVALID_REQUEST")
    else:
        forbidden(r)


def test_sign_in_of_another_site_in_a_session(world):
    """Neither is the session replaced."""
    r = world.console.sign_in(
        world.console.operator("vera").secret,
        [cookie(world.good), ("Sec-Fetch-Site", "cross-site"),
         ("Content-Type", "text/plain")])
    forbidden(r)
    world.console.works(world.good, "alice", "admin")


HOSTS = ["evil.test", "evil.test:80", "gateway.test.evil.test", "127.0.0.2",
         "x.gateway.test", "[::1]", "_", "2130706433", "evil.localhost"]


@pytest.mark.parametrize("host", HOSTS)
def test_host_of_a_stranger(world, http, host):
    """DNS rebinding, with whatever else is good."""
    console = world.console
    before = console.state()
    for head in ([cookie(world.good)], [bearer(world.alice.secret)], []):
        for more in (OWN, [PAGE, ("Origin", "http://" + host)]):
            forbidden(console.get("/accounts", head + more, version=http,
                                  host=host), "Host")
            forbidden(console.topup(head + more, version=http, host=host),
                      "Host")
    forbidden(console.sign_in(world.alice.secret, version=http, host=host),
              "Host")
    assert console.state() == before


def test_no_host(world):
    for more in ([cookie(world.good)], [bearer(world.alice.secret)]):
        with client.Connection(world.gw.port, source=address()) as c:
            c.send(build("GET", API + "/accounts", more, host=None,
                         version="HTTP/1.0"))
            forbidden(c.response(method="GET"), "Host")


def test_http_1_0(world):
    """With a Host it is a request as any."""
    with client.Connection(world.gw.port, source=address()) as c:
        c.send(build("GET", API + "/session", [cookie(world.good)],
                     version="HTTP/1.0"))
        assert c.response(method="GET").status == 200


# who is signed in is a matter of each request, not of the connection


def test_pipelined(world):
    order = [(world.good, "alice"), (world.viewer, "vera"), (None, None),
             (world.holder, "alice-1"), (world.foreign, None),
             (world.good, "alice"), (None, None)]
    with client.Connection(world.gw.port, source=address()) as c:
        c.send(b"".join(build("GET", API + "/session",
                              [cookie(value)] if value else [])
                        for value, _ in order))
        for value, name in order:
            r = c.response(method="GET")
            if value is None:
                nobody(r)
            elif name is None:
                unsigned(r)
            else:
                assert r.status == 200 and r.json()["name"] == name, r


def test_pipelined_changes(world):
    """A refused change does not become the next request."""
    console = world.console
    path = API + "/accounts/alice/topups"
    body = json.dumps(console.amount()).encode()
    inner = build("POST", path, [cookie(world.good)] + OWN, body)
    before = console.state()
    with client.Connection(world.gw.port, source=address()) as c:
        c.send(build("POST", path, [cookie(world.foreign)] + OWN, inner)
               + build("GET", API + "/session", [cookie(world.viewer)]))
        r = c.response()
        assert r.status in (401, 413), r
        r = c.response(method="GET")
        assert r is None or r.json()["name"] == "vera", r
    assert console.state() == before


def test_streams(world):
    """HTTP/2: of one connection, and with the cookie in pieces (RFC 9113,
    8.2.3)."""
    with client.H2(world.gw.port2, address()) as c:
        path = API + "/session"
        sids = [c.request("GET", path, [cookie(value)] if value else [])
                for value in (world.good, world.viewer, None, world.holder)]
        names = []
        for sid in sids:
            r = c.response(sid)
            names.append(r.json().get("name") if r.status == 200
                         else r.status)
        assert names == ["alice", "vera", None, "alice-1"]
        r = c.call("GET", path, [("cookie", "a=b"), cookie(world.good),
                                 ("cookie", "c=d")])
        assert r.status == 200, r
        r = c.call("GET", path, [cookie(world.foreign), cookie(world.good)])
        assert r.status in (401, 403), r


def test_beside_other_cookies(world):
    for text in ("a=b; %s", "%s; a=b", "a=b; %s; c=d", "a; %s", "a=b;%s",
                 "a=b=c; %s", '%s; a="x"', "%s;", "_ga=GA1.2.3; %s",
                 "modelgw=x; %s"):
        one = "%s=%s" % (COOKIE, world.good)
        r = world.console.get("/session", [("Cookie", text % one)])
        assert r.status == 200, (text, r)


def test_a_session_is_no_key(world):
    """The gateway takes no sign-in, of whatever kind, for a service key."""
    gw = world.gw
    for headers in ([cookie(world.holder)], [bearer(world.holder)],
                    [bearer(world.alice.secret)],
                    [("x-api-key", world.alice.secret)]):
        assert_flat(gw.post("/v1/chat/completions", chat(), headers=headers),
                    401, ("INVALID_API_KEY", "API_KEY_REQUIRED"))
    assert gw.untouched()


# the end of a session


def test_sign_out(console):
    """Also for one who has copied the cookie, or signed in with the same token
    elsewhere; but not for other operators."""
    value = console.session(console.operator("alice"))
    same = console.session(console.operator("alice"))
    other = console.session(console.operator("bill"))
    r = console.send("DELETE", "/session", OWN + [cookie(value)])
    assert r.status == 204 and r.body == b"", r
    if r.all("set-cookie"):
        text, attributes = set_cookie(r)
        assert text == "" and "Max-Age=0" in attributes
        assert "Path=/" in attributes and "Secure" in attributes
    console.over(value)
    unsigned(console.topup(OWN + [cookie(value)]))
    unsigned(console.send("DELETE", "/session", OWN + [cookie(value)]))
    console.over(same)
    console.works_for_all(other, "bill", "billing")
    new = console.session(console.operator("alice"))
    console.works_for_all(new, "alice", "admin")
    console.over(value)


def test_sign_out_with_the_token(console):
    """As a script does it, or who has lost a cookie, and with both."""
    alice = console.operator("alice")
    for more in ([], OWN):
        value = console.session(alice)
        head = [bearer(alice.secret)] + (more and more + [cookie(value)])
        assert console.send("DELETE", "/session", head).status == 204
        console.over(value)
        assert console.ok("/accounts", [bearer(alice.secret)])
    console.works(console.session(alice), "alice", "admin")


def test_sign_out_of_a_holder(console):
    key = console.new_key("signs-out")
    value = console.session(key)
    assert console.send("DELETE", "/session",
                        OWN + [cookie(value)]).status == 204
    console.over(value)
    assert console.gw.get("/v1/models", key=key).status == 200
    console.works(console.session(key), "signs-out", "holder")


def test_sign_out_survives_a_reload(start):
    g = start()
    value, other = g.session(g.operator("alice")), g.session(
        g.operator("vera"))
    assert g.send("DELETE", "/session", OWN + [cookie(value)]).status == 204
    new = g.session(g.operator("alice"))
    for _ in range(2):
        g.gw.reload()
        g.over(value)
        g.works_for_all(other, "vera", "viewer")
        g.works_for_all(new, "alice", "admin")


def test_sign_out_of_many(start):
    """Nobody can undo a sign-out by signing in and out many times."""
    g = start()
    first = g.session(g.operator("alice"))
    assert g.send("DELETE", "/session", OWN + [cookie(first)]).status == 204
    n = 300 if ASAN else 1500
    vera = g.operator("vera")
    with client.Connection(g.gw.port) as c:
        for _ in range(n):
            c.request("POST", API + "/session", OWN, {"token": vera.secret})
            r = c.response()
            assert r.status == 200, r
            value = set_cookie(r)[0]
            g.gw.hidden.append(value)
            c.request("DELETE", API + "/session", OWN + [cookie(value)])
            assert c.response(method="DELETE").status == 204
    g.over(first)
    for value in g.gw.hidden[1:4] + g.gw.hidden[-3:]:
        unsigned(g.get("/session", [cookie(value)]))


def test_sign_out_and_in_at_once(console):
    """The new session is none of those that have ended."""
    vera = console.operator("vera")
    old = []
    with client.Connection(console.gw.port, source=address()) as c:
        for _ in range(50):
            c.request("POST", API + "/session", OWN, {"token": vera.secret})
            value = set_cookie(c.response())[0]
            console.gw.hidden.append(value)
            c.request("GET", API + "/session", [cookie(value)])
            assert c.response(method="GET").status == 200
            c.request("DELETE", API + "/session", OWN + [cookie(value)])
            assert c.response(method="DELETE").status == 204
            old.append(value)
    assert len(set(old)) == len(old)
    for value in old:
        unsigned(console.get("/session", [cookie(value)]))


def test_sign_out_of_another(console):
    """It ends the session that is sent, whatever else is said."""
    alice, vera = [console.session(console.operator(name))
                   for name in ("alice", "vera")]
    for body, query in (({"name": "alice"}, ""), (None, "?name=alice")):
        r = console.send("DELETE", "/session" + query, OWN + [cookie(vera)],
                         body)
        assert r.status in (204, 400), r
    r = console.send("DELETE", "/session/alice", OWN + [cookie(vera)])
    assert r.status in (401, 403, 404), r
    console.works_for_all(alice, "alice", "admin")


def test_restart(start):
    """All have to sign in again."""
    g = start()
    values = [g.session(g.operator("alice")), g.session(g.gw.alice)]
    g.gw.stop()
    g.gw.start()
    for value in values:
        g.over(value)
    g.works(g.session(g.operator("alice")), "alice", "admin")


def test_killed_workers(start):
    """New workers know the sessions, and which of them were ended."""
    g = start()
    g.gw.expect(r"exited on signal 9")
    value, ended = g.session(g.operator("alice")), g.session(
        g.operator("vera"))
    assert g.send("DELETE", "/session", OWN + [cookie(ended)]).status == 204
    g.gw.kill_workers()
    g.works_for_all(value, "alice", "admin")
    g.over(ended)


PAGES = r"""
int
getpagesize(void)
{
    return 65536;
}
"""


def test_large_pages(start, tmp_path, monkeypatch):
    """Of a kernel for ARM or POWER: the shared memory has room all the same."""
    Shim(tmp_path / "shim", PAGES, monkeypatch)
    g = start()
    g.works(g.session(g.operator("alice")), "alice", "admin")


def change(g, **lines):
    """Reload with lines of operators replaced, or removed (None)."""
    g.gw.operators = [lines.get(o.name, o) for o in g.gw.operators]
    g.gw.operators = [o for o in g.gw.operators if o]
    g.gw.write_operators()
    g.gw.reload()


def test_removed_operator(start):
    g = start()
    alice, bill = g.operator("alice"), g.operator("bill")
    values = {o.name: g.session(o) for o in (alice, bill)}
    change(g, alice=None)
    g.over(values["alice"])
    unsigned(g.topup([bearer(alice.secret)]))
    unsigned(g.sign_in(alice.secret))
    g.works_for_all(values["bill"], "bill", "billing")

    # who comes back has to sign in again, or not, but nothing else is given

    g.gw.operators.append(Operator("alice", "viewer"))
    g.gw.write_operators()
    g.gw.reload()
    g.over(values["alice"])
    unsigned(g.sign_in(alice.secret))


def test_replaced_token(start):
    """Under the same name, as after a theft: also the thief's sessions."""
    g = start()
    old = g.operator("alice")
    value = g.session(old)
    new = Operator("alice", "admin")
    change(g, alice=new)
    g.gw.hidden.append(old.secret)
    g.over(value)
    unsigned(g.sign_in(old.secret))
    unsigned(g.get("/accounts", [bearer(old.secret)]))
    g.works_for_all(g.session(new), "alice", "admin")


def test_two_lines_that_swap_names(start):
    """A session has what its token has now, not what its name has."""
    g = start()
    alice, vera = g.operator("alice"), g.operator("vera")
    values = g.session(alice), g.session(vera)
    change(g, alice=Operator("alice", "admin", secret=vera.secret),
           vera=Operator("vera", "viewer", secret=alice.secret))
    g.works_for_all(values[0], "vera", "viewer")
    g.works_for_all(values[1], "alice", "admin")


@pytest.mark.parametrize("old, new", [
    ("admin", "viewer"), ("admin", "billing"), ("viewer", "admin"),
    ("billing", "viewer")])
def test_new_role(start, old, new):
    """It counts at once, more as well as less."""
    g = start([Operator("carl", old), Operator("root", "admin")])
    carl = g.operator("carl")
    value = g.session(carl)
    change(g, carl=Operator("carl", new, secret=carl.secret))
    g.works_for_all(value, "carl", new)
    for head in (OWN + [cookie(value)], [bearer(carl.secret)]):
        r = g.topup(head)
        assert r.status == (403 if new == "viewer" else 201), r
        r = g.send("POST", "/accounts", head,
                   {"id": "of-%s-%d" % (new, len(head)), "founding": False})
        assert r.status == (201 if new == "admin" else 403), r


def test_expired_line(start):
    """A date that has passed ends what there is after a reload."""
    g = start()
    alice = g.operator("alice")
    value = g.session(alice)
    change(g, alice=Operator("alice", "admin", "expires=2020-01-01",
                             alice.secret))
    g.over(value)
    unsigned(g.get("/accounts", [bearer(alice.secret)]))
    unsigned(g.sign_in(alice.secret))


def test_operators_are_gone(start):
    """Without lines nobody can sign in but the holders of keys."""
    g = start()
    value = g.session(g.operator("alice"))
    g.gw.operators = []
    g.gw.write_operators()
    g.gw.reload()
    g.over(value)
    unsigned(g.get("/accounts"))
    assert g.read("/accounts")
    g.works(g.session(g.gw.alice), "alice-1", "holder")


def test_block_is_gone(start):
    """The interface, which has a loopback address only, is then as it was
    without it; when it comes back, no session of before does."""
    g = start()
    value, alice = g.session(g.operator("alice")), g.operator("alice")
    operators, g.gw.operators = g.gw.operators, None
    g.gw.write()
    g.gw.reload()
    said = g.ok("/session")
    assert said["role"] == "admin" and said["name"].startswith("127.")
    r = g.sign_in(alice.secret, [])
    assert r.status == 404 and not r.all("set-cookie"), r
    forbidden(g.topup(OWN))                 # a page's, as always
    g.gw.operators = operators
    g.gw.write()
    g.gw.reload()
    g.over(value)
    unsigned(g.get("/accounts"))
    g.works(g.session(alice), "alice", "admin")


def test_refused_reload(start):
    """A line that is wrong changes nothing."""
    g = start()
    value = g.session(g.operator("alice"))
    operators = g.gw.operators
    g.gw.operators = [Operator("alice", "king")]
    g.gw.write_operators()
    g.gw.reload(ok=False)
    g.gw.operators = operators
    g.works_for_all(value, "alice", "admin")
    g.works_for_all(g.session(g.operator("vera")), "vera", "viewer")


# by the clock


@pytest.fixture
def clock(tmp_path, monkeypatch):
    return Shim(tmp_path / "shim", CLOCK, monkeypatch)


def test_twelve_hours(start, clock):
    """Whatever is done meanwhile: a session is not made longer by its use."""
    g = start()
    values = [g.session(g.operator("alice")), g.session(g.gw.alice)]
    clock.set("ahead", "%d" % (HOURS * 3600 - 60))
    for value in values:
        g.works_for_all(value)
    clock.set("ahead", "%d" % (HOURS * 3600 + 2))
    for value in values:
        wait(lambda: g.get("/session", [cookie(value)]).status == 401,
             "a session does not end")
        g.over(value)
        unsigned(g.topup(OWN + [cookie(value)]))
    new = g.session(g.operator("alice"))
    clock.set("ahead", "0")                 # a clock that is put back
    g.works(new)


def test_end_of_a_day(start, clock):
    """expires= of an operator and of a key, without a reload."""
    day = time.time() + 2 * 86400
    text = "expires=" + time.strftime("%Y-%m-%d", time.gmtime(day))
    carl, key = Operator("carl", "admin", text), Key("karl-1", "b", text)
    g = start(trio() + [carl], keys=[key])
    for ahead, good in ((86400 - 60, True), (3 * 86400, False)):
        clock.set("ahead", "0")
        wait(lambda: g.sign_in(carl.secret).status == 200, "the clock")
        if not good:
            clock.set("ahead", "%d" % (int(day) // 86400 * 86400
                                       - time.time() - 3600))
            wait(lambda: abs(at(g.sign_in(carl.secret).json()["expires"])
                             - int(day) // 86400 * 86400
                             - (HOURS - 1) * 3600) < 60, "the clock")
        values = g.session(carl), g.session(key)
        for value in values:
            g.works(value)
        if good:
            continue
        clock.set("ahead", "%d" % (int(day) // 86400 * 86400
                                   - time.time() + 5))
        for value in values:
            wait(lambda: g.get("/session", [cookie(value)]).status == 401,
                 "a session outlives its line")
            g.over(value)
        for who in (carl, key):
            unsigned(g.sign_in(who.secret))
            unsigned(g.get("/accounts", [bearer(who.secret)]))
        g.works(g.session(g.operator("alice")), "alice", "admin")


# the end of a key


@pytest.mark.parametrize("how", ["revoke", "DELETE", "rotate",
                                 "rotate with grace", "expire", "close",
                                 "self"])
def test_end_of_a_key(console, how):
    """The session of its holder ends with it."""
    id = how.replace(" ", "-").lower()
    key = console.new_key(id, account="of-" + id)
    value = console.session(key)
    console.works_for_all(value, id, "holder")
    if how == "revoke":
        r = console.root("POST", "/keys/%s/revoke" % id)
    elif how == "DELETE":
        r = console.root("DELETE", "/keys/" + id)
    elif how == "rotate":
        r = console.root("POST", "/keys/%s/rotate" % id)
    elif how == "rotate with grace":
        r = console.root("POST", "/keys/%s/rotate" % id, {"grace": "1h"})
    elif how == "expire":
        r = console.root("PATCH", "/keys/" + id, {"expires": "2020-01-01"})
    elif how == "close":
        r = console.root("PATCH", "/accounts/of-" + id, {"state": "closed"})
    else:
        r = console.send("POST", "/keys/self/revoke", OWN + [cookie(value)])
    assert r.status == 200, r
    if how.startswith("rotate"):
        console.gw.hidden.append(r.json()["key"])
    if how == "rotate with grace":          # it can sign in again as well
        console.works_for_all(value, id, "holder")
        assert console.gw.get("/v1/models", key=key).status == 200
        r = console.root("POST", "/keys/%s/rotate" % id)
        console.gw.hidden.append(r.json()["key"])
    console.over(value)
    unsigned(console.sign_in(key.secret))
    unsigned(console.get("/session", [bearer(key.secret)]))


def test_end_of_a_configured_key(start):
    g = start(keys=[Key("karl-1", "b")])
    karl = g.gw.keys[-1]
    value = g.session(karl)
    r = g.send("POST", "/keys/self/revoke", OWN + [cookie(value)])
    refused(r, 409, "CONFIGURED_KEY")
    g.works(value, "karl-1", "holder")
    g.gw.keys = g.gw.keys[:-1]
    g.gw.write_keys()
    g.gw.reload()
    g.over(value)
    unsigned(g.sign_in(karl.secret))

    # another key of this name is another key

    g.gw.keys.append(Key("karl-1", "b"))
    g.gw.write_keys()
    g.gw.reload()
    g.over(value)


def test_account_of_a_key_changes(start):
    """A session is not that of the account of yesterday."""
    g = start(keys=[Key("karl-1", "b", "account=alice")])
    karl = g.gw.keys[-1]
    value = g.session(karl)
    assert g.works(value)["account"] == "alice"
    karl.options = "account=carol"
    g.gw.write_keys()
    g.gw.reload()
    r = g.get("/session", [cookie(value)])
    if r.status != 401:
        assert r.json()["account"] == "carol", r
        r = g.get("/accounts/alice", [cookie(value)])
        assert r.status == 404, r
        assert g.ok("/accounts/carol", [cookie(value)])


# attempts


FAILURES = 10       # of an address in a minute


def fail(g, source, n, how="session"):
    """So many attempts fail."""
    for _ in range(n):
        wrong = Operator("x", "admin").secret
        unsigned(g.sign_in(wrong, source=source) if how == "session"
                 else g.get("/accounts", [bearer(wrong)], source=source))


def limited(r):
    error = refused(r, 429, "RATE_LIMITED")
    assert 1 <= int(r.get("retry-after")) <= 60
    return error


@pytest.mark.parametrize("how", ["session", "bearer", "both"])
def test_attempts(start, how):
    """After ten even the right token is refused, or it could be told from the
    others; other addresses, sessions and the gateway are served."""
    g = start()
    bad, good = address(), address()
    alice = g.operator("alice")
    value = g.session(alice, source=bad)
    if how == "both":
        fail(g, bad, FAILURES // 2, "session")
        fail(g, bad, FAILURES - FAILURES // 2, "bearer")
    else:
        fail(g, bad, FAILURES, how)
    before = g.state()
    for _ in range(4 * g.gw.workers):
        limited(g.sign_in("op-eu-" + "0" * 48, source=bad))
        limited(g.sign_in(alice.secret, source=bad))
        limited(g.get("/accounts", [bearer("op-eu-" + "1" * 48)], source=bad))
        limited(g.topup([bearer("op-eu-" + "1" * 48)], source=bad))
    assert g.state() == before
    g.works(value, "alice", "admin", source=bad)
    assert g.topup(OWN + [cookie(value)], source=bad).status == 201
    for _ in range(4 * g.gw.workers):
        g.works(g.session(alice, source=good), source=good)
        assert g.ok("/accounts", [bearer(alice.secret)], source=good)
    assert g.gw.request("POST", "/v1/chat/completions", g.gw.bob, [], chat(),
                        source=bad).status == 200
    assert g.read("/accounts")


def test_attempts_by_name_in_a_header(start):
    """The address is the connection's, whatever a header says."""
    g = start()
    bad = address()
    for i in range(FAILURES):
        unsigned(g.sign_in(Operator("x", "admin").secret,
                           OWN + [("X-Forwarded-For", "10.0.0.%d" % i),
                                  ("X-Real-IP", "10.0.0.%d" % i)],
                           source=bad))
    limited(g.sign_in("op-eu-x", OWN + [("X-Forwarded-For", "10.9.9.9"),
                                        ("X-Real-IP", "10.9.9.9")],
                      source=bad))


def test_attempts_are_forgotten(start, clock):
    """After a minute, also if tries went on meanwhile."""
    g = start()
    bad = address()
    alice = g.operator("alice")
    clock.set("ahead", "0")
    fail(g, bad, FAILURES)
    limited(g.sign_in(alice.secret, source=bad))
    for seconds in (20, 40):
        clock.set("ahead", "%d" % seconds)
        g.sign_in("op-eu-x", source=bad)
    clock.set("ahead", "125")
    wait(lambda: g.sign_in(alice.secret, source=bad).status == 200,
         "locked out")
    fail(g, bad, 1)
    assert g.sign_in(alice.secret, source=bad).status == 200


def test_attempts_of_a_clock_that_was_set_back(start, clock):
    """Nobody waits for longer than a minute."""
    clock.set("ahead", "3600")
    g = start()
    bad = address()
    fail(g, bad, FAILURES)
    limited(g.sign_in(g.operator("alice").secret, source=bad))
    clock.set("ahead", "0")
    g.works(g.session(g.operator("alice"), source=bad), source=bad)


def test_good_requests_do_not_count(start):
    g = start()
    source = address()
    alice = g.operator("alice")
    for _ in range(3 * FAILURES):
        g.session(alice, source=source)
        assert g.ok("/session", [bearer(alice.secret)], source=source)
        unsigned(g.get("/accounts", source=source))
    assert g.session(alice, source=source)


def test_old_cookies_do_not_count(start):
    """A page that is open since yesterday asks again and again: who sits
    before it can sign in."""
    g = start()
    source = address()
    old = g.session(g.operator("alice"))
    assert g.send("DELETE", "/session", OWN + [cookie(old)]).status == 204
    for _ in range(3 * FAILURES):
        unsigned(g.get("/session", [cookie(old)], source=source))
    g.works(g.session(g.operator("alice"), source=source), source=source)


@pytest.mark.parametrize("n", [100, 900, 1100])
def test_many_addresses_that_fail(start, n):
    """Nothing breaks, no other address is refused, and one that goes on is
    refused still; of more than 1024 in a minute some are forgotten."""
    g = start()
    bad = address()
    for i in range(n):
        unsigned(g.sign_in("op-eu-x", source="127.200.%d.%d" % (i // 250,
                                                               1 + i % 250)))
        if i == (n - 50 if n < 1024 else n - 1):
            fail(g, bad, FAILURES)
    limited(g.sign_in("op-eu-x", source=bad))
    g.works(g.session(g.operator("alice")))


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_attempts_over_ipv6(start):
    """An address of IPv4 is the same one through a socket of both families."""
    port = free_port("")
    g = start(http=PARTS["http"] + """
    server { listen [::]:%d ipv6only=off; server_name gateway.test;
             location %s/ { modelgw_admin; } }""" % (port, API))

    def over_six(source):
        with socket.create_connection((
                "::1" if ":" in source else "127.0.0.1", port), LIMIT,
                (source, 0)) as sock:
            c = client.Connection.__new__(client.Connection)
            c.sock, c.data, c.eof = sock, b"", None
            c.request("POST", API + "/session", OWN,
                      {"token": Operator("x", "admin").secret})
            return c.response()

    source = address()
    fail(g, source, FAILURES // 2)
    for _ in range(FAILURES - FAILURES // 2):
        unsigned(over_six(source))
    limited(over_six(source))
    limited(g.sign_in("op-eu-x", source=source))
    for _ in range(FAILURES):
        unsigned(over_six("::1"))
    limited(over_six("::1"))
    unsigned(over_six(address()))


def test_origin_over_tls(start, tmp_path):
    """There a page of plain HTTP is not ours, whose network anyone may be."""
    port, name = free_port(), str(tmp_path / "c.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=gateway.test",
         "-days", "30", "-keyout", name, "-out", name + ".crt"],
        check=True, capture_output=True)
    g = start(http=PARTS["http"] + """
    server { listen 127.0.0.1:%d ssl; server_name gateway.test;
             ssl_certificate %s.crt; ssl_certificate_key %s;
             location %s/ { modelgw_admin; } }""" % (port, name, name, API))
    value = g.session(g.operator("alice"))
    context = ssl.create_default_context(cafile=name + ".crt")
    context.check_hostname = False
    for origin, status in (("https://gateway.test", 201),
                           ("http://gateway.test", 403),
                           ("https://evil.test", 403), ("null", 403)):
        with socket.create_connection(("127.0.0.1", port), LIMIT) as sock, \
                context.wrap_socket(sock) as tls:
            c = client.Connection.__new__(client.Connection)
            c.sock, c.data, c.eof = tls, b"", None
            c.request("POST", API + "/accounts/alice/topups",
                      [cookie(value), PAGE, ("Origin", origin)], g.amount())
            r = c.response()
        assert r.status == status, (origin, r)


CRYPT = r"""
#include <stdio.h>
#include <stddef.h>

static char *
called(void)
{
    FILE  *f = fopen(DIR "/called", "a");

    if (f) {
        fputs("crypt\n", f);
        fclose(f);
    }

    return NULL;
}

char *crypt(const char *key, const char *salt) { return called(); }
char *crypt_r(const char *key, const char *salt, void *data)
    { return called(); }
"""


def test_no_password_hash(gateway, tmp_path, monkeypatch):
    """One takes 100 ms of a worker, in which no call goes on.  What nginx's
    auth_basic does is seen here, so ours would be."""
    shim = Shim(tmp_path / "shim", CRYPT, monkeypatch)
    called = tmp_path / "shim" / "called"
    g = Console(gateway(**dict(PARTS, locations=ADMIN + """
        location /basic/ { auth_basic x; auth_basic_user_file $dir/users;
                           return 204; }
        location /files/ { auth_basic x; auth_basic_user_file $dir/users; }
        """), operators=trio(), files={"users": "eve:$6$salt$x\n"}))
    for token in ("op-eu-x", Operator("x", "admin").secret,
                  Key("x", "b").secret, g.operator("alice").secret,
                  g.gw.bob.secret):
        g.sign_in(token)
        g.get("/accounts", [bearer(token)])
        g.get("/accounts", [basic("eve", token)])
    assert not called.exists()
    assert g.gw.chat().status == 200
    r = g.gw.get("/files/x", headers=[basic("eve", "x")])
    assert called.exists(), r
    g.gw.expect("crypt")
