"""t/tools/style.py on trees that break a rule, and on some that do not."""

import os
import re
import subprocess
import sys

import pytest

from gateway import ROOT

STYLE = os.path.join(ROOT, "t/tools/style.py")

HEADER = "\nngx_int_t ngx_modelgw_%s(void);\n"
SOURCE = """
#include "%s"


ngx_int_t
%s(void)
{
    return %s;
}
"""


def source(header, name, value="NGX_OK"):
    return SOURCE % (header, name, value)


# declarations of all forms that a source may have

FORMS = """

ngx_modelgw_key_t *
ngx_modelgw_key_many(ngx_int_t a, ngx_int_t b,
%s    ngx_int_t z)
{
    return NULL;
}


ngx_uint_t  ngx_modelgw_key_table[] = { 1, 2 };

static ngx_str_t
    ngx_modelgw_key_names[] =
{
    ngx_string("[{(")
};

typedef struct ngx_modelgw_key_s  ngx_modelgw_key_t;

struct ngx_modelgw_key_s {
    ngx_int_t  (*get)(void);
};

#if (NGX_HAVE_AVX2)

static ngx_uint_t *ngx_modelgw_key_pointer(
    ngx_int_t a);

__attribute__((target("avx2")))
static ngx_inline ngx_uint_t *
ngx_modelgw_key_pointer(ngx_int_t a)
{
    return NULL;
}

#endif
""" % ("    ngx_int_t c,\n" * 9)

# and those that a header may have, too

HEADER_FORMS = """
typedef struct {
    ngx_int_t  n;
} ngx_modelgw_scan_t;

static ngx_uint_t  ngx_modelgw_scan_table[] = { 1 };

static ngx_inline ngx_int_t
ngx_modelgw_scan_one(void)
{
    return 1;
}
"""

GOOD = {
    "src/json/ngx_modelgw_scan.h": HEADER % "scan" + HEADER_FORMS,
    "src/json/ngx_modelgw_scan.c":
        source("ngx_modelgw_scan.h", "ngx_modelgw_scan"),
    "src/key/ngx_modelgw_key.h":
        HEADER % "key" + "extern ngx_uint_t  ngx_modelgw_key_table[];\n",
    "src/key/ngx_modelgw_key.c":
        source("ngx_modelgw_key.h", "ngx_modelgw_key") + FORMS,
    "src/store/ngx_modelgw_store.c":
        source("ngx_modelgw_key.h", "ngx_modelgw_store", "ngx_modelgw_key()"),
    "src/http/ngx_http_modelgw_body.c":
        source("ngx_modelgw_scan.h", "ngx_http_modelgw_body",
               "ngx_modelgw_scan()"),
    "src/http/ngx_http_modelgw.h":
        "\nextern ngx_module_t  ngx_http_modelgw_module;\n",
    "ngx_http_modelgw_module.c":
        source("ngx_modelgw_key.h", "ngx_http_modelgw_init",
               "ngx_http_modelgw_body()")
        + "\n\nngx_module_t  ngx_http_modelgw_module = { 1 };\n",
}

SCAN = "src/json/ngx_modelgw_scan.c"

# a function after those of SCAN; its body begins at line 15

BODY = """

static void
ngx_modelgw_odd(void)
{
%s}
"""


def run(tmp_path, **changes):
    for name, text in dict(GOOD, **changes).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    r = subprocess.run([sys.executable, STYLE, str(tmp_path)], text=True,
                       capture_output=True)
    assert r.stderr == ""
    return r.returncode, r.stdout.splitlines()[2:]


def test_order(tmp_path):
    assert run(tmp_path) == (0, ["style: ok"])


