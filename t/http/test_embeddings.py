"""POST /v1/embeddings: passed through, metered by its input, and never kept in
memory when it is large."""

import contextlib
import gzip
import itertools
import json
import sqlite3
import threading
import time

import pytest

import client
import gateway as lib
from client import assert_flat, assert_ids
from gateway import Key, chat, messages
from upstream import raw, reply, reply_json

URI = "/v1/embeddings"
KEY = Key("ella-1", "e", "account=ella")
LIMITED = Key("lim-1", "e", "account=lim rpm=2 tpm=1000")

MODELS = """
        model emb-one    up-embed-large-3  input=0.13 kind=embedding;
        model emb-two    e2                input=0.02 kind=embedding;
        model emb-chat   chat-9            input=1 output=2 context=9000;
        model ~^emb-x-(.+)$  x-$1          input=1 output=2 kind=embedding;
"""

UPSTREAMS = """
    upstream api.vendor-a.test { server 127.0.0.1:$a; keepalive 16; }
    upstream api.vendor-b.test { server 127.0.0.1:$b; keepalive 16; }"""

number = itertools.count(1)


def groups(models=MODELS, protocol="chat embeddings"):
    return (lib.group_a(models="model ~^fam-a-.+ $0 free; model fam-a-small s "
                        "free;")
            + lib.group_b(models="model ~^fam-b-.+ $0 free;")
            + lib.group("e", protocol, "emb-", "http://api.vendor-b.test",
                        "Authorization file:$dir/b.secret bearer", models))


def make(gateway, models=MODELS, **kw):
    return gateway(groups=groups(models), keys=[KEY, LIMITED],
                   upstreams=UPSTREAMS, **kw)


@pytest.fixture(scope="module")
def g(module_gateway):
    return make(module_gateway)


@pytest.fixture(autouse=True)
def fresh(g):
    g.a.reset()
    g.b.reset()


@pytest.fixture(scope="module")
def bank(module_gateway):
    return make(module_gateway, http="modelgw_zone 4m; modelgw_ledger "
                "$dir/ledger.db; modelgw_founding_credit 10;")


def answer(model, n=1, usage=None, text=None):
    return {"object": "list",
            "data": [{"object": "embedding", "index": i,
                      "embedding": text or [0.25, -1.5e-3]}
                     for i in range(n)],
            "model": model,
            "usage": {"prompt_tokens": 8, "total_tokens": 8}
            if usage is None else usage}


def send(g, body=None, key=KEY, **kw):
    body = body or {"model": "emb-one", "input": "Hello"}
    return g.post(URI, body, key, **kw)


def row(g, model):
    """Tokens, cost, outcome and status of the model's only call; waits for
    its row."""
    end = time.monotonic() + client.LIMIT
    while True:
        with contextlib.closing(sqlite3.connect(
                "file:%s?mode=ro" % g.path("ledger.db"), uri=True,
                timeout=client.LIMIT)) as db:
            rows = list(db.execute("SELECT input, output, cost, outcome,"
                                   "status FROM calls WHERE model = ?",
                                   [model]))
        if rows:
            assert len(rows) == 1
            return rows[0]
        assert time.monotonic() < end, "no row"
        time.sleep(0.01)


def fresh_model():
    """A model of no other call: its id, and the upstream's."""
    n = next(number)
    return "emb-x-%d" % n, "x-%d" % n


# what passes

def test_mapped_both_ways(g, http):
    g.b.script(reply_json(answer("up-embed-large-3")))
    r = send(g, version=http)
    assert r.status == 200 and r.complete, r
    assert r.json() == answer("emb-one")
    assert_ids(r)
    seen = g.b.requests[-1]
    assert seen.target == URI
    assert json.loads(seen.body) == {"model": "up-embed-large-3",
                                     "input": "Hello"}


@pytest.mark.parametrize("body", [
    b'{"input":["a","b"],"model":"emb-two"}',
    b'{"model":"emb-two","input":[[1,2,3],[4]],"encoding_format":"base64"}',
    b'{"input":[15339,4623],"encoding_format":"float","dimensions":256,'
    b'"user":"u-1","model":"emb-two"}',
    b' {"model" : "emb-two" , "input":"x", "input_type":"query"}'])
def test_other_fields_pass(g, body):
    """Byte for byte, in whatever order."""
    g.b.script(reply_json(answer("e2", text="AACAPg==")))
    r = send(g, body)
    assert r.status == 200 and r.json() == answer("emb-two", text="AACAPg==")
    assert g.b.requests[-1].body == body.replace(b'"emb-two"', b'"e2"')


