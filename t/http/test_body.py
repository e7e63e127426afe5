"""The request body: what is refused before anything is sent to the upstream
(P1 to P14), and how bodies arrive."""

import gzip
import itertools
import json
import random
import time

import pytest

import client
import gateway as lib
from client import assert_flat, build
from gateway import chat, messages
from upstream import chat_completion, reply_json

GOOD = '{"model":"fam-b-one","messages":[{"role":"user","content":"Hi"}]%s}'
GOOD_A = ('{"model":"fam-a-large","max_tokens":9,"messages":'
          '[{"role":"user","content":"Hi"}]%s}')

FIELD = ("INVALID_FIELD", "INVALID_JSON")


def bad(gw, body, code=FIELD, has=None, **kw):
    """The body is refused, and the upstream gets nothing."""
    gw.a.reset(), gw.b.reset()
    r = gw.chat(body if isinstance(body, bytes) else body.encode(), **kw)
    assert_flat(r, 400, code, has=has)
    assert gw.untouched()
    return r


def good(gw, body, script=None, **kw):
    """The body passes; except for the model's id it arrives byte for byte."""
    if isinstance(body, str):
        body = body.encode()
    gw.b.reset()
    if script:
        gw.b.script(script)
    r = gw.chat(body, **kw)
    assert r.status == 200, (body[:200], r)
    assert gw.b.last().body == body.replace(b'"fam-b-one"', b'"one-0613"', 1)
    return r


def with_extra(extra):
    return GOOD % ("," + extra)


# P1: duplicate keys

def test_P1_duplicate_model(gw, http):
    bad(gw, with_extra('"model":"fam-b-two"'), "INVALID_FIELD", "model",
        version=http)


@pytest.mark.parametrize("extra", [
    '"model":"fam-b-one"', '"mod\\u0065l":"fam-b-two"',
    '"\\u006d\\u006f\\u0064\\u0065\\u006c":"fam-b-two"',
    '"messages":[]', '"x":1,"x":1', '"x":1,"\\u0078":2',
    '"stream":false,"stream":true', '"max_tokens":1,"max_tokens":2',
    '"temperature":1,"top_p":1,"temperature":1', '"":1,"":2',
    '"a\\/b":1,"a/b":2', '"\\u00e9":1,"\u00e9":2',
    '"\\ud83d\\ude00":1,"\U0001f600":2'])
def test_P1_duplicate_key_at_the_top(gw, extra):
    bad(gw, with_extra(extra), "INVALID_FIELD")


@pytest.mark.parametrize("where", ["stream_options", "thinking"])
def test_P1_duplicate_key_inside(gw, where):
    bad(gw, with_extra('"stream":true,"%s":{"x":1,"x":2}' % where),
        "INVALID_FIELD")


def test_P1_duplicate_include_usage(gw):
    for second in ("include_usage", "include_\\u0075sage", "Include_Usage"):
        bad(gw, with_extra('"stream":true,"stream_options":'
                           '{"include_usage":true,"%s":false}' % second),
            "INVALID_FIELD")


def test_P1_duplicate_elsewhere_is_not_ours(gw):
    """Deeper in the body it passes unchanged, for the upstream to judge."""
    good(gw, with_extra('"tools":[{"x":1,"x":2,"model":3,"model":4}]'))
    good(gw, with_extra('"metadata":{"model":"a","model":"b","Model":"c"}'))


# P2: case variants

def test_P2_all_casings_of_model(gw):
    with gw.connect() as c:
        for bits in itertools.product((0, 1), repeat=5):
            word = "".join(ch.upper() if b else ch
                           for ch, b in zip("model", bits))
            if word == "model":
                continue
            body = with_extra('"%s":"fam-b-two"' % word)
            c.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                      body=body)
            assert_flat(c.response(), 400, "INVALID_FIELD")
    assert gw.untouched()


@pytest.mark.parametrize("word", [
    "\u017ftream", "meſſages", "max_to\u212aens", "max_to\\u212aens",
    "Stream", "STREAM", "Messages", "Max_Tokens", "MAX_COMPLETION_TOKENS",
    "max_completion_to\u212aens", "Stream_Options", "\u017ftream_options",
    "\\u017ftream", "N", "me\\u017fsages"])
def test_P2_folded_policy_keys(gw, word):
    bad(gw, with_extra('"%s":1' % word), "INVALID_FIELD")


@pytest.mark.parametrize("word", ["Models", "FALLBACKS", "fallbac\u212as",
                                  "Provider", "Api_Base", "Api_Key",
                                  "api_\u212aey", "ba\u017fe_url"])
def test_P2_folded_denied_keys(gw, word):
    bad(gw, with_extra('"%s":"x"' % word), "INVALID_FIELD")


def test_P2_other_keys_have_any_case(gw):
    good(gw, with_extra('"Temperature":1,"temperature":1,"X":2,"x":3'))


@pytest.mark.parametrize("body", [
    '{"Model":"fam-b-one","messages":[]}',
    '{"MODEL":"fam-b-one","messages":[]}'])
def test_P2_variant_alone_is_refused(gw, body):
    bad(gw, body, ("INVALID_FIELD", "MISSING_FIELD"))


# P3: escapes in keys

@pytest.mark.parametrize("key", [
    "mod\\u0065l", "\\u006dodel", "\\u006D\\u006F\\u0064\\u0065\\u006C"])
