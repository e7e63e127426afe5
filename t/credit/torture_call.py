"""The calls of torture.py: for each number, from the seed, what the client
requests, when it leaves, and what the upstream answers; and what the gateway
may know of that after each piece of the answer."""

import json
import random

import money
from money import Seen

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
}

WORDS = ("Grüße, ", "the ", "upstream ", "answers ", "in pieces ", "— ",
         "some longer than others, as pieces of streams are ", "x")

CHAT, MESSAGES, TRANSLATED = "chat", "messages", "translated"

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
}

MISSING = "missing"         # no value that is reported: the member is absent

ODDITIES = (MISSING, None, -1, "7", 7.0, 1e2, 10 ** 9, 10 ** 30, True, [], {})


def lines(version):
    return {name: money.Line(**options[version % 2])
            for name, options in LINES.items()}


class Call:
    """The plan of one call; everything follows from seed and number."""

    def __init__(self, seed, n, rich, poor):
        r = random.Random("%s/%d" % (seed, n))
        self.n = n
        self.api = r.choice([CHAT, MESSAGES, TRANSLATED])
        self.protocol = CHAT if self.api == CHAT else MESSAGES
        self.stream = r.random() < 0.65
        self.line = r.choice(["tc-a", "tc-a", "tc-b"] if self.api == CHAT
                             else ["tm-a", "tm-a", "tm-b", "tm-f"])
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
        text = "".join(r.choice(WORDS) for _ in range(r.choice(
            [1, 10, 40, 150])))
        content = [{"type": "text", "text": text}]
        if r.random() < 0.1 and self.api != CHAT:
            content[0]["cache_control"] = {
                "type": "ephemeral", "ttl": r.choice(["5m", "1h"])}
        if r.random() < 0.1:
            content.append(self.picture(r))
        body = {"model": self.model,
                "messages": [{"role": "user", "content": content}]}
        self.choices = 1
        if self.api == MESSAGES:
            body["max_tokens"] = r.randint(1, 2000)
        else:
            if r.random() < 0.6:
                body["max_tokens"] = r.randint(1, 2000)
            if r.random() < 0.3:
                body["max_completion_tokens"] = r.randint(1, 2000)
            if self.api == CHAT and r.random() < 0.2:
                self.choices = body["n"] = r.randint(1, 4)
        if r.random() < 0.1:
            body["tools"] = [self.tool(self.api != MESSAGES)]
        if self.stream:
            body["stream"] = True
            if self.api != MESSAGES and r.random() < 0.5:
                body["stream_options"] = {
                    "include_usage": r.random() < 0.5}
        return body

    def picture(self, r):
        url = "https://pictures.test/%d.png" % r.randint(0, 10 ** 6)
        if self.api == MESSAGES:
            return {"type": "image", "source": {"type": "url", "url": url}}
        return {"type": "image_url", "image_url": {"url": url}}

    def tool(self, chat):
        schema = {"type": "object", "properties": {}}
        if chat:
            return {"type": "function", "function": {
                "name": "look", "parameters": schema}}
        return {"name": "look", "input_schema": schema}

    # when it leaves

    def plan_client(self, r):
        self.leaves = r.choices(
            ["never", "sending", "sent", "reading"], [80, 2, 5, 13])[0]
        self.leave_part = r.random()            # of the body
        self.leave_after = r.choice([0, 0, 0.002, 0.02, 0.1])
        self.leave_bytes = r.choice([1, 200, 600, 1500, 4000])
        self.leave_reset = r.random() < 0.5

    # what the upstream answers

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
        return money.Bound(self.body, line, self.api != MESSAGES)

    def script(self):
        """[(bytes, what is known after them)]: the first is the head of
        the answer, each other one event, or the body."""
        if self.steps is None:
            self.steps = list(self._script())
        return self.steps

    def forget(self):
        """The script is made again when needed: there are many calls."""
        if not self.altered:
            self.steps = None

    def _script(self):
        if self.behaviour == "error":
            body = json.dumps({"error": {"message": "no", "type": "x"},
                               "type": "error"}).encode()
            seen = Seen(self.status)
            yield self.head("application/json", len(body)), seen
            yield body, seen
            return
        if not self.stream:
            yield from self.answer()
            return
        seen = Seen(200)
        yield self.head("text/event-stream"), seen
        make = (self.chat_events if self.protocol == CHAT
                else self.message_events)
        events = list(make())
        if self.behaviour == "error event":
            at = 2 + int(self.cut * (len(events) - 2))
            events = events[:at] + [(self.error_event(), {})]
        for event, change in events:
            seen = seen.replaced(text=seen.text + change.pop("text", 0),
                                 **change)
            yield b"%x\r\n%s\r\n" % (len(event), event), seen
        yield b"0\r\n\r\n", seen

    def head(self, ctype, length=None):
        status = self.status if self.behaviour == "error" else 200
        return ("HTTP/1.1 %d X\r\nContent-Type: %s\r\n%s\r\n\r\n"
                % (status, ctype, "Transfer-Encoding: chunked"
                   if length is None else "Content-Length: %d" % length)
                ).encode()

    def error_event(self):
        error = {"type": "error", "error": {"type": "overloaded_error",
                                            "message": "Overloaded"}}
        name = b"event: error\n" if self.protocol == MESSAGES else b""
        return name + b"data: " + json.dumps(error).encode() + b"\n\n"

    def upstream_id(self):
        return "up-" + self.model

    # usage

    def chat_usage(self):
        if self.report == "none":
            return None
        usage = {"prompt_tokens": self.prompt + self.read + self.write,
                 "completion_tokens": self.output,
                 "total_tokens": self.prompt + self.read + self.write
                 + self.output,
                 "prompt_tokens_details": {
                     "cached_tokens": self.read,
                     "cache_write_tokens": self.write}}
        if self.report == "part":
            del usage["prompt_tokens"], usage["prompt_tokens_details"]
        if self.report == "start":
            del usage["completion_tokens"]
        return self.deform(usage)

    def message_usage(self):
        if self.report == "none":
            return None
        usage = {"input_tokens": self.prompt,
                 "cache_read_input_tokens": self.read,
                 "cache_creation_input_tokens": self.write,
                 "cache_creation": {
                     "ephemeral_5m_input_tokens": self.write - self.hour,
                     "ephemeral_1h_input_tokens": self.hour},
                 "output_tokens": self.output}
        if self.report == "part":
            usage = {"output_tokens": self.output}
        if self.report == "start":
            del usage["output_tokens"]
        if self.report == "minutes":        # and no total
            del usage["cache_creation_input_tokens"]
        if self.report == "less":           # than its parts
            usage["cache_creation_input_tokens"] //= 2
        return self.deform(usage)

    def deform(self, usage):
        if self.report != "odd":
            return usage
        path, value = self.oddity
        inside = usage
        for member in path[:-1]:
            inside = inside[member]
        if value == MISSING:
            inside.pop(path[-1], None)
        else:
            inside[path[-1]] = value
        return usage

    # answers

    def answer(self):
        text = "".join(self.words)
        if self.protocol == CHAT:
            usage = self.chat_usage()
            reported = money.ChatUsage(usage)
            obj = {"id": "chatcmpl-1", "object": "chat.completion",
                   "created": 1700000000, "model": self.upstream_id(),
                   "choices": [{"index": i, "finish_reason": "stop",
                                "message": {"role": "assistant",
                                            "content": text}}
                               for i in range(self.choices)]}
        else:
            usage = self.message_usage()
            reported = money.MessageUsage(usage)
            obj = {"id": "msg_1", "type": "message", "role": "assistant",
                   "model": self.upstream_id(),
                   "content": [{"type": "text", "text": text}],
                   "stop_reason": "end_turn", "stop_sequence": None}
        if usage is not None:
            obj["usage"] = usage
        body = json.dumps(obj, ensure_ascii=False).encode()
        seen = Seen(200)
        yield self.head("application/json", len(body)), seen
        at, part, whole = self.cut_answer(body, text.encode())
        yield body[:at], seen.replaced(text=part)
        yield body[at:], seen.replaced(text=whole, **money.changes(reported))

    def cut_answer(self, body, text):
        """Where it breaks off, the bytes of text before that, and in all; not
        in the names around a text, which look like one if cut."""
        at = int(self.cut * (len(body) - 1))
        part = whole = begin = 0
        inside = b'"message": {' if self.protocol == CHAT else b'"content": ['
        while True:
            begin = body.find(inside, begin)
            if begin < 0:
                return at, part, whole
            first = body.find(b'": "' + text, begin) + 4
            if begin < at < first:
                at = begin
            part += min(max(at - first, 0), len(text))
            whole += len(text)
            begin = first + len(text)

    def chat_events(self):
        """(event, what it adds to what is known)"""
        usage = self.chat_usage()
        reported = money.ChatUsage()
        running = self.report == "running"

        def chunk(i, delta, finish=None, done=0.0):
            obj = {"id": "chatcmpl-1", "object": "chat.completion.chunk",
                   "created": 1700000000, "model": self.upstream_id(),
                   "choices": [{"index": i, "delta": delta,
                                "finish_reason": finish}]}
            change = {"text": strings(delta)}
            if running:
                obj["usage"] = dict(usage, completion_tokens=int(
                    done * self.output))
                change.update(money.changes(reported.take(obj["usage"]),
                                           False))
            return data(obj), change

        for i in range(self.choices):
            yield chunk(i, {"role": "assistant", "content": ""})
        for at, word in enumerate(self.words):
            for i in range(self.choices):
                yield chunk(i, {"content": word},
                            done=at / len(self.words))
        for i in range(self.choices):
            yield chunk(i, {}, "stop", 1.0)
        if usage is not None and not (running and self.repeats):
            yield data({"id": "chatcmpl-1", "object":
                        "chat.completion.chunk", "created": 1700000000,
                        "model": self.upstream_id(), "choices": [],
                        "usage": usage}), \
                money.changes(reported.take(usage))
        yield b"data: [DONE]\n\n", {}

    def message_events(self):
        usage = self.message_usage()
        start = {"id": "msg_1", "type": "message", "role": "assistant",
                 "model": self.upstream_id(), "content": [],
                 "stop_reason": None, "stop_sequence": None}
        change = {}
        reported = money.MessageUsage()
        if usage is not None and self.report != "part":
            start["usage"] = dict(usage, output_tokens=1 if self.output
                                  else 0)
            change = money.changes(reported.take(start["usage"]), False)
        yield event("message_start", {"message": start}), change
        yield event("content_block_start",
                    {"index": 0, "content_block": {"type": "text",
                                                   "text": ""}}), {}
        yield event("ping", {}), {}
        for word in self.words:
            delta = {"type": "text_delta", "text": word}
            yield event("content_block_delta",
                        {"index": 0, "delta": delta}), \
                {"text": strings(delta)}
        yield event("content_block_stop", {"index": 0}), {}
        end = {"delta": {"stop_reason": "end_turn", "stop_sequence": None}}
        change = {"text": strings(end["delta"])}
        if usage is not None and self.report != "start":
            end["usage"] = {name: usage[name] for name in usage
                            if name == "output_tokens"}
            if self.repeats and self.report != "part":
                end["usage"] = usage
            if self.report == "lower":
                end["usage"] = lower(usage)
            reported.take(end["usage"])
            change.update(money.changes(
                reported, end["usage"].get("output_tokens") is not None))
        yield event("message_delta", end), change
        yield event("message_stop", {}), {}


def text_of(body):
    """Of the answer to a stream, as far as the client has it: bytes of the
    strings in whole events."""
    text = 0
    for block in body.decode(errors="replace").split("\n\n")[:-1]:
        for line in block.split("\n"):
            if not line.startswith("data: {"):
                continue
            obj = json.loads(line[6:])
            deltas = [c["delta"] for c in obj.get("choices") or []]
            if obj.get("type") == "content_block_delta":
                deltas = [obj["delta"]]
            text += sum(strings(delta) for delta in deltas)
    return text


def lower(usage):
    """Totals lower than the earlier ones, and no lifetimes."""
    return {name: n // 2 for name, n in usage.items() if type(n) is int}


def strings(delta):
    """Bytes of the strings in a delta, which count as text of the answer."""
    return sum(len(v.encode()) for name, v in delta.items()
               if isinstance(v, str) and name in TEXT)


TEXT = ("content", "text")


def data(obj):
    return b"data: " + json.dumps(obj, ensure_ascii=False).encode() + b"\n\n"


def event(name, obj):
    return (b"event: %s\n" % name.encode()
            + data(dict({"type": name}, **obj)))
