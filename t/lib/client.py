"""An HTTP/1.1 client on a raw socket, so that tests control each byte and see
how each response ended; and an HTTP/2 client that does the same."""

import json
import socket
import struct
import time

import h2.config
import h2.connection
import h2.errors
import h2.events

LIMIT = 30          # seconds to wait for anything, enough on a busy machine


class Response:
    """complete is True if the framing ended properly."""

    def __init__(self, status=None, headers=(), reason=""):
        self.status = status
        self.reason = reason
        self.headers = list(headers)
        self.data = bytearray()     # of the body
        self.complete = False
        self.over = False           # HTTP/2: the stream has ended
        self.framing = None         # "sized", "chunked", "close", "h2"

    def all(self, name):
        return [v for n, v in self.headers if n.lower() == name.lower()]

    def get(self, name, default=None):
        return (self.all(name) or [default])[0]

    @property
    def body(self):
        return bytes(self.data)

    def json(self):
        return json.loads(self.data)

    def __repr__(self):
        return "<%s %s %s%s>" % (self.status, self.headers,
                                 self.body[:300],
                                 "" if self.complete else " (cut)")


def build(method, target, headers=(), body=None, chunked=False,
          version="HTTP/1.1", host="gateway.test", length=None):
    """The bytes of a request.  body may be bytes, str or JSON."""
    if isinstance(body, (dict, list)):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode()

    out = ["%s %s %s" % (method, target, version)]
    if host is not None:
        out.append("Host: " + host)
    out += ["%s: %s" % h for h in headers]

    if chunked:
        out.append("Transfer-Encoding: chunked")
    elif body is not None or length is not None:
        out.append("Content-Length: %d"
                   % (len(body) if length is None else length))

    head = "\r\n".join(out).encode("utf-8") + b"\r\n\r\n"
    if not chunked:
        return head + (body or b"")
    return head + chunks(body or b"", chunked if chunked is not True
                         else 4096)


def chunks(body, size):
    out = []
    for i in range(0, len(body), size):
        part = body[i:i + size]
        out.append(b"%x\r\n" % len(part) + part + b"\r\n")
    return b"".join(out) + b"0\r\n\r\n"


