"""Credit: what is held, what is charged, what is refused (docs/credit.md).

The cost of a call is computed by money.py from the request, the model line and
the answer of the scripted upstream, and compared with the call's row in the
store.  Each call has a model id of its own, by which its row is found."""

import contextlib
import gzip
import hashlib
import itertools
import json
import os
import random
import select
import signal
import sqlite3
import threading
import time

import pytest

import client
import gateway as lib
import money
from client import assert_flat
from gateway import Key
from money import Bound, Line, Seen
from upstream import (DONE, Refused, chat_chunk, chat_completion,
                      chat_error, chat_stream, chat_usage_chunk, data, event,
                      message, message_stream, raw, reply, reply_json, sse)

CHAT, MESSAGES, TRANSLATED = "chat", "messages", "translated"
APIS = (CHAT, MESSAGES, TRANSLATED)
SPOKEN = {TRANSLATED: CHAT}

LINES = {
    "tm-a": Line(input=3, output=15, cache_read="0.3", cache_write="3.75",
                 cache_write_1h=6, context=200000, max_output=64000),
    "tm-b": Line(input="0.123457", output="7.000003", max_output=5000),
    "tm-f": Line(free=True),
    "tm-x": Line(input=3, output=15, context=200000, max_output=64000,
                 more="extras=included"),
    "tc-a": Line(input="1.25", output=10, cache_read="0.125",
                 context=128000, max_output=16384),
    "tc-b": Line(input="0.050001", output="0.400007", context=9000),
    "tc-f": Line(free=True),
    "tc-x": Line(input=1, output=10, max_output=100,
                 more="extras=included"),
    "tc-z": Line(input=0, output=0, max_output=100),
}

ACCOUNT = "purse"
RICH = "1000"
ADMIN = "location /admin/ { modelgw_admin; allow 127.0.0.1; deny all; }"
LOG = ("log_format money escape=json '{\"tag\":\"$http_x_test_tag\","
       "\"cost\":\"$modelgw_cost\",\"outcome\":\"$modelgw_outcome\","
       "\"call\":\"$modelgw_call\",\"account\":\"$modelgw_account\"}';")

number = itertools.count(1)

BALANCES = """
    SELECT name, balance,
           coalesce((SELECT sum(amount) FROM topups WHERE account = name), 0)
         - coalesce((SELECT sum(cost) FROM calls WHERE account = name), 0)
         - coalesce((SELECT sum(cost) FROM days WHERE account = name), 0)
    FROM accounts"""


def groups(lines=None, extra=""):
    lines = lines or LINES

    def models(prefix):
        return "\n".join("model ~^(%s-.+)$ up-$1 %s;" % (name, line.text())
                         for name, line in lines.items()
                         if name.startswith(prefix))

    return (lib.group("m", "messages", "tm-", "http://m.test",
                      "x-api-key file:$dir/a.secret", models("tm-"), extra)
            + lib.group("c", "chat", "tc-", "http://c.test",
                        "x-api-key file:$dir/b.secret", models("tc-"),
                        extra))


UPSTREAMS = """
    upstream m.test { server 127.0.0.1:$a max_fails=0; keepalive 16; }
    upstream c.test { server 127.0.0.1:$b max_fails=0; keepalive 16; }"""


class Bank:
    """A gateway with a ledger."""

    def __init__(self, make, founding=RICH, http="", keys=(), ledger=True,
                 lines=None, **kw):
        self.km = Key("key-m", "m", "account=" + ACCOUNT)
        self.kc = Key("key-c", "c", "account=" + ACCOUNT)
        self.founding = founding
        if ledger:
            http += ("modelgw_zone 4m; modelgw_ledger $dir/ledger.db; "
                     "modelgw_founding_credit %s;" % founding)
        kw.setdefault("upstreams", UPSTREAMS)
        kw.setdefault("groups", groups(lines))
        made = [self.km, self.kc] + list(keys)
        self.g = make(http=http + LOG, keys_text="\n".join(
            k.line() for k in made), **kw)

    # the store

    def query(self, sql, *args):
        db = sqlite3.connect("file:%s?mode=ro" % self.g.path("ledger.db"),
                             uri=True, timeout=client.LIMIT)
        try:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(sql, args)]
        finally:
            db.close()

    def rows(self):
        return self.query("SELECT * FROM calls ORDER BY id")

    def row(self, model, timeout=client.LIMIT):
        """The row of a call; there must be exactly one."""
        end = time.monotonic() + timeout
        while True:
            rows = self.query("SELECT * FROM calls WHERE model = ?", model)
            if rows:
                assert len(rows) == 1, rows
                return rows[0]
            assert time.monotonic() < end, "no row for " + model
            time.sleep(0.01)

    def none(self, model):
        """No row is written: that of a later call is written first."""
        other = fresh("tc-z")
        u = self.g.b
        scripts = u.scripts
        u.reset()
        assert self.post(CHAT, body_of(CHAT, other)).status == 200
        u.scripts = scripts
        self.row(other)
        assert self.query("SELECT * FROM calls WHERE model = ?",
                          model) == []

    def settled(self, timeout=client.LIMIT):
        """Waits until nothing is held, and all is in the store."""
        end = time.monotonic() + timeout
        while True:
            live, stored = self.live(), self.stored()
            holds = self.query("SELECT * FROM holds")
            if not holds and live == {name: (amount, 0) for name, amount
                                      in stored.items()}:
                return
            assert time.monotonic() < end, (live, stored, holds)
            time.sleep(0.02)

    def held(self, timeout=client.LIMIT):
        """The models of the calls that have a hold on disk; waits for one."""
        end = time.monotonic() + timeout
        while True:
            rows = self.query("SELECT model FROM holds")
            if rows or time.monotonic() > end:
                return [r["model"] for r in rows]
            time.sleep(0.02)

    def live(self):
        """account: (balance, held), as the workers have it"""
        r = self.g.get("/admin/accounts")
        assert r.status == 200, r
        return {a["id"]: (money.nano(a["balance"]), money.nano(a["held"]))
                for a in r.json()["accounts"]}

    def audit(self, live=True):
        """Each balance agrees with the rows, and with the workers."""
        if live:
            self.settled()
        views = self.query("SELECT * FROM audit")
        assert all(v["difference"] == v["hours"] == 0 for v in views), views
        stored = {}
        for row in self.query(BALANCES):
            name, stored[name], derived = row.values()
            assert stored[name] == derived, row
        if live:
            assert self.live() == {name: (amount, 0) for name, amount
                                   in stored.items()}

    def balance(self):
        self.settled()
        return self.stored()[ACCOUNT]

    def stored(self):
        return {r["name"]: r["balance"] for r in self.query(
            "SELECT name, balance FROM accounts")}

    # calls

    def key(self, api):
        return self.kc if api == CHAT else self.km

    def post(self, api, body, headers=(), key=None, **kw):
        target = ("/v1/messages" if api == MESSAGES
                  else "/v1/chat/completions")
        return self.g.post(target, body, key or self.key(api), headers, **kw)

    def up(self, api):
        return self.g.b if api == CHAT else self.g.a

    def open(self, api, body, headers=()):
        """A connection with the call sent on it."""
        c = self.g.connect()
        target = ("/v1/messages" if api == MESSAGES
                  else "/v1/chat/completions")
        c.request("POST", target, [self.key(api).bearer()] + list(headers),
                  body=body)
        return c


def fresh(line):
    return "%s-%d" % (line, next(number))


def line_of(model):
    return LINES[model[:4]]


def body_of(api, model=None, **more):
    """The bytes of a call."""
    if model is None:
        model = fresh("tc-a" if api == CHAT else "tm-a")
    if api == MESSAGES:
        more.setdefault("max_tokens", 100)
    return dict({"model": model,
                 "messages": [{"role": "user", "content": "Hi"}]}, **more)


def wire(body):
    return json.dumps(body).encode()


def bound(api, body):
    return Bound(wire(body), line_of(body["model"]), SPOKEN.get(api, api))


def expect(bank, api, body, seen, end="complete", status=200):
    """The call's row is what the rules say for what was received."""
    model = body["model"]
    b = bound(api, body)
    c = money.charge(line_of(model), b.hold, b.estimate, seen)
    row = bank.row(model)
    assert row["outcome"] == c.outcome, row
    for name in money.CLASSES:
        assert row[name] == c.tokens.get(name, 0), (name, row, c)
    assert row["cost"] == c.cost, (row, c)
    assert end in (None, row["end"]), row
    assert row["status"] == status, row
    assert row["account"] == ACCOUNT
    assert row["key"] == bank.key(api).id
    assert 0 <= row["ended"] - row["time"] < 60000
    assert abs(row["time"] / 1000 - time.time()) < 60
    return row


@pytest.fixture(scope="module")
def module_bank(module_gateway):
    return Bank(module_gateway, locations=ADMIN,
                location="access_log $dir/money.log money;")


@pytest.fixture(scope="module")
def module_short_timeout(module_gateway):
    return Bank(module_gateway, locations=ADMIN,
                location="proxy_read_timeout %ds;" % lib.STALL)


@pytest.fixture
def bank(module_bank):
    """One gateway for all tests of this file, with credit enough."""
    for u in (module_bank.g.a, module_bank.g.b):
        u.reset()
    yield module_bank
    for u in (module_bank.g.a, module_bank.g.b):
        u.reset()
    module_bank.audit()


