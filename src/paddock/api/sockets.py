"""Joins a client's WebSocket with one of a box."""

from __future__ import annotations

import asyncio

import aiohttp
from multidict import CIMultiDict
from starlette.types import Receive, Scope, Send

from paddock.sandbox.client import Inside

GOING_AWAY = 1001
NOT_FOR_THE_WIRE = frozenset({0, 1004, 1005, 1006, 1015})
"""Close codes that only describe what happened and must not be sent."""


async def relay_websocket(
    inside: Inside, address: str, headers: CIMultiDict[str], scope: Scope, receive: Receive, send: Send
) -> None:
    """Open the box's side first, so that what it refuses is refused to the client too."""
    await receive()  # websocket.connect
    async with inside.websocket(address, raw=True, headers=headers, protocols=scope["subprotocols"]) as box:
        await send({"type": "websocket.accept", "subprotocol": box.protocol})
        to_box = asyncio.create_task(_to_box(receive, box))
        to_client = asyncio.create_task(_to_client(box, send))
        try:
            await asyncio.wait((to_box, to_client), return_when=asyncio.FIRST_COMPLETED)
            if to_box.done():
                to_box.result()
        finally:
            to_box.cancel()
            to_client.cancel()
            await asyncio.gather(to_box, to_client, return_exceptions=True)


async def _to_box(receive: Receive, box: aiohttp.ClientWebSocketResponse) -> None:
    try:
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                code = message.get("code", GOING_AWAY)
                await box.close(code=GOING_AWAY if code in NOT_FOR_THE_WIRE else code)
                return
            if message.get("text") is not None:
                await box.send_str(message["text"])
            elif message.get("bytes") is not None:
                await box.send_bytes(message["bytes"])
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
