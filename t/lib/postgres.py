"""PostgreSQL servers in directories of their own, for tests of clusters.

MODELGW_POSTGRES   its programs; /usr/lib/postgresql/15/bin

initdb runs once, and each server begins with a copy of its result, which is kept
in the build directory.  Most tests need a database only: Server.database() makes
one within 0.1 s, where a server takes seconds.  Servers listen on a socket in their directory; with tls=True also on a port of
loopback, with a certificate made here.  They sync to disk as Debian's do, and
run as the user postgres if the tests run as root, which PostgreSQL refuses to.

The nodes' role is modelgw: a password, and no more rights than it needs.  What
tests ask and change themselves they do as the superuser, by Connection: a few
lines of the protocol (PostgreSQL 15, chapter 55), so that nothing has to be
installed.
"""

import atexit
import fcntl
import os
import re
import secrets
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
BIN = os.environ.get("MODELGW_POSTGRES", "/usr/lib/postgresql/15/bin")
CTL = os.path.join(ROOT, "conf/modelgwctl")
BUILD = os.environ.get("MODELGW_BUILD", os.path.join(ROOT, "build"))
LIMIT = 60          # seconds, for a server to start or to stop
DATABASE = ROLE = "modelgw"
OWNER = "modelgw_owner"
PORT = 5432         # in the names of sockets
HOST = "db.test"    # in the certificate

CONFIG = """
port = %(port)d
unix_socket_directories = '%(sockets)s'
listen_addresses = '%(addresses)s'
max_connections = 200
superuser_reserved_connections = 10
shared_buffers = 32MB
max_wal_senders = 5
wal_keep_size = 256MB
hot_standby = on
log_lock_waits = on
deadlock_timeout = 10ms
log_line_prefix = '%%m [%%p] %%d %%a '
log_connections = on
%(tls)s
%(more)s
"""

# The superuser and the owner of the tables need the socket only; who else comes
# has a password, and TLS if not by a socket.

HBA = """
local all          postgres  trust
local replication  postgres  trust
local all          modelgw_owner  trust
local all          all       scram-sha-256
hostssl all        all       127.0.0.1/32 scram-sha-256
"""


class Error(Exception):
    """The server's: code is its SQLSTATE."""

    def __init__(self, fields):
        self.code = fields.get("C", "")
        super().__init__("%s %s" % (self.code, fields.get("M", "")))


def as_server(command, check=True, **kw):
    """Runs a program as the user that owns the servers."""
    if os.geteuid() == 0:
        kw.update(user="postgres", group="postgres", extra_groups=[])
    kw.setdefault("cwd", "/")
    p = subprocess.run([os.path.join(BIN, command[0])] + command[1:],
                       stdin=subprocess.DEVNULL, capture_output=True,
                       text=True, timeout=2 * LIMIT, **kw)
    if check and p.returncode:
        raise RuntimeError("%s: %s%s" % (" ".join(command), p.stdout,
                                         p.stderr))
    return p


def own(path):
    if os.geteuid() == 0:
        shutil.chown(path, "postgres", "postgres")


def directory():
    """A temporary one, in which servers can be; removed at the end of this
    process.  Its name is short: those of sockets have a limit."""
    path = tempfile.mkdtemp(prefix="mgw-pg-")
    os.chmod(path, 0o755)
    own(path)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def copy_template(to):
    """What initdb has made: by the first process that asks."""
    os.makedirs(BUILD, exist_ok=True)
    version = as_server(["postgres", "-V"]).stdout.split()[2]
    path = os.path.join(BUILD, "postgres-" + version)
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            made = os.path.join(directory(), "data")
            as_server(["initdb", "-D", made, "-A", "trust", "-N",
                       "-U", "postgres", "--no-instructions",
                       "--locale=C.UTF-8", "-E", "UTF8", "--wal-segsize=1"])
            copy(made, path + ".new")
            os.rename(path + ".new", path)
    copy(path, to)


def copy(path, to):
    """With the owners, by one who can read the build directory."""
    shutil.rmtree(to, ignore_errors=True)
    subprocess.run(["cp", "-a", path, to], check=True, timeout=2 * LIMIT)


# Certificates.