@pytest.fixture
def short_timeout(module_short_timeout, bank):
    """One with a short timeout for an upstream that stalls."""
    yield module_short_timeout
    module_short_timeout.audit()


@pytest.fixture
def make_bank(gateway):
    """make_bank(…) makes one more; audited at the end."""
    made = []

    def run(*args, **kw):
        kw.setdefault("locations", ADMIN)
        made.append(Bank(gateway, *args, **kw))
        return made[-1]

    yield run
    for b in made:
        if b.g.process:
            b.audit()


# Reported usage: (the upstream's usage, tokens by class).

def chat_usage(prompt, output, **details):
    usage = {"prompt_tokens": prompt, "completion_tokens": output,
             "total_tokens": prompt + output}
    if details:
        usage["prompt_tokens_details"] = details
    return usage


REPORTED_CHAT = [
    (chat_usage(11, 7), dict(input=11, output=7)),
    (chat_usage(1000, 7, cached_tokens=0), dict(input=1000, output=7)),
    (chat_usage(1000, 7, cached_tokens=900),
     dict(input=100, cache_read=900, output=7)),
    (chat_usage(1000, 1, cached_tokens=1000),
     dict(cache_read=1000, output=1)),
    (chat_usage(1000, 333, cached_tokens=100, cache_write_tokens=200),
     dict(input=700, cache_read=100, cache_write=200, output=333)),
    (dict(chat_usage(10, 50), completion_tokens_details={
        "reasoning_tokens": 40}), dict(input=10, output=50)),
    (chat_usage(0, 0), {}),
    (chat_usage(1, 0), dict(input=1)),
]


def message_usage(input, output, read=None, write=None, minutes=None,
                  hour=None):
    usage = {"input_tokens": input, "output_tokens": output}
    if read is not None:
        usage["cache_read_input_tokens"] = read
    if write is not None:
        usage["cache_creation_input_tokens"] = write
    if hour is not None:
        usage["cache_creation"] = {"ephemeral_5m_input_tokens": minutes,
                                   "ephemeral_1h_input_tokens": hour}
    return usage


REPORTED_MESSAGES = [
    (message_usage(11, 7), dict(input=11, output=7)),
    (message_usage(11, 7, 900, 0),
     dict(input=11, cache_read=900, output=7)),
    (message_usage(11, 7, 900, 50),
     dict(input=11, cache_read=900, cache_write=50, output=7)),
    (message_usage(3, 1, 0, 500, 200, 300),
     dict(input=3, cache_write=200, cache_write_1h=300, output=1)),
    (message_usage(3, 1, 5, 500, 0, 500),
     dict(input=3, cache_read=5, cache_write_1h=500, output=1)),
    (message_usage(0, 0, 0, 0, 0, 0), {}),

    # without a total, and with one that is less than its parts

    (message_usage(3, 1, 5, None, 200, 300),
     dict(input=3, cache_read=5, cache_write=200, cache_write_1h=300,
          output=1)),
    (dict(message_usage(3, 1), cache_creation={
        "ephemeral_5m_input_tokens": 200}),
     dict(input=3, cache_write=200, output=1)),
    (dict(message_usage(3, 1, 0, None, 0, 300),
          cache_creation_input_tokens=None),
     dict(input=3, cache_write_1h=300, output=1)),
    (message_usage(3, 1, 0, 200, 200, 300),
     dict(input=3, cache_write=200, cache_write_1h=300, output=1)),
]


def all_classes(tokens):
    """The tokens, with 0 for the missing classes."""
    out = dict.fromkeys(money.CLASSES, 0)
    out.update(tokens)
    return out


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("usage, tokens", REPORTED_CHAT)
def test_reported_chat(bank, usage, tokens, stream):
    """prompt_tokens includes cached tokens."""
    body = body_of(CHAT, stream=stream)
    bank.g.b.script(sse(chat_stream("m", tokens=usage)) if stream
                    else reply_json(chat_completion("m", usage=usage)))
    assert bank.post(CHAT, body).complete
    expect(bank, CHAT, body, Seen(200, all_classes(tokens), True))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", [MESSAGES, TRANSLATED])
@pytest.mark.parametrize("usage, tokens", REPORTED_MESSAGES)
def test_reported_messages(bank, api, usage, tokens, stream):
    """input_tokens does not; a cache of an hour has its own price."""
    body = body_of(api, stream=stream)
    bank.g.a.script(sse(message_stream("m", usage=usage)) if stream
                    else reply_json(message("m", usage=usage)))
    assert bank.post(api, body).complete
    expect(bank, api, body, Seen(200, all_classes(tokens), True))


@pytest.mark.parametrize("more", [
    {"stream_options": {"include_usage": True}},
    {"stream_options": {"include_usage": False}},
    {"stream_options": {}}, {"stream_options": None}])
def test_usage_is_asked_for_whatever_the_client_says(bank, more):
    """P14"""
    body = body_of(CHAT, stream=True, **more)
    r = bank.post(CHAT, body)
    assert r.complete and r.body.endswith(DONE)
    assert bank.g.b.last().json()["stream_options"]["include_usage"] is True
    expect(bank, CHAT, body, Seen(200, dict(input=11, output=7), True))


def test_messages_totals_are_not_added(bank):
    """message_delta repeats the totals; the last ones count."""
    usage = message_usage(10, 3, 20, 30)
    events = message_stream("m", usage=usage)
    delta = event("message_delta", {
        "type": "message_delta", "delta": {"stop_reason": "end_turn"},
        "usage": message_usage(12, 9, 21, 31)})
    events = [e for e in events if b"message_delta" not in e]
    for n, deltas in enumerate(([delta], [delta, delta])):
        body = body_of(MESSAGES, stream=True)
        bank.g.a.script(sse(events[:-1] + deltas + events[-1:]))
        assert bank.post(MESSAGES, body).complete
        expect(bank, MESSAGES, body, Seen(200, dict(
            input=12, output=9, cache_read=21, cache_write=31), True))


@pytest.mark.parametrize("delta, tokens", [
    (message_usage(50, 2, 10, 20, 5, 15), dict(
        input=50, cache_read=10, cache_write=5, cache_write_1h=15, output=2)),
    (message_usage(50, 2, 10, 40), dict(
        input=50, cache_read=10, cache_write_1h=40, output=2)),
    (message_usage(50, 0, 0, 0, 0, 0), dict(input=50)),
    (dict(message_usage(50, 2), cache_read_input_tokens=None,
          cache_creation=None), dict(
        input=50, cache_read=80, cache_write=10, cache_write_1h=60,
        output=2)),
    ({"output_tokens": 2}, dict(
        input=90, cache_read=80, cache_write=10, cache_write_1h=60,
        output=2)),
    (message_usage(0, 2, 0, 0), dict(
        input=90, cache_read=80, cache_write=10, cache_write_1h=60,
        output=2)),
], ids=["all", "no lifetimes", "zeros", "null", "output", "look-alike"])
@pytest.mark.parametrize("api", [MESSAGES, TRANSLATED])
def test_the_last_report_counts_also_if_it_is_lower(bank, api, delta, tokens):
    events = message_stream("m", usage=message_usage(90, 9, 80, 70, 10, 60))
    start = next(e for e in events if b"message_start" in e)
    events[events.index(start)] = start.replace(b'"output_tokens": 1',
                                                b'"output_tokens": 99')
    assert events != message_stream("m", usage=message_usage(90, 9, 80, 70,
                                                             10, 60))
    events = [e for e in events if b"message_delta" not in e]
    events[-1:-1] = [event("message_delta", {
        "type": "message_delta", "delta": {"stop_reason": "end_turn"},
        "usage": delta})]
    body = body_of(api, stream=True)
    bank.g.a.script(sse(events))
    assert bank.post(api, body).complete
    expect(bank, api, body, Seen(200, all_classes(tokens), True))


def test_chat_usage_of_every_chunk_is_not_added(bank):
    """Some vendors report the totals so far in each chunk."""
    body = body_of(CHAT, stream=True)
    bank.g.b.script(sse(
        [data(chat_chunk("m", {"content": "ab"}, usage=chat_usage(50, n)))
         for n in (1, 2, 3)]
        + [data(chat_usage_chunk("m", chat_usage(50, 4))), DONE]))
    assert bank.post(CHAT, body).complete
    expect(bank, CHAT, body, Seen(200, dict(input=50, output=4), True))


def test_cost_is_rounded_up_once(bank):
    """One token at a price of 0.123457 a million is 123.457 pico… nano."""
    body = body_of(MESSAGES, fresh("tm-b"))
    bank.g.a.script(reply_json(message("m", usage=message_usage(1, 0))))
    assert bank.post(MESSAGES, body).status == 200
    assert bank.row(body["model"])["cost"] == 124

    body = body_of(MESSAGES, fresh("tm-b"))
    bank.g.a.script(reply_json(message("m", usage=message_usage(1000, 1))))
    assert bank.post(MESSAGES, body).status == 200
    assert bank.row(body["model"])["cost"] == 123457 + 7001


# No usage, or invalid usage.

def without_usage(api, words):
    """The events of a stream that never reports its usage."""
    if api == CHAT:
        return chat_stream("m", words, usage=False)
    events = [e for e in message_stream("m", words)
              if b"message_start" not in e and b"message_delta" not in e]
    start = dict(message("m"), content=[])
    del start["usage"]
    events[0:0] = [event("message_start", {"type": "message_start",
                                           "message": start})]
    events[-1:-1] = [event("message_delta", {
        "type": "message_delta", "delta": {"stop_reason": "end_turn"}})]
    return events


