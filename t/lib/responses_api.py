"""A responses API as strict as the real one, with answers like its answers.

It is a script for upstream.Upstream, as messages_api.py is.  It answers only
what is stored nowhere: "store" must be false, and nothing of an earlier call
can be named.  Reasoning comes back sealed, and is refused if it was not sealed
here.
"""

import base64
import hashlib
import hmac
import itertools
import json

import upstream
from fake_api import (FakeApi, Refused, always, anything, at, bearer,
                      boolean, closed, either, integer, list_of, mapping,
                      nullable, number, one_of, pattern, pieces, record,
                      refuse, string, tagged)
from response_events import PREFIXES
from upstream import chat_error, event, response_usage

SECRET = b"of the vendor"
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
STATELESS = ("previous_response_id", "conversation", "prompt", "background")


# The shape of a request.

def items_of(check):
    return nullable(list_of(check))


def id_of(prefix):
    return nullable(pattern(prefix + "_[^ ]+"))


def text_up_to(size):
    return pattern("(?s).{0,%d}" % size)


CALL_ID = pattern("[^ ]{1,64}")
NAME = pattern("[a-zA-Z0-9_-]{1,128}")
STATUS = nullable(one_of("in_progress", "completed", "incomplete"))
URL = pattern("(?s)(data:|https?://).+")
MARK = {"prompt_cache_breakpoint": record({"mode": one_of("explicit")},
                                          ttl=string)}

PARTS = list_of(tagged(
    input_text=record({"type": string, "text": string}, **MARK),
    input_image=record({"type": string}, image_url=nullable(URL),
                       file_id=nullable(string), detail=one_of(
                           "auto", "low", "high", "original"), **MARK),
    input_file=record({"type": string}, file_data=string,
                      file_id=nullable(string), file_url=URL,
                      filename=string, detail=string, **MARK)))

SAID = list_of(tagged(
    output_text=record({"type": string, "text": string},
                       annotations=list_of(mapping), logprobs=list_of(
                           mapping)),
    refusal=record({"type": string, "refusal": string})))


def input_message(path, value):
    mapping(path, value)
    assistant = value.get("role") == "assistant"
    record({"role": one_of("user", "assistant", "system", "developer"),
            "content": either(string, SAID if assistant else PARTS)},
           type=one_of("message"), id=id_of("msg"), status=STATUS,
           internal_chat_message_metadata_passthrough=mapping,
           phase=nullable(one_of("commentary", "final_answer")))(path, value)


FUNCTION = record(
    {"type": string, "name": NAME}, description=nullable(string),
    parameters=nullable(mapping), strict=nullable(boolean),
    defer_loading=boolean, output_schema=nullable(mapping),
    allowed_callers=nullable(list_of(string)))

CUSTOM = record(
    {"type": string, "name": NAME}, description=string,
    format=tagged(text=record({"type": string}),
                  grammar=record({"type": string, "definition": string,
                                  "syntax": one_of("lark", "regex")})),
    defer_loading=boolean, allowed_callers=nullable(list_of(string)))

HOSTED = {
    "web_search": {}, "web_search_preview": {}, "image_generation": {},
    "file_search": {"vector_store_ids": list_of(string)},
    "code_interpreter": {"container": anything},
    "mcp": {"server_label": string}, "computer": {}, "local_shell": {},
    "shell": {}, "apply_patch": {}, "programmatic_tool_calling": {}}


def loose(**required):
    """An object with these members, and any others."""
    def check(path, value):
        mapping(path, value)
        for name, one in required.items():
            if name not in value:
                refuse(at(path, name), "Missing required parameter")
            one(at(path, name), value[name])

    return check


TOOLS = list_of(tagged(
    function=FUNCTION, custom=CUSTOM,
    namespace=record({"type": string, "name": NAME, "description": string,
                      "tools": list_of(tagged(function=FUNCTION,
                                              custom=CUSTOM))}),
    tool_search=record({"type": string}, execution=one_of(
        "server", "client"), description=nullable(string),
        parameters=nullable(mapping)),
    **{name: loose(**more) for name, more in HOSTED.items()}))


