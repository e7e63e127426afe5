"""What the upstream gets: request line, headers, credential."""

import collections
import re

import pytest

import client
import gateway as lib
from client import assert_flat, build
from gateway import chat, messages
from upstream import Refused, raw, reply

CONSTANT = ("POST /v1/chat/completions HTTP/1.1",
            "POST /v1/messages HTTP/1.1",
            "POST /v1/messages?beta=true HTTP/1.1",
            "POST /v1/messages/count_tokens HTTP/1.1",
            "POST /v1/messages/count_tokens?beta=true HTTP/1.1")


@pytest.mark.parametrize("target,line", [
    ("/v1/chat/completions", CONSTANT[0]),
    ("/v1/messages", CONSTANT[1]),
    ("/v1/messages?beta=true", CONSTANT[2]),
    ("/v1/messages/count_tokens", CONSTANT[3]),
    ("/v1/messages/count_tokens?beta=true", CONSTANT[4]),
    ("/v1/chat/completions?beta=true", CONSTANT[0]),
    ("/v1/chat/completions?model=z&x=%0d%0a", CONSTANT[0]),
    ("/v1/chat/completions?", CONSTANT[0]),
    ("/v1/messages?", CONSTANT[1]),
    ("/v1/messages?x=beta=true", CONSTANT[1]),
    ("/v1/messages?xbeta=true", CONSTANT[1]),
    ("/v1/messages?beta=false", CONSTANT[1]),
    ("/v1/messages?beta=true&x=y", CONSTANT[2]),
    ("/v1/messages?x=y&beta=true", CONSTANT[2])])
def test_H6_request_line(gw, target, line, http):
    key, body = (gw.bob, chat()) if "chat" in target \
        else (gw.alice, messages())
    r = gw.post(target, body, key, version=http)
    assert r.status == 200, r
    request = (gw.b if "chat" in target else gw.a).last()
    assert request.line == line


@pytest.mark.parametrize("target", [
    "//v1/chat/completions", "/v1//chat/completions",
    "/v1/../v1/chat/completions", "/v1/./chat/completions",
    "/x/../v1/chat/completions", "/v1/chat/completions/",
    "/v1%2fchat/completions", "/v1/chat%2fcompletions",
    "/v1%2Fchat%2Fcompletions", "/%76%31/chat/completions",
    "/v1/chat/complet%69ons", "/V1/chat/completions",
    "/v1/Chat/Completions", "/v1/chat/completions;x=1",
    "/v1/chat/completions;", "/v1;/chat/completions",
    "/v1/chat/completions%00", "/v1/chat/completions%20",
    "/v1/chat/completions%0d%0aX:%20y", "/v1/chat/completions%3Fx",
    "/v1/chat/completions#frag", "/v1/chat/completions%23frag",
    "/v1/chat/completions/../completions", "/v1/chat/completions/x",
    "/v1/chat/completionsx", "/v1/v1/chat/completions",
    "/v1/chat/completions\\..\\x", "/v1/chat/../chat/completions",
    "http://evil.test/v1/chat/completions",
    "http://api.vendor-b.test/v1/chat/completions",
    "https://evil.test:1/v1/chat/completions?x",
    "http://evil.test//v1/chat/completions"])
def test_H6_path_grid(gw, target):
    """Refused with a flat error, or served with the constant request line."""
    r = gw.chat()
    assert r.status == 200
    gw.b.reset()
    r = gw.post(target, chat(), gw.bob)
    if r.status == 200:
        assert gw.b.last().line == CONSTANT[0]
        assert gw.b.last().get("host") == "api.vendor-b.test"
    else:
        assert_flat(r, (400, 404, 405))
        assert gw.untouched()


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "TRACE",
                                    "PROPFIND", "BREW", "post", "CONNECT"])
@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/messages",
                                    "/v1/messages/count_tokens"])
def test_H6_wrong_method(gw, method, target):
    key = gw.bob if "chat" in target else gw.alice
    r = gw.request(method, target, key)
    if method in ("TRACE", "CONNECT", "BREW", "post"):
        assert_flat(r, (400, 405))      # nginx itself refuses these
    else:
        assert_flat(r, 405, "METHOD_NOT_ALLOWED")
        assert r.get("allow") and "POST" in r.get("allow")
    assert gw.untouched()


