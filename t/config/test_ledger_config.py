"""nginx -t: the zone, the ledger, founding credit, and what models need with
them."""

import hashlib
import os
import sqlite3

import pytest

from config_check import Config, key
from gateway import ended_cpu

GROUP = """
    protocol    messages;
    family      fam-a-;
    upstream    http://api.vendor-a.test;
    credential  x-api-key file:a.secret;
    %s
"""

GROUP_B = """
    protocol    chat;
    family      fam-b- code-;
    upstream    http://api.vendor-b.test;
    credential  Authorization file:a.secret bearer;
    %s
"""

MODEL = "model fam-a-large large-1 input=3 output=15 max_output=4096;"
MODEL_B = "model fam-b-one one-1 free;"

LEDGER = "modelgw_ledger ledger.db;"


@pytest.fixture
def conf(tmp_path):
    return Config(tmp_path)


def parts(model=MODEL, model_b=MODEL_B, http=LEDGER, **more):
    return dict(more, group=GROUP % model, group_b=GROUP_B % model_b,
                http=http)


def keys(n, options="", account=None):
    return "\n".join(key("k%d" % i, options=options
                         + (" account=" + account(i) if account else ""))
                     for i in range(n))


# modelgw_ledger

@pytest.mark.parametrize("options", [
    "", "flush=1ms", "flush=1s", "flush=20ms keep=1d", "keep=365d flush=5ms",
    "keep=24h"])
def test_ledger(conf, options):
    conf.accepted(**parts(http="modelgw_ledger ledger.db %s;" % options))


@pytest.mark.parametrize("option", [
    "flush=0", "flush=0ms", "flush=1001ms", "flush=2s", "flush=", "flush=x",
    "flush=-1ms", "keep=", "keep=23h", "keep=0", "keep=x", "keep=-1d"])
def test_ledger_option_invalid(conf, option):
    conf.refused('invalid option "%s"' % option, "it takes a time", **parts(
        http="modelgw_ledger ledger.db %s; # HERE" % option))


@pytest.mark.parametrize("option", ["sync=on", "flush", "Flush=5ms", "keep",
                                    "flushx=1", '""'])
def test_ledger_option_unknown(conf, option):
    conf.refused('unknown option "%s"' % option.strip('"'),
                 "it takes: flush= keep= in", **parts(
        http="modelgw_ledger ledger.db %s; # HERE" % option))


@pytest.mark.parametrize("options", ["flush=5ms flush=5ms", "keep=1d keep=2d"])
def test_ledger_option_duplicate(conf, options):
    conf.refused('duplicate option "%s"' % options.split()[1], **parts(
        http="modelgw_ledger ledger.db %s; # HERE" % options))


@pytest.mark.parametrize("line", [LEDGER, "modelgw_founding_credit 1;"])
def test_duplicate(conf, line):
    http = "modelgw_ledger ledger.db;\n" if "founding" in line else ""
    conf.refused("is duplicate", **parts(http=http + line + "\n" + line
                                         + " # HERE"))


@pytest.mark.parametrize("line", [
    "modelgw_ledger;", 'modelgw_ledger "";',
    "modelgw_ledger ledger.db flush=5ms keep=90d x;",
    "modelgw_founding_credit;", "modelgw_founding_credit 1 2;"])
def test_arguments(conf, line):
    conf.refused(line.split()[0].strip(";"), **parts(http=line + " # HERE"))


def test_ledger_without_keys(conf):
    conf.accepted(**parts(keys=False, enable="", location=""))


# the file

def test_nothing_is_made(conf):
    before = sorted(os.listdir(conf.dir))
    conf.accepted(**parts())
    made = set(os.listdir(conf.dir)) - set(before)
    assert not [name for name in made if name.startswith("ledger")], made


def test_relative_path(conf):
    """It is relative to the prefix, as other files of nginx are."""
    os.mkdir(conf.path("sub"))
    conf.accepted(**parts(http="modelgw_ledger sub/ledger.db;"))
    conf.refused("/none", place=False, **parts(
        http="modelgw_ledger none/ledger.db;"))


def test_not_a_ledger(conf):
    conf.write("ledger.db", "a text that is no database\n" * 100)
    conf.refused("modelgw_ledger", "ledger.db", place=False, **parts())


def test_another_database(conf):
    db = sqlite3.connect(conf.path("ledger.db"))
    db.execute("CREATE TABLE mine (x)")
    db.commit()
    db.close()
    with open(conf.path("ledger.db"), "rb") as f:
        before = f.read()
    conf.refused("modelgw_ledger", "ledger.db", place=False, **parts())
    with open(conf.path("ledger.db"), "rb") as f:
        assert f.read() == before


def test_directory(conf):
    os.mkdir(conf.path("ledger.db"))
    conf.refused("modelgw_ledger", "ledger.db", place=False, **parts())


# modelgw_founding_credit

@pytest.mark.parametrize("amount", ["0", "1", "0.50", "0.000000001",
                                    "999999999", "999999998.999999999"])
def test_founding(conf, amount):
    conf.accepted(**parts(http=LEDGER + "modelgw_founding_credit %s;" % amount))


