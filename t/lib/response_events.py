"""Responses and their streams as clients read them, all clients at once.

fold() returns the response of a stream's last event.  What any of the SDKs and
Codex would stumble over is Broken: numbers, order and indices of the events,
deltas that do not make what "done" has, an output that differs from the items,
missing members, errors that only some of them understand.
"""

import json

REQUIRED = ("id", "object", "created_at", "status", "error",
            "incomplete_details", "instructions", "model", "tools", "output",
            "parallel_tool_calls", "metadata", "tool_choice", "temperature",
            "top_p", "usage", "store")

ERRORS = ("server_error", "rate_limit_exceeded", "invalid_prompt",
          "context_length_exceeded", "insufficient_quota")

# members of the items that clients cannot do without

ITEMS = {"message": ("id", "role", "status", "content"),
         "reasoning": ("id", "summary"),
         "function_call": ("id", "status", "call_id", "name", "arguments"),
         "custom_tool_call": ("id", "status", "call_id", "name", "input"),
         "tool_search_call": ("id", "status", "call_id", "execution",
                              "arguments")}

PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_",
            "custom_tool_call": "ctc_", "tool_search_call": "tsc_"}

TEXTS = {"output_text": "text", "refusal": "refusal",
         "summary_text": "text"}            # part: the member with its text

CALLS = {"function_call": ("arguments", "function_call_arguments"),
         "custom_tool_call": ("input", "custom_tool_call_input")}


class Broken(AssertionError):
    """Some client would stumble over it."""


def demand(fine, text, *args):
    if not fine:
        raise Broken(text % args)


def paired(text):
    """As when its pieces are joined as JSON: halves of a surrogate pair are one
    character."""
    return text.encode("utf-16", "surrogatepass").decode(
        "utf-16", "surrogatepass")


def integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


def check_usage(usage):
    demand(isinstance(usage, dict), "usage is %r", usage)
    cached, thought = [usage.get(name) or {} for name in (
        "input_tokens_details", "output_tokens_details")]
    for value in (usage.get("input_tokens"), usage.get("output_tokens"),
                  usage.get("total_tokens"), cached.get("cached_tokens"),
                  thought.get("reasoning_tokens")):
        demand(integer(value), "a number is missing in usage: %r", usage)
    demand(usage["total_tokens"]
           == usage["input_tokens"] + usage["output_tokens"],
           "the total is wrong: %r", usage)


def check_item(item):
    kind = item.get("type")
    demand(kind in ITEMS, "an item of type %r", kind)
    for name in ITEMS[kind]:
        demand(item.get(name) is not None, "%s without %s", kind, name)
    demand(item["id"].startswith(PREFIXES[kind]), "%s has the id %s", kind,
           item["id"])
    for part in item.get("content", ()) if kind == "message" \
            else item.get("summary", ()):
        demand(part.get("type") in TEXTS
               and isinstance(part.get(TEXTS[part["type"]]), str),
               "a part of %s: %r", kind, part)


def check_response(response, status=None):
    """A response object, whole or in an event."""
    for name in REQUIRED:
        demand(name in response, "the response has no %s", name)
    got = response["status"]
    demand(response["object"] == "response", "object is not \"response\"")
    demand(status in (None, got), "status is %s, not %s", got, status)
    demand(isinstance(response["created_at"], int), "created_at is %r",
           response["created_at"])
    demand(isinstance(response["tools"], list)
           and isinstance(response["parallel_tool_calls"], bool)
           and response["tool_choice"] is not None
           and response["model"], "what clients parse: %r", response)

    ids = [item.get("id") for item in response["output"]]
    demand(len(set(ids)) == len(ids), "an id twice: %s", ids)
    for item in response["output"]:
        check_item(item)
        demand(item.get("status", "completed") == "completed"
               or item["type"] == "message" and got == "incomplete",
               "a cut %s was handed out", item["type"])

    if got == "failed":
        error = response["error"]
        demand(error and error.get("code") in ERRORS
               and error.get("message"), "error is %r", error)
        return
    demand(response["error"] is None, "an error, but status %s", got)
    demand((response["incomplete_details"] or {}).get("reason") in (
        ("max_output_tokens", "content_filter") if got == "incomplete"
        else (None,)), "incomplete_details: %r",
        response["incomplete_details"])
    if got != "in_progress":
        check_usage(response["usage"])


