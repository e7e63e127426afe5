"""Runs directories of translation vectors through a real nginx with the module
and a scripted upstream.

usage: t/lib/vectors.py DIR... [--report FILE] [--only TEXT]

The format of a vector, and how results compare, is in index.json of t/vectors
("format", "compare"), and for /v1/responses, whose vectors have names that
begin with rq-, rs- or st-, in that of t/vectors-responses; DIR need not have
one.  A vector passes if what the
upstream got (kind request), what the client got (response, stream) and the
usage in the access log are as it expects.  Capabilities become options of the
model line, so vectors with the same options share one nginx.

A stream is replayed whole (framed in chunks, and by the end of the connection)
and at each split that it names; without one, byte by byte.  Pieces are HTTP
chunks, which nginx processes one by one even if the kernel joins them.  All
replays must give the same output.
"""

import argparse
import collections
import glob
import json
import os
import re
import shutil
import sys
import tempfile
import time

import compare_responses
import gateway
import upstream
from aggregate import aggregate, disorder, events
from compare import (Failed, Unknown, check_contains, check_error,
                     check_headers, check_metered, demand, named,
                     normal_aggregate, normal_answer, normal_request, same,
                     short)
from compare_responses import bind

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"

BYTEWISE = 65536        # bytes of the longest stream that is sent byte by byte
PAIRS = 4096            # of the longest that is cut in two at every byte
TIMEOUT = 60            # seconds for a response

SERVICE_ID, UPSTREAM_ID = "vector-model", "upstream-model"
MODEL_ID = re.compile(r"[A-Za-z0-9._:/@+-]{1,256}")


# JSON as text: numbers and escapes are sent as they are in the file.

TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\s+', re.S)
DECODER = json.JSONDecoder(strict=False)


def compact(text):
    return TOKEN.sub(lambda m: m.group() if m.group()[0] == '"' else "",
                     text)


def members(text):
    """The members of an object: name -> text of the value."""
    out = {}
    at = blank(text, text.index("{") + 1)
    while text[at] != "}":
        name, at = DECODER.raw_decode(text, at)
        at = blank(text, blank(text, at) + 1)
        end = DECODER.raw_decode(text, at)[1]
        out[name] = text[at:end]
        at = blank(text, end)
        if text[at] == ",":
            at = blank(text, at + 1)
    return out


def blank(text, at):
    while text[at] in " \t\r\n":
        at += 1
    return at


