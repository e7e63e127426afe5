"""nginx -t: directives, groups and their credentials.

Models are in test_config_model.py, keys in test_config_keys.py, checks of
gateway locations in test_config_lint.py.
"""

import os

import pytest

from config_check import GROUP, GROUP_B, LOCATION, Config, key


@pytest.fixture
def conf(tmp_path):
    return Config(tmp_path)


def without(line, group=GROUP):
    return "\n".join(x for x in group.split("\n")
                     if not x.strip().startswith(line))


def instead(old, new, group=GROUP):
    return without(old, group) + new + "\n"


def test_shortest(conf):
    conf.accepted()


def test_design_example(conf):
    """Each line of a group, as in docs/directives.md."""
    conf.accepted(http="modelgw_zone 32m;", group="""
        protocol    messages;
        family      family_a-;
        owned_by    vendor-a;
        upstream    http://api.vendor-a.test;
        credential  x-api-key file:%s;
        # service id        upstream id    euro per million tokens
        model family_a-large  large-2026-01-01  input=3 output=15
                              cache_read=0.3 cache_write=3.75 cache_write_1h=6
                              context=200000 max_output=64000
                              thinking=adaptive effort=low,medium,high
                              structured=native;   # capabilities
        model family_a-small  small-1;
        """ % conf.path("a.secret"), keys=key("alice-1", "a",
            "account=alice models=family_a-large,family_a-small "
            "rpm=60 tpm=100000 concurrency=8 expires=2097-01-01"))


def test_unused(conf):
    """A module that is loaded and not used changes nothing."""
    conf.accepted(groups="", keys=False, enable="", location="")


def test_order_does_not_matter(conf):
    groups = ("modelgw_group a {\n%s\n}\nmodelgw_group b {\n%s\n}"
              % (GROUP, GROUP_B))
    keys = "modelgw_keys {\n%s\n%s\n}" % (
        key("alice", "a", "models=fam-a-large"),
        key("bob", "b", "models=code-x,fam-b-one"))
    upstreams = ("upstream api.vendor-a.test { server 127.0.0.1:1; }\n"
                 "upstream api.vendor-b.test { server 127.0.0.1:1; }")
    conf.accepted(http=keys, groups="", keys=False, upstreams="",
                  late=groups + upstreams)


# directives

@pytest.mark.parametrize("line", [
    "modelgw_zone;", "modelgw_zone 1m 2m;", "modelgw_zone x;",
    "modelgw_zone -1m;", "modelgw_group {}", "modelgw_group a b {}",
    "modelgw_keys x {}", "modelgw_key_prefix;"])
def test_syntax(conf, line):
    conf.refused(line.split(" ")[0].rstrip(";"), http=line + " # HERE")


@pytest.mark.parametrize("line", ["modelgw on;", "modelgw_flat_errors on;",
                                  "modelgw_error_compat on;"])
def test_not_in_http(conf, line):
    conf.refused("not allowed here", http=line + " # HERE")


@pytest.mark.parametrize("line", [
    "modelgw_zone 1m;", "modelgw_group x {}", "modelgw_keys {}",
    "modelgw_key_prefix sk-;"])
def test_not_in_server(conf, line):
    conf.refused("not allowed here", server=line + " # HERE")


@pytest.mark.parametrize("line", ["modelgw", "modelgw_flat_errors",
                                  "modelgw_error_compat", "modelgw_aliases"])
def test_flag(conf, line):
    conf.refused(line, "maybe", locations="location /x { %s maybe; # HERE\n}"
                 % line)


@pytest.mark.parametrize("line", [
    "modelgw_zone 1m;", "modelgw_key_prefix sk-;"])
def test_duplicate_directive(conf, line):
    conf.refused("is duplicate", http=line + "\n" + line + " # HERE")


@pytest.mark.parametrize("prefix", ['""', "sk eu", "'sk eu-'", "sk.eu", "sk-é",
                                    "x" * 33, "'sk-eu-\"'"])
def test_key_prefix(conf, prefix):
    conf.refused("" if " " in prefix else prefix.strip("'\""),
                 http="modelgw_key_prefix %s; # HERE" % prefix)


def test_key_prefix_good(conf):
    conf.accepted(http="modelgw_key_prefix my_Keys-2;")


