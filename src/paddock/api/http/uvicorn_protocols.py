"""uvicorn's connection protocols with limits on request heads, and a way to take over a WebSocket's socket."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from paddock.api.http.model_fast_path import FastPathConnection, is_fast_path_model_request
from paddock.api.http.outer_middleware import PROXIED_SCOPE_KEY
from paddock.llm.wire.descriptor_guard import AdmissionDecision, FileDescriptorGuard, IdleConnection
from paddock.llm.wire.http_heads import MAX_HEAD_BYTES, MAX_HEADERS, headers_size, http_status_line
from paddock.llm.wire.http_server_connection import (
    LINGER_SECONDS,
    HttpListenerContext,
    MeasureCallback,
    call_unmeasured,
)

TAKEOVER_EXTENSION = "paddock.take"
"""Key of the `SocketTakeover` in the extensions of a WebSocket's scope."""
HEAD_TIMEOUT = 20.0
"""Seconds from the first byte of a request, or from the connection, to the end of its headers."""
PARSE_SLICE = 16 * 2**10
"""Bytes that are parsed at once, except of a body whose length is known."""
PARSE_SECONDS = 0.002
"""Seconds after which parsing lets other connections go first."""
FRAMES_SLICE = 2**10
"""Bytes of WebSocket frames that are parsed at first; a frame may be six bytes or megabytes."""
REST_FACTOR = 3
"""Pause after parsing frames for long, as a multiple of the time it took."""
MAX_WAITING_MESSAGES = 64
MESSAGES_PER_STEP = 16
"""Messages an application may receive before other tasks run."""
BODY_INTERVAL = 30.0
"""Seconds between two checks of a body that is being received."""
MIN_BODY_PROGRESS = 1024
"""Bytes of a body that must arrive between two checks, unless the server does not read."""
_TOO_LONG = f"the headers are longer than {MAX_HEAD_BYTES} bytes"
_CODES: Mapping[int, str] = {400: "INVALID_INPUT", 408: "TIMEOUT", 431: "TOO_LARGE", 503: "UNAVAILABLE"}
_MALFORMED = "malformed HTTP request"


class PausableFlowControl(FlowControl):
    """Flow control that also stops reading while received bytes are not parsed yet."""

    _is_held = False
    reads_since = 0.0
    """Loop time since which the client is read without a pause."""

    def hold(self) -> None:
        if not self._is_held:
            self._is_held = True
            if not self.read_paused:
                self._transport.pause_reading()

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            if not self.read_paused:
                self._resume()

    @property
    def is_reading(self) -> bool:
        return not self.read_paused and not self._is_held

    def _resume(self) -> None:
        self.reads_since = asyncio.get_running_loop().time()
        self._transport.resume_reading()

    def pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            if not self._is_held:
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            if not self._is_held:
                self._resume()