@pytest.mark.parametrize("target", ["/v1/", "/v1/x", "/v1/embedding",
                                    "/v1/responses/", "/v1/chat", "/v1/complete",
                                    "/v1/messages/batches", "/v1/messages/",
                                    "/v1/messages/count_tokens/x"])
def test_H6_other_endpoints(gw, target, http):
    for method in ("GET", "POST"):
        r = gw.request(method, target, gw.alice,
                       body=b"{}" if method == "POST" else None,
                       version=http)
        assert_flat(r, (404, 405))
    r = gw.post(target, {}, gw.alice, version=http)
    assert_flat(r, 404, "NOT_FOUND")
    assert gw.untouched()


@pytest.mark.parametrize("host", ["x/v1/models?", "evil.test", "127.0.0.1",
                                  "api.vendor-b.test", "a b", "x:99999",
                                  "[::1]", "..", "evil.test/v1/messages#"])
def test_H7_host_decides_nothing(gw, host):
    with gw.connect() as c:
        c.request("POST", "/v1/chat/completions", [], body=chat(), host=host)
        r = c.response()
        assert_flat(r, (400, 401, 404))
    assert gw.untouched()
    with gw.connect() as c:
        c.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                  body=chat(), host=host)
        r = c.response()
    if r.status == 200:
        assert gw.b.last().all("host") == ["api.vendor-b.test"]
    else:
        assert_flat(r, (400, 404))


# H4: headers

def sent(gw, headers, version="h1"):
    r = gw.chat(headers=headers, version=version)
    assert r.status == 200, r
    return gw.b.last()


def test_H4_least_headers(gw):
    """Exactly these, when the client sends no other."""
    request = sent(gw, [])
    assert set(request.names()) - {"connection"} == {
        "accept-encoding", "authorization", "content-length", "content-type",
        "host"}
    assert len(request.names()) == len(set(request.names()))
    assert request.get("host") == "api.vendor-b.test"
    assert request.get("accept-encoding") == "identity"
    assert request.get("content-length") == str(len(request.body))
    assert request.get("connection", "keep-alive").lower() == "keep-alive"


DROPPED = [("Cookie", "a=b"), ("Forwarded", "for=1.2.3.4"),
           ("X-Forwarded-For", "1.2.3.4"), ("X-Forwarded-Host", "evil"),
           ("X-Forwarded-Proto", "https"), ("X-Forwarded-Port", "1"),
           ("X-Forwarded-Anything", "1"), ("X-Real-IP", "1.2.3.4"),
           ("Via", "1.1 x"), ("Proxy-Authorization", "Basic eDp5"),
           ("Proxy-Connection", "keep-alive"), ("Proxy-Anything", "x"),
           ("TE", "trailers"), ("Upgrade", "websocket"),
           ("Keep-Alive", "timeout=5"), ("Trailer", "X-Foo"),
           ("Expect", "100-continue")]


@pytest.mark.parametrize("name,value", DROPPED, ids=lambda v: v)
def test_H4_dropped(gw, name, value):
    for form in (name, name.lower(), name.upper()):
        request = sent(gw, [(form, value)])
        assert request.get(name) is None


# all that are not forwarded; a name that ends in "-" is a prefix

NAMES = """authorization x-api-key api-key x-goog-api-key cookie cookie2
connection keep-alive proxy- te trailer transfer-encoding upgrade
http2-settings expect host content-length forwarded x-forwarded- x-real-ip
x-client-ip true-client-ip x-cluster-client-ip via x-accel- early-data
content-type accept-encoding content-encoding range if-range if-match if-none-match
if-modified-since if-unmodified-since""".split()


# headers that change how a request is read: with the value "1" it would be
# refused

FRAMING = ("authorization", "host", "content-length", "transfer-encoding",
           "connection", "expect", "upgrade", "content-encoding", "early-data")


@pytest.mark.parametrize("form", [
    str.lower, str.upper, str.title, lambda n: n.replace("-", "_"),
    lambda n: n.upper().replace("-", "_")])
def test_H4_every_name_is_dropped(gw, form):
    names = [n + "x" * n.endswith("-") for n in NAMES]
    forms = {form(n) for n in names if form(n).lower() not in FRAMING}
    request = sent(gw, [(f, "1") for f in sorted(forms)])
    assert set(request.names()) <= {"host", "connection", "content-length",
                                    "authorization", "accept-encoding",
                                    "content-type"}


# what could select who pays, another's answer, another method or target; and
# unknown headers