def test_P3_escaped_model_key_counts(gw, key):
    """It is the model, and the splice finds its value by offset."""
    body = ('{"%s":"fam-b-one","messages":[{"role":"user","content":'
            '"\\"model\\":\\"fam-b-one\\""}]}' % key)
    gw.b.reset()
    r = gw.chat(body.encode())
    assert r.status == 200, r
    assert gw.b.last().body == body.replace('"fam-b-one"', '"one-0613"',
                                            1).encode()


@pytest.mark.parametrize("value", [
    "fam-b-\\u006fne", "\\u0066am-b-one", "fam\\u002db\\u002Done"])
def test_P3_escaped_model_value_is_the_model(gw, value):
    body = GOOD.replace("fam-b-one", value, 1) % ""
    gw.b.reset()
    r = gw.chat(body.encode())
    assert r.status == 200, r
    assert gw.b.last().body == (GOOD.replace("fam-b-one", "one-0613", 1)
                                % "").encode()


@pytest.mark.parametrize("key", ["model ", " model", "modelo", "mode",
                                 "model\\n", "x"])
def test_P3_near_keys_are_other_keys(gw, key):
    good(gw, with_extra('"%s":"fam-b-two"' % key))


@pytest.mark.parametrize("key", ["model\\u0000", "model\\u0000x", "\\u0000",
                                 "m\\u0000odel"])
def test_P3_keys_with_nul(gw, key):
    """It is another key, or is refused: never the model."""
    body = with_extra('"%s":"fam-b-two"' % key)
    r = gw.chat(body.encode())
    if r.status == 200:
        good(gw, body)
    else:
        bad(gw, body)
    bad(gw, '{"%s":"fam-b-one","messages":[]}' % key,
        ("MISSING_FIELD",) + FIELD)


@pytest.mark.parametrize("value", [
    "fam-b-one\\u0000", "fam-b-one ", " fam-b-one", "fam-b-one\\n",
    "FAM-B-ONE", "Fam-b-one", "fam-b-on", "fam-b-onee", "fam-b-one\\u0301",
    "fam\u2010b-one", "fam-b-", "fam-b-one/", "fam-b-one%%00",
    "fam-b-one\\\"", "../fam-b-one", "one-0613"])
def test_P12_near_misses_of_the_id(gw, value):
    body = GOOD.replace("fam-b-one", value, 1) % ""
    r = gw.chat(body.encode())
    assert r.status in (400, 403), r
    assert_flat(r, r.status, ("INVALID_MODEL", "INVALID_FIELD",
                              "PROVIDER_MISMATCH"))
    assert gw.untouched()


# P4: bytes that are no UTF-8

INVALID_UTF8 = [
    b"\xc0\xa2", b"\xc1\xbf", b"\xe0\x80\xaf", b"\xe0\x9f\xbf",
    b"\xf0\x80\x80\xaf", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80",
    b"\xf5\x80\x80\x80", b"\xf7\xbf\xbf\xbf", b"\xf8\x88\x80\x80\x80",
    b"\xff", b"\xfe", b"\x80", b"\xbf", b"\xc3", b"\xe2\x82", b"\xe2\x28\xa1",
    b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xed\xbf\xbf",
    b"\xed\xa0\xbd\xed\xb8\x80",
    b"\xc3\xc3\xa9", b"\xe9"]


@pytest.mark.parametrize("junk", INVALID_UTF8, ids=lambda b: b.hex())
def test_P4_invalid_utf8(gw, junk):
    for where in (b'"x":"%s"', b'"%s":1', b'"x":["a%sb"]',
                  b'"x":{"k%sk":1}', b'"x":"' + b"y" * 61 + b'%s'
                  + b"z" * 70 + b'"'):
        bad(gw, GOOD.encode() % (b"," + where % junk), "INVALID_JSON")
    bad(gw, GOOD.encode().replace(b"fam-b-one", b"fam-b-one" + junk)
        % b"", "INVALID_JSON")


@pytest.mark.parametrize("text", [
    "\u00e9", "\u20ac", "\ud7ff", "\ue000", "\ufffd", "\uffff",
    "\U00010000", "\U0010ffff", "\u2028", "\x7f", "e\u0301", "\ufeff"])
def test_P4_valid_utf8_passes(gw, text):
    good(gw, with_extra('"x":"%s"' % text))
    good(gw, with_extra('"%s":1' % text))


@pytest.mark.parametrize("escape", ["\\ud800", "\\udc00", "\\ud800\\u0065",
                                    "\\ud83d", "\\ude00\\ud83d",
                                    "\\ud800\\ud800\\udc00"])
def test_P4_lone_surrogates(gw, escape):
    """Refused in keys and in the model; elsewhere they pass untouched."""
    bad(gw, with_extra('"%s":1' % escape))
    bad(gw, GOOD.replace("fam-b-one", "fam-b-one" + escape) % "",
        ("INVALID_FIELD", "INVALID_MODEL", "INVALID_JSON"))
    good(gw, with_extra('"x":"%s","y":{"k":["%s"]}' % (escape, escape)))


@pytest.mark.parametrize("body", [
    b"\xef\xbb\xbf" + (GOOD % "").encode(),
    (GOOD % "").encode("utf-16"), (GOOD % "").encode("utf-16-le"),
    (GOOD % "").encode("utf-16-be"), (GOOD % "").encode("utf-32"),
    b"\x00" + (GOOD % "").encode()], ids=["bom", "16", "16le", "16be", "32",
                                          "nul"])
