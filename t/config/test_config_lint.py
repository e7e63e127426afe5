"""nginx -t: what is refused and warned of in a gateway location.

A location must not have directives that bypass the check of bodies (P9), store
prompts (K5), or run other handlers; H10 is in test_response.py.
"""

import re

import pytest

from config_check import GROUP, LOCATION, NGINX, ROOT, Config

import subprocess


@pytest.fixture
def conf(tmp_path):
    return Config(tmp_path)


ON = "modelgw on; # HERE"

HTTPS = GROUP.replace("http://", "https://")


def options():
    return subprocess.run([NGINX, "-V"], stderr=subprocess.PIPE,
                          text=True).stderr


def refused(conf, word, **parts):
    return conf.refused(word, 'gateway location "/v1/"', enable=ON, **parts)


SHIPPED = "include %s/conf/modelgw/proxy.conf;" % ROOT

# refused

REFUSED = [
    "proxy_request_buffering off;",
    "proxy_pass_request_headers off;",
    "proxy_pass_request_body off;",
    "proxy_next_upstream error non_idempotent;",
    "proxy_store on;",
    "proxy_store /tmp/$uri;",
    "proxy_cache z;",
    "proxy_cache $host;",
    "mirror /m;",
    "client_body_in_file_only on;",
    "client_body_in_file_only clean;",
    "post_action /p;",
    "ssi on;",
    "add_before_body /b;",
]


@pytest.mark.parametrize("line", REFUSED)
def test_refused(conf, line):
    name = line.split(" ")[0].rstrip(";")
    zone = "proxy_cache_path %s/cache keys_zone=z:1m;" % conf.dir
    refused(conf, name, location=LOCATION + line, http=zone)


@pytest.mark.parametrize("line", REFUSED)
def test_refused_inherited(conf, line):
    """A directive of the server applies to its locations."""
    name = line.split(" ")[0].rstrip(";")
    zone = "proxy_cache_path %s/cache keys_zone=z:1m;" % conf.dir
    shipped = not line.startswith(("proxy_request_b", "proxy_next_u"))
    refused(conf, name, server=line, http=zone, shipped=shipped)


@pytest.mark.skipif("auth_request" not in options(),
                    reason="nginx without auth_request")
def test_refused_auth_request(conf):
    refused(conf, '"auth_request"', location=LOCATION + "auth_request /a;")
    refused(conf, '"auth_request"', server="auth_request /a;")
    conf.accepted(server="auth_request /a;",
                  location=LOCATION + "auth_request off;")


@pytest.mark.parametrize("target", [
    "http://api.vendor-a.test", "https://api.vendor-a.test/v1/",
    "http://127.0.0.1:1", "http://unix:/tmp/x"])
def test_refused_static_proxy_pass(conf, target):
    refused(conf, '"proxy_pass $modelgw_upstream"',
            location="proxy_pass %s;" % target)


OTHER = ["$x$uri", "$x", "http://$host", "https://$host$request_uri",
         "http://127.0.0.1:1$request_uri", "http://$arg_to/v1/",
         "http://api.vendor-a.test/$modelgw_upstream_model"]


@pytest.mark.parametrize("target", OTHER)
def test_refused_proxy_pass_with_variables(conf, target):
    """Calls would be sent there without being charged."""
    to = "set $x http://127.0.0.1:1; proxy_pass %s;" % target
    refused(conf, '"proxy_pass $modelgw_upstream"', location=to)
    refused(conf, '"proxy_pass $modelgw_upstream"',
            location=LOCATION + "if ($arg_x) { %s }" % to)
    refused(conf, '"proxy_pass $modelgw_upstream"', location=LOCATION
            + "limit_except POST { proxy_pass http://$host; }")
    conf.refused('"proxy_pass $modelgw_upstream"', 'gateway location "/v1/x"',
                 enable=ON,
                 location=LOCATION + "location /v1/x { %s }" % to)
    conf.accepted(locations="location /x/ { %s }" % to)


