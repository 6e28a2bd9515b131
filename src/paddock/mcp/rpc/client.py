"""Client of the gRPC transport: many exchanges with one gateway on one stream.

One task owns the stream. It connects on first use and after a failure, with back-off. Exchanges under way when the
connection breaks fail: the gateway may have run them, so they are not repeated.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import grpc
import grpc.aio
import structlog

from paddock.errors import McpTimeout, PaddockError, Unauthorized, Unavailable
from paddock.mcp.protocol.endpoint import CallContext
from paddock.mcp.protocol.messages import JsonRpcMessage, decode_message, encode_message
from paddock.mcp.rpc.v1 import mcp_pb2, mcp_pb2_grpc
from paddock.mcp.rpc.wire import (
    AUTHORIZATION,
    KEEPALIVE_OPTIONS,
    MAX_MESSAGE,
    TIMEOUT,
    WINDOW,
    error_of_failure,
    take_batch,
)

CONNECT_TIMEOUT = 10.0
MIN_BACKOFF = 0.2
MAX_BACKOFF = 30.0
MAX_UNSENT = 64 * 2**20
"""Bytes of requests that wait to be sent."""
_Received: TypeAlias = mcp_pb2.Frame | PaddockError
log = structlog.get_logger()


class _Call(Protocol):
    """The stream of a session, as grpc.aio has it."""

    async def wait_for_connection(self) -> None: ...
    async def write(self, request: mcp_pb2.FrameBatch) -> None: ...
    async def read(self) -> mcp_pb2.FrameBatch | object: ...
    async def code(self) -> grpc.StatusCode: ...
    async def details(self) -> str: ...
    def cancel(self) -> bool: ...


@dataclass
class _OpenExchange:
    """Frames received for an exchange, and how many bytes of them were consumed since the server was last told."""

    received: asyncio.Queue[_Received] = field(default_factory=asyncio.Queue)
    waiting: int = 0
    consumed: int = 0


class McpRpcClient:
    """Exchanges with a gateway over gRPC. Create it on the event loop, and `close` it."""

    def __init__(
        self,
        address: str,
        key: str | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        *,
        metadata: Sequence[tuple[str, str]] = (),
        authority: str | None = None,
    ) -> None:
        """`credentials` select TLS; without them the connection is not encrypted.

        `authority` is the host name of the gateway, if `address` is the address of that host.
        """
        self._address = address if authority is None else authority
        self._metadata = (*metadata, *(((AUTHORIZATION, f"Bearer {key}"),) if key else ()))
        options: list[tuple[str, str | int]] = [
            *KEEPALIVE_OPTIONS,
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),  # A shared connection would have the back-off of others.
            ("grpc.enable_http_proxy", 0),
        ]
        if authority is not None:
            options.append(("grpc.default_authority", authority))
            options.append(("grpc.ssl_target_name_override", authority.rpartition(":")[0].strip("[]")))
        self._channel = (
            grpc.aio.insecure_channel(address, options)
            if credentials is None
            else grpc.aio.secure_channel(address, credentials, options)
        )
        self._exchanges: dict[int, _OpenExchange] = {}
        self._last = 0
        self._outgoing: deque[mcp_pb2.Frame] = deque()
        self._unsent = 0
        self._has_output = asyncio.Event()
        self._session: asyncio.Task[None] | None = None
        self._is_closed = False
        self._failures = 0
        self._retry_at = 0.0
        self._reason = ""

    def endpoint(self, target: str) -> RemoteEndpoint:
        """Return the endpoint of a path of the gateway: `NAME`, `` for all servers, or `sets/NAME`."""
        return RemoteEndpoint(self, target)

    async def exchange(
        self, target: str, request: JsonRpcMessage, context: CallContext
    ) -> AsyncGenerator[JsonRpcMessage, None]:
        """Yield the messages of an exchange. See `McpEndpoint`."""
        content = encode_message(request)
        if self._unsent + len(content) > MAX_UNSENT:
            raise Unavailable(f"too many requests wait for the gateway at {self._address}")
        self._connect()
        self._last += 1
        number, exchange = self._last, _OpenExchange()
        self._exchanges[number] = exchange
        opened = mcp_pb2.Open(target=target, request=content, timeout_ms=_milliseconds_left(context))
        self._send(mcp_pb2.Frame(exchange=number, open=opened), len(content))
        ended = False
        try:
            while not ended:
                frame = await exchange.received.get()
                if isinstance(frame, PaddockError):
                    ended = True
                    raise frame
                if frame.HasField("failure"):
                    ended = True
                    if frame.failure.code == TIMEOUT:
                        raise McpTimeout(frame.failure.message)
                    raise error_of_failure(frame.failure)
                ended = frame.HasField("response")
                content = frame.response if ended else frame.notification
                if not ended:
                    self._consume(number, exchange, len(content))
                yield decode_message(content)
        finally:
            del self._exchanges[number]
            if not ended:
                self._send(mcp_pb2.Frame(exchange=number, cancel=mcp_pb2.Cancel()))

    async def close(self) -> None:
        """Close the connection; exchanges under way fail."""
        self._is_closed = True
        if self._session is not None:
            self._session.cancel()
            await asyncio.gather(self._session, return_exceptions=True)
        await self._channel.close()

    def _connect(self) -> None:
        if self._session is not None and not self._session.done():
            return
        wait = self._retry_at - asyncio.get_running_loop().time()
        if wait > 0:
            raise Unavailable(f"{self._reason}; the next attempt is in {wait:.1f} s")
        self._outgoing.clear()
        self._unsent = 0
        self._session = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """Own one stream from connecting to its end."""
        stub = mcp_pb2_grpc.TransportStub(self._channel)  # type: ignore[no-untyped-call]
        call: _Call = stub.Session(metadata=self._metadata)
        writing: asyncio.Task[None] | None = None
        reason: PaddockError = Unavailable(f"the connection to the gateway at {self._address} was closed")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await call.wait_for_connection()
            self._failures = 0
            writing = asyncio.create_task(self._write(call))
            while isinstance(batch := await call.read(), mcp_pb2.FrameBatch):
                for frame in batch.frames:
                    self._receive(frame)
            reason = _connection_error(self._address, await call.code(), await call.details())
        except grpc.aio.AioRpcError as error:
            reason = _connection_error(self._address, error.code(), error.details() or "")
        except PaddockError as error:
            reason = error
        except TimeoutError:
            reason = Unavailable(f"the gateway at {self._address} cannot be reached within {CONNECT_TIMEOUT:g} s")
        finally:
            if writing is not None:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
            call.cancel()
            self._end(reason)

    async def _write(self, call: _Call) -> None:
        while True:
            await self._has_output.wait()
            self._has_output.clear()
            while self._outgoing:
                batch = take_batch(self._outgoing)
                await call.write(batch)
                self._unsent -= sum(len(each.open.request) for each in batch.frames)

    def _receive(self, frame: mcp_pb2.Frame) -> None:
        exchange = self._exchanges.get(frame.exchange)
        if exchange is None:
            return  # It was cancelled.
        exchange.waiting += len(frame.notification)
        if exchange.waiting > WINDOW + MAX_MESSAGE:
            raise Unavailable(f"the gateway at {self._address} sends more than it may")
        exchange.received.put_nowait(frame)

    def _consume(self, number: int, exchange: _OpenExchange, size: int) -> None:
        exchange.waiting -= size
        exchange.consumed += size
        if exchange.consumed >= WINDOW // 2:
            self._send(mcp_pb2.Frame(exchange=number, consumed=exchange.consumed))
            exchange.consumed = 0

    def _send(self, frame: mcp_pb2.Frame, size: int = 0) -> None:
        self._unsent += size
        self._outgoing.append(frame)
        self._has_output.set()

    def _end(self, reason: PaddockError) -> None:
        """Fail the exchanges under way, and choose when to connect again."""
        self._failures += 1
        backoff = min(MIN_BACKOFF * 2 ** min(self._failures - 1, 20), MAX_BACKOFF) if self._failures > 1 else 0.0
        self._retry_at = asyncio.get_running_loop().time() + backoff
        self._reason = reason.message
        for exchange in self._exchanges.values():
            exchange.received.put_nowait(reason)
        if not self._is_closed:
            log.info("MCP gateway disconnected", address=self._address, reason=reason.message)


class RemoteEndpoint:
    """An endpoint of another gateway."""

    def __init__(self, client: McpRpcClient, target: str) -> None:
        self._client = client
        self._target = target

    def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        return self._client.exchange(self._target, request, context)


def _milliseconds_left(context: CallContext) -> int:
    if context.deadline is None:
        return 0
    return max(1, round(1000 * (context.deadline - asyncio.get_running_loop().time())))


def _connection_error(address: str, code: grpc.StatusCode, details: str) -> PaddockError:
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return Unauthorized(f"the gateway at {address} refuses the key: {details[:300]}")
    return Unavailable(f"the connection to the gateway at {address} ended: {code.name.lower()}, {details[:300]}")
