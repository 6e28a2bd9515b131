"""The reference server of the MCP SDK, and views of it that speak only one era of the protocol."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
from aiohttp import ClientSession, ClientTimeout, web

from tests.support.server import eventually, free_port

MAKE_DIRECTORY = Path(__file__).parents[3] / ".make"
REFERENCE_SERVER = MAKE_DIRECTORY / "mcp-sdk"
STATELESS = "2026-07-28"
Era = Literal["both", "sessions", "stateless"]
_SESSION = web.AppKey("session", ClientSession)
_OWN_HEADERS = ("host", "content-length", "transfer-encoding", "connection")


@contextmanager
def reference_server() -> Iterator[str]:
    """Run the server, and yield its address."""
    port = free_port()
    assert (REFERENCE_SERVER / "mcp_everything_server").is_dir(), "run `make setup-test`"
    process = subprocess.Popen(
        [sys.executable, "-m", "mcp_everything_server", "--port", str(port)],
        cwd=REFERENCE_SERVER, env={"PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        eventually(lambda: answers(f"http://127.0.0.1:{port}/mcp"))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def view_of_one_era(url: str, era: Era) -> Iterator[str]:
    """Serve a view of a server that refuses the other era, as a server does that does not know it."""

    async def handle(request: web.Request) -> web.StreamResponse:
        is_stateless = request.headers.get("MCP-Protocol-Version") == STATELESS
        if is_stateless != (era == "stateless"):
            return web.json_response(_refusal(era), status=400)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OWN_HEADERS}
        session = request.app[_SESSION]
        async with session.request(request.method, url, headers=headers, data=await request.read()) as upstream:
            kept = {name: value for name, value in upstream.headers.items() if name.lower() not in _OWN_HEADERS}
            response = web.StreamResponse(status=upstream.status, headers=kept)
            await response.prepare(request)
            async for chunk in upstream.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
        return response

    async def serve(port: int, stop: asyncio.Event) -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", handle)
        async with ClientSession(timeout=ClientTimeout(total=None)) as session:
            app[_SESSION] = session
            runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            await stop.wait()
            await runner.cleanup()

    with in_thread(serve) as port:
        yield f"http://127.0.0.1:{port}/mcp"


def answers(url: str) -> bool:
    try:
        httpx.get(url, timeout=5, trust_env=False)
    except httpx.TransportError:
        return False
    return True


@contextmanager
def in_thread(serve: Callable[[int, asyncio.Event], Coroutine[Any, Any, None]]) -> Iterator[int]:
    """Run a server on an event loop of its own until the end of the context, and yield its port."""
    port, ready = free_port(), threading.Event()
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run() -> None:
        stop = asyncio.Event()
        running.append((asyncio.get_running_loop(), stop))
        ready.set()
        await serve(port, stop)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert ready.wait(20)
        eventually(lambda: answers(f"http://127.0.0.1:{port}/"))
        yield port
    finally:
        loop, stop = running[0]
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        assert not thread.is_alive()


def _refusal(era: Era) -> dict[str, Any]:
    error: dict[str, Any] = {"code": -32000, "message": "Bad Request: unsupported protocol version"}
    if era == "stateless":
        data = {"supported": [STATELESS], "requested": ""}
        error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
    return {"jsonrpc": "2.0", "id": None, "error": error}
