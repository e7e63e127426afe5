"""conf/openapi.json: it is valid, has every route of the C source and no other,
and a gateway answers as it says."""

import csv
import hashlib
import io
import itertools
import json
import os
import re
import secrets
import time

import openapi_spec_validator
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from jsonschema import Draft202012Validator
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import unsupported_method

from client import LIMIT
from gateway import ROOT, Key
from metrics import LOCATION
from test_admin import WITH_LEDGER

FILE = os.path.join(ROOT, "conf/openapi.json")
ROUTES = os.path.join(ROOT, "src/http/admin/ngx_http_modelgw_admin.c")

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")

with open(FILE) as f:
    API = json.load(f)


def operations():
    """{"METHOD /path": operation}"""
    return {"%s %s" % (method.upper(), path): item[method]
            for path, item in API["paths"].items()
            for method in METHODS if method in item}


OPERATORS = {"viewer", "billing", "admin"}

ROLES = {"NGX_HTTP_MODELGW_ROLES_VIEW": OPERATORS,
         "NGX_HTTP_MODELGW_ROLES_PAY": {"billing", "admin"},
         "NGX_HTTP_MODELGW_ROLES_ALL": OPERATORS | {"holder"},
         "NGX_HTTP_MODELGW_ROLES_REVOKE": {"admin", "holder"},
         "NGX_HTTP_MODELGW_ROLE_ADMIN": {"admin"},
         "0": OPERATORS | {"holder"}}


def routes():
    """The rows of the C table as {"METHOD /path": roles}; an id is "{}"."""
    with open(ROUTES) as f:
        table = re.search(r"admin_routes\[\] = \{\n(.*?)\n\};", f.read(), re.S)
    rows = re.findall(r"\{ ngx_string\(\"([^\"]*)\"\),\s*"
                      r"(?:ngx_null_string|ngx_string\(\"([^\"]*)\"\)),\s*"
                      r"NGX_HTTP_([A-Z]+),\s*(\w+),", table.group(1))
    assert len(rows) == len(re.findall(r"\bNGX_HTTP_(?!MODELGW)[A-Z]+,",
                                       table.group(1)))
    return {"%s /%s" % (method, path + ("{}" if path.endswith("/") else "")
                        + tail): ROLES[roles]
            for path, tail, method, roles in rows}


def resolve(part):
    while "$ref" in part:
        for name in part["$ref"][2:].split("/"):
            found = (API if name == "components" else found)[name]
        part = found
    return part


# the file


def test_is_valid():
    openapi_spec_validator.validate(API)


def test_has_every_route():
    described = {re.sub(r"\{[a-z]+\}", "{}", name): set(op["x-modelgw-roles"])
                 for name, op in operations().items()}
    assert len(routes()) >= 20
    # the one route for both
    described["POST /keys/{}/revoke"] |= described.pop("POST /keys/self/revoke")
    assert described == routes()


@pytest.mark.parametrize("name", operations())
def test_operation_is_complete(name):
    """What all have: an id, roles, the refusals of sign-in, CSRF, limits."""
    op = operations()[name]
    path = name.split()[1]
    assert op["operationId"] and op["summary"] and op["tags"]
    assert set(op["x-modelgw-roles"]) <= {"admin", "billing", "viewer",
                                          "holder"}
    assert {"400", "401", "403", "405", "414", "429", "500", "503"} \
        <= set(op["responses"])
    names = [resolve(p)["name"] for p in
             API["paths"][path].get("parameters", [])
             + op.get("parameters", [])]
    assert len(set(names)) == len(names)
    assert re.findall(r"\{([a-z]+)\}", path) == [
        n for n in names if "{%s}" % n in path]
    assert ("X-Modelgw-Console" in names) == (not name.startswith("GET "))
    assert ("413" in op["responses"]) == ("requestBody" in op
                                          or name.startswith("DELETE /keys"))


def test_nothing_is_left_over():
    """All components are used, all tags are known, ids are unique."""
    text = json.dumps(API)
    for kind in ("parameters", "headers", "responses", "schemas"):
        for name in API["components"][kind]:
            assert '"#/components/%s/%s"' % (kind, name) in text, name
    ops = operations().values()
    assert {t for op in ops for t in op["tags"]} \
        == {t["name"] for t in API["tags"]}
    assert len({op["operationId"] for op in ops}) == len(ops)


