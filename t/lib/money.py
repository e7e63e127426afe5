"""What a call costs and how much credit it holds: the rules of the ledger
(docs/credit.md), computed in Python from the request, the model line and the
upstream's answer.

Nothing here uses the module: tests compare its results with these.  Amounts
are integers of nano-euro, prices integers of pico-euro a token.
"""

import json
import re
from fractions import Fraction

MEDIA = ("url", "image_url", "data")
DOCUMENTS = ("file_id", "file_url", "file_data")
TOOLS = ("bash_", "text_editor_", "computer_", "memory_")
DESCRIBED = ("function", "custom", "namespace")     # in the body

MEDIA_BOUND, MEDIA_ESTIMATE = 16384, 1600
DOCUMENT_BOUND, DOCUMENT_ESTIMATE = 1000000, 50000
TOOLS_BOUND = 1000
MOST = 999999999        # tokens

# what limits the output of a request, by API; embeddings have no output
LIMITS = {"chat": ("max_tokens", "max_completion_tokens"),
          "messages": ("max_tokens",),
          "responses": ("max_output_tokens",),
          "embeddings": None}

CLASSES = ("input", "cache_read", "cache_write", "cache_write_1h", "output")


def nano(text):
    """Euro as decimal text, in nano-euro."""
    n = Fraction(str(text)) * 10 ** 9
    assert n.denominator == 1, text
    return int(n)


