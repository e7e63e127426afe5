"""The house rules that a program can check, for src/ and the module's table.

usage: t/tools/style.py [DIR]      the tree to check, this one by default

nginx has no formatter that knows its style, so this checks and never rewrites:
columns, blanks, comments, sizes, unchecked allocations, the order of the rooms.
It reads lines, not C: it relies on the style itself, where a function begins
with "{" and ends with "}" in the first column.
"""

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
ORDER = (("json", "key"),
         ("answer",),
         ("error", "ledger", "translate"),
         ("store",),
         ("http/conf",),
         ("http/zone",),
         ("http",),
         ("http/admin",),
         (MODULE,))
LEVEL = {room: level for level, row in enumerate(ORDER) for room in row}

# what only rooms below src/http/ may name

FLOOR1 = re.compile(r"ngx_http|ngx_event|ngx_current_msec|ngx_time\(")

INCLUDE = re.compile(r'#include "(\w+\.h)"')
DEFINED = re.compile(r"(\w+)\(")
STATIC = re.compile(r"(?m)^static\b[^(={;]*?(\w+)(?=\(|\[| =|;)")
OPEN_END = re.compile(r"\b(TODO|FIXME|XXX)\b")

ALLOCATORS = re.compile(
    r"(\S+)\s*=\s*(?:\([^()]*\)\s*)?"
    r"(ngx_p?n?c?alloc|ngx_pmemalign|ngx_palloc|ngx_pnalloc|ngx_pcalloc"
    r"|ngx_array_create|ngx_array_push(?:_n)?|ngx_list_create|ngx_list_push"
    r"|ngx_alloc_chain_link|ngx_alloc_buf|ngx_calloc_buf|ngx_create_temp_buf"
    r"|ngx_chain_get_free_buf|ngx_create_pool|ngx_pool_cleanup_add"
    r"|ngx_http_cleanup_add|ngx_slab_c?alloc(?:_locked)?|malloc|calloc"
    r"|realloc|yajl_alloc|yajl_gen_alloc)\(")


def strip(lines):
    """The lines with comments and literals blanked, columns kept."""

    text = "\n".join(lines)
    blank = lambda m: re.sub(r"[^\n]", " ", m.group())
    quoted = lambda m: m.group()[0] + " " * (len(m.group()) - 2) \
        + m.group()[-1]

    out, last = [], 0
    for m in re.finditer(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
                         text, re.S):
        out.append(text[last:m.start()])
        out.append((blank if m.group().startswith("/*") else quoted)(m))
        last = m.end()
    out.append(text[last:])

    return "".join(out).split("\n")


def functions(lines):
    """(line of the "{", name, lines inside) of each function."""

    start, found = None, []

    for i, line in enumerate(lines):
        if line == "{":
            start = i
        elif line == "}" and start is not None:
            name = "?"
            for above in reversed(lines[max(0, start - 8):start]):
                m = re.match(r"(\w+)\(", above)
                if m:
                    name = m.group(1)
                    break
            found.append((start, name, i - start - 1))
            start = None

    return found


def check_lines(name, lines, code, say):
    for i, (line, bare) in enumerate(zip(lines, code), 1):
        if len(line) > COLUMNS:
            say(i, f"{len(line)} columns, {COLUMNS} are the limit")
        if "\t" in line:
            say(i, "tab")
        if line != line.rstrip():
            say(i, "trailing blank")
        if "//" in bare:
            say(i, "// comment")
        if OPEN_END.search(line):
            say(i, "an open end: " + line.strip())
        if not line.isascii() and "…" not in line and "→" not in line:
            say(i, "not ASCII")
        if re.search(r"\b(if|for|while|switch)\(", bare):
            say(i, "no blank after the keyword")
        if re.match(r"\s+} else", bare) and lines[i - 2].strip() \
                and not lines[i - 2].lstrip().startswith("#"):
            say(i, 'no blank line before "} else"')


def check_sizes(name, lines, code, say):
    for start, function, length in functions(code):
        if length > FUNCTION:
            say(start, f"{function}() has {length} lines,"
                       f" {FUNCTION} are the limit")

    # two blank lines, exactly, after a function

    for i, line in enumerate(code[:-1]):
        if line != "}":
            continue
        gap = next((n for n, l in enumerate(lines[i + 1:]) if l), 2)
        if gap != 2 and not lines[i + 1 + gap].startswith("#"):
            say(i + 1, f"{gap} blank lines after a function, not two")


