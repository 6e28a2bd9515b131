"""The server's side of one session: runs the exchanges that a client opens, and batches what they yield."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import structlog

from paddock.errors import InvalidInput, PaddockError, QuotaExceeded, Unavailable
from paddock.mcp.protocol.endpoint import CallContext, EndpointResolver
from paddock.mcp.protocol.messages import JsonRpcMessage, decode_message, encode_message
from paddock.mcp.rpc.v1 import mcp_pb2
from paddock.mcp.rpc.wire import MAX_MESSAGE, TIMEOUT, WINDOW, failure_frame, take_batch

MAX_EXCHANGES = 1024
"""Exchanges of one session at a time."""
MAX_UNSENT = 64 * 2**20
"""Bytes of all exchanges that wait to be sent; more exchanges wait before they produce more."""
MAX_UNSENT_FRAMES = 4096
"""Frames that wait to be sent; the client's frames are not read until there are fewer."""
MAX_SECONDS = 86_400.0
log = structlog.get_logger()


class BrokenSession(Exception):
    """A client that does not keep to the transport. The session ends with the message."""


@dataclass
class _Exchange:
    """An exchange under way, and the bytes that may still be sent for it."""

    window: int = WINDOW
    may_send: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class ServerSession:
    """Serves one stream of an authenticated client."""

    def __init__(self, resolve: EndpointResolver, caller: CallContext) -> None:
        self._resolve = resolve
        self._caller = caller
        self._exchanges: dict[int, _Exchange] = {}
        self._last = -1
        self._outgoing: deque[mcp_pb2.Frame] = deque()
        self._unsent = 0
        self._has_output = asyncio.Event()
        self._has_drained = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._closed = False

    async def serve(self, batches: AsyncIterator[mcp_pb2.FrameBatch]) -> AsyncGenerator[mcp_pb2.FrameBatch, None]:
        """Yield batches for the client until it has closed its side and all exchanges have ended.

        Raises `BrokenSession`. Closing the generator cancels all exchanges.
        """
        reading = asyncio.create_task(self._read(batches))
        reading.add_done_callback(lambda _: self._has_output.set())
        try:
            while True:
                await self._has_output.wait()
                self._has_output.clear()
                while self._outgoing:
                    batch = take_batch(self._outgoing)
                    self._has_drained.set()
                    yield batch
                    self._unsent -= sum(len(each.notification) + len(each.response) for each in batch.frames)
                    if self._unsent < MAX_UNSENT:
                        self._has_room.set()
                if reading.done():
                    reading.result()
                    if not self._exchanges and not self._outgoing:
                        return
        finally:
            self._closed = True
            tasks = [reading, *(each.task for each in self._exchanges.values() if each.task is not None)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, batches: AsyncIterator[mcp_pb2.FrameBatch]) -> None:
        async for batch in batches:
            for frame in batch.frames:
                self._accept(frame)
                while len(self._outgoing) >= MAX_UNSENT_FRAMES:
                    # Refusals are small, but a client that does not read could ask for any number of them.
                    self._has_drained.clear()
                    await self._has_drained.wait()

    def _accept(self, frame: mcp_pb2.Frame) -> None:
        content = frame.WhichOneof("content")
        exchange = self._exchanges.get(frame.exchange)
        if content == "open":
            self._open(frame.exchange, frame.open)
        elif content == "consumed":
            if exchange is not None:
                exchange.window = min(exchange.window + frame.consumed, WINDOW)
                if exchange.window > 0:
                    exchange.may_send.set()
        elif content == "cancel":
            if exchange is not None and exchange.task is not None:
                exchange.task.cancel()
        else:
            raise BrokenSession(f"a client may not send a frame with {content or 'no known content'}")

    def _open(self, number: int, request: mcp_pb2.Open) -> None:
        if number <= self._last:
            raise BrokenSession("the number of a new exchange must be higher than all before it")
        self._last = number
        if len(self._exchanges) >= MAX_EXCHANGES:
            refusal = QuotaExceeded(f"a session can have {MAX_EXCHANGES} exchanges at a time; wait for some to end")
            return self._send(failure_frame(number, refusal))
        exchange = self._exchanges[number] = _Exchange()
        exchange.may_send.set()
        exchange.task = asyncio.create_task(self._run(number, exchange, request))
        return None

    async def _run(self, number: int, exchange: _Exchange, opened: mcp_pb2.Open) -> None:
        try:
            seconds = opened.timeout_ms / 1000 or MAX_SECONDS
            async with asyncio.timeout(seconds):
                request = _decode_request(opened.request)
                context = replace(self._caller, deadline=asyncio.get_running_loop().time() + seconds)
                endpoint = self._resolve(opened.target, context)
                async with aclosing(endpoint.exchange(request, context)) as messages:
                    async for message in messages:
                        await self._send_message(number, exchange, message)
        except PaddockError as error:
            self._send(failure_frame(number, error))
        except TimeoutError:
            failure = mcp_pb2.Failure(code=TIMEOUT, message=f"no answer within {seconds:g} s")
            self._send(mcp_pb2.Frame(exchange=number, failure=failure))
        except Exception:
            log.exception("unexpected error in MCP exchange", target=opened.target)
            self._send(failure_frame(number, PaddockError("unexpected error in the gateway")))
        finally:
            del self._exchanges[number]
            self._has_output.set()

    async def _send_message(self, number: int, exchange: _Exchange, message: JsonRpcMessage) -> None:
        content = encode_message(message)
        if len(content) > MAX_MESSAGE:
            raise Unavailable(f"the answer of the MCP server is larger than {MAX_MESSAGE >> 20} MiB")
        await exchange.may_send.wait()
        await self._has_room.wait()
        exchange.window -= len(content)
        if exchange.window <= 0:
            exchange.may_send.clear()
        self._unsent += len(content)
        if self._unsent >= MAX_UNSENT:
            self._has_room.clear()
        if message.is_response:
            self._send(mcp_pb2.Frame(exchange=number, response=content))
        else:
            self._send(mcp_pb2.Frame(exchange=number, notification=content))

    def _send(self, frame: mcp_pb2.Frame) -> None:
        if not self._closed:
            self._outgoing.append(frame)
            self._has_output.set()


def _decode_request(content: bytes) -> JsonRpcMessage:
    message = decode_message(content)
    if not message.is_request:
        raise InvalidInput("an exchange starts with a JSON-RPC request, with an id")
    return message