UNLISTED = """OpenAI-Organization OpenAI-Project OpenAI-Foo OpenAI-Betas
Idempotency-Key Idempotency_Key baggage b3 x-b3-traceid sentry-trace
uber-trace-id x-amzn-trace-id x-datadog-trace-id newrelic x-portkey-provider
x-portkey-api-key X-HTTP-Method-Override X-HTTP-Method X-Method-Override
X-Original-URL X-Original-URI X-Rewrite-URL X-Forwarded-For X-Forwarded
helicone-auth cf-aig-authorization x-goog-user-project ChatGPT-Account-ID
x-organization-id Origin Referer Accept-Language Cache-Control Pragma
sec-fetch-mode x-request-id x-should-retry x-foo stainless-x x-stainless
x-claude x-codex anthropic claude-x users-agent user-agents accepts x-apps
traceparents session-ids xapp""".split()


@pytest.mark.parametrize("name", UNLISTED)
def test_H4_unlisted(gw, name):
    for form in (name, name.lower(), name.upper(), name.replace("-", "_")):
        request = sent(gw, [(form, "spoofed")])
        assert b"spoofed" not in request.head, form


def test_H4_names_beside_them_do_not_pass(gw):
    near = {n + "s" for n in NAMES if n[-1] != "-"} | {n[:-1] for n in NAMES}
    near -= set(NAMES)
    request = sent(gw, [(n, "spoofed") for n in sorted(near)])
    assert b"spoofed" not in request.head


# a family is a prefix, but none of its names may select who pays, or be a
# credential

PAYERS = """anthropic-organization-id anthropic-organisation anthropic-org-id
anthropic-org anthropic-workspace anthropic-workspace-id anthropic-project
x-claude-project-id x-claude-account x-claude-myorganization
x-codex-account-id x-codex-chatgpt-account-id x-codex-projects
x-stainless-workspace x-stainless-accountid x-codex-x-org
anthropic-api-key anthropic-auth-token x-claude-api_key x-codex-token
anthropic-client-secret x-stainless-authorization x-codex-credentials""".split()


@pytest.mark.parametrize("name", PAYERS)
def test_H4_payer_in_a_family(gw, name):
    for form in (name, name.upper(), name.replace("-", "_"),
                 name.replace("-", "_", 1), name.title()):
        request = sent(gw, [(form, "spoofed"), ("x-claude-beside", "1")])
        assert b"spoofed" not in request.head, form
        assert request.get("x-claude-beside") == "1"


@pytest.mark.parametrize("name", [
    "accept", "user-agent", "openai-beta", "anthropic-x", "x-stainless-x",
    "x-app", "originator", "session-id", "session_id", "thread-id",
    "thread_id", "conversation_id", "conversation-id", "x-session-id",
    "x-session-affinity", "x-claude-code-agent-id", "x-codex-window-id",
    "x-codex-beta-features", "x-claude-origin",
    "traceparent", "tracestate", "x-client-request-id"])
def test_H4_listed(gw, name):
    for form in (name, name.upper()):
        assert sent(gw, [(form, "v")]).all(name) == ["v"]


def test_H4_key_in_a_name(gw):
    """A service key in a name is neither forwarded nor logged."""
    for prefix in ("x-claude-", "x-"):
        request = sent(gw, [(prefix + gw.bob.secret, "1")])
        assert gw.bob.secret.encode() not in request.head


# pass_header

# what is known of a name is remembered, by the bytes that were sent

def slot(name):
    """As in conf/ngx_http_modelgw_pass_header.c."""
    h = 0
    for c in name.lower().encode():
        h = h * 31 + c
    return (h + ord(name[0])) % 256


def test_H4_names_of_one_slot(gw):
    """Of the same length; each takes the place of the one before it."""
    forms = ["x-stainless-%03d", "x-claude-abc%03d", "x-unlisted-x%03d",
             "x-codex-key-%03d", "X-Stainless-%03d", "proxy-unlist%03d"]
    slots = [{slot(form % i): form % i for i in range(1000)} for form in forms]
    common = min(set.intersection(*map(set, slots)))
    names = [by_slot[common] for by_slot in slots]
    assert len({len(n) for n in names}) == 1
    names += ["x-codex-" + "y" * 38, "x-codex-" + "y" * 39]
    for name in names * 2 + names[::-1] + [n for n in names for _ in "12"]:
        passes = name.lower().startswith((
            "x-stainless-", "x-claude-", "x-codex-y"))
        request = sent(gw, [(name, "v")])
        assert (request.get(name) == "v") == passes, name
        assert (b": v\r\n" in request.head) == passes, name


