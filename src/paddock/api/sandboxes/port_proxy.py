"""Reverse proxy to programs in a sandbox: streams requests and responses in both directions."""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import aiohttp
from multidict import CIMultiDict
from starlette.types import Receive, Scope, Send

from paddock.api.http.authentication import RequestAuthenticator
from paddock.api.http.authorization import NO_KEY_MESSAGE, read_header, read_query_token, read_request_api_key
from paddock.api.http.error_responses import send_error_response, status_for_error
from paddock.api.http.outer_middleware import PROXIED_SCOPE_KEY
from paddock.api.sandboxes.egress_sidecar import EGRESS_PORT, EgressSidecar
from paddock.api.sandboxes.proxy_headers import Headers, headers_from_sandbox, headers_to_sandbox
from paddock.api.sandboxes.websocket_relay import relay_websocket_to_sandbox
from paddock.auth.key_secrets import looks_like_key_secret
from paddock.errors import (
    Conflict,
    InvalidInput,
    PaddockError,
    SandboxError,
    SandboxNotFound,
    SandboxTimeout,
    Unauthorized,
)
from paddock.fleet.fleet import Fleet
from paddock.fleet.port_forwards import EXECD_PORT
from paddock.model.keys import Scope as KeyScope
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.sandbox.base import TOKEN_HEADER
from paddock.sandbox.daemon.client import DaemonClient

PROXY_PATH = re.compile(rb"(/v1/sandboxes/([^/]*)/proxy/([^/]*))(/.*)?", re.DOTALL)
SANDBOX_ID = re.compile(rb"[a-z0-9][a-z0-9-]{0,62}")
_TOKEN_HEADER = TOKEN_HEADER.lower().encode()
_AUTOMATIC = frozenset({"Accept", "Accept-Encoding", "Content-Type", "User-Agent"})
STALL_TIMEOUT = 300.0
"""Seconds a sandbox may leave a request body unread; during that time a disconnect of the client goes unnoticed."""
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"})


@dataclass(frozen=True)
class ProxyTarget:
    """The sandbox and port that a request is for."""

    prefix: bytes
    """The path up to the port, exactly as sent."""
    sandbox_id: str
    port: int
    rest: bytes
    """The remaining path for the program, exactly as sent."""