# the gateway


KEYS = [Key("erin", "b", "account=shop models=fam-b-one rpm=60 tpm=9000"
            " budget=5.00/month"),
        Key("old", "b", "account=shop expires=2020-01-01")]


class Described:
    """A gateway that has something of everything."""

    def __init__(self, start):
        parts = dict(WITH_LEDGER, http=WITH_LEDGER["http"] + """
            modelgw_managed_keys 10000;
            modelgw_topup_url https://pay.test/?account=%s;
            modelgw_operators { include $dir/operators.conf; }""")
        self.tokens = {role: "op-eu-" + secrets.token_hex(24)
                       for role in ("admin", "billing", "viewer")}
        self.gw = start(**parts, keys=KEYS, locations=LOCATION + """
            location /admin/ { modelgw_admin; }""", files={
                "operators.conf": "".join(
                    "%s sha256:%s %s expires=2035-01-01;\n"
                    % (role, sha256(token), role)
                    for role, token in self.tokens.items())})
        self.tokens["holder"] = KEYS[0].secret
        self.url = "http://127.0.0.1:%d/admin" % self.gw.port
        self.session = source("127.0.0.1")
        self.stranger = source("127.0.0.2")
        assert self.gw.chat().status == 200
        assert self.gw.messages().status == 200
        assert self.gw.chat(key=self.gw.alice).status == 403
        self.made = {}
        self.post("/accounts", {"id": "made", "note": "\u03a9"})
        self.post("/accounts/made/topups",
                  {"id": "in", "amount": "10.00", "reason": "x"})
        self.post("/accounts/made/topups",
                  {"id": "out", "amount": "-1.00", "correction": True,
                   "reason": "x"})
        self.post("/keys/%s/revoke" % self.key("revoked"), {})
        self.last = self.call()

    def bearer(self, role="admin"):
        return "Authorization", "Bearer " + self.tokens[role]

    def request(self, method, path, body=None, role="admin", headers=(), **kw):
        """As somebody of that role, None: of none."""
        headers = list(headers) + ([self.bearer(role)] if role else [])
        return self.gw.request(method, "/admin" + path, headers=headers,
                               body=body, **kw)

    def post(self, path, body):
        r = self.request("POST", path, body)
        assert r.status in (200, 201), r
        return r.json()

    def key(self, name):
        """A key for that operation, which may end it."""
        if name not in self.made:
            self.made[name] = self.post("/keys", {
                "group": "b", "note": "<b>", "models": ["fam-b-one"], "rpm": 5,
                "budget": "1.00/day", "expires": "2035-01-01"})["id"]
        return self.made[name]

    def call(self):
        """The id of the last call; it is in the file after a flush."""
        end = time.monotonic() + LIMIT
        while True:
            calls = self.request("GET", "/calls?limit=1").json()["calls"]
            if calls:
                return calls[0]["id"]
            assert time.monotonic() < end, "no call in the ledger"
            time.sleep(0.02)

    def known(self, name):
        # one that is revoked already is answered with 200, whatever the version
        if name in ("DELETE /keys/{key}", "POST /keys/{key}/revoke"):
            self.made.pop(name, None)

        return {"account": "made", "key": self.key(name), "call": self.last,
                "node": 1}

    def path(self, name):
        path = name.split()[1]
        for word, value in self.known(name).items():
            path = path.replace("{%s}" % word, str(value))
        return path


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def source(address):
    """A session of requests from that address: attempts to sign in that fail
    are counted by it."""
    adapter = requests.adapters.HTTPAdapter()
    adapter.poolmanager = adapter.poolmanager.__class__(
        source_address=(address, 0))
    session = requests.Session()
    session.mount("http://", adapter)
    return session


@pytest.fixture(scope="module")
def described(module_gateway):
    return Described(module_gateway)


# Checks and bounds; what is random is the same in each run.

CONFIG = SchemathesisConfig.from_dict({
    "seed": 14,
    "generation": {"deterministic": True, "database": "none",
                   "no-shrink": True, "with-security-parameters": False},
    "checks": {
        # test_roles() does it: too many attempts are refused
        "ignored_auth": {"enabled": False},
        # texts of the right form may name what does not exist
        "positive_data_acceptance": {"enabled": False},
        "negative_data_rejection": {"expected-statuses": ["4xx"]}},
    # TRACE is refused by nginx itself, without Allow
    "phases": {"coverage": {"unexpected-methods": [
        "get", "put", "post", "delete", "options", "patch", "query"]}}})

