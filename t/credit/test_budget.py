"""Budgets of keys: budget= of key lines and of a group's limits."""

import concurrent.futures
import contextlib
import re
import sqlite3
import threading
import time

import pytest

from client import LIMIT, assert_flat
from config_check import Config, key
from gateway import MODELS_A, MODELS_B, Key, chat, group_a, group_b
from test_admin import GROUPS, LEDGER
from upstream import both, raw

COST = 11 * 1000 + 7 * 2000      # nano-euro, of a call to upstream.both()
EURO = 10 ** 9

ADMIN = "location /admin/ { modelgw_admin; allow 127.0.0.1; deny all; }"


def euro(nano):
    return "%d.%09d" % divmod(nano, EURO)


def nano(text):
    whole, part = text.split(".")
    return int(whole) * EURO + int(part.ljust(9, "0"))


@pytest.fixture
def start(gateway):
    def run(*keys, **kw):
        kw.setdefault("groups", GROUPS)
        return gateway(http=LEDGER.replace("5.00", "100000"), locations=ADMIN,
                       keys=keys, **kw)

    return run


def shown(g, key):
    keys = g.get("/admin/keys").json()["keys"]
    return {k["id"]: k for k in keys}[key.id]


def used(g, key):
    return nano(shown(g, key)["budget_used"])


def refused(r, *words):
    assert_flat(r, 402, "BUDGET_EXCEEDED")
    assert r.get("x-should-retry") == "false" and not r.get("retry-after")
    for word in words:
        assert word in r.json()["message"], r
    return r


def bound(g, key):
    """What is held for a call, told by a key that has nearly nothing."""
    text = refused(g.chat(key=key)).json()["message"]
    return nano(re.search(r"up to ([\d.]+) euro", text).group(1))


def small():
    return Key("small", "b", "budget=0.000000001/total")


@pytest.fixture
def slow():
    """A script whose answers wait for slow.go."""
    go = threading.Event()
    script = raw(go, both)
    script.go = go
    yield script
    go.set()


def test_refused(start, tmp_path):
    tight = Key("tight", "b", "budget=0.00001/month account=purse")
    g = start(tight)
    r = refused(g.chat(key=tight, headers=[("x-test-tag", "402")]),
                "Budget exceeded: the call may cost up to 0.0",
                " 0.00 of 0.00001 euro a month are used until 20",
                "-01T00:00:00Z; wait until then")
    assert r.get("x-modelgw-budget-remaining") == "0.00001"
    assert g.logged("402")["reason"] == "budget"
    assert not g.b.requests
    assert g.get("/admin/accounts/purse").json()["balance"] == "100000.00"


@pytest.mark.parametrize("window, text", [
    ("day", "euro a day are used until"), ("week", "euro a week are"),
    ("month", "euro a month are"),
    ("total", "euro in total are used; ask for a larger budget")])
def test_windows(start, window, text):
    k = Key("k", "b", "budget=0.00001/" + window)
    g = start(k)
    refused(g.chat(key=k), text)
    s = shown(g, k)
    assert s["budget"] == "0.00001/" + window and s["budget_used"] == "0.00"
    most = {"day": 1, "week": 7, "month": 31}.get(window)
    assert s["budget_resets_in"] is None if most is None \
        else 0 <= s["budget_resets_in"] <= most * 86400


def test_message_says_what_fits(start):
    k = Key("k", "b", "budget=0.004/day")
    g = start(k)
    text = refused(g.chat(key=k)).json()["message"]
    n = int(re.search(r"max_tokens of (\d+) would fit", text).group(1))
    assert g.chat(chat(max_tokens=n + 50), key=k).status == 402
    assert g.chat(chat(max_tokens=n - 50), key=k).status == 200


def test_header(start):
    """What is left as the call began, less what was set aside for it."""
    k = Key("k", "b", "budget=10.00/day")
    free = Key("free", "b")
    a = Key("a-1", "a", "budget=10.00/total")
    g = start(k, free, a, small())
    hold = bound(g, g.keys[-1])
    for n in range(3):
        r = g.chat(key=k)
        assert r.status == 200
        assert nano(r.get("x-modelgw-budget-remaining")) \
            == 10 * EURO - n * COST - hold
    r = g.chat(chat(stream=True), key=k)
    assert r.get("x-modelgw-budget-remaining")
    assert not g.chat(key=free).get("x-modelgw-budget-remaining")
    r = g.messages(key=a)
    assert r.status == 200 and r.get("x-modelgw-budget-remaining")
    r = g.get("/v1/models", k)
    assert r.status == 200 and not r.get("x-modelgw-budget-remaining")


