"""The calls of torture.py: for each number, from the seed, what the client
requests, when it leaves, and how the upstream will answer, which is in
torture_answer.py."""

import collections
import json
import random

import money
from torture_answer import (CHAT, EMBEDDINGS, MESSAGES, RESPONSES, WORDS,
                            MISSING, Answer)

# A call is recognized by its model id: the patterns of the model lines match
# any number, and the store keeps the id.

LINES = {
    "tm-a": [dict(input=3, output=15, cache_read="0.3", cache_write="3.75",
                  cache_write_1h=6, context=200000, max_output=64000),
             dict(input="3.1", output="15.5", cache_read="0.31",
                  cache_write="3.8", cache_write_1h="6.2", context=200000,
                  max_output=64000)],
    "tm-b": [dict(input="0.123457", output="7.000003", max_output=5000),
             dict(input="0.123459", output="7.000001", max_output=5000)],
    "tm-f": [dict(free=True, max_output=5000)] * 2,
    "tc-a": [dict(input="1.25", output=10, cache_read="0.125",
                  context=128000, max_output=16384),
             dict(input="1.3", output=11, cache_read="0.13", context=128000,
                  max_output=16384)],
    "tc-b": [dict(input="0.050001", output="0.400007",
                  cache_read="0.005003", max_output=8000),
             dict(input="0.050003", output="0.400009",
                  cache_read="0.005001", max_output=8000)],
    "td-a": [dict(input=5, output=5, max_output=100)] * 2,
    "tr-a": [dict(input="1.75", output=14, cache_read="0.175",
                  cache_write="2.1875", context=400000, max_output=64000),
             dict(input="1.8", output="14.5", cache_read="0.18",
                  cache_write="2.2", context=400000, max_output=64000)],
    "tr-b": [dict(input="0.250003", output="2.000009", cache_read="0.025001",
                  max_output=8000),
             dict(input="0.250007", output="2.000003", cache_read="0.025007",
                  max_output=8000)],
    "te-a": [dict(input=price, output=0, context=8192, more="kind=embedding")
             for price in ("0.130001", "0.130003")],
}

# kinds of calls: what the client speaks, what the upstream speaks

Api = collections.namedtuple("Api", "speaks protocol lines share")

TRANSLATED = "translated"
RESPONSES_MESSAGES = "responses to messages"
RESPONSES_CHAT = "responses to chat"

ON_CHAT = ["tc-a", "tc-a", "tc-b"]
ON_MESSAGES = ["tm-a", "tm-a", "tm-b", "tm-f"]

APIS = {
    CHAT: Api(CHAT, CHAT, ON_CHAT, 4),
    MESSAGES: Api(MESSAGES, MESSAGES, ON_MESSAGES, 4),
    TRANSLATED: Api(CHAT, MESSAGES, ON_MESSAGES, 3),
    RESPONSES: Api(RESPONSES, RESPONSES, ["tr-a", "tr-a", "tr-b"], 4),
    RESPONSES_MESSAGES: Api(RESPONSES, MESSAGES, ON_MESSAGES, 3),
    RESPONSES_CHAT: Api(RESPONSES, CHAT, ON_CHAT, 3),
    EMBEDDINGS: Api(EMBEDDINGS, EMBEDDINGS, ["te-a"], 2),
}

PATHS = {CHAT: "/v1/chat/completions", MESSAGES: "/v1/messages",
         RESPONSES: "/v1/responses", EMBEDDINGS: "/v1/embeddings"}

# Invalid usage: a member of a wrong type or value, or members that contradict
# each other.