def test_zone_too_small(conf):
    conf.refused("zone too small", '"32k"', "64k",
                 http="modelgw_zone 32k; # HERE")


def test_zone_too_small_for_keys(conf):
    keys = "\n".join(key("k%d" % i, options="rpm=1") for i in range(1000))
    conf.refused("zone too small", "100k", "1000 keys", "at least 544k",
                 http="modelgw_zone 100k;", keys=keys, place=False)
    conf.accepted(http="modelgw_zone 544k;", keys=keys)


def test_on_without_group(conf):
    conf.refused("no \"modelgw_group\"", groups="", keys=False,
                 enable="modelgw on; # HERE")


def test_on_without_keys(conf):
    conf.refused("no \"modelgw_keys\"", keys=False,
                 enable="modelgw on; # HERE")


# groups

@pytest.mark.parametrize("name", ["a/b", "é", '""', "'a b'", "x" * 65])
def test_group_name(conf, name):
    conf.refused("invalid group name", name.strip("'\""),
                 http="modelgw_group %s { # HERE\n}" % name)


def test_group_twice(conf):
    conf.refused('duplicate group "a"',
                 late="modelgw_group a { # HERE\n%s}" % GROUP)


def test_group_unknown_line(conf):
    conf.refused('unknown line "protokol"', 'group "a"',
                 group=GROUP + "protokol chat; # HERE\n")


def test_group_block_inside(conf):
    conf.refused('unexpected "{"', group=GROUP + "model { # HERE\n}\n")


def test_group_not_ended(conf):
    conf.refused("unexpected end of file", groups="", keys=False, enable="",
                 location="", late="modelgw_group a {\n" + GROUP, place=False)


@pytest.mark.parametrize("line", ["protocol", "family", "upstream",
                                  "credential"])
def test_group_lacks(conf, line):
    text = conf.refused('no "%s" in group "a"' % line, group=without(line),
                        place=False)
    assert "nginx.conf:" in text


@pytest.mark.parametrize("line", [
    "protocol;", "protocol chat messages responses embeddings chat;",
    "family;", "owned_by;",
    "owned_by a b;", "upstream;", "upstream http://a http://b;",
    "credential x-api-key;", "credential x-api-key file:a.secret bearer x;",
    "model;", "model fam-a-x;", "deny_field;", "allow_field;", "retry;",
    "retry 1 2 3 4 5 6 7;"])
def test_group_arguments(conf, line):
    name = line.split(" ")[0].rstrip(";")
    conf.refused("number of arguments", '"%s"' % name, 'group "a"',
                 group=instead(name, line + " # HERE"))


@pytest.mark.parametrize("line", [
    "protocol chat;", "owned_by b;", "upstream http://api.vendor-b.test;",
    "credential x-key file:a.secret;", "retry 503;", "retry off;"])
def test_group_line_twice(conf, line):
    group = GROUP + "owned_by a;\nretry off;\n" + line + " # HERE\n"
    conf.refused("is duplicate", group=group)


def test_group_include(conf):
    conf.write("models.conf", "model fam-a-2 two-2;\nmodel fam-a-3 three-3;\n")
    conf.accepted(group=GROUP + "include %s;" % conf.path("models.conf"))
    conf.write("models.conf", "model fam-a-2 two-2;\nmodel fam-a-3; # HERE\n")
    conf.refused(group=GROUP + "include %s;" % conf.path("models.conf"))


def test_group_without_model(conf):
    text = 'no "model" in group "a"'
    conf.warned(text, group=without("model"), place=False)


# retry

@pytest.mark.parametrize("words", ["off", "429", "403 401 500 529 503 429"])
def test_retry(conf, words):
    conf.accepted(group=GROUP + "retry %s;" % words)


@pytest.mark.parametrize("words, bad", [
    ("418", "418"), ("429 503 429", "429"), ("503 off", "off"),
    ("off 503", "off"), ("on", "on"), ("429,503", "429,503"), ("0429", "0429"),
    ('""', "")])
def test_retry_bad(conf, words, bad):
    conf.refused('invalid status "%s" in "retry"' % bad, 'group "a"',
                 "it is 429, 503, 529, 500, 401 or 403, each once",
                 group=GROUP + "retry %s; # HERE" % words)


# modelgw_cors

