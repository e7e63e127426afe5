"""nginx -t: keys."""

import hashlib
import os
import subprocess
import time

import pytest

import config_check
from config_check import ROOT, Config, digest, key


@pytest.fixture
def conf(tmp_path):
    return Config(tmp_path)


def bad(conf, line, *words):
    conf.refused(*words, keys=line + " # HERE")


def test_options(conf):
    conf.accepted(keys=key("alice-1", "a",
                           "concurrency=8 tpm=1000000000 rpm=1 account=alice "
                           "expires=2096-02-29 models=fam-a-large"))


def test_no_keys(conf):
    """An empty block admits no key: the gateway is closed."""
    conf.accepted(keys="")


@pytest.mark.parametrize("line", ["alice;", "alice sha256:00;", "alice a;"])
def test_words(conf, line):
    bad(conf, line, '"alice"', "needs")


@pytest.mark.parametrize("id", ["a", "A.z_0@9:-", "x" * 64])
def test_id(conf, id):
    conf.accepted(keys=key(id, "a", "account=" + id))


@pytest.mark.parametrize("id", ['""', "'a b'", "a/b", "é", "x" * 65, "a,b",
                                "a=b", "a\\\\b", "a*"])
def test_id_bad(conf, id):
    bad(conf, key(id), "invalid key id")
    bad(conf, key("ok", "a", "account=" + id), '"ok"', "account=")


HEX = digest("x")[7:]


@pytest.mark.parametrize("text", [
    HEX, "sha256:", "sha256:" + HEX[1:], "sha256:" + HEX + "0",
    "sha256:" + HEX[1:] + "g", "sha512:" + HEX, "SHA256:" + HEX,
    "sha256=" + HEX,
    "sha256::" + HEX, "md5:00", "sk-eu-x", "sha256:sk-eu-x", '""'])
def test_hash_bad(conf, text):
    """A value that may be the key itself is not logged."""
    bad(conf, "alice %s a;" % text, "invalid hash", '"alice"')
    assert "sk-eu-x" not in conf.text


def test_hash_upper_case(conf):
    conf.accepted(keys="alice sha256:%s a;" % HEX.upper())


def test_group_unknown(conf):
    bad(conf, key("alice", "nobody"), 'unknown group "nobody"')


def test_group_bad(conf):
    bad(conf, key("alice", '""'), "invalid group", '"alice"')


@pytest.mark.parametrize("option", ["rpm", "burst=1", "Rpm=1", "model=x",
                                    "models", "=", "x"])
def test_option_unknown(conf, option):
    bad(conf, key("alice", "a", option), "unknown option", '"%s"' % option,
        '"alice"')


def test_semicolon_missing(conf):
    """nginx takes the next key for options of this one."""
    two = "alice %s a%%s\nbob %s a;" % (digest("1"), digest("2"))
    bad(conf, two % "", 'unknown option "bob" of key "alice"',
        'a ";" is missing before it')
    conf.accepted(keys=two % ";")
    bad(conf, key("alice", "a", "x rpm=1"), 'unknown option "x"')
    assert "is missing" not in conf.text


def test_semicolon_missing_after_options(conf):
    """The first wrong parameter is named, which is never a known option."""
    bad(conf, key("alice", "a", "rpm=1 bob " + digest("2")),
        'unknown option "bob"', 'a ";" is missing before it')
    bad(conf, key("alice", "a", "rpm=0 bob " + digest("2")),
        'invalid option "rpm=0"')
    assert "is missing" not in conf.text
    bad(conf, key("alice", "a", "account=x " + digest("2")),
        'unknown option "sha256:', '"alice"')
    assert "is missing" not in conf.text
    bad(conf, key("alice", "a", "x rpm=1 bob " + digest("2")),
        'unknown option "x"', "it takes: account=")
    assert "is missing" not in conf.text


def test_example(conf):
    """nginx accepts the shipped example, except for the model's name."""
    with open(ROOT + "/conf/modelgw/keys.conf.example") as f:
        conf.accepted(keys=f.read().replace("family_b-chat", "fam-b-one"))


@pytest.mark.parametrize("option", ["rpm=1", "tpm=1", "concurrency=1",
                                    "account=x", "models=fam-a-large",
                                    "expires=2097-01-01"])
def test_option_twice(conf, option):
    bad(conf, key("alice", "a", option + " " + option), '"%s"' % option,
        '"alice"', "duplicate")


@pytest.mark.parametrize("name", ["rpm", "tpm", "concurrency"])
@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "1k", "x", "+1",
                                   "1000000001", "99999999999999999999"])
def test_limit_bad(conf, name, value):
    bad(conf, key("alice", "a", "%s=%s" % (name, value)),
        '"%s=%s"' % (name, value), '"alice"')


@pytest.mark.parametrize("value", [
    "", "2027-02-30", "2027-02-29", "2100-02-29", "2027-00-01", "2027-13-01",
    "2027-01-00", "2027-04-31", "2027-1-1", "01-01-2027", "tomorrow",
    "2027-01-01T00:00:00Z", "1969-12-31", "20270101"])
