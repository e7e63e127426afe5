"""Answers that are one JSON document: the model's id, the rest byte for byte,
headers."""

import gzip
import json

import pytest

from client import assert_flat, assert_ids
from gateway import chat, messages
from upstream import (chat_completion, chat_usage, message, raw, reply,
                      reply_json, sse, chat_stream)


@pytest.fixture(params=["sized", "chunked", "close"])
def framing(request):
    return request.param


def test_chat(gw, framing, http):
    gw.b.script(reply_json(chat_completion("one-0613"), framing=framing))
    r = gw.chat(version=http)
    assert r.status == 200 and r.complete, r
    assert r.json() == chat_completion("fam-b-one")
    assert r.get("content-type") == "application/json"
    assert_ids(r)


def test_messages(gw, framing, http):
    gw.a.script(reply_json(message("large-2026-01-01"), framing=framing))
    r = gw.messages(version=http)
    assert r.status == 200 and r.complete, r
    assert r.json() == message("fam-a-large")
    assert_ids(r)


def test_count_tokens(gw):
    gw.a.script(reply(body=b'{"input_tokens" : 2095}'))
    r = gw.post("/v1/messages/count_tokens?beta=true", messages(), gw.alice)
    assert r.status == 200 and r.complete, r
    assert r.body == b'{"input_tokens" : 2095}'


@pytest.mark.parametrize("old", ['"one-0613"', '"another-2026"', '""'])
@pytest.mark.parametrize("text", [
    '{"model":@,"choices":[]}',
    '{"choices":[],"model":@}',
    ' {\r\n"model"\t:\n@ , "x":1.0e5,"y":"\\u0041\\/"}\n ',
    '{"choices":[{"message":{"content":"\\"model\\":\\"one-0613\\""}}],'
    '"model":@}',
    '{"x":{"model":"one-0613"},"model":@,"z":[{"model":"q"}]}',
    '{"mod\\u0065l":@,"choices":[]}',
    '{"usage":{"prompt_tokens":1,"completion_tokens":2},"choices":[],'
    '"model":@,"usage_x":null}'], ids=range(7))
def test_only_the_model_changes(gw, text, old, framing):
    """Byte for byte, except for the value of the root's model."""
    expected = text.replace("@", '"fam-b-one"').encode()
    gw.b.script(reply(body=text.replace("@", old).encode(),
                      framing=framing))
    r = gw.chat()
    assert r.status == 200 and r.complete, r
    assert r.body == expected
    if r.get("content-length"):
        assert int(r.get("content-length")) == len(expected)


@pytest.mark.parametrize("model", ["null", "5", '{"id":"x"}', "[]"])
def test_model_of_another_type(gw, model):
    body = b'{"choices":[],"model":%s}' % model.encode()
    gw.b.script(reply(body=body))
    r = gw.chat()
    assert r.status == 200, r
    assert r.body == body or r.json()["model"] == "fam-b-one"


def test_no_model_in_the_answer(gw):
    gw.b.script(reply(body=b'{"choices":[]}'))
    r = gw.chat()
    assert r.status == 200 and r.body == b'{"choices":[]}', r


