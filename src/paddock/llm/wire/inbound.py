"""One connection of a client: has its requests answered one at a time, and waits for nothing without a limit."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from dataclasses import dataclass
from typing import Protocol, cast

import structlog

from paddock.llm.wire.base import Handler, Headers, HttpRequest
from paddock.llm.wire.heads import error_body
from paddock.llm.wire.reply import WireReply
from paddock.llm.wire.requests import Refusal, RequestReader
from paddock.llm.wire.rooms import Held, Room

MAX_WAITING = 64 * 1024
"""How much may wait unread behind the request being answered."""
LINGER = 2.0
"""How long a client that has been refused may go on sending before the connection is cut; cutting it at once would
take the refusal away from it."""
MAX_REFUSED = 64
"""How many connections beyond the bound are told so; others are cut."""
_JSON: Headers = [(b"content-type", b"application/json")]
_RESET = struct.pack("ii", 1, 0)
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client may do. Times are in seconds."""

    max_body: int
    max_header: int
    header_timeout: float
    """From the first byte of a request to the end of its headers."""
    body_timeout: float
    """Between two pieces of a request's body."""
    idle_timeout: float
    """Before a request's first byte."""
    send_timeout: float
    """While the client takes nothing of its answer."""


class House(Protocol):
    """What is behind the door."""

    handler: Handler
    limits: Limits
    closing: bool
    tag: str | None
    room: Room

    def enter(self, connection: Inbound) -> int:
        """A client has connected; says for how many more there is room now."""

    def leave(self, connection: Inbound) -> None:
        """The client is gone, and nothing of its requests is left."""


