"""Stands before everything: names the request, checks the host, logs, and lets no exception out."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddock.api.access import header
from paddock.api.errors import refuse_websocket, send_error
from paddock.config.schema import ServerConfig
from paddock.telemetry.exposition import Traffic
from paddock.telemetry.loop import LoopMonitor

PROXIED = "paddock.proxied"
"""Set in the scope of requests that a box answers; its answers carry headers of their own."""
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SECURITY = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
log = structlog.get_logger()


class Front:
    """The outermost application."""

    def __init__(self, app: ASGIApp, config: ServerConfig, traffic: Traffic, loop: LoopMonitor) -> None:
        self._app = app
        self._traffic = traffic
        self._loop = loop
        self._hosts = Hosts(config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        shown = header(scope, b"x-request-id")
        request_id = shown if REQUEST_ID.fullmatch(shown) else secrets.token_hex(8)
        answer = _Answer(send, request_id, scope)
        started = time.perf_counter()
        try:
            if self._hosts.accept(scope):
                route = f"{scope.get('method', 'WEBSOCKET')} {scope['path']}"
                await self._loop.timed(self._run(scope, receive, answer.send), route)
            else:
                name = header(scope, b"host")
                message = f"this server does not answer to the name {name}; see server.allowed_hosts"
                await self._refuse(scope, answer, 421, "MISDIRECTED", message)
        except asyncio.CancelledError:
            # Only a server that stops does this. Those who wait for the first byte must learn that they may ask again.
            if answer.status is None:
                await self._refuse(
                    scope, answer, 503, "UNAVAILABLE", "the server is stopping; ask again when it is back"
                )
        except Exception:
            log.exception("a request failed", request=request_id, method=scope.get("method"), path=scope["path"])
            if answer.status is None:
                message = f"something went wrong here; the server's log says more under {request_id}"
                await self._refuse(scope, answer, 500, "INTERNAL_ERROR", message)
        finally:
            # How long a WebSocket lasts says nothing of the server.
            taken = None if scope["type"] == "websocket" else time.perf_counter() - started
            self._traffic.count(scope.get("method", "WEBSOCKET"), answer.status or 0, taken)
            log.debug(
                "request",
                request=request_id,
                method=scope.get("method", "WEBSOCKET"),
                path=scope["path"],
                status=answer.status,
                milliseconds=round((time.perf_counter() - started) * 1000, 1),
            )

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def _refuse(self, scope: Scope, answer: _Answer, status: int, code: str, message: str) -> None:
        if scope["type"] == "websocket":
            await refuse_websocket(answer.send, scope.get("extensions") or {}, status, code, message)
        else:
            await send_error(answer.send, status, code, message)


class _Answer:
    """Passes an answer on, with the headers every answer has."""

    def __init__(self, send: Send, request_id: str, scope: Scope) -> None:
        self._send = send
        self._request_id = request_id
        self._scope = scope
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self.status = message["status"]
            headers = [*message.get("headers", ())]
            if self.status == 401 and header(self._scope, b"x-paddock-console"):
                headers = [pair for pair in headers if pair[0].lower() != b"www-authenticate"]
            present = {name for name, _ in headers}
            if b"x-request-id" not in present:
                headers.append((b"x-request-id", self._request_id.encode()))
            if not self._scope.get(PROXIED):
                headers += [(name, value) for name, value in _SECURITY if name not in present]
            message = {**message, "headers": headers}
        elif message["type"] == "websocket.accept":
            self.status = 101
        await self._send(message)


class Hosts:
    """Which names this server answers to.

    A web page can make its own name lead to this machine (DNS rebinding) and would then be allowed to read our
    answers; but the browser still says which name it was.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._names = {name.lower() for name in config.allowed_hosts} | {"localhost", config.host.strip("[]").lower()}

    def accept(self, scope: Scope) -> bool:
        name = header(scope, b"host")
        if self.knows(name):
            return True
        server = scope.get("server")
        return bool(server and host_name(name).lower() == str(server[0]).lower())

    def knows(self, host: str) -> bool:
        """Whether a Host header names this server, whichever of its addresses the request came to."""
        name = host_name(host).lower()
        if name in self._names or "*" in self._names:
            return bool(name)
        if is_loopback_address(name):
            return True
        return any(known.startswith("*.") and name.endswith(known[1:]) for known in self._names)


def host_name(value: str) -> str:
    """The name in a Host header, without its port."""
    if value.startswith("["):
        return value[1:].partition("]")[0]
    return value.rpartition(":")[0] if value.count(":") == 1 else value


def is_loopback_address(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