@pytest.mark.parametrize("indent", [None, 1], ids=["a line", "lines"])
@pytest.mark.parametrize("api", APIS)
def test_a_stream_without_usage_is_estimated(bank, api, indent):
    """However its events are written: WHATWG HTML, 9.2.6."""
    def written(e):
        if b"{" not in e:
            return e
        name, _, doc = e.partition(b"data: ")
        text = json.dumps(json.loads(doc), indent=indent).encode()
        return name + b"".join(b"data: %s\n" % line
                               for line in text.split(b"\n")) + b"\n"

    words = ["Grüße, ", "world", "!\n", "\"So\", ", "😹", " er."]
    body = body_of(api, stream=True)
    bank.up(api).script(sse([written(e) for e in without_usage(api, words)]))
    assert bank.post(api, body).status == 200
    text = sum(len(w.encode()) for w in words)
    expect(bank, api, body, Seen(200, {}, False, text))


WORDS = ["", "a", " token", '"', "\\", "\n", "\x7f", "é", "日本", "😹",
         "\"delta\":", "x" * 2000, "y" * 5000, "é" * 9000]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("api", APIS)
def test_a_stream_is_estimated_however_it_comes(bank, api, seed):
    """Some events repeat the one before, all are cut into pieces: the whole
    text arrives, and is counted."""
    rnd = random.Random(seed)
    words = [rnd.choice(WORDS) + rnd.choice(WORDS) for _ in range(60)]
    raw = rnd.choice((True, False))

    def written(e):
        name, _, doc = e.partition(b"data: ")
        if b"{" not in doc:
            return e
        doc = json.loads(doc)
        if rnd.random() < 0.6:
            doc["obfuscation"] = "z" * rnd.randrange(9)
        return name + b"data: " + json.dumps(
            doc, ensure_ascii=raw).encode() + rnd.choice(
                (b"\n\n", b"\n\n", b"\r\n\r\n"))

    whole = b"".join(written(e) for e in without_usage(api, words))
    cuts = sorted(rnd.randrange(len(whole)) for _ in range(seed * 6))
    pieces = []
    for start, end in zip([0] + cuts, cuts + [len(whole)]):
        pieces += [whole[start:end], 0.001] if end > start else []
    body = body_of(api, stream=True)
    bank.up(api).script(sse(pieces))
    r = bank.post(api, body)
    assert r.status == 200
    text = ""
    for line in r.body.decode().replace("\r\n", "\n").split("\n"):
        if line.startswith("data: {"):
            doc = json.loads(line[6:])
            for choice in doc.get("choices", []):
                text += choice["delta"].get("content") or ""
            if doc.get("type") == "content_block_delta":
                text += doc["delta"].get("text", "")
    assert text == "".join(words)
    n = sum(len(w.encode()) for w in words)
    expect(bank, api, body, Seen(200, {}, False, n))


