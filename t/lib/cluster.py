"""Nodes of a cluster on one machine: each an nginx with a directory, a journal
and a zone of its own, and a faultproxy between it and each database.

A Node is a Gateway, with keys that all nodes have in common.  A Balancer is one
more nginx, which gives calls to nodes in turn.  differences() compares the
database with the journals: whatever the nodes have been through, there are none
when settle() has returned.
"""

import os
import select
import signal
import sqlite3
import subprocess
import threading
import time

import client
import gateway as lib
import metrics
import postgres
from faultproxy import Proxy
from gateway import Gateway
from operators import GROUPS
from upstream import both, raw

LIMIT = 60              # seconds, until what was done is in the database

ADMIN = "location /admin/ { modelgw_admin; allow 127.0.0.1; deny all; }"

LEDGER = """
    modelgw_zone %s;
    modelgw_ledger $dir/ledger.db;
    modelgw_founding_credit %s;
    modelgw_managed_keys %d;
    modelgw_cluster "%s" password=file:$dir/db.password name=%s %s;
"""

# what a node says when the database is away, or it was written off

AWAY = r"cluster|database|exchange"

# of a call, in the journal and in the database

COLUMNS = ("id", "time", "ended", "key", "account", "model", "input",
           "cache_read", "cache_write", "cache_write_1h", "output",
           "reasoning", "cost", "outcome", '"end"', "status", "request_id",
           "first_byte", "flags", "price")

LEFT = "(granted - returned - forced - spent)"


class Journal:
    """The SQLite file of a node, read as an operator would."""

    def __init__(self, path):
        self.path = path

    def query(self, sql, *args):
        db = sqlite3.connect("file:%s?mode=ro" % self.path, uri=True,
                             timeout=client.LIMIT)
        try:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(sql, args)]
        finally:
            db.close()

    def id(self):
        """Who the node is."""
        (row,) = self.query("SELECT * FROM node")
        return row["journal"] if "journal" in row else row["id"]

    def end(self):
        """The last position."""
        (row,) = self.query("SELECT coalesce(max(pos), 0) AS pos FROM outbox")
        return row["pos"]

    def holds(self):
        return self.query("SELECT * FROM holds")

    def calls(self):
        """By their positions."""
        return {row.pop("pos"): row for row in self.query(
            "SELECT pos, %s FROM positions JOIN calls ON calls.id = call"
            % ", ".join("calls." + c for c in COLUMNS))}

    def faults(self):
        """Rows of the file's own audit with a difference."""
        return self.query("SELECT * FROM audit WHERE difference <> 0 "
                          "OR hours <> 0")


