"""Models: the list, the object, and which model a key may use."""

import urllib.parse

import pytest

import gateway as lib
from client import assert_flat, assert_ids
from gateway import Key, chat, messages
from upstream import message_stream, sse


def body_without(r, *words):
    """The answer, with what the client chose masked."""
    body = r.body.decode()
    for word in words:
        body = body.replace(word, "X")
    return r.status, body, sorted(n.lower() for n, v in r.headers
                                  if n.lower() != "content-length")


def ids(r):
    return [m["id"] for m in r.json()["data"]]


def test_list(gw, http):
    r = gw.get("/v1/models", gw.alice, version=http)
    assert r.status == 200 and r.complete, r
    assert r.get("content-type").split(";")[0] == "application/json"
    assert_ids(r)
    assert r.json() == {"object": "list", "data": [
        {"id": id, "object": "model", "owned_by": "vendor-a"}
        for id in ("fam-a-large", "fam-a-small", "fam-a-mini")]}


def test_list_shows_no_patterns(gw):
    r = gw.get("/v1/models", gw.bob)
    assert ids(r) == ["fam-b-one", "fam-b-two"]
    assert b"code-" not in r.body and b"~" not in r.body


def test_list_of_a_restricted_key(gw):
    assert ids(gw.get("/v1/models", gw.carol)) == ["fam-a-small"]


def test_K7_list_shows_only_the_keys_own(gw):
    for key in (gw.alice, gw.bob, gw.carol):
        text = gw.get("/v1/models", key).body.decode()
        other = "fam-b" if key.group == "a" else "fam-a"
        assert other not in text
        for hidden in ("large-2026", "small-2026", "one-0613", "two:v2",
                       "api.vendor", "price", "upstream"):
            assert hidden not in text


@pytest.mark.parametrize("query", ["?limit=1000", "?beta=true", "?", "?x=%00",
                                   "?after_id=x&limit=1"])
def test_list_with_a_query(gw, query):
    r = gw.get("/v1/models" + query, gw.alice)
    assert r.status == 200, r
    assert len(ids(r)) == 3


@pytest.mark.parametrize("name,value", [
    ("If-Match", '"x"'), ("If-None-Match", "*"), ("Range", "bytes=0-3"),
    ("If-Unmodified-Since", "Mon, 01 Jan 2001 00:00:00 GMT"),
    ("If-Modified-Since", "Mon, 01 Jan 2035 00:00:00 GMT")])
def test_conditions(gw, name, value):
    """No resource has a version: the whole list, or a flat error."""
    for r in (gw.get("/v1/models", gw.alice, [(name, value)]),
              gw.chat(headers=[(name, value)])):
        if r.status != 200:
            assert_flat(r, 412)
        else:
            assert r.complete and r.json()
    r = gw.get("/v1/models", headers=[(name, value)])
    assert_flat(r, 401, "API_KEY_REQUIRED")


def test_list_with_a_body(gw):
    """A GET with a body is odd, but the next request is read where it is."""
    with gw.connect() as c:
        for _ in range(3):
            c.request("GET", "/v1/models", [gw.alice.bearer()],
                      body=b"GET /evil HTTP/1.1\r\n\r\n")
            r = c.response()
            if r is None:
                break
            assert r.status in (200, 400), r


def test_head_of_the_list(gw):
    r = gw.request("HEAD", "/v1/models", gw.alice)
    assert r.status in (200, 405), r


def test_object(gw, http):
    r = gw.get("/v1/models/fam-a-large", gw.alice, version=http)
    assert r.status == 200, r
    assert r.json() == {"id": "fam-a-large", "object": "model",
                        "owned_by": "vendor-a"}
    assert r.get("content-type").split(";")[0] == "application/json"
    assert_ids(r)


@pytest.mark.parametrize("id", ["fam%2Da%2Dlarge", "%66am-a-large",
                                "fam-a-larg%65", "fam-a-large?x=1"])
def test_object_percent_encoded(gw, id):
    r = gw.get("/v1/models/" + id, gw.alice)
    assert r.status == 200 and r.json()["id"] == "fam-a-large", r


