"""The official Node SDKs and the AI SDK against the gateway.

sdk/scenes.mjs runs all scenes at once in one process; the tests check their
results.  The text of each question names its scene, by which SCRIPTS selects
the upstream's answer.
"""

import json

import pytest

import upstream
from gateway import Gateway, chat, messages
from sdk import answers, node
from upstream import (chat_error, chat_stream, data, event, message_error,
                      message_stream, reply_json, sse)

LONG = "prompt is too long: 210000 tokens > 200000 maximum"

# "translated" is the chat SDK with a group that speaks messages

CHAT = ["openai", "translated"]
NEW = CHAT + ["anthropic"]
SDKS = NEW + ["openai-5", "openai-6", "anthropic-0"]
AI = ["ai-chat", "ai-messages", "ai-translated"]

WHY = {"ai-chat": "The upstream failed", "ai-messages": "The upstream failed",
       "ai-translated": "before it was complete"}

pytestmark = node.needed


# The upstream's answers.

def speaks_chat(x):
    return x.request.target.endswith("/chat/completions")


def begun(x):
    """The beginning of a stream."""
    model = x.request.json()["model"]
    return chat_stream(model)[:3] if speaks_chat(x) \
        else message_stream(model)[:5]


def broken(end):
    def run(x):
        sse(begun(x) + [0.05], end=end)(x)

    return run


def frame(x):
    text = "Overloaded, says the model"
    end = [data(chat_error(text)) if speaks_chat(x)
           else event("error", message_error(text, "overloaded_error"))]
    sse(begun(x) + end + [0.05], end="close")(x)


def error(status, text, **kw):
    def run(x):
        make = chat_error if speaks_chat(x) else message_error
        reply_json(make(text), status, **kw)(x)

    return run


def left(x):
    """Until the client hangs up."""
    sse(begun(x) + [lambda x: x.server.left(x)])(x)


SCRIPTS = {
    "tools": lambda: answers.tools("weather"),
    "tool_stream": lambda: answers.tools("weather"),
    "break": lambda: left,
    "broken_cut": lambda: broken("close"),
    "broken_clean": lambda: broken("clean"),
    "broken_frame": lambda: frame,
    "error_400": lambda: error(400, LONG),
    "error_429": lambda: error(429, "slow", headers=[("Retry-After", "7")]),
    "error_500": lambda: error(500, "boom"),
    "error_529": lambda: error(529, "boom"),
    "error_early": lambda: sse([0.05], end="close"),
    "retry_500": lambda: error(500, "boom"),
    "retry_429": lambda: answers.first_of(
        error(429, "slow", headers=[("Retry-After", "2")]), upstream.both),
}

for how in ("cut", "clean", "frame"):
    SCRIPTS["helper_" + how] = SCRIPTS["broken_" + how]


class Stage(upstream.Upstream):
    """An upstream with a script for each scene."""

    def reset(self):
        super().reset()
        self.scripts = [self.play]
        self.played = {}
        self.running = {}
        self.hung_up = set()

    def scene(self, x):
        content = x.request.json()["messages"][0]["content"]
        return content if isinstance(content, str) else content[0]["text"]

    def play(self, x):
        name = self.scene(x)
        with self.lock:
            self.played.setdefault(name, []).append(x.request)
            if name not in self.running:
                script = SCRIPTS.get(name.split(".")[1])
                self.running[name] = script() if script else upstream.both
        self.running[name](x)

    def left(self, x):
        if x.wait_gone():
            self.hung_up.add(self.scene(x))


class Results(node.Results):

    def __init__(self, results, gateways, a, b):
        super().__init__(results)
        self.keys = [key for g in gateways for key in g.keys]
        self.log = "".join(g.read("access.log") for g in gateways)
        self.played = {**a.played, **b.played}
        self.hung_up = a.hung_up | b.hung_up

    def tries(self, name):
        """The number of requests that the gateway got."""
        return self.log.count('"tag":"%s"' % name)


def start(factory, a, b, keys=None, **kw):
    g = Gateway(factory.mktemp("node"), a, b, **kw)
    g.keys = keys or g.keys
    return g.start()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    a, b, nobody = Stage(), Stage(), upstream.Refused()
    gw = start(tmp_path_factory, a, b)
    gateways = {
        "url": gw,
        "compat": start(tmp_path_factory, a, b, gw.keys,
                        server="modelgw_error_compat on;"),
        "refused": start(tmp_path_factory, nobody, nobody, gw.keys)}

    at = {name: "http://127.0.0.1:%d" % g.port
          for name, g in gateways.items()}
    try:
        results = node.play("scenes.mjs", gw.dir, alice=gw.alice.secret,
                            bob=gw.bob.secret, **at)
        yield Results(results, gateways.values(), a, b)
    finally:
        for g in gateways.values():
            g.stop()
        for server in (a, b, nobody):
            server.stop()