def test_thousand_calls_on_a_budget_for_ten(start, slow):
    """What is set aside bounds what is spent: no more calls are admitted."""
    one = small()
    g = start(one)
    hold = bound(g, one)
    ten = Key("ten", "b", "budget=%s/day account=purse"
              % euro(10 * hold + hold // 2))
    g.keys.append(ten)
    g.write_keys()
    g.reload()
    g.b.script(slow)
    done = []

    def call(_):
        status = g.chat(key=ten).status
        done.append(status)
        if done.count(402) == 990:
            slow.go.set()
        return status

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        result = list(pool.map(call, range(1000)))
    assert sorted(set(result)) == [200, 402]
    assert result.count(200) == 10 and len(g.b.requests) == 10
    assert used(g, ten) == 10 * COST
    assert g.get("/admin/accounts/purse").json()["held"] == "0.00"


def stored(g, n):
    """That many calls are in the file."""
    end = time.monotonic() + LIMIT
    while True:
        db = sqlite3.connect("file:%s?mode=ro" % g.path("ledger.db"), uri=True,
                             timeout=LIMIT)
        with contextlib.closing(db):
            if db.execute("SELECT count(*) FROM calls").fetchone() == (n,):
                return
        assert time.monotonic() < end
        time.sleep(0.02)


def test_restart_and_reload(start):
    k = Key("k", "b", "budget=1.00/day")
    g = start(k)
    for _ in range(5):
        assert g.chat(key=k).status == 200
    assert used(g, k) == 5 * COST
    for window in ("day", "week", "month", "total", "day"):
        k.options = "budget=2.00/" + window
        g.write_keys()
        g.reload()
        assert used(g, k) == 5 * COST, window
        assert shown(g, k)["budget"] == "2.00/" + window
    g.stop()
    g.start()
    assert used(g, k) == 5 * COST
    for options in ("", "rpm=1000", ""):
        k.options = options
        g.write_keys()
        g.reload()
        assert shown(g, k)["budget"] is None
        assert g.chat(key=k).status == 200
    k.options = "budget=2.00/month"
    g.write_keys()
    g.reload()
    assert used(g, k) == 8 * COST
    stored(g, 8)
    k.options = "budget=%s/month" % euro(8 * COST)
    g.write_keys()
    g.reload()
    refused(g.chat(key=k))


def test_first_budget_counts_what_is_not_written(gateway):
    """Calls of a key without any limit, which are in memory only when it gets a
    budget."""
    k = Key("k", "b")
    g = gateway(http=LEDGER.replace("ledger.db", "ledger.db flush=1s"),
                groups=GROUPS, locations=ADMIN, keys=[k])
    for n, window in enumerate(("day", "week", "month", "total"), 1):
        k.options = ""
        g.write_keys()
        g.reload()
        assert g.chat(key=k).status == 200
        k.options = "budget=2.00/" + window
        g.write_keys()
        g.reload()
        assert used(g, k) == n * COST


def test_reload_while_calls_end(start):
    """A key's first budget, and other windows, while calls of the same key
    end in workers that are leaving: each is counted once."""
    k = Key("k", "b", "rpm=1000000")
    g = start(k)
    stop = threading.Event()
    done = []

    def work():
        while not stop.is_set():
            assert g.chat(key=k).status in (200, 503)
            done.append(1)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(work) for _ in range(4)]
        try:
            for n in range(6):
                k.options = "rpm=1000000 budget=1000/%s" % (
                    "total", "month")[n % 2]
                g.write_keys()
                g.reload()
        finally:
            stop.set()
        for f in futures:
            f.result()
    calls = len(g.b.requests)
    assert calls > 10
    stored(g, calls)
    assert used(g, k) == calls * COST


def test_a_budget_that_calls_in_flight_have_used(start, slow):
    """Calls that began before a reload changed the budget count."""
    k = Key("k", "b", "budget=100/day")
    g = start(k, small())
    hold = bound(g, g.keys[-1])
    g.b.script(slow, both)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        call = pool.submit(g.chat, key=k)
        g.b.wait()
        assert used(g, k) == hold
        k.options = "budget=%s/total" % euro(hold * 3 // 2)
        g.write_keys()
        g.reload()
        assert used(g, k) == hold
        refused(g.chat(key=k))
        slow.go.set()
        assert call.result().status == 200
    assert used(g, k) == COST
    assert g.chat(key=k).status == 200


def test_killed_worker(start, slow):
    """What it held is charged by the rule of the account."""
    k = Key("k", "b", "budget=100/month account=purse")
    g = start(k)
    g.expect("exited on signal 9")
    g.b.script(slow, both)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        call = pool.submit(lambda: g.chat(key=k))
        g.b.wait()
        assert used(g, k) > COST
        g.kill_workers()
        with contextlib.suppress(Exception):
            call.result()
    g.wait_log("calls of workers that have died are settled")
    spent = 100000 * EURO - nano(g.get("/admin/accounts/purse")
                                 .json()["balance"])
    assert 0 < spent and used(g, k) == spent
    g.stop()
    g.start()
    assert used(g, k) == spent


def test_all_killed(start, slow):
    """Calls that were lost are charged at the start, to the budget, too."""
    k = Key("k", "b", "budget=100/month account=purse")
    g = start(k)
    g.b.script(slow, both)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        call = pool.submit(lambda: g.chat(key=k))
        g.b.wait()
        end = time.monotonic() + LIMIT
        while True:
            db = sqlite3.connect("file:%s?mode=ro" % g.path("ledger.db"),
                                 uri=True, timeout=LIMIT)
            with contextlib.closing(db):
                if db.execute("SELECT count(*) FROM holds").fetchone()[0]:
                    break
            assert time.monotonic() < end
            time.sleep(0.02)
        g.power_cut()
        with contextlib.suppress(Exception):
            call.result()
    g.start()
    spent = 100000 * EURO - nano(g.get("/admin/accounts/purse")
                                 .json()["balance"])
    assert 0 < spent and used(g, k) == spent


def test_group(start):
    """A key's own budget comes first; each key has the group's for itself."""
    limits = "limits budget=0.00001/day;"
    own = Key("own", "b", "budget=50.00/week")
    other = Key("other", "b")
    g = start(own, other, groups=group_a(
        models=MODELS_A.replace("max_output=64000", "")
        .replace(";", " max_output=4000;")) + group_b(
        models=MODELS_B.replace(";", " max_output=4000;"), extra=limits))
    assert g.chat(key=own).status == 200
    refused(g.chat(), "0.00 of 0.00001 euro a day")
    refused(g.chat(key=other), "0.00 of 0.00001 euro a day")
    assert shown(g, g.bob)["budget"] == "0.00001/day"
    assert shown(g, own)["budget"] == "50.00/week"
    assert shown(g, g.alice)["budget"] is None


def test_free_models_cost_nothing(start):
    lines = [line for line in GROUPS.split("\n") if "fam-b-one" in line]
    g = start(small(), groups=GROUPS.replace(
        lines[0], "model fam-b-one  one-0613  free;"))
    r = g.chat(key=g.keys[-1])
    assert r.status == 200
    assert r.get("x-modelgw-budget-remaining") == "0.000000001"


def test_metrics(gateway, slow):
    """What is held counts; the code of a refused call is a label."""
    k = Key("k", "b", "budget=0.02/month")
    g = gateway(groups=GROUPS, http=LEDGER, keys=[k, small()], locations=ADMIN
                + "location /metrics { modelgw_metrics; }")
    hold = bound(g, g.keys[-1])
    g.b.script(slow)

    def scrape():
        return g.get("/metrics").body.decode()

    def ratio():
        m = re.search(r'modelgw_key_budget_used_ratio\{key="k",'
                      r'window="month"\} (\S+)', scrape())
        return float(m.group(1))

    assert ratio() == 0
    with concurrent.futures.ThreadPoolExecutor() as pool:
        call = pool.submit(g.chat, key=k)
        g.b.wait()
        assert abs(ratio() - hold / (0.02 * EURO)) < 0.0002
        slow.go.set()
        assert call.result().status == 200
    assert abs(ratio() - COST / (0.02 * EURO)) < 0.0002
    end = time.monotonic() + LIMIT
    while 'code="BUDGET_EXCEEDED"} 1' not in scrape():
        assert time.monotonic() < end


# nginx -t


@pytest.fixture
def conf(tmp_path):
    return Config(tmp_path)


@pytest.mark.parametrize("value", ["", "5", "5/", "/day", "0/day", "5/year",
                                   "-5/day", "5/Day", "1000000000/day"])
def test_invalid(conf, value):
    conf.refused('invalid option "budget=%s" of key' % value,
                 "euro for a window, as 50.00/month",
                 keys=key("k", options="budget=" + value), place=False)


def test_without_a_ledger(conf):
    r = conf.test(keys=key("k", options="budget=5.00/day"))
    assert r.rc != 0, r.text
    assert re.search(r'"k" has a budget, but there is no "modelgw_ledger" in '
                     r'http, in \S+/nginx.conf:\d+', r.text), r.text
    r = conf.test(groups="modelgw_group g { limits budget=1/day; }")
    assert r.rc != 0
