"""Messages of every kind, and streams that make them, for tests that compare
the two.

MODELGW_PARITY: the number of examples, which then differ each time.
"""

import json
import os
import re

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import message_events as m
from message_events import Raw, dumps, event
from response_events import paired
from vectors import encode

PROFILE = settings(max_examples=int(os.environ.get("MODELGW_PARITY", 150)),
                   deadline=None, derandomize="MODELGW_PARITY" not in
                   os.environ, database=None, print_blob=True,
                   suppress_health_check=list(HealthCheck))


def pairs(value):
    """Halves of a surrogate pair in two texts are joined to one character, as
    when the texts are joined as JSON."""
    if isinstance(value, dict):
        return {k: pairs(v) for k, v in value.items()}
    if isinstance(value, list):
        return [pairs(v) for v in value]
    if isinstance(value, str):
        return paired(value)
    return value


TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["", " ", "\n", "a\u2028b\u2029c\u0085", "\x00", "\x7f",
                     '"\\/\b\f\r\t', "data: [DONE]\n\n", "\ufeff",
                     "\U0001f600 тест 漢字", "\ud83d", "\ude00x", "</s>"]))

NUMBERS = st.one_of(
    st.integers().map(str), st.floats(allow_nan=False, allow_infinity=False)
    .map(repr), st.sampled_from(["1.0", "-0", "1e400", "1E+2", "0.10",
                                 "123456789012345678901234567890"]))

BLANKS = st.sampled_from(["", "", "", " ", "\n", "\t ", "\r\n"])


@st.composite
def strings(draw):
    """A JSON string in any spelling."""
    value = draw(TEXTS)
    out = json.dumps(value, ensure_ascii=draw(st.booleans())
                     or any("\ud800" <= c <= "\udfff" for c in value))
    return out.replace("/", "\\/") if draw(st.booleans()) else out


def values():
    leaf = st.one_of(NUMBERS, strings(), st.sampled_from(["true", "false",
                                                          "null"]))
    return st.recursive(leaf, lambda inner: st.one_of(
        objects(inner), arrays(inner)), max_leaves=6)


@st.composite
def objects(draw, inner):
    names = draw(st.lists(strings(), max_size=4, unique_by=json.loads))
    return "{%s}" % ",".join(
        draw(BLANKS) + name + draw(BLANKS) + ":" + draw(BLANKS) + draw(inner)
        + draw(BLANKS) for name in names)


@st.composite
def arrays(draw, inner):
    return "[%s]" % ",".join(draw(BLANKS) + v + draw(BLANKS) for v in
                             draw(st.lists(inner, max_size=3)))


INPUTS = objects(values()).map(Raw)

CITATION = {"type": "char_location", "cited_text": "x", "document_index": 0,
            "document_title": None, "start_char_index": 0,
            "end_char_index": 1}

IDS = st.text("abcXYZ0189_-", min_size=1, max_size=20)

BLOCKS = st.one_of(
    st.builds(lambda t, c: dict({"type": "text", "text": t},
                                **({"citations": [CITATION]} if c else {})),
              TEXTS, st.booleans()),
    st.builds(lambda t, s: {"type": "thinking", "thinking": t,
                            "signature": s}, TEXTS, IDS),
    st.builds(lambda d: {"type": "redacted_thinking", "data": d}, IDS),
    st.builds(lambda i, n, v: {"type": "tool_use", "id": "toolu_" + i,
                               "name": n, "input": v}, IDS, IDS, INPUTS),
    st.builds(lambda i, v: {"type": "server_tool_use", "id": "srvtoolu_" + i,
                            "name": "web_search", "input": v}, IDS, INPUTS),
    st.builds(lambda i: {"type": "web_search_tool_result",
                         "tool_use_id": "srvtoolu_" + i, "content": [
                             {"type": "web_search_result", "title": "t",
                              "url": "https://x.test/", "page_age": None,
                              "encrypted_content": "e" * 99}]}, IDS),
    st.builds(lambda v: {"type": "next_years_block", "text": "no",
                         "input": v, "id": "x", "name": "y"}, INPUTS))

COUNTS = st.one_of(st.none(), st.integers(0, 999999999))

USAGE = st.fixed_dictionaries(
    {}, optional={
        "input_tokens": COUNTS, "output_tokens": COUNTS,
        "cache_read_input_tokens": COUNTS,
        "cache_creation_input_tokens": COUNTS,
        "cache_creation": st.one_of(st.none(), st.fixed_dictionaries(
            {}, optional={"ephemeral_5m_input_tokens": COUNTS,
                          "ephemeral_1h_input_tokens": COUNTS})),
        "output_tokens_details": st.one_of(
            st.none(), st.fixed_dictionaries(
                {}, optional={"thinking_tokens": COUNTS})),
        "server_tool_use": st.one_of(st.none(), st.just(
            {"web_search_requests": 1})),
        "service_tier": st.sampled_from(["standard", None, 5])})

REASONS = st.sampled_from(
    ["end_turn", "stop_sequence", "pause_turn", "max_tokens", "tool_use",
     "model_context_window_exceeded", "refusal", "sensitive", "next_year",
     None])