def check_error(event):
    """Flat for some SDKs, nested for others."""
    nested = event.get("error") or {}
    demand(event.get("code") and event.get("message") and "param" in event,
           "error without flat members: %r", event)
    demand(nested.get("type") and "param" in nested
           and (nested.get("code"), nested.get("message"))
           == (event["code"], event["message"]),
           "error without nested members: %r", event)


class Reader:
    """Takes the events one by one; at most one item is open."""

    def __init__(self):
        self.number = 0
        self.first = None       # the response as it was created
        self.last = None        # the response of the terminal event
        self.over = False
        self.done = []          # items
        self.index = -1         # of the open or the last item
        self.item = None        # the open one
        self.parts = []         # of the open item: [type, text, state]
        self.text = []          # of an open call: [text, state]

    def feed(self, event):
        kind = event["type"]
        demand(event.get("sequence_number") == self.number,
               "%s has number %r, not %d", kind,
               event.get("sequence_number"), self.number)
        demand(not self.over or kind == "error" and self.last
               and self.last["status"] == "failed" and self.over is True,
               "%s after the end", kind)
        demand(kind == "response.created" or self.first, "%s comes first",
               kind)
        demand(self.number != 1 or kind in ("response.in_progress",
                                            "response.failed"),
               "%s comes second", kind)
        self.number += 1

        if kind == "keepalive":
            return
        if kind == "error":
            self.over = "error"
            return check_error(event)
        demand(kind.startswith("response."), "an event %s", kind)
        if "response" in event:
            return self.whole(kind[9:], event["response"])
        take = getattr(self, "on_" + kind[9:].replace(".", "_"), None)
        demand(take, "an event %s", kind)
        take(event)

    def whole(self, name, response):
        status = {"created": "in_progress"}.get(name, name)
        check_response(response, status)
        if name == "created":
            demand(self.first is None, "created twice")
            self.first = response
        for same in ("id", "model", "created_at"):
            demand(response[same] == self.first[same], "%s has changed",
                   same)
        if status == "in_progress":
            demand(response["output"] == [] and response["usage"] is None
                   and self.index < 0, "%s is not the beginning", name)
            return

        self.over, self.last = True, response
        if name == "failed":
            return
        demand(self.item is None or name == "incomplete"
               and self.item["type"].endswith("_call"),
               "the item is still open")
        demand(response["output"] == self.done,
               "the output is %r, the items were %r", response["output"],
               self.done)

    # items

    def on_output_item_added(self, e):
        demand(self.item is None, "an item while another one is open")
        self.index += 1
        demand(e["output_index"] == self.index, "output_index %r, not %d",
               e["output_index"], self.index)
        item = e["item"]
        check_item(item)
        demand(item.get("status", "in_progress") == "in_progress",
               "a new item is %s", item.get("status"))
        demand(item["id"] not in [i["id"] for i in self.done],
               "an id twice: %s", item["id"])
        for name in ("content", "summary", "arguments", "input"):
            demand(not item.get(name), "a new item has %s", name)
        self.item, self.parts, self.text = item, [], ["", "new"]

    def mine(self, e):
        demand(self.item is not None, "%s without an item", e["type"])
        demand(e["output_index"] == self.index, "%s has output_index %r",
               e["type"], e["output_index"])
        demand(e["item_id"] == self.item["id"], "%s has item_id %s",
               e["type"], e["item_id"])

    def on_output_item_done(self, e):
        item = e["item"]
        self.mine(dict(e, item_id=item.get("id")))
        check_item(item)
        for name in ("type", "call_id", "name", "namespace", "role"):
            demand(item.get(name) == self.item.get(name), "%s was %r, is %r",
                   name, self.item.get(name), item.get(name))
        demand(item.get("status") != "in_progress", "done, but in_progress")

        kind = item["type"]
        if kind in CALLS:
            demand(self.text == [item[CALLS[kind][0]], "done"],
                   "%s is %r, its events had %r", kind, item, self.text)
        else:
            parts = item.get("content" if kind == "message" else "summary")
            demand([(p["type"], p[TEXTS[p["type"]]], "closed")
                    for p in parts or ()] == [tuple(p) for p in self.parts],
                   "%s is %r, its events had %r", kind, item, self.parts)
        self.done.append(item)
        self.item = None

    # parts of messages and summaries

    def part(self, e, index, state, after):
        """The part of an event, which must be in the one state."""
        self.mine(e)
        at = e[index]
        demand(at == len(self.parts) - 1 and self.parts[at][2] == state,
               "%s of part %r, of which the parts are %r", e["type"], at,
               self.parts)
        self.parts[at][2] = after
        return self.parts[at]

    def part_added(self, e, index, kinds):
        self.mine(e)
        kind = e["part"].get("type")
        demand(kind in kinds and e["part"].get(TEXTS[kind]) == "",
               "a new part is %r", e["part"])
        demand(e[index] == len(self.parts)
               and all(p[2] == "closed" for p in self.parts),
               "part %r of %r", e[index], self.parts)
        self.parts.append([kind, "", "open"])

    def part_done(self, e, index):
        part = self.part(e, index, "done", "closed")
        demand([e["part"].get("type"), e["part"].get(TEXTS[part[0]])]
               == part[:2], "the part is %r, its deltas were %r", e["part"],
               part)

    def delta(self, e, index, kind):
        part = self.part(e, index, "open", "open")
        demand(part[0] == kind, "%s in a part %s", e["type"], part[0])
        part[1] += e["delta"]

    def text_done(self, e, index, kind):
        part = self.part(e, index, "open", "done")
        part[1] = paired(part[1])
        demand(part[:2] == [kind, e[TEXTS[kind]]],
               "%r is done, its deltas were %r", e, part)

    def on_content_part_added(self, e):
        demand(self.item and self.item["type"] == "message", "no message")
        self.part_added(e, "content_index", ("output_text", "refusal"))

    def on_content_part_done(self, e):
        self.part_done(e, "content_index")

    def on_output_text_delta(self, e):
        self.delta(e, "content_index", "output_text")

    def on_output_text_done(self, e):
        self.text_done(e, "content_index", "output_text")

    def on_refusal_delta(self, e):
        self.delta(e, "content_index", "refusal")

    def on_refusal_done(self, e):
        self.text_done(e, "content_index", "refusal")

    def on_reasoning_summary_part_added(self, e):
        demand(self.item and self.item["type"] == "reasoning", "no reasoning")
        self.part_added(e, "summary_index", ("summary_text",))

    def on_reasoning_summary_part_done(self, e):
        self.part_done(e, "summary_index")

    def on_reasoning_summary_text_delta(self, e):
        self.delta(e, "summary_index", "summary_text")

    def on_reasoning_summary_text_done(self, e):
        self.text_done(e, "summary_index", "summary_text")

    # calls

    def call(self, e):
        self.mine(e)
        member, prefix = CALLS.get(self.item["type"], ("", "no call"))
        demand(e["type"].startswith("response.%s." % prefix), "%s of a %s",
               e["type"], self.item["type"])
        demand(self.text[1] == "new", "%s after done", e["type"])
        if e["type"].endswith(".delta"):
            self.text[0] += e["delta"]
            return
        demand(e[member] == self.text[0], "%s is %r, its deltas were %r",
               e["type"], e[member], self.text[0])
        demand(e.get("name", self.item["name"]) == self.item["name"],
               "the name has changed: %r", e)
        self.text[1] = "done"

    on_function_call_arguments_delta = on_function_call_arguments_done = call
    on_custom_tool_call_input_delta = on_custom_tool_call_input_done = call