def test_P4_bom_and_other_encodings(gw, body):
    bad(gw, body, "INVALID_JSON")


def test_P4_control_bytes_in_strings(gw):
    with gw.connect() as c:
        for byte in range(0x20):
            body = GOOD.encode() % (b',"x":"a%cb"' % byte)
            c.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                      body=body)
            assert_flat(c.response(), 400, "INVALID_JSON")
    assert gw.untouched()


# The cases of JSONTestSuite on which parsers differ (i_*.json), with our
# result for each: 1 passes, 0 is refused, None: either.
DISPUTED = {
    "number_double_huge_neg_exp": (b"[123.456e-789]", 1),
    "number_huge_exp": (b"[0.4e00669999999999999999999999999999999999999999"
                        b"999999999999999999999999999999999999969999999006]",
                        1),
    "number_neg_int_huge_exp": (b"[-1e+9999]", 1),
    "number_pos_double_huge_exp": (b"[1.5e+9999]", 1),
    "number_real_neg_overflow": (b"[-123123e100000]", 1),
    "number_real_pos_overflow": (b"[123123e100000]", 1),
    "number_real_underflow": (b"[123e-10000000]", 1),
    "number_too_big_neg_int": (b"[-123123123123123123123123123123]", 1),
    "number_too_big_pos_int": (b"[100000000000000000000]", 1),
    "number_very_big_negative_int":
        (b"[-237462374673276894279832749832423479823246327846]", 1),
    "object_key_lone_2nd_surrogate": (b'{"\\uDFAA":0}', None),
    "string_1st_surrogate_but_2nd_missing": (b'["\\uDADA"]', 1),
    "string_1st_valid_surrogate_2nd_invalid": (b'["\\uD888\\u1234"]', 1),
    "string_incomplete_surrogate_and_escape_valid": (b'["\\uD800\\n"]', 1),
    "string_incomplete_surrogate_pair": (b'["\\uDd1ea"]', 1),
    "string_incomplete_surrogates_escape_valid":
        (b'["\\uD800\\uD800\\n"]', 1),
    "string_invalid_lonely_surrogate": (b'["\\ud800"]', 1),
    "string_invalid_surrogate": (b'["\\ud800abc"]', 1),
    "string_invalid_utf-8": (b'["\xff"]', 0),
    "string_inverted_surrogates": (b'["\\uDd1e\\uD834"]', 1),
    "string_iso_latin_1": (b'["\xe9"]', 0),
    "string_lone_second_surrogate": (b'["\\uDFAA"]', 1),
    "string_lone_utf8_continuation_byte": (b'["\x81"]', 0),
    "string_not_in_unicode_range": (b'["\xf4\xbf\xbf\xbf"]', 0),
    "string_overlong_sequence_2_bytes": (b'["\xc0\xaf"]', 0),
    "string_overlong_sequence_6_bytes":
        (b'["\xfc\x83\xbf\xbf\xbf\xbf"]', 0),
    "string_overlong_sequence_6_bytes_null":
        (b'["\xfc\x80\x80\x80\x80\x80"]', 0),
    "string_truncated-utf-8": (b'["\xe0\xff"]', 0),
    "string_UTF-16LE_with_BOM": (b'\xff\xfe[\0"\0\xe9\0"\0]\0', 0),
    "string_UTF-8_invalid_sequence":
        (b'["\xe6\x97\xa5\xd1\x88\xfa"]', 0),
    "string_UTF8_surrogate_U+D800": (b'["\xed\xa0\x80"]', 0),
    "string_utf16BE_no_BOM": (b'\0[\0"\0\xe9\0"\0]', 0),
    "string_utf16LE_no_BOM": (b'[\0"\0\xe9\0"\0]\0', 0),
    "structure_500_nested_arrays": (b"[" * 500 + b"]" * 500, 0),
    "structure_UTF-8_BOM_empty_object": (b"\xef\xbb\xbf{}", 0)}


@pytest.mark.parametrize("name", DISPUTED)
def test_P4_disputed(gw, name):
    """As the value of another key; with the same result in any framing."""
    text, verdict = DISPUTED[name]
    body = GOOD.encode() % (b',"x":' + text)
    for kw in ({}, {"chunked": 1}, {"version": "h2"}):
        if verdict is None:
            verdict = int(gw.chat(body).status == 200)
        if verdict:
            good(gw, body, **kw)
        else:
            bad(gw, body, **kw)
    bad(gw, text, FIELD + ("MISSING_FIELD",))


# P5: what looks like JSON

