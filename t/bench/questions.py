"""What opening an old ledger and asking it takes: a file of version 1 with
2,000,000 calls of 30 days is made, a gateway is started on it, and modelgwctl
asks.  Prints seconds; each question is asked five times, the median counts.

    python questions.py DIRECTORY [CALLS]

The gateway is the packaged nginx with the module of $MODELGW_MODULE.
"""

import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
CTL = os.path.join(ROOT, "conf/modelgwctl")

# as version 1 has made it

SCHEMA = """
CREATE TABLE accounts (name TEXT NOT NULL PRIMARY KEY, balance INTEGER NOT NULL,
    opened INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE calls (id INTEGER NOT NULL PRIMARY KEY, time INTEGER NOT NULL,
    ended INTEGER NOT NULL, key TEXT NOT NULL, account TEXT NOT NULL,
    model TEXT NOT NULL, input INTEGER NOT NULL, cache_read INTEGER NOT NULL,
    cache_write INTEGER NOT NULL, cache_write_1h INTEGER NOT NULL,
    output INTEGER NOT NULL, reasoning INTEGER NOT NULL, cost INTEGER NOT NULL,
    outcome TEXT NOT NULL, "end" TEXT NOT NULL, status INTEGER NOT NULL) STRICT;
CREATE TABLE holds (id INTEGER NOT NULL PRIMARY KEY, time INTEGER NOT NULL,
    key TEXT NOT NULL, account TEXT NOT NULL, model TEXT NOT NULL,
    hold INTEGER NOT NULL, input INTEGER NOT NULL, cost INTEGER NOT NULL)
    STRICT;
CREATE TABLE topups (id TEXT NOT NULL PRIMARY KEY, account TEXT NOT NULL,
    amount INTEGER NOT NULL, time INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE days (day TEXT NOT NULL, account TEXT NOT NULL, key TEXT NOT NULL,
    model TEXT NOT NULL, calls INTEGER NOT NULL, input INTEGER NOT NULL,
    cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
    cache_write_1h INTEGER NOT NULL, output INTEGER NOT NULL,
    reasoning INTEGER NOT NULL, cost INTEGER NOT NULL,
    PRIMARY KEY (day, account, key, model)) STRICT, WITHOUT ROWID;
CREATE VIEW audit AS SELECT 1;
CREATE VIEW balances AS SELECT 1;
CREATE VIEW ledger AS SELECT 1;
PRAGMA application_id = %d;
PRAGMA user_version = 1;
""" % 0x6d67776c

# 50 keys of 20 accounts, 4 models, in the order in which they began

CALLS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :calls)
INSERT INTO calls SELECT i, t, t + i * 7919 %% 60000, 'key-' || k,
    'account-' || (k %% 20), 'fam-a-' || (i * 31 %% 4), i %% 2000, 0, 0, 0,
    i %% 500, 0, i %% 100000, 'reported', 'complete', 200
FROM (SELECT i, :from + i * :span / :calls AS t, i * 104729 %% 50 AS k FROM n)
""".replace("%%", "%")

CONF = """
user root;
load_module %(module)s;
worker_processes 1;
daemon off;
pid %(dir)s/nginx.pid;
error_log %(dir)s/error.log notice;
events { }
http {
    access_log off;
    modelgw_ledger %(dir)s/ledger.db;
    modelgw_zone 64m;
    upstream api.test { server 127.0.0.1:1; }
    modelgw_group a {
        protocol messages;
        family fam-a-;
        upstream http://api.test;
        credential x-api-key file:%(dir)s/secret;
        model fam-a-0 m input=1 output=1 max_output=100;
    }
    modelgw_keys { include %(dir)s/keys; }
    server { listen unix:%(dir)s/admin.sock; location / { modelgw_admin; } }
}
"""


def make(path, calls):
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(SCHEMA)
    db.execute("BEGIN")
    span = 30 * 86400 * 1000
    db.execute(CALLS, {"calls": calls, "span": span,
                       "from": int(time.time() * 1000) - span - 60000})
    db.execute("INSERT INTO accounts SELECT account, -sum(cost), 0 FROM calls"
               " GROUP BY 1")
    db.execute("COMMIT")
    db.execute("PRAGMA journal_mode = WAL")
    db.close()


def ask(socket, *args):
    start = time.monotonic()
    p = subprocess.run([CTL, "--socket", socket, "--json", *args], check=True,
                       capture_output=True, timeout=120)
    assert p.stdout
    return time.monotonic() - start


def main():
    directory = os.path.join(os.path.abspath(sys.argv[1]), "questions")
    calls = int(sys.argv[2]) if len(sys.argv) > 2 else 2000000
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    make(os.path.join(directory, "ledger.db"), calls)

    with open(os.open(os.path.join(directory, "secret"),
                      os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
        f.write("secret")
    with open(os.path.join(directory, "keys"), "w") as f:
        for i in range(50):
            f.write("key-%d sha256:%064x a account=account-%d rpm=60;\n"
                    % (i, i, i % 20))

    conf = os.path.join(directory, "nginx.conf")
    with open(conf, "w") as f:
        f.write(CONF % {"dir": directory,
                        "module": os.environ["MODELGW_MODULE"]})

    socket = os.path.join(directory, "admin.sock")
    start = time.monotonic()
    nginx = subprocess.Popen([os.environ.get("MODELGW_NGINX", "nginx"),
                              "-c", conf, "-p", directory])
    try:
        while True:
            assert nginx.poll() is None, "nginx has exited"
            try:
                ask(socket, "usage")
                break
            except subprocess.CalledProcessError:
                assert time.monotonic() - start < 120
                time.sleep(0.02)
        print("%-44s %6.2f" % ("start, until the first answer",
                               time.monotonic() - start))
        for args in (["usage", "--by", "key"], ["usage", "--by", "day"],
                     ["usage", "--by", "account,day"],
                     ["usage", "--by", "hour", "--from", "-24h"],
                     ["usage", "--by", "key", "--from", "yesterday"],
                     ["accounts", "--sort", "spent"], ["accounts", "account-1"],
                     ["keys"], ["key", "show", "key-1"],
                     ["calls"], ["calls", "--account", "nobody"],
                     ["calls", "--request-id", "none"],
                     ["calls", "--from", "yesterday", "--limit", "1000"]):
            print("%-44s %6.3f" % (" ".join(args), statistics.median(
                ask(socket, *args) for _ in range(5))))
    finally:
        nginx.terminate()
        nginx.wait(60)
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