SCHEMA = schemathesis.openapi.from_path(FILE, config=CONFIG)

EXAMPLES = 25


@SCHEMA.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True,
          database=None, suppress_health_check=list(HealthCheck))
def test_answers_as_described(case, described):
    """To all that the description allows, and to what it does not."""
    known = described.known(case.operation.label)

    # others are nginx's: 501 for a Transfer-Encoding, for example
    case.headers = {name: value for name, value in (case.headers or {}).items()
                    if name in ("If-Match", "Idempotency-Key",
                                "X-Modelgw-Console")}

    for name, value in (case.path_parameters or {}).items():
        schema = resolve(resolve({"$ref": {
            "account": "#/components/parameters/Account",
            "key": "#/components/parameters/KeyId",
            "call": "#/components/parameters/CallId",
            "node": "#/components/parameters/Node"}[name]})["schema"])
        if matches(schema, value) and len(str(value)) % 3:
            case.path_parameters[name] = known[name]

    if isinstance(case.body, dict):
        for name, value in VALUES.get(case.operation.label, {}).items():
            if case.body.get(name) is not None \
                    and matches(field(case.operation.label, name),
                                case.body[name]):
                case.body[name] = value % next(COUNT) if "%" in value else value

    if case.operation.label == "POST /session":
        # the other methods want a token first
        case.call_and_validate(base_url=described.url,
                               session=described.stranger,
                               excluded_checks=[unsupported_method])
        return

    r = case.call_and_validate(base_url=described.url,
                               session=described.session,
                               headers=dict([described.bearer()]))

    if case.meta.generation.mode.is_positive and r.status_code == 400:
        assert MEANT.match(r.json()["message"]), r.json()


# values of the right form that must be new, or configured, or a day to come

VALUES = {
    "POST /accounts": {"id": "fresh-%d"},
    "POST /accounts/{account}/topups": {"id": "fresh-%d", "amount": "1.00"},
    "POST /keys": {"id": "fresh-%d", "account": "made", "group": "b",
                   "models": ["fam-b-one"], "expires": "2035-01-01",
                   "budget": "1.00/day", "hash": "sha256:%064d"},
    "PATCH /keys/{key}": {"models": ["fam-b-one"], "expires": "2035-01-01",
                          "budget": "1.00/day"}}

COUNT = itertools.count()

# what the description does not refuse, but the gateway does; 5.0 is an integer
# of JSON Schema

MEANT = re.compile(
    r'"(amount|budget)" must be euro|"grace" must be a time'
    r'|"(note|reason)" must be at most 256 bytes|"q" must be 1 to 256 bytes'
    r'|"(actor|target)" must be 1 to 64 bytes'
    r'|"(from|to)" must be|"by" must be'
    r'|"after" must be|"limit" of JSON must be|"models" must be at most 256'
    r'|"(rpm|tpm|concurrency)" must be an integer')


def field(name, member):
    """The description of a member of the body of an operation."""
    body = operations()[name]["requestBody"]["content"]["application/json"]
    body = resolve(body["schema"])
    body = resolve(body.get("oneOf", [body])[0])
    return body["properties"][member]


def matches(schema, value):
    return Draft202012Validator(dict(schema, components=API["components"])) \
        .is_valid(value)


# a request for each operation that is not refused, with another one for each
# form of its answer

MANY = "by=hour,model&from=-24h&to=now&tz=Z"