class Inbound(asyncio.Protocol):
    """One connection of a client."""

    __slots__ = (
        "_drains", "_held", "_house", "_lingers", "_reader", "_reply", "_task", "_transport", "_unsent", "_waiting",
        "deadline", "full", "gone", "loop",
    )  # fmt: skip

    def __init__(self, house: House, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.deadline = math.inf
        """When patience ends; whoever watches the time then calls `expire`."""
        self.full = False
        """Whether the client reads more slowly than is written to it."""
        self.gone = False
        self._house = house
        self._transport: asyncio.Transport | None = None
        self._reader = RequestReader(house.limits.max_header, house.limits.max_body, house.tag, house.room)
        self._held: Held | None = None
        self._task: asyncio.Task[None] | None = None
        self._reply: WireReply | None = None
        self._drains: list[asyncio.Future[None]] | None = None
        self._unsent = 0
        self._waiting: bytearray | None = None
        self._lingers = False

    # For replies.

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    async def drained(self) -> None:
        """Wait until the client has taken most of what was written, or is gone."""
        if self.full and not self.gone:
            waiter = self.loop.create_future()
            self._drains = [*(self._drains or ()), waiter]
            await waiter

    def reset(self) -> None:
        """Break the connection so that it shows: over TCP by a reset, over a Unix socket by ending without an end."""
        if self._transport is None:
            return
        if not self._transport.is_closing():
            raw = self._transport.get_extra_info("socket")
            if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    # For the door.

    def expire(self, now: float) -> None:
        """The deadline has passed."""
        transport = self._transport
        if transport is None:
            self.deadline = math.inf
        elif self.full or self._lingers or transport.is_closing():
            unsent = transport.get_write_buffer_size()
            if unsent and unsent != self._unsent:
                self._unsent = unsent
                self.deadline = now + self._house.limits.send_timeout
            else:
                transport.abort()
        elif self._reader.waits:
            self._refuse(Refusal(408, "the request did not come to its end in time"))
        else:
            self.hang_up()

    def hang_up(self) -> None:
        """End the connection if no request is being answered; otherwise after the one that is."""
        if self._reply is not None:
            self._reply.keep = False
        elif self._transport is not None and not self._lingers:
            self._close()

    def cut(self) -> None:
        """End the connection, and whatever is answered over it."""
        if self._transport is not None:
            self._transport.abort()
        self._cancel()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop are of a family of their own.
        self._transport = cast(asyncio.Transport, transport)
        self.deadline = self.loop.time() + self._house.limits.idle_timeout
        room = self._house.enter(self)
        if room < -MAX_REFUSED:
            self._transport.abort()
        elif room < 0:
            self._refuse(Refusal(503, "there are too many connections; close some, or try again later"))

    def data_received(self, data: bytes) -> None:
        if self._lingers or self._reader.last:
            return
        if self._task is None:
            self._feed(data)
            return
        # Reading goes on while a request is answered, or nobody would notice that its client went away.
        if self._waiting is None:
            self._waiting = bytearray()
        self._waiting += data
        if len(self._waiting) > MAX_WAITING and self._transport is not None:
            self._transport.pause_reading()

    def eof_received(self) -> None:
        # A client that only has nothing more to say looks the same as one that is gone, and the second is what happens:
        # no HTTP library half-closes, but every program that dies does, seen through a relay. To go on would be to
        # pay a model for an answer to nobody. What has been written is still delivered.
        self._leave()
        self.deadline = self.loop.time() + LINGER

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._waiting = None
        self._reader.close()
        self._leave()
        if self._task is None:
            self._house.leave(self)

    def pause_writing(self) -> None:
        self.full = True
        if self._transport is not None:
            self._unsent = self._transport.get_write_buffer_size()
        self.deadline = self.loop.time() + self._house.limits.send_timeout

    def resume_writing(self) -> None:
        self.full = False
        if self._task is not None:
            self.deadline = math.inf
        self._wake()

    # Reading.

    def _feed(self, data: bytes) -> None:
        reader, limits = self._reader, self._house.limits
        new = not reader.waits
        reader.feed(data)
        if reader.ready:
            self._next()
        elif reader.begun and reader.head_done:
            self.deadline = self.loop.time() + limits.body_timeout
            self._give_leave()
        elif new:
            self.deadline = self.loop.time() + limits.header_timeout

    def _give_leave(self) -> None:
        if self._reader.wants_leave:
            self._reader.wants_leave = False
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # Answering.

    def _next(self) -> None:
        item = self._reader.take()
        if isinstance(item, Refusal):
            self._refuse(item)
            return
        self.deadline = math.inf
        request = item.request
        self._held = item.held
        keep = item.keep and not self._house.closing
        reply = WireReply(self, keep=keep, old=item.old, head_only=request.method == "HEAD")
        self._reply = reply
        self._task = self.loop.create_task(self._answer(request, reply))

    async def _answer(self, request: HttpRequest, reply: WireReply) -> None:
        reply.running = True
        try:
            await self._house.handler(request, reply)
            if not reply.over:
                log.error("a request was not answered to its end", method=request.method, path=request.path)
        except Exception:
            if not self.gone:
                log.exception("a request failed", method=request.method, path=request.path)
                if not reply.started:
                    body = error_body(500, "the server failed on this request; its log says why")
                    reply.send_whole(500, _JSON, body)
        finally:
            if not reply.over:
                reply.abort()
            self._answered(reply)

    def _answered(self, reply: WireReply) -> None:
        self._task = self._reply = None
        if self._held is not None:
            self._held.release()
            self._held = None
        transport = self._transport
        if transport is None:
            self._house.leave(self)
        elif transport.is_closing():
            self.deadline = self.loop.time() + LINGER
        elif not reply.keep:
            self._close()
        elif self._reader.ready:
            self._next()
        elif self._waiting:
            waiting, self._waiting = bytes(self._waiting), None
            if len(waiting) > MAX_WAITING:
                transport.resume_reading()
            self._feed(waiting)
        else:
            reader, limits = self._reader, self._house.limits
            waits = reader.begun and (limits.body_timeout if reader.head_done else limits.header_timeout)
            self.deadline = self.loop.time() + (waits or limits.idle_timeout)
            self._give_leave()

    def _refuse(self, refusal: Refusal) -> None:
        reply = WireReply(self, keep=False, old=False, head_only=False)
        reply.send_whole(refusal.status, _JSON, error_body(refusal.status, refusal.message))
        self._linger()

    def _close(self) -> None:
        """End the connection once the client has what was written to it."""
        if self._reader.last or self._waiting:
            self._linger()
        elif self._transport is not None:
            self._transport.close()
            self.deadline = self.loop.time() + self._house.limits.send_timeout

    def _linger(self) -> None:
        self._lingers = True
        self._waiting = None
        self._reader.close()
        self.deadline = self.loop.time() + LINGER
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()
            self._transport.resume_reading()

    def _leave(self) -> None:
        """The client is gone. Who answers it is told, unless the answer is already complete."""
        self.gone = True
        self._wake()
        if self._reply is not None and not self._reply.over:
            self._cancel()

    def _cancel(self) -> None:
        task, reply = self._task, self._reply
        if task is None or reply is None:
            return
        task.cancel()
        if not reply.running:
            # A task that is cancelled before its first step never gets to its `finally`.
            reply.abort()
            self._answered(reply)

    def _wake(self) -> None:
        waiters, self._drains = self._drains, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)
