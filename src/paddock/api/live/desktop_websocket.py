"""The desktop of a sandbox over a WebSocket, as RFB for noVNC."""

from __future__ import annotations

import re

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from paddock.api.http.authorization import parse_query_parameters, require_principal
from paddock.api.http.uvicorn_protocols import TAKEOVER_EXTENSION, SocketTakeover
from paddock.api.services import ApiServices
from paddock.errors import InvalidInput, Unsupported
from paddock.live.desktop.viewers import VIEWER_ID_PATTERN
from paddock.model.keys import Scope

SUBPROTOCOL = "binary"


def create_websocket_routes(services: ApiServices) -> list[WebSocketRoute]:
    desktops = services.live.desktops

    async def desktop(websocket: WebSocket) -> None:
        """Relay the desktop; input is accepted while this viewer holds the input lease."""
        scope = websocket.scope
        principal = require_principal(scope, Scope.SANDBOXES_READ)
        sandbox_id = websocket.path_params["sandbox_id"]
        viewer = parse_query_parameters(scope).get("viewer", "")
        if viewer and not re.fullmatch(VIEWER_ID_PATTERN, viewer):
            raise InvalidInput("viewer: an id has 1 to 100 letters, digits and . _ : @ + -")
        takeover: SocketTakeover | None = (scope.get("extensions") or {}).get(TAKEOVER_EXTENSION)
        if takeover is None:
            raise Unsupported("desktops are not served over this kind of connection")
        if not principal.allows(Scope.SANDBOXES_WRITE):
            viewer = ""  # Without the write scope a viewer never has input, even with the lease holder's id.
        async with desktops.open_display(principal.tenant, sandbox_id) as view:
            takeover.pause_reading()
            await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in scope["subprotocols"] else None)
            try:
                client = await takeover()
            except (OSError, TimeoutError):
                return
            await desktops.serve_viewer(client, view, viewer)

    return [WebSocketRoute("/v1/sandboxes/{sandbox_id}/desktop", desktop)]
