"""One client connection: handles its requests one at a time, and puts a limit on every wait."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar, cast

import structlog

from paddock.llm.wire.base import Handler, Headers, HttpRequest
from paddock.llm.wire.descriptor_guard import AdmissionDecision
from paddock.llm.wire.http_heads import http_error_body
from paddock.llm.wire.memory_budget import MemoryBudget, MemoryReservation
from paddock.llm.wire.request_parser import ConnectionRequestParser, HttpRequestRefusal
from paddock.llm.wire.response_writer import HttpResponseWriter

MAX_PIPELINED_BYTES = 64 * 1024
"""Bytes that may be buffered behind the request being answered."""
PARSE_SLICE = 16 * 1024
"""Bytes that are parsed at once, except of a body whose length is known."""
PARSE_SECONDS = 0.002
"""Seconds after which parsing lets other connections go first."""
LINGER_SECONDS = 2.0
"""Seconds a refused client may go on sending before the connection is reset; resetting it at once would discard the
refusal before the client reads it."""
MIN_BODY_PROGRESS = 1024
"""Bytes of a body that must arrive within `body_timeout`."""
MAX_REFUSED = 64
"""Connections beyond the limit that get an error response; further ones are dropped."""
A = TypeVar("A")
_JSON: Headers = [(b"content-type", b"application/json")]
_RESET = struct.pack("ii", 1, 0)
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class HttpConnectionLimits:
    """Size and time limits of client connections. Times are in seconds."""

    max_body: int
    max_header: int
    header_timeout: float
    """From the first byte of a request to the end of its headers."""
    body_timeout: float
    """In which `MIN_BODY_PROGRESS` bytes of a request's body must arrive."""
    idle_timeout: float
    """Before a request's first byte."""
    send_timeout: float
    """While the client reads nothing of its response."""


BodyAdmission: TypeAlias = Callable[[HttpRequest], Awaitable[MemoryBudget]]
"""Identifies the caller by the head of a request, and returns the memory budget for its large body.

Raises `HttpRequestRefusal`.
"""


class MeasureCallback(Protocol):
    """Calls a callback of a connection, and measures how long it takes."""

    def __call__(self, callback: Callable[[A], None], argument: A, /) -> None: ...


def call_unmeasured(callback: Callable[[A], None], argument: A) -> None:
    """Call a callback without measuring it."""
    callback(argument)


class HttpListenerContext(Protocol):
    """The listener as its connections see it: handler, limits and connection accounting."""

    handler: Handler
    limits: HttpConnectionLimits
    closing: bool
    tag: str | None
    memory_budget: MemoryBudget
    admit_body: BodyAdmission | None
    measure: MeasureCallback

    def admit(self, transport: asyncio.BaseTransport) -> AdmissionDecision:
        """Decide by the file descriptors that are left whether a new connection may stay."""

    def enter(self, connection: HttpServerConnection) -> int:
        """Register a new connection, and return how many more are allowed."""

    def leave(self, connection: HttpServerConnection) -> None:
        """Unregister a connection that is closed and has no request left."""


