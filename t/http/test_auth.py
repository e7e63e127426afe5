"""Authentication: the two headers for a key, in every form clients send."""

import hashlib
import itertools

import pytest

from client import assert_flat, build
from gateway import Key, chat, messages
from upstream import reply_json, chat_completion

ENDPOINTS = [("POST", "/v1/chat/completions", chat()),
             ("POST", "/v1/messages", messages()),
             ("POST", "/v1/messages/count_tokens", messages()),
             ("GET", "/v1/models", None),
             ("GET", "/v1/models/fam-a-large", None)]

VENDOR = "sk-ant-api03-" + "x" * 40


def call(gw, headers, endpoint=ENDPOINTS[1], **kw):
    method, target, body = endpoint
    return gw.request(method, target, headers=headers, body=body, **kw)


def key_of(gw, endpoint):
    return gw.bob if "chat" in endpoint[1] else gw.alice


def refused(gw, r, code="INVALID_API_KEY"):
    assert_flat(r, 401, code,
                "Invalid API key" if code == "INVALID_API_KEY" else None)
    assert gw.untouched()


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: e[1])
class TestEndpoints:

    def test_bearer(self, gw, endpoint, http):
        r = call(gw, [key_of(gw, endpoint).bearer()], endpoint, version=http)
        assert r.status == 200, r

    def test_x_api_key(self, gw, endpoint, http):
        r = call(gw, [key_of(gw, endpoint).header()], endpoint, version=http)
        assert r.status == 200, r

    def test_same_key_twice(self, gw, endpoint):
        key = key_of(gw, endpoint)
        r = call(gw, [key.bearer(), key.header()], endpoint)
        assert r.status == 200, r

    def test_missing(self, gw, endpoint, http):
        refused(gw, call(gw, [], endpoint, version=http), "API_KEY_REQUIRED")

    def test_unknown(self, gw, endpoint, http):
        refused(gw, call(gw, [Key("x", "a").bearer()], endpoint,
                         version=http))
        refused(gw, call(gw, [Key("x", "a").header()], endpoint,
                         version=http))

    def test_expired(self, gw, endpoint):
        refused(gw, call(gw, [gw.dave.bearer()], endpoint))

    def test_H3_two_service_keys(self, gw, endpoint):
        refused(gw, call(gw, [gw.alice.bearer(), gw.bob.header()], endpoint))
        refused(gw, call(gw, [gw.bob.bearer(), gw.alice.header()], endpoint))


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
@pytest.mark.parametrize("name", ["Authorization", "authorization",
                                  "AUTHORIZATION"])
def test_case_of_scheme_and_name(gw, scheme, name):
    r = call(gw, [(name, "%s %s" % (scheme, gw.alice.secret))])
    assert r.status == 200, r


@pytest.mark.parametrize("name", ["x-api-key", "X-Api-Key", "X-API-KEY"])
def test_case_of_x_api_key(gw, name):
    assert call(gw, [(name, gw.alice.secret)]).status == 200


@pytest.mark.parametrize("form", ["Bearer  %s", "Bearer    %s", "Bearer %s ",
                                  "Bearer %s\t", "  Bearer %s",
                                  "Bearer \t %s", "Bearer %s   "])
def test_blanks_around_bearer(gw, form):
    r = call(gw, [("Authorization", form % gw.alice.secret)])
    assert r.status == 200, r


@pytest.mark.parametrize("form", [" %s", "%s ", "\t%s\t", "   %s   "])
def test_blanks_around_x_api_key(gw, form):
    assert call(gw, [("x-api-key", form % gw.alice.secret)]).status == 200


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "bearer    "])
def test_empty_bearer(gw, value):
    """Whether it counts as a header or as none, access is denied."""
    r = call(gw, [("Authorization", value)])
    assert_flat(r, 401, ("API_KEY_REQUIRED", "INVALID_API_KEY"))
    assert gw.untouched()


@pytest.mark.parametrize("value", ["", " "])
def test_empty_x_api_key(gw, value):
    r = call(gw, [("x-api-key", value)])
    assert_flat(r, 401, ("API_KEY_REQUIRED", "INVALID_API_KEY"))
    assert gw.untouched()


def test_empty_beside_a_key(gw):
    """An empty header is not a second credential."""
    assert call(gw, [("Authorization", "Bearer "),
                     gw.alice.header()]).status == 200
    assert call(gw, [gw.alice.bearer(), ("x-api-key", "")]).status == 200


