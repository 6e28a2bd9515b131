"""An MCP server on standard input and output: the stock of a small shop. Needs only Python."""

import json
import sys

STOCK = {"pencils": (12, 50), "paper": (900, 500), "ink": (3, 10), "erasers": (40, 20), "rulers": (0, 15)}
"""Number in stock and minimum, by item."""
TOOL = {
    "name": "items_below_minimum",
    "description": "List items of which fewer than the minimum are in stock, as CSV.",
    "inputSchema": {"type": "object", "properties": {}},
    "annotations": {"readOnlyHint": True},
}


def answer(method: str, params: dict) -> dict | None:
    """Return the result of a request; None if the method is unknown."""
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "stock", "version": "1"},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call" and params.get("name") == TOOL["name"]:
        rows = [f"{item},{number},{minimum}" for item, (number, minimum) in STOCK.items() if number < minimum]
        return {"content": [{"type": "text", "text": "\n".join(["item,stock,minimum", *rows])}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    error = {"code": -32601, "message": "Method not found"}
    reply = {"error": error} if result is None else {"result": result}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}) + "\n")
    sys.stdout.flush()
