"""Configurations and redirects that must not bypass the checks: the upstream
is reached only by a call that was admitted."""

import os
import re

import pytest

import gateway as lib
from client import assert_flat, h1
from gateway import chat, messages
from upstream import raw, reply, reply_json

GATEWAY = """
        location /v1/ {
            modelgw on;
            proxy_pass $modelgw_upstream;
            %s
        }"""


def assert_closed(g, status=(400, 401, 403, 404, 405, 500, 502, 503), **kw):
    """Without a key nothing is sent to the upstream; with one an invalid body
    is not."""
    for r in (g.post("/v1/chat/completions", chat(), **kw),
              g.post("/v1/messages", messages(), **kw),
              g.chat(key=g.dave), g.chat(key=lib.Key("x", "b")),
              g.chat(chat("none")), g.chat(b"{")):
        assert r.status in status, r
        assert_flat(r, r.status)
    assert g.untouched()


def test_satisfy_any(gateway):
    """Another access handler allows the request: ours is skipped, but the call
    is checked nevertheless."""
    g = gateway(location="satisfy any; allow all;")
    for _ in range(2):
        assert_closed(g)
    r = g.post("/v1/chat/completions", chat())
    assert_flat(r, 401, "API_KEY_REQUIRED")
    r = g.chat()
    assert r.status in (200, 401), r


def test_satisfy_any_and_deny(gateway):
    g = gateway(location="satisfy any; deny all;")
    assert_closed(g)
    assert g.chat().status in (200, 403)


def test_satisfy_any_and_basic_auth(gateway):
    g = gateway(location='satisfy any; auth_basic x; '
                         'auth_basic_user_file $dir/users;',
                files={"users": "u:{PLAIN}p\n"})
    assert_closed(g)
    r = g.post("/v1/chat/completions", chat(),
               headers=[("Authorization", "Basic dTpw")])
    assert_flat(r, 401)
    assert g.untouched()


def test_satisfy_all_and_deny(gateway):
    g = gateway(location="satisfy all; deny all;")
    assert_flat(g.chat(), 403, "FORBIDDEN")
    assert g.untouched()


def test_models_list_under_satisfy_any(gateway):
    g = gateway(location="satisfy any; allow all;")
    assert_flat(g.get("/v1/models"), 401, "API_KEY_REQUIRED")
    assert g.get("/v1/models", g.alice).status in (200, 401)


@pytest.mark.parametrize("code", ["401", "401 =200", "401 402 403 404 =200",
                                  "400 401 403 404 405 413 415 429 500 502 "
                                  "503 504 =200", "401 =302"])
def test_error_page(gateway, code):
    """Our refusals are not replaced: no page, no redirect, no 200."""
    for page in ("/ok.html", "@named", "http://evil.test/"):
        if page.startswith("http") and "=200" in code:
            continue
        g = gateway(server="error_page %s %s;" % (code, page),
                    locations="location = /ok.html { return 200 hello; } "
                              "location @named { return 200 named; }")
        g.a.reset(), g.b.reset()
        assert_closed(g)
        g.b.script(raw("close"))
        assert_flat(g.chat(), 502, "UPSTREAM_ERROR")
        g.b.script(reply_json({"error": {"message": "m"}}, 400))
        assert_flat(g.chat(), 400, "INVALID_REQUEST")


def test_error_page_into_the_gateway(gateway):
    """An error of another location does not bypass the checks."""
    g = gateway(server="error_page 404 403 =200 /v1/chat/completions;",
                locations="location /x { return 404; }")
    r = g.post("/x", chat())
    assert r.status >= 400 or not g.b.requests, r
    assert g.untouched()
    r = g.get("/x")
    assert g.untouched()


def test_fallback_location_asks_no_upstream(gateway):
    """error_page 502 = @again: $modelgw_upstream is empty there."""
    g = gateway(location="proxy_intercept_errors on; "
                         "error_page 400 429 500 502 503 504 = @again;",
                locations="location @again { modelgw on; "
                          "proxy_pass $modelgw_upstream; } ")
    for script in (raw("close"), reply_json({}, 500), reply_json({}, 429),
                   reply_json({"error": {"message": "x"}}, 400)):
        g.b.reset()
        g.b.script(script)
        r = g.chat()
        assert r.status >= 400, r
        assert_flat(r, r.status)
        assert len(g.b.requests) == 1


def test_intercept_errors(gateway):
    """Our errors take precedence."""
    g = gateway(location="proxy_intercept_errors on; error_page 400 =200 "
                         "/ok.html;",
                locations="location = /ok.html { return 200 hello; }")
    g.b.script(reply_json({"error": {"message": "m"}}, 400))
    assert_flat(g.chat(), 400)