def call(prefix, **required):
    return record({"type": string, "call_id": CALL_ID, **required},
                  id=id_of(prefix), namespace=nullable(string), status=STATUS,
                  caller=nullable(mapping))


OUTPUT = record({"type": string, "call_id": CALL_ID,
                 "output": either(string, PARTS)}, id=nullable(string),
                status=STATUS, caller=nullable(mapping))

ITEMS = dict(
    message=input_message,
    reasoning=record(
        {"type": string, "summary": list_of(tagged(
            summary_text=record({"type": string, "text": string})))},
        id=id_of("rs"), content=items_of(tagged(
            reasoning_text=record({"type": string, "text": string}))),
        encrypted_content=nullable(string), status=STATUS),
    function_call=call("fc", name=NAME, arguments=string),
    custom_tool_call=call("ctc", name=NAME, input=string),
    tool_search_call=record(
        {"type": string, "arguments": mapping}, call_id=nullable(CALL_ID),
        id=id_of("tsc"), execution=one_of("server", "client"), status=STATUS),
    function_call_output=OUTPUT,
    custom_tool_call_output=OUTPUT,
    tool_search_output=record(
        {"type": string, "tools": TOOLS}, call_id=nullable(CALL_ID),
        id=nullable(string), execution=one_of("server", "client"),
        status=STATUS),
    additional_tools=record({"type": string, "role": one_of("developer"),
                             "tools": TOOLS}, id=nullable(string)),
    compaction=record({"type": string, "encrypted_content": string},
                      id=nullable(string)),
    **{name: loose() for name in (
        "web_search_call", "file_search_call", "image_generation_call",
        "code_interpreter_call", "computer_call", "computer_call_output",
        "local_shell_call", "local_shell_call_output", "shell_call",
        "shell_call_output", "apply_patch_call", "apply_patch_call_output",
        "mcp_list_tools", "mcp_approval_request", "mcp_approval_response",
        "mcp_call", "compaction_trigger")})


def item(path, value):
    mapping(path, value)
    if value.get("type") == "item_reference" \
            or not {"type", "role"} & set(value):
        refuse(path, "Item with id '%s' not found. Items are not persisted"
                     " when `store` is set to false." % value.get("id"))
    if "type" not in value:
        return input_message(path, value)
    tagged(**ITEMS)(path, value)


CHOICE = {"type": string, "name": NAME}

FORMAT = tagged(
    text=record({"type": string}), json_object=record({"type": string}),
    json_schema=record({"type": string, "schema": mapping,
                        "name": pattern("[a-zA-Z0-9_-]{1,64}")},
                       description=string, strict=nullable(boolean)))

SUMMARY = nullable(one_of("auto", "concise", "detailed"))

REQUEST = record(
    {"model": string, "input": either(string, list_of(item)),
     "store": boolean},
    instructions=nullable(string),
    max_output_tokens=nullable(integer(16)),
    max_tool_calls=nullable(integer(1)),
    temperature=nullable(number(0, 2)),
    top_p=nullable(number(0, 1)),
    top_logprobs=nullable(number(0, 20, int)),
    stream=nullable(boolean),
    stream_options=nullable(record({}, include_obfuscation=boolean)),
    tools=nullable(TOOLS),
    tool_choice=nullable(either(one_of("auto", "none", "required"), tagged(
        function=record(CHOICE, namespace=string),
        custom=record(CHOICE, namespace=string),
        allowed_tools=record({"type": string, "tools": list_of(mapping),
                              "mode": one_of("auto", "required")}),
        **{name: loose() for name in HOSTED}))),
    parallel_tool_calls=nullable(boolean),
    reasoning=nullable(record(
        {}, effort=nullable(one_of(*EFFORTS)), summary=SUMMARY,
        generate_summary=SUMMARY, context=nullable(string), mode=string)),
    text=nullable(record({}, format=FORMAT, verbosity=nullable(
        one_of("low", "medium", "high")))),
    include=items_of(one_of(
        "reasoning.encrypted_content", "web_search_call.action.sources",
        "code_interpreter_call.outputs", "file_search_call.results",
        "computer_call_output.output.image_url", "message.output_text.logprobs",
        "message.input_image.image_url")),
    metadata=nullable(mapping),
    truncation=nullable(one_of("auto", "disabled")),
    user=string, safety_identifier=nullable(text_up_to(64)),
    prompt_cache_key=nullable(text_up_to(64)),
    prompt_cache_retention=nullable(one_of("in_memory", "24h")),
    prompt_cache_options=mapping, moderation=nullable(mapping),
    service_tier=nullable(string), context_management=nullable(list_of(
        mapping)), client_metadata=nullable(mapping),
    **{name: anything for name in STATELESS})