HANDLERS = [
    ("fastcgi", "fastcgi_pass 127.0.0.1:1;"),
    ("fastcgi", "fastcgi_pass $host:1;"),
    ("scgi", "scgi_pass 127.0.0.1:1;"),
    ("uwsgi", "uwsgi_pass 127.0.0.1:1;"),
    ("memcached", "set $memcached_key x; memcached_pass 127.0.0.1:1;"),
    ("http_v2", "grpc_pass 127.0.0.1:1;"),
    ("empty_gif", "empty_gif;"),
]


@pytest.mark.parametrize("module,line", HANDLERS)
def test_refused_handlers_of_other_modules(conf, module, line):
    """Of two directives the last one sets the handler."""
    if module == "http_v2" and module not in options() \
            or "without-http_%s" % module in options():
        pytest.skip("nginx without " + line)
    refused(conf, '"proxy_pass $modelgw_upstream"', location=line)
    refused(conf, '"proxy_pass $modelgw_upstream"', location=LOCATION + line)
    conf.refused('unless there is "modelgw off"', 'gateway location "/x/"',
                 server="modelgw on; # HERE",
                 locations="location /x/ { %s }" % line)
    conf.accepted(location=line + LOCATION)
    conf.accepted(server="modelgw on;",
                  locations="location /x/ { modelgw off; %s }" % line)
    if "empty_gif" not in line:
        refused(conf, '"proxy_pass $modelgw_upstream"',
                location=LOCATION + "if ($arg_x) { %s }" % line)


AROUND = ["$modelgw_upstream/v1", "$modelgw_upstream/",
          "http://$modelgw_upstream", "https://$modelgw_upstream/v1/",
          "${modelgw_upstream}/v1", "${modelgw_upstream}v1",
          "$modelgw_upstream$request_uri", "$modelgw_upstream?a=1",
          "$Modelgw_UPSTREAM/v1", "$modelgw_upstream$modelgw_upstream",
          "$scheme://$modelgw_upstream_model$modelgw_upstream",
          '"$modelgw_upstream "']


@pytest.mark.parametrize("target", AROUND)
def test_refused_text_around_the_variable(conf, target):
    """It would be sent with every call, in the upstream's path or host."""
    conf.refused('"proxy_pass $modelgw_upstream"', "nothing before or after",
                 location="proxy_pass %s; # HERE" % target)
    conf.refused('"proxy_pass $modelgw_upstream"', enable="", location="",
                 locations="location /x/ {\nproxy_pass %s; # HERE\n}" % target)


@pytest.mark.parametrize("target", [
    "$modelgw_upstream", "${modelgw_upstream}", '"$modelgw_upstream"',
    "$Modelgw_Upstream"])
def test_fine_as_the_variable(conf, target):
    line = "proxy_pass %s;" % target
    conf.accepted(location=line)
    conf.accepted(location=line + "if ($arg_x) { %s }" % line)
    conf.accepted(location=line + "limit_except POST { %s deny all; }" % line)


@pytest.mark.parametrize("target", [
    "http://api.vendor-a.test/$modelgw_upstream_model",
    "http://api.vendor-a.test/modelgw_upstream/",
    "http://$arg_modelgw_upstream/x", '"http://$host/{modelgw_upstream}"'])
def test_fine_with_another_name(conf, target):
    conf.accepted(locations="location /x/ { proxy_pass %s; }" % target)


@pytest.mark.parametrize("line", [
    "proxy_read_timeout 900s;", "proxy_connect_timeout 5s;",
    "proxy_buffers 8 64k;"])
