"""The scanner and the splice against Python's json.

Hypothesis generates documents, writes them in many forms and damages them; for
each one the result, the values and the spliced body must agree with Python's
json and the few lines of policy below.  Both are run at any chunk size; the
scanner runs in build/unit/json/scan_cli, over pipes.
"""

import fcntl
import json
import os
import pathlib
import re
import string
import subprocess

import pytest

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

TOP = pathlib.Path(__file__).resolve().parents[3]
CLI = pathlib.Path(os.environ.get("MODELGW_SCAN_CLI",
                                  TOP / "build/unit/json/scan_cli"))

settings.register_profile("scan", max_examples=400, deadline=None,
                          database=None,
                          suppress_health_check=list(HealthCheck))
settings.register_profile("scan-long", max_examples=20000, deadline=None,
                          database=None,
                          suppress_health_check=list(HealthCheck))
PROFILE = settings.get_profile(os.environ.get("MODELGW_SCAN_PROFILE", "scan"))

NULL, FALSE, TRUE, NUMBER, COUNT, STRING, OBJECT, ARRAY = (
    1 << i for i in range(8))

WATCHES = {
    "model": STRING,
    "messages": ARRAY,
    "stream": FALSE | TRUE | NULL,
    "max_tokens": COUNT | NULL,
    "stream_options": OBJECT | NULL,
    "stream_options.include_usage": FALSE | TRUE,
    "usage": OBJECT,
    "usage.tokens": COUNT,
}
CHECKED = {"", "stream_options"}
DENIED = {"models", "fallbacks", "apiBase"}
MARKS = [("url", None), ("url", "data:"), ("type", "image"),
         ("type", "img\u00e9\n"), ("x", None), ("model", "m"),
         ("tokens", None), ("stream_options", None),
         ("tasks_kissed", None)]
TEXT = 256
DEPTH = 64


# expected results

class Number(str):
    """A number as it is written."""


class Pairs(list):
    """The members of an object, in order."""


class Field(Exception):
    """JSON, but refused."""


def refuse(name):
    raise ValueError(name)


def depth(value):
    """Nesting of containers, without recursion, which Python limits."""

    deepest, level = 0, [value]
    while level:
        inner = []
        for v in level:
            if isinstance(v, Pairs):
                inner += [x for _, x in v]
            elif isinstance(v, list):
                inner += v
        level = [v for v in inner if isinstance(v, list)]
        deepest += 1
    return deepest


def parse(raw):
    """The root's members, as strict as RFC 8259 and RFC 3629; ValueError."""

    value = json.loads(raw.decode("utf-8"), object_pairs_hook=Pairs,
                       parse_int=Number, parse_float=Number,
                       parse_constant=refuse)
    if not isinstance(value, Pairs) or depth(value) > DEPTH:
        raise ValueError("not an object, or too deep")
    return value


def kind(value):
    if value is None:
        return NULL
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, Number):
        return NUMBER | (COUNT if re.fullmatch("[0-9]{1,9}", value) else 0)
    if isinstance(value, Pairs):
        return OBJECT
    return ARRAY if isinstance(value, list) else STRING


def fold(name):
    """As Go's encoding/json folds a key to find its field: ASCII case, and the
    two other characters whose simple folding is ASCII."""

    return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else
                   {"\u017f": "s", "\u212a": "k"}.get(c, c) for c in name)


def lone(text):
    return any("\ud800" <= c <= "\udfff" for c in text)


def check_key(path, key, seen):
    if lone(key) or key in seen or len(seen) == 256:
        raise Field(key)
    if path == "" and fold(key) in map(fold, DENIED):
        raise Field(key)
    seen.add(key)


def expect(members, check, path="", found=None):
    """path -> value of what is watched; Field if the policy refuses it."""

    found = {} if found is None else found
    seen = set()
    names = [w.rpartition(".")[2] for w in WATCHES
             if w.rpartition(".")[0] == path]

    for key, value in members:
        name = path + "." + key if path else key

        if check and path in CHECKED:
            check_key(path, key, seen)

        if check and any(fold(key) == fold(n) and key != n for n in names):
            raise Field(name)

        # a name with a dot inside of it is not a path

        if "." in key or name not in WATCHES:
            continue

        for old in [f for f in found if f == name or f.startswith(name + ".")]:
            del found[old]

        if not kind(value) & WATCHES[name]:
            if check:
                raise Field(name)
            continue

        found[name] = value
        if isinstance(value, Pairs):
            expect(value, check, name, found)

    return found


