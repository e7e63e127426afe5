"""t/tools/style.py on trees that break the order of the rooms, and on one that
does not."""

import os
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


GOOD = {
    "src/json/ngx_modelgw_scan.h": HEADER % "scan",
    "src/json/ngx_modelgw_scan.c":
        source("ngx_modelgw_scan.h", "ngx_modelgw_scan"),
    "src/key/ngx_modelgw_key.h": HEADER % "key",
    "src/key/ngx_modelgw_key.c":
        source("ngx_modelgw_key.h", "ngx_modelgw_key"),
    "src/store/ngx_modelgw_store.c":
        source("ngx_modelgw_key.h", "ngx_modelgw_store", "ngx_modelgw_key()"),
    "src/http/ngx_http_modelgw_body.c":
        source("ngx_modelgw_scan.h", "ngx_http_modelgw_body",
               "ngx_modelgw_scan()"),
    "ngx_http_modelgw_module.c":
        source("ngx_modelgw_key.h", "ngx_http_modelgw_init",
               "ngx_http_modelgw_body()"),
}

SCAN = "src/json/ngx_modelgw_scan.c"


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
], ids=["call up", "include across", "call across", "call to the stages",
        "call of the module", "no such room"])
def test_arrow(tmp_path, name, text, said):
    assert (1, ["%s:%s" % (name, said)]) == run(tmp_path, **{name: text})


@pytest.mark.parametrize("line,said", [
    ("#include <ngx_http.h>", "only src/http/ may name this"),
    ("/* ngx_event_add_timer() */", "only src/http/ may name this"),
])
def test_floor(tmp_path, line, said):
    status, out = run(tmp_path, **{SCAN: line + "\n" + GOOD[SCAN]})

    assert status == 1 and len(out) == 1
    assert out[0].startswith("%s:1: " % SCAN) and said in out[0]