def test_refused_twice_in_the_server(conf, line):
    """proxy.conf sets it: nginx's "is duplicate" does not explain that, and
    names that file if it comes second."""
    name = line.split()[0]
    hint = "is duplicate: if the server has it from modelgw/proxy.conf"
    conf.refused('"%s" directive' % name, hint, "in the location",
                 server=line + " # HERE")
    text = conf.refused('"%s" directive' % name, hint, shipped=False,
                        server=line + SHIPPED, place=False)
    assert re.search(r" in %s/conf/modelgw/proxy.conf:\d+$" % ROOT, text)
    conf.accepted(location=LOCATION + line)


def test_other_words_of_the_proxy_stay(conf):
    """Other errors of its directives pass unchanged, as do those of other
    modules."""
    conf.refused('invalid value "maybe" in "proxy_buffering"',
                 location=LOCATION + "proxy_buffering maybe; # HERE")
    text = conf.refused('"proxy_pass" directive is duplicate',
                        location=LOCATION + LOCATION + "# HERE")
    assert "proxy.conf" not in text
    text = conf.refused('"client_max_body_size" directive is duplicate',
                        server="client_max_body_size 1m; # HERE")
    assert "location" not in text
    conf.refused('invalid number of arguments in "proxy_pass"',
                 location="proxy_pass; # HERE")


def test_refused_in_if(conf):
    """An "if" is a separate location with its own proxy_pass."""
    refused(conf, "proxy_pass", location=LOCATION
            + "if ($arg_x) { proxy_pass http://api.vendor-a.test; }")


def test_refused_in_limit_except(conf):
    refused(conf, "proxy_pass", location=LOCATION
            + "limit_except POST { proxy_pass http://api.vendor-a.test; }")


def test_refused_in_nested(conf):
    conf.refused("mirror", 'gateway location "/v1/x"', enable=ON,
                 location=LOCATION
                 + "location /v1/x { mirror /m; %s }" % LOCATION)


def test_refused_from_server(conf):
    """modelgw on in a server applies to all that it proxies."""
    conf.refused('gateway location "/old/"', "proxy_pass", server=ON, enable="",
                 locations="location /old/ {"
                 " proxy_pass http://api.vendor-a.test; }")
    conf.accepted(server="modelgw on;", enable="", locations="location /old/ {"
                  " modelgw off; proxy_pass http://api.vendor-a.test; }")


@pytest.mark.parametrize("line", [l for l in REFUSED if "proxy_" not in l]
                         + ["proxy_pass http://api.vendor-a.test;",
                            "proxy_pass http://api.vendor-a.test;"
                            "proxy_request_buffering off;",
                            "proxy_pass http://api.vendor-a.test;"
                            "proxy_next_upstream error non_idempotent;"])
def test_elsewhere(conf, line):
    """Other locations are not checked."""
    conf.accepted(locations="location /x/ { %s }" % line)


def test_plain_locations(conf):
    """modelgw on in a server does not affect files and redirects."""
    conf.accepted(server="modelgw on;", enable="", locations="""
        location / { mirror /m; client_max_body_size 1k; }
        location /r/ { return 301 /; }
        location /f/ { root /tmp; try_files $uri @v1; }
        location @v1 { %s }""" % LOCATION)


@pytest.mark.parametrize("line", [
    "proxy_next_upstream error timeout http_503;", "proxy_next_upstream off;",
    "proxy_cache off;", "proxy_store off;", "mirror off;",
    "client_body_in_file_only off;", "proxy_request_buffering on;",
    "proxy_buffering on;", "proxy_intercept_errors on;", "satisfy any;",
    "allow 127.0.0.1; deny all;", "limit_except GET POST { deny all; }",
    "if ($arg_x) { return 400; }", "proxy_ignore_headers Expires;"])
def test_fine(conf, line):
    conf.accepted(location=LOCATION + line)


# warned of

WARNED = [
    ("client_max_body_size 31m;", "client_max_body_size 32m"),
    ("client_body_buffer_size 512k;", "client_body_buffer_size 2m"),
    ("proxy_read_timeout 299s;", "proxy_read_timeout 600s"),
]


