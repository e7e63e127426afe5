"""A scripted upstream: an HTTP/1.1 server on loopback, on raw sockets, that
records the bytes of each request and answers as the test scripts it.

A script is a callable that gets an Exchange.  reply(), reply_json(), sse() and
raw() make the usual ones; without a script both() answers all protocols as a
vendor would.  Nothing here depends on the gateway.
"""

import fcntl
import json
import select
import socket
import ssl
import struct
import termios
import threading
import time

LIMIT = 60          # seconds, the longest wait in a script

REASONS = {200: "OK", 204: "No Content", 302: "Found", 400: "Bad Request",
           401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests",
           500: "Internal Server Error", 503: "Service Unavailable"}


class Gone(Exception):
    """The gateway has closed the connection."""


class Hangup(Exception):
    """The script has closed the connection."""


class Request:
    """One request as received: nothing is decoded, folded or sorted."""

    def __init__(self, head, conn, number):
        lines = head.decode("latin-1").split("\r\n")

        self.head = head
        self.line = lines[0]
        self.headers = [tuple(line.split(": ", 1)) if ": " in line
                        else (line.rstrip(":"), "") for line in lines[1:]]
        self.body = b""
        self.conn = conn            # number of the connection
        self.number = number        # of the request on it, from 0
        self.gone = threading.Event()

    @property
    def method(self):
        return self.line.split(" ")[0]

    @property
    def target(self):
        return self.line.split(" ")[1]

    def all(self, name):
        return [v for n, v in self.headers if n.lower() == name.lower()]

    def get(self, name, default=None):
        return (self.all(name) or [default])[0]

    def names(self):
        return sorted(n.lower() for n, v in self.headers)

    def json(self):
        return json.loads(self.body)


def unread(sock):
    """Bytes that the other end of a connection on this machine has not read."""
    ends = ["0100007F:%04X" % a[1] for a in (sock.getsockname(),
                                             sock.getpeername())]
    waiting = 0
    with open("/proc/net/tcp") as f:
        for line in f.readlines()[1:]:
            local, remote, _, queues = line.split()[1:5]
            sent, received = queues.split(":")
            if [local, remote] == ends:
                waiting += int(sent, 16)
            if [remote, local] == ends:
                waiting += int(received, 16)
    return waiting


class Exchange:
    """A request and its connection."""

    def __init__(self, server, sock, data, request):
        self.server = server
        self.sock = sock
        self.data = data            # read, but not part of the request
        self.request = request
        self.framing = "sized"
        self.close_after = False

    def send(self, *parts):
        try:
            self.sock.sendall(b"".join(parts))
        except OSError as e:
            self.request.gone.set()
            raise Gone() from e

    def head(self, status=200, headers=(), length=None, framing="sized",
             reason=None):
        """Sends the head; framing is "sized", "chunked" or "close"."""
        out = ["HTTP/1.1 %d %s" % (status,
                                   reason or REASONS.get(status, "Some"))]
        out += ["%s: %s" % h for h in headers]

        if framing == "chunked":
            out.append("Transfer-Encoding: chunked")
        elif framing == "close":
            out.append("Connection: close")
            self.close_after = True
        elif length is not None:
            out.append("Content-Length: %d" % length)

        self.framing = framing
        self.send("\r\n".join(out).encode("latin-1"), b"\r\n\r\n")

    def body(self, data):
        """Sends a piece of the body in the framing of the head."""
        if self.framing == "chunked":
            if data:
                self.send(b"%x\r\n" % len(data), data, b"\r\n")
        else:
            self.send(data)

    def end(self, how="clean"):
        """Ends the answer: "clean", "close", "reset", or "stall"."""
        if how == "clean":
            if self.framing == "chunked":
                self.send(b"0\r\n\r\n")
            if self.close_after:
                raise Hangup()
        elif how == "close":
            raise Hangup()
        elif how == "reset":
            self.reset()
        elif how == "stall":
            self.wait_gone()
            raise Hangup()
        else:
            raise ValueError(how)

    def wait_taken(self, timeout=LIMIT):
        """Waits until all that was sent is in the gateway's socket buffer."""
        left = bytearray(4)
        end = time.monotonic() + timeout
        while True:
            fcntl.ioctl(self.sock, termios.TIOCOUTQ, left)
            if not any(left):
                return
            assert time.monotonic() < end, "the gateway does not read"
            time.sleep(0.001)

    def reset(self):
        """Resets the connection when the gateway has read what was sent: a
        reset discards the rest."""
        end = time.monotonic() + LIMIT
        while unread(self.sock) and time.monotonic() < end:
            time.sleep(0.002)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                             struct.pack("ii", 1, 0))
        raise Hangup()

    def wait_gone(self, timeout=LIMIT):
        """Waits until the gateway closes the connection; True if it did."""
        end = time.monotonic() + timeout
        while time.monotonic() < end and not self.server.stopped.is_set():
            if self.peer_closed(0.1):
                self.request.gone.set()
                return True
        return False

    def peer_closed(self, timeout):
        r, _, _ = select.select([self.sock], [], [], timeout)
        if not r:
            return False
        try:
            if isinstance(self.sock, ssl.SSLSocket):
                return self.sock.recv(1) == b""
            if self.sock.recv(1, socket.MSG_PEEK) == b"":
                return True
        except OSError:
            return True
        time.sleep(0.02)            # bytes are there: not closed
        return False

    def read_body(self):
        """Reads the request's body; called before the script, unless the
        script has the attribute early."""
        request = self.request
        if request.get("transfer-encoding", "").lower() == "chunked":
            request.body = self._chunked()
            return
        left = int(request.get("content-length") or 0)
        parts = [self.data[:left]]
        self.data = self.data[left:]
        left -= len(parts[0])
        while left:
            part = self._recv()
            parts.append(part[:left])
            self.data = part[left:]
            left -= len(parts[-1])
        request.body = b"".join(parts)

    def _chunked(self):
        body = b""
        while True:
            size = int(self._line().split(b";")[0], 16)
            if size == 0:
                while self._line():
                    pass
                return body
            while len(self.data) < size + 2:
                self.data += self._recv()
            body += self.data[:size]
            self.data = self.data[size + 2:]

    def _line(self):
        while b"\r\n" not in self.data:
            self.data += self._recv()
        line, self.data = self.data.split(b"\r\n", 1)
        return line

    def _recv(self):
        try:
            part = self.sock.recv(262144)
        except OSError as e:
            self.request.gone.set()
            raise Gone() from e
        if not part:
            self.request.gone.set()
            raise Gone()
        return part


