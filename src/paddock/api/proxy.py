"""Carries requests to the programs in a box, and their answers back, piece by piece as they come."""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import aiohttp
from starlette.types import Receive, Scope, Send

from paddock.api import egress
from paddock.api.access import NO_KEY, header, secret_of, token_of
from paddock.api.admission import Admission
from paddock.api.errors import send_error, status_of
from paddock.api.front import PROXIED
from paddock.api.headers import from_box, to_box
from paddock.api.sockets import relay_websocket
from paddock.auth.secrets import looks_like_secret
from paddock.errors import BoxError, BoxTimeout, Conflict, InvalidInput, PaddockError, SandboxNotFound, Unauthorized
from paddock.fleet.fleet import Fleet
from paddock.fleet.forwards import EXECD_PORT
from paddock.model.keys import Scope as KeyScope
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.sandbox.base import TOKEN_HEADER
from paddock.sandbox.client import Inside

PATH = re.compile(rb"(/v1/sandboxes/([^/]*)/proxy/([^/]*))(/.*)?", re.DOTALL)
SANDBOX_ID = re.compile(rb"[a-z0-9][a-z0-9-]{0,62}")
_TOKEN_HEADER = TOKEN_HEADER.lower().encode()
_AUTOMATIC = frozenset({"Accept", "Accept-Encoding", "Content-Type", "User-Agent"})
STALLED = 300.0
"""Seconds a box may leave a body lying. While it does, nobody sees whether the client is still there."""
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"})


@dataclass(frozen=True)
class Target:
    """Which port of which sandbox a request is for."""

    prefix: bytes
    """The path that leads to the port, as it was written."""
    sandbox_id: str
    port: int
    rest: bytes
    """What of the path is the program's, as it was written."""


