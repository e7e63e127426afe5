"""The documents against the sources: every directive, option, variable and
error code is documented and nothing else is; links, widths and the complete
configuration are checked.  Their samples are run in test_demo.py."""

import glob
import os
import re
import subprocess

import pytest

from config_check import ENV, MODULE, NGINX, ROOT
from gateway import free_port

README = "README.md"
DOCUMENTS = sorted(os.path.relpath(path, ROOT)
                   for pattern in ("*.md", "docs/*.md")
                   for path in glob.glob(os.path.join(ROOT, pattern)))


def read(name):
    with open(os.path.join(ROOT, name)) as f:
        return f.read()


def sources(under="src", files="*"):
    return "\n".join(read(path) for path in sorted(
        glob.glob(os.path.join(ROOT, under, "**", files + ".[ch]"),
                  recursive=True)))


def prose(text):
    """The lines outside of code blocks, numbered; others are empty."""
    fenced, lines = False, []
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        code = fence or fenced or line.startswith("    ")
        lines.append("" if code else line)
    return lines


def headings(text):
    return [m.group(2) for m in
            (re.match(r"(#+) (.*)$", line) for line in prose(text)) if m]


def anchors(text):
    """As GitHub, GitLab and Gitea make them."""
    found = []
    for heading in headings(text):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        n = sum(1 for x in found if re.fullmatch(slug + r"(-\d+)?", x))
        found.append(slug + ("-%d" % n if n else ""))
    return found


def section(text, heading):
    """The text under the heading, subsections included."""
    m = re.search(r"^(#+) %s$" % re.escape(heading), text, re.M)
    assert m, heading
    rest = text[m.end():]
    end = re.search(r"^#{1,%d} " % len(m.group(1)), rest, re.M)
    return rest[:end.start()] if end else rest


def rows(text, n=0):
    """Cells of the tables' n-th column, without the head."""
    cells = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        for line in table.strip().split("\n")[2:]:
            cells.append(re.split(r"(?<!\\)\|", line)[n + 1].strip())
    return cells


def one_table(text, name):
    """The strings of the C table of that name."""
    found = re.findall(r"\w+\[\] = \{((?:[^;])*?ngx_string\(\"%s\"\)[^;]*)\};"
                       % name, text)
    assert len(found) == 1, name
    return re.findall(r'ngx_string\("([^"]*)"\)', found[0])


COMMANDS = re.findall(
    r'\{ ngx_string\("(\w+)"\),\s*((?:NGX_\w+\|?\s*)+),',
    read("ngx_http_modelgw_module.c"))
CONTEXTS = [("NGX_HTTP_MAIN_CONF", "http"), ("NGX_HTTP_SRV_CONF", "server"),
            ("NGX_HTTP_LOC_CONF", "location")]


def test_directives_are_in_both_tables():
    names = sorted(name for name, _ in COMMANDS)
    assert len(names) >= 15
    assert sorted(re.findall(r"^\| `(modelgw\w*)`", read(README), re.M)) == names
    text = read("docs/directives.md")
    assert sorted(h for h in headings(text) if h.startswith("modelgw")) == names


@pytest.mark.parametrize("name,flags", COMMANDS)
def test_directive(name, flags):
    text = section(read("docs/directives.md"), name)
    m = re.match(r"\n+    Syntax:   %s[ ;].*\n"
                 r"    Default:  .+\n"
                 r"    Context:  (.*)\n\n" % name, text)
    assert m, text[:200]
    assert m.group(1).split(", ") == [context for flag, context in CONTEXTS
                                      if flag in flags]


def test_lines_of_a_group():
    names = one_table(sources(), "deny_field")
    text = section(read("docs/directives.md"), "modelgw_group")
    assert re.findall(r"^#### (\w+)$", text, re.M) == names


def test_options():
    """Of models, keys and limits: exactly those that are read."""
    text = read("docs/directives.md")
    parsed = set(re.findall(r'"([a-z][a-z0-9_]*=)"', sources("src/http/conf")))
    parsed |= {"flush=", "keep=", "keys=", "accounts=", "actor=", "role="}
    assert len(parsed) >= 25
    assert set(re.findall(r"`([a-z][a-z0-9_]*=)", text)) == parsed
    assert "`free`" in text


