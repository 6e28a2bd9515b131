"""Routes for terminals of sandboxes: a list, and a WebSocket shared by several viewers."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping

from fastapi import APIRouter
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from paddock.api.http.authorization import SandboxReader, SandboxWriter, parse_query_parameters, require_principal
from paddock.api.http.body_models import ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.server_sent_events import MAX_RESUME_POSITION
from paddock.api.http.websockets import receive_websocket_frames, run_websocket_until_one_ends
from paddock.api.services import ApiServices
from paddock.errors import InvalidInput
from paddock.live.desktop.viewers import VIEWER_ID_PATTERN
from paddock.live.terminal.terminal_viewer import TerminalSize, TerminalViewer
from paddock.model.keys import Scope

NORMAL, GOING_AWAY = 1000, 1001


class TerminalResponse(ResponseBody):
    name: str
    running: bool
    """Whether its program is still running."""
    viewers: int


class TerminalListResponse(ResponseBody):
    items: list[TerminalResponse]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/terminals", tags=["Terminals"])
    terminals = services.live.terminals

    @router.get("", responses=openapi_errors(404, 409, 502, 504))
    async def list_terminals(sandbox_id: str, principal: SandboxReader) -> TerminalListResponse:
        """List a sandbox's terminals and the number of viewers of each."""
        found = await terminals.list_terminals(principal.tenant, sandbox_id)
        return TerminalListResponse(items=[TerminalResponse(**each) for each in found])

    @router.delete("/{name}", status_code=204, responses=openapi_errors(404, 409, 502, 504))
    async def end_terminal(sandbox_id: str, name: str, principal: SandboxWriter) -> None:
        """Close a terminal and end its programs."""
        await terminals.end_terminal(principal.tenant, sandbox_id, name)

    return router


def create_websocket_routes(services: ApiServices) -> list[WebSocketRoute]:
    terminals = services.live.terminals

    async def terminal(websocket: WebSocket) -> None:
        """Watch a terminal and type in it. A shell is started for a new name."""
        principal = require_principal(websocket.scope, Scope.SANDBOXES_READ)
        query = parse_query_parameters(websocket.scope)
        viewer = query.get("viewer") or secrets.token_hex(8)
        if not re.fullmatch(VIEWER_ID_PATTERN, viewer):
            raise InvalidInput("viewer: an id has 1 to 100 letters, digits and . _ : @ + -")
        may_type = principal.allows(Scope.SANDBOXES_WRITE)
        terminal_viewer = await terminals.open_terminal(
            principal.tenant,
            websocket.path_params["sandbox_id"],
            query.get("name", "main"),
            # Without the write scope a viewer must not renew the lease holder's input lease by its id.
            viewer=viewer if may_type else secrets.token_hex(8),
            since=_parse_number(query, "since") or 0,
            size=_parse_size(query),
            may_type=may_type,
        )
        try:
            await websocket.accept()
            await run_websocket_until_one_ends(
                services.loop,
                websocket,
                _send_output(websocket, terminal_viewer),
                _receive_input(websocket, terminal_viewer),
            )
        finally:
            terminal_viewer.close()

    return [WebSocketRoute("/v1/sandboxes/{sandbox_id}/terminal", terminal)]


async def _send_output(websocket: WebSocket, terminal_viewer: TerminalViewer) -> None:
    last: Mapping[str, object] = {}
    async for message in terminal_viewer.messages():
        if isinstance(message, bytes):
            await websocket.send_bytes(message)
        else:
            last = message
            await websocket.send_text(json.dumps(message))
    code = NORMAL if last.get("type") == "exit" else GOING_AWAY
    await websocket.close(code, str(last.get("reason") or ""))


async def _receive_input(websocket: WebSocket, terminal_viewer: TerminalViewer) -> None:
    async for message in receive_websocket_frames(websocket):
        content = message.get("bytes")
        await terminal_viewer.handle_message(content if content is not None else message.get("text") or "")


def _parse_number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_RESUME_POSITION):
        raise InvalidInput(f"{name}: give a whole number")
    return int(text)


def _parse_size(query: Mapping[str, str]) -> TerminalSize | None:
    columns, rows = _parse_number(query, "cols"), _parse_number(query, "rows")
    if columns is None and rows is None:
        return None
    try:
        return TerminalSize.parse(columns, rows)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