def encode(text):
    """UTF-8; a lone surrogate becomes a byte that is invalid in UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return b"".join(
            c.encode(errors="surrogateescape" if "\udc80" <= c <= "\udcff"
                     else "surrogatepass") for c in text)


# Vectors.

class Vector:

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.text = f.read()
        self.file = os.path.basename(path)
        self.path = path
        whole = json.loads(self.text)
        raw = members(self.text)

        self.name = whole.get("name") or self.file
        self.kind = whole.get("kind")
        self.opts = dict(whole.get("opts") or {})
        self.input = whole.get("in")
        self.out = whole.get("out")
        self.metered = whole.get("metered") or {}
        self.contains = whole.get("out_contains") or []
        if isinstance(self.contains, str):
            self.contains = [self.contains]
        self.asserted = whole.get("asserted_by_source") or {}
        self.ignored = whole.get("ignored")

        self.responses = self.name.startswith(("rq-", "rs-", "st-"))
        self.endpoint = RESPONSES if self.responses else CHAT
        self.request = whole.get("request")
        self.upstream_model = self.opts.pop("upstream_model", None)
        self.include_usage = self.opts.pop("include_usage", None)
        self.protocol = self.opts.pop("upstream", None) or "messages"
        if self.responses and self.protocol == "messages":
            self.opts.setdefault("auto_cache", False)
        self.raw = whole.get("in_raw")
        if self.raw is None and "in" in raw:
            self.raw = compact(raw["in"])
            if self.kind == "response":
                self.raw = self.body(raw["in"])
            elif self.kind == "stream":
                self.raw = self.input["sse"]

    def body(self, text):
        """The upstream's answer."""
        text = members(text).get("body", '""')
        body = json.loads(text)
        return body if isinstance(body, str) else compact(text)

    def outcomes(self):
        """The outcomes, any of which is right."""
        if isinstance(self.out, dict) and "any_of" in self.out:
            return self.out["any_of"]
        return self.out if isinstance(self.out, list) else [self.out]

    def model(self):
        """(service id, upstream id) for the configuration."""
        service, there = self.models()
        return service, self.upstream_model or there

    def models(self):
        if self.responses and self.kind != "request":
            return self.request["model"], UPSTREAM_ID
        if self.kind == "request":
            here = self.input if isinstance(self.input, dict) else None
            if here is None:
                try:
                    here = json.loads(self.raw)
                except ValueError:
                    here = {}
            service = here.get("model") if isinstance(here, dict) else None
            there = [o["model"] for o in self.outcomes()
                     if isinstance(o, dict) and o.get("model")]
            if not valid(service):
                return SERVICE_ID, UPSTREAM_ID
            return service, there[0] if there and valid(there[0]) else service
        for name in [own_model(o) for o in self.outcomes()] \
                + (re.findall(r'"model"\s*:\s*"([^"]+)"', self.raw or "")
                   if self.protocol == "chat" else []):
            if valid(name):
                return name, (name if self.protocol == "chat"
                              else UPSTREAM_ID)
        return SERVICE_ID, UPSTREAM_ID


def own_model(out):
    """The model id in the client's answer, if it is not "[model]"."""
    if not isinstance(out, dict):
        return None
    for one in [out.get("body")] + [e.get("data") for e in
                                    out.get("events") or ()
                                    if isinstance(e, dict)]:
        if isinstance(one, dict) and one.get("model"):
            return one["model"]


def valid(model):
    return isinstance(model, str) and MODEL_ID.fullmatch(model)


# Options of the model line.

def word(value):
    if not isinstance(value, str) or not re.fullmatch(r"\w+", value):
        raise Unknown("is not a word")
    return value


def switch(value):
    if not isinstance(value, bool):
        raise Unknown("is not a boolean")
    return "on" if value else "off"


def count(value):
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unknown("is not an integer")
    return str(value)


def switch_or_word(value):
    return switch(value) if isinstance(value, bool) else word(value)


def words(value):
    if not isinstance(value, list):
        raise Unknown("is not a list")
    return ",".join(word(v) for v in value)


OPTIONS = {
    "sampling": word,
    "thinking": word,
    "effort": words,
    "structured": word,
    "strict": switch,
    "prefill": switch,
    "forced_tool_choice": switch,
    "default_max_tokens": count,
    "max_output": count,
    "reasoning_output": word,
    "usage_input_includes_cache": switch,
    "auto_cache": switch_or_word,
    "chat_limit": word,
}


def model_line(vector):
    """(options of the model line, directives of the location)"""
    out, location = [], ""
    for name, value in sorted(vector.opts.items()):
        if name == "translate_strict":
            location = "modelgw_translate_strict %s;" % switch(value)
        elif name not in OPTIONS:
            raise Unknown("opts: %s is unknown" % name)
        elif value is not None and value != []:
            try:
                out.append("%s=%s" % (name, OPTIONS[name](value)))
            except Unknown as e:
                raise Unknown("opts: %s %s" % (name, e))
    if vector.protocol not in ("messages", "chat") + (
            ("responses",) if vector.responses else ()):
        raise Unknown("opts: upstream %r is unknown" % vector.protocol)
    return " ".join(out), location


# One nginx for each set of options.

