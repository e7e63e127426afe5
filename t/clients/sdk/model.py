"""A model for clients of the responses API: what it says is written once, and
it answers in the protocol in which it is asked.

The client's prompt names a scene ("scene-tools"), for which a test gives the
answers, one after each round of tool calls; or a function of the protocol and
the body.  An answer is a list of blocks as of messages_api (text, thinking,
use), or a script.  Tools go by their names at an upstream that speaks messages
or chat; for the responses API the item is of the kind that the request
declares.
"""

import json
import re

import messages_api
import upstream
from messages_api import Refused, pieces, sign, text, thinking, use
from upstream import data, event

PROTOCOLS = {"/v1/responses": "responses", "/v1/messages": "messages",
             "/v1/chat/completions": "chat"}

SCENE = re.compile(rb"scene-([a-z0-9_.]*[a-z0-9_])")


def has(protocol, text):
    """The upstream's error body."""
    return (upstream.message_error if protocol == "messages"
            else upstream.chat_error)(text)


# What of a conversation has come to the upstream.

def turns(protocol, body):
    """(kind, value) in order: ("call", (id, arguments)), ("result", id),
    ("thought", signature), ("text", text) of the assistant."""
    return list({"responses": of_items, "messages": of_messages,
                 "chat": of_chat}[protocol](body))


def of_items(body):
    for item in body["input"] if isinstance(body["input"], list) else ():
        kind = item.get("type", "message")
        if kind.endswith("_output"):
            yield "result", item["call_id"]
        elif kind.endswith("_call"):
            if kind == "function_call":
                arguments = json.loads(item["arguments"])
            else:
                arguments = item.get("arguments") or {"input": item["input"]}
            yield "call", (item["call_id"], arguments)
        elif kind == "reasoning":
            yield "thought", item.get("encrypted_content")
        elif item.get("role") == "assistant":
            parts = item["content"]
            yield "text", parts if isinstance(parts, str) else "".join(
                part["text"] for part in parts)


def of_messages(body):
    for message in body["messages"]:
        for block in messages_api.blocks(message):
            if block["type"] == "tool_result":
                yield "result", block["tool_use_id"]
            elif block["type"] == "tool_use":
                yield "call", (block["id"], block["input"])
            elif block["type"] == "thinking":
                yield "thought", block["signature"]
            elif message["role"] == "assistant":
                yield "text", block["text"]


def of_chat(body):
    for message in body["messages"]:
        if message["role"] == "tool":
            yield "result", message["tool_call_id"]
        if message["role"] == "assistant":
            if message.get("content"):
                yield "text", message["content"]
            for call in message.get("tool_calls") or ():
                yield "call", (call["id"],
                               json.loads(call["function"]["arguments"]))


def rounds(protocol, body):
    """How many times the results of tools have come."""
    kinds = [None] + [kind for kind, _ in turns(protocol, body)]
    return sum(1 for before, now in zip(kinds, kinds[1:])
               if now == "result" and before != "result")


def tool_names(protocol, body):
    """Of the tools as other upstreams than the responses API know them."""
    if protocol == "responses":
        return list(tools_of(body))
    return [tool.get("function", tool)["name"]
            for tool in body.get("tools") or ()]


def wanted(protocol, body):
    """The schema of the answer."""
    if protocol == "messages":
        return body["output_config"]["format"]["schema"]
    if protocol == "chat":
        return body["response_format"]["json_schema"]["schema"]
    return body["text"]["format"]["schema"]


# The responses API.

def declared(tools, space=None):
    """name at other upstreams: the type of its call, and its names here."""
    out = {}
    for tool in tools:
        if tool["type"] == "namespace":
            out.update(declared(tool["tools"], tool["name"]))
        elif tool["type"] in ("function", "custom"):
            name = tool["name"]
            out["%s__%s" % (space, name) if space else name] = (
                tool["type"], dict({"name": name}, **(
                    {"namespace": space} if space else {})))
        elif tool["type"] == "tool_search":
            out["tool_search"] = ("tool_search", {})
    return out


def tools_of(body):
    more = body["input"] if isinstance(body["input"], list) else ()
    tools = list(body.get("tools") or ())
    for item in more:
        if item.get("type") in ("additional_tools", "tool_search_output"):
            tools += item["tools"]
    return declared(tools)


