"""Run both directions of a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from paddock.telemetry.event_loop_monitor import EventLoopMonitor


async def run_until_one_ends(loop: EventLoopMonitor, websocket: WebSocket, *sides: Coroutine[Any, Any, None]) -> None:
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
