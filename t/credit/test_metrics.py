"""modelgw_metrics: each metric against scripted calls, what bounds them, and a
Prometheus that scrapes them."""

import contextlib
import gzip
import os
import re
import signal
import sqlite3
import threading
import time
from decimal import Decimal

import pytest

import client
import gateway as lib
from client import assert_flat
from gateway import Key, MODELS_A, MODELS_B, chat, group_a, group_b, messages
from metrics import LOCATION, TYPE, Prometheus, fallen, lint, scrape
from money import nano
from shim import Shim
from test_keys_live import Live
from test_ledger_store import SHIM
from upstream import both, chat_stream, raw, reply_json, sse

LEDGER = "modelgw_ledger $dir/ledger.db; modelgw_founding_credit 5.00;"

# a ledger requires the maximum output of a model

GROUPS = (group_a(models=MODELS_A.replace("max_output=64000", "")
                  .replace(";", " max_output=4000;"))
          + group_b(models=MODELS_B.replace(";", " max_output=4000;")))

KEYS = (Key("limited", "b", "rpm=100 tpm=100000 concurrency=4"),
        Key("once", "b", "rpm=1"), Key("poor", "b", "account=poor"))

ADMIN = "location /admin/ { modelgw_admin; allow 127.0.0.1; deny all; }"

NAMES = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "vendor-b",
         "gen_ai_request_model": "fam-b-one"}


def start(make, locations=LOCATION, http=LEDGER, groups=GROUPS, keys=KEYS,
          **kw):
    return make(http=http, groups=groups, locations=locations, keys=keys, **kw)


@pytest.fixture(scope="module")
def module_metered(module_gateway):
    return start(module_gateway, LOCATION + ADMIN)


@pytest.fixture
def metered(module_metered, upstreams):
    for u in upstreams:
        u.wait_idle()
        u.reset()
    yield module_metered
    assert module_metered.process.poll() is None, "nginx has exited"


class Change:
    """What a block adds to the counters."""

    def __init__(self, gw):
        self.gw = gw

    def __enter__(self):
        self.before = scrape(self.gw)
        return self

    def __exit__(self, *error):
        if error[0] is None:
            self.after = scrape(self.gw)
            assert not fallen(self.before, self.after)

    def of(self, metric, **labels):
        """{labels: value}, without what has not changed."""
        before = self.before.all(metric, **labels)
        return {tuple(sorted(found)): value - before.get(found, 0)
                for found, value in self.after.all(metric, **labels).items()
                if value != before.get(found, 0)}

    def one(self, metric, **labels):
        """The only series of it that has changed has these labels."""
        ((found, value),) = self.of(metric).items()
        assert dict(found) == labels, found
        return value

    def wait(self, metric, n=1, timeout=client.LIMIT, **labels):
        """A request is counted when it ends, after its answer."""
        end = time.monotonic() + timeout
        while True:
            self.after = scrape(self.gw)
            if sum(self.of(metric, **labels).values()) >= n:
                return
            assert time.monotonic() < end, metric
            time.sleep(0.01)


def usage(prompt=10, output=5, **more):
    return dict({"prompt_tokens": prompt, "completion_tokens": output,
                 "total_tokens": prompt + output}, **more)


def answer(**kw):
    return reply_json({"id": "x", "object": "chat.completion",
                       "model": "one-0613", "choices": [
                           {"index": 0, "finish_reason": "stop", "message":
                            {"role": "assistant", "content": "Hi"}}],
                       "usage": usage(**kw)})


def settled(gw, n, timeout=client.LIMIT):
    """Waits until the ledger has so many calls."""
    end = time.monotonic() + timeout
    while query(gw, "SELECT count(*) FROM calls") != n:
        assert time.monotonic() < end
        time.sleep(0.02)


def query(gw, sql):
    db = sqlite3.connect("file:%s?mode=ro" % gw.path("ledger.db"), uri=True)
    try:
        return db.execute(sql).fetchone()[0]
    finally:
        db.close()


# the format


def test_promtool_has_nothing_to_say(metered):
    metered.b.script(both)
    for key in (metered.bob, KEYS[0]):
        assert metered.chat(key=key).status == 200
        assert metered.chat(chat(stream=True), key=key).status == 200
        assert metered.chat(chat("nosuch"), key=key).status == 400
    assert metered.messages().status == 200
    m = scrape(metered)
    assert lint(m.text) == ""
    for name, kind in m.types.items():
        assert (kind == "counter") == name.endswith("_total"), name


def test_response(metered, http):
    r = metered.get("/metrics", version=http)
    assert r.status == 200 and r.get("content-type") == TYPE
    r = metered.request("HEAD", "/metrics")
    assert r.status == 200 and r.get("content-type") == TYPE and not r.body
    r = metered.post("/metrics", {})
    assert_flat(r, 405, "METHOD_NOT_ALLOWED")
    assert r.get("allow") == "GET, HEAD"


def test_gzip(gateway):
    gw = start(gateway, "location = /metrics { modelgw_metrics; gzip on; "
               "gzip_types text/plain; }")
    r = gw.get("/metrics", headers=[("Accept-Encoding", "gzip")])
    assert r.get("content-encoding") == "gzip"
    assert b"modelgw_build_info" in gzip.decompress(r.body)


def test_access_rules(gateway):
    gw = start(gateway, "location = /metrics { modelgw_metrics; deny all; }")
    assert_flat(gw.get("/metrics"), 403, "FORBIDDEN")


# each metric


