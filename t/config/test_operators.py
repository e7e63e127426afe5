"""nginx -t: modelgw_operators, what modelgw_admin takes, and who guards it."""

import subprocess
import time

import pytest

from config_check import NGINX, Config, digest, key


@pytest.fixture
def conf(tmp_path):
    return Config(tmp_path)


def has(module):
    out = subprocess.run([NGINX, "-V"], capture_output=True, text=True)
    return module in out.stderr


def operator(name="alice", role="admin", options="", secret=None):
    """One line of a modelgw_operators block."""
    return "%s %s %s %s;" % (name, digest(secret or "op-eu-" + name), role,
                             options)


def block(text):
    return {"http": "modelgw_operators {\n%s\n}" % text}


def bad(conf, line, *words):
    conf.refused(*words, **block(line + " # HERE"))


# lines


def test_lines(conf):
    conf.accepted(**block("\n".join([
        operator("alice"), operator("bill", "billing"),
        operator("vera", "viewer", "expires=2097-01-01"),
        operator("A.z_0@9:-", "viewer"), operator("x" * 64)])))


def test_no_lines(conf):
    """Then nobody but the holders of keys can sign in."""
    conf.accepted(**block(""))


@pytest.mark.parametrize("line", ["alice;", "alice sha256:00;",
                                  "alice admin;", "alice %s;" % digest("x")])
def test_words(conf, line):
    bad(conf, line, '"alice"', "needs")


@pytest.mark.parametrize("name", ['""', "'a b'", "a/b", "é", "x" * 65, "a,b",
                                  "a=b", "a\\\\b", "a*", "$user", "a%b"])
def test_name(conf, name):
    bad(conf, operator(name), "operator")


HEX = digest("x")[7:]


@pytest.mark.parametrize("text", [
    HEX, "sha256:", "sha256:" + HEX[1:], "sha256:" + HEX + "0",
    "sha256:" + HEX[1:] + "g", "sha512:" + HEX, "SHA256:" + HEX,
    "sha256=" + HEX, "sha256::" + HEX, "op-eu-x", "sha256:op-eu-x", '""',
    "'{SHA}x'", "$apr1$x", "*"])
def test_hash(conf, text):
    """What may be the token itself is not logged."""
    bad(conf, "alice %s admin;" % text, "hash", '"alice"')
    assert "op-eu-x" not in conf.text


def test_hash_in_upper_case(conf):
    conf.accepted(**block("alice sha256:%s admin;" % HEX.upper()))


@pytest.mark.parametrize("role", [
    "Admin", "ADMIN", "root", "operator", "holder", "nobody", '""', "admin,",
    "viewer,billing", "role=admin", "adm", "admins", "on", "$role", "1"])
def test_role(conf, role):
    bad(conf, operator(role=role), "role", "alice", "admin", "billing",
        "viewer")


@pytest.mark.parametrize("option", ["x", "expire=2097-01-01", "admin",
                                    "models=fam-a-large", "Expires=x",
                                    "account=alice", "expires"])
def test_option(conf, option):
    bad(conf, operator(options=option), "unknown option", '"%s"' % option,
        '"alice"')


@pytest.mark.parametrize("value", [
    "", "2027-02-30", "2100-02-29", "2027-1-1", "tomorrow", "1969-12-31",
    "2027-01-01T00:00:00Z", "-1"])
def test_expires(conf, value):
    bad(conf, operator(options="expires=" + value), '"expires=%s"' % value,
        '"alice"')


def test_expires_twice(conf):
    bad(conf, operator(options="expires=2097-01-01 expires=2098-01-01"),
        "duplicate", "expires")


def test_expired(conf):
    """A date in the past is a warning: the line is harmless."""
    conf.warned('"alice"', "2020-01-01", "expired",
                **block(operator(options="expires=2020-01-01") + " # HERE"))
    today = time.strftime("%Y-%m-%d", time.gmtime())
    conf.warned('"alice"', today,
                **block(operator(options="expires=" + today) + " # HERE"))


