"""The official SDK for Node, the AI SDK in three versions, the Agents SDK and
LangChain, over the responses API: with a group that passes it through and with
groups that speak messages and chat.  sdk/responses.mjs runs all scenes at once,
the tests check their results."""

import json

import pytest

from sdk import node
from sdk.model import HOT, PROTOCOLS, REPORT, Responses, sealed, turns, wanted

pytestmark = node.needed

AI = ["ai5", "ai6", "ai7"]
THREE = ["Köln", "Bonn", "Ulm"]

protocols = pytest.mark.parametrize("protocol", sorted(PROTOCOLS.values()))


class Run(node.Results):

    def __init__(self, make):
        self.api = Responses(make)
        gw = self.api.gw
        super().__init__(node.play(
            "responses.mjs", gw.dir, url="http://127.0.0.1:%d" % gw.port,
            keys={key.group: key.secret for key in self.api.keys}))

    def asked(self, *name):
        return self.api.model.asked.get(".".join(name), [])


@pytest.fixture(scope="module")
def run(module_gateway):
    run = Run(module_gateway)
    yield run
    run.api.close()


def rounds(run, protocol, *scene):
    """What the upstream got: in its last call the whole conversation."""
    asked = run.asked(*scene, protocol)
    assert len(asked) == 3
    came = turns(protocol, asked[-1])
    assert [kind for kind, _ in came if kind != "thought"] == [
        "text", "call", "call", "result", "result", "call", "result"]
    return [turn for turn in came if turn[0] == "thought"]


# openai.

def usage(protocol):
    return {"input_tokens": 131, "output_tokens": 7, "total_tokens": 138,
            "input_tokens_details": {
                "cached_tokens": 100,
                "cache_write_tokens": 0 if protocol == "chat" else 20},
            "output_tokens_details": {"reasoning_tokens": 0}}


@protocols
def test_answer(run, protocol):
    assert run.ok("openai.answer." + protocol) == {
        "text": "Hello", "status": "completed", "usage": usage(protocol),
        "model": "fam-%s-one" % protocol}


@protocols
def test_stream(run, protocol):
    """All events come, in the order and with the numbers of the API."""
    r = run.ok("openai.stream." + protocol)
    assert r["text"] == "Hello" and "error" not in r
    assert r["numbers"] == list(range(len(r["numbers"])))
    r["types"].pop("keepalive", None)
    assert list(r["types"]) == ["response." + name for name in (
        "created", "in_progress", "output_item.added", "content_part.added",
        "output_text.delta", "output_text.done", "content_part.done",
        "output_item.done", "completed")]
    assert r["response"]["usage"] == usage(protocol)
    assert r["response"]["model"] == "fam-%s-one" % protocol


@protocols
@pytest.mark.parametrize("scene", ["tools", "tools_raw", "tools_helper"])
def test_tools(run, protocol, scene):
    r = run.ok("openai.%s.%s" % (scene, protocol))
    assert (r["text"], r["calls"], r["rounds"]) == ("It is fine.", THREE, 3)
    assert r["model"] == "fam-%s-one" % protocol
    assert rounds(run, protocol, "openai", scene) \
        == sealed(protocol, "Hm.")


@protocols
def test_schema(run, protocol):
    assert run.ok("openai.schema." + protocol) == [REPORT, REPORT]
    for body in run.asked("openai", "schema", protocol):
        assert list(wanted(protocol, body)["properties"]) == list(REPORT)


@protocols
def test_cut(run, protocol):
    """The stream of the upstream breaks: both forms of the SDK throw."""
    r = run.ok("openai.cut." + protocol)
    assert r["text"] == "Hello"
    assert r["error"]["code"] == ("UPSTREAM_ERROR" if protocol == "responses"
                                  else "UPSTREAM_TRUNCATED")
    assert r["types"]["response.failed"] == 1
    e = run.error("openai.cut_helper." + protocol)
    assert "upstream" in e["message"], e


@protocols
def test_failed(run, protocol):
    """The upstream says what is wrong."""
    r = run.ok("openai.failed." + protocol)
    assert r["text"] == "Hello"
    assert r["response"]["status"] == "failed"
    assert r["response"]["error"]["message"] == HOT
    assert protocol == "responses" or r["error"]


@protocols
def test_state(run, protocol):
    e = run.error("openai.state." + protocol)
    assert (e["class"], e["code"]) == ("BadRequestError", "UNSUPPORTED_FIELD")
    assert "previous_response_id" in e["message"]
    assert run.asked("openai", "state", protocol) == []


def test_aborted(run):
    """A client that stops reading; the upstream is hung up on."""
    for protocol in PROTOCOLS.values():
        assert run.ok("openai.aborted." + protocol)
    assert run.api.up.gone == [True] * 3


# AI SDK.

@protocols
@pytest.mark.parametrize("version", AI)
def test_ai_tools(run, version, protocol):
    r = run.ok("%s.tools.%s" % (version, protocol))
    assert r["errors"] == []
    assert (r["text"], r["steps"], r["finish"]) \
        == ("I look.It is fine.", 3, "stop")
    assert r["calls"] == THREE
    # version 5 asks for no summary where it does not know the model
    assert r["reasoning"] == ("" if version == "ai5" else "Hm.")
    assert r["usage"]["inputTokens"] == 3 * 131
    assert rounds(run, protocol, version, "tools") \
        == sealed(protocol, "Hm.")


@protocols
@pytest.mark.parametrize("version", AI)
def test_ai_that_refers_to_stored_items(run, version, protocol):
    """What happens without store: false is said."""
    r = run.ok("%s.stored.%s" % (version, protocol))
    (error,) = r["errors"]
    assert error["status"] == 400
    message = json.loads(error["text"])["message"]
    assert 'set "store" to false' in message
    assert len(run.asked(version, "stored", protocol)) == 1


@protocols
@pytest.mark.parametrize("version", AI)
def test_ai_schema(run, version, protocol):
    assert run.ok("%s.schema.%s" % (version, protocol)) == [REPORT, REPORT]


@protocols
@pytest.mark.parametrize("version", AI)
def test_ai_errors(run, version, protocol):
    """A stream that ends by an error keeps its text; version 5 says nothing
    of the event, but the finish."""
    for scene in ("cut", "failed"):
        r = run.ok("%s.%s.%s" % (version, scene, protocol))
        assert r["text"] == "Hello"
        assert r["errors"] or version == "ai5", r
    e = run.error("%s.poor.%s" % (version, protocol))
    assert e["status"] == 502


# Agents SDK, LangChain.

others = pytest.mark.parametrize("client", ["agents", "langchain"])


@protocols
@others
@pytest.mark.parametrize("scene", ["tools", "tools_stream"])
def test_other_tools(run, client, scene, protocol):
    r = run.ok("%s.%s.%s" % (client, scene, protocol))
    assert (r["text"], r["calls"], r["rounds"]) == ("It is fine.", THREE, 3)
    assert rounds(run, protocol, client, scene) \
        == sealed(protocol, "Hm.")


@protocols
@others
def test_other_schema(run, client, protocol):
    assert run.ok("%s.schema.%s" % (client, protocol)) == REPORT


@protocols
@pytest.mark.parametrize("scene", ["agents.cut", "agents.failed",
                                   "langchain.cut"])
def test_other_errors(run, scene, protocol):
    assert run.error("%s.%s" % (scene, protocol))["message"]
