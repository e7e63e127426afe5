"""Allocations of the module that fail, by t/credit/memory.c."""

import contextlib
import os
import struct

import pytest

import gateway as lib

MODULE = os.environ.get("MODELGW_MODULE_MEMORY",
                        os.path.join(lib.ROOT, "build/memory.so"))

skip = pytest.mark.skipif(
    lib.ASAN or not lib.MODULE or not os.path.exists(MODULE)
    or os.path.dirname(lib.MODULE) != os.path.dirname(MODULE),
    reason="the module is built for the packaged nginx only")


class Memory:
    """Which allocation fails, 0 for none, and how many there were."""

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as f:
            f.write(bytes(16))

    def fail(self, n):
        with open(self.path, "r+b") as f:
            f.write(struct.pack("=QQ", n, 0))

    def count(self):
        with open(self.path, "rb") as f:
            return struct.unpack("=QQ", f.read())[1]


@contextlib.contextmanager
def altered(memory):
    """Gateways that are started have the module with memory.c."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lib, "MODULE", MODULE)
        patch.setenv("MODELGW_MEMORY", memory.path)
        yield