class Connection:

    def __init__(self, port, rcvbuf=None, source=None):
        self.sock = socket.socket()
        if source:                  # the client's address
            self.sock.bind((source, 0))
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.settimeout(LIMIT)
        self.sock.connect(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""
        self.eof = None             # "fin", "reset"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.sock.close()

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                             struct.pack("ii", 1, 0))
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def try_send(self, data):
        """Sends as much as the gateway reads; False if the connection is
        closed."""
        try:
            self.sock.sendall(data)
            return True
        except OSError:
            return False

    def request(self, *args, **kw):
        self.send(build(*args, **kw))

    def recv(self, timeout=LIMIT):
        """Reads more into self.data; False at the end, or TimeoutError."""
        if self.eof:
            return False
        self.sock.settimeout(timeout)
        try:
            part = self.sock.recv(262144)
        except TimeoutError:
            raise
        except OSError:
            self.eof = "reset"
            return False
        if not part:
            self.eof = "fin"
            return False
        self.data += part
        return True

    def head(self, timeout=LIMIT):
        """Reads a response head; None if the connection ended before it.
        Interim responses are kept in .interim and skipped."""
        end = time.monotonic() + timeout
        interim = []
        while True:
            while b"\r\n\r\n" not in self.data:
                if not self.recv(max(end - time.monotonic(), 0.01)):
                    return None
            head, self.data = self.data.split(b"\r\n\r\n", 1)
            lines = head.decode("latin-1").split("\r\n")
            parts = lines[0].split(" ", 2)
            assert parts[0] in ("HTTP/1.1", "HTTP/1.0"), head[:300]
            r = Response(int(parts[1]), reason=(parts + [""])[2])
            for line in lines[1:]:
                name, sep, value = line.partition(":")
                assert sep, head
                r.headers.append((name, value.strip()))
            if 100 <= r.status < 200 and r.status != 101:
                interim.append(r)
                continue
            r.interim = interim
            break

        if r.get("transfer-encoding"):
            r.framing = "chunked"
        elif r.get("content-length") is not None:
            r.framing = "sized"
        else:
            r.framing = "close"
        self.current = r
        self.left = int(r.get("content-length") or 0)
        return r

    def read(self, timeout=LIMIT):
        """Some bytes of the current body; b"" when it has ended, properly
        (current.complete) or not."""
        r = self.current
        if r.complete:
            return b""
        if r.framing == "sized":
            if not self.left:
                r.complete = True
                return b""
            if not self.data and not self.recv(timeout):
                return b""
            part, self.data = self.data[:self.left], self.data[self.left:]
            self.left -= len(part)
        elif r.framing == "close":
            if not self.data and not self.recv(timeout):
                r.complete = self.eof == "fin"
                return b""
            part, self.data = self.data, b""
        else:
            part = self._chunk(timeout)
            if part is None:
                return b""
            if not part:
                r.complete = True
                return b""
        r.data += part
        return part

    def _chunk(self, timeout):
        end = time.monotonic() + timeout
        while b"\r\n" not in self.data:
            if not self.recv(max(end - time.monotonic(), 0.01)):
                return None
        line, rest = self.data.split(b"\r\n", 1)
        size = int(line.split(b";")[0], 16)
        pieces, have = [rest], len(rest)
        while have < size + 2:
            self.data = b""
            if not self.recv(max(end - time.monotonic(), 0.01)):
                self.current.data += b"".join(pieces)[:size]
                return None
            pieces.append(self.data)
            have += len(self.data)
        rest = b"".join(pieces)
        assert rest[size:size + 2] == b"\r\n", "broken chunk"
        self.data = rest[size + 2:]
        return rest[:size]

    def response(self, timeout=LIMIT, method="POST"):
        """A whole response; None if the connection ended before it."""
        r = self.head(timeout)
        if r is None:
            return None
        if method == "HEAD" or r.status in (204, 304):
            r.complete = True
            r.framing = "none"
            return r
        end = time.monotonic() + timeout
        while self.read(max(end - time.monotonic(), 0.01)):
            pass
        return r

    def event(self, timeout=LIMIT):
        """The next event of a stream, with its blank line; b"" at the end."""
        end = time.monotonic() + timeout
        seen = getattr(self.current, "taken", 0)
        while True:
            rest = bytes(self.current.data[seen:])
            at = rest.find(b"\n\n")
            if at >= 0:
                self.current.taken = seen + at + 2
                return rest[:at + 2]
            if not self.read(max(end - time.monotonic(), 0.01)):
                return b""

    def closed(self, timeout=LIMIT):
        """True if the gateway closes the connection without another byte."""
        end = time.monotonic() + timeout
        while not self.eof and not self.data:
            try:
                self.recv(max(end - time.monotonic(), 0.01))
            except TimeoutError:
                return False
        return not self.data

    def alive(self):
        """True if the connection is open and has nothing to read."""
        if self.data or self.eof:
            return False
        try:
            self.recv(0.1)
        except TimeoutError:
            return True
        return False


def h1(port, *args, timeout=LIMIT, source=None, **kw):
    """One request on a connection of its own."""
    with Connection(port, source=source) as c:
        c.request(*args, **kw)
        return c.response(timeout, method=args[0])