def item(body, block, n):
    kind = block["type"]
    if kind == "text":
        return {"id": "msg_%d" % n, "type": "message", "role": "assistant",
                "status": "completed", "content": [
                    {"type": "output_text", "text": block["text"],
                     "annotations": [], "logprobs": []}]}
    if kind == "thinking":
        asked = (body.get("reasoning") or {}).get("summary")
        sealed = "reasoning.encrypted_content" in (body.get("include") or ())
        return dict({"id": "rs_%d" % n, "type": "reasoning", "summary": [
            {"type": "summary_text", "text": block["thinking"]}]
            if asked else []}, **({"encrypted_content": block["signature"]}
                                  if sealed else {}))
    if kind == "refusal":
        return {"id": "msg_%d" % n, "type": "message", "role": "assistant",
                "status": "completed", "content": [
                    {"type": "refusal", "refusal": block["refusal"]}]}
    how, names = tools_of(body)[block["name"]]
    call = dict({"call_id": block["id"], "status": "completed"}, **names)
    if how == "custom":
        return dict(call, id="ctc_%d" % n, type="custom_tool_call",
                    input=block["input"]["input"])
    if how == "tool_search":
        return dict(call, id="tsc_%d" % n, type="tool_search_call",
                    execution="client", arguments=block["input"])
    return dict(call, id="fc_%d" % n, type="function_call",
                arguments=json.dumps(block["input"], ensure_ascii=False))


USAGE = {"input_tokens": 131, "input_tokens_details": {
             "cached_tokens": 100, "cache_write_tokens": 0},
         "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 0},
         "total_tokens": 138}


def response(body, output, status="completed"):
    done = status == "completed"
    return {"id": "resp_1", "object": "response", "created_at": 1700000000,
            "completed_at": 1700000001 if done else None,
            "status": status, "model": body["model"], "error": None,
            "incomplete_details": None,
            "instructions": body.get("instructions"), "metadata": {},
            "output": output, "parallel_tool_calls": True, "temperature": 1.0,
            "top_p": 1.0, "tool_choice": "auto",
            "tools": body.get("tools") or [], "max_output_tokens": None,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "text": body.get("text") or {"format": {"type": "text"}},
            "truncation": "disabled", "store": False,
            "usage": USAGE if done else None}


def item_events(at, item, size=5):
    where = {"item_id": item["id"], "output_index": at}
    kind = item["type"]
    yield {"type": "response.output_item.added", "output_index": at,
           "item": dict(item, **{"message": {"status": "in_progress",
                                             "content": []},
                                 "reasoning": {"summary": []},
                                 "function_call": {"arguments": "",
                                                   "status": "in_progress"},
                                 "custom_tool_call": {"input": "", "status":
                                                      "in_progress"},
                                 }.get(kind, {}))}
    if kind == "message":
        part = item["content"][0]
        name = "refusal" if part["type"] == "refusal" else "text"
        event = "response." + ("refusal" if name == "refusal"
                               else "output_text")
        where["content_index"] = 0
        yield dict(where, type="response.content_part.added",
                   part=dict(part, **{name: ""}))
        for p in pieces(part[name], size):
            yield dict(where, type=event + ".delta", delta=p, logprobs=[])
        yield dict(where, **{"type": event + ".done", name: part[name],
                             "logprobs": []})
        yield dict(where, type="response.content_part.done", part=part)
    elif kind == "reasoning":
        for i, part in enumerate(item["summary"]):
            here = dict(where, summary_index=i)
            base = "response.reasoning_summary_"
            yield dict(here, type=base + "part.added",
                       part=dict(part, text=""))
            for p in pieces(part["text"], size):
                yield dict(here, type=base + "text.delta", delta=p)
            yield dict(here, type=base + "text.done", text=part["text"])
            yield dict(here, type=base + "part.done", part=part)
    elif kind in ("function_call", "custom_tool_call"):
        name, event = {"function_call": ("arguments",
                                         "function_call_arguments"),
                       "custom_tool_call": ("input", "custom_tool_call_input"),
                       }[kind]
        for p in pieces(item[name], size):
            yield dict(where, type="response.%s.delta" % event, delta=p)
        yield dict(where, **{"type": "response.%s.done" % event,
                             name: item[name]})
    yield {"type": "response.output_item.done", "output_index": at,
           "item": item}


def response_events(body, output):
    start = response(body, [], "in_progress")
    yield {"type": "response.created", "response": start}
    yield {"type": "response.in_progress", "response": start}
    for i, one in enumerate(output):
        yield from item_events(i, one)
    yield {"type": "response.completed", "response": response(body, output)}


def responses_wire(events):
    return [event(e["type"], dict(e, sequence_number=n), ensure_ascii=False)
            for n, e in enumerate(events)]


def answer_responses(body, blocks):
    output = [item(body, b, n) for n, b in enumerate(blocks)]
    if body.get("stream"):
        return upstream.sse(responses_wire(response_events(body, output)))
    return upstream.reply_json(response(body, output))


# The chat API.