def members_of(value):
    """All members of all objects in the value."""

    if isinstance(value, Pairs):
        yield from value
        value = [v for _, v in value]
    if isinstance(value, list):
        for v in value:
            yield from members_of(v)


def count_marks(root):
    found = [0] * len(MARKS)
    for key, value in members_of(root):
        for i, (name, text) in enumerate(MARKS):
            if fold(key) == name and (text is None or kind(value) == STRING
                                and value.startswith(text)):
                found[i] += 1
    return found


# actual results

class Scanner:
    def __init__(self):
        self.process = subprocess.Popen(
            [CLI], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, doc, chunk, check):
        self.process.stdin.write(b"%d %d %d\n" % (chunk, check, len(doc)))
        self.process.stdin.write(doc)
        self.process.stdin.flush()
        line = self.process.stdout.readline().split()
        assert line, "scan_cli has exited on %r" % doc
        return line

    def stop(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(60) == 0


def build():
    """One at a time: pytest-xdist runs several workers."""

    if "MODELGW_SCAN_CLI" in os.environ:
        return
    CLI.parent.mkdir(parents=True, exist_ok=True)
    with open(CLI.parent / "scan_cli.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", "-C", TOP, "build/unit/json/scan_cli"],
                       check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def scanner():
    build()
    s = Scanner()
    yield s
    s.stop()


def unhex(word):
    return b"" if word == b"-" else bytes.fromhex(word.decode())


def agree(scanner, doc, chunk, check):
    """Compares, and returns the result."""

    verdict, fault, *rest = scanner.run(doc, chunk, check)

    try:
        members = parse(doc)
    except (ValueError, RecursionError):
        # a field may be refused before the fault that Python finds
        assert verdict == b"json" or (check and verdict == b"field"), doc
        return "json"

    try:
        found = expect(members, check)
    except Field:
        assert verdict == b"field", doc
        unhex(fault).decode("utf-8")
        return "field"

    assert verdict == b"ok", (doc, unhex(fault))

    for name, word in zip(WATCHES, rest):
        compare(doc, name, word, found)

    word, *counts = rest[len(WATCHES)].decode().split(":")
    assert word == "marks"
    assert [int(n) for n in counts] == count_marks(members), doc

    if "model" in found:
        spliced(doc, unhex(rest[len(WATCHES) + 1]), rest[0], check)
    return "ok"


def compare(doc, name, word, found):
    t, start, end, elements, length, text = word.split(b":")
    t, start, end = int(t), int(start), int(end)

    if name not in found:
        assert t == 0, (doc, name)
        return

    value = found[name]
    assert t == kind(value), (doc, name)

    token = json.loads(doc[start:end].decode(), object_pairs_hook=Pairs,
                       parse_int=Number, parse_float=Number)
    assert token == value, (doc, name)
    assert not doc[start:start + 1].isspace()
    assert not doc[end - 1:end].isspace()

    if isinstance(value, list):
        assert int(elements) == len(value), (doc, name)

    elif isinstance(value, str):
        if lone(value) or len(value.encode()) > TEXT:
            assert int(length) == TEXT + 1
        else:
            assert unhex(text) == value.encode()
            assert int(length) == len(value.encode())


def spliced(doc, got, word, check):
    start, end = (int(n) for n in word.split(b":")[1:3])
    assert got == doc[:start] + b'"spliced"' + doc[end:]

    # members of the root: the model alone has changed, and only where it counts

    before, after = parse(doc), parse(got)
    last = max(i for i, (k, _) in enumerate(before) if k == "model")
    assert after[last] == ("model", "spliced")
    assert before[:last] == after[:last]
    assert before[last + 1:] == after[last + 1:]


# documents

texts = st.text(st.characters(codec="utf-8"), max_size=40) \
    | st.text(string.ascii_letters + "\\\"/\n\t \x7f\u00e9\u4f60\U0001f639",
              max_size=400)
numbers = st.integers().map(str) | st.from_regex(
    r"-?(0|[1-9][0-9]{0,11})(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?",
    fullmatch=True)
keys = st.sampled_from([
    "model", "messages", "stream", "max_tokens", "stream_options", "usage",
    "include_usage", "tokens", "Model", "\u017ftream", "max_to\u212aens",
    "stream_options.include_usage", "models", "fallbacks", "APIBASE", "x", "",
    "url", "type", "types", "tasks_kissed"
]) | texts


@st.composite
def cases(draw):
    """A name that is watched or marked, in any form that folds to it, or in
    one that nearly does."""

    name = draw(st.sampled_from(
        [m for m, _ in MARKS] + [w.rpartition(".")[2] for w in WATCHES]))
    other = {"s": "S\u017f\u015f", "k": "K\u212a\u212b", "i": "I\u0131\u0130",
             "_": "_-\x7f"}
    out = [draw(st.sampled_from(c + c.upper() + other.get(c, "")))
           for c in name]
    return "".join(out)


keys = keys | cases()


class Raw(str):
    """Inserted into the document unchanged."""


class Members(list):
    """An object; a key may occur twice."""


def containers(values):
    return st.lists(values, max_size=4) \
        | st.lists(st.tuples(keys, values), max_size=4).map(Members)


values = st.recursive(
    st.none() | st.booleans() | numbers.map(Raw) | texts
    | st.sampled_from([Raw('"\\ud800"'), Raw('"\\udc00x"'), Raw("0"),
                       Raw('"im\\ud800age"'), Raw('"image\\udc00"'), "image",
                       "image_url", "imag", "data:", "data:image/png;base64,A",
                       "img\u00e9\n", "img\u00e9\n more", "mmm", "url"]),
    containers, max_leaves=12)

likely = st.one_of(
    st.tuples(st.just("model"), texts | values),
    st.tuples(st.just("messages"), st.lists(values, max_size=3)),
    st.tuples(st.just("stream"), st.booleans() | st.none()),
    st.tuples(st.just("max_tokens"), numbers.map(Raw)),
    st.tuples(st.just("stream_options"), st.lists(st.one_of(
        st.tuples(st.just("include_usage"), st.booleans()),
        st.tuples(keys, values)), max_size=3).map(Members)),
    st.tuples(st.just("usage"), st.lists(st.one_of(
        st.tuples(st.just("tokens"), numbers.map(Raw)),
        st.tuples(keys, values)), max_size=3).map(Members)),
    st.tuples(st.sampled_from(["url", "type", "x"]) | cases(), values),
    st.tuples(keys, values))

roots = st.lists(likely, max_size=7).map(Members)
spaces = st.text(" \t\n\r", max_size=3)


def spell_text(draw, text):
    out = []
    for c in text:
        how = draw(st.integers(0, 9)) if len(text) < 60 else 9
        if ord(c) < 0x20 or c in '"\\' or how == 0:
            units = c.encode("utf-16-be")
            escaped = "".join("\\u%04x" % int.from_bytes(units[i:i + 2], "big")
                              for i in range(0, len(units), 2))
            out.append(json.dumps(c)[1:-1] if how > 4 else escaped)
        else:
            out.append(c)
    return '"' + "".join(out) + '"'


def spell(draw, value):
    """The value as JSON, in one of many forms."""

    sep = lambda mark: draw(spaces) + mark + draw(spaces)

    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, str):
        return spell_text(draw, value)
    if isinstance(value, Members):
        return "{" + draw(spaces) + sep(",").join(
            spell_text(draw, k) + sep(":") + spell(draw, v)
            for k, v in value) + draw(spaces) + "}"
    if isinstance(value, list):
        return "[" + draw(spaces) + sep(",").join(
            spell(draw, v) for v in value) + draw(spaces) + "]"
    return json.dumps(value)


