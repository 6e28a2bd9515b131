"""Relay a client's WebSocket to a program in a sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack

import aiohttp
from multidict import CIMultiDict
from starlette.types import Message, Receive, Scope, Send

from paddock.sandbox.daemon.client import DaemonClient

GOING_AWAY = 1001
UNSENDABLE_CODES = frozenset({0, 1004, 1005, 1006, 1015})
"""Close codes that only describe a closed connection and must not be sent."""


async def relay_websocket_to_sandbox(
    inside: DaemonClient, address: str, headers: CIMultiDict[str], scope: Scope, receive: Receive, send: Send
) -> None:
    """Relay a WebSocket.

    The sandbox's side is opened first, so that its refusal reaches the client as a refusal.
    """
    await receive()  # websocket.connect
    async with AsyncExitStack() as held:
        wanted = inside.websocket(address, raw=True, headers=headers, protocols=scope["subprotocols"])
        opening = asyncio.create_task(held.enter_async_context(wanted))
        first: asyncio.Future[Message] = asyncio.ensure_future(receive())
        try:
            await asyncio.wait((opening, first), return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                return  # The client has disconnected; a sandbox that never answers must not block the connection.
            sandbox = opening.result()
            await send({"type": "websocket.accept", "subprotocol": sandbox.protocol})
        except BaseException:
            first.cancel()
            raise
        finally:
            if not opening.done():
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)
        to_sandbox = asyncio.create_task(_to_sandbox(first, receive, sandbox))
        to_client = asyncio.create_task(_to_client(sandbox, send))
        try:
            await asyncio.wait((to_sandbox, to_client), return_when=asyncio.FIRST_COMPLETED)
            if to_sandbox.done():
                to_sandbox.result()
        finally:
            to_sandbox.cancel()
            to_client.cancel()
            await asyncio.gather(to_sandbox, to_client, return_exceptions=True)


async def _to_sandbox(first: Awaitable[Message], receive: Receive, sandbox: aiohttp.ClientWebSocketResponse) -> None:
    try:
        message = await first
        while True:
            if message["type"] == "websocket.disconnect":
                code = message.get("code", GOING_AWAY)
                await sandbox.close(code=GOING_AWAY if code in UNSENDABLE_CODES else code)
                return
            if message.get("text") is not None:
                await sandbox.send_str(message["text"])
            elif message.get("bytes") is not None:
                await sandbox.send_bytes(message["bytes"])
            message = await receive()
    except (aiohttp.ClientError, ConnectionError):
        return  # The sandbox has disconnected; the other direction tells the client.


async def _to_client(sandbox: aiohttp.ClientWebSocketResponse, send: Send) -> None:
    while True:
        message = await sandbox.receive()
        if message.type is aiohttp.WSMsgType.TEXT:
            await send({"type": "websocket.send", "text": message.data})
        elif message.type is aiohttp.WSMsgType.BINARY:
            await send({"type": "websocket.send", "bytes": message.data})
        elif message.type is aiohttp.WSMsgType.PING:
            await sandbox.pong(message.data)
        elif message.type is not aiohttp.WSMsgType.PONG:
            code = sandbox.close_code or GOING_AWAY
            code = GOING_AWAY if code in UNSENDABLE_CODES else code
            reason = message.extra if message.type is aiohttp.WSMsgType.CLOSE and message.extra else ""
            await send({"type": "websocket.close", "code": code, "reason": str(reason)})
            return
