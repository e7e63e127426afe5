"""The official JavaScript SDKs in a page of another origin: modelgw_cors.

The page and the SDKs' modules, as npm installs them, come from a server of the
test's own; an import map stands for a bundler.  Chromium sends the preflights
and hides from the page what no header allows.
"""

import functools
import http.server
import json
import shutil
import threading

import pytest

import browser
import gateway as lib
from sdk import node
from upstream import both, reply_json

pytestmark = [node.needed, pytest.mark.skipif(
    not shutil.which(browser.CHROMIUM), reason="NOTICE: no Chromium")]

SDKS = {"openai": "openai/index.mjs", "openai-6": "openai-6/index.mjs",
        "openai-5": "openai-5/index.mjs",
        "anthropic": "@anthropic-ai/sdk/index.mjs",
        "anthropic-0": "anthropic-0/index.mjs",
        "@opentelemetry/api": "@opentelemetry/api/dist/index.mjs"}

# CommonJS, and not used by calls

STUB = "data:text/javascript,export class Webhook {}"

PAGE = """<!DOCTYPE html><title>An app</title>
<link rel="icon" href="data:,">
<script type="importmap">%s</script>
""" % json.dumps({"imports": dict(
    {name: "/" + path for name, path in SDKS.items()},
    standardwebhooks=STUB)})

CHAT = ["openai", "openai-6", "openai-5"]
MESSAGES = ["anthropic", "anthropic-0"]

# what a call gives: data, or what the page can know of an error

CALL = """
(async () => {
    const { default: SDK } = await import(%(sdk)s);
    const client = new SDK({ apiKey: %(key)s, baseURL: %(base)s,
                             maxRetries: 0, dangerouslyAllowBrowser: true });
    try {
        return await (async () => { %(code)s })();
    } catch (e) {
        return { error: e.message, status: e.status, type: e.constructor.name,
                 id: e.headers && e.headers.get("x-request-id"),
                 retry: e.headers && e.headers.get("x-should-retry"),
                 after: e.headers && e.headers.get("retry-after"),
                 hidden: e.headers && e.headers.get("server") };
    }
})()"""

QUESTION = 'messages: [{ role: "user", content: "Hi" }]'
CHAT_CALL = """
    const { data, response } = await client.chat.completions.create({
        model: "fam-b-one", %s }).withResponse();
    return { text: data.choices[0].message.content, model: data.model,
             id: response.headers.get("x-request-id"),
             limit: response.headers.get("x-ratelimit-limit-requests") };
""" % QUESTION
CHAT_STREAM = """
    const stream = await client.chat.completions.create({
        model: "fam-b-one", stream: true, %s });
    let text = "";
    for await (const chunk of stream) {
        text += chunk.choices[0]?.delta?.content || "";
    }
    return { text };
""" % QUESTION
MESSAGES_CALL = """
    const { data, response } = await client.messages.create({
        model: "fam-a-large", max_tokens: 100, %s }).withResponse();
    return { text: data.content[0].text, model: data.model,
             id: response.headers.get("request-id") };
""" % QUESTION
MESSAGES_STREAM = """
    const stream = client.messages.stream({
        model: "fam-a-large", max_tokens: 100, %s });
    return { text: (await stream.finalMessage()).content[0].text };
""" % QUESTION
RESPONSES = """
    const r = await client.responses.create({ model: "fam-b-one",
                                              input: "Hi" });
    let text = "", last;
    for await (const e of await client.responses.create({
             model: "fam-b-one", input: "Hi", stream: true })) {
        text += e.type === "response.output_text.delta" ? e.delta : "";
        last = e.type;
    }
    return { whole: r.output_text, text, last };
"""
EMBEDDINGS = """
    const r = await client.embeddings.create({ model: "fam-b-emb",
                                               input: ["a", "b"] });
    return { n: r.data.length, first: Array.from(r.data[0].embedding),
             tokens: r.usage.prompt_tokens };
"""
MODELS = """
    const ids = [];
    for await (const m of client.models.list()) { ids.push(m.id); }
    return { ids };
"""


class Pages(http.server.SimpleHTTPRequestHandler):
    """The page, and files of npm's."""

    extensions_map = {".mjs": "text/javascript", ".js": "text/javascript"}

    def do_GET(self):
        if self.path != "/":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def origin():
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Pages, directory=node.NPM))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield "http://127.0.0.1:%d" % server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def page(tmp_path_factory, origin):
    b = browser.Browser(tmp_path_factory.mktemp("chromium")).start()
    page = b.page(origin)
    page.open()
    yield page
    b.stop()


