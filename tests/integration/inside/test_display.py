"""The display of a sandbox, reached from outside: as a descriptor, or through the daemon."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from paddock.errors import InvalidInput, SandboxError, SandboxGone, SandboxTimeout, Unavailable
from paddock.model.sandbox import DaemonAddress
from paddock.sandbox.daemon.client import DaemonClient
from paddock.sandbox.daemon.display_socket import DisplaySocket

from .daemon import TOKEN, Daemon, eventually, running_daemon

RFB_VERSION = b"RFB 003.008\n"
HEAD = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: fd\r\nConnection: Upgrade\r\n\r\n"


@contextmanager
def screen(zipapp: Path, directory: Path, **settings: Any) -> Iterator[Daemon]:
    """A daemon with a real display, on a free display number."""
    path = directory / "vnc.sock"
    words = ["Xvnc", "-displayfd", "1", "-geometry", "320x200", "-depth", "24", "-rfbport=-1", f"-rfbunixpath={path}"]
    words += ["-SecurityTypes=None", "-AlwaysShared", "-nolisten", "tcp"]
    display = {"name": "display", "command": words, "ready": str(path)}
    env = {"PADDOCK_DISPLAY_SOCKET": str(path)}
    with running_daemon(zipapp, directory, services=[display], env=env, **settings) as daemon:
        yield daemon


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def client(daemon: Daemon) -> DaemonClient:
    return DaemonClient(DaemonAddress(token=TOKEN, socket=daemon.socket_path))


async def read(display: DisplaySocket, size: int) -> bytes:
    data = b""
    async with asyncio.timeout(10):
        while len(data) < size:
            piece = await asyncio.get_running_loop().sock_recv(display, size - len(data))
            assert piece, "the display hung up"
            data += piece
    return data


async def rfb_handshake(display: DisplaySocket) -> tuple[int, int]:
    """Run the RFB handshake up to the size of the display."""
    loop = asyncio.get_running_loop()
    assert await read(display, 12) == RFB_VERSION
    await loop.sock_sendall(display, RFB_VERSION)
    assert await read(display, 2) == b"\x01\x01"
    await loop.sock_sendall(display, b"\x01")
    assert await read(display, 4) == bytes(4)
    await loop.sock_sendall(display, b"\x01")
    size = await read(display, 4)
    return int.from_bytes(size[:2]), int.from_bytes(size[2:])


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("direct", [True, False])
def test_several_viewers_reach_the_display(
    zipapp: Path, directory: Path, direct: bool, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def run_viewers(daemon: Daemon) -> None:
        async with client(daemon) as inside:
            displays = [await inside.open_display(direct=direct) for _ in range(3)]
            for display in displays:
                assert display.gettimeout() == 0
                assert not display.get_inheritable()
                assert await rfb_handshake(display) == (320, 200)
                display.close()

    with screen(zipapp, directory) as daemon, asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run_viewers(daemon))


def test_early_viewer_waits_for_the_display(zipapp: Path, directory: Path) -> None:
    """The viewer connects before the display can be up."""

    async def run_viewers(daemon: Daemon) -> None:
        async with client(daemon) as inside:
            with await inside.open_display() as display:
                assert await read(display, 12) == RFB_VERSION

    with screen(zipapp, directory) as daemon:
        asyncio.run(run_viewers(daemon))


def test_watched_sandbox_is_not_idle(zipapp: Path, directory: Path) -> None:
    async def run_viewers(daemon: Daemon) -> None:
        async with client(daemon) as inside:
            display = await inside.open_display()
            assert (await inside.state())["idle_seconds"] == 0
            display.close()
            deadline = time.monotonic() + 10
            while (await inside.state())["idle_seconds"] == 0:
                assert time.monotonic() < deadline

    with screen(zipapp, directory) as daemon:
        asyncio.run(run_viewers(daemon))


def test_killed_display_disconnects_viewers_and_restarts(zipapp: Path, directory: Path) -> None:
    async def run_viewers(daemon: Daemon) -> None:
        async with client(daemon) as inside:
            display = await inside.open_display()
            await rfb_handshake(display)
            watch = inside.watch_services()
            first = await anext(watch)
            assert (first["name"], first["state"]) == ("display", "ready")
            os.kill(first["pid"], signal.SIGKILL)
            async with asyncio.timeout(10):
                while await asyncio.get_running_loop().sock_recv(display, 4096):
                    pass
                assert [(await anext(watch))["state"] for _ in range(3)] == ["failed", "starting", "ready"]
            await watch.aclose()
            display.close()
            with await inside.open_display() as again:
                assert await rfb_handshake(again) == (320, 200)

    with screen(zipapp, directory) as daemon:
        asyncio.run(run_viewers(daemon))


@pytest.mark.parametrize("direct", [True, False])
def test_stopped_display_is_unavailable(zipapp: Path, directory: Path, direct: bool) -> None:
    async def run_viewers(daemon: Daemon) -> None:
        async with client(daemon) as inside:
            assert [each["state"] for each in await inside.start_services()] == ["ready"]
            assert [each["state"] for each in await inside.stop_services(["display"])] == ["stopped"]
            with pytest.raises(Unavailable, match="no display runs in this sandbox"):
                await inside.open_display(direct=direct)
            await inside.start_services(["display"])
            (await inside.open_display(direct=direct)).close()
            with pytest.raises(InvalidInput, match="unknown service 'nope'"):
                await inside.stop_services(["nope"])

    with screen(zipapp, directory) as daemon:
        asyncio.run(run_viewers(daemon))


def test_missing_display_is_reported(daemon: Daemon) -> None:
    async def run_viewers() -> None:
        async with client(daemon) as inside:
            with pytest.raises(Unavailable, match="use an image with a screen"):
                await inside.open_display()

    asyncio.run(run_viewers())
    assert daemon.call("GET", "/paddock/display").status == 426


def test_remote_daemon_forwards_bytes(zipapp: Path, directory: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    async def run_viewers() -> None:
        async with DaemonClient(DaemonAddress(token=TOKEN, host="127.0.0.1", port=port)) as inside:
            with await inside.open_display() as display:
                assert await rfb_handshake(display) == (320, 200)

    with screen(zipapp, directory, listen={"tcp": ["127.0.0.1", port]}):
        eventually(lambda: listens(port))
        asyncio.run(run_viewers())
        with socket.create_connection(("127.0.0.1", port)) as raw:
            head = f"GET /paddock/display HTTP/1.1\r\nHost: x\r\nX-EXECD-ACCESS-TOKEN: {TOKEN}\r\nUpgrade: fd\r\n\r\n"
            raw.sendall(head.encode())
            assert raw.recv(100).startswith(b"HTTP/1.1 400 ")


def test_sandbox_cannot_block_its_viewer(zipapp: Path, directory: Path) -> None:
    """Another holder of the connection may make it blocking; the viewer's reads still do not block."""

    async def run_viewers(daemon: Daemon) -> None:
        async with client(daemon) as inside:
            with await inside.open_display() as display:
                await rfb_handshake(display)
                with socket.socket(fileno=os.dup(display.fileno())) as other:
                    other.setblocking(True)
                    assert os.get_blocking(display.fileno())
                    while True:  # The name and format, until there is nothing to read.
                        try:
                            display.recv(4096)
                        except BlockingIOError:
                            break
                    with pytest.raises(BlockingIOError):
                        display.recv_into(bytearray(10))

    with screen(zipapp, directory) as daemon:
        asyncio.run(run_viewers(daemon))


