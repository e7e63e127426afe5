"""What is measured, as data: the cases (what is between client and
upstream), the loads (what goes through it), and the targets.

A case is a dictionary:
    about     what it is
    speaks    the protocol of the client: "chat", "messages", "responses" or
              "embeddings"
    modules   what nginx loads, in this order: names without ".so"
    http      more of the http block
    server    more of the server block
    keys      options of each key
    all_keys  how many keys there are, the ones that call included
    slow      turns at the largest bodies are longer, and those that would not
              answer within a turn are left out
    env       variables of nginx's environment
In http and server $dir is the case's directory, $here that of this file, and
$conninfo a database of a cluster; $flush and $exchange are empty, but where
nginx is slower than it is.

How the features are measured one by one.  The gateway cannot be configured to
skip stages, so three cases stop it early: t/bench/stage.c is a module of the
benchmark that takes over after a stage.  Each case has what the previous one
has, and

    auth       the key: found in the headers, hashed, looked up
    scan       the body scanned and spliced, its fields and model checked, the
               headers to the upstream rewritten; the answer passes untouched
    metering   the answer scanned for its usage and the model's id, in events
               too; its headers rewritten.  The gateway without a ledger
    ledger     modelgw_ledger, and rpm, tpm and concurrency of each key
    all        what an operator has: two groups, a list of models and an account
               at each key, a thousand more keys, the admin location
    metrics    the same with modelgw_metrics
    cluster    ledger with modelgw_cluster, beside a PostgreSQL, whose CPU is
               not counted

What is not separate: "scan" from "splice" (a body that is scanned is spliced,
by offsets that the scan finds), and ledger from limits but by "limits", which
is metering and limits without credit.  "messages" is metering where client and
upstream speak messages, "translate" where the client speaks chat; "responses"
and "embeddings" are the same for these, "codex-messages" and "codex-chat" where
a client of responses is translated.

njs and lua do what is commonly written: key by SHA-256, the body parsed as
JSON, the model checked and replaced, the credential set; the answer passes
untouched.
"""

import os

from bodies import EVENTS, REQUESTS, codex, conversation, lengths

RICH = "1000000.00"

MODULES = os.environ.get("MODELGW_MODULES", "/usr/lib/nginx/modules")


GROUP = """
    modelgw_group %(name)s {
        protocol    %(protocol)s;
        family      %(name)s-;
        owned_by    vendor;
        upstream    http://upstream.test;
        credential  Authorization file:$dir/secret bearer;
        pass_header x-bench;
        model %(name)s-large  large-2026-01-01  input=3 output=15
            max_output=64000 context=1000000;
        model %(name)s-small  small-2026-01-01  input=1 output=5
            max_output=64000 context=1000000;
    }
"""

KEYS = "modelgw_keys { include $dir/keys.conf; }"
CHAT, MESSAGES, RESPONSES, EMBEDDINGS = (
    GROUP % {"name": "bench", "protocol": protocol} + KEYS
    for protocol in ("chat", "messages", "responses", "embeddings"))
EMBEDDINGS = EMBEDDINGS.replace("context=", "kind=embedding context=")
TWO = GROUP % {"name": "other", "protocol": "messages"} + CHAT

LEDGER = "modelgw_ledger $dir/ledger.db $flush; " \
         "modelgw_founding_credit %s;" % RICH

CLUSTER = LEDGER + 'modelgw_cluster "$conninfo" ' \
                   'password=file:$dir/password $exchange;'

# the maximum: nothing is refused
LIMITS = "rpm=1000000000 tpm=1000000000 concurrency=100000"

PLAIN = "location /v1/ { proxy_buffering off; " \
        "proxy_pass http://upstream.test; }"
GATEWAY = "location /v1/ { modelgw on; proxy_pass $modelgw_upstream; }"
ADMIN = "location /admin/ { modelgw_admin; allow 127.0.0.1; deny all; }"
METRICS = "location = /metrics { modelgw_metrics keys=2000; }"