LOG = """log_format vectors escape=json '{"tag":"$http_x_test_tag",'
        '"code":"$modelgw_code",'
        '"input":"$modelgw_input_tokens",'
        '"cache_read":"$modelgw_cached_tokens",'
        '"cache_write":"$modelgw_cache_write_tokens",'
        '"cache_write_1h":"$modelgw_cache_write_1h_tokens",'
        '"output":"$modelgw_output_tokens",'
        '"reasoning":"$modelgw_reasoning_tokens",'
        '"complete":"$modelgw_complete"}';"""


SERVER = "access_log $dir/vectors.log vectors;"


class Log:
    """The access log of a gateway with LOG and SERVER."""

    def __init__(self, gw):
        self.path = gw.path("vectors.log")
        self.lines, self.at = {}, 0

    def line(self, tag, timeout=TIMEOUT):
        end = time.monotonic() + timeout
        while tag not in self.lines:
            with open(self.path, "rb") as f:
                f.seek(self.at)
                text = f.read()
            text = text[:text.rfind(b"\n") + 1]
            self.at += len(text)
            for line in text.splitlines():
                line = json.loads(line)
                self.lines[line["tag"]] = line
            if tag not in self.lines:
                if time.monotonic() > end:
                    raise Failed("the access log has no line of the call")
                time.sleep(0.002)
        return self.lines.pop(tag)


class Rig:
    """An nginx for vectors with the same options, and its upstream."""

    def __init__(self, vectors, options, location, directory, log=LOG):
        self.up = upstream.Upstream()
        self.key = gateway.Key("vectors-1", "v")
        self.number = 0

        models = dict([(SERVICE_ID, UPSTREAM_ID)]
                      + [v.model() for v in vectors])
        self.gw = gateway.Gateway(
            directory, self.up, self.up,
            http=log,
            server=SERVER,
            location=location,
            groups=gateway.group(
                "v", vectors[0].protocol,
                " ".join(sorted({m[0] for m in models})),
                "http://api.vendor-a.test", "x-api-key file:$dir/a.secret",
                "\n".join("model %s %s %s;" % (*m, options)
                          for m in sorted(models.items()))),
            keys_text=self.key.line() + "\n")
        self.gw.keys = [self.key]
        try:
            self.gw.start()
        except gateway.Failed:
            self.up.stop()
            raise
        self.log = Log(self.gw)

    def stop(self):
        try:
            self.gw.stop()
        finally:
            self.up.stop()

    def call(self, body, script, endpoint=CHAT):
        """(response, line of the log) of one call."""
        self.number += 1
        tag = "vector-%d" % self.number
        self.up.reset()
        self.up.script(script)
        try:
            r = self.gw.post(endpoint, body, self.key,
                             [("Content-Type", "application/json"),
                              ("X-Test-Tag", tag)], timeout=TIMEOUT)
        except TimeoutError:
            raise Failed("no end of the response in %d s" % TIMEOUT)
        if r is None:
            time.sleep(0.1)     # for the alert of a worker that has crashed
            raise Failed("the gateway closed without an answer")
        return r, self.log.line(tag)


# The kinds.

def run_request(vector, rig):
    r, line = rig.call(encode(vector.raw), upstream.both, vector.endpoint)
    reached = bool(rig.up.requests)
    text = rig.up.last().body if reached else None

    def check(want):
        if "error" in want and not {"messages", "input"} & set(want):
            check_error(vector, want["error"].get("status", 400),
                        want["error"], r)
            if reached:
                raise Failed("refused, but the upstream was called")
            return
        if not reached:
            raise Failed("%d %s" % (r.status,
                                    r.body[:300].decode(errors="replace")))
        seen = json.loads(text)
        demand(same(normal_request(bind(want, seen, {})),
                    normal_request(seen)))
        check_contains(vector, text)
        if vector.ignored is not None:
            compare_responses.check_ignored(vector, r)
        if r.status != 200:
            raise Failed("the answer has status %d" % r.status)
        check_metered(vector.metered, line)

    any_outcome(vector, check)