def test_H4_name_that_is_the_begin_of_another(gw):
    begin = "x-claude"
    name = next(n for n in ("x-claude-%05d" % i for i in range(100000))
                if slot(n) == slot(begin))
    for _ in range(2):
        assert sent(gw, [(name, "v")]).get(name) == "v"
        assert sent(gw, [(begin, "v")]).get(begin) is None


def test_H4_names_of_two_groups(gateway):
    g = gateway(workers=1, groups=lib.group_a()
                + lib.group_b(extra="pass_header x-foo;"))
    for _ in range(2):
        assert g.chat(headers=[("x-foo", "1"), ("x-app", "1")]).status == 200
        assert g.b.last().get("x-foo") == "1" == g.b.last().get("x-app")
        assert g.messages(headers=[("x-foo", "1"), ("x-app", "1")]).status \
            == 200
        assert g.a.last().get("x-foo") is None
        assert g.a.last().get("x-app") == "1"


@pytest.fixture(scope="module")
def more_gateway(module_gateway):
    return module_gateway(groups=lib.group_a() + lib.group_b(
        extra="pass_header X-Foo idempotency_key OpenAI-Organization; "
              "pass_header x-acme-* x-b* X-Acme-Project X-Forwarded-For; "
              "pass_header chatgpt-account-id user-agent;"))


@pytest.fixture
def more(more_gateway, upstreams):
    for u in upstreams:
        u.reset()
    return more_gateway


@pytest.mark.parametrize("name", [
    "x-foo", "X-FOO", "x_foo", "Idempotency-Key", "idempotency_key",
    "OpenAI-Organization", "x-acme-", "x-acme-a", "X_ACME_B", "x-b", "x-b3",
    "X-Bar-Baz", "x-acme-project", "X_Acme_Project", "x-forwarded-for",
    "ChatGPT-Account-ID", "User-Agent"])
def test_pass_header(more, name):
    assert sent(more, [(name, "v")]).all(name) == ["v"]


@pytest.mark.parametrize("name", [
    "x-foo-bar", "x-fo", "x-fooo", "x-acme", "x-acme-account", "x-acme-org",
    "X_acme_Organization", "x-acme-project-id", "x-bworkspace",
    "openai-project", "x-forwarded-host", "idempotency-keys", "baggage"])
def test_pass_header_passes_no_other(more, name):
    assert b"spoofed" not in sent(more, [(name, "spoofed")]).head


def test_pass_header_is_the_groups(more):
    r = more.messages(headers=[("x-foo", "spoofed"), ("x-acme-a", "spoofed")])
    assert r.status == 200
    assert b"spoofed" not in more.a.last().head


def test_pass_header_passes_no_key(more):
    request = sent(more, [("x-foo", "a " + more.bob.secret), ("x-b", "1"),
                          ("Connection", "x-b")])
    assert request.get("x-foo") is None and request.get("x-b") is None


def test_pass_header_of_a_translated_call(gateway):
    """Headers of the chat API do not pass even so."""
    g = gateway(groups=lib.group_a(extra="pass_header x-foo openai-beta "
                                         "anthropic-beta accept openai-x;")
                + lib.group_b())
    r = g.chat(chat("fam-a-large"), g.alice, [
        ("x-foo", "1"), ("session_id", "2"), ("openai-beta", "spoofed"),
        ("openai-x", "spoofed"), ("anthropic-beta", "spoofed"),
        ("accept", "spoofed"), ("x-stainless-lang", "spoofed")])
    assert r.status == 200, r
    request = g.a.last()
    assert request.get("x-foo") == "1" and request.get("session_id") == "2"
    assert b"spoofed" not in request.head


@pytest.mark.parametrize("value", ["gzip, deflate, br, zstd", "identity",
                                   "*", "", "gzip;q=1.0"])
def test_L3_accept_encoding(gw, value, http):
    request = sent(gw, [("Accept-Encoding", value)], http)
    assert request.all("accept-encoding") == ["identity"]


