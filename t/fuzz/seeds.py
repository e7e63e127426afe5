"""Writes the initial corpus of the codecs' fuzzers: the vectors as inputs, and
their words as a dictionary.

usage: t/fuzz/seeds.py DIR      DIR/fuzz_<codec>.corpus/, DIR/codec.dict

Each t/fuzz/fuzz_*.c says which bytes of options an input begins with.
"""

import glob
import json
import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VECTORS = os.path.join(TESTS, "vectors")
RESPONSES = os.path.join(TESTS, "vectors-responses")

KINDS = {"request": "fuzz_request", "response": "fuzz_completion",
         "stream": "fuzz_stream"}
RESPONSES_KINDS = {"request": "fuzz_responses",
                   "response": "fuzz_response_whole",
                   "stream": "fuzz_response"}
EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
THINKING = ("none", "budget", "adaptive", "adaptive_only")
REASONING = ("off", "content", "full")


def place(words, value, default):
    return words.index(default if value is None else value)


def request(vector, opts):
    caps = place(("both", "one_of", "none"), opts.get("sampling"), "both")
    caps |= place(THINKING, opts.get("thinking"), "budget") << 2
    caps |= (opts.get("structured", "native") == "native") << 4
    for bit, name in enumerate(("strict", "prefill", "forced_tool_choice"), 5):
        caps |= bool(opts.get(name, True)) << bit
    effort = sum(1 << EFFORTS.index(word) for word in opts.get("effort") or ())
    body = vector.get("in_raw") or json.dumps(vector["in"])
    return bytes((caps, effort, 0)) + encode(body)


def responses_request(vector, opts):
    """A request, with the bytes of the upstream's protocol and the cache."""
    whole = request(vector, opts)
    cache = 2 * bool(opts.get("auto_cache"))
    return whole[:3] + bytes((cache + (opts["upstream"] == "chat"),)) + whole[3:]


def response(vector, opts):
    body = vector["in"]["body"]
    if not isinstance(body, str):
        body = json.dumps(body)
    reasoning = place(REASONING, opts.get("reasoning_output"), "content")
    return bytes((reasoning,)) + encode(body)


def stream(vector, opts):
    options = place(REASONING, opts.get("reasoning_output"), "content")
    options |= bool(opts.get("include_usage")) << 2
    return bytes((0, options)) + encode(vector["in"]["sse"])


def repeat(vector, opts):
    """The first events, each in a row of some."""
    events = encode(vector["in"]["sse"]).split(b"\n\n")
    return bytes((0, opts.get("upstream") == "chat")) + b"".join(
        5 * (event + b"\n\n") for event in events[:8] if event)


def responses_answer(vector, opts):
    """An answer, or a stream, for a client of the responses API."""
    call = vector["request"]
    options = opts["upstream"] == "chat"
    options |= bool(call.get("include")) << 1
    options |= bool((call.get("reasoning") or {}).get("summary")) << 2
    options |= bool(call.get("text")) << 3
    given = vector["in"].get("sse") or json.dumps(vector["in"]["body"])
    return bytes((0, options)) + encode(given)


INPUTS = {"request": request, "response": response, "stream": stream}


def encode(text):
    return text.encode(errors="surrogatepass")


def words(value, found):
    """The names of members, and values that are single words."""
    if isinstance(value, dict):
        for name, member in value.items():
            found.add(name)
            words(member, found)
    elif isinstance(value, list):
        for element in value:
            words(element, found)
    elif isinstance(value, str) and value.replace("_", "").isalpha():
        found.add(value)


def write(directory, fuzzer, name, text):
    corpus = os.path.join(directory, fuzzer + ".corpus")
    os.makedirs(corpus, exist_ok=True)
    with open(os.path.join(corpus, name), "wb") as f:
        f.write(text)


def main():
    directory = sys.argv[1]
    found = set()
    for path in sorted(glob.glob(os.path.join(VECTORS, "*-*.json"))):
        with open(path, encoding="utf-8") as f:
            vector = json.load(f)
        kind = vector["kind"]
        opts = vector.get("opts") or {}
        words(vector.get("in"), found)
        words(vector.get("out"), found)
        name = "seed-" + os.path.basename(path)[:-len(".json")]
        if kind == "stream":
            write(directory, "fuzz_repeat", name, repeat(vector, opts))
        if opts.get("upstream") == "chat":
            continue
        write(directory, KINDS[kind], name, INPUTS[kind](vector, opts))
    for path in sorted(glob.glob(os.path.join(RESPONSES, "*-*.json"))):
        with open(path, encoding="utf-8") as f:
            vector = json.load(f)
        kind, opts = vector["kind"], vector["opts"]
        words(vector.get("in"), found)
        words(vector["out"], found)
        if opts["upstream"] != "responses":
            write(directory, RESPONSES_KINDS[kind], "seed-" + vector["name"],
                  responses_request(vector, opts) if kind == "request"
                  else responses_answer(vector, opts))
    with open(os.path.join(directory, "codec.dict"), "w") as f:
        for word in sorted(found):
            if len(word) <= 40 and word.isascii() and word.isprintable() \
                    and '"' not in word and "\\" not in word:
                f.write('"\\"%s\\""\n' % word)


if __name__ == "__main__":
    main()
