"""The official Python SDKs behind one interface, so that one test serves both
APIs, each in its blocking and its asynchronous form.

A test is written once, as a coroutine: then() awaits what an asynchronous
client returns, and returns what a blocking one returns.
"""

import asyncio
import contextlib
import inspect
import time

import anthropic
import openai
import pytest

import client
from upstream import (chat_completion, chat_error, chat_stream, data, event,
                      message, message_error, message_stream)

HI = [{"role": "user", "content": "Hi"}]


async def then(value):
    return await value if inspect.isawaitable(value) else value


async def each(items):
    if hasattr(items, "__aiter__"):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


@contextlib.asynccontextmanager
async def opened(manager):
    if hasattr(manager, "__aenter__"):
        async with manager as value:
            yield value
    else:
        with manager as value:
            yield value


class Api:
    """One SDK in one of its two forms, and a gateway.  run() makes a client
    and gives it to a coroutine, whose result it returns."""

    def __init__(self, gw, form, tag):
        self.gw = gw
        self.form = form
        self.tag = tag

    def client(self, **kw):
        cls = getattr(self.sdk, ("Async" if self.form == "async" else "")
                      + self.name)
        headers = dict({"X-Test-Tag": self.tag},
                       **kw.pop("default_headers", {}))
        if "api_key" not in kw and "auth_token" not in kw:
            kw["api_key"] = self.key.secret
        return cls(base_url=self.base_url, default_headers=headers,
                   timeout=60, **kw)

    @property
    def base_url(self):
        return "http://127.0.0.1:%d%s" % (self.gw.port, self.base)

    def run(self, body, **kw):
        async def whole():
            async with opened(self.client(**kw)) as c:
                return await body(c)

        return asyncio.run(whole())

    def ask(self, c, **kw):
        return then(self.create(c, **kw))

    def seen(self, at_least=1):
        """The number of requests that the gateway got."""
        mark = '"tag":"%s"' % self.tag
        end = time.monotonic() + client.LIMIT
        while True:
            n = self.gw.read("access.log").count(mark)
            if n >= at_least or time.monotonic() > end:
                return n
            time.sleep(0.02)

    def fails(self, status, text, retries=0, classes=None, **kw):
        """Makes a call, and returns the exception and the time it took."""
        async def body(c):
            begin = time.monotonic()
            with pytest.raises(self.sdk.APIStatusError) as e:
                await self.ask(c, **kw)
            return e.value, time.monotonic() - begin

        e, took = self.run(body, max_retries=retries)
        assert e.status_code == status, e
        assert type(e).__name__ == (classes or self.classes)[status], type(e)
        assert text in str(e)
        assert set(e.body) == {"code", "message"}
        assert text in e.body["message"]
        assert e.request_id
        return e, took


class Chat(Api):
    sdk = openai
    name = "OpenAI"
    base = "/v1"
    model = "fam-b-one"
    inner = "one-0613"
    other = "fam-a-large"
    ids = ["fam-b-one", "fam-b-two"]
    classes = {400: "BadRequestError", 401: "AuthenticationError",
               403: "PermissionDeniedError", 404: "NotFoundError",
               405: "APIStatusError", 413: "APIStatusError",
               429: "RateLimitError", 502: "InternalServerError",
               503: "InternalServerError", 504: "InternalServerError"}
    error = staticmethod(chat_error)
    whole = staticmethod(chat_completion)
    frame = staticmethod(data)

    @property
    def key(self):
        return self.gw.bob

    @property
    def up(self):
        return self.gw.b

    def create(self, c, **kw):
        return c.chat.completions.create(
            **{**dict(model=self.model, messages=HI), **kw})

    def helper(self, c, **kw):
        return c.chat.completions.stream(
            **{**dict(model=self.model, messages=HI), **kw})

    async def final(self, stream):
        final = await then(stream.get_final_completion())
        return final, final.choices[0].message.content

    @staticmethod
    def text(r):
        return r.choices[0].message.content

    @staticmethod
    def piece(chunk):
        return chunk.choices[0].delta.content or ""

    @staticmethod
    def events(words=("Hel", "lo"), whole=True):
        out = chat_stream(Chat.inner, words)
        return out if whole else out[:1 + len(words)]


class Messages(Api):
    sdk = anthropic
    name = "Anthropic"
    base = ""
    model = "fam-a-large"
    inner = "large-2026-01-01"
    other = "fam-b-one"
    ids = ["fam-a-large", "fam-a-small", "fam-a-mini"]
    classes = {400: "BadRequestError", 401: "AuthenticationError",
               403: "PermissionDeniedError", 404: "NotFoundError",
               405: "APIStatusError", 413: "ContentTooLargeError",
               429: "RateLimitError", 502: "InternalServerError",
               503: "ServiceUnavailableError", 504: "GatewayTimeoutError",
               529: "OverloadedError"}
    error = staticmethod(message_error)
    whole = staticmethod(message)

    @property
    def key(self):
        return self.gw.alice

    @property
    def up(self):
        return self.gw.a

    def create(self, c, **kw):
        return c.messages.create(
            **{**dict(model=self.model, max_tokens=100, messages=HI), **kw})

    def helper(self, c):
        return c.messages.stream(model=self.model, max_tokens=100,
                                 messages=HI)

    async def final(self, stream):
        final = await then(stream.get_final_message())
        return final, final.content[0].text

    @staticmethod
    def text(r):
        return r.content[0].text

    @staticmethod
    def piece(e):
        return e.delta.text if e.type == "content_block_delta" else ""

    @staticmethod
    def frame(error):
        return event("error", error)

    @staticmethod
    def events(words=("Hel", "lo"), whole=True):
        out = message_stream(Messages.inner, words)
        return out if whole else out[:3 + len(words)]


class Translated(Chat):
    """Chat with a group whose upstream speaks messages: to a client it looks
    like Chat."""

    model = Messages.model
    inner = Messages.inner
    other = Messages.other
    ids = Messages.ids
    key = Messages.key
    up = Messages.up
    error = staticmethod(Messages.error)
    whole = staticmethod(Messages.whole)
    frame = staticmethod(Messages.frame)
    events = staticmethod(Messages.events)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY",
                 "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