def test_a_call(metered):
    metered.b.script(answer(prompt=100, output=20))
    with Change(metered) as c:
        assert metered.chat(key=KEYS[0]).status == 200
    c.wait("modelgw_requests_total")

    assert c.one("modelgw_requests_total", endpoint="chat", group="b",
                 code="") == 1
    assert c.one("modelgw_calls_total", group="b", model="fam-b-one",
                 outcome="reported", end="complete") == 1
    assert c.of("modelgw_tokens_total") == {
        (("group", "b"), ("model", "fam-b-one"), ("type", "input")): 100,
        (("group", "b"), ("model", "fam-b-one"), ("type", "output")): 20}
    cost = 100 * nano(1) // 10 ** 6 + 20 * nano(2) // 10 ** 6
    assert c.one("modelgw_cost_euro_total", group="b", model="fam-b-one") \
        * 10 ** 9 == cost
    assert c.one("modelgw_upstream_responses_total", group="b",
                 status="200") == 1
    assert not c.of("modelgw_upstream_retries_total")

    assert c.one("modelgw_key_requests_total", key="limited",
                 account="limited", result="ok") == 1
    assert c.of("modelgw_key_tokens_total") == {
        (("account", "limited"), ("key", "limited"), ("type", "input")): 100,
        (("account", "limited"), ("key", "limited"), ("type", "output")): 20}
    assert c.one("modelgw_key_cost_euro_total", key="limited",
                 account="limited") * 10 ** 9 == cost

    assert c.one("gen_ai_server_request_duration_seconds_count", **NAMES) == 1
    assert {dict(k)["gen_ai_token_type"]: v
            for k, v in c.of("gen_ai_client_token_usage_sum").items()} \
        == {"input": 100, "output": 20}
    assert {dict(k)["le"] for k in
            c.of("gen_ai_client_token_usage_bucket",
                 gen_ai_token_type="output")} \
        == {"64", "256", "1024", "4096", "16384", "65536", "262144",
            "1048576", "4194304", "16777216", "67108864", "+Inf"}
    assert not c.of("gen_ai_server_time_to_first_token_seconds_count")
    assert not c.of("gen_ai_server_time_per_output_token_seconds_count")

    used = {dict(k)["limit"]: v for k, v in c.after.all(
        "modelgw_key_limit_used_ratio", key="limited").items()}
    assert set(used) == {"rpm", "tpm", "concurrency"}
    assert 0 < used["rpm"] <= 1 and 0 < used["tpm"] < 1
    assert used["concurrency"] == 0


def test_a_stream(metered):
    metered.b.script(both)
    with Change(metered) as c:
        assert metered.chat(chat(stream=True)).status == 200
    c.wait("modelgw_requests_total")
    assert c.one("gen_ai_server_time_to_first_token_seconds_count",
                 **NAMES) == 1
    assert c.one("gen_ai_server_time_per_output_token_seconds_count",
                 **NAMES) == 1
    assert c.one("gen_ai_server_request_duration_seconds_count", **NAMES) == 1


@pytest.mark.parametrize("model, tokens", [
    ("fam-a-large", {"input": 7, "cache_read": 3, "cache_write": 2,
                     "cache_write_1h": 4, "output": 9})])
def test_classes_of_tokens(metered, model, tokens):
    metered.a.script(reply_json({
        "id": "m", "type": "message", "role": "assistant",
        "model": "large-2026-01-01", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Hi"}],
        "usage": {"input_tokens": 7, "cache_read_input_tokens": 3,
                  "cache_creation_input_tokens": 6, "output_tokens": 9,
                  "cache_creation": {"ephemeral_5m_input_tokens": 2,
                                     "ephemeral_1h_input_tokens": 4}}}))
    with Change(metered) as c:
        assert metered.messages(messages(model)).status == 200
    c.wait("modelgw_requests_total")
    assert {dict(k)["type"]: v
            for k, v in c.of("modelgw_tokens_total").items()} == tokens
    assert c.one("modelgw_requests_total", endpoint="messages", group="a",
                 code="") == 1
    assert c.of("gen_ai_client_token_usage_sum", gen_ai_token_type="input",
                gen_ai_provider_name="vendor-a")


def test_reasoning(metered):
    metered.b.script(answer(
        prompt=1, output=8, completion_tokens_details={"reasoning_tokens": 6}))
    with Change(metered) as c:
        assert metered.chat().status == 200
    c.wait("modelgw_requests_total")
    assert {dict(k)["type"]: v
            for k, v in c.of("modelgw_tokens_total").items()} \
        == {"input": 1, "output": 8, "reasoning": 6}


def test_endpoints(metered):
    for request, endpoint, group, code in (
            (lambda: metered.get("/v1/models", metered.bob), "models", "b",
             ""),
            (lambda: metered.get("/v1/nosuch", metered.bob), "other", "",
             "NOT_FOUND"),
            (lambda: metered.get("/v1/models"), "models", "",
             "API_KEY_REQUIRED"),
            (lambda: metered.get("/v1/messages", metered.alice), "messages",
             "", "METHOD_NOT_ALLOWED"),
            (lambda: metered.chat(key=Key("x", "b")), "chat", "",
             "INVALID_API_KEY"),
            (lambda: metered.chat(b"{"), "chat", "b", "INVALID_JSON"),
            (lambda: metered.messages(key=metered.bob), "messages", "b",
             "PROVIDER_MISMATCH"),
            (lambda: metered.post("/v1/messages/count_tokens", messages(),
                                  metered.alice), "count_tokens", "a", ""),
            (lambda: metered.post("/v1/responses", {}, metered.alice),
             "responses", "a", "MISSING_FIELD")):
        with Change(metered) as c:
            request()
        c.wait("modelgw_requests_total")
        assert c.one("modelgw_requests_total", endpoint=endpoint, group=group,
                     code=code) == 1
        assert not c.of("modelgw_calls_total")


def test_what_is_no_gateway_is_not_counted(metered):
    with Change(metered) as c:
        assert metered.get("/nosuch").status == 404
        assert metered.get("/admin/accounts").status == 200
        assert metered.post("/metrics", {}).status == 405
    assert not c.of("modelgw_requests_total")
    assert c.of("nginx_http_requests_total")


@pytest.mark.parametrize("status, counted, code, result", [
    (400, "400", "INVALID_REQUEST", "refused"),
    (401, "401", "UPSTREAM_ERROR", "failed"),
    (402, "402", "UPSTREAM_ERROR", "failed"),
    (403, "403", "UPSTREAM_ERROR", "failed"),
    (404, "404", "UPSTREAM_ERROR", "failed"),
    (418, "other", "INVALID_REQUEST", None),
    (429, "429", "RATE_LIMITED", "rate_limited"),
    (500, "500", "UPSTREAM_ERROR", "failed"),
    (503, "503", "UPSTREAM_OVERLOADED", "failed"),
    (529, "529", "UPSTREAM_OVERLOADED", "failed")])