def run_response(vector, rig):
    model = vector.model()[0]
    given = vector.input if isinstance(vector.input, dict) else {}
    unknown(given, ("status", "headers", "body"))
    r, line = rig.call(vector.request or request(model), upstream.reply(
        given.get("status", 200), encode(vector.raw),
        list((given.get("headers") or {}).items())), vector.endpoint)

    def check(want):
        unknown(want, ("status", "headers", "body"))
        status, body = want.get("status", 200), want.get("body")
        check_headers(want.get("headers"), r)
        if status >= 300:
            check_error(vector, status, body or {}, r)
        else:
            if r.status != status:
                raise Failed("status is %d (%s), expected %d" % (
                    r.status, r.body[:300].decode(errors="replace"), status))
            if not r.complete:
                raise Failed("the answer is truncated")
            if vector.responses:
                compare_responses.check_whole(vector, body, r, model)
            else:
                demand(same(normal_answer(named(body, model)),
                            normal_answer(r.json())))
            check_contains(vector, r.body)
        check_metered(vector.metered, line)

    any_outcome(vector, check)


def run_stream(vector, rig):
    model = vector.model()[0]
    if isinstance(vector.input, dict):
        unknown(vector.input, ("sse", "split", "status", "headers", "eof"))
    given = vector.input if isinstance(vector.input, dict) else {}
    body = vector.request or request(model, stream=True)
    if vector.include_usage is not None:
        body["stream_options"] = {"include_usage": vector.include_usage}
    first = None

    for how, pieces, framing in replays(encode(vector.raw),
                                        given.get("split")):
        try:
            r, line = rig.call(body, upstream.sse(
                pieces, framing=framing, end=given.get("eof") or "clean",
                headers=list((given.get("headers") or {}).items())),
                vector.endpoint)
            any_outcome(vector, lambda want: check_stream(
                vector, want, r, line, model))
            seen = seen_of(vector, r)
            first = first or seen
            if first != seen:
                raise Failed("the output differs from that of the whole"
                             " stream: %s" % same(first, seen))
        except Failed as e:
            raise Failed("(%s) %s" % (how, e))


def check_stream(vector, want, r, line, model):
    unknown(want, ("status", "headers", "events", "aggregate", "body",
                   "raw"))
    status = want.get("status", 200)
    check_headers(want.get("headers"), r)
    if "body" in want:
        check_error(vector, status, want["body"], r)
    else:
        if r.status != status:
            raise Failed("status is %d (%s), expected %d" % (
                r.status, r.body[:300].decode(errors="replace"), status))
        if not (r.get("content-type") or "").startswith("text/event-stream"):
            raise Failed("content-type is %s" % r.get("content-type"))
        if vector.responses:
            compare_responses.check_events(vector, want, r, model)
        else:
            check_chunks(vector, want, r, model)
        check_contains(vector, r.body)
    check_metered(vector.metered, line)


def check_chunks(vector, want, r, model):
    seen = events(r.body)
    expected = [named(e["data"], model) for e in want.get("events") or ()
                if isinstance(e, dict) and "data" in e]
    if vector.protocol == "chat":
        demand(same(expected, seen, "events"))
    demand(disorder(seen, vector.protocol == "chat"))
    try:
        got = normal_aggregate(aggregate(seen))
    except (TypeError, KeyError) as e:
        raise Failed("the SDK's accumulator would fail: %s" % e)
    demand(same(normal_aggregate(
        want.get("aggregate") or aggregate(expected)), got, "aggregate"))


def seen_of(vector, r):
    """The output, without the time."""
    if r.status != 200:
        return [r.status, json.loads(r.body)]
    if vector.responses:
        return r.body if vector.protocol == "responses" \
            else compare_responses.seen_of(r)
    return [r.status] + [
        {k: v for k, v in e.items() if k != "created"}
        if isinstance(e, dict) else e for e in events(r.body)]


def request(model, **more):
    return dict({"model": model,
                 "messages": [{"role": "user", "content": "Hi"}]}, **more)


def unknown(value, names):
    for name in value:
        if name not in names:
            raise Unknown("%s is unknown" % name)