def test_a_start_without_an_end_is_estimated(bank):
    """message_start has reported the input, message_delta reports nothing: the
    one token of output is not final."""
    for api in (MESSAGES, TRANSLATED):
        body = body_of(api, stream=True)
        events = [e for e in message_stream("m", ["x" * 100],
                                            usage=message_usage(77, 5, 8, 9))
                  if b"message_delta" not in e]
        events[-1:-1] = [event("message_delta", {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"}})]
        bank.g.a.script(sse(events))
        assert bank.post(api, body).complete
        expect(bank, api, body, Seen(200, dict(
            input=77, cache_read=8, cache_write=9, output=1), False, 100))


def silent(api):
    """An answer without usage; its text has SILENT bytes."""
    obj = chat_completion("m") if api == CHAT else message("m")
    del obj["usage"]
    return json.dumps(obj).encode()


SILENT = len("Hello")


@pytest.mark.parametrize("indent", [None, 4], ids=["a line", "lines"])
@pytest.mark.parametrize("api", APIS)
def test_an_answer_without_usage_is_estimated(bank, api, indent):
    """By its text: the rest of the document does not count."""
    body = body_of(api)
    text = json.dumps(json.loads(silent(api)), indent=indent).encode()
    bank.up(api).script(reply(200, text))
    assert bank.post(api, body).status == 200
    expect(bank, api, body, Seen(200, {}, False, SILENT))


def test_an_answer_is_as_long_as_in_a_stream(bank):
    """All that a model writes counts, the rest of the document does not."""
    arguments = '{"path":"/tmp/é","lines":[1,2,{"a":null}]}'
    long = "Größe 😹 " * 9000
    answers = {
        CHAT: (dict(chat_completion("m"), choices=[
            {"index": i, "finish_reason": "stop", "message": dict({
                "role": "assistant", "content": long, "refusal": None,
                "reasoning_content": "Hm. ", "tool_calls": [{
                    "id": "call_1", "type": "function", "function": {
                        "name": "look", "arguments": arguments}}]})}
            for i in (0, 1)]),
            2 * len((long + "Hm. " + arguments).encode())),
        MESSAGES: (dict(message("m"), content=[
            {"type": "thinking", "thinking": "Hm. ", "signature": "c2ln"},
            {"type": "text", "text": long},
            {"type": "tool_use", "id": "toolu_1", "name": "look",
             "input": json.loads(arguments)}]),
            len(("Hm. c2ln" + long + arguments).encode())),
    }
    answers[TRANSLATED] = answers[MESSAGES]
    for api, (obj, n) in answers.items():
        obj.pop("usage", None)
        text = json.dumps(obj, ensure_ascii=False).encode()
        for framing in ("sized", "chunked"):
            body = body_of(api, max_tokens=60000)
            bank.up(api).script(reply(200, text, framing=framing))
            assert bank.post(api, body).status == 200
            expect(bank, api, body, Seen(200, {}, False, n))


def test_estimates_never_exceed_the_hold(bank):
    body = body_of(CHAT, stream=True, max_tokens=3)
    bank.g.b.script(sse(chat_stream("m", ["x" * 5000], usage=False)))
    assert bank.post(CHAT, body).complete
    row = expect(bank, CHAT, body, Seen(200, {}, False, 5000))
    assert row["cost"] == bound(CHAT, body).hold


INVALID = [-1, "7", 7.5, 1.0, 1e2, None, [], {}, True, 10 ** 9, 10 ** 18,
           10 ** 30]
ABSENT = "(no such member)"


def changed(usage, path, value):
    """The usage with that member changed, or removed."""
    usage = json.loads(json.dumps(usage))
    inside = usage
    for member in path[:-1]:
        inside = inside[member]
    if value is ABSENT:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return usage


def odd_usage(bank, api, stream, usage):
    """A call with that usage, and its row."""
    body = body_of(api, stream=stream)
    reported = (money.ChatUsage if api == CHAT else money.MessageUsage)()
    final = True
    if api == CHAT:
        script = (sse(chat_stream("m", tokens=usage)) if stream
                  else reply_json(chat_completion("m", usage=usage)))
    elif stream:
        script = sse(usage_in_delta(usage))
        reported.take(dict(usage, output_tokens=1))
        final = usage.get("output_tokens") is not None
    else:
        script = reply_json(message("m", usage=usage))
    reported.take(usage)
    bank.up(api).script(script)
    assert bank.post(api, body).complete
    seen = Seen(200, text=SILENT).replaced(**money.changes(reported, final))
    return expect(bank, api, body, seen)


def usage_in_delta(usage):
    """A messages stream whose message_delta repeats the whole usage."""
    events = message_stream("m", usage=dict(usage, output_tokens=0))
    return [event("message_delta", {
        "type": "message_delta", "delta": {"stop_reason": "end_turn"},
        "usage": usage}) if b"event: message_delta" in e else e
        for e in events]


@pytest.mark.parametrize("value", INVALID + [ABSENT], ids=str)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_L4_what_is_no_count_is_not_usage(bank, api, stream, value):
    """For input and output: the row is estimated, with the one of them that is
    a valid count."""
    usage = chat_usage(50, 60) if api == CHAT else message_usage(50, 60)
    for name in list(usage)[:2]:
        row = odd_usage(bank, api, stream, changed(usage, [name], value))
        assert row["outcome"] == "estimated"
        if name.startswith(("input", "prompt")):
            assert row["output"] == 60 and row["input"] != 50
        else:
            assert row["input"] == 50 and row["output"] <= 2


@pytest.mark.parametrize("value", INVALID, ids=str)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_what_need_not_be_told_must_be_a_count_if_it_is(bank, api, stream,
                                                        value):
    if api == CHAT:
        usage = dict(chat_usage(5000, 60, cached_tokens=40,
                                cache_write_tokens=30),
                     completion_tokens_details={"reasoning_tokens": 9})
        paths = [["prompt_tokens_details"], ["completion_tokens_details"],
                 ["prompt_tokens_details", "cached_tokens"],
                 ["prompt_tokens_details", "cache_write_tokens"],
                 ["completion_tokens_details", "reasoning_tokens"]]
    else:
        usage = message_usage(50, 60, 40, 30, 20, 10)
        paths = [["cache_read_input_tokens"], ["cache_creation"],
                 ["cache_creation_input_tokens"],
                 ["cache_creation", "ephemeral_5m_input_tokens"],
                 ["cache_creation", "ephemeral_1h_input_tokens"]]
    for path in paths:
        row = odd_usage(bank, api, stream, changed(usage, path, value))
        fits = value is None or (value == {} and path[-1].endswith(
            ("details", "creation")))
        assert row["outcome"] == ("reported" if fits else "estimated")
        assert row["output"] == 60


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_usage_that_is_not_whole_never_costs_more_than_the_hold(bank, api,
                                                                stream):
    usage = (chat_usage(0, 70000) if api == CHAT
             else message_usage(0, 70000))
    usage[next(iter(usage))] = "x"
    row = odd_usage(bank, api, stream, usage)
    body = body_of(api, row["model"], stream=stream)
    assert row["cost"] == bound(api, body).hold
    assert row["output"] == 70000


# Answers that end in other ways.

PARTS = 4       # events before the cut


def cut_events(api):
    """Events of a stream, and what is known after the first of them."""
    words = ["one ", "two ", "three ", "four "]
    if api == CHAT:
        return chat_stream("m", words)[:PARTS], Seen(
            200, {}, False, len("one two three "))
    usage = message_usage(40, 9, 7, 6)
    events = message_stream("m", words, usage=usage)
    return events[:3 + 2], Seen(200, dict(input=40, cache_read=7,
                                          cache_write=6, output=1), False,
                                len("one two "))


@pytest.mark.parametrize("end", ["close", "reset", "stall"])
@pytest.mark.parametrize("api", APIS)
def test_a_cut_stream_is_charged_what_was_seen(short_timeout, api, end):
    bank = short_timeout
    body = body_of(api, stream=True)
    events, seen = cut_events(api)
    # what was sent must have been read before the connection is reset
    bank.up(api).script(sse(events + [0.05], end=end))
    r = bank.post(api, body)
    assert r.status == 200 and b"message_stop" not in r.body \
        and DONE not in r.body
    expect(bank, api, body, seen,
           end="timeout" if end == "stall" else "upstream")


@pytest.mark.parametrize("end", ["close", "stall"])
@pytest.mark.parametrize("api", APIS)
def test_usage_that_came_before_the_cut_counts(short_timeout, api, end):
    bank = short_timeout
    body = body_of(api, stream=True)
    if api == CHAT:
        bank.g.b.script(sse(chat_stream("m", done=False,
                                        tokens=chat_usage(5, 6)), end=end))
    else:
        bank.g.a.script(sse(message_stream("m", stop=False,
                                           usage=message_usage(5, 6)),
                            end=end))
    assert bank.post(api, body).status == 200
    # a translated stream is complete with its stop reason
    expect(bank, api, body, Seen(200, dict(input=5, output=6), True),
           end="complete" if api == TRANSLATED else
           "timeout" if end == "stall" else "upstream")


def whole(api, usage=True):
    """An answer, and the usage it reports."""
    if api == CHAT:
        obj, tokens = chat_completion("m", usage=chat_usage(
            5, 6, cached_tokens=2)), dict(input=3, cache_read=2, output=6)
    else:
        obj, tokens = message("m", usage=message_usage(
            5, 6, 2, 4)), dict(input=5, output=6, cache_read=2, cache_write=4)
    if not usage:
        del obj["usage"]
    return json.dumps(obj).encode(), tokens


@pytest.mark.parametrize("n", [1, 3, 5])
@pytest.mark.parametrize("api", APIS)
def test_a_cut_answer(bank, api, n):
    """Only the text that was received counts."""
    body = body_of(api)
    text = whole(api)[0]
    text = text[:text.index(b"Hello") + n]
    bank.up(api).script(reply(200, text, length=1000, end="close"))
    assert_flat(bank.post(api, body), 502)
    expect(bank, api, body, Seen(200, {}, False, n), end="upstream")


# Answers with status 200 that become a 502: the bytes, how they are sent.

UNFIT = {
    "broke off": (lambda text: text, dict(length=9000, end="close")),
    "more than JSON": (lambda text: text + b"}", {}),
    "an end is missing": (lambda text: text[:-1], {}),
    "not UTF-8": (lambda text: text[:-1] + b', "x": "\xff"}', {}),
    "another type": (lambda text: text, dict(ctype="text/plain")),
    "no type": (lambda text: text, dict(ctype=None)),
    "said to be encoded": (lambda text: text, dict(
        headers=[("Content-Encoding", "br")])),
}


@pytest.mark.parametrize("usage", [True, False])
@pytest.mark.parametrize("how", UNFIT)
@pytest.mark.parametrize("api", APIS)
def test_an_answer_that_the_client_never_got(bank, api, how, usage):
    """It costs the usage that it reports, else its text: the upstream bills
    for it."""
    text, tokens = whole(api, usage)
    change, kw = UNFIT[how]
    body = body_of(api)
    bank.up(api).script(reply(200, change(text), **kw))
    assert_flat(bank.post(api, body), 502)
    expect(bank, api, body, Seen(200, tokens, True) if usage
           else Seen(200, {}, False, SILENT), end=None)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("bytes, kw", [
    (gzip.compress(b"x" * 9999), dict(headers=[("Content-Encoding", "gzip")])),
    (os.urandom(60000), {}),
    (b"<html>" + b"x" * 60000, dict(ctype="text/html")),
    (b"{" + b" " * 200000 + b"}", dict(ctype="text/plain")),
    (b'{"model": "m", "x": "' + b"x" * 60000 + b'"', {}),
    (b"", {}),
], ids=["gzip", "noise", "a page", "blanks", "a string", "nothing"])
@pytest.mark.parametrize("api", APIS)
def test_bytes_that_are_no_text_cost_nothing(bank, api, stream, bytes, kw):
    """The client has no answer: only the estimate of the input is charged."""
    body = body_of(api, stream=stream)
    bank.up(api).script(reply(200, bytes, **kw))
    assert_flat(bank.post(api, body), 502)
    row = expect(bank, api, body, Seen(200), end=None)
    assert row["output"] == 0 and row["input"] == bound(api, body).estimate


def test_a_message_that_cannot_be_translated_costs_what_it_says(bank):
    text = whole(MESSAGES)[0].replace(b'"type": "message"', b'"type": "x"')
    body = body_of(TRANSLATED)
    bank.g.a.script(reply(200, text))
    assert_flat(bank.post(TRANSLATED, body), 502)
    expect(bank, TRANSLATED, body, Seen(200, whole(MESSAGES)[1], True),
           end=None)


@pytest.mark.parametrize("api", APIS)
def test_an_answer_in_place_of_a_stream_costs_what_it_says(bank, api):
    text, tokens = whole(api)
    body = body_of(api, stream=True)
    bank.up(api).script(reply(200, text))
    assert_flat(bank.post(api, body), 502)
    expect(bank, api, body, Seen(200, tokens, True), end=None)


@pytest.mark.parametrize("kw", [dict(ctype="text/plain"), {}])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_an_error_in_a_200_is_free_whatever_its_type(bank, api, stream, kw):
    body = body_of(api, stream=stream)
    bank.up(api).script(reply_json({"type": "error", "error": {
        "type": "overloaded_error", "message": "no"}}, **kw))
    r = bank.post(api, body)
    row = bank.row(body["model"])
    assert r.status == row["status"] >= 500
    assert (row["cost"], row["outcome"]) == (0, "refused")


@pytest.mark.parametrize("api", APIS)
def test_an_answer_whose_client_leaves_costs_the_text_that_came(make_bank,
                                                                api):
    bank = make_bank(location="modelgw_abort cut;", workers=1)
    text = whole(api)[0]
    begin = text.index(b"Hello") + 4
    sent = threading.Event()

    def script(x):
        x.head(200, [("Content-Type", "application/json")],
               length=len(text))
        x.body(text[:begin])
        x.wait_taken()
        sent.set()
        x.wait_gone(5)

    body = body_of(api)
    bank.up(api).script(script)
    with bank.open(api, body) as c:
        assert sent.wait(5)
        # the worker has read what was sent before this
        assert bank.g.get("/v1/models", bank.key(api)).status == 200
        c.reset()
    expect(bank, api, body, Seen(200, {}, False, 4), end="client")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("status", [301, 400, 401, 404, 422, 429, 500, 503,
                                    529])
def test_upstream_errors_are_free(bank, api, status):
    for stream in (False, True):
        body = body_of(api, stream=stream)
        bank.up(api).script(reply_json(chat_error("no"), status))
        assert bank.post(api, body).status >= 400
        row = bank.row(body["model"])
        assert (row["cost"], row["outcome"], row["status"]) \
            == (0, "refused", status)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_timeout_costs_the_estimate(short_timeout, api, stream):
    bank = short_timeout
    body = body_of(api, stream=stream)
    bank.up(api).script(raw("stall"))
    assert_flat(bank.post(api, body), 504, "UPSTREAM_TIMEOUT")
    row = expect(bank, api, body, Seen(), end="timeout", status=0)
    assert row["outcome"] == "unanswered" and row["cost"] > 0


@pytest.mark.timed("within a second, once in five times")
@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("reused", [False, True])
def test_a_reset_before_any_byte(make_bank, end, reused):
    """On a new connection the request may have been read.  On a kept one it
    was not, if the reset comes at once."""
    bank = make_bank(workers=1)
    for _ in range(5):
        bank.g.b.reset()
        if reused:
            assert bank.post(CHAT, body_of(CHAT)).status == 200
        body = body_of(CHAT)
        bank.g.b.script(raw(end))
        begin = time.monotonic()
        assert_flat(bank.post(CHAT, body), 502)
        soon = time.monotonic() - begin < 0.8
        assert bank.g.b.last().number == (1 if reused else 0)
        if soon or not reused:
            break
    expect(bank, CHAT, body, Seen(unread=reused), end="upstream", status=0)


def test_a_kept_connection_that_answers_late_was_read(make_bank):
    """It is closed a while after the request: the upstream has read that."""
    bank = make_bank(workers=1)
    assert bank.post(CHAT, body_of(CHAT)).status == 200
    body = body_of(CHAT)
    bank.g.b.script(raw(1.5, "reset"))
    assert_flat(bank.post(CHAT, body), 502)
    assert bank.g.b.last().number == 1
    expect(bank, CHAT, body, Seen(), end="upstream", status=0)


@pytest.mark.parametrize("api", APIS)
def test_connect_refused_costs_nothing(make_bank, api):
    """The hold is released each time: there is credit for one."""
    one = body_of(api, max_tokens=100)
    refused = Refused()
    bank = make_bank(money.euro(bound(api, one).hold + 1000), upstreams="""
    upstream m.test { server 127.0.0.1:%d; server 127.0.0.1:%d; }
    upstream c.test { server 127.0.0.1:%d; }"""
                     % ((refused.port,) * 3))
    for _ in range(5):
        r = bank.post(api, one)
        assert r.status in (502, 503), r
    bank.audit()
    assert not any(r["cost"] for r in bank.rows()), bank.rows()
    assert {r["outcome"] for r in bank.rows()} <= {"unsent"}
    assert bank.balance() == money.nano(bank.founding)
    refused.stop()


def test_the_next_peer_charges_once(make_bank):
    """What was not sent to the first goes to the second."""
    refused = Refused()
    bank = make_bank(upstreams="""
    upstream m.test { server 127.0.0.1:$a; }
    upstream c.test {
        server 127.0.0.1:%d max_fails=0; server 127.0.0.1:$b max_fails=0;
    }""" % refused.port)
    bodies = [body_of(CHAT) for _ in range(10)]
    for body in bodies:
        assert bank.post(CHAT, body).status == 200
        expect(bank, CHAT, body, Seen(200, dict(input=11, output=7), True))
    assert len(bank.g.b.requests) == len(bank.rows()) == 10
    refused.stop()


def test_L6_a_call_that_was_sent_is_not_sent_again(make_bank):
    bank = make_bank(upstreams="""
    upstream m.test { server 127.0.0.1:$a; }
    upstream c.test {
        server 127.0.0.1:$b max_fails=0; server localhost:$b max_fails=0;
        server 127.0.0.2:$b max_fails=0;
    }""")
    bank.g.b.script(raw("reset"))
    body = body_of(CHAT)
    assert_flat(bank.post(CHAT, body), 502)
    assert len(bank.g.b.requests) == 1
    expect(bank, CHAT, body, Seen(), end="upstream", status=0)


# Clients that leave.

@pytest.mark.parametrize("api", APIS)
def test_a_client_leaves_a_stream(bank, api):
    body = body_of(api, stream=True)
    events, seen = cut_events(api)
    bank.up(api).script(sse(events + [lambda x: x.wait_gone()]))
    with bank.open(api, body) as c:
        assert c.head().status == 200
        words = b"three" if api == CHAT else b"two"
        while words not in c.current.data:
            assert c.read()
        c.reset()
    expect(bank, api, body, seen, end="client")
    assert bank.up(api).last().gone.wait(client.LIMIT)


@pytest.mark.parametrize("api", APIS)
def test_a_client_leaves_before_the_first_byte_of_a_stream(bank, api):
    body = body_of(api, stream=True)
    bank.up(api).script(raw(lambda x: x.wait_gone()))
    with bank.open(api, body) as c:
        bank.up(api).wait()
        c.reset()
    expect(bank, api, body, Seen(), end="client", status=0)


@pytest.mark.parametrize("api", APIS)
def test_a_client_leaves_a_plain_answer(bank, api):
    """It is read to its end, where the usage is."""
    body = body_of(api)
    obj = (chat_completion("m", usage=chat_usage(8, 9)) if api == CHAT
           else message("m", usage=message_usage(8, 9)))
    gate = threading.Event()
    bank.up(api).script(raw(gate, reply_json(obj)))
    left = "client prematurely closed connection, "
    before = bank.g.log_count(left)
    with bank.open(api, body) as c:
        bank.up(api).wait()
        c.reset()
    bank.g.wait_log(left, before + 1)
    gate.set()
    row = bank.row(body["model"])
    assert row["outcome"] == "reported"
    assert row["cost"] == line_of(body["model"]).cost(dict(input=8,
                                                           output=9))


# 402

def padded(api, model, limit, name="max_tokens", **more):
    """A body whose length does not depend on the number in it."""
    body = body_of(api, model, **more)
    body[name] = limit
    body["messages"] = [{"role": "user", "content": "x" * (30 - len(
        str(limit)))}]
    return body


@pytest.mark.parametrize("api, line, name, more", [
    (CHAT, "tc-a", "max_tokens", {}),
    (CHAT, "tc-a", "max_tokens", {"n": 3}),
    (CHAT, "tc-b", "max_completion_tokens", {"max_tokens": 1}),
    (CHAT, "tc-b", "max_tokens", {"max_completion_tokens": 1}),
    (CHAT, "tc-a", "max_tokens", {"max_completion_tokens": None}),
    (MESSAGES, "tm-a", "max_tokens", {}),
    (MESSAGES, "tm-b", "max_tokens", {"stream": True}),
    (TRANSLATED, "tm-a", "max_completion_tokens", {}),
])
def test_402_says_what_fits(make_bank, api, line, name, more):
    bank = make_bank("0.020000007")
    left = bank.balance()
    body = padded(api, fresh(line), 60000, name, **more)
    b = bound(api, body)
    error = assert_flat(bank.post(api, body), 402, "INSUFFICIENT_CREDIT")
    fits = b.fits(line_of(body["model"]), left)
    assert fits > 0
    assert money.refusal(error["message"]) == (b.hold, left, fits)
    assert bank.g.untouched()

    over = padded(api, body["model"], fits + 1, name, **more)
    assert_flat(bank.post(api, over), 402, "INSUFFICIENT_CREDIT")
    just = padded(api, body["model"], fits, name, **more)
    assert bank.post(api, just).status == 200
    bank.row(body["model"])


def test_402_when_the_input_alone_is_too_much(make_bank):
    bank = make_bank("0.00003")
    body = body_of(CHAT, max_tokens=1)
    error = assert_flat(bank.post(CHAT, body), 402, "INSUFFICIENT_CREDIT",
                        has="add credit")
    assert "max_tokens" not in error["message"]
    assert money.refusal(error["message"]) == (
        bound(CHAT, body).hold, 30000, 0)
    assert bank.rows() == [] and bank.g.untouched()


def test_402_without_any_credit(make_bank):
    """0 is the default; calls that cost nothing work."""
    bank = make_bank("0")
    error = assert_flat(bank.post(CHAT, body_of(CHAT)), 402,
                        "INSUFFICIENT_CREDIT")
    assert money.refusal(error["message"])[1:] == (0, 0)
    for api, line in ((CHAT, "tc-f"), (MESSAGES, "tm-f"), (CHAT, "tc-z")):
        body = body_of(api, fresh(line))
        assert bank.post(api, body).status == 200
        row = bank.row(body["model"])
        assert (row["cost"], row["outcome"]) == (0, "reported")
    r = bank.g.post("/v1/messages/count_tokens",
                    body_of(MESSAGES, max_tokens=None), bank.km)
    assert r.status == 200
    assert bank.g.get("/v1/models", bank.km).status == 200
    assert bank.balance() == 0


def test_count_tokens_costs_nothing(bank):
    body = body_of(MESSAGES)
    r = bank.g.post("/v1/messages/count_tokens", body, bank.km)
    assert r.status == 200 and r.json() == {"input_tokens": 42}
    bank.none(body["model"])


def test_usage_above_the_hold(make_bank):
    """The real usage is charged, the balance becomes negative, the next call
    gets 402."""
    body = body_of(CHAT, max_tokens=10)
    bank = make_bank(money.euro(bound(CHAT, body).hold))
    start = bank.balance()
    bank.g.b.script(reply_json(chat_completion("m", usage=chat_usage(
        5000, 70000))))
    assert bank.post(CHAT, body).status == 200
    row = expect(bank, CHAT, body, Seen(200, dict(input=5000, output=70000),
                                        True))
    assert row["cost"] > bound(CHAT, body).hold
    assert bank.balance() == start - row["cost"] < 0
    error = assert_flat(bank.post(CHAT, body_of(CHAT)), 402,
                        "INSUFFICIENT_CREDIT")
    assert money.refusal(error["message"])[1:] == (start - row["cost"], 0)
    assert bank.post(CHAT, body_of(CHAT, fresh("tc-f"))).status == 200


def text(n):
    return "x" * n


PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}

# What determines a hold: more of the body, the line, the API.

HOLDS = [
    (CHAT, "tc-a", {}),
    (CHAT, "tc-a", {"max_tokens": 1}),
    (CHAT, "tc-a", {"max_tokens": None}),
    (CHAT, "tc-a", {"max_tokens": 7, "max_completion_tokens": 5}),
    (CHAT, "tc-a", {"max_tokens": 5, "max_completion_tokens": 700}),
    (CHAT, "tc-a", {"max_tokens": 5, "max_completion_tokens": None}),
    (CHAT, "tc-a", {"max_tokens": 0}),
    (CHAT, "tc-a", {"max_tokens": 0, "max_completion_tokens": 5}),
    (CHAT, "tc-a", {"max_tokens": 5, "n": 4}),
    (CHAT, "tc-a", {"max_tokens": 5, "n": None}),
    (CHAT, "tc-a", {"n": 3}),
    (CHAT, "tc-b", {}),
    (CHAT, "tc-b", {"max_tokens": 999999999}),
    (CHAT, "tc-b", {"max_tokens": 999999999, "n": 128}),
    (CHAT, "tc-b", {"user": text(20000)}),
    (CHAT, "tc-a", {"user": text(20000)}),
    (CHAT, "tc-a", {"user": text(200000)}),
    (CHAT, "tc-a", {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "https://a.test/1"}}]}]}),
    (CHAT, "tc-a", {"messages": [{"role": "user", "content": [
        {"type": "file", "file": {"file_data": "AAAA"}}]}]}),
    (CHAT, "tc-a", {"messages": [{"role": "user", "content": [
        {"type": "file", "file": {"file_id": "file-1"}}]}]}),
    (CHAT, "tc-a", {"tools": []}),
    (CHAT, "tc-a", {"tools": [{"type": "function", "function": {
        "name": "f", "parameters": {"properties": {
            "url": {"type": "string"}, "tools": {"type": "string"}}}}}]}),
    (MESSAGES, "tm-a", {"max_tokens": 1}),
    (MESSAGES, "tm-a", {"max_tokens": 64000}),
    (MESSAGES, "tm-b", {}),
    (MESSAGES, "tm-a", {"messages": [{"role": "user", "content": [
        {"type": "image", "source": PNG},
        {"type": "image", "source": {"type": "url",
                                     "url": "https://a.test/2"}}]}]}),
    (MESSAGES, "tm-b", {"messages": [{"role": "user", "content": [
        {"type": "document", "source": PDF}]}]}),
    (MESSAGES, "tm-a", {"messages": [{"role": "user", "content": [
        {"type": "document", "source": PDF}]}]}),
    (MESSAGES, "tm-b", {"messages": [{"role": "user", "content": [
        {"type": "document", "source": {"type": "url",
                                        "url": "https://a.test/3"}}]}]}),
    (MESSAGES, "tm-b", {"messages": [{"role": "user", "content": [
        {"type": "document", "source": {"type": "file",
                                        "file_id": "f"}}]}]}),
    (MESSAGES, "tm-a", {"system": [{"type": "text", "text": "Hi", "cache_"
                        "control": {"type": "ephemeral", "ttl": "1h"}}]}),
    (MESSAGES, "tm-a", {"system": [{"type": "text", "text": "Hi", "cache_"
                        "control": {"type": "ephemeral", "ttl": "5m"}}]}),
    (MESSAGES, "tm-a", {"tools": [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "edit"},
        {"type": "computer_20250124", "name": "computer"},
        {"type": "memory_20250818", "name": "memory"},
        {"name": "mine", "input_schema": {"type": "object"}}]}),
    (TRANSLATED, "tm-a", {}),
    (TRANSLATED, "tm-b", {"max_completion_tokens": 9}),
    (TRANSLATED, "tm-a", {"max_tokens": 9, "reasoning_effort": "high"}),
]


