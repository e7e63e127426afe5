"""Answers of upstreams whose model calls a tool, as scripts and as events; the
plain answers are in t/lib/upstream.py."""

import json

import upstream
from upstream import data, event

ARGUMENTS = {"city": "Köln", "unit": "°C"}


def pieces(obj, size=7):
    text = json.dumps(obj, ensure_ascii=False)
    return [text[i:i + size] for i in range(0, len(text), size)]


def chat_call(name, arguments=ARGUMENTS, id="call_1"):
    return {"id": id, "type": "function",
            "function": {"name": name,
                         "arguments": json.dumps(arguments)}}


def chat_tool(model, name, arguments=ARGUMENTS):
    answer = upstream.chat_completion(model)
    answer["choices"][0].update(
        finish_reason="tool_calls",
        message={"role": "assistant", "content": None,
                 "tool_calls": [chat_call(name, arguments)]})
    return answer


def chat_tool_stream(model, name, arguments=ARGUMENTS, usage=True):
    def call(**function):
        return {"tool_calls": [dict({"index": 0, "function": function},
                                    **({"id": "call_1", "type": "function"}
                                       if "name" in function else {}))]}

    out = [data(upstream.chat_chunk(model, {"role": "assistant",
                                            "content": None})),
           data(upstream.chat_chunk(model, call(name=name, arguments="")))]
    out += [data(upstream.chat_chunk(model, call(arguments=p)))
            for p in pieces(arguments)]
    out.append(data(upstream.chat_chunk(model, {}, "tool_calls")))
    if usage:
        out.append(data(upstream.chat_usage_chunk(model)))
    return out + [upstream.DONE]


def message_tool(model, name, input=ARGUMENTS, id="toolu_1"):
    return dict(upstream.message(model), stop_reason="tool_use",
                content=[{"type": "text", "text": "Let me see."},
                         {"type": "tool_use", "id": id, "name": name,
                          "input": input}])


def message_tool_stream(model, name, input=ARGUMENTS, id="toolu_1"):
    """A usual stream with another block between start and end."""
    usual = upstream.message_stream(model)
    block = {"type": "tool_use", "id": id, "name": name, "input": {}}
    out = [usual[0],
           event("content_block_start", {"type": "content_block_start",
                                         "index": 0,
                                         "content_block": block})]
    out += [event("content_block_delta",
                  {"type": "content_block_delta", "index": 0,
                   "delta": {"type": "input_json_delta",
                             "partial_json": p}})
            for p in pieces(input)]
    return out + [usual[-3],
                  usual[-2].replace(b'"end_turn"', b'"tool_use"'),
                  usual[-1]]


def has_result(body):
    """A message carries a tool's result, in either protocol."""
    return any(m["role"] == "tool" or isinstance(m["content"], list)
               and any(part.get("type") == "tool_result"
                       for part in m["content"])
               for m in body["messages"])


def tools(name, arguments=ARGUMENTS, text="It is fine."):
    """A script: first the tool call, with its result the text."""

    def run(x):
        body = x.request.json()
        model = body["model"]
        chat = x.request.target.endswith("/chat/completions")
        stream = body.get("stream")

        if has_result(body):
            events = upstream.chat_stream if chat else upstream.message_stream
            whole = upstream.chat_completion if chat else upstream.message
            script = (upstream.sse(events(model, [text])) if stream
                      else upstream.reply_json(whole(model, text)))
        else:
            events = chat_tool_stream if chat else message_tool_stream
            whole = chat_tool if chat else message_tool
            script = (upstream.sse(events(model, name, arguments)) if stream
                      else upstream.reply_json(whole(model, name, arguments)))
        script(x)

    return run


def first_of(*scripts):
    """One script per request, in this order; the last one is repeated.  As
    Upstream.script(), for use inside a script."""
    left = list(scripts)

    def run(x):
        (left.pop(0) if len(left) > 1 else left[0])(x)

    return run