NOT_JSON = [
    "", " ", "{", "}", "{}}", '{"model"', '{"model":', '{"model":"fam-b-one"',
    "[]", '"x"', "1", "null", "true", "[{}]", "{,}", '{"a":1,}',
    GOOD % ",", GOOD % "" + ",", GOOD % "" + "{}", GOOD % "" + GOOD % "",
    GOOD % "" + "/* */", GOOD % "" + "// x", "/* */" + GOOD % "",
    GOOD % ',"x":[1,]', GOOD % ',"x":[,1]', GOOD % ',"x":[1 2]',
    GOOD % ',"x":{"a" 1}', GOOD % ',"x":{a:1}', GOOD % ",'x':1",
    GOOD % ',"x":NaN', GOOD % ',"x":Infinity', GOOD % ',"x":-Infinity',
    GOOD % ',"x":undefined', GOOD % ',"x":True', GOOD % ',"x":nul',
    GOOD % ',"x":nulll', GOOD % ',"x":"\\x41"', GOOD % ',"x":"\\u12g4"',
    GOOD % ',"x":"\\u12"', GOOD % ',"x":"\\', GOOD % ',"x":"\\\'"',
    GOOD % ',"x":"\\U0041"', GOOD % ',"x":01', GOOD % ',"x":+1',
    GOOD % ',"x":.5', GOOD % ',"x":1.', GOOD % ',"x":1.e5',
    GOOD % ',"x":1e', GOOD % ',"x":1e+', GOOD % ',"x":-', GOOD % ',"x":0x10',
    GOOD % ',"x":--1', GOOD % ',"x":1_000', GOOD % ',"x":-01',
    GOOD % ',"x":[1}', GOOD % ',"x":{"a":1]', GOOD % ',"x":[',
    GOOD % ',"x"', GOOD % ',"x":', GOOD % ',1:2', GOOD % ',null:1',
    "\x0b" + GOOD % "", "\x0c" + GOOD % "", "\xa0" + GOOD % "",
    GOOD % ',\x0b"x":1', GOOD % ',\x0c"x":1', "\u2028" + GOOD % "",
    "data: " + GOOD % "", "model=fam-b-one&messages=x"]


@pytest.mark.parametrize("body", NOT_JSON, ids=range(len(NOT_JSON)))
def test_P5_not_json(gw, body):
    bad(gw, body, "INVALID_JSON")


def test_P5_every_tail_byte(gw):
    """RFC 8259, section 2: space, tab, LF, CR may follow, nothing else."""
    with gw.connect() as c:
        for byte in range(256):
            c.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                      body=(GOOD % "").encode() + bytes([byte]))
            r = c.response()
            if byte in b" \t\n\r":
                assert r.status == 200, byte
                assert gw.b.last().body[-1] == byte
            else:
                assert_flat(r, 400, "INVALID_JSON")


def test_P5_white_space_passes(gw):
    body = '\r\n\t { \n"model" \t:\r "fam-b-one" ,\n "messages" : [ ] } \n'
    good(gw, body)


def test_P5_cut_everywhere(gw):
    """A truncated body is never valid."""
    body = (GOOD % ',"x":[1.5e3,null,"\\u0041\\n\u20ac"]').encode()
    with gw.connect() as c:
        for i in range(len(body)):
            c.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                      body=body[:i])
            assert_flat(c.response(), 400, "INVALID_JSON")
    assert gw.untouched()


def test_message_names_the_byte(gw):
    r = bad(gw, GOOD % ',"x":nul', "INVALID_JSON")
    assert any(ch.isdigit() for ch in r.json()["message"]), r


# P6: size of the structure

def test_P6_depth(gw):
    good(gw, with_extra('"x":' + "[" * 60 + "]" * 60))
    good(gw, with_extra('"x":' + '{"a":' * 60 + "1" + "}" * 60))
    bad(gw, with_extra('"x":' + "[" * 66 + "]" * 66))
    bad(gw, with_extra('"x":' + '{"a":' * 66 + "1" + "}" * 66))


@pytest.mark.parametrize("bomb", [
    b"[" * 1000000, b'{"a":' * 300000, b'{"x":' + b"[" * 1000000],
    ids=["arrays", "objects", "inside"])
def test_P6_depth_bomb(gw, bomb):
    cpu = gw.cpu()
    bad(gw, bomb)
    assert gw.cpu() - cpu < 5


def test_P6_keys_of_the_top(gw):
    def keys(n):
        return ",".join('"k%d":%d' % (i, i) for i in range(n))

    good(gw, with_extra(keys(250)))
    bad(gw, with_extra(keys(260)))
    bad(gw, with_extra(keys(20000)))


def test_P6_many_keys_and_elements_inside_pass(gw):
    good(gw, with_extra('"tools":[{%s}]' % ",".join(
        '"k%d":0' % i for i in range(5000))))
    good(gw, with_extra('"x":[' + "0," * 1000000 + "0]"))


SIZE = 4 << 20