def of(prefixes):
    return pytest.mark.parametrize("sdk", prefixes)


MODEL = {"openai": "fam-b-one", "translated": "fam-a-large",
         "openai-5": "fam-b-one",
         "openai-6": "fam-b-one", "anthropic": "fam-a-large",
         "anthropic-0": "fam-a-large"}


# Answers.

@of(SDKS)
def test_answer(run, sdk):
    r = run.ok(sdk + ".answer")
    assert r["text"] == "Hello" and r["model"] == MODEL[sdk]
    assert sdk == "openai-5" or r["id"]
    assert run.tries(sdk + ".answer") == 1


@of(SDKS)
def test_stream(run, sdk):
    r = run.ok(sdk + ".stream")
    assert r["text"] == "Hello" and r["models"] == [MODEL[sdk]]
    assert "error" not in r
    assert run.ok(sdk + ".helper") == {"text": "Hello", "model": MODEL[sdk]}


@of(NEW)
def test_tools(run, sdk):
    assert run.ok(sdk + ".tools") == {"call": answers.ARGUMENTS,
                                      "text": "It is fine."}


@of(SDKS)
def test_tools_in_a_stream(run, sdk):
    assert run.ok(sdk + ".tool_stream")["call"] == answers.ARGUMENTS


@of(NEW)
def test_models(run, sdk):
    r = run.ok(sdk + ".models")
    assert r["ids"] == (["fam-b-one", "fam-b-two"] if sdk == "openai" else
                        ["fam-a-large", "fam-a-small", "fam-a-mini"])
    assert r["one"] == MODEL[sdk]
    assert r["error"]["class"] == "NotFoundError"


@of(CHAT)
def test_usage_only_when_asked(run, sdk):
    assert run.ok(sdk + ".usage") == {"plain": 0, "asked": 1}


def test_count_tokens(run):
    assert run.ok("anthropic.count_tokens")["input_tokens"] == 42


def test_beta(run):
    for scene in ("anthropic.beta", "anthropic.beta_query"):
        assert run.ok(scene) == {"text": "Hello", "model": "fam-a-large"}
    assert run.played["anthropic.beta"][0].get("anthropic-beta")
    assert run.played["anthropic.beta_query"][0].target \
        == "/v1/messages?beta=true"


@of(NEW)
def test_key_with_blanks(run, sdk):
    assert run.ok(sdk + ".key_blanks")["text"] == "Hello"


def test_key_in_each_header(run):
    assert run.ok("anthropic.auth_token")["text"] == "Hello"
    assert run.ok("anthropic.both_keys")["text"] == "Hello"
    head = run.played["anthropic.both_keys"][0].head
    assert b"sk-ant-" not in head


def test_no_key_reaches_the_upstream(run):
    for requests in run.played.values():
        for request in requests:
            for key in run.keys:
                assert key.secret.encode() not in request.head


@of(NEW)
def test_break_closes_the_upstream(run, sdk):
    assert run.ok(sdk + ".break") == ["Hel"]
    assert sdk + ".break" in run.hung_up


# Errors.

ERRORS = {
    "error_401": (401, "AuthenticationError", "INVALID_API_KEY",
                  "Invalid API key"),
    "error_model": (400, "BadRequestError", "INVALID_MODEL", ""),
    "error_400": (400, "BadRequestError",
                  ("CONTEXT_LENGTH_EXCEEDED", "INVALID_REQUEST"), LONG),
    "error_403": (403, "PermissionDeniedError", "PROVIDER_MISMATCH", ""),
    "error_404": (404, "NotFoundError", "NOT_FOUND", ""),
    "error_429": (429, "RateLimitError", "RATE_LIMITED", ""),
    "error_500": (502, "InternalServerError", "UPSTREAM_ERROR", ""),
    "error_early": (502, "InternalServerError",
                    ("UPSTREAM_ERROR", "UPSTREAM_TRUNCATED"), ""),
}


@of(NEW)
@pytest.mark.parametrize("scene", ERRORS)
def test_error(run, sdk, scene):
    """One request each, and the error has the reason."""
    status, cls, codes, text = ERRORS[scene]
    name = "%s.%s" % (sdk, scene)
    e = run.error(name)
    assert (e["status"], e["class"]) == (status, cls), e
    code = e["code"] if sdk in CHAT else e["body"]["code"]
    assert code in ([codes] if isinstance(codes, str) else codes)
    assert e["message"].startswith("%d " % status) and text in e["message"]
    assert len(e["message"]) > 4, "no reason"
    assert e["id"]
    assert run.tries(name) == 1
    assert (e["retry"] == "false") is (status in (400, 401, 403, 404))