def test_an_upstreams_error(metered, status, counted, code, result):
    metered.b.script(reply_json({"error": {"message": "no"}}, status))
    with Change(metered) as c:
        metered.chat()
    c.wait("modelgw_requests_total")
    assert c.one("modelgw_upstream_responses_total", group="b",
                 status=counted) == 1
    if result:
        assert c.one("modelgw_requests_total", endpoint="chat", group="b",
                     code=code) == 1
        assert c.one("modelgw_key_requests_total", key="bob-1",
                     account="bob-1", result=result) == 1
    assert c.one("modelgw_calls_total", group="b", model="fam-b-one",
                 outcome="refused", end="complete") == 1
    assert c.one("gen_ai_server_request_duration_seconds_count",
                 error_type="_OTHER", **NAMES) == 1
    assert not c.of("modelgw_cost_euro_total")


def test_an_upstream_that_breaks_off(metered):
    metered.b.script(raw("close"))
    with Change(metered) as c:
        assert metered.chat().status == 502
    c.wait("modelgw_requests_total")
    assert c.one("modelgw_upstream_responses_total", group="b",
                 status="error") == 1
    ((found, n),) = c.of("modelgw_calls_total").items()
    assert dict(found)["end"] == "upstream" and n == 1


def test_an_upstream_that_stalls(gateway):
    gw = start(gateway, location="proxy_read_timeout %ds;" % lib.STALL)
    gw.b.script(raw("stall"))
    with Change(gw) as c:
        assert gw.chat().status == 504
    c.wait("modelgw_requests_total")
    assert c.one("modelgw_upstream_responses_total", group="b",
                 status="timeout") == 1
    assert c.one("modelgw_calls_total", group="b", model="fam-b-one",
                 outcome="unanswered", end="timeout") == 1


def test_a_client_that_leaves(metered):
    """It is no failure of the upstream's."""
    metered.b.script(raw("stall"))
    with Change(metered) as c:
        with metered.connect() as conn:
            conn.request("POST", "/v1/chat/completions",
                         [metered.bob.bearer()], chat(stream=True))
            metered.b.wait()
    c.wait("modelgw_calls_total")
    ((found, n),) = c.of("modelgw_calls_total").items()
    assert dict(found)["end"] == "client"
    assert c.one("gen_ai_server_request_duration_seconds_count", **NAMES) == 1
    assert not c.of("modelgw_upstream_responses_total")


def test_results_of_a_key(metered):
    once = KEYS[1]
    with Change(metered) as c:
        while metered.chat(key=once).status == 200:
            pass
    c.wait("modelgw_key_requests_total", result="rate_limited")
    assert c.of("modelgw_key_requests_total", key="once",
                result="rate_limited")
    with Change(metered) as c:
        assert metered.chat(chat(max_tokens=4000, n=100000), key=KEYS[2]
                            ).status == 402
    c.wait("modelgw_requests_total")
    assert c.one("modelgw_key_requests_total", key="poor", account="poor",
                 result="insufficient_credit") == 1
    assert c.one("modelgw_requests_total", endpoint="chat", group="b",
                 code="INSUFFICIENT_CREDIT") == 1


def test_a_budget(gateway):
    """A call that it does not cover is not one for lack of credit."""
    key = Key("bounded", "b", "budget=0.01/month account=rich")
    gw = start(gateway, keys=[key])
    gw.b.script(answer(prompt=1000, output=500))
    assert gw.chat(key=key).status == 200
    m = scrape(gw)
    assert m.one("modelgw_key_budget_used_ratio", key="bounded",
                 window="month") * 100 == 20
    with Change(gw) as c:
        assert gw.chat(chat(max_tokens=4000, n=2), key=key).status == 402
    c.wait("modelgw_requests_total")
    assert c.one("modelgw_requests_total", endpoint="chat", group="b",
                 code="BUDGET_EXCEEDED") == 1
    assert c.one("modelgw_key_requests_total", key="bounded", account="rich",
                 result="budget_exceeded") == 1


def managed(make, n=100, more="", **kw):
    return Live(start(make, http=LEDGER + " modelgw_managed_keys %d;" % n + more,
                      **kw))


@pytest.mark.parametrize("workers", [1, 4])
def test_keys_that_operators_make(gateway, workers):
    live = managed(gateway, locations=LOCATION + ADMIN, workers=workers)
    gw = live.gw
    key = live.new("made", account="purse", rpm=10, budget="1.00/month")
    m = scrape(gw)
    assert lint(m.text) == ""
    assert m.one("modelgw_zone_used_ratio", room="managed_keys") * 100 == 1
    assert m.one("modelgw_key_limit_used_ratio", key="made") == 0
    assert m.one("modelgw_key_budget_used_ratio", key="made",
                 window="month") == 0
    gw.b.script(answer(prompt=1000, output=500))
    with Change(gw) as c:
        for _ in range(2):
            assert gw.chat(key=key).status == 200
    c.wait("modelgw_key_requests_total", 2)
    assert c.one("modelgw_key_requests_total", key="made", account="purse",
                 result="ok") == 2
    assert c.one("modelgw_key_cost_euro_total", key="made",
                 account="purse") == c.one("modelgw_cost_euro_total",
                                           group="b", model="fam-b-one")
    assert c.of("modelgw_key_tokens_total", type="input") == {
        (("account", "purse"), ("key", "made"), ("type", "input")): 2000}
    m = scrape(gw)
    assert m.one("modelgw_key_limit_used_ratio", key="made") * 10 == 2
    assert m.one("modelgw_key_budget_used_ratio", key="made") > 0


def test_keys_that_operators_make_over_reloads(gateway):
    """Their counters stay, as those of others do, and the last word on a key
    takes its series away."""
    live = managed(gateway, locations=LOCATION + ADMIN, workers=2)
    gw = live.gw
    gw.expect("exited on signal 9")
    key = live.new("made")
    assert gw.chat(key=key).status == 200
    before = scrape(gw)
    cost = before.one("modelgw_key_cost_euro_total", key="made")
    gw.reload()
    r = live.send("POST", "/keys/made/rotate", {"grace": "1h"})
    for secret in (key.secret, r.json()["key"]):
        key.secret = secret
        assert gw.chat(key=key).status == 200
    same_cost(gw)
    end = time.monotonic() + client.LIMIT
    while len(gw.pids()) > 2:                   # of before the reload
        assert time.monotonic() < end
        time.sleep(0.01)
    gw.kill_workers()
    m = same_cost(gw)
    assert not fallen(before, m)
    assert m.one("modelgw_key_cost_euro_total", key="made") == 3 * cost
    assert live.send("POST", "/keys/made/revoke").status == 200
    assert not scrape(gw).all("modelgw_key_cost_euro_total", key="made")


