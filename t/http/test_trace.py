"""Traces: what another module needs to trace calls.  nginx's OpenTelemetry
module is not in Debian 12; it changes request headers in the rewrite phase, as
headers-more does here, and reads variables in the log phase, as an access log
does."""

import os
import re

import pytest

import gateway as lib
from gateway import ROOT, chat, messages
from upstream import (chat_completion, chat_stream, message_stream, reply_json,
                      sse)

MORE = "/usr/lib/nginx/modules/ngx_http_headers_more_filter_module.so"

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CHILD = "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01"
STATE = "rojo=00f067aa0ba902b7, congo=t61rcWkgMzE;x  y"

CALLS = {
    "chat": ("b", "chat", chat()),
    "stream": ("b", "chat", chat(stream=True)),
    "messages": ("a", "messages", messages()),
    "translated": ("a", "chat", chat("fam-a-large", max_tokens=9)),
}


def sent(g, name, headers, **kw):
    """The request that the upstream got."""
    up, call, body = CALLS[name]
    up = getattr(g, up)
    key = g.alice if up is g.a else g.bob
    before = len(up.requests)
    assert getattr(g, call)(body, key, headers, **kw).status == 200
    request, = up.requests[before:]
    return request


@pytest.mark.parametrize("name", CALLS)
def test_context_arrives(gw, name, http):
    request = sent(gw, name, [("traceparent", PARENT), ("tracestate", STATE),
                              ("baggage", "user=jane@example.com")],
                   version=http)
    assert request.all("traceparent") == [PARENT]
    assert request.all("tracestate") == [STATE]
    assert request.all("baggage") == []
    assert b"jane" not in request.head


@pytest.fixture(scope="module")
def traced(module_gateway):
    """Each call gets another parent, and a state if it had none."""
    if lib.NGINX != "/usr/sbin/nginx" or not os.path.exists(MORE):
        pytest.skip("headers-more is for Debian's nginx")
    return module_gateway(
        main="load_module %s;" % MORE,
        location='more_set_input_headers "traceparent: %s" "tracestate: set";'
                 % CHILD)


@pytest.mark.parametrize("headers", [
    [], [("traceparent", PARENT), ("tracestate", STATE)]],
    ids=["added", "changed"])
@pytest.mark.parametrize("name", CALLS)
def test_header_of_the_rewrite_phase(traced, name, headers, http):
    request = sent(traced, name, headers, version=http)
    assert request.all("traceparent") == [CHILD]
    assert request.all("tracestate") == ["set"]


def attributes():
    """The variables of the shipped file, by attribute."""
    with open(os.path.join(ROOT, "conf/modelgw/otel.conf")) as f:
        found = dict(re.findall(r"(?m)^otel_span_attr +(\S+) +\$(\w+);$",
                                f.read()))
    assert len(found) == 17
    return found


@pytest.fixture(scope="module")
def spans(module_gateway):
    """A log of what the shipped file would put into a span."""
    text = ",".join('"%s":"$%s"' % item for item in attributes().items())
    return module_gateway(
        http="log_format span escape=json "
             "'{\"tag\":\"$http_x_test_tag\",%s}';" % text,
        server="access_log $dir/span.log span;")


def span(g, tag):
    return {name: value for name, value
            in g.logged(tag, name="span.log").items() if value}


def test_attributes(spans, tag, http):
    one = ("X-Test-Tag", tag + "1")
    spans.b.script(reply_json(chat_completion("one-0613")))
    spans.chat(headers=[one], version=http)
    known = {
        "tag": tag + "1", "gen_ai.provider.name": "b",
        "gen_ai.request.model": "fam-b-one", "gen_ai.request.stream": "false",
        "gen_ai.response.model": "one-0613", "gen_ai.usage.input_tokens": "11",
        "gen_ai.usage.output_tokens": "7", "modelgw.key": "bob-1",
        "modelgw.account": "bob-1"}
    found = span(spans, tag + "1")
    assert found.items() >= known.items()
    assert set(found) <= set(known) | {
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.response.time_to_first_chunk"}
    spans.b.reset()

    for i, (call, script) in enumerate((
            (spans.chat, sse(chat_stream("one-0613", usage=True))),
            (spans.messages, sse(message_stream("large-2026-01-01"))))):
        up, body = ((spans.b, chat(stream=True)) if i == 0
                    else (spans.a, messages(stream=True)))
        up.script(script)
        call(body, headers=[("X-Test-Tag", "%s-%d" % (tag, i))], version=http)
        up.reset()
        found = span(spans, "%s-%d" % (tag, i))
        assert found["gen_ai.request.stream"] == "true"
        assert float(found["gen_ai.response.time_to_first_chunk"]) >= 0
        assert found["gen_ai.usage.output_tokens"] == "7"
        assert "error.type" not in found


def test_attributes_of_refusals(spans, tag):
    spans.chat(key=spans.dave, headers=[("X-Test-Tag", tag)])
    assert span(spans, tag) == {
        "tag": tag, "error.type": "INVALID_API_KEY", "modelgw.key": "dave-1",
        "modelgw.account": "dave-1", "modelgw.reason": "expired",
        "gen_ai.provider.name": "b"}
