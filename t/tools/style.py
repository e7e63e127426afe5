"""The house rules that a program can check, for src/ and the module's table.

usage: t/tools/style.py [DIR]      the tree to check, this one by default

nginx has no formatter that knows its style, so this checks and never rewrites:
columns, blanks, comments, sizes, unchecked allocations, the order of the rooms.
It reads text, not C, and relies on the style itself: what it cannot read, such
as an odd #include or definition, is refused.
"""

import collections
import glob
import os
import re
import sys

COLUMNS = 80
FUNCTION = 100          # lines
FILE = 1200             # lines; more is reported, not forbidden
CHECK_WITHIN = 3        # lines from an allocation to its "== NULL"

# The rooms of src/, lowest first.  A room uses only those in the rows before
# its own: there are no dependencies upwards or within a row, and so no cycles.

MODULE = "ngx_http_modelgw_module.c"
OBJECT = "ngx_http_modelgw_module"      # nginx's macros name it in every room
ORDER = (("json", "key", "pq"),
         ("answer",),
         ("error", "ledger", "metrics", "translate"),
         ("store",),
         ("cluster",),
         ("http/conf",),
         ("http/zone",),
         ("http",),
         ("http/admin",),
         ("http/metrics",),
         (MODULE,))
LEVEL = {room: level for level, row in enumerate(ORDER) for room in row}

# What only some files may name, even in comments: floor 0 has no requests,
# events, log, clock and random numbers, and each library has one place.

HTTP = ("src/http/", MODULE)
PLACES = (
    (HTTP, r"ngx_(http|event|add_timer|del_timer|connection|cycle|log_|time"
           r"|cached_|current_msec|random|pid|process|worker)|NGX_(HTTP|LOG)_"
           r"|\b(time|gettimeofday|localtime\w*|s?rand|s?random|getrandom"
           r"|getpid)\("),
    (HTTP + ("src/ledger/ngx_modelgw_ledger.c",
             "src/pq/ngx_modelgw_pq.c"), r"clock_gettime"),
    (("src/json/ngx_modelgw_document.c",), r"\byajl_"),
    (("src/store/",), r"sqlite3"),
    (("src/pq/",), r"libpq|\bPQ[a-z]\w+\(|\bPG(conn|result|RES_)"),
    (("src/key/ngx_modelgw_key.c",),
     r"openssl/|\b(CRYPTO|EVP|OPENSSL|RAND|SSL)_|\bSHA\d+(_|\()"),
)

# what no line may have outside of comments and literals

NOWHERE = (
    (r"//", "// comment"),
    (r"\b(if|for|while|switch)\(", "no blank after the keyword"),
    (r"\S\\$", "no blank before the backslash"),
    (r"<%|%>|<:|:>|%:", "digraph"),
    (r"(?<!##)(?<!## )\b(?!NGX_)\w+ *##", "## after what does not begin with"
                                          " NGX_"),
    (r"^ +#", "directive that does not begin the line"),
)

DIRECTIVE = re.compile(r"#(define|undef|if|ifdef|ifndef|elif|else|endif"
                       r"|error)\b")
INCLUDE = re.compile(r'#include (?:"(\w+\.h)"|<(?:\w+/)?([\w-]+\.h)>)')
OPEN_END = re.compile(r"\b(TODO|FIXME|XXX)\b")

# What files may declare, by their endings.  Bodies are written as "@",
# parentheses as "~", brackets as "$".

TYPE = r"[a-z_]\w*( [a-z_]\w*)*"
NAME = r"(?P<name>[a-z]\w*)"
FORMS = (
    ("static function", ".ch",
     rf"(__attribute__~\n)?static {TYPE}( \*+)?\n{NAME}~\n@"),
    ("static", ".ch", r"static .*;"),
    ("type", ".ch", r"(typedef .*|(struct|union|enum)( \w+)?( @)?);"),
    ("function", ".c", rf"{TYPE}( \*+)?\n{NAME}~\n@"),
    ("object", ".c", rf"(?!extern ){TYPE}\s+\**{NAME}\$*(\s*=[^,]+)?;"),
    ("prototype", ".h", rf"{TYPE}\s+\**{NAME}~;"),
    ("extern", ".h", rf"extern {TYPE}\s+\**{NAME}\$*;"),
)