# what the module sets in each worker: zone/heap.c

KEPT = {"MALLOC_TRIM_THRESHOLD_": str(256 << 20),
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "MALLOC_TOP_PAD_": str(1 << 20)}

OURS = ["modelgw"]
STAGED = ["modelgw", "stage"]

CASES = {
    "direct": {
        "about": "no gateway",
        "speaks": "chat"},
    "plain": {
        "about": "proxy_pass with keep-alive",
        "speaks": "chat", "modules": [], "server": PLAIN},
    "kept": {
        "about": "plain, and its allocator keeps what is freed, as ours",
        "speaks": "chat", "modules": [], "server": PLAIN, "env": KEPT},
    "auth": {
        "about": "the gateway, up to the key",
        "speaks": "chat", "modules": STAGED, "http": CHAT,
        "server": "bench_stage key; " + GATEWAY
                  + PLAIN.replace("/v1/", "@plain")},
    "scan": {
        "about": "and the request: scan, checks, splice",
        "speaks": "chat", "modules": STAGED, "http": CHAT,
        "server": "bench_stage request; " + GATEWAY},
    "metering": {
        "about": "and the answer: usage, model id",
        "speaks": "chat", "modules": OURS, "http": CHAT, "server": GATEWAY},
    "limits": {
        "about": "and limits of keys, without credit",
        "speaks": "chat", "modules": OURS, "http": CHAT, "server": GATEWAY,
        "keys": LIMITS},
    "ledger": {
        "about": "and credit: the ledger and limits",
        "speaks": "chat", "modules": OURS, "http": LEDGER + CHAT,
        "server": GATEWAY, "keys": LIMITS},
    "all": {
        "about": "everything on, as an operator has it",
        "speaks": "chat", "modules": OURS, "http": LEDGER + TWO,
        "server": GATEWAY + ADMIN, "all_keys": 1100,
        "keys": LIMITS + " models=bench-large,bench-small account=bench"},
    "metrics": {
        "about": "and metrics: all with modelgw_metrics",
        "speaks": "chat", "modules": OURS, "http": LEDGER + TWO,
        "server": GATEWAY + ADMIN + METRICS, "all_keys": 1100,
        "keys": LIMITS + " models=bench-large,bench-small account=bench"},
    "cluster": {
        "about": "ledger, as a node of a cluster",
        "speaks": "chat", "modules": OURS, "http": CLUSTER + CHAT,
        "server": GATEWAY, "keys": LIMITS},
    "messages": {
        "about": "metering, messages to messages",
        "speaks": "messages", "modules": OURS, "http": MESSAGES,
        "server": GATEWAY},
    "translate": {
        "about": "metering, chat to messages",
        "speaks": "chat", "modules": OURS, "http": MESSAGES,
        "server": GATEWAY},
    "responses": {
        "about": "metering, responses to responses",
        "speaks": "responses", "modules": OURS, "http": RESPONSES,
        "server": GATEWAY},
    "codex-messages": {
        "about": "metering, responses to messages",
        "speaks": "responses", "modules": OURS, "http": MESSAGES,
        "server": GATEWAY},
    "codex-chat": {
        "about": "metering, responses to chat",
        "speaks": "responses", "modules": OURS, "http": CHAT,
        "server": GATEWAY},
    "embeddings": {
        "about": "metering, embeddings",
        "speaks": "embeddings", "modules": OURS, "http": EMBEDDINGS,
        "server": GATEWAY},
    "njs": {
        "about": "the same checks in njs",
        "speaks": "chat", "modules": ["http_js"], "slow": True,
        "http": "js_path $here; js_import bench from njs.js; "
                "js_preload_object keys from $dir/keys.json; "
                "js_var $bench_body;",
        "server": """
        location /v1/ { js_content bench.check; }
        location @upstream {
            proxy_buffering off;
            proxy_set_header Connection "";
            proxy_set_header Authorization "Bearer an-upstream-credential";
            proxy_set_body $bench_body;
            proxy_pass http://upstream.test;
        }"""},
    "lua": {
        "about": "the same checks in Lua",
        "speaks": "chat", "modules": ["ndk_http", "http_lua"], "slow": True,
        "http": """
    lua_package_path "$here/?.lua;;";
    init_by_lua_block { bench = require "gateway" }""",
        "server": """
        location /v1/ {
            access_by_lua_block { bench.check() }
            proxy_buffering off;
            proxy_pass http://upstream.test;
        }"""},
}


