"""Lets in who has a key, keeps out what is too large, and shows the way to a model, a box, the console or the rest."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from paddock.api.access import PRINCIPAL, header, secret_of, ticket_of
from paddock.api.admission import Admission
from paddock.api.bodies import LOGIN, BodyRules
from paddock.api.console import Console
from paddock.api.errors import refuse_websocket, send_error, status_of
from paddock.api.llm import ModelDoor
from paddock.api.origins import Origins
from paddock.api.proxy import Proxy
from paddock.auth.logins import Logins
from paddock.auth.tickets import Tickets
from paddock.errors import Forbidden, PaddockError

OPEN = frozenset({"/health", "/healthz", "/readyz", "/version", "/docs", "/openapi.json"})
OPEN_PATHS = OPEN | {f"/v1{path}" for path in ("/health", "/healthz", "/readyz", "/version", "/login")}

POLICY = 1008


class Gate:
    def __init__(
        self,
        routes: ASGIApp,
        proxy: Proxy,
        models: ModelDoor,
        admission: Admission,
        logins: Logins,
        bodies: BodyRules,
        *,
        console: Console,
        sockets: ASGIApp,
        tickets: Tickets,
        origins: Origins,
    ) -> None:
        """`sockets` are the WebSockets of this server itself, which take tickets too."""
        self._routes = routes
        self._sockets = sockets
        self._tickets = tickets
        self._origins = origins
        self._proxy = proxy
        self._models = models
        self._admission = admission
        self._logins = logins
        self._console = console
        self._bodies = bodies

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
            elif self._console.concerns(scope):
                await self._console.serve(scope, send)
            elif scope["path"] in OPEN_PATHS:
                if scope["path"] == LOGIN:
                    self._logins.check_patience(scope["client"][0] if scope.get("client") else "")
                await self._routes(scope, self._bodies.check(scope, receive), send)
            else:
                await self._admit(scope)
                await self._routes(scope, self._bodies.check(scope, receive), send)
        except PaddockError as error:
            if scope["type"] == "websocket":
                extensions = scope.get("extensions") or {}
                await refuse_websocket(send, extensions, status_of(error), error.code, error.message)
            else:
                await send_error(send, status_of(error), error.code, error.message)

    async def _admit(self, scope: Scope) -> None:
        """Before a byte of the body is read."""
        scope[PRINCIPAL] = await self._admission.principal(scope)

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