@pytest.mark.parametrize("size", [1000, 70000, 1 << 20, 8 << 20])
def test_sizes(gw, size, framing, http):
    obj = chat_completion("one-0613", "x\u20ac" * (size // 4))
    gw.b.script(reply_json(obj, framing=framing))
    r = gw.chat(version=http)
    assert r.status == 200 and r.complete, (r.status, len(r.body))
    assert r.json() == dict(obj, model="fam-b-one")


def test_size_beyond_any_bound(gw, framing):
    """Whole, or refused: never truncated."""
    obj = chat_completion("one-0613", "x" * (40 << 20))
    gw.b.script(reply_json(obj, framing=framing))
    r = gw.chat()
    if r.status == 200:
        assert r.complete and r.json() == dict(obj, model="fam-b-one")
    else:
        assert_flat(r, 502, "UPSTREAM_ERROR")
    gw.b.reset()
    assert gw.chat().status == 200


def test_model_behind_everything(gw, framing):
    """The id is replaced wherever it is."""
    obj = chat_completion("one-0613", "x" * 300000)
    obj["model"] = obj.pop("model")
    gw.b.script(reply_json(obj, framing=framing))
    r = gw.chat()
    assert r.status == 200
    assert r.json()["model"] == "fam-b-one"


def test_answer_in_small_pieces(gw):
    body = json.dumps(chat_completion("one-0613")).encode()
    head = (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body))
    steps = []
    for i in range(0, len(head + body), 7):
        steps += [(head + body)[i:i + 7], 0.002]
    gw.b.script(raw(*steps))
    r = gw.chat()
    assert r.status == 200 and r.json()["model"] == "fam-b-one", r


@pytest.mark.parametrize("ctype", [
    "application/json", "application/json; charset=utf-8",
    "Application/JSON", "application/json;charset=UTF-8"])
def test_content_types(gw, ctype):
    gw.b.script(reply_json(chat_completion("one-0613"), ctype=ctype))
    r = gw.chat()
    assert r.status == 200, r
    assert r.get("content-type").lower().startswith("application/json")
    assert r.json()["model"] == "fam-b-one"


DROPPED = [("Set-Cookie", "__cf_bm=abc; path=/"),
           ("Location", "https://api.vendor-b.test/x"),
           ("Server", "cloudflare"), ("X-Powered-By", "vendor"),
           ("Via", "1.1 vendor"),
           ("Refresh", "0; url=https://api.vendor-b.test/"),
           ("openai-organization", "org-of-the-operator"),
           ("anthropic-organization-id", "org-of-the-operator")]


@pytest.mark.parametrize("name,value", DROPPED, ids=lambda v: v[:12])
def test_K6_dropped_headers(gw, name, value, http):
    for status, obj in ((200, chat_completion("one-0613")),
                        (400, {"error": {"message": "bad"}})):
        gw.b.script(reply_json(obj, status, headers=[(name, value)]))
        r = gw.chat(version=http)
        assert r.status == status, r
        assert value not in r.all(name), r


def test_K6_headers_that_echo(gw):
    """An upstream that repeats its request in response headers."""
    gw.b.script(reply_json(chat_completion("one-0613"), headers=[
        ("x-debug-authorization", "Bearer " + gw.secret_b),
        ("x-goog-api-key", gw.secret_b),
        ("x-upstream-host", "api.vendor-b.test"),
        ("content-location", "https://api.vendor-b.test/v1/x")]))
    r = gw.chat()
    assert r.status == 200, r
    for name, value in r.headers:
        assert gw.secret_b not in value, name
        assert "api.vendor-b.test" not in value, name


@pytest.mark.parametrize("names", [["request-id"], ["x-request-id"],
                                   ["request-id", "x-request-id"],
                                   ["X-Request-ID"]],
                         ids="+".join)
def test_upstream_request_id(gw, names, http):
    gw.b.script(reply_json(chat_completion("one-0613"), headers=[
        (n, "req_vendor_1") for n in names]))
    r = gw.chat(version=http)
    assert r.status == 200, r
    assert r.all("request-id") == ["req_vendor_1"]
    assert r.all("x-request-id") == ["req_vendor_1"]


def test_request_id_of_our_own(gw):
    one, two = gw.chat(), gw.chat()
    assert_ids(one), assert_ids(two)
    assert one.get("request-id") != two.get("request-id")


def test_H10_x_accel(gw):
    """X-Accel-* and similar headers have no effect, and do not pass."""
    for name, value in (("X-Accel-Redirect", "/v1/models"),
                        ("X-Accel-Buffering", "yes"),
                        ("X-Accel-Limit-Rate", "1"),    # it would not come
                        ("X-Accel-Charset", "utf-7"),
                        ("X-Accel-Expires", "1000")):
        gw.b.script(reply_json(chat_completion("one-0613"),
                               headers=[(name, value)]))
        r = gw.chat()
        assert r.status == 200, (name, r)
        assert r.json() == chat_completion("fam-b-one"), name
        assert "utf-7" not in r.get("content-type")


def test_H10_x_accel_redirect_on_errors(gw):
    gw.b.script(reply_json({"error": {"message": "no"}}, 400,
                           headers=[("X-Accel-Redirect", "/v1/models")]))
    assert_flat(gw.chat(), 400, "INVALID_REQUEST")


def test_H11_trailers(gw):
    body = json.dumps(chat_completion("one-0613")).encode()
    gw.b.script(raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    b"Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
                    b"%x\r\n" % len(body) + body
                    + b"\r\n0\r\nX-T: evil\r\nX-Api-Key: evil\r\n\r\n"))
    r = gw.chat()
    assert r.status == 200 and r.json()["model"] == "fam-b-one", r
    assert "evil" not in str(r.headers)
    gw.b.reset()
    assert gw.chat().status == 200


