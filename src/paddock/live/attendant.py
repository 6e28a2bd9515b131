"""Lets programs in a box call its own tools over MCP, by the way that everybody else takes.

In a box, `http://127.0.0.1:8765/mcp` are its tools. It needs no key: the socket behind it is the box's own. An agent
there waits for a person who has the mouse and keyboard, as one outside does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

import structlog
from aiohttp import web

from paddock.errors import InvalidInput
from paddock.fleet.doors import Door
from paddock.fleet.requests import CreateSandbox
from paddock.fleet.sockets import from_a_page, hole_socket
from paddock.live import jsonrpc
from paddock.live.displays import Displays
from paddock.live.hands import Hands
from paddock.model.sandbox import Hole, Sandbox

NAME = "tools"
PORT = 8765
PATH = "/mcp"
ADDRESS = f"http://127.0.0.1:{PORT}{PATH}"
VARIABLE = "PADDOCK_TOOLS_URL"
BODIES = 4 * jsonrpc.LARGEST_REQUEST
"""Bytes of requests that one box may have on their way."""
BODY_WITHIN = 60.0
"""Seconds a body may take to come."""
log = structlog.get_logger()


class OwnTools:
    """The attendant of a fleet that lets its sandboxes call their own tools, and watches their screens."""

    def __init__(self) -> None:
        self._served: dict[str, _Door] = {}
        self._hands: Hands | None = None
        self._displays: Displays | None = None

    def open(self, hands: Hands, displays: Displays) -> None:
        """Say who does the work. The fleet must know its attendants before there can be any hands."""
        self._hands = hands
        self._displays = displays

    @property
    def holes(self) -> tuple[Hole, ...]:
        return (Hole(name=NAME, port=PORT),)

    def check(self, request: CreateSandbox) -> None:
        """Raise `InvalidInput` for holes where ours is."""
        if any(hole.name == NAME or hole.port == PORT for hole in request.holes):
            raise InvalidInput(f"the hole {NAME} and port {PORT} of a sandbox lead to its own tools; use others")

    async def prepare(self, sandbox: Sandbox) -> Mapping[str, str]:
        return {VARIABLE: ADDRESS}

    async def started(self, sandbox: Sandbox, holes: Path) -> None:
        """Serve the sandbox's socket, in place of what an earlier server has left there."""
        if self._hands is None or self._displays is None:
            return
        door = _Door(sandbox, self._hands)
        try:
            async with hole_socket(holes, NAME) as bound:
                await door.listen(bound)
        except BaseException:
            await door.close()
            raise
        earlier = self._served.pop(sandbox.id, None)
        self._served[sandbox.id] = door
        if earlier is not None:
            await earlier.close()
        self._displays.watch(sandbox)

    async def renewed(self, sandbox: Sandbox) -> None:
        """Nothing here ends before the sandbox does."""

    async def ended(self, sandbox_id: str) -> None:
        """Close its socket and every connection that came through it."""
        door = self._served.pop(sandbox_id, None)
        if door is not None:
            await door.close()
        if self._displays is not None:
            await self._displays.leave(sandbox_id)
        if self._hands is not None:
            self._hands.forget(sandbox_id)

    async def attended(self) -> Collection[str]:
        return set(self._served)

    async def close(self) -> None:
        """Stop serving. The next server serves the boxes again."""
        while self._served:
            await self._served.popitem()[1].close()


class _Door(Door):
    """Where one box's programs call its tools."""

    def __init__(self, sandbox: Sandbox, hands: Hands) -> None:
        super().__init__(NAME)
        self._sandbox = sandbox
        self._hands = hands
        self._held = 0

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            answer, headers = await self._answer(request), {}
            if answer.status == 405:
                headers["Allow"] = "POST"
        except TimeoutError:
            answer, headers = jsonrpc.failure(408, jsonrpc.REFUSED, "the body of the request came too slowly"), {}
        except Exception:
            log.exception("a call of a tool failed in a way that nobody foresaw", sandbox=self._sandbox.id)
            raise
        kind = "application/json" if answer.body else None
        return web.Response(status=answer.status, body=answer.body or None, content_type=kind, headers=headers)

    async def _answer(self, request: web.BaseRequest) -> jsonrpc.Answer:
        if from_a_page(request.headers):
            return jsonrpc.failure(403, jsonrpc.REFUSED, "web pages may not use the tools of a sandbox")
        if request.path != PATH:
            return jsonrpc.failure(404, jsonrpc.REFUSED, f"the tools of this sandbox are at {PATH}")
        if request.method != "POST":
            return jsonrpc.failure(405, jsonrpc.REFUSED, "send messages of MCP with POST; nothing is ever sent unasked")
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_WITHIN):
                async for piece in request.content.iter_any():
                    body += piece
                    self._held += len(piece)
                    if self._held > BODIES:
                        return jsonrpc.failure(429, jsonrpc.REFUSED, "too much is on its way to the tools; wait")
                    if len(body) > jsonrpc.LARGEST_REQUEST:
                        break  # What is too large is refused where every message is looked at.
            version = request.headers.get(jsonrpc.PROTOCOL_HEADER)
            return await self._hands.rpc(self._sandbox.tenant, self._sandbox.id, bytes(body), version)
        finally:
            self._held -= len(body)
