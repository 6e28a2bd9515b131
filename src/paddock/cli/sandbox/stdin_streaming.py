"""Standard input for a command in a sandbox: sent with the command if short and complete, else streamed.

The daemon accepts a command's whole input or none. To stream it, the command reads a named pipe in the sandbox, and a
relay process, connected through a terminal session without a pty, copies frames from the client into that pipe.
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

from paddock.cli.connection.server_client import ServerClient
from paddock.cli.output.errors import CliError, ConnectionLost

MAX_INLINE_BYTES = 2**20
"""Largest input sent with the command: a byte may take six in JSON, of which the daemon reads 8 MiB."""
_FIRST_READ_SECONDS = 0.05
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


class StandardInput:
    """Input from a file descriptor: `head` was read at once and is everything if `complete`."""

    def __init__(self, descriptor: int, head: bytes, complete: bool) -> None:
        self._descriptor = descriptor
        self.head = head
        self.complete = complete

    @classmethod
    def read_available(
        cls, descriptor: int = 0, limit: int = MAX_INLINE_BYTES, patience: float = _FIRST_READ_SECONDS
    ) -> StandardInput:
        """Read the input that is available at once. A terminal or a closed descriptor counts as empty."""
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

    async def chunks(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.head), _CHUNK):
            yield self.head[start : start + _CHUNK]
        while not self.complete and (data := await self._read()):
            yield data

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(self._descriptor, ready.set)
        except PermissionError:  # epoll does not support regular files, which are always ready
            return await asyncio.to_thread(os.read, self._descriptor, _CHUNK)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)
        return os.read(self._descriptor, _CHUNK)


class StdinStreamer:
    """Streams standard input to a command in a sandbox."""

    def __init__(self, client: ServerClient, sandbox_id: str, source: StandardInput) -> None:
        self._client = client
        self._sandbox = sandbox_id
        self._source = source
        self._pipe = f"/tmp/.paddock-stdin-{secrets.token_hex(8)}"  # noqa: S108 - in the sandbox, made by mkfifo

    def redirect_to_pipe(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the command changed so that it reads the named pipe."""
        words = document.get("argv")
        if words is None:
            shell = 'if [ -x /bin/bash ]; then exec /bin/bash -c "$0"; else exec /bin/sh -c "$0"; fi'
            words = ["/bin/sh", "-c", shell, document["command"]]
        rest = {key: value for key, value in document.items() if key not in ("argv", "command")}
        return {**rest, "argv": ["/bin/sh", "-c", _OPEN_PIPE, "sh", self._pipe, *words]}

    async def stream(self) -> None:
        """Send the whole input and its end. Returns early if the command stops reading."""
        pipe = shlex.quote(self._pipe)
        relay = f"mkfifo -m 600 {pipe} 2>/dev/null; exec /usr/bin/python3 -I -S -c {shlex.quote(_RELAY)} {pipe}"
        session = await self._client.post(self._client.daemon_path(self._sandbox, "/pty"), {"command": relay})
        path = self._client.daemon_path(self._sandbox, f"/pty/{session['session_id']}")
        try:
            async with self._client.open_websocket(f"{path}/ws", pty="0") as ws:
                reading = asyncio.ensure_future(_read_until_closed(ws))
                sending = asyncio.ensure_future(self._send(ws))
                try:
                    await asyncio.wait([reading, sending], return_when=asyncio.FIRST_COMPLETED)
                    if not reading.done():
                        await sending
                    if not await reading and sending.done() is False:
                        raise ConnectionLost("the connection was lost while sending standard input")
                finally:
                    for task in (reading, sending):
                        task.cancel()
                    await asyncio.gather(reading, sending, return_exceptions=True)
        finally:
            # Awaited even if cancelled, because the client closes right afterwards.
            cleaning = asyncio.ensure_future(self._clean_up(path))
            try:
                await asyncio.shield(cleaning)
            except asyncio.CancelledError:
                await cleaning
                raise

    async def _send(self, ws: Any) -> None:
        async for data in self._source.chunks():
            await ws.send_bytes(_STDIN + len(data).to_bytes(4, "big") + data)
        await ws.send_bytes(_STDIN + bytes(4))

    async def _clean_up(self, path: str) -> None:
        for leftover, query in ((path, {}), (self._client.daemon_path(self._sandbox, "/files"), {"path": self._pipe})):
            try:
                await self._client.delete(leftover, **query)
            except CliError:
                pass  # Usually removed already; otherwise it is removed with the sandbox.


async def _read_until_closed(ws: Any) -> bool:
    """Read until the socket closes; return whether the relay exited normally."""
    ended = False
    async for message in ws:
        if isinstance(message.data, str) and '"exit"' in message.data:
            ended = True
    return ended
