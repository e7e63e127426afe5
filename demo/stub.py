"""The demo's upstream: answers both protocols, as two vendors would.

usage: stub.py HOST:PORT SECRET_A_FILE SECRET_B_FILE

POST /v1/messages and /v1/messages/count_tokens require "x-api-key: SECRET_A",
POST /v1/chat/completions and /v1/embeddings "Authorization: Bearer SECRET_B".
Answers name the upstream's own model ids, never the gateway's, and echo the
last words of the user.  A prompt with "please fail 429" (400, 500, 529) gets
that error.

Standard library only: it runs wherever "make run" and docker/ do.
"""

import array
import base64
import hashlib
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAUSE = 0.15            # seconds between two events of a stream
MODELS = ("large-2026-01-01", "small-2026-01-01", "chat-2026-01-01",
          "fast-coder-2", "embed-2026-01-01")

FAILURES = {
    400: ("invalid_request_error",
          "prompt is too long: 250000 tokens > 200000 maximum",
          "context_length_exceeded"),
    429: ("rate_limit_error", "Number of requests has exceeded your rate limit",
          "rate_limit_exceeded"),
    500: ("api_error", "Internal server error", None),
    529: ("overloaded_error", "Overloaded", None),
}


def text_of(content):
    """The text of a message's content: a string, or a list of parts."""

    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return " ".join(part.get("text", "") for part in content
                    if isinstance(part, dict))


def prompt_of(body):
    for message in reversed(body.get("messages", [])):
        if message.get("role") == "user":
            return text_of(message.get("content"))
    return ""


def words_of(prompt):
    """The answer, in the pieces that a stream sends it in."""

    echo = " ".join(prompt.split()[-8:]) or "nothing"

    return ["You ", "said: ", '"', echo, '". ', "This is ", "the local ",
            "stub."]