def test_pattern(g):
    g.b.script(reply_json(answer("x-99")))
    r = send(g, {"model": "emb-x-99", "input": "x"})
    assert r.status == 200 and r.json()["model"] == "emb-x-99"


# what is refused

@pytest.mark.parametrize("body, code, text", [
    ({"model": "emb-one"}, "MISSING_FIELD", '"input" is required'),
    ({"input": "x"}, "MISSING_FIELD", '"model" is required'),
    ({"model": "emb-one", "input": None}, "INVALID_FIELD", '"input"'),
    ({"model": "emb-one", "input": 5}, "INVALID_FIELD", '"input"'),
    ({"model": "emb-one", "input": {"text": "x"}}, "INVALID_FIELD",
     '"input"'),
    (b'{"model":"emb-one","input":"x"', "INVALID_JSON", ""),
    (b'{"model":"emb-one","input":"x","input":"y"}', "INVALID_FIELD", ""),
    ({"model": "emb-none", "input": "x"}, "INVALID_MODEL", "not exist"),
    ({"model": "emb-chat", "input": "x"}, "INVALID_MODEL",
     '"emb-chat" is no embedding model; use /v1/chat/completions')])
def test_refused(g, body, code, text):
    r = send(g, body)
    assert_flat(r, 400, code)
    assert text in r.json()["message"]
    assert not g.b.requests


@pytest.mark.parametrize("uri, body", [
    ("/v1/responses", {"model": "emb-one", "input": "Hi"}),
    ("/v1/chat/completions", chat("emb-one")),
    ("/v1/chat/completions", chat("emb-x-1"))])
def test_chat_calls_an_embedding_model(g, uri, body):
    r = g.post(uri, body, KEY)
    assert_flat(r, 400, "INVALID_MODEL")
    assert "is an embedding model; use /v1/embeddings" in r.json()["message"]
    assert not g.b.requests


@pytest.mark.parametrize("uri", ["/v1/messages", "/v1/messages/count_tokens"])
def test_messages_call_an_embedding_model(gateway, uri):
    g = gateway(groups=groups(protocol="messages embeddings"), keys=[KEY],
                upstreams=UPSTREAMS)
    r = g.post(uri, messages("emb-one"), KEY)
    assert_flat(r, 400, "INVALID_MODEL")
    assert "use /v1/embeddings" in r.json()["message"]
    r = g.post("/v1/messages", messages("emb-chat"), KEY)
    assert r.status == 200, r


def test_group_without_embeddings(g):
    for key in g.alice, g.bob:
        r = send(g, key=key)
        assert_flat(r, 403, "PROVIDER_MISMATCH")
        assert "embeddings API" in r.json()["message"]


def test_method(g):
    r = g.get(URI, KEY)
    assert_flat(r, 405, "METHOD_NOT_ALLOWED")
    assert r.get("allow") == "POST"


def test_limits(g):
    g.b.script(reply_json(answer("e2")))
    for left in "10":
        r = send(g, {"model": "emb-two", "input": "x"}, LIMITED)
        assert r.status == 200
        assert r.get("x-ratelimit-limit-requests") == "2"
        assert r.get("x-ratelimit-remaining-requests") == left
        assert r.get("x-ratelimit-limit-tokens") == "1000"
    r = send(g, {"model": "emb-two", "input": "x"}, LIMITED)
    assert_flat(r, 429, "RATE_LIMITED")


def test_models(g):
    listed = g.get("/v1/models", KEY).json()["data"]
    kinds = {m["id"]: m.get("kind") for m in listed}
    assert kinds == {"emb-one": "embedding", "emb-two": "embedding",
                     "emb-chat": None}
    assert g.get("/v1/models/emb-x-5", KEY).json()["kind"] == "embedding"
    assert set(listed[2]) == {"id", "object", "owned_by"}


@pytest.mark.parametrize("status, code", [
    (400, "INVALID_REQUEST"), (401, "UPSTREAM_ERROR"), (404, None),
    (429, "RATE_LIMITED"), (500, "UPSTREAM_ERROR")])
def test_errors_of_the_upstream(g, status, code):
    """As on chat."""
    error = {"error": {"message": "e2 says no", "type": "x", "code": None,
                       "param": None}}
    g.b.script(reply_json(error, status))
    mine = send(g, {"model": "emb-two", "input": "x"})
    chats = g.post("/v1/chat/completions", chat("emb-chat"), KEY)
    assert mine.status == chats.status
    assert mine.json()["code"] == chats.json()["code"]
    assert code in (None, mine.json()["code"])
    assert '"e2' not in mine.body.decode()