@pytest.mark.parametrize("most, omitted", [(7, 1), (8, 0)])
def test_series_of_all_keys_are_bounded(gateway, most, omitted):
    """There are seven in the configuration, and one that is made."""
    live = managed(gateway, locations=ADMIN
                   + "location = /metrics { modelgw_metrics keys=%d; }" % most)
    key = live.new("made")
    assert live.gw.chat(key=key).status == 200
    m = scrape(live.gw)
    assert m.one("modelgw_metrics_omitted", label="key") == omitted
    assert bool(m.all("modelgw_key_cost_euro_total")) == (not omitted)


def test_more_keys_than_have_room(gateway):
    """Of those that operators make the first ones have counters."""
    n = 250
    live = managed(gateway, n, " modelgw_metrics_zone 112k;",
                   locations=LOCATION + ADMIN, keys=(), workers=1)
    keys = [live.new("k%d" % i) for i in range(n)]
    for key in keys:
        assert live.gw.get("/v1/models", key=key).status == 200
    m = scrape(live.gw)
    assert m.one("modelgw_metrics_omitted", label="key") == 1
    named = m.values("modelgw_key_requests_total", "key")
    assert "k0" in named and keys[-1].id not in named and len(named) > 10


def test_second_tries(gateway):
    """A server that refuses connections, then one that answers."""
    port = lib.free_port()
    gw = start(gateway, upstreams="""
    upstream api.vendor-a.test { server 127.0.0.1:$a; }
    upstream api.vendor-b.test { server 127.0.0.1:%d max_fails=0;
                                 server 127.0.0.1:$b backup; }""" % port)
    with Change(gw) as c:
        assert gw.chat().status == 200
    c.wait("modelgw_requests_total")
    assert c.one("modelgw_upstream_retries_total", group="b") == 1
    assert {dict(k)["status"]: v for k, v in
            c.of("modelgw_upstream_responses_total").items()} \
        == {"error": 1, "200": 1}
    assert c.after.one("modelgw_upstream_retries_total", group="a") == 0
    gw.expect("connect.. failed")


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_refusal_that_is_repeated(gateway, status):
    """Both answers count, with the status that the server has sent."""
    gw = start(gateway, upstreams="""
    upstream api.vendor-a.test { server 127.0.0.1:$a; }
    upstream api.vendor-b.test { server 127.0.0.1:$a;
                                 server 127.0.0.1:$b backup; }""")
    gw.a.script(reply_json({"error": {"message": "no"}}, status))
    gw.b.script(answer())
    with Change(gw) as c:
        assert gw.chat().status == 200
    c.wait("modelgw_requests_total")
    assert c.one("modelgw_upstream_retries_total", group="b") == 1
    assert {dict(k)["status"]: v for k, v in
            c.of("modelgw_upstream_responses_total").items()} \
        == {str(status): 1, "200": 1}
    assert c.one("modelgw_calls_total", group="b", model="fam-b-one",
                 outcome="reported", end="complete") == 1


def test_money_and_calls_in_flight(metered):
    before = scrape(metered)
    assert before.one("modelgw_calls_in_flight", group="a") == 0
    assert before.one("modelgw_calls_in_flight", group="b") == 0
    assert before.one("modelgw_held_euro") == 0

    go = threading.Event()
    metered.b.script(raw(go, answer()))
    with metered.connect() as conn:
        conn.request("POST", "/v1/chat/completions", [KEYS[0].bearer()],
                     chat(max_tokens=1000))
        metered.b.wait()
        during = scrape(metered)
        go.set()
        assert conn.response().status == 200
    after = scrape(metered)

    assert during.one("modelgw_calls_in_flight", group="b") == 1
    assert during.one("modelgw_calls_in_flight", group="a") == 0
    assert during.one("modelgw_key_limit_used_ratio", key="limited",
                      limit="concurrency") * 4 == 1
    assert during.one("modelgw_zone_used_ratio", room="calls") >= 0
    held = during.one("modelgw_held_euro")
    assert held > 0
    assert during.one("modelgw_account_available_euro", account="limited") \
        == during.one("modelgw_account_balance_euro", account="limited") - held

    assert after.one("modelgw_held_euro") == 0
    assert after.one("modelgw_calls_in_flight", group="b") == 0
    assert after.one("modelgw_balance_euro") \
        == after.sum("modelgw_account_balance_euro")
    assert after.one("modelgw_balance_euro") \
        == before.one("modelgw_balance_euro") \
        - (after.sum("modelgw_cost_euro_total")
           - before.sum("modelgw_cost_euro_total"))
    assert after.one("modelgw_accounts", state="positive") \
        == len(after.all("modelgw_account_balance_euro"))
    assert after.one("modelgw_accounts", state="empty") == 0


def test_an_open_call_is_of_its_group(metered):
    """Its model is known when the body was read."""
    with metered.connect() as conn:
        conn.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                  b"Content-Length: 100\r\nAuthorization: %s\r\n\r\n{"
                  % KEYS[0].bearer()[1].encode())
        end = time.monotonic() + client.LIMIT
        while True:
            m = scrape(metered)
            if m.one("modelgw_calls_in_flight", group="b") == 1:
                break
            assert time.monotonic() < end
            time.sleep(0.01)
        assert not m.all("modelgw_calls_in_flight", group="other")


def test_the_gateway_itself(metered):
    assert metered.chat().status == 200
    m = scrape(metered)
    assert m.one("modelgw_ledger_writable") == 1
    assert m.one("modelgw_ledger_queue_calls") >= 0
    assert m.one("modelgw_ledger_failures_total") == 0
    assert m.one("modelgw_ledger_flush_seconds_count") > 0
    assert m.one("modelgw_config_keys") == len(metered.keys)
    assert m.one("modelgw_workers", state="running") == metered.workers
    assert m.one("modelgw_workers", state="leaving") == 0
    now = time.time()
    assert now - 3600 < m.one("process_start_time_seconds") <= now
    assert now - 3600 < m.one("modelgw_config_time_seconds") <= now
    ((labels, one),) = m.all("modelgw_build_info").items()
    assert one == 1 and dict(labels)["nginx_version"] \
        == "%d.%d.%d" % lib.VERSION
    for room in ("accounts", "keys", "calls", "models"):
        assert 0 <= m.one("modelgw_zone_used_ratio", room=room) < 1
    assert m.one("nginx_connections_active") >= 1
    assert m.one("nginx_connections_accepted_total") >= 1


