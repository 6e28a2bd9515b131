"""Carries one viewer's desktop: RFB from a display to a WebSocket, and what the viewer may say back.

What the display sends is not looked into. It is read into one buffer, where room is left for a frame's head, and sent
from there; while the client takes nothing, nothing is read, and the display keeps its updates for this viewer.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paddock.live import frames
from paddock.live.frames import Closing, Frames
from paddock.live.rfb import PROTOCOL_ERROR, ClientMessages, merges

BUFFER = 2**20
"""What is taken from a display in one turn, at most. It goes on writing while its socket is emptied, and one large
frame costs less than several small ones."""
UNSENT = 2**18
"""How much the kernel holds for a client before it counts as one that does not keep up."""
READ = 2**14
REST = 3
"""How long a client that keeps the server busy is not listened to, as a multiple of how long it did."""
BUSY = 0.001
"""Seconds of the processor at a time that count as that."""
BEHIND = 2**16
"""Most bytes that wait for a display before its viewer is not listened to any more."""
TO_DISPLAY = 2**13
"""How much the kernel holds for a display. Little, so that it soon shows when the display is behind."""
NORMAL, GOING_AWAY, COME_BACK = 1000, 1001, 1012
GONE = Closing(1006, "the client is gone")
"""Told to nobody."""
DISPLAY_ENDED = "the display has ended; connect again"


@dataclass(frozen=True)
class Pace:
    """How long things may take, in seconds."""

    handshake: float = 20.0
    """From the connection to the end of RFB's handshake."""
    ping: float = 20.0
    """Between signs of life asked of a client."""
    silent: float = 60.0
    """Without any."""
    stalled: float = 60.0
    """Without the client taking a byte that waits for it."""
    look: float = 1.0
    """Between looks whether a connection was reset."""
    goodbye: float = 1.0
    """For the last bytes of a connection."""


