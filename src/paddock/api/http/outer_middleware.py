"""Outermost middleware: assigns request ids, checks the host name, logs, and catches all exceptions."""

from __future__ import annotations

import asyncio
import re
import secrets
import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddock.api.http.allowed_hosts import AllowedHosts
from paddock.api.http.authorization import read_header
from paddock.api.http.error_responses import refuse_websocket, send_error_response
from paddock.config.schema import ServerConfig
from paddock.telemetry.event_loop_monitor import EventLoopMonitor
from paddock.telemetry.prometheus import RequestMetrics

_PREVIEW_TOKEN = re.compile(r"(?<=^/preview/)([0-9a-f]{8})[0-9a-f]{24}(?:\.[A-Za-z0-9_-]{43})?")
PROXIED_SCOPE_KEY = "paddock.proxied"
"""Set in the scope of requests that a sandbox or a model provider answers: no headers are added to their answers."""
REQUEST_ID_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
log = structlog.get_logger()


def mask_preview_token(path: str) -> str:
    """Return a path without the token of a preview, which must not be in the log."""
    return _PREVIEW_TOKEN.sub(r"\1…", path)


class OuterMiddleware:
    """The outermost ASGI application."""

    def __init__(self, app: ASGIApp, config: ServerConfig, traffic: RequestMetrics, loop: EventLoopMonitor) -> None:
        self._app = app
        self._traffic = traffic
        self._loop = loop
        self._hosts = AllowedHosts(config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        logged_path = mask_preview_token(scope["path"])
        shown = read_header(scope, b"x-request-id")
        request_id = shown if REQUEST_ID_PATTERN.fullmatch(shown) else secrets.token_hex(8)
        answer = _ResponseSender(send, request_id, scope)
        started = time.perf_counter()
        try:
            if self._hosts.allows_request(scope):
                route = f"{scope.get('method', 'WEBSOCKET')} {logged_path}"
                await self._loop.measure(self._run_app(scope, receive, answer.send), route)
            else:
                name = read_header(scope, b"host")
                message = f"this server does not answer to the name {name}; see server.allowed_hosts"
                await self._send_refusal(scope, answer, 421, "MISDIRECTED", message)
        except asyncio.CancelledError:
            # Only a stopping server cancels requests. Clients without a first byte must learn that they may retry.
            if answer.status is None:
                await self._send_refusal(
                    scope, answer, 503, "UNAVAILABLE", "the server is stopping; try again when it is back"
                )
        except Exception:
            log.exception("request failed", request=request_id, method=scope.get("method"), path=logged_path)
            if answer.status is None:
                message = f"internal error; see the server's log, request {request_id}"
                await self._send_refusal(scope, answer, 500, "INTERNAL_ERROR", message)
        finally:
            # The lifetime of a WebSocket is no measure of the server's speed.
            taken = None if scope["type"] == "websocket" else time.perf_counter() - started
            self._traffic.count_request(scope.get("method", "WEBSOCKET"), answer.status or 0, taken)
            log.debug(
                "request",
                request=request_id,
                method=scope.get("method", "WEBSOCKET"),
                path=logged_path,
                status=answer.status,
                milliseconds=round((time.perf_counter() - started) * 1000, 1),
            )

    async def _run_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def _send_refusal(self, scope: Scope, answer: _ResponseSender, status: int, code: str, message: str) -> None:
        if scope["type"] == "websocket":
            await refuse_websocket(answer.send, scope.get("extensions") or {}, status, code, message)
        else:
            await send_error_response(answer.send, status, code, message)


class _ResponseSender:
    """Forwards a response and adds the headers that all responses have."""

    def __init__(self, send: Send, request_id: str, scope: Scope) -> None:
        self._send = send
        self._request_id = request_id
        self._scope = scope
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self.status = message["status"]
            headers = [*message.get("headers", ())]
            if self.status == 401 and read_header(self._scope, b"x-paddock-console"):
                headers = [pair for pair in headers if pair[0].lower() != b"www-authenticate"]
            present = {name for name, _ in headers}
            if b"x-request-id" not in present:
                headers.append((b"x-request-id", self._request_id.encode()))
            if not self._scope.get(PROXIED_SCOPE_KEY):
                headers += [(name, value) for name, value in _SECURITY_HEADERS if name not in present]
            message = {**message, "headers": headers}
        elif message["type"] == "websocket.accept":
            self.status = 101
        await self._send(message)