@pytest.fixture(scope="module")
def module_poor(module_gateway):
    return Bank(module_gateway, "0", locations=ADMIN)


@pytest.mark.parametrize("api, line, more", HOLDS)
def test_hold_and_estimate(bank, module_poor, api, line, more):
    """The hold is the amount in the 402; the estimate is what is charged for
    input that the upstream does not report."""
    body = body_of(api, fresh(line), **more)
    b = bound(api, body)
    error = assert_flat(module_poor.post(api, body), 402,
                        "INSUFFICIENT_CREDIT")
    assert money.refusal(error["message"]) == (b.hold, 0, 0)

    answer = silent(api)
    bank.up(api).script(reply(200, answer))
    assert bank.post(api, body).status == 200
    row = expect(bank, api, body, Seen(200, {}, False, SILENT))
    assert row["input"] == b.estimate


@pytest.mark.parametrize("how", [{}, {"chunked": True}, {"chunked": 3},
                                 {"version": "h2"},
                                 {"version": "h2", "length": False}])
def test_the_hold_is_of_the_body_however_it_comes(module_poor, how):
    body = body_of(CHAT, user=text(3000), tools=[])
    error = assert_flat(module_poor.post(CHAT, body, **how), 402)
    assert money.refusal(error["message"])[0] == bound(CHAT, body).hold