def test_refused_fields():
    text = section(read("docs/directives.md"), "deny_field")
    documented = re.findall(r"^    ((?:[a-z_]+ ?)+)$", text, re.M)
    assert sorted(" ".join(documented).split()) \
        == sorted(one_table(sources(), "fallback_models"))


def test_variables():
    names = ["$" + name for name in one_table(sources(), "modelgw_upstream")]
    assert len(names) >= 18
    text = section(read("docs/directives.md"), "Variables")
    assert sorted(rows(text)) == sorted("`%s`" % name for name in names)


def test_members_of_the_log():
    code = read("src/http/ngx_http_modelgw_log.c")
    names = ["time"] + re.findall(
        r'ngx_http_modelgw_log_[a-z]+\(out, "(\w+)"', code)
    assert len(names) >= 37
    text = section(read("docs/operating.md"), "The access log")
    assert sorted(re.findall(r"`(\w+)`", "\n".join(rows(text)))) \
        == sorted(names)


def test_error_codes():
    """A code is a literal of capitals; two of them are one word."""
    text = re.sub(r"/\*.*?\*/", "", sources(), flags=re.S)
    codes = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', text))
    codes |= set(re.findall(r'"(FORBIDDEN)"', text))
    assert len(codes) >= 25
    errors = section(read("docs/api.md"), "Errors")
    assert set(re.findall(r"`(.*)`", "\n".join(rows(errors, 1)))) == codes


def test_translated_fields():
    """What becomes of each field of the root, by the codec's tables; all
    others are ignored."""
    code = sources("src/translate", "*_request*")
    translated = set(re.findall(r"^    ngx_modelgw_request_field\((\w+)", code,
                                re.M))
    refused = set(one_table(code, "logprobs"))
    assert len(translated) >= 18 and len(refused) >= 7

    text = read("docs/translation.md")
    named = re.findall(r"`(\w+)`", "\n".join(rows(section(text, "Request"))))
    assert translated | {"model", "messages"} <= set(named)
    last = section(text, "Ignored and refused fields")
    named = set(re.findall(r"`(\w+)`", "\n".join(rows(last))))
    assert named == refused | {"modalities"}
    listed = re.findall(r"^    ((?:[a-z_]+ ?)+)$", last, re.M)
    ignored = set(" ".join(listed).split())
    assert len(ignored) >= 10 and not ignored & (translated | refused)


def test_translated_fields_of_responses():
    code = sources("src/translate", "*_responses*")
    translated = set(re.findall(r"^    ngx_modelgw_request_field\((\w+)", code,
                                re.M))
    refused = set(one_table(code, "background"))
    assert len(translated) >= 17 and len(refused) >= 5

    fields, last = section(read("docs/responses.md"),
                           "Fields").split("\nRefused", 1)
    named = re.findall(r"`(\w+)`", "\n".join(rows(fields)))
    assert translated | {"model", "input"} <= set(named)
    assert set(re.findall(r"`(\w+)`", "\n".join(rows(last)))) == refused


def test_quoted_log_texts():
    """Those that an operator should look for."""
    code = re.sub(r'"\s*\n\s*"', "", sources()).replace('\\"', '"')
    texts = re.findall("`(.*)`", "\n".join(
        rows(section(read("docs/operating.md"), "The error log"), 1)))
    texts += ["client headers not passed to upstreams in the last minute: "]
    assert len(texts) >= 4
    for text in texts:
        assert text in code, text


def test_map():
    """Every room, in the order that "make style" checks, with its files."""
    text = section(read("docs/development.md"), "The map")
    order = eval(re.search(r"(?s)^ORDER = (\(\(.*?\)\))$",
                           read("t/tools/style.py"), re.M).group(1),
                 {"MODULE": "ngx_http_modelgw_module.c"})
    table = text[:text.index("\n### ")]
    assert [re.findall(r"`([\w./]+)`", row) for row in rows(table, 1)] \
        == [list(row) for row in order]

    for room in [room for row in order[:-1] for room in row]:
        files = [re.sub(r"^ngx_(http_)?modelgw_|\.c$", "", os.path.basename(f))
                 for f in glob.glob(os.path.join(ROOT, "src", room, "*.c"))]
        listed = [name.strip("`") for name in rows(section(text,
                                                           "src/" + room))]
        assert sorted(listed) == sorted(files), room