def test_semicolon_missing(conf):
    two = "alice %s admin%%s\nbob %s admin;" % (digest("1"), digest("2"))
    bad(conf, two % "", 'unknown option "bob"', '"alice"')
    conf.accepted(**block(two % ";"))


# duplicates


def test_name_twice(conf):
    conf.refused("duplicate", '"alice"', **block("\n".join([
        operator("alice"), operator("bill"),
        operator("alice", "viewer", secret="other") + " # HERE"])))


def test_hash_twice(conf):
    """Which role would it have?"""
    conf.refused('"alice"', '"bill"', "hash", **block("\n".join([
        operator("alice", "viewer", secret="same"),
        operator("bill", "admin", secret="same") + " # HERE"])))
    conf.refused('"alice"', '"bill"', "hash", **block("\n".join([
        "alice sha256:%s viewer;" % HEX,
        "bill sha256:%s admin; # HERE" % HEX.upper()])))


def test_names_that_differ_in_case(conf):
    conf.accepted(**block(operator("alice") + operator("Alice")))


@pytest.mark.parametrize("late", [False, True])
def test_hash_of_a_key(conf, late):
    """In either order: a service key would be an operator's token, and clients
    have it."""
    line = operator("alice", secret="sk-eu-bob")
    parts = {"late": block(line)["http"]} if late else block(line)
    conf.refused('"alice"', '"bob"', "hash", place=False,
                 keys=key("bob", secret="sk-eu-bob"), **parts)
    conf.accepted(keys=key("bob"), **block(operator("alice")))
    conf.accepted(keys=key("alice"), **block(operator("alice")))


def test_two_blocks(conf):
    conf.refused("modelgw_operators", "duplicate", place=False,
                 http=block(operator())["http"] * 2)
    conf.refused("modelgw_operators", "duplicate", place=False,
                 http=block("")["http"] * 2)


@pytest.mark.parametrize("where", ["server", "location", "locations"])
def test_only_in_http(conf, where):
    text = block(operator())["http"]
    if where == "location":
        text = "proxy_pass $modelgw_upstream; " + text
    conf.refused("modelgw_operators", "not allowed", place=False,
                 **{where: text})


def test_arguments(conf):
    for text in ("modelgw_operators;", "modelgw_operators x {}",
                 "modelgw_operators file.conf;"):
        conf.test(http=text)
        assert conf.rc == 1 and "modelgw_operators" in conf.text, conf.text


def test_without_keys(conf):
    conf.accepted(keys=False, enable="", location="return 204;",
                  **block(operator()))


# files


def test_include(conf):
    conf.write("o1.conf", operator("alice") + "\ninclude o2.conf;")
    conf.write("o2.conf", "# a comment\n" + operator("bill", "billing"))
    conf.accepted(**block("include o1.conf;\n" + operator("vera", "viewer")))
    conf.write("o2.conf", operator("alice", secret="x") + " # HERE\n")
    conf.refused("duplicate", '"alice"', **block("include o1.conf;"))


@pytest.mark.parametrize("mode", [0o666, 0o622, 0o602, 0o646, 0o777])
def test_file_others_can_write(conf, mode):
    """As for keys: who can write it makes himself an admin."""
    conf.write("o.conf", operator() + "  # HERE\n", mode)
    conf.refused(conf.path("o.conf"), "written by others",
                 **block("include o.conf;"))


@pytest.mark.parametrize("mode", [0o644, 0o664, 0o660, 0o600, 0o400])
def test_file_of_its_own(conf, mode):
    conf.write("o.conf", operator(), mode)
    conf.accepted(**block("include o.conf;"))


def test_file_with_nothing_but_an_include(conf):
    conf.write("o1.conf", "include o2.conf; # HERE\n", 0o666)
    conf.write("o2.conf", operator())
    conf.refused(conf.path("o1.conf"), **block("include o1.conf;"))