class Node(Gateway):
    """options: of modelgw_cluster, beside those of the cluster."""

    def __init__(self, cluster, name, directory, options="", **kw):
        self.cluster = cluster
        self.name = name
        self.proxies = [Proxy(server.socket(), server.port)
                        for server in cluster.servers] \
            if cluster.proxied else []
        self.conninfo = cluster.conninfo or self.by_sockets()
        http = LEDGER % (cluster.zone, cluster.founding, cluster.managed,
                         self.conninfo, name,
                         (cluster.options + " " + options).strip())
        kw["http"] = http + kw.get("http", "")
        kw["server"] = "listen unix:$dir/node.sock; " + kw.get("server", "")
        kw["locations"] = (ADMIN + metrics.LOCATION
                           + kw.get("locations", ""))
        kw.setdefault("groups", GROUPS)
        super().__init__(directory, cluster.a, cluster.b, **kw)
        self.journal = Journal(self.path("ledger.db"))
        self.hidden.append(cluster.servers[0].password)

    def by_sockets(self):
        servers = self.cluster.servers
        places = [(p.directory, p.port) for p in self.proxies] \
            or [(s.top, s.port) for s in servers]
        text = "host=%s port=%s dbname=%s user=%s" % (
            ",".join(host for host, _ in places),
            ",".join(str(port) for _, port in places),
            servers[0].name, postgres.ROLE)
        if len(servers) > 1:
            text += " target_session_attrs=read-write"
        return text

    @property
    def proxy(self):
        return self.proxies[0]

    def write(self):
        os.makedirs(self.dir, exist_ok=True)
        self.write_secret("db.password", self.cluster.servers[0].password)
        super().write()

    def secrets(self):
        return [s for s in super().secrets() if s]

    def start(self):
        path = self.path("node.sock")
        if os.path.exists(path):            # of one that was killed
            os.unlink(path)
        return super().start()

    def restart(self):
        """After it was stopped or killed; the logs go on."""
        return self.start()

    def kill_worker(self, n=0):
        """With whatever it is doing."""
        os.kill(self.pids()[n], signal.SIGKILL)

    # what is to be known of it

    def leaks(self, more=()):
        """The file with the password is where it has to be."""
        return [leak for leak in super().leaks(more)
                if leak[0] != "db.password"]

    def row(self):
        """In the table of nodes, or None."""
        rows = self.cluster.query("SELECT * FROM modelgw.nodes WHERE "
                                  "journal = %s", self.journal.id())
        return rows[0] if rows else None

    def num(self):
        return self.row()["num"]

    def joined(self):
        """By its own word it is a member, and reaches the database."""
        return metrics.scrape(self).one("modelgw_cluster_up") == 1

    def lease(self, account):
        """In the database; None: there is none."""
        rows = self.cluster.query(
            "SELECT *, %s AS rest FROM modelgw.leases WHERE node = %%s AND "
            "account = %%s" % LEFT, self.num(), account)
        return rows[0] if rows else None

    def held(self):
        """By its calls, as the database knows: some ms longer than they
        last."""
        return self.cluster.one("SELECT coalesce(sum(held), 0)::bigint FROM "
                                "modelgw.leases WHERE node = %s", self.num())

    def unshipped(self):
        """What is not in the database of what it has settled, and what runs:
        the figures that are not 0."""
        m = metrics.scrape(self)
        figures = {"queue": m.one("modelgw_ledger_queue_calls"),
                   "in flight": m.sum("modelgw_calls_in_flight"),
                   "behind": m.one("modelgw_cluster_behind_calls"),
                   "holds": len(self.journal.holds()),
                   "positions": max(self.journal.end() - self.row()["pos"], 0),
                   "held": self.held()}
        return {name: int(n) for name, n in figures.items() if n}

    def shipped(self):
        return not self.unshipped()


