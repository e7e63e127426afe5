"""The build and its artifacts."""

import os
import re
import subprocess

import pytest

import gateway as lib
from config_check import ROOT


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
    unprefixed = [n for n in names
                  if not n.startswith(("ngx_modelgw_", "ngx_http_modelgw_"))
                  and n not in ("ngx_modules", "ngx_module_names",
                                "ngx_module_order", "_init", "_fini")]
    assert names and not unprefixed, unprefixed


def make(build, tree):
    """Its output, without errors of other programs."""
    env = {name: value for name, value in os.environ.items()
           if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    p = subprocess.run(["make", "module", "BUILD=%s" % build,
                        "NGINX_SRC=%s" % tree], cwd=ROOT, env=env, text=True,
                       capture_output=True, timeout=60)
    return p.returncode, p.stdout


def test_another_nginx_tree(tmp_path):
    """The module is built for it, also if its files are older than the module;
    a directory that is not an nginx tree is refused."""
    build = tmp_path / "build"
    for name in "ab":
        tree = tmp_path / name
        (tree / "auto").mkdir(parents=True)
        (tree / "src/core").mkdir(parents=True)
        (tree / "src/core/nginx.h").touch()
        os.utime(tree / "src/core/nginx.h", (0, 0))
        (tree / "configure").write_text(
            "#!/bin/sh\nmkdir objs && printf 'modules:\\n\\t@echo %s "
            "> objs/ngx_http_modelgw_module.so\\n' > objs/Makefile\n" % name)
        (tree / "configure").chmod(0o755)

    for name in "abba":
        rc, out = make(build, tmp_path / name)
        assert rc == 0, out
        assert (build / "ngx_http_modelgw_module.so").read_text() == name + "\n"
    assert make(build, tmp_path / "a") == (0, "")

    rc, out = make(build, tmp_path / "none")
    assert rc != 0 and "none is not an nginx source tree" in out