def test_error_in_a_200(g):
    g.b.script(reply_json({"error": {"message": "overloaded"}}))
    assert_flat(send(g), 502, "UPSTREAM_ERROR")


def test_error_in_a_200_of_events(g):
    g.b.script(reply(body=b"data: {}\n\n", ctype="text/event-stream"))
    assert_flat(send(g, {"model": "emb-one", "input": "x", "stream": True}),
                502, "UPSTREAM_ERROR")


# money: an input token costs 1000 nano-euro

@pytest.mark.parametrize("usage, tokens", [
    ({"prompt_tokens": 8, "total_tokens": 8}, 8),
    ({"total_tokens": 77}, 77),
    ({"prompt_tokens": 5, "total_tokens": 5, "completion_tokens": 0}, 5),
    ({"prompt_tokens": 0, "total_tokens": 9}, 9),
    ({"prompt_tokens": 0, "total_tokens": 0}, 0)])
def test_charged_exactly(bank, usage, tokens):
    model, upstream = fresh_model()
    bank.b.script(reply_json(answer(upstream, usage=usage)))
    assert send(bank, {"model": model, "input": "x"}).status == 200
    assert row(bank, model) == (tokens, 0, tokens * 1000, "reported", 200)


@pytest.mark.parametrize("usage", [
    {}, {"prompt_tokens": None}, {"prompt_tokens": -1}, {"prompt_tokens": 1.5},
    {"total_tokens": "8"}])
def test_missing_usage_is_estimated(bank, usage):
    model, upstream = fresh_model()
    body = json.dumps({"model": model, "input": "x" * 400}).encode()
    bank.b.script(reply_json(answer(upstream, usage=usage)))
    assert send(bank, body).status == 200
    tokens = (len(body) + 3) // 4
    assert row(bank, model) == (tokens, 0, tokens * 1000, "estimated", 200)


def test_hold_is_the_body(module_gateway):
    """And nothing for output: the founding credit is what it takes."""
    body = json.dumps({"model": "emb-one", "input": "x" * 100}).encode()
    g = make(module_gateway, http="modelgw_zone 4m; modelgw_ledger "
             "$dir/ledger.db; modelgw_founding_credit 0.00002;")
    g.b.script(reply_json(answer("up-embed-large-3")))
    assert len(body) * 130 < 20000
    assert send(g, body).status == 200
    r = send(g, json.dumps({"model": "emb-one", "input": "x" * 200}))
    assert_flat(r, 402, "INSUFFICIENT_CREDIT")
    assert "max_tokens" not in r.json()["message"]


def test_hold_of_many_inputs(gateway):
    """Each of them may have as many tokens as the context."""
    g = make(gateway, models="model emb-one e input=1000 context=100 "
             "kind=embedding;", http="modelgw_zone 4m; modelgw_ledger "
             "$dir/ledger.db; modelgw_founding_credit 1;")
    body = json.dumps({"model": "emb-one", "input": ["x" * 90] * 50})
    g.b.script(reply_json(answer("e", usage={"prompt_tokens": 4000})))
    error = assert_flat(send(g, body), 402, "INSUFFICIENT_CREDIT")
    assert "%d.%03d euro" % divmod(len(body), 1000) in error["message"]
    assert g.untouched()


# large answers

WORDS = b"0.0123456789,-1.5e-3,"


