"""Connections to the display of a box.

The quick way is to have the daemon connect and hand the descriptor out, so that no process of the box stands between
the display and us. Such a descriptor is the box's in part: it may hold another one for the same connection, and
whatever one of the two sets, such as whether calls wait, the other has set as well.
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

from paddock.errors import BoxGone, BoxTimeout, PaddockError
from paddock.model.sandbox import Address
from paddock.sandbox.base import TOKEN_HEADER
from paddock.sandbox.exchange import refusal

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

PATH = "/paddock/display"
MAX_HEAD = 8 * 2**10
MAX_REFUSAL = 64 * 2**10
INTEGER = struct.Struct("i")
MOST_DESCRIPTORS = 8
"""How many are taken in before it is seen that there should have been one; the kernel drops what is beyond."""


class DisplaySocket(socket.socket):
    """A connection to a display that never waits, whatever the box makes of the descriptor.

    That it does not block is asked for in every call, because a box could take it back from the descriptor. So
    read and write it through these methods (`loop.sock_recv`, `add_reader` and asyncio's own transports do), or
    with `SPLICE_F_NONBLOCK`; uvloop's transports bypass them and would let a box halt the server.
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
        """Leave the display, and let the daemon know, to whom a box with a viewer is one that is used."""
        if self._held is not None:
            self._held.close()
        super().close()


async def open_display(address: Address, *, direct: bool, timeout: float) -> DisplaySocket:
    """Connect to a box's display; `direct` asks for a descriptor, which only a daemon on this machine can give.

    Raises `Unavailable` when no display runs, `BoxGone` when the box is gone or sends what is no display,
    `BoxTimeout` when it sends nothing.
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
        raise BoxTimeout() from error
    except OSError as error:
        raise BoxGone("the box does not answer any more") from error


async def _dial(address: Address) -> socket.socket:
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


async def _ask(control: socket.socket, address: Address, upgrade: str) -> None:
    lines = [
        f"GET {PATH} HTTP/1.1",
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
            # Not socket.recv_fds, which forgets its flags.
            data, extras, *_ = control.recvmsg(
                MAX_HEAD, socket.CMSG_SPACE(MOST_DESCRIPTORS * INTEGER.size), socket.MSG_CMSG_CLOEXEC
            )
            descriptors += _descriptors(extras)
            head += data
            if not data or len(head) > MAX_HEAD:
                raise BoxGone("the box answers nonsense")
        await _check_status(control, head)
        if len(descriptors) != 1 or not head.endswith(b"\r\n\r\n"):
            raise BoxGone(f"the box sends {len(descriptors)} descriptors instead of that of its display")
        if not _is_stream(descriptors[0]):
            raise BoxGone("the box sends a descriptor that is not a display's")
        return DisplaySocket(descriptors.pop(), control)
    finally:
        _drop(descriptors)


async def _take_over(control: socket.socket) -> DisplaySocket:
    """Read the head and no byte more: what follows is the display's."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = await asyncio.get_running_loop().sock_recv(control, 1)
        head += byte
        if not byte or len(head) > MAX_HEAD:
            raise BoxGone("the box answers nonsense")
    await _check_status(control, head)
    return DisplaySocket(control.detach())


async def _check_status(control: socket.socket, head: bytes) -> None:
    version, _, rest = head.partition(b" ")
    if version != b"HTTP/1.1" or not rest[:3].isdigit():
        raise BoxGone("the box answers nonsense")
    if (status := int(rest[:3])) != 101:
        raise await _refusal(control, status, head.partition(b"\r\n\r\n")[2])


async def _refusal(control: socket.socket, status: int, body: bytes) -> PaddockError:
    while len(body) < MAX_REFUSAL and (data := await asyncio.get_running_loop().sock_recv(control, MAX_REFUSAL)):
        body += data
    return refusal(status, body.decode(errors="replace"))


async def _readable(control: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(control, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(control)


def _descriptors(extras: Iterable[tuple[int, int, bytes]]) -> list[int]:
    """The descriptors among what came beside the bytes."""
    return [
        number
        for level, kind, data in extras
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        for (number,) in INTEGER.iter_unpack(data[: len(data) // INTEGER.size * INTEGER.size])
    ]


def _is_stream(descriptor: int) -> bool:
    """Whether this is a connected local socket, and nothing whose reading, writing or closing could do more."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return False
    with socket.socket(fileno=os.dup(descriptor)) as found:
        try:
            found.getpeername()
        except OSError:
            return False
        return found.family == socket.AF_UNIX and found.type == socket.SOCK_STREAM


def _drop(descriptors: list[int]) -> None:
    """Close what a box has sent in vain, aside: closing may take as long as a box likes."""
    for descriptor in descriptors:
        threading.Thread(target=os.close, args=(descriptor,), daemon=True).start()