# Loads: kind, size of the body, connections, and whether a stream comes in one
# write or in one for each event.  Each call has new bytes, but those of
# "resent": a client that sends its whole conversation with each turn.
#
# A worker keeps the memory that it has used: the largest bodies are last.

def loads():
    table = {}
    for writes in ("one", "each"):
        for connections in (1, 32, 256):
            table["stream-%s-%d" % (writes, connections)] = (
                "stream", "1k", connections, writes)
    for body in ("1k", "20k", "codex", "turn", "200k", "2m"):
        for connections in (1, 32, 256):
            table["json-%s-%d" % (body, connections)] = (
                "json", body, connections, "one")
    for body in ("200k", "2m"):
        table["json-%s-resent-32" % body] = ("json", body + "-resent", 32,
                                             "one")
    for body in ("1k", "20k"):
        table["json-%s-busy" % body] = ("json", body, 32, "busy")
    return table


LOADS = loads()
SIZES = {"1k": 1 << 10, "20k": 20 << 10, "50k": 50 << 10, "codex": 50 << 10,
         "turn": 50 << 10, "200k": 200 << 10, "2m": 2 << 20}


TURNS_RESENT = 32   # calls of a conversation, of which the first one is new
RESENT = ("chat", "messages")       # the APIs whose turns are last in the body


def request_lengths(body, speaks):
    """Where the calls of a conversation end in the body, if it is resent."""
    size, _, resent = body.partition("-")
    return lengths(conversation(SIZES[size]), REQUESTS[speaks],
                   TURNS_RESENT) if resent and speaks in RESENT else []


def request(body, speaks, stream):
    """The body of a request.  "codex" is the first turn of Codex in the form of
    each API; "turn" only in its own, and in the others the agent's turn that
    all other loads are."""
    write = REQUESTS[speaks]
    size = SIZES[body.partition("-")[0]]
    if body == "codex" or body == "turn" and speaks == "responses":
        return write(codex(size, write), stream)
    return write(conversation(size), stream)


IDLE = 1000         # idle streams, for the memory of each
IDLE_CASES = ["plain", "metering", "all", "njs", "lua"]

FEW = ["plain", "metering", "ledger", "all"]

TRANSLATED = ["translate", "codex-messages", "codex-chat"]
SCRIPTS = ["njs", "lua"]

QUICK = {
    "stream-one-32": ["plain", "metering", "all", "messages"] + TRANSLATED
                     + SCRIPTS,
    "stream-each-32": ["plain", "metering", "all"],
    "json-1k-1": ["direct", "plain", "all"],
    "json-1k-32": FEW,
    "json-20k-32": FEW + ["kept", "translate"] + SCRIPTS,
    "json-turn-32": ["plain"] + TRANSLATED,
    "json-200k-32": ["plain", "kept", "all"],
    "json-200k-resent-32": ["plain", "all"],
    "json-2m-32": ["plain", "kept", "all"],
    "json-2m-resent-32": ["plain", "all"],
    "idle": ["plain", "metering", "all"],
}


def left_out(case, load):
    """Where no request would be answered within a turn; streams of embeddings
    there are not.  Busy loads are for those that are compared."""
    return (load.endswith("-busy")
            and case not in ("plain", "ledger", "cluster")
            or "-resent-" in load and CASES[case]["speaks"] not in RESENT
            or CASES[case].get("slow") and load in ("json-2m-256",
                                                 "json-200k-256")
            or case == "embeddings" and load.startswith("stream"))