class Balancer:
    """nginx in front of the nodes, as operators run it: calls in turn, one that
    could not be sent to a node goes to the next."""

    def __init__(self, directory, nodes, workers=1):
        self.dir = str(directory)
        self.nodes = nodes
        self.workers = workers
        self.process = None

    def start(self):
        os.makedirs(self.dir, exist_ok=True)
        self.port = lib.free_port()
        path = os.path.join(self.dir, "nginx.conf")
        with open(path, "w") as f:
            f.write("""
%s
daemon off; worker_processes %d; pid %s/nginx.pid;
worker_rlimit_nofile 16384;
error_log %s/error.log error;
events { worker_connections 8192; }
http {
    access_log off;
    client_body_temp_path %s/body; proxy_temp_path %s/proxy;
    fastcgi_temp_path %s/fastcgi; uwsgi_temp_path %s/uwsgi;
    scgi_temp_path %s/scgi;
    upstream nodes {
        %s
    }
    server {
        listen 127.0.0.1:%d backlog=4096;
        client_max_body_size 0;
        location / {
            proxy_pass http://nodes;
            proxy_http_version 1.1;
            proxy_set_header Host $host;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_read_timeout 120s;
        }
    }
}
""" % ("user root;" if os.geteuid() == 0 else "", self.workers, self.dir,
                self.dir, self.dir, self.dir, self.dir, self.dir, self.dir,
                "\n        ".join("server unix:%s max_fails=0;"
                                  % node.path("node.sock")
                                  for node in self.nodes), self.port))
        self.process = subprocess.Popen(
            [lib.NGINX, "-p", self.dir, "-c", path,
             "-e", os.path.join(self.dir, "error.log")],
            stdin=subprocess.DEVNULL)
        wait_for(lambda: answers(self.port), "the balancer does not start")
        return self

    def request(self, *args, key=None, headers=(), body=None, **kw):
        headers = list(headers) + ([key.bearer()] if key else [])
        return client.h1(self.port, *args, headers=headers, body=body, **kw)

    def post(self, target, body, key=None, headers=(), **kw):
        return self.request("POST", target, key=key, headers=headers,
                            body=body, **kw)

    def get(self, target, key=None, headers=(), **kw):
        return self.request("GET", target, key=key, headers=headers, **kw)

    def stop(self):
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(client.LIMIT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


def answers(port):
    try:
        client.Connection(port).close()
        return True
    except OSError:
        return False


def wait_for(done, what, timeout=LIMIT):
    end = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < end, what() if callable(what) else what
        time.sleep(0.02)


class Cluster:
    """directory: of the nodes'; a, b: the upstreams; n: nodes; servers: of
    PostgreSQL, or a database of one; none: one is made; options: of modelgw_cluster; proxied: there
    are proxies; conninfo: for all nodes, instead of the servers' sockets; more:
    Node's arguments, the same for all."""

    def __init__(self, directory, a, b, n=3, servers=None, options="",
                 founding="5.00", proxied=True, conninfo=None, zone="8m",
                 managed=1000, **more):
        self.dir = str(directory)
        self.a, self.b = a, b
        self.own = servers is None
        self.servers = servers or [postgres.Server()]
        self.options = options
        self.founding = founding
        self.zone = zone
        self.managed = managed          # keys
        self.proxied = proxied
        self.conninfo = conninfo
        self.more = more
        self.nodes = []
        self.balancer = None
        for i in range(n):
            self.add("gw%d" % (i + 1))

    def add(self, name, **kw):
        """One more node, not started."""
        node = Node(self, name, os.path.join(self.dir, name),
                    **dict(self.more, **kw))
        if self.nodes:
            first = self.nodes[0]
            for same in ("alice", "bob", "carol", "dave", "keys", "operators"):
                setattr(node, same, getattr(first, same))
        self.nodes.append(node)
        return node

    def start(self):
        for node in self.nodes:
            node.start()
        self.wait_joined()
        return self

    def balance(self):
        """The balancer; started when it is asked for first."""
        if self.balancer is None:
            self.balancer = Balancer(os.path.join(self.dir, "balancer"),
                                     self.nodes).start()
        return self.balancer

    def stop(self):
        """Returns what the nodes' logs have that they must not."""
        faults = []
        if self.balancer:
            self.balancer.stop()
        for node in self.running():
            node.process.send_signal(signal.SIGQUIT)
        for node in self.nodes:
            try:
                node.stop()
            except (AssertionError, OSError) as e:
                faults.append("%s: %s" % (node.name, e))
            finally:
                node.kill()
        return faults

    def remove(self):
        """Stops all that was started here, whatever has happened."""
        try:
            return self.stop()
        finally:
            for node in self.nodes:
                for proxy in node.proxies:
                    proxy.remove()
            if self.own:
                for server in self.servers:
                    server.remove()

    def heal(self):
        """No more faults of proxies."""
        for node in self.nodes:
            for proxy in node.proxies:
                proxy.clear()

    def expect(self, pattern=AWAY):
        """Lines of this kind in the logs are part of the test."""
        for node in self.nodes:
            node.expect(pattern)

    # the database

    @property
    def server(self):
        """The one that takes changes."""
        if len(self.servers) == 1:
            return self.servers[0]
        for server in self.servers:
            if server.started and not server.one(
                    "SELECT pg_is_in_recovery()"):
                return server
        raise AssertionError("there is no primary server")

    def query(self, sql, *args):
        return self.server.query(sql, *args)

    def one(self, sql, *args):
        return self.server.one(sql, *args)

    def now(self):
        return self.one("SELECT (extract(epoch FROM clock_timestamp()) "
                        "* 1000)::bigint")

    def free(self, account):
        """None: it was not opened yet."""
        rows = self.query("SELECT free FROM modelgw.accounts WHERE name = %s",
                          account)
        return rows[0]["free"] if rows else None

    def balance_of(self, account):
        """What nobody has, and what nodes have left."""
        return int(self.one(
            "SELECT free + coalesce((SELECT sum(%s) FROM modelgw.leases "
            "WHERE account = name), 0) FROM modelgw.accounts "
            "WHERE name = %%s" % LEFT, account))

    def cost_of(self, account):
        return int(self.one("SELECT coalesce(sum(cost), 0) FROM modelgw.calls "
                            "WHERE account = %s", account))

    def put(self, account, amount, id=None):
        """A top-up by hand, in one transaction: for tests of what is not about
        top-ups; the account may be opened a moment later."""
        self.wait(lambda: self.query("SELECT 1 FROM modelgw.accounts WHERE "
                                     "name = %s", account),
                  "there is no account " + account)
        self.server.run(
            "WITH t AS (INSERT INTO modelgw.topups (id, account, amount, "
            "time) SELECT coalesce(%s, md5(random()::text)), name, %s, 1 FROM "
            "modelgw.accounts WHERE name = %s FOR UPDATE RETURNING account, "
            "amount) UPDATE modelgw.accounts SET free = free + amount FROM t "
            "WHERE name = account", id, amount, account)

    def write_off(self, num):
        """Takes back what a node has left, alive or not; returns nano-euro by
        account."""
        with self.server.connect() as c:
            c.run("BEGIN")
            c.query("UPDATE modelgw.nodes SET epoch = epoch + 1, process = '',"
                    " state = 2 WHERE num = %s", num)
            c.query("SELECT a.name FROM modelgw.accounts a JOIN "
                    "modelgw.leases l ON l.account = a.name AND l.node = %s "
                    "AND " + LEFT + " > 0 ORDER BY a.name FOR UPDATE OF a",
                    num)
            c.run("UPDATE modelgw.accounts x SET free = free + " + LEFT +
                  " FROM modelgw.leases l WHERE l.node = %s AND l.account = "
                  "x.name AND " + LEFT + " > 0", num)
            rows = c.query(
                "WITH o AS (SELECT account, " + LEFT + " AS rest FROM "
                "modelgw.leases WHERE node = %s AND " + LEFT + " > 0) "
                "UPDATE modelgw.leases l SET forced = forced + o.rest FROM o "
                "WHERE l.node = %s AND l.account = o.account "
                "RETURNING l.account, o.rest", num, num)
            c.run("COMMIT")
        return {row["account"]: row["rest"] for row in rows}

    # waits

    def running(self):
        return [node for node in self.nodes if node.process]

    def wait(self, done, what, timeout=LIMIT):
        wait_for(done, what, timeout)

    def wait_joined(self, timeout=LIMIT):
        for node in self.running():
            self.wait(node.joined, lambda: "%s has not joined: %s" % (
                node.name, node.read("error.log")[-2000:]), timeout)

    def settle(self, timeout=LIMIT):
        """Until all running nodes have shipped all calls, and nothing is held:
        twice, as a call is settled a little after its answer has ended.  Those
        of others stay where they are."""
        for _ in range(2):
            for node in self.running():
                self.wait(node.shipped, lambda: "%s has not shipped: %s, %s, "
                          "%s; %s" % (
                              node.name, node.unshipped(), node.row(),
                              self.query("SELECT * FROM modelgw.leases WHERE "
                                         "node = %s AND held <> 0",
                                         node.num()),
                              node.read("error.log")[-1000:]), timeout)
            time.sleep(0.1)

    def wait_free(self, timeout=LIMIT):
        """Until nodes have given back what they do not use."""
        self.wait(lambda: self.lent() == {}, lambda: "lent are %s"
                  % self.lent(), timeout)

    def lent(self):
        return {(row["node"], row["account"]): row["rest"]
                for row in self.query(
                    "SELECT node, account, %s AS rest FROM modelgw.leases "
                    "WHERE %s <> 0" % (LEFT, LEFT))}

    # the books

    def differences(self, nodes=None):
        """All that is wrong with them, as text, after settle()."""
        return (self.audit()
                + [fault for node in nodes or self.nodes
                   for fault in self.compare(node)]
                + ["%d deadlocks" % s.deadlocks() for s in self.servers
                   if s.deadlocks()])

    def audit(self):
        return ["audit of %(account)s: %(balance)s, derived %(derived)s" % row
                for row in self.query(
                    "SELECT account, balance::bigint, derived::bigint "
                    "FROM modelgw.audit WHERE difference <> 0")]

    def compare(self, node):
        """Each row of a journal is in the database once, and no other one."""
        faults = ["%s, journal: %s" % (node.name, row)
                  for row in node.journal.faults()]
        row = node.row()
        if row is None:
            return faults + ["%s is not in the database" % node.name]
        mine = node.journal.calls()
        theirs = {}
        for call in self.query(
                "SELECT pos, %s FROM modelgw.calls WHERE node = %%s"
                % ", ".join(COLUMNS), row["num"]):
            theirs[call.pop("pos")] = call
        for pos in sorted(set(mine) | set(theirs)):
            if mine.get(pos) != theirs.get(pos):
                faults.append("%s, position %d: journal %s, database %s" % (
                    node.name, pos, mine.get(pos), theirs.get(pos)))
        return faults


# Clients.

class Answer:
    """What a client saw of a call: status None if it got none."""

    def __init__(self, node, begin, took, response):
        self.node = node            # its number in the list
        self.begin = begin          # time.time()
        self.took = took            # seconds
        self.status = response.status if response is not None else None
        self.response = response

    def __repr__(self):
        return "<gw%d at %.3f: %s in %.3f s>" % (
            self.node + 1, self.begin, self.status, self.took)


def call(cluster, n, key, body=None, timeout=client.LIMIT):
    """One chat call to a node, which may be killed meanwhile."""
    begin, at = time.time(), time.monotonic()
    try:
        r = cluster.nodes[n].chat(body, key, timeout=timeout)
    except OSError:
        r = None
    return Answer(n, begin, time.monotonic() - at, r)


class Load:
    """Threads that call nodes in turn, each with keys in turn, until stop();
    those of nodes that refuse connections go to the next one."""

    def __init__(self, cluster, keys, threads=4, nodes=None, pause=0.01,
                 body=None):
        self.cluster = cluster
        self.keys = keys
        self.nodes = list(nodes if nodes is not None
                          else range(len(cluster.nodes)))
        self.pause = pause
        self.body = body
        self.answers = []
        self.going = True
        self.threads = [threading.Thread(target=self.run, args=(i,))
                        for i in range(threads)]

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *exc):
        self.stop()

    def run(self, at):
        while self.going:
            n = self.nodes[at % len(self.nodes)]
            key = self.keys[at % len(self.keys)]
            self.answers.append(call(self.cluster, n, key, self.body))
            at += 1
            time.sleep(self.pause)

    def stop(self):
        self.going = False
        for t in self.threads:
            t.join()

    def refused(self):
        """The first answers that are not 200, and what they say."""
        return [(a, a.response and a.response.body) for a in self.answers
                if a.status != 200][:5]

    def statuses(self, since=0, until=float("inf"), nodes=None):
        """How many of each, of calls that began in the time."""
        out = {}
        for a in self.answers:
            if since <= a.begin < until and (nodes is None
                                             or a.node in nodes):
                out[a.status] = out.get(a.status, 0) + 1
        return out

    def wait(self, n, status=200, timeout=LIMIT, nodes=None):
        """Until so many more calls had the status."""
        before = self.statuses(nodes=nodes).get(status, 0)
        wait_for(lambda: self.statuses(nodes=nodes).get(status, 0)
                 >= before + n, lambda: "calls end with %s"
                 % self.statuses(), timeout)