def test_internal_redirect_by_rewrite(gateway):
    """A URI that is rewritten to ours: all checks, one constant request
    line."""
    g = gateway(locations="location /api/ { rewrite ^/api/(.*)$ /$1 last; }")
    for target, body, key in (("/api/v1/chat/completions", chat(), None),
                              ("/api/v1/chat/completions", b"{", g.bob)):
        assert_flat(g.post(target, body, key), (400, 401))
        assert g.untouched()
    r = g.post("/api/v1/chat/completions", chat(), g.bob)
    if r.status == 200:
        assert g.b.last().target == "/v1/chat/completions"
    else:
        assert_flat(r, r.status)


def test_rewrite_in_the_location(gateway):
    """The endpoint is that of the rewritten URI; the request line stays
    constant."""
    g = gateway(location="rewrite ^/v1/alias$ /v1/chat/completions break;")
    assert_flat(g.post("/v1/alias", chat()), 401)
    r = g.post("/v1/alias", chat(), g.bob)
    if r.status == 200:
        assert g.b.last().target == "/v1/chat/completions"
    else:
        assert_flat(r, 404)


def test_if_in_the_location(gateway):
    g = gateway(location='if ($http_x_if) { set $x 1; } '
                         'if ($request_method = PUT) { return 405; }')
    assert_closed(g)
    assert_closed(g, headers=[("X-If", "1")])
    assert g.chat().status == 200
    r = g.chat(headers=[("X-If", "1")])
    if r.status != 200:
        assert_flat(r, r.status)
    assert_flat(g.request("PUT", "/v1/messages", g.alice), 405)


def test_try_files_and_named_location(gateway):
    """try_files redirects to a named location: checked there, or refused."""
    g = gateway(gateway="""
        location /v1/ { try_files /none @gw; }
        location @gw { modelgw on; proxy_pass $modelgw_upstream; }""")
    assert_closed(g)
    r = g.chat()
    if r.status == 200:
        assert g.b.last().target == "/v1/chat/completions"
    else:
        assert_flat(r, r.status)


def test_try_files_in_the_gateway(gateway):
    g = gateway(location="try_files /none /v1/chat/completions;")
    assert_closed(g)
    r = g.chat()
    assert r.status == 200 or r.status >= 400
    assert len(g.b.requests) <= 1


def test_try_files_into_the_gateway(gateway):
    """A location for files falls through to the gateway."""
    g = gateway(locations="location /files/ { try_files /none "
                          "/v1/chat/completions; }")
    assert_flat(g.post("/files/x", chat()), (401, 404, 405))
    assert_flat(g.get("/files/x"), (401, 404, 405))
    assert g.untouched()
    r = g.post("/files/x", chat(), g.bob)
    if r.status != 200:
        assert_flat(r, r.status)


def test_index_into_the_gateway(gateway):
    """An internal redirect of the index module, a GET."""
    g = gateway(locations="location = /dir/ { index /v1/models; }")
    r = g.get("/dir/")
    assert r.status != 200, r
    assert g.untouched()


def test_post_action_is_no_second_call(check, gateway):
    result = check(location="post_action /v1/chat/completions;")
    if result.returncode == 0:
        g = gateway(location="post_action /v1/chat/completions;")
        assert g.chat().status == 200
        assert len(g.b.requests) == 1


@pytest.mark.parametrize("how", ["auth_request", "ssi", "addition",
                                 "mirror"])
def test_subrequests(gateway, how):
    """A subrequest into the gateway is refused; nothing is sent to an
    upstream."""
    inside = {
        "auth_request": "auth_request /v1/chat/completions;",
        "ssi": "ssi on; default_type text/html;",
        "addition": "add_before_body /v1/models; addition_types *;",
        "mirror": "mirror /v1/chat/completions;"}[how]
    g = gateway(locations="location /sub { %s try_files /page.html =404; }"
                % inside, files={
                    "page.html": '<!--#include virtual="/v1/models" -->'})
    os.makedirs(g.path("html"), exist_ok=True)
    os.rename(g.path("page.html"), g.path("html/page.html"))
    for key in (None, g.alice, g.bob):
        r = g.get("/sub", key)
        assert r is None or b"fam-" not in r.body, r
    assert g.untouched()


@pytest.mark.parametrize("directive", [
    "auth_request /x;", "mirror /x;", "proxy_request_buffering off;",
    "proxy_pass_request_headers off;", "proxy_cache c;",
    "proxy_next_upstream error non_idempotent;"])
def test_refused_in_a_gateway(check, directive):
    """nginx -t refuses it, with the file and the line."""
    http = "proxy_cache_path /tmp/none-such keys_zone=c:1m;" \
        if "cache" in directive else ""
    r = check(location=directive, http=http)
    assert r.returncode != 0, r.stderr
    assert "[emerg]" in r.stderr and "nginx.conf:" in r.stderr


