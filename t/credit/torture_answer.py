"""What the upstream of torture.py answers to a call, piece by piece, by the
plan in torture_call.py, and what the gateway may know after each of them."""

import base64
import json

import money
from money import Seen

CHAT, MESSAGES = "chat", "messages"
RESPONSES, EMBEDDINGS = "responses", "embeddings"

WORDS = ("Grüße, ", "the ", "upstream ", "answers ", "in pieces ", "— ",
         "some longer than others, as pieces of streams are ", "x")

SEALED = "gAAAAABpc2VhbGVkIHJlYXNvbmluZw=="

ARGUMENTS = ('{"path": "src/', 'ü.c", "limit"', ": 20}")

MISSING = "missing"         # no value that is reported: the member is absent

# the answer to a call of these is whole with the first event that has it

WHOLE = {
    (CHAT, CHAT): b"data: [DONE]",
    (MESSAGES, MESSAGES): b"event: message_stop",
    (CHAT, MESSAGES): b"event: message_delta",
    (RESPONSES, MESSAGES): b"event: message_delta",
    (RESPONSES, CHAT): b'"finish_reason": "',
    (RESPONSES, RESPONSES): b"event: response.%s",
}


class Answer:

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

    def whole(self):
        """Steps until the answer is whole: what only ends it may be missing,
        as a translated stream's events after its stop reason."""
        steps = self.script()
        if self.stream and self.behaviour != "error":
            last = WHOLE[self.speaks, self.protocol].replace(
                b"%s", self.status_word.encode())
            for at, (sent, _) in enumerate(steps):
                if last in sent:
                    return at + 1
            return len(steps) - 1
        return len(steps)

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
        make = {CHAT: self.chat_events, MESSAGES: self.message_events,
                RESPONSES: self.response_events}[self.protocol]
        events = list(make())
        if self.behaviour == "error event":
            at = int(self.cut * len(events))
            # before anything of the answer it is a refusal
            begins = 3 if self.protocol == RESPONSES else 1
            events = events[:at] + [(self.error_event(), {}
                                     if at >= begins else {"status": 503})]
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
        error = {"type": "overloaded_error", "message": "Overloaded"}
        if self.protocol == RESPONSES:
            return event("error", dict(
                {"sequence_number": 3, "code": "x", "message": "Overloaded",
                 "param": None}, **{"error": error} if self.extra else {}))
        error = {"type": "error", "error": error}
        name = b"event: error\n" if self.protocol == MESSAGES else b""
        return name + b"data: " + json.dumps(error).encode() + b"\n\n"

    def upstream_id(self):
        return "up-" + self.model

    # usage

    def chat_usage(self):
        return self.counts("prompt_tokens", "completion_tokens")

    def response_usage(self):
        return self.counts("input_tokens", "output_tokens")

    def counts(self, prompt, output):
        """The cached tokens are part of the prompt."""
        if self.report == "none":
            return None
        usage = {prompt: self.prompt + self.read + self.write,
                 output: self.output,
                 "total_tokens": self.prompt + self.read + self.write
                 + self.output,
                 prompt + "_details": {
                     "cached_tokens": self.read,
                     "cache_write_tokens": self.write}}
        if self.report == "part":
            del usage[prompt], usage[prompt + "_details"]
        if self.report == "start":
            del usage[output]
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

    def embeddings_usage(self):
        if self.report == "none":
            return None
        usage = {"prompt_tokens": self.prompt, "total_tokens": self.prompt}
        if self.report == "part":
            del usage["prompt_tokens"]
        if self.report == "start":
            del usage["total_tokens"]
        return self.deform(usage)

    def deform(self, usage):
        if self.report != "odd":
            return usage
        path, value = self.oddity
        inside = usage
        for member in path[:-1]:
            inside = inside.get(member, {})
        if value == MISSING:
            inside.pop(path[-1], None)
        else:
            inside[path[-1]] = value
        return usage

    # answers

    def answer(self):
        text = "".join(self.words)
        make, usage, reported = {
            CHAT: (self.chat_answer, self.chat_usage, money.ChatUsage),
            MESSAGES: (self.message_answer, self.message_usage,
                       money.MessageUsage),
            RESPONSES: (self.response_answer, self.response_usage,
                        money.ResponsesUsage),
            EMBEDDINGS: (self.embeddings_answer, self.embeddings_usage,
                         money.EmbeddingsUsage),
        }[self.protocol]
        usage = usage()
        obj = make(text)
        if usage is not None or self.protocol == RESPONSES:
            obj = dict({"usage": usage}, **obj) if self.extra \
                else dict(obj, usage=usage)
        body = json.dumps(obj, ensure_ascii=False).encode()
        change = money.changes(reported(usage))
        seen = Seen(200)
        yield self.head("application/json", len(body)), seen
        at, part, whole = self.cut_answer(body, text.encode())
        begin, end = self.place(body, usage)
        if self.protocol == EMBEDDINGS and begin < at < end:
            at = begin          # a count may be whole, and be all that counts
        yield body[:at], seen.replaced(
            text=part, **change if at >= end else {})
        if self.protocol == RESPONSES and self.status_word == "failed":
            seen = Seen(502)        # as for any error in place of an answer
        yield body[at:], seen.replaced(text=whole, **change)

    def place(self, body, usage):
        """Where it is; nowhere: behind the end."""
        text = json.dumps(usage).encode()
        begin = len(body) if usage is None else body.find(text)
        return begin, begin + len(text)

    def chat_answer(self, text):
        return {"id": "chatcmpl-1", "object": "chat.completion",
                "created": 1700000000, "model": self.upstream_id(),
                "choices": [{"index": i, "finish_reason": "stop",
                             "message": {"role": "assistant",
                                         "content": text}}
                            for i in range(self.choices)]}

    def message_answer(self, text):
        return {"id": "msg_1", "type": "message", "role": "assistant",
                "model": self.upstream_id(),
                "content": [{"type": "text", "text": text}],
                "stop_reason": "end_turn", "stop_sequence": None}

    def response_answer(self, text):
        return self.response([self.response_message(text)], True)

    def embeddings_answer(self, text):
        vector = [0.0023064255, -0.009327292] * (12000 if self.called else 20)
        return {"object": "list", "model": self.upstream_id(), "data": [
            {"object": "embedding", "index": 0, "embedding": vector},
            {"object": "embedding", "index": 1, "embedding":
             base64.b64encode(text.encode()).decode()}]}

    def cut_answer(self, body, text):
        """Where it breaks off, the bytes of text before that, and in all; not
        in the names around a text, which look like one if cut."""
        at = int(self.cut * (len(body) - 1))
        part = whole = begin = 0
        inside = {CHAT: b'"message": {', EMBEDDINGS: b"none"}.get(
            self.protocol, b'"content": [')
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

    # streams: (event, what it adds to what is known)

    def chat_events(self):
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

        def tool(**more):
            return {"tool_calls": [dict({"index": 0}, **more)]}

        for i in range(self.choices):
            yield chunk(i, {"role": "assistant", "content": ""})
        for at, word in enumerate(self.words):
            for i in range(self.choices):
                yield chunk(i, {"content": word},
                            done=at / len(self.words))
        if self.called:
            yield chunk(0, tool(id="call_1", type="function", function={
                "name": "look", "arguments": ""}), done=1.0)
            for piece in ARGUMENTS:
                yield chunk(0, tool(function={"arguments": piece}), done=1.0)
        for i in range(self.choices):
            yield chunk(i, {}, "tool_calls" if self.called and i == 0
                        else "stop", 1.0)
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
        yield from self.block(0, {"type": "text", "text": ""}, "text_delta",
                              "text", self.words)
        if self.called:
            yield from self.block(
                1, {"type": "tool_use", "id": "toolu_1", "name": "look",
                    "input": {}}, "input_json_delta", "partial_json",
                ARGUMENTS)
        end = {"delta": {"stop_reason": "tool_use" if self.called
                         else "end_turn", "stop_sequence": None}}
        change = {}
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

    def block(self, index, start, kind, member, pieces):
        yield event("content_block_start",
                    {"index": index, "content_block": start}), {}
        yield event("ping", {}), {}
        for piece in pieces:
            yield event("content_block_delta", {
                "index": index, "delta": {"type": kind, member: piece}}), \
                {"text": len(piece.encode())}
        yield event("content_block_stop", {"index": index}), {}

    def response_events(self):
        """Text that has come as deltas comes again in items, and only in
        those if there are no deltas."""
        items = list(self.response_items())
        counted = done = 0
        yield self.response_event("response.created", [])
        yield self.response_event("response.in_progress", [])
        for index, (item, kind, pieces) in enumerate(items):
            begun = dict(item, status="in_progress", **{
                member: [] if member == "content" else ""
                for member in ("content", "arguments") if member in item})
            yield event("response.output_item.added", {
                "output_index": index, "item": begun}), {}
            if self.extra:
                yield event("keepalive", {}), {}
            for piece in pieces if kind and not self.silent else ():
                counted += len(piece.encode())
                yield event(kind + ".delta", {
                    "item_id": item["id"], "output_index": index,
                    "delta": piece, "obfuscation": "x" * (len(piece) % 7)}), \
                    {"text": len(piece.encode())}
            if kind:
                yield event(kind + ".done", {
                    "item_id": item["id"], "output_index": index,
                    "text" if "content" in item else "arguments":
                    "".join(pieces)}), {}
            done += len("".join(pieces).encode())
            more = max(0, done - counted)
            counted += more
            yield event("response.output_item.done", {
                "output_index": index, "item": item}), {"text": more}
        yield self.response_event("response." + self.status_word,
                                  [item for item, _, _ in items])
        if self.extra:
            yield b"data: [DONE]\n\n", {}

    def response_items(self):
        """(item, the events of its text, the text in pieces)"""
        if self.sealed:
            yield ({"id": "rs_1", "type": "reasoning", "summary": [],
                    "encrypted_content": SEALED}, None, [SEALED])
        yield (self.response_message("".join(self.words)),
               "response.output_text", self.words)
        if self.called:
            yield ({"id": "fc_1", "type": "function_call", "status":
                    "completed", "call_id": "call_1", "name": "look",
                    "arguments": "".join(ARGUMENTS)},
                   "response.function_call_arguments", ARGUMENTS)

    def response_event(self, name, items):
        """The usage counts in the last event only."""
        ends = name.endswith(self.status_word)
        response = self.response(items, ends)
        usage = self.response_usage()
        if ends or self.report == "running":
            response["usage"] = usage
        elif self.repeats:
            response["usage"] = None
        return event(name, {"response": response}), \
            money.changes(money.ResponsesUsage(usage)) if ends else {}

    def response(self, items, ended):
        word = self.status_word if ended else "in_progress"
        return {"id": "resp_1", "object": "response",
                "created_at": 1700000000, "model": self.upstream_id(),
                "status": word, "output": items, "incomplete_details":
                {"reason": "max_output_tokens"} if word == "incomplete"
                else None, "error": {"code": "server_error", "message": "no"}
                if word == "failed" else None}

    def response_message(self, text):
        return {"id": "msg_1", "type": "message", "status": "completed",
                "role": "assistant", "content": [
                    {"type": "output_text", "annotations": [], "text": text}]}


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
            text += sum(strings(delta) for delta in
                        deltas + [obj.get("delta")])
    return text


def lower(usage):
    """Totals lower than the earlier ones, and no lifetimes."""
    return {name: n // 2 for name, n in usage.items() if type(n) is int}


def strings(delta):
    """Bytes of the strings in a delta, which count as text of the answer."""
    if isinstance(delta, str):
        return len(delta.encode())
    if isinstance(delta, list):
        return sum(strings(v) for v in delta)
    if isinstance(delta, dict):
        return sum(strings(v) for name, v in delta.items()
                   if name in TEXT or not isinstance(v, str))
    return 0


TEXT = ("content", "text", "arguments", "partial_json")


def data(obj):
    return b"data: " + json.dumps(obj, ensure_ascii=False).encode() + b"\n\n"


def event(name, obj):
    return (b"event: %s\n" % name.encode()
            + data(dict({"type": name}, **obj)))
