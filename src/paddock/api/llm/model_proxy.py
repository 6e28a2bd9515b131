"""The model APIs on the main port: the LLM gateway behind the ASGI server."""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope, Send

from paddock.api.http.authorization import has_model_key, read_header, read_request_api_key
from paddock.api.http.disconnect_watch import DisconnectWatch
from paddock.api.http.error_responses import refuse_websocket, refuse_websocket_with_body
from paddock.api.http.outer_middleware import PROXIED_SCOPE_KEY
from paddock.errors import NotFound, PaddockError
from paddock.llm.formats.neutral import ModelFailure
from paddock.llm.formats.provider_errors import error_kind_for_status
from paddock.llm.formats.registry import FORMATS
from paddock.llm.gateway.gateway import ModelGateway
from paddock.llm.gateway.unserved_paths import (
    detect_client_format,
    find_unserved_api,
    is_unserved_path,
    unserved_api_message,
)
from paddock.llm.request_kind import add_api_version, is_model_path, suggest_model_path
from paddock.llm.wire.base import Headers, HttpRequest, ResponseWriter
from paddock.llm.wire.memory_budget import MemoryReservation, TenantMemoryBudgets

SEND_STALL_TIMEOUT = 120.0
"""Seconds a client may leave its response unread."""
COPY_CHUNK_BYTES = 4 * 2**20
"""Bytes copied before the event loop gets a turn."""


_VERSIONED = ("/v1", "/upload/v1")
_BROWSER_METHODS = ("GET", "HEAD")


class ModelProxy:
    """Passes model requests to the gateway."""

    def __init__(self, gateway: ModelGateway, memory: TenantMemoryBudgets) -> None:
        self._gateway = gateway
        self._max_body = gateway.settings.max_body
        self._memory = memory

    def handles(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if path == "/":
            return scope.get("method") == "HEAD"
        if is_model_path(path) or suggest_model_path(path) is not None or is_unserved_path(path):
            return path.startswith(_VERSIONED) or _is_model_client(scope)
        return add_api_version(path) != path and _is_model_client(scope)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await _refuse_websocket(scope, send)
            return
        reply = _AsgiReply(send)
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        request = HttpRequest(
            method=scope.get("method", "GET"),
            path=raw.partition(b"?")[0].decode("latin-1"),
            query=scope["query_string"].decode("latin-1"),
            headers=scope["headers"],
            body=b"",
        )
        held: list[MemoryReservation] = []
        try:
            try:
                try:
                    await self._read_body(request, receive, held)
                finally:
                    # Providers' headers are passed on unchanged. Not set earlier: the body needs a minimum rate.
                    scope[PROXIED_SCOPE_KEY] = True
            except _BodyNotRead as error:
                body = FORMATS[detect_client_format(request)].write_failure(error.failure)
                head = [(b"content-type", b"application/json"), (b"connection", b"close")]
                await reply.send(error.failure.status, head, body)
            except ConnectionResetError:
                pass
            else:
                await self._answer(request, reply, receive)
        finally:
            for each in held:
                each.release()

    async def _answer(self, request: HttpRequest, reply: ResponseWriter, receive: Receive) -> None:
        watch = DisconnectWatch(receive)
        try:
            await self._gateway(request, reply)
        except asyncio.CancelledError:
            if not watch.disconnected:
                raise
        finally:
            await watch.stop()

    async def _read_body(self, request: HttpRequest, receive: Receive, held: list[MemoryReservation]) -> None:
        """Read the whole body into the request. A caller without a key is refused before much of it is read.

        Memory reserved for a large body is added to `held`.
        """
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            request.body = message.get("body", b"")
            return
        try:
            tenant = (await self._gateway.identify(request)).caller.tenant
        except PaddockError as error:
            raise _BodyNotRead(401, error.message) from None
        held.append(self._memory.reservation(tenant))
        pieces = bytearray()
        while message["type"] == "http.request":
            data: bytes = message.get("body", b"")
            pieces += data
            if len(pieces) > self._max_body:
                raise _BodyNotRead(413, f"the request is larger than llm.max_body ({self._max_body} bytes)")
            if not held[0].grow(len(data)):
                raise _BodyNotRead(503, "too many large requests are under way; try again later")
            if not message.get("more_body"):
                request.body = bytes(pieces)
                if len(pieces) > COPY_CHUNK_BYTES:
                    await asyncio.sleep(0)  # Copying has taken long enough for one step.
                return
            message = await receive()
        raise ConnectionResetError("the client disconnected before the end of its request")


def _is_model_client(scope: Scope) -> bool:
    """Return whether a request without an API version in its path is from a client of a model API.

    Browsers get the console at such paths: they ask for HTML, and send no key with a page's address.
    """
    if scope.get("method") not in _BROWSER_METHODS:
        return True
    return bool(read_request_api_key(scope) or has_model_key(scope)) and "text/html" not in read_header(
        scope, b"accept"
    )


async def _refuse_websocket(scope: Scope, send: Send) -> None:
    path, extensions = add_api_version(scope["path"]), scope.get("extensions") or {}
    request = HttpRequest("GET", path, "", list(scope["headers"]), b"")
    api = None if is_model_path(path) else find_unserved_api(request)
    if api is None:
        message = "WebSocket is not supported; use HTTP with server-sent events"
        await refuse_websocket(send, extensions, 426, "UPGRADE_REFUSED", message)
        return
    format, name = api
    message = unserved_api_message(name, path)
    failure = ModelFailure(404, message, error_kind_for_status(404), NotFound.code.lower())
    body = FORMATS[format].write_failure(failure)
    await refuse_websocket_with_body(send, extensions, 404, NotFound.code, body)


class _BodyNotRead(Exception):
    """The body of a request was not read, or not completely."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.failure = ModelFailure(status, message, error_kind_for_status(status))


class _AsgiReply(ResponseWriter):
    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self._aborted = False

    async def send(self, status: int, headers: Headers, body: bytes) -> None:
        self.started = True
        length = (b"content-length", b"%d" % len(body))
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        await self._send({"type": "http.response.body", "body": body})

    async def start(self, status: int, headers: Headers) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, data: bytes) -> None:
        if not self._aborted:
            try:
                async with asyncio.timeout(SEND_STALL_TIMEOUT):
                    await self._send({"type": "http.response.body", "body": data, "more_body": True})
            except TimeoutError:
                raise ConnectionResetError("the client does not read") from None

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    def abort(self) -> None:
        # The server closes the connection of an unfinished response, so the client sees it was cut off.
        self._aborted = True