@pytest.mark.parametrize("target", [
    "http://api.vendor-a.test", "http://127.0.0.1:1/x"])
def test_static_proxy_pass(check, target):
    """Another address would be reached without the checks."""
    r = check(gateway=GATEWAY.replace("$modelgw_upstream", target) % "")
    assert r.returncode != 0, r.stderr


@pytest.mark.parametrize("target", [
    "http://api.vendor-b.test$request_uri", "http://$http_x_where", "$x$uri"])
def test_proxy_pass_with_other_variables(check, target):
    """Variables other than ours are refused, too."""
    r = check(gateway=GATEWAY.replace("$modelgw_upstream", target)
              % "set $x http://127.0.0.1:$b;")
    assert r.returncode != 0, r.stderr
    assert '"proxy_pass $modelgw_upstream"' in r.stderr


@pytest.mark.parametrize("where", ["@other", "/other/"])
@pytest.mark.parametrize("first", ["/none", "$modelgw_upstream"])
def test_redirect_to_another_upstream(gateway, first, where):
    """A call that try_files redirects to a location without a gateway is not
    sent from there, with or without our credential."""
    g = gateway(location="try_files %s %s;" % (first, where),
                locations="location %s { proxy_pass http://api.vendor-b.test; "
                          "}" % where)
    for _ in range(2):
        assert_flat(g.chat(), 500, "INTERNAL_ERROR")
    assert_flat(g.chat(key=lib.Key("x", "b")), 401, "INVALID_API_KEY")
    assert_flat(g.messages(), 500, "INTERNAL_ERROR")
    assert g.untouched()
    assert g.log_count("internal redirect from a gateway location") == 3
    assert g.get("/v1/models", g.alice).status == 200


def test_credential_in_another_location(gateway):
    """try_files evaluates the variable, the phases of the location that it
    redirects to see no credential."""
    g = gateway(location="try_files $modelgw_upstream @other;", locations="""
        location @other {
            auth_request /auth;
            proxy_pass http://api.vendor-b.test;
        }
        location = /auth {
            internal;
            proxy_pass http://api.vendor-b.test;
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
        }""")
    g.b.script(reply(200, b"{}"))
    assert_flat(g.chat(), 500, "INTERNAL_ERROR")
    assert g.secret_b.encode() not in g.b.last().head
    g = gateway(location="try_files $modelgw_upstream @other;", locations="""
        location @other { return 200 "[$http_authorization$http_x_api_key]"; }
        """)
    assert g.chat().body == b"[]"


def test_post_action_after_a_refusal(gateway):
    """The call is over: no redirect of it."""
    g = gateway(gateway="""
        location / { modelgw on; post_action @log; }
        location @log {
            proxy_pass http://api.vendor-b.test;
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
        }""")
    g.b.script(reply(200, b"{}"))
    assert_flat(g.post("/v1/chat/completions", b"{", g.bob), 400,
                "INVALID_JSON")
    g.b.wait()
    assert g.log_count("internal redirect from a gateway location") == 0


def test_redirect_without_content_handler(gateway):
    """The same from a location that only inherits "modelgw on"."""
    g = gateway(gateway="""
        modelgw on;
        location / { try_files $uri @old; }
        location @old { modelgw off; proxy_pass http://api.vendor-b.test; }""")
    assert_flat(g.chat(), 500, "INTERNAL_ERROR")
    assert g.untouched()


def test_redirect_to_a_text(gateway):
    """A redirected call may be answered without an upstream."""
    g = gateway(location="try_files /none @other;",
                locations="location @other { return 200 other; }")
    assert g.chat().body == b"other"
    assert g.untouched()


def test_variable_in_a_plain_location(gateway):
    """Without an admitted call it is empty, which is no address for nginx."""
    g = gateway(locations="location /raw/ { proxy_pass $modelgw_upstream; } "
                          "location = /v1/chat/completions2 { "
                          "proxy_pass $modelgw_upstream; }")
    for target in ("/raw/x", "/v1/chat/completions2"):
        for key in (None, g.bob):
            assert_flat(g.post(target, chat(), key), 500, "INTERNAL_ERROR")
    assert g.untouched()


def test_variable_is_read_early(gateway):
    """Reading it early, or twice, discloses nothing."""
    g = gateway(location='set $seen "$modelgw_upstream"; '
                         'add_header X-Seen "[$seen]" always; '
                         'add_header X-Now "[$modelgw_upstream]" always;')
    r = g.chat()
    for name in ("x-seen", "x-now"):
        assert "vendor" not in r.get(name, ""), r
    g.b.reset()
    assert_closed(g)


