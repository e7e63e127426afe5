"""Limits of keys: requests and tokens a minute, calls in flight; the headers
about them.  The arithmetic of a minute is in unit/test_limit.c, whole minutes
under load are in limits_minute.py.
"""

import asyncio
import contextlib
import datetime
import re
import threading
import time

import anthropic
import openai
import pytest

from client import LIMIT, assert_flat
from gateway import Key, chat, group_a, group_b, messages, within
from sdk.apis import Chat, Messages, Translated, environment  # noqa: F401
from upstream import (chat_completion, chat_stream, chat_usage, message,
                      message_stream, message_usage, reply_json, sse)

CHAT_PATH = "/v1/chat/completions"
MESSAGES_PATH = "/v1/messages"


class Api:
    """One kind of call: its endpoint, group, upstream, and the answer."""

    def __init__(self, path, group, body, answer, stream):
        self.path = path
        self.group = group
        self.body = body
        self.answer = answer        # of the number of tokens of output
        self.stream = stream

    def up(self, g):
        return g.a if self.group == "a" else g.b

    def key(self, options="", id=None):
        return Key(id or "limited-" + self.group, self.group, options)

    def post(self, g, key, **more):
        return g.post(self.path, self.body(**more), key)


def output_of_message(n):
    return reply_json(message("large-2026-01-01", usage=message_usage(11, n)))


APIS = {
    "chat": Api(CHAT_PATH, "b", chat,
                lambda n: reply_json(chat_completion(
                    "one-0613", usage=chat_usage(11, n))),
                chat_stream("one-0613")),
    "messages": Api(MESSAGES_PATH, "a", messages, output_of_message,
                    message_stream("large-2026-01-01")),
    "translated": Api(CHAT_PATH, "a",
                      lambda **kw: chat(**{"model": "fam-a-large",
                                           "max_tokens": 100, **kw}),
                      output_of_message, message_stream("large-2026-01-01")),
}


@pytest.fixture(params=APIS)
def api(request):
    return APIS[request.param]


@pytest.fixture(params=["chat", "messages"])
def native(request):
    return APIS[request.param]


def refused(r, limit, what):
    """A 429 that names the limit and has Retry-After."""
    body = assert_flat(r, 429, "RATE_LIMITED")
    seconds = int(r.get("retry-after"))
    if what == "calls":
        assert body["message"] == (
            "Rate limit reached: %d %s at a time; try again in 1 s"
            % (limit, "call" if limit == 1 else "calls"))
        assert seconds == 1
    else:
        assert body["message"] == (
            "Rate limit reached: %d %s a minute; try again in %d s"
            % (limit, what[:-1] if limit == 1 else what, seconds))
    return seconds


def a_minute(seconds, begin):
    """The rest of the minute that the first call began, rounded up."""
    assert 60 - (time.monotonic() - begin) <= seconds <= 60


def eventually(call, timeout=LIMIT):
    """Calls until the answer is not a 429; returns that answer."""
    end = time.monotonic() + timeout
    while True:
        r = call()
        if r.status != 429 or time.monotonic() > end:
            return r
        time.sleep(0.05)


# Requests a minute.

def test_rpm(gateway, api):
    key = api.key("rpm=5")
    g = gateway(keys=[key])
    begin = time.monotonic()
    for _ in range(5):
        assert api.post(g, key).status == 200
    for _ in range(3):
        a_minute(refused(api.post(g, key), 5, "requests"), begin)
    assert len(api.up(g).requests) == 5


def test_rpm_over_h2(gateway, native):
    key = native.key("rpm=2")
    g = gateway(keys=[key])
    for status in (200, 200, 429, 429):
        r = g.post(native.path, native.body(), key, version="h2")
        assert r.status == status
    refused(r, 2, "requests")


def test_keys_are_apart(gateway, native):
    keys = [native.key("rpm=2", "one"), native.key("rpm=3", "two"),
            native.key("", "three")]
    g = gateway(keys=keys)
    for key, n in zip(keys, (2, 3, 6)):
        got = [native.post(g, key).status for _ in range(6)]
        assert got == [200] * n + [429] * (6 - n)