def tokens(value):
    return max(1, len(json.dumps(value)) // 4)


class Stub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    # plumbing

    def read_body(self):
        size = int(self.headers.get("Content-Length", 0))

        try:
            body = json.loads(self.rfile.read(size) or b"null")
        except ValueError:
            body = None

        return body if isinstance(body, dict) else None

    def reply(self, status, value, **headers):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("request-id", "req_stub_%x" % time.time_ns())
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(data)

    def stream(self, events):
        """Sends (name, data) pairs as server-sent events, chunked."""

        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("request-id", "req_stub_%x" % time.time_ns())
        self.end_headers()

        for name, data in events:
            frame = "event: %s\n" % name if name else ""
            frame += "data: %s\n\n" % data
            frame = frame.encode()
            time.sleep(PAUSE)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(frame), frame))

        self.wfile.write(b"0\r\n\r\n")

    # requests that vendors refuse, with their error bodies

    def fail(self, status, kind, message, code=None, **headers):
        if self.path.startswith("/v1/messages"):
            value = {"type": "error",
                     "error": {"type": kind, "message": message}}
        else:
            value = {"error": {"message": message, "type": kind,
                               "param": None, "code": code}}

        self.reply(status, value, **headers)

    def refused(self, body):
        """True if the request has been answered with an error."""

        if self.path.startswith("/v1/messages"):
            ok = self.headers.get("x-api-key") == self.server.secret_a
        else:
            ok = self.headers.get("Authorization") \
                == "Bearer " + self.server.secret_b

        if not ok:
            self.fail(401, "authentication_error", "invalid credential")
        elif body is None:
            self.fail(400, "invalid_request_error", "body is not JSON")
        elif body.get("model") not in MODELS:
            self.fail(404, "not_found_error",
                      "model: %s" % body.get("model"), "model_not_found")
        else:
            for status, (kind, message, code) in FAILURES.items():
                if "please fail %d" % status in prompt_of(body):
                    retry = {"retry_after": "3"} if status == 429 else {}
                    self.fail(status, kind, message, code, **retry)
                    return True
            return False

        return True

    # the two protocols

    def chat(self, body):
        parts = words_of(prompt_of(body))
        usage = {"prompt_tokens": tokens(body.get("messages")),
                 "completion_tokens": tokens(parts),
                 "prompt_tokens_details": {"cached_tokens": 0}}
        usage["total_tokens"] = usage["prompt_tokens"] \
            + usage["completion_tokens"]
        head = {"id": "chatcmpl-stub", "created": int(time.time()),
                "model": body["model"]}

        if not body.get("stream"):
            message = {"role": "assistant", "content": "".join(parts),
                       "refusal": None}
            self.reply(200, dict(head, object="chat.completion", choices=[
                {"index": 0, "message": message, "logprobs": None,
                 "finish_reason": "stop"}], usage=usage))
            return

        options = body.get("stream_options") or {}
        self.stream(self.chat_events(head, parts, usage
                    if options.get("include_usage") else None))

    @staticmethod
    def chat_events(head, parts, usage):
        head = dict(head, object="chat.completion.chunk")

        def chunk(delta, finish=None):
            value = dict(head, choices=[{"index": 0, "delta": delta,
                                         "finish_reason": finish}])
            if usage:
                value["usage"] = None
            return None, json.dumps(value)

        yield chunk({"role": "assistant", "content": ""})
        for part in parts:
            yield chunk({"content": part})
        yield chunk({}, "stop")
        if usage:
            yield None, json.dumps(dict(head, choices=[], usage=usage))
        yield None, "[DONE]"

    def messages(self, body):
        parts = words_of(prompt_of(body))
        message = {"id": "msg_stub", "type": "message", "role": "assistant",
                   "model": body["model"], "content": [],
                   "stop_reason": None, "stop_sequence": None,
                   "usage": {"input_tokens": tokens(body.get("messages")),
                             "cache_creation_input_tokens": 0,
                             "cache_read_input_tokens": 0,
                             "output_tokens": 1}}
        output = tokens(parts)

        if not body.get("stream"):
            message["content"] = [{"type": "text", "text": "".join(parts)}]
            message["stop_reason"] = "end_turn"
            message["usage"]["output_tokens"] = output
            self.reply(200, message)
            return

        self.stream((e["type"], json.dumps(e))
                    for e in self.message_events(message, parts, output))

    @staticmethod
    def message_events(message, parts, output):
        yield {"type": "message_start", "message": message}
        yield {"type": "content_block_start", "index": 0,
               "content_block": {"type": "text", "text": ""}}
        yield {"type": "ping"}
        for part in parts:
            yield {"type": "content_block_delta", "index": 0,
                   "delta": {"type": "text_delta", "text": part}}
        yield {"type": "content_block_stop", "index": 0}
        yield {"type": "message_delta",
               "delta": {"stop_reason": "end_turn", "stop_sequence": None},
               "usage": {"output_tokens": output}}
        yield {"type": "message_stop"}

    def embeddings(self, body):
        """Numbers that mean nothing; texts that are the same have the same."""

        texts = body.get("input")
        texts = texts if isinstance(texts, list) else [texts]
        data = []

        for i, text in enumerate(texts):
            digest = hashlib.sha256(json.dumps(text).encode()).digest()
            vector = [byte / 256 for byte in digest[:4]]
            if body.get("encoding_format") == "base64":
                floats = array.array("f", vector).tobytes()
                vector = base64.b64encode(floats).decode()
            data.append({"object": "embedding", "index": i,
                         "embedding": vector})

        count = tokens(texts)
        self.reply(200, {"object": "list", "model": body["model"],
                         "data": data,
                         "usage": {"prompt_tokens": count,
                                   "total_tokens": count}})

    def count_tokens(self, body):
        self.reply(200, {"input_tokens": tokens(body.get("messages"))})

    def do_POST(self):
        handler = {"/v1/chat/completions": self.chat,
                   "/v1/messages": self.messages,
                   "/v1/messages/count_tokens": self.count_tokens,
                   "/v1/embeddings": self.embeddings,
                   }.get(self.path.split("?")[0])
        body = self.read_body()

        if handler is None:
            self.fail(404, "not_found_error", "no such path")
        elif not self.refused(body):
            try:
                handler(body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True    # closed by the client


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main():
    address, file_a, file_b = sys.argv[1:]
    host, port = address.rsplit(":", 1)

    with Server((host, int(port)), Stub) as server:
        server.secret_a = open(file_a).read().strip()
        server.secret_b = open(file_b).read().strip()
        # port 0: the caller reads the port chosen
        print(server.server_address[1], flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
