"""Terminals of sandboxes: a WebSocket that several people may have open, and what terminals there are."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping

from fastapi import APIRouter
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from paddock.api.access import Reader, Writer, principal_of, query_of
from paddock.api.errors import documented
from paddock.api.following import LARGEST
from paddock.api.services import Services
from paddock.api.sockets import converse
from paddock.api.wire import Said
from paddock.errors import InvalidInput
from paddock.live.desktops import VIEWER
from paddock.live.seat import Seat, Size
from paddock.model.keys import Scope

NORMAL, GOING_AWAY = 1000, 1001


class TerminalSaid(Said):
    name: str
    running: bool
    """Whether what it was opened with still runs."""
    viewers: int


class TerminalList(Said):
    items: list[TerminalSaid]


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/terminals", tags=["Terminals"])
    terminals = services.live.terminals

    @router.get("", responses=documented(404, 409, 502, 504))
    async def list_terminals(sandbox_id: str, principal: Reader) -> TerminalList:
        """List the terminals that a sandbox has, with how many people watch each."""
        found = await terminals.list(principal.tenant, sandbox_id)
        return TerminalList(items=[TerminalSaid(**each) for each in found])

    @router.delete("/{name}", status_code=204, responses=documented(404, 409, 502, 504))
    async def end_terminal(sandbox_id: str, name: str, principal: Writer) -> None:
        """End a terminal and what runs in it."""
        await terminals.end(principal.tenant, sandbox_id, name)

    return router


def sockets(services: Services) -> list[WebSocketRoute]:
    terminals = services.live.terminals

    async def terminal(websocket: WebSocket) -> None:
        """Watch a terminal and type in it. There is a shell behind every name."""
        principal = principal_of(websocket.scope, Scope.SANDBOXES_READ)
        query = query_of(websocket.scope)
        viewer = query.get("viewer") or secrets.token_hex(8)
        if not re.fullmatch(VIEWER, viewer):
            raise InvalidInput("viewer: an id has 1 to 100 letters, digits and . _ : @ + -")
        may_type = principal.allows(Scope.SANDBOXES_WRITE)
        seat = await terminals.open(
            principal.tenant,
            websocket.path_params["sandbox_id"],
            query.get("name", "main"),
            # Whoever may not change a sandbox cannot keep its input either, whatever id they show.
            viewer=viewer if may_type else secrets.token_hex(8),
            since=_number(query, "since") or 0,
            size=_size(query),
            may_type=may_type,
        )
        try:
            await websocket.accept()
            await converse(_show(websocket, seat), _heed(websocket, seat))
        finally:
            seat.close()

    return [WebSocketRoute("/v1/sandboxes/{sandbox_id}/terminal", terminal)]


async def _show(websocket: WebSocket, seat: Seat) -> None:
    last: Mapping[str, object] = {}
    async for message in seat.messages():
        if isinstance(message, bytes):
            await websocket.send_bytes(message)
        else:
            last = message
            await websocket.send_text(json.dumps(message))
    code = NORMAL if last.get("type") == "exit" else GOING_AWAY
    await websocket.close(code, str(last.get("reason") or ""))


async def _heed(websocket: WebSocket, seat: Seat) -> None:
    while (message := await websocket.receive())["type"] == "websocket.receive":
        content = message.get("bytes")
        await seat.receive(content if content is not None else message.get("text") or "")


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LARGEST):
        raise InvalidInput(f"{name}: give a whole number")
    return int(text)


def _size(query: Mapping[str, str]) -> Size | None:
    columns, rows = _number(query, "cols"), _number(query, "rows")
    if columns is None and rows is None:
        return None
    try:
        return Size.of(columns, rows)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