class Relay:
    """One viewer's connection, from its first byte to its last. It owns both sockets, which must not block."""

    def __init__(
        self, client: socket.socket, display: socket.socket, messages: ClientMessages, pace: Pace | None = None
    ) -> None:
        self._client = client
        self._display = display
        self._messages = messages
        self._pace = pace or Pace()
        self._frames = Frames()
        self._buffer = memoryview(bytearray(frames.LONGEST_HEAD + BUFFER))
        self._body = self._buffer[frames.LONGEST_HEAD :]
        self._unsent: list[memoryview | bytes] = []
        """What the client has not taken yet; the display is not read before it has."""
        self._sending = b""
        """What the display has not taken of messages that are under way."""
        self._waiting: list[bytes] = []
        """Messages that come after it."""
        self._full = self._resting = False
        """Why the client is not listened to: the display is too far behind, or others shall have their turn."""
        self._loop = asyncio.get_running_loop()
        self._heard = self._moved = self._loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._end: asyncio.Future[Closing] = self._loop.create_future()

    async def run(self) -> Closing:
        """Carry both ways until one of them ends, and say how it ended. The client has not been told yet."""
        for end in (self._client, self._display):
            end.setblocking(False)
        _set(self._client, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # What waits in the kernel is an old picture by the time it is sent; what waits in the display is the newest.
        _set(self._client, socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        _set(self._display, socket.SOL_SOCKET, socket.SO_SNDBUF, TO_DISPLAY)
        self._loop.add_reader(self._client, self._from_client)
        self._loop.add_reader(self._display, self._from_display)
        self._after(self._pace.handshake, self._check_handshake)
        self._after(self._pace.ping, self._beat)
        self._after(self._pace.look, self._look)
        try:
            return await self._end
        finally:
            for timer in self._timers.values():
                timer.cancel()
            for end in (self._client, self._display):
                self._loop.remove_reader(end)
                self._loop.remove_writer(end)

    def stop(self, closing: Closing) -> None:
        """End it from outside; the first reason counts."""
        if not self._end.done():
            self._end.set_result(closing)

    def let_go(self) -> None:
        """Lift the keys and buttons that are down, because their viewer has lost the input."""
        if not self._end.done():
            self._to_display(self._messages.let_go())

    async def close(self, closing: Closing) -> None:
        """Tell the client how it ended, as far as it still listens, and let go of both sockets."""
        try:
            if not self._sending:
                self._pass(b"".join(self._messages.let_go()))  # Who is gone lifts no finger.
                self._loop.remove_writer(self._display)
            self._display.close()
            if closing is not GONE:
                async with asyncio.timeout(self._pace.goodbye):
                    last = [*self._unsent, frames.close(closing.code, closing.reason)]
                    await self._loop.sock_sendall(self._client, b"".join(last))
                    self._client.shutdown(socket.SHUT_WR)
                    # Closing while something unread lies there would destroy what is still on its way to the client.
                    while await self._loop.sock_recv(self._client, READ):
                        pass
        except (OSError, TimeoutError):
            pass
        finally:
            self._client.close()

    # From the display to the client.

    def _from_display(self) -> None:
        size = 0
        try:
            while size < BUFFER:
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
            self.stop(Closing(COME_BACK, DISPLAY_ENDED))
            return
        head = frames.head(size)
        start = frames.LONGEST_HEAD - len(head)
        self._buffer[start : frames.LONGEST_HEAD] = head
        self._send(self._buffer[start : frames.LONGEST_HEAD + size])

    def _send(self, data: memoryview | bytes) -> None:
        """Frames go out one after the other, whole; what the client does not take now waits, and all else with it."""
        if self._unsent:
            self._unsent.append(data)
            return
        sent = self._try(data)
        if sent < len(data):
            self._unsent.append(data[sent:])
            self._moved = self._loop.time()
            self._loop.remove_reader(self._display)
            self._loop.add_writer(self._client, self._send_more)

    def _send_more(self) -> None:
        while self._unsent:
            sent = self._try(self._unsent[0])
            if sent:
                self._moved = self._loop.time()
            if sent < len(self._unsent[0]):
                self._unsent[0] = self._unsent[0][sent:]
                return
            del self._unsent[0]
        self._loop.remove_writer(self._client)
        self._loop.add_reader(self._display, self._from_display)

    def _try(self, data: memoryview | bytes) -> int:
        try:
            return self._client.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.stop(GONE)
            return 0

    # From the client to the display.

    def _from_client(self) -> None:
        try:
            data = self._client.recv(READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.stop(GONE)
            return
        # Many clients hold a message back until the one before is acknowledged, which the kernel is slow to do.
        _set(self._client, socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        self._heard = self._loop.time()
        began = time.thread_time()
        try:
            self._heed(self._frames.feed(data))
        except Closing as closing:
            self.stop(closing)
        busy = time.thread_time() - began
        if busy > BUSY and not self._end.done():
            self._resting = True
            self._listen()
            self._after(REST * busy, self._rested)

    def _heed(self, said: list[tuple[int, bytes]]) -> None:
        rfb = b"".join(payload for kind, payload in said if kind == frames.BINARY)
        if rfb:
            self._to_display(self._messages.feed(rfb))
        for kind, payload in said:
            if kind == frames.PING:
                self._pong(payload)
            elif kind == frames.CLOSE:
                raise Closing(NORMAL, "")

    def _rested(self) -> None:
        self._resting = False
        self._listen()

    def _listen(self) -> None:
        if self._full or self._resting:
            self._loop.remove_reader(self._client)
        else:
            self._heard = self._loop.time()  # What was not read could not be heard.
            self._loop.add_reader(self._client, self._from_client)

    def _pong(self, payload: bytes) -> None:
        # One answer is enough for a client that asks often and listens seldom.
        if len(self._unsent) < 2:
            self._send(frames.control(frames.PONG, payload))

    def _to_display(self, messages: Iterable[bytes]) -> None:
        if self._sending:
            self._wait(messages)
        else:
            self._pass(b"".join(messages))

    def _pass(self, data: bytes) -> None:
        try:
            sent = self._display.send(data) if data else 0
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.stop(Closing(COME_BACK, DISPLAY_ENDED))
            sent = len(data)
        if sent < len(data) and not self._sending:
            self._loop.add_writer(self._display, self._pass_more)
        self._sending = data[sent:]

    def _pass_more(self) -> None:
        self._pass(self._sending)
        if self._sending:
            return
        waiting, self._waiting = self._waiting, []
        self._loop.remove_writer(self._display)
        if self._full:
            self._full = False
            self._listen()
        self._pass(b"".join(waiting))

    def _wait(self, messages: Iterable[bytes]) -> None:
        """While the display is behind, only the last of several moves of the mouse is worth keeping."""
        for message in messages:
            if self._waiting and merges(self._waiting[-1], message):
                self._waiting[-1] = message
            else:
                self._waiting.append(message)
        if not self._full and sum(map(len, self._waiting)) > BEHIND:
            self._full = True
            self._listen()

    # Time.

    def _check_handshake(self) -> None:
        if not self._messages.ready:
            self.stop(Closing(PROTOCOL_ERROR, "the RFB handshake took too long"))

    def _beat(self) -> None:
        now = self._loop.time()
        if self._unsent:
            if now - self._moved >= self._pace.stalled:
                self.stop(GONE)
        elif not self._full and not self._resting and now - self._heard >= self._pace.silent:
            self.stop(GONE)
        else:
            self._send(frames.control(frames.PING))
        self._after(self._pace.ping, self._beat)

    def _look(self) -> None:
        """A socket that was reset is not watched any more by libuv, which tells nobody of it."""
        if self._client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.stop(GONE)
        elif self._display.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.stop(Closing(COME_BACK, DISPLAY_ENDED))
        else:
            self._after(self._pace.look, self._look)

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self._timers[call.__name__] = self._loop.call_later(seconds, call)


def _set(end: socket.socket, level: int, option: int, value: int) -> None:
    try:
        end.setsockopt(level, option, value)
    except OSError:
        pass  # Not every kind of socket has it.
