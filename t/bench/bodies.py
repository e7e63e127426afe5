"""What the benchmark sends and what its upstream answers: the same
conversation and the same answer in both protocols, so that a translated chat
call carries the same as an untranslated one.

A request is an agent's turn: tools with schemas, a system prompt, tool calls
with arguments, their results, texts with an escape every 30 to 60 bytes, as in
code.  All is generated from a fixed seed: each run sends the same bytes.
"""

import json
import random

WORDS = ("the ", "a ", "file ", "of ", "return ", "and ", "if ", "function ",
         "should ", "not ", "x = ", "value", "(self)", "->next", ", ", ". ",
         "; ", "configuration ", "use ", "error ", "in ", "path/to/module",
         "0x1f ", "it ")
ESCAPED = ("\n", "\n\n", "\n    ", "\n\t\t", '"', '"text"', "\\n", "'")
NAMES = ("path", "pattern", "command", "limit", "offset", "content", "url",
         "mode", "description", "old_string", "timeout", "id")

EVENTS = 100        # of a stream, all counted
MODEL = "bench-large"
UPSTREAM_MODEL = "large-2026-01-01"
TOKENS = (" token", " the", " value", " of", " it", ".\n", " return", " x")


def dump(value):
    return json.dumps(value, separators=(",", ":")).encode()


def text(rnd, size):
    """About that many bytes, as JSON writes them."""
    parts, length = [], 0
    while length < size:
        run = rnd.randrange(30, 60)
        while run > 0:
            word = rnd.choice(WORDS)
            parts.append(word)
            length += len(word)
            run -= len(word)
        parts.append(rnd.choice(ESCAPED))
        length += len(json.dumps(parts[-1])) - 2
    return "".join(parts)


def tool(rnd, n):
    """(name, description, schema)"""
    properties = {
        name: {"type": rnd.choice(("string", "string", "number")),
               "description": text(rnd, rnd.randrange(60))}
        for name in rnd.sample(NAMES, rnd.randrange(2, 7))}
    properties["verbose"] = {"type": "boolean", "default": False}
    return ("tool_%d" % n, text(rnd, rnd.randrange(100, 600)),
            {"type": "object", "properties": properties,
             "required": ["verbose"], "additionalProperties": False})


