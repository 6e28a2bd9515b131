"""Standard input for a command in a box: sent along when it is short and complete, else streamed.

The daemon takes a command's whole input with the command, or none. To stream it, the command reads a named pipe in the
box, and a small relay beside it, behind a terminal without a pty, copies into that pipe what we send it in frames.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import select
import shlex
import stat
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from paddock.cli.client import Client
from paddock.cli.failure import CliError, ConnectionLost

INLINE = 2**20
"""Most that is sent along: every byte may take six in JSON, of which the daemon reads 8 MiB."""
_PATIENCE = 0.05
_CHUNK = 64 * 1024
_STDIN = b"\x00"
_OPEN_PIPE = 'mkfifo -m 600 "$1" 2>/dev/null; exec 0<"$1"; rm -f "$1"; shift; exec "$@"'
_RELAY = """
import os, sys
target = os.open(sys.argv[1], os.O_WRONLY)
while True:
    head = sys.stdin.buffer.read(4)
    size = int.from_bytes(head, "big")
    if len(head) < 4 or not size:
        break
    data = memoryview(sys.stdin.buffer.read(size))
    while data:
        data = data[os.write(target, data):]
"""


class Input:
    """What comes on a descriptor. `complete` says whether `head` is all of it."""

    def __init__(self, descriptor: int, head: bytes, complete: bool) -> None:
        self._descriptor = descriptor
        self.head = head
        self.complete = complete

    @classmethod
    def begin(cls, descriptor: int = 0, limit: int = INLINE, patience: float = _PATIENCE) -> Input:
        """Read what is there at once. A terminal, or nothing at all, counts as empty."""
        head = bytearray()
        try:
            mode = os.fstat(descriptor).st_mode
        except OSError:
            return cls(descriptor, b"", True)
        if os.isatty(descriptor):
            return cls(descriptor, b"", True)
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        deadline = time.monotonic() + patience
        while len(head) <= limit:
            left = max(0.0, deadline - time.monotonic())
            if not stat.S_ISREG(mode) and not poller.poll(left * 1000):
                return cls(descriptor, bytes(head), False)
            data = os.read(descriptor, _CHUNK)
            if not data:
                return cls(descriptor, bytes(head), True)
            head += data
        return cls(descriptor, bytes(head), False)

    async def pieces(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.head), _CHUNK):
            yield self.head[start : start + _CHUNK]
        while not self.complete and (data := await self._read()):
            yield data

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(self._descriptor, ready.set)
        except PermissionError:  # files are always ready, and epoll refuses to say so
            return await asyncio.to_thread(os.read, self._descriptor, _CHUNK)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)
        return os.read(self._descriptor, _CHUNK)


class Feeder:
    """Streams an `Input` into a command of a box."""

    def __init__(self, client: Client, sandbox_id: str, source: Input) -> None:
        self._client = client
        self._sandbox = sandbox_id
        self._source = source
        self._pipe = f"/tmp/.paddock-stdin-{secrets.token_hex(8)}"  # noqa: S108 - in the box, made by mkfifo

    def redirected(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A command as it must be started to read the pipe."""
        words = document.get("argv")
        if words is None:
            shell = 'if [ -x /bin/bash ]; then exec /bin/bash -c "$0"; else exec /bin/sh -c "$0"; fi'
            words = ["/bin/sh", "-c", shell, document["command"]]
        rest = {key: value for key, value in document.items() if key not in ("argv", "command")}
        return {**rest, "argv": ["/bin/sh", "-c", _OPEN_PIPE, "sh", self._pipe, *words]}

    async def run(self) -> None:
        """Send everything, then the end. Returns early when the command does not read any more."""
        pipe = shlex.quote(self._pipe)
        relay = f"mkfifo -m 600 {pipe} 2>/dev/null; exec /usr/bin/python3 -I -S -c {shlex.quote(_RELAY)} {pipe}"
        session = await self._client.post(self._client.box(self._sandbox, "/pty"), {"command": relay})
        path = self._client.box(self._sandbox, f"/pty/{session['session_id']}")
        try:
            async with self._client.websocket(f"{path}/ws", pty="0") as ws:
                reading = asyncio.ensure_future(_drain(ws))
                sending = asyncio.ensure_future(self._send(ws))
                try:
                    await asyncio.wait([reading, sending], return_when=asyncio.FIRST_COMPLETED)
                    if not reading.done():
                        await sending
                    if not await reading and sending.done() is False:
                        raise ConnectionLost("the connection broke off while standard input was being sent")
                finally:
                    for task in (reading, sending):
                        task.cancel()
                    await asyncio.gather(reading, sending, return_exceptions=True)
        finally:
            # Awaited even when cancelled: the client closes right after.
            cleaning = asyncio.ensure_future(self._clean_up(path))
            try:
                await asyncio.shield(cleaning)
            except asyncio.CancelledError:
                await cleaning
                raise

    async def _send(self, ws: Any) -> None:
        async for data in self._source.pieces():
            await ws.send_bytes(_STDIN + len(data).to_bytes(4, "big") + data)
        await ws.send_bytes(_STDIN + bytes(4))

    async def _clean_up(self, path: str) -> None:
        for gone, query in ((path, {}), (self._client.box(self._sandbox, "/files"), {"path": self._pipe})):
            try:
                await self._client.delete(gone, **query)
            except CliError:
                pass  # usually gone already; and with the box it goes anyway


async def _drain(ws: Any) -> bool:
    """Read until the socket closes. Whether the relay ended by itself, which is how things should end."""
    ended = False
    async for message in ws:
        if isinstance(message.data, str) and '"exit"' in message.data:
            ended = True
    return ended
