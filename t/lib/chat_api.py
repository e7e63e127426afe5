"""A chat completions API as strict as the real one, with answers like its
answers.

It is a script for upstream.Upstream, as messages_api.py is.  What only the
newest vendors take ("allowed_tools", custom tools) is refused: the gateway has
to do without.
"""

import json

from fake_api import (FakeApi, Refused, always, anything, at, bearer, boolean,
                      closed, either, integer, list_of, mapping, nullable,
                      number, one_of, pattern, pieces, record, refuse, string,
                      tagged)
from upstream import (DONE, chat_chunk, chat_completion, chat_error,
                      chat_usage_chunk, data)

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class Model:
    """What a model knows."""

    def __init__(self, limit="max_completion_tokens"):
        self.limit = limit      # max_tokens: the older name is the only one


# The shape of a request.

def filled(check):
    """A list that is not empty."""
    def run(path, value):
        list_of(check)(path, value)
        if not value:
            refuse(path, "empty array. Expected an array with minimum length"
                         " 1")

    return run


NAME = pattern("[a-zA-Z0-9_-]{1,64}")

TEXT = record({"type": string, "text": string})

PARTS = filled(tagged(
    text=TEXT,
    image_url=record({"type": string, "image_url": record(
        {"url": pattern("(?s)(data:image/|https?://).+")},
        detail=one_of("auto", "low", "high"))}),
    file=record({"type": string, "file": record(
        {}, file_data=pattern("(?s)data:.+"), filename=string,
        file_id=string)}),
    input_audio=record({"type": string, "input_audio": mapping})))

TEXTS = either(string, filled(tagged(text=TEXT)))

CALLS = filled(tagged(function=record(
    {"type": string, "id": pattern("(?s).+"),
     "function": record({"name": NAME, "arguments": string})})))

MESSAGES = {
    "system": record({"role": string, "content": TEXTS}, name=string),
    "developer": record({"role": string, "content": TEXTS}, name=string),
    "user": record({"role": string, "content": either(string, PARTS)},
                   name=string),
    "assistant": record(
        {"role": string}, name=string, refusal=nullable(string),
        content=nullable(either(string, filled(tagged(
            text=TEXT, refusal=record({"type": string,
                                       "refusal": string}))))),
        tool_calls=CALLS, reasoning_content=nullable(string)),
    "tool": record({"role": string, "tool_call_id": string,
                    "content": TEXTS}),
}


def message(path, value):
    mapping(path, value)
    one_of(*MESSAGES)(at(path, "role"), value.get("role"))
    MESSAGES[value["role"]](path, value)
    if value["role"] == "assistant" and "tool_calls" not in value \
            and value.get("content") is None and not value.get("refusal"):
        refuse(at(path, "content"), "expected a string, got null")


def parameters(path, value):
    mapping(path, value)
    if value and value.get("type") != "object":
        refuse(path, "schema must be a JSON Schema of 'type: \"object\"'")


def function(path, value):
    record({"name": NAME}, description=string, parameters=parameters,
           strict=nullable(boolean))(path, value)
    if value.get("strict"):
        closed(at(path, "parameters"), value.get("parameters"))


SCHEMA = record({"name": NAME}, description=string, schema=mapping,
                strict=nullable(boolean))

REQUEST = record(
    {"model": string, "messages": filled(message)},
    max_completion_tokens=nullable(integer(1)),
    max_tokens=nullable(integer(1)),
    temperature=nullable(number(0, 2)),
    top_p=nullable(number(0, 1)),
    stream=nullable(boolean),
    stream_options=nullable(record({}, include_usage=boolean,
                                   include_obfuscation=boolean)),
    tools=filled(tagged(function=record({"type": string,
                                         "function": function}))),
    tool_choice=either(one_of("auto", "none", "required"), tagged(
        function=record({"type": string, "function": record(
            {"name": NAME})}))),
    parallel_tool_calls=boolean,
    response_format=tagged(
        text=record({"type": string}), json_object=record({"type": string}),
        json_schema=record({"type": string, "json_schema": SCHEMA})),
    reasoning_effort=nullable(one_of(*EFFORTS)),
    verbosity=nullable(one_of("low", "medium", "high")),
    stop=nullable(either(string, list_of(string))),
    user=string, safety_identifier=nullable(string),
    metadata=nullable(mapping), store=nullable(boolean),
    n=nullable(integer(1)), seed=nullable(number(-2**63, 2**63, int)),
    logprobs=nullable(boolean), top_logprobs=nullable(number(0, 20, int)),
    logit_bias=nullable(mapping), presence_penalty=nullable(number(-2, 2)),
    frequency_penalty=nullable(number(-2, 2)), modalities=anything,
    prediction=anything, prompt_cache_key=nullable(string),
    service_tier=nullable(string))


# Checks that span several members.

def check_limits(body, model):
    if model.limit == "max_tokens":
        if "max_completion_tokens" in body:
            refuse("max_completion_tokens", "Unsupported parameter")
    elif {"max_tokens", "max_completion_tokens"} <= set(body):
        refuse("max_tokens", "Setting 'max_tokens' and"
               " 'max_completion_tokens' at the same time is not supported.")


