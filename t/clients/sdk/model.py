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

import chat_api
import gateway
import messages_api
import responses_api
import upstream
from chat_api import ChatApi
from messages_api import MessagesApi, sign, text, thinking, use
from responses_api import ResponsesApi, seal
from upstream import (chat_error, chat_usage, data, event, message_error,
                      response_usage)

PROTOCOLS = {"/v1/responses": "responses", "/v1/messages": "messages",
             "/v1/chat/completions": "chat"}

SCENE = re.compile(rb"scene-([a-z0-9_.]*[a-z0-9_])")

HOT = "The kettle is too hot"


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


def pictures(protocol, body):
    """The base64 of all."""
    if protocol == "messages":
        return [block["source"]["data"] for message in body["messages"]
                for block in messages_api.of(message, "image")]
    urls = [part["image_url"] for one in body.get("input", body.get("messages"))
            if isinstance(one.get("content"), list)
            for part in one["content"] if "image_url" in part]
    return [(url if isinstance(url, str) else url["url"]).split(",")[1]
            for url in urls]


def wanted(protocol, body):
    """The schema of the answer."""
    if protocol == "messages":
        return body["output_config"]["format"]["schema"]
    if protocol == "chat":
        return body["response_format"]["json_schema"]["schema"]
    return body["text"]["format"]["schema"]


# What it says, in other protocols than messages.

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


def as_item(body, block):
    if block["type"] == "text":
        return responses_api.text(block["text"])
    if block["type"] == "thinking":
        return responses_api.reasoning(block["thinking"],
                                       sealed=block["thinking"])
    kind, names = tools_of(body)[block["name"]]
    if kind == "tool_search":
        return responses_api.tool_search(block["input"], block["id"])
    if kind == "custom":
        return responses_api.custom(input=block["input"]["input"],
                                    id=block["id"], **names)
    return responses_api.use(arguments=block["input"], id=block["id"],
                             **names)


def as_part(block):
    if block["type"] == "text":
        return chat_api.text(block["text"])
    if block["type"] == "thinking":
        return chat_api.thinking(block["thinking"])
    return chat_api.use(block["name"], block["input"], block["id"])


def said(protocol, body, blocks):
    """The answer, for a script of the protocol's API."""
    if protocol == "responses":
        return {"content": [as_item(body, block) for block in blocks],
                "usage": response_usage(131, 7, 100, 20)}
    if protocol == "chat":
        return {"content": [as_part(block) for block in blocks],
                "usage": chat_usage(131, 7, 100)}
    return blocks


def sealed(protocol, thought):
    """What of a thought must come back to the upstream, as turns() has it."""
    return {"responses": [("thought", seal(thought))],
            "messages": [("thought", sign(thought))], "chat": []}[protocol]


# What goes wrong: an answer that is a function of the API and the body is a
# script.

def begun(api, body, word="Hello"):
    """The events of an answer up to its first word."""
    one = said(api.protocol, body, [text(word)])
    one = dict(one) if isinstance(one, dict) else {"content": one}
    events = api.events(body, api.answer(body, *one.pop("content"), **one))
    mark = b'"%s"' % word.encode()
    return events[:1 + [mark in e for e in events].index(True)]


def fails(api, body):
    """In mid-stream, by an error of the upstream."""
    events = begun(api, body)
    if api.protocol == "responses":
        whole = responses_api.response(
            body, status="failed",
            error={"code": "invalid_prompt", "message": HOT})
        frame = event("response.failed", {
            "type": "response.failed", "sequence_number": len(events),
            "response": dict(whole, usage=None)})
    elif api.protocol == "messages":
        frame = event("error", message_error(HOT))
    else:
        frame = data(chat_error(HOT))
    return upstream.sse(events + [frame])


def breaks(api, body):
    """The connection does."""
    return upstream.sse(begun(api, body) + [0.02], end="close")


def waits(api, body):
    """Until the client has gone: the server's "gone" gets whether it has."""
    def script(x):
        try:
            upstream.sse(begun(api, body) + [lambda x: x.wait_gone()])(x)
        finally:
            x.server.gone.append(x.request.gone.is_set())

    return script


def empty(api, body):
    """An error instead of a stream."""
    error = message_error if api.protocol == "messages" else chat_error
    return upstream.reply_json(error("The kettle is empty"), 500)


def kind_of(name):
    """Scenes of several clients have three names: client, scene, protocol."""
    return name.split(".")[1] if name and name.count(".") == 2 else name


class Model:
    """A script for Upstream.  It records in asked, for each scene, the bodies
    that came; refused is what none of the APIs has taken.  names are those of
    its upstream models."""

    def __init__(self, scenes, secret, *names):
        self.scenes = scenes
        self.asked = {}
        self.apis = {}
        for api, able in ((ResponsesApi, None),
                          (MessagesApi, messages_api.Model()),
                          (ChatApi, chat_api.Model())):
            made = api({name: able for name in names}, None, secret)
            made.protocol = api.__name__[:-3].lower()
            made.says = lambda body, made=made: self.says(made, body)
            self.apis[made.protocol] = made

    @property
    def refused(self):
        return [why for api in self.apis.values() for why, _ in api.refused]

    def __call__(self, x):
        self.apis[PROTOCOLS[x.request.target.split("?")[0]]](x)

    def says(self, api, body):
        found = SCENE.search(json.dumps(body).encode())
        name = found.group(1).decode() if found else None
        self.asked.setdefault(name, []).append(body)

        answers = self.scenes.get(kind_of(name), [[text("Hello")]])
        if callable(answers):
            answers = [answers(api.protocol, body)]
        answer = answers[min(rounds(api.protocol, body), len(answers) - 1)]
        if callable(answer):
            return answer(api, body)
        return said(api.protocol, body, answer)


# For the SDKs: a gateway with a group for each protocol of upstreams.

CREDENTIALS = {"messages": "x-api-key file:$dir/a.secret"}


def credential(protocol):
    return CREDENTIALS.get(protocol,
                           "Authorization file:$dir/a.secret bearer")


GROUPS = "".join(gateway.group(
    protocol, protocol, "fam-%s-" % protocol, "http://api.vendor-a.test",
    credential(protocol), "model fam-%s-one one-1 free;" % protocol)
    for protocol in PROTOCOLS.values())

ROUNDS = [[thinking("Hm."), text("I look."),
           use("weather", {"city": "Köln"}, "call_1"),
           use("weather", {"city": "Bonn"}, "call_2")],
          [use("weather", {"city": "Ulm"}, "call_3")],
          [text("It is fine.")]]
REPORT = {"city": "Köln", "degrees": [19, 20.5]}

SCENES = dict(
    {"tools" + form: ROUNDS for form in ("", "_raw", "_helper", "_stream")},
    stored=ROUNDS, schema=[[text(json.dumps(REPORT))]],
    failed=[fails], cut=[breaks], cut_helper=[breaks], aborted=[waits],
    poor=[empty])


class Responses:
    """make() is Gateway, or a fixture that starts one."""

    def __init__(self, make):
        self.keys = [gateway.Key("key-" + protocol, protocol)
                     for protocol in PROTOCOLS.values()]
        self.gw = make(groups=GROUPS, keys_text="\n".join(
            key.line() for key in self.keys))
        self.gw.keys = self.keys
        self.up = self.gw.a
        self.up.gone = []
        self.model = Model(SCENES, self.gw.secret_a, "one-1")
        self.up.reset()
        self.up.script(self.model)
        self.faults = len(self.up.faults)

    def close(self):
        self.up.reset()
        assert self.model.refused == []
        assert self.up.faults[self.faults:] == []