def large(model, size, where="end", usage=b'{"prompt_tokens":2048,'
                                          b'"total_tokens":2048}'):
    """The pieces of an answer of about that size."""
    head, tail = b'{"object":"list",', b'}'
    own = b'"model":"%s",' % model.encode()
    row = b'{"object":"embedding","index":0,"embedding":[' + WORDS * 1500
    row += b'1]},'
    many = [row] * (size // len(row))
    out = [head] + [own] * (where == "begin") + [b'"data":['] + many
    out += [b'{"embedding":[2]}],'] + [own] * (where == "end")
    return out + [b'"usage":' + usage, tail]


def serve(pieces, framing, end="clean", cut=None, gate=None):
    def script(x):
        size = sum(len(p) for p in pieces)
        x.head(200, [("Content-Type", "application/json")], framing=framing,
               length=size)
        for i, piece in enumerate(pieces[:cut]):
            if gate and i == len(pieces) - 3:
                gate.wait(client.LIMIT)
            x.body(piece)
        x.end(end)
    return script


def begin(c, model="emb-one"):
    """Sends a call; returns when the head of its answer has come."""
    c.request("POST", URI, [KEY.bearer()], {"model": model, "input": "x"})
    assert c.head().status == 200


@pytest.mark.parametrize("where", ["begin", "end", "none"])
@pytest.mark.parametrize("size", [100000, 300000, 3 << 20])
@pytest.mark.parametrize("framing", ["sized", "chunked", "close"])
def test_large(g, size, where, framing, http):
    pieces = large("up-embed-large-3", size, where)
    g.b.script(serve(pieces, framing))
    r = send(g, version=http)
    assert r.status == 200 and r.complete, r
    want = b"".join(pieces).replace(b'"up-embed-large-3"', b'"emb-one"')
    assert r.body == want
    assert json.loads(r.body)["usage"]["prompt_tokens"] == 2048


@pytest.mark.parametrize("step", [1, 7, 500, 1023, 1024, 1025, 4096])
def test_the_id_across_pieces(g, step):
    """Wherever the upstream's reads split the answer."""
    pad = b'{"pad":"' + b"x" * 270000 + b'",'
    rest = (b'"y":"' + b"y" * 2000 + b'","model":"up-embed-large-3","z":"'
            + b"z" * 1500 + b'","usage":{"prompt_tokens":3}}')
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n\r\n" % len(pad + rest)
    steps = [head + pad]
    for i in range(0, len(rest), step):
        steps += [rest[i:i + step]]
    g.b.script(raw(*steps))
    r = send(g)
    assert r.status == 200 and r.complete
    assert r.body == pad + rest.replace(b"up-embed-large-3", b"emb-one")


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("framing", ["sized", "chunked"])
def test_a_large_answer_that_breaks_off(bank, framing, end, http):
    """It has no end for the client either, and is charged as an estimate."""
    model, upstream = fresh_model()
    bank.b.script(serve(large(upstream, 2 << 20), framing, end, cut=-3))
    r = send(bank, {"model": model, "input": "x"}, version=http)
    assert r.status == 200 and not r.complete, r
    assert row(bank, model)[3:] == ("estimated", 200)
    bank.b.script(reply_json(answer("up-embed-large-3")))
    assert send(bank).status == 200


@pytest.mark.parametrize("bad", [b'"x":tru}', b'"x":1}}', b'"x":1'])
def test_a_large_answer_that_is_no_json(bank, bad, http):
    model, upstream = fresh_model()
    bank.b.script(serve(large(upstream, 1 << 20)[:-2] + [bad], "sized"))
    r = send(bank, {"model": model, "input": "x"}, version=http)
    assert r.status == 200 and not r.complete, r
    assert row(bank, model)[3:] == ("estimated", 200)


def test_a_large_answer_is_charged_exactly(bank):
    model, upstream = fresh_model()
    bank.b.script(serve(large(upstream, 5 << 20), "chunked"))
    assert send(bank, {"model": model, "input": "x"}).complete
    assert row(bank, model) == (2048, 0, 2048000, "reported", 200)


@pytest.mark.parametrize("size", [5 << 20, 40 << 20])
def test_client_leaves(bank, size):
    """Its answer is read to the end for the usage."""
    model, upstream = fresh_model()
    gate = threading.Event()
    bank.b.script(serve(large(upstream, size), "sized", gate=gate))
    with bank.connect(rcvbuf=4096) as c:
        begin(c, model)
        c.read()
    gate.set()
    assert row(bank, model) == (2048, 0, 2048000, "reported", 200)


def test_slow_client(g):
    pieces = large("up-embed-large-3", 6 << 20)
    g.b.script(serve(pieces, "chunked"))
    with g.connect(rcvbuf=4096) as c:
        begin(c)
        g.wait_idle()
        r = c.current
        while c.read():
            pass
    assert r.complete
    assert r.body == b"".join(pieces).replace(b"up-embed-large-3", b"emb-one")


@pytest.mark.skipif(lib.ASAN, reason="the sanitizer keeps freed memory")
@pytest.mark.parametrize("framing", ["sized", "chunked"])
def test_memory(gateway, framing):
    """Answers of 40 MB, four at a time, take no memory."""
    g = make(gateway, workers=1)
    pieces = large("up-embed-large-3", 40 << 20)
    size = sum(len(p) for p in pieces) - 9
    g.b.script(serve(large("up-embed-large-3", 1 << 20), framing))
    assert send(g).complete
    before = g.memory()
    g.b.script(serve(pieces, framing))
    with contextlib.ExitStack() as stack:
        cs = [stack.enter_context(g.connect()) for _ in range(4)]
        for c in cs:
            begin(c)
        for c in cs:
            n = 0
            while part := c.read():
                n += len(part)
                c.current.data.clear()
            assert c.current.complete and n == size
    grown = g.memory() - before
    print("peak of the worker: %d kB more" % (grown >> 10))
    assert grown < 6 << 20


# what operators see

def test_metrics_and_lists(gateway):
    g = make(gateway, http="modelgw_zone 4m; modelgw_ledger $dir/l.db;",
             locations="location /m { modelgw_metrics; allow 127.0.0.1; "
             "deny all; } location /admin/ { modelgw_admin; allow 127.0.0.1; "
             "deny all; }")
    send(g)
    g.wait_metric('modelgw_requests_total{endpoint="embeddings",group="e",'
                  'code="INSUFFICIENT_CREDIT"} 1')
    groups = {x["name"]: x for x in g.get("/admin/groups").json()["groups"]}
    assert groups["e"]["protocols"] == ["chat", "responses", "embeddings"]
    assert "embeddings" not in groups["b"]["protocols"]
    models = {m["id"]: m for m in g.get("/admin/models").json()["models"]}
    assert models["emb-one"]["protocols"] == ["embeddings"]
    assert models["emb-one"]["kind"] == "embedding"
    assert models["emb-chat"]["protocols"] == ["chat", "responses"]
    assert models["emb-chat"]["kind"] == "chat"


# more of large answers

def test_large_over_http_1_0(g):
    """There is no length: the end of the connection is that of the body."""
    pieces = large("up-embed-large-3", 1 << 20)
    g.b.script(serve(pieces, "sized"))
    with g.connect() as c:
        c.request("POST", URI, [KEY.bearer()],
                  {"model": "emb-one", "input": "x"}, version="HTTP/1.0")
        r = c.response()
    assert r.status == 200 and r.framing == "close"
    assert r.body == b"".join(pieces).replace(b"up-embed-large-3", b"emb-one")


def test_large_and_gzip(gateway):
    g = make(gateway, location="gzip on; gzip_types application/json;")
    pieces = large("up-embed-large-3", 3 << 20)
    g.b.script(serve(pieces, "chunked"))
    r = send(g, headers=[("Accept-Encoding", "gzip")])
    assert r.complete and r.get("content-encoding") == "gzip"
    assert gzip.decompress(r.body) \
        == b"".join(pieces).replace(b"up-embed-large-3", b"emb-one")


@pytest.mark.parametrize("bad", [b"tru}", b""])
def test_slow_client_of_a_broken_answer(bank, bad):
    """What came before the fault is sent, then the connection is closed."""
    model, upstream = fresh_model()
    pieces = large(upstream, 6 << 20)
    pieces = pieces[:-2] + [bad] + pieces[:100]
    bank.b.script(serve(pieces, "chunked", "close"))
    with bank.connect(rcvbuf=4096) as c:
        begin(c, model)
        bank.wait_idle()
        while c.read():
            pass
        assert not c.current.complete and c.closed()
        assert len(c.current.body) > 5 << 20
    assert row(bank, model)[3:] == ("estimated", 200)


@pytest.mark.parametrize("id", ['"' + "m" * 300000 + '"', '"\\u0061"',
                                '"' + "\\u0061" * 150 + '"', "null", "7"])
def test_odd_ids_in_a_large_answer(g, id):
    """One that is much longer than any id cannot be replaced."""
    pad = b'{"pad":"' + b"x" * 300000 + b'","model":'
    rest = b',"usage":{"prompt_tokens":3},"y":"' + b"y" * 9000 + b'"}'
    g.b.script(serve([pad, id.encode()[:700], id.encode()[700:], rest],
                     "sized"))
    r = send(g)
    if len(id) > 1000:
        assert r.status == 200 and not r.complete
    else:
        want = b'"emb-one"' if id[0] == '"' else id.encode()
        assert r.complete and r.body == pad + want + rest


def test_answers_in_a_row(g):
    """A connection is used again after a large answer."""
    pieces = large("up-embed-large-3", 1 << 20)
    with g.connect() as c:
        for _ in range(5):
            g.b.script(serve(pieces, "sized"))
            begin(c)
            while c.read():
                pass
            assert c.current.complete
            g.b.script(reply_json(answer("up-embed-large-3")))
            begin(c)
            while c.read():
                pass
            assert c.current.json() == answer("emb-one")
