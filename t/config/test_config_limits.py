"""nginx -t: the limits line of a group.  Those of keys are in
test_config_keys.py, the effects of limits in test_limits.py."""

import pytest

from config_check import GROUP, Config, key

NAMES = ["rpm", "tpm", "concurrency"]


@pytest.fixture
def conf(tmp_path):
    return Config(tmp_path)


def limits(*lines):
    return GROUP + "".join("limits %s;\n" % line for line in lines)


@pytest.mark.parametrize("line", [
    "rpm=1", "tpm=1000000000", "concurrency=8",
    "rpm=60 tpm=100000 concurrency=8", "concurrency=8 rpm=60"])
def test_good(conf, line):
    conf.accepted(group=limits(line))


def test_several_lines(conf):
    conf.accepted(group=limits("rpm=60", "tpm=100000 concurrency=8"))


def test_with_limits_of_the_key(conf):
    conf.accepted(group=limits("rpm=60"),
                  keys=key("alice", "a", "rpm=1 tpm=2 concurrency=3"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "1k", "x", "+1",
                                   "1000000001", "99999999999999999999"])
def test_bad(conf, name, value):
    conf.refused('invalid option "%s=%s" of group "a"' % (name, value),
                 "1 to 1000000000",
                 group=limits("%s=%s" % (name, value)).rstrip() + " # HERE\n")


@pytest.mark.parametrize("name", NAMES)
def test_twice(conf, name):
    line = "%s=1" % name
    conf.refused('duplicate option "%s" of group "a"' % line,
                 group=limits(line + " " + line).rstrip() + " # HERE\n")
    conf.refused('duplicate option "%s" of group "a"' % line,
                 group=limits(line, line).rstrip() + " # HERE\n")


@pytest.mark.parametrize("limit", ["rpm", "burst=1", "Rpm=1", "=", "1",
                                   "rph=1", '""'])
def test_unknown(conf, limit):
    conf.refused('unknown option "%s" of group "a"' % limit.strip('"'),
                 "it takes: rpm= tpm= concurrency= budget= in",
                 group=limits(limit).rstrip() + " # HERE\n")


@pytest.mark.parametrize("line", ["limits", "limits rpm=1 tpm=1 concurrency=1 "
                                  "budget=1/day rpm=2"])
def test_number_of_words(conf, line):
    conf.refused("invalid number of arguments", '"limits"', 'group "a"',
                 group=GROUP + line + "; # HERE\n")