def test_H11_bytes_after_the_end(gw):
    """They are not read as an answer."""
    body = json.dumps(chat_completion("one-0613")).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    evil = (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b'Content-Length: 16\r\n\r\n{"model":"evil"}')
    for answer in (head + b"Content-Length: %d\r\n\r\n" % len(body) + body
                   + evil,
                   head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n"
                   % len(body) + body + b"\r\n0\r\n\r\n" + evil):
        gw.b.script(raw(answer))
        r = gw.chat()
        assert r.status in (200, 502), r
        assert b"evil" not in r.body
        gw.b.reset()
        for _ in range(3):
            r = gw.chat()
            assert r.status == 200 and b"evil" not in r.body, r


def test_stream_answer_to_a_plain_request(gw):
    """It was not asked for: it passes unchanged or becomes an error."""
    gw.b.script(sse(chat_stream("one-0613")))
    r = gw.chat()
    if r.status == 200:
        assert b"one-0613" not in r.body
    else:
        assert_flat(r, 502, "UPSTREAM_ERROR")


def test_json_answer_to_a_stream_request(gw):
    gw.b.script(reply_json(chat_completion("one-0613")))
    r = gw.chat(chat(stream=True))
    if r.status == 200:
        assert r.json()["model"] == "fam-b-one"
        assert r.get("content-type").startswith("application/json")
    else:
        assert_flat(r, 502, "UPSTREAM_ERROR")


@pytest.mark.parametrize("status", [201, 202, 203, 206, 299])
def test_other_2xx(gw, status):
    gw.b.script(reply_json(chat_completion("one-0613"), status))
    r = gw.chat()
    if 200 <= r.status < 300:
        assert r.json()["model"] == "fam-b-one"
    else:
        assert_flat(r, 502, "UPSTREAM_ERROR")


def test_keep_alive(gw):
    """One connection serves a whole session."""
    with gw.connect() as c:
        for i in range(20):
            c.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                      body=chat(stream=i % 2 == 0))
            r = c.response()
            assert r.status == 200 and r.complete, r
        assert c.alive()


def test_http_10_client(gw):
    r = gw.request("POST", "/v1/chat/completions", gw.bob, body=chat(),
                   version="h1")
    assert r.status == 200
    with gw.connect() as c:
        c.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                  body=chat(), version="HTTP/1.0")
        r = c.response()
        assert r.status == 200 and r.complete, r
        assert r.json()["model"] == "fam-b-one"
        assert r.get("transfer-encoding") is None


def test_gzip_module_beside_us(gateway):
    """gzip on in the server: clients that accept it get a correct gzip
    response."""
    g = gateway(location="gzip on; gzip_types *; gzip_min_length 1;")
    r = g.chat(headers=[("Accept-Encoding", "gzip")])
    assert r.status == 200, r
    body = r.body
    if r.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    assert json.loads(body)["model"] == "fam-b-one"
    r = g.chat(key=g.dave, headers=[("Accept-Encoding", "gzip")])
    body = r.body
    if r.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    assert json.loads(body)["code"] == "INVALID_API_KEY"


def test_usage_passes_untouched(gw):
    usage = dict(chat_usage(5, 6, 3), new_field={"x": [1]}, cost=0.01)
    gw.b.script(reply_json(chat_completion("one-0613", usage=usage)))
    assert gw.chat().json()["usage"] == usage
