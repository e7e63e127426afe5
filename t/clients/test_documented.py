"""The blocks of docs/clients.md: each is run as it is there, where its package
is installed; sdk/documented.py runs them without any network."""

import importlib.util
import os
import re
import shutil
import sys

import pytest

from gateway import ROOT
from sdk import alone
from sdk.documented import ANSWER
from sdk.node import NPM

PATH = [os.path.dirname(sys.executable), os.path.join(NPM, ".bin")]


def read():
    """name: blocks, [language, file or null, text]."""
    with open(os.path.join(ROOT, "docs/clients.md")) as f:
        text = f.read()
    parts = re.split(r"(?m)^##+ (.*)\n", text)
    clients = {name: [list(block) for block in re.findall(
        r"(?ms)(?:^`(~/[^`]*)`:\n\n)?^```(\w+)\n(.*?)^```$", part)]
        for name, part in zip(parts[1::2], parts[2::2])}
    return {name: [[language, file or None, block]
                   for file, language, block in blocks]
            for name, blocks in clients.items() if blocks}


CLIENTS = read()


def lacks(blocks):
    """The first package or program that is not installed."""
    for language, file, block in blocks:
        if language == "python":
            names = re.findall(r"(?m)^(?:from|import) (\w+)", block)
            found = [importlib.util.find_spec(name) for name in names]
        elif language == "js":
            names = re.findall(r'from "(.*)"', block) + ["node"]
            found = [os.path.isdir(os.path.join(NPM, name)) for name in names]
        elif language == "sh":
            names = re.findall(r"(?m)^([a-z]+) -|^([a-z]+) run", block)
            names = [a or b for a, b in names]
            found = [shutil.which(name, path=":".join(
                PATH + [os.environ["PATH"]])) for name in names]
        else:
            continue
        for name, there in zip(names, found):
            if not there:
                return name
    return None


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    def play(directory):
        return alone.play("documented.py", dir=directory, path=PATH, npm=NPM,
                          clients={name: blocks for name, blocks in
                                   CLIENTS.items() if not lacks(blocks)})

    return alone.once(tmp_path_factory, "documented", play)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CLIENTS)
def test_block(played, name):
    if lacks(CLIENTS[name]):
        pytest.skip("NOTICE: not installed: " + lacks(CLIENTS[name]))
    results = played["clients"][name]
    assert results
    for r in results:
        assert r["status"] == 0 and ANSWER in r["out"], r


def test_upstream_has_no_complaint(played):
    assert played["refused"] == []


def test_blocks():
    """Each language has some; files have a program beside them."""
    assert len(CLIENTS) >= 12
    for name, blocks in CLIENTS.items():
        assert [1 for language, file, _ in blocks if not file], name
        assert all(file or language in ("sh", "python", "js")
                   for language, file, _ in blocks), name
