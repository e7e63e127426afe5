"""An MCP server on standard input and output; its one tool adds numbers."""

import json
import sys

TOOL = {"name": "add", "description": "Adds", "inputSchema": {
    "type": "object", "required": ["a", "b"],
    "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}}


def answer(call):
    method, params = call["method"], call.get("params") or {}
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "demo", "version": "1"}}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        total = sum(params["arguments"].values())
        return {"content": [{"type": "text", "text": "The sum is %g" % total}]}
    return {}


for line in sys.stdin:
    call = json.loads(line)
    if "id" in call:
        print(json.dumps({"jsonrpc": "2.0", "id": call["id"],
                          "result": answer(call)}), flush=True)
