"""One viewer's relay between two sockets: time limits, heartbeats, and what happens when a side is slow."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import uvloop

from paddock.live.desktop.rfb_filter import ClipboardPolicy, RfbClientFilter
from paddock.live.desktop.rfb_relay import CLIENT_GONE, RfbRelay, RfbRelayTimeouts
from paddock.live.desktop.websocket_frames import WebSocketClose

HANDSHAKE = b"RFB 003.008\n\1\1"
SHORT_SECONDS = 0.05


class RelayEnds:
    """The far ends of both sockets, and the relay between."""

    def __init__(self, timeouts: RfbRelayTimeouts, pair: tuple[socket.socket, socket.socket] | None = None) -> None:
        self.client, near_client = pair or socket.socketpair()
        self.display, near_display = socket.socketpair()
        for end in (self.client, self.display):
            end.setblocking(False)
        self.loop = asyncio.get_running_loop()
        messages = RfbClientFilter(lambda: True, ClipboardPolicy())
        self.relay = RfbRelay(near_client, near_display, messages, timeouts)
        self.running = asyncio.create_task(self._run())

    async def _run(self) -> WebSocketClose:
        closing = await self.relay.run()
        await self.relay.close(closing)
        return closing

    async def send_frames(self, data: bytes) -> None:
        """Send data in frames with a zero mask."""
        for at in range(0, len(data), 60000):
            piece = data[at : at + 60000]
            await self.loop.sock_sendall(self.client, struct.pack(">BBHI", 0x82, 0xFE, len(piece), 0) + piece)

    async def wait_until_read(self) -> None:
        """Wait until the relay has read all data sent so far."""
        while int.from_bytes(fcntl.ioctl(self.client, termios.TIOCOUTQ, bytes(4)), sys.byteorder):
            await asyncio.sleep(0.001)

    async def read(self, end: socket.socket, size: int) -> bytes:
        found = b""
        async with asyncio.timeout(5):
            while len(found) < size:
                piece = await self.loop.sock_recv(end, size - len(found))
                assert piece
                found += piece
        return found


@asynccontextmanager
async def running_relay(**timeouts: float) -> AsyncIterator[RelayEnds]:
    ends = RelayEnds(RfbRelayTimeouts(**{"close": SHORT_SECONDS, **timeouts}))
    try:
        yield ends
    finally:
        ends.relay.stop(CLIENT_GONE)
        await ends.running
        ends.client.close()
        ends.display.close()


def run_test(test: Callable[[], Awaitable[None]]) -> None:
    uvloop.run(asyncio.wait_for(test(), 20))


def test_incomplete_handshake_times_out() -> None:
    async def test() -> None:
        async with running_relay(handshake=SHORT_SECONDS) as ends:
            await ends.send_frames(b"RFB 003.008\n")
            assert await ends.read(ends.client, 2) == bytes((0x88, 2 + len("the RFB handshake took too long")))
            closing = await ends.running
            assert (closing.code, closing.reason) == (1002, "the RFB handshake took too long")

    run_test(test)


def test_silent_client_is_disconnected() -> None:
    async def test() -> None:
        async with running_relay(ping=SHORT_SECONDS, silence=2.5 * SHORT_SECONDS) as ends:
            await ends.send_frames(HANDSHAKE)
            assert await ends.read(ends.client, 2) == b"\x89\0"
            assert await ends.running is CLIENT_GONE

    run_test(test)


def test_client_answering_pings_stays_connected() -> None:
    async def test() -> None:
        async with running_relay(ping=SHORT_SECONDS / 5, silence=6 * SHORT_SECONDS) as ends:
            await ends.send_frames(HANDSHAKE)
            began = ends.loop.time()
            while ends.loop.time() < began + 8 * SHORT_SECONDS:
                assert await ends.read(ends.client, 2) == b"\x89\0"
                await ends.loop.sock_sendall(ends.client, b"\x8a\x80\0\0\0\0")
            assert not ends.running.done()

    run_test(test)


def test_stalled_client_pauses_the_display_and_is_disconnected() -> None:
    async def test() -> None:
        async with running_relay(ping=SHORT_SECONDS, stall=2 * SHORT_SECONDS) as ends:
            await ends.send_frames(HANDSHAKE)
            sent = 0
            try:
                async with asyncio.timeout(2):
                    while True:
                        await ends.loop.sock_sendall(ends.display, bytes(2**16))
                        sent += 2**16
            except (TimeoutError, BrokenPipeError, ConnectionResetError):
                pass
            assert await ends.running is CLIENT_GONE
            # Two sockets and one buffer hold this much; the display would send more.
            assert sent < 4 * 2**20

    run_test(test)


def test_slow_client_receives_all_data() -> None:
    async def test() -> None:
        async with running_relay() as ends:
            payload = b"".join(struct.pack(">I", number) for number in range(500_000))
            sending = asyncio.create_task(ends.loop.sock_sendall(ends.display, payload))
            found = b""
            while len(found) < len(payload):
                first, size = await ends.read(ends.client, 2)
                assert first == 0x82
                if size == 126:
                    size = int.from_bytes(await ends.read(ends.client, 2), "big")
                elif size == 127:
                    size = int.from_bytes(await ends.read(ends.client, 8), "big")
                found += await ends.read(ends.client, size)
            await sending
            assert found == payload

    run_test(test)


def test_only_moves_are_merged_while_the_display_is_slow() -> None:
    async def test() -> None:
        async with running_relay() as ends:
            key = struct.pack(">BBxxI", 4, 1, ord("a"))
            await ends.send_frames(HANDSHAKE)
            assert await ends.read(ends.display, len(HANDSHAKE)) == HANDSHAKE
            count = 60_000
            moves = [struct.pack(">BBHH", 5, 0, number % 5000, number // 5000) for number in range(count)]
            await ends.send_frames(b"".join(moves) + key + moves[0] + moves[1])
            await ends.wait_until_read()
            got = b""
            while not got.endswith(key + moves[1]):
                got += await ends.loop.sock_recv(ends.display, 2**16)
            assert len(got) < len(b"".join(moves)) / 2
            assert got.endswith(moves[-1] + key + moves[1])

    run_test(test)


def test_queue_for_a_stalled_display_is_bounded() -> None:
    async def test() -> None:
        async with running_relay(ping=SHORT_SECONDS / 5, silence=2 * SHORT_SECONDS) as ends:
            await ends.send_frames(HANDSHAKE)
            press = struct.pack(">BBxxI", 4, 1, ord("a")) + struct.pack(">BBxxI", 4, 0, ord("a"))
            try:
                async with asyncio.timeout(6 * SHORT_SECONDS):
                    while True:
                        await ends.send_frames(press * 1000)
            except TimeoutError:
                pass  # It does not read any more,
            assert not ends.running.done()  # and does not blame the client for its silence.

    run_test(test)


def test_display_end_tells_the_client_to_reconnect() -> None:
    async def test() -> None:
        async with running_relay() as ends:
            await ends.loop.sock_sendall(ends.display, b"last")
            ends.display.close()
            assert await ends.read(ends.client, 6) == b"\x82\x04last"
            assert (await ends.read(ends.client, 4))[2:] == struct.pack(">H", 1012)
            assert (await ends.running).code == 1012

    run_test(test)


def test_pressed_keys_are_released_when_the_client_disconnects() -> None:
    async def test() -> None:
        async with running_relay() as ends:
            await ends.send_frames(HANDSHAKE + struct.pack(">BBxxI", 4, 1, ord("a")) + struct.pack(">BBHH", 5, 1, 7, 7))
            await ends.read(ends.display, len(HANDSHAKE) + 14)
            ends.client.close()
            lifted = struct.pack(">BBxxI", 4, 0, ord("a")) + struct.pack(">BBHH", 5, 0, 7, 7)
            assert await ends.read(ends.display, 14) == lifted
            assert await ends.running is CLIENT_GONE

    run_test(test)


def test_close_frame_is_answered_with_a_close_frame() -> None:
    async def test() -> None:
        async with running_relay() as ends:
            await ends.loop.sock_sendall(ends.client, b"\x88\x82\0\0\0\0" + struct.pack(">H", 1000))
            assert await ends.read(ends.client, 4) == b"\x88\x02" + struct.pack(">H", 1000)
            assert (await ends.running).code == 1000

    run_test(test)


def test_flooding_client_leaves_most_cpu_time_to_others() -> None:
    async def test() -> None:
        async with running_relay() as ends:
            await ends.send_frames(HANDSHAKE)
            moves = b"".join(b"\x82\x86\0\0\0\0" + struct.pack(">BBHH", 5, 0, number, 0) for number in range(2000))

            async def flood() -> None:
                while True:
                    await ends.loop.sock_sendall(ends.client, moves)

            async def drain() -> None:
                while await ends.loop.sock_recv(ends.display, 2**16):
                    pass

            before = time.process_time()
            busy = [asyncio.create_task(flood()), asyncio.create_task(drain())]
            began = time.monotonic()
            await asyncio.sleep(4 * SHORT_SECONDS)
            took, used = time.monotonic() - began, time.process_time() - before
            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)
            assert used < 0.6 * took

    run_test(test)


def test_reset_connection_is_detected() -> None:
    async def reset(side: str) -> WebSocketClose:
        async with running_relay(reset_check=SHORT_SECONDS) as ends:
            # Closing a socket with unread data resets the connection.
            await ends.send_frames(HANDSHAKE)
            await ends.loop.sock_sendall(ends.display, b"RFB 003.008\n")
            await ends.wait_until_read()
            await asyncio.sleep(SHORT_SECONDS)
            (ends.client if side == "client" else ends.display).close()
            async with asyncio.timeout(5):
                return await ends.running

    assert uvloop.run(reset("client")) is CLIENT_GONE
    assert uvloop.run(reset("display")).code == 1012


def test_data_of_clients_with_nagle_is_acknowledged_at_once() -> None:
    """With Nagle, a small write waits in the kernel of the client until the previous one is acknowledged."""

    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            far = socket.create_connection(server.getsockname())
            near, _ = server.accept()
        ends = RelayEnds(RfbRelayTimeouts(close=SHORT_SECONDS), (far, near))
        try:
            await ends.send_frames(HANDSHAKE)
            await ends.read(ends.display, len(HANDSHAKE))
            began = time.monotonic()
            for _ in range(10):
                # Data flows back, as usual: from then on the kernel delays its acknowledgements.
                await ends.loop.sock_sendall(ends.display, b"picture")
                await ends.read(ends.client, len(b"picture") + 2)
                for _ in range(2):
                    await ends.send_frames(struct.pack(">BBHHHH", 3, 0, 0, 0, 10, 10))
                await ends.read(ends.display, 20)
            assert time.monotonic() - began < 0.2  # It would be 0.4, at least.
        finally:
            ends.relay.stop(CLIENT_GONE)
            await ends.running
            ends.client.close()
            ends.display.close()

    uvloop.run(work())
