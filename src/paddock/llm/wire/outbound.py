"""One connection to an upstream, and the answers that come over it one after the other."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from paddock.llm.wire.answers import ClientAnswer, too_long
from paddock.llm.wire.base import Broken, Headers, TimedOut, Timeouts, UpstreamError
from paddock.llm.wire.heads import MAX_HEAD, size_of


class Home(Protocol):
    """Where connections come from and go back to."""

    def join(self, connection: Outbound) -> None:
        """The connection is there."""

    def rest(self, connection: Outbound) -> None:
        """The connection is free for another request."""

    def forget(self, connection: Outbound) -> None:
        """The connection is gone."""


class Outbound(asyncio.Protocol):
    """One connection. Asks one thing at a time."""

    __slots__ = (
        "_active", "_answer", "_complete", "_fed", "_fresh_headers", "_head_done", "_head_only", "_home", "_interim",
        "_keep", "_loop", "_parser", "_paused", "_progress", "_quiet", "_tick_at", "_ticker", "_timeouts", "_transport",
        "_unsent", "idle_age", "key",
    )  # fmt: skip

    def __init__(self, home: Home, key: object, idle_age: float, loop: asyncio.AbstractEventLoop) -> None:
        self.key = key
        self.idle_age = idle_age
        self._home = home
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser: HttpResponseParser | None = None
        self._answer: ClientAnswer | None = None
        self._timeouts = Timeouts()
        self._active = 0.0
        """When something last happened that a time limit counts from."""
        self._unsent = 0
        self._ticker: asyncio.TimerHandle | None = None
        self._tick_at = 0.0
        self._paused = False
        self._fresh_headers: Headers = []
        self._head_only = False
        self._head_done = False
        self._interim = False
        self._complete = False
        self._keep = False
        self._progress = False
        self._quiet = 0
        """How many bytes came since the last of a body, or since the last whole head."""
        self._fed = 0

    def ask(self, request: bytes, timeouts: Timeouts, *, head_only: bool) -> ClientAnswer:
        """Send a request. The connection must be free."""
        assert self._answer is None
        answer = ClientAnswer(self, self._loop)
        if self._transport is None:
            answer.finish(_unanswered())
            return answer
        self._answer = answer
        self._head_only = head_only
        self._head_done = self._complete = self._interim = False
        self._quiet = 0
        self._fresh_headers = []
        self._timeouts = timeouts
        self._active = self._loop.time()
        self._transport.write(request)
        self._watch()
        return answer

    def usable(self) -> bool:
        """Whether a connection that has been resting looks alive."""
        if self._transport is None or self._transport.is_closing():
            return False
        return self._loop.time() - self._active < self.idle_age

    def flow(self) -> None:
        """The reader has caught up."""
        if self._paused and self._transport is not None:
            self._paused = False
            self._active = self._loop.time()
            self._transport.resume_reading()

    def abort(self) -> None:
        """End the connection, and with it the answer that has not come to its end."""
        self._fail(Broken("the answer was closed before its end"))

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop are of a family of their own.
        self._transport = cast(asyncio.Transport, transport)
        self._parser = HttpResponseParser(self)
        self._home.join(self)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or self._parser is None:
            # Nobody asked for this; what it answers is anybody's guess.
            self.abort()
            return
        answer.touched = True
        self._progress = False
        self._fed = self._quiet + len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._keep = False
            if not self._complete:
                cause = error.__context__
                self._fail(cause if isinstance(cause, Broken) else Broken("what the upstream sent is not HTTP"))
                return
        if self._head_done:
            self._active = self._loop.time()
        if self._complete:
            self._finish(answer)
        elif self._progress:
            self._quiet = 0
            if answer.fed():
                self._too_much(answer)
        else:
            # Heads, trailers and chunk extensions all count: none of them may go on for ever.
            self._quiet = self._fed
            if self._quiet > MAX_HEAD:
                self._fail(_long_head())

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._unsent = self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._unsent = 0
        self._active = self._loop.time()

    def eof_received(self) -> None:
        answer = self._answer
        if answer is not None and self._head_done and _ends_with_connection(answer.headers):
            self._keep = False
            self._finish(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        answer, self._answer = self._answer, None
        self._transport = self._parser = None
        if answer is not None:
            answer.finish(Broken("the connection ended before the answer did") if answer.touched else _unanswered())
        self._home.forget(self)

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("an answer that nobody asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_done:
            self._fresh_headers.append((name.lower(), value.rstrip()))

    def on_headers_complete(self) -> None:
        assert self._parser is not None and self._answer is not None
        status = self._parser.get_status_code()
        if status < 200:
            if status == 101:
                raise ValueError("a switch of protocols that nobody asked for")
            self._interim = True
            self._fresh_headers = []
            return
        # Most heads come in one short piece, and need not be measured.
        if self._fed > MAX_HEAD and size_of(self._fresh_headers) > MAX_HEAD:
            raise _long_head()
        self._progress = True
        self._head_done = True
        self._keep = self._parser.should_keep_alive()
        answer = self._answer
        answer.headers = self._fresh_headers
        answer.status = status
        answer.wake()
        if self._head_only:
            # The parser cannot be told that no body follows, so it must not see another answer.
            self._complete = True
            self._keep = False

    def on_body(self, data: bytes) -> None:
        self._progress = True
        if not self._complete and self._answer is not None:
            self._answer.feed(data)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        else:
            self._complete = True

    # Endings.

    def _finish(self, answer: ClientAnswer) -> None:
        transport = self._transport
        self._answer = None
        assert transport is not None
        if answer.whole and answer.fed():
            answer.finish(too_long())
        else:
            answer.finish()
        # An upstream may answer before it has read the request; the rest of that must not become the next one.
        if self._keep and not transport.is_closing() and not transport.get_write_buffer_size():
            self.flow()
            self._home.rest(self)
        else:
            transport.abort()

    def _fail(self, error: UpstreamError) -> None:
        answer, self._answer = self._answer, None
        if self._transport is not None:
            self._transport.abort()
        if answer is not None:
            answer.finish(error)

    def _too_much(self, answer: ClientAnswer) -> None:
        if answer.whole:
            self._fail(too_long())
        elif not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    # Time. One timer serves all limits of all answers: it never sleeps longer than the shortest limit, so nothing has
    # to be set, moved or cancelled while bytes flow; it looks at the time of the last of them when it wakes.

    def _watch(self) -> None:
        rest = min(self._timeouts.first_byte, self._timeouts.stall, self.idle_age)
        wanted = self._active + rest
        if self._ticker is not None:
            if self._tick_at <= wanted:
                return
            self._ticker.cancel()
        self._tick_at = wanted
        self._ticker = self._loop.call_at(wanted, self._tick)

    def _tick(self) -> None:
        self._ticker = None
        now = self._loop.time()
        answer = self._answer
        if answer is None:
            limit = self.idle_age
        elif self._head_done:
            limit = self._timeouts.stall
            if self._paused:
                # It is not the upstream that keeps everybody waiting.
                self._active = now
        else:
            limit = self._timeouts.first_byte
            if self._unsent and self._transport is not None:
                # Large requests take their time on slow lines; as long as they get on, nobody is late.
                unsent = self._transport.get_write_buffer_size()
                if unsent < self._unsent:
                    self._unsent = unsent
                    self._active = now
        if self._active + limit > now:
            self._tick_at = min(self._active + limit, now + min(limit, self._timeouts.stall, self.idle_age))
            self._tick_at = max(self._tick_at, now + 0.001)
            self._ticker = self._loop.call_at(self._tick_at, self._tick)
        elif answer is None:
            self.abort()
        elif self._head_done:
            self._fail(TimedOut(f"the answer paused for more than {limit:g} seconds"))
        else:
            self._fail(TimedOut(f"the upstream did not begin to answer within {limit:g} seconds"))


def _ends_with_connection(headers: Headers) -> bool:
    """Whether an answer announced no other end than that of its connection."""
    for name, value in headers:
        if name == b"content-length":
            return False
        if name == b"transfer-encoding":
            return not value.lower().endswith(b"chunked")
    return True


def _unanswered() -> Broken:
    return Broken("the upstream closed the connection without an answer")


def _long_head() -> Broken:
    return Broken(f"the head of the answer is longer than {MAX_HEAD} bytes")