class LimitedHttpProtocol(HttpToolsProtocol):
    """Limits the time, size and number of the headers of each request.

    One request is parsed ahead of the one being answered. What follows stays unparsed, and the client is not read
    meanwhile. Hands the connection to the model proxy for small model requests.
    """

    flow: PausableFlowControl
    measure: MeasureCallback = staticmethod(call_unmeasured)
    model_server: HttpListenerContext | None = None
    guard: FileDescriptorGuard | None = None
    _idle_since: float | None = None
    """Loop time of the end of the last response, or of the connection's start."""
    _head_timer: asyncio.TimerHandle | None = None
    _head_deadline = 0.0
    _receiving = False
    """Whether a request has been received in part."""
    _in_head = False
    _head_size = 0
    _bytes_without_progress = 0
    """Bytes received since the last complete head or the last byte of a body."""
    _progress = False
    _hosts = 0
    _refusal: tuple[int, str] | None = None
    """Status and message for the client once its request exceeds a limit."""
    _closing_after_error = False
    _unparsed = b""
    """Received bytes, to be parsed from `_unparsed_start` on."""
    _unparsed_start = 0
    _drops_rest = False
    """Whether data after a request in the same chunk belongs to an unsupported protocol."""
    _body_timer: asyncio.TimerHandle | None = None
    _body_received = 0
    """Bytes of the body since its last check."""
    _body_left = 0
    """Bytes that the body of the request still has, if it has a content length."""

    @classmethod
    def with_model_server(cls, server: HttpListenerContext, guard: FileDescriptorGuard) -> type[LimitedHttpProtocol]:
        """Return a subclass that lets this server answer model requests. `guard` admits new connections."""
        fields = {"model_server": server, "guard": guard, "measure": staticmethod(server.measure)}
        return type("LimitedHttpProtocol", (cls,), fields)

    def data_received(self, data: bytes) -> None:
        self.measure(self._receive, data)

    def _receive(self, data: bytes) -> None:
        if self._closing_after_error:
            return
        if self._unparsed:
            # Received before reading was paused.
            self._unparsed, self._unparsed_start = self._unparsed[self._unparsed_start :] + data, 0
        elif self.model_server is not None and self._is_idle() and is_fast_path_model_request(data):
            self._stop_head_timer()
            self._unset_keepalive_if_required()
            self.connections.discard(self)
            fast_path = FastPathConnection(self.model_server, self.loop, self._reclaim)
            self.transport.set_protocol(fast_path)
            fast_path.connection_made(self.transport)
            fast_path.data_received(data)
        else:
            self._parse(data, 0)

    def _parse(self, data: bytes, start: int) -> None:
        """Parse data in slices. The rest is kept if a request has to wait, or if parsing takes too long."""
        deadline = 0.0
        while start < len(data) and self._reads_requests():
            if self.pipeline:
                self._keep_unparsed(data, start)
                return
            if start:
                now = time.perf_counter()
                deadline = deadline or now + PARSE_SECONDS
                if now > deadline:
                    self._keep_unparsed(data, start)
                    self.loop.call_soon(self._parse_rest)
                    return
            end = self._slice_end(data, start)
            self._feed_parser(data[start:end])
            start = end
        self._unparsed, self._drops_rest = b"", False
        if self._reads_requests():
            self.flow.release()
            if self._receiving and not self._in_head and self._body_timer is None:
                self._start_body_timer()

    def _keep_unparsed(self, data: bytes, start: int) -> None:
        self._unparsed, self._unparsed_start = data, start
        self.flow.hold()

    def _parse_rest(self) -> None:
        if self._unparsed:
            self.measure(self._parse_from, self._unparsed_start)

    def _parse_from(self, start: int) -> None:
        self._parse(self._unparsed, start)

    def _reads_requests(self) -> bool:
        return not (
            self._closing_after_error
            or self._drops_rest
            or self.transport.is_closing()
            or self.transport.get_protocol() is not self  # It is a WebSocket now.
        )

    def _slice_end(self, data: bytes, start: int) -> int:
        """Return the end of the next slice, in which at most one request begins."""
        if self._receiving and not self._in_head and self._body_left > 0:
            return min(start + self._body_left, len(data))
        found = data.find(b"\r\n\r\n", start, start + PARSE_SLICE)
        return found + 4 if found >= 0 else min(start + PARSE_SLICE, len(data))

    def _feed_parser(self, data: bytes) -> None:
        if self._head_timer is not None and self.loop.time() > self._head_deadline:
            # On a busy event loop the timer is late too.
            self._head_timer.cancel()
            self._on_head_timeout()
            return
        self._progress = False
        super().data_received(data)
        if self._progress:
            self._bytes_without_progress = 0
            return
        # Part of a head, a chunk extension or a trailer: none of them may be endless.
        self._bytes_without_progress += len(data)
        if (
            self._bytes_without_progress > MAX_HEAD_BYTES
            and not self._closing_after_error
            and not self.transport.is_closing()
        ):
            self._send_error(431, _TOO_LONG)

    def idle_since(self) -> float | None:
        """Return the loop time since which the connection has no request; `None` if it has one."""
        return (
            None
            if self._closing_after_error or self.transport.is_closing() or not self._is_idle()
            else self._idle_since
        )

    def _is_idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return not self._receiving and not self.pipeline and (cycle is None or cycle.response_complete)

    def _reclaim(self, data: bytes) -> None:
        self.connections.add(self)
        self.transport.set_protocol(self)
        self._start_head_timer()
        self._parse(data, 0)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = PausableFlowControl(transport)
        # Not idle yet: it must not be closed in favour of itself.
        admission = AdmissionDecision.ADMITTED if self.guard is None else self.guard.admit(transport)
        self._idle_since = self.loop.time()
        if admission is AdmissionDecision.ADMITTED:
            self._start_head_timer()
        elif admission is AdmissionDecision.REFUSED:
            self._send_error(503, "the server has too many open connections; try again later")
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        if self._body_timer is not None:
            self._body_timer.cancel()
        self._unparsed = b""
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._receiving = self._in_head = True
        self._head_size = self._hosts = self._body_left = 0
        self._start_head_timer()

    def on_url(self, url: bytes) -> None:
        self._count_head_bytes(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # A trailer.
        self._count_head_bytes(headers_size([(name, value)]))
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            raise self._parser_error(431, f"the request has more than {MAX_HEADERS} headers")
        if self.headers[-1][0] == b"host":
            self._hosts += 1
            if self._hosts > 1:
                raise self._parser_error(400, "the header host may be given once")
        elif self.headers[-1][0] == b"content-length":
            self._body_left = int(value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._progress = True
        self._stop_head_timer()
        if self.parser.get_http_version() == "1.0" and any(name == b"transfer-encoding" for name, _ in self.headers):
            raise self._parser_error(400, "HTTP/1.0 has no transfer-encoding; send a content-length")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._progress = True
        self._body_left -= len(body)
        self._body_received += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._receiving = False
        self._progress = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._idle_since = self.loop.time()
        if self._unparsed:
            self.loop.call_soon(self._parse_rest)

    def _unsupported_upgrade_warning(self) -> None:
        super()._unsupported_upgrade_warning()
        self._drops_rest = True

    def send_400_response(self, msg: str) -> None:
        self._send_error(*(self._refusal or (400, _MALFORMED)))

    def _count_head_bytes(self, size: int) -> None:
        self._head_size += size
        if self._head_size > MAX_HEAD_BYTES:
            raise self._parser_error(431, _TOO_LONG)

    def _parser_error(self, status: int, message: str) -> Exception:
        """Return the exception that makes the parser stop."""
        self._refusal = status, message
        return ValueError(message)

    def _send_error(self, status: int, message: str) -> None:
        """Send an error, then discard input for a moment: closing at once could discard the response."""
        self._closing_after_error = True
        self._stop_head_timer()
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            if self._in_head or cycle.response_started or not cycle.more_body:
                # The response to an earlier request is being sent; an error must not be mixed into it.
                self.transport.close()
                return
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.write(_error_bytes(status, message))
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_deadline = self.loop.time() + HEAD_TIMEOUT
            self._head_timer = self.loop.call_at(self._head_deadline, self._on_head_timeout)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _start_body_timer(self) -> None:
        self._body_received = 0
        self._body_timer = self.loop.call_later(BODY_INTERVAL, self._check_body)

    def _check_body(self) -> None:
        """Refuse a body that stalls. Bodies for programs in sandboxes may pause for as long as they like."""
        self._body_timer = None
        if self.transport.is_closing() or not self._receiving or self._in_head:
            return
        reads = self.flow.is_reading and self.loop.time() - self.flow.reads_since >= BODY_INTERVAL
        if reads and self._body_received < MIN_BODY_PROGRESS and not self.scope.get(PROXIED_SCOPE_KEY):
            self._send_error(408, "the request body arrived too slowly")
        else:
            self._start_body_timer()

    def _on_head_timeout(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self._send_error(408, "the request headers arrived too slowly")


def _error_bytes(status: int, message: str) -> bytes:
    code = _CODES[status]
    body = json.dumps({"code": code, "message": message}).encode()
    head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return b"%b\r\n%b%b" % (http_status_line(status), head.encode(), body)


def list_idle_connections(connections: Iterable[object]) -> Iterator[IdleConnection]:
    """List the idle ones of a server's connections, which may be closed."""
    for each in connections:
        if isinstance(each, LimitedHttpProtocol) and (since := each.idle_since()) is not None:
            yield IdleConnection(since, each.transport.close)


class SocketTakeover:
    """Hands over a WebSocket's socket to code that reads and writes it directly.

    Call `pause_reading` before accepting the WebSocket, so that this protocol reads none of the client's data.
    """

    def __init__(self, connection: LimitedWebSocketProtocol) -> None:
        self._connection = connection

    def pause_reading(self) -> None:
        self._connection.transport.pause_reading()
        # With a limit of 0, `writable` is set only once everything has been sent.
        self._connection.transport.set_write_buffer_limits(0)

    def abort(self) -> None:
        """Close the connection at once and drop unsent data: the client does not read."""
        self._connection.transport.abort()

    async def __call__(self) -> socket.socket:
        """Return the socket once the handshake has been sent; this protocol no longer writes or closes it.

        The socket is a duplicate, because a loop cannot watch a descriptor that one of its transports owns. Raises
        `OSError` when the client has disconnected or has sent data too early.
        """
        connection = self._connection
        connection.taken = True
        connection.stop_keepalive()
        async with asyncio.timeout(HEAD_TIMEOUT):
            await connection.writable.wait()
        if connection.transport.is_closing() or connection.has_early_data:
            raise ConnectionAbortedError("the client disconnected, or sent data before the connection was open")
        return socket.socket(fileno=os.dup(connection.transport.get_extra_info("socket").fileno()))


class LimitedWebSocketProtocol(WebSocketsSansIOProtocol):
    """Offers its socket to the application as an extension of the scope.

    Frames are parsed in slices: not while messages wait for the application or the client does not read, and a client
    whose frames take long to parse has to wait meanwhile.
    """

    measure: MeasureCallback = staticmethod(call_unmeasured)
    taken = False
    _unparsed = b""
    """Received bytes that are not parsed yet; reading is paused meanwhile."""
    _fragments = bytearray()
    """The fragments of a message received so far."""
    _messages = 0
    """Number of messages passed to the application."""
    _timer: asyncio.Handle | None = None

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101 and self.scheme == "ws":
            extensions = cast(dict[str, Any], self.scope["extensions"])
            extensions[TAKEOVER_EXTENSION] = SocketTakeover(self)

    @classmethod
    def measured_by(cls, measure: MeasureCallback) -> type[LimitedWebSocketProtocol]:
        """Return a subclass whose callbacks are measured."""
        return type("LimitedWebSocketProtocol", (cls,), {"measure": staticmethod(measure)})

    def data_received(self, data: bytes) -> None:
        self.measure(self._receive_data, data)

    def _receive_data(self, data: bytes) -> None:
        if self._unparsed:
            self._unparsed += data
        else:
            self._parse(data)
        if self.conn.handshake_exc is not None and not (self.handshake_initiated or self.handshake_complete):
            # The WebSocket library has its own limits for the handshake and sends no answer beyond them.
            self.handshake_complete = True
            self.transport.write(_error_bytes(431, "a header of the WebSocket handshake is too long"))
            self.transport.close()

    def _parse(self, data: bytes) -> None:
        """Parse frames in slices, which grow while they hold few frames. The rest is kept if it has to wait."""
        start, size, began = 0, FRAMES_SLICE, time.perf_counter()
        while start < len(data) and not self.transport.is_closing():
            waits = self.queue.qsize() >= MAX_WAITING_MESSAGES or not self.writable.is_set()
            busy = time.perf_counter() - began
            if start and (waits or busy > PARSE_SECONDS):
                self._unparsed = data[start:]
                self._pause_reading()
                if not waits:
                    self._timer = self.loop.call_later(REST_FACTOR * busy, self._parse_rest)
                return
            super().data_received(data[start : start + size])
            start += size
            size *= 2

    def _parse_rest(self) -> None:
        data, self._unparsed = self._unparsed, b""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if data:
            self.measure(self._parse, data)
        self._continue_reading()

    def _continue_reading(self) -> None:
        """Read the client again once nothing waits."""
        if not self._unparsed and self.queue.empty() and self.read_paused and not self.transport.is_closing():
            self.read_paused = False
            self.transport.resume_reading()

    def _pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unparsed and self._timer is None:
            self._timer = self.loop.call_soon(self._parse_rest)

    def handle_cont(self, event: Frame) -> None:
        # One buffer: a list of small fragments takes far more memory than their content.
        if self.frames:
            self._fragments = bytearray(self.frames.pop())
        self._fragments += event.data
        if event.fin:
            self.frames = [bytes(self._fragments)]
            self._fragments = bytearray()
            self.send_receive_event_to_app()

    async def receive(self) -> ASGIReceiveEvent:
        self._messages += 1
        if self._messages % MESSAGES_PER_STEP == 0:
            # A message that waits already would be returned at once, and other tasks would never run.
            await asyncio.sleep(0)
        message = await self.queue.get()
        if self.queue.empty():
            if self._unparsed and self._timer is None:
                self._parse_rest()
            else:
                self._continue_reading()
        return message

    def connection_lost(self, exc: Exception | None) -> None:
        self._unparsed = b""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        # After a takeover the new owner closes the connection; a close frame now could corrupt its stream.
        if not self.taken:
            super().shutdown()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if self.close_sent and self._unparsed and self._timer is None:
            self._timer = self.loop.call_soon(self._parse_rest)  # The answer to the close frame may be in it.
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            # uvicorn would treat a handshake refused by an HTTP response as unanswered.
            self.handshake_complete = True

    @property
    def has_early_data(self) -> bool:
        """Return whether the client sent data that has not been read."""
        return not self.queue.empty() or bool(self._unparsed) or bool(self.conn.reader.buffer)
