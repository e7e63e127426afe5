"""What the product is made of."""

import re
import subprocess

import pytest

import gateway as lib


@pytest.mark.skipif(not lib.MODULE, reason="the module is linked statically")
def test_K12_libraries():
    """Nothing is loaded at run time but libc, OpenSSL and yajl."""
    out = subprocess.run(["readelf", "-d", lib.MODULE], check=True,
                         capture_output=True, text=True).stdout
    needed = re.findall(r"NEEDED.*\[(.*?)\.so", out)
    assert set(needed) <= {"libc", "libcrypto", "libsqlite3", "libyajl"}, needed


@pytest.mark.skipif(not lib.MODULE, reason="the module is linked statically")
def test_symbols_have_the_prefix():
    """Dynamic modules share one name space (RTLD_GLOBAL)."""
    out = subprocess.run(["nm", "-D", "--defined-only", lib.MODULE],
                         check=True, capture_output=True, text=True).stdout
    names = [line.split()[-1] for line in out.splitlines()]
    strange = [n for n in names
               if not n.startswith(("ngx_modelgw_", "ngx_http_modelgw_"))
               and n not in ("ngx_modules", "ngx_module_names",
                             "ngx_module_order", "_init", "_fini")]
    assert names and not strange, strange