def test_a_ledger_that_fails(gateway):
    gw = start(gateway)
    assert gw.chat().status == 200
    settled(gw, 1)
    os.rename(gw.path("ledger.db"), gw.path("elsewhere.db"))
    gw.expect("ledger cannot be written")
    end = time.monotonic() + client.LIMIT
    while True:
        m = scrape(gw)
        if m.one("modelgw_ledger_writable") == 0 \
           and m.one("modelgw_ledger_failures_total") > 0:
            break
        gw.chat()
        assert time.monotonic() < end
        time.sleep(0.05)
    os.rename(gw.path("elsewhere.db"), gw.path("ledger.db"))
    gw.wait_log("the ledger is written again")
    assert scrape(gw).one("modelgw_ledger_writable") == 1


def test_without_a_ledger(gateway):
    gw = start(gateway, http="", keys=())
    with Change(gw) as c:
        assert gw.chat().status == 200
    c.wait("modelgw_requests_total")
    assert lint(c.after.text) == ""
    assert c.one("modelgw_calls_total", group="b", model="fam-b-one",
                 outcome="reported", end="complete") == 1
    assert c.one("modelgw_cost_euro_total", group="b", model="fam-b-one")
    assert c.after.one("modelgw_calls_in_flight", group="b") == 0
    assert not c.after.all("modelgw_ledger_writable")
    assert not c.after.all("modelgw_balance_euro")


# bounds


def test_no_label_value_comes_from_a_client(metered):
    assert metered.chat().status == 200
    before = scrape(metered)
    for i in range(50):
        metered.chat(chat("fam-b-%d" % i))
        metered.chat(chat("code-%d" % i))
        metered.chat(key=Key("k%d" % i, "b"))
        metered.get("/v1/%d" % i, metered.bob)
        metered.request("X%d" % i, "/v1/models", metered.bob)
    after = scrape(metered)
    assert after.values("modelgw_calls_total", "model") \
        <= {"fam-b-one", "fam-a-large", "~^code-(.+)$"}
    text = after.text
    for word in ("fam-b-7", "code-7", "k7", "/v1"):
        assert word not in text
    assert len(after.samples) - len(before.samples) < 150

    for i in range(50):
        metered.chat(chat("fam-c-%d" % i))
        metered.chat(chat("code-x%d" % i))
        metered.chat(key=Key("l%d" % i, "b"))
    grown = {name for name, _ in scrape(metered).samples} \
        - {name for name, _ in after.samples}
    assert grown == set()


def test_ten_thousand_unknown_keys(metered):
    with Change(metered) as c:
        assert metered.get("/v1/models", Key("x", "b")).status == 401
    c.wait("modelgw_requests_total", code="INVALID_API_KEY")
    before = c.after
    with metered.connect() as conn:
        for i in range(10000):
            conn.request("GET", "/v1/models",
                         [("Authorization", "Bearer sk-eu-%d" % i)])
            assert conn.response().status == 401
    after = scrape(metered)
    assert set(after.samples) == set(before.samples)
    assert after.one("modelgw_requests_total", endpoint="models", group="",
                     code="INVALID_API_KEY") >= 10000


def test_patterns_are_escaped(gateway):
    gw = start(gateway, groups=GROUPS.replace("~^code-(.+)$",
                                              r"'~^code-\\d(\"?.+)$'"))
    assert gw.chat(chat("code-5x")).status == 200
    m = scrape(gw)
    assert lint(m.text) == ""
    assert m.one("modelgw_cost_euro_total", group="b",
                 model=r'~^code-\d("?.+)$') > 0


def test_models_of_one_owner_are_added_up(gateway):
    """Those of a group under its old name and its new one."""
    groups = GROUPS.replace("owned_by    vendor-b", "owned_by    b")
    gw = start(gateway, groups=groups, keys=())
    assert gw.chat().status == 200
    gw.groups = groups.replace("modelgw_group b ", "modelgw_group new ")
    for key in (gw.bob, gw.dave):
        key.group = "new"
    gw.write()
    gw.reload()
    assert gw.chat().status == 200
    m = scrape(gw)
    assert lint(m.text) == ""
    assert m.one("gen_ai_server_request_duration_seconds_count",
                 **dict(NAMES, gen_ai_provider_name="b")) == 2
    assert m.sum("modelgw_calls_total", group="b") == 1
    assert m.sum("modelgw_calls_total", group="new") == 1


@pytest.mark.parametrize("old, new", [
    ("owned_by    vendor-b", "owned_by    other-b"),
    ("modelgw_group b ", "modelgw_group renamed ")])
def test_counters_over_a_reload_with_other_names(gateway, old, new):
    """What was counted keeps its labels."""
    gw = start(gateway, keys=())
    for _ in range(3):
        assert gw.chat().status == 200
    before = scrape(gw)
    gw.groups = GROUPS.replace(old, new)
    if "group" in new:
        for key in (gw.bob, gw.dave):
            key.group = "renamed"
    gw.write()
    gw.reload()
    assert gw.chat().status == 200
    m = scrape(gw)
    assert not any(was for was, _ in fallen(before, m).values())
    assert lint(m.text) == ""
    assert m.sum("modelgw_calls_total") == 4
    assert sum(m.all("gen_ai_server_request_duration_seconds_count")
               .values()) == 4


def test_the_host_is_named(metered):
    """Not by a name that a page makes resolve to this address; by any address:
    Prometheus may be told another one."""
    for host, status in (("evil.example", 403), ("localhost", 200),
                         ("gateway.test", 200), ("10.1.2.3:9190", 200),
                         ("[::1]:9190", 200)):
        r = metered.get("/metrics", host=host)
        assert r.status == status, (host, r)
        assert (b"balance" in r.body) == (status == 200)