@asynccontextmanager
async def fake_daemon(directory: Path, act: Callable[[socket.socket], Awaitable[None]]) -> AsyncIterator[DaemonClient]:
    """A fake daemon with an arbitrary answer to a display request."""
    path = directory / "fake_daemon.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.setblocking(False)

        async def respond() -> None:
            loop = asyncio.get_running_loop()
            connection, _ = await loop.sock_accept(listener)
            with connection:
                request = b""
                while b"\r\n\r\n" not in request:
                    request += await loop.sock_recv(connection, 4096)
                await act(connection)

        task = asyncio.create_task(respond())
        try:
            async with DaemonClient(DaemonAddress(token="x", socket=path)) as inside:
                yield inside
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def assert_refused(directory: Path, send: Callable[[socket.socket], None], match: str, timeout: float = 10.0) -> None:
    """Assert that the reply of a fake daemon is refused and that no descriptor stays open."""

    async def act(connection: socket.socket) -> None:
        send(connection)

    async def run_viewers() -> None:
        async with fake_daemon(directory, act) as inside:
            before = len(os.listdir("/proc/self/fd"))
            with pytest.raises(SandboxError, match=match):
                await inside.open_display(timeout=timeout)
            deadline = time.monotonic() + 5
            while len(os.listdir("/proc/self/fd")) > before:
                assert time.monotonic() < deadline, "descriptors stay open"
                await asyncio.sleep(0.005)

    asyncio.run(run_viewers())