GOOD = {
    "GET /accounts": ["", "?sort=balance&limit=1", "?q=made"],
    "POST /accounts": [{"id": "new-1"}, {"id": "new-2", "note": "x",
                                         "founding": False}],
    "GET /accounts/{account}": [""],
    "PATCH /accounts/{account}": [{"state": "open"}, {"note": "x"}],
    "POST /accounts/{account}/topups": [
        {"id": "a-1", "amount": "10"}, {"id": "a-1", "amount": "10"},
        {"id": "a-2", "amount": "-1.5", "correction": True, "reason": "x"}],
    "GET /actions": ["", "?limit=1&target=made", "?limit=1000"],
    "GET /calls": ["", "?limit=1", "?outcome=reported&end=complete&status=200"],
    "GET /calls/{call}": [""],
    "GET /usage": ["", "?by=key", "?by=month,account", "?" + MANY,
                   "?by=hour,model&limit=1"],
    "GET /keys": ["", "?limit=1", "?state=revoked", "?q=erin"],
    "POST /keys": [{"group": "a"},
                   {"group": "b", "id": "imported", "founding": False,
                    "hash": "sha256:" + "0" * 64}],
    "GET /keys/{key}": [""],
    "PATCH /keys/{key}": [{"rpm": None, "budget": None, "expires": None},
                          {"tpm": 5, "models": None}],
    "DELETE /keys/{key}": [None, None],
    "POST /keys/{key}/rotate": [{}, {"grace": "24h"}, None],
    "POST /keys/{key}/revoke": [{}, None],
    "GET /groups": [""],
    "GET /models": [""],
    "GET /refusals": [""],
    "GET /status": [""],
    "GET /operators": [""],
    "POST /session": [{"token": role} for role in ("admin", "holder")],
    "GET /session": [""],
    "DELETE /session": [None],
    "POST /keys/self/revoke": [None],
}

SENT = [(name, sent) for name in operations() for sent in GOOD.get(name, ())]


@pytest.mark.parametrize("name, sent", SENT)
def test_good_request(name, sent, described):
    role = "admin"
    if name == "POST /session":
        role, sent = None, {"token": described.tokens[sent["token"]]}
    elif name == "POST /keys/self/revoke":
        role = "self"
        described.tokens[role] = described.post("/keys", {"group": "b"})["key"]
    query = sent if isinstance(sent, str) else ""
    body = None if isinstance(sent, str) else sent
    r = described.request(name.split()[0], described.path(name) + query, body,
                          role)
    assert r.status in (200, 201, 204), r
    check(name, r)
    assert r.get("cache-control") == "no-store"


def check(name, r):
    """The answer has the status, the headers and the form of the file."""
    answer = resolve(operations()[name]["responses"][str(r.status)])
    for header, at in answer.get("headers", {}).items():
        header_of = resolve(at)
        value = r.get(header)
        assert value is not None or not header_of.get("required"), header
        if value is not None:
            assert matches(header_of["schema"], value), (header, value)
    content = answer.get("content", {})
    if not content:
        assert r.body == b""
        return
    type = r.get("content-type").split(";")[0]
    assert type in content, r
    if type == "application/json":
        schema = dict(content[type]["schema"], components=API["components"])
        Draft202012Validator(schema).validate(r.json())


# those that are 404 on one machine: t/cluster/test_nodes.py has them

OF_CLUSTERS = {"GET /nodes", "PATCH /nodes/{node}",
               "POST /nodes/{node}/write-off"}


def test_every_operation_has_a_good_request():
    assert set(GOOD) | OF_CLUSTERS == set(operations())
    assert not set(GOOD) & OF_CLUSTERS


@pytest.mark.parametrize("name, path, body", [
    ("GET /nodes", "/nodes", None),
    ("PATCH /nodes/{node}", "/nodes/1", {"drain": True}),
    ("POST /nodes/{node}/write-off", "/nodes/1/write-off", {})])
def test_one_machine_has_no_nodes(name, path, body, described):
    r = described.request(name.split()[0], path, body)
    assert r.status == 404 and r.json()["message"] == "No cluster is configured"
    check(name, r)


@pytest.mark.parametrize("name, query", [
    ("GET /calls", ""), ("GET /usage", "?by=key"), ("GET /usage", "?by=day"),
    ("GET /usage", "?by=month,account")])
def test_csv_has_the_members_of_json(name, query, described):
    """The columns are those of JSON, in their order; values are the same."""
    path = name.split()[1] + query
    r = described.request("GET", path, headers=[("Accept", "text/csv")])
    assert r.status == 200 and r.get("content-type").startswith("text/csv")
    check(name, r)
    lines = list(csv.reader(io.StringIO(r.body.decode(), newline="")))
    rows = described.request("GET", path).json()[name.split("/")[1]]
    assert rows and lines[0] == list(rows[0])
    assert len(lines) == 1 + len(rows)