@pytest.mark.parametrize("location, open", [
    ("modelgw_metrics;", True), ("modelgw_metrics; deny all;", False),
    ("modelgw_metrics; auth_basic x; auth_basic_user_file x;", False)])
def test_open_to_all(check, location, open):
    run = check(http=LEDGER, groups=GROUPS,
                locations="location /m { %s }" % location)
    assert run.returncode == 0, run.stderr
    assert ("is open to all" in run.stderr) == open


@pytest.mark.parametrize("options, key, account", [
    ("keys=0", 1, 0), ("accounts=0", 0, 1), ("keys=6 accounts=5", 1, 1),
    ("keys=7 accounts=7", 0, 0)])
def test_series_of_keys_and_accounts_are_bounded(gateway, options, key,
                                                 account):
    gw = start(gateway, "location = /metrics { modelgw_metrics %s; }"
               % options)
    assert gw.chat(key=KEYS[0]).status == 200
    m = scrape(gw)
    assert m.one("modelgw_metrics_omitted", label="key") == key
    assert m.one("modelgw_metrics_omitted", label="account") == account
    assert bool(m.all("modelgw_key_cost_euro_total")) == (not key)
    assert bool(m.all("modelgw_key_limit_used_ratio")) == (not key)
    assert bool(m.all("modelgw_account_balance_euro")) == (not account)
    assert m.one("modelgw_balance_euro") > 0


MANY = GROUPS + lib.group(
    "c", "chat", "fam-c-", "http://api.vendor-b.test",
    "Authorization file:$dir/b.secret bearer",
    "".join("model fam-c-%d %d input=1 output=2 max_output=4000;" % (i, i)
            for i in range(200)))

ROOM = LEDGER + "modelgw_metrics_zone %s;"


def test_a_zone_without_room(gateway):
    late = Key("late", "c")
    gw = start(gateway, http=ROOM % "512k", groups=MANY, keys=[late])
    assert '"modelgw_metrics_zone" of 512k has no room for' \
        in gw.read("error.log")
    with Change(gw) as c:
        assert gw.chat(chat("fam-c-199"), key=late).status == 200
    c.wait("modelgw_requests_total")
    assert c.one("modelgw_calls_total", group="other", model="other",
                 outcome="reported", end="complete") == 1
    assert lint(c.after.text) == ""


def test_the_size_that_the_warning_names_is_enough(check):
    kw = {"groups": MANY, "locations": LOCATION, "keys": KEYS}
    run = check(http=ROOM % "512k", **kw)
    assert run.returncode == 0
    size = re.search(r"has no room for \d+ of .*: it needs (\d+k)",
                     run.stderr)[1]
    run = check(http=ROOM % size, **kw)
    assert run.returncode == 0 and "has no room" not in run.stderr


def test_the_size_counts_names_of_before(gateway):
    """Those of former configurations keep their room."""
    gw = start(gateway, http=ROOM % "512k", keys=())
    for i in range(6):
        gw.groups = MANY.replace("fam-c-", "fam-c-%d-" % i)
        gw.write()
        gw.reload()
    size = re.findall(r"of (\d+)k has no room for .*: it needs (\d+)k",
                      gw.read("error.log"))
    assert size and all(int(needs) > int(has) for has, needs in size), size


def test_a_zone_for_too_many_workers(check):
    kw = {"groups": GROUPS, "locations": LOCATION, "workers": 16}
    run = check(http=ROOM % "64k", **kw)
    assert run.returncode != 0
    size = re.search(r"zone too small: .* 64k, it needs at least (\d+k)",
                     run.stderr)[1]
    assert check(http=ROOM % size, **kw).returncode == 0


# counters never fall, and agree with the ledger


def same_cost(gw, timeout=client.LIMIT):
    """The counters' cost is the ledger's, to the nano-euro."""
    end = time.monotonic() + timeout
    while True:
        m = scrape(gw)
        counted = m.sum("modelgw_cost_euro_total") * 10 ** 9
        if m.one("modelgw_ledger_queue_calls") == 0 \
           and counted == query(gw, "SELECT coalesce(sum(cost), 0) FROM calls"):
            return m
        assert time.monotonic() < end, m.text
        time.sleep(0.05)


def traffic(gw, n=40):
    def run(i):
        for k in range(n):
            gw.chat(chat(stream=bool(k % 2)), key=(gw.bob, KEYS[0])[i % 2])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def test_cost_is_the_ledgers(gateway):
    gw = start(gateway, workers=2)
    traffic(gw)
    m = same_cost(gw)
    assert m.sum("modelgw_calls_total") \
        == query(gw, "SELECT count(*) FROM calls")
    assert m.sum("modelgw_key_cost_euro_total") \
        == m.sum("modelgw_cost_euro_total")


def test_counters_over_a_reload(gateway):
    gw = start(gateway, workers=2)
    go = threading.Event()
    gw.b.script(raw(go, answer()), answer())
    with gw.connect() as conn:
        conn.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                     chat())
        gw.b.wait()
        traffic(gw, 5)
        before = scrape(gw)
        gw.groups = GROUPS.replace("fam-b-two", "fam-b-three")
        gw.write()
        gw.reload()
        during = scrape(gw)
        assert not fallen(before, during)
        assert during.one("modelgw_workers", state="running") == 2
        assert during.one("modelgw_workers", state="leaving") >= 1
        assert during.one("modelgw_calls_in_flight", group="b") == 1
        go.set()
        assert conn.response().status == 200
    traffic(gw, 5)
    after = same_cost(gw)
    assert not fallen(during, after)
    assert after.sum("modelgw_calls_total") \
        == query(gw, "SELECT count(*) FROM calls")


def test_counters_over_a_kill(gateway):
    gw = start(gateway, workers=2)
    gw.expect("exited on signal 9")
    traffic(gw, 5)
    before = same_cost(gw)
    gw.b.script(raw("stall"))
    with gw.connect() as conn:
        conn.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                     chat())
        gw.b.wait(21)
        gw.kill_workers()
        gw.b.script(both)
        end = time.monotonic() + client.LIMIT
        while scrape(gw).one("modelgw_calls_of_the_dead_total") != 1:
            assert time.monotonic() < end
            time.sleep(0.05)
    after = same_cost(gw)
    assert not fallen(before, after)
    assert after.sum("modelgw_calls_total", end="killed") == 1


