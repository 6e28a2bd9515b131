"""One connection to an upstream, and the responses that come over it one after the other."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from paddock.config.outgoing_proxy import ProxyAddress
from paddock.llm.wire.base import (
    Headers,
    UpstreamBroken,
    UpstreamError,
    UpstreamProxyFailed,
    UpstreamTimedOut,
    UpstreamTimeouts,
)
from paddock.llm.wire.http_client_response import HttpClientResponse, response_too_long_error
from paddock.llm.wire.http_heads import MAX_HEAD_BYTES, headers_size
from paddock.network.outgoing_proxy_tunnel import PROXY_AUTHENTICATION_REQUIRED, ProxyError, proxy_refusal

BODY_SLICE = 256 * 1024
"""Bytes of a body that are written at once: encrypting all of a large one would block other requests."""


class HttpConnectionPool(Protocol):
    """Tracks open connections and takes back idle ones: the client's pool."""

    def add_connection(self, connection: HttpClientConnection) -> None:
        """Track a new connection."""

    def return_connection(self, connection: HttpClientConnection) -> None:
        """Take back a connection that is free for another request."""

    def forget_connection(self, connection: HttpClientConnection) -> None:
        """Forget a closed connection."""


class HttpClientConnection(asyncio.Protocol):
    """One connection to an upstream, with at most one request in flight."""

    __slots__ = (
        "_active", "_complete", "_fed", "_head_done", "_head_only", "_interim", "_keep", "_loop", "_new_headers",
        "_owner", "_parser", "_paused", "_progress", "_quiet", "_response", "_rest", "_tick_at", "_ticker", "_timeouts",
        "_transport", "_unsent", "idle_age", "key",
    )  # fmt: skip

    def __init__(
        self, owner: HttpConnectionPool, key: object, idle_age: float, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.key = key
        self.idle_age = idle_age
        self._owner = owner
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser: HttpResponseParser | None = None
        self._response: HttpClientResponse | None = None
        self._timeouts = UpstreamTimeouts()
        self._active = 0.0
        """Loop time of the last event that a time limit counts from."""
        self._unsent = 0
        self._rest: memoryview | None = None
        """The part of the request's body that is not written yet."""
        self._ticker: asyncio.TimerHandle | None = None
        self._tick_at = 0.0
        self._paused = False
        self._new_headers: Headers = []
        self._head_only = False
        self._head_done = False
        self._interim = False
        self._complete = False
        self._keep = False
        self._progress = False
        self._quiet = 0
        """Bytes received since the last body byte or complete head."""
        self._fed = 0

    def send_request(
        self, head: bytes, body: bytes, timeouts: UpstreamTimeouts, *, head_only: bool
    ) -> HttpClientResponse:
        """Send a request. The connection must be idle."""
        assert self._response is None
        answer = HttpClientResponse(self, self._loop)
        if self._transport is None:
            answer.finish(_no_answer_error())
            return answer
        self._response = answer
        self._head_only = head_only
        self._head_done = self._complete = self._interim = False
        self._quiet = 0
        self._new_headers = []
        self._timeouts = timeouts
        self._active = self._loop.time()
        if len(body) <= BODY_SLICE:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._rest = memoryview(body)
            self._write_rest()
        self._start_timer()
        return answer

    def _write_rest(self) -> None:
        """Write a slice of the body, and the next one when other callbacks have run or the upstream reads again."""
        if self._rest is None or self._transport is None or self._unsent:
            return
        self._active = self._loop.time()
        self._transport.write(self._rest[:BODY_SLICE])
        self._rest = self._rest[BODY_SLICE:] if len(self._rest) > BODY_SLICE else None
        if self._rest is not None and not self._unsent:
            self._loop.call_soon(self._write_rest)

    def is_usable(self) -> bool:
        """Return whether an idle connection still looks alive."""
        if self._transport is None or self._transport.is_closing():
            return False
        return self._loop.time() - self._active < self.idle_age

    def resume(self) -> None:
        """Resume reading after back-pressure."""
        if self._paused and self._transport is not None:
            self._paused = False
            self._active = self._loop.time()
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close the connection and fail the response in flight."""
        self._fail(UpstreamBroken("the answer was closed before its end"))

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        self._parser = HttpResponseParser(self)
        self._owner.add_connection(self)

    def data_received(self, data: bytes) -> None:
        answer = self._response
        if answer is None or self._parser is None:
            # Unsolicited data: no request is in flight.
            self.abort()
            return
        answer.has_bytes = True
        self._progress = False
        self._fed = self._quiet + len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._keep = False
            if not self._complete:
                cause = error.__context__
                self._fail(
                    cause
                    if isinstance(cause, UpstreamError)
                    else UpstreamBroken("the upstream sent something that is not HTTP")
                )
                return
        if self._head_done:
            self._active = self._loop.time()
        if self._complete:
            self._finish(answer)
        elif self._progress:
            self._quiet = 0
            if answer.notify_reader():
                self._apply_back_pressure(answer)
        else:
            # Heads, trailers and chunk extensions all count; their total size is bounded.
            self._quiet = self._fed
            if self._quiet > MAX_HEAD_BYTES:
                self._fail(_long_head_error())

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._unsent = self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._unsent = 0
        self._active = self._loop.time()
        self._write_rest()

    def eof_received(self) -> None:
        answer = self._response
        if answer is not None and self._head_done and _ends_with_connection(answer.headers):
            self._keep = False
            self._finish(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        answer, self._response = self._response, None
        self._transport = self._parser = self._rest = None
        if answer is not None:
            answer.finish(
                UpstreamBroken("the connection ended before the answer did") if answer.has_bytes else _no_answer_error()
            )
        self._owner.forget_connection(self)

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("an unsolicited response")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_done:
            self._new_headers.append((name.lower(), value.rstrip()))

    def on_headers_complete(self) -> None:
        assert self._parser is not None and self._response is not None
        status = self._parser.get_status_code()
        if status < 200:
            if status == 101:
                raise ValueError("an unsolicited protocol switch")
            self._interim = True
            self._new_headers = []
            return
        # Most heads come in one short piece and need no measuring.
        if self._fed > MAX_HEAD_BYTES and headers_size(self._new_headers) > MAX_HEAD_BYTES:
            raise _long_head_error()
        self._progress = True
        self._head_done = True
        self._keep = self._parser.should_keep_alive()
        answer = self._response
        answer.headers = self._new_headers
        answer.status = status
        answer.wake()
        if self._head_only:
            # The parser cannot be told that no body follows, so it must not see another response.
            self._complete = True
            self._keep = False

    def on_body(self, data: bytes) -> None:
        self._progress = True
        if not self._complete and self._response is not None:
            self._response.feed(data)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        else:
            self._complete = True

    # End of a response.

    def _finish(self, answer: HttpClientResponse) -> None:
        transport = self._transport
        self._response = None
        assert transport is not None
        if answer.reads_whole and answer.notify_reader():
            answer.finish(response_too_long_error())
        else:
            answer.finish()
        # An upstream may answer before it has read the request; unsent bytes must not prefix the next request.
        sent = self._rest is None and not transport.get_write_buffer_size()
        if self._keep and sent and not transport.is_closing():
            self.resume()
            self._owner.return_connection(self)
        else:
            transport.abort()

    def _fail(self, error: UpstreamError) -> None:
        answer, self._response = self._response, None
        self._rest = None
        if self._transport is not None:
            self._transport.abort()
        if answer is not None:
            answer.finish(error)

    def _apply_back_pressure(self, answer: HttpClientResponse) -> None:
        if answer.reads_whole:
            self._fail(response_too_long_error())
        elif not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    # Timeouts. One timer serves all limits of all responses: it never sleeps longer than the shortest limit, so no
    # timer is set, moved or cancelled while bytes flow; when it fires it compares the time of the last byte.

    def _start_timer(self) -> None:
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
        answer = self._response
        if answer is None:
            limit = self.idle_age
        elif self._head_done:
            limit = self._timeouts.stall
            if self._paused:
                # Reading is paused by back-pressure; the upstream is not stalled.
                self._active = now
        else:
            limit = self._timeouts.first_byte
            if self._unsent and self._transport is not None:
                # A large request may take long on a slow link; progress extends the limit.
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
            self._fail(UpstreamTimedOut(f"the answer paused for more than {limit:g} seconds"))
        else:
            self._fail(UpstreamTimedOut(f"the upstream did not begin to answer within {limit:g} seconds"))


class ProxiedHttpClientConnection(HttpClientConnection):
    """A connection to a proxy that forwards http requests, and answers some of them itself."""

    __slots__ = ("_proxy",)

    def __init__(
        self,
        owner: HttpConnectionPool,
        key: object,
        idle_age: float,
        loop: asyncio.AbstractEventLoop,
        proxy: ProxyAddress,
    ) -> None:
        super().__init__(owner, key, idle_age, loop)
        self._proxy = proxy

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        if self._parser.get_status_code() == PROXY_AUTHENTICATION_REQUIRED:
            raise proxy_failure(proxy_refusal(self._proxy, PROXY_AUTHENTICATION_REQUIRED))
        super().on_headers_complete()


def proxy_failure(error: ProxyError) -> UpstreamProxyFailed:
    """Return the upstream error for an error of the proxy."""
    return UpstreamProxyFailed(str(error), error.proxy.url, retryable=not error.is_permanent)


def _ends_with_connection(headers: Headers) -> bool:
    """Return whether a response is delimited only by the end of its connection."""
    for name, value in headers:
        if name == b"content-length":
            return False
        if name == b"transfer-encoding":
            return not value.lower().endswith(b"chunked")
    return True


def _no_answer_error() -> UpstreamBroken:
    return UpstreamBroken("the upstream closed the connection without an answer")


def _long_head_error() -> UpstreamBroken:
    return UpstreamBroken(f"the head of the answer is longer than {MAX_HEAD_BYTES} bytes")