class Upstream:
    """The server.  requests holds those received since the last reset()."""

    def __init__(self, tls=None):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.tls = tls
        self.stopped = threading.Event()
        self.lock = threading.Lock()
        self.connections = 0
        self.open = set()
        self.busy = set()           # connections with a running script
        self.faults = []            # exceptions in scripts
        self.reset()
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self):
        with self.lock:
            self.requests = []
            self.scripts = [both]

    def script(self, *scripts):
        """One script per request, in this order; the last one is repeated."""
        with self.lock:
            self.scripts = list(scripts)

    def last(self):
        assert self.requests, "the upstream got no request"
        return self.requests[-1]

    def wait(self, n=1, timeout=LIMIT):
        """Waits until n requests have been received."""
        end = time.monotonic() + timeout
        while len(self.requests) < n:
            assert time.monotonic() < end, "the upstream got no request"
            time.sleep(0.01)
        return self.requests[n - 1]

    def wait_idle(self, timeout=LIMIT):
        """Waits until no script runs and the connections that scripts end are
        closed: the next request cannot be sent on one about to be closed."""
        end = time.monotonic() + timeout
        while self.busy:
            assert time.monotonic() < end, "a script is still running"
            time.sleep(0.001)

    def stop(self):
        self.stopped.set()
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        with self.lock:
            socks = list(self.open)
        for sock in socks:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _accept(self):
        while not self.stopped.is_set():
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, daemon=True,
                             args=(sock, self.connections)).start()

    def _serve(self, sock, conn):
        with self.lock:
            self.open.add(sock)
        request = None
        wrapped = sock
        try:
            sock.settimeout(LIMIT)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls:
                wrapped = self.tls.wrap_socket(sock, server_side=True)
            data = b""
            number = 0
            while not self.stopped.is_set():
                # the gateway closes idle connections: one closed here might be
                # about to be used
                wrapped.settimeout(None)
                while b"\r\n\r\n" not in data:
                    part = wrapped.recv(262144)
                    if not part:
                        return
                    data += part
                wrapped.settimeout(LIMIT)
                head, data = data.split(b"\r\n\r\n", 1)
                request = Request(head, conn, number)
                self.busy.add(conn)
                data = self._answer(wrapped, data, request)
                self.busy.discard(conn)
                number += 1
        except (OSError, Gone, Hangup):
            pass
        except Exception as e:       # an error in the test's own script
            self.faults.append(e)
            raise
        finally:
            if request is not None and not request.gone.is_set():
                request.gone.set()
            with self.lock:
                self.open.discard(sock)
            wrapped.close()
            self.busy.discard(conn)

    def _answer(self, sock, data, request):
        with self.lock:
            script = self.scripts[0]
            if len(self.scripts) > 1:
                self.scripts.pop(0)
        exchange = Exchange(self, sock, data, request)
        early = getattr(script, "early", False)
        try:
            if not early:
                exchange.read_body()
        finally:
            with self.lock:
                self.requests.append(request)
        script(exchange)
        if exchange.close_after:
            raise Hangup()
        return exchange.data