def answer_chat(body, blocks):
    text = "".join(b["text"] for b in blocks if b["type"] == "text")
    thought = "".join(b["thinking"] for b in blocks if b["type"] == "thinking")
    calls = [{"id": b["id"], "type": "function", "function": {
        "name": b["name"], "arguments": json.dumps(b["input"])}}
        for b in blocks if b["type"] == "tool_use"]
    finish = "tool_calls" if calls else "stop"
    model = body["model"]
    usage = upstream.chat_usage(131, 7, 100)
    if not body.get("stream"):
        answer = upstream.chat_completion(model, text or None, usage)
        answer["choices"][0]["finish_reason"] = finish
        answer["choices"][0]["message"].update(
            {"tool_calls": calls} if calls else {})
        return upstream.reply_json(answer)

    deltas = [{"role": "assistant", "content": None}]
    deltas += [{"reasoning_content": p} for p in pieces(thought, 5)]
    deltas += [{"content": p} for p in pieces(text, 5)]
    for i, call in enumerate(calls):
        function = call["function"]
        deltas.append({"tool_calls": [dict(call, index=i, function=dict(
            function, arguments=""))]})
        deltas += [{"tool_calls": [{"index": i, "function": {"arguments": p}}]}
                   for p in pieces(function["arguments"], 5)]
    return upstream.sse(
        [data(upstream.chat_chunk(model, d)) for d in deltas]
        + [data(upstream.chat_chunk(model, {}, finish)),
           data(upstream.chat_usage_chunk(model, usage)), upstream.DONE])


# What goes wrong.

def broken(words="Hel", error="The kettle is too hot", end="clean"):
    """A stream that begins, then has an error of the upstream or, without
    one, just ends."""

    def script(protocol, body):
        model = body["model"]
        if protocol == "messages":
            events = upstream.message_stream(model, [words])[:4]
            frame = event("error", upstream.message_error(
                error, "invalid_request_error"))
        elif protocol == "chat":
            events = upstream.chat_stream(model, [words])[:2]
            frame = data(upstream.chat_error(error))
        else:
            said = list(response_events(body, [item(body, text(words), 0)]))
            failed = response(body, [], "failed")
            failed["error"] = {"code": "invalid_prompt", "message": error}
            events = said[:5] + [{"type": "response.failed",
                                  "response": failed}]
            events = responses_wire(events)
            frame = events.pop()
        return upstream.sse(events + ([frame] if error else []) + [0.02],
                            end=end)

    return script


def endless(protocol, body):
    """Begins, and waits until the client has gone: the server's "gone" gets
    whether it did."""
    model = body["model"]
    if protocol == "messages":
        events = upstream.message_stream(model)[:4]
    elif protocol == "chat":
        events = upstream.chat_stream(model)[:2]
    else:
        events = responses_wire(response_events(
            body, [item(body, text("Hello"), 0)]))[:5]
    return upstream.sse(events + [
        lambda x: x.server.gone.append(x.wait_gone())])


def fails(status, text, **kw):
    """An answer of this status, instead of a stream."""
    return lambda protocol, body: upstream.reply_json(
        has(protocol, text), status, **kw)


def kind_of(name):
    """Scenes of several clients have three names: client, scene, protocol."""
    return name.split(".")[1] if name and name.count(".") == 2 else name


class Model:
    """A script for Upstream.  It records in asked, for each scene, the bodies
    that came, and in refused what none of the APIs would have taken."""

    def __init__(self, scenes, models=None):
        self.scenes = scenes
        self.asked = {}
        self.refused = []
        self.messages = messages_api.MessagesApi(models, None)

    def __call__(self, x):
        protocol = PROTOCOLS[x.request.target.split("?")[0]]
        found = SCENE.search(x.request.body)
        name = found.group(1).decode() if found else None
        body = x.request.json()
        self.asked.setdefault(name, []).append(body)

        said = self.scenes.get(kind_of(name), [[text("Hello")]])
        if not callable(said):
            said = said[min(rounds(protocol, body), len(said) - 1)]
        if callable(said):
            said = said(protocol, body)
        if callable(said):
            return said(x)
        if protocol == "messages":
            self.messages.says = lambda body: said
            self.answer_messages(x, body, said)
        else:
            {"responses": answer_responses,
             "chat": answer_chat}[protocol](body, said)(x)

    def answer_messages(self, x, body, said):
        try:
            messages_api.check_head(x.request, None)
            messages_api.check(messages_api.parse(x.request.body),
                               self.messages.models)
        except Refused as e:
            self.refused.append(str(e))
            upstream.reply_json(has("messages", str(e)), e.status)(x)
        else:
            message = messages_api.message(body["model"], *said)
            (upstream.sse(messages_api.wire(messages_api.stream(message)))
             if body.get("stream") else upstream.reply_json(message))(x)