class H2:
    """HTTP/2 with prior knowledge (RFC 9113, 3.3) on the h2 library.  It keeps
    reading when a stream is reset while it sends: a response may come before
    its request has ended (8.1)."""

    def __init__(self, port, source=None):
        self.wire = Connection(port, source=source)
        self.conn = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=True, header_encoding="utf-8",
            validate_outbound_headers=False,
            normalize_outbound_headers=False))
        self.conn.initiate_connection()
        self.flush()
        self.streams = {}

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.wire.close()

    def flush(self):
        return self.wire.try_send(self.conn.data_to_send())

    def request(self, method, target, headers=(), body=None, frame=None,
                length=True, host="gateway.test"):
        """Sends a request, as much as the server reads; returns its stream id.
        length may be False, or a wrong number."""
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        head = [(":method", method), (":scheme", "http"),
                (":authority", host), (":path", target)]
        head += [(n.lower(), v) for n, v in headers]
        if body is not None and length is not False:
            head.append(("content-length",
                         str(len(body) if length is True else length)))
        sid = self.conn.get_next_available_stream_id()
        self.streams[sid] = Response()
        self.streams[sid].framing = "h2"
        self.conn.send_headers(sid, head, end_stream=body is None)
        self.flush()
        if body is not None:
            self._body(sid, body, frame)
        return sid

    def _body(self, sid, body, frame):
        at = 0
        end = time.monotonic() + LIMIT
        while not self.streams[sid].over:
            room = min(self.conn.local_flow_control_window(sid),
                       self.conn.max_outbound_frame_size,
                       frame or len(body), len(body) - at)
            if room == 0 and at < len(body):
                self.wait(max(end - time.monotonic(), 0.01))
                continue
            self.conn.send_data(sid, body[at:at + room],
                                end_stream=at + room == len(body))
            at += room
            self.flush()
            if at == len(body):
                return

    def reset(self, sid):
        self.conn.reset_stream(sid, h2.errors.ErrorCodes.CANCEL)
        self.flush()

    def wait(self, timeout=LIMIT):
        """Reads frames once; False at the end of the connection."""
        if not self.wire.recv(timeout):
            for r in self.streams.values():
                r.over = True
            return False
        data, self.wire.data = self.wire.data, b""
        for e in self.conn.receive_data(data):
            r = self.streams.get(getattr(e, "stream_id", 0) or 0)
            if isinstance(e, h2.events.ResponseReceived):
                r.status = int(dict(e.headers)[":status"])
                r.headers = [h for h in e.headers if h[0][0] != ":"]
            elif isinstance(e, h2.events.DataReceived):
                r.data += e.data
                self.conn.acknowledge_received_data(
                    e.flow_controlled_length, e.stream_id)
            elif isinstance(e, h2.events.StreamEnded):
                r.complete = r.over = True
            elif isinstance(e, h2.events.StreamReset):
                r.over = True
                r.reset = e.error_code
            elif isinstance(e, h2.events.ConnectionTerminated):
                for other in self.streams.values():
                    other.over = True
        self.flush()
        return True

    def response(self, sid, timeout=LIMIT):
        """The whole response; None if the stream ended before it."""
        end = time.monotonic() + timeout
        while not self.streams[sid].over:
            self.wait(max(end - time.monotonic(), 0.01))
        r = self.streams[sid]
        return r if r.status else None

    def body(self, sid, n, timeout=LIMIT):
        """Waits for n bytes of the body, or its end."""
        end = time.monotonic() + timeout
        r = self.streams[sid]
        while len(r.data) < n and not r.over:
            self.wait(max(end - time.monotonic(), 0.01))
        return r.body

    def call(self, *args, **kw):
        return self.response(self.request(*args, **kw))


def h2_call(port, *args, source=None, **kw):
    """One request on a connection of its own."""
    with H2(port, source) as c:
        return c.call(*args, **kw)


# What holds for every response.

NO_RETRY_HINT = (408, 409, 429)


def assert_ids(r):
    """request-id and x-request-id, once each, and the same."""
    assert len(r.all("request-id")) == 1, r
    assert len(r.all("x-request-id")) == 1, r
    assert r.get("request-id") == r.get("x-request-id") != "", r


def assert_flat(r, status, code=None, message=None, has=None):
    """A flat error with all of its headers."""
    assert r is not None, "no response"
    assert r.status == status if isinstance(status, int) \
        else r.status in status, r
    assert r.complete, r
    assert (r.get("content-type") or "").split(";")[0] \
        == "application/json", r
    assert_ids(r)

    body = r.json()
    assert sorted(body) == ["code", "message"], r
    assert isinstance(body["code"], str) and isinstance(body["message"], str)
    assert body["message"], r
    if code is not None:
        assert body["code"] == code if isinstance(code, str) \
            else body["code"] in code, r
    if message is not None:
        assert body["message"] == message, r
    if has is not None:
        assert has in body["message"], r

    if 400 <= r.status < 500 and r.status not in NO_RETRY_HINT:
        assert r.all("x-should-retry") == ["false"], r
    else:
        assert r.all("x-should-retry") != ["false"], r
    if r.status == 429:
        assert r.get("retry-after"), r
    if r.get("retry-after") is not None:
        assert len(r.all("retry-after")) == 1, r
        assert r.get("retry-after").isdigit(), r
        assert 1 <= int(r.get("retry-after")) <= 60, r
    return body
