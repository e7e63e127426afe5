"""Event streams as chat clients read them.

accumulate() is the official Python SDK's accumulator (openai-python,
lib/streaming/_deltas.py, Apache-2.0) in short: strings are joined, numbers
added, lists merged by "index"; so a role or an id that is sent twice is
noticed.
"""

import json
import re


def frames(body):
    """The data of each event of a stream, without comments and events that
    have no data."""
    text = body.decode() if isinstance(body, bytes) else body
    assert "\r" not in text, "the gateway ends lines with LF"
    out = []
    for block in text.split("\n\n"):
        data = [line[5:].removeprefix(" ") for line in block.split("\n")
                if line.startswith("data:")]
        if data:
            out.append("\n".join(data))
    return out


def comments(body):
    return re.findall(rb"(?m)^:.*$", body)


def events(body):
    """The same, parsed; "[DONE]" stays a string."""
    return [f if f == "[DONE]" else json.loads(f) for f in frames(body)]


def accumulate(acc, delta):
    for key, value in delta.items():
        if key not in acc or acc[key] is None:
            acc[key] = value
        elif value is None:
            pass
        elif key in ("index", "type"):
            acc[key] = value
        elif isinstance(acc[key], str) and isinstance(value, str):
            acc[key] += value
        elif isinstance(acc[key], (int, float)):
            acc[key] += value
        elif isinstance(acc[key], dict) and isinstance(value, dict):
            accumulate(acc[key], value)
        elif isinstance(acc[key], list) and isinstance(value, list):
            merge(acc[key], value)
        else:
            raise TypeError("%r cannot be added to %r" % (value, acc[key]))
    return acc


def merge(acc, entries):
    for entry in entries:
        if not isinstance(entry, dict) or "index" not in entry:
            raise TypeError("an entry of a list has no index: %r" % (entry,))
        at = entry["index"]
        if at < len(acc):
            accumulate(acc[at], entry)
        else:
            acc.insert(at, entry)


def is_error(event):
    return isinstance(event, dict) and "choices" not in event \
        and ("error" in event or "code" in event)


def aggregate(seen):
    """The events merged into one answer, in the form of "aggregate" in the
    vectors."""
    message = {}
    out = {"finish_reason": None, "usage": None, "end": None}
    for event in seen:
        if event == "[DONE]":
            out["end"] = "done"
        elif is_error(event):
            out["end"] = "error"
            out["error"] = {"code": event.get("code")}
        else:
            out["usage"] = event.get("usage") or out["usage"]
            for choice in event["choices"]:
                # what is merged is the list, as the SDK does it from the
                # second chunk on: its first entries need an index as well
                fresh = {k: [] for k, v in choice["delta"].items()
                         if isinstance(v, list) and k not in message}
                accumulate(message, fresh)
                accumulate(message, json.loads(json.dumps(choice["delta"])))
                out["finish_reason"] = choice.get("finish_reason") \
                    or out["finish_reason"]
    for name in ("tool_calls", "thinking_blocks"):
        for entry in message.get(name) or ():
            entry.pop("index")
    out.update(message)
    return out


def disorder(seen, chat=False):
    """What is wrong with the order of the events, or None.  chat: the
    upstream's own events, which need not open with the role."""
    roles = finishes = usages = 0
    for i, event in enumerate(seen):
        last = i == len(seen) - 1
        if event == "[DONE]" or is_error(event):
            if not last:
                return "events after %r" % (event,)
            if event == "[DONE]" and not finishes:
                return "[DONE] without finish_reason"
            return None
        if not event["choices"]:
            usages += 1
            if not finishes:
                return "the usage chunk comes before the finish_reason"
        for choice in event["choices"]:
            if finishes and choice["delta"]:
                return "a delta after the finish_reason"
            if "role" in choice["delta"]:
                roles += 1
                if i:
                    return "the role is not in the first chunk"
            elif not i and not chat:
                return "the first chunk has no role"
            if choice.get("finish_reason"):
                finishes += 1
        if roles > 1 or finishes > 1 or usages > 1:
            return "%d roles, %d finish_reasons, %d usage chunks" \
                % (roles, finishes, usages)
    return "neither [DONE] nor an error at the end"