class Race:
    """As many clients at once as there are bodies, over all nodes in turn, with
    an upstream that answers when it is told to."""

    def __init__(self, cluster, key, body, clients):
        self.upstream = cluster.b
        self.gate = threading.Event()
        self.upstream.script(raw(self.gate, both))
        self.before = len(self.upstream.requests)
        data = client.build("POST", "/v1/chat/completions", [key.bearer()],
                            body)
        nodes = cluster.running()
        self.open = {}
        for i in range(clients):
            c = client.Connection(nodes[i % len(nodes)].port)
            self.open[c.sock.fileno()] = c
        self.poll = select.poll()
        for fd, c in self.open.items():
            c.send(data)
            self.poll.register(fd, select.POLLIN)
        self.responses = []

    def read(self, until, timeout=LIMIT):
        """Reads responses until so many have been read."""
        end = time.monotonic() + timeout
        while len(self.responses) < until:
            assert time.monotonic() < end, "%d of %d responses: %s" % (
                len(self.responses), until, self.statuses())
            for fd, _ in self.poll.poll(100):
                self.poll.unregister(fd)
                c = self.open.pop(fd)
                self.responses.append(c.response())
                c.close()
        return self

    def statuses(self):
        out = {}
        for r in self.responses:
            status = r.status if r is not None else None
            out[status] = out.get(status, 0) + 1
        return out

    def sent(self):
        """How many have reached the upstream."""
        return len(self.upstream.requests) - self.before

    def finish(self):
        """The upstream answers; all others have been read."""
        self.gate.set()
        return self.read(len(self.responses) + len(self.open))

    def close(self):
        self.gate.set()
        for c in self.open.values():
            c.close()
