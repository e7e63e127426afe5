"""What the benchmark sends and what its upstream answers: the same
conversation and the same answer in all protocols, so that a translated call
carries the same as an untranslated one.  (Embeddings have texts and a vector
instead.)

A request is an agent's turn: tools with schemas, a system prompt, tool calls
with arguments, their results, texts with an escape every 30 to 60 bytes, as in
code.  All is generated from a fixed seed: each run sends the same bytes.
"""

import base64
import json
import random

WORDS = ("the ", "a ", "file ", "of ", "return ", "and ", "if ", "function ",
         "should ", "not ", "x = ", "value", "(self)", "->next", ", ", ". ",
         "; ", "configuration ", "use ", "error ", "in ", "path/to/module",
         "0x1f ", "it ")
ESCAPED = ("\n", "\n\n", "\n    ", "\n\t\t", '"', '"text"', "\\n", "'")
NAMES = ("path", "pattern", "command", "limit", "offset", "content", "url",
         "mode", "description", "old_string", "timeout", "id")

NUMBER = "0000000000000000"     # in each request; see load.lua
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
    """The content of all forms of a request, so long that the chat form has
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


def codex(size, write):
    """The content of the first turn of Codex: its instructions, what is known
    of the client's machine, its functions and those of two servers; so long
    that it has about that many bytes as one of REQUESTS writes it."""
    rnd = random.Random(4712)
    c = {"tools": [tool(rnd, n) for n in range(7)], "turns": [], "spaces": {
        name: [tool(rnd, n) for n in range(12)]
        for name in ("mcp__docs", "mcp__issues")}}
    c["system"] = ""
    c["question"] = text(rnd, size // 6)
    c["system"] = text(rnd, size - len(write(c)))
    return c


def tools(c):
    """Those in namespaces by the names that they have without them."""
    return c["tools"] + [
        ("%s__%s" % (space, name), description, schema)
        for space, inside in c.get("spaces", {}).items()
        for name, description, schema in inside]


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
        "model": MODEL, "user": NUMBER, "stream": stream, "max_tokens": 32000,
        "tools": [{"type": "function", "function": {
            "name": name, "description": description, "parameters": schema}}
            for name, description, schema in tools(c)],
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
        "model": MODEL, "metadata": {"user_id": NUMBER}, "stream": stream,
        "max_tokens": 32000,
        "tools": [{"name": name, "description": description,
                   "input_schema": schema}
                  for name, description, schema in tools(c)],
        "system": [{"type": "text", "text": c["system"]}],
        "messages": turns})


def responses(c, stream=False):
    """In the form that Codex sends it."""
    def message(role, kind, text):
        return {"type": "message", "role": role,
                "content": [{"type": kind, "text": text}]}

    def functions(inside):
        return [{"type": "function", "name": name, "strict": False,
                 "description": description, "parameters": schema}
                for name, description, schema in inside]

    items = [message("developer", "input_text", c["system"]),
             message("user", "input_text", c["question"])]
    for call, said, arguments, result in c["turns"]:
        items += [
            message("assistant", "output_text", said),
            {"type": "function_call", "call_id": call, "name": "tool_0",
             "arguments": json.dumps(arguments)},
            {"type": "function_call_output", "call_id": call,
             "output": result}]
    return dump({
        "model": MODEL, "safety_identifier": NUMBER, "stream": stream,
        "input": items,
        "tools": functions(c["tools"]) + [
            {"type": "namespace", "name": space, "description": "Tools.",
             "tools": functions(inside)}
            for space, inside in c.get("spaces", {}).items()] + [
            {"type": "web_search", "external_web_access": False}],
        "tool_choice": "auto", "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"}, "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "01a20535-03da-7c11-8f7e-5a2d0c1e9b44",
        "client_metadata": {"session": "01a20535-03da", "turn": json.dumps(
            {"model": MODEL, "ids": ["%032x" % n for n in range(30)]})}})


END = b"]}"


def lengths(c, write, turns):
    """Where the last turns of a conversation end in its body, each of which
    would be a body with END."""
    whole, n = write(c), len(c["turns"])
    ends = []
    for k in range(n - turns + 1, n + 1):
        body = write(dict(c, turns=c["turns"][:k]))
        assert body.endswith(END) and whole.startswith(body[:-len(END)])
        ends.append(len(body) - len(END))
    return ends


def embeddings(c, stream=False):
    return dump({
        "model": MODEL, "user": NUMBER, "encoding_format": "base64",
        "input": [c["system"], c["question"]] + [
            result for _, _, _, result in c["turns"]]})


REQUESTS = {"chat": chat, "messages": messages, "responses": responses,
            "embeddings": embeddings}


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


def response(status="completed", text=ANSWER, output=80):
    """As the vendor does, it repeats some of the request."""
    ended = status == "completed"
    return {
        "id": "resp_01AbCdEfGhIjKlMnOpQrStUv", "object": "response",
        "created_at": 1767225600, "status": status, "background": False,
        "error": None, "incomplete_details": None, "instructions": None,
        "max_output_tokens": None, "model": UPSTREAM_MODEL,
        "output": [response_message(text)] if ended else [],
        "parallel_tool_calls": True, "previous_response_id": None,
        "reasoning": {"effort": "medium", "summary": "detailed"},
        "store": False, "temperature": 1.0, "text": {"format": {
            "type": "text"}}, "tool_choice": "auto", "tools": [],
        "top_p": 1.0, "truncation": "disabled",
        "usage": {"input_tokens": 5120,
                  "input_tokens_details": {"cached_tokens": 4096},
                  "output_tokens": output,
                  "output_tokens_details": {"reasoning_tokens": 0},
                  "total_tokens": 5120 + output} if ended else None,
        "user": None, "metadata": {}}


def response_message(text, status="completed"):
    return {"id": "msg_01AbCdEfGhIjKlMnOpQrStUv", "type": "message",
            "status": status, "role": "assistant", "content": [
                {"type": "output_text", "annotations": [], "logprobs": [],
                 "text": text}] if status == "completed" else []}


def responses_json():
    return dump(response())


def responses_stream():
    words = [TOKENS[i % len(TOKENS)] for i in range(EVENTS - 8)]
    part = {"item_id": "msg_01AbCdEfGhIjKlMnOpQrStUv", "output_index": 0,
            "content_index": 0}
    done = response_message("".join(words))
    events = [
        ("created", {"response": response("in_progress")}),
        ("in_progress", {"response": response("in_progress")}),
        ("output_item.added", {"output_index": 0, "item":
                               response_message("", "in_progress")}),
        ("content_part.added", dict(part, part=dict(done["content"][0],
                                                    text="")))]
    events += [("output_text.delta", dict(
        part, delta=word, logprobs=[], obfuscation="AbCdEfGhIj"))
        for word in words]
    events += [
        ("output_text.done", dict(part, text="".join(words), logprobs=[])),
        ("content_part.done", dict(part, part=done["content"][0])),
        ("output_item.done", {"output_index": 0, "item": done}),
        ("completed", {"response": response(
            text="".join(words), output=EVENTS - 8)})]

    return b"".join(b"event: response.%s\ndata: %s\n\n" % (
        name.encode(), dump({"type": "response." + name,
                             "sequence_number": n, **event}))
        for n, (name, event) in enumerate(events))


def embeddings_json():
    """A vector of 1536 floats."""
    return dump({
        "object": "list", "data": [{
            "object": "embedding", "index": 0, "embedding": base64.b64encode(
                random.Random(2).randbytes(4 * 1536)).decode()}],
        "model": UPSTREAM_MODEL,
        "usage": {"prompt_tokens": 5120, "total_tokens": 5120}})


# the files that t/bench/upstream.c is given

ANSWERS = {"chat.json": chat_json, "chat.stream": chat_stream,
           "messages.json": messages_json, "messages.stream": messages_stream,
           "responses.json": responses_json,
           "responses.stream": responses_stream,
           "embeddings.json": embeddings_json}

# what any gateway must return of them: words of the answer, and its end

LAST_WORDS = {"json": json.dumps(ANSWER)[1:-1].encode(),
              "stream": b" return"}
ENDS = {"chat": b"data: [DONE]\n\n",
        "messages": b'{"type":"message_stop"}\n\n', "responses": b"}}\n\n"}
