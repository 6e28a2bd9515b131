"""Deliberately slow clients."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn

from paddock.api.http import uvicorn_protocols
from paddock.api.http.uvicorn_protocols import LimitedHttpProtocol


async def hello_app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


async def send_and_read(port: int, *pieces: bytes) -> bytes:
    """Send pieces one by one, then read until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.05)
        return await asyncio.wait_for(reader.read(), 5)
    finally:
        writer.close()
        await writer.wait_closed()


def test_client_with_unfinished_headers_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_protocols, "HEAD_TIMEOUT", 0.2)
    whole = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"

    async def scenario() -> None:
        settings = uvicorn.Config(hello_app, http=LimitedHttpProtocol, port=0, lifespan="off", log_config=None)
        server = uvicorn.Server(settings)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        assert (await send_and_read(port)).startswith(b"HTTP/1.1 408 ")
        assert (await send_and_read(port, b"GET / HTTP/1.1\r\nhos")).startswith(b"HTTP/1.1 408 ")
        answers = await send_and_read(port, whole, whole, b"GET / HT")
        assert answers.count(b"HTTP/1.1 200") == 2 and b"HTTP/1.1 408 " in answers
        server.should_exit = True
        await serving

    asyncio.run(scenario())