# the form is None if it is none of these; length: lines of a function's body

Declared = collections.namedtuple("Declared", "form name line length")

ALLOCATORS = re.compile(
    r"(\S+)\s*=\s*(?:\([^()]*\)\s*)?"
    r"(ngx_p?n?c?alloc|ngx_pmemalign|ngx_pstrdup"
    r"|ngx_array_create|ngx_array_push(?:_n)?|ngx_list_create|ngx_list_push"
    r"|ngx_alloc_chain_link|ngx_alloc_buf|ngx_calloc_buf|ngx_create_temp_buf"
    r"|ngx_chain_get_free_buf|ngx_create_pool|ngx_pool_cleanup_add"
    r"|ngx_http_cleanup_add|ngx_slab_c?alloc(?:_locked)?|malloc|calloc"
    r"|realloc|yajl_alloc|yajl_gen_alloc)\(")


def strip(lines):
    """The lines with comments and literals blanked, columns kept."""

    def bare(m):
        text = m.group()
        if text.startswith("/*"):
            return blank(text)
        return text[0] + blank(text[1:-1]) + text[-1]

    return re.sub(r'(?s)/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
                  bare, "\n".join(lines)).split("\n")


def blank(text):
    return re.sub(r"[^\n]", " ", text)


def declarations(name, code):
    """What a file declares at file scope."""

    code = re.sub(r"(?m)^#(.*\\\n)*.*", lambda m: blank(m.group()),
                  "\n".join(code))

    # the marks, from the inside out; NULs keep the places of all else

    text = code
    for inner, mark in ((r"{[^{}]*}", "@"), (r"\([^()]*\)", "~"),
                        (r"\[[^][]*\]", "$")):
        n = 1
        while n:
            text, n = re.subn(inner, lambda m: mark.ljust(len(m.group()), "\0"),
                              text)

    for m in re.finditer(r"[^;\s][^;]*?(~\0*\s*@\0*|;|\Z)|;", text):
        for form, files, pattern in FORMS:
            found = re.fullmatch(pattern, m.group().replace("\0", ""), re.S)
            if found and name[-1] in files:
                break
        else:
            form = found = None
        yield Declared(form, found and found.groupdict().get("name"),
                       code.count("\n", 0, m.start()) + 1,
                       code.count("\n", m.start() + m.group().find("@"),
                                  m.end()) - 1)


def functions(declared):
    return [d for d in declared if d.form and d.form.endswith("function")]


def check_lines(name, lines, code, declared, say):
    for i, (line, bare) in enumerate(zip(lines, code), 1):
        if len(line) > COLUMNS:
            say(i, f"{len(line)} columns, {COLUMNS} are the limit")
        if "\t" in line:
            say(i, "tab")
        if line != line.rstrip():
            say(i, "trailing blank")
        for pattern, text in NOWHERE:
            if re.search(pattern, bare):
                say(i, text)
        if bare.startswith("#") and not DIRECTIVE.match(bare) \
                and not INCLUDE.fullmatch(line):
            say(i, "odd directive: " + line)
        if OPEN_END.search(line):
            say(i, "an open end: " + line.strip())
        if not line.isascii() and "…" not in line and "→" not in line:
            say(i, "not ASCII")
        if re.match(r"\s+} else", bare) and lines[i - 2].strip() \
                and not lines[i - 2].lstrip().startswith("#"):
            say(i, 'no blank line before "} else"')


def check_declarations(name, lines, code, declared, say):
    for d in declared:
        if d.form is None:
            say(d.line, "odd declaration: " + lines[d.line - 1])


def check_sizes(name, lines, code, declared, say):
    for d in functions(declared):
        if d.length > FUNCTION:
            say(d.line, f"{d.name}() has {d.length} lines,"
                        f" {FUNCTION} are the limit")

    # two blank lines, exactly, after a function

    for i, line in enumerate(code[:-1]):
        if line != "}":
            continue
        gap = next((n for n, l in enumerate(lines[i + 1:]) if l), 2)
        if gap != 2 and not lines[i + 1 + gap].startswith("#"):
            say(i + 1, f"{gap} blank lines after a function, not two")