# Checks that span several members.

def check_state(body):
    if body["store"] is not False:
        refuse("store", "this organisation stores nothing")
    for name in STATELESS:
        if body.get(name):
            refuse(name, "Zero Data Retention is enabled")


OUTPUTS = {"function_call": "function_call_output",
           "custom_tool_call": "custom_tool_call_output",
           "tool_search_call": "tool_search_output"}


def check_calls(items):
    """Each call has one output after it, each output a call."""
    waiting, calls = {}, set()
    for i, one in enumerate(items):
        kind, id = one.get("type"), one.get("call_id")
        if id is None:
            continue
        if kind in OUTPUTS:
            if id in calls:
                refuse("input.%d.call_id" % i, "Duplicate call_id %s" % id)
            calls.add(id)
            waiting[id] = OUTPUTS[kind]
        elif kind in OUTPUTS.values() and waiting.pop(id, None) != kind:
            refuse("input", "No tool call found for %s with call_id %s."
                   % (kind, id))
    if waiting:
        refuse("input", "No tool output found for function call %s."
               % min(waiting))


def seal(text):
    """encrypted_content for a text."""
    data = base64.urlsafe_b64encode(text.encode()).decode()
    return "gAAAA%s.%s" % (data, hmac.new(SECRET, data.encode(),
                                          hashlib.sha256).hexdigest())


def check_seals(items):
    for i, one in enumerate(items):
        if one.get("type") not in ("reasoning", "compaction"):
            continue
        content = one.get("encrypted_content")
        if not content:
            refuse("input.%d" % i, "Item '%s' of type 'reasoning' not found:"
                   " it was not persisted" % one.get("id"))
        data, _, _ = content.removeprefix("gAAAA").partition(".")
        try:
            fine = seal(base64.urlsafe_b64decode(data).decode()) == content
        except ValueError:
            fine = False
        if not fine:
            raise Refused("The encrypted content %s could not be verified."
                          % content[:8], type="invalid_encrypted_content")


def all_tools(body, items):
    """(namespace, name, tool) of each tool, wherever it is."""
    for tools in [body.get("tools")] + [i.get("tools") for i in items
                                        if i.get("type") != "mcp_list_tools"]:
        for tool in tools or ():
            if tool["type"] == "namespace":
                for inner in tool["tools"]:
                    yield tool["name"], inner["name"], inner
            else:
                yield None, tool.get("name", tool["type"]), tool


def check_tools(body, items):
    tools, known = list(all_tools(body, items)), {}
    for space, name, tool in tools:
        if known.setdefault((space, name), tool) != tool:
            refuse("tools", "Duplicate tool %s" % name)
        if tool.get("strict"):
            closed("tools", tool.get("parameters"))

    choice = body.get("tool_choice")
    if choice == "required" and not tools:
        refuse("tool_choice", "'required' needs tools")
    for one in choice.get("tools", [choice]) if isinstance(choice, dict) \
            else ():
        name = one.get("name", one.get("type"))
        if (one.get("namespace"), name) not in known:
            refuse("tool_choice", "Tool choice '%s' not found in 'tools'"
                   " parameter." % name)