def events(body):
    """The events of a stream, as (event line, document)."""
    text = body.decode() if isinstance(body, bytes) else body
    demand("\r" not in text and (not text or text.endswith("\n\n")),
           "an event does not end with a blank line")
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n")
                 if line and not line.startswith(":")]
        if lines:
            demand([line.partition(": ")[0] for line in lines]
                   == ["event", "data"], "an event is %r", block)
            yield lines[0][7:], json.loads(lines[1][6:])


def fold(body):
    """The response of the last event; that of an error ends as failed."""
    reader = Reader()
    for name, event in events(body):
        demand(name == event.get("type"), "event: %s, but type %r", name,
               event.get("type"))
        try:
            reader.feed(event)
        except (AttributeError, KeyError, TypeError) as e:
            raise Broken("%s: %r" % (name, e)) from e
    demand(reader.last, "no terminal event")
    demand(reader.last["status"] != "failed" or reader.over == "error",
           "failed without an error event")
    return reader.last


def whole(body):
    """The response of a whole answer."""
    response = json.loads(body)
    try:
        check_response(response)
    except (AttributeError, KeyError, TypeError) as e:
        raise Broken("the response: %r" % e) from e
    demand(response["status"] in ("completed", "incomplete"), "status is %s",
           response["status"])
    return response
