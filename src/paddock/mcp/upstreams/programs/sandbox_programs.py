"""Starts programs in sandboxes over their daemons: a terminal without a pseudo-terminal gives the standard streams."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack

import aiohttp
import structlog

from paddock.errors import NotFound, PaddockError, SandboxGone, Unavailable
from paddock.mcp.upstreams.base import Program, ProgramOutput
from paddock.sandbox.daemon.client import DaemonClient

MAX_FRAME = 64 * 1024
RECOVERY_TIME = 5.0
_STDIN, _STDOUT, _STDERR, _REPLAY = 0, 1, 2, 3
_REPLAY_HEADER = 9
log = structlog.get_logger()


class SandboxPrograms:
    """Programs of MCP servers in sandboxes, at most one for each server and sandbox."""

    def __init__(self, find_daemon: Callable[[str, str], Awaitable[DaemonClient]]) -> None:
        self._find_daemon = find_daemon
        """Returns the client of a running sandbox's daemon, by tenant and sandbox."""
        self._running: set[str] = set()

    async def start(
        self, tenant: str, sandbox: str, name: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> Program:
        """Start a command in a sandbox. Raises `PaddockError`."""
        daemon = await self._find_daemon(tenant, sandbox)
        prefix = f"mcp-{hashlib.sha256(name.encode()).hexdigest()[:16]}-"
        for terminal in await daemon.terminals():
            identifier = str(terminal.get("session_id"))
            if identifier.startswith(prefix) and identifier not in self._running:
                await _end_terminal(daemon, identifier)  # Left behind by an earlier server process.
        variables = [f"{variable}={value}" for variable, value in environment.items()]
        words = ["exec", *(["env", *variables] if variables else []), *command]
        identifier = prefix + os.urandom(6).hex()
        await daemon.open_terminal(identifier, command=shlex.join(words))
        self._running.add(identifier)
        stack = AsyncExitStack()
        try:
            socket = await stack.enter_async_context(daemon.websocket(f"/pty/{identifier}/ws?pty=0"))
        except BaseException:
            self._running.discard(identifier)
            await stack.aclose()
            raise
        return _DaemonProgram(daemon, identifier, socket, stack, self._running)


class _DaemonProgram:
    """One program and the WebSocket with its streams."""

    def __init__(
        self,
        daemon: DaemonClient,
        identifier: str,
        socket: aiohttp.ClientWebSocketResponse,
        stack: AsyncExitStack,
        running: set[str],
    ) -> None:
        self._daemon = daemon
        self._identifier = identifier
        self._socket = socket
        self._stack = stack
        self._running = running
        self._exit_code: int | None = None
        self._has_ended = False
        self._position = 0
        """Bytes of output received so far."""

    async def write(self, data: bytes) -> None:
        try:
            for start in range(0, len(data), MAX_FRAME):
                await self._socket.send_bytes(bytes((_STDIN,)) + data[start : start + MAX_FRAME])
        except (ConnectionError, aiohttp.ClientError):
            raise SandboxGone("the program's input is closed") from None

    async def read(self) -> ProgramOutput | None:
        while not self._has_ended:
            try:
                message = await self._socket.receive()
            except (ConnectionError, aiohttp.ClientError):
                return await self._read_end()
            if message.type is aiohttp.WSMsgType.BINARY:
                output = _read_frame(message.data)
                self._position += len(output.data)
                return output
            if message.type is aiohttp.WSMsgType.TEXT:
                self._handle_control(message.data)
            elif message.type is aiohttp.WSMsgType.PING:
                await self._socket.pong(message.data)
            elif message.type is not aiohttp.WSMsgType.PONG:
                return await self._read_end()
        return None

    async def _read_end(self) -> ProgramOutput | None:
        """Return the last output of a program that ended while it was written to, which breaks the connection."""
        self._has_ended = True
        last = b""
        path = f"/pty/{self._identifier}/ws?takeover=1&since={self._position}"
        try:
            async with asyncio.timeout(RECOVERY_TIME), self._daemon.websocket(path) as socket:
                while self._exit_code is None:
                    message = await socket.receive()
                    if message.type is aiohttp.WSMsgType.BINARY:
                        last = message.data[_REPLAY_HEADER if message.data[:1] == bytes((_REPLAY,)) else 1 :]
                    elif message.type is aiohttp.WSMsgType.TEXT:
                        self._handle_control(message.data)
                    elif message.type not in (aiohttp.WSMsgType.PING, aiohttp.WSMsgType.PONG):
                        break
        except (PaddockError, aiohttp.ClientError, OSError, TimeoutError) as error:
            log.debug("last output of program not read", reason=str(error)[:200])
        return ProgramOutput("stderr", last) if last else None

    async def close(self) -> int | None:
        self._has_ended = True
        self._running.discard(self._identifier)
        try:
            await self._stack.aclose()
        except (PaddockError, aiohttp.ClientError, OSError) as error:
            log.debug("connection to program not closed", reason=str(error)[:200])
        await _end_terminal(self._daemon, self._identifier)
        return self._exit_code

    def _handle_control(self, text: str) -> None:
        try:
            frame = json.loads(text)
            kind = frame.get("type")
        except (ValueError, AttributeError, RecursionError):
            raise SandboxGone("the sandbox sent an invalid frame") from None
        if kind == "exit":
            code = frame.get("exit_code")
            self._exit_code = code if isinstance(code, int) else None
            self._has_ended = True
        elif kind == "error" and frame.get("code") == "START_FAILED":
            raise Unavailable(f"the program cannot be started: {str(frame.get('error'))[:200]}")


def _read_frame(frame: bytes) -> ProgramOutput:
    if frame[:1] == bytes((_STDOUT,)):
        return ProgramOutput("stdout", frame[1:])
    if frame[:1] == bytes((_STDERR,)):
        return ProgramOutput("stderr", frame[1:])
    # A replay follows output that was lost, so the stream of messages has a gap.
    raise SandboxGone("output of the program was lost")


async def _end_terminal(daemon: DaemonClient, identifier: str) -> None:
    try:
        await daemon.close_terminal(identifier)
    except NotFound:
        pass
    except PaddockError as error:
        log.info("program in sandbox not ended", reason=error.message)
