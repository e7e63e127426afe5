"""nginx -t: model lines."""

import pytest

from config_check import GROUP, GROUP_B, Config, key


@pytest.fixture
def conf(tmp_path):
    return Config(tmp_path)


def model(line):
    return GROUP + "model %s; # HERE\n" % line


@pytest.mark.parametrize("id", ["fam-a-1", "fam-a-A.Z_0:9/x@y+z-", "fam-a-",
                                "fam-a-" + "x" * 250])
def test_id(conf, id):
    conf.accepted(group=model(id + " up-1"))
    conf.accepted(group=model("fam-a-2 " + id))


@pytest.mark.parametrize("id", ["'fam-a- x'", "fam-a-é", "fam-a-*", 'fam-a-"',
                                "fam-a-" + "x" * 251, "fam-a-$1", "fam-a-?",
                                "fam-a-,b"])
def test_id_bad(conf, id):
    conf.refused("invalid model id", 'group "a"', group=model(id + " up-1"))
    conf.refused("invalid model id", 'group "a"', group=model("fam-a-2 " + id))


def test_id_empty(conf):
    conf.refused("invalid model id", group=model('"" up-1'))
    conf.refused("invalid model id", group=model('fam-a-2 ""'))


@pytest.mark.parametrize("id", ["fam-b-one", "fam-b", "FAM-A-x", "fam-a"])
def test_outside_family(conf, id):
    conf.refused('model "%s"' % id, "famil", 'group "a"',
                 group=model(id + " up-1"))


def test_family_behind_model(conf):
    conf.accepted(group="model x-1 up-1;\n" + GROUP + "family x-;\n")


def test_twice(conf):
    conf.refused('duplicate model "fam-a-large"', 'group "a"',
                 group=model("fam-a-large up-1"))


# options

GOOD = """free
input=0 output=0
input=3 output=15
output=15 input=3
input=0.0125 output=999999.999999 cache_read=0.3 cache_write=3.75
input=3 output=15 cache_write_1h=6
context=1
context=200000 max_output=64000 default_max_tokens=4096
context=1000000000
sampling=both
sampling=one_of
sampling=none
thinking=none
thinking=budget
thinking=adaptive
thinking=adaptive_only
effort=low
effort=minimal,low,medium,high,xhigh,max
effort=max,low
structured=native
structured=none
strict=on prefill=off forced_tool_choice=on
reasoning_output=off
reasoning_output=content
reasoning_output=full
auto_cache=off
auto_cache=on
auto_cache=auto
chat_limit=max_completion_tokens
chat_limit=max_tokens
usage_input_includes_cache=on"""

BAD = """inputs=1
input
input=
input=-1
input=1e3
input=1,5
input=.5
input=5.
input=1000000
input=0.0000001
input=3eur
input=NaN
output=0x10
cache_read=x
cache_write=
cache_write_1h=1.2.3
free=1
free=
freeze
Free
context=0
context=-1
context=1.5
context=1000000001
context=99999999999999999999
context=200k
context=
max_output=0
max_output=x
default_max_tokens=0
sampling=
sampling=one
sampling=BOTH
thinking=on
thinking=adaptive,budget
effort=
effort=,
effort=low,
effort=low,,high
effort=lowest
effort=none
structured=yes
strict=1
strict=ON
prefill=
forced_tool_choice=auto
reasoning_output=on
auto_cache=always
chat_limit=
chat_limit=max_output_tokens
usage_input_includes_cache=maybe
vision=on
="""


@pytest.mark.parametrize("options", GOOD.split("\n"))
def test_options(conf, options):
    conf.accepted(group=model("fam-a-x up-1 " + options))
    conf.accepted(group_b=GROUP_B + "model ~^code-x$ up-1 %s;" % options)


@pytest.mark.parametrize("option", BAD.split("\n"))
def test_options_bad(conf, option):
    conf.refused('"%s"' % option, '"fam-a-x"',
                 group=model("fam-a-x up-1 " + option))


@pytest.mark.parametrize("option,valid", [
    ("cache_read=1,5", "it takes euro per million tokens, such as 0.25, "
                       "less than 1000000 and with 6 decimals at most in"),
    ("context=200k", "it takes a number from 1 to 1000000000 in"),
    ("thinking=on", "it takes one of: none budget adaptive adaptive_only in"),
    ("strict=1", "it takes one of: off on in"),
    ("effort=none", "it takes with commas between: "
                    "minimal low medium high xhigh max in")])
def test_options_bad_and_what_they_take(conf, option, valid):
    conf.refused('invalid option "%s"' % option, valid,
                 group=model("fam-a-x up-1 " + option))


@pytest.mark.parametrize("option", ["free", "input=1", "context=1", "strict=on",
                                    "effort=low"])