def test_directory_others_can_write(conf, tmp_path):
    (tmp_path / "open").mkdir()
    conf.write("open/o.conf", operator() + "\n")
    (tmp_path / "open").chmod(0o777)
    conf.test(**block("include open/o.conf;"))
    assert conf.rc == 1 and "directory that others can write" in conf.text
    (tmp_path / "open").chmod(0o755)
    conf.accepted(**block("include open/o.conf;"))


def test_missing_file(conf):
    conf.test(**block("include none.conf;"))
    assert conf.rc == 1 and "none.conf" in conf.text


# what modelgw_admin takes

ROLE = "role=$role actor=$user"
SETS = "set $user x; set $role viewer;"
TCP = "listen 127.0.0.1:1;"


def place(args="", more="", location="location /admin/"):
    return "%s { %s\nmodelgw_admin %s; # HERE\n}" % (location, more, args)


@pytest.mark.parametrize("args", [
    ROLE, "actor=$user role=$role", "actor=x-$remote_user role=$role",
    "actor=$ssl_client_s_dn role=$role"])
def test_variables(conf, args):
    conf.accepted(server=TCP, locations=place(args, SETS))
    conf.accepted(server=TCP, locations=place(args, SETS), **block(operator()))


@pytest.mark.parametrize("args", [
    "actor=$user", "role=$role", "role=admin", "actor=x", "on", "off", "x",
    "actor", "role", "Actor=$user role=$role", "actor=$user Role=$role",
    "user=$user role=$role", "actor=$user actor=$user",
    "role=$role role=$role", "actor=$user roles=$role",
    "actor= role=$role", "actor=$user role=", "actor= role=",
    "actor=$user role=$role x", "actor=$user role=$role role=admin",
    "actor=$user role=$role off", "actor $user role $role"])
def test_bad_arguments(conf, args):
    conf.test(server=TCP, locations=place(args, SETS))
    lines = conf.lines("emerg")
    assert conf.rc == 1 and len(lines) == 1, conf.text
    assert "modelgw_admin" in lines[0] or "actor" in lines[0] \
        or "role" in lines[0], lines
    assert lines[0].endswith(" in " + conf.place()), lines


@pytest.mark.parametrize("role", ["root", "Admin", "holder", "viewer,admin"])
def test_role_that_is_no_variable(conf, role):
    """It would be 403 for all."""
    conf.test(server=TCP, locations=place("actor=$user role=" + role, SETS))
    assert conf.rc == 1 and role in conf.text, conf.text


def test_unknown_variables(conf):
    for args in ("actor=$nothing role=$role", "actor=$user role=$nothing"):
        conf.test(server=TCP, locations=place(args, SETS))
        assert conf.rc == 1 and '"nothing" variable' in conf.text, conf.text


# links of the console


@pytest.mark.parametrize("name", ["modelgw_topup_url", "modelgw_gateway_url"])
@pytest.mark.parametrize("where", ["http", "server", "locations"])
def test_urls(conf, name, where):
    for value in ("https://pay.example", "http://127.0.0.1:8080/x",
                  '"https://pay.example/?a=1&b=2;c"'):
        text = "%s %s;" % (name, value)
        if where == "locations":
            text = "location /admin/ { modelgw_admin; %s }" % text
        conf.accepted(**{where: text})


def test_url_of_an_account(conf):
    conf.accepted(http='modelgw_topup_url "https://pay.example/?account=%s";')


@pytest.mark.parametrize("name", ["modelgw_topup_url", "modelgw_gateway_url"])
@pytest.mark.parametrize("value", [
    '""', "pay.example", "//pay.example", "/pay", "ftp://pay.example",
    "javascript:alert(1)", "JAVASCRIPT:alert(1)", "data:text/html,x",
    "'javascript:alert(1)//https://'", "' https://pay.example'",
    "'https://pay.example/ x'", "'https://pay.example/\"x'",
    "'https://pay.example/<script>'", "https://pay.example/$uri",
    "'https://pay.example/\té'", "https://",
    "http://", "https:pay.example", "https:/pay.example", "https:///x"])