@pytest.mark.parametrize("value", [
    "off", "*", "https://app.example", "http://localhost:5173",
    "http://127.0.0.1:8080 http://[::1]:8080", "tauri://localhost",
    "chrome-extension://abcdefghijklmnop", "https://xn--bcher-kva.example",
    "https://a.example:80 http://a.example:443", "https://a_b.example"])
def test_cors(conf, value):
    for place in "http", "server":
        conf.accepted(**{place: "modelgw_cors %s;" % value})
    conf.accepted(location=LOCATION + "modelgw_cors %s;" % value)


@pytest.mark.parametrize("value", [
    '""', "null", "app.example", "//app.example", "https://", "https:app",
    "https://app.example/", "https://app.example/x", "https://app.example?",
    "HTTPS://app.example", "https://App.example", "https://u@app.example",
    "https://app.example:", "https://app.example:0", "https://app.example:080",
    "https://app.example:65536", "https://app.example:x",
    "https://app.example:443", "http://app.example:80", "https://*.example",
    "https://b\u00fccher.example", "'https://a b'", "https://[::1",
    "https://[]", "https://[::1]x", "1a://x", "on"])
def test_cors_bad(conf, value):
    conf.refused("invalid origin", '"*" or "off" alone',
                 server="modelgw_cors %s; # HERE" % value)


@pytest.mark.parametrize("value", ["* https://app.example",
                                   "https://app.example *",
                                   "off https://app.example",
                                   "https://app.example off", "off *", "* *"])
def test_cors_words_that_are_alone(conf, value):
    conf.refused("", server="modelgw_cors %s; # HERE" % value)


def test_cors_twice(conf):
    conf.refused("is duplicate", server="modelgw_cors *;\nmodelgw_cors off; "
                 "# HERE")
    conf.refused('duplicate origin "http://a"',
                 server="modelgw_cors http://a http://b http://a; # HERE")
    conf.refused("modelgw_cors", server="modelgw_cors; # HERE")


# protocol, family, owned_by

@pytest.mark.parametrize("words", ["messages chat", "chat messages", "chat",
                                   "responses",
                                   "embeddings responses chat messages"])
def test_protocol(conf, words):
    conf.accepted(group=instead("protocol", "protocol %s;" % words))


@pytest.mark.parametrize("words", ["Chat", "response", "messages messages",
                                   "chat,messages", '""'])
def test_protocol_bad(conf, words):
    conf.refused("protocol", words.split(" ")[0].strip('"'), 'group "a"',
                 group=instead("protocol", "protocol %s; # HERE" % words))


@pytest.mark.parametrize("family", ['""', "'fam a-'", "fam\\a", "é", "f" * 257,
                                    "fam-a*"])
def test_family_bad(conf, family):
    conf.refused("invalid family", 'group "a"',
                 group=instead("family", "family %s; # HERE" % family))


def test_family_several(conf):
    conf.accepted(group=GROUP + "family x- y/; family z:;\n"
                  "model x-1 one; model y/1 one; model z:1 one;")


def test_family_twice(conf):
    conf.refused('duplicate family "fam-a-"', 'group "a"',
                 group=GROUP + "family fam-a-; # HERE")


@pytest.mark.parametrize("family", ["fam-a-", "fam-a-x-", "fam-", "f"])
def test_family_two_owners(conf, family):
    conf.refused('family "%s"' % family, "two owners", 'group "a"',
                 'group "b"', '"fam-a-"',
                 group_b=GROUP_B + "family %s; # HERE" % family)


def test_family_near(conf):
    conf.accepted(group_b=GROUP_B + "family fam-ab- FAM-A- fam-a1;")


@pytest.mark.parametrize("owner", ['""', "'a b'", "a/b"])
def test_owned_by_bad(conf, owner):
    conf.refused("invalid owner", 'group "a"',
                 group=GROUP + "owned_by %s; # HERE" % owner)


# upstream

@pytest.mark.parametrize("upstream", [
    "api.vendor-a.test", "http://", "https://", "ftp://api.vendor-a.test",
    "http://api.vendor-a.test/", "http://api.vendor-a.test/v1",
    "http://api.vendor-a.test:80", "http://$host", "HTTP://api.vendor-a.test",
    "http://user@api.vendor-a.test", "http://api.vendor-a.test?x",
    "http://[::1]", "http:///x", '""'])