@pytest.mark.parametrize("change", [
    lambda s: s[:-1], lambda s: s + "0", lambda s: s.upper(),
    lambda s: s[6:], lambda s: "sk-eu-", lambda s: s[:-1] + "g",
    lambda s: "x" + s, lambda s: s.replace("sk-eu-", "sk-us-"),
    lambda s: s * 100, lambda s: s + "%00", lambda s: '"' + s + '"',
    lambda s: "Bearer " + s, lambda s: s + "\u00e9"],
    ids=lambda f: "")
def test_malformed(gw, change):
    value = change(gw.alice.secret)
    refused(gw, call(gw, [("Authorization", "Bearer " + value)]))
    if not value.startswith("Bearer "):
        refused(gw, call(gw, [("x-api-key", value)]))


@pytest.mark.parametrize("form", ["%s, %s", "%s,%s", "%s,", ",%s", "%s %s",
                                  "%s;%s"])
def test_H3_comma_lists(gw, form):
    value = form.replace("%s", gw.alice.secret)
    refused(gw, call(gw, [("x-api-key", value)]))
    refused(gw, call(gw, [("Authorization", "Bearer " + value)]))


def test_H3_comma_list_of_two_schemes(gw):
    refused(gw, call(gw, [("Authorization", "Basic eDp5, Bearer "
                           + gw.alice.secret)]))


def test_H3_basic(gw):
    r = call(gw, [("Authorization", "Basic " + gw.alice.secret)])
    assert_flat(r, 401)
    assert gw.untouched()


def test_other_scheme_beside_service_key(gw):
    """A scheme other than Bearer is ignored: the service key counts."""
    r = call(gw, [("Authorization", "Basic eDp5"), gw.alice.header()])
    assert r.status in (200, 401), r
    if r.status == 200:
        assert gw.a.last().get("authorization") is None


@pytest.mark.parametrize("order", [0, 1])
def test_service_key_beside_vendor_key(gw, order):
    pairs = [[gw.alice.bearer(), ("x-api-key", VENDOR)],
             [gw.alice.header(), ("Authorization", "Bearer " + VENDOR)]]
    for pair in pairs:
        r = call(gw, pair[::-1] if order else pair)
        assert r.status == 200, r
        request = gw.a.last()
        assert request.get("authorization") is None
        assert request.all("x-api-key") == [gw.secret_a]
        assert VENDOR.encode() not in request.head


def test_two_vendor_keys(gw):
    refused(gw, call(gw, [("Authorization", "Bearer " + VENDOR),
                          ("x-api-key", VENDOR + "y")]))


def test_expired_beside_valid_is_no_way_in(gw):
    """Both are service keys and differ."""
    r = call(gw, [gw.dave.header(), gw.alice.bearer()])
    assert_flat(r, 401, "INVALID_API_KEY", "Invalid API key")
    assert gw.untouched()


def test_unknown_service_key_beside_valid(gw):
    """An unknown key is refused, or ignored like a vendor's."""
    r = call(gw, [Key("x", "a").header(), gw.alice.bearer()])
    if r.status != 200:
        refused(gw, r)


def test_H3_duplicates_matrix(gw):
    """Up to three headers in any order; what is admitted is admitted with one
    key, and no credential of the client is sent to the upstream."""
    forms = [gw.alice.bearer(), gw.alice.header(), gw.bob.header(),
             ("x-api-key", VENDOR), ("Authorization", "Bearer " + VENDOR)]
    for n in (2, 3):
        for pick in itertools.product(forms, repeat=n):
            gw.a.reset()
            r = call(gw, list(pick))
            own = [value for name, value in pick if VENDOR not in value]
            bad = gw.bob.secret in own and gw.alice.bearer()[1] in own \
                or gw.bob.secret in own and gw.alice.secret in own
            if bad or not own:
                assert r.status in (400, 401), (pick, r)
            elif gw.bob.secret in own:
                assert r.status in (400, 401, 403), (pick, r)
            else:
                assert r.status in (200, 400, 401), (pick, r)
            if r.status == 200:
                request = gw.a.last()
                assert request.all("x-api-key") == [gw.secret_a]
                assert request.get("authorization") is None
            else:
                assert_flat(r, r.status)
                assert gw.untouched(), pick


def test_H3_same_x_api_key_twice(gw):
    r = call(gw, [gw.alice.header(), gw.alice.header()])
    assert r.status in (200, 401), r
    if r.status == 200:
        assert gw.a.last().all("x-api-key") == [gw.secret_a]


@pytest.mark.parametrize("body", [
    b"", b"{", b"not json", b'{"model":1}', b"\xff\xfe",
    b'{"model":"nothing"}', b"[" * 2000])
