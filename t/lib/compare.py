"""How what a call gave compares with what a vector expects: index.json of
t/vectors, "compare".

A code compares exactly, except that the gateway has more specific codes for
some of INVALID_REQUEST (docs/api.md, "Errors").
"""

import json
import re

FINER = {"INVALID_REQUEST": ("INVALID_JSON", "MISSING_FIELD",
                             "INVALID_FIELD")}


class Failed(Exception):
    """The vector fails."""


class Unknown(Exception):
    """The vector has something unknown to this runner."""


def same(want, got, at=""):
    """None, or where and how they differ.  true is not 1."""
    if isinstance(want, dict) and isinstance(got, dict):
        for name in list(want) + [n for n in got if n not in want]:
            here = "%s.%s" % (at, name) if at else name
            if name not in got:
                return "%s is missing, expected %s" % (here,
                                                       short(want[name]))
            if name not in want:
                return "%s is not expected: %s" % (here, short(got[name]))
            wrong = same(want[name], got[name], here)
            if wrong:
                return wrong
        return None
    if isinstance(want, list) and isinstance(got, list):
        for i, (w, g) in enumerate(zip(want, got)):
            wrong = same(w, g, "%s[%d]" % (at, i))
            if wrong:
                return wrong
        if len(want) != len(got):
            return "%s has %d entries, expected %d" % (at, len(got),
                                                       len(want))
        return None
    if want == "[date]" and isinstance(got, int):
        return None
    number = isinstance(want, (int, float)) and isinstance(got, (int, float))
    if want == got and isinstance(want, bool) == isinstance(got, bool) \
       and (number or type(want) is type(got)):
        return None
    return "%s is %s, expected %s" % (at or "it", short(got), short(want))


def short(value, size=200):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= size else text[:size] + "…"


def parsed(text):
    """JSON in a string, as a value; else the string."""
    try:
        return {"JSON": json.loads(text)}
    except (TypeError, ValueError):
        return text


def without_nulls(value):
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items()
                if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return value


def blocks(content):
    return [{"type": "text", "text": content}] \
        if isinstance(content, str) else content


def normal_request(body):
    """A messages or chat request in a normal form for comparison."""
    if not isinstance(body, dict):
        return body
    body = dict(body)
    if body.get("tool_choice") == {"type": "auto"}:
        del body["tool_choice"]
    if "system" in body:
        body["system"] = blocks(body["system"])
    if isinstance(body.get("messages"), list):
        body["messages"] = [normal_message(m) for m in body["messages"]]
    return body


def normal_message(message):
    if not isinstance(message, dict):
        return message
    message = dict(message)
    if "content" in message:
        message["content"] = blocks(message["content"])
        if isinstance(message["content"], list):
            message["content"] = [
                dict(b, content=blocks(b["content"]))
                if isinstance(b, dict) and b.get("type") == "tool_result"
                and "content" in b else b for b in message["content"]]
    if isinstance(message.get("tool_calls"), list):
        message["tool_calls"] = normal_calls(message["tool_calls"])
    return message


def normal_calls(calls):
    return [dict(c, function=dict(c["function"], arguments=parsed(
                c["function"]["arguments"])))
            if isinstance(c, dict) and isinstance(c.get("function"), dict)
            and "arguments" in c["function"] else c for c in calls]


def normal_answer(body):
    """A chat completion, in which null is the same as absent."""
    body = without_nulls(body)
    if not isinstance(body, dict):
        return body
    for choice in body.get("choices") or ():
        message = choice.get("message") or {}
        if "tool_calls" in message:
            message["tool_calls"] = normal_calls(message["tool_calls"])
    return body


def normal_aggregate(value):
    value = without_nulls(value)
    value.setdefault("usage", None)
    value.setdefault("finish_reason", None)
    if "tool_calls" in value:
        value["tool_calls"] = normal_calls(value["tool_calls"])
    if "error" in value:
        value["error"] = {"code": code(value["error"].get("code"))}
    return value


def code(text):
    """The code, a more specific one as the one in the vectors."""
    for coarse, fine in FINER.items():
        if text in fine:
            return coarse
    return text


def named(value, model):
    """[model] is the id that the client sent."""
    if isinstance(value, dict):
        return {k: named(v, model) for k, v in value.items()}
    if isinstance(value, list):
        return [named(v, model) for v in value]
    return model if value == "[model]" else value


def demand(wrong):
    if wrong:
        raise Failed(wrong)


def check_error(vector, status, want, r):
    """A flat error."""
    if r.status != status:
        raise Failed("status is %d (%s), expected %d %s"
                     % (r.status, r.body[:200].decode(errors="replace"),
                        status, want.get("code", "")))
    try:
        body = r.json()
    except ValueError:
        raise Failed("the error is not JSON: %r" % r.body[:200])
    if not r.complete:
        raise Failed("the error is truncated")
    if set(body) != {"code", "message"}:
        raise Failed("the error is not flat: %s" % short(body))
    if want.get("code") and code(body["code"]) != code(want["code"]):
        raise Failed("code is %s (%s), expected %s"
                     % (body["code"], body["message"], want["code"]))
    if "message" in want and any(p.endswith("message")
                                 for p in vector.asserted):
        demand(same(want["message"], body["message"], "message"))


def check_contains(vector, text):
    for needle in vector.contains:
        if needle.encode() not in text and needle not in \
           re.sub(r"\\u[0-9a-fA-F]{4}",
                  lambda m: plain(m.group()), text.decode()):
            raise Failed("%r is not in %r" % (needle, text[:2000]))


def plain(escape):
    """An escape as the character, if that needs none."""
    c = chr(int(escape[2:], 16))
    return c if c > "\x7f" and not "\ud800" <= c <= "\udfff" else escape


def check_headers(want, r):
    for name, value in (want or {}).items():
        if r.get(name) != str(value):
            raise Failed("header %s is %r, expected %r"
                         % (name, r.get(name), value))


def check_metered(want, line):
    """The log does not have the short-lived cache writes, which are the rest
    besides cache_write_1h: not compared if an upstream's numbers do not add
    up."""
    got = {name: int(value or 0) for name, value in line.items()
           if name not in ("tag", "code")}
    got["cache_write_5m"] = got["cache_write"] - got["cache_write_1h"]
    got["complete"] = line["complete"] == "1"
    got["known"] = bool(line["input"] or line["output"])
    for name, value in want.items():
        if name not in got:
            raise Unknown("metered: %s is unknown" % name)
        if name == "cache_write_5m" and "cache_write" in want \
           and want["cache_write"] != value + want.get("cache_write_1h", 0):
            continue
        if value is not None and (want.get("known", True)
                                  or name in ("known", "complete")):
            demand(same(value, got[name], "metered." + name))