@pytest.mark.parametrize("name,text,said", [
    ("src/answer/ngx_modelgw_text.c",
     source("ngx_modelgw_store.h", "ngx_modelgw_text", "ngx_modelgw_store()"),
     "8: ngx_modelgw_store is of store, which answer may not use"),
    (SCAN, source("ngx_modelgw_key.h", "ngx_modelgw_scan"),
     "2: ngx_modelgw_key.h is of key, which json may not use"),
    (SCAN, source("ngx_modelgw_scan.h", "ngx_modelgw_scan",
                  "ngx_modelgw_key()"),
     "8: ngx_modelgw_key is of key, which json may not use"),
    (SCAN, source("ngx_modelgw_scan.h", "ngx_modelgw_scan",
                  "ngx_modelgw_key_many()"),
     "8: ngx_modelgw_key_many is of key, which json may not use"),
    (SCAN, source("ngx_modelgw_scan.h", "ngx_modelgw_scan",
                  "ngx_modelgw_key_table[0]"),
     "8: ngx_modelgw_key_table is of key, which json may not use"),
    (SCAN, source("ngx_modelgw_scan.h", "ngx_modelgw_scan").replace(
        '"ngx_modelgw_scan.h"', "<ngx_modelgw_key.h>"),
     "2: ngx_modelgw_key.h is of key, which json may not use"),
    ("src/answer/ngx_modelgw_text.h", HEADER % "key",
     "2: ngx_modelgw_key is not of answer"),
    ("src/json/ngx_modelgw_tape.h", HEADER % "tape",
     "2: ngx_modelgw_tape is not of json"),
    ("src/json/ngx_modelgw_tape.h",
     "\nextern ngx_uint_t  ngx_modelgw_tape[];\n",
     "2: ngx_modelgw_tape is not of json"),
    ("src/json/ngx_modelgw_tape.c",
     source("ngx_modelgw_scan.h", "ngx_modelgw_scan"),
     "1: ngx_modelgw_scan is in src/json/ngx_modelgw_scan.c, too"),
    ("src/key/ngx_modelgw_scan.h", "\n",
     "1: ngx_modelgw_scan.h is in src/json/ngx_modelgw_scan.h, too"),
    ("src/http/conf/ngx_http_modelgw_conf.c",
     source("ngx_modelgw_key.h", "ngx_http_modelgw_conf",
            "ngx_http_modelgw_body()"),
     "8: ngx_http_modelgw_body is of http, which http/conf may not use"),
    ("src/http/ngx_http_modelgw_body.c",
     source("ngx_modelgw_scan.h", "ngx_http_modelgw_body",
            "ngx_http_modelgw_init()"),
     "8: ngx_http_modelgw_init is of ngx_http_modelgw_module.c, which http"
     " may not use"),
    ("src/attic/ngx_modelgw_old.c",
     source("ngx_modelgw_scan.h", "ngx_modelgw_old"),
     "1: no room of this name is in the table of t/tools/style.py"),
], ids=["call up", "include across", "call across",
        "call of a function with many parameters", "use of an object",
        "include across, in <>", "declaration of another room's",
        "declaration of none", "extern of none", "function twice",
        "header twice",
        "call to the stages", "call of the module", "no such room"])
def test_arrow(tmp_path, name, text, said):
    assert (1, ["%s:%s" % (name, said)]) == run(tmp_path, **{name: text})


@pytest.mark.parametrize("line", [
    '#include "../key/ngx_modelgw_key.h"',
    "#include <../key/ngx_modelgw_key.h>",
    '#include  "ngx_modelgw_key.h"', '#include"ngx_modelgw_key.h"',
    '#  include "ngx_modelgw_key.h"', '# include "ngx_modelgw_key.h"',
    ' #include "ngx_modelgw_key.h"', '/**/ #include "ngx_modelgw_key.h"',
    '/*\n */#include "ngx_modelgw_key.h"', '#include /**/ "ngx_modelgw_key.h"',
    '#include "ngx_modelgw_key.h" /* why */', '%:include "ngx_modelgw_key.h"',
    '#include \\\n    "ngx_modelgw_key.h"', '#inc\\\nlude "ngx_modelgw_key.h"',
    "#include NGX_MODELGW_KEY_H", '#include_next "ngx_modelgw_key.h"',
    '#import "ngx_modelgw_key.h"', '#include "ngx_modelgw_key.c"',
    '#include "ngx_modelgw_key.inc"',
])
def test_odd_include(tmp_path, line):
    status, out = run(tmp_path, **{SCAN: "\n" + line + GOOD[SCAN]})

    assert status == 1
    assert any(re.search("odd directive|digraph|does not begin the line", said)
               for said in out)


def test_include_in_a_comment(tmp_path):
    text = '/*\n#include "ngx_modelgw_key.h"\n#include it\n */' + GOOD[SCAN]
    assert run(tmp_path, **{SCAN: text}) == (0, ["style: ok"])


