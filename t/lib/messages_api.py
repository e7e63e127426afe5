"""A messages API as strict as the real one, with answers like its answers.

It is a script for upstream.Upstream.  What the real API refuses, as far as its
documents and error texts show, is refused here too and recorded in "refused":
a test that asserts that this is empty fails for every request that the gateway
should not have built.  Where the real API is lenient (it merges adjacent
messages of one role), this one is not: compatible APIs are not either.

The shape of a request is a table of checks; checks that span several members
are code below it.
"""

import base64
import hashlib
import json

from fake_api import (FakeApi, Refused, always, at, boolean, closed, either,
                      integer, list_of, mapping, number, one_of, pattern,
                      pieces, record, refuse, string, tagged)
from upstream import event, message_error, message_usage

VERSIONS = ("2023-01-01", "2023-06-01", "2026-10-21")
BREAKPOINTS = 4
MAGIC = {"image/jpeg": b"\xff\xd8\xff", "image/png": b"\x89PNG\r\n\x1a\n",
         "image/gif": b"GIF8", "image/webp": b"RIFF",
         "application/pdf": b"%PDF-"}


class Model:
    """Capabilities, as the options of the gateway's model line."""

    def __init__(self, sampling="both", thinking="budget", effort=(),
                 structured="native", strict=True, prefill=True,
                 forced_tool_choice=True, max_output=64000):
        self.sampling = sampling
        self.thinking = thinking
        self.effort = effort
        self.structured = structured
        self.strict = strict
        self.prefill = prefill
        self.forced_tool_choice = forced_tool_choice
        self.max_output = max_output

    def options(self):
        """Of the model line."""
        def word(value):
            if isinstance(value, (list, tuple)):
                return ",".join(value)
            return {True: "on", False: "off"}.get(value, str(value))

        return " ".join("%s=%s" % (name, word(value))
                        for name, value in vars(self).items() if value != ())


def written(path, value):
    """A text block's text."""
    string(path, value)
    if not value:
        refuse(path, "text content blocks must be non-empty")
    if not value.strip():
        refuse(path, "text content blocks must contain non-whitespace text")


def encoded(path, source):
    """base64 that begins as its media type does."""
    try:
        start = base64.b64decode(source["data"], validate=True)[:16]
    except ValueError:
        refuse(at(path, "data"), "invalid base64 data")
    kind = source["media_type"]
    if not start.startswith(MAGIC.get(kind, b"")):
        refuse(path, "specified using the %s media type, but it does not"
                     " appear to be one" % kind)


def base64_source(*kinds):
    shape = record({"type": string, "media_type": one_of(*kinds),
                    "data": string})

    def check(path, value):
        shape(path, value)
        encoded(path, value)

    return check


def schema(path, value):
    """Of a tool's input."""
    mapping(path, value)
    if value.get("type") != "object":
        refuse(at(path, "type"), "Field required" if "type" not in value
               else "Input should be 'object'")
    if {"oneOf", "anyOf", "allOf"} & set(value):
        refuse(path, "input_schema does not support oneOf, allOf, or anyOf at"
                     " the top level")


# The shape of a request.

ID = pattern("[a-zA-Z0-9_-]+")
NAME = pattern("[a-zA-Z0-9_-]{1,128}")
URL = record({"type": string, "url": pattern("https://.+")})
IMAGES = [kind for kind in MAGIC if kind.startswith("image/")]

CACHE = record({"type": one_of("ephemeral")}, ttl=one_of("5m", "1h"))

TEXT = record({"type": string, "text": written}, cache_control=CACHE)

IMAGE = record({"type": string,
                "source": tagged(base64=base64_source(*IMAGES), url=URL)},
               cache_control=CACHE)

DOCUMENT = record(
    {"type": string,
     "source": tagged(base64=base64_source("application/pdf"), url=URL,
                      text=record({"type": string, "data": string,
                                   "media_type": one_of("text/plain")}))},
    title=string, context=string, cache_control=CACHE)

RESULT = record(
    {"type": string, "tool_use_id": ID}, is_error=boolean,
    content=either(string, list_of(tagged(
        text=TEXT, image=IMAGE, document=DOCUMENT))),
    cache_control=CACHE)

USE = record({"type": string, "id": ID, "name": NAME, "input": mapping},
             cache_control=CACHE)

THINKING = record({"type": string, "thinking": string, "signature": string})

BLOCKS = {
    "user": list_of(tagged(text=TEXT, image=IMAGE, document=DOCUMENT,
                           tool_result=RESULT)),
    "assistant": list_of(tagged(
        text=TEXT, tool_use=USE, thinking=THINKING,
        redacted_thinking=record({"type": string, "data": string}))),
}