def any_outcome(vector, check):
    reasons = []
    for want in vector.outcomes():
        if not isinstance(want, dict):
            raise Unknown("out is not an object: %s" % short(want))
        try:
            return check(want)
        except Failed as e:
            reasons.append(str(e))
    if not reasons:
        raise Unknown("there is no out")
    raise Failed("; or ".join(reasons))


# Splits.

def cut(sse, places):
    """The stream in pieces that end at the places."""
    places = sorted({p for p in places if 0 < p < len(sse)})
    return [sse[a:b] for a, b in zip([0] + places, places + [len(sse)])]


def every(sse, size):
    return cut(sse, range(size, len(sse), size))


def after(sse, pattern):
    return cut(sse, [m.end() for m in re.finditer(pattern, sse)])


def replays(sse, split):
    """(how, pieces, framing) of each replay."""
    yield "whole", [sse], "chunked"
    yield "whole, until the connection ends", [sse], "close"
    if split is None:
        if len(sse) <= BYTEWISE:
            yield "every byte", every(sse, 1), "chunked"
        return
    for how, pieces in splits(sse, split):
        yield how, pieces, "chunked"
        if how == "every byte":
            yield how + ", until the connection ends", pieces, "close"


def splits(sse, split):
    if isinstance(split, str):
        yield from prose(sse, split)
    elif isinstance(split, bool) or split is None:
        yield "every byte", every(sse, 1)
    elif isinstance(split, int):
        yield "pieces of %d" % split, every(sse, max(split, 1))
    elif isinstance(split, list) \
            and all(isinstance(s, str) for s in split) \
            and encode("".join(split)) == sse:
        yield "as given", [encode(s) for s in split]
    elif isinstance(split, list) and split \
            and all(type(s) is int for s in split):
        yield "cut at %s" % split, cut(sse, split)
        yield "every byte", every(sse, 1)
    elif isinstance(split, (list, dict)):
        for s in split.values() if isinstance(split, dict) else split:
            yield from splits(sse, s)
    else:
        yield "every byte", every(sse, 1)


