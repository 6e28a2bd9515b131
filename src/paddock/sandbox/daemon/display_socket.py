"""Connections to the display of a sandbox.

The fast way is a descriptor passed by the daemon, so that no process of the sandbox relays data. The sandbox may keep
a duplicate of that descriptor, and flags such as O_NONBLOCK are shared with it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from paddock.errors import PaddockError, SandboxGone, SandboxTimeout
from paddock.model.sandbox import DaemonAddress
from paddock.sandbox.base import TOKEN_HEADER
from paddock.sandbox.daemon.daemon_http import daemon_error_from_reply

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

DISPLAY_PATH = "/paddock/display"
MAX_RESPONSE_HEAD = 8 * 2**10
MAX_REFUSAL_BODY = 64 * 2**10
INTEGER = struct.Struct("i")
MAX_RECEIVED_DESCRIPTORS = 8
"""Maximum descriptors received in one message; one is expected and the kernel drops the rest."""


class DisplaySocket(socket.socket):
    """A display connection that never blocks, even if the sandbox changes the descriptor's flags.

    Every call passes MSG_DONTWAIT, because a sandbox could clear O_NONBLOCK. Use only these methods (`loop.sock_recv`,
    `add_reader` and asyncio's transports do) or `SPLICE_F_NONBLOCK`; uvloop's transports bypass them and would let a
    sandbox halt the server.
    """

    def __init__(self, descriptor: int, held: socket.socket | None = None) -> None:
        super().__init__(fileno=descriptor)
        self._held = held
        self.setblocking(False)

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        return super().recv(size, flags | socket.MSG_DONTWAIT)

    def recv_into(self, buffer: WriteableBuffer, size: int = 0, flags: int = 0) -> int:
        return super().recv_into(buffer, size, flags | socket.MSG_DONTWAIT)

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        return super().send(data, flags | socket.MSG_DONTWAIT)

    def sendmsg(
        self, buffers: Iterable[ReadableBuffer], ancillary: Iterable[Any] = (), flags: int = 0, address: Any = None, /
    ) -> int:
        return super().sendmsg(buffers, ancillary, flags | socket.MSG_DONTWAIT, address)

    def close(self) -> None:
        """Disconnect and notify the daemon, which counts a sandbox with a viewer as in use."""
        if self._held is not None:
            self._held.close()
        super().close()


async def open_display_socket(address: DaemonAddress, *, direct: bool, timeout: float) -> DisplaySocket:
    """Connect to a sandbox's display; `direct` asks for a descriptor, which only a daemon on this machine can give.

    Raises `Unavailable` without a display, `SandboxGone` for an ended sandbox or an invalid descriptor,
    `SandboxTimeout` without an answer.
    """
    try:
        async with asyncio.timeout(timeout):
            control = await _dial(address)
            try:
                await _ask(control, address, "fd" if direct else "tcp")
                return await (_take_descriptor(control) if direct else _take_over(control))
            except BaseException:
                control.close()
                raise
    except TimeoutError as error:
        raise SandboxTimeout() from error
    except OSError as error:
        raise SandboxGone("the sandbox no longer answers") from error


async def _dial(address: DaemonAddress) -> socket.socket:
    local = address.socket is not None
    control = socket.socket(socket.AF_UNIX if local else socket.AF_INET, socket.SOCK_STREAM)
    control.setblocking(False)
    target = str(address.socket) if local else (address.host, address.port)
    try:
        await asyncio.get_running_loop().sock_connect(control, target)
    except BaseException:
        control.close()
        raise
    return control


async def _ask(control: socket.socket, address: DaemonAddress, upgrade: str) -> None:
    lines = [
        f"GET {DISPLAY_PATH} HTTP/1.1",
        "Host: inside",
        f"{TOKEN_HEADER}: {address.token}",
        f"Upgrade: {upgrade}",
        "Connection: Upgrade, close",
    ]
    await asyncio.get_running_loop().sock_sendall(control, "\r\n".join([*lines, "", ""]).encode())


async def _take_descriptor(control: socket.socket) -> DisplaySocket:
    head, descriptors = b"", list[int]()
    try:
        while b"\r\n\r\n" not in head:
            await _readable(control)
            # Not socket.recv_fds, which ignores its flags on some Pythons.
            data, extras, *_ = control.recvmsg(
                MAX_RESPONSE_HEAD, socket.CMSG_SPACE(MAX_RECEIVED_DESCRIPTORS * INTEGER.size), socket.MSG_CMSG_CLOEXEC
            )
            descriptors += _descriptors(extras)
            head += data
            if not data or len(head) > MAX_RESPONSE_HEAD:
                raise SandboxGone("the sandbox sent an invalid reply")
        await _check_status(control, head)
        if len(descriptors) != 1 or not head.endswith(b"\r\n\r\n"):
            raise SandboxGone(f"the sandbox sent {len(descriptors)} descriptors instead of one display descriptor")
        if not _is_stream(descriptors[0]):
            raise SandboxGone("the sandbox sent a descriptor that is not a display's")
        return DisplaySocket(descriptors.pop(), control)
    finally:
        _drop(descriptors)


async def _take_over(control: socket.socket) -> DisplaySocket:
    """Read exactly the response head; the following bytes belong to the display."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = await asyncio.get_running_loop().sock_recv(control, 1)
        head += byte
        if not byte or len(head) > MAX_RESPONSE_HEAD:
            raise SandboxGone("the sandbox sent an invalid reply")
    await _check_status(control, head)
    return DisplaySocket(control.detach())


async def _check_status(control: socket.socket, head: bytes) -> None:
    version, _, rest = head.partition(b" ")
    if version != b"HTTP/1.1" or not rest[:3].isdigit():
        raise SandboxGone("the sandbox sent an invalid reply")
    if (status := int(rest[:3])) != 101:
        raise await _refusal(control, status, head.partition(b"\r\n\r\n")[2])


async def _refusal(control: socket.socket, status: int, body: bytes) -> PaddockError:
    while len(body) < MAX_REFUSAL_BODY and (
        data := await asyncio.get_running_loop().sock_recv(control, MAX_REFUSAL_BODY)
    ):
        body += data
    return daemon_error_from_reply(status, body.decode(errors="replace"))


async def _readable(control: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(control, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(control)


def _descriptors(extras: Iterable[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors in ancillary data."""
    return [
        number
        for level, kind, data in extras
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        for (number,) in INTEGER.iter_unpack(data[: len(data) // INTEGER.size * INTEGER.size])
    ]


def _is_stream(descriptor: int) -> bool:
    """Return whether a descriptor is a connected Unix stream socket, which is safe to use and close."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return False
    with socket.socket(fileno=os.dup(descriptor)) as found:
        try:
            found.getpeername()
        except OSError:
            return False
        return found.family == socket.AF_UNIX and found.type == socket.SOCK_STREAM


def _drop(descriptors: list[int]) -> None:
    """Close unexpected descriptors in a thread, because a sandbox can delay the close."""
    for descriptor in descriptors:
        threading.Thread(target=os.close, args=(descriptor,), daemon=True).start()