def test_names_that_are_written_with_escapes_count(module_poor):
    plain = body_of(CHAT)
    plain["messages"][0]["content"] = [
        {"type": "image_url", "image_url": {"url": "https://a.test/1"}}]
    escaped = wire(plain).replace(b'"url"', b'"\\u0075rl"').replace(
        b'"image_url":', b'"image\\u005furl":')
    error = assert_flat(module_poor.post(CHAT, escaped), 402)
    assert money.refusal(error["message"])[0] == Bound(
        escaped, line_of(plain["model"]), "chat").hold


OTHER_CASE = [
    (CHAT, "tc-a", {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "https://a.test/1"}}]}]},
     [("image_url", "Image_Url"), ("url", "URL")]),
    (CHAT, "tc-a", {"messages": [{"role": "user", "content": [
        {"type": "file", "file": {"file_id": "file-1"}}]}]},
     [("file_id", "File_Id")]),
    (CHAT, "tc-a", {"tools": []}, [("tools", "Tool\u017f")]),
    (MESSAGES, "tm-b", {"messages": [{"role": "user", "content": [
        {"type": "document", "source": PDF}]}]},
     [("type", "Type"), ("data", "\\u0044atA")]),
    (MESSAGES, "tm-a", {"system": [{"type": "text", "text": "Hi", "cache_"
                        "control": {"type": "ephemeral", "ttl": "1h"}}]},
     [("ttl", "TTL")]),
    (MESSAGES, "tm-a", {"tools": [{"type": "bash_20250124", "name": "bash"}]},
     [("type", "\\u0054YPE"), ("tools", "TOOL\\u017f")]),
]


@pytest.mark.parametrize("api, line, more, names", OTHER_CASE)
def test_names_in_other_case_count(module_poor, api, line, more, names):
    """As the exact names do: Go's decoder accepts both."""
    plain = wire(body_of(api, fresh(line), **more))
    other = plain
    for name, spelled in names:
        key = '"%s":' % name
        assert key.encode() in plain
        other = other.replace(key.encode(), ('"%s":' % spelled).encode())
    # as long as the other one: bytes count, too
    plain += b" " * (len(other) - len(plain))
    assert len(plain) == len(other) and plain != other
    error = assert_flat(module_poor.post(api, other), 402)
    hold = Bound(plain, line_of(line), SPOKEN.get(api, api)).hold
    assert money.refusal(error["message"])[0] == hold
    error = assert_flat(module_poor.post(api, plain), 402)
    assert money.refusal(error["message"])[0] == hold


# One account, many at once.

def race(bank, api, body, n):
    """n calls in parallel; (statuses of those that were refused, the
    connections that wait)."""
    conns = [bank.open(api, body) for _ in range(n)]
    statuses = []
    todo = {c.sock.fileno(): c for c in conns}
    poll = select.poll()
    for fd in todo:
        poll.register(fd, select.POLLIN)
    end = time.monotonic() + 2 * client.LIMIT
    while len(statuses) < n - bank.expected and time.monotonic() < end:
        for fd, _ in poll.poll(100):
            poll.unregister(fd)
            statuses.append(todo.pop(fd).head().status)
    return conns, statuses, list(todo.values())


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("api", [CHAT, MESSAGES])
def test_L1_credit_for_ten_admits_ten(make_bank, workers, api):
    """A thousand in parallel, credit for exactly ten; the upstream waits until
    all have been admitted or refused."""
    body = body_of(api, max_tokens=50)
    hold = bound(api, body).hold
    bank = make_bank(money.euro(hold * 10), workers=workers,
                     location="proxy_read_timeout 600s;")
    bank.expected = 10
    gate = threading.Event()
    answer = (chat_completion("m") if api == CHAT else message("m"))
    bank.up(api).script(raw(gate, reply_json(answer)))
    conns, statuses, waiting = race(bank, api, body, 1000)
    try:
        assert statuses == [402] * 990
        bank.up(api).wait(10)
        assert len(bank.up(api).requests) == 10
        assert bank.live()[ACCOUNT] == (hold * 10, hold * 10)
    finally:
        gate.set()
    for c in waiting:
        assert c.head().status == 200
    for c in conns:
        c.close()
    end = time.monotonic() + client.LIMIT
    while len(bank.rows()) < 10 and time.monotonic() < end:
        time.sleep(0.02)
    cost = line_of(body["model"]).cost(dict(input=11, output=7))
    assert [r["cost"] for r in bank.rows()] == [cost] * 10
    bank.settled()
    assert bank.balance() == hold * 10 - 10 * cost


def test_one_nano_euro_less_admits_one_less(make_bank):
    body = body_of(CHAT, max_tokens=50)
    hold = bound(CHAT, body).hold
    bank = make_bank(money.euro(hold * 3 - 1), workers=2,
                     location="proxy_read_timeout 60s;")
    bank.expected = 2
    gate = threading.Event()
    bank.g.b.script(raw(gate, reply_json(chat_completion("m"))))
    conns, statuses, waiting = race(bank, CHAT, body, 20)
    gate.set()
    assert statuses == [402] * 18
    for c in waiting:
        assert c.head().status == 200
    for c in conns:
        c.close()


