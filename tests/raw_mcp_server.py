"""An MCP server without the package ``mcp``, which starts quickly and does what servers should not.

Arguments: the file of a JSON list of tools, a file to which methods of notifications and called tools are written, and
maybe a file without which ``initialize`` is not answered.
"""

import json
import sys
import time
from pathlib import Path

tools, heard = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
if not tools:
    print("cannot open the database", file=sys.stderr, flush=True)
    raise SystemExit(3)


def called(name: str, arguments: dict) -> dict | None:
    """The result of a call, None without one."""
    if name == "die":
        print("out of paper", file=sys.stderr, flush=True)
        raise SystemExit(1)
    if name == "hang":
        return None
    if name == "flood":
        while True:
            sys.stdout.write("x" * 100_000)
    if name == "deaf":
        time.sleep(600)
    if name == "ask":
        for number in range(1000):
            print(json.dumps({"jsonrpc": "2.0", "id": f"{number:5000}", "method": "roots/list"}), flush=True)
        time.sleep(600)
    if name == "wrong":
        return {"content": 3}
    if name == "fail":
        return {"content": [{"type": "text", "text": "no such city"}], "isError": True}
    if name == "picture":
        return {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}
    if name == "structured":
        return {"content": [], "structuredContent": {"a": [1]}}
    return {"content": [{"type": "text", "text": "x" * 2_000_000 if name == "big" else json.dumps(arguments)}]}


for line in sys.stdin:
    request = json.loads(line)
    method, params = request["method"], request.get("params", {})
    with heard.open("a") as file:
        file.write(f"{params['name'] if method == 'tools/call' else method}\n")
    if "id" not in request:
        continue
    answer = {"jsonrpc": "2.0", "id": request["id"]}
    if method == "initialize":
        while not all(Path(path).exists() for path in sys.argv[3:]):
            time.sleep(0.02)
        answer["result"] = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"},
        }
    elif method == "tools/list":
        answer["result"] = {"tools": tools}
    elif method == "tools/call":
        answer["result"] = called(params["name"], params.get("arguments", {}))
        if answer["result"] is None:
            continue
    else:
        answer["error"] = {"code": -32601, "message": "unknown method"}
    print(json.dumps(answer), flush=True)