def test_regular_file_descriptor_is_refused(tmp_path: Path) -> None:
    def send(connection: socket.socket) -> None:
        with (tmp_path / "file").open("w+") as file:
            socket.send_fds(connection, [HEAD], [file.fileno()])

    assert_refused(tmp_path, send, "not a display's")


@pytest.mark.parametrize("kind", ["datagram", "listening", "unconnected", "tcp", "pipe"])
def test_datagram_socket_descriptor_is_refused(tmp_path: Path, kind: str) -> None:
    def send(connection: socket.socket) -> None:
        if kind == "pipe":
            ends = os.pipe()
            socket.send_fds(connection, [HEAD], [ends[0]])
            os.close(ends[0])
            os.close(ends[1])
            return
        if kind == "datagram":
            left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        elif kind == "tcp":
            with socket.create_server(("127.0.0.1", 0)) as server:
                left = socket.create_connection(server.getsockname())
                right = server.accept()[0]
        else:
            left, right = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
            if kind == "listening":
                left.bind(str(tmp_path / "listening"))
                left.listen()
        with left, right:
            socket.send_fds(connection, [HEAD], [left.fileno()])

    assert_refused(tmp_path, send, "not a display's")


@pytest.mark.parametrize("count", [2, 5, 50])
def test_several_descriptors_are_refused(tmp_path: Path, count: int) -> None:
    def send(connection: socket.socket) -> None:
        left, right = socket.socketpair()
        with left, right:
            socket.send_fds(connection, [HEAD], [left.fileno()] * count)

    assert_refused(tmp_path, send, "descriptors instead of one display descriptor")


def test_one_descriptor_per_byte_is_refused(tmp_path: Path) -> None:
    def send(connection: socket.socket) -> None:
        left, right = socket.socketpair()
        with left, right:
            for byte in HEAD:
                socket.send_fds(connection, [bytes([byte])], [left.fileno()])

    assert_refused(tmp_path, send, "descriptors instead of one display descriptor")


@pytest.mark.parametrize(
    ("reply", "match"),
    [
        (HEAD, "0 descriptors"),
        (b"", "an invalid reply"),
        (b"\0\xff garbage \r\n\r\n", "an invalid reply"),
        (b"HTTP/1.1 abc\r\n\r\n", "an invalid reply"),
        (HEAD[:-2], "an invalid reply"),
        (b"HTTP/1.1 101 " + b"x" * 20_000 + b"\r\n\r\n", "an invalid reply"),
        (b'HTTP/1.1 502 Bad\r\n\r\n{"message": "broken"}', "broken"),
    ],
)
def test_malformed_replies_are_refused(tmp_path: Path, reply: bytes, match: str) -> None:
    assert_refused(tmp_path, lambda connection: connection.sendall(reply), match)


def test_bytes_after_the_head_are_refused(tmp_path: Path) -> None:
    def send(connection: socket.socket) -> None:
        left, right = socket.socketpair()
        with left, right:
            socket.send_fds(connection, [HEAD + b"more"], [left.fileno()])

    assert_refused(tmp_path, send, "instead of one display descriptor")


@pytest.mark.parametrize("direct", [True, False])
def test_silent_daemon_times_out(tmp_path: Path, direct: bool) -> None:
    async def act(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 ")
        await asyncio.sleep(60)

    async def run_viewers() -> None:
        async with fake_daemon(tmp_path, act) as inside:
            with pytest.raises(SandboxTimeout):
                await inside.open_display(direct=direct, timeout=0.1)

    asyncio.run(run_viewers())


def test_missing_daemon_is_reported(tmp_path: Path) -> None:
    async def run_viewers() -> None:
        async with DaemonClient(DaemonAddress(token="x", socket=tmp_path / "none.sock")) as inside:
            with pytest.raises(SandboxGone):
                await inside.open_display()

    asyncio.run(run_viewers())


def test_viewer_during_display_restart_gets_the_new_display(zipapp: Path, directory: Path) -> None:
    async def run_viewers(daemon: Daemon) -> None:
        async with client(daemon) as inside:
            for _ in range(3):
                await inside.start_services()
                os.kill((await inside.services())[0]["pid"], signal.SIGKILL)
                with await inside.open_display() as display:
                    assert await rfb_handshake(display) == (320, 200)

    with screen(zipapp, directory) as daemon:
        asyncio.run(run_viewers(daemon))