def test_a_stopped_worker_counts_its_calls(gateway):
    """By the sweep of its own exit; nginx runs on."""
    gw = start(gateway, workers=1)
    gw.b.script(raw("stall"))
    gw.expect("open socket")
    with gw.connect() as conn:
        conn.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                     chat())
        gw.b.wait()
        gw.reload()
        end = time.monotonic() + lib.SHUTDOWN + client.LIMIT
        while scrape(gw).one("modelgw_workers", state="leaving"):
            assert time.monotonic() < end
            time.sleep(0.1)
    same_cost(gw)
    assert scrape(gw).sum("modelgw_calls_total") == 1


def test_the_zone_may_come_and_go(gateway):
    gw = start(gateway, "")
    assert gw.chat().status == 200
    gw.locations = LOCATION
    gw.write()
    gw.reload()
    assert scrape(gw).one("modelgw_ledger_writable") == 1
    gw.locations = ""
    gw.write()
    gw.reload()
    assert gw.chat().status == 200
    gw.locations = LOCATION
    gw.http = LEDGER + "modelgw_metrics_zone 8m;"
    gw.write()
    gw.reload()
    with Change(gw) as c:
        assert gw.chat().status == 200
    c.wait("modelgw_requests_total")
    assert c.one("modelgw_calls_total", group="b", model="fam-b-one",
                 outcome="reported", end="complete") == 1


# Prometheus


def test_prometheus(gateway, tmp_path):
    gw = start(gateway)
    assert gw.chat().status == 200
    prometheus = Prometheus(tmp_path, gw)
    try:
        prometheus.wait("up == 1")
        prometheus.wait("modelgw_calls_total")
        (found,) = prometheus.ask("modelgw_calls_total")
        assert found["metric"]["model"] == "fam-b-one"
        assert found["value"][1] == "1"
        (found,) = prometheus.ask("scrape_samples_scraped")
        assert found["value"][1] == str(len(scrape(gw).samples))
    finally:
        prometheus.stop()


# the directive


@pytest.mark.parametrize("text, words", [
    ("location /m { modelgw_metrics; modelgw_metrics; }", "is duplicate"),
    ("location /m { modelgw_metrics keys=x; }", "a number from 0 to 1000000"),
    ("location /m { modelgw_metrics keys=1 keys=2; }", "duplicate option"),
    ("location /m { modelgw_metrics users=1; }", "unknown option"),
    ("location /m { modelgw on; modelgw_metrics; }", "in one location"),
    ("location /m { modelgw_metrics; proxy_pass http://127.0.0.1; }",
     "content handler of another directive")])
def test_refused(check, text, words):
    run = check(http=LEDGER, groups=GROUPS, locations=text)
    assert run.returncode != 0 and words in run.stderr, run.stderr


def test_refused_zone(check):
    run = check(http=LEDGER + "modelgw_metrics_zone 60k;", groups=GROUPS,
                locations=LOCATION)
    assert run.returncode != 0
    assert 'zone too small: "60k", it needs at least 64k' in run.stderr


def test_modelgw_on_of_the_server(check):
    run = check(http=LEDGER, groups=GROUPS, server="modelgw on;",
                locations="location /m { modelgw_metrics; }")
    assert run.returncode != 0 and "in one location" in run.stderr
    run = check(http=LEDGER, groups=GROUPS, server="modelgw on;",
                locations="location /m { modelgw off; modelgw_metrics; }")
    assert run.returncode == 0, run.stderr


# of the administration, whose requests are not counted

ADMIN_CODES = ("TOPUP_CONFLICT", "ACCOUNT_EXISTS", "KEY_EXISTS",
               "CONFIGURED_KEY", "PRECONDITION_FAILED", "SIGN_IN_REQUIRED")


def test_every_code_of_the_gateway_has_a_name():
    """What is not in the table is counted as "other"."""
    with open(os.path.join(lib.ROOT, "docs/api.md")) as f:
        table = f.read().partition("## Errors")[2].partition("\n* ")[0]
    with open(os.path.join(lib.ROOT,
                           "src/http/ngx_http_modelgw_count.c")) as f:
        known = f.read()
    for line in table.splitlines():
        if line.startswith("| ") and "`" in line:
            code = line.split("`")[1]
            if code not in ADMIN_CODES:
                assert '"%s"' % code in known, code


def test_every_metric_is_documented():
    with open(os.path.join(lib.ROOT, "docs/metrics.md")) as f:
        text = f.read()
    with open(os.path.join(lib.ROOT, "src/http/metrics/"
                           "ngx_http_modelgw_scrape_text.c")) as f:
        names = re.findall(r'^ +"((?:gen_ai|modelgw|process|nginx)_[a-z_]+)",',
                           f.read(), re.M)
    assert len(names) > 35
    for name in names:
        short = re.sub("^nginx_connections", "", name)
        assert "`%s`" % name in text or "`%s`" % short in text, name


# values: each is what the metric's name and unit say


SECONDS = "gen_ai_server_%s_seconds_sum"


def test_times_of_a_stream(metered):
    """Half a second to the first event, a second for the next 19 tokens."""
    events = chat_stream("one-0613", tokens=usage(prompt=1, output=20))
    metered.b.script(sse([0.5, events[0], 1.0] + events[1:]))
    begun = time.monotonic()
    with Change(metered) as c:
        assert metered.chat(chat(stream=True)).status == 200
    c.wait("modelgw_requests_total")
    most = Decimal(time.monotonic() - begun)
    duration, first, rest = (
        c.one(SECONDS % name, **NAMES) for name in
        ("request_duration", "time_to_first_token", "time_per_output_token"))
    assert Decimal("1.49") < duration < most
    assert Decimal("0.49") < first < duration - Decimal("0.99")
    assert abs(rest - (duration - first) / 19) < Decimal("0.001")
    for name, least in (("request_duration", 1.28),
                        ("time_to_first_token", 0.25),
                        ("time_per_output_token", 0.05)):
        found = c.of("gen_ai_server_%s_seconds_bucket" % name)
        bounds = [float(dict(k)["le"]) for k in found]
        assert min(bounds) > least, name