def test_upstream_bad(conf, upstream):
    conf.refused("invalid upstream", upstream.strip('"'), 'group "a"',
                 group=instead("upstream", "upstream %s; # HERE" % upstream))


def test_upstream_without_block(conf):
    conf.refused("upstream nowhere.test {}", 'group "a"', group=instead(
        "upstream", "upstream http://nowhere.test; # HERE"))


def test_upstream_from_proxy_pass(conf):
    """A name that only a proxy_pass uses is not an upstream block."""
    conf.refused("upstream localhost {}", group=instead(
        "upstream", "upstream http://localhost; # HERE"),
        locations="location /x { proxy_pass http://localhost; }")


# credential

def credential(line):
    return instead("credential", "credential %s; # HERE" % line)


@pytest.mark.parametrize("line", [
    "x-api-key file:a.secret", "Authorization file:a.secret bearer",
    "X_Key file:a.secret"])
def test_credential(conf, line):
    conf.accepted(group=credential(line))


def test_credential_absolute(conf):
    conf.accepted(group=credential("x-api-key file:" + conf.path("a.secret")))


@pytest.mark.parametrize("header", ['""', "x:y", "'x y'", "é", "x" * 65,
                                    "Host", "content-length", "Connection",
                                    "Transfer-Encoding"])
def test_credential_header(conf, header):
    conf.refused("invalid header", header.strip("'\""), 'group "a"',
                 group=credential(header + " file:a.secret"))


@pytest.mark.parametrize("secret", ["sk-inline-canary", "file:", "env:KEY"])
def test_credential_not_file(conf, secret):
    """A secret in the wrong place is not repeated in the log."""
    text = conf.refused("file:PATH", 'group "a"',
                        group=credential("x-api-key " + secret))
    assert secret == "file:" or secret not in text


def test_credential_word(conf):
    conf.refused("invalid parameter", "Bearer",
                 group=credential("x-api-key file:a.secret Bearer"))


def test_credential_missing(conf):
    conf.refused(conf.path("none.secret"), 'group "a"', "No such file",
                 group=credential("x-api-key file:none.secret"))


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o601, 0o644, 0o666, 0o777])
def test_credential_mode(conf, mode):
    os.chmod(conf.path("a.secret"), mode)
    conf.refused(conf.path("a.secret"), "accessible by others",
                 group=credential("x-api-key file:a.secret"))


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o660])
def test_credential_mode_good(conf, mode):
    os.chmod(conf.path("a.secret"), mode)
    conf.accepted()


@pytest.mark.parametrize("text,fault", [
    (b"", "is empty"), (b" \r\n\t", "is empty"),
    (b"canary-5e0c2d\nX-Evil: 1\n", "printable"),
    (b"canary-5e0c2d\0", "printable"), (b"\0canary-5e0c2d", "printable"),
    (b"canary-5e0c2d\xc3\xa9", "printable"), (b"canary\x7f", "printable"),
    (b"\xef\xbb\xbfcanary-5e0c2d", "printable"),
    (b"canary-5e0c2d" * 400, "too long")])
def test_credential_text(conf, text, fault):
    conf.write("b.secret", text, 0o600)
    conf.refused(conf.path("b.secret"), fault,
                 group=credential("x-api-key file:b.secret"))


@pytest.mark.parametrize("text", [b"x", b"  x y  ", b"\r\n\tx\r\n\n",
                                  b"x" * 4000])
def test_credential_text_good(conf, text):
    conf.write("b.secret", text, 0o600)
    conf.accepted(group=credential("x-api-key file:b.secret"))


def test_credential_directory(conf):
    os.mkdir(conf.path("d"), 0o700)
    conf.refused(conf.path("d"), "is not a file",
                 group=credential("x-api-key file:d"))


def test_credential_fifo(conf):
    """It has no writer: nginx must not hang."""
    os.mkfifo(conf.path("f"), 0o600)
    conf.refused(conf.path("f"), "is not a file",
                 group=credential("x-api-key file:f"))


# deny_field, allow_field

def test_fields(conf):
    conf.accepted(group=GROUP + "deny_field service_tier n;\n"
                  "deny_field metadata; allow_field plugins provider;\n")