@pytest.fixture(scope="module")
def g(module_gateway, origin):
    return module_gateway(
        server="modelgw_cors %s; modelgw_error_compat on;" % origin,
        http="modelgw_zone 4m;", groups=lib.group_a() + lib.group_b(
            protocol="chat embeddings", models=lib.MODELS_B
            + "model fam-b-emb emb kind=embedding input=1;",
            extra="limits rpm=1000;"))


@pytest.fixture(autouse=True)
def fresh(g):
    g.a.reset()
    g.b.reset()


def call(page, g, sdk, code, key=None, base=None):
    if base is None:
        base = "/v1" if sdk in CHAT else ""
    return page.js(CALL % {
        "sdk": json.dumps(sdk), "code": code,
        "key": json.dumps((key or (g.bob if sdk in CHAT else g.alice)).secret),
        "base": json.dumps("http://127.0.0.1:%d%s" % (g.port, base))})


@pytest.mark.parametrize("sdk", CHAT)
def test_chat(page, g, sdk):
    r = call(page, g, sdk, CHAT_CALL)
    assert r["text"] == "Hello" and r["model"] == "fam-b-one", r
    assert r["id"] and r["limit"] == "1000", "headers cannot be read"


@pytest.mark.parametrize("sdk", CHAT)
def test_chat_stream(page, g, sdk):
    assert call(page, g, sdk, CHAT_STREAM) == {"text": "Hello"}


@pytest.mark.parametrize("sdk", MESSAGES)
def test_messages(page, g, sdk):
    r = call(page, g, sdk, MESSAGES_CALL)
    assert r["text"] == "Hello" and r["model"] == "fam-a-large", r
    assert r["id"]


@pytest.mark.parametrize("sdk", MESSAGES)
def test_messages_stream(page, g, sdk):
    assert call(page, g, sdk, MESSAGES_STREAM) == {"text": "Hello"}


@pytest.mark.parametrize("sdk", CHAT)
def test_responses(page, g, sdk):
    assert call(page, g, sdk, RESPONSES) == {
        "whole": "Hello", "text": "Hello", "last": "response.completed"}


@pytest.mark.parametrize("sdk", CHAT)
def test_embeddings(page, g, sdk):
    """The SDK asks for base64 on its own."""
    def answer(x):
        assert x.request.json()["encoding_format"] == "base64"
        row = {"object": "embedding", "embedding": "AACAPgAAwL8="}
        reply_json({"object": "list", "model": "emb",
                    "data": [dict(row, index=0), dict(row, index=1)],
                    "usage": {"prompt_tokens": 2, "total_tokens": 2}})(x)

    g.b.script(answer)
    r = call(page, g, sdk, EMBEDDINGS)
    assert r == {"n": 2, "first": [0.25, -1.5], "tokens": 2}


@pytest.mark.parametrize("sdk", CHAT + MESSAGES)
def test_models(page, g, sdk):
    ids = call(page, g, sdk, MODELS)["ids"]
    assert ("fam-b-one" if sdk in CHAT else "fam-a-large") in ids


@pytest.mark.parametrize("sdk, code", [(s, CHAT_CALL) for s in CHAT]
                         + [(s, CHAT_STREAM) for s in CHAT]
                         + [(s, MESSAGES_CALL) for s in MESSAGES])
def test_wrong_key(page, g, sdk, code):
    """The page gets the status, the reason and the ids."""
    page.allow("401")
    r = call(page, g, sdk, code, g.dave)
    assert r["status"] == 401 and r["type"] == "AuthenticationError", r
    assert "Invalid API key" in r["error"]
    assert r["id"] and r["retry"] == "false" and r["hidden"] is None


def test_rate_limit_of_the_upstream(page, g):
    page.allow("429")
    g.b.script(reply_json({"error": {"message": "slow down"}}, 429,
                          headers=[("Retry-After", "7")]))
    r = call(page, g, "openai", CHAT_CALL)
    assert r["status"] == 429 and r["after"] == "7", r


def test_another_origin_sees_nothing(g, tmp_path, origin):
    """Neither answer nor error: the same server by another name."""
    other = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Pages, directory=node.NPM))
    threading.Thread(target=other.serve_forever, daemon=True).start()
    b = browser.Browser(tmp_path / "chromium").start()
    try:
        page = b.page("http://127.0.0.1:%d" % other.server_port)
        page.open()
        r = call(page, g, "openai", CHAT_CALL)
        assert "status" not in r and "Connection error" in r["error"], r
        assert g.b.requests == []
    finally:
        b.stop()
        other.shutdown()
        other.server_close()


def test_only_preflights_and_calls(page, g):
    """The browser has asked first: the upstream got no OPTIONS."""
    g.b.script(both)
    assert call(page, g, "openai", CHAT_CALL)["text"] == "Hello"
    assert [x.method for x in g.b.requests] == ["POST"]
