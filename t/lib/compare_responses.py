"""How answers and streams of /v1/responses compare: index.json of
t/vectors-responses, "compare".

What is normal() compares with same(), once bind() has replaced placeholders.
"""

import base64
import binascii
import json

import response_events
from compare import Failed, demand, named, parsed, same, short

# members of response objects that compare whatever the vector gives

EXACT = ("output", "usage")
SEAL = "mgw1."


def unsealed(text):
    """The blocks that are sealed in encrypted_content; what is not sealed by
    the gateway stays as it is."""
    if not isinstance(text, str) or not text.startswith(SEAL):
        return text
    data = text[len(SEAL):]
    try:
        return {"sealed": json.loads(base64.b64decode(
            data + "=" * (-len(data) % 4), b"-_", validate=True))}
    except (ValueError, binascii.Error):
        return text


def sealed(blocks):
    """encrypted_content of thinking blocks, a list or its JSON."""
    text = blocks if isinstance(blocks, str) else json.dumps(
        blocks, ensure_ascii=False, separators=(",", ":"))
    return SEAL + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def normal(value, exact=False):
    """exact: arguments compare as text, not as JSON."""
    if isinstance(value, list):
        return [normal(v, exact) for v in value]
    if not isinstance(value, dict):
        return value
    out = {}
    for name, member in value.items():
        if name == "encrypted_content":
            out[name] = unsealed(member)
        elif name == "arguments" and isinstance(member, str) and not exact:
            out[name] = parsed(member)
        elif name not in ("logprobs", "annotations") or member:
            out[name] = normal(member, exact)
    return out


def bind(want, got, names):
    """What is wanted, with the placeholders that match what is there replaced
    by it.  names: placeholder -> the string for which it stands."""
    if isinstance(want, dict) and isinstance(got, dict):
        return {k: bind(v, got.get(k), names) for k, v in want.items()}
    if isinstance(want, list) and isinstance(got, list):
        return [bind(w, g, names) for w, g in zip(want, got)] \
            + want[len(got):]
    if want == "[raw]" or want == "[message]" and got \
            and isinstance(got, str):
        return got
    if isinstance(want, str) and want.startswith("[id:"):
        if isinstance(got, str) and got and " " not in got \
                and got not in names.values():
            names.setdefault(want, got)
        return names.get(want, want)
    return want


def fits(want, got, names, exact=False, at=""):
    """None, or how what is got differs; a response object, and an event's,
    may have more members than are wanted."""
    want, got = normal(want, exact), normal(got, exact)
    if isinstance(want.get("response"), dict) \
            and isinstance(got.get("response"), dict):
        wrong = fits(want.pop("response"), got.pop("response"), names, exact,
                     at + ".response")
        if wrong:
            return wrong
    elif want.get("object") == "response":
        got = {k: v for k, v in got.items() if k in want or k in EXACT}
    return same(bind(want, got, names), got, at)


def joined(seen):
    """The events without numbers; deltas in a row are one."""
    out = []
    for event in seen:
        event = {k: v for k, v in event.items() if k != "sequence_number"}
        last = out[-1] if out else {}
        if event["type"].endswith(".delta") and same(
                dict(event, delta=""), dict(last, delta="")) is None:
            out[-1] = dict(last, delta=last["delta"] + event["delta"])
        else:
            out.append(event)
    return out


def check_whole(vector, want, r, model):
    if vector.protocol == "responses":
        return demand(same(want, r.json()))
    try:
        response_events.whole(r.body)
    except AssertionError as e:
        raise Failed("clients stumble: %s" % e)
    demand(fits(named(want, model), r.json(), {}, vector.contains))


def check_events(vector, want, r, model):
    if "raw" in want:
        return demand(None if r.body == want["raw"].encode() else
                      differs(want["raw"].encode(), r.body))
    try:
        response_events.fold(r.body)
    except AssertionError as e:
        raise Failed("clients stumble: %s" % e)
    expected = joined(named(want["events"], model))
    seen = joined([event for _, event in response_events.events(r.body)])
    names = {}
    for i, (one, other) in enumerate(zip(expected, seen)):
        demand(fits(one, other, names, vector.contains, "events[%d]" % i))
    if len(seen) != len(expected):
        raise Failed("there are %d events, expected %d: %s" % (
            len(seen), len(expected),
            short([e["type"] for e in seen[len(expected):]
                   or expected[len(seen):]])))


def differs(want, got):
    at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b),
              min(len(want), len(got)))
    return "byte %d: %r, expected %r" % (at, got[at:at + 80],
                                         want[at:at + 80])


def check_ignored(vector, r):
    """The header with the names of what was left out."""
    seen = sorted(filter(None, (r.get("x-modelgw-ignored") or "").replace(
        " ", "").split(",")))
    demand(same(sorted(vector.ignored), seen, "ignored"))


def seen_of(r):
    """The output, without the times, for comparing replays."""
    out = []
    for name, event in response_events.events(r.body):
        response = event.get("response") or {}
        for time in ("created_at", "completed_at"):
            response.pop(time, None)
        out.append([name, event])
    return out
