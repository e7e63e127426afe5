"""nginx -t: modelgw_cluster, which never connects."""

import os
import socket
import subprocess

import pytest

import config_check
from config_check import Config
from test_ledger_config import LEDGER, parts

SOCKET = '"host=/run/postgresql dbname=modelgw"'
CA = "sslmode=verify-full sslrootcert=/etc/ssl/certs/ca-certificates.crt"


@pytest.fixture
def conf(tmp_path):
    return Config(tmp_path)


def cluster(conninfo=SOCKET, options=""):
    return parts(http="%s\nmodelgw_cluster %s %s; # HERE"
                 % (LEDGER, conninfo, options))


@pytest.mark.parametrize("conninfo", [
    SOCKET, '"host=127.0.0.1 dbname=modelgw"', '"host=localhost"',
    '"host=::1 port=5433"', "postgres:///modelgw?host=/run/postgresql",
    "postgresql://modelgw@127.0.0.1/modelgw",
    '"host=db1.test,db2.test dbname=modelgw user=modelgw %s '
    'target_session_attrs=read-write"' % CA,
    '"host=/run/postgresql,db2.test %s"' % CA])
def test_conninfo(conf, conninfo):
    conf.accepted(**cluster(conninfo))


@pytest.mark.parametrize("options", [
    "name=gw1", "name=gw-1.example:2", "exchange=20ms", "exchange=1s",
    "wait=100ms", "wait=30s", "offline=1s", "offline=7d", "lost=off",
    "offline=10m lost=11m", "offline=2s lost=62s", "lost=30d",
    "lost=1h offline=59m wait=1s exchange=50ms name=gw1"])
def test_options(conf, options):
    conf.accepted(**cluster(options=options))


@pytest.mark.parametrize("option", [
    "exchange=19ms", "exchange=1001ms", "exchange=0", "exchange=",
    "exchange=x", "exchange=-1s", "wait=99ms", "wait=31s", "wait=off",
    "offline=999ms", "offline=8d", "offline=off", "lost=0", "lost=60s",
    "lost=31d", "lost=on", "name=", "name=a/b", "name=" + "x" * 65])
def test_option_invalid(conf, option):
    conf.refused('invalid option "%s"' % option, "it takes",
                 **cluster(options=option))


@pytest.mark.parametrize("options", ["lost=10m", "offline=1h lost=1h",
                                     "lost=2m offline=61s"])
def test_lost_before_offline(conf, options):
    conf.refused('"lost="', '"offline="', "one minute",
                 **cluster(options=options))


def test_option_unknown(conf):
    conf.refused('unknown option "Wait=1s"', "it takes: exchange= wait=",
                 **cluster(options="Wait=1s"))


def test_duplicates(conf):
    conf.refused('duplicate option "wait=2s"',
                 **cluster(options="wait=1s wait=2s"))
    conf.refused("is duplicate", **parts(
        http="%s\nmodelgw_cluster %s;\nmodelgw_cluster %s; # HERE"
             % (LEDGER, SOCKET, SOCKET)))


def test_arguments(conf):
    conf.refused("modelgw_cluster", **cluster(conninfo=""))


def test_no_ledger(conf):
    conf.refused("no \"modelgw_ledger\"", **parts(
        http="modelgw_cluster %s; # HERE" % SOCKET))


# what PostgreSQL's library says of the text, and what it must not have

@pytest.mark.parametrize("conninfo,word", [
    ('"host"', "host"), ('"hots=/run"', "hots"),
    ('"host=/run/postgresql port"', "port"),
    ("postgres://[::1", "postgres"), ('""', "modelgw_cluster")])
def test_bad_conninfo(conf, conninfo, word):
    conf.refused("modelgw_cluster", word, **cluster(conninfo))


@pytest.mark.parametrize("conninfo", [
    '"host=/run/postgresql password=%s"' % config_check.SECRET,
    '"host=/run/postgresql password=a %s"' % config_check.SECRET,
    "postgres://modelgw:%s@127.0.0.1/modelgw" % config_check.SECRET,
    "postgres://modelgw:%s%%zz@127.0.0.1/modelgw" % config_check.SECRET,
    "postgres://modelgw:%s@[::1/modelgw" % config_check.SECRET])
def test_password_in_conninfo(conf, conninfo):
    conf.refused("password", "file", **cluster(conninfo))


@pytest.mark.parametrize("option", [
    "password=%s" % config_check.SECRET, "password=", "password=file:",
    "password", "passwords=%s" % config_check.SECRET])
def test_password_is_a_file(conf, option):
    conf.refused('needs "password=file:PATH"', **cluster(options=option))


@pytest.mark.parametrize("conninfo", [
    '"host=db1.test"', '"host=db1.test sslmode=require"',
    '"host=db1.test sslmode=verify-ca"', '"host=10.0.0.1 sslmode=prefer"',
    '"host=/run/postgresql,db1.test"', '"hostaddr=10.0.0.1"',
    "postgres://db1.test/modelgw?sslmode=require"])
def test_tls_is_verified(conf, conninfo):
    conf.refused("sslmode=verify-full", **cluster(conninfo))


# the file of the password

def test_password_file(conf):
    conf.write("db.password", config_check.SECRET + "\n", 0o600)
    conf.accepted(**cluster(options="password=file:db.password"))
    conf.accepted(**cluster(options="password=file:"
                            + conf.path("db.password")))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o602])
def test_password_file_of_others(conf, mode):
    conf.write("db.password", config_check.SECRET + "\n", mode)
    conf.refused("db.password", "chmod 0600",
                 **cluster(options="password=file:db.password"))


def test_password_file_missing(conf):
    conf.refused("none.password", "No such file",
                 **cluster(options="password=file:none.password"))
    os.mkdir(conf.path("sub"), 0o700)
    conf.refused("sub", "not a file", **cluster(options="password=file:sub"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_password_file_of_root(conf, monkeypatch):
    """The workers' user reads it, at each connection."""
    conf.write("db.password", config_check.SECRET + "\n", 0o600)
    monkeypatch.setattr(config_check.os, "geteuid", lambda: 1)
    conf.refused("db.password", "Permission denied", "as the user",
                 "nginx's workers",
                 **cluster(options="password=file:db.password"))


# the library

def library(conf, monkeypatch, text):
    """Makes this the libpq.so.5 that is found."""
    monkeypatch.setattr(config_check, "ENV", dict(
        config_check.ENV, LD_LIBRARY_PATH=conf.dir))
    if text is None:
        conf.write("libpq.so.5", "no library")
        return
    conf.write("libpq.c", text)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", conf.path("libpq.so.5"),
                    conf.path("libpq.c")], check=True)


def test_no_library(conf, monkeypatch):
    library(conf, monkeypatch, None)
    conf.refused("libpq", **cluster())
    conf.accepted(**parts())


@pytest.mark.parametrize("text", ["", "int PQlibVersion(void)"
                                  " { return 130014; }"])
def test_old_library(conf, monkeypatch, text):
    library(conf, monkeypatch, text)
    conf.refused("libpq", "14", **cluster())


def test_it_does_not_connect(conf):
    with socket.create_server(("127.0.0.1", 0)) as s:
        s.settimeout(0)
        conf.accepted(**cluster('"host=127.0.0.1 port=%d"'
                                % s.getsockname()[1]))
        with pytest.raises(BlockingIOError):
            s.accept()