DETAILS = st.sampled_from(
    [None, {"type": "refusal", "category": "cyber", "explanation": None},
     {"type": "refusal", "category": None, "explanation": "Nö \"x\""},
     {"type": "refusal"}])


@st.composite
def messages(draw):
    return {"id": "msg_" + draw(IDS), "type": "message", "role": "assistant",
            "model": "large-2026-01-01",
            "content": draw(st.lists(BLOCKS, max_size=6)),
            "stop_reason": draw(REASONS), "stop_sequence": None,
            "stop_details": draw(DETAILS), "usage": draw(USAGE)}


def pieces_of(random, text):
    """The text in some deltas, of which some are empty."""
    places = sorted(random.randrange(len(text) + 1)
                    for _ in range(random.randrange(4)))
    return [text[a:b] for a, b in zip([0] + places, places + [len(text)])]


def block_events(random, i, block):
    """The events of one block."""
    kind = block["type"]
    out = []
    if kind == "text":
        cut = random.choice([0, 0, len(block["text"]) // 2])
        out = [m.text_block(i, block["text"][:cut])]
        out += [m.text(i, t) for t in pieces_of(random, block["text"][cut:])]
        out += [m.delta(i, "citations_delta", citation=c)
                for c in block.get("citations", ())]
    elif kind == "thinking":
        out = [m.thinking_block(i)]
        out += [m.thinking(i, t)
                for t in pieces_of(random, block["thinking"])]
        out += [m.signature(i, t)
                for t in pieces_of(random, block["signature"])]
    elif kind in ("tool_use", "server_tool_use"):
        text = block["input"]
        if json.loads(text) == {} and random.random() < .5:
            parts = random.choice([[], [""]])
            text = Raw("{}")
        else:
            parts = pieces_of(random, text)
            text = None
        block["input"] = text or block["input"]
        out = [m.begin(i, dict(block, input={}))]
        out += [m.partial(i, t) for t in parts]
    else:
        text = dumps({"type": "content_block_start", "index": i,
                      "content_block": block})
        out = [encode("".join("data: %s\n" % line for line in
                              re.split("\r\n|\r|\n", text)) + "\n")]
        out += [m.text(i, "hidden"), m.partial(i, '{"hid')] \
            if kind == "next_years_block" else []
    return out + [m.end_block(i)]


def split_usage(random, usage):
    """(that of message_start, that of message_delta); the parts of what was
    written to the cache come with their sum."""
    first, last = {}, {}
    places = {name: random.choice(["first", "last", "both"])
              for name in usage}
    places["cache_creation"] = places.get("cache_creation_input_tokens",
                                          "first")
    for name, value in usage.items():
        place = places[name]
        if place != "last":
            first[name] = value
        if place != "first" or name == "output_tokens":
            last[name] = value
        if place == "both" and isinstance(value, int):
            first[name] = random.randrange(100)
    if "output_tokens" not in first and random.random() < .5 \
            and isinstance(usage.get("output_tokens"), int):
        first["output_tokens"] = 1
    return first, last


def message_to_events(random, message, reasoning):
    """A stream of the message; its blocks may be interleaved."""
    first, last = split_usage(random, message["usage"])
    lanes = [block_events(random, i, b)
             for i, b in enumerate(message["content"])]
    out = [m.start(first, id=message["id"])]
    out[0] = event("message_start", message=dict(
        message, content=[], stop_reason=None, stop_details=None,
        usage=first))

    # blocks whose deltas are joined in order are not interleaved
    mixed = random.random() < .3 and reasoning != "full" \
        and len(by_type(message, "text")) < 2 \
        and len(by_type(message, "thinking")) < 2
    # blocks begin in their order, whatever is between
    begun = 0
    while any(lanes):
        live = [n for n, lane in enumerate(lanes) if lane and n <= begun]
        n = random.choice(live) if mixed else live[0]
        if n == begun:
            begun += 1
        out.append(lanes[n].pop(0))
        if random.random() < .1:
            out.append(random.choice(
                [m.ping(), b": hello\n\n", b"event: nothing\n\n",
                 event("next_years_event", index=0, text="no")]))

    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    if message["stop_details"] is not None or random.random() < .5:
        end["stop_details"] = message["stop_details"]
    out.append(event("message_delta", delta=end, usage=last))
    return [respell(random, e) for e in out] + [m.stop()]


def respell(random, e):
    """An event, sometimes with UTF-8 instead of escapes."""
    if b"content_block_delta" not in e or random.random() < .5:
        return e
    text = e.decode()
    at = text.index("data: ") + 6
    try:
        return (text[:at] + json.dumps(json.loads(text[at:]),
                                       ensure_ascii=False)
                + "\n\n").encode()
    except UnicodeEncodeError:
        return e


def cut(random, whole):
    """The stream in pieces at random places, or byte by byte."""
    if random.random() < .2:
        return [whole[i:i + 1] for i in range(len(whole))]
    places = sorted(random.randrange(len(whole))
                    for _ in range(random.randrange(12)))
    return [p for p in (whole[a:b] for a, b in
                        zip([0] + places, places + [len(whole)])) if p]


def by_type(message, kind):
    return [b for b in message["content"] if b["type"] == kind]