@pytest.mark.parametrize("line,word", WARNED)
def test_warned(conf, line, word):
    conf.warned(word, 'gateway location "/v1/"', enable=ON,
                location=LOCATION + line)


def test_warned_underscores(conf):
    text = open(ROOT + "/conf/modelgw/proxy.conf").read()
    text = re.sub("underscores_in_headers .*", "", text)
    conf.warned("underscores_in_headers on", enable=ON, shipped=False,
                server=text)


@pytest.mark.parametrize("line,word", [
    ("proxy_ssl_server_name off;", "proxy_ssl_server_name on"),
    ("proxy_ssl_verify off;", "proxy_ssl_verify on")])
@pytest.mark.skipif("http_ssl_module" not in options(),
                    reason="nginx without TLS")
def test_warned_tls(conf, line, word):
    conf.warned(word, 'gateway location "/v1/"', enable=ON, group=HTTPS,
                location=LOCATION + line)
    conf.accepted(location=LOCATION + line)


@pytest.mark.parametrize("line", [
    "client_max_body_size 0;", "client_max_body_size 32m;",
    "client_max_body_size 1g;", "client_body_buffer_size 1m;",
    "proxy_read_timeout 300s;"])
def test_enough(conf, line):
    conf.accepted(location=LOCATION + line)


def test_defaults_of_nginx(conf):
    """Without the shipped file each default that breaks clients is named."""
    conf.test(shipped=False)
    assert conf.rc == 0, conf.text
    assert len(conf.lines("warn")) == 4, conf.text
    for word in ("client_max_body_size", "client_body_buffer_size",
                 "underscores_in_headers", "proxy_read_timeout"):
        assert word in conf.text

    conf.test(shipped=False, group=HTTPS)
    assert len(conf.lines("warn")) == 6, conf.text
    for word in ("proxy_ssl_server_name", "proxy_ssl_verify"):
        assert word in conf.text


def test_lines_to_add(conf):
    """The lines that the warnings ask for are sufficient."""
    conf.test(shipped=False, group=HTTPS)
    lines = [line for text in conf.lines("warn")
             for line in re.findall(r'"([a-z_]+ [^"]+;)"', text)]
    assert len(lines) == 7
    conf.accepted(shipped=False, group=HTTPS, server="\n".join(lines))


def test_without_proxy_pass(conf):
    conf.warned("proxy_pass $modelgw_upstream", 'gateway location "/v1/"',
                enable=ON, location="")
    conf.accepted(location="location /v1/chat/ { %s }" % LOCATION)


def test_switched_off(conf):
    conf.accepted(enable="modelgw off;", location="proxy_pass http://api.vendor"
                  "-a.test; mirror /m; client_max_body_size 1k;")


# aliases

SLASH = "location %s { modelgw on; modelgw_aliases on; " + LOCATION + " }"


def test_aliases_that_reach_no_location(conf):
    conf.warned('paths without "/v1" reach no gateway location', "location /",
                enable=ON, location=LOCATION + "modelgw_aliases on;")
    conf.warned('paths without "/v1"', enable=ON, server="modelgw_aliases on;")
    conf.warned('paths without "/v1"', enable=ON,
                location=LOCATION + "modelgw_aliases on;",
                locations="location / { modelgw on; " + LOCATION + " }")


@pytest.mark.parametrize("name", ["/", "= /messages", "~ ^/(messages|models)",
                                  "^~ /chat/", "/m"])
def test_aliases_that_reach_one(conf, name):
    conf.accepted(location=LOCATION + "modelgw_aliases on;",
                  locations=SLASH % name)
    assert "modelgw_aliases" not in conf.text


def test_aliases_where_they_are_off(conf):
    conf.accepted(http="modelgw_aliases on;",
                  location=LOCATION + "modelgw_aliases off;")
    assert "modelgw_aliases" not in conf.text
    conf.accepted(http="modelgw_aliases on;", enable="modelgw off;",
                  location="return 204;")
    assert "modelgw_aliases" not in conf.text