MEMBERS = {
    CHAT: [("prompt_tokens",), ("completion_tokens",),
           ("prompt_tokens_details",), ("completion_tokens_details",),
           ("prompt_tokens_details", "cached_tokens"),
           ("prompt_tokens_details", "cache_write_tokens")],
    MESSAGES: [("input_tokens",), ("output_tokens",), ("cache_creation",),
               ("cache_read_input_tokens",), ("cache_creation_input_tokens",),
               ("cache_creation", "ephemeral_5m_input_tokens"),
               ("cache_creation", "ephemeral_1h_input_tokens")],
    RESPONSES: [("input_tokens",), ("output_tokens",),
                ("input_tokens_details",), ("output_tokens_details",),
                ("input_tokens_details", "cached_tokens"),
                ("input_tokens_details", "cache_write_tokens")],
    EMBEDDINGS: [("prompt_tokens",), ("total_tokens",)],
}

ODDITIES = (MISSING, None, -1, "7", 7.0, 1e2, 10 ** 9, 10 ** 30, True, [], {})


SCHEMA = {"type": "object", "properties": {}}


def lines(version):
    return {name: money.Line(**options[version % 2])
            for name, options in LINES.items()}


class Call(Answer):
    """The plan of one call; everything follows from seed and number."""

    def __init__(self, seed, n, rich, poor, apis=None):
        r = random.Random("%s/%d" % (seed, n))
        self.n = n
        apis = apis or list(APIS)
        self.api = r.choices(apis, [APIS[api].share for api in apis])[0]
        self.speaks, self.protocol, names, _ = APIS[self.api]
        self.stream = r.random() < 0.65 and self.api != EMBEDDINGS
        self.line = r.choice(names)
        self.dead = self.api == CHAT and r.random() < 0.05
        if self.dead:
            self.line = "td-a"
        self.model = "%s-%d" % (self.line, n)
        self.account = r.choice(rich if r.random() < 0.85 else poor)
        self.version = None         # set by the row, if it matters

        self.plan_answer(r)
        self.body = json.dumps(self.request(r), ensure_ascii=False).encode()
        self.plan_client(r)
        self.steps = None
        self.altered = False

    # what the client requests

    def request(self, r):
        self.choices = 1
        text = "".join(r.choice(WORDS) for _ in range(r.choice(
            [1, 10, 40, 150])))
        body = {CHAT: self.chat_request, MESSAGES: self.message_request,
                RESPONSES: self.responses_request,
                EMBEDDINGS: self.embeddings_request}[self.speaks](r, text)
        if self.stream:
            body["stream"] = True
        return body if "model" in body else dict(
            {"model": self.model}, **body)

    def chat_request(self, r, text):
        body = self.turn(r, text)
        if r.random() < 0.6:
            body["max_tokens"] = r.randint(1, 2000)
        if r.random() < 0.3:
            body["max_completion_tokens"] = r.randint(1, 2000)
        if self.api == CHAT and r.random() < 0.2:
            self.choices = body["n"] = r.randint(1, 4)
        if r.random() < 0.1:
            body["tools"] = [{"type": "function", "function": {
                "name": "look", "parameters": SCHEMA}}]
        if self.stream and r.random() < 0.5:
            body["stream_options"] = {"include_usage": r.random() < 0.5}
        return body

    def message_request(self, r, text):
        body = dict(self.turn(r, text), max_tokens=r.randint(1, 2000))
        if r.random() < 0.1:
            body["tools"] = [{"name": "look", "input_schema": SCHEMA}]
        return body

    def turn(self, r, text):
        content = [{"type": "text", "text": text}]
        if r.random() < 0.1 and self.api != CHAT:
            content[0]["cache_control"] = {
                "type": "ephemeral", "ttl": r.choice(["5m", "1h"])}
        if r.random() < 0.1:
            content.append(
                {"type": "image", "source": {"type": "url", "url": url(r)}}
                if self.speaks == MESSAGES else
                {"type": "image_url", "image_url": {"url": url(r)}})
        return {"messages": [{"role": "user", "content": content}]}

    def responses_request(self, r, text):
        """As Codex sends it, or as little as a program does."""
        content = [{"type": "input_text", "text": text}]
        if r.random() < 0.1:
            content.append({"type": "input_image", "image_url": url(r)})
        body = {"input": [
            {"type": "message", "role": "developer", "content": [
                {"type": "input_text", "text": "Be brief."}]},
            {"type": "message", "role": "user", "content": content}]}
        if len(content) == 1 and r.random() < 0.3:
            body["input"] = text
        if r.random() < 0.6:
            body["max_output_tokens"] = r.randint(1, 2000)
        if r.random() < 0.7:
            body["store"] = r.choice([False, False, True, None])
        if r.random() < 0.3:
            look = {"type": "function", "name": "look", "parameters": SCHEMA}
            body["tools"] = [
                look, {"type": "namespace", "name": "far", "tools": [look]},
                {"type": "web_search", "external_web_access": False}]
        if r.random() < 0.3:
            body.update({
                "reasoning": {"summary": "auto"}, "prompt_cache_key": "k",
                "include": ["reasoning.encrypted_content"],
                "client_metadata": {"model": "x", "turn": '{"model":"x"}'}})
        return body

    def embeddings_request(self, r, text):
        body = {"input": r.choice([text, [text, "x"], [1, 2, 30000]])}
        if r.random() < 0.5:
            body["encoding_format"] = r.choice(["float", "base64"])
        if r.random() < 0.2:
            body.update(dimensions=256, user="u")
        if r.random() < 0.5:
            body["model"] = self.model      # behind the input
        return body

    # when it leaves

    def plan_client(self, r):
        self.leaves = r.choices(
            ["never", "sending", "sent", "reading", "done"],
            [78, 2, 5, 13, 2])[0]       # done: with the last event, as Codex
        self.leave_part = r.random()            # of the body
        self.leave_after = r.choice([0, 0, 0.002, 0.02, 0.1])
        self.leave_bytes = r.choice([1, 200, 600, 1500, 4000,
                                     r.randint(1, 20000)])
        self.leave_reset = r.random() < 0.5

    # how the upstream answers

    def plan_answer(self, r):
        self.behaviour = r.choices(
            ["ok", "error", "close", "reset", "early close", "early reset",
             "stall early", "stall", "error event"],
            [62, 8, 7, 6, 2, 6, 2, 2, 3])[0]
        self.status = r.choice([400, 422, 429, 500, 502, 503, 529, 301])
        self.report = r.choices(
            ["full", "none", "part", "start", "running", "zero", "over",
             "odd", "minutes", "less", "lower"],
            [36, 10, 6, 6, 6, 4, 4, 16, 4, 4, 4])[0]
        self.oddity = (r.choice(MEMBERS[self.protocol]), r.choice(ODDITIES))
        self.pause = r.choice([0, 0, 0.003, 0.03, 0.1])
        self.wait = r.choice([0, 0, 0.01, 0.2])
        self.words = [r.choice(WORDS) for _ in range(r.randint(1, 25))]
        self.cut = r.random()                   # where it breaks off
        self.called = r.random() < 0.2          # a tool, in a stream
        self.silent = r.random() < 0.1          # no deltas in responses
        self.sealed = r.random() < 0.2          # reasoning in them
        self.status_word = r.choices(["completed", "incomplete", "failed"],
                                     [80, 10, 10])[0]
        self.extra = r.random() < 0.3           # what look-alikes send

        self.prompt = r.randint(1, 5000)
        self.read = r.choice([0, 0, r.randint(1, 3000)])
        self.write = r.choice([0, 0, r.randint(1, 3000)])
        self.hour = r.choice([0, r.randint(0, self.write)])
        self.output = r.randint(1, 1500)
        self.repeats = r.random() < 0.5
        if self.report == "zero":
            self.prompt = self.read = self.write = self.hour = 0
            self.output = 0
        if self.report == "over":
            self.output = 70000 + r.randint(0, 10 ** 5)


    def bound(self, line):
        return money.Bound(self.body, line, self.speaks)


def url(r):
    return "https://pictures.test/%d.png" % r.randint(0, 10 ** 6)