@pytest.mark.parametrize("name, path, body, status", [
    ("POST /accounts", "/accounts", {"id": "made"}, 409),
    ("POST /accounts", "/accounts", {"id": "x" * 5000}, 413),
    ("POST /accounts", "/accounts", {}, 400),
    ("POST /accounts", "/accounts", "{", 400),
    ("POST /accounts/{account}/topups", "/accounts/made/topups",
     {"id": "in", "amount": "11.00"}, 409),
    ("POST /keys", "/keys", {"id": "erin", "group": "b"}, 409),
    ("PATCH /keys/{key}", "/keys/erin", {"rpm": 1}, 409),
    ("GET /calls/{call}", "/calls/1", None, 404),
    ("GET /keys", "/keys?state=x", None, 400),
    ("GET /keys", "/keys?q=" + "x" * 9000, None, 414),
    ("GET /usage", "/usage?limit=10001", None, 400)])
def test_refusal(name, path, body, status, described):
    r = described.request(name.split()[0], path, body)
    assert r.status == status, r
    check(name, r)
    # these are nginx's own
    assert r.status in (413, 414) or r.get("cache-control") == "no-store"


def test_refused_by_headers(described):
    r = described.request("GET", "/keys", host="evil.test")
    assert r.status == 403
    check("GET /keys", r)

    r = described.request("PATCH", "/keys/" + described.key("stale"),
                          {"rpm": 1}, headers=[("If-Match", '"7"')])
    assert r.status == 412
    check("PATCH /keys/{key}", r)

    r = described.request("PUT", "/keys", {})
    assert r.status == 405
    assert r.get("allow") == "GET, HEAD, POST"
    check("GET /keys", r)


@pytest.mark.parametrize("role", [None, "viewer", "billing", "admin", "holder"])
@pytest.mark.parametrize("name", operations())
def test_roles(name, role, described):
    """Who may, and who may not; without a token: 401."""
    method = name.split()[0]
    path = described.path(name)
    if role == "holder":
        path = path.replace("/accounts/made", "/accounts/shop")
    r = described.request(method, path, role=role,
                          body=None if method == "GET" else "[]")
    check(name, r)
    allowed = role in operations()[name]["x-modelgw-roles"]
    if name == "GET /session" and role is None:
        assert r.status == 200 and r.json()["role"] is None
    elif role is None and operations()[name].get("security") != []:
        assert r.status == 401 and r.json()["code"] == "SIGN_IN_REQUIRED"
    elif role is None or allowed:
        assert r.status not in (401, 403), r
    elif name != "POST /keys/self/revoke":
        assert r.status == 403 and r.json()["code"] == "FORBIDDEN", r


def test_holder_of_a_key_made_here(described):
    """Its own account, without notes and ids of upstreams."""
    made = described.post("/keys", {"group": "b", "note": "ours",
                                    "models": ["fam-b-one"]})
    described.tokens["own"] = made["key"]
    for name in ("GET /accounts/{account}", "GET /keys", "GET /keys/{key}",
                 "GET /models", "GET /calls", "GET /usage", "GET /session"):
        path = name.split()[1].format(account=made["account"], key=made["id"])
        r = described.request("GET", path, role="own")
        assert r.status == 200 and b"ours" not in r.body, r
        check(name, r)
    assert r.json()["role"] == "holder" and r.json()["key"] == made["id"]


def test_session(described):
    """The cookie of the description signs in, until it is signed out."""
    def call(method, *headers):
        return described.request(method, "/session", role=None,
                                 headers=headers)

    r = described.request("POST", "/session",
                          {"token": described.tokens["viewer"]}, role=None)
    cookie = r.get("set-cookie").split(";")[0]
    name = API["components"]["securitySchemes"]["session"]["name"]
    assert cookie.startswith(name + "=")
    r = call("GET", ("Cookie", cookie))
    assert r.status == 200 and r.json() == {
        "name": "viewer", "role": "viewer", "expires": r.json()["expires"],
        "account": None, "key": None, "group": None,
        "topup_url": "https://pay.test/?account=%s", "gateway_url": None,
        "managed_keys": True}
    check("GET /session", r)
    assert r.json()["expires"]
    ours = ("Sec-Fetch-Site", "same-origin"), ("X-Modelgw-Console", "1")
    assert call("DELETE", ("Cookie", cookie)).status == 403
    r = call("DELETE", ("Cookie", cookie), *ours)
    assert r.status == 204
    check("DELETE /session", r)
    assert call("GET", ("Cookie", cookie)).status == 401