def test_modelgw_off_in_a_nested_location(gateway):
    g = gateway(gateway="""
        location /v1/ {
            modelgw on;
            proxy_pass $modelgw_upstream;
            location /v1/open/ { modelgw off; return 200 open; }
        }""")
    assert g.get("/v1/open/x").body == b"open"
    assert_closed(g)
    assert g.chat().status == 200


def test_on_for_the_server(gateway):
    """modelgw may be set in the server; locations inherit it."""
    g = gateway(gateway="""
        modelgw on;
        location / { proxy_pass $modelgw_upstream; }
        location = /health { modelgw off; return 200 ok; }""")
    assert g.chat().status == 200
    assert g.get("/health").body == b"ok"
    assert_flat(g.get("/x", g.bob), 404, "NOT_FOUND")


def test_no_proxy_pass(gateway):
    """Without proxy_pass nothing is served."""
    g = gateway(gateway="location /v1/ { modelgw on; }", files={})
    r = g.chat()
    assert r.status >= 400, r
    assert_flat(r, r.status)
    assert g.get("/v1/models", g.alice).status == 200


def test_two_gateway_locations(gateway):
    g = gateway(gateway=GATEWAY % "" + """
        location = /v1/messages {
            modelgw on;
            proxy_pass $modelgw_upstream;
            proxy_read_timeout 1s;
        }""")
    assert g.chat().status == 200 and g.messages().status == 200
    g.a.script(raw("stall"))
    assert_flat(g.messages(), 504, "UPSTREAM_TIMEOUT")


def test_other_servers_are_left_alone(gateway):
    """A server without a gateway is not affected."""
    port = lib.free_port()
    g = gateway(http="""
    server { listen 127.0.0.1:%d;
             location / { proxy_pass http://api.vendor-b.test; } }""" % port)
    r = h1(port, "POST", "/v1/chat/completions",
           [("Cookie", "a=b"), ("Authorization", "Bearer x")], chat("m"))
    assert r.status == 200 and r.json()["model"] == "m", r
    request = g.b.last()
    assert request.get("cookie") == "a=b"
    assert request.get("authorization") == "Bearer x"
    assert r.get("request-id") is None
    g.b.script(reply_json({"odd": 1}, 418, headers=[("Set-Cookie", "a=b")]))
    r = h1(port, "POST", "/v1/chat/completions", [], chat("m"))
    assert r.status == 418 and r.body == b'{"odd": 1}'
    assert r.get("set-cookie") == "a=b"
    assert b"<html" in h1(port, "GET", "/" + "x" * 60000).body


@pytest.mark.skipif(lib.ASAN, reason="the sanitizer's pools have no blocks")
@pytest.mark.parametrize("line,size", [
    ("", 8192), ("request_pool_size 1k;", 8192),
    ("request_pool_size 9k;", 9216)])
def test_two_blocks_of_the_pool_hold_a_call(gateway, line, size):
    g = gateway(workers=1, log_level="debug", server=line)
    assert g.chat().status == 200
    g.stop()
    text = g.read("error.log")
    if "modelgw answer: status" not in text:
        pytest.skip("the module is built without its debug log")
    assert len(re.findall(r" posix_memalign: \w+:%d @16" % size, text)) == 2


@pytest.mark.parametrize("size", [0, 100, 3 << 20])
@pytest.mark.parametrize("framing", ["sized", "chunked", "close"])
@pytest.mark.parametrize("buffering", ["on", "off"])
def test_errors_of_neighbours(gateway, size, framing, buffering):
    """Every error of the server is flat; the body of another location's error,
    however long, is discarded."""
    g = gateway(locations="location /other/ { proxy_buffering %s; "
                "proxy_pass http://api.vendor-b.test; }" % buffering)
    g.b.script(reply(500, b"x" * size, framing=framing, ctype="text/html"))
    with g.connect() as c:
        for _ in range(3):
            c.request("GET", "/other/x")
            assert_flat(c.response(method="GET"), (500, 502))
        g.b.reset()
        g.b.script(reply_json({"ok": 1}))
        c.request("GET", "/other/x")
        r = c.response(method="GET")
        assert r.status == 200 and r.json() == {"ok": 1}


def test_other_locations_pass_bodies(gateway):
    """Uploads to other locations are not scanned."""
    g = gateway(locations="location /other/ { "
                          "proxy_pass http://api.vendor-b.test; }")
    g.b.script(reply_json({"ok": 1}))
    body = b'{"model":1,"model":2,\xff'
    r = g.post("/other/x", body)
    assert r.status == 200 and r.json() == {"ok": 1}
    assert g.b.last().body == body
