"""Run both directions of a WebSocket, and receive its frames at a limited rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from paddock.telemetry.event_loop_monitor import EventLoopMonitor

MAX_FRAME_RATE = 500.0
"""Frames per second that a client may send in the long run."""
FRAME_BURST = 1000


async def receive_websocket_frames(websocket: WebSocket) -> AsyncIterator[Message]:
    """Yield the client's frames until it disconnects. A client that sends more than its rate is read more slowly."""
    loop = asyncio.get_running_loop()
    allowed, updated = float(FRAME_BURST), loop.time()
    while (message := await websocket.receive())["type"] == "websocket.receive":
        now = loop.time()
        allowed = min(FRAME_BURST, allowed + (now - updated) * MAX_FRAME_RATE) - 1
        updated = now
        if allowed < 0:
            await asyncio.sleep(1 / MAX_FRAME_RATE)
        yield message


async def run_websocket_until_one_ends(
    loop: EventLoopMonitor, websocket: WebSocket, *sides: Coroutine[Any, Any, None]
) -> None:
    """Run coroutines together until one of them ends. A client that disconnects is no error."""
    tasks = [loop.start_task(side, f"WEBSOCKET {websocket.scope['path']}") for side in sides]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done() and (error := task.exception()) and not isinstance(error, WebSocketDisconnect):
                raise error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