def test_refused_before_the_body(gateway, native):
    """The response comes before the body was sent."""
    key = native.key("rpm=1")
    g = gateway(keys=[key])
    assert native.post(g, key).status == 200
    with g.connect() as c:
        c.send(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
               b"Authorization: Bearer %s\r\n\r\n{"
               % (native.path.encode(), key.secret.encode()))
        refused(c.response(), 1, "requests")
    assert len(native.up(g).requests) == 1


def test_what_does_not_count(gateway):
    """Lists of models, counts of tokens, invalid keys."""
    key = Key("limited", "a", "rpm=1 tpm=1 concurrency=1")
    g = gateway(keys=[key])
    g.a.script(reply_json({"input_tokens": 5}))
    count = {"model": "fam-a-large",
             "messages": [{"role": "user", "content": "Hi"}]}
    for _ in range(3):
        r = g.get("/v1/models", key)
        assert r.status == 200 and not limit_headers(r)
        r = g.post("/v1/messages/count_tokens", count, key)
        assert r.status == 200 and not limit_headers(r)
        assert g.post(MESSAGES_PATH, messages(),
                      Key("unknown", "a")).status == 401
    g.a.reset()
    assert g.messages(key=key).status == 200
    refused(g.messages(key=key), 1, "requests")


def test_a_refused_call_counts(gateway, native):
    """A request counts, whatever else is wrong with it."""
    key = native.key("rpm=2")
    g = gateway(keys=[key])
    assert g.post(native.path, "{", key).status == 400
    assert native.post(g, key, model="none").status == 400
    refused(native.post(g, key), 2, "requests")
    assert g.untouched()


# Tokens a minute.

def test_tpm(gateway, api):
    """Tokens count as the upstream reports them."""
    key = api.key("tpm=1000")
    g = gateway(keys=[key])
    api.up(g).script(api.answer(489))
    begin = time.monotonic()
    for _ in range(2):
        assert api.post(g, key, max_tokens=50).status == 200
    a_minute(refused(api.post(g, key, max_tokens=50), 1000, "tokens"), begin)
    assert len(api.up(g).requests) == 2


def test_tpm_estimate_is_corrected(gateway, api):
    """Each call takes more than half of the limit, and uses little."""
    key = api.key("tpm=1000")
    g = gateway(keys=[key])
    api.up(g).script(api.answer(7))
    for _ in range(20):
        assert api.post(g, key, max_tokens=600).status == 200


def test_tpm_used_more_than_thought(gateway, api):
    key = api.key("tpm=1000")
    g = gateway(keys=[key])
    api.up(g).script(api.answer(5000))
    assert api.post(g, key, max_tokens=10).status == 200
    refused(api.post(g, key, max_tokens=10), 1000, "tokens")


@pytest.mark.parametrize("limit", [200, 4000])
def test_tpm_estimate_holds_while_a_call_runs(gateway, api, limit):
    """Of calls that may use a fifth of the limit four run; so they do if each
    may use more than all of it, which counts as a quarter."""
    key = api.key("tpm=1000")
    g = gateway(keys=[key])
    gate = threading.Event()
    api.up(g).script(sse(api.stream[:1] + [gate] + api.stream[1:]))
    more = {"max_tokens": limit}
    with contextlib.ExitStack() as stack:
        calls = [stack.enter_context(opened(g, api, key, **more))
                 for _ in range(4)]
        refused(api.post(g, key, **more), 1000, "tokens")
        gate.set()
        for c in calls:
            finish(c)
    api.up(g).reset()
    assert eventually(lambda: api.post(g, key, **more)).status == 200


def test_tpm_of_what_the_upstream_refused(gateway, api):
    """Nothing was used: the whole estimate is given back."""
    key = api.key("tpm=1000")
    g = gateway(keys=[key])
    api.up(g).script(reply_json({"error": {"message": "no"}}, 500))
    for _ in range(5):
        assert api.post(g, key, max_tokens=600).status == 502


def test_tpm_calls_above_the_limit(gateway, api):
    """Each may use more than a minute has, but uses 18: they pass one after
    the other until the minute is used up."""
    key = api.key("tpm=50")
    g = gateway(keys=[key])
    for _ in range(3):
        assert api.post(g, key, max_tokens=4000).status == 200
    refused(api.post(g, key, max_tokens=4000), 50, "tokens")