class Authority:
    """Signs the certificates of servers; files in a directory."""

    def __init__(self, path, name="ca"):
        self.dir = path
        self.ca = os.path.join(path, name + ".pem")
        self.key = os.path.join(path, name + ".key")
        openssl("req", "-x509", "-subj", "/CN=" + name, "-keyout", self.key,
                "-out", self.ca, *NEW)

    def sign(self, name, host):
        """Writes NAME.pem and NAME.key for a host."""
        cert, key, csr = (os.path.join(self.dir, name + end)
                          for end in (".pem", ".key", ".csr"))
        openssl("req", "-new", "-subj", "/CN=" + host, "-keyout", key,
                "-out", csr, *NEW)
        extensions = os.path.join(self.dir, name + ".ext")
        with open(extensions, "w") as f:
            f.write("subjectAltName=DNS:%s\n" % host)
        openssl("x509", "-req", "-in", csr, "-CA", self.ca, "-CAkey",
                self.key, "-CAcreateserial", "-out", cert, "-days", "2",
                "-extfile", extensions)
        for path in (cert, key):
            own(path)
        os.chmod(key, 0o600)
        return cert, key


NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
       "-days", "2")


def openssl(*args):
    args = [a for a in args if not (args[1] == "-new" and a in ("-days", "2"))]
    subprocess.run(["openssl"] + args, check=True, capture_output=True,
                   timeout=LIMIT)


