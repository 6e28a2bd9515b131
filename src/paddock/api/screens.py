"""The wall: many screens over one WebSocket."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from paddock.api.access import principal_of, query_of
from paddock.api.services import Services
from paddock.api.sockets import converse
from paddock.errors import InvalidInput
from paddock.live.wall import Wall
from paddock.model.keys import Scope

ALL = "all"
SANDBOX = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
LEAST_WIDTH, MOST_WIDTH = 16, 1920
LEAST_RATE = 0.05


def sockets(services: Services) -> list[WebSocketRoute]:
    config, screens = services.config.live, services.live.screens

    async def wall(websocket: WebSocket) -> None:
        """Small pictures of many screens, each whenever it has changed."""
        principal = principal_of(websocket.scope, Scope.SANDBOXES_READ)
        query = query_of(websocket.scope)
        wanted = None if query.get("sandboxes", ALL) == ALL else query["sandboxes"].split(",")
        shown = Wall(
            screens,
            principal.tenant,
            _checked(wanted, config.wall_size),
            width=int(_number(query, "width", 320, LEAST_WIDTH, MOST_WIDTH)),
            rate=_number(query, "fps", 1.0, LEAST_RATE, config.wall_rate),
            most=config.wall_size,
        )
        async with shown:
            await websocket.accept()
            await converse(_show(websocket, shown), _heed(websocket, shown, config.wall_size))

    return [WebSocketRoute("/v1/screens", wall)]


async def _show(websocket: WebSocket, shown: Wall) -> None:
    async for message in shown.messages():
        if isinstance(message, bytes):
            await websocket.send_bytes(message)
        else:
            await websocket.send_text(json.dumps(message))


async def _heed(websocket: WebSocket, shown: Wall, most: int) -> None:
    """A client may choose others: `{"type": "watch", "sandboxes": [...] | "all"}`."""
    while (message := await websocket.receive())["type"] == "websocket.receive":
        problem = ""
        try:
            frame = json.loads(message.get("text") or "null")
            if frame["type"] == "watch":
                wanted = frame["sandboxes"]
                shown.choose(_checked(None if wanted == ALL else wanted, most))
            elif frame["type"] == "ping":
                await websocket.send_text('{"type": "pong"}')
            else:
                problem = "the types of messages are watch and ping"
        except (ValueError, KeyError, TypeError, RecursionError):
            problem = 'write {"type": "watch", "sandboxes": ["ID", …]}'
        except InvalidInput as error:
            problem = error.message
        if problem:
            await websocket.send_text(json.dumps({"type": "error", "code": "INVALID_FRAME", "error": problem}))


def _checked(wanted: Collection[str] | None, most: int) -> Collection[str] | None:
    if wanted is None:
        return None
    if not isinstance(wanted, list) or not all(isinstance(each, str) and SANDBOX.fullmatch(each) for each in wanted):
        raise InvalidInput("sandboxes: give ids with commas between them, or all")
    if len(wanted) > most:
        raise InvalidInput(f"sandboxes: a wall has at most {most} (live.wall_size)")
    return wanted


def _number(query: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    text = query.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise InvalidInput(f"{name}: give a number from {least:g} to {most:g}")
    return value