# Calls in flight.

@contextlib.contextmanager
def opened(g, api, key, **more):
    """A stream that has begun."""
    with g.connect() as c:
        c.request("POST", api.path, [key.bearer()],
                  api.body(stream=True, **more))
        assert c.head().status == 200
        assert c.read()
        yield c


def finish(c):
    while c.read():
        pass
    assert c.current.complete


def test_concurrency(gateway, api):
    key = api.key("concurrency=2")
    g = gateway(keys=[key])
    gate = threading.Event()
    api.up(g).script(sse(api.stream[:1] + [gate] + api.stream[1:]))
    with opened(g, api, key) as one, opened(g, api, key) as two:
        for _ in range(3):
            refused(api.post(g, key), 2, "calls")
        gate.set()
        finish(one)
        finish(two)
    api.up(g).reset()
    for _ in range(5):
        assert eventually(lambda: api.post(g, key)).status == 200


def test_concurrency_freed_by_errors(gateway, api):
    """A call that is refused, by us or by the upstream, is no longer in
    flight, immediately."""
    key = api.key("concurrency=1")
    g = gateway(keys=[key])
    for _ in range(3):
        assert g.post(api.path, "{", key).status == 400
        assert api.post(g, key, model="none").status == 400
    api.up(g).script(reply_json({"error": {"message": "no"}}, 500))
    for _ in range(3):
        assert api.post(g, key).status == 502


def test_concurrency_from_the_headers_on(gateway, native):
    """A client that is slow to send a body has a call in flight until it
    leaves."""
    key = native.key("concurrency=1")
    g = gateway(keys=[key])
    with g.connect() as c:
        c.send(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
               b"Authorization: Bearer %s\r\nExpect: 100-continue\r\n\r\n"
               % (native.path.encode(), key.secret.encode()))
        # nginx asks for the body after the access phase: the call is counted
        c.recv()
        assert c.data.startswith(b"HTTP/1.1 100"), c.data
        refused(native.post(g, key), 1, "calls")
    assert eventually(lambda: native.post(g, key)).status == 200


def test_concurrency_freed_by_an_abort(gateway, api):
    key = api.key("concurrency=1")
    g = gateway(keys=[key])
    api.up(g).script(sse(api.stream[:1] + [lambda x: x.wait_gone()]))
    with opened(g, api, key):
        refused(api.post(g, key), 1, "calls")
    api.up(g).reset()
    assert eventually(lambda: api.post(g, key)).status == 200


@pytest.mark.timed("once in five times within three seconds")
def test_concurrency_freed_by_a_killed_worker(gateway, api):
    key = api.key("concurrency=1")
    g = gateway(keys=[key], workers=2)
    g.expect(r"exited on signal 9")

    def killed():
        api.up(g).script(sse(api.stream[:1] + [lambda x: x.wait_gone()]))
        with opened(g, api, key):
            refused(api.post(g, key), 1, "calls")
            g.kill_workers()
        api.up(g).reset()
        assert eventually(lambda: api.post(g, key)).status == 200

    within(killed, 3)


@pytest.mark.timed("a second")
def test_retry_after_of_concurrency(gateway, native):
    """A retry after Retry-After passes, if there is room."""
    key = native.key("concurrency=1")
    g = gateway(keys=[key])
    gate = threading.Event()
    native.up(g).script(sse(native.stream[:1] + [gate] + native.stream[1:]))
    with opened(g, native, key) as c:
        wait = refused(native.post(g, key), 1, "calls")
        gate.set()
        finish(c)
        time.sleep(wait)
    native.up(g).reset()
    assert native.post(g, key).status == 200


# Defaults of the group.

def test_group(gateway, native):
    """Its limits apply to each key that has none of its own."""
    keys = [native.key("", "one"), native.key("", "two"),
            native.key("rpm=5", "three"), native.key("tpm=5000", "four")]
    g = gateway(keys=keys, groups=group_a(extra="limits rpm=3;")
                + group_b(extra="limits rpm=3;"))
    for key, n in zip(keys, (3, 3, 5, 3)):
        got = [native.post(g, key).status for _ in range(7)]
        assert got == [200] * n + [429] * (7 - n), key.id


