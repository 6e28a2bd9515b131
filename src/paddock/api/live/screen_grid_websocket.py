"""Thumbnails of many screens over one WebSocket."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from paddock.api.http.authorization import parse_query_parameters, require_principal
from paddock.api.http.websockets import receive_websocket_frames, run_websocket_until_one_ends
from paddock.api.services import ApiServices
from paddock.errors import InvalidInput
from paddock.live.desktop.screen_grid import ScreenGrid
from paddock.model.keys import Scope

ALL_SANDBOXES = "all"
SANDBOX_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
MIN_WIDTH, MAX_WIDTH = 16, 1920
MIN_RATE = 0.05
MAX_FRAME = 64 * 2**10


def create_websocket_routes(services: ApiServices) -> list[WebSocketRoute]:
    config, screens = services.config.live, services.live.screens

    async def screen_grid(websocket: WebSocket) -> None:
        """Small pictures of many screens, each whenever it has changed."""
        principal = require_principal(websocket.scope, Scope.SANDBOXES_READ)
        query = parse_query_parameters(websocket.scope)
        wanted = None if query.get("sandboxes", ALL_SANDBOXES) == ALL_SANDBOXES else query["sandboxes"].split(",")
        grid = ScreenGrid(
            screens,
            principal.tenant,
            _validate_sandbox_ids(wanted, config.wall_size),
            width=int(_parse_number(query, "width", 320, MIN_WIDTH, MAX_WIDTH)),
            rate=_parse_number(query, "fps", 1.0, MIN_RATE, config.wall_rate),
            max_screens=config.wall_size,
        )
        async with grid:
            await websocket.accept()
            receiving = _receive_frames(websocket, grid, config.wall_size)
            await run_websocket_until_one_ends(services.loop, websocket, _send_thumbnails(websocket, grid), receiving)

    return [WebSocketRoute("/v1/screens", screen_grid)]


async def _send_thumbnails(websocket: WebSocket, grid: ScreenGrid) -> None:
    async for message in grid.messages():
        if isinstance(message, bytes):
            await websocket.send_bytes(message)
        else:
            await websocket.send_text(json.dumps(message))


async def _receive_frames(websocket: WebSocket, grid: ScreenGrid, most: int) -> None:
    """Handle the client's frames: `{"type": "watch", "sandboxes": [...] | "all"}` changes the selection."""
    async for message in receive_websocket_frames(websocket):
        problem = ""
        text = message.get("text") or "null"
        try:
            if len(text) > MAX_FRAME:
                raise InvalidInput(f"frames have at most {MAX_FRAME} characters")
            frame = json.loads(text)
            if frame["type"] == "watch":
                wanted = frame["sandboxes"]
                grid.select_sandboxes(_validate_sandbox_ids(None if wanted == ALL_SANDBOXES else wanted, most))
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


def _validate_sandbox_ids(wanted: Collection[str] | None, most: int) -> Collection[str] | None:
    if wanted is None:
        return None
    if not isinstance(wanted, list) or not all(isinstance(each, str) and SANDBOX_ID.fullmatch(each) for each in wanted):
        raise InvalidInput("sandboxes: give ids with commas between them, or all")
    if len(wanted) > most:
        raise InvalidInput(f"sandboxes: at most {most} screens at a time (live.wall_size)")
    return wanted


def _parse_number(query: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
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