def test_bad_urls(conf, name, value):
    conf.refused(name, http="%s %s; # HERE" % (name, value))


@pytest.mark.parametrize("value", [
    "'https://%s.example/'", "'https://pay.example%s'", "'https://%s'",
    "'https://%s@pay.example/'", "'https://pay.example:%s/'"])
def test_bad_places_of_the_account(conf, value):
    """The page puts the id of an account in one place, of the path or later:
    it must not choose the host."""
    conf.test(http="modelgw_topup_url %s; # HERE" % value)
    assert conf.rc == 1, conf.text


def test_an_end_of_line_in_a_url(conf):
    conf.test(http='modelgw_topup_url "https://pay.example/\\n";')
    assert conf.rc == 1 and "modelgw_topup_url" in conf.text


def test_url_twice(conf):
    for name in ("modelgw_topup_url", "modelgw_gateway_url"):
        conf.refused(name, "duplicate",
                     http="%s https://a.example;\n%s https://b.example; # HERE"
                     % (name, name))


# who guards a location that is reachable over TCP


OPEN = "listen 1;"
LOOPBACK = ["listen 127.0.0.1:1;", "listen 127.0.0.2:1;", "listen [::1]:1;",
            "listen localhost:1;", "listen 127.0.0.1:1; listen [::1]:1;"]
PUBLIC = ["listen 1;", "listen *:1;", "listen 0.0.0.0:1;", "listen [::]:1;",
          "listen 192.0.2.1:1;", "listen [2001:db8::1]:1;",
          "listen 127.0.0.1:1; listen 192.0.2.1:1;",
          "listen 127.0.0.1:1; listen *:2;", "listen 1 ssl;",
          "listen [::ffff:192.0.2.1]:1;"]


@pytest.mark.parametrize("listen", PUBLIC)
def test_open_to_all(conf, listen):
    """Anyone could make credit: no warning is enough."""
    for more in ("", "allow 10.0.0.0/8; deny all;", "deny all;",
                 "allow 127.0.0.1; deny all;"):
        conf.refused('"/admin/"', "modelgw_operators", server=listen,
                     locations=place("", more))


@pytest.mark.parametrize("listen", LOOPBACK)
def test_open_to_the_machine(conf, listen):
    conf.warned('"/admin/"', "TCP", server=listen, locations=place())


GUARDS = {
    "password": ('auth_basic "x"; auth_basic_user_file x;', "", ""),
    "subrequest": ("auth_request /who;", "", "location = /who { return 204; }"),
    "internal": ("internal;", "", ""),
}


@pytest.mark.parametrize("listen", [PUBLIC[0], PUBLIC[3], LOOPBACK[0]])
@pytest.mark.parametrize("guard", ["password", "subrequest", "internal"])
def test_guards(conf, listen, guard):
    more, server, locations = GUARDS[guard]
    if guard == "subrequest" and not has("auth_request"):
        pytest.skip("nginx has no auth_request")
    conf.accepted(server=listen + server,
                  locations=place("", more) + locations)


@pytest.mark.parametrize("listen", PUBLIC[:4] + LOOPBACK[:1])
def test_operators_guard(conf, listen):
    conf.accepted(server=listen, locations=place(), **block(operator()))
    conf.accepted(server=listen, locations=place(), **block(""))
    conf.accepted(server=listen, locations=place(),
                  late=block(operator())["http"])


@pytest.mark.parametrize("listen", PUBLIC[:4] + LOOPBACK[:1])
def test_role_guards(conf, listen):
    conf.accepted(server=listen, locations=place(ROLE, SETS))