def test_group_concurrency_and_tokens(gateway, native):
    key = native.key()
    extra = "limits tpm=1000 concurrency=1;"
    g = gateway(keys=[key], groups=group_a(extra=extra)
                + group_b(extra=extra))
    gate = threading.Event()
    native.up(g).script(sse(native.stream[:1] + [gate] + native.stream[1:]))
    with opened(g, native, key, max_tokens=600) as c:
        refused(native.post(g, key), 1, "calls")
        gate.set()
        finish(c)
    native.up(g).script(native.answer(989))
    assert eventually(
        lambda: native.post(g, key, max_tokens=600)).status == 200
    refused(native.post(g, key), 1000, "tokens")


def test_reload(gateway, native):
    """What was taken stays taken; a limit that is raised leaves room."""
    key = native.key("rpm=3")
    g = gateway(keys=[key])
    for _ in range(3):
        assert native.post(g, key).status == 200
    g.reload()
    refused(native.post(g, key), 3, "requests")
    key.options = "rpm=4"
    g.write_keys()
    g.reload()
    assert native.post(g, key).status == 200
    refused(native.post(g, key), 4, "requests")


# Workers.

@pytest.mark.parametrize("workers", [2, 4])
def test_workers_share(gateway, native, workers):
    """However the calls are distributed, there is one limit."""
    key = native.key("rpm=40")
    g = gateway(keys=[key], workers=workers)
    statuses = []

    def client():
        for _ in range(25):
            statuses.append(native.post(g, key).status)

    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        threads = [threading.Thread(target=client) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if len(refusers(g)) > 1:
            break
    assert statuses.count(200) == 40
    assert set(statuses) == {200, 429}
    assert len(refusers(g)) > 1, "one worker had all the calls"
    assert len(native.up(g).requests) == 40


def refusers(g):
    """The workers that have refused a call."""
    return set(re.findall(r"\[info\] (\d+)#\d+: .* refused 429",
                          g.read("error.log")))


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_share_concurrency(gateway, native, workers):
    key = native.key("concurrency=5")
    g = gateway(keys=[key], workers=workers)
    gate = threading.Event()
    native.up(g).script(sse(native.stream[:1] + [gate] + native.stream[1:]))
    with contextlib.ExitStack() as stack:
        open_ = [stack.enter_context(opened(g, native, key))
                 for _ in range(5)]
        for _ in range(20):
            refused(native.post(g, key), 5, "calls")
        gate.set()
        for c in open_:
            finish(c)


# Headers for clients.

OPENAI = {"limit": "x-ratelimit-limit-%s",
          "remaining": "x-ratelimit-remaining-%s",
          "reset": "x-ratelimit-reset-%s"}
ANTHROPIC = {"limit": "anthropic-ratelimit-%s-limit",
             "remaining": "anthropic-ratelimit-%s-remaining",
             "reset": "anthropic-ratelimit-%s-reset"}


def limit_headers(r):
    """The names of all headers about limits."""
    return sorted(n.lower() for n, v in r.headers if "ratelimit" in n.lower())


def seconds_of(reset):
    """"1s", "6m0s", "20ms", as OpenAI writes it."""
    if reset.endswith("ms"):
        assert 0 < int(reset[:-2]) < 1000
        return int(reset[:-2]) / 1000
    m = re.fullmatch(r"(?:([1-9]\d*)m)?(\d|[1-5]\d)s", reset)
    assert m, reset
    return int(m.group(1) or 0) * 60 + int(m.group(2))


def limits_of(api, r, kinds=("requests", "tokens")):
    """{kind: (limit, remaining, seconds until the reset)}; checks that there
    are no others."""
    names = ANTHROPIC if api.path == MESSAGES_PATH else OPENAI
    assert limit_headers(r) == sorted(name % kind for name in names.values()
                             for kind in kinds), r
    out = {}
    for kind in kinds:
        limit, remaining, reset = (r.get(name % kind)
                                   for name in names.values())
        if names is ANTHROPIC:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", reset)
            at = datetime.datetime.strptime(reset + "+0000",
                                            "%Y-%m-%dT%H:%M:%SZ%z")
            seconds = at.timestamp() - time.time()
        else:
            seconds = seconds_of(reset)
        out[kind] = int(limit), int(remaining), seconds
    return out


def test_headers(gateway, api):
    key = api.key("rpm=10 tpm=100000")
    g = gateway(keys=[key])
    api.up(g).script(api.answer(7))
    for i in range(3):
        r = api.post(g, key, max_tokens=1000)
        assert r.status == 200
        limits = limits_of(api, r)
        assert limits["requests"][:2] == (10, 9 - i)
        assert 54 < limits["requests"][2] <= 120
        limit, remaining, seconds = limits["tokens"]
        # the estimate of this call, and what the others have used
        assert limit == 100000
        assert 98800 - 18 * i <= remaining <= 98999 - 18 * i
        assert 54 < seconds <= 121


def test_numbers(gateway, native):
    """With any number of digits."""
    limits = sorted({n + d for n in (10 ** k for k in range(10))
                     for d in (-1, 0, 1, 2) if 1 <= n + d <= 10 ** 9}
                    | {60, 1234567, 20304050, 909090909})
    keys = [native.key("rpm=%d" % n, "rpm-%d" % n) for n in limits]
    g = gateway(keys=keys)
    names = ANTHROPIC if native.path == MESSAGES_PATH else OPENAI
    for n, key in zip(limits, keys):
        r = native.post(g, key)
        assert r.get(names["limit"] % "requests") == str(n)
        assert r.get(names["remaining"] % "requests") == str(n - 1)


def test_headers_of_a_stream(gateway, api):
    key = api.key("rpm=10 tpm=100000")
    g = gateway(keys=[key])
    with opened(g, api, key) as c:
        limits = limits_of(api, c.current)
        finish(c)
    assert limits["requests"][:2] == (10, 9)


@pytest.mark.parametrize("options,kinds", [
    ("rpm=5", ["requests"]), ("tpm=50000", ["tokens"]),
    ("concurrency=5", []), ("", []),
    ("rpm=5 concurrency=5", ["requests"])])
def test_headers_of_what_there_is(gateway, native, options, kinds):
    key = native.key(options)
    g = gateway(keys=[key])
    r = native.post(g, key)
    assert r.status == 200
    limits_of(native, r, kinds)


def test_headers_of_errors(gateway, api):
    key = api.key("rpm=5 tpm=3000")
    g = gateway(keys=[key])
    r = g.post(api.path, "{", key)
    assert r.status == 400
    limits = limits_of(api, r)
    assert limits["requests"][:2] == (5, 4)
    assert limits["tokens"][:2] == (3000, 3000)

    api.up(g).script(reply_json({"error": {"message": "no"}}, 500))
    r = api.post(g, key)
    assert r.status == 502
    assert limits_of(api, r)["requests"][:2] == (5, 3)

    api.up(g).script(api.answer(2989))
    assert api.post(g, key).status == 200
    r = api.post(g, key)
    refused(r, 3000, "tokens")
    limits = limits_of(api, r)
    assert limits["requests"][:2] == (5, 1)
    assert limits["tokens"][:2] == (3000, 0)

    assert api.post(g, key).status == 429
    r = api.post(g, key)
    refused(r, 5, "requests")
    assert limits_of(api, r)["requests"][:2] == (5, 0)

    # without a key there are no headers
    assert not limit_headers(g.post(api.path, api.body()))


def test_headers_of_the_upstream_do_not_pass(gateway, native):
    """Its limits are the operator's."""
    key = native.key("rpm=5")
    g = gateway(keys=[key])
    headers = [(name % kind, "77") for names in (OPENAI, ANTHROPIC)
               for name in names.values() for kind in ("requests", "tokens")]
    native.up(g).script(reply_json(
        chat_completion("one-0613") if native.group == "b"
        else message("large-2026-01-01"), headers=headers))
    r = native.post(g, key)
    assert r.status == 200
    assert limits_of(native, r, ["requests"])["requests"][:2] == (5, 4)
    assert not limit_headers(
        native.post(g, g.alice if native.group == "a" else g.bob))


# No room.

def test_no_room_for_calls(gateway, native):
    """503, and a line for the operator."""
    key = native.key("concurrency=1000000")
    g = gateway(keys=[key], http="modelgw_zone 256k;")
    head = (b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
            b"Authorization: Bearer %s\r\n\r\n{"
            % (native.path.encode(), key.secret.encode()))
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            c = stack.enter_context(g.connect())
            c.send(head)
            try:
                c.recv(0.02)
                break
            except TimeoutError:
                pass
        r = c.response()
        assert_flat(r, 503, "SERVICE_UNAVAILABLE")
        assert r.get("retry-after") == "1"
    assert re.search(r'\[error\].*"modelgw_zone" has no room',
                     g.read("error.log"))
    end = time.monotonic() + LIMIT
    while native.post(g, key).status != 200:
        assert time.monotonic() < end
        time.sleep(0.05)


# The official SDKs.

@pytest.mark.parametrize("form", ["sync", "async"])
@pytest.mark.parametrize("cls", [Chat, Messages, Translated])
def test_sdk_raises(gateway, form, tag, cls):
    g = gateway(groups=group_a(extra="limits rpm=1;")
                + group_b(extra="limits rpm=1;"))
    api = cls(g, form, tag)

    async def body(c):
        r = await api.ask(c)
        with pytest.raises(api.sdk.RateLimitError) as e:
            await api.ask(c)
        return r, e.value

    r, e = api.run(body, max_retries=0)
    assert api.text(r) == "Hello"
    assert e.status_code == 429
    assert e.body["code"] == "RATE_LIMITED"
    assert "1 request a minute" in e.body["message"]
    assert 1 <= int(e.response.headers["retry-after"]) <= 60
    assert e.response.headers["x-ratelimit-limit-requests" if api.sdk is openai
                              else "anthropic-ratelimit-requests-limit"] == "1"


@pytest.mark.parametrize("form", ["sync", "async"])
@pytest.mark.parametrize("cls", [Chat, Messages])
def test_sdk_waits(gateway, form, tag, cls):
    """The SDK retries after Retry-After by itself, and passes."""
    key = "b" if cls is Chat else "a"
    g = gateway(groups=group_a(extra="limits concurrency=1;")
                + group_b(extra="limits concurrency=1;"))
    api = cls(g, form, tag)
    native = APIS["chat" if key == "b" else "messages"]
    refused = threading.Event()
    native.up(g).script(sse(native.stream[:1] + [refused]
                            + native.stream[1:]),
                        native.answer(7))

    async def body(c):
        begin = time.monotonic()
        r = await api.ask(c)
        return r, time.monotonic() - begin

    with opened(g, native, api.key) as c:
        reader = threading.Thread(target=finish, args=(c,))
        reader.start()
        watcher = threading.Thread(target=wait_refused, args=(g, refused))
        watcher.start()
        r, took = api.run(body, max_retries=1)
        watcher.join()
        reader.join()
    assert api.text(r) == "Hello"
    assert took >= 1
    assert api.seen(2) == 2


def wait_refused(g, event):
    """Sets the event when a call has been refused, or never will be."""
    end = time.monotonic() + LIMIT
    while '"status":"429"' not in g.read("access.log") \
            and time.monotonic() < end:
        time.sleep(0.02)
    event.set()


# A minute.

@pytest.mark.timed("a minute")
def test_retry_after_of_a_minute(gateway):
    """A retry after Retry-After passes: with requests and with tokens, in
    parallel, since it takes a minute."""
    cases = [(APIS["chat"], Key("one", "b", "rpm=2"), "requests"),
             (APIS["messages"], Key("two", "a", "tpm=2000"), "tokens")]
    g = gateway(keys=[key for _, key, _ in cases], workers=2)
    g.a.script(APIS["messages"].answer(989))
    waits = []
    for api, key, what in cases:
        for _ in range(2):
            assert api.post(g, key, max_tokens=50).status == 200
        at = time.monotonic()
        wait = refused(api.post(g, key, max_tokens=50),
                       2 if what == "requests" else 2000, what)
        waits.append(at + wait)

    for (api, key, what), at in zip(cases, waits):
        time.sleep(max(at - time.monotonic() - 5, 0))
        r = api.post(g, key, max_tokens=50)
        if r.status == 429:             # the machine was not that late
            wait = refused(r, 2 if what == "requests" else 2000, what)
            assert wait <= 10
            time.sleep(wait)
            r = api.post(g, key, max_tokens=50)
        assert r.status == 200 and time.monotonic() > at - 1.5