class HttpServerConnection(asyncio.Protocol):
    """One connection of a client."""

    __slots__ = (
        "_admission", "_body_received", "_drains", "_lingering", "_parser", "_reservation", "_server", "_task",
        "_transport", "_unsent", "_waiting", "_writer", "backed_up", "client_gone", "deadline", "loop",
    )  # fmt: skip

    def __init__(self, server: HttpListenerContext, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.deadline = math.inf
        """Loop time at which the server calls `handle_deadline`."""
        self.backed_up = False
        """Whether the client reads more slowly than the response is written."""
        self.client_gone = False
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._parser = ConnectionRequestParser(
            server.limits.max_header,
            server.limits.max_body,
            server.tag,
            server.memory_budget,
            admits_bodies=server.admit_body is not None,
        )
        self._admission: asyncio.Task[None] | None = None
        self._body_received = 0
        self._reservation: MemoryReservation | None = None
        self._task: asyncio.Task[None] | None = None
        self._writer: HttpResponseWriter | None = None
        self._drains: list[asyncio.Future[None]] | None = None
        self._unsent = 0
        self._waiting: bytearray | None = None
        self._lingering = False

    # Called by the response writer.

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    async def wait_drained(self) -> None:
        """Wait until the client has read most of the written data, or is gone."""
        if self.backed_up and not self.client_gone:
            waiter = self.loop.create_future()
            self._drains = [*(self._drains or ()), waiter]
            await waiter

    def reset(self) -> None:
        """Break the connection visibly: a reset over TCP, an unfinished response over a Unix socket."""
        if self._transport is None:
            return
        if not self._transport.is_closing():
            raw = self._transport.get_extra_info("socket")
            if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    # Called by the server.

    def handle_deadline(self, now: float) -> None:
        """Act on a deadline that has passed: refuse, close or extend."""
        transport = self._transport
        if transport is None:
            self.deadline = math.inf
        elif self.backed_up or self._lingering or transport.is_closing():
            unsent = transport.get_write_buffer_size()
            if unsent and unsent != self._unsent:
                self._unsent = unsent
                self.deadline = now + self._server.limits.send_timeout
            else:
                transport.abort()
        elif self._parser.in_request and self._parser.head_done and self._body_received >= MIN_BODY_PROGRESS:
            self._start_body_interval()
        elif self._parser.has_partial_request:
            self._refuse(HttpRequestRefusal(408, "the request was not complete in time"))
        else:
            self.close_when_idle()

    def close_when_idle(self) -> None:
        """Close the connection once the request being answered, if any, is finished."""
        if self._writer is not None:
            self._writer.keep_alive = False
        elif self._transport is not None and not self._lingering:
            self._close()

    def idle_since(self) -> float | None:
        """Return the loop time since which the connection has no request; `None` if it has one."""
        if self._task is not None or self._lingering or self._transport is None or self._transport.is_closing():
            return None
        return None if self._parser.has_partial_request else self.deadline - self._server.limits.idle_timeout

    def abort(self) -> None:
        """Close the connection and cancel the request being answered."""
        if self._transport is not None:
            self._transport.abort()
        self._cancel_handler()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        self.deadline = self.loop.time() + self._server.limits.idle_timeout
        admission = self._server.admit(transport)  # First: it must not be closed in favour of itself.
        allowed = self._server.enter(self)
        if admission is AdmissionDecision.REFUSED:
            allowed = min(allowed, -1)
        if allowed < -MAX_REFUSED or admission is AdmissionDecision.DROPPED:
            self._transport.abort()
        elif allowed < 0:
            self._refuse(HttpRequestRefusal(503, "too many connections; close some, or try again later"))

    def data_received(self, data: bytes) -> None:
        if self._lingering or self._parser.ended:
            return
        if self._task is None and self._admission is None and not self._waiting:
            self._server.measure(self._read, data)
        else:
            # Reading goes on while a request is answered, so that a disconnect is noticed.
            self._keep_waiting(data)

    def eof_received(self) -> None:
        # A half-closed connection looks the same as a client that is gone, and the second is what happens: no HTTP
        # library half-closes, but every program that dies does, seen through a relay. To go on would be to pay a
        # model for a response that no client reads. Data already written is still delivered.
        self._handle_client_gone()
        self.deadline = self.loop.time() + LINGER_SECONDS

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._waiting = None
        self._parser.close()
        if self._admission is not None:
            self._admission.cancel()
        self._handle_client_gone()
        if self._task is None:
            self._server.leave(self)

    def pause_writing(self) -> None:
        self.backed_up = True
        if self._transport is not None:
            self._unsent = self._transport.get_write_buffer_size()
        self.deadline = self.loop.time() + self._server.limits.send_timeout

    def resume_writing(self) -> None:
        self.backed_up = False
        if self._task is not None:
            self.deadline = math.inf
        self._wake_drain_waiters()

    # Reading.

    def _read(self, data: bytes) -> None:
        reader, limits = self._parser, self._server.limits
        new, in_body = not reader.has_partial_request, reader.in_request and reader.head_done
        if len(data) <= PARSE_SLICE or reader.in_sized_body:
            reader.feed(data)
        else:
            self._feed_slices(data)
        if reader.ready:
            self._answer_next()
        elif reader.wants_admission:
            self._start_admission()
        elif reader.in_request and reader.head_done:
            if in_body:
                self._body_received += len(data)
            else:
                self._start_body_interval()
            self._send_continue()
        elif new:
            self.deadline = self.loop.time() + limits.header_timeout

    def _feed_slices(self, data: bytes) -> None:
        """Parse a first request in slices; what follows, or takes too long to parse, waits."""
        reader, start, pause_at = self._parser, 0, time.perf_counter() + PARSE_SECONDS
        while start < len(data) and not (reader.ready or reader.ended or reader.wants_admission):
            if time.perf_counter() > pause_at:
                self.loop.call_soon(self._read_waiting)
                break
            end = len(data) if reader.in_sized_body else start + PARSE_SLICE
            reader.feed(data[start:end])
            start = end
        if start < len(data) and not reader.ended:
            self._keep_waiting(data[start:])

    def _keep_waiting(self, data: bytes) -> None:
        """Keep data that is parsed later, and stop reading if there is much of it."""
        if self._waiting is None:
            self._waiting = bytearray()
        self._waiting += data
        if len(self._waiting) > MAX_PIPELINED_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def _read_waiting(self) -> None:
        if self._waiting and self._task is None and self._admission is None and self._transport is not None:
            waiting, self._waiting = bytes(self._waiting), None
            if len(waiting) > MAX_PIPELINED_BYTES:
                self._transport.resume_reading()
            self._server.measure(self._read, waiting)

    def _start_body_interval(self) -> None:
        self._body_received = 0
        self.deadline = self.loop.time() + self._server.limits.body_timeout

    def _start_admission(self) -> None:
        """Stop reading until the caller of a request with a large body is identified."""
        assert self._transport is not None
        self._transport.pause_reading()
        self.deadline = math.inf
        self._admission = asyncio.Task(self._admit_body(), loop=self.loop)

    async def _admit_body(self) -> None:
        assert self._server.admit_body is not None
        refusal: HttpRequestRefusal | None = None
        try:
            budget = await self._server.admit_body(self._parser.unfinished_request())
            if self._transport is not None and not self._parser.admit_body(budget):
                refusal = HttpRequestRefusal(503, "too many large requests at once; try again later")
        except HttpRequestRefusal as error:
            refusal = error
        except Exception:
            log.exception("request caller could not be identified")
            refusal = HttpRequestRefusal(500, "the server failed on this request; see its log")
        finally:
            self._admission = None
        if self._transport is None or self._transport.is_closing() or self._lingering:
            return
        if refusal is not None:
            self._refuse(refusal)
            return
        self._start_body_interval()
        self._send_continue()
        self._transport.resume_reading()
        self._read_waiting()

    def _send_continue(self) -> None:
        if self._parser.wants_continue:
            self._parser.wants_continue = False
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # Answering.

    def _answer_next(self) -> None:
        item = self._parser.take_next()
        if isinstance(item, HttpRequestRefusal):
            self._refuse(item)
            return
        self.deadline = math.inf
        request = item.request
        self._reservation = item.reservation
        keep = item.keep_alive and not self._server.closing
        reply = HttpResponseWriter(
            self, keep_alive=keep, is_http_1_0=item.is_http_1_0, head_only=request.method == "HEAD"
        )
        self._writer = reply
        # Not by the loop's task factory, which takes time: the handler is measured by itself.
        self._task = asyncio.Task(self._run_handler(request, reply), loop=self.loop)

    async def _run_handler(self, request: HttpRequest, reply: HttpResponseWriter) -> None:
        reply.handler_started = True
        try:
            await self._server.handler(request, reply)
            if not reply.finished:
                log.error("handler left response unfinished", method=request.method, path=request.path)
        except Exception:
            if not self.client_gone:
                log.exception("request handler failed", method=request.method, path=request.path)
                if not reply.started:
                    body = http_error_body(500, "the server failed on this request; see its log")
                    reply.send_now(500, _JSON, body)
        finally:
            if not reply.finished:
                reply.abort()
            self._finish_request(reply)

    def _finish_request(self, reply: HttpResponseWriter) -> None:
        self._task = self._writer = None
        if self._reservation is not None:
            self._reservation.release()
            self._reservation = None
        transport = self._transport
        if transport is None:
            self._server.leave(self)
        elif transport.is_closing():
            self.deadline = self.loop.time() + LINGER_SECONDS
        elif not reply.keep_alive:
            self._close()
        elif self._parser.ready:
            self._answer_next()
        elif self._parser.wants_admission:
            self._start_admission()
        elif self._waiting:
            self._read_waiting()
        else:
            reader, limits = self._parser, self._server.limits
            if reader.in_request and reader.head_done:
                self._start_body_interval()
            else:
                waits = limits.header_timeout if reader.in_request else limits.idle_timeout
                self.deadline = self.loop.time() + waits
            self._send_continue()

    def _refuse(self, refusal: HttpRequestRefusal) -> None:
        reply = HttpResponseWriter(self, keep_alive=False, is_http_1_0=False, head_only=False)
        reply.send_now(refusal.status, _JSON, refusal.body or http_error_body(refusal.status, refusal.message))
        self._start_linger()

    def _close(self) -> None:
        """Close the connection once the written data has been sent."""
        if self._parser.ended or self._waiting:
            self._start_linger()
        elif self._transport is not None:
            self._transport.close()
            self.deadline = self.loop.time() + self._server.limits.send_timeout

    def _start_linger(self) -> None:
        self._lingering = True
        self._waiting = None
        self._parser.close()
        self.deadline = self.loop.time() + LINGER_SECONDS
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()
            self._transport.resume_reading()

    def _handle_client_gone(self) -> None:
        """Cancel the handler of a client that is gone, unless its response is complete."""
        self.client_gone = True
        self._wake_drain_waiters()
        if self._writer is not None and not self._writer.finished:
            self._cancel_handler()

    def _cancel_handler(self) -> None:
        task, reply = self._task, self._writer
        if task is None or reply is None:
            return
        task.cancel()
        if not reply.handler_started:
            # A task that is cancelled before its first step never reaches its `finally`.
            reply.abort()
            self._finish_request(reply)

    def _wake_drain_waiters(self) -> None:
        waiters, self._drains = self._drains, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)