class Database:
    """What tests ask of one, and change in it.  It has a name, a password for
    the role, and top and port of its server's socket."""

    def __init__(self):
        self.local = threading.local()      # a connection of each thread

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()

    def install(self):
        p = subprocess.run(
            [CTL, "cluster", "init", self.owner(), "--role", ROLE],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=LIMIT)
        assert p.returncode == 0, p.stderr

    def deadlocks(self):
        return self.log().count("deadlock detected")

    # who connects

    def socket(self):
        return os.path.join(self.top, ".s.PGSQL.%d" % self.port)

    def conninfo(self, host=None, port=None, user=ROLE):
        """For a node; the password is in a file."""
        return "host=%s port=%d dbname=%s user=%s" % (
            host or self.top, port or self.port, self.name, user)

    def owner(self):
        """For modelgwctl, as the owner of the tables."""
        return self.conninfo(user=OWNER)

    def connect(self, database=None):
        return Connection(self.socket(), database or self.name)

    def query(self, sql, *args, database=None):
        """Rows as dicts; "%s" in the statement are replaced by the
        arguments."""
        if database:
            with self.connect(database) as c:
                return c.query(sql, *args)
        c = getattr(self.local, "connection", None)
        if c is None or c.ended():
            c = self.local.connection = self.connect()
        return c.query(sql, *args)

    def one(self, sql, *args):
        """The only value."""
        (row,) = self.query(sql, *args)
        (value,) = row.values()
        return value

    def run(self, sql, *args):
        self.query(sql, *args)

    def disconnect(self):
        """All connections of nodes are ended by the server."""
        with self.connect("postgres") as c:
            return len(c.query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE usename = %s AND datname = %s", ROLE, self.name))

    def wait(self, sql, value=True, timeout=LIMIT, args=()):
        """Until the only value of the query is this one."""
        end = time.monotonic() + timeout
        while True:
            got = self.one(sql, *args)
            if got == value:
                return
            assert time.monotonic() < end, "%s: %r" % (sql, got)
            time.sleep(0.02)

    # dump

    def dump(self):
        """The name of a file with what pg_dump says now."""
        path = os.path.join(self.top, "dump-%s" % secrets.token_hex(4))
        as_server(["pg_dump", "-h", self.top, "-p", str(self.port),
                   "-U", "postgres", "-Fc", "-f", path, self.name])
        return path

    def restore(self, path):
        """The database is what it was; whoever is connected is cut off."""
        with self.connect("postgres") as c:
            c.run("DROP DATABASE %s WITH (FORCE)" % self.name)
            c.run("CREATE DATABASE %s OWNER %s" % (self.name, OWNER))
        as_server(["pg_restore", "-h", self.top, "-p", str(self.port),
                   "-U", "postgres", "-d", self.name, "--exit-on-error",
                   path])


class Lent(Database):
    """One of a server that has others, too: it can be dropped, but not be
    stopped."""

    started = True

    def __init__(self, server, name):
        super().__init__()
        self.server = server
        self.name = name
        self.top, self.port = server.top, server.port
        self.password = server.password

    def log(self):
        """Lines of this database's processes."""
        return "".join(line for line in self.server.log().splitlines(True)
                       if "] %s " % self.name in line)

    def stop(self, *args):
        raise AssertionError("others use this server: a test that stops one "
                             "takes the fixture \"server\"")

    start = crash = standby = stop

    def remove(self):
        with self.connect("postgres") as c:
            c.run("DROP DATABASE %s WITH (FORCE)" % self.name)


class Server(Database):
    """options: lines of postgresql.conf; schema: with the tables, as modelgwctl
    makes them."""

    name = DATABASE

    def __init__(self, options="", schema=True, tls=False, start=True):
        super().__init__()
        self.top = directory()
        self.data = os.path.join(self.top, "data")
        self.options = options
        self.schema = schema
        self.port = PORT
        self.password = "pw-" + secrets.token_hex(16)
        self.tls = tls
        self.started = False
        self.lent = 0
        if tls:
            self.authority = Authority(self.top)
            self.authority.sign("server", HOST)
            from gateway import free_port      # the bench has no venv
            self.tcp = free_port()
            self.port = self.tcp
        if start:
            copy_template(self.data)
            self.configure()
            self.start()
            self.create()

    def configure(self, more=""):
        tls = ""
        if self.tls:
            tls = ("ssl = on\nssl_cert_file = '%s/server.pem'\n"
                   "ssl_key_file = '%s/server.key'" % (self.top, self.top))
        text = CONFIG % {
            "port": self.port, "sockets": self.top, "tls": tls,
            "addresses": "127.0.0.1" if self.tls else "",
            "more": self.options + "\n" + more}
        for name, text in (("modelgw.conf", text), ("pg_hba.conf", HBA)):
            path = os.path.join(self.data, name)
            with open(path, "w") as f:
                f.write(text)
            own(path)
        main = os.path.join(self.data, "postgresql.conf")
        with open(main) as f:
            included = "modelgw.conf" in f.read()
        if not included:
            with open(main, "a") as f:
                f.write("include 'modelgw.conf'\n")

    def create(self):
        """Database, roles and schema."""
        with self.connect("postgres") as c:
            c.run("CREATE ROLE %s LOGIN PASSWORD %s"
                  % (ROLE, quote(self.password)))
            c.run("CREATE ROLE %s LOGIN" % OWNER)
            c.run("CREATE DATABASE %s OWNER %s" % (DATABASE, OWNER))
        if self.schema:
            self.install()

    def database(self, schema=True):
        """Another one, made of the first one, to which nobody is connected;
        without schema it is empty."""
        self.lent += 1
        d = Lent(self, "%s_%d" % (DATABASE, self.lent))
        with self.connect("postgres") as c:
            c.run("CREATE DATABASE %s OWNER %s TEMPLATE %s" % (
                d.name, OWNER, self.name if schema else "template1"))
        if schema:
            d.run("UPDATE modelgw.cluster SET id = md5(random()::text || id)")
        return d

    def replace(self, other):
        """Has the name and the password of a database of another server."""
        with self.connect("postgres") as c:
            if other.name != self.name:
                c.run("ALTER DATABASE %s RENAME TO %s"
                      % (self.name, other.name))
            c.run("ALTER ROLE %s PASSWORD %s" % (ROLE, quote(other.password)))
        self.name, self.password = other.name, other.password

    # the process

    def control(self, *args, check=True):
        return as_server(["pg_ctl", "-D", self.data, "-w", "-t", str(LIMIT)]
                         + list(args), check)

    def start(self):
        log = os.path.join(self.top, "log")
        try:
            self.control("-l", log, "start")
        except RuntimeError as e:
            raise RuntimeError(str(e) + self.log()[-2000:])
        self.started = True
        atexit.register(self.stop)      # of a test that was interrupted
        return self

    def stop(self, mode="immediate"):
        """immediate: all its processes are killed, as by a crash."""
        if self.started:
            self.started = False
            atexit.unregister(self.stop)
            self.control("-m", mode, "stop")

    def crash(self):
        self.stop("immediate")
        self.start()

    def remove(self):
        self.stop()
        shutil.rmtree(self.top, ignore_errors=True)

    def log(self):
        try:
            with open(os.path.join(self.top, "log"), errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def tls_conninfo(self, port=None, host=HOST, ca=None):
        return ("host=%s hostaddr=127.0.0.1 port=%d dbname=%s user=%s "
                "sslmode=verify-full sslrootcert=%s"
                % (host, port or self.port, DATABASE, ROLE,
                   ca or self.authority.ca))

    # standby

    def standby(self):
        """Another server, which follows this one: the same password, and a
        directory of its own."""
        other = Server(self.options, start=False)
        other.password = self.password
        as_server(["pg_basebackup", "-h", self.top, "-p", str(self.port),
                   "-U", "postgres", "-D", other.data, "-R", "-c", "fast",
                   "-X", "stream"])
        other.configure()
        other.start()
        return other

    def caught_up(self, standby, timeout=LIMIT):
        """Waits until the standby has all of this server's changes."""
        end = time.monotonic() + timeout
        at = self.one("SELECT pg_current_wal_lsn()::text")
        while not standby.one("SELECT coalesce(pg_last_wal_replay_lsn() >= "
                              "%s::pg_lsn, false)", at):
            assert time.monotonic() < end, "the standby is behind"
            time.sleep(0.02)

    def cut(self):
        """This standby hears nothing more of its primary."""
        with self.connect("postgres") as c:
            c.run("ALTER SYSTEM SET primary_conninfo = ''")
            c.query("SELECT pg_reload_conf()")
        end = time.monotonic() + LIMIT
        while self.query("SELECT 1 FROM pg_stat_wal_receiver",
                         database="postgres"):
            assert time.monotonic() < end, "replication goes on"
            time.sleep(0.01)

    def promote(self):
        self.control("promote")


def quote(value):
    """A literal of SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        return "'\\x%s'::bytea" % value.hex()
    return "'%s'" % str(value).replace("'", "''")


# The types that are not texts, by OID: pg_type.dat

TYPES = {16: lambda s: s == "t", 17: lambda s: bytes.fromhex(s[2:]),
         20: int, 21: int, 23: int, 26: int, 700: float, 701: float,
         1700: lambda s: float(s) if "." in s else int(s)}


class Connection:
    """Of the superuser, by a socket; one statement after another."""

    def __init__(self, path, database, user="postgres", timeout=LIMIT):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.data = b""
        try:
            self.sock.connect(path)
            pairs = {"user": user, "database": database,
                     "application_name": "test"}
            body = struct.pack(">i", 3 << 16) + b"".join(
                b"%s\0%s\0" % (k.encode(), v.encode())
                for k, v in pairs.items()) + b"\0"
            self.sock.sendall(struct.pack(">i", len(body) + 4) + body)
            self.answer()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.sock.close()

    def ended(self):
        """By the server, or by a query without an answer."""
        if self.sock.fileno() == -1:
            return True
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))

    def query(self, sql, *args):
        """Rows of the last statement, as dicts."""
        if args:
            sql = sql % tuple(quote(a) for a in args)
        text = sql.encode() + b"\0"
        try:
            self.sock.sendall(b"Q" + struct.pack(">i", len(text) + 4) + text)
            return self.answer()
        except OSError:
            self.close()
            raise

    def run(self, sql, *args):
        self.query(sql, *args)

    def answer(self):
        """Up to ReadyForQuery; an error is raised then."""
        rows, columns, error = [], [], None
        while True:
            kind, body = self.message()
            if kind == b"T":
                columns, rows = self.columns(body), []
            elif kind == b"D":
                rows.append(self.row(columns, body))
            elif kind == b"E":
                error = Error({f[:1].decode(): f[1:].decode()
                               for f in body.split(b"\0") if f})
                if error.code[:3] in ("28P", "28000", "57P", "3D0", "53300"):
                    raise error         # the connection ends
            elif kind == b"R" and body[:4] != b"\0\0\0\0":
                raise Error({"M": "a password is asked for"})
            elif kind == b"Z":
                if error:
                    raise error
                return rows

    def columns(self, body):
        (n,) = struct.unpack(">h", body[:2])
        at, out = 2, []
        for _ in range(n):
            end = body.index(b"\0", at)
            (oid,) = struct.unpack(">i", body[end + 7:end + 11])
            out.append((body[at:end].decode(), oid))
            at = end + 19
        return out

    def row(self, columns, body):
        at, out = 2, {}
        for name, oid in columns:
            (size,) = struct.unpack(">i", body[at:at + 4])
            at += 4
            value = None
            if size >= 0:
                value = TYPES.get(oid, str)(body[at:at + size].decode())
                at += size
            out[name] = value
        return out

    def message(self):
        head = self.read(5)
        (size,) = struct.unpack(">i", head[1:])
        return head[:1], self.read(size - 4)

    def read(self, size):
        while len(self.data) < size:
            part = self.sock.recv(65536)
            if not part:
                raise ConnectionError("the server has closed the connection")
            self.data += part
        out, self.data = self.data[:size], self.data[size:]
        return out


def lock_waits(log):
    """Seconds of the waits for locks that the log tells of."""
    return [float(ms) / 1000 for ms in re.findall(
        r"acquired \w+ on .* after ([\d.]+) ms", log)]