@st.composite
def documents(draw):
    text = draw(spaces) + spell(draw, draw(roots)) + draw(spaces)
    return text.encode("utf-8")


@st.composite
def damaged(draw):
    """A document with a few bytes changed, lost, or put in."""

    doc = bytearray(draw(documents()))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(doc)))
        piece = draw(st.binary(max_size=2) | st.sampled_from([
            b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b".",
            b"e", b"\\u", b"\\ud83d", b"\xef\xbb\xbf", b"\xed\xa0\x80",
            b"\xc0\xaf", b"\xf4\x90\x80\x80", b"NaN", b"Infinity", b"/**/",
            b"\x0b", b"\x0c", b"\x00", b"\xc2\xa0", b"nul", b"tru", b"1.",
            b"01", b"+1", b"{}", b"'", b"//"]))
        doc[at:at + draw(st.integers(0, 2))] = piece
    return bytes(doc)


chunks = st.integers(1, 31) | st.just(1 << 20)


@PROFILE
@given(documents(), chunks, st.booleans())
def test_documents(scanner, doc, chunk, check):
    assert agree(scanner, doc, chunk, check) != "json"


@PROFILE
@given(damaged(), chunks, st.booleans())
@example(b'{"a":NaN}', 1, True)
@example(b'{"a":-Infinity}', 1, True)
@example(b'\xef\xbb\xbf{}', 1, True)
@example(b'{"model":"\xed\xa0\x80"}', 1, True)
def test_damaged_documents(scanner, doc, chunk, check):
    agree(scanner, doc, chunk, check)