def turn(path, value):
    shape = record({"role": one_of(*BLOCKS), "content": lambda p, v: None})
    shape(path, value)
    either(string, BLOCKS[value["role"]])(at(path, "content"),
                                          value["content"])


PARALLEL = {"disable_parallel_tool_use": boolean}

REQUEST = record(
    {"model": string, "max_tokens": integer(1), "messages": list_of(turn)},
    system=either(written, list_of(tagged(text=TEXT))),
    metadata=record({}, user_id=pattern(r"(?s).{1,256}")),
    stop_sequences=list_of(string),
    stream=boolean,
    temperature=number(0, 1),
    top_p=number(0, 1),
    top_k=integer(0),
    tools=list_of(record({"name": NAME, "input_schema": schema},
                         type=one_of("custom"), description=string,
                         strict=boolean, cache_control=CACHE)),
    tool_choice=tagged(auto=record({"type": string}, **PARALLEL),
                       any=record({"type": string}, **PARALLEL),
                       none=record({"type": string}),
                       tool=record({"type": string, "name": NAME},
                                   **PARALLEL)),
    thinking=tagged(enabled=record({"type": string,
                                    "budget_tokens": integer(1024)},
                                   display=one_of("summarized", "omitted")),
                    adaptive=record({"type": string},
                                    display=one_of("summarized", "omitted")),
                    disabled=record({"type": string})),
    output_config=record({}, format=record({"type": one_of("json_schema"),
                                            "schema": mapping}),
                         effort=string),
    service_tier=one_of("auto", "standard_only"))


# Checks that span several members.

def blocks(message):
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) \
        else content


def of(message, kind):
    return [b for b in blocks(message) if b["type"] == kind]


def check_model(body, model):
    if body["max_tokens"] > model.max_output:
        refuse("max_tokens", "%d > %d, which is the maximum allowed number of"
               " output tokens" % (body["max_tokens"], model.max_output))

    given = {"temperature", "top_p", "top_k"} & set(body)
    if model.sampling == "none" and given:
        refuse(sorted(given)[0], "is not supported by this model")
    if model.sampling == "one_of" and {"temperature", "top_p"} <= given:
        refuse("", "`temperature` and `top_p` cannot both be specified for"
                   " this model. Please use only one.")

    config = body.get("output_config", {})
    if "effort" in config and config["effort"] not in model.effort:
        refuse("output_config.effort", "is not supported by this model")
    if "format" in config:
        if model.structured != "native":
            refuse("output_config.format", "is not supported by this model")
        closed("output_config.format.schema", config["format"]["schema"])

    for i, sequence in enumerate(body.get("stop_sequences", ())):
        if not sequence.strip():
            refuse("stop_sequences.%d" % i,
                   "each stop sequence must contain non-whitespace")


def check_thinking(body, model):
    thinking = body.get("thinking", {}).get("type")
    allowed = {"none": (), "budget": ("enabled", "disabled"),
               "adaptive": ("enabled", "adaptive", "disabled"),
               "adaptive_only": ("adaptive",)}[model.thinking]

    if thinking and thinking not in allowed:
        refuse("thinking.type", "\"%s\" is not supported by this model"
               % thinking)
    if thinking not in ("enabled", "adaptive"):
        return

    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        refuse("", "Thinking may not be enabled when tool_choice forces tool"
                   " use.")
    if body.get("temperature", 1) != 1:
        refuse("", "`temperature` may only be set to 1 when thinking is"
                   " enabled.")
    if body.get("top_p", 1) < 0.95 or "top_k" in body:
        refuse("", "`top_p` must be at least 0.95 and `top_k` unset when"
                   " thinking is enabled.")
    if thinking == "enabled":
        check_budget(body)


def check_budget(body):
    if body["thinking"]["budget_tokens"] >= body["max_tokens"]:
        refuse("", "`max_tokens` must be greater than"
                   " `thinking.budget_tokens`.")

    # the turns of a tool loop are one, which may have thinking at its beginning
    # only: https://platform.claude.com/docs/build-with-claude/thinking
    turns = body["messages"]
    at = len(turns) - 1
    while at > 1 and of(turns[at], "tool_result"):
        at -= 2
    at += turns[at]["role"] == "user"
    if at < len(turns) and blocks(turns[at])[0]["type"] not in (
            "thinking", "redacted_thinking"):
        refuse("messages", "Expected `thinking` or `redacted_thinking`, but"
               " found `%s`. When `thinking` is enabled, a final `assistant`"
               " message must start with a thinking block"
               % blocks(turns[at])[0]["type"])