CONTENT_TYPES = [
    [], ["application/json"], ["application/json; charset=utf-7"],
    ["application/x-www-form-urlencoded"], ["text/plain"], [""],
    ["multipart/form-data; boundary=x"], ["Application/JSON"],
    ["application/json", "application/x-www-form-urlencoded"],
    ["application/x-www-form-urlencoded", "application/json"]]


@pytest.mark.parametrize("name", ["Content-Type", "content_type"])
@pytest.mark.parametrize("types", CONTENT_TYPES, ids="+".join)
@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/messages",
                                    "/v1/messages/count_tokens"])
def test_H4_content_type(gw, target, types, name, http):
    """The upstream must read the body as it was checked, as JSON in UTF-8: as
    a form, or in UTF-7, it may name another model and another limit.  (nginx
    itself may refuse a header that occurs twice.)"""
    key, body, up = (gw.bob, chat(), gw.b) if "chat" in target \
        else (gw.alice, messages(), gw.a)
    up.reset()
    body["metadata"] = {"x": "&model=other&max_tokens=9&"}
    r = gw.post(target, body, key, [(name, t) for t in types], version=http)
    if r.status == 400 and len(types) > 1:
        assert_flat(r, 400)
        assert not up.requests
        return
    assert r.status == 200, r
    assert up.last().all("content-type") == ["application/json"]
    assert up.last().all("content_type") == []


def test_H4_content_type_of_a_translated_call(gw):
    for name in ("Content-Type", "content_type"):
        gw.a.reset()
        r = gw.chat(chat("fam-a-large"), gw.alice,
                    [(name, "application/json; charset=utf-7")])
        assert r.status == 200, r
        assert gw.a.last().all("content-type") == ["application/json"]
        assert gw.a.last().all("content_type") == []


def test_H4_content_type_of_a_variable(gateway):
    """Nor does a directive that forwards the client's value restore it."""
    g = gateway(location="proxy_set_header Content-Type $content_type;"
                         "proxy_set_header X-Type $http_content_type;")
    assert g.chat(headers=[("Content-Type", "text/plain")]).status == 200
    request = g.b.last()
    assert request.all("content-type") == ["application/json"]
    assert request.get("x-type") == "application/json"


PASSED = [("anthropic-version", "2026-10-21"),
          ("anthropic-beta", ",".join("beta-%d-2025-01-01" % i
                                      for i in range(8))),
          ("anthropic-dangerous-direct-browser-access", "true"),
          ("X-Stainless-Retry-Count", "0"), ("x-stainless-lang", "js"),
          ("X-Stainless-Read-Timeout", "600"),
          ("User-Agent", "claude-cli/2.1.329 (external, sdk-cli)"),
          ("session_id", "abc"), ("conversation_id", "def"),
          ("OpenAI-Beta", "responses=v1"), ("X-App", "cli"),
          ("Accept", "text/event-stream"), ("traceparent", "00-1-2-01"),
          ("X-Claude-Code-Session-Id", "1"), ("originator", "codex"),
          ("x-codex-turn-metadata", '{"a":"%s"}' % ("b" * 700)),
          ("tracestate", "a=b"), ("x-client-request-id", "r")]


@pytest.mark.parametrize("name,value", PASSED, ids=lambda v: v[:20])
def test_H4_passed(gw, name, value):
    request = sent(gw, [(name, value)])
    assert request.all(name) == [value]


def test_H4_all_together(gw, http):
    """More than 20 headers: nginx keeps them in parts of 20."""
    drop = [d for d in DROPPED
            if http == "h1" or d[0].lower() not in
            ("te", "upgrade", "keep-alive", "proxy-connection", "expect")]
    mixed = [h for pair in zip(PASSED, drop) for h in pair] \
        + PASSED[len(drop):] + drop[len(PASSED):]
    many = [("X-Claude-Many-%d" % i, str(i)) for i in range(60)]
    request = sent(gw, mixed + many, http)
    for name, value in PASSED + many:
        assert request.all(name) == [value], name
    for name, _ in DROPPED:
        assert request.get(name) is None, name
    assert request.all("authorization") == ["Bearer " + gw.secret_b]
    assert request.all("accept-encoding") == ["identity"]
    assert request.get("x-api-key") is None


