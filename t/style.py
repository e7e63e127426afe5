"""The house rules that a program can see, for src/ and the module's table.

usage: t/style.py [file...]      all of the product's C without arguments

nginx has no formatter that knows its style, so this checks and never rewrites:
columns, blanks, comments, sizes, the floors, unchecked allocations.  It reads
lines, not C: it relies on the style itself, where a function begins with "{"
and ends with "}" in the first column.
"""

import glob
import os
import re
import sys

COLUMNS = 80
FUNCTION = 100          # lines
FILE, FILE_MAX = 500, 520
CHECK_WITHIN = 3        # lines from an allocation to its "== NULL"

FLOOR1 = re.compile(r"ngx_http|ngx_event|ngx_current_msec|ngx_time\(")
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
    if len(lines) > FILE_MAX:
        say(len(lines), f"{len(lines)} lines, {FILE} are the limit")

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

        # the statement's own lines do not count
        end = i
        while end < len(code) and ";" not in code[end] \
                and "NULL)" not in code[end]:
            end += 1
        after = " ".join(code[i:end + 1 + CHECK_WITHIN])
        name_ = re.escape(m.group(1).lstrip("*("))
        if not re.search(rf"{name_}\)?\s*==\s*NULL|==\s*NULL|!=\s*NULL",
                         after):
            say(i + 1, f"{m.group(2)}() is not checked")


def check_floor(name, lines, code, say):
    if not name.startswith("src/") or name.startswith("src/http/"):
        return

    for i, line in enumerate(lines, 1):
        if FLOOR1.search(line):
            say(i, "floor 0 reaches up: " + line.strip())


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

    files = sys.argv[1:] or sorted(glob.glob("src/*/**/*.[ch]", recursive=True)) \
        + glob.glob("ngx_http_modelgw_module.c")
    found, lengths, total = [], [], 0

    for name in files:
        lines = open(name, encoding="utf-8").read().split("\n")
        if lines and lines[-1] == "":
            lines.pop()
        total += len(lines)
        code = strip(lines)
        say = lambda line, text: found.append(f"{name}:{line}: {text}")

        for check in (check_lines, check_sizes, check_allocations,
                      check_floor):
            check(name, lines, code, say)

        lengths += [n for _, _, n in functions(code)]

    if lengths:
        lengths.sort()
        print(f"{len(files)} files, {total} lines,"
              f" {len(lengths)} functions:"
              f" median {lengths[len(lengths) // 2]},"
              f" p90 {lengths[int(len(lengths) * .9)]},"
              f" max {lengths[-1]} lines (aim 25, 60, {FUNCTION})")

    print("\n".join(found) if found else "style: ok")

    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