def test_expires_bad(conf, value):
    bad(conf, key("alice", "a", "expires=" + value), '"expires=%s"' % value,
        '"alice"')


def test_expired(conf):
    """A date in the past is a warning: the line is harmless."""
    conf.warned('"alice"', "2020-01-01",
                keys=key("alice", "a", "expires=2020-01-01") + " # HERE")


def test_expires_today(conf):
    """The day named is the first one that the key is refused, in UTC."""
    today = time.strftime("%Y-%m-%d", time.gmtime())
    tomorrow = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86400))
    conf.warned("alice", today,
                keys=key("alice", "a", "expires=" + today) + " # HERE")
    conf.accepted(keys=key("alice", "a", "expires=" + tomorrow))


# models=

def test_models_empty(conf):
    bad(conf, key("alice", "a", "models="), '"models="', '"alice"', "is empty")


@pytest.mark.parametrize("text,id", [
    ("fam-a-none", "fam-a-none"), ("fam-a-large,fam-a-none", "fam-a-none"),
    ("fam-b-one", "fam-b-one"), ("fam-a-large,", ""), (",fam-a-large", ""),
    (",", ""), ("FAM-A-LARGE", "FAM-A-LARGE"), ("*", "*"), ("fam-a-", "fam-a-"),
    ("~^code-(.+)$", "~^code-(.+)$")])
def test_models_bad(conf, text, id):
    bad(conf, key("alice", "a", "models=" + text), 'model "%s"' % id,
        'group "a"')


def test_models_first_place(conf):
    """The first of the keys with the same wrong list is named."""
    conf.refused('"fam-a-none"', keys="\n".join([
        key("k1", "a", "models=fam-a-large"),
        key("k2", "a", "models=fam-a-none") + " # HERE",
        key("k3", "a", "models=fam-a-none")]))


# duplicates

def test_id_twice(conf):
    conf.refused('duplicate key id "alice"', keys="\n".join([
        key("alice"), key("bob"), key("alice", secret="other") + " # HERE"]))


def test_hash_twice(conf):
    conf.refused('"alice"', '"bob"', "hash", keys="\n".join([
        key("alice", secret="same"),
        key("bob", "b", secret="same") + " # HERE"]))


def test_line_twice(conf):
    conf.refused('duplicate key id "alice"',
                 keys=key("alice") + "\n" + key("alice") + " # HERE")


def test_hash_twice_other_case(conf):
    conf.refused('"alice"', '"bob"', keys="\n".join([
        "alice sha256:%s a;" % HEX,
        "bob sha256:%s a; # HERE" % HEX.upper()]))


# files

def test_include(conf):
    conf.write("k1.conf", key("alice") + "\n" + key("bob", "b"))
    conf.write("k2.conf", "include k3.conf;\n# a comment\n" + key("carol"))
    conf.write("k3.conf", key("dave", "b", "models=code-1"))
    conf.accepted(keys="include k1.conf;\n%s\ninclude %s;"
                  % (key("erin"), conf.path("k2.conf")))


def test_include_glob(conf):
    for i in range(20):
        conf.write("keys-%02d.conf" % i, "\n".join(
            key("k%d-%d" % (i, j), options="models=fam-a-large account=x%d" % j)
            for j in range(50)))
    conf.accepted(keys="include keys-*.conf;")
    conf.write("keys-07.conf", key("k1") + "\n" + key("k19-3") + " # HERE?")
    conf.write("keys-19.conf", key("k2") + "\n" + key("k1") + " # HERE")
    conf.refused('duplicate key id "k1"', keys="include keys-*.conf;")


# files that others can write


@pytest.mark.parametrize("mode", [0o666, 0o622, 0o602, 0o646, 0o777])
def test_file_others_can_write(conf, mode):
    conf.write("k.conf", key("bob") + "  # HERE\n", mode)
    conf.refused('keys file "%s"' % conf.path("k.conf"), "written by others",
                 keys="include k.conf;\n" + key())


@pytest.mark.parametrize("mode", [0o644, 0o664, 0o660, 0o600, 0o400])
def test_file_of_its_own(conf, mode):
    conf.write("k.conf", key("bob"), mode)
    conf.accepted(keys="include k.conf;\n" + key())


def test_file_others_can_write_inside_another(conf):
    conf.write("k1.conf", key("bob") + "\ninclude k2.conf;")
    conf.write("k2.conf", key("carol") + " # HERE\n", 0o666)
    conf.refused('keys file "%s"' % conf.path("k2.conf"),
                 keys="include k1.conf;")


def test_file_with_nothing_but_an_include(conf):
    """The include could name any file."""
    conf.write("k1.conf", "include k2.conf; # HERE\n", 0o666)
    conf.write("k2.conf", key("carol"))
    conf.refused('keys file "%s"' % conf.path("k1.conf"),
                 keys="include k1.conf;")