@pytest.mark.parametrize("name,text", [
    (SCAN, "ngx_int_t ngx_modelgw_odd(void)\n{\n}\n"),
    (SCAN, "ngx_int_t\nngx_modelgw_odd(void) {\n}\n"),
    (SCAN, "ngx_modelgw_odd(void)\n{\n}\n"),
    (SCAN, "ngx_int_t\nngx_modelgw_odd(a)\n    int a;\n{\n}\n"),
    (SCAN, "ngx_int_t\n(ngx_modelgw_odd)(void)\n{\n}\n"),
    (SCAN, "ngx_int_t\nNGX_ODD(odd)(void)\n{\n}\n"),
    (SCAN, "ngx_int_t\nNGX_ODD(void)\n{\n}\n"),
    (SCAN, "ngx_int_t *(*\nngx_modelgw_odd(void))(void)\n{\n}\n"),
    (SCAN, "static ngx_int_t ngx_modelgw_odd(void)\n{\n}\n"),
    (SCAN, "static ngx_int_t\nngx_modelgw_odd(void) {\n}\n"),
    (SCAN, "NGX_ODD(odd);\n"),
    (SCAN, "NGX_ODD\n"),
    (SCAN, "NGX_ODD ngx_int_t  ngx_modelgw_odd;\n"),
    (SCAN, "ngx_int_t  ngx_modelgw_odd, ngx_modelgw_even;\n"),
    (SCAN, "ngx_int_t  ngx_modelgw_odd = 1, ngx_modelgw_even;\n"),
    (SCAN, "ngx_int_t  (*ngx_modelgw_odd)(void);\n"),
    (SCAN, "struct { int n; }  ngx_modelgw_odd;\n"),
    (SCAN, "ngx_int_t  ngx_modelgw_odd(void);\n"),
    (SCAN, "extern ngx_int_t  ngx_modelgw_odd;\n"),
    (SCAN, "extern ngx_int_t  ngx_modelgw_odd = 1;\n"),
    (SCAN, "__asm__(\"\");\n"),
    (SCAN, "}\n"),
    ("src/json/ngx_modelgw_scan.h", "ngx_int_t\nngx_modelgw_odd(void)\n{\n}\n"),
    ("src/json/ngx_modelgw_scan.h", "ngx_int_t  ngx_modelgw_odd;\n"),
    ("src/json/ngx_modelgw_scan.h",
     "ngx_int_t  ngx_modelgw_odd(void) __asm__(\"even\");\n"),
])
def test_odd_declaration(tmp_path, name, text):
    status, out = run(tmp_path, **{name: GOOD[name] + "\n\n" + text})

    line = GOOD[name].count("\n") + 3
    assert status == 1
    assert out[0].startswith("%s:%d: odd declaration: " % (name, line)), out


@pytest.mark.parametrize("text,said", [
    ("#define call(name)  ngx_modelgw_ ## name()\n",
     "12: ## after what does not begin with NGX_"),
    ("#define call(name)  ngx_modelgw_##name()\n",
     "12: ## after what does not begin with NGX_"),
    ("#define CALL  ngx_modelgw_k\\\ney()\n",
     "12: no blank before the backslash"),
    ("#define CALL  <% 0; %>\n", "12: digraph"),
    ("#define CALL  0  // no\n", "12: // comment"),
    ("static char  *text = \"a \\\nb\";\n#define x  if(y)\n",
     "14: no blank after the keyword"),
    ("#define x  for(;;)\n", "12: no blank after the keyword"),
    ("#define x  while(y)\n", "12: no blank after the keyword"),
    ("#define x  switch(y)\n", "12: no blank after the keyword"),
    ("/* %s */\n" % ("x" * 75), "12: 81 columns, 80 are the limit"),
    ("/*\t*/\n", "12: tab"),
    ("/* */ \n", "12: trailing blank"),
    ("/* TODO */\n", "12: an open end: /* TODO */"),
    ("/* FIXME */\n", "12: an open end: /* FIXME */"),
    ("/* XXX */\n", "12: an open end: /* XXX */"),
    ("/* \u00e9 */\n", "12: not ASCII"),
    (BODY[2:] % "    if (x) {\n        ;\n    } else {\n    }\n",
     '17: no blank line before "} else"'),
    (BODY[2:] % "" + "static int  n;\n",
     "15: 0 blank lines after a function, not two"),
    (BODY[2:] % "" + "\n\n\nstatic int  n;\n",
     "15: 3 blank lines after a function, not two"),
])
def test_odd_line(tmp_path, text, said):
    assert (1, ["%s:%s" % (SCAN, said)]) \
        == run(tmp_path, **{SCAN: GOOD[SCAN] + "\n\n" + text})