@pytest.mark.parametrize("at", [0, 1, 18, 19, 20, 21, 39, 40, 41, 60])
def test_H4_credential_at_any_place(gw, at):
    """The header list is compacted wherever the key is."""
    headers = [("X-Claude-Many-%d" % i, str(i)) for i in range(60)]
    headers[at:at] = [("Cookie", "x"), gw.alice.header()]
    r = gw.post("/v1/messages", messages(), headers=headers)
    assert r.status == 200, r
    request = gw.a.last()
    assert gw.alice.secret.encode() not in request.head
    assert request.get("cookie") is None
    assert request.all("x-api-key") == [gw.secret_a]
    assert [v for n, v in request.headers if n.startswith("X-Claude-Many-")] \
        == [str(i) for i in range(60)]


@pytest.mark.parametrize("value", [
    "close, X-App", "X-App", "keep-alive, x-app, x-bar", "X-APP , X-Bar",
    ",,X-App,,"])
def test_H4_named_in_connection(gw, value):
    request = sent(gw, [("Connection", value), ("X-App", "1"),
                        ("Originator", "2")])
    assert request.get("x-app") is None
    assert request.get("originator") == "2"
    assert "app" not in request.get("connection", "").lower()


def test_H4_connection_names_what_must_stay(gw):
    """A client cannot strip the credential or the length this way."""
    for name in ("authorization", "content-length", "host",
                 "accept-encoding"):
        request = sent(gw, [("Connection", "close, " + name)])
        assert request.all("authorization") == ["Bearer " + gw.secret_b]
        assert request.all("accept-encoding") == ["identity"]
        assert request.all("content-length") == [str(len(request.body))]
        assert request.all("host") == ["api.vendor-b.test"]


def test_H4_repeated_headers_pass(gw):
    request = sent(gw, [("anthropic-beta", "a"), ("anthropic-beta", "b")])
    assert ",".join(request.all("anthropic-beta")).replace(" ", "") == "a,b"


# headers that did not pass are logged

NOT_PASSED = re.compile(r"\[info\] \d+#\d+: client headers not passed to "
                        r"upstreams in the last minute: (.*)")


def not_passed(g):
    """{name: count}, as workers log it when they exit; None: others.  A name
    is logged as received first, so "_" may be "-"."""
    g.reload()
    g.wait_log("worker process .*exited with code 0", g.workers)
    counts = collections.Counter()
    for line in NOT_PASSED.findall(g.read("error.log")):
        for item in line.split(", "):
            m = re.fullmatch(r'(?:"([a-z0-9_-]{1,64})"|others) (\d+)', item)
            assert m, line
            name = m.group(1) and m.group(1).replace("_", "-")
            counts[name] += int(m.group(2))
    return counts


def test_unlisted_headers_are_logged(gateway):
    """By name and count; each worker logs its own."""
    g = gateway(groups=lib.group_a() + lib.group_b(extra="pass_header x-ok;"))
    once = [("Baggage", "canary-1"), ("OpenAI-Organization", "canary-2"),
            ("x-codex-account-id", "canary-3"), ("x_odd", "canary-4")]
    for i in range(5):
        r = g.chat(headers=once[:1] * 2 + once[1:] * (i < 3) + [
            ("X-Odd", "canary-5"), ("x-ok", "1"), ("User-Agent", "canary-6"),
            ("Cookie", "canary-7"), ("x-stainless-lang", "js"),
            ("Content-Type", "text/plain"), ("Accept-Encoding", "gzip"),
            ("x-api-key", "sk-ant-canary"), ("If-Match", "x"), ("TE", "gzip"),
            ("Connection", "keep-alive, originator"), ("originator", "x")])
        assert r.status == 200, r
    assert g.chat({}, headers=once).status == 400       # never sent at all
    assert g.get("/v1/models", g.bob, once).status == 200
    assert not_passed(g) == {"baggage": 10, "openai-organization": 3,
                             "x-codex-account-id": 3, "x-odd": 8}
    assert "canary" not in g.read("error.log")


def test_unlisted_headers_of_a_translated_call(gateway):
    """Headers of the chat API are expected; those that select who pays are not
    listed."""
    g = gateway()
    r = g.chat(chat("fam-a-large"), g.alice, [
        ("x-stainless-lang", "js"), ("accept", "*/*"), ("openai-beta", "x"),
        ("openai-organization", "o"), ("anthropic-beta", "b")])
    assert r.status == 200, r
    assert not_passed(g) == {"openai-organization": 1}


