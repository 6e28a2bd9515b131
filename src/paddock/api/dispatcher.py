"""Authenticates requests, limits their bodies, and dispatches to models, sandboxes, the console or the routes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send

from paddock.api.admin.web_console import WebConsole
from paddock.api.http.allowed_origins import AllowedOrigins
from paddock.api.http.authentication import RequestAuthenticator
from paddock.api.http.authorization import (
    PRINCIPAL_SCOPE_KEY,
    has_model_key,
    read_header,
    read_query_ticket,
    read_request_api_key,
)
from paddock.api.http.body_limits import LOGIN_PATH, BodyLimiter
from paddock.api.http.error_responses import refuse_websocket, send_error_response, status_for_error
from paddock.api.llm.model_proxy import ModelProxy
from paddock.api.mcp.mcp_app import McpApp
from paddock.api.sandboxes.port_proxy import PortProxy
from paddock.auth.logins import BrowserLogins
from paddock.auth.tickets import OneTimeTickets
from paddock.errors import Forbidden, PaddockError
from paddock.telemetry.event_loop_monitor import EventLoopMonitor

PUBLIC_ROUTES = frozenset({"/health", "/healthz", "/readyz", "/version", "/docs", "/openapi.json"})
PUBLIC_PATHS = PUBLIC_ROUTES | {f"/v1{path}" for path in ("/health", "/healthz", "/readyz", "/version", "/login")}
PUBLIC_PATHS |= {"/v1/mcp/oauth/callback", "/v1/mcp/oauth/client.json"}
"""Routes that need no key. Browsers and authorization servers come to the last two."""

POLICY_VIOLATION = 1008


class RequestDispatcher:
    """Dispatches each request after authentication and limits. Errors become error responses."""

    def __init__(
        self,
        routes: ASGIApp,
        proxy: PortProxy,
        models: ModelProxy,
        mcp: McpApp,
        admission: RequestAuthenticator,
        logins: BrowserLogins,
        bodies: BodyLimiter,
        *,
        console: WebConsole,
        sockets: ASGIApp,
        tickets: OneTimeTickets,
        origins: AllowedOrigins,
        loop: EventLoopMonitor,
        paths: Iterable[re.Pattern[str]],
    ) -> None:
        """`sockets` are the server's own WebSockets, which also accept tickets; `paths` match the paths of `routes`."""
        self._paths = tuple(paths)
        self._routes = routes
        self._sockets = sockets
        self._tickets = tickets
        self._origins = origins
        self._proxy = proxy
        self._models = models
        self._mcp = mcp
        self._admission = admission
        self._logins = logins
        self._console = console
        self._bodies = bodies
        self._loop = loop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._models.handles(scope):
            await self._models.serve(scope, receive, send)
            return
        if self._mcp.handles(scope):
            await self._mcp.serve(scope, receive, send)
            return
        target = self._proxy.match_target(scope)
        try:
            if target is not None:
                await self._proxy.serve(target, scope, receive, send)
            elif scope["type"] == "websocket":
                await self._authenticate_websocket(scope)
                await self._serve_while_valid(scope, receive, send)
            elif self._console.handles(scope):
                await self._console.serve(scope, send)
            elif scope["path"] in PUBLIC_PATHS:
                if scope["path"] == LOGIN_PATH:
                    self._logins.check_failed_attempts(scope["client"][0] if scope.get("client") else "")
                await self._serve_routes(scope, receive, send)
            elif self._is_unknown_model_path(scope):
                await self._models.serve(scope, receive, send)
            else:
                await self._authenticate(scope)
                await self._serve_routes(scope, receive, send)
        except PaddockError as error:
            if scope["type"] == "websocket":
                extensions = scope.get("extensions") or {}
                await refuse_websocket(send, extensions, status_for_error(error), error.code, error.message)
            else:
                await send_error_response(send, status_for_error(error), error.code, error.message)

    def _is_unknown_model_path(self, scope: Scope) -> bool:
        """Return whether a client of a model API asks for a path that no route has."""
        if not has_model_key(scope) or read_request_api_key(scope):
            return False
        return not any(pattern.match(scope["path"]) for pattern in self._paths)

    async def _serve_routes(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._bodies.limit_body(scope, receive) as receive_limited:
            await self._routes(scope, receive_limited, send)

    async def _authenticate(self, scope: Scope) -> None:
        """Authenticate before the first byte of the body is read."""
        scope[PRINCIPAL_SCOPE_KEY] = await self._admission.authenticate(scope)

    async def _authenticate_websocket(self, scope: Scope) -> None:
        """Authenticate by ticket, key or login; of web pages, only allowed origins may connect."""
        if not self._origins.allows_request(scope):
            origin = read_header(scope, b"origin")
            raise Forbidden(f"pages of {origin} may not connect; add it to server.cors_origins if they should")
        ticket = read_query_ticket(scope)
        if ticket and not read_request_api_key(scope):
            principal = self._tickets.redeem(ticket, scope["path"])
            await self._logins.confirm_usable(principal)
            scope[PRINCIPAL_SCOPE_KEY] = principal
        else:
            await self._authenticate(scope)

    async def _serve_while_valid(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket, which may last for days, until its key or login becomes invalid."""
        work = cast(Coroutine[Any, Any, None], self._sockets(scope, receive, send))
        serving = self._loop.start_task(work, f"WEBSOCKET {scope['path']}")
        watching = asyncio.create_task(self._logins.wait_until_invalid(scope[PRINCIPAL_SCOPE_KEY]))
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
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
        except (RuntimeError, OSError):
            pass  # It is closed already.