@pytest.mark.parametrize("text", [
    "#define call(name)  NGX_MODELGW_##name##_TYPE, NGX_ ## name\n",
    "#ifdef A\n#undef A\n#elif B\n#else\n#error no\n#endif\n"
    "#ifndef A\n#endif\n",
    "\n\n/* %s */\n" % ("x" * 74),
    "\n\n/* \u2026 */\n/* \u2192 */\n",
    BODY % "    if (x) {\n        ;\n\n    } else {\n    }\n",
    BODY % "    if (x) {\n#if (A)\n        ;\n#endif\n    } else {\n    }\n",
    BODY % "" + "\n#define A\n",
], ids=["joined constants", "directives", "80 columns", "signs", "else",
        "else after a directive", "directive after a function"])
def test_allowed(tmp_path, text):
    assert run(tmp_path, **{SCAN: GOOD[SCAN] + text}) == (0, ["style: ok"])


@pytest.mark.parametrize("call", [
    "ngx_alloc", "ngx_calloc", "ngx_palloc", "ngx_pnalloc", "ngx_pcalloc",
    "ngx_pmemalign", "ngx_pstrdup", "ngx_array_create", "ngx_array_push",
    "ngx_array_push_n", "ngx_list_create", "ngx_list_push",
    "ngx_alloc_chain_link", "ngx_alloc_buf", "ngx_calloc_buf",
    "ngx_create_temp_buf", "ngx_chain_get_free_buf", "ngx_create_pool",
    "ngx_pool_cleanup_add", "ngx_slab_alloc", "ngx_slab_calloc",
    "ngx_slab_alloc_locked", "ngx_slab_calloc_locked", "malloc", "calloc",
    "realloc", "yajl_alloc", "yajl_gen_alloc", "ngx_http_cleanup_add",
])
def test_allocator(tmp_path, call):
    name = "src/http/ngx_http_modelgw_ctx.c" if "_http_" in call \
        else "src/json/ngx_modelgw_document.c"
    text = BODY % ("    p = %s(size);\n" % call)
    assert run(tmp_path, **{name: text}) \
        == (1, [name + ":6: %s() is not checked" % call])


ALLOC = "p = ngx_palloc(pool, size)"
@pytest.mark.parametrize("lines,checked", [
    ("%s;\nif (p == NULL) {\n}" % ALLOC, True),
    ("%s;\nif (p != NULL) {\n}" % ALLOC, True),
    ("%s;\n;\n;\nif (p == NULL) {\n}" % ALLOC, True),
    ("%s;\n;\n;\n;\nif (p == NULL) {\n}" % ALLOC, False),
    ("if ((%s) == NULL) {\n}" % ALLOC, True),
    ("if ((p = ngx_palloc(pool,\n    1)) == NULL)\n{\n}", True),
    ("if ((%s)) {\n    q = p;\n}" % ALLOC, False),
    ("%s;\nif (q == NULL) {\n}" % ALLOC, False),
    ("%s;\nif (up == NULL || q->p == NULL || q.p == NULL) {\n}" % ALLOC,
     False),
    ("%s;\np = q;\n/* p == NULL */" % ALLOC, False),
    ("*%s;\nif (*p == NULL) {\n}" % ALLOC, True),
    ("*%s;\nif (p == NULL) {\n}" % ALLOC, False),
    ("q->%s;\nif (q->p == NULL) {\n}" % ALLOC, True),
    ("q->%s;\nif (p == NULL) {\n}" % ALLOC, False),
    ("p = (u_char *) ngx_palloc(pool, size);", False),
    ("p =\n    ngx_palloc(pool, size);", False),
    ("p =\n    ngx_palloc(pool,\n    1\n    + 2\n    + 3);\n"
     "if (p == NULL) {\n}", True),
])
def test_allocation(tmp_path, lines, checked):
    text = GOOD[SCAN] + BODY % re.sub("(?m)^", "    ", lines + "\n")[:-4]
    assert run(tmp_path, **{SCAN: text}) \
        == ((0, ["style: ok"]) if checked else
            (1, [SCAN + ":15: ngx_palloc() is not checked"]))


