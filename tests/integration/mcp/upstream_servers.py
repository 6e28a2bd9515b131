"""A real MCP server, made with MCP's own SDK, and beside it one that behaves as servers should not."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer


@dataclass
class Servers:
    """Ports of the servers, and the requests they received."""

    port: int
    seen: list[dict[str, Any]] = field(default_factory=list)
    """Of each request its method, path, query and headers."""
    proceed: threading.Event = field(default_factory=threading.Event)
    """Lets `/odd/slow` say the rest."""
    client_left: threading.Event = field(default_factory=threading.Event)
    """Set when a client has disconnected from `/odd/slow`."""

    @property
    def calculator(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def odd(self) -> str:
        return f"http://127.0.0.1:{self.port}/odd"

    def headers(self) -> list[dict[str, str]]:
        return [each["headers"] for each in self.seen]


@contextmanager
def mcp_servers() -> Iterator[Servers]:
    servers = Servers(0)
    with serve_app(_app(servers)) as port:
        servers.port = port
        try:
            yield servers
        finally:
            servers.proceed.set()


@contextmanager
def serve_app(app: Any, **options: Any) -> Iterator[int]:
    """Serve an ASGI app on a free port, in a thread."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        settings = uvicorn.Config(app, ws="none", log_config=None, timeout_graceful_shutdown=1, **options)
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


def _app(servers: Servers) -> Any:
    calculator = MCPServer("calculator")

    @calculator.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @calculator.tool()
    async def count(to: int, context: Context[Any, Any]) -> str:
        """Count, and tell how far it is."""
        for number in range(1, to + 1):
            await context.report_progress(number, to)
        return "done"

    @calculator.tool()
    async def wait(context: Context[Any, Any]) -> str:
        """Report progress, and wait for the test to proceed."""
        await context.report_progress(0, 1)
        try:
            while not servers.proceed.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            servers.client_left.set()
            raise
        return "waited"

    inner = calculator.streamable_http_app()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
            seen = {"method": scope["method"], "path": scope["path"], "query": scope["query_string"].decode()}
            servers.seen.append({**seen, "headers": headers})
            if scope["path"].startswith("/odd"):
                await _odd(servers, scope["path"].removeprefix("/odd/"), receive, send)
                return
        await inner(scope, receive, send)

    return app


async def _odd(servers: Servers, what: str, receive: Any, send: Any) -> None:
    async def start(status: int, *headers: tuple[bytes, bytes]) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})

    async def say(data: bytes, more: bool = False) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": more})

    size = 0
    while (message := await receive())["type"] == "http.request":
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    match what:
        case "elsewhere":
            await start(307, (b"location", b"http://127.0.0.1:1/secret-place"))
            await say(b"")
        case "cut":
            await start(200, (b"content-length", b"100"))
            await say(b"half", more=True)
            raise ConnectionResetError  # The server breaks the connection.
        case _:
            await start(200, (b"content-type", b"text/plain"))
            await say(str(size).encode())