def test_error_529(run):
    """Messages has this status, chat gets a 503."""
    e = run.error("anthropic.error_529")
    assert (e["status"], e["class"]) == (529, "OverloadedError")
    for sdk in CHAT:
        e = run.error(sdk + ".error_529")
        assert (e["status"], e["code"]) == (503, "UPSTREAM_OVERLOADED")


@pytest.mark.parametrize("sdk", ["openai-5", "openai-6"])
def test_errors_of_older_majors(run, sdk):
    """They do not read the flat body, only that of modelgw_error_compat."""
    e = run.error(sdk + ".error_401")
    assert e["class"] == "AuthenticationError"
    assert (e["message"], e["code"]) == ("401 Invalid API key",
                                         "INVALID_API_KEY")
    assert run.tries(sdk + ".error_401") == 1
    e = run.error(sdk + ".error_400")
    assert e["message"] == "400 " + LONG and e["code"]


def test_errors_of_an_older_messages_sdk(run):
    e = run.error("anthropic-0.error_401")
    assert e["class"] == "AuthenticationError"
    assert "Invalid API key" in e["message"]
    assert LONG in run.error("anthropic-0.error_400")["message"]


@of(SDKS)
def test_5xx_is_repeated_twice(run, sdk):
    assert run.error(sdk + ".retry_500")["status"] == 502
    assert run.tries(sdk + ".retry_500") == 3


@of(NEW)
def test_429_is_repeated_after_the_time(run, sdk):
    name = sdk + ".retry_429"
    assert run.ok(name)["text"] == "Hello"
    assert run.results[name]["ms"] > 1900
    assert run.tries(name) == 2


@of(NEW)
def test_refused_connection_is_repeated(run, sdk):
    assert run.error(sdk + ".refused")["status"] == 503
    assert run.tries(sdk + ".refused") == 2


# Streams that break.

@pytest.mark.parametrize("sdk, how", [
    (sdk, how) for sdk in NEW for how in ("cut", "clean", "frame")]
    + [(sdk, "cut") for sdk in SDKS[2:]])
def test_broken_stream_throws(run, sdk, how):
    r = run.ok("%s.broken_%s" % (sdk, how))
    assert r["text"] == "Hello"
    assert "error" in r, "the partial answer was accepted"
    if how == "frame" and sdk == "translated":
        assert r["error"]["code"] == "UPSTREAM_OVERLOADED"
    elif how == "frame":
        assert "Overloaded, says the model" in r["error"]["message"]
    assert run.tries("%s.broken_%s" % (sdk, how)) == 1


@of(NEW)
@pytest.mark.parametrize("how", ["cut", "clean", "frame"])
def test_broken_stream_throws_in_the_helper(run, sdk, how):
    run.error("%s.helper_%s" % (sdk, how))


# AI SDK.

@of(AI)
def test_ai_answer(run, sdk):
    assert run.ok(sdk + ".answer") == {"text": "Hello", "tokens": 7}
    r = run.ok(sdk + ".stream")
    assert (r["text"], r["finish"]) == ("Hello", "stop")


@of(AI)
def test_ai_tools(run, sdk):
    r = run.ok(sdk + ".tools")
    assert r["calls"] == [answers.ARGUMENTS]
    assert r["text"].endswith("It is fine.")


@of(AI)
def test_ai_error(run, sdk):
    """The message is that of "error"; the flat body is in responseBody."""
    e = run.error(sdk + ".error_401")
    assert e["status"] == 401
    assert json.loads(e["text"]) == {"code": "INVALID_API_KEY",
                                     "message": "Invalid API key"}
    assert run.error(sdk + ".compat")["message"] == "Invalid API key"
    assert run.tries(sdk + ".error_401") == 1


@of(AI)
def test_ai_broken_stream(run, sdk):
    r = run.ok(sdk + ".broken_cut")
    assert r["text"] == "Hello" and r["errors"], r


@of(AI)
@pytest.mark.parametrize("how", ["cut", "clean"])
def test_ai_shows_why_a_stream_broke(run, sdk, how):
    r = run.ok("%s.broken_%s" % (sdk, how))
    assert WHY[sdk] in r["errors"][0]["message"], r


def test_fetch_that_is_slow_to_read_gets_the_error_frame(gateway):
    g = gateway()
    g.a.script(sse(message_stream("large-2026-01-01")[:5], end="close"))
    g.b.script(sse(chat_stream("one-0613")[:3], end="close"))
    url = "http://127.0.0.1:%d/v1/" % g.port
    r = node.Results(node.play("fetch.mjs", g.dir, requests={
        "chat": {"url": url + "chat/completions", "key": g.bob.secret,
                 "body": chat(stream=True)},
        "messages": {"url": url + "messages", "key": g.alice.secret,
                     "body": messages(stream=True)}}))
    assert "The upstream failed" in r.ok("chat")
    assert "The upstream failed" in r.ok("messages")