def test_option_twice(conf, option):
    rest = " output=1" if option == "input=1" else ""
    conf.refused("duplicate", '"%s"' % option, '"fam-a-x"',
                 group=model("fam-a-x up-1 %s%s %s" % (option, rest, option)))


@pytest.mark.parametrize("options,word", [
    ("input=1", "output="), ("output=1", "input="), ("cache_read=1", "input="),
    ("input=1 cache_write=1", "output="), ("free input=1 output=1", "free")])
def test_half_price(conf, options, word):
    conf.refused(word, '"fam-a-x"', group=model("fam-a-x up-1 " + options))


# patterns

@pytest.mark.parametrize("pattern", [
    "~^fam-a-(.+)$ $1", "~^fam-a-(.+)$ up/$1:x", "~^fam-a-(.)(.)$ $2$1",
    "~x $0", "'~^fam-a-\\d{4}$' fixed", "~^fam-a-(?:x|y)$ up"])
def test_pattern(conf, pattern):
    conf.accepted(group=model(pattern))


@pytest.mark.parametrize("pattern", [
    "~^fam-a-(.+ $1", "~[ up", "~*x up", "~(?P<n up", "~x( up"])
def test_pattern_bad_regex(conf, pattern):
    conf.refused('model "%s"' % pattern.split(" ")[0], group=model(pattern))


@pytest.mark.parametrize("template", ["$1", "$9", "up$", "$x", "up-é", "'a b'",
                                      "${0}", "$$0"])
def test_pattern_bad_template(conf, template):
    conf.refused("invalid upstream id", template.strip("'"), "~^fam-a-x",
                 group=model("~^fam-a-x " + template))


def test_pattern_models_of_key(conf):
    """A model that only a pattern matches can be in a key's list."""
    conf.accepted(keys=key("bob", "b", "models=code-x,fam-b-one"))


@pytest.mark.parametrize("id", [
    "code-",            # the pattern wants one character more
    "xcode-1",          # it is anchored
    "code-é",           # not a valid id
    "code-" + "x" * 252])
def test_pattern_no_match(conf, id):
    conf.refused('"%s"' % id, 'group "b"',
                 keys=key("bob", "b", "models=" + id) + " # HERE")


def test_pattern_stays_in_family(conf):
    """A pattern matches only within the group's families."""
    conf.refused('"fam-a-large"', 'group "b"',
                 group_b=GROUP_B + "model ~. $0;",
                 keys=key("bob", "b", "models=fam-a-large") + " # HERE")
    conf.accepted(group_b=GROUP_B + "model ~. $0;",
                  keys=key("bob", "b", "models=code-"))


def test_pattern_result_is_an_id(conf):
    """A template's result above 256 bytes is not an id."""
    group_b = GROUP_B.replace("$1", "$1$1")
    conf.accepted(group_b=group_b,
                  keys=key("bob", "b", "models=code-" + "x" * 128))
    conf.refused("is not one of group", group_b=group_b, keys=key(
        "bob", "b", "models=code-" + "x" * 129) + " # HERE")


# kind

EMBEDDINGS = GROUP.replace("messages;", "messages embeddings;")


@pytest.mark.parametrize("options", [
    "kind=embedding", "kind=embedding input=0.02", "kind=chat",
    "kind=embedding input=0.02 output=1", "kind=embedding free"])
def test_kind(conf, options):
    conf.accepted(group=EMBEDDINGS + "model fam-a-2 up %s;" % options)


@pytest.mark.parametrize("option", ["kind=", "kind=Embedding", "kind",
                                    "kind=embedding kind=chat"])
def test_kind_bad(conf, option):
    conf.refused("kind", group=EMBEDDINGS
                 + "model fam-a-2 up %s; # HERE\n" % option)


def test_kind_without_input(conf):
    conf.refused('has a price but no "input="', group=EMBEDDINGS
                 + "model fam-a-2 up kind=embedding output=1; # HERE\n")


@pytest.mark.parametrize("id", ["fam-a-2", "~^fam-a-x$"])
def test_kind_that_no_endpoint_takes(conf, id):
    conf.refused('model "%s" cannot be used' % id,
                 'it has "kind=embedding", and "protocol" of group "a" has no '
                 '"embeddings"',
                 group=model(id + " up kind=embedding"))
    only = "".join(line + "\n" for line in GROUP.split("\n")
                   if "model" not in line)
    only = only.replace("messages;", "embeddings;")
    conf.accepted(group=only + "model %s up kind=embedding;" % id)
    conf.refused('model "%s" cannot be used' % id,
                 'it has no "kind=embedding", and "protocol" of group "a" has '
                 '"embeddings" only',
                 group=only + "model %s up; # HERE\n" % id)
