"""A stateless MCP server over HTTP. Tests change its tools while it runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ChangingServer:
    """Address, tools and received requests of the server."""

    def __init__(self) -> None:
        self.tools: dict[str, dict[str, Any]] = {"add": {"description": "Adds.", "inputSchema": {"type": "object"}}}
        self.calls: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        method, params = request["method"], request.get("params", {})
        hints = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
        match method:
            case "server/discover":
                return {"result": {**hints, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
            case "tools/list":
                return {"result": {**hints, "tools": [{**tool, "name": name} for name, tool in self.tools.items()]}}
            case "tools/call":
                self.calls.append(params)
                text = json.dumps(params.get("arguments", {}), sort_keys=True)
                return {"result": {"resultType": "complete", "content": [{"type": "text", "text": text}]}}
        return {"error": {"code": -32601, "message": "Method not found"}}


@contextmanager
def changing_server() -> Iterator[ChangingServer]:
    state = ChangingServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.headers.append({name.lower(): value for name, value in self.headers.items()})
            answer = state.answer(request)
            body = json.dumps({"jsonrpc": "2.0", "id": request.get("id"), **answer}).encode()
            self.send_response(404 if "error" in answer else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