# Scripts.

def raw(*steps):
    """Bytes are sent, numbers are pauses, events are waited for, "close",
    "reset" and "stall" end the connection, callables get the exchange."""

    def script(x):
        for step in steps:
            if isinstance(step, bytes):
                x.send(step)
            elif isinstance(step, (int, float)):
                time.sleep(min(step, LIMIT))
            elif isinstance(step, threading.Event):
                step.wait(LIMIT)
            elif isinstance(step, str):
                x.end(step)
            else:
                step(x)

    return script


def early(script):
    """The script runs before the body is read."""

    def run(x):
        script(x)

    run.early = True
    return run


def reply(status=200, body=b"", headers=(), framing="sized", end="clean",
          ctype="application/json", reason=None, length=None):
    """A plain answer; with length and end="close" a truncated one."""
    headers = list(headers)
    if ctype and not any(n.lower() == "content-type" for n, v in headers):
        headers.append(("Content-Type", ctype))

    def script(x):
        x.head(status, headers, framing=framing, reason=reason,
               length=len(body) if length is None else length)
        x.body(body)
        x.end(end)

    return script


def reply_json(obj, status=200, **kw):
    return reply(status, json.dumps(obj).encode(), **kw)


def sse(events, framing="chunked", end="clean", headers=(), pause=0,
        ctype="text/event-stream", extra=1000):
    """Events are bytes with their blank lines; steps between them as in raw().
    extra is added to the length of a sized stream, to truncate it."""

    def script(x):
        size = sum(len(e) for e in events if isinstance(e, bytes))
        if end != "clean":
            size += extra
        x.head(200, [("Content-Type", ctype)] + list(headers),
               length=size, framing=framing)
        for e in events:
            if isinstance(e, bytes):
                x.body(e)
                if pause:
                    time.sleep(pause)
            elif isinstance(e, threading.Event):
                e.wait(LIMIT)
            elif isinstance(e, (int, float)):
                time.sleep(e)
            else:
                e(x)
        x.end(end)

    return script


# What vendors answer.

def data(obj):
    return b"data: " + json.dumps(obj).encode() + b"\n\n"


def event(name, obj, **kw):
    return (b"event: " + name.encode() + b"\ndata: "
            + json.dumps(obj, **kw).encode() + b"\n\n")


DONE = b"data: [DONE]\n\n"


def chat_usage(prompt=11, completion=7, cached=0):
    return {"prompt_tokens": prompt, "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": 0}}


def chat_completion(model, text="Hello", usage=None):
    return {"id": "chatcmpl-1", "object": "chat.completion",
            "created": 1700000000, "model": model,
            "choices": [{"index": 0, "finish_reason": "stop",
                         "message": {"role": "assistant", "content": text,
                                     "refusal": None}}],
            "usage": usage or chat_usage()}


def chat_chunk(model, delta, finish=None, **more):
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk",
            "created": 1700000000, "model": model,
            "choices": [{"index": 0, "delta": delta,
                         "finish_reason": finish}], **more}


def chat_usage_chunk(model, usage=None):
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk",
            "created": 1700000000, "model": model, "choices": [],
            "usage": usage or chat_usage()}


def chat_stream(model, words=("Hel", "lo"), usage=True, done=True,
                tokens=None):
    """The events of a chat stream, as bytes."""
    more = {"usage": None} if usage else {}
    out = [data(chat_chunk(model, {"role": "assistant", "content": ""},
                           **more))]
    out += [data(chat_chunk(model, {"content": w}, **more)) for w in words]
    out.append(data(chat_chunk(model, {}, "stop", **more)))
    if usage:
        out.append(data(chat_usage_chunk(model, tokens)))
    if done:
        out.append(DONE)
    return out


def message_usage(input=11, output=7, read=0, write=0):
    return {"input_tokens": input, "cache_creation_input_tokens": write,
            "cache_read_input_tokens": read, "output_tokens": output}


def message(model, text="Hello", usage=None):
    return {"id": "msg_1", "type": "message", "role": "assistant",
            "model": model, "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn", "stop_sequence": None,
            "usage": usage or message_usage()}