# the order of a round's turns: pairs between two of plain

TURNS = ["direct", "kept", "auth", "scan", "limits", "metering", "ledger",
         "cluster", "all", "translate", "messages", "responses", "codex-messages", "codex-chat",
         "embeddings", "njs", "lua"]


def sequence(cases):
    """The turns of a round: each case is next to a "plain", and two that are
    compared are next to each other."""
    if "plain" not in cases:
        return list(cases)
    others = [case for case in TURNS if case in cases]
    turns = []
    for i, case in enumerate(others):
        if i % 2 == 0:
            turns.append("plain")
        turns.append(case)
    return turns + (["plain"] if len(others) % 2 == 0 else [])


# Targets: name, load, maximum, and the figure: a function of the
# medians of one case, or of the ratio of two in the same round.

def ratio(case, of="plain"):
    return lambda m: m.ratio(case, of)


def own(case, of):
    """The ratio without what plain proxy_pass costs in both."""
    return lambda m: m.of_round(lambda cpu: (cpu(case) - cpu("plain"))
                                / (cpu(of) - cpu("plain")))


def per_event(case, of):
    return lambda m: m.of_round(lambda cpu: (cpu(case) - cpu(of)) / EVENTS)


def added_p99(case):
    return lambda m: m.added("p99_us", case)


TARGETS = [
    ("everything on, 1 KB: CPU, times plain", "json-1k-32", 1.40,
     ratio("all")),
    ("everything on, 20 KB: CPU, times plain", "json-20k-32", 1.50,
     ratio("all")),
    ("everything on, 200 KB, new bytes: CPU, times plain", "json-200k-32",
     1.50, ratio("all")),
    ("the same, a conversation sent again", "json-200k-resent-32", 1.10,
     ratio("all")),
    ("everything on, 2 MB, new bytes: CPU, times plain", "json-2m-32", 1.70,
     ratio("all")),
    ("the same, a conversation sent again", "json-2m-resent-32", 1.10,
     ratio("all")),
    ("everything on, stream of 100 events: CPU, times plain",
     "stream-one-32", 1.45, ratio("all")),
    ("the same, written event by event", "stream-each-32", 0.90,
     ratio("all")),
    ("everything on, one connection, 1 KB: us of p99 over plain",
     "json-1k-1", 100, added_p99("all")),
    ("ledger and limits, 1 KB: CPU, times metering's", "json-1k-32", 1.10,
     ratio("ledger", "metering")),
    ("ledger and limits, 20 KB: CPU, times metering's", "json-20k-32", 1.10,
     ratio("ledger", "metering")),
    ("a node of a cluster, 1 KB: CPU, times the ledger's", "json-1k-busy",
     1.03, ratio("cluster", "ledger")),
    ("a node of a cluster, 20 KB: CPU, times the ledger's", "json-20k-busy",
     1.03, ratio("cluster", "ledger")),
    ("translated 20 KB request: CPU, times the untranslated chat call's",
     "json-20k-32", 1.4, ratio("translate", "metering")),
    ("the same, without what plain proxy_pass costs in both",
     "json-20k-32", 1.4, own("translate", "metering")),
    ("translated stream: us an event over messages to messages",
     "stream-one-32", 2, per_event("translate", "messages")),
    ("translated stream: us an event over chat to chat",
     "stream-one-32", 2, per_event("translate", "metering")),
    ("a first turn of Codex to messages: CPU, times a chat call's of that size",
     "json-turn-32", 1, ratio("codex-messages", "translate")),
    ("the same to a chat upstream", "json-turn-32", 1,
     ratio("codex-chat", "translate")),
    ("responses on messages: us an event over messages to messages",
     "stream-one-32", 2, per_event("codex-messages", "messages")),
    ("responses on chat: us an event over chat to chat",
     "stream-one-32", 2, per_event("codex-chat", "metering")),
    ("an idle stream, everything on: memory, times plain", "idle", 1.3,
     ratio("all")),
]
