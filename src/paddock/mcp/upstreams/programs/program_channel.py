"""Standard streams of a program: one message per line, and a bounded part of its error output."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import structlog

from paddock.errors import InvalidInput, PaddockError, TooLarge, Unavailable
from paddock.mcp.protocol import CallContext, JsonRpcMessage, decode_message, encode_message
from paddock.mcp.upstreams.base import Program
from paddock.mcp.upstreams.call_clock import CallClock
from paddock.mcp.upstreams.sessions.session_channel import SessionChannel, SessionReceiver
from paddock.mcp.upstreams.task_set import TaskSet
from paddock.model.mcp import McpServer

MAX_ERROR_OUTPUT = 8 * 1024
MAX_SHOWN_OUTPUT = 500
MAX_INVALID_LINES = 1_000
"""Lines that are not messages after which a program is ended; some programs greet on standard output."""
END_TIME = 10.0
log = structlog.get_logger()


class ProgramChannel(SessionChannel):
    """One run of a program."""

    def __init__(self, server: McpServer, start: Callable[[], Awaitable[Program]]) -> None:
        self._server = server
        self._start = start
        self._program: Program | None = None
        self._tasks = TaskSet()
        self._outgoing: deque[bytes] = deque()
        self._outgoing_size = 0
        self._has_outgoing = asyncio.Event()
        self._error_output = bytearray()
        self._invalid_lines = 0
        self._last_invalid = b""

    async def open(self, receiver: SessionReceiver, context: CallContext, clock: CallClock) -> None:
        try:
            async with clock.wait():
                self._program = await self._start()
        except TimeoutError:
            raise clock.timeout_error() from None
        self._tasks.spawn(self._read(self._program, receiver))
        self._tasks.spawn(self._write(self._program))

    async def send_request(self, message: JsonRpcMessage, request_id: int, context: CallContext) -> None:
        content = encode_message(message)
        if len(content) > self._server.limits.request_size:
            raise TooLarge(
                f"the request to the MCP server {self._server.name} is larger than {self._server.limits.request_size} "
                "bytes; see its limits.request_size"
            )
        self._enqueue(content)

    async def send_other(self, message: JsonRpcMessage, context: CallContext) -> None:
        self._enqueue(encode_message(message))

    async def close(self) -> None:
        await self._tasks.close()
        if self._program is not None:
            program, self._program = self._program, None
            await self._end(program)

    def error_output(self) -> str:
        """Return the end of the program's error output on one line."""
        text = " ".join(bytes(self._error_output).decode(errors="replace").split())
        shown = "".join(character for character in text if character.isprintable())
        return shown[-MAX_SHOWN_OUTPUT:]

    def _enqueue(self, content: bytes) -> None:
        """Queue a line; whole lines are written even if the sender does not wait."""
        if self._program is None:
            raise Unavailable(f"the MCP server {self._server.name} has ended")
        if self._outgoing_size > 2 * self._server.limits.request_size:
            raise Unavailable(f"the MCP server {self._server.name} does not read its input")
        # Senders may have written line breaks between values; in strings they are escaped.
        line = content.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"
        self._outgoing.append(line)
        self._outgoing_size += len(line)
        self._has_outgoing.set()

    async def _write(self, program: Program) -> None:
        while True:
            while not self._outgoing:
                self._has_outgoing.clear()
                await self._has_outgoing.wait()
            line = self._outgoing.popleft()
            try:
                await program.write(line)
            except PaddockError:
                return  # The reader notices the program's end, and knows its exit code.
            self._outgoing_size -= len(line)

    async def _read(self, program: Program, receiver: SessionReceiver) -> None:
        """Deliver the program's messages until its end."""
        name = self._server.name
        buffer = bytearray()
        error: PaddockError
        try:
            while (output := await program.read()) is not None:
                if output.stream == "stderr":
                    self._error_output += output.data
                    del self._error_output[:-MAX_ERROR_OUTPUT]
                    continue
                *lines, rest = output.data.split(b"\n")
                for line in lines:
                    buffer += line
                    self._deliver(bytes(buffer), receiver)
                    buffer.clear()
                buffer += rest
                if len(buffer) > self._server.limits.response_size:
                    raise TooLarge(
                        f"a message of the MCP server {name} is larger than {self._server.limits.response_size} bytes; "
                        "see its limits.response_size"
                    )
            code = await self._end(program)
            error = Unavailable(self._end_message(f"ended with exit code {code}" if code is not None else "has ended"))
        except PaddockError as failure:
            error = failure
            await self._end(program)
        self._program = None
        log.info("MCP server in sandbox ended", server=name, reason=error.message)
        receiver.on_channel_closed(error)

    def _deliver(self, line: bytes, receiver: SessionReceiver) -> None:
        if not line.strip():
            return
        try:
            message = decode_message(line)
        except InvalidInput:
            self._invalid_lines += 1
            self._last_invalid = line[:MAX_SHOWN_OUTPUT]
            if self._invalid_lines > MAX_INVALID_LINES:
                raise Unavailable(self._end_message("writes lines that are not MCP messages")) from None
            return
        receiver.on_message(message, None)

    def _end_message(self, problem: str) -> str:
        shown = self.error_output() or _printable(self._last_invalid)
        return f"the MCP server {self._server.name} {problem}{f': {shown}' if shown else ''}"

    async def _end(self, program: Program) -> int | None:
        try:
            async with asyncio.timeout(END_TIME):
                return await program.close()
        except (TimeoutError, PaddockError) as error:
            log.info("MCP server in sandbox not ended", server=self._server.name, reason=str(error)[:200])
            return None


def _printable(content: bytes) -> str:
    return "".join(character for character in content.decode(errors="replace") if character.isprintable())