def message_stream(model, words=("Hel", "lo"), stop=True, usage=None):
    """The events of a messages stream, as bytes."""
    usage = usage or message_usage()
    start = dict(message(model), content=[], stop_reason=None,
                 usage=dict(usage, output_tokens=1))
    out = [event("message_start", {"type": "message_start",
                                   "message": start}),
           event("content_block_start",
                 {"type": "content_block_start", "index": 0,
                  "content_block": {"type": "text", "text": ""}}),
           event("ping", {"type": "ping"})]
    out += [event("content_block_delta",
                  {"type": "content_block_delta", "index": 0,
                   "delta": {"type": "text_delta", "text": w}})
            for w in words]
    out += [event("content_block_stop",
                  {"type": "content_block_stop", "index": 0}),
            event("message_delta",
                  {"type": "message_delta",
                   "delta": {"stop_reason": "end_turn",
                             "stop_sequence": None},
                   "usage": {"output_tokens": usage["output_tokens"]}})]
    if stop:
        out.append(event("message_stop", {"type": "message_stop"}))
    return out


def response_usage(input=11, output=7, cached=0, write=0, reasoning=0):
    return {"input_tokens": input,
            "input_tokens_details": {"cached_tokens": cached,
                                     "cache_write_tokens": write},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": input + output}


def response_item(text="Hello", status="completed"):
    return {"id": "msg_1", "type": "message", "role": "assistant",
            "status": status,
            "content": [{"type": "output_text", "text": text,
                         "annotations": [], "logprobs": []}]}


def response(model, text="Hello", usage=None, **more):
    return dict({"id": "resp_1", "object": "response",
                 "created_at": 1700000000, "status": "completed",
                 "error": None, "incomplete_details": None,
                 "instructions": None, "metadata": {}, "model": model,
                 "output": [response_item(text)],
                 "parallel_tool_calls": True, "store": False,
                 "temperature": 1.0, "tool_choice": "auto", "tools": [],
                 "top_p": 1.0,
                 "usage": usage or response_usage()}, **more)


def numbered(events):
    """The events of a responses stream, as bytes, with their numbers."""
    return [event(e["type"], dict({"type": e["type"], "sequence_number": i},
                                  **e)) for i, e in enumerate(events)]


def response_events(model, words=("Hel", "lo"), usage=None, items=None,
                    last="response.completed", deltas=True):
    """The events of a responses stream, without their numbers."""
    start = response(model, usage=0, status="in_progress", output=[])
    start["usage"] = None
    text = "".join(words)
    done = response_item(text)
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = dict(done["content"][0], text="")
    out = [{"type": "response.created", "response": start},
           {"type": "response.in_progress", "response": start},
           {"type": "response.output_item.added", "output_index": 0,
            "item": dict(done, content=[], status="in_progress")},
           dict(place, type="response.content_part.added", part=part)]
    if deltas:
        out += [dict(place, type="response.output_text.delta", delta=w,
                     logprobs=[]) for w in words]
    out += [dict(place, type="response.output_text.done", text=text,
                 logprobs=[]),
            dict(place, type="response.content_part.done",
                 part=dict(part, text=text)),
            {"type": "response.output_item.done", "output_index": 0,
             "item": done}]
    if last:
        out.append({"type": last,
                    "response": response(model, text, usage,
                                         status=last.split(".")[1])})
    return out


def response_stream(model, *args, **kw):
    return numbered(response_events(model, *args, **kw))


def chat_error(text, type="invalid_request_error", code=None, param=None):
    return {"error": {"message": text, "type": type, "param": param,
                      "code": code}}


def message_error(text, type="invalid_request_error"):
    return {"type": "error", "error": {"type": type, "message": text},
            "request_id": "req_inner"}


def both(x):
    """Answers as a vendor that speaks all protocols."""
    body = json.loads(x.request.body or b"{}")
    path = x.request.target.split("?")[0]
    model = body.get("model")

    if path.endswith("/count_tokens"):
        script = reply_json({"input_tokens": 42})
    elif path.endswith("/messages"):
        script = (sse(message_stream(model)) if body.get("stream")
                  else reply_json(message(model)))
    elif path.endswith("/responses"):
        script = (sse(response_stream(model)) if body.get("stream")
                  else reply_json(response(model)))
    elif body.get("stream"):
        asked = (body.get("stream_options") or {}).get("include_usage")
        script = sse(chat_stream(model, usage=asked is True))
    else:
        script = reply_json(chat_completion(model))

    script(x)


class Refused:
    """A port that refuses connections, as long as the object exists."""

    def __init__(self):
        self.sock = socket.socket()
        self.sock.bind(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.requests = []

    def reset(self):
        pass

    def stop(self):
        self.sock.close()


class Blackhole:
    """A port that accepts no connection: its queue is full, SYNs are
    dropped."""

    def __init__(self):
        self.sock = socket.socket()
        self.sock.bind(("127.0.0.1", 0))
        self.sock.listen(0)
        self.port = self.sock.getsockname()[1]
        self.requests = []
        self.fill = []
        for _ in range(4):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", self.port))
            self.fill.append(s)
        select.select([], self.fill, [], LIMIT)     # the queue is full

    def reset(self):
        pass

    def stop(self):
        for s in self.fill:
            s.close()
        self.sock.close()