def check_allocations(name, lines, code, say):
    for i, line in enumerate(code):
        # a call may be broken after "=": look at it as one line
        whole = line.rstrip()
        if whole.endswith("=") and i + 1 < len(code):
            whole += " " + code[i + 1].strip()
        m = ALLOCATORS.search(whole)
        if not m:
            continue

        # the lines of the statement itself do not count
        end = i
        while end < len(code) and ";" not in code[end] \
                and "NULL)" not in code[end]:
            end += 1
        after = " ".join(code[i:end + 1 + CHECK_WITHIN])
        name_ = re.escape(m.group(1).lstrip("*("))
        if not re.search(rf"{name_}\)?\s*==\s*NULL|==\s*NULL|!=\s*NULL",
                         after):
            say(i + 1, f"{m.group(2)}() is not checked")


def room(name):
    """The room of a file: its directory in src/, or the module's table."""

    return os.path.dirname(name)[len("src/"):] if name.startswith("src/") \
        else name


def check_floor(name, lines, code, say):
    if name.startswith("src/http/") or name == MODULE:
        return

    for i, line in enumerate(lines, 1):
        if FLOOR1.search(line):
            say(i, "only src/http/ may name this: " + line.strip())


def external(lines, code):
    """The names of the functions that other files can call."""

    for start, function, _ in functions(code):
        above = start - 1
        while above > 0 and not DEFINED.match(code[above]):
            above -= 1
        if not re.match(r"static\b", code[above - 1]):
            yield function


def check_order(sources, found):
    """Includes and calls lead to lower rooms; the number of external
    functions."""

    defined, home = {}, {}

    for name, (lines, code) in sources.items():
        if room(name) not in LEVEL:
            found.append(f"{name}:1: no room of this name is in the table of"
                         " t/tools/style.py")
        home[os.path.basename(name)] = name
        if name.endswith(".c"):
            defined.update(dict.fromkeys(external(lines, code), name))

    for name, (lines, code) in sources.items():
        own = room(name)
        local = set(STATIC.findall("\n".join(code)))
        for i, (line, bare) in enumerate(zip(lines, code), 1):
            # strip() has blanked the names of headers
            names = INCLUDE.findall(line) or re.findall(r"\w+", bare)
            for word in names:
                other = home.get(word) or defined.get(word)
                if other is None or room(other) == own or word in local:
                    continue
                if LEVEL.get(room(other), -1) >= LEVEL.get(own, len(ORDER)):
                    found.append(f"{name}:{i}: {word} is of {room(other)},"
                                 f" which {own} may not use")

    return len(defined)


def read(name):
    lines = open(name, encoding="utf-8").read().split("\n")
    if lines and lines[-1] == "":
        lines.pop()

    return lines, strip(lines)


def main():
    os.chdir(sys.argv[1] if sys.argv[1:] else os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "../.."))

    sources = {name: read(name) for name in
               sorted(glob.glob("src/**/*.[ch]", recursive=True))
               + glob.glob(MODULE)}
    found, notices, lengths, total = [], [], [], 0

    for name, (lines, code) in sources.items():
        total += len(lines)
        if len(lines) > FILE:
            notices.append(f"NOTICE: {name} has {len(lines)} lines, {FILE} are"
                           " too long")
        say = lambda line, text: found.append(f"{name}:{line}: {text}")

        for check in (check_lines, check_sizes, check_allocations,
                      check_floor):
            check(name, lines, code, say)

        lengths += [n for _, _, n in functions(code)]

    others = check_order(sources, found)

    if lengths:
        lengths.sort()
        headers = [name for name in sources if name.endswith(".h")]
        print(f"{len(sources) - len(headers)} sources, {len(headers)} headers"
              f" ({sum('_private' in name for name in headers)} private),"
              f" {total} lines;\n"
              f"{len(lengths)} functions,"
              f" {100 * others // len(lengths)} % ({others}) external:"
              f" median {lengths[len(lengths) // 2]},"
              f" p90 {lengths[int(len(lengths) * .9)]},"
              f" max {lengths[-1]} lines (aim 25, 60, {FUNCTION})")

    print("\n".join(notices + (found or ["style: ok"])))

    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
