"""What the fakes of the vendors' APIs share: the shape of a request as a table
of checks, and the script that checks and answers.

Checks take (path, value); they refuse it or return.  A path is like
"messages.1.content.0.text".
"""

import json
import re

import upstream


class Refused(Exception):

    def __init__(self, text, status=400, type="invalid_request_error"):
        super().__init__(text)
        self.status = status
        self.type = type


def refuse(path, text):
    raise Refused("%s: %s" % (path, text) if path else text)


def at(path, name):
    return "%s.%s" % (path, name) if path else str(name)


def string(path, value):
    if not isinstance(value, str):
        refuse(path, "Input should be a valid string")


def pattern(regex):
    def check(path, value):
        string(path, value)
        if not re.fullmatch(regex, value):
            refuse(path, "String should match pattern '%s'" % regex)

    return check


def boolean(path, value):
    if not isinstance(value, bool):
        refuse(path, "Input should be a valid boolean")


def number(low, high, kind=(int, float)):
    def check(path, value):
        if not isinstance(value, kind) or isinstance(value, bool):
            refuse(path, "Input should be a valid number")
        if value < low:
            refuse(path, "Input should be greater than or equal to %s" % low)
        if high is not None and value > high:
            refuse(path, "Input should be less than or equal to %s" % high)

    return check


def integer(low):
    return number(low, None, int)


def one_of(*values):
    def check(path, value):
        if value not in values:
            refuse(path, "Input should be %s" % " or ".join(
                "'%s'" % v for v in values))

    return check


def anything(path, value):
    pass


def nullable(check):
    return lambda path, value: None if value is None else check(path, value)


def mapping(path, value):
    if not isinstance(value, dict):
        refuse(path, "Input should be a valid dictionary")


def list_of(check):
    def run(path, value):
        if not isinstance(value, list):
            refuse(path, "Input should be a valid list")
        for i, item in enumerate(value):
            check(at(path, i), item)

    return run


def record(required, **optional):
    def check(path, value):
        mapping(path, value)
        for name in value:
            if name not in required and name not in optional:
                refuse(at(path, name), "Extra inputs are not permitted")
        for name in required:
            if name not in value:
                refuse(at(path, name), "Field required")
        for name, item in value.items():
            (required.get(name) or optional[name])(at(path, name), item)

    return check


def tagged(**kinds):
    """An object of one of several kinds, by its "type"."""

    def check(path, value):
        mapping(path, value)
        kind = value.get("type")
        if not isinstance(kind, str) or kind not in kinds:
            refuse(path, "Input tag '%s' found using 'type' does not match any"
                         " of the expected tags: %s" % (kind, list(kinds)))
        kinds[kind](path, value)

    return check


def either(first, second):
    def check(path, value):
        (first if isinstance(value, str) else second)(path, value)

    return check


def closed(path, value):
    """Of structured outputs: each object forbids more properties."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            closed(at(path, i), item)
    elif isinstance(value, dict):
        if value.get("type") == "object" \
           and value.get("additionalProperties") is not False:
            refuse(path, "For 'object' type, 'additionalProperties' must be"
                         " explicitly set to false")
        for name, item in value.items():
            closed(at(path, name), item)


def members(pairs):
    if len({name for name, value in pairs}) < len(pairs):
        raise ValueError("duplicate member")
    return dict(pairs)


def parse(data):
    try:
        body = json.loads(data.decode("utf-8"), object_pairs_hook=members)
        json.dumps(body, ensure_ascii=False).encode("utf-8")    # surrogates
    except ValueError as e:
        refuse("", "The request body is not valid JSON: %s" % e)
    return body


def bearer(request, secret, path):
    """The head of a request with a bearer token."""
    if request.line.split("?")[0].split(" ")[:2] != ["POST", path]:
        raise Refused("Invalid URL", 404)
    if secret and request.all("authorization") != ["Bearer " + secret]:
        raise Refused("Incorrect API key provided", 401)
    if request.get("content-type", "").split(";")[0] != "application/json":
        raise Refused("Unsupported content type", 415)


def pieces(text, size):
    return [text[i:i + size] for i in range(0, len(text), size)]


class FakeApi:
    """A script: checks the request, answers with what says(body) returns: a
    list of blocks, a dict of answer()'s arguments, or another script.

    models    upstream ids and what they can do
    secret    the required key; None: any
    refused   (text, body) of each request that was refused
    size      characters of a text delta in a stream
    cut       bytes of each write of a stream; 0: one write per event

    The subclass has check(request, body), error(Refused), answer(body, ...)
    and events(body, answer), which are bytes.
    """

    HEADERS = []

    def __init__(self, models, says, secret=None, size=5, cut=0):
        self.models = models
        self.says = says
        self.secret = secret
        self.size = size
        self.cut = cut
        self.refused = []

    def __call__(self, x):
        try:
            self.check_head(x.request)
            body = parse(x.request.body)
            self.check(body)
        except Refused as e:
            self.refused.append((str(e), x.request.body))
            script = upstream.reply_json(self.error(e), e.status)
        else:
            script = self.script(body)
        script(x)

    def script(self, body):
        said = self.says(body)
        if callable(said):
            return said
        more = dict(said) if isinstance(said, dict) else {"content": said}
        said = self.answer(body, *more.pop("content"), **more)
        if not body.get("stream"):
            return upstream.reply(200, json.dumps(
                said, ensure_ascii=False).encode(), headers=self.HEADERS)
        return upstream.sse(self.writes(self.events(body, said)),
                            headers=self.HEADERS)

    def writes(self, events):
        return pieces(b"".join(events), self.cut) if self.cut else events


def always(*content):
    return lambda body: list(content)