def test_keys_share_an_account(make_bank):
    """What one of them spends is missing for the other."""
    body = body_of(CHAT, max_tokens=10)
    hold = bound(CHAT, body).hold
    bank = make_bank(money.euro(hold))
    bank.g.b.script(reply_json(chat_completion("m", usage=chat_usage(
        11, 10))))
    assert bank.post(CHAT, body).status == 200
    bank.row(body["model"])
    error = assert_flat(bank.post(MESSAGES, body_of(MESSAGES)), 402)
    assert money.refusal(error["message"])[1] \
        == hold - line_of(body["model"]).cost(dict(input=11, output=10))


def test_an_account_is_a_key_s_own_by_default(make_bank):
    lone = Key("lone", "c")
    bank = make_bank("0.5", keys=[lone])
    body = body_of(CHAT)
    assert bank.post(CHAT, body, key=lone).status == 200
    assert bank.row(body["model"])["account"] == "lone"
    assert bank.balance() == money.nano("0.5")


# Configuration.

def refused_config(check, text, **kw):
    r = check(http="modelgw_ledger $dir/l.db;",
              keys_text=Key("k", "a").line(), **kw)
    assert r.returncode != 0 and text in r.stderr, r.stderr
    assert "nginx.conf:" in r.stderr, r.stderr


def test_a_ledger_needs_prices(check):
    refused_config(check, "has no prices", groups=lib.group_a(
        models="model fam-a-large up;"))
    refused_config(check, "has no prices", groups=lib.group_a(
        models="model ~^fam-a-(.+)$ $1 context=1000;"))
    refused_config(check, "no bound of its output", groups=lib.group_a(
        models="model fam-a-large up input=1 output=1;"))
    refused_config(check, "give input=, or free", groups=lib.group_a(
        protocol="embeddings", models="model fam-a-large up kind=embedding;"))
    ok = "model fam-a-large up input=1 output=1 context=9; " \
        "model fam-a-small up free;"
    r = check(groups=lib.group_a(models=ok), keys_text=Key("k", "a").line(),
              http="modelgw_ledger $dir/l.db;")
    assert r.returncode == 0, r.stderr
    r = check(groups=lib.group_a(models="model fam-a-large up;"),
              keys_text=Key("k", "a").line())
    assert r.returncode == 0, r.stderr


def test_without_a_ledger_nothing_is_refused(make_bank, gateway):
    bank = Bank(gateway, ledger=False)
    for api in APIS:
        assert bank.post(api, body_of(api)).status == 200
    body = body_of(CHAT, service_tier="priority")
    assert bank.post(CHAT, body).status == 200
    assert not os.path.exists(bank.g.path("ledger.db"))


# What has a separate price.

TOOL = "web_search_20250305"

EXTRAS = [
    (CHAT, "service_tier", {"service_tier": "priority"}),
    (CHAT, "service_tier", {"service_tier": "flex"}),
    (MESSAGES, "service_tier", {"service_tier": "priority"}),
    (CHAT, "prediction", {"prediction": {"type": "content",
                                         "content": "x"}}),
    (CHAT, "audio", {"modalities": ["text", "audio"],
                     "audio": {"voice": "alloy", "format": "wav"}}),
    (CHAT, "speed", {"speed": "fast"}),
    (MESSAGES, "speed", {"speed": "fast"}),
    (MESSAGES, "inference_geo", {"inference_geo": "us"}),
    (CHAT, "web_search_options", {"web_search_options": {}}),
    (MESSAGES, "type", {"tools": [{"type": TOOL, "name": "web_search"}]}),
    (MESSAGES, "type", {"tools": [{"type": "mcp_toolset",
                                   "mcp_server_name": "x"}]}),
    (MESSAGES, "mcp_servers", {"mcp_servers": [
        {"type": "url", "url": "https://a.test/", "name": "x"}]}),
    (CHAT, "input_audio", {"messages": [{"role": "user", "content": [
        {"type": "input_audio", "input_audio": {"data": "AAAA",
                                                "format": "wav"}}]}]}),
    (MESSAGES, "type", {"tools": [{"type": "web_fetch_20250910",
                                    "name": "web_fetch"}]}),
    (MESSAGES, "type", {"tools": [{"type": "code_execution_20250522",
                                    "name": "code_execution"}]}),
]


@pytest.mark.parametrize("api, field, more", EXTRAS)
def test_what_has_its_own_price_is_refused(bank, api, field, more):
    line = "tc" if api == CHAT else "tm"
    body = body_of(api, fresh(line + "-a"), **more)
    assert_flat(bank.post(api, body), 400,
                ("INVALID_FIELD", "UNSUPPORTED_FIELD"), has=field)
    assert bank.g.untouched()
    body = body_of(api, fresh(line + "-x"), **more)
    assert bank.post(api, body).status == 200
    assert bank.row(body["model"])["cost"] > 0


OTHER_CASE_EXTRAS = [
    (MESSAGES, "type", '"tools":[{"Type":"%s","name":"x"}]' % TOOL),
    (MESSAGES, "type", '"tools":[{"type":"x","TYPE":"%s"}]' % TOOL),
    (MESSAGES, "type", '"tools":[{"TYPE":"%s","type":"x"}]' % TOOL),
    (MESSAGES, "type", '"tools":[{"\\u0054ype":"mcp_toolset"}]'),
    (MESSAGES, "type", '"x":[[{"y":{"tYpe":"code_execution_20250522"}}]]'),
    (MESSAGES, "mcp_servers", '"Mcp_Servers":[]'),
    (MESSAGES, "mcp_servers", '"mcp_\u017fERVER\u017f":[]'),
    (MESSAGES, "mcp_servers", '"mcp_\\u017fervers":[]'),
    (CHAT, "input_audio", '"messages":[{"role":"user","content":[{"Type":'
     '"input_audio","Input_Audio":{"data":"AAAA","format":"wav"}}]}]'),
    (CHAT, "service_tier", '"Service_Tier":"flex"'),
    (CHAT, "service_tier", '"\u017fervice_tier":"flex"'),
]


@pytest.mark.parametrize("api, field, more", OTHER_CASE_EXTRAS)
def test_other_case_of_what_has_its_own_price(bank, api, field, more):
    doc = body_of(api)
    if more.startswith('"messages"'):
        del doc["messages"]
    body = wire(doc)[:-1] + b"," + more.encode() + b"}"
    assert_flat(bank.post(api, body), 400, "INVALID_FIELD", has='"%s"' % field)
    assert bank.g.untouched()


@pytest.mark.parametrize("api", [CHAT, MESSAGES])
def test_other_case_elsewhere_passes(bank, api):
    """Names chosen by the client, and values: Go compares these exactly."""
    schema = {"type": "object", "properties": {
        "Type": {"type": "string", "enum": ["Web_Search_20250305"]},
        "URL": {"type": "string"}, "Data": {"type": "string"},
        "File_Id": {"type": "string"}, "Tools": {"type": "array"},
        "TTL": {"type": "string", "default": "1h"},
        "Model": {"type": "string"}, "Stream": {"type": "boolean"},
        "Max_Tokens": {"type": "integer"}, "Service_Tier": {}, "N": {},
        "inputAudio": {}, "mcpServers": {}, "typ\u0131": {}}}
    tool = ({"name": "f", "input_schema": schema} if api == MESSAGES else
            {"type": "function",
             "function": {"name": "f", "parameters": schema}})
    body = body_of(api, tools=[tool], user="Type",
                   metadata={"Type": "Web_Search_2", "TYPE": "WEB_SEARCH_2"})
    assert bank.post(api, body).status == 200


@pytest.mark.parametrize("more", [
    {"service_tier": "auto"}, {"service_tier": "default"},
    {"service_tier": None}, {"prediction": None}, {"audio": None},
    {"web_search_options": None}, {"modalities": None},
    {"speed": "standard"}, {"inference_geo": "global"}])
def test_what_leaves_the_price_as_it_is_passes(bank, more):
    assert bank.post(CHAT, body_of(CHAT, **more)).status == 200


def test_text_alone_is_no_audio(bank):
    """"modalities" with text only do not change the price."""
    assert bank.post(CHAT, body_of(CHAT, modalities=["text"])).status == 200


@pytest.mark.parametrize("value", [
    "context-1m-2025-08-07", "a-1,context-1m-2025-08-07",
    "Context-1M-2025-08-07"])
def test_a_header_that_raises_the_price(bank, value):
    headers = [("anthropic-beta", value)]
    body = body_of(MESSAGES)
    r = bank.post(MESSAGES, body, headers)
    if value != value.lower() and r.status == 200:
        return                      # vendors do not accept this form
    assert_flat(r, 400, "INVALID_FIELD", has="anthropic-beta")
    assert bank.g.untouched()
    body = body_of(MESSAGES, fresh("tm-x"))
    assert bank.post(MESSAGES, body, headers).status == 200


def test_other_betas_pass(bank):
    r = bank.post(MESSAGES, body_of(MESSAGES),
                  [("anthropic-beta", "fine-grained-tool-streaming-2025"),
                   ("anthropic-beta", "interleaved-thinking-2025-05-14")])
    assert r.status == 200


# Reloads, stops, kills.