def test_ids_with_odd_characters(gateway):
    """The SDKs encode the id whole: a slash arrives as %2F."""
    odd = "fam-b-x/y:z@1+2.3_4"
    g = gateway(groups=lib.group_a() + lib.group_b(
        models="model %s up-1 input=1 output=1;" % odd))
    for text in (urllib.parse.quote(odd, safe=""), odd,
                 urllib.parse.quote(odd)):
        r = g.get("/v1/models/" + text, g.bob)
        assert r.status == 200 and r.json()["id"] == odd, r
    assert ids(g.get("/v1/models", g.bob)) == [odd]
    r = g.chat(chat(odd))
    assert r.status == 200 and r.json()["model"] == odd, r


def test_K7_unknown_object(gw, http):
    """Unknown, another group's, not enabled, not listed: one 404."""
    answers = set()
    for key, id in ((gw.alice, "nothing"), (gw.alice, "fam-a-nothing"),
                    (gw.alice, "fam-b-one"), (gw.alice, "code-x"),
                    (gw.alice, "large-2026-01-01"), (gw.carol, "fam-a-large"),
                    (gw.carol, "fam-b-two"), (gw.bob, "fam-a-large")):
        r = gw.get("/v1/models/" + id, key, version=http)
        assert_flat(r, 404, "NOT_FOUND")
        answers.add(str(body_without(r, id)))
    assert len(answers) == 1, answers


@pytest.mark.parametrize("id", ["%00", "fam-a-large%00", "fam-a-large/",
                                "fam-a-large%20", "%2e%2e%2fmodels", "..",
                                "%0d%0aX: y", "x" * 3000, "%ff", "\u00e9",
                                "~%5Ecode-(.%2B)$"])
def test_object_of_hostile_ids(gw, id):
    r = gw.get("/v1/models/" + id, gw.alice)
    assert r.status in (200, 400, 404), r
    assert r.get("content-type").split(";")[0] == "application/json"
    if r.status == 200:             # nginx resolves ".." to the list
        assert b"vendor-b" not in r.body
    assert r.get("x") is None


def test_pattern_matches(gw):
    for id, upstream in (("code-fast", "fast"), ("code-a/b", "a/b"),
                         ("code-x", "x")):
        r = gw.chat(chat(id))
        assert r.status == 200, r
        assert gw.b.last().json()["model"] == upstream
        assert r.json()["model"] == id


def test_pattern_object(gw):
    """A pattern's model can be used, so it may be looked up."""
    r = gw.get("/v1/models/code-fast", gw.bob)
    assert r.status in (200, 404), r
    if r.status == 200:
        assert r.json() == {"id": "code-fast", "object": "model",
                            "owned_by": "vendor-b"}


@pytest.mark.parametrize("id", ["code-", "xcode-fast", "code-fast\n", "code",
                                "code-a b", "code-\u00e9", 'code-"', "code-\\",
                                "code-a\x00b", "code-\x7f", "code-<>"])
def test_pattern_and_hostile_ids(gw, id):
    """Ids match [A-Za-z0-9._:/@+-]; nothing else reaches the upstream."""
    r = gw.chat(chat(id))
    assert_flat(r, 400, ("INVALID_MODEL", "INVALID_FIELD"))
    assert gw.untouched()


def test_P12_unknown_and_not_enabled_are_one_answer(gw, http):
    answers = set()
    for id in ("fam-a-nothing", "fam-a-large", "fam-a-mini", "nothing",
               "small-2026-02-02"):
        r = gw.messages(messages(id), gw.carol, version=http)
        assert_flat(r, 400, "INVALID_MODEL")
        answers.add(str(body_without(r, id)))
    assert len(answers) == 1, answers
    assert gw.untouched()


def test_enabled_model(gw):
    assert gw.messages(messages("fam-a-small"), gw.carol).status == 200
    assert gw.a.last().json()["model"] == "small-2026-02-02"


def test_upstream_ids_are_no_service_ids(gw):
    for id in ("one-0613", "vendor/two:v2@eu+x", "large-2026-01-01"):
        r = gw.chat(chat(id))
        assert_flat(r, 400, "INVALID_MODEL")
    assert gw.untouched()


