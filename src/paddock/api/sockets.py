"""Joins a client's WebSocket with one of a box."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
from multidict import CIMultiDict
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from paddock.sandbox.client import Inside

GOING_AWAY = 1001
NOT_FOR_THE_WIRE = frozenset({0, 1004, 1005, 1006, 1015})
"""Close codes that only describe what happened and must not be sent."""


async def converse(*sides: Coroutine[Any, Any, None]) -> None:
    """Show and heed at the same time, until one of the two ends. That the client has left is no error."""
    tasks = [asyncio.create_task(side) for side in sides]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done() and (error := task.exception()) and not isinstance(error, WebSocketDisconnect):
                raise error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def relay_websocket(
    inside: Inside, address: str, headers: CIMultiDict[str], scope: Scope, receive: Receive, send: Send
) -> None:
    """Open the box's side first, so that what it refuses is refused to the client too."""
    await receive()  # websocket.connect
    async with AsyncExitStack() as held:
        wanted = inside.websocket(address, raw=True, headers=headers, protocols=scope["subprotocols"])
        opening = asyncio.create_task(held.enter_async_context(wanted))
        first: asyncio.Future[Message] = asyncio.ensure_future(receive())
        try:
            await asyncio.wait((opening, first), return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                return  # The client is gone, and a box that never answers must not hold its place.
            box = opening.result()
            await send({"type": "websocket.accept", "subprotocol": box.protocol})
        except BaseException:
            first.cancel()
            raise
        finally:
            if not opening.done():
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)
        to_box = asyncio.create_task(_to_box(first, receive, box))
        to_client = asyncio.create_task(_to_client(box, send))
        try:
            await asyncio.wait((to_box, to_client), return_when=asyncio.FIRST_COMPLETED)
            if to_box.done():
                to_box.result()
        finally:
            to_box.cancel()
            to_client.cancel()
            await asyncio.gather(to_box, to_client, return_exceptions=True)


async def _to_box(first: Awaitable[Message], receive: Receive, box: aiohttp.ClientWebSocketResponse) -> None:
    try:
        message = await first
        while True:
            if message["type"] == "websocket.disconnect":
                code = message.get("code", GOING_AWAY)
                await box.close(code=GOING_AWAY if code in NOT_FOR_THE_WIRE else code)
                return
            if message.get("text") is not None:
                await box.send_str(message["text"])
            elif message.get("bytes") is not None:
                await box.send_bytes(message["bytes"])
            message = await receive()
    except (aiohttp.ClientError, ConnectionError):
        return  # The box has gone; the other direction tells the client.


async def _to_client(box: aiohttp.ClientWebSocketResponse, send: Send) -> None:
    while True:
        message = await box.receive()
        if message.type is aiohttp.WSMsgType.TEXT:
            await send({"type": "websocket.send", "text": message.data})
        elif message.type is aiohttp.WSMsgType.BINARY:
            await send({"type": "websocket.send", "bytes": message.data})
        elif message.type is aiohttp.WSMsgType.PING:
            await box.pong(message.data)
        elif message.type is not aiohttp.WSMsgType.PONG:
            code = box.close_code or GOING_AWAY
            code = GOING_AWAY if code in NOT_FOR_THE_WIRE else code
            reason = message.extra if message.type is aiohttp.WSMsgType.CLOSE and message.extra else ""
            await send({"type": "websocket.close", "code": code, "reason": str(reason)})
            return