@pytest.mark.parametrize("line,word", [
    ("deny_field model", "needed by every call"),
    ("deny_field a messages", "needed by every call"),
    ('deny_field ""', "invalid"), ("deny_field 'a b'", "invalid"),
    ("deny_field é", "invalid"), ("deny_field " + "x" * 65, "invalid"),
    ("allow_field temperature", "not denied by default"),
    ("allow_field Models", "not denied by default")])
def test_fields_bad(conf, line, word):
    conf.refused(line.split(" ")[-1].strip("'\""), word, 'group "a"',
                 group=GROUP + line + "; # HERE")


# pass_header

@pytest.mark.parametrize("names", [
    "x-foo", "X-Foo x_bar", "x-acme-*", "x-acme*", "openai-organization",
    "ChatGPT-Account-ID", "user-agent", "x-forwarded-for via forwarded",
    "x-forwarded-*", "openai-*", "content-language", "accept-language",
    "x-foo x-foo-* x-foo*", "x-" + "a" * 62, "x-acme-* x-acme-project",
    "t-*", "x-api", "authorizations"])
def test_pass_header(conf, names):
    conf.accepted(group=GROUP + "pass_header %s;" % names)


OWN = """authorization x-api-key api-key x-goog-api-key cookie
proxy-authorization proxy-anything connection keep-alive te trailer
transfer-encoding upgrade http2-settings expect host content-length
content-type content-encoding accept-encoding range if-range if-match
if-none-match if-modified-since if-unmodified-since early-data""".split()


@pytest.mark.parametrize("name", OWN)
def test_pass_header_never(conf, name):
    for form in (name, name.title(), name.upper(), name.replace("-", "_"),
                 name + "*", name[:-1] + "*"):
        conf.refused('header "%s"' % form, 'group "a"', "which is never passed",
                     group=GROUP + "pass_header x-foo %s; # HERE" % form)


@pytest.mark.parametrize("name,covered", [
    ("x-api-*", "x-api-key"), ("auth*", "authorization"), ("x-*", "x-"),
    ("co*", "co"), ("A*", "a"), ("x_*", "x-"), ("proxy*", "proxy-"),
    ("proxy-x-*", "proxy-"), ("t*", "t"), ("IF-*", "if-")])
def test_pass_header_prefix_covers(conf, name, covered):
    conf.refused('header "%s"' % name, 'covers "' + covered,
                 group=GROUP + "pass_header %s; # HERE" % name)


@pytest.mark.parametrize("name,word", [
    ("*", "name them"), ("**", "invalid"), ("x-*-y", "invalid"),
    ("x-foo:", "invalid"), ('""', "invalid"), ("'a b'", "invalid"),
    ("x.y", "invalid"), ("é", "invalid"), ("a" * 65, "invalid"),
    ("$x", "invalid"), ("openai-org*", "says who pays"),
    ("x-account-*", "says who pays"), ("X_Projects_*", "says who pays"),
    ("workspace*", "says who pays"), ("x-auth-token-*", "is a credential")])
def test_pass_header_bad(conf, name, word):
    conf.refused('header "%s"' % name.strip("'\""), word, 'group "a"',
                 group=GROUP + "pass_header %s; # HERE" % name)


@pytest.mark.parametrize("lines", [
    "pass_header x-foo x-foo; # HERE", "pass_header x-foo X_FOO; # HERE",
    "pass_header x-foo;\npass_header y X-Foo; # HERE",
    "pass_header x-foo* x-foo*; # HERE"])
def test_pass_header_twice(conf, lines):
    conf.refused("duplicate", 'group "a"', "oo", group=GROUP + lines)


@pytest.mark.parametrize("name", ["X-Vendor-Token", "x_vendor_token",
                                  "x-vendor-*"])
def test_pass_header_of_the_credential(conf, name):
    """In either order; another group's credential does not matter."""
    cred = "credential  X-Vendor-Token file:a.secret;"
    group = GROUP.replace("credential  x-api-key file:a.secret;", "")
    for first, second in ((cred, "pass_header %s;" % name),
                          ("pass_header %s;" % name, cred)):
        conf.refused('header "%s"' % name.lower(), "credential", 'group "a"',
                     group=group + first + "\n" + second + " # HERE")
    conf.accepted(group=GROUP + "pass_header %s;" % name)


def test_pass_header_needs_a_name(conf):
    conf.refused("arguments", "pass_header",
                 group=GROUP + "pass_header; # HERE")