def test_body_is_not_parsed_before_the_key_holds(gw, body, http):
    refused(gw, gw.post("/v1/chat/completions", body,
                        Key("x", "a"), version=http))
    refused(gw, gw.post("/v1/chat/completions", body, version=http),
            "API_KEY_REQUIRED")


def test_refusal_comes_before_the_body(gw):
    """The response is sent before the body has been received."""
    with gw.connect() as c:
        c.send(build("POST", "/v1/messages", [Key("x", "a").bearer()],
                     length=1000))
        r = c.response()
        assert_flat(r, 401, "INVALID_API_KEY")


def test_K2_same_bytes_for_every_bad_key(gw):
    """Unknown, expired, malformed: one answer."""
    answers = set()
    for value in (Key("x", "a").secret, gw.dave.secret, "sk-eu-", "short",
                  "sk-eu-" + "z" * 48, "a" * 3000):
        r = call(gw, [("Authorization", "Bearer " + value)])
        assert r.status == 401, r
        answers.add((r.body, tuple(sorted(n.lower() for n, v in r.headers))))
    assert len(answers) == 1


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/messages"])
def test_H9_early_data(gw, target, http):
    """A request that a proxy in front got in TLS early data may be a replay,
    and each call costs money (RFC 8470, 5.2)."""
    key, body = (gw.bob, chat()) if "chat" in target \
        else (gw.alice, messages())
    r = gw.post(target, body, key, [("Early-Data", "1")], version=http)
    assert_flat(r, 425)
    assert gw.untouched()
    r = gw.get("/v1/models", key, [("Early-Data", "1")], version=http)
    assert r.status == 200, r


@pytest.mark.parametrize("digest", [
    lambda d: d[:63], lambda d: d + "0", lambda d: d[:40], lambda d: "",
    lambda d: d[:63] + "g", lambda d: "0x" + d[:62], lambda d: d + d])
def test_K3_always_the_whole_digest(check, digest):
    """64 hexadecimal digits, no more and no less."""
    whole = hashlib.sha256(b"sk-eu-x").hexdigest()
    r = check(keys_text="k sha256:%s a;\n" % digest(whole))
    assert r.returncode != 0 and "keys.conf:1" in r.stderr, r.stderr
    assert check(keys_text="k sha256:%s a;\n" % whole).returncode == 0


def test_www_authenticate_names_no_secret(gw):
    r = call(gw, [gw.dave.bearer()])
    assert gw.dave.secret not in str(r.headers) + r.body.decode()


def test_key_in_query_is_none(gw):
    r = gw.get("/v1/models?api_key=" + Key("q", "a").secret)
    assert_flat(r, 401, "API_KEY_REQUIRED")


def test_keys_of_two_groups_on_one_connection(gw):
    """The key of one request is not used for another."""
    with gw.connect() as c:
        for i in range(6):
            key = (gw.alice, gw.bob, None)[i % 3]
            c.request("GET", "/v1/models",
                      [key.bearer()] if key else [])
            r = c.response()
            if key is None:
                assert_flat(r, 401, "API_KEY_REQUIRED")
            else:
                assert r.status == 200
                owners = {m["owned_by"] for m in r.json()["data"]}
                assert owners == {"vendor-" + key.group}


def test_expires_at_its_day(gateway):
    """A key is refused from the day of expires= on, and works before."""
    late = Key("late", "b", "expires=2099-12-31")
    past = Key("past", "b", "expires=2001-01-01")
    zero = Key("zero", "b", "expires=1970-01-01")
    g = gateway(keys=[late, past, zero])
    assert g.chat(key=late).status == 200
    for key in past, zero:
        assert_flat(g.chat(key=key), 401, "INVALID_API_KEY", "Invalid API key")


def test_other_prefix(gateway):
    """modelgw_key_prefix selects which credentials are service keys."""
    ours = Key("ours", "a", prefix="gw_")
    g = gateway(http="modelgw_key_prefix gw_;", keys=[ours])
    assert g.messages(key=ours).status == 200
    r = g.messages(key=ours, headers=[
        ("x-api-key", "sk-eu-" + "0" * 48)])
    assert r.status == 200, r
    r = g.messages(key=Key("none", "a", prefix="gw_"))
    assert_flat(r, 401, "INVALID_API_KEY")


def test_upstream_sees_the_groups_credential(gw):
    gw.b.script(reply_json(chat_completion("one-0613")))
    assert gw.chat().status == 200
    assert gw.b.last().all("authorization") == ["Bearer " + gw.secret_b]
    assert gw.messages().status == 200
    assert gw.a.last().all("x-api-key") == [gw.secret_a]