def prose(sse, text):
    """A split described in words; byte by byte is always one of them."""
    text = text.lower()
    sure = False
    yield "every byte", every(sse, 1)
    if "pair" in text or "prefix" in text or "two" in text \
       or "anywhere" in text or "every split" in text:
        sure = True
        step = -(-len(sse) // PAIRS)
        for at in range(1, len(sse), step):
            yield "cut after byte %d" % at, cut(sse, [at])
    if "event" in text:
        sure = True
        yield "every event", after(sse, rb"(\r?\n|\r)(\r?\n|\r)")
    if "line" in text:
        sure = True
        yield "every line", after(sse, rb"\r?\n|\r")
    for n in re.findall(r"\b\d+\b", text):
        sure = True
        yield "pieces of " + n, every(sse, max(int(n), 1))
    if "byte" not in text and not sure:
        for n in (2, 3, 7, 64, 1000):
            yield "pieces of %d" % n, every(sse, n)
        yield "every event", after(sse, rb"(\r?\n|\r)(\r?\n|\r)")
        yield "every line", after(sse, rb"\r?\n|\r")
        yield "between CR and LF", after(sse, rb"\r(?=\n)")


# The run.

KINDS = {"request": run_request, "response": run_response,
         "stream": run_stream}


def files(directory):
    if os.path.isfile(directory):
        return [directory]
    return sorted(p for p in glob.glob(
        os.path.join(glob.escape(directory), "**", "*.json"), recursive=True)
        if os.path.basename(p) != "index.json")


def read(directories):
    """(vectors, rows of those that cannot be read)"""
    vectors, rows = [], []
    for path in sum(map(files, directories), []):
        try:
            vector = Vector(path)
            vector.line = model_line(vector)
            if vector.kind not in KINDS:
                raise Unknown("kind %r is unknown" % (vector.kind,))
            if not isinstance(vector.raw, str):
                raise Unknown("there is neither in nor in_raw")
            vectors.append(vector)
        except Exception as e:
            name = os.path.splitext(os.path.basename(path))[0]
            try:
                with open(path, encoding="utf-8") as f:
                    whole = json.load(f)
                name, kind = whole.get("name", name), whole.get("kind")
            except Exception:
                kind = None
            rows.append(row(name, kind, path, reason(e)))
    return vectors, rows


def row(name, kind, path, why=None, seconds=0):
    return {"name": name, "kind": kind, "file": os.path.basename(path),
            "passed": why is None, "reason": why,
            "seconds": round(seconds, 3)}


def reason(e):
    if isinstance(e, (Failed, Unknown)):
        return str(e)
    return "%s: %s" % (type(e).__name__, e)


def sets(vectors):
    """The vectors that can share an nginx: they have the same options, and no
    id means two models."""
    out = collections.OrderedDict()
    for vector in vectors:
        service, there = vector.model()
        for n in range(len(vectors)):
            key = (vector.protocol, vector.line, n)
            one = out.setdefault(key, ({}, []))
            if one[0].setdefault(service, there) == there:
                one[1].append(vector)
                break
    return [(key[1], found) for key, (_, found) in out.items()]


def run_set(line, vectors, directory, report):
    os.mkdir(directory)
    try:
        rig = Rig(vectors, *line, directory)
    except Exception as e:
        for vector in vectors:
            report(row(vector.name, vector.kind, vector.path,
                       "nginx does not start: " + reason(e)[-600:]))
        return
    last = None
    try:
        for vector in vectors:
            if last:
                report(last)
            begin = time.monotonic()
            try:
                KINDS[vector.kind](vector, rig)
                why = None
            except Exception as e:
                why = reason(e)
            if rig.up.faults:
                why = why or "the upstream: %s" % rig.up.faults
                rig.up.faults.clear()
            if rig.gw.faults():
                why = "%s; error log: %s" % (why or "", rig.gw.faults()[0])
                rig.gw.expect(re.escape(rig.gw.faults()[0]))
            last = row(vector.name, vector.kind, vector.path, why,
                       time.monotonic() - begin)
    finally:
        try:
            rig.stop()
        except Exception as e:
            last["passed"], last["reason"] = False, \
                "%s; at nginx's end: %s" % (last["reason"] or "", e)
        report(last)


def run(directories, only=None, report=None):
    """The rows of all vectors."""
    rows = []

    def report_row(one):
        rows.append(one)
        print("%s %s%s" % ("PASS" if one["passed"] else "FAIL", one["name"],
                           "" if one["passed"] else ": "
                           + " ".join(one["reason"].split())), flush=True)

    vectors, broken = read(directories)
    if only:
        vectors = [v for v in vectors if only in v.name or only in v.file]
        broken = [b for b in broken if only in b["name"]]
    for one in broken:
        report_row(one)

    tmp = tempfile.mkdtemp(prefix="vectors-")
    os.chmod(tmp, 0o755)
    try:
        for n, (line, found) in enumerate(sets(vectors)):
            run_set(line, found, os.path.join(tmp, str(n)), report_row)
    finally:
        shutil.rmtree(tmp, ignore_errors=True)
        if report:
            with open(report, "w", encoding="utf-8") as f:
                json.dump(rows, f, indent=1, ensure_ascii=False)
                f.write("\n")
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directories", nargs="+", metavar="DIR",
                        help="or one file")
    parser.add_argument("--report")
    parser.add_argument("--only", help="part of a name")
    args = parser.parse_args()

    for directory in args.directories:
        if not os.path.exists(directory):
            sys.exit("%s does not exist" % directory)
    rows = run(args.directories, args.only, args.report)
    failed = sum(not r["passed"] for r in rows)
    print("%d passed, %d failed" % (len(rows) - failed, failed))
    sys.exit(1 if failed or not rows else 0)


if __name__ == "__main__":
    main()