def test_unlisted_headers_are_bounded(gateway):
    """24 names, none too long or invalid, no key; on a complete line."""
    g = gateway(workers=1, server="ignore_invalid_headers off;")
    many = [("y%02d-" % i + "z" * 60, "1") for i in range(60)]
    r = g.chat(headers=[("y" * 65, "1"), ('x"y', "1"), ("x.y", "1"),
                        ("x-" + g.bob.secret, "1")] + many)
    assert r.status == 200, r
    assert not_passed(g) == dict([(n, 1) for n, _ in many[:24]]
                                 + [(None, 3 + len(many) - 24)])


def test_unlisted_headers_are_in_variables(gateway):
    """The access log has them as if they had passed, but no service key."""
    g = gateway(
        http='log_format odd "$http_x_odd|$http_baggage|$http_x_stainless_lang'
             '|$http_authorization$http_x_api_key$http_x_holds|";',
        location="access_log $dir/odd.log odd;")
    headers = [("X-Odd", "1"), ("x-stainless-lang", "js"), ("Baggage", "2"),
               ("x-holds", g.bob.secret), ("x-many", "3")]
    for call in (g.chat, g.chat):
        assert call(headers=headers).status == 200
    g.b.script(raw("close"))
    assert g.chat(headers=headers).status == 502
    for request in g.b.requests:
        assert not {"x-odd", "baggage", "x-many"} & set(request.names())
    g.stop()
    assert g.read("odd.log") == "1|2|js|---|\n" * 3


def test_unlisted_headers_only_at_info(gateway):
    g = gateway(log_level="notice")
    assert g.chat(headers=[("x-foo", "1")]).status == 200
    g.reload()
    g.stop()
    assert "not passed" not in g.read("error.log")


def test_unlisted_headers_after_a_minute(gateway):
    """One timer of a minute, which does not delay the exit of a worker."""
    g = gateway(workers=1, log_level="debug")
    for _ in range(3):
        assert g.chat(headers=[("user-agent", "1")]).status == 200
    if "modelgw answer: status" not in g.read("error.log"):
        pytest.skip("the module is built without its debug log")
    assert not re.search("event timer add: -1: 60000:", g.read("error.log"))
    for _ in range(3):
        assert g.chat(headers=[("x-foo", "1")]).status == 200
    g.stop()
    text = g.read("error.log")
    assert len(re.findall("event timer add: -1: 60000:", text)) == 1
    assert NOT_PASSED.findall(text) == ['"x-foo" 3']


def test_H5_no_new_lines_from_values(gw):
    with gw.connect() as c:
        c.send(build("POST", "/v1/chat/completions",
                     [gw.bob.bearer(), ("X-A", "1\r X-Evil: 2")],
                     body=chat()))
        c.response()
    for request in gw.b.requests:
        assert request.get("x-evil") is None


def test_H8_connection_headers_over_h2(gw):
    """RFC 9113, 8.2.2: such a request is malformed; if nginx accepts it
    nevertheless, the headers are not forwarded."""
    for name, value in (("connection", "x-app"), ("te", "gzip"),
                        ("keep-alive", "1"), ("proxy-connection", "x"),
                        ("upgrade", "h2c"),
                        ("transfer-encoding", "chunked")):
        gw.b.reset()
        r = gw.chat(headers=[(name, value), ("x-app", "1")], version="h2")
        if r is not None and r.status == 200:
            request = gw.b.last()
            assert request.get(name) in (None, "keep-alive"), name
            assert request.all("content-length") == [str(len(request.body))]
        elif r is not None:
            assert_flat(r, 400)


def test_H1_sized_upwards(gw):
    """Whatever the client's framing, the upstream gets a Content-Length."""
    for kw in ({}, {"chunked": True}, {"chunked": 1}, {"version": "h2"}):
        gw.b.reset()
        assert gw.chat(chat("code-x"), **kw).status == 200
        request = gw.b.last()
        assert request.all("content-length") == [str(len(request.body))]
        assert request.get("transfer-encoding") is None


# the group's credential

@pytest.mark.parametrize("spec,name,form", [
    ("x-api-key file:$dir/b.secret", "x-api-key", "%s"),
    ("Authorization file:$dir/b.secret bearer", "authorization",
     "Bearer %s"),
    ("authorization file:$dir/b.secret", "authorization", "%s"),
    ("X-Goog-Api-Key file:$dir/b.secret", "x-goog-api-key", "%s"),
    ("api-key file:$dir/b.secret bearer", "api-key", "Bearer %s"),
    ("X-Claude-Token file:$dir/b.secret", "x-claude-token", "%s")])
