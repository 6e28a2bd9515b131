"""The model APIs on the main port: the LLM proxy's gateway behind an ASGI server."""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope, Send

from paddock.api.errors import refuse_websocket
from paddock.api.front import PROXIED
from paddock.errors import PaddockError
from paddock.llm.calls import concerns, format_of, full_path, meant
from paddock.llm.formats.failures import kind_of
from paddock.llm.formats.registry import FORMATS
from paddock.llm.gateway import Gateway
from paddock.llm.neutral import Failure
from paddock.llm.unserved import is_unserved
from paddock.llm.wire.base import Headers, HttpRequest, Reply
from paddock.llm.wire.rooms import HELD_BY_ONE, Held, Room

BODY_STALL = 60.0
"""Seconds a client may pause in the middle of a body."""
SEND_STALL = 120.0
"""Seconds a client may leave its answer unread."""
WATCH_AFTER = 0.05
"""Seconds after which it is worth looking whether the client is still there; most answers of no model take less."""


class ModelDoor:
    """Hands requests to models to the gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._max_body = gateway.settings.max_body
        self._rooms: dict[str, Room] = {}
        """For each tenant, so that none can take all there is."""

    def concerns(self, scope: Scope) -> bool:
        path: str = scope["path"]
        method = scope.get("method")
        if concerns(path) or meant(path) is not None or is_unserved(path):
            return True
        # A browser gets the console at such a path, and only a client of a model API posts to it.
        return (method == "POST" and full_path(path) != path) or (method == "HEAD" and path == "/")

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            message = "WebSocket is not spoken here; use HTTP with server-sent events"
            await refuse_websocket(send, scope.get("extensions") or {}, 426, "UPGRADE_REFUSED", message)
            return
        scope[PROXIED] = True  # Providers' headers pass as they are.
        reply = _Reply(send)
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        request = HttpRequest(
            method=scope.get("method", "GET"),
            path=raw.partition(b"?")[0].decode("latin-1"),
            query=scope["query_string"].decode("latin-1"),
            headers=scope["headers"],
            body=b"",
        )
        held: list[Held] = []
        try:
            try:
                await self._read(request, receive, held)
            except _Unread as error:
                told = FORMATS[format_of(request.path)].write_failure(error.failure)
                head = [(b"content-type", b"application/json"), (b"connection", b"close")]
                await reply.whole(error.failure.status, head, told)
            except ConnectionResetError:
                pass
            else:
                await self._answer(request, reply, receive)
        finally:
            for each in held:
                each.release()

    async def _answer(self, request: HttpRequest, reply: Reply, receive: Receive) -> None:
        watch = _Watch(receive)
        try:
            await self._gateway(request, reply)
        except asyncio.CancelledError:
            if not watch.gone:
                raise
        finally:
            await watch.stop()

    async def _read(self, request: HttpRequest, receive: Receive, held: list[Held]) -> None:
        """Put the whole body into the request. Who has no key is told before much of it is read.

        The room that a large body takes is added to `held`.
        """
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            request.body = message.get("body", b"")
            return
        try:
            tenant = (await self._gateway.identify(request)).caller.tenant
        except PaddockError as error:
            raise _Unread(401, error.message) from None
        room = self._rooms.setdefault(tenant, Room(HELD_BY_ONE, self._gateway.room))
        held.append(Held(room))
        pieces = bytearray()
        while message["type"] == "http.request":
            data: bytes = message.get("body", b"")
            pieces += data
            if len(pieces) > self._max_body:
                raise _Unread(413, f"the request is larger than llm.max_body ({self._max_body} bytes)")
            if not held[0].grow(len(data)):
                raise _Unread(503, "too many large requests are under way; try again later")
            if not message.get("more_body"):
                request.body = bytes(pieces)
                return
            try:
                async with asyncio.timeout(BODY_STALL):
                    message = await receive()
            except TimeoutError:
                raise _Unread(408, "the body of the request came too slowly") from None
        raise ConnectionResetError("the client left before it had said all")


class _Unread(Exception):
    """The body of a request is not read, or not to its end."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(status, message, kind_of(status))


class _Watch:
    """Cancels the task that answers when the client is gone. Looks only once an answer has taken a moment."""

    def __init__(self, receive: Receive) -> None:
        self.gone = False
        self._receive = receive
        self._owner = asyncio.current_task()
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER, self._start)

    def _start(self) -> None:
        self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        if self._owner is not None:
            self._owner.cancel()

    async def stop(self) -> None:
        self._timer.cancel()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class _Reply(Reply):
    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self._aborted = False

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
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
                async with asyncio.timeout(SEND_STALL):
                    await self._send({"type": "http.response.body", "body": data, "more_body": True})
            except TimeoutError:
                raise ConnectionResetError("the client does not read") from None

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    def abort(self) -> None:
        # The server sees an unfinished answer and breaks the connection, which is what the client must see.
        self._aborted = True