COSTLY = {
    "arrays": lambda: '"x":[' + "[]," * (SIZE // 3) + "1]",
    "numbers": lambda: '"x":[' + "1," * (SIZE // 2) + "1]",
    "strings": lambda: '"x":[' + '"",' * (SIZE // 3) + "1]",
    "keys": lambda: '"x":{' + '"":1,' * (SIZE // 5) + '"":1}',
    "escapes": lambda: '"x":"' + "\\n" * (SIZE // 2) + '"',
    "units": lambda: '"x":"' + "\\ud83d\\ude00" * (SIZE // 12) + '"',
    "utf-8": lambda: '"x":"' + "\u00e9" * (SIZE // 2) + '"',
    "mixed": lambda: '"x":"' + "a\u20ac\\n" * (SIZE // 6) + '"',
    "blanks": lambda: " " * SIZE + '"x":1',
    "nested": lambda: '"x":[' + ("[" * 50 + "]" * 50 + ",") * (SIZE // 101)
    + "1]"}


@pytest.fixture(scope="module")
def meter(module_gateway):
    """CPU time and memory of one body, on a separate gateway."""
    gw = module_gateway(workers=1)

    # the usual upstream takes seconds to parse a million arrays
    answer = reply_json(chat_completion("one-0613"))

    def run(extra, **kw):
        cpu, before = gw.cpu(), gw.memory()
        for _ in range(3):
            good(gw, with_extra(extra), answer, **kw)
        return (gw.cpu() - cpu) / 3, gw.memory() - before

    run('"x":"%s"' % ("x" * SIZE))
    return run


@pytest.mark.skipif(lib.ASAN, reason="time and memory are the sanitizer's")
@pytest.mark.parametrize("name", COSTLY)
def test_P6_cost_of_a_byte(meter, name):
    """At most ten times that of plain text, in time and in memory; 50 ms allow
    for the resolution of the clock."""
    plain = min(meter('"x":"%s"' % ("x" * SIZE))[0] for _ in range(2))
    cpu, memory = meter(COSTLY[name]())
    assert cpu <= 10 * plain + 0.05, (cpu, plain)
    assert memory <= 3 * SIZE, memory


def test_P8_cost_of_small_chunks(meter):
    """Small chunks cost more to read, but nothing is scanned twice (yajl took
    15 seconds for 10 MB in pieces of 1400)."""
    whole = meter('"x":"%s"' % ("x" * SIZE), chunked=65536)[0]
    pieces = meter('"x":"%s"' % ("x" * SIZE), chunked=1400)[0]
    assert pieces <= 10 * whole + 0.1, (pieces, whole)


@pytest.mark.skipif(lib.ASAN or lib.GLIBC < (2, 33),
                    reason="memory is the sanitizer's, or another allocator's")
def test_memory_is_given_back(gateway, upstreams):
    """A worker keeps the memory of large bodies, until they do not come any
    more."""
    gw = gateway(workers=1, location="client_body_buffer_size 4m;")
    start = gw.memory("VmRSS")
    body = GOOD % (',"x":"%s"' % ("x" * 4000000))
    call = build("POST", "/v1/chat/completions", [gw.bob.bearer()], body)
    connections = [client.Connection(gw.port) for _ in range(50)]
    for c in connections:
        c.send(call[:-1])       # all are in memory at once
    end = time.monotonic() + client.LIMIT
    while gw.memory("VmRSS") < start + 150e6:
        assert time.monotonic() < end, gw.memory("VmRSS")
        time.sleep(0.05)
    for c in connections:
        c.close()
    end = time.monotonic() + 3 * client.LIMIT
    while gw.memory("VmRSS") > start + 70e6:
        assert time.monotonic() < end, gw.memory("VmRSS")
        time.sleep(0.1)


# P7: numbers

WRONG_COUNTS = ["1e400", "1e2", "100.0", "-1", "18446744073709551616",
                "1000000000", "9" * 4000, "0.5", "-0", "1E1", '"100"',
                "true", "[]", "{}", "[100]"]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens",
                                   "n"])
@pytest.mark.parametrize("number", WRONG_COUNTS,
                         ids=lambda s: s[:12])
def test_P7_priced_numbers(gw, field, number):
    bad(gw, with_extra('"%s":%s' % (field, number)), "INVALID_FIELD", field)


def test_P7_max_tokens_of_messages(gw):
    for number in WRONG_COUNTS:
        body = GOOD_A.replace(":9,", ":%s," % number) % ""
        r = gw.messages(body.encode())
        assert_flat(r, 400, "INVALID_FIELD", has="max_tokens")
    assert gw.untouched()


def test_P7_leading_zeros_are_not_json(gw):
    bad(gw, with_extra('"max_tokens":007'), "INVALID_JSON")


@pytest.mark.parametrize("number", ["1", "999999999", "42"])
def test_P7_plain_counts_pass(gw, number):
    good(gw, with_extra('"max_tokens":%s' % number))
    good(gw, with_extra('"max_completion_tokens":%s' % number))


def test_P7_huge_digits(gw):
    bad(gw, with_extra('"max_tokens":' + "1" * 400000), "INVALID_FIELD")


@pytest.mark.parametrize("number", [
    "1e400", "-0", "-0.0e-0", "1E+2", "0.1e1", "123456789012345678901234567",
    "-1e-999", "1.0000000000000000000000000000000001"])
def test_P7_other_numbers_pass_as_bytes(gw, number):
    good(gw, with_extra('"temperature":%s,"seed":%s' % (number, number)))


# P9: the body in memory and in a file, whole and in pieces

@pytest.fixture(scope="module", params=["1k", "16k", "1m"])
def sized(request, module_gateway):
    return module_gateway(location="client_body_buffer_size %s;"
                          % request.param)


@pytest.mark.parametrize("chunked", [False, True])
def test_P9_same_verdicts_in_files(sized, chunked):
    gw = sized
    pad = '"pad":"%s"' % ("p" * 40000)
    for extra, code in ((pad, None),
                        (pad + ',"model":"fam-b-two"', "INVALID_FIELD"),
                        (pad + ',"Model":"fam-b-two"', "INVALID_FIELD"),
                        (pad + ',"models":[]', "INVALID_FIELD"),
                        (pad + ',"max_tokens":1e2', "INVALID_FIELD"),
                        (pad + ',"x":tru', "INVALID_JSON")):
        if code:
            bad(gw, with_extra(extra), code, chunked=chunked)
        else:
            good(gw, with_extra(extra), chunked=chunked)


def test_P9_splice_at_every_offset_around_the_buffer(sized):
    """The model's token spans the end of the buffer at each offset."""
    gw = sized
    with gw.connect() as c:
        for edge in (1024, 16384):
            for at in range(edge - 24, edge + 4):
                head = '{"pad":"'
                mid = '","model":'
                pad = "p" * (at - len(head) - len(mid))
                body = (head + pad + mid + '"fam-b-one","messages":[],"t":"'
                        + "q" * 3000 + '"}').encode()
                gw.b.reset()
                c.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                          body=body)
                assert c.response().status == 200
                request = gw.b.last()
                assert request.body == body.replace(b'"fam-b-one"',
                                                    b'"one-0613"', 1)
                assert request.get("content-length") == str(
                    len(request.body))


# P10: encoded bodies

@pytest.mark.parametrize("values", [
    ["gzip"], ["br"], ["deflate"], ["zstd"], ["GZIP"], ["gzip, identity"],
    ["identity, gzip"], ["identity", "gzip"], ["gzip", "identity"],
    ["x-gzip"], ["compress"], ["aes128gcm"], ["unknown"]],
    ids=lambda v: "+".join(v))
def test_P10_content_encoding(gw, values, http):
    headers = [("Content-Encoding", v) for v in values]
    r = gw.chat(headers=headers, version=http)
    assert_flat(r, 415, "UNSUPPORTED_ENCODING")
    assert gw.untouched()


def test_P10_gzip_body(gw):
    r = gw.chat(gzip.compress((GOOD % "").encode()),
                headers=[("Content-Encoding", "gzip")])
    assert_flat(r, 415, "UNSUPPORTED_ENCODING")
    assert gw.untouched()


@pytest.mark.parametrize("value", ["identity", "Identity", ""])
def test_P10_identity(gw, value):
    r = gw.chat(headers=[("Content-Encoding", value)])
    if not value and r.status != 200:
        assert_flat(r, 415, "UNSUPPORTED_ENCODING")
        return
    assert r.status == 200, r
    assert gw.b.last().get("content-encoding") is None


# P11: decoys and types

@pytest.mark.parametrize("body", [
    '{"x":{"model":"fam-b-two"},"model":"fam-b-one","messages":[]}',
    '{"messages":[{"model":"fam-b-two","role":"user"}],"model":"fam-b-one"}',
    '{"tools":[{"a":{"model":[{"model":"q"}]}}],"model":"fam-b-one",'
    '"messages":[]}',
    '{"x":"\\"model\\":\\"fam-b-two\\"","model":"fam-b-one","messages":[]}',
    '{"x":"model","y":["model","fam-b-two"],"model":"fam-b-one",'
    '"messages":[]}',
    '{"x":"\\\\","model":"fam-b-one","messages":["\\\\\\""]}'])
def test_P11_nested_decoys(gw, body):
    good(gw, body)


def test_P11_nested_model_is_no_model(gw):
    bad(gw, '{"x":{"model":"fam-b-one"},"messages":[]}', "MISSING_FIELD",
        "model")


@pytest.mark.parametrize("value", ["1", "true", "[]", "{}", '["fam-b-one"]',
                                   '{"id":"fam-b-one"}', '""', "0.5"])
def test_P11_type_of_model(gw, value):
    bad(gw, '{"model":%s,"messages":[]}' % value,
        ("INVALID_FIELD", "INVALID_MODEL"))


def test_P11_model_null(gw):
    bad(gw, '{"model":null,"messages":[]}',
        ("INVALID_FIELD", "MISSING_FIELD"), "model")


def test_P11_length_of_model(gw):
    for n in (257, 300, 5000, 1000000):
        bad(gw, '{"model":"%s","messages":[]}' % ("x" * n),
            ("INVALID_FIELD", "INVALID_MODEL"))


@pytest.mark.parametrize("field,value", [
    ("messages", "1"), ("messages", '"x"'), ("messages", "{}"),
    ("messages", "true"), ("stream", "1"), ("stream", '"true"'),
    ("stream", "[]"), ("stream", "{}"), ("stream", "0"),
    ("stream_options", "1"), ("stream_options", '"x"'),
    ("stream_options", "[]"), ("stream_options", "true"),
    ("stream_options", '{"include_usage":1}'),
    ("stream_options", '{"include_usage":"true"}'),
    ("stream_options", '{"include_usage":[]}')])
def test_P14_odd_types(gw, field, value):
    fields = {"model": '"fam-b-one"', "messages": "[]", "stream": "true"}
    fields[field] = value
    bad(gw, "{%s}" % ",".join('"%s":%s' % f for f in fields.items()),
        "INVALID_FIELD", field.split("_")[0])


# P13: fields that choose another model, endpoint or payer

DENIED = ["models", "fallbacks", "route", "provider", "api_base", "base_url",
          "api_key", "custom_llm_provider", "user_config", "extra_headers"]


@pytest.mark.parametrize("field", DENIED)
def test_P13_denied_fields(gw, field):
    for value in ('"x"', '["x"]', "{}", "null", "true", "1"):
        bad(gw, with_extra('"%s":%s' % (field, value)), "INVALID_FIELD",
            field)
    r = gw.messages((GOOD_A % (',"%s":"x"' % field)).encode())
    assert_flat(r, 400, "INVALID_FIELD", has=field)
    escaped = "".join("\\u%04x" % ord(ch) for ch in field)
    bad(gw, with_extra('"%s":1' % escaped), "INVALID_FIELD")


@pytest.mark.parametrize("field", DENIED)
def test_P13_denied_fields_inside_are_not_ours(gw, field):
    good(gw, with_extra('"metadata":{"%s":"x"},"tools":[{"%s":1}]'
                        % (field, field)))


def test_P13_deny_field(gateway):
    """deny_field adds to the list of the group, not to another's."""
    g = gateway(groups=lib.group_a()
                + lib.group_b(extra="deny_field service_tier  x-y;"))
    for field in ("service_tier", "x-y", "Service_Tier", "models"):
        bad(g, with_extra('"%s":"x"' % field), "INVALID_FIELD")
    r = g.messages((GOOD_A % ',"service_tier":"auto"').encode())
    assert r.status == 200, r


# missing and null

@pytest.mark.parametrize("target,body,field", [
    ("/v1/chat/completions", {"messages": []}, "model"),
    ("/v1/chat/completions", {"model": "fam-b-one"}, "messages"),
    ("/v1/chat/completions", {}, "model"),
    ("/v1/messages", {"messages": [], "max_tokens": 1}, "model"),
    ("/v1/messages", {"model": "fam-a-large", "max_tokens": 1}, "messages"),
    ("/v1/messages", {"model": "fam-a-large", "messages": []},
     "max_tokens"),
    ("/v1/messages/count_tokens", {"messages": []}, "model"),
    ("/v1/messages/count_tokens", {"model": "fam-a-large"}, "messages")])
def test_missing_field(gw, target, body, field):
    key = gw.bob if "chat" in target else gw.alice
    r = gw.post(target, body, key)
    assert_flat(r, 400, "MISSING_FIELD", has=field)
    assert gw.untouched()


def test_max_tokens_is_needed_nowhere_else(gw):
    assert gw.chat(chat()).status == 200
    body = messages()
    del body["max_tokens"]
    r = gw.post("/v1/messages/count_tokens", body, gw.alice)
    assert r.status == 200, r


@pytest.mark.parametrize("field", ["stream", "max_tokens", "stream_options",
                                   "max_completion_tokens", "n", "thinking"])
def test_null_is_as_good_as_absent(gw, field):
    good(gw, with_extra('"%s":null' % field))


@pytest.mark.parametrize("field", ["messages", "max_tokens", "model"])
def test_null_is_as_good_as_absent_if_required(gw, field):
    r = gw.messages(messages(**{field: None}))
    assert_flat(r, 400, ("MISSING_FIELD", "INVALID_FIELD"), has=field)
    if field == "max_tokens":
        assert r.json()["code"] == "MISSING_FIELD"
    assert gw.untouched()


def test_no_body_at_all(gw, http):
    with gw.connect() as c:
        c.request("POST", "/v1/chat/completions", [gw.bob.bearer()])
        assert_flat(c.response(), 400, ("INVALID_JSON", "MISSING_FIELD"))
        c.request("POST", "/v1/chat/completions", [gw.bob.bearer()], body=b"")
        assert_flat(c.response(), 400, ("INVALID_JSON", "MISSING_FIELD"))
    r = gw.chat(b"", version=http)
    assert_flat(r, 400, ("INVALID_JSON", "MISSING_FIELD"))


# the checks do not depend on Content-Type

@pytest.mark.parametrize("ctype", [
    None, "application/json", "text/plain", "application/json; charset=utf-8",
    "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
    "application/octet-stream", "garbage", ""])
def test_content_type_decides_nothing(gw, ctype):
    headers = [("Content-Type", ctype)] if ctype is not None else []
    good(gw, GOOD % "", headers=headers)
    bad(gw, with_extra('"model":"fam-b-two"'), "INVALID_FIELD",
        headers=headers)


# how bodies arrive

@pytest.mark.parametrize("size", [1, 2, 3, 7, 31, 1000, 100000])
def test_chunked(gw, size):
    body = with_extra('"x":"%s"' % ("\u20ac" * 30))
    good(gw, body, chunked=size)
    assert gw.b.last().get("transfer-encoding") is None


def test_chunked_with_extensions_and_trailers(gw):
    body = (GOOD % "").encode()
    with gw.connect() as c:
        c.send(build("POST", "/v1/chat/completions",
                     [gw.bob.bearer(), ("Transfer-Encoding", "chunked")]))
        c.send(b"%x;name=value\r\n" % len(body) + body
               + b"\r\n0\r\nX-Api-Key: evil\r\n\r\n")
        r = c.response()
    assert r.status in (200, 400), r
    if r.status == 200:
        assert b"evil" not in gw.b.last().head


def test_slow_writes_of_one_byte(gw):
    body = with_extra('"x":"\\u00e9\u20ac\U0001f600"').encode()
    with gw.connect() as c:
        c.send(build("POST", "/v1/chat/completions", [gw.bob.bearer()],
                     length=len(body)))
        for i in range(len(body)):
            c.send(body[i:i + 1])
            time.sleep(0.0005)
        assert c.response().status == 200
    assert gw.b.last().body == body.replace(b'"fam-b-one"', b'"one-0613"', 1)


@pytest.mark.parametrize("length", [True, False])
def test_h2_frames_of_one_byte(gw, length):
    body = (GOOD % "").encode()
    with client.H2(gw.port2) as c:
        r = c.call("POST", "/v1/chat/completions", [gw.bob.bearer()], body,
                   frame=1, length=length)
    assert r.status == 200, r
    assert gw.b.last().body == body.replace(b'"fam-b-one"', b'"one-0613"', 1)
    assert gw.b.last().get("content-length") == str(len(gw.b.last().body))


@pytest.mark.parametrize("chunked", [False, True])
def test_expect_continue(gw, chunked):
    """RFC 9110, 10.1.1: the body comes after the interim answer."""
    body = (GOOD % "").encode()
    with gw.connect() as c:
        headers = [gw.bob.bearer(), ("Expect", "100-continue")]
        if chunked:
            c.send(build("POST", "/v1/chat/completions", headers
                         + [("Transfer-Encoding", "chunked")]))
        else:
            c.send(build("POST", "/v1/chat/completions", headers,
                         length=len(body)))
        while b"\r\n\r\n" not in c.data:
            assert c.recv()
        assert c.data.startswith(b"HTTP/1.1 100"), c.data
        c.send(client.chunks(body, 9) if chunked else body)
        r = c.response()
    assert r.status == 200, r
    assert gw.b.last().get("expect") is None


def test_expect_continue_and_a_bad_key(gw):
    """The refusal is sent instead of the 100, or after it."""
    with gw.connect() as c:
        c.send(build("POST", "/v1/chat/completions",
                     [("x-api-key", "nope"), ("Expect", "100-continue")],
                     length=1000))
        r = c.response()
        assert_flat(r, 401, "INVALID_API_KEY")


@pytest.mark.parametrize("case", ["key", "path", "encoding"])
def test_expect_continue_and_no_body_after_a_refusal(gw, case):
    """A client that was refused does not send its body: its next request is
    not taken for that body (0.CL); the connection may be closed."""
    headers = [("Expect", "100-continue")]
    headers += {"key": [("x-api-key", "nope")], "path": [gw.bob.bearer()],
                "encoding": [gw.bob.bearer(), ("Content-Encoding", "gzip")]
                }[case]
    target = "/v1/nothing" if case == "path" else "/v1/chat/completions"
    with gw.connect() as c:
        c.send(build("POST", target, headers, length=50))
        r = c.response()
        assert_flat(r, (401, 404, 415))
        if r.interim or r.get("connection") == "close":
            return                  # it got a 100, or the connection is closed
        c.request("GET", "/v1/models", [gw.bob.bearer()])
        r = c.response(method="GET")
        assert r is None or r.status == 200, r


@pytest.mark.parametrize("place", ["first", "last", "middle"])
@pytest.mark.parametrize("size", [2 << 20, 30 << 20],
                         ids=["2MB", "30MB"])
def test_big_bodies(gw, place, size):
    """Byte for byte, model first, in the middle and last."""
    seed = random.Random(size).randbytes(size // 2).hex()
    pad = '"pad":"%s"' % seed[:size - 200]
    half = '"pae":"%s"' % seed[:100]
    model = '"model" :\t"fam-b-one"'
    rest = '"messages":[{"role":"user","content":"Hi"}]'
    parts = {"first": [model, pad, rest], "last": [pad, rest, model],
             "middle": [pad, model, half, rest]}[place]
    good(gw, "{" + ",".join(parts) + "}")


def test_big_chunked_body(gw):
    good(gw, with_extra('"pad":"%s"' % ("p" * (3 << 20))), chunked=65536)


def test_big_body_h2(gw):
    good(gw, with_extra('"pad":"%s"' % ("p" * (3 << 20))), version="h2")


def test_P8_long_string_in_small_chunks(gw):
    """Work is linear for chunks of any size."""
    body = with_extra('"pad":"%s"' % ("\\u0041p" * (1 << 18)))
    cpu = gw.cpu()
    good(gw, body, chunked=1400)
    assert gw.cpu() - cpu < 8


def test_pretty_printed(gw):
    body = json.dumps(chat(), indent=2).encode()
    good(gw, body)


def test_python_sdk_order(gw):
    """messages first: the model follows the conversation."""
    body = json.dumps({"messages": [{"role": "user", "content": "x" * n}
                                    for n in (1, 100, 5000)],
                       "model": "fam-b-one", "stream": False})
    good(gw, body)


def test_unknown_fields_and_key_order_arrive(gw):
    """Unknown members pass as they were sent."""
    body = ('{"store" : true,"model":"fam-a-large", "thinking":{"type":'
            '"enabled","budget_tokens":1024},"context_management":{"edits":'
            '[]},"max_tokens": 9,"output_config":{"effort":"low"},"tools":'
            '[{"name":"a","defer_loading":true,"input_schema":{}}],'
            '"messages":[{"role":"system","content":"\\u0041\\/"},{"role":'
            '"user","content":[{"type":"thinking","signature":"EqQ=="},'
            '{"type":"text","text":"\U0001f600","cache_control":{"type":'
            '"ephemeral"}}]}],"zz":1.0E+5}').encode()
    r = gw.messages(body)
    assert r.status == 200, r
    assert gw.a.last().body == body.replace(b'"fam-a-large"',
                                            b'"large-2026-01-01"', 1)


def test_shorter_and_longer_upstream_ids(gw):
    for model, upstream in (("fam-b-two", "vendor/two:v2@eu+x"),
                            ("code-x", "x"), ("fam-b-one", "one-0613")):
        body = json.dumps(chat(model)).encode()
        assert gw.chat(body).status == 200
        assert gw.b.last().body == body.replace(
            b'"%s"' % model.encode(), b'"%s"' % upstream.encode(), 1)
