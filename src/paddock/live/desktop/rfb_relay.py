"""Relays one viewer's desktop: RFB from the display to a WebSocket, and filtered input back.

The display's data is not parsed. It is read into one buffer with space for a frame header in front, and sent from
there. While the client does not read, the display is not read either and keeps its updates for this viewer.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paddock.live.desktop import websocket_frames
from paddock.live.desktop.rfb_filter import PROTOCOL_ERROR, RfbClientFilter, can_merge_pointer_moves
from paddock.live.desktop.websocket_frames import WebSocketClose, WebSocketFrameParser

BUFFER_SIZE = 2**20
"""Bytes read from a display at a time.

The display writes on while its socket is drained, and one large frame costs
less than several small ones."""
MAX_UNSENT = 2**18
"""Unsent bytes in the kernel above which a client counts as slow."""
READ_SIZE = 2**14
REST_FACTOR = 3
"""Pause before a busy client is read again, as a multiple of the CPU time it used."""
BUSY_THRESHOLD = 0.001
"""CPU seconds for one read above which a client counts as busy."""
MAX_DISPLAY_BACKLOG = 2**16
"""Bytes queued for a display above which its viewer is not read."""
DISPLAY_SEND_BUFFER = 2**13
"""Kernel send buffer for a display; small, so that a slow display is noticed early."""
NORMAL, GOING_AWAY, SERVICE_RESTART = 1000, 1001, 1012
CLIENT_GONE = WebSocketClose(1006, "the client is gone")
"""Never sent: the client has disconnected."""
DISPLAY_ENDED_REASON = "the display has ended; connect again"


@dataclass(frozen=True)
class RfbRelayTimeouts:
    """Timeouts and intervals of a relay, in seconds."""

    handshake: float = 20.0
    """Until the RFB handshake is complete."""
    ping: float = 20.0
    """Between pings to the client."""
    silence: float = 60.0
    """Without data from the client."""
    stall: float = 60.0
    """Without progress in sending data to the client."""
    reset_check: float = 1.0
    """Between checks for reset connections."""
    close: float = 1.0
    """For sending the last bytes of a connection."""


class RfbRelay:
    """Relays one viewer's connection and owns both non-blocking sockets."""

    def __init__(
        self,
        client: socket.socket,
        display: socket.socket,
        messages: RfbClientFilter,
        timeouts: RfbRelayTimeouts | None = None,
    ) -> None:
        self._client = client
        self._display = display
        self._filter = messages
        self._timeouts = timeouts or RfbRelayTimeouts()
        self._parser = WebSocketFrameParser()
        self._buffer = memoryview(bytearray(websocket_frames.MAX_HEADER_SIZE + BUFFER_SIZE))
        self._body = self._buffer[websocket_frames.MAX_HEADER_SIZE :]
        self._unsent_to_client: list[memoryview | bytes] = []
        """Data the client has not accepted yet; the display is not read meanwhile."""
        self._unsent_to_display = b""
        """The unsent rest of messages to the display."""
        self._queued_messages: list[bytes] = []
        """Messages that follow it."""
        self._display_behind = self._throttled = False
        """Reasons not to read the client: a slow display, or fairness to other viewers."""
        self._loop = asyncio.get_running_loop()
        self._received_at = self._sent_at = self._loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._closing: asyncio.Future[WebSocketClose] = self._loop.create_future()

    async def run(self) -> WebSocketClose:
        """Relay both directions until one ends; return the close reason, which has not been sent yet."""
        for end in (self._client, self._display):
            end.setblocking(False)
        _set_socket_option(self._client, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Data queued in the kernel is outdated when it is sent; data held back in the display is current.
        _set_socket_option(self._client, socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT)
        _set_socket_option(self._display, socket.SOL_SOCKET, socket.SO_SNDBUF, DISPLAY_SEND_BUFFER)
        self._loop.add_reader(self._client, self._on_client_readable)
        self._loop.add_reader(self._display, self._on_display_readable)
        self._schedule(self._timeouts.handshake, self._check_handshake)
        self._schedule(self._timeouts.ping, self._check_liveness)
        self._schedule(self._timeouts.reset_check, self._check_reset)
        try:
            return await self._closing
        finally:
            for timer in self._timers.values():
                timer.cancel()
            for end in (self._client, self._display):
                self._loop.remove_reader(end)
                self._loop.remove_writer(end)

    def stop(self, closing: WebSocketClose) -> None:
        """End the relay from outside; the first reason counts."""
        if not self._closing.done():
            self._closing.set_result(closing)

    def release_pressed(self) -> None:
        """Release pressed keys and buttons: the viewer has lost the input."""
        if not self._closing.done():
            self._send_to_display(self._filter.release_pressed())

    async def close(self, closing: WebSocketClose) -> None:
        """Send the close frame if the client still reads, then close both sockets."""
        try:
            if not self._unsent_to_display:
                self._write_to_display(
                    b"".join(self._filter.release_pressed())
                )  # A disconnected client cannot release its keys.
                self._loop.remove_writer(self._display)
            self._display.close()
            if closing is not CLIENT_GONE:
                async with asyncio.timeout(self._timeouts.close):
                    last = [
                        *self._unsent_to_client,
                        websocket_frames.websocket_close_frame(closing.code, closing.reason),
                    ]
                    await self._loop.sock_sendall(self._client, b"".join(last))
                    self._client.shutdown(socket.SHUT_WR)
                    # Closing with unread input would reset the connection and discard data in flight.
                    while await self._loop.sock_recv(self._client, READ_SIZE):
                        pass
        except (OSError, TimeoutError):
            pass
        finally:
            self._client.close()

    # From the display to the client.

    def _on_display_readable(self) -> None:
        size = 0
        try:
            while size < BUFFER_SIZE:
                more = self._display.recv_into(self._body[size:])
                if not more:
                    break
                size += more
        except (BlockingIOError, InterruptedError):
            if not size:
                return
        except OSError:
            pass
        if not size:
            self.stop(WebSocketClose(SERVICE_RESTART, DISPLAY_ENDED_REASON))
            return
        head = websocket_frames.websocket_frame_header(size)
        start = websocket_frames.MAX_HEADER_SIZE - len(head)
        self._buffer[start : websocket_frames.MAX_HEADER_SIZE] = head
        self._send_to_client(self._buffer[start : websocket_frames.MAX_HEADER_SIZE + size])

    def _send_to_client(self, data: memoryview | bytes) -> None:
        """Send a complete frame; what the client does not accept now is queued, and later frames behind it."""
        if self._unsent_to_client:
            self._unsent_to_client.append(data)
            return
        sent = self._try_send(data)
        if sent < len(data):
            self._unsent_to_client.append(data[sent:])
            self._sent_at = self._loop.time()
            self._loop.remove_reader(self._display)
            self._loop.add_writer(self._client, self._on_client_writable)

    def _on_client_writable(self) -> None:
        while self._unsent_to_client:
            sent = self._try_send(self._unsent_to_client[0])
            if sent:
                self._sent_at = self._loop.time()
            if sent < len(self._unsent_to_client[0]):
                self._unsent_to_client[0] = self._unsent_to_client[0][sent:]
                return
            del self._unsent_to_client[0]
        self._loop.remove_writer(self._client)
        self._loop.add_reader(self._display, self._on_display_readable)

    def _try_send(self, data: memoryview | bytes) -> int:
        try:
            return self._client.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.stop(CLIENT_GONE)
            return 0

    # From the client to the display.

    def _on_client_readable(self) -> None:
        try:
            data = self._client.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.stop(CLIENT_GONE)
            return
        # Clients with Nagle's algorithm wait for acknowledgements, which the kernel delays by default.
        _set_socket_option(self._client, socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        self._received_at = self._loop.time()
        began = time.thread_time()
        try:
            self._handle_client_frames(self._parser.feed(data))
        except WebSocketClose as closing:
            self.stop(closing)
        busy = time.thread_time() - began
        if busy > BUSY_THRESHOLD and not self._closing.done():
            self._throttled = True
            self._update_client_reader()
            self._schedule(REST_FACTOR * busy, self._end_throttle)

    def _handle_client_frames(self, received: list[tuple[int, bytes]]) -> None:
        rfb = b"".join(payload for kind, payload in received if kind == websocket_frames.BINARY)
        if rfb:
            self._send_to_display(self._filter.feed(rfb))
        for kind, payload in received:
            if kind == websocket_frames.PING:
                self._pong(payload)
            elif kind == websocket_frames.CLOSE:
                raise WebSocketClose(NORMAL, "")

    def _end_throttle(self) -> None:
        self._throttled = False
        self._update_client_reader()

    def _update_client_reader(self) -> None:
        if self._display_behind or self._throttled:
            self._loop.remove_reader(self._client)
        else:
            self._received_at = self._loop.time()  # The client was not read meanwhile, so its silence does not count.
            self._loop.add_reader(self._client, self._on_client_readable)

    def _pong(self, payload: bytes) -> None:
        # One pong is enough for a client that pings often and reads seldom.
        if len(self._unsent_to_client) < 2:
            self._send_to_client(websocket_frames.websocket_control_frame(websocket_frames.PONG, payload))

    def _send_to_display(self, messages: Iterable[bytes]) -> None:
        if self._unsent_to_display:
            self._queue_for_display(messages)
        else:
            self._write_to_display(b"".join(messages))

    def _write_to_display(self, data: bytes) -> None:
        try:
            sent = self._display.send(data) if data else 0
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.stop(WebSocketClose(SERVICE_RESTART, DISPLAY_ENDED_REASON))
            sent = len(data)
        if sent < len(data) and not self._unsent_to_display:
            self._loop.add_writer(self._display, self._on_display_writable)
        self._unsent_to_display = data[sent:]

    def _on_display_writable(self) -> None:
        self._write_to_display(self._unsent_to_display)
        if self._unsent_to_display:
            return
        waiting, self._queued_messages = self._queued_messages, []
        self._loop.remove_writer(self._display)
        if self._display_behind:
            self._display_behind = False
            self._update_client_reader()
        self._write_to_display(b"".join(waiting))

    def _queue_for_display(self, messages: Iterable[bytes]) -> None:
        """Queue messages for a slow display, merging consecutive mouse moves."""
        for message in messages:
            if self._queued_messages and can_merge_pointer_moves(self._queued_messages[-1], message):
                self._queued_messages[-1] = message
            else:
                self._queued_messages.append(message)
        if not self._display_behind and sum(map(len, self._queued_messages)) > MAX_DISPLAY_BACKLOG:
            self._display_behind = True
            self._update_client_reader()

    # Time.

    def _check_handshake(self) -> None:
        if not self._filter.handshake_done:
            self.stop(WebSocketClose(PROTOCOL_ERROR, "the RFB handshake took too long"))

    def _check_liveness(self) -> None:
        now = self._loop.time()
        if self._unsent_to_client:
            if now - self._sent_at >= self._timeouts.stall:
                self.stop(CLIENT_GONE)
        elif not self._display_behind and not self._throttled and now - self._received_at >= self._timeouts.silence:
            self.stop(CLIENT_GONE)
        else:
            self._send_to_client(websocket_frames.websocket_control_frame(websocket_frames.PING))
        self._schedule(self._timeouts.ping, self._check_liveness)

    def _check_reset(self) -> None:
        """Check for reset connections: libuv stops watching them without a callback."""
        if self._client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.stop(CLIENT_GONE)
        elif self._display.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.stop(WebSocketClose(SERVICE_RESTART, DISPLAY_ENDED_REASON))
        else:
            self._schedule(self._timeouts.reset_check, self._check_reset)

    def _schedule(self, seconds: float, call: Callable[[], None]) -> None:
        self._timers[call.__name__] = self._loop.call_later(seconds, call)


def _set_socket_option(end: socket.socket, level: int, option: int, value: int) -> None:
    try:
        end.setsockopt(level, option, value)
    except OSError:
        pass  # Not every socket type has the option.