def check_allocations(name, lines, code, declared, say):
    text = "\n".join(code)

    for m in ALLOCATORS.finditer(text):
        # the lines of the statement itself do not count
        statement, _, after = text[m.start():].partition(";")
        after = after.split("\n")[:1 + CHECK_WITHIN]

        # "p == NULL" and "(p = ngx_palloc(pool, size)) == NULL"
        p = re.escape(m.group(1))
        if not re.search(rf"(?<![\w.>]){p}(\s*=[^;]*\))?\s*[!=]=\s*NULL",
                         "\n".join([statement + ";"] + after)):
            say(text.count("\n", 0, m.start()) + 1,
                f"{m.group(2)}() is not checked")


def room(name):
    """The room of a file: its directory in src/, or the module's table."""

    return os.path.dirname(name)[len("src/"):] if name.startswith("src/") \
        else name


def check_places(name, lines, code, declared, say):
    for where, what in PLACES:
        for i, line in enumerate(lines, 1):
            if not name.startswith(where) and re.search(what, line):
                say(i, f"only {' and '.join(where)} may name this:"
                       f" {line.strip()}")


def homes(sources, found):
    """The file of each header, function and object that others may use."""

    home = {}

    for name, (lines, code, declared) in sources.items():
        if room(name) not in LEVEL:
            found.append(f"{name}:1: no room of this name is in the table of"
                         " t/tools/style.py")
        for word in [os.path.basename(name)] + [
                d.name for d in declared if d.form in ("function", "object")]:
            if home.setdefault(word, name) != name:
                found.append(f"{name}:1: {word} is in {home[word]}, too")

    home.pop(OBJECT, None)

    return home


def check_order(sources, found):
    """A room declares what is its own, and includes and names what is of lower
    rooms."""

    home = homes(sources, found)

    for name, (lines, code, declared) in sources.items():
        own = room(name)

        for d in declared:
            if d.form in ("prototype", "extern") and d.name != OBJECT \
                    and room(home.get(d.name, "")) != own:
                found.append(f"{name}:{d.line}: {d.name} is not of {own}")

        for i, (line, bare) in enumerate(zip(lines, code), 1):
            # strip() has blanked the names of headers
            m = bare.startswith("#") and INCLUDE.fullmatch(line)
            for word in m.groups() if m else re.findall(r"\w+", bare):
                other = home.get(word)
                if other is None or room(other) == own:
                    continue
                if LEVEL.get(room(other), -1) >= LEVEL.get(own, len(ORDER)):
                    found.append(f"{name}:{i}: {word} is of {room(other)},"
                                 f" which {own} may not use")


def read(name):
    lines = open(name, encoding="utf-8").read().split("\n")
    if lines and lines[-1] == "":
        lines.pop()

    code = strip(lines)

    return lines, code, list(declarations(name, code))


def main():
    os.chdir(sys.argv[1] if sys.argv[1:] else os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "../.."))

    sources = {name: read(name) for name in
               sorted(glob.glob("src/**/*.[ch]", recursive=True))
               + glob.glob(MODULE)}
    found, notices, lengths, total, external = [], [], [], 0, 0

    for name, (lines, code, declared) in sources.items():
        total += len(lines)
        if len(lines) > FILE:
            notices.append(f"NOTICE: {name} has {len(lines)} lines, {FILE} are"
                           " too long")
        say = lambda line, text: found.append(f"{name}:{line}: {text}")

        for check in (check_lines, check_declarations, check_sizes,
                      check_allocations, check_places):
            check(name, lines, code, declared, say)

        lengths += [d.length for d in functions(declared)]
        external += sum(d.form == "function" for d in declared)

    check_order(sources, found)

    if lengths:
        lengths.sort()
        headers = [name for name in sources if name.endswith(".h")]
        print(f"{len(sources) - len(headers)} sources, {len(headers)} headers"
              f" ({sum('_private' in name for name in headers)} private),"
              f" {total} lines;\n"
              f"{len(lengths)} functions,"
              f" {100 * external // len(lengths)} % ({external}) external:"
              f" median {lengths[len(lengths) // 2]},"
              f" p90 {lengths[int(len(lengths) * .9)]},"
              f" max {lengths[-1]} lines (aim 25, 60, {FUNCTION})")

    print("\n".join(notices + (found or ["style: ok"])))

    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