def check_tools(body):
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    if len(set(names)) < len(names):
        refuse("tools", "names must be unique")
    for name in ("tool_choice", "parallel_tool_calls"):
        if name in body and not names:
            refuse(name, "is only allowed when 'tools' are specified")
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice["function"]["name"] not in names:
        refuse("tool_choice", "'%s' not found in 'tools'"
               % choice["function"]["name"])


def check_order(messages):
    """A message with calls is followed by the answers to all of them.  Ids are
    unique in a message; models that number the calls of each round anew have
    them again later (open-webui/open-webui#28305)."""
    waiting = []
    for i, one in enumerate(messages):
        if one["role"] == "tool":
            if one["tool_call_id"] not in waiting:
                refuse("messages.%d" % i, "messages with role 'tool' must be a"
                       " response to a preceeding message with 'tool_calls'")
            waiting.remove(one["tool_call_id"])
            continue
        if waiting:
            break
        waiting = [call["id"] for call in one.get("tool_calls", ())]
        if len(set(waiting)) < len(waiting):
            refuse("messages.%d.tool_calls" % i, "ids must be unique")
    if waiting:
        refuse("messages", "An assistant message with 'tool_calls' must be"
               " followed by tool messages responding to each 'tool_call_id'."
               " The following tool_call_ids did not have response messages:"
               " %s" % ", ".join(waiting))


def check(body, models):
    """Refuses what the API would refuse."""
    REQUEST("", body)
    if body["model"] not in models:
        raise Refused("The model `%s` does not exist" % body["model"], 404,
                      "model_not_found")
    if "stream_options" in body and not body.get("stream"):
        refuse("stream_options", "is only allowed when 'stream' is enabled")
    check_limits(body, models[body["model"]])
    check_tools(body)
    check_order(body["messages"])


# Answers: parts of a message.

def text(text):
    return {"content": text}


def thinking(text, member="reasoning_content"):
    return {member: text}


def refusal(text):
    return {"refusal": text}


def use(name, arguments, id="call_01A09q90qw90"):
    return {"tool_calls": [{
        "id": id, "type": "function", "function": {
            "name": name, "arguments": arguments if isinstance(
                arguments, str) else json.dumps(arguments)}}]}


def completion(model, *parts, finish=None, usage=None, id="chatcmpl-1"):
    """A whole answer; parts of one kind are joined."""
    message = {"role": "assistant", "content": None, "refusal": None}
    for part in parts:
        for name, value in part.items():
            message[name] = (message.get(name) or type(value)()) + value
    finish = finish or ("tool_calls" if "tool_calls" in message else "stop")
    return {**chat_completion(model, usage=usage), "id": id, "choices": [{
        "index": 0, "message": message, "logprobs": None,
        "finish_reason": finish}]}


def deltas(message, size):
    """The deltas that make a message."""
    yield {"role": "assistant", "content": "" if message["content"]
           is not None else None, "refusal": None}
    for name in ("reasoning_content", "reasoning", "content", "refusal"):
        for piece in pieces(message.get(name) or "", size):
            yield {name: piece}
    for i, call in enumerate(message.get("tool_calls", ())):
        inner = call["function"]
        yield {"tool_calls": [{"index": i, **call, "function": {
            "name": inner["name"], "arguments": ""}}]}
        for piece in pieces(inner["arguments"], size):
            yield {"tool_calls": [{"index": i, "function": {
                "arguments": piece}}]}


def stream(whole, size=5, usage=True):
    """The events that make the completion, in the order of the real API."""
    choice, = whole["choices"]
    more = {"usage": None} if usage else {}
    chunks = [chat_chunk(whole["model"], delta, **more)
              for delta in deltas(choice["message"], size)]
    chunks.append(chat_chunk(whole["model"], {}, choice["finish_reason"],
                             **more))
    if usage:
        chunks.append(chat_usage_chunk(whole["model"], whole["usage"]))
    return [data({**chunk, "id": whole["id"]}) for chunk in chunks] + [DONE]


class ChatApi(FakeApi):

    HEADERS = [("x-request-id", "req_011CSHoEeqs5C35K2UUqR7Fy")]

    def check_head(self, request):
        bearer(request, self.secret, "/v1/chat/completions")

    def check(self, body):
        check(body, self.models)

    def error(self, e):
        return chat_error(str(e), code=e.type if "_" in e.type else None)

    def answer(self, body, *parts, **more):
        return completion(body["model"], *parts, **more)

    def events(self, body, said):
        options = body.get("stream_options") or {}
        return stream(said, self.size, options.get("include_usage") is True)


def in_turn(*answers):
    """The n-th answer is for a conversation with n rounds of results; the last
    one is repeated."""

    def says(body):
        roles = [None] + [m["role"] for m in body["messages"]]
        n = sum(1 for was, now in zip(roles, roles[1:])
                if now == "tool" != was)
        return answers[min(n, len(answers) - 1)]

    return says
