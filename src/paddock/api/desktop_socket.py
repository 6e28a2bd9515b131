"""The desktop of a sandbox as a WebSocket that speaks RFB, as noVNC does."""

from __future__ import annotations

import re

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from paddock.api.access import principal_of, query_of
from paddock.api.connections import TAKE, Take
from paddock.api.services import Services
from paddock.errors import InvalidInput, Unsupported
from paddock.live.desktops import VIEWER
from paddock.model.keys import Scope

SUBPROTOCOL = "binary"


def sockets(services: Services) -> list[WebSocketRoute]:
    desktops = services.live.desktops

    async def desktop(websocket: WebSocket) -> None:
        """Watch, and touch while one has the input."""
        scope = websocket.scope
        principal = principal_of(scope, Scope.SANDBOXES_READ)
        sandbox_id = websocket.path_params["sandbox_id"]
        viewer = query_of(scope).get("viewer", "")
        if viewer and not re.fullmatch(VIEWER, viewer):
            raise InvalidInput("viewer: an id has 1 to 100 letters, digits and . _ : @ + -")
        take: Take | None = (scope.get("extensions") or {}).get(TAKE)
        if take is None:
            raise Unsupported("desktops are not served over this kind of connection")
        if not principal.allows(Scope.SANDBOXES_WRITE):
            viewer = ""  # Whoever may not change a sandbox does not touch it, whatever id they show.
        async with desktops.viewing(principal.tenant, sandbox_id) as view:
            take.hold()
            await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in scope["subprotocols"] else None)
            try:
                client = await take()
            except (OSError, TimeoutError):
                return
            await desktops.relay(client, view, viewer)

    return [WebSocketRoute("/v1/sandboxes/{sandbox_id}/desktop", desktop)]