@pytest.mark.parametrize("name", DOCUMENTS)
def test_names_in_the_sources(name):
    """Functions, types and files of ours that a document names exist."""
    text, code = read(name), read("ngx_http_modelgw_module.c") + sources()
    for symbol in re.findall(r"`(ngx_(?:http_)?modelgw_\w+)(?:\(\))?`", text):
        assert symbol.endswith("_") or re.search(r"\b%s\b" % symbol, code), \
            symbol
    for path in re.findall(r"`((?:src|t|conf|docker|demo)/[\w./]*)`", text):
        assert os.path.exists(os.path.join(ROOT, path)), path
    for room, file in re.findall(r"`((?:http/)?[a-z]+)/([a-z_]+)`", text):
        directory = os.path.join(ROOT, "src", room)
        assert os.path.isdir(os.path.join(directory, file)) \
            or not os.path.isdir(directory) \
            or glob.glob("%s/ngx_*modelgw_%s.c" % (directory, file)), file


def test_short_names():
    """Names without their prefix, "_...": a function is defined in the file
    that is named before it, a constant is in a header."""
    text = read("docs/development.md")
    functions = re.findall(r"`([a-z/]+)/([a-z_]+)`: `(_\w+)\(\)`", text)
    assert len(functions) == len(re.findall(r"`_\w+\(\)`", text)) >= 4
    for room, file, name in functions:
        prefix = "ngx_http_modelgw" if room.startswith("http") \
            else "ngx_modelgw"
        code = read("src/%s/%s_%s.c" % (room, prefix, file))
        assert re.search("(?m)^%s\\(" % (prefix + name), code), name

    constants = re.findall(r"`(_[A-Z_]+)`", text)
    assert len(constants) >= 3
    for name in constants:
        assert re.search(r"#define NGX_HTTP_MODELGW%s\b" % name, sources()), name


def test_attacks_are_listed():
    """Tests that are named after an attack, and the files they are in."""
    files = {}
    for path in glob.glob(os.path.join(ROOT, "t/**/test_*.py"), recursive=True):
        name = os.path.relpath(path, os.path.join(ROOT, "t"))
        for row in re.findall(r"def test_([A-Z]\d+)_", read(path)):
            files.setdefault(row, set()).add(name)
    text = section(read("docs/development.md"), "Tests of known attacks")
    listed, attack = {}, None
    for row, where in zip(rows(text), rows(text, 2)):
        attack = row or attack
        listed.setdefault(attack, set()).add(where.strip("`"))
    assert listed == files


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links(name):
    text = "\n".join(prose(read(name)))
    targets = re.findall(r"\]\(([^)\s]+)\)", text) \
        + re.findall(r"^\[[^]]+\]: (\S+)$", text, re.M)
    for target in targets:
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(name), path)) \
            if path else name
        assert os.path.exists(os.path.join(ROOT, path)), target
        assert not anchor or anchor in anchors(read(path)), target

    # and no reference to a definition that is missing
    defined = re.findall(r"^\[([^]]+)\]: ", text, re.M)
    for label in re.findall(r"(?<![\]\\`])\[(modelgw\w*)\](?![(:\[])", text):
        assert label in defined, label


def test_pictures():
    """Small, and none that is not shown; "make console-pictures" renews
    them."""
    shown = re.findall(r"!\[.+\]\(console/(.*)\)", read("docs/console.md"))
    assert sorted(os.listdir(os.path.join(ROOT, "docs/console"))) \
        == sorted(shown)
    for name in shown:
        assert os.path.getsize(os.path.join(ROOT, "docs/console", name)) \
            <= 40000, name


@pytest.mark.parametrize("name", DOCUMENTS)
def test_width(name):
    """100 columns, except for code and addresses."""
    for i, line in enumerate(prose(read(name)), 1):
        assert len(line) <= 100 or "://" in line, "%s:%d" % (name, i)
        assert line == line.rstrip(), "%s:%d" % (name, i)


def test_readme_is_one_page():
    assert len(read(README).splitlines()) <= 200
    for name in glob.glob(os.path.join(ROOT, "docs/*.md")):
        assert "docs/" + os.path.basename(name) in read(README)


