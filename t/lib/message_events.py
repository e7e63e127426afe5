"""The events of a messages stream: writes them, and folds them into a message
by the rules of docs/translation.md, "Streams".

A tool's input is kept as its original text: Raw.  answer() writes such a
message as JSON.
"""

import json

from upstream import event as sse_event


def event(kind, **more):
    return sse_event(kind, dict({"type": kind}, **more))


def start(usage=None, **more):
    return event("message_start", message=dict({
        "id": "msg_1", "type": "message", "role": "assistant",
        "model": "large-2026-01-01", "content": [], "stop_reason": None,
        "stop_sequence": None,
        "usage": usage or {"input_tokens": 10, "output_tokens": 1}}, **more))


def ping():
    return event("ping")


def begin(index, block):
    return event("content_block_start", index=index, content_block=block)


def text_block(index, text=""):
    return begin(index, {"type": "text", "text": text})


def thinking_block(index, text=""):
    return begin(index, {"type": "thinking", "thinking": text,
                         "signature": ""})


def tool_block(index, id="toolu_1", name="get_weather", input=None):
    return begin(index, {"type": "tool_use", "id": id, "name": name,
                         "input": {} if input is None else input})


def delta(index, kind, **more):
    return event("content_block_delta", index=index,
                 delta=dict({"type": kind}, **more))


def text(index, text):
    return delta(index, "text_delta", text=text)


def thinking(index, text):
    return delta(index, "thinking_delta", thinking=text)


def signature(index, text):
    return delta(index, "signature_delta", signature=text)


def partial(index, text):
    return delta(index, "input_json_delta", partial_json=text)


def end_block(index):
    return event("content_block_stop", index=index)


def end(reason="end_turn", usage=None, **more):
    return event("message_delta",
                 delta=dict({"stop_reason": reason, "stop_sequence": None},
                            **more),
                 usage=usage or {"output_tokens": 7})


def stop():
    return event("message_stop")


# Folding.

class Raw(str):
    """JSON as it is written."""


class NotWhole(Exception):
    """The stream makes no whole message: it is broken, or the input of a tool
    is."""


def dumps(value):
    """JSON of a value with Raw parts."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{%s}" % ",".join("%s:%s" % (json.dumps(k), dumps(v))
                                 for k, v in value.items())
    if isinstance(value, list):
        return "[%s]" % ",".join(map(dumps, value))
    return json.dumps(value)


def parse(sse):
    """The documents of the events, in order."""
    text = sse.replace("\r\n", "\n").replace("\r", "\n")
    for block in text.split("\n\n"):
        name, data = "", []
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            value = value[1:] if value[:1] == " " else value
            if field == "data":
                data.append(value)
            elif field == "event":
                name = value
        if data:
            try:
                document = json.loads("\n".join(data))
            except ValueError as e:
                raise NotWhole("an event is not JSON") from e
            yield dict({"type": name}, **document)


DELTAS = {"text_delta": ("text", "text"),
          "thinking_delta": ("thinking", "thinking"),
          "signature_delta": ("signature", "thinking")}


def fold(sse):
    """The message."""
    message = {"type": "message", "role": "assistant", "content": [],
               "stop_reason": None, "usage": {}}
    blocks = {}
    done = False

    for e in parse(sse):
        kind = e["type"]
        if kind == "message_start":
            given = dict(e["message"])
            merge_usage(message["usage"], given.pop("usage", None))
            given.pop("content", None)
            message.update(given)
        elif kind == "content_block_start":
            block = dict(e["content_block"])
            if block["type"] == "tool_use":
                block["input"] = [block.get("input") or {}, "", False]
            blocks[e["index"]] = block
            message["content"].append(block)
        elif kind == "content_block_delta":
            fold_delta(message, blocks, e)
        elif kind == "content_block_stop":
            block = blocks.get(e["index"], {})
            if block.get("type") == "tool_use":
                block["input"][2] = True
        elif kind == "message_delta":
            message.update({k: v for k, v in e["delta"].items()
                            if v is not None})
            merge_usage(message["usage"], e.get("usage"))
        elif kind == "message_stop":
            done = True
            break
        elif kind == "error":
            raise NotWhole("an error")

    if not done and not message["stop_reason"]:
        raise NotWhole("cut")
    for block in message["content"]:
        if block["type"] == "tool_use":
            block["input"] = tool_input(*block["input"],
                                        message["stop_reason"])
    return message


def fold_delta(message, blocks, e):
    change = e["delta"]
    block = blocks.get(e["index"])
    if change["type"] == "input_json_delta":
        if block and block["type"] == "tool_use":
            block["input"][1] += change["partial_json"]
        return
    member, kind = DELTAS.get(change["type"], (None, None))
    if member is None:
        return
    if block is None and kind == "text":
        block = blocks[e["index"]] = {"type": "text", "text": ""}
        message["content"].append(block)
    if block is not None and block["type"] == kind:
        block[member] = block.get(member, "") + change[member]


def tool_input(initial, partial, stopped, reason):
    if not partial:
        if not stopped and reason != "tool_use":
            raise NotWhole("a tool without input, cut")
        return initial
    try:
        json.loads(partial)
    except ValueError as e:
        raise NotWhole("half a tool's input") from e
    return Raw(partial)


def merge_usage(usage, more, beside=None):
    """input_tokens of 0 replaces no count; a cache field of 0 does, if the
    report has input_tokens, too."""
    more = more or {}
    beside = more.get("input_tokens") if beside is None else beside
    for name, value in more.items():
        if isinstance(value, dict):
            merge_usage(usage.setdefault(name, {}), value, beside or 0)
        elif isinstance(value, int) and not isinstance(value, bool):
            if name.endswith("input_tokens") and value == 0 \
                    and usage.get(name, 0) > 0 \
                    and (name == "input_tokens" or not beside):
                continue
            usage[name] = value