def test_other_files_are_not_judged(conf):
    conf.write("x.conf", "keepalive_timeout 1s;", 0o666)
    conf.accepted(http="include x.conf;")


@pytest.fixture
def keys_dir(conf):
    os.mkdir(conf.path("keys"))
    conf.write("keys/k.conf", key("bob"))
    return conf.path("keys")


@pytest.mark.parametrize("mode", [0o777, 0o707, 0o703])
def test_directory_others_can_write(conf, keys_dir, mode):
    os.chmod(keys_dir, mode)
    text = conf.refused('keys file "%s/k.conf"' % keys_dir, "directory",
                        keys="include keys/*.conf;", place=False)
    assert text.endswith(" in %s/k.conf:1" % keys_dir)


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o770, 0o1777])
def test_directory_of_its_own(conf, keys_dir, mode):
    """With the sticky bit others cannot replace the owner's files."""
    os.chmod(keys_dir, mode)
    conf.accepted(keys="include keys/*.conf;")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner")
def test_sticky_directory_with_a_file_of_another(conf, keys_dir):
    os.chmod(keys_dir, 0o1777)
    os.chown(keys_dir + "/k.conf", 65534, 65534)
    conf.refused("directory", keys="include keys/*.conf;", place=False)


def test_directory_that_is_mounted_read_only(conf, keys_dir, monkeypatch):
    """As Kubernetes mounts a ConfigMap: mode 0777."""
    os.chmod(keys_dir, 0o777)
    conf.write("ro", '''#!/bin/sh
exec unshare -m sh -c 'mount --bind "$0" "$0" \\
    && mount -o remount,ro,bind "$0" && exec "$@"' %s %s "$@"
''' % (keys_dir, config_check.NGINX), 0o755)
    if subprocess.run([conf.path("ro"), "-v"], stderr=subprocess.DEVNULL
                      ).returncode:
        pytest.skip("no right to mount")
    conf.refused("directory", keys="include keys/*.conf;", place=False)
    monkeypatch.setattr(config_check, "NGINX", conf.path("ro"))
    conf.accepted(keys="include keys/*.conf;")


def test_include_missing(conf):
    conf.refused("none.conf", keys="include none.conf; # HERE")
    conf.accepted(keys="include none-*.conf;")


def test_include_twice(conf):
    conf.write("k.conf", key("alice") + " # HERE\n")
    conf.refused('duplicate key id "alice"', keys="include k.conf;\n" * 2)


def test_second_block(conf):
    conf.refused('"modelgw_keys"', "is duplicate",
                 late="modelgw_keys { # HERE\n}")


@pytest.mark.parametrize("cut", [1, 5, 20, 60, 90])
def test_half_written(conf, cut):
    """A file that is cut off is refused, wherever the cut is."""
    text = key("alice") + "\n" + key("bob", "a", "models=fam-a-large rpm=60")
    conf.write("k.conf", text[:-cut])
    text = conf.refused("k.conf:2", "end of file" if cut < 100 else "",
                        keys="include k.conf;", place=False)


@pytest.mark.parametrize("text", ["{", "}", "alice {", '"', "x\0y z a;"])
def test_garbage(conf, text):
    conf.write("k.conf", text)
    text = conf.refused(keys="include k.conf;", place=False)
    assert ".conf:" in text


# many

def write_many(conf, n):
    with open(conf.path("many.conf"), "w") as f:
        for i in range(n):
            f.write("key-%07d sha256:%s a account=acct-%06d "
                    "models=fam-a-large rpm=60;\n"
                    % (i, hashlib.sha256(b"sk-eu-%d" % i).hexdigest(), i // 2))


def test_many(conf):
    """100,000 keys load, in clearly linear time."""
    write_many(conf, 100000)
    before = os.times()
    conf.accepted(keys="include many.conf;", http="modelgw_zone 46m;")
    after = os.times()
    assert after.children_user - before.children_user \
        + after.children_system - before.children_system < 20
    conf.refused("zone too small", "100000 keys", place=False,
                 keys="include many.conf;", http="modelgw_zone 36m;")


def test_many_last_is_twice(conf):
    write_many(conf, 20000)
    with open(conf.path("many.conf"), "a") as f:
        f.write("last %s a; # HERE\n" % digest("sk-eu-0"))
    conf.refused('"last"', '"key-0000000"', keys="include many.conf;")


def test_many_work(gateway):
    """The first, the last and one in the middle of 100,000 keys work."""
    g = gateway(keys_text="\n".join(
        "key-%d %s a;" % (i, digest("sk-eu-many-%d" % i))
        for i in range(100000)))
    for i in (0, 1, 50000, 99999):
        r = g.get("/v1/models", headers=[("x-api-key", "sk-eu-many-%d" % i)])
        assert r.status == 200
    r = g.get("/v1/models", headers=[("x-api-key", "sk-eu-many-100000")])
    assert r.status == 401