def test_credential(gateway, spec, name, form):
    g = gateway(groups=lib.group_a() + lib.group_b(credential=spec))
    for headers in ([], [(name.title(), "evil")], [(name.upper(), "evil")] * 2):
        if name in ("authorization", "x-api-key"):
            headers = []
        r = g.chat(headers=headers)
        assert r.status == 200, r
        request = g.b.last()
        assert request.all(name) == [form % g.secret_b]
        assert g.bob.secret.encode() not in request.head
        for other in {"authorization", "x-api-key"} - {name}:
            assert request.get(other) is None


def test_keepalive_upwards(gw):
    """One connection to the upstream for consecutive requests."""
    for _ in range(5):
        assert gw.chat().status == 200
    if gw.workers == 1:
        assert len({r.conn for r in gw.b.requests}) == 1


def test_host_is_the_upstreams_name(gw):
    assert gw.messages().status == 200
    assert gw.a.last().all("host") == ["api.vendor-a.test"]


def test_proxy_http_10_upwards(gateway):
    """Even so the request has a length, and no connection header is
    forwarded."""
    g = gateway(gateway="""
        location /v1/ {
            modelgw on;
            proxy_http_version 1.0;
            proxy_pass $modelgw_upstream;
        }""")
    r = g.chat(headers=[("Connection", "close, X-App"), ("X-App", "1")])
    assert r.status == 200, r
    request = g.b.last()
    assert request.line == "POST /v1/chat/completions HTTP/1.0"
    assert request.get("x-app") is None
    assert request.all("content-length") == [str(len(request.body))]


def test_proxy_set_header_of_the_operator(gateway):
    """An operator's own header is added; ours remain."""
    g = gateway(location='proxy_set_header X-Mine "yes"; '
                         'proxy_set_header Connection "";')
    r = g.chat(headers=[("Accept-Encoding", "gzip")])
    assert r.status == 200, r
    request = g.b.last()
    assert request.get("x-mine") == "yes"
    assert request.all("authorization") == ["Bearer " + g.secret_b]
    assert request.all("accept-encoding") == ["identity"]


def test_two_servers_with_one_upstream_block(gateway):
    """The second server of the block is tried only if nothing was sent."""
    refused = Refused()
    try:
        g = gateway(upstreams="""
    upstream api.vendor-a.test { server 127.0.0.1:$a; }
    upstream api.vendor-b.test { server 127.0.0.1:%d; server 127.0.0.1:$b; }
""" % refused.port)
        for _ in range(4):
            assert g.chat().status == 200
        assert len(g.b.requests) == 4
    finally:
        refused.stop()


def test_h2_many_requests_on_one_connection(gw):
    with client.H2(gw.port2) as c:
        for i in range(20):
            key, body, target = [
                (gw.bob, chat("code-%d" % i), "/v1/chat/completions"),
                (gw.alice, messages(), "/v1/messages")][i % 2]
            r = c.call("POST", target, [key.bearer()], body)
            assert r.status == 200, r
            assert r.json()["model"] == body["model"]


def test_h2_streams_in_parallel(gw):
    with client.H2(gw.port2) as c:
        sids = [c.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                          chat("code-%d" % i)) for i in range(30)]
        for i, sid in enumerate(sids):
            r = c.response(sid)
            assert r.status == 200 and r.json()["model"] == "code-%d" % i


@pytest.mark.parametrize("field", ["api_base", "base_url", "extra_headers",
                                   "user_config", "provider"])
def test_K8_no_host_of_the_client(gw, field):
    """No field of a body can select the host."""
    gw.a.reset(), gw.b.reset()
    r = gw.chat(chat(**{field: "http://127.0.0.1:%d/" % gw.a.port}))
    assert_flat(r, 400, "INVALID_FIELD", has=field)
    assert gw.untouched()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_K8_redirects_are_not_followed(gw, status):
    """Nor can an upstream, by a redirect."""
    gw.a.reset(), gw.b.reset()
    where = "http://127.0.0.1:%d/v1/chat/completions" % gw.a.port
    gw.b.script(reply(status, b"", headers=[("Location", where)]))
    r = gw.chat()
    assert_flat(r, 502, "UPSTREAM_ERROR")
    assert r.get("location") is None
    assert not gw.a.requests and len(gw.b.requests) == 1