def check_tools(body, model):
    tools = body.get("tools", [])
    names = [tool["name"] for tool in tools]
    choice = body.get("tool_choice", {})

    if len(set(names)) != len(names):
        refuse("tools", "Tool names must be unique.")
    if choice and not tools:
        refuse("tool_choice", "may only be specified while providing tools")
    if choice.get("type") == "tool" and choice["name"] not in names:
        refuse("tool_choice", "Tool '%s' not found in provided tools"
               % choice["name"])
    if choice.get("type") in ("any", "tool") and not model.forced_tool_choice:
        refuse("tool_choice", "forced tool use is not supported by this model")

    for i, tool in enumerate(tools):
        if tool.get("strict"):
            if not model.strict:
                refuse("tools.%d.strict" % i, "is not supported")
            closed("tools.%d.input_schema" % i, tool["input_schema"])


def check_cache(body):
    """In the order in which the prompt is built."""
    system = body.get("system", ())
    marked = list(body.get("tools", ()))
    marked += [] if isinstance(system, str) else system
    for message in body["messages"]:
        for block in blocks(message):
            marked.append(block)
            inside = block.get("content")
            for item in inside if isinstance(inside, list) else ():
                if "cache_control" in item:
                    refuse("messages", "cache_control is not allowed inside of"
                                       " tool_result.content")

    found = [b["cache_control"].get("ttl", "5m") for b in marked
             if "cache_control" in b]
    if len(found) > BREAKPOINTS:
        refuse("", "A maximum of %d blocks with cache_control may be provided."
               " Found %d." % (BREAKPOINTS, len(found)))
    if "5m" in found and "1h" in found[found.index("5m"):]:
        refuse("", "a ttl='1h' cache_control block must not come after a"
                   " ttl='5m' cache_control block.")


def check_turns(messages, model):
    if not messages:
        refuse("messages", "at least one message is required")
    if messages[0]["role"] != "user":
        refuse("messages", "first message must use the \"user\" role")

    waiting, used = [], set()

    for i, message in enumerate(messages):
        if i and message["role"] == messages[i - 1]["role"]:
            refuse("messages", "roles must alternate between \"user\" and"
                   " \"assistant\", but found multiple \"%s\" roles in a row"
                   % message["role"])
        check_content(i, message, i == len(messages) - 1)
        check_results(i, message, waiting)
        waiting = [b["id"] for b in of(message, "tool_use")]
        if len(set(waiting)) < len(waiting) or used & set(waiting):
            refuse("messages.%d" % i, "`tool_use` ids must be unique")
        used |= set(waiting)

    if waiting:
        refuse("messages.%d" % i, missing(waiting))
    if message["role"] == "assistant" and not model.prefill:
        refuse("", "This model does not support assistant message prefill. The"
                   " conversation must end with a user message.")


def check_content(i, message, last):
    path = "messages.%d" % i

    if not blocks(message) or message["content"] == "":
        refuse(path, "all messages must have non-empty content")
    if isinstance(message["content"], str):
        written(path + ".content", message["content"])

    for block in blocks(message):
        signed(path, block)

    end = blocks(message)[-1]
    if last and message["role"] == "assistant" and end["type"] == "text" \
       and end["text"] != end["text"].rstrip():
        refuse("messages", "final assistant content cannot end with trailing"
                           " whitespace")


def signed(path, block):
    if block["type"] == "thinking" \
       and block["signature"] != sign(block["thinking"]):
        refuse(path, "Invalid `signature` in `thinking` block")
    if block["type"] == "redacted_thinking" \
       and not block["data"].startswith("redacted-"):
        refuse(path, "Invalid `data` in `redacted_thinking` block")


def missing(ids):
    return ("`tool_use` ids were found without `tool_result` blocks"
            " immediately after: %s. Each `tool_use` block must have a corresponding"
            " `tool_result` block in the next message." % ", ".join(ids))


def check_results(i, message, waiting):
    """The results of the tools that the previous turn has used come first."""
    results = [b["tool_use_id"] for b in of(message, "tool_result")]
    leading = []
    for block in blocks(message):
        if block["type"] != "tool_result":
            break
        leading.append(block["tool_use_id"])

    for id in results:
        if id not in waiting:
            refuse("messages.%d" % i, "unexpected `tool_use_id` found in"
                   " `tool_result` blocks: %s" % id)
        if results.count(id) > 1:
            refuse("messages.%d" % i, "each tool_use must have a single"
                   " result. Found multiple `tool_result` blocks with id: %s"
                   % id)
    if set(leading) != set(waiting):
        refuse("messages.%d" % (i - 1),
               missing([id for id in waiting if id not in leading]))