def conversation(size):
    """The content of both forms of a request, so long that the chat form has
    about that many bytes."""
    rnd = random.Random(4711)
    c = {"system": text(rnd, size // 8), "tools": [], "turns": []}

    while len(chat(c)) < size // 2:
        c["tools"].append(tool(rnd, len(c["tools"])))

    c["question"] = text(rnd, min(200, size // 8))
    filled = len(chat(c))

    while filled < size:
        room = min(size - filled, 3000)
        c["turns"].append(("call_%024d" % len(c["turns"]),
                           text(rnd, rnd.randrange(20, 100)),
                           {"path": "src/parse.c", "limit": 200,
                            "text": text(rnd, rnd.randrange(room // 3 + 20))},
                           text(rnd, rnd.randrange(room // 3 + 20))))
        filled += len(dump(chat_turn(c["turns"][-1])))

    return c


def chat_turn(turn):
    call, said, arguments, result = turn
    return [{"role": "assistant", "content": said, "tool_calls": [
                {"id": call, "type": "function", "function": {
                    "name": "tool_0", "arguments": json.dumps(arguments)}}]},
            {"role": "tool", "tool_call_id": call, "content": result}]


def chat(c, stream=False):
    turns = [{"role": "system", "content": c["system"]},
             {"role": "user", "content": c.get("question", "")}]
    for turn in c["turns"]:
        turns += chat_turn(turn)
    return dump({
        "model": MODEL, "stream": stream, "max_tokens": 32000,
        "tools": [{"type": "function", "function": {
            "name": name, "description": description, "parameters": schema}}
            for name, description, schema in c["tools"]],
        "messages": turns})


def messages(c, stream=False):
    turns = [{"role": "user", "content": c["question"]}]
    for call, said, arguments, result in c["turns"]:
        turns += [
            {"role": "assistant", "content": [
                {"type": "text", "text": said},
                {"type": "tool_use", "id": call, "name": "tool_0",
                 "input": arguments}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call,
                 "content": result}]}]
    return dump({
        "model": MODEL, "stream": stream, "max_tokens": 32000,
        "tools": [{"name": name, "description": description,
                   "input_schema": schema}
                  for name, description, schema in c["tools"]],
        "system": [{"type": "text", "text": c["system"]}],
        "messages": turns})


REQUESTS = {"chat": chat, "messages": messages}


# answers

ANSWER = text(random.Random(1), 250)


def chat_json():
    return dump({
        "id": "chatcmpl-AbCdEfGhIjKlMnOpQrStUvWx", "object": "chat.completion",
        "created": 1767225600, "model": UPSTREAM_MODEL,
        "choices": [{"index": 0, "message": {
            "role": "assistant", "content": ANSWER, "refusal": None},
            "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5120, "completion_tokens": 80,
                  "total_tokens": 5200,
                  "prompt_tokens_details": {"cached_tokens": 4096}}})


def messages_json():
    return dump({
        "id": "msg_01AbCdEfGhIjKlMnOpQrStUv", "type": "message",
        "role": "assistant", "model": UPSTREAM_MODEL,
        "content": [{"type": "text", "text": ANSWER}],
        "stop_reason": "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 1024, "cache_read_input_tokens": 4096,
                  "cache_creation_input_tokens": 0, "output_tokens": 80,
                  "cache_creation": {"ephemeral_5m_input_tokens": 0,
                                     "ephemeral_1h_input_tokens": 0},
                  "service_tier": "standard"}})


def chat_stream():
    def chunk(delta, finish=None, **more):
        return dict({
            "id": "chatcmpl-AbCdEfGhIjKlMnOpQrStUvWx",
            "object": "chat.completion.chunk", "created": 1767225600,
            "model": UPSTREAM_MODEL, "service_tier": "default",
            "choices": [{"index": 0, "delta": delta, "logprobs": None,
                         "finish_reason": finish}], "usage": None}, **more)

    events = [chunk({"role": "assistant", "content": ""})]
    events += [chunk({"content": TOKENS[i % len(TOKENS)]})
               for i in range(EVENTS - 4)]
    events += [chunk({}, "stop"),
               chunk({}, choices=[], usage={
                   "prompt_tokens": 20, "completion_tokens": EVENTS - 4,
                   "total_tokens": EVENTS + 16})]

    return b"".join(b"data: %s\n\n" % dump(event) for event in events) \
        + b"data: [DONE]\n\n"


def messages_stream():
    events = [
        {"type": "message_start", "message": {
            "id": "msg_01AbCdEfGhIjKlMnOpQrStUv", "type": "message",
            "role": "assistant", "model": UPSTREAM_MODEL, "content": [],
            "stop_reason": None, "stop_sequence": None,
            "usage": {"input_tokens": 20, "output_tokens": 1,
                      "cache_read_input_tokens": 0,
                      "cache_creation_input_tokens": 0}}},
        {"type": "content_block_start", "index": 0,
         "content_block": {"type": "text", "text": ""}},
        {"type": "ping"}]
    events += [{"type": "content_block_delta", "index": 0, "delta": {
                    "type": "text_delta", "text": TOKENS[i % len(TOKENS)]}}
               for i in range(EVENTS - 6)]
    events += [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta",
         "delta": {"stop_reason": "end_turn", "stop_sequence": None},
         "usage": {"output_tokens": EVENTS - 6}},
        {"type": "message_stop"}]

    return b"".join(b"event: %s\ndata: %s\n\n"
                    % (event["type"].encode(), dump(event))
                    for event in events)


# the files that t/bench/upstream.c is given

ANSWERS = {"chat.json": chat_json, "chat.stream": chat_stream,
           "messages.json": messages_json, "messages.stream": messages_stream}

# what any gateway must return, by kind

LAST_WORDS = {"json": json.dumps(ANSWER)[1:-1].encode(),
              "stream": b" return"}