class PortProxy:
    """Serves everything below `/v1/sandboxes/{id}/proxy/{port}`."""

    def __init__(self, fleet: Fleet, admission: RequestAuthenticator, sidecar: EgressSidecar) -> None:
        self._fleet = fleet
        self._sidecar = sidecar
        self._admission = admission

    def match_target(self, scope: Scope) -> ProxyTarget | None:
        """Return the target of a request, or `None` if it is not for a port.

        The path is matched as sent: decoding it could turn one program's path into another's.
        """
        raw = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
        found = PROXY_PATH.fullmatch(raw)
        if found is None:
            return None
        prefix, sandbox_id, port, rest = found.groups()
        valid = port.isdigit() and len(port) <= 5
        known = SANDBOX_ID.fullmatch(sandbox_id)
        return ProxyTarget(prefix, sandbox_id.decode() if known else "", int(port) if valid else 0, rest or b"/")

    async def serve(self, target: ProxyTarget, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. Raises `PaddockError` only while nothing has been answered."""
        sandbox, used_token = await self._authenticate(target, scope)
        if not 1 <= target.port <= 65535:
            raise InvalidInput("a port is a number from 1 to 65535")
        if target.port == EGRESS_PORT:
            await self._sidecar.serve(scope, receive, send, sandbox, target.rest)
            return
        if sandbox.state is not SandboxState.RUNNING:
            raise Conflict(f"sandbox {sandbox.id} is {sandbox.state}, not {SandboxState.RUNNING}")
        inside = self._fleet.client(sandbox)
        path = target.rest if target.port == EXECD_PORT else b"/proxy/%d%s" % (target.port, target.rest)
        query = _remove_token(scope["query_string"]) if used_token else scope["query_string"]
        address = (path + b"?" + query if query else path).decode("latin-1")
        headers = PortHeaders(target.port, target.prefix)
        await forward_to_sandbox(inside, address, headers, scope, receive, send, send_error_response)

    async def _authenticate(self, target: ProxyTarget, scope: Scope) -> tuple[Sandbox, bool]:
        """Return the sandbox and whether the secret was in the address.

        Accepts a key of the sandbox's tenant, or the token that belongs to the port.
        """
        secret = read_request_api_key(scope)
        own_token = target.port in (EXECD_PORT, EGRESS_PORT)
        token = read_header(scope, _TOKEN_HEADER) or (read_query_token(scope) if scope["type"] == "websocket" else "")
        in_address = scope["type"] == "websocket" and secret == read_query_token(scope) != ""
        if own_token and token and not looks_like_key_secret(secret):
            return await self._authenticate_token(target, token), in_address or token == read_query_token(scope)
        if not secret and scope["type"] == "websocket":
            # A browser reports this server as the origin of a sandbox's pages too, so a cookie is no proof here.
            raise Unauthorized(NO_KEY_MESSAGE)
        try:
            principal = await self._admission.authenticate(scope)
        except Unauthorized:
            if own_token and token:
                return await self._authenticate_token(target, token), in_address
            raise
        principal.require(KeyScope.SANDBOXES_WRITE)
        return await self._fleet.get(principal.tenant, target.sandbox_id), in_address

    async def _authenticate_token(self, target: ProxyTarget, token: str) -> Sandbox:
        try:
            sandbox = await self._fleet.sandboxes.get(target.sandbox_id)
        except SandboxNotFound:
            raise Unauthorized(NO_KEY_MESSAGE) from None
        # A program in the sandbox may know the daemon's token, but must not change its own network policy.
        expected = sandbox.network_token if target.port == EGRESS_PORT else sandbox.token
        if not expected or not hmac.compare_digest(expected.encode(), token.encode()):
            raise Unauthorized(NO_KEY_MESSAGE)
        return sandbox


class HeaderFilter(Protocol):
    """Headers between a client and a program in a sandbox."""

    def to_sandbox(self, scope: Scope) -> CIMultiDict[str]:
        """Return the client's headers as the program receives them."""
        ...

    def from_sandbox(self, received: Iterable[tuple[bytes, bytes]]) -> Headers:
        """Return the program's headers as the client receives them."""
        ...


class ErrorSender(Protocol):
    """Answers a request with an error."""

    async def __call__(self, send: Send, status: int, code: str, message: str, *, close: bool = False) -> None: ...


@dataclass(frozen=True)
class PortHeaders:
    """Headers of requests to a port below its path."""

    port: int
    prefix: bytes

    def to_sandbox(self, scope: Scope) -> CIMultiDict[str]:
        return headers_to_sandbox(scope, self.port, self.prefix)

    def from_sandbox(self, received: Iterable[tuple[bytes, bytes]]) -> Headers:
        return headers_from_sandbox(received, self.prefix)


async def forward_to_sandbox(
    inside: DaemonClient,
    address: str,
    headers: HeaderFilter,
    scope: Scope,
    receive: Receive,
    send: Send,
    send_error: ErrorSender,
) -> None:
    """Forward a request or a WebSocket to an address of the daemon, and stream both directions until it ends."""
    scope[PROXIED_SCOPE_KEY] = True
    if scope["type"] == "websocket":
        await relay_websocket_to_sandbox(inside, address, headers.to_sandbox(scope), scope, receive, send)
    else:
        await _ProxiedRequest(inside, address, headers, scope, receive, send, send_error).run()


class _ProxiedRequest:
    """One proxied request and its response."""

    def __init__(
        self,
        inside: DaemonClient,
        address: str,
        headers: HeaderFilter,
        scope: Scope,
        receive: Receive,
        send: Send,
        send_error: ErrorSender,
    ) -> None:
        self._inside = inside
        self._address = address
        self._headers = headers
        self._send_error_response = send_error
        self._scope = scope
        self._receive = receive
        self._send = send
        self._sent_all = asyncio.Event()
        self._response_started = False
        self._unread_chunk: bytes | None = None
        """The chunk of the body that the sandbox has not read yet."""

    async def run(self) -> None:
        """Stream both directions until the response ends or the client disconnects."""
        answer = asyncio.create_task(self._relay_response())
        disconnected = asyncio.create_task(self._wait_for_disconnect())
        stalled = asyncio.create_task(self._wait_for_stall())
        try:
            await asyncio.wait((answer, disconnected, stalled), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                answer.result()
            elif stalled.done():
                raise SandboxTimeout("the sandbox does not read the request body")
        except (PaddockError, aiohttp.ClientError) as error:
            await self._send_error(error)
        finally:
            for task in (answer, disconnected, stalled):
                task.cancel()
            await asyncio.gather(answer, disconnected, stalled, return_exceptions=True)

    async def _relay_response(self) -> None:
        async with self._open_request() as answer:
            self._response_started = True
            headers = self._headers.from_sandbox(answer.raw_headers)
            await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
            # `iter_any` yields data as it arrives, without joining or splitting chunks.
            async for piece in answer.content.iter_any():
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            await self._send({"type": "http.response.body", "body": b""})

    def _open_request(self) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        scope = self._scope
        headers = self._headers.to_sandbox(scope)
        has_body = "Content-Length" in headers or read_header(scope, b"transfer-encoding") != ""
        if not has_body:
            self._sent_all.set()
            if scope["method"] not in _BODILESS:
                headers["Content-Length"] = "0"
        return self._inside.request(
            scope["method"],
            self._address,
            raw=True,
            headers=headers,
            data=self._stream_body() if has_body else None,
            skip_auto_headers=_AUTOMATIC,
        )

    async def _stream_body(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                # Returning here would make a partial body look complete.
                raise ConnectionResetError("the client disconnected")
            if message.get("body"):
                self._unread_chunk = message["body"]
                yield message["body"]
                self._unread_chunk = None
            if not message.get("more_body"):
                self._sent_all.set()
                return

    async def _wait_for_disconnect(self) -> None:
        await self._sent_all.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _wait_for_stall(self) -> None:
        while True:
            before = self._unread_chunk
            await asyncio.sleep(STALL_TIMEOUT)
            if before is not None and self._unread_chunk is before:
                return

    async def _send_error(self, error: PaddockError | aiohttp.ClientError) -> None:
        if self._response_started:
            return  # The server closes the connection of an unfinished response, so the client sees it was cut off.
        self._scope.pop(PROXIED_SCOPE_KEY, None)
        if not isinstance(error, PaddockError):
            error = SandboxError("the program in the sandbox does not answer in HTTP")
        await self._send_error_response(
            self._send, status_for_error(error), error.code, error.message, close=not self._sent_all.is_set()
        )


def _remove_token(query: bytes) -> bytes:
    return b"&".join(pair for pair in query.split(b"&") if pair.partition(b"=")[0] != b"token")