def check(body, models):
    """Refuses what the API would refuse."""
    REQUEST("", body)
    if body["model"] not in models:
        raise Refused("model: " + body["model"], 404, "not_found_error")
    model = models[body["model"]]

    check_model(body, model)
    check_turns(body["messages"], model)
    check_tools(body, model)
    check_thinking(body, model)
    check_cache(body)


def check_head(request, secret):
    if request.line.split("?")[0].split(" ")[:2] != ["POST", "/v1/messages"]:
        raise Refused("Not Found", 404, "not_found_error")
    if secret and request.all("x-api-key") != [secret]:
        raise Refused("invalid x-api-key", 401, "authentication_error")
    if request.get("anthropic-version") not in VERSIONS:
        refuse("anthropic-version", "header is required")
    if request.get("content-type", "").split(";")[0] != "application/json":
        refuse("", "content-type must be application/json")


# Answers.

def sign(text):
    """The signature of thinking, which must come back unchanged."""
    digest = hashlib.sha256(b"signed " + text.encode()).digest()
    return base64.b64encode(digest * 4).decode()


def text(text):
    return {"type": "text", "text": text}


def thinking(text):
    return {"type": "thinking", "thinking": text, "signature": sign(text)}


def redacted(data="redacted-EmwKAhgBEgy3va3pzix/LafPsn4="):
    return {"type": "redacted_thinking", "data": data}


def use(name, input, id="toolu_01A09q90qw90lq917835lq9"):
    return {"type": "tool_use", "id": id, "name": name, "input": input}


USAGE = dict(message_usage(11, 7, 100, 20), service_tier="standard",
             cache_creation={"ephemeral_5m_input_tokens": 20,
                             "ephemeral_1h_input_tokens": 0})


def message(model, *content, stop=None, usage=USAGE,
            id="msg_01XFDUDYJgAACzvnpt", **more):
    """A whole answer; content are blocks."""
    called = any(b["type"] == "tool_use" for b in content)
    return {"model": model, "id": id, "type": "message", "role": "assistant",
            "content": list(content),
            "stop_reason": stop or ("tool_use" if called else "end_turn"),
            "stop_sequence": None, "stop_details": None, "usage": usage,
            **more}


EMPTY = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""},
         "tool_use": {"input": {}}}


def deltas(block, size):
    if block["type"] == "text":
        return [{"type": "text_delta", "text": p}
                for p in pieces(block["text"], size)]
    if block["type"] == "thinking":
        return [{"type": "thinking_delta", "thinking": p}
                for p in pieces(block["thinking"], size)] + [
                    {"type": "signature_delta",
                     "signature": block["signature"]}]
    if block["type"] == "tool_use":
        whole = json.dumps(block["input"], ensure_ascii=False)
        return [{"type": "input_json_delta", "partial_json": p}
                for p in [""] + pieces(whole if block["input"] else "", size)]
    return []


def stream(message, size=5):
    """The events that make the message, in the order of the real API."""
    first = dict(message, content=[], stop_reason=None, stop_details=None,
                 usage=dict(message["usage"], output_tokens=1))
    out = [{"type": "message_start", "message": first}]

    for i, block in enumerate(message["content"]):
        start = dict(block, **EMPTY.get(block["type"], {}))
        out.append({"type": "content_block_start", "index": i,
                    "content_block": start})
        out += [{"type": "ping"}] if i == 0 else []
        out += [{"type": "content_block_delta", "index": i, "delta": d}
                for d in deltas(block, size)]
        out.append({"type": "content_block_stop", "index": i})

    end = {k: message[k] for k in message if k.startswith("stop_")}
    usage = {k: v for k, v in message["usage"].items() if k.endswith("tokens")}
    out.append({"type": "message_delta", "delta": end, "usage": usage})
    out.append({"type": "message_stop"})
    return out


def wire(events):
    return [event(e["type"], e, ensure_ascii=False) for e in events]


class MessagesApi(FakeApi):

    HEADERS = [("request-id", "req_011CSHoEeqs5C35K2UUqR7Fy"),
               ("Cache-Control", "no-cache")]

    def check_head(self, request):
        check_head(request, self.secret)

    def check(self, body):
        check(body, self.models)

    def error(self, e):
        return message_error(str(e), e.type)

    def answer(self, body, *content, **more):
        return message(body["model"], *content, **more)

    def events(self, body, said):
        return wire(stream(said, self.size))


def in_turn(*answers):
    """The n-th answer is for a conversation with n tool results; the last one
    is repeated."""

    def says(body):
        n = sum(1 for m in body["messages"] if of(m, "tool_result"))
        return answers[min(n, len(answers) - 1)]

    return says