@pytest.mark.parametrize("amount", ["-1", "+1", "1e3", "1,50", ".5", "1.",
                                    "1000000000", "999999999.000000001",
                                    "0.0000000001", "1eur", "x", '""'])
def test_founding_invalid(conf, amount):
    conf.refused("invalid founding credit", '"%s"' % amount.strip('"'), **parts(
        http=LEDGER + "\nmodelgw_founding_credit %s; # HERE" % amount))


@pytest.mark.parametrize("amount", ["1", "0"])
def test_founding_without_ledger(conf, amount):
    conf.refused("modelgw_founding_credit", 'no "modelgw_ledger"', **parts(
        http="modelgw_founding_credit %s; # HERE" % amount))


# models

@pytest.mark.parametrize("line", [
    "model fam-a-x x; # HERE",
    "model fam-a-x x max_output=10; # HERE",
    MODEL + "\nmodel fam-a-x x context=10; # HERE"])
def test_model_without_prices(conf, line):
    conf.refused('model "fam-a-x"', "no prices", "input=", "free",
                 **parts(model=line))


def test_model_without_bound(conf):
    conf.refused('model "fam-a-x"', "no bound", "max_output=", "context=",
                 **parts(model="model fam-a-x x input=1 output=2; # HERE"))


@pytest.mark.parametrize("line", [
    "model fam-a-x x free;",
    "model fam-a-x x input=1 output=2 context=1000;",
    "model fam-a-x x input=0 output=0 max_output=1000;"])
def test_model_good(conf, line):
    conf.accepted(**parts(model=line))


@pytest.mark.parametrize("options, words", [
    ("", "no prices"), ("input=1 output=2", "no bound")])
def test_pattern(conf, options, words):
    conf.refused('model "~^code-', words, **parts(
        model_b="model ~^code-(.+)$ $1 %s; # HERE" % options))


def test_without_ledger_nothing_is_asked(conf):
    conf.accepted(**parts(model="model fam-a-x x;", http="",
                          model_b="model ~^code-(.+)$ $1;"))


# modelgw_zone

def least(conf, low, **kw):
    """The minimum size in k, from the error message."""
    text = conf.refused("zone too small", '"modelgw_zone" of %dk' % low,
                        place=False,
                        **parts(http="modelgw_zone %dk;" % low + kw.pop("http",
                                                                        ""),
                                **kw))
    return int(text.rsplit(" at least ", 1)[1].split("k")[0])


def test_zone_for_keys(conf):
    """Keys with limits take room in it, others do not."""
    many = keys(1000, "rpm=1")
    size = least(conf, 100, keys=many)
    assert "1000 keys" in conf.text
    conf.accepted(**parts(http="modelgw_zone %dk;" % size, keys=many))
    less = least(conf, size - 4, keys=many)
    assert less == size
    conf.accepted(**parts(http="modelgw_zone 100k;", keys=keys(1000)))


@pytest.mark.parametrize("limit", ["rpm=1", "tpm=1", "concurrency=1"])
def test_zone_any_limit(conf, limit):
    least(conf, 100, keys=keys(1000, limit))


def test_zone_for_accounts(conf):
    """Accounts take room in it, if there is credit; many keys may share
    one."""
    many = keys(1000, account=lambda i: "acct-%d" % (i // 2))
    size = least(conf, 100, keys=many, http=LEDGER)
    assert "500 accounts" in conf.text
    conf.accepted(**parts(http="modelgw_zone %dk;" % size + LEDGER, keys=many))
    conf.accepted(**parts(http="modelgw_zone 100k;", keys=many))
    conf.accepted(**parts(
        http="modelgw_zone 100k;" + LEDGER,
        keys=keys(1000, account=lambda i: "acct-%d" % (i % 5))))


def test_zone_least(conf):
    """64k is the minimum, and is enough at first."""
    conf.accepted(**parts(http="modelgw_zone 64k;" + LEDGER))
    conf.refused("zone too small", '"63k"', "64k",
                 **parts(http=LEDGER + "modelgw_zone 63k; # HERE"))


def test_zone_default(conf):
    many = keys(5000, "rpm=1 tpm=1",
                account=lambda i: "acct-%d" % i)
    conf.accepted(**parts(keys=many))


def test_zone_name_taken(conf):
    """A zone of another module is not used."""
    conf.refused("modelgw", place=False, **parts(
        http="limit_req_zone $binary_remote_addr zone=modelgw:1m rate=1r/s;"
             + LEDGER))


def test_many_accounts(conf):
    """100,000 keys with an account each are counted quickly."""
    before = ended_cpu()
    with open(conf.path("many.conf"), "w") as f:
        for i in range(100000):
            f.write("key-%07d sha256:%s a account=acct-%07d rpm=60;\n"
                    % (i, hashlib.sha256(b"sk-eu-%d" % i).hexdigest(), i))
    conf.refused("zone too small", "100000 keys", "100000 accounts",
                 place=False, **parts(keys="include many.conf;"))
    conf.accepted(**parts(keys="include many.conf;",
                          http=LEDGER + "modelgw_zone 128m;"))
    assert ended_cpu() - before < 20