@PROFILE
@given(st.binary(max_size=60) | st.text('{}[]:,"\\u0-1.eE tfn', max_size=30)
       .map(str.encode), chunks, st.booleans())
def test_any_bytes(scanner, doc, chunk, check):
    agree(scanner, doc, chunk, check)


@PROFILE
@given(documents() | damaged(), st.booleans())
def test_any_split_says_the_same(scanner, doc, check):
    whole = scanner.run(doc, len(doc) + 1, check)
    for chunk in list(range(1, 32)):
        assert scanner.run(doc, chunk, check) == whole, doc


@PROFILE
@given(documents(), st.data())
def test_marks_with_one_cut(scanner, doc, data):
    """In chunks that end in the middle of a key, a value, an escape."""

    for chunk in range(1, len(doc) + 1) if len(doc) < 200 else [
            data.draw(st.integers(1, len(doc))) for _ in range(40)]:
        agree(scanner, doc, chunk, False)


def test_marks_are_found():
    """The documents have some marks: else the tests above would be void."""

    doc = parse(b'{"url":[{"url":"data:1","x":{"type":"image"}}],'
                b'"t\\u0079pe":"im\\u0061ges"}')
    assert count_marks(doc) == [2, 1, 2, 0, 1, 0, 0, 0, 0]


@PROFILE
@given(cases(), st.sampled_from(['{%s:"image"}', '{"x":[{%s:{}}]}',
                                 '{"usage":{%s:1}}', '{"usage":{"x":{%s:1}}}',
                                 '{"stream_options":{%s:true}}']),
       st.booleans(), st.data())
def test_names_in_any_case(scanner, name, around, check, data):
    """At every depth, and with every cut."""

    key = spell_text(data.draw, name)
    doc = (around % key).encode("utf-8")
    verdict = agree(scanner, doc, 1 << 20, check)
    for chunk in range(1, len(doc)):
        assert agree(scanner, doc, chunk, check) == verdict


@pytest.mark.parametrize("levels", [1, 2, 63, 64, 65, 66, 500])
def test_p6_depth(scanner, levels):
    """The root is the first of 64 levels."""

    doc = b'{"a":' + b"[" * (levels - 1) + b"1" + b"]" * (levels - 1) + b"}"
    assert agree(scanner, doc, 7, True) == ("ok" if levels <= 64 else "json")


@pytest.mark.parametrize("count", [1, 255, 256, 257, 300])
def test_p6_keys(scanner, count):
    """256 keys in an object that is checked."""

    doc = json.dumps({"k%d" % i: i for i in range(count)}).encode()
    assert agree(scanner, doc, 1 << 20, True) \
        == ("ok" if count <= 256 else "field")
    assert agree(scanner, doc, 1 << 20, False) == "ok"
    assert agree(scanner, b'{"x":' + doc + b"}", 100, True) == "ok"


@pytest.mark.parametrize("field", [w for w in WATCHES if "." not in w])
@pytest.mark.parametrize("value", [
    "0", "-1", "1e2", "100.0", "1e400", "999999999", "1000000000",
    str(2 ** 64), "9" * 5000, "null", "true", "false", '"1"', "[]", "{}",
    '"\\ud800"', '"' + "x" * 300 + '"'])
def test_p7_p11_type_matrix(scanner, field, value):
    """Every kind of value in every watched field."""

    doc = ('{"%s" : %s }' % (field, value)).encode()
    for chunk in (1, 5, 1 << 20):
        for check in (True, False):
            agree(scanner, doc, chunk, check)