def euro(amount):
    """Nano-euro as decimal text with 2 to 9 digits after the point."""
    sign, amount = ("-" if amount < 0 else ""), abs(amount)
    digits = "%09d" % (amount % 10 ** 9)
    digits = digits[:2] + digits[2:].rstrip("0")
    return "%s%d.%s" % (sign, amount // 10 ** 9, digits)


def up(a, b):
    return -(-a // b)


class Line:
    """The options of a model line, as text; prices in euro a million."""

    def __init__(self, input=None, output=None, cache_read=None,
                 cache_write=None, cache_write_1h=None, context=None,
                 max_output=None, free=False, more=""):
        self.context = context
        self.max_output = max_output
        self.more = more
        self.free = free
        if free:
            input = output = 0
        cache_read = input if cache_read is None else cache_read
        cache_write = input if cache_write is None else cache_write
        cache_write_1h = (cache_write if cache_write_1h is None
                          else cache_write_1h)
        self.price = {}
        for name in CLASSES:
            pico = Fraction(str(locals()[name])) * 10 ** 6
            assert pico.denominator == 1
            self.price[name] = int(pico)

    def text(self):
        if self.free:
            out = ["free"]
        else:
            out = ["%s=%s" % (name, self.decimal(name)) for name in CLASSES]
        if self.context:
            out.append("context=%d" % self.context)
        if self.max_output:
            out.append("max_output=%d" % self.max_output)
        return " ".join(out + [self.more])

    def decimal(self, name):
        pico = self.price[name]
        return ("%d.%06d" % (pico // 10 ** 6, pico % 10 ** 6)).rstrip(
            "0").rstrip(".")

    def cost(self, tokens):
        """tokens: dict by class; missing classes count as 0."""
        pico = sum(tokens.get(name, 0) * self.price[name]
                   for name in CLASSES)
        return up(pico, 1000)

    def highest_price(self, long_cache):
        names = ["input", "cache_read", "cache_write"]
        if long_cache:
            names.append("cache_write_1h")
        return max(self.price[name] for name in names)


def members(value):
    """(name, value) of all members of a document."""
    if isinstance(value, dict):
        for name, v in value.items():
            yield name, v
            yield from members(v)
    elif isinstance(value, list):
        for v in value:
            yield from members(v)


def tools_of_responses(tools, searches):
    """How many tools the vendor describes to the model; searches are left out
    of the call, or included in the price."""
    for tool in tools if isinstance(tools, list) else ():
        kind = tool.get("type")
        if kind not in DESCRIBED:
            yield searches or not kind.startswith("web_search")
        yield from tools_of_responses(tool.get("tools"), searches)


class Bound:
    """Hold and estimate of a body (bytes, as the client sent them) of an API
    of LIMITS."""

    def __init__(self, body, line, api):
        doc = json.loads(body)
        media = documents = tools = 0
        self.long_cache = False
        for name, value in members(doc):
            if name in MEDIA:
                media += 1
            if name in DOCUMENTS:
                documents += 1
            if name == "type" and isinstance(value, str) \
               and value.startswith("document"):
                documents += 1
            if name == "tools":
                tools += 1
            if name == "type" and isinstance(value, str) \
               and value.startswith(TOOLS):
                tools += 1
            if name == "ttl" and value == "1h":
                self.long_cache = True

        if api == "responses":
            items = doc["input"] if isinstance(doc["input"], list) else []
            for place in [doc] + items:
                if place.get("type") != "mcp_list_tools":
                    tools += sum(tools_of_responses(
                        place.get("tools"), "extras=included" in line.more))

        self.input = (len(body) + media * MEDIA_BOUND
                      + documents * DOCUMENT_BOUND + tools * TOOLS_BOUND)
        self.input = min(self.input, MOST)
        if line.context and api != "embeddings":
            self.input = min(self.input, line.context)

        self.estimate = max(1, min(self.input, up(len(body), 4)
                                   + media * MEDIA_ESTIMATE
                                   + documents * DOCUMENT_ESTIMATE))

        self.n = max(doc.get("n") or 1, 1) if api == "chat" else 1
        limit = 0
        if LIMITS[api]:
            limit = (max(doc.get(name) or 0 for name in LIMITS[api])
                     or line.max_output or line.context or 0)
        self.output = min(self.n * limit, MOST)

        pico = (self.input * line.highest_price(self.long_cache)
                + self.output * line.price["output"])
        self.hold = up(pico, 1000)

    def fits(self, line, available):
        """The largest max_tokens that the available credit covers, or 0."""
        left = (available * 1000
                - self.input * line.highest_price(self.long_cache))
        if left <= 0 or self.output == 0:
            return 0
        return left // line.price["output"] // self.n


class Seen:
    """What has been received of an upstream's answer so far."""

    def __init__(self, status=0, usage=None, final=False, text=0,
                 unread=False, unsent=False, odd=()):
        self.status = status
        self.usage = dict(usage or {})  # by class; absent: not reported
        self.final = final              # the output count is final
        self.odd = frozenset(odd)       # classes with invalid counts
        self.text = text                # bytes of the answer's strings
        self.unread = unread            # a kept connection was reset
        self.unsent = unsent            # no upstream was reached

    def replaced(self, **kw):
        out = Seen(self.status, self.usage, self.final, self.text,
                   self.unread, self.unsent, self.odd)
        usage = kw.pop("usage", None)
        out.__dict__.update(kw)
        if usage:
            out.usage.update(usage)
        return out


class Charge:

    def __init__(self, outcome, tokens, cost):
        self.outcome = outcome
        self.tokens = tokens
        self.cost = cost

    def __repr__(self):
        return "%s %d %s" % (self.outcome, self.cost, self.tokens)


def charge(line, hold, estimate, seen):
    """What a call that was sent is charged."""
    if seen.unsent:
        return Charge("unsent", {}, 0)

    if seen.unread:
        return Charge("refused", {}, 0)

    usage = seen.usage
    if seen.final and not seen.odd and "output" in usage \
       and "input" in usage:
        tokens = {name: usage.get(name, 0) for name in CLASSES}
        return Charge("reported", tokens, line.cost(tokens))

    if seen.status >= 300:
        return Charge("refused", {}, 0)

    if seen.status == 0:
        tokens = {"input": estimate}
        return Charge("unanswered", tokens, min(line.cost(tokens), hold))

    tokens = {name: usage.get(name, 0) for name in CLASSES}
    if "input" not in usage:
        tokens["input"] = max(0, estimate - tokens["cache_read"]
                              - tokens["cache_write"]
                              - tokens["cache_write_1h"])
    if not (seen.final and "output" in usage):
        tokens["output"] = max(usage.get("output", 0), up(seen.text, 3))
    return Charge("estimated", tokens, min(line.cost(tokens), hold))


# Usage of the protocols, by class.

class ReportedUsage:
    """The usage that an answer has reported, merged from its usage objects.

    A count is an integer of at most nine digits; what is absent or null
    changes nothing; anything else is odd, until a count replaces it."""

    def __init__(self, usage=None):
        self.known = {}
        self.odd = set()
        self.take(usage)

    def take(self, usage):
        if isinstance(usage, dict):
            self.read(usage)
        elif usage is not None:
            self.odd |= {"input", "output"}
        return self

    def reported(self, usage, name, *path):
        """The count at the path, or None."""
        value = usage
        for member in path:
            value = (value.get(member) if isinstance(value, dict)
                     else "no object")
            if value is None:
                return None
        if type(value) is int and 0 <= value <= MOST:
            return value
        self.odd.add(name)
        return None

    def keep(self, name, value):
        if value is not None:
            self.known[name] = value
            self.odd.discard(name)


class ChatUsage(ReportedUsage):
    """The input includes all cached tokens."""

    INPUT, OUTPUT = "prompt_tokens", "completion_tokens"

    def read(self, usage):
        for name, *path in (
                ("input", self.INPUT),
                ("cache_read", self.INPUT + "_details", "cached_tokens"),
                ("cache_write", self.INPUT + "_details",
                 "cache_write_tokens"),
                ("output", self.OUTPUT),
                ("reasoning", self.OUTPUT + "_details",
                 "reasoning_tokens")):
            self.keep(name, self.reported(usage, name, *path))

    def classes(self):
        out = {name: n for name, n in self.known.items() if name in CLASSES}
        if "input" in out:
            out["input"] = max(0, out["input"] - out.get("cache_read", 0)
                               - out.get("cache_write", 0))
        return out


class ResponsesUsage(ChatUsage):
    """The same by other names."""

    INPUT, OUTPUT = "input_tokens", "output_tokens"


class EmbeddingsUsage(ReportedUsage):
    """Input only: the larger of two counts, of which one may be missing, or
    odd."""

    def take(self, usage):
        counts = [n for n in (usage.get("prompt_tokens"),
                              usage.get("total_tokens"))
                  if type(n) is int and 0 <= n <= MOST] \
            if isinstance(usage, dict) else []
        if counts:
            self.known = {"input": max(counts), "output": 0}
        return self

    def classes(self):
        return self.known


class MessageUsage(ReportedUsage):
    """input_tokens excludes cached tokens; cache writes are reported as a
    total, by lifetime, or both: each lifetime is billed, and the rest of the
    total has the shorter one.  input_tokens of 0 replaces no count, a cache
    field of 0 only next to input_tokens: compatible APIs end streams with
    zeros."""

    rest = False        # the shorter lifetime is the total less the longer one

    def read(self, usage):
        known = self.known
        minutes, hour = known.get("cache_write", 0), known.get(
            "cache_write_1h", 0)

        def reported(name, before, *path):
            n = self.reported(usage, name, *path)
            if n == 0 and not beside and (before or name in self.odd):
                return None
            return n

        beside = self.reported(usage, "input", "input_tokens")
        for name, *path in (
                ("input", "input_tokens"),
                ("cache_read", "cache_read_input_tokens")):
            self.keep(name, reported(name, known.get(name), *path))

        total = reported("total", minutes + hour,
                         "cache_creation_input_tokens")
        m, h = (reported(name, before, "cache_creation",
                         "ephemeral_%s_input_tokens" % name)
                for name, before in (("5m", minutes), ("1h", hour)))
        for name, n in (("total", total), ("5m", m), ("1h", h)):
            if n is not None:
                self.odd.discard(name)

        if m is None and h is None and total is not None:
            hour = min(hour, total)
            minutes = total - hour
            self.rest = True
        elif m is not None or h is not None:
            written = minutes + hour
            hour = hour if h is None else h
            if total is not None:
                minutes = max(m or 0, total - hour)
                self.rest = m is None
            elif m is not None:
                minutes = m
                self.rest = False
            elif self.rest:
                minutes = max(written - hour, 0)
        if (total, m, h) != (None, None, None):
            known["cache_write"], known["cache_write_1h"] = minutes, hour

        self.keep("output", self.reported(usage, "output", "output_tokens"))
        self.keep("reasoning", self.reported(usage, "reasoning",
                                             "output_tokens_details",
                                             "thinking_tokens"))

    def classes(self):
        return {name: n for name, n in self.known.items() if name in CLASSES}


def changes(reported, final=True):
    """The changes that the usage so far makes to Seen: see Seen.replaced()."""
    classes = reported.classes()
    return {"usage": classes, "odd": frozenset(reported.odd),
            "final": final and "output" in classes
            and "output" not in reported.odd}


# The message of a 402.

REFUSAL = re.compile(
    r"Insufficient credit: the call may cost up to (-?[0-9.]+) euro, "
    r"(-?[0-9.]+) are left; add credit"
    r"(?:, or ask for less: max_(?:output_)?tokens of ([0-9]+) "
    r"would fit)?$")


def refusal(message):
    """(needed, left, max_tokens that fits: 0 if none) of a 402."""
    m = REFUSAL.match(message)
    assert m, message
    return nano(m.group(1)), nano(m.group(2)), int(m.group(3) or 0)