def test_provider_mismatch(gw, http):
    """Another group's family: the error says that the key is wrong for it."""
    for id in ("fam-a-large", "fam-a-nothing"):
        r = gw.chat(chat(id), version=http)
        assert_flat(r, 403, "PROVIDER_MISMATCH")
    for id in ("fam-b-one", "code-x", "fam-b-nothing"):
        r = gw.messages(messages(id), version=http)
        assert_flat(r, 403, "PROVIDER_MISMATCH")
    assert gw.untouched()


def test_provider_mismatch_tells_nothing_of_models(gw):
    """An existing model of the other group looks like an unknown one."""
    one = gw.chat(chat("fam-a-large"))
    two = gw.chat(chat("fam-a-nothing"))
    assert body_without(one, "fam-a-large") == body_without(two,
                                                            "fam-a-nothing")


@pytest.mark.parametrize("target", ["/v1/messages", "/v1/messages?beta=true",
                                    "/v1/messages/count_tokens"])
def test_messages_endpoint_with_a_chat_group(gw, target, http):
    r = gw.post(target, messages("fam-b-one"), gw.bob, version=http)
    assert_flat(r, 403, "PROVIDER_MISMATCH")
    assert gw.untouched()


def test_chat_endpoint_with_a_messages_group(gw, http):
    """It is translated: the upstream gets a call of the messages API."""
    r = gw.chat(chat("fam-a-large"), gw.alice, version=http)
    assert r.status == 200 and r.json()["object"] == "chat.completion", r
    assert r.json()["model"] == "fam-a-large"
    sent = gw.a.last()
    assert sent.target == "/v1/messages"
    assert sent.get("anthropic-version") == "2023-06-01"
    assert sent.get("content-type") == "application/json"


def test_group_of_both_protocols(gateway):
    """The upstream has both APIs: neither endpoint is translated."""
    g = gateway(groups=lib.group_a(protocol="messages chat")
                + lib.group_b(protocol="chat messages"))
    for key, id, upstream in ((g.alice, "fam-a-large", g.a),
                              (g.bob, "fam-b-one", g.b)):
        r = g.chat(chat(id), key)
        assert r.status == 200 and r.json()["object"] == "chat.completion"
        assert upstream.last().target == "/v1/chat/completions"
        r = g.messages(messages(id), key)
        assert r.status == 200 and r.json()["type"] == "message"
        assert upstream.last().target == "/v1/messages"
        assert r.json()["model"] == id


def test_models_of_the_key_and_patterns(gateway):
    """A key with a list may use what is in the list, and no more."""
    key = Key("list", "b", "models=fam-b-two")
    g = gateway(keys=[key])
    assert g.chat(chat("fam-b-two"), key).status == 200
    for id in ("fam-b-one", "code-x"):
        assert_flat(g.chat(chat(id), key), 400, "INVALID_MODEL")


def test_first_pattern_counts(gateway):
    g = gateway(groups=lib.group_a() + lib.group_b(models="""
        model code-special  special-up  input=1 output=1;
        model ~^code-(a.*)$  first/$1  input=1 output=1;
        model ~^code-(.)(.*)$  second/$2/$1  input=1 output=1;"""))
    for id, upstream in (("code-special", "special-up"),
                         ("code-abc", "first/abc"),
                         ("code-bcd", "second/cd/b")):
        r = g.chat(chat(id))
        assert r.status == 200, r
        assert g.b.last().json()["model"] == upstream
        assert r.json()["model"] == id


def test_groups_that_share_an_upstream(gateway):
    """The group decides the credential, not the upstream."""
    g = gateway(groups=lib.group_a()
                + lib.group_b(name="api.vendor-a.test", protocol="messages"))
    g.a.script(sse(message_stream("one-0613")))
    r = g.messages(messages("fam-b-one", stream=True), g.bob)
    assert r.status == 200, r
    assert g.a.last().get("authorization") == "Bearer " + g.secret_b
    assert g.a.last().get("x-api-key") is None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("target", ["/v1/models", "/v1/models/fam-a-large"])
def test_wrong_method(gw, method, target):
    r = gw.request(method, target, gw.alice, body=b"{}")
    assert_flat(r, 405, "METHOD_NOT_ALLOWED")
    assert "GET" in r.get("allow")