@pytest.mark.parametrize("name", ["ngx_modelgw_odd", "static ngx_modelgw_odd"])
def test_function_size(tmp_path, name):
    head = "\n\n%sngx_int_t\nngx_modelgw_odd(void)\n{\n" \
        % name[:-len("ngx_modelgw_odd")]
    text = GOOD[SCAN] + head + "    ;\n" * 100 + "}\n"
    assert run(tmp_path, **{SCAN: text}) == (0, ["style: ok"])

    text = GOOD[SCAN] + head + "    ;\n" * 101 + "}\n"
    assert run(tmp_path, **{SCAN: text}) \
        == (1, [SCAN + ":12: ngx_modelgw_odd() has 101 lines, 100 are the"
                " limit"])


HTTP = "src/http/ and ngx_http_modelgw_module.c"
CLOCK = HTTP + " and src/ledger/ngx_modelgw_ledger.c and" \
    " src/pq/ngx_modelgw_pq.c"
@pytest.mark.parametrize("line,where", [
    ("#include <ngx_http.h>", HTTP),
    ("#include <ngx_event.h>", HTTP),
    ("/* ngx_event_add_timer() */", HTTP),
    ("/* ngx_add_timer(ev, 1) */", HTTP),
    ("/* NGX_HTTP_OK */", HTTP),
    ("/* ngx_log_t */", HTTP),
    ("/* NGX_LOG_ALERT */", HTTP),
    ("/* ngx_cycle */", HTTP),
    ("/* ngx_timeofday() */", HTTP),
    ("/* ngx_time() */", HTTP),
    ("/* ngx_current_msec */", HTTP),
    ("/* ngx_cached_time */", HTTP),
    ("/* time(NULL) */", HTTP),
    ("/* gettimeofday(&tv, NULL) */", HTTP),
    ("/* localtime(&t) */", HTTP),
    ("/* localtime_r(&t, &tm) */", HTTP),
    ("/* ngx_random() */", HTTP),
    ("/* random() */", HTTP),
    ("/* srandom(1) */", HTTP),
    ("/* rand() */", HTTP),
    ("/* srand(1) */", HTTP),
    ("/* getrandom(p, 1, 0) */", HTTP),
    ("/* getpid() */", HTTP),
    ("/* ngx_connection_t */", HTTP),
    ("/* ngx_pid */", HTTP),
    ("/* ngx_worker */", HTTP),
    ("/* clock_gettime() */", CLOCK),
    ("#include <yajl/yajl_parse.h>", "src/json/ngx_modelgw_document.c"),
    ("/* yajl_alloc() */", "src/json/ngx_modelgw_document.c"),
    ("#include <sqlite3.h>", "src/store/"),
    ("/* sqlite3_open() */", "src/store/"),
    ("#include <libpq-fe.h>", "src/pq/"),
    ("/* PQexec() */", "src/pq/"),
    ("/* PGRES_TUPLES_OK */", "src/pq/"),
    ("#include <openssl/evp.h>", "src/key/ngx_modelgw_key.c"),
    ("/* EVP_DigestInit() */", "src/key/ngx_modelgw_key.c"),
    ("/* SHA256(p) */", "src/key/ngx_modelgw_key.c"),
    ("/* SHA256_Init() */", "src/key/ngx_modelgw_key.c"),
    ("/* CRYPTO_memcmp() */", "src/key/ngx_modelgw_key.c"),
    ("/* RAND_bytes() */", "src/key/ngx_modelgw_key.c"),
    ("/* OPENSSL_cleanse() */", "src/key/ngx_modelgw_key.c"),
    ("/* SSL_read() */", "src/key/ngx_modelgw_key.c"),
])
def test_places(tmp_path, line, where):
    assert run(tmp_path, **{SCAN: line + "\n" + GOOD[SCAN]}) \
        == (1, ["%s:1: only %s may name this: %s" % (SCAN, where, line)])

    for place in where.split(" and "):
        name = place + "ngx_x.c" if place.endswith("/") else place
        text = line + "\n" + GOOD.get(name, "")
        assert run(tmp_path, **{name: text}) == (0, ["style: ok"])