class Proxy:
    """Answers everything below `/v1/sandboxes/{id}/proxy/{port}`."""

    def __init__(self, fleet: Fleet, admission: Admission) -> None:
        self._fleet = fleet
        self._admission = admission

    def match(self, scope: Scope) -> Target | None:
        """What a request asks for, if it is for a port at all.

        The path is taken as it was sent: decoding it could turn one program's path into another's.
        """
        raw = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
        found = PATH.fullmatch(raw)
        if found is None:
            return None
        prefix, sandbox_id, port, rest = found.groups()
        valid = port.isdigit() and len(port) <= 5
        known = SANDBOX_ID.fullmatch(sandbox_id)
        return Target(prefix, sandbox_id.decode() if known else "", int(port) if valid else 0, rest or b"/")

    async def serve(self, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises `PaddockError` as long as nothing has been answered."""
        sandbox, used_token = await self._admit(target, scope)
        if not 1 <= target.port <= 65535:
            raise InvalidInput("a port is a number from 1 to 65535")
        if target.port == egress.PORT:
            await egress.serve(scope, receive, send, sandbox, target.rest)
            return
        if sandbox.state is not SandboxState.RUNNING:
            raise Conflict(f"sandbox {sandbox.id} is {sandbox.state}, not {SandboxState.RUNNING}")
        inside = self._fleet.client(sandbox)
        path = target.rest if target.port == EXECD_PORT else b"/proxy/%d%s" % (target.port, target.rest)
        query = _without_token(scope["query_string"]) if used_token else scope["query_string"]
        address = (path + b"?" + query if query else path).decode("latin-1")
        scope[PROXIED] = True
        if scope["type"] == "websocket":
            await relay_websocket(inside, address, to_box(scope, target.port, target.prefix), scope, receive, send)
        else:
            await _Exchange(inside, address, target, scope, receive, send).run()

    async def _admit(self, target: Target, scope: Scope) -> tuple[Sandbox, bool]:
        """The sandbox, for a key of its tenant or for its own token; and whether that was in the address."""
        secret = secret_of(scope)
        own_token = target.port in (EXECD_PORT, egress.PORT)
        token = header(scope, _TOKEN_HEADER) or (token_of(scope) if scope["type"] == "websocket" else "")
        in_address = scope["type"] == "websocket" and secret == token_of(scope) != ""
        if own_token and token and not looks_like_secret(secret):
            return await self._by_token(target, token), in_address or token == token_of(scope)
        if not secret and scope["type"] == "websocket":
            # The box's own pages may come from this origin as far as a browser tells of its WebSockets.
            raise Unauthorized(NO_KEY)
        try:
            principal = await self._admission.principal(scope)
        except Unauthorized:
            if own_token and token:
                return await self._by_token(target, token), in_address
            raise
        principal.require(KeyScope.SANDBOXES_WRITE)
        return await self._fleet.get(principal.tenant, target.sandbox_id), in_address

    async def _by_token(self, target: Target, token: str) -> Sandbox:
        try:
            sandbox = await self._fleet.sandboxes.get(target.sandbox_id)
        except SandboxNotFound:
            raise Unauthorized(NO_KEY) from None
        if not sandbox.token or not hmac.compare_digest(sandbox.token.encode(), token.encode()):
            raise Unauthorized(NO_KEY)
        return sandbox


class _Exchange:
    """One request and its answer."""

    def __init__(
        self, inside: Inside, address: str, target: Target, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._inside = inside
        self._address = address
        self._target = target
        self._scope = scope
        self._receive = receive
        self._send = send
        self._sent_all = asyncio.Event()
        self._answering = False
        self._offered: bytes | None = None
        """The piece of the body that the box has not taken yet."""

    async def run(self) -> None:
        """Carry both ways; when the client is gone, the box is no longer asked."""
        answer = asyncio.create_task(self._answer())
        gone = asyncio.create_task(self._client_gone())
        stuck = asyncio.create_task(self._box_stuck())
        try:
            await asyncio.wait((answer, gone, stuck), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                answer.result()
            elif stuck.done():
                raise BoxTimeout("the box does not take what is sent to it")
        except (PaddockError, aiohttp.ClientError) as error:
            await self._fail(error)
        finally:
            for task in (answer, gone, stuck):
                task.cancel()
            await asyncio.gather(answer, gone, stuck, return_exceptions=True)

    async def _answer(self) -> None:
        async with self._request() as answer:
            self._answering = True
            headers = from_box(answer.raw_headers, self._target.prefix)
            await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
            # `iter_any` hands over what has come in, without joining or cutting it.
            async for piece in answer.content.iter_any():
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            await self._send({"type": "http.response.body", "body": b""})

    def _request(self) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        scope = self._scope
        headers = to_box(scope, self._target.port, self._target.prefix)
        has_body = "Content-Length" in headers or header(scope, b"transfer-encoding") != ""
        if not has_body:
            self._sent_all.set()
            if scope["method"] not in _BODILESS:
                headers["Content-Length"] = "0"
        return self._inside.request(
            scope["method"],
            self._address,
            raw=True,
            headers=headers,
            data=self._body() if has_body else None,
            skip_auto_headers=_AUTOMATIC,
        )

    async def _body(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                # Ending here quietly would make half a body look like a whole one.
                raise ConnectionResetError("the client went away")
            if message.get("body"):
                self._offered = message["body"]
                yield message["body"]
                self._offered = None
            if not message.get("more_body"):
                self._sent_all.set()
                return

    async def _client_gone(self) -> None:
        await self._sent_all.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _box_stuck(self) -> None:
        while True:
            before = self._offered
            await asyncio.sleep(STALLED)
            if before is not None and self._offered is before:
                return

    async def _fail(self, error: PaddockError | aiohttp.ClientError) -> None:
        if self._answering:
            return  # The server sees an unfinished answer and breaks the connection, which is what the client must see.
        self._scope.pop(PROXIED, None)
        if not isinstance(error, PaddockError):
            error = BoxError("the program in the box does not answer in HTTP")
        await send_error(self._send, status_of(error), error.code, error.message, close=not self._sent_all.is_set())


def _without_token(query: bytes) -> bytes:
    return b"&".join(pair for pair in query.split(b"&") if pair.partition(b"=")[0] != b"token")