def check_parts(items):
    for i, one in enumerate(items):
        for member in ("content", "output"):
            for part in one.get(member) or ():
                if not isinstance(part, dict):
                    break
                given = {"file_id", "image_url", "file_data", "file_url"} & {
                    name for name, value in part.items() if value}
                if part["type"] in ("input_image", "input_file") \
                        and len(given) != 1:
                    refuse("input.%d.%s" % (i, member), "%s needs one of"
                           " image_url, file_data, file_url, file_id"
                           % part["type"])


def check(body, models):
    """Refuses what the API would refuse."""
    REQUEST("", body)
    if body["model"] not in models:
        raise Refused("The requested model '%s' does not exist."
                      % body["model"], 404, "model_not_found")
    if "stream_options" in body and not body.get("stream"):
        refuse("stream_options", "only with stream")
    items = body["input"] if isinstance(body["input"], list) else []
    check_state(body)
    check_calls(items)
    check_seals(items)
    check_parts(items)
    check_tools(body, items)


# Answers: items, whose ids come with the answer.

def text(text):
    return {"type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text,
                         "annotations": [], "logprobs": []}]}


def refusal(text):
    return {"type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "refusal", "refusal": text}]}


def reasoning(*summary, sealed="thought"):
    return {"type": "reasoning", "encrypted_content": seal(sealed),
            "summary": [{"type": "summary_text", "text": t}
                        for t in summary]}


def use(name, arguments, id="call_01A09q90qw90", **more):
    """A function_call; namespace= may be given."""
    return {"type": "function_call", "status": "completed", "call_id": id,
            "name": name, "arguments": arguments if isinstance(
                arguments, str) else json.dumps(arguments), **more}


def custom(name, input, id="call_02B09q90qw90", **more):
    return {"type": "custom_tool_call", "status": "completed", "call_id": id,
            "name": name, "input": input, **more}


def tool_search(arguments, id="call_03C09q90qw90"):
    return {"type": "tool_search_call", "status": "completed", "call_id": id,
            "execution": "client", "arguments": arguments}


NUMBERS = itertools.count(1)


def wanted(item, body):
    """An item with what the call asks for."""
    item = {"id": "%s%016d" % (PREFIXES[item["type"]], next(NUMBERS)), **item}
    if item["type"] == "reasoning":
        if "reasoning.encrypted_content" not in (body.get("include") or ()):
            item["encrypted_content"] = None
        asked = body.get("reasoning") or {}
        if not (asked.get("summary") or asked.get("generate_summary")):
            item["summary"] = []
    return item


def response(body, *items, status="completed", usage=None, reason=None,
             **more):
    """A whole answer; a reason makes it incomplete."""
    text = body.get("text") or {}
    return {**upstream.response(body["model"]),
            "id": "resp_%016d" % next(NUMBERS),
            "status": "incomplete" if reason else status,
            "incomplete_details": {"reason": reason} if reason else None,
            "output": [wanted(item, body) for item in items],
            "usage": usage or response_usage(150, 17, 100, 20),
            "instructions": body.get("instructions"),
            "tools": body.get("tools") or [],
            "tool_choice": body.get("tool_choice") or "auto",
            "metadata": body.get("metadata") or {},
            "max_output_tokens": body.get("max_output_tokens"),
            "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
            "previous_response_id": None, "truncation": "disabled",
            "reasoning": body.get("reasoning") or {
                "effort": None, "summary": None},
            "text": {"format": text.get("format") or {"type": "text"},
                     "verbosity": text.get("verbosity") or "medium"}, **more}


TEXT_EVENTS = {"output_text": ("output_text", "text"),
               "refusal": ("refusal", "refusal")}


def part_events(part, i, size):
    kind, member = TEXT_EVENTS[part["type"]]
    here = {"content_index": i}
    more = {"logprobs": []} if kind == "output_text" else {}
    yield "content_part.added", {**here, "part": {**part, member: ""}}
    for piece in pieces(part[member], size):
        yield kind + ".delta", {**here, "delta": piece, **more}
    yield kind + ".done", {**here, member: part[member], **more}
    yield "content_part.done", {**here, "part": part}


def summary_events(part, i, size):
    here = {"summary_index": i}
    yield "reasoning_summary_part.added", {**here, "part": {**part,
                                                            "text": ""}}
    for piece in pieces(part["text"], size):
        yield "reasoning_summary_text.delta", {**here, "delta": piece}
    yield "reasoning_summary_text.done", {**here, "text": part["text"]}
    yield "reasoning_summary_part.done", {**here, "part": part}


CALL_EVENTS = {"function_call": ("function_call_arguments", "arguments"),
               "custom_tool_call": ("custom_tool_call_input", "input")}


def item_events(item, size):
    """The events between added and done."""
    if item["type"] == "message":
        for i, part in enumerate(item["content"]):
            yield from part_events(part, i, size)
    elif item["type"] == "reasoning":
        for i, part in enumerate(item["summary"]):
            yield from summary_events(part, i, size)
    elif item["type"] in CALL_EVENTS:
        kind, member = CALL_EVENTS[item["type"]]
        for piece in pieces(item[member], size):
            yield kind + ".delta", {"delta": piece}
        more = {"name": item["name"]} if member == "arguments" else {}
        yield kind + ".done", {member: item[member], **more}


EMPTY = {"content": [], "summary": [], "input": ""}


def stream(response, size=5):
    """The events that make the response, in the order of the real API."""
    first = {**response, "status": "in_progress", "output": [],
             "usage": None, "error": None, "incomplete_details": None}
    out = [("created", {"response": first}),
           ("in_progress", {"response": first})]
    for i, item in enumerate(response["output"]):
        new = {k: EMPTY.get(k, v) for k, v in item.items()}
        if "status" in new:
            new["status"] = "in_progress"
        if "arguments" in new:
            new["arguments"] = "" if isinstance(new["arguments"], str) else {}
        out.append(("output_item.added", {"output_index": i, "item": new}))
        out += [(name, {"item_id": item["id"], "output_index": i, **more})
                for name, more in item_events(item, size)]
        out.append(("output_item.done", {"output_index": i, "item": item}))
    return out + [(response["status"], {"response": response})]


def wire(events):
    return [event("response." + name, {"type": "response." + name,
                                       "sequence_number": n, **more},
                  ensure_ascii=False) for n, (name, more) in enumerate(events)]


def failing(code, message, *items):
    """An answer that begins with the items and fails: for says()."""
    def says(body):
        whole = response(body, *items, status="failed", usage=None,
                         error={"code": code, "message": message})
        whole["usage"] = None
        if not body.get("stream"):
            return upstream.reply_json(chat_error(
                message, "server_error", code), 500)
        begin = stream(whole)[:-1]
        return upstream.sse(wire(begin + [("failed", {
            "response": {**whole, "output": []}})]))

    return says


class ResponsesApi(FakeApi):

    HEADERS = [("x-request-id", "req_011CSHoEeqs5C35K2UUqR7Fy")]

    def check_head(self, request):
        bearer(request, self.secret, "/v1/responses")

    def check(self, body):
        check(body, self.models)

    def error(self, e):
        return chat_error(str(e), code=e.type if "_" in e.type else None)

    def answer(self, body, *items, **more):
        return response(body, *items, **more)

    def events(self, body, said):
        return wire(stream(said, self.size))


def rounds(body):
    """How many rounds of outputs the conversation has."""
    items = body["input"] if isinstance(body["input"], list) else []
    kinds = [i.get("type", "message").endswith("_output") for i in items]
    return sum(1 for was, now in zip([False] + kinds, kinds)
               if now and not was)


def in_turn(*answers):
    """The n-th answer is for a conversation with n rounds of outputs; the last
    one is repeated.  An answer may be a function of the body."""

    def says(body):
        answer = answers[min(rounds(body), len(answers) - 1)]
        return answer(body) if callable(answer) else answer

    return says