@pytest.mark.parametrize("args", ["actor=$remote_user role=admin",
                                  "actor=x role=viewer"])
def test_a_role_for_all_guards_nothing(conf, args):
    conf.refused('"/admin/"', server=OPEN, locations=place(args))
    conf.warned('"/admin/"', server=LOOPBACK[0], locations=place(args))
    conf.accepted(server=OPEN, locations=place(
        args, 'auth_basic "x"; auth_basic_user_file x;'))


def test_unix_socket_is_no_tcp(conf):
    conf.accepted(locations=place())
    conf.accepted(locations=place(ROLE, SETS))


@pytest.mark.parametrize("guard", [
    "auth_basic off;", 'auth_basic $x; auth_basic_user_file x; set $x off;',
    'auth_basic "x"; auth_basic_user_file x; satisfy any; allow all;',
    "auth_request off;", "auth_request /who; satisfy any; allow all;"])
def test_what_is_no_guard(conf, guard):
    if "auth_request" in guard and not has("auth_request"):
        pytest.skip("nginx has no auth_request")
    conf.refused('"/admin/"', server=OPEN, locations=place("", guard))


def test_another_server_is_no_guard(conf):
    conf.refused('"/"', late="server { listen 1; %s }"
                 % place(location="location /"))
    conf.refused('"/"', late="""
server { listen 1; server_name a; location / { return 204; } }
server { listen 1; server_name b; %s }""" % place(location="location /"))
    conf.accepted(late="server { listen 1; location / { return 204; } }",
                  locations=place())


def test_a_nested_location(conf):
    conf.refused('"/x/admin/"', server=OPEN, locations="location /x/ { %s }"
                 % place(location="location /x/admin/"))
    conf.accepted(server=OPEN, locations="location /x/ { %s %s }" % (
        'auth_basic "x"; auth_basic_user_file x;',
        place(location="location /x/admin/")))


BASIC = 'auth_basic "x"; auth_basic_user_file x;'


def test_limit_except(conf):
    """A guard of some methods is none, and none may be without."""
    conf.refused('"/admin/"', server=OPEN, locations=place(
        "", "limit_except GET { %s }" % BASIC))
    conf.refused('"/admin/"', server=OPEN, locations=place(
        "", BASIC + "limit_except GET { auth_basic off; }"))
    conf.accepted(server=OPEN, locations=place(
        "", BASIC + "limit_except GET { allow 127.0.0.1; deny all; }"))
    conf.warned('"/admin/"', server=LOOPBACK[0], locations=place(
        "", "limit_except GET { deny all; } if ($http_x) { set $x 1; }"))


@pytest.fixture
def tls(tmp_path):
    """Directives for client certificates."""
    name = str(tmp_path / "c.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x", "-days", "30",
         "-keyout", name, "-out", name + ".crt"],
        check=True, capture_output=True)
    return ("ssl_certificate %s.crt; ssl_certificate_key %s;"
            " ssl_client_certificate %s.crt;" % ((name,) * 3))


def test_client_certificates(conf, tls):
    """Only over TLS does a client have one."""
    on = tls + "ssl_verify_client on;"
    conf.accepted(server="listen 1 ssl;" + on, locations=place())
    conf.accepted(server="listen 1 ssl; listen unix:u;" + on,
                  locations=place())
    for listen in ("listen 1;", "listen 1 ssl; listen 2;",
                   "listen 2; listen 1 ssl;",
                   "listen 127.0.0.1:2; listen 1 ssl;"):
        conf.refused('"/admin/"', server=listen + on, locations=place())
    conf.warned('"/admin/"', server="listen 127.0.0.1:2;" + on,
                locations=place())
    for verify in ("off", "optional", "optional_no_ca"):
        conf.refused('"/admin/"', server="listen 1 ssl;" + tls
                     + "ssl_verify_client %s;" % verify, locations=place())
