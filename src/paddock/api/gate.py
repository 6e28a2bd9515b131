"""Lets in who has a key, keeps out what is too large, and shows the way to a model, a box, the console or the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddock.api.access import PRINCIPAL, header, secret_of, ticket_of
from paddock.api.admission import Admission
from paddock.api.console import Console
from paddock.api.errors import refuse_websocket, send_error, status_of
from paddock.api.llm import ModelDoor
from paddock.api.origins import Origins
from paddock.api.proxy import Proxy
from paddock.auth.logins import Logins
from paddock.auth.tickets import Tickets
from paddock.errors import Forbidden, PaddockError, TooLarge

OPEN = frozenset({"/health", "/healthz", "/readyz", "/version", "/docs", "/openapi.json"})
OPEN_PATHS = OPEN | {f"/v1{path}" for path in ("/health", "/healthz", "/readyz", "/version", "/login")}

POLICY = 1008
MOST_VALUES = 500_000


class Gate:
    def __init__(
        self,
        routes: ASGIApp,
        proxy: Proxy,
        models: ModelDoor,
        admission: Admission,
        logins: Logins,
        max_body: int,
        streamed: Collection[str] = (),
        *,
        console: Console,
        sockets: ASGIApp,
        tickets: Tickets,
        origins: Origins,
    ) -> None:
        """Bodies sent to the paths of `streamed` are never held whole, and bounded by who reads them.

        `sockets` are the WebSockets of this server itself, which take tickets too.
        """
        self._routes = routes
        self._sockets = sockets
        self._tickets = tickets
        self._origins = origins
        self._proxy = proxy
        self._models = models
        self._admission = admission
        self._logins = logins
        self._console = console
        self._max_body = max_body
        self._streamed = frozenset(streamed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._models.concerns(scope):
            await self._models.serve(scope, receive, send)
            return
        target = self._proxy.match(scope)
        try:
            if target is not None:
                await self._proxy.serve(target, scope, receive, send)
            elif scope["type"] == "websocket":
                await self._admit_socket(scope)
                await self._while_welcome(scope, receive, send)
            elif scope["path"] in OPEN_PATHS:
                await self._routes(scope, self._measured(receive), send)
            elif self._console.concerns(scope):
                await self._console.serve(scope, send)
            else:
                await self._admit(scope)
                passed = receive if scope["path"] in self._streamed else self._measured(receive)
                await self._routes(scope, passed, send)
        except PaddockError as error:
            if scope["type"] == "websocket":
                extensions = scope.get("extensions") or {}
                await refuse_websocket(send, extensions, status_of(error), error.code, error.message)
            else:
                await send_error(send, status_of(error), error.code, error.message)

    async def _admit(self, scope: Scope) -> None:
        """Before a byte of the body is read."""
        scope[PRINCIPAL] = await self._admission.principal(scope)
        length = header(scope, b"content-length")
        if length.isdigit() and int(length) > self._max_body and scope["path"] not in self._streamed:
            raise TooLarge(self._too_large())

    async def _admit_socket(self, scope: Scope) -> None:
        """By a ticket, a key or a login; and from a web page only if it is one of ours."""
        if not self._origins.accept(scope):
            origin = header(scope, b"origin")
            raise Forbidden(f"pages of {origin} may not connect; add it to server.cors_origins if they should")
        ticket = ticket_of(scope)
        if ticket and not secret_of(scope):
            principal = self._tickets.redeem(ticket, scope["path"])
            await self._logins.confirm(principal)
            scope[PRINCIPAL] = principal
        else:
            await self._admit(scope)

    async def _while_welcome(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket, which may last for days, until the key it was opened with works no more."""
        serving: asyncio.Future[None] = asyncio.ensure_future(self._sockets(scope, receive, send))
        watching = asyncio.create_task(self._logins.stopped(scope[PRINCIPAL]))
        try:
            await asyncio.wait((serving, watching), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                return serving.result()
            reason = watching.result()
            serving.cancel(reason)
            await asyncio.gather(serving, return_exceptions=True)
        finally:
            serving.cancel()
            watching.cancel()
            await asyncio.gather(serving, watching, return_exceptions=True)
        try:
            await send({"type": "websocket.close", "code": POLICY, "reason": reason})
        except (RuntimeError, OSError):
            pass  # It was closed by then.

    def _measured(self, receive: Receive) -> Receive:
        """Bodies may come without saying how long they are."""
        size = crowd = 0

        async def measured() -> Message:
            nonlocal size, crowd
            message = await receive()
            piece: bytes = message.get("body", b"")
            size += len(piece)
            crowd += piece.count(b"[") + piece.count(b"{")
            if crowd > MOST_VALUES:
                # JSON is read at once, and nobody else is served meanwhile: lists by the million take seconds.
                raise HTTPException(413, f"the body has more than {MOST_VALUES} lists and objects in it")
            if size > self._max_body:
                # Only an error of the framework's own passes through the framework's reading of bodies.
                raise HTTPException(413, self._too_large())
            return message

        return measured

    def _too_large(self) -> str:
        return f"the body is larger than server.max_body ({self._max_body} bytes)"