def test_cited_documents():
    """A document that a file cites exists, and so does the section."""
    cited = 0
    for path in glob.glob(os.path.join(ROOT, "**/*"), recursive=True):
        name = os.path.relpath(path, ROOT)
        if name.startswith("build") or not os.path.isfile(path) \
           or not re.search(r"(\.[ch]|\.py|\.sh|\.conf|\.mk|Makefile"
                            r"|Dockerfile|\.yaml)$", name):
            continue
        text = re.sub(r"\n[ \t]*[*#]?[ \t]*", " ", read(name))
        for document, heading in re.findall(
                r'(?<![\w.*/-])([\w/-]+\.md)\b(?:, "([^"\n]+)")?', text):
            cited += 1
            assert os.path.exists(os.path.join(ROOT, document)), (name, document)
            assert not heading or heading in headings(read(document)), \
                (name, document, heading)
    assert cited >= 10


def test_complete_configuration(tmp_path):
    """The README's, after the steps of "First start", with only paths and host
    names changed."""
    (text,) = re.findall(r"^```nginx\n(.*?)^```$", read(README), re.M | re.S)

    etc, lib = tmp_path / "etc", tmp_path / "lib"
    (etc / "modelgw").mkdir(parents=True)
    (etc / "tls").mkdir()
    for name in "modelgw", "log", "run":
        (lib / name).mkdir(parents=True)

    for group in "ab":
        secret = etc / ("modelgw/%s.secret" % group)
        secret.write_text("secret")
        secret.chmod(0o600)
    for name in "log.conf", "proxy.conf", "console.conf":
        (etc / "modelgw" / name).write_text(read("conf/modelgw/" + name))
    (etc / "modelgw/keys.conf").write_text(
        "alice-1 sha256:%s a account=alice models=family_a-small;\n"
        % ("9f" * 32))
    (etc / "modelgw/operators.conf").touch()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",
                    "-subj", "/CN=gateway", "-days", "1",
                    "-keyout", etc / "tls/gateway.key",
                    "-out", etc / "tls/gateway.pem"],
                   check=True, stderr=subprocess.DEVNULL)

    def instead(old, new):
        nonlocal text
        assert old in text, old
        text = text.replace(old, new)

    instead("load_module modules/ngx_http_modelgw_module.so;",
            "load_module %s;" % MODULE if MODULE else "")
    instead("user www-data;", "user root;" if os.geteuid() == 0 else "")
    instead("/etc/nginx/", str(etc) + "/")
    instead("/var/log/nginx/", str(lib) + "/log/")
    instead("/var/lib/", str(lib) + "/")
    instead("/run/", str(lib) + "/run/")
    instead("server api.vendor-a.example:443", "server 127.0.0.1:443")
    instead("server api.vendor-b.example:443", "server 127.0.0.1:443")
    instead("listen 443 ssl", "listen unix:%s/run/tls ssl" % lib)
    instead("http {\n", "http {\n" + "".join(
        "%s_temp_path %s/tmp;\n" % (kind, lib) for kind in
        ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")))

    (etc / "nginx.conf").write_text(text)
    p = subprocess.run([NGINX, "-t", "-p", lib, "-c", etc / "nginx.conf",
                        "-g", "pid %s/run/pid;" % lib, "-e", "stderr"],
                       capture_output=True, text=True, timeout=60, env=ENV)
    assert p.returncode == 0, p.stderr
    assert not re.search(r"\[(warn|error|emerg|alert)\]", p.stderr), p.stderr


def test_version():
    """The first heading of CHANGELOG.md is the version of the sources."""
    version = re.search(r"(?m)^## (\S+)", read("CHANGELOG.md")).group(1)
    assert '#define NGX_HTTP_MODELGW_VERSION     "%s"' % version.lower() \
        in read("src/http/conf/ngx_http_modelgw_conf.h")


def test_recipes_of_sign_on(check):
    """Those of "Who may use it" are accepted, without a warning."""
    recipes = re.findall(r"^```nginx\n(.*?)^```$", section(
        read("docs/operating.md"), "Who may use it"), re.M | re.S)
    assert len(recipes) == 2
    for text in recipes:
        maps, rest = text.split("\n\n", 1)
        listen = "listen 0.0.0.0:%d;" % free_port("")
        if rest.startswith("server {\n    …\n"):
            rest = rest.replace("…", listen)
        else:
            rest = "server { %s %s }" % (listen, rest)
        p = check(http=maps + rest)
        assert p.returncode == 0 and "modelgw" not in p.stderr, p.stderr