def set_config(bank, **kw):
    for name, value in kw.items():
        setattr(bank.g, name, value)
    with open(bank.g.path("nginx.conf"), "w") as f:
        f.write(bank.g.config())


def raised():
    """The model lines at ten times the price."""
    return {name: line if line.free else Line(
        *["%d.%06d" % (10 * line.price[c] // 10 ** 6,
                       10 * line.price[c] % 10 ** 6)
          for c in ("input", "output", "cache_read", "cache_write",
                    "cache_write_1h")],
        context=line.context, max_output=line.max_output)
        for name, line in LINES.items()}


@pytest.mark.parametrize("api", APIS)
def test_L13_a_reload_in_the_middle_of_a_stream(make_bank, api):
    """Settled once, at the price of its hold; the next call has the new
    price."""
    bank = make_bank(location="proxy_read_timeout 60s;")
    gate = threading.Event()
    events = (chat_stream("m", tokens=chat_usage(5, 6)) if api == CHAT
              else message_stream("m", usage=message_usage(5, 6)))
    bank.up(api).script(sse(events[:3] + [gate] + events[3:]),
                        sse(events))
    body = body_of(api, stream=True)
    with bank.open(api, body) as c:
        assert c.head().status == 200
        assert c.read()
        set_config(bank, groups=groups(raised()))
        bank.g.reload()
        assert bank.live()[ACCOUNT] == (money.nano(RICH),
                                        bound(api, body).hold)
        assert bank.rows() == []
        gate.set()
        while c.read():
            pass
        assert c.current.complete
    expect(bank, api, body, Seen(200, dict(input=5, output=6), True))

    body = body_of(api, stream=True)
    assert bank.post(api, body).complete
    row = bank.row(body["model"])
    assert row["cost"] == raised()[body["model"][:4]].cost(
        dict(input=5, output=6))
    assert len(bank.rows()) == 2


def test_a_reload_keeps_the_balance(make_bank):
    """And grants no second founding credit."""
    bank = make_bank("1.5")
    body = body_of(CHAT)
    assert bank.post(CHAT, body).status == 200
    bank.row(body["model"])
    before = bank.live()
    set_config(bank, http=bank.g.http.replace("credit 1.5", "credit 7"))
    bank.g.reload()
    assert bank.live() == before
    assert bank.query("SELECT id, amount FROM topups") == [
        {"id": "founding:" + ACCOUNT, "amount": money.nano("1.5")}]


def test_a_restart_keeps_the_balance(make_bank):
    bank = make_bank("1.5")
    body = body_of(CHAT)
    assert bank.post(CHAT, body).status == 200
    row = bank.row(body["model"])
    bank.g.stop()
    assert bank.query("SELECT * FROM holds") == []
    bank.g.start()
    assert bank.live() == {ACCOUNT: (money.nano("1.5") - row["cost"], 0)}
    body = body_of(CHAT)
    assert bank.post(CHAT, body).status == 200
    assert bank.row(body["model"])["id"] > row["id"]


@contextlib.contextmanager
def running(bank, api):
    """A stream whose first events have reached the client, and that goes on;
    yields its body, and what was received of it."""
    events, seen = cut_events(api)
    bank.up(api).script(sse(events + [lambda x: x.wait_gone()]))
    body = body_of(api, stream=True)
    with bank.open(api, body) as c:
        assert c.head().status == 200
        words = b"three" if api == CHAT else b"two"
        while words not in c.current.data:
            assert c.read()
        yield body, seen


@pytest.mark.parametrize("api", APIS)
def test_term_with_a_running_stream(make_bank, api):
    """A fast stop settles running calls by what was received."""
    bank = make_bank(location="proxy_read_timeout 60s;")
    with running(bank, api) as (body, seen):
        bank.g.process.send_signal(signal.SIGTERM)
        assert bank.g.process.wait(client.LIMIT) == 0
    bank.g.process = None
    assert bank.g.faults() == []
    assert bank.query("SELECT * FROM holds") == []
    expect(bank, api, body, seen, end="stopped")
    bank.audit(live=False)


def test_quit_with_a_running_stream(make_bank):
    """A graceful stop lets it finish."""
    bank = make_bank(location="proxy_read_timeout 60s;")
    gate = threading.Event()
    events = chat_stream("m")
    bank.g.b.script(sse(events[:3] + [gate] + events[3:]))
    body = body_of(CHAT, stream=True)
    with bank.open(CHAT, body) as c:
        assert c.head().status == 200
        assert c.read()
        bank.g.process.send_signal(signal.SIGQUIT)
        bank.g.wait_log("gracefully shutting down")
        gate.set()
        while c.read():
            pass
        assert c.current.complete
    assert bank.g.process.wait(client.LIMIT) == 0
    bank.g.process = None
    expect(bank, CHAT, body, Seen(200, dict(input=11, output=7), True))
    bank.audit(live=False)


@pytest.mark.timed("once in five times within two seconds")
@pytest.mark.parametrize("api", APIS)
def test_L10_kill_of_a_worker_with_a_running_stream(make_bank, api):
    """Settled within a second by what was received; the hold is released."""
    bank = make_bank(location="proxy_read_timeout 600s;", workers=2)
    bank.g.expect("exited on signal 9")
    took = []
    while not took or took[-1] >= 2:
        assert len(took) < 5, took
        with running(bank, api) as (body, seen):
            at = time.time()
            bank.g.kill_workers()
            row = expect(bank, api, body, seen, end="killed")
            took.append(row["ended"] / 1000 - at)
    bank.up(api).reset()
    body = body_of(api)
    assert bank.post(api, body).status == 200
    bank.row(body["model"])


@pytest.mark.parametrize("api", APIS)
def test_a_power_cut_with_a_running_stream(make_bank, api):
    """Charged its estimate at the next start of nginx: it is lost."""
    bank = make_bank(location="proxy_read_timeout 60s;")
    events, _ = cut_events(api)
    bank.up(api).script(sse(events + [lambda x: x.wait_gone()]))
    done = body_of(api)
    body = body_of(api, stream=True)
    with bank.open(api, body) as c:
        assert c.head().status == 200
        assert c.read()
        assert bank.held() == [body["model"]]
        bank.g.power_cut()
    bank.g.start()
    b = bound(api, body)
    row = bank.row(body["model"])
    assert (row["outcome"], row["end"], row["input"], row["output"]) \
        == ("unanswered", "lost", b.estimate, 0)
    assert row["cost"] == line_of(body["model"]).cost(
        dict(input=b.estimate))
    assert bank.query("SELECT * FROM holds") == []
    bank.up(api).reset()
    assert bank.post(api, done).status == 200
    bank.row(done["model"])
    # once only
    bank.g.stop()
    bank.g.start()
    assert len(bank.rows()) == 2


# The access log.

def money_log(bank, tag):
    end = time.monotonic() + client.LIMIT
    while True:
        for line in bank.g.whole_lines("money.log"):
            if '"tag":"%s"' % tag in line:
                return json.loads(line)
        assert time.monotonic() < end, "nothing logged"
        time.sleep(0.02)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_the_log_says_what_it_cost(bank, api, stream, tag):
    body = body_of(api, stream=stream)
    assert bank.post(api, body, [("X-Test-Tag", tag)]).status == 200
    row, line = bank.row(body["model"]), money_log(bank, tag)
    assert line == {"tag": tag, "account": ACCOUNT, "outcome": "reported",
                    "call": str(row["id"]),
                    "cost": money.euro(row["cost"])}


def test_the_log_of_what_cost_nothing(bank, tag):
    """An error of the upstream is logged as a call that costs 0; a refusal of
    ours as no call."""
    bank.g.b.script(reply_json(chat_error("no"), 500))
    body = body_of(CHAT)
    bank.post(CHAT, body, [("X-Test-Tag", tag)])
    line = money_log(bank, tag)
    assert line["outcome"] == "refused"
    assert line["call"] == str(bank.row(body["model"])["id"])
    assert money.nano(line["cost"]) == 0
    bank.post(CHAT, body_of(CHAT, "tc-none"), [("X-Test-Tag", tag + "x")])
    line = money_log(bank, tag + "x")
    assert line["outcome"] in ("", "-")


# Size.

def test_ten_thousand_accounts(gateway):
    """And a hundred thousand keys with limits, in 64 MB."""
    many = []
    secrets = {}
    for i in range(100000):
        secret = "sk-eu-%048d" % i
        digest = hashlib.sha256(secret.encode()).hexdigest()
        many.append("key-%d sha256:%s c account=account-%d rpm=600 "
                    "tpm=1000000 concurrency=20;" % (i, digest, i // 10))
        if i % 33333 == 0:
            secrets[i] = secret
    start_timeout = 100
    g = gateway(groups=groups(), upstreams=UPSTREAMS, workers=2,
                start_timeout=start_timeout,
                keys_text="\n".join(many), locations=ADMIN,
                http="modelgw_zone 64m; modelgw_ledger $dir/ledger.db; "
                     "modelgw_founding_credit 1;")
    for i, secret in secrets.items():
        r = g.post("/v1/chat/completions", body_of(CHAT, max_tokens=9), None,
                   [("Authorization", "Bearer " + secret)])
        assert r.status == 200, r
    r = g.get("/admin/accounts")
    assert r.status == 200
    accounts = r.json()["accounts"]
    assert len(accounts) == 10000
    spent = [a for a in accounts if a["balance"] != "1.00"]
    assert len(spent) == len({i // 10 for i in secrets})
    g.reload(timeout=start_timeout)