def test_time_of_an_answer(metered):
    metered.b.script(raw(0.7, answer()))
    begun = time.monotonic()
    with Change(metered) as c:
        assert metered.chat().status == 200
    c.wait("modelgw_requests_total")
    assert 0.69 < c.one(SECONDS % "request_duration", **NAMES) \
        < time.monotonic() - begun


def test_time_of_a_flush(gateway, tmp_path, monkeypatch):
    disk = Shim(tmp_path / "shim", SHIM, monkeypatch)
    gw = start(gateway)
    assert gw.chat().status == 200
    settled(gw, 1)
    gw.wait_idle()
    begun = time.monotonic()
    with Change(gw) as c:
        disk.set("hang")
        assert gw.chat().status == 200
        time.sleep(0.8)
        disk.clear("hang")
        settled(gw, 2)
    c.wait("modelgw_ledger_flush_seconds_count")
    assert 0.4 < c.one("modelgw_ledger_flush_seconds_sum") \
        < time.monotonic() - begun


def test_connections(gateway):
    """As stub_status has them: each state has another number of them."""
    gw = start(gateway, LOCATION + "location = /stub { stub_status; }",
               workers=1)
    with contextlib.ExitStack() as stack:
        conns = [stack.enter_context(gw.connect()) for _ in range(5)]
        for c in conns[:3]:
            c.request("GET", "/nosuch")
            assert c.response().status == 404
        for c in conns[3:]:
            c.send(b"GET /nosuch HTTP/1.1\r\n")
        gw.wait_idle()
        m = scrape(gw)
        stub = [int(n) for n in re.findall(r"\d+",
                                           gw.get("/stub").body.decode())]
    assert m.one("nginx_connections_reading") == 2
    assert m.one("nginx_connections_writing") == 1
    assert m.one("nginx_connections_waiting") == 3
    assert m.one("nginx_connections_active") == 6
    active, accepted, handled, requests, reading, writing, waiting = stub
    assert [active, reading, writing, waiting] == [6, 2, 1, 3]
    assert m.one("nginx_connections_accepted_total") == accepted - 1
    assert m.one("nginx_connections_handled_total") == handled - 1
    assert m.one("nginx_http_requests_total") == requests - 1


def test_connections_that_are_not_handled(gateway):
    """There are too few of them; they count as accepted."""
    gw = start(gateway, workers=1)
    with open(gw.path("nginx.conf")) as f:
        config = f.read()
    with open(gw.path("nginx.conf"), "w") as f:
        f.write(config.replace("worker_connections 2048",
                               "worker_connections 24"))
    gw.reload()
    gw.expect("worker_connections are not enough")
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(gw.connect()).send(b"GET / HTTP/1.1\r\n")
            gw.wait_idle(0.02)
    gw.wait_idle()
    m = scrape(gw)
    assert m.one("nginx_connections_handled_total") \
        < m.one("nginx_connections_accepted_total")


def test_rooms(gateway):
    """Each ratio is that of GET /status, with one call in flight."""
    gw = start(gateway, LOCATION + ADMIN,
               http="modelgw_zone 128k;" + LEDGER)
    go = threading.Event()
    gw.b.script(raw(go, answer()))
    with gw.connect() as conn:
        conn.request("POST", "/v1/chat/completions", [KEYS[0].bearer()],
                     chat())
        gw.b.wait()
        m = scrape(gw)
        zone = gw.get("/admin/status").json()["zone"]
        go.set()
        assert conn.response().status == 200
    assert zone["calls"] == 1 and zone["accounts"] == 7 and zone["keys"] == 2
    for room in ("accounts", "keys", "calls"):
        ratio = m.one("modelgw_zone_used_ratio", room=room)
        assert abs(ratio * zone[room + "_max"] - zone[room]) < Decimal("0.1")


def test_limits_of_a_group(gateway):
    """Of a key without its own; one of its own wins."""
    own = Key("own", "b", "rpm=50")
    gw = start(gateway, groups=GROUPS.replace(
        "family      fam-b-", "limits rpm=10 tpm=100000 concurrency=4;"
        "family      fam-b-"), keys=[own])
    gw.b.script(answer(prompt=1000, output=1000))
    for key in (gw.bob, own):
        assert gw.chat(key=key).status == 200
    gw.wait_idle()
    m = scrape(gw)

    def used(key):
        return {dict(k)["limit"]: float(v) for k, v in m.all(
            "modelgw_key_limit_used_ratio", key=key).items()}

    for key, rpm in (("bob-1", 0.1), ("own", 0.02)):
        found = used(key)
        assert found["concurrency"] == 0
        assert rpm * 0.5 < found["rpm"] <= rpm
        assert 0.01 < found["tpm"] <= 0.02


def test_a_worker_that_is_told_to_stop_is_not_dead(gateway):
    """It settles its calls itself."""
    gw = start(gateway, workers=1)
    gw.b.script(raw("stall"))
    gw.expect("open socket")
    begun = time.monotonic()
    with gw.connect() as conn:
        conn.request("POST", "/v1/chat/completions", [gw.bob.bearer()],
                     chat())
        gw.b.wait()
        time.sleep(0.5)
        (pid,) = gw.pids()
        os.kill(pid, signal.SIGTERM)
        lib.wait_dead([pid])
    m = same_cost(gw)
    assert 0.45 < m.one(SECONDS % "request_duration", **NAMES) \
        < time.monotonic() - begun
    assert m.sum("modelgw_calls_total", end="stopped") == 1
    assert m.one("modelgw_calls_of_the_dead_total") == 0


def test_empty_accounts(gateway):
    gw = start(gateway, LOCATION + ADMIN, keys=(),
               http=LEDGER.replace("5.00", "0"))
    m = scrape(gw)
    n = len(m.all("modelgw_account_balance_euro"))
    assert n == 4
    assert m.one("modelgw_accounts", state="positive") == 0
    assert m.one("modelgw_accounts", state="empty") == n
    assert gw.post("/admin/accounts/alice/topups",
                   {"id": "t", "amount": "1.00"}).status == 201
    m = scrape(gw)
    assert m.one("modelgw_accounts", state="positive") == 1
    assert m.one("modelgw_accounts", state="empty") == n - 1
    assert m.one("modelgw_balance_euro") == 1
